/* Kernels before and after the products with per-head matrices (op head_linear, defined in ops.h). The products run as
 * experts (moe_kernels.cuh), with heads as experts. Each head has all rows of x, so nothing is counted or sorted:
 * column h * n_rows + r is row r of head h.
 *
 *     head_rows   writes the lists of tiles. If a.column is not NULL, it also gathers each head's part of each row to
 *                 a.column. Otherwise heads_kernels.cuh packs the rows directly
 *     put_heads   copies results from a.column to y. After them it copies n_tail values from x, unchanged */
#ifndef PI_HEAD_LINEAR_KERNELS_CUH
#define PI_HEAD_LINEAR_KERNELS_CUH

#include "moe.cuh"

namespace head_linear {

enum { HEAD_THREADS = 128 };

/* Writes the tiles of head h, with all n_rows rows, to a.tile[0 .. 2] (lists for up to FEW, SOME and MANY columns) by
 * one thread. Every head has the same number of tiles in each list. Head 0 also writes the lengths, a.n_tile. */
PI_FN void list_tiles(const pi__k_head_rows &a, int32_t h)
{
    const int32_t left = a.n_rows % MANY, many = a.n_rows / MANY + (left > SOME), list = left > FEW,
                  first = h * a.n_rows;
    const bool few = left && left <= SOME;
    if (few) (list ? a.tile[1] : a.tile[0])[h] = {h, first + many * MANY, left};
    for (int32_t i = 0; i < many; i++)
        a.tile[2][h * many + i] = {h, first + i * MANY, min((int32_t) MANY, a.n_rows - i * MANY)};
    if (h) return;
    a.n_tile[0] = few && !list ? a.n_head : 0;
    a.n_tile[1] = few && list ? a.n_head : 0;
    a.n_tile[2] = many * a.n_head;
}

/* Gathers each head's part of each row to a.column [n_head * n_rows][n_in], if it is not NULL, and lists the tiles.
 * Grid: x = row; y = head. With a.column NULL, x has one block. */
__global__ void __launch_bounds__(HEAD_THREADS) head_rows(pi__k_head_rows a)
{
    ptx_wait_dependency();
    const int32_t r = (int32_t) blockIdx.x, h = (int32_t) blockIdx.y;
    const float *x = a.x + r * a.ldx + h * a.x_step;
    float *to = a.column + ((int64_t) h * a.n_rows + r) * a.n_in;
    for (int64_t i = threadIdx.x; i < a.n_in && a.column; i += HEAD_THREADS) to[i] = x[i];
    if (r == 0 && threadIdx.x == 0) list_tiles(a, h);
}

/* y[row][head] = the head's result (n_out values of a.column [n_head * n_rows][n_out]), then the n_tail values of x
 * that follow the head's part. Grid: x = row; y = head. */
__global__ void __launch_bounds__(HEAD_THREADS) put_heads(pi__k_head_rows a)
{
    ptx_wait_dependency();
    const int32_t r = (int32_t) blockIdx.x, h = (int32_t) blockIdx.y;
    const float *from = a.column + ((int64_t) h * a.n_rows + r) * a.n_out,
                *tail = a.x + r * a.ldx + h * a.x_step + a.n_in;
    float *y = a.y + r * a.ldy + h * a.y_step;
    for (int64_t i = threadIdx.x; i < a.n_out + a.n_tail; i += HEAD_THREADS)
        y[i] = i < a.n_out ? from[i] : tail[i - a.n_out];
}

} /* namespace head_linear */

#endif
