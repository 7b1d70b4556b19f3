/* FP4 matrices times x rounded to the same FP4 format, with the block-scaled tensor cores of sm_120 and sm_121: several
 * times the speed of linear_kernels.cuh's exact products, for a rounding of x to about 3 bits (option fp4-mma).
 *
 * NVFP4: e2m1 codes, a ue4m3 scale for 16 of them, a float for the row of x: its largest value over 4 * 448. A group's
 * largest value becomes 6 or 4, whichever gives the smaller squared error: between 4 and 6 e2m1 has nothing, and a group
 * with much just below its largest value does better with that at 4. MXFP4: e2m1 codes, a power of two for 32 of them, the
 * smallest without clipping. What a row becomes depends on that row alone.
 *
 * Layouts and ORDER: as fp4.cuh says; few_rows has a warp for a slice, many_rows one for all, as in gemm_kernels.cuh.
 * */
#ifndef PI_FP4_KERNELS_CUH
#define PI_FP4_KERNELS_CUH

#include "fp4.cuh"
#include "input.cuh"

/* ------------------------------------------------------------------------------------------------------------- prepare */

/* Nearest e2m1 (0 0.5 1 1.5 2 3 4 6), ties to the even code. */
PI_FN uint32_t e2m1_of(float v)
{
    float a = fabsf(v);
    uint32_t c = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return c | (__float_as_uint(v) >> 28 & 8);
}

/* Nearest ue4m3 of a value that is not negative, at most 448. */
PI_FN uint32_t ue4m3_of(float v)
{
    uint32_t u = __float_as_uint(v);
    if (v < 0.015625f) return (uint32_t) __float2int_rn(v * 512.0f); /* 8 is the smallest with an exponent */
    u = (u + 0x7ffff + (u >> 20 & 1)) >> 20;
    return min(u - (120u << 3), 0x7eu);
}
PI_FN float ue4m3_value(uint32_t u)
{
    return u < 8 ? (float) u * 0.001953125f : __uint_as_float((u + (120u << 3)) << 20);
}

PI_FN float e2m1_value(uint32_t c)
{
    uint32_t e = c >> 1 & 3, m = c & 1; /* the smallest is half of 1, as if e were 0 and m were not there */
    return e ? __uint_as_float((e + 126) << 23 | m << 22) : 0.5f * (float) m;
}

/* Largest of a group of N neighbouring lanes, and sum, the same in each. */
template <int N> PI_FN float group_max(float v)
{
    v = fabsf(v);
    for (int o = N / 2; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(PI_FULL, v, o));
    return v;
}
PI_FN float group_sum(float v)
{
    for (int o = 8; o; o >>= 1) v += __shfl_xor_sync(PI_FULL, v, o);
    return v;
}

/* A scale: what values are multiplied with, and the squared error of their group. */
PI_FN float scale_error(float v, uint32_t u, float &inverse)
{
    float scale = ue4m3_value(u);
    inverse = u ? 1.0f / scale : 0.0f;
    float d = fabsf(v) - e2m1_value(e2m1_of(fabsf(v) * inverse)) * scale;
    return group_sum(d * d);
}

/* The scale byte of the lane's group, and what its values are multiplied with. v is in units of the row's factor. */
template <int TYPE> PI_FN uint32_t scale_of(float v, float &inverse)
{
    if (TYPE == PI__NVFP4) {
        float most = group_max<16>(v), other;
        uint32_t u = ue4m3_of(most / 6.0f), u4 = ue4m3_of(most / 4.0f);
        bool four = scale_error(v, u4, other) < scale_error(v, u, inverse);
        inverse = four ? other : inverse;
        return four ? u4 : u;
    }
    uint32_t bits = __float_as_uint(group_max<32>(v)), e = bits >> 23; /* up to 1.5 * 2^n is 6 * 2^(n - 2) */
    e += (bits & 0x7fffff) > 0x400000 ? 1 : 0;
    e = e > 2 ? e - 2 : 0;
    inverse = e ? __uint_as_float((254 - e) << 23) : 0.0f;
    return e;
}

/* A block of threads: a row; row numbers up to a multiple of 8 are rows of zeros. */
template <int TYPE> __global__ void __launch_bounds__(THREADS) fp4_prepare(pi__k_input in, int32_t n_rows, int64_t n_in,
                                                                           uint8_t *chunks, float *factors)
{
    PI_SMEM(raw);
    int64_t row = blockIdx.x, n_chunk = (n_in + 63) / 64;
    bool there = row < n_rows;
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    input_row x = open_row(in, row, n_in, there, (float *) raw);
    float most = 0;
    bool bad = false; /* infinite or NaN: so is every result */
    for (int64_t i = threadIdx.x; i < n_in && there; i += THREADS) {
        float v = fabsf(x.at(i));
        most = fmaxf(most, v);
        bad |= !(v <= 3.4e38f);
    }
    float *worst = (float *) raw + THREADS / 32;
    most = warp_max(bad ? INFINITY : most);
    if (lane == 0) worst[warp] = most;
    __syncthreads();
    for (int i = 0; i < THREADS / 32; i++) most = fmaxf(most, worst[i]);
    bad = most > 3.4e38f;
    float factor = TYPE == PI__NVFP4 ? most / 1792.0f : 1.0f;
    if (threadIdx.x == 0) factors[row] = bad ? __uint_as_float(0x7fc00000) : factor;
    for (int64_t i = threadIdx.x; i < n_chunk * 64; i += THREADS) {
        float inverse, v = there && i < n_in && !bad && factor > 0 ? x.at(i) / factor : 0.0f;
        uint32_t scale = scale_of<TYPE>(v, inverse), word = e2m1_of(v * inverse) << 4 * (lane % 8);
        for (int o = 4; o; o >>= 1) word |= __shfl_xor_sync(PI_FULL, word, o);
        uint8_t *chunk = chunks + (size_t) (row / 8 * n_chunk + i / 64) * FP4_CHUNK;
        int r = (int) (row % 8), half = (int) (i / 32 % 2);
        if (lane % 8 == 0) ((uint32_t *) chunk)[(r * 4 + lane / 8) * 2 + half] = word;
        uint8_t *s = chunk + 256 + r * 4;
        if (TYPE == PI__NVFP4 && lane % 16 == 0) s[half * 2 + lane / 16] = (uint8_t) scale;
        if (TYPE == PI__MXFP4 && lane == 0) s[half] = (uint8_t) scale;
        if (TYPE == PI__MXFP4 && lane == 1) s[2 + half] = 0;
    }
}

/* ---------------------------------------------------------------------------------------------------------- the product */

struct fp4_product {
    pi__k_matrix w;
    const uint8_t *chunks; /* of x */
    const float *factors;
    float *y;
    int64_t ldy;
    int32_t n_rows;        /* of x */
};

/* Epilogue: the factors of a row's sum. */
struct fp4_result {
    const float *factors; /* of rows */
    times whole;          /* of the matrix */
    __device__ __forceinline__ float operator()(int row, float sum) const { return whole(row, sum * factors[row]); }
};

/* Rows of x as they lie, for few_rows. */
struct chunk_rows {
    const uint8_t *chunks;
    int n_chunk, n_rows;

    __device__ __forceinline__ void load(int g, int c, uint32_t (&b)[2], uint32_t &scales) const
    {
        const uint8_t *chunk = chunks + ((size_t) g * (size_t) n_chunk + (size_t) c) * FP4_CHUNK;
        int lane = (int) threadIdx.x % 32;
        b[0] = b[1] = scales = 0;
        if (8 * g + lane / 4 >= n_rows) return;
        uint2 words = ((const uint2 *) chunk)[lane];
        b[0] = words.x, b[1] = words.y;
        scales = ((const uint32_t *) (chunk + 256))[lane / 4];
    }
};

/* A block of threads: 16 rows of W times up to NT groups of 8 rows of x; a warp a slice. */
template <int TYPE, int NT> __global__ void __launch_bounds__(THREADS, 2) fp4_few_rows(fp4_product p)
{
    if (!ptx_has_fp4()) return;
    PI_SMEM(raw);
    const chunk_rows x = {p.chunks, (int) (p.w.shape.n_block + 1) / 2, p.n_rows};
    float acc[NT][4] = {};
    fp4_add_slice<TYPE>(p.w.shape, p.w.data + blockIdx.x * p.w.shape.tile_bytes, x, (p.n_rows + 7) / 8, acc);
    put_sums(acc, (float *) raw, fp4_result {p.factors, times(p.w.scale)}, p.y + (size_t) blockIdx.x * 16, p.ldy, p.n_rows,
             p.w.n_out - (int64_t) blockIdx.x * 16);
}

/* A group of 8 rows of x as they lie, for many_rows. */
struct chunk_group {
    const uint8_t *chunks; /* NULL: it is not there */

    __device__ __forceinline__ uint32_t bulk_bytes(uint32_t n) const { return chunks ? n * FP4_CHUNK : 0; }
    __device__ __forceinline__ void fill(const pipe<FP4_STAGES> &q, int32_t i, uint32_t to, int32_t c, uint32_t n) const
    {
        if (chunks) q.copy(i, to, chunks + (size_t) c * FP4_CHUNK, n * FP4_CHUNK);
    }
};

/* A block of threads: 128 rows of W times 64 of x; a warp 16 of them times all. */
template <int TYPE> __global__ void __launch_bounds__(THREADS, 2) fp4_many_rows(fp4_product p)
{
    if (!ptx_has_fp4()) return;
    PI_SMEM(raw);
    const pi__cuda_shape &s = p.w.shape;
    uint32_t warp = threadIdx.x / 32;
    int64_t row = ((int64_t) blockIdx.y * FP4_WARPS + warp) * 16, first = (int64_t) blockIdx.x * FP4_GROUPS * 8;
    size_t group = (size_t) blockIdx.x * FP4_GROUPS + warp, n_chunk = (size_t) (s.n_block + 1) / 2;
    const uint8_t *tile = row < p.w.n_out ? p.w.data + (size_t) (row / 16) * s.tile_bytes : nullptr;
    const chunk_group x = {group * 8 < (size_t) p.n_rows ? p.chunks + group * n_chunk * FP4_CHUNK : nullptr};
    int32_t n = (int32_t) (p.n_rows - first);
    float total[FP4_GROUPS][4] = {};
    fp4_multiply_tile<TYPE, pipe<FP4_STAGES>>(s, tile, x, raw, (min(FP4_GROUPS * 8, n) + 7) / 8, total);
    put_totals(total, fp4_result {p.factors + first, times(p.w.scale)}, p.y + first * p.ldy + row, p.ldy, n, p.w.n_out - row);
}

#endif
