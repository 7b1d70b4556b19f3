/* Launches of kernels/expert_choice_kernels.cuh (see kernels.h). For up to PI__K_ROUTER_ROWS rows, one block chooses
 * the experts and sorts the pairs. For more rows, one warp per row chooses; then pi__k_route() sorts. */
#include "backend/cuda/launch.cuh"
#include "expert_choice_kernels.cuh"

int pi__k_expert_choice_run(void *stream, const pi__k_expert_choice *a)
{
    const pi__k_routes by_table = routes_by_table(*a);
    const int32_t rows = a->r.n_rows;
    if (rows < 1) return 0;
    if (!choice_is_right(*a)) return 1;
    if (rows <= PI__K_ROUTER_ROWS && a->r.n_expert <= PI__MAX_EXPERTS) {
        const dim3 threads((unsigned) (rows <= CHOICE_WARPS ? CHOICE_WARPS : SORT_WARPS) * 32);
        return pi_launch_dependent(stream, choose_and_sort, dim3(1), threads, route_bytes(a->r), *a, by_table);
    }
    const dim3 grid((unsigned) (rows + CHOICE_WARPS - 1) / CHOICE_WARPS);
    if (int code = pi_launch_dependent(stream, expert_choice, grid, dim3(CHOICE_WARPS * 32), 0, *a)) return code;
    return pi__k_route(stream, &by_table);
}
