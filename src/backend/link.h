/* The all-gather between devices that act as one (tensor.c): each rank sends its shard of a result to all other ranks.
 *
 * Memory: allocated by the link. Threads: each rank calls from its own thread; all ranks make the same calls in the
 * same order. A rank that cannot continue calls leave: then no rank waits for it, and the link cannot be used any
 * more. */
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

/* Results of wait: the work is done; the rank's queued work failed; the work cannot complete, because some rank
 * left. */
enum { PI__LINK_DONE, PI__LINK_FAILED, PI__LINK_LEFT };

/* The functions of a link. rank: number of the calling rank. */
typedef struct pi__link_ops {
    void (*destroy)(pi__link *l);
    /* All-gather. buf holds one shard of count floats per rank, in rank order: each rank has written its own shard at
     * rank * count, and receives all others. Queued like an op. If the rank's queue is being captured, the all-gather
     * is captured with it; all ranks capture and replay it together. Returns false on failure, or if some rank left. */
    bool (*gather)(pi__link *l, int32_t rank, float *buf, size_t count);
    /* Waits for the rank's queued work and returns PI__LINK_*. After any result except DONE the rank has to leave:
     * its queue may never complete. */
    int (*wait)(pi__link *l, int32_t rank);
    /* Removes the rank from the link. The caller first drops the rank's captured all-gathers (graph_reset), as it
     * also does before destroy. */
    void (*leave)(pi__link *l, int32_t rank);
} pi__link_ops;

struct pi__link {
    const pi__link_ops *ops;
};

/* Creates a link for ranks in one process, with memory that every thread can read. */
int pi__link_local(pi__link **out, int32_t n, pi_error *err);

/* The position of this process among ranks that are processes (ranks.h). Devices with a network of their own (NCCL)
 * find each other by `id`: rank_id created it on rank 0, and rank 0 has sent it to all ranks. */
typedef struct pi__ranks pi__ranks;
enum { PI__RANK_ID_BYTES = 128 /* size of NCCL's id */ };
typedef struct pi__seat {
    pi__ranks *ranks;         /* the processes */
    int32_t rank, n;          /* this rank; number of ranks */
    double timeout_ms;        /* milliseconds that ranks wait for each other */
    char id[PI__RANK_ID_BYTES]; /* id made by rank 0; zeros for devices that need none */
} pi__seat;
/* Creates a link over the processes' transport, for devices that compute in memory that the process can read. */
int pi__link_ranks(pi__link **out, const pi__seat *seat, pi_error *err);

#ifdef __cplusplus
}
#endif

#endif
