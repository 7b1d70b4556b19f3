/* Inputs of latent attention. Op mla_qkv: norms and rotations of queries and latent rows, and the cache write. Op
 * compress: DeepSeek V4's compressed entries, each computed from the tokens of a window. Both ops are defined in ops.h.
 * Entry point: latent_block(). Used in a separate launch (mla_kernels.cuh), and in extra blocks of an independent
 * product (mixed_kernels.cuh).
 *
 * A thread block serves one op for one token. There are up to two ops of each kind. For op mla_qkv it has some heads,
 * or the latent row; for op compress it does everything:
 *
 *     blocks of a token   heads 0 .. 7 | 8 .. | .. | its row | heads of second op .. | compress 0 | compress 1
 *
 * A warp processes one head, or the row, in the warp's shared memory, as in qkv_kernels.cuh.
 *
 * The block of op compress writes the token's values and scores to the cache of recent rows (F32). For the last token
 * of a window it also computes the window's entry. Tokens of the window in this step are read from their inputs, since
 * other blocks may still write them to the cache; earlier tokens come from the cache. The result is independent of the
 * division into steps. A thread has one or two values of the entry and adds the window's tokens in order. */
#ifndef PI_LATENT_INPUTS_CUH
#define PI_LATENT_INPUTS_CUH

#include "backend/cuda/kernels_mla.h"
#include "device.cuh"
#include "mla.cuh"
#include "ptx.cuh"

namespace mla {

enum {
    LATENT_THREADS = 256,
    LATENT_WARPS = LATENT_THREADS / 32,
    LATENT_HEADS_BYTES = 32 << 10,  /* bytes of heads in shared memory that limit the heads per block */
    /* min heads per block, even beyond LATENT_HEADS_BYTES */
    MIN_HEADS = 4,
    MAX_SLOTS = 128,                /* max tokens of an entry: of one window, or two with overlap */
    MAX_ENTRY = 2 * LATENT_THREADS, /* max values of an entry */
};

/* Arguments of latent_inputs(), and the division of a token's work into thread blocks. */
struct latent_blocks {
    pi__k_latent_inputs of;
    int32_t each[PI__K_MAX_LATENT];   /* heads per block, by op mla_qkv */
    int32_t blocks[PI__K_MAX_LATENT]; /* blocks per token, by op mla_qkv */
    int32_t all;                       /* blocks per token, including one per op compress */
    int32_t n_tokens;
};

/* Returns the number of values that a token contributes; it has the same number of scores. */
__host__ __device__ static inline int32_t width_of(const pi__compress &a) { return a.overlap ? 2 * a.dim : a.dim; }

/* One token of the window. value: its values, followed by its scores. ape: addend of the scores. */
struct window_token {
    const float *value, *ape; /* ape NULL = already added to the scores */
};

/* Returns value d of the weighted sum of n tokens. A token's weight for d is the softmax of its score for d over the n
 * tokens. `apart`: floats from a token's values to its scores. */
PI_FN float pooled(const window_token *of, int32_t n, int32_t apart, int32_t d)
{
    const auto score = [&](int32_t i) {
        return of[i].ape ? of[i].value[apart + d] + of[i].ape[d] : of[i].value[apart + d];
    };
    float top = __uint_as_float(0xff800000u), all = 0, sum = 0;
#pragma unroll 4
    for (int32_t i = 0; i < n; i++) top = fmaxf(top, score(i));
#pragma unroll 4
    for (int32_t i = 0; i < n; i++) {
        const float e = expf(score(i) - top);
        all += e;
        sum = fmaf(e, of[i].value[d], sum);
    }
    return sum / all;
}

/* Writes the values and scores (with ape added) of token t to the cache of recent rows. Slot negative = not written. */
PI_FN void keep_recent(const pi__k_compress &k, int32_t t)
{
    const int32_t width = width_of(k.a), slot = k.recent.slot[t];
    if (slot < 0) return;
    const float *x = k.a.x + t * k.a.ldx, *ape = k.a.ape + (size_t) (k.pos[t] % k.a.ratio) * (size_t) width;
    float *to = (float *) row_at(k.recent, slot).codes;
    for (int32_t i = (int32_t) threadIdx.x; i < 2 * width; i += (int32_t) blockDim.x)
        to[i] = i < width ? x[i] : x[i] + ape[i - width];
}

/* Returns the token at position p of the sequence of token t, p <= k.pos[t]. It reads this step's inputs if they
 * contain the token, else the cache of recent rows. half: index of the first value to use. */
PI_FN window_token token_at(const pi__k_compress &k, int32_t t, int32_t p, int32_t half)
{
    const int32_t at = t - (k.pos[t] - p);
    if (at < 0 || k.seq[at] != k.seq[t] || k.pos[at] != p)
        return {(const float *) row_of(k.recent, k.seq[t], p).codes + half, nullptr};
    return {k.a.x + at * k.a.ldx + half, k.a.ape + (size_t) (p % k.a.ratio) * (size_t) width_of(k.a) + half};
}

/* Computes the entry of the window that ends with token t, and writes it to the cache of entries. Does nothing if t
 * does not end a window. raw: shared memory, [MAX_SLOTS] window_token, [MAX_ENTRY] floats, scratch. */
PI_FN void make_entry(const pi__k_compress &k, int32_t t, unsigned char *raw)
{
    const pi__compress &a = k.a;
    window_token *window = (window_token *) raw; /* [MAX_SLOTS]; n are used */
    float *row = (float *) (window + MAX_SLOTS), *scratch = row + MAX_ENTRY;
    const int32_t slot = k.entries.slot[t], pos = k.pos[t], warp = (int32_t) threadIdx.x / 32,
                  lane = (int32_t) threadIdx.x % 32;
    const int32_t start = pos + 1 - a.ratio, first = a.overlap && start > 0 ? start - a.ratio : start,
                  n = pos + 1 - first;
    const int32_t groups = (a.dim + 31) / 32;
    if (slot < 0 || (pos + 1) % a.ratio) return;
    /* Addresses of the window's tokens. */
    for (int32_t i = (int32_t) threadIdx.x; i < n; i += LATENT_THREADS)
        window[i] = token_at(k, t, first + i, a.overlap && first + i >= start ? a.dim : 0);
    __syncthreads();
    /* Pooled values, a group of 32 at a time per warp, and a sum of squares per group. */
    for (int32_t g = warp; g < groups; g += LATENT_WARPS) {
        const int32_t d = 32 * g + lane;
        const float x = d < a.dim ? pooled(window, n, width_of(a), d) : 0.0f, s = warp_sum(x * x);
        row[d] = x;
        if (lane == 0) scratch[g] = s;
    }
    __syncthreads();
    /* RMSNorm; the groups' sums are added in order. */
    float squares = 0;
    for (int32_t g = 0; g < groups; g++) squares += scratch[g];
    const float f = 1.0f / sqrtf(squares / (float) a.dim + a.eps);
    for (int32_t d = (int32_t) threadIdx.x; d < a.dim; d += LATENT_THREADS) row[d] = row[d] * f * a.norm[d];
    __syncthreads();
    /* RoPE of the last n_rot values, at the position of the window's first token. */
    if ((int32_t) threadIdx.x < a.n_rot / 2) {
        const float angle = (float) start * a.freq[threadIdx.x];
        float *p = row + a.dim - a.n_rot + 2 * threadIdx.x;
        rotate_pair(p[0], p[1], cosf(angle), sinf(angle));
    }
    __syncthreads();
    /* Write the entry to the cache. */
    for (int32_t g = warp; g < groups; g += LATENT_WARPS)
        cache_put(k.entries.cache.type_k, row_at(k.entries, slot), g, row[32 * g + lane], lane);
}

/* Does the work of block `block` (0 .. p.all - 1) of token t. */
PI_CALL void latent_block(const latent_blocks &p, int32_t t, int32_t block, unsigned char *shared)
{
    const int32_t warp = (int32_t) threadIdx.x / 32;
    for (int32_t i = 0; i < p.of.n_q; block -= p.blocks[i++]) {
        if (block >= p.blocks[i]) continue;
        const pi__k_mla_qkv &k = p.of.q[i];
        const int32_t head = block * p.each[i] + warp;
        if (warp < p.each[i] && head <= k.a.n_head)
            make_row(k, t, head, (float *) shared + warp * ((k.a.dim + 31) / 32 * 32), (int) threadIdx.x % 32);
        return;
    }
    keep_recent(p.of.compress[block], t);
    make_entry(p.of.compress[block], t, shared);
}

/* Fills p for the ops a, and sets `bytes` of shared memory per block. Returns false if a size exceeds the limits, or if
 * the ops have different numbers of tokens. */
static inline bool latent_blocks_of(const pi__k_latent_inputs &a, latent_blocks &p, size_t &bytes)
{
    p = {a, {}, {}, a.n_compress, a.n_q ? a.q[0].n_tokens : a.n_compress ? a.compress[0].n_tokens : 0};
    bytes = a.n_compress ? MAX_SLOTS * sizeof(window_token) + (MAX_ENTRY + MAX_ENTRY / 32) * sizeof(float) : 0;
    if (a.n_q > PI__K_MAX_LATENT || a.n_compress > PI__K_MAX_LATENT) return false;
    for (int32_t i = 0; i < a.n_q; i++) {
        const pi__mla_qkv &q = a.q[i].a;
        const int32_t row = (q.dim + 31) / 32 * 32 * (int32_t) sizeof(float), heads = q.n_head + (q.row ? 1 : 0);
        p.each[i] = max((int32_t) MIN_HEADS, min((int32_t) LATENT_WARPS, LATENT_HEADS_BYTES / row));
        p.blocks[i] = (heads + p.each[i] - 1) / p.each[i];
        p.all += p.blocks[i];
        bytes = max(bytes, (size_t) (p.each[i] * row));
        if (a.q[i].n_tokens != p.n_tokens) return false;
    }
    for (int32_t i = 0; i < a.n_compress; i++) {
        const pi__compress &c = a.compress[i].a;
        if (c.dim > MAX_ENTRY || c.ratio * (c.overlap ? 2 : 1) > MAX_SLOTS || a.compress[i].n_tokens != p.n_tokens)
            return false;
    }
    return true;
}

} /* namespace mla */

#endif
