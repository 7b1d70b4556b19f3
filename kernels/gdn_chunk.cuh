/* The gated delta rule: a chunk of 16 rows times columns of S0 on tensor cores; gdn.cuh has the formulas. few() and
 * many() share this code, so their results are bitwise identical. Steps of a chunk: times_quad() or times_tokens() =
 * products with S0; mix() = T x and P x; fold() = the new S0.
 *
 * A warp holds a patch of S0, 16 columns times all rows or half of them, in registers as operand A: row m of A is a
 * column of S0, and the sum runs over S0's rows. Operand B holds tokens, keys and queries; a column's bits do not
 * depend on other columns. A sum over half of S0's rows adds, for each 16 rows in order, lo . hi, hi . lo and hi . hi.
 * Without EXACT there is hi . hi only (in folds lo . hi, too, since u has both parts). Products with zeros change no
 * bit. The sums of the two halves are added.
 *
 * A fold's sums over the chunk's 16 rows start at 0 and are added to S0 in float arithmetic. Tensor cores truncate
 * instead of rounding, and S0 would shrink with every chunk.
 *
 * In the accumulators a lane (t = lane % 4, g = lane / 4) has tokens 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of two columns.
 * As operand A of the next products these values belong to the same lane, so x, u and o stay in registers.
 *
 * Shared memory: keys and queries as planes, [k, q][hi, lo][C] rows of F16, or without lo; rows of T and P in two parts
 * each (mix_at). few() also has values per row and column of the chunk (k . S0, x) in quads of 4 rows: [C / 4][W
 * columns][4 rows], 4 W + 4 words per quad. No access has bank conflicts. */
#ifndef PI_GDN_CHUNK_CUH
#define PI_GDN_CHUNK_CUH

#include "gdn.cuh"

namespace gdn {

/* layout of keys and queries in shared memory, in words: a row; a plane (C rows of hi or lo); keys or queries; all */
template <int D, bool EXACT> struct planes {
    static constexpr int PITCH = D / 2 + 4, PLANE = C * PITCH, KIND = (EXACT ? 2 : 1) * PLANE + 16, WORDS = 2 * KIND;
};
/* Layout of [C / 4 quads][W columns][4 rows] floats in shared memory: words of a quad with padding; of all. */
template <int W> struct quads {
    static constexpr int PITCH = 4 * W + 4, WORDS = C / 4 * PITCH;
};
/* Layout of the products of a quad of tokens with S0, one sum per half of S0's rows: [k, q][halves] quads. */
template <int W> struct halves {
    static constexpr int KIND = 2 * quads<W>::PITCH + 4, WORDS = 2 * KIND;
};
/* Layout of T and P in shared memory: per row of the chunk, MIX words of T, then MIX words of P. at(): word of a row.
 * In odd rows columns 8 .. 15 come before columns 0 .. 7, against bank conflicts. */
struct mix_rows {
    static constexpr int PITCH = 2 * MIX, WORDS = C * PITCH;
    static __device__ __forceinline__ int at(int row, bool p, int word)
    {
        return row * PITCH + p * MIX + (word ^ row % 2 * 16);
    }
};

/* Starts the copies of the old rows' keys from the slot to the planes pl. Zeros are written to missing rows of keys,
 * and to old and missing rows of queries. New rows are not written. threads: number of calling threads. */
template <int D, bool EXACT>
PI_FN void stage_keys(const job &j, const sequence &s, const work &w, const chunk &c, int threads, uint32_t *pl)
{
    using P = planes<D, EXACT>;
    constexpr int WORDS = key_words(D, EXACT);
#pragma unroll 1
    for (int i = ptx_thread(); i < C * WORDS; i += threads) {
        const int row = i / WORDS, word = i % WORDS, to = word / (D / 2) * P::PLANE + row * P::PITCH + word % (D / 2);
        const bool old = row < c.n_old, made = !old && row < c.n_old + c.n_new;
        if (made) continue;
        ptx_cp_async4(ptx_shared(pl + to), k_at(j, s.slot, w.k_head, old ? c.from + row : 0) + word, old ? 4 : 0);
        pl[P::KIND + to] = 0;
    }
}

/* Position of a warp's patch of S0: columns col .. col + 15, rows from `row` on. lane: the lane's index. */
struct patch_place {
    int32_t col, row, lane;
};
/* A lane's values of a patch of ROWS rows, in floats. */
template <int ROWS> struct patch {
    float x[ROWS / 16][8]; /* per 16 rows: 4 words of operand A, two values each */
};

/* patch_at: offset in S0 of the lane's first two values, which are adjacent columns. patch_step: distance from there to
 * the lane's values in rows 16 k + 8 high + i. */
template <int D> PI_FN size_t patch_at(const patch_place &p)
{
    const uint32_t lane = (uint32_t) p.lane;
    return (size_t) (uint32_t) p.row * D + lane % 4 * 2 * D + (uint32_t) p.col + lane / 4 * 2;
}
template <int D> PI_FN constexpr int patch_step(int k, int high, int i) { return (16 * k + 8 * high + i) * D; }
/* load_patch, store_patch: copy a patch from, or to, S0 [D][D] at s. */
template <int D, int ROWS> PI_FN void load_patch(const float *s, const patch_place &p, patch<ROWS> &st)
{
    s += patch_at<D>(p);
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++) {
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const float2 v = *(const float2 *) (s + patch_step<D>(k, w / 2, w % 2));
            st.x[k][w / 2 * 4 + w % 2] = v.x, st.x[k][w / 2 * 4 + 2 + w % 2] = v.y;
        }
    }
}
template <int D, int ROWS> PI_FN void store_patch(float *s, const patch_place &p, const patch<ROWS> &st)
{
    s += patch_at<D>(p);
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++) {
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const float2 v = {st.x[k][w / 2 * 4 + w % 2], st.x[k][w / 2 * 4 + 2 + w % 2]};
            *(float2 *) (s + patch_step<D>(k, w / 2, w % 2)) = v;
        }
    }
}
template <int ROWS> PI_FN void clear_patch(patch<ROWS> &st)
{
#pragma unroll
    for (int i = 0; i < ROWS / 2; i++) st.x[i / 8][i % 8] = 0;
}

/* A lane's values for the warp's 16 columns and the chunk's 16 rows: [h][i] belongs to row chunk_row(lane, h, i) of the
 * chunk and column chunk_col(lane, i) of the patch. */
using values = float[2][4];
PI_FN int chunk_row(int lane, int h, int i) { return 8 * h + (int) ((unsigned) lane % 4) * 2 + i % 2; }
PI_FN int chunk_col(int lane, int i) { return (int) ((unsigned) lane / 4) * 2 + i / 2; }

/* ------------------------------------------------------------------------------------------------------- products */

/* Converts 16 rows of a patch to operand A: words hi, and lo if EXACT. */
template <bool EXACT> PI_FN void words_of(const float (&x)[8], uint32_t (&hi)[4], uint32_t (&lo)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) split<EXACT>(x[2 * i], x[2 * i + 1], hi[i], lo[i]);
}
/* y += A B in split F16, small products first; lo . lo is left out. */
PI_FN void add_product(const uint32_t (&a_hi)[4], const uint32_t (&a_lo)[4], const uint32_t (&hi)[2],
                       const uint32_t (&lo)[2], float (&y)[4])
{
    ptx_mma_f16(y, a_lo, hi);
    ptx_mma_f16(y, a_hi, lo);
    ptx_mma_f16(y, a_hi, hi);
}

/* Returns the lane's shared address for ldmatrix of tokens 4 quad .. 4 quad + 3 as operand B: 4 keys, then 4 queries,
 * values row .. row + 15 of each; first hi, then lo (without EXACT hi again). */
template <int D, bool EXACT> PI_FN uint32_t tokens_at(const uint32_t *pl, int quad, int row, int lane)
{
    using P = planes<D, EXACT>;
    const int m = lane / 8;
    return ptx_shared(pl + lane % 8 / 4 * P::KIND + m / 2 * (EXACT ? P::PLANE : 0) + (4 * quad + lane % 4) * P::PITCH +
                      m % 2 * 4 + row / 2);
}
/* y = products of the warp's patch (half of S0's rows) with the tokens of a quad: 4 keys, then 4 queries. exact ==
 * false: lo of S0 is taken as 0. */
template <int D>
PI_FN void times_quad(patch<D / 2> &st, const patch_place &p, const uint32_t *pl, int quad, bool exact, float (&y)[4])
{
    const uint32_t at = tokens_at<D, true>(pl, quad, p.row, p.lane);
    y[0] = y[1] = y[2] = y[3] = 0;
#pragma unroll
    for (int k = 0; k < D / 32; k++) {
        uint32_t hi[4], lo[4], b[4];
        /* Convert the patch to words again in each call: registers do not suffice to keep them. */
#pragma unroll
        for (int i = 0; i < 8; i++) ptx_opaque(st.x[k][i]);
        for (int i = 0; i < 4; i++) { /* as words_of(), with fewer registers */
            hi[i] = ptx_half2(st.x[k][2 * i], st.x[k][2 * i + 1]);
            const uint32_t rest = ptx_rest(st.x[k][2 * i], st.x[k][2 * i + 1], hi[i]);
            lo[i] = exact ? rest : 0;
        }
        ptx_ldmatrix_x4(b, at + (uint32_t) (32 * k));
        add_product(hi, lo, {b[0], b[1]}, {b[2], b[3]}, y);
    }
}

/* A patch as words of operand A. words_of_patch() fills it. */
template <int ROWS, bool EXACT> struct patch_words {
    uint32_t hi[ROWS / 16][4], lo[EXACT ? ROWS / 16 : 1][4];
};
template <int ROWS, bool EXACT> PI_FN void words_of_patch(const patch<ROWS> &st, patch_words<ROWS, EXACT> &w)
{
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++) words_of<EXACT>(st.x[k], w.hi[k], w.lo[EXACT ? k : 0]);
}

/* y[half][k, q] = products of the patch with the chunk's 16 keys and 16 queries, separately for each half of S0's rows
 * that the patch has (1 or 2). keys, queries: the lane's shared addresses for ldmatrix, for S0's first row of the
 * patch. Four sums are interleaved, since each product waits for the previous one of its sum. */
template <int D, int ROWS, bool EXACT>
PI_FN void times_tokens(const patch_words<ROWS, EXACT> &w, uint32_t keys, uint32_t queries,
                        values (&y)[2 * ROWS / D][2])
{
    using P = planes<D, EXACT>;
#pragma unroll
    for (int i = 0; i < 32 * ROWS / D; i++) y[i / 16][i / 8 % 2][i / 4 % 2][i % 4] = 0;
#pragma unroll
    for (int k = 0; k < ROWS / 16; k++) {
        uint32_t hi[2][4], lo[2][4];
#pragma unroll
        for (int q = 0; q < 2; q++) {
            ptx_ldmatrix_x4(hi[q], (q ? queries : keys) + (uint32_t) (32 * k));
            if (EXACT) ptx_ldmatrix_x4(lo[q], (q ? queries : keys) + (uint32_t) (P::PLANE * 4 + 32 * k));
        }
#pragma unroll
        for (int i = EXACT ? 0 : 8; i < 12; i++) { /* order of add_product() */
            const int term = i / 4, q = i / 2 % 2, h = i % 2;
            const auto &b = EXACT && term == 1 ? lo[q] : hi[q];
            ptx_mma_f16(y[k / (D / 32)][q][h], EXACT && term == 0 ? w.lo[EXACT ? k : 0] : w.hi[k],
                        {b[2 * h], b[2 * h + 1]});
        }
    }
}
/* Returns the lane's shared address of the chunk's keys for times_tokens(). */
template <int D, bool EXACT> PI_FN uint32_t tokens_of_lane(const uint32_t *pl, const patch_place &p)
{
    const int m = p.lane / 8;
    return ptx_shared(pl + (m / 2 * 8 + p.lane % 8) * planes<D, EXACT>::PITCH + m % 2 * 4 + p.row / 2);
}
/* For two warps that share columns: returns the lane's address of the queries for times_tokens(), from that of the
 * keys. Each warp gets first the 8 rows that it computes outputs for: the first warp rows 0 .. 7, the second (p.row >
 * 0) rows 8 .. 15. So for the second warp the two halves of the chunk are swapped, by an offset of 8 rows up or
 * down. */
template <int D, bool EXACT> PI_FN uint32_t queries_of_lane(uint32_t keys, const patch_place &p)
{
    using P = planes<D, EXACT>;
    const int further = p.lane < 16 ? 8 * P::PITCH * 4 : -8 * P::PITCH * 4;
    return keys + P::KIND * 4 + (uint32_t) (p.row > 0 ? further : 0);
}
/* Writes y of times_quad() to shared memory at `to` (struct halves): the sums over one half of S0's rows (p.row > 0:
 * the second half) for a quad. */
template <int W> PI_FN void put_half(const patch_place &p, const float (&y)[4], float *to)
{
    const int t = p.lane % 4, half = p.row > 0;
    to += t / 2 * halves<W>::KIND + half * quads<W>::PITCH + (p.col % W + p.lane / 4 * 2) * 4 + t % 2 * 2;
    *(float2 *) to = {y[0], y[1]};
    *(float2 *) (to + 4) = {y[2], y[3]};
}
/* Returns the complete products of a quad's four keys (or queries) with column col of S0: the sum over both halves. */
template <int W> PI_FN float4 both_halves(const float *from, bool query, int col)
{
    const float4 a = *(const float4 *) (from + query * halves<W>::KIND + 4 * col);
    const float4 b = *(const float4 *) (from + query * halves<W>::KIND + quads<W>::PITCH + 4 * col);
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

/* y = dot products of the chunk's 16 keys with the four keys and four queries of a quad, over half of D, by a warp, for
 * the stored (scaled) keys and queries. y[n] belongs to key key_of(lane, n) and column column_of(lane, n). */
template <int D, bool EXACT> PI_FN void times_keys(const uint32_t *pl, int quad, int half, int lane, float (&y)[4])
{
    using P = planes<D, EXACT>;
    const int m = lane / 8;
    const uint32_t keys = ptx_shared(pl + (m % 2 * 8 + lane % 8) * P::PITCH + m / 2 * 4 + half * (D / 4));
    const uint32_t at = tokens_at<D, EXACT>(pl, quad, half * (D / 2), lane);
    float small[4] = {}, big[4] = {};
#pragma unroll
    for (int k = 0; k < D / 32; k++) {
        uint32_t a[4], b[4];
        ptx_ldmatrix_x4(b, at + (uint32_t) (32 * k));
        ptx_ldmatrix_x4(a, keys + (uint32_t) (32 * k));
        ptx_mma_f16(big, a, {b[0], b[1]});
        if (!EXACT) continue;
        ptx_mma_f16(small, a, {b[2], b[3]});
        ptx_ldmatrix_x4(a, keys + (uint32_t) (32 * k) + P::PLANE * 4);
        ptx_mma_f16(small, a, {b[0], b[1]});
    }
    for (int i = 0; i < 4; i++) y[i] = EXACT ? big[i] + small[i] : big[i];
}
/* Position of y[n] of times_keys(). column_of: 0 .. 3 = keys, 4 .. 7 = queries of the quad's tokens. key_of: row of the
 * chunk. */
PI_FN int column_of(int lane, int n) { return lane % 4 * 2 + n % 2; }
PI_FN int key_of(int lane, int n) { return lane / 4 + n / 2 * 8; }

/* Factors of an earlier row's u. factor_k: in -u of a later row, -A. factor_q: in the output of a later row or its own,
 * M. left: decay factor between the rows; kk, qk: from times_keys(); beta: of the later row. */
PI_FN float factor_k(float beta, float left, float kk) { return -beta * (left * (kk * (KEY_UNIT * KEY_UNIT))); }
PI_FN float factor_q(float left, float qk) { return left * (qk * (KEY_UNIT * QUERY_UNIT)); }

/* 8 rows of a chunk's values as TF32 words of operand A. all: the values; rest: their remainders after TF32's bits. */
struct mix_words {
    uint32_t all[4], rest[4];
};
PI_FN mix_words mix_words_of(const float (&x)[4])
{
    mix_words w;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float v = x[i % 2 * 2 + i / 2];
        w.all[i] = __float_as_uint(v), w.rest[i] = __float_as_uint(rest_of_tf32(v));
    }
    return w;
}
/* y += rows 8 n .. 8 n + 7 of T (p: of P), columns 8 h .. 8 h + 7, times rows 8 h .. of x, h <= n. rows: T and P in
 * shared memory (mix_rows). y has the layout of half of `values`. */
PI_FN void mix(const mix_words &x, const float *rows, bool p, int n, int h, int lane, float (&y)[4])
{
    const float4 b = *(const float4 *) (rows + mix_rows::at(8 * n + lane / 4, p, 16 * h + lane % 4 * 4));
    ptx_mma_tf32(y, x.rest, {__float_as_uint(b.x), __float_as_uint(b.y)});
    ptx_mma_tf32(y, x.all, {__float_as_uint(b.z), __float_as_uint(b.w)});
    ptx_mma_tf32(y, x.all, {__float_as_uint(b.x), __float_as_uint(b.y)});
}
/* w = T x = u, decayed to the chunk's end: T's rows must have been scaled by put_left_in_t() or prepare(). x: words of
 * both halves of the chunk. */
PI_FN void solve(const mix_words (&x)[2], const float *rows, int lane, values &w)
{
#pragma unroll
    for (int i = 0; i < 8; i++) w[i / 4][i % 4] = 0;
#pragma unroll
    for (int i = 0; i < 3; i++) mix(x[i / 2], rows, false, (i + 1) / 2, i / 2, lane, w[(i + 1) / 2]);
}
/* Multiplies row i of T in shared memory by left(i) = 2^(G_15 - G_i). Called by `threads` threads with indices
 * `first`. */
template <class LEFT> PI_FN void put_left_in_t(int first, int threads, float *rows, const LEFT &left)
{
#pragma unroll 1
    for (int n = first; n < C * C; n += threads) {
        if (!in_mix(n / C, n % C)) continue;
        float *to = rows + mix_rows::at(n / C, false, mix_at(n % C, false));
        const float t = *to * left(n / C);
        to[0] = t, to[2] = rest_of_tf32(t);
    }
}

/* ----------------------------------------------------------------------------------------------------------- fold */

/* Returns 2^n, n from -126 to 127. */
PI_FN float power_of_2(int32_t n) { return __uint_as_float((uint32_t) (127 + n) << 23); }

/* Returns the exponent e for columns of S0 with magnitudes up to bound >= 0: values divided by 2^e are below 2^15. */
PI_FN int32_t exponent_of(float bound)
{
    return min(max((int32_t) (__float_as_uint(bound) >> 23) - 141, (int32_t) -MAX_SHIFT), (int32_t) MAX_SHIFT);
}

/* Returns an upper limit of the sum of |u| of any column of the patch, at most four times too large. w: u decayed to
 * the chunk's end. A column's rows are in four lanes, hence the factor 4. Non-negative floats compare like their
 * bits. */
PI_FN float most_of(const values &w)
{
    const float most = fmaxf(fabsf(w[0][0]) + fabsf(w[0][1]) + (fabsf(w[1][0]) + fabsf(w[1][1])),
                             fabsf(w[0][2]) + fabsf(w[0][3]) + (fabsf(w[1][2]) + fabsf(w[1][3])));
    return 4 * __uint_as_float(__reduce_max_sync(PI_FULL, __float_as_uint(most)));
}

/* Folds a full chunk into the warp's patch: S0 <- of_s S0 + sum of k_l (outer) w_l. w: u decayed to the chunk's end;
 * of_s: 2^G_15; pl: planes of the keys. st holds S0 divided by 2^exponent. Updates bound, and exponent to
 * exponent_of(bound). */
template <int D, int ROWS, bool EXACT>
PI_FN void fold(const values &w, float of_s, const uint32_t *pl, const patch_place &p, patch<ROWS> &st, float &bound,
                int32_t &exponent)
{
    using P = planes<D, EXACT>;
    const int lane = p.lane, m = lane / 8;
    const int32_t was = exponent;
    bound = fmaf(of_s, bound, most_of(w));
    exponent = exponent_of(bound);
    const float keep = of_s * power_of_2(min(max(was - exponent, -126), 126)),
                unit = power_of_2(KEY_EXPONENT - exponent);
    uint32_t hi[4], lo[4];
#pragma unroll
    for (int i = 0; i < 4; i++) ptx_split(w[i / 2][i % 2 * 2] * unit, w[i / 2][i % 2 * 2 + 1] * unit, hi[i], lo[i]);
    const uint32_t keys = ptx_shared(pl + m / 2 * (EXACT ? P::PLANE : 4) + (m % 2 * 8 + lane % 8) * P::PITCH +
                                     p.row / 2);
#pragma unroll
    for (int n = 0; n < ROWS / 16; n++) { /* 16 rows of S0, as two products of 8 rows; the order of add_product() */
        uint32_t b[2][4];
        float sum[2][4] = {};
        ptx_ldmatrix_x4_trans(b[0], keys + (uint32_t) (32 * n));
        if (EXACT) ptx_ldmatrix_x4_trans(b[1], keys + (uint32_t) (32 * n + 16));
        else b[1][0] = b[0][2], b[1][1] = b[0][3];
        for (int i = 0; i < 2; i++) ptx_mma_f16(sum[i], lo, {b[i][0], b[i][1]});
        for (int i = 0; EXACT && i < 2; i++) ptx_mma_f16(sum[i], hi, {b[i][2], b[i][3]});
        for (int i = 0; i < 2; i++) ptx_mma_f16(sum[i], hi, {b[i][0], b[i][1]});
#pragma unroll
        for (int i = 0; i < 8; i++) st.x[n][i] = fmaf(keep, st.x[n][i], sum[i / 4][i % 4]);
    }
}

} /* namespace gdn */

#endif
