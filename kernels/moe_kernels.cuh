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
 * How many columns an expert has is known to the device alone. Grids are of the worst case's size, and blocks without a
 * tile end at once: the host never waits, and a step can be captured in a graph. Each size of tile has a kernel of its
 * own: with few registers where an expert has few columns, with shared memory where it has many (moe_many_kernels.cuh).
 * In which tile a column is, or where that is in its list (which the device fills in any order), changes no bit of it:
 * sums are linear.cuh's, and a row's pairs are added up by rank. */
#ifndef PI_MOE_KERNELS_CUH
#define PI_MOE_KERNELS_CUH

#include "moe.cuh"
#include "route.cuh"

enum { FEW_ROWS = 32 /* routed and sorted in one launch */, FEW_WARPS = 16, ROUTE_WARPS = 8 };

/* ------------------------------------------------------------------------------------------------------------- routing */

/* A warp: the columns of expert e, and its tiles. All rows are routed. */
PI_FN void sort_expert(const pi__k_routes &a, int32_t e)
{
    int32_t n_pair = a.n_rows * a.n_used, before = 0, n = 0;
    int lane = (int) threadIdx.x % 32;
#pragma unroll 1 /* more of it spills registers in route_few */
    for (int32_t p = lane; p < n_pair; p += 32) {
        before += a.id[p] < e;
        n += a.id[p] == e;
    }
    before = warp_sum_int(before);
    n = warp_sum_int(n);
    if (!n) return;
    int32_t left = n % MANY, many = n / MANY + (left > SOME), list = left > FEW, rest = left && left <= SOME, at[2] = {0, 0};
    if (lane == 0) {
        if (rest) at[0] = atomicAdd(&a.n_tile[list], 1);
        if (many) at[1] = atomicAdd(&a.n_tile[2], many);
    }
    at[1] = __shfl_sync(PI_FULL, at[1], 0);
    for (int32_t i = lane; i < many; i += 32) {
        a.tile[2][at[1] + i] = {e, before + i * MANY, min((int32_t) MANY, n - i * MANY)};
    }
    pi__k_tile *tile = list ? a.tile[1] : a.tile[0];
    if (lane == 0 && rest) tile[at[0]] = {e, before + many * MANY, left};
#pragma unroll 1 /* more of it spills registers in route_few */
    for (int32_t p0 = 0; p0 < n_pair; p0 += 32) {
        int32_t p = p0 + lane;
        bool here = p < n_pair && a.id[p] == e;
        uint32_t which = __ballot_sync(PI_FULL, here);
        if (here) {
            int32_t column = before + __popc(which & ((1u << lane) - 1));
            a.column[p] = column;
            a.row[column] = p / a.n_used;
        }
        before += __popc(which);
    }
}

/* One block: everything. */
__global__ void __launch_bounds__(FEW_WARPS * 32, 1) route_few(pi__k_routes a)
{
    int32_t warp = (int32_t) threadIdx.x / 32, n_warp = (int32_t) blockDim.x / 32;
    if (threadIdx.x < 3) a.n_tile[threadIdx.x] = 0;
    for (int32_t r = warp; r < a.n_rows; r += n_warp) route_row(a, r);
    __syncthreads();
    for (int32_t e = warp; e < a.n_expert; e += n_warp) sort_expert(a, e);
}

__global__ void __launch_bounds__(ROUTE_WARPS * 32) route_rows(pi__k_routes a)
{
    int64_t r = (int64_t) blockIdx.x * ROUTE_WARPS + threadIdx.x / 32;
    if (blockIdx.x == 0 && threadIdx.x < 3) a.n_tile[threadIdx.x] = 0;
    if (r < a.n_rows) route_row(a, r);
}

__global__ void __launch_bounds__(ROUTE_WARPS * 32) sort_pairs(pi__k_routes a)
{
    int32_t e = (int32_t) (blockIdx.x * ROUTE_WARPS + threadIdx.x / 32);
    if (e < a.n_expert) sort_expert(a, e);
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
