/* SHA-256's compression function with the SHA extensions of x86-64 (see sha256.h). The instructions hold the eight
 * state words as ABEF and CDGH, do two rounds each, and extend the schedule by four words:
 *
 *     w[i..i+3] = msg2(msg1(w[i-16..], w[i-12..]) + w[i-7..i-4], w[i-4..i-1])
 */
#include "base/sha256.h"

#include <immintrin.h>

static __m128i load_k(int i) { return _mm_loadu_si128((const __m128i *) (const void *) (pi__sha256_k + i)); }

void pi__sha256_shani(uint32_t state[8], const uint8_t *p, size_t n)
{
    const __m128i swap = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
    const __m128i dcba = _mm_loadu_si128((const __m128i *) (const void *) state);
    const __m128i hgfe = _mm_loadu_si128((const __m128i *) (const void *) (state + 4));
    const __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1), efgh = _mm_shuffle_epi32(hgfe, 0x1B);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
    for (; n; n--, p += 64) {
        const __m128i abef0 = abef, cdgh0 = cdgh;
        __m128i w[4];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) { /* four rounds each */
            __m128i *x = &w[i & 3];
            if (i < 4) {
                *x = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *) (const void *) (p + 16 * i)), swap);
            } else {
                const __m128i last = w[(i - 1) & 3], before = w[(i - 2) & 3];
                *x = _mm_add_epi32(_mm_sha256msg1_epu32(*x, w[(i - 3) & 3]), _mm_alignr_epi8(last, before, 4));
                *x = _mm_sha256msg2_epu32(*x, last);
            }
            const __m128i wk = _mm_add_epi32(*x, load_k(4 * i));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0E));
        }
        abef = _mm_add_epi32(abef, abef0);
        cdgh = _mm_add_epi32(cdgh, cdgh0);
    }
    const __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128((__m128i *) (void *) state, _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128((__m128i *) (void *) (state + 4), _mm_alignr_epi8(dchg, feba, 8));
}
