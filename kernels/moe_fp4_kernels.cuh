/* Products of experts in FP4: fp4_kernels.cuh's sums over moe_kernels.cuh's tiles. A row is rounded once and gathered
 * by every expert it goes to; which tile a column is in changes no bit of it.
 *
 * For up to 32 columns a block has 16 rows of an expert's W and a warp a slice; for up to 64 it has 128, as in
 * moe_many_kernels.cuh: W comes in bulk, where the device can, rows of x in small pieces. */
#ifndef PI_MOE_FP4_KERNELS_CUH
#define PI_MOE_FP4_KERNELS_CUH

#include "fp4.cuh"
#include "moe.cuh"

static_assert((int) FP4_GROUPS * 8 == (int) MANY, "a group of columns a warp");

/* Epilogue: the factors of a column's sum. */
struct column_result {
    const grouped &p;
    const pi__k_tile &t;
    times whole; /* of the matrix */
    __device__ __forceinline__ float operator()(int c, float sum) const
    {
        return whole(c, sum * p.factors[row_of(p.a, t, c)]);
    }
};

/* Columns for few: where the row is whose words the lane holds. */
template <int NT> struct gathered_chunks {
    const uint32_t *words;
    uint32_t at[NT], scale[NT]; /* of chunk 0 */

    __device__ __forceinline__ void load(int g, int c, uint32_t (&b)[2], uint32_t &scales) const
    {
        uint2 u = *(const uint2 *) (words + at[g] + (size_t) c * (FP4_CHUNK / 4));
        b[0] = u.x, b[1] = u.y;
        scales = words[scale[g] + (size_t) c * (FP4_CHUNK / 4)];
    }
};

template <int TYPE, int NT> __global__ void __launch_bounds__(THREADS, 2) fp4_experts(grouped p)
{
    PI_SMEM(raw);
    if (!ptx_has_fp4() || (int32_t) blockIdx.y >= *p.n_tile) return;
    const share own = share_of(p);
    const pi__cuda_shape &shape = p.a.w.shape;
    int lane = (int) threadIdx.x % 32;
    gathered_chunks<NT> x = {(const uint32_t *) p.chunks, {}, {}};
#pragma unroll
    for (int g = 0; g < NT; g++) {
        uint32_t r = (uint32_t) row_of(p.a, own.t, 8 * g + lane / 4);
        uint32_t group = r / 8 * (uint32_t) ((shape.n_block + 1) / 2) * (FP4_CHUNK / 4);
        x.at[g] = group + r % 8 * 8 + (uint32_t) lane % 4 * 2;
        x.scale[g] = group + 64 + r % 8;
    }
    float acc[NT][4] = {};
    fp4_add_slice<TYPE>(shape, own.data + blockIdx.x * shape.tile_bytes, x, (own.t.n + 7) / 8, acc);
    put_sums(acc, (float *) raw, column_result {p, own.t, times(own.scale)}, own.y + blockIdx.x * 16, p.a.ldy, own.t.n,
             p.a.w.n_out - blockIdx.x * 16);
}

/* Where a warp gathers its 8 columns: of a stage's chunk l / 16, lane l has 16 bytes of column l % 16 / 2; of chunk l / 8,
 * the scales of column l % 8. */
struct gathered_pieces {
    const uint8_t *words, *scales; /* NULL: there are no columns */

    __device__ __forceinline__ uint32_t bulk_bytes(uint32_t) const { return 0; }
    __device__ __forceinline__ void fill(const pipe<FP4_STAGES, PIPE_BOTH> &q, int32_t i, uint32_t to, int32_t c,
                                         uint32_t n) const
    {
        uint32_t lane = threadIdx.x % 32, at = q.address(i) + to;
        if (words && lane / 16 < n) {
            ptx_cp_async16(at + lane / 16 * FP4_CHUNK + lane % 16 * 16, words + (size_t) c * FP4_CHUNK);
        }
        if (words && lane / 8 < n) {
            ptx_cp_async4(at + lane / 8 * FP4_CHUNK + 256 + lane % 8 * 4, scales + (size_t) c * FP4_CHUNK);
        }
    }
};

PI_FN gathered_pieces pieces_of(const grouped &p, const pi__k_tile &t)
{
    int lane = (int) threadIdx.x % 32, first = (int) threadIdx.x / 32 * 8;
    if (first >= t.n) return {nullptr, nullptr};
    int64_t n = (p.a.w.shape.n_block + 1) / 2, r = row_of(p.a, t, first + lane % 16 / 2), s = row_of(p.a, t, first + lane % 8);
    return {p.chunks + (r / 8 * n + lane / 16) * FP4_CHUNK + r % 8 * 32 + lane % 2 * 16,
            p.chunks + (s / 8 * n + lane / 8) * FP4_CHUNK + 256 + s % 8 * 4};
}

template <int TYPE> __global__ void __launch_bounds__(THREADS, 2) fp4_experts_many(grouped p)
{
    PI_SMEM(raw);
    if (!ptx_has_fp4() || (int32_t) blockIdx.y >= *p.n_tile) return;
    const share own = share_of(p);
    int64_t row = ((int64_t) blockIdx.x * FP4_WARPS + threadIdx.x / 32) * 16, n_out = p.a.w.n_out;
    const uint8_t *tile = row < n_out ? own.data + (size_t) (row / 16) * p.a.w.shape.tile_bytes : nullptr;
    float total[FP4_GROUPS][4] = {};
    fp4_multiply_tile<TYPE, pipe<FP4_STAGES, PIPE_BOTH>>(p.a.w.shape, tile, pieces_of(p, own.t), raw, (own.t.n + 7) / 8, total);
    put_totals(total, column_result {p, own.t, times(own.scale)}, own.y + row, p.a.ldy, own.t.n, n_out - row);
}

#endif
