/* Products of experts with many columns (prefill), by multiply_tile() of tile.cuh. Results are bitwise identical to
 * moe_kernels.cuh, which reads x again for every 16 rows of W.
 *
 * A thread block computes 128 rows of an expert's W times the up to 64 columns of a tile. W is loaded by bulk copies
 * where the device has them. Rows of x are gathered in pieces of 16 bytes: each lane copies one piece of its row per
 * block of 32 columns. */
#ifndef PI_MOE_MANY_KERNELS_CUH
#define PI_MOE_MANY_KERNELS_CUH

#include "moe.cuh"
#include "tile.cuh"

namespace moe {

static_assert((int) GROUPS * 8 == (int) MANY, "one column group per warp");

using pieces = pipe<STAGES, PIPE_BOTH>;

/* Source addresses of the 8 columns (rows of x) that a warp gathers, as argument x of multiply_tile(). */
struct gathered_group {
    const uint4 *words;      /* the lane's words in block 0 of its row; NULL = the warp has no columns */
    const block_meta *metas; /* lanes 0 .. 15: meta of row lane % 8, block lane / 8 */

    __device__ __forceinline__ uint32_t bulk_bytes(uint32_t) const { return 0; }
    __device__ __forceinline__ void fill(const pieces &q, const stage_map &m, int32_t i, int32_t b, uint32_t n) const
    {
        uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (!words) return;
        for (uint32_t k = 0; k < n; k++) {
            ptx_cp_async16(q.address(i) + m.b + (warp * STAGE + k) * 512 + lane * 16, words + ((size_t) b + k) * 32);
        }
        if (lane < 8 * n)
            ptx_cp_async16(q.address(i) + m.meta + warp * STAGE * 128 + lane * 16, metas + (size_t) b * 8);
    }
};

/* Returns the source addresses of the calling warp's columns of tile t. */
PI_FN gathered_group group_of(const grouped &p, const pi__k_tile &t)
{
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    if (8 * warp >= t.n) return {nullptr, nullptr};
    int64_t n = p.a.w.shape.n_block, r = row_of(p.a, t, 8 * warp + lane / 4), s = row_of(p.a, t, 8 * warp + lane % 8);
    return {p.codes + r / 8 * n * 32 + r % 8 * 4 + lane % 4, p.meta + (s / 8 * n + lane / 8) * 8 + s % 8};
}

/* Grid: x = 128 rows of W, y = tile, z = matrix. */
template <int TYPE> __global__ void __launch_bounds__(THREADS, 1) experts_many(grouped p)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    if ((int32_t) blockIdx.y >= *p.n_tile) return;
    const share own = share_of(p);
    int64_t row = ((int64_t) blockIdx.x * WARPS + threadIdx.x / 32) * 16, n_out = p.a.w.n_out;
    const uint8_t *tile = row < n_out ? own.data + (size_t) (row / 16) * p.a.w.shape.tile_bytes : nullptr;
    float total[GROUPS][4] = {};
    multiply_tile<TYPE, pieces>(p.a.w.shape, tile, group_of(p, own.t), raw, (own.t.n + 7) / 8, total);
    put_totals(total, times(own.scale), own.y + row, p.a.ldy, own.t.n, n_out - row);
}

} /* namespace moe */

#endif
