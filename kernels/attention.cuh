/* Shared by the attention kernels (attention_kernels.cuh, attention_wgmma_kernels.cuh, key_blocks_kernels.cuh): tile
 * sizes, the work of a block of threads, KV splits, the fold of the splits' sums, and the scratch of launches in which
 * several blocks share a row (units, see below). The online softmax is FlashAttention's.
 *
 * KV SPLITS. A split is 256 keys (1 << KV_SHIFT): split p holds positions 256 p .. 256 p + 255. Each split has its own
 * sum: m = maximum of the logits, l = sum of the weights, O [D] = weighted sum of V. A span is 4 adjacent splits. The
 * sums of a span's splits are folded in order; then the sums of the spans are folded in order:
 *
 *     position   0       256     512     768     1024    1280
 *     splits     [ s0 ]  [ s1 ]  [ s2 ]  [ s3 ]  [ s4 ]  [ s5 ] ...
 *     spans      [ ((s0 + s1) + s2) + s3       ]  [ (s4 + s5) ...          all = (span 0 + span 1) + ...
 *
 * The fold order is fixed, so results are bitwise identical however the keys are divided among blocks of threads. One
 * block has all keys of a row, or one span, or (if there are few keys) one split. In the last two cases the span or
 * split of a block is called a unit: each block writes its sum to scratch, and the blocks that finish last combine the
 * units. Masked keys do not change a bit: their weight P is 0, and the fold skips the sum of a split without keys. */
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
    UNIT_ROWS = 16,               /* rows of a tile (shape::R) in launches with units */
};
static constexpr float LOG2E = 1.44269504088896340736f;
#define PI_MINUS_INF __uint_as_float(0xff800000u)

/* Precision of the two matmuls, Q K^T and P V. FAST: Q, P, K and V are one f16 each; one product. EXACT: Q is the sum
 * of two f16, hi + lo, so scores are as accurate as with float queries; K, V and P are one f16. HILO: for F32 caches.
 * Q, K, V and P are hi + lo. */
enum { FAST, EXACT, HILO };

/* How keys and values reach shared memory (attention_keys.cuh). COPIED: F16 and BF16 are copied to their final place.
 * RAW: other types are copied in their cache layout, then converted to f16 in shared memory. HILO kernels have RAW
 * here, but copy nothing: they convert while they read the cache. */
enum { COPIED, RAW };

/* Sizes that, with KIND, determine the bits of a row's result, so they are equal in all kernels for heads of D values.
 * TILE: keys of a tile. PARTS: number of equal parts of D; a score is the sum of one dot product per part. */
template <int D> struct head {
    static constexpr int TILE = D <= 64 ? 64 : D <= 128 ? 32 : 16;
    static constexpr int PARTS = D <= 128 ? 2 : D <= 256 ? 4 : 8;
};

/* Sizes of an attention() kernel for heads of D values. A block has GROUPS groups of 16 rows. WARPS warps share a
 * group's rows; each has D / WARPS columns of Q, K, V and O. KIND: FAST, EXACT or HILO; COMES: COPIED or RAW. */
template <int D_, int GROUPS_, int WARPS_, int KIND_, int COMES_> struct shape {
    static constexpr int D = D_, GROUPS = GROUPS_, WARPS = WARPS_, KIND = KIND_, COMES = COMES_;
    static constexpr int R = 16 * GROUPS, THREADS = 32 * GROUPS * WARPS;
    static constexpr int TILE = head<D>::TILE;
    static constexpr int COLS = D / 8;                       /* pieces (8 f16, 16 bytes) of a row of K or V */
    static constexpr int N = COLS / WARPS;                   /* pieces (8 columns) of O per warp */
    static constexpr int PARTS = head<D>::PARTS / WARPS;     /* parts of a score that a warp computes */
    static constexpr int Q_TERMS = KIND == FAST ? 1 : 2, PLANES = KIND == HILO ? 2 : 1;
    static constexpr uint32_t PLANE = 2 * TILE * D;          /* bytes of TILE rows of K or of V, one f16 per value */
    /* bytes of a tile of K and one of V; HILO: hi and lo of both */
    static constexpr uint32_t TILES = 2 * PLANES * PLANE;
    static constexpr uint32_t EXCHANGE = WARPS > 1 ? THREADS * TILE / 8 * 16 : 0; /* shared bytes to exchange scores */
    static constexpr int MIN_BLOCKS = THREADS == 256 ? 1 : 2; /* blocks per SM that the registers allow */
    static constexpr int STEP = TILE;                        /* keys of a softmax step */
    static constexpr bool REL = D <= 128;                    /* has biases of scores (pi__k_attn::rel) */
    static constexpr int STEPS = N / 2;                      /* mma steps of 16 values of Q and K per warp */
    static constexpr int FIRST_COPIER = 0, COPIERS = THREADS; /* the first copying thread; number of copying threads */
    static constexpr uint32_t PITCH = 2 * D;                 /* bytes between the rows (keys) of a tile */
    /* Bytes from a piece to the next piece of the row that is swizzled equally: 4 or 8 pieces further (swizzled()). */
    static constexpr uint32_t NEXT = COLS % 8 ? 64 : 128;

    /* False if column d is past the end of a head of dim columns. Only D 96 and 128 also serve smaller heads (80,
     * 112). */
    static __device__ __forceinline__ bool has_column(int32_t d, int32_t dim)
    {
        return (D != 96 && D != 128) || d < dim;
    }
    /* thread(): index of the thread in the block. group(): index of the warp's group of 16 rows. part(): index of the
     * warp among the WARPS warps of the group. q_column(): first column of Q that the warp multiplies. */
    static __device__ __forceinline__ int thread() { return (int) threadIdx.x; }
    static __device__ __forceinline__ int group() { return (int) threadIdx.x / 32 / WARPS; }
    static __device__ __forceinline__ int part() { return (int) threadIdx.x / 32 % WARPS; }
    static __device__ __forceinline__ int q_column() { return part() * N * 8; }
};

/* Arguments of attention() and attention_wgmma(). */
struct attn_job {
    pi__k_attn a;
    int32_t group;      /* query heads per kv head */
    int32_t kv_head0;   /* first kv head of the launch */
    int32_t n_kv_heads; /* kv heads of the launch */
    int32_t n_units;    /* max units of a row (gridDim.z); 0 = no units: one block has all keys of a row */
    int32_t unit_shift; /* log2 of a unit's keys: KV_SHIFT or SPAN_SHIFT */
    pi__k_tail tail;    /* the launch's epilogue; arrived == NULL = no epilogue */
};

/* The work of a block: a tile of R rows of one sequence and kv head. A row is a pair: a token of this step and one of
 * the `group` query heads that use the kv head. The rows of a sequence are ordered by token, then by head. */
struct work {
    int32_t seq, kv_head;    /* sparse prefill: seq is the index of the run (pi__runs) */
    int32_t first, n_rows;   /* row of the sequence at which the tile starts; rows of the sequence: tokens * group */
    int32_t token0;          /* index in the batch of the sequence's first token of this step */
    int32_t group;           /* query heads per kv head */
    int32_t lo, hi;          /* first and last key position that any row of the tile attends to */
};

/* Token (index in the batch) and query head of row r of the tile, and whether that row exists. */
PI_FN int32_t row_token(const work &w, int32_t r) { return w.token0 + (w.first + r) / w.group; }
PI_FN int32_t row_head(const work &w, int32_t r) { return w.kv_head * w.group + (w.first + r) % w.group; }
PI_FN bool row_there(const work &w, int32_t r) { return w.first + r < w.n_rows; }
/* Position of the first key that a token at position pos attends to. */
PI_FN int32_t first_key(const pi__k_attn &a, int32_t pos)
{
    return max(a.first, a.window > 0 && pos >= a.window ? pos - a.window + 1 : 0);
}
/* Position of the last key that a token at position pos of sequence s attends to: its own, or the one before (a.past).
 * With a.block: the sequence's last key, or the a.ahead-th key after pos. With a.see_to: at least the key that the
 * token's entry names. token: index in the batch. */
PI_FN int32_t last_key(const pi__k_attn &a, int32_t s, int32_t token, int32_t pos)
{
    if (a.see_to && pos >= 0) return max(pos, a.see_to[token]);
    if (!a.block || pos < 0) return pos - (a.past ? 1 : 0);
    const int32_t last = a.seq_len ? a.seq_len[s] - 1 : a.pos[a.seq_start[s + 1] - 1];
    return a.ahead && pos + a.ahead < last ? pos + a.ahead : last;
}

/* Index (in the grid's x) of the first tile of sequence s. Each of the s earlier sequences may end with a partial tile,
 * hence + s. Indices that no sequence needs have no tile. */
template <int R> PI_FN int32_t first_tile(const attn_job &j, int32_t s)
{
    return (int32_t) ((uint32_t) (j.a.seq_start[s] * j.group) / R) + s;
}

/* Fills w for index `tile` of the launch and the kv head of blockIdx.y. Returns false if the index has no tile. */
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
    w.hi = last_key(a, w.seq, row_token(w, last), a.pos[row_token(w, last)]);
    return true;
}

/* Addresses of K and V for the block's sequence and kv head. */
struct keys_at {
    cache_plane k, v;
    const int32_t *table;  /* block table of the sequence: cache block of each block_size positions */
    const uint32_t *taken; /* sparse prefill: bit i set = key block i is attended to; NULL = all key blocks */
};

/* Key ranges, inclusive, as positions: of a row, and of a group of 16 rows. */
struct row_keys {
    int32_t lo, hi; /* first and last key that the row attends to; hi < lo = no key */
};
struct group_keys {
    int32_t from, to;         /* first and last key that any of the 16 rows attends to; to < from = no rows */
    int32_t all_from, all_to; /* first and last key that all 16 rows attend to */
};

/* m and l of a thread's two rows (r = 0, 1), over the spans folded so far. m: maximum of the logits, times log2(e). l:
 * sum over the keys of exp2(logit * log2(e) - m). */
struct alignas(16) row_sums {
    float m[2], l[2];
};

/* The work of a block of threads, in shared memory because registers are full. all[thread]: sums of that thread's rows.
 * group[g], row[r]: key ranges. SIZE: bytes, a multiple of 128. */
template <class S> struct block_facts {
    row_sums all[S::THREADS];
    group_keys group[S::GROUPS];
    row_keys row[S::R];
    work w;
    keys_at at;
    static constexpr uint32_t SIZE = (16 * S::THREADS + 16 * S::GROUPS + 8 * S::R + 112 + 127) / 128 * 128;
};

/* Fills `facts` from w. Called by all S::THREADS threads; a barrier is needed before another thread reads `facts`. */
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
        const int32_t token = row_token(w, r), pos = row_there(w, r) ? a.pos[token] : -1;
        facts.row[r] = {first_key(a, pos), last_key(a, w.seq, token, pos)};
    }
    if (r >= S::GROUPS) return;
    facts.group[r] = {0, -1, 0, -1};
    if (!row_there(w, 16 * r)) return;
    const int32_t t0 = row_token(w, 16 * r), t1 = row_token(w, min(16 * r + 15, w.n_rows - 1 - w.first));
    const int32_t first = a.pos[t0], last = a.pos[t1];
    facts.group[r] = {first_key(a, first), last_key(a, w.seq, t1, last), first_key(a, last),
                      last_key(a, w.seq, t0, first)};
}

/* ----------------------------------------------------------------------------------------------------------- sums */

/* Running sums in registers, in the mma accumulator layout: a thread has rows g and g + 8 (g = lane / 4) of its group,
 * and 2 N columns of each. o[n][2 r + i] is row r's column 8 n + 2 (lane % 4) + i of the warp's columns. l[0] and l[2]
 * are the sums of P of rows g and g + 8, computed as a product with a column of ones. m[r]: maximum of row r's logits
 * times log2(e). */
template <int N> struct sums {
    float o[N][4], l[4] = {}, m[2];

    /* get, put: the thread's two values of O in piece n (8 columns) and row r (0 = g, 1 = g + 8). */
    __device__ __forceinline__ float2 get(int n, int r) const { return {o[n][2 * r], o[n][2 * r + 1]}; }
    __device__ __forceinline__ void put(int n, int r, const float2 &x) { o[n][2 * r] = x.x, o[n][2 * r + 1] = x.y; }
    /* get_ml, put_ml: m (x) and l (y) of row r. */
    __device__ __forceinline__ float2 get_ml(int r) const { return {m[r], l[2 * r]}; }
    __device__ __forceinline__ void put_ml(int r, const float2 &x) { m[r] = x.x, l[2 * r] = x.y; }
};

/* The same sums in shared memory. Each 128 threads have N + 1 pieces of float2 [2 rows][128 threads]: the N pieces of
 * O, then (m, l). A thread reads only the values that it wrote. */
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

/* Empties a sum: O = 0, l = 0, m = -inf. */
template <int N, template <int> class SUMS> PI_FN void clear(SUMS<N> &s)
{
#pragma unroll
    for (int i = 0; i < 2 * N; i++) s.put(i / 2, i % 2, {0, 0});
    for (int r = 0; r < 2; r++) s.put_ml(r, {PI_MINUS_INF, 0});
}

/* Factors that fold a sum `next` into a sum `run`. m: the larger of both maxima; run, next: factors exp2(old m - m) of
 * the two sums. none: the next sum has no keys (its m is -inf), and the running sum stays bitwise unchanged. */
struct fold_by {
    float m, run, next;
    bool none;
};
PI_FN fold_by fold(float m_run, float m_next)
{
    float m = fmaxf(m_run, m_next), base = m == PI_MINUS_INF ? 0.0f : m;
    return {m, ptx_exp2(m_run - base), ptx_exp2(m_next - base), m_next == PI_MINUS_INF};
}
/* Returns the folded value of O or l. If the running sum has no keys, its value `run` must be 0. */
PI_FN float folded(const fold_by &f, float run, float next) { return f.none ? run : fmaf(next, f.next, run * f.run); }

/* Folds a split's sum `next` into a span's sum `run`: m, l and O of the thread's two rows. */
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

/* Returns the final factor of O: 1 / (l + sink weight), where the sink is an extra logit of the head (a.sinks, NULL =
 * no sinks). m, l: sums over all keys. Both are rescaled to the larger of m and the sink. A row without keys gives
 * 0. */
PI_FN float final_factor(const pi__k_attn &a, int32_t head, float m, float l)
{
    if (!a.sinks) return l > 0 ? 1.0f / l : 0.0f;
    float sink = a.sinks[head] * LOG2E, top = fmaxf(m, sink), scale = ptx_exp2(m - top);
    return scale / fmaf(l, scale, ptx_exp2(sink - top));
}

/* Returns sigmoid(gate) for column d of a token's query head. a.gate must not be NULL. */
PI_FN float gate_of(const pi__k_attn &a, int32_t token, int32_t head, int32_t d)
{
    return 1.0f / (1.0f + expf(-a.gate[token * a.ldq + head * a.q_stride + d]));
}
PI_FN float *out_of(const pi__k_attn &a, int32_t token, int32_t head)
{
    return a.out + token * a.ldo + (int64_t) head * a.cache.head_dim;
}

/* Scratch of launches with units. A row is a token and a query head of the launch's kv heads; its index is token *
 * heads + head (scratch_row). Contents, in floats, D = head_dim:
 *
 *     O      [rows][n_units][D]      unit_o(row, unit): sum of V, not divided by l
 *     (m, l) [rows][n_units][2]      unit_ml(row, unit)
 *
 * `unit` counts from the first unit that the row's tile attends to. */
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


/* Writes `run`, the sum of the span or unit that has ended, and clears it. With units, run goes to scratch, entry
 * blockIdx.z. Otherwise it is folded into a.out, which holds O of the earlier spans. last: no span follows, so the
 * result gets its final factor and gate. of: m and l of the thread's rows over the spans so far, updated. */
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
        /* Write O. Without units, fold it with the value in a.out, which is undefined before the first span (before ==
         * 0). */
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
        /* Multiply by the gate after the last span only; fold_units() does it in launches with units. */
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
