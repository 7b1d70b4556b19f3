/* Heads' own matrices times few rows (op head_linear, which ops.h defines), of the types that w16.cuh has, in two launches:
 *
 *     heads_prepare  a block of threads a row and a head: the head's part of the row, prepared as w16.cuh says, as row
 *                    head * n_rows + row; and what is copied behind the head's results
 *                    Or, where they are queries of latent attention, what op mla_qkv makes of these values, and of the token's row
 *     heads_w16      the products as moe_w16_kernels.cuh has those of experts of which each has all rows. So nothing need be
 *                    listed or sorted, and results go to where the rows have them. It may have a tail (tail.cuh)
 *
 * With many rows the products are experts' own kernels, to the same bits, whose tiles head_linear_kernels.cuh lists. */
#ifndef PI_HEADS_KERNELS_CUH
#define PI_HEADS_KERNELS_CUH

#include "backend/cuda/kernels_heads.h"
#include "mla.cuh"
#include "moe_w16.cuh"
#include "tail.cuh"

/* A launch: of w16_experts what is read of any, without tiles. */
struct w16_heads : w16_experts {
    int32_t n_rows, n_head;
    pi__k_tail tail;
};

/* A head has one tile, of all rows. */
PI_FN w16_item item_of(const w16_heads &p, uint32_t i)
{
    const int32_t head = (int32_t) (i / p.n_item);
    return {{head, head * p.n_rows, p.n_rows}, (int32_t) (i % p.n_item)};
}

/* What lies behind a head's part of a row, as it is, or as queries that are scaled and rotated (mla.cuh). */
PI_FN void put_behind(const pi__k_heads &a, int64_t r, const float *x, float *y)
{
    const int32_t thread = (int32_t) threadIdx.x, threads = (int32_t) blockDim.x, half = a.n_tail / 2;
    const float *table = a.prep.a.rope + r * a.n_tail;
    for (int32_t i = thread; i < a.n_tail && !a.prep.n_tokens; i += threads) y[i] = x[i];
    for (int32_t i = thread; i < half && a.prep.n_tokens; i += threads) {
        float u = x[2 * i] * a.prep.a.q_scale, v = x[2 * i + 1] * a.prep.a.q_scale;
        rotate_pair(u, v, table[i], table[half + i]);
        y[2 * i] = u, y[2 * i + 1] = v;
    }
}

/* blockIdx.y behind the last head: the token's row. */
template <bool BF16>
__global__ void __launch_bounds__(THREADS) heads_prepare(PI_CONSTANT pi__k_heads a, uint16_t *words, float *factor)
{
    ptx_take_turn();
    PI_SMEM(raw);
    const int64_t r = blockIdx.x, h = blockIdx.y, n_in = a.w.n_in;
    const float *x = a.x + r * a.ldx + h * a.x_step;
    if (h == a.n_head) {
        if (threadIdx.x < 32) make_row(a.prep, (int32_t) r, a.n_head, (float *) raw, (int) threadIdx.x);
        return;
    }
    put_halves({x, nullptr, nullptr, PI__IN_PLAIN, 1.0f, 0.0f}, h * a.n_rows + r, n_in, true, BF16, {0, 1}, words, factor, (float *) raw);
    put_behind(a, r, x + n_in, a.y + r * a.ldy + h * a.y_step + a.w.n_out);
}

/* Blocks share the items, heads times parts of their rows of W, evenly. */
template <int TYPE, int NT> __global__ void __launch_bounds__(THREADS, NT == 1 ? 2 : 1) heads_w16(PI_CONSTANT w16_heads p)
{
    ptx_take_turn();
    PI_SMEM(raw);
    const uint64_t n = (uint64_t) p.n_item * (uint64_t) p.n_head;
    const uint32_t first = (uint32_t) (n * blockIdx.x / gridDim.x), end = (uint32_t) (n * (blockIdx.x + 1) / gridDim.x);
    float *part = (float *) raw;
    using S = expert_stream<TYPE, NT, false, w16_heads>;
    few_items<S, TYPE, NT, false>(p, first, end, raw + sums_bytes<NT>, [&](const w16_item &i, const float (&acc)[FEW_TILES][NT][4]) {
        const expert_times<TYPE, false> times(p, i.t, p.a.w.scale);
#pragma unroll
        for (int r = 0; r < FEW_TILES; r++) {
            const int64_t o = (i.part * FEW_TILES + r) * 16;
            __syncthreads(); /* all are done with what is there */
            put_sums(acc[r], part, times, results_of(p, i.t, false) + o, p.a.ldy, i.t.n, p.a.w.n_out - o);
        }
    });
    if (p.tail.arrived) run_tail(p.tail, raw);
}

#endif
