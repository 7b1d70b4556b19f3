/* The planner goes through the records once, from the first to the last. For each op it tries the op's rules: they join
 * the op to the last launch of the plan, or put a new launch at its end. Only the last launch can change, with three
 * exceptions: sums of experts wait for an independent linear, which is put before them; down of experts can be taken
 * from the launch before these sums; and some launches are divided when the next one begins (settle).
 *
 * Launches of a layer with few rows, with all rules:
 *
 *     dense                     5: q, k, v; attention; output; gate and up; down
 *     with shared expert        6: q, k, v; attention; output; router, shared gate and up; gate and up; down of all
 *     with norms of both parts  9: after output: shared gate and up; shared down, with its norm and the router's input
 *                                  in the epilogue; router; gate and up; down; sums with two adds
 *     latent attention          9: q_a and kv; q_b; k_b, with queries and row; attention; v_b; output; router, shared
 *                                  gate and up; gate and up; down
 *     DeepSeek V4               9: all that reads the streams; q_b and the indexer's; attention; output (2), the second
 *                                  with the streams; router, shared gate and up; gate and up; down; shared down, with
 *                                  the streams. If both downs are one launch, the streams have a launch of their own
 *
 * There are more launches if matrices with the same input have types that one launch cannot mix
 * (kernels/mixed_kernels.cuh). The plans of the architectures are in tests/unit/plans. */
#include "backend/cuda/plan.h"

#include "backend/cuda/kernels_hyper.h"
#include "backend/cuda/kernels_sparse.h"
#include "backend/cuda/lora_groups.h"
#include "formats/formats.h"

typedef struct planner {
    pi__plan *p;
    const pi__facts *f;
    const pi__op_record *r; /* [n] */
    int32_t n;
    pi__plan_launch none; /* the last launch of an empty plan */
} planner;

static bool on(const planner *P, pi__rule rule) { return !(P->f->rules_off >> rule & 1); }

/* ----------------------------------------------------------------------------------------------- the last launch */

static const pi__plan_launch NOTHING = {.family = PI__L_OP,
                                        .op = PI__NONE,
                                        .down = PI__NONE,
                                        .groups = PI__NONE,
                                        .raw = PI__NONE,
                                        .post = PI__NONE,
                                        .mix = PI__NONE,
                                        .pre = PI__NONE,
                                        .heads = PI__NONE,
                                        .routes = PI__NONE,
                                        .sum = PI__NONE,
                                        .gated = PI__NONE,
                                        .packs = PI__NONE,
                                        .beside = PI__NONE,
                                        .uses = PI__NONE};

static pi__plan_launch *append(planner *P, pi__family family, int32_t op)
{
    pi__plan_launch *l = &P->p->launch[P->p->n++];
    *l = NOTHING;
    l->family = (uint8_t) family;
    l->op = (int16_t) op;
    return l;
}

/* Divides the last launch before another one follows: queries beside a linear, which depend on its results, and
 * streams that have not joined it, become a launch of their own. Removes a launch of latent inputs that lost all its
 * work. */
static void settle(planner *P)
{
    if (!P->p->n) return;
    pi__plan_launch *l = &P->p->launch[P->p->n - 1], rest = NOTHING;
    if (l->family == PI__L_LATENT) {
        bool some = l->n_compress;
        for (int i = 0; i < l->n_q; i++) some = some || l->parts[i];
        if (!some) P->p->n--;
    }
    if (l->family != PI__L_LINEAR) return;
    rest.family = PI__L_LATENT;
    for (int i = 0; i < l->n_q; i++) {
        if (!(l->parts[i] & PI__PART_QUERIES)) continue;
        l->parts[i] &= (uint8_t) ~PI__PART_QUERIES;
        rest.op = rest.q[rest.n_q] = l->q[i];
        rest.parts[rest.n_q++] = PI__PART_QUERIES;
    }
    if (l->post != PI__NONE && !l->joined) {
        rest.family = PI__L_STREAMS;
        rest.op = rest.post = l->post, rest.mix = l->mix, rest.pre = l->pre;
        l->post = l->mix = l->pre = PI__NONE;
    }
    if (rest.op != PI__NONE) P->p->launch[P->p->n++] = rest;
}

static pi__plan_launch *push(planner *P, pi__family family, int32_t op)
{
    settle(P);
    return append(P, family, op);
}

static pi__plan_launch *last(planner *P) { return P->p->n ? &P->p->launch[P->p->n - 1] : &P->none; }

pi__linear pi__launch_linear(const pi__plan_launch *l, const pi__op_record *r)
{
    return pi__linear_part(&r[l->op].args.linear, l->first, l->n);
}

static pi__linear part_of(const planner *P, const pi__plan_launch *l) { return pi__launch_linear(l, P->r); }
static bool has_latent_ops(const pi__plan_launch *l) { return l->n_q || l->n_compress; }
static bool is_products(const pi__plan_launch *l) { return l->family == PI__L_LINEAR || l->family == PI__L_DOWNS; }

/* True if the launch has products, and nothing that ends its epilogue. */
static bool is_open(const pi__plan_launch *l)
{
    return is_products(l) && !has_latent_ops(l) && l->post == PI__NONE && l->heads == PI__NONE &&
           l->routes == PI__NONE && l->packs == PI__NONE;
}

/* True if the launch has the products of a linear, and nothing else. */
static bool is_plain(const pi__plan_launch *l)
{
    return l->family == PI__L_LINEAR && is_open(l) && l->sum == PI__NONE && !l->n_add;
}

/* True if x is a result of the launch's products. */
static bool makes(const planner *P, const pi__plan_launch *l, const float *x)
{
    bool does = false;
    if (!is_products(l)) return false;
    const pi__linear *a = &P->r[l->op].args.linear;
    for (int i = l->first; i < l->first + l->n; i++) does = does || a->lin[i].y == x;
    return does;
}

/* ------------------------------------------------------------------------------------------- adds, norms and sums */

/* Fields of op add_norm or norm. */
typedef struct added {
    int32_t n_rows;
    int64_t n;
    const float *y;
} added;

static added added_of(const pi__op_record *r)
{
    const pi__add_norm *a = &r->args.add_norm;
    const pi__norm *b = &r->args.norm;
    return r->id == PI__OP_norm ? (added) {b->n_rows, b->n, b->x} : (added) {a->n_rows, a->n, a->y};
}

/* Returns the rows of the launch's sums, adds and norms; 0 = it has none. */
static int32_t rows_of(const planner *P, const pi__plan_launch *l)
{
    if (l->n_add) return added_of(&P->r[l->add[0]]).n_rows;
    return l->sum != PI__NONE ? P->r[l->sum].args.moe.n_rows : 0;
}

/* True if the add can follow the launch's sums and adds. */
static bool follows(const planner *P, const pi__plan_launch *l, const added *a)
{
    if (l->n_add) return l->n_add < PI__PLAN_ADDS && rows_of(P, l) == a->n_rows;
    if (l->sum == PI__NONE) return true;
    const pi__moe *m = &P->r[l->sum].args.moe;
    return on(P, PI__RULE_sums) && m->n_rows == a->n_rows && m->down->n_out == a->n && m->y == a->y && m->ldy == a->n;
}

/* Rules adds and added. A norm follows only a plain linear; otherwise it has its own kernel. */
static bool place_add(planner *P, int32_t r)
{
    pi__plan_launch *l = last(P);
    const added a = added_of(&P->r[r]);
    const bool norm = P->r[r].id == PI__OP_norm, open = is_open(l);
    const pi__linear of = open ? part_of(P, l) : (pi__linear) {.n_rows = 0};
    const bool behind = open && of.n_rows == a.n_rows && follows(P, l, &a);
    if (norm && (!on(P, PI__RULE_adds) || !is_plain(l) || !behind || P->r[r].args.norm.ldo != a.n)) return false;
    if (behind && is_plain(l) && !norm && on(P, PI__RULE_added) && pi__adds_itself(P->f, &of, &P->r[r].args.add_norm)) {
        l->family = PI__L_ADDED;
        l->add[l->n_add++] = (int16_t) r;
        return true;
    }
    if (!on(P, PI__RULE_adds)) return false;
    const bool rows = l->family == PI__L_ROWS && l->packs == PI__NONE && follows(P, l, &a);
    if (!rows && !(behind && pi__has_tail(P->f, &of))) l = push(P, PI__L_ROWS, PI__NONE);
    l->add[l->n_add++] = (int16_t) r;
    return true;
}

/* Rule gated. */
static bool place_gated(planner *P, int32_t r)
{
    pi__plan_launch *l = last(P);
    const pi__add_gated *a = &P->r[r].args.add_gated;
    const bool sums = (is_open(l) || (l->family == PI__L_ROWS && l->packs == PI__NONE)) && l->sum != PI__NONE;
    if (!on(P, PI__RULE_gated) || !sums || l->n_add || l->gated != PI__NONE) return false;
    const pi__moe *m = &P->r[l->sum].args.moe;
    if (m->y != a->y || m->n_rows != a->n_rows || m->down->n_out != a->n || m->ldy != a->n) return false;
    l->gated = (int16_t) r;
    return true;
}

/* True if the linear reads or writes memory that the sums of op moe are written to. */
static bool touches(const pi__linear *a, const pi__moe *m)
{
    const float *const from = m->y, *const to = m->y + (int64_t) m->n_rows * m->ldy;
    bool does = (a->in.x >= from && a->in.x < to) || (a->in.x2 >= from && a->in.x2 < to);
    for (int32_t i = 0; i < a->n_lin; i++) does = does || (a->lin[i].y >= from && a->lin[i].y < to);
    return does;
}

/* True if the last launch is only the sums of experts, and the linear is independent of them. */
static bool sums_wait(const planner *P, const pi__plan_launch *l, const pi__linear *a)
{
    const bool alone =
        l->family == PI__L_ROWS && l->sum != PI__NONE && l->gated == PI__NONE && !l->n_add && l->packs == PI__NONE;
    return on(P, PI__RULE_sums) && alone && rows_of(P, l) == a->n_rows && !touches(a, &P->r[l->sum].args.moe);
}

/* --------------------------------------------------------------------------------------------------------- linear */

/* True if the linear's input is the RMSNorm of hyper_pre's complete result y.
 *
 *  */
static bool reads_streams(const pi__hyper *h, const pi__linear *next)
{
    const pi__lin_in *in = &next->in;
    return in->kind == PI__IN_RMSNORM && in->x == h->y && in->ldx == h->n && next->n_rows == h->n_rows &&
           next->lin[0].w->n_in == h->n;
}

/* True if the launch can pack the input of `a`. Attention and gdn cannot compute norms: in blocks of their size the
 * sums would have other bits. Attention to values of rotated types writes results that are rotated back later. */
static bool can_pack(const planner *P, const pi__plan_launch *l, const pi__linear *a)
{
    const pi__facts *f = P->f;
    const int32_t most = pi__tail_rows(f), rows = rows_of(P, l);
    const bool few = a->n_rows <= most, plain = a->in.kind == PI__IN_PLAIN;
    const pi__targets t = pi__targets_of(f, a);
    if (a->n_rows < 1 || !pi__has_targets(&t)) return false;
    switch ((pi__family) l->family) {
    case PI__L_LINEAR:
    case PI__L_DOWNS: {
        const pi__linear of = part_of(P, l);
        return is_open(l) && few && pi__has_tail(f, &of) && (!rows || rows == a->n_rows);
    }
    case PI__L_ADDED: return true; /* by a launch of its own */
    case PI__L_ROWS: return l->packs == PI__NONE && rows == a->n_rows;
    case PI__L_HEADS: return few && plain && !l->n_q && P->r[l->op].args.head_linear.n_rows <= most;
    case PI__L_ATTENTION:
        return few && plain && P->r[l->op].b->n_tokens <= most &&
               !pi__kv_rotated(P->r[l->op].args.attention.kv->type_v);
    case PI__L_GDN:
        return few && plain && P->r[l->op].b->n_tokens <= most &&
               pi__gdn_has_tail(f, P->r[l->op].b, &P->r[l->op].args.gdn);
    case PI__L_STREAMS:
        return l->pre != PI__NONE && reads_streams(&P->r[l->pre].args.hyper_pre, a) && !pi__reads_fp4(f, a);
    default: return false;
    }
}

/* The launch packs the input of linear r, if the matrices read a format that an epilogue can pack. Joins work on
 * residual streams to the linear before it, if r reads its result. */
static void join_streams(planner *P, pi__plan_launch *l, int32_t r)
{
    const pi__linear *a = &P->r[r].args.linear;
    const pi__targets t = pi__targets_of(P->f, a);
    if (l->mix == PI__NONE || l->pre == PI__NONE) return;
    if (!reads_streams(&P->r[l->pre].args.hyper_pre, a) || pi__reads_fp4(P->f, a)) return;
    l->joined = true;
    if (pi__has_targets(&t)) l->packs = (int16_t) r;
}

/* Rules glu and pack, and the end of rule streams: what the last launch does for linear r. */
static void connect(planner *P, int32_t r)
{
    pi__plan_launch *l = last(P);
    const pi__linear *a = &P->r[r].args.linear;
    if (l->family == PI__L_LINEAR && l->post != PI__NONE) {
        join_streams(P, l, r);
        return;
    }
    /* adapters may read the results of gate and up */
    if (on(P, PI__RULE_glu) && is_plain(l) && !P->f->adapters) {
        const pi__linear of = part_of(P, l);
        if (pi__has_glu(P->f, &of, a)) {
            l->family = PI__L_GLU;
            l->packs = (int16_t) r;
            return;
        }
    }
    if (!on(P, PI__RULE_pack) || !can_pack(P, l, a)) return;
    if (l->family == PI__L_ADDED) l = push(P, PI__L_ROWS, PI__NONE);
    l->packs = (int16_t) r;
}

/* Returns the index of the launch that has packed the input of linear r; PI__NONE = none. Between the two there are
 * at most the launches of experts and sums. */
static int16_t packer_of(const planner *P, int32_t r)
{
    for (int32_t i = P->p->n - 1; i >= 0 && i >= P->p->n - 4; i--)
        if (P->p->launch[i].packs == r || P->p->launch[i].beside == r) return (int16_t) i;
    return PI__NONE;
}

/* Rule downs: the experts' down moves from launch e, if that is possible, to the linear's launch l. */
static void take_down(planner *P, pi__plan_launch *e, pi__plan_launch *l, int32_t moe)
{
    const pi__moe *m = &P->r[moe].args.moe;
    const pi__linear a = part_of(P, l);
    if (!on(P, PI__RULE_downs) || e->family != PI__L_EXPERTS || e->op != moe || !pi__fits_down(P->f, &a)) return;
    const int form = pi__form(P->f, pi__cuda_packed_type(m->down->type), m->down->n_in);
    if (m->lora.rows || form != PI__FORM_W16 || !pi__experts_have_glu(P->f, m)) return;
    e->mid = true;
    l->family = PI__L_DOWNS;
    l->down = (int16_t) moe;
}

/* Puts matrices first to first + n - 1 of linear r at the end, or before the sums of experts that wait for it. */
static void place_products(planner *P, int32_t r, int32_t first, int32_t n)
{
    const pi__linear *a = &P->r[r].args.linear;
    const bool waits = sums_wait(P, last(P), a);
    const int16_t sum = last(P)->sum;
    if (waits) P->p->n--;
    connect(P, r);
    pi__plan_launch *l = push(P, PI__L_LINEAR, r);
    l->first = (uint8_t) first, l->n = (uint8_t) n;
    l->uses = packer_of(P, r);
    if (!waits) return;
    const pi__linear of = part_of(P, l);
    if (P->p->n > 1) take_down(P, l - 1, l, sum);
    if (!pi__has_tail(P->f, &of)) l = push(P, PI__L_ROWS, PI__NONE);
    l->sum = sum;
}

/* Returns the record of the shared expert's down, if records r to r + 2 are a router with the shared expert's gate
 * and up, the experts, and that down; else PI__NONE. */
static int32_t shared_down(const planner *P, int32_t r)
{
    if (r < 0 || r + 2 >= P->n || P->f->adapters || P->r[r].id != PI__OP_linear) return PI__NONE;
    if (P->r[r + 1].id != PI__OP_moe || P->r[r + 2].id != PI__OP_linear) return PI__NONE;
    const pi__linear *a = &P->r[r].args.linear, *d = &P->r[r + 2].args.linear;
    const pi__moe *m = &P->r[r + 1].args.moe;
    const int32_t n = a->n_lin;
    if (n < 3 || d->n_lin != 1 || !pi__in_gated(d->in.kind) || m->lora.rows || m->shard) return PI__NONE;
    if (a->n_rows != m->n_rows || d->n_rows != m->n_rows || a->lin[0].y != m->logits) return PI__NONE;
    if (!pi__same_input(&a->in, &m->in) || a->lin[n - 2].y != d->in.x || a->lin[n - 1].y != d->in.x2) return PI__NONE;
    return r + 2;
}

/* Rule split: true if the router's launch has no space for gate and up of the shared expert. */
static bool splits(const planner *P, int32_t r)
{
    const pi__linear *a = &P->r[r].args.linear;
    if (!on(P, PI__RULE_split) || shared_down(P, r) == PI__NONE) return false;
    return a->n_rows > PI__K_MIXED_ROWS || !pi__has_routes(P->f, a, P->r[r + 1].args.moe.n_expert);
}

static bool place_mix(planner *P, int32_t r);

static bool place_linear(planner *P, int32_t r)
{
    const pi__linear *a = &P->r[r].args.linear;
    if (pi__is_mix(P->f, a)) return place_mix(P, r);
    if (a->n_rows < 1 || (P->f->disabled.many_rows && a->n_rows > PI__CUDA_FEW_ROWS)) return false;
    place_products(P, r, 0, splits(P, r) ? a->n_lin - 2 : a->n_lin);
    return true;
}

/* Rule heads. */
static bool place_heads(planner *P, int32_t r)
{
    pi__plan_launch *l = last(P);
    if (!on(P, PI__RULE_heads) || !is_plain(l) || P->r[r].b->n_tokens > pi__tail_rows(P->f)) return false;
    const pi__linear a = part_of(P, l);
    if (!pi__has_tail(P->f, &a)) return false;
    l->heads = (int16_t) r;
    return true;
}

/* -------------------------------------------------------------------------------------------------------- experts */

/* Rules routes and beside: op moe r after the router's launch l. */
static void add_routes(planner *P, pi__plan_launch *l, int32_t r)
{
    const pi__facts *f = P->f;
    const pi__linear a = part_of(P, l), next = pi__moe_reads(&P->r[r].args.moe);
    const pi__targets own = pi__targets_of(f, &next);
    const bool few = a.n_rows <= pi__tail_rows(f), whole = l->n == P->r[l->op].args.linear.n_lin;
    const int32_t down = whole && on(P, PI__RULE_beside) ? shared_down(P, l->op) : PI__NONE;
    l->routes = (int16_t) r;
    if (few && !pi__reads_same(f, &a, &next) && pi__has_targets(&own)) l->packs = (int16_t) r;
    if (!few || down == PI__NONE) return;
    /* the second region has no space for floats or terms; together with the first one, only for 16-bit floats */
    const pi__targets t = pi__targets_of(f, &P->r[down].args.linear);
    if (l->packs == PI__NONE ? t.integers || t.halves || t.fp4 : t.halves) l->beside = (int16_t) down;
}

/* Op moe: its experts, what waits of the linear before them (rule split), and its sums. With so many adapters that
 * the op runs in several passes, it is one launch of the plan. */
static bool place_moe(planner *P, int32_t r)
{
    const pi__moe *m = &P->r[r].args.moe;
    pi__plan_launch *l = last(P);
    if (m->n_rows < 1) return true;
    if (m->shard || pi__lora_moe_rows(&P->f->lim, m) < m->n_rows) return false;
    const bool plain = is_plain(l);
    const pi__linear a = plain ? part_of(P, l) : (pi__linear) {.n_rows = 0};
    const int32_t op = l->op, first = l->first + l->n, rest = plain ? P->r[op].args.linear.n_lin - first : 0;
    const bool routed =
        on(P, PI__RULE_routes) && plain && a.n_rows == m->n_rows && pi__has_routes(P->f, &a, m->n_expert);
    if (routed) add_routes(P, l, r);
    pi__plan_launch *e = push(P, PI__L_EXPERTS, r);
    e->routed = routed;
    if (plain) e->uses = (int16_t) (P->p->n - 2);
    if (rest) {
        pi__plan_launch *both = push(P, PI__L_LINEAR, op);
        both->first = (uint8_t) first, both->n = (uint8_t) rest;
        both->uses = (int16_t) (P->p->n - 2);
    }
    push(P, PI__L_ROWS, PI__NONE)->sum = (int16_t) r;
    return true;
}

/* ----------------------------------------------------------------------------------------------- latent attention */

/* Returns the batch of the launch's latent ops. */
static const pi__batch *batch_of(const planner *P, const pi__plan_launch *l)
{
    return P->r[l->n_q ? l->q[0] : l->compress[0]].b;
}

/* Returns the launch to which latent op r, which reads `from`, is added: the last one, if it has such ops and `fits`;
 * or that of a linear before it, unless that linear writes `from`; or a new one. */
static pi__plan_launch *latent_launch(planner *P, int32_t r, const float *from, bool fits)
{
    pi__plan_launch *l = last(P);
    const pi__batch *b = P->r[r].b;
    const bool made = from && makes(P, l, from);
    if (has_latent_ops(l) && (l->family == PI__L_LATENT || l->family == PI__L_LINEAR) && batch_of(P, l) == b && fits &&
        !made)
        return l;
    if (is_plain(l) && !made) {
        const pi__linear a = part_of(P, l);
        if (a.n_rows == b->n_tokens && pi__has_latent(P->f, &a)) return l;
    }
    return push(P, PI__L_LATENT, r);
}

/* Rule queries for op head_linear: its results are the queries of op mla_qkv r.
 *
 *  */
static bool join_heads(planner *P, int32_t r)
{
    pi__plan_launch *l = last(P);
    const pi__mla_qkv *a = &P->r[r].args.mla_qkv;
    if (!on(P, PI__RULE_queries) || l->family != PI__L_HEADS || l->n_q) return false;
    const pi__head_linear *h = &P->r[l->op].args.head_linear;
    if (a->q != h->y || a->ldq != h->ldy || a->q_norm) return false;
    if (a->n_head != h->w->n_mat || a->dim != h->y_step || a->n_rot != h->n_tail || P->r[r].b->n_tokens != h->n_rows)
        return false;
    if (h->w->n_out + h->n_tail != a->dim) return false;
    l->q[0] = (int16_t) r, l->n_q = 1;
    l->parts[0] = PI__PART_QUERIES | PI__PART_ROW;
    return true;
}

static bool place_mla_qkv(planner *P, int32_t r)
{
    const pi__plan_launch *held = last(P);
    const pi__mla_qkv *a = &P->r[r].args.mla_qkv;
    if (join_heads(P, r)) return true;
    if (!on(P, PI__RULE_latent)) return false;
    const pi__mla_qkv *first = held->n_q ? &P->r[held->q[0]].args.mla_qkv : NULL;
    const bool apart = !first || (first->q != a->q && !(first->row && a->row));
    pi__plan_launch *l = latent_launch(P, r, a->row, held->n_q < PI__LATENT_OPS && apart);
    l->parts[l->n_q] = (uint8_t) ((a->n_head ? PI__PART_QUERIES : 0) | (a->row ? PI__PART_ROW : 0));
    l->q[l->n_q++] = (int16_t) r;
    return true;
}

static bool place_compress(planner *P, int32_t r)
{
    const pi__plan_launch *held = last(P);
    const pi__compress *a = &P->r[r].args.compress;
    if (!on(P, PI__RULE_latent)) return false;
    const pi__compress *first = held->n_compress ? &P->r[held->compress[0]].args.compress : NULL;
    const bool apart = !first || (first->recent != a->recent && first->entries != a->entries);
    pi__plan_launch *l = latent_launch(P, r, a->x, held->n_compress < PI__LATENT_OPS && apart);
    l->compress[l->n_compress++] = (int16_t) r;
    return true;
}

/* Returns the entry of the last launch's op mla_qkv that computes the queries q for batch b; PI__NONE = none. */
static int32_t queries_at(planner *P, const pi__batch *b, const float *q)
{
    const pi__plan_launch *l = last(P);
    if (!on(P, PI__RULE_queries) || (l->family != PI__L_LATENT && l->family != PI__L_LINEAR)) return PI__NONE;
    for (int32_t i = 0; i < l->n_q; i++) {
        const pi__op_record *of = &P->r[l->q[i]];
        if (of->b == b && l->parts[i] & PI__PART_QUERIES && of->args.mla_qkv.q == q) return i;
    }
    return PI__NONE;
}

/* Takes the queries of entry i from the last launch, and returns their op. */
static int16_t take_queries(planner *P, int32_t i)
{
    pi__plan_launch *l = last(P);
    l->parts[i] &= (uint8_t) ~PI__PART_QUERIES;
    return l->q[i];
}

/* If all entries are picked, nothing reads the indexer's queries, and the op does nothing. Else it applies op mla_qkv
 * to its queries itself. The queries of op sparse, which follows, wait for that op. */
static bool place_indexer(planner *P, int32_t r)
{
    const pi__indexer *a = &P->r[r].args.indexer;
    const int32_t own = queries_at(P, P->r[r].b, a->q);
    pi__plan_launch later = NOTHING;
    int16_t raw = PI__NONE;
    if (pi__picks_all(P->f, P->r[r].b, a->entries, a->n_top)) {
        if (own != PI__NONE) (void) take_queries(P, own);
        return true;
    }
    const pi__plan_launch *l = last(P);
    if (own != PI__NONE) {
        const pi__mla_qkv *q = &P->r[l->q[own]].args.mla_qkv;
        if (!q->q_norm && q->rope && q->dim == a->dim && q->n_head == a->n_head && q->ldq == a->ldq)
            raw = take_queries(P, own);
    }
    for (int32_t i = 0; i < PI__LATENT_OPS && on(P, PI__RULE_queries); i++) {
        if (i == own || i >= l->n_q || !(l->parts[i] & PI__PART_QUERIES)) continue;
        later.parts[later.n_q] = PI__PART_QUERIES;
        later.q[later.n_q++] = take_queries(P, i);
    }
    push(P, PI__L_INDEXER, r)->raw = raw;
    if (!later.n_q) return true;
    pi__plan_launch *q = push(P, PI__L_LATENT, later.q[0]);
    later.family = q->family, later.op = q->op;
    *q = later;
    return true;
}

static bool place_sparse(planner *P, int32_t r)
{
    const pi__sparse *a = &P->r[r].args.sparse;
    const int32_t at = queries_at(P, P->r[r].b, a->q);
    int16_t raw = PI__NONE;
    if (at != PI__NONE) {
        const pi__mla_qkv *q = &P->r[last(P)->q[at]].args.mla_qkv;
        const bool same = q->n_head == a->n_head && q->dim == a->dim && q->ldq == a->ldq && q->rope == a->rope &&
                          q->n_rot == a->n_rot;
        if (same && a->dim <= PI__K_RAW_QUERIES) raw = take_queries(P, at);
    }
    push(P, PI__L_SPARSE, r)->raw = raw;
    return true;
}

/* True if heads of op sparse are the complete input of one matrix of head_linear. */
static bool are_groups(const pi__sparse *from, const pi__head_linear *to)
{
    const int32_t n = (int32_t) (to->w->n_in / from->dim);
    const bool same = from->out == to->x && from->ldo == to->ldx && to->x_step == to->w->n_in && !to->n_tail;
    return same && n * to->w->n_mat == from->n_head && n * from->dim == to->w->n_in && pi__k_sparse_groups(from, n);
}

/* Rule groups. Formats other than 16-bit floats have their own launches. */
static bool place_head_linear(planner *P, int32_t r)
{
    const pi__head_linear *a = &P->r[r].args.head_linear;
    pi__plan_launch *l = last(P);
    if (!pi__heads_in_16(P->f, a)) return false;
    const bool packed = on(P, PI__RULE_groups) && l->family == PI__L_SPARSE && P->r[l->op].b->n_tokens == a->n_rows &&
                        are_groups(&P->r[l->op].args.sparse, a) && pi__heads_take_groups(P->f, a);
    if (packed) l->groups = (int16_t) r;
    push(P, PI__L_HEADS, r)->packed = packed;
    return true;
}

/* ----------------------------------------------------------------------------------------------- residual streams */

/* True if launch l computes a->y, which hyper_post adds to the streams: as results of a linear, or as these results
 * plus the sums of experts. */
static bool makes_result(const planner *P, const pi__plan_launch *l, const pi__hyper *a)
{
    if (l->family != PI__L_LINEAR || !is_open(l) || P->f->adapters) return false;
    const pi__linear of = part_of(P, l);
    const pi__lin *to = &of.lin[0];
    if (of.n_rows != a->n_rows || to->y != a->y || to->ldy != a->n || to->w->n_out != a->n) return false;
    if (!pi__has_streams(P->f, &of) || a->n % PI__K_HYPER_PART) return false;
    if (l->sum == PI__NONE && !l->n_add) return true;
    if (l->sum == PI__NONE || l->n_add != 1 || l->gated != PI__NONE) return false;
    if (P->r[l->add[0]].id != PI__OP_add_norm) return false;
    const pi__moe *m = &P->r[l->sum].args.moe;
    const pi__add_norm *add = &P->r[l->add[0]].args.add_norm;
    return !m->down_bias && m->down->n_out == a->n && m->n_rows == a->n_rows && add->x == a->y && add->y == m->y &&
           !add->w && !add->bias;
}

/* Returns the last launch if it has work on residual streams, alone or after a linear; else NULL. */
static pi__plan_launch *streams_launch(planner *P)
{
    pi__plan_launch *l = last(P);
    return l->family == PI__L_STREAMS || (l->family == PI__L_LINEAR && l->post != PI__NONE) ? l : NULL;
}

static bool place_post(planner *P, int32_t r)
{
    pi__plan_launch *l = last(P);
    if (!on(P, PI__RULE_streams)) return false;
    if (!makes_result(P, l, &P->r[r].args.hyper_post)) l = push(P, PI__L_STREAMS, r);
    l->post = (int16_t) r;
    return true;
}

/* The product with the mixing matrix: after hyper_post of the same streams, or alone. */
static bool place_mix(planner *P, int32_t r)
{
    pi__plan_launch *l = streams_launch(P);
    const pi__linear *a = &P->r[r].args.linear;
    if (!on(P, PI__RULE_streams)) return false;
    const pi__hyper *post = l && l->post != PI__NONE ? &P->r[l->post].args.hyper_post : NULL;
    const bool behind = post && l->mix == PI__NONE && l->pre == PI__NONE && post->x == a->in.x &&
                        post->n == a->lin[0].w->n_in / PI__STREAMS && post->n_rows == a->n_rows;
    if (!behind) l = push(P, PI__L_STREAMS, r);
    l->mix = (int16_t) r;
    return true;
}

/* hyper_pre: after the product that it reads, or alone. */
static bool place_pre(planner *P, int32_t r)
{
    pi__plan_launch *l = streams_launch(P);
    const pi__hyper *a = &P->r[r].args.hyper_pre;
    if (!on(P, PI__RULE_streams)) return false;
    const pi__hyper *post = l && l->post != PI__NONE ? &P->r[l->post].args.hyper_post : NULL;
    const pi__linear *mix = l && l->mix != PI__NONE ? &P->r[l->mix].args.linear : NULL;
    const bool behind = mix && l->pre == PI__NONE && mix->lin[0].y == a->mix && mix->in.x == a->x &&
                        mix->n_rows == a->n_rows && mix->lin[0].w->n_out == (a->n_iter ? PI__HYPER_MIX : PI__STREAMS) &&
                        mix->in.ldx == PI__STREAMS * a->n && (!post || !a->n_iter || post->coef == a->coef);
    if (!behind) l = push(P, PI__L_STREAMS, r);
    l->pre = (int16_t) r;
    return true;
}

/* ------------------------------------------------------------------------------------------------------- the plan */

static bool place_attention(planner *P, int32_t r) { return push(P, PI__L_ATTENTION, r); }
static bool place_gdn(planner *P, int32_t r) { return push(P, PI__L_GDN, r); }

/* The ops that rules know: each function tries the rules of its op, and returns false if the op remains as it is. */
static bool (*const place[PI__N_OPS])(planner *P, int32_t r) = {
    [PI__OP_linear] = place_linear,           [PI__OP_add_norm] = place_add,    [PI__OP_norm] = place_add,
    [PI__OP_add_gated] = place_gated,         [PI__OP_qkv] = place_heads,       [PI__OP_moe] = place_moe,
    [PI__OP_attention] = place_attention,     [PI__OP_gdn] = place_gdn,         [PI__OP_mla_qkv] = place_mla_qkv,
    [PI__OP_compress] = place_compress,       [PI__OP_indexer] = place_indexer, [PI__OP_sparse] = place_sparse,
    [PI__OP_head_linear] = place_head_linear, [PI__OP_hyper_post] = place_post, [PI__OP_hyper_pre] = place_pre,
};

/* True if launch l, which is before op moe r, has the linear whose packed input that op may read. */
static bool reuses(const planner *P, const pi__plan_launch *l, int32_t r)
{
    return P->r[r].id == PI__OP_moe && l->op == r - 1 && (l->family == PI__L_OP || l->family == PI__L_LINEAR) &&
           P->r[l->op].id == PI__OP_linear;
}

void pi__plan_make(pi__plan *p, const pi__facts *f, const pi__op_record *r, int32_t n)
{
    planner P = {p, f, r, n, NOTHING};
    p->n = 0;
    for (int32_t i = 0; i < n; i++) {
        if (f->fuses && place[r[i].id] && place[r[i].id](&P, i)) continue;
        pi__plan_launch *l = push(&P, PI__L_OP, i);
        if (p->n > 1 && reuses(&P, l - 1, i)) l->uses = (int16_t) (p->n - 2);
    }
    settle(&P);
}

const char *pi__rule_name(pi__rule rule)
{
#define NAME(name, ops, result) #name,
    static const char *const names[] = {PI__PLAN_RULES(NAME)};
#undef NAME
    return names[rule];
}
