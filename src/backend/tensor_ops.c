/* The ops of several devices that work as one (see tensor.c): noting them, and making them on one rank.
 *
 * A cut result is computed where its columns belong, in rows that are as long as the whole (the graph's next op finds it
 * there), or on the stage, where all ranks' parts lie one behind the other as the link wants them:
 *
 *     stage  [rank 0: n_rows x n] [rank 1: n_rows x n] ...     spread to     y  [n_rows, rank 0 | rank 1 | ...]
 *
 * A single row needs no stage: there, both are the same. No memory. Noting is the step thread's, a run each rank's own. */
#include <string.h>

#include "backend/tensor_impl.h"

static void *at(const rank *k, const void *p) { return pi__tensor_at(k, p); }

/* A matrix that every rank has all of. */
static pi__weight whole_of(const rank *k, const pi__weight *w)
{
    pi__weight whole = *w;
    whole.data = at(k, w->data);
    whole.scale = at(k, w->scale);
    return whole;
}

/* The device's batch for one that was noted. */
static const pi__batch *batch_of(const rank *k, const pi__batch *b) { return b == &k->t->b ? k->b : k->b->wanted; }

/* The parts of all ranks come to buf, count floats each. */
static void gather(rank *k, float *buf, size_t count)
{
    pi__link *l = k->t->link;
    if (!k->lost && !l->ops->gather(l, k->i, buf, count)) k->lost = true;
}

/* The stage's parts of n columns (from column `first` of ld on) to their place at y. */
static void spread(rank *k, int64_t first, int64_t ld, int32_t n_rows, int64_t n, float *y, int64_t ldy)
{
    if (k->lost) return;
    k->be->ops->spread(k->be, k->stage + first, n_rows * ld, ld, k->t->n, n_rows, n, y, ldy);
}

/* Where this rank's part of n columns of n_rows is computed before complete() makes it whole at y. */
static float *part_of(const rank *k, float *y, int32_t n_rows, int64_t n)
{
    return (n_rows == 1 ? y : k->stage) + k->i * n_rows * n;
}
static void complete(rank *k, int32_t n_rows, int64_t n, float *y, int64_t ldy)
{
    gather(k, n_rows == 1 ? y : k->stage, (size_t) n_rows * (size_t) n);
    if (n_rows > 1) spread(k, 0, n, n_rows, n, y, ldy);
}

/* --------------------------------------------------------------------------------------------------------------- begin */

/* The tokens as this rank's rows of the embeddings number them; those that others have become any. Of n tokens with those
 * that belong to nobody, where the stage has what a token's owner looked up for it. */
static void number_tokens(const rank *k, pi__batch *b, int32_t n, int32_t *token, int32_t *owner)
{
    const int64_t rows = k->t->embd_rows[k->t->kind], first = k->i * rows;
    if (!rows) return;
    for (int32_t i = 0; i < b->n_tokens; i++) {
        const int64_t id = b->token[i] - first;
        token[i] = id >= 0 && id < rows ? (int32_t) id : 0;
        owner[i] = (int32_t) (b->token[i] / rows) * n + i;
    }
    b->token = token;
    b->owner = owner;
}

static void run_begin(rank *k, const call *c)
{
    const pi__tensor *t = k->t;
    (void) c;
    k->batch = *t->given;
    number_tokens(k, &k->batch, t->b.n_tokens, k->token, k->owner);
    if (k->batch.wanted) {
        k->wanted = *k->batch.wanted;
        number_tokens(k, &k->wanted, t->wanted.n_tokens, k->token + t->max_tokens, k->owner + t->max_tokens);
        k->batch.wanted = &k->wanted;
    }
    k->b = k->be->ops->begin(k->be, &k->batch, t->kind);
    if (!k->b != t->plays) k->lost = true; /* the others do something else */
}

/* Whether the devices play the step is known before they are asked to, as is what they round it up to. */
static const pi__batch *note_begin(pi__backend *be, const pi__batch *b, int kind)
{
    pi__tensor *t = (pi__tensor *) be;
    const rank *first = &t->rank[0];
    int32_t n = b->n_seqs;
    t->given = b;
    t->kind = kind;
    t->plays = kind == PI__STEP_DECODE && first->be->ops->foresee && first->be->ops->foresee(first->be, b, &n);
    t->b = *b;
    const int32_t more = n > b->n_seqs ? (n - b->n_seqs) * (b->n_tokens / b->n_seqs) : 0; /* tokens */
    t->b.n_tokens += more, t->b.n_rows += more, t->b.n_seqs = n;
    if (b->wanted) {
        t->wanted = *b->wanted;
        t->wanted.n_tokens += more, t->wanted.n_seqs = n;
        t->b.wanted = &t->wanted;
    }
    if (!t->plays) t->embd_rows[kind] = 0;
    pi__tensor_note(t, run_begin);
    return t->plays ? NULL : &t->b;
}

/* --------------------------------------------------------------------------------------------------------------- embed */

/* Every rank looks up all tokens, the owner's row is the right one. */
static void run_embed(rank *k, const call *c)
{
    const pi__weight *w = c->u.embed.w;
    const pi__batch *b = batch_of(k, c->b);
    float *out = at(k, c->u.embed.out);
    const int32_t n = b->n_tokens;
    if (!pi__tensor_is_cut(k->t, w)) {
        const pi__weight whole = whole_of(k, w);
        k->be->ops->embed(k->be, b, &whole, c->u.embed.scale, out);
        return;
    }
    piece p[MAX_PARTS];
    pi__tensor_pieces(k, w, p);
    const size_t count = (size_t) n * (size_t) w->n_in;
    k->be->ops->embed(k->be, b, &p[0].w, c->u.embed.scale, k->stage + (size_t) k->i * count);
    gather(k, k->stage, count);
    if (!k->lost) k->be->ops->gather_rows(k->be, b->owner, n, k->stage, w->n_in, out);
}

static void note_embed(pi__backend *be, const pi__batch *b, const pi__weight *w, float scale, float *out)
{
    pi__tensor *t = (pi__tensor *) be;
    call *c = pi__tensor_note(t, run_embed);
    if (pi__tensor_is_cut(t, w)) t->embd_rows[t->kind] = w->n_out / t->n;
    c->b = b;
    c->u.embed.w = w, c->u.embed.scale = scale, c->u.embed.out = out;
}

/* -------------------------------------------------------------------------------------------------------------- linear */

/* What a rank multiplies for one call of linear. */
typedef struct work {
    piece piece[MAX_LIN * MAX_PARTS]; /* the device's matrices */
    pi__lin lin[MAX_LIN * MAX_PARTS]; /* y: of the first row, at the result's place on this rank */
    bool shared[MAX_LIN * MAX_PARTS]; /* the others are given this rank's columns */
    int32_t n;                        /* how many */
    int64_t ld;                       /* columns of those that are shared, together */
    int32_t n_shared;                 /* how many are shared */
} work;

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

/* Rows r..r + n of all results. */
static void multiply(rank *k, const work *w, const pi__lin_in *in, int32_t r, int32_t n)
{
    pi__lin lin[MAX_LIN * MAX_PARTS];
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
    k->be->ops->linear(k->be, &x, n, lin, w->n);
    if (!w->n_shared) return;
    col = 0;
    for (int32_t i = 0; i < w->n; i++) {
        if (!w->shared[i]) continue;
        float *y = w->lin[i].y + r * w->lin[i].ldy;
        if (!col) gather(k, stage ? k->stage : y, (size_t) n * (size_t) w->ld);
        if (stage) spread(k, col, w->ld, n, w->piece[i].n, y, w->lin[i].ldy);
        col += w->piece[i].n;
    }
}

static void run_linear(rank *k, const call *c)
{
    work w;
    pi__lin_in in = c->u.linear.in;
    in.x = at(k, in.x);
    in.x2 = at(k, in.x2);
    in.w = at(k, in.w);
    w.n = w.n_shared = 0;
    w.ld = 0;
    for (int32_t i = 0; i < c->n_list; i++) add_work(k, &w, &c->u.linear.lin[i]);
    int64_t most = w.ld ? (int64_t) k->t->stage_floats / (k->t->n * w.ld) : c->n_rows; /* rows that the stage holds */
    for (int32_t r = 0, n; r < c->n_rows && !k->lost; r += n) {
        n = c->n_rows - r < most ? c->n_rows - r : (int32_t) most;
        multiply(k, &w, &in, r, n);
    }
}

static void note_linear(pi__backend *be, const pi__lin_in *in, int32_t n_rows, const pi__lin *lin, int32_t n_lin)
{
    pi__tensor *t = (pi__tensor *) be;
    if (n_lin > MAX_LIN) {
        t->too_many = true;
        return;
    }
    call *c = pi__tensor_note(t, run_linear);
    c->u.linear.in = *in;
    if (in->kind != PI__IN_GEGLU && in->kind != PI__IN_SWIGLU) c->u.linear.in.x2 = NULL;
    memcpy(c->u.linear.lin, lin, (size_t) n_lin * sizeof *lin);
    c->n_rows = n_rows;
    c->n_list = n_lin;
}

/* ----------------------------------------------------------------------------------------------------------- attention */

/* The layer as this rank has it: its heads, or all where they do not divide. */
static pi__kv_layer cache_of(const rank *k, const pi__kv_layer *kv)
{
    pi__kv_layer own = *kv;
    own.base = at(k, kv->base);
    if (kv->n_head_kv % k->t->n == 0) own.n_head_kv /= k->t->n;
    return own;
}

/* Floats from one head of queries to the next. */
static int64_t q_stride(const pi__kv_layer *kv, int64_t stride) { return stride ? stride : kv->head_dim; }

static void run_qkv(rank *k, const call *c)
{
    pi__qkv a = c->u.qkv.a;
    const pi__kv_layer own = cache_of(k, c->u.qkv.kv);
    const bool apart = own.n_head_kv != c->u.qkv.kv->n_head_kv;
    if (apart) a.n_head /= k->t->n;
    const int64_t i = apart ? k->i : 0, q = i * a.n_head * q_stride(&own, a.q_stride), kv = i * own.n_head_kv * own.head_dim;
    a.q = (float *) at(k, a.q) + q;
    if (a.k) a.k = (float *) at(k, a.k) + kv;
    if (a.v) a.v = (float *) at(k, a.v) + kv;
    a.q_norm = at(k, a.q_norm);
    a.k_norm = at(k, a.k_norm);
    a.rope = at(k, a.rope);
    k->be->ops->qkv(k->be, batch_of(k, c->b), &a, &own);
}

static void note_qkv(pi__backend *be, const pi__batch *b, const pi__qkv *a, const pi__kv_layer *kv)
{
    call *c = pi__tensor_note((pi__tensor *) be, run_qkv);
    c->b = b;
    c->u.qkv.a = *a, c->u.qkv.kv = kv;
}

static void run_attention(rank *k, const call *c)
{
    pi__attn a = c->u.attention.a;
    const pi__batch *b = batch_of(k, c->b);
    const pi__kv_layer own = cache_of(k, c->u.attention.kv);
    const bool apart = own.n_head_kv != c->u.attention.kv->n_head_kv;
    float *out = at(k, a.out);
    if (apart) a.n_head /= k->t->n;
    const int64_t i = apart ? k->i : 0, heads = i * a.n_head, n = (int64_t) a.n_head * own.head_dim, ldo = a.ldo;
    a.q = (float *) at(k, a.q) + heads * q_stride(&own, a.q_stride);
    if (a.gate) a.gate = (float *) at(k, a.gate) + heads * q_stride(&own, a.q_stride);
    if (a.sinks) a.sinks = (float *) at(k, a.sinks) + heads;
    a.out = apart ? part_of(k, out, b->n_tokens, n) : out;
    if (apart) a.ldo = n;
    k->be->ops->attention(k->be, b, &a, &own);
    if (apart) complete(k, b->n_tokens, n, out, ldo);
}

static void note_attention(pi__backend *be, const pi__batch *b, const pi__attn *a, const pi__kv_layer *kv)
{
    call *c = pi__tensor_note((pi__tensor *) be, run_attention);
    c->b = b;
    c->u.attention.a = *a, c->u.attention.kv = kv;
}

/* ------------------------------------------------------------------------------------------------------------- experts */

/* h [n_pairs, 2F] whole on every rank: pi__moe_part.complete. */
static void complete_h(const pi__moe_part *p, float *h, int32_t n_pairs, int64_t n_ff)
{
    rank *k = p->ud;
    const int64_t n = n_ff / p->n, ld = 2 * n;
    const int64_t most = (int64_t) k->t->stage_floats / (p->n * ld);
    for (int32_t r = 0, rows; r < n_pairs && !k->lost; r += rows, h += rows * 2 * n_ff) {
        rows = n_pairs - r < most ? n_pairs - r : (int32_t) most;
        k->be->ops->spread(k->be, h + k->i * n, n_ff, 2 * n_ff, 2, rows, n, k->stage + k->i * rows * ld, ld);
        gather(k, k->stage, (size_t) rows * (size_t) ld);
        spread(k, 0, ld, rows, n, h, 2 * n_ff);
        spread(k, n, ld, rows, n, h + n_ff, 2 * n_ff);
    }
}

static void run_moe(rank *k, const call *c)
{
    pi__moe a = c->u.moe.a;
    a.in.x = at(k, a.in.x);
    a.in.x2 = at(k, a.in.x2);
    a.in.w = at(k, a.in.w);
    a.logits = at(k, a.logits);
    float *y = at(k, a.y);
    if (!pi__tensor_is_cut(k->t, a.gate)) {
        const pi__weight gate = whole_of(k, a.gate), up = a.up ? whole_of(k, a.up) : gate, down = whole_of(k, a.down);
        a.gate = &gate, a.up = a.up ? &up : NULL, a.down = &down, a.y = y;
        k->be->ops->moe(k->be, &a, c->n_rows);
        return;
    }
    piece gate[MAX_PARTS], up[MAX_PARTS], down[MAX_PARTS];
    const pi__moe_part part = {k->i, k->t->n, complete_h, k};
    const int64_t ldy = a.ldy;
    if (pi__tensor_pieces(k, a.gate, gate) == 1) pi__tensor_pieces(k, a.up, up);
    else up[0] = gate[1];
    pi__tensor_pieces(k, a.down, down);
    a.gate = &gate[0].w, a.up = &up[0].w, a.down = &down[0].w;
    a.part = &part;
    a.y = part_of(k, y, c->n_rows, down[0].n);
    a.ldy = down[0].n;
    k->be->ops->moe(k->be, &a, c->n_rows);
    complete(k, c->n_rows, down[0].n, y, ldy);
}

static void note_moe(pi__backend *be, const pi__moe *a, int32_t n_rows)
{
    call *c = pi__tensor_note((pi__tensor *) be, run_moe);
    c->u.moe.a = *a;
    c->n_rows = n_rows;
}

/* ---------------------------------------------------------------------------------------- what every rank does as a whole */

static void run_add_norm(rank *k, const call *c)
{
    k->be->ops->add_norm(k->be, at(k, c->u.add_norm.x), at(k, c->u.add_norm.y), at(k, c->u.add_norm.w), c->u.add_norm.eps,
                         c->u.add_norm.scale, c->n_rows, c->u.add_norm.n);
}
static void note_add_norm(pi__backend *be, float *x, const float *y, const float *w, float eps, float scale, int32_t n_rows,
                          int64_t n)
{
    call *c = pi__tensor_note((pi__tensor *) be, run_add_norm);
    c->n_rows = n_rows;
    c->u.add_norm.x = x, c->u.add_norm.y = y, c->u.add_norm.w = w;
    c->u.add_norm.eps = eps, c->u.add_norm.scale = scale, c->u.add_norm.n = n;
}

static void run_rope(rank *k, const call *c)
{
    k->be->ops->rope(k->be, batch_of(k, c->b), c->u.rope.freq, c->n_list, c->u.rope.mscale, at(k, c->u.rope.table));
}
static void note_rope(pi__backend *be, const pi__batch *b, const float *freq, int32_t n_freq, float mscale, float *table)
{
    call *c = pi__tensor_note((pi__tensor *) be, run_rope);
    c->b = b;
    c->n_list = n_freq;
    c->u.rope.freq = freq, c->u.rope.mscale = mscale, c->u.rope.table = table;
}

static void run_gather_rows(rank *k, const call *c)
{
    const int32_t *row = c->u.gather_rows.row;
    if (row && row == k->t->b.row) row = k->b->row; /* which the device has already */
    k->be->ops->gather_rows(k->be, row, c->n_rows, at(k, c->u.gather_rows.x), c->u.gather_rows.n,
                            at(k, c->u.gather_rows.out));
}
static void note_gather_rows(pi__backend *be, const int32_t *row, int32_t n_rows, const float *x, int64_t n, float *out)
{
    call *c = pi__tensor_note((pi__tensor *) be, run_gather_rows);
    c->n_rows = n_rows;
    c->u.gather_rows.row = row, c->u.gather_rows.x = x, c->u.gather_rows.n = n, c->u.gather_rows.out = out;
}

static void run_softcap(rank *k, const call *c)
{
    k->be->ops->softcap(k->be, at(k, c->u.softcap.x), c->u.softcap.cap, c->u.softcap.n);
}
static void note_softcap(pi__backend *be, float *x, float cap, size_t n)
{
    call *c = pi__tensor_note((pi__tensor *) be, run_softcap);
    c->u.softcap.x = x, c->u.softcap.cap = cap, c->u.softcap.n = n;
}

/* Every rank has all of the rows; what is found is fetched of the first. */
static void run_topk(rank *k, const call *c)
{
    if (!k->i)
        k->be->ops->topk(k->be, c->u.topk.x, c->n_rows, c->u.topk.n, c->u.topk.skip, c->u.topk.n_all, c->u.topk.ask,
                         c->u.topk.out);
}
static bool note_topk(pi__backend *be, float *x, int32_t n_rows, int64_t n, const int32_t *skip, int32_t n_all,
                      const pi__ask *ask, uint64_t *out)
{
    call *c = pi__tensor_note((pi__tensor *) be, run_topk);
    c->n_rows = n_rows;
    c->u.topk.x = x, c->u.topk.n = n, c->u.topk.skip = skip, c->u.topk.n_all = n_all;
    c->u.topk.ask = ask, c->u.topk.out = out;
    return true;
}

static void run_norm(rank *k, const call *c)
{
    k->be->ops->norm(k->be, at(k, c->u.norm.out), c->u.norm.ldo, at(k, c->u.norm.x), at(k, c->u.norm.w), c->u.norm.eps,
                     c->n_rows, c->u.norm.n);
}
static void note_norm(pi__backend *be, float *out, int64_t ldo, const float *x, const float *w, float eps, int32_t n_rows,
                      int64_t n)
{
    call *c = pi__tensor_note((pi__tensor *) be, run_norm);
    c->n_rows = n_rows;
    c->u.norm.out = out, c->u.norm.ldo = ldo, c->u.norm.x = x, c->u.norm.w = w, c->u.norm.eps = eps, c->u.norm.n = n;
}

/* So little of the head is read that to exchange what it gives would take longer. */
static void run_clustered(rank *k, const call *c)
{
    pi__clustered a = c->u.clustered.a;
    const pi__weight centroids = whole_of(k, a.centroids), head = whole_of(k, a.head);
    a.in.x = at(k, a.in.x);
    a.in.x2 = at(k, a.in.x2);
    a.in.w = at(k, a.in.w);
    a.centroids = &centroids, a.head = &head;
    a.scores = at(k, a.scores);
    a.pick = at(k, a.pick);
    a.some = at(k, a.some);
    a.logits = at(k, a.logits);
    k->be->ops->clustered(k->be, &a, c->n_rows);
}
static void note_clustered(pi__backend *be, const pi__clustered *a, int32_t n_rows)
{
    call *c = pi__tensor_note((pi__tensor *) be, run_clustered);
    c->u.clustered.a = *a;
    c->n_rows = n_rows;
}

static void run_add_gated(rank *k, const call *c)
{
    k->be->ops->add_gated(k->be, at(k, c->u.add_gated.y), at(k, c->u.add_gated.x), at(k, c->u.add_gated.gate),
                          c->u.add_gated.ldg, c->n_rows, c->u.add_gated.n);
}
static void note_add_gated(pi__backend *be, float *y, const float *x, const float *gate, int64_t ldg, int32_t n_rows,
                           int64_t n)
{
    call *c = pi__tensor_note((pi__tensor *) be, run_add_gated);
    c->n_rows = n_rows;
    c->u.add_gated.y = y, c->u.add_gated.x = x, c->u.add_gated.gate = gate;
    c->u.add_gated.ldg = ldg, c->u.add_gated.n = n;
}

/* A layer's states as this rank has them. */
static pi__state_layer states_of(const rank *k, const pi__state_layer *st)
{
    pi__state_layer own = *st;
    own.base = at(k, st->base);
    own.snap = at(k, st->snap);
    return own;
}

static void run_gdn(rank *k, const call *c)
{
    pi__gdn a = c->u.gdn.a;
    const pi__state_layer own = states_of(k, c->u.gdn.st);
    a.qkv = at(k, a.qkv);
    a.z = at(k, a.z);
    a.alpha = at(k, a.alpha);
    a.beta = at(k, a.beta);
    a.conv = at(k, a.conv);
    a.dt_bias = at(k, a.dt_bias);
    a.a = at(k, a.a);
    a.norm = at(k, a.norm);
    a.out = at(k, a.out);
    k->be->ops->gdn(k->be, batch_of(k, c->b), &a, &own);
}
static void note_gdn(pi__backend *be, const pi__batch *b, const pi__gdn *a, const pi__state_layer *st)
{
    call *c = pi__tensor_note((pi__tensor *) be, run_gdn);
    c->b = b;
    c->u.gdn.a = *a, c->u.gdn.st = st;
}

static void run_state(rank *k, const call *c)
{
    const pi__state_layer own = states_of(k, c->u.state.st);
    if (c->u.state.save) k->be->ops->state_save(k->be, &own, c->u.state.slot, c->u.state.pos, c->u.state.snap);
    else k->be->ops->state_load(k->be, &own, c->u.state.slot, c->u.state.pos, c->u.state.snap);
}
static void note_state(pi__backend *be, const pi__state_layer *st, int32_t slot, int32_t pos, int32_t snap, bool save)
{
    call *c = pi__tensor_note((pi__tensor *) be, run_state);
    c->u.state.st = st, c->u.state.slot = slot, c->u.state.pos = pos, c->u.state.snap = snap, c->u.state.save = save;
}
static void note_state_save(pi__backend *be, const pi__state_layer *st, int32_t slot, int32_t pos, int32_t snap)
{
    note_state(be, st, slot, pos, snap, true);
}
static void note_state_load(pi__backend *be, const pi__state_layer *st, int32_t slot, int32_t pos, int32_t snap)
{
    note_state(be, st, slot, pos, snap, false);
}

void pi__tensor_set_ops(pi__backend_ops *ops)
{
    ops->begin = note_begin;
    ops->embed = note_embed;
    ops->linear = note_linear;
    ops->add_norm = note_add_norm;
    ops->rope = note_rope;
    ops->qkv = note_qkv;
    ops->attention = note_attention;
    ops->gather_rows = note_gather_rows;
    ops->softcap = note_softcap;
    ops->topk = note_topk;
    ops->moe = note_moe;
    ops->norm = note_norm;
    ops->clustered = note_clustered;
    ops->add_gated = note_add_gated;
    ops->gdn = note_gdn;
    ops->state_save = note_state_save;
    ops->state_load = note_state_load;
}
