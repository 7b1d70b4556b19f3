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
    /* Unpins one more block that is being copied, so that it can be allocated. Returns false if no block is pinned. */
    bool (*yield)(void *ud);
    /* Starts loads of blocks that s lacks; got: tokens of s matched so far. Returns true if s must wait for blocks that
     * tiers are loading. */
    bool (*wait)(void *ud, pi__seq *s, int32_t got);
    /* True if the grammar mask after the last token of s is ready. NULL = always ready. */
    bool (*ready)(void *ud, pi__seq *s);
    /* Called when s has its row and starts after the n_computed tokens found in the cache. */
    void (*admitted)(void *ud, pi__seq *s);
    /* Called before s releases its row. intact: its computed tokens are valid. */
    void (*leaves)(void *ud, pi__seq *s, bool intact);
    /* Returns how many of the n tokens after the computed ones of s can be computed now: images among them need their
     * rows. NULL = all of them. Called for sequences with images only. */
    int32_t (*images)(void *ud, pi__seq *s, int32_t n);
} pi__sched_hooks;

typedef struct pi__sched_config {
    int32_t max_seqs;          /* max running sequences; rows of the cache */
    bool by_priority;          /* lower params.priority first */
    double max_wait_ms;        /* waiting longer than this puts a sequence before all others; 0 = never */
    /* floor of max_prefill, and the prefill tokens that drafts leave room for: one sparse block, or 0 */
    int32_t min_prefill;
    pi__log log;               /* logs preemptions and waits for blocks */
    pi__sched_hooks hooks;
} pi__sched_config;

/* A planned step. Each sequence computes n_new tokens from position n_computed on; tokens from position n_tokens on are
 * drafts. In a lookahead step each sequence computes one token at position n_tokens, which the step before samples. */
typedef struct pi__step_plan {
    pi__seq **seq;             /* [n_seqs] in running order; the runner sets sequences that ended to NULL */
    int32_t *from;             /* [n_seqs] lookahead step: index of each sequence in the plan before */
    bool ahead;                /* this is a lookahead step */
    int32_t n_seqs;            /* 0 = no sequence can run */
    int32_t n_tokens;          /* tokens of all sequences */
    /* of n_tokens: tokens of sequences that had more than one uncomputed token when planned */
    int32_t n_prefill;
} pi__step_plan;

typedef struct pi__sched {
    pi__sched_config config;   /* copy of the config given to init */
    pi__cache *cache;          /* block tables and prefixes */
    pi__stats *stats;          /* counters */
    pi__seq_list waiting, running;
    pi__seq **row_seq;         /* [max_seqs] sequence of each cache row, NULL = the row is free */
    int32_t max_tokens;        /* budget of the step that is planned */
    /* max prefill tokens of a step that decodes, raised to config.min_prefill if lower; 0 = no limit; set by the caller
     * (pace.h) */
    int32_t max_prefill;
    /* the last admission lacked a row or blocks for the first waiting sequence: lookahead steps are allowed */
    bool full;
    double block_log_ms;       /* time of the last log line about missing blocks; 0 = never */
    int32_t n_ahead;           /* lookahead steps since the last normal step */
    bool chosen;               /* the admission order may differ from the order of the waiting list (rules 19 and 21) */
    int32_t n_of[PI__TENANTS]; /* running sequences of each tenant, valid during admission */
    /* plan[now] is the last plan; the other one is the plan before it, valid if plan[now] is a lookahead step */
    pi__step_plan plan[2];
    int now;                   /* index of the last plan: 0 or 1 */
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
/* Plans the next step of at most max_tokens tokens. Sets n_new of each sequence, reserves blocks, admits waiting
 * sequences, and preempts running ones if blocks are missing. The plan is valid until the next call of pi__schedule or
 * the second next call of pi__schedule_ahead. */
pi__step_plan *pi__schedule(pi__sched *sc, int32_t max_tokens);
/* Plans a lookahead step: one token for each sequence of the step in flight, before the tokens of that step are known.
 * Call while the last plan, one token of each sequence, is in flight; that plan stays valid. Reserves the blocks of the
 * new tokens. Preempts nothing. Returns n_seqs 0 if a lookahead step is not possible: all sequences end, a block is
 * missing, a chunk of a recurrent state would end, or a waiting sequence might be admitted. */
pi__step_plan *pi__schedule_ahead(pi__sched *sc);

#endif
