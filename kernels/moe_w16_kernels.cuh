/* Products of experts with 16-bit weights and activations: the sums of w16.cuh over the tiles of moe_kernels.cuh.
 *
 * One launch multiplies all tiles. Its work is a list of items: a tile of columns times some rows of its expert's
 * matrix, the largest tiles first. The grid has the number of thread blocks that the device runs concurrently. Each
 * block has a contiguous part of the items. Loads of an item overlap the sums of the previous one.
 *
 *     tiles    [e4: 64 columns] [e4: 9] [e1: 3] [e7: 1]           only the device knows their number
 *     items    rows 0.. 64.. ..| 0.. 64.. ..| ..
 *     blocks   [0       ][1        ][2       ][3       ]
 *
 * Up to 32 rows in the batch (experts_w16_few): an item is 64 rows of W, and each warp has a slice of the columns, as
 * in w16_kernels.cuh. More rows (experts_w16_many): an item is 256 rows of W, 32 per warp, and each warp sums all
 * slices in order.
 *
 * With two matrices (gate and up), an item has the same rows of both, half as many of each. So a block has both results
 * of a value. It computes the input of the down projection from them (`mid`), and gate and up are never written to
 * memory. A block does not know the largest value of a row. So each block of 32 columns of mid has its own power of
 * two. The down projection multiplies the sum of a block by it before the sum is added to the slice:
 *
 *     mid: [groups of 8 columns][blocks of 32 values]{ words of B as in w16.cuh, [8] factor }
 *
 * Results are bitwise independent of the tile and thread block of a column. */
#ifndef PI_MOE_W16_KERNELS_CUH
#define PI_MOE_W16_KERNELS_CUH

#include "input.cuh"
#include "moe_w16.cuh"
#include "pipe.cuh"

namespace moe {

/* ------------------------------------------------------------------------------------------------------------- mid */

/* Returns the address of block b (32 values) in the group of column c of mid. n_block: blocks per column. */
PI_FN uint8_t *mid_block(uint8_t *mid, int32_t c, int64_t n_block, int64_t b)
{
    return mid + ((c / 8) * n_block + b) * MID_BLOCK;
}

/* Packs a block of 32 values of column c of mid, by 16 lanes. Lane o has values v0 = o and v1 = o + 16. there: false =
 * nothing is written. */
PI_FN void put_mid(uint8_t *block, int32_t c, int o, float v0, float v1, bool bf16, bool there)
{
    float most = fmaxf(abs_or_inf(v0), abs_or_inf(v1)), by;
    for (int k = 8; k; k >>= 1) most = fmaxf(most, __shfl_xor_sync(PI_FULL, most, k));
    const float factor = mid_factor(most, by);
    if (!there) return;
    ((uint32_t *) block)[w16_word_at((uint32_t) c % 8, (uint32_t) o)] = mid_word(v0, v1, by, bf16);
    if (o == 0) ((float *) (block + 512))[c % 8] = factor;
}

/* Packs mid from gate and up in memory, for launches that did not compute it. in: gate in x, up in x2, by column. Grid:
 * one block per column. */
__global__ void __launch_bounds__(THREADS) w16_mid(pi__k_input in, int64_t n_in, int32_t bf16, uint8_t *mid)
{
    ptx_wait_dependency();
    const int32_t c = (int32_t) blockIdx.x;
    const float *x = in.x + c * in.ldx, *x2 = in.x2 + c * in.ldx2;
    const int o = (int) threadIdx.x % 16;
    /* a warp packs two blocks per iteration */
    for (int64_t i = threadIdx.x / 32 * 2; i < n_in / 32; i += THREADS / 16) {
        const int64_t b = i + threadIdx.x % 32 / 16, at = min(b, n_in / 32 - 1) * 32 + o;
        put_mid(mid_block(mid, c, n_in / 32, b), c, o, gated_any(in.kind, x[at], x2[at], in.limit),
                gated_any(in.kind, x[at + 16], x2[at + 16], in.limit), bf16, b < n_in / 32);
    }
}

/* ------------------------------------------------------------------------------------------------ small row counts */

/* Packs the sums of gate (tiles 0, 1) and up (tiles 2, 3) of item i to mid, as block i.part of the item's columns.
 * part: shared memory of put_tiles(). Called by all threads. */
template <int TYPE, int NT, int ONCE>
PI_FN void few_to_mid(const w16_experts &p, const w16_item &i, const float (&acc)[FEW_TILES][NT][4], float *part)
{
    /* EACH: results per thread. Result `at` is column at / 16, value at % 16, as in put_sums(). */
    enum { EACH = (NT + 1) / 2, TILE = tile_sums<NT> };
    const expert_times<TYPE, false> gate(p, i.t, p.a.w.scale), up(p, i.t, p.a.scale2);
    float v[FEW_TILES][EACH];
/* Add the slices of all four tiles. */
#pragma unroll
    for (int first = 0; first < FEW_TILES; first += ONCE) {
        keep_tiles<NT, ONCE>(acc, first, part);
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int at = (int) threadIdx.x + k * THREADS;
#pragma unroll
            for (int r = 0; r < ONCE; r++)
                v[first + r][k] = at < NT * 128 ? sum_of_slices<NT>(part + r * TILE, at / 16, at % 16) : 0;
        }
    }
/* Activation and packing. */
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int at = (int) threadIdx.x + k * THREADS, c = at / 16;
        if (at >= NT * 128) break;
        float both[2];
        for (int h = 0; h < 2; h++) both[h] = gated(p.a.act, gate(c, v[h][k]), up(c, v[2 + h][k]), p.a.limit);
        const int32_t column = i.t.first + c;
        put_mid(mid_block((uint8_t *) p.a.mid, column, p.a.w.n_out / 32, i.part), column, at % 16, both[0], both[1],
                p.mid_bf16, c < i.t.n);
    }
}

template <int TYPE, int NT, bool MID>
__global__ void __launch_bounds__(THREADS, NT == 1 ? 2 : 1) experts_w16_few(w16_experts p)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    uint32_t first, end;
    items_of_block(p, first, end);
    if (first == end) return;
    float *part = (float *) raw;
    using S = expert_stream<TYPE, NT, MID>;
    const auto begin = [](const w16_item &) {};
    few_items<S, TYPE, NT, MID>(
        p, first, end, raw + S::SUMS, begin, [&](const w16_item &i, const float(&acc)[FEW_TILES][NT][4]) {
            if (!MID && p.a.mid) {
                few_to_mid<TYPE, NT, S::ONCE>(p, i, acc, part);
                return;
            }
            const int32_t half = p.a.data2 ? FEW_TILES / 2 : FEW_TILES;
            put_tiles<NT, FEW_TILES, S::ONCE>(acc, part, i.t.n, [&](int r, int c, int o, float sum) {
                const bool second = r >= half;
                const int32_t at = (i.part * half + r - (second ? half : 0)) * 16 + o;
                const expert_times<TYPE, MID> times(p, i.t, second ? p.a.scale2 : p.a.w.scale);
                if (at < p.a.w.n_out) results_of(p, i.t, second)[c * p.a.ldy + at] = times(c, sum);
            });
        });
}

/* ------------------------------------------------------------------------------------------------ large row counts */

/* MANY_TILES: tiles of W in a stage. MANY_BLOCKS: blocks of 32 columns in a stage. MANY_GROUPS: groups of 8 columns of
 * a tile. MAX_WARP_SUMS: bytes of the warps' column maxima, stored after the stages. */
enum { MANY_TILES = 16, MANY_BLOCKS = 2, MANY_GROUPS = MANY / 8,
       MAX_WARP_SUMS = THREADS / 32 * MANY * 4 };
static_assert(MANY_GROUPS == THREADS / 32 && MANY_TILES == 2 * THREADS / 32,
              "each warp copies one column group and two tiles");

/* A stage of experts_w16_many(): 16 tiles of W with { codes [2], scales [2], scales of scales } each, then 8 groups of
 * columns with words [2] each. */
template <int TYPE, bool MID> struct many_stage {
    using T = w16<TYPE>;
    static constexpr uint32_t SIDE_AT = MANY_BLOCKS * T::CODE, SUPER_AT = SIDE_AT + MANY_BLOCKS * T::SIDE,
                              TILE = SUPER_AT + T::SUPER, X_AT = MANY_TILES * TILE, X_BLOCK = MID ? MID_BLOCK : 512,
                              SIZE = X_AT + MANY_GROUPS * MANY_BLOCKS * X_BLOCK;
    static constexpr int FIT = (int) ((ROOM_OF_ONE - PIPE_HEAD - MAX_WARP_SUMS) / SIZE), STAGES = FIT < 4 ? FIT : 4;
    static_assert(STAGES >= 3, "two stages are in flight while one is used");
    static constexpr size_t SUMS_AT = pipe_bytes<STAGES>(SIZE), BYTES = SUMS_AT + MAX_WARP_SUMS;
    using queue = pipe<STAGES, PIPE_SMALL>;
};

/* The sources of a warp's copies, over the block's items in sequence: two tiles of W, and a group of columns. */
template <int TYPE, bool MID> struct many_stream {
    using T = w16<TYPE>;
    using S = many_stage<TYPE, MID>;
    /* 16-byte pieces of a tile: codes per block, scales per block, scales of scales */
    static constexpr uint32_t CODES = T::CODE / 16, SIDES = T::SIDE / 16, SUPERS = T::SUPER / 16;

    const w16_experts &p;
    uint32_t item, last_item, b;  /* current item; end of the block's items; first block of the next stage */
    bool busy;                    /* the tile of columns has columns for this warp's group */
    const uint8_t *tile[2], *x, *f; /* tiles of W; the lane's pieces of x and factor at block 0 */

    __device__ __forceinline__ many_stream(const w16_experts &p_, uint32_t first, uint32_t end)
        : p(p_), item(first), last_item(end)
    {
        open();
    }
    /* Sets the addresses of item `item`, if the block has it. */
    __device__ __forceinline__ void open()
    {
        b = 0;
        if (item >= last_item) return;
        const w16_item i = item_of(p, item);
        const int warp = (int) threadIdx.x / 32, lane = (int) threadIdx.x % 32;
        const size_t group = (size_t) p.a.w.shape.n_block * S::X_BLOCK;
        /* with two matrices, tile[0] and tile[1] are the same rows of both */
        const w16_matrices w = matrices_of<MID>(p, i);
        for (int h = 0; h < 2; h++) tile[h] = tile_of(p, w, i, MANY_TILES, w.second ? warp + 8 * h : 2 * warp + h);
        busy = 8 * warp < i.t.n;
        const uint32_t r = (uint32_t) row_of(p.a, i.t, 8 * warp + lane / 4),
                       s = (uint32_t) row_of(p.a, i.t, 8 * warp + lane % 8);
        x = p.x + r / 8 * group + piece_of(r) * 16;
        f = p.x + s / 8 * group + 512 + s % 8 * 4;
    }
    /* Starts the copies of the next one or two blocks of the items to a stage. */
    __device__ __forceinline__ void fill(const typename S::queue &q, int32_t stage)
    {
        if (item >= last_item) return;
        const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_block = (uint32_t) p.a.w.shape.n_block;
        const uint32_t n = b + 1 < n_block ? 2 : 1;
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t dst = q.address(stage) + (2 * warp + h) * S::TILE + lane * 16;
#pragma unroll
            for (uint32_t k = 0; k < MANY_BLOCKS * CODES; k += 32)
                if (lane + k < n * CODES)
                    ptx_cp_async16(dst + k * 16, tile[h] + (size_t) b * T::CODE + (lane + k) * 16);
            const uint8_t *side = tile[h] + p.a.w.shape.side_at + (size_t) b * T::SIDE + lane * 16;
            if (lane < n * SIDES) ptx_cp_async16(dst + S::SIDE_AT, side);
            if constexpr (SUPERS > 0) {
                const uint8_t *sup = tile[h] + p.a.w.shape.super_at + (size_t) (b / 8) * T::SUPER + lane * 16;
                if (lane < SUPERS) ptx_cp_async16(dst + S::SUPER_AT, sup);
            }
        }
        const uint32_t to = q.address(stage) + S::X_AT + warp * MANY_BLOCKS * S::X_BLOCK;
        for (uint32_t k = 0; k < n && busy; k++) {
            ptx_cp_async16(to + k * S::X_BLOCK + lane * 16, x + (size_t) (b + k) * S::X_BLOCK);
            if (MID && lane < 8) ptx_cp_async4(to + k * S::X_BLOCK + 512 + lane * 4, f + (size_t) (b + k) * S::X_BLOCK);
        }
        b += MANY_BLOCKS;
        if (b >= n_block) item++, open();
    }
};

/* Adds the products of block k of a stage to acc[tile][group]: the warp's two tiles times n_group groups of columns. */
template <int TYPE, bool MID>
PI_FN void many_block(const unsigned char *stage, uint32_t k, int n_group, float (&acc)[2][MANY_GROUPS][4])
{
    using T = w16<TYPE>;
    using S = many_stage<TYPE, MID>;
    const int lane = (int) threadIdx.x % 32;
    uint32_t a[2][2][4];
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const unsigned char *tile = stage + (threadIdx.x / 32 * 2 + h) * S::TILE;
        w16_weights<TYPE>(tile + k * T::CODE, tile + S::SIDE_AT + k * T::SIDE, tile + S::SUPER_AT, lane, a[h]);
    }
    const unsigned char *x = stage + S::X_AT + k * S::X_BLOCK;
#pragma unroll
    for (int g = 0; g < MANY_GROUPS; g++, x += MANY_BLOCKS * S::X_BLOCK) {
        if (g && g >= n_group) break;
        const uint4 words = w16_words(x);
        const float2 f = MID ? ((const float2 *) (x + 512))[lane % 4] : float2 {0, 0};
        add_words<TYPE, MID>(a[0], words, f, acc[0][g]);
        add_words<TYPE, MID>(a[1], words, f, acc[1][g]);
    }
}

/* Packs the warp's totals of gate (total[0]) and up (total[1]), 16 rows of each, to mid. The neighboring warp (warp ^
 * 1) has the other half of a block of 32 values. Values are in accumulator layout. most: [8 warps][64 columns] of
 * shared memory. */
template <int TYPE>
PI_FN void many_to_mid(const w16_experts &p, const w16_item &i, float (&total)[2][MANY_GROUPS][4], float *most)
{
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    const expert_times<TYPE, false> gate(p, i.t, p.a.w.scale), up(p, i.t, p.a.scale2);
    const int64_t n_block = p.a.w.n_out / 32, b = (int64_t) i.part * (MANY_TILES / 4) + warp / 2;
/* Activation, and the warp's maximum of each column. */
#pragma unroll
    for (int g = 0; g < MANY_GROUPS; g++) {
        if (8 * g >= i.t.n) break;
        for (int k = 0; k < 4; k++) {
            const int c = 8 * g + 2 * (lane % 4) + k % 2;
            total[0][g][k] = gated(p.a.act, gate(c, total[0][g][k]), up(c, total[1][g][k]), p.a.limit);
        }
        for (int h = 0; h < 2; h++) {
            float m = fmaxf(abs_or_inf(total[0][g][h]), abs_or_inf(total[0][g][h + 2]));
            for (int o = 4; o < 32; o *= 2) m = fmaxf(m, __shfl_xor_sync(PI_FULL, m, o));
            if (lane < 4) most[warp * MANY + 8 * g + 2 * lane + h] = m;
        }
    }
    __syncthreads();
/* Maximum over both warps of a block of 32 values, then pack. */
#pragma unroll
    for (int g = 0; g < MANY_GROUPS; g++) {
        if (8 * g >= i.t.n || b >= n_block) break;
        for (int k = 0; k < 4; k++) {
            const int c = 8 * g + 2 * (lane % 4) + k % 2, o = lane / 4 + k / 2 * 8;
            float by;
            const float factor = mid_factor(fmaxf(most[warp * MANY + c], most[(warp ^ 1) * MANY + c]), by);
            const int32_t column = i.t.first + c;
            uint8_t *block = mid_block((uint8_t *) p.a.mid, column, n_block, b);
            if (c >= i.t.n) continue;
            const uint32_t at = w16_word_at((uint32_t) column % 8, (uint32_t) o) * 2 + (uint32_t) warp % 2;
            ((uint16_t *) block)[at] = mid_value(total[0][g][k], by, p.mid_bf16);
            if (o == 0 && warp % 2 == 0) ((float *) (block + 512))[column % 8] = factor;
        }
    }
}

template <int TYPE, bool MID> __global__ void __launch_bounds__(THREADS, 1) experts_w16_many(w16_experts p)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    using S = many_stage<TYPE, MID>;
    uint32_t first, end;
    items_of_block(p, first, end);
    if (first == end) return;
    const int32_t n = (int32_t) p.a.w.shape.n_block, warp = (int32_t) threadIdx.x / 32;
    many_stream<TYPE, MID> in(p, first, end);
    typename S::queue q(raw, S::SIZE);
    auto fill = [&](int32_t stage, int32_t) { in.fill(q, stage); };
    const unsigned char *stage = raw;
    /* Multiply all items of the block. The pipeline continues across items. */
    q.start(S::STAGES, 1, fill);
#pragma unroll 1
    for (uint32_t k = first; k < end; k++) {
        const w16_item i = item_of(p, k);
        const int n_group = (i.t.n + 7) / 8;
        float acc[2][MANY_GROUPS][4] = {}, total[2][MANY_GROUPS][4] = {};
        int32_t b = 0;
#pragma unroll 1
        for (int32_t slice = 1; slice <= SLICES; slice++) { /* slices may end inside a stage */
#pragma unroll 1
            for (const int32_t last = n * slice / SLICES; b < last; b++) {
                if (b % MANY_BLOCKS == 0) stage = q.next(0, S::STAGES, 1, fill);
                many_block<TYPE, MID>(stage, (uint32_t) b % MANY_BLOCKS, n_group, acc);
            }
            end_slice(acc[0], total[0]);
            end_slice(acc[1], total[1]);
        }
        if (!MID && p.a.mid) {
            many_to_mid<TYPE>(p, i, total, (float *) (raw + S::SUMS_AT));
            continue;
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const bool second = p.a.data2 && h;
            const int64_t o = (int64_t) (p.a.data2 ? i.part * 8 + warp : i.part * MANY_TILES + 2 * warp + h) * 16;
            put_totals(total[h], expert_times<TYPE, MID>(p, i.t, second ? p.a.scale2 : p.a.w.scale),
                       results_of(p, i.t, second) + o, p.a.ldy, i.t.n, p.a.w.n_out - o);
        }
    }
}

} /* namespace moe */

#endif
