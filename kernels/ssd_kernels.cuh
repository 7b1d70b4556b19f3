/* Mamba-2: op gdn without its delta term (pi__gdn), in float arithmetic. gdn.cuh has the formulas: here u_i = dt_i v_i,
 * so there is no triangular system. Keys have any length, so S0 is not split into F16 as the delta rule's.
 *
 * Template argument KDA: Kimi delta attention (pi__k_state.kda), a delta rule with a decay d_i[a] per channel a of the
 * key. The decays from row l to row i are products of d, from row i down to row l + 1, so none exceeds 1. prepare()
 * norms keys and queries, multiplies them by the decays from the chunk's start, and puts the decays into the products
 * with earlier keys. stage() multiplies the keys of a full chunk by the decays to its end. In scan() no decays of rows
 * remain; put_updates() solves the triangular system row by row, for each column of S0 separately.
 *
 * N = dim, rows of S0 and values of a key; P = dim_v, columns of S0. A step is three launches, which share
 * scan()'s chunks of C = 16 positions:
 *
 *     prepare   chunk x key head          convolution of keys and queries, their products, gates, to the scratch
 *     scan      columns x sequence        walks the chunks: one warp per 16 columns of S0, which stay in registers
 *     finish    chunk x key head          gate and norm of the outputs; rows that later steps need, to the slot; then
 *                                         the epilogue, if any
 *
 * A row's sums start at the chunk's S0 and run over the rows in order, so its bits depend neither on the step's cuts
 * nor on the batch. Prefill, decode and drafts are the same code.
 *
 *     slot      base | S0 [n_v][N][P] | u [n_v][R][P] | k [n_k][R][N] | g [n_v][R] | recent [R + 3][C']
 *     snapshot  S0 [n_v][N][P] | the 3 raw inputs before it [3][C']        (3: for 4 taps; C': channels)
 *
 * u, k, g (log2 decays; with KDA d [n_v][R][N]) and recent (raw inputs of the convolution) are rings: the row of
 * position p is at p % their length. scan() reads and writes only its own columns of S0, u and recent. The other parts
 * of the slot are written by finish(), when no kernel of the step reads them any more.
 *
 * In scan() lane l has columns l % 2 * 8 .. + 7 of the warp's 16, and N / 16 rows from l / 2 * (N / 16) on. Shared
 * memory: see scan_shape. */
#ifndef PI_SSD_KERNELS_CUH
#define PI_SSD_KERNELS_CUH

#include "gdn.cuh"
#include "tail.cuh"

namespace ssd {

using gdn::C;
using gdn::chunk;
using gdn::chunk_of;
using gdn::find_sequence;
using gdn::find_tile;
using gdn::four;
using gdn::job;
using gdn::LOG2E;
using gdn::sequence;
using gdn::slot_at;
using gdn::snap_at;

enum {
    PATCH = 16,         /* columns of a warp */
    ROWS_THREADS = 256, /* threads of prepare() and finish() */
    SCAN_THREADS = 256, /* max threads of the other kernels */
};

constexpr float KDA_EPS = 1e-6f; /* PI__KDA_EPS of ops.h */

/* Channels of the convolution; the first channel of a value head. */
PI_FN int32_t value_channel(const pi__k_state &st, int32_t head) { return 2 * st.n_k * st.dim + head * st.dim_v; }
PI_FN int32_t n_channels(const pi__k_state &st) { return value_channel(st, st.n_v); }

/* Addresses in a slot: S0 of a value head (also in a snapshot, with s = 0); the ring rows of position p. */
PI_FN float *state_at(const job &j, float *memory, size_t s, int32_t head)
{
    return memory + s + (size_t) head * (size_t) (j.a.state.dim * j.a.state.dim_v);
}
PI_FN float *u_at(const job &j, float *slot, int32_t head, int32_t p)
{
    return slot + j.at.x + (size_t) (head * j.at.rows.n + ring_row(j.at.rows, p)) * (size_t) j.a.state.dim_v;
}
PI_FN float *key_at(const job &j, float *slot, int32_t k_head, int32_t p)
{
    return slot + j.at.k + (size_t) (k_head * j.at.rows.n + ring_row(j.at.rows, p)) * (size_t) j.a.state.dim;
}
PI_FN float *g_at(const job &j, float *slot, int32_t head, int32_t p)
{
    return slot + j.at.g + head * j.at.rows.n + ring_row(j.at.rows, p);
}
/* With KDA: d of a head at position p [N]. */
PI_FN float *d_at(const job &j, float *slot, int32_t head, int32_t p)
{
    return slot + j.at.g + (size_t) (head * j.at.rows.n + ring_row(j.at.rows, p)) * (size_t) j.a.state.dim;
}
PI_FN float *raw_at(const job &j, float *slot, int32_t p)
{
    return slot + j.at.recent + (size_t) ring_row(j.at.recents, p) * (size_t) n_channels(j.a.state);
}
PI_FN float *raw_of_snap(const job &j, float *snap) { return state_at(j, snap, 0, j.a.state.n_v); }

/* Scratch, per token: keys and queries [n_k][tokens][2][N]; products of the token's query with the chunk's keys [n_k]
 * [tokens][C]; gates [n_v][tokens][2], log2 decay and dt. With KDA: keys and queries times decays; then products of the
 * token's key, [2][C] in all; gates: beta instead of dt, no log2 decay; and last, keys and decays [n_k][tokens][2][N].
 * */
PI_FN float *kq_of(const job &j, int32_t k_head, int32_t token)
{
    return (float *) j.a.scratch + (size_t) (uint32_t) (k_head * j.a.n_tokens + token) * (uint32_t) (2 * j.a.state.dim);
}
PI_FN float *dots_of(const job &j, int32_t k_head, int32_t token)
{
    const uint32_t each = j.a.state.kda ? 2 * C : C;
    return kq_of(j, j.a.state.n_k, 0) + (size_t) (uint32_t) (k_head * j.a.n_tokens + token) * each;
}
PI_FN float *gate_of(const job &j, int32_t head, int32_t token)
{
    return dots_of(j, j.a.state.n_k, 0) + (size_t) (uint32_t) (head * j.a.n_tokens + token) * 2;
}

PI_FN float *kd_of(const job &j, int32_t k_head, int32_t token)
{
    return gate_of(j, j.a.state.n_v, 0) + (size_t) (uint32_t) (k_head * j.a.n_tokens + token) * (2 * j.a.state.dim);
}

/* Returns the raw input of channel c at position p: of this step, or from the slot; 0 before position 0. */
PI_FN float input_of(const job &j, const sequence &s, int32_t p, int32_t c)
{
    if (p < 0) return 0;
    return p < s.pos ? raw_at(j, s.slot, p)[c] : j.a.qkv[(int64_t) (s.first + p - s.pos) * j.a.ld_qkv + c];
}
/* Returns silu of the convolution of channel c at position p. */
PI_FN float silu_of(const job &j, const sequence &s, int32_t p, int32_t c)
{
    const float *tap = j.a.conv + (int64_t) c * (j.at.history + 1);
    float sum = 0;
    for (int32_t i = 0; i <= j.at.history; i++) sum = fmaf(tap[i], input_of(j, s, p - j.at.history + i, c), sum);
    if (j.a.conv_bias) sum += j.a.conv_bias[c];
    return sum / (1.0f + expf(-sum));
}
/* Writes the raw inputs of channel c before each snapshot's position to the snapshot. Called before the step's inputs
 * of the channel are written to the slot. */
PI_FN void save_raw(const job &j, const sequence &s, int32_t c)
{
    for (int32_t i = 0; i < s.n_save; i++) {
        float *to = raw_of_snap(j, snap_at(j.a.state, s.save[2 * i + 1])) + c;
        for (int32_t h = 0; h < j.at.history; h++)
            to[h * n_channels(j.a.state)] = input_of(j, s, s.save[2 * i] - j.at.history + h, c);
    }
}

/* -------------------------------------------------------------------------------------------------------- prepare */

/* Computes the log2 decay and dt, or with KDA beta, of the chunk's new rows, for the value heads of a key head. */
PI_FN void put_gates(const job &j, int32_t k_head, int32_t token, int32_t n)
{
    const int32_t n_k = j.a.state.n_k, per = j.a.state.n_v / n_k;
    for (int32_t i = (int32_t) threadIdx.x; i < n * per; i += ROWS_THREADS) {
        const int32_t head = k_head + i % per * n_k, t = token + i / per;
        if (j.a.state.kda) {
            gate_of(j, head, t)[1] = 1.0f / (1.0f + expf(-j.a.beta[(int64_t) t * j.a.ld_ab + head]));
            continue;
        }
        const float x = j.a.alpha[(int64_t) t * j.a.ld_ab + head] + j.a.dt_bias[head];
        const float dt = x > 20 ? x : log1pf(expf(x));
        float *to = gate_of(j, head, t);
        to[0] = j.a.a[head] * dt * LOG2E, to[1] = dt;
    }
}

/* Shared memory of prepare(): keys, queries and, with KDA, decays: [C][PITCH] each. */
template <int N, bool KDA> struct prepare_shape {
    static constexpr int PITCH = N + 4;
    static constexpr size_t bytes = sizeof(float) * (KDA ? 3 : 2) * C * PITCH;
};

/* Returns the decay of channel d of a head, for token t. */
PI_FN float decay_of(const job &j, int32_t head, int32_t t, int32_t d)
{
    const int32_t channel = head * j.a.state.dim + d;
    const float x = j.a.alpha[(int64_t) t * j.a.ld_ab + channel] + j.a.dt_bias[channel], a = j.a.a[head];
    const float log = j.a.min_decay < 0 ? j.a.min_decay / (1.0f + expf(-a * x)) : a * (x > 20 ? x : log1pf(expf(x)));
    return expf(log);
}

/* KDA: loads the decays of the chunk's old rows, and computes those of the new rows. */
template <int N>
PI_FN void put_decays(const job &j, const sequence &s, const chunk &c, int32_t head, float *decays)
{
    constexpr int PITCH = prepare_shape<N, true>::PITCH;
    for (int32_t i = (int32_t) threadIdx.x; i < (c.n_old + c.n_new) * N; i += ROWS_THREADS) {
        const int32_t row = i / N, d = i % N, t = s.first + c.from + row - s.pos;
        const float x = row < c.n_old ? d_at(j, s.slot, head, c.from + row)[d] : decay_of(j, head, t, d);
        decays[row * PITCH + d] = x;
        if (row >= c.n_old) kd_of(j, head, t)[N + d] = x;
    }
}

/* KDA: norms the keys and queries of the new rows, one warp per row. Keys also go to the scratch. */
template <int N>
PI_FN void norm_rows(const job &j, const sequence &s, const chunk &c, int32_t head, float *keys, float *queries)
{
    constexpr int PITCH = prepare_shape<N, true>::PITCH;
    const int lane = (int) threadIdx.x % 32;
    for (int32_t i = (int32_t) threadIdx.x / 32; i < 2 * c.n_new; i += ROWS_THREADS / 32) {
        const int32_t row = c.n_old + i / 2;
        float *x = (i % 2 ? queries : keys) + row * PITCH + lane, squares = 0;
#pragma unroll
        for (int d = 0; d < N; d += 32) squares = fmaf(x[d], x[d], squares);
        const float f = 1.0f / sqrtf(warp_sum(squares) + KDA_EPS) / (i % 2 ? sqrtf((float) N) : 1.0f);
        float *to = kd_of(j, head, s.first + c.from + row - s.pos) + lane;
#pragma unroll
        for (int d = 0; d < N; d += 32) {
            x[d] *= f;
            if (i % 2 == 0) to[d] = x[d];
        }
    }
}

/* KDA: products of the new rows' queries and keys with earlier keys, times the decays between them; then keys and
 * queries times the decays from the chunk's start. One warp per row. */
template <int N>
PI_FN void decay_rows(const job &j, const sequence &s, const chunk &c, int32_t head, const float *keys,
                      const float *queries, const float *decays)
{
    constexpr int PITCH = prepare_shape<N, true>::PITCH, EACH = N / 32;
    const int lane = (int) threadIdx.x % 32;
    for (int32_t i = c.n_old + (int32_t) threadIdx.x / 32; i < c.n_old + c.n_new; i += ROWS_THREADS / 32) {
        const int32_t token = s.first + c.from + i - s.pos;
        float *dots = dots_of(j, head, token), *kq = kq_of(j, head, token);
        float k[EACH], q[EACH], decay[EACH];
#pragma unroll
        for (int d = 0; d < EACH; d++) {
            k[d] = keys[i * PITCH + d * 32 + lane];
            q[d] = queries[i * PITCH + d * 32 + lane];
            decay[d] = 1;
        }
#pragma unroll 1
        for (int32_t l = i; l >= 0; l--) {
            float kk = 0, qk = 0;
#pragma unroll
            for (int d = 0; d < EACH; d++) {
                const float x = decay[d] * keys[l * PITCH + d * 32 + lane];
                kk = fmaf(k[d], x, kk);
                qk = fmaf(q[d], x, qk);
                decay[d] *= decays[l * PITCH + d * 32 + lane];
            }
            kk = warp_sum(kk), qk = warp_sum(qk);
            if (lane == 0) dots[l] = qk, dots[C + l] = kk;
        }
#pragma unroll
        for (int d = 0; d < EACH; d++) {
            kq[d * 32 + lane] = k[d] * decay[d];
            kq[N + d * 32 + lane] = q[d] * decay[d];
        }
    }
}

/* prepare() for keys of N values. */
template <int N, bool KDA> PI_FN void prepare_tile(const job &j, float *keys)
{
    constexpr int PITCH = prepare_shape<N, KDA>::PITCH;
    float *queries = keys + C * PITCH;
    const int32_t k_head = (int32_t) blockIdx.y, thread = (int32_t) threadIdx.x;
    sequence s;
    chunk c;
    if (!find_tile(j, (int32_t) blockIdx.x, s, c)) return;
    const int32_t p0 = c.from + c.n_old, token = s.first + p0 - s.pos, n_k = j.a.state.n_k;
    for (int32_t i = thread; i < c.n_old * N; i += ROWS_THREADS)
        keys[i / N * PITCH + i % N] = key_at(j, s.slot, k_head, c.from + i / N)[i % N];
    for (int32_t i = thread; i < c.n_new * 2 * N; i += ROWS_THREADS) {
        const int32_t row = i / (2 * N), query = i / N % 2, d = i % N;
        const float x = silu_of(j, s, p0 + row, ((query ? 0 : n_k) + k_head) * N + d);
        (query ? queries : keys)[(c.n_old + row) * PITCH + d] = x;
        if (!KDA) kq_of(j, k_head, token + row)[query * N + d] = x;
    }
    if (KDA) put_decays<N>(j, s, c, k_head, queries + C * PITCH);
    put_gates(j, k_head, token, c.n_new);
    if (p0 == s.pos)
        for (int32_t d = thread; d < 2 * N; d += ROWS_THREADS) save_raw(j, s, (d / N * n_k + k_head) * N + d % N);
    __syncthreads();
    if (KDA) {
        norm_rows<N>(j, s, c, k_head, keys, queries);
        __syncthreads();
        decay_rows<N>(j, s, c, k_head, keys, queries, queries + C * PITCH);
        return;
    }
    const int32_t row = thread / C, l = thread % C;
    if (row < c.n_old || row >= c.n_old + c.n_new || l > row) return;
    float sum = 0;
    for (int32_t d = 0; d < N; d += 4) {
        float q[4], k[4];
        four(*(const float4 *) (queries + row * PITCH + d), q);
        four(*(const float4 *) (keys + l * PITCH + d), k);
        for (int i = 0; i < 4; i++) sum = fmaf(q[i], k[i], sum);
    }
    dots_of(j, k_head, token + row - c.n_old)[l] = sum;
}

static __global__ void __launch_bounds__(ROWS_THREADS) prepare(PI_CONSTANT job j)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    float *sm = (float *) raw;
    const bool kda = j.a.state.kda;
    switch (j.a.state.dim) {
    case 32: return kda ? prepare_tile<32, true>(j, sm) : prepare_tile<32, false>(j, sm);
    case 64: return kda ? prepare_tile<64, true>(j, sm) : prepare_tile<64, false>(j, sm);
    case 128: return kda ? prepare_tile<128, true>(j, sm) : prepare_tile<128, false>(j, sm);
    default: return prepare_tile<256, false>(j, sm);
    }
}

/* ----------------------------------------------------------------------------------------------------------- scan */

/* Shared memory of scan() and save(), in words. Of the block: keys and queries; factors of u in outputs; log2 decays;
 * their sums; dt; with KDA the factors of u in predictions, the keys of a fold, and the decays of the chunk. Then of
 * each warp: u, x (values) and q . S0 of the chunk, with KDA also k . S0: [C][PATCH] each. */
template <int N, bool KDA> struct scan_shape {
    static constexpr int PITCH = N + 4;
    static constexpr int keys = 0, queries = C * PITCH, mix = 2 * C * PITCH, decay = mix + C * C;
    static constexpr int sum = decay + C, dt = sum + C, mix_k = dt + C, folded = mix_k + (KDA ? C * C : 0);
    static constexpr int all = folded + (KDA ? C * PITCH : 0), own = all + (KDA ? N : 0);
    static constexpr int U = 0, X = C * PATCH, QS = 2 * C * PATCH, KS = 3 * C * PATCH;
    static constexpr int OWN = (KDA ? 4 : 3) * C * PATCH;
    static constexpr size_t bytes(int warps) { return sizeof(float) * (size_t) (own + warps * OWN); }
};

/* A lane's part of S0. */
template <int N> struct patch {
    static constexpr int ROWS = N / 16;
    float x[ROWS][8];
};
/* Returns the address of the lane's first value in S0 at s. */
template <int N> PI_FN float *lane_of(const job &j, float *s, int32_t col)
{
    const int lane = (int) threadIdx.x % 32;
    return s + (size_t) (lane / 2 * (N / 16)) * (size_t) j.a.state.dim_v + col + lane % 2 * 8;
}
template <int N> PI_FN void load_patch(const job &j, float *s, int32_t col, patch<N> &st)
{
    const float *from = lane_of<N>(j, s, col);
#pragma unroll
    for (int r = 0; r < N / 16; r++, from += j.a.state.dim_v) {
        const float4 a = *(const float4 *) from, b = *(const float4 *) (from + 4);
        st.x[r][0] = a.x, st.x[r][1] = a.y, st.x[r][2] = a.z, st.x[r][3] = a.w;
        st.x[r][4] = b.x, st.x[r][5] = b.y, st.x[r][6] = b.z, st.x[r][7] = b.w;
    }
}
template <int N> PI_FN void store_patch(const job &j, float *s, int32_t col, const patch<N> &st)
{
    float *to = lane_of<N>(j, s, col);
#pragma unroll
    for (int r = 0; r < N / 16; r++, to += j.a.state.dim_v) {
        *(float4 *) to = {st.x[r][0], st.x[r][1], st.x[r][2], st.x[r][3]};
        *(float4 *) (to + 4) = {st.x[r][4], st.x[r][5], st.x[r][6], st.x[r][7]};
    }
}
template <int N>
PI_FN void save_patch(const job &j, const sequence &s, int32_t head, int32_t col, int32_t pos, const patch<N> &st)
{
    for (int32_t i = 0; i < s.n_save; i++)
        if (s.save[2 * i] == pos)
            store_patch<N>(j, state_at(j, snap_at(j.a.state, s.save[2 * i + 1]), 0, head), col, st);
}

/* Computes the sums of log2 decays up to each row, by the block's first threads. */
template <int N> PI_FN void put_sums(float *sm)
{
    using S = scan_shape<N, false>;
    const int i = (int) threadIdx.x;
    if (i >= C) return;
    float sum = 0;
    for (int l = 0; l <= i; l++) sum += sm[S::decay + l];
    sm[S::sum + i] = sum;
}

/* KDA: loads the keys of a full chunk, times the decays of later rows, and the product of all decays. */
template <int N> PI_FN void put_folded(const job &j, const sequence &s, const chunk &c, int32_t head, float *sm)
{
    using S = scan_shape<N, true>;
    for (int32_t d = (int32_t) threadIdx.x; d < N; d += (int32_t) blockDim.x) {
        float decay = 1;
#pragma unroll 4
        for (int32_t l = C - 1; l >= 0; l--) {
            const bool old = l < c.n_old;
            const float *made = kd_of(j, head, old ? 0 : s.first + c.from + l - s.pos) + d;
            const float k = old ? key_at(j, s.slot, head, c.from + l)[d] : made[0];
            sm[S::folded + l * S::PITCH + d] = k * decay;
            decay *= old ? d_at(j, s.slot, head, c.from + l)[d] : made[N];
        }
        sm[S::all + d] = decay;
    }
}

/* Loads a chunk: keys (KDA: of new rows, and those of a fold), and for new rows queries and gates. Ends with a barrier,
 * after the sums of the decays. */
template <int N, bool KDA>
PI_FN void stage(const job &j, const sequence &s, const chunk &c, int32_t head, float *sm)
{
    using S = scan_shape<N, KDA>;
    const int32_t k_head = head % j.a.state.n_k, token = s.first + c.from - s.pos, end = c.n_old + c.n_new;
    for (int32_t i = (int32_t) threadIdx.x; i < end * (N / 4); i += (int32_t) blockDim.x) {
        const int32_t row = i / (N / 4), d = i % (N / 4) * 4;
        if (KDA && row < c.n_old) continue;
        const float *from = row < c.n_old ? key_at(j, s.slot, k_head, c.from + row) : kq_of(j, k_head, token + row);
        *(float4 *) (sm + S::keys + row * S::PITCH + d) = *(const float4 *) (from + d);
        if (row >= c.n_old) *(float4 *) (sm + S::queries + row * S::PITCH + d) = *(const float4 *) (from + N + d);
    }
    for (int32_t row = (int32_t) threadIdx.x; row < C; row += (int32_t) blockDim.x) {
        const bool old = row < c.n_old, made = !old && row < end;
        const float *gate = gate_of(j, head, made ? token + row : 0);
        if (!KDA) sm[S::decay + row] = old ? *g_at(j, s.slot, head, c.from + row) : made ? gate[0] : 0.0f;
        sm[S::dt + row] = made ? gate[1] : 0.0f;
    }
    if (KDA && end == C) put_folded<N>(j, s, c, head, sm);
    __syncthreads();
    if (KDA) return;
    put_sums<N>(sm);
    __syncthreads();
}

/* mix[i][l] = the factor of u_l in the output of new row i; with KDA mix_k[i][l] = that in its prediction. */
template <int N, bool KDA>
PI_FN void put_mix(const job &j, const sequence &s, const chunk &c, int32_t k_head, float *sm)
{
    using S = scan_shape<N, KDA>;
    const int32_t token = s.first + c.from - s.pos;
    for (int32_t n = (int32_t) threadIdx.x; n < C * C; n += (int32_t) blockDim.x) {
        const int32_t i = n / C, l = n % C;
        if (i < c.n_old || i >= c.n_old + c.n_new || l > i) continue;
        if (KDA) {
            sm[S::mix + n] = dots_of(j, k_head, token + i)[l];
            sm[S::mix_k + n] = dots_of(j, k_head, token + i)[C + l];
            continue;
        }
        sm[S::mix + n] = ptx_exp2(sm[S::sum + i] - sm[S::sum + l]) * dots_of(j, k_head, token + i)[l];
    }
}

/* Fills in the warp's u of all rows (KDA: of old rows), and x of the new rows, for its columns col .. col + 15. u of
 * chunks from s.keep on is also written to the slot. Called by a warp. */
template <int N, bool KDA>
PI_FN void put_values(const job &j, const sequence &s, const chunk &c, int32_t head, int32_t col, const float *sm,
                      float *own)
{
    using S = scan_shape<N, KDA>;
    const int lane = (int) threadIdx.x % 32, b = lane % PATCH;
    const int32_t channel = value_channel(j.a.state, head) + col + b;
#pragma unroll 1
    for (int32_t row = lane / PATCH; row < c.n_old + c.n_new; row += 2) {
        float *kept = u_at(j, s.slot, head, c.from + row) + col + b;
        if (row < c.n_old) {
            own[S::U + row * PATCH + b] = *kept;
            continue;
        }
        const float x = silu_of(j, s, c.from + row, channel), u = sm[S::dt + row] * x;
        own[S::X + row * PATCH + b] = x;
        if (KDA) continue;
        own[S::U + row * PATCH + b] = u;
        if (c.from >= s.keep) *kept = u;
    }
}

/* Adds x[0 .. 7] of the 16 lanes with the same columns. Returns the sum of column i of the 8, i from bits 1 to 3 of the
 * lane: its bit 0 is bit 2 of i. */
PI_FN float sum_columns(const float (&x)[8])
{
    const int lane = (int) threadIdx.x % 32;
    float a[4], b[2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float give = lane & 2 ? x[i] : x[i + 4];
        a[i] = (lane & 2 ? x[i + 4] : x[i]) + __shfl_xor_sync(PI_FULL, give, 2);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float give = lane & 4 ? a[i] : a[i + 2];
        b[i] = (lane & 4 ? a[i + 2] : a[i]) + __shfl_xor_sync(PI_FULL, give, 4);
    }
    const float give = lane & 8 ? b[0] : b[1];
    float sum = (lane & 8 ? b[1] : b[0]) + __shfl_xor_sync(PI_FULL, give, 8);
    return sum + __shfl_xor_sync(PI_FULL, sum, 16);
}
/* Returns the column, of the warp's 16, that sum_columns() gives a lane. */
PI_FN int column_of_sum(int lane)
{
    return lane % 2 * 8 + (lane & 2 ? 4 : 0) + (lane & 4 ? 2 : 0) + (lane & 8 ? 1 : 0);
}

/* own[to] = x . S0 of the new rows, for the warp's columns. x: the queries or keys in sm. */
template <int N>
PI_FN void times_state(const patch<N> &st, const chunk &c, const float *x_rows, float *own)
{
    constexpr int PITCH = scan_shape<N, false>::PITCH;
    const int lane = (int) threadIdx.x % 32, column = column_of_sum(lane);
#pragma unroll 1
    for (int32_t row = c.n_old; row < c.n_old + c.n_new; row++) {
        const float *q = x_rows + row * PITCH + lane / 2 * (N / 16);
        float y[8] = {};
#pragma unroll
        for (int r = 0; r < N / 16; r++) {
            const float x = q[r];
#pragma unroll
            for (int i = 0; i < 8; i++) y[i] = fmaf(x, st.x[r][i], y[i]);
        }
        const float sum = sum_columns(y);
        if (lane < 16) own[row * PATCH + column] = sum;
    }
}

/* KDA: u of the new rows for the warp's columns, one row after the other; lanes 0 to 15 have a column each. u of chunks
 * from s.keep on is also written to the slot. */
template <int N>
PI_FN void put_updates(const job &j, const sequence &s, const chunk &c, int32_t head, int32_t col, const float *sm,
                       float *own)
{
    using S = scan_shape<N, true>;
    const int b = (int) threadIdx.x % 32;
#pragma unroll 1
    for (int32_t row = c.n_old; row < c.n_old + c.n_new && b < PATCH; row++) {
        float p = own[S::KS + row * PATCH + b];
        for (int32_t l = 0; l < row; l++) p = fmaf(sm[S::mix_k + row * C + l], own[S::U + l * PATCH + b], p);
        const float u = sm[S::dt + row] * (own[S::X + row * PATCH + b] - p);
        own[S::U + row * PATCH + b] = u;
        if (c.from >= s.keep) u_at(j, s.slot, head, c.from + row)[col + b] = u;
    }
    __syncwarp();
}

/* Writes the outputs of the new rows for the warp's columns, with the skipped values, before the gate. */
template <int N, bool KDA>
PI_FN void put_outputs(const job &j, const sequence &s, const chunk &c, int32_t head, int32_t col, const float *sm,
                       const float *own)
{
    using S = scan_shape<N, KDA>;
    const int lane = (int) threadIdx.x % 32, b = lane % PATCH;
    const float skip = j.a.skip ? j.a.skip[head] : 0.0f;
    float *out = j.a.out + (int64_t) (s.first + c.from - s.pos) * j.a.ldo + gdn::out_head(j.a, head) * j.a.state.dim_v +
                 col + b;
#pragma unroll 1
    for (int32_t row = c.n_old + lane / PATCH; row < c.n_old + c.n_new; row += 2) {
        float o = (KDA ? 1.0f : ptx_exp2(sm[S::sum + row])) * own[S::QS + row * PATCH + b];
        for (int32_t l = 0; l <= row; l++) o = fmaf(sm[S::mix + row * C + l], own[S::U + l * PATCH + b], o);
        out[(int64_t) row * j.a.ldo] = KDA ? o : fmaf(skip, own[S::X + row * PATCH + b], o);
    }
}

/* Folds a full chunk into the warp's part of S0. */
template <int N, bool KDA> PI_FN void fold(patch<N> &st, const float *sm, const float *own)
{
    using S = scan_shape<N, KDA>;
    const int lane = (int) threadIdx.x % 32, keys = KDA ? S::folded : S::keys;
    const float all = KDA ? 1.0f : ptx_exp2(sm[S::sum + C - 1]);
#pragma unroll
    for (int i = 0; i < N / 2; i++) st.x[i / 8][i % 8] *= KDA ? sm[S::all + lane / 2 * (N / 16) + i / 8] : all;
#pragma unroll 1
    for (int l = 0; l < C; l++) {
        const float left = KDA ? 1.0f : ptx_exp2(sm[S::sum + C - 1] - sm[S::sum + l]);
        const float *k = sm + keys + l * S::PITCH + lane / 2 * (N / 16), *u = own + S::U + l * PATCH + lane % 2 * 8;
        float w[8];
#pragma unroll
        for (int i = 0; i < 8; i++) w[i] = left * u[i];
#pragma unroll
        for (int r = 0; r < N / 16; r++) {
#pragma unroll
            for (int i = 0; i < 8; i++) st.x[r][i] = fmaf(k[r], w[i], st.x[r][i]);
        }
    }
}

/* Writes the step's raw inputs that later steps need, and those before snapshots, of the warp's channels. */
PI_FN void keep_values(const job &j, const sequence &s, int32_t channel)
{
    const int lane = (int) threadIdx.x % 32, c = channel + lane % PATCH;
    if (lane < PATCH) save_raw(j, s, c);
    __syncwarp();
    for (int32_t p = max(s.keep - j.at.history, s.pos) + lane / PATCH; p < s.end; p += 2)
        raw_at(j, s.slot, p)[c] = j.a.qkv[(int64_t) (s.first + p - s.pos) * j.a.ld_qkv + c];
}

/* A warp's columns of a value head. */
struct part {
    int32_t head, col;
};
PI_FN part part_of(const job &j, int32_t block)
{
    const int32_t width = (int32_t) blockDim.x / 32 * PATCH, each = j.a.state.dim_v / width;
    return {block / each, block % each * width + (int32_t) threadIdx.x / 32 * PATCH};
}

/* Grid: x = columns of all value heads, by blocks; y = sequence. Block: one warp per 16 columns. */
template <int N, bool KDA> __global__ void __launch_bounds__(SCAN_THREADS) scan(job j)
{
    ptx_wait_dependency();
    using S = scan_shape<N, KDA>;
    PI_SMEM(raw);
    float *sm = (float *) raw, *own = sm + S::own + threadIdx.x / 32 * S::OWN;
    const part w = part_of(j, (int32_t) blockIdx.x);
    sequence s;
    if (!find_sequence(j, (int32_t) blockIdx.y, s)) return;
    int32_t from = s.pos ? *(const int32_t *) s.slot : 0;
    float *s0 = state_at(j, s.slot, j.at.s, w.head);
    patch<N> st = {};
    if (from) load_patch<N>(j, s0, w.col, st);
#pragma unroll 1
    for (; from < s.end; from += C) {
        const chunk c = chunk_of(s, from);
        __syncthreads(); /* the previous chunk has been read */
        stage<N, KDA>(j, s, c, w.head, sm);
        put_mix<N, KDA>(j, s, c, w.head % j.a.state.n_k, sm);
        put_values<N, KDA>(j, s, c, w.head, w.col, sm, own);
        if (from <= s.verified) save_patch<N>(j, s, w.head, w.col, from, st);
        times_state<N>(st, c, sm + S::queries, own + S::QS);
        if (KDA) times_state<N>(st, c, sm + S::keys, own + S::KS);
        __syncthreads();
        if constexpr (KDA) put_updates<N>(j, s, c, w.head, w.col, sm, own);
        put_outputs<N, KDA>(j, s, c, w.head, w.col, sm, own);
        if (from + C <= s.verified || from + C < s.end) fold<N, KDA>(st, sm, own);
        if (from + C == s.keep) store_patch<N>(j, s0, w.col, st);
    }
    if (from <= s.verified) save_patch<N>(j, s, w.head, w.col, from, st);
    __syncwarp();
    keep_values(j, s, value_channel(j.a.state, w.head) + w.col);
}

/* --------------------------------------------------------------------------------------------------------- finish */

/* KDA: norms one row of a head, then applies its gate, in place. Called by the block. */
PI_FN void norm_row(const job &j, int32_t token, int32_t head, float *sums)
{
    const int32_t P = j.a.state.dim_v, i = (int32_t) threadIdx.x;
    float *out = j.a.out + (int64_t) token * j.a.ldo + gdn::out_head(j.a, head) * P;
    const float y = i < P ? out[i] : 0.0f, f = 1.0f / sqrtf(block_sum(y * y, sums) / (float) P + j.a.eps);
    if (i >= P) return;
    const float z = j.a.z[(int64_t) token * j.a.ld_z + head * P + i];
    out[i] = y * f * j.a.norm[i] / (1.0f + expf(-z));
}

/* Gates and norms one row of a key head's value heads, in place. Called by the block. */
PI_FN void gate_row(const job &j, int32_t token, int32_t k_head, float *sums)
{
    const int32_t n_k = j.a.state.n_k, P = j.a.state.dim_v, width = j.a.state.n_v / n_k * P;
    float *out = j.a.out + (int64_t) token * j.a.ldo + k_head * width, square = 0;
    for (int32_t i = (int32_t) threadIdx.x; i < width; i += ROWS_THREADS) {
        const float z = j.a.z[(int64_t) token * j.a.ld_z + (k_head + i / P * n_k) * P + i % P];
        const float y = out[i] * (z / (1.0f + expf(-z)));
        out[i] = y;
        square = fmaf(y, y, square);
    }
    if (!j.a.norm) return;
    const float mean = block_sum(square, sums) / (float) width, f = 1.0f / sqrtf(mean + j.a.eps);
    for (int32_t i = (int32_t) threadIdx.x; i < width; i += ROWS_THREADS) out[i] *= f * j.a.norm[k_head * width + i];
}

/* Writes what later steps need to the slot: keys and gates of the chunk's new rows, raw inputs of queries and keys. */
PI_FN void keep_rows(const job &j, const sequence &s, const chunk &c, int32_t k_head)
{
    const int32_t N = j.a.state.dim, n_k = j.a.state.n_k, per = j.a.state.n_v / n_k, p0 = c.from + c.n_old;
    const int32_t token = s.first + p0 - s.pos, thread = (int32_t) threadIdx.x;
    for (int32_t i = thread; i < c.n_new * 2 * N; i += ROWS_THREADS) {
        const int32_t p = p0 + i / (2 * N), t = token + i / (2 * N), channel = (i / N % 2 * n_k + k_head) * N + i % N;
        if (p >= s.keep - j.at.history)
            raw_at(j, s.slot, p)[channel] = j.a.qkv[(int64_t) t * j.a.ld_qkv + channel];
        if (c.from < s.keep) continue;
        const float *made = j.a.state.kda ? kd_of(j, k_head, t) : kq_of(j, k_head, t);
        if (i / N % 2) key_at(j, s.slot, k_head, p)[i % N] = made[i % N];
        else if (j.a.state.kda) d_at(j, s.slot, k_head, p)[i % N] = made[N + i % N];
    }
    for (int32_t i = thread; i < c.n_new * per && c.from >= s.keep && !j.a.state.kda; i += ROWS_THREADS) {
        const int32_t head = k_head + i % per * n_k;
        *g_at(j, s.slot, head, p0 + i / per) = gate_of(j, head, token + i / per)[0];
    }
    if (p0 == s.pos && k_head == 0 && thread == 0) *(int32_t *) s.slot = s.keep;
}

/* Grid: x = chunk (find_tile()), y = key head. */
PI_FN void finish_tile(const job &j, float *sums)
{
    sequence s;
    chunk c;
    if (!find_tile(j, (int32_t) blockIdx.x, s, c)) return;
    const int32_t token = s.first + c.from + c.n_old - s.pos;
    for (int32_t r = 0; r < c.n_new; r++) {
        if (j.a.state.kda) norm_row(j, token + r, (int32_t) blockIdx.y, sums);
        else gate_row(j, token + r, (int32_t) blockIdx.y, sums);
        __syncthreads(); /* `sums` has been read */
    }
    keep_rows(j, s, c, (int32_t) blockIdx.y);
}
static __global__ void __launch_bounds__(ROWS_THREADS) finish(PI_CONSTANT job j)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    finish_tile(j, (float *) raw);
    if (j.tail.arrived) run_input_tail(j.tail, raw);
}

/* -------------------------------------------------------------------------------------------------- save and load */

/* Copies the raw inputs of `history` positions before pos between slot and snapshot, for all channels, by the grid. */
PI_FN void move_raw(const job &j, float *slot, float *snap, int32_t pos, bool load)
{
    const int32_t n = n_channels(j.a.state), step = (int32_t) (gridDim.x * blockDim.x);
    for (int32_t i = (int32_t) (blockIdx.x * blockDim.x + threadIdx.x); i < n * j.at.history; i += step) {
        float *kept = raw_of_snap(j, snap) + i, *row = raw_at(j, slot, pos - j.at.history + i / n) + i % n;
        if (load) *row = *kept;
        else *kept = *row;
    }
}

/* save() and load() for states of N values per column. */
template <int N, bool KDA>
PI_FN void save_part(const job &j, int32_t slot_index, int32_t pos, int32_t snap_index, float *sm)
{
    using S = scan_shape<N, KDA>;
    float *own = sm + S::own + threadIdx.x / 32 * S::OWN;
    float *snap = snap_at(j.a.state, snap_index);
    const part w = part_of(j, (int32_t) blockIdx.x);
    sequence s = {};
    s.slot = slot_at(j.a.state, slot_index);
    s.pos = pos;
    patch<N> st = {};
    int32_t from = *(const int32_t *) s.slot;
    if (from) load_patch<N>(j, state_at(j, s.slot, j.at.s, w.head), w.col, st);
#pragma unroll 1
    for (; from < pos; from += C) {
        const chunk c = {from, C, 0};
        __syncthreads();
        stage<N, KDA>(j, s, c, w.head, sm);
        put_values<N, KDA>(j, s, c, w.head, w.col, sm, own);
        __syncwarp();
        fold<N, KDA>(st, sm, own);
    }
    store_patch<N>(j, state_at(j, snap, 0, w.head), w.col, st);
    move_raw(j, s.slot, snap, pos, false);
}

template <int N> PI_FN void load_part(const job &j, int32_t slot_index, int32_t pos, int32_t snap_index)
{
    float *slot = slot_at(j.a.state, slot_index), *snap = snap_at(j.a.state, snap_index);
    const part w = part_of(j, (int32_t) blockIdx.x);
    patch<N> st;
    load_patch<N>(j, state_at(j, snap, 0, w.head), w.col, st);
    store_patch<N>(j, state_at(j, slot, j.at.s, w.head), w.col, st);
    if (blockIdx.x == 0 && threadIdx.x == 0) *(int32_t *) slot = pos;
    move_raw(j, slot, snap, pos, true);
}

/* Saves the state at pos, a multiple of C: S0 with the full chunks from base to pos. Grid: x as for scan(). */
__global__ void __launch_bounds__(SCAN_THREADS)
    save(PI_CONSTANT job j, int32_t slot_index, int32_t pos, int32_t snap_index)
{
    PI_SMEM(raw);
    float *sm = (float *) raw;
    const bool kda = j.a.state.kda;
    switch (j.a.state.dim) {
    case 32:
        return kda ? save_part<32, true>(j, slot_index, pos, snap_index, sm)
                   : save_part<32, false>(j, slot_index, pos, snap_index, sm);
    case 64:
        return kda ? save_part<64, true>(j, slot_index, pos, snap_index, sm)
                   : save_part<64, false>(j, slot_index, pos, snap_index, sm);
    case 128:
        return kda ? save_part<128, true>(j, slot_index, pos, snap_index, sm)
                   : save_part<128, false>(j, slot_index, pos, snap_index, sm);
    default: return save_part<256, false>(j, slot_index, pos, snap_index, sm);
    }
}

/* Loads a snapshot into a slot, with base = pos. Grid: x as for scan(). */
__global__ void __launch_bounds__(SCAN_THREADS)
    load(PI_CONSTANT job j, int32_t slot_index, int32_t pos, int32_t snap_index)
{
    switch (j.a.state.dim) {
    case 32: return load_part<32>(j, slot_index, pos, snap_index);
    case 64: return load_part<64>(j, slot_index, pos, snap_index);
    case 128: return load_part<128>(j, slot_index, pos, snap_index);
    default: return load_part<256>(j, slot_index, pos, snap_index);
    }
}

} /* namespace ssd */

#endif
