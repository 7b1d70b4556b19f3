/* The interface of a drafter: it guesses the next tokens of sequences. drafting.c calls each drafter; the next step
 * verifies the guesses of all of them.
 *
 *     a step has run      ->  catch_up   lets drafters that need every token see the computed ones
 *     it was sampled      ->  verify     reports how many drafts were accepted
 *                         ->  offer      returns how many drafts it could give; their profit is not considered yet
 *                         ->  draft      writes the chosen number of drafts after the tokens of each sequence
 *     the row is released ->  forget
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
    /* s has its row; its first n_computed tokens were found in the cache. */
    void (*start)(pi__drafter *d, pi__seq *s);
    /* The step computed b: n_new tokens of each sequence from n_computed on. Called before sampling. */
    int (*catch_up)(pi__drafter *d, const pi__batch *b, pi__seq *const *seq, pi_error *err);
    /* Called after sampling: the drafts of s at positions below n_computed were accepted. */
    void (*verify)(pi__drafter *d, pi__seq *s);
    /* Returns the number of drafts that it could give s, at most `most`; sets s->spec.level. Must be cheap. */
    int32_t (*offer)(pi__drafter *d, pi__seq *s, int32_t most);
    /* Writes up to s->n_wish drafts (may be 0) to tokens after n_tokens and counts them in n_draft, for each
     * sequence. */
    int (*draft)(pi__drafter *d, const pi__batch *b, pi__seq *const *seq, pi_error *err);
    /* s is about to release its row. */
    void (*forget)(pi__drafter *d, pi__seq *s);
    void (*destroy)(pi__drafter *d);
} pi__drafter_fns;

struct pi__drafter {
    const pi__drafter_fns *fns; /* functions */
    int32_t n_max;              /* max drafts per sequence and step */
    float share;                /* assumed part of a step that a pass takes, until measured; 0 = unknown */
    bool once;                  /* one pass gives all drafts of a sequence; false = one draft */
    bool asks;                  /* catches up only with sequences that have spec.wanted */
    int32_t n_caught;           /* late tokens that it caught up with in the last step */
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
