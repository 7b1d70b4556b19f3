/* The host tier: copies of cache blocks and snapshots in the host's memory, for discrete devices, whose memory is small
 * and not host-visible. What is evicted there is still here, and comes back as fast as the bus is.
 *
 * Each cache group has a block pool of its own here, too (block_pool.h); its blocks are called slots:
 *
 *     ref 1              being filled, or read: it stays where it is
 *     ref 0, with a hash  found by its hash and tokens; the one used longest ago is evicted first
 *     ref 0, without     free
 *
 * The memory is one region for all slots, reserved at open and taken from the system a chunk at a time, as slots are first
 * used. Taking it means pinning it for the device, which lasts milliseconds, so a thread of the tier's own does that ahead
 * of need, but for each group's first chunk; a slot whose chunk is not there yet is not handed out. Where no more can be
 * had, the tier stays as large as it is:
 *
 *     group 0   [chunk: slots 0 1 2 ..][chunk ..][not taken yet .................]
 *     group 1   [chunk: slots 0 1 ....][not taken yet ...........]
 *
 * This layer knows slots, hashes and tokens, never a device: pinning is the caller's function. Memory: all of it at
 * open. Threads: the step thread, and the one that takes chunks, which shares n_ready, wanted and full with it. */
#ifndef PI__HOST_TIER_H
#define PI__HOST_TIER_H

#include "base/log.h"
#include "cache/block_pool.h"

typedef struct pi__host_tier pi__host_tier;

enum { PI__HOST_MAX_GROUPS = 8 };

typedef struct pi__host_config {
    int32_t n_groups;          /* cache groups */
    struct {
        int32_t n_slots;       /* slots; 0: the group keeps nothing here */
        int32_t block_size;    /* tokens a slot stands for */
        size_t bytes;          /* of a slot */
    } group[PI__HOST_MAX_GROUPS];
    bool (*pin)(void *ud, void *p, size_t n);   /* whole pages; in open and on the tier's thread. false: not to be had */
    void (*unpin)(void *ud, void *p, size_t n); /* what was pinned; in close */
    void *ud;                  /* their first argument */
    pi__log log;               /* that there is no more memory */
} pi__host_config;

/* Reserves everything and starts the thread. */
int pi__host_open(pi__host_tier **out, const pi__host_config *config, pi_error *err);
/* No copy may be under way. NULL is fine. */
void pi__host_close(pi__host_tier *h);
/* Bytes of the slots of all groups. */
size_t pi__host_memory(const pi__host_config *config);
/* Bytes of the lists of slots, beside. */
size_t pi__host_lists(const pi__host_config *config);

/* A slot to fill, ref 1, whose hash is forgotten; -1: none at the moment. Then release, with or without a hash. */
int32_t pi__host_take(pi__host_tier *h, int32_t group);
/* Where it lies. */
void *pi__host_at(const pi__host_tier *h, int32_t group, int32_t slot);
/* The group's slots: block hashes, references, and the order in which they are evicted. */
pi__block_pool *pi__host_pool(pi__host_tier *h, int32_t group);
/* More memory is on its way: what take refused it may give soon. */
bool pi__host_grows(const pi__host_tier *h);
/* Forgets a tenant's slots; tenant NULL: all. */
void pi__host_clear(pi__host_tier *h, const uint64_t *tenant);
/* Slots that can be found, and their bytes. */
void pi__host_count(const pi__host_tier *h, uint64_t *entries, uint64_t *bytes);

#endif
