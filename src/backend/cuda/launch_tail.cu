/* Launches of kernels/tail_kernels.cuh (see kernels.h), one block per row. finish_held<N> keeps a row's values in
 * registers, at most N per thread; finish_rows handles every other row and epilogue. */
#include "backend/cuda/launch.cuh"
#include "tail_kernels.cuh"

int pi__k_finish_rows(void *stream, const pi__k_tail *t)
{
    if (t->n_rows < 1) return 0;
    const int values = held_values(*t);
    auto kernel = values > 24   ? finish_held<MAX_HELD>
                  : values > 16 ? finish_held<24>
                  : values > 8  ? finish_held<16>
                                : finish_held<8>;
    if (!values) kernel = finish_rows;
    return pi_launch_dependent(stream, kernel, dim3((unsigned) t->n_rows), dim3(THREADS), TAIL_SCRATCH * sizeof(float),
                               *t);
}
