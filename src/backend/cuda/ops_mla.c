/* The ops of latent attention and DeepSeek V4: each converts its struct of ops.h to the kernels' struct, and queues the
 * kernels (see kernels.h). No memory of its own; the step thread. */
#include "backend/cuda/impl.h"
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

pi__k_mla_qkv pi__cuda_latent(const pi__cuda *c, const pi__batch *b, const pi__mla_qkv *a)
{
    pi__k_mla_qkv k = {.a = *a, .rows = rows_of(pi__cuda_batch_of(c, b), b, a->rows), .n_tokens = b->n_tokens};
    if (!k.rows.slot) k.a.row = NULL;
    return k;
}

pi__k_compress pi__cuda_compressor(pi__cuda *c, const pi__batch *b, const pi__compress *a)
{
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    pi__k_compress k = {.a = *a, .recent = rows_of(d, b, a->recent), .entries = rows_of(d, b, a->entries),
                        .n_tokens = b->n_tokens, .pos = d->pos, .seq = d->seq};
    k.a.freq = pi__cuda_frequencies(c, a->freq, a->n_rot / 2);
    return k;
}

void pi__cuda_queue_latent(pi__cuda *c, const pi__k_latent_inputs *k)
{
    if (k->n_q || k->n_compress) PI__QUEUE(c, pi__k_latent_inputs_run(pi__rt_stream(c->rt), k));
}

void pi__cuda_mla_qkv(pi__backend *be, const pi__batch *b, const pi__mla_qkv *a)
{
    pi__cuda *c = (pi__cuda *) be;
    const pi__k_latent_inputs k = {.q = {pi__cuda_latent(c, b, a)}, .n_q = 1};
    pi__cuda_queue_latent(c, &k);
}

void pi__cuda_compress(pi__backend *be, const pi__batch *b, const pi__compress *a)
{
    pi__cuda *c = (pi__cuda *) be;
    const pi__k_latent_inputs k = {.compress = {pi__cuda_compressor(c, b, a)}, .n_compress = 1};
    pi__cuda_queue_latent(c, &k);
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
    pi__cuda_queue_indexer((pi__cuda *) be, b, a, NULL);
}

void pi__cuda_queue_indexer(pi__cuda *c, const pi__batch *b, const pi__indexer *a, const pi__mla_qkv *raw)
{
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    if (pi__picks_all(&c->f, b, a->entries, a->n_top)) return;
    pi__k_indexer k = {.a = *a,
                       .entries = rows_of(d, b, a->entries),
                       .n_tokens = b->n_tokens,
                       .pos = d->pos,
                       .seq = d->seq,
                       .most = pi__most_seen(&c->f, b) / a->entries->ratio,
                       .scratch = c->scratch + c->at.indexer,
                       .scratch_size = c->at.key_blocks - c->at.indexer,
                       .n_sm = c->info.n_sm};
    if (raw) k.rope = raw->rope, k.n_rot = raw->n_rot, k.q_scale = raw->q_scale;
    PI__QUEUE(c, pi__k_indexer_run(pi__rt_stream(c->rt), &k));
}

void pi__cuda_queue_sparse(pi__cuda *c, const pi__batch *b, const pi__sparse *a, const pi__mla_qkv *raw,
                           const pi__k_groups *groups)
{
    const cuda_batch *d = pi__cuda_batch_of(c, b);
    const int32_t seen = pi__most_seen(&c->f, b), window = seen < a->window ? seen : a->window;
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
    if (a->pick && pi__picks_all(&c->f, b, a->entries, a->n_top)) k.a.pick = NULL;
    if (raw) k.raw = 1, k.q_norm = raw->q_norm, k.q_scale = raw->q_scale, k.eps = raw->eps;
    if (groups) k.groups = *groups;
    PI__QUEUE(c, pi__k_sparse_split(pi__rt_stream(c->rt), &k, (uint32_t *) (void *) (c->scratch + c->at.arrived) + 1));
}

void pi__cuda_sparse(pi__backend *be, const pi__batch *b, const pi__sparse *a)
{
    pi__cuda_queue_sparse((pi__cuda *) be, b, a, NULL, NULL);
}
