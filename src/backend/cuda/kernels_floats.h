/* Float matrices times many rows (kernels/floats_kernels.cuh). See kernels.h. */
#ifndef PI__CUDA_KERNELS_FLOATS_H
#define PI__CUDA_KERNELS_FLOATS_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Returns not 0 if a kernel exists for this type (F32, F16 or BF16) and n_rows are enough to fill the SMs. */
int pi__k_floats_has(int32_t type, int64_t n_out, int32_t n_rows);
/* Products with n matrices of one type, bitwise identical to pi__k_linear. x is packed by pi__k_pack_x with
 * `floats`. */
int pi__k_floats_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows);

#ifdef __cplusplus
}
#endif
#endif
