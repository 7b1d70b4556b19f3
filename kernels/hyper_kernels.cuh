/* Residual streams of DeepSeek V4 (ops hyper_post, linear and hyper_pre, defined in ops.h; described in hyper.cuh). The
 * kernels add a model block's result to the four streams of a row, and multiply the row by the mixing matrix, which
 * gives the weights of the next model block. Then they read the row as that model block's input. Work of a block of
 * threads:
 *
 *     hyper_mix      128 columns of the four streams, of one row or of 8
 *     hyper_read     a row
 *     hyper_post     only adds the result: 128 columns of 8 rows
 *
 * With few rows hyper_mix does all in one launch: the last block of a row to arrive reads the row. For groups of 8
 * rows, the last blocks of a group to arrive wait for the group's other blocks, and share its rows. The matrix is
 * loaded to registers while the previous launch runs. */
#ifndef PI_HYPER_KERNELS_CUH
#define PI_HYPER_KERNELS_CUH

#include "hyper.cuh"

namespace hyper {

/* x = columns i .. i + 3 of a row's streams. If k.result is not NULL, adds it to the streams and writes them. */
PI_FN void streams_at(const pi__k_streams &k, int64_t row, int64_t i, float4 (&x)[PI__STREAMS])
{
    load_streams(k, row, i, x);
    if (k.result) add_to_streams(k, row, i, columns_of(k.result + row * k.n, i, k.n), x);
}

enum { MANY = 8 /* rows per block of hyper_mix with more than PI__K_HYPER_ROWS rows */ };
static_assert(PI__K_HYPER_PIECE == 32 * HYPER_COLUMNS && (int) MANY == (int) HYPER_WARPS,
              "one warp per piece of a row");

/* Loads the warp's rows of the mixing matrix of TYPE, in columns i .. i + 3 of each stream. */
template <int TYPE>
PI_FN void load_mixing(const pi__k_streams &k, int n_mix, int64_t i, float4 (&w)[HYPER_EACH][PI__STREAMS])
{
    const int first = HYPER_EACH * ((int) threadIdx.x / 32);
#pragma unroll
    for (int o = 0; o < HYPER_EACH; o++)
#pragma unroll
        for (int s = 0; s < PI__STREAMS; s++)
            if (first + o < n_mix) w[o][s] = weights_of<TYPE>(k.w, ((first + o) * PI__STREAMS + s) * k.n, i, k.n);
}

/* Adds k.result to the streams and computes partial sums, for one piece (128 columns of each stream) of R rows. Grid: x
 * = piece; y = R rows. read: number of blocks that complete the R rows (finish_streams(), with t)
 * when all their sums are written; 0 = a later launch completes them. */
template <int R>
__global__ void __launch_bounds__(HYPER_THREADS, 2)
hyper_mix(PI_CONSTANT pi__k_streams k, PI_CONSTANT pi__k_tail t, uint32_t read, int32_t smem_copy)
{
    ptx_launch_dependents();
    PI_SMEM(raw);
    float *shared = (float *) raw; /* [R][PI__STREAMS][PI__K_HYPER_PIECE] new streams */
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32,
              n_mix = k.n_iter ? (int) PI__HYPER_MIX : (int) PI__STREAMS;
    const int64_t i = (int64_t) blockIdx.x * PI__K_HYPER_PIECE + lane * HYPER_COLUMNS, row0 = (int64_t) blockIdx.y * R;
    float4 w[HYPER_EACH][PI__STREAMS] = {};
    if (k.w && k.type == PI__F32) load_mixing<PI__F32>(k, n_mix, i, w);
    if (k.w && k.type == PI__F16) load_mixing<PI__F16>(k, n_mix, i, w);
    if (k.w && k.type == PI__BF16) load_mixing<PI__BF16>(k, n_mix, i, w);
    ptx_wait_grids(); /* results of earlier launches are read from here on */
    float v[32] = {};
    /* Warp r loads row r, adds k.result (if given), and sums the row's squares. */
    if (warp < R) {
        float4 x[PI__STREAMS] = {};
        if (row0 + warp < k.n_rows) streams_at(k, row0 + warp, i, x);
#pragma unroll
        for (int s = 0; s < PI__STREAMS; s++) {
            *(float4 *) (shared + (warp * PI__STREAMS + s) * PI__K_HYPER_PIECE + lane * HYPER_COLUMNS) = x[s];
            v[HYPER_EACH * MANY] = add4(v[HYPER_EACH * MANY], x[s], x[s]);
        }
    }
    __syncthreads();
    /* Each warp computes HYPER_EACH products of all R rows: v[o * MANY + r] is product o of row r, over the lane's
     * columns. */
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int s = 0; s < PI__STREAMS; s++) {
            const float4 x = *(const float4 *) (shared + (r * PI__STREAMS + s) * PI__K_HYPER_PIECE +
                                                lane * HYPER_COLUMNS);
#pragma unroll
            for (int o = 0; o < HYPER_EACH; o++) v[o * MANY + r] = add4(v[o * MANY + r], w[o][s], x);
        }
    }
    /* Sum over 16 columns, and write the sums. Lane 4 g + q has the sums of product q of all rows; q = 3: the
     * squares. */
    sums_of_16(v);
    const int q = lane % 4, which = q < HYPER_EACH ? HYPER_EACH * warp + q : HYPER_SUMS - 1;
#pragma unroll
    for (int n = 0; n < R; n++) { /* q = HYPER_EACH: the sum of squares, only of row `warp`; else R rows */
        const int r = q < HYPER_EACH ? n : warp;
        if (i - HYPER_COLUMNS * q < k.n && r < R && row0 + r < k.n_rows && (q < HYPER_EACH || !n))
            *sum_at(k, row0 + r, which, i) = v[n];
    }
    if (!read) return;
    /* The last blocks to arrive complete the rows. wait: number of blocks of this group that wait, besides its last
     * block. */
    const uint32_t wait = R > 1 ? (ptx_max_spinning((read - 1) * gridDim.y + 1) - 1) / gridDim.y : 0;
    const tail_share s = arrive_of(k.arrived + blockIdx.y, gridDim.x, min(wait + 1, gridDim.x), k.waits.stuck,
                                   (uint32_t *) (shared + HYPER_LEFT));
    if (!s.parts) return;
#pragma unroll 1
    for (int own = s.part; own < R && row0 + own < k.n_rows; own += s.parts) {
        finish_streams(k, t, row0 + own, smem_copy, shared);
        __syncthreads(); /* shared memory may be overwritten */
    }
}

/* Completes the rows (finish_streams()) in a separate launch after hyper_mix. Grid: a block per row. */
__global__ void __launch_bounds__(HYPER_THREADS, 2)
hyper_read(PI_CONSTANT pi__k_streams k, PI_CONSTANT pi__k_tail t, int32_t smem_copy)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    finish_streams(k, t, blockIdx.x, smem_copy, (float *) raw);
}

/* Adds k.result to the streams, if nothing else is requested. Grid: x = piece of 128 columns; y = HYPER_WARPS rows, a
 * warp per row. */
__global__ void __launch_bounds__(HYPER_THREADS) hyper_post(PI_CONSTANT pi__k_streams k)
{
    ptx_wait_dependency();
    const int64_t row = (int64_t) blockIdx.y * HYPER_WARPS + threadIdx.x / 32;
    float4 x[PI__STREAMS];
    if (row < k.n_rows)
        streams_at(k, row, (int64_t) blockIdx.x * PI__K_HYPER_PIECE + threadIdx.x % 32 * HYPER_COLUMNS, x);
}

} /* namespace hyper */

#endif
