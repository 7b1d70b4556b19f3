/* Shared by sampling from the largest values of a row of logits (draw_kernels.cuh) and from a complete row
 * (draw_row_kernels.cuh): penalties of tokens, weights as integers (base/logits.h), temperature, and the random number.
 * All results are bitwise identical to the sampler of the CPU. */
#ifndef PI_DRAW_CUH
#define PI_DRAW_CUH

#include "backend/cuda/kernels_draw.h"
#include "exp_neg.cuh"
#include "ptx.cuh"
#include "warp.cuh"

namespace draw {

/* Sanitizes a computed logit: NaN becomes -inf, +inf the largest float; -inf stays. */
PI_FN float finite(float x)
{
    const float most = 3.402823466e+38f;
    return x > most ? most : x == x ? x : -INFINITY;
}

/* Inverse of rank_of(): returns the float with rank u. */
PI_FN float of_rank(uint32_t u) { return __uint_as_float(u >> 31 ? u ^ 0x80000000u : ~u); }

/* warp_units: returns the sum of v over the lanes of a warp. warp_run: the sum over the lanes up to and including this
 * one. */
PI_FN uint64_t warp_units(uint64_t v)
{
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(PI_FULL, v, o);
    return v;
}
PI_FN uint64_t warp_run(uint64_t v)
{
    for (unsigned o = 1; o < 32; o *= 2) {
        const uint64_t before = __shfl_up_sync(PI_FULL, v, o);
        if (threadIdx.x % 32 >= o) v += before;
    }
    return v;
}

/* As pi__weight_units(), pi__mass_units() and pi__far_below() of base/logits.h: a weight exp(x - max) in units of
 * 2^-40; a sum of weights in these units; the distance of logit x below max in units of 2^-27, all bits set from 32
 * on. */
PI_FN uint64_t weight_units(float weight) { return (uint64_t) (weight * 0x1p40f); }
PI_FN uint64_t mass_units(double sum) { return (uint64_t) (sum * 0x1p40); }
PI_FN uint32_t far_below(float max, float x)
{
    const float d = max - x;
    return d < 32 ? (uint32_t) (d * 0x1p27f) : 0xffffffffu;
}

/* Returns the draw's random number, 0 <= u < 1, of 53 bits. */
PI_FN double random_of(const pi__draw &d) { return (double) ((uint64_t) d.high << 32 | d.low) * 0x1p-53; }

/* Returns the smallest logit that min-p keeps. max: the row's largest logit. */
PI_FN float min_p_limit(const pi__draw &d, float max) { return fminf(max + d.log_min_p, max); }

/* shift_of: returns the amount to subtract from all logits before the division by the temperature: max if max / temp
 * might overflow, else 0. tempered: returns logit x after temperature. */
PI_FN float shift_of(const pi__draw &d, float max) { return d.temp == 1 || fabsf(max) / d.temp < 1e30f ? 0.0f : max; }
PI_FN float tempered(const pi__draw &d, float x, float shift) { return d.temp == 1 ? x : (x - shift) / d.temp; }

/* The tokens of a row that have penalties, in shared memory, as PI__SEEN words: id and number of occurrences.
 * Unordered; an id may occur in several entries. n: number of entries. */
struct seen_list {
    int32_t n;
    uint32_t token[PI__MAX_SEEN + 1];
};
/* Returns the token id of a PI__SEEN word. */
PI_FN uint32_t seen_id(uint32_t token) { return token & ((1u << PI__SEEN_BITS) - 1); }

/* Fills s with the tokens of row `row` that have penalties (a.seen, d.n_seen). Called by all threads of the block; ends
 * with a barrier. d.fed = 1: adds one occurrence of the token that this row is computed from, which only the device
 * knows. */
PI_FN void look_back(seen_list *s, const pi__k_draw &a, int row, const pi__draw &d)
{
    const int n = a.seen ? d.n_seen : 0;
    for (int i = (int) threadIdx.x; i < n; i += (int) blockDim.x)
        s->token[i] = a.seen[(size_t) row * PI__MAX_SEEN + (size_t) i];
    if (threadIdx.x == 0) {
        if (d.fed) s->token[n] = PI__SEEN(a.token[a.index[row]], 1);
        s->n = n + d.fed;
    }
    __syncthreads();
}

/* Returns the number of occurrences of the token in s; 0 = no penalties. */
PI_FN int32_t times_seen(const seen_list *s, uint32_t id)
{
    uint32_t n = 0;
    for (int i = 0; i < s->n; i++)
        if (seen_id(s->token[i]) == seen_id(id)) n += s->token[i] >> PI__SEEN_BITS;
    return (int32_t) n;
}

/* Returns logit x after penalties, for a token with `count` > 0 occurrences. Bitwise identical to
 * sampler_penalties.c. */
PI_FN float penalised(const pi__draw &d, float x, int32_t count)
{
    x = x <= 0 ? x * d.repeat : x / d.repeat;
    return finite(x - ((float) count * d.frequency + d.presence));
}

} /* namespace draw */

#endif
