/* Attention of tokens to lists of rows that are both key and value (op sparse in ops.h): code shared by its kernels.
 * sparse_kernels.cuh handles all kinds of rows. latent_kernels.cuh handles the long rows of latent attention where
 * products need not be exact. Entry point: process_list(), the body of both kernels.
 *
 * A token's list has the cache rows of its window by position, then its entries (compressed rows). A thread block has
 * one token and 16 or more of its heads. It streams the list through shared memory, S::TILE rows at a time. The
 * template parameter S of the functions is the kernel's shape: its constants, shared memory offsets and accumulators.
 *
 * KV SPLITS. A list is divided into splits of KV_SPLIT rows; the length is doubled until there are at most MAX_SPLITS.
 * Each split has its own sum: maximum m, sum of exponentials l, weighted rows O. The splits' sums are folded in order.
 * Without S::UNITS one block computes all splits of a list and folds them. With S::UNITS each block computes one split
 * and stores its sum ("unit") to scratch. Then the last-arriving blocks of the launch divide the heads of all tokens
 * (tail.cuh) and fold their units:
 *
 *     300 rows    [ 0..127 ][ 128..255 ][ 256..299 ]
 *     4096 rows   [ 0..255 ][ 256..511 ] ...                     16 splits
 *     4097 rows   [ 0..511 ][ 512..1023 ] ...                    9
 *
 * With S::FEW, lists of more than 8 splits use splits of twice the length: the units of 128 heads in scratch are twice
 * the bytes of a split's rows.
 *
 * A token's list and its splits depend on the token alone, so results are batch-invariant. Addresses of rows are found
 * in three steps, KV_SPLIT rows apart, since each step needs the loads of the one before. The addresses are in shared
 * memory:
 *
 *     current row     row index is read     block index is read     address is stored
 *     [ n .. ]        from n + 3 KV_SPLIT   from n + 2 KV_SPLIT     from n + KV_SPLIT
 *
 * If all rows are of rotated types, they stay rotated: Q is rotated when it is loaded, and each split's sum is
 * unrotated before it is folded or stored to scratch. If only some rows are rotated, they are unrotated on their way to
 * shared memory. */
#ifndef PI_SPARSE_CUH
#define PI_SPARSE_CUH

#include "row_cache.cuh"
#include "row_turn.cuh"
#include "tail.cuh"

namespace sparse {

enum {
    WIDTH = 64,      /* columns of the results per warp */
    KV_SPLIT = 128,  /* rows of the shortest split */
    MAX_SPLITS = 16,
    AHEAD = 2 * KV_SPLIT, /* row addresses in shared memory */
};

/* Conversion of rows on their way to shared memory. COPIED: rows are F16 and copied unchanged. ONE: other types,
 * converted to F16. TWO: F32, converted to two F16 per value, hi + lo. */
enum { COPIED, ONE, TWO };
static constexpr float LOG2E = 1.44269504088896340736f;
#define PI_MINUS_INF __uint_as_float(0xff800000u)

/* A token's list of cache rows: n_window rows of the window, then entries. */
struct list {
    int32_t seq, first; /* sequence; position of the window's first row */
    int32_t n_window, n; /* rows of the window; rows of the list */
    const int32_t *pick; /* row index of each entry; NULL = 0, 1, 2 .. */
};

/* Returns the list of token `token` of the batch. */
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

/* Returns true if all rows are of rotated types, and therefore stay rotated in shared memory. */
PI_FN bool stays_rotated(const pi__k_sparse &k)
{
    return is_rotated(k.rows.cache.type_k) && (!k.entries.cache.base || is_rotated(k.entries.cache.type_k));
}

/* Returns the number of rows of a split of a list of n rows. */
template <bool FEW> PI_FN int32_t split_of(int32_t n)
{
    int32_t rows = FEW && n > 8 * KV_SPLIT ? 2 * KV_SPLIT : KV_SPLIT;
    while (n > MAX_SPLITS * rows) rows *= 2;
    return rows;
}
/* Returns the number of splits of a list of n rows. */
template <bool FEW> PI_FN int32_t splits_of(int32_t n) { return (n + split_of<FEW>(n) - 1) / split_of<FEW>(n); }
/* Returns the max number of splits of any list of up to n rows. */
template <bool FEW> static inline int32_t most_splits(int32_t n)
{
    const bool some = FEW && n > 8 * KV_SPLIT;
    const int32_t rows = some ? 2 * KV_SPLIT : KV_SPLIT, splits = min((n + rows - 1) / rows, (int32_t) MAX_SPLITS);
    return some ? max(splits, 8) : splits;
}

/* Address lookup in progress, for KV_SPLIT rows of the list, EACH rows per thread: want_rows() reads row indices,
 * lookup_rows() reads block ids from the block table, put_rows() stores the addresses to shared memory. */
template <int EACH> struct wanted {
    int32_t row[EACH], block[EACH]; /* row index in the sequence, negative = no row; block id */
};
/* nth_wanted(e): index, among the KV_SPLIT rows, of the thread's row e. rows_of(i): cache of row i of the list. */
PI_FN int32_t nth_wanted(int e) { return (int32_t) (threadIdx.x + (unsigned) e * blockDim.x); }
PI_FN const pi__k_rows &rows_of(const pi__k_sparse &k, const list &l, int32_t i)
{
    return i < l.n_window ? k.rows : k.entries;
}

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
template <int EACH> PI_FN void lookup_rows(const pi__k_sparse &k, const list &l, int32_t from, wanted<EACH> &w)
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

/* Stores 8 values of a row as F16 to `to`; SPLIT: as hi to `to` and lo to `to_low`. */
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

/* Converts the tile of S::TILE rows of the list, from `first` on, to `stage`; rows from `end` on become zeros. Warp w
 * converts rows w, w + S::W, ..; a lane converts 8 values at a time. address: from put_rows(). */
template <class S>
PI_FN void convert_tile(const pi__k_sparse &k, const cache_row *address, uint16_t *stage, int32_t n_window,
                        int32_t first, int32_t end)
{
    /* mask of the lanes that convert one of the last 8-value chunks */
    constexpr uint32_t LAST = S::CHUNKS % 32 ? (1u << S::CHUNKS % 32) - 1 : PI_FULL;
    const int lane = ptx_thread() % 32;
#pragma unroll 1 /* unrolling spills registers */
    for (int r = ptx_thread() / 32; r < S::TILE; r += S::W) {
        const int32_t at = first + r;
        const cache_row row = at < end ? address[at % AHEAD] : cache_row{nullptr, nullptr};
#pragma unroll 1
        for (int c = lane; c < S::CHUNKS; c += 32) {
            const bool there = at < end && 8 * c < k.rows.cache.head_dim;
            uint16_t *to = stage + r * S::LD + 8 * c;
            float f[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            /* the type is equal for all lanes */
            const int32_t type = at < n_window ? k.rows.cache.type_k : k.entries.cache.type_k;
            if (there) cache_get8(type, row, c, f);
            if (is_rotated(type) && !stays_rotated(k)) unrotate8(f, lane, c - lane + 32 > S::CHUNKS ? LAST : PI_FULL);
            put8<S::KIND == TWO>(to, to + S::PLANE, f);
        }
    }
}

/* Loads N groups of 8 columns of a head's query, from col0 on: f[n][p] is column col0 + 8 n + 2 (lane % 4) + p. Columns
 * and heads beyond the end are 0. */
template <int N>
PI_FN void query_columns(const pi__k_sparse &k, int32_t token, int32_t head, int32_t col0, float (&f)[N][2])
{
    const int lane = (int) threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int32_t col = col0 + n * 8 + lane % 4 * 2;
        const bool there = head < k.a.n_head && col < k.a.dim;
        const float2 x = there ? *(const float2 *) (k.a.q + token * k.a.ldq + (int64_t) head * k.a.dim + col)
                               : float2 {0, 0};
        f[n][0] = x.x, f[n][1] = x.y;
    }
}

/* --------------------------------------------------------------------------------------------------------- results */

/* Factors to fold a split's softmax sum into the running sum: the new maximum m, the factor of the running sum, the
 * factor of the split's sum. Exponents are base 2. */
struct fold_by {
    float m, run, split;
};
PI_FN fold_by fold(float m_run, float m_split)
{
    float m = fmaxf(m_run, m_split), base = m == PI_MINUS_INF ? 0.0f : m;
    return {m, ptx_exp2(m_run - base), ptx_exp2(m_split - base)};
}

/* Returns the final factor of a head's O: 1 / l. If the head has a sink, its weight is added to l. m, l: of all
 * splits. */
PI_FN float factor_of(const pi__k_sparse &k, int32_t head, float m, float l)
{
    const float sink = k.a.sinks ? k.a.sinks[head] * LOG2E : PI_MINUS_INF, top = fmaxf(m, sink);
    const float base = top == PI_MINUS_INF ? 0.0f : top, scale = ptx_exp2(m - base),
                all = fmaf(l, scale, ptx_exp2(sink - base));
    return all > 0.0f ? scale / all : 0.0f; /* 0 for padding tokens, which attend to no row */
}

/* Returns the address of columns d and d + 1 of a head's result. */
PI_FN float2 *result_at(const pi__k_sparse &k, int32_t token, int32_t head, int32_t d)
{
    return (float2 *) (k.a.out + token * k.a.ldo + (int64_t) head * k.a.dim + d);
}

/* Returns columns d and d + 1 (x, y) of a token's result, after inverse RoPE if they are among the last n_rot
 * columns. */
PI_FN float2 unrotated(const pi__k_sparse &k, int32_t token, int32_t d, float x, float y)
{
    const pi__sparse &a = k.a;
    const int32_t i = (d - (a.dim_v - a.n_rot)) / 2;
    const float *rope = a.rope + (size_t) token * (size_t) a.n_rot;
    if (d >= a.dim_v - a.n_rot) rotate_pair(x, y, rope[i], -rope[a.n_rot / 2 + i]);
    return {x, y};
}

/* Destination of packed results: one row for each head group of each token (pi__k_groups). */
struct group_row {
    int64_t row;
    uint16_t *words;
    float *factor; /* factor of row 0 */
};
PI_FN group_row row_of_group(const pi__k_groups &g, int32_t group, int32_t token)
{
    const size_t at = (size_t) group * g.step;
    return {(int64_t) group * g.rows + token, (uint16_t *) (g.words + at), (float *) (g.factor + at)};
}

/* Returns the address of a KV split's sum (unit) in scratch: m [16], l [16], O [16, dim], for a tile of 16 heads. Units
 * are ordered by token of the launch, tile of heads, split. token: index in the launch. */
PI_FN float *unit_of(const pi__k_sparse &k, int32_t token, int32_t tile, int32_t split, int32_t n_splits)
{
    const size_t tiles = (size_t) (k.a.n_head + 15) / 16,
                 unit = ((size_t) token * tiles + (size_t) tile) * (size_t) n_splits;
    return (float *) k.scratch + (unit + (size_t) split) * (size_t) (16 * (k.a.dim + 2));
}

template <int M> PI_FN void clear(float (&x)[M][8][4])
{
#pragma unroll
    for (int i = 0; i < 32 * M; i++) x[i / 32][i / 4 % 8][i % 4] = 0;
}

/* head_of_part() returns the head of part i of the thread's results. A part is 16 values of a head, in pairs 8 columns
 * apart. first_column() returns the first column of all parts. */
template <class S> PI_FN int32_t head_of_part(int i)
{
    return ((int32_t) blockIdx.x * S::M + i / 2) * 16 + (int32_t) threadIdx.x % 32 / 4 + 8 * (i % 2);
}
PI_FN int32_t first_column() { return (int32_t) threadIdx.x / 32 * WIDTH + 2 * ((int32_t) threadIdx.x % 4); }

/* Unrotates the split's sum t.acc, if the rows stayed rotated. */
template <class S> PI_FN void unrotate_sum(const pi__k_sparse &k, S &t)
{
    const bool turn = S::KIND != COPIED && stays_rotated(k);
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int m = i / 2, r = i % 2;
        float f[8][2];
#pragma unroll
        for (int j = 0; j < 16; j++) f[j / 2][j % 2] = t.acc[m][j / 2][2 * r + j % 2];
        if (turn) rotate_columns(f, true);
#pragma unroll
        for (int j = 0; j < 16; j++) t.acc[m][j / 2][2 * r + j % 2] = f[j / 2][j % 2];
    }
}

/* Folds a split's sum (m and l in `state`, O in t.acc) into the running sums: m and l in run [M][m, l][16], O in t.o.
 * Then clears t.acc. */
template <class S> PI_FN void fold_split(const float *state, float *run, S &t)
{
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int m = i / 2, r = i % 2, h = (int) threadIdx.x % 32 / 4 + 8 * r;
        float *m_run = run + 32 * m + h, *l_run = m_run + 16;
        const fold_by f = fold(*m_run, state[16 * m + h]);
        __syncwarp(); /* all lanes have read the old m */
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

/* Ends a split: unrotates its sum and folds it. */
template <class S> PI_FN void end_split(const pi__k_sparse &k, unsigned char *shared, S &t)
{
    float *run = (float *) (shared + S::run) + ptx_thread() / 32 * S::M * 32;
    unrotate_sum<S>(k, t); /* with UNITS, this is the block's only split */
    if (!S::UNITS) fold_split<S>((const float *) (shared + S::state), run, t);
}

/* Address lookups in progress: `next` has KV_SPLIT rows with known blocks, `later` the row indices of the following
 * KV_SPLIT rows. */
template <class S> struct ahead {
    wanted<S::EACH> next, later;
};

/* Advances the lookup when the walk reaches row `from`: stores the addresses of KV_SPLIT rows, from row from + KV_SPLIT
 * on. Then reads the blocks of the next KV_SPLIT rows, and the indices of the KV_SPLIT rows after these. */
template <class S>
PI_FN void advance_lookup(const pi__k_sparse &k, int32_t token, unsigned char *shared, int32_t from, int32_t end,
                          ahead<S> &a)
{
    const list l = list_of(k, token); /* computed again, to save registers */
    /* overwrites addresses that are no longer needed */
    put_rows(k, l, from + KV_SPLIT, a.next, (cache_row *) (shared + S::address));
    a.next = a.later;
    lookup_rows(k, l, from + 2 * KV_SPLIT, a.next);
    want_rows(l, from + 3 * KV_SPLIT, end, a.later);
}

/* Starts the lookup. now: blocks of the KV_SPLIT rows from `first` on. rows.next: blocks of the next KV_SPLIT rows.
 * rows.later: indices of the KV_SPLIT rows after these. */
template <class S>
PI_FN void begin_lookup(const pi__k_sparse &k, const list &l, int32_t first, int32_t end, wanted<S::EACH> &now,
                        ahead<S> &rows)
{
    want_rows(l, first, end, now);
    want_rows(l, first + KV_SPLIT, end, rows.next);
    want_rows(l, first + 2 * KV_SPLIT, end, rows.later);
    lookup_rows(k, l, first, now);
    lookup_rows(k, l, first + KV_SPLIT, rows.next);
}

/* Clears the running sums (m = -inf, l = 0 in shared memory, O = 0) and the split's O. */
template <class S> PI_FN void begin_sums(unsigned char *shared, S &t)
{
    float *run = (float *) (shared + S::run) + threadIdx.x / 32 * S::M * 32;
    clear(t.acc);
    clear(t.o);
    for (int m = 0; m < S::M; m++) run[32 * m + (int) threadIdx.x % 32] = threadIdx.x % 32 < 16 ? PI_MINUS_INF : 0.0f;
}

/* Stores the sum of the block's split to scratch as a unit, with token0 as the first token of the launch. any: false =
 * the split has no rows; an empty sum is stored. */
template <class S>
PI_FN void put_unit(const pi__k_sparse &k, const unsigned char *shared, int32_t token, int32_t token0, int32_t n_splits,
                    bool any, const S &t)
{
    const int lane = (int) threadIdx.x % 32;
    const float *state = (const float *) (shared + S::state);
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int m = i / 2, r = i % 2, h = lane / 4 + 8 * r;
        const int32_t head = head_of_part<S>(i);
        if (head >= k.a.n_head) continue;
        float *unit = unit_of(k, token - token0, head / 16, (int32_t) blockIdx.z, n_splits);
        if (threadIdx.x < 32 && lane % 4 == 0)
            unit[h] = any ? state[h] : PI_MINUS_INF, unit[16 + h] = any ? state[S::HEADS + h] : 0.0f;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const int32_t d = first_column() + 8 * n;
            if (d < k.a.dim_v) *(float2 *) (unit + 32 + h * k.a.dim + d) = {t.acc[m][n][2 * r], t.acc[m][n][2 * r + 1]};
        }
    }
}

/* Multiplies the block's O, t.o, by the final factors and applies inverse RoPE, in place. */
template <class S> PI_FN void finish_sums(const pi__k_sparse &k, const unsigned char *shared, int32_t token, S &t)
{
    const int lane = (int) threadIdx.x % 32;
    const float *run = (const float *) (shared + S::run) + (int) threadIdx.x / 32 * S::M * 32;
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int m = i / 2, r = i % 2, h = lane / 4 + 8 * r;
        const int32_t head = head_of_part<S>(i);
        if (head >= k.a.n_head) continue;
        const float by = factor_of(k, head, run[32 * m + h], run[32 * m + 16 + h]);
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const int32_t d = first_column() + 8 * n;
            float (&o)[4] = t.o[m][n];
            if (d >= k.a.dim_v) continue;
            const float2 v = unrotated(k, token, d, o[2 * r] * by, o[2 * r + 1] * by);
            o[2 * r] = v.x, o[2 * r + 1] = v.y;
        }
    }
}

/* Writes the block's results t.o as floats to k.a.out. */
template <class S> PI_FN void put_results(const pi__k_sparse &k, int32_t token, const S &t)
{
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int m = i / 2, r = i % 2;
        const int32_t head = head_of_part<S>(i);
        if (head >= k.a.n_head) continue;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const int32_t d = first_column() + 8 * n;
            if (d < k.a.dim_v) *result_at(k, token, head, d) = {t.o[m][n][2 * r], t.o[m][n][2 * r + 1]};
        }
    }
}

/* Computes the largest absolute value of each head group per warp, to most [2 M parts][8][W warps] in shared memory.
 * Entry [i][g][w] is the maximum of group g among the heads of part i, over the columns of warp w. All threads call
 * it. */
template <class S> PI_FN void see_groups(const pi__k_sparse &k, float *most, const S &t)
{
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, heads = k.groups.heads;
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int m = i / 2, r = i % 2;
        float largest = 0; /* columns beyond the end are 0 and do not change the maximum */
#pragma unroll
        for (int j = 0; j < 16; j++) largest = fmaxf(largest, abs_or_inf(t.o[m][j / 2][2 * r + j % 2]));
        for (int o = 1; o < 4 * heads; o *= 2) largest = fmaxf(largest, __shfl_xor_sync(PI_FULL, largest, o));
        if (lane % (4 * heads) == 0) most[(i * 8 + lane / 4 / heads) * S::W + warp] = largest;
    }
    __syncthreads();
}

/* Returns 16 contiguous bytes of a packed row: a block of 32 columns of a head, from the lane's values in part i,
 * groups n0 .. n0 + 3 of 8 columns, times `by`. A word has columns c and c + 16, for c = 8 j + 2 (lane % 4) + p. Lanes
 * 2 apart exchange words. */
template <class S> PI_FN uint4 words_of(const S &t, int i, int n0, float by, bool bf16)
{
    const int m = i / 2, r = i % 2, odd = (int) threadIdx.x / 2 % 2;
    uint32_t keep[2], got[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const float (&x)[4] = t.o[m][n0 + j], (&y)[4] = t.o[m][n0 + j + 2];
        const uint32_t first = w16_word(x[2 * r] * by, y[2 * r] * by, bf16),
                       second = w16_word(x[2 * r + 1] * by, y[2 * r + 1] * by, bf16);
        keep[j] = odd ? second : first;
        got[j] = __shfl_xor_sync(PI_FULL, odd ? first : second, 2);
    }
    return odd ? uint4{got[0], keep[0], got[1], keep[1]} : uint4{keep[0], got[0], keep[1], got[1]};
}

/* Packs the attention results t.o of this thread block as activation rows, one row per group of g.heads heads and token
 * (pi__k_groups). most: floats in shared memory, the largest magnitude of each row (see_groups()). */
template <class S> PI_FN void put_groups(const pi__k_sparse &k, float *most, int32_t token, const S &t)
{
    const pi__k_groups &g = k.groups;
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, piece = lane % 2 * 2 + lane / 2 % 2;
    see_groups<S>(k, most, t);
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int32_t head = head_of_part<S>(i), in = head % g.heads; /* index of the head in its group */
        const group_row to = row_of_group(g, head / g.heads, token);
        float largest = 0;
        for (int w = 0; w < S::W; w++) largest = fmaxf(largest, most[(i * 8 + lane / 4 / g.heads) * S::W + w]);
        const row_scale scale = scale_of_row(largest);
        const bool there = head < k.a.n_head;
        if (there && in == 0 && threadIdx.x % 4 == 0 && warp == 0) to.factor[to.row] = scale.factor;
        /* layout of w16_word_at() */
        const uint32_t row = (uint32_t) (to.row % 8), at = row * 16 + ((uint32_t) piece ^ row / 2) * 4;
#pragma unroll
        for (int b = 0; b < 2; b++) {
            uint4 words = words_of<S>(t, i, 4 * b, scale.by, g.bf16);
            const int32_t d = warp * WIDTH + 32 * b, block = (in * k.a.dim + d) / 32;
            if (scale.bad) words = {0, 0, 0, 0};
            const int64_t first = (to.row / 8 * (g.heads * k.a.dim / 32) + block) * 128;
            if (there && d < k.a.dim) *(uint4 *) ((uint32_t *) to.words + first + at) = words;
        }
    }
}

/* Folds the units of a token's head in split order, and writes the result to to[0 .. dim_v - 1]. A thread has two
 * columns. n_splits: units per list and tile of heads in scratch. */
template <bool FEW>
PI_FN void fold_head(const pi__k_sparse &k, int32_t token0, int32_t n_splits, int32_t token, int32_t head, float *to)
{
    const int32_t d = 2 * (int32_t) threadIdx.x, n = max(splits_of<FEW>(list_of(k, token).n), 1);
    if (d >= k.a.dim_v) return;
    float m = PI_MINUS_INF, l = 0, x = 0, y = 0;
#pragma unroll 4 /* several loads are in flight at the same time */
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
    const float2 v = unrotated(k, token, d, x * by, y * by);
    *(float2 *) (to + d) = v;
}

/* Folds the units of a token's head group and packs the result as a row. values: shared memory, [heads, dim] floats,
 * then one float per warp. */
template <bool FEW>
PI_FN void fold_group(const pi__k_sparse &k, int32_t token0, int32_t n_splits, int32_t token, int32_t group,
                      float *values)
{
    const pi__k_groups &g = k.groups;
    const int32_t n = g.heads * k.a.dim;
    const group_row to = row_of_group(g, group, token);
    __syncthreads(); /* all threads have read the previous row, and the block's share */
    for (int32_t h = 0; h < g.heads; h++)
        fold_head<FEW>(k, token0, n_splits, token, group * g.heads + h, values + h * k.a.dim);
    __syncthreads();
    put_halves({values, nullptr, nullptr, PI__IN_PLAIN, 1.0f, 0.0f}, to.row, n, true, g.bf16, {0, 1}, to.words,
               to.factor, values + n);
}

/* Folds the units of all blocks to results, by the last-arriving blocks. Up to one block stays for each head, or head
 * group, of the tokens, within the limits of blocks_for(). shared: 16 bytes, and with head groups the
 * memory of fold_group(). The shapes of a file share one copy of this function for each FEW and GROUPED. */
template <bool FEW, bool GROUPED>
PI_CALL void combine(const pi__k_sparse &k, int32_t token0, int32_t n_splits, uint32_t *arrived, unsigned char *shared)
{
    const bool grouped = GROUPED && k.groups.words;
    /* heads, or head groups, per token */
    const uint32_t each = (uint32_t) (grouped ? k.a.n_head / k.groups.heads : k.a.n_head);
    const uint32_t total = blocks_of_launch(), n = gridDim.y * each, most = blocks_for(n, k.waits);
    const tail_share s = arrive_of(arrived, total, min(most, total), k.waits.stuck, (uint32_t *) shared);
    for (uint32_t i = (uint32_t) s.part; s.parts && i < n; i += (uint32_t) s.parts) {
        const int32_t token = token0 + (int32_t) (i / each), h = (int32_t) (i % each);
        if (!grouped) fold_head<FEW>(k, token0, n_splits, token, h, (float *) result_at(k, token, h, 0));
        else if constexpr (GROUPED) fold_group<FEW>(k, token0, n_splits, token, h, (float *) (shared + 16));
    }
}

/* Body of a kernel. Grid: x = tile of S::HEADS heads, y = token from token0 on, z = with UNITS the KV split, of at most
 * n_splits per list. load(token, head, t) loads the queries; walk(token, first, end, rows, t) processes rows first ..
 * end - 1 of the list. arrived: arrival counter, with UNITS. */
template <class S, class L, class W>
PI_FN void process_list(const pi__k_sparse &k, int32_t token0, int32_t n_splits, uint32_t *arrived,
                        unsigned char *shared, const L &load, const W &walk)
{
    const int32_t token = token0 + (int32_t) blockIdx.y;
    const list l = list_of(k, token);
    const int32_t first = S::UNITS ? (int32_t) blockIdx.z * split_of<S::FEW>(l.n) : 0;
    const int32_t end = S::UNITS ? min(l.n, first + split_of<S::FEW>(l.n)) : l.n;
    /* This list has no split blockIdx.z. combine() has two call sites, since one at the end of both paths would take
     * another register. */
    if (S::UNITS && first > 0 && first >= l.n) {
        combine<S::FEW, S::GROUPED>(k, token0, n_splits, arrived, shared);
        return;
    }
    S t;
    begin_sums<S>(shared, t);
    wanted<S::EACH> now = {};
    ahead<S> rows = {};
    begin_lookup<S>(k, l, first, end, now, rows);
    load(token, (int32_t) blockIdx.x * S::HEADS, t);
    put_rows(k, l, first, now, (cache_row *) (shared + S::address));
    __syncthreads();
    walk(token, first, end, rows, t);
    if (S::UNITS) {
        put_unit<S>(k, shared, token, token0, n_splits, end > first, t);
        combine<S::FEW, S::GROUPED>(k, token0, n_splits, arrived, shared);
        return;
    }
    finish_sums<S>(k, shared, token, t);
    if (!S::GROUPED || !k.groups.words) put_results<S>(k, token, t);
    /* put_groups() reuses the memory of S::part */
    else if constexpr (S::GROUPED) put_groups<S>(k, (float *) (shared + S::part), token, t);
}

} /* namespace sparse */

#endif
