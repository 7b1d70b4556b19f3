/* Attention to the KV cache for heads of 256 and 512 values (see launch_attention.cuh). */
#include "backend/cuda/launch_attention.cuh"

int pi__k_attention_wide(void *stream, const pi__k_attn *a)
{
    return a->cache.head_dim == 256 ? run_for<256>(stream, a) : run_for<512>(stream, a);
}
