/* What a drafter is: whoever guesses the tokens that follow. drafting.c asks them in turn; the step that comes verifies what
 * they guessed, whoever it was.
 *
 *     a step has run  ->  catch_up   what it computed, for drafters that have to see everything
 *     it was sampled  ->  verify     how many of the drafts were right
 *                     ->  offer      how many it could give, before anybody decides how many are worth it
 *                     ->  draft      that many, behind the tokens of each sequence
 *     the row goes    ->  forget
 *
 * A drafter sees the sequences that chose it and nothing of others. What it keeps of a sequence is in pi__seq_spec, or its own,
 * by the sequence's row. It never changes a token: what it guesses wrong costs time. Memory: all at init, nothing while steps
 * run. Only the step thread is here. */
#ifndef PI__DRAFTER_H
#define PI__DRAFTER_H

#include "backend/ops.h"
#include "engine/seq.h"

typedef struct pi__drafter pi__drafter;

/* Each may be NULL but offer, draft and destroy. seq[b->n_seqs] are the sequences of the step, NULL where one has ended or
 * has another drafter, or none. */
typedef struct pi__drafter_fns {
    /* s has its row; its first n_computed tokens were found in the cache. */
    void (*start)(pi__drafter *d, pi__seq *s);
    /* The step computed b, n_new tokens of each sequence from n_computed on; nothing was sampled yet. */
    int (*catch_up)(pi__drafter *d, const pi__batch *b, pi__seq *const *seq, pi_error *err);
    /* What was sampled is known: of the drafts of s, those before n_computed were right. */
    void (*verify)(pi__drafter *d, pi__seq *s);
    /* Drafts that it could give s, at most `most`; sets s->spec.level. Costs next to nothing. */
    int32_t (*offer)(pi__drafter *d, pi__seq *s, int32_t most);
    /* At most s->n_wish drafts into tokens behind n_tokens, n_draft of them, for each sequence; wishes may be 0. */
    int (*draft)(pi__drafter *d, const pi__batch *b, pi__seq *const *seq, pi_error *err);
    /* s is about to give its row back. */
    void (*forget)(pi__drafter *d, pi__seq *s);
    void (*destroy)(pi__drafter *d);
} pi__drafter_fns;

struct pi__drafter {
    const pi__drafter_fns *fns; /* what it does */
    int32_t n_max;              /* most drafts for a sequence in a step */
    float share;                /* part of a step that a pass is taken to cost before it was measured; 0: nothing is known */
    bool once;                  /* a pass gives all drafts of a sequence, else one of them */
    bool asks;                  /* it catches up with what is spec.wanted alone */
    int32_t n_caught;           /* tokens that it was late with and caught up with in the last step */
};

/* A drafter that reads the target's hidden states leaves the step's tokens of s for later, when it takes zeros for what it has not
 * seen: s has got no drafts for a while. Its keys and values of these tokens are not written until then, or never: a prefix that s
 * leaves may have other ones there, which costs guesses, where they were not worth much. */
static inline bool pi__drafter_rests(const pi__seq *s)
{
    enum { IDLE = 4 /* steps */ };
    return s->spec.n_idle > IDLE && s->n_computed >= s->n_prompt;
}

#endif
