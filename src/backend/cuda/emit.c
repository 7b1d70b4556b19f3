/* Records the calls of ops, and queues the launches of their plan (plan.h).
 *
 *     run_NAME (cuda.c) -> record -> .. -> flush: plan, then one function here per family of launches -> ops*.c
 *
 * Everything that needs the device's results, or overwrites memory, flushes first: the end of a segment or a step,
 * copies from and to the device, the next step. So does a full list. A call with a batch or adapters of the caller,
 * which may not stay valid, is planned together with the calls before it, and queued at once. Joined devices queue
 * every op when it is called: arguments of their ops are on the caller's stack, and all-gathers follow without a
 * flush.
 *
 * Memory: c->ops. The step thread. */
#include "backend/cuda/impl.h"

#include <string.h>

#include "backend/operands.h"

/* State while the launches of a plan are queued. */
typedef struct emitter {
    pi__cuda *c;
    const pi__op_record *r;
    const pi__plan *p;
    cuda_packed_x ready;   /* the input that launch `by` has packed; pi__plan_launch.uses says who reads it */
    cuda_packed_x beside;  /* the second input that launch `beside_by` has packed */
    int32_t by, beside_by; /* indices of launches; PI__NONE = none */
} emitter;

/* -------------------------------------------------------------------------------------------------------- epilogues */

static pi__k_add add_of(const pi__op_record *r)
{
    const pi__norm *b = &r->args.norm;
    const pi__add_norm *a = &r->args.add_norm;
    if (r->id == PI__OP_norm)
        return (pi__k_add) {.x = b->out, .y = b->x, .w = b->w, .eps = b->eps, .fresh = 1, .n = b->n};
    return (pi__k_add) {.x = a->x, .y = a->y, .w = a->w, .bias = a->bias, .eps = a->eps, .scale = a->scale, .n = a->n};
}

/* Returns the sums of experts of the launch. */
static pi__k_sum sum_of(const emitter *e, const pi__plan_launch *l)
{
    const pi__op_record *r = &e->r[l->sum];
    cuda_moe at;
    if (!pi__cuda_moe_at(e->c, r->b, &r->args.moe, &at)) return (pi__k_sum) {.n_rows = 0};
    pi__k_sum s = pi__cuda_sum_of(&r->args.moe, &at);
    if (l->gated == PI__NONE) return s;
    const pi__add_gated *g = &e->r[l->gated].args.add_gated;
    s.shared = g->x, s.gate = g->gate, s.ldg = g->ldg;
    return s;
}

/* True if x is a result of the launch's products. */
static bool makes(const emitter *e, const pi__plan_launch *l, const float *x)
{
    bool does = false;
    if (l->family != PI__L_LINEAR && l->family != PI__L_DOWNS) return false;
    const pi__linear *a = &e->r[l->op].args.linear;
    for (int i = l->first; i < l->first + l->n; i++) does = does || a->lin[i].y == x;
    return does;
}

/* Returns the matrices whose input the launch packs. */
static pi__linear reader_of(const emitter *e, int32_t r)
{
    return e->r[r].id == PI__OP_moe ? pi__moe_reads(&e->r[r].args.moe) : e->r[r].args.linear;
}

/* Returns the epilogue: sums, adds, and packing. */
static pi__k_tail tail_of(const emitter *e, const pi__plan_launch *l)
{
    pi__cuda *c = e->c;
    pi__k_tail t = {.arrived = (uint32_t *) (void *) (c->scratch + c->at.arrived), .waits = pi__cuda_waits(c)};
    if (l->sum != PI__NONE) t.sum = sum_of(e, l), t.n_rows = t.sum.n_rows;
    for (int i = 0; i < l->n_add; i++) {
        const pi__op_record *r = &e->r[l->add[i]];
        t.n_rows = r->id == PI__OP_norm ? r->args.norm.n_rows : r->args.add_norm.n_rows;
        t.add[i] = add_of(r);
        t.add[i].made = !t.add[i].fresh && makes(e, l, t.add[i].x);
    }
    if (l->packs != PI__NONE) {
        const pi__linear next = reader_of(e, l->packs);
        pi__cuda_add_targets(c, &next, c->scratch + c->at.prepared, c->scratch + c->at.floats, &t);
    }
    return t;
}

/* True if the launch has an epilogue. */
static bool has_tail(const pi__plan_launch *l)
{
    return l->sum != PI__NONE || l->n_add || l->packs != PI__NONE || l->heads != PI__NONE || l->routes != PI__NONE;
}

/* --------------------------------------------------------------------------------------------------------- launches */

/* Returns the ops mla_qkv and compress of the launch. */
static pi__k_latent_inputs latent_of(const emitter *e, const pi__plan_launch *l)
{
    pi__k_latent_inputs k = {.n_q = 0};
    for (int i = 0; i < l->n_q; i++) {
        const pi__op_record *r = &e->r[l->q[i]];
        pi__mla_qkv q = r->args.mla_qkv;
        if (!(l->parts[i] & PI__PART_QUERIES)) q.n_head = 0;
        if (!(l->parts[i] & PI__PART_ROW)) q.row = NULL;
        if (q.n_head || q.row) k.q[k.n_q++] = pi__cuda_latent(e->c, r->b, &q);
    }
    for (int i = 0; i < l->n_compress; i++) {
        const pi__op_record *r = &e->r[l->compress[i]];
        k.compress[k.n_compress++] = pi__cuda_compressor(e->c, r->b, &r->args.compress);
    }
    return k;
}

static const pi__hyper *hyper_at(const emitter *e, int32_t r) { return r == PI__NONE ? NULL : &e->r[r].args.hyper_pre; }
static const pi__linear *mix_at(const emitter *e, int32_t r) { return r == PI__NONE ? NULL : &e->r[r].args.linear; }

/* Queues a router with the routes of experts as its epilogue. */
static void queue_router(emitter *e, int32_t i, const pi__plan_launch *l)
{
    pi__cuda *c = e->c;
    const pi__op_record *r = &e->r[l->routes];
    const pi__linear a = pi__launch_linear(l, e->r);
    pi__k_tail own = tail_of(e, l), apart = {.n_rows = 0};
    cuda_moe at;
    if (!pi__cuda_moe_at(c, r->b, &r->args.moe, &at)) return;
    if (l->beside != PI__NONE)
        pi__cuda_add_targets(c, &e->r[l->beside].args.linear, c->scratch + c->at.beside, NULL, &apart);
    const bool both = l->beside != PI__NONE && l->packs != PI__NONE, alone = l->beside != PI__NONE && !both;
    const pi__k_side_input side = {.in = apart.in, .n_in = apart.n_in, .halves = apart.halves, .bf16 = apart.bf16};
    apart.arrived = own.arrived, apart.waits = own.waits;
    pi__k_tail *const t = alone ? &apart : &own;
    t->routes = at.choice.r;
    const pi__k_mixed_more more = {.choice = at.chooses ? &at.choice : NULL, .beside = both ? &side : NULL};
    pi__cuda_queue_more(c, &e->ready, &a, t, &more);
    if (l->packs != PI__NONE) e->ready = pi__cuda_packed_by(&own);
    if (l->beside != PI__NONE) e->beside = pi__cuda_packed_by(&apart), e->beside_by = i;
}

static void queue_linear(emitter *e, const pi__plan_launch *l)
{
    pi__cuda *c = e->c;
    const pi__linear a = pi__launch_linear(l, e->r);
    const pi__k_latent_inputs rows = latent_of(e, l);
    const bool tail = has_tail(l) || l->joined;
    pi__k_tail t = tail_of(e, l);
    pi__k_streams streams;
    pi__k_mixed_more more = {.latent = rows.n_q || rows.n_compress ? &rows : NULL};
    if (l->heads != PI__NONE) {
        const pi__op_record *r = &e->r[l->heads];
        t.n_rows = r->b->n_tokens, t.qkv = pi__cuda_heads(c, r->b, &r->args.qkv);
    }
    if (l->joined) {
        streams = pi__cuda_streams(c, hyper_at(e, l->post), mix_at(e, l->mix), hyper_at(e, l->pre));
        more.streams = &streams;
    }
    if (l->family == PI__L_DOWNS) {
        const pi__op_record *r = &e->r[l->down];
        cuda_moe at;
        if (!pi__cuda_moe_at(c, r->b, &r->args.moe, &at)) return;
        const pi__k_down down = pi__cuda_down_of(c, &r->args.moe, &at);
        pi__cuda_queue_down(c, &e->ready, &a, &down, tail ? &t : NULL);
    } else {
        pi__cuda_queue_more(c, &e->ready, &a, tail ? &t : NULL, &more);
    }
    if (l->packs != PI__NONE) e->ready = pi__cuda_packed_by(&t);
}

static void queue_experts(emitter *e, const pi__plan_launch *l)
{
    const pi__op_record *r = &e->r[l->op];
    cuda_moe at;
    if (!pi__cuda_moe_at(e->c, r->b, &r->args.moe, &at)) return;
    if (!l->routed) pi__cuda_route(e->c, &at);
    if (l->mid) pi__cuda_gate_up(e->c, &e->ready, &r->args.moe, &at);
    else pi__cuda_gate_up_down(e->c, &e->ready, &r->args.moe, &at);
}

static void queue_rows(emitter *e, const pi__plan_launch *l)
{
    pi__cuda *c = e->c;
    const pi__k_tail t = tail_of(e, l);
    const bool sums_alone = l->sum != PI__NONE && l->gated == PI__NONE && !l->n_add && l->packs == PI__NONE;
    if (sums_alone) PI__QUEUE(c, pi__k_add_experts(pi__rt_stream(c->rt), &t.sum));
    else PI__QUEUE(c, pi__k_finish_rows(pi__rt_stream(c->rt), &t));
    if (l->packs != PI__NONE) e->ready = pi__cuda_packed_by(&t);
}

/* Queues attention, gdn, head_linear or streams; the epilogue only packs. */
static void queue_packing(emitter *e, const pi__plan_launch *l)
{
    pi__cuda *c = e->c;
    const pi__op_record *r = &e->r[l->op];
    const bool tail = has_tail(l);
    pi__k_tail t = tail_of(e, l);
    const pi__k_tail *const then = tail ? &t : NULL;
    if (l->family == PI__L_ATTENTION) pi__cuda_queue_attention(c, r->b, &r->args.attention, then);
    if (l->family == PI__L_GDN) pi__cuda_queue_gdn(c, r->b, &r->args.gdn, then);
    if (l->family == PI__L_STREAMS)
        pi__cuda_queue_streams(c, hyper_at(e, l->post), mix_at(e, l->mix), hyper_at(e, l->pre), then);
    if (l->family == PI__L_HEADS) {
        const pi__k_mla_qkv prep =
            l->n_q ? pi__cuda_latent(c, e->r[l->q[0]].b, &e->r[l->q[0]].args.mla_qkv) : (pi__k_mla_qkv) {.n_tokens = 0};
        pi__cuda_queue_heads(c, &r->args.head_linear, l->packed, l->n_q ? &prep : NULL, then);
    }
    if (tail) e->ready = pi__cuda_packed_by(&t);
}

static void queue_sparse(emitter *e, const pi__plan_launch *l)
{
    pi__cuda *c = e->c;
    const pi__op_record *r = &e->r[l->op];
    const pi__mla_qkv *raw = l->raw == PI__NONE ? NULL : &e->r[l->raw].args.mla_qkv;
    if (l->groups == PI__NONE) {
        pi__cuda_queue_sparse(c, r->b, &r->args.sparse, raw, NULL);
        return;
    }
    const pi__head_linear *a = &e->r[l->groups].args.head_linear;
    const pi__k_groups g = pi__cuda_groups(c, a, (int32_t) (a->w->n_in / r->args.sparse.dim));
    pi__cuda_queue_sparse(c, r->b, &r->args.sparse, raw, &g);
}

static void queue_indexer(emitter *e, const pi__plan_launch *l)
{
    const pi__op_record *r = &e->r[l->op];
    const pi__mla_qkv *raw = l->raw == PI__NONE ? NULL : &e->r[l->raw].args.mla_qkv;
    pi__cuda_queue_indexer(e->c, r->b, &r->args.indexer, raw);
}

static void queue_latent(emitter *e, const pi__plan_launch *l)
{
    const pi__k_latent_inputs k = latent_of(e, l);
    pi__cuda_queue_latent(e->c, &k);
}

/* Queues an op as it is. */
static void queue_op(emitter *e, const pi__plan_launch *l)
{
    pi__cuda *c = e->c;
    const pi__op_record *r = &e->r[l->op];
    if (r->id == PI__OP_linear) {
        pi__cuda_queue_linear(c, &e->ready, &r->args.linear);
        return;
    }
    if (r->id == PI__OP_moe) {
        pi__cuda_queue_moe(c, &e->ready, r->b, &r->args.moe);
        return;
    }
#define CASE(name, type)                                                                                               \
    case PI__OP_##name: pi__cuda_##name(&c->be, r->b, &r->args.name); break;
    switch (r->id) {
        PI__OPS(CASE)
    case PI__N_OPS: break;
    }
#undef CASE
}

/* Sets e->ready to the input that the launch may read. */
static void choose_ready(emitter *e, const pi__plan_launch *l)
{
    const bool linear = l->family == PI__L_LINEAR || l->family == PI__L_DOWNS;
    if (linear && l->uses != PI__NONE && l->uses == e->beside_by && e->p->launch[l->uses].beside == l->op)
        e->ready = e->beside;
    else if (l->uses == PI__NONE || l->uses != e->by) e->ready = (cuda_packed_x) {.n_rows = 0};
}

/* Returns the launch's main op; for rows, its first op; if it only packs, the op before the one that reads it. */
static int32_t main_op(const pi__plan_launch *l)
{
    if (l->op != PI__NONE) return l->op;
    if (l->sum != PI__NONE) return l->sum;
    return l->n_add ? l->add[0] : l->packs - 1;
}

static void queue_launch(emitter *e, int32_t i)
{
    const pi__plan_launch *l = &e->p->launch[i];
    choose_ready(e, l);
    if (e->c->ops->before) e->c->ops->before(e->r, main_op(l));
    switch ((pi__family) l->family) {
    case PI__L_OP: queue_op(e, l); break;
    case PI__L_LINEAR:
    case PI__L_DOWNS:
        if (l->routes != PI__NONE) queue_router(e, i, l);
        else queue_linear(e, l);
        break;
    case PI__L_ADDED: {
        const pi__linear a = pi__launch_linear(l, e->r);
        pi__cuda_queue_added(e->c, &e->ready, &a, &e->r[l->add[0]].args.add_norm);
        break;
    }
    case PI__L_GLU: {
        const pi__linear a = pi__launch_linear(l, e->r);
        pi__cuda_queue_glu(e->c, &e->ready, &a, &e->r[l->packs].args.linear);
        break;
    }
    case PI__L_EXPERTS: queue_experts(e, l); break;
    case PI__L_ROWS: queue_rows(e, l); break;
    case PI__L_ATTENTION:
    case PI__L_GDN:
    case PI__L_HEADS:
    case PI__L_STREAMS: queue_packing(e, l); break;
    case PI__L_SPARSE: queue_sparse(e, l); break;
    case PI__L_INDEXER: queue_indexer(e, l); break;
    case PI__L_LATENT: queue_latent(e, l); break;
    case PI__N_FAMILIES: break;
    }
    e->by = i;
}

void pi__cuda_flush(pi__cuda *c)
{
    cuda_records *k = c->ops;
    if (!k->n || k->queueing) return;
    emitter e = {.c = c, .r = k->op, .p = &k->plan, .by = PI__NONE, .beside_by = PI__NONE};
    k->queueing = true;
    pi__plan_make(&k->plan, &c->f, k->op, k->n);
    for (int32_t i = 0; i < k->plan.n; i++) queue_launch(&e, i);
    k->n = 0;
    k->queueing = false;
}

/* Returns the adapters of a call; NULL = none. */
static const pi__lora_rows *adapters_of(pi__op_id id, const void *args)
{
    if (id == PI__OP_lora) return ((const pi__lora *) args)->rows;
    if (id == PI__OP_lora_embed) return ((const pi__lora_embed *) args)->rows;
    return id == PI__OP_moe ? ((const pi__moe *) args)->lora.rows : NULL;
}

/* True if the memory that a call points to stays valid until the end of the step: its batch and its adapters are
 * those that begin() returned. Other arguments stay valid anyway (ops.h). */
static bool stays(const pi__cuda *c, pi__op_id id, const pi__batch *b, const void *args)
{
    const pi__batch *own = &c->batch[0].host, *rows = &c->batch[1].host;
    const pi__lora_rows *adapters = adapters_of(id, args);
    return (!b || b == own || b == rows) && (!adapters || adapters == &own->lora || adapters == &rows->lora);
}

/* Queues an op at once. An op moe may read the input that the op before it has packed. */
static void queue_now(pi__cuda *c, pi__op_id id, const pi__batch *b, const void *args)
{
    pi__op_record r = {.id = id, .b = b};
    emitter e = {.c = c, .r = &r};
    memcpy(&r.args, args, pi__op_size(id));
    if (id == PI__OP_moe) e.ready = c->packed;
    queue_op(&e, &(pi__plan_launch) {.family = PI__L_OP});
    c->packed = e.ready;
}

/* While a segment is replayed, its ops do nothing. Only op topk may end the segment, and then run. */
void pi__cuda_record(pi__cuda *c, pi__op_id id, const pi__batch *b, const void *args)
{
    cuda_records *k = c->ops;
    if (c->joined) {
        queue_now(c, id, b, args);
        return;
    }
    if (c->replayed && id != PI__OP_topk) return;
    if (k->n == PI__MAX_RECORDS) pi__cuda_flush(c);
    pi__op_record *r = &k->op[k->n++];
    r->id = id;
    r->b = b;
    memcpy(&r->args, args, pi__op_size(id));
    if (!stays(c, id, b, args)) pi__cuda_flush(c);
}
