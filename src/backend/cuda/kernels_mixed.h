/* Matrices of several types in one launch, with optional extra work (kernels/mixed_kernels.cuh). See kernels.h. */
#ifndef PI__CUDA_KERNELS_MIXED_H
#define PI__CUDA_KERNELS_MIXED_H

#include "backend/cuda/kernels_hyper.h"
#include "backend/cuda/kernels_mla.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A second input that an epilogue packs for other matrices: an equal number of rows, in the format of
 * pi__k_w16_pack_x. */
typedef struct pi__k_side_input {
    pi__k_input in;
    int64_t n_in;
    void *halves; /* NULL = nothing is packed */
    int32_t bf16;
} pi__k_side_input;

/* Extra work of a launch; each may be NULL. */
typedef struct pi__k_mixed_more {
    /* with an epilogue: replaces its routes, as pi__k_expert_choice_run does */
    const pi__k_expert_choice *choice;
    const pi__k_side_input *beside; /* with an epilogue: also packed */
    /* inputs of latent attention that do not depend on this launch, as of pi__k_latent_inputs_run */
    const pi__k_latent_inputs *latent;
    /* With an epilogue, and without the other fields: residual streams of n_out values, a multiple of 16. The results
     * of the only matrix are added to them: `result` is its y. If the epilogue has a sum of experts (without biases
     * and shared expert), `result` is also x of the first add, which is the only one and has no norm. Then the launch
     * runs all stages of pi__k_streams_run, with the epilogue's input. */
    const pi__k_streams *streams;
} pi__k_mixed_more;

/* pi__k_mixed_linear with extra work. */
int pi__k_mixed_linear_more(void *stream, const pi__k_product *w, int32_t n, const void *halves, const float *floats,
                            int32_t n_rows, const pi__k_tail *t, const pi__k_mixed_more *more);

#ifdef __cplusplus
}
#endif
#endif