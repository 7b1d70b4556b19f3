/* What latent attention reads, made in one launch (kernels/mla_kernels.cuh), as a function; as those of kernels.h. */
#ifndef PI__CUDA_KERNELS_MLA_H
#define PI__CUDA_KERNELS_MLA_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_MOST_LATENT = 2 /* of either */ };

/* Queries of so many kinds, with a row or without, and so many compressors, of the same tokens, and with rows and caches of their
 * own. */
typedef struct pi__k_latent_inputs {
    pi__k_mla_qkv q[PI__K_MOST_LATENT];
    pi__k_compress compress[PI__K_MOST_LATENT];
    int32_t n_q, n_compress;
} pi__k_latent_inputs;

/* In one launch, to the bits of one for each. */
int pi__k_latent_inputs_run(void *stream, const pi__k_latent_inputs *a);

#ifdef __cplusplus
}
#endif
#endif
