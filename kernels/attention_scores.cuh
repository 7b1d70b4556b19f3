/* Queries in registers, and scores S = Q K^T for a tile of keys in shared memory. Used by attention_kernels.cuh, which
 * describes the order of a score's sum, and by key_blocks_kernels.cuh. Entry points: load_q(), scores(), capped(). */
#ifndef PI_ATTENTION_SCORES_CUH
#define PI_ATTENTION_SCORES_CUH

#include "attention_keys.cuh"

namespace attention {

/* Q as mma operand A, for the warp's 16 rows and columns: four words per 16 columns. q[0] is the f16 of Q (hi); q[1],
 * if Q_TERMS is 2, the f16 of the remainders (lo). */
template <class S> struct queries {
    uint32_t q[S::Q_TERMS][S::STEPS][4];
};

/* Loads Q of the block's rows from a.q and converts it to f16. Missing rows and columns are zeros. r: row g or g + 8 of
 * the group; i: 8 columns. */
template <class S> PI_FN void load_q(const pi__k_attn &a, const work &w, queries<S> &t)
{
    const int lane = (int) threadIdx.x % 32;
    const int row0 = S::group() * 16 + lane / 4, col0 = S::q_column() + lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const bool there = row_there(w, row0 + 8 * r);
        const float *q = a.q + col0;
        if (there) q += row_token(w, row0 + 8 * r) * a.ldq + row_head(w, row0 + 8 * r) * a.q_stride;
#pragma unroll
        for (int i = 0; i < 2 * S::STEPS; i++) {
            const bool in = there && S::has_column(col0 + 8 * i, a.cache.head_dim);
            const float2 f = in ? *(const float2 *) (q + 8 * i) : float2{0, 0};
            const float x = clean(f.x), y = clean(f.y);
            const uint32_t high = ptx_half2(x, y);
            t.q[0][i / 2][i % 2 * 2 + r] = high;
            if (S::Q_TERMS > 1)
                t.q[S::Q_TERMS - 1][i / 2][i % 2 * 2 + r] = ptx_half2(x - ptx_floats(high).x, y - ptx_floats(high).y);
        }
    }
}

/* --------------------------------------------------------------------------------------------------------- a tile */

/* out = sum of COUNT score parts of this warp, from part FIRST on, for 16 rows and 16 keys: out[0] for the first 8
 * keys, out[1] for the others. keys: index of the 16 keys in the tile. k: shared address of the row that the lane loads
 * by ldmatrix, in the tile's first 16 keys. The parts are added in pairs, by recursion. */
template <class S, int FIRST, int COUNT>
PI_FN void add_parts(const queries<S> &t, uint32_t k, int keys, float (&out)[2][4])
{
    if constexpr (COUNT > 1) {
        float next[2][4];
        add_parts<S, FIRST, COUNT / 2>(t, k, keys, out);
        add_parts<S, FIRST + COUNT / 2, COUNT / 2>(t, k, keys, next);
#pragma unroll
        for (int i = 0; i < 8; i++) out[i / 4][i % 4] += next[i / 4][i % 4];
    } else {
        constexpr int STEPS = S::STEPS / S::PARTS;
        const int lane = (int) threadIdx.x % 32, col = (int) threadIdx.x / 32 % S::WARPS * S::N + lane / 8 % 2;
#pragma unroll
        for (int i = 0; i < 8; i++) out[i / 4][i % 4] = 0;
#pragma unroll
        for (int step = FIRST * STEPS; step < (FIRST + 1) * STEPS; step++) {
            uint32_t b[4];
            const uint32_t at = piece_at<S>(k, lane, col, step) + (uint32_t) (keys * 16 * S::D * 2);
            if constexpr (S::KIND == HILO) {
                ptx_ldmatrix_x4(b, at + S::PLANE);
                ptx_mma_f16(out[0], t.q[0][step], {b[0], b[1]});
                ptx_mma_f16(out[1], t.q[0][step], {b[2], b[3]});
            }
            /* Q's lo term first: smaller products are added first. */
            ptx_ldmatrix_x4(b, at);
#pragma unroll
            for (int term = S::Q_TERMS - 1; term >= 0; term--) {
                ptx_mma_f16(out[0], t.q[term][step], {b[0], b[1]});
                ptx_mma_f16(out[1], t.q[term][step], {b[2], b[3]});
            }
        }
    }
}

/* s = the warp's sum of score parts for all keys of the tile: s[n] holds keys 8 n .. 8 n + 7 in the mma accumulator
 * layout. Complete scores if WARPS is 1, else exchange() adds the other warps' parts. tile: shared address of K. */
template <class S> PI_FN void scores(const queries<S> &t, uint32_t tile, float (&s)[S::TILE / 8][4])
{
    const int lane = (int) threadIdx.x % 32;
    const uint32_t k = tile + (uint32_t) ((lane % 8 + lane / 16 * 8) * S::D * 2);
#pragma unroll
    for (int i = 0; i < S::TILE / 16; i++) {
        float two[2][4];
        add_parts<S, 0, S::PARTS>(t, k, i, two);
#pragma unroll
        for (int n = 0; n < 8; n++) s[2 * i + n / 4][n % 4] = two[n / 4][n % 4];
    }
}

/* Returns the softcapped score, cap * tanh(x / cap), with an absolute error below 3e-7 * cap. */
PI_FN float capped(float x, float cap)
{
    const float e = ptx_exp2(x * (2 * LOG2E / cap));
    return fmaf(-2 * cap, ptx_rcp(1.0f + e), cap);
}

} /* namespace attention */

#endif
