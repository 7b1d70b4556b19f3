/* Residual streams of DeepSeek V4: adding a block's result to the four of a row, the product of the row's values with the matrix of
 * the next block's weights, and reading the row as that block does (ops hyper_post, linear and hyper_pre, which ops.h defines; hyper.cuh
 * says how).
 *
 *     hyper_mix      piece i of a row, or of 8: 128 columns of the four streams
 *     hyper_read     a row
 *
 * With few rows both are one launch: the last block of a row to arrive reads it, or of 8 rows the last ones read one each, when all
 * have arrived. The matrix comes to registers while the launch before still runs. */
#ifndef PI_HYPER_KERNELS_CUH
#define PI_HYPER_KERNELS_CUH

#include "hyper.cuh"

/* Columns i .. of a row's streams, with the block's result if there is one, which are written then. */
PI_FN void streams_at(const pi__k_streams &k, int64_t row, int64_t i, float4 (&x)[PI__STREAMS])
{
    load_streams(k, row, i, x);
    if (k.result) add_to_streams(k, row, i, columns_of(k.result + row * k.n, i, k.n), x);
}

enum { MANY = 8 /* rows of a block, where they are many */ };
static_assert(PI__K_HYPER_PIECE == 32 * HYPER_COLUMNS && (int) MANY == (int) HYPER_WARPS, "a warp has a row's piece");

/* Block (piece; R rows of the launch's, which begin at row0). t: as of finish_streams(), by the last `read` blocks of the rows. */
template <int TYPE, int R>
__global__ void __launch_bounds__(HYPER_THREADS, 2)
hyper_mix(PI_CONSTANT pi__k_streams k, PI_CONSTANT pi__k_tail t, uint32_t read, int32_t near)
{
    ptx_launch_dependents();
    PI_SMEM(raw);
    float *shared = (float *) raw; /* [R][PI__STREAMS][PI__K_HYPER_PIECE] */
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, n_mix = k.n_iter ? (int) PI__HYPER_MIX : (int) PI__STREAMS;
    const int64_t i = (int64_t) blockIdx.x * PI__K_HYPER_PIECE + lane * HYPER_COLUMNS, row0 = (int64_t) blockIdx.y * R;
    float4 w[HYPER_EACH][PI__STREAMS] = {};
#pragma unroll
    for (int o = 0; o < HYPER_EACH && k.w; o++)
#pragma unroll
        for (int s = 0; s < PI__STREAMS; s++)
            if (HYPER_EACH * warp + o < n_mix) w[o][s] = weights_of<TYPE>(k.w, ((HYPER_EACH * warp + o) * PI__STREAMS + s) * k.n, i, k.n);
    ptx_wait_grids(); /* what is made before this launch is read from here on */
    float v[32] = {};
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
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int s = 0; s < PI__STREAMS; s++) {
            const float4 x = *(const float4 *) (shared + (r * PI__STREAMS + s) * PI__K_HYPER_PIECE + lane * HYPER_COLUMNS);
#pragma unroll
            for (int o = 0; o < HYPER_EACH; o++) v[o * MANY + r] = add4(v[o * MANY + r], w[o][s], x);
        }
    }
    sums_of_16(v);
    const int q = lane % 4, which = q < HYPER_EACH ? HYPER_EACH * warp + q : HYPER_SUMS - 1;
#pragma unroll
    for (int n = 0; n < R; n++) { /* of the squares each warp has one row's */
        const int r = q < HYPER_EACH ? n : warp;
        if (i - HYPER_COLUMNS * q < k.n && r < R && row0 + r < k.n_rows && (q < HYPER_EACH || !n)) *sum_at(k, row0 + r, which, i) = v[n];
    }
    if (!read) return;
    const uint32_t wait = R > 1 ? (ptx_blocks_that_wait((read - 1) * gridDim.y + 1) - 1) / gridDim.y : 0; /* of a group, for its last one */
    const tail_share s = arrive_of(k.arrived + blockIdx.y, gridDim.x, min(wait + 1, gridDim.x), (uint32_t *) (shared + HYPER_LEFT));
    if (!s.parts) return;
#pragma unroll 1
    for (int own = s.part; own < R && row0 + own < k.n_rows; own += s.parts) {
        finish_streams(k, t, row0 + own, near, shared);
        __syncthreads(); /* shared is free */
    }
}

/* A row: blockIdx.x. */
__global__ void __launch_bounds__(HYPER_THREADS, 2) hyper_read(PI_CONSTANT pi__k_streams k, PI_CONSTANT pi__k_tail t, int32_t near)
{
    ptx_take_turn();
    PI_SMEM(raw);
    finish_streams(k, t, blockIdx.x, near, (float *) raw);
}

/* Adds the block's result: columns, blockIdx.x; a warp a row, of those from blockIdx.y on. */
__global__ void __launch_bounds__(HYPER_THREADS) hyper_post(PI_CONSTANT pi__k_streams k)
{
    ptx_take_turn();
    const int64_t row = (int64_t) blockIdx.y * HYPER_WARPS + threadIdx.x / 32;
    float4 x[PI__STREAMS];
    if (row < k.n_rows) streams_at(k, row, (int64_t) blockIdx.x * PI__K_HYPER_PIECE + threadIdx.x % 32 * HYPER_COLUMNS, x);
}

#endif
