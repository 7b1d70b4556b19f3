/* Attention to the KV cache for heads of 112, 128 and 192 values (see launch_attention.cuh). */
#include "backend/cuda/launch_attention.cuh"

int pi__k_attention_mid(void *stream, const pi__k_attn *a)
{
    return a->cache.head_dim == 192 ? run_for<192>(stream, a) : run_for<128>(stream, a);
}
