/* Which experts a row goes to, and with what weights: by a warp. The gate of an expert is the softmax over all logits, or
 * sqrt(log(1 + e^logit)) of its own. The experts with the best gates (plus a bias, where there is one) are chosen, or those
 * of the row's token in a table; weights are their gates, divided by the sum. */
#ifndef PI_ROUTE_CUH
#define PI_ROUTE_CUH

#include "backend/cuda/kernels.h"
#include "warp.cuh"

/* A value and its index as one number, the better the larger: by value, then the lower index; NaN is the worst. */
PI_FN uint64_t rank_key(float f, int32_t i)
{
    return (uint64_t) rank_of(f) << 32 | (0xffffffffu - (uint32_t) i);
}

PI_FN float sqrt_softplus(float x) { return sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)))); }

/* What expert i is chosen by: softmax keeps the order of logits. */
PI_FN float choice_of(const pi__k_routes &a, const float *logits, int32_t i)
{
    if (a.gating == PI__GATE_SOFTMAX) return logits[i];
    return sqrt_softplus(logits[i]) + (a.bias ? a.bias[i] : 0.0f);
}

/* The lane's best expert that is worse than `than`; 0: none. */
PI_FN uint64_t next_best(const pi__k_routes &a, const float *logits, uint64_t than)
{
    uint64_t best = 0;
    for (int32_t i = (int32_t) threadIdx.x % 32; i < a.n_expert; i += 32) {
        uint64_t k = rank_key(choice_of(a, logits, i), i);
        if (k < than && k > best) best = k;
    }
    return best;
}

/* The ids of the n_used best experts, by rank. */
PI_FN void choose_experts(const pi__k_routes &a, const float *logits, int32_t *id)
{
    uint64_t mine = next_best(a, logits, ~UINT64_C(0));
    for (int32_t k = 0; k < a.n_used; k++) {
        uint64_t best = mine;
        for (int o = 16; o; o >>= 1) {
            uint64_t v = __shfl_xor_sync(PI_FULL, best, o);
            best = v > best ? v : best;
        }
        if (threadIdx.x % 32 == 0) id[k] = (int32_t) (0xffffffffu - (uint32_t) best);
        if (mine == best) mine = next_best(a, logits, best);
    }
}

/* Experts of row r and their weights. */
PI_FN void route_row(const pi__k_routes &a, int64_t r)
{
    const float *logits = a.logits + r * a.ldl;
    int32_t *id = a.id + r * a.n_used;
    float *weight = a.weight + r * a.n_used, most = 0, all = 1, sum = 0;
    int lane = (int) threadIdx.x % 32;
    if (!a.table) choose_experts(a, logits, id);
    for (int32_t k = lane; k < a.n_used && a.table; k += 32) id[k] = a.table[(size_t) a.token[r] * (size_t) a.n_used + k];
    __syncwarp();
    if (a.gating == PI__GATE_SOFTMAX) {
        most = logits[id[0]];
        all = 0;
        for (int32_t i = lane; i < a.n_expert; i += 32) all += expf(logits[i] - most);
        all = warp_sum(all);
    }
    for (int32_t k = 0; k < a.n_used; k++) {
        const float x = logits[id[k]], w = a.gating == PI__GATE_SOFTMAX ? expf(x - most) / all : sqrt_softplus(x);
        sum += w;
        if (lane == 0) weight[k] = w;
    }
    if (sum < PI__K_LEAST_SUM) sum = PI__K_LEAST_SUM;
    __syncwarp();
    for (int32_t k = lane; k < a.n_used; k += 32) weight[k] = weight[k] / sum * a.weights_scale;
}

#endif
