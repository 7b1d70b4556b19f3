/* Around the products of heads' own matrices (op head_linear, which ops.h defines): these are multiplied as experts are
 * (moe_kernels.cuh), of which each has all rows. So nothing is counted or sorted; columns lie by head, then by row.
 *
 *     head_rows   each head's parts of the rows side by side, if they are wanted so (heads_kernels.cuh prepares rows as they lie), and
 *                 the lists of tiles
 *     put_heads   results to where rows have them, and behind them what is copied */
#ifndef PI_HEAD_LINEAR_KERNELS_CUH
#define PI_HEAD_LINEAR_KERNELS_CUH

#include "moe.cuh"

enum { HEAD_THREADS = 128 };

/* The tiles of head h, whose columns are rows: as many of each list as other heads have. */
PI_FN void list_tiles(const pi__k_head_rows &a, int32_t h)
{
    const int32_t left = a.n_rows % MANY, many = a.n_rows / MANY + (left > SOME), list = left > FEW, first = h * a.n_rows;
    const bool few = left && left <= SOME;
    if (few) (list ? a.tile[1] : a.tile[0])[h] = {h, first + many * MANY, left};
    for (int32_t i = 0; i < many; i++) a.tile[2][h * many + i] = {h, first + i * MANY, min((int32_t) MANY, a.n_rows - i * MANY)};
    if (h) return;
    a.n_tile[0] = few && !list ? a.n_head : 0;
    a.n_tile[1] = few && list ? a.n_head : 0;
    a.n_tile[2] = many * a.n_head;
}

/* A block: a row and a head; without column, whose rows are one, a head. */
__global__ void __launch_bounds__(HEAD_THREADS) head_rows(pi__k_head_rows a)
{
    ptx_take_turn();
    const int32_t r = (int32_t) blockIdx.x, h = (int32_t) blockIdx.y;
    const float *x = a.x + r * a.ldx + h * a.x_step;
    float *to = a.column + ((int64_t) h * a.n_rows + r) * a.n_in;
    for (int64_t i = threadIdx.x; i < a.n_in && a.column; i += HEAD_THREADS) to[i] = x[i];
    if (r == 0 && threadIdx.x == 0) list_tiles(a, h);
}

__global__ void __launch_bounds__(HEAD_THREADS) put_heads(pi__k_head_rows a)
{
    ptx_take_turn();
    const int32_t r = (int32_t) blockIdx.x, h = (int32_t) blockIdx.y;
    const float *from = a.column + ((int64_t) h * a.n_rows + r) * a.n_out, *tail = a.x + r * a.ldx + h * a.x_step + a.n_in;
    float *y = a.y + r * a.ldy + h * a.y_step;
    for (int64_t i = threadIdx.x; i < a.n_out + a.n_tail; i += HEAD_THREADS) y[i] = i < a.n_out ? from[i] : tail[i - a.n_out];
}

#endif
