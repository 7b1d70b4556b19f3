/* Small ops on rows of floats: norms, residual adds, convolution, RoPE tables, row gathering, soft capping,
 * activations, gated sums, copies.
 *
 * All are memory-bound. Grid: one block per row of x or out, unless noted. A row's sum of squares is always computed by
 * 256 threads, each adding its values in order, so its bits depend on n alone. */
#ifndef PI_ROWS_KERNELS_CUH
#define PI_ROWS_KERNELS_CUH

#include "input.cuh"
#include "ptx.cuh"

namespace rows {

enum { ROW_THREADS = 256 };

/* out = RMSNorm(x) * w. x: rows of n values; ldo: floats between rows of out. */
__global__ void __launch_bounds__(ROW_THREADS) norm(float *out, int64_t ldo, const float *x, const float *w, float eps,
                                                    int64_t n)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    x += blockIdx.x * n;
    out += blockIdx.x * ldo;
    float factor = norm_factor(x, eps, n, (float *) raw);
    input_row{x, nullptr, w, PI__IN_RMSNORM, factor, 0.0f}.each({0, 1}, n, [&](int32_t i, float v) { out[i] = v; });
}

/* A residual add with norm: add_row() of input.cuh. */
__global__ void __launch_bounds__(ROW_THREADS) add_norm(pi__k_add a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    add_row(a, blockIdx.x, (float *) raw);
}

/* Convolves each column of a token with earlier tokens of its sequence in the step (op block_conv in ops.h). Grid: one
 * block per token; a thread has columns c, c + 256, .. */
__global__ void __launch_bounds__(ROW_THREADS)
    block_conv(pi__block_conv a, const int32_t *seq, const int32_t *seq_start)
{
    ptx_wait_dependency();
    const int64_t t = blockIdx.x, n_groups = a.n / a.group;
    const int32_t slot = (int32_t) t - seq_start[seq[t]], taps = slot + 1 < a.n_tap ? slot + 1 : a.n_tap;
    const float *own = a.own + t * a.ldo;
    for (int64_t c = threadIdx.x; c < a.n; c += ROW_THREADS) {
        float sum = 0;
        for (int32_t i = 0; i < taps; i++)
            sum = fmaf(a.base[i * a.n + c] + own[i * n_groups + c / a.group], a.x[(t - i) * a.n + c], sum);
        a.out[t * a.n + c] = sum;
    }
}

/* Index of the position (time 0, row 1, column 2) that pair i uses, see pi__rope.section. */
PI_FN int32_t rope_part(const pi__rope &a, int32_t i)
{
    const int32_t *n = a.section;
    if (a.interleaved) return i % 3 == 1 && i < 3 * n[1] ? 1 : i % 3 == 2 && i < 3 * n[2] ? 2 : 0;
    return i < n[0] || i >= n[0] + n[1] + n[2] ? 0 : i < n[0] + n[1] ? 1 : 2;
}

/* Writes row blockIdx.x of the RoPE table: n_freq cosines, then n_freq sines of position * freq, times a scale.
 * rope_pos: [n_tokens, 3], NULL = all pairs use pos. Grid: x = token, y = blocks of frequencies; one thread per
 * frequency. */
__global__ void rope(const int32_t *pos, const int32_t *rope_pos, PI_CONSTANT pi__rope a)
{
    ptx_wait_dependency();
    const int32_t i = (int32_t) (blockIdx.y * blockDim.x + threadIdx.x);
    if (i >= a.n_freq) return;
    const int32_t p = rope_pos ? rope_pos[3 * blockIdx.x + rope_part(a, i)] : pos[blockIdx.x];
    float *row = a.table + (size_t) blockIdx.x * 2 * (size_t) a.n_freq, angle = (float) p * a.freq[i], scale = a.mscale;
    if (a.temp_len) scale *= 1.0f + a.temp * logf((float) (1 + p / a.temp_len));
    row[i] = cosf(angle) * scale;
    row[a.n_freq + i] = sinf(angle) * scale;
}

/* out[i] = x[row[i]], or zeros if row[i] is negative; rows of n values. */
__global__ void __launch_bounds__(ROW_THREADS) gather_rows(const float *x, const int32_t *row, int64_t n, float *out)
{
    ptx_wait_dependency();
    int64_t from = row[blockIdx.x];
    out += blockIdx.x * n;
    row_values((int32_t) threadIdx.x, ROW_THREADS, (int32_t) n,
               [&](int32_t i) { return from < 0 ? 0.0f : x[from * n + i]; }, [&](int32_t i, float v) { out[i] = v; });
}

/* x[i] += table[row[i]]; rows of n values. */
__global__ void __launch_bounds__(ROW_THREADS) add_rows(float *x, const float *table, const int32_t *row, int64_t n)
{
    ptx_wait_dependency();
    x += blockIdx.x * n;
    table += row[blockIdx.x] * n;
    struct addends {
        float a, b;
    };
    row_values((int32_t) threadIdx.x, ROW_THREADS, (int32_t) n, [&](int32_t i) { return addends{x[i], table[i]}; },
               [&](int32_t i, const addends &v) { x[i] = v.a + v.b; });
}

/* x[i] = rows[row[i]], or with `add` x[i] += rows[row[i]]; no change if row[i] is negative; rows of n values. */
__global__ void __launch_bounds__(ROW_THREADS)
place_rows(float *x, const float *rows, int64_t ldr, const int32_t *row, int64_t n, bool add)
{
    ptx_wait_dependency();
    const int64_t from = row[blockIdx.x];
    if (from < 0) return;
    x += blockIdx.x * n;
    rows += from * ldr;
    for (int64_t i = threadIdx.x; i < n; i += ROW_THREADS) x[i] = add ? x[i] + rows[i] : rows[i];
}

/* x = cap * tanh(x / cap) for n values. Grid: any number of blocks. */
__global__ void __launch_bounds__(ROW_THREADS) softcap(float *x, float cap, size_t n)
{
    ptx_wait_dependency();
    size_t step = (size_t) gridDim.x * ROW_THREADS;
    for (size_t i = (size_t) blockIdx.x * ROW_THREADS + threadIdx.x; i < n; i += step) x[i] = cap * tanhf(x[i] / cap);
}

/* x = LayerNorm(x + y + b) * w + shift, in place; y, b NULL = not added. A thread changes only values that it reads
 * itself. */
__global__ void __launch_bounds__(ROW_THREADS) layer_norm(pi__layer_norm a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    float *x = a.x + blockIdx.x * a.n, sum = 0, squares = 0;
    const float *y = a.y ? a.y + blockIdx.x * a.n : nullptr;
    for (int64_t i = threadIdx.x; i < a.n; i += ROW_THREADS) {
        const float v = x[i] + (y ? y[i] : 0.0f) + (a.b ? a.b[i] : 0.0f);
        x[i] = v;
        sum += v;
    }
    const float mean = block_sum(sum, (float *) raw) / (float) a.n;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < a.n; i += ROW_THREADS) squares = fmaf(x[i] - mean, x[i] - mean, squares);
    const float factor = 1.0f / sqrtf(block_sum(squares, (float *) raw) / (float) a.n + a.eps);
    for (int64_t i = threadIdx.x; i < a.n; i += ROW_THREADS)
        x[i] = (x[i] - mean) * factor * a.w[i] + (a.shift ? a.shift[i] : 0.0f);
}

/* Returns the activation of t (pi__activate of kernel_args.h). */
PI_FN float activation(const pi__activate &a, float t)
{
    switch (a.kind) {
    case PI__ACT_GELU: return 0.5f * t * (1.0f + erff(0.70710678118654752f * t));
    case PI__ACT_GELU_TANH: return t / (1.0f + expf(-1.5957691216057308f * (t + 0.044715f * t * t * t)));
    case PI__ACT_GELU_QUICK: return t / (1.0f + expf(-1.702f * t));
    case PI__ACT_RELU2: return t < 0 ? 0.0f : t * t;
    case PI__ACT_NONE: return t;
    case PI__ACT_RELU: return t < 0 ? 0.0f : t;
    default: return (t > 0 ? a.p[0] * t * t : a.p[1] * (expm1f(fminf(t, a.p[3])) - t)) + a.p[2] * t;
    }
}

/* x = f(x + b); b NULL = no bias. */
__global__ void __launch_bounds__(ROW_THREADS) activate(pi__activate a)
{
    ptx_wait_dependency();
    float *x = a.x + blockIdx.x * a.n;
    for (int64_t i = threadIdx.x; i < a.n; i += ROW_THREADS) x[i] = activation(a, x[i] + (a.b ? a.b[i] : 0.0f));
}

/* x = min(hi, max(lo, factor * x * y * w)); y and w may be NULL. NaN stays NaN. */
__global__ void __launch_bounds__(ROW_THREADS) scale(pi__scale a)
{
    ptx_wait_dependency();
    float *x = a.x + blockIdx.x * a.n;
    const float *y = a.y ? a.y + blockIdx.x * a.n : nullptr;
    for (int64_t i = threadIdx.x; i < a.n; i += ROW_THREADS) {
        float v = a.factor * x[i];
        if (y) v *= y[i];
        if (a.w) v *= a.w[i];
        x[i] = v < a.lo ? a.lo : v > a.hi ? a.hi : v;
    }
}

/* y += sigmoid(gate) * x, with one gate per row, ldg floats apart. */
__global__ void __launch_bounds__(ROW_THREADS)
    add_gated(float *y, const float *x, const float *gate, int64_t ldg, int64_t n)
{
    ptx_wait_dependency();
    float g = 1.0f / (1.0f + expf(-gate[blockIdx.x * ldg]));
    x += blockIdx.x * n;
    y += blockIdx.x * n;
    for (int64_t i = threadIdx.x; i < n; i += ROW_THREADS) y[i] = fmaf(g, x[i], y[i]);
}

/* x *= f(gate), with one gate per head of a.n values; f is sigmoid or softplus. */
__global__ void __launch_bounds__(ROW_THREADS) gate_heads(pi__gate_heads a)
{
    ptx_wait_dependency();
    const float *gate = a.gate + blockIdx.x * a.ldg;
    const int64_t width = a.n_head * a.n;
    float *x = a.x + blockIdx.x * width;
    for (int64_t i = threadIdx.x; i < width; i += ROW_THREADS) {
        const float t = gate[i / a.n];
        x[i] *= a.softplus ? fmaxf(t, 0.0f) + log1pf(expf(-fabsf(t))) : 1.0f / (1.0f + expf(-t));
    }
}

/* Copies n values of each shard p of x to y[row][p * n ..]. step: floats between shards; ldx, ldy: between rows. */
__global__ void copy_2d(const float *x, int64_t step, int64_t ldx, int32_t n_shards, int64_t n, float *y, int64_t ldy)
{
    ptx_wait_dependency();
    x += blockIdx.x * ldx;
    y += blockIdx.x * ldy;
    for (int32_t p = 0; p < n_shards; p++)
        for (int64_t i = threadIdx.x; i < n; i += ROW_THREADS) y[p * n + i] = x[p * step + i];
}

} /* namespace rows */

#endif
