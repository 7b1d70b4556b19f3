/* Vectors of 16 floats for any processor: four of the compiler's 4-float vectors. Each other vec_ISA.h defines the same
 * functions for its instruction set. No memory and no state. */
#ifndef PI__CPU_VEC_GENERIC_H
#define PI__CPU_VEC_GENERIC_H

#include <stdint.h>
#include <string.h>

#include "formats/formats.h"

typedef float f4 __attribute__((vector_size(16)));
typedef int32_t i4 __attribute__((vector_size(16)));
typedef struct vf { f4 v[4]; } vf;

#define VF_EACH(expr)                                                                                                  \
    vf r;                                                                                                              \
    for (int i = 0; i < 4; i++) r.v[i] = (expr);                                                                       \
    return r

static inline f4 f4_set1(float x) { return (f4){x, x, x, x}; }
static inline f4 f4_select(i4 mask, f4 a, f4 b) { return (f4) ((mask & (i4) a) | (~mask & (i4) b)); }

static inline vf vf_set1(float x) { VF_EACH(f4_set1(x)); }
static inline vf vf_zero(void) { return vf_set1(0); }
static inline vf vf_add(vf a, vf b) { VF_EACH(a.v[i] + b.v[i]); }
static inline vf vf_sub(vf a, vf b) { VF_EACH(a.v[i] - b.v[i]); }
static inline vf vf_mul(vf a, vf b) { VF_EACH(a.v[i] * b.v[i]); }
static inline vf vf_div(vf a, vf b) { VF_EACH(a.v[i] / b.v[i]); }
static inline vf vf_rcp(vf a) { return vf_div(vf_set1(1.0f), a); }
static inline vf vf_fma(vf a, vf b, vf c) { VF_EACH(a.v[i] * b.v[i] + c.v[i]); }
static inline vf vf_max(vf a, vf b) { VF_EACH(f4_select(a.v[i] > b.v[i], a.v[i], b.v[i])); }
static inline vf vf_min(vf a, vf b) { VF_EACH(f4_select(a.v[i] < b.v[i], a.v[i], b.v[i])); }
static inline vf vf_select_lt(vf a, vf b, vf x, vf y) { VF_EACH(f4_select(a.v[i] < b.v[i], x.v[i], y.v[i])); }
/* Returns for each lane x if x is NaN, else y. */
static inline vf vf_select_nan(vf x, vf y) { VF_EACH(f4_select(x.v[i] == x.v[i], y.v[i], x.v[i])); }

static inline vf vf_abs(vf a)
{
    i4 m = {0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff};
    VF_EACH((f4) ((i4) a.v[i] & m));
}

static inline vf vf_copysign(vf a, vf b)
{
    i4 m = {0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff};
    VF_EACH((f4) (((i4) a.v[i] & m) | ((i4) b.v[i] & ~m)));
}

/* Returns a rounded to the nearest integer, for |a| < 2^22: adding 1.5 * 2^23 leaves no fraction bits. */
static inline vf vf_round(vf a)
{
    f4 c = f4_set1(12582912.0f);
    VF_EACH((a.v[i] + c) - c);
}

/* Returns a * 2^n, for integers n in [-126, 127]. */
static inline vf vf_scale2(vf a, vf n)
{
    f4 c = f4_set1(12582912.0f + 127.0f);
    VF_EACH(a.v[i] * (f4) ((i4) (n.v[i] + c) << 23));
}

static inline vf vf_load(const float *p)
{
    vf r;
    memcpy(&r, p, sizeof r);
    return r;
}

/* y[k] lane i = p[4 * i + k]: transposes 16 groups of 4 values. */
static inline void vf_load4(const float *p, vf y[4])
{
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < 16; i++) y[k].v[i / 4][i % 4] = p[4 * i + k];
    }
}

static inline void vf_store(float *p, vf a) { memcpy(p, &a, sizeof a); }

static inline i4 widen_u16(const uint16_t *p) { return (i4){p[0], p[1], p[2], p[3]}; }

/* Converts 4 halves exactly. After the shift, the bits are a float that is 2^-112 times the half, also for subnormals.
 * Infinity and NaN then get the exponent 255. */
static inline f4 widen_f16(const uint16_t *p)
{
    i4 h = widen_u16(p), magnitude = h & 0x7fff;
    i4 f = (i4) ((f4) (magnitude << 13) * f4_set1(0x1p112f));
    return (f4) (f | ((magnitude >= 0x7c00) & 0x7f800000) | (h >> 15) << 31);
}

static inline vf vf_load_f16(const uint16_t *p) { VF_EACH(widen_f16(p + i * 4)); }
static inline vf vf_load_bf16(const uint16_t *p) { VF_EACH((f4) (widen_u16(p + i * 4) << 16)); }

static inline vf vf_load_i8(const int8_t *p)
{
    float t[16];
    for (int i = 0; i < 16; i++) t[i] = p[i];
    return vf_load(t);
}

static inline vf vf_load_u4(const uint8_t *p, int high)
{
    float t[16];
    for (int i = 0; i < 16; i++) t[i] = (float) ((high ? p[i] >> 4 : p[i] & 15) - 8);
    return vf_load(t);
}

/* Returns 8 in lane i if bit `bit` of word p[i] is set, else -8. */
static inline vf vf_load_bit(const uint16_t *p, int bit)
{
    float t[16];
    for (int i = 0; i < 16; i++) t[i] = p[i] >> bit & 1 ? 8 : -8;
    return vf_load(t);
}

/* Returns 8 in lane i if bit i of w is set, else -8. */
static inline vf vf_bits(uint16_t w)
{
    float t[16];
    for (int i = 0; i < 16; i++) t[i] = w >> i & 1 ? 8 : -8;
    return vf_load(t);
}

/* lane i = table[nibble of p[i]]; high: 0 = low nibbles, 1 = high nibbles. table: 16 int8. */
static inline vf vf_load_table(const int8_t *table, const uint8_t *p, int high)
{
    float t[16];
    for (int i = 0; i < 16; i++) t[i] = table[high ? p[i] >> 4 : p[i] & 15];
    return vf_load(t);
}

/* lane i = table[code i]: 16 consecutive 3-bit codes at p (6 bytes). table: 8 int8. */
static inline vf vf_load_3bits(const int8_t *table, const uint8_t *p)
{
    float t[16];
    for (int h = 0; h < 16; h += 8, p += 3) {
        const uint32_t bits = p[0] | (uint32_t) p[1] << 8 | (uint32_t) p[2] << 16;
        for (int i = 0; i < 8; i++) t[h + i] = table[bits >> 3 * i & 7];
    }
    return vf_load(t);
}

/* lane i = table[code that starts at bit `bit` of word p[i]]: 3-bit codes; a code across a word boundary continues in
 * word p[i + 16]. table: 8 int8. */
static inline vf vf_load_3bits_of(const int8_t *table, const uint32_t *p, int bit)
{
    float t[16];
    for (int i = 0; i < 16; i++) t[i] = table[(p[i] >> bit | (bit > 29 ? p[16 + i] << (32 - bit) : 0)) & 7];
    return vf_load(t);
}

/* Interleaves lanes of x and y: x0 y0 x1 y1 .. x7 y7 to *x, x8 y8 .. x15 y15 to *y. */
static inline void vf_zip(vf *x, vf *y)
{
    const vf a = *x, b = *y;
    for (int i = 0; i < 8; i++) {
        x->v[i / 2][i % 2 * 2] = a.v[i / 4][i % 4];
        x->v[i / 2][i % 2 * 2 + 1] = b.v[i / 4][i % 4];
        y->v[i / 2][i % 2 * 2] = a.v[2 + i / 4][i % 4];
        y->v[i / 2][i % 2 * 2 + 1] = b.v[2 + i / 4][i % 4];
    }
}

static inline void vf_store_f16(uint16_t *p, vf a)
{
    float t[16];
    vf_store(t, a);
    for (int i = 0; i < 16; i++) p[i] = pi__f32_to_f16(t[i]);
}

/* p[i] = lane i, rounded to nearest even; lanes must be in the range of an int8. */
static inline void vf_store_i8(int8_t *p, vf a)
{
    float t[16];
    vf_store(t, vf_round(a));
    for (int i = 0; i < 16; i++) p[i] = (int8_t) t[i];
}

/* Returns a in lanes first..last and b in the other lanes. */
static inline vf vf_keep(vf a, int first, int last, vf b)
{
    float x[16], y[16];
    vf_store(x, a);
    vf_store(y, b);
    for (int i = 0; i < 16; i++) y[i] = i >= first && i <= last ? x[i] : y[i];
    return vf_load(y);
}

static inline float vf_hmax(vf a)
{
    float t[16];
    vf_store(t, a);
    for (int n = 8; n; n /= 2) {
        for (int i = 0; i < n; i++) t[i] = t[i] > t[i + n] ? t[i] : t[i + n];
    }
    return t[0];
}

static inline float vf_hsum(vf a)
{
    float t[16];
    vf_store(t, a);
    for (int n = 8; n; n /= 2) {
        for (int i = 0; i < n; i++) t[i] += t[i + n];
    }
    return t[0];
}

#include "backend/cpu/vec_math.h"

#endif
