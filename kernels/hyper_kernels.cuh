/* Residual streams of DeepSeek V4: reading the four of a row as one, and adding a block's result to them (ops hyper_pre and
 * hyper_post, which ops.h defines).
 *
 * Bound by memory: the streams are read once for their norm and once, out of the cache, for their sum. A block has a row;
 * sums of squares are always made by HYPER_THREADS threads, each adding its values in order. Sinkhorn's iteration is of 16
 * values: a lane of the first warp has one, rows are lanes that differ in bits 0 and 1, columns in bits 2 and 3.
 *
 * What the block reads is normed and rounded for its matrices by the block of threads that has made the row (put_input() of tail.cuh),
 * to the bits of a launch for that. */
#ifndef PI_HYPER_KERNELS_CUH
#define PI_HYPER_KERNELS_CUH

#include "tail.cuh"

enum { HYPER_THREADS = 512, POST_THREADS = 256, S = PI__STREAMS };

PI_FN float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* The value divided by the sum over its 4 lanes, first to last, which are `step` apart, plus eps. */
PI_FN float divided(float c, int step, float eps)
{
    const int first = (int) threadIdx.x % 32 & ~(3 * step);
    float sum = 0;
    for (int i = 0; i < S; i++) sum += __shfl_sync(PI_FULL, c, first + i * step);
    return c / (sum + eps);
}

/* The first warp: post and comb of a row, from m times f, to coef. */
PI_FN void mixing(const pi__hyper &a, const float *m, float f, float *coef)
{
    const int lane = (int) threadIdx.x, i = lane % (S * S), at = 2 * S + i;
    if (lane < S) coef[lane] = 2.0f * sigmoid(m[S + lane] * f * a.scale[1] + a.base[S + lane]);
    float z = m[at] * f * a.scale[2] + a.base[at], top = z, sum = 0;
    for (int o = 1; o < S; o *= 2) top = fmaxf(top, __shfl_xor_sync(PI_FULL, top, o));
    z = expf(z - top);
    for (int b = 0; b < S; b++) sum += __shfl_sync(PI_FULL, z, (lane & ~3) + b);
    float c = divided(z / sum + a.eps, S, a.eps);
    for (int32_t k = 1; k < a.n_iter; k++) c = divided(divided(c, 1, a.eps), S, a.eps);
    if (lane < S * S) coef[S + i] = c;
}

/* norm_factor() of a row by HYPER_THREADS threads: the first THREADS of them add what as many threads do alone. */
PI_FN float norm_of_more(const float *x, float eps, int64_t n, float *scratch)
{
    float s = 0;
    for (int64_t i = threadIdx.x; i < n && threadIdx.x < THREADS; i += THREADS) s = fmaf(x[i], x[i], s);
    return 1.0f / sqrtf(block_sum(s, scratch) / (float) n + eps);
}

/* t: its input, y under a norm, if n_rows is not 0. */
__global__ void __launch_bounds__(HYPER_THREADS) hyper_pre(pi__hyper a, PI_CONSTANT pi__k_tail t)
{
    ptx_take_turn();
    PI_SMEM(raw);
    float *pre = (float *) raw + HYPER_THREADS / 32, sum = 0;
    const int64_t r = blockIdx.x, wide = S * a.n;
    const float *x = a.x + r * wide, *m = a.mix + r * (a.n_iter ? (int) PI__HYPER_MIX : (int) S);
#pragma unroll 8
    for (int64_t i = threadIdx.x; i < wide; i += HYPER_THREADS) sum = fmaf(x[i], x[i], sum);
    const float f = 1.0f / sqrtf(block_sum(sum, (float *) raw) / (float) wide + a.norm_eps);
    if (threadIdx.x < S) pre[threadIdx.x] = sigmoid(m[threadIdx.x] * f * a.scale[0] + a.base[threadIdx.x]) + a.eps;
    if (a.n_iter && threadIdx.x < 32) mixing(a, m, f, a.coef + r * PI__HYPER_COEF);
    __syncthreads();
    const float p0 = pre[0], p1 = pre[1], p2 = pre[2], p3 = pre[3];
    float *y = a.y + r * a.n;
#pragma unroll 2
    for (int64_t i = threadIdx.x; i < a.n; i += HYPER_THREADS)
        y[i] = p0 * x[i] + p1 * x[a.n + i] + p2 * x[2 * a.n + i] + p3 * x[3 * a.n + i];
    if (!t.n_rows) return;
    float *scratch = pre + S;
    __syncthreads(); /* the row is there */
    const float norm = norm_of_more(y, t.in.eps, a.n, scratch);
    put_input(t, {y, nullptr, t.in.w, PI__IN_RMSNORM, norm, 0.0f}, r, {0, 1}, scratch + HYPER_THREADS / 32);
}

/* A thread has one value of each stream: columns blockIdx.x, rows blockIdx.y. */
__global__ void __launch_bounds__(POST_THREADS) hyper_post(pi__hyper a)
{
    ptx_take_turn();
    const int64_t r = blockIdx.y, i = (int64_t) blockIdx.x * POST_THREADS + threadIdx.x;
    if (i >= a.n) return;
    const float *post = a.coef + r * PI__HYPER_COEF, *c = post + S, y = a.y[r * a.n + i];
    float *x = a.x + r * S * a.n + i, was[S];
    for (int s = 0; s < S; s++) was[s] = x[s * a.n];
    for (int b = 0; b < S; b++)
        x[b * a.n] = post[b] * y + c[b] * was[0] + c[S + b] * was[1] + c[2 * S + b] * was[2] + c[3 * S + b] * was[3];
}

#endif
