/* Launches of kernels/expert_choice_kernels.cuh: grid (see kernels.h). */
#include "backend/cuda/launch.cuh"
#include "expert_choice_kernels.cuh"

/* What sorts the pairs is given the table; its weights are not read. */
static pi__k_routes by_table_of(const pi__k_expert_choice *a)
{
    pi__k_routes r = a->r;
    r.table = a->table, r.token = a->token;
    r.gating = PI__GATE_SIGMOID, r.bias = nullptr;
    return r;
}

int pi__k_expert_choice_run(void *stream, const pi__k_expert_choice *a)
{
    const pi__k_routes by_table = by_table_of(a);
    const int32_t rows = a->r.n_rows;
    if (rows < 1) return 0;
    if (a->n_group > PI__MAX_EXPERT_GROUPS || (a->n_group > 0 && a->r.n_expert % a->n_group)) return 1;
    if (a->r.n_used < 1 || a->r.n_used > a->r.n_expert) return 1;
    if (rows <= PI__K_ROUTER_ROWS && a->r.n_expert <= PI__MAX_EXPERTS) {
        const dim3 threads((unsigned) (rows <= CHOICE_WARPS ? CHOICE_WARPS : SORT_WARPS) * 32);
        return pi_launch_dependent(stream, choose_and_sort, dim3(1), threads, route_bytes(a->r), *a, by_table);
    }
    const dim3 grid((unsigned) (rows + CHOICE_WARPS - 1) / CHOICE_WARPS);
    if (int code = pi_launch_dependent(stream, expert_choice, grid, dim3(CHOICE_WARPS * 32), 0, *a)) return code;
    return pi__k_route(stream, &by_table);
}
