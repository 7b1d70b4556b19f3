/* Which prefixes a new request would find in the cache, as a set of blocks that changes: what routers want to know.
 *
 * The pools know blocks one by one. What a request can take over follows from all groups together: every block of full
 * attention from the start, the blocks of a window before the prefix's end, a snapshot of each state at its end. This index
 * holds the prefixes as a tree of hash blocks and tells a listener of blocks of reuse_block tokens: one is **cached** while
 * some prefix that a request could take over has it.
 *
 *     tokens          0      16      32      48      64          full attention, and snapshots of a state after 32 and 64
 *     full            |   x   |   x   |   x   |   .   |          the block of 48..64 is gone
 *     snapshots                       x               x
 *     cached          |   x   |   x   |   .   |   .   |          32 tokens can be taken over, so two blocks are told
 *
 * Only prefixes without salt are told: a router compares tokens, and those of a tenant are nobody else's. Groups that only
 * a drafter reads have no say. Where the index is full, it forgets blocks behind missing ones first, then leaves new ones
 * out: a listener knows of too few prefixes then, never of one that is not there.
 * The hash of a block is told as the first 64 bits of its chained block hash. Memory: one allocation at open. One thread (the cache's). */
#ifndef PI__PREFIX_INDEX_H
#define PI__PREFIX_INDEX_H

#include "cache/cache.h"

typedef struct pi__prefix_index pi__prefix_index;

/* The listener is told with the change half made: it may not call the index or the cache. */
int pi__prefix_index_open(pi__prefix_index **out, const pi__cache *c, uint32_t without, pi_cache_event_fn fn, void *ud, pi_error *err);
void pi__prefix_index_close(pi__prefix_index *x); /* NULL is fine */

/* These n block hashes of hash_block tokens each follow each other from the empty prefix: blocks that end with one of them
 * may come. */
void pi__prefix_index_path(pi__prefix_index *x, const pi__digest *hashes, const int32_t *tokens, int32_t n);
/* Group g now has the block that ends the prefix `hash`, or has it no more. */
void pi__prefix_index_put(pi__prefix_index *x, int32_t g, const pi__digest *hash);
void pi__prefix_index_drop(pi__prefix_index *x, int32_t g, const pi__digest *hash);
/* All groups forget everything. */
void pi__prefix_index_clear(pi__prefix_index *x);

#endif
