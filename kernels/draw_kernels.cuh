/* Samples a token per row from the largest values of a row of logits, which op topk has found (a.found). Bitwise
 * identical to the sampler (sampler/sampler_top.c). Kernel: draw_tokens(), a warp per row. A row has at most 256
 * candidates.
 *
 * A candidate is a 64-bit key: ~rank_of(logit) << 32 | token id. Smaller keys are better: larger logit, then smaller
 * id. The keys stay sorted, so that each filter keeps a prefix:
 *
 *     keys, best first    -> penalties: lower some logits; sort again; drop keys below the last value that was found
 *                         -> top-k: already done by op topk, unless the row has penalties
 *                         -> top-p: the fewest keys with a weight of at least p of all, by integer weights
 *                         -> min-p: keys at or above max + log p
 *                         -> temperature: x / t
 *                         -> sort by id; pick the first key at which the running weight exceeds u of the total
 *
 * The last sums equal the sums over a row in which all other weights are 0 (pi__keys_draw): floats within blocks of 256
 * ids, then doubles.
 *
 * Without top-k the filters apply to the complete row. The row is left to draw_row_kernels.cuh if the filters may keep
 * values that op topk did not return. +inf becomes the largest float, as in the sampler. NaN is never among the
 * candidates. */
#ifndef PI_DRAW_KERNELS_CUH
#define PI_DRAW_KERNELS_CUH

#include "draw.cuh"

namespace draw {

enum { LANES = 32, MAX_KEYS = 256, KEYS_EACH = MAX_KEYS / LANES, SUM = 256 /* ids per block of base/logits.h */ };

/* The candidates of a row, in shared memory. n: number of keys. */
struct candidates {
    uint64_t key[MAX_KEYS];
    float weight[MAX_KEYS]; /* weight of key[i], exp(logit - max) */
    double run[16];         /* run[k]: sum of the weights in blocks k, k + 16, .. of 256 ids */
    int32_t n;
    seen_list seen;
};

/* key_logit: the logit of a key. logit_key: the key of logit x with the id of key (or id) `of`. */
PI_FN float key_logit(uint64_t key) { return of_rank(~(uint32_t) (key >> 32)); }
PI_FN uint64_t logit_key(float x, uint64_t of) { return (uint64_t) ~rank_of(x) << 32 | (uint32_t) of; }

/* Called by all lanes. Sets weight[i] = exp(logit - max) for all keys. max: the largest logit of the keys. */
PI_FN void weigh(candidates *c, float max)
{
    __syncthreads();
    for (int i = (int) threadIdx.x; i < c->n; i += LANES) c->weight[i] = exp_neg(key_logit(c->key[i]) - max);
    __syncthreads();
}

/* Called by all lanes. Returns the number of keys for which f(key) is true. */
template <class F> PI_FN int32_t count_of(const candidates *c, const F &f)
{
    int n = 0;
    for (int i = (int) threadIdx.x; i < c->n; i += LANES) n += f(c->key[i]);
    return warp_sum_int(n);
}

/* Called by all lanes. Keeps the first n keys. */
PI_FN void keep(candidates *c, int32_t n)
{
    __syncthreads();
    if (threadIdx.x == 0) c->n = n;
    __syncthreads();
}

/* Called by all lanes. Keeps the keys with a logit of at least `limit`, in their order. These are a prefix, unless
 * top-p has sorted its last keys by id. */
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

/* Called by all lanes. Loads the n keys at `found`, sanitized, with logits lowered by the penalties of c->seen. */
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

/* Called by all lanes. Sorts the keys in ascending order by a bitonic network; pads them to a power of two. */
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

/* Called by all lanes. Fills c with the row's candidates after penalties and top-k, sorted. found: the n keys of op
 * topk. Keys that penalties lower below the last found key are dropped, since the row's values below that are unknown.
 * missing: the row has fewer values than requested, so `found` holds all of them, and no key is dropped for that
 * reason. Keys with a logit of -inf are dropped. */
PI_FN void find_candidates(candidates *c, const pi__k_draw &a, int row, const pi__draw &d, const uint64_t *found,
                           int32_t n, bool missing)
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

/* Called by one lane. Sorts keys from .. end - 1, which have the same far_below() distance from max, by id. mass:
 * weight of all keys before `from`. Returns the end of the shortest prefix of the keys that has a mass of at least
 * target. */
PI_FN int32_t by_id_to_mass(candidates *c, int from, int end, float max, uint64_t mass, uint64_t target)
{
    /* Insertion sort by id. Equal logits are already sorted; logits that differ by less than the unit 2^-27 may not
     * be. */
    for (int i = from + 1; i < end; i++) {
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

/* Called by all lanes. *n = number of keys that top-p keeps, a prefix. target: mass to reach, in weight_units(). *end =
 * end of the keys at the same distance from max as the last kept key. Returns false if all keys weigh less than target;
 * then *n and *end are the number of keys. */
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
    int last = c->n; /* index of the first key at which the running sum reaches the target; c->n = none */
#pragma unroll
    for (int i = 0; i < KEYS_EACH; i++) {
        run += w[i];
        if (run >= target && last == c->n && lane * KEYS_EACH + i < c->n) last = lane * KEYS_EACH + i;
    }
    for (int o = 16; o; o >>= 1) last = min(last, __shfl_xor_sync(PI_FULL, last, o));
    *n = *end = c->n;
    if (last == c->n) return false;
    /* Keys at the same distance from max are kept in the order of their ids. from .. *end - 1: these keys. */
    const uint32_t far = far_below(max, key_logit(c->key[last]));
    const int from = count_of(c, [=](uint64_t key) { return far_below(max, key_logit(key)) < far; });
    *end = count_of(c, [=](uint64_t key) { return far_below(max, key_logit(key)) <= far; });
    *n = last + 1;
    if (*end - from == 1) return true;
    uint64_t before = 0; /* mass of the keys with a smaller distance */
    for (int i = lane; i < from; i += LANES) before += weight_units(c->weight[i]);
    before = warp_units(before);
    __syncthreads();
    if (lane == 0) *n = by_id_to_mass(c, from, *end, max, before, target);
    *n = __shfl_sync(PI_FULL, *n, 0);
    __syncthreads();
    return true;
}

/* Called by all lanes. Returns the sum of the keys' weights, in weight_units(). */
PI_FN uint64_t all_units(const candidates *c)
{
    uint64_t sum = 0;
    for (int i = (int) threadIdx.x; i < c->n; i += LANES) sum += weight_units(c->weight[i]);
    return warp_units(sum);
}

/* Called by all lanes. Applies top-p and min-p to the candidates; key[0] is the best one. others: the row has values
 * that are not candidates. sum: sum of exp(x - max) over the row, if the filters apply to the complete row; 0 = they
 * apply to the candidates only. Returns false if values of the row that are not candidates might pass the filters; the
 * row is then left to draw_rows(). */
PI_FN bool filter(candidates *c, const pi__draw &d, bool others, double sum)
{
    const float max = key_logit(c->key[0]), limit = min_p_limit(d, max);
    int32_t n = c->n;
    if (others && !(d.top_p < 1) && key_logit(c->key[n - 1]) >= limit) return false;
    if (d.top_p < 1) {
        weigh(c, max);
        const uint64_t target = sum > 0 ? mass_units((double) d.top_p * sum)
                                        : (uint64_t) ((double) d.top_p * (double) all_units(c));
        int32_t end;
        const bool reached = first_mass(c, target, &n, &end);
        if (others && (!reached || end == c->n)) return false;
        keep(c, n);
    }
    n = count_of(c, [=](uint64_t key) { return key_logit(key) >= limit; });
    if (n < c->n) keep_from(c, limit);
    return true;
}

/* Called by one lane; keys have the id in their upper half and are sorted. Returns the sum of the weights of key i and
 * the following keys with an id in the same block of 256. *end: end of these keys. The order of the sum is that of a
 * complete row: 16 float sums by id % 16, then doubles. */
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

/* Called by one lane; keys have the id in their upper half and are sorted. Returns the token id at which the running
 * sum of the weights exceeds u times the total, 0 <= u < 1; -1 = all weights are 0. */
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
    /* Rounding kept the running sum at or below the target: return the last token with a weight. */
    int n = c->n;
    while (n > 0 && !(c->weight[n - 1] > 0)) n--;
    return n ? (int32_t) (c->key[n - 1] >> 32) : -1;
}

/* Called by all lanes. Swaps the halves of the keys, so that the id comes first, sorts the keys by id, and sets their
 * weights to exp of the logit after temperature, relative to the largest. */
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

/* Draws a token for each row from the values that op topk found. Grid: a block of one warp per row. Shared: candidates.
 * Writes out [row][3] in the format of pi__k_top with k = 1: [0] 1 if no token is drawn, else 0; [1] 1 if draw_rows()
 * has to process the row, else 0; [2] token id. */
__global__ void __launch_bounds__(LANES) draw_tokens(pi__k_draw a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    candidates *c = (candidates *) raw;
    const int row = (int) blockIdx.x;
    const int32_t *request = a.request + row * 3, wanted = request[0];
    const uint64_t *found = a.found + (size_t) row * (size_t) (2 + a.k);
    const pi__draw d = a.draw[row];
    const bool missing = (uint32_t) found[0] != 0;
    const int32_t n = wanted ? wanted - (int32_t) (uint32_t) found[0] : 0;
    int32_t id = -1;
    bool left = false; /* true: draw_rows() has to process the row */
    if (n > 0) find_candidates(c, a, row, d, found + 2, n, missing);
    /* temp 0: the best key. Otherwise filter and draw. Rows without top-k (d.row) are left to draw_rows() if they have
     * penalties, or if top-p needs the row's sum and op topk did not return it. */
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

} /* namespace draw */

#endif
