/* Snapshots of recurrent states, and the reuse points at which other sequences may continue (listed in snapshots.c).
 *
 * Borrowed: the cache (the blocks of its state group are the snapshots); the model's state layers and their backend;
 * the scheduler's rows. Owned: the list of snapshots of one step. Step thread only. */
#ifndef PI__SNAPSHOTS_H
#define PI__SNAPSHOTS_H

#include "backend/device.h"
#include "engine/seq.h"
#include "engine/stats.h"

typedef struct pi__snapshots_config {
    pi__cache *cache;
    pi__stats *stats;          /* counters */
    pi__seq *const *row_seq;   /* sequence of each cache row */
    pi__backend *be;           /* copies states */
    const pi__state_layer *layer; /* [n_layers] */
    int32_t n_layers;          /* 0 = the model has no recurrent states */
    int32_t group;             /* state group of the cache, -1 = none */
    int32_t interval;          /* tokens between snapshots where no other reuse point is near */
    const int32_t *turn_id;    /* [n_turn_ids] tokens that begin a turn of a conversation */
    int32_t n_turn_ids;
    int32_t max_saves;         /* max snapshots per step */
} pi__snapshots_config;

/* A snapshot that the current step takes. */
typedef struct pi__saving {
    pi__seq *seq;              /* sequence of the snapshot */
    int32_t pos, id;           /* tokens before the snapshot; its block in the state group */
} pi__saving;

typedef struct pi__snapshots {
    pi__snapshots_config config; /* copy of the config given to init */
    pi__save *save;            /* [max_saves] of this step, as passed in the batch */
    pi__saving *saving;        /* [max_saves] with their sequences */
    int32_t n_saving;          /* snapshots of this step */
} pi__snapshots;

int pi__snapshots_init(pi__snapshots *sn, const pi__snapshots_config *config, pi_error *err);
/* Bytes that init allocates. */
size_t pi__snapshots_bytes(int32_t max_saves);
void pi__snapshots_destroy(pi__snapshots *sn);
/* Max snapshots of a step: one per block of the smallest size, and one per sequence. */
int32_t pi__max_saves(int32_t block_size, int32_t max_tokens, int32_t max_seqs);

/* Implements pi__cache.reuse_point; ud: the pi__snapshots. */
bool pi__reuse_point(void *ud, int32_t row, int32_t n);
/* Plans the snapshots of s in this step, which computes s up to position `to`: allocates their blocks and appends them
 * to `save`. */
void pi__snapshots_plan(pi__snapshots *sn, pi__seq *s, int32_t to);
/* Ends the snapshots of the step. good: their content is valid, and they can be found from now on; else they are
 * freed. */
void pi__snapshots_done(pi__snapshots *sn, bool good);
/* Takes a snapshot of s at the last chunk boundary of its state, if that is a block boundary. Call before s releases
 * its row. */
void pi__snapshot_last(pi__snapshots *sn, pi__seq *s);
/* Loads the state of s from the snapshot at the end of the prefix that s found in the cache, if there is one. */
void pi__snapshot_restore(pi__snapshots *sn, pi__seq *s);

#endif
