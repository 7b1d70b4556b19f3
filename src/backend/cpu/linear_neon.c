/* Matrix kernels for ARMv8.2 with the dot product extension: sdot multiplies 4 columns of 4 matrix rows by 4 codes of
 * one batch row. */
#include "backend/cpu/linear_neon.h"

#define PI__ISA_NAME "neon"
#define PI__ISA_FUNC pi__lin_kernels_neon

/* t[row] += 4 lines w (16 columns of 4 rows) times the 16 codes at x. */
OP ri ri_dot4(ri t, const rb *w, const int8_t *x)
{
    const int8x16_t v = vld1q_s8(x);
    t = vdotq_laneq_s32(t, w[0], v, 0);
    t = vdotq_laneq_s32(t, w[1], v, 1);
    t = vdotq_laneq_s32(t, w[2], v, 2);
    return vdotq_laneq_s32(t, w[3], v, 3);
}

#include "backend/cpu/linear_kernel.inc.h"
