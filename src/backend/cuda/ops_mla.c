/* The ops of latent attention and DeepSeek V4: each converts its struct of ops.h to the kernels' struct, and queues the
 * kernels (see kernels.h). No memory of its own; the step thread. */
#include "backend/cuda/impl.h"
#include "backend/cuda/kernels_hyper.h"
#include "backend/cuda/kernels_mla.h"
#include "backend/cuda/kernels_sparse.h"
#include "formats/formats.h"

/* MAX_ROW: max values per cache row. INDEXER_ROOM: bytes for the indexer's scores; more if FEW tokens need more. */
enum { MAX_ROW = 2048, INDEXER_ROOM = 64 << 20, FEW = 8 };

/* Returns the number of values per row in the cache: n, padded to a multiple of 32. */
static int32_t width_of(int32_t n) { return (n + 31) / 32 * 32; }

size_t pi__cuda_row_bytes(const pi__backend *be, int32_t type, int32_t n, int32_t n_rows)
{
    (void) be;
    if (pi__kv_index(type) < 0 || n < 16 || n > MAX_ROW || n % 16 || n_rows < 1) return 0;
    return ((size_t) n_rows * pi__kv_row_size(type, width_of(n)) + 63) & ~(size_t) 63;
}

/* Returns the kernels' description of a layer that stores rows. kv NULL = no rows. */
static pi__k_rows rows_of(const cuda_batch *d, const pi__batch *b, const pi__kv_layer *kv)
{
    if (!kv) return (pi__k_rows) {.ratio = 1};
    const pi__kv_batch *kb = &b->kv[kv->group];
    return (pi__k_rows) {
        .cache = {kv->base, kv->stride, kv->type_k, kv->type_k, 1, width_of(kv->head_dim), kb->block_size / kv->ratio},
        .ratio = kv->ratio,
        .slot = d->slot[kv->group],
        .table = d->table[kv->group],
        .table_stride = kb->table_stride};
}

/* Returns an upper bound of the number of keys that a token of the step sees; equal for all steps of a captured
 * shape. */
static int32_t most_seen(const pi__cuda *c, const cuda_batch *d, const pi__batch *b)
{
    const int32_t keys = d->keys ? d->keys : pi__cuda_max_keys(b, 0);
    return keys < c->lim.max_ctx ? keys : c->lim.max_ctx;
}

bool pi__cuda_is_mix(const pi__cuda *c, const pi__linear *a)
{
    const pi__weight *w = a->lin[0].w;
    const int64_t n = w->n_in / PI__STREAMS;
    if (a->n_lin != 1 || !pi__type_is_float(w->type) || w->scale || a->in.kind != PI__IN_PLAIN) return false;
    if (!n || n != c->lim.max_stream) return false;
    if (w->n_in != PI__STREAMS * n || (w->n_out != PI__HYPER_MIX && w->n_out != PI__STREAMS)) return false;
    return a->in.ldx == w->n_in && a->lin[0].ldy == w->n_out;
}

pi__k_streams pi__cuda_streams(const pi__cuda *c, const cuda_streams *s)
{
    pi__k_streams k = {.sums = (float *) (void *) (c->scratch + c->at.streams),
                       .arrived = (uint32_t *) (void *) (c->scratch + c->at.arrived) + PI__CUDA_SPLIT_COUNTERS,
                       .waits = pi__cuda_waits(c)};
    if (s->posts)
        k.n_rows = s->post.n_rows, k.n = s->post.n, k.x = s->post.x, k.result = s->post.y, k.coef = s->post.coef;
    if (s->mixes) {
        const pi__weight *w = s->mix.lin[0].w;
        k.n_rows = s->mix.n_rows, k.n = w->n_in / PI__STREAMS, k.x = (float *) (uintptr_t) s->mix.in.x;
        k.w = w->data, k.type = w->type, k.n_iter = w->n_out == PI__HYPER_MIX, k.mix = s->mix.lin[0].y;
    }
    if (s->reads) {
        const pi__hyper *a = &s->pre;
        k.n_rows = a->n_rows, k.n_iter = a->n_iter, k.n = a->n, k.x = a->x, k.mix = (float *) (uintptr_t) a->mix,
        k.scale = a->scale;
        k.base = a->base, k.norm_eps = a->norm_eps, k.eps = a->eps, k.y = a->y;
        if (a->n_iter) k.coef = a->coef; /* else coef belongs to `result`, or is unused */
    }
    return k;
}

void pi__cuda_queue_streams(pi__cuda *c, const cuda_streams *s, const pi__k_tail *then)
{
    const pi__k_streams k = pi__cuda_streams(c, s);
    PI__QUEUE(c, pi__k_streams_run(pi__rt_stream(c->rt), &k, then));
}

void pi__cuda_hyper_pre(pi__backend *be, const pi__batch *b, const pi__hyper *a)
{
    (void) b;
    pi__cuda_queue_streams((pi__cuda *) be, &(cuda_streams) {.reads = true, .pre = *a}, NULL);
}

void pi__cuda_hyper_post(pi__backend *be, const pi__batch *b, const pi__hyper *a)
{
    (void) b;
    pi__cuda_queue_streams((pi__cuda *) be, &(cuda_streams) {.posts = true, .post = *a}, NULL);
}

pi__k_mla_qkv pi__cuda_latent(const pi__cuda *c, const pi__batch *b, const pi__mla_qkv *a)
{
    pi__k_mla_qkv k = {.a = *a, .rows = rows_of(pi__cuda_batch_of(c, b), b, a->rows), .n_tokens = b->n_tokens};
    if (!k.rows.slot) k.a.row = NULL;
    return k;
}

void pi__cuda_mla_qkv(pi__backend *be, const pi__batch *b, const pi__mla_qkv *a)
{
    pi__cuda_queue_latent((pi__cuda *) be, b, &(cuda_latent) {.q = {*a}, .n_q = 1}, true, true);
}

static pi__k_compress compressor_of(pi__cuda *c, const pi__batch *b, const pi__compress *a)
{
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    pi__k_compress k = {.a = *a, .recent = rows_of(d, b, a->recent), .entries = rows_of(d, b, a->entries),
                        .n_tokens = b->n_tokens, .pos = d->pos, .seq = d->seq};
    k.a.freq = pi__cuda_frequencies(c, a->freq, a->n_rot / 2);
    return k;
}

void pi__cuda_compress(pi__backend *be, const pi__batch *b, const pi__compress *a)
{
    pi__cuda_queue_latent((pi__cuda *) be, b, &(cuda_latent) {.compress = {*a}, .n_compress = 1}, true, true);
}

pi__k_latent_inputs pi__cuda_latent_inputs(pi__cuda *c, const pi__batch *b, const cuda_latent *a, bool queries,
                                           bool rows)
{
    pi__k_latent_inputs k = {.n_q = 0};
    for (int32_t i = 0; i < a->n_q; i++) {
        pi__mla_qkv q = a->q[i];
        if (!queries) q.n_head = 0;
        if (!rows) q.row = NULL;
        if (q.n_head || q.row) k.q[k.n_q++] = pi__cuda_latent(c, b, &q);
    }
    for (int32_t i = 0; i < a->n_compress && rows; i++)
        k.compress[k.n_compress++] = compressor_of(c, b, &a->compress[i]);
    return k;
}

void pi__cuda_queue_latent(pi__cuda *c, const pi__batch *b, const cuda_latent *a, bool queries, bool rows)
{
    const pi__k_latent_inputs k = pi__cuda_latent_inputs(c, b, a, queries, rows);
    if (k.n_q || k.n_compress) PI__QUEUE(c, pi__k_latent_inputs_run(pi__rt_stream(c->rt), &k));
}

/* True if no token of the step sees more than n_top entries: all entries are picked, and the list of picks is not
 * needed. */
static bool picks_all(const pi__cuda *c, const cuda_batch *d, const pi__batch *b, const pi__kv_layer *entries,
                      int32_t n_top)
{
    return most_seen(c, d, b) / entries->ratio <= n_top;
}

bool pi__cuda_picks_all(const pi__cuda *c, const pi__batch *b, const pi__indexer *a)
{
    return picks_all(c, pi__cuda_batch_of(c, b), b, a->entries, a->n_top);
}

size_t pi__cuda_indexer_bytes(const pi__limits *lim)
{
    if (!lim->indexer_head) return 0;
    const size_t one = pi__k_indexer_scratch(lim->max_ctx / lim->indexer_ratio + 1);
    size_t n = INDEXER_ROOM / one;
    if (n < FEW) n = FEW;
    return one * (n < (size_t) lim->max_tokens ? n : (size_t) lim->max_tokens);
}

void pi__cuda_indexer(pi__backend *be, const pi__batch *b, const pi__indexer *a)
{
    pi__cuda *c = (pi__cuda *) be;
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    if (picks_all(c, d, b, a->entries, a->n_top)) return;
    pi__k_indexer k = {.a = *a,
                       .entries = rows_of(d, b, a->entries),
                       .n_tokens = b->n_tokens,
                       .pos = d->pos,
                       .seq = d->seq,
                       .most = most_seen(c, d, b) / a->entries->ratio,
                       .scratch = c->scratch + c->at.indexer,
                       .scratch_size = c->at.key_blocks - c->at.indexer,
                       .n_sm = c->info.n_sm};
    if (c->raw.n_head) k.rope = c->raw.rope, k.n_rot = c->raw.n_rot, k.q_scale = c->raw.q_scale;
    c->raw.n_head = 0;
    PI__QUEUE(c, pi__k_indexer_run(pi__rt_stream(c->rt), &k));
}

void pi__cuda_queue_sparse(pi__cuda *c, const pi__batch *b, const pi__sparse *a, const pi__mla_qkv *raw,
                           const pi__k_groups *groups)
{
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    const int32_t seen = most_seen(c, d, b), window = seen < a->window ? seen : a->window;
    int32_t entries = a->entries ? seen / a->entries->ratio : 0;
    if (a->pick && entries > a->n_top) entries = a->n_top;
    pi__k_sparse k = {.a = *a,
                      .rows = rows_of(d, b, a->rows),
                      .entries = rows_of(d, b, a->entries),
                      .n_tokens = b->n_tokens,
                      .pos = d->pos,
                      .seq = d->seq,
                      .most = window + entries,
                      .scratch = c->scratch + c->at.kv_splits,
                      .scratch_size = c->at.lora - c->at.kv_splits,
                      .n_sm = c->info.n_sm,
                      .waits = pi__cuda_waits(c),
                      .fast = c->one_f16};
    if (a->pick && picks_all(c, d, b, a->entries, a->n_top)) k.a.pick = NULL;
    if (raw && raw->n_head) k.raw = 1, k.q_norm = raw->q_norm, k.q_scale = raw->q_scale, k.eps = raw->eps;
    if (groups) k.groups = *groups;
    PI__QUEUE(c, pi__k_sparse_split(pi__rt_stream(c->rt), &k, (uint32_t *) (void *) (c->scratch + c->at.arrived) + 1));
}

void pi__cuda_sparse(pi__backend *be, const pi__batch *b, const pi__sparse *a)
{
    pi__cuda_queue_sparse((pi__cuda *) be, b, a, NULL, NULL);
}
