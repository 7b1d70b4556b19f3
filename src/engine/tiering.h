/* The tiers below the pools in the engine: loads of missing blocks for requests that wait, and what goes to disk.
 *
 * Owned: the disk tier, the loads, and the copies between device and host (offload.h). A load holds its block's only
 * reference, and its slot's. Borrowed: the cache and where its blocks lie. Memory: all of it at open. Only the step thread
 * is here, but for wake, which is called on the disk tier's. */
#ifndef PI__TIERING_H
#define PI__TIERING_H

#include "engine/offload.h"
#include "engine/seq.h"

typedef struct pi__tiering_config {
    pi__offload_config offload; /* device, blocks, cache, host memory */
    const char *dir;           /* of the disk tier; NULL: none */
    const char *dir_key;       /* key file for it; NULL: none */
    uint64_t dir_bytes;        /* its limit */
    bool dir_read_only;        /* it is only read */
    pi__digest fingerprint;    /* of everything that gives a block's bytes their meaning */
    void (*wake)(void *ud);    /* a load from disk has ended: poll soon */
    void *wake_ud;             /* its argument */
} pi__tiering_config;

/* A block that is on its way from a tier to its pool: from a slot of the host tier, into which it is first read where only
 * the disk has it; or, where the host reads device memory, straight from the disk. */
typedef struct pi__load {
    uint64_t number;           /* counted from 1; 0: this entry is free */
    pi__block_key key;         /* the block's */
    int32_t group, block;      /* where it goes; the load holds the block's only reference */
    int32_t slot;              /* where it comes from, referenced as well; -1: no slot */
    bool copying;              /* from there to the block; before that it is read from disk */
    pi__copy_numbers copy;     /* with copying: of its shards */
    bool forgotten;            /* its prefix was cleared meanwhile */
    int32_t tokens[PI__MAX_BLOCK]; /* its tokens */
} pi__load;
enum { PI__MAX_LOADS = 256 };

typedef struct pi__tiering {
    pi__offload offload;       /* the host tier of a discrete device */
    pi__cache *cache;          /* whose blocks are loaded; NULL: not open */
    pi__stats *stats;          /* where it counts */
    const pi__block_map *map;  /* addresses of blocks */
    pi__tier *disk;            /* disk tier, or NULL */
    pi__load *load;            /* [PI__MAX_LOADS], NULL: there are no tiers */
    uint64_t n_loads;          /* started so far */
    uint64_t n_bad_loads;      /* of them, those that brought nothing */
} pi__tiering;

/* Opens what the config has; the cache tells of new hashes from then on. */
int pi__tiering_open(pi__tiering *t, const pi__tiering_config *config, pi_error *err);
/* Bytes that open takes, but for the slots of the host tier. */
size_t pi__tiering_bytes(const pi__tiering_config *config);
void pi__tiering_close(pi__tiering *t);
/* The blocks that s leaves behind were used: the tier evicts them later than others, and the last ones first. */
void pi__tiering_touch(pi__tiering *t, const pi__seq *s);
/* Forgets what the tiers hold of a tenant (NULL: of all), and what is being read. */
void pi__tiering_clear(pi__tiering *t, const uint64_t *tenant);
/* Publishes the tiers' counters. */
void pi__tiering_stats(pi__tiering *t);
/* Takes finished loads and copies, and starts copies of what will be evicted next. */
void pi__tiering_poll(pi__tiering *t);
/* true: s, matched so far up to `got` tokens, should wait for blocks that tiers are loading; starts the loads. */
bool pi__tiering_wait(pi__tiering *t, pi__seq *s, int32_t got);
/* Something is to be polled soon, where so many requests wait. */
bool pi__tiering_busy(const pi__tiering *t, int32_t n_waiting);

#endif
