/* Matrix kernels for AVX-512 with VNNI and VBMI (Ice Lake, Zen 4 and later): each vector (vb, vi, vf) is one
 * register. */
#include "backend/cpu/linear.h"

#include <immintrin.h>
#include <string.h>

#define PI__ISA_NAME "avx512"
#define PI__ISA_COLS 16
#define PI__ISA_DIRECT 4
#define PI__ISA_BIAS 128 /* vpdpbusd takes unsigned codes */
#define PI__ISA_SIGNED(digits) 0
#define PI__ISA_FUNC pi__lin_kernels_avx512
#define OP PI__INLINE

typedef __m512i vb;
typedef __m512i vi;
typedef __m512 vf;
typedef uint16_t u16x32 __attribute__((vector_size(64)));
typedef uint32_t u32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));

OP vb vb_load(const void *p) { return _mm512_loadu_si512(p); }
OP void vb_store(void *p, vb v) { _mm512_storeu_si512(p, v); }
OP vb vb_set(uint8_t v) { return _mm512_set1_epi8((char) v); }
OP vb vb_and(vb a, vb b) { return _mm512_and_si512(a, b); }
OP vb vb_or(vb a, vb b) { return _mm512_or_si512(a, b); }
OP vb vb_xor(vb a, vb b) { return _mm512_xor_si512(a, b); }
OP vb vb_add(vb a, vb b) { return _mm512_add_epi8(a, b); }
/* Shifts of 16-bit lanes: the caller masks bits that cross bytes. */
OP vb vb_shr(vb v, int n) { return (vb) ((u16x32) v >> n); }
OP vb vb_shl(vb v, int n) { return (vb) ((u16x32) v << n); }
OP vb vb_table(const uint8_t t[16]) { return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *) t)); }
OP vb vb_lut(vb t, vb i) { return _mm512_shuffle_epi8(t, i); }

OP vi vi_set(int32_t v) { return _mm512_set1_epi32(v); }
OP vi vi_dup(const int32_t *p) { return _mm512_set1_epi32(*p); }
OP vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
OP vi vi_from_u8(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) p)); }
OP vi vi_from_s8(const uint8_t *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *) p)); }
OP vi vi_from_u16(const uint8_t *p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *) p)); }
OP vi vi_and(vi a, int32_t b) { return _mm512_and_si512(a, _mm512_set1_epi32(b)); }
OP vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
OP vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
OP vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
OP vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
OP vi vi_shl(vi v, int n) { return (vi) ((u32x16) v << n); }
OP vi vi_shr(vi v, int n) { return (vi) ((u32x16) v >> n); }
OP vi vi_sar(vi v, int n) { return (vi) ((i32x16) v >> n); }
/* Returns v in lanes where a is not b, else 0. */
OP vi vi_and_ne(vi v, vi a, int32_t b) { return _mm512_maskz_mov_epi32(_mm512_cmpneq_epi32_mask(a, vi_set(b)), v); }
OP vi vi_dot_canonical(vi t, vb w, const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, 4);
    return _mm512_dpbusd_epi32(t, w, _mm512_set1_epi32(four));
}
OP vi vi_dot_small(vi t, vb w, const int8_t *x) { return vi_dot_canonical(t, w, x); }
OP int32_t vi_hmax(vi v) { return _mm512_reduce_max_epi32(v); }
/* Stores the 32 codes in a and b as bytes at p; sum[0], sum[1] = sums of the codes of a and of b. */
OP void vi_store_codes(int8_t *p, vi a, vi b, int32_t sum[2])
{
    __m256i c = _mm256_setr_m128i(_mm512_cvtsepi32_epi8(a), _mm512_cvtsepi32_epi8(b));
    _mm256_storeu_si256((__m256i *) p, c);
    __m256i s = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), c);
    s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0x4e));
    s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0xb1));
    sum[0] = _mm256_cvtsi256_si32(s);
    sum[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(s, 1));
}

OP vf vf_zero(void) { return _mm512_setzero_ps(); }
OP vf vf_set(float v) { return _mm512_set1_ps(v); }
OP vf vf_dup(const float *p) { return _mm512_set1_ps(*p); }
OP vf vf_load(const void *p) { return _mm512_loadu_ps(p); }
OP void vf_store(void *p, vf v) { _mm512_storeu_ps(p, v); }
OP void vf_store_n(float *p, vf v, int n) { _mm512_mask_storeu_ps(p, (__mmask16) ((1u << n) - 1), v); }
OP vf vf_half(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
OP vf vf_bf16(const void *p) { return (vf) vi_shl(vi_from_u16(p), 16); }
OP vf vf_from_vi(vi v) { return _mm512_cvtepi32_ps(v); }
OP vf vf_bits(vi v) { return _mm512_castsi512_ps(v); }
OP vi vi_bits(vf v) { return _mm512_castps_si512(v); }
OP vi vi_round(vf v) { return _mm512_cvtps_epi32(v); }
OP vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
OP vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
OP vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
OP vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
OP vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
OP vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); } /* returns b if one is NaN */
OP vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }

#include "backend/cpu/linear_kernel.inc.h"

#ifndef PI_NO_AMX
/* Tables for processors that also have AMX. */
static const pi__cpu_linear_kernels amx[2] = {TABLE(a8, "amx", pi__lin_amx[0]), TABLE(a15, "amx", pi__lin_amx[1])};

const pi__cpu_linear_kernels *pi__lin_kernels_amx(int bits) { return &amx[bits == 15]; }
#endif
