/* Kernel qkv: queries, keys and values before attention (qkv.cuh). Kernel turn_back: unrotates attention's results over
 * rotated values. Both: grid x = token, y = QKV_WARPS heads; one warp per head. */
#ifndef PI_QKV_KERNELS_CUH
#define PI_QKV_KERNELS_CUH

#include "ptx.cuh"
#include "qkv.cuh"

namespace qkv {

enum { QKV_WARPS = 4 };

__global__ void __launch_bounds__(QKV_WARPS * 32) qkv(pi__k_qkv a)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    int lane = (int) threadIdx.x % 32, warp = (int) threadIdx.x / 32;
    int32_t head = (int32_t) blockIdx.y * QKV_WARPS + warp;
    if (head < qkv_heads(a)) qkv_head(a, (int32_t) blockIdx.x, head, (float *) raw + warp * a.cache.head_dim, lane);
}

/* Unrotates attention's results over values of a rotated type, then multiplies them by sigmoid(gate), if there is a
 * gate. */
__global__ void __launch_bounds__(QKV_WARPS * 32) turn_back(pi__k_unrotate a)
{
    ptx_wait_dependency();
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

} /* namespace qkv */

#endif
