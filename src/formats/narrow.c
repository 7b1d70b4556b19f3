/* Q1_0 and Q2_0: formats of 1 and 2 bits per value, with one scale per 128 or 64 values.
 *
 *     Q1_0    half d, 16 bytes: bit j of byte i is value 8 i + j; a value is d or -d
 *     Q2_0    half d, 16 bytes: 2 bits per value from the low end; a value is d * (q - 1), so q = 3 is 2 d
 *
 * Q4_0 has a scale per 32 values and values d * (q - 8). So it can hold both formats without loss: codes 7 and 9, or 7
 * to 10. The writers search for the scale with the smallest weighted squared error. No memory, no state. */
#include <math.h>

#include "formats/formats_impl.h"

enum { ONE = 128, TWO = 64, BYTES = 18 /* values per block; bytes of a block */ };

/* Returns code i of a block's bytes q: 0 or 1, or 0 to 3. */
static unsigned code1(const uint8_t *q, int i) { return q[i / 8] >> i % 8 & 1u; }
static unsigned code2(const uint8_t *q, int i) { return q[i / 4] >> i % 4 * 2 & 3u; }

void pi__read_q1_0(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += BYTES, dst += ONE) {
        const float d = pi__half_at(src);
        for (int i = 0; i < ONE; i++) dst[i] = code1(src + 2, i) ? d : -d;
    }
}

void pi__read_q2_0(const uint8_t *src, float *dst, int64_t n_blocks)
{
    for (; n_blocks > 0; n_blocks--, src += BYTES, dst += TWO) {
        const float d = pi__half_at(src);
        for (int i = 0; i < TWO; i++) dst[i] = d * (float) ((int) code2(src + 2, i) - 1);
    }
}

int32_t pi__loaded_type(int32_t type) { return type == PI__Q1_0 || type == PI__Q2_0 ? PI__Q4_0 : type; }

void pi__widen_row(int32_t type, const void *src, void *dst, int64_t n)
{
    const int block = type == PI__Q1_0 ? ONE : TWO;
    const uint8_t *from = src;
    uint8_t *to = dst;
    for (int64_t i = 0; i < n; i += 32, to += 18) {
        const uint8_t *b = from + i / block * BYTES;
        const int first = (int) (i % block);
        memcpy(to, b, 2);
        memset(to + 2, 0, 16);
        for (int k = 0; k < 32; k++) {
            const unsigned c = type == PI__Q1_0 ? 7 + 2 * code1(b + 2, first + k) : 7 + code2(b + 2, first + k);
            to[2 + k % 16] |= (uint8_t) (c << k / 16 * 4);
        }
    }
}

/* ---- writers */

static float store_half(uint8_t *p, float f)
{
    pi__store16(p, pi__finite_half(f));
    return pi__half_at(p);
}

/* The best scale for signs is the weighted mean of the magnitudes. */
void pi__write_q1_0(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    float x[ONE], w[ONE];
    for (int64_t b = 0; b < n_blocks; b++, src += ONE, dst += BYTES) {
        double sum = 0, all = 0;
        pi__clean(src, x, ONE);
        pi__weights(x, importance ? importance + b * ONE : NULL, ONE, w);
        for (int i = 0; i < ONE; i++) sum += (double) w[i] * fabs((double) x[i]), all += (double) w[i];
        store_half(dst, (float) (sum / all));
        memset(dst + 2, 0, ONE / 8);
        for (int i = 0; i < ONE; i++) dst[2 + i / 8] |= (uint8_t) ((x[i] >= 0) << i % 8);
    }
}

static int nearest(float x, float d)
{
    const int q = d == 0 ? 0 : (int) lrintf(fminf(2, fmaxf(-1, x / d)));
    return q + 1;
}

/* Returns the weighted squared error of x [TWO] with scale d. *best: the scale that fits the resulting codes best. */
static double error_of(const float *x, const float *w, float d, float *best)
{
    double error = 0, dot = 0, square = 0;
    for (int i = 0; i < TWO; i++) {
        const double q = nearest(x[i], d) - 1, off = (double) x[i] - q * (double) d;
        error += (double) w[i] * off * off;
        dot += (double) w[i] * q * (double) x[i], square += (double) w[i] * q * q;
    }
    *best = square > 0 ? (float) (dot / square) : 0;
    return error;
}

/* Returns the scale of a block, which may be negative: the code 3 then is for large negative values. */
static float scale_of(const float *x, const float *w, float top)
{
    float found = 0, ignored;
    double least = INFINITY;
    for (int i = 0; i < 48; i++) { /* magnitudes from top / 4 to top, both signs; two steps to the best fit */
        float d = top * (float) (8 + i / 2) / 32 * (i % 2 ? -1.0f : 1.0f), better = d;
        for (int step = 0; step < 2; step++) error_of(x, w, better, &d), better = d;
        const double error = error_of(x, w, d, &ignored);
        if (error < least) least = error, found = d;
    }
    return found;
}

void pi__write_q2_0(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    float x[TWO], w[TWO];
    for (int64_t b = 0; b < n_blocks; b++, src += TWO, dst += BYTES) {
        const float top = pi__clean(src, x, TWO);
        pi__weights(x, importance ? importance + b * TWO : NULL, TWO, w);
        const float d = store_half(dst, scale_of(x, w, top));
        memset(dst + 2, 0, TWO / 4);
        for (int i = 0; i < TWO; i++) dst[2 + i / 4] |= (uint8_t) (nearest(x[i], d) << i % 4 * 2);
    }
}
