/* Products with 16-bit float matrices by a library (option cublas).
 *
 * Two implementations: blas_cuda.c over cuBLAS, tests/simt/blas_emu.cpp for the emulator. Functions return 0 or an
 * error code of the runtime. The library selects the kernel, and so the order of sums, by the number of rows: results
 * are not batch-invariant. */
#ifndef PI__CUDA_BLAS_H
#define PI__CUDA_BLAS_H

#include "backend/cuda/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pi__blas pi__blas;

/* Opens the library for the stream of rt. Returns 0 with *out NULL if the library is missing or memory ran out. */
int pi__blas_open(pi__blas **out, pi__rt *rt);
/* Closes the library; b may be NULL. No product may be queued. */
void pi__blas_close(pi__blas *b);
/* workspace: returns the recommended bytes of device memory for products. use: sets that memory, aligned to 256 bytes;
 * it must stay valid until the next call of use, or close. */
size_t pi__blas_workspace(const pi__blas *b);
int pi__blas_use(pi__blas *b, void *workspace, size_t size);
/* Queues y[r, o] = sum over i of w[o, i] * x[r, i], accumulated in floats; with `add`, y[r, o] += that sum. w [n_out,
 * n_in] and x [n_rows, n_in] are F16, or BF16 with `bf16`. n_in is a multiple of 8. ldw and ldy are the distances
 * between rows, in values. */
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