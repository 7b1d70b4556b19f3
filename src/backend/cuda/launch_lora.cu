/* Launches of kernels/lora_kernels.cuh and lora_experts_kernels.cuh: grid, shared memory (see kernels_lora.h). Grids
 * begin with x = group of rows. lora_shrink: y = matrix. lora_expand: y = LORA_THREADS columns, z = matrix. The expert
 * kernels add the group's pairs (rows * n_used) to y, or to z. */
#include "backend/cuda/launch.cuh"
#include "lora_experts_kernels.cuh"

using namespace lora;

int pi__k_lora_run(void *stream, const pi__k_lora *a)
{
    if (a->n_groups < 1 || a->n_lin < 1) return 0;
    const dim3 shrink((unsigned) a->n_groups, (unsigned) a->n_lin);
    const dim3 expand((unsigned) a->n_groups, (unsigned) ((a->max_out + LORA_THREADS - 1) / LORA_THREADS),
                      (unsigned) a->n_lin);
    const size_t tile = (PI__K_LORA_ROWS * LORA_TILE + LORA_WARPS) * sizeof(float);
    const int code = a->token ? pi_launch_dependent(stream, lora_look_up, dim3((unsigned) a->n_groups),
                                                    dim3(LORA_THREADS), 0, *a)
                              : pi_launch_dependent(stream, lora_shrink, shrink, dim3(LORA_THREADS), tile, *a);
    if (code) return code;
    return pi_launch_dependent(stream, lora_expand, expand, dim3(LORA_THREADS),
                               (size_t) a->max_rank * PI__K_LORA_ROWS * sizeof(float), *a);
}

int pi__k_lora_experts_shrink(void *stream, const pi__k_lora_experts *a)
{
    if (a->n_groups < 1 || a->n_lin < 1) return 0;
    const dim3 grid((unsigned) a->n_groups, (unsigned) (PI__K_LORA_ROWS * a->n_used), (unsigned) a->n_lin);
    return pi_launch_dependent(stream, lora_experts_shrink, grid, dim3(LORA_THREADS),
                               (LORA_TILE + LORA_WARPS) * sizeof(float), *a);
}

int pi__k_lora_experts_expand(void *stream, const pi__k_lora_experts *a)
{
    if (a->n_groups < 1 || a->n_lin < 1) return 0;
    const dim3 grid((unsigned) a->n_groups, (unsigned) ((a->max_out + LORA_THREADS - 1) / LORA_THREADS),
                    (unsigned) (PI__K_LORA_ROWS * a->n_used * a->n_lin));
    return pi_launch_dependent(stream, lora_experts_expand, grid, dim3(LORA_THREADS),
                               (size_t) a->max_rank * sizeof(float), *a);
}
