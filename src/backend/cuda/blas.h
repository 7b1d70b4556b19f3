/* Products of matrices of 16-bit floats by a library.
 *
 * Two implementations: blas_cuda.c over cuBLAS, tests/simt/blas_emu.cpp for the emulator. Numbers returned are 0 or an error
 * code of the runtime. Which kernels it takes, and so the order of sums, depends on the number of rows: see option cublas. */
#ifndef PI__CUDA_BLAS_H
#define PI__CUDA_BLAS_H

#include "backend/cuda/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pi__blas pi__blas;

/* Products are queued as kernels are. 0 with *out NULL: the library is not there, or memory for it. */
int pi__blas_open(pi__blas **out, pi__rt *rt);
/* Nothing is queued any more. b may be NULL. */
void pi__blas_close(pi__blas *b);
/* Device memory that products work in: how much is best, and which it is, aligned to 256 bytes, until the next such call. */
size_t pi__blas_workspace(const pi__blas *b);
int pi__blas_use(pi__blas *b, void *workspace, size_t size);
/* y[r, o] = sum over i of w[o, i] * x[r, i], added up in floats; add: y += that. w [n_out, n_in] and x [n_rows, n_in] are F16,
 * or (bf16) BF16, and n_in is a multiple of 8; w's rows are ldw values apart, y's ldy. */
typedef struct pi__gemm {
    int bf16, add;
    int32_t n_rows;
    int64_t n_in, n_out;
    const void *w;
    int64_t ldw;
    const void *x;
    float *y;
    int64_t ldy;
} pi__gemm;
int pi__blas_gemm(pi__blas *b, const pi__gemm *g);

#ifdef __cplusplus
}
#endif

#endif
