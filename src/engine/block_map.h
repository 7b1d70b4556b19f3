/* Addresses of the blocks of each cache group. A block has one shard on each backend that has layers of the group: a
 * device and the CPU, or pipeline stages. Filled by memory.c (or a test); read by code that copies blocks. Owns
 * nothing. */
#ifndef PI__BLOCK_MAP_H
#define PI__BLOCK_MAP_H

#include "backend/ops.h"

typedef struct pi__block_map {
    int32_t n_groups;                              /* cache groups */
    /* ranks of tensor parallelism: each has a shard of every block at PI__AT_DEVICE; 1 = one device */
    int32_t n_ranks;
    int32_t n_blocks[PI__MAX_GROUPS];              /* blocks in each pool */
    int32_t block_size[PI__MAX_GROUPS];            /* tokens per block */
    /* bytes of a block's shard on each backend (at PI__AT_DEVICE: on each rank); 0 = the backend has no layers of it */
    size_t bytes[PI__MAX_GROUPS][PI__N_PLACEMENTS];
    char *pool[PI__MAX_GROUPS][PI__N_PLACEMENTS];  /* address of block 0; blocks are contiguous */
} pi__block_map;

/* Returns the address of a block's shard on one backend. */
static inline char *pi__block_at(const pi__block_map *m, int32_t g, int32_t block, int32_t placement)
{
    return m->pool[g][placement] + (size_t) block * m->bytes[g][placement];
}

/* Returns the bytes of a block of group g: the shards of all backends, but only of one rank. */
static inline size_t pi__block_bytes(const pi__block_map *m, int32_t g)
{
    size_t all = 0;
    for (int32_t placement = 0; placement < PI__N_PLACEMENTS; placement++) all += m->bytes[g][placement];
    return all;
}

static inline size_t pi__pool_bytes(const pi__block_map *m, int32_t g, int32_t placement)
{
    return (size_t) m->n_blocks[g] * m->bytes[g][placement];
}

/* Returns the bytes of a block's shard on one backend as stored in the host and disk tiers: at PI__AT_DEVICE the shards
 * of all ranks. */
static inline size_t pi__copy_bytes_at(const pi__block_map *m, int32_t g, int32_t placement)
{
    return (size_t) (placement == PI__AT_DEVICE ? m->n_ranks : 1) * m->bytes[g][placement];
}

/* Returns the bytes of a block of group g as stored in the tiers: the shards of all backends, in the order of
 * placements. */
static inline size_t pi__copy_bytes(const pi__block_map *m, int32_t g)
{
    size_t all = 0;
    for (int32_t placement = 0; placement < PI__N_PLACEMENTS; placement++) all += pi__copy_bytes_at(m, g, placement);
    return all;
}

#endif
