/* The all-gather between devices that work as one (tensor.c): each gives the others its shard of a result.
 *
 * Memory: the link's own. Threads: each rank calls from a thread of its own, all ranks in the same order. A rank that
 * cannot go on leaves; nobody waits for it any more, and the link is of no more use. */
#ifndef PI__LINK_H
#define PI__LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pagedinfer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pi__link pi__link;

/* DONE; what was queued failed; it will not end, since some rank left. */
enum { PI__LINK_DONE, PI__LINK_FAILED, PI__LINK_LEFT };

typedef struct pi__link_ops {
    void (*destroy)(pi__link *l);
    /* All-gather. buf holds a shard of count floats for each rank: that of rank p, at p * count, becomes what rank p has
     * there. Queued like an op; or captured with the rank's queue, as it is then on all ranks, which replay it together.
     * false: it failed, or some rank left. */
    bool (*gather)(pi__link *l, int32_t rank, float *buf, size_t count);
    /* Waits for what the rank queued: PI__LINK_*. If that is not DONE the rank has to leave: the queue may
     * never end. */
    int (*wait)(pi__link *l, int32_t rank);
    /* The rank is in the link no more. Before this, and before destroy, its captured gathers are dropped
     * (graph_reset). */
    void (*leave)(pi__link *l, int32_t rank);
} pi__link_ops;

struct pi__link {
    const pi__link_ops *ops;
};

/* For ranks whose memory every thread of the process can read. */
int pi__link_local(pi__link **out, int32_t n, pi_error *err);

/* For ranks that are processes (ranks.h): this one among them. Devices with a network of their own find each other by what rank
 * 0 made, and all have. */
typedef struct pi__ranks pi__ranks;
enum { PI__RANK_ID_BYTES = 128 /* of NCCL */ };
typedef struct pi__seat {
    pi__ranks *ranks;         /* the processes */
    int32_t rank, n;          /* this one's number, of so many */
    double timeout_ms;        /* how long they wait for each other */
    char id[PI__RANK_ID_BYTES]; /* see above */
} pi__seat;
/* Where devices compute in memory that the process can read: by the processes' transport. */
int pi__link_ranks(pi__link **out, const pi__seat *seat, pi_error *err);

#ifdef __cplusplus
}
#endif

#endif
