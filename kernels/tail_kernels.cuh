/* The tail of launches as one of its own (tail.cuh), where rows are many or nothing was launched that it could be the tail of: a
 * block a row. */
#ifndef PI_TAIL_KERNELS_CUH
#define PI_TAIL_KERNELS_CUH

#include "tail.cuh"

__global__ void __launch_bounds__(THREADS, 3) finish_rows(PI_CONSTANT pi__k_tail t)
{
    ptx_take_turn();
    PI_SMEM(raw);
    tail_row<false>(t, blockIdx.x, {0, 1}, (float *) raw);
}

#endif
