/* Fused launches: one launch that does the work of several ops. Graphs call one op after the other. A launch is kept
 * pending (c->held) until the next op is known. Work of the next ops that needs complete rows of the launch's results
 * becomes its epilogue (kernels/tail.cuh):
 *
 *     pending launch          epilogue
 *     linear                  add_norm, norm: residual add, norm; then packs the next linear's input (norm or gate)
 *     linear                  qkv: norms and rotation of the heads, and their write to the cache
 *     linear of a router      routes of moe, and its packed input
 *     linear                  the sums of the experts that moe left pending; then add_norm, as above
 *     shared down, in one     the same
 *     launch with the
 *     experts' down
 *     attention, gdn          packs the next linear's input
 *     hyper_pre               packs the next linear's input (norm). Its launch starts with hyper_post and the product
 *                             with the mixing matrix.
 *
 *     linear                  all of hyper_post, product and hyper_pre, if its results, or sums of experts with them,
 *                             are added to residual streams.
 *     head_linear             packs the next linear's input; or mla_qkv, if its results are the queries
 *     sparse                  no epilogue: for any number of rows it writes results packed for the next head_linear
 *
 * Launches of a layer with few rows:
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
 * (kernels/mixed_kernels.cuh).
 *
 * Gate and up with their activation are one launch for any number of rows in FP4 and FP8, which writes only the packed
 * input of down (kernels/fp4_glu_kernels.cuh). In 16-bit floats the launch writes the activation's results as floats;
 * with many rows a second launch rounds them (kernels/w16_glu_kernels.cuh).
 *
 * With many rows, products in 16-bit floats, FP4 or FP8 add their results directly to the residual, if there is no norm
 * between them. The results themselves are not written.
 *
 * Queries, their row, the indexer's queries and two compressors of a DeepSeek V4 layer are one launch for any number of
 * rows (kernels/latent_inputs.cuh). But sparse and indexer process their own queries, and the indexer does nothing if
 * all entries are picked. With few rows the rest, which does not depend on q_b, is in the launch of q_b.
 *
 * Pending are: linear, attention, gdn, sparse, head_linear, mla_qkv, compress, work on residual streams, sums of
 * experts, add_norm and norm. An epilogue needs at most pi__cuda_tail_rows() rows, and matrices in packed types or F32.
 * Otherwise the pending launch is queued as it is, but sums, residual adds and the packing of the next input are one
 * launch for any number of rows. Results are bitwise identical in all cases.
 *
 * At most one launch is pending, followed by sums and up to two of add_norm and norm, in the order of the calls. One
 * exception: sums also wait for an independent linear that is called after them. Every other access to the device first
 * queues all pending work.
 *
 * Memory: none. Threads: the step thread. */
#include "backend/cuda/impl.h"
#include "backend/cuda/kernels_hyper.h"
#include "backend/cuda/kernels_sparse.h"

#include "formats/formats.h"

int32_t pi__cuda_tail_rows(const pi__cuda *c)
{
    return 2 * c->info.places < PI__K_TAIL_ROWS ? 2 * c->info.places : PI__K_TAIL_ROWS;
}

/* Returns an epilogue for n_rows rows that does nothing yet. */
static pi__k_tail empty_tail(const pi__cuda *c, int32_t n_rows)
{
    return (pi__k_tail) {
        .arrived = (uint32_t *) (void *) (c->scratch + c->at.arrived), .waits = pi__cuda_waits(c), .n_rows = n_rows};
}

void pi__cuda_add_targets(const pi__cuda *c, const pi__linear *next, void *prepared, void *floats, pi__k_tail *t)
{
    t->n_rows = next->n_rows;
    t->in = pi__cuda_input(&next->in);
    t->n_in = next->lin[0].w->n_in;
    for (int32_t i = 0; i < next->n_lin; i++) {
        const int32_t type = pi__cuda_packed_type(next->lin[i].w->type);
        const int form = pi__cuda_linear_form(c, type, next);
        if (form == PI__FORM_FLOATS && !pi__cuda_reads_in_place(form, &t->in, t->n_rows, t->n_in)) t->floats = floats;
        if (form == PI__FORM_MMA16 && t->n_rows <= pi__cuda_tail_rows(c)) t->terms = floats, t->terms_type = type;
        if (t->integers || t->halves || t->fp4) continue; /* these three share one region, `prepared` */
        if (form == PI__FORM_INTEGERS) t->integers = prepared;
        if (form == PI__FORM_W16) t->halves = prepared, t->bf16 = pi__k_w16_input(type);
        if (form == PI__FORM_FP4 || form == PI__FORM_W4A8)
            t->fp4 = prepared, t->fp4_type = type, t->fp8 = form == PI__FORM_W4A8;
    }
    if (t->floats) t->terms = NULL; /* these two share the region `floats` */
}

static void prepare_next(const pi__cuda *c, const pi__linear *next, pi__k_tail *t)
{
    pi__cuda_add_targets(c, next, c->scratch + c->at.prepared, c->scratch + c->at.floats, t);
}

/* True if the epilogue packs an input. */
static bool prepares(const pi__k_tail *t) { return t->integers || t->floats || t->halves || t->fp4 || t->terms; }

/* True if x is a result of the pending linear, written before its epilogue. */
static bool makes(const cuda_held *h, const float *x)
{
    bool does = false;
    for (int32_t i = 0; h->id == PI__OP_linear && i < h->of.linear.n_lin; i++)
        does = does || h->of.linear.lin[i].y == x;
    return does;
}

/* True if latent rows, compressors or queries are pending, alone or with a linear. */
static bool has_latent(const cuda_held *h) { return h->latent.n_q || h->latent.n_compress; }

/* True if work on residual streams is pending after a linear. */
static bool has_streams(const cuda_held *h) { return h->id == PI__OP_linear && h->streams.posts; }
/* True if a linear is pending, and nothing else. */
static bool is_linear(const cuda_held *h)
{
    return h->id == PI__OP_linear && !h->downs && !h->sums && !h->n_adds && !has_latent(h) && !has_streams(h);
}

/* Sets *t to the work after the pending launch: sums, adds, and packing of the input of `next`, the linear that is
 * called next (NULL = none). Returns false if there is no work. */
static bool tail_of(const pi__cuda *c, const cuda_held *h, const pi__linear *next, pi__k_tail *t)
{
    *t = empty_tail(c, 0);
    if (h->sums) t->n_rows = h->sum.n_rows, t->sum = h->sum;
    if (h->n_adds) t->n_rows = h->n_rows;
    for (int i = 0; i < h->n_adds; i++) {
        t->add[i] = h->add[i];
        t->add[i].made = !h->add[i].fresh && makes(h, h->add[i].x);
    }
    if (next && (!t->n_rows || next->n_rows == t->n_rows)) prepare_next(c, next, t);
    if (h->id == PI__OP_attention || h->id == PI__OP_gdn) t->terms = NULL;
    return t->sum.n_used || h->n_adds || prepares(t);
}

/* True if one of the linear's matrices reads its input in FP4 or FP8. */
static bool reads_fp4(const pi__cuda *c, const pi__linear *a)
{
    bool does = false;
    for (int32_t i = 0; i < a->n_lin; i++) {
        const int form = pi__cuda_linear_form(c, pi__cuda_packed_type(a->lin[i].w->type), a);
        does = does || form == PI__FORM_FP4 || form == PI__FORM_W4A8;
    }
    return does;
}

/* True if the linear's input is the RMSNorm of hyper_pre's complete result y. */
static bool reads_streams(const pi__hyper *h, const pi__linear *next)
{
    const pi__lin_in *in = &next->in;
    return in->kind == PI__IN_RMSNORM && in->x == h->y && in->ldx == h->n && next->n_rows == h->n_rows &&
           next->lin[0].w->n_in == h->n;
}

/* True if the pending launch can have an epilogue. Attention and gdn cannot compute norms: in blocks of their size the
 * sums would have other bits. Attention to values of rotated types writes results that are rotated back later. gdn has
 * no registers left for packing FP4. */
static bool takes_tail(const pi__cuda *c, const cuda_held *h, const pi__linear *next)
{
    if (has_latent(h)) return false;
    if (h->id == PI__OP_linear) return pi__cuda_has_tail(c, &h->of.linear);
    if (h->id == PI__OP_hyper_pre)
        return next && h->streams.reads && reads_streams(&h->streams.pre, next) && !h->n_adds && !reads_fp4(c, next);
    if (h->id == PI__N_OPS || !next || next->in.kind != PI__IN_PLAIN || h->n_adds) return false;
    if (h->id == PI__OP_head_linear) return h->of.heads.n_rows <= pi__cuda_tail_rows(c);
    if (h->id == PI__OP_attention) return !pi__kv_rotated(h->of.attention.kv->type_v);
    return h->id == PI__OP_gdn && !reads_fp4(c, next) && pi__cuda_gdn_is_one(c, h->b, &h->of.gdn);
}

/* Queues the pending linear with latent rows and compressors in its launch; then the pending queries. */
static void queue_beside(pi__cuda *c, const cuda_held *h)
{
    const pi__k_latent_inputs rows = pi__cuda_latent_inputs(c, h->b, &h->latent, false, true);
    const bool some = rows.n_q || rows.n_compress;
    pi__cuda_queue_more(c, &h->of.linear, NULL, &(pi__k_mixed_more) {.latent = some ? &rows : NULL});
    pi__cuda_invalidate(c);
    pi__cuda_queue_latent(c, h->b, &h->latent, true, false);
}

/* Queues the launch of h, with the epilogue `then`, if not NULL. */
static void queue_launch(pi__cuda *c, const cuda_held *h, const pi__k_tail *then)
{
    if (h->id == PI__OP_linear && has_latent(h)) {
        queue_beside(c, h);
        return;
    }
    if (h->downs) pi__cuda_queue_down(c, &h->of.linear, &h->down, then);
    else if (h->id == PI__OP_linear) pi__cuda_queue_linear(c, &h->of.linear, then);
    if (h->id == PI__OP_attention) pi__cuda_queue_attention(c, h->b, &h->of.attention, then);
    if (h->id == PI__OP_gdn) pi__cuda_queue_gdn(c, h->b, &h->of.gdn, then);
    if (h->id == PI__OP_sparse) pi__cuda_queue_sparse(c, h->b, &h->of.sparse, &h->raw, NULL);
    if (h->id == PI__OP_head_linear) pi__cuda_queue_heads(c, &h->of.heads, h->ready, NULL, then);
    if (h->id == PI__OP_mla_qkv) pi__cuda_queue_latent(c, h->b, &h->latent, true, true);
    if (h->id == PI__OP_hyper_pre) pi__cuda_queue_streams(c, &h->streams, then);
}

/* Queues the pending linear so that it adds its results to the residual in the matmul kernel. Returns false, and queues
 * nothing, if that is not possible. */
static bool queue_added(pi__cuda *c, cuda_held *h)
{
    if (h->id != PI__OP_linear || h->sums || !h->n_adds || !pi__cuda_queue_added(c, &h->of.linear, &h->add[0]))
        return false;
    h->id = PI__N_OPS;
    for (int i = 1; i < h->n_adds; i++) h->add[i - 1] = h->add[i];
    h->n_adds--;
    pi__cuda_invalidate(c);
    return true;
}

/* Queues the pending linear and the work on residual streams after it as one launch, which also packs the input of
 * `next`. Returns false, and queues nothing, if that is not possible. */
static bool queue_with_streams(pi__cuda *c, const cuda_held *h, const pi__linear *next)
{
    const cuda_streams *s = &h->streams;
    pi__k_tail t;
    if (!s->mixes || !s->reads || !next || !reads_streams(&s->pre, next) || reads_fp4(c, next)) return false;
    (void) tail_of(c, h, next, &t);
    const pi__k_streams k = pi__cuda_streams(c, s);
    c->held.id = PI__N_OPS;
    c->held.sums = false;
    c->held.n_adds = 0;
    pi__cuda_queue_more(c, &h->of.linear, &t, &(pi__k_mixed_more) {.streams = &k});
    pi__cuda_invalidate(c);
    if (prepares(&t)) pi__cuda_set_packed(c, &t);
    return true;
}

static void queue_held(pi__cuda *c, const pi__linear *next);

/* Like queue_with_streams(); if that is not possible, queues the linear, then the work on residual streams. */
static void queue_before_streams(pi__cuda *c, const pi__linear *next)
{
    const cuda_held h = c->held;
    if (queue_with_streams(c, &h, next)) return;
    c->held.streams = (cuda_streams) {.posts = false};
    queue_held(c, NULL);
    c->held.id = PI__OP_hyper_pre;
    c->held.streams = h.streams;
    queue_held(c, next);
}

/* Queues all pending work. next: the linear that is called next, so that its input may be packed; NULL = none. */
static void queue_held(pi__cuda *c, const pi__linear *next)
{
    if (has_streams(&c->held)) {
        queue_before_streams(c, next);
        return;
    }
    cuda_held h = c->held;
    pi__k_tail t;
    c->held.id = PI__N_OPS;
    c->held.downs = c->held.sums = false;
    c->held.n_adds = c->held.latent.n_q = c->held.latent.n_compress = 0;
    const bool reads = c->batch[0].host.lora.n_runs; /* adapters may read the results of gate and up */
    const bool alone = !h.sums && !h.n_adds && !has_latent(&h);
    if (h.id == PI__OP_linear && alone && next && !reads && pi__cuda_queue_glu(c, &h.of.linear, next)) return;
    const bool few = !next || (next->n_rows > 0 && next->n_rows <= pi__cuda_tail_rows(c));
    const bool one = (few || h.id == PI__OP_hyper_pre) && takes_tail(c, &h, next);
    const bool added = queue_added(c, &h);
    const bool more = tail_of(c, &h, one || h.n_adds || added ? next : NULL, &t),
               sums_alone = h.sums && !h.n_adds && !t.n_in;
    queue_launch(c, &h, one && more ? &t : NULL);
    if (h.sums || h.n_adds || next) pi__cuda_invalidate(c);
    if (more && !one && sums_alone) PI__QUEUE(c, pi__k_add_experts(pi__rt_stream(c->rt), &t.sum));
    else if (more && !one) PI__QUEUE(c, pi__k_finish_rows(pi__rt_stream(c->rt), &t));
    if (more && prepares(&t)) pi__cuda_set_packed(c, &t);
}

void pi__cuda_flush(pi__cuda *c)
{
    if (c->held.id != PI__N_OPS || c->held.sums || c->held.n_adds) queue_held(c, NULL);
}

bool pi__cuda_add_routes(pi__cuda *c, const pi__k_routes *r, const pi__k_expert_choice *choice, const pi__linear *next,
                         const pi__linear *last, cuda_packed_x *beside)
{
    const cuda_held h = c->held;
    const pi__linear *l = &h.of.linear;
    if (!is_linear(&h) || l->n_rows != r->n_rows) return false;
    if (!pi__cuda_has_routes(c, l, r->n_expert)) return false;
    pi__k_tail own = empty_tail(c, 0), apart = empty_tail(c, 0);
    const bool few = r->n_rows <= pi__cuda_tail_rows(c);
    if (few && !pi__cuda_reads_same(c, l, next)) prepare_next(c, next, &own);
    if (few && last) pi__cuda_add_targets(c, last, c->scratch + c->at.beside, NULL, &apart);
    const bool alone = !prepares(&own) && prepares(&apart), both = prepares(&own) && apart.halves;
    const pi__k_side_input beside_own = {
        .in = apart.in, .n_in = apart.n_in, .halves = apart.halves, .bf16 = apart.bf16};
    pi__k_tail *t = alone ? &apart : &own;
    t->routes = *r;
    c->held.id = PI__N_OPS;
    pi__cuda_queue_more(c, l, t, &(pi__k_mixed_more) {.choice = choice, .beside = both ? &beside_own : NULL});
    if (prepares(&own)) pi__cuda_set_packed(c, &own);
    if (!last) return true;
    const cuda_packed_x ready = c->ready;
    pi__cuda_invalidate(c);
    if (alone || both) pi__cuda_set_packed(c, &apart);
    *beside = c->ready, c->ready = ready;
    return true;
}

bool pi__cuda_hold_sum(pi__cuda *c, const pi__k_sum *s)
{
    if (!c->fuses || c->joined) return false;
    if (has_streams(&c->held)) pi__cuda_flush(c);
    c->held.sums = true;
    c->held.sum = *s;
    return true;
}

/* Queues the pending linear with op qkv as its epilogue. Returns false, and queues nothing, if that is not possible. */
static bool add_heads(pi__cuda *c, const pi__batch *b, const pi__qkv *a)
{
    const cuda_held h = c->held;
    const pi__linear *l = &h.of.linear;
    if (!is_linear(&h) || b->n_tokens > pi__cuda_tail_rows(c) || !pi__cuda_has_tail(c, l)) return false;
    pi__k_tail t = empty_tail(c, b->n_tokens);
    t.qkv = pi__cuda_heads(c, b, a);
    c->held.id = PI__N_OPS;
    pi__cuda_queue_linear(c, l, &t);
    pi__cuda_invalidate(c);
    return true;
}

/* Queues the pending head_linear with op mla_qkv in its launch, if its results are the queries of `a`. Returns false,
 * and queues nothing, if they are not. */
static bool add_latent(pi__cuda *c, const pi__batch *b, const pi__mla_qkv *a)
{
    const cuda_held h = c->held;
    const pi__head_linear *l = &h.of.heads;
    if (h.id != PI__OP_head_linear || h.n_adds || a->q != l->y || a->ldq != l->ldy || a->q_norm) return false;
    if (a->n_head != l->w->n_mat || a->dim != l->y_step || a->n_rot != l->n_tail || b->n_tokens != l->n_rows)
        return false;
    if (l->w->n_out + l->n_tail != a->dim) return false;
    const pi__k_mla_qkv prep = pi__cuda_latent(c, b, a);
    c->held.id = PI__N_OPS;
    pi__cuda_queue_heads(c, l, h.ready, &prep, NULL);
    return true;
}

/* True if the batch stays valid until pending work is queued: it is one of the backend's own batches. */
static bool stays(const pi__cuda *c, const pi__batch *b) { return b == &c->batch[0].host || b == &c->batch[1].host; }

/* Returns the pending latent inputs, to which the caller adds an op that reads `from`. These are the ones that are
 * pending already, if `fits`; or new ones, in the launch of the pending linear, unless that linear writes `from`; or
 * new ones in a launch of their own. NULL = the batch does not stay valid. */
static cuda_latent *hold_latent(pi__cuda *c, const pi__batch *b, const float *from, bool fits)
{
    cuda_held *h = &c->held;
    const bool made = from && makes(h, from);
    if (has_latent(h) && h->b == b && fits && !made) return &h->latent;
    const bool beside = is_linear(h) && !made && stays(c, b) && h->of.linear.n_rows == b->n_tokens &&
                        pi__cuda_has_latent(c, &h->of.linear);
    if (!beside) {
        pi__cuda_flush(c);
        if (!stays(c, b)) return NULL;
        pi__cuda_invalidate(c);
        h->id = PI__OP_mla_qkv;
    }
    h->b = b;
    return &h->latent;
}

/* Defer an op mla_qkv; an op compress. Return false if the op cannot be deferred. */
static bool hold_queries(pi__cuda *c, const pi__batch *b, const pi__mla_qkv *a)
{
    const cuda_latent *held = &c->held.latent;
    const pi__mla_qkv *first = &held->q[0];
    const bool apart = !held->n_q || (first->q != a->q && !(first->row && a->row));
    cuda_latent *l = hold_latent(c, b, a->row, held->n_q < PI__K_MAX_LATENT && apart);
    if (l) l->q[l->n_q++] = *a;
    return l;
}

static bool hold_compress(pi__cuda *c, const pi__batch *b, const pi__compress *a)
{
    const cuda_latent *held = &c->held.latent;
    const pi__compress *first = &held->compress[0];
    const bool apart = !held->n_compress || (first->recent != a->recent && first->entries != a->entries);
    cuda_latent *l = hold_latent(c, b, a->x, held->n_compress < PI__K_MAX_LATENT && apart);
    if (l) l->compress[l->n_compress++] = *a;
    return l;
}

/* Returns the pending op mla_qkv with its queries at q; NULL = none. */
static pi__mla_qkv *held_queries(pi__cuda *c, const pi__batch *b, const float *q)
{
    cuda_latent *l = &c->held.latent;
    for (int32_t i = 0; i < l->n_q && c->held.b == b; i++)
        if (l->q[i].n_head && l->q[i].q == q) return &l->q[i];
    return NULL;
}

/* If the queries of op sparse `a` are pending, returns their op mla_qkv, which sparse then applies itself, and removes
 * the queries from the pending work. n_head 0 = sparse applies nothing. */
static pi__mla_qkv take_queries(pi__cuda *c, const pi__batch *b, const pi__sparse *a)
{
    pi__mla_qkv *held = held_queries(c, b, a->q), taken = {.n_head = 0};
    if (!held || a->dim > PI__K_RAW_QUERIES || held->n_head != a->n_head || held->dim != a->dim || held->ldq != a->ldq)
        return taken;
    if (held->rope != a->rope || held->n_rot != a->n_rot) return taken;
    taken = *held;
    held->n_head = 0;
    return taken;
}

/* If all entries are picked, the indexer is not needed: drops its pending queries, and returns true. Else sets c->raw
 * to the op mla_qkv of its queries, which the indexer then applies itself; the queries of op sparse stay pending. */
static bool hold_indexer(pi__cuda *c, const pi__batch *b, const pi__indexer *a)
{
    cuda_held *h = &c->held;
    pi__mla_qkv *own = held_queries(c, b, a->q), later = {.n_head = 0};
    const bool all = pi__cuda_picks_all(c, b, a);
    c->raw.n_head = 0;
    if (all) {
        if (own) own->n_head = 0;
        return true;
    }
    if (own && !own->q_norm && own->rope && own->dim == a->dim && own->n_head == a->n_head && own->ldq == a->ldq) {
        c->raw = *own;
        own->n_head = 0;
    }
    for (int32_t i = 0; i < h->latent.n_q; i++) {
        pi__mla_qkv *q = &h->latent.q[i];
        if (!q->n_head || q == own) continue;
        later = *q, later.row = NULL;
        q->n_head = 0;
    }
    pi__cuda_flush(c);
    if (!later.n_head) return false;
    h->id = PI__OP_mla_qkv, h->b = b;
    h->latent.q[h->latent.n_q++] = later;
    return false;
}

/* Queues all pending work, and returns new pending work on residual streams, without a linear. */
static cuda_streams *begin_streams(pi__cuda *c)
{
    pi__cuda_flush(c);
    pi__cuda_invalidate(c);
    c->held.id = PI__OP_hyper_pre;
    c->held.streams = (cuda_streams) {.posts = false};
    return &c->held.streams;
}

/* Returns the pending work on residual streams, alone or after a linear; NULL = none. */
static cuda_streams *held_streams(pi__cuda *c)
{
    return c->held.id == PI__OP_hyper_pre || has_streams(&c->held) ? &c->held.streams : NULL;
}

/* True if the pending linear computes a->y, which hyper_post adds to the streams: as its results, or as its results
 * plus the pending sums of experts. */
static bool makes_result(const pi__cuda *c, const pi__hyper *a)
{
    const cuda_held *h = &c->held;
    const pi__linear *l = &h->of.linear;
    const pi__k_sum *s = &h->sum;
    const pi__k_add *add = &h->add[0];
    if (h->id != PI__OP_linear || h->downs || has_latent(h) || has_streams(h) || c->batch[0].host.lora.n_runs)
        return false;
    if (l->n_rows != a->n_rows || l->lin[0].y != a->y || l->lin[0].ldy != a->n || l->lin[0].w->n_out != a->n)
        return false;
    if (!pi__cuda_has_streams(c, l) || a->n % PI__K_HYPER_PART) return false;
    if (!h->sums && !h->n_adds) return true;
    return h->sums && h->n_adds == 1 && !s->shared && !s->bias && s->n == a->n && s->n_rows == a->n_rows &&
           add->x == a->y && add->y == s->y && !add->w && !add->bias && !add->fresh;
}

static bool hold_post(pi__cuda *c, const pi__hyper *a)
{
    cuda_streams *s = makes_result(c, a) ? &c->held.streams : begin_streams(c);
    *s = (cuda_streams) {.posts = true, .post = *a};
    return true;
}

/* Defers the product with the mixing matrix: after a pending hyper_post of the same streams, or alone. */
static bool hold_mix(pi__cuda *c, const pi__linear *a)
{
    cuda_streams *s = held_streams(c);
    const int64_t n = a->lin[0].w->n_in / PI__STREAMS;
    const bool behind = s && s->posts && !s->mixes && !s->reads && s->post.x == a->in.x && s->post.n == n &&
                        s->post.n_rows == a->n_rows;
    if (!behind) s = begin_streams(c);
    s->mixes = true;
    s->mix = *a;
    return true;
}

/* Defers hyper_pre: after the pending product that it reads, or alone. */
static bool hold_pre(pi__cuda *c, const pi__hyper *a)
{
    cuda_streams *s = held_streams(c);
    const pi__linear *mix = s ? &s->mix : NULL;
    const bool behind = s && s->mixes && !s->reads && mix->lin[0].y == a->mix && mix->in.x == a->x &&
                        mix->n_rows == a->n_rows && mix->lin[0].w->n_out == (a->n_iter ? PI__HYPER_MIX : PI__STREAMS) &&
                        mix->in.ldx == PI__STREAMS * a->n && (!s->posts || !a->n_iter || s->post.coef == a->coef);
    if (!behind) s = begin_streams(c);
    s->reads = true;
    s->pre = *a;
    return true;
}

/* Returns the number of heads of op sparse that are the complete input of one matrix of head_linear; 0 = the ops do not
 * match. */
static int32_t heads_of_group(const pi__sparse *from, const pi__head_linear *to)
{
    const int32_t n = (int32_t) (to->w->n_in / from->dim);
    const bool same = from->out == to->x && from->ldo == to->ldx && to->x_step == to->w->n_in && !to->n_tail;
    return same && n * to->w->n_mat == from->n_head && n * from->dim == to->w->n_in && pi__k_sparse_groups(from, n) ? n
                                                                                                                    : 0;
}

/* Queues the pending op sparse so that it writes its results as the packed input of head_linear `a`. Returns false, and
 * queues nothing, if that is not possible. */
static bool queue_grouped(pi__cuda *c, const pi__head_linear *a)
{
    const cuda_held h = c->held;
    const int32_t heads = h.id == PI__OP_sparse && h.b->n_tokens == a->n_rows ? heads_of_group(&h.of.sparse, a) : 0;
    const pi__k_groups g = heads ? pi__cuda_groups(c, a, heads) : (pi__k_groups) {.words = NULL};
    if (!g.words) return false;
    c->held.id = PI__N_OPS;
    pi__cuda_queue_sparse(c, h.b, &h.of.sparse, &h.raw, &g);
    return true;
}

static bool hold_heads(pi__cuda *c, const pi__head_linear *a)
{
    const bool in_16 = pi__cuda_heads_in_16(c, a), ready = in_16 && queue_grouped(c, a);
    if (!ready) pi__cuda_flush(c);
    pi__cuda_invalidate(c);
    if (!in_16) return false;
    c->held.id = PI__OP_head_linear;
    c->held.ready = ready;
    c->held.of.heads = *a;
    return true;
}

/* Defers op sparse. Returns false if the batch does not stay valid; no queries are pending for it then. */
static bool hold_sparse(pi__cuda *c, const pi__batch *b, const pi__sparse *a)
{
    cuda_held *h = &c->held;
    const pi__mla_qkv raw = take_queries(c, b, a);
    pi__cuda_flush(c);
    if (!stays(c, b)) return false;
    pi__cuda_invalidate(c);
    h->id = PI__OP_sparse, h->b = b, h->raw = raw;
    h->of.sparse = *a;
    return true;
}

void pi__cuda_hold_add(pi__cuda *c, const pi__k_add *a, int32_t n_rows)
{
    cuda_held *h = &c->held;
    if (has_latent(h) || has_streams(h)) pi__cuda_flush(c);
    bool behind = h->id == PI__N_OPS || (h->id == PI__OP_linear && h->of.linear.n_rows == n_rows);
    if (h->n_adds) behind = behind && h->n_adds < PI__K_TAIL_ADDS && h->n_rows == n_rows;
    else if (h->sums)
        behind = behind && h->sum.n_rows == n_rows && h->sum.n == a->n && h->sum.y == a->y && h->sum.ldy == a->n;
    if (!behind) pi__cuda_flush(c);
    h->add[h->n_adds++] = *a;
    h->n_rows = n_rows;
}

static bool hold_add_norm(pi__cuda *c, const pi__add_norm *a)
{
    const pi__k_add add = {
        .x = a->x, .y = a->y, .w = a->w, .bias = a->bias, .eps = a->eps, .scale = a->scale, .n = a->n};
    pi__cuda_hold_add(c, &add, a->n_rows);
    return true;
}

/* Defers op norm if a linear is pending, and nothing else. Returns false otherwise: norm then uses its own kernel. */
static bool hold_norm(pi__cuda *c, const pi__norm *a)
{
    const cuda_held *h = &c->held;
    if (a->ldo != a->n || !is_linear(h) || h->of.linear.n_rows != a->n_rows) return false;
    pi__cuda_hold_add(c, &(pi__k_add) {.x = a->out, .y = a->x, .w = a->w, .eps = a->eps, .fresh = 1, .n = a->n},
                      a->n_rows);
    return true;
}

/* True if the linear reads or writes memory that the sums are written to. */
static bool touches(const pi__linear *a, const pi__k_sum *s)
{
    const float *const from = s->y, *const to = s->y + (int64_t) s->n_rows * s->ldy;
    bool does = (a->in.x >= from && a->in.x < to) || (a->in.x2 >= from && a->in.x2 < to);
    for (int32_t i = 0; i < a->n_lin; i++) does = does || (a->lin[i].y >= from && a->lin[i].y < to);
    return does;
}

static bool hold_linear(pi__cuda *c, const pi__linear *a)
{
    if (pi__cuda_is_mix(c, a)) return hold_mix(c, a);
    if (c->disabled.many_rows && a->n_rows > PI__CUDA_FEW_ROWS) {
        pi__cuda_flush(c);
        return false;
    }
    const bool sums = c->held.sums && !c->held.n_adds && c->held.id == PI__N_OPS && c->held.sum.n_rows == a->n_rows;
    if (!sums || touches(a, &c->held.sum)) queue_held(c, a);
    else pi__cuda_invalidate(c);
    c->held.id = PI__OP_linear;
    c->held.of.linear = *a;
    c->held.streams.posts = false;
    return true;
}

bool pi__cuda_hold(pi__cuda *c, pi__op_id id, const pi__batch *b, const void *args)
{
    const bool fuses = c->fuses && !c->joined; /* joined devices: all-gathers are queued without this function */
    if (fuses && id == PI__OP_linear) return hold_linear(c, args);
    if (fuses && id == PI__OP_qkv && add_heads(c, b, args)) return true;
    if (fuses && id == PI__OP_add_norm) return hold_add_norm(c, args);
    if (fuses && id == PI__OP_norm && hold_norm(c, args)) return true;
    if (fuses && id == PI__OP_mla_qkv) return add_latent(c, b, args) || hold_queries(c, b, args);
    if (fuses && id == PI__OP_head_linear) return hold_heads(c, args);
    if (fuses && id == PI__OP_compress) return hold_compress(c, b, args);
    if (fuses && id == PI__OP_indexer) return hold_indexer(c, b, args);
    if (fuses && id == PI__OP_sparse) return hold_sparse(c, b, args);
    if (fuses && id == PI__OP_hyper_pre) return hold_pre(c, args);
    if (fuses && id == PI__OP_hyper_post) return hold_post(c, args);
    if (fuses && id == PI__OP_moe) return false; /* pi__cuda_route() fuses with the pending router */
    if (fuses && id == PI__OP_experts_layer) { /* not deferred, but the pending work packs its input */
        const pi__linear reads = pi__cuda_layer_reads(args);
        queue_held(c, &reads);
        return false;
    }
    if (id == PI__OP_experts_layer) pi__cuda_invalidate(c);
    pi__cuda_flush(c);
    if (!fuses || !stays(c, b) || (id != PI__OP_attention && id != PI__OP_gdn) || b->n_tokens > pi__cuda_tail_rows(c))
        return false;
    pi__cuda_invalidate(c);
    c->held.id = id;
    c->held.b = b;
    if (id == PI__OP_attention) c->held.of.attention = *(const pi__attention *) args;
    else c->held.of.gdn = *(const pi__gdn *) args;
    return true;
}
