/* The vector operations of linear_kernel.inc.h for AVX2 with FMA and F16C: a vector is a pair of registers a, b (lower
 * and upper half). The including file (linear_avx2.c, linear_avxvnni.c) defines the dot products. */
#ifndef PI__LINEAR_YMM_H
#define PI__LINEAR_YMM_H

#include "backend/cpu/linear.h"

#include <immintrin.h>
#include <string.h>

#define OP PI__INLINE
#define BOTH(t, fa, fb) ((t) {fa, fb})

typedef struct vb { __m256i a, b; } vb;
typedef struct vi { __m256i a, b; } vi;
typedef struct vf { __m256 a, b; } vf;
typedef uint16_t u16x16 __attribute__((vector_size(32)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));

OP __m256i load32(const void *p) { return _mm256_loadu_si256(p); }
OP __m128i load16(const void *p) { return _mm_loadu_si128(p); }

OP vb vb_load(const void *p) { return BOTH(vb, load32(p), load32((const char *) p + 32)); }
OP void vb_store(void *p, vb v) { _mm256_storeu_si256(p, v.a); _mm256_storeu_si256((__m256i *) p + 1, v.b); }
OP vb vb_set(uint8_t v) { __m256i r = _mm256_set1_epi8((char) v); return BOTH(vb, r, r); }
OP vb vb_and(vb x, vb y) { return BOTH(vb, _mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)); }
OP vb vb_or(vb x, vb y) { return BOTH(vb, _mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)); }
OP vb vb_xor(vb x, vb y) { return BOTH(vb, _mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)); }
OP vb vb_add(vb x, vb y) { return BOTH(vb, _mm256_add_epi8(x.a, y.a), _mm256_add_epi8(x.b, y.b)); }
/* Shifts of 16-bit lanes: the caller masks bits that cross bytes. */
OP vb vb_shr(vb v, int n) { return BOTH(vb, (__m256i) ((u16x16) v.a >> n), (__m256i) ((u16x16) v.b >> n)); }
OP vb vb_shl(vb v, int n) { return BOTH(vb, (__m256i) ((u16x16) v.a << n), (__m256i) ((u16x16) v.b << n)); }
OP vb vb_table(const uint8_t t[16]) { __m256i r = _mm256_broadcastsi128_si256(load16(t)); return BOTH(vb, r, r); }
OP vb vb_lut(vb t, vb i) { return BOTH(vb, _mm256_shuffle_epi8(t.a, i.a), _mm256_shuffle_epi8(t.b, i.b)); }

OP vi vi_set(int32_t v) { __m256i r = _mm256_set1_epi32(v); return BOTH(vi, r, r); }
OP vi vi_dup(const int32_t *p) { return vi_set(*p); }
OP vi vi_load(const void *p) { return BOTH(vi, load32(p), load32((const char *) p + 32)); }
OP vi vi_from_u8(const uint8_t *p)
{
    __m128i v = load16(p);
    return BOTH(vi, _mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8)));
}
OP vi vi_from_s8(const uint8_t *p)
{
    __m128i v = load16(p);
    return BOTH(vi, _mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8)));
}
OP vi vi_from_u16(const uint8_t *p)
{
    return BOTH(vi, _mm256_cvtepu16_epi32(load16(p)), _mm256_cvtepu16_epi32(load16(p + 16)));
}
OP vi vi_and(vi x, int32_t y)
{
    __m256i m = _mm256_set1_epi32(y);
    return BOTH(vi, _mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m));
}
OP vi vi_or(vi x, vi y) { return BOTH(vi, _mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)); }
OP vi vi_add(vi x, vi y) { return BOTH(vi, _mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)); }
OP vi vi_sub(vi x, vi y) { return BOTH(vi, _mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)); }
OP vi vi_max(vi x, vi y) { return BOTH(vi, _mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)); }
OP vi vi_shl(vi v, int n) { return BOTH(vi, (__m256i) ((u32x8) v.a << n), (__m256i) ((u32x8) v.b << n)); }
OP vi vi_shr(vi v, int n) { return BOTH(vi, (__m256i) ((u32x8) v.a >> n), (__m256i) ((u32x8) v.b >> n)); }
OP vi vi_sar(vi v, int n) { return BOTH(vi, (__m256i) ((i32x8) v.a >> n), (__m256i) ((i32x8) v.b >> n)); }
/* Returns v in lanes where a is not b, else 0. */
OP vi vi_and_ne(vi v, vi a, int32_t b)
{
    __m256i m = _mm256_set1_epi32(b);
    return BOTH(vi, _mm256_andnot_si256(_mm256_cmpeq_epi32(a.a, m), v.a),
                _mm256_andnot_si256(_mm256_cmpeq_epi32(a.b, m), v.b));
}
/* Returns the 4 bytes at x repeated in all 32-bit lanes. */
OP __m256i four(const int8_t *x)
{
    int32_t v;
    memcpy(&v, x, 4);
    return _mm256_set1_epi32(v);
}
OP __m128i fold_max(__m256i v) { return _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)); }
OP int32_t vi_hmax(vi v)
{
    __m128i m = fold_max(_mm256_max_epi32(v.a, v.b));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}
OP int32_t sum_all(vi v)
{
    __m256i s = _mm256_add_epi32(v.a, v.b);
    __m128i m = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
    m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}
OP void store_s8(int8_t *p, vi v)
{
    __m128i a = _mm_packs_epi32(_mm256_castsi256_si128(v.a), _mm256_extracti128_si256(v.a, 1));
    __m128i b = _mm_packs_epi32(_mm256_castsi256_si128(v.b), _mm256_extracti128_si256(v.b, 1));
    _mm_storeu_si128((__m128i *) p, _mm_packs_epi16(a, b));
}
/* Stores the 32 codes in a and b as bytes at p; sum[0], sum[1] = sums of the codes of a and of b. */
OP void vi_store_codes(int8_t *p, vi a, vi b, int32_t sum[2])
{
    store_s8(p, a);
    store_s8(p + 16, b);
    sum[0] = sum_all(a);
    sum[1] = sum_all(b);
}

OP vf vf_set(float v) { __m256 r = _mm256_set1_ps(v); return BOTH(vf, r, r); }
OP vf vf_zero(void) { return vf_set(0.0f); }
OP vf vf_dup(const float *p) { return vf_set(*p); }
OP vf vf_load(const void *p) { return BOTH(vf, _mm256_loadu_ps(p), _mm256_loadu_ps((const float *) p + 8)); }
OP void vf_store(void *p, vf v) { _mm256_storeu_ps(p, v.a); _mm256_storeu_ps((float *) p + 8, v.b); }
OP void vf_store_n(float *p, vf v, int n)
{
    float t[16];
    vf_store(t, v);
    memcpy(p, t, (size_t) n * sizeof *p);
}
OP vf vf_half(const void *p)
{
    return BOTH(vf, _mm256_cvtph_ps(load16(p)), _mm256_cvtph_ps(load16((const char *) p + 16)));
}
OP vf vf_from_vi(vi v) { return BOTH(vf, _mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)); }
OP vf vf_bits(vi v) { return BOTH(vf, _mm256_castsi256_ps(v.a), _mm256_castsi256_ps(v.b)); }
OP vi vi_bits(vf v) { return BOTH(vi, _mm256_castps_si256(v.a), _mm256_castps_si256(v.b)); }
OP vf vf_bf16(const void *p) { return vf_bits(vi_shl(vi_from_u16(p), 16)); }
OP vi vi_round(vf v) { return BOTH(vi, _mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b)); }
OP vf vf_add(vf x, vf y) { return BOTH(vf, _mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)); }
OP vf vf_sub(vf x, vf y) { return BOTH(vf, _mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)); }
OP vf vf_mul(vf x, vf y) { return BOTH(vf, _mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)); }
OP vf vf_div(vf x, vf y) { return BOTH(vf, _mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)); }
OP vf vf_fma(vf x, vf y, vf z) { return BOTH(vf, _mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)); }
/* vf_min, vf_max: return y if x or y is NaN */
OP vf vf_min(vf x, vf y) { return BOTH(vf, _mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)); }
OP vf vf_max(vf x, vf y) { return BOTH(vf, _mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)); }

#endif
