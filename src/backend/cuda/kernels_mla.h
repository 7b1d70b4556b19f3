/* Several compressors at once (kernels/mla_kernels.cuh), as a function; as those of kernels.h. */
#ifndef PI__CUDA_KERNELS_MLA_H
#define PI__CUDA_KERNELS_MLA_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* n compressors, 1 or 2, of the same tokens, with caches of their own, in as many launches as one takes. */
int pi__k_compress_all(void *stream, const pi__k_compress *a, int32_t n);

#ifdef __cplusplus
}
#endif
#endif
