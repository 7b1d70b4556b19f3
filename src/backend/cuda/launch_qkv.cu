/* Launches of kernels/qkv_kernels.cuh (see kernels.h). A warp has one head of q, k or v of a token. Grid: x = token, y
 * = QKV_WARPS heads. */
#include "backend/cuda/launch.cuh"
#include "qkv_kernels.cuh"

using namespace qkv;

int pi__k_qkv_run(void *stream, const pi__k_qkv *a)
{
    if (a->n_tokens < 1) return 0;
    int32_t heads = a->n_head + (a->k ? 2 * a->cache.n_head_kv : 0);
    dim3 grid((unsigned) a->n_tokens, (unsigned) (heads + QKV_WARPS - 1) / QKV_WARPS);
    size_t shared = sizeof(float) * QKV_WARPS * (size_t) a->cache.head_dim;
    return pi_launch_dependent(stream, qkv::qkv, grid, dim3(QKV_WARPS * 32), shared, *a);
}

int pi__k_unrotate_run(void *stream, const pi__k_unrotate *a)
{
    if (a->n_tokens < 1) return 0;
    dim3 grid((unsigned) a->n_tokens, (unsigned) (a->n_head + QKV_WARPS - 1) / QKV_WARPS);
    return pi_launch_dependent(stream, turn_back, grid, dim3(QKV_WARPS * 32), 0, *a);
}
