/* Runs a step: the plan's tokens as a batch, the model, then a token for each sequence that is up to date.
 *
 * On a device a decode step may stay in flight: its tokens are then known to the device alone, which can be fed ahead with the
 * step behind it, before the host lands the first and learns what they are.
 *
 * Calls downwards only: rows of logits, drafting, snapshots, cache, sampler, model. That a sequence has ended is told
 * through finish, by its owner; runner.c then touches it no more. Owned: the batch and what sampling needs. Memory: all of it
 * at init, nothing while steps run. Only the step thread is here. */
#ifndef PI__RUNNER_H
#define PI__RUNNER_H

#include "engine/batch.h"
#include "engine/drafting.h"
#include "engine/rows.h"
#include "engine/sched.h"
#include "engine/snapshots.h"
#include "engine/special.h"
#include "engine/stats.h"
#include "model/model.h"

typedef struct pi__runner_config {
    pi__backend *be;           /* where the model runs */
    pi__model *m;              /* what runs */
    pi__cache *cache;          /* learns what was computed */
    pi__rows *rows;            /* logits */
    pi__drafting *drafting;    /* drafts */
    pi__snapshots *snapshots;  /* of states */
    const pi__special *special; /* tokens treated apart */
    pi__stats *stats;          /* where it counts */
    int32_t n_draft;           /* most drafts a sequence brings to a step */
    bool ahead;                /* steps may be fed ahead, where the device can */
    void (*finish)(void *ud, pi__seq *s, int reason, int code, const char *msg); /* s has ended and may be freed */
    void *ud;                  /* its first argument */
} pi__runner_config;

typedef struct pi__runner {
    pi__runner_config config;  /* as given */
    pi__batch_builder batch;   /* what the model runs */
    pi__step_plan *plan;       /* of the step that runs */
    pi__step_plan *flight;     /* of the step that is in flight, or NULL */
    pi__step_plan *next;       /* of the one behind it, or NULL */
    int turn;                  /* the first one's, of its results and its mark on the device: 0 or 1, and the other's the other */
    bool hidden;               /* some of its sequences want hidden states */
    bool stays;                /* it may stay in flight */
    float *raw_row;            /* [n_vocab] a row as it was before sampling, for log-probabilities */
    pi__sampler_scratch *scratch; /* for sampling */
    uint64_t mask_steps;       /* work that grammars may still do for masks on this thread */
} pi__runner;

enum { PI__MASK_STEPS = 16384 }; /* mask_steps of a plan, and once more of a step: half a millisecond each, or less */

/* shape: of a step's batch, with rows. */
int pi__runner_init(pi__runner *r, const pi__runner_config *config, const pi__batch_shape *shape, pi_error *err);
/* Bytes that init allocates. */
size_t pi__runner_bytes(const pi__batch_shape *shape, int32_t n_vocab);
void pi__runner_destroy(pi__runner *r);
/* The mask behind the last token of s is there. false: a worker makes it, and s waits. */
bool pi__runner_ready(pi__runner *r, const pi__seq *s);
/* Runs the plan; or leaves it in flight. An error (PI_EDEVICE) is of all sequences still in the plan: the caller ends them. */
int pi__runner_step(pi__runner *r, pi__step_plan *plan, pi_error *err);
/* Queues the step behind the one in flight, of its plan (pi__schedule_ahead). What goes wrong landing tells. */
void pi__runner_ahead(pi__runner *r, pi__step_plan *next);
/* Waits for the step in flight, and gives its sequences their tokens; those that end, and leave their rows, are dropped from the
 * step behind it, too, which is in flight now. An error as of step; then that one, whose sequences are the same, is gone. */
int pi__runner_land(pi__runner *r, pi_error *err);

#endif
