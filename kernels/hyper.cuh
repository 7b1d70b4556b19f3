/* Residual streams (hyper-connections) of DeepSeek V4: shared by their own kernels (hyper_kernels.cuh) and by products
 * that add their results to the streams (mixed_kernels.cuh). A row (token) has four streams x of n values each. coef,
 * 20 values per row, has post [4] and comb [4][4].
 *
 * The work is memory latency, not arithmetic. A row of 16,384 values is read for the product with the mixing matrix; 24
 * sums over it give the weights of the next model block; with these it is read again. So several blocks of threads
 * share a row, each with some columns of the four streams:
 *
 *     columns    x = post y + comb x; sums over each 16 columns: 24 products, and squares            sums [25][n / 16]
 *     a row      total sums; weights; y = sum of pre x; norm, packing for the matrices that read y
 *
 * Steps that are not requested (post, product or read) are left out. No bit depends on that, on the kernel, or on the
 * number of rows. Sums are always over 16 columns first, four of each stream per lane, and then over these sums.
 *
 * Sinkhorn's iteration (mixing()) has 16 values, one per lane of half a warp: a matrix row is 4 lanes that differ in
 * bits 0 and 1, a matrix column 4 lanes that differ in bits 2 and 3.
 *
 * The input y of the next model block is normalized and packed for the matrices that read it, in the block of threads
 * that computes the row (put_row() of tail_row.cuh). The result is bitwise identical to a separate launch. */
#ifndef PI_HYPER_CUH
#define PI_HYPER_CUH

#include "backend/cuda/kernels_hyper.h"
#include "tail_row.cuh"

namespace hyper {

enum {
    HYPER_THREADS = 256,
    HYPER_WARPS = HYPER_THREADS / 32,
    HYPER_EACH = PI__HYPER_MIX / HYPER_WARPS, /* products per warp: 3 */
    HYPER_SUMS = PI__HYPER_MIX + 1,           /* sums of a row: 24 products, and the sum of squares */
    HYPER_COLUMNS = 4,                        /* columns per lane and stream */
    /* Offsets in floats in shared memory: a row's sums at 0, pre, scratch, the word of arrive_of(), y. */
    HYPER_PRE = 32, HYPER_SCRATCH = 64, HYPER_LEFT = 191, HYPER_ROW = 192,
    HYPER_SMEM_COPY = 44 << 10, /* max bytes of y in shared memory: two blocks fit on an SM of any device */
};
static_assert(HYPER_EACH * HYPER_WARPS == PI__HYPER_MIX && (int) HYPER_SUMS <= (int) HYPER_PRE, "warps divide the "
              "products evenly; sums end before pre");

/* True if finish_streams() can run epilogue t: its input is y under RMSNorm, and it packs no FP4. */
static inline bool streams_read(const pi__k_streams &k, const pi__k_tail &t)
{
    const pi__k_input &in = t.in;
    return t.n_rows == k.n_rows && t.n_in == k.n && in.kind == PI__IN_RMSNORM && in.x == k.y && in.ldx == k.n &&
           !in.x2 && !t.fp4;
}

PI_FN float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* Normalizes a matrix row (step 1) or column (step 4) in Sinkhorn's iteration: returns c / (sum + eps). The sum is over
 * the lane's 4 lanes of that row or column, `step` apart, added first to last. */
PI_FN float divided(float c, int step, float eps)
{
    const int first = (int) threadIdx.x % 32 & ~(3 * step);
    float sum = 0;
    for (int i = 0; i < PI__STREAMS; i++) sum += __shfl_sync(PI_FULL, c, first + i * step);
    return c / (sum + eps);
}

/* Called by one warp: computes post [4] and comb [4][4] of a row and writes them to coef [20]. m: the row's 24 products
 * with the mixing matrix; f: their common factor, 1 / RMS of the row. */
PI_FN void mixing(const pi__k_streams &a, const float *m, float f, float *coef)
{
    const int lane = (int) threadIdx.x % 32, i = lane % (PI__STREAMS * PI__STREAMS), at = 2 * PI__STREAMS + i;
    if (lane < PI__STREAMS)
        coef[lane] = 2.0f * sigmoid(m[PI__STREAMS + lane] * f * a.scale[1] + a.base[PI__STREAMS + lane]);
    float z = m[at] * f * a.scale[2] + a.base[at], top = z, sum = 0;
    for (int o = 1; o < PI__STREAMS; o *= 2) top = fmaxf(top, __shfl_xor_sync(PI_FULL, top, o));
    z = expf(z - top);
    for (int b = 0; b < PI__STREAMS; b++) sum += __shfl_sync(PI_FULL, z, (lane & ~3) + b);
    float c = divided(z / sum + a.eps, PI__STREAMS, a.eps);
    for (int32_t k = 1; k < a.n_iter; k++) c = divided(divided(c, 1, a.eps), PI__STREAMS, a.eps);
    if (lane < PI__STREAMS * PI__STREAMS) coef[PI__STREAMS + i] = c;
}

/* Returns columns i .. i + 3 of a row p of n values; columns past the end are zeros. */
PI_FN float4 columns_of(const float *p, int64_t i, int64_t n)
{
    if (n % HYPER_COLUMNS == 0) return i < n ? *(const float4 *) (p + i) : float4{0, 0, 0, 0};
    return {i < n ? p[i] : 0.0f, i + 1 < n ? p[i + 1] : 0.0f, i + 2 < n ? p[i + 2] : 0.0f, i + 3 < n ? p[i + 3] : 0.0f};
}

/* Returns columns i .. i + 3 of a matrix row in the file's layout. The row begins at value `first` of w and has n
 * columns; columns past the end are zeros. */
template <int TYPE> PI_FN float4 weights_of(const void *w, int64_t first, int64_t i, int64_t n)
{
    if constexpr (TYPE == PI__F32) return columns_of((const float *) w + first, i, n);
    const uint16_t *p = (const uint16_t *) w + first + i;
    uint2 h = {0, 0};
    if (n % HYPER_COLUMNS == 0 && i < n) h = *(const uint2 *) p;
    else if (i < n)
        h = {p[0] | (i + 1 < n ? (uint32_t) p[1] << 16 : 0),
             i + 2 < n ? p[2] | (i + 3 < n ? (uint32_t) p[3] << 16 : 0) : 0};
    if (TYPE == PI__BF16)
        return {ptx_of_bf16((uint16_t) h.x), ptx_of_bf16((uint16_t) (h.x >> 16)), ptx_of_bf16((uint16_t) h.y),
                ptx_of_bf16((uint16_t) (h.y >> 16))};
    const float2 a = ptx_floats(h.x), b = ptx_floats(h.y);
    return {a.x, a.y, b.x, b.y};
}
/* Returns the weights of row o of the mixing matrix, of any type, for columns i .. i + 3 of stream s. */
PI_FN float4 weights_at(const pi__k_streams &k, int o, int s, int64_t i)
{
    const int64_t first = (int64_t) (o * PI__STREAMS + s) * k.n;
    if (k.type == PI__F32) return weights_of<PI__F32>(k.w, first, i, k.n);
    return k.type == PI__F16 ? weights_of<PI__F16>(k.w, first, i, k.n) : weights_of<PI__BF16>(k.w, first, i, k.n);
}
/* Writes v to columns i .. i + 3 of a row p of n values; columns past the end are not written. */
PI_FN void put_columns(float *p, int64_t i, int64_t n, const float4 &v)
{
    if (n % HYPER_COLUMNS == 0 && i < n) *(float4 *) (p + i) = v;
    const float of[HYPER_COLUMNS] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < HYPER_COLUMNS && n % HYPER_COLUMNS; k++)
        if (i + k < n) p[i + k] = of[k];
}

/* Returns sum + a . b. */
PI_FN float add4(float sum, const float4 &a, const float4 &b)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

/* Returns sum + by[0] x0 + by[step] x1 + by[2 step] x2 + by[3 step] x3: a weighted sum of the four streams. Two uses:
 * the new value of a stream (by: a column of comb; sum: post y), or the input of the next model block (by: pre; sum:
 * 0). */
PI_FN float weighted(const float *by, int step, float x0, float x1, float x2, float x3, float sum)
{
    return fmaf(by[3 * step], x3, fmaf(by[2 * step], x2, fmaf(by[step], x1, fmaf(by[0], x0, sum))));
}
PI_FN float4 weighted(const float *by, int step, const float4 (&x)[PI__STREAMS], const float4 &sum)
{
    return {weighted(by, step, x[0].x, x[1].x, x[2].x, x[3].x, sum.x),
            weighted(by, step, x[0].y, x[1].y, x[2].y, x[3].y, sum.y),
            weighted(by, step, x[0].z, x[1].z, x[2].z, x[3].z, sum.z),
            weighted(by, step, x[0].w, x[1].w, x[2].w, x[3].w, sum.w)};
}

/* x[s] = columns i .. i + 3 of stream s of a row. */
PI_FN void load_streams(const pi__k_streams &k, int64_t row, int64_t i, float4 (&x)[PI__STREAMS])
{
    const float *at = k.x + row * PI__STREAMS * k.n;
#pragma unroll
    for (int s = 0; s < PI__STREAMS; s++) x[s] = columns_of(at + s * k.n, i, k.n);
}

/* Adds columns i .. i + 3 of y, a model block's result, to a row's streams: x[b] = post[b] y + sum over s of comb[s][b]
 * x[s]. x: in, the old values; out, the new ones, which are also written to k.x. */
PI_FN void add_to_streams(const pi__k_streams &k, int64_t row, int64_t i, const float4 &y, float4 (&x)[PI__STREAMS])
{
    const int64_t n = k.n;
    float *at = k.x + row * PI__STREAMS * n;
    const float *post = k.coef + row * PI__HYPER_COEF, *comb = post + PI__STREAMS;
    const float4 was[PI__STREAMS] = {x[0], x[1], x[2], x[3]};
#pragma unroll
    for (int b = 0; b < PI__STREAMS; b++) {
        const float p = post[b];
        x[b] = weighted(comb + b, PI__STREAMS, was, {p * y.x, p * y.y, p * y.z, p * y.w});
        put_columns(at + b * n, i, n, x[b]);
    }
}

/* Sums each of the 32 values v over 4 adjacent lanes 4 g .. 4 g + 3, which have 16 columns. Lane 4 g + q gets the sums
 * of v[8 q] .. v[8 q + 7] in v[0] .. v[7]. */
PI_FN void sums_of_16(float (&v)[32])
{
#pragma unroll
    for (int half = 16; half >= 8; half /= 2) {
        const bool upper = threadIdx.x & (unsigned) half / 8;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            if (i >= half) continue;
            const float give = upper ? v[i] : v[i + half], keep = upper ? v[i + half] : v[i];
            v[i] = keep + __shfl_xor_sync(PI_FULL, give, half / 8);
        }
    }
}
/* Returns the sum of v over lanes 4 g .. 4 g + 3, which have 16 columns. */
PI_FN float sum_of_16(float v)
{
    v += __shfl_xor_sync(PI_FULL, v, 2);
    return v + __shfl_xor_sync(PI_FULL, v, 1);
}

/* Address of partial sum `which` (0 .. 24) of a row, over the 16 columns that contain column i. */
PI_FN float *sum_at(const pi__k_streams &k, int64_t row, int which, int64_t i)
{
    return k.sums + (row * HYPER_SUMS + which) * pi__k_hyper_parts(k.n) + i / PI__K_HYPER_PART;
}

/* Computes y [n] of a row, y = sum over s of pre[s] x[s], and writes it to k.y. smem_copy: shared memory that also
 * receives y; NULL = none. Returns the copy that readers should use: smem_copy, or k.y's row. Called by all threads. */
PI_FN float *read_row(const pi__k_streams &k, int64_t row, const float *pre, float *smem_copy)
{
    const int64_t n = k.n;
    const float *x = k.x + row * PI__STREAMS * n;
    float *y = k.y + row * n;
#pragma unroll 4
    for (int64_t i = (int64_t) threadIdx.x * HYPER_COLUMNS; i < n; i += HYPER_THREADS * HYPER_COLUMNS) {
        float4 of[PI__STREAMS];
#pragma unroll
        for (int s = 0; s < PI__STREAMS; s++) of[s] = columns_of(x + s * n, i, n);
        const float4 v = weighted(pre, 1, of, {0, 0, 0, 0});
        put_columns(y, i, n, v);
        if (smem_copy) put_columns(smem_copy, i, n, v);
    }
    return smem_copy ? smem_copy : y;
}

/* Completes a row after all its partial sums are written: computes the weights and y, then y's norm, packed for t's
 * matrices. If k.y is NULL, only writes the row's products to k.mix. t: epilogue with y under a norm as its input;
 * t.n_rows == 0 = no norm. smem_copy: true = keep y in shared memory (HYPER_ROW). Called by all threads of a block. */
PI_FN void finish_streams(const pi__k_streams &k, const pi__k_tail &t, int64_t row, bool smem_copy, float *shared)
{
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32,
              n_mix = k.n_iter ? (int) PI__HYPER_MIX : (int) PI__STREAMS;
    const int32_t parts = pi__k_hyper_parts(k.n);
    float *m = shared, *pre = shared + HYPER_PRE, *scratch = shared + HYPER_SCRATCH, *mix = k.mix + row * n_mix;
    /* Total sums over the row, to m. If k.w is NULL the products are given in k.mix; only the squares are summed. */
    for (int i = warp; i < HYPER_SUMS; i += HYPER_WARPS) {
        const bool given = !k.w && i < n_mix;
        if (i >= n_mix && i < HYPER_SUMS - 1) continue;
        float v = given && lane == 0 ? mix[i] : 0.0f;
#pragma unroll 8
        for (int32_t p = given ? parts : lane; p < parts; p += 32) v += k.sums[(row * HYPER_SUMS + i) * parts + p];
        v = given ? v : warp_sum(v);
        if (lane == 0) m[i] = v;
        if (lane == 0 && !k.y && i < n_mix) mix[i] = v;
    }
    if (!k.y) return;
    __syncthreads();
    /* Weights: pre for the next model block's input; post and comb for adding its result (k.coef). f = 1 / RMS of the
     * row. */
    const float f = 1.0f / sqrtf(m[HYPER_SUMS - 1] / (float) (PI__STREAMS * k.n) + k.norm_eps);
    if (threadIdx.x < PI__STREAMS)
        pre[threadIdx.x] = sigmoid(m[threadIdx.x] * f * k.scale[0] + k.base[threadIdx.x]) + k.eps;
    if (k.n_iter && warp == 1) mixing(k, m, f, k.coef + row * PI__HYPER_COEF);
    __syncthreads();
    /* y = sum of pre x, then its norm, and packing for the matrices that read it. */
    const float *y = read_row(k, row, pre, smem_copy ? shared + HYPER_ROW : nullptr);
    if (!t.n_rows) return;
    __syncthreads(); /* the row is complete */
    const float norm = norm_factor(y, t.in.eps, k.n, scratch);
    if (smem_copy && !t.integers)
        return smem_copy_norm(t, row, shared + HYPER_ROW, t.in.w, norm, (int32_t) k.n, scratch + HYPER_WARPS);
    const input_row in = {y, nullptr, t.in.w, PI__IN_RMSNORM, norm, 0.0f};
    put_row(t, in, row, {0, 1}, scratch + HYPER_WARPS);
    if (t.terms) tail_terms(t, in, row, {0, 1});
}

/* Prefetches the mixing matrix's weights for columns first .. first + n - 1 of all streams into L2. */
PI_FN void prefetch_weights(const pi__k_streams &k, int32_t first, int32_t n)
{
    const int32_t size = k.type == PI__F32 ? 4 : 2, parts = n / PI__K_HYPER_PART,
                  n_mix = k.n_iter ? PI__HYPER_MIX : PI__STREAMS;
    for (int32_t i = (int32_t) threadIdx.x; i < n_mix * PI__STREAMS * parts; i += HYPER_THREADS)
        ptx_prefetch((const char *) k.w + (i / parts * k.n + first + i % parts * PI__K_HYPER_PART) * size);
}

/* Adds a model block's results to the streams, for columns first .. first + n - 1 of all k.n_rows rows, after this
 * block of threads has computed these columns of k.result. If sum.n_used is not 0, first adds the experts' sum and
 * multiplies by add.scale. Then computes the columns' partial sums. The matrix may have any type. staged: shared
 * memory, [PI__STREAMS][rows][n / 4] float4. */
PI_CALL void add_results(const pi__k_streams &k, const pi__k_sum &sum, const pi__k_add &add, int32_t first, int32_t n,
                         float4 *staged)
{
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32,
              n_mix = k.n_iter ? (int) PI__HYPER_MIX : (int) PI__STREAMS;
    const int32_t each = n / HYPER_COLUMNS, all = k.n_rows * each;
    ptx_wait_grids(); /* warps without products have not waited yet */
    __syncthreads();  /* all results are written, and shared memory is free */
    /* Add the results to the streams; keep the new values in shared memory. */
    for (int32_t item = (int32_t) threadIdx.x; item < all; item += HYPER_THREADS) {
        const int64_t row = item / each, i = first + item % each * HYPER_COLUMNS;
        float4 x[PI__STREAMS], y = *(const float4 *) (k.result + row * k.n + i);
        load_streams(k, row, i, x);
        if (sum.n_used) {
            const float4 v = sum_values(sum, row, i);
            y = {(y.x + v.x) * add.scale, (y.y + v.y) * add.scale, (y.z + v.z) * add.scale, (y.w + v.w) * add.scale};
        }
        add_to_streams(k, row, i, y, x);
        for (int s = 0; s < PI__STREAMS; s++) staged[s * all + item] = x[s];
    }
    __syncthreads();
    /* Each warp computes HYPER_EACH products for all items. An item is 4 columns of a row. Lanes 4 g .. 4 g + 3 share
     * 16 columns; either all four have an item or none. Warp 0 also sums the squares. */
    for (int32_t round = 0; round < all; round += 32) {
        const int32_t item = round + lane;
        const bool there = item < all;
        const int64_t row = there ? item / each : 0, i = first + (there ? item % each : 0) * HYPER_COLUMNS;
        float4 x[PI__STREAMS] = {};
        float v[HYPER_EACH + 1] = {};
        for (int s = 0; s < PI__STREAMS && there; s++) x[s] = staged[s * all + item];
#pragma unroll
        for (int o = 0; o < HYPER_EACH; o++) {
            const int which = HYPER_EACH * warp + o;
#pragma unroll
            for (int s = 0; s < PI__STREAMS; s++)
                v[o] = add4(v[o], there && which < n_mix ? weights_at(k, which, s, i) : float4{0, 0, 0, 0}, x[s]);
        }
        for (int s = 0; s < PI__STREAMS; s++) v[HYPER_EACH] = add4(v[HYPER_EACH], x[s], x[s]);
#pragma unroll
        for (int o = 0; o <= HYPER_EACH; o++) {
            const float part = sum_of_16(v[o]);
            if (!there || lane % 4 || (o == HYPER_EACH && warp)) continue;
            *sum_at(k, row, o == HYPER_EACH ? HYPER_SUMS - 1 : HYPER_EACH * warp + o, i) = part;
        }
    }
}

/* Completes the rows (finish_streams()) after add_results(), in the blocks of the launch that arrive last, one row at a
 * time. smem_copy: as for finish_streams(). raw: the block's shared memory. */
PI_CALL void read_streams(const pi__k_streams &k, const pi__k_tail &t, bool smem_copy, unsigned char *raw)
{
    float *shared = (float *) raw;
    const uint32_t total = blocks_of_launch(), most = blocks_for((uint32_t) k.n_rows, t.waits);
    const tail_share s = arrive_of(t.arrived, total, min(most, total), t.waits.stuck,
                                   (uint32_t *) (shared + HYPER_LEFT));
    for (int32_t row = s.part; s.parts && row < k.n_rows; row += s.parts) {
        finish_streams(k, t, row, smem_copy, shared);
        __syncthreads(); /* shared memory may be overwritten */
    }
}

} /* namespace hyper */

#endif
