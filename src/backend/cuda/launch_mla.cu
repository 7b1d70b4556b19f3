/* Launches of kernels/mla_kernels.cuh: grid, shared memory (see kernels_mla.h). Grid: x = token, y = one of the token's
 * p.all blocks: some heads or the row of an op mla_qkv, or an op compress. */
#include "backend/cuda/kernels_mla.h"
#include "backend/cuda/launch.cuh"
#include "mla_kernels.cuh"

using namespace mla;

int pi__k_latent_inputs_run(void *stream, const pi__k_latent_inputs *a)
{
    latent_blocks p;
    size_t bytes;
    if (!latent_blocks_of(*a, p, bytes)) return 1;
    if (p.n_tokens < 1 || !p.all) return 0;
    const dim3 grid((unsigned) p.n_tokens, (unsigned) p.all);
    return pi_launch_dependent(stream, latent_inputs, grid, dim3(LATENT_THREADS), bytes, p);
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
