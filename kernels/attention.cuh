/* What blocks of attention() and those that combine their units agree on (attention_kernels.cuh): sizes, whose work it is, KV
 * splits and how their sums become one.
 *
 * KV SPLITS. The keys of positions p KV_SPLIT .. p KV_SPLIT + KV_SPLIT - 1 have a sum (m, l, O) of their own. The sums of
 * SPAN splits side by side, a span, are folded in order, and so are those of the spans:
 *
 *     position   0       256     512     768     1024    1280
 *     splits     [ s0 ]  [ s1 ]  [ s2 ]  [ s3 ]  [ s4 ]  [ s5 ] ...
 *     spans      [ ((s0 + s1) + s2) + s3       ]  [ (s4 + s5) ...          all = (span 0 + span 1) + ...
 *
 * That makes a result batch-invariant, whoever computed what: one block all of it, or many blocks a span each, or a split
 * each where there are few keys, which leave their sums (units) in scratch until the last blocks combine them. Keys that a
 * row may not see change nothing, to the bit: their P is 0, and what has seen no key is left out of a fold. */
#ifndef PI_ATTENTION_CUH
#define PI_ATTENTION_CUH

#include "backend/cuda/kernels.h"
#include "cache.cuh"
#include "ptx.cuh"
#include "warp.cuh"

enum {
    KV_SHIFT = 8,                 /* of a split: 256 keys */
    SPAN_SHIFT = KV_SHIFT + 2,    /* of a span: 4 splits */
    UNIT_ROWS = 16,               /* of a tile where there are units */
};
static constexpr float LOG2E = 1.44269504088896340736f;
#define PI_MINUS_INF __uint_as_float(0xff800000u)

/* How often a product is made. FAST: Q, P and the cache's values are f16, once. EXACT: Q is hi + lo, two f16, so that scores
 * are as good as with floats. HILO: so are K, V (of F32 caches) and P. */
enum { FAST, EXACT, HILO };

/* How values come to shared memory (attention_keys.cuh): F16 and BF16 as they are, others to be converted there. HILO's are
 * converted on the way. */
enum { COPIED, RAW };

/* What a row's bits depend on, beside the kind: keys of a tile, parts of D that a score is the sum of. */
template <int D> struct head {
    static constexpr int TILE = D <= 64 ? 64 : D <= 128 ? 32 : 16;
    static constexpr int PARTS = D <= 128 ? 2 : D <= 256 ? 4 : 8;
};

/* Sizes of a kernel for heads of D values: GROUPS of 16 rows, with WARPS each, of which each has D / WARPS columns. */
template <int D_, int GROUPS_, int WARPS_, int KIND_, int COMES_> struct shape {
    static constexpr int D = D_, GROUPS = GROUPS_, WARPS = WARPS_, KIND = KIND_, COMES = COMES_;
    static constexpr int R = 16 * GROUPS, THREADS = 32 * GROUPS * WARPS;
    static constexpr int TILE = head<D>::TILE;
    static constexpr int COLS = D / 8;                       /* pieces of 16 bytes a row of K or V */
    static constexpr int N = COLS / WARPS;                   /* 8-column pieces of O that a warp has */
    static constexpr int PARTS = head<D>::PARTS / WARPS;     /* of a score, that a warp has */
    static constexpr int Q_TERMS = KIND == FAST ? 1 : 2, PLANES = KIND == HILO ? 2 : 1;
    static constexpr uint32_t PLANE = 2 * TILE * D;          /* bytes of a tile of K or V; of HILO, lo is behind hi */
    static constexpr uint32_t TILES = 2 * PLANES * PLANE;    /* of K and V */
    static constexpr uint32_t EXCHANGE = WARPS > 1 ? THREADS * TILE / 8 * 16 : 0; /* parts of scores */
    static constexpr int LEAST_BLOCKS = THREADS == 256 ? 1 : 2; /* that registers leave room for */
    static constexpr int STEP = TILE;                        /* keys of a step of softmax */
    static constexpr int STEPS = N / 2;                      /* 16 values of Q and K each, that a warp has */
    static constexpr int FIRST_COPIER = 0, COPIERS = THREADS; /* threads that copy keys and values */
    static constexpr uint32_t PITCH = 2 * D;                 /* bytes from row to row of a tile */
    static constexpr uint32_t NEXT = COLS % 8 ? 64 : 128;    /* bytes from a piece of a row to the one that is swizzled like it */

    /* Some heads are smaller than D. */
    static __device__ __forceinline__ bool has_column(int32_t d, int32_t dim) { return (D != 96 && D != 128) || d < dim; }
    /* The thread; the warp's 16 rows, its part of O's columns, and its first column of Q. */
    static __device__ __forceinline__ int thread() { return (int) threadIdx.x; }
    static __device__ __forceinline__ int group() { return (int) threadIdx.x / 32 / WARPS; }
    static __device__ __forceinline__ int part() { return (int) threadIdx.x / 32 % WARPS; }
    static __device__ __forceinline__ int q_column() { return part() * N * 8; }
};

/* A launch. */
struct attn_job {
    pi__k_attn a;
    int32_t group;      /* query heads a kv head */
    int32_t kv_head0;   /* kv heads from here on; the next two are of these launches */
    int32_t n_kv_heads; /* how many */
    int32_t n_units;    /* most units of a row; 0: a block computes all of it */
    int32_t unit_shift; /* of a unit: KV_SHIFT or SPAN_SHIFT */
    pi__k_tail tail;    /* of the launch, or none */
};

/* The work of a block: a tile of R rows that share a kv head, token by token, head by head. */
struct work {
    int32_t seq, kv_head;    /* of sparse prefill the run, in place of the sequence */
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
    if (!a.block || pos < 0) return pos - (a.past ? 1 : 0);
    const int32_t last = a.pos[a.seq_start[s + 1] - 1];
    return a.ahead && pos + a.ahead < last ? pos + a.ahead : last;
}

/* The first tile of sequence s, leaving room for a partial one before each sequence. */
template <int R> PI_FN int32_t first_tile(const attn_job &j, int32_t s)
{
    return (int32_t) ((uint32_t) (j.a.seq_start[s] * j.group) / R) + s;
}

/* Of tile number `tile`. false: there is no such tile. */
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

/* K and V of the block's sequence and head. */
struct keys_at {
    cache_plane k, v;
    const int32_t *table;  /* the sequence's blocks */
    const uint32_t *taken; /* a bit a key block of sparse prefill: it is attended to; NULL: all are */
};

struct row_keys {
    int32_t lo, hi; /* first and last that the row sees; hi < lo: none */
};
struct group_keys {
    int32_t from, to;         /* first and last that any of 16 rows sees; to < from: there are no rows */
    int32_t all_from, all_to; /* that all of them see */
};

/* m and l of the spans before, of the thread's two rows. */
struct alignas(16) row_sums {
    float m[2], l[2];
};

/* What a block knows. It lies in shared memory, for it is wanted between tiles only, and registers are full. */
template <class S> struct block_facts {
    row_sums all[S::THREADS];
    group_keys group[S::GROUPS];
    row_keys row[S::R];
    work w;
    keys_at at;
    static constexpr uint32_t SIZE = (16 * S::THREADS + 16 * S::GROUPS + 8 * S::R + 112 + 127) / 128 * 128;
};

/* By all threads; there for all after a barrier. */
template <class S> PI_FN void find_facts(const pi__k_attn &a, const work &w, block_facts<S> &facts)
{
    static_assert(sizeof facts <= block_facts<S>::SIZE, "it has room");
    const int r = (int) threadIdx.x;
    if (r == 0) {
        const cache_plane k = plane_of(a.cache, false, w.kv_head), v = plane_of(a.cache, true, w.kv_head);
        facts.w = w;
        facts.at.k = k;
        facts.at.v = v;
        facts.at.table = a.block_table + (size_t) (a.run_seq ? a.run_seq[w.seq] : w.seq) * (size_t) a.table_stride;
        facts.at.taken = nullptr;
        if (a.run_seq && a.run_block[w.seq] >= 0)
            facts.at.taken = a.taken + (size_t) (a.run_block[w.seq] * a.cache.n_head_kv + w.kv_head) * (size_t) a.taken_words;
    }
    facts.all[r] = {{PI_MINUS_INF, PI_MINUS_INF}, {0, 0}};
    if (r < S::R) {
        const int32_t pos = row_there(w, r) ? a.pos[row_token(w, r)] : -1;
        facts.row[r] = {first_key(a, pos), last_key(a, w.seq, pos)};
    }
    if (r >= S::GROUPS) return;
    facts.group[r] = {0, -1, 0, -1};
    if (!row_there(w, 16 * r)) return;
    const int32_t first = a.pos[row_token(w, 16 * r)], last = a.pos[row_token(w, min(16 * r + 15, w.n_rows - 1 - w.first))];
    facts.group[r] = {first_key(a, first), last_key(a, w.seq, last), first_key(a, last), last_key(a, w.seq, first)};
}

/* ---------------------------------------------------------------------------------------------------------------- sums */

/* Of a thread's rows g and g + 8: 2 N columns of each, as the accumulators of an mma have them. l[0] and l[2] are the sums
 * of P, which a column of ones in V makes; m, the maxima, are logits in powers of 2. */
template <int N> struct sums {
    float o[N][4], l[4] = {}, m[2];

    /* Of O the thread's two of piece n and row r. */
    __device__ __forceinline__ float2 get(int n, int r) const { return {o[n][2 * r], o[n][2 * r + 1]}; }
    __device__ __forceinline__ void put(int n, int r, const float2 &x) { o[n][2 * r] = x.x, o[n][2 * r + 1] = x.y; }
    /* m and l of row r. */
    __device__ __forceinline__ float2 get_ml(int r) const { return {m[r], l[2 * r]}; }
    __device__ __forceinline__ void put_ml(int r, const float2 &x) { m[r] = x.x, l[2 * r] = x.y; }
};

/* The same in shared memory: of four warps O [N], then m and l, [2][128 threads] each. */
template <int N> struct shared_sums {
    static constexpr uint32_t SIZE = (N + 1) * 2 * 128 * sizeof(float2);
    float2 *room;

    __device__ __forceinline__ float2 &at(int n, int r) const
    {
        const int thread = ptx_read_thread(); /* what is made of it does not take registers between splits */
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

/* A sum and the one that is folded into it: the new maximum, and what becomes of both. One that has seen no key is left
 * out, as if it were not there. */
struct fold_by {
    float m, run, next;
    bool none; /* the next one is empty */
};
PI_FN fold_by fold(float m_run, float m_next)
{
    float m = fmaxf(m_run, m_next), base = m == PI_MINUS_INF ? 0.0f : m;
    return {m, ptx_exp2(m_run - base), ptx_exp2(m_next - base), m_next == PI_MINUS_INF};
}
/* run is 0 where the sum so far is empty. */
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

/* Factor of O: the sink joins the sum, which then divides. A row that sees no key is zeros. */
PI_FN float final_factor(const pi__k_attn &a, int32_t head, float m, float l)
{
    if (!a.sinks) return l > 0 ? 1.0f / l : 0.0f;
    float sink = a.sinks[head] * LOG2E, top = fmaxf(m, sink), scale = ptx_exp2(m - top);
    return scale / fmaf(l, scale, ptx_exp2(sink - top));
}

/* The factor of a gate, for column d of a head. */
PI_FN float gate_of(const pi__k_attn &a, int32_t token, int32_t head, int32_t d)
{
    return 1.0f / (1.0f + expf(-a.gate[token * a.ldq + head * a.q_stride + d]));
}
PI_FN float *out_of(const pi__k_attn &a, int32_t token, int32_t head)
{
    return a.out + token * a.ldo + (int64_t) head * a.cache.head_dim;
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


/* A span's sum to its place, and clears it: to scratch, or folded into those before, in out, which after the last one is the
 * result. */
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

#endif
