/* The gated delta rule over all sequences of a step (gdn.cuh: formulas, layout of states; gdn_chunk.cuh: the products).
 *
 * FEW tokens, at most 16 (a token and its drafts): one launch of few(), a block a value head of a sequence. S0 is on its
 * way from memory to registers while the block makes keys, queries and values by itself; it is only read unless a chunk
 * fills. Four rows of the chunk at a time: products with S0, x; then all outputs. The gated norm ends it.
 *
 * MANY (prefill): what needs no state is made for all chunks in parallel, by prepare(): keys, queries, their products with
 * the keys of the chunk, gates, T and P, values. many() has a warp for 16 columns of a value head of a sequence, which walks
 * the chunks with S0, x, u and o in registers; while one is computed, what prepare() made for the next is copied to shared
 * memory, which a block's warps have together. A chunk is
 *
 *     products    k . S0 and q . S0, of all 16 rows: x
 *     outputs     o = 2^G q . S0 + P x
 *     fold        u = x + T x, then S0, if the chunk is full; to the slot, once, if all of it is verified
 *
 * finish() does the gated norm and keeps what later steps need of keys and gates. A step with few and many launches both.
 *
 * Why it is batch-invariant, whatever the chunks and the path: a row's sums are the functions of gdn.cuh and gdn_chunk.cuh,
 * or run over rows of the chunk in order; of what comes after it, it has products with 0. No chunk of a sequence is begun
 * before the last one is done: the state after several chunks, made apart and then added to what went before, has other bits
 * than one after the other, and decode goes one by one. What fills a device with one long prompt are value heads times
 * slices: 96 blocks of 4 warps where 48 heads have 128 columns.
 *
 * Why the state is not written with each token, bytes and instructions of warps of a decode step, heads of 128:
 *
 *                                  S0 read   written    rows of x, k    a head    48 heads and 1, 32, 256 sequences
 *     with each token              64 KiB    64 KiB     -               128 KiB   6.3 MB, 201 MB, 1.6 GB     about 12,500 a head
 *     kept lazily                  64 KiB    4 KiB      8 KiB            76 KiB   3.7 MB, 119 MB, 0.96 GB    about 19,500 a head
 *
 * Both wait for memory: a quarter of an instruction a byte is a quarter of what an RTX PRO 6000 can issue meanwhile.
 *
 * Of instructions, prefill has about 670 of a warp a token and head where three value heads share a key head (sm_120a): 400 in
 * many(), of which 81 are of tensor cores and 45 wait for them, 190 in prepare(), 75 in finish(). As S0 and the 16 columns' x
 * stay in registers, a warp's chunk is, of 790: 174 products of tensor cores, 48 loads of their B, 144 for hi and lo of S0
 * and u, 64 to add to S0, 25 copies for the next chunk.
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
    const unsigned warp = (unsigned) thread / 32;
    return {col + (int32_t) (warp % (W / 16)) * 16, (int32_t) (warp / (W / 16)) * (D / 2), thread & 31};
}

/* Numbers that are none become 0: of rows after the one whose sum it is, which has 0 times them. */
PI_FN void clean(float (&x)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = fabsf(x[i]) <= 3.4e38f ? x[i] : 0.0f;
}

/* S0 is the state at pos: to the snapshots that are wanted of it. */
template <int D, int ROWS>
PI_FN void save_state(const job &j, const sequence &s, int32_t head, int32_t pos, const patch_place &p, const patch<ROWS> &st,
                      float bound)
{
#pragma unroll 1
    for (int32_t i = 0; i < s.n_save; i++) {
        if (s.save[2 * i] != pos) continue;
        float *snap = snap_at(j.a.state, s.save[2 * i + 1]);
        store_patch<D>(s_at(j, snap, 0, head), p, st);
        if (p.row == 0 && p.lane == 0) *snap_bound(j, snap, head, p.col) = bound;
    }
}
/* S0 of the slot. */
template <int D, int ROWS>
PI_FN void keep_state(const job &j, const sequence &s, int32_t head, const patch_place &p, const patch<ROWS> &st, float bound)
{
    store_patch<D>(s_at(j, s.slot, j.at.s, head), p, st);
    if (p.row == 0 && p.lane == 0) *bound_at(j, s.slot, head, p.col) = bound;
}

/* ----------------------------------------------------------------------------------------------------------------- few */

/* What lies in shared memory, in words. */
template <int D> struct few_shape {
    static constexpr int THREADS = 4 * D;
    static constexpr int pl = 0;
    static constexpr int part = pl + planes<D>::WORDS;       /* halves of four rows' products with S0 */
    static constexpr int DOTS = C / 4 * 16 * C;              /* and before them, of its keys */
    static constexpr int x = part + (halves<D>::WORDS > DOTS ? halves<D>::WORDS : DOTS); /* quads: v, then x */
    static constexpr int rows = x + quads<D>::WORDS;         /* [MOST_FEW][D] of the step's rows: q . S0, then o */
    static constexpr int ck = rows + MOST_FEW * D;           /* [C][C] factors */
    static constexpr int cq = ck + C * C;                    /* [C][C] */
    static constexpr int mix = cq + C * C;                   /* T and P */
    static constexpr int decay = mix + mix_rows::WORDS;      /* [C] log2 decays */
    static constexpr int beta = decay + C, of_k = beta + C, of_q = of_k + C; /* [C] */
    static constexpr int left = of_q + C;                    /* [C + 1] 2^(G_15 - G_i), then 2^G_15 */
    static constexpr int power = left + C + 4;               /* [D / PATCH] */
    static constexpr int bound = power + D / PATCH;          /* [warps], of the warp's 16 columns: registers are for S0 */
    static constexpr int who = bound + D / 8;                /* a sequence and a work */
    static constexpr size_t bytes = sizeof(float) * (size_t) who + sizeof(sequence) + sizeof(work);
};

/* Rows of the chunk that the slot has: x. Rows that there are not are zeros. */
template <int W> PI_FN void stage_x(const job &j, const sequence &s, const work &w, const chunk &c, int threads, float *x)
{
#pragma unroll 1
    for (int i = ptx_thread(); i < C * W; i += threads) {
        const int row = i / W;
        const bool old = row < c.n_old;
        if (!old && row < c.n_old + c.n_new) continue;
        x[row / 4 * quads<W>::PITCH + i % W * 4 + row % 4] = old ? x_at(j, s.slot, w.head, c.from + row)[w.col + i % W] : 0.0f;
    }
}
/* The same of T; P of all rows becomes zeros. */
PI_FN void stage_t(const job &j, const sequence &s, const work &w, const chunk &c, int threads, float *rows)
{
#pragma unroll 1
    for (int i = ptx_thread(); i < C * C; i += threads) {
        const int row = i / C, l = i % C;
        const float t = row < c.n_old ? t_at(j, s.slot, w.head, c.from + row)[l] : 0.0f;
        rows[mix_rows::at(row, false, mix_at(l, false))] = t;
        rows[mix_rows::at(row, false, mix_at(l, true))] = rest_of_tf32(t);
        rows[mix_rows::at(row, true, mix_at(l, false))] = rows[mix_rows::at(row, true, mix_at(l, true))] = 0;
    }
}
/* Where the lane's first two values of x are, and all that it has of the patch's columns. */
template <int W> PI_FN int x_of_lane(const patch_place &p)
{
    return p.lane % 4 / 2 * quads<W>::PITCH + (p.col % W + p.lane / 4 * 2) * 4 + p.lane % 2 * 2;
}
template <int W> PI_FN void load_x(const float *x, int h, const patch_place &p, float (&v)[4])
{
    x += x_of_lane<W>(p) + 2 * h * quads<W>::PITCH;
    const float2 a = *(const float2 *) x, b = *(const float2 *) (x + 4);
    v[0] = a.x, v[1] = a.y, v[2] = b.x, v[3] = b.y;
}
/* Rows 8 n .. of T (or P) times x. */
template <int W> PI_FN void mix_of_x(const float *x, const float *rows, bool p_rows, int n, const patch_place &p, float (&y)[4])
{
    y[0] = y[1] = y[2] = y[3] = 0;
#pragma unroll 1
    for (int h = 0; h <= n; h++) {
        float v[4];
        load_x<W>(x, h, p, v);
        clean(v);
        mix(v, rows, p_rows, n, h, p.lane, y);
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
        __syncwarp();
#pragma unroll 1
        for (int d = ptx_thread() % 32; kept && d < D / 2; d += 32) {
            k_at(j, s.slot, w.k_head, p)[d] = to[d];
            k_at(j, s.slot, w.k_head, p)[D / 2 + d] = to[P::PLANE + d];
        }
    }
}

/* Log2 decays of all rows; what the new ones' gates make: by the first warp. */
template <int D> PI_FN void make_gates(const job &j, const sequence &s, const work &w, const chunk &c, float *sm)
{
    using S = few_shape<D>;
    const int i = ptx_thread();
    const gate x = gates(j, s, w.head, c, i);
    if (i >= c.n_old + c.n_new) return;
    sm[S::decay + i] = x.decay;
    if (i < c.n_old) return;
    sm[S::beta + i] = x.beta;
    sm[S::of_k + i] = of_k(x);
    sm[S::of_q + i] = of_q(x);
    if (c.from < s.keep) return;
    *decay_at(j, s.slot, w.head, c.from + i) = x.decay;
}

/* x of the new rows of a quad, in the place of v, a thread a column, and by other threads q . S0. */
template <int D> PI_FN void solve_quad(const job &j, const sequence &s, const work &w, const chunk &c, int quad, float *sm)
{
    using S = few_shape<D>;
    const int b = ptx_thread() % D;
    const bool query = ptx_thread() >= D;
    float *own = sm + S::x + quad * quads<D>::PITCH + 4 * b, *rows = sm + S::rows + (c.from - s.pos) * D + b;
    float ys[4];
    four(both_halves<D>(sm + S::part, query, b), ys);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = 4 * quad + i;
        if (r < c.n_old || r >= c.n_old + c.n_new) continue;
        if (query) rows[r * D] = ys[i];
        if (query) continue;
        const float x = fmaf(sm[S::of_k + r] * sm[S::power + b / PATCH], ys[i], fmaf(sm[S::beta + r], own[i], 0.0f));
        own[i] = x;
        if (c.from >= s.keep) x_at(j, s.slot, w.head, c.from + r)[w.col + b] = x;
    }
}

/* Half of the chunk's rows of 16 columns, a warp: o of new rows, in the place of q . S0; and, where it is full, u of all, in
 * the place of sums. */
template <int D> PI_FN void outputs(const sequence &s, const chunk &c, bool full, float *sm)
{
    using S = few_shape<D>;
    const patch_place p = place_of<D, D>(ptx_thread(), 0);
    const int n = p.row > 0;
    float y[4];
    if (full) {
        mix_of_x<D>(sm + S::x, sm + S::mix, false, n, p, y);
        float *to = sm + S::part + x_of_lane<D>(p) + 2 * n * quads<D>::PITCH;
        const float *from = to - S::part + S::x;
        *(float2 *) to = {from[0] + y[0], from[1] + y[1]};
        *(float2 *) (to + 4) = {from[4] + y[2], from[5] + y[3]};
    }
    if (8 * n + 7 < c.n_old || 8 * n >= c.n_old + c.n_new) return;
    mix_of_x<D>(sm + S::x, sm + S::mix, true, n, p, y);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = chunk_row(p.lane, n, i), col = p.col + chunk_col(p.lane, i);
        if (r < c.n_old || r >= c.n_old + c.n_new) continue;
        float *o = sm + S::rows + (c.from - s.pos + r) * D + col;
        *o = fmaf(sm[S::of_q + r] * sm[S::power + p.col / PATCH], *o, y[i]);
    }
}

/* Quads up to the last one with new rows. */
PI_FN int quads_of(const chunk &c) { return c.n_new ? (c.n_old + c.n_new + 3) / 4 : 0; }

/* T and P of the new rows, one after the other, by the first warp: a lane a column, lanes 16 .. the rest of its values. */
template <int D> PI_FN void mix_of_rows(const job &j, const sequence &s, const work &w, const chunk &c, float *sm)
{
    using S = few_shape<D>;
    const int l = ptx_thread() % C;
    const bool low = ptx_thread() >= C;
    float *rows = sm + S::mix;
#pragma unroll 1
    for (int i = c.n_old; i < c.n_old + c.n_new; i++) {
        float t = 0, q = 0;
#pragma unroll 2
        for (int n = 0; n < i; n++) {
            const float at = n < l ? 0.0f : n == l ? 1.0f : rows[mix_rows::at(n, false, mix_at(l, false))];
            t = fmaf(sm[S::ck + i * C + n], at, t);
            q = fmaf(sm[S::cq + i * C + n], at, q);
        }
        q = fmaf(sm[S::cq + i * C + i], i == l ? 1.0f : i < l ? 0.0f : t, q);
        t = l < i ? t : 0.0f;
        rows[mix_rows::at(i, false, mix_at(l, low))] = low ? rest_of_tf32(t) : t;
        rows[mix_rows::at(i, true, mix_at(l, low))] = low ? rest_of_tf32(q) : q;
        if (!low && c.from >= s.keep) t_at(j, s.slot, w.head, c.from + i)[l] = t;
        __syncwarp();
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

/* What is left of each row at the end of a full chunk. */
PI_FN void put_left(const float *decay, float *left)
{
    const int i = ptx_thread();
    if (i <= C) left[i] = left_of(decay, i < C ? i : -1, C - 1);
}

/* ---------------------------------------------------------------------------------------------------------------- many */

/* What lies in shared memory, in words: two stages of what prepare() made of a chunk, and what is left of its rows. */
template <int D> struct many_shape {
    static constexpr int W = D == 128 ? 64 : D, THREADS = 2 * W; /* columns of a block: a warp has 16 */
    static constexpr int PIECES = D / 8, ROWS = THREADS / PIECES; /* of 16 bytes, in a row of a plane; rows copied at a time */
    static constexpr int mix = planes<D>::WORDS;      /* of a stage: T and P */
    static constexpr int of_k = mix + mix_rows::WORDS, of_q = of_k + C, decay = of_q + C; /* [C], in the order of scalars */
    static constexpr int STAGE = decay + C;
    static constexpr int left = 2 * STAGE;            /* [C + 1] 2^(G_15 - G_i), then 2^G_15 */
    static constexpr size_t bytes = sizeof(float) * (left + C + 4);
};

/* What a thread copies of each chunk 16 bytes at a time: from where for the step's first token, and to where in a stage. */
struct copies {
    const uint32_t *kq;
    const float *mix;
    uint32_t kq_to, mix_to;
};
template <int D> PI_FN copies copies_of(const job &j, const sequence &s, const work &w, const float *stage, int tid)
{
    using P = planes<D>;
    using S = many_shape<D>;
    const int row = tid / S::PIECES, piece = tid % S::PIECES;
    copies m;
    m.kq = new_kq(j, w.k_head, s.first) + row * 2 * D + 4 * piece;
    m.kq_to = ptx_shared(stage + row * P::PITCH + 4 * piece);
    m.mix = new_mix(j, w.head, s.first) + tid * 4;
    m.mix_to = ptx_shared(stage + S::mix + mix_rows::at(tid / 16, tid / 8 % 2, tid % 8 * 4));
    return m;
}
/* Row and plane of a thread's copy i of keys and queries, less those of the first one. */
template <int D> PI_FN constexpr int copy_row(int i) { return i * many_shape<D>::ROWS % C; }
template <int D> PI_FN constexpr int copy_plane(int i) { return i * many_shape<D>::ROWS / C; }
template <int D> PI_FN constexpr uint32_t copy_to(int i)
{
    return (uint32_t) (copy_plane<D>(i) / 2 * planes<D>::KIND + copy_plane<D>(i) % 2 * planes<D>::PLANE +
                       copy_row<D>(i) * planes<D>::PITCH) * 4;
}

/* Begins the copies of a whole chunk to a stage, `at` bytes behind the first. */
template <int D>
PI_FN void stage_chunk(const job &j, const sequence &s, const work &w, const copies &m, int32_t from, const float *stage,
                       uint32_t at)
{
    using S = many_shape<D>;
    const uint32_t scalar_to = ptx_shared(stage + S::of_k);
    const int32_t token = from - s.pos;
    const uint32_t *kq = m.kq + (int64_t) token * (2 * D);
    const float *mixed = m.mix + (int64_t) token * (2 * MIX);
#pragma unroll
    for (int i = 0; i < 4 * C / S::ROWS; i++) {
        ptx_cp_async16(m.kq_to + at + copy_to<D>(i), kq + copy_row<D>(i) * 2 * D + copy_plane<D>(i) * (D / 2));
    }
#pragma unroll
    for (int i = 0; i < C * 16; i += S::THREADS) { /* an even number of rows further */
        if (C * 16 % S::THREADS && i + (int) threadIdx.x >= C * 16) break;
        ptx_cp_async16(m.mix_to + at + (uint32_t) (i / 16 * mix_rows::PITCH) * 4, mixed + i * 4);
    }
    const int tid = ptx_thread();
    if (tid < N_SCALARS * C)
        ptx_cp_async4(scalar_to + at + 4 * (uint32_t) tid, new_scalars(j, w.head, tid / C, s.first + token) + tid % C);
}

/* The same of a chunk with old rows, or not all of its rows: what there is not becomes zeros. T of old rows stage_old_t has. */
template <int D> PI_FN void stage_part(const job &j, const sequence &s, const work &w, const chunk &c, float *stage, uint32_t at)
{
    using S = many_shape<D>;
    const int tid = ptx_thread(), there = c.n_old + c.n_new;
    const int32_t token = c.from - s.pos;
    const copies m = copies_of<D>(j, s, w, stage, tid);
#pragma unroll 1
    for (int i = 0; i < 4 * C / S::ROWS; i++) {
        const int row = tid / S::PIECES + copy_row<D>(i), plane = copy_plane<D>(i);
        const bool old = row < c.n_old && plane < 2, fresh = row >= c.n_old && row < there;
        const uint32_t *kq = m.kq;
        if (fresh) kq += (int64_t) (token + copy_row<D>(i)) * (2 * D) + plane * (D / 2);
        if (old) kq = k_at(j, s.slot, w.k_head, c.from + row) + plane * (D / 2) + tid % S::PIECES * 4;
        ptx_cp_async16(m.kq_to + at + copy_to<D>(i), kq, old || fresh ? 16 : 0);
    }
#pragma unroll 1
    for (int i = 0; i + tid < C * 16; i += S::THREADS) {
        const bool fresh = (i + tid) / 16 >= c.n_old && (i + tid) / 16 < there;
        const float *from = fresh ? m.mix + (int64_t) token * (2 * MIX) + i * 4 : m.mix;
        ptx_cp_async16(m.mix_to + at + (uint32_t) (i / 16 * mix_rows::PITCH) * 4, from, fresh ? 16 : 0);
    }
    const int which = tid / C, r = tid % C;
    const bool old = which == LOG_DECAY && r < c.n_old, fresh = r >= c.n_old && r < there;
    if (which >= N_SCALARS) return;
    const float *from = new_scalars(j, w.head, which, fresh ? s.first + token + r : 0);
    if (old) from = decay_at(j, s.slot, w.head, c.from + r);
    ptx_cp_async4(ptx_shared(stage + S::of_k + tid) + at, from, old || fresh ? 4 : 0);
}
/* T of the first chunk's old rows, when copies have arrived. */
template <int D> PI_FN void stage_old_t(const job &j, const sequence &s, const work &w, const chunk &c, float *rows)
{
    for (int n = (int) threadIdx.x; n < c.n_old * C; n += many_shape<D>::THREADS) {
        const float t = t_at(j, s.slot, w.head, c.from + n / C)[n % C];
        rows[mix_rows::at(n / C, false, mix_at(n % C, false))] = t;
        rows[mix_rows::at(n / C, false, mix_at(n % C, true))] = rest_of_tf32(t);
    }
}

/* x of the chunk's rows as it is before what S0 has of it: beta v of new rows, x of old ones. v: the lane's columns of the
 * chunk's row 2 t, where it is new. */
PI_FN void load_values(int64_t ld, const float *v, values &x)
{
#pragma unroll
    for (int n = 0; n < 4; n++, v += n == 2 ? 7 * ld : ld) {
        const float2 y = *(const float2 *) v;
        x[n / 2][n % 2] = y.x, x[n / 2][n % 2 + 2] = y.y;
    }
}
PI_FN void load_part(const job &j, const sequence &s, const work &w, const patch_place &p, const chunk &c, const float *v,
                     values &x)
{
#pragma unroll
    for (int n = 0; n < 4; n++, v += n == 2 ? 7 * j.a.ldo : j.a.ldo) {
        const int r = chunk_row(ptx_thread() % 32, n / 2, n % 2);
        const float *from = v;
        float2 y = {0, 0};
        if (r < c.n_old) from = x_at(j, s.slot, w.head, c.from + r) + p.col + chunk_col(p.lane, 0);
        if (r < c.n_old + c.n_new) y = *(const float2 *) from;
        x[n / 2][n % 2] = y.x, x[n / 2][n % 2 + 2] = y.y;
    }
}

/* x of new rows to the slot. */
template <int D>
PI_FN void keep_x(const job &j, const sequence &s, const work &w, const patch_place &p, const chunk &c, const values &x)
{
#pragma unroll 1
    for (int n = 0; n < 4; n++) {
        const int r = chunk_row(p.lane, n / 2, n % 2);
        if (r < c.n_old || r >= c.n_old + c.n_new) continue;
        const bool high = n / 2, odd = n % 2;
        const float a = high ? odd ? x[1][1] : x[1][0] : odd ? x[0][1] : x[0][0];
        const float b = high ? odd ? x[1][3] : x[1][2] : odd ? x[0][3] : x[0][2];
        *(float2 *) (x_at(j, s.slot, w.head, c.from + r) + p.col + chunk_col(p.lane, 0)) = {a, b};
    }
}

/* o of the chunk's rows, in the place of y = q . S0: with what P has of x; and to where the lane's row 2 t is. */
template <int D> PI_FN void outputs_of(const values &x, const float *stage, float power, int lane, values &y)
{
    using S = many_shape<D>;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const float2 f = *(const float2 *) (stage + S::of_q + chunk_row(lane, h, 0));
        float o[4] = {};
#pragma unroll
        for (int n = 0; n <= h; n++) mix(x[n], stage + S::mix, true, h, n, lane, o);
#pragma unroll
        for (int i = 0; i < 4; i++) y[h][i] = fmaf((i % 2 ? f.y : f.x) * power, y[h][i], o[i]);
    }
}
PI_FN void put_outputs(const values &o, int64_t ld, float *out)
{
#pragma unroll
    for (int n = 0; n < 4; n++, out += n == 2 ? 7 * ld : ld) *(float2 *) out = {o[n / 2][n % 2], o[n / 2][n % 2 + 2]};
}
PI_FN void put_part(const values &o, const chunk &c, int64_t ld, float *out)
{
#pragma unroll
    for (int n = 0; n < 4; n++, out += n == 2 ? 7 * ld : ld) {
        const int r = chunk_row(ptx_thread() % 32, n / 2, n % 2);
        if (r >= c.n_old && r < c.n_old + c.n_new) *(float2 *) out = {o[n / 2][n % 2], o[n / 2][n % 2 + 2]};
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
    ptx_launch_dependents();
    using S = few_shape<D>;
    sequence found;
    if (!find_sequence(j, (int32_t) blockIdx.y, found) || found.end - found.pos > j.few) {
        ptx_wait_grids();
        return;
    }
    sequence &s = *(sequence *) (sm + S::who);
    work &w = *(work *) (&s + 1);
    const int32_t head = (int32_t) blockIdx.x;
    if (threadIdx.x == 0) {
        s = found;
        w = {head, head % j.a.state.n_k, 0};
    }
    const auto place = [] { return place_of<D, D>(ptx_thread(), 0); };
    int32_t from = found.pos ? *base_at(j, found.slot, head, 0) : 0;
    const auto bound_of = [&] { return sm + S::bound + (unsigned) ptx_thread() / 32; };
    if (threadIdx.x % 32 == 0) *bound_of() = from ? *bound_at(j, found.slot, head, place().col) : 0.0f;
    patch<D / 2> st;
    load_patch<D>(s_at(j, found.slot, j.at.s, head), place(), st);
    ptx_wait_grids(); /* up to here it was the state, which no other kernel of the step writes */
    __syncthreads();

    for (; from < s.end; from += C) {
        const auto chunk_now = [&] { return chunk_of(s, from); }; /* again, instead of holding it in registers */
        const bool full = from + C <= s.verified || from + C < s.end;
        stage_x<D>(j, s, w, chunk_now(), S::THREADS, sm + S::x);
        stage_t(j, s, w, chunk_now(), S::THREADS, sm + S::mix);
        stage_keys<D>(j, s, w, chunk_now(), S::THREADS, (uint32_t *) sm + S::pl);
        make_keys<D>(j, s, w, chunk_now(), (uint32_t *) sm + S::pl);
        if (threadIdx.x < 32) make_gates<D>(j, s, w, chunk_now(), sm);
        if (place().row == 0 && place().lane == 0) sm[S::power + place().col / PATCH] = power_of_2(exponent_of(*bound_of()));
#pragma unroll 1
        for (int n = ptx_thread(); n < chunk_now().n_new * D; n += S::THREADS) {
            const int32_t channel = (2 * j.a.state.n_k + w.head) * D + n % D, row = chunk_now().n_old + n / D;
            sm[S::x + row / 4 * quads<D>::PITCH + n % D * 4 + row % 4] = convolved(j, s, from + row, channel);
        }
        if (from == 0) clear_patch(st);
        if (from <= s.verified) save_state<D>(j, s, w.head, from, place(), st, *bound_of());
        __syncthreads();
        halves_of_factors<D>(chunk_now(), sm);
        __syncthreads();
        factors<D>(chunk_now(), sm);
        if (full) put_left(sm + S::decay, sm + S::left);
        __syncthreads();
        const chunk c = chunk_of(s, from);
        if (threadIdx.x < 32) mix_of_rows<D>(j, s, w, c, sm);

#pragma unroll 1
        for (int quad = c.n_old / 4; quad < quads_of(c); quad++) {
            float y[4];
            times_quad<D>(st, place(), (const uint32_t *) sm + S::pl, quad, y);
            put_half<D>(place(), y, sm + S::part);
            __syncthreads();
            if (threadIdx.x < 2 * D) solve_quad<D>(j, s, w, c, quad, sm);
            __syncthreads();
        }
        outputs<D>(s, c, full, sm);
        if (full) {
            values u;
            __syncthreads();
            for (int h = 0; h < 2; h++) load_x<D>(sm + S::part, h, place(), u[h]);
            float bound = *bound_of();
            fold<D>(u, sm + S::left, (const uint32_t *) sm + S::pl, place(), st, bound);
            __syncwarp(); /* all lanes have the old one */
            if (place().lane == 0) *bound_of() = bound;
            __syncwarp();
        }
        if (from + C == s.keep) keep_state<D>(j, s, w.head, place(), st, *bound_of());
        __syncthreads(); /* the chunk's rows are done with */
    }
    if (from <= s.verified) save_state<D>(j, s, w.head, from, place(), st, *bound_of());
    float norm[4];
    load_norm<D>(j, place().lane, norm);
#pragma unroll 1
    for (int r = ptx_thread() / 32; r < s.end - s.pos; r += S::THREADS / 32) {
        gated_norm<D, false>(j, sm + S::rows + r * D, norm, s.first + r, w.head, ptx_thread() % 32);
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

/* Columns of a value head of a sequence with many tokens: block (head and columns, sequence). */
template <int D> __global__ void __launch_bounds__(many_shape<D>::THREADS, D == 96 ? 1 : 2) many(job j)
{
    ptx_take_turn();
    using S = many_shape<D>;
    PI_SMEM(raw);
    float *sm = (float *) raw;
    sequence s;
    if (!find_sequence(j, (int32_t) blockIdx.y, s) || s.end - s.pos <= j.few) return;
    const int32_t head = (int32_t) blockIdx.x / (D / S::W), col = (int32_t) blockIdx.x % (D / S::W) * S::W;
    const work w = {head, head % j.a.state.n_k, col};
    const patch_place p = {col + (int32_t) threadIdx.x / 32 * PATCH, 0, (int32_t) threadIdx.x % 32};
    int32_t from = s.pos ? *base_at(j, s.slot, head, col) : 0;
    float bound = from ? *bound_at(j, s.slot, head, p.col) : 0.0f;
    float *out = j.a.out + (s.first + from - s.pos + chunk_row(p.lane, 0, 0)) * j.a.ldo + head * D + p.col +
                 chunk_col(p.lane, 0); /* of the lane's columns and row 2 t */
    const copies m = copies_of<D>(j, s, w, sm, (int) threadIdx.x);
    int stage = 0;
    patch<D> st;
    if (from) load_patch<D>(s_at(j, s.slot, j.at.s, head), p, st);
    else clear_patch(st);
    stage_part<D>(j, s, w, chunk_of(s, from), sm, 0);
    ptx_cp_async_commit();

    for (; from < s.end; from += C, out += C * j.a.ldo, stage = S::STAGE - stage) {
        const chunk c = chunk_of(s, from);
        const bool full = from + C <= s.verified || from + C < s.end, whole = c.n_new == C;
        float *now = sm + stage;
        const uint32_t next = (uint32_t) (S::STAGE - stage) * 4;
        const float power = power_of_2(exponent_of(bound));
        values x, y[2];
        ptx_cp_async_wait<0>();
        __syncthreads(); /* the chunk is there, the last one is done with */
        if (from + 2 * C <= s.end && from + C >= s.pos) stage_chunk<D>(j, s, w, m, from + C, sm, next);
        else if (from + C < s.end) stage_part<D>(j, s, w, chunk_of(s, from + C), sm, next);
        ptx_cp_async_commit();
        if (c.n_old) stage_old_t<D>(j, s, w, c, now + S::mix);
        if (full) put_left(now + S::decay, sm + S::left);
        if (whole) load_values(j.a.ldo, out, x);
        else load_part(j, s, w, p, c, out, x);
        if (from <= s.verified) save_state<D>(j, s, head, from, p, st, bound);
        times_tokens<D>(st, p, (const uint32_t *) now, y);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float2 f = *(const float2 *) (now + S::of_k + chunk_row(p.lane, h, 0));
#pragma unroll
            for (int i = 0; i < 4; i++) x[h][i] = fmaf((i % 2 ? f.y : f.x) * power, y[0][h][i], x[h][i]);
        }
        if (c.from >= s.keep) keep_x<D>(j, s, w, p, c, x);
        if (from + C > s.verified) clean(x[0]), clean(x[1]);
        __syncthreads(); /* what is left of rows is there */
        outputs_of<D>(x, now, power, p.lane, y[1]);
        if (whole) put_outputs(y[1], j.a.ldo, out);
        else put_part(y[1], c, j.a.ldo, out);
        if (full) {
            add_mix(x, now + S::mix, p.lane);
            fold<D>(x, sm + S::left, (const uint32_t *) now, p, st, bound);
        }
        if (from + C == s.keep) keep_state<D>(j, s, head, p, st, bound);
    }
    if (from <= s.verified) save_state<D>(j, s, head, from, p, st, bound);
    if (threadIdx.x < S::W / SLICE) base_at(j, s.slot, head, col)[threadIdx.x] = s.keep;
    for (int32_t i = 0; i < S::W; i += S::THREADS / 4) keep_raw<D, S::THREADS / 4>(j, s, {head, w.k_head, col + i});
}

template <int D> struct prepare_shape { /* in words; dots and factors of keys and queries lie 16 banks apart */
    static constexpr int KIND = C * C + C;
    static constexpr int dots = planes<D>::WORDS; /* [k, q][C][C] */
    static constexpr int own = dots + 2 * KIND;   /* of a warp: factors [k, q][C][C], log2 decays, beta [C] */
    static constexpr int decay = 2 * KIND, beta = decay + C, OWN = beta + C;
    static constexpr size_t bytes = sizeof(float) * (own + ROWS_THREADS / 32 * OWN);
};

/* Factors of a chunk's rows with rows up to their own, by a warp: lanes 0 .. 15 those of keys, the others of queries, of row
 * lane % 16. */
template <int D> PI_FN void put_factors(const float *dots, float *own)
{
    using S = prepare_shape<D>;
    const int lane = (int) threadIdx.x % 32, l = lane % C, query = lane / C;
    float decayed = 0;
#pragma unroll
    for (int i = 0; i < C; i++) {
        decayed += i > l ? own[S::decay + i] : 0.0f;
        const float left = ptx_exp2(decayed), dot = dots[query * S::KIND + i * C + l];
        const float f = query ? factor_q(left, dot) : factor_k(own[S::beta + i], left, dot);
        own[query * S::KIND + i * C + l] = l < i + query ? f : 0.0f;
    }
}

/* The sum of the first n factors times t, in order. */
PI_FN float add_mixed(const float *factor, int n, const float (&t)[C])
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < C; i += 4) {
        if (i >= n) break;
        float f[4];
        four(*(const float4 *) (factor + i), f);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (i + k < n) sum = fmaf(f[k], t[i + k], sum);
        }
    }
    return sum;
}

/* T and P, by a warp: a lane column lane % 16 of T; of P and of what is left of T's values the half of the lanes some. */
template <int D>
PI_FN void put_mix(const job &j, const sequence &s, const chunk &c, int32_t head, int32_t token, const float *own)
{
    using S = prepare_shape<D>;
    const int lane = (int) threadIdx.x % 32, l = lane % C, high = lane / C;
    float *to = new_mix(j, head, token) - c.n_old * 2 * MIX, t[C];
#pragma unroll
    for (int i = 0; i < C; i++) {
        float sum = add_mixed(own + i * C, i, t);
        if (i < c.n_old) sum = l < i ? t_at(j, s.slot, head, c.from + i)[l] : 0.0f;
        t[i] = i == l ? 1.0f : sum;
        const float off = i == l ? 0.0f : sum;
        if (i >= c.n_old && i < c.n_old + c.n_new) to[i * 2 * MIX + mix_at(l, high)] = high ? rest_of_tf32(off) : off;
    }
    own += S::KIND + high * C;
    to += high * 2 * MIX + MIX + mix_at(l, false);
#pragma unroll
    for (int i = 0; i < C; i += 2) { /* rows i and i + 1 */
        float sum = add_mixed(own + i * C, i + 1, t);
        sum = high ? fmaf(own[i * C + i + 1], t[i + 1], sum) : sum; /* t may be no number */
        const int row = i + high;
        if (row < c.n_old || row >= c.n_old + c.n_new) continue;
        to[i * 2 * MIX] = sum;
        to[i * 2 * MIX + 2] = rest_of_tf32(sum);
    }
}

/* Gates, T, P and values of a chunk's new rows, for a value head, by a warp. dots: [k, q][C rows][C] products with the
 * chunk's keys. */
template <int D, bool FAST>
PI_FN void prepare_head(const job &j, const sequence &s, const chunk &c, int32_t head, const float *dots, float *own)
{
    using S = prepare_shape<D>;
    const int lane = (int) threadIdx.x % 32;
    const int32_t p = c.from + c.n_old, token = s.first + p - s.pos; /* of the first new row */
    const gate x = gates(j, s, head, c, lane);
    if (lane < C) own[S::decay + lane] = x.decay, own[S::beta + lane] = x.beta;
    if (lane >= c.n_old && lane < c.n_old + c.n_new) {
        const int32_t at = token + lane - c.n_old;
        *new_scalars(j, head, OF_K, at) = of_k(x);
        *new_scalars(j, head, OF_Q, at) = of_q(x);
        *new_scalars(j, head, LOG_DECAY, at) = x.decay;
    }
    __syncwarp();
    put_factors<D>(dots, own);
    __syncwarp();
    put_mix<D>(j, s, c, head, token, own);
    const int32_t channel = (2 * j.a.state.n_k + head) * D + 4 * lane;
    float *to = j.a.out + token * j.a.ldo + head * D + 4 * lane;
    if (D == 128 || lane < D / 4) {
        convolution<FAST> conv;
        conv.begin(j, s, p, channel);
#pragma unroll (FAST ? 4 : 1)
        for (int32_t r = 0; r < c.n_new; r++, to += j.a.ldo) { /* no zero is negative */
            const float beta = own[S::beta + c.n_old + r];
            float v[4];
            conv.next(j, s, p + r, channel, v);
            *(float4 *) to = {fmaf(beta, v[0], 0.0f), fmaf(beta, v[1], 0.0f), fmaf(beta, v[2], 0.0f), fmaf(beta, v[3], 0.0f)};
        }
    }
    __syncwarp();
}

/* All that many() needs of a chunk's new rows and that does not depend on S0: block (tile, key head). FAST: as of
 * convolution. */
template <int D, bool FAST> __global__ void __launch_bounds__(ROWS_THREADS, FAST ? 3 : 2) prepare(job j)
{
    ptx_take_turn();
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
    uint32_t *copy = new_kq(j, k_head, token + first) + query * D, *to = pl + query * P::KIND + (c.n_old + first) * P::PITCH;
    const auto put = [&](int r, int n, uint2 hi, uint2 lo) {
        ((uint2 *) (to + r * P::PITCH))[n] = ((uint2 *) (copy + r * 2 * D))[n] = hi;
        ((uint2 *) (to + r * P::PITCH + P::PLANE))[n] = ((uint2 *) (copy + r * 2 * D + D / 2))[n] = lo;
    };
    keys_or_queries<D, FAST>(j, s, k_head, query, p + first, min(some, c.n_new - first), put);
    __syncthreads();
    float y[2][4];
    times_keys<D>(pl, warp, 0, lane, y[0]);
    times_keys<D>(pl, warp, 1, lane, y[1]);
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const int column = column_of(lane, n);
        sm[S::dots + column / 4 * S::KIND + (4 * warp + column % 4) * C + key_of(lane, n)] = y[0][n] + y[1][n];
    }
    __syncthreads();
    for (int32_t head = k_head + warp * j.a.state.n_k; head < j.a.state.n_v; head += ROWS_THREADS / 32 * j.a.state.n_k) {
        prepare_head<D, FAST>(j, s, c, head, sm + S::dots, sm + S::own + warp * S::OWN);
    }
}

/* What later steps need of a chunk's new rows: keys, by one of the value heads that have them, decays, T. */
template <int D> PI_FN void keep_rows(const job &j, const sequence &s, const chunk &c, int32_t head, int lane)
{
    for (int32_t r = 0; r < c.n_new; r++) {
        const int32_t p = c.from + c.n_old + r, token = s.first + p - s.pos;
        if (head < j.a.state.n_k) {
            for (int i = lane; i < D; i += 32) k_at(j, s.slot, head, p)[i] = new_kq(j, head, token)[i];
        }
        if (lane < C) t_at(j, s.slot, head, p)[lane] = new_mix(j, head, token)[mix_at(lane, false)];
        if (lane == 0) *decay_at(j, s.slot, head, p) = *new_scalars(j, head, LOG_DECAY, token);
    }
}

/* The rest for many tokens, after many(): the gated norm, and what is kept. Block (tile, four value heads), a warp a head. */
template <int D, bool FAST> __global__ void __launch_bounds__(ROWS_THREADS) finish(job j)
{
    ptx_take_turn();
    sequence s;
    chunk c;
    const int32_t head = (int32_t) blockIdx.y * (ROWS_THREADS / 32) + (int32_t) threadIdx.x / 32;
    if (head >= j.a.state.n_v || !find_tile(j, (int32_t) blockIdx.x, s, c)) return;
    const int32_t token = s.first + c.from + c.n_old - s.pos;
    const int lane = (int) threadIdx.x % 32;
    float norm[4];
    load_norm<D>(j, lane, norm);
#pragma unroll 4
    for (int r = 0; r < c.n_new; r++) {
        gated_norm<D, FAST>(j, j.a.out + (token + r) * j.a.ldo + head * D, norm, token + r, head, lane);
    }
    if (c.from >= s.keep) keep_rows<D>(j, s, c, head, lane);
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
    static constexpr int pl = 0, x = planes<D>::WORDS, mix = x + quads<SLICE>::WORDS, decay = mix + mix_rows::WORDS;
    static constexpr int left = decay + C;
    static constexpr size_t bytes = sizeof(float) * (left + C + 4);
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
    float bound = base ? *bound_at(j, s.slot, w.head, p.col) : 0.0f;
    patch<D / 2> st;
    load_patch<D>(s_at(j, s.slot, j.at.s, w.head), p, st);
    if (base == 0) clear_patch(st);
    for (int32_t from = base; from < pos; from += C) {
        const chunk c = {from, C, 0};
        __syncthreads();
        stage_keys<D>(j, s, w, c, 4 * SLICE, (uint32_t *) sm + S::pl);
        stage_x<SLICE>(j, s, w, c, 4 * SLICE, sm + S::x);
        stage_t(j, s, w, c, 4 * SLICE, sm + S::mix);
        if (threadIdx.x < C) sm[S::decay + threadIdx.x] = *decay_at(j, s.slot, w.head, from + (int32_t) threadIdx.x);
        __syncthreads();
        put_left(sm + S::decay, sm + S::left);
        __syncthreads();
        values u;
        for (int h = 0; h < 2; h++) load_x<SLICE>(sm + S::x, h, p, u[h]);
        add_mix(u, sm + S::mix, p.lane);
        fold<D>(u, sm + S::left, (const uint32_t *) sm + S::pl, p, st, bound);
    }
    store_patch<D>(s_at(j, snap, 0, w.head), p, st);
    if (p.row == 0 && p.lane == 0) *snap_bound(j, snap, w.head, p.col) = bound;
    move_raw<D>(j, w, s.slot, snap, pos, false);
}

template <int D> __global__ void __launch_bounds__(4 * SLICE) load(job j, int32_t slot_index, int32_t pos, int32_t snap_index)
{
    float *slot = slot_at(j.a.state, slot_index), *snap = snap_at(j.a.state, snap_index);
    const work w = slice_of(j);
    const patch_place p = place_of<D, SLICE>((int) threadIdx.x, w.col);
    patch<D / 2> st;
    load_patch<D>(s_at(j, snap, 0, w.head), p, st);
    store_patch<D>(s_at(j, slot, j.at.s, w.head), p, st);
    if (threadIdx.x == 0) *base_at(j, slot, w.head, w.col) = pos;
    if (p.row == 0 && p.lane == 0) *bound_at(j, slot, w.head, p.col) = *snap_bound(j, snap, w.head, p.col);
    move_raw<D>(j, w, slot, snap, pos, true);
}

#endif
