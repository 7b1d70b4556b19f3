/* Shared by the attention kernels: tile sizes, the work of a block, KV splits, the fold of the splits' sums, and the
 * scratch of launches in which several blocks share a row (units, see below).
 *
 * KV SPLITS. A split holds 256 keys (1 << KV_SHIFT): split p has positions 256 p .. 256 p + 255. Each split has its
 * own sum (m, l, O). A span is 4 adjacent splits. The sums of a span's splits are folded in order; then the sums of
 * the spans are folded in order:
 *
 *     position   0       256     512     768     1024    1280
 *     splits     [ s0 ]  [ s1 ]  [ s2 ]  [ s3 ]  [ s4 ]  [ s5 ] ...
 *     spans      [ ((s0 + s1) + s2) + s3       ]  [ (s4 + s5) ...          all = (span 0 + span 1) + ...
 *
 * This fixed order makes results batch-invariant for every assignment of blocks: one block for all keys, one block
 * per span, or one block per split where there are few keys. In the last two cases each block writes its sum (a unit:
 * a span or a split) to scratch, and the blocks that arrive last combine the units. Masked keys do not change a bit:
 * their P is 0, and the fold skips a sum without keys. */
#ifndef PI_ATTENTION_CUH
#define PI_ATTENTION_CUH

#include "backend/cuda/kernels.h"
#include "cache.cuh"
#include "ptx.cuh"
#include "warp.cuh"

namespace attention {

enum {
    KV_SHIFT = 8,                 /* log2 of the keys of a split (256) */
    SPAN_SHIFT = KV_SHIFT + 2,    /* log2 of the keys of a span (4 splits) */
    UNIT_ROWS = 16,               /* rows of a tile in launches with units */
};
static constexpr float LOG2E = 1.44269504088896340736f;
#define PI_MINUS_INF __uint_as_float(0xff800000u)

/* Number of f16 products for each matmul. FAST: Q, P, K and V are f16; one product. EXACT: Q is hi + lo, two f16, so
 * that scores are as accurate as with floats. HILO: K, V (F32 caches) and P are hi + lo, too. */
enum { FAST, EXACT, HILO };

/* How keys and values reach shared memory (attention_keys.cuh). COPIED: F16 and BF16, in their final place. RAW: other
 * types, copied in their cache layout and then converted in shared memory. HILO converts during the load. */
enum { COPIED, RAW };

/* Sizes that, with KIND, determine the bits of a row's result. TILE: keys of a tile. PARTS: number of parts of D; a
 * score is the sum of one dot product per part. */
template <int D> struct head {
    static constexpr int TILE = D <= 64 ? 64 : D <= 128 ? 32 : 16;
    static constexpr int PARTS = D <= 128 ? 2 : D <= 256 ? 4 : 8;
};

/* Sizes of a kernel for heads of D values: GROUPS groups of 16 rows, WARPS warps per group, D / WARPS columns per
 * warp. */
template <int D_, int GROUPS_, int WARPS_, int KIND_, int COMES_> struct shape {
    static constexpr int D = D_, GROUPS = GROUPS_, WARPS = WARPS_, KIND = KIND_, COMES = COMES_;
    static constexpr int R = 16 * GROUPS, THREADS = 32 * GROUPS * WARPS;
    static constexpr int TILE = head<D>::TILE;
    static constexpr int COLS = D / 8;                       /* 16-byte pieces of a row of K or V */
    static constexpr int N = COLS / WARPS;                   /* 8-column pieces of O per warp */
    static constexpr int PARTS = head<D>::PARTS / WARPS;     /* number of D's parts that a warp multiplies */
    static constexpr int Q_TERMS = KIND == FAST ? 1 : 2, PLANES = KIND == HILO ? 2 : 1;
    static constexpr uint32_t PLANE = 2 * TILE * D;          /* bytes of a tile of K or V as one f16 (hi or lo) */
    static constexpr uint32_t TILES = 2 * PLANES * PLANE;    /* bytes of K's and V's tiles; HILO: hi and lo */
    static constexpr uint32_t EXCHANGE = WARPS > 1 ? THREADS * TILE / 8 * 16 : 0; /* bytes for parts of scores */
    static constexpr int MIN_BLOCKS = THREADS == 256 ? 1 : 2; /* blocks per multiprocessor that registers allow */
    static constexpr int STEP = TILE;                        /* keys of a softmax step */
    static constexpr int STEPS = N / 2;                      /* mma steps of 16 values of Q and K per warp */
    static constexpr int FIRST_COPIER = 0, COPIERS = THREADS; /* threads that copy keys and values */
    static constexpr uint32_t PITCH = 2 * D;                 /* bytes between rows of a tile */
    /* Bytes between adjacent pieces of a row with the same swizzle: 4 or 8 pieces. */
    static constexpr uint32_t NEXT = COLS % 8 ? 64 : 128;

    /* False for columns past the head's end: some heads are smaller than D. */
    static __device__ __forceinline__ bool has_column(int32_t d, int32_t dim)
    {
        return (D != 96 && D != 128) || d < dim;
    }
    /* Index of the thread; of the warp's group of 16 rows; of the warp within the group; the warp's first column of
     * Q. */
    static __device__ __forceinline__ int thread() { return (int) threadIdx.x; }
    static __device__ __forceinline__ int group() { return (int) threadIdx.x / 32 / WARPS; }
    static __device__ __forceinline__ int part() { return (int) threadIdx.x / 32 % WARPS; }
    static __device__ __forceinline__ int q_column() { return part() * N * 8; }
};

/* Arguments of an attention kernel. */
struct attn_job {
    pi__k_attn a;
    int32_t group;      /* query heads per kv head */
    int32_t kv_head0;   /* first kv head of the launch */
    int32_t n_kv_heads; /* kv heads of the launch */
    int32_t n_units;    /* max units of a row; 0 = no units: one block computes all keys of a row */
    int32_t unit_shift; /* log2 of a unit's keys: KV_SHIFT or SPAN_SHIFT */
    pi__k_tail tail;    /* the launch's epilogue; arrived == NULL = no epilogue */
};

/* The work of a block: a tile of R rows of one sequence and kv head. A row is a token of this step and one of the kv
 * head's query heads; rows are ordered by token, then by head. */
struct work {
    int32_t seq, kv_head;    /* sparse prefill: `seq` is the run's index */
    int32_t first, n_rows;   /* index of the tile's first row in the sequence; number of rows of the sequence */
    int32_t token0;          /* index in the batch of the sequence's first token of this step */
    int32_t group;           /* query heads per kv head */
    int32_t lo, hi;          /* first and last key that any row of the tile attends to */
};

PI_FN int32_t row_token(const work &w, int32_t r) { return w.token0 + (w.first + r) / w.group; }
PI_FN int32_t row_head(const work &w, int32_t r) { return w.kv_head * w.group + (w.first + r) % w.group; }
PI_FN bool row_there(const work &w, int32_t r) { return w.first + r < w.n_rows; }
PI_FN int32_t first_key(const pi__k_attn &a, int32_t pos)
{
    return max(a.first, a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0);
}
/* Last key that a token at `pos` of sequence s attends to. */
PI_FN int32_t last_key(const pi__k_attn &a, int32_t s, int32_t pos)
{
    if (!a.block || pos < 0) return pos - (a.past ? 1 : 0);
    const int32_t last = a.pos[a.seq_start[s + 1] - 1];
    return a.ahead && pos + a.ahead < last ? pos + a.ahead : last;
}

/* Index of the first tile of sequence s in the launch. Each earlier sequence may have ended with one partial tile,
 * hence + s; some indices have no tile. */
template <int R> PI_FN int32_t first_tile(const attn_job &j, int32_t s)
{
    return (int32_t) ((uint32_t) (j.a.seq_start[s] * j.group) / R) + s;
}

/* Fills w for tile index `tile` of the launch. Returns false if the index has no tile. */
template <int R> PI_FN bool find_work(const attn_job &j, int32_t tile, work &w)
{
    const pi__k_attn &a = j.a;
    int32_t lo = 0, hi = a.n_seqs - 1;
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

/* K and V of the block's sequence and kv head. */
struct keys_at {
    cache_plane k, v;
    const int32_t *table;  /* block table of the sequence */
    const uint32_t *taken; /* sparse prefill: bit i = key block i is attended to; NULL = all key blocks */
};

struct row_keys {
    int32_t lo, hi; /* first and last key that the row attends to; hi < lo = no key */
};
struct group_keys {
    int32_t from, to;         /* first and last key that any of the 16 rows attends to; to < from = no rows */
    int32_t all_from, all_to; /* first and last key that all 16 rows attend to */
};

/* m and l of the thread's two rows, over the spans folded so far. m: max of the logits times log2(e); l: sum of
 * exp2(logit log2(e) - m). */
struct alignas(16) row_sums {
    float m[2], l[2];
};

/* State of a block. In shared memory, since registers are full. */
template <class S> struct block_facts {
    row_sums all[S::THREADS];
    group_keys group[S::GROUPS];
    row_keys row[S::R];
    work w;
    keys_at at;
    static constexpr uint32_t SIZE = (16 * S::THREADS + 16 * S::GROUPS + 8 * S::R + 112 + 127) / 128 * 128;
};

/* Fills facts from w. Called by all threads; readers need a barrier afterwards. */
template <class S> PI_FN void find_facts(const pi__k_attn &a, const work &w, block_facts<S> &facts)
{
    static_assert(sizeof facts <= block_facts<S>::SIZE, "facts fit their part of shared memory");
    const int r = (int) threadIdx.x;
    if (r == 0) {
        const cache_plane k = plane_of(a.cache, false, w.kv_head), v = plane_of(a.cache, true, w.kv_head);
        facts.w = w;
        facts.at.k = k;
        facts.at.v = v;
        facts.at.table = a.block_table + (size_t) (a.run_seq ? a.run_seq[w.seq] : w.seq) * (size_t) a.table_stride;
        facts.at.taken = nullptr;
        if (a.run_seq && a.run_block[w.seq] >= 0)
            facts.at.taken = a.taken +
                             (size_t) (a.run_block[w.seq] * a.cache.n_head_kv + w.kv_head) * (size_t) a.taken_words;
    }
    facts.all[r] = {{PI_MINUS_INF, PI_MINUS_INF}, {0, 0}};
    if (r < S::R) {
        const int32_t pos = row_there(w, r) ? a.pos[row_token(w, r)] : -1;
        facts.row[r] = {first_key(a, pos), last_key(a, w.seq, pos)};
    }
    if (r >= S::GROUPS) return;
    facts.group[r] = {0, -1, 0, -1};
    if (!row_there(w, 16 * r)) return;
    const int32_t first = a.pos[row_token(w, 16 * r)],
                  last = a.pos[row_token(w, min(16 * r + 15, w.n_rows - 1 - w.first))];
    facts.group[r] = {first_key(a, first), last_key(a, w.seq, last), first_key(a, last), last_key(a, w.seq, first)};
}

/* ----------------------------------------------------------------------------------------------------------- sums */

/* Running sums of a thread's rows g and g + 8 in the mma accumulator layout: 2 N columns each. l[0] and l[2] are the
 * two rows' sums of P, computed as a product with a column of ones. m: the rows' maxima of the logits times log2(e). */
template <int N> struct sums {
    float o[N][4], l[4] = {}, m[2];

    /* The thread's two values of O in piece n and row r. */
    __device__ __forceinline__ float2 get(int n, int r) const { return {o[n][2 * r], o[n][2 * r + 1]}; }
    __device__ __forceinline__ void put(int n, int r, const float2 &x) { o[n][2 * r] = x.x, o[n][2 * r + 1] = x.y; }
    /* m (x) and l (y) of row r. */
    __device__ __forceinline__ float2 get_ml(int r) const { return {m[r], l[2 * r]}; }
    __device__ __forceinline__ void put_ml(int r, const float2 &x) { m[r] = x.x, l[2 * r] = x.y; }
};

/* Running sums in shared memory. Each group of four warps has the N pieces of O, then (m, l); a piece is
 * float2 [2 rows][128 threads]. */
template <int N> struct shared_sums {
    static constexpr uint32_t SIZE = (N + 1) * 2 * 128 * sizeof(float2);
    float2 *room;

    __device__ __forceinline__ float2 &at(int n, int r) const
    {
        /* Re-read the thread index, so that values derived from it occupy no registers between splits. */
        const int thread = ptx_read_thread();
        return room[thread / 128 * (N + 1) * 256 + (2 * n + r) * 128 + thread % 128];
    }
    __device__ __forceinline__ float2 get(int n, int r) const { return at(n, r); }
    __device__ __forceinline__ void put(int n, int r, const float2 &x) { at(n, r) = x; }
    __device__ __forceinline__ float2 get_ml(int r) const { return at(N, r); }
    __device__ __forceinline__ void put_ml(int r, const float2 &x) { at(N, r) = x; }
};

template <int N, template <int> class SUMS> PI_FN void clear(SUMS<N> &s)
{
#pragma unroll
    for (int i = 0; i < 2 * N; i++) s.put(i / 2, i % 2, {0, 0});
    for (int r = 0; r < 2; r++) s.put_ml(r, {PI_MINUS_INF, 0});
}

/* Factors of a fold: the new maximum m, the factor of the running sum, and the factor of the next sum. If the next sum
 * has no keys (`none`), the running sum does not change. */
struct fold_by {
    float m, run, next;
    bool none; /* the next sum has no keys */
};
PI_FN fold_by fold(float m_run, float m_next)
{
    float m = fmaxf(m_run, m_next), base = m == PI_MINUS_INF ? 0.0f : m;
    return {m, ptx_exp2(m_run - base), ptx_exp2(m_next - base), m_next == PI_MINUS_INF};
}
/* Folds two values; `run` is 0 if the running sum is empty. */
PI_FN float folded(const fold_by &f, float run, float next) { return f.none ? run : fmaf(next, f.next, run * f.run); }

/* Folds `next` into `run`. */
template <int N, template <int> class SUMS> PI_FN void fold_split(const sums<N> &next, SUMS<N> &run)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float2 was = run.get_ml(r), ml = next.get_ml(r);
        const fold_by f = fold(was.x, ml.x);
        run.put_ml(r, {f.m, folded(f, was.y, ml.y)});
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float2 x = run.get(n, r), y = next.get(n, r);
            run.put(n, r, {folded(f, x.x, y.x), folded(f, x.y, y.y)});
        }
    }
}

/* Final factor of O: 1 / (l + sink), with the sink rescaled to the new maximum. A row without keys gives zeros. */
PI_FN float final_factor(const pi__k_attn &a, int32_t head, float m, float l)
{
    if (!a.sinks) return l > 0 ? 1.0f / l : 0.0f;
    float sink = a.sinks[head] * LOG2E, top = fmaxf(m, sink), scale = ptx_exp2(m - top);
    return scale / fmaf(l, scale, ptx_exp2(sink - top));
}

/* Sigmoid of the gate for column d of a head. */
PI_FN float gate_of(const pi__k_attn &a, int32_t token, int32_t head, int32_t d)
{
    return 1.0f / (1.0f + expf(-a.gate[token * a.ldq + head * a.q_stride + d]));
}
PI_FN float *out_of(const pi__k_attn &a, int32_t token, int32_t head)
{
    return a.out + token * a.ldo + (int64_t) head * a.cache.head_dim;
}

/* Index of a row (by token, then head) in the scratch of launches with units. Scratch holds O [D] of each unit of all
 * rows, then (m, l) of each unit of all rows. */
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


/* Writes `run`, the sum of a span or unit, and clears it. With units, the sum goes to scratch. Otherwise it is folded
 * into the sum of the earlier spans in `out`; the last span then applies the final factor and the gate. of: m and l of
 * the spans so far, updated. */
template <class S, template <int> class SUMS>
PI_FN void put_span(const attn_job &j, const work &w, bool last, SUMS<S::N> &run, row_sums &of)
{
    const int lane = S::thread() % 32;
    const int32_t row0 = S::group() * 16 + lane / 4, col = S::part() * S::N * 8 + lane % 4 * 2;
    const bool unit = j.n_units > 0;
    row_sums all = of;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float2 ml = run.get_ml(r);
        const fold_by f = fold(all.m[r], ml.x);
        const float before = all.m[r] == PI_MINUS_INF ? 0.0f : f.run;
        const int32_t row = row0 + 8 * r;
        all.m[r] = f.m;
        all.l[r] = folded(f, all.l[r], ml.y);
        if (!row_there(w, row)) continue;
        const int32_t token = row_token(w, row), head = row_head(w, row);
        const float by = last ? final_factor(j.a, head, f.m, all.l[r]) : 1.0f;
        float *o = out_of(j.a, token, head) + col;
        if (unit) {
            const size_t at = scratch_row(j, token, head);
            o = unit_o(j, at, (int32_t) blockIdx.z) + col;
            if (col == 0) *unit_ml(j, at, (int32_t) blockIdx.z) = ml;
        }
        /* Write O: fold with the value in `out`, which is undefined before the first span. */
#pragma unroll
        for (int n = 0; n < S::N; n++) {
            if (!S::has_column(col + 8 * n, j.a.cache.head_dim)) continue;
            float2 x = run.get(n, r), *at = (float2 *) (o + 8 * n);
            if (!unit) {
                const float2 old = before == 0.0f ? float2{0, 0} : *at;
                x = {folded(f, old.x, x.x) * by, folded(f, old.y, x.y) * by};
            }
            *at = x;
        }
        /* Gate after the last span only. */
        if (unit || !last || !j.a.gate) continue;
#pragma unroll 1
        for (int n = 0; n < 2 * S::N; n++) {
            const int32_t d = n / 2 * 8 + n % 2;
            if (S::has_column(col + d, j.a.cache.head_dim)) o[d] *= gate_of(j.a, token, head, col + d);
        }
    }
    of = all;
    clear<S::N>(run);
}

} /* namespace attention */

#endif
