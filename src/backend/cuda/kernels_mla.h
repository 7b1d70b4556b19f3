/* Inputs of latent attention in one launch (kernels/mla_kernels.cuh). See kernels.h. */
#ifndef PI__CUDA_KERNELS_MLA_H
#define PI__CUDA_KERNELS_MLA_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_MAX_LATENT = 2 /* max ops mla_qkv, and max ops compress, per launch */ };

/* Up to PI__K_MAX_LATENT ops mla_qkv, each with queries, a row or both, and up to PI__K_MAX_LATENT ops compress. All
 * have the same tokens; each has its own rows and caches. */
typedef struct pi__k_latent_inputs {
    pi__k_mla_qkv q[PI__K_MAX_LATENT];
    pi__k_compress compress[PI__K_MAX_LATENT];
    int32_t n_q, n_compress; /* used entries of q, of compress */
} pi__k_latent_inputs;

/* Runs these ops in one launch. Results are bitwise identical to one launch per op. */
int pi__k_latent_inputs_run(void *stream, const pi__k_latent_inputs *a);

#ifdef __cplusplus
}
#endif
#endif
