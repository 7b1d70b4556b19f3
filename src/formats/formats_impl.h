/* Internals of the formats: the block readers and writers that formats.c dispatches to, and shared helpers.
 *
 * A reader converts n_blocks blocks (packed, unaligned) at src to floats. A writer converts floats to n_blocks blocks
 * at dst; w holds the weight of each value's squared error, NULL = equal weights. No memory, no state, any thread.
 * Files are little-endian, as are the hosts that this library runs on. */
#ifndef PI__FORMATS_IMPL_H
#define PI__FORMATS_IMPL_H

#include <string.h>

#include "formats/formats.h"

#define PI__QK 256 /* values per super-block of the K and IQ formats */

typedef void (*pi__reader)(const uint8_t *src, float *dst, int64_t n_blocks);
typedef void (*pi__writer)(const float *src, uint8_t *dst, int64_t n_blocks, const float *w);

static inline uint16_t pi__load16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t pi__load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void pi__store16(uint8_t *p, uint16_t v) { memcpy(p, &v, sizeof v); }
static inline void pi__store32(uint8_t *p, uint32_t v) { memcpy(p, &v, sizeof v); }

/* Converts a half to float: changes the exponent, or for subnormals multiplies an integer below 1024 by 2^-24, which is
 * exact. No intermediate float is subnormal, so a flush-to-zero mode of the caller's thread has no effect. Without
 * branches, so that compilers vectorize loops over it. */
static inline float pi__half(uint16_t h)
{
    uint32_t em = h & 0x7fffu;
    union { float f; uint32_t u; } small = {(float) em * 0x1p-24f}, v;
    v.u = em < 0x400 ? small.u : (em << 13) + (em < 0x7c00 ? 112u << 23 : 224u << 23);
    v.u |= (uint32_t) (h & 0x8000u) << 16;
    return v.f;
}

/* Returns the half stored at p as float. */
static inline float pi__half_at(const uint8_t *p) { return pi__half(pi__load16(p)); }

/* Return half of the scale that a byte of an FP4 format encodes, because the table of e2m1 values is doubled. */
static inline float pi__e8m0_half(uint8_t e)
{
    union { uint32_t u; float f; } v = {e < 2 ? 0x00200000u << e : (uint32_t) (e - 1) << 23};
    return v.f;
}
float pi__ue4m3_half(uint8_t e); /* bit 7 is ignored, except that only exactly 0x7F gives 0 */

/* Copies n values to dst: NaN becomes 0, magnitudes are clamped to 65504 (the max half). Returns the largest magnitude.
 * If the largest magnitude is below 2^-100, all values become 0 and the result is 0, so that later divisions do not
 * overflow. */
float pi__clean(const float *src, float *dst, int n);

/* Readers. dequant_simple.c: floats, blocks of 32 with one scale, FP4. dequant_k.c: K formats. dequant_iq.c: codebooks,
 * IQ4_XS, ternary values. Writers: quant_simple.c, quant_k.c, quant_iq.c (IQ4_XS), quant_grid.c (codebooks). Both for
 * Q1_0 and Q2_0: narrow.c. */
#define PI__DECLARE_NO(fn)
#define PI__DECLARE_RO(fn) void pi__read_##fn(const uint8_t *src, float *dst, int64_t n_blocks);
#define PI__DECLARE_RW(fn) \
    PI__DECLARE_RO(fn) void pi__write_##fn(const float *src, uint8_t *dst, int64_t n_blocks, const float *importance);
#define PI__DECLARE(type, id, block, size, how, fn, ...) PI__DECLARE_##how(fn)
PI__FORMATS(PI__DECLARE)

/* Returns f as a finite half: clamped to +-65504; NaN becomes 0. */
uint16_t pi__finite_half(float f);

/* quant_fit.c: fit scales to a group of n values x (n a multiple of 4, at most PI__FIT_MAX) with weights w. */
#define PI__FIT_MAX 32

/* Fits x[i] ~ scale * q[i] with integer codes q in lo..hi. Returns the scale, which may be negative if lo is below 0. q
 * [n] receives the codes, as floats. */
float pi__fit_scale(const float *x, const float *w, int n, int lo, int hi, float *q);
/* Fits x[i] ~ scale * q[i] + off with integer codes q in 0..hi. Returns the scale, never negative; sets *off and q [n].
 * any_offset: false = off is at most 0. */
float pi__fit_line(const float *x, const float *w, int n, int hi, bool any_offset, float *off, float *q);
/* Sets q [n] to the best codes in lo..hi for the given scale and offset. Returns their weighted squared error. */
float pi__try_codes(const float *x, const float *w, int n, float scale, float off, int lo, int hi, float *q);

typedef struct pi__levels { /* a format with unevenly spaced levels */
    int n;           /* levels, at most 16 */
    float value[16]; /* ascending */
    uint8_t code[16]; /* code of each level */
} pi__levels;
extern const pi__levels pi__levels_iq4nl, pi__levels_e2m1; /* quant_simple.c */

/* pi__fit_levels fits x[i] ~ scale * level and returns the scale. pi__try_levels returns the weighted squared error of
 * the nearest levels for a given scale. pi__level_codes sets code[i] to the code of the level nearest to x[i] /
 * scale. */
float pi__fit_levels(const pi__levels *l, const float *x, const float *w, int n);
float pi__try_levels(const pi__levels *l, const float *x, const float *w, int n, float scale);
void pi__level_codes(const pi__levels *l, const float *x, int n, float scale, uint8_t *code);

/* Sets w [n] to the error weights of the values x: importance[i] * sqrt(mean of x^2 + x[i]^2), scaled to mean 1.
 * importance NULL = all weights are 1. */
void pi__weights(const float *x, const float *importance, int n, float *w);

#endif
