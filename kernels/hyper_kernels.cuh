/* Residual streams of DeepSeek V4: adding a block's result to the four of a row, the product of the row's values with the matrix of
 * the next block's weights, and reading the row as that block does (ops hyper_post, linear and hyper_pre, which ops.h defines).
 *
 * Little of it is arithmetic, and all of it waits: a row of 16,384 values is read for the product, 24 sums over it make the weights,
 * and with those it is read again. So a row is many blocks', each of 128 columns of the four streams:
 *
 *     hyper_mix      piece i of a row, or of 8: x = post y + comb x; sums of the piece: 24 products, and squares     sums [25][pieces]
 *     hyper_read     a row: the sums of all pieces; weights; y = sum of pre x; norm, rounding for the matrices that read y
 *
 * With few rows both are one launch: the last block of a row to arrive reads it, or of 8 rows the last ones read one each, when all
 * have arrived. The matrix comes to registers while the launch before still runs. What is not asked for, post, product or reading, is
 * left out, and no bit depends on that, nor on how many rows there are: sums are always made piece by piece, a lane having four columns
 * of each stream, and then over the pieces.
 *
 * Sinkhorn's iteration is of 16 values: a lane of a warp has one, rows are lanes that differ in bits 0 and 1, columns in
 * bits 2 and 3.
 *
 * What the block reads is normed and rounded for its matrices where the row is made (put_input() of tail.cuh), to the bits of a
 * launch for that. */
#ifndef PI_HYPER_KERNELS_CUH
#define PI_HYPER_KERNELS_CUH

#include "backend/cuda/kernels_hyper.h"
#include "tail.cuh"

enum {
    S = PI__STREAMS,
    HYPER_WARPS = THREADS / 32,
    EACH = PI__HYPER_MIX / HYPER_WARPS, /* products of a warp */
    SUMS = PI__HYPER_MIX + 1,           /* and the squares */
    MANY = 8,                           /* rows of a block, where they are many */
    COLUMNS = 4,                        /* of a lane */
    WEIGHTS = 32, SCRATCH = 64, LEFT = 191, ROW = 192, /* of floats in shared memory: sums, pre, scratch, a word to arrive with, y */
};
static_assert(PI__K_HYPER_PIECE == 32 * COLUMNS && EACH * HYPER_WARPS == PI__HYPER_MIX && SUMS <= WEIGHTS, "lanes have it all");

PI_FN float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* The value divided by the sum over its 4 lanes, first to last, which are `step` apart, plus eps. */
PI_FN float divided(float c, int step, float eps)
{
    const int first = (int) threadIdx.x % 32 & ~(3 * step);
    float sum = 0;
    for (int i = 0; i < S; i++) sum += __shfl_sync(PI_FULL, c, first + i * step);
    return c / (sum + eps);
}

/* A warp: post and comb of a row, from m times f, to coef. */
PI_FN void mixing(const pi__k_streams &a, const float *m, float f, float *coef)
{
    const int lane = (int) threadIdx.x % 32, i = lane % (S * S), at = 2 * S + i;
    if (lane < S) coef[lane] = 2.0f * sigmoid(m[S + lane] * f * a.scale[1] + a.base[S + lane]);
    float z = m[at] * f * a.scale[2] + a.base[at], top = z, sum = 0;
    for (int o = 1; o < S; o *= 2) top = fmaxf(top, __shfl_xor_sync(PI_FULL, top, o));
    z = expf(z - top);
    for (int b = 0; b < S; b++) sum += __shfl_sync(PI_FULL, z, (lane & ~3) + b);
    float c = divided(z / sum + a.eps, S, a.eps);
    for (int32_t k = 1; k < a.n_iter; k++) c = divided(divided(c, 1, a.eps), S, a.eps);
    if (lane < S * S) coef[S + i] = c;
}

/* Columns i .. i + 3 of n, zeros behind the last. */
PI_FN float4 columns_of(const float *p, int64_t i, int64_t n)
{
    if (n % COLUMNS == 0) return i < n ? *(const float4 *) (p + i) : float4{0, 0, 0, 0};
    return {i < n ? p[i] : 0.0f, i + 1 < n ? p[i + 1] : 0.0f, i + 2 < n ? p[i + 2] : 0.0f, i + 3 < n ? p[i + 3] : 0.0f};
}

/* The same of a matrix's values from `first` on, which lie as in the file. */
template <int TYPE> PI_FN float4 weights_of(const void *w, int64_t first, int64_t i, int64_t n)
{
    if constexpr (TYPE == PI__F32) return columns_of((const float *) w + first, i, n);
    const uint16_t *p = (const uint16_t *) w + first + i;
    uint2 h = {0, 0};
    if (n % COLUMNS == 0 && i < n) h = *(const uint2 *) p;
    else if (i < n) h = {p[0] | (i + 1 < n ? (uint32_t) p[1] << 16 : 0), i + 2 < n ? p[2] | (i + 3 < n ? (uint32_t) p[3] << 16 : 0) : 0};
    if (TYPE == PI__BF16)
        return {bf16_to_float((uint16_t) h.x), bf16_to_float((uint16_t) (h.x >> 16)), bf16_to_float((uint16_t) h.y),
                bf16_to_float((uint16_t) (h.y >> 16))};
    const float2 a = ptx_floats(h.x), b = ptx_floats(h.y);
    return {a.x, a.y, b.x, b.y};
}
PI_FN void put_columns(float *p, int64_t i, int64_t n, const float4 &v)
{
    if (n % COLUMNS == 0 && i < n) *(float4 *) (p + i) = v;
    const float of[COLUMNS] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < COLUMNS && n % COLUMNS; k++)
        if (i + k < n) p[i + k] = of[k];
}

/* Sum of a[i] of[i]. */
PI_FN float add4(float sum, const float4 &a, const float4 &b)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

/* A stream's value after the block: post y + sum of comb[a] was[a]; and what a block reads of them. */
PI_FN float weighted(const float *by, int step, float x0, float x1, float x2, float x3, float sum)
{
    return fmaf(by[3 * step], x3, fmaf(by[2 * step], x2, fmaf(by[step], x1, fmaf(by[0], x0, sum))));
}
PI_FN float4 weighted(const float *by, int step, const float4 (&x)[S], const float4 &sum)
{
    return {weighted(by, step, x[0].x, x[1].x, x[2].x, x[3].x, sum.x), weighted(by, step, x[0].y, x[1].y, x[2].y, x[3].y, sum.y),
            weighted(by, step, x[0].z, x[1].z, x[2].z, x[3].z, sum.z), weighted(by, step, x[0].w, x[1].w, x[2].w, x[3].w, sum.w)};
}

/* Columns i .. of a row's streams, with the block's result if there is one, which are written then. */
PI_FN void streams_at(const pi__k_streams &k, int64_t row, int64_t i, float4 (&x)[S])
{
    const int64_t n = k.n;
    float *at = k.x + row * S * n;
#pragma unroll
    for (int s = 0; s < S; s++) x[s] = columns_of(at + s * n, i, n);
    if (!k.result) return;
    const float *post = k.coef + row * PI__HYPER_COEF, *comb = post + S;
    const float4 y = columns_of(k.result + row * n, i, n), was[S] = {x[0], x[1], x[2], x[3]};
#pragma unroll
    for (int b = 0; b < S; b++) {
        const float p = post[b];
        x[b] = weighted(comb + b, S, was, {p * y.x, p * y.y, p * y.z, p * y.w});
        put_columns(at + b * n, i, n, x[b]);
    }
}

/* Lane i gets the sum of v[i] over the warp, in the order of warp_sum(). */
PI_FN float sum_of_lane(float (&v)[32])
{
    const int lane = (int) threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < 5; k++) {
        const int half = 16 >> k;
        const bool upper = lane & half;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            if (i >= half) continue;
            const float give = upper ? v[i] : v[i + half], keep = upper ? v[i + half] : v[i];
            v[i] = keep + __shfl_xor_sync(PI_FULL, give, half);
        }
    }
    return v[0];
}

/* Sum `which` of a row's piece. */
PI_FN float *sum_at(const pi__k_streams &k, int64_t row, int which)
{
    return k.sums + (row * SUMS + which) * pi__k_hyper_pieces(k.n) + blockIdx.x;
}

/* y of a row, which is left in shared memory where there is room. */
PI_FN float *read_row(const pi__k_streams &k, int64_t row, const float *pre, float *near)
{
    const int64_t n = k.n;
    const float *x = k.x + row * S * n;
    float *y = k.y + row * n;
#pragma unroll 4
    for (int64_t i = (int64_t) threadIdx.x * COLUMNS; i < n; i += THREADS * COLUMNS) {
        float4 of[S];
#pragma unroll
        for (int s = 0; s < S; s++) of[s] = columns_of(x + s * n, i, n);
        const float4 v = weighted(pre, 1, of, {0, 0, 0, 0});
        put_columns(y, i, n, v);
        if (near) put_columns(near, i, n, v);
    }
    return near ? near : y;
}

/* A row whose pieces are all there. t: its input, y under a norm, if n_rows is not 0; near: y is kept in shared memory. */
PI_FN void finish_streams(const pi__k_streams &k, const pi__k_tail &t, int64_t row, bool near, float *shared)
{
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, n_mix = k.n_iter ? (int) PI__HYPER_MIX : (int) S;
    const int32_t pieces = pi__k_hyper_pieces(k.n);
    float *m = shared, *pre = shared + WEIGHTS, *scratch = shared + SCRATCH, *mix = k.mix + row * n_mix;
    for (int i = warp; i < SUMS; i += HYPER_WARPS) {
        const bool given = !k.w && i < n_mix;
        if (i >= n_mix && i < SUMS - 1) continue;
        float v = given && lane == 0 ? mix[i] : 0.0f;
        for (int32_t p = lane; p < pieces && !given; p += 32) v += k.sums[(row * SUMS + i) * pieces + p];
        v = given ? v : warp_sum(v);
        if (lane == 0) m[i] = v;
        if (lane == 0 && !k.y && i < n_mix) mix[i] = v;
    }
    if (!k.y) return;
    __syncthreads();
    const float f = 1.0f / sqrtf(m[SUMS - 1] / (float) (S * k.n) + k.norm_eps);
    if (threadIdx.x < S) pre[threadIdx.x] = sigmoid(m[threadIdx.x] * f * k.scale[0] + k.base[threadIdx.x]) + k.eps;
    if (k.n_iter && warp == 1) mixing(k, m, f, k.coef + row * PI__HYPER_COEF);
    __syncthreads();
    const float *y = read_row(k, row, pre, near ? shared + ROW : nullptr);
    if (!t.n_rows) return;
    __syncthreads(); /* the row is there */
    const float norm = norm_factor(y, t.in.eps, k.n, scratch);
    if (near && !t.integers) return near_norm(t, row, shared + ROW, t.in.w, norm, (int32_t) k.n, scratch + HYPER_WARPS);
    const input_row in = {y, nullptr, t.in.w, PI__IN_RMSNORM, norm, 0.0f};
    put_input(t, in, row, {0, 1}, scratch + HYPER_WARPS);
    if (t.terms) tail_terms(t, in, row, {0, 1});
}

/* Block (piece; R rows of the launch's, which begin at row0). t: as of finish_streams(), by the last `read` blocks of the rows. */
template <int TYPE, int R>
__global__ void __launch_bounds__(THREADS, 2) hyper_mix(PI_CONSTANT pi__k_streams k, PI_CONSTANT pi__k_tail t, uint32_t read, int32_t near)
{
    ptx_launch_dependents();
    PI_SMEM(raw);
    float *shared = (float *) raw; /* [R][S][PI__K_HYPER_PIECE] */
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, n_mix = k.n_iter ? (int) PI__HYPER_MIX : (int) S;
    const int64_t i = (int64_t) blockIdx.x * PI__K_HYPER_PIECE + lane * COLUMNS, row0 = (int64_t) blockIdx.y * R;
    float4 w[EACH][S] = {};
#pragma unroll
    for (int o = 0; o < EACH && k.w; o++)
#pragma unroll
        for (int s = 0; s < S; s++)
            if (EACH * warp + o < n_mix) w[o][s] = weights_of<TYPE>(k.w, ((EACH * warp + o) * S + s) * k.n, i, k.n);
    ptx_wait_grids(); /* what is made before this launch is read from here on */
    float v[32] = {};
    if (warp < R) {
        float4 x[S] = {};
        if (row0 + warp < k.n_rows) streams_at(k, row0 + warp, i, x);
#pragma unroll
        for (int s = 0; s < S; s++) {
            *(float4 *) (shared + (warp * S + s) * PI__K_HYPER_PIECE + lane * COLUMNS) = x[s];
            v[EACH * MANY] = add4(v[EACH * MANY], x[s], x[s]);
        }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < R; r++) {
#pragma unroll
        for (int s = 0; s < S; s++) {
            const float4 x = *(const float4 *) (shared + (r * S + s) * PI__K_HYPER_PIECE + lane * COLUMNS);
#pragma unroll
            for (int o = 0; o < EACH; o++) v[o * MANY + r] = add4(v[o * MANY + r], w[o][s], x);
        }
    }
    const float sum = sum_of_lane(v);
    const int r = lane < EACH * MANY ? lane % MANY : warp, which = lane < EACH * MANY ? EACH * warp + lane / MANY : SUMS - 1;
    if (lane <= EACH * MANY && r < R && row0 + r < k.n_rows) *sum_at(k, row0 + r, which) = sum;
    if (!read) return;
    const uint32_t wait = R > 1 ? (ptx_blocks_that_wait((read - 1) * gridDim.y + 1) - 1) / gridDim.y : 0; /* of a group, for its last one */
    const tail_share s = arrive_of(k.arrived + blockIdx.y, gridDim.x, min(wait + 1, gridDim.x), (uint32_t *) (shared + LEFT));
    if (!s.parts) return;
#pragma unroll 1
    for (int own = s.part; own < R && row0 + own < k.n_rows; own += s.parts) {
        finish_streams(k, t, row0 + own, near, shared);
        __syncthreads(); /* shared is free */
    }
}

/* A row: blockIdx.x. */
__global__ void __launch_bounds__(THREADS, 2) hyper_read(PI_CONSTANT pi__k_streams k, PI_CONSTANT pi__k_tail t, int32_t near)
{
    ptx_take_turn();
    PI_SMEM(raw);
    finish_streams(k, t, blockIdx.x, near, (float *) raw);
}

/* Adds the block's result: columns, blockIdx.x; a warp a row, of those from blockIdx.y on. */
__global__ void __launch_bounds__(THREADS) hyper_post(PI_CONSTANT pi__k_streams k)
{
    ptx_take_turn();
    const int64_t row = (int64_t) blockIdx.y * HYPER_WARPS + threadIdx.x / 32;
    float4 x[S];
    if (row < k.n_rows) streams_at(k, row, (int64_t) blockIdx.x * PI__K_HYPER_PIECE + threadIdx.x % 32 * COLUMNS, x);
}

#endif
