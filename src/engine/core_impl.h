/* The engine's state, for core.c, core_open.c and core_lora.c only.
 *
 * Callers touch only the data guarded by `lock` (inbox, counters, flags), the atomics, and immutable data. The step
 * thread owns the lists, the cache, the model and the device. core_open.c allocates everything before open returns. */
#ifndef PI__CORE_IMPL_H
#define PI__CORE_IMPL_H

#include <pthread.h>

#include "base/system_memory.h"
#include "engine/core.h"
#include "engine/drafting.h"
#include "engine/loras.h"
#include "engine/media.h"
#include "engine/pace.h"
#include "engine/rows.h"
#include "engine/runner.h"
#include "engine/sched.h"
#include "engine/setup.h"
#include "engine/snapshots.h"
#include "engine/special.h"
#include "engine/tiering.h"

struct pi__core {
    pi__setup setup;           /* config, devices, models, memory */
    pi_plan plan;              /* memory as opened */
    pi__reservation reserved;  /* host memory not written yet; changed by the opening thread, then the step thread */
    pi__vocab *vocab;          /* tokenizer */
    pi__special special;       /* special tokens */
    char *chat_template;       /* text, or NULL */
    pi__grammars *grammars;    /* compiled grammars for this vocabulary */
    pi__gguf_copy *metadata;   /* metadata of the model's file */

    /* step thread only */
    pi__cache cache;           /* block tables and prefixes */
    pi__cache draft_cache;     /* block tables and prefixes of a separate draft model */
    pi__sched sched;           /* queues and plans */
    pi__rows rows;             /* logits rows */
    pi__drafting drafting;     /* drafters */
    pi__snapshots snapshots;   /* snapshots of recurrent states */
    pi__media media;           /* rows of images */
    pi__runner runner;         /* runs steps */
    pi__pace pace;             /* limits prefill per step */
    /* start of the time to measure next, ms: start of a step, or end of the measurement before it (count_step) */
    double step_start;
    pi__tiering tiering;       /* host memory and disk below the pools */
    pi__stats stats;           /* written by the step thread, read by any thread */

    /* shared with callers, under lock */
    pthread_mutex_t lock;
    pthread_cond_t wake;       /* the step thread has something to do */
    pthread_cond_t changed;    /* n_live, state or clear_done changed */
    pi__seq *inbox_head, *inbox_tail; /* submitted, not yet seen by the step thread */
    int32_t n_live;            /* jobs submitted and not ended */
    int32_t n_queued;          /* of n_live: jobs that are not running */
    uint64_t n_submitted;      /* last arrival number */
    bool closing, draining;    /* no more submits */
    char failure[256];         /* reason for PI_STATE_FAILED */
    /* wakes the step thread: a cancel, a cache clear, a finished grammar mask, or a finished load or rescan of disk */
    bool poke;
    uint64_t clear_asked, clear_done; /* number of the last cache clear requested, and done; at most one is pending */
    const char *clear_salt;    /* pending clear: salt of the tenant, NULL = all tenants */
    pi__loras loras;           /* adapters */
    bool lora_work;            /* an adapter must be placed or freed */
    bool thread_started;       /* thread must be joined */
    pthread_t thread;          /* runs steps */
    atomic_int state;          /* PI_STATE_* */
};

/* Wakes the step thread. ud is the core. Any thread. */
void pi__core_poke(void *ud);
/* Publishes the counts of lists, pools and tiers for pi__core_stats. Step thread, or before it starts. */
void pi__core_update_stats(pi__core *e);
/* Ends s: removes it from its list, releases everything it holds and calls on_done. ud is the core. Step thread
 * only. */
void pi__core_finish(void *ud, pi__seq *s, int reason, int code, const char *msg);
/* Runs steps until the engine closes. arg is the core; returns NULL. */
void *pi__core_step_thread(void *arg);

#endif
