/* The epilogue (tail.cuh) as a separate launch, for many rows or where no product precedes it. Grid: one block per row.
 * Two kernels with bitwise identical results. finish_held() keeps a thread's values in registers and reads each value
 * once. It supports the common cases of prompts: a norm to 16-bit floats or floats, with or without a preceding add, or
 * rounding alone. finish_rows() supports every case; it reads a row again for its norm, its largest value and its
 * rounding. */
#ifndef PI_TAIL_KERNELS_CUH
#define PI_TAIL_KERNELS_CUH

#include "tail_row.cuh"

__global__ void __launch_bounds__(THREADS, 3) finish_rows(PI_CONSTANT pi__k_tail t)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    tail_row<false>(t, blockIdx.x, {0, 1}, (float *) raw);
}

/* Max values of a row per thread of finish_held(). */
enum { MAX_HELD = 32 };

/* Returns the number of values per thread if finish_held() supports the epilogue t; 0 = finish_rows() must do it. */
static inline int held_values(const pi__k_tail &t)
{
    const bool plain = !t.integers && !t.fp4 && !t.terms && !t.add[1].x && !t.in.x2 && (t.halves || t.floats);
    const bool norm = t.in.kind == PI__IN_RMSNORM,
               own = t.add[0].x ? norm && norm_is_of(t, t.add[0]) : norm || t.in.kind == PI__IN_PLAIN;
    if (!plain || !own || t.n_in % 32 || t.n_in > MAX_HELD * THREADS) return 0;
    return (int) (t.n_in + THREADS - 1) / THREADS;
}

/* Calls use(j, i) for each of the calling thread's values of a row of n: j = index in the thread's registers (below N),
 * i = column. */
template <int N, class F> PI_FN void each_held(int32_t n, const F &use)
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        const int32_t i = j * THREADS + (int32_t) threadIdx.x;
        if (i < n) use(j, i);
    }
}

/* Loads row `row` to v; with an add, computes it as add_row() does and also writes it to a.x. v[j]: the thread's
 * values. Returns the sum of their squares. */
template <int N> PI_FN float add_held(const pi__k_tail &t, int64_t row, float *scratch, float (&v)[N])
{
    const pi__k_add &a = t.add[0];
    const int32_t n = (int32_t) t.n_in;
    float squares = 0;
    if (!a.x) {
        const float *x = t.in.x + row * t.in.ldx;
        each_held<N>(n, [&](int j, int32_t i) { v[j] = x[i]; });
        each_held<N>(n, [&](int j, int32_t) { squares = fmaf(v[j], v[j], squares); });
        return squares;
    }
    float *x = a.x + row * n, factor = 1.0f;
    const float *y = a.y + row * n, *w = a.w ? a.w : a.bias;
    each_held<N>(n, [&](int j, int32_t i) { v[j] = y[i]; });
    if (a.w) {
        each_held<N>(n, [&](int j, int32_t) { squares = fmaf(v[j], v[j], squares); });
        factor = norm_of(squares, a.eps, n, scratch);
        squares = 0;
    }
    each_held<N>(n, [&](int j, int32_t i) {
        const float by = w ? w[i] : 0.0f, before = a.fresh ? 0.0f : x[i];
        x[i] = v[j] = added(a, factor, before, v[j], by);
        squares = fmaf(v[j], v[j], squares);
    });
    return squares;
}

/* Packs a row's values v as 16-bit floats, in the layout of put_halves(). A word has columns c and c + 16 of a block of
 * 32. v[j] and v[j + 1] of a warp are two such blocks. Lanes 0 .. 15 make the words of the first, lanes 16 .. 31 of the
 * second. */
template <int N> PI_FN void put_held(const pi__k_tail &t, int64_t row, const row_scale &scale, const float (&v)[N])
{
    const int32_t n = (int32_t) t.n_in, lane = (int32_t) threadIdx.x % 32, high = lane / 16;
    uint32_t *words = (uint32_t *) t.halves + row / 8 * (n / 32) * 128 +
                      w16_word_at((uint32_t) (row % 8), (uint32_t) lane % 16);
    if (threadIdx.x == 0) ((float *) ((char *) t.halves + w16_rows_bytes(t.n_rows, n)))[row] = scale.factor;
#pragma unroll
    for (int j = 0; j < N; j += 2) {
        const float own = high ? v[j + 1] : v[j];
        const float other = __shfl_xor_sync(PI_FULL, high ? v[j] : v[j + 1], 16);
        const float a = scale.bad ? 0.0f : (high ? other : own) * scale.by,
                    b = scale.bad ? 0.0f : (high ? own : other) * scale.by;
        const int32_t i = (j + high) * THREADS + (int32_t) threadIdx.x;
        if (i < n) words[i / 32 * 128] = w16_word(a, b, t.bf16);
    }
}

/* The epilogue t for row blockIdx.x. N: values per thread. */
template <int N>
__global__ void __launch_bounds__(THREADS, N > 24   ? 2
                                           : N > 16 ? 3
                                                    : 4) finish_held(PI_CONSTANT pi__k_tail t)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    float *scratch = (float *) raw, v[N] = {}, most = 0;
    const int64_t row = blockIdx.x;
    const int32_t n = (int32_t) t.n_in;
    if (t.sum.n_used) tail_sum(t.sum, row, nullptr); /* a thread reads only the columns that it wrote */
    const float squares = add_held<N>(t, row, scratch, v);
    if (t.in.kind == PI__IN_RMSNORM) {
        const float norm = norm_of(squares, t.in.eps, n, scratch + 32);
        each_held<N>(n, [&](int j, int32_t i) { v[j] = v[j] * norm * t.in.w[i]; });
    }
    each_held<N>(n, [&](int j, int32_t) {
        most = fmaxf(most, abs_or_inf(v[j]));
    });
    if (t.floats) each_held<N>(n, [&](int j, int32_t i) { ((float *) t.floats)[row * n + i] = v[j]; });
    if (t.halves) put_held<N>(t, row, scale_of_row(block_max(most, scratch + 64)), v);
}

#endif
