/* What latent attention reads, by itself: a block for each of latent_inputs.cuh. */
#ifndef PI_MLA_KERNELS_CUH
#define PI_MLA_KERNELS_CUH

#include "latent_inputs.cuh"

/* Of the token blockIdx.x. */
__global__ void __launch_bounds__(LATENT_THREADS) latent_inputs(PI_CONSTANT latent_blocks p)
{
    ptx_take_turn();
    PI_SMEM(raw);
    latent_block(p, (int32_t) blockIdx.x, (int32_t) blockIdx.y, raw);
}

#endif
