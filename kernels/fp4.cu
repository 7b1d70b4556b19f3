/* FP4 matrices times x rounded to the same FP4 format, with the block-scaled tensor cores of sm_120 and sm_121: several
 * times the speed of linear.cu's exact products, for a rounding of x to about 3 bits (option fp4-mma).
 *
 * NVFP4: e2m1 codes, a ue4m3 scale for 16 of them, a float for the row of x: its largest value over 4 * 448. A group's
 * largest value becomes 6 or 4, whichever gives the smaller squared error: between 4 and 6 e2m1 has nothing, and a group
 * with much just below its largest value does better with that at 4. MXFP4: e2m1 codes, a power of two for 32 of them, the
 * smallest without clipping. What a row becomes depends on that row alone.
 *
 *     prepared: [groups of 8 rows][chunks of 64 columns]{ [32 lanes] two words of B, [8 rows] word of 4 scales }
 *               [rows] factor
 *
 * W is packed as pack.h says; a chunk is two of its blocks, the last one of MXFP4 may have only one. ORDER: the chunks are
 * cut into 8 slices, a slice is summed by one accumulator of the tensor core, in order, and the slices are added in order;
 * few_rows has a warp for a slice, many_rows one for all, as in gemm.cu. */
#include "input.cuh"
#include "linear.cuh"
#include "pipe.cuh"

enum { FP4_CHUNK = 288 /* bytes of a chunk of 8 prepared rows */, FP4_WARPS = 8, FP4_GROUPS = 8, FP4_STAGE = 2, FP4_STAGES = 3 };

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

/* The lane's words of A of a chunk and its word of scales; codes and scales are those of the chunk's first block, and
 * there may be no second. */
template <int TYPE>
PI_FN void load_chunk(const uint8_t *codes, const uint8_t *side, bool second, int lane, uint32_t (&a)[4], uint32_t &scales)
{
    int at = (lane & ~3) + 2 * (lane & 1), row = lane / 4 + 8 * (lane & 1);
    uint32_t half = lane & 2 ? 0x7632 : 0x5410;
    uint4 u = *(const uint4 *) (codes + at * 8), v = {0, 0, 0, 0};
    if (second) v = *(const uint4 *) (codes + 256 + at * 8);
    a[0] = __byte_perm(u.x, u.z, half), a[1] = __byte_perm(u.y, u.w, half);
    a[2] = __byte_perm(v.x, v.z, half), a[3] = __byte_perm(v.y, v.w, half);
    if (TYPE == PI__NVFP4) {
        uint32_t s = ((const uint16_t *) side)[row] | (uint32_t) ((const uint16_t *) (side + 32))[row] << 16;
        scales = s - ((s + 0x01010101) >> 7 & 0x01010101); /* 0x7f is 480 in files, which the instruction has not: 448 */
    } else {
        scales = min((uint32_t) side[row], 254u) | (second ? min((uint32_t) side[16 + row], 254u) << 8 : 0);
    }
}

template <int TYPE>
PI_FN void add_chunk(float (&acc)[4], const uint32_t (&a)[4], uint32_t scales, const uint32_t (&b)[2], uint32_t b_scales)
{
    if (TYPE == PI__NVFP4) ptx_mma_mxf4nvf4<0, 0, 0, 0>(acc, a, b, scales, b_scales);
    else ptx_mma_mxf4<0, 0, 0, 0>(acc, a, b, scales, b_scales);
}

/* A block of threads: 16 rows of W times up to NT groups of 8 rows of x; a warp a slice. */
template <int TYPE, int NT> __global__ void __launch_bounds__(THREADS, 2) fp4_few_rows(fp4_product p)
{
    if (!ptx_has_fp4()) return;
    PI_SMEM(raw);
    const pi__cuda_shape &shape = p.w.shape;
    int lane = (int) threadIdx.x % 32, slice = (int) threadIdx.x / 32, n_block = (int) shape.n_block, n = (n_block + 1) / 2;
    const uint8_t *tile = p.w.data + blockIdx.x * shape.tile_bytes;
    float acc[NT][4] = {}, *part = (float *) raw; /* [SLICES][NT * 8][16] */
    for (int c = n * slice / SLICES; c < n * (slice + 1) / SLICES; c++) {
        uint32_t a[4], scales;
        load_chunk<TYPE>(tile + (size_t) c * 512, tile + shape.side_at + (size_t) c * 2 * shape.side_bytes,
                         2 * c + 1 < n_block, lane, a, scales);
#pragma unroll
        for (int g = 0; g < NT; g++) {
            if (8 * g >= p.n_rows) break;
            const uint8_t *chunk = p.chunks + ((size_t) g * (size_t) n + (size_t) c) * FP4_CHUNK;
            uint2 b = {0, 0};
            uint32_t b_scales = 0;
            if (8 * g + lane / 4 < p.n_rows) {
                b = ((const uint2 *) chunk)[lane];
                b_scales = ((const uint32_t *) (chunk + 256))[lane / 4];
            }
            add_chunk<TYPE>(acc[g], a, scales, {b.x, b.y}, b_scales);
        }
    }
#pragma unroll
    for (int i = 0; i < NT * 4; i++) {
        int row = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
        part[(slice * NT * 8 + row) * 16 + lane / 4 + 8 * (i % 4 / 2)] = acc[i / 4][i % 4];
    }
    __syncthreads();
    float factor = p.w.scale ? *p.w.scale : 1.0f;
    for (int i = (int) threadIdx.x; i < NT * 8 * 16; i += THREADS) {
        float sum = 0;
        for (int k = 0; k < SLICES; k++) sum += part[k * NT * 8 * 16 + i];
        int64_t o = (int64_t) blockIdx.x * 16 + i % 16;
        if (i / 16 < p.n_rows && o < p.w.n_out) p.y[i / 16 * p.ldy + o] = sum * p.factors[i / 16] * factor;
    }
}

/* Chunk c and the next to stage i: warp w's tile and group, where they exist.
 *
 *     stage: [8 tiles]{ [4 blocks] codes, [4 blocks] scales } [8 groups][2 chunks] */
PI_FN void fp4_fill(const fp4_product &p, const pipe<FP4_STAGES> &q, uint32_t tile_size, int32_t i, int32_t c)
{
    const pi__cuda_shape &s = p.w.shape;
    uint32_t warp = threadIdx.x / 32, n = (uint32_t) min(2 * FP4_STAGE, (int32_t) s.n_block - 2 * c), chunks = (n + 1) / 2;
    int64_t tile = blockIdx.y * FP4_WARPS + warp, group = blockIdx.x * FP4_GROUPS + warp, n_chunk = (s.n_block + 1) / 2;
    bool w = tile * 16 < p.w.n_out, x = group * 8 < p.n_rows;
    q.expect(i, (w ? n * (256 + (uint32_t) s.side_bytes) : 0) + (x ? chunks * FP4_CHUNK : 0));
    if (w) {
        const uint8_t *src = p.w.data + (size_t) tile * s.tile_bytes;
        q.copy(i, warp * tile_size, src + (size_t) c * 512, n * 256);
        q.copy(i, warp * tile_size + 2 * FP4_STAGE * 256, src + s.side_at + (size_t) c * 2 * s.side_bytes,
               n * (uint32_t) s.side_bytes);
    }
    if (x) {
        q.copy(i, FP4_WARPS * tile_size + warp * FP4_STAGE * FP4_CHUNK, p.chunks + (size_t) (group * n_chunk + c) * FP4_CHUNK,
               chunks * FP4_CHUNK);
    }
}

/* A block of threads: 128 rows of W times 64 of x; a warp 16 of them times all. */
template <int TYPE> __global__ void __launch_bounds__(THREADS, 2) fp4_many_rows(fp4_product p)
{
    if (!ptx_has_fp4()) return;
    PI_SMEM(raw);
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    int32_t tile = (int32_t) blockIdx.y * FP4_WARPS + warp, first = (int32_t) blockIdx.x * FP4_GROUPS * 8;
    int32_t n_block = (int32_t) p.w.shape.n_block, n = (n_block + 1) / 2, end = slice_end(n, 0);
    int32_t n_group = (min(FP4_GROUPS * 8, p.n_rows - first) + 7) / 8;
    uint32_t side = (uint32_t) p.w.shape.side_bytes, tile_size = 2 * FP4_STAGE * (256 + side);
    float acc[FP4_GROUPS][4] = {}, total[FP4_GROUPS][4] = {};
    pipe<FP4_STAGES> q(raw, FP4_WARPS * tile_size + FP4_GROUPS * FP4_STAGE * FP4_CHUNK);
    auto fill = [&](int32_t i, int32_t c) { fp4_fill(p, q, tile_size, i, c); };
    q.run(n, FP4_STAGE, fill, [&](const unsigned char *stage, int32_t c) {
        const unsigned char *w = stage + (uint32_t) warp * tile_size;
        for (int k = 0; k < FP4_STAGE && c + k < n && (int64_t) tile * 16 < p.w.n_out; k++) {
            uint32_t a[4], scales;
            load_chunk<TYPE>(w + k * 512, w + 2 * FP4_STAGE * 256 + k * 2 * side, 2 * (c + k) + 1 < n_block, lane, a, scales);
            const unsigned char *chunk = stage + FP4_WARPS * tile_size + k * FP4_CHUNK;
#pragma unroll
            for (int g = 0; g < FP4_GROUPS; g++, chunk += FP4_STAGE * FP4_CHUNK) {
                if (g >= n_group) break;
                uint2 b = ((const uint2 *) chunk)[lane];
                add_chunk<TYPE>(acc[g], a, scales, {b.x, b.y}, ((const uint32_t *) (chunk + 256))[lane / 4]);
            }
            if (c + k + 1 < end) continue;
            end_slice(acc, total);
            end = slice_end(n, end);
        }
    });
    float factor = p.w.scale ? *p.w.scale : 1.0f;
#pragma unroll
    for (int i = 0; i < FP4_GROUPS * 4; i++) {
        int64_t row = first + 8 * (i / 4) + 2 * (lane % 4) + i % 2, o = (int64_t) tile * 16 + lane / 4 + 8 * (i % 4 / 2);
        if (row < p.n_rows && o < p.w.n_out) p.y[row * p.ldy + o] = total[i / 4][i % 4] * p.factors[row] * factor;
    }
}

/* -------------------------------------------------------------------------------------------------------------- launch */

static size_t chunks_bytes(int32_t n_rows, int64_t n_in)
{
    return (size_t) ((n_rows + 7) / 8) * (size_t) ((n_in + 63) / 64) * FP4_CHUNK;
}

size_t pi__k_fp4_prepared_bytes(int32_t n_rows, int64_t n_in)
{
    return chunks_bytes(n_rows, n_in) + (size_t) ((n_rows + 7) / 8) * 8 * sizeof(float);
}

int pi__k_fp4_prepare(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared)
{
    if (n_rows < 1) return 0;
    auto kernel = type == PI__NVFP4 ? fp4_prepare<PI__NVFP4> : fp4_prepare<PI__MXFP4>;
    uint8_t *chunks = (uint8_t *) prepared;
    return pi_launch(stream, kernel, dim3((unsigned) ((n_rows + 7) / 8 * 8)), dim3(THREADS), THREADS / 4, *in, n_rows, n_in,
                     chunks, (float *) (chunks + chunks_bytes(n_rows, n_in)));
}

template <int TYPE> static int run_fp4(void *stream, const fp4_product &p)
{
    constexpr int NT = 4;
    unsigned tiles = (unsigned) ((p.w.n_out + 15) / 16);
    if (p.n_rows <= 8) return pi_launch(stream, fp4_few_rows<TYPE, 1>, dim3(tiles), dim3(THREADS), sums_bytes<1>, p);
    if (p.n_rows <= NT * 8) return pi_launch(stream, fp4_few_rows<TYPE, NT>, dim3(tiles), dim3(THREADS), sums_bytes<NT>, p);
    size_t stage = FP4_WARPS * 2 * FP4_STAGE * (256 + p.w.shape.side_bytes) + FP4_GROUPS * FP4_STAGE * FP4_CHUNK;
    dim3 grid((unsigned) ((p.n_rows + FP4_GROUPS * 8 - 1) / (FP4_GROUPS * 8)), (tiles + FP4_WARPS - 1) / FP4_WARPS);
    return pi_launch(stream, fp4_many_rows<TYPE>, grid, dim3(THREADS), pipe_bytes<FP4_STAGES>(stage), p);
}

int pi__k_fp4_linear(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y, int64_t ldy)
{
    if (n_rows < 1) return 0;
    const uint8_t *chunks = (const uint8_t *) prepared;
    fp4_product p = {*w, chunks, (const float *) (chunks + chunks_bytes(n_rows, w->n_in)), y, ldy, n_rows};
    switch (w->type) {
    case PI__NVFP4: return run_fp4<PI__NVFP4>(stream, p);
    case PI__MXFP4: return run_fp4<PI__MXFP4>(stream, p);
    default: return 1;
    }
}
