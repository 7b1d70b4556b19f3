/* The set of prefixes that a new request would find in the cache, as a changing set of blocks, for routers.
 *
 * The pools know single blocks. A reusable prefix depends on all groups together: every block of full attention from
 * the start, the blocks of a window before the prefix's end, a snapshot of each state at its end. This index holds
 * the prefixes as a tree of hash blocks and reports blocks of reuse_block tokens to a listener: a block is **cached**
 * while some reusable prefix contains it.
 *
 *     tokens          0      16      32      48      64          full attention; state snapshots after 32 and 64
 *     full            |   x   |   x   |   x   |   .   |          the block of 48..64 was evicted
 *     snapshots                       x               x
 *     cached          |   x   |   x   |   .   |   .   |          32 tokens can be reused, so two blocks are reported
 *
 * Only prefixes without a salt are reported: a router compares tokens, and a tenant's prefixes are private to it.
 * Groups that only a drafter reads are ignored. If the index is full, it first drops blocks after missing ones, then
 * ignores new ones. The listener then knows too few prefixes, never one that does not exist. A block is reported by
 * the first 64 bits of its chained block hash. Memory: one allocation at open. One thread (the cache's). */
#ifndef PI__PREFIX_INDEX_H
#define PI__PREFIX_INDEX_H

#include "cache/cache.h"

typedef struct pi__prefix_index pi__prefix_index;

/* fn is called in the middle of a change: it must not call the index or the cache. */
int pi__prefix_index_open(pi__prefix_index **out, const pi__cache *c, uint32_t skip_groups, pi_cache_event_fn fn,
                          void *ud, pi_error *err);
void pi__prefix_index_close(pi__prefix_index *x); /* x may be NULL */

/* Adds nodes for n chained block hashes of hash_block tokens each, from the empty prefix on. put and drop ignore blocks
 * that end with an unknown hash. If the index is full, the last nodes are missing. */
void pi__prefix_index_path(pi__prefix_index *x, const pi__digest *hashes, const int32_t *tokens, int32_t n);
/* Group g has gained (put) or lost (drop) the block that ends the prefix with this hash. May call the listener. */
void pi__prefix_index_put(pi__prefix_index *x, int32_t g, const pi__digest *hash);
void pi__prefix_index_drop(pi__prefix_index *x, int32_t g, const pi__digest *hash);
/* All groups have dropped all blocks. Calls the listener with PI_CACHE_CLEARED. */
void pi__prefix_index_clear(pi__prefix_index *x);

#endif
