/* Attention of tokens to lists of rows (op sparse; shared code in sparse.cuh) on tensor cores. Used for DeepSeek V4,
 * and for DeepSeek V2 and V3 if products are exact, or rows are F32 or short. If V is only the first columns of long
 * rows, a warp with later columns has no part of O.
 *
 * Each warp of a block has 64 columns: of the queries of all the block's heads, of the rows and of the results. So a
 * row in shared memory is read once for S and once for O. cp.async loads rows STAGES - 1 tiles (of 16 rows) ahead:
 *
 *     S    each warp multiplies its columns: Q in registers, rows from shared memory
 *     P    the warps' partial S are added in order; online softmax in powers of 2, 8 threads per head
 *     O    each warp has its columns: O = O c + P V
 *
 *     barrier    O of tile i - 1, S of tile i    barrier    load tile i + STAGES - 1, P of tile i    barrier ..
 *
 * Q and P are hi + lo F16 (22 bits) in every mode, since the choice of entries in later layers depends on small
 * differences. In a small model, one F16 for Q made the error of the logits five times larger, and one F16 for P three
 * times. Queries may be raw results of a product (k.raw). Then each block computes their norm and rotation, which saves
 * a read and a write. Rows of F32 caches are hi + lo too (TWO). Missing columns and rows are zeros. */
#ifndef PI_SPARSE_KERNELS_CUH
#define PI_SPARSE_KERNELS_CUH

#include "mla.cuh"
#include "sparse.cuh"

namespace sparse {

enum {
    TILE = 16,       /* rows of a tile */
    LDS = TILE + 8,  /* 16-bit values between rows of P */
};
/* In partial S, columns j and j + 8 are adjacent, at 2 j: the softmax thread that adds the warps' partial S needs
 * both. */

/* Sizes of a kernel of W warps, byte offsets in shared memory, and the thread's accumulators. Rows have 16 bytes of
 * padding, so that the 8 rows of an ldmatrix are in different banks. A block has 32 heads, or 16 heads in these cases:
 * one split per block (UNITS), which is used when multiprocessors would be idle; rows that need conversion, which takes
 * the registers of 16 heads; short rows; and rows of more than 8 warps, which have 168 registers per thread. */
template <int KIND_, int W_, bool UNITS_> struct shape {
    static constexpr int KIND = KIND_, W = W_, PLANES = KIND == TWO ? 2 : 1;
    /* GROUPED: results may be packed as rows of head groups */
    static constexpr bool UNITS = UNITS_, FEW = false, GROUPED = W <= 8;
    /* M: number of tiles of 16 heads */
    static constexpr int M = UNITS || W != 8 || KIND != COPIED ? 1 : 2, HEADS = 16 * M;
    static constexpr int STAGES = KIND == COPIED ? 4 : 2, TILE = sparse::TILE;
    /* EACH: row addresses per thread and lookup of KV_SPLIT rows */
    static constexpr int THREADS = W * 32, EACH = (KV_SPLIT + THREADS - 1) / THREADS;
    static constexpr int LD = W * WIDTH + 8;                                 /* 16-bit values between rows of a tile */
    static constexpr int CHUNKS = W * WIDTH / 8;                             /* 16-byte pieces of a row as F16 */
    /* 16-bit values of a tile; with TWO, a plane of lo follows the plane of hi */
    static constexpr int PLANE = TILE * LD;
    static constexpr size_t row = 0;                                         /* tiles: [STAGES][PLANES][TILE][LD] F16 */
    static constexpr size_t address = row + 2 * (size_t) (STAGES * PLANES * PLANE); /* cache_row [AHEAD] */
    /* partial S of each warp: [W][M][16][TILE] floats */
    static constexpr size_t part = address + AHEAD * sizeof(cache_row);
    static constexpr size_t p = part + 4 * (size_t) (W * HEADS * TILE);      /* P: [hi, lo][HEADS][LDS] F16 */
    static constexpr size_t state = p + 2 * (size_t) (2 * HEADS * LDS);/* split's m, l, c: [3][HEADS] floats */
    /* running m and l, a copy per warp: [W][M][m, l][16] floats */
    static constexpr size_t run = state + 4 * (size_t) (3 * HEADS);
    static constexpr size_t total = run + 4 * (size_t) (W * M * 2 * 16);
    static_assert(16 + 4 * (size_t) (PI__K_MAX_GROUPED * W * WIDTH + W) <= total,
                  "a group's results fit during the fold of splits");

    uint32_t q[2][M][4][4];     /* Q of the warp's columns: [hi, lo][M][4 steps of 16 columns] fragments of A */
    float acc[M][8][4];         /* O of the current split */
    float o[M][8][4];           /* O of all folded splits; unused with UNITS */

    static __device__ __forceinline__ uint16_t *stage(unsigned char *shared, int32_t i)
    {
        return (uint16_t *) (shared + row) + i * PLANES * PLANE;
    }
};

/* Starts the copy of tile i of the list (rows 16 i ..) to `stage` with cp.async; rows from `end` on become zeros. A
 * thread copies one 16-byte piece of every STEP-th row. address: [AHEAD]. */
template <class S>
PI_FN void copy_tile(const pi__k_sparse &k, const cache_row *address, uint16_t *stage, int32_t i, int32_t end)
{
    constexpr int CHUNKS = S::CHUNKS, STEP = S::THREADS / CHUNKS;
    const int chunk = ptx_thread() % CHUNKS, first = ptx_thread() / CHUNKS;
    const uint32_t to = ptx_shared(stage + first * S::LD + 8 * chunk);
    const bool has = 8 * chunk < k.rows.cache.head_dim;
    address += i * TILE % AHEAD + first;
#pragma unroll
    for (int r = 0; r < TILE; r += STEP) {
        const bool there = has && i * TILE + first + r < end;
        const char *from = there ? address[r].codes + 16 * chunk : k.rows.cache.base;
        ptx_cp_async16(to + 2 * (uint32_t) (r * S::LD), from, there ? 16 : 0);
    }
}

/* Starts loading tile i to stage s if the tile begins before `end`; in any case as one cp.async group. */
template <class S>
PI_FN void load_tile(const pi__k_sparse &k, int32_t n_window, unsigned char *shared, int32_t i, int32_t s, int32_t end)
{
    const cache_row *address = (const cache_row *) (shared + S::address);
    if (i * TILE < end) {
        if constexpr (S::KIND == COPIED) copy_tile<S>(k, address, S::stage(shared, s), i, end);
        else convert_tile<S>(k, address, S::stage(shared, s), n_window, i * TILE, end);
    }
    ptx_cp_async_commit();
}

/* Computes the factors (norm and q_scale) of the block's raw queries, heads head .. head + HEADS - 1, to factor
 * [S::HEADS]. */
template <class S> PI_FN void query_factors(const pi__k_sparse &k, int32_t token, int32_t head, float *factor)
{
    const int lane = (int) threadIdx.x % 32;
#pragma unroll 1
    for (int h = (int) threadIdx.x / 32; h < S::HEADS; h += S::W) {
        const float *q = k.a.q + token * k.a.ldq + (int64_t) min(head + h, k.a.n_head - 1) * k.a.dim;
        const float f = row_factor(q, k.a.dim, true, k.q_norm, k.q_scale, k.eps, lane);
        if (lane == 0) factor[h] = f;
    }
    __syncthreads();
}

/* Applies norm factor and RoPE to 64 columns of a raw query, from col0 on, as make_row() of mla.cuh. f as in
 * query_columns(). */
PI_FN void make_columns(const pi__k_sparse &k, int32_t token, int32_t col0, float factor, float (&f)[8][2])
{
    const float *rope = k.a.rope + (size_t) token * (size_t) k.a.n_rot;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const int32_t i = col0 + n * 8 + (int) threadIdx.x % 4 * 2 - (k.a.dim - k.a.n_rot);
        f[n][0] *= factor, f[n][1] *= factor;
        if (i >= 0 && i < k.a.n_rot) rotate_pair(f[n][0], f[n][1], rope[i / 2], rope[k.a.n_rot / 2 + i / 2]);
    }
}

/* Loads the warp's 64 columns, from col0 on, of the block's queries to t.q, as hi + lo fragments. head: first head.
 * factor: from query_factors(), used for raw queries. */
template <class S>
PI_FN void load_q(const pi__k_sparse &k, int32_t token, int32_t head, int32_t col0, const float *factor, S &t)
{
    const int lane = (int) threadIdx.x % 32;
    const bool turn = S::KIND != COPIED && stays_rotated(k);
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) { /* 8 heads: words i % 2 and i % 2 + 2 of A */
        float f[8][2];
        query_columns(k, token, head + 8 * i + lane / 4, col0, f);
        if (k.raw) make_columns(k, token, col0, factor[8 * i + lane / 4], f);
        if (turn) rotate_columns(f, false);
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const float x = clean(f[n][0]), y = clean(f[n][1]);
            const uint32_t high = ptx_half2(x, y);
            t.q[0][i / 2][n / 2][n % 2 * 2 + i % 2] = high;
            t.q[1][i / 2][n / 2][n % 2 * 2 + i % 2] = ptx_half2(x - ptx_floats(high).x, y - ptx_floats(high).y);
        }
    }
}

/* S += Q K^T for steps s and s + 1 of 16 columns. b: 8 rows of K, from ldmatrix. */
template <class S>
PI_FN void add_scores(const uint32_t (&q)[S::M][4][4], int s, const uint32_t (&b)[4], float (&acc)[S::M][4])
{
#pragma unroll
    for (int m = 0; m < S::M; m++) ptx_mma_f16(acc[m], q[m][s], {b[0], b[1]});
#pragma unroll
    for (int m = 0; m < S::M; m++) ptx_mma_f16(acc[m], q[m][s + 1], {b[2], b[3]});
}

/* Computes the warp's partial S, over its 64 columns of the tile at shared address `row`, to part [M][16][TILE]. */
template <class S> PI_FN void scores(uint32_t row, const S &t, float *part)
{
    const int lane = ptx_thread() % 32;
    float acc[TILE / 8][S::M][4] = {};
    row += 2 * (uint32_t) (lane % 8 * S::LD + 8 * (lane / 8));
#pragma unroll
    for (int i = 0; i < TILE / 4; i++) {
        const int nt = i / 2, s = i % 2 * 2;
        uint32_t b[4];
        const uint32_t at = row + 2 * (uint32_t) (8 * nt * S::LD + 16 * s);
        /* Small terms first: hi of Q times lo of the row, lo of Q times hi, hi of Q times hi. */
        if (S::KIND == TWO) {
            ptx_ldmatrix_x4(b, at + 2 * S::PLANE);
            add_scores<S>(t.q[0], s, b, acc[nt]);
        }
        ptx_ldmatrix_x4(b, at);
        add_scores<S>(t.q[1], s, b, acc[nt]);
        add_scores<S>(t.q[0], s, b, acc[nt]);
    }
    float *to = part + lane / 4 * TILE + 4 * (lane % 4);
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int m = i / 2, r = i % 2 * 2; /* r: accumulators of heads lane / 4 (i even) or + 8 */
        *(float4 *) (to + 8 * i * TILE) = {acc[0][m][r], acc[1][m][r], acc[0][m][r + 1], acc[1][m][r + 1]};
    }
}

/* Online softmax of a tile with n valid rows, for all heads of the block: writes P to p, and the split's new m and l
 * and the factor c of the old O to state. is_first: the tile is the split's first. 8 threads per head, two of the
 * tile's rows each. */
template <class S> PI_FN void softmax(const float *part, int32_t n, bool is_first, uint16_t *p, float *state)
{
    const int thread = ptx_thread(), j = thread % 8;
    float *m = state, *l = m + S::HEADS, *c = l + S::HEADS;
#pragma unroll 1
    for (int h = thread / 8; h < S::HEADS; h += S::THREADS / 8) {
        /* Add the warps' partial S in order. */
        const float2 *from = (const float2 *) (part + h * TILE) + j;
        float x[2] = {0, 0}, e[2];
#pragma unroll
        for (int w = 0; w < S::W; w++) x[0] += from[w * S::HEADS * TILE / 2].x, x[1] += from[w * S::HEADS * TILE / 2].y;
        for (int i = 0; i < 2; i++) x[i] = j + 8 * i < n ? x[i] * LOG2E : PI_MINUS_INF;
        const float old = is_first ? PI_MINUS_INF : m[h];
        float top = fmaxf(old, fmaxf(x[0], x[1]));
        for (int o = 4; o; o >>= 1) top = fmaxf(top, __shfl_xor_sync(PI_FULL, top, o));
        const float base = top == PI_MINUS_INF ? 0.0f : top;
        for (int i = 0; i < 2; i++) e[i] = ptx_exp2(x[i] - base);
        /* Store P as hi + lo. */
        uint32_t high, low;
        ptx_split(e[0], e[1], high, low);
        uint16_t *to = p + h * LDS + j;
        to[0] = (uint16_t) high, to[8] = (uint16_t) (high >> 16);
        to += S::HEADS * LDS;
        to[0] = (uint16_t) low, to[8] = (uint16_t) (low >> 16);
        float sum = e[0] + e[1];
        for (int o = 4; o; o >>= 1) sum += __shfl_xor_sync(PI_FULL, sum, o);
        __syncwarp(); /* all lanes have read the old m */
        if (j) continue;
        const float scale = ptx_exp2(old - base);
        m[h] = top;
        l[h] = fmaf(is_first ? 0.0f : l[h], scale, sum);
        c[h] = scale;
    }
}

/* O = O c + P V for the warp's 64 columns of the tile at shared address `row`. p: shared address of P. c: factors per
 * head. */
template <class S> PI_FN void add_pv(uint32_t row, uint32_t p, const float *c, S &t)
{
    const int lane = ptx_thread() % 32;
    uint32_t w[2][S::M][4];
    p += 2 * (uint32_t) (lane % 16 * LDS + 8 * (lane / 16));
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) ptx_ldmatrix_x4(w[i / S::M][i % S::M], p + 2 * (uint32_t) (16 * i * LDS));
    float by[S::M][2];
#pragma unroll
    for (int m = 0; m < S::M; m++) by[m][0] = c[16 * m + lane / 4], by[m][1] = c[16 * m + lane / 4 + 8];
    row += 2 * (uint32_t) (lane % 16 * S::LD + 8 * (lane / 16));
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
        uint32_t b[4], bl[4];
        ptx_ldmatrix_x4_trans(b, row + 16 * n);
        if (S::KIND == TWO) ptx_ldmatrix_x4_trans(bl, row + 16 * n + 2 * S::PLANE);
#pragma unroll
        for (int i = 0; i < 2 * S::M; i++) {
            const int m = i % S::M, h = i / S::M;
            float (&o)[4] = t.acc[m][n + h];
            o[0] *= by[m][0], o[1] *= by[m][0], o[2] *= by[m][1], o[3] *= by[m][1];
            /* Small terms first: lo of V, then lo of P. */
            if (S::KIND == TWO) ptx_mma_f16(o, w[0][m], {bl[2 * h], bl[2 * h + 1]});
            ptx_mma_f16(o, w[1][m], {b[2 * h], b[2 * h + 1]});
            ptx_mma_f16(o, w[0][m], {b[2 * h], b[2 * h + 1]});
        }
    }
}

/* Position of the walk: tile i, the stage that has it, and the stage of the previous tile, which is filled next. */
struct place {
    int32_t i, stage, before;
};
/* Moves the position to the next tile. */
template <class S> PI_FN void go_on(place &at)
{
    at.i++;
    at.before = at.stage;
    at.stage = at.stage + 1 == S::STAGES ? 0 : at.stage + 1;
}

/* Waits until the current tile has arrived and P of the previous one is complete. */
template <class S> PI_FN void arrive()
{
    ptx_cp_async_wait<S::STAGES - 2>();
    __syncthreads();
}

/* Returns the shared address of the warp's 64 columns in a stage. */
template <class S> PI_FN uint32_t columns_of(unsigned char *shared, int32_t stage)
{
    return ptx_shared(S::stage(shared, stage)) + 2 * (uint32_t) (ptx_thread() / 32 * WIDTH);
}

/* O = O c + P V of the previous tile, if the warp has columns of V. */
template <class S> PI_FN void add_values(const pi__k_sparse &k, unsigned char *shared, const place &at, S &t)
{
    if (S::W <= 8 || ptx_thread() / 32 * WIDTH < k.a.dim_v)
        add_pv<S>(columns_of<S>(shared, at.before), ptx_shared(shared + S::p),
                  (const float *) (shared + S::state) + 2 * S::HEADS, t);
}

/* Computes S and P of the current tile, and starts the load of tile i + STAGES - 1 into the previous tile's stage.
 * is_first: the split's first tile. */
template <class S>
PI_FN void process_tile(const pi__k_sparse &k, int32_t n_window, unsigned char *shared, const place &at, int32_t end,
                        bool is_first, S &t)
{
    float *part = (float *) (shared + S::part);
    scores<S>(columns_of<S>(shared, at.stage), t, part + ptx_thread() / 32 * S::HEADS * TILE);
    __syncthreads(); /* all partial S are written, and all warps are done with the previous tile, its P and its state */
    load_tile<S>(k, n_window, shared, at.i + S::STAGES - 1, at.before, end);
    softmax<S>(part, end - at.i * TILE, is_first, (uint16_t *) (shared + S::p), (float *) (shared + S::state));
}

/* Processes rows first .. end - 1 of the list, tile by tile. With UNITS the result is the sum of the block's only
 * split: m and l in `state`, O in t.acc. Without UNITS it is the sum of all splits, folded: m and l in `run`, O in
 * t.o. */
template <class S>
PI_FN void walk(const pi__k_sparse &k, int32_t token, unsigned char *shared, int32_t first, int32_t end, ahead<S> &rows,
                S &t)
{
    const list all = list_of(k, token);
    const int32_t split = split_of<S::FEW>(all.n) /* a power of two */, n_window = all.n_window, begin = first / TILE,
                  last = (end + TILE - 1) / TILE;
    place at = {begin, 0, S::STAGES - 1};
    for (int32_t i = 0; i < S::STAGES - 1; i++) load_tile<S>(k, n_window, shared, begin + i, i, end);
#pragma unroll 1
    while (at.i < last) {
        /* This iteration handles the first tile of KV_SPLIT rows. A split has KV_SPLIT rows or a multiple, so only such
         * a tile can open a split. O is one tile behind S: the previous tile's P V is added before its split ends. */
        const bool opens = !(at.i * TILE & (split - 1));
        arrive<S>();
        if (at.i > begin) add_values<S>(k, shared, at, t);
        if (at.i > begin && opens) end_split<S>(k, shared, t);
        advance_lookup<S>(k, token, shared, at.i * TILE, end, rows);
        process_tile<S>(k, n_window, shared, at, end, opens, t);
        go_on<S>(at);
#pragma unroll 1
        /* The remaining tiles of these KV_SPLIT rows. */
        for (; at.i < last && at.i % (KV_SPLIT / TILE); go_on<S>(at)) {
            arrive<S>();
            add_values<S>(k, shared, at, t);
            process_tile<S>(k, n_window, shared, at, end, false, t);
        }
    }
    arrive<S>();
    if (last > begin) {
        add_values<S>(k, shared, at, t);
        end_split<S>(k, shared, t);
    }
    __syncwarp();
}

/* 1 if the shared memory of a multiprocessor is enough for two blocks of 9 warps with copied rows (sm_90). */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
enum { LONG_TWICE = 1 };
#else
enum { LONG_TWICE = 0 };
#endif

/* Op sparse for one token and 16 or 32 of its heads. Grid: x = tile of heads, y = token from token0 on, z = with UNITS
 * the KV split, of at most n_splits per list. Block: W warps. Shared memory: S::total. */
template <int KIND, int W, bool UNITS>
__global__ void __launch_bounds__(W * 32, UNITS && (W <= 8 || (KIND == COPIED && LONG_TWICE)) ? 2 : 1)
sparse(PI_CONSTANT pi__k_sparse k, int32_t token0, int32_t n_splits, uint32_t *arrived)
{
    ptx_wait_dependency();
    using S = shape<KIND, W, UNITS>;
    PI_SMEM(shared);
    process_list<S>(
        k, token0, n_splits, arrived, shared,
        [&](int32_t token, int32_t head, S &t) {
            float *factor = (float *) (shared + S::part); /* memory that the walk does not use yet */
            if (k.raw) query_factors<S>(k, token, head, factor);
            load_q<S>(k, token, head, ptx_thread() / 32 * WIDTH, factor, t);
        },
        [&](int32_t token, int32_t first, int32_t end, ahead<S> &rows, S &t) {
            walk<S>(k, token, shared, first, end, rows, t);
        });
}

} /* namespace sparse */

#endif
