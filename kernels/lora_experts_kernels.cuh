/* LoRA of routed experts: lora_kernels.cuh for pairs of a row and one of its experts. pi__k_lora_experts has the
 * arguments.
 *
 * A thread block has one pair; its results are a column of moe_kernels.cuh. Rows that share an adapter seldom share an
 * expert, so blocks do not combine rows.
 *
 *     lora_experts_shrink  block (group, pair of it, matrix):           t[pair][r] = A[expert][r] . in
 *                                                                       a warp has every eighth r
 *     lora_experts_expand  block (group, columns, pair of it, matrix):  y[column][o] += scale * factor * sum over r of
 *                                                                       B[expert][o][r] t[pair][r]
 *
 * Sums have the order of lora_kernels.cuh. */
#ifndef PI_LORA_EXPERTS_KERNELS_CUH
#define PI_LORA_EXPERTS_KERNELS_CUH

#include "lora_kernels.cuh"

namespace lora {

/* Pair i of a group: row i / n_used of the group, and the expert of rank i % n_used. */
struct lora_pair_at {
    int32_t row, pair, expert; /* row of the op; row * n_used + rank; expert id */
    bool there;                /* the group has this row, and the op includes it */
};

PI_FN lora_pair_at lora_pair_of(const pi__k_lora_experts &a, const pi__k_lora_group &g, int i)
{
    const int j = i / a.n_used;
    const int32_t row = j < g.n ? a.row[g.first + j] - a.row0 : -1;
    if (row < 0 || row >= a.n_rows) return {0, 0, 0, false};
    const int32_t pair = row * a.n_used + i % a.n_used;
    return {row, pair, a.id[pair], true};
}

/* t = A in. Grid: x = group, y = pair of the group, z = matrix. */
__global__ void __launch_bounds__(LORA_THREADS) lora_experts_shrink(PI_CONSTANT pi__k_lora_experts a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    float *tile = (float *) raw, *scratch = tile + LORA_TILE;
    const pi__k_lora_group g = a.group[blockIdx.x];
    if (!g.n) return;
    const pi__lora_pair p = g.pair[a.lin[blockIdx.z].target];
    const lora_pair_at at = lora_pair_of(a, g, (int) blockIdx.y);
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    if (!p.rank || !at.there) return;
    const void *a_of = lora_at(g.pair, p.a);
    const int64_t a_first = (int64_t) at.expert * p.rank * p.lda;
    const input_row row = open_row(a.in, a.by_column ? a.column[at.pair] : at.row, a.n_in, true, scratch);
    for (int32_t r0 = 0; r0 < p.rank; r0 += LORA_WARPS * LORA_RANKS) {
        float sum[LORA_RANKS] = {};
        for (int64_t first = 0; first < a.n_in; first += LORA_TILE) {
            __syncthreads();
            for (int i = (int) threadIdx.x; i < LORA_TILE; i += LORA_THREADS)
                tile[i] = first + i < a.n_in ? row.at(first + i) : 0.0f;
            __syncthreads();
            for (int k = 0; k < LORA_RANKS; k++) {
                const int32_t r = r0 + warp + k * LORA_WARPS;
                if (r >= p.rank) continue;
                for (int i = lane; i < LORA_TILE && first + i < a.n_in; i += 32)
                    sum[k] = fmaf(lora_value(p.type, a_of, a_first + r * p.lda + first + i), tile[i], sum[k]);
            }
        }
        for (int k = 0; k < LORA_RANKS; k++) {
            const int32_t r = r0 + warp + k * LORA_WARPS;
            const float all = warp_sum(sum[k]);
            if (!lane && r < p.rank) a.t[(int64_t) at.pair * a.ldt + a.lin[blockIdx.z].at + r] = all;
        }
    }
}

/* y += scale * factor * B t. Grid: x = group, y = LORA_THREADS columns of y, z = pair of the group * n_lin + matrix. */
__global__ void __launch_bounds__(LORA_THREADS) lora_experts_expand(PI_CONSTANT pi__k_lora_experts a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    float *t = (float *) raw; /* A in of the pair, [rank] */
    const int l = (int) blockIdx.z % a.n_lin, first = a.lin[l].first;
    const pi__k_lora_group g = a.group[blockIdx.x];
    if (!g.n) return;
    const pi__lora_pair p = g.pair[a.lin[l].target];
    const lora_pair_at at = lora_pair_of(a, g, (int) blockIdx.z / a.n_lin);
    const int64_t i = (int64_t) blockIdx.y * LORA_THREADS + threadIdx.x, o = first + i;
    if (!p.rank || !at.there) return;
    for (int r = (int) threadIdx.x; r < p.rank; r += LORA_THREADS)
        t[r] = a.t[(int64_t) at.pair * a.ldt + a.lin[l].at + r];
    __syncthreads();
    if (i >= a.lin[l].n_out) return;
    const void *b_of = lora_at(g.pair, p.b);
    const int64_t b_first = (int64_t) at.expert * p.rank * p.ldb + o / PI__LORA_TILE * p.rank * PI__LORA_TILE +
                            o % PI__LORA_TILE;
    float sum = 0;
    for (int32_t r = 0; r < p.rank; r++) sum = fmaf(lora_value(p.type, b_of, b_first + r * PI__LORA_TILE), t[r], sum);
    float *y = a.lin[l].y + a.column[at.pair] * a.lin[l].ldy + i;
    *y = fmaf(g.scale * p.factor * (a.lin[l].scale ? a.lin[l].scale[at.expert] : 1.0f), sum, *y);
}

} /* namespace lora */

#endif
