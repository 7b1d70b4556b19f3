/* Latent attention (DeepSeek V2 to V4) on tensor cores: each token to the rows of a window and to entries, where a row is key and
 * value at once, for all heads (op sparse, which ops.h defines). Where only the first values of long rows are the value, the warp
 * whose columns are behind them adds up nothing.
 *
 * A token's rows are a list: those of the window by position, then its entries. A block takes a token and 32 of its heads,
 * or 16; each of its warps has 64 columns of the queries of all of these, of rows and of results, so that a row in shared
 * memory is read once for S and once for O. It walks the list, TILE rows at a time, which cp.async brings to shared memory
 * STAGES - 1 tiles ahead:
 *
 *     S    each warp multiplies its columns: Q in registers, rows as they are
 *     P    the warps' parts are added up in order; online softmax in powers of 2, 8 threads a head
 *     O    each warp has its columns: O = O c + P V
 *
 *     barrier    O of tile i - 1, S of tile i    barrier    tile i + STAGES - 1 is sent for, P of tile i    barrier ..
 *
 * KV SPLITS. A list is cut into splits of KV_SPLIT rows, or twice, four times .. as many, so that there are at most
 * MOST_SPLITS. Each has a sum (m, l, O) of its own, and the sums are folded in order, by one block or by many that leave
 * theirs in scratch: when all have, the last of them to end share the heads of all tokens (tail.cuh):
 *
 *     300 rows    [ 0..127 ][ 128..255 ][ 256..299 ]
 *     4096 rows   [ 0..255 ][ 256..511 ] ...                     16 splits
 *     4097 rows   [ 0..511 ][ 512..1023 ] ...                    9
 *
 * A token's list, and with it where its splits are, depends on the token alone: that makes a result batch-invariant. Where
 * rows are is found in three steps, KV_SPLIT rows apart, as each needs what the one before loads, and kept in shared memory:
 *
 *     rows that begin     their number is read     their block is read     their address is kept
 *     [ n .. ]            from n + 3 KV_SPLIT      from n + 2 KV_SPLIT     from n + KV_SPLIT
 *
 * Q and P are hi + lo f16 (22 bits), in each mode, for the choice of entries in later layers follows small differences: with
 * Q as one f16, logits of a small model were five times as far from those of floats. Rows of F32 caches are two as well
 * (TWO). Columns and rows that are not there are zeros.
 *
 * Where all rows are of rotated types, they are left so: Q is rotated when it is loaded, and each split's sum is rotated back
 * before it is folded, or left in scratch. Where some are, these are rotated back as they come to shared memory. */
#ifndef PI_SPARSE_KERNELS_CUH
#define PI_SPARSE_KERNELS_CUH

#include "row_cache.cuh"
#include "row_turn.cuh"
#include "tail.cuh"

enum {
    WIDTH = 64,      /* columns of a warp */
    TILE = 16,       /* rows */
    KV_SPLIT = 128,  /* rows, the shortest */
    MOST_SPLITS = 16,
    AHEAD = 2 * KV_SPLIT, /* rows whose addresses are known */
    LDS = TILE + 8,  /* halves from row to row of P */
};
/* Rows of S are kept with columns j and j + 8 side by side, at 2 j: who adds them up wants both. */

/* How rows come to shared memory: F16 as it is; others as f16, those of F32 as two, hi + lo. */
enum { COPIED, ONE, TWO };
static constexpr float LOG2E = 1.44269504088896340736f;
#define PI_MINUS_INF __uint_as_float(0xff800000u)

/* Sizes of a kernel of W warps, and where things are in shared memory, in bytes. Rows are 16 bytes longer than they need: the
 * 8 that ldmatrix reads at a time then lie in different banks. 16 heads a block where a block has one split, as there are
 * such where multiprocessors have nothing to do; where converting rows takes the registers of 16 more; of short rows; and of
 * those that take more than 8 warps, which have 168 registers a thread. */
template <int KIND_, int W_, bool UNITS_> struct shape {
    static constexpr int KIND = KIND_, W = W_, PLANES = KIND == TWO ? 2 : 1;
    static constexpr bool UNITS = UNITS_;
    static constexpr int M = UNITS || W != 8 || KIND != COPIED ? 1 : 2, HEADS = 16 * M; /* tiles of heads */
    static constexpr int STAGES = KIND == COPIED ? 4 : 2;
    static constexpr int THREADS = W * 32, EACH = (KV_SPLIT + THREADS - 1) / THREADS; /* rows that a thread finds at once */
    static constexpr int LD = W * WIDTH + 8;                                 /* halves from row to row */
    static constexpr int PLANE = TILE * LD;                                  /* halves; of TWO, lo is behind hi */
    static constexpr size_t row = 0;                                         /* [STAGES][PLANES][TILE][LD] halves */
    static constexpr size_t address = row + 2 * (size_t) (STAGES * PLANES * PLANE); /* [AHEAD] */
    static constexpr size_t part = address + AHEAD * sizeof(cache_row);      /* S of each warp: [W][M][16][TILE] floats */
    static constexpr size_t p = part + 4 * (size_t) (W * HEADS * TILE);      /* [hi, lo][HEADS][LDS] halves */
    static constexpr size_t state = p + 2 * (size_t) (2 * HEADS * LDS);/* m, l, c: [3][HEADS] floats */
    static constexpr size_t run = state + 4 * (size_t) (3 * HEADS);          /* m, l of a warp's folded splits: [W][M][2][16] */
    static constexpr size_t total = run + 4 * (size_t) (W * M * 2 * 16);

    uint32_t q[2][M][4][4];     /* of the warp's columns: hi, lo */
    float acc[M][8][4];         /* O of a split */
    float o[M][8][4];           /* and of those folded; UNITS: not used */

    static __device__ __forceinline__ uint16_t *stage(unsigned char *shared, int32_t i)
    {
        return (uint16_t *) (shared + row) + i * PLANES * PLANE;
    }
};

/* A token's list of rows. */
struct list {
    int32_t seq, first; /* sequence; position of the first row of the window */
    int32_t n_window, n; /* rows of the window, in all */
    const int32_t *pick; /* entries; NULL: 0, 1, 2 .. */
};

PI_FN list list_of(const pi__k_sparse &k, int32_t token)
{
    const int32_t pos = k.pos[token];
    list l = {k.seq[token], max(k.a.first, pos >= k.a.window ? pos - k.a.window + 1 : 0), 0, 0, nullptr};
    l.n = l.n_window = max(pos - l.first + 1, 0);
    if (!k.entries.cache.base) return l;
    const int32_t seen = (pos + 1) / k.entries.ratio;
    if (k.a.pick) l.pick = k.a.pick + (size_t) token * (size_t) k.a.n_top;
    l.n += l.pick ? min(seen, k.a.n_top) : seen;
    return l;
}

/* true: all rows stay as rotated types store them. */
PI_FN bool stays_turned(const pi__k_sparse &k)
{
    return is_rotated(k.rows.cache.type_k) && (!k.entries.cache.base || is_rotated(k.entries.cache.type_k));
}

/* Rows of a split of a list of n. */
PI_FN int32_t split_of(int32_t n)
{
    int32_t rows = KV_SPLIT;
    while (n > MOST_SPLITS * rows) rows *= 2;
    return rows;
}
/* Splits of it. */
PI_FN int32_t splits_of(int32_t n) { return (n + split_of(n) - 1) / split_of(n); }

/* Rows of the list that a thread looks for, EACH of KV_SPLIT from one on: first which they are of the window or the entries,
 * then which block they are in, then where. */
template <int EACH> struct wanted {
    int32_t row[EACH], block[EACH]; /* row negative: there is none */
};
PI_FN int32_t nth_wanted(int e) { return (int32_t) (threadIdx.x + (unsigned) e * blockDim.x); }
PI_FN const pi__k_rows &rows_of(const pi__k_sparse &k, const list &l, int32_t i) { return i < l.n_window ? k.rows : k.entries; }

template <int EACH> PI_FN void want_rows(const list &l, int32_t from, int32_t end, wanted<EACH> &w)
{
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int32_t n = nth_wanted(e), i = from + n;
        w.row[e] = -1;
        if (n >= KV_SPLIT || i >= end) continue;
        if (i < l.n_window) w.row[e] = l.first + i;
        else w.row[e] = l.pick ? l.pick[i - l.n_window] : i - l.n_window;
    }
}
template <int EACH> PI_FN void look_up_rows(const pi__k_sparse &k, const list &l, int32_t from, wanted<EACH> &w)
{
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (w.row[e] < 0) continue;
        const pi__k_rows &in = rows_of(k, l, from + nth_wanted(e));
        w.block[e] = in.table[(size_t) l.seq * (size_t) in.table_stride + (size_t) (w.row[e] / in.cache.block_size)];
    }
}
template <int EACH>
PI_FN void put_rows(const pi__k_sparse &k, const list &l, int32_t from, const wanted<EACH> &w, cache_row *address)
{
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        if (w.row[e] < 0) continue;
        const int32_t i = from + nth_wanted(e);
        const pi__k_cache &c = rows_of(k, l, i).cache;
        address[i % AHEAD] = cache_token(plane_of(c, false, 0), w.block[e], w.row[e] % c.block_size);
    }
}

/* 8 values of a row to one plane, or two. */
template <bool SPLIT> PI_FN void put8(uint16_t *to, uint16_t *to_low, const float (&f)[8])
{
    uint32_t h[4], l[4];
    for (int j = 0; j < 4; j++) {
        const float x = clean(f[2 * j]), y = clean(f[2 * j + 1]);
        if (SPLIT) ptx_split(x, y, h[j], l[j]);
        else h[j] = ptx_half2(x, y);
    }
    *(uint4 *) to = {h[0], h[1], h[2], h[3]};
    if (SPLIT) *(uint4 *) to_low = {l[0], l[1], l[2], l[3]};
}

/* Tile i of the list, which ends before `end`, as copies in the background: a thread has the same 16 bytes of every fourth row. */
template <class S>
PI_FN void copy_tile(const pi__k_sparse &k, const cache_row *address, uint16_t *stage, int32_t i, int32_t end)
{
    constexpr int CHUNKS = S::W * WIDTH / 8, STEP = S::THREADS / CHUNKS;
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

/* The same, converted: a warp takes every W-th row, by 8 values of a lane. */
template <class S>
PI_FN void convert_tile(const pi__k_sparse &k, const cache_row *address, uint16_t *stage, int32_t n_window, int32_t i, int32_t end)
{
    constexpr int CHUNKS = S::W * WIDTH / 8;
    constexpr uint32_t LANES = CHUNKS < 32 ? (1u << CHUNKS % 32) - 1 : PI_FULL; /* those with a chunk */
    const int lane = ptx_thread() % 32;
#pragma unroll 1 /* more of it spills registers */
    for (int r = ptx_thread() / 32; r < TILE; r += S::W) {
        const int32_t at = i * TILE + r;
        const cache_row row = at < end ? address[at % AHEAD] : cache_row{nullptr, nullptr};
#pragma unroll 1
        for (int c = lane; c < CHUNKS; c += 32) {
            const bool there = at < end && 8 * c < k.rows.cache.head_dim;
            uint16_t *to = stage + r * S::LD + 8 * c;
            float f[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            const int32_t type = at < n_window ? k.rows.cache.type_k : k.entries.cache.type_k; /* of all lanes */
            if (there) cache_get8(type, row, c, f);
            if (is_rotated(type) && !stays_turned(k)) turn8_back(f, lane, LANES);
            put8<S::KIND == TWO>(to, to + S::PLANE, f);
        }
    }
}

/* Tile i to stage s, if it begins before `end`; one group of copies. */
template <class S>
PI_FN void load_tile(const pi__k_sparse &k, int32_t n_window, unsigned char *shared, int32_t i, int32_t s, int32_t end)
{
    const cache_row *address = (const cache_row *) (shared + S::address);
    if (i * TILE < end) {
        if constexpr (S::KIND == COPIED) copy_tile<S>(k, address, S::stage(shared, s), i, end);
        else convert_tile<S>(k, address, S::stage(shared, s), n_window, i, end);
    }
    ptx_cp_async_commit();
}

/* The warp's columns, from col0 on, of the block's queries from head on. */
template <class S> PI_FN void load_q(const pi__k_sparse &k, int32_t token, int32_t head, int32_t col0, S &t)
{
    const int lane = (int) threadIdx.x % 32;
    const bool turn = S::KIND != COPIED && stays_turned(k);
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) { /* words i % 2 and i % 2 + 2 of A */
        float f[8][2];
        const int32_t h = head + 8 * i + lane / 4;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const int32_t col = col0 + n * 8 + lane % 4 * 2;
            const bool there = h < k.a.n_head && col < k.a.dim;
            const float2 x = there ? *(const float2 *) (k.a.q + token * k.a.ldq + (int64_t) h * k.a.dim + col) : float2{0, 0};
            f[n][0] = x.x, f[n][1] = x.y;
        }
        if (turn) turn_columns(f, false);
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const float x = clean(f[n][0]), y = clean(f[n][1]);
            const uint32_t high = ptx_half2(x, y);
            t.q[0][i / 2][n / 2][n % 2 * 2 + i % 2] = high;
            t.q[1][i / 2][n / 2][n % 2 * 2 + i % 2] = ptx_half2(x - ptx_floats(high).x, y - ptx_floats(high).y);
        }
    }
}

/* S += Q K^T of two steps of 16 columns; b: 8 rows of K. */
template <class S> PI_FN void add_scores(const uint32_t (&q)[S::M][4][4], int s, const uint32_t (&b)[4], float (&acc)[S::M][4])
{
#pragma unroll
    for (int m = 0; m < S::M; m++) ptx_mma_f16(acc[m], q[m][s], {b[0], b[1]});
#pragma unroll
    for (int m = 0; m < S::M; m++) ptx_mma_f16(acc[m], q[m][s + 1], {b[2], b[3]});
}

/* The warp's part of S, of its columns at row: to part [M][16][TILE]. */
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
        const int m = i / 2, r = i % 2 * 2; /* 8 rows further the second time */
        *(float4 *) (to + 8 * i * TILE) = {acc[0][m][r], acc[1][m][r], acc[0][m][r + 1], acc[1][m][r + 1]};
    }
}

/* Softmax of a tile, whose first n rows are there, the split's first if so: P, and the split's new m, l and c of each head. A
 * thread has two columns. */
template <class S> PI_FN void softmax(const float *part, int32_t n, bool is_first, uint16_t *p, float *state)
{
    const int thread = ptx_thread(), j = thread % 8;
    float *m = state, *l = m + S::HEADS, *c = l + S::HEADS;
#pragma unroll 1
    for (int h = thread / 8; h < S::HEADS; h += S::THREADS / 8) {
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
        uint32_t high, low;
        ptx_split(e[0], e[1], high, low);
        uint16_t *to = p + h * LDS + j;
        to[0] = (uint16_t) high, to[8] = (uint16_t) (high >> 16);
        to += S::HEADS * LDS;
        to[0] = (uint16_t) low, to[8] = (uint16_t) (low >> 16);
        float sum = e[0] + e[1];
        for (int o = 4; o; o >>= 1) sum += __shfl_xor_sync(PI_FULL, sum, o);
        __syncwarp(); /* all lanes have the old m */
        if (j) continue;
        const float scale = ptx_exp2(old - base);
        m[h] = top;
        l[h] = fmaf(is_first ? 0.0f : l[h], scale, sum);
        c[h] = scale;
    }
}

/* O = O c + P V for the warp's columns at row. */
template <class S> PI_FN void weigh(uint32_t row, uint32_t p, const float *c, S &t)
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
            if (S::KIND == TWO) ptx_mma_f16(o, w[0][m], {bl[2 * h], bl[2 * h + 1]});
            ptx_mma_f16(o, w[1][m], {b[2 * h], b[2 * h + 1]});
            ptx_mma_f16(o, w[0][m], {b[2 * h], b[2 * h + 1]});
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------- results */

/* Scales of the sums so far and of a split's when they are folded, and the new maximum. */
struct fold_by {
    float m, run, split;
};
PI_FN fold_by fold(float m_run, float m_split)
{
    float m = fmaxf(m_run, m_split), base = m == PI_MINUS_INF ? 0.0f : m;
    return {m, ptx_exp2(m_run - base), ptx_exp2(m_split - base)};
}

/* What a head's sums are multiplied by in the end: the sink joins the sum, which divides. */
PI_FN float factor_of(const pi__k_sparse &k, int32_t head, float m, float l)
{
    const float sink = k.a.sinks ? k.a.sinks[head] * LOG2E : PI_MINUS_INF, top = fmaxf(m, sink);
    const float base = top == PI_MINUS_INF ? 0.0f : top, scale = ptx_exp2(m - base), all = fmaf(l, scale, ptx_exp2(sink - base));
    return all > 0.0f ? scale / all : 0.0f; /* padding sees nothing */
}

/* Where columns d and d + 1 of a head's result are. */
PI_FN float2 *result_at(const pi__k_sparse &k, int32_t token, int32_t head, int32_t d)
{
    return (float2 *) (k.a.out + token * k.a.ldo + (int64_t) head * k.a.dim + d);
}

/* Columns d and d + 1 of a head's result; the last ones are rotated backwards. */
PI_FN void put(const pi__k_sparse &k, int32_t token, int32_t head, int32_t d, float x, float y)
{
    const pi__sparse &a = k.a;
    const int32_t i = (d - (a.dim_v - a.n_rot)) / 2;
    const float *rope = a.rope + (size_t) token * (size_t) a.n_rot;
    if (d >= a.dim_v - a.n_rot) rotate_pair(x, y, rope[i], -rope[a.n_rot / 2 + i]);
    *result_at(k, token, head, d) = {x, y};
}

/* A KV split's sum in scratch: m [16], l [16], O [16, dim]; units in the order of the launch's tokens, 16 heads, splits. */
PI_FN float *unit_of(const pi__k_sparse &k, int32_t token, int32_t tile, int32_t split, int32_t n_splits)
{
    const size_t tiles = (size_t) (k.a.n_head + 15) / 16, unit = ((size_t) token * tiles + (size_t) tile) * (size_t) n_splits;
    return (float *) k.scratch + (unit + (size_t) split) * (size_t) (16 * (k.a.dim + 2));
}

template <int M> PI_FN void clear(float (&x)[M][8][4])
{
#pragma unroll
    for (int i = 0; i < 32 * M; i++) x[i / 32][i / 4 % 8][i % 4] = 0;
}

/* Head, and the first column, of part i of what the thread has of results: 16 values of a head, pairs 8 columns apart. */
template <class S> PI_FN int32_t head_of_part(int i)
{
    return ((int32_t) blockIdx.x * S::M + i / 2) * 16 + (int32_t) threadIdx.x % 32 / 4 + 8 * (i % 2);
}
PI_FN int32_t first_column() { return (int32_t) threadIdx.x / 32 * WIDTH + 2 * ((int32_t) threadIdx.x % 4); }

/* A split's sum turned back, where rows stayed as they are stored. */
template <class S> PI_FN void turn_sum(const pi__k_sparse &k, S &t)
{
    const bool turn = S::KIND != COPIED && stays_turned(k);
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int m = i / 2, r = i % 2;
        float f[8][2];
#pragma unroll
        for (int j = 0; j < 16; j++) f[j / 2][j % 2] = t.acc[m][j / 2][2 * r + j % 2];
        if (turn) turn_columns(f, true);
#pragma unroll
        for (int j = 0; j < 16; j++) t.acc[m][j / 2][2 * r + j % 2] = f[j / 2][j % 2];
    }
}

/* Folds a split's sum into those so far: run m, l [M][2][16] and o. */
template <class S> PI_FN void fold_split(const float *state, float *run, S &t)
{
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int m = i / 2, r = i % 2, h = (int) threadIdx.x % 32 / 4 + 8 * r;
        float *m_run = run + 32 * m + h, *l_run = m_run + 16;
        const fold_by f = fold(*m_run, state[16 * m + h]);
        __syncwarp(); /* all lanes have the old m */
        if (threadIdx.x % 4 == 0) {
            *m_run = f.m;
            *l_run = fmaf(state[S::HEADS + 16 * m + h], f.split, *l_run * f.run);
        }
#pragma unroll
        for (int j = 0; j < 16; j++) {
            float &to = t.o[m][j / 2][2 * r + j % 2];
            to = fmaf(t.acc[m][j / 2][2 * r + j % 2], f.split, to * f.run);
        }
    }
    clear(t.acc);
}

/* A split has ended. */
template <class S> PI_FN void end_split(const pi__k_sparse &k, unsigned char *shared, S &t)
{
    float *run = (float *) (shared + S::run) + ptx_thread() / 32 * S::M * 32;
    turn_sum<S>(k, t); /* of UNITS the only one */
    if (!S::UNITS) fold_split<S>((const float *) (shared + S::state), run, t);
}

/* Rows that are on their way to be found: KV_SPLIT of which the blocks are known, and the numbers of those behind them. */
template <class S> struct ahead {
    wanted<S::EACH> next, later;
};

/* Rows from `from` on begin: those KV_SPLIT further are found. */
template <class S>
PI_FN void look_ahead(const pi__k_sparse &k, int32_t token, unsigned char *shared, int32_t from, int32_t end, ahead<S> &a)
{
    const list l = list_of(k, token); /* again, instead of holding it in registers all the time */
    put_rows(k, l, from + KV_SPLIT, a.next, (cache_row *) (shared + S::address)); /* in place of those before, all of them there */
    a.next = a.later;
    look_up_rows(k, l, from + 2 * KV_SPLIT, a.next);
    want_rows(l, from + 3 * KV_SPLIT, end, a.later);
}

/* A walk's place: a tile, its stage and that of the tile before, which is the next to be filled. */
struct place {
    int32_t i, stage, before;
};
template <class S> PI_FN void go_on(place &at)
{
    at.i++;
    at.before = at.stage;
    at.stage = at.stage + 1 == S::STAGES ? 0 : at.stage + 1;
}

/* The tile at hand is there, and P of the one before. */
template <class S> PI_FN void arrive()
{
    ptx_cp_async_wait<S::STAGES - 2>();
    __syncthreads();
}

/* The warp's columns of a stage. */
template <class S> PI_FN uint32_t columns_of(unsigned char *shared, int32_t stage)
{
    return ptx_shared(S::stage(shared, stage)) + 2 * (uint32_t) (ptx_thread() / 32 * WIDTH);
}

/* O of the tile before. */
template <class S> PI_FN void add_values(const pi__k_sparse &k, unsigned char *shared, const place &at, S &t)
{
    if (S::W <= 8 || ptx_thread() / 32 * WIDTH < k.a.dim_v)
        weigh<S>(columns_of<S>(shared, at.before), ptx_shared(shared + S::p), (const float *) (shared + S::state) + 2 * S::HEADS, t);
}

/* S and P of the tile at hand, the split's first if so. */
template <class S>
PI_FN void see_tile(const pi__k_sparse &k, int32_t n_window, unsigned char *shared, const place &at, int32_t end, bool is_first, S &t)
{
    float *part = (float *) (shared + S::part);
    scores<S>(columns_of<S>(shared, at.stage), t, part + ptx_thread() / 32 * S::HEADS * TILE);
    __syncthreads(); /* all of S is there, and all are done with the tile before, its P and its state */
    load_tile<S>(k, n_window, shared, at.i + S::STAGES - 1, at.before, end);
    softmax<S>(part, end - at.i * TILE, is_first, (uint16_t *) (shared + S::p), (float *) (shared + S::state));
}

/* The list's tiles from first on, which ends before `end`: acc, state, and without UNITS run and the folded sums. */
template <class S>
PI_FN void walk(const pi__k_sparse &k, int32_t token, unsigned char *shared, int32_t first, int32_t end, ahead<S> &rows, S &t)
{
    const list all = list_of(k, token);
    const int32_t split = split_of(all.n) /* 2^n */, n_window = all.n_window, begin = first / TILE, last = (end + TILE - 1) / TILE;
    place at = {begin, 0, S::STAGES - 1};
    for (int32_t i = 0; i < S::STAGES - 1; i++) load_tile<S>(k, n_window, shared, begin + i, i, end);
#pragma unroll 1
    while (at.i < last) {
        const bool opens = !(at.i * TILE & (split - 1));
        arrive<S>();
        if (at.i > begin) add_values<S>(k, shared, at, t);
        if (at.i > begin && opens) end_split<S>(k, shared, t);
        look_ahead<S>(k, token, shared, at.i * TILE, end, rows);
        see_tile<S>(k, n_window, shared, at, end, opens, t);
        go_on<S>(at);
#pragma unroll 1
        for (; at.i < last && at.i % (KV_SPLIT / TILE); go_on<S>(at)) {
            arrive<S>();
            add_values<S>(k, shared, at, t);
            see_tile<S>(k, n_window, shared, at, end, false, t);
        }
    }
    arrive<S>();
    if (last > begin) {
        add_values<S>(k, shared, at, t);
        end_split<S>(k, shared, t);
    }
    __syncwarp();
}

/* What the block leaves: with UNITS a unit, else results. any: there are rows. */
template <class S>
PI_FN void put_all(const pi__k_sparse &k, const unsigned char *shared, int32_t token, int32_t token0, int32_t n_splits, bool any,
                   const S &t)
{
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    const float *state = (const float *) (shared + S::state), *run = (const float *) (shared + S::run) + warp * S::M * 32;
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int m = i / 2, r = i % 2, h = lane / 4 + 8 * r;
        const int32_t head = head_of_part<S>(i);
        if (head >= k.a.n_head) continue;
        float *unit = S::UNITS ? unit_of(k, token - token0, head / 16, (int32_t) blockIdx.z, n_splits) : nullptr;
        if (S::UNITS && threadIdx.x < 32 && lane % 4 == 0)
            unit[h] = any ? state[h] : PI_MINUS_INF, unit[16 + h] = any ? state[S::HEADS + h] : 0.0f;
        const float by = S::UNITS ? 1.0f : factor_of(k, head, run[32 * m + h], run[32 * m + 16 + h]);
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const int32_t d = first_column() + 8 * n;
            if (d >= k.a.dim_v) continue;
            if (S::UNITS) {
                *(float2 *) (unit + 32 + h * k.a.dim + d) = {t.acc[m][n][2 * r], t.acc[m][n][2 * r + 1]};
                continue;
            }
            put(k, token, head, d, t.o[m][n][2 * r] * by, t.o[m][n][2 * r + 1] * by);
        }
    }
}

/* Folds the KV splits of a token's head in order: a thread two columns. */
PI_FN void fold_head(const pi__k_sparse &k, int32_t token0, int32_t n_splits, int32_t token, int32_t head)
{
    const int32_t d = 2 * (int32_t) threadIdx.x, n = max(splits_of(list_of(k, token).n), 1);
    if (d >= k.a.dim_v) return;
    float m = PI_MINUS_INF, l = 0, x = 0, y = 0;
#pragma unroll 4 /* their loads are under way at once */
    for (int32_t i = 0; i < n; i++) {
        const float *unit = unit_of(k, token - token0, head / 16, i, n_splits);
        const float2 o = *(const float2 *) (unit + 32 + head % 16 * k.a.dim + d);
        const fold_by f = fold(m, unit[head % 16]);
        m = f.m;
        l = fmaf(unit[16 + head % 16], f.split, l * f.run);
        x = fmaf(o.x, f.split, x * f.run);
        y = fmaf(o.y, f.split, y * f.run);
    }
    const float by = factor_of(k, head, m, l);
    put(k, token, head, d, x * by, y * by);
}

/* What all blocks left in scratch becomes results, by the last of them to end: as many as there are heads of tokens, if that leaves
 * the others room. */
PI_CALL void combine(const pi__k_sparse &k, int32_t token0, int32_t n_splits, uint32_t *arrived, uint32_t *at)
{
    const uint32_t total = blocks_of_launch(), heads = gridDim.y * (uint32_t) k.a.n_head, least = PI__K_TAIL_STAY;
    const uint32_t most = ptx_blocks_that_wait(min(max(heads, least), max((uint32_t) k.n_sm / 2, least)));
    const tail_share s = arrive_of(arrived, total, min(most, total), at);
    for (uint32_t i = (uint32_t) s.part; s.parts && i < heads; i += (uint32_t) s.parts)
        fold_head(k, token0, n_splits, token0 + (int32_t) (i / (uint32_t) k.a.n_head), (int32_t) (i % (uint32_t) k.a.n_head));
}

/* Two blocks of 9 warps that copy rows have room in a multiprocessor's shared memory. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
enum { LONG_TWICE = 1 };
#else
enum { LONG_TWICE = 0 };
#endif

/* A block: 16 or 32 heads, blockIdx.x; a token from token0 on, blockIdx.y; with UNITS a KV split, blockIdx.z, of which a
 * list has at most n_splits. */
template <int KIND, int W, bool UNITS>
__global__ void __launch_bounds__(W * 32, UNITS && (W <= 8 || (KIND == COPIED && LONG_TWICE)) ? 2 : 1)
sparse(PI_CONSTANT pi__k_sparse k, int32_t token0, int32_t n_splits, uint32_t *arrived)
{
    ptx_take_turn();
    using S = shape<KIND, W, UNITS>;
    PI_SMEM(shared);
    const int32_t token = token0 + (int32_t) blockIdx.y;
    const list l = list_of(k, token);
    const int32_t first = UNITS ? (int32_t) blockIdx.z * split_of(l.n) : 0, end = UNITS ? min(l.n, first + split_of(l.n)) : l.n;
    if (UNITS && first > 0 && first >= l.n) { /* its list has no such split. In two places, as meeting again takes a register */
        combine(k, token0, n_splits, arrived, (uint32_t *) shared);
        return;
    }
    S t;
    clear(t.acc);
    clear(t.o);
    float *run = (float *) (shared + S::run) + threadIdx.x / 32 * S::M * 32;
    for (int m = 0; m < S::M; m++) run[32 * m + (int) threadIdx.x % 32] = threadIdx.x % 32 < 16 ? PI_MINUS_INF : 0.0f;
    wanted<S::EACH> now = {};
    ahead<S> rows = {};
    want_rows(l, first, end, now);
    want_rows(l, first + KV_SPLIT, end, rows.next);
    want_rows(l, first + 2 * KV_SPLIT, end, rows.later);
    look_up_rows(k, l, first, now);
    look_up_rows(k, l, first + KV_SPLIT, rows.next);
    load_q<S>(k, token, (int32_t) blockIdx.x * S::HEADS, (int32_t) threadIdx.x / 32 * WIDTH, t);
    put_rows(k, l, first, now, (cache_row *) (shared + S::address));
    __syncthreads();
    walk<S>(k, token, shared, first, end, rows, t);
    put_all<S>(k, shared, token, token0, n_splits, end > first, t);
    if (UNITS) combine(k, token0, n_splits, arrived, (uint32_t *) shared);
}

#endif
