/* Centroid lm_heads (pi__centroid_head of ops.h): the vocabulary rows are grouped into clusters, and only the rows of
 * the best clusters are multiplied. pick_centroids() chooses the clusters of each row by their centroids' scores.
 * scatter_logits() writes their logits to the tokens' places. Between both, moe_kernels.cuh multiplies, with clusters
 * as experts. Each pair of a row of x and one of its clusters is a tile of one column, since rows seldom choose the
 * same cluster. Per row of x, with for example 2048 clusters of n tokens and n_pick = 32:
 *
 *     scores [2048]   rank of each = number of better scores; many blocks per row, no order, no waiting
 *     pick   [32]     the clusters with a rank below n_pick
 *     some   [32, n]  logits of the picked clusters, by moe_kernels.cuh
 *     logits [V]      filled with min(some) - 1; then `some` at the indices of their tokens
 *
 * A block of scatter_logits() owns a range of the vocabulary. It scans all of `some` for logits in that range, so that
 * no block waits for another block's fill. */
#ifndef PI_CENTROID_HEAD_KERNELS_CUH
#define PI_CENTROID_HEAD_KERNELS_CUH

#include "backend/cuda/kernels.h"
#include "ptx.cuh"
#include "warp.cuh"

namespace centroid_head {

enum {
    THREADS = 256, WARPS = THREADS / 32,
    CHUNK = 2048, /* scores that a block of pick_centroids holds in shared memory at a time */
    BLOCK_LOGITS = 8192,  /* logits per block of scatter_logits */
};

/* Returns 1 if score j is better than score i, else 0. v, own: rank_of() of scores j and i, which orders like the
 * scores. Of equal scores the one with the lower index is better. */
PI_FN int is_better(uint32_t v, int32_t j, uint32_t own, int32_t i) { return v > own || (v == own && j < i); }

/* Writes each row's n_pick best clusters to a.pick [n_rows][n_pick], best first. Also writes the routes of the experts'
 * product: row[p] and tile[p] per pair p = row * n_pick + rank, and the lengths n_tile[3] of the lists. Grid: x = 32
 * clusters, one per lane; y = row. Each of the 8 warps compares the block's 32 scores with a slice of all scores. */
__global__ void __launch_bounds__(THREADS)
    pick_centroids(pi__k_centroids a, int32_t *row, pi__k_tile *tile, int32_t *n_tile)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    uint32_t *rank = (uint32_t *) raw;           /* [CHUNK] rank_of() of scores */
    int32_t *above = (int32_t *) (rank + CHUNK); /* [WARPS][32] each warp's counts */
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    const int32_t r = (int32_t) blockIdx.y, i = (int32_t) blockIdx.x * 32 + lane, n = a.n_mat;
    const float *score = a.scores + (int64_t) r * n;
    const uint32_t own = i < n ? rank_of(score[i]) : 0;
    int32_t better = 0;
    /* Count the scores that are better than the lane's, a chunk of scores at a time; each warp compares with its
     * slice. */
    for (int32_t first = 0; first < n; first += CHUNK) {
        const int32_t many = min((int32_t) CHUNK, (n - first + 31) / 32 * 32), share = many / WARPS;
        __syncthreads();
        for (int32_t k = (int32_t) threadIdx.x; k < many; k += THREADS)
            rank[k] = first + k < n ? rank_of(score[first + k]) : 0; /* past the end: 0, never better */
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
    /* Warp 0: add the warps' counts. A cluster with fewer than n_pick better ones is picked; the count is its rank. */
    for (int k = 1; k < WARPS; k++) better += above[k * 32 + lane];
    if (better >= a.n_pick) return;
    const int32_t p = r * a.n_pick + better;
    a.pick[p] = i;
    row[p] = r;
    tile[p] = {i, p, 1};
}

/* Returns b if b < a, else a: a NaN in b is skipped, a NaN in a remains. */
PI_FN float less_of(float a, float b) { return b < a ? b : a; }

/* Returns the minimum of v over the block's threads. NaN is skipped, unless all threads have NaN. That is the case if
 * some[0], with which each thread starts, is NaN. scratch: one float per warp. */
PI_FN float block_least(float v, float *scratch)
{
    for (int o = 16; o; o >>= 1) v = less_of(v, __shfl_xor_sync(PI_FULL, v, o));
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    for (int i = 0; i < WARPS; i++) v = less_of(v, scratch[i]);
    return v;
}

/* Writes a row's logits [n_mat * n] from the picked clusters' logits a.some. Grid: x = BLOCK_LOGITS logits; y = row. */
__global__ void __launch_bounds__(THREADS) scatter_logits(pi__k_centroids a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    const int64_t r = blockIdx.y, n_some = a.n_pick * a.n, n_vocab = a.n_mat * a.n;
    const int64_t lo = (int64_t) blockIdx.x * BLOCK_LOGITS, hi = min(lo + (int64_t) BLOCK_LOGITS, n_vocab);
    const float *some = a.some + r * n_some;
    const int32_t *pick = a.pick + r * a.n_pick;
    float *logits = a.logits + r * n_vocab, least = some[0];
    /* Fill: all logits of the block's range become the minimum of the computed logits, minus 1. */
    for (int64_t i = threadIdx.x; i < n_some; i += THREADS) least = less_of(least, some[i]);
    least = block_least(least, (float *) raw) - 1.0f;
    for (int64_t i = lo + threadIdx.x; i < hi; i += THREADS) logits[i] = least;
    __syncthreads();
    /* Scatter: each warp scans some of the picked clusters for tokens (`order`) in the block's range lo .. hi - 1. */
    for (int32_t p = warp; p < a.n_pick; p += WARPS) {
        const int32_t *order = a.order + pick[p] * a.n;
        for (int64_t i = lane; i < a.n; i += 32)
            if (order[i] >= lo && order[i] < hi) logits[order[i]] = some[p * a.n + i];
    }
}

} /* namespace centroid_head */

#endif
