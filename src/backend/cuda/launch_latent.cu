/* Launches of kernels/latent_kernels.cuh: variant, shared memory (see kernels_sparse.h; launch_sparse.cuh has the
 * grid). */
#include "backend/cuda/launch_sparse.cuh"
#include "latent_kernels.cuh"

using namespace latent;

static_assert(shape<COPIED, false>::total <= 99 << 10, "sm_120 has 99 KiB of shared memory per block");

template <int KIND> static int run(void *stream, const pi__k_sparse *a, uint32_t *arrived)
{
    return run_lists<shape<KIND, false>, shape<KIND, true>>(stream, a, latent::latent<KIND, false>,
                                                            latent::latent<KIND, true>, arrived);
}

int pi__k_latent(void *stream, const pi__k_sparse *a, bool copied, uint32_t *arrived)
{
    return copied ? run<COPIED>(stream, a, arrived) : run<ONE>(stream, a, arrived);
}
