/* Mixture of experts: routing, and the products of each expert with the rows routed to it.
 *
 * A pair is a row and one of its experts. Pairs are sorted by expert, then by row. Column j of the products is the j-th
 * pair in this order. A tile is up to 64 adjacent columns of one expert:
 *
 *     rows      r0      r1      r2            packed once each
 *     experts   4 1     1 7     1 4           by rank
 *     columns   [e1: r0 r1 r2] [e4: r0 r2] [e7: r1]
 *     tiles     columns of one expert: up to 8, up to 32, or up to 64
 *
 * Kernels: route_few, or route_rows, count_marks and sort_pairs, route the rows and list the tiles. experts and
 * experts_floats multiply. add_biases and add_experts add biases, and sum up the results of a row.
 *
 * Only the device knows the number of columns of an expert. Grids have the size of the worst case, and blocks without a
 * tile exit immediately. The host never waits, so a step can be captured in a graph. Each size of tile has its own
 * kernel. With few columns it uses few registers; with many it uses shared memory (moe_many_kernels.cuh). 16-bit
 * products use one launch for all tiles (moe_w16_kernels.cuh). Results are bitwise independent of the tile of a column
 * and of the order of tiles in a list, which is the order of experts. Sums are as in linear.cuh, and a row's
 * pairs are added by rank. */
#ifndef PI_MOE_KERNELS_CUH
#define PI_MOE_KERNELS_CUH

#include "moe.cuh"
#include "route.cuh"
#include "sum.cuh"

namespace moe {

enum { FEW_WARPS = 16, ROUTE_WARPS = 8 };

/* --------------------------------------------------------------------------------------------------------- routing */

/* Routes up to 32 rows, sorts their pairs and lists the tiles, in one block (route_all() of route.cuh). */
__global__ void __launch_bounds__(FEW_WARPS * 32, 1) route_few(pi__k_routes a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    route_all(a, raw);
}

/* Routes rows, for large row counts: the first of three launches. A block has 32 rows (a group), one per warp. It
 * writes the group's marks to a.marks: a word for each expert, with one bit per row. A pair's column is the number of
 * marks of smaller experts, plus its expert's marks in smaller rows. */
__global__ void __launch_bounds__(32 * 32, 1) route_rows(pi__k_routes a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    uint32_t *marks = (uint32_t *) raw;
    int32_t r = (int32_t) threadIdx.x / 32;
    int64_t row = (int64_t) blockIdx.x * 32 + r;
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

/* Second of three launches: counts marks, in one block with a thread per expert. After the prefix sum over experts,
 * each thread lists its expert's tiles. It also writes to a.first, for each group of 32 rows, the column of the
 * expert's first pair in that group. */
__global__ void __launch_bounds__(32 * 32, 1) count_marks(pi__k_routes a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    int32_t *first = a.first, n_group = (a.n_rows + 31) / 32;
    route_counts all = {};
    for (int32_t e0 = 0; e0 < a.n_expert; e0 += 32 * 32) {
        int32_t e = e0 + (int32_t) threadIdx.x, n = 0;
        bool there = e < a.n_expert;
#pragma unroll 8
        for (int32_t g = 0; there && g < n_group; g++) n += __popc(a.marks[(int64_t) g * a.n_expert + e]);
        int32_t at = list_tiles(a, e, n, all, (route_counts *) raw);
        if (!n) continue;
#pragma unroll 8
        for (int32_t g = 0; g < n_group; g++) {
            int64_t i = (int64_t) g * a.n_expert + e;
            first[i] = at;
            at += __popc(a.marks[i]);
        }
    }
    put_lengths(a, all);
}

/* Third of three launches: computes the columns of all pairs. Grid: ROUTE_WARPS rows per block, a warp per row. */
__global__ void __launch_bounds__(ROUTE_WARPS * 32) sort_pairs(pi__k_routes a)
{
    ptx_wait_dependency();
    int64_t row = (int64_t) blockIdx.x * ROUTE_WARPS + threadIdx.x / 32, at = row / 32 * a.n_expert;
    if (row < a.n_rows) sort_row(a, row, (int) (row % 32), a.marks + at, a.first + at);
}

/* -------------------------------------------------------------------------------------------------------- products */

/* The packed rows of a tile's columns, as argument x of add_slice(). Each lane has, per group of 8 columns, the offsets
 * of three rows: one for its words of B, two for their metas. */
template <int NT> struct gathered_rows {
    const uint4 *words;
    const block_meta *metas;
    uint32_t at[NT], meta_at[NT][2]; /* offsets in words and in metas, at block 0 */

    __device__ __forceinline__ uint4 codes(int g, int64_t b) const { return words[at[g] + (size_t) b * 32]; }
    __device__ __forceinline__ const block_meta *meta(int g, int64_t b, int i) const
    {
        return metas + meta_at[g][i] + (size_t) b * 8;
    }
};

/* Returns the rows of the columns of tile t. n_block: blocks of 32 columns per row. */
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

/* Multiplies 16 rows of the expert's matrix by the columns of a tile (up to 8 NT), and writes the results. Grid: x = 16
 * rows of W, y = tile, z = matrix. */
template <int TYPE, int NT> __global__ void __launch_bounds__(THREADS, 2) experts(grouped p)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    if ((int32_t) blockIdx.y >= *p.n_tile) return;
    const share own = share_of(p);
    const pi__cuda_shape &shape = p.a.w.shape;
    float acc[NT][4] = {};
    add_slice<TYPE>(shape, own.data + blockIdx.x * shape.tile_bytes, gather<NT>(p, own.t, shape.n_block),
                    (own.t.n + 7) / 8, raw, acc);
    put_sums(acc, (float *) raw, times(own.scale), own.y + blockIdx.x * 16, p.a.ldy, own.t.n,
             p.a.w.n_out - blockIdx.x * 16);
}

/* As experts(), for F32, F16 and BF16 matrices: a warp multiplies one row of W by the columns of a tile. Grid: x =
 * FLOAT_WARPS rows of W, y = tile, z = matrix. */
template <int TYPE> __global__ void __launch_bounds__(FLOAT_WARPS * 32) experts_floats(grouped p)
{
    ptx_wait_dependency();
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

/* Adds the biases of a pair's expert to its column of h, [columns][2 n]: `bias` to the first n values, `bias2` to the
 * others. Grid: one block per pair. */
__global__ void __launch_bounds__(THREADS)
    add_biases(pi__k_routes r, float *h, const float *bias, const float *bias2, int64_t n)
{
    ptx_wait_dependency();
    float *at = h + (int64_t) r.column[blockIdx.x] * 2 * n;
    const int64_t from = (int64_t) r.id[blockIdx.x] * n;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) at[i] += bias[from + i], at[n + i] += bias2[from + i];
}

/* Sums the expert outputs of a row (sum_row()). Grid: x = row, y = part of the row's values. */
__global__ void __launch_bounds__(THREADS) add_experts(pi__k_sum s)
{
    ptx_wait_dependency();
    sum_row(s, blockIdx.x, {blockIdx.y, gridDim.y});
}

} /* namespace moe */

#endif
