/* Counters of the engine. Each counter is named once here, for the struct, for the published pool counts, and for
 * pi_stats.
 *
 * Written by the step thread, read by any thread at any time. Each counter is a separate atomic, so a reader may see
 * one counter a step older than another. Memory: the caller's. */
#ifndef PI__STATS_H
#define PI__STATS_H

#include <stdatomic.h>

#include "backend/device.h"
#include "cache/cache.h"
#include "pagedinfer.h"

/* X(type, name): a member of pi_stats of the same name. */
#define PI__COUNTERS(X)                                                                                                \
    X(uint, n_waiting) X(uint, n_running)                                                                              \
    X(ullong, n_finished) X(ullong, n_preempted) X(ullong, n_steps)                                                    \
    X(ullong, prompt_tokens) X(ullong, cached_tokens) X(ullong, generated_tokens)                                      \
    X(ullong, n_drafted) X(ullong, n_accepted) X(ullong, n_prefix_hits)                                                \
    X(ullong, n_snapshots_saved) X(ullong, n_snapshots_restored)                                                       \
    X(ullong, disk_entries) X(ullong, disk_bytes) X(ullong, disk_reads) X(ullong, disk_writes)                         \
    X(ullong, key_blocks_attended) X(ullong, key_blocks_possible)                                                      \
    X(ullong, host_entries) X(ullong, host_bytes) X(ullong, host_reads) X(ullong, host_writes)                         \
    X(ullong, n_block_waits)

/* X(name): a member of pi__block_pool and of pi_stats.group of the same name. */
#define PI__POOL_COUNTERS(X) X(n_free) X(n_cached) X(n_shared) X(n_evicted)

typedef struct pi__stats {
#define PI__MEMBER(type, name) atomic_##type name;
    PI__COUNTERS(PI__MEMBER)
#undef PI__MEMBER
    atomic_ullong last_step_us;   /* duration of the last step */
    atomic_ullong step_total_ns;  /* duration of all steps */
    atomic_ullong step_count[PI_N_STEP_BOUNDS + 1]; /* histogram of step durations, as in pi_stats */
    atomic_ullong draft_total_ns; /* of step_total_ns, time of drafters */
    atomic_ullong n_from_topk, n_from_row; /* tokens sampled from topk results, and from full rows */
    atomic_ullong n_forced;       /* tokens forced by grammars */
    atomic_ullong n_images_encoded; /* images whose rows were computed */
    struct {
#define PI__MEMBER(name) atomic_ullong name;
        PI__POOL_COUNTERS(PI__MEMBER)
#undef PI__MEMBER
        atomic_ullong n_written;  /* blocks with memory that the system may have committed */
    } group[PI__MAX_GROUPS];
} pi__stats;

/* Publishes the counts of the cache's pools. */
void pi__stats_pools(pi__stats *st, const pi__cache *c);
/* Publishes the backend's counts of attended and possible key blocks (sparse prefill). */
void pi__stats_blocks(pi__stats *st, const pi__backend *be);
/* Records a step that took ms. */
void pi__stats_step(pi__stats *st, double ms);
/* Copies the counters to the members of out; the caller fills the members that are not counted here. */
void pi__stats_tell(const pi__stats *st, int32_t n_groups, pi_stats *out);

#endif
