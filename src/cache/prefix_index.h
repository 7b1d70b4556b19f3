/* Reports to a listener (a router) which prefixes a new request would find in the cache, as a changing set of blocks.
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
 * Only prefixes without a salt are reported: a router compares tokens, and a tenant's prefixes are private to the
 * tenant. Groups in skip_groups (read by a drafter only) are ignored. If the index is full, it first drops nodes after
 * a missing block, then ignores new blocks. The listener then knows too few prefixes, but never a prefix that the cache
 * does not have. A block is reported by the first 64 bits of its chained block hash. Memory: one allocation at open.
 * One thread (the cache's). */
#ifndef PI__PREFIX_INDEX_H
#define PI__PREFIX_INDEX_H

#include "cache/cache.h"

typedef struct pi__prefix_index pi__prefix_index;

/* Creates the index of cache c. fn (the listener) is called during a change: it must not call the index or the
 * cache. */
int pi__prefix_index_open(pi__prefix_index **out, const pi__cache *c, uint32_t skip_groups, pi_cache_event_fn fn,
                          void *ud, pi_error *err);
void pi__prefix_index_close(pi__prefix_index *x); /* x may be NULL */

/* Adds nodes for a prefix: n chained hashes, each of hash_block tokens, from the empty prefix on. Must be called before
 * put, because put and drop ignore hashes without a node. If the index is full, the last nodes are not added. */
void pi__prefix_index_path(pi__prefix_index *x, const pi__digest *hashes, const int32_t *tokens, int32_t n);
/* Record that group g has gained (put) or lost (drop) the block that ends the prefix with this hash. May call the
 * listener. */
void pi__prefix_index_put(pi__prefix_index *x, int32_t g, const pi__digest *hash);
void pi__prefix_index_drop(pi__prefix_index *x, int32_t g, const pi__digest *hash);
/* Records that all groups have dropped all blocks. Calls the listener with PI_CACHE_CLEARED. */
void pi__prefix_index_clear(pi__prefix_index *x);

#endif
