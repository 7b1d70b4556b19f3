/* Attention to the KV cache (kernels/attention_kernels.cuh): heads of up to 96 values, and the dispatch of all calls by
 * head size (see kernels.h). */
#include "backend/cuda/launch_attention.cuh"

int pi__k_attention_has(int32_t d)
{
    return d == 32 || d == 64 || d == 80 || d == 96 || d == 112 || d == 128 || d == 192 || d == 256 || d == 512;
}

int pi__k_attention(void *stream, const pi__k_attn *a)
{
    int code;
    if (a->n_tokens < 1) return 0;
    if (a->wgmma && pi__k_attention_wgmma(stream, a, &code)) return code;
    switch (a->cache.head_dim) {
    case 32: return run_for<32>(stream, a);
    case 64: return run_for<64>(stream, a);
    case 80:
    case 96: return run_for<96>(stream, a);
    case 112:
    case 128:
    case 192: return pi__k_attention_mid(stream, a);
    default: return pi__k_attention_wide(stream, a);
    }
}
