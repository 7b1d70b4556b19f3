/* Kernels before and after the products with per-head matrices (op head_linear, defined in ops.h). The products run
 * as experts (moe_kernels.cuh); each head has all rows. Nothing is counted or sorted; columns are ordered by head,
 * then by row.
 *
 *     head_rows   writes the lists of tiles. If `column` is given, it also gathers each head's parts of the rows
 *                 (heads_kernels.cuh packs rows without that)
 *     put_heads   copies results to their rows, followed by the values that are copied unchanged */
#ifndef PI_HEAD_LINEAR_KERNELS_CUH
#define PI_HEAD_LINEAR_KERNELS_CUH

#include "moe.cuh"

namespace head_linear {

enum { HEAD_THREADS = 128 };

/* Lists the tiles of head h; its columns are all rows. Every head has the same number of tiles in each list. */
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

/* Gathers each head's parts of the rows to `column`, if it is given, and lists the tiles. Grid: x = row, y = head;
 * without `column` one block per head. */
__global__ void __launch_bounds__(HEAD_THREADS) head_rows(pi__k_head_rows a)
{
    ptx_wait_dependency();
    const int32_t r = (int32_t) blockIdx.x, h = (int32_t) blockIdx.y;
    const float *x = a.x + r * a.ldx + h * a.x_step;
    float *to = a.column + ((int64_t) h * a.n_rows + r) * a.n_in;
    for (int64_t i = threadIdx.x; i < a.n_in && a.column; i += HEAD_THREADS) to[i] = x[i];
    if (r == 0 && threadIdx.x == 0) list_tiles(a, h);
}

/* Copies a head's result of a row to y, followed by the n_tail values after the head's part of x. Grid: x = row, y =
 * head. */
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
