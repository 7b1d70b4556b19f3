/* Tokens drawn from the largest values of rows of logits, as the sampler draws them (sampler/sampler_top.c), to the bit.
 *
 * A row has a warp. What the filters keep follows from sums in double precision whose order is theirs, so one lane adds up, over
 * what all lanes have made ready: keys, and their weights exp(x - max). There are 40 of them in most rows, 256 at most.
 *
 *     keys, best first    -> penalties: of some a lower logit; sorted anew, without what is no more above those not found
 *                         -> top-k, of which nothing is left to do without penalties
 *                         -> top-p: the fewest that weigh p of all        in the order of the sampler's selection
 *                         -> min-p: those at or above max + log p         in the order that they have
 *                         -> temperature: x / t                           all lanes
 *                         -> the first at which the running sum of weights exceeds u of their sum
 *
 * The selection is that of pi__keys_select_mass, pivots included: the order in which it leaves keys is the one in which they are
 * added up afterwards. +inf is the largest float here, as the sampler has it, and NaN was never found. */
#ifndef PI_DRAW_KERNELS_CUH
#define PI_DRAW_KERNELS_CUH

#include "backend/cuda/kernels_draw.h"
#include "exp_neg.cuh"
#include "ptx.cuh"
#include "warp.cuh"

enum { LANES = 32, MOST_KEYS = 256 };

/* The candidates of a row, in shared memory. */
typedef struct hat {
    uint64_t key[MOST_KEYS];
    float weight[MOST_KEYS]; /* of the key in this place */
    int32_t n, n_seen;
    uint32_t seen[PI__MAX_SEEN + 1]; /* [n_seen] tokens that have penalties (backend/draw.h) */
} hat;

PI_FN float key_logit(uint64_t key)
{
    const uint32_t u = ~(uint32_t) (key >> 32);
    return __uint_as_float(u >> 31 ? u ^ 0x80000000u : ~u);
}

PI_FN uint64_t logit_key(float x, uint64_t of)
{
    const uint32_t u = __float_as_uint(x + 0.0f);
    return (uint64_t) ~(u ^ (u >> 31 ? 0xffffffffu : 0x80000000u)) << 32 | (uint32_t) of;
}

/* All lanes: weights of the keys, of which the largest logit is max. */
PI_FN void weigh(hat *h, float max)
{
    __syncthreads();
    for (int i = (int) threadIdx.x; i < h->n; i += LANES) h->weight[i] = exp_neg(key_logit(h->key[i]) - max);
    __syncthreads();
}

PI_FN void swap(hat *h, int a, int b)
{
    const uint64_t key = h->key[a];
    const float weight = h->weight[a];
    h->key[a] = h->key[b], h->weight[a] = h->weight[b];
    h->key[b] = key, h->weight[b] = weight;
}

/* Of the n keys from `first` on: smaller ones than the one at p to the front. Returns where that is then, from `first`. */
PI_FN int split_at(hat *h, int first, int n, int p)
{
    const uint64_t pivot = h->key[first + p];
    int m = 0;
    swap(h, first + p, first + n - 1);
    for (int i = 0; i + 1 < n; i++) {
        const bool less = h->key[first + i] < pivot;
        swap(h, first + i, first + m);
        m += less;
    }
    swap(h, first + n - 1, first + m);
    return m;
}

/* One lane: the fewest of the smallest keys that weigh target or more, at least one. Returns their number. */
PI_FN int select_mass(hat *h, double target)
{
    uint64_t rng = (uint64_t) h->n;
    int kept = 0, n = h->n;
    double mass = 0;
    while (n > 0) {
        rng = rng * 6364136223846793005u + 1442695040888963407u;
        const int m = split_at(h, kept, n, (int) ((rng >> 33) % (uint64_t) n));
        double part = 0;
        for (int i = 0; i < m; i++) part += (double) h->weight[kept + i];
        if (m > 0 && mass + part >= target) {
            n = m;
            continue;
        }
        mass += part + (double) h->weight[kept + m];
        kept += m + 1;
        n -= m + 1;
        if (mass >= target) return kept;
    }
    return kept;
}

/* One lane: those at or above the limit, in the order that they have. Returns their number. */
PI_FN int keep_from(hat *h, float limit)
{
    int n = 0;
    for (int i = 0; i < h->n; i++)
        if (key_logit(h->key[i]) >= limit) h->key[n++] = h->key[i];
    return n;
}

/* One lane: the sum of all weights. */
PI_FN double mass_of(const hat *h)
{
    double sum = 0;
    for (int i = 0; i < h->n; i++) sum += (double) h->weight[i];
    return sum;
}

/* One lane: the token at which the running sum exceeds u of all; -1: nothing weighs anything. */
PI_FN int32_t pick(const hat *h, double u)
{
    const double sum = mass_of(h);
    double run = 0;
    int32_t last = -1;
    for (int i = 0; i < h->n; i++) {
        run += (double) h->weight[i];
        if (h->weight[i] > 0) last = (int32_t) (uint32_t) h->key[i];
        if (run > u * sum) return last;
    }
    return last;
}

/* All lanes: the largest logit, whatever the order. */
PI_FN float largest(const hat *h)
{
    uint64_t best = ~(uint64_t) 0;
    for (int i = (int) threadIdx.x; i < h->n; i += LANES) best = min(best, h->key[i]);
    for (int o = 16; o; o >>= 1) best = min(best, __shfl_xor_sync(PI_FULL, best, o));
    return key_logit(best);
}

/* As a logit that was computed. */
PI_FN float finite(float x)
{
    const float most = 3.402823466e+38f;
    return x > most ? most : x == x ? x : -INFINITY;
}

/* All lanes: what has penalties in the row. */
PI_FN void look_back(hat *h, const pi__k_draw &a, int row, const pi__draw &d)
{
    const int n = a.seen ? d.n_seen : 0;
    for (int i = (int) threadIdx.x; i < n; i += LANES) h->seen[i] = a.seen[(size_t) row * PI__MAX_SEEN + (size_t) i];
    if (threadIdx.x == 0) {
        if (d.fed) h->seen[n] = PI__SEEN(a.token[a.index[row]], 1);
        h->n_seen = n + d.fed;
    }
    __syncthreads();
}

PI_FN int32_t times_seen(const hat *h, uint64_t key)
{
    const uint32_t id = (uint32_t) key;
    uint32_t n = 0;
    for (int i = 0; i < h->n_seen; i++)
        if ((h->seen[i] ^ id) << (32 - PI__SEEN_BITS) == 0) n += h->seen[i] >> PI__SEEN_BITS;
    return (int32_t) n;
}

/* As the sampler's stage (sampler/sampler_penalties.c). */
PI_FN float penalised(const pi__draw &d, float x, int32_t count)
{
    x = x <= 0 ? x * d.repeat : x / d.repeat;
    return finite(x - ((float) count * d.frequency + d.presence));
}

/* All lanes: the row's candidates. */
PI_FN void fill(hat *h, const uint64_t *found, int32_t n, const pi__draw &d)
{
    for (int i = (int) threadIdx.x; i < n; i += LANES) {
        const uint64_t key = found[i];
        const float x = key_logit(key);
        const int32_t count = times_seen(h, key);
        h->key[i] = count ? logit_key(penalised(d, x, count), key) : x == finite(x) ? key : logit_key(finite(x), key);
    }
    if (threadIdx.x == 0) h->n = n;
    __syncthreads();
}

/* All lanes: ascending keys, by a bitonic network. */
PI_FN void sort(hat *h)
{
    int width = 2;
    while (width < h->n) width *= 2;
    for (int i = h->n + (int) threadIdx.x; i < width; i += LANES) h->key[i] = ~(uint64_t) 0;
    __syncthreads();
    for (int size = 2; size <= width; size *= 2) {
        for (int stride = size / 2; stride; stride /= 2) {
            for (int i = (int) threadIdx.x; i < width / 2; i += LANES) {
                const int at = 2 * i - (i & (stride - 1));
                const uint64_t first = h->key[at], second = h->key[at + stride];
                if ((first > second) == !(at & size)) h->key[at] = second, h->key[at + stride] = first;
            }
            __syncthreads();
        }
    }
}

/* All lanes: the best of the lowered keys, of which nothing is known below the border, and of those the top k. */
PI_FN void keep_known(hat *h, uint64_t border, int32_t top_k)
{
    const uint64_t none = logit_key(-INFINITY, 0);
    int n = 0;
    sort(h);
    for (int i = (int) threadIdx.x; i < h->n; i += LANES) n += h->key[i] < none && h->key[i] <= border;
    for (int o = 16; o; o >>= 1) n += __shfl_xor_sync(PI_FULL, n, o);
    __syncthreads();
    if (threadIdx.x == 0) h->n = top_k && n > top_k ? top_k : n;
    __syncthreads();
}

/* All lanes: the row's candidates behind penalties and top-k. missing: fewer were found than were wanted, so these are all. */
PI_FN void candidates(hat *h, const pi__k_draw &a, int row, const pi__draw &d, const uint64_t *found, int32_t n, bool missing)
{
    look_back(h, a, row, d);
    fill(h, found, n, d);
    if (!h->n_seen && !d.top_k) return;
    const uint64_t last = found[n - 1];
    keep_known(h, missing ? ~(uint64_t) 0 : logit_key(finite(key_logit(last)), last), d.top_k);
}

/* All lanes: what the filters leave of them, the first of which is the best. */
PI_FN void filter(hat *h, const pi__draw &d)
{
    const float max = key_logit(h->key[0]);
    if (d.top_p < 1) {
        weigh(h, max);
        if (threadIdx.x == 0) h->n = select_mass(h, (double) d.top_p * mass_of(h));
        __syncthreads();
    }
    const float limit = max + d.log_min_p;
    __syncthreads();
    if (threadIdx.x == 0) h->n = keep_from(h, limit > max ? max : limit);
    __syncthreads();
    if (d.temp == 1) return;
    const float shift = fabsf(max) / d.temp < 1e30f ? 0.0f : max;
    for (int i = (int) threadIdx.x; i < h->n; i += LANES) h->key[i] = logit_key((key_logit(h->key[i]) - shift) / d.temp, h->key[i]);
    __syncthreads();
}

/* A block, of one warp: a row. */
__global__ void __launch_bounds__(LANES) draw_tokens(pi__k_draw a)
{
    ptx_take_turn();
    PI_SMEM(raw);
    hat *h = (hat *) raw;
    const int row = (int) blockIdx.x;
    const int32_t wanted = a.request[row * 3];
    const uint64_t *found = a.found + (size_t) row * (size_t) (2 + a.k);
    const pi__draw d = a.draw[row];
    const int32_t n = wanted ? wanted - (int32_t) (uint32_t) found[0] : 0;
    int32_t id = -1;
    if (n > 0) candidates(h, a, row, d, found + 2, n, (uint32_t) found[0] != 0);
    if (n > 0 && d.temp == 0 && h->n) id = (int32_t) (uint32_t) h->key[0];
    if (n > 0 && d.temp != 0 && h->n) {
        filter(h, d);
        weigh(h, largest(h));
        const double u = (double) ((uint64_t) d.high << 32 | d.low) * 0x1p-53;
        if (threadIdx.x == 0) id = pick(h, u);
    }
    if (threadIdx.x) return;
    uint64_t *out = a.out + (size_t) row * 3;
    out[0] = id < 0;
    out[1] = 0;
    out[2] = (uint32_t) id;
}

#endif
