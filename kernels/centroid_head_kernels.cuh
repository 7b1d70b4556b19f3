/* Centroid lm_heads, of which only some clusters of rows are multiplied: the choice of clusters, and the scatter of
 * their logits. The products are those of experts (moe_kernels.cuh): a pair, a row of x and one of its clusters, is a
 * tile of one column, for rows seldom agree.
 *
 *     scores [2048]   rank of each: how many are better?       many blocks a row, no order, nothing to wait for
 *     pick   [32]     those whose rank is below n_pick
 *     some   [32, n]  by moe_kernels.cuh
 *     logits [V]      the least of some, minus 1; then some, at their tokens' indices
 *
 * A block of the last kernel owns a part of the vocabulary, and looks at all of some for what belongs there: so no block
 * waits for what another fills. */
#ifndef PI_CENTROID_HEAD_KERNELS_CUH
#define PI_CENTROID_HEAD_KERNELS_CUH

#include "backend/cuda/kernels.h"
#include "ptx.cuh"
#include "warp.cuh"

enum {
    THREADS = 256, WARPS = THREADS / 32,
    CHUNK = 2048, /* scores that a block of pick_centroids has in shared memory at a time */
    BLOCK_LOGITS = 8192,  /* logits of a block of scatter_logits */
};

/* true: score j, of rank v, is better than score i, of rank own: of equal ones the lower index is. */
PI_FN int is_better(uint32_t v, int32_t j, uint32_t own, int32_t i) { return v > own || (v == own && j < i); }

/* A block: 32 clusters of a row, a lane each. The warps share out the scores that they are compared with. */
__global__ void __launch_bounds__(THREADS) pick_centroids(pi__k_centroids a, int32_t *row, pi__k_tile *tile, int32_t *n_tile)
{
    ptx_take_turn();
    PI_SMEM(raw);
    uint32_t *rank = (uint32_t *) raw;           /* [CHUNK] */
    int32_t *above = (int32_t *) (rank + CHUNK); /* [WARPS][32] */
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    const int32_t r = (int32_t) blockIdx.y, i = (int32_t) blockIdx.x * 32 + lane, n = a.n_mat;
    const float *score = a.scores + (int64_t) r * n;
    const uint32_t own = i < n ? rank_of(score[i]) : 0;
    int32_t better = 0;
    for (int32_t first = 0; first < n; first += CHUNK) {
        const int32_t many = min((int32_t) CHUNK, (n - first + 31) / 32 * 32), share = many / WARPS;
        __syncthreads();
        for (int32_t k = (int32_t) threadIdx.x; k < many; k += THREADS)
            rank[k] = first + k < n ? rank_of(score[first + k]) : 0; /* behind the last: better than none */
        __syncthreads();
        for (int32_t k = warp * share; k < (warp + 1) * share; k += 4) {
            const uint4 v = *(const uint4 *) (rank + k);
            better += is_better(v.x, first + k, own, i) + is_better(v.y, first + k + 1, own, i) +
                      is_better(v.z, first + k + 2, own, i) + is_better(v.w, first + k + 3, own, i);
        }
    }
    above[warp * 32 + lane] = better;
    __syncthreads();
    if (blockIdx.x == 0 && r == 0 && threadIdx.x < 3) n_tile[threadIdx.x] = threadIdx.x ? 0 : a.n_rows * a.n_pick;
    if (warp || i >= n) return;
    for (int k = 1; k < WARPS; k++) better += above[k * 32 + lane];
    if (better >= a.n_pick) return;
    const int32_t p = r * a.n_pick + better;
    a.pick[p] = i;
    row[p] = r;
    tile[p] = {i, p, 1};
}

PI_FN float less_of(float a, float b) { return b < a ? b : a; }

/* Over the block's threads, which all begin with the same value: where that is NaN, so is the result. */
PI_FN float block_least(float v, float *scratch)
{
    for (int o = 16; o; o >>= 1) v = less_of(v, __shfl_xor_sync(PI_FULL, v, o));
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    for (int i = 0; i < WARPS; i++) v = less_of(v, scratch[i]);
    return v;
}

__global__ void __launch_bounds__(THREADS) scatter_logits(pi__k_centroids a)
{
    ptx_take_turn();
    PI_SMEM(raw);
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    const int64_t r = blockIdx.y, n_some = a.n_pick * a.n, n_vocab = a.n_mat * a.n;
    const int64_t lo = (int64_t) blockIdx.x * BLOCK_LOGITS, hi = min(lo + (int64_t) BLOCK_LOGITS, n_vocab);
    const float *some = a.some + r * n_some;
    const int32_t *pick = a.pick + r * a.n_pick;
    float *logits = a.logits + r * n_vocab, least = some[0];
    for (int64_t i = threadIdx.x; i < n_some; i += THREADS) least = less_of(least, some[i]);
    least = block_least(least, (float *) raw) - 1.0f;
    for (int64_t i = lo + threadIdx.x; i < hi; i += THREADS) logits[i] = least;
    __syncthreads();
    for (int32_t p = warp; p < a.n_pick; p += WARPS) {
        const int32_t *order = a.order + pick[p] * a.n;
        for (int64_t i = lane; i < a.n; i += 32)
            if (order[i] >= lo && order[i] < hi) logits[order[i]] = some[p * a.n + i];
    }
}

#endif
