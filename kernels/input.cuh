/* The input of products (their prologue), value by value: x as it is, normed, or gated. */
#ifndef PI_INPUT_CUH
#define PI_INPUT_CUH

#include "backend/device.h"
#include "backend/cuda/kernels.h"
#include "warp.cuh"

/* gelu by its tanh form, or silu, times the other half. limit: of silu and its other half, or 0. */
PI_FN float gated(int32_t kind, float x, float up, float limit)
{
    if (limit != 0) x = x > limit ? limit : x, up = up > limit ? limit : up < -limit ? -limit : up; /* a NaN comes through */
    if (kind == PI__IN_SWIGLU) return x / (1.0f + expf(-x)) * up;
    return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * x * fmaf(0.044715f * x, x, 1.0f))) * up;
}

/* A row, read by a block of `threads` threads. */
struct input_row {
    const float *x, *x2, *w;
    int32_t kind;
    float norm, limit;

    __device__ __forceinline__ float at(int64_t i) const
    {
        float v = x[i];
        if (kind == PI__IN_RMSNORM) v = v * norm * w[i];
        return x2 ? gated(kind, v, x2[i], limit) : v;
    }
};

/* 1 / sqrt(mean(x^2) + eps), by the threads of a block, of which each adds its values in order; scratch: as of block_sum. */
PI_FN float norm_factor(const float *x, float eps, int64_t n, float *scratch)
{
    float s = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) s = fmaf(x[i], x[i], s);
    return 1.0f / sqrtf(block_sum(s, scratch) / (float) n + eps);
}

/* x = (x + rmsnorm(y) * w) * scale, of w NULL (x + y) * scale; scratch: as of block_sum. A thread changes the values that it
 * reads of x in norm_factor(). */
PI_FN void add_row(float *x, const float *y, const float *w, float eps, float scale, int64_t n, float *scratch)
{
    const float factor = w ? norm_factor(y, eps, n, scratch) : 1.0f;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) x[i] = (x[i] + (w ? y[i] * factor * w[i] : y[i])) * scale;
}

/* scratch: as of block_sum. All threads of the block call it, for the same row. */
PI_FN input_row open_row(const pi__k_input &in, int64_t row, int64_t n_in, bool there, float *scratch)
{
    input_row r = {in.x + row * in.ldx, in.x2 ? in.x2 + row * in.ldx2 : nullptr, in.w, in.kind, 1.0f, in.limit};
    if (in.kind == PI__IN_RMSNORM && there) r.norm = norm_factor(r.x, in.eps, n_in, scratch);
    return r;
}

#endif
