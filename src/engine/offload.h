/* Copies between the pools of discrete devices and the host tier (offload.c says when and why).
 *
 * Owned: the host tier and the ring of copies under way, each of which holds its slot's only reference. Borrowed: the cache,
 * the block map, the device. Memory: all of it at open. Only the step thread is here, but for pinning. */
#ifndef PI__OFFLOAD_H
#define PI__OFFLOAD_H

#include "backend/device.h"
#include "cache/cache.h"
#include "cache/host_tier.h"
#include "cache/tier.h"
#include "engine/block_map.h"
#include "engine/stats.h"

typedef struct pi__offload_config {
    pi__backend *be;           /* device, or several backends */
    const pi__block_map *map;  /* addresses of blocks */
    pi__cache *cache;          /* what they hold; NULL to plan */
    pi__stats *stats;          /* where it counts; NULL to plan */
    bool keeps;                /* prefixes are kept at all */
    int64_t ram;               /* bytes of host memory that it may keep; -1: all that is free, 0: none */
    bool to_disk;              /* a disk tier is reached through it */
    int32_t ahead;             /* tokens and sequences of a step: how much of the free list may go at once */
    int32_t ahead_seqs;
    pi__log log;
} pi__offload_config;

/* Copies of a block's shards, as each backend counts; 0: there is none, or it was made at once. */
typedef struct pi__copy_numbers {
    uint64_t at[PI__N_PLACEMENTS];
} pi__copy_numbers;

/* A block of which a copy is on its way to a slot of the host tier. While the block is pinned, nobody else gets it;
 * where one that is not was handed out meanwhile (its generation differs), the copy is worth nothing. */
typedef struct pi__copy {
    pi__copy_numbers number;   /* of its shards */
    uint32_t generation;       /* of the block when it was queued */
    int32_t group, block;      /* where it comes from */
    int32_t slot;              /* where it goes; the copy holds its only reference */
    bool pinned_for_copy;      /* the block is */
} pi__copy;
enum { PI__MAX_COPIES = 1024 };

typedef struct pi__offload {
    pi__offload_config config; /* as given */
    pi__host_tier *host;       /* NULL: there is none, and nothing below is used */
    bool host_keeps;           /* it keeps what it gets; else it is only the way to the disk */
    pi__tier *disk;            /* gets what was copied because it got its hash; set by its owner, or NULL */
    pi__copy *copy;            /* [PI__MAX_COPIES] a ring, in the order in which they end */
    int32_t first_copy, n_copies; /* those under way */
    pi__copy_numbers ended;    /* up to which those of each backend have ended */
    bool copies_lost;          /* the others never will */
} pi__offload;

/* Slots and bytes of the host tier for the pools as mapped; false: there is none. */
bool pi__offload_plan(const pi__offload_config *config, pi__host_config *out);
/* Bytes that open takes beside the slots. */
size_t pi__offload_bytes(const pi__offload_config *config);
int pi__offload_open(pi__offload *o, const pi__offload_config *config, pi_error *err);
/* Ends all copies, and keeps what they brought. */
void pi__offload_end(pi__offload *o);
void pi__offload_close(pi__offload *o);
/* Queues a copy of the block to the host. false: not now. */
bool pi__offload_out(pi__offload *o, int32_t group, int32_t block);
/* The slot goes to the block, as soon as the copies *number have ended. false: it does not. */
bool pi__offload_back(pi__offload *o, int32_t group, int32_t block, int32_t slot, pi__copy_numbers *number);
/* All of them have, as far as poll knows. */
bool pi__offload_ended(const pi__offload *o, const pi__copy_numbers *number);
/* One more block that is being copied may be handed out from now on. false: there is none. */
bool pi__offload_yield(pi__offload *o);
/* Takes copies that have ended. */
void pi__offload_poll(pi__offload *o);
/* Copies of what will be evicted next, as far as there is none. */
void pi__offload_ahead(pi__offload *o);

#endif
