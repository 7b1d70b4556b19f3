/* MoE routing: route_row() chooses the experts of a row and their weights, by a warp. route_all() routes up to 32 rows
 * in one thread block and sorts the pairs of row and expert by expert (moe_kernels.cuh). It runs in a separate launch
 * or in the epilogue of the launch that computes the logits. Input and output: pi__k_routes.
 *
 * An expert's gate is the softmax over all logits plus an optional bias, sqrt(log(1 + e^logit)), or sigmoid(logit). The
 * experts with the best gates are chosen; the gates of all gatings but SOFTMAX may get a bias for this choice.
 * Alternatively a table lists the experts of the row's token. Weights are the gates divided by their sum, times
 * weights_scale. SPARSEMIXER ranks experts by logit and has weights of its own (weigh_close()). */
#ifndef PI_ROUTE_CUH
#define PI_ROUTE_CUH

#include "moe.cuh"
#include "warp.cuh"

/* Returns a key for value f with index i. The larger of two keys is the better: larger value, then smaller index. NaN
 * is the worst. */
PI_FN uint64_t rank_key(float f, int32_t i)
{
    return (uint64_t) rank_of(f) << 32 | (0xffffffffu - (uint32_t) i);
}

PI_FN float sqrt_softplus(float x) { return sqrtf(fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)))); }

/* Returns log(sum of e^logit) of a row for SOFTMAX_CHOICE; 0 for other gatings, which do not use it. Called by a
 * warp. */
PI_FN float log_sum(const pi__k_routes &a, const float *logits)
{
    if (a.gating != PI__GATE_SOFTMAX_CHOICE) return 0;
    const int32_t lane = (int32_t) threadIdx.x % 32;
    float most = logits[0], all = 0;
    for (int32_t i = lane; i < a.n_expert; i += 32) most = fmaxf(most, logits[i]);
    most = warp_max(most);
    for (int32_t i = lane; i < a.n_expert; i += 32) all += expf(logits[i] - most);
    return most + logf(warp_sum(all));
}

/* Returns the gate of logit x, for all gatings except SOFTMAX. log_all: log_sum() of the row. */
PI_FN float own_gate(const pi__k_routes &a, float x, float log_all)
{
    if (a.gating == PI__GATE_SOFTMAX_CHOICE) return expf(x - log_all);
    return a.gating == PI__GATE_SIGMOID ? 1.0f / (1.0f + expf(-x)) : sqrt_softplus(x);
}

/* Returns the input of the softmax for expert i: logit plus bias. */
PI_FN float soft_logit(const pi__k_routes &a, const float *logits, int32_t i)
{
    return a.bias ? logits[i] + a.bias[i] : logits[i];
}

/* Returns the value that ranks expert i. For softmaxes this is the input, which has the order of the gates and needs no
 * exp. */
PI_FN float choice_of(const pi__k_routes &a, const float *logits, float log_all, int32_t i)
{
    if (a.gating == PI__GATE_SOFTMAX || a.gating == PI__GATE_SPARSEMIXER) return soft_logit(a, logits, i);
    return own_gate(a, logits[i], log_all) + (a.bias ? a.bias[i] : 0.0f);
}

/* Returns the largest v of the warp, to all lanes. */
PI_FN uint64_t warp_best(uint64_t v)
{
    for (int o = 16; o; o >>= 1) {
        const uint64_t other = __shfl_xor_sync(PI_FULL, v, o);
        v = other > v ? other : v;
    }
    return v;
}

/* Returns the index that a rank_key() contains. */
PI_FN int32_t index_of(uint64_t key) { return (int32_t) (0xffffffffu - (uint32_t) key); }

/* Keys of the lane's experts: lane, lane + 32, .. They stay in registers for up to HELD experts. With more experts, the
 * keys are recomputed for each rank. 0 = no expert. */
enum { HELD_KEYS = 8 /* keys per lane */, HELD = 32 * HELD_KEYS };
struct held_keys {
    float log_all; /* log_sum() of the row */
    uint64_t key[HELD_KEYS];
};
PI_FN held_keys hold_keys(const pi__k_routes &r, const float *logits)
{
    held_keys h;
    h.log_all = log_sum(r, logits);
#pragma unroll
    for (int j = 0; j < HELD_KEYS; j++) {
        const int32_t i = (int32_t) threadIdx.x % 32 + 32 * j;
        h.key[j] = i < r.n_expert && r.n_expert <= HELD ? rank_key(choice_of(r, logits, h.log_all, i), i) : 0;
    }
    return h;
}

/* Returns the best key of the lane's experts below `than`, or 0 if there is none. */
PI_FN uint64_t next_best(const pi__k_routes &a, const float *logits, const held_keys &h, uint64_t than)
{
    uint64_t best = 0;
    auto see = [&](uint64_t k) { best = k < than && k > best ? k : best; };
    if (a.n_expert <= HELD) {
#pragma unroll
        for (int j = 0; j < HELD_KEYS; j++) see(h.key[j]);
    } else {
#pragma unroll 1
        for (int32_t i = (int32_t) threadIdx.x % 32; i < a.n_expert; i += 32)
            see(rank_key(choice_of(a, logits, h.log_all, i), i));
    }
    return best;
}

/* Writes the ids of the n_used best experts of a row to id, best first. Called by a warp. */
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

/* Computes the weights of SPARSEMIXER for the n_used experts id: the softmax of each over itself and the close experts
 * that were not chosen before it (PI__MIXER_REACH). Returns 1: the weights are not divided. Called by a warp. */
PI_FN float weigh_close(const pi__k_routes &a, const float *logits, const int32_t *id, float *weight)
{
    const int32_t lane = (int32_t) threadIdx.x % 32;
#pragma unroll 1
    for (int32_t k = 0; k < a.n_used; k++) {
        const int32_t own = id[k];
        const float chosen = logits[own];
        float sum = 0;
        for (int32_t i = lane; i < a.n_expert; i += 32) {
            const float x = logits[i];
            bool in = i == own || chosen - x <= PI__MIXER_REACH * fmaxf(fabsf(x), chosen);
            for (int32_t j = 0; j < k; j++) in = in && id[j] != i;
            if (in) sum += expf(x - chosen);
        }
        sum = warp_sum(sum);
        if (lane == 0) weight[k] = 1.0f / sum;
    }
    __syncwarp();
    return 1;
}

/* Computes the gates of the n_used experts id, one per lane, to `weight`. Returns their sum, added by rank, but at
 * least PI__K_MIN_SUM. Called by a warp. */
PI_FN float weigh_experts(const pi__k_routes &a, const float *logits, const int32_t *id, float *weight)
{
    if (a.gating == PI__GATE_SPARSEMIXER) return weigh_close(a, logits, id, weight);
    const bool soft = a.gating == PI__GATE_SOFTMAX;
    const int32_t lane = (int32_t) threadIdx.x % 32, n_used = a.n_used;
    float most = 0, all = 1, sum = 0;
    const float log_all = log_sum(a, logits);
    if (soft) {
        most = soft_logit(a, logits, id[0]);
        all = 0;
        for (int32_t i = lane; i < a.n_expert; i += 32) all += expf(soft_logit(a, logits, i) - most);
        all = warp_sum(all);
    }
    for (int32_t first = 0; first < n_used; first += 32) {
        const int32_t k = first + lane, i = id[min(k, n_used - 1)];
        const float w = soft ? expf(soft_logit(a, logits, i) - most) / all : own_gate(a, logits[i], log_all);
        for (int32_t j = 0; j < min(n_used - first, 32); j++) sum += __shfl_sync(PI_FULL, w, j);
        if (k < n_used) weight[k] = w;
    }
    return sum < PI__K_MIN_SUM ? PI__K_MIN_SUM : sum;
}

/* Routes row r: writes its experts to a.id and their weights to a.weight. Called by a warp. */
PI_FN void route_row(const pi__k_routes &a, int64_t r)
{
    const float *logits = a.logits + r * a.ldl;
    int32_t *id = a.id + r * a.n_used;
    float *weight = a.weight + r * a.n_used;
    const int lane = (int) threadIdx.x % 32;
    if (!a.table) choose_experts(a, logits, id);
    for (int32_t k = lane; k < a.n_used && a.table; k += 32)
        id[k] = a.table[(size_t) a.token[r] * (size_t) a.n_used + k];
    __syncwarp();
    const float sum = weigh_experts(a, logits, id, weight);
    for (int32_t k = lane; k < a.n_used; k += 32) weight[k] = weight[k] / sum * a.weights_scale;
}

/* Counts of an expert, or of several: n[0] columns, n[1 + list] tiles of each list. */
struct alignas(16) route_counts {
    int32_t n[4];
};

PI_FN void add_counts(route_counts &to, const route_counts &by)
{
#pragma unroll
    for (int k = 0; k < 4; k++) to.n[k] += by.n[k];
}

/* Returns the counts of an expert with n columns: full tiles of MANY columns, and a last tile in the list for its
 * size. */
PI_FN route_counts counts_of(int32_t n)
{
    const int32_t left = n % MANY;
    return {{n, left && left <= FEW, left > FEW && left <= SOME, n / MANY + (left > SOME)}};
}

/* Exclusive prefix sum over the block's threads: returns carry plus own of all threads before this one. Then adds own
 * of all threads to carry. sums: [32] in shared memory, free again on return. Called by all threads. */
PI_FN route_counts counts_before(const route_counts &own, route_counts &carry, route_counts *sums)
{
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, n_warp = (int) blockDim.x / 32;
    route_counts sum = own, before = {};
    for (int o = 1; o < 32; o *= 2) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const int32_t up = __shfl_up_sync(PI_FULL, sum.n[k], (unsigned) o);
            if (lane >= o) sum.n[k] += up;
        }
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    for (int i = 0; i < n_warp; i++) {
        if (i == warp) before = carry;
        add_counts(carry, sums[i]);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 4; k++) before.n[k] += sum.n[k] - own.n[k];
    return before;
}

/* Lists the tiles of expert e, which has n columns; each thread has one expert. n 0 = none. Lists are in the order of
 * experts. Returns the expert's first column. carry, sums: as in counts_before(). Called by all threads. */
PI_FN int32_t list_tiles(const pi__k_routes &a, int32_t e, int32_t n, route_counts &carry, route_counts *sums)
{
    const route_counts own = counts_of(n), at = counts_before(own, carry, sums);
    const int32_t first = at.n[0], many = own.n[3], last = first + many * MANY;
    if (own.n[1]) a.tile[0][at.n[1]] = {e, last, n % MANY};
    if (own.n[2]) a.tile[1][at.n[2]] = {e, last, n % MANY};
    for (int32_t i = 0; i < many; i++)
        a.tile[2][at.n[3] + i] = {e, first + i * MANY, min((int32_t) MANY, n - i * MANY)};
    return first;
}

/* Writes the lengths of the lists. all: counts of all experts. Called by all threads of a block. */
PI_FN void put_lengths(const pi__k_routes &a, const route_counts &all)
{
    if (threadIdx.x == 0) a.n_tile[0] = all.n[1], a.n_tile[1] = all.n[2], a.n_tile[2] = all.n[3];
}

enum { ROUTE_SUMS_BYTES = 32 * sizeof(route_counts) /* shared memory of counts_before() */ };

/* Sets bit r (0 .. 31) in the word marks[e] of each expert e of row `row`. Called by a warp. */
PI_FN void mark(const pi__k_routes &a, int64_t row, int r, uint32_t *marks)
{
    for (int32_t k = (int32_t) threadIdx.x % 32; k < a.n_used; k += 32)
        atomicOr(&marks[a.id[row * a.n_used + k]], 1u << r);
}

/* Computes the columns of a row's pairs (a.column) and the rows of these columns (a.row), by a warp. r: index of the
 * row in its group of 32 rows. marks, first: of this group, by expert. first[e]: column of the group's first pair with
 * expert e. */
PI_FN void sort_row(const pi__k_routes &a, int64_t row, int r, const uint32_t *marks, const int32_t *first)
{
    for (int32_t k = (int32_t) threadIdx.x % 32; k < a.n_used; k += 32) {
        int32_t e = a.id[row * a.n_used + k], column = first[e] + __popc(marks[e] & ((1u << r) - 1));
        a.column[row * a.n_used + k] = column;
        a.row[column] = (int32_t) row;
    }
}

/* Returns the bytes of shared memory for route_all(). */
static inline size_t route_bytes(const pi__k_routes &a)
{
    return ROUTE_SUMS_BYTES + 2 * sizeof(uint32_t) * (size_t) a.n_expert;
}

/* Routes up to 32 rows, sorts their pairs and lists the tiles, by a block of any number of threads. raw: route_bytes()
 * of shared memory for sums [32], first column and marks of each expert. */
PI_FN void route_all(const pi__k_routes &a, unsigned char *raw)
{
    route_counts *sums = (route_counts *) raw, all = {};
    int32_t *first = (int32_t *) (raw + ROUTE_SUMS_BYTES);
    const int32_t threads = (int32_t) blockDim.x, e = (int32_t) threadIdx.x;
    uint32_t *marks = (uint32_t *) (first + a.n_expert);
    for (int32_t i = e; i < a.n_expert; i += threads) marks[i] = 0;
    /* Route each row and mark it at its experts. */
    __syncthreads();
    for (int32_t r = e / 32; r < a.n_rows; r += threads / 32) {
        route_row(a, r);
        __syncwarp();
        mark(a, r, r, marks);
    }
    /* First column and tiles of each expert. */
    __syncthreads();
    for (int32_t e0 = 0; e0 < a.n_expert; e0 += threads) {
        const int32_t n = e0 + e < a.n_expert ? __popc(marks[e0 + e]) : 0, at = list_tiles(a, e0 + e, n, all, sums);
        if (n) first[e0 + e] = at;
    }
    put_lengths(a, all);
    /* Columns of all pairs. */
    __syncthreads();
    for (int32_t r = e / 32; r < a.n_rows; r += threads / 32) sort_row(a, r, r, marks, first);
}

#endif
