/* Writers of the formats without super-blocks (see formats_impl.h).
 *
 * F32, F16 and BF16 are conversions. Q8_0 rounds to multiples of max magnitude / 127 (the same bytes as other
 * implementations). The other formats search for the scale with the smallest weighted squared error. No memory, no
 * state. */
#include <math.h>

#include "formats/formats_impl.h"

const pi__levels pi__levels_iq4nl = {16,
    {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
const pi__levels pi__levels_e2m1 = {15,
    {-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12},
    {15, 14, 13, 12, 11, 10, 9, 0, 1, 2, 3, 4, 5, 6, 7}};

void pi__write_f32(const float *src, uint8_t *dst, int64_t n, const float *importance)
{
    (void) importance;
    if (n > 0) memcpy(dst, src, (size_t) n * sizeof *src); /* src may be NULL if n is 0 */
}

void pi__write_f16(const float *src, uint8_t *dst, int64_t n, const float *importance)
{
    (void) importance;
    for (int64_t i = 0; i < n; i++) pi__store16(dst + 2 * i, pi__f32_to_f16(src[i]));
}

void pi__write_bf16(const float *src, uint8_t *dst, int64_t n, const float *importance)
{
    (void) importance;
    for (int64_t i = 0; i < n; i++) pi__store16(dst + 2 * i, pi__f32_to_bf16(src[i]));
}

void pi__weights(const float *x, const float *importance, int n, float *w)
{
    if (!importance) {
        for (int i = 0; i < n; i++) w[i] = 1;
        return;
    }
    float power = 0, sum = 0;
    for (int i = 0; i < n; i++) power += x[i] * x[i];
    power /= (float) n;
    for (int i = 0; i < n; i++) {
        float v = importance[i] > 0 && importance[i] < 1e30f ? importance[i] : 0;
        w[i] = v * sqrtf(power + x[i] * x[i]);
        sum += w[i];
    }
    /* only ratios matter: scales the weights to mean 1, so that sums of squares stay in the range of a float */
    float unit = (float) n / sum;
    /* every value keeps a weight above 0 */
    for (int i = 0; i < n; i++) w[i] = sum > 0 && unit < 1e30f ? w[i] * unit + 1e-4f : 1;
}

/* Stores f at p as a finite half. Returns the rounded value, with which the caller chooses codes. */
static float store_half(uint8_t *p, float f)
{
    pi__store16(p, pi__finite_half(f));
    return pi__half_at(p);
}

/* Stores the low 4 bits of 32 codes + bias in q[16], values j and j + 16 in byte j. Returns the fifth bits, value j at
 * bit j. */
static uint32_t store_nibbles(const float *code, int bias, uint8_t *q)
{
    uint32_t high = 0;
    for (int j = 0; j < 16; j++) {
        uint32_t a = (uint32_t) ((int) code[j] + bias), b = (uint32_t) ((int) code[j + 16] + bias);
        q[j] = (uint8_t) ((a & 15) | (b & 15) << 4);
        high |= (a >> 4 & 1) << j | (b >> 4 & 1) << (j + 16);
    }
    return high;
}

/* Writes a block of Q4_0 or Q5_0: x ~ d * q, q from -half to half - 1; stores q + half. Returns the codes' fifth
 * bits. */
static uint32_t write_scaled(const float *src, const float *importance, int half, uint8_t *d, uint8_t *q)
{
    float x[32], w[32], code[32];
    pi__clean(src, x, 32);
    pi__weights(x, importance, 32, w);
    float scale = store_half(d, pi__fit_scale(x, w, 32, -half, half - 1, code));
    pi__try_codes(x, w, 32, scale, 0, -half, half - 1, code);
    return store_nibbles(code, half, q);
}

void pi__write_q4_0(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    for (int64_t i = 0; i < n_blocks; i++, dst += 18) {
        write_scaled(src + 32 * i, importance ? importance + 32 * i : NULL, 8, dst, dst + 2);
    }
}

void pi__write_q5_0(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    for (int64_t i = 0; i < n_blocks; i++, dst += 22) {
        pi__store32(dst + 2, write_scaled(src + 32 * i, importance ? importance + 32 * i : NULL, 16, dst, dst + 6));
    }
}

/* Writes a block of Q4_1 or Q5_1: x ~ d * q + m, q from 0 to hi. Returns the codes' fifth bits. */
static uint32_t write_line(const float *src, const float *importance, int hi, uint8_t *dm, uint8_t *q)
{
    float x[32], w[32], code[32], off;
    pi__clean(src, x, 32);
    pi__weights(x, importance, 32, w);
    float scale = store_half(dm, pi__fit_line(x, w, 32, hi, true, &off, code));
    off = store_half(dm + 2, off);
    pi__try_codes(x, w, 32, scale, off, 0, hi, code);
    return store_nibbles(code, 0, q);
}

void pi__write_q4_1(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    for (int64_t i = 0; i < n_blocks; i++, dst += 20) {
        write_line(src + 32 * i, importance ? importance + 32 * i : NULL, 15, dst, dst + 4);
    }
}

void pi__write_q5_1(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    for (int64_t i = 0; i < n_blocks; i++, dst += 24) {
        pi__store32(dst + 4, write_line(src + 32 * i, importance ? importance + 32 * i : NULL, 31, dst, dst + 8));
    }
}

void pi__write_q8_0(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    (void) importance;
    for (; n_blocks > 0; n_blocks--, src += 32, dst += 34) {
        float x[32];
        float d = pi__clean(src, x, 32) / 127, id = d != 0 ? 1 / d : 0;
        pi__store16(dst, pi__f32_to_f16(d));
        for (int i = 0; i < 32; i++) ((int8_t *) dst)[2 + i] = (int8_t) roundf(x[i] * id);
    }
}

static void pair_nibbles(const uint8_t *code, int n, uint8_t *q)
{
    for (int j = 0; j < n / 2; j++) q[j] = (uint8_t) (code[j] | code[j + n / 2] << 4);
}

void pi__write_iq4_nl(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    for (int64_t i = 0; i < n_blocks; i++, src += 32, dst += 18) {
        float x[32], w[32];
        uint8_t code[32];
        pi__clean(src, x, 32);
        pi__weights(x, importance ? importance + 32 * i : NULL, 32, w);
        float d = store_half(dst, pi__fit_levels(&pi__levels_iq4nl, x, w, 32));
        pi__level_codes(&pi__levels_iq4nl, x, 32, d, code);
        pair_nibbles(code, 32, dst + 2);
    }
}

/* The scale is a power of two; the best of three is kept. The usual scale maps the largest magnitude to [4, 8), and
 * magnitudes above 6 are clamped. Twice the usual scale never clamps. Half of it suits a block with one outlier. */
void pi__write_mxfp4(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    for (int64_t i = 0; i < n_blocks; i++, src += 32, dst += 17) {
        float x[32], w[32], best = INFINITY;
        uint8_t code[32];
        int exponent;
        float amax = pi__clean(src, x, 32);
        pi__weights(x, importance ? importance + 32 * i : NULL, 32, w);
        frexpf(amax, &exponent); /* amax is in [2^(exponent - 1), 2^exponent) */
        int usual = exponent - 1 - 2 + 127;
        dst[0] = 0;
        for (int e = usual - 1; e <= usual + 1 && amax > 0; e++) {
            if (e < 0) continue;
            float err = pi__try_levels(&pi__levels_e2m1, x, w, 32, pi__e8m0_half((uint8_t) e));
            if (err < best) {
                best = err;
                dst[0] = (uint8_t) e;
            }
        }
        pi__level_codes(&pi__levels_e2m1, x, 32, pi__e8m0_half(dst[0]), code);
        pair_nibbles(code, 32, dst + 1);
    }
}

/* Returns the e4m3 code (0..126) of the largest scale <= f. Scales ascend with their code. */
static int ue4m3_below(float f)
{
    int lo = 0, hi = 126;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (pi__ue4m3_half((uint8_t) mid) * 2 <= f) lo = mid;
        else hi = mid - 1;
    }
    return lo;
}

/* Writes the codes of one group of 16 values to q[8] and returns its scale byte. Tries all scales from amax / 8 (the
 * largest value is clamped to 6) to just above amax / 3. w: weights; amax: the group's largest magnitude. */
static uint8_t write_nvfp4_group(const float *x, const float *w, float amax, uint8_t *q)
{
    uint8_t code[16];
    int best_e = 0;
    if (amax > 0) {
        float best = INFINITY;
        for (int e = ue4m3_below(amax / 8); e <= 126; e++) {
            float scale = pi__ue4m3_half((uint8_t) e);
            float err = pi__try_levels(&pi__levels_e2m1, x, w, 16, scale);
            if (err < best) {
                best = err;
                best_e = e;
            }
            if (scale * 2 > amax / 3) break;
        }
    }
    pi__level_codes(&pi__levels_e2m1, x, 16, pi__ue4m3_half((uint8_t) best_e), code);
    pair_nibbles(code, 16, q);
    return (uint8_t) best_e;
}

void pi__write_nvfp4(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance)
{
    for (int64_t i = 0; i < n_blocks; i++, dst += 36) {
        for (int g = 0; g < 4; g++, src += 16) {
            float x[16], w[16];
            float amax = pi__clean(src, x, 16);
            pi__weights(x, importance ? importance + 64 * i + 16 * g : NULL, 16, w);
            dst[g] = write_nvfp4_group(x, w, amax, dst + 4 + 8 * g);
        }
    }
}
