/* Tokens drawn from the largest values of rows of logits, as the sampler draws them (sampler/sampler_top.c), to the bit.
 *
 * A row has a warp. What the filters keep follows from sums in double precision whose order is theirs, so one lane adds up, over
 * what all lanes have made ready: keys, and their weights exp(x - max). There are 40 of them in most rows, 256 at most.
 *
 *     keys, best first    -> top-p: the fewest that weigh p of all        in the order of the sampler's selection
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
    int32_t n;
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

/* All lanes: the row's candidates. */
PI_FN void fill(hat *h, const uint64_t *found, int32_t n)
{
    const float most = 3.402823466e+38f;
    for (int i = (int) threadIdx.x; i < n; i += LANES) {
        const uint64_t key = found[i];
        h->key[i] = key_logit(key) > most ? logit_key(most, key) : key;
    }
    if (threadIdx.x == 0) h->n = n;
    __syncthreads();
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
    if (n > 0 && d.temp == 0) id = (int32_t) (uint32_t) found[2];
    if (n > 0 && d.temp != 0) {
        fill(h, found + 2, n);
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
