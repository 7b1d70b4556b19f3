/* Sparse prefill: chooses the key blocks that the query blocks of a sequence attend to. The rule and the scores are
 * defined at PI__SPARSE_BLOCK in kernel_args.h. A key block and a query block have 128 tokens each. Three kernels run
 * in order:
 *
 *     mean_keys()    a thread block per key block and KV head: the mean of its 128 keys, of any cache type, as F16.
 *                    Means past the last key block, up to a full tile, are zeros
 *     rank_keys()    a thread block per query block and head: scores. 8 warps have 16 queries each in registers. They
 *                    walk the means twice, a tile at a time in shared memory: for each row's maximum, then for the sums
 *     choose_keys()  a warp per query block and KV head: the bits that attention() (attention_kernels.cuh) walks
 *
 *     scratch        [ means: n_head_kv x n_means x D, F16 ][ scores: query blocks x n_head x n_means, F32 ]
 *
 * Means and queries are rounded to F16. So this backend and the CPU backend may differ in key blocks with a score
 * within some thousandths of the threshold. The means are computed again for each layer and step. This reads the keys
 * once more per step, but the cache needs no extra data, which a prefix from another source would lack. The order of
 * sums is fixed: a query block's choice is batch-invariant. */
#ifndef PI_KEY_BLOCKS_KERNELS_CUH
#define PI_KEY_BLOCKS_KERNELS_CUH

#include "attention_scores.cuh"

namespace attention {

enum {
    MEAN_THREADS = 128,
    MEAN_BYTES = MEAN_THREADS * 8 * 4, /* shared memory of mean_keys() */
    MEANS_ALIGN = 64,                  /* largest tile of means; n_means is a multiple of it */
};

/* Arguments of mean_keys(), rank_keys() and choose_keys(). */
struct blocks_job {
    pi__k_blocks a;
    int32_t n_means; /* means per KV head, key blocks rounded up to full tiles */
    int32_t dim;     /* values per mean: head size D of the attention kernels */
};

/* Returns the address of the mean key of key block n of KV head `head`: dim F16 values in scratch. */
PI_FN uint16_t *mean_at(const blocks_job &j, int32_t head, int32_t n)
{
    return (uint16_t *) j.a.scratch + ((size_t) head * (size_t) j.n_means + (size_t) n) * (size_t) j.dim;
}
/* Returns the address of the scores of query block i and query head `head`. [n_means] */
PI_FN float *scores_of(const blocks_job &j, int32_t i, int32_t head)
{
    float *all = (float *) mean_at(j, j.a.a.cache.n_head_kv, 0);
    return all + ((size_t) i * (size_t) j.a.a.n_head + (size_t) head) * (size_t) j.n_means;
}
/* Returns the number of key blocks that query block i may attend to, its own included. */
PI_FN int32_t seen_by(const blocks_job &j, int32_t i) { return j.a.first_key + i + 1; }

/* Loads values 8 c .. 8 c + 7 of a token's key, of any cache type. */
PI_FN void key8(const pi__k_cache &cache, const cache_row &row, int32_t c, float (&f)[8])
{
    switch (cache.type_k) {
#define ROW(t, ...) case PI__##t: get8<PI__##t>(row, c, f); break;
        PI__CACHE_TYPES(ROW)
#undef ROW
    default: break;
    }
}

/* Computes the mean of a key block's keys. Thread (r, c) adds values 8 c .. 8 c + 7 of keys r, r + rows ..; then the
 * partial sums of a column are added in order of r. Grid: x = key block, y = KV head. */
static __global__ void __launch_bounds__(MEAN_THREADS) mean_keys(blocks_job j)
{
    ptx_wait_dependency();
    PI_SMEM(shared);
    const pi__k_attn &a = j.a.a;
    const int32_t block = (int32_t) blockIdx.x, head = (int32_t) blockIdx.y, cols = j.dim / 8,
                  rows = MEAN_THREADS / cols;
    const int32_t c = (int32_t) threadIdx.x % cols, r = (int32_t) threadIdx.x / cols;
    const bool there = block < seen_by(j, j.a.n - 1) && 8 * c < a.cache.head_dim && r < rows;
    const cache_plane plane = plane_of(a.cache, false, head);
    const int32_t *table = a.block_table + (size_t) j.a.seq * (size_t) a.table_stride;
    const int32_t shift = block_shift(a.cache.block_size), first = block * PI__SPARSE_BLOCK;
    float *parts = (float *) shared; /* [rows, cols, 8] partial sums */
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int32_t k = r; there && k < PI__SPARSE_BLOCK; k += rows) {
        float f[8] = {};
        key8(a.cache, cache_token(plane, table[(first + k) >> shift], (first + k) & (a.cache.block_size - 1)), c, f);
#pragma unroll
        for (int i = 0; i < 8; i++) sum[i] += f[i];
    }
    if (r < rows) {
#pragma unroll
        for (int i = 0; i < 8; i++) parts[(r * cols + c) * 8 + i] = sum[i];
    }
    __syncthreads();
    for (int32_t i = (int32_t) threadIdx.x; i < j.dim; i += MEAN_THREADS) {
        float all = 0;
        for (int32_t k = 0; k < rows; k++) all += parts[k * j.dim + i];
        mean_at(j, head, block)[i] = ptx_half(clean(all / PI__SPARSE_BLOCK));
    }
}

/* Loads a tile of S::TILE means into shared memory, in the layout of attention's K tiles. */
template <class S> PI_FN void load_means(const uint16_t *from, unsigned char *to)
{
    for (int i = (int) threadIdx.x; i < S::TILE * S::COLS; i += S::THREADS) {
        const int r = i / S::COLS, c = i % S::COLS;
        *(uint4 *) (to + r * S::D * 2 + 16 * swizzled<S>(r, c)) = ((const uint4 *) from)[i];
    }
}

/* Computes s = q . mean for the warp's 16 queries and the means of tile t. head: query head. n: key blocks that the
 * query block may attend to; later means get -inf. All threads of the block call it. */
template <class S>
PI_FN void tile_scores(const blocks_job &j, const queries<S> &q, int32_t head, int32_t t, int32_t n,
                       unsigned char *tile, float (&s)[S::TILE / 8][4])
{
    const int lane = (int) threadIdx.x % 32;
    __syncthreads(); /* all warps have read the previous tile */
    load_means<S>(mean_at(j, head / (j.a.a.n_head / j.a.a.cache.n_head_kv), t * S::TILE), tile);
    __syncthreads();
    scores(q, ptx_shared(tile), s);
#pragma unroll
    for (int i = 0; i < S::TILE / 2; i++) {
        float &x = s[i / 4][i % 4];
        if (j.a.a.softcap != 0) x = capped(x, j.a.a.softcap);
        if (t * S::TILE + lane % 4 * 2 + i / 4 * 8 + i % 2 >= n) x = PI_MINUS_INF;
    }
}

/* Shape of rank_keys(). A dot product is summed from two parts, fewer than in attention: registers suffice for Q and
 * little more. */
template <int D> struct rank_shape : shape<D, PI__SPARSE_BLOCK / 16, 1, FAST, COPIED> {
    static constexpr int PARTS = 2;
};
template <class S> static constexpr size_t RANK_BYTES = S::TILE * S::D * 2 + S::GROUPS * S::TILE * 4;

/* Computes the scores of all key blocks for a query block and a head. Grid: x = query block, y = query head. Shared
 * memory: RANK_BYTES. */
template <class S> __global__ void __launch_bounds__(S::THREADS, 1) rank_keys(blocks_job j)
{
    ptx_wait_dependency();
    PI_SMEM(shared);
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    const int32_t block = (int32_t) blockIdx.x, head = (int32_t) blockIdx.y, n = seen_by(j, block),
                  tiles = (n + S::TILE - 1) / S::TILE;
    float *parts = (float *) (shared + S::TILE * S::D * 2); /* [warps, TILE] sums over the rows of a warp */
    queries<S> q;
    load_q(j.a.a, work{j.a.seq, head, 0, S::R, j.a.first_token + block * PI__SPARSE_BLOCK, 1, 0, 0}, q);
    /* First walk: the maximum of each query row over all key blocks. */
    float top[2] = {PI_MINUS_INF, PI_MINUS_INF}, s[S::TILE / 8][4];
    for (int32_t t = 0; t < tiles; t++) {
        tile_scores<S>(j, q, head, t, n, shared, s);
#pragma unroll
        for (int i = 0; i < S::TILE / 2; i++) top[i % 4 / 2] = fmaxf(top[i % 4 / 2], s[i / 4][i % 4]);
    }
    for (int r = 0; r < 2; r++)
        for (int o = 1; o < 4; o *= 2) top[r] = fmaxf(top[r], __shfl_xor_sync(PI_FULL, top[r], o));
    /* Second walk: sums of exp(score - maximum) over the query block's rows. */
    for (int32_t t = 0; t < tiles; t++) {
        tile_scores<S>(j, q, head, t, n, shared, s);
#pragma unroll
        for (int i = 0; i < S::TILE / 4; i++) { /* the lane's two rows of a column, then the other lanes' rows */
            float x = ptx_exp2((s[i / 2][i % 2] - top[0]) * LOG2E) + ptx_exp2((s[i / 2][i % 2 + 2] - top[1]) * LOG2E);
            for (int o = 4; o < 32; o *= 2) x += __shfl_xor_sync(PI_FULL, x, o);
            if (lane < 4) parts[warp * S::TILE + lane * 2 + i / 2 * 8 + i % 2] = x;
        }
        __syncthreads();
        if ((int) threadIdx.x >= S::TILE) continue;
        float sum = 0;
        for (int w = 0; w < S::GROUPS; w++) sum += parts[w * S::TILE + (int) threadIdx.x];
        scores_of(j, block, head)[t * S::TILE + (int) threadIdx.x] = sum;
    }
}

/* Chooses key blocks for a query block and KV head. It always chooses the first PI__SPARSE_SINKS and the last
 * PI__SPARSE_WINDOW blocks. It also chooses each block with a score of at least `sparsity` times the best score, for
 * any query head of the KV head. Writes one bit per key block to `taken`, and adds to `counts`. Grid: x = query block,
 * y = KV head; one warp. */
static __global__ void __launch_bounds__(32) choose_keys(blocks_job j)
{
    ptx_wait_dependency();
    const int32_t lane = (int32_t) threadIdx.x, block = (int32_t) blockIdx.x, kv_head = (int32_t) blockIdx.y,
                  n = seen_by(j, block);
    const int32_t group = j.a.a.n_head / j.a.a.cache.n_head_kv, words = j.a.a.taken_words;
    uint32_t *taken = j.a.taken +
                      ((size_t) (j.a.first_block + block) * (size_t) j.a.a.cache.n_head_kv + (size_t) kv_head) *
                          (size_t) words;
    for (int32_t h = 0; h < group; h++) {
        const float *score = scores_of(j, block, kv_head * group + h);
        float most = 0;
        for (int32_t i = lane; i < n; i += 32) most = fmaxf(most, score[i]);
        most = warp_max(most) * j.a.sparsity;
        for (int32_t w = 0; w < words; w++) {
            const int32_t i = 32 * w + lane;
            const bool always = i < PI__SPARSE_SINKS || n - i <= PI__SPARSE_WINDOW;
            const uint32_t bits = __ballot_sync(PI_FULL, i < n && (always || score[i] >= most));
            if (lane == 0) taken[w] = h ? taken[w] | bits : bits;
        }
    }
    if (lane != 0 || !j.a.counts) return;
    unsigned long long sum = 0;
    for (int32_t w = 0; w < words; w++) sum += (unsigned) __popc(taken[w]);
    atomicAdd(&j.a.counts[0], sum);
    atomicAdd(&j.a.counts[1], (unsigned long long) n);
}

} /* namespace attention */

#endif
