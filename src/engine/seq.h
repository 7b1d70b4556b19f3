/* A submitted job in progress: its tokens, how far they are computed, and its part of the cache.
 *
 * Created by the submitting thread. Once taken from the inbox, only the step thread uses it, except for ref and
 * cancel. A field comment that begins with a module name says which module writes the field. Memory: two references,
 * the submitter's and the engine's; the last release frees it. Lists do not own sequences. */
#ifndef PI__SEQ_H
#define PI__SEQ_H

#include <stdatomic.h>

#include "cache/cache.h"
#include "engine/job.h"
#include "engine/loras.h"
#include "engine/thoughts.h"
#include "grammar/grammar.h"
#include "sampler/sampler.h"

/* Jobs of one submit that share prefixes only with each other (params.cache false). */
typedef struct pi__sample_group {
    pi__block_root root;       /* root of their block hashes */
    size_t n_left;             /* sequences that have not ended; the last one frees the group */
} pi__sample_group;

/* Reuse points of a sequence with recurrent states, where a snapshot is worth keeping (snapshots.c). */
typedef struct pi__seq_saves {
    /* tokens after which cached sequences continue differently: take a snapshot there; 0 = none */
    int32_t branch;
    int32_t requested;         /* scheduler: tokens after which a waiting request branches off; 0 = none */
    int32_t last;              /* tokens at the last snapshot that was taken or restored */
} pi__seq_saves;

/* State of a waiting sequence's loads from the tiers (tiering.c). */
typedef struct pi__seq_fetch {
    int32_t rounds;            /* rounds of loads that are left, plus one; 0 = the tiers were not queried yet */
    uint64_t upto;             /* number of the last load to wait for */
    uint64_t bad;              /* failed loads when the tiers were queried first */
    uint64_t rescan;           /* rescan of the directory for files of other processes; 0 = not requested */
    double rescan_end;         /* with rescan: time to stop waiting for the rescan, ms; 0 = the wait is over */
} pi__seq_fetch;

/* Drafting state of a sequence: its drafter, acceptance statistics, and data of drafters (drafter.h). */
enum { PI__DRAFT_LEVELS = 8 };
typedef struct pi__seq_spec {
    int kind;                  /* PI__SPEC_* of its drafter; PI__SPEC_NONE = no drafts */
    int32_t n_in_step;         /* drafts in the step that runs */
    int32_t n_offer;           /* max drafts that it could have had in this step */
    int32_t level;             /* confidence of its drafter, 0 to PI__DRAFT_LEVELS - 1 */
    float tries[PI__DRAFT_LEVELS], hits[PI__DRAFT_LEVELS]; /* recent drafts checked, and accepted, by level; decayed */
    int32_t n_idle;            /* steps since drafts were last requested for it */
    bool wanted;               /* draft model: computing the tokens that it lacks is worth it */
    int32_t n_computed;        /* drafter with a cache: tokens computed; lookup: tokens in its index */
    int32_t n_guessed;         /* draft model: drafts computed after n_computed */
    int32_t from;              /* lookup: position of the match in the text */
    bool elsewhere;            /* lookup: the text is another request's */
} pi__seq_spec;

/* Callbacks of the submitter, called without any lock held: see pi__job. */
typedef struct pi__seq_calls {
    void *ud;
    bool (*on_token)(void *ud, const pi__token_out *t);
    void (*on_done)(void *ud, const pi__job_end *end);
    /* May be NULL. */
    void (*on_prefill)(void *ud, uint32_t n_computed, uint32_t n_cached, double ms);
    pi_logits_fn on_logits;    /* may be NULL */
    void *logits_ud;           /* its first argument */
} pi__seq_calls;

struct pi__seq {
    atomic_int ref;            /* number of references: submitter and engine */
    atomic_bool cancel;        /* cancellation was requested */
    pi__seq *prev, *next;      /* neighbors in the waiting or running list; next: also in the inbox */
    uint64_t arrival;          /* order of submit */
    bool aged;                 /* scheduler: it has waited too long and goes first */
    bool tried;                /* scheduler: admission was tried in this step */
    int32_t row;               /* scheduler: table row in the cache, -1 = waiting, holds nothing */
    uint32_t skip_groups;      /* bit of each cache group that it does not use */
    pi__sparse_span sparse;    /* span of its tokens with sparse prefill */
    int32_t *tokens;           /* [max_total + 1] prompt, then answer, then drafts */
    int32_t n_tokens;          /* in tokens */
    int32_t n_prompt;          /* of them, the prompt */
    int32_t max_total;         /* upper bound of n_tokens */
    int32_t n_computed;        /* tokens with keys and values in the cache */
    int32_t n_new;             /* scheduler: its tokens in this step, drafts included */
    int32_t n_draft;           /* drafters: drafts, stored in tokens after n_tokens */
    int32_t n_wish;            /* drafting: drafts to make, valid while they are made */
    uint32_t n_drafted, n_accepted; /* runner: drafts verified, and accepted */
    pi__seq_spec spec;         /* drafting state */
    int32_t n_rows_given;      /* runner: prompt rows already passed to on_logits */
    int32_t n_cached;          /* scheduler: tokens found in the cache at its first admission */
    int32_t n_matched;         /* scheduler: longest prefix that any group had at its first admission */
    uint32_t n_preempted;      /* scheduler: number of preemptions */
    int32_t n_found;           /* scheduler: tokens reused at its last admission */
    pi__seq_saves save;        /* snapshots */
    pi__seq_fetch fetch;       /* loads from the tiers */
    pi__gen_params params;     /* arrays in it are owned */
    pi__lora_uses lora;        /* LoRA adapters, held from submit to its end */
    bool whole;                /* its prompt is computed in one step */
    bool cacheable;            /* its blocks are shared with other sequences (of its sample group, if any) */
    pi__sample_group *sample_group; /* NULL = not in a sample group */
    pi__sampler *sampler;      /* its own */
    pi__thoughts *thoughts;    /* limit of thinking tokens, or NULL */
    pi__matcher *matcher;      /* grammar state of its answer, or NULL */
    int32_t n_ahead;           /* runner: tokens since its last logits row if the grammar forced some; else 0 */
    pi_token_prob *probs;      /* [1 + n_logprobs], or NULL */
    pi__seq_calls call;        /* the submitter's callbacks */
    struct { double submit, start, first, last; } t; /* times in milliseconds; 0 = not yet */
};

/* A list in scheduling order: by arrival. By priority: aged sequences by arrival, then the others by priority (lower
 * first) and arrival. */
typedef struct pi__seq_list {
    pi__seq *head, *tail;
    int32_t n;
} pi__seq_list;

/* Creates a sequence with both references from a validated job; the model has n_vocab tokens. */
int pi__seq_create(const pi__job *j, int32_t max_total, int32_t n_vocab, const pi__vocab *v, pi__seq **out,
                   pi_error *err);
/* Frees a sequence that was not submitted. */
void pi__seq_free(pi__seq *s);

void pi__list_insert(pi__seq_list *l, pi__seq *s, bool by_priority);
void pi__list_remove(pi__seq_list *l, pi__seq *s);

/* Max tokens that s may reuse from the cache: all but the last, or all before the first prompt row that it still has
 * to deliver. */
int32_t pi__seq_max_reuse(const pi__seq *s);

#endif
