/* The tail of launches as one of its own (tail.cuh), where rows are many or nothing was launched that it could be the tail of: a
 * block a row. Where that is a norm to 16-bit floats or floats, with or without an addition before it, or rounding alone, which is
 * what prompts have, a thread's values stay in registers (finish_held), and each is read once; otherwise (finish_rows) a row is read
 * again for its norm, its largest value and its rounding. The bits are the same. */
#ifndef PI_TAIL_KERNELS_CUH
#define PI_TAIL_KERNELS_CUH

#include "tail.cuh"

__global__ void __launch_bounds__(THREADS, 3) finish_rows(PI_CONSTANT pi__k_tail t)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    tail_row<false>(t, blockIdx.x, {0, 1}, (float *) raw);
}

/* Values of a row that a thread of finish_held() has at most. */
enum { MAX_HELD = 32 };

/* How many values that is for the tail; 0: finish_rows() has to do it. */
static inline int held_values(const pi__k_tail &t)
{
    const bool plain = !t.integers && !t.fp4 && !t.terms && !t.add[1].x && !t.in.x2 && (t.halves || t.floats);
    const bool norm = t.in.kind == PI__IN_RMSNORM,
               own = t.add[0].x ? norm && norm_is_of(t, t.add[0]) : norm || t.in.kind == PI__IN_PLAIN;
    if (!plain || !own || t.n_in % 32 || t.n_in > MAX_HELD * THREADS) return 0;
    return (int) (t.n_in + THREADS - 1) / THREADS;
}

/* The thread's values of a row, N at most: (i, value i) in order. */
template <int N, class F> PI_FN void each_held(int32_t n, const F &use)
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        const int32_t i = j * THREADS + (int32_t) threadIdx.x;
        if (i < n) use(j, i);
    }
}

/* Row `row` after the addition, as add_row() has it, to v and to where it lies. Returns the sum of the thread's squares. */
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

/* A row's values as 16-bit floats, as put_halves() has them. A word is of columns c and c + 16 of a block of 32: of two blocks, one
 * behind the other in v, half of a warp makes the words of each. */
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

/* A row, by a block. */
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
    if (t.sum.n_used) tail_sum(t.sum, row, nullptr); /* a thread reads what it wrote */
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
