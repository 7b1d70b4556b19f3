/* Softmax attention over the paged cache on tensor cores, for prefill, decode and both in one batch.
 *
 * The rows of a sequence that share a kv head, token by token, head by head, are cut into tiles of R = 8 or 16 MT rows; a
 * block takes one tile and walks the keys, TILE at a time (positions k TILE .. k TILE + TILE - 1 whatever the block size of the
 * cache). For each tile of keys:
 *
 *     S = Q K^T    warps share the 16x8 pieces      Q as hi + lo f16 of 11 bits, so that logits are as good as with floats
 *     P, m, l      8 threads a row                  online softmax in powers of 2
 *     O = O c + PV each warp has D / WARPS columns  c: what the new maximum does to the old sum
 *
 *     time ->   [ wait K ][ S ][ copy next K ...... ]
 *               [ copy V ............ ][ softmax ][ wait V ][ P V ][ copy next V ...
 *
 * KV SPLITS. The keys of positions p KV_SPLIT .. p KV_SPLIT + KV_SPLIT - 1 have a sum (m, l, O) of their own. The sums of
 * SPAN splits side by side, a span, are folded in order, and so are those of the spans:
 *
 *     position   0       256     512     768     1024    1280
 *     splits     [ s0 ]  [ s1 ]  [ s2 ]  [ s3 ]  [ s4 ]  [ s5 ] ...
 *     spans      [ ((s0 + s1) + s2) + s3       ]  [ (s4 + s5) ...          all = (span 0 + span 1) + ...
 *
 * That makes a result batch-invariant, whoever computed what: one block all of it, or many blocks a span each, or a split
 * each where there are few keys, which leave their sums (units) in scratch for combine(). Keys that a row may not see change
 * nothing, to the bit: their P is 0, and what has seen no key is left out of a fold.
 *
 * A block that computes all of it has the sum of the spans so far in `out`, one access for 1,024 keys; what it knows of a
 * row lies in the padding of Q's rows in shared memory.
 *
 * Heads of fewer values than D (80, 112) have zeros behind them in shared memory.
 *
 * K and V of F32 caches are hi + lo as well (SPLIT), and P too. Rows of keys outside of what the tile sees are
 * zeros in shared memory, for what lies in the cache there may be NaN. */
#ifndef PI_ATTENTION_KERNELS_CUH
#define PI_ATTENTION_KERNELS_CUH

#include "backend/cuda/kernels.h"
#include "cache.cuh"
#include "ptx.cuh"
#include "warp.cuh"

enum {
    WARPS = 4,
    THREADS = WARPS * 32,
    KV_SHIFT = 8,                 /* of a split: 256 keys */
    SPAN_SHIFT = KV_SHIFT + 2,    /* of a span: 4 splits */
};
static constexpr float LOG2E = 1.44269504088896340736f;
#define PI_MINUS_INF __uint_as_float(0xff800000u)

/* Sizes of a kernel for heads of D values and tiles of ROWS rows, MT pieces of 16; with 8 rows the piece has each twice.
 * Rows in shared memory are 16 bytes longer than they need: the 8 rows that ldmatrix reads at a time then lie in different
 * banks. */
template <int D, int ROWS, bool SPLIT> struct shape {
    static constexpr int R = ROWS;
    static constexpr int MT = (R + 15) / 16;
    static constexpr int EACH = R / 8 / MT;         /* rows of a piece that a thread has a share of: 2, or 1 */
    static constexpr int TILE = D <= 128 ? 64 : D <= 256 ? 32 : 16;
    static constexpr int COLS = D / 8;              /* pieces of 16 bytes a row of K or V */
    static constexpr int COPIES = TILE * COLS / THREADS; /* of them that a thread copies */
    static constexpr int SAME = THREADS % COLS || THREADS > 16 * COLS ? 1 : 16 * COLS / THREADS; /* in 16 keys, a block */
    static constexpr int N = COLS / WARPS;          /* 8-column pieces of O that a warp has */
    static constexpr int LD = D + 8;                /* halves from row to row of Q, K, V */
    static constexpr int LDS = TILE + 4;            /* floats from row to row of S */
    static constexpr int LDP = 2 * LDS;             /* halves from row to row of P, which takes S's place: high, then low */
    static constexpr int PLANES = SPLIT ? 2 : 1;
    static constexpr size_t q = 0;                  /* byte offsets in shared memory: Q high and low */
    static constexpr size_t k = q + 2 * 2 * (size_t) (R * LD);
    static constexpr size_t v = k + 2 * (size_t) (PLANES * TILE * LD);
    static constexpr size_t s = v + 2 * (size_t) (PLANES * TILE * LD);
    static constexpr size_t state = s + 4 * (size_t) (R * LDS); /* m, l, c: [3][R] floats */
    static constexpr size_t total = state + 12 * (size_t) R;
};

/* A launch. */
struct attn_job {
    pi__k_attn a;
    int32_t group;      /* query heads a kv head */
    int32_t kv_head0;   /* kv heads from here on; the next two are of these launches */
    int32_t n_kv_heads; /* how many */
    int32_t n_units;    /* most units of a row; 0: a block computes all of it */
    int32_t unit_shift; /* of a unit: KV_SHIFT or SPAN_SHIFT */
};

/* What a block knows of a row, in the padding of the row's high and low halves of Q. */
struct row_sums {
    float m, l;         /* of the span so far */
    float all_m, all_l; /* of the spans before */
};
struct row_keys {
    int32_t lo, hi;     /* first and last that it sees */
};

/* The work of a block. */
struct work {
    int32_t seq, kv_head;
    int32_t first, n_rows;   /* rows of the sequence: number of the tile's first, how many there are in all */
    int32_t token0;          /* the sequence's first token of this step */
    int32_t group;           /* query heads a kv head */
    int32_t lo, hi;          /* first and last key that any row of the tile sees */
};

PI_FN int32_t row_token(const work &w, int32_t r) { return w.token0 + (w.first + r) / w.group; }
PI_FN int32_t row_head(const work &w, int32_t r) { return w.kv_head * w.group + (w.first + r) % w.group; }
PI_FN bool row_there(const work &w, int32_t r) { return w.first + r < w.n_rows; }
PI_FN int32_t first_key(const pi__k_attn &a, int32_t pos)
{
    return max(a.first, a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0);
}
/* s: the sequence. */
PI_FN int32_t last_key(const pi__k_attn &a, int32_t s, int32_t pos)
{
    return a.block && pos >= 0 ? a.pos[a.seq_start[s + 1] - 1] : pos - (a.past ? 1 : 0);
}

/* The first tile of sequence s, leaving room for a partial one before each sequence. */
template <int R> PI_FN int32_t first_tile(const attn_job &j, int32_t s)
{
    return (int32_t) ((uint32_t) (j.a.seq_start[s] * j.group) / R) + s;
}

/* false: there is no such tile. */
template <int R> PI_FN bool find_work(const attn_job &j, work &w)
{
    const pi__k_attn &a = j.a;
    int32_t tile = (int32_t) blockIdx.x, lo = 0, hi = a.n_seqs - 1;
    w.group = j.group;
    while (lo < hi) {
        int32_t mid = (lo + hi + 1) >> 1;
        if (first_tile<R>(j, mid) <= tile) lo = mid;
        else hi = mid - 1;
    }
    w.seq = lo;
    w.kv_head = j.kv_head0 + (int32_t) blockIdx.y;
    w.token0 = a.seq_start[lo];
    w.n_rows = (a.seq_start[lo + 1] - w.token0) * w.group;
    w.first = (tile - first_tile<R>(j, lo)) * R;
    if (w.first >= w.n_rows) return false;
    int32_t last = min(w.first + R, w.n_rows) - 1 - w.first;
    w.lo = first_key(a, a.pos[row_token(w, 0)]);
    w.hi = last_key(a, w.seq, a.pos[row_token(w, last)]);
    return true;
}

/* ---------------------------------------------------------------------------------------------------------- into shared */

/* A float as the sum of two f16, hi and lo. */
PI_FN void split(float f, uint16_t *high, uint16_t *low)
{
    *high = float_to_half(f);
    *low = float_to_half(f - half_to_float(*high));
}

template <class S> PI_FN row_sums &sums_of(unsigned char *shared, int r, int D)
{
    return *(row_sums *) ((uint16_t *) (shared + S::q) + r * S::LD + D);
}
template <class S> PI_FN row_keys &keys_of(unsigned char *shared, int r, int D)
{
    return *(row_keys *) ((uint16_t *) (shared + S::q) + (S::R + r) * S::LD + D);
}

/* Q and what is known of each row: a warp a row. */
template <class S> PI_FN void load_q(const pi__k_attn &a, const work &w, unsigned char *shared, int D)
{
    uint16_t *q = (uint16_t *) (shared + S::q);
    int lane = (int) threadIdx.x % 32, dim = a.cache.head_dim;
    for (int r = (int) threadIdx.x / 32; r < S::R; r += WARPS) {
        bool there = row_there(w, r);
        int32_t token = there ? row_token(w, r) : 0, pos = there ? a.pos[token] : -1;
        const float *from = a.q + token * a.ldq + (there ? row_head(w, r) : 0) * a.q_stride;
        for (int d = lane; d < D; d += 32) {
            split(there && d < dim ? clean(from[d]) : 0.0f, &q[r * S::LD + d], &q[S::R * S::LD + r * S::LD + d]);
        }
        if (lane) continue;
        sums_of<S>(shared, r, D) = {PI_MINUS_INF, 0, PI_MINUS_INF, 0};
        keys_of<S>(shared, r, D) = {first_key(a, pos), last_key(a, w.seq, pos)};
    }
}

PI_FN uint32_t pair(uint16_t a, uint16_t b) { return a | (uint32_t) b << 16; }

/* 8 floats as halves to two planes (SPLIT), or to one. */
template <class S> PI_FN void store8(uint16_t *to, const float (&f)[8])
{
    uint16_t h[8], l[8];
    for (int j = 0; j < 8; j++) split(clean(f[j]), &h[j], &l[j]);
    *(uint4 *) to = {pair(h[0], h[1]), pair(h[2], h[3]), pair(h[4], h[5]), pair(h[6], h[7])};
    if (S::PLANES == 1) return;
    *(uint4 *) (to + S::TILE * S::LD) = {pair(l[0], l[1]), pair(l[2], l[3]), pair(l[4], l[5]), pair(l[6], l[7])};
}

/* K or V of the block's sequence and head. */
struct keys_at {
    cache_plane plane;
    const int32_t *table; /* the sequence's blocks */
    int32_t type, shift, offset_mask, n_col; /* n_col: pieces of 8 values a row */
};

PI_FN keys_at keys_from(const pi__k_attn &a, const work &w, bool v)
{
    return {plane_of(a.cache, v, w.kv_head), a.block_table + (size_t) w.seq * (size_t) a.table_stride,
            v ? a.cache.type_v : a.cache.type_k, block_shift(a.cache.block_size), a.cache.block_size - 1, a.cache.head_dim / 8};
}

/* TILE keys from key0 on, K or V, to shared memory. F16 is copied as it is, in the background, the numbers of blocks read
 * before. One group of copies. */
template <class S> PI_FN void load_tile(const keys_at &at, const work &w, int32_t key0, uint16_t *to)
{
    if (at.type == PI__F16 && S::PLANES == 1) {
        int32_t block[S::COPIES / S::SAME];
#pragma unroll
        for (int g = 0; g < S::COPIES / S::SAME; g++) {
            int32_t key = key0 + (g * S::SAME * THREADS + (int) threadIdx.x) / S::COLS;
            block[g] = (key | 15) >= w.lo && (key & ~15) <= w.hi ? at.table[key >> at.shift] : 0;
        }
#pragma unroll
        for (int n = 0; n < S::COPIES; n++) {
            int i = n * THREADS + (int) threadIdx.x, r = i / S::COLS, c = i % S::COLS;
            int32_t key = key0 + r;
            bool there = key >= w.lo && key <= w.hi && c < at.n_col;
            const char *from = at.plane.base + (size_t) block[n / S::SAME] * at.plane.stride +
                               (uint32_t) (key & at.offset_mask) * at.plane.row + 16 * (there ? c : 0);
            ptx_cp_async16(ptx_shared(to + r * S::LD + 8 * c), from, there ? 16 : 0);
        }
    } else {
        for (int i = (int) threadIdx.x; i < S::TILE * S::COLS; i += THREADS) {
            int r = i / S::COLS, c = i % S::COLS;
            int32_t key = key0 + r;
            float f[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            if (key >= w.lo && key <= w.hi && c < at.n_col) {
                cache_get8(at.type, cache_token(at.plane, at.table[key >> at.shift], key & at.offset_mask), c, f);
            }
            store8<S>(to + r * S::LD + 8 * c, f);
        }
    }
    ptx_cp_async_commit();
}

/* ------------------------------------------------------------------------------------------------------------- a tile */

/* S = Q K^T: pieces of 16 rows x 8 keys; two steps of 16 values of K at a time. */
template <int D, int R, bool SPLIT> PI_FN void scores(unsigned char *shared)
{
    using S = shape<D, R, SPLIT>;
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    const uint16_t *q = (uint16_t *) (shared + S::q), *k = (uint16_t *) (shared + S::k);
    float *s = (float *) (shared + S::s);
    for (int u = warp; u < S::MT * S::TILE / 8; u += WARPS) {
        int mt = u % S::MT, nt = u / S::MT;
        float acc[4] = {0, 0, 0, 0};
#pragma unroll 2
        for (int d = 0; d < D; d += 32) {
            uint32_t qh[2][4], ql[2][4], b[4];
            for (int i = 0; i < 2; i++) {
                const uint16_t *at = q + (16 * mt + lane % 16 % R) * S::LD + d + 16 * i + 8 * (lane / 16);
                ptx_ldmatrix_x4(qh[i], ptx_shared(at));
                ptx_ldmatrix_x4(ql[i], ptx_shared(at + S::R * S::LD));
            }
            const uint16_t *kp = k + (8 * nt + lane % 8) * S::LD + d + 8 * (lane / 8);
            if (SPLIT) {
                ptx_ldmatrix_x4(b, ptx_shared(kp + S::TILE * S::LD));
                ptx_mma_f16(acc, qh[0], {b[0], b[1]});
                ptx_mma_f16(acc, qh[1], {b[2], b[3]});
            }
            ptx_ldmatrix_x4(b, ptx_shared(kp));
            ptx_mma_f16(acc, ql[0], {b[0], b[1]});
            ptx_mma_f16(acc, ql[1], {b[2], b[3]});
            ptx_mma_f16(acc, qh[0], {b[0], b[1]});
            ptx_mma_f16(acc, qh[1], {b[2], b[3]});
        }
        for (int i = 0; i < 2 * S::EACH; i++) {
            s[(16 * mt + lane / 4 + 8 * (i / 2)) * S::LDS + 8 * nt + 2 * (lane % 4) + i % 2] = acc[i];
        }
    }
}

/* Softmax of a tile's scores: P, and the split's new m, l and c of each row. 8 threads a row. */
template <int D, int R, bool SPLIT> PI_FN void softmax(const pi__k_attn &a, int32_t key0, unsigned char *shared)
{
    using S = shape<D, R, SPLIT>;
    constexpr int EACH = S::TILE / 8; /* keys of a thread: thread, thread + 8, ... */
    const float *s = (float *) (shared + S::s);
    uint16_t *p = (uint16_t *) (shared + S::s);
    float *m = (float *) (shared + S::state), *l = m + S::R, *c = l + S::R;
    for (int r = (int) threadIdx.x / 8; r < S::R; r += THREADS / 8) {
        int t = (int) threadIdx.x % 8;
        const row_keys seen = keys_of<S>(shared, r, D);
        float x[EACH], top = m[r], old = top, sum = 0;
        for (int i = 0; i < EACH; i++) {
            int32_t key = key0 + t + 8 * i;
            float f = s[r * S::LDS + t + 8 * i];
            if (a.softcap != 0) f = a.softcap * tanhf(f / a.softcap);
            x[i] = key >= seen.lo && key <= seen.hi ? f * LOG2E : PI_MINUS_INF;
            top = fmaxf(top, x[i]);
        }
        for (int o = 4; o; o >>= 1) top = fmaxf(top, __shfl_xor_sync(PI_FULL, top, o));
        float base = top == PI_MINUS_INF ? 0.0f : top;
        __syncwarp(); /* the row's S is read: P may take its place */
        for (int i = 0; i < EACH; i++) {
            float e = ptx_exp2(x[i] - base);
            uint16_t high, low;
            split(e, &high, &low);
            p[r * S::LDP + t + 8 * i] = high;
            if (SPLIT) p[r * S::LDP + S::TILE + t + 8 * i] = low;
            sum += SPLIT ? e : half_to_float(high); /* what PV multiplies */
        }
        for (int o = 4; o; o >>= 1) sum += __shfl_xor_sync(PI_FULL, sum, o);
        __syncwarp(); /* all lanes have the old m */
        if (t == 0) {
            float scale = ptx_exp2(old - base);
            m[r] = top;
            l[r] = fmaf(l[r], scale, sum);
            c[r] = scale;
        }
    }
}

/* The two words of V for 16 keys x 8 columns, for `n` such pieces: columns side by side, or keys one below the other. */
template <int LD> PI_FN void load_v(const uint16_t *v, int key, int col, bool side, uint32_t (&b)[4])
{
    int lane = (int) threadIdx.x % 32;
    const uint16_t *at = side ? v + (key + lane % 16) * LD + col + 8 * (lane / 16) : v + (key + lane) * LD + col;
    ptx_ldmatrix_x4_trans(b, ptx_shared(at));
}

/* O = O c + P V for the warp's columns. */
template <int D, int R, bool SPLIT>
PI_FN void weigh(unsigned char *shared, float (&acc)[shape<D, R, SPLIT>::MT][D / 8 / WARPS][4])
{
    using S = shape<D, R, SPLIT>;
    constexpr int MT = S::MT;
    constexpr bool SIDE = S::N % 2 == 0; /* a load brings two pieces: columns side by side where there are pairs */
    constexpr int KEYS = SIDE ? 16 : 32, PIECES = SIDE ? 2 : 1;
    int lane = (int) threadIdx.x % 32, col0 = (int) threadIdx.x / 32 * S::N * 8;
    const uint16_t *p = (uint16_t *) (shared + S::s), *v = (uint16_t *) (shared + S::v);
    const float *c = (float *) (shared + S::state) + 2 * S::R;
#pragma unroll
    for (int mt = 0; mt < MT; mt++) {
        float c0 = c[16 * mt + lane / 4], c1 = c[16 * mt + lane / 4 + 8 * (S::EACH - 1)];
#pragma unroll
        for (int n = 0; n < S::N; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) acc[mt][n][i] *= i < 2 ? c0 : c1;
        }
    }
    for (int key = 0; key < S::TILE; key += KEYS) {
        uint32_t ph[MT][KEYS / 16][4], pl[MT][KEYS / 16][4];
#pragma unroll
        for (int mt = 0; mt < MT; mt++) {
#pragma unroll
            for (int i = 0; i < KEYS / 16; i++) {
                const uint16_t *at = p + (16 * mt + lane % 16 % R) * S::LDP + key + 16 * i + 8 * (lane / 16);
                ptx_ldmatrix_x4(ph[mt][i], ptx_shared(at));
                if (SPLIT) ptx_ldmatrix_x4(pl[mt][i], ptx_shared(at + S::TILE));
            }
        }
#pragma unroll
        for (int n = 0; n < S::N; n += PIECES) {
            uint32_t b[4], bl[4];
            load_v<S::LD>(v, key, col0 + 8 * n, SIDE, b);
            if (SPLIT) load_v<S::LD>(v + S::TILE * S::LD, key, col0 + 8 * n, SIDE, bl);
#pragma unroll
            for (int i = 0; i < 2; i++) { /* the two pieces: columns n, n + 1, or keys key, key + 16 */
                int piece = SIDE ? n + i : n, step = SIDE ? 0 : i;
#pragma unroll
                for (int mt = 0; mt < MT; mt++) {
                    if (SPLIT) {
                        ptx_mma_f16(acc[mt][piece], ph[mt][step], {bl[2 * i], bl[2 * i + 1]});
                        ptx_mma_f16(acc[mt][piece], pl[mt][step], {b[2 * i], b[2 * i + 1]});
                    }
                    ptx_mma_f16(acc[mt][piece], ph[mt][step], {b[2 * i], b[2 * i + 1]});
                }
            }
        }
    }
}

/* ------------------------------------------------------------------------------------------------------------- results */

/* A sum and the one that is folded into it: the new maximum, and what becomes of both. One that has seen no key is left
 * out, as if it were not there. */
struct fold_by {
    float m, run, next;
    bool all, none; /* all: the sum so far is empty; none: the next one is */
};
PI_FN fold_by fold(float m_run, float m_next)
{
    float m = fmaxf(m_run, m_next), base = m == PI_MINUS_INF ? 0.0f : m;
    return {m, ptx_exp2(m_run - base), ptx_exp2(m_next - base), m_run == PI_MINUS_INF, m_next == PI_MINUS_INF};
}
PI_FN float folded(const fold_by &f, float run, float next)
{
    return f.none ? run : f.all ? next : fmaf(next, f.next, run * f.run);
}

/* Factor of O: the sink joins the sum, which then divides. A row that sees no key is zeros. */
PI_FN float final_factor(const pi__k_attn &a, int32_t head, float m, float l)
{
    if (!a.sinks) return l > 0 ? 1.0f / l : 0.0f;
    float sink = a.sinks[head] * LOG2E, top = fmaxf(m, sink), scale = ptx_exp2(m - top);
    return scale / fmaf(l, scale, ptx_exp2(sink - top));
}

PI_FN void put(const pi__k_attn &a, int32_t token, int32_t head, int32_t d, float o)
{
    if (a.gate) o *= 1.0f / (1.0f + expf(-a.gate[token * a.ldq + head * a.q_stride + d]));
    a.out[token * a.ldo + (int64_t) head * a.cache.head_dim + d] = o;
}

/* Row `row` of the launch (token by token, head by head) in scratch: O [D] of each unit, then m and l of each unit of all
 * rows. */
PI_FN size_t scratch_row(const attn_job &j, int32_t token, int32_t head)
{
    return (size_t) token * (size_t) (j.n_kv_heads * j.group) + (size_t) (head - j.kv_head0 * j.group);
}
PI_FN float *unit_o(const attn_job &j, size_t row, int32_t unit)
{
    return (float *) j.a.scratch + (row * (size_t) j.n_units + (size_t) unit) * (size_t) j.a.cache.head_dim;
}
PI_FN float2 *unit_ml(const attn_job &j, size_t row, int32_t unit)
{
    size_t rows = (size_t) j.a.n_tokens * (size_t) (j.n_kv_heads * j.group);
    return (float2 *) unit_o(j, rows, 0) + row * (size_t) j.n_units + (size_t) unit;
}

/* The thread's rows: n-th of S::MT * S::EACH. */
template <class S> PI_FN int row_of(int n)
{
    return 16 * (n / S::EACH) + (int) threadIdx.x % 32 / 4 + 8 * (n % S::EACH);
}

/* Folds the split's sum of the thread's rows and columns into the span's. */
template <class S, int MT, int N>
PI_FN void fold_split(unsigned char *shared, int D, const float (&acc)[MT][N][4], float (&run)[MT][N][4])
{
    const float *m = (float *) (shared + S::state);
#pragma unroll
    for (int r = 0; r < MT * S::EACH; r++) {
        int row = row_of<S>(r);
        const fold_by f = fold(sums_of<S>(shared, row, D).m, m[row]);
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            float &to = run[r / S::EACH][i / 2][2 * (r % S::EACH) + i % 2];
            to = folded(f, to, acc[r / S::EACH][i / 2][2 * (r % S::EACH) + i % 2]);
        }
    }
}

/* The span's sum of the thread's rows and columns: to scratch (of unit >= 0), or folded into those before, in out, which
 * after the last one is the result. */
template <class S, int MT, int N>
PI_FN void put_span(const attn_job &j, const work &w, unsigned char *shared, int D, int32_t unit, bool last, const float (&run)[MT][N][4])
{
    int col0 = (int) threadIdx.x / 32 * N * 8 + 2 * ((int) threadIdx.x % 4), dim = j.a.cache.head_dim;
#pragma unroll
    for (int r = 0; r < MT * S::EACH; r++) {
        int row = row_of<S>(r);
        if (!row_there(w, row)) continue;
        int32_t token = row_token(w, row), head = row_head(w, row);
        const row_sums s = sums_of<S>(shared, row, D);
        const fold_by f = fold(s.all_m, s.m);
        float by = last ? final_factor(j.a, head, f.m, folded(f, s.all_l, s.l)) : 1.0f;
        float *out = j.a.out + token * j.a.ldo + (int64_t) head * dim, *o = out;
        if (unit >= 0) {
            size_t at = scratch_row(j, token, head);
            o = unit_o(j, at, unit);
            if (col0 == 0) *unit_ml(j, at, unit) = {s.m, s.l};
        }
#pragma unroll
        for (int i = 0; i < 2 * N; i++) {
            int d = col0 + 8 * (i / 2) + i % 2;
            float x = run[r / S::EACH][i / 2][2 * (r % S::EACH) + i % 2];
            if (d >= dim) continue;
            if (unit < 0) x = folded(f, f.all ? 0.0f : out[d], x);
            if (unit < 0 && last) put(j.a, token, head, d, x * by);
            else o[d] = x;
        }
    }
}

/* After fold_split() or put_span(): the sums of row r, by one thread. */
template <class S> PI_FN void add_split(unsigned char *shared, int D, int r)
{
    float *m = (float *) (shared + S::state), *l = m + S::R;
    row_sums &s = sums_of<S>(shared, r, D);
    const fold_by f = fold(s.m, m[r]);
    s.m = f.m;
    s.l = folded(f, s.l, l[r]);
    m[r] = PI_MINUS_INF, l[r] = 0;
}
template <class S> PI_FN void add_span(unsigned char *shared, int D, int r)
{
    row_sums &s = sums_of<S>(shared, r, D);
    const fold_by f = fold(s.all_m, s.m);
    s = {PI_MINUS_INF, 0, f.m, folded(f, s.all_l, s.l)};
}

template <int M, int N> PI_FN void clear(float (&x)[M][N][4])
{
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) x[i / 4 / N][i / 4 % N][i % 4] = 0;
}

/* Block (tile, kv head, unit). */
template <int D, int R, bool SPLIT> __global__ void __launch_bounds__(THREADS, 2) attention(attn_job j)
{
    using S = shape<D, R, SPLIT>;
    PI_SMEM(shared);
    const pi__k_attn &a = j.a;
    work w;
    if (!find_work<R>(j, w)) return;
    int32_t tile = w.lo / S::TILE, last = max(w.hi / S::TILE, tile), unit = -1;
    if (j.n_units) {
        int32_t number = (w.lo >> j.unit_shift) + (int32_t) blockIdx.z;
        if (number > w.hi >> j.unit_shift) return;
        unit = (int32_t) blockIdx.z;
        tile = max(tile, (number << j.unit_shift) / S::TILE);
        last = max(min(last, ((number + 1) << j.unit_shift) / S::TILE - 1), tile);
    }
    const int r = (int) threadIdx.x;
    uint16_t *k = (uint16_t *) (shared + S::k), *v = (uint16_t *) (shared + S::v);
    const keys_at k_at = keys_from(a, w, false), v_at = keys_from(a, w, true);
    float acc[S::MT][S::N][4], run[S::MT][S::N][4];
    clear(run);
    clear(acc);
    if (r < R) ((float *) (shared + S::state))[r] = PI_MINUS_INF, ((float *) (shared + S::state))[R + r] = 0;
    load_q<S>(a, w, shared, D);
    load_tile<S>(k_at, w, tile * S::TILE, k);
    load_tile<S>(v_at, w, tile * S::TILE, v);
    for (; tile <= last; tile++) {
        int32_t key0 = tile * S::TILE, end = key0 + S::TILE;
        ptx_cp_async_wait<1>();
        __syncthreads();
        scores<D, R, SPLIT>(shared);
        __syncthreads();
        if (tile < last) load_tile<S>(k_at, w, end, k);
        else ptx_cp_async_commit();
        softmax<D, R, SPLIT>(a, key0, shared);
        ptx_cp_async_wait<1>();
        __syncthreads();
        weigh<D, R, SPLIT>(shared, acc);
        bool whole = tile == last || end % (1 << KV_SHIFT) == 0;
        if (whole) fold_split<S>(shared, D, acc, run);
        __syncthreads();
        if (tile < last) load_tile<S>(v_at, w, end, v);
        else ptx_cp_async_commit();
        if (!whole) continue;
        clear(acc);
        if (r < R) add_split<S>(shared, D, r);
        if (tile < last && end % (1 << SPAN_SHIFT)) continue;
        __syncthreads();
        put_span<S>(j, w, shared, D, unit, tile == last, run);
        clear(run);
        __syncthreads();
        if (r < R) add_span<S>(shared, D, r);
    }
}

/* Folds the units of a row, R of attention(): block (tile, kv head, row), a thread a column. */
template <int R> __global__ void combine(attn_job j)
{
    work w;
    int32_t row = (int32_t) blockIdx.z, d = (int32_t) threadIdx.x;
    if (!find_work<R>(j, w) || !row_there(w, row) || d >= j.a.cache.head_dim) return;
    int32_t token = row_token(w, row), head = row_head(w, row);
    int32_t first = w.lo >> j.unit_shift, n = (w.hi >> j.unit_shift) - first + 1, spans = (1 << (SPAN_SHIFT - j.unit_shift)) - 1;
    size_t at = scratch_row(j, token, head);
    const float2 *ml = unit_ml(j, at, 0);
    const float *from = unit_o(j, at, 0) + d;
    float2 run = {PI_MINUS_INF, 0}, all = run;
    float run_o = 0, all_o = 0;
#pragma unroll 8
    for (int32_t i = 0; i < n; i++) {
        const float2 next = ml[i];
        const float o = from[(size_t) i * (size_t) j.a.cache.head_dim];
        fold_by f = fold(run.x, next.x);
        run = {f.m, folded(f, run.y, next.y)};
        run_o = folded(f, run_o, o);
        if (((first + i + 1) & spans) && i + 1 < n) continue;
        f = fold(all.x, run.x);
        all = {f.m, folded(f, all.y, run.y)};
        all_o = folded(f, all_o, run_o);
        run = {PI_MINUS_INF, 0};
    }
    put(j.a, token, head, d, all_o * final_factor(j.a, head, all.x, all.y));
}

#endif
