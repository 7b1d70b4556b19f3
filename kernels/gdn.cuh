/* The gated delta rule: where a state lies in device memory, who works on what, and the sums of a row.
 *
 * A sequence's state is kept as it was at the last chunk boundary (base, a multiple of C = 16), with the rows since. For
 * one value head, G_i the log decay from the boundary up to and with row i, the sum of the rows' own:
 *
 *     p_i = e^G_i (k_i . S0) + sum over l < i of  e^(G_i - G_l) (k_i . k_l) u_l        what the state predicts for k_i
 *     u_i = beta_i (v_i - p_i)                                                         what is written for it
 *     o_i = e^G_i (q_i . S0) + sum over l <= i of e^(G_i - G_l) (q_i . k_l) u_l        the output
 *
 * and when a chunk is full and all of it stays, it is folded: S0 <- e^G_15 S0 + sum of e^(G_15 - G_i) k_i (outer) u_i.
 *
 *     slot      | base       | exponent   | S0           | u            | k            | g              | recent  | edge       |
 *               | [n_v][D/32]| [n_v][D/32]| [n_v][D][D]  | [n_v][R][D]  | [n_k][R][D]  | [n_v][D/32][R] | [..][C']| [..][3][C']|
 *     snapshot  | S0 [n_v][D][D] | the 3 raw inputs before it [3][C'] | exponent |    (3: with a convolution of 4 taps)
 *
 * u, k, g (log decays) and the raw inputs of convolutions are rings: the row of position p is at p % R, so nothing moves when base
 * does, and a block may write its new rows while others still read the old ones: R = C + 2 n_draft rows hold those from
 * base to the end of any step of up to 1 + n_draft tokens. `recent` has the raw inputs of the last positions, `edge` those
 * of the 3 positions before each boundary that may become base, which are what a snapshot there needs. S0 at base 0 is
 * zero, whatever the slot holds. base and g are there once for each slice of 32 columns, so that a slice has one owner.
 *
 * Tensor cores multiply F16, so every number is two of them, hi + lo, of 22 bits together: keys (as they lie in k: D hi,
 * then D lo) and queries, both times 2^6; S0 and u as they are used. To fit, a slice of S0 is kept divided by 2 to the
 * power of its exponent, which each fold sets anew by what is about to be added (plan_fold), by nothing else: prefill and
 * decode have the same one. Results are S0's to float precision, as its largest values count. */
#ifndef PI_GDN_CUH
#define PI_GDN_CUH

#include "backend/device.h"
#include "backend/cuda/kernels.h"
#include "ptx.cuh"
#include "warp.cuh"

enum {
    C = PI__STATE_CHUNK,
    SLICE = 32,       /* columns of S0 with one owner */
    MOST_SHIFT = 100, /* the largest exponent of a slice */
};
constexpr float KEY_UNIT = 0x1p-6f; /* what 1 of a key's or query's F16 stands for */

/* A ring of n rows, and the multiplication that divides by n: i / n is i * by >> shift for all i < 2^31. */
struct ring {
    int32_t n;
    uint32_t by;
    int32_t shift;
};
PI_FN int32_t ring_row(const ring &r, int32_t i) { return i - (int32_t) ((uint64_t) i * r.by >> r.shift) * r.n; }

/* Where things are in a slot, in floats, and how long rings are. */
struct places {
    size_t exponent, s, u, k, g, recent, edge, size;
    ring rows, recents, edges;
    int32_t history; /* raw inputs before a row that its convolution reads */
};

/* A launch. */
struct job {
    pi__k_gdn a;
    places at;
    int32_t few; /* tokens up to which a sequence is done by the kernel for few */
    pi__k_tail tail; /* of the kernel for few */
};

/* A sequence of the step. */
struct sequence {
    float *slot;
    int32_t first;       /* its first token in the batch */
    int32_t pos, end;    /* positions of its first token, and after its last */
    int32_t verified;    /* position after the last one that is verified */
    int32_t keep;        /* base after the step: the rows from here on are kept */
    const int32_t *save; /* its snapshots, [n_save][2] */
    int32_t n_save;
};

/* A block's share of a sequence: columns col .. of a value head. */
struct work {
    int32_t head, k_head, col;
};

/* Rows of a chunk: n_old were there before the step, n_new are computed now. */
struct chunk {
    int32_t from, n_old, n_new;
};

PI_FN int32_t n_channels(const pi__k_state &st) { return (2 * st.n_k + st.n_v) * st.dim; }
PI_FN float *slot_at(const pi__k_state &st, int32_t slot) { return (float *) (st.base + (size_t) slot * st.stride); }
PI_FN float *snap_at(const pi__k_state &st, int32_t snap) { return (float *) (st.snap + (size_t) snap * st.snap_stride); }

/* base of a slice of a head. */
PI_FN int32_t *base_at(const job &j, float *slot, int32_t head, int32_t col)
{
    return (int32_t *) slot + head * (j.a.state.dim / SLICE) + col / SLICE;
}
PI_FN int32_t *exponent_at(const job &j, float *slot, int32_t head, int32_t col)
{
    return base_at(j, slot + j.at.exponent, head, col);
}
/* S0 of a head, in a slot or (s = 0) in a snapshot. */
PI_FN float *s_at(const job &j, float *memory, size_t s, int32_t head)
{
    return memory + s + (size_t) head * (size_t) (j.a.state.dim * j.a.state.dim);
}
/* The rows of position p: of a value head's u, a key head's keys, the log decays of a slice. */
PI_FN float *u_at(const job &j, float *slot, int32_t head, int32_t p)
{
    return slot + j.at.u + (size_t) (head * j.at.rows.n + ring_row(j.at.rows, p)) * (size_t) j.a.state.dim;
}
/* The key's D hi, then its D lo. */
PI_FN uint32_t *k_at(const job &j, float *slot, int32_t head, int32_t p)
{
    return (uint32_t *) slot + j.at.k + (size_t) (head * j.at.rows.n + ring_row(j.at.rows, p)) * (size_t) j.a.state.dim;
}
PI_FN float *decay_at(const job &j, float *slot, int32_t head, int32_t col, int32_t p)
{
    return slot + j.at.g + (head * (j.a.state.dim / SLICE) + col / SLICE) * j.at.rows.n + ring_row(j.at.rows, p);
}
/* Raw inputs of position p: of the last ones, and (p is one of the last before a boundary) of those before boundaries. */
PI_FN float *recent_at(const job &j, float *slot, int32_t p)
{
    return slot + j.at.recent + (size_t) ring_row(j.at.recents, p) * (size_t) n_channels(j.a.state);
}
PI_FN float *edge_at(const job &j, float *slot, int32_t p)
{
    int32_t row = ring_row(j.at.edges, p / C) * j.at.history + p % C - (C - j.at.history);
    return slot + j.at.edge + (size_t) row * (size_t) n_channels(j.a.state);
}
/* The raw inputs and exponents of a snapshot. */
PI_FN float *snap_raw(const job &j, float *snap) { return s_at(j, snap, 0, j.a.state.n_v); }
PI_FN int32_t *snap_exponent(const job &j, float *snap, int32_t head, int32_t col)
{
    return base_at(j, snap_raw(j, snap) + j.at.history * n_channels(j.a.state), head, col);
}

/* What prepare() makes of the step's tokens, where a sequence has more than a few: of a key head a token's words of k hi,
 * k lo, q hi, q lo, D / 2 each; of a value head a row's factors and scalars. Values it leaves in `out`. */
PI_FN uint32_t *new_kq(const job &j, int32_t k_head, int32_t token)
{
    return (uint32_t *) j.a.scratch +
           ((size_t) k_head * (size_t) j.a.n_tokens + (size_t) token) * 2 * (size_t) j.a.state.dim;
}
/* -beta_i e^(G_i - G_l) k_i . k_l, l < i, then e^(G_i - G_l) q_i . k_l, l <= i: [2][C] */
PI_FN float *new_factors(const job &j, int32_t head, int32_t token)
{
    return (float *) new_kq(j, j.a.state.n_k, 0) + ((size_t) head * (size_t) j.a.n_tokens + (size_t) token) * 2 * C;
}
enum scalar { OF_K, OF_Q, LOG_DECAY, N_SCALARS }; /* -beta_i e^G_i / 2^6, e^G_i / 2^6, g_i: [N_SCALARS][n_tokens] a head */
PI_FN float *new_scalars(const job &j, int32_t head, int32_t which, int32_t token)
{
    return new_factors(j, j.a.state.n_v, 0) + (size_t) (head * N_SCALARS + which) * (size_t) j.a.n_tokens + token;
}

/* ------------------------------------------------------------------------------------------------------ who, and what */

/* Sequence i of the step; false: it has nothing to do. */
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

PI_FN chunk chunk_of(const sequence &s, int32_t from)
{
    int32_t n_old = min(max(s.pos - from, 0), (int32_t) C);
    return {from, n_old, min(s.end - from, (int32_t) C) - n_old};
}

/* The first tile of sequence i, where each has as many as it may need for chunks. */
PI_FN int32_t first_tile(const job &j, int32_t i) { return j.a.seq_start[i] / C + 2 * i; }

/* A tile is a chunk in which a sequence with many tokens has new rows. false: there is no such one. */
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

/* ----------------------------------------------------------------------------------------------------- sums of one row */

/* x / (1 + e^-x), within 3e-7 of itself, or of its value at 0 */
PI_FN float silu(float x) { return x * ptx_rcp(1.0f + ptx_exp2(-1.44269504f * x)); }
PI_FN float sigmoid(float x) { return ptx_rcp(1.0f + expf(-x)); }

/* Channel c of position p as it came, from the step or an earlier one. */
PI_FN float raw_input(const job &j, const sequence &s, int32_t p, int32_t c)
{
    if (p < 0) return 0;
    return p < s.pos ? recent_at(j, s.slot, p)[c] : j.a.qkv[(s.first + p - s.pos) * j.a.ld_qkv + c];
}

/* A channel's convolution at a position: silu of the sum over taps in order. */
PI_FN float convolved(const job &j, const sequence &s, int32_t p, int32_t c)
{
    const float *tap = j.a.conv + c * (j.at.history + 1);
    float sum = 0;
#pragma unroll 1
    for (int32_t i = -j.at.history; i <= 0; i++) sum = fmaf(*tap++, raw_input(j, s, p + i, c), sum);
    return silu(sum);
}

/* The same at one position of the step after the other, from p on: with the 4 taps that nearly all models have, taps and the
 * last inputs stay in registers. */
template <bool FOUR> struct convolution {
    float4 tap;
    float last[3];
    const float *next_in;

    __device__ __forceinline__ void begin(const job &j, const sequence &s, int32_t p, int32_t c)
    {
        if (!FOUR) return;
        tap = *(const float4 *) (j.a.conv + c * 4);
        next_in = j.a.qkv + (s.first + p - s.pos) * j.a.ld_qkv + c;
#pragma unroll
        for (int i = 0; i < 3; i++) last[i] = raw_input(j, s, p - 3 + i, c);
    }
    __device__ __forceinline__ float next(const job &j, const sequence &s, int32_t p, int32_t c)
    {
        if (!FOUR) return convolved(j, s, p, c);
        const float x = *next_in, sum = fmaf(tap.x, last[0], 0.0f);
        const float y = silu(fmaf(tap.w, x, fmaf(tap.z, last[2], fmaf(tap.y, last[1], sum))));
        last[0] = last[1], last[1] = last[2], last[2] = x, next_in += j.a.ld_qkv;
        return y;
    }
};

/* Two numbers less what their word hi has of them; and as words of hi and lo. */
PI_FN uint32_t rest(float x, float y, uint32_t hi)
{
    const float2 f = ptx_floats(hi);
    return ptx_half2(x - f.x, y - f.y);
}
PI_FN void split(float x, float y, uint32_t &hi, uint32_t &lo)
{
    hi = ptx_half2(x, y);
    lo = rest(x, y, hi);
}

/* What a key's or query's convolved channels are multiplied by: one over the root of the sum of their squares, 2^6. */
template <int D> PI_FN float unit_of(const job &j, bool query, float lane_squares)
{
    constexpr float ROOT = D == 32 ? 5.65685425f : D == 64 ? 8.0f : D == 96 ? 9.79795897f : 11.3137085f; /* of D */
    return (query ? 1 / (KEY_UNIT * ROOT) : 1 / KEY_UNIT) * ptx_rsqrt(warp_sum(lane_squares) + j.a.eps);
}
PI_FN int32_t key_channel(const job &j, int32_t h, bool query, int dim) { return (query ? h : j.a.state.n_k + h) * dim; }

/* The keys (or queries) of key head h at n positions from p on, by a warp. A lane has values 2 lane, 2 lane + 1, and those
 * 64 further; put(row, pair, hi, lo). */
template <int D, bool FOUR, class PUT>
PI_FN void keys_or_queries(const job &j, const sequence &s, int32_t h, bool query, int32_t p, int32_t n, const PUT &put)
{
    constexpr int PAIRS = (D + 63) / 64;
    const int lane = (int) threadIdx.x % 32;
    const int32_t c = key_channel(j, h, query, D) + 2 * lane;
    convolution<FOUR> conv[2 * PAIRS];
    const bool all = D % 64 == 0;
#pragma unroll
    for (int i = 0; i < 2 * PAIRS; i++) {
        if (all || i / 2 * 32 + lane < D / 2) conv[i].begin(j, s, p, c + i / 2 * 64 + i % 2);
    }
#pragma unroll 1
    for (int32_t r = 0; r < n; r++) {
        float x[2 * PAIRS], ss = 0;
#pragma unroll
        for (int i = 0; i < 2 * PAIRS; i++) {
            x[i] = all || i / 2 * 32 + lane < D / 2 ? conv[i].next(j, s, p + r, c + i / 2 * 64 + i % 2) : 0.0f;
            ss = fmaf(x[i], x[i], ss);
        }
        const float unit = unit_of<D>(j, query, ss);
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            uint32_t hi, lo;
            split(x[2 * i] * unit, x[2 * i + 1] * unit, hi, lo);
            if (all || i * 32 + lane < D / 2) put(r, i * 32 + lane, hi, lo);
        }
    }
}

/* The same of one position, to rows of hi and lo in shared memory, with few registers. */
template <int D>
PI_FN void key_or_query(const job &j, const sequence &s, int32_t h, bool query, int32_t p, uint32_t *to_hi, uint32_t *to_lo)
{
    const int lane = (int) threadIdx.x % 32;
    const int32_t c = key_channel(j, h, query, D);
    float ss = 0;
#pragma unroll 1
    for (int i = lane; i < D / 2; i += 32) {
        const float x = convolved(j, s, p, c + 2 * i), y = convolved(j, s, p, c + 2 * i + 1);
        to_hi[i] = __float_as_uint(x), to_lo[i] = __float_as_uint(y);
        ss = fmaf(y, y, fmaf(x, x, ss));
    }
    const float unit = unit_of<D>(j, query, ss);
#pragma unroll 1
    for (int i = lane; i < D / 2; i += 32) {
        split(__uint_as_float(to_hi[i]) * unit, __uint_as_float(to_lo[i]) * unit, to_hi[i], to_lo[i]);
    }
}

/* A row's log decay, their sum from the chunk's first row on, and beta. */
struct gate {
    float decay, sum, beta;
};
/* Of a chunk's rows, a lane a row, by a warp; old rows have no beta. */
PI_FN gate gates(const job &j, const sequence &s, int32_t head, int32_t col, const chunk &c, int lane)
{
    gate x = {0, 0, 0};
    if (lane < c.n_old) x.decay = *decay_at(j, s.slot, head, col, c.from + lane);
    else if (lane < c.n_old + c.n_new) {
        const int32_t token = s.first + c.from + lane - s.pos;
        const float y = j.a.alpha[token * j.a.ld_ab + head] + j.a.dt_bias[head];
        x.decay = j.a.a[head] * (y > 20.0f ? y : log1pf(expf(y)));
        x.beta = sigmoid(j.a.beta[token * j.a.ld_ab + head]);
    }
    float sum = 0;
#pragma unroll
    for (int r = 0; r < C; r++) {
        sum += __shfl_sync(PI_FULL, x.decay, r);
        x.sum = r == lane ? sum : x.sum;
    }
    return x;
}
/* The factors of k . S0 and q . S0. */
PI_FN float of_k(const gate &x) { return -x.beta * expf(x.sum) * KEY_UNIT; }
PI_FN float of_q(const gate &x) { return expf(x.sum) * KEY_UNIT; }

/* What is left of row l after row i (l = -1: of S0), by the log decays of the chunk's rows. Sums of their own, no
 * differences of sums: those have no digits left where a token forgets all, and the next ones hardly anything. */
PI_FN float left_of(const float *decay, int l, int i)
{
    float sum = 0;
#pragma unroll 4
    for (l++; l <= i; l++) sum += decay[l];
    return expf(sum);
}

/* out = o / sqrt(mean(o^2) + eps) * norm * silu(z) of one token and head; out may be o. */
template <int D> PI_FN void gated_norm(const job &j, const float *o, int32_t token, int32_t head, int lane)
{
    const float *z = j.a.z + token * j.a.ld_z + head * D + lane;
    float *out = j.a.out + token * j.a.ldo + head * D + lane, x[D / 32], ss = 0;
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        x[i] = o[lane + 32 * i];
        ss = fmaf(x[i], x[i], ss);
    }
    const float factor = ptx_rsqrt(fmaf(warp_sum(ss), 1.0f / (float) D, j.a.eps));
#pragma unroll
    for (int i = 0; i < D / 32; i++) out[32 * i] = x[i] * factor * j.a.norm[lane + 32 * i] * silu(z[32 * i]);
}

#endif
