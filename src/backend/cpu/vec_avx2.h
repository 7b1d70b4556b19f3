/* Vectors of 16 floats for AVX2, FMA and F16C; a vector is two of the 16 registers. No memory and no state.
 * vec_generic.h defines the same functions in plain C. */
#ifndef PI__CPU_VEC_AVX2_H
#define PI__CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>

typedef struct vf {
    __m256 a, b; /* lanes 0..7, 8..15 */
} vf;

static inline vf vf_set1(float x) { return (vf){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline vf vf_zero(void) { return (vf){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline vf vf_load(const float *p) { return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline vf vf_add(vf x, vf y) { return (vf){_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
static inline vf vf_sub(vf x, vf y) { return (vf){_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
static inline vf vf_mul(vf x, vf y) { return (vf){_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
static inline vf vf_div(vf x, vf y) { return (vf){_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
static inline vf vf_rcp(vf x) { return vf_div((vf){_mm256_set1_ps(1.0f), _mm256_set1_ps(1.0f)}, x); }
static inline vf vf_fma(vf x, vf y, vf z)
{
    return (vf) {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
static inline vf vf_max(vf x, vf y) { return (vf){_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
static inline vf vf_min(vf x, vf y) { return (vf){_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }

static inline void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}

static inline vf vf_abs(vf x)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (vf){_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}

static inline vf vf_copysign(vf x, vf y)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    vf m = vf_abs(x);
    return (vf){_mm256_or_ps(m.a, _mm256_and_ps(sign, y.a)), _mm256_or_ps(m.b, _mm256_and_ps(sign, y.b))};
}

static inline vf vf_round(vf x)
{
    return (vf){_mm256_round_ps(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                _mm256_round_ps(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

/* Adds n to the exponent. */
static inline __m256 scale2(__m256 x, __m256 n)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
}

/* Returns x * 2^n, for integers n; x and the result are normal numbers, or x is NaN. */
static inline vf vf_scale2(vf x, vf n) { return (vf){scale2(x.a, n.a), scale2(x.b, n.b)}; }

static inline vf vf_select_lt(vf x, vf y, vf yes, vf no)
{
    return (vf){_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
                _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}

/* Returns for each lane x if x is NaN, else y. */
static inline vf vf_select_nan(vf x, vf y)
{
    return (vf){_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q)),
                _mm256_blendv_ps(y.b, x.b, _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q))};
}

static inline vf vf_load_f16(const uint16_t *p)
{
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) (p + 8)))};
}

/* y[k] lane i = p[4 * i + k], for 8 lanes. */
static inline void load4_half(const float *p, __m256 y[4])
{
    __m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8), c = _mm256_loadu_ps(p + 16), d = _mm256_loadu_ps(p + 24);
    __m256 r0 = _mm256_permute2f128_ps(a, c, 0x20), r1 = _mm256_permute2f128_ps(a, c, 0x31);
    __m256 r2 = _mm256_permute2f128_ps(b, d, 0x20), r3 = _mm256_permute2f128_ps(b, d, 0x31);
    __m256 lo01 = _mm256_unpacklo_ps(r0, r1), lo23 = _mm256_unpacklo_ps(r2, r3);
    __m256 hi01 = _mm256_unpackhi_ps(r0, r1), hi23 = _mm256_unpackhi_ps(r2, r3);
    y[0] = _mm256_shuffle_ps(lo01, lo23, 0x44);
    y[1] = _mm256_shuffle_ps(lo01, lo23, 0xee);
    y[2] = _mm256_shuffle_ps(hi01, hi23, 0x44);
    y[3] = _mm256_shuffle_ps(hi01, hi23, 0xee);
}

/* y[k] lane i = p[4 * i + k]: transposes 16 groups of 4 values. */
static inline void vf_load4(const float *p, vf y[4])
{
    __m256 a[4], b[4];
    load4_half(p, a);
    load4_half(p + 32, b);
    for (int k = 0; k < 4; k++) y[k] = (vf){a[k], b[k]};
}

static inline __m256 widen_bf16(const uint16_t *p)
{
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}

static inline vf vf_load_bf16(const uint16_t *p) { return (vf){widen_bf16(p), widen_bf16(p + 8)}; }

static inline vf from_i8(__m128i x)
{
    return (vf){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))};
}

static inline vf vf_load_i8(const int8_t *p) { return from_i8(_mm_loadu_si128((const __m128i *) p)); }

static inline vf vf_load_u4(const uint8_t *p, int high)
{
    __m128i x = _mm_loadu_si128((const __m128i *) p);
    if (high) x = _mm_srli_epi16(x, 4);
    return from_i8(_mm_sub_epi8(_mm_and_si128(x, _mm_set1_epi8(15)), _mm_set1_epi8(8)));
}

/* Returns 8 in lanes with all bits of m set, -8 in lanes with no bit set. */
static inline __m256 from_mask(__m256i m)
{
    return _mm256_blendv_ps(_mm256_set1_ps(-8), _mm256_set1_ps(8), _mm256_castsi256_ps(m));
}

/* Returns 8 in lane i if bit `bit` of word p[i] is set, else -8. */
static inline vf vf_load_bit(const uint16_t *p, int bit)
{
    const __m256i b = _mm256_set1_epi32(1 << bit);
    __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) p));
    __m256i y = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) (p + 8)));
    return (vf){from_mask(_mm256_cmpeq_epi32(_mm256_and_si256(x, b), b)),
                from_mask(_mm256_cmpeq_epi32(_mm256_and_si256(y, b), b))};
}

/* Returns 8 in lane i if bit i of w is set, else -8. */
static inline vf vf_bits(uint16_t w)
{
    const __m256i lo = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128), hi = _mm256_slli_epi32(lo, 8);
    __m256i x = _mm256_set1_epi32(w);
    return (vf){from_mask(_mm256_cmpeq_epi32(_mm256_and_si256(x, lo), lo)),
                from_mask(_mm256_cmpeq_epi32(_mm256_and_si256(x, hi), hi))};
}

/* lane i = table[nibble of p[i]]; high: 0 = low nibbles, 1 = high nibbles. table: 16 int8. */
static inline vf vf_load_table(const int8_t *table, const uint8_t *p, int high)
{
    __m128i x = _mm_loadu_si128((const __m128i *) p);
    if (high) x = _mm_srli_epi16(x, 4);
    return from_i8(_mm_shuffle_epi8(_mm_loadu_si128((const __m128i *) table), _mm_and_si128(x, _mm_set1_epi8(15))));
}

/* Returns table[low three bits of index] for each of 8 lanes, as floats. table: 8 int8. */
static inline __m256 look_up(const int8_t *table, __m256i index)
{
    return _mm256_permutevar8x32_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *) table))),
                                    index);
}

/* lane i = table[code i]: 16 consecutive 3-bit codes at p (6 bytes). table: 8 int8. The 10 bytes before p must be
 * readable. */
static inline vf vf_load_3bits(const int8_t *table, const uint8_t *p)
{
    /* byte indices for the shuffle: lane i receives the byte with the first bit of code i, and the next byte */
    const __m256i none = _mm256_set1_epi32((int) 0x80800000), shift = _mm256_setr_epi32(0, 3, 6, 1, 4, 7, 2, 5);
    const __m256i a = _mm256_setr_epi32(0x0b0a, 0x0b0a, 0x0b0a, 0x0c0b, 0x0c0b, 0x0c0b, 0x0d0c, 0x0d0c);
    const __m256i b = _mm256_setr_epi32(0x0e0d, 0x0e0d, 0x0e0d, 0x0f0e, 0x0f0e, 0x0f0e, 0x800f, 0x800f);
    __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *) (p - 10)));
    return (vf){look_up(table, _mm256_srlv_epi32(_mm256_shuffle_epi8(x, _mm256_or_si256(a, none)), shift)),
                look_up(table, _mm256_srlv_epi32(_mm256_shuffle_epi8(x, _mm256_or_si256(b, none)), shift))};
}

/* lane i = table[code that starts at bit `bit` of word p[i]]: 3-bit codes; a code across a word boundary continues in
 * word p[i + 16]. table: 8 int8. */
static inline __m256 look_up_from(const int8_t *table, const uint32_t *p, int bit)
{
    __m256i x = _mm256_srl_epi32(_mm256_loadu_si256((const __m256i *) p), _mm_cvtsi32_si128(bit));
    if (bit > 29)
        x = _mm256_or_si256(
            x, _mm256_sll_epi32(_mm256_loadu_si256((const __m256i *) (p + 16)), _mm_cvtsi32_si128(32 - bit)));
    return look_up(table, x);
}
static inline vf vf_load_3bits_of(const int8_t *table, const uint32_t *p, int bit)
{
    return (vf){look_up_from(table, p, bit), look_up_from(table, p + 8, bit)};
}

/* vf_zip interleaves lanes of x and y: x0 y0 x1 y1 .. x7 y7 to *x, x8 y8 .. x15 y15 to *y. */
static inline vf zip8(__m256 a, __m256 b)
{
    __m256 lo = _mm256_unpacklo_ps(a, b), hi = _mm256_unpackhi_ps(a, b);
    return (vf){_mm256_permute2f128_ps(lo, hi, 0x20), _mm256_permute2f128_ps(lo, hi, 0x31)};
}
static inline void vf_zip(vf *x, vf *y)
{
    const vf a = *x, b = *y;
    *x = zip8(a.a, b.a);
    *y = zip8(a.b, b.b);
}

static inline void vf_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *) p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128((__m128i *) (p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* p[i] = lane i, rounded to nearest even; lanes must be in the range of an int8. */
static inline void vf_store_i8(int8_t *p, vf x)
{
    __m256i a = _mm256_cvtps_epi32(x.a), b = _mm256_cvtps_epi32(x.b);
    __m128i lo = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    __m128i hi = _mm_packs_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    _mm_storeu_si128((__m128i *) p, _mm_packs_epi16(lo, hi));
}

static inline __m256 outside(__m256i lane, int first, int last)
{
    __m256i o = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane),
                                  _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(last)));
    return _mm256_castsi256_ps(o);
}

/* Returns x in lanes first..last and y in the other lanes. */
static inline vf vf_keep(vf x, int first, int last, vf y)
{
    return (vf){_mm256_blendv_ps(x.a, y.a, outside(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), first, last)),
                _mm256_blendv_ps(x.b, y.b, outside(_mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15), first, last))};
}

/* Returns the sum of all lanes, added by halves: lanes 8, 4, 2, 1 apart. */
static inline float vf_hsum(vf x)
{
    __m256 t = _mm256_add_ps(x.a, x.b);
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_shuffle_ps(y, y, 1)));
}

static inline float vf_hmax(vf x)
{
    __m256 t = _mm256_max_ps(x.a, x.b);
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_shuffle_ps(y, y, 1)));
}

#include "backend/cpu/vec_math.h"

#endif
