/* The queue of changes of the prefix cache, from the engine's step thread to the one that publishes them.
 *
 * Two halves of fixed size: one is being filled, the other one read, and whoever reads swaps them. The lock is held for one
 * copy or for the swap. A change that does not fit is lost, and so are those after it until the reader comes: what is in
 * the half is whole up to there.
 *
 *     filling  | stored 3 blocks | removed 1 | stored 1 |      put: the step thread
 *     reading  | stored 9 blocks |                             next: the reader, until its next take
 *
 * Memory: two mappings at open, which become resident as they are used. Two threads, one on each side. */
#ifndef PAGEDINFER_SERVE_KV_QUEUE_H
#define PAGEDINFER_SERVE_KV_QUEUE_H

#include <pagedinfer.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kv_queue {
    pthread_mutex_t lock;
    unsigned char *half[2];  /* [cap] */
    size_t cap;              /* bytes of a half */
    size_t used;             /* of the half that is being filled */
    int filling;             /* which one that is */
    uint64_t lost;           /* changes that did not fit, since the last take */
} kv_queue;

typedef struct kv_changes { /* what a take found; valid until the next one */
    const unsigned char *p;
    size_t n;                /* bytes */
    uint64_t lost;           /* changes that were lost behind them */
} kv_changes;

bool kv_queue_open(kv_queue *q, size_t cap); /* false: out of memory, and there is nothing to close */
void kv_queue_close(kv_queue *q);
/* true: the half was empty before, so the reader may be asleep. Never waits for memory or for work of the reader. */
bool kv_queue_put(kv_queue *q, const pi_cache_event *ev);
kv_changes kv_queue_take(kv_queue *q);
/* The change at *at, which is moved behind it; its arrays point into c. false: there is none. */
bool kv_changes_next(const kv_changes *c, size_t *at, pi_cache_event *ev);

/* What changes are published as: neighbours of one kind together, stored blocks as far as each follows from the one
 * before, removed ones as they come. The run that begins at *at, which is moved behind it: its first change, with the
 * numbers of the whole run in n_hashes and n_tokens. */
bool kv_changes_run(const kv_changes *c, size_t *at, pi_cache_event *run);

#endif
