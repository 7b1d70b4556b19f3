/* Definitions shared by the sampler and the backends that search logits (op topk) and draw tokens, so that results
 * are bitwise identical: keys of values, the exponential in sums, and the set of values that top-p keeps. */
#ifndef PI__LOGITS_H
#define PI__LOGITS_H

#include <stdint.h>
#include <string.h>

/* Order of summing exponentials. Within a block of PI__LOGITS_BLOCK values: floats in 16 lanes, lane = index mod 16,
 * then the lanes in order. Over blocks: PI__LOGITS_RUNS sums as doubles, block b in sum b mod PI__LOGITS_RUNS, then
 * these in order. */
enum {
    PI__LOGITS_BLOCK = 256,
    PI__LOGITS_RUNS = 16,
};

static inline uint32_t pi__f32_bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
static inline float pi__f32_from(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }

/* Maps floats to integers of the same order; -0 counts as 0. */
static inline uint32_t pi__f32_order(float x)
{
    uint32_t u = pi__f32_bits(x + 0.0f);
    return u ^ ((uint32_t) ((int32_t) u >> 31) | 0x80000000u);
}

static inline uint64_t pi__logit_key(float logit, int32_t id)
{
    return (uint64_t) ~pi__f32_order(logit) << 32 | (uint32_t) id;
}

static inline int32_t pi__key_id(uint64_t k) { return (int32_t) (uint32_t) k; }

static inline float pi__key_logit(uint64_t k)
{
    uint32_t o = ~(uint32_t) (k >> 32);
    return pi__f32_from(o & 0x80000000u ? o ^ 0x80000000u : ~o);
}

/* Returns exp(x) for x <= 0 within 2 ulp; 0 below -87 and for NaN. Open-coded so that loops vectorize, and because
 * libm's bits differ between machines and instruction sets. */
static inline float pi__exp_neg(float x)
{
    uint32_t keep = 0u - (uint32_t) ((int32_t) (pi__f32_bits(x) & 0x7FFFFFFFu) <= 0x42AE0000); /* x >= -87 */
    float c = pi__f32_from(pi__f32_bits(x) & keep);
    float r = c * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the sum's low bits are the nearest integer */
    float n = r - 12582912.0f;
    float f = (c - n * 0.693359375f) + n * 2.12194440e-4f; /* |f| <= ln(2)/2 */
    float y = 1.98412698e-4f;
    y = y * f + 1.38888889e-3f;
    y = y * f + 8.33333333e-3f;
    y = y * f + 4.16666667e-2f;
    y = y * f + 1.66666667e-1f;
    y = y * f + 0.5f;
    y = y * f + 1.0f;
    y = y * f + 1.0f;
    uint32_t scale = (pi__f32_bits(r) - 0x4B400000u + 127u) << 23;
    return pi__f32_from(pi__f32_bits(y * pi__f32_from(scale)) & keep);
}

/* Top-p keeps the smallest set of best values with a part of at least p in the sum of exp(x - max). Weights and
 * distances are integers, so that they can be added in any order: a weight in units of 2^-40, a distance from max in
 * units of 2^-27. At equal distance the lower index is better. Values 32 or more below max weigh nothing. */
static inline uint64_t pi__weight_units(float weight) { return (uint64_t) (weight * 0x1p40f); }
static inline uint64_t pi__mass_units(double sum) { return (uint64_t) (sum * 0x1p40); }
static inline uint32_t pi__far_below(float max, float x)
{
    const float d = max - x;
    return d < 32 ? (uint32_t) (d * 0x1p27f) : UINT32_MAX;
}

#endif
