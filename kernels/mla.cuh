/* One head of queries, or the latent row, as latent attention reads it: norm, scale and RoPE (op mla_qkv in ops.h).
 * Users: the kernels that compute attention's inputs (latent_inputs.cuh), the product that computes the queries
 * (heads_kernels.cuh), and attention of raw queries (sparse_kernels.cuh). */
#ifndef PI_MLA_CUH
#define PI_MLA_CUH

#include "row_cache.cuh"
#include "warp.cuh"

/* Applies RoPE to n_rot values of the row, from index `first` on, in pairs of adjacent values. table: n_rot / 2
 * cosines, then n_rot / 2 sines. The n_lane threads with lane = 0 .. n_lane - 1 share the pairs. */
PI_FN void rotate_tail(float *row, int32_t first, int32_t n_rot, const float *table, int lane, int n_lane)
{
    for (int32_t i = lane; i < n_rot / 2; i += n_lane)
        rotate_pair(row[first + 2 * i], row[first + 2 * i + 1], table[i], table[n_rot / 2 + i]);
}

/* Returns the factor of the n values of a query (is_q) or of a latent row. Query: scale, divided by the RMS if normed.
 * Latent row: 1 / RMS. Norm weights are not included. Called by a warp. */
PI_FN float row_factor(const float *row, int32_t n, bool is_q, bool normed, float scale, float eps, int lane)
{
    float f = 1.0f, s = 0;
    for (int32_t i = lane; i < n; i += 32) s = fmaf(row[i], row[i], s);
    if (!is_q || normed) f = 1.0f / sqrtf(warp_sum(s) / (float) n + eps);
    return is_q ? f * scale : f;
}

/* Applies norm (if a.q_norm), scale and RoPE to query head `head` of a token, in place. head == n_head: applies norm
 * and RoPE to the token's latent row and writes it to the cache; slot negative = nothing is done. row: shared memory,
 * a.dim floats rounded up to a multiple of 32. Called by a warp. */
PI_FN void make_row(const pi__k_mla_qkv &k, int32_t token, int32_t head, float *row, int lane)
{
    const pi__mla_qkv &a = k.a;
    const int32_t width = (a.dim + 31) / 32 * 32;
    const bool is_q = head < a.n_head;
    if (!is_q && (!a.row || k.rows.slot[token] < 0)) return;
    float *q = a.q + token * a.ldq + (int64_t) head * a.dim;
    const float *from = is_q ? q : a.row + token * a.ldr, *w = is_q ? nullptr : a.norm;
    const int32_t n = is_q ? a.dim : a.n_norm;
    for (int32_t i = lane; i < width; i += 32) row[i] = i < a.dim ? from[i] : 0.0f;
    /* Norm factor, scale and norm weights, then RoPE. */
    const float f = row_factor(row, n, is_q, a.q_norm, a.q_scale, a.eps, lane);
    for (int32_t i = lane; i < n; i += 32) row[i] = row[i] * f * (w ? w[i] : 1.0f);
    __syncwarp();
    rotate_tail(row, a.dim - a.n_rot, a.n_rot, a.rope + (size_t) token * (size_t) a.n_rot, lane, 32);
    __syncwarp();
    if (is_q) {
        for (int32_t i = lane; i < a.dim; i += 32) q[i] = row[i];
    } else {
        const cache_row to = row_at(k.rows, k.rows.slot[token]);
        for (int32_t g = 0; g < width / 32; g++) cache_put(k.rows.cache.type_k, to, g, row[g * 32 + lane], lane);
    }
}

#endif
