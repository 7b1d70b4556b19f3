/* The input of products (their prologue), value by value: x as it is, normed, or gated. */
#ifndef PI_INPUT_CUH
#define PI_INPUT_CUH

#include "backend/cuda/kernels.h"
#include "warp.cuh"

/* What the kind makes of two halves, see pi__lin_in. limit: of both kinds of silu and their other half, or 0. */
PI_FN float gated(int32_t kind, float x, float up, float limit)
{
    if (limit != 0) x = x > limit ? limit : x, up = up > limit ? limit : up < -limit ? -limit : up; /* a NaN comes through */
    if (kind == PI__IN_SWIGLU) return x / (1.0f + expf(-x)) * up;
    if (kind == PI__IN_SWIGLU_OAI) return x / (1.0f + expf(-1.702f * x)) * (up + 1.0f);
    return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * x * fmaf(0.044715f * x, x, 1.0f))) * up;
}

/* What threads do of a row: the pieces of blockDim.x columns from `first` on, each step-th. All: {0, 1}. */
struct row_share {
    int64_t first, step;
};

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
    /* Four of them; i and all pointers are multiples of four values. */
    __device__ __forceinline__ void four(int64_t i, float *to) const
    {
        const float4 v = *(const float4 *) (x + i);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
        if (kind == PI__IN_RMSNORM) {
            const float4 f = *(const float4 *) (w + i);
            to[0] = to[0] * norm * f.x, to[1] = to[1] * norm * f.y, to[2] = to[2] * norm * f.z, to[3] = to[3] * norm * f.w;
        }
        if (!x2) return;
        const float4 up = *(const float4 *) (x2 + i);
        to[0] = gated(kind, to[0], up.x, limit), to[1] = gated(kind, to[1], up.y, limit);
        to[2] = gated(kind, to[2], up.z, limit), to[3] = gated(kind, to[3], up.w, limit);
    }
};

/* 1 / sqrt(mean(x^2) + eps), by the threads of a block, of which each adds its values in order; scratch: as of block_sum. */
PI_FN float norm_factor(const float *x, float eps, int64_t n, float *scratch)
{
    float s = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) s = fmaf(x[i], x[i], s);
    return 1.0f / sqrtf(block_sum(s, scratch) / (float) n + eps);
}

/* Row `row` of x = (x + rmsnorm(y) * w) * scale, of w NULL (x + y + bias) * scale; fresh: x = rmsnorm(y) * w. scratch: as of
 * block_sum. A thread changes the values that it reads of x in norm_factor(). */
PI_FN void add_row(const pi__k_add &a, int64_t row, float *scratch)
{
    float *x = a.x + row * a.n;
    const float *y = a.y + row * a.n;
    const float factor = a.w ? norm_factor(y, a.eps, a.n, scratch) : 1.0f;
    for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
        const float v = a.w ? y[i] * factor * a.w[i] : a.bias ? y[i] + a.bias[i] : y[i];
        x[i] = a.fresh ? v : (x[i] + v) * a.scale;
    }
}

/* scratch: as of block_sum. All threads of the block call it, for the same row. */
PI_FN input_row open_row(const pi__k_input &in, int64_t row, int64_t n_in, bool there, float *scratch)
{
    input_row r = {in.x + row * in.ldx, in.x2 ? in.x2 + row * in.ldx2 : nullptr, in.w, in.kind, 1.0f, in.limit};
    if (in.kind == PI__IN_RMSNORM && there) r.norm = norm_factor(r.x, in.eps, n_in, scratch);
    return r;
}

#endif
