/* Shared by kernels that multiply packed matrices W by rows of x: the format of packed x, the products of a block of 32
 * columns, and the order of all sums. Entry points: add_slice() multiplies, put_sums(), put_tiles() and put_totals()
 * write y, float_rows() serves unpacked matrices.
 *
 * x is rounded to 15-bit integer codes. Each block of 32 columns has a float scale. A code is two signed bytes, 128 *
 * high + low, so each product takes two integer mma instructions. They cost little where reading W takes the time, and
 * the result is as accurate as with floats. W is operand A (16 rows, a "tile"), 8 rows of x (a "group") are operand B:
 *
 *     acc = fma(float(dot of 32 codes) * scale of W, scale of x, acc)             a block of 32 columns
 *
 * ORDER. The blocks of a row are cut into 8 slices of equal length. A warp adds up one slice, block after block, and
 * the slices are added in order. The order does not depend on the number of rows, so products are batch-invariant.
 *
 *     packed x: [groups of 8 rows][blocks][32 lanes] uint4 of B: high bytes of columns 0 .. 15, of columns 16 .. 31,
 *                                                                low bytes of columns 0 .. 15, of columns 16 .. 31
 *               [groups of 8 rows][blocks][8 rows]   block_meta: scale of the block, sums of the codes of its halves
 *
 * Row r of a group is in the words of lanes 4 r .. 4 r + 3 only. A warp can therefore combine 8 rows from 8 different
 * groups. */
#ifndef PI_LINEAR_CUH
#define PI_LINEAR_CUH

#include "codes.cuh"
#include "ptx.cuh"

enum { SLICES = 8, THREADS = SLICES * 32, FLOAT_WARPS = 4, FLOAT_ROWS = 8 };
/* Max shared memory of a thread block, in bytes, with which every device runs two blocks per multiprocessor
 * (ROOM_OF_TWO) or one (ROOM_OF_ONE). */
enum { ROOM_OF_TWO = 48 << 10, ROOM_OF_ONE = 99 << 10 };

/* PACKED_TYPES(X) calls X for each matrix type that the CUDA backend repacks (pack.h); FLOAT_TYPES(X) for F32, F16 and
 * BF16, which keep the file's layout. X receives a row of the tables in weight_formats.h. */
#define PACKED_TYPES(X) PI__CODE_FORMATS(X) PI__GRID_FORMATS(X)
#define FLOAT_TYPES(X) PI__FLOAT_FORMATS(X)

/* A block of 32 columns of one row of x: its scale, and sums of its codes, which correct for offsets and minimums of
 * W. */
struct alignas(16) block_meta {
    float scale;
    int32_t sum[2]; /* sums of the codes of columns 0 .. 15 and 16 .. 31 */
    int32_t unused;
};

/* Arguments of y = W x with n_rows packed rows of x. */
struct product {
    pi__k_matrix w;
    const uint4 *codes;     /* packed x; if W is F32, F16 or BF16: rows of floats */
    const block_meta *meta;
    float *y;
    int64_t ldy;
    int32_t n_rows;         /* rows of x */
};
/* Result functor: multiplies each sum by the matrix's factor, *f. f NULL = factor 1. */
struct times {
    float factor;
    __device__ __forceinline__ times(const float *f) : factor(f ? *f : 1.0f) {}
    __device__ __forceinline__ float operator()(int, float sum) const { return sum * factor; }
};

/* Returns the index after the last block of the slice that contains block b. n: blocks of a row. Slice k has the blocks
 * from n * k / 8 to n * (k + 1) / 8 - 1. */
PI_FN int32_t slice_end(int32_t n, int32_t b)
{
    int32_t k = 1;
    while (k < SLICES && n * k / SLICES <= b) k++;
    return n * k / SLICES;
}

/* Adds the products of one block of 32 columns to acc. acc[i] is W row lane / 4 + 8 (i / 2) of the tile times x row 2
 * (lane % 4) + i % 2 of the group. a, s, m: the lane's codes, scales and minimums of W (load_codes(), load_scales()).
 * b: the lane's words of x. x0, x1: metas of the lane's two rows of x. */
template <int TYPE>
PI_FN void add_block(const uint32_t (&a)[4], const float (&s)[2][2], const float (&m)[2][2], uint4 b,
                     const block_meta *x0, const block_meta *x1, float (&acc)[4])
{
    using F = format<TYPE>;
    /* dot products of 16 columns, [half]; formats without HALVES: of 32, in [0] */
    int32_t high[2][4] = {}, low[2][4] = {};
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
            /* Packed rows past the last may be uninitialized. Their results are discarded, but signed overflow would be
             * undefined: hence unsigned arithmetic. */
            const uint32_t total = F::HALVES ? (uint32_t) x.sum[h] : (uint32_t) x.sum[0] + (uint32_t) x.sum[1];
            const int32_t sum = (int32_t) total;
            const int32_t dot = (int32_t) (128u * (uint32_t) high[h][i] + (uint32_t) low[h][i] -
                                           (uint32_t) F::OFFSET * total);
            acc[i] = fmaf((float) dot * s[i / 2][h], x.scale, acc[i]);
            if (F::MINS) acc[i] = fmaf(-m[i / 2][h], x.scale * (float) sum, acc[i]);
        }
    }
}

/* A pipeline that streams a warp's slice of a tile of W through shared memory, in chunks of CHUNK blocks. Copies run
 * STAGES - 1 chunks ahead of the multiplication: a warp that waited for each load would leave memory idle most of the
 * time. Each warp has its own stages and does not wait for other warps:
 *
 *     shared: [8 warps][STAGES]{ codes [CHUNK], scales [CHUNK], scales of scales }
 *
 * In every slice, chunks begin at block indices that are multiples of CHUNK. So a chunk has one set of scales of
 * scales, which serve 8 blocks. */
template <int TYPE> struct slice_stream {
    enum { CHUNK = format<TYPE>::BITS == 8 ? 2 : 4, STAGES = 3 };
    /* Max bytes over all shapes: codes per block, scales per block, scales of scales per chunk. */
    enum { MAX_CODE = codebook<TYPE>::POINTS ? 208 : 64 * format<TYPE>::BITS, MAX_SIDE = 64, MAX_SUPER = 64 };
    static_assert(8 % CHUNK == 0, "one set of super-scales per chunk");

    const uint8_t *tile;
    pi__cuda_shape at;        /* shape of the matrix, with side_at and super_at replaced by offsets in a stage */
    size_t side_at, super_at; /* byte offsets of scales and of scales of scales in the tile */
    uint32_t to;              /* shared memory address of the warp's first stage */
    uint32_t size;            /* bytes of a stage */
    int32_t lo, hi;           /* blocks of the slice: lo .. hi - 1 */

    __host__ __device__ static uint32_t stage_bytes(const pi__cuda_shape &s)
    {
        return (uint32_t) (CHUNK * (s.code_bytes + s.side_bytes) + s.super_bytes);
    }
    __host__ __device__ static size_t bytes(const pi__cuda_shape &s)
    {
        return (size_t) SLICES * STAGES * stage_bytes(s);
    }

    __device__ __forceinline__ slice_stream(const pi__cuda_shape &shape, const uint8_t *tile_,
                                            const unsigned char *shared)
        : tile(tile_), at(shape), side_at(shape.side_at), super_at(shape.super_at)
    {
        int32_t slice = (int32_t) threadIdx.x / 32, n = (int32_t) shape.n_block;
        size = stage_bytes(shape);
        to = ptx_shared(shared) + (uint32_t) slice * STAGES * size;
        lo = n * slice / SLICES;
        hi = n * (slice + 1) / SLICES;
        at.side_at = CHUNK * shape.code_bytes;
        at.super_at = at.side_at + CHUNK * shape.side_bytes;
    }
    /* Starts the copy of n bytes, at most MOST, by all lanes of the warp. n and both addresses are multiples of 16. */
    template <uint32_t MOST> __device__ __forceinline__ static void copy(uint32_t dst, const uint8_t *src, uint32_t n)
    {
#pragma unroll
        for (uint32_t i = 0; i < MOST; i += 512) {
            uint32_t k = i + threadIdx.x % 32 * 16;
            if (k < n) ptx_cp_async16(dst + k, src + k);
        }
    }
    /* Starts the copy of chunk c to stage i: only the blocks that lie in the slice, each at its place in the chunk. */
    __device__ __forceinline__ void fill(int32_t i, int32_t c) const
    {
        int32_t first = max(lo, c * CHUNK), n = min(hi, (c + 1) * CHUNK) - first, skip = first - c * CHUNK;
        uint32_t dst = to + (uint32_t) i * size, code = (uint32_t) at.code_bytes, side = (uint32_t) at.side_bytes;
        copy<CHUNK * MAX_CODE>(dst + (uint32_t) skip * code, tile + (size_t) first * code, (uint32_t) n * code);
        copy<CHUNK * MAX_SIDE>(dst + (uint32_t) at.side_at + (uint32_t) skip * side,
                               tile + side_at + (size_t) first * side, (uint32_t) n * side);
        copy<MAX_SUPER>(dst + (uint32_t) at.super_at, tile + super_at + (size_t) (c * CHUNK / 8) * at.super_bytes,
                         (uint32_t) at.super_bytes);
    }
};

/* Multiplies the warp's slice of a tile of W by n_group groups of x (at most NT), and adds the products to acc[group].
 * The slice number is the warp number. x.codes(g, b) returns the lane's words of group g and block b; x.meta(g, b, 0)
 * and x.meta(g, b, 1) return the metas of the lane's two rows. shared: slice_stream::bytes(), free afterwards. Called
 * by all threads of the block. */
template <int TYPE, int NT, class X>
PI_FN void add_slice(const pi__cuda_shape &shape, const uint8_t *tile, const X &x, int n_group, unsigned char *shared,
                     float (&acc)[NT][4])
{
    using stream = slice_stream<TYPE>;
    const stream in(shape, tile, shared);
    int lane = (int) threadIdx.x % 32;
    int32_t first = in.lo / stream::CHUNK, last = (in.hi + stream::CHUNK - 1) / stream::CHUNK, stage = 0;
    if (in.lo == in.hi) last = first;
    /* Fill the pipeline. */
    for (int s = 0; s < stream::STAGES - 1; s++) {
        if (first + s < last) in.fill(s, first + s);
        ptx_cp_async_commit();
    }
    ptx_wait_grids(); /* copies of W start before the previous kernel has finished x */
    const unsigned char *mine = shared + threadIdx.x / 32 * stream::STAGES * in.size;
    for (int32_t c = first; c < last; c++) {
        ptx_cp_async_wait<stream::STAGES - 2>();
        __syncwarp(); /* all lanes have chunk c, and have finished reading the previous one */
        if (c + stream::STAGES - 1 < last)
            in.fill((stage + stream::STAGES - 1) % stream::STAGES, c + stream::STAGES - 1);
        ptx_cp_async_commit();
        const unsigned char *w = mine + (uint32_t) stage * in.size;
#pragma unroll
        for (int k = 0; k < stream::CHUNK; k++) {
            int32_t b = c * stream::CHUNK + k;
            if (b < in.lo || b >= in.hi) continue;
            uint32_t a[4];
            float s[2][2], m[2][2];
            load_codes<TYPE>(w + k * in.at.code_bytes, lane, a);
            load_scales<TYPE>(in.at, w, k, lane / 4, s[0], m[0]);
            load_scales<TYPE>(in.at, w, k, lane / 4 + 8, s[1], m[1]);
#pragma unroll
            for (int g = 0; g < NT; g++) {
                if (g >= n_group) break;
                add_block<TYPE>(a, s, m, x.codes(g, b), x.meta(g, b, 0), x.meta(g, b, 1), acc[g]);
            }
        }
        stage = (stage + 1) % stream::STAGES;
    }
    __syncthreads();
}

/* Shared memory bytes: sums_bytes of put_sums(); slice_bytes() of add_slice() followed by put_sums(). */
template <int NT> constexpr size_t sums_bytes = SLICES * NT * 8 * 16 * sizeof(float);
template <int TYPE, int NT> static inline size_t slice_bytes(const pi__cuda_shape &s)
{
    size_t stream = slice_stream<TYPE>::bytes(s);
    return stream > sums_bytes<NT> ? stream : sums_bytes<NT>;
}

/* Returns the offset, in floats, of the sum of x row `row` and W row o (0 .. 15) in one slice's part of shared memory.
 * Two rows of x fill 32 banks, and each pair of rows is rotated by 8 banks. Neither the lanes of an accumulator nor
 * readers of rows have bank conflicts. */
PI_FN int sum_at(int row, int o) { return row / 2 * 32 + (row % 2 * 16 + o + row / 2 * 8) % 32; }

/* keep_sums() writes the sums of the warp's slice to part, [SLICES][NT * 8 rows of x][16 rows of W], at offsets
 * sum_at(). sum_of_slices() returns one result: its sums over all slices, added in slice order. */
template <int NT> PI_FN void keep_sums(const float (&acc)[NT][4], float *part)
{
    int lane = (int) threadIdx.x % 32, slice = (int) threadIdx.x / 32;
#pragma unroll
    for (int g = 0; g < NT; g++) {
        for (int i = 0; i < 4; i++) {
            int row = 8 * g + 2 * (lane % 4) + i % 2;
            part[slice * NT * 8 * 16 + sum_at(row, lane / 4 + 8 * (i / 2))] = acc[g][i];
        }
    }
}
template <int NT> PI_FN float sum_of_slices(const float *part, int row, int o)
{
    float sum = 0;
    for (int k = 0; k < SLICES; k++) sum += part[k * NT * 8 * 16 + sum_at(row, o)];
    return sum;
}

/* Adds the slices of all 8 warps and writes y[row * ldy + o] = result(row, sum). Bounds: min(n_row, 8 NT) rows of x,
 * min(n_out, 16) rows o of W. part: sums_bytes<NT> of shared memory. Called by all threads of the block. */
template <int NT, class F>
PI_FN void put_sums(const float (&acc)[NT][4], float *part, const F &result, float *y, int64_t ldy, int64_t n_row,
                    int64_t n_out)
{
    keep_sums<NT>(acc, part);
    __syncthreads();
    for (int i = (int) threadIdx.x; i < NT * 8 * 16; i += THREADS) {
        const float sum = sum_of_slices<NT>(part, i / 16, i % 16);
        if (i / 16 < n_row && i % 16 < n_out) y[i / 16 * ldy + i % 16] = result(i / 16, sum);
    }
}

/* Writes the slices' sums of ONCE of the R tiles in acc, tiles first .. first + ONCE - 1, to part. Barriers precede and
 * follow the writes. Adjacent tiles are shifted by 16 banks. */
/* floats between the starts of two tiles in part */
template <int NT> constexpr int tile_sums = SLICES * NT * 8 * 16 + 16;
template <int NT, int ONCE> constexpr size_t tiles_bytes = sums_bytes<NT> + (ONCE - 1) * tile_sums<NT> * sizeof(float);
template <int NT, int ONCE, int R> PI_FN void keep_tiles(const float (&acc)[R][NT][4], int first, float *part)
{
    __syncthreads(); /* all threads have read the previous tiles' sums */
#pragma unroll
    for (int r = 0; r < ONCE; r++) keep_sums<NT>(acc[first + r], part + r * tile_sums<NT>);
    __syncthreads();
}
/* As put_sums() for R tiles, with ONCE tiles in part at the same time. Calls put(tile, row, o, sum) for n_row (at most
 * 8 NT) rows of x and rows o = 0 .. 15 of each tile. A larger ONCE needs fewer barriers and less code. */
template <int NT, int R, int ONCE, class F>
PI_FN void put_tiles(const float (&acc)[R][NT][4], float *part, int32_t n_row, const F &put)
{
    static_assert(R % ONCE == 0, "R is a multiple of ONCE");
    enum { TILE = tile_sums<NT>, ROW = ONCE * 16 };
#pragma unroll
    for (int first = 0; first < R; first += ONCE) {
        keep_tiles<NT, ONCE>(acc, first, part);
#pragma unroll 1
        for (int i = (int) threadIdx.x; i < n_row * ROW; i += THREADS) {
            const int r = i % ROW / 16, row = i / ROW, o = i % 16;
            put(first + r, row, o, sum_of_slices<NT>(part + r * TILE, row, o));
        }
    }
}

/* Ends a slice in kernels where one warp computes all slices: adds acc to total and clears acc. */
template <int NT> PI_FN void end_slice(float (&acc)[NT][4], float (&total)[NT][4])
{
#pragma unroll
    for (int i = 0; i < NT * 4; i++) {
        total[i / 4][i % 4] += acc[i / 4][i % 4];
        acc[i / 4][i % 4] = 0;
    }
}

/* As put_sums(), but from the totals of one warp that computed all slices. Writes y for min(n_row, 8 NT) rows of x and
 * min(n_out, 16) rows of W. */
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

/* As put_totals(), but adds to y: y = (y + result) * scale, rounded as in add_row() of input.cuh. */
template <int NT, class F>
PI_FN void add_totals(const float (&total)[NT][4], const F &result, float scale, float *y, int64_t ldy, int64_t n_row,
                      int64_t n_out)
{
    int lane = (int) threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < NT * 4; i++) {
        int row = 8 * (i / 4) + 2 * (lane % 4) + i % 2, o = lane / 4 + 8 * (i % 4 / 2);
        if (row >= n_row || o >= n_out) continue;
        float *to = y + row * ldy + o;
        *to = (*to + result(row, total[i / 4][i % 4])) * scale;
    }
}

/* ---------------------------------------------------------------------------------------------- matrices of floats */

/* Returns value i of a row of W in the file's layout, TYPE F32, F16 or BF16. */
template <int TYPE> PI_FN float value_at(const uint8_t *row, int64_t i)
{
    if (TYPE == PI__F32) return ((const float *) row)[i];
    uint16_t h = ((const uint16_t *) row)[i];
    return TYPE == PI__F16 ? ptx_of_half(h) : ptx_of_bf16(h);
}

/* Multiplies one row of W by n rows of x (at most FLOAT_ROWS), by one warp: y[r * ldy] = factor * dot(W row, x(r)).
 * x(r) returns a pointer to row r. Lane l sums columns l, l + 32, ...; then the lanes' sums are added. */
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
