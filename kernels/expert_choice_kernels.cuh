/* Expert choice with groups or undivided weights (expert_choice.cuh), a warp per row. expert_choice() only chooses;
 * another launch sorts. For up to 32 rows, choose_and_sort() does both in one launch, unless the work is fused into the
 * product that computes the logits (mixed_kernels.cuh). */
#ifndef PI_EXPERT_CHOICE_KERNELS_CUH
#define PI_EXPERT_CHOICE_KERNELS_CUH

#include "expert_choice.cuh"

enum { CHOICE_WARPS = 8, SORT_WARPS = 32 /* max warps of the block that also sorts */ };

/* Grid: CHOICE_WARPS rows per block. */
__global__ void __launch_bounds__(CHOICE_WARPS * 32) expert_choice(pi__k_expert_choice a)
{
    ptx_wait_dependency();
    const int32_t row = (int32_t) blockIdx.x * CHOICE_WARPS + (int32_t) threadIdx.x / 32;
    if (row < a.r.n_rows) choose_row(a, row);
}

/* Grid: one block. Shared: as for route_all(). */
__global__ void __launch_bounds__(SORT_WARPS * 32, 1)
    choose_and_sort(PI_CONSTANT pi__k_expert_choice a, PI_CONSTANT pi__k_routes by_table)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    choose_all(a, by_table, raw);
}

#endif
