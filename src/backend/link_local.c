/* A link of ranks that are threads of one process. In an all-gather all ranks meet, copy each other's shards, and meet
 * again, so that no rank overwrites a shard that another one still reads.
 *
 * Memory: one small object. Threads: one per rank. Invariant: all ranks see the data that any rank wrote before a
 * meeting. */
#include <pthread.h>
#include <string.h>

#include "backend/link.h"
#include "base/alloc.h"
#include "base/error.h"

typedef struct local {
    pi__link link;          /* first: the public interface */
    int32_t n;              /* ranks */
    pthread_mutex_t lock;   /* guards the fields below */
    pthread_cond_t met;     /* signals the end of a meeting, or that a rank has left */
    int32_t n_here;         /* number of ranks that wait in the current meeting */
    uint64_t round;         /* number of completed meetings */
    bool left;              /* true = a rank has left: no rank waits any more */
    float *buf[];           /* [n] each rank's buffer in the current all-gather */
} local;

/* Waits until all ranks have called this. buf: stored as this rank's buffer; NULL = the stored buffer is kept. Returns
 * false if a rank has left. */
static bool meet(local *l, int32_t rank, float *buf)
{
    pthread_mutex_lock(&l->lock);
    uint64_t round = l->round;
    if (buf) l->buf[rank] = buf;
    if (!l->left && ++l->n_here == l->n) {
        l->n_here = 0;
        l->round++;
        pthread_cond_broadcast(&l->met);
    }
    while (l->round == round && !l->left) pthread_cond_wait(&l->met, &l->lock);
    bool all = l->round != round;
    pthread_mutex_unlock(&l->lock);
    return all;
}

static bool local_gather(pi__link *link, int32_t rank, float *buf, size_t count)
{
    local *l = (local *) link;
    if (!meet(l, rank, buf)) return false;
    for (int32_t p = 0; p < l->n; p++)
        if (p != rank) memcpy(buf + (size_t) p * count, l->buf[p] + (size_t) p * count, count * sizeof *buf);
    return meet(l, rank, NULL);
}

static int local_wait(pi__link *link, int32_t rank)
{
    (void) link;
    (void) rank;
    return PI__LINK_DONE; /* no work is queued: gather has waited */
}

static void local_leave(pi__link *link, int32_t rank)
{
    local *l = (local *) link;
    (void) rank;
    pthread_mutex_lock(&l->lock);
    l->left = true;
    pthread_cond_broadcast(&l->met);
    pthread_mutex_unlock(&l->lock);
}

static void local_destroy(pi__link *link)
{
    local *l = (local *) link;
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->met);
    pi__free(l);
}

int pi__link_local(pi__link **out, int32_t n, pi_error *err)
{
    static const pi__link_ops ops = {local_destroy, local_gather, local_wait, local_leave};
    local *l = pi__calloc(1, sizeof *l + (size_t) n * sizeof *l->buf);
    *out = NULL;
    if (!l) return pi__fail_mem(err, "the link of devices");
    l->link.ops = &ops;
    l->n = n;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->met, NULL);
    *out = &l->link;
    return PI_OK;
}
