/* Several products with F16 or BF16 matrices in one launch (kernels/mma16_kernels.cuh). See kernels.h. */
#ifndef PI__CUDA_KERNELS_MMA16_H
#define PI__CUDA_KERNELS_MMA16_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PI__K_MAX_MMA16 = 8 };

/* Queues n products, at most PI__K_MAX_MMA16, with matrices of equal type and n_in, each like pi__k_mma16_linear. All
 * are one launch if n_rows is at most 32. */
int pi__k_mma16_products(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows);

#ifdef __cplusplus
}
#endif
#endif
