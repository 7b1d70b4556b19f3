/* Short convolutions (kernels/short_conv_kernels.cuh has the layout of a state). See kernels.h. */
#ifndef PI__CUDA_KERNELS_CONV_H
#define PI__CUDA_KERNELS_CONV_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pi__k_conv { /* fields as in pi__short_conv, pi__state_layer and pi__batch of ops.h */
    /* slot i is at base + i * stride; base, stride, snap and snap_stride are multiples of 16 bytes */
    char *base;
    size_t stride;
    char *snap;                /* snapshot i is at snap + i * snap_stride */
    size_t snap_stride;
    int32_t dim, n_conv, n_draft;
    int32_t n_seqs, most;      /* sequences; max tokens of one */
    /* rows of x and out start at multiples of 16 bytes */
    const float *x;
    int64_t ldx;
    const float *conv, *bias;
    float *out;
    int64_t ldo;
    bool plain;
    const int32_t *pos;        /* [n_tokens] */
    const int32_t *seq_start;  /* [n_seqs + 1] */
    const int32_t *state_slot; /* [n_seqs]; negative = padding, nothing is done for the sequence */
    const int32_t *save_start; /* [n_seqs + 1] */
    const int32_t *save;       /* [save_start[n_seqs]][2] position; snapshot index */
} pi__k_conv;

/* Return the bytes of a layer's state in a slot, and in a snapshot. 0 = no kernel. Supported: dim a multiple of 4,
 * PI__MIN_CONV to PI__MAX_CONV taps. */
size_t pi__k_conv_state_bytes(const pi__k_conv *a);
size_t pi__k_conv_snapshot_bytes(const pi__k_conv *a);
int pi__k_conv_run(void *stream, const pi__k_conv *a);
/* As pi__k_state_save and pi__k_state_load. */
int pi__k_conv_save(void *stream, const pi__k_conv *a, int32_t slot, int32_t pos, int32_t snap);
int pi__k_conv_load(void *stream, const pi__k_conv *a, int32_t slot, int32_t pos, int32_t snap);

#ifdef __cplusplus
}
#endif
#endif
