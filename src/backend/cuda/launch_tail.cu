/* Launches of kernels/tail_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/launch.cuh"
#include "tail_kernels.cuh"

int pi__k_finish_rows(void *stream, const pi__k_tail *t)
{
    if (t->n_rows < 1) return 0;
    return pi_launch(stream, finish_rows, dim3((unsigned) t->n_rows), dim3(THREADS), TAIL_SCRATCH * sizeof(float), *t);
}
