/* Queries, keys and values before attention: bias, norm, rotation, scale, and the write of K and V to the paged cache.
 *
 * A warp takes one head of one token: q heads, then k heads, then v heads. The row lies in the warp's own shared memory
 * while it is worked on, because the two values of a rotated pair belong to different lanes. A group of 32 values
 * of a quantised cache is one value a lane, so its scale is a maximum, or a sum, over the warp. Queries of rotated keys are
 * rotated last; attention's results over rotated values are rotated back by a kernel of their own. */
#ifndef PI_QKV_KERNELS_CUH
#define PI_QKV_KERNELS_CUH

#include "backend/cuda/kernels.h"
#include "cache.cuh"
#include "ptx.cuh"
#include "warp.cuh"

enum { QKV_WARPS = 4 };

/* row = row / sqrt(mean(row^2) + eps) * w; w NULL: no weight. */
PI_FN void norm_row(float *row, int32_t n, const float *w, float eps, int lane)
{
    float s = 0;
    for (int32_t i = lane; i < n; i += 32) s = fmaf(row[i], row[i], s);
    s = 1.0f / sqrtf(warp_sum(s) / (float) n + eps);
    for (int32_t i = lane; i < n; i += 32) row[i] = row[i] * s * (w ? w[i] : 1.0f);
    __syncwarp();
}

/* Rotates the pairs (i, i + stride), i < n_rot / 2, by the angles whose cosines and sines are at table. */
PI_FN void rotate_row(float *row, const float *table, int32_t n_rot, int32_t stride, int lane)
{
    for (int32_t i = lane; i < n_rot / 2; i += 32) {
        float c = table[i], s = table[n_rot / 2 + i], a = row[i], b = row[i + stride];
        row[i] = a * c - b * s;
        row[i + stride] = a * s + b * c;
    }
    __syncwarp();
}

PI_FN void store_row(int32_t type, cache_row to, const float *row, int32_t n, int lane)
{
    for (int32_t g = 0; g < n / 32; g++) cache_put(type, to, g, row[g * 32 + lane], lane);
    if (lane < n % 32) cache_put(type, to, n / 32, row[n - n % 32 + lane], lane); /* of types that need no whole groups */
}

__global__ void __launch_bounds__(QKV_WARPS * 32) qkv(pi__k_qkv a)
{
    ptx_take_turn();
    PI_SMEM(raw);
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    int32_t n = a.cache.head_dim, token = (int32_t) blockIdx.x, head = (int32_t) blockIdx.y * QKV_WARPS + warp;
    int32_t n_kv = a.k ? a.cache.n_head_kv : 0;
    if (head >= a.n_head + 2 * n_kv) return;
    bool is_q = head < a.n_head, is_v = head >= a.n_head + n_kv;
    int32_t kv_head = is_v ? head - a.n_head - n_kv : head - a.n_head;
    float *row = (float *) raw + warp * n;

    float *q = a.q + token * a.ldq + head * a.q_stride;
    const float *from = is_q ? q : is_v ? a.v + token * a.ldv + kv_head * n : a.k + token * a.ldk + kv_head * n;
    const float *bias = is_q ? a.q_bias : is_v ? a.v_bias : a.k_bias;
    if (bias) bias += (is_q ? head : kv_head) * n;
    for (int32_t i = lane; i < n; i += 32) row[i] = bias ? from[i] + bias[i] : from[i];
    __syncwarp();
    const float *w = is_q ? a.q_norm : is_v ? nullptr : a.k_norm;
    if (w || (is_v && a.v_norm)) norm_row(row, n, w, a.eps, lane);
    if (a.rope && !is_v) rotate_row(row, a.rope + (size_t) token * (size_t) a.n_rot, a.n_rot, a.pair_stride, lane);
    if (is_q) {
        const bool turned = is_rotated(a.cache.type_k); /* then n is a multiple of 32 */
        for (int32_t i = lane; i < n; i += 32) {
            const float f = row[i] * a.q_scale;
            q[i] = turned ? cache_turn(f, false, lane) : f;
        }
    } else if (a.slot[token] >= 0) {
        int32_t slot = a.slot[token], block = slot >> block_shift(a.cache.block_size), offset = slot & (a.cache.block_size - 1);
        store_row(is_v ? a.cache.type_v : a.cache.type_k, cache_token(plane_of(a.cache, is_v, kv_head), block, offset), row, n,
                  lane);
    }
}

/* Attention's results over values of a rotated type, back to what they are, and then their gate. A warp a head of a token. */
__global__ void __launch_bounds__(QKV_WARPS * 32) turn_back(pi__k_turn a)
{
    ptx_take_turn();
    const int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    const int32_t token = (int32_t) blockIdx.x, head = (int32_t) blockIdx.y * QKV_WARPS + warp;
    if (head >= a.n_head) return;
    float *out = a.out + token * a.ldo + (int64_t) head * a.head_dim;
    const float *gate = a.gate ? a.gate + token * a.ldg + head * a.gate_stride : nullptr;
    for (int32_t i = lane; i < a.head_dim; i += 32) {
        const float f = cache_turn(out[i], true, lane);
        out[i] = gate ? f * (1.0f / (1.0f + expf(-gate[i]))) : f;
    }
}

#endif
