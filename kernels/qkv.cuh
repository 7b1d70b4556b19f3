/* Queries, keys and values before attention (op qkv): bias, norm, RoPE, scale, and the write of K and V to the paged
 * cache. Used by the separate kernel (qkv_kernels.cuh) and by epilogues of products (tail.cuh).
 *
 * qkv_head() processes one head of one token, by a warp. The row is in the warp's shared memory, since the two values
 * of a RoPE pair belong to different lanes. In a quantized cache each lane has one value of a group of 32, so the
 * group's scale is a max or a sum over the warp. Queries for rotated keys get the cache rotation last. */
#ifndef PI_QKV_CUH
#define PI_QKV_CUH

#include "backend/cuda/kernels.h"
#include "cache.cuh"
#include "input.cuh"

/* row = row / sqrt(mean(row^2) + eps) * w, for n values in shared memory, by a warp. w NULL = no weight. */
PI_FN void norm_row(float *row, int32_t n, const float *w, float eps, int lane)
{
    float s = 0;
    for (int32_t i = lane; i < n; i += 32) s = fmaf(row[i], row[i], s);
    s = 1.0f / sqrtf(warp_sum(s) / (float) n + eps);
    row_values(
        lane, 32, n, [w](int32_t i) { return w ? w[i] : 1.0f; }, [&](int32_t i, float f) { row[i] = row[i] * s * f; });
    __syncwarp();
}

/* Applies RoPE to the pairs (i, i + stride) of a row in shared memory, i < n_rot / 2, by a warp. table: n_rot / 2
 * cosines, then n_rot / 2 sines. */
PI_FN void rotate_row(float *row, const float *table, int32_t n_rot, int32_t stride, int lane)
{
    struct turn {
        float c, s;
    };
    row_values(
        lane, 32, n_rot / 2, [&](int32_t i) { return turn {table[i], table[n_rot / 2 + i]}; },
        [&](int32_t i, const turn &t) {
            const float a = row[i], b = row[i + stride];
            row[i] = a * t.c - b * t.s;
            row[i + stride] = a * t.s + b * t.c;
        });
    __syncwarp();
}

/* Converts a row of n floats to cache type `type` and writes it to cache row `to`, by a warp. */
PI_FN void store_row(int32_t type, cache_row to, const float *row, int32_t n, int lane)
{
#pragma unroll 1
    /* types with groups have n % 32 = 0, so all lanes call cache_put() */
    for (int32_t i = lane; i < n; i += 32) cache_put(type, to, i / 32, row[i], lane);
}

/* Processes head `head` of a token, by a warp. Heads are numbered queries, keys, values. Queries are updated in place;
 * keys and values are written to the cache, unless the token's slot is negative. row: head_dim floats of shared memory
 * for this warp. */
PI_FN void qkv_head(const pi__k_qkv &a, int32_t token, int32_t head, float *row, int lane)
{
    const int32_t n = a.cache.head_dim, n_kv = a.k ? a.cache.n_head_kv : 0;
    const bool is_q = head < a.n_head, is_v = head >= a.n_head + n_kv;
    const int32_t kv_head = is_v ? head - a.n_head - n_kv : head - a.n_head;

    float *q = a.q + token * a.ldq + head * a.q_stride;
    /* Load the head, plus bias. */
    const float *from = is_q ? q : is_v ? a.v + token * a.ldv + kv_head * n : a.k + token * a.ldk + kv_head * n;
    const float *bias = is_q ? a.q_bias : is_v ? a.v_bias : a.k_bias;
    if (bias) bias += (is_q ? head : kv_head) * n;
    const auto value = [&](int32_t i) { return bias ? from[i] + bias[i] : from[i]; };
    row_values(lane, 32, n, value, [row](int32_t i, float f) { row[i] = f; });
    __syncwarp();
    /* Norm and RoPE. */
    const float *w = is_q ? a.q_norm : is_v ? nullptr : a.k_norm;
    const bool normed = w || (is_v && a.v_norm), last = a.norm_last && !is_v;
    if (normed && !last) norm_row(row, n, w, a.eps, lane);
    const float *rope = is_q ? a.q_rope : a.rope;
    if (rope && !is_v) rotate_row(row, rope + (size_t) token * (size_t) a.n_rot, a.n_rot, a.pair_stride, lane);
    if (normed && last) norm_row(row, n, w, a.eps, lane);
    /* Write back: queries in place, scaled; keys and values to the cache. */
    if (is_q) {
        const bool turned = is_rotated(a.cache.type_k); /* rotated types have n % 32 = 0 */
        for (int32_t i = lane; i < n; i += 32) {
            const float f = row[i] * a.q_scale;
            q[i] = turned ? cache_turn(f, false, lane) : f;
        }
    } else if (a.slot[token] >= 0) {
        int32_t slot = a.slot[token], block = slot >> block_shift(a.cache.block_size),
                offset = slot & (a.cache.block_size - 1);
        store_row(is_v ? a.cache.type_v : a.cache.type_k, cache_token(plane_of(a.cache, is_v, kv_head), block, offset),
                  row, n, lane);
    }
}
/* Returns the number of query, key and value heads of a token. */
PI_FN int32_t qkv_heads(const pi__k_qkv &a) { return a.n_head + (a.k ? 2 * a.cache.n_head_kv : 0); }

#endif
