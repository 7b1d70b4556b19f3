/* Vectors of 16 floats for AVX-512 (F, BW, VL, DQ); a vector is one of the 32 registers. No memory and no state.
 * vec_generic.h defines the same functions in plain C. */
#ifndef PI__CPU_VEC_AVX512_H
#define PI__CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 vf;

static inline vf vf_set1(float x) { return _mm512_set1_ps(x); }
static inline vf vf_zero(void) { return _mm512_setzero_ps(); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
/* Returns 1 / a within 1 ulp for normal numbers: a 14-bit estimate and one Newton step. */
static inline vf vf_rcp(vf a)
{
    vf x = _mm512_rcp14_ps(a);
    return _mm512_fmadd_ps(x, _mm512_fnmadd_ps(a, x, _mm512_set1_ps(1.0f)), x);
}

static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vf_abs(vf a) { return _mm512_abs_ps(a); }
static inline vf vf_copysign(vf a, vf b)
{
    return _mm512_or_ps(_mm512_abs_ps(a), _mm512_and_ps(b, _mm512_set1_ps(-0.0f)));
}
static inline vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* Returns a * 2^n, for integers n in [-126, 127]. */
static inline vf vf_scale2(vf a, vf n) { return _mm512_scalef_ps(a, n); }
static inline vf vf_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *) p)));
}

static inline vf vf_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) p)); }

static inline vf vf_select_lt(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}

/* Returns for each lane x if x is NaN, else y. */
static inline vf vf_select_nan(vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), y, x);
}

/* y[k] lane i = p[4 * i + k]: transposes 16 groups of 4 values. */
static inline void vf_load4(const float *p, vf y[4])
{
    const __m512i even = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(2));
    vf a = vf_load(p), b = vf_load(p + 16), c = vf_load(p + 32), d = vf_load(p + 48);
    vf ab = _mm512_permutex2var_ps(a, even, b), cd = _mm512_permutex2var_ps(c, even, d);
    y[0] = _mm512_shuffle_f32x4(ab, cd, 0x44);
    y[1] = _mm512_shuffle_f32x4(ab, cd, 0xee);
    ab = _mm512_permutex2var_ps(a, odd, b);
    cd = _mm512_permutex2var_ps(c, odd, d);
    y[2] = _mm512_shuffle_f32x4(ab, cd, 0x44);
    y[3] = _mm512_shuffle_f32x4(ab, cd, 0xee);
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *) p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}

static inline vf vf_load_u4(const uint8_t *p, int high)
{
    __m128i b = _mm_loadu_si128((const __m128i *) p);
    if (high) b = _mm_srli_epi16(b, 4);
    b = _mm_sub_epi8(_mm_and_si128(b, _mm_set1_epi8(15)), _mm_set1_epi8(8));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b));
}

/* Returns 8 in lane i if bit i of m is set, else -8. */
static inline vf from_mask(__mmask16 m) { return _mm512_mask_blend_ps(m, _mm512_set1_ps(-8), _mm512_set1_ps(8)); }

/* vf_load_bit: lane i = 8 if bit `bit` of word p[i] is set, else -8. vf_bits: lane i = 8 if bit i of w is set, else
 * -8. */
static inline vf vf_load_bit(const uint16_t *p, int bit)
{
    __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *) p));
    return from_mask(_mm512_test_epi32_mask(x, _mm512_set1_epi32(1 << bit)));
}
static inline vf vf_bits(uint16_t w) { return from_mask((__mmask16) w); }

/* Returns table[low four bits of index] for each lane, as floats. table: 16 int8. */
static inline vf look_up(const int8_t *table, __m512i index) { return _mm512_permutexvar_ps(index, vf_load_i8(table)); }

/* lane i = table[nibble of p[i]]; high: 0 = low nibbles, 1 = high nibbles. table: 16 int8. */
static inline vf vf_load_table(const int8_t *table, const uint8_t *p, int high)
{
    __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) p));
    return look_up(table, high ? _mm512_srli_epi32(b, 4) : b);
}

/* lane i = table[code i]: 16 consecutive 3-bit codes at p (6 bytes). table: 8 int8, stored twice, because bit 3 of the
 * index may be set. The 10 bytes before p must be readable. */
static inline vf vf_load_3bits(const int8_t *table, const uint8_t *p)
{
    /* byte indices for the shuffle: lane i receives the byte with the first bit of code i, and the next byte */
    const __m512i bytes = _mm512_setr_epi32(0x0b0a, 0x0b0a, 0x0b0a, 0x0c0b, 0x0c0b, 0x0c0b, 0x0d0c, 0x0d0c, 0x0e0d,
                                            0x0e0d, 0x0e0d, 0x0f0e, 0x0f0e, 0x0f0e, 0x800f, 0x800f);
    const __m512i shift = _mm512_setr_epi32(0, 3, 6, 1, 4, 7, 2, 5, 0, 3, 6, 1, 4, 7, 2, 5);
    __m512i x = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *) (p - 10)));
    x = _mm512_shuffle_epi8(x, _mm512_or_si512(bytes, _mm512_set1_epi32((int) 0x80800000)));
    return look_up(table, _mm512_srlv_epi32(x, shift));
}

/* lane i = table[code that starts at bit `bit` of word p[i]]: 3-bit codes; a code across a word boundary continues in
 * word p[i + 16]. table: 8 int8, stored twice. */
static inline vf vf_load_3bits_of(const int8_t *table, const uint32_t *p, int bit)
{
    __m512i x = _mm512_srlv_epi32(_mm512_loadu_si512(p), _mm512_set1_epi32(bit));
    if (bit > 29) x = _mm512_or_si512(x, _mm512_sll_epi32(_mm512_loadu_si512(p + 16), _mm_cvtsi32_si128(32 - bit)));
    return look_up(table, x);
}

/* Interleaves lanes of a and b: a0 b0 a1 b1 .. a7 b7 to *a, a8 b8 .. a15 b15 to *b. */
static inline void vf_zip(vf *a, vf *b)
{
    const __m512i lo = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const vf x = *a;
    *a = _mm512_permutex2var_ps(x, lo, *b);
    *b = _mm512_permutex2var_ps(x, _mm512_add_epi32(lo, _mm512_set1_epi32(8)), *b);
}

static inline void vf_store_f16(uint16_t *p, vf a)
{
    _mm256_storeu_si256((__m256i *) p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* p[i] = lane i, rounded to nearest even; lanes must be in the range of an int8. */
static inline void vf_store_i8(int8_t *p, vf a)
{
    _mm_storeu_si128((__m128i *) p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
}

/* Returns a in lanes first..last and b in the other lanes. */
static inline vf vf_keep(vf a, int first, int last, vf b)
{
    unsigned from = first > 0 ? 0xffffu << first : 0xffffu, to = last < 15 ? (2u << last) - 1 : 0xffffu;
    return _mm512_mask_blend_ps((__mmask16) (from & to), b, a);
}

/* Returns the sum of all lanes, added by halves: lanes 8, 4, 2, 1 apart. */
static inline float vf_hsum(vf a)
{
    __m256 x = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_shuffle_ps(y, y, 1)));
}

static inline float vf_hmax(vf a)
{
    __m256 x = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_shuffle_ps(y, y, 1)));
}

#include "backend/cpu/vec_math.h"

#endif
