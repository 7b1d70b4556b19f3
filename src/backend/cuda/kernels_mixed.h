/* Matrices of several types in one launch, with what it may do besides (kernels/mixed_kernels.cuh), as a function; as those of
 * kernels.h. */
#ifndef PI__CUDA_KERNELS_MIXED_H
#define PI__CUDA_KERNELS_MIXED_H

#include "backend/cuda/kernels_hyper.h"
#include "backend/cuda/kernels_mla.h"

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

/* What a launch does besides; each NULL: nothing. */
typedef struct pi__k_mixed_more {
    const pi__k_expert_choice *choice; /* with a tail: its routes are those of this, as pi__k_expert_choice_run has them */
    const pi__k_beside *beside;        /* with a tail: is prepared too */
    const pi__k_latent_inputs *latent; /* as pi__k_latent_inputs_run has it, of what the launch does not make */
    const pi__k_streams *streams;      /* with a tail: streams of n_out values, a multiple of 16, to which the results of the one matrix
                                        * are added: `result` is its y, and if the tail has a sum of experts (no biases, no shared
                                        * one) the first addition's x too, which has no norm and is the only one. Then all that
                                        * pi__k_streams_run does, with the tail's input. Not with others of these */
} pi__k_mixed_more;

/* As pi__k_mixed_linear, with more. */
int pi__k_mixed_linear_more(void *stream, const pi__k_product *w, int32_t n, const void *halves, const float *floats, int32_t n_rows,
                            const pi__k_tail *t, const pi__k_mixed_more *more);

#ifdef __cplusplus
}
#endif
#endif
