/* Down of experts and of the shared expert beside them in one launch, few rows, types of w16.cuh: products as moe_w16_kernels.cuh has
 * them, of mid, and as w16_kernels.cuh has them, of rows, to the bit. Both kinds of items, 64 rows of a matrix and a tile of columns,
 * are dealt out to blocks of threads together, evenly, so that a block has few of the shared expert's:
 *
 *     items     S e e e e S e e e e S e e e e S e e e e       S: of the shared expert, whose number the host knows
 *     blocks    [0      ][1        ][2      ][3       ]
 *
 * A block does its own S first, then its e, whose weights are a stream. The sums of all, residual, norm and the next input are the
 * launch's tail (tail.cuh). */
#ifndef PI_MOE_DOWN_KERNELS_CUH
#define PI_MOE_DOWN_KERNELS_CUH

#include "moe_w16.cuh"
#include "tail.cuh"

/* The shared expert's matrix, as the only one of experts to which all rows go. */
struct w16_shared : w16_experts {
    int32_t n_rows;
};
PI_FN w16_item item_of(const w16_shared &p, uint32_t i) { return {{0, 0, p.n_rows}, (int32_t) i}; }

/* A launch. */
struct w16_down {
    w16_experts routed;
    w16_shared shared; /* its items are n_item */
    pi__k_tail tail;
};

/* The block's items: of either kind [first, end). */
struct down_share {
    uint32_t first[2], end[2]; /* shared, routed */
};
PI_FN down_share share_of(const w16_down &p)
{
    const uint32_t shared = p.shared.n_item, all = shared + (uint32_t) (p.routed.n_tile[0] + p.routed.n_tile[1]) * p.routed.n_item;
    const uint32_t at = part_of(all, blockIdx.x, gridDim.x), to = part_of(all, blockIdx.x + 1, gridDim.x);
    const uint32_t s = shared * at / all, s_end = shared * to / all;
    return {{s, at - s}, {s_end, to - s_end}};
}

/* Items of either kind to where their results belong. */
template <int TYPE, int NT, bool MID, class P> PI_FN void multiply_items(const P &p, uint32_t first, uint32_t end, unsigned char *raw)
{
    float *part = (float *) raw;
    const auto begin = [](const w16_item &) {};
    using S = expert_stream<TYPE, NT, MID, P>;
    few_items<S, TYPE, NT, MID>(p, first, end, raw + S::SUMS, begin, [&](const w16_item &i, const float (&acc)[FEW_TILES][NT][4]) {
        const expert_times<TYPE, MID> times(p, i.t, p.a.w.scale);
        float *y = results_of(p, i.t, false);
        put_tiles<NT, FEW_TILES, S::ONCE>(acc, part, i.t.n, [&](int r, int c, int o, float sum) {
            const int32_t at = (i.part * FEW_TILES + r) * 16 + o;
            if (at < p.a.w.n_out) y[c * p.a.ldy + at] = times(c, sum);
        });
    });
}

template <int NT> __global__ void __launch_bounds__(THREADS, NT == 1 ? 2 : 1) moe_down(PI_CONSTANT w16_down p)
{
    ptx_take_turn();
    PI_SMEM(raw);
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
    if (p.tail.arrived) run_tail(p.tail, raw);
}

#endif
