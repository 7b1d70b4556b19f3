/* Addresses, copies and errors of a pipeline's stages (see stages.c), which all its files use. No memory. Threads: the
 * stages' own and the step thread; regions change only between runs. */
#include "backend/stages_impl.h"

region *pi__stages_region_of(const stages *s, const void *p)
{
    const char *c = p;
    for (const region *r = s->region; p && r < s->region + MAX_REGIONS; r++)
        if (r->host && c >= r->host && c < r->host + r->size) return (region *) r;
    return NULL;
}

void *pi__stages_at(const stages *s, int32_t i, const void *p)
{
    const region *r = pi__stages_region_of(s, p);
    return r ? r->at[i] + ((const char *) p - r->host) : (void *) p;
}

void pi__stages_copy(stages *s, int32_t i, char *lo, char *hi, bool out)
{
    pi__backend *be = s->be.at[i];
    char *at = pi__stages_at(s, i, lo);
    const size_t n = (size_t) (hi - lo);
    if (out) be->dev->download(be, lo, at, n);
    else be->dev->upload(be, at, lo, n);
}

const void *pi__stages_pairs_at(const void *ud, const void *p)
{
    const stage *k = ud;
    return pi__stages_at(k->s, k->i, p);
}

void pi__stages_fail(stages *s, const pi_error *err)
{
    pthread_mutex_lock(&s->lock);
    if (!s->error.code) s->error = *err;
    pthread_mutex_unlock(&s->lock);
    atomic_store(&s->failed, true);
}
