/* Chooses a row's experts in cases that route.cuh does not support: experts from the best groups, or weights that are
 * not divided by their sum (pi__moe of ops.h). A warp handles a row: choose_row(). The result is a table of expert ids
 * per row [n_rows][n_used], and weights. The table is an input of route.cuh, which sorts the pairs of row and expert.
 *
 *     groups    a group's score is the sum of its two best experts' choice values; for softmax the best one's value. A
 *               lane has the scores of groups lane and lane + 32. The best groups are taken one after the other
 *     experts   the best experts of the chosen groups, as without groups
 *
 * An expert's choice value is its gate plus its bias (choice_of()). Its key is the choice value with its index; larger
 * keys are better (rank_key()). A key needs a gate function, and is read once for every group and every chosen expert.
 * So lanes keep the keys in registers (held_keys of route.cuh). */
#ifndef PI_EXPERT_CHOICE_CUH
#define PI_EXPERT_CHOICE_CUH

#include "route.cuh"

/* Returns the best key below `than` of experts first .. end - 1, to all lanes of the warp; 0 = none. open: bit mask of
 * groups; only experts of groups with a set bit count. each: experts per group. */
PI_FN uint64_t best_open(const pi__k_routes &r, const float *logits, const held_keys &h, int32_t first, int32_t end,
                         int32_t each, uint64_t open, uint64_t than)
{
    const int32_t lane = (int32_t) threadIdx.x % 32;
    uint64_t best = 0;
    auto see = [&](uint64_t k, int32_t i) {
        if (((open >> (i / each)) & 1) && k < than && k > best) best = k;
    };
    if (r.n_expert <= HELD) {
#pragma unroll
        for (int j = 0; j < HELD_KEYS; j++)
            if (lane + 32 * j >= first && lane + 32 * j < end) see(h.key[j], lane + 32 * j);
    } else {
#pragma unroll 1 /* no unrolling: it would spill registers */
        for (int32_t i = first + lane; i < end; i += 32) see(rank_key(choice_of(r, logits, h.log_all, i), i), i);
    }
    return warp_best(best);
}

/* Returns the score of a group from its two best keys. second == 0: only the first key counts. */
PI_FN float group_score(const pi__k_routes &r, const float *logits, float log_all, uint64_t first, uint64_t second)
{
    const float score = choice_of(r, logits, log_all, index_of(first));
    return second ? score + choice_of(r, logits, log_all, index_of(second)) : score;
}

/* Returns the bit mask of the a.n_group_used best groups. each: experts per group. */
PI_FN uint64_t open_groups(const pi__k_expert_choice &a, const float *logits, const held_keys &h, int32_t each)
{
    const int lane = (int) threadIdx.x % 32;
    const bool two = each >= 2 && a.r.gating != PI__GATE_SOFTMAX;
    const uint64_t all = ~UINT64_C(0);
    uint64_t best[2][2] = {}, key[2], open = 0; /* best[k][0..1]: the two best keys of group lane + 32 k */
    /* The best keys of each group g; lane g % 32 keeps them. */
#pragma unroll 2
    for (int32_t g = 0; g < a.n_group; g++) {
        const uint64_t first = best_open(a.r, logits, h, g * each, (g + 1) * each, each, all, all);
        const uint64_t second = two ? best_open(a.r, logits, h, g * each, (g + 1) * each, each, all, first) : 0;
        if (g % 32 != lane) continue;
        if (g < 32) best[0][0] = first, best[0][1] = second;
        else best[1][0] = first, best[1][1] = second;
    }
    /* Scores of the lane's groups, then the best groups one by one. */
    for (int k = 0; k < 2; k++)
        key[k] = best[k][0] ? rank_key(group_score(a.r, logits, h.log_all, best[k][0], best[k][1]), lane + 32 * k) : 0;
    for (int32_t i = 0; i < a.n_group_used; i++) {
        const uint64_t next = warp_best(key[0] > key[1] ? key[0] : key[1]);
        open |= UINT64_C(1) << index_of(next);
        key[0] = key[0] == next ? 0 : key[0];
        key[1] = key[1] == next ? 0 : key[1];
    }
    return open;
}

/* Writes the ids of the row's n_used best experts to id [n_used], best first. logits: [n_expert]. Called by a warp. */
PI_FN void choose_ids(const pi__k_expert_choice &a, const float *logits, int32_t *id)
{
    const int32_t n = a.r.n_expert, each = a.n_group > 0 ? n / a.n_group : n;
    const held_keys h = hold_keys(a.r, logits);
    const uint64_t open = a.n_group > 0 ? open_groups(a, logits, h, each) : 1;
    uint64_t than = ~UINT64_C(0);
#pragma unroll 1
    for (int32_t k = 0; k < a.r.n_used; k++) {
        than = best_open(a.r, logits, h, 0, n, each, open, than);
        if (threadIdx.x % 32 == 0) id[k] = index_of(than);
    }
}

/* Writes the expert ids of row `row` to a.table, the weights to a.weight, and the row's index to a.token. Called by a
 * warp. */
PI_FN void choose_row(const pi__k_expert_choice &a, int32_t row)
{
    const int32_t n_used = a.r.n_used;
    const int lane = (int) threadIdx.x % 32;
    const float *logits = a.r.logits + row * a.r.ldl;
    int32_t *id = a.table + (size_t) row * (size_t) n_used;
    float *weight = a.weight + (size_t) row * (size_t) n_used;
    choose_ids(a, logits, id);
    if (lane == 0) a.token[row] = row;
    __syncwarp();
    const float sum = weigh_experts(a.r, logits, id, weight);
    for (int32_t k = lane; k < n_used; k += 32)
        weight[k] = (a.undivided ? weight[k] : weight[k] / sum) * a.r.weights_scale;
}

/* Returns the arguments for route.cuh, which sorts the pairs of a.table. It also computes weights, which are not used,
 * so the gating is one that needs few instructions. */
static inline pi__k_routes routes_by_table(const pi__k_expert_choice &a)
{
    pi__k_routes r = a.r;
    r.table = a.table, r.token = a.token;
    r.gating = PI__GATE_SIGMOID, r.bias = nullptr;
    return r;
}

/* True if the numbers of groups, experts, and experts per row are supported. */
static inline bool choice_is_right(const pi__k_expert_choice &a)
{
    if (a.n_group > PI__MAX_EXPERT_GROUPS || (a.n_group > 0 && a.r.n_expert % a.n_group)) return false;
    return a.r.n_used > 0 && a.r.n_used <= a.r.n_expert;
}

/* Chooses the experts of all rows (at most 32) in one block of threads, which then sorts their pairs. by_table: result
 * of routes_by_table(). raw: shared memory as for route_all(). */
PI_FN void choose_all(const pi__k_expert_choice &a, const pi__k_routes &by_table, unsigned char *raw)
{
    for (int32_t row = (int32_t) threadIdx.x / 32; row < a.r.n_rows; row += (int32_t) blockDim.x / 32)
        choose_row(a, row);
    __syncthreads();
    route_all(by_table, raw);
}

#endif
