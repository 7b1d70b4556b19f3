/* What latent attention reads: queries and latent rows with their norms, rotations and the write to the cache, and DeepSeek V4's
 * entries made of the tokens of a window (ops mla_qkv and compress, which ops.h defines).
 *
 * mla_qkv     a warp takes one head of a token, or its row, which lies in the warp's shared memory meanwhile, as in
 *             qkv_kernels.cuh
 * keep_recent the values and scores of tokens go to the cache of recent rows, which is of F32
 * make_entry  then a block makes the entry of each token that is the last of its window, from that cache alone: so it does
 *             not matter in which steps the window's tokens came. A thread has one value of the entry, and adds the
 *             window's tokens in order */
#ifndef PI_MLA_KERNELS_CUH
#define PI_MLA_KERNELS_CUH

#include "mla.cuh"
#include "ptx.cuh"

enum { MLA_WARPS = 4, KEEP_THREADS = 256, MAX_SLOTS = 128, MAX_ENTRY = 512 };

__global__ void __launch_bounds__(MLA_WARPS * 32) mla_qkv(pi__k_mla_qkv k)
{
    ptx_take_turn();
    PI_SMEM(raw);
    const int32_t warp = (int32_t) threadIdx.x / 32, head = (int32_t) blockIdx.y * MLA_WARPS + warp, width = (k.a.dim + 31) / 32 * 32;
    if (head <= k.a.n_head) make_row(k, (int32_t) blockIdx.x, head, (float *) raw + warp * width, (int) threadIdx.x % 32);
}

/* Up to two compressors of the same tokens: which, is the block's second dimension. */
struct compressors {
    pi__k_compress k[2];
};

/* Values of a token, and as many scores. */
__host__ __device__ static inline int32_t width_of(const pi__compress &a) { return a.overlap ? 2 * a.dim : a.dim; }

/* A block: a token. */
__global__ void __launch_bounds__(KEEP_THREADS) keep_recent(PI_CONSTANT compressors both)
{
    ptx_take_turn();
    const pi__k_compress &k = both.k[blockIdx.y];
    const int32_t width = width_of(k.a), t = (int32_t) blockIdx.x, slot = k.recent.slot[t];
    if (slot < 0) return;
    const float *x = k.a.x + t * k.a.ldx, *ape = k.a.ape + (size_t) (k.pos[t] % k.a.ratio) * (size_t) width;
    float *to = (float *) row_at(k.recent, slot).codes;
    for (int32_t i = (int32_t) threadIdx.x; i < 2 * width; i += KEEP_THREADS) to[i] = i < width ? x[i] : x[i] + ape[i - width];
}

/* The softmax of n scores weighs n values, `apart` floats behind them. */
PI_FN float pooled(const float *const *value, int32_t n, int32_t apart, int32_t d)
{
    float top = __uint_as_float(0xff800000u), all = 0, sum = 0;
#pragma unroll 4
    for (int32_t i = 0; i < n; i++) top = fmaxf(top, value[i][apart + d]);
#pragma unroll 4
    for (int32_t i = 0; i < n; i++) {
        const float e = expf(value[i][apart + d] - top);
        all += e;
        sum = fmaf(e, value[i][d], sum);
    }
    return sum / all;
}

/* A block, of a thread a value or more: the entry whose last token is blockIdx.x, if it is one's. */
__global__ void __launch_bounds__(MAX_ENTRY) make_entry(PI_CONSTANT compressors both)
{
    ptx_take_turn();
    PI_SMEM(raw);
    const pi__k_compress &k = both.k[blockIdx.y];
    const pi__compress &a = k.a;
    const int32_t width = width_of(a);
    const float **value = (const float **) raw;            /* [MAX_SLOTS] of the window's tokens */
    float *row = (float *) (value + MAX_SLOTS), *scratch = row + blockDim.x;
    const int32_t t = (int32_t) blockIdx.x, d = (int32_t) threadIdx.x, slot = k.entries.slot[t], pos = k.pos[t];
    const int32_t start = pos + 1 - a.ratio, first = a.overlap && start > 0 ? start - a.ratio : start, n = pos + 1 - first;
    if (slot < 0 || (pos + 1) % a.ratio) return;
    for (int32_t i = d; i < n; i += (int32_t) blockDim.x)
        value[i] = (const float *) row_of(k.recent, k.seq[t], first + i).codes + (a.overlap && first + i >= start ? a.dim : 0);
    __syncthreads();
    const float x = d < a.dim ? pooled(value, n, width, d) : 0.0f;
    const float f = 1.0f / sqrtf(block_sum(x * x, scratch) / (float) a.dim + a.eps);
    row[d] = d < a.dim ? x * f * a.norm[d] : 0.0f;
    __syncthreads();
    if (d < a.n_rot / 2) {
        const float angle = (float) start * a.freq[d];
        float *p = row + a.dim - a.n_rot + 2 * d;
        rotate_pair(p[0], p[1], cosf(angle), sinf(angle));
    }
    __syncthreads();
    if (d / 32 < (a.dim + 31) / 32) cache_put(k.entries.cache.type_k, row_at(k.entries, slot), d / 32, row[d], d % 32);
}

#endif
