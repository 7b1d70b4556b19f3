/* The host tier: copies of cache blocks and snapshots in host memory, for discrete devices with small memory that the
 * host cannot read. Blocks evicted from the device stay here and are copied back at bus speed.
 *
 * Each cache group has a second block pool in this tier (block_pool.h); its blocks are called slots:
 *
 *     ref 1              being filled or read: not evicted
 *     ref 0, with hash   found by hash and tokens; the least recently used slot is evicted first
 *     ref 0, no hash     free
 *
 * The memory is one region for all slots. Addresses are reserved at open; memory is pinned chunk by chunk, as slots are
 * first used. Pinning a chunk takes milliseconds, so a separate thread pins chunks in advance; open pins each group's
 * first chunk. A slot is not handed out before its chunk is pinned. If no more memory can be pinned, the tier keeps its
 * size:
 *
 *     group 0   [chunk: slots 0 1 2 ..][chunk ..][not pinned yet ................]
 *     group 1   [chunk: slots 0 1 ....][not pinned yet ..........]
 *
 * This layer knows slots, hashes and tokens, not devices: the caller provides the pin function. Memory: allocated at
 * open. Threads: the step thread, and the pinning thread, which shares n_ready, wanted and full with it. */
#ifndef PI__HOST_TIER_H
#define PI__HOST_TIER_H

#include "base/log.h"
#include "cache/block_pool.h"

typedef struct pi__host_tier pi__host_tier;

enum { PI__HOST_MAX_GROUPS = 8 };

typedef struct pi__host_config {
    int32_t n_groups;          /* cache groups */
    struct {
        int32_t n_slots;       /* slots; 0 = the group is not cached in this tier */
        int32_t block_size;    /* tokens per slot */
        size_t bytes;          /* bytes per slot */
    } group[PI__HOST_MAX_GROUPS];
    /* Pins n bytes at p; called by open and by the pinning thread. Returns false if no more memory can be pinned. */
    bool (*pin)(void *ud, void *p, size_t n);
    void (*unpin)(void *ud, void *p, size_t n); /* unpins a pinned chunk; called in close */
    void *ud;                  /* first argument of pin and unpin */
    pi__log log;               /* reports that no more memory can be pinned */
} pi__host_config;

/* Reserves all addresses, pins each group's first chunk and starts the pinning thread. */
int pi__host_open(pi__host_tier **out, const pi__host_config *config, pi_error *err);
/* Stops the thread and frees everything. No copy may be pending. h may be NULL. */
void pi__host_close(pi__host_tier *h);
/* Returns the bytes of the slots of all groups; SIZE_MAX = overflow. */
size_t pi__host_memory(const pi__host_config *config);
/* Returns the bytes of the slot pools' lists, which pi__host_memory does not include. */
size_t pi__host_lists(const pi__host_config *config);

/* Returns a slot to fill, with ref 1 and no hash; -1 = no slot is free, or its chunk is not pinned yet. The caller
 * releases the slot in pi__host_pool, with or without a hash. */
int32_t pi__host_take(pi__host_tier *h, int32_t group);
/* Returns the address of a slot. */
void *pi__host_at(const pi__host_tier *h, int32_t group, int32_t slot);
/* Returns the block pool of the group's slots: hashes, references, eviction order. */
pi__block_pool *pi__host_pool(pi__host_tier *h, int32_t group);
/* Returns true if more memory is being pinned, so that a failed pi__host_take may succeed soon. */
bool pi__host_grows(const pi__host_tier *h);
/* Drops the hashes of a tenant's slots; tenant NULL = all tenants. */
void pi__host_clear(pi__host_tier *h, const uint64_t *tenant);
/* *entries = number of slots on the free lists that can be found by their hash; *bytes = their bytes. */
void pi__host_count(const pi__host_tier *h, uint64_t *entries, uint64_t *bytes);

#endif
