/* Inputs of latent attention in a separate launch: one thread block for each block of latent_inputs.cuh. */
#ifndef PI_MLA_KERNELS_CUH
#define PI_MLA_KERNELS_CUH

#include "latent_inputs.cuh"

namespace mla {

/* Runs latent_block() for each block of each token. Grid: x = token, y = block of the token. */
__global__ void __launch_bounds__(LATENT_THREADS) latent_inputs(PI_CONSTANT latent_blocks p)
{
    ptx_wait_dependency();
    PI_SMEM(raw);
    latent_block(p, (int32_t) blockIdx.x, (int32_t) blockIdx.y, raw);
}

} /* namespace mla */

#endif
