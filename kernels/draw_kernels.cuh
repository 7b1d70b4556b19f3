/* Tokens drawn from the largest values of rows of logits, as the sampler draws them (sampler/sampler_top.c), to the bit.
 *
 * A row has a warp. There are 40 candidates in most rows, 256 at most, whose keys stay sorted, so that each filter keeps the first
 * ones:
 *
 *     keys, best first    -> penalties: of some a lower logit; sorted anew, without what is no more above those not found
 *                         -> top-k, of which nothing is left to do without penalties
 *                         -> top-p: the fewest that weigh p of all, by integer weights
 *                         -> min-p: those at or above max + log p
 *                         -> temperature: x / t
 *                         -> sorted by id; the first at which the running sum of weights exceeds u of their sum
 *
 * The last sums are those of a row that has nothing else (pi__keys_draw): floats within blocks of 256 ids, then doubles. Without
 * top-k the filters are those of the whole row; where what they keep may not all have been found, and where they keep all, the
 * row is left to draw_row_kernels.cuh. +inf is the largest float here, as the sampler has it, and NaN was never found. */
#ifndef PI_DRAW_KERNELS_CUH
#define PI_DRAW_KERNELS_CUH

#include "draw.cuh"

enum { LANES = 32, MOST_KEYS = 256, KEYS_EACH = MOST_KEYS / LANES, SUM = 256 /* ids of a block, in base/logits.h */ };

/* The candidates of a row, in shared memory. */
struct candidates {
    uint64_t key[MOST_KEYS];
    float weight[MOST_KEYS]; /* of the key in this place */
    double run[16];          /* sums of every 16th block */
    int32_t n;
    seen_list seen;
};

PI_FN float key_logit(uint64_t key) { return of_rank(~(uint32_t) (key >> 32)); }
PI_FN uint64_t logit_key(float x, uint64_t of) { return (uint64_t) ~rank_of(x) << 32 | (uint32_t) of; }

/* All lanes: weights of the keys, of which the largest logit is max. */
PI_FN void weigh(candidates *c, float max)
{
    __syncthreads();
    for (int i = (int) threadIdx.x; i < c->n; i += LANES) c->weight[i] = exp_neg(key_logit(c->key[i]) - max);
    __syncthreads();
}

/* All lanes: how many of the keys are as f wants it, which of sorted ones are the first. */
template <class F> PI_FN int32_t count_of(const candidates *c, const F &f)
{
    int n = 0;
    for (int i = (int) threadIdx.x; i < c->n; i += LANES) n += f(c->key[i]);
    return warp_sum_int(n);
}

PI_FN void keep(candidates *c, int32_t n)
{
    __syncthreads();
    if (threadIdx.x == 0) c->n = n;
    __syncthreads();
}

/* All lanes: those at or above the limit; nearly always the first ones, but top-p may leave the last ones by id. */
PI_FN void keep_from(candidates *c, float limit)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        int n = 0;
        for (int i = 0; i < c->n; i++)
            if (key_logit(c->key[i]) >= limit) c->key[n++] = c->key[i];
        c->n = n;
    }
    __syncthreads();
}

/* All lanes: the row's candidates. */
PI_FN void fill(candidates *c, const uint64_t *found, int32_t n, const pi__draw &d)
{
    for (int i = (int) threadIdx.x; i < n; i += LANES) {
        const uint64_t key = found[i];
        const float x = key_logit(key);
        const int32_t count = times_seen(&c->seen, (uint32_t) key);
        c->key[i] = count ? logit_key(penalised(d, x, count), key) : x == finite(x) ? key : logit_key(finite(x), key);
    }
    keep(c, n);
}

/* All lanes: ascending keys, by a bitonic network. */
PI_FN void sort(candidates *c)
{
    int width = 2;
    while (width < c->n) width *= 2;
    for (int i = c->n + (int) threadIdx.x; i < width; i += LANES) c->key[i] = ~(uint64_t) 0;
    __syncthreads();
    for (int size = 2; size <= width; size *= 2) {
        for (int stride = size / 2; stride; stride /= 2) {
            for (int i = (int) threadIdx.x; i < width / 2; i += LANES) {
                const int at = 2 * i - (i & (stride - 1));
                const uint64_t first = c->key[at], second = c->key[at + stride];
                if ((first > second) == !(at & size)) c->key[at] = second, c->key[at + stride] = first;
            }
            __syncthreads();
        }
    }
}

/* All lanes: the candidates behind penalties and top-k; of lowered ones the best, as nothing is known below the last that was found.
 * missing: fewer were found than were wanted, so these are all. */
PI_FN void find_candidates(candidates *c, const pi__k_draw &a, int row, const pi__draw &d, const uint64_t *found, int32_t n, bool missing)
{
    look_back(&c->seen, a, row, d);
    fill(c, found, n, d);
    if (!c->seen.n && !d.top_k) return;
    const uint64_t last = found[n - 1], none = logit_key(-INFINITY, 0);
    const uint64_t border = missing ? ~(uint64_t) 0 : logit_key(finite(key_logit(last)), last);
    sort(c);
    n = count_of(c, [=](uint64_t key) { return key < none && key <= border; });
    keep(c, d.top_k && n > d.top_k ? d.top_k : n);
}

/* One lane: of the keys from..end, which are as far from max, those by whose ids the mass reaches the target. Returns where they end. */
PI_FN int32_t by_id_to_mass(candidates *c, int from, int end, float max, uint64_t mass, uint64_t target)
{
    for (int i = from + 1; i < end; i++) { /* they are in this order, but where logits differ by next to nothing */
        const uint64_t key = c->key[i];
        int at = i;
        for (; at > from && (uint32_t) c->key[at - 1] > (uint32_t) key; at--) c->key[at] = c->key[at - 1];
        c->key[at] = key;
    }
    int n = from;
    do mass += weight_units(exp_neg(key_logit(c->key[n++]) - max));
    while (n < end && mass < target);
    return n;
}

/* All lanes: how many of the weighed keys top-p keeps, which are the first ones then; *end: behind those as far from max as the last
 * of them. False: all weigh less than target. */
PI_FN bool first_mass(candidates *c, uint64_t target, int32_t *n, int32_t *end)
{
    const int lane = (int) threadIdx.x;
    const float max = key_logit(c->key[0]);
    uint64_t w[KEYS_EACH], sum = 0;
#pragma unroll
    for (int i = 0; i < KEYS_EACH; i++) {
        const int at = lane * KEYS_EACH + i;
        w[i] = at < c->n ? weight_units(c->weight[at]) : 0;
        sum += w[i];
    }
    uint64_t run = warp_run(sum) - sum;
    int last = c->n; /* where the running sum reaches the target */
#pragma unroll
    for (int i = 0; i < KEYS_EACH; i++) {
        run += w[i];
        if (run >= target && last == c->n && lane * KEYS_EACH + i < c->n) last = lane * KEYS_EACH + i;
    }
    for (int o = 16; o; o >>= 1) last = min(last, __shfl_xor_sync(PI_FULL, last, o));
    *n = *end = c->n;
    if (last == c->n) return false;
    const uint32_t far = far_below(max, key_logit(c->key[last]));
    const int from = count_of(c, [=](uint64_t key) { return far_below(max, key_logit(key)) < far; });
    *end = count_of(c, [=](uint64_t key) { return far_below(max, key_logit(key)) <= far; });
    *n = last + 1;
    if (*end - from == 1) return true;
    uint64_t before = 0; /* of those that are nearer */
    for (int i = lane; i < from; i += LANES) before += weight_units(c->weight[i]);
    before = warp_units(before);
    __syncthreads();
    if (lane == 0) *n = by_id_to_mass(c, from, *end, max, before, target);
    *n = __shfl_sync(PI_FULL, *n, 0);
    __syncthreads();
    return true;
}

PI_FN uint64_t all_units(const candidates *c)
{
    uint64_t sum = 0;
    for (int i = (int) threadIdx.x; i < c->n; i += LANES) sum += weight_units(c->weight[i]);
    return warp_units(sum);
}

/* All lanes: top-p and min-p of the candidates, the first of which is the best. sum: of the row's weights, where it is the row that
 * they filter, and others were not found; 0: of the candidates alone. False: of a row more may be left than these. */
PI_FN bool filter(candidates *c, const pi__draw &d, bool others, double sum)
{
    const float max = key_logit(c->key[0]), limit = min_p_limit(d, max);
    int32_t n = c->n;
    if (others && !(d.top_p < 1) && key_logit(c->key[n - 1]) >= limit) return false;
    if (d.top_p < 1) {
        weigh(c, max);
        const uint64_t target = sum > 0 ? mass_units((double) d.top_p * sum) : (uint64_t) ((double) d.top_p * (double) all_units(c));
        int32_t end;
        const bool reached = first_mass(c, target, &n, &end);
        if (others && (!reached || end == c->n)) return false;
        keep(c, n);
    }
    n = count_of(c, [=](uint64_t key) { return key_logit(key) >= limit; });
    if (n < c->n) keep_from(c, limit);
    return true;
}

/* One lane: the sum of the weights from i on that are of the same block of ids as the i-th; *end: behind them. */
PI_FN double block_weight(const candidates *c, int i, int *end)
{
    const uint32_t block = (uint32_t) (c->key[i] >> 32) / SUM;
    int n = i + 1;
    while (n < c->n && (uint32_t) (c->key[n] >> 32) / SUM == block) n++;
    *end = n;
    if (n == i + 1) return (double) c->weight[i];
    double sum = 0;
    for (uint32_t lane = 0; lane < 16; lane++) {
        float s = 0;
        for (int k = i; k < n; k++)
            if ((uint32_t) (c->key[k] >> 32) % 16 == lane) s += c->weight[k];
        sum += (double) s;
    }
    return sum;
}

/* One lane, of keys by id, ids in their upper half: the token at which the running sum exceeds u of all; -1: nothing weighs
 * anything. */
PI_FN int32_t pick(candidates *c, double u)
{
    double all = 0, sum = 0;
    int end = 0;
    for (int k = 0; k < 16; k++) c->run[k] = 0;
    for (int i = 0; i < c->n; i = end) {
        const double b = block_weight(c, i, &end);
        c->run[(uint32_t) (c->key[i] >> 32) / SUM % 16] += b;
    }
    for (int k = 0; k < 16; k++) all += c->run[k];
    const double target = u * all;
    for (int i = 0; i < c->n; i = end) {
        const double b = block_weight(c, i, &end);
        if (sum + b <= target) {
            sum += b;
            continue;
        }
        int last = i;
        for (int k = i; k < end && sum <= target; k++) {
            if (c->weight[k] > 0) last = k;
            sum += (double) c->weight[k];
        }
        return (int32_t) (c->key[last] >> 32);
    }
    int n = c->n; /* rounding kept it from being reached */
    while (n > 0 && !(c->weight[n - 1] > 0)) n--;
    return n ? (int32_t) (c->key[n - 1] >> 32) : -1;
}

/* All lanes: temperature, then by id: halves of keys are swapped. */
PI_FN void weigh_by_id(candidates *c, const pi__draw &d)
{
    uint64_t best = ~(uint64_t) 0;
    for (int i = (int) threadIdx.x; i < c->n; i += LANES) best = min(best, c->key[i]);
    for (int o = 16; o; o >>= 1) best = min(best, __shfl_xor_sync(PI_FULL, best, o));
    const float max = key_logit(best), shift = shift_of(d, max), most = tempered(d, max, shift);
    __syncthreads();
    for (int i = (int) threadIdx.x; i < c->n; i += LANES) c->key[i] = c->key[i] << 32 | c->key[i] >> 32;
    __syncthreads();
    sort(c);
    for (int i = (int) threadIdx.x; i < c->n; i += LANES)
        c->weight[i] = exp_neg(tempered(d, key_logit(c->key[i] << 32), shift) - most);
    __syncthreads();
}

/* A block, of one warp: a row. */
__global__ void __launch_bounds__(LANES) draw_tokens(pi__k_draw a)
{
    ptx_take_turn();
    PI_SMEM(raw);
    candidates *c = (candidates *) raw;
    const int row = (int) blockIdx.x;
    const int32_t *request = a.request + row * 3, wanted = request[0];
    const uint64_t *found = a.found + (size_t) row * (size_t) (2 + a.k);
    const pi__draw d = a.draw[row];
    const bool missing = (uint32_t) found[0] != 0;
    const int32_t n = wanted ? wanted - (int32_t) (uint32_t) found[0] : 0;
    int32_t id = -1;
    bool left = false; /* to who looks at the whole row */
    if (n > 0) find_candidates(c, a, row, d, found + 2, n, missing);
    if (n > 0 && d.temp == 0 && c->n) id = (int32_t) (uint32_t) c->key[0];
    if (n > 0 && d.temp != 0) {
        const bool others = d.row && !missing;
        const double sum = d.row ? ((const double *) found)[1] : 0;
        left = d.row && (c->seen.n || (d.top_p < 1 && (!request[2] || found[0] >> 32)));
        if (!left && c->n) left = !filter(c, d, others, sum);
        if (!left && c->n) {
            weigh_by_id(c, d);
            if (threadIdx.x == 0) id = pick(c, random_of(d));
        }
    }
    if (threadIdx.x) return;
    uint64_t *out = a.out + (size_t) row * 3;
    out[0] = id < 0;
    out[1] = left;
    out[2] = (uint32_t) id;
}

#endif
