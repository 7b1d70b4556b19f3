/* Packs rows of x as sums of 16-bit floats ("terms") for the products of mma16_kernels.cuh; layout in mma16.cuh. Used
 * by the packing kernel and by epilogues. */
#ifndef PI_MMA16_ROWS_CUH
#define PI_MMA16_ROWS_CUH

#include "input.cuh"
#include "mma16.cuh"

/* Packs part `of` of row `row` (n_in columns) to `blocks`, by the threads of a block with any number of warps. TYPE:
 * type of the matrices. there: false = the row is past the last one; zeros are packed. */
template <int TYPE>
PI_FN void put_terms(const input_row &x, int64_t row, int64_t n_in, bool there, row_share of, uint8_t *blocks)
{
    const int64_t n_block = (n_in + 31) / 32;
    const int lane = (int) threadIdx.x % 32, r = (int) (row % 8);
    for (int64_t i = of.first * blockDim.x + threadIdx.x; i < n_block * 32; i += of.step * blockDim.x) {
        float v = there && i < n_in ? x.at_noinline(i) : 0.0f;
        uint8_t *block = blocks + (size_t) (row / 8 * n_block + i / 32) * mma16<TYPE>::BYTES;
        uint16_t *p = (uint16_t *) block + (r * 4 + lane / 8) * 8 + lane % 8;
        /* Term k is the rounding error of the sum of the terms before it. */
        if (TYPE == PI__BF16) {
            for (int k = 0; k < 3; k++) {
                p[k * 256] = ptx_bf16(v);
                v -= ptx_of_bf16(p[k * 256]);
            }
            continue;
        }
        bool bad = __any_sync(PI_FULL, !(fabsf(v) <= 3.4e38f)); /* an infinite or NaN input makes every result NaN */
        /* 2^(e - 127) is the block's scale. Divided by it, the largest value of the 32 lies in [2^14, 2^15). */
        uint32_t e = __float_as_uint(warp_max(fabsf(v))) >> 23;
        e = e > 15 ? e - 14 : 1;
        v = bad ? 0.0f : v * __uint_as_float((254 - e) << 23);
        p[0] = ptx_half(v);
        p[256] = ptx_half(v - ptx_of_half(p[0]));
        if (lane == 0) ((float *) (block + 1024))[r] = __uint_as_float(bad ? 0x7fc00000 : e << 23);
    }
}

#endif
