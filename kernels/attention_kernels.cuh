/* Softmax attention over the paged cache on tensor cores, for prefill, decode and both in one batch.
 *
 * The rows of a sequence that share a kv head, token by token, head by head, are cut into tiles of R = 16 MT rows; a block
 * takes one tile and walks the keys, TILE at a time (positions k TILE .. k TILE + TILE - 1 whatever the block size of the
 * cache). For each tile of keys:
 *
 *     S = Q K^T    warps share the 16x8 pieces      Q as hi + lo f16 of 11 bits, so that logits are as good as with floats
 *     P, m, l      8 threads a row                  online softmax in powers of 2
 *     O = O c + PV each warp has D / WARPS columns  c: what the new maximum does to the old sum
 *
 *     time ->   [ wait K ][ S ][ copy next K ...... ]
 *               [ copy V ............ ][ softmax ][ wait V ][ P V ][ copy next V ...
 *
 * KV SPLITS. The keys of positions p KV_SPLIT .. p KV_SPLIT + KV_SPLIT - 1 have a sum (m, l, O) of their own, and the
 * sums are folded in order. That makes a result batch-invariant, whoever computed which split: one block after the
 * other, or many blocks that leave their sums in scratch for combine(). Keys that a row may not see change nothing, to
 * the bit: their P is 0.
 *
 * K and V of F32 caches are hi + lo as well (SPLIT), and P too. Rows of keys outside of what the tile sees are
 * zeros in shared memory, for what lies in the cache there may be NaN. */
#ifndef PI_ATTENTION_KERNELS_CUH
#define PI_ATTENTION_KERNELS_CUH

#include "backend/cuda/kernels.h"
#include "cache.cuh"
#include "ptx.cuh"
#include "warp.cuh"

enum { WARPS = 4, THREADS = WARPS * 32, KV_SPLIT = 256, MAX_UNITS = 4096 };
static constexpr float LOG2E = 1.44269504088896340736f;
#define PI_MINUS_INF __uint_as_float(0xff800000u)

/* Sizes of a kernel for heads of D values and 16 MT rows. Rows in shared memory are 16 bytes longer than they need: the 8
 * rows that ldmatrix reads at a time then lie in different banks. */
template <int D, int MT, bool SPLIT> struct shape {
    static constexpr int R = 16 * MT;
    static constexpr int TILE = D <= 128 ? 64 : D <= 256 ? 32 : 16;
    static constexpr int N = D / 8 / WARPS;         /* 8-column pieces of O that a warp has */
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
PI_FN int32_t last_key(const pi__k_attn &a, int32_t pos) { return pos - (a.past ? 1 : 0); }

/* The first tile of sequence s, leaving room for a partial one before each sequence. */
PI_FN int32_t first_tile(const pi__k_attn &a, int32_t group, int32_t rows, int32_t s)
{
    return a.seq_start[s] * group / rows + s;
}

/* false: there is no such tile. */
PI_FN bool find_work(const pi__k_attn &a, int32_t rows, work &w)
{
    int32_t tile = (int32_t) blockIdx.x, lo = 0, hi = a.n_seqs - 1;
    w.group = a.n_head / a.cache.n_head_kv;
    while (lo < hi) {
        int32_t mid = (lo + hi + 1) / 2;
        if (first_tile(a, w.group, rows, mid) <= tile) lo = mid;
        else hi = mid - 1;
    }
    w.seq = lo;
    w.kv_head = (int32_t) blockIdx.y;
    w.token0 = a.seq_start[lo];
    w.n_rows = (a.seq_start[lo + 1] - w.token0) * w.group;
    w.first = (tile - first_tile(a, w.group, rows, lo)) * rows;
    if (w.first >= w.n_rows) return false;
    int32_t last = min(w.first + rows, w.n_rows) - 1 - w.first;
    w.lo = first_key(a, a.pos[row_token(w, 0)]);
    w.hi = last_key(a, a.pos[row_token(w, last)]);
    return true;
}

/* ---------------------------------------------------------------------------------------------------------- into shared */

/* A float as the sum of two f16, hi and lo. */
PI_FN void split(float f, uint16_t *high, uint16_t *low)
{
    *high = float_to_half(f);
    *low = float_to_half(f - half_to_float(*high));
}

template <class S> PI_FN void load_q(const pi__k_attn &a, const work &w, unsigned char *shared, int D)
{
    uint16_t *q = (uint16_t *) (shared + S::q);
    for (int i = (int) threadIdx.x; i < S::R * D; i += THREADS) {
        int r = i / D, d = i % D;
        float f = row_there(w, r) ? a.q[row_token(w, r) * a.ldq + row_head(w, r) * a.q_stride + d] : 0.0f;
        split(clean(f), &q[r * S::LD + d], &q[S::R * S::LD + r * S::LD + d]);
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

/* TILE keys from key0 on, K or V, to shared memory. F16 is copied as it is, in the background. One group of copies. */
template <class S> PI_FN void load_tile(const pi__k_attn &a, const work &w, bool v, int32_t key0, uint16_t *to, int D)
{
    int32_t type = v ? a.cache.type_v : a.cache.type_k, size = a.cache.block_size;
    const int32_t *table = a.block_table + (size_t) w.seq * (size_t) a.table_stride;
    for (int i = (int) threadIdx.x; i < S::TILE * (D / 8); i += THREADS) {
        int r = i / (D / 8), c = i % (D / 8);
        int32_t key = key0 + r;
        bool there = key >= w.lo && key <= w.hi;
        uint16_t *p = to + r * S::LD + 8 * c;
        cache_row row = {a.cache.base, nullptr};
        if (there) row = cache_token(a.cache, v, table[key / size], w.kv_head, key % size);
        if (type == PI__F16 && S::PLANES == 1) {
            ptx_cp_async16(ptx_shared(p), row.codes + (there ? 16 * c : 0), there ? 16 : 0);
        } else {
            float f[8] = {0, 0, 0, 0, 0, 0, 0, 0};
            if (there) cache_get8(type, row, c, f);
            store8<S>(p, f);
        }
    }
    ptx_cp_async_commit();
}

/* ------------------------------------------------------------------------------------------------------------- a tile */

/* S = Q K^T: pieces of 16 rows x 8 keys; two steps of 16 values of K at a time. */
template <int D, int MT, bool SPLIT> PI_FN void scores(unsigned char *shared)
{
    using S = shape<D, MT, SPLIT>;
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    const uint16_t *q = (uint16_t *) (shared + S::q), *k = (uint16_t *) (shared + S::k);
    float *s = (float *) (shared + S::s);
    for (int u = warp; u < MT * S::TILE / 8; u += WARPS) {
        int mt = u % MT, nt = u / MT;
        float acc[4] = {0, 0, 0, 0};
#pragma unroll 2
        for (int d = 0; d < D; d += 32) {
            uint32_t qh[2][4], ql[2][4], b[4];
            for (int i = 0; i < 2; i++) {
                const uint16_t *at = q + (16 * mt + lane % 16) * S::LD + d + 16 * i + 8 * (lane / 16);
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
        for (int i = 0; i < 4; i++) s[(16 * mt + lane / 4 + 8 * (i / 2)) * S::LDS + 8 * nt + 2 * (lane % 4) + i % 2] = acc[i];
    }
}

/* Softmax of a tile's scores: P, and the split's new m, l and c of each row. 8 threads a row. */
template <int D, int MT, bool SPLIT> PI_FN void softmax(const pi__k_attn &a, const work &w, int32_t key0, unsigned char *shared)
{
    using S = shape<D, MT, SPLIT>;
    constexpr int EACH = S::TILE / 8; /* keys of a thread: thread, thread + 8, ... */
    const float *s = (float *) (shared + S::s);
    uint16_t *p = (uint16_t *) (shared + S::s);
    float *m = (float *) (shared + S::state), *l = m + S::R, *c = l + S::R;
    for (int r = (int) threadIdx.x / 8; r < S::R; r += THREADS / 8) {
        int t = (int) threadIdx.x % 8;
        int32_t pos = row_there(w, r) ? a.pos[row_token(w, r)] : -1, lo = first_key(a, pos), hi = last_key(a, pos);
        float x[EACH], top = m[r], old = top, sum = 0;
        for (int i = 0; i < EACH; i++) {
            int32_t key = key0 + t + 8 * i;
            float f = s[r * S::LDS + t + 8 * i];
            if (a.softcap != 0) f = a.softcap * tanhf(f / a.softcap);
            x[i] = key >= lo && key <= hi ? f * LOG2E : PI_MINUS_INF;
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
template <int D, int MT, bool SPLIT>
PI_FN void weigh(unsigned char *shared, float (&acc)[MT][D / 8 / WARPS][4])
{
    using S = shape<D, MT, SPLIT>;
    constexpr bool SIDE = S::N % 2 == 0; /* a load brings two pieces: columns side by side where there are pairs */
    constexpr int KEYS = SIDE ? 16 : 32, PIECES = SIDE ? 2 : 1;
    int lane = (int) threadIdx.x % 32, col0 = (int) threadIdx.x / 32 * S::N * 8;
    const uint16_t *p = (uint16_t *) (shared + S::s), *v = (uint16_t *) (shared + S::v);
    const float *c = (float *) (shared + S::state) + 2 * S::R;
#pragma unroll
    for (int mt = 0; mt < MT; mt++) {
        float c0 = c[16 * mt + lane / 4], c1 = c[16 * mt + lane / 4 + 8];
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
                const uint16_t *at = p + (16 * mt + lane % 16) * S::LDP + key + 16 * i + 8 * (lane / 16);
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

/* Scales of the sums so far and of a split's when they are folded, and the new maximum. */
struct fold_by {
    float m, run, split;
};
PI_FN fold_by fold(float m_run, float m_split)
{
    float m = fmaxf(m_run, m_split), base = m == PI_MINUS_INF ? 0.0f : m;
    return {m, ptx_exp2(m_run - base), ptx_exp2(m_split - base)};
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

/* A KV split's sum in scratch: m [R], l [R], O [R, D]; units in the order of tiles, kv heads, splits. */
PI_FN float *unit_of(const pi__k_attn &a, int32_t tile, int32_t kv_head, int32_t split, int32_t n_splits, int32_t R, int32_t D)
{
    size_t unit = ((size_t) tile * (size_t) a.cache.n_head_kv + (size_t) kv_head) * (size_t) n_splits + (size_t) split;
    return (float *) a.scratch + unit * (size_t) (R * (D + 2));
}

/* Folds the split's sum of the thread's rows and columns into run. */
template <class S, int MT, int N, int RM, int RN>
PI_FN void fold_split(const float *m, const float *l, const float (&acc)[MT][N][4], float (&run)[RM][RN][4],
                     float (&run_m)[2 * MT], float (&run_l)[2 * MT])
{
    if constexpr (RM == MT && RN == N) {
        int lane = (int) threadIdx.x % 32;
#pragma unroll
        for (int r = 0; r < 2 * MT; r++) {
            int row = 16 * (r / 2) + lane / 4 + 8 * (r % 2);
            fold_by f = fold(run_m[r], m[row]);
            run_m[r] = f.m;
            run_l[r] = fmaf(l[row], f.split, run_l[r] * f.run);
#pragma unroll
            for (int i = 0; i < 2 * N; i++) {
                float &to = run[r / 2][i / 2][2 * (r % 2) + i % 2];
                to = fmaf(acc[r / 2][i / 2][2 * (r % 2) + i % 2], f.split, to * f.run);
            }
        }
    }
}

template <int M, int N> PI_FN void clear(float (&x)[M][N][4])
{
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) x[i / 4 / N][i / 4 % N][i % 4] = 0;
}

template <int D, int MT, bool SPLIT, bool UNITS> __global__ void __launch_bounds__(THREADS, 2)
attention(pi__k_attn a, int32_t n_splits)
{
    using S = shape<D, MT, SPLIT>;
    PI_SMEM(shared);
    work w;
    if (!find_work(a, S::R, w)) return;
    int lane = (int) threadIdx.x % 32, col0 = (int) threadIdx.x / 32 * S::N * 8 + 2 * (lane % 4);
    int32_t split = UNITS ? w.lo / KV_SPLIT + (int32_t) blockIdx.z : w.lo / KV_SPLIT, last_split = w.hi / KV_SPLIT;
    if (UNITS && split > last_split) return;
    int32_t last = (UNITS ? min(w.hi, split * KV_SPLIT + KV_SPLIT - 1) : w.hi) / S::TILE;
    int32_t tile = max(w.lo, split * KV_SPLIT) / S::TILE;
    float *m = (float *) (shared + S::state), *l = m + S::R;
    uint16_t *k = (uint16_t *) (shared + S::k), *v = (uint16_t *) (shared + S::v);
    float acc[MT][S::N][4], run[UNITS ? 1 : MT][UNITS ? 1 : S::N][4] /* UNITS: not used */, run_m[2 * MT], run_l[2 * MT];
#pragma unroll
    for (int i = 0; i < 2 * MT; i++) run_m[i] = PI_MINUS_INF, run_l[i] = 0;
    clear(run);
    clear(acc);

    if ((int) threadIdx.x < S::R) m[threadIdx.x] = PI_MINUS_INF, l[threadIdx.x] = 0;
    load_q<S>(a, w, shared, D);
    load_tile<S>(a, w, false, tile * S::TILE, k, D);
    load_tile<S>(a, w, true, tile * S::TILE, v, D);
    for (bool fresh = false; tile <= last; tile++) {
        int32_t key0 = tile * S::TILE;
        if (fresh) {
            if ((int) threadIdx.x < S::R) m[threadIdx.x] = PI_MINUS_INF, l[threadIdx.x] = 0;
            clear(acc);
        }
        ptx_cp_async_wait<1>();
        __syncthreads();
        scores<D, MT, SPLIT>(shared);
        __syncthreads();
        if (tile < last) load_tile<S>(a, w, false, key0 + S::TILE, k, D);
        else ptx_cp_async_commit();
        softmax<D, MT, SPLIT>(a, w, key0, shared);
        ptx_cp_async_wait<1>();
        __syncthreads();
        weigh<D, MT, SPLIT>(shared, acc);
        fresh = (key0 + S::TILE) % KV_SPLIT == 0 || tile == last;
        if (fresh && !UNITS) fold_split<S>(m, l, acc, run, run_m, run_l);
        __syncthreads();
        if (tile < last) load_tile<S>(a, w, true, key0 + S::TILE, v, D);
        else ptx_cp_async_commit();
    }
    float *unit = UNITS ? unit_of(a, (int32_t) blockIdx.x, w.kv_head, (int32_t) blockIdx.z, n_splits, S::R, D) : nullptr;
    if (UNITS && (int) threadIdx.x < S::R) {
        unit[threadIdx.x] = m[threadIdx.x];
        unit[S::R + threadIdx.x] = l[threadIdx.x];
    }
#pragma unroll
    for (int r = 0; r < 2 * MT; r++) {
        int row = 16 * (r / 2) + lane / 4 + 8 * (r % 2);
        if (!row_there(w, row)) continue;
        int32_t token = row_token(w, row), head = row_head(w, row);
        float by = UNITS ? 1.0f : final_factor(a, head, run_m[r], run_l[r]);
#pragma unroll
        for (int n = 0; n < S::N; n++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float o = UNITS ? acc[r / 2][n][2 * (r % 2) + i] : run[UNITS ? 0 : r / 2][UNITS ? 0 : n][2 * (r % 2) + i];
                int d = col0 + 8 * n + i;
                if (UNITS) unit[2 * S::R + row * D + d] = o;
                else put(a, token, head, d, o * by);
            }
        }
    }
}

/* Folds the KV splits of a tile in order: a thread a column, a block a row. */
template <int D> __global__ void combine(pi__k_attn a, int32_t n_splits)
{
    constexpr int R = 16;
    work w;
    if (!find_work(a, R, w)) return;
    int32_t row = (int32_t) blockIdx.z, d = (int32_t) threadIdx.x;
    if (!row_there(w, row)) return;
    float m = PI_MINUS_INF, l = 0, o = 0;
    for (int32_t i = 0; i <= w.hi / KV_SPLIT - w.lo / KV_SPLIT; i++) {
        const float *unit = unit_of(a, (int32_t) blockIdx.x, w.kv_head, i, n_splits, R, D);
        fold_by f = fold(m, unit[row]);
        m = f.m;
        l = fmaf(unit[R + row], f.split, l * f.run);
        o = fmaf(unit[2 * R + row * D + d], f.split, o * f.run);
    }
    put(a, row_token(w, row), row_head(w, row), d, o * final_factor(a, row_head(w, row), m, l));
}

#endif
