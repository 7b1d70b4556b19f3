/* Launches of kernels/expert_choice_kernels.cuh: grid (see kernels.h). */
#include "backend/cuda/launch.cuh"
#include "expert_choice_kernels.cuh"

int pi__k_expert_choice_run(void *stream, const pi__k_expert_choice *a)
{
    if (a->r.n_rows < 1) return 0;
    if (a->n_group > PI__MAX_EXPERT_GROUPS || (a->n_group > 0 && a->r.n_expert % a->n_group)) return 1;
    const dim3 grid((unsigned) (a->r.n_rows + CHOICE_WARPS - 1) / CHOICE_WARPS);
    return pi_launch_dependent(stream, expert_choice, grid, dim3(CHOICE_WARPS * 32), 0, *a);
}
