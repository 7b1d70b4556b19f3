/* FP4 products of all experts in one launch: the sums of fp4.cuh over the tiles of columns of moe_kernels.cuh. A row of
 * x is quantized once and gathered by each expert that it is routed to. A column's results are bitwise independent of
 * the size of its tile.
 *
 * Only the device knows the number of tiles. The grid has one thread block per multiprocessor. Blocks take items
 * round-robin: an item is 128 rows of one of an expert's matrices times a tile's columns. Tiles with many columns come
 * first. The producer warp, which copies W and x, starts the next item while the consumer warps still multiply the
 * current one.
 *
 * fp4_experts writes y. In fp4_experts_glu an item is 64 rows of both gate and up. Its result is mid, act(gate x) * up
 * x, packed for the down projection (fp4_mid.cuh). */
#ifndef PI_MOE_FP4_KERNELS_CUH
#define PI_MOE_FP4_KERNELS_CUH

#include "fp4_mid.cuh"
#include "moe.cuh"

namespace moe {

/* Arguments of fp4_experts() and fp4_experts_glu(). */
struct fp4_grouped {
    pi__k_experts a;
    const pi__k_tile *tile[3]; /* tiles of each list; NULL = empty list */
    const int32_t *n_tile;     /* [3] length of each list, in device memory */
    const uint8_t *x;          /* packed rows of x */
    /* factors: of the rows. n_step: steps of the columns of W (fp4.cuh). */
    const float *factors;
    int32_t n_step;
    float *mid_factors;        /* fp4_experts_glu: factors of the columns of a.mid, stored after them */
    int32_t mid_chunks, mid_steps; /* chunks (64 values) and steps per column of a.mid */
};

/* Kernel shapes for the tiles of the three lists (up to 8, 32, 64 columns). All lists use the ring of the largest
 * shape. */
template <int WAY> struct fp4_lists {
    using few = fp4_shape<WAY, 8, 1, 8>;
    using some = fp4_shape<WAY, 8, 4, 8>;
    using many = fp4_shape<WAY, 8, 8, 4>;
    static_assert((int) FEW == 8 * few::GROUPS && (int) SOME == 8 * some::GROUPS && (int) MANY == 8 * many::GROUPS,
                  "column counts match moe.cuh");
    using ring = typename many::ring;
};

/* An item, the unit of work that a block takes at a time: 128 rows of one of an expert's matrices (for mid: 64 rows of
 * both) times the columns of a tile. */
struct fp4_item {
    pi__k_tile t;
    int32_t list, tile;      /* list 0 .. 2 of the column tile; first tile of 16 rows of W, or chunk of mid */
    const uint8_t *data;     /* the expert's matrix */
    const float *scale;      /* factor of the matrix, or NULL = 1 */
    float *y;                /* results of the tile's first column */
};

/* Sets `item` to item i of the launch, for fp4_experts(). Returns false if there are fewer items. */
PI_FN bool fp4_item_at(const fp4_grouped &p, int32_t i, fp4_item &item)
{
    const int32_t rows = (int32_t) ((p.a.w.n_out + 127) / 128), each = rows * (p.a.data2 ? 2 : 1);
    /* Lists in the order 2, 1, 0: largest tiles first. */
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
    item.data = expert_matrix(p.a, item.t.expert, other);
    item.scale = scale ? scale + item.t.expert : nullptr;
    item.y = (other ? p.a.y2 : p.a.y) + item.t.first * p.a.ldy;
    return true;
}

/* Gathers the tile's columns of x to a stage. Lane l of the producer warp copies column l, and column l + 32 if the
 * tile has up to 64. */
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

/* Result functor: a sum times the factors of its column and of the matrix. */
struct fp4_column_result {
    const fp4_grouped &p;
    const fp4_item &item;
    int first;   /* the warp's first column */
    times whole; /* the matrix's factor */
    __device__ __forceinline__ float operator()(int c, float sum) const
    {
        return whole(c, sum * p.factors[row_of(p.a, item.t, first + c)]);
    }
};

/* Producer warp: copies the item's tiles of W and columns of x to the ring. */
template <class S, class RING> PI_FN void fp4_produce_item(const fp4_grouped &p, const fp4_item &item, RING &ring)
{
    const fp4_source<S> tiles(p.a.w.shape, item.data, item.tile, (int32_t) ((p.a.w.n_out + 15) / 16 - 1));
    fp4_produce<S>(ring, tiles, fp4_gathered<S>(p, item.t), (int32_t) p.a.w.shape.n_block, 0, SLICES);
}

/* Consumer warps: multiply the item's stages and write the results. */
template <int WAY, class S, class RING>
PI_FN void fp4_multiply_item(const fp4_grouped &p, const fp4_item &item, RING &ring)
{
    float total[S::RT][S::RG][4] = {};
    fp4_consume<WAY, S>(ring, (int32_t) p.a.w.shape.n_block, 0, SLICES,
                        [&](int, const float (&acc)[S::RT][S::RG][4]) { fp4_add(total, acc); });
    const int first = S::group() * 8;
#pragma unroll
    for (int r = 0; r < S::RT; r++) {
        const int64_t row = (int64_t) (item.tile + S::tile() + r) * 16;
        put_totals(total[r], fp4_column_result {p, item, first, times(item.scale)}, item.y + first * p.a.ldy + row,
                   p.a.ldy, item.t.n - first, p.a.w.n_out - row);
    }
}

/* y = W x for all experts. WAY: FP4_* format of W and x. Grid: one block per multiprocessor. */
template <int WAY> __global__ void __launch_bounds__(FP4_THREADS, 1) fp4_experts(fp4_grouped p)
{
    ptx_wait_dependency();
    if (!ptx_has_fp4()) return;
    PI_SMEM(raw);
    using L = fp4_lists<WAY>;
    typename L::ring ring(raw, L::many::STAGE);
    ring.open();
    fp4_item item;
    /* Warp FP4_WARPS is the producer. Warps after it only release their registers. Warps before it are consumers. */
    if (threadIdx.x / 32 >= FP4_WARPS) {
        ptx_fewer_registers<FP4_FEW_REGISTERS>();
        if (threadIdx.x / 32 > FP4_WARPS) return;
        for (int32_t i = (int32_t) blockIdx.x; fp4_item_at(p, i, item); i += (int32_t) gridDim.x) {
            if (item.list == 2) fp4_produce_item<typename L::many>(p, item, ring);
            else if (item.list == 1) fp4_produce_item<typename L::some>(p, item, ring);
            else fp4_produce_item<typename L::few>(p, item, ring);
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

/* ---------------------------------------------------------------------------------------------------------- to mid */

/* Shared memory of fp4_experts_glu(): the ring, then the buffer (MEETING bytes) where consumers exchange gate and up.
 * The ring has fewer stages than in fp4_experts(). */
template <int WAY> struct fp4_mid_lists : fp4_lists<WAY> {
    using many = typename fp4_lists<WAY>::many;
    static constexpr size_t MEETING = fp4_meeting<many>::BYTES;
    static constexpr int STAGES = (int) (((99 << 10) - 128 - MEETING) / many::STAGE);
    static_assert(STAGES >= 2, "one stage is filled while another is used");
    using ring = fp4_ring<STAGES>;
    static constexpr size_t MEET_AT = ring::bytes(many::STAGE), BYTES = MEET_AT + MEETING;
};

/* Sets `item` to item i of the launch, for fp4_experts_glu(): a tile of columns, and in item.tile a chunk of mid.
 * Returns false if there are fewer items. */
PI_FN bool fp4_chunk_at(const fp4_grouped &p, int32_t i, fp4_item &item)
{
    for (item.list = 2; item.list >= 0; item.list--) {
        const int32_t n = p.tile[item.list] ? p.n_tile[item.list] * p.mid_chunks : 0;
        if (i < n) break;
        i -= n;
    }
    if (item.list < 0) return false;
    item.t = p.tile[item.list][i / p.mid_chunks];
    item.tile = i % p.mid_chunks;
    return true;
}

/* Producer warp: copies the chunk's rows of gate and up, and the columns of x. */
template <class S, class RING> PI_FN void fp4_produce_item_both(const fp4_grouped &p, const fp4_item &item, RING &ring)
{
    const uint8_t *gate = expert_matrix(p.a, item.t.expert, false), *up = expert_matrix(p.a, item.t.expert, true);
    fp4_produce<S>(ring, fp4_both<S>(p.a.w.shape, gate, up, item.tile, p.a.w.n_out),
                   fp4_gathered<S>(p, item.t), (int32_t) p.a.w.shape.n_block, 0, SLICES);
}

/* Consumer warps: multiply gate and up, exchange their sums in shared memory (meet), and write the packed chunk of
 * mid. */
template <int WAY, class S, class RING>
PI_FN void fp4_item_to_mid(const fp4_grouped &p, const fp4_item &item, RING &ring, float *meet)
{
    const pi__k_tile &t = item.t;
    float total[S::RT][S::RG][4] = {};
    fp4_consume<WAY, S>(ring, (int32_t) p.a.w.shape.n_block, 0, SLICES,
                        [&](int, const float (&acc)[S::RT][S::RG][4]) { fp4_add(total, acc); });
    const times gate(p.a.w.scale ? p.a.w.scale + t.expert : nullptr), up(p.a.scale2 ? p.a.scale2 + t.expert : nullptr);
    /* all consumers have read the previous item from `meet`; the producer warp does not take part */
    ptx_sync_first<FP4_WARPS * 32>();
    fp4_exchange<S>(total, [&](int which, int c, float sum) {
        sum *= p.factors[row_of(p.a, t, c)];
        return which ? up(c, sum) : gate(c, sum);
    }, t.n, meet);
    ptx_sync_first<FP4_WARPS * 32>();
    fp4_put_chunk<WAY, S>(meet, p.a.act, p.a.limit, p.a.w.n_out - (int64_t) item.tile * 64, (uint8_t *) p.a.mid,
                          p.mid_chunks, p.mid_steps, item.tile, t.first, t.n);
    if (!fp4_way<WAY>::NV && item.tile == 0 && (int32_t) threadIdx.x < t.n)
        p.mid_factors[t.first + (int32_t) threadIdx.x] = 1.0f;
}

/* Computes mid from gate and up for all experts. n_column: number of columns of mid; for NVFP4 the last blocks then
 * convert its scales (fp4_end_rows()). n_column 0 = a separate launch converts them. */
template <int WAY> __global__ void __launch_bounds__(FP4_THREADS, 1) fp4_experts_glu(fp4_grouped p, int32_t n_column)
{
    ptx_wait_dependency();
    if (!ptx_has_fp4()) return;
    PI_SMEM(raw);
    using L = fp4_mid_lists<WAY>;
    typename L::ring ring(raw, L::many::STAGE);
    ring.open();
    fp4_item item;
    if (threadIdx.x / 32 >= FP4_WARPS) {
        ptx_fewer_registers<FP4_FEW_REGISTERS>();
        if (threadIdx.x / 32 > FP4_WARPS) return;
        for (int32_t i = (int32_t) blockIdx.x; fp4_chunk_at(p, i, item); i += (int32_t) gridDim.x) {
            if (item.list == 2) fp4_produce_item_both<typename L::many>(p, item, ring);
            else if (item.list == 1) fp4_produce_item_both<typename L::some>(p, item, ring);
            else fp4_produce_item_both<typename L::few>(p, item, ring);
        }
        return;
    }
    ptx_more_registers<FP4_MANY_REGISTERS>();
    float *meet = (float *) (raw + L::MEET_AT);
    for (int32_t i = (int32_t) blockIdx.x; fp4_chunk_at(p, i, item); i += (int32_t) gridDim.x) {
        if (item.list == 2) fp4_item_to_mid<WAY, typename L::many>(p, item, ring, meet);
        else if (item.list == 1) fp4_item_to_mid<WAY, typename L::some>(p, item, ring, meet);
        else fp4_item_to_mid<WAY, typename L::few>(p, item, ring, meet);
    }
    if (fp4_way<WAY>::NV && n_column)
        fp4_end_rows((uint8_t *) p.a.mid, p.mid_factors, n_column, p.mid_steps, p.a.arrived, p.a.waits, raw);
}

} /* namespace moe */

#endif
