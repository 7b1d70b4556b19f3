/* LoRA of per-head matrices: lora_kernels.cuh for each head's part of the rows. pi__k_lora_heads has the arguments.
 *
 * These matrices are small, so one thread block computes everything for a group (up to four rows with one adapter) and
 * a head, from A to y:
 *
 *     lora_heads   block (group, head):   t[row][r] = A[head][r] . x[row][head]; a warp has every eighth r
 *                                         y[row][head][o] += scale * factor * sum over r of B[head][o][r] t[row][r]
 *
 * Sums have the order of lora_kernels.cuh. */
#ifndef PI_LORA_HEADS_KERNELS_CUH
#define PI_LORA_HEADS_KERNELS_CUH

#include "lora.cuh"

namespace lora {

/* Loads head `head` of the group's rows to shared memory x [PI__K_LORA_ROWS][n_in]. Missing rows are zeros. */
PI_FN void load_heads(const pi__k_lora_heads &a, const pi__k_lora_group &g, int64_t head, float *x)
{
    for (int i = (int) threadIdx.x; i < a.n_in; i += LORA_THREADS)
        for (int j = 0; j < PI__K_LORA_ROWS; j++)
            x[j * a.n_in + i] = j < g.n ? a.x[a.row[g.first + j] * a.ldx + head * a.x_step + i] : 0.0f;
}

__global__ void __launch_bounds__(LORA_THREADS, 4) lora_heads(PI_CONSTANT pi__k_lora_heads a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    float *x = (float *) raw, *t = x + PI__K_LORA_ROWS * a.n_in; /* t = A x: [rank][PI__K_LORA_ROWS] */
    const pi__k_lora_group g = a.group[blockIdx.x];
    if (!g.n) return;
    const pi__lora_pair p = g.pair[a.target];
    const int64_t head = blockIdx.y;
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    if (!p.rank) return;
    load_heads(a, g, head, x);
    __syncthreads();
    /* t = A x, one r per warp at a time. */
    for (int32_t r = warp; r < p.rank; r += LORA_WARPS) {
        float sum[PI__K_LORA_ROWS] = {};
        for (int i = lane; i < a.n_in; i += 32) {
            const float w = lora_value(p.type, lora_at(g.pair, p.a), (head * p.rank + r) * p.lda + i);
            for (int j = 0; j < PI__K_LORA_ROWS; j++) sum[j] = fmaf(w, x[j * a.n_in + i], sum[j]);
        }
        for (int j = 0; j < PI__K_LORA_ROWS; j++) {
            const float all = warp_sum(sum[j]);
            if (!lane) t[r * PI__K_LORA_ROWS + j] = all;
        }
    }
    __syncthreads();
    /* y += scale * factor * B t, one column o per thread at a time. */
    for (int64_t o = threadIdx.x; o < a.n_out; o += LORA_THREADS) {
        const int64_t first = head * p.rank * p.ldb + o / PI__LORA_TILE * p.rank * PI__LORA_TILE + o % PI__LORA_TILE;
        float sum[PI__K_LORA_ROWS] = {};
        for (int32_t r = 0; r < p.rank; r++) {
            const float w = lora_value(p.type, lora_at(g.pair, p.b), first + r * PI__LORA_TILE);
            for (int j = 0; j < PI__K_LORA_ROWS; j++) sum[j] = fmaf(w, t[r * PI__K_LORA_ROWS + j], sum[j]);
        }
        for (int j = 0; j < PI__K_LORA_ROWS; j++) {
            if (j >= g.n) continue;
            float *y = a.y + a.row[g.first + j] * a.ldy + head * a.y_step + o;
            *y = fmaf(g.scale * p.factor, sum[j], *y);
        }
    }
}

} /* namespace lora */

#endif
