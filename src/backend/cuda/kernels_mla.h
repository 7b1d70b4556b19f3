/* Inputs of latent attention in one launch (kernels/mla_kernels.cuh). See kernels.h. */
#ifndef PI__CUDA_KERNELS_MLA_H
#define PI__CUDA_KERNELS_MLA_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_MAX_LATENT = 2 /* max mla_qkv, and max compress, per launch */ };

/* Up to PI__K_MAX_LATENT mla_qkv, with a row or without, and compressors of the same tokens. Each has its own rows
 * and caches. */
typedef struct pi__k_latent_inputs {
    pi__k_mla_qkv q[PI__K_MAX_LATENT];
    pi__k_compress compress[PI__K_MAX_LATENT];
    int32_t n_q, n_compress;
} pi__k_latent_inputs;

/* Runs them in one launch, bitwise identical to one launch for each. */
int pi__k_latent_inputs_run(void *stream, const pi__k_latent_inputs *a);

#ifdef __cplusplus
}
#endif
#endif
