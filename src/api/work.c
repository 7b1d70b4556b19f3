/* pi_work_*: work budgets for callers of the library (see base/work.h). */
#include "api/objects.h"
#include "base/alloc.h"

pi_work *pi_work_new(uint64_t max_steps, size_t max_bytes, int timeout_ms)
{
    pi_work *w = pi__calloc(1, sizeof *w);
    if (w) pi__work_init(&w->w, max_steps, max_bytes, timeout_ms < 0 ? -1 : timeout_ms);
    return w;
}

void pi_work_cancel(pi_work *w)
{
    if (w) pi__work_cancel(&w->w);
}

int pi_work_check(pi_work *w)
{
    if (w) pi__work_check_due(&w->w, 0);
    return w ? w->w.code : PI_OK;
}

void pi_work_free(pi_work *w) { pi__free(w); }
