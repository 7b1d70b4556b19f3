/* Snapshots of recurrent states, and the reuse points where others may go on (snapshots.c says which).
 *
 * Borrowed: the cache, whose state group's blocks are the snapshots; the model's state layers, on their backend; the
 * scheduler's rows. Owned: what one step saves. Only the step thread is here. */
#ifndef PI__SNAPSHOTS_H
#define PI__SNAPSHOTS_H

#include "backend/device.h"
#include "engine/seq.h"
#include "engine/stats.h"

typedef struct pi__snapshots_config {
    pi__cache *cache;
    pi__stats *stats;          /* where it counts */
    pi__seq *const *row_seq;   /* whose the cache's rows are */
    pi__backend *be;           /* copies states */
    const pi__state_layer *layer; /* [n_layers] */
    int32_t n_layers;          /* 0: the model has no states */
    int32_t group;             /* of the cache: the states', -1: none */
    int32_t interval;          /* tokens from one snapshot to the next where nothing else asks for one */
    const int32_t *turn_id;    /* [n_turn_ids] tokens that begin a turn of a conversation */
    int32_t n_turn_ids;
    int32_t max_saves;         /* in a step */
} pi__snapshots_config;

/* A snapshot that this step takes. */
typedef struct pi__saving {
    pi__seq *seq;              /* of whom */
    int32_t pos, id;           /* tokens, and the snapshot */
} pi__saving;

typedef struct pi__snapshots {
    pi__snapshots_config config; /* as given */
    pi__save *save;            /* [max_saves] of this step, as the batch has them */
    pi__saving *saving;        /* [max_saves] the same, with their sequences */
    int32_t n_saving;          /* how many */
} pi__snapshots;

int pi__snapshots_init(pi__snapshots *sn, const pi__snapshots_config *config, pi_error *err);
/* Bytes that init allocates. */
size_t pi__snapshots_bytes(int32_t max_saves);
void pi__snapshots_destroy(pi__snapshots *sn);
/* Most snapshots of a step: one a block of the smallest size, and one more a sequence. */
int32_t pi__most_saves(int32_t block_size, int32_t max_tokens, int32_t max_seqs);

/* See pi__cache.reuse_point; ud: the pi__snapshots. */
bool pi__reuse_point(void *ud, int32_t row, int32_t n);
/* Positions and memory of the snapshots that the step takes of s, which computes up to `to`. */
void pi__snapshots_plan(pi__snapshots *sn, pi__seq *s, int32_t to);
/* The step is over; good: what it took can be found from now on. */
void pi__snapshots_done(pi__snapshots *sn, bool good);
/* The state of a sequence that leaves its row. */
void pi__snapshot_last(pi__snapshots *sn, pi__seq *s);
/* The state of a sequence that starts after the tokens it found in the cache. */
void pi__snapshot_restore(pi__snapshots *sn, pi__seq *s);

#endif
