/* Kernels before and after cuBLAS products with F16 and BF16 matrices (option cublas). hilo_prepare() writes x as a sum
 * of two 16-bit values, hi and lo, row by row; hilo_finish() scales the results.
 *
 *     packed x: [hi, lo][n_rows][n_in] 16-bit values; [n_rows] factors of the rows (float)
 *
 * F16: a row is divided by a power of two that brings its largest value between 2^14 and 2^15; hi + lo keep 22 bits.
 * BF16: hi + lo keep 16 bits; no scaling, since the range of BF16 is that of float. */
#ifndef PI_HILO_KERNELS_CUH
#define PI_HILO_KERNELS_CUH

#include "formats/formats.h"
#include "input.cuh"
#include "ptx.cuh"

namespace hilo {

enum { THREADS = 256 };

/* Returns the maximum of v over the block's threads, to all of them. scratch: one word per warp. */
PI_FN uint32_t block_most(uint32_t v, uint32_t *scratch)
{
    for (int o = 16; o; o >>= 1) v = max(v, __shfl_xor_sync(PI_FULL, v, o));
    __syncthreads(); /* the sum in open_row has been read */
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    for (int i = 0; i < THREADS / 32; i++) v = max(v, scratch[i]);
    return v;
}

/* Packs x [n_rows][n_in] as hi + lo of F16 or BF16 to `terms`. in: x, with its norm or gate applied while it is
 * read. Grid: a block of THREADS per row. Shared: one word per warp. */
__global__ void __launch_bounds__(THREADS)
    hilo_prepare(pi__k_input in, bool bf16, int32_t n_rows, int64_t n_in, uint16_t *terms)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    int64_t row = blockIdx.x, next = n_rows * n_in;
    input_row x = open_row(in, row, n_in, true, (float *) raw);
    uint16_t *p = terms + row * n_in;
    float factor = 1.0f, down = 1.0f;
    if (!bf16) {
        uint32_t most = 0; /* float bits, ordered like the values; infinity and NaN are the largest */
        for (int64_t i = threadIdx.x; i < n_in; i += THREADS) most = max(most, __float_as_uint(fabsf(x.at(i))));
        most = block_most(most, (uint32_t *) raw);
        bool bad = most >= 0x7f800000; /* NaN as factor makes all results of the row NaN */
        uint32_t e = most >> 23 > 15 ? (most >> 23) - 14 : 1;
        factor = __uint_as_float(bad ? 0x7fc00000 : e << 23);
        down = bad ? 0.0f : __uint_as_float((254 - e) << 23);
    }
    for (int64_t i = threadIdx.x; i < n_in; i += THREADS) {
        float v = down == 0.0f ? 0.0f : x.at(i) * down;
        p[i] = bf16 ? ptx_bf16(v) : ptx_half(v);
        v -= bf16 ? ptx_of_bf16(p[i]) : ptx_of_half(p[i]);
        p[next + i] = bf16 ? ptx_bf16(v) : ptx_half(v);
    }
    if (threadIdx.x == 0) ((float *) (terms + 2 * next))[row] = factor;
}

/* y [rows][n_out] *= factor of its row and of the matrix (scale; NULL = 1). Grid: a block of THREADS per row. */
__global__ void __launch_bounds__(THREADS) hilo_finish(const float *factor, const float *scale, float *y, int64_t ldy,
                                                        int64_t n_out)
{
    ptx_wait_dependency();
    float f = factor[blockIdx.x], s = scale ? *scale : 1.0f;
    y += blockIdx.x * ldy;
    for (int64_t i = threadIdx.x; i < n_out; i += THREADS) y[i] = y[i] * f * s;
}

} /* namespace hilo */

#endif
