/* Matrix kernels for AVX2 with FMA and F16C.
 *
 * Products of codes and 15-bit activations use 16-bit multiplications (vpmaddwd), summed in pairs to 32 bits. Byte
 * products of two digits would take the same number of instructions. They are avoided because pair sums of byte
 * products fit in 16 bits only for small codes or with sign handling. */
#include "backend/cpu/linear_ymm.h"

#define PI__ISA_NAME "avx2"
#define PI__ISA_COLS 4
#define PI__ISA_DIRECT 1
#define PI__ISA_LINES
#define PI__ISA_WIDE(digits) ((digits) == 2)
#define PI__ISA_BIAS 128
#define PI__ISA_SIGNED(digits) ((digits) == 1)
#define PI__ISA_NARROW
#define PI__ISA_AHEAD 3072
#define PI__ISA_FUNC pi__lin_kernels_avx2

/* Returns t + v. The empty asm keeps sums in sequence: GCC would otherwise compute all products first and spill
 * them. */
OP __m256i add(__m256i t, __m256i v)
{
    t = _mm256_add_epi32(t, v);
    __asm__("" : "+x"(t));
    return t;
}
/* Returns 16-bit sums of two products each of codes w and 4 activations x, repeated. w is unsigned and below 64. */
OP vi vs_dot(vb w, const int8_t *x)
{
    const __m256i v = four(x);
    return BOTH(vi, _mm256_maddubs_epi16(w.a, v), _mm256_maddubs_epi16(w.b, v));
}
OP __m256i add16(__m256i s, __m256i v)
{
    s = _mm256_add_epi16(s, v);
    __asm__("" : "+x"(s));
    return s;
}
OP vi vs_add(vi s, vi v) { return BOTH(vi, add16(s.a, v.a), add16(s.b, v.b)); }
OP vi vi_from_vs(vi s)
{
    const __m256i one = _mm256_set1_epi16(1);
    return BOTH(vi, _mm256_madd_epi16(s.a, one), _mm256_madd_epi16(s.b, one));
}
OP __m256i dot_half(__m256i t, __m256i w, __m256i x)
{
    return add(t, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1)));
}
/* t += dots of (w - 128) and x, for canonical codes w. The sign of w - 128 is moved to x, so that pairs of products fit
 * in 16 bits. */
OP vi dot_signed(vi t, vb w, const int8_t *x)
{
    __m256i v = four(x);
    w = vb_xor(w, vb_set(128));
    return BOTH(vi, dot_half(t.a, _mm256_abs_epi8(w.a), _mm256_sign_epi8(v, w.a)),
                dot_half(t.b, _mm256_abs_epi8(w.b), _mm256_sign_epi8(v, w.b)));
}
OP vi dot_16(vi t, __m256i a, __m256i b, __m256i x)
{
    return BOTH(vi, add(t.a, _mm256_madd_epi16(a, x)), add(t.b, _mm256_madd_epi16(b, x)));
}
/* t += dots of the 4 columns of each row in w and the four 16-bit codes at x, stored in the column order 0, 2, 1, 3. */
OP vi dot_wide(vi t, vb w, const int8_t *x)
{
    const __m256i even = _mm256_set1_epi16(255);
    t = dot_16(t, _mm256_and_si256(w.a, even), _mm256_and_si256(w.b, even), four(x));
    return dot_16(t, _mm256_srli_epi16(w.a, 8), _mm256_srli_epi16(w.b, 8), four(x + 4));
}
OP vi vi_dot_line(int digits, int offset, vi t, vb w, const int8_t *x)
{
    (void) offset; /* always 7 with one digit: narrower codes use vs_dot */
    return PI__ISA_WIDE(digits) ? dot_wide(t, w, x) : dot_signed(t, w, x);
}

/* Stores 16 codes as 16-bit numbers at p, each group of four in the column order 0, 2, 1, 3. */
OP void store_wide(int8_t *p, vi v)
{
    __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(v.a, v.b), 0xd8);
    w = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(w, 0xd8), 0xd8);
    _mm256_storeu_si256((__m256i *) p, w);
}
/* Stores 32 codes at p like store_wide; sum[half] = sum of the half's codes. */
OP void vi_store_wide(int8_t *p, vi a, vi b, int32_t sum[2])
{
    store_wide(p, a);
    store_wide(p + 32, b);
    sum[0] = sum_all(a);
    sum[1] = sum_all(b);
}

#include "backend/cpu/linear_kernel.inc.h"
