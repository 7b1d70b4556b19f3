/* Residual streams (kernels/hyper_kernels.cuh): hyper_post, the mixing matrix of the next block, hyper_pre and the
 * packed input of the next matrices, each alone or all in one launch. See kernels.h. */
#ifndef PI__CUDA_KERNELS_HYPER_H
#define PI__CUDA_KERNELS_HYPER_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A row is processed in pieces of PI__K_HYPER_PIECE columns per stream. A launch of all stages has at most
 * PI__K_HYPER_ROWS rows, or PI__K_HYPER_GROUPS groups of 8 rows. */
enum { PI__K_HYPER_PIECE = 128, PI__K_HYPER_ROWS = 8, PI__K_HYPER_GROUPS = 4 };
/* Columns per stream in one partial sum. */
enum { PI__K_HYPER_PART = 16 };

typedef struct pi__k_streams {
    int32_t n_rows, n_iter; /* n_iter 0: the matrix has 4 rows instead of 24, and there is no coef */
    int64_t n;              /* values per stream */
    float *x;               /* [n_rows, 4 n] streams */
    const float *result;    /* [n_rows, n] result of the block before, added first, with coef; NULL = no addition */
    const void *w;          /* [n_m, 4 n] mixing matrix; NULL = `mix` is an input, if y is computed */
    int32_t type;           /* type of w: F32, F16 or BF16 */
    float *mix;             /* [n_rows, n_m] matrix times x: written if y is NULL, read if w is NULL */
    const float *scale, *base;
    float norm_eps, eps;
    float *coef;            /* [n_rows, 20] read with `result`; written with y */
    float *y;               /* [n_rows, n] input of the next block; NULL = not computed. May be equal to `result` */
    float *sums;            /* [pi__k_hyper_sums()] scratch */
    uint32_t *arrived;      /* [PI__K_HYPER_ROWS] arrival counters, 0 before and after the launch */
    int32_t n_sm;           /* SMs; 0 = unknown. Limits the blocks that may wait for others; affects speed only */
} pi__k_streams;

/* parts: partial sums per row of n values. sums: floats of scratch for n_rows rows. */
#ifdef __CUDACC__
__host__ __device__
#endif
static inline int32_t pi__k_hyper_parts(int64_t n)
{
    return (int32_t) ((n + PI__K_HYPER_PART - 1) / PI__K_HYPER_PART);
}
size_t pi__k_hyper_sums(int32_t n_rows, int64_t n);

/* Runs the stages that are set: result, w, y. With y and `then`, also packs the epilogue's input: y, normalized, with
 * an equal number of rows, as integers, floats, 16-bit floats and sums of these, as far as requested. The epilogue's
 * counter is not used. A row's results are bitwise identical for any combination of stages and rows. */
int pi__k_streams_run(void *stream, const pi__k_streams *k, const pi__k_tail *then);

#ifdef __cplusplus
}
#endif

#endif
