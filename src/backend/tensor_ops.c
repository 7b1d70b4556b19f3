/* Execution of the recorded ops on one rank of several devices that act as one (see tensor.c). tensor_record.c records
 * the ops.
 *
 * A rank computes its shard of a result in one of two places. One is the shard's columns in rows of full length, where
 * the graph's next op finds them. The other is the `stage`, with all ranks' shards concatenated as the all-gather needs
 * them:
 *
 *     stage  [rank 0: n_rows x n] [rank 1: n_rows x n] ...     copied to     y  [n_rows, rank 0 | rank 1 | ...]
 *
 * A single row needs no stage, because both layouts are equal. No memory. Threads: each rank's. */
#include <string.h>

#include "backend/tensor_impl.h"

static void *at(const rank *k, const void *p) { return pi__tensor_at(k, p); }

/* Returns a copy of the replicated matrix w with the rank's addresses. */
static pi__weight whole_of(const rank *k, const pi__weight *w)
{
    pi__weight whole = *w;
    whole.data = at(k, w->data);
    whole.scale = at(k, w->scale);
    return whole;
}

/* Returns the batch of the rank's device that corresponds to a recorded batch: the step's, or its logits batch. */
static const pi__batch *batch_of(const rank *k, const pi__batch *b)
{
    return b == &k->t->b ? k->b : k->b->logits_batch;
}

/* All-gathers buf, which has one shard of count floats per rank. On failure the rank is lost. */
static void gather(rank *k, float *buf, size_t count)
{
    pi__link *l = k->t->link;
    if (!k->lost && !l->ops->gather(l, k->i, buf, count)) k->lost = true;
}

/* Copies shards from the stage to y. stage: per rank [n_rows, ld]; n columns from column `first` on are copied, to n
 * adjacent columns of y per rank. */
static void copy_shards(rank *k, int64_t first, int64_t ld, int32_t n_rows, int64_t n, float *y, int64_t ldy)
{
    if (k->lost) return;
    pi__op_copy_2d(k->be, NULL,
                   &(pi__copy_2d) {.x = k->stage + first,
                                   .step = n_rows * ld,
                                   .ldx = ld,
                                   .n_shards = k->t->n,
                                   .n_rows = n_rows,
                                   .n = n,
                                   .y = y,
                                   .ldy = ldy});
}

/* Returns the address where the rank computes its shard [n_rows, n] of y; complete() then all-gathers the shards to
 * y. */
static float *shard_of(const rank *k, float *y, int32_t n_rows, int64_t n)
{
    return (n_rows == 1 ? y : k->stage) + k->i * n_rows * n;
}
static void complete(rank *k, int32_t n_rows, int64_t n, float *y, int64_t ldy)
{
    gather(k, n_rows == 1 ? y : k->stage, (size_t) n_rows * (size_t) n);
    if (n_rows > 1) copy_shards(k, 0, n, n_rows, n, y, ldy);
}

/* ------------------------------------------------------------------------------------------------------------ begin */

/* Sets the arrays row and owner for the tokens of b. row: each token's row in this rank's shard of the embedding, or 0
 * for a token of another shard. owner: the token's row in the stage, which has n rows per rank, padding included. */
static void number_tokens(const rank *k, pi__batch *b, int32_t n, int32_t *row, int32_t *owner)
{
    const int64_t rows = k->t->embd_rows[k->t->kind], first = k->i * rows;
    if (!rows) return;
    for (int32_t i = 0; i < b->n_tokens; i++) {
        const int64_t id = b->token[i] - first;
        row[i] = id >= 0 && id < rows ? (int32_t) id : 0;
        owner[i] = (int32_t) (b->token[i] / rows) * n + i;
    }
    b->embd_row = row;
    b->owner = owner;
}

static const void *pairs_at(const void *ud, const void *p) { return at(ud, p); }

void pi__tensor_run_begin(rank *k, const call *c)
{
    const pi__tensor *t = k->t;
    (void) c;
    k->batch = *t->given;
    number_tokens(k, &k->batch, t->b.n_tokens, k->embd_row, k->owner);
    if (k->batch.logits_batch) {
        k->logits_batch = *k->batch.logits_batch;
        number_tokens(k, &k->logits_batch, t->logits_batch.n_tokens, k->embd_row + t->lim.max_tokens,
                      k->owner + t->lim.max_tokens);
        k->batch.logits_batch = &k->logits_batch;
    }
    if (k->batch.lora.n_runs && !t->ranks) k->batch.lora = *pi__lora_local_of(&k->lora, &k->batch.lora, pairs_at, k);
    k->met = false;
    k->b = k->be->dev->begin(k->be, &k->batch, t->kind);
    if (!k->b != t->replays) k->lost = true; /* this rank replays and the others do not, or the reverse */
}

/* ------------------------------------------------------------------------------------------------------ not sharded */

/* Returns the cache kv with the rank's address. heads: only with the rank's shard of the KV heads, if these divide. */
static pi__kv_layer cache_of(const rank *k, const pi__kv_layer *kv, bool heads)
{
    pi__kv_layer own = *kv;
    own.base = at(k, kv->base);
    if (heads && kv->n_head_kv % k->t->n == 0) own.n_head_kv /= k->t->n;
    return own;
}

/* Copies of the descriptors that an op's arguments point to, with the rank's addresses. */
typedef struct local {
    pi__weight w[PI__MAX_LIN + 1];
    pi__kv_layer kv[2];
    pi__state_layer st;
    int32_t n_w, n_kv;
} local;

static const void *localise(rank *k, local *l, pi__operand_kind kind, const void *p)
{
    switch (kind) {
    case PI__WEIGHT: l->w[l->n_w] = whole_of(k, p); return &l->w[l->n_w++];
    case PI__CACHE: l->kv[l->n_kv] = cache_of(k, p, false); return &l->kv[l->n_kv++];
    case PI__STATE:
        l->st = *(const pi__state_layer *) p;
        l->st.base = at(k, l->st.base);
        l->st.snap = at(k, l->st.snap);
        return &l->st;
    case PI__TOKENS: /* arrays of the batch: the device's batch has its own */
        if (p == k->t->b.logits_indices) return k->b->logits_indices;
        return p == k->t->b.hidden_row ? k->b->hidden_row : p;
    case PI__HOST: return p;
    case PI__ADAPTERS: return pi__lora_local_of(&k->lora, p, pairs_at, k);
    default: return at(k, p);
    }
}

/* Runs an op without sharded operands: each rank computes all of it. */
static void run_whole(rank *k, const call *c)
{
    pi__operands o;
    local l = {.n_w = 0};
    pi__op_record r = c->op;
    pi__operands_of(r.id, r.b, &c->op.args, &o);
    if (o.uncaptured) pi__tensor_meet(k); /* the op ends the capture, so all ranks make their graphs first */
    if (o.first_rank && (k->i || k->lost)) return;
    for (int32_t i = 0; i < o.n; i++) {
        const pi__operand *p = &o.op[i];
        pi__operand_set(&r.args, p, localise(k, &l, p->kind, pi__operand_get(&r.args, p)));
    }
    pi__op_run(k->be, r.id, r.b ? batch_of(k, r.b) : NULL, &r.args);
}

/* ------------------------------------------------------------------------------------------------------------ embed */

/* If the embedding is sharded, every rank looks up a row for every token in its shard. After the all-gather, `owner`
 * selects the row from the rank that has the token; the rows from the other ranks are of other tokens. */
static void run_embed(rank *k, const call *c)
{
    const pi__weight *w = c->op.args.embed.w;
    const pi__batch *b = batch_of(k, c->op.b);
    float *out = at(k, c->op.args.embed.out);
    const int32_t n = b->n_tokens;
    if (!pi__tensor_is_cut(k->t, w)) {
        run_whole(k, c);
        return;
    }
    piece p[MAX_FUSED];
    pi__tensor_pieces(k, w, p);
    const size_t count = (size_t) n * (size_t) w->n_in;
    pi__op_embed(k->be, b, &(pi__embed) {&p[0].w, c->op.args.embed.scale, k->stage + (size_t) k->i * count});
    gather(k, k->stage, count);
    if (!k->lost) pi__op_gather_rows(k->be, NULL, &(pi__gather_rows) {b->owner, n, k->stage, w->n_in, out});
}

/* ----------------------------------------------------------------------------------------------------------- linear */

/* A rank's part of one call of op linear: the matrices that it multiplies by. */
typedef struct work {
    /* [n] the rank's matrices: shards, parts of fused matrices, or replicated matrices */
    piece piece[PI__MAX_LIN * MAX_FUSED];
    /* [n] matrix and result of each; y: in the rank's copy of the result, at the matrix's first column */
    pi__lin lin[PI__MAX_LIN * MAX_FUSED];
    bool shared[PI__MAX_LIN * MAX_FUSED]; /* [n] true = the matrix is sharded and its results are all-gathered */
    int32_t n;                        /* entries in use */
    int64_t ld;                       /* one rank's columns of all results that are all-gathered, added up */
    int32_t n_shared;                 /* number of matrices with results that are all-gathered */
} work;

/* Appends the rank's matrices of `lin` to w. The result of a matrix with KV heads (n_head) stays sharded, if these
 * divide; other results of sharded matrices are all-gathered. */
static void add_work(const rank *k, work *w, const pi__lin *lin)
{
    const pi__tensor *t = k->t;
    piece *p = &w->piece[w->n];
    float *y = at(k, lin->y);
    const bool cut = pi__tensor_is_cut(t, lin->w), apart = lin->w->n_head && lin->w->n_head % t->n == 0;
    int32_t n = 1;
    if (cut) n = pi__tensor_pieces(k, lin->w, p);
    else *p = (piece) {.w = whole_of(k, lin->w), .n = lin->w->n_out};
    for (int32_t i = 0; i < n; i++) {
        float *to = y + p[i].first;
        w->shared[w->n] = cut && !apart;
        if (cut && apart) to += k->i * p[i].n;
        if (cut && !apart) w->ld += p[i].n, w->n_shared++;
        w->lin[w->n++] = (pi__lin) {&p[i].w, to, lin->ldy};
    }
}

/* Multiplies by n_lin matrices, in ops of at most PI__MAX_LIN. */
static void multiply_own(rank *k, const pi__lin_in *x, int32_t n_rows, const pi__lin *lin, int32_t n_lin)
{
    for (int32_t i = 0, n; i < n_lin; i += n) {
        n = n_lin - i < PI__MAX_LIN ? n_lin - i : PI__MAX_LIN;
        const pi__linear some = pi__linear_of(x, n_rows, lin + i, n);
        pi__op_linear(k->be, NULL, &some);
    }
}

/* Computes rows r..r + n - 1 of all results, and all-gathers the results that do not stay sharded. */
static void multiply(rank *k, const work *w, const pi__lin_in *in, int32_t r, int32_t n)
{
    pi__lin lin[PI__MAX_LIN * MAX_FUSED];
    pi__lin_in x = *in;
    x.x += r * x.ldx;
    if (x.x2) x.x2 += r * x.ldx2;
    const bool stage = n > 1 || w->n_shared > 1;
    int64_t col = 0;
    for (int32_t i = 0; i < w->n; i++) {
        lin[i] = w->lin[i];
        lin[i].y += r * lin[i].ldy;
        if (!w->shared[i]) continue;
        if (stage) lin[i] = (pi__lin) {lin[i].w, k->stage + k->i * n * w->ld + col, w->ld};
        else lin[i].y += k->i * w->ld;
        col += w->piece[i].n;
    }
    multiply_own(k, &x, n, lin, w->n);
    if (!w->n_shared) return;
    col = 0;
    for (int32_t i = 0; i < w->n; i++) {
        if (!w->shared[i]) continue;
        float *y = w->lin[i].y + r * w->lin[i].ldy;
        if (!col) gather(k, stage ? k->stage : y, (size_t) n * (size_t) w->ld);
        if (stage) copy_shards(k, col, w->ld, n, w->piece[i].n, y, w->lin[i].ldy);
        col += w->piece[i].n;
    }
}

static void run_linear(rank *k, const call *c)
{
    work w;
    pi__lin_in in = c->op.args.linear.in;
    in.x = at(k, in.x);
    in.x2 = at(k, in.x2);
    in.w = at(k, in.w);
    w.n = w.n_shared = 0;
    w.ld = 0;
    for (int32_t i = 0; i < c->op.args.linear.n_lin; i++) add_work(k, &w, &c->op.args.linear.lin[i]);
    /* max rows for which all ranks' shards fit in the stage */
    int64_t most = w.ld ? (int64_t) k->t->stage_floats / (k->t->n * w.ld) : c->op.args.linear.n_rows;
    for (int32_t r = 0, n; r < c->op.args.linear.n_rows && !k->lost; r += n) {
        n = c->op.args.linear.n_rows - r < most ? c->op.args.linear.n_rows - r : (int32_t) most;
        multiply(k, &w, &in, r, n);
    }
}

/* -------------------------------------------------------------------------------------------------------- attention */

/* Returns the floats between heads of queries; stride 0 = adjacent heads. */
static int64_t q_stride(const pi__kv_layer *kv, int64_t stride) { return stride ? stride : kv->head_dim; }

static void run_qkv(rank *k, const call *c)
{
    pi__qkv a = c->op.args.qkv;
    const pi__kv_layer own = cache_of(k, a.kv, true);
    const bool apart = own.n_head_kv != a.kv->n_head_kv;
    if (apart) a.n_head /= k->t->n;
    const int64_t i = apart ? k->i : 0, q = i * a.n_head * q_stride(&own, a.q_stride),
                  kv = i * own.n_head_kv * own.head_dim;
    a.q = (float *) at(k, a.q) + q;
    if (a.k) a.k = (float *) at(k, a.k) + kv;
    if (a.v) a.v = (float *) at(k, a.v) + kv;
    if (a.q_bias) a.q_bias = (const float *) at(k, a.q_bias) + i * a.n_head * own.head_dim;
    if (a.k_bias) a.k_bias = (const float *) at(k, a.k_bias) + kv;
    if (a.v_bias) a.v_bias = (const float *) at(k, a.v_bias) + kv;
    a.q_norm = at(k, a.q_norm);
    a.k_norm = at(k, a.k_norm);
    a.rope = at(k, a.rope);
    a.q_rope = at(k, a.q_rope);
    a.kv = &own;
    pi__op_qkv(k->be, batch_of(k, c->op.b), &a);
}

static void run_attention(rank *k, const call *c)
{
    pi__attention a = c->op.args.attention;
    const pi__batch *b = batch_of(k, c->op.b);
    const pi__kv_layer own = cache_of(k, a.kv, true);
    const bool apart = own.n_head_kv != a.kv->n_head_kv;
    float *out = at(k, a.out);
    if (apart) a.n_head /= k->t->n;
    const int64_t i = apart ? k->i : 0, heads = i * a.n_head, n = (int64_t) a.n_head * own.head_dim, ldo = a.ldo;
    a.q = (float *) at(k, a.q) + heads * q_stride(&own, a.q_stride);
    if (a.gate) a.gate = (float *) at(k, a.gate) + heads * q_stride(&own, a.q_stride);
    if (a.sinks) a.sinks = (float *) at(k, a.sinks) + heads;
    if (a.rel) a.rel = (float *) at(k, a.rel) + heads * a.n_rel;
    a.out = apart ? shard_of(k, out, b->n_tokens, n) : out;
    if (apart) a.ldo = n;
    a.kv = &own;
    pi__op_attention(k->be, b, &a);
    if (apart) complete(k, b->n_tokens, n, out, ldo);
}

/* ---------------------------------------------------------------------------------------------------------- experts */

/* pi__moe_shard.complete: all-gathers h [n_pairs, 2F]. */
static void complete_h(const pi__moe_shard *p, float *h, int32_t n_pairs, int64_t n_ff)
{
    rank *k = p->ud;
    const int64_t n = n_ff / p->n, ld = 2 * n;
    const int64_t most = (int64_t) k->t->stage_floats / (p->n * ld);
    for (int32_t r = 0, rows; r < n_pairs && !k->lost; r += rows, h += rows * 2 * n_ff) {
        rows = n_pairs - r < most ? n_pairs - r : (int32_t) most;
        pi__op_copy_2d(k->be, NULL,
                       &(pi__copy_2d) {.x = h + k->i * n,
                                       .step = n_ff,
                                       .ldx = 2 * n_ff,
                                       .n_shards = 2,
                                       .n_rows = rows,
                                       .n = n,
                                       .y = k->stage + k->i * rows * ld,
                                       .ldy = ld});
        gather(k, k->stage, (size_t) rows * (size_t) ld);
        copy_shards(k, 0, ld, rows, n, h, 2 * n_ff);
        copy_shards(k, n, ld, rows, n, h + n_ff, 2 * n_ff);
    }
}

static void run_moe(rank *k, const call *c)
{
    pi__moe a = c->op.args.moe;
    if (!pi__tensor_is_cut(k->t, a.gate)) {
        run_whole(k, c);
        return;
    }
    a.in.x = at(k, a.in.x);
    a.in.x2 = at(k, a.in.x2);
    a.in.w = at(k, a.in.w);
    a.logits = at(k, a.logits);
    a.bias = at(k, a.bias);
    a.gate_bias = at(k, a.gate_bias);
    a.up_bias = at(k, a.up_bias);
    a.down_bias = at(k, a.down_bias);
    a.table = at(k, a.table);
    a.lora.rows = pi__lora_local_of(&k->lora, a.lora.rows, pairs_at, k);
    float *y = at(k, a.y);
    piece gate[MAX_FUSED], up[MAX_FUSED], down[MAX_FUSED];
    const pi__moe_shard part = {k->i, k->t->n, complete_h, k};
    const int64_t ldy = a.ldy;
    if (pi__tensor_pieces(k, a.gate, gate) == 1) pi__tensor_pieces(k, a.up, up);
    else up[0] = gate[1];
    pi__tensor_pieces(k, a.down, down);
    a.gate = &gate[0].w, a.up = &up[0].w, a.down = &down[0].w;
    if (a.down_bias) a.down_bias += k->i * down[0].n;
    a.shard = &part;
    a.y = shard_of(k, y, a.n_rows, down[0].n);
    a.ldy = down[0].n;
    pi__op_moe(k->be, c->op.b ? batch_of(k, c->op.b) : NULL, &a);
    complete(k, a.n_rows, down[0].n, y, ldy);
}

/* ------------------------------------------------------------------------------------------------------------ calls */

/* The ops with sharded operands. All other ops are replicated. */
static void (*const cut_run[PI__N_OPS])(rank *k, const call *c) = {
    [PI__OP_embed] = run_embed,         [PI__OP_linear] = run_linear, [PI__OP_qkv] = run_qkv,
    [PI__OP_attention] = run_attention, [PI__OP_moe] = run_moe,
};

void (*pi__tensor_run_of(pi__op_id id))(rank *k, const call *c) { return cut_run[id] ? cut_run[id] : run_whole; }
