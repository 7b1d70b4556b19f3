/* Reading residual streams with what the next matrices make of the result (kernels/hyper_kernels.cuh), as a function; as those of
 * kernels.h. */
#ifndef PI__CUDA_KERNELS_HYPER_H
#define PI__CUDA_KERNELS_HYPER_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* pi__k_hyper_pre, and then the tail's input, which is y, normed, of as many rows: in integers, floats and 16-bit floats, as they are
 * wanted. NULL: nothing. No block waits for another, so that rows may be many; the tail's counter is not used. */
int pi__k_hyper_pre_then(void *stream, const pi__hyper *a, const pi__k_tail *t);

#ifdef __cplusplus
}
#endif
#endif
