/* A link of ranks that are processes and compute in host memory: all-gathers of the transport.
 *
 * Memory: one small object. Threads: the rank's thread, or a thread of the device's queue, while rank 0 holds the
 * ranks' lock. A rank that leaves sends no message: the others time out. */
#include "backend/ranks.h"
#include "base/alloc.h"
#include "base/error.h"

typedef struct link_ranks {
    pi__link link;   /* first: the public interface */
    pi__ranks *r;    /* the processes */
} link_ranks;

static bool ranks_gather(pi__link *link, int32_t rank, float *buf, size_t count)
{
    pi__ranks *r = ((link_ranks *) link)->r;
    (void) rank;
    if (atomic_load(&r->dead)) return false;
    return !count || pi__ranks_check(r, r->fns->gather(r, buf, count * sizeof *buf, r->timeout_ms));
}

static int ranks_wait(pi__link *link, int32_t rank)
{
    (void) rank;
    /* no work is queued: gather has waited */
    return atomic_load(&((link_ranks *) link)->r->dead) ? PI__LINK_LEFT : PI__LINK_DONE;
}

static void ranks_leave(pi__link *link, int32_t rank)
{
    (void) rank;
    pi__ranks_check(((link_ranks *) link)->r, false);
}

static void ranks_destroy(pi__link *link) { pi__free(link); }

int pi__link_ranks(pi__link **out, const pi__seat *seat, pi_error *err)
{
    static const pi__link_ops ops = {ranks_destroy, ranks_gather, ranks_wait, ranks_leave};
    link_ranks *l = pi__calloc(1, sizeof *l);
    *out = NULL;
    if (!l) return pi__fail_mem(err, "the link of ranks");
    *l = (link_ranks) {{&ops}, seat->ranks};
    *out = &l->link;
    return PI_OK;
}
