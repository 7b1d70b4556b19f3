/* Launches of kernels/hyper_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/launch.cuh"
#include "hyper_kernels.cuh"

int pi__k_hyper_pre(void *stream, const pi__hyper *a)
{
    if (a->n_rows < 1) return 0;
    const size_t shared = (HYPER_THREADS / 32 + S) * sizeof(float);
    return pi_launch_dependent(stream, hyper_pre, dim3((unsigned) a->n_rows), dim3(HYPER_THREADS), shared, *a);
}

int pi__k_hyper_post(void *stream, const pi__hyper *a)
{
    if (a->n_rows < 1) return 0;
    dim3 grid((unsigned) ((a->n + POST_THREADS - 1) / POST_THREADS), (unsigned) a->n_rows);
    return pi_launch_dependent(stream, hyper_post, grid, dim3(POST_THREADS), 0, *a);
}
