/* Selective scans (kernels/scan_kernels.cuh has the layout of a state). See kernels.h. */
#ifndef PI__CUDA_KERNELS_SCAN_H
#define PI__CUDA_KERNELS_SCAN_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pi__k_scan { /* fields as in pi__scan, pi__state_layer and pi__batch of ops.h */
    /* slot i is at base + i * stride */
    char *base;
    size_t stride;
    char *snap;                /* snapshot i is at snap + i * snap_stride */
    size_t snap_stride;
    int32_t n_channel, n_state, n_draft;
    int32_t n_seqs;
    const float *x, *z, *dt, *b, *c;
    int64_t ldx, ldz, ld_dt, ld_bc;
    const float *norm_b, *norm_c, *dt_bias, *a, *skip;
    float eps;
    float *out;
    int64_t ldo;
    const int32_t *pos;        /* [n_tokens] */
    const int32_t *seq_start;  /* [n_seqs + 1] */
    const int32_t *n_verified; /* [n_seqs] */
    const int32_t *state_slot; /* [n_seqs]; negative = padding, nothing is done for the sequence */
    const int32_t *save_start; /* [n_seqs + 1] */
    const int32_t *save;       /* [save_start[n_seqs]][2] position; snapshot index */
} pi__k_scan;

/* Return the bytes of a layer's state in a slot, and in a snapshot. 0 = no kernel. Supported: n_channel a multiple of
 * 16, n_state 16 or 32. */
size_t pi__k_scan_state_bytes(const pi__k_scan *a);
size_t pi__k_scan_snapshot_bytes(const pi__k_scan *a);
int pi__k_scan_run(void *stream, const pi__k_scan *a);
/* As pi__k_state_save and pi__k_state_load. */
int pi__k_scan_save(void *stream, const pi__k_scan *a, int32_t slot, int32_t pos, int32_t snap);
int pi__k_scan_load(void *stream, const pi__k_scan *a, int32_t slot, int32_t pos, int32_t snap);

#ifdef __cplusplus
}
#endif
#endif
