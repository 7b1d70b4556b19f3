/* Vectors of 16 floats for AArch64 with half-precision conversion; a vector is four of the 32 registers. No memory and
 * no state. vec_generic.h defines the same functions in plain C. */
#ifndef PI__CPU_VEC_NEON_H
#define PI__CPU_VEC_NEON_H

#include <arm_neon.h>
#include <stdint.h>

typedef struct vf {
    float32x4_t v[4]; /* lanes 0..3, 4..7, 8..11, 12..15 */
} vf;

#define VF_EACH(expr)                                                                                                  \
    vf r;                                                                                                              \
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) r.v[i] = (expr);                                               \
    return r

static inline vf vf_set1(float x) { VF_EACH(vdupq_n_f32(x)); }
static inline vf vf_zero(void) { VF_EACH(vdupq_n_f32(0)); }
static inline vf vf_load(const float *p) { VF_EACH(vld1q_f32(p + i * 4)); }
static inline vf vf_add(vf x, vf y) { VF_EACH(vaddq_f32(x.v[i], y.v[i])); }
static inline vf vf_sub(vf x, vf y) { VF_EACH(vsubq_f32(x.v[i], y.v[i])); }
static inline vf vf_mul(vf x, vf y) { VF_EACH(vmulq_f32(x.v[i], y.v[i])); }
static inline vf vf_div(vf x, vf y) { VF_EACH(vdivq_f32(x.v[i], y.v[i])); }
static inline vf vf_rcp(vf x) { return vf_div(vf_set1(1.0f), x); }
static inline vf vf_fma(vf x, vf y, vf z) { VF_EACH(vfmaq_f32(z.v[i], x.v[i], y.v[i])); }
static inline vf vf_max(vf x, vf y) { VF_EACH(vmaxq_f32(x.v[i], y.v[i])); }
static inline vf vf_min(vf x, vf y) { VF_EACH(vminq_f32(x.v[i], y.v[i])); }
static inline vf vf_abs(vf x) { VF_EACH(vabsq_f32(x.v[i])); }
static inline vf vf_copysign(vf x, vf y) { VF_EACH(vbslq_f32(vdupq_n_u32(0x80000000u), y.v[i], x.v[i])); }
static inline vf vf_round(vf x) { VF_EACH(vrndnq_f32(x.v[i])); }
static inline vf vf_select_lt(vf x, vf y, vf yes, vf no)
{
    VF_EACH(vbslq_f32(vcltq_f32(x.v[i], y.v[i]), yes.v[i], no.v[i]));
}
/* Returns for each lane x if x is NaN, else y. */
static inline vf vf_select_nan(vf x, vf y) { VF_EACH(vbslq_f32(vceqq_f32(x.v[i], x.v[i]), y.v[i], x.v[i])); }

static inline void vf_store(float *p, vf x)
{
    for (int i = 0; i < 4; i++) vst1q_f32(p + i * 4, x.v[i]);
}

/* y[k] lane i = p[4 * i + k]: transposes 16 groups of 4 values. */
static inline void vf_load4(const float *p, vf y[4])
{
    for (int i = 0; i < 4; i++) {
        float32x4x4_t x = vld4q_f32(p + i * 16);
        for (int k = 0; k < 4; k++) y[k].v[i] = x.val[k];
    }
}

static inline float32x4_t pow2(float32x4_t n)
{
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23));
}

/* Returns x * 2^n, for integers n in [-126, 127]. */
static inline vf vf_scale2(vf x, vf n) { VF_EACH(vmulq_f32(x.v[i], pow2(n.v[i]))); }

static inline vf vf_load_f16(const uint16_t *p) { VF_EACH(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + i * 4)))); }
static inline vf vf_load_bf16(const uint16_t *p)
{
    VF_EACH(vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + i * 4), 16)));
}

static inline vf from_i8(int8x16_t x)
{
    int16x8_t lo = vmovl_s8(vget_low_s8(x)), hi = vmovl_s8(vget_high_s8(x));
    return (vf){{vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(lo))),
                 vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(hi)))}};
}

static inline vf vf_load_i8(const int8_t *p) { return from_i8(vld1q_s8(p)); }

static inline vf vf_load_u4(const uint8_t *p, int high)
{
    uint8x16_t x = vld1q_u8(p);
    x = high ? vshrq_n_u8(x, 4) : vandq_u8(x, vdupq_n_u8(15));
    return from_i8(vsubq_s8(vreinterpretq_s8_u8(x), vdupq_n_s8(8)));
}

/* Returns 8 in lanes with (x & b) != 0, else -8. */
static inline float32x4_t from_bits(uint32x4_t x, uint32x4_t b)
{
    return vbslq_f32(vtstq_u32(x, b), vdupq_n_f32(8), vdupq_n_f32(-8));
}

/* vf_load_bit: lane i = 8 if bit `bit` of word p[i] is set, else -8. vf_bits: lane i = 8 if bit i of w is set, else
 * -8. */
static inline vf vf_load_bit(const uint16_t *p, int bit)
{
    VF_EACH(from_bits(vmovl_u16(vld1_u16(p + i * 4)), vdupq_n_u32(1u << bit)));
}
static inline vf vf_bits(uint16_t w)
{
    static const uint32_t first[4] = {1, 2, 4, 8};
    VF_EACH(from_bits(vdupq_n_u32((uint32_t) w >> 4 * i), vld1q_u32(first)));
}

/* lane i = table[nibble of p[i]]; high: 0 = low nibbles, 1 = high nibbles. table: 16 int8. */
static inline vf vf_load_table(const int8_t *table, const uint8_t *p, int high)
{
    uint8x16_t x = vld1q_u8(p);
    x = high ? vshrq_n_u8(x, 4) : vandq_u8(x, vdupq_n_u8(15));
    return from_i8(vqtbl1q_s8(vld1q_s8(table), x));
}

/* lane i = table[code i]: 16 consecutive 3-bit codes at p (6 bytes). table: 8 int8, stored twice. The 10 bytes before p
 * must be readable. */
static inline vf vf_load_3bits(const int8_t *table, const uint8_t *p)
{
    /* For lane i: first = index of the byte with the first bit of code i, right = its shift to the right (negative);
     * next = index of the byte after it, left = its shift to the left. */
    static const uint8_t first[16] = {10, 10, 10, 11, 11, 11, 12, 12, 13, 13, 13, 14, 14, 14, 15, 15};
    /* an index of 16 is out of range of vqtbl1q_u8 and yields 0 */
    static const uint8_t next[16] = {11, 11, 11, 12, 12, 12, 13, 13, 14, 14, 14, 15, 15, 15, 16, 16};
    static const int8_t right[16] = {0, -3, -6, -1, -4, -7, -2, -5, 0, -3, -6, -1, -4, -7, -2, -5};
    static const int8_t left[16] = {8, 5, 2, 7, 4, 1, 6, 3, 8, 5, 2, 7, 4, 1, 6, 3};
    const uint8x16_t x = vld1q_u8(p - 10);
    const uint8x16_t low = vshlq_u8(vqtbl1q_u8(x, vld1q_u8(first)), vld1q_s8(right));
    const uint8x16_t high = vshlq_u8(vqtbl1q_u8(x, vld1q_u8(next)), vld1q_s8(left));
    return from_i8(vqtbl1q_s8(vld1q_s8(table), vandq_u8(vorrq_u8(low, high), vdupq_n_u8(7))));
}

/* lane i = word p[i] shifted so that bit `bit` is bit 0; for bit > 29 the missing code bits come from word p[i +
 * 16]. */
static inline uint32x4_t bits_from(const uint32_t *p, int bit)
{
    uint32x4_t x = vshlq_u32(vld1q_u32(p), vdupq_n_s32(-bit));
    return bit > 29 ? vorrq_u32(x, vshlq_u32(vld1q_u32(p + 16), vdupq_n_s32(32 - bit))) : x;
}
static inline vf vf_load_3bits_of(const int8_t *table, const uint32_t *p, int bit)
{
    const uint16x8_t a = vcombine_u16(vmovn_u32(bits_from(p, bit)), vmovn_u32(bits_from(p + 4, bit)));
    const uint16x8_t b = vcombine_u16(vmovn_u32(bits_from(p + 8, bit)), vmovn_u32(bits_from(p + 12, bit)));
    const uint8x16_t code = vandq_u8(vcombine_u8(vmovn_u16(a), vmovn_u16(b)), vdupq_n_u8(7));
    return from_i8(vqtbl1q_s8(vld1q_s8(table), code));
}

/* Interleaves lanes of x and y: x0 y0 x1 y1 .. x7 y7 to *x, x8 y8 .. x15 y15 to *y. */
static inline void vf_zip(vf *x, vf *y)
{
    const vf a = *x, b = *y;
    for (int i = 0; i < 2; i++) {
        x->v[2 * i] = vzip1q_f32(a.v[i], b.v[i]);
        x->v[2 * i + 1] = vzip2q_f32(a.v[i], b.v[i]);
        y->v[2 * i] = vzip1q_f32(a.v[i + 2], b.v[i + 2]);
        y->v[2 * i + 1] = vzip2q_f32(a.v[i + 2], b.v[i + 2]);
    }
}

static inline void vf_store_f16(uint16_t *p, vf x)
{
    for (int i = 0; i < 4; i++) vst1_u16(p + i * 4, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
}

/* p[i] = lane i, rounded to nearest even; lanes must be in the range of an int8. */
static inline void vf_store_i8(int8_t *p, vf x)
{
    int16x8_t lo = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x.v[0])), vmovn_s32(vcvtnq_s32_f32(x.v[1])));
    int16x8_t hi = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(x.v[2])), vmovn_s32(vcvtnq_s32_f32(x.v[3])));
    vst1q_s8(p, vcombine_s8(vmovn_s16(lo), vmovn_s16(hi)));
}

/* Returns x in lanes first..last and y in the other lanes. */
static inline vf vf_keep(vf x, int first, int last, vf y)
{
    static const int32_t iota[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    int32x4_t lo = vdupq_n_s32(first), hi = vdupq_n_s32(last);
    VF_EACH(vbslq_f32(vandq_u32(vcgeq_s32(vld1q_s32(iota + i * 4), lo), vcleq_s32(vld1q_s32(iota + i * 4), hi)), x.v[i],
                      y.v[i]));
}

/* Returns the sum of all lanes, added by halves: lanes 8, 4, 2, 1 apart. */
static inline float vf_hsum(vf x)
{
    float32x4_t s = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
    float32x2_t t = vadd_f32(vget_low_f32(s), vget_high_f32(s));
    return vget_lane_f32(t, 0) + vget_lane_f32(t, 1);
}

static inline float vf_hmax(vf x)
{
    float32x4_t s = vmaxq_f32(vmaxq_f32(x.v[0], x.v[2]), vmaxq_f32(x.v[1], x.v[3]));
    return vmaxvq_f32(s);
}

#include "backend/cpu/vec_math.h"

#endif
