/* Packed matrices W times many packed rows of x (prefill), with the tiles of tile.cuh. Kernel: gemm(). Bitwise
 * identical to linear_kernels.cuh, which would read W again for every 32 rows. */
#ifndef PI_GEMM_KERNELS_CUH
#define PI_GEMM_KERNELS_CUH

#include "tile.cuh"

namespace gemm {

/* Source of x for multiply_tile(): the group of 8 packed rows that this warp copies. bulk_bytes, fill: n blocks of the
 * group, from block b on, to stage i. */
struct group_rows {
    const uint8_t *codes, *meta; /* words of B, metas; codes NULL = no group, nothing is copied */

    __device__ __forceinline__ uint32_t bulk_bytes(uint32_t n) const { return codes ? n * 640 : 0; }
    __device__ __forceinline__ void fill(const pipe<STAGES> &q, const stage_map &m, int32_t i, int32_t b,
                                         uint32_t n) const
    {
        uint32_t warp = threadIdx.x / 32;
        if (!codes) return;
        q.copy(i, m.b + warp * STAGE * 512, codes + (size_t) b * 512, n * 512);
        q.copy(i, m.meta + warp * STAGE * 128, meta + (size_t) b * 128, n * 128);
    }
};

/* y [n_rows][n_out] = W x for many rows of x. Grid: x = GROUPS groups of 8 rows of x; y = WARPS tiles of 16 rows of W,
 * one per warp. Each warp also copies one group. Shared: the stages of the pipe. */
template <int TYPE> __global__ void __launch_bounds__(THREADS, 1) gemm(product p)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    uint32_t warp = threadIdx.x / 32;
    int64_t row = ((int64_t) blockIdx.y * WARPS + warp) * 16, first = (int64_t) blockIdx.x * GROUPS * 8;
    size_t group = (size_t) blockIdx.x * GROUPS + warp, at = group * (size_t) p.w.shape.n_block;
    bool x = group * 8 < (size_t) p.n_rows;
    const uint8_t *tile = row < p.w.n_out ? p.w.data + (size_t) (row / 16) * p.w.shape.tile_bytes : nullptr;
    const group_rows rows = {x ? (const uint8_t *) p.codes + at * 512 : nullptr, (const uint8_t *) p.meta + at * 128};
    int32_t n = (int32_t) (p.n_rows - first);
    float total[GROUPS][4] = {};
    multiply_tile<TYPE, pipe<STAGES>>(p.w.shape, tile, rows, raw, (min(GROUPS * 8, n) + 7) / 8, total);
    put_totals(total, times(p.w.scale), p.y + first * p.ldy + row, p.ldy, n, p.w.n_out - row);
}

} /* namespace gemm */

#endif
