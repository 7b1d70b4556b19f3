/* Launches of kernels/draw_kernels.cuh (see kernels_draw.h). */
#include "backend/cuda/launch.cuh"
#include "draw_kernels.cuh"

int pi__k_draw_run(void *stream, const pi__k_draw *a)
{
    static_assert((int) MOST_KEYS == (int) PI__K_TOP, "all that topk finds");
    if (a->n_rows < 1) return 0;
    return pi_launch_dependent(stream, draw_tokens, dim3((unsigned) a->n_rows), dim3(LANES), sizeof(hat), *a);
}
