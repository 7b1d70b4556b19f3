/* Products of F16 and BF16 matrices of experts with 16-bit tensor cores: the sums of mma16_kernels.cuh over the tiles
 * of moe_kernels.cuh, bitwise identical to separate products. Each row is packed once and gathered by each expert that
 * it is routed to.
 *
 * mma16_experts, for tiles of up to 32 columns: a thread block computes 16 rows of an expert's W; each warp has one
 * slice. mma16_experts_many, for tiles of up to 64 columns: a thread block computes 128 rows of W. Grids: x = rows of
 * W, y = tile, z = matrix. */
#ifndef PI_MOE_MMA16_KERNELS_CUH
#define PI_MOE_MMA16_KERNELS_CUH

#include "mma16.cuh"
#include "moe.cuh"

namespace moe {

static_assert((int) MMA16_GROUPS * 8 == (int) MANY, "one column group per warp");

/* Gathered columns for mma16_experts(), as argument x of mma16_add_slice(). Per group of 8 columns, the lane has the
 * offset of one row for its words of B, and of two rows for their scales. */
template <int TYPE, int NT> struct gathered_terms {
    const uint8_t *blocks;
    uint32_t at[NT], scale_at[NT][2]; /* offsets at block 0: in units of 16 bytes; in floats */

    __device__ __forceinline__ void load(int g, int c, uint4 (&b)[mma16<TYPE>::TERMS], float (&scale)[2]) const
    {
        const uint8_t *block = blocks + (size_t) c * mma16<TYPE>::BYTES;
        for (int k = 0; k < mma16<TYPE>::TERMS; k++) b[k] = ((const uint4 *) block)[at[g] + k * 32];
        for (int i = 0; i < 2; i++) scale[i] = TYPE == PI__F16 ? ((const float *) block)[scale_at[g][i]] : 1.0f;
    }
};

template <int TYPE, int NT> __global__ void __launch_bounds__(THREADS, 2) mma16_experts(grouped p)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    if ((int32_t) blockIdx.y >= *p.n_tile) return;
    const share own = share_of(p);
    uint32_t lane = threadIdx.x % 32, group = (uint32_t) ((p.a.w.n_in + 31) / 32) * (mma16<TYPE>::BYTES / 16);
    gathered_terms<TYPE, NT> x = {p.chunks, {}, {}};
/* Offsets of the lane's rows in packed x. */
#pragma unroll
    for (int g = 0; g < NT; g++) {
        uint32_t r = (uint32_t) row_of(p.a, own.t, 8 * g + (int) lane / 4);
        x.at[g] = r / 8 * group + r % 8 * 4 + lane % 4;
        for (int i = 0; i < 2; i++) {
            r = (uint32_t) row_of(p.a, own.t, 8 * g + 2 * ((int) lane % 4) + i);
            x.scale_at[g][i] = r / 8 * group * 4 + 256 + r % 8;
        }
    }
    int64_t row = (int64_t) blockIdx.x * 16, n_out = p.a.w.n_out - row;
    size_t pitch = p.a.w.shape.tile_bytes;
    float acc[NT][4] = {};
    mma16_add_slice<TYPE>(own.data + (size_t) row * pitch, pitch, p.a.w.n_in, n_out, x, (own.t.n + 7) / 8, [] {}, acc);
    put_sums(acc, (float *) raw, times(own.scale), own.y + row, p.a.ldy, own.t.n, n_out);
}

/* Source addresses of the 8 columns that a warp gathers for mma16_experts_many(). Each lane copies 16 bytes of its row
 * per term. F16: lanes 0 .. 7 also copy a scale each. */
template <int TYPE> struct gathered_column {
    const uint8_t *words, *scale; /* NULL = the warp has no columns */

    __device__ __forceinline__ void fill(const mma16_pipe &q, int32_t i, uint32_t to, int32_t c) const
    {
        uint32_t lane = threadIdx.x % 32, at = q.address(i) + to;
        size_t off = (size_t) c * mma16<TYPE>::BYTES;
        if (!words) return;
        for (uint32_t k = 0; k < mma16<TYPE>::TERMS; k++)
            ptx_cp_async16(at + k * 512 + lane * 16, words + off + k * 512);
        if (TYPE == PI__F16 && lane < 8) ptx_cp_async4(at + 1024 + lane * 4, scale + off);
    }
};

/* Returns the source addresses of the calling warp's columns of tile t. */
template <int TYPE> PI_FN gathered_column<TYPE> column_of(const grouped &p, const pi__k_tile &t)
{
    int lane = (int) threadIdx.x % 32, first = (int) threadIdx.x / 32 * 8;
    if (first >= t.n) return {nullptr, nullptr};
    int64_t group = (p.a.w.n_in + 31) / 32 * mma16<TYPE>::BYTES;
    int64_t r = row_of(p.a, t, first + lane / 4), s = row_of(p.a, t, first + lane % 8);
    return {p.chunks + r / 8 * group + r % 8 * 64 + lane % 4 * 16, p.chunks + s / 8 * group + 1024 + s % 8 * 4};
}

template <int TYPE> __global__ void __launch_bounds__(THREADS) mma16_experts_many(grouped p)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    if ((int32_t) blockIdx.y >= *p.n_tile) return;
    const share own = share_of(p);
    int64_t row = (int64_t) blockIdx.x * MMA16_ROWS;
    size_t pitch = p.a.w.shape.tile_bytes;
    mma16_tile<TYPE>(own.data + (size_t) row * pitch, pitch, p.a.w.n_in, p.a.w.n_out - row, column_of<TYPE>(p, own.t),
                     own.t.n, raw, times(own.scale), own.y + row, p.a.ldy);
}

} /* namespace moe */

#endif
