/* F16 and BF16 matrices times x with 16-bit tensor cores, as good as with floats: W is exact in its type, and x is the sum
 * of two F16 (with a power of two for 32 columns, 22 bits and more) or three BF16 (24 bits).
 *
 *     prepared: [groups of 8 rows][blocks of 32 columns]{ [parts][32 lanes] four words of B, F16: [8 rows] scale }
 *
 * Lane 4 g + t has columns 8 t .. 8 t + 7 of a row: of W's rows g and g + 8 as they are in the file, of x's row g. Which
 * column of the instruction they are is the same for both, so that W needs no packing.
 *
 * ORDER. A block is summed by itself, small parts first, and added to its slice with the rounding of floats; slices are as
 * linear.cuh says. Thus the tensor core's sums, which cut instead of rounding, stay short. few_rows has a warp for a slice,
 * many_rows one for all.
 *
 * Why not cuBLAS: which kernel it takes, and so the order of its sums, depends on the number of rows, and a request's
 * numbers must not depend on its company. It would also round x to 16 bits. */
#include "input.cuh"
#include "linear.cuh"
#include "pipe.cuh"

template <int TYPE> struct halves {
    static constexpr int PARTS = TYPE == PI__BF16 ? 3 : 2;
    static constexpr int BYTES = PARTS * 512 + (TYPE == PI__F16 ? 32 : 0); /* of a block of 8 prepared rows */
};
enum { HALVES_ROWS = 128, HALVES_GROUPS = 8, HALVES_STAGES = 4, HALVES_W = HALVES_ROWS * 64 /* bytes of W in a stage */ };

/* A block of threads: a row; row numbers up to a multiple of 8 are rows of zeros. */
template <int TYPE> __global__ void __launch_bounds__(THREADS) halves_prepare(pi__k_input in, int32_t n_rows, int64_t n_in,
                                                                              uint8_t *blocks)
{
    PI_SMEM(raw);
    int64_t row = blockIdx.x, n_block = (n_in + 31) / 32;
    bool there = row < n_rows;
    int lane = (int) threadIdx.x % 32, r = (int) (row % 8);
    input_row x = open_row(in, row, n_in, there, (float *) raw);
    for (int64_t i = threadIdx.x; i < n_block * 32; i += THREADS) {
        float v = there && i < n_in ? x.at(i) : 0.0f;
        uint8_t *block = blocks + (size_t) (row / 8 * n_block + i / 32) * halves<TYPE>::BYTES;
        uint16_t *p = (uint16_t *) block + (r * 4 + lane / 8) * 8 + lane % 8;
        if (TYPE == PI__BF16) {
            for (int k = 0; k < 3; k++) {
                p[k * 256] = float_to_bf16(v);
                v -= bf16_to_float(p[k * 256]);
            }
            continue;
        }
        bool bad = __any_sync(PI_FULL, !(fabsf(v) <= 3.4e38f)); /* infinite or NaN: so is every result */
        uint32_t e = __float_as_uint(warp_max(fabsf(v))) >> 23; /* the largest becomes 2^14 or more */
        e = e > 15 ? e - 14 : 1;
        v = bad ? 0.0f : v * __uint_as_float((254 - e) << 23);
        p[0] = float_to_half(v);
        p[256] = float_to_half(v - half_to_float(p[0]));
        if (lane == 0) ((float *) (block + 1024))[r] = __uint_as_float(bad ? 0x7fc00000 : e << 23);
    }
}

/* The lane's words of a block of 8 rows of x; there: the lane's row is one. */
template <int TYPE> PI_FN void load_parts(const uint8_t *block, bool there, uint4 (&b)[halves<TYPE>::PARTS])
{
    for (int k = 0; k < halves<TYPE>::PARTS; k++) {
        b[k] = {0, 0, 0, 0};
        if (there) b[k] = ((const uint4 *) block)[k * 32 + (int) threadIdx.x % 32];
    }
}

/* Adds a block; w0 and w1 are the lane's words of two rows of W. */
template <int TYPE> PI_FN void add_halves(uint4 w0, uint4 w1, const uint4 (&b)[halves<TYPE>::PARTS], const uint8_t *block,
                                          float (&acc)[4])
{
    float d[4] = {};
#pragma unroll
    for (int k = halves<TYPE>::PARTS - 1; k >= 0; k--) {
        if (TYPE == PI__BF16) {
            ptx_mma_bf16(d, {w0.x, w1.x, w0.y, w1.y}, {b[k].x, b[k].y});
            ptx_mma_bf16(d, {w0.z, w1.z, w0.w, w1.w}, {b[k].z, b[k].w});
        } else {
            ptx_mma_f16(d, {w0.x, w1.x, w0.y, w1.y}, {b[k].x, b[k].y});
            ptx_mma_f16(d, {w0.z, w1.z, w0.w, w1.w}, {b[k].z, b[k].w});
        }
    }
    const float *scale = (const float *) (block + 1024) + threadIdx.x % 4 * 2; /* of F16 */
    for (int i = 0; i < 4; i++) acc[i] = TYPE == PI__F16 ? fmaf(d[i], scale[i % 2], acc[i]) : acc[i] + d[i];
}

/* A block of threads: 16 rows of W times up to NT groups of 8 rows of x; a warp a slice. */
template <int TYPE, int NT> __global__ void __launch_bounds__(THREADS, 2) halves_few_rows(product p)
{
    PI_SMEM(raw);
    int lane = (int) threadIdx.x % 32, slice = (int) threadIdx.x / 32, n = (int) ((p.w.n_in + 31) / 32);
    int64_t row = (int64_t) blockIdx.x * 16 + lane / 4;
    size_t pitch = p.w.shape.tile_bytes;
    const uint8_t *w = p.w.data + (size_t) row * pitch + lane % 4 * 16;
    float acc[NT][4] = {};
    for (int c = n * slice / SLICES; c < n * (slice + 1) / SLICES; c++) {
        bool inside = c * 32 + lane % 4 * 8 < p.w.n_in;
        uint4 w0 = {0, 0, 0, 0}, w1 = {0, 0, 0, 0}, b[halves<TYPE>::PARTS];
        if (inside && row < p.w.n_out) w0 = *(const uint4 *) (w + (size_t) c * 64);
        if (inside && row + 8 < p.w.n_out) w1 = *(const uint4 *) (w + 8 * pitch + (size_t) c * 64);
#pragma unroll
        for (int g = 0; g < NT; g++) {
            if (8 * g >= p.n_rows) break;
            const uint8_t *block = (const uint8_t *) p.codes + ((size_t) g * (size_t) n + (size_t) c) * halves<TYPE>::BYTES;
            load_parts<TYPE>(block, 8 * g + lane / 4 < p.n_rows, b);
            add_halves<TYPE>(w0, w1, b, block, acc[g]);
        }
    }
    put_sums(acc, (float *) raw, times(p.w.scale), p.y + (size_t) blockIdx.x * 16, p.ldy, p.n_rows,
             p.w.n_out - (int64_t) blockIdx.x * 16);
}

/* Block c of 128 rows of W, 64 bytes each, and of 8 groups of x to stage i. What is not there becomes zeros. */
template <int TYPE> PI_FN void halves_fill(const product &p, const pipe<HALVES_STAGES, PIPE_SMALL> &q, int32_t i, int32_t c)
{
    for (uint32_t k = threadIdx.x; k < HALVES_ROWS * 4; k += THREADS) {
        int64_t row = (int64_t) blockIdx.y * HALVES_ROWS + k / 4, at = (int64_t) c * 64 + k % 4 * 16;
        bool there = row < p.w.n_out && at < 2 * p.w.n_in;
        ptx_cp_async16(q.address(i) + k * 16, p.w.data + (there ? (size_t) row * p.w.shape.tile_bytes + (size_t) at : 0),
                       there ? 16 : 0);
    }
    uint32_t warp = threadIdx.x / 32;
    size_t group = (size_t) blockIdx.x * HALVES_GROUPS + warp, n = (size_t) (p.w.n_in + 31) / 32;
    if (group * 8 < (size_t) p.n_rows) {
        q.copy(i, HALVES_W + warp * halves<TYPE>::BYTES,
               (const uint8_t *) p.codes + (group * n + (size_t) c) * halves<TYPE>::BYTES, halves<TYPE>::BYTES);
    }
}

/* A block of threads: 128 rows of W times 64 of x; a warp 32 times 32. */
template <int TYPE> __global__ void __launch_bounds__(THREADS) halves_many_rows(product p)
{
    PI_SMEM(raw);
    constexpr int BYTES = halves<TYPE>::BYTES;
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, first_w = warp / 2 * 32, first_g = warp % 2 * 4;
    int32_t n = (int32_t) ((p.w.n_in + 31) / 32), end = slice_end(n, 0), x0 = (int32_t) blockIdx.x * HALVES_GROUPS * 8;
    int32_t n_group = (min(HALVES_GROUPS * 8, p.n_rows - x0) + 7) / 8 - first_g;
    float acc[8][4] = {}, total[8][4] = {}; /* [2 tiles of W][4 groups] */
    pipe<HALVES_STAGES, PIPE_SMALL> q(raw, HALVES_W + HALVES_GROUPS * BYTES);
    auto fill = [&](int32_t i, int32_t c) { halves_fill<TYPE>(p, q, i, c); };
    q.run(n, 1, fill, [&](const unsigned char *stage, int32_t c) {
        const uint4 *w = (const uint4 *) (stage + (first_w + lane / 4) * 64) + lane % 4; /* 8 rows are 32 of these */
        uint4 a[4] = {w[0], w[32], w[64], w[96]}, b[halves<TYPE>::PARTS];
#pragma unroll
        for (int g = 0; g < 4; g++) {
            if (g >= n_group) break;
            const unsigned char *block = stage + HALVES_W + (first_g + g) * BYTES;
            load_parts<TYPE>(block, true, b);
            add_halves<TYPE>(a[0], a[1], b, block, acc[g]);
            add_halves<TYPE>(a[2], a[3], b, block, acc[4 + g]);
        }
        if (c + 1 < end) return;
        end_slice(acc, total);
        end = slice_end(n, end);
    });
    float factor = p.w.scale ? *p.w.scale : 1.0f;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        int64_t row = x0 + (first_g + i / 4 % 4) * 8 + 2 * (lane % 4) + i % 2;
        int64_t o = (int64_t) blockIdx.y * HALVES_ROWS + first_w + i / 16 * 16 + lane / 4 + 8 * (i % 4 / 2);
        if (row < p.n_rows && o < p.w.n_out) p.y[row * p.ldy + o] = total[i / 4][i % 4] * factor;
    }
}

/* -------------------------------------------------------------------------------------------------------------- launch */

int pi__k_halves_has(int32_t type, int64_t n_in) { return (type == PI__F16 || type == PI__BF16) && n_in % 8 == 0; }

size_t pi__k_halves_prepared_bytes(int32_t type, int32_t n_rows, int64_t n_in)
{
    size_t block = type == PI__BF16 ? halves<PI__BF16>::BYTES : halves<PI__F16>::BYTES;
    return (size_t) ((n_rows + 7) / 8) * (size_t) ((n_in + 31) / 32) * block;
}

int pi__k_halves_prepare(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared)
{
    if (n_rows < 1) return 0;
    auto kernel = type == PI__BF16 ? halves_prepare<PI__BF16> : halves_prepare<PI__F16>;
    return pi_launch(stream, kernel, dim3((unsigned) ((n_rows + 7) / 8 * 8)), dim3(THREADS), THREADS / 8, *in, n_rows, n_in,
                     (uint8_t *) prepared);
}

template <int TYPE> static int run_halves(void *stream, const product &p)
{
    constexpr int NT = 4;
    unsigned tiles = (unsigned) ((p.w.n_out + 15) / 16);
    if (p.n_rows <= 8) return pi_launch(stream, halves_few_rows<TYPE, 1>, dim3(tiles), dim3(THREADS), sums_bytes<1>, p);
    if (p.n_rows <= NT * 8) {
        return pi_launch(stream, halves_few_rows<TYPE, NT>, dim3(tiles), dim3(THREADS), sums_bytes<NT>, p);
    }
    dim3 grid((unsigned) ((p.n_rows + HALVES_GROUPS * 8 - 1) / (HALVES_GROUPS * 8)), (tiles + 7) / 8);
    return pi_launch(stream, halves_many_rows<TYPE>, grid, dim3(THREADS),
                     pipe_bytes<HALVES_STAGES>(HALVES_W + HALVES_GROUPS * halves<TYPE>::BYTES), p);
}

int pi__k_halves_linear(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y, int64_t ldy)
{
    if (n_rows < 1) return 0;
    product p = {*w, (const uint4 *) prepared, nullptr, y, ldy, n_rows};
    if (!pi__k_halves_has(w->type, w->n_in)) return 1;
    return w->type == PI__BF16 ? run_halves<PI__BF16>(stream, p) : run_halves<PI__F16>(stream, p);
}
