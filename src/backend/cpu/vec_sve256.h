/* Vectors of 16 floats for SVE with registers of 256 bits; a vector is two of the 32 registers. No memory and no state.
 * vec_generic.h defines the same functions in plain C. */
#ifndef PI__CPU_VEC_SVE256_H
#define PI__CPU_VEC_SVE256_H

#include <arm_sve.h>
#include <stdint.h>
#include <string.h>

typedef svfloat32_t f8 __attribute__((arm_sve_vector_bits(256)));
typedef svint32_t i8x32 __attribute__((arm_sve_vector_bits(256)));
typedef svuint32_t u8x32 __attribute__((arm_sve_vector_bits(256)));
typedef svbool_t b32 __attribute__((arm_sve_vector_bits(256)));

typedef struct vf {
    f8 v[2]; /* lanes 0..7, 8..15 */
} vf;

#define ALL svptrue_b32()
#define VF_EACH(expr)                                                                                                  \
    vf r;                                                                                                              \
    _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++) r.v[i] = (expr);                                               \
    return r

static inline vf vf_set1(float x) { VF_EACH(svdup_n_f32(x)); }
static inline vf vf_zero(void) { VF_EACH(svdup_n_f32(0)); }
static inline vf vf_load(const float *p) { VF_EACH(svld1_f32(ALL, p + i * 8)); }
static inline vf vf_add(vf x, vf y) { VF_EACH(svadd_f32_x(ALL, x.v[i], y.v[i])); }
static inline vf vf_sub(vf x, vf y) { VF_EACH(svsub_f32_x(ALL, x.v[i], y.v[i])); }
static inline vf vf_mul(vf x, vf y) { VF_EACH(svmul_f32_x(ALL, x.v[i], y.v[i])); }
static inline vf vf_div(vf x, vf y) { VF_EACH(svdiv_f32_x(ALL, x.v[i], y.v[i])); }
static inline vf vf_rcp(vf x) { return vf_div(vf_set1(1.0f), x); }
static inline vf vf_fma(vf x, vf y, vf z) { VF_EACH(svmla_f32_x(ALL, z.v[i], x.v[i], y.v[i])); }
static inline vf vf_max(vf x, vf y) { VF_EACH(svmax_f32_x(ALL, x.v[i], y.v[i])); }
static inline vf vf_min(vf x, vf y) { VF_EACH(svmin_f32_x(ALL, x.v[i], y.v[i])); }
static inline vf vf_abs(vf x) { VF_EACH(svabs_f32_x(ALL, x.v[i])); }
static inline vf vf_round(vf x) { VF_EACH(svrintn_f32_x(ALL, x.v[i])); }

static inline f8 with_sign(f8 x, f8 y)
{
    const u8x32 sign = svand_n_u32_x(ALL, svreinterpret_u32_f32(y), 0x80000000u);
    return svreinterpret_f32_u32(svorr_u32_x(ALL, svand_n_u32_x(ALL, svreinterpret_u32_f32(x), 0x7fffffffu), sign));
}
static inline vf vf_copysign(vf x, vf y) { VF_EACH(with_sign(x.v[i], y.v[i])); }

static inline vf vf_select_lt(vf x, vf y, vf yes, vf no)
{
    VF_EACH(svsel_f32(svcmplt_f32(ALL, x.v[i], y.v[i]), yes.v[i], no.v[i]));
}
/* Returns for each lane x if x is NaN, else y. */
static inline vf vf_select_nan(vf x, vf y) { VF_EACH(svsel_f32(svcmpuo_f32(ALL, x.v[i], x.v[i]), x.v[i], y.v[i])); }

static inline void vf_store(float *p, vf x)
{
    for (int i = 0; i < 2; i++) svst1_f32(ALL, p + i * 8, x.v[i]);
}

/* y[k] lane i = p[4 * i + k]: transposes 16 groups of 4 values. */
static inline void vf_load4(const float *p, vf y[4])
{
    for (int i = 0; i < 2; i++) {
        const svfloat32x4_t x = svld4_f32(ALL, p + i * 32);
        y[0].v[i] = svget4_f32(x, 0);
        y[1].v[i] = svget4_f32(x, 1);
        y[2].v[i] = svget4_f32(x, 2);
        y[3].v[i] = svget4_f32(x, 3);
    }
}

/* Returns x * 2^n, for integers n in [-126, 127]. */
static inline vf vf_scale2(vf x, vf n) { VF_EACH(svscale_f32_x(ALL, x.v[i], svcvt_s32_f32_x(ALL, n.v[i]))); }

static inline vf vf_load_f16(const uint16_t *p)
{
    VF_EACH(svcvt_f32_f16_x(ALL, svreinterpret_f16_u32(svld1uh_u32(ALL, p + i * 8))));
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    VF_EACH(svreinterpret_f32_u32(svlsl_n_u32_x(ALL, svld1uh_u32(ALL, p + i * 8), 16)));
}
static inline vf vf_load_i8(const int8_t *p) { VF_EACH(svcvt_f32_s32_x(ALL, svld1sb_s32(ALL, p + i * 8))); }

/* lane i = nibble of p[i], for 8 lanes; high: 0 = low nibbles, 1 = high nibbles. */
static inline u8x32 nibbles(const uint8_t *p, int high)
{
    const u8x32 x = svld1ub_u32(ALL, p);
    return high ? svlsr_n_u32_x(ALL, x, 4) : svand_n_u32_x(ALL, x, 15);
}
static inline vf vf_load_u4(const uint8_t *p, int high)
{
    VF_EACH(svcvt_f32_s32_x(ALL, svsub_n_s32_x(ALL, svreinterpret_s32_u32(nibbles(p + i * 8, high)), 8)));
}

/* Returns 8 in lanes with (x & b) != 0, else -8. */
static inline f8 from_bits(u8x32 x, u8x32 b)
{
    return svsel_f32(svcmpne_n_u32(ALL, svand_u32_x(ALL, x, b), 0), svdup_n_f32(8), svdup_n_f32(-8));
}

/* vf_load_bit: lane i = 8 if bit `bit` of word p[i] is set, else -8. vf_bits: lane i = 8 if bit i of w is set, else
 * -8. */
static inline vf vf_load_bit(const uint16_t *p, int bit)
{
    VF_EACH(from_bits(svld1uh_u32(ALL, p + i * 8), svdup_n_u32(1u << bit)));
}
static inline vf vf_bits(uint16_t w)
{
    VF_EACH(from_bits(svlsr_u32_x(ALL, svdup_n_u32(w), svindex_u32((uint32_t) i * 8, 1)), svdup_n_u32(1)));
}

/* Returns table[x] for each of 8 lanes, as floats; x in 0..15. table: 16 int8. */
static inline f8 values(const int8_t *table, u8x32 x)
{
    const svint32_t v = svreinterpret_s32_s8(svtbl_s8(svld1rq_s8(svptrue_b8(), table), svreinterpret_u8_u32(x)));
    return svcvt_f32_s32_x(ALL, svextb_s32_x(ALL, v));
}

/* lane i = table[nibble of p[i]]; high: 0 = low nibbles, 1 = high nibbles. table: 16 int8. */
static inline vf vf_load_table(const int8_t *table, const uint8_t *p, int high)
{
    VF_EACH(values(table, nibbles(p + i * 8, high)));
}

/* lane i = table[code i]: 16 consecutive 3-bit codes at p (6 bytes). table: 8 int8, in 16 readable bytes. The 2 bytes
 * before p must be readable. */
static inline vf vf_load_3bits(const int8_t *table, const uint8_t *p)
{
    uint64_t w; /* the 6 bytes at p are bytes 2..7 of w */
    memcpy(&w, p - 2, 8);
    VF_EACH(values(
        table,
        svand_n_u32_x(ALL, svlsr_u32_x(ALL, svdup_n_u32((uint32_t) (w >> (16 + 24 * i))), svindex_u32(0, 3)), 7)));
}

/* lane i = word p[i] shifted so that bit `bit` is bit 0; for bit > 29 the missing code bits come from word p[i +
 * 16]. */
static inline u8x32 bits_from(const uint32_t *p, int bit)
{
    const u8x32 x = svlsr_n_u32_x(ALL, svld1_u32(ALL, p), (uint32_t) bit);
    if (bit <= 29) return x;
    return svorr_u32_x(ALL, x, svlsl_n_u32_x(ALL, svld1_u32(ALL, p + 16), (uint32_t) (32 - bit)));
}
static inline vf vf_load_3bits_of(const int8_t *table, const uint32_t *p, int bit)
{
    VF_EACH(values(table, svand_n_u32_x(ALL, bits_from(p + i * 8, bit), 7)));
}

/* Interleaves lanes of x and y: x0 y0 x1 y1 .. x7 y7 to *x, x8 y8 .. x15 y15 to *y. */
static inline void vf_zip(vf *x, vf *y)
{
    const vf a = *x, b = *y;
    x->v[0] = svzip1_f32(a.v[0], b.v[0]);
    x->v[1] = svzip2_f32(a.v[0], b.v[0]);
    y->v[0] = svzip1_f32(a.v[1], b.v[1]);
    y->v[1] = svzip2_f32(a.v[1], b.v[1]);
}

static inline void vf_store_f16(uint16_t *p, vf x)
{
    for (int i = 0; i < 2; i++) svst1h_u32(ALL, p + i * 8, svreinterpret_u32_f16(svcvt_f16_f32_x(ALL, x.v[i])));
}

/* p[i] = lane i, rounded to nearest even; lanes must be in the range of an int8. */
static inline void vf_store_i8(int8_t *p, vf x)
{
    for (int i = 0; i < 2; i++) svst1b_s32(ALL, p + i * 8, svcvt_s32_f32_x(ALL, svrintn_f32_x(ALL, x.v[i])));
}

/* Returns x in lanes first..last and y in the other lanes. */
static inline vf vf_keep(vf x, int first, int last, vf y)
{
    vf r;
    for (int i = 0; i < 2; i++) {
        const i8x32 lane = svindex_s32(i * 8, 1);
        const b32 from = svcmpge_n_s32(ALL, lane, first);
        r.v[i] = svsel_f32(svcmple_n_s32(from, lane, last), x.v[i], y.v[i]);
    }
    return r;
}

/* Returns the sum of all lanes, added by halves: lanes 8, 4, 2, 1 apart. */
static inline float vf_hsum(vf x)
{
    f8 s = svadd_f32_x(ALL, x.v[0], x.v[1]);
    s = svadd_f32_x(ALL, s, svext_f32(s, s, 4));
    s = svadd_f32_x(ALL, s, svext_f32(s, s, 2));
    s = svadd_f32_x(ALL, s, svext_f32(s, s, 1));
    return svlasta_f32(svpfalse_b(), s);
}

static inline float vf_hmax(vf x) { return svmaxv_f32(ALL, svmax_f32_x(ALL, x.v[0], x.v[1])); }

#include "backend/cpu/vec_math.h"

#endif
