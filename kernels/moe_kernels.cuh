/* Mixture of experts: which experts a row goes to, and the products of each expert with the rows that come to it.
 *
 * A pair is a row and one of its experts. Pairs are sorted by expert and lie in that order, those of an expert by row:
 * column j of the products.
 *
 *     rows      r0      r1      r2            prepared once each
 *     experts   4 1     1 7     1 4           by rank
 *     columns   [e1: r0 r1 r2] [e4: r0 r2] [e7: r1]
 *     tiles     columns of one expert: up to 8, up to 32, or up to 64
 *
 * Sorting is counting: rows mark their experts, 32 rows in a word an expert, so that a pair's column is the number of marks
 * of experts before its own, and of its own before its row.
 *
 * How many columns an expert has is known to the device alone. Grids are of the worst case's size, and blocks without a
 * tile end at once: the host never waits, and a step can be captured in a graph. Each size of tile has a kernel of its
 * own: with few registers where an expert has few columns, with shared memory where it has many (moe_many_kernels.cuh). In
 * 16-bit floats all tiles are one launch (moe_w16_kernels.cuh).
 * In which tile a column is, or where that is in its list (which the device fills in any order), changes no bit of it:
 * sums are linear.cuh's, and a row's pairs are added up by rank. */
#ifndef PI_MOE_KERNELS_CUH
#define PI_MOE_KERNELS_CUH

#include "moe.cuh"
#include "route.cuh"

enum { FEW_WARPS = 16, ROUTE_WARPS = 8 };

/* ------------------------------------------------------------------------------------------------------------- routing */

/* The tiles of expert e, whose n columns begin with `first`. */
PI_FN void make_tiles(const pi__k_routes &a, int32_t e, int32_t first, int32_t n)
{
    int32_t left = n % MANY, many = n / MANY + (left > SOME), list = left > FEW;
    if (left && left <= SOME) {
        pi__k_tile *tile = list ? a.tile[1] : a.tile[0];
        tile[atomicAdd(&a.n_tile[list], 1)] = {e, first + many * MANY, left};
    }
    int32_t at = many ? atomicAdd(&a.n_tile[2], many) : 0;
    for (int32_t i = 0; i < many; i++) a.tile[2][at + i] = {e, first + i * MANY, min((int32_t) MANY, n - i * MANY)};
}

/* carry plus the v of all threads before this one, and that of all is carry then. sums: [32], not in use any more when it
 * returns. */
PI_FN int32_t sum_before(int32_t v, int32_t &carry, int32_t *sums)
{
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, n_warp = (int) blockDim.x / 32;
    int32_t sum = v, before = carry;
    for (int o = 1; o < 32; o *= 2) {
        int32_t up = __shfl_up_sync(PI_FULL, sum, (unsigned) o);
        if (lane >= o) sum += up;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    for (int i = 0; i < n_warp; i++) {
        if (i == warp) before = carry;
        carry += sums[i];
    }
    __syncthreads();
    return before + sum - v;
}

/* Marks row r (of 32) at its experts, by a warp. */
PI_FN void mark(const pi__k_routes &a, int64_t row, int r, uint32_t *marks)
{
    for (int32_t k = (int32_t) threadIdx.x % 32; k < a.n_used; k += 32) atomicOr(&marks[a.id[row * a.n_used + k]], 1u << r);
}

/* The columns of a row's pairs, by a warp; first: of each expert's columns with rows of these 32. */
PI_FN void sort_row(const pi__k_routes &a, int64_t row, int r, const uint32_t *marks, const int32_t *first)
{
    for (int32_t k = (int32_t) threadIdx.x % 32; k < a.n_used; k += 32) {
        int32_t e = a.id[row * a.n_used + k], column = first[e] + __popc(marks[e] & ((1u << r) - 1));
        a.column[row * a.n_used + k] = column;
        a.row[column] = (int32_t) row;
    }
}

/* One block: everything. Shared memory: sums, marks, the first column of each expert. */
__global__ void __launch_bounds__(FEW_WARPS * 32, 1) route_few(pi__k_routes a)
{
    PI_SMEM(raw);
    int32_t *sums = (int32_t *) raw, *first = sums + 32, carry = 0, e = (int32_t) threadIdx.x;
    uint32_t *marks = (uint32_t *) (first + a.n_expert);
    if (e < 3) a.n_tile[e] = 0;
    for (int32_t i = e; i < a.n_expert; i += FEW_WARPS * 32) marks[i] = 0;
    __syncthreads();
    for (int32_t r = e / 32; r < a.n_rows; r += FEW_WARPS) {
        route_row(a, r);
        __syncwarp();
        mark(a, r, r, marks);
    }
    __syncthreads();
    for (int32_t e0 = 0; e0 < a.n_expert; e0 += FEW_WARPS * 32) {
        int32_t n = e0 + e < a.n_expert ? __popc(marks[e0 + e]) : 0, at = sum_before(n, carry, sums);
        if (n) first[e0 + e] = at, make_tiles(a, e0 + e, at, n);
    }
    __syncthreads();
    for (int32_t r = e / 32; r < a.n_rows; r += FEW_WARPS) sort_row(a, r, r, marks, first);
}

/* Many rows, three launches. Routing: a block has 32 rows, a warp one, and leaves their marks. */
__global__ void __launch_bounds__(32 * 32, 1) route_rows(pi__k_routes a)
{
    PI_SMEM(raw);
    uint32_t *marks = (uint32_t *) raw;
    int32_t r = (int32_t) threadIdx.x / 32;
    int64_t row = (int64_t) blockIdx.x * 32 + r;
    if (blockIdx.x == 0 && threadIdx.x < 3) a.n_tile[threadIdx.x] = 0;
    for (int32_t i = (int32_t) threadIdx.x; i < a.n_expert; i += 32 * 32) marks[i] = 0;
    __syncthreads();
    if (row < a.n_rows) {
        route_row(a, row);
        __syncwarp();
        mark(a, row, r, marks);
    }
    __syncthreads();
    uint32_t *to = a.marks + (int64_t) blockIdx.x * a.n_expert;
    for (int32_t i = (int32_t) threadIdx.x; i < a.n_expert; i += 32 * 32) to[i] = marks[i];
}

/* Counting: one block, a thread an expert. The number of its marks; after the sum over experts before it, the first column
 * of each 32 rows, and its tiles. */
__global__ void __launch_bounds__(32 * 32, 1) count_marks(pi__k_routes a)
{
    PI_SMEM(raw);
    int32_t *first = a.first, n_group = (a.n_rows + 31) / 32, carry = 0;
    for (int32_t e0 = 0; e0 < a.n_expert; e0 += 32 * 32) {
        int32_t e = e0 + (int32_t) threadIdx.x, n = 0;
        bool there = e < a.n_expert;
#pragma unroll 8
        for (int32_t g = 0; there && g < n_group; g++) n += __popc(a.marks[(int64_t) g * a.n_expert + e]);
        int32_t at = sum_before(n, carry, (int32_t *) raw);
        if (!n) continue;
        make_tiles(a, e, at, n);
#pragma unroll 8
        for (int32_t g = 0; g < n_group; g++) {
            int64_t i = (int64_t) g * a.n_expert + e;
            first[i] = at;
            at += __popc(a.marks[i]);
        }
    }
}

__global__ void __launch_bounds__(ROUTE_WARPS * 32) sort_pairs(pi__k_routes a)
{
    int64_t row = (int64_t) blockIdx.x * ROUTE_WARPS + threadIdx.x / 32, at = row / 32 * a.n_expert;
    if (row < a.n_rows) sort_row(a, row, (int) (row % 32), a.marks + at, a.first + at);
}

/* ------------------------------------------------------------------------------------------------------------ products */

/* Prepared rows from anywhere: each lane knows where the row is whose words it holds, and the two whose metas. */
template <int NT> struct gathered_rows {
    const uint4 *words;
    const block_meta *metas;
    uint32_t at[NT], meta_at[NT][2]; /* from words, from metas, of block 0 */

    __device__ __forceinline__ uint4 codes(int g, int64_t b) const { return words[at[g] + (size_t) b * 32]; }
    __device__ __forceinline__ const block_meta *meta(int g, int64_t b, int i) const
    {
        return metas + meta_at[g][i] + (size_t) b * 8;
    }
};

template <int NT> PI_FN gathered_rows<NT> gather(const grouped &p, const pi__k_tile &t, int64_t n_block)
{
    int lane = (int) threadIdx.x % 32;
    gathered_rows<NT> x = {p.codes, p.meta, {}, {}};
#pragma unroll
    for (int g = 0; g < NT; g++) {
        int32_t r = row_of(p.a, t, 8 * g + lane / 4);
        x.at[g] = (uint32_t) (r / 8 * n_block * 32 + r % 8 * 4 + lane % 4);
        for (int i = 0; i < 2; i++) {
            r = row_of(p.a, t, 8 * g + 2 * (lane % 4) + i);
            x.meta_at[g][i] = (uint32_t) (r / 8 * n_block * 8 + r % 8);
        }
    }
    return x;
}

/* A block of threads: 16 rows of an expert's matrix times the columns of a tile. */
template <int TYPE, int NT> __global__ void __launch_bounds__(THREADS, 2) experts(grouped p)
{
    PI_SMEM(raw);
    if ((int32_t) blockIdx.y >= *p.n_tile) return;
    const share own = share_of(p);
    const pi__cuda_shape &shape = p.a.w.shape;
    float acc[NT][4] = {};
    add_slice<TYPE>(shape, own.data + blockIdx.x * shape.tile_bytes, gather<NT>(p, own.t, shape.n_block), (own.t.n + 7) / 8,
                    raw, acc);
    put_sums(acc, (float *) raw, times(own.scale), own.y + blockIdx.x * 16, p.a.ldy, own.t.n, p.a.w.n_out - blockIdx.x * 16);
}

template <int TYPE> __global__ void __launch_bounds__(FLOAT_WARPS * 32) experts_floats(grouped p)
{
    int64_t w_row = (int64_t) blockIdx.x * FLOAT_WARPS + threadIdx.x / 32, n_in = p.a.w.n_in;
    if ((int32_t) blockIdx.y >= *p.n_tile || w_row >= p.a.w.n_out) return;
    const share own = share_of(p);
    for (int first = 0; first < own.t.n; first += FLOAT_ROWS) {
        const float *x[FLOAT_ROWS];
#pragma unroll
        for (int r = 0; r < FLOAT_ROWS; r++) x[r] = p.floats + row_of(p.a, own.t, first + r) * n_in;
        float_rows<TYPE>(own.data + (size_t) w_row * p.a.w.shape.tile_bytes, n_in, [&](int r) { return x[r]; },
                         min((int) FLOAT_ROWS, own.t.n - first), own.scale ? *own.scale : 1.0f,
                         own.y + first * p.a.ldy + w_row, p.a.ldy);
    }
}

/* A block: a row. Its experts' results, weighted, in the order of rank. */
__global__ void __launch_bounds__(THREADS) add_experts(pi__k_routes a, const float *x, int64_t n, float *y, int64_t ldy)
{
    const int32_t *column = a.column + (int64_t) blockIdx.x * a.n_used;
    const float *weight = a.weight + (int64_t) blockIdx.x * a.n_used;
    y += blockIdx.x * ldy;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        float sum = 0;
        for (int32_t k = 0; k < a.n_used; k++) sum = fmaf(weight[k], x[column[k] * n + i], sum);
        y[i] = sum;
    }
}

#endif
