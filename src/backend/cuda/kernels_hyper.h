/* Residual streams (kernels/hyper_kernels.cuh). Stages: hyper_post, the mixing matrix of the next block, hyper_pre, and
 * the packing of the next matrices' input. Each can be a separate launch, or all one launch. See kernels.h. */
#ifndef PI__CUDA_KERNELS_HYPER_H
#define PI__CUDA_KERNELS_HYPER_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A block processes PI__K_HYPER_PIECE columns of each stream, of one row or of a group of 8 rows. One launch can run
 * all stages for at most PI__K_HYPER_ROWS rows, or PI__K_HYPER_GROUPS groups of 8 rows; else hyper_pre has its own
 * launch. */
enum { PI__K_HYPER_PIECE = 128, PI__K_HYPER_ROWS = 8, PI__K_HYPER_GROUPS = 4 };
/* Columns per stream in one partial sum. */
enum { PI__K_HYPER_PART = 16 };

typedef struct pi__k_streams {
    int32_t n_rows, n_iter; /* n_m is 24; with n_iter 0 it is 4, and coef is not written */
    int64_t n;              /* values per stream */
    float *x;               /* [n_rows, 4 n] streams */
    /* [n_rows, n] result of the previous block, added to x first, weighted by coef; NULL = nothing is added */
    const float *result;
    /* [n_m, 4 n] mixing matrix; NULL = no product: `mix` is an input, if y is computed */
    const void *w;
    int32_t type;           /* type of w: F32, F16 or BF16 */
    float *mix;             /* [n_rows, n_m] w times x: written if y is NULL, read if w is NULL */
    const float *scale, *base;
    float norm_eps, eps;
    float *coef;            /* [n_rows, 20] as in pi__hyper: read with `result`; written with y */
    /* [n_rows, n] result of hyper_pre, the input of the next block; NULL = not computed. May be equal to `result` */
    float *y;
    float *sums;            /* [pi__k_hyper_sums() floats] scratch */
    uint32_t *arrived;      /* [PI__K_HYPER_ROWS] arrival counters, per row or group; 0 before and after the launch */
    pi__k_waits waits;
} pi__k_streams;

/* pi__k_hyper_parts: partial sums of a row with n values per stream. pi__k_hyper_sums: floats of scratch for n_rows
 * rows. */
#ifdef __CUDACC__
__host__ __device__
#endif
static inline int32_t pi__k_hyper_parts(int64_t n)
{
    return (int32_t) ((n + PI__K_HYPER_PART - 1) / PI__K_HYPER_PART);
}
size_t pi__k_hyper_sums(int32_t n_rows, int64_t n);

/* Runs the stages that are set: result, w, y. With y and `then`, also packs the epilogue's input `in`: the RMSNorm of
 * y, as integers, floats, 16-bit floats and terms, as far as the epilogue requests them. The epilogue's counter is not
 * used. A row's results are bitwise identical for any combination of stages and rows. */
int pi__k_streams_run(void *stream, const pi__k_streams *k, const pi__k_tail *then);

#ifdef __cplusplus
}
#endif

#endif
