/* The gated delta rule, a chunk with a slice of S0 by tensor cores: what is the same to the bit for few tokens and many.
 *
 * A warp has a patch of S0, 16 columns times half of the rows (D / 2), in registers as the instruction's A: row m is a
 * column of S0, and the sum runs over S0's rows. B are four tokens, their keys and their queries: a column's bits depend
 * on no other column. Every sum over D is
 *
 *     of half h:  small_h = lo . hi + hi . lo, 16 at a time;  big_h = hi . hi;     (big_0 + small_0) + (big_1 + small_1)
 *
 * so that few sums are cut at full size, as tensor cores cut and do not round. A fold's sums over the chunk's 16 rows are
 * made apart, too, and added to S0 with the rounding of floats: else S0 would shrink with every chunk.
 *
 * In shared memory: keys and queries as planes, [k, q][hi, lo][C] rows of F16; what is a value a row and column of the
 * chunk (k . S0, u) in quads, [C / 4][W columns][4 rows], a quad every 4 W + 4 words. No access has bank conflicts. */
#ifndef PI_GDN_CHUNK_CUH
#define PI_GDN_CHUNK_CUH

#include "gdn.cuh"

template <int D> struct planes { /* in words */
    static constexpr int PITCH = D / 2 + 4, PLANE = C * PITCH, KIND = 2 * PLANE + 16, WORDS = 2 * KIND;
};
template <int W> struct quads {
    static constexpr int PITCH = 4 * W + 4, WORDS = C / 4 * PITCH;
};
/* Sums of the halves for N quads of tokens: [k, q][halves][N] quads. */
template <int W, int N> struct halves {
    static constexpr int KIND = 2 * N * quads<W>::PITCH + 4, WORDS = 2 * KIND;
};

/* A warp's patch: columns col .. col + 15 of S0, rows row .. row + D / 2 - 1. */
struct patch_place {
    int32_t col, row, lane;
};
template <int D> struct patch {
    float x[D / 32][8]; /* words of A, two values each, of every 16 rows */
};

/* Where the lane's first pair of values is; those of row i of two, word pair `high` (rows + 8) and k are patch_step() on.
 * The pair's columns are neighbours in memory. */
template <int D> PI_FN size_t patch_at(const patch_place &p)
{
    return (size_t) ((p.row + p.lane % 4 * 2) * D + p.col + p.lane / 4 * 2);
}
template <int D> PI_FN constexpr int patch_step(int k, int high, int i) { return (16 * k + 8 * high + i) * D; }
template <int D> PI_FN void load_patch(const float *s, const patch_place &p, patch<D> &st)
{
    s += patch_at<D>(p);
#pragma unroll
    for (int k = 0; k < D / 32; k++) {
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const float2 v = *(const float2 *) (s + patch_step<D>(k, w / 2, w % 2));
            st.x[k][w / 2 * 4 + w % 2] = v.x, st.x[k][w / 2 * 4 + 2 + w % 2] = v.y;
        }
    }
}
template <int D> PI_FN void store_patch(float *s, const patch_place &p, const patch<D> &st)
{
    s += patch_at<D>(p);
#pragma unroll
    for (int k = 0; k < D / 32; k++) {
#pragma unroll
        for (int w = 0; w < 4; w++) {
            const float2 v = {st.x[k][w / 2 * 4 + w % 2], st.x[k][w / 2 * 4 + 2 + w % 2]};
            *(float2 *) (s + patch_step<D>(k, w / 2, w % 2)) = v;
        }
    }
}
template <int D> PI_FN void clear_patch(patch<D> &st)
{
#pragma unroll
    for (int i = 0; i < D / 4; i++) st.x[i / 8][i % 8] = 0;
}
/* The largest value by size, of the warp. */
template <int D> PI_FN float top_of(const patch<D> &st)
{
    float top = 0;
#pragma unroll
    for (int i = 0; i < D / 4; i++) top = fmaxf(top, fabsf(st.x[i / 8][i % 8]));
    return warp_max(top);
}

/* ------------------------------------------------------------------------------------------------------------ products */

/* The lane's address for loading tokens 4 quad .. as B, keys then queries, values `row` .. row + 15 of each. */
template <int D> PI_FN uint32_t tokens_at(const uint32_t *pl, int quad, int row, int lane)
{
    using P = planes<D>;
    const int m = lane / 8;
    return ptx_shared(pl + lane % 8 / 4 * P::KIND + m / 2 * P::PLANE + (4 * quad + lane % 4) * P::PITCH + m % 2 * 4 + row / 2);
}

/* The patch times N quads of tokens from `first` on. */
template <int D, int N>
PI_FN void times_patch(const patch<D> &st, const patch_place &p, const uint32_t *pl, int first, float (&y)[N][4])
{
    float small[N][4] = {};
    const uint32_t at = tokens_at<D>(pl, first, p.row, p.lane);
#pragma unroll
    for (int n = 0; n < N; n++) y[n][0] = y[n][1] = y[n][2] = y[n][3] = 0;
#pragma unroll
    for (int k = 0; k < D / 32; k++) {
        uint32_t hi[4], lo[4], b[N][4];
#pragma unroll
        for (int i = 0; i < 4; i++) hi[i] = ptx_half2(st.x[k][2 * i], st.x[k][2 * i + 1]);
#pragma unroll
        for (int n = 0; n < N; n++) {
            ptx_ldmatrix_x4(b[n], at + (uint32_t) (4 * n * planes<D>::PITCH + 8 * k) * 4);
            ptx_mma_f16(y[n], hi, {b[n][0], b[n][1]});
            ptx_mma_f16(small[n], hi, {b[n][2], b[n][3]});
        }
#pragma unroll
        for (int i = 0; i < 4; i++) lo[i] = rest(st.x[k][2 * i], st.x[k][2 * i + 1], hi[i]);
#pragma unroll
        for (int n = 0; n < N; n++) ptx_mma_f16(small[n], lo, {b[n][0], b[n][1]});
    }
#pragma unroll
    for (int i = 0; i < 4 * N; i++) y[i / 4][i % 4] += small[i / 4][i % 4];
}

/* The same for shared memory: results of half p.row > 0 of N quads. */
template <int D, int W, int N> PI_FN void put_half(const patch_place &p, const float (&y)[N][4], float *to)
{
    const int t = p.lane % 4, half = p.row > 0;
    to += t / 2 * halves<W, N>::KIND + half * N * quads<W>::PITCH + (p.col % W + p.lane / 4 * 2) * 4 + t % 2 * 2;
#pragma unroll
    for (int n = 0; n < N; n++) {
        *(float2 *) (to + n * quads<W>::PITCH) = {y[n][0], y[n][1]};
        *(float2 *) (to + n * quads<W>::PITCH + 4) = {y[n][2], y[n][3]};
    }
}
/* Four tokens' keys (or queries) times a column of S0. */
template <int W, int N> PI_FN float4 both_halves(const float *from, bool query, int quad, int col)
{
    const float4 a = *(const float4 *) (from + query * halves<W, N>::KIND + quad * quads<W>::PITCH + 4 * col);
    const float4 b = *(const float4 *) (from + query * halves<W, N>::KIND + (N + quad) * quads<W>::PITCH + 4 * col);
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

/* A half of: keys of the chunk times four tokens' keys and queries, by a warp. y[i] is that of key g + i / 2 * 8 and column
 * 2 t + i % 2, keys before queries; times 2^12. */
template <int D> PI_FN void times_keys(const uint32_t *pl, int quad, int half, int lane, float (&y)[4])
{
    using P = planes<D>;
    const int m = lane / 8;
    const uint32_t keys = ptx_shared(pl + (m % 2 * 8 + lane % 8) * P::PITCH + m / 2 * 4 + half * (D / 4));
    const uint32_t at = tokens_at<D>(pl, quad, half * (D / 2), lane);
    float small[4] = {}, big[4] = {};
#pragma unroll
    for (int k = 0; k < D / 32; k++) {
        uint32_t a[4], b[4];
        ptx_ldmatrix_x4(b, at + (uint32_t) (32 * k));
        ptx_ldmatrix_x4(a, keys + (uint32_t) (32 * k));
        ptx_mma_f16(big, a, {b[0], b[1]});
        ptx_mma_f16(small, a, {b[2], b[3]});
        ptx_ldmatrix_x4(a, keys + (uint32_t) (32 * k) + P::PLANE * 4);
        ptx_mma_f16(small, a, {b[0], b[1]});
    }
    for (int i = 0; i < 4; i++) y[i] = big[i] + small[i];
}
/* Of y[n], of such a half: the token of four, 4 more for its query, and the key. */
PI_FN int column_of(int lane, int n) { return lane % 4 * 2 + n % 2; }
PI_FN int key_of(int lane, int n) { return lane / 4 + n / 2 * 8; }

/* Factors of a row and an earlier one (or itself), of which so much is left, from times_keys(). */
PI_FN float factor_k(float beta, float left, float kk) { return -beta * (left * (kk * (KEY_UNIT * KEY_UNIT))); }
PI_FN float factor_q(float left, float qk) { return left * (qk * (KEY_UNIT * KEY_UNIT)); }

/* ---------------------------------------------------------------------------------------------------------------- fold */

/* 2^n, n from -126 to 127 */
PI_FN float power_of_2(int32_t n) { return __uint_as_float((uint32_t) (127 + n) << 23); }

/* S0 <- keep S0 + sum of k_l (outer) unit e^(G_15 - G_l) u_l, which has the new exponent. */
struct fold_plan {
    float keep, unit;
    int32_t exponent;
    float power; /* 2^exponent */
};

/* The larger of most and what is left of four values of u. */
PI_FN float most_of(float most, const float4 &left, const float4 &u)
{
    most = fmaxf(fmaxf(most, fabsf(left.x * u.x)), fabsf(left.y * u.y));
    return fmaxf(fmaxf(most, fabsf(left.z * u.z)), fabsf(left.w * u.w));
}

/* By a warp: `most` is the largest |u| of the lane's column, as much of it as is left at the chunk's end, tops are the largest
 * values of the slice's four patches, all is e^G_15. What is added comes to at most 2^11, so that the sum is an F16. */
PI_FN fold_plan plan_fold(float most, const float *tops, float all, int32_t exponent)
{
    float top = fmaxf(fmaxf(tops[0], tops[1]), fmaxf(tops[2], tops[3]));
    top = fmaxf(all * top, warp_max(most) * power_of_2(-exponent));
    const int32_t x = (int32_t) (__float_as_uint(top) >> 23 & 255); /* 0: nothing there; 255: infinite */
    int32_t to = x == 0 || x == 255 ? exponent : exponent + max(x - 137, -126);
    to = min(max(to, (int32_t) -MOST_SHIFT), (int32_t) MOST_SHIFT);
    return {all * power_of_2(min(exponent - to, 126)), power_of_2(-to) * KEY_UNIT, to, power_of_2(to)};
}

/* left: e^(G_15 - G_l); u: quads. */
template <int D, int W>
PI_FN void fold(const fold_plan &f, const uint32_t *pl, const float *u, const float *left, const patch_place &p, patch<D> &st)
{
    using P = planes<D>;
    const int lane = p.lane, g = lane / 4, t = lane % 4, m = lane / 8;
    uint32_t hi[4], lo[4];
#pragma unroll
    for (int high = 0; high < 2; high++) { /* rows 2 t, 2 t + 1 of the chunk, and 8 further */
        const float2 e = *(const float2 *) (left + 2 * t + 8 * high);
        const float *at = u + (t / 2 + 2 * high) * quads<W>::PITCH + (p.col % W + 2 * g) * 4 + t % 2 * 2;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float2 v = *(const float2 *) (at + 4 * i);
            split(v.x * (e.x * f.unit), v.y * (e.y * f.unit), hi[2 * high + i], lo[2 * high + i]);
        }
    }
    const uint32_t keys = ptx_shared(pl + m / 2 * P::PLANE + (m % 2 * 8 + lane % 8) * P::PITCH + p.row / 2);
#pragma unroll
    for (int n = 0; n < D / 16; n++) { /* 8 rows of S0 */
        uint32_t b[4];
        float small[4] = {};
        ptx_ldmatrix_x4_trans(b, keys + 16 * n);
        ptx_mma_f16(small, lo, {b[0], b[1]});
        ptx_mma_f16(small, hi, {b[2], b[3]});
        ptx_mma_f16(small, hi, {b[0], b[1]});
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float &x = st.x[n / 2][n % 2 * 4 + i];
            x = fmaf(f.keep, x, small[i]);
        }
    }
}

#endif
