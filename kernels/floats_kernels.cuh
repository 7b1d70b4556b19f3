/* F32, F16 and BF16 matrices W, in the file's row layout, times many rows of floats x (prefill). Kernel: floats_many().
 * Bitwise identical to linear_floats() of linear_kernels.cuh. There a warp has one row of W and 8 rows of x, and reads
 * 9 values for 8 multiply-adds. Here a warp has R rows of W (8 or 4) and 8 rows of x, and reads 16 values for 64
 * multiply-adds, or 12 for 32.
 *
 *     x of 8 rows      column i, one of each 32 per lane
 *     W of R rows      the same column        acc[r][j] += W[r][i] x[j][i]
 *
 * The order of a sum is fixed: a lane adds up every 32nd column, then the lanes are summed. Rows past the end read the
 * last row; their results are not written. */
#ifndef PI_FLOATS_KERNELS_CUH
#define PI_FLOATS_KERNELS_CUH

#include "linear.cuh"

namespace floats {

/* floats_many() for matrices of TYPE. */
template <int TYPE, int R> PI_FN void floats_many_of(const product &p)
{
    const int lane = (int) threadIdx.x % 32;
    const int64_t n_in = p.w.n_in, o = ((int64_t) blockIdx.x * FLOAT_WARPS + threadIdx.x / 32) * R;
    const int32_t first = (int32_t) blockIdx.y * FLOAT_ROWS;
    if (o >= p.w.n_out) return;
    const uint8_t *w[R];
    const float *x[FLOAT_ROWS];
    float acc[R][FLOAT_ROWS] = {};
#pragma unroll
    for (int r = 0; r < R; r++) w[r] = p.w.data + (size_t) min(o + r, p.w.n_out - 1) * p.w.shape.tile_bytes;
#pragma unroll
    for (int j = 0; j < FLOAT_ROWS; j++) x[j] = (const float *) p.codes + min(first + j, p.n_rows - 1) * n_in;
#pragma unroll 2
    for (int64_t i = lane; i < n_in; i += 32) {
        float from[R], by[FLOAT_ROWS];
#pragma unroll
        for (int r = 0; r < R; r++) from[r] = value_at<TYPE>(w[r], i);
#pragma unroll
        for (int j = 0; j < FLOAT_ROWS; j++) by[j] = x[j][i];
#pragma unroll
        for (int k = 0; k < R * FLOAT_ROWS; k++)
            acc[k / FLOAT_ROWS][k % FLOAT_ROWS] = fmaf(from[k / FLOAT_ROWS], by[k % FLOAT_ROWS],
                                                       acc[k / FLOAT_ROWS][k % FLOAT_ROWS]);
    }
    const float factor = p.w.scale ? *p.w.scale : 1.0f;
#pragma unroll
    for (int k = 0; k < R * FLOAT_ROWS; k++) {
        const int r = k / FLOAT_ROWS, j = k % FLOAT_ROWS;
        const float sum = warp_sum(acc[r][j]);
        if (lane == 0 && o + r < p.w.n_out && first + j < p.n_rows) p.y[(first + j) * p.ldy + o + r] = sum * factor;
    }
}

/* y [n_rows][n_out] = W x, times W's factor. p.codes: x as floats [n_rows][n_in]. Grid: x = FLOAT_WARPS warps, with R
 * rows of W each; y = FLOAT_ROWS (8) rows of x. No shared memory. */
template <int R> __global__ void __launch_bounds__(FLOAT_WARPS * 32) floats_many(PI_CONSTANT product p)
{
    ptx_wait_dependency();
    switch (p.w.type) {
#define RUN(t, ...) case PI__##t: return floats_many_of<PI__##t, R>(p);
        FLOAT_TYPES(RUN)
#undef RUN
    }
}

} /* namespace floats */

#endif
