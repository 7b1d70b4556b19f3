/* Which experts a row goes to, and with what weights: by a warp. Where rows are few, a block of threads then sorts their pairs
 * (moe_kernels.cuh says what these are), in a launch of its own, or as the tail of one that made the logits.
 *
 * The gate of an expert is the softmax over all logits (plus a bias, where there is one), or sqrt(log(1 + e^logit)) or sigmoid of
 * its own. The experts with the best gates (of these plus a bias, where there is one) are chosen, or those of the row's token in a
 * table; weights are their gates, divided by the sum. */
#ifndef PI_ROUTE_CUH
#define PI_ROUTE_CUH

#include "moe.cuh"
#include "warp.cuh"

/* A value and its index as one number, the better the larger: by value, then the lower index; NaN is the worst. */
PI_FN uint64_t rank_key(float f, int32_t i)
{
    return (uint64_t) rank_of(f) << 32 | (0xffffffffu - (uint32_t) i);
}

PI_FN float sqrt_softplus(float x) { return sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)))); }

/* The gate of a logit, where it is that logit's own. */
PI_FN float own_gate(const pi__k_routes &a, float x) { return a.gating == PI__GATE_SIGMOID ? 1.0f / (1.0f + expf(-x)) : sqrt_softplus(x); }

/* Expert i's part of the softmax. */
PI_FN float soft_logit(const pi__k_routes &a, const float *logits, int32_t i) { return a.bias ? logits[i] + a.bias[i] : logits[i]; }

/* What expert i is chosen by: softmax keeps the order of logits. */
PI_FN float choice_of(const pi__k_routes &a, const float *logits, int32_t i)
{
    if (a.gating == PI__GATE_SOFTMAX) return soft_logit(a, logits, i);
    return own_gate(a, logits[i]) + (a.bias ? a.bias[i] : 0.0f);
}

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

/* Keys of the lane's experts, lane, lane + 32 .., what these are chosen by: in registers while they are HELD at most; 0: none. Of more
 * they are made anew each time. */
enum { HELD_KEYS = 8 /* of a lane */, HELD = 32 * HELD_KEYS };
struct held_keys {
    uint64_t key[HELD_KEYS];
};
PI_FN held_keys hold_keys(const pi__k_routes &r, const float *logits)
{
    held_keys h;
#pragma unroll
    for (int j = 0; j < HELD_KEYS; j++) {
        const int32_t i = (int32_t) threadIdx.x % 32 + 32 * j;
        h.key[j] = i < r.n_expert && r.n_expert <= HELD ? rank_key(choice_of(r, logits, i), i) : 0;
    }
    return h;
}

/* The lane's best expert that is worse than `than`; 0: none. */
PI_FN uint64_t next_best(const pi__k_routes &a, const float *logits, const held_keys &h, uint64_t than)
{
    uint64_t best = 0;
    auto see = [&](uint64_t k) { best = k < than && k > best ? k : best; };
    if (a.n_expert <= HELD) {
#pragma unroll
        for (int j = 0; j < HELD_KEYS; j++) see(h.key[j]);
    } else {
#pragma unroll 1
        for (int32_t i = (int32_t) threadIdx.x % 32; i < a.n_expert; i += 32) see(rank_key(choice_of(a, logits, i), i));
    }
    return best;
}

/* The ids of the n_used best experts, by rank. */
PI_FN void choose_experts(const pi__k_routes &a, const float *logits, int32_t *id)
{
    const held_keys h = hold_keys(a, logits);
    uint64_t than = ~UINT64_C(0);
#pragma unroll 1
    for (int32_t k = 0; k < a.n_used; k++) {
        than = warp_best(next_best(a, logits, h, than));
        if (threadIdx.x % 32 == 0) id[k] = index_of(than);
    }
}

/* Weights of the experts that are chosen, a lane each: their gates. Returns the sum, added up by rank. By a warp. */
PI_FN float weigh_experts(const pi__k_routes &a, const float *logits, const int32_t *id, float *weight)
{
    const bool soft = a.gating == PI__GATE_SOFTMAX;
    const int32_t lane = (int32_t) threadIdx.x % 32, n_used = a.n_used;
    float most = 0, all = 1, sum = 0;
    if (soft) {
        most = soft_logit(a, logits, id[0]);
        all = 0;
        for (int32_t i = lane; i < a.n_expert; i += 32) all += expf(soft_logit(a, logits, i) - most);
        all = warp_sum(all);
    }
    for (int32_t first = 0; first < n_used; first += 32) {
        const int32_t k = first + lane, i = id[min(k, n_used - 1)];
        const float w = soft ? expf(soft_logit(a, logits, i) - most) / all : own_gate(a, logits[i]);
        for (int32_t j = 0; j < min(n_used - first, 32); j++) sum += __shfl_sync(PI_FULL, w, j);
        if (k < n_used) weight[k] = w;
    }
    return sum < PI__K_LEAST_SUM ? PI__K_LEAST_SUM : sum;
}

/* Experts of row r and their weights. */
PI_FN void route_row(const pi__k_routes &a, int64_t r)
{
    const float *logits = a.logits + r * a.ldl;
    int32_t *id = a.id + r * a.n_used;
    float *weight = a.weight + r * a.n_used;
    const int lane = (int) threadIdx.x % 32;
    if (!a.table) choose_experts(a, logits, id);
    for (int32_t k = lane; k < a.n_used && a.table; k += 32) id[k] = a.table[(size_t) a.token[r] * (size_t) a.n_used + k];
    __syncwarp();
    const float sum = weigh_experts(a, logits, id, weight);
    for (int32_t k = lane; k < a.n_used; k += 32) weight[k] = weight[k] / sum * a.weights_scale;
}

/* The tiles of expert e, whose n columns begin with `first`. */
PI_FN void make_tiles(const pi__k_routes &a, int32_t e, int32_t first, int32_t n)
{
    int32_t left = n % MANY, many = n / MANY + (left > SOME), list = left > FEW;
    if (left && left <= SOME) {
        pi__k_tile *tile = list ? a.tile[1] : a.tile[0];
        tile[atomicAdd(&a.n_tile[list], 1)] = {e, first + many * MANY, left};
    }
    int32_t at = many ? atomicAdd(&a.n_tile[2], many) : 0;
    for (int32_t i = 0; i < many; i++) a.tile[2][at + i] = {e, first + i * MANY, min((int32_t) MANY, n - i * MANY)};
}

/* carry plus the v of all threads before this one, and that of all is carry then. sums: [32], not in use any more when it
 * returns. */
PI_FN int32_t sum_before(int32_t v, int32_t &carry, int32_t *sums)
{
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, n_warp = (int) blockDim.x / 32;
    int32_t sum = v, before = carry;
    for (int o = 1; o < 32; o *= 2) {
        int32_t up = __shfl_up_sync(PI_FULL, sum, (unsigned) o);
        if (lane >= o) sum += up;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    for (int i = 0; i < n_warp; i++) {
        if (i == warp) before = carry;
        carry += sums[i];
    }
    __syncthreads();
    return before + sum - v;
}

/* Marks row r (of 32) at its experts, by a warp. */
PI_FN void mark(const pi__k_routes &a, int64_t row, int r, uint32_t *marks)
{
    for (int32_t k = (int32_t) threadIdx.x % 32; k < a.n_used; k += 32) atomicOr(&marks[a.id[row * a.n_used + k]], 1u << r);
}

/* The columns of a row's pairs, by a warp; first: of each expert's columns with rows of these 32. */
PI_FN void sort_row(const pi__k_routes &a, int64_t row, int r, const uint32_t *marks, const int32_t *first)
{
    for (int32_t k = (int32_t) threadIdx.x % 32; k < a.n_used; k += 32) {
        int32_t e = a.id[row * a.n_used + k], column = first[e] + __popc(marks[e] & ((1u << r) - 1));
        a.column[row * a.n_used + k] = column;
        a.row[column] = (int32_t) row;
    }
}

/* Bytes of shared memory of route_all. */
static inline size_t route_bytes(const pi__k_routes &a) { return 32 * sizeof(int32_t) + 2 * sizeof(uint32_t) * (size_t) a.n_expert; }

/* By a block of threads, any number of them: at most 32 rows. raw: sums, the first column of each expert, marks. */
PI_FN void route_all(const pi__k_routes &a, unsigned char *raw)
{
    int32_t *sums = (int32_t *) raw, *first = sums + 32, carry = 0, e = (int32_t) threadIdx.x;
    const int32_t threads = (int32_t) blockDim.x;
    uint32_t *marks = (uint32_t *) (first + a.n_expert);
    if (e < 3) a.n_tile[e] = 0;
    for (int32_t i = e; i < a.n_expert; i += threads) marks[i] = 0;
    __syncthreads();
    for (int32_t r = e / 32; r < a.n_rows; r += threads / 32) {
        route_row(a, r);
        __syncwarp();
        mark(a, r, r, marks);
    }
    __syncthreads();
    for (int32_t e0 = 0; e0 < a.n_expert; e0 += threads) {
        int32_t n = e0 + e < a.n_expert ? __popc(marks[e0 + e]) : 0, at = sum_before(n, carry, sums);
        if (n) first[e0 + e] = at, make_tiles(a, e0 + e, at, n);
    }
    __syncthreads();
    for (int32_t r = e / 32; r < a.n_rows; r += threads / 32) sort_row(a, r, r, marks, first);
}

#endif
