/* A submitted job on its way: its tokens, how far they are computed, what of the cache it holds.
 *
 * Made by the submitting thread; from the inbox on the step thread's alone, but for ref and cancel. Each module of the
 * engine writes the members that its name stands at. Memory: two references, the submitter's and the engine's; the last one
 * frees it. Lists do not own. */
#ifndef PI__SEQ_H
#define PI__SEQ_H

#include <stdatomic.h>

#include "cache/cache.h"
#include "engine/job.h"
#include "engine/loras.h"
#include "engine/thoughts.h"
#include "grammar/grammar.h"
#include "sampler/sampler.h"

/* Jobs of one submit that share prefixes with each other and with nobody else (params.cache false). */
typedef struct pi__sample_group {
    pi__block_root root;       /* of their block hashes */
    size_t n_left;             /* sequences that have not ended; the last one frees it */
} pi__sample_group;

/* Reuse points where a copy of its recurrent state is worth keeping (snapshots.c; requested: the scheduler). */
typedef struct pi__seq_saves {
    int32_t branch;            /* tokens after which others went another way: a snapshot belongs there; 0: none */
    int32_t requested;         /* the same, where a waiting request will go another way; 0: none */
    int32_t last;              /* tokens after which the last one was taken or found */
} pi__seq_saves;

/* Blocks that the tiers are asked for while it waits (tiering.c). */
typedef struct pi__seq_fetch {
    int32_t rounds;            /* rounds of loads that are left, plus one; 0: the tiers were not asked yet */
    uint64_t upto;             /* loads up to this number are waited for */
    uint64_t bad;              /* loads that had failed when they were asked */
    uint64_t look;             /* a look at the directory for what others wrote; 0: none was asked for */
    double look_end;           /* with look: when to go on without it, ms; 0: it has ended */
} pi__seq_fetch;

/* Drafting: who drafts, how often that was right, and what drafters remember (drafter.h). */
enum { PI__DRAFT_LEVELS = 8 };
typedef struct pi__seq_spec {
    int kind;                  /* PI__SPEC_* of its drafter; PI__SPEC_NONE: none */
    int32_t n_in_step;         /* drafts that it has in the step that runs */
    int32_t n_offer;           /* drafts that it could have had in this step */
    int32_t level;             /* how much its drafter makes of them, 0 to PI__DRAFT_LEVELS - 1 */
    float tries[PI__DRAFT_LEVELS], hits[PI__DRAFT_LEVELS]; /* drafts of late that were looked at, and were right */
    int32_t n_idle;            /* steps since it was to get drafts last */
    bool wanted;               /* drafting model: what it has not seen yet is worth being computed */
    int32_t n_computed;        /* drafter with a cache: tokens that it has; lookup: tokens that are in its index */
    int32_t n_guessed;         /* drafting model: drafts behind them that it has, too */
    int32_t from;              /* lookup: where in the text it looks its drafts up */
    bool elsewhere;            /* lookup: that text is another request's */
} pi__seq_spec;

/* Whom it calls, without any lock held: see pi__job. */
typedef struct pi__seq_calls {
    void *ud;
    bool (*on_token)(void *ud, const pi__token_out *t);
    void (*on_done)(void *ud, const pi__job_end *end);
    void (*on_prefill)(void *ud, uint32_t n_computed, uint32_t n_cached, double ms); /* or NULL */
    pi_logits_fn on_logits;    /* or NULL */
    void *logits_ud;           /* its first argument */
} pi__seq_calls;

struct pi__seq {
    atomic_int ref;            /* the submitter's reference and the engine's */
    atomic_bool cancel;        /* asked for */
    pi__seq *prev, *next;      /* in the waiting or running list; next: in the inbox */
    uint64_t arrival;          /* order of submit */
    bool aged;                 /* scheduler: it has waited for too long, and goes first */
    bool tried;                /* scheduler: it was looked at in this step */
    int32_t row;               /* scheduler: table row in the cache, -1: it waits and holds nothing */
    uint32_t without;          /* bit of each cache group that it has nothing in */
    pi__sparse_span sparse;    /* its tokens with sparse prefill */
    int32_t *tokens;           /* [max_total + 1] prompt, then answer, then drafts */
    int32_t n_tokens;          /* in tokens */
    int32_t n_prompt;          /* of them, the prompt */
    int32_t max_total;         /* n_tokens never exceeds it */
    int32_t n_computed;        /* tokens whose K,V are in the cache */
    int32_t n_new;             /* scheduler: tokens of it in this step, drafts included */
    int32_t n_draft;           /* drafters: drafts, in tokens behind n_tokens */
    int32_t n_wish;            /* drafting: drafts that it is to get, while they are made */
    uint32_t n_drafted, n_accepted; /* runner: drafts that were verified, and those that were right */
    pi__seq_spec spec;         /* who drafts for it */
    int32_t n_rows_given;      /* runner: prompt rows already given to on_logits */
    int32_t n_cached;          /* scheduler: tokens found in the cache when it first ran */
    int32_t n_matched;         /* scheduler: longest prefix that some group had then */
    uint32_t n_preempted;      /* scheduler: times it lost its blocks */
    int32_t n_found;           /* scheduler: tokens it took over when it was last admitted */
    pi__seq_saves save;        /* where snapshots are */
    pi__seq_fetch fetch;       /* from the tiers */
    pi__gen_params params;     /* arrays in it are owned */
    pi__lora_uses lora;        /* its adapters, from submit to its end */
    bool whole;                /* its prompt is computed in one step */
    bool keeps;                /* its blocks may be reused by others (of its sample group, if any), and others' by it */
    pi__sample_group *sample_group; /* or NULL */
    pi__sampler *sampler;      /* its own */
    pi__thoughts *thoughts;    /* where they are limited, or NULL */
    pi__matcher *matcher;      /* where its answer is in its grammar, or NULL */
    int32_t n_ahead;           /* runner: tokens that it has since its last row of logits, where its grammar added some; else 0 */
    pi_token_prob *probs;      /* [1 + n_logprobs] or NULL */
    pi__seq_calls call;        /* of its submitter */
    struct { double submit, start, first, last; } t; /* milliseconds; 0: not yet */
};

/* A list in the order of who runs first: where priority counts, aged sequences by arrival, then by priority (lower first);
 * then by arrival. */
typedef struct pi__seq_list {
    pi__seq *head, *tail;
    int32_t n;
} pi__seq_list;

/* With both references, of a validated job; the model has n_vocab tokens. */
int pi__seq_create(const pi__job *j, int32_t max_total, int32_t n_vocab, const pi__vocab *v, pi__seq **out, pi_error *err);
/* One that nobody else has seen. */
void pi__seq_free(pi__seq *s);

void pi__list_insert(pi__seq_list *l, pi__seq *s, bool by_priority);
void pi__list_remove(pi__seq_list *l, pi__seq *s);

/* Tokens that it may take over from others at most: all but the last, or those before the first row of the prompt that it
 * still has to give. */
int32_t pi__seq_most(const pi__seq *s);

#endif
