/* The interface of a drafter: it guesses the next tokens of sequences. drafting.c calls each drafter; the next step
 * verifies the guesses of all of them.
 *
 *     a step has run      ->  catch_up   computes the step's tokens in drafters that need every token.
 *     it was sampled      ->  verify     reports the accepted drafts.
 *                         ->  offer      returns the number of possible drafts, profitable or not.
 *                         ->  draft      writes the chosen number of drafts after the tokens of each sequence.
 *     the row is released ->  forget     drops the drafter's state of the sequence.
 *
 * A drafter sees only the sequences that chose it. Its state of a sequence is in pi__seq_spec, or in its own memory
 * by the row of the sequence. Drafts never change a token: a rejected draft only costs time. Memory: allocated at
 * init, nothing while steps run. Step thread only. */
#ifndef PI__DRAFTER_H
#define PI__DRAFTER_H

#include "backend/ops.h"
#include "engine/seq.h"

typedef struct pi__drafter pi__drafter;

/* offer, draft and destroy are required, the others may be NULL. seq[b->n_seqs] are the sequences of the step; NULL =
 * the sequence has ended, or has another drafter or none. */
typedef struct pi__drafter_fns {
    /* Called when s has got a row; the first n_computed tokens of s were found in the cache. */
    void (*start)(pi__drafter *d, pi__seq *s);
    /* Called after step b, before sampling; b computed n_new tokens of each sequence from position n_computed on. */
    int (*catch_up)(pi__drafter *d, const pi__batch *b, pi__seq *const *seq, pi_error *err);
    /* Called after sampling: the drafts of s at positions below n_computed were accepted. */
    void (*verify)(pi__drafter *d, pi__seq *s);
    /* Returns the number of drafts that the drafter can make for s, at most `most`; sets s->spec.level. Must be
     * cheap. */
    int32_t (*offer)(pi__drafter *d, pi__seq *s, int32_t most);
    /* Writes up to s->n_wish drafts (may be 0) to tokens after n_tokens and counts them in n_draft, for each
     * sequence. */
    int (*draft)(pi__drafter *d, const pi__batch *b, pi__seq *const *seq, pi_error *err);
    /* Called before s releases its row. */
    void (*forget)(pi__drafter *d, pi__seq *s);
    void (*destroy)(pi__drafter *d);
} pi__drafter_fns;

struct pi__drafter {
    const pi__drafter_fns *fns; /* functions */
    int32_t n_max;              /* max drafts per sequence and step */
    float share;                /* assumed time of a pass as a fraction of a step, until measured; 0 = unknown */
    bool once;                  /* one pass makes all drafts of a sequence; false = one draft */
    bool asks;                  /* true = catches up only with sequences that have spec.wanted */
    int32_t n_caught;           /* tokens computed late by the last catch_up: earlier steps had skipped them */
};

/* True if a drafter that reads the target's hidden states should skip the step's tokens of s, since s got no drafts
 * for a while. The drafter uses zeros for hidden states that it skipped. Keys and values of skipped tokens are
 * written later or never. A prefix that s leaves may have stale ones; this only lowers the acceptance of drafts that
 * were not worth much. */
static inline bool pi__drafter_rests(const pi__seq *s)
{
    enum { IDLE = 4 /* steps */ };
    return s->spec.n_idle > IDLE && s->n_computed >= s->n_prompt;
}

#endif
