/* A submitted job in progress: its tokens, how far they are computed, and its part of the cache.
 *
 * Created by the submitting thread. Once taken from the inbox, only the step thread uses it, except for ref and
 * cancel. A field comment that begins with a module name says which module writes the field. Memory: two references,
 * the submitter's and the engine's; the last release frees it. Lists do not own sequences. */
#ifndef PI__SEQ_H
#define PI__SEQ_H

#include <stdatomic.h>

#include "cache/cache.h"
#include "engine/images.h"
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
    /* scheduler: length of the longest prefix that some cache group still had at admission, tokens, if longer than the
     * reused prefix: take a snapshot there; 0 = none */
    int32_t branch;
    /* scheduler: length of the prefix that a waiting request shares with this prompt, tokens: take a snapshot there;
     * 0 = none */
    int32_t requested;
    int32_t last;              /* tokens before the last snapshot that was taken, found or restored */
} pi__seq_saves;

/* State of a waiting sequence's loads from the tiers (tiering.c). */
typedef struct pi__seq_fetch {
    /* rounds of loads that are left, plus one; 1 = no more rounds, 0 = the tiers were not queried yet */
    int32_t rounds;
    uint64_t upto;             /* number of the last load to wait for (pi__load.number) */
    /* count of failed loads when the tiers were queried first; if the count has grown since, no more rounds */
    uint64_t bad;
    uint64_t rescan;           /* number of the directory rescan to wait for (pi__tier_rescan); 0 = not decided yet */
    double rescan_end;         /* time at which the wait for the rescan ends, ms; 0 = not waiting */
} pi__seq_fetch;

/* Drafting state of a sequence: its drafter, acceptance statistics, and data of drafters (drafter.h). */
enum { PI__DRAFT_LEVELS = 8 };
typedef struct pi__seq_spec {
    int kind;                  /* PI__SPEC_* of the sequence's drafter; PI__SPEC_NONE = no drafts */
    int32_t n_in_step;         /* drafts that the current step verifies */
    int32_t n_offer;           /* drafts that the drafter offered, before pi__worth_choose lowered the number */
    int32_t level;             /* confidence of the drafter in its drafts, 0 to PI__DRAFT_LEVELS - 1 */
    float tries[PI__DRAFT_LEVELS], hits[PI__DRAFT_LEVELS]; /* recent drafts checked, and accepted, by level; decayed */
    int32_t n_idle;            /* steps since drafts were last requested for this sequence */
    bool wanted;               /* draft model: catching up with this sequence is worth the time (pi__worth_wants) */
    int32_t n_computed;        /* tokens in the drafter's cache; lookup: tokens in the sequence's n-gram index */
    int32_t n_guessed;         /* draft model: drafts in its cache after the first n_computed tokens */
    int32_t from;              /* lookup: position of the last token of the match in the searched text; -1 = no match */
    bool elsewhere;            /* lookup: the match is in texts of ended requests; false = in the sequence's own text */
} pi__seq_spec;

/* Callbacks of the submitter, called with no lock held: see pi__job. */
typedef struct pi__seq_calls {
    void *ud;
    bool (*on_token)(void *ud, const pi__token_out *t);
    void (*on_done)(void *ud, const pi__job_end *end);
    /* May be NULL. */
    void (*on_prefill)(void *ud, uint32_t n_computed, uint32_t n_cached, double ms);
    pi_logits_fn on_logits;    /* may be NULL */
    void *logits_ud;           /* first argument of on_logits */
} pi__seq_calls;

struct pi__seq {
    atomic_int ref;            /* number of references: submitter and engine */
    atomic_bool cancel;        /* cancellation was requested */
    pi__seq *prev, *next;      /* neighbors in the waiting or running list; next: also in the inbox */
    uint64_t arrival;          /* number of the submit, ascending from 1 */
    bool aged;                 /* scheduler: waited longer than max_wait_ms, so admission tries this sequence first */
    bool tried;                /* scheduler: admission was tried in this step */
    bool block_wait;           /* scheduler: admission failed for lack of blocks before; counted in the statistics */
    int32_t row;               /* scheduler: row in the cache; -1 = the sequence waits and holds no blocks */
    uint32_t skip_groups;      /* bit of each cache group that the sequence does not use */
    pi__sparse_span sparse;    /* positions with sparse prefill */
    int32_t *tokens;           /* [max_total + 1] prompt, then answer, then drafts */
    int32_t n_tokens;          /* tokens of prompt and answer so far, without drafts */
    int32_t n_prompt;          /* of n_tokens: tokens of the prompt */
    int32_t max_total;         /* upper bound of n_tokens */
    int32_t n_computed;        /* tokens with keys and values in the cache */
    int32_t n_new;             /* scheduler: tokens to compute in this step, drafts included */
    int32_t n_draft;           /* drafters: number of drafts, at tokens[n_tokens] and up */
    /* drafting: max drafts to make for the next step; valid only while drafts are made (pi__drafts_make) */
    int32_t n_wish;
    uint32_t n_drafted, n_accepted; /* runner: drafts verified, and accepted */
    pi__seq_spec spec;         /* drafting state */
    /* runner: prompt positions below this were passed to on_logits, or were not requested */
    int32_t n_rows_given;
    int32_t n_cached;          /* scheduler: prompt tokens found in the cache at the first admission */
    int32_t n_matched;         /* scheduler: longest prefix that any cache group had at the first admission, tokens */
    uint32_t n_preempted;      /* scheduler: number of preemptions */
    int32_t n_found;           /* scheduler: tokens found in the cache at the last admission */
    pi__seq_saves save;        /* positions at which to take snapshots */
    pi__seq_fetch fetch;       /* loads from the tiers */
    pi__gen_params params;     /* arrays in it are owned */
    pi__lora_uses lora;        /* LoRA adapters, in use from submit to the end of the sequence */
    pi__seq_images images;     /* images of the prompt */
    bool whole_images;         /* tokens of an image see each other: an image is computed in one step */
    bool whole;                /* single-step: the prompt is computed in one step (bidirectional attention) */
    bool cacheable;            /* blocks are shared with other sequences (only of the sample group, if there is one) */
    pi__sample_group *sample_group; /* NULL = not in a sample group */
    pi__sampler *sampler;      /* sampling state of this sequence */
    pi__thoughts *thoughts;    /* limit of thinking tokens, or NULL */
    pi__matcher *matcher;      /* grammar state of the answer, or NULL */
    /* runner, with a grammar: tokens appended after the last logits row, the sampled and the forced ones; else 0 */
    int32_t n_ahead;
    pi_token_prob *probs;      /* [1 + n_logprobs] log-probabilities of the token that is appended, or NULL */
    pi__seq_calls call;        /* the submitter's callbacks */
    struct { double submit, start, first, last; } t; /* times in milliseconds; 0 = not yet */
};

/* A list in scheduling order: by arrival. By priority: aged sequences by arrival, then the others by priority (lower
 * first) and arrival. */
typedef struct pi__seq_list {
    pi__seq *head, *tail;
    int32_t n;
} pi__seq_list;

/* Creates a sequence with both references from a validated job. max_total: upper bound of its tokens. n_vocab: tokens
 * of the model. v must outlive the sequence. */
int pi__seq_create(const pi__job *j, int32_t max_total, int32_t n_vocab, const pi__vocab *v, pi__seq **out,
                   pi_error *err);
/* Frees a sequence that was not submitted. */
void pi__seq_free(pi__seq *s);

void pi__list_insert(pi__seq_list *l, pi__seq *s, bool by_priority);
void pi__list_remove(pi__seq_list *l, pi__seq *s);

/* Returns the max tokens that s may reuse from the cache: all but the last one, or with logits of prompt tokens
 * requested, all before the first of them that was not delivered yet. */
int32_t pi__seq_max_reuse(const pi__seq *s);

#endif
