/* Launches of kernels/expert_cache_kernels.cuh (see kernels.h). */
#include "backend/cuda/launch.cuh"
#include "expert_cache_kernels.cuh"

using namespace expert_cache;

int pi__k_keep_experts(void *stream, const pi__k_expert_cache *c)
{
    const size_t bits = (2 * (size_t) ((c->n_expert + 31) / 32) + 1) * sizeof(uint32_t);
    if (c->n_slot < 1 || c->n_stack < 1 || c->n_expert < 1) return 1;
    for (int i = 0; i < c->n_stack; i++)
        if (c->stack[i].bytes % sizeof(uint4)) return 1;
    const int code = pi_launch_dependent(stream, choose_slots, dim3(1), dim3(CHOOSE_THREADS), bits, *c);
    const dim3 grid((unsigned) (c->n_sm > 0 ? c->n_sm : 1), (unsigned) c->n_stack);
    return code ? code : pi_launch_dependent(stream, fill_slots, grid, dim3(FILL_THREADS), 0, *c);
}
