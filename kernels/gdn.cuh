/* The gated delta rule (Gated DeltaNet): layout of a state in device memory, distribution of the work, and the sums of
 * a row. gdn_kernels.cuh has the kernels.
 *
 * D = dim, values per head. A sequence keeps its state S0 [D][D] per value head at a chunk boundary (`base`, a multiple
 * of C = 16 positions) and the rows (tokens) since then. For one value head, with G_i the log2 decay from the boundary
 * to row i inclusive, a sum over the rows:
 *
 *     p_i = 2^G_i (k_i . S0) + sum over l < i of  2^(G_i - G_l) (k_i . k_l) u_l        the state's prediction for k_i
 *     u_i = beta_i (v_i - p_i)                                                         the update written for k_i
 *     o_i = 2^G_i (q_i . S0) + sum over l <= i of 2^(G_i - G_l) (q_i . k_l) u_l        the output
 *
 * A full chunk of verified tokens is folded: S0 <- 2^G_15 S0 + sum of 2^(G_15 - G_i) k_i (outer) u_i, and base moves to
 * its end. The u_i form a triangular system. It is solved from keys and gates alone, once for all columns of S0. With
 * A_il and M_il the factors of u_l in -u_i and in o_i, T = (1 + A)^-1 and P = M T. Row i of T and P depends on rows up
 * to i only:
 *
 *     x_i = beta_i (v_i - 2^G_i (k_i . S0))      u_i = sum over l <= i of T_il x_l
 *                                                o_i = 2^G_i (q_i . S0) + sum over l <= i of P_il x_l
 *
 * No value of T exceeds 1. Keys have length 1 and beta is at most 1. A row of T is therefore a key after reflections
 * that can only shorten it.
 *
 *     slot      base [n_v][D/32] | bound [n_v][D/16] | S0 [n_v][D][D] | x [n_v][R][D] | k [n_k][R][D] | g [n_v][R]
 *               | t [n_v][R][C] | recent [..][C'] | edge [..][3][C']                 (C': channels)
 *     snapshot  S0 [n_v][D][D] | the 3 raw inputs before it [3][C'] | bound          (3: for 4 taps of convolution)
 *
 * n_v value heads, n_k key heads; a value head h uses key head h % n_k. C' = (2 n_k + n_v) D channels of the
 * convolution: queries, keys, values. x, k, g (log2 decays), t (rows of T) and the raw inputs of convolutions are
 * rings: the row of position p is at p % R. Nothing moves when base changes, and a block of threads may write new rows
 * while other blocks read the old ones. R = C + 2 n_draft rows suffice from base to the end of any step of up to 1 +
 * n_draft tokens.
 *
 * `recent` holds the raw inputs of the last positions. `edge` holds the raw inputs of the 3 positions before each chunk
 * boundary that may become base; a snapshot there needs them. With base 0, S0 is zero, and its memory is ignored. Each
 * slice of 32 columns of S0 has its own copy of base, so that one block of threads writes it.
 *
 * Tensor cores multiply F16, so every number is split into two F16, hi + lo, 22 bits together: keys (in k: D hi, then D
 * lo) times 2^2, queries times 2^6, S0 and u when they are used. To fit F16, 16 columns of S0 are divided by a power of
 * two when they are stored. It follows from `bound`, an upper limit of the magnitude of their values. A fold multiplies
 * bound by the decay and adds the largest sum of |u| of a column, since no value of a key exceeds 1. Nothing else
 * changes bound, so prefill and decode have the same. Even a bound 2^12 above the largest value loses no digit. Results
 * have float precision relative to the largest values of S0. x may have any magnitude: its products with T and P use
 * TF32, also in two parts.
 *
 * The above is the exact mode (`exact` in pi__k_state). In the other mode keys and queries are one F16 everywhere, and
 * S0 is rounded to one F16 for its products. S0 is stored as float, and the u added to it has two F16. States then come
 * from rounded keys, and results have the error of 11 bits of S0. This mode needs a third of the products with S0, no
 * instructions for lo, and half of prepare()'s keys and queries. few() and save() are memory-bound: they run the same
 * kernels with lo = 0, also in the slot. */
#ifndef PI_GDN_CUH
#define PI_GDN_CUH

#include "backend/cuda/kernels.h"
#include "ptx.cuh"
#include "warp.cuh"

namespace gdn {

enum {
    C = PI__STATE_CHUNK,
    SLICE = 32,       /* columns of S0 that share a copy of `base` */
    PATCH = 16,       /* columns of S0 that share a bound; a warp's columns */
    MAX_SHIFT = 100, /* max magnitude of the exponent derived from a bound */
};
constexpr int32_t KEY_EXPONENT = -2;
constexpr float KEY_UNIT = 0x1p-2f, QUERY_UNIT = 0x1p-6f; /* factor from a stored key, or query, to its value */
constexpr float LOG2E = 1.44269504f;

/* Returns the 32-bit words of a key of dim values: two F16 per word, hi, and in exact mode also lo. */
PI_FN constexpr int key_words(int dim, bool exact) { return exact ? dim : dim / 2; }

/* A ring of n rows; position i is in row i % n (ring_row()). The division is a multiplication: i / n = i * by >> shift
 * for all i < 2^31. */
struct ring {
    int32_t n;
    uint32_t by;
    int32_t shift;
};
PI_FN int32_t ring_row(const ring &r, int32_t i) { return i - (int32_t) ((uint64_t) i * r.by >> r.shift) * r.n; }

/* Offsets in a slot, in floats; `size`: floats of a slot. The rings: rows of x, k, g and t; recents; edges (one entry
 * per chunk boundary). */
struct places {
    size_t bound, s, x, k, g, t, recent, edge, size;
    ring rows, recents, edges;
    int32_t history; /* raw inputs before a row that its convolution reads: taps - 1 */
};

/* Arguments of the kernels of the gated delta rule. */
struct job {
    pi__k_gdn a;
    places at;
    int32_t few; /* sequences with up to `few` tokens are processed by few(), the others by many() */
    pi__k_tail tail; /* epilogue of few(), or of finish() of ssd_kernels.cuh; arrived NULL = none */
};

/* A sequence and its tokens in this step. Positions count from the sequence's start. */
struct sequence {
    float *slot;
    int32_t first;       /* index in the batch of its first token */
    int32_t pos, end;    /* positions: of its first token; after its last token */
    int32_t verified;    /* position after the last verified token; drafts follow */
    int32_t keep;        /* base after the step; rows from this position on are stored in the slot */
    const int32_t *save; /* snapshots to save, [n_save][2]: position, snapshot index */
    int32_t n_save;
};

/* A block's part of a sequence: value head `head`, its key head, and the first column `col` of the block in the
 * head. */
struct work {
    int32_t head, k_head, col;
};

/* Rows of a chunk, which starts at position `from`: first n_old rows of earlier steps, then n_new rows of this step.
 * The other rows, up to C, are missing. */
struct chunk {
    int32_t from, n_old, n_new;
};

/* Offset in floats of row i of an array with ld floats between rows, ld < 2^31. */
PI_FN int64_t row_at(int32_t i, int64_t ld) { return (int64_t) i * ptx_low(ld); }

/* Returns the index of value head `head` in a row of `out`. With a.grouped the value heads of a key head are
 * adjacent. */
PI_FN int32_t out_head(const pi__k_gdn &a, int32_t head)
{
    return a.grouped ? head % a.state.n_k * (a.state.n_v / a.state.n_k) + head / a.state.n_k : head;
}

/* Channels of the convolution; addresses of a slot and of a snapshot. */
PI_FN int32_t n_channels(const pi__k_state &st) { return (2 * st.n_k + st.n_v) * st.dim; }
PI_FN float *slot_at(const pi__k_state &st, int32_t slot) { return (float *) (st.base + (size_t) slot * st.stride); }
PI_FN float *snap_at(const pi__k_state &st, int32_t snap)
{
    return (float *) (st.snap + (size_t) snap * st.snap_stride);
}

/* Address in a slot of the copy of `base` for the 32 columns of value head `head` that contain column col. */
PI_FN int32_t *base_at(const job &j, float *slot, int32_t head, int32_t col)
{
    return (int32_t *) slot + head * (j.a.state.dim / SLICE) + col / SLICE;
}
/* Address in a slot of the bound of columns col .. col + 15 of a value head. */
PI_FN float *bound_at(const job &j, float *slot, int32_t head, int32_t col)
{
    return slot + j.at.bound + head * (j.a.state.dim / PATCH) + col / PATCH;
}
/* Address of S0 [D][D] of a value head. memory: a slot or a snapshot; s: offset of S0 in it, places::s or 0. */
PI_FN float *s_at(const job &j, float *memory, size_t s, int32_t head)
{
    return memory + s + (size_t) head * (size_t) (j.a.state.dim * j.a.state.dim);
}
/* Addresses in a slot of the ring rows of position p, for a value head: x_at: x [D]; decay_at: log2 decay; t_at: row of
 * T [C]. */
PI_FN float *x_at(const job &j, float *slot, int32_t head, int32_t p)
{
    return slot + j.at.x + (size_t) (head * j.at.rows.n + ring_row(j.at.rows, p)) * (size_t) j.a.state.dim;
}
PI_FN float *decay_at(const job &j, float *slot, int32_t head, int32_t p)
{
    return slot + j.at.g + head * j.at.rows.n + ring_row(j.at.rows, p);
}
PI_FN float *t_at(const job &j, float *slot, int32_t head, int32_t p)
{
    return slot + j.at.t + (head * j.at.rows.n + ring_row(j.at.rows, p)) * C;
}
/* k_at: the key of key head `head` at position p: D words, first D / 2 of hi, then D / 2 of lo (0 if not exact). */
PI_FN uint32_t *k_at(const job &j, float *slot, int32_t head, int32_t p)
{
    return (uint32_t *) slot + j.at.k + (size_t) (head * j.at.rows.n + ring_row(j.at.rows, p)) * (size_t) j.a.state.dim;
}
/* Addresses of the raw inputs (before convolution) of position p, [n_channels]: in `recent`, and in `edge`. For `edge`,
 * p must be one of the last `history` positions before a chunk boundary. */
PI_FN float *recent_at(const job &j, float *slot, int32_t p)
{
    return slot + j.at.recent + (size_t) ring_row(j.at.recents, p) * (size_t) n_channels(j.a.state);
}
PI_FN float *edge_at(const job &j, float *slot, int32_t p)
{
    int32_t row = ring_row(j.at.edges, p / C) * j.at.history + p % C - (C - j.at.history);
    return slot + j.at.edge + (size_t) row * (size_t) n_channels(j.a.state);
}
/* Addresses in a snapshot: raw inputs [history][n_channels]; bound of columns col .. col + 15 of a value head. */
PI_FN float *snap_raw(const job &j, float *snap) { return s_at(j, snap, 0, j.a.state.n_v); }
PI_FN float *snap_bound(const job &j, float *snap, int32_t head, int32_t col)
{
    return snap_raw(j, snap) + j.at.history * n_channels(j.a.state) + head * (j.a.state.dim / PATCH) + col / PATCH;
}

/* Layout of a row of T or P [C], in two parts for TF32 tensor cores: MIX = 2 C words. Columns 2 n and 2 n + 1 have
 * words 4 n .. 4 n + 3: the two values, then their remainders after the 11 bits of TF32 (rest). mix_at: word of a
 * column and part. mix_column, mix_rest: column and part of a word. */
enum { MIX = 2 * C };
PI_FN int mix_at(int column, bool rest) { return column / 2 * 4 + rest * 2 + column % 2; }
PI_FN int mix_column(int word) { return word / 4 * 2 + word % 2; }
PI_FN bool mix_rest(int word) { return word / 2 % 2; }
/* False for columns 8 .. 15 in rows 0 .. 7 of a chunk: these values of T and P are zeros, neither written nor read. */
PI_FN bool in_mix(int row, int column) { return row >= C / 2 || column < C / 2; }

/* Scratch: prepare()'s output for sequences with more than `few` tokens, in this order:
 *
 *     scalars  [n_v][tokens][N_SCALARS]   per value head and row: OF_K = -beta_i 2^G_i times the key's unit,
 *                                         OF_S = 2^G_i, padding, LOG_DECAY = log2 decay of the row
 *     keys     [n_k][tokens][2 words]     k, then q; each hi and, in exact mode, lo (words: key_words())
 *     mix      [n_v][tokens][2 MIX]       row of T, ready for the fold if prepared_for_fold(), then row of P
 *
 * beta v goes to `out`. new_row: index of a head's row of token `token` (index in the batch). */
PI_FN size_t new_row(const job &j, int32_t head, int32_t token) { return (uint32_t) (head * j.a.n_tokens + token); }
enum scalar { OF_K, OF_S, PADDING, LOG_DECAY, N_SCALARS };
PI_FN float *new_scalars(const job &j, int32_t head, int32_t token)
{
    return (float *) j.a.scratch + new_row(j, head, token) * N_SCALARS;
}
PI_FN uint32_t *new_kq(const job &j, int32_t k_head, int32_t token, int words)
{
    return (uint32_t *) new_scalars(j, j.a.state.n_v, 0) + new_row(j, k_head, token) * (uint32_t) (2 * words);
}
PI_FN float *new_mix(const job &j, int32_t head, int32_t token)
{
    return new_scalars(j, j.a.state.n_v, 0) + new_row(j, j.a.state.n_k, 0) * (uint32_t) (2 * j.a.state.dim) +
           new_row(j, head, token) * (2 * MIX);
}

/* ---------------------------------------------------------------------------------------------- work distribution */

/* Fills s for sequence i of the batch. Returns false if the sequence has no slot (padding) or no tokens. */
PI_FN bool find_sequence(const job &j, int32_t i, sequence &s)
{
    int32_t slot = j.a.state_slot[i], n = j.a.seq_start[i + 1] - j.a.seq_start[i];
    if (slot < 0 || n < 1) return false;
    s.slot = slot_at(j.a.state, slot);
    s.first = j.a.seq_start[i];
    s.pos = j.a.pos[s.first];
    s.end = s.pos + n;
    s.verified = s.pos + j.a.n_verified[i];
    s.keep = s.verified / C * C;
    s.save = j.a.save + 2 * j.a.save_start[i];
    s.n_save = j.a.save_start[i + 1] - j.a.save_start[i];
    return true;
}

/* Returns the rows of the chunk at position `from`. */
PI_FN chunk chunk_of(const sequence &s, int32_t from)
{
    int32_t n_old = min(max(s.pos - from, 0), (int32_t) C);
    return {from, n_old, min(s.end - from, (int32_t) C) - n_old};
}

/* True if the chunk at position `from` has only new rows, is full, and will be folded. prepare() then scales its T for
 * the fold, and T is not stored in the slot. */
PI_FN bool prepared_for_fold(const sequence &s, int32_t from, int32_t n_new) { return n_new == C && from < s.keep; }

/* Returns the index of the first tile of sequence i. A tile is a chunk with new rows. A sequence of n tokens gets
 * enough indices for any position of its first token. */
PI_FN int32_t first_tile(const job &j, int32_t i) { return j.a.seq_start[i] / C + 2 * i; }

/* Finds the sequence and chunk of index `tile`: a chunk with new rows, of a sequence with more than `few` tokens.
 * Returns false if the index has no such chunk. */
PI_FN bool find_tile(const job &j, int32_t tile, sequence &s, chunk &c)
{
    int32_t lo = 0, hi = j.a.n_seqs - 1;
    while (lo < hi) {
        int32_t mid = (lo + hi + 1) / 2;
        if (first_tile(j, mid) <= tile) lo = mid;
        else hi = mid - 1;
    }
    if (!find_sequence(j, lo, s) || s.end - s.pos <= j.few) return false;
    c = chunk_of(s, (s.pos / C + tile - first_tile(j, lo)) * C);
    return c.from < s.end;
}

/* ------------------------------------------------------------------------------------------------ sums of one row */

/* Upper limit of the divisor `over`. In sigmoid_over() an infinite divisor times 2^exponent = 0 would be NaN. */
constexpr float MAX_OVER = 0x1p100f;
/* sigmoid_over: returns 1 / (1 + 2^exponent) / over. */
PI_FN float sigmoid_over(float exponent, float over) { return ptx_rcp(fmaf(ptx_exp2(exponent), over, over)); }
/* silu_over: returns silu(x) / over = x / (1 + e^-x) / over. Relative error: 3e-7; more for large -x, where silu is
 * near 0. */
PI_FN float silu_over(float x, float over) { return x * sigmoid_over(-LOG2E * x, over); }

/* Returns the raw input of channel c at position p: from a.qkv if p is in this step, else from the slot; 0 for p <
 * 0. */
PI_FN float raw_input(const job &j, const sequence &s, int32_t p, int32_t c)
{
    /* one load instruction for both cases, so that several calls have their loads in flight together */
    const bool kept = p >= 0 && p < s.pos;
    const float *row = kept ? recent_at(j, s.slot, p) : j.a.qkv + (s.first + max(p - s.pos, 0)) * j.a.ld_qkv;
    const float x = row[c];
    return p < 0 ? 0.0f : x;
}

/* Taps of convolutions are multiplied by -log2 e, so that a convolution's sum s is the exponent that its silu needs:
 * with x the true sum, s = -x log2 e. silu_in_units returns silu(x) / CONV_UNIT. Keys and queries lose this factor in
 * their normalization (unit_of_sum()); values lose it by over_of(). */
constexpr float CONV_UNIT = -0.693147181f;
PI_FN float silu_in_units(float exponent) { return exponent * sigmoid_over(exponent, 1); }
/* value_of: returns beta silu(x) for a value's exponent. over: result of over_of(1 / beta). */
PI_FN float value_of(float exponent, float over) { return exponent * sigmoid_over(exponent, over); }
PI_FN float over_of(float beta_over) { return fminf(beta_over, MAX_OVER) * -LOG2E; }

/* Returns the convolution of channel c at position p, times -log2 e: the sum over the taps in order. TAPS_TOGETHER taps
 * are loaded together, to wait for memory once. More of them would need more registers on sm_80. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
enum { TAPS_TOGETHER = 2 };
#else
enum { TAPS_TOGETHER = 4 };
#endif
PI_FN float exponent_at(const job &j, const sequence &s, int32_t p, int32_t c)
{
    const float *tap = j.a.conv + c * (j.at.history + 1);
    float sum = 0;
    int32_t i = -j.at.history;
#pragma unroll 1
    for (; i + TAPS_TOGETHER <= 1; i += TAPS_TOGETHER, tap += TAPS_TOGETHER) {
        float x[TAPS_TOGETHER];
#pragma unroll
        for (int k = 0; k < TAPS_TOGETHER; k++) x[k] = raw_input(j, s, p + i + k, c);
#pragma unroll
        for (int k = 0; k < TAPS_TOGETHER; k++) sum = fmaf(tap[k] * -LOG2E, x[k], sum);
    }
#pragma unroll 1
    for (; i <= 0; i++, tap++) sum = fmaf(*tap * -LOG2E, raw_input(j, s, p + i, c), sum);
    return sum;
}
/* Returns silu of the convolution, in units of CONV_UNIT. */
PI_FN float convolved(const job &j, const sequence &s, int32_t p, int32_t c)
{
    return silu_in_units(exponent_at(j, s, p, c));
}

/* Convolutions (exponents, as exponent_at()) of channels c .. c + 3 at successive positions: begin(p), then next() for
 * each position from p on. FAST: 4 taps, as nearly all models have, and rows that are multiples of 16 bytes. Then the
 * scaled taps and the last three inputs stay in registers. Otherwise next() calls exponent_at(). */
PI_FN void four(const float4 &v, float (&x)[4]) { x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w; }
template <bool FAST> struct convolution {
    float tap[4][4], last[3][4];
    const float *next_in;

    __device__ __forceinline__ void begin(const job &j, const sequence &s, int32_t p, int32_t c)
    {
        if (!FAST) return;
        next_in = j.a.qkv + row_at(s.first + p - s.pos, j.a.ld_qkv) + c;
#pragma unroll
        for (int i = 0; i < 4; i++) four(*(const float4 *) (j.a.conv + (c + i) * 4), tap[i]);
#pragma unroll
        for (int i = 0; i < 16; i++) tap[i / 4][i % 4] *= -LOG2E;
        if (p - 3 >= s.pos) {
#pragma unroll
            for (int i = 0; i < 3; i++) four(*(const float4 *) (next_in + row_at(i - 3, j.a.ld_qkv)), last[i]);
            return;
        }
#pragma unroll
        for (int i = 0; i < 12; i++) last[i / 4][i % 4] = 0;
        /* Some of the three inputs are before the step, as in raw_input(): load them from the slot, 0 for negative
         * positions. */
#pragma unroll 1
        for (int i = 0; i < 3; i++) {
            const float *from = p - 3 + i < s.pos ? recent_at(j, s.slot, max(p - 3 + i, 0)) + c
                                                  : next_in + row_at(i - 3, j.a.ld_qkv);
#pragma unroll
            for (int n = 0; n < 4; n++) last[0][n] = last[1][n], last[1][n] = last[2][n];
            four(*(const float4 *) from, last[2]);
#pragma unroll
            for (int n = 0; n < 4; n++) last[2][n] = p - 3 + i < 0 ? 0.0f : last[2][n];
        }
    }
    __device__ __forceinline__ void next(const job &j, const sequence &s, int32_t p, int32_t c, float (&y)[4])
    {
        float x[4];
        if (FAST) four(*(const float4 *) next_in, x);
#pragma unroll
        for (int n = 0; n < 4; n++) {
            if (!FAST) {
                y[n] = exponent_at(j, s, p, c + n);
                continue;
            }
            const float sum = fmaf(tap[n][1], last[1][n], fmaf(tap[n][0], last[0][n], 0.0f));
            y[n] = fmaf(tap[n][3], x[n], fmaf(tap[n][2], last[2][n], sum));
            last[0][n] = last[1][n], last[1][n] = last[2][n], last[2][n] = x[n];
        }
        if (FAST) next_in += row_at(1, j.a.ld_qkv);
    }
};

/* Returns x minus its upper bits that TF32 keeps. */
PI_FN float rest_of_tf32(float x) { return x - __uint_as_float(__float_as_uint(x) & 0xffffe000); }

/* Returns the normalization factor of a key or query, 1 / sqrt(sum of squares + eps), times the factors of its stored
 * form. A query is also divided by sqrt(D). unit_of_sum: squares: the sum over all D channels, in units of CONV_UNIT^2.
 * unit_of: each lane gives its part of the sum. */
template <int D> PI_FN float unit_of_sum(const job &j, bool query, float squares)
{
    constexpr float ROOT = D == 32 ? 5.65685425f : D == 64 ? 8.0f : D == 96 ? 9.79795897f : 11.3137085f; /* sqrt(D) */
    const float one = query ? CONV_UNIT / (QUERY_UNIT * ROOT) : CONV_UNIT / KEY_UNIT;
    return one * ptx_rsqrt(fmaf(squares, CONV_UNIT * CONV_UNIT, j.a.eps));
}
template <int D> PI_FN float unit_of(const job &j, bool query, float lane_squares)
{
    return unit_of_sum<D>(j, query, warp_sum(lane_squares));
}
PI_FN float squares(const float (&x)[4])
{
    return fmaf(x[3], x[3], fmaf(x[2], x[2], fmaf(x[1], x[1], fmaf(x[0], x[0], 0.0f))));
}
/* Four warp_sum() in one, bitwise identical: lanes 8 i .. 8 i + 7 get the sum of x[i] over the warp. */
PI_FN float warp_sum_of_4(const float (&x)[4])
{
    const bool high = threadIdx.x & 16, odd = threadIdx.x & 8;
    const float a = (high ? x[2] : x[0]) + __shfl_xor_sync(PI_FULL, high ? x[0] : x[2], 16);
    const float b = (high ? x[3] : x[1]) + __shfl_xor_sync(PI_FULL, high ? x[1] : x[3], 16);
    float sum = (odd ? b : a) + __shfl_xor_sync(PI_FULL, odd ? a : b, 8);
    for (int o = 4; o; o /= 2) sum += __shfl_xor_sync(PI_FULL, sum, o);
    return sum;
}
PI_FN void silus(float (&x)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = silu_in_units(x[i]);
}
/* Returns the first channel of key head h's queries or keys. */
PI_FN int32_t key_channel(const job &j, int32_t h, bool query, int dim)
{
    return (query ? h : j.a.state.n_k + h) * dim;
}

/* Converts two values to a word of two F16: hi, and their remainders lo (EXACT; otherwise lo = 0). */
template <bool EXACT> PI_FN void split(float x, float y, uint32_t &hi, uint32_t &lo)
{
    if (EXACT) ptx_split(x, y, hi, lo);
    else hi = ptx_half2(x, y), lo = 0;
}
/* Calls put(row, lane, hi, lo) with the words of the lane's four values x times unit, if the lane has values. */
template <bool EXACT, class PUT>
PI_FN void put_split(const float (&x)[4], float unit, int row, bool has, const PUT &put)
{
    uint2 hi, lo;
    split<EXACT>(x[0] * unit, x[1] * unit, hi.x, lo.x);
    split<EXACT>(x[2] * unit, x[3] * unit, hi.y, lo.y);
    if (has) put(row, (int) threadIdx.x % 32, hi, lo);
}
/* Computes the keys (or queries) of key head h at positions p .. p + n - 1, by a warp. A lane has values 4 lane .. 4
 * lane + 3 and calls put(row, lane, words of hi, words of lo) per row, row 0 for position p. */
template <int D, bool EXACT, bool FAST, class PUT>
PI_FN void keys_or_queries(const job &j, const sequence &s, int32_t h, bool query, int32_t p, int32_t n, const PUT &put)
{
    const int lane = (int) threadIdx.x % 32;
    const bool has = D == 128 || lane < D / 4;
    const int32_t c = key_channel(j, h, query, D) + 4 * lane;
    convolution<FAST> conv;
    if (has) conv.begin(j, s, p, c);
    int32_t r = 0;
#pragma unroll
    for (; FAST && n == C / 2 && r < C / 2; r += 4) { /* half of a full chunk: four rows per step */
        float x[4][4], ss[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            four({0, 0, 0, 0}, x[i]);
            if (has) conv.next(j, s, p + r + i, c, x[i]), silus(x[i]);
            ss[i] = squares(x[i]);
        }
        const float unit = unit_of_sum<D>(j, query, warp_sum_of_4(ss));
#pragma unroll
        for (int i = 0; i < 4; i++) put_split<EXACT>(x[i], __shfl_sync(PI_FULL, unit, 8 * i), r + i, has, put);
    }
#pragma unroll 1
    for (; r < n; r++) {
        float x[4] = {};
        if (has) conv.next(j, s, p + r, c, x), silus(x);
        put_split<EXACT>(x, unit_of<D>(j, query, squares(x)), r, has, put);
    }
}

/* Computes the key or query of key head h at position p, by a warp, with few registers. Writes D / 2 words to to_hi and
 * to to_lo, in shared memory; lo is 0 if the mode is not exact. */
template <int D>
PI_FN void key_or_query(const job &j, const sequence &s, int32_t h, bool query, int32_t p, uint32_t *to_hi,
                        uint32_t *to_lo)
{
    const int lane = (int) threadIdx.x % 32;
    const int32_t c = key_channel(j, h, query, D);
    const int end = D == 128 || lane < D / 4 ? 2 * lane + 2 : 0;
    float ss = 0;
#pragma unroll 1
    for (int i = 2 * lane; i < end; i++) {
        const float x = convolved(j, s, p, c + 2 * i), y = convolved(j, s, p, c + 2 * i + 1);
        to_hi[i] = __float_as_uint(x), to_lo[i] = __float_as_uint(y);
        ss = fmaf(y, y, fmaf(x, x, ss));
    }
    const float unit = unit_of<D>(j, query, ss);
#pragma unroll 1
    for (int i = 2 * lane; i < end; i++) {
        uint32_t rest;
        ptx_split(__uint_as_float(to_hi[i]) * unit, __uint_as_float(to_lo[i]) * unit, to_hi[i], rest);
        to_lo[i] = j.a.state.exact ? rest : 0;
    }
}

/* Gate of a row. decay: its log2 decay; sum: sum of the decays from the chunk's first row to this row; beta; over:
 * divisor for value_of(). Rows of earlier steps have only the decay and the sum. */
struct gate {
    float decay, sum, beta, over;
};
/* Returns to each lane the gate of the chunk's row `lane`, without `sum` (0). Missing rows get zeros. Called by a
 * warp. */
PI_FN gate gate_of_row(const job &j, const sequence &s, int32_t head, const chunk &c, int lane)
{
    gate x = {0, 0, 0, 0};
    if (lane < c.n_old) x.decay = *decay_at(j, s.slot, head, c.from + ptx_opaque(lane));
    else if (lane < c.n_old + c.n_new) {
        const int32_t token = s.first + c.from + lane - s.pos;
        const int64_t at = row_at(token, j.a.ld_ab) + head;
        const float y = j.a.alpha[at] + j.a.dt_bias[head];
        x.decay = LOG2E * j.a.a[head] * (y > 20.0f ? y : log1pf(expf(y)));
        const float over = 1.0f + expf(-j.a.beta[at]);
        x.beta = ptx_rcp(over), x.over = over_of(over);
    }
    return x;
}
/* Returns to each lane the gate of the chunk's row `lane`, with `sum`. Called by a warp. */
PI_FN gate gates(const job &j, const sequence &s, int32_t head, const chunk &c, int lane)
{
    gate x = gate_of_row(j, s, head, c, lane);
    float sum = 0;
#pragma unroll
    for (int r = 0; r < C; r++) {
        sum += __shfl_sync(PI_FULL, x.decay, r);
        x.sum = r == lane ? sum : x.sum;
    }
    return x;
}
/* Factors of a row. of_k: -beta 2^G times KEY_UNIT, the factor of k . S0 in x, for a stored key. of_s: 2^G, the decay
 * of S0 up to the row, the factor of q . S0 in o. */
PI_FN float of_k(const gate &x) { return -x.beta * ptx_exp2(x.sum) * KEY_UNIT; }
PI_FN float of_s(const gate &x) { return ptx_exp2(x.sum); }

/* Returns the decay factor 2^(G_i - G_l) from row l to row i; l = -1: from S0. decay: log2 decays of the chunk's rows,
 * STEP floats apart. The decays are added up for each pair: differences of prefix sums would lose all digits once a
 * token forgets everything. */
template <int STEP = 1> PI_FN float left_of(const float *decay, int l, int i)
{
    float sum = 0;
#pragma unroll 4
    for (l++; l <= i; l++) sum += decay[l * STEP];
    return ptx_exp2(sum);
}

/* Returns sqrt(squares / D + eps), at most MAX_OVER: the divisor of an RMSNorm. squares: sum of o^2. */
template <int D> PI_FN float root_of_mean(float squares, float eps)
{
    return fminf(ptx_rcp(ptx_rsqrt(fmaf(squares, 1.0f / (float) D, eps))), MAX_OVER);
}

/* The gated norm: out = o / sqrt(mean(o^2) + eps) * norm * silu(z), for one token and value head, by a warp. o: [D],
 * may be the head's part of out. A lane has four values, and `norm` has their weights. FAST: rows of z and out are
 * multiples of 16 bytes. */
template <int D, bool FAST>
PI_FN void gated_norm(const job &j, const float *o, const float (&norm)[4], int32_t token, int32_t head, int lane)
{
    const bool has = D == 128 || lane < D / 4;
    const float *z = j.a.z + token * j.a.ld_z + head * D + 4 * lane;
    float *out = j.a.out + token * j.a.ldo + out_head(j.a, head) * D + 4 * lane, x[4] = {}, gate[4] = {}, ss = 0;
    if (has) four(*(const float4 *) (o + 4 * lane), x);
    if (has && FAST) four(*(const float4 *) z, gate);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (has && !FAST) gate[i] = z[i];
        ss = fmaf(x[i], x[i], ss);
    }
    const float over = root_of_mean<D>(warp_sum(ss), j.a.eps);
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = x[i] * norm[i] * silu_over(gate[i], over);
    if (has) *(float4 *) out = {x[0], x[1], x[2], x[3]};
}
/* norm = the norm weights of the lane's four values. */
template <int D> PI_FN void load_norm(const job &j, int lane, float (&norm)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++) norm[i] = D == 128 || lane < D / 4 ? j.a.norm[4 * lane + i] : 0.0f;
}

/* The gated norm of four tokens and one value head by a warp, eight lanes per token; bitwise identical to gated_norm().
 * A lane has every eighth group of four values; out, z: address of its first group, for its token. Results replace
 * `out`. ALL: all four tokens exist; otherwise `has` is false for the lanes of a missing token. */
template <int D, bool FAST, bool ALL>
PI_FN void gated_norm_of_quarter(float eps, const float (&norm)[D / 32][4], const float *z, float *out, bool has)
{
    float x[4][4] = {}, gate[4][4] = {}, ss[4];
#pragma unroll
    for (int n = 0; n < D / 32; n++) {
        if (ALL || has) four(*(const float4 *) (out + 32 * n), x[n]);
        if ((ALL || has) && FAST) four(*(const float4 *) (z + 32 * n), gate[n]);
        for (int i = 0; (ALL || has) && !FAST && i < 4; i++) gate[n][i] = z[32 * n + i];
    }
#pragma unroll
    for (int n = 0; n < 4; n++) ss[n] = squares(x[n]);
    float sum = ss[0] + ss[2] + (ss[1] + ss[3]); /* in the order of warp_sum() */
    for (int o = 4; o; o /= 2) sum += __shfl_xor_sync(PI_FULL, sum, o);
    const float over = root_of_mean<D>(sum, eps);
#pragma unroll
    for (int n = 0; n < D / 32; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) x[n][i] = x[n][i] * norm[n][i] * silu_over(gate[n][i], over);
        if (ALL || has) *(float4 *) (out + 32 * n) = {x[n][0], x[n][1], x[n][2], x[n][3]};
    }
}

} /* namespace gdn */

#endif
