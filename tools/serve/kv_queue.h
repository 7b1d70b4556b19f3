/* Queue of prefix cache changes, from the engine's step thread to the thread that publishes them.
 *
 * The queue has two halves of fixed size. The writer fills one half, the reader reads the other, and the reader swaps
 * them. The lock is held for one copy or for the swap. A change that does not fit is lost, and so are all changes
 * after it until the next swap. So the content of a half has no gap before its end.
 *
 *     filling  | stored 3 blocks | removed 1 | stored 1 |      put: the step thread
 *     reading  | stored 9 blocks |                             next: the reader, until its next take
 *
 * Memory: two mappings at open, which become resident as they are used. Two threads: one writer, one reader. */
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
    size_t cap;              /* capacity of a half, bytes */
    size_t used;             /* bytes used in the half that is being filled */
    int filling;             /* index of that half */
    uint64_t lost;           /* changes that did not fit since the last take */
} kv_queue;

typedef struct kv_changes { /* the half that a take returns; valid until the next take */
    const unsigned char *p;  /* [n] records, for kv_changes_next and kv_changes_run */
    size_t n;                /* bytes of p */
    uint64_t lost;           /* number of changes that were lost after the ones in p */
} kv_changes;

bool kv_queue_open(kv_queue *q, size_t cap); /* false = out of memory; nothing to close */
void kv_queue_close(kv_queue *q);
/* Appends a change. Returns true if the half was empty before, so the reader may be asleep. Never blocks on an
 * allocation or on the reader's work. */
bool kv_queue_put(kv_queue *q, const pi_cache_event *ev);
kv_changes kv_queue_take(kv_queue *q);
/* Reads the change at *at and advances *at; the arrays of ev point into c. Returns false at the end. */
bool kv_changes_next(const kv_changes *c, size_t *at, pi_cache_event *ev);

/* Merges consecutive changes of one kind, as they are published. Stored blocks are merged while each block follows the
 * previous one; removed blocks are always merged. Reads the run at *at and advances *at. *run is the run's first
 * change, with n_hashes and n_tokens summed over the run. */
bool kv_changes_run(const kv_changes *c, size_t *at, pi_cache_event *run);

#endif
