/* Which experts a row goes to where these are chosen from the best of their groups, or where weights are not divided by their sum
 * (pi__moe of ops.h): a warp a row. What it leaves is a table for route.cuh, which sorts the pairs: of few rows in the same launch.
 *
 *     groups    a group's score is what its two best experts are chosen by, together; in a softmax its best one's. A lane has the
 *               scores of groups lane and lane + 32; the best are taken one after the other
 *     experts   the best of the groups that were taken, in the same way as without groups */
#ifndef PI_EXPERT_CHOICE_KERNELS_CUH
#define PI_EXPERT_CHOICE_KERNELS_CUH

#include "route.cuh"

enum { CHOICE_WARPS = 8, SORT_WARPS = 32 /* at most, of the block that also sorts */ };

PI_FN uint64_t warp_best(uint64_t v)
{
    for (int o = 16; o; o >>= 1) {
        const uint64_t other = __shfl_xor_sync(PI_FULL, v, o);
        v = other > v ? other : v;
    }
    return v;
}

/* The index in a key of rank_key. */
PI_FN int32_t index_of(uint64_t key) { return (int32_t) (0xffffffffu - (uint32_t) key); }

/* The lane's best of experts first.. up to end in open groups that is worse than `than`; 0: none. */
PI_FN uint64_t best_open(const pi__k_routes &r, const float *logits, int32_t first, int32_t end, int32_t each, uint64_t open, uint64_t than)
{
    uint64_t best = 0;
#pragma unroll 1 /* more of it spills registers */
    for (int32_t i = first + (int32_t) threadIdx.x % 32; i < end; i += 32) {
        const uint64_t k = rank_key(choice_of(r, logits, i), i);
        if ((open >> (i / each) & 1) && k < than && k > best) best = k;
    }
    return best;
}

/* Group g's score. */
PI_FN float group_score(const pi__k_routes &r, const float *logits, int32_t g, int32_t each)
{
    const uint64_t all = ~UINT64_C(0), first = warp_best(best_open(r, logits, g * each, (g + 1) * each, each, all, all));
    float score = choice_of(r, logits, index_of(first));
    if (each < 2 || r.gating == PI__GATE_SOFTMAX) return score;
    return score + choice_of(r, logits, index_of(warp_best(best_open(r, logits, g * each, (g + 1) * each, each, all, first))));
}

/* A bit for each group whose experts may be chosen. */
PI_FN uint64_t open_groups(const pi__k_expert_choice &a, const float *logits, int32_t each)
{
    const int lane = (int) threadIdx.x % 32;
    uint64_t key[2] = {0, 0}, open = 0;
    for (int32_t g = 0; g < a.n_group; g++) {
        const uint64_t k = rank_key(group_score(a.r, logits, g, each), g);
        if (g % 32 == lane) key[0] = g < 32 ? k : key[0], key[1] = g < 32 ? key[1] : k;
    }
    for (int32_t i = 0; i < a.n_group_used; i++) {
        const uint64_t best = warp_best(key[0] > key[1] ? key[0] : key[1]);
        open |= UINT64_C(1) << index_of(best);
        key[0] = key[0] == best ? 0 : key[0];
        key[1] = key[1] == best ? 0 : key[1];
    }
    return open;
}

/* The experts of a row, and their weights. */
PI_FN void choose_row(const pi__k_expert_choice &a, int32_t row)
{
    const int32_t n = a.r.n_expert, n_used = a.r.n_used;
    const int lane = (int) threadIdx.x % 32;
    const float *logits = a.r.logits + row * a.r.ldl;
    const bool grouped = a.n_group > 0, soft = a.r.gating == PI__GATE_SOFTMAX;
    const int32_t each = grouped ? n / a.n_group : n;
    const uint64_t open = grouped ? open_groups(a, logits, each) : 1;
    int32_t *id = a.table + (size_t) row * (size_t) n_used;
    float *weight = a.weight + (size_t) row * (size_t) n_used, most = 0, all = 1, sum = 0;
    uint64_t than = ~UINT64_C(0);
#pragma unroll 1
    for (int32_t k = 0; k < n_used; k++) {
        than = warp_best(best_open(a.r, logits, 0, n, each, open, than));
        if (lane == 0) id[k] = index_of(than);
    }
    if (lane == 0) a.token[row] = row;
    __syncwarp();
    if (soft) {
        most = soft_logit(a.r, logits, id[0]);
        all = 0;
        for (int32_t i = lane; i < n; i += 32) all += expf(soft_logit(a.r, logits, i) - most);
        all = warp_sum(all);
    }
    for (int32_t k = 0; k < n_used; k++) {
        const float w = soft ? expf(soft_logit(a.r, logits, id[k]) - most) / all : own_gate(a.r, logits[id[k]]);
        sum += w;
        if (lane == 0) weight[k] = w;
    }
    if (sum < PI__K_LEAST_SUM) sum = PI__K_LEAST_SUM;
    __syncwarp();
    for (int32_t k = lane; k < n_used; k += 32) weight[k] = (a.undivided ? weight[k] : weight[k] / sum) * a.r.weights_scale;
}

__global__ void __launch_bounds__(CHOICE_WARPS * 32) expert_choice(pi__k_expert_choice a)
{
    ptx_take_turn();
    const int32_t row = (int32_t) blockIdx.x * CHOICE_WARPS + (int32_t) threadIdx.x / 32;
    if (row < a.r.n_rows) choose_row(a, row);
}

/* All of few rows in a block, which then sorts their pairs. by_table: a.r with the table that is made here. */
__global__ void __launch_bounds__(SORT_WARPS * 32, 1) choose_and_sort(PI_CONSTANT pi__k_expert_choice a, PI_CONSTANT pi__k_routes by_table)
{
    ptx_take_turn();
    PI_SMEM(raw);
    for (int32_t row = (int32_t) threadIdx.x / 32; row < a.r.n_rows; row += (int32_t) blockDim.x / 32) choose_row(a, row);
    __syncthreads();
    route_all(by_table, raw);
}

#endif
