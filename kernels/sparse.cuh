/* Attention of tokens to lists of rows that are key and value at once (op sparse, which ops.h defines): what its kernels have in
 * common. sparse_kernels.cuh has all kinds of rows; latent_kernels.cuh the long ones of latent attention where products are not exact.
 *
 * A token's rows are a list: those of the window by position, then its entries. A block takes a token and 32 of its heads, or 16,
 * and walks the list, S::TILE rows at a time, through shared memory. S is the kernel's shape.
 *
 * KV SPLITS. A list is cut into splits of KV_SPLIT rows, or twice, four times .. as many, so that there are at most
 * MOST_SPLITS. Each has a sum (m, l, O) of its own, and the sums are folded in order, by one block or by many that leave
 * theirs in scratch: when all have, the last of them to end share the heads of all tokens (tail.cuh):
 *
 *     300 rows    [ 0..127 ][ 128..255 ][ 256..299 ]
 *     4096 rows   [ 0..255 ][ 256..511 ] ...                     16 splits
 *     4097 rows   [ 0..511 ][ 512..1023 ] ...                    9
 *
 * With S::FEW there are half as many of more than 8: sums of 128 heads in scratch are twice the bytes of a split's rows.
 *
 * A token's list, and with it where its splits are, depends on the token alone: that makes a result batch-invariant. Where
 * rows are is found in three steps, KV_SPLIT rows apart, as each needs what the one before loads, and kept in shared memory:
 *
 *     rows that begin     their number is read     their block is read     their address is kept
 *     [ n .. ]            from n + 3 KV_SPLIT      from n + 2 KV_SPLIT     from n + KV_SPLIT
 *
 * Where all rows are of rotated types, they are left so: Q is rotated when it is loaded, and each split's sum is rotated back
 * before it is folded, or left in scratch. Where some are, these are rotated back as they come to shared memory. */
#ifndef PI_SPARSE_CUH
#define PI_SPARSE_CUH

#include "row_cache.cuh"
#include "row_turn.cuh"
#include "tail.cuh"

enum {
    WIDTH = 64,      /* columns of results that a warp has */
    KV_SPLIT = 128,  /* rows, the shortest */
    MOST_SPLITS = 16,
    AHEAD = 2 * KV_SPLIT, /* rows whose addresses are known */
};

/* How rows come to shared memory: F16 as it is; others as f16, those of F32 as two, hi + lo. */
enum { COPIED, ONE, TWO };
static constexpr float LOG2E = 1.44269504088896340736f;
#define PI_MINUS_INF __uint_as_float(0xff800000u)

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
template <bool FEW> PI_FN int32_t split_of(int32_t n)
{
    int32_t rows = FEW && n > 8 * KV_SPLIT ? 2 * KV_SPLIT : KV_SPLIT;
    while (n > MOST_SPLITS * rows) rows *= 2;
    return rows;
}
/* Splits of it. */
template <bool FEW> PI_FN int32_t splits_of(int32_t n) { return (n + split_of<FEW>(n) - 1) / split_of<FEW>(n); }
/* The most that any list of up to n has. */
template <bool FEW> static inline int32_t most_splits(int32_t n)
{
    const bool some = FEW && n > 8 * KV_SPLIT;
    const int32_t rows = some ? 2 * KV_SPLIT : KV_SPLIT, splits = min((n + rows - 1) / rows, (int32_t) MOST_SPLITS);
    return some ? max(splits, 8) : splits;
}

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

/* The tile of rows from `first` on of the list, which ends before `end`, converted: a warp takes every W-th row, by 8 values of a
 * lane. */
template <class S>
PI_FN void convert_tile(const pi__k_sparse &k, const cache_row *address, uint16_t *stage, int32_t n_window, int32_t first, int32_t end)
{
    constexpr uint32_t LAST = S::CHUNKS % 32 ? (1u << S::CHUNKS % 32) - 1 : PI_FULL; /* lanes with one of the last chunks */
    const int lane = ptx_thread() % 32;
#pragma unroll 1 /* more of it spills registers */
    for (int r = ptx_thread() / 32; r < S::TILE; r += S::W) {
        const int32_t at = first + r;
        const cache_row row = at < end ? address[at % AHEAD] : cache_row{nullptr, nullptr};
#pragma unroll 1
        for (int c = lane; c < S::CHUNKS; c += 32) {
            const bool there = at < end && 8 * c < k.rows.cache.head_dim;
            uint16_t *to = stage + r * S::LD + 8 * c;
            float f[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            const int32_t type = at < n_window ? k.rows.cache.type_k : k.entries.cache.type_k; /* of all lanes */
            if (there) cache_get8(type, row, c, f);
            if (is_rotated(type) && !stays_turned(k)) turn8_back(f, lane, c - lane + 32 > S::CHUNKS ? LAST : PI_FULL);
            put8<S::KIND == TWO>(to, to + S::PLANE, f);
        }
    }
}

/* Columns of a head's query, from col0 on: f[n][p] is 8 n + 2 (lane % 4) + p of these. What is not there is 0. */
template <int N> PI_FN void query_columns(const pi__k_sparse &k, int32_t token, int32_t head, int32_t col0, float (&f)[N][2])
{
    const int lane = (int) threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int32_t col = col0 + n * 8 + lane % 4 * 2;
        const bool there = head < k.a.n_head && col < k.a.dim;
        const float2 x = there ? *(const float2 *) (k.a.q + token * k.a.ldq + (int64_t) head * k.a.dim + col) : float2{0, 0};
        f[n][0] = x.x, f[n][1] = x.y;
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

/* Columns d and d + 1 of a token's result: the last ones are rotated backwards. */
PI_FN float2 turned_back(const pi__k_sparse &k, int32_t token, int32_t d, float x, float y)
{
    const pi__sparse &a = k.a;
    const int32_t i = (d - (a.dim_v - a.n_rot)) / 2;
    const float *rope = a.rope + (size_t) token * (size_t) a.n_rot;
    if (d >= a.dim_v - a.n_rot) rotate_pair(x, y, rope[i], -rope[a.n_rot / 2 + i]);
    return {x, y};
}

/* A group's row of a token, where results are such. */
struct group_row {
    int64_t row;
    uint16_t *words;
    float *factor; /* of row 0 */
};
PI_FN group_row row_of_group(const pi__k_groups &g, int32_t group, int32_t token)
{
    const size_t at = (size_t) group * g.step;
    return {(int64_t) group * g.rows + token, (uint16_t *) (g.words + at), (float *) (g.factor + at)};
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

/* Where a block begins: the rows from `first` on are looked for, and those behind them. */
template <class S>
PI_FN void look_for(const pi__k_sparse &k, const list &l, int32_t first, int32_t end, wanted<S::EACH> &now, ahead<S> &rows)
{
    want_rows(l, first, end, now);
    want_rows(l, first + KV_SPLIT, end, rows.next);
    want_rows(l, first + 2 * KV_SPLIT, end, rows.later);
    look_up_rows(k, l, first, now);
    look_up_rows(k, l, first + KV_SPLIT, rows.next);
}

/* Sums of no row. */
template <class S> PI_FN void begin_sums(unsigned char *shared, S &t)
{
    float *run = (float *) (shared + S::run) + threadIdx.x / 32 * S::M * 32;
    clear(t.acc);
    clear(t.o);
    for (int m = 0; m < S::M; m++) run[32 * m + (int) threadIdx.x % 32] = threadIdx.x % 32 < 16 ? PI_MINUS_INF : 0.0f;
}

/* The block's sums as a unit. any: there are rows. */
template <class S>
PI_FN void put_unit(const pi__k_sparse &k, const unsigned char *shared, int32_t token, int32_t token0, int32_t n_splits, bool any,
                    const S &t)
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

/* The block's sums become results, where they are. */
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
            const float2 v = turned_back(k, token, d, o[2 * r] * by, o[2 * r + 1] * by);
            o[2 * r] = v.x, o[2 * r + 1] = v.y;
        }
    }
}

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

/* The largest value of each of the block's groups, of which a warp has some columns, to most [2 M][8][W]: parts, groups of a part. By all
 * threads. */
template <class S> PI_FN void see_groups(const pi__k_sparse &k, float *most, const S &t)
{
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, heads = k.groups.heads;
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int m = i / 2, r = i % 2;
        float largest = 0; /* columns that are not there are 0 */
#pragma unroll
        for (int j = 0; j < 16; j++) largest = fmaxf(largest, size_of_value(t.o[m][j / 2][2 * r + j % 2]));
        for (int o = 1; o < 4 * heads; o *= 2) largest = fmaxf(largest, __shfl_xor_sync(PI_FULL, largest, o));
        if (lane % (4 * heads) == 0) most[(i * 8 + lane / 4 / heads) * S::W + warp] = largest;
    }
    __syncthreads();
}

/* A block of 32 columns of a group's row, of which the lane has values in part i of its results, from n0 on: words of columns c and c + 16,
 * of c = 8 j + 2 (lane % 4) + p. Lanes that are 2 apart exchange some, so that each has 16 bytes side by side. */
template <class S> PI_FN uint4 words_of(const S &t, int i, int n0, float by, bool bf16)
{
    const int m = i / 2, r = i % 2, odd = (int) threadIdx.x / 2 % 2;
    uint32_t keep[2], got[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const float (&x)[4] = t.o[m][n0 + j], (&y)[4] = t.o[m][n0 + j + 2];
        const uint32_t first = w16_word(x[2 * r] * by, y[2 * r] * by, bf16), second = w16_word(x[2 * r + 1] * by, y[2 * r + 1] * by, bf16);
        keep[j] = odd ? second : first;
        got[j] = __shfl_xor_sync(PI_FULL, odd ? first : second, 2);
    }
    return odd ? uint4{got[0], keep[0], got[1], keep[1]} : uint4{keep[0], got[0], keep[1], got[1]};
}

/* The block's results as rows of groups. most: as of see_groups. */
template <class S> PI_FN void put_groups(const pi__k_sparse &k, float *most, int32_t token, const S &t)
{
    const pi__k_groups &g = k.groups;
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32, piece = lane % 2 * 2 + lane / 2 % 2;
    see_groups<S>(k, most, t);
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int32_t head = head_of_part<S>(i), in = head % g.heads; /* in its group */
        const group_row to = row_of_group(g, head / g.heads, token);
        float largest = 0;
        for (int w = 0; w < S::W; w++) largest = fmaxf(largest, most[(i * 8 + lane / 4 / g.heads) * S::W + w]);
        const row_scale scale = scale_of_row(largest);
        const bool there = head < k.a.n_head;
        if (there && in == 0 && threadIdx.x % 4 == 0 && warp == 0) to.factor[to.row] = scale.factor;
        const uint32_t row = (uint32_t) (to.row % 8), at = row * 16 + ((uint32_t) piece ^ row / 2) * 4; /* w16_word_at */
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

/* Folds the KV splits of a token's head in order, to `to`: a thread two columns. */
template <class S>
PI_FN void fold_head(const pi__k_sparse &k, int32_t token0, int32_t n_splits, int32_t token, int32_t head, float *to)
{
    const int32_t d = 2 * (int32_t) threadIdx.x, n = max(splits_of<S::FEW>(list_of(k, token).n), 1);
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
    const float2 v = turned_back(k, token, d, x * by, y * by);
    *(float2 *) (to + d) = v;
}

/* The same of a group's heads, which are a row. values: [heads, dim], and a float for each warp. */
template <class S>
PI_FN void fold_group(const pi__k_sparse &k, int32_t token0, int32_t n_splits, int32_t token, int32_t group, float *values)
{
    const pi__k_groups &g = k.groups;
    const int32_t n = g.heads * k.a.dim;
    const group_row to = row_of_group(g, group, token);
    __syncthreads(); /* all have read the row before, and what said which to take */
    for (int32_t h = 0; h < g.heads; h++) fold_head<S>(k, token0, n_splits, token, group * g.heads + h, values + h * k.a.dim);
    __syncthreads();
    put_halves({values, nullptr, nullptr, PI__IN_PLAIN, 1.0f, 0.0f}, to.row, n, true, g.bf16, {0, 1}, to.words, to.factor, values + n);
}

/* What all blocks left in scratch becomes results, by the last of them to end: as many as there are heads of tokens, or groups of them,
 * if that leaves the others room. shared: 16 bytes, and where there are groups what fold_group takes. */
template <class S>
PI_CALL void combine(const pi__k_sparse &k, int32_t token0, int32_t n_splits, uint32_t *arrived, unsigned char *shared)
{
    const bool grouped = S::GROUPED && k.groups.words;
    const uint32_t each = (uint32_t) (grouped ? k.a.n_head / k.groups.heads : k.a.n_head); /* of a token */
    const uint32_t total = blocks_of_launch(), n = gridDim.y * each, least = PI__K_TAIL_STAY;
    const uint32_t most = ptx_blocks_that_wait(min(max(n, least), max((uint32_t) k.n_sm / 2, least)));
    const tail_share s = arrive_of(arrived, total, min(most, total), (uint32_t *) shared);
    for (uint32_t i = (uint32_t) s.part; s.parts && i < n; i += (uint32_t) s.parts) {
        const int32_t token = token0 + (int32_t) (i / each), h = (int32_t) (i % each);
        if (!grouped) fold_head<S>(k, token0, n_splits, token, h, (float *) result_at(k, token, h, 0));
        else if constexpr (S::GROUPED) fold_group<S>(k, token0, n_splits, token, h, (float *) (shared + 16));
    }
}

/* A block of a kernel: its heads, blockIdx.x, of a token from token0 on, blockIdx.y; with UNITS of a KV split, blockIdx.z, of which a
 * list has at most n_splits. load(token, head, t): its queries; walk(token, first, end, rows, t): rows `first` to `end` of the list. */
template <class S, class L, class W>
PI_FN void see_list(const pi__k_sparse &k, int32_t token0, int32_t n_splits, uint32_t *arrived, unsigned char *shared, const L &load,
                    const W &walk)
{
    const int32_t token = token0 + (int32_t) blockIdx.y;
    const list l = list_of(k, token);
    const int32_t first = S::UNITS ? (int32_t) blockIdx.z * split_of<S::FEW>(l.n) : 0;
    const int32_t end = S::UNITS ? min(l.n, first + split_of<S::FEW>(l.n)) : l.n;
    if (S::UNITS && first > 0 && first >= l.n) { /* its list has no such split. In two places, as meeting again takes a register */
        combine<S>(k, token0, n_splits, arrived, shared);
        return;
    }
    S t;
    begin_sums<S>(shared, t);
    wanted<S::EACH> now = {};
    ahead<S> rows = {};
    look_for<S>(k, l, first, end, now, rows);
    load(token, (int32_t) blockIdx.x * S::HEADS, t);
    put_rows(k, l, first, now, (cache_row *) (shared + S::address));
    __syncthreads();
    walk(token, first, end, rows, t);
    if (S::UNITS) {
        put_unit<S>(k, shared, token, token0, n_splits, end > first, t);
        combine<S>(k, token0, n_splits, arrived, shared);
        return;
    }
    finish_sums<S>(k, shared, token, t);
    if (!S::GROUPED || !k.groups.words) put_results<S>(k, token, t);
    else if constexpr (S::GROUPED) put_groups<S>(k, (float *) (shared + S::part), token, t); /* where the parts of S were */
}

#endif
