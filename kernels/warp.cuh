/* Sums, maxima and orders of numbers that several kernels use. Orders are fixed: the same for every grid. */
#ifndef PI_WARP_CUH
#define PI_WARP_CUH

#include "ptx.cuh"

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

/* As an unsigned number in the same order: zeros of both signs are equal, NaN is 0, below all others. */
PI_FN uint32_t rank_of(float f)
{
    const uint32_t u = __float_as_uint(f + 0.0f);
    return f != f ? 0 : u >> 31 ? ~u : u | 0x80000000u;
}

/* The value as a half can hold it: NaN is 0, infinities are 65504. */
PI_FN float clean(float f) { return f != f ? 0.0f : fminf(fmaxf(f, -65504.0f), 65504.0f); }

#endif
