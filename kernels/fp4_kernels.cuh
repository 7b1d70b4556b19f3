/* FP4 matrices W times x rounded to FP4 (W4A4) or to FP8 (W4A8) on block-scaled tensor cores (option fp4-mode). Layouts
 * and ORDER as in fp4.cuh, rounding as in fp4_rows.cuh: a row's result depends on that row alone. The kernels do
 * nothing on devices without FP4 tensor cores. fp4_prepare() packs x; then one of two kernels computes y
 * [n_rows][n_out] = W x:
 *
 *     fp4_few     up to 32 rows of x. A block of 8 warps computes 16 rows of W. Each warp has one slice and reads it
 *                 from global memory, one step ahead. It may have an epilogue
 *     fp4_tiles   many rows. A block computes up to 128 rows of W times up to 128 of x. One producer warp copies
 *                 operands for 8 multiplying warps (fp4_ring). With few tiles, the slices of a tile are distributed
 *                 over several blocks (split.cuh)
 *
 * fp4_glu_kernels.cuh has gate and up with packed output. */
#ifndef PI_FP4_KERNELS_CUH
#define PI_FP4_KERNELS_CUH

#include "split.cuh"

namespace fp4 {

/* --------------------------------------------------------------------------------------------------------- pack x */

/* Packs x. Grid: one block per row, up to the next multiple of 8 rows. X: pi__k_input; a template is compiled only in
 * the file that launches it. */
template <class X>
__global__ void __launch_bounds__(THREADS)
    fp4_prepare(X in, int32_t way, int32_t n_rows, int64_t n_in, uint8_t *prepared, float *factors)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    const int64_t row = blockIdx.x;
    const bool there = row < n_rows;
    float *scratch = (float *) raw, *largest = scratch + THREADS / 32;
    const input_row x = open_row(in, row, n_in, there, scratch);
    switch (way) {
    case FP4_NV: return fp4_put_row<FP4_NV>(x, row, n_in, there, {0, 1}, prepared, factors, largest);
    case FP4_MX: return fp4_put_row<FP4_MX>(x, row, n_in, there, {0, 1}, prepared, factors, largest);
    default: return fp4_put_row<FP4_MX8>(x, row, n_in, there, {0, 1}, prepared, factors, largest);
    }
}

/* ---------------------------------------------------------------------------------------------------- the product */

/* Arguments of fp4_few() and fp4_tiles(): several matrices of one type times the same x. */
struct fp4_products {
    pi__cuda_shape shape;  /* shape of all matrices, except mat_bytes */
    const uint8_t *x;      /* packed rows */
    const float *factors;  /* [n_rows] factors of the rows of x */
    int32_t n_rows, n_step;
    int32_t n;             /* number of matrices */
    struct {
        const uint8_t *data;
        const float *scale;
        float *y;
        int64_t ldy, n_out;
        /* index of the matrix's first block of threads (fp4_few: blockIdx.x; fp4_tiles: blockIdx.y) */
        uint32_t first;
        float add;         /* fp4_tiles: not 0: y = (y + W x) * add */
    } w[PI__K_MAX_LINEAR];
    pi__k_tail tail;       /* fp4_few: the epilogue */
    split_sums split;      /* fp4_tiles: sums of tiles that several blocks share */
};

/* Returns the index of the matrix that block `block` (blockIdx.x or .y) works on. */
PI_FN int fp4_which(const fp4_products &p, uint32_t block)
{
    int i = 0;
    while (i + 1 < p.n && block >= p.w[i + 1].first) i++;
    return i;
}

/* Multiplies the sum of a row of x by the factors of that row and of the matrix. */
struct fp4_result {
    const float *factors; /* [rows] factors of the rows */
    times whole;          /* factor of the matrix */
    __device__ __forceinline__ float operator()(int row, float sum) const { return whole(row, sum * factors[row]); }
};

/* fp4_few(): the lane's operand words of a step, loaded from global memory. */
template <int WAY, int NT> struct fp4_words {
    fp4_a<WAY> a;
    fp4_b<WAY> b[NT];
    fp4_scales s[NT];
};

/* fp4_few(): addresses of a warp's operands: codes and scales of a tile of W, and NT groups of 8 rows of x. load: loads
 * the step that begins at `chunk`. end: end of the slice, in chunks; step: index of the step in packed x. */
template <int WAY, int NT> struct fp4_reader {
    const uint8_t *codes, *side, *x[NT];
    int32_t n_block;

    __device__ __forceinline__ void load(int32_t chunk, int32_t end, int32_t step, fp4_words<WAY, NT> &w) const
    {
        const uint32_t lane = threadIdx.x % 32, n = (uint32_t) min(min(4, 2 * (end - chunk)), n_block - 2 * chunk);
        fp4_load_a<WAY>(codes + (size_t) chunk * 512, side + (size_t) chunk * 2 * fp4_way<WAY>::SIDE, lane, w.a, n);
#pragma unroll
        for (int g = 0; g < NT; g++) {
            const uint8_t *group = x[g] + (size_t) step * fp4_way<WAY>::GROUP;
            fp4_load_b<WAY>(group, lane, w.b[g]);
            w.s[g] = fp4_load_scales<WAY, 1>(group, lane, 0);
        }
    }
};

/* acc[g] = the warp's slice (slice = warp index) of a tile times group g of x. Loads one step ahead of the products. */
template <int WAY, int NT> PI_FN void fp4_slice(const fp4_reader<WAY, NT> &in, float (&acc)[NT][4])
{
    const int32_t n = (in.n_block + 1) / 2, slice = (int32_t) threadIdx.x / 32, end = n * (slice + 1) / SLICES;
    int32_t step = fp4_steps(n, slice), chunk = n * slice / SLICES;
    fp4_words<WAY, NT> now, next;
    if (chunk < end) in.load(chunk, end, step, now);
    for (; chunk < end; chunk += 2, step++, now = next) {
        if (chunk + 2 < end) in.load(chunk + 2, end, step + 1, next);
#pragma unroll
        for (int g = 0; g < NT; g++) {
            fp4_multiply<WAY, 0, 0>(now.a, now.b[g], now.s[g], acc[g]);
            fp4_multiply<WAY, 1, 0>(now.a, now.b[g], now.s[g], acc[g]);
        }
    }
}

/* y = W x for up to 8 NT rows of x. Grid: a block of 8 warps per 16 rows of a matrix, for all rows of x; a warp has one
 * slice. Shared: sums of the slices. */
template <int WAY, int NT> __global__ void __launch_bounds__(THREADS, 2) fp4_few(PI_CONSTANT fp4_products p)
{
    ptx_wait_dependency();
    if (!ptx_has_fp4()) return;
    PI_SMEM(raw);
    const auto &w = p.w[fp4_which(p, blockIdx.x)];
    const uint32_t tile = blockIdx.x - w.first;
    const uint8_t *codes = w.data + tile * p.shape.tile_bytes;
    fp4_reader<WAY, NT> in = {codes, codes + p.shape.side_at, {}, (int32_t) p.shape.n_block};
#pragma unroll
    for (int g = 0; g < NT; g++)
        in.x[g] = p.x + (size_t) min(g, (p.n_rows - 1) / 8) * (size_t) p.n_step * fp4_way<WAY>::GROUP;
    float acc[NT][4] = {};
    fp4_slice<WAY, NT>(in, acc);
    /* Add the slices, apply the factors, write y. */
    put_sums(acc, (float *) raw, fp4_result {p.factors, times(w.scale)}, w.y + (size_t) tile * 16, w.ldy, p.n_rows,
             w.n_out - (int64_t) tile * 16);
    if (p.tail.arrived) run_tail(p.tail, raw);
}

/* Source of x for the producer warp of fp4_tiles(): copies the block's groups into a stage. Lane 2 TILES + i copies
 * group i. The constructor gets the block's first group, and the last group, which replaces groups past the end. */
template <class S> struct fp4_group_source {
    using W = typename S::W;
    const uint8_t *from; /* the lane's source; NULL = the lane copies nothing */
    uint32_t to;

    __device__ __forceinline__ fp4_group_source(const uint8_t *x, int32_t n_step, int32_t group, int32_t last)
    {
        static_assert(2 * S::TILES + S::GROUPS <= 32, "one lane per copy");
        int32_t i = (int32_t) (threadIdx.x % 32) - 2 * S::TILES;
        from = i < 0 || i >= S::GROUPS ? nullptr : x + (size_t) min(group + i, last) * (size_t) n_step * W::GROUP;
        to = S::X_AT + (uint32_t) i * W::GROUP_STRIDE;
    }
    __device__ __forceinline__ void fill(uint32_t stage, uint32_t full, int32_t step) const
    {
        if (from) ptx_bulk_copy(stage + to, from + (size_t) step * W::GROUP, W::GROUP, full);
    }
};

/* The part of the results that a block of threads computes. */
struct fp4_where {
    int which;            /* index of the matrix */
    int32_t tile, group;  /* index of the first tile of the matrix; of the first group of x */
};
template <class S> PI_FN fp4_where fp4_where_of(const fp4_products &p)
{
    const int which = fp4_which(p, blockIdx.y);
    return {which, (int32_t) (blockIdx.y - p.w[which].first) * S::TILES, (int32_t) blockIdx.x * S::GROUPS};
}

/* Writes the warp's totals, times their factors, to y; if w.add is not 0: y = (y + total) * add. */
template <class S> PI_FN void fp4_put(const fp4_products &p, const fp4_where &at, const float (&total)[S::RT][S::RG][4])
{
    const auto &w = p.w[at.which];
    const int64_t first = (int64_t) (at.group + S::group()) * 8;
#pragma unroll
    for (int r = 0; r < S::RT; r++) {
        const int64_t row = (int64_t) (at.tile + S::tile() + r) * 16;
        const fp4_result result = {p.factors + first, times(w.scale)};
        float *y = w.y + first * w.ldy + row;
        if (w.add != 0) add_totals(total[r], result, w.add, y, w.ldy, p.n_rows - first, w.n_out - row);
        else put_totals(total[r], result, y, w.ldy, p.n_rows - first, w.n_out - row);
    }
}

/* y = W x for many rows of x. Grid: x = S::GROUPS groups of 8 rows of x; y = S::TILES tiles of a matrix; z = part of
 * the slices. Block: FP4_THREADS. Shared: the ring. */
template <int WAY, class S> __global__ void __launch_bounds__(FP4_THREADS, 1) fp4_tiles(fp4_products p)
{
    ptx_wait_dependency();
    if (!ptx_has_fp4()) return;
    PI_SMEM(raw);
    const fp4_where at = fp4_where_of<S>(p);
    const auto &w = p.w[at.which];
    const int32_t n_block = (int32_t) p.shape.n_block;
    const int k0 = split_first(), k1 = split_end();
    typename S::ring ring(raw, S::STAGE);
    ring.open();
    /* Producer warp; the other three warps of its group exit. */
    if (threadIdx.x / 32 >= FP4_WARPS) {
        ptx_fewer_registers<FP4_FEW_REGISTERS>();
        if (threadIdx.x / 32 > FP4_WARPS) return;
        const fp4_source<S> tiles(p.shape, w.data, at.tile, (int32_t) ((w.n_out + 15) / 16 - 1));
        const fp4_group_source<S> groups(p.x, p.n_step, at.group, (p.n_rows - 1) / 8);
        fp4_produce<S>(ring, tiles, groups, n_block, k0, k1);
        return;
    }
    /* Multiplying warps: sum the slices. The last block to finish a tile writes it. */
    ptx_more_registers<FP4_MANY_REGISTERS>();
    float total[S::RT][S::RG][4] = {};
    fp4_consume<WAY, S>(ring, n_block, k0, k1, [&](int k, const float (&acc)[S::RT][S::RG][4]) {
        split_end_slice(p.split, k, acc, total);
    });
    if (split_last(p.split, total, true, raw + S::ring::HEAD)) fp4_put<S>(p, at, total);
}

} /* namespace fp4 */

#endif
