/* exp(x) for x <= 0, bitwise identical to the sampler's pi__exp_neg (base/logits.h): float operations without fmaf. */
#ifndef PI_EXP_NEG_CUH
#define PI_EXP_NEG_CUH

#include "ptx.cuh"

/* Returns exp(x) for x <= 0; 0 below -87. */
PI_FN float exp_neg(float x)
{
    /* All bits set if x >= -87, else 0 (also for NaN): a mask for the result. */
    const uint32_t keep = (__float_as_uint(x) & 0x7fffffffu) <= 0x42ae0000u ? 0xffffffffu : 0;
    const float c = __uint_as_float(__float_as_uint(x) & keep);
    /* x = n ln 2 + f. Adding 1.5 * 2^23 rounds x / ln 2 to the integer n. y = exp(f), by a Taylor polynomial; scale =
     * 2^n. */
    const float r = c * 1.44269504f + 12582912.0f, n = r - 12582912.0f;
    const float f = (c - n * 0.693359375f) + n * 2.12194440e-4f;
    float y = 1.98412698e-4f;
    y = y * f + 1.38888889e-3f;
    y = y * f + 8.33333333e-3f;
    y = y * f + 4.16666667e-2f;
    y = y * f + 1.66666667e-1f;
    y = y * f + 0.5f;
    y = y * f + 1.0f;
    y = y * f + 1.0f;
    const uint32_t scale = (__float_as_uint(r) - 0x4b400000u + 127u) << 23;
    return __uint_as_float(__float_as_uint(y * __uint_as_float(scale)) & keep);
}

#endif
