/* T and P (mix_rows) */
#ifndef PI_GDN_KERNELS_CUH
#define PI_GDN_KERNELS_CUH

#include "gdn_prepare.cuh"
#include "tail.cuh"

namespace gdn {

enum { MAX_FEW = C }; /* upper bound of job::few */

/* Returns the warp's patch: 16 of the block's W columns, which begin at `col`, and half of S0's rows. The first W / 16
 * warps have the first half of the rows. (many() with PARTS 1 has only these warps, each with all rows.) */
template <int D, int W> PI_FN patch_place place_of(int thread, int32_t col)
{
    const unsigned warp = (unsigned) thread / 32;
    return {col + (int32_t) (warp % (W / 16)) * 16, (int32_t) (warp / (W / 16)) * (D / 2), thread & 31};
}

/* Replaces NaN and infinities by 0. Missing rows of a chunk hold garbage, and are multiplied by zero. */
PI_FN void clean(float (&x)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = fabsf(x[i]) <= 3.4e38f ? x[i] : 0.0f;
}

/* Writes the warp's patch of S0, which is the state at pos, and its bound to all snapshots that are requested at
 * pos. */
template <int D, int ROWS>
PI_FN void save_state(const job &j, const sequence &s, int32_t head, int32_t pos, const patch_place &p,
                      const patch<ROWS> &st, float bound)
{
#pragma unroll 1
    for (int32_t i = 0; i < s.n_save; i++) {
        if (s.save[2 * i] != pos) continue;
        float *snap = snap_at(j.a.state, s.save[2 * i + 1]);
        store_patch<D>(s_at(j, snap, 0, head), p, st);
        if (p.row == 0 && p.lane == 0) *snap_bound(j, snap, head, p.col) = bound;
    }
}
/* Writes the warp's patch of S0 and its bound to the slot. */
template <int D, int ROWS>
PI_FN void keep_state(const job &j, const sequence &s, int32_t head, const patch_place &p, const patch<ROWS> &st,
                      float bound)
{
    store_patch<D>(s_at(j, s.slot, j.at.s, head), p, st);
    if (p.row == 0 && p.lane == 0) *bound_at(j, s.slot, head, p.col) = bound;
}

/* ------------------------------------------------------------------------------------------------------------ few */

/* Shared memory of few(): offsets in words. */
template <int D> struct few_shape {
    static constexpr int THREADS = 4 * D;
    static constexpr int pl = 0;
    /* products of four rows with S0, per half of S0 (struct halves) */
    static constexpr int part = pl + planes<D, true>::WORDS;
    /* Before that, `part` holds the products of times_keys(): [C / 4][halves of D][4 keys, 4 queries][C keys], DOT
     * words per row. */
    static constexpr int DOT = C + 4, DOTS = C / 4 * 16 * DOT;
    /* x [quads]: first the exponents of v (exponent_at()), then x. */
    static constexpr int x = part + (halves<D>::WORDS > DOTS ? halves<D>::WORDS : DOTS);
    /* [MAX_FEW][D], new rows of the step: first q . S0, then o */
    static constexpr int rows = x + quads<D>::WORDS;
    static constexpr int ck = rows + MAX_FEW * D;           /* [C][C] factors of keys (factor_k()) */
    static constexpr int cq = ck + C * C + C;                /* [C][C] factors of queries, 16 banks further */
    static constexpr int mix = cq + C * C;                   /* T and P */
    static constexpr int decay = mix + mix_rows::WORDS;      /* [C] log2 decays */
    static constexpr int beta = decay + C, over = beta + C, of_k = over + C, of_s = of_k + C; /* [C] */
    static constexpr int left = of_s + C;                    /* [C + 1] 2^(G_15 - G_i) of row i; then 2^G_15 */
    static constexpr int power = left + C + 4;               /* [D / PATCH] the power of two that S0 is divided by */
    /* [warps] bound of a warp's 16 columns; here because registers are full with S0. */
    static constexpr int bound = power + D / PATCH;
    static constexpr int who = bound + D / 8;                /* struct sequence, then struct work */
    static constexpr size_t bytes = sizeof(float) * (size_t) who + sizeof(sequence) + sizeof(work);
};

/* Starts the copies of x of the chunk's old rows from the slot to shared memory (quads<W>); the caller waits. The 32
 * copies of a warp are 8 columns of 4 rows: contiguous in shared memory, and 32 bytes of each row. Missing rows become
 * zeros; new rows are not written. threads: number of calling threads. */
template <int W>
PI_FN void stage_x(const job &j, const sequence &s, const work &w, const chunk &c, int threads, float *x)
{
#pragma unroll 1
    for (int i = ptx_thread(); i < C * W; i += threads) {
        const int quad = i / (4 * W), row = 4 * quad + i % 4;
        const bool old = row < c.n_old;
        if (!old && row < c.n_old + c.n_new) continue;
        ptx_cp_async4(ptx_shared(x + quad * quads<W>::PITCH + i % (4 * W)),
                      x_at(j, s.slot, w.head, old ? c.from + row : 0) + w.col + i / 4 % W, old ? 4 : 0);
    }
}
/* Loads T of the old rows from the slot to shared memory `rows` (mix_rows); other rows of T, and P of all rows, become
 * zeros. Each thread writes words, of T or of its remainder. */
PI_FN void stage_t(const job &j, const sequence &s, const work &w, const chunk &c, int threads, float *rows)
{
#pragma unroll 1
    for (int i = ptx_thread(); i < C * MIX; i += threads) {
        const int row = i / MIX, word = i % MIX;
        const float t = row < c.n_old ? t_at(j, s.slot, w.head, c.from + row)[mix_column(word)] : 0.0f;
        rows[mix_rows::at(row, false, word)] = mix_rest(word) ? rest_of_tf32(t) : t;
        rows[mix_rows::at(row, true, word)] = 0;
    }
}
/* x_of_lane: offset in quads<W> of the lane's first two values of x. load_x: v = the lane's values of rows 8 h .. 8 h +
 * 7 in the patch's columns. */
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
/* y = rows 8 n .. 8 n + 7 of T (p_rows: of P) times x, for the patch's columns. */
template <int W>
PI_FN void mix_of_x(const float *x, const float *rows, bool p_rows, int n, const patch_place &p, float (&y)[4])
{
    y[0] = y[1] = y[2] = y[3] = 0;
#pragma unroll 1
    for (int h = 0; h <= n; h++) {
        float v[4];
        load_x<W>(x, h, p, v);
        clean(v);
        mix(mix_words_of(v), rows, p_rows, n, h, p.lane, y);
    }
}

/* Computes the new rows' keys and queries into the planes pl. The first value head of a key head (head < n_k) also
 * writes the keys of chunks from s.keep on to the slot. */
template <int D> PI_FN void make_keys(const job &j, const sequence &s, const work &w, const chunk &c, uint32_t *pl)
{
    using P = planes<D, true>;
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

/* Computes, by one warp, the log2 decays of all rows, and beta, over, of_k, of_s of the new rows, to shared memory sm.
 * Decays of chunks from s.keep on are also written to the slot. */
template <int D> PI_FN void make_gates(const job &j, const sequence &s, const work &w, const chunk &c, float *sm)
{
    using S = few_shape<D>;
    const int i = ptx_thread() % 32;
    const gate x = gates(j, s, w.head, c, i);
    if (i >= c.n_old + c.n_new) return;
    sm[S::decay + i] = x.decay;
    if (i < c.n_old) return;
    sm[S::beta + i] = x.beta, sm[S::over + i] = x.over;
    sm[S::of_k + i] = of_k(x);
    sm[S::of_s + i] = of_s(x);
    if (c.from < s.keep) return;
    *decay_at(j, s.slot, w.head, c.from + i) = x.decay;
}

/* Completes a quad after times_quad(). Threads 0 .. D - 1, one column each, compute x of the quad's new rows in place
 * of the exponents of v; x of chunks from s.keep on is also written to the slot. Threads D .. 2 D - 1 store q . S0 to
 * S::rows. */
template <int D>
PI_FN void solve_quad(const job &j, const sequence &s, const work &w, const chunk &c, int quad, float *sm)
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
        const float x = fmaf(sm[S::of_k + r] * sm[S::power + b / PATCH], ys[i], value_of(own[i], sm[S::over + r]));
        own[i] = x;
        if (c.from >= s.keep) x_at(j, s.slot, w.head, c.from + r)[w.col + b] = x;
    }
}

/* Computes outputs, per warp for 16 columns and 8 rows of the chunk. Writes o of the new rows in place of q . S0
 * (S::rows). full: also writes u, decayed to the chunk's end, to S::part, in the layout of x. */
template <int D> PI_FN void outputs(const sequence &s, const chunk &c, bool full, float *sm)
{
    using S = few_shape<D>;
    const patch_place p = place_of<D, D>(ptx_thread(), 0);
    const int n = p.row > 0;
    float y[4];
    if (full) {
        mix_of_x<D>(sm + S::x, sm + S::mix, false, n, p, y);
        float *to = sm + S::part + x_of_lane<D>(p) + 2 * n * quads<D>::PITCH;
        *(float2 *) to = {y[0], y[1]};
        *(float2 *) (to + 4) = {y[2], y[3]};
    }
    if (8 * n + 7 < c.n_old || 8 * n >= c.n_old + c.n_new) return;
    mix_of_x<D>(sm + S::x, sm + S::mix, true, n, p, y);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        /* The place is computed again, so that it occupies no registers during the products. */
        const patch_place q = place_of<D, D>(ptx_thread(), 0);
        const int r = chunk_row(q.lane, q.row > 0, i), col = q.col + chunk_col(q.lane, i);
        if (r < c.n_old || r >= c.n_old + c.n_new) continue;
        float *o = sm + S::rows + (c.from - s.pos + r) * D + col;
        *o = fmaf(sm[S::of_s + r] * (sm[S::power + q.col / PATCH] * QUERY_UNIT), *o, y[i]);
    }
}

/* Returns the end of the quads with new rows; 0 = the chunk has none. */
PI_FN int quads_of(const chunk &c) { return c.n_new ? (c.n_old + c.n_new + 3) / 4 : 0; }

/* Computes T and P of the new rows, row after row, in the first warp: lane l has column l; lanes 16 .. 31 compute the
 * same columns and store the remainders. T of chunks from s.keep on is also written to the slot. */
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
            const float at = n < l ? 0.0f : rows[mix_rows::at(n, false, mix_at(l, false))];
            t = fmaf(sm[S::ck + i * C + n], at, t);
            q = fmaf(sm[S::cq + i * C + n], at, q);
        }
        t = l < i ? t : l == i ? 1.0f : 0.0f;
        q = fmaf(sm[S::cq + i * C + i], t, q);
        rows[mix_rows::at(i, false, mix_at(l, low))] = low ? rest_of_tf32(t) : t;
        rows[mix_rows::at(i, true, mix_at(l, low))] = low ? rest_of_tf32(q) : q;
        if (!low && c.from >= s.keep) t_at(j, s.slot, w.head, c.from + i)[l] = t;
        __syncwarp();
    }
}

/* The factors A and M of the chunk's new rows with all rows up to themselves. halves_of_factors: products of keys and
 * queries over each half of D, one quad and half per warp, to S::part. factors: adds the halves and multiplies by decay
 * and beta, to S::ck and S::cq. A barrier is needed between the two and after. */
template <int D> PI_FN void halves_of_factors(const chunk &c, float *sm)
{
    using S = few_shape<D>;
    const int lane = ptx_thread() & 31;
#pragma unroll 1
    for (int n = ptx_thread() / 32; n < C / 4 * 2; n += S::THREADS / 32) {
        const int quad = n / 2;
        if (4 * quad + 3 < c.n_old || 4 * quad >= c.n_old + c.n_new) continue;
        float y[4];
        times_keys<D, true>((const uint32_t *) sm + S::pl, quad, n % 2, lane, y);
#pragma unroll
        for (int i = 0; i < 4; i++) sm[S::part + (n * 8 + column_of(lane, i)) * S::DOT + key_of(lane, i)] = y[i];
    }
}
template <int D> PI_FN void factors(const chunk &c, float *sm)
{
    using S = few_shape<D>;
#pragma unroll 1
    for (int n = ptx_thread(); n < 2 * C * C; n += S::THREADS) {
        const int r = n / (2 * C), l = n & (C - 1);
        const bool query = n & C;
        float f = 0;
        if (r >= c.n_old && r < c.n_old + c.n_new && l < r + query) {
            const float *half = sm + S::part + (r / 4 * 16 + query * 4 + r % 4) * S::DOT + l;
            const float y = half[0] + half[8 * S::DOT], left = left_of(sm + S::decay, l, r);
            f = query ? factor_q(left, y) : factor_k(sm[S::beta + r], left, y);
        }
        sm[(query ? S::cq : S::ck) + r * C + l] = f;
    }
}

/* left[i] = decay factor from row i to the chunk's end, i < C; left[C] = from S0 to the chunk's end. For a full chunk.
 * Called by all threads. */
PI_FN void put_left(const float *decay, float *left)
{
    const int i = ptx_thread();
    if (i < C) left[i] = left_of(decay, i, C - 1);
    if (i == C) left[C] = left_of(decay, -1, C - 1);
}

/* ----------------------------------------------------------------------------------------------------------- many */

/* Sizes and offsets in shared memory of many(), in words: two stages with prepare()'s output for a chunk. A warp has 16
 * columns of S0. PARTS: number of warps that share columns.
 *
 * One long prompt fills a device with (value heads) * (patches) warps: 384 for 48 heads of 128 columns. If that leaves
 * schedulers idle, two warps (PARTS = 2) share columns, each with half of the rows of S0. They exchange their sums.
 * Both compute the rest of x and u, and each computes half of the outputs. Two of these blocks fit in the 100 KiB of
 * sm_120.
 *
 * Of a chunk's 162 tensor core products (82 if not exact) each of the two warps has 84 or 87 (44 or 47). With all
 * outputs in a third launch, from states saved every few chunks, the walk would have 105, and the folds of these chunks
 * would run twice. */
template <int D, int PARTS, bool EXACT> struct many_shape {
    static constexpr int W = PARTS == 2 ? SLICE : D, THREADS = 2 * W * PARTS; /* columns and threads of a block */
    /* PIECES: 16-byte pieces in a row of a plane. ROWS: rows of planes that the block copies per pass. */
    static constexpr int PIECES = D / 8, ROWS = THREADS / PIECES;
    static constexpr int PLANES = EXACT ? 4 : 2;
    static constexpr int mix = planes<D, EXACT>::WORDS;   /* offset in a stage: T and P */
    static constexpr int scalars = mix + mix_rows::WORDS; /* [C][N_SCALARS] */
    static constexpr int STAGE = scalars + C * N_SCALARS;
    static constexpr int halves = 2 * STAGE;              /* [warps][3][32 lanes][4] exchanged sums */
    static constexpr int who = halves + (PARTS == 2 ? THREADS * 12 : 0); /* struct sequence */
    static constexpr size_t bytes = sizeof(float) * (size_t) who + sizeof(sequence);
};

/* The 16-byte copies of a thread per chunk: source addresses of keys and queries (kq) and of T and P (mix), as if the
 * chunk began at position 0; for scalars the row in the scratch. kq_to, mix_to: destinations in the first stage. */
struct copies {
    const uint32_t *kq;
    const float *mix;
    int32_t scalars;
    uint32_t kq_to, mix_to;
};
template <int D, int PARTS, bool EXACT>
PI_FN copies copies_of(const job &j, const sequence &s, const work &w, const float *stage, int tid)
{
    using P = planes<D, EXACT>;
    using S = many_shape<D, PARTS, EXACT>;
    constexpr int ROW = key_words(D, EXACT);
    const int row = tid / S::PIECES, piece = tid % S::PIECES;
    copies m;
    m.kq = new_kq(j, w.k_head, s.first, ROW) + (row - (int64_t) s.pos) * (2 * ROW) + 4 * piece;
    m.kq_to = ptx_shared(stage + row * P::PITCH + 4 * piece);
    m.mix = new_mix(j, w.head, s.first) - (int64_t) s.pos * (2 * MIX) + tid * 4;
    m.scalars = w.head * j.a.n_tokens + s.first - s.pos + tid;
    m.mix_to = ptx_shared(stage + S::mix + mix_rows::at(tid / 16, tid / 8 % 2, tid % 8 * 4));
    return m;
}
/* Copy i of a thread, of keys and queries, relative to its copy 0: row in the chunk; plane; copy_to: bytes in shared
 * memory. */
template <int D, int PARTS, bool EXACT> PI_FN constexpr int copy_row(int i)
{
    return i * many_shape<D, PARTS, EXACT>::ROWS % C;
}
template <int D, int PARTS, bool EXACT> PI_FN constexpr int copy_plane(int i)
{
    return i * many_shape<D, PARTS, EXACT>::ROWS / C;
}
template <int D, int PARTS, bool EXACT> PI_FN constexpr uint32_t copy_to(int i)
{
    using P = planes<D, EXACT>;
    constexpr int HALVES = EXACT ? 2 : 1;
    return (uint32_t) (copy_plane<D, PARTS, EXACT>(i) / HALVES * P::KIND +
                       copy_plane<D, PARTS, EXACT>(i) % HALVES * P::PLANE + copy_row<D, PARTS, EXACT>(i) * P::PITCH) *
           4;
}

/* Returns the first of the two columns in a thread's pieces of T and P. */
PI_FN int piece_column(int tid) { return tid % 8 * 2; }

/* Starts the copies of the chunk at position `from`, which has C new rows, to the stage at byte offset `at`. */
template <int D, int PARTS, bool EXACT>
PI_FN void stage_chunk(const job &j, const copies &m, int32_t from, uint32_t at)
{
    using S = many_shape<D, PARTS, EXACT>;
    constexpr int ROW = 2 * key_words(D, EXACT), PLANES = S::PLANES;
    const uint32_t *kq = m.kq + (int64_t) from * ROW;
    const float *mixed = m.mix + (int64_t) from * (2 * MIX);
    const uint32_t mix_to = (uint32_t) ptx_opaque((int) (m.mix_to + at));
#pragma unroll
    for (int n = 0; n < PLANES * C / S::ROWS; n++) {
        /* Copy all planes of a row in sequence, since their addresses are close. */
        const int i = n % PLANES * (C / S::ROWS) + n / PLANES;
        const uint32_t *from_row = kq + copy_row<D, PARTS, EXACT>(i) * ROW + copy_plane<D, PARTS, EXACT>(i) * (D / 2);
        ptx_cp_async16(m.kq_to + at + copy_to<D, PARTS, EXACT>(i), from_row);
    }
#pragma unroll
    /* each pass copies an even number of rows, so the swizzle of odd rows is the same in all passes */
    for (int i = 0; i < C * 16; i += S::THREADS) {
        if (C * 16 % S::THREADS && i + (int) threadIdx.x >= C * 16) break;
        if (!in_mix((i + (int) threadIdx.x) / 16, piece_column((int) threadIdx.x))) continue;
        ptx_cp_async16(mix_to + (uint32_t) (i / 16 * mix_rows::PITCH) * 4, mixed + i * 4);
    }
    if (ptx_thread() < C) { /* threads 0 .. 15 copy one row of scalars each; their mix_to is 4 tid words into row 0 */
        const float *scalars = (const float *) j.a.scratch + (int64_t) (m.scalars + from) * N_SCALARS;
        ptx_cp_async16(mix_to + (uint32_t) (S::scalars - S::mix) * 4, scalars);
    }
}

/* Starts the copies of a chunk with old or missing rows to the stage at byte offset `at`. stage: address of the first
 * stage. Old rows come from the slot, without T (stage_old_t() adds it); missing rows become zeros. */
template <int D, int PARTS, bool EXACT>
PI_FN void stage_part(const job &j, const sequence &s, const work &w, const chunk &c, float *stage, uint32_t at)
{
    using S = many_shape<D, PARTS, EXACT>;
    const int tid = ptx_thread(), there = c.n_old + c.n_new;
    const copies m = copies_of<D, PARTS, EXACT>(j, s, w, stage, tid);
#pragma unroll 1
    for (int i = 0; i < S::PLANES * C / S::ROWS; i++) {
        const int row = tid / S::PIECES + copy_row<D, PARTS, EXACT>(i), plane = copy_plane<D, PARTS, EXACT>(i);
        const bool old = row < c.n_old && plane < S::PLANES / 2, fresh = row >= c.n_old && row < there;
        const uint32_t *kq = (const uint32_t *) j.a.scratch;
        if (fresh)
            kq = m.kq + (int64_t) (c.from + copy_row<D, PARTS, EXACT>(i)) * (2 * key_words(D, EXACT)) + plane * (D / 2);
        if (old) kq = k_at(j, s.slot, w.k_head, c.from + row) + plane * (D / 2) + tid % S::PIECES * 4;
        ptx_cp_async16(m.kq_to + at + copy_to<D, PARTS, EXACT>(i), kq, old || fresh ? 16 : 0);
    }
#pragma unroll 1
    for (int i = 0; i + tid < C * 16; i += S::THREADS) {
        const int row = (i + tid) / 16;
        const bool fresh = row >= c.n_old && row < there && in_mix(row, piece_column(tid));
        const float *from = fresh ? m.mix + (int64_t) c.from * (2 * MIX) + i * 4 : (const float *) j.a.scratch;
        ptx_cp_async16(m.mix_to + at + (uint32_t) (i / 16 * mix_rows::PITCH) * 4, from, fresh ? 16 : 0);
    }
    const int r = tid / N_SCALARS, which = tid % N_SCALARS;
    const bool old = which == LOG_DECAY && r < c.n_old, fresh = r >= c.n_old && r < there;
    if (r >= C) return;
    const float *from = new_scalars(j, w.head, fresh ? s.first + c.from - s.pos + r : 0) + which;
    if (old) from = decay_at(j, s.slot, w.head, c.from + r);
    ptx_cp_async4(ptx_shared(stage + S::scalars + tid) + at, from, old || fresh ? 4 : 0);
}
/* Writes T of the chunk's old rows from the slot to `rows` (mix_rows), after the stage's copies have arrived. */
template <int D, int PARTS, bool EXACT>
PI_FN void stage_old_t(const job &j, const sequence &s, const work &w, const chunk &c, float *rows)
{
    for (int n = (int) threadIdx.x; n < c.n_old * C; n += many_shape<D, PARTS, EXACT>::THREADS) {
        const float t = t_at(j, s.slot, w.head, c.from + n / C)[n % C];
        rows[mix_rows::at(n / C, false, mix_at(n % C, false))] = t;
        rows[mix_rows::at(n / C, false, mix_at(n % C, true))] = rest_of_tf32(t);
    }
}

/* Load the initial x of the chunk's rows, without S0's part: beta v of new rows (from out), x of old rows (from the
 * slot), 0 for missing rows. v: address in `out` of the lane's columns in the chunk's row 2 t (t = lane % 4); ld:
 * floats between rows. load_values: all rows are new. load_part: any chunk. */
PI_FN void load_values(int32_t ld, const float *v, values &x)
{
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const float2 y = *(const float2 *) (v + (int64_t) ld * (n / 2 * 8 + n % 2));
        x[n / 2][n % 2] = y.x, x[n / 2][n % 2 + 2] = y.y;
    }
}
PI_FN void load_part(const job &j, const sequence &s, const work &w, const patch_place &p, const chunk &c,
                     const float *v, values &x)
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

/* Writes the lane's x of new rows to the slot. */
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

/* Replaces y = q . S0 by o = 2^G y + P x, for rows 8 h .. 8 h + 7 of the chunk. x: both halves of the chunk; of_s: S0's
 * decay up to the lane's two rows; power: power of two that S0 is divided by. */
PI_FN void outputs_of(const mix_words (&x)[2], const float *rows, float2 of_s, float power, int h, int lane,
                      float (&y)[4])
{
    float o[4] = {};
    power *= QUERY_UNIT;
    mix(x[0], rows, true, h, 0, lane, o);
    if (h) mix(x[1], rows, true, h, 1, lane, o);
#pragma unroll
    for (int i = 0; i < 4; i++) y[i] = fmaf((i % 2 ? of_s.y : of_s.x) * power, y[i], o[i]);
}
/* Write the lane's o of rows 2 t and 2 t + 1 of half h of the chunk. out: address of the first; ld: floats between
 * rows. put_outputs: all rows are new. put_part: writes new rows only. */
PI_FN void put_outputs(const float (&o)[4], int32_t ld, float *out)
{
    *(float2 *) out = {o[0], o[2]};
    *(float2 *) (out + (int64_t) ld) = {o[1], o[3]};
}
PI_FN void put_part(const float (&o)[4], const chunk &c, int h, int32_t ld, float *out)
{
#pragma unroll
    for (int n = 0; n < 2; n++) {
        const int r = chunk_row(ptx_thread() % 32, h, n);
        if (r >= c.n_old && r < c.n_old + c.n_new) *(float2 *) (out + (int64_t) ld * n) = {o[n], o[n + 2]};
    }
}

/* Writes the raw inputs of the block's channels to the requested snapshots, and to the slot the ones that later steps
 * need. W: columns of the block; channels of keys and queries are written by the first value head of the key head. */
template <int D, int W> PI_FN void keep_raw(const job &j, const sequence &s, const work &w)
{
    const pi__k_state &st = j.a.state;
    int kind = (int) threadIdx.x / W; /* 0, 1, 2 = queries, keys, values; the last quarter of the threads is idle */
    if (kind > 2 || (kind < 2 && w.head != w.k_head)) return;
    int32_t c = (kind == 0   ? w.head
                 : kind == 1 ? st.n_k + w.head
                             : 2 * st.n_k + w.head) *
                    D +
                w.col + (int) threadIdx.x % W;
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

/* -------------------------------------------------------------------------------------------------------- kernels */

/* Computes a value head of a sequence with few tokens. Grid: x = value head; y = sequence. Block: 4 D threads. Shared,
 * sm: few_shape. */
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
    /* Warp GATES computes gates, while the first warps compute keys and queries, and the last warps values. */
    constexpr unsigned GATES = D == 32 ? 1 : 2;
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
    ptx_wait_grids(); /* the code above reads only the state, which no other kernel of the step writes */
    __syncthreads();

    for (; from < s.end; from += C) {
        const auto chunk_now = [&] { return chunk_of(s, from); }; /* recomputed: saves registers */
        const bool full = from + C <= s.verified || from + C < s.end;
        /* Load x, keys and T of old rows; compute keys, queries, gates and values of new rows. */
        stage_x<D>(j, s, w, chunk_now(), S::THREADS, sm + S::x);
        stage_keys<D, true>(j, s, w, chunk_now(), S::THREADS, (uint32_t *) sm + S::pl);
        ptx_cp_async_commit();
        stage_t(j, s, w, chunk_now(), S::THREADS, sm + S::mix);
        make_keys<D>(j, s, w, chunk_now(), (uint32_t *) sm + S::pl);
        if (threadIdx.x / 32 == GATES) make_gates<D>(j, s, w, chunk_now(), sm);
        if (place().row == 0 && place().lane == 0)
            sm[S::power + place().col / PATCH] = power_of_2(exponent_of(*bound_of()));
#pragma unroll 1
        for (int n = S::THREADS - 1 - ptx_thread(); n < chunk_now().n_new * D; n += S::THREADS) {
            const int32_t channel = (2 * j.a.state.n_k + w.head) * D + n % D, row = chunk_now().n_old + n / D;
            sm[S::x + row / 4 * quads<D>::PITCH + n % D * 4 + row % 4] = exponent_at(j, s, from + row, channel);
        }
        if (from == 0) clear_patch(st);
        if (from <= s.verified) save_state<D>(j, s, w.head, from, place(), st, *bound_of());
        ptx_cp_async_wait<0>();
        __syncthreads();
        /* The factors A and M of the chunk's rows, then T and P. */
        halves_of_factors<D>(chunk_now(), sm);
        __syncthreads();
        factors<D>(chunk_now(), sm);
        if (full) put_left(sm + S::decay, sm + S::left);
        __syncthreads();
        const chunk c = chunk_of(s, from);
        if (threadIdx.x < 32) {
            mix_of_rows<D>(j, s, w, c, sm);
            if (full) put_left_in_t(ptx_thread(), 32, sm + S::mix, [&](int row) { return sm[S::left + row]; });
        }
        if (!c.n_new) __syncthreads(); /* otherwise the loop below has the barriers */

        /* Products with S0, four rows at a time; then x of these rows. */
#pragma unroll 1
        for (int quad = c.n_old / 4; quad < quads_of(c); quad++) {
            float y[4];
            times_quad<D>(st, place(), (const uint32_t *) sm + S::pl, quad, j.a.state.exact, y);
            put_half<D>(place(), y, sm + S::part);
            __syncthreads();
            if (threadIdx.x < 2 * D) solve_quad<D>(j, s, w, c, quad, sm);
            __syncthreads();
        }
        /* Outputs; for a full chunk also u (`left`), and the fold of S0. */
        outputs<D>(s, c, full, sm);
        if (full) {
            values left;
            __syncthreads();
            for (int h = 0; h < 2; h++) load_x<D>(sm + S::part, h, place(), left[h]);
            float bound = *bound_of();
            int32_t exponent = exponent_of(bound);
            fold<D, D / 2, true>(left, sm[S::left + C], (const uint32_t *) sm + S::pl, place(), st, bound, exponent);
            __syncwarp(); /* all lanes have read the old bound */
            if (place().lane == 0) *bound_of() = bound;
            __syncwarp();
        }
        if (from + C == s.keep) keep_state<D>(j, s, w.head, place(), st, *bound_of());
        __syncthreads(); /* the chunk's rows may be overwritten */
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

/* y[0] = k . S0, y[1] = q . S0, for the warp's columns and the chunk's 16 rows. pl: planes of keys and queries. PARTS =
 * 2: two warps exchange their halves of the sums through `halves`, with a barrier. Of the queries each warp gets the 8
 * rows that it computes outputs for, in both halves of y[1]. */
template <int D, int PARTS, bool EXACT>
PI_FN void times_state(const patch_words<D / PARTS, EXACT> &st, const patch_place &p, const uint32_t *pl, float *halves,
                       values (&y)[2])
{
    values half[2 / PARTS][2];
    const uint32_t at = tokens_of_lane<D, EXACT>(pl, p);
    times_tokens<D>(st, at, PARTS == 2 ? queries_of_lane<D, EXACT>(at, p) : at + planes<D, EXACT>::KIND * 4, half);
    const values(&k)[2] = half[0], (&other)[2] = half[2 / PARTS - 1];
    if (PARTS == 1) {
#pragma unroll
        for (int i = 0; i < 16; i++)
            y[i / 8][i / 4 % 2][i % 4] = k[i / 8][i / 4 % 2][i % 4] + other[i / 8][i / 4 % 2][i % 4];
        return;
    }
    float4 *own = (float4 *) halves + threadIdx.x / 32 * 96 + p.lane;
    const float4 *from = (const float4 *) halves + (threadIdx.x / 32 ^ many_shape<D, PARTS, EXACT>::W / PATCH) * 96 +
                         p.lane;
    float got[3][4];
#pragma unroll
    for (int h = 0; h < 3; h++) { /* the 16 keys, and the 8 queries for which the other warp computes outputs */
        const float(&give)[4] = h < 2 ? k[0][h] : k[1][1];
        own[32 * h] = {give[0], give[1], give[2], give[3]};
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < 3; n++) four(from[32 * n], got[n]);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        y[0][0][i] = k[0][0][i] + got[0][i], y[0][1][i] = k[0][1][i] + got[1][i];
        y[1][0][i] = y[1][1][i] = k[1][0][i] + got[2][i];
    }
}

/* Returns the end of the plain chunks, a position: chunks that begin before it are plain, if they have only new rows. A
 * plain chunk is full, verified, followed by a full chunk, and has no snapshot or slot write before or after it. */
PI_FN int32_t plain_end(const sequence &s)
{
    int32_t end = min(s.end - 2 * C + 1, s.keep - C);
#pragma unroll 1
    for (int32_t i = 0; i < s.n_save; i++) end = min(end, s.save[2 * i] - C);
    return end;
}

/* State of a warp that walks the chunks in many(). */
template <int D, int PARTS, bool EXACT> struct walk {
    patch_place p;
    patch<D / PARTS> st;
    patch_words<D / PARTS, EXACT> words; /* st as operand A; valid from one plain chunk to the next */
    float bound;
    int32_t exponent; /* exponent_of(bound) */
    copies m;
    int32_t from;
    int stage;  /* byte offset of the chunk's stage from the first stage */
    float *out; /* address in `out` of the lane's columns in the chunk's row 2 t */
};

/* Processes the chunk at a.from, and advances a to the next one. PLAIN: the chunk is plain (plain_end()). Then each
 * __syncwarp() keeps later loads from being moved up, which would cost registers. sm: many_shape. */
template <int D, int PARTS, bool EXACT, bool PLAIN>
PI_FN void do_chunk(const job &j, const sequence &s, const work &w, walk<D, PARTS, EXACT> &a, float *sm)
{
    using S = many_shape<D, PARTS, EXACT>;
    const patch_place &p = a.p;
    const int32_t from = a.from;
    const chunk c = PLAIN ? chunk{from, 0, C} : chunk_of(s, from);
    const bool full = PLAIN || from + C <= s.verified || from + C < s.end, whole = PLAIN || c.n_new == C;
    const bool ready = PLAIN || prepared_for_fold(s, from, c.n_new);
    float *now = sm + (uint32_t) a.stage / 4, *scalars = now + S::scalars;
    const uint32_t next = (uint32_t) (S::STAGE * 4 - a.stage);
    const float power = power_of_2(a.exponent);
    /* A 32-bit opaque value: a row's address takes one instruction, without 64-bit multiples. */
    const int32_t ld = ptx_opaque((int32_t) j.a.ldo);
    values x, y[2];
    /* Wait for the chunk; start the copies of the next one. */
    ptx_cp_async_wait<0>();
    __syncthreads(); /* the chunk has arrived, and no thread reads the previous one any more */
    if (PLAIN || (from + 2 * C <= s.end && from + C >= s.pos)) stage_chunk<D, PARTS, EXACT>(j, a.m, from + C, next);
    else if (from + C < s.end) stage_part<D, PARTS, EXACT>(j, s, w, chunk_of(s, from + C), sm, next);
    ptx_cp_async_commit();
    /* Load beta v. If the chunk has old or missing rows, add T of old rows and the decay of S0 to the chunk's end. */
    if (whole) {
        load_values(ld, a.out, x);
    } else {
        load_part(j, s, w, p, c, a.out, x);
        stage_old_t<D, PARTS, EXACT>(j, s, w, c, now + S::mix);
        if (threadIdx.x == 0) scalars[(C - 1) * N_SCALARS + OF_S] = left_of<N_SCALARS>(scalars + LOG_DECAY, -1, C - 1);
    }
    if (!ready) { /* scale T for the fold; each thread handles the words that it wrote in stage_old_t() */
        if (full) {
            put_left_in_t(ptx_thread(), S::THREADS, now + S::mix,
                          [&](int row) { return left_of<N_SCALARS>(scalars + LOG_DECAY, row, C - 1); });
        }
        /* Barrier before T and S0's decay are read; with PARTS = 2 the one in times_state() suffices. */
        if (PARTS == 1) __syncthreads();
    }
    if (!PLAIN && from <= s.verified) save_state<D>(j, s, w.head, from, p, a.st, a.bound);
    /* k . S0 and q . S0. */
    if (!PLAIN) words_of_patch(a.st, a.words);
    times_state<D, PARTS, EXACT>(a.words, p, (const uint32_t *) now, sm + S::halves, y);
    if (PLAIN) __syncwarp();
    float of_k[2][2], of_s[2][2];
#pragma unroll
    for (int n = 0; n < 4; n++) {
        const float2 f = *(const float2 *) (scalars + chunk_row(p.lane, n / 2, n % 2) * N_SCALARS);
        of_k[n / 2][n % 2] = f.x, of_s[n / 2][n % 2] = f.y;
    }
    /* x = beta v - beta 2^G k . S0. */
#pragma unroll
    for (int i = 0; i < 8; i++) x[i / 4][i % 4] = fmaf(of_k[i / 4][i % 2] * power, y[0][i / 4][i % 4], x[i / 4][i % 4]);
    if (!PLAIN && from >= s.keep && p.row == 0) keep_x<D>(j, s, w, p, c, x);
    if (!PLAIN && from + C > s.verified) clean(x[0]), clean(x[1]);
    const mix_words words[2] = {mix_words_of(x[0]), mix_words_of(x[1])};
    /* Outputs; with PARTS = 2 each of the two warps has half of the chunk's rows. */
#pragma unroll
    for (int i = 0; i < 2 / PARTS; i++) {
        const int h = PARTS == 2 ? p.row > 0 : i;
        float o[4];
        for (int n = 0; n < 4; n++) o[n] = h ? y[1][1][n] : y[1][0][n];
        const float2 f = {h ? of_s[1][0] : of_s[0][0], h ? of_s[1][1] : of_s[0][1]};
        outputs_of(words, now + S::mix, f, power, h, p.lane, o);
        float *out = a.out + (int64_t) (ld * (8 * h)); /* 8 rows fit an int */
        if (whole) put_outputs(o, ld, out);
        else put_part(o, c, h, ld, out);
    }
    /* Fold: u decayed to the chunk's end, then S0. */
    if (full) {
        values left;
        solve(words, now + S::mix, p.lane, left);
        if (PLAIN) __syncwarp();
        fold<D, D / PARTS, EXACT>(left, scalars[(C - 1) * N_SCALARS + OF_S], (const uint32_t *) now, p, a.st, a.bound,
                                  a.exponent);
        if (PLAIN) words_of_patch(a.st, a.words);
    }
    if (!PLAIN && from + C == s.keep) keep_state<D>(j, s, w.head, p, a.st, a.bound);
    a.from += C;
    a.out += (int64_t) ld * C;
    a.stage = S::STAGE * 4 - a.stage;
}

/* Computes S::W columns of a value head of a sequence with more than `few` tokens: writes o before the gated norm to
 * a.out, and the state. Grid: x = head and columns; y = sequence. Shared: many_shape. */
template <int D, int PARTS, bool EXACT>
__global__ void __launch_bounds__(many_shape<D, PARTS, EXACT>::THREADS, D > 64 && PARTS == 1 ? 1 : 2) many(job j)
{
    ptx_wait_dependency();
    using S = many_shape<D, PARTS, EXACT>;
    PI_SMEM(raw);
    float *sm = (float *) raw;
    sequence &s = *(sequence *) (sm + S::who); /* shared memory, since registers hold S0 */
    if (threadIdx.x == 0 && !find_sequence(j, (int32_t) blockIdx.y, s)) s.end = s.pos = 0;
    __syncthreads();
    if (s.end - s.pos <= j.few) return;
    const int32_t head = (int32_t) blockIdx.x / (D / S::W), col = (int32_t) blockIdx.x % (D / S::W) * S::W;
    const work w = {head, head % j.a.state.n_k, col};
    walk<D, PARTS, EXACT> a;
    a.p = place_of<D, S::W>((int) threadIdx.x, col);
    a.from = s.pos ? *base_at(j, s.slot, head, col) : 0;
    a.bound = a.from ? *bound_at(j, s.slot, head, a.p.col) : 0.0f;
    a.exponent = exponent_of(a.bound);
    a.out = j.a.out + (s.first + a.from - s.pos + chunk_row(a.p.lane, 0, 0)) * j.a.ldo + out_head(j.a, head) * D +
            a.p.col + chunk_col(a.p.lane, 0);
    a.m = copies_of<D, PARTS, EXACT>(j, s, w, sm, (int) threadIdx.x);
    a.stage = 0;
    if (a.from) load_patch<D>(s_at(j, s.slot, j.at.s, head), a.p, a.st);
    else clear_patch(a.st);
    stage_part<D, PARTS, EXACT>(j, s, w, chunk_of(s, a.from), sm, 0);
    ptx_cp_async_commit();
    const int32_t plain = plain_end(s);

#pragma unroll 1
    while (a.from < s.end) {
        if (a.from >= s.pos && a.from < plain) {
            words_of_patch(a.st, a.words);
#pragma unroll 1
            do do_chunk<D, PARTS, EXACT, true>(j, s, w, a, sm);
            while (a.from < plain);
        }
        do_chunk<D, PARTS, EXACT, false>(j, s, w, a, sm);
    }
    if (a.from <= s.verified) save_state<D>(j, s, w.head, a.from, a.p, a.st, a.bound);
    if (ptx_thread() < S::W / SLICE) base_at(j, s.slot, w.head, w.col)[ptx_thread()] = s.keep;
#pragma unroll 1
    for (int32_t i = 0; i < S::W; i += S::THREADS / 4) keep_raw<D, S::THREADS / 4>(j, s, {w.head, w.k_head, w.col + i});
}

/* Part of save() and load(), which run outside of steps. Copies the raw inputs of the `history` positions before pos
 * from the slot to the snapshot; load: from the snapshot to the slot. Channels as in keep_raw(), for the slice w. slot,
 * snap: addresses. */
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

/* Returns the block's slice of 32 columns of a value head. Grid: x = slice; y = value head. */
PI_FN work slice_of(const job &j)
{
    int32_t head = (int32_t) blockIdx.y;
    return {head, head % j.a.state.n_k, (int32_t) blockIdx.x * SLICE};
}

template <int D> struct save_shape { /* offsets in words, as in few_shape */
    static constexpr int pl = 0, x = planes<D, true>::WORDS, mix = x + quads<SLICE>::WORDS,
                         decay = mix + mix_rows::WORDS;
    static constexpr int left = decay + C;
    static constexpr size_t bytes = sizeof(float) * (left + C + 4);
};

/* save() and load() for heads of D values. */
template <int D> PI_FN void save_slice(const job &j, int32_t slot_index, int32_t pos, int32_t snap_index, float *sm)
{
    using S = save_shape<D>;
    float *snap = snap_at(j.a.state, snap_index);
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
        stage_keys<D, true>(j, s, w, c, 4 * SLICE, (uint32_t *) sm + S::pl);
        stage_x<SLICE>(j, s, w, c, 4 * SLICE, sm + S::x);
        ptx_cp_async_commit();
        stage_t(j, s, w, c, 4 * SLICE, sm + S::mix);
        if (threadIdx.x < C) sm[S::decay + threadIdx.x] = *decay_at(j, s.slot, w.head, from + (int32_t) threadIdx.x);
        ptx_cp_async_wait<0>();
        __syncthreads();
        put_left(sm + S::decay, sm + S::left);
        __syncthreads();
        put_left_in_t((int) threadIdx.x, 4 * SLICE, sm + S::mix, [&](int row) { return sm[S::left + row]; });
        __syncthreads();
        values x, left;
        for (int h = 0; h < 2; h++) load_x<SLICE>(sm + S::x, h, p, x[h]);
        solve({mix_words_of(x[0]), mix_words_of(x[1])}, sm + S::mix, p.lane, left);
        int32_t exponent = exponent_of(bound);
        fold<D, D / 2, true>(left, sm[S::left + C], (const uint32_t *) sm + S::pl, p, st, bound, exponent);
    }
    store_patch<D>(s_at(j, snap, 0, w.head), p, st);
    if (p.row == 0 && p.lane == 0) *snap_bound(j, snap, w.head, p.col) = bound;
    move_raw<D>(j, w, s.slot, snap, pos, false);
}

template <int D> PI_FN void load_slice(const job &j, int32_t slot_index, int32_t pos, int32_t snap_index)
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

/* Saves the state at position `pos`, a multiple of C, as a snapshot: S0 of the slot with the full chunks from base up
 * to pos folded into it. The slot does not change. Grid: as for slice_of(). Block: 4 warps. Shared: save_shape of the
 * largest head. */
__global__ void __launch_bounds__(4 * SLICE, 3)
    save(PI_CONSTANT job j, int32_t slot_index, int32_t pos, int32_t snap_index)
{
    PI_SMEM(raw);
    switch (j.a.state.dim) {
    case 32: return save_slice<32>(j, slot_index, pos, snap_index, (float *) raw);
    case 64: return save_slice<64>(j, slot_index, pos, snap_index, (float *) raw);
    case 96: return save_slice<96>(j, slot_index, pos, snap_index, (float *) raw);
    default: return save_slice<128>(j, slot_index, pos, snap_index, (float *) raw);
    }
}

/* Loads a snapshot into a slot, with base = pos. Grid: as for slice_of(). Block: 4 warps. */
__global__ void __launch_bounds__(4 * SLICE)
    load(PI_CONSTANT job j, int32_t slot_index, int32_t pos, int32_t snap_index)
{
    switch (j.a.state.dim) {
    case 32: return load_slice<32>(j, slot_index, pos, snap_index);
    case 64: return load_slice<64>(j, slot_index, pos, snap_index);
    case 96: return load_slice<96>(j, slot_index, pos, snap_index);
    default: return load_slice<128>(j, slot_index, pos, snap_index);
    }
}

} /* namespace gdn */

#endif
