/* Softmax attention over the paged cache on tensor cores (mma.sync), for prefill, decode and both in one batch. Kernel:
 * attention(). Input: q [n_tokens][n_head][head_dim] floats, already scaled. Output: out, of the same shape. The online
 * softmax is FlashAttention's.
 *
 * Each sequence's rows of one kv head, ordered by token and then by query head, are cut into tiles of R rows. A block
 * of threads has one tile of rows and walks the keys in tiles of TILE: positions k TILE .. k TILE + TILE - 1 for any
 * cache block size. attention.cuh describes KV splits, attention_keys.cuh how keys reach shared memory. WARPS warps
 * share 16 rows; each has D / WARPS columns of Q, K, V and O:
 *
 *     prefill (D 128)              prefill (D 256)                        decode (D 256)
 *     rows  0..15 [ warp 0      ]  rows  0..15 [ warp 0 ][ warp 1 ]       rows 0..15 [ w 0 ][ w 1 ][ w 2 ][ w 3 ]
 *     rows 16..31 [ warp 1      ]  rows 16..31 [ warp 2 ][ warp 3 ]
 *     ...
 *
 * Q stays in registers for the entire walk. For each tile of keys a warp computes
 *
 *     S = Q K^T     over its columns. Warps that share rows add their parts through shared memory; each gets S.
 *     P, m, l       online softmax in powers of 2, in the registers of S, which have the layout of the next mma's A
 *     O = O c + P V for its columns; c: the factor by which the new maximum scales the old sum
 *
 * Barriers per tile: one for the copied tile; one more if warps share rows; one more if COMES is RAW (conversion).
 *
 * ORDER. A score is the sum of PARTS parts of D, each started at 0. The parts are added in pairs: ((0 + 1) + (2 + 3)) +
 * ... This order does not depend on the number of warps. The maximum does not depend on an order. l is the product of P
 * and ones, summed like O.
 *
 * SPARSE PREFILL. A query block walks only the tiles of key blocks with a set bit in keys_at::taken
 * (key_blocks_kernels.cuh). A tile of rows belongs to one run. Splits and spans keep their positions; splits without
 * selected keys are skipped.
 *
 * Heads of 80 and 112 values use the kernels of D = 96 and 128; their missing columns are zeros in shared memory. */
#ifndef PI_ATTENTION_KERNELS_CUH
#define PI_ATTENTION_KERNELS_CUH

#include "attention_walk.cuh"
#include "tail.cuh"

namespace attention {

/* --------------------------------------------------------------------------------------------------------- a tile */

PI_FN float4 operator+(const float4 &a, const float4 &b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

/* Returns the sum of the score parts of COUNT warps, me ^ BIT to me ^ (BIT + COUNT - 1), added in pairs. me: index of
 * this warp in its group. All warps of the group get equal bits, since float addition is commutative. parts: the lane's
 * four values of the group's warp 0; the values of the next warp follow TILE / 8 * 32 float4 later. */
template <int BIT, int COUNT, class S> PI_FN float4 sum_parts(const float4 *parts, int me)
{
    if constexpr (COUNT > 1) {
        return sum_parts<BIT, COUNT / 2, S>(parts, me) + sum_parts<BIT + COUNT / 2, COUNT / 2, S>(parts, me);
    } else {
        return parts[(me ^ BIT) * S::TILE / 8 * 32];
    }
}

/* Adds the score parts of the WARPS warps that share 16 rows. s: in, this warp's part; out, the sum. A lane has TILE /
 * 8 groups of 4 scores. Called by all threads of the block (barrier). active: false = no row of the warp attends to a
 * key of the tile; s is unchanged. room: shape::EXCHANGE bytes of shared memory. */
template <class S> PI_FN void exchange(bool active, float4 *room, float (&s)[S::TILE / 8][4])
{
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, me = warp % S::WARPS;
    float4 *group = room + warp / S::WARPS * S::WARPS * S::TILE / 8 * 32 + lane;
    if (active) {
#pragma unroll
        for (int i = 0; i < S::TILE / 8; i++) group[(me * S::TILE / 8 + i) * 32] = {s[i][0], s[i][1], s[i][2], s[i][3]};
    }
    __syncthreads();
    if (!active) return;
#pragma unroll
    for (int i = 0; i < S::TILE / 8; i++) {
        const float4 x = sum_parts<0, S::WARPS, S>(group + i * 32, me);
        s[i][0] = x.x, s[i][1] = x.y, s[i][2] = x.z, s[i][3] = x.w;
    }
}

/* acc.o += P V for the warp's columns, acc.l += P times ones. s: P of the warp's 16 rows and TILE keys. tile: shared
 * address of the tile of K; the tile of V follows it. */
template <class S> PI_FN void add_pv(uint32_t tile, const float (&s)[S::TILE / 8][4], sums<S::N> &acc)
{
    const int lane = (int) threadIdx.x % 32, col = (int) threadIdx.x / 32 % S::WARPS * S::N + lane / 16;
    const uint32_t v = tile + S::PLANES * S::PLANE + (uint32_t) (lane % 16 * S::D * 2);
    const uint32_t ones = 0x3c003c00; /* the f16 pair (1, 1) */
    /* A step is 16 keys. HILO adds the products with a lo part before hi times hi: small products first. */
#pragma unroll
    for (int j = 0; j < S::TILE / 16; j++) {
        uint32_t high[4], low[4];
        make_a<S::KIND == HILO>(s[2 * j], s[2 * j + 1], high, low);
        if (S::KIND == HILO) ptx_mma_f16(acc.l, low, {ones, ones});
        ptx_mma_f16(acc.l, high, {ones, ones});
#pragma unroll
        for (int n = 0; n < S::N; n += 2) {
            uint32_t b[4];
            const uint32_t at = piece_at<S>(v, lane, col, n / 2) + (uint32_t) (j * 16 * S::D * 2);
            if constexpr (S::KIND == HILO) {
                ptx_ldmatrix_x4_trans(b, at + S::PLANE);
                ptx_mma_f16(acc.o[n], high, {b[0], b[1]});
                ptx_mma_f16(acc.o[n + 1], high, {b[2], b[3]});
            }
            ptx_ldmatrix_x4_trans(b, at);
            if constexpr (S::KIND == HILO) {
                ptx_mma_f16(acc.o[n], low, {b[0], b[1]});
                ptx_mma_f16(acc.o[n + 1], low, {b[2], b[3]});
            }
            ptx_mma_f16(acc.o[n], high, {b[0], b[1]});
            ptx_mma_f16(acc.o[n + 1], high, {b[2], b[3]});
        }
    }
}

/* Computes attention for the block's tile of rows, and its unit of keys if j.n_units > 0. Writes the result to a.out,
 * or the unit's sum to scratch. Grid: x = tile of rows, in reverse order, since the last tiles have most keys; y = kv
 * head; z = unit. shared: scores to exchange, block_facts, then the tiles of keys (attention_keys.cuh). */
template <class S> PI_FN void attend(const attn_job &j, unsigned char *shared)
{
    ptx_launch_dependents();
    block_facts<S> &facts = *(block_facts<S> *) (shared + S::EXCHANGE);
    const work &w = facts.w;
    int32_t tile, last;
    {
        work found;
        if (!find_work<S::R>(j, (int32_t) (gridDim.x - 1 - blockIdx.x), found) ||
            !find_tiles<S>(j, found, &tile, &last)) {
            ptx_wait_grids();
            return;
        }
        find_facts(j.a, found, facts);
    }
    ptx_wait_grids(); /* the code above reads only the batch, which no kernel of the step writes */
    __syncthreads();
    /* Start the copy of the first tile of keys, and load Q to registers meanwhile. */
    tiles<S> keys = {j.a, w, facts.at, shared + S::EXCHANGE + facts.SIZE, last, 0, {}};
    keys.begin(tile);
    queries<S> q;
    load_q(j.a, w, q);
    sums<S::N> run;
    walk_splits<S>(j, facts, tile, last, run, [&](int32_t tile, int32_t stop, sums<S::N> &acc) {
#pragma unroll 1
        for (; tile <= stop; tile = tile < last ? next_tile<S>(facts.at, tile) : last + 1) {
            const int32_t key0 = tile * S::TILE;
            const uint32_t here = keys.get(tile);
            const group_keys &of = facts.group[threadIdx.x / 32 / S::WARPS];
            const bool active = key0 <= of.to && key0 + S::TILE > of.from;
            float s[S::TILE / 8][4], c[2];
            /* One tile: S = Q K^T; P and the factor c of the old sums by softmax(); O = O c + P V. */
            if (active) scores(q, here, s);
            if (S::WARPS > 1) exchange<S>(active, (float4 *) shared, s);
            if (!active) continue;
            softmax(j.a, facts, key0, s, acc.m, c);
            if (is_new(c)) scale(c, acc);
            add_pv<S>(here, s, acc);
        }
        return tile;
    });
}

/* Folds the units of a row in order and writes its result to a.out. row: index of a token and head (scratch_row()).
 * Called by a warp; a lane has columns lane, lane + 32, .., FOLD_COLUMNS per pass. FOLD_UNITS units are loaded
 * together, so that the warp waits for memory once per FOLD_UNITS units. */
enum { FOLD_COLUMNS = 4, FOLD_UNITS = 8 };
PI_FN void fold_units(const attn_job &j, int32_t row)
{
    const pi__k_attn &a = j.a;
    const int32_t heads = j.n_kv_heads * j.group, token = row / heads, head = j.kv_head0 * j.group + row % heads,
                  dim = a.cache.head_dim;
    int32_t lo = 0, hi = a.n_seqs - 1;
    while (lo < hi) { /* binary search for the token's sequence */
        const int32_t mid = (lo + hi + 1) >> 1;
        if (a.seq_start[mid] <= token) lo = mid;
        else hi = mid - 1;
    }
    /* The tile that the row was in gives the row's units: n units from index `first`. spans: units per span, minus
     * 1. */
    const int32_t of_seq = (token - a.seq_start[lo]) * j.group + head % j.group;
    work w;
    if (!find_work<UNIT_ROWS>(j, first_tile<UNIT_ROWS>(j, lo) + of_seq / UNIT_ROWS, w)) return;
    const int32_t first = w.lo >> j.unit_shift, n = (w.hi >> j.unit_shift) - first + 1,
                  spans = (1 << (SPAN_SHIFT - j.unit_shift)) - 1;
    const float2 *ml = unit_ml(j, (size_t) row, 0);
#pragma unroll 1
    for (int32_t d = (int32_t) threadIdx.x % 32; d < dim; d += 32 * FOLD_COLUMNS) {
        const float *from = unit_o(j, (size_t) row, 0) + d;
        float2 run = {PI_MINUS_INF, 0}, all = run;
        float run_o[FOLD_COLUMNS] = {}, all_o[FOLD_COLUMNS] = {};
#pragma unroll 1
        for (int32_t i = 0; i < n; i += FOLD_UNITS) {
            float2 next[FOLD_UNITS];
            float o[FOLD_UNITS][FOLD_COLUMNS] = {};
            /* Load (m, l) and O of units i .. i + FOLD_UNITS - 1; units past the row's end have no keys. */
#pragma unroll
            for (int k = 0; k < FOLD_UNITS; k++) {
                next[k] = i + k < n ? ml[i + k] : float2{PI_MINUS_INF, 0};
#pragma unroll
                for (int c = 0; c < FOLD_COLUMNS; c++)
                    if (i + k < n && d + 32 * c < dim) o[k][c] = from[(size_t) (i + k) * (size_t) dim + 32 * c];
            }
            /* Fold each unit into its span's sum (run, run_o). At the end of a span or of the row, fold that into all,
             * all_o. */
#pragma unroll
            for (int k = 0; k < FOLD_UNITS; k++) {
                if (i + k >= n) break;
                fold_by f = fold(run.x, next[k].x);
                run = {f.m, folded(f, run.y, next[k].y)};
#pragma unroll
                for (int c = 0; c < FOLD_COLUMNS; c++) run_o[c] = folded(f, run_o[c], o[k][c]);
                if (((first + i + k + 1) & spans) && i + k + 1 < n) continue;
                f = fold(all.x, run.x);
                all = {f.m, folded(f, all.y, run.y)};
                run = {PI_MINUS_INF, 0};
#pragma unroll
                for (int c = 0; c < FOLD_COLUMNS; c++) all_o[c] = folded(f, all_o[c], run_o[c]), run_o[c] = 0;
            }
        }
        const float by = final_factor(a, head, all.x, all.y);
#pragma unroll
        for (int c = 0; c < FOLD_COLUMNS; c++) {
            const int32_t at = d + 32 * c;
            if (at < dim)
                out_of(a, token, head)[at] = a.gate ? all_o[c] * by * gate_of(a, token, head, at) : all_o[c] * by;
        }
    }
}

enum { MAX_COMBINE = 64 /* max blocks that stay to combine units */ };

/* Returns the number of blocks that stay after their work to combine units: half of the launch's blocks, but at most
 * MAX_COMBINE, within the limits of blocks_for(). */
PI_FN uint32_t blocks_that_combine(const attn_job &j)
{
    const uint32_t total = blocks_of_launch();
    return min(blocks_for(min(total / 2, (uint32_t) MAX_COMBINE), j.a.waits), total);
}

/* Combines the units in scratch into results, in the blocks of the launch that arrive last; the other blocks return. A
 * warp folds a row. Of the combining blocks, the ones that finish last run the epilogue, if j.tail has one. shared: the
 * block's shared memory, reused as scratch. */
PI_CALL void combine_units(const attn_job &j, unsigned char *shared)
{
    float *scratch = (float *) shared;
    uint32_t *at = (uint32_t *) (scratch + 96);
    tail_share s = arrive_of(j.a.arrived, blocks_of_launch(), blocks_that_combine(j), j.a.waits.stuck, at);
    if (!s.parts) return;
    const int32_t warps = (int32_t) blockDim.x / 32, rows = j.a.n_tokens * j.n_kv_heads * j.group;
#pragma unroll 1
    for (int32_t row = s.part * warps + (int32_t) threadIdx.x / 32; row < rows; row += s.parts * warps)
        fold_units(j, row);
    if (!j.tail.arrived) return;
    const uint32_t parts = (uint32_t) s.parts;
    s = arrive_of(j.a.arrived + 1, parts, min(blocks_that_stay(j.tail), parts), j.tail.waits.stuck, at);
    if (s.parts) do_input_share(j.tail, s, scratch);
}

/* The kernel: attend(), then the units are combined, or the epilogue runs. Grid: as for attend(). Block: S::THREADS. */
template <class S> __global__ void __launch_bounds__(S::THREADS, S::MIN_BLOCKS) attention(PI_CONSTANT attn_job j)
{
    PI_SMEM(shared);
    attend<S>(j, shared);
    if (j.n_units) combine_units(j, shared);
    else if (j.tail.arrived) run_input_tail(j.tail, shared);
}

} /* namespace attention */

#endif
