/* Reports the progress of long work to a function of the caller, which can cancel the work. The function is called on
 * the working thread. No memory. */
#ifndef PI__PROGRESS_H
#define PI__PROGRESS_H

#include "base/error.h"
#include "pagedinfer.h"

typedef struct pi__progress {
    pi_progress_fn fn;    /* NULL = no reports */
    void *ud;             /* first argument of fn */
    int stage;            /* PI_LOAD_* */
    uint64_t done, total; /* bytes of the stage */
} pi__progress;

/* Adds n to the processed bytes of the stage and reports them. PI_ECANCELED = fn requested the end. p may be NULL. */
static inline int pi__progress_add(pi__progress *p, uint64_t n, pi_error *err)
{
    if (!p || !p->fn) return PI_OK;
    p->done += n;
    if (!p->fn(p->ud, p->stage, p->done, p->total)) return PI_OK;
    return pi__fail(err, PI_ECANCELED, "opening was canceled after %llu of %llu bytes", (unsigned long long) p->done,
                    (unsigned long long) p->total);
}

/* Begins another stage of `total` bytes and reports 0 processed bytes. PI_ECANCELED as above. p may be NULL. */
static inline int pi__progress_begin(pi__progress *p, int stage, uint64_t total, pi_error *err)
{
    if (!p) return PI_OK;
    p->stage = stage;
    p->done = 0;
    p->total = total;
    return pi__progress_add(p, 0, err);
}

#endif
