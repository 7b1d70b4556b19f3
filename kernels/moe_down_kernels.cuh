/* Down projections of routed experts and of the shared expert in one launch, for small row counts and types of w16.cuh.
 * The results are bitwise identical to moe_w16_kernels.cuh (routed experts, input mid) and w16_kernels.cuh (shared
 * expert, packed rows). An item is 64 rows of a matrix times a tile of columns. Items of both kinds are divided evenly
 * over the thread blocks, so that a block has few items of the shared expert:
 *
 *     items     S e e e e S e e e e S e e e e S e e e e       S: shared expert; the host knows their number
 *     blocks    [0      ][1        ][2      ][3       ]       e: routed experts
 *
 * A block computes its S first, then its e. Weights are streamed through shared memory. The launch's epilogue
 * (tail.cuh) sums the expert outputs, adds the residual, and computes the norm and the next input. */
#ifndef PI_MOE_DOWN_KERNELS_CUH
#define PI_MOE_DOWN_KERNELS_CUH

#include "moe_w16.cuh"
#include "tail.cuh"

namespace moe {

/* The shared expert's matrix as one expert with one tile that has all n_rows rows. Item i is part i of the matrix's
 * rows. */
struct w16_shared : w16_experts {
    int32_t n_rows;
};
PI_FN w16_item item_of(const w16_shared &p, uint32_t i) { return {{0, 0, p.n_rows}, (int32_t) i}; }

/* Arguments of moe_down(). */
struct w16_down {
    w16_experts routed;
    w16_shared shared; /* the shared expert has shared.n_item items */
    pi__k_tail tail;
};

/* The block's items of each kind k: first[k] .. end[k] - 1. */
struct down_share {
    uint32_t first[2], end[2]; /* [0] = shared expert, [1] = routed experts */
};
PI_FN down_share share_of(const w16_down &p)
{
    const uint32_t shared = p.shared.n_item,
                   all = shared + (uint32_t) (p.routed.n_tile[0] + p.routed.n_tile[1]) * p.routed.n_item;
    const uint32_t at = part_of(all, blockIdx.x, gridDim.x), to = part_of(all, blockIdx.x + 1, gridDim.x);
    const uint32_t s = shared * at / all, s_end = shared * to / all;
    return {{s, at - s}, {s_end, to - s_end}};
}

/* Computes items first .. end - 1 of one kind and writes their results. MID: the input is mid, else packed rows. raw:
 * shared memory, S::BYTES. */
template <int TYPE, int NT, bool MID, class P>
PI_FN void multiply_items(const P &p, uint32_t first, uint32_t end, unsigned char *raw)
{
    float *part = (float *) raw;
    const auto begin = [](const w16_item &) {};
    using S = expert_stream<TYPE, NT, MID, P>;
    few_items<S, TYPE, NT, MID>(
        p, first, end, raw + S::SUMS, begin, [&](const w16_item &i, const float(&acc)[FEW_TILES][NT][4]) {
            const expert_times<TYPE, MID> times(p, i.t, p.a.w.scale);
            float *y = results_of(p, i.t, false);
            put_tiles<NT, FEW_TILES, S::ONCE>(acc, part, i.t.n, [&](int r, int c, int o, float sum) {
                const int32_t at = (i.part * FEW_TILES + r) * 16 + o;
                if (at < p.a.w.n_out) y[c * p.a.ldy + at] = times(c, sum);
            });
        });
}

/* NT: max groups of 8 columns per tile. Grid: any number of blocks in x. */
template <int NT> __global__ void __launch_bounds__(THREADS, NT == 1 ? 2 : 1) moe_down(PI_CONSTANT w16_down p)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    /* This block's items: the shared expert's, then the routed experts'. */
    const down_share s = share_of(p);
    if (s.first[0] < s.end[0]) {
        switch (p.shared.a.w.type) {
#define RUN(t) case PI__##t: multiply_items<PI__##t, NT, false>(p.shared, s.first[0], s.end[0], raw); break;
            W16_TYPES(RUN)
#undef RUN
        default: break;
        }
    }
    if (s.first[1] < s.end[1]) {
        switch (p.routed.a.w.type) {
#define RUN(t) case PI__##t: multiply_items<PI__##t, NT, true>(p.routed, s.first[1], s.end[1], raw); break;
            W16_TYPES(RUN)
#undef RUN
        default: break;
        }
    }
    /* Epilogue: sum of experts, residual, norm, next input. */
    if (p.tail.arrived) run_tail(p.tail, raw);
}

} /* namespace moe */

#endif
