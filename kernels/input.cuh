/* The input of products (their prologue): value by value, x unchanged, after RMSNorm, or gated. Also the residual add
 * with norm of a row, add_row(). Used by packing kernels and by epilogues (tail.cuh), one thread block per row. */
#ifndef PI_INPUT_CUH
#define PI_INPUT_CUH

#include "backend/cuda/kernels.h"
#include "warp.cuh"

/* Returns act(x) * up for one column. x: value of the gate projection; up: value of the up projection. kind: PI__IN_*
 * as in pi__lin_in, except GEGLU_ERF and GELU. limit: as in pi__lin_in. */
PI_FN float gated(int32_t kind, float x, float up, float limit)
{
    /* comparisons instead of fminf: NaN stays NaN */
    const float most = fabsf(limit);
    if (limit > 0) x = x > most ? most : x;
    if (limit != 0) up = up > most ? most : up < -most ? -most : up;
    if (kind == PI__IN_SWIGLU) {
        x = x / (1.0f + expf(-x));
        return (limit < 0 && x > most ? most : x) * up;
    }
    if (kind == PI__IN_SWIGLU_OAI) return x / (1.0f + expf(-1.702f * x)) * (up + 1.0f);
    if (kind == PI__IN_RELU2) return (x < 0 ? 0.0f : x) * up;
    return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * x * fmaf(0.044715f * x, x, 1.0f))) * up;
}

/* As gated(), for all kinds. Products that compute the activation of their own results use gated(): erff would be a
 * quarter of their code, and only encoders need it. */
PI_FN float gated_any(int32_t kind, float x, float up, float limit)
{
    if (kind == PI__IN_GEGLU_ERF || kind == PI__IN_GELU)
        return 0.5f * x * (1.0f + erff(0.70710678118654752f * x)) * (kind == PI__IN_GELU ? 1.0f : up);
    return gated(kind, x, up, limit);
}

/* gated_any() as a function call, which makes code smaller. */
PI_CALL float gated_noinline(int32_t kind, float x, float up, float limit) { return gated_any(kind, x, up, limit); }

/* A thread block's part of a row. The row is cut into pieces of blockDim.x columns; the part has pieces `first`, first
 * + step, first + 2 step ... {0, 1} = the complete row. */
struct row_share {
    int64_t first, step;
};

/* Number of values that a thread loads before it uses the first. A row is often read by a single block. Its threads
 * then wait for memory once per ROW_AT_ONCE values instead of once per value. */
enum { ROW_AT_ONCE = 4 };

/* Calls use(i, load(i)) for i = first, first + step, .. below n, in order; ROW_AT_ONCE loads precede their uses. The
 * code is short because code that runs once must be fetched from memory, too. */
template <class L, class F> PI_FN void row_values(int32_t first, int32_t step, int32_t n, const L &load, const F &use)
{
#pragma unroll 1
    for (int32_t i = first; i < n; i += step * ROW_AT_ONCE) {
        decltype(load(i)) v[ROW_AT_ONCE] = {};
#pragma unroll
        for (int j = 0; j < ROW_AT_ONCE; j++)
            /* nothing is loaded past the end */
            if (i + j * step < n) v[j] = load(i + j * step);
#pragma unroll
        for (int j = 0; j < ROW_AT_ONCE; j++)
            if (i + j * step < n) use(i + j * step, v[j]);
    }
}

/* One row of the input. x: its values. x2: the up projection's values of gated kinds, or NULL. w: norm weights. norm: 1
 * / RMS of the row, else 1. limit: as in gated(). */
struct input_row {
    const float *x, *x2, *w;
    int32_t kind;
    float norm, limit;

    /* Returns x[i], normalized for RMSNorm; before gating. */
    __device__ __forceinline__ float first_at(int64_t i) const
    {
        return kind == PI__IN_RMSNORM ? x[i] * norm * w[i] : x[i];
    }
    /* Returns value i of the input. */
    __device__ __forceinline__ float at(int64_t i) const
    {
        /* Inline, because a call would spill the caller's accumulators. */
        return x2 ? gated_any(kind, first_at(i), x2[i], limit) : first_at(i);
    }
    /* As at(), but calls gated() as a function: smaller code for callers with many uses. */
    __device__ __forceinline__ float at_noinline(int64_t i) const
    {
        return x2 ? gated_noinline(kind, first_at(i), x2[i], limit) : first_at(i);
    }
    /* Calls use(i, value of column i) for the columns of part `of` of a row of n values. All threads of the block call
     * it; each thread gets its columns in ascending order. */
    template <class F> __device__ __forceinline__ void each(row_share of, int64_t n, const F &use) const
    {
        struct factors {
            float v, w; /* w: norm weight, or x2[i] of gated kinds */
        };
        const bool normed = kind == PI__IN_RMSNORM;
        const float *second = normed ? w : x2;
        row_values((int32_t) (of.first * blockDim.x + threadIdx.x), (int32_t) (of.step * blockDim.x), (int32_t) n,
                   [&](int32_t i) { return factors{x[i], second ? second[i] : 0.0f}; },
                   [&](int32_t i, const factors &f) {
                       use(i, normed ? f.v * norm * f.w : second ? gated_noinline(kind, f.v, f.w, limit) : f.v);
                   });
    }
    /* Writes values i .. i + 3 of the input to to[0 .. 3]. i is a multiple of 4; x, x2 and w are aligned to 16
     * bytes. */
    __device__ __forceinline__ void four(int64_t i, float *to) const
    {
        const float4 v = *(const float4 *) (x + i);
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
        if (kind == PI__IN_RMSNORM) {
            const float4 f = *(const float4 *) (w + i);
            to[0] = to[0] * norm * f.x, to[1] = to[1] * norm * f.y, to[2] = to[2] * norm * f.z,
            to[3] = to[3] * norm * f.w;
        }
        if (!x2) return;
        const float4 up = *(const float4 *) (x2 + i);
        to[0] = gated_noinline(kind, to[0], up.x, limit), to[1] = gated_noinline(kind, to[1], up.y, limit);
        to[2] = gated_noinline(kind, to[2], up.z, limit), to[3] = gated_noinline(kind, to[3], up.w, limit);
    }
};

/* Returns the norm factor of a row of n values, 1 / sqrt(mean(x^2) + eps). squares: the calling thread's sum of
 * squares. scratch: as for block_sum(). */
PI_FN float norm_of(float squares, float eps, int64_t n, float *scratch)
{
    return 1.0f / sqrtf(block_sum(squares, scratch) / (float) n + eps);
}
/* Returns the norm factor of the row x, see norm_of(). All threads of the block call it; each adds its squares in
 * column order. */
PI_FN float norm_factor(const float *x, float eps, int64_t n, float *scratch)
{
    float s = 0;
    const auto add = [&s](int32_t, float v) { s = fmaf(v, v, s); };
    row_values((int32_t) threadIdx.x, (int32_t) blockDim.x, (int32_t) n, [x](int32_t i) { return x[i]; }, add);
    return norm_of(s, eps, n, scratch);
}

/* Copies in shared memory of the operands of add_row(), each one row; NULL = no copy. w: norm weights or bias. Each
 * thread accesses its own columns only, so no barrier is needed. */
struct add_smem_copy {
    float *x;
    const float *y, *w;
};

/* Returns the new value of one column of x in add_row(). factor: norm factor of the row y. w: norm weight if a.w is
 * set, else bias. */
PI_FN float added(const pi__k_add &a, float factor, float x, float y, float w)
{
    const float v = a.w ? y * factor * w : a.bias ? y + w : y;
    return a.fresh ? v : (x + v) * a.scale;
}

/* Computes the calling thread's columns i of the result of add_row() and calls put(i, value). factor: norm factor of y.
 * w: norm weights, bias, or NULL. Returns the sum of the squares of these values, added in the order of
 * norm_factor(). */
template <class F>
PI_FN float add_values(const pi__k_add &a, float factor, const float *x, const float *y, const float *w, const F &put)
{
    struct addends {
        float x, y, w;
    };
    float squares = 0;
    const auto load = [&](int32_t i) { return addends{a.fresh ? 0.0f : x[i], y[i], w ? w[i] : 0.0f}; };
    row_values((int32_t) threadIdx.x, (int32_t) blockDim.x, (int32_t) a.n, load, [&](int32_t i, const addends &of) {
        const float v = added(a, factor, of.x, of.y, of.w);
        put(i, v);
        squares = fmaf(v, v, squares);
    });
    return squares;
}

/* Updates row `row` of a.x: x = (x + rmsnorm(y) * w) * scale. a.w NULL: x = (x + y + bias) * scale. a.fresh: x =
 * rmsnorm(y) * w. Reads operands from smem_copy where it has them, and also updates the copy of x. All threads of the
 * block call it. scratch: as for block_sum(). Each thread writes the same columns of x that it reads in norm_factor().
 * Returns the sum of the squares of the thread's new values, in the order of norm_factor(). */
PI_FN float add_row(const pi__k_add &a, int64_t row, float *scratch, const add_smem_copy &smem_copy = {})
{
    float *to = a.x + row * a.n;
    const float *x = smem_copy.x ? smem_copy.x : to, *y = smem_copy.y ? smem_copy.y : a.y + row * a.n;
    const float *w = smem_copy.w ? smem_copy.w : a.w ? a.w : a.bias;
    const float factor = a.w ? norm_factor(y, a.eps, a.n, scratch) : 1.0f;
    return add_values(a, factor, x, y, w, [&](int32_t i, float v) {
        to[i] = v;
        if (smem_copy.x) smem_copy.x[i] = v;
    });
}

/* Returns row `row` of the input of n_in columns, with its norm factor if `in` is RMSNorm. All threads of the block
 * call it with the same row. there: false = the row does not exist and is not read. scratch: as for block_sum(). */
PI_FN input_row open_row(const pi__k_input &in, int64_t row, int64_t n_in, bool there, float *scratch)
{
    input_row r = {in.x + row * in.ldx, in.x2 ? in.x2 + row * in.ldx2 : nullptr, in.w, in.kind, 1.0f, in.limit};
    if (in.kind == PI__IN_RMSNORM && there) r.norm = norm_factor(r.x, in.eps, n_in, scratch);
    return r;
}

#endif
