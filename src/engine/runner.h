/* Runs a step: the plan's tokens as a batch, the model, then a token for each sequence that is up to date.
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
    void (*finish)(void *ud, pi__seq *s, int reason, int code, const char *msg); /* s has ended and may be freed */
    void *ud;                  /* its first argument */
} pi__runner_config;

typedef struct pi__runner {
    pi__runner_config config;  /* as given */
    pi__batch_builder batch;   /* what the model runs */
    pi__step_plan *plan;       /* of the step that runs */
    bool hidden;               /* some of its sequences want hidden states */
    float *raw_row;            /* [n_vocab] a row as it was before sampling, for log-probabilities */
    pi__sampler_scratch *scratch; /* for sampling */
} pi__runner;

/* shape: of a step's batch, with rows. */
int pi__runner_init(pi__runner *r, const pi__runner_config *config, const pi__batch_shape *shape, pi_error *err);
/* Bytes that init allocates. */
size_t pi__runner_bytes(const pi__batch_shape *shape, int32_t n_vocab);
void pi__runner_destroy(pi__runner *r);
/* Runs the plan. An error (PI_EDEVICE) is of all sequences still in the plan: the caller ends them. */
int pi__runner_step(pi__runner *r, pi__step_plan *plan, pi_error *err);

#endif
