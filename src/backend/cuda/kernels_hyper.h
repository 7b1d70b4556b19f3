/* Residual streams (kernels/hyper_kernels.cuh): what hyper_post, the matrix of the next block's weights, hyper_pre and the next matrices'
 * input are, by themselves or in one launch, as a function; as those of kernels.h. */
#ifndef PI__CUDA_KERNELS_HYPER_H
#define PI__CUDA_KERNELS_HYPER_H

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A row is made in pieces of so many columns of each stream; a launch that is all of it has at most so many rows, or so many groups of
 * 8. */
enum { PI__K_HYPER_PIECE = 128, PI__K_HYPER_ROWS = 8, PI__K_HYPER_GROUPS = 4 };
/* Columns of each stream that have sums of their own. */
enum { PI__K_HYPER_PART = 16 };

typedef struct pi__k_streams {
    int32_t n_rows, n_iter; /* n_iter 0: the matrix has 4 rows, and not 24; there is no coef */
    int64_t n;              /* values of a stream */
    float *x;               /* [n_rows, 4 n] streams */
    const float *result;    /* [n_rows, n] of the block before, which is added first, with coef; NULL: nothing is */
    const void *w;          /* [n_m, 4 n] the matrix; NULL: mix is given, if y is made */
    int32_t type;           /* of it: F32, F16 or BF16 */
    float *mix;             /* [n_rows, n_m] the matrix times x: written without y, read without w */
    const float *scale, *base;
    float norm_eps, eps;
    float *coef;            /* [n_rows, 20] read for result; written with y */
    float *y;               /* [n_rows, n] what the next block reads; NULL: that is not made. It may be `result` */
    float *sums;            /* [pi__k_hyper_sums()] work */
    uint32_t *arrived;      /* [PI__K_HYPER_ROWS] 0 before and after the launch */
    int32_t n_sm;           /* multiprocessors, 0: not known. How many blocks may wait for others, a choice of speed alone */
} pi__k_streams;

/* How many such a row has, and floats of work for so many rows. */
#ifdef __CUDACC__
__host__ __device__
#endif
static inline int32_t pi__k_hyper_parts(int64_t n)
{
    return (int32_t) ((n + PI__K_HYPER_PART - 1) / PI__K_HYPER_PART);
}
size_t pi__k_hyper_sums(int32_t n_rows, int64_t n);

/* What is there of it: result, w or y. With y and `then`, the tail's input as well, which is y, normed, of as many rows: in integers,
 * floats, 16-bit floats and sums of such, as they are wanted. The tail's counter is not used. A row's bits do not depend on what is done
 * together, nor on other rows. */
int pi__k_streams_run(void *stream, const pi__k_streams *k, const pi__k_tail *then);

#ifdef __cplusplus
}
#endif

#endif
