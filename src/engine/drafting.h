/* Drafting: who drafts for whom, and how much (drafting.c says how); drafters are behind drafter.h.
 *
 * Borrowed: the cache. Owned: the drafters that are given to it. Memory: all of it at init. Only the step thread is here. */
#ifndef PI__DRAFTING_H
#define PI__DRAFTING_H

#include "cache/cache.h"
#include "engine/draft_worth.h"
#include "engine/drafter.h"

typedef struct pi__drafting {
    pi__drafter *of[PI__N_SPEC]; /* by PI__SPEC_*; NULL: the engine has it not */
    pi__cache *cache;          /* the target's: room for drafts */
    int32_t n_least;           /* fewer drafts are not verified */
    bool adaptive;             /* how many are made depends on what they are worth */
    bool alike;                /* and is the same for all sequences, where a model drafts: see draft_worth.h */
    bool any;                  /* there is a drafter */
    pi__worth worth;           /* what is known about that */
    pi__seq **mine;            /* [max_seqs] the step's sequences that have the drafter that is called */
    pi__seq **wishing;         /* [max_seqs] those that could get drafts */
    uint64_t ns;               /* time that drafters took */
} pi__drafting;

int pi__drafting_init(pi__drafting *d, pi__cache *cache, int32_t max_seqs, int32_t n_least, bool adaptive, bool alike,
                      pi_error *err);
/* Bytes that init allocates. */
size_t pi__drafting_bytes(int32_t max_seqs);
void pi__drafting_add(pi__drafting *d, int kind, pi__drafter *drafter);
void pi__drafting_destroy(pi__drafting *d);

/* s has its row; s is about to give it back. */
void pi__drafts_start(pi__drafting *d, pi__seq *s);
void pi__drafts_forget(pi__drafting *d, pi__seq *s);
/* The step computed b of seq[b->n_seqs]; before sampling. */
int pi__drafts_catch_up(pi__drafting *d, const pi__batch *b, pi__seq *const *seq, pi_error *err);
/* Its tokens were sampled; those that ended are NULL. ms: what it took so far; prefill: it had tokens of prompts. Drafts for
 * all sequences that were sampled from and go on. */
int pi__drafts_make(pi__drafting *d, const pi__batch *b, pi__seq *const *seq, double ms, bool prefill, pi_error *err);

#endif
