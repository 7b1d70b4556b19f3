/* Products of experts in FP4: fp4.cuh's sums over moe_kernels.cuh's tiles of columns, one launch for all of them. A row is
 * rounded once and gathered by every expert it goes to; which tile a column is in changes no bit of it.
 *
 * How many tiles there are is known to the device alone. A device has as many blocks of threads as multiprocessors, which
 * take items by turns: 128 rows of one of an expert's matrices times a tile's columns. Those of many columns come first. The
 * warp that brings W and x is on to the next item while the others still multiply the last. */
#ifndef PI_MOE_FP4_KERNELS_CUH
#define PI_MOE_FP4_KERNELS_CUH

#include "fp4.cuh"
#include "moe.cuh"

struct fp4_grouped {
    pi__k_experts a;
    const pi__k_tile *tile[3]; /* NULL: none */
    const int32_t *n_tile;     /* of each list */
    const uint8_t *x;          /* prepared rows */
    const float *factors;
    int32_t n_step;
};

/* Shapes of the lists' tiles; all use the stages of the largest. */
template <int WAY> struct fp4_lists {
    using few = fp4_shape<WAY, 8, 1, 8>;
    using some = fp4_shape<WAY, 8, 4, 8>;
    using many = fp4_shape<WAY, 8, 8, 4>;
    static_assert((int) FEW == 8 * few::GROUPS && (int) SOME == 8 * some::GROUPS && (int) MANY == 8 * many::GROUPS, "of moe.cuh");
    using ring = typename many::ring;
};

/* A block's turn. */
struct fp4_item {
    pi__k_tile t;
    int32_t list, tile;      /* of W, the first one */
    const uint8_t *data;     /* the matrix */
    const float *scale;      /* its factor, or NULL */
    float *y;                /* of the tile's first column */
};

/* Item i; false: there are not so many. */
PI_FN bool fp4_item_at(const fp4_grouped &p, int32_t i, fp4_item &item)
{
    const int32_t rows = (int32_t) ((p.a.w.n_out + 127) / 128), each = rows * (p.a.data2 ? 2 : 1);
    for (item.list = 2; item.list >= 0; item.list--) {
        const int32_t n = p.tile[item.list] ? p.n_tile[item.list] * each : 0;
        if (i < n) break;
        i -= n;
    }
    if (item.list < 0) return false;
    item.t = p.tile[item.list][i / each];
    item.tile = i % rows * 8;
    const bool other = i % each >= rows;
    const float *scale = other ? p.a.scale2 : p.a.w.scale;
    item.data = (other ? p.a.data2 : p.a.w.data) + (size_t) item.t.expert * p.a.w.shape.mat_bytes;
    item.scale = scale ? scale + item.t.expert : nullptr;
    item.y = (other ? p.a.y2 : p.a.y) + item.t.first * p.a.ldy;
    return true;
}

/* Columns that go to the stages: a lane has one of 32. */
template <class S> struct fp4_gathered {
    using W = typename S::W;
    static constexpr int COLUMNS = S::GROUPS * 8, EACH = (COLUMNS + 31) / 32;
    const uint8_t *from[EACH];
    uint32_t to[EACH];

    __device__ __forceinline__ fp4_gathered(const fp4_grouped &p, const pi__k_tile &t)
    {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const uint32_t c = threadIdx.x % 32 + 32 * (uint32_t) i, r = (uint32_t) row_of(p.a, t, (int) c);
            from[i] = p.x + (size_t) (r / 8) * (size_t) p.n_step * W::GROUP + fp4_row_at<S::WAY>(r % 8);
            to[i] = S::X_AT + c / 8 * W::GROUP_STRIDE + fp4_row_at<S::WAY>(c % 8);
            if (c >= COLUMNS) from[i] = nullptr;
        }
    }
    __device__ __forceinline__ void fill(uint32_t stage, uint32_t full, int32_t step) const
    {
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (from[i]) ptx_bulk_copy(stage + to[i], from[i] + (size_t) step * W::GROUP, W::PIECE, full);
    }
};

/* Epilogue: the factors of a column's sum. */
struct fp4_column_result {
    const fp4_grouped &p;
    const fp4_item &item;
    int first;   /* column */
    times whole; /* of the matrix */
    __device__ __forceinline__ float operator()(int c, float sum) const
    {
        return whole(c, sum * p.factors[row_of(p.a, item.t, first + c)]);
    }
};

template <class S, class RING> PI_FN void fp4_bring(const fp4_grouped &p, const fp4_item &item, RING &ring)
{
    const fp4_source<S> tiles(p.a.w.shape, item.data, item.tile, (int32_t) ((p.a.w.n_out + 15) / 16 - 1));
    fp4_produce<S>(ring, tiles, fp4_gathered<S>(p, item.t), (int32_t) p.a.w.shape.n_block, 0, SLICES);
}

template <int WAY, class S, class RING> PI_FN void fp4_multiply_item(const fp4_grouped &p, const fp4_item &item, RING &ring)
{
    float total[S::RT][S::RG][4] = {};
    fp4_consume<WAY, S>(ring, (int32_t) p.a.w.shape.n_block, 0, SLICES,
                        [&](int, const float (&acc)[S::RT][S::RG][4]) { fp4_add(total, acc); });
    const int first = S::group() * 8;
#pragma unroll
    for (int r = 0; r < S::RT; r++) {
        const int64_t row = (int64_t) (item.tile + S::tile() + r) * 16;
        put_totals(total[r], fp4_column_result {p, item, first, times(item.scale)}, item.y + first * p.a.ldy + row, p.a.ldy,
                   item.t.n - first, p.a.w.n_out - row);
    }
}

template <int WAY> __global__ void __launch_bounds__(FP4_THREADS, 1) fp4_experts(fp4_grouped p)
{
    ptx_take_turn();
    if (!ptx_has_fp4()) return;
    PI_SMEM(raw);
    using L = fp4_lists<WAY>;
    typename L::ring ring(raw, L::many::STAGE);
    ring.open();
    fp4_item item;
    if (threadIdx.x / 32 >= FP4_WARPS) {
        ptx_fewer_registers<FP4_FEW_REGISTERS>();
        if (threadIdx.x / 32 > FP4_WARPS) return;
        for (int32_t i = (int32_t) blockIdx.x; fp4_item_at(p, i, item); i += (int32_t) gridDim.x) {
            if (item.list == 2) fp4_bring<typename L::many>(p, item, ring);
            else if (item.list == 1) fp4_bring<typename L::some>(p, item, ring);
            else fp4_bring<typename L::few>(p, item, ring);
        }
        return;
    }
    ptx_more_registers<FP4_MANY_REGISTERS>();
    for (int32_t i = (int32_t) blockIdx.x; fp4_item_at(p, i, item); i += (int32_t) gridDim.x) {
        if (item.list == 2) fp4_multiply_item<WAY, typename L::many>(p, item, ring);
        else if (item.list == 1) fp4_multiply_item<WAY, typename L::some>(p, item, ring);
        else fp4_multiply_item<WAY, typename L::few>(p, item, ring);
    }
}

#endif
