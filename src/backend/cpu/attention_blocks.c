/* Selection of key blocks for sparse prefill on the CPU (see attention_blocks.h; the method: PI__SPARSE_BLOCK).
 *
 * No state is kept between steps. For each layer and step, the mean of each key block is computed from the cache, for
 * any cache type. Means are stored in F32 key tiles, 16 adjacent key blocks per tile. So reused prefixes, cache tiers
 * and block sizes do not change the selection. Reading the keys once more per chunk costs 1 / (2 * the chunk's query
 * rows per KV head) of dense attention. The attention kernels compute the scores of query rows and means, at 1/256 of
 * the cost of attention. Keys of a rotated type have rotated means, which match the rotated queries.
 *
 * Memory: the backend's scratch. Threads: called by the step thread, which forks and joins the pool inside. Invariant:
 * the selection of a query block depends on its own queries and the keys up to its end, never on threads or other
 * tokens of the step. One thread sums each query head's scores, in order of position. */
#include "backend/cpu/attention_blocks.h"

#include <string.h>

typedef struct blocks_job {
    pi__cpu *cpu;
    const pi__batch *b;
    const pi__attention *a;
    const pi__kv_layer *kv;
    int32_t words;       /* 64-bit words of a bit mask of key blocks */
    int32_t tiles;       /* max tiles of means per KV head */
    int32_t seq;         /* index of the current sequence */
    int32_t n_keys;      /* number of key blocks up to the last query block of that sequence */
    int32_t first, n;    /* the query blocks of that sequence: index of the first run; number of runs */
    float *means;        /* [n_head_kv, tiles] tiles of 16 means, as keys of type F32 */
    /* per thread: packed queries [head_dim, max_rows]; scores [key blocks / 256, PI__ATTN_MAX_ROWS, PI__ATTN_S_STRIDE];
     * sums of scores [tiles * 16] */
    float *qt, *s, *sum;
    size_t n_qt, n_s;    /* floats of qt and of s per thread */
    uint64_t *bits;      /* [query blocks, n_head, words] key blocks that each query head selects */
    uint64_t *all;       /* [query blocks, n_head_kv, words] union of the selections of a KV head's query heads */
} blocks_job;

enum { CHUNK_TILES = PI__KV_SPLIT / PI__ATTN_TILE, KEY_TILES = PI__SPARSE_BLOCK / PI__ATTN_TILE };

static int32_t div_up(int32_t a, int32_t b) { return (a + b - 1) / b; }

static void lay_out(blocks_job *j, pi__arena *ar, int32_t n_keys, int32_t query_blocks, int32_t n_head,
                    int32_t n_head_kv, int32_t head_dim)
{
    const size_t threads = (size_t) pi__pool_size(j->cpu->pool), rows = (size_t) j->cpu->attn->max_rows;
    j->words = div_up(n_keys, 64);
    j->tiles = div_up(n_keys, PI__ATTN_TILE);
    j->n_qt = rows * (size_t) head_dim;
    j->n_s = (size_t) div_up(n_keys, PI__KV_SPLIT) * PI__ATTN_MAX_ROWS * PI__ATTN_S_STRIDE;
    j->means = pi__arena_take(ar, (size_t) (n_head_kv * j->tiles) * PI__ATTN_TILE * (size_t) head_dim * sizeof(float));
    j->qt = pi__arena_take(ar, threads * j->n_qt * sizeof(float));
    j->s = pi__arena_take(ar, threads * j->n_s * sizeof(float));
    j->sum = pi__arena_take(ar, threads * (size_t) j->tiles * PI__ATTN_TILE * sizeof(float));
    j->bits = pi__arena_take(ar, (size_t) query_blocks * (size_t) n_head * (size_t) j->words * sizeof(uint64_t));
    j->all = pi__arena_take(ar, (size_t) query_blocks * (size_t) n_head_kv * (size_t) j->words * sizeof(uint64_t));
}

size_t pi__cpu_take_scratch(const pi__cpu *cpu, const pi__limits *lim)
{
    blocks_job j = {.cpu = (pi__cpu *) cpu};
    pi__arena ar = {0};
    if (!lim->key_blocks) return 0;
    lay_out(&j, &ar, lim->key_blocks, lim->max_tokens / PI__SPARSE_BLOCK, lim->max_n_head, lim->sparse_heads,
            lim->max_head_dim);
    return ar.used;
}

/* ---------------------------------------------------------------------------------------------------------- means */

static size_t tile_floats(const blocks_job *j) { return PI__ATTN_TILE * (size_t) j->kv->head_dim; }
static float *means_of(const blocks_job *j, int32_t head)
{
    return j->means + (size_t) (head * j->tiles) * tile_floats(j);
}

/* mean [head_dim] = mean of the 128 keys of key block `key_block` of the current sequence, for one KV head. */
static void mean_of(const blocks_job *j, int32_t head, int32_t key_block, float *mean)
{
    const pi__kv_batch *kb = &j->b->kv[j->kv->group];
    const int32_t *table = kb->block_table + (size_t) j->seq * (size_t) kb->table_stride;
    const char *tile[KEY_TILES];
    for (int32_t i = 0; i < KEY_TILES; i++) {
        const int32_t pos = key_block * PI__SPARSE_BLOCK + i * PI__ATTN_TILE;
        tile[i] = pi__cpu_k_tile(j->kv, kb->block_size, table[pos / kb->block_size], pos % kb->block_size, head);
    }
    j->cpu->attn->mean(j->kv->type_k, j->kv->head_dim, tile, KEY_TILES, mean);
}

/* Job: computes j->means of the current sequence. A work unit is a tile of 16 means of one KV head; missing means are
 * 0. */
static void make_means(void *arg, int32_t ith, int32_t nth)
{
    (void) ith, (void) nth;
    const blocks_job *j = arg;
    const int32_t tiles = div_up(j->n_keys, PI__ATTN_TILE);
    float mean[PI__MAX_HEAD_DIM];
    for (int32_t u; (u = pi__pool_next(j->cpu->pool, j->kv->n_head_kv * tiles)) >= 0;) {
        const int32_t head = u / tiles, first = u % tiles * PI__ATTN_TILE;
        float *to = means_of(j, head) + (size_t) (u % tiles) * tile_floats(j);
        for (int32_t lane = 0; lane < PI__ATTN_TILE; lane++) {
            if (first + lane < j->n_keys) mean_of(j, head, first + lane, mean);
            else memset(mean, 0, sizeof mean);
            j->cpu->attn->store_k(PI__F32, (char *) to, lane, j->kv->head_dim, mean);
        }
    }
}

/* --------------------------------------------------------------------------------------------------------- scores */

/* sum[i] = score of key block i < n for query head `head`, summed over all queries of a run (a query block). */
static void rank_blocks(const blocks_job *j, int32_t run, int32_t head, int32_t n, int32_t ith, float *sum)
{
    const pi__cpu_attn_kernels *kn = j->cpu->attn;
    const pi__attention *a = j->a;
    const int32_t D = j->kv->head_dim, start = j->b->runs.start[run], end = j->b->runs.start[run + 1];
    const int64_t stride = a->q_stride ? a->q_stride : D;
    float *qt = j->qt + (size_t) ith * j->n_qt;
    pi__attn_rows w = {.head_dim = D, .n_dot = D, .softcap = a->softcap};
    memset(sum, 0, (size_t) div_up(n, PI__ATTN_TILE) * PI__ATTN_TILE * sizeof *sum);
    for (int32_t t = start; t < end; t += w.n) {
        w.n = end - t < kn->max_rows ? end - t : kn->max_rows;
        w.n_padded = kn->round_rows(w.n);
        for (int32_t r = 0; r < w.n; r++) w.q[r] = a->q + (t + r) * a->ldq + head * stride;
        kn->pack(&w, qt);
        kn->rank(&w, qt, means_of(j, head / (a->n_head / j->kv->n_head_kv)), n, j->s + (size_t) ith * j->n_s, sum);
    }
}

/* Sets the bits of the selected key blocks i < n: sinks, the last PI__SPARSE_WINDOW blocks, and blocks with score >=
 * sparsity * the largest score (see PI__SPARSE_BLOCK). */
static void choose(const float *score, int32_t n, float sparsity, uint64_t *bits)
{
    float most = 0;
    for (int32_t i = 0; i < n; i++) most = score[i] > most ? score[i] : most;
    for (int32_t i = 0; i < n; i++)
        if (i < PI__SPARSE_SINKS || n - i <= PI__SPARSE_WINDOW || score[i] >= sparsity * most)
            bits[i / 64] |= (uint64_t) 1 << i % 64;
}

/* Job: scores the key blocks and sets j->bits. A work unit is a query head of a query block. */
static void rank_and_choose(void *arg, int32_t ith, int32_t nth)
{
    (void) nth;
    const blocks_job *j = arg;
    const int32_t H = j->a->n_head;
    float *sum = j->sum + (size_t) ith * (size_t) j->tiles * PI__ATTN_TILE;
    for (int32_t u; (u = pi__pool_next(j->cpu->pool, j->n * H)) >= 0;) {
        const int32_t run = j->first + u / H, head = u % H, n = j->b->pos[j->b->runs.start[run]] / PI__SPARSE_BLOCK + 1;
        uint64_t *bits = j->bits + (size_t) (j->b->runs.block[run] * H + head) * (size_t) j->words;
        memset(bits, 0, (size_t) j->words * sizeof *bits);
        rank_blocks(j, run, head, n, ith, sum);
        choose(sum, n, j->a->sparsity, bits);
    }
}

/* -------------------------------------------------------------------------------------------------------- choices */

/* Sets j->all to the union of the selections of the query heads that share a KV head. Counts selected and possible key
 * blocks in the backend's statistics. */
static void join_heads(const blocks_job *j)
{
    const int32_t group = j->a->n_head / j->kv->n_head_kv;
    pi__backend *be = &j->cpu->be;
    for (int32_t run = j->first; run < j->first + j->n; run++) {
        const int32_t block = j->b->runs.block[run], n = j->b->pos[j->b->runs.start[run]] / PI__SPARSE_BLOCK + 1;
        for (int32_t kvh = 0; kvh < j->kv->n_head_kv; kvh++) {
            uint64_t *to = j->all + (size_t) (block * j->kv->n_head_kv + kvh) * (size_t) j->words;
            for (int32_t w = 0; w < j->words; w++) {
                to[w] = 0;
                for (int32_t h = kvh * group; h < (kvh + 1) * group; h++)
                    to[w] |= j->bits[(size_t) (block * j->a->n_head + h) * (size_t) j->words + (size_t) w];
                be->n_attended += (unsigned) __builtin_popcountll(to[w]);
            }
            be->n_possible += (unsigned) n;
        }
    }
}

/* Sets j->first, n and n_keys for the query blocks among runs first..end - 1 of a sequence. The query blocks are
 * adjacent runs. */
static void find_query_blocks(blocks_job *j, int32_t first, int32_t end)
{
    const pi__runs *r = &j->b->runs;
    j->n = 0;
    for (int32_t i = first; i < end; i++) {
        if (r->block[i] < 0) continue;
        if (!j->n++) j->first = i;
        j->n_keys = j->b->pos[r->start[i]] / PI__SPARSE_BLOCK + 1;
    }
}

/* Returns the largest number of key blocks up to the end of a query block of the step. */
static int32_t most_keys(const pi__batch *b)
{
    int32_t most = 0;
    for (int32_t i = 0; i < b->runs.n; i++) {
        const int32_t n = b->runs.block[i] < 0 ? 0 : b->pos[b->runs.start[i]] / PI__SPARSE_BLOCK + 1;
        most = n > most ? n : most;
    }
    return most;
}

void pi__cpu_take_blocks(pi__cpu *cpu, const pi__batch *b, const pi__attention *a, pi__arena *ar, pi__taken *out)
{
    blocks_job j = {.cpu = cpu, .b = b, .a = a, .kv = a->kv};
    lay_out(&j, ar, most_keys(b), b->runs.n_blocks, a->n_head, a->kv->n_head_kv, a->kv->head_dim);
    for (int32_t first = 0, end; first < b->runs.n; first = end) {
        j.seq = b->runs.seq[first];
        for (end = first + 1; end < b->runs.n && b->runs.seq[end] == j.seq;) end++;
        find_query_blocks(&j, first, end);
        if (!j.n) continue;
        pi__pool_run(cpu->pool, make_means, &j);
        pi__pool_run(cpu->pool, rank_and_choose, &j);
        join_heads(&j);
    }
    *out = (pi__taken) {j.all, a->kv->n_head_kv, j.words};
}
