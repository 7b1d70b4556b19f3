/* What the trials of a device share (selftest_ops.c, selftest_fused.c, selftest_wgmma.c): a region of it, copies that are waited
 * for, numbers. */
#ifndef PI__CUDA_TRYOUT_H
#define PI__CUDA_TRYOUT_H

#include <math.h>
#include <string.h>

#include "backend/cuda/impl.h"
#include "base/alloc.h"
#include "base/assert.h"

enum { DEVICE_BYTES = 8 << 20 };

/* A region of the device that is handed out from its beginning. */
typedef struct tryout {
    pi__rt *rt;
    char *p;      /* DEVICE_BYTES */
    size_t used;
    int code;     /* the first error of the runtime */
    bool no_room; /* the host had no memory for something */
    bool fast;    /* attention's queries are rounded */
    bool w16;     /* products are made in 16-bit floats */
    int ways;     /* PI__WAY_*: how products are made */
    bool wgmma;   /* those of many rows in 16-bit floats by it */
    int arch;     /* the device's */
    uint64_t rng;
} tryout;

static inline void keep(tryout *t, int code)
{
    if (!t->code) t->code = code;
}

/* Zeroed memory of the host; NULL: none, which ends it all. */
static inline void *own(tryout *t, size_t n)
{
    void *p = pi__calloc(1, n);
    t->no_room |= !p;
    return p;
}

/* n bytes of the device; they are aligned. There is room for what is asked here. */
static inline void *take(tryout *t, size_t n)
{
    char *p = t->p + pi__cuda_take(&t->used, n);
    pi__assert(t->used <= DEVICE_BYTES);
    return p;
}

static inline void *put(tryout *t, const void *src, size_t n)
{
    void *p = take(t, n);
    if (!t->code) keep(t, pi__rt_upload(t->rt, p, src, n));
    return p;
}

/* What is queued comes first. false: something failed. */
static inline bool get(tryout *t, void *dst, const void *src, size_t n)
{
    if (!t->code) keep(t, pi__rt_download(t->rt, dst, src, n));
    if (!t->code) keep(t, pi__rt_wait(t->rt));
    return !t->code;
}

/* n bytes of the device that are no number in any type, so that what does not run leaves nothing that was right before. */
static inline void blank(tryout *t, void *dst, void *with, size_t n)
{
    memset(with, 0xff, n);
    if (!t->code) keep(t, pi__rt_upload(t->rt, dst, with, n));
}

/* Between -1 and 1. */
static inline float next(tryout *t)
{
    t->rng = t->rng * 6364136223846793005u + 1442695040888963407u;
    return (float) (t->rng >> 40) * 0x1p-23f - 1.0f;
}

static inline bool near(double got, double want, double tolerance) { return fabs(got - want) <= tolerance * (1 + fabs(want)); }

/* selftest_wgmma.c: of attention */
void pi__cuda_try_wgmma(tryout *t, cuda_without *without);
/* selftest_fused.c */
void pi__cuda_try_glu(tryout *t, cuda_without *without);
void pi__cuda_try_slices(tryout *t, cuda_without *without);
void pi__cuda_try_key_blocks(tryout *t, cuda_without *without);

#endif
