/* The scheduler: turns queues, budgets and the cache into the plan of a step.
 *
 * The scheduler moves sequences between two lists and decides how many tokens of each are computed next. It knows the
 * cache as block tables and prefixes. It knows tiers, grammars and snapshots through five optional functions. It owns
 * the lists, the rows and the plans, not the sequences. A waiting sequence holds nothing of the cache and has row -1;
 * a running one has a row. Memory: two plans and the rows, allocated at init. Step thread only. */
#ifndef PI__SCHED_H
#define PI__SCHED_H

#include "base/log.h"
#include "engine/seq.h"
#include "engine/stats.h"

/* Hooks of tiers, grammars and snapshots. Each may be NULL. */
typedef struct pi__sched_hooks {
    void *ud;                  /* first argument of all hooks */
    /* Unpins one more block that is being copied. Returns false if no block is pinned. */
    bool (*yield)(void *ud);
    /* Starts loads. Returns true if s, matched so far up to `got` tokens, must wait for blocks that tiers are
     * loading. */
    bool (*wait)(void *ud, pi__seq *s, int32_t got);
    /* True if the grammar mask after the last token of s is ready. NULL = always ready. */
    bool (*ready)(void *ud, pi__seq *s);
    /* Called when s has its row and starts after the n_computed tokens found in the cache. */
    void (*admitted)(void *ud, pi__seq *s);
    /* Called before s releases its row. intact: its computed tokens are valid. */
    void (*leaves)(void *ud, pi__seq *s, bool intact);
} pi__sched_hooks;

typedef struct pi__sched_config {
    int32_t max_seqs;          /* max running sequences; rows of the cache */
    bool by_priority;          /* lower params.priority first */
    double max_wait_ms;        /* waiting longer than this puts a sequence before all others; 0 = never */
    int32_t min_prefill;     /* min prefill tokens of a step: one block of sparse prefill, or 0 */
    pi__log log;               /* logs preemptions */
    pi__sched_hooks hooks;
} pi__sched_config;

/* The next step: n_new tokens of each sequence from n_computed on; tokens after n_tokens are drafts. Or a lookahead
 * step: one token of each sequence at n_tokens, which the step before gives. */
typedef struct pi__step_plan {
    pi__seq **seq;             /* [n_seqs] in running order; the runner sets sequences that ended to NULL */
    int32_t *from;             /* [n_seqs] lookahead step: index of each sequence in the plan before */
    bool ahead;                /* this is a lookahead step */
    int32_t n_seqs;            /* 0 = no sequence can run */
    int32_t n_tokens;          /* in all */
    int32_t n_prefill;         /* of them, tokens of sequences with more than one uncomputed token when planned */
} pi__step_plan;

typedef struct pi__sched {
    pi__sched_config config;   /* as given */
    pi__cache *cache;          /* block tables and prefixes */
    pi__stats *stats;          /* counters */
    pi__seq_list waiting, running;
    pi__seq **row_seq;         /* [max_seqs] sequence of each table row, NULL = free */
    int32_t max_tokens;        /* budget of the step that is planned */
    /* max prefill tokens of a step that decodes, 0 = no limit; set by the caller (pace.h) */
    int32_t max_prefill;
    bool full;                 /* the first waiting sequence found no room when it was last tried */
    int32_t n_ahead;           /* lookahead steps since the last normal step */
    bool chosen;               /* the admission order differs from the order of the waiting list */
    int32_t n_of[PI__TENANTS]; /* running sequences of each tenant, valid during admission */
    pi__step_plan plan[2];     /* the last plan; and the plan before, if the last one is a lookahead step */
    int now;                   /* index of the last plan */
} pi__sched;

int pi__sched_init(pi__sched *sc, const pi__sched_config *config, pi__cache *cache, pi__stats *stats, pi_error *err);
/* Bytes that init allocates. */
size_t pi__sched_bytes(int32_t max_seqs);
/* Frees everything. Both lists must be empty. */
void pi__sched_destroy(pi__sched *sc);

/* Adds s to the waiting list. */
void pi__sched_add(pi__sched *sc, pi__seq *s);
/* Removes s from its list and releases its row. intact: see hooks.leaves. */
void pi__sched_remove(pi__sched *sc, pi__seq *s, bool intact);
/* Chooses the tokens of the next step, at most max_tokens. The plan is valid until the next call. */
pi__step_plan *pi__schedule(pi__sched *sc, int32_t max_tokens);
/* Plans a lookahead step: one token for each sequence of the step in flight, before the tokens of that step are known.
 * Call while the last plan, one token of each sequence, is in flight; that plan stays valid. Reserves the blocks.
 * Preempts nothing. Returns n_seqs 0 if a lookahead step is not possible: all sequences end, a block is missing, or a
 * waiting sequence might be admitted. */
pi__step_plan *pi__schedule_ahead(pi__sched *sc);

#endif
