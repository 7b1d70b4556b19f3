/* cuBLAS, as an implementation of blas.h.
 *
 * The library is loaded when a backend with option cublas opens, so that the engine starts without it. Function names
 * and constants are copied from cuBLAS's own header, and have not changed since version 11.
 *
 * Memory: one small object, and cuBLAS's own. The caller provides the workspace of products, so that they can be
 * captured. Threads: as device.h says. */
#include "backend/cuda/blas.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>

#include "backend/cuda/queue.h"
#include "base/alloc.h"

/* Constants of cublas_v2.h. OP_N, OP_T: a matrix as stored, or transposed. R_*: data types. COMPUTE_32F: products are
 * summed in F32. NO_NARROW_SUMS: cuBLAS may not reduce partial sums in 16 bits. */
enum {
    OP_N = 0,
    OP_T = 1,
    R_32F = 0,
    R_16F = 2,
    R_16BF = 14,
    COMPUTE_32F = 68,
    ALGO_DEFAULT = -1,
    NO_NARROW_SUMS = 16
};
typedef struct cublasContext *handle;

struct pi__blas {
    void *lib;     /* from dlopen */
    handle handle; /* NULL = not created */
    pi__rt *rt;    /* device and stream */
    int (*create)(handle *h);
    int (*destroy)(handle h);
    int (*set_stream)(handle h, cudaStream_t stream);
    int (*set_workspace)(handle h, void *workspace, size_t size);
    int (*set_math)(handle h, int mode);
    int (*gemm)(handle h, int op_a, int op_b, int m, int n, int k, const void *alpha, const void *a, int type_a,
                int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc,
                int compute, int algo);
};

/* Returns the CUDA runtime's error code that is closest to a cuBLAS status. */
static int code_of(int status)
{
    switch (status) {
    case 0: return cudaSuccess;
    case 3: return cudaErrorMemoryAllocation;
    case 7: return cudaErrorInvalidValue;
    case 8: return cudaErrorNoKernelImageForDevice;
    case 13: return cudaErrorLaunchFailure;
    case 15: return cudaErrorNotSupported;
    default: return cudaErrorUnknown;
    }
}

/* Loads the library and its functions. Returns false if the library or a function is missing. */
static bool load(pi__blas *b)
{
    const struct { const char *name; void **to; } names[] = {
        {"cublasCreate_v2", (void **) &b->create},       {"cublasDestroy_v2", (void **) &b->destroy},
        {"cublasSetStream_v2", (void **) &b->set_stream}, {"cublasSetWorkspace_v2", (void **) &b->set_workspace},
        {"cublasSetMathMode", (void **) &b->set_math},   {"cublasGemmEx", (void **) &b->gemm}};
    char file[32];
    snprintf(file, sizeof file, "libcublas.so.%d", CUDART_VERSION / 1000);
    b->lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    bool all = b->lib != NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && all; i++) {
        *names[i].to = dlsym(b->lib, names[i].name);
        all = *names[i].to != NULL;
    }
    return all;
}

int pi__blas_open(pi__blas **out, pi__rt *rt)
{
    pi__blas *b = pi__calloc(1, sizeof *b);
    *out = NULL;
    if (!b) return 0;
    b->rt = rt;
    if (!load(b)) {
        pi__blas_close(b);
        return 0;
    }
    int code = (int) cudaSetDevice(pi__rt_index(rt));
    if (!code) code = code_of(b->create(&b->handle));
    if (!code) code = code_of(b->set_stream(b->handle, pi__queue_stream(pi__rt_stream(rt))));
    if (!code) code = code_of(b->set_math(b->handle, NO_NARROW_SUMS));
    if (code) pi__blas_close(b);
    else *out = b;
    return code;
}

void pi__blas_close(pi__blas *b)
{
    if (!b) return;
    cudaSetDevice(pi__rt_index(b->rt));
    if (b->handle) b->destroy(b->handle);
    if (b->lib) dlclose(b->lib);
    pi__free(b);
}

/* Bytes that cuBLAS's documentation recommends for sm_90 and later. */
size_t pi__blas_workspace(const pi__blas *b)
{
    (void) b;
    return (size_t) 32 << 20;
}

int pi__blas_use(pi__blas *b, void *workspace, size_t size)
{
    int code = (int) cudaSetDevice(pi__rt_index(b->rt));
    return code ? code : code_of(b->set_workspace(b->handle, workspace, size));
}

/* cuBLAS is column-major. Seen that way, y is [n_out, n_rows], w is [n_in, n_out] and x is [n_in, n_rows]; the product
 * is y = w^T x. */
int pi__blas_gemm(pi__blas *b, const pi__gemm *g)
{
    const float one = 1.0f, add = g->add ? 1.0f : 0.0f;
    const int type = g->bf16 ? R_16BF : R_16F;
    int code = (int) cudaSetDevice(pi__rt_index(b->rt));
    if (code) return code;
    return code_of(b->gemm(b->handle, OP_T, OP_N, (int) g->n_out, g->n_rows, (int) g->n_in, &one, g->w, type,
                           (int) g->ldw, g->x, type, (int) g->n_in, &add, g->y, R_32F, (int) g->ldy, COMPUTE_32F,
                           ALGO_DEFAULT));
}