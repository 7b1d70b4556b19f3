/* Launches of kernels/mla_kernels.cuh: variant, grid, shared memory (see kernels.h). */
#include "backend/cuda/launch.cuh"
#include "mla_kernels.cuh"

int pi__k_mla_qkv_run(void *stream, const pi__k_mla_qkv *a)
{
    if (a->n_tokens < 1) return 0;
    const int32_t heads = a->a.n_head + (a->a.row ? 1 : 0), width = (a->a.dim + 31) / 32 * 32;
    dim3 grid((unsigned) a->n_tokens, (unsigned) (heads + MLA_WARPS - 1) / MLA_WARPS);
    return pi_launch_dependent(stream, mla_qkv, grid, dim3(MLA_WARPS * 32), sizeof(float) * MLA_WARPS * (size_t) width, *a);
}

int pi__k_compress_run(void *stream, const pi__k_compress *a)
{
    const int32_t width = a->a.overlap ? 2 * a->a.dim : a->a.dim;
    const unsigned threads = (unsigned) (a->a.dim + 31) / 32 * 32, tokens = (unsigned) a->n_tokens;
    if (a->n_tokens < 1) return 0;
    if (threads > MAX_ENTRY || a->a.ratio * (a->a.overlap ? 2 : 1) > MAX_SLOTS) return 1;
    int code = pi_launch_dependent(stream, keep_recent, dim3(tokens), dim3(KEEP_THREADS), 0, *a, width);
    if (code) return code;
    const size_t shared = MAX_SLOTS * sizeof(float *) + (threads + threads / 32) * sizeof(float);
    return pi_launch_dependent(stream, make_entry, dim3(tokens), dim3(threads), shared, *a, width);
}
