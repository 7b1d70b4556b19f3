/* Attention of DeepSeek V4 on tensor cores: each token to the rows of a window and to entries, where a row is key and value
 * at once, for all heads (op sparse, which ops.h defines).
 *
 * A token's rows are a list: those of the window by position, then its entries. A block takes a token and 16 or 32 of its
 * heads: 16 a group of warps, of which each has 64 columns of queries, rows and results. It walks the list, TILE rows at
 * a time, which cp.async brings to shared memory STAGES - 1 tiles ahead:
 *
 *     S    each warp multiplies its columns: Q in registers as hi + lo f16 (22 bits), rows as they are
 *     P    the warps' parts are added up in order; online softmax in powers of 2, 16 threads a head
 *     O    each warp has its columns: O = O c + P V
 *
 *     groups   heads 0..15   [ warp 0: columns 0..63 ][ warp 1: 64..127 ] ...     share each tile of rows
 *              heads 16..31  [ warp 8: columns 0..63 ][ warp 9: 64..127 ] ...
 *
 * KV SPLITS. A list is cut into splits of KV_SPLIT rows, or twice, four times .. as many, so that there are at most
 * MOST_SPLITS. Each has a sum (m, l, O) of its own, and the sums are folded in order, by one block or by many that leave
 * theirs in scratch for combine():
 *
 *     300 rows    [ 0..127 ][ 128..255 ][ 256..299 ]
 *     4096 rows   [ 0..255 ][ 256..511 ] ...                     16 splits
 *     4097 rows   [ 0..511 ][ 512..1023 ] ...                    9
 *
 * A token's list, and with it where its splits are, depends on the token alone: that makes a result batch-invariant. Where
 * rows are is found KV_SPLIT rows ahead, and kept in shared memory.
 *
 * Rows of F32 caches are hi + lo as well (SPLIT); P always is, for the choice of entries in later layers follows small
 * differences. Columns and rows that are not there are zeros. */
#ifndef PI_SPARSE_KERNELS_CUH
#define PI_SPARSE_KERNELS_CUH

#include "ptx.cuh"
#include "row_cache.cuh"
#include "warp.cuh"

enum {
    WIDTH = 64,      /* columns of a warp */
    TILE = 16,       /* rows */
    KV_SPLIT = 128,  /* rows, the shortest */
    MOST_SPLITS = 16,
    AHEAD = 2 * KV_SPLIT, /* rows whose addresses are known */
    LDS = TILE + 8,  /* halves from row to row of P */
};
/* Where row h and column j of a warp's part of S are: two rows in 32 banks, the columns of every other two rows turned by 8,
 * so that neither the lanes of an accumulator nor those that read rows meet in one. */
PI_FN int score_at(int h, int j) { return h * TILE + (j ^ h / 2 % 2 * 8); }

/* How rows come to shared memory: F16 as it is; others as f16, those of F32 as two, hi + lo. */
enum { COPIED, ONE, TWO };
static constexpr float LOG2E = 1.44269504088896340736f;
#define PI_MINUS_INF __uint_as_float(0xff800000u)

/* Sizes of a kernel whose groups have W warps, and where things are in shared memory, in bytes. Rows are 16 bytes longer
 * than they need: the 8 that ldmatrix reads at a time then lie in different banks. */
template <int KIND, int W> struct shape {
    static constexpr int PLANES = KIND == TWO ? 2 : 1, STAGES = KIND == COPIED ? 4 : 2;
    static constexpr int GROUPS = KIND == COPIED || W < 8 ? 2 : 1; /* converting rows takes registers */
    static constexpr int THREADS = GROUPS * W * 32;
    static constexpr int LD = W * WIDTH + 8;                                 /* halves from row to row */
    static constexpr int PLANE = TILE * LD;                                  /* halves; of TWO, lo is behind hi */
    static constexpr size_t row = 0;                                         /* [STAGES][PLANES][TILE][LD] halves; first Q */
    static constexpr size_t address = row + 2 * (size_t) (STAGES * PLANES * PLANE); /* [AHEAD] */
    static constexpr size_t part = address + AHEAD * sizeof(cache_row);      /* S of each warp: [GROUPS][W][16][TILE] floats */
    static constexpr size_t p = part + 4 * (size_t) (GROUPS * W * 16 * TILE); /* [GROUPS][hi, lo][16][LDS] halves */
    static constexpr size_t state = p + 2 * (size_t) (GROUPS * 2 * 16 * LDS); /* m, l, c: [GROUPS][3][16] floats */
    static constexpr size_t run = state + 4 * (size_t) (GROUPS * 3 * 16);    /* m, l of a warp's folded splits: [GROUPS][W][2][16] */
    static constexpr size_t total = run + 4 * (size_t) (GROUPS * W * 2 * 16);

    static __device__ __forceinline__ uint16_t *stage(unsigned char *shared, int32_t i)
    {
        return (uint16_t *) (shared + row) + i % STAGES * PLANES * PLANE;
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

/* Rows of a split of a list of n. */
PI_FN int32_t split_of(int32_t n)
{
    int32_t rows = KV_SPLIT;
    while (n > MOST_SPLITS * rows) rows *= 2;
    return rows;
}
/* Splits of it. */
PI_FN int32_t splits_of(int32_t n) { return (n + split_of(n) - 1) / split_of(n); }

/* Where rows first.. of the token's list are, KV_SPLIT of them. */
PI_FN void find_rows(const pi__k_sparse &k, int32_t token, int32_t first, cache_row *address)
{
    const list l = list_of(k, token); /* again, instead of holding it in registers all the time */
#pragma unroll 1
    for (int32_t i = first + (int32_t) threadIdx.x; i < first + KV_SPLIT; i += (int32_t) blockDim.x) {
        cache_row row = {nullptr, nullptr};
        const int32_t e = i - l.n_window;
        if (e < 0) row = row_of(k.rows, l.seq, l.first + i);
        else if (i < l.n) row = row_of(k.entries, l.seq, l.pick ? l.pick[e] : e);
        address[i % AHEAD] = row;
    }
}

/* A float as the sum of two f16, hi and lo. */
PI_FN void split(float f, uint16_t *high, uint16_t *low)
{
    *high = float_to_half(f);
    *low = float_to_half(f - half_to_float(*high));
}
PI_FN uint32_t pair(uint16_t a, uint16_t b) { return a | (uint32_t) b << 16; }

/* 8 values of a row to one plane, or two. */
template <bool SPLIT> PI_FN void put8(uint16_t *to, uint16_t *to_low, const float (&f)[8])
{
    uint16_t h[8], l[8];
    for (int j = 0; j < 8; j++) split(clean(f[j]), &h[j], &l[j]);
    *(uint4 *) to = {pair(h[0], h[1]), pair(h[2], h[3]), pair(h[4], h[5]), pair(h[6], h[7])};
    if (SPLIT) *(uint4 *) to_low = {pair(l[0], l[1]), pair(l[2], l[3]), pair(l[4], l[5]), pair(l[6], l[7])};
}

/* Tile i of the list, which ends before `end`, to its stage. What is copied comes in the background: one group of copies. */
template <int KIND, int W>
PI_FN void load_tile(const pi__k_sparse &k, const list &l, unsigned char *shared, int32_t i, int32_t end)
{
    using S = shape<KIND, W>;
    constexpr int CHUNKS = W * WIDTH / 8;
    const cache_row *address = (const cache_row *) (shared + S::address);
#pragma unroll 1 /* here and below: more of it spills registers */
    for (int32_t j = (int32_t) threadIdx.x; j < TILE * CHUNKS && i * TILE < end; j += S::THREADS) {
        const int32_t r = j / CHUNKS, c = j % CHUNKS, at = i * TILE + r;
        const bool there = at < end && 8 * c < k.rows.cache.head_dim;
        const cache_row row = address[at % AHEAD];
        uint16_t *to = S::stage(shared, i) + r * S::LD + 8 * c;
        if (KIND == COPIED) {
            ptx_cp_async16(ptx_shared(to), there ? row.codes + 16 * c : k.rows.cache.base, there ? 16 : 0);
        } else {
            float f[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            if (there) cache_get8(at < l.n_window ? k.rows.cache.type_k : k.entries.cache.type_k, row, c, f);
            put8<KIND == TWO>(to, to + S::PLANE, f);
        }
    }
    ptx_cp_async_commit();
}

/* The warp's columns of the 16 queries from head on, as hi and lo, by way of shared memory: room [16][WIDTH], the warp's, in
 * which the 8 pieces of a row that ldmatrix reads are in another order for each of 8 rows. */
PI_FN void load_q(const pi__k_sparse &k, int32_t token, int32_t head, int32_t col0, uint16_t *room, uint32_t (&high)[4][4],
                 uint32_t (&low)[4][4])
{
    const int lane = (int) threadIdx.x % 32;
#pragma unroll
    for (int plane = 0; plane < 2; plane++) {
#pragma unroll 1
        for (int r = 0; r < 16; r++) {
            const int32_t col = col0 + 2 * lane;
            const bool there = head + r < k.a.n_head && col < k.a.dim;
            const float *q = k.a.q + token * k.a.ldq + (int64_t) (head + r) * k.a.dim + col;
            uint16_t x[2], y[2];
            for (int i = 0; i < 2; i++) split(there ? clean(q[i]) : 0.0f, &x[i], &y[i]);
            ((uint32_t *) room)[r * WIDTH / 2 + (lane ^ r % 8 * 4)] = plane ? pair(y[0], y[1]) : pair(x[0], x[1]);
        }
        __syncwarp();
#pragma unroll
        for (int s = 0; s < 4; s++)
            ptx_ldmatrix_x4(plane ? low[s] : high[s], ptx_shared(room + lane % 16 * WIDTH + ((2 * s + lane / 16) ^ lane % 8) * 8));
        __syncwarp();
    }
}

/* The warp's part of S, of its columns at row: to part [16][TILE], as score_at says. */
template <class S, bool SPLIT>
PI_FN void scores(uint32_t row, const uint32_t (&high)[4][4], const uint32_t (&low)[4][4],
                 float *part)
{
    const int lane = ptx_thread() % 32;
#pragma unroll 1
    for (int nt = 0; nt < TILE / 8; nt++) {
        float acc[4] = {0, 0, 0, 0};
#pragma unroll
        for (int s = 0; s < 4; s += 2) {
            uint32_t b[4];
            const uint32_t at = row + 2 * (uint32_t) ((8 * nt + lane % 8) * S::LD + 16 * s + 8 * (lane / 8));
            if (SPLIT) {
                ptx_ldmatrix_x4(b, at + 2 * S::PLANE);
                ptx_mma_f16(acc, high[s], {b[0], b[1]});
                ptx_mma_f16(acc, high[s + 1], {b[2], b[3]});
            }
            ptx_ldmatrix_x4(b, at);
            ptx_mma_f16(acc, low[s], {b[0], b[1]});
            ptx_mma_f16(acc, low[s + 1], {b[2], b[3]});
            ptx_mma_f16(acc, high[s], {b[0], b[1]});
            ptx_mma_f16(acc, high[s + 1], {b[2], b[3]});
        }
        float *to = part + score_at(lane / 4, 8 * nt + 2 * (lane % 4)); /* 8 rows further are turned alike */
        *(float2 *) to = {acc[0], acc[1]};
        *(float2 *) (to + 8 * TILE) = {acc[2], acc[3]};
    }
}

/* Softmax of a tile, whose first n rows are there: P of the group, and the split's new m, l and c of each head. */
template <int W> PI_FN void softmax(const float *part, int32_t n, uint16_t *p, float *state)
{
    const int thread = ptx_thread() % (W * 32), j = thread % 16;
    float *m = state, *l = m + 16, *c = l + 16;
#pragma unroll 1
    for (int h = thread / 16; h < 16; h += W * 2) {
        float s = 0;
        for (int w = 0; w < W; w++) s += part[w * 16 * TILE + score_at(h, j)];
        const float x = j < n ? s * LOG2E : PI_MINUS_INF, old = m[h];
        float top = fmaxf(old, x);
        for (int o = 8; o; o >>= 1) top = fmaxf(top, __shfl_xor_sync(PI_FULL, top, o));
        const float base = top == PI_MINUS_INF ? 0.0f : top, e = ptx_exp2(x - base);
        float sum = e;
        split(e, &p[h * LDS + j], &p[(16 + h) * LDS + j]);
        for (int o = 8; o; o >>= 1) sum += __shfl_xor_sync(PI_FULL, sum, o);
        __syncwarp(); /* all lanes have the old m */
        if (j) continue;
        const float scale = ptx_exp2(old - base);
        m[h] = top;
        l[h] = fmaf(l[h], scale, sum);
        c[h] = scale;
    }
}

/* O = O c + P V for the warp's columns at row. */
template <class S, bool SPLIT>
PI_FN void weigh(uint32_t row, uint32_t p, const float *c, float (&acc)[8][4])
{
    const int lane = ptx_thread() % 32;
    const float c0 = c[lane / 4], c1 = c[lane / 4 + 8];
    uint32_t high[4], low[4];
    p += 2 * (uint32_t) (lane % 16 * LDS + 8 * (lane / 16));
    ptx_ldmatrix_x4(high, p);
    ptx_ldmatrix_x4(low, p + 2 * 16 * LDS);
    row += 2 * (uint32_t) (lane % 16 * S::LD + 8 * (lane / 16));
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
        uint32_t b[4], bl[4];
        ptx_ldmatrix_x4_trans(b, row + 16 * n);
        if (SPLIT) ptx_ldmatrix_x4_trans(bl, row + 16 * n + 2 * S::PLANE);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float (&o)[4] = acc[n + i];
            o[0] *= c0, o[1] *= c0, o[2] *= c1, o[3] *= c1;
            if (SPLIT) ptx_mma_f16(o, high, {bl[2 * i], bl[2 * i + 1]});
            ptx_mma_f16(o, low, {b[2 * i], b[2 * i + 1]});
            ptx_mma_f16(o, high, {b[2 * i], b[2 * i + 1]});
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

/* Columns d and d + 1 of a head's result: the sink joins the sum, which divides; the last ones are rotated backwards. */
PI_FN void put(const pi__k_sparse &k, int32_t token, int32_t head, int32_t d, float m, float l, float x, float y)
{
    const pi__sparse &a = k.a;
    const float sink = a.sinks[head] * LOG2E, top = fmaxf(m, sink), scale = ptx_exp2(m - top);
    const float by = scale / fmaf(l, scale, ptx_exp2(sink - top));
    const int32_t i = (d - (a.dim - a.n_rot)) / 2;
    const float *rope = a.rope + (size_t) token * (size_t) a.n_rot;
    float *out = a.out + token * a.ldo + (int64_t) head * a.dim + d;
    x *= by, y *= by;
    if (d >= a.dim - a.n_rot) rotate_pair(x, y, rope[i], -rope[a.n_rot / 2 + i]);
    out[0] = x;
    out[1] = y;
}

/* A KV split's sum in scratch: m [16], l [16], O [16, dim]; units in the order of the launch's tokens, 16 heads, splits. */
PI_FN float *unit_of(const pi__k_sparse &k, int32_t token, int32_t tile, int32_t split, int32_t n_splits)
{
    const size_t tiles = (size_t) (k.a.n_head + 15) / 16, unit = ((size_t) token * tiles + (size_t) tile) * (size_t) n_splits;
    return (float *) k.scratch + (unit + (size_t) split) * (size_t) (16 * (k.a.dim + 2));
}

PI_FN void clear(float (&x)[8][4])
{
#pragma unroll
    for (int i = 0; i < 32; i++) x[i / 4][i % 4] = 0;
}

/* Folds a split's sum into those so far: run m, l [2][16] and o. */
PI_FN void fold_split(const float *state, const float (&acc)[8][4], float *run, float (&o)[8][4])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int h = (int) threadIdx.x % 32 / 4 + 8 * r;
        const fold_by f = fold(run[h], state[h]);
        __syncwarp(); /* all lanes have the old m */
        if (threadIdx.x % 4 == 0) {
            run[h] = f.m;
            run[16 + h] = fmaf(state[16 + h], f.split, run[16 + h] * f.run);
        }
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float &to = o[i / 2][2 * r + i % 2];
            to = fmaf(acc[i / 2][2 * r + i % 2], f.split, to * f.run);
        }
    }
}

/* A block: groups of warps, 16 heads each, blockIdx.x; a token from token0 on, blockIdx.y; with UNITS a KV split,
 * blockIdx.z, of which a list has at most n_splits. */
template <int KIND, int W, bool UNITS> __global__ void __launch_bounds__(shape<KIND, W>::THREADS, 1)
sparse(pi__k_sparse k, int32_t token0, int32_t n_splits)
{
    using S = shape<KIND, W>;
    PI_SMEM(shared);
    const int32_t token = token0 + (int32_t) blockIdx.y;
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32 % W, group = (int) threadIdx.x / 32 / W;
    const int32_t tile16 = (int32_t) blockIdx.x * S::GROUPS + group, head = 16 * tile16, col0 = warp * WIDTH;
    const list l = list_of(k, token);
    const int32_t split = split_of(l.n); /* 2^n */
    const int32_t first = UNITS ? (int32_t) blockIdx.z * split : 0, end = UNITS ? min(l.n, first + split) : l.n;
    if (UNITS && first > 0 && first >= l.n) return;
    cache_row *address = (cache_row *) (shared + S::address);
    float *part = (float *) (shared + S::part) + group * W * 16 * TILE, *state = (float *) (shared + S::state) + group * 48;
    uint16_t *p = (uint16_t *) (shared + S::p) + group * 2 * 16 * LDS;
    uint32_t high[4][4], low[4][4];
    float acc[8][4], o[8][4] /* of folded splits; UNITS: not used */, *run = (float *) (shared + S::run) + (group * W + warp) * 32;
    run[lane] = lane < 16 ? PI_MINUS_INF : 0.0f;
    clear(o);
    clear(acc);
    find_rows(k, token, first, address);
    if (first + KV_SPLIT < end) find_rows(k, token, first + KV_SPLIT, address);
    load_q(k, token, head, col0, (uint16_t *) (shared + S::row) + threadIdx.x / 32 * 16 * WIDTH, high, low);
    __syncthreads();
    for (int32_t i = 0; i < S::STAGES - 1; i++) load_tile<KIND, W>(k, l, shared, first / TILE + i, end);
#pragma unroll 1
    for (int32_t from = first; from < end; from += KV_SPLIT) {
#pragma unroll 1
        for (int32_t i = from / TILE; i * TILE < min(end, from + KV_SPLIT); i++) {
            ptx_cp_async_wait<S::STAGES - 2>();
            __syncthreads(); /* the tile is there, and all are done with the one before */
            if (!(i * TILE & (split - 1)) && ptx_thread() % (32 * W) < 16)
                state[ptx_thread() % 16] = PI_MINUS_INF, state[16 + ptx_thread() % 16] = 0;
            const uint32_t row = ptx_shared(S::stage(shared, i)) + 2 * (uint32_t) col0;
            scores<S, KIND == TWO>(row, high, low, part + warp * 16 * TILE);
            __syncthreads();
            load_tile<KIND, W>(k, l, shared, i + S::STAGES - 1, end);
            softmax<W>(part, end - i * TILE, p, state);
            __syncthreads();
            weigh<S, KIND == TWO>(row, ptx_shared(p), state + 32, acc);
        }
        if (!UNITS && (!((from + KV_SPLIT) & (split - 1)) || from + KV_SPLIT >= end)) {
            fold_split((const float *) (shared + S::state) + group * 48, acc, run, o);
            clear(acc);
        }
        if (from + AHEAD < end) find_rows(k, token, from + AHEAD, address); /* in the place of these: all of them are on their way */
    }
    __syncwarp();
    float *unit = UNITS ? unit_of(k, token - token0, tile16, (int32_t) blockIdx.z, n_splits) : nullptr;
    if (UNITS && warp == 0 && lane < 16 && head < k.a.n_head)
        unit[lane] = end > first ? state[lane] : PI_MINUS_INF, unit[16 + lane] = end > first ? state[16 + lane] : 0.0f;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int32_t h = lane / 4 + 8 * r;
        if (head + h >= k.a.n_head) continue;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const int32_t d = col0 + 8 * n + 2 * (lane % 4);
            if (d >= k.a.dim) continue;
            if (UNITS) {
                float *to = unit + 32 + h * k.a.dim + d;
                to[0] = acc[n][2 * r], to[1] = acc[n][2 * r + 1];
            } else {
                put(k, token, head + h, d, run[h], run[16 + h], o[n][2 * r], o[n][2 * r + 1]);
            }
        }
    }
}

/* Folds a token's KV splits in order: a thread two columns, a block a head. */
__global__ void __launch_bounds__(256) combine(pi__k_sparse k, int32_t token0, int32_t n_splits)
{
    const int32_t head = (int32_t) blockIdx.x, token = token0 + (int32_t) blockIdx.y, d = 2 * (int32_t) threadIdx.x;
    const int32_t n = max(splits_of(list_of(k, token).n), 1);
    if (d >= k.a.dim) return;
    float m = PI_MINUS_INF, l = 0, x = 0, y = 0;
    for (int32_t i = 0; i < n; i++) {
        const float *unit = unit_of(k, token - token0, head / 16, i, n_splits), *o = unit + 32 + head % 16 * k.a.dim + d;
        const fold_by f = fold(m, unit[head % 16]);
        m = f.m;
        l = fmaf(unit[16 + head % 16], f.split, l * f.run);
        x = fmaf(o[0], f.split, x * f.run);
        y = fmaf(o[1], f.split, y * f.run);
    }
    put(k, token, head, d, m, l, x, y);
}

#endif
