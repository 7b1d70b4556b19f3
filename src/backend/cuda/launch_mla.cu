/* Launches of kernels/mla_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/launch.cuh"
#include "backend/cuda/kernels_mla.h"
#include "mla_kernels.cuh"

int pi__k_mla_qkv_run(void *stream, const pi__k_mla_qkv *a)
{
    if (a->n_tokens < 1) return 0;
    const int32_t heads = a->a.n_head + (a->a.row ? 1 : 0), width = (a->a.dim + 31) / 32 * 32;
    dim3 grid((unsigned) a->n_tokens, (unsigned) (heads + MLA_WARPS - 1) / MLA_WARPS);
    return pi_launch_dependent(stream, mla_qkv, grid, dim3(MLA_WARPS * 32), sizeof(float) * MLA_WARPS * (size_t) width, *a);
}

int pi__k_compress_all(void *stream, const pi__k_compress *a, int32_t n)
{
    compressors both = {};
    int32_t dim = 0;
    if (n < 1 || a->n_tokens < 1) return 0;
    if (n > 2 || a[n - 1].n_tokens != a->n_tokens) return 1;
    for (int32_t i = 0; i < n; i++) {
        both.k[i] = a[i];
        dim = dim > a[i].a.dim ? dim : a[i].a.dim;
        if (a[i].a.ratio * (a[i].a.overlap ? 2 : 1) > MAX_SLOTS) return 1;
    }
    const unsigned threads = (unsigned) (dim + 31) / 32 * 32;
    const dim3 grid((unsigned) a->n_tokens, (unsigned) n);
    if (threads > MAX_ENTRY) return 1;
    int code = pi_launch_dependent(stream, keep_recent, grid, dim3(KEEP_THREADS), 0, both);
    if (code) return code;
    const size_t shared = MAX_SLOTS * sizeof(float *) + (threads + threads / 32) * sizeof(float);
    return pi_launch_dependent(stream, make_entry, grid, dim3(threads), shared, both);
}

int pi__k_compress_run(void *stream, const pi__k_compress *a) { return pi__k_compress_all(stream, a, 1); }
