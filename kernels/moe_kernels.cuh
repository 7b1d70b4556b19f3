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
#include "sum.cuh"

enum { FEW_WARPS = 16, ROUTE_WARPS = 8 };

/* ------------------------------------------------------------------------------------------------------------- routing */

/* One block: everything. */
__global__ void __launch_bounds__(FEW_WARPS * 32, 1) route_few(pi__k_routes a)
{
    ptx_take_turn();
    PI_SMEM(raw);
    route_all(a, raw);
}

/* Many rows, three launches. Routing: a block has 32 rows, a warp one, and leaves their marks. */
__global__ void __launch_bounds__(32 * 32, 1) route_rows(pi__k_routes a)
{
    ptx_take_turn();
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
    ptx_take_turn();
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
    ptx_take_turn();
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
    ptx_take_turn();
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
    ptx_take_turn();
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

/* A block a pair: the biases of its expert are added to both halves of its column. */
__global__ void __launch_bounds__(THREADS) add_biases(pi__k_routes r, float *h, const float *bias, const float *bias2, int64_t n)
{
    ptx_take_turn();
    float *at = h + (int64_t) r.column[blockIdx.x] * 2 * n;
    const int64_t from = (int64_t) r.id[blockIdx.x] * n;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) at[i] += bias[from + i], at[n + i] += bias2[from + i];
}

/* Some columns of a row. */
__global__ void __launch_bounds__(THREADS) add_experts(pi__k_sum s)
{
    ptx_take_turn();
    sum_row(s, blockIdx.x, {blockIdx.y, gridDim.y});
}

#endif
