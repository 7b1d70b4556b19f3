/* Launches of kernels/mla_kernels.cuh: grid, shared memory (see kernels.h). */
#include "backend/cuda/kernels_mla.h"
#include "backend/cuda/launch.cuh"
#include "mla_kernels.cuh"

/* Threads that a block needs for the compressors; 0: there is one that no block can have. */
static int32_t threads_for(const pi__k_latent_inputs &a)
{
    int32_t most = 32 * LEAST_HEADS;
    for (int32_t i = 0; i < a.n_compress; i++) {
        const pi__compress &c = a.compress[i].a;
        if (c.dim > MAX_ENTRY || c.ratio * (c.overlap ? 2 : 1) > MAX_SLOTS) return 0;
        most = max(most, (c.dim + 31) / 32 * 32);
    }
    return most;
}

int pi__k_latent_inputs_run(void *stream, const pi__k_latent_inputs *a)
{
    latent_inputs_args p = {*a, {}, {}};
    const int32_t n_tokens = a->n_q ? a->q[0].n_tokens : a->n_compress ? a->compress[0].n_tokens : 0, threads = threads_for(*a);
    int32_t blocks = a->n_compress;
    size_t bytes = a->n_compress ? MAX_SLOTS * sizeof(window_token) + (size_t) (threads + threads / 32) * sizeof(float) : 0;
    if (n_tokens < 1) return 0;
    if (a->n_q > PI__K_MOST_LATENT || a->n_compress > PI__K_MOST_LATENT || !threads) return 1;
    for (int32_t i = 0; i < a->n_q; i++) {
        const pi__mla_qkv &q = a->q[i].a;
        const int32_t row = (q.dim + 31) / 32 * 32 * (int32_t) sizeof(float), heads = q.n_head + (q.row ? 1 : 0);
        p.each[i] = max((int32_t) LEAST_HEADS, min(threads / 32, LATENT_HEADS_BYTES / row));
        p.blocks[i] = (heads + p.each[i] - 1) / p.each[i];
        blocks += p.blocks[i];
        bytes = max(bytes, (size_t) (p.each[i] * row));
        if (a->q[i].n_tokens != n_tokens) return 1;
    }
    for (int32_t i = 0; i < a->n_compress; i++)
        if (a->compress[i].n_tokens != n_tokens) return 1;
    const dim3 grid((unsigned) n_tokens, (unsigned) blocks);
    return pi_launch_dependent(stream, latent_inputs, grid, dim3((unsigned) threads), bytes, p);
}

int pi__k_mla_qkv_run(void *stream, const pi__k_mla_qkv *a)
{
    const pi__k_latent_inputs one = {{*a}, {}, 1, 0};
    return pi__k_latent_inputs_run(stream, &one);
}

int pi__k_compress_run(void *stream, const pi__k_compress *a)
{
    const pi__k_latent_inputs one = {{}, {*a}, 0, 1};
    return pi__k_latent_inputs_run(stream, &one);
}
