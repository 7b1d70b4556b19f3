/* The tiers below the pools: loads missing blocks for waiting requests, and writes blocks to disk.
 *
 * Owned: the disk tier, the loads, and the copies between device and host (offload.h). A load holds the only
 * reference of its block, and a reference of its slot. Borrowed: the cache and the block map. Memory: allocated at
 * open. Step thread only, except `wake`, which the disk tier's thread calls. */
#ifndef PI__TIERING_H
#define PI__TIERING_H

#include "engine/offload.h"
#include "engine/seq.h"

typedef struct pi__tiering_config {
    pi__offload_config offload; /* device, blocks, cache, host memory */
    const char *dir;           /* directory of the disk tier; NULL = none */
    const char *dir_key;       /* key file of the disk tier; NULL = none */
    uint64_t dir_bytes;        /* max bytes of the disk tier */
    bool dir_read_only;        /* never write to the directory */
    pi__digest fingerprint;    /* digest of everything that determines the bytes of a block */
    void (*wake)(void *ud);    /* called when a load from disk has ended: poll soon */
    void *wake_ud;             /* argument of wake */
} pi__tiering_config;

/* A block that is being loaded from a tier into its pool: from a slot of the host tier, which is first read from disk
 * if only the disk has the block. Where the host reads device memory, the block is read directly from disk. */
typedef struct pi__load {
    uint64_t number;           /* counted from 1; 0 = this entry is free */
    pi__block_key key;         /* key of the block */
    int32_t group, block;      /* destination; the load holds the block's only reference */
    int32_t slot;              /* source slot, referenced as well; -1 = no slot */
    bool copying;              /* the slot is being copied to the block; false = the disk is being read */
    pi__copy_numbers copy;     /* with copying: copies of its shards */
    bool forgotten;            /* the prefix was cleared meanwhile: the block gets no hash */
    int32_t tokens[PI__MAX_BLOCK]; /* tokens of the block */
} pi__load;
enum { PI__MAX_LOADS = 256 };

typedef struct pi__tiering {
    pi__offload offload;       /* host tier of a discrete device */
    pi__cache *cache;          /* destination of loads; NULL = not open */
    pi__stats *stats;          /* counters */
    const pi__block_map *map;  /* addresses of blocks */
    pi__tier *disk;            /* disk tier, or NULL */
    pi__load *load;            /* [PI__MAX_LOADS], NULL = no tiers */
    uint64_t n_loads;          /* loads started */
    uint64_t n_bad_loads;      /* of n_loads: loads that failed */
} pi__tiering;

/* Opens the configured tiers. With a disk tier, sets the cache's callback `hashed`, so that new blocks are written to
 * disk. */
int pi__tiering_open(pi__tiering *t, const pi__tiering_config *config, pi_error *err);
/* Bytes that open allocates, without the slots of the host tier. */
size_t pi__tiering_bytes(const pi__tiering_config *config);
void pi__tiering_close(pi__tiering *t);
/* Marks the blocks of s as used, its first blocks last: the disk tier evicts them after older blocks, last blocks
 * first. */
void pi__tiering_touch(pi__tiering *t, const pi__seq *s);
/* Drops the tiers' blocks of a tenant (NULL = of all tenants). Loads of these blocks in progress end without a hash. */
void pi__tiering_clear(pi__tiering *t, const uint64_t *tenant);
/* Publishes the tiers' counters. */
void pi__tiering_stats(pi__tiering *t);
/* Processes finished loads and copies, and starts copies to the host tier of blocks that will be evicted next. */
void pi__tiering_poll(pi__tiering *t);
/* Starts loads of blocks that s lacks; got: tokens of s matched so far. Returns true if s should wait: for blocks that
 * tiers are loading, for a rescan of the directory, or for a growing host tier. */
bool pi__tiering_wait(pi__tiering *t, pi__seq *s, int32_t got);
/* True if copies or a growing host tier need polling soon, with n_waiting waiting requests. */
bool pi__tiering_busy(const pi__tiering *t, int32_t n_waiting);

#endif
