/* Row arithmetic (see rows.h). No memory, no state: thread-safe. */
#include "rows.h"

#include <math.h>
#include <string.h>

/* One build per instruction set; the loader selects one. Not under sanitizers: their runtime starts after the
 * selection. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#if !defined(__clang__)
#define MULTI __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#ifndef MULTI
#define MULTI
#endif

enum { BLOCK = 512, LANES = 16 };

static inline uint32_t bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
static inline float from_bits(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }

/* Returns exp(x) for x <= 0 to 2 ulp; 0 below -87. */
static inline float exp_neg(float x)
{
    uint32_t keep = 0u - (uint32_t) ((int32_t) (bits(x) & 0x7FFFFFFFu) <= 0x42AE0000); /* |x| <= 87 */
    float c = from_bits(bits(x) & keep);
    float r = c * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: the sum's low bits are the nearest integer */
    float n = r - 12582912.0f;
    float f = (c - n * 0.693359375f) + n * 2.12194440e-4f;
    float y = 1.98412698e-4f;
    y = y * f + 1.38888889e-3f;
    y = y * f + 8.33333333e-3f;
    y = y * f + 4.16666667e-2f;
    y = y * f + 1.66666667e-1f;
    y = y * f + 0.5f;
    y = y * f + 1.0f;
    y = y * f + 1.0f;
    return from_bits(bits(y * from_bits((bits(r) - 0x4B400000u + 127u) << 23)) & keep);
}

static inline double sum_lanes(const float *e)
{
    float s[LANES] = {0};
    double sum = 0;
    for (int i = 0; i < BLOCK; i += LANES) {
        for (int j = 0; j < LANES; j++) s[j] += e[i + j];
    }
    for (int j = 0; j < LANES; j++) sum += (double) s[j];
    return sum;
}

MULTI static float row_max(const float *x, size_t n)
{
    float m[LANES], best = -INFINITY;
    size_t i = 0;
    for (int j = 0; j < LANES; j++) m[j] = -INFINITY;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) m[j] = x[i + j] > m[j] ? x[i + j] : m[j];
    }
    for (; i < n; i++) m[0] = x[i] > m[0] ? x[i] : m[0];
    for (int j = 0; j < LANES; j++) best = m[j] > best ? m[j] : best;
    return best;
}

MULTI static double row_exp_sum(const float *x, size_t n, float max)
{
    double sum = 0;
    for (size_t i = 0; i < n; i += BLOCK) {
        float e[BLOCK];
        int len = n - i < BLOCK ? (int) (n - i) : BLOCK;
        for (int j = 0; j < len; j++) e[j] = exp_neg(x[i + (size_t) j] - max);
        memset(e + len, 0, (size_t) (BLOCK - len) * sizeof *e);
        sum += sum_lanes(e);
    }
    return sum;
}

row_sum rows_sum(const float *x, size_t n)
{
    row_sum s = {.max = row_max(x, n)};
    s.log_sum = log(row_exp_sum(x, n, s.max));
    return s;
}

size_t rows_argmax(const float *x, size_t n)
{
    float m = row_max(x, n);
    for (size_t i = 0; i < n; i++) {
        if (x[i] == m) return i;
    }
    return 0;
}

MULTI static float row_min(const float *x, size_t n)
{
    float m[LANES], best = INFINITY;
    size_t i = 0;
    for (int j = 0; j < LANES; j++) m[j] = INFINITY;
    for (; i + LANES <= n; i += LANES) {
        for (int j = 0; j < LANES; j++) m[j] = x[i + j] < m[j] ? x[i + j] : m[j];
    }
    for (; i < n; i++) m[0] = x[i] < m[0] ? x[i] : m[0];
    for (int j = 0; j < LANES; j++) best = m[j] < best ? m[j] : best;
    return best;
}

MULTI static void row_quantise(const float *x, size_t n, float min, float inv_scale, uint16_t *q)
{
    for (size_t i = 0; i < n; i++) {
        float d = x[i] - min;
        float v = inv_scale * (d > 0 ? d : 0) + 12582912.0f; /* rounds to the nearest integer, even on ties */
        q[i] = (uint16_t) bits(v);
    }
}

row_q16 rows_quantise(const float *x, size_t n, row_sum s, uint16_t *q)
{
    float min = row_min(x, n), log_sum = (float) s.log_sum;
    if (!(min >= s.max - 16)) min = s.max - 16;
    row_q16 r = {.scale = (s.max - min) / 65535.f, .min = min - s.max - log_sum, .q = q};
    if (r.scale > 0) row_quantise(x, n, min, 1 / r.scale, q);
    else memset(q, 0, n * sizeof *q);
    return r;
}

MULTI static double row_kl(const float *x, size_t n, float log_total, row_q16 base)
{
    double sum = 0;
    for (size_t i = 0; i < n; i += BLOCK) {
        float e[BLOCK];
        int len = n - i < BLOCK ? (int) (n - i) : BLOCK;
        for (int j = 0; j < len; j++) {
            float lb = base.scale * (float) base.q[i + (size_t) j] + base.min;
            float v = exp_neg(lb) * (lb - x[i + (size_t) j] + log_total);
            e[j] = from_bits(bits(v) & (0u - (uint32_t) (lb > -16.f)));
        }
        memset(e + len, 0, (size_t) (BLOCK - len) * sizeof *e);
        sum += sum_lanes(e);
    }
    return sum;
}

double rows_kl(const float *x, size_t n, row_sum s, row_q16 base)
{
    return row_kl(x, n, s.max + (float) s.log_sum, base);
}

MULTI static uint16_t q16_max(const uint16_t *q, size_t n)
{
    uint16_t m = 0;
    for (size_t i = 0; i < n; i++) m = q[i] > m ? q[i] : m;
    return m;
}

size_t rows_argmax_q16(const uint16_t *q, size_t n)
{
    uint16_t m = q16_max(q, n);
    for (size_t i = 0; i < n; i++) {
        if (q[i] == m) return i;
    }
    return 0;
}
