/* Short convolutions (op short_conv in ops.h) and their states. With pi__k_conv.plain, x takes the place of the
 * products b * u.
 *
 *     slot      [R][dim] products b * u of a sequence's last tokens; row p % R = token at position p
 *     snapshot  [H][dim] products of the H = n_conv - 1 tokens before the snapshot's position
 *
 * R = H + PI__STATE_CHUNK + n_draft. Memory-bound: a thread has 4 adjacent channels, and walks TILE tokens of one
 * sequence with the last products in registers. Tiles read the products of earlier tokens of the step from x again.
 * Only the thread of a sequence's first tile reads and writes the slot, for its channels: first it reads the old
 * products, last it writes the new ones. So there is no race, whatever rows coincide. */
#ifndef PI_SHORT_CONV_KERNELS_CUH
#define PI_SHORT_CONV_KERNELS_CUH

#include "backend/cuda/kernels_conv.h"
#include "ptx.cuh"

namespace short_conv {

enum { THREADS = 128, TILE = 32 /* tokens of a thread */ };

/* A thread's part of a step: a sequence and 4 channels. */
struct part {
    const pi__k_conv &a;
    float *slot;           /* the sequence's slot, at the channels */
    int32_t seq, first, n; /* sequence in the batch; token index of its first token; number of its tokens */
    int32_t pos;           /* position of its first token */
    int32_t channel;
};

PI_FN int32_t history(const pi__k_conv &a) { return a.n_conv - 1; }
PI_FN int32_t ring(const pi__k_conv &a) { return history(a) + PI__STATE_CHUNK + a.n_draft; }
PI_FN float4 *slot_row(const pi__k_conv &a, float *slot, int32_t pos)
{
    return (float4 *) (slot + (size_t) (pos % ring(a)) * (size_t) a.dim);
}
PI_FN float4 *snap_row(const pi__k_conv &a, int32_t snap, int32_t i, int32_t channel)
{
    return (float4 *) ((float *) (a.snap + (size_t) snap * a.snap_stride) + (size_t) i * (size_t) a.dim + channel);
}

/* Returns the products b * u at position pos: of this step, of the slot, or zeros before position 0. */
PI_FN float4 product_at(const part &p, int32_t pos)
{
    if (pos < 0) return {0, 0, 0, 0};
    if (pos < p.pos) return *slot_row(p.a, p.slot, pos);
    const float *x = p.a.x + (int64_t) (p.first + pos - p.pos) * p.a.ldx + p.channel;
    if (p.a.plain) return *(const float4 *) x;
    const float4 b = *(const float4 *) x, u = *(const float4 *) (x + 2 * p.a.dim);
    return {b.x * u.x, b.y * u.y, b.z * u.z, b.w * u.w};
}

/* Writes the snapshots of the sequence; then, to the slot, the products of the step's last tokens. */
PI_FN void save_and_keep(const part &p)
{
    const pi__k_conv &a = p.a;
    for (int32_t k = a.save_start[p.seq]; k < a.save_start[p.seq + 1]; k++)
        for (int32_t i = 0; i < history(a); i++)
            *snap_row(a, a.save[2 * k + 1], i, p.channel) = product_at(p, a.save[2 * k] - history(a) + i);
    const int32_t end = p.pos + p.n, rows = ring(a);
    for (int32_t pos = p.n > rows ? end - rows : p.pos; pos < end; pos++)
        *slot_row(a, p.slot, pos) = product_at(p, pos);
}

PI_FN void add_tap(float4 &sum, const float (&w)[4], const float4 &x)
{
    sum.x = fmaf(w[0], x.x, sum.x), sum.y = fmaf(w[1], x.y, sum.y);
    sum.z = fmaf(w[2], x.z, sum.z), sum.w = fmaf(w[3], x.w, sum.w);
}

PI_FN float silu(float x) { return x / (1 + expf(-x)); }

/* Writes the output for the sum of the taps of the token in `row`. */
PI_FN void put_output(const part &p, int64_t row, float4 sum)
{
    const pi__k_conv &a = p.a;
    float4 *out = (float4 *) (a.out + row * a.ldo + p.channel);
    if (a.plain) {
        const float *bias = a.bias + p.channel;
        if (a.bias) sum.x += bias[0], sum.y += bias[1], sum.z += bias[2], sum.w += bias[3];
        *out = {silu(sum.x), silu(sum.y), silu(sum.z), silu(sum.w)};
        return;
    }
    const float4 gate = *(const float4 *) (a.x + row * a.ldx + a.dim + p.channel);
    *out = {gate.x * sum.x, gate.y * sum.y, gate.z * sum.z, gate.w * sum.w};
}

/* Computes outputs from..to - 1 of the sequence's tokens. TAPS: taps of the convolution. */
template <int TAPS> PI_FN void convolve(const part &p, int32_t from, int32_t to, float4 (&x)[TAPS])
{
    const pi__k_conv &a = p.a;
    float w[TAPS][4];
#pragma unroll
    for (int k = 0; k < TAPS; k++)
        for (int c = 0; c < 4; c++) w[k][c] = a.conv[(int64_t) (p.channel + c) * TAPS + k];
#pragma unroll 2
    for (int32_t t = from; t < to; t++) {
        float4 sum = {0, 0, 0, 0};
        x[TAPS - 1] = product_at(p, p.pos + t);
#pragma unroll
        for (int k = 0; k < TAPS; k++) add_tap(sum, w[k], x[k]);
        put_output(p, p.first + t, sum);
#pragma unroll
        for (int k = 0; k + 1 < TAPS; k++) x[k] = x[k + 1];
    }
}

/* conv() for convolutions of TAPS taps. */
template <int TAPS> PI_FN void conv_tile(const pi__k_conv &a)
{
    const int32_t seq = (int32_t) blockIdx.y, first = a.seq_start[seq], n = a.seq_start[seq + 1] - first;
    const int32_t channel = 4 * (int32_t) (blockIdx.x * THREADS + threadIdx.x), from = (int32_t) blockIdx.z * TILE;
    if (from >= n || channel >= a.dim || a.state_slot[seq] < 0) return;
    float *slot = (float *) (a.base + (size_t) a.state_slot[seq] * a.stride) + channel;
    const part p = {a, slot, seq, first, n, a.pos[first], channel};
    float4 x[TAPS];
#pragma unroll
    for (int k = 0; k + 1 < TAPS; k++) x[k] = product_at(p, p.pos + from + 1 - TAPS + k);
    if (from == 0) save_and_keep(p);
    convolve<TAPS>(p, from, from + TILE < n ? from + TILE : n, x);
}

/* Grid: x = groups of 4 * THREADS channels, y = sequence, z = tile of TILE tokens. LONG: more than four taps, with
 * twice the registers. */
template <bool LONG> __global__ void __launch_bounds__(THREADS) conv(PI_CONSTANT pi__k_conv a)
{
    ptx_wait_dependency();
    switch (a.n_conv - (LONG ? 3 : 0)) {
    case 2: return conv_tile<LONG ? 5 : 2>(a);
    case 3: return conv_tile<LONG ? 6 : 3>(a);
    case 4: return conv_tile<LONG ? 7 : 4>(a);
    case 5:
        if constexpr (LONG) conv_tile<8>(a);
    }
}

/* Copies the products before pos from a slot to a snapshot, or back. Grid: x = groups of 4 * THREADS channels. */
__global__ void __launch_bounds__(THREADS)
    move(PI_CONSTANT pi__k_conv a, int32_t slot_index, int32_t pos, int32_t snap, int is_save)
{
    const int32_t channel = 4 * (int32_t) (blockIdx.x * THREADS + threadIdx.x);
    if (channel >= a.dim) return;
    float *slot = (float *) (a.base + (size_t) slot_index * a.stride) + channel;
    for (int32_t i = 0; i < history(a); i++) {
        const int32_t at = pos - history(a) + i;
        float4 *to = snap_row(a, snap, i, channel);
        if (is_save) *to = at < 0 ? float4 {0, 0, 0, 0} : *slot_row(a, slot, at);
        else if (at >= 0) *slot_row(a, slot, at) = *to;
    }
}

} /* namespace short_conv */

#endif
