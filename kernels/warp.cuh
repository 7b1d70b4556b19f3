/* Reductions over a warp or a thread block, and conversions of floats for comparisons, shared by several kernels. The
 * order of each sum is fixed: it does not depend on the grid. */
#ifndef PI_WARP_CUH
#define PI_WARP_CUH

#include "ptx.cuh"

/* Sum, maximum or minimum of v over the 32 lanes of a warp. All lanes call it and get the result. */
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
PI_FN uint32_t warp_max(uint32_t v)
{
    for (int o = 16; o; o >>= 1) v = max(v, __shfl_xor_sync(PI_FULL, v, o));
    return v;
}
PI_FN uint64_t warp_min(uint64_t v)
{
    for (int o = 16; o; o >>= 1) v = min(v, __shfl_xor_sync(PI_FULL, v, o));
    return v;
}
PI_FN int warp_sum_int(int v)
{
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(PI_FULL, v, o);
    return v;
}

/* |v|, or infinity if v is NaN. */
PI_FN float abs_or_inf(float v) { return fabsf(v) <= 3.4e38f ? fabsf(v) : INFINITY; }

/* Returns the sum of v over a block of at most 32 warps, to all threads. scratch: shared memory, one float per warp, in
 * use until the next barrier. */
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

/* Returns the maximum of v over a block of at most 32 warps, to all threads. scratch: as in
 * block_sum(). */
PI_FN float block_max(float v, float *scratch)
{
    v = warp_max(v);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
    __syncthreads();
    for (int i = 0; i < (int) blockDim.x / 32; i++) v = fmaxf(v, scratch[i]);
    return v;
}

/* Maps f to an unsigned integer that compares as f does. +0 and -0 map to one value; NaN maps to 0, below all
 * others. */
PI_FN uint32_t rank_of(float f)
{
    const uint32_t u = __float_as_uint(f + 0.0f);
    return f != f ? 0 : u >> 31 ? ~u : u | 0x80000000u;
}

/* Clamps f to the range of F16: NaN becomes 0, infinities become +-65504. */
PI_FN float clean(float f) { return f != f ? 0.0f : fminf(fmaxf(f, -65504.0f), 65504.0f); }

#endif
