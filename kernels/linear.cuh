/* What kernels that multiply packed matrices share: prepared rows, the sum of a block, and the order of all sums.
 *
 * x is rounded to 15 bits in blocks of 32 with a float scale, and a code is two digits of 8 bits, 128 * high + low: two
 * integer products cost little where reading W is what takes the time, and the result is as good as with floats. W is the
 * A operand (16 rows), 8 rows of x are B:
 *
 *     acc = fma(float(dot of 32 codes) * scale of W, scale of x, acc)             a block of 32 columns
 *
 * ORDER. The blocks are cut into 8 slices of equal length; a warp adds up one slice, in order, and the slices are added
 * in order. The same for every number of rows, so company never changes a bit.
 *
 *     prepared: [groups of 8 rows][blocks][32 lanes] words of B: high, high of the second half, low, low
 *               [groups of 8 rows][blocks][8 rows]   scale of the block, sums of the codes of its halves
 *
 * The lanes 4 r .. 4 r + 3 hold row r of a group alone, so that a warp may as well take its 8 rows from 8 groups. */
#ifndef PI_LINEAR_CUH
#define PI_LINEAR_CUH

#include "codes.cuh"
#include "ptx.cuh"

enum { SLICES = 8, THREADS = SLICES * 32, FLOAT_WARPS = 4, FLOAT_ROWS = 8 };

/* Every type of matrix: packed, and as in the file. */
#define PACKED_TYPES(X)                                                                                                 \
    X(PI__Q8_0) X(PI__Q4_0) X(PI__Q4_1) X(PI__Q5_0) X(PI__Q5_1) X(PI__Q2_K) X(PI__Q3_K) X(PI__Q4_K) X(PI__Q5_K)         \
    X(PI__Q6_K) X(PI__IQ4_NL) X(PI__IQ4_XS) X(PI__MXFP4) X(PI__NVFP4) X(PI__IQ2_XXS) X(PI__IQ2_XS) X(PI__IQ2_S)         \
    X(PI__IQ3_XXS) X(PI__IQ3_S) X(PI__IQ1_S) X(PI__IQ1_M)
#define FLOAT_TYPES(X) X(PI__F32) X(PI__F16) X(PI__BF16)

/* Scale and sums of a block of a row of x. */
struct alignas(16) block_meta {
    float scale;
    int32_t sum[2]; /* of the codes of each half */
    int32_t unused;
};

/* A product with prepared rows. */
struct product {
    pi__k_matrix w;
    const uint4 *codes;     /* of x */
    const block_meta *meta;
    float *y;
    int64_t ldy;
    int32_t n_rows;         /* of x */
};
/* gemm.cu: packed matrices, any number of rows; made for more than 32. */
int pi__k_gemm(void *stream, const product &p);

static inline size_t codes_bytes(int64_t n_rows, int64_t n_in) { return (size_t) ((n_rows + 7) / 8 * (n_in / 32)) * 512; }

/* What a sum becomes: times a matrix's factor, if there is one. */
struct times {
    float factor;
    __device__ __forceinline__ times(const float *f) : factor(f ? *f : 1.0f) {}
    __device__ __forceinline__ float operator()(int, float sum) const { return sum * factor; }
};

/* First block of the slice behind the one that b is in. */
PI_FN int32_t slice_end(int32_t n, int32_t b)
{
    int32_t k = 1;
    while (k < SLICES && n * k / SLICES <= b) k++;
    return n * k / SLICES;
}

/* Adds a block: acc of rows lane / 4 and + 8, of x's rows 2 (lane % 4) and + 1 of a group, whose metas are x0 and x1. */
template <int TYPE> PI_FN void add_block(const uint32_t (&a)[4], const float (&s)[2][2], const float (&m)[2][2], uint4 b,
                                         const block_meta *x0, const block_meta *x1, float (&acc)[4])
{
    using F = format<TYPE>;
    int32_t high[2][4] = {}, low[2][4] = {}; /* of each half; of the whole in [0] */
    if (F::HALVES) {
        ptx_mma_s8_k16(high[0], {a[0], a[1]}, b.x);
        ptx_mma_s8_k16(high[1], {a[2], a[3]}, b.y);
        ptx_mma_s8_k16(low[0], {a[0], a[1]}, b.z);
        ptx_mma_s8_k16(low[1], {a[2], a[3]}, b.w);
    } else {
        ptx_mma_s8_k32(high[0], a, {b.x, b.y});
        ptx_mma_s8_k32(low[0], a, {b.z, b.w});
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        block_meta x = i % 2 ? *x1 : *x0;
        for (int h = 0; h < (F::HALVES ? 2 : 1); h++) {
            int32_t sum = F::HALVES ? x.sum[h] : x.sum[0] + x.sum[1], dot = 128 * high[h][i] + low[h][i] - F::OFFSET * sum;
            acc[i] = fmaf((float) dot * s[i / 2][h], x.scale, acc[i]);
            if (F::MINS) acc[i] = fmaf(-m[i / 2][h], x.scale * (float) sum, acc[i]);
        }
    }
}

/* The warp's slice of a tile's rows times n_group groups of x (at most NT). X gives, of group g and block b, the lane's
 * words of B, codes(g, b), and the metas of its two rows, meta(g, b, 0) and meta(g, b, 1). */
template <int TYPE, int NT, class X>
PI_FN void add_slice(const pi__cuda_shape &shape, const uint8_t *tile, const X &x, int n_group, float (&acc)[NT][4])
{
    int lane = (int) threadIdx.x % 32, slice = (int) threadIdx.x / 32;
    int64_t n = shape.n_block;
    for (int64_t b = n * slice / SLICES; b < n * (slice + 1) / SLICES; b++) {
        uint32_t a[4];
        float s[2][2], m[2][2];
        load_codes<TYPE>(tile + (size_t) b * shape.code_bytes, lane, a);
        load_scales<TYPE>(shape, tile, b, lane / 4, s[0], m[0]);
        load_scales<TYPE>(shape, tile, b, lane / 4 + 8, s[1], m[1]);
#pragma unroll
        for (int g = 0; g < NT; g++) {
            if (g >= n_group) break;
            add_block<TYPE>(a, s, m, x.codes(g, b), x.meta(g, b, 0), x.meta(g, b, 1), acc[g]);
        }
    }
}

/* Shared memory of put_sums. */
template <int NT> constexpr size_t sums_bytes = SLICES * NT * 8 * 16 * sizeof(float);

/* Adds the slices up: y[row * ldy + i] = result(row, sum) of n_row rows of x, 16 or fewer rows of W. */
template <int NT, class F>
PI_FN void put_sums(const float (&acc)[NT][4], float *part, const F &result, float *y, int64_t ldy, int64_t n_row,
                    int64_t n_out)
{
    int lane = (int) threadIdx.x % 32, slice = (int) threadIdx.x / 32; /* part: [SLICES][NT * 8][16] */
#pragma unroll
    for (int g = 0; g < NT; g++) {
        for (int i = 0; i < 4; i++) {
            int row = 8 * g + 2 * (lane % 4) + i % 2;
            part[(slice * NT * 8 + row) * 16 + lane / 4 + 8 * (i / 2)] = acc[g][i];
        }
    }
    __syncthreads();
    for (int i = (int) threadIdx.x; i < NT * 8 * 16; i += THREADS) {
        float sum = 0;
        for (int k = 0; k < SLICES; k++) sum += part[k * NT * 8 * 16 + i];
        if (i / 16 < n_row && i % 16 < n_out) y[i / 16 * ldy + i % 16] = result(i / 16, sum);
    }
}

/* Where one warp has all slices, one after the other: a slice is done. */
template <int NT> PI_FN void end_slice(float (&acc)[NT][4], float (&total)[NT][4])
{
#pragma unroll
    for (int i = 0; i < NT * 4; i++) {
        total[i / 4][i % 4] += acc[i / 4][i % 4];
        acc[i / 4][i % 4] = 0;
    }
}

/* As put_sums, from one warp's totals: n_row rows of x, 16 or fewer rows of W. */
template <int NT, class F>
PI_FN void put_totals(const float (&total)[NT][4], const F &result, float *y, int64_t ldy, int64_t n_row, int64_t n_out)
{
    int lane = (int) threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < NT * 4; i++) {
        int row = 8 * (i / 4) + 2 * (lane % 4) + i % 2, o = lane / 4 + 8 * (i % 4 / 2);
        if (row < n_row && o < n_out) y[row * ldy + o] = result(row, total[i / 4][i % 4]);
    }
}

/* -------------------------------------------------------------------------------------------------- matrices of floats */

/* Value i of a row as in the file. */
template <int TYPE> PI_FN float value_at(const uint8_t *row, int64_t i)
{
    if (TYPE == PI__F32) return ((const float *) row)[i];
    uint16_t h = ((const uint16_t *) row)[i];
    return TYPE == PI__F16 ? half_to_float(h) : bf16_to_float(h);
}

/* A warp: a row of W times n of x (at most FLOAT_ROWS), row r of which x(r) points to. Lane l adds up columns l, l + 32,
 * ..., then the lanes are summed: y[r * ldy]. */
template <int TYPE, class X>
PI_FN void float_rows(const uint8_t *row, int64_t n_in, const X &x, int n, float factor, float *y, int64_t ldy)
{
    int lane = (int) threadIdx.x % 32;
    float acc[FLOAT_ROWS] = {};
#pragma unroll 4
    for (int64_t i = lane; i < n_in; i += 32) {
        float w = value_at<TYPE>(row, i);
#pragma unroll
        for (int r = 0; r < FLOAT_ROWS; r++) {
            if (r < n) acc[r] = fmaf(w, x(r)[i], acc[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < FLOAT_ROWS; r++) {
        if (r >= n) break;
        float sum = warp_sum(acc[r]);
        if (lane == 0) y[r * ldy] = sum * factor;
    }
}

#endif
