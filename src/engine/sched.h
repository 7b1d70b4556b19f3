/* The scheduler: queues, budgets and the cache's interface give a plan.
 *
 * The scheduler moves sequences between two lists and decides how many tokens of each are computed next. It knows the cache
 * as block tables and prefixes; of tiers and snapshots it knows four functions, all of which may be missing. It owns the
 * lists, the rows and the plan, not the sequences: those that wait hold nothing of the cache and have row -1, those that run
 * have a row each. Memory: two arrays at init. Only the step thread is here. */
#ifndef PI__SCHED_H
#define PI__SCHED_H

#include "base/log.h"
#include "engine/seq.h"
#include "engine/stats.h"

/* Hooks of tiers and snapshots. Each may be NULL. */
typedef struct pi__sched_hooks {
    void *ud;                  /* first argument of all */
    /* One more block that is being copied may be handed out from now on. false: there is none. */
    bool (*yield)(void *ud);
    /* true: s, matched so far up to `got` tokens, should wait for blocks that tiers are loading; starts the loads. */
    bool (*wait)(void *ud, pi__seq *s, int32_t got);
    /* s may compute its last token: the mask of its grammar behind that token is there. NULL: always. */
    bool (*ready)(void *ud, pi__seq *s);
    /* s has its row and starts after the n_computed tokens that it found. */
    void (*admitted)(void *ud, pi__seq *s);
    /* s is about to give its row back. intact: what it computed is right. */
    void (*leaves)(void *ud, pi__seq *s, bool intact);
} pi__sched_hooks;

typedef struct pi__sched_config {
    int32_t max_seqs;          /* that run at once; rows of the cache */
    bool by_priority;          /* lower params.priority first */
    double max_wait_ms;        /* who has waited so long goes before all others; 0: nobody does */
    int32_t least_prefill;     /* tokens that a step can have for prefill, at least (those of a block of sparse prefill) */
    pi__log log;               /* who is preempted */
    pi__sched_hooks hooks;
} pi__sched_config;

/* The next step: each sequence with n_new tokens from n_computed on, of which those behind n_tokens are drafts. Or a step
 * that is fed ahead: each with one token at n_tokens, which the step before it gives. */
typedef struct pi__step_plan {
    pi__seq **seq;             /* [n_seqs] in running order; who runs the step sets those that ended to NULL */
    int32_t *from;             /* [n_seqs] of a step that is fed ahead: which each of them is in the plan before it */
    bool ahead;                /* it is one */
    int32_t n_seqs;            /* 0: nothing can run */
    int32_t n_tokens;          /* in all */
    int32_t n_prefill;         /* of them, those of prompts, or of what is computed again, in chunks */
} pi__step_plan;

typedef struct pi__sched {
    pi__sched_config config;   /* as given */
    pi__cache *cache;          /* block tables and prefixes */
    pi__stats *stats;          /* where it counts */
    pi__seq_list waiting, running;
    pi__seq **row_seq;         /* [max_seqs] whose the table rows are, NULL: free */
    int32_t max_tokens;        /* of the step that is planned */
    int32_t max_prefill;       /* of them for prefill while others decode, 0: no limit; the caller sets it (pace.h) */
    bool full;                 /* the first of those who wait found no room when it was last asked for */
    int32_t n_ahead;           /* steps that were fed ahead since then */
    bool chosen;               /* those who wait are not admitted in the order of their list */
    int32_t n_of[PI__TENANTS]; /* running sequences of each tenant, while some are admitted */
    pi__step_plan plan[2];     /* the last one, and the one before where it was fed ahead */
    int now;                   /* which is the last */
} pi__sched;

int pi__sched_init(pi__sched *sc, const pi__sched_config *config, pi__cache *cache, pi__stats *stats, pi_error *err);
/* Bytes that init allocates. */
size_t pi__sched_bytes(int32_t max_seqs);
/* Both lists are empty. */
void pi__sched_destroy(pi__sched *sc);

/* s waits from now on. */
void pi__sched_add(pi__sched *sc, pi__seq *s);
/* s leaves its list and gives back its row. intact: see hooks.leaves. */
void pi__sched_remove(pi__sched *sc, pi__seq *s, bool intact);
/* Chooses the tokens of the next step, at most max_tokens. The plan is valid until the next call. */
pi__step_plan *pi__schedule(pi__sched *sc, int32_t max_tokens);
/* The last plan, of a step in which each sequence computes the one token that it misses, is under way and stays valid: the step
 * behind it, before its tokens are known, where the scheduler would have nothing else to do. It has those who may go on, and
 * their blocks. n_seqs 0: there is none: it takes the tokens, a block that is not free, or somebody who waits could join.
 * Nobody is preempted. */
pi__step_plan *pi__schedule_ahead(pi__sched *sc);

#endif
