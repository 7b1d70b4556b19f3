/* The memory of each cache group's blocks: on a device and the CPU beside it, or on stages, a shard of each block on
 * each backend that has layers of the group. Filled by memory.c (or a test), read by whoever copies blocks. Owns nothing. */
#ifndef PI__BLOCK_MAP_H
#define PI__BLOCK_MAP_H

#include "backend/ops.h"

typedef struct pi__block_map {
    int32_t n_groups;                              /* cache groups */
    int32_t n_ranks;                               /* devices that each have a shard of "the device's" memory; or 1 */
    int32_t n_blocks[PI__MAX_GROUPS];              /* in the pool */
    int32_t block_size[PI__MAX_GROUPS];            /* tokens a block */
    size_t bytes[PI__MAX_GROUPS][PI__N_PLACEMENTS]; /* of a block, of the layers on each backend */
    char *pool[PI__MAX_GROUPS][PI__N_PLACEMENTS];  /* blocks, one behind the other */
} pi__block_map;

/* The shard of a block of group g on one backend. */
static inline char *pi__block_at(const pi__block_map *m, int32_t g, int32_t block, int32_t placement)
{
    return m->pool[g][placement] + (size_t) block * m->bytes[g][placement];
}

/* Bytes of a block of group g, all shards. */
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

/* Bytes of a block's shard on one backend in the tiers: on "the device", those of each of several. */
static inline size_t pi__copy_bytes_at(const pi__block_map *m, int32_t g, int32_t placement)
{
    return (size_t) (placement == PI__AT_DEVICE ? m->n_ranks : 1) * m->bytes[g][placement];
}

/* Bytes of a block of group g in the tiers: all shards, in the order of placements. */
static inline size_t pi__copy_bytes(const pi__block_map *m, int32_t g)
{
    size_t all = 0;
    for (int32_t placement = 0; placement < PI__N_PLACEMENTS; placement++) all += pi__copy_bytes_at(m, g, placement);
    return all;
}

#endif
