/* Launches of kernels/head_linear_kernels.cuh (see kernels.h). Grid: x = row, y = head; without `column`, head_rows
 * only lists tiles, with one block per head. */
#include "backend/cuda/launch.cuh"
#include "head_linear_kernels.cuh"

using namespace head_linear;

static dim3 grid_of(const pi__k_head_rows *a) { return dim3((unsigned) a->n_rows, (unsigned) a->n_head); }

int pi__k_head_rows_run(void *stream, const pi__k_head_rows *a)
{
    if (a->n_rows < 1) return 0;
    const dim3 grid = a->column ? grid_of(a) : dim3(1, (unsigned) a->n_head);
    return pi_launch_dependent(stream, head_rows, grid, dim3(HEAD_THREADS), 0, *a);
}

int pi__k_scatter_heads(void *stream, const pi__k_head_rows *a)
{
    if (a->n_rows < 1) return 0;
    return pi_launch_dependent(stream, put_heads, grid_of(a), dim3(HEAD_THREADS), 0, *a);
}
