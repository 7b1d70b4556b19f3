/* Sums, maxima and number formats that several kernels use. Orders are fixed: the same for every grid. */
#ifndef PI_WARP_CUH
#define PI_WARP_CUH

#include "device.cuh"

/* Over the lanes of a warp; all lanes get it. */
PI_FN float warp_sum(float v)
{
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(PI_FULL, v, o);
    return v;
}
PI_FN float warp_max(float v)
{
    for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(PI_FULL, v, o));
    return v;
}
PI_FN int warp_sum_int(int v)
{
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(PI_FULL, v, o);
    return v;
}

/* The absolute value, infinite if v is NaN. */
PI_FN float size_of_value(float v) { return fabsf(v) <= 3.4e38f ? fabsf(v) : INFINITY; }

/* Over the threads of a block of at most 32 warps; scratch: a float a warp, in use until the next barrier. */
PI_FN float block_sum(float v, float *scratch)
{
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, n = (int) blockDim.x / 32;
    v = warp_sum(v);
    if (lane == 0) scratch[warp] = v;
    __syncthreads();
    v = 0;
    for (int i = 0; i < n; i++) v += scratch[i];
    return v;
}

/* The largest, of the same threads. */
PI_FN float block_max(float v, float *scratch)
{
    v = warp_max(v);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    for (int i = 0; i < (int) blockDim.x / 32; i++) v = fmaxf(v, scratch[i]);
    return v;
}

/* Half precision by its bits. To half: round to nearest even, overflow to infinity. */
PI_FN float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t) (h & 0x8000) << 16, em = h & 0x7fff;
    if (em < 0x400) return __uint_as_float(sign | __float_as_uint((float) em * 5.9604644775390625e-8f)); /* 2^-24 */
    return __uint_as_float(sign | ((em << 13) + (em < 0x7c00 ? 112u << 23 : 224u << 23)));
}
PI_FN uint16_t float_to_half(float f)
{
    uint32_t u = __float_as_uint(f), sign = u >> 16 & 0x8000;
    u &= 0x7fffffff;
    if (u > 0x7f800000) return (uint16_t) (sign | 0x7e00);
    if (u >= 0x477ff000) return (uint16_t) (sign | 0x7c00);
    if (u < 0x38800000) { /* subnormal half: the sum with 0.5 rounds at 2^-24 */
        return (uint16_t) (sign | (__float_as_uint(__uint_as_float(u) + 0.5f) - 0x3f000000));
    }
    return (uint16_t) (sign | ((u + 0xfff + (u >> 13 & 1) - (112u << 23)) >> 13));
}
PI_FN float bf16_to_float(uint16_t h) { return __uint_as_float((uint32_t) h << 16); }
PI_FN uint16_t float_to_bf16(float f)
{
    uint32_t u = __float_as_uint(f);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t) (u >> 16 | 0x40);
    return (uint16_t) ((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* As an unsigned number in the same order: zeros of both signs are equal, NaN is 0, below all others. */
PI_FN uint32_t rank_of(float f)
{
    const uint32_t u = __float_as_uint(f + 0.0f);
    return f != f ? 0 : u >> 31 ? ~u : u | 0x80000000u;
}

/* The value as a half can hold it: NaN is 0, infinities are 65504. */
PI_FN float clean(float f) { return f != f ? 0.0f : fminf(fmaxf(f, -65504.0f), 65504.0f); }

#endif
