/* Matrices of several types of which the last is a router (kernels/mixed_kernels.cuh), as a function; as those of kernels.h. */
#ifndef PI__CUDA_KERNELS_MIXED_H
#define PI__CUDA_KERNELS_MIXED_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a tail prepares besides its own input: one of other matrices, of as many rows, as pi__k_w16_prepare has it. */
typedef struct pi__k_beside {
    pi__k_input in;
    int64_t n_in;
    void *halves; /* NULL: nothing */
    int32_t bf16;
} pi__k_beside;

/* As pi__k_mixed_linear with a tail t, but that its routes are those of the choice, as pi__k_expert_choice_run has them, and that it
 * prepares what is beside. choice NULL: t's own. beside NULL: nothing. */
int pi__k_mixed_linear_choice(void *stream, const pi__k_product *w, int32_t n, const void *halves, const float *floats, int32_t n_rows,
                              const pi__k_tail *t, const pi__k_expert_choice *choice, const pi__k_beside *beside);

#ifdef __cplusplus
}
#endif
#endif
