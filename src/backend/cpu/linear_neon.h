/* Vectors of the matrix kernels for AArch64 (see linear_kernel.inc.h), four registers each. linear_neon.c,
 * linear_i8mm.c and linear_sve256.c use them for unpacking, quantization, and float sums. No memory and no state. */
#ifndef PI__LINEAR_NEON_H
#define PI__LINEAR_NEON_H

#include "backend/cpu/linear.h"

#include <arm_neon.h>
#include <string.h>

#define PI__ISA_COLS 8
#define PI__ISA_FLOAT_COLS 4
#define PI__ISA_DIRECT 1
#define PI__ISA_BIAS 0 /* sdot and smmla take signed codes */
#define PI__ISA_SIGNED(digits) 1
#define OP PI__INLINE
#define FOUR(t, f) ((t) {{f(0), f(1), f(2), f(3)}})

typedef struct vb { uint8x16_t v[4]; } vb;
typedef struct vi { int32x4_t v[4]; } vi;
typedef struct vf { float32x4_t v[4]; } vf;

#define F(i) vld1q_u8((const uint8_t *) p + 16 * i)
OP vb vb_load(const void *p) { return FOUR(vb, F); }
#undef F
OP void vb_store(void *p, vb v)
{
    for (int i = 0; i < 4; i++) vst1q_u8((uint8_t *) p + 16 * i, v.v[i]);
}
#define F(i) vdupq_n_u8(v)
OP vb vb_set(uint8_t v) { return FOUR(vb, F); }
#undef F
#define F(i) vandq_u8(x.v[i], y.v[i])
OP vb vb_and(vb x, vb y) { return FOUR(vb, F); }
#undef F
#define F(i) vorrq_u8(x.v[i], y.v[i])
OP vb vb_or(vb x, vb y) { return FOUR(vb, F); }
#undef F
#define F(i) veorq_u8(x.v[i], y.v[i])
OP vb vb_xor(vb x, vb y) { return FOUR(vb, F); }
#undef F
#define F(i) vaddq_u8(x.v[i], y.v[i])
OP vb vb_add(vb x, vb y) { return FOUR(vb, F); }
#undef F
#define F(i) (v.v[i] >> n)
OP vb vb_shr(vb v, int n) { return FOUR(vb, F); }
#undef F
#define F(i) (v.v[i] << n)
OP vb vb_shl(vb v, int n) { return FOUR(vb, F); }
#undef F
#define F(i) vld1q_u8(t)
OP vb vb_table(const uint8_t t[16]) { return FOUR(vb, F); }
#undef F
#define F(i) vqtbl1q_u8(t.v[i], x.v[i])
OP vb vb_lut(vb t, vb x) { return FOUR(vb, F); }
#undef F

#define F(i) vdupq_n_s32(v)
OP vi vi_set(int32_t v) { return FOUR(vi, F); }
#undef F
OP vi vi_dup(const int32_t *p) { return vi_set(*p); }
#define F(i) vreinterpretq_s32_u8(vld1q_u8((const uint8_t *) p + 16 * i))
OP vi vi_load(const void *p) { return FOUR(vi, F); }
#undef F
OP vi vi_from_16(uint16x8_t a, uint16x8_t b)
{
    vi r = {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(a))), vreinterpretq_s32_u32(vmovl_high_u16(a)),
             vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(b))), vreinterpretq_s32_u32(vmovl_high_u16(b))}};
    return r;
}
OP vi vi_from_u8(const uint8_t *p)
{
    uint8x16_t v = vld1q_u8(p);
    return vi_from_16(vmovl_u8(vget_low_u8(v)), vmovl_high_u8(v));
}
OP vi vi_from_s8(const uint8_t *p)
{
    int8x16_t v = vreinterpretq_s8_u8(vld1q_u8(p));
    int16x8_t a = vmovl_s8(vget_low_s8(v)), b = vmovl_high_s8(v);
    vi r = {{vmovl_s16(vget_low_s16(a)), vmovl_high_s16(a), vmovl_s16(vget_low_s16(b)), vmovl_high_s16(b)}};
    return r;
}
OP vi vi_from_u16(const uint8_t *p) { return vi_from_16(vreinterpretq_u16_u8(vld1q_u8(p)),
                                                        vreinterpretq_u16_u8(vld1q_u8(p + 16))); }
#define F(i) vandq_s32(x.v[i], vdupq_n_s32(y))
OP vi vi_and(vi x, int32_t y) { return FOUR(vi, F); }
#undef F
#define F(i) vorrq_s32(x.v[i], y.v[i])
OP vi vi_or(vi x, vi y) { return FOUR(vi, F); }
#undef F
#define F(i) vaddq_s32(x.v[i], y.v[i])
OP vi vi_add(vi x, vi y) { return FOUR(vi, F); }
#undef F
#define F(i) vsubq_s32(x.v[i], y.v[i])
OP vi vi_sub(vi x, vi y) { return FOUR(vi, F); }
#undef F
#define F(i) vmaxq_s32(x.v[i], y.v[i])
OP vi vi_max(vi x, vi y) { return FOUR(vi, F); }
#undef F
#define F(i) vreinterpretq_s32_u32(vreinterpretq_u32_s32(v.v[i]) << n)
OP vi vi_shl(vi v, int n) { return FOUR(vi, F); }
#undef F
#define F(i) vreinterpretq_s32_u32(vreinterpretq_u32_s32(v.v[i]) >> n)
OP vi vi_shr(vi v, int n) { return FOUR(vi, F); }
#undef F
#define F(i) (v.v[i] >> n)
OP vi vi_sar(vi v, int n) { return FOUR(vi, F); }
#undef F
/* Returns v in lanes where a is not b, else 0. */
#define F(i) vbicq_s32(v.v[i], vreinterpretq_s32_u32(vceqq_s32(a.v[i], vdupq_n_s32(b))))
OP vi vi_and_ne(vi v, vi a, int32_t b) { return FOUR(vi, F); }
#undef F
/* For register i (rows 4 i .. 4 i + 3) only. vi_dot_rows: t += 4 lines w times 16 codes x. vi_shl7_rows: t *= 128. */
OP vi vi_dot_rows(vi t, int i, const vb *w, const int8_t *x)
{
    const int8x16_t v = vld1q_s8(x);
    t.v[i] = vdotq_laneq_s32(t.v[i], vreinterpretq_s8_u8(w[0].v[i]), v, 0);
    t.v[i] = vdotq_laneq_s32(t.v[i], vreinterpretq_s8_u8(w[1].v[i]), v, 1);
    t.v[i] = vdotq_laneq_s32(t.v[i], vreinterpretq_s8_u8(w[2].v[i]), v, 2);
    t.v[i] = vdotq_laneq_s32(t.v[i], vreinterpretq_s8_u8(w[3].v[i]), v, 3);
    return t;
}
OP vi vi_shl7_rows(vi t, int i)
{
    t.v[i] = vshlq_n_s32(t.v[i], 7);
    return t;
}
/* Compiler barrier: values loaded before it are loaded again after it. */
OP void vb_barrier(void) { __asm__ volatile("" ::: "memory"); }
OP int32_t vi_hmax(vi v) { return vmaxvq_s32(vmaxq_s32(vmaxq_s32(v.v[0], v.v[1]), vmaxq_s32(v.v[2], v.v[3]))); }
OP int32_t sum_all(vi v) { return vaddvq_s32(vaddq_s32(vaddq_s32(v.v[0], v.v[1]), vaddq_s32(v.v[2], v.v[3]))); }
OP void store_s8(int8_t *p, vi v)
{
    int16x8_t a = vcombine_s16(vqmovn_s32(v.v[0]), vqmovn_s32(v.v[1])),
              b = vcombine_s16(vqmovn_s32(v.v[2]), vqmovn_s32(v.v[3]));
    vst1q_s8(p, vcombine_s8(vqmovn_s16(a), vqmovn_s16(b)));
}
/* Stores the 32 codes in a and b as bytes at p; sum[0], sum[1] = sums of the codes of a and of b. */
OP void vi_store_codes(int8_t *p, vi a, vi b, int32_t sum[2])
{
    store_s8(p, a);
    store_s8(p + 16, b);
    sum[0] = sum_all(a);
    sum[1] = sum_all(b);
}
/* Like vi_store_codes, but stores codes 8 k .. 8 k + 7 at p + 16 k. */
OP void vi_store_codes_apart(int8_t *p, vi a, vi b, int32_t sum[2])
{
    int8_t codes[32];
    vi_store_codes(codes, a, b, sum);
    for (int k = 0; k < 4; k++) vst1_s8(p + 16 * k, vld1_s8(codes + 8 * k));
}
/* Stores two lines of 4 columns (a: columns 0..3, b: columns 4..7 of 16 rows) at p as one line of 8 columns. */
OP void vb_store_line8(uint8_t *p, vb a, vb b)
{
    for (int i = 0; i < 4; i++) {
        const uint32x4_t x = vreinterpretq_u32_u8(a.v[i]), y = vreinterpretq_u32_u8(b.v[i]);
        vst1q_u8(p + 32 * i, vreinterpretq_u8_u32(vzip1q_u32(x, y)));
        vst1q_u8(p + 32 * i + 16, vreinterpretq_u8_u32(vzip2q_u32(x, y)));
    }
}

#define F(i) vdupq_n_f32(v)
OP vf vf_set(float v) { return FOUR(vf, F); }
#undef F
OP vf vf_zero(void) { return vf_set(0.0f); }
OP vf vf_dup(const float *p) { return vf_set(*p); }
#define F(i) vreinterpretq_f32_u8(vld1q_u8((const uint8_t *) p + 16 * i))
OP vf vf_load(const void *p) { return FOUR(vf, F); }
#undef F
OP void vf_store(void *p, vf v)
{
    for (int i = 0; i < 4; i++) vst1q_u8((uint8_t *) p + 16 * i, vreinterpretq_u8_f32(v.v[i]));
}
OP void vf_store_n(float *p, vf v, int n)
{
    float t[16];
    vf_store(t, v);
    memcpy(p, t, (size_t) n * sizeof *p);
}
#define F(i) vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8((const uint8_t *) p + 8 * i)))
OP vf vf_half(const void *p) { return FOUR(vf, F); }
#undef F
#define F(i) vcvtq_f32_s32(v.v[i])
OP vf vf_from_vi(vi v) { return FOUR(vf, F); }
#undef F
#define F(i) vreinterpretq_f32_s32(v.v[i])
OP vf vf_bits(vi v) { return FOUR(vf, F); }
#undef F
#define F(i) vreinterpretq_s32_f32(v.v[i])
OP vi vi_bits(vf v) { return FOUR(vi, F); }
#undef F
OP vf vf_bf16(const void *p) { return vf_bits(vi_shl(vi_from_u16(p), 16)); }
#define F(i) vcvtnq_s32_f32(v.v[i])
OP vi vi_round(vf v) { return FOUR(vi, F); }
#undef F
#define F(i) vaddq_f32(x.v[i], y.v[i])
OP vf vf_add(vf x, vf y) { return FOUR(vf, F); }
#undef F
#define F(i) vsubq_f32(x.v[i], y.v[i])
OP vf vf_sub(vf x, vf y) { return FOUR(vf, F); }
#undef F
#define F(i) vmulq_f32(x.v[i], y.v[i])
OP vf vf_mul(vf x, vf y) { return FOUR(vf, F); }
#undef F
#define F(i) vdivq_f32(x.v[i], y.v[i])
OP vf vf_div(vf x, vf y) { return FOUR(vf, F); }
#undef F
#define F(i) vfmaq_f32(z.v[i], x.v[i], y.v[i])
OP vf vf_fma(vf x, vf y, vf z) { return FOUR(vf, F); }
#undef F
#define F(i) vminq_f32(x.v[i], y.v[i])
OP vf vf_min(vf x, vf y) { return FOUR(vf, F); } /* vf_min, vf_max: return NaN if x or y is NaN */
#undef F
#define F(i) vmaxq_f32(x.v[i], y.v[i])
OP vf vf_max(vf x, vf y) { return FOUR(vf, F); }
#undef F

/* ---- registers of PI__ISA_PART_ROWS rows (see linear_parts.inc.h); linear_sve256.c defines its own */

#ifndef PI__ISA_PART_ROWS
#define PI__ISA_PART_ROWS 4

typedef int8x16_t rb;
typedef int32x4_t ri;
typedef float32x4_t rf;

OP rb rb_load(const void *p) { return vreinterpretq_s8_u8(vld1q_u8(p)); }
OP ri ri_zero(void) { return vdupq_n_s32(0); }
OP ri ri_add(ri x, ri y) { return vaddq_s32(x, y); }
OP ri ri_shl7(ri x) { return vshlq_n_s32(x, 7); }
OP rf rf_load(const float *p) { return vld1q_f32(p); }
OP void rf_store(float *p, rf x) { vst1q_f32(p, x); }
OP rf rf_dup(const float *p) { return vdupq_n_f32(*p); }
OP rf rf_from(ri x) { return vcvtq_f32_s32(x); }
OP rf rf_mul(rf x, rf y) { return vmulq_f32(x, y); }
OP rf rf_fma(rf x, rf y, rf z) { return vfmaq_f32(z, x, y); }
#endif

#endif
