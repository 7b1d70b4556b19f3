/* Matrix kernels for ARMv8.2 with the dot product extension: sdot multiplies 4 columns of 4 rows. */
#include "backend/cpu/linear_neon.h"

#define PI__ISA_NAME "neon"
#define PI__ISA_FUNC pi__lin_kernels_neon

/* t += 4 lines times 16 codes. */
OP ri ri_dot4(ri t, const rb *w, const int8_t *x)
{
    const int8x16_t v = vld1q_s8(x);
    t = vdotq_laneq_s32(t, w[0], v, 0);
    t = vdotq_laneq_s32(t, w[1], v, 1);
    t = vdotq_laneq_s32(t, w[2], v, 2);
    return vdotq_laneq_s32(t, w[3], v, 3);
}

#include "backend/cpu/linear_kernel.inc.h"
