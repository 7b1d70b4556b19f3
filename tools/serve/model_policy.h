/* Decides which model of several is loaded, stopped or refused next. A pure function of the states: the caller applies
 * the action, updates the states, and asks again until there is nothing to do.
 *
 *     UNLOADED -> PLANNING -> PLANNED -> LOADING -> LOADED -> STOPPING -> UNLOADED or SLEEPING
 *                    any of these, at an unexpected exit -> FAILED
 *
 * Places (max_models) are taken from PLANNING to STOPPING, memory (max_bytes) from LOADING to STOPPING. Memory is
 * given to planned models in the order of their demands, then places to models without a process, in the same order. A
 * model stops for another one only if it is idle, not pinned, and if stopping idle models is sufficient.
 *
 * No memory, no clock, no process: thread-safe. */
#ifndef PAGEDINFER_SERVE_MODEL_POLICY_H
#define PAGEDINFER_SERVE_MODEL_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum model_state {
    MODEL_UNLOADED, /* no process */
    MODEL_SLEEPING, /* no process, after idle time */
    MODEL_FAILED,   /* no process, after an unexpected exit */
    MODEL_PLANNING, /* the process computes its memory */
    MODEL_PLANNED,  /* the process waits for memory */
    MODEL_LOADING,
    MODEL_LOADED,
    MODEL_STOPPING, /* the process was told to end */
    N_MODEL_STATES,
};

typedef struct model_status {
    enum model_state state;
    bool pinned;         /* never stopped for another model, or after idle time */
    size_t n_requests;   /* requests that its process handles */
    uint64_t demand_at;  /* number of the oldest demand: a waiting request or an order to load; 0 = none */
    uint64_t used_at;    /* time at which its last request began or ended, ms */
    uint64_t retry_at;   /* FAILED: no new attempt before this time, ms */
    uint64_t idle_ms;    /* LOADED: stop after this time without a request; 0 = never */
    uint64_t bytes;      /* planned memory, from PLANNED to STOPPING; 0 if stopped before LOADING */
} model_status;

typedef struct model_limits {
    size_t max_models;   /* 0 = no limit */
    uint64_t max_bytes;  /* 0 = no limit */
} model_limits;

enum model_action {
    MODEL_DO_NOTHING,
    MODEL_DO_START,  /* start the process: PLANNING */
    MODEL_DO_LOAD,   /* let the process load: LOADING */
    MODEL_DO_STOP,   /* end the idle process for another model: STOPPING, then UNLOADED */
    MODEL_DO_SLEEP,  /* end the idle process after idle time: STOPPING, then SLEEPING */
    MODEL_DO_REFUSE, /* the model can never fit: end its process and refuse its demands */
};

typedef struct model_step {
    enum model_action action;
    size_t i;            /* the model of the action */
} model_step;

/* Returns the next action for the n models at time `now`, ms. */
model_step model_next(const model_status *m, size_t n, const model_limits *limits, uint64_t now);
/* True if the state has a process. */
bool model_has_process(enum model_state s);
/* Returns the word for clients: "unloaded", "sleeping", "loading" (also while planning), "loaded". A failed or stopping
 * model is "unloaded", as in llama-server. */
const char *model_state_word(enum model_state s);
/* Returns the time until the next attempt after the n-th failed load in a row, ms: 0 for n = 0, then 1 s to 60 s. */
uint64_t model_backoff(unsigned n);

#endif
