/* Launch of kernels/lora_heads_kernels.cuh (see kernels_lora.h). Grid: x = group of rows, y = head. Shared memory: x
 * and A x of the group's rows, as floats. */
#include "backend/cuda/launch.cuh"
#include "lora_heads_kernels.cuh"

using namespace lora;

int pi__k_lora_heads_run(void *stream, const pi__k_lora_heads *a)
{
    if (a->n_groups < 1) return 0;
    const size_t shared = PI__K_LORA_ROWS * ((size_t) a->n_in + (size_t) a->max_rank) * sizeof(float);
    return pi_launch_dependent(stream, lora_heads, dim3((unsigned) a->n_groups, (unsigned) a->n_head),
                               dim3(LORA_THREADS), shared, *a);
}
