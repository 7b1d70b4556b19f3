/* Drafting: assigns drafters (drafter.h) to sequences and chooses the number of drafts, see drafting.c.
 *
 * Borrowed: the cache. Owned: the drafters given to it. Memory: allocated at init. Step thread only. */
#ifndef PI__DRAFTING_H
#define PI__DRAFTING_H

#include "cache/cache.h"
#include "engine/draft_worth.h"
#include "engine/drafter.h"

typedef struct pi__drafting {
    pi__drafter *of[PI__N_SPEC]; /* by PI__SPEC_*; NULL = not available in this engine */
    pi__cache *cache;          /* the target's cache, to reserve blocks for drafts */
    int32_t n_min;           /* min drafts per sequence and step; fewer drafts are dropped */
    bool adaptive;             /* choose the number of drafts by expected gain */
    bool alike;                /* on a device: the same number for all sequences of model drafters (draft_worth.h) */
    bool any;                  /* there is at least one drafter */
    double (*clock)(void);     /* milliseconds, measures costs */
    pi__worth worth;           /* estimates of gain */
    /* [max_seqs] by index in the batch: the sequence if it has the drafter that is called, else NULL */
    pi__seq **mine;
    pi__seq **wishing;         /* [max_seqs] sequences that were offered drafts */
    uint64_t ns;               /* total time of drafters, ns */
} pi__drafting;

int pi__drafting_init(pi__drafting *d, pi__cache *cache, int32_t max_seqs, int32_t n_min, bool adaptive, bool alike,
                      pi_error *err);
/* Bytes that init allocates. */
size_t pi__drafting_bytes(int32_t max_seqs);
void pi__drafting_add(pi__drafting *d, int kind, pi__drafter *drafter);
void pi__drafting_destroy(pi__drafting *d);

/* Notifies the drafter of s. Call start when s has its row, and forget before s releases it. */
void pi__drafts_start(pi__drafting *d, pi__seq *s);
void pi__drafts_forget(pi__drafting *d, pi__seq *s);
/* Lets the drafters catch up with step b of the sequences seq[b->n_seqs]. Call after the step was computed and before
 * sampling. */
int pi__drafts_catch_up(pi__drafting *d, const pi__batch *b, pi__seq *const *seq, pi_error *err);
/* Records the outcome of the step's drafts, then makes drafts for all sequences that were sampled and continue. Call
 * after sampling; ended sequences are NULL. ms: time of the step so far; prefill: the step had prompt tokens. */
int pi__drafts_make(pi__drafting *d, const pi__batch *b, pi__seq *const *seq, double ms, bool prefill, pi_error *err);

#endif
