/* The gated delta rule over all sequences of a step (gdn.cuh: formulas, layout of states; gdn_chunk.cuh: the products).
 *
 * FEW tokens, at most 16 (a token and its drafts): one launch of few(), a block a value head of a sequence. S0 is on its
 * way from memory to registers while the block makes keys, queries and values by itself; it is only read unless a chunk
 * fills. Four rows of the chunk at a time: products with S0, u, o. The gated norm ends it.
 *
 * MANY (prefill): what needs no state is made for all chunks in parallel, by prepare(): keys, queries, their products with
 * the keys of the chunk, gates, values. many() has a block for 32 columns of a value head of a sequence, which walks the
 * chunks; while one is computed, what prepare() made for the next is copied to shared memory. A chunk is
 *
 *     products    k . S0 and q . S0, of all 16 rows
 *     solve       the first warp, a lane a column: u of one row after the other, in registers
 *     outputs     a warp four rows: o
 *     fold        S0 in registers, if the chunk is full; to the slot, once, if all of it is verified
 *
 * finish() does the gated norm and keeps keys. A step with few and many launches both.
 *
 * Why it is batch-invariant, whatever the chunks and the path: a row's sums are the functions of gdn.cuh and gdn_chunk.cuh,
 * or run over rows of the chunk in order. No chunk of a sequence is begun before the last one is done: the state after
 * several chunks, made apart and then added to what went before, has other bits than one after the other, and decode goes
 * one by one. What fills a device with one long prompt are value heads times slices: 192 blocks of 4 warps where 48 heads
 * have 128 columns, two to a multiprocessor.
 *
 * Why the state is not written with each token, bytes and instructions of warps of a decode step, heads of 128:
 *
 *                                  S0 read   written    rows of u, k    a head    48 heads and 1, 32, 256 sequences
 *     with each token              64 KiB    64 KiB     -               128 KiB   6.3 MB, 201 MB, 1.6 GB     about 12,500 a head
 *     kept lazily                  64 KiB    4 KiB      8 KiB            76 KiB   3.7 MB, 119 MB, 0.96 GB    about 19,500 a head
 *
 * Both wait for memory: a quarter of an instruction a byte is a quarter of what an RTX PRO 6000 can issue meanwhile.
 *
 * Of instructions, prefill has about 1,030 of a warp a token and head where three value heads share a key head: 690 in many(),
 * of which 72 are of tensor cores, 210 in prepare(), 125 in finish().
 *
 * A chunk of 32 or 64 rows would save instructions in prefill, a seventh at most, as S0 is cut into hi and lo and added to
 * once a chunk, but rows grow faster than writes of S0 shrink: 79 and 96 KiB a token in decode. */
#ifndef PI_GDN_KERNELS_CUH
#define PI_GDN_KERNELS_CUH

#include "gdn_chunk.cuh"
#include "tail.cuh"

enum {
    ROWS_THREADS = 128,
    MOST_FEW = C, /* tokens that few() does */
};

/* A warp's patch of W columns from `col` on: half of the rows, after all columns of the other half. */
template <int D, int W> PI_FN patch_place place_of(int thread, int32_t col)
{
    const int warp = thread / 32;
    return {col + warp % (W / 16) * 16, warp / (W / 16) * (D / 2), thread % 32};
}
/* Of the warp's patch in the tops of a block: [slice][2 patches of columns][halves] */
PI_FN int top_at(const patch_place &p, int32_t col)
{
    return (p.col - col) / SLICE * 4 + (p.col - col) / 16 % 2 * 2 + (p.row > 0);
}

/* S0 is the state at pos: to the snapshots that are wanted of it. */
template <int D>
PI_FN void save_state(const job &j, const sequence &s, int32_t head, int32_t pos, const patch_place &p, const patch<D> &st,
                      int32_t exponent)
{
#pragma unroll 1
    for (int32_t i = 0; i < s.n_save; i++) {
        if (s.save[2 * i] != pos) continue;
        float *snap = snap_at(j.a.state, s.save[2 * i + 1]);
        store_patch<D>(s_at(j, snap, 0, head), p, st);
        if (p.row == 0 && p.col % SLICE == 0 && p.lane == 0) *snap_exponent(j, snap, head, p.col) = exponent;
    }
}
/* S0 of the slot. */
template <int D>
PI_FN void keep_state(const job &j, const sequence &s, int32_t head, const patch_place &p, const patch<D> &st, int32_t exponent)
{
    store_patch<D>(s_at(j, s.slot, j.at.s, head), p, st);
    if (p.row == 0 && p.col % SLICE == 0 && p.lane == 0) *exponent_at(j, s.slot, head, p.col) = exponent;
}

/* ----------------------------------------------------------------------------------------------------------------- few */

/* What lies in shared memory, in words. */
template <int D> struct few_shape {
    static constexpr int THREADS = 4 * D, SLICES = D / SLICE;
    static constexpr int pl = 0;
    static constexpr int part = pl + planes<D>::WORDS;       /* halves of four rows' products with S0 */
    static constexpr int DOTS = C / 4 * 16 * C;              /* and before them, of its keys */
    static constexpr int u = part + (halves<D, 1>::WORDS > DOTS ? halves<D, 1>::WORDS : DOTS); /* quads */
    static constexpr int rows = u + quads<D>::WORDS;         /* [MOST_FEW][D] of the step's rows: v, then o */
    static constexpr int ck = rows + MOST_FEW * D;           /* [C][C] factors */
    static constexpr int cq = ck + C * C;                    /* [C][C] */
    static constexpr int decay = cq + C * C;                 /* [C] log decays */
    static constexpr int beta = decay + C, of_k = beta + C, of_q = of_k + C; /* [C] */
    static constexpr int left = of_q + C;                    /* [C + 1] e^(G_15 - G_i), then e^G_15 */
    static constexpr int tops = left + C + 4;                /* [SLICES][4] */
    static constexpr int plan = tops + SLICES * 4;           /* [SLICES][4] */
    static constexpr int who = plan + SLICES * 4;            /* a sequence and a work: registers are for S0 */
    static constexpr size_t bytes = sizeof(float) * (size_t) who + sizeof(sequence) + sizeof(work);
};

/* Rows of the chunk that the slot has: u. */
template <int W> PI_FN void stage_u(const job &j, const sequence &s, const work &w, const chunk &c, int threads, float *u)
{
#pragma unroll 1
    for (int i = ptx_thread(); i < c.n_old * W; i += threads) {
        u[i / W / 4 * quads<W>::PITCH + i % W * 4 + i / W % 4] = u_at(j, s.slot, w.head, c.from + i / W)[w.col + i % W];
    }
}
/* Keys; rows that the step does not make and that the slot does not have become zeros, of queries also old ones. */
template <int D> PI_FN void stage_keys(const job &j, const sequence &s, const work &w, const chunk &c, int threads, uint32_t *pl)
{
    using P = planes<D>;
#pragma unroll 1
    for (int i = ptx_thread(); i < C * D; i += threads) {
        const int row = i / D, word = i % D, to = word / (D / 2) * P::PLANE + row * P::PITCH + word % (D / 2);
        const bool old = row < c.n_old, made = !old && row < c.n_old + c.n_new;
        if (!made) pl[to] = old ? k_at(j, s.slot, w.k_head, c.from + row)[word] : 0;
        if (!made) pl[P::KIND + to] = 0;
    }
}

/* New keys and queries. The first value head of a key head keeps its keys. */
template <int D> PI_FN void make_keys(const job &j, const sequence &s, const work &w, const chunk &c, uint32_t *pl)
{
    using P = planes<D>;
#pragma unroll 1
    for (int n = ptx_thread() / 32; n < 2 * c.n_new; n += few_shape<D>::THREADS / 32) {
        const int32_t i = c.n_old + n / 2, p = c.from + i;
        const bool query = n % 2, kept = !query && w.head == w.k_head && c.from >= s.keep;
        uint32_t *to = pl + query * P::KIND + i * P::PITCH;
        key_or_query<D>(j, s, w.k_head, query, p, to, to + P::PLANE);
#pragma unroll 1
        for (int d = ptx_thread() % 32; kept && d < D / 2; d += 32) {
            k_at(j, s.slot, w.k_head, p)[d] = to[d];
            k_at(j, s.slot, w.k_head, p)[D / 2 + d] = to[P::PLANE + d];
        }
    }
}

/* Log decays of all rows; what the new ones' gates make: by the first warp. */
template <int D> PI_FN void make_gates(const job &j, const sequence &s, const work &w, const chunk &c, float *sm)
{
    using S = few_shape<D>;
    const int i = ptx_thread();
    const gate x = gates(j, s, w.head, w.col, c, i);
    if (i >= c.n_old + c.n_new) return;
    sm[S::decay + i] = x.decay;
    if (i < c.n_old) return;
    sm[S::beta + i] = x.beta;
    sm[S::of_k + i] = of_k(x);
    sm[S::of_q + i] = of_q(x);
    if (c.from < s.keep) return;
    for (int32_t k = 0; k < D; k += SLICE) *decay_at(j, s.slot, w.head, w.col + k, c.from + i) = x.decay;
}

/* u of the new rows of a quad, a thread a column; each sum in the order of rows. */
template <int D> PI_FN void solve_quad(const job &j, const sequence &s, const work &w, const chunk &c, int quad, float unit, float *sm)
{
    using S = few_shape<D>;
    const int b = ptx_thread(), there = c.n_old + c.n_new;
    const float *v = sm + S::rows + (c.from - s.pos) * D + b, *ck = sm + S::ck + 4 * quad * C;
    float *u = sm + S::u + 4 * b;
    const float4 y = both_halves<D, 1>(sm + S::part, false, 0, b);
    const float ys[4] = {y.x, y.y, y.z, y.w};
    float x[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = 4 * quad + i;
        const bool made = r >= c.n_old && r < there;
        x[i] = made ? fmaf(sm[S::of_k + r] * unit, ys[i], fmaf(sm[S::beta + r], v[r * D], 0.0f)) : 0.0f;
    }
#pragma unroll 1
    for (int l = 0; l < 4 * quad; l++) {
        const float ul = u[l / 4 * quads<D>::PITCH + l % 4];
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = fmaf(ck[i * C + l], ul, x[i]);
    }
    float *own = u + quad * quads<D>::PITCH;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = 4 * quad + i;
        const bool made = r >= c.n_old && r < there;
        if (r < c.n_old) x[i] = own[i];
        else own[i] = x[i];
        if (made && c.from >= s.keep) u_at(j, s.slot, w.head, c.from + r)[w.col + b] = x[i];
#pragma unroll
        for (int n = i + 1; n < 4; n++) x[n] = fmaf(ck[n * C + r], x[i], x[n]);
    }
}

/* o of the new rows of a quad, in place of v. */
template <int D> PI_FN void outputs_of_quad(const sequence &s, const chunk &c, int quad, const fold_plan *plan, float *sm)
{
    using S = few_shape<D>;
#pragma unroll 1
    for (int n = ptx_thread(); n < 4 * D; n += S::THREADS) {
        const int i = n / D, b = n % D, r = 4 * quad + i;
        if (r < c.n_old || r >= c.n_old + c.n_new) continue;
        const float4 y = both_halves<D, 1>(sm + S::part, true, 0, b);
        float o = sm[S::of_q + r] * plan[b / SLICE].power * (i < 2 ? i ? y.y : y.x : i == 2 ? y.z : y.w);
#pragma unroll 2
        for (int l = 0; l <= r; l++) o = fmaf(sm[S::cq + r * C + l], sm[S::u + l / 4 * quads<D>::PITCH + 4 * b + l % 4], o);
        sm[S::rows + (c.from - s.pos + r) * D + b] = o;
    }
}

/* Factors of the chunk's new rows with all rows up to their own: halves of the products, a warp each, then what decay leaves
 * of their sums. Between the two, and after, is a barrier. */
template <int D> PI_FN void halves_of_factors(const chunk &c, float *sm)
{
    using S = few_shape<D>;
    const int lane = ptx_thread() % 32;
#pragma unroll 1
    for (int n = ptx_thread() / 32; n < C / 4 * 2; n += S::THREADS / 32) {
        const int quad = n / 2;
        if (4 * quad + 3 < c.n_old || 4 * quad >= c.n_old + c.n_new) continue;
        float y[4];
        times_keys<D>((const uint32_t *) sm + S::pl, quad, n % 2, lane, y);
#pragma unroll
        for (int i = 0; i < 4; i++) sm[S::part + n * 8 * C + column_of(lane, i) * C + key_of(lane, i)] = y[i];
    }
}
template <int D> PI_FN void factors(const chunk &c, float *sm)
{
    using S = few_shape<D>;
#pragma unroll 1
    for (int n = ptx_thread(); n < 2 * C * C; n += S::THREADS) {
        const int r = n / (2 * C), l = n % C;
        const bool query = n / C % 2;
        float f = 0;
        if (r >= c.n_old && r < c.n_old + c.n_new && l < r + query) {
            const float *half = sm + S::part + r / 4 * 16 * C + (query * 4 + r % 4) * C + l;
            const float y = half[0] + half[8 * C], left = left_of(sm + S::decay, l, r);
            f = query ? factor_q(left, y) : factor_k(sm[S::beta + r], left, y);
        }
        sm[(query ? S::cq : S::ck) + r * C + l] = f;
    }
}

/* A fold of a chunk all of whose rows are in shared memory, with the exponents of the slices, which it changes. */
template <int D, int W, class S> PI_FN void fold_rows(int32_t col, int tid, patch<D> &st, float *sm)
{
    const int warp = tid / 32;
    const patch_place p = place_of<D, W>(tid, col);
    const float top = top_of<D>(st);
    if (tid % 32 == 0) sm[S::tops + top_at(p, col)] = top;
    if (tid <= C) sm[S::left + tid] = left_of(sm + S::decay, tid < C ? tid : -1, C - 1);
    fold_plan *plan = (fold_plan *) (sm + S::plan);
    __syncthreads();
    if (warp < W / SLICE) {
        float most = 0;
#pragma unroll
        for (int i = 0; i < C / 4; i++) {
            const float4 u = *(const float4 *) (sm + S::u + i * quads<W>::PITCH + 4 * tid);
            most = most_of(most, *(const float4 *) (sm + S::left + 4 * i), u);
        }
        const fold_plan f = plan_fold(most, sm + S::tops + 4 * warp, sm[S::left + C], plan[warp].exponent);
        __syncwarp();
        if (tid % 32 == 0) plan[warp] = f;
    }
    __syncthreads();
    const fold_plan f = plan[(p.col - col) / SLICE];
    fold<D, W>(f, (const uint32_t *) sm + S::pl, sm + S::u, sm + S::left, p, st);
}

/* ---------------------------------------------------------------------------------------------------------------- many */

/* What lies in shared memory, in words: two stages of what prepare() made of a chunk, and what a chunk is computed with. */
template <int D> struct many_shape {
    static constexpr int W = SLICE, THREADS = 4 * SLICE, N = C / 4;
    static constexpr int ck = planes<D>::WORDS, cq = ck + C * C; /* of a stage: [C][C] factors, a row of u's or o's own */
    static constexpr int of_k = cq + C * C, of_q = of_k + C, decay = of_q + C; /* [C], in the order of scalars */
    static constexpr int STAGE = decay + C;
    static constexpr int part = 2 * STAGE;            /* halves of products with S0; u, where k . S0 was */
    static constexpr int left = part + halves<W, N>::WORDS; /* [C + 1] e^(G_15 - G_i), then e^G_15 */
    static constexpr int tops = left + C + 4;         /* [4] */
    static constexpr int plan = tops + 4;
    static constexpr size_t bytes = sizeof(float) * (plan + 4);
};

/* What a thread copies of each chunk: from where for the step's first token, and to where in a stage. A warp has a plane, a
 * lane 16 bytes of rows tid % 8 and 8 further, every 64 bytes; then 16 bytes of a row's factors, then a scalar. */
struct copies {
    const uint32_t *kq;
    const float *factors, *scalar;
    uint32_t kq_to, factors_to, scalar_to;
};
template <int D> PI_FN copies copies_of(const job &j, const sequence &s, const work &w, const float *stage)
{
    using P = planes<D>;
    using S = many_shape<D>;
    const int tid = (int) threadIdx.x, plane = tid / 32, row = tid % 8, piece = tid % 32 / 8;
    copies m;
    m.kq = new_kq(j, w.k_head, s.first) + row * 2 * D + plane * (D / 2) + 4 * piece;
    m.kq_to = ptx_shared(stage + plane / 2 * P::KIND + plane % 2 * P::PLANE + row * P::PITCH + 4 * piece);
    m.factors = new_factors(j, w.head, s.first) + tid * 4;
    m.factors_to = ptx_shared(stage + S::ck + tid % 8 / 4 * C * C + tid / 8 * C + tid % 4 * 4);
    m.scalar = new_scalars(j, w.head, tid / C % N_SCALARS, s.first) + tid % C;
    m.scalar_to = ptx_shared(stage + S::of_k + tid);
    return m;
}

/* Begins the copies of a chunk to a stage, `at` bytes behind the first. */
template <int D> PI_FN void stage_chunk(const sequence &s, const copies &m, int32_t from, uint32_t at)
{
    const int32_t token = from - s.pos;
    const uint32_t *kq = m.kq + (int64_t) token * (2 * D);
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        ptx_cp_async16(m.kq_to + at + (uint32_t) (i % 2 * 8 * planes<D>::PITCH * 4 + i / 2 * 64), kq + i % 2 * 8 * 2 * D + i / 2 * 16);
    }
    ptx_cp_async16(m.factors_to + at, m.factors + (int64_t) token * (2 * C));
    if (threadIdx.x < N_SCALARS * C) ptx_cp_async4(m.scalar_to + at, m.scalar + token);
}

/* The same of a chunk with old rows, or not all of its rows: what there is not becomes zeros. */
template <int D> PI_FN void stage_part(const job &j, const sequence &s, const work &w, const copies &m, const chunk &c, uint32_t at)
{
    const int tid = (int) threadIdx.x, plane = tid / 32, there = c.n_old + c.n_new;
    const int32_t token = c.from - s.pos;
#pragma unroll 1
    for (int half = 0; half < 2; half++) {
        const int row = 8 * half + tid % 8;
        const bool old = row < c.n_old && plane < 2, fresh = row >= c.n_old && row < there;
        const uint32_t *kq = m.kq + (int64_t) (token + 8 * half) * (2 * D);
        if (old) kq = k_at(j, s.slot, w.k_head, c.from + row) + plane * (D / 2) + tid % 32 / 8 * 4;
        if (!old && !fresh) kq = m.kq;
#pragma unroll 1
        for (int n = 0; n < D / 32; n++) {
            ptx_cp_async16(m.kq_to + at + (uint32_t) (half * 8 * planes<D>::PITCH * 4 + n * 64), kq + n * 16, old || fresh ? 16 : 0);
        }
    }
    const bool fresh = tid / 8 >= c.n_old && tid / 8 < there;
    ptx_cp_async16(m.factors_to + at, fresh ? m.factors + (int64_t) token * (2 * C) : m.factors, fresh ? 16 : 0);
    const int which = tid / C, r = tid % C;
    const bool old_decay = which == LOG_DECAY && r < c.n_old, made = r >= c.n_old && r < there;
    const float *from = old_decay ? decay_at(j, s.slot, w.head, w.col, c.from + r) : made ? m.scalar + token : m.scalar;
    if (which < N_SCALARS) ptx_cp_async4(m.scalar_to + at, from, old_decay || made ? 4 : 0);
}

/* u of the chunk's rows, by a warp, a lane a column; x are beta v. What is added to a row is in the order of rows. Old rows
 * have their u there, and factors 0. */
template <int D> PI_FN void solve(const float *stage, float unit, float *part, float (&x)[C])
{
    using S = many_shape<D>;
    const int b = (int) threadIdx.x;
#pragma unroll
    for (int q = 0; q < C / 4; q++) {
        const float4 y = both_halves<S::W, S::N>(part, false, q, b), f = *(const float4 *) (stage + S::of_k + 4 * q);
        const float ys[4] = {y.x, y.y, y.z, y.w}, fs[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
        for (int i = 0; i < 4; i++) x[4 * q + i] = fmaf(fs[i] * unit, ys[i], x[4 * q + i]);
    }
#pragma unroll
    for (int q = 0; q < C / 4; q++) {
#pragma unroll
        for (int r = 4 * q + 1; r < C; r++) {
            const float4 f = *(const float4 *) (stage + S::ck + r * C + 4 * q);
            const float fs[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
            for (int l = 4 * q; l < 4 * q + 4 && l < r; l++) x[r] = fmaf(fs[l % 4], x[l], x[r]);
        }
        *(float4 *) (part + q * quads<S::W>::PITCH + 4 * b) = {x[4 * q], x[4 * q + 1], x[4 * q + 2], x[4 * q + 3]};
    }
}

/* o of the chunk's new rows: a warp four rows, a lane a column. */
template <int D>
PI_FN void put_outputs(const job &j, const sequence &s, const chunk &c, float *out, const float *stage, float unit, const float *part)
{
    using S = many_shape<D>;
    const int b = (int) threadIdx.x % 32, quad = (int) threadIdx.x / 32, first = c.n_old - 4 * quad, end = first + c.n_new;
    const float4 y = both_halves<S::W, S::N>(part, true, quad, b), f = *(const float4 *) (stage + S::of_q + 4 * quad);
    const float *cq = stage + S::cq + 4 * quad * C, *u = part + 4 * b;
    float o[4] = {f.x * unit * y.x, f.y * unit * y.y, f.z * unit * y.z, f.w * unit * y.w};
#pragma unroll 1
    for (int q = 0; q < quad; q++, cq += 4, u += quads<S::W>::PITCH) {
        const float4 v = *(const float4 *) u;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 e = *(const float4 *) (cq + i * C);
            o[i] = fmaf(e.w, v.w, fmaf(e.z, v.z, fmaf(e.y, v.y, fmaf(e.x, v.x, o[i]))));
        }
    }
    const float4 v = *(const float4 *) u;
    const float vs[4] = {v.x, v.y, v.z, v.w};
    out += (c.from + 4 * quad - s.pos) * j.a.ldo;
#pragma unroll
    for (int i = 0; i < 4; i++, out += j.a.ldo) {
        const float4 e = *(const float4 *) (cq + i * C);
        const float es[4] = {e.x, e.y, e.z, e.w};
#pragma unroll
        for (int l = 0; l <= i; l++) o[i] = fmaf(es[l], vs[l], o[i]);
        if (i >= first && i < end) *out = o[i];
    }
}

/* The solving warp's part of a chunk: u, kept where later steps need it, and the plan of its fold. */
template <int D>
PI_FN void solve_chunk(const job &j, const sequence &s, const work &w, const chunk &c, bool full, int32_t exponent, float (&x)[C],
                       const float *stage, float *sm)
{
    using S = many_shape<D>;
    const int lane = (int) threadIdx.x;
    if (full && lane <= C) sm[S::left + lane] = left_of(stage + S::decay, lane < C ? lane : -1, C - 1);
    const float unit = power_of_2(exponent);
    solve<D>(stage, unit, sm + S::part, x);
    __syncwarp();
    if (full) {
        float most = 0;
#pragma unroll
        for (int q = 0; q < C / 4; q++) {
            most = most_of(most, *(const float4 *) (sm + S::left + 4 * q), {x[4 * q], x[4 * q + 1], x[4 * q + 2], x[4 * q + 3]});
        }
        const fold_plan f = plan_fold(most, sm + S::tops, sm[S::left + C], exponent);
        if (lane == 0) *(fold_plan *) (sm + S::plan) = f;
    }
    if (c.from < s.keep) return;
#pragma unroll 1
    for (int r = c.n_old; r < c.n_old + c.n_new; r++) {
        u_at(j, s.slot, w.head, c.from + r)[w.col + lane] = sm[S::part + r / 4 * quads<S::W>::PITCH + 4 * lane + r % 4];
    }
    if (lane < c.n_new) *decay_at(j, s.slot, w.head, w.col, c.from + c.n_old + lane) = stage[S::decay + c.n_old + lane];
}

/* Values of the chunk for the solving warp, a lane a column: beta v of new rows, u of old ones. */
PI_FN void load_values(const job &j, const sequence &s, const work &w, const chunk &c, const float *v, float (&x)[C])
{
    v += (c.from - s.pos) * j.a.ldo;
    if (c.n_new == C) {
#pragma unroll
        for (int r = 0; r < C; r++, v += j.a.ldo) x[r] = *v;
        return;
    }
    for (int r = 0; r < C; r++) x[r] = 0;
#pragma unroll 1
    for (int i = 0; i < c.n_old + c.n_new; i++, v += j.a.ldo) {
        const float y = i < c.n_old ? u_at(j, s.slot, w.head, c.from + i)[w.col + (int) threadIdx.x] : *v;
#pragma unroll
        for (int r = 0; r < C; r++) x[r] = r == i ? y : x[r];
    }
}

/* Raw inputs of the block's own channels: to snapshots, and what later steps need to the slot. */
template <int D, int W> PI_FN void keep_raw(const job &j, const sequence &s, const work &w)
{
    const pi__k_state &st = j.a.state;
    int kind = (int) threadIdx.x / W; /* queries, keys, values; the last quarter of the threads has nothing to do */
    if (kind > 2 || (kind < 2 && w.head != w.k_head)) return;
    int32_t c = (kind == 0 ? w.head : kind == 1 ? st.n_k + w.head : 2 * st.n_k + w.head) * D + w.col + (int) threadIdx.x % W;
    const float *raw = j.a.qkv + (int64_t) s.first * j.a.ld_qkv + c;
#pragma unroll 1
    for (int32_t i = 0; i < s.n_save; i++) {
#pragma unroll 1
        for (int32_t h = 0; h < j.at.history; h++) {
            int32_t p = s.save[2 * i] - j.at.history + h;
            float x = p >= s.pos ? raw[(p - s.pos) * j.a.ld_qkv] : edge_at(j, s.slot, p)[c];
            snap_raw(j, snap_at(st, s.save[2 * i + 1]))[h * n_channels(st) + c] = x;
        }
    }
#pragma unroll 1
    for (int32_t p = max(s.pos, s.keep - j.at.history); p < s.end; p++) {
        float x = raw[(p - s.pos) * j.a.ld_qkv];
        if (p >= s.verified - j.at.history) recent_at(j, s.slot, p)[c] = x;
        if (p % C >= C - j.at.history) edge_at(j, s.slot, p)[c] = x;
    }
}

/* ------------------------------------------------------------------------------------------------------------- kernels */

/* A value head of a sequence with few tokens: block (head, sequence). */
template <int D> PI_FN void few_tokens(const job &j, float *sm)
{
    using S = few_shape<D>;
    sequence found;
    if (!find_sequence(j, (int32_t) blockIdx.y, found) || found.end - found.pos > j.few) return;
    sequence &s = *(sequence *) (sm + S::who);
    work &w = *(work *) (&s + 1);
    const int32_t head = (int32_t) blockIdx.x;
    if (threadIdx.x == 0) {
        s = found;
        w = {head, head % j.a.state.n_k, 0};
    }
    const auto place = [] { return place_of<D, D>(ptx_thread(), 0); };
    int32_t from = found.pos ? *base_at(j, found.slot, head, 0) : 0;
    fold_plan *plan = (fold_plan *) (sm + S::plan);
    if (threadIdx.x < S::SLICES) {
        const int32_t exponent = from ? exponent_at(j, found.slot, head, 0)[threadIdx.x] : 0;
        plan[threadIdx.x] = {0, 0, exponent, power_of_2(exponent)};
    }
    patch<D> st;
    load_patch<D>(s_at(j, found.slot, j.at.s, head), place(), st);
    __syncthreads();

    for (; from < s.end; from += C) {
        const chunk c = chunk_of(s, from);
        const bool full = from + C <= s.verified || from + C < s.end;
        stage_u<D>(j, s, w, c, S::THREADS, sm + S::u);
        stage_keys<D>(j, s, w, c, S::THREADS, (uint32_t *) sm + S::pl);
        make_keys<D>(j, s, w, c, (uint32_t *) sm + S::pl);
        if (threadIdx.x < 32) make_gates<D>(j, s, w, c, sm);
#pragma unroll 1
        for (int n = ptx_thread(); n < c.n_new * D; n += S::THREADS) {
            const int32_t channel = (2 * j.a.state.n_k + w.head) * D + n % D, at = from + c.n_old + n / D;
            sm[S::rows + (at - s.pos) * D + n % D] = convolved(j, s, at, channel);
        }
        if (from == 0) clear_patch<D>(st);
        if (from <= s.verified) save_state<D>(j, s, w.head, from, place(), st, plan[place().col / SLICE].exponent);
        __syncthreads();
        halves_of_factors<D>(c, sm);
        __syncthreads();
        factors<D>(c, sm);
        __syncthreads();

#pragma unroll 1
        for (int quad = c.n_old / 4; c.n_new && quad <= (c.n_old + c.n_new - 1) / 4; quad++) {
            float y[1][4];
            times_patch<D, 1>(st, place(), (const uint32_t *) sm + S::pl, quad, y);
            put_half<D, D, 1>(place(), y, sm + S::part);
            __syncthreads();
            if (threadIdx.x < D) solve_quad<D>(j, s, w, c, quad, plan[threadIdx.x / SLICE].power, sm);
            __syncthreads();
            outputs_of_quad<D>(s, c, quad, plan, sm);
            __syncthreads();
        }
        if (full) fold_rows<D, D, S>(0, ptx_thread(), st, sm);
        if (from + C == s.keep) keep_state<D>(j, s, w.head, place(), st, plan[place().col / SLICE].exponent);
        __syncthreads(); /* the chunk's rows are done with */
    }
    if (from <= s.verified) save_state<D>(j, s, w.head, from, place(), st, plan[place().col / SLICE].exponent);
#pragma unroll 1
    for (int r = (int) threadIdx.x / 32; r < s.end - s.pos; r += S::THREADS / 32) {
        gated_norm<D>(j, sm + S::rows + r * D, s.first + r, w.head, (int) threadIdx.x % 32);
    }
    if (threadIdx.x < D / SLICE) base_at(j, s.slot, w.head, 0)[threadIdx.x] = s.keep;
    keep_raw<D, D>(j, s, w);
}

template <int D> __global__ void __launch_bounds__(4 * D, D == 96 ? 1 : 2) few(PI_CONSTANT job j)
{
    PI_SMEM(raw);
    few_tokens<D>(j, (float *) raw);
    if (j.tail.arrived) run_input_tail(j.tail, raw);
}

/* A slice of a value head of a sequence with many tokens: block (head and slice, sequence). */
template <int D> __global__ void __launch_bounds__(4 * SLICE, 2) many(job j)
{
    using S = many_shape<D>;
    PI_SMEM(raw);
    float *sm = (float *) raw;
    sequence s;
    if (!find_sequence(j, (int32_t) blockIdx.y, s) || s.end - s.pos <= j.few) return;
    const int32_t head = (int32_t) blockIdx.x / (D / SLICE), col = (int32_t) blockIdx.x % (D / SLICE) * SLICE;
    const work w = {head, head % j.a.state.n_k, col};
    const patch_place p = place_of<D, SLICE>((int) threadIdx.x, col);
    int32_t from = s.pos ? *base_at(j, s.slot, head, col) : 0, exponent = from ? *exponent_at(j, s.slot, head, col) : 0;
    int stage = 0;
    const copies m = copies_of<D>(j, s, w, sm);
    float *out = j.a.out + s.first * j.a.ldo + head * D + col + (int) threadIdx.x % SLICE; /* the lane's column */
    patch<D> st;
    if (from) load_patch<D>(s_at(j, s.slot, j.at.s, head), p, st);
    else clear_patch<D>(st);
    stage_part<D>(j, s, w, m, chunk_of(s, from), 0);
    ptx_cp_async_commit();

    for (; from < s.end; from += C, stage = S::STAGE - stage) {
        const chunk c = chunk_of(s, from);
        const bool full = from + C <= s.verified || from + C < s.end;
        const float *now = sm + stage;
        float x[C], y[S::N][4];
        ptx_cp_async_wait<0>();
        __syncthreads(); /* the chunk is there, the last one is done with */
        const uint32_t next = (uint32_t) (S::STAGE - stage) * 4;
        if (from + 2 * C <= s.end && from + C >= s.pos) stage_chunk<D>(s, m, from + C, next);
        else if (from + C < s.end) stage_part<D>(j, s, w, m, chunk_of(s, from + C), next);
        ptx_cp_async_commit();
        if (threadIdx.x < 32) load_values(j, s, w, c, out, x);
        times_patch<D, S::N>(st, p, (const uint32_t *) now, 0, y);
        put_half<D, S::W, S::N>(p, y, sm + S::part);
        if (full) {
            const float top = top_of<D>(st);
            if (threadIdx.x % 32 == 0) sm[S::tops + top_at(p, col)] = top;
        }
        if (from <= s.verified) save_state<D>(j, s, head, from, p, st, exponent);
        __syncthreads();
        if (threadIdx.x < 32) solve_chunk<D>(j, s, w, c, full, exponent, x, now, sm);
        __syncthreads();
        put_outputs<D>(j, s, c, out, now, power_of_2(exponent), sm + S::part);
        if (full) {
            const fold_plan f = *(const fold_plan *) (sm + S::plan);
            fold<D, S::W>(f, (const uint32_t *) now, sm + S::part, sm + S::left, p, st);
            exponent = f.exponent;
        }
        if (from + C == s.keep) keep_state<D>(j, s, head, p, st, exponent);
    }
    if (from <= s.verified) save_state<D>(j, s, head, from, p, st, exponent);
    if (threadIdx.x == 0) *base_at(j, s.slot, head, col) = s.keep;
    keep_raw<D, SLICE>(j, s, w);
}

/* Gates, factors and values of a chunk's new rows, for a value head, by a warp. dots: [k, q][C rows][C] products with the
 * chunk's keys. */
template <int D, bool FOUR>
PI_FN void prepare_head(const job &j, const sequence &s, const chunk &c, int32_t head, const float *dots, float *decay, float *beta)
{
    const int lane = (int) threadIdx.x % 32;
    const int32_t token = s.first + c.from + c.n_old - s.pos; /* of the first new row */
    const gate x = gates(j, s, head, 0, c, lane);
    if (lane < c.n_old + c.n_new) decay[lane] = x.decay;
    if (lane >= c.n_old && lane < c.n_old + c.n_new) {
        const int32_t at = token + lane - c.n_old;
        beta[lane - c.n_old] = x.beta;
        *new_scalars(j, head, OF_K, at) = of_k(x);
        *new_scalars(j, head, OF_Q, at) = of_q(x);
        *new_scalars(j, head, LOG_DECAY, at) = x.decay;
    }
    __syncwarp();
    const int l = lane % C;
#pragma unroll 1
    for (int r = lane / C; r < c.n_new; r += 2) {
        const int i = c.n_old + r;
        float *to = new_factors(j, head, token + r) + l;
        const float left = left_of(decay, l, i);
        to[0] = l < i ? factor_k(beta[r], left, dots[i * C + l]) : 0.0f;
        to[C] = l <= i ? factor_q(left, dots[C * C + i * C + l]) : 0.0f;
    }
#pragma unroll 1
    for (int d = lane; d < D; d += 32) {
        const int32_t channel = (2 * j.a.state.n_k + head) * D + d, p = c.from + c.n_old;
        float *to = j.a.out + token * j.a.ldo + head * D + d;
        convolution<FOUR> conv;
        conv.begin(j, s, p, channel);
        for (int32_t r = 0; r < c.n_new; r++, to += j.a.ldo) { /* no zero is negative */
            *to = fmaf(beta[r], conv.next(j, s, p + r, channel), 0.0f);
        }
    }
    __syncwarp();
}

template <int D> struct prepare_shape { /* in words */
    static constexpr int dots = planes<D>::WORDS;                   /* [k, q][C][C] */
    static constexpr int decay = dots + 2 * C * C;                  /* [warps][C] */
    static constexpr int beta = decay + ROWS_THREADS / 32 * C;          /* [warps][C] */
    static constexpr size_t bytes = sizeof(float) * (beta + ROWS_THREADS / 32 * C);
};

/* All that many() needs of a chunk's new rows and that does not depend on S0: block (tile, key head). FOUR: taps. */
template <int D, bool FOUR> __global__ void __launch_bounds__(ROWS_THREADS, 5) prepare(job j)
{
    using P = planes<D>;
    using S = prepare_shape<D>;
    PI_SMEM(raw);
    float *sm = (float *) raw;
    uint32_t *pl = (uint32_t *) raw;
    sequence s;
    chunk c;
    if (!find_tile(j, (int32_t) blockIdx.x, s, c)) return;
    const int32_t k_head = (int32_t) blockIdx.y, p = c.from + c.n_old, token = s.first + p - s.pos;
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    if (c.n_new < C) stage_keys<D>(j, s, {k_head, k_head, 0}, c, ROWS_THREADS, pl);

    const bool query = warp % 2; /* two warps for keys and two for queries, half of the rows each */
    const int32_t some = (c.n_new + 1) / 2, first = warp / 2 * some;
    keys_or_queries<D, FOUR>(j, s, k_head, query, p + first, min(some, c.n_new - first), [&](int r, int pair, uint32_t hi, uint32_t lo) {
        uint32_t *to = pl + query * P::KIND + (c.n_old + first + r) * P::PITCH + pair;
        uint32_t *copy = new_kq(j, k_head, token + first + r) + query * D + pair;
        to[0] = copy[0] = hi;
        to[P::PLANE] = copy[D / 2] = lo;
    });
    __syncthreads();
    float y[2][4];
    times_keys<D>(pl, warp, 0, lane, y[0]);
    times_keys<D>(pl, warp, 1, lane, y[1]);
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const int column = column_of(lane, n);
        sm[S::dots + column / 4 * C * C + (4 * warp + column % 4) * C + key_of(lane, n)] = y[0][n] + y[1][n];
    }
    __syncthreads();
    for (int32_t head = k_head + warp * j.a.state.n_k; head < j.a.state.n_v; head += ROWS_THREADS / 32 * j.a.state.n_k) {
        prepare_head<D, FOUR>(j, s, c, head, sm + S::dots, sm + S::decay + warp * C, sm + S::beta + warp * C);
    }
}

/* The rest for many tokens, after many(): the gated norm, and keys that later steps need. Block (tile, value head). */
template <int D> __global__ void __launch_bounds__(ROWS_THREADS) finish(job j)
{
    sequence s;
    chunk c;
    if (!find_tile(j, (int32_t) blockIdx.x, s, c)) return;
    int32_t head = (int32_t) blockIdx.y, token = s.first + c.from + c.n_old - s.pos;
    int lane = (int) threadIdx.x % 32;
    for (int r = (int) threadIdx.x / 32; r < c.n_new; r += ROWS_THREADS / 32) {
        gated_norm<D>(j, j.a.out + (token + r) * j.a.ldo + head * D, token + r, head, lane);
        if (head >= j.a.state.n_k || c.from < s.keep) continue;
        const uint32_t *k = new_kq(j, head, token + r);
        uint32_t *to = k_at(j, s.slot, head, c.from + c.n_old + r);
        for (int i = lane; i < D; i += 32) to[i] = k[i];
    }
}

/* Outside of steps: a slice of a value head, block (slice, head). Raw inputs of its channels, as in keep_raw(). */
template <int D> PI_FN void move_raw(const job &j, const work &w, float *slot, float *snap, int32_t pos, bool load)
{
    int kind = (int) threadIdx.x / SLICE;
    if (kind > 2 || (kind < 2 && w.head != w.k_head)) return;
    int32_t n_k = j.a.state.n_k, c = (kind == 0 ? w.head : kind == 1 ? n_k + w.head : 2 * n_k + w.head) * D + w.col +
                                     (int) threadIdx.x % SLICE;
    for (int32_t h = 0; h < j.at.history; h++) {
        int32_t p = pos - j.at.history + h;
        float *kept = snap_raw(j, snap) + h * n_channels(j.a.state) + c;
        if (load) recent_at(j, slot, p)[c] = edge_at(j, slot, p)[c] = *kept;
        else *kept = edge_at(j, slot, p)[c];
    }
}

PI_FN work slice_of(const job &j)
{
    int32_t head = (int32_t) blockIdx.y;
    return {head, head % j.a.state.n_k, (int32_t) blockIdx.x * SLICE};
}

template <int D> struct save_shape { /* in words; as in few_shape */
    static constexpr int pl = 0, u = planes<D>::WORDS, decay = u + quads<SLICE>::WORDS;
    static constexpr int left = decay + C, tops = left + C + 4, plan = tops + 4;
    static constexpr size_t bytes = sizeof(float) * (plan + 4);
};

template <int D> __global__ void __launch_bounds__(4 * SLICE, 4) save(job j, int32_t slot_index, int32_t pos, int32_t snap_index)
{
    using S = save_shape<D>;
    PI_SMEM(raw);
    float *sm = (float *) raw, *snap = snap_at(j.a.state, snap_index);
    const work w = slice_of(j);
    const patch_place p = place_of<D, SLICE>((int) threadIdx.x, w.col);
    sequence s = {};
    s.slot = slot_at(j.a.state, slot_index);
    s.pos = pos;
    const int32_t base = *base_at(j, s.slot, w.head, w.col);
    fold_plan &plan = *(fold_plan *) (sm + S::plan);
    if (threadIdx.x == 0) plan.exponent = base ? *exponent_at(j, s.slot, w.head, w.col) : 0;
    patch<D> st;
    load_patch<D>(s_at(j, s.slot, j.at.s, w.head), p, st);
    if (base == 0) clear_patch<D>(st);
    for (int32_t from = base; from < pos; from += C) {
        const chunk c = {from, C, 0};
        __syncthreads();
        stage_keys<D>(j, s, w, c, 4 * SLICE, (uint32_t *) sm + S::pl);
        stage_u<SLICE>(j, s, w, c, 4 * SLICE, sm + S::u);
        if (threadIdx.x < C) sm[S::decay + threadIdx.x] = *decay_at(j, s.slot, w.head, w.col, from + (int32_t) threadIdx.x);
        __syncthreads();
        fold_rows<D, SLICE, S>(w.col, (int) threadIdx.x, st, sm);
    }
    store_patch<D>(s_at(j, snap, 0, w.head), p, st);
    if (threadIdx.x == 0) *snap_exponent(j, snap, w.head, w.col) = plan.exponent;
    move_raw<D>(j, w, s.slot, snap, pos, false);
}

template <int D> __global__ void __launch_bounds__(4 * SLICE) load(job j, int32_t slot_index, int32_t pos, int32_t snap_index)
{
    float *slot = slot_at(j.a.state, slot_index), *snap = snap_at(j.a.state, snap_index);
    const work w = slice_of(j);
    const patch_place p = place_of<D, SLICE>((int) threadIdx.x, w.col);
    patch<D> st;
    load_patch<D>(s_at(j, snap, 0, w.head), p, st);
    store_patch<D>(s_at(j, slot, j.at.s, w.head), p, st);
    if (threadIdx.x == 0) {
        *base_at(j, slot, w.head, w.col) = pos;
        *exponent_at(j, slot, w.head, w.col) = *snap_exponent(j, snap, w.head, w.col);
    }
    move_raw<D>(j, w, slot, snap, pos, true);
}

#endif
