/* Copies between the pools of discrete devices and the host tier (offload.c describes when and why).
 *
 * Owned: the host tier and the ring of pending copies; each copy holds the only reference of its slot. Borrowed: the
 * cache, the block map, the device. Memory: allocated at open. Step thread only, except for pinning. */
#ifndef PI__OFFLOAD_H
#define PI__OFFLOAD_H

#include "backend/device.h"
#include "cache/cache.h"
#include "cache/host_tier.h"
#include "cache/tier.h"
#include "engine/block_map.h"
#include "engine/stats.h"

typedef struct pi__offload_config {
    pi__backend *be;           /* one device, or several backends */
    const pi__block_map *map;  /* addresses of blocks */
    pi__cache *cache;          /* block pools of the device; NULL to plan */
    pi__stats *stats;          /* counters; NULL to plan */
    bool prefix_cache;         /* the prefix cache is enabled */
    int64_t ram;               /* max bytes of host memory, capped at 3/4 of the available; -1 = the cap, 0 = none */
    bool to_disk;              /* blocks are also written to a disk tier, through the host tier */
    int32_t ahead;             /* max tokens of a step: bounds the blocks that one step takes from the free list */
    int32_t ahead_seqs;        /* max sequences of a step, for the same bound */
    pi__log log;
} pi__offload_config;

/* Numbers of the copies of a block's shards, as counted by each backend; 0 = no shard there, or already copied. */
typedef struct pi__copy_numbers {
    uint64_t at[PI__N_PLACEMENTS];
} pi__copy_numbers;

/* A pending copy of a block to a slot of the host tier. A pinned block is not reused. If the block is not pinned and
 * was reused meanwhile (its generation differs), the copy is dropped. */
typedef struct pi__copy {
    pi__copy_numbers number;   /* numbers of the shard copies */
    uint32_t generation;       /* generation of the block when the copy was queued */
    int32_t group, block;      /* source */
    int32_t slot;              /* destination; the copy holds its only reference */
    bool pinned_for_copy;      /* the block is pinned for this copy */
} pi__copy;
enum { PI__MAX_COPIES = 1024 };

typedef struct pi__offload {
    pi__offload_config config; /* copy of the config given to open */
    pi__host_tier *host;       /* NULL = no host tier; the fields below are unused */
    bool host_keeps;           /* the host tier keeps blocks; false = only a staging buffer for the disk */
    /* disk tier: gets each block when its copy has completed; set by the owner, or NULL */
    pi__tier *disk;
    pi__copy *copy;            /* [PI__MAX_COPIES] ring of pending copies, in the order of completion */
    int32_t first_copy, n_copies; /* entries in use */
    pi__copy_numbers ended;    /* number of the last completed copy of each backend */
    bool copies_lost;          /* a device failed: pending copies never complete */
} pi__offload;

/* Computes slots and bytes of the host tier for the pools as mapped. False = no host tier. */
bool pi__offload_plan(const pi__offload_config *config, pi__host_config *out);
/* Bytes that open allocates in addition to the slots. */
size_t pi__offload_bytes(const pi__offload_config *config);
int pi__offload_open(pi__offload *o, const pi__offload_config *config, pi_error *err);
/* Waits for all copies and stores completed ones. */
void pi__offload_end(pi__offload *o);
void pi__offload_close(pi__offload *o);
/* Queues a copy of the block to the host tier, and pins the block until the copy has completed (at most half of the
 * pool is pinned). Returns false if no slot or ring entry is free now; true also if a device cannot copy. */
bool pi__offload_out(pi__offload *o, int32_t group, int32_t block);
/* Queues a copy of the slot to the block; complete once the copies *number have ended. False = failed. */
bool pi__offload_back(pi__offload *o, int32_t group, int32_t block, int32_t slot, pi__copy_numbers *number);
/* True if all of these copies have ended, as of the last poll. */
bool pi__offload_ended(const pi__offload *o, const pi__copy_numbers *number);
/* Unpins one block that is being copied, so that it can be reused. Returns false if no block is pinned. */
bool pi__offload_yield(pi__offload *o);
/* Ends copies that have completed: their slots get the hashes, the disk tier gets the blocks, and the blocks are
 * unpinned. */
void pi__offload_poll(pi__offload *o);
/* Queues copies to the host tier of the blocks that will be evicted next and have no copy yet. */
void pi__offload_ahead(pi__offload *o);

#endif
