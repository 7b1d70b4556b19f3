/* Runs a step: batches the tokens of the plan, runs the model, samples a token for each sequence that is up to date.
 *
 * On a device a decode step may stay in flight: only the device knows its tokens. The device can then get a lookahead
 * step, the step after it, before the host completes the first one and learns its tokens.
 *
 * Calls only lower layers: logits rows, drafting, snapshots, cache, sampler, model. A sequence that has ended is
 * reported to its owner through `finish`; the runner does not touch it after that. Owned: the batch and sampling
 * buffers. Memory: allocated at init, nothing while steps run. Step thread only. */
#ifndef PI__RUNNER_H
#define PI__RUNNER_H

#include "engine/batch.h"
#include "engine/drafting.h"
#include "engine/media.h"
#include "engine/rows.h"
#include "engine/sched.h"
#include "engine/snapshots.h"
#include "engine/special.h"
#include "engine/stats.h"
#include "model/model.h"

typedef struct pi__runner_config {
    pi__backend *be;           /* backend of the model */
    pi__model *m;              /* the model */
    pi__cache *cache;          /* commits computed tokens */
    pi__rows *rows;            /* logits */
    pi__drafting *drafting;    /* drafts */
    pi__snapshots *snapshots;  /* snapshots of recurrent states */
    pi__media *media;          /* rows of images */
    const pi__special *special; /* special tokens */
    pi__stats *stats;          /* counters */
    int32_t n_draft;           /* max drafts per sequence and step */
    bool ahead;                /* allow lookahead steps on devices that support them */
    void (*finish)(void *ud, pi__seq *s, int reason, int code, const char *msg); /* s has ended and may be freed */
    void *ud;                  /* first argument of finish */
} pi__runner_config;

typedef struct pi__runner {
    pi__runner_config config;  /* copy of the config given to init */
    pi__batch_builder batch;   /* batch of the step */
    pi__step_plan *plan;       /* plan of the step that runs */
    pi__step_plan *flight;     /* plan of the step in flight, or NULL */
    pi__step_plan *next;       /* plan of the lookahead step after it, or NULL */
    int turn;                  /* index of results and device mark of `flight`: 0 or 1; `next` has the other one */
    bool hidden;               /* some sequences of the step request hidden states */
    bool stays;                /* the step may stay in flight */
    float *raw_row;            /* [n_vocab] a row before sampling, for log-probabilities */
    pi__sampler_scratch *scratch; /* buffers of the sampler */
    /* steps of work that pi__matcher_ready may still spend on masks on the step thread, 10 to 20 ns each */
    uint64_t mask_steps;
} pi__runner;

/* value of mask_steps before scheduling, and again before sampling: half a millisecond of work each, or less */
enum { PI__MASK_STEPS = 16384 };

/* shape: of a step's batch, with logits rows. */
int pi__runner_init(pi__runner *r, const pi__runner_config *config, const pi__batch_shape *shape, pi_error *err);
/* Bytes that init allocates. */
size_t pi__runner_bytes(const pi__batch_shape *shape, int32_t n_vocab);
void pi__runner_destroy(pi__runner *r);
/* True if the grammar mask after the last token of s is ready. False = a worker thread computes it, and s waits. */
bool pi__runner_ready(pi__runner *r, const pi__seq *s);
/* Runs the plan: computes and samples the tokens, calls the callbacks and makes drafts. Or leaves the step in flight
 * (`flight`). On error the caller ends all sequences that are still in the plan. */
int pi__runner_step(pi__runner *r, pi__step_plan *plan, pi_error *err);
/* Queues the lookahead step `next` (pi__schedule_ahead) after the step in flight. Errors are reported by
 * pi__runner_complete. */
void pi__runner_ahead(pi__runner *r, pi__step_plan *next);
/* Completes the step in flight: waits for it and appends a token to each of its sequences. Sequences that end release
 * their rows and are removed from the lookahead step, which is then in flight. On error as for step; the lookahead
 * step is dropped, too. */
int pi__runner_complete(pi__runner *r, pi_error *err);

#endif
