/* SHA-256's compression function with the cryptographic extensions of ARMv8 (see sha256.h): a pair of instructions
 * does four rounds. */
#include "base/sha256.h"

#include <arm_neon.h>

void pi__sha256_armsha(uint32_t state[8], const uint8_t *p, size_t n)
{
    uint32x4_t abcd = vld1q_u32(state), efgh = vld1q_u32(state + 4);
    for (; n; n--, p += 64) {
        const uint32x4_t abcd0 = abcd, efgh0 = efgh;
        uint32x4_t w[4];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) { /* four rounds each */
            uint32x4_t *x = &w[i & 3];
            if (i < 4) *x = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + 16 * i)));
            else *x = vsha256su1q_u32(vsha256su0q_u32(*x, w[(i - 3) & 3]), w[(i - 2) & 3], w[(i - 1) & 3]);
            const uint32x4_t wk = vaddq_u32(*x, vld1q_u32(pi__sha256_k + 4 * i)), before = abcd;
            abcd = vsha256hq_u32(abcd, efgh, wk);
            efgh = vsha256h2q_u32(efgh, before, wk);
        }
        abcd = vaddq_u32(abcd, abcd0);
        efgh = vaddq_u32(efgh, efgh0);
    }
    vst1q_u32(state, abcd);
    vst1q_u32(state + 4, efgh);
}
