/* Matrices of floats times many rows (kernels/floats_kernels.cuh), as functions; as those of kernels.h. */
#ifndef PI__CUDA_KERNELS_FLOATS_H
#define PI__CUDA_KERNELS_FLOATS_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* There is a kernel for a matrix of that type, F32, F16 or BF16, and so many rows: it would not leave multiprocessors idle. */
int pi__k_floats_has(int32_t type, int64_t n_out, int32_t n_rows);
/* n such matrices of one type, to the bits of pi__k_linear, with x as pi__k_prepare leaves floats. */
int pi__k_floats_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows);

#ifdef __cplusplus
}
#endif
#endif
