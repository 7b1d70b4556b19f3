/* Matrices of several types in one launch, with optional extra work (kernels/mixed_kernels.cuh). See kernels.h. */
#ifndef PI__CUDA_KERNELS_MIXED_H
#define PI__CUDA_KERNELS_MIXED_H

#include "backend/cuda/kernels_hyper.h"
#include "backend/cuda/kernels_mla.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A second input that an epilogue packs for other matrices, in the format of pi__k_w16_pack_x. It has the epilogue's
 * number of rows. */
typedef struct pi__k_side_input {
    pi__k_input in;
    int64_t n_in;   /* columns */
    void *halves;   /* packed output; NULL = nothing is packed */
    int32_t bf16;   /* not 0: values are BF16; 0 = F16 */
} pi__k_side_input;

/* Extra work of a launch; NULL = none. */
typedef struct pi__k_mixed_more {
    /* with an epilogue: experts are chosen and routes computed from this, as in pi__k_expert_choice_run, instead of
     * from the epilogue's routes */
    const pi__k_expert_choice *choice;
    const pi__k_side_input *beside; /* with an epilogue: a second input to pack */
    /* computed in the same launch, as by pi__k_latent_inputs_run; must not depend on the launch's products */
    const pi__k_latent_inputs *latent;
    /* With an epilogue, one matrix, and without the other fields: the matrix's results, y, are added to these residual
     * streams of n_out values, a multiple of 16. `result` must be y. The epilogue may have a sum of experts, without
     * biases and shared expert; then its only add adds the sum to y first. The launch runs all stages of
     * pi__k_streams_run, and packs the epilogue's input. */
    const pi__k_streams *streams;
} pi__k_mixed_more;

/* pi__k_mixed_linear with extra work. `more` must not be NULL. */
int pi__k_mixed_linear_more(void *stream, const pi__k_product *w, int32_t n, const void *halves, const float *floats,
                            int32_t n_rows, const pi__k_tail *t, const pi__k_mixed_more *more);

#ifdef __cplusplus
}
#endif
#endif