/* Latent attention of long rows on tensor cores, with queries and probabilities as one F16 each (op sparse; sparse.cuh
 * is shared by its kernels). For DeepSeek V2 and V3: rows of 513 to 576 values; the first 512 are also V. Requires
 * k.fast (products need not be exact) and a cache type other than F32. 128 heads read each row, which is 240 operations
 * per byte. Devices have about 280 per byte of memory bandwidth, so there is little time for other work.
 *
 * Rows come to shared memory 32 at a time (a tile) and serve both S = Q K^T and O = P V while the next ones load. Eight
 * warps divide the two products differently:
 *
 *     S    warp w: 16 rows, w / 4, in 128 columns, w % 4, and in 16 of the last 64; Q in registers
 *     P    the four parts are added in order; online softmax in powers of 2, 8 threads per head
 *     O    warp w: all rows, 64 columns, w: O = O c + P V
 *
 *     barrier   start load of tile i + 1, S of tile i   barrier   P of tile i   barrier   O of tile i   barrier ..
 *
 *     columns    0        128       256       384       512       O: a warp has 64 columns of all rows, 0 | 1 | .. | 7
 *     rows  0    [ w 0    | w 1     | w 2     | w 3     |0|1|2|3]     S
 *          16    [ w 4    | w 5     | w 6     | w 7     |4|5|6|7]
 *
 * The softmax base follows the maximum only when the maximum exceeds it by more than SLACK. So O is seldom multiplied
 * by a c other than 1. P is at most 2^SLACK, with the same relative precision. l is the sum of the rounded P. A row's
 * bits depend on the split alone, not on the number of heads per block. Missing columns and rows are zeros. */
#ifndef PI_LATENT_KERNELS_CUH
#define PI_LATENT_KERNELS_CUH

#include "sparse.cuh"

namespace latent {

using namespace sparse;

enum {
    LATENT_WARPS = 8,
    PARTS = 4,        /* column parts of a score, one per warp w % 4 */
    PART = 128,       /* columns per part */
    LAST = PARTS * PART, /* columns from LAST on: each part also has 16 of them */
    STEPS = PART / 16 + 1,
    /* rise of the maximum, base 2, that moves the base; P is at most 2^SLACK */
    SLACK = 8,
    LDP = 32 + 8,            /* 16-bit values between heads of P */
    P_EIGHT = 8 * LDP + 32,  /* 16-bit values between groups of 8 heads; padded against bank conflicts */
};

/* Returns the offset in P, in 16-bit values, of rows 16 * sixteen + 8 * eight .. of a tile. Rows 8 n .. are in the
 * order n = 0, 2, 1, 3, so that the stores have no bank conflicts. */
PI_FN uint32_t place_in_p(uint32_t sixteen, uint32_t eight) { return 8 * (2 * eight + sixteen); }

/* Sizes, byte offsets in shared memory, and the thread's accumulators. Rows have 16 bytes of padding, so that the 8
 * rows of an ldmatrix access are in different banks. A block has 32 heads. It has 16 heads if rows are converted, or if
 * it computes one split (UNITS), which is used when multiprocessors would be idle. */
template <int KIND_, bool UNITS_> struct shape {
    static constexpr int KIND = KIND_, W = LATENT_WARPS, THREADS = 32 * W, EACH = 1;
    static constexpr bool UNITS = UNITS_, FEW = true, GROUPED = false;
    static constexpr int M = UNITS || KIND != COPIED ? 1 : 2, HEADS = 16 * M; /* M: number of tiles of 16 heads */
    static constexpr int TILE = 32, CHUNKS = (LAST + 16 * PARTS) / 8;
    /* LD: 16-bit values between rows. PLANE: 16-bit values of a tile. */
    static constexpr int LD = 8 * CHUNKS + 8, PLANE = TILE * LD;
    /* float4 per part of the scores of 16 rows */
    static constexpr int SCORES = M * 2 * 32;
    static constexpr size_t row = 0;                                          /* two tiles: [2][TILE][LD] F16 */
    static constexpr size_t address = row + 2 * (size_t) (2 * PLANE);         /* cache_row [AHEAD] */
    static constexpr size_t part = address + AHEAD * sizeof(cache_row);       /* S: [PARTS][2][2][M][32] float4 */
    static constexpr size_t p = part + 16 * (size_t) (PARTS * 2 * SCORES);    /* P: [M][2] times P_EIGHT F16 */
    static constexpr size_t state = p + 2 * (size_t) (M * 2 * P_EIGHT);       /* split's m, l, c: [3][HEADS] */
    /* running m and l, a copy per warp: [W][M][m, l][16] floats */
    static constexpr size_t run = state + 4 * (size_t) (3 * HEADS);
    static constexpr size_t total = run + 4 * (size_t) (W * M * 2 * 16);

    uint32_t q[M][STEPS][4];    /* Q of the warp's columns, fragments of A */
    float acc[M][8][4];         /* O of the current split */
    float o[M][8][4];           /* O of all folded splits; unused with UNITS */
    float m, l;                 /* split's m and l of the head that softmax() gives the thread */

    static __device__ __forceinline__ uint16_t *stage(unsigned char *shared, int32_t i)
    {
        return (uint16_t *) (shared + row) + i * PLANE;
    }
};

/* Starts asynchronous copies of a tile's 32 rows, rows first .. of the list, to `stage`; rows from `end` on become
 * zeros. 8 threads per row. */
template <class S>
PI_FN void copy_tile(const pi__k_sparse &k, const cache_row *address, uint16_t *stage, int32_t first, int32_t end)
{
    const uint32_t r = (uint32_t) ptx_thread() / 8, c = (uint32_t) ptx_thread() % 8;
    const bool there = first + (int32_t) r < end;
    const char *from = (there ? address[(uint32_t) first % AHEAD + r].codes : k.rows.cache.base) + 16 * c;
    const uint32_t to = ptx_shared(stage) + 2 * (r * S::LD + 8 * c);
    const int n = there ? 16 : 0;
#pragma unroll
    for (int i = 0; i < LAST / 64; i++) ptx_cp_async16(to + 128 * (uint32_t) i, from + 128 * i, n);
    ptx_cp_async16(to + 2 * LAST, from + 2 * LAST, LAST + 8 * (int32_t) c < k.rows.cache.head_dim ? n : 0);
}

/* Starts loading the tile that begins at row `first` to stage s, as one cp.async group. */
template <class S>
PI_FN void load_tile(const pi__k_sparse &k, int32_t n_window, unsigned char *shared, int32_t s, int32_t first,
                     int32_t end)
{
    const cache_row *address = (const cache_row *) (shared + S::address);
    if constexpr (S::KIND == COPIED) copy_tile<S>(k, address, S::stage(shared, s), first, end);
    else convert_tile<S>(k, address, S::stage(shared, s), n_window, first, end);
    ptx_cp_async_commit();
}

/* Rounds columns f of a query to F16, to words i % 2 and i % 2 + 2 of operand A, from step s of 16 columns on. i: index
 * of the query's group of 8 heads. */
template <class S, int N> PI_FN void put_columns(const float (&f)[N][2], int i, int s, S &t)
{
#pragma unroll
    for (int n = 0; n < N; n++) t.q[i / 2][s + n / 2][n % 2 * 2 + i % 2] = ptx_half2(clean(f[n][0]), clean(f[n][1]));
}

/* Loads the warp's columns of the block's queries to t.q. head: first head of the block. */
template <class S> PI_FN void load_q(const pi__k_sparse &k, int32_t token, int32_t head, S &t)
{
    const int lane = (int) threadIdx.x % 32, part = (int) threadIdx.x / 32 % PARTS;
    const bool turn = S::KIND != COPIED && stays_rotated(k);
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int32_t h = head + 8 * i + lane / 4;
#pragma unroll
        for (int s = 0; s < STEPS - 1; s += 4) {
            float f[8][2];
            query_columns(k, token, h, PART * part + 16 * s, f);
            if (turn) rotate_columns(f, false);
            put_columns<S>(f, i, s, t);
        }
        float own[2][2];
        query_columns(k, token, h, LAST + 16 * part, own);
        if (turn) {
            float f[8][2];
            query_columns(k, token, h, LAST, f);
            rotate_columns(f, false);
#pragma unroll
            for (int n = 0; n < 16; n++)
                own[n / 2 % 2][n % 2] = n / 4 == part ? f[n / 2][n % 2] : own[n / 2 % 2][n % 2];
        }
        put_columns<S>(own, i, STEPS - 1, t);
    }
}

/* Computes the warp's part of S for the tile at shared address `stage`, to part [PARTS][2][2][M][32]: by column part,
 * half of 16 rows, 8 of these rows, tile of 16 heads, lane. */
template <class S> PI_FN void scores(uint32_t stage, const S &t, float4 *part)
{
    const uint32_t lane = (uint32_t) ptx_thread() % 32, warp = (uint32_t) ptx_thread() / 32, mine = warp % PARTS,
                   half = warp / PARTS;
    float acc[2][S::M][4] = {};
    uint32_t b[4];
    stage += 2 * ((16 * half + lane % 8) * S::LD);
    const uint32_t row = stage + 2 * (PART * mine + lane / 8 * 8);
    /* Alternately for the first and the other 8 rows: two steps of 16 columns. */
#pragma unroll
    for (int i = 0; i < STEPS - 1; i++) {
        const int s = i / 2 * 2;
        ptx_ldmatrix_x4(b, row + 2 * (uint32_t) (i % 2 * 8 * S::LD + 16 * s));
#pragma unroll
        for (int j = 0; j < 2 * S::M; j++) {
            const int m = j % S::M, more = j / S::M;
            ptx_mma_f16(acc[i % 2][m], t.q[m][s + more], {b[2 * more], b[2 * more + 1]});
        }
    }
    /* One step of the last columns, for all 16 rows. */
    ptx_ldmatrix_x4(b, stage + 2 * (lane / 16 * 8 * S::LD + LAST + 16 * mine + lane / 8 % 2 * 8));
#pragma unroll
    for (int j = 0; j < 2 * S::M; j++)
        ptx_mma_f16(acc[j % 2][j / 2], t.q[j / 2][STEPS - 1], {b[j % 2 * 2], b[j % 2 * 2 + 1]});
    /* Write the warp's sums for softmax(). */
    part += (2 * mine + half) * S::SCORES + lane;
#pragma unroll
    for (int j = 0; j < 2 * S::M; j++) {
        const float (&f)[4] = acc[j / S::M][j % S::M];
        part[32 * j] = {f[0], f[1], f[2], f[3]};
    }
}

/* Online softmax of a tile with n valid rows: writes P, and per head the split's new m and l and the factor c of the
 * old O. is_first: the tile is the split's first. 8 threads share a head; each has two rows in each half of 16 rows. A
 * warp has heads r and r + 1, and the two heads 8 further: the layout of the scores. */
template <class S> PI_FN void softmax(const float4 *part, int32_t n, bool is_first, uint16_t *p, float *state, S &t)
{
    const uint32_t lane = (uint32_t) ptx_thread() % 32, warp = (uint32_t) ptx_thread() / 32;
    /* The thread's head is 16 m + 8 high + r. */
    const uint32_t eight = lane / 16, r = warp % 4 * 2 + lane / 8 % 2, high = lane % 2, m = warp / 4;
    const int32_t row = (int32_t) (8 * eight + lane / 2 % 4 * 2);
    if (m >= S::M) return;
    const float2 *from = (const float2 *) part + (eight * S::M + m) * 64 + warp % 4 * 16 + lane % 16;
    float x[4], e[4];
    /* Add the four parts of each score, in order. */
#pragma unroll
    for (int i = 0; i < 2 * PARTS; i++) {
        const float2 v = from[i * S::SCORES * 2];
        float &a = x[i % 2 * 2], &b = x[i % 2 * 2 + 1];
        a = i < 2 ? v.x : a + v.x, b = i < 2 ? v.y : b + v.y;
    }
    /* Mask rows past the end; maximum over the head's 8 threads. */
    for (int i = 0; i < 4 && n < S::TILE; i++) x[i] = row + 16 * (i / 2) + i % 2 < n ? x[i] : PI_MINUS_INF;
    float top = fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3]));
    for (int o = 16; o > 1; o = o == 16 ? 4 : o / 2) top = fmaxf(top, __shfl_xor_sync(PI_FULL, top, o));
    top *= LOG2E;
    /* Move the base only if the maximum exceeds it by more than SLACK. */
    const float old = is_first ? PI_MINUS_INF : t.m;
    t.m = top > old + SLACK ? top : old;
    const float base = t.m == PI_MINUS_INF ? 0.0f : t.m, scale = is_first ? 1.0f : ptx_exp2(old - base);
    for (int i = 0; i < 4; i++) e[i] = ptx_exp2(fmaf(x[i], LOG2E, -base));
    uint32_t *to = (uint32_t *) (p + (2 * m + high) * P_EIGHT + r * LDP + lane / 2 % 4 * 2);
    /* P as F16; l adds the rounded values */
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t h = ptx_half2(e[2 * i], e[2 * i + 1]);
        const float2 f = ptx_floats(h);
        to[place_in_p((uint32_t) i, eight) / 2] = h;
        sum = i ? sum + (f.x + f.y) : f.x + f.y;
    }
    for (int o = 16; o > 1; o = o == 16 ? 4 : o / 2) sum += __shfl_xor_sync(PI_FULL, sum, o);
    t.l = fmaf(is_first ? 0.0f : t.l, scale, sum);
    if (lane & 22) return; /* one of the head's 8 threads writes */
    state += 16 * m + 8 * high + r;
    state[0] = t.m, state[S::HEADS] = t.l, state[2 * S::HEADS] = scale;
}

/* Multiplies O by the heads' factors c, unless all c are 1. */
template <class S> PI_FN void scale_sums(const float *c, S &t)
{
    float by[S::M][2];
    bool any = false;
    c += (uint32_t) ptx_thread() % 32 / 4;
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        by[i / 2][i % 2] = c[8 * i];
        any = any || by[i / 2][i % 2] != 1.0f;
    }
    if (!__any_sync(PI_FULL, any)) return;
#pragma unroll
    for (int i = 0; i < 32 * S::M; i++) t.acc[i / 32][i / 4 % 8][i % 4] *= by[i / 32][i % 4 / 2];
}

/* O = O c + P V for the warp's 64 columns. stage, p: shared addresses of the tile and of P. c: factors per head. */
template <class S> PI_FN void add_pv(uint32_t stage, uint32_t p, const float *c, S &t)
{
    const uint32_t lane = (uint32_t) ptx_thread() % 32, warp = (uint32_t) ptx_thread() / 32;
    scale_sums<S>(c, t);
    p += 2 * (lane / 8 % 2 * P_EIGHT + lane % 8 * LDP + place_in_p(0, lane / 16));
    stage += 2 * (lane % 16 * S::LD + lane / 16 * 8 + warp * WIDTH);
    /* One step per 16 rows of V. */
#pragma unroll
    for (int s = 0; s < S::TILE / 16; s++) {
        uint32_t w[S::M][4];
#pragma unroll
        for (int m = 0; m < S::M; m++)
            ptx_ldmatrix_x4(w[m], p + 2 * (uint32_t) (2 * m * P_EIGHT) + 2 * place_in_p((uint32_t) s, 0));
#pragma unroll
        for (int n = 0; n < 8; n += 2) {
            uint32_t b[4];
            ptx_ldmatrix_x4_trans(b, stage + 32 * (uint32_t) (s * S::LD) + 16 * (uint32_t) n);
#pragma unroll
            for (int i = 0; i < 2 * S::M; i++) {
                const int m = i % S::M, more = i / S::M;
                ptx_mma_f16(t.acc[m][n + more], w[m], {b[2 * more], b[2 * more + 1]});
            }
        }
    }
}

/* Processes the tile in stage s, which begins at row `at` of the list: waits for it, starts the load of the next tile,
 * then computes S, P and O. opens: the tile is the split's first. */
template <class S>
PI_FN void process_tile(const pi__k_sparse &k, int32_t n_window, unsigned char *shared, int32_t s, int32_t at,
                        int32_t end, bool opens, S &t)
{
    float4 *part = (float4 *) (shared + S::part);
    float *state = (float *) (shared + S::state);
    const uint32_t stage = ptx_shared(S::stage(shared, s));
    ptx_cp_async_wait<0>();
    __syncthreads(); /* the tile has arrived, and all warps are done with the previous one */
    if (at + S::TILE < end) load_tile<S>(k, n_window, shared, s ^ 1, at + S::TILE, end);
    scores<S>(stage, t, part);
    __syncthreads();
    softmax<S>(part, end - at, opens, (uint16_t *) (shared + S::p), state, t);
    __syncthreads();
    add_pv<S>(stage, ptx_shared(shared + S::p), state + 2 * S::HEADS, t);
}

/* Processes rows first .. end - 1 of the list, tile by tile. With UNITS the result is the sum of the block's only
 * split: m and l in `state`, O in t.acc. Without UNITS it is the sum of all splits, folded: m and l in `run`, O in
 * t.o. */
template <class S>
PI_FN void walk(const pi__k_sparse &k, int32_t token, unsigned char *shared, int32_t first, int32_t end, ahead<S> &rows,
                S &t)
{
    const list all = list_of(k, token);
    const int32_t split = split_of<S::FEW>(all.n) /* a power of two */, n_window = all.n_window;
    int32_t s = 0;
    if (first < end) load_tile<S>(k, n_window, shared, s, first, end);
#pragma unroll 1
    for (int32_t from = first; from < end; from += KV_SPLIT) {
        bool opens = !(from & (split - 1));
        if (opens && from > first) end_split<S>(k, shared, t);
        advance_lookup<S>(k, token, shared, from, end, rows);
        const int32_t last = min(from + KV_SPLIT, end);
#pragma unroll 1
        for (int32_t at = from; at < last; at += S::TILE, s ^= 1, opens = false)
            process_tile<S>(k, n_window, shared, s, at, end, opens, t);
    }
    if (first < end) end_split<S>(k, shared, t);
    __syncwarp();
}

/* Latent attention of one token and 16 or 32 of its heads. Grid: x = tile of heads, y = token from token0 on, z = with
 * UNITS the KV split, of at most n_splits per list. Shared memory: S::total. */
template <int KIND, bool UNITS>
__global__ void __launch_bounds__(32 * LATENT_WARPS, UNITS ? 2 : 1)
latent(PI_CONSTANT pi__k_sparse k, int32_t token0, int32_t n_splits, uint32_t *arrived)
{
    ptx_wait_dependency();
    using S = shape<KIND, UNITS>;
    PI_SMEM(shared);
    process_list<S>(
        k, token0, n_splits, arrived, shared, [&](int32_t token, int32_t head, S &t) { load_q<S>(k, token, head, t); },
        [&](int32_t token, int32_t first, int32_t end, ahead<S> &rows, S &t) {
            walk<S>(k, token, shared, first, end, rows, t);
        });
}

} /* namespace latent */

#endif
