/* Helpers of the device self-test (selftest_ops.c, selftest_fused.c, selftest_wgmma.c): a region of device memory,
 * synchronous copies, random numbers. */
#ifndef PI__CUDA_TRYOUT_H
#define PI__CUDA_TRYOUT_H

#include <math.h>
#include <string.h>

#include "backend/cuda/impl.h"
#include "base/alloc.h"
#include "base/assert.h"

enum { DEVICE_BYTES = 8 << 20 };

/* A region of device memory with a bump allocator. */
typedef struct tryout {
    pi__rt *rt;
    char *p;      /* the region, DEVICE_BYTES bytes */
    size_t used;  /* bytes allocated from the start of the region */
    int code;     /* first error of the runtime, or 0 */
    bool no_room; /* host memory ran out */
    bool fast;    /* attention rounds its queries to F16 */
    bool w16;     /* products use 16-bit floats */
    int matmul_modes; /* PI__WAY_*: matmul modes */
    bool wgmma;   /* products of many rows in 16-bit floats use wgmma */
    int arch;     /* compute capability of the device */
    pi__k_waits waits; /* limits of waiting blocks */
    uint64_t rng; /* state of the random numbers */
} tryout;

/* Records the first error code that is not 0. */
static inline void keep(tryout *t, int code)
{
    if (!t->code) t->code = code;
}

/* Allocates n bytes of zeroed host memory; the caller frees them. NULL = out of memory; no_room is set then, and ends
 * the self-test. */
static inline void *own(tryout *t, size_t n)
{
    void *p = pi__calloc(1, n);
    t->no_room |= !p;
    return p;
}

/* Allocates n bytes of the device region, aligned to 256 bytes; freed by resetting t->used. The region is large enough
 * for each check. */
static inline void *take(tryout *t, size_t n)
{
    char *p = t->p + pi__cuda_take(&t->used, n);
    pi__assert(t->used <= DEVICE_BYTES);
    return p;
}

/* Copies n bytes of src to a new part of the device region, and returns its device address. */
static inline void *put(tryout *t, const void *src, size_t n)
{
    void *p = take(t, n);
    if (!t->code) keep(t, pi__rt_upload(t->rt, p, src, n));
    return p;
}

/* Downloads n bytes to dst after all queued work, and waits for them. Returns false after an error. */
static inline bool get(tryout *t, void *dst, const void *src, size_t n)
{
    if (!t->code) keep(t, pi__rt_download(t->rt, dst, src, n));
    if (!t->code) keep(t, pi__rt_wait(t->rt));
    return !t->code;
}

/* Fills n bytes of device memory with bytes 0xff, which are NaN in every type: old results must not pass for results of
 * a kernel that did not run. with: n bytes of host memory, overwritten. */
static inline void blank(tryout *t, void *dst, void *with, size_t n)
{
    memset(with, 0xff, n);
    if (!t->code) keep(t, pi__rt_upload(t->rt, dst, with, n));
}

/* Returns a random number between -1 and 1. */
static inline float next(tryout *t)
{
    t->rng = t->rng * 6364136223846793005u + 1442695040888963407u;
    return (float) (t->rng >> 40) * 0x1p-23f - 1.0f;
}

/* True if got is equal to the expected value within a tolerance: absolute for small values, relative for large ones. */
static inline bool near(double got, double want, double tolerance)
{
    return fabs(got - want) <= tolerance * (1 + fabs(want));
}

/* Each of these functions sets fields of `disabled` for features with wrong results. selftest_wgmma.c: checks wgmma
 * attention. */
void pi__cuda_try_wgmma(tryout *t, cuda_disabled *disabled);
/* selftest_fused.c: check fused gate and up; split-K; sparse prefill. */
void pi__cuda_try_glu(tryout *t, cuda_disabled *disabled);
void pi__cuda_try_slices(tryout *t, cuda_disabled *disabled);
void pi__cuda_try_key_blocks(tryout *t, cuda_disabled *disabled);

#endif
