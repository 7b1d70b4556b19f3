/* Selective scans (op scan in ops.h) and their states.
 *
 *     slot      | end [C] | base state [N][C] | state [N][C] | later states [N][C] | draft rows: x [C], dt [C], b |
 *     snapshot  | state [N][C] |
 *
 * `end` is the end of the verified tokens, once per channel. base is the last multiple of PI__STATE_CHUNK at or before
 * it; the base state serves snapshots. The later states do so if drafts are accepted, at multiples of PI__STATE_CHUNK
 * after base. Rows hold the inputs of drafts: dt after softplus; b after its norm, once per block of threads. If the
 * next step accepts drafts, it first repeats their updates from the rows. A step of an early-exit drafter continues
 * after unverified tokens: its n_verified is negative.
 *
 * A thread has a channel of one sequence, its state in registers, and walks the tokens. The kernels have 128 registers
 * for N = 16, and 167 for 32. A thread touches only its channel of the slot, except for the rows of b. A block's
 * threads read them before the barrier; its first thread writes them after it. So a token's bits depend on the tokens
 * before it only. */
#ifndef PI_SCAN_KERNELS_CUH
#define PI_SCAN_KERNELS_CUH

#include "backend/cuda/kernels_scan.h"
#include "ptx.cuh"

namespace scan {

enum { THREADS = 128, CHUNK = PI__STATE_CHUNK };

constexpr float LOG2E = 1.44269504f;

/* Returns the max number of multiples of CHUNK among the positions after a step's drafts. */
static __host__ __device__ __forceinline__ int32_t n_later(const pi__k_scan &a)
{
    return (a.n_draft + CHUNK - 1) / CHUNK;
}

/* A slot's parts, at one channel. */
struct record {
    int32_t *end;
    float *base, *state, *later; /* values n_channel apart */
    float *x, *dt;               /* of draft i: at i * n_channel */
    float *b;                    /* of draft i: at i * n_state */
};

PI_FN record record_at(const pi__k_scan &a, int32_t slot, int32_t channel)
{
    const size_t size = (size_t) a.n_state * (size_t) a.n_channel, rows = (size_t) a.n_draft * (size_t) a.n_channel;
    float *p = (float *) (a.base + (size_t) slot * a.stride), *base = p + a.n_channel, *later = base + 2 * size;
    float *x = later + (size_t) n_later(a) * size, *b = x + 2 * rows;
    return {(int32_t *) p + channel, base + channel, base + size + channel, later + channel, x + channel,
            x + rows + channel, b + (size_t) (channel / THREADS * a.n_draft * a.n_state)};
}

PI_FN float *snap_at(const pi__k_scan &a, int32_t snap, int32_t channel)
{
    return (float *) (a.snap + (size_t) snap * a.snap_stride) + channel;
}

PI_FN int32_t base_of(int32_t end) { return end / CHUNK * CHUNK; }

/* Returns the state for a snapshot at pos: base, or a later multiple of CHUNK. */
PI_FN float *state_of(const pi__k_scan &a, const record &r, int32_t base, int32_t pos)
{
    const size_t size = (size_t) a.n_state * (size_t) a.n_channel;
    return pos == base ? r.base : r.later + (size_t) ((pos - base) / CHUNK - 1) * size;
}

PI_FN float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

/* A thread's part of a step. */
template <int N> struct thread {
    const pi__k_scan &a;
    record r;
    int32_t seq, channel, verified; /* sequence in the batch; position after its last verified token */
    bool on;                        /* false = a thread after the last channel, which writes nothing */
    float h[N], decay[N];           /* the state; log2 e times the channel's `a` */

    __device__ __forceinline__ void load(const float *p)
    {
#pragma unroll
        for (int s = 0; s < N; s++) h[s] = on ? p[(size_t) s * (size_t) a.n_channel] : 0;
    }
    __device__ __forceinline__ void store(float *p) const
    {
        if (!on) return;
#pragma unroll
        for (int s = 0; s < N; s++) p[(size_t) s * (size_t) a.n_channel] = h[s];
    }
    __device__ __forceinline__ void update(float x, float dt, const float (&b)[N])
    {
        const float u = dt * x;
#pragma unroll
        for (int s = 0; s < N; s++) h[s] = fmaf(ptx_exp2(dt * decay[s]), h[s], u * b[s]);
    }
    /* Stores the state after p tokens in the snapshots for p. */
    __device__ __forceinline__ void save(int32_t p) const
    {
        for (int32_t k = a.save_start[seq]; k < a.save_start[seq + 1]; k++)
            if (a.save[2 * k] == p) store(snap_at(a, a.save[2 * k + 1], channel));
    }
    /* Stores the state after p tokens where later steps need it. */
    __device__ __forceinline__ void mark(int32_t p) const
    {
        if (p % CHUNK) return;
        save(p);
        if (p == base_of(verified)) store(r.base);
    }
};

/* out = N values, normed with the weights w; w NULL = not normed. */
template <int N> PI_FN void take_normed(const float *x, const float *w, float eps, float (&out)[N])
{
    float sum = 0;
#pragma unroll
    for (int s = 0; s < N; s++) out[s] = x[s], sum = fmaf(x[s], x[s], sum);
    if (!w) return;
    const float f = 1 / sqrtf(sum / N + eps);
#pragma unroll
    for (int s = 0; s < N; s++) out[s] = out[s] * f * w[s];
}

/* Stores the state after p tokens, if a snapshot may need it after the drafts up to p were accepted. */
template <int N> PI_FN void keep_later(const thread<N> &t, int32_t p)
{
    if (p % CHUNK == 0) t.store(state_of(t.a, t.r, base_of(t.verified), p));
}

/* Brings the state to the step's first token: from zeros, or by repeating drafts of the steps before. Accepted ones
 * come first. Rows of the others move to the front; those of b do so later. */
template <int N> PI_FN void begin(thread<N> &t, int32_t pos, int32_t end)
{
    const pi__k_scan &a = t.a;
    if (pos) {
        t.load(t.r.base);
        t.save(base_of(end));
        t.load(t.r.state);
    } else {
#pragma unroll
        for (int s = 0; s < N; s++) t.h[s] = 0;
        t.mark(0);
    }
    for (int32_t p = end; p < pos; p++) {
        const int32_t i = p - end, to = p - t.verified;
        const float x = t.r.x[(size_t) i * (size_t) a.n_channel], dt = t.r.dt[(size_t) i * (size_t) a.n_channel];
        float b[N];
#pragma unroll
        for (int s = 0; s < N; s++) b[s] = t.r.b[i * N + s];
        if (to == 0) t.store(t.r.state);
        if (to >= 0 && t.on) {
            t.r.x[(size_t) to * (size_t) a.n_channel] = x;
            t.r.dt[(size_t) to * (size_t) a.n_channel] = dt;
        }
        t.update(x, dt, b);
        if (to < 0) t.mark(p + 1);
        else keep_later(t, p + 1);
    }
    if (t.verified == pos) t.store(t.r.state);
}

/* Moves n rows of b to the front, by one thread of the block. */
template <int N> PI_FN void move_b(const thread<N> &t, int32_t from, int32_t n)
{
    for (int32_t i = 0; i < n * N && from && threadIdx.x == 0; i++) t.r.b[i] = t.r.b[from * N + i];
}

/* Keeps the inputs of draft i, and the state after p tokens if a snapshot may need it. */
template <int N> PI_FN void keep_draft(const thread<N> &t, int32_t i, int32_t p, float x, float dt, const float (&b)[N])
{
    const pi__k_scan &a = t.a;
    if (t.on) t.r.x[(size_t) i * (size_t) a.n_channel] = x, t.r.dt[(size_t) i * (size_t) a.n_channel] = dt;
#pragma unroll
    for (int s = 0; s < N; s++)
        if (threadIdx.x == 0) t.r.b[i * N + s] = b[s];
    keep_later(t, p);
}

/* Updates the state by the token in a row of the batch, and writes its output. */
template <int N> PI_FN void run_token(thread<N> &t, int32_t row, float &x, float &dt, float (&b)[N])
{
    const pi__k_scan &a = t.a;
    float c[N], y = 0;
    take_normed<N>(a.b + row * a.ld_bc, a.norm_b, a.eps, b);
    take_normed<N>(a.c + row * a.ld_bc, a.norm_c, a.eps, c);
    x = a.x[row * a.ldx + t.channel];
    dt = softplus(a.dt[row * a.ld_dt + t.channel] + a.dt_bias[t.channel]);
    t.update(x, dt, b);
#pragma unroll
    for (int s = 0; s < N; s++) y = fmaf(c[s], t.h[s], y);
    const float z = a.z[row * a.ldz + t.channel];
    if (t.on) a.out[row * a.ldo + t.channel] = fmaf(a.skip[t.channel], x, y) * (z / (1 + expf(-z)));
}

/* Grid: x = groups of THREADS channels, y = sequence. */
template <int N> __global__ void __launch_bounds__(THREADS) scan_tokens(PI_CONSTANT pi__k_scan a)
{
    ptx_wait_dependency();
    const int32_t seq = (int32_t) blockIdx.y, first = a.seq_start[seq], n = a.seq_start[seq + 1] - first;
    if (n < 1 || a.state_slot[seq] < 0) return;
    const int32_t own = (int32_t) (blockIdx.x * THREADS + threadIdx.x), pos = a.pos[first];
    const int32_t channel = own < a.n_channel ? own : a.n_channel - 1;
    thread<N> t = {a, record_at(a, a.state_slot[seq], channel), seq, channel, pos + a.n_verified[seq],
                   own < a.n_channel, {}, {}};
#pragma unroll
    for (int s = 0; s < N; s++) t.decay[s] = LOG2E * a.a[(size_t) s * (size_t) a.n_channel + channel];
    const int32_t end = pos ? *t.r.end : 0;
    begin(t, pos, end);
    __syncthreads();
    if (t.verified < pos) move_b(t, t.verified - end, pos - t.verified);
    for (int32_t i = 0; i < n; i++) {
        const int32_t p = pos + i + 1;
        float x, dt, b[N];
        run_token(t, first + i, x, dt, b);
        if (p > t.verified) keep_draft(t, p - 1 - t.verified, p, x, dt, b);
        else t.mark(p);
        if (p == t.verified) t.store(t.r.state);
    }
    if (t.on) *t.r.end = t.verified;
}

/* Copies the state at pos from a slot to a snapshot, or back. Grid: x = groups of THREADS channels. */
__global__ void __launch_bounds__(THREADS)
    move(PI_CONSTANT pi__k_scan a, int32_t slot, int32_t pos, int32_t snap, int is_save)
{
    const int32_t channel = (int32_t) (blockIdx.x * THREADS + threadIdx.x);
    if (channel >= a.n_channel) return;
    const record r = record_at(a, slot, channel);
    float *copy = snap_at(a, snap, channel);
    const float *from = is_save ? state_of(a, r, base_of(*r.end), pos) : copy;
    for (int32_t s = 0; s < a.n_state; s++) {
        const size_t at = (size_t) s * (size_t) a.n_channel;
        const float v = from[at];
        if (is_save) copy[at] = v;
        else r.base[at] = r.state[at] = v;
    }
    if (!is_save) *r.end = pos;
}

} /* namespace scan */

#endif
