/* Chooses how many drafts to verify: more rows make a step slower, accepted drafts save steps.
 *
 *     rate(k) = expected tokens of a step with these k drafts / milliseconds of the step, drafting included
 *
 * Tokens: the acceptance probability of a draft is learnt from recent drafts of the sequence. With few samples,
 * recent drafts of all sequences with the same drafter count. The probability is learnt separately for each
 * confidence level of the drafter (spec.level). A later draft is accepted only if all before it are.
 *
 * Time: a table of measured times of decode-only steps, by number of sequences and rows, filled by the steps
 * themselves. Unmeasured sizes are assumed to be cheap, so that they are tried.
 *
 * Drafts of all sequences are taken in order of probability while the rate grows. In a full batch, where a draft's
 * row costs as much as a sequence's own row, no draft is taken.
 *
 * The estimates may be wrong, and trying costs time. So each drafter has an account of the time that its drafts cost
 * and saved. A drafter that has lost more than the time of a few steps pauses. A small part of the passing time
 * repays the loss, then it drafts again. This part bounds the total loss for any text.
 *
 * A draft model must compute prompts once more. This is bought on credit, against the expected saving in the answer.
 * While a drafter owes too much, it gets credit only if it has proven itself.
 *
 * The number of drafts never changes a token. Memory: the struct only. Step thread only. */
#ifndef PI__DRAFT_WORTH_H
#define PI__DRAFT_WORTH_H

#include "engine/config.h"
#include "engine/seq.h"

enum { PI__WORTH_CLASSES = 14, PI__WORTH_ROWS = 80 };

typedef struct pi__worth_cell {
    float ms;                  /* mean of recent samples */
    uint32_t n;                /* samples of the mean, saturating; 0 = empty */
    uint32_t last;             /* number of the last sampled step */
} pi__worth_cell;

typedef struct pi__worth {
    /* by class of sequences and cell of rows: see draft_worth.c */
    pi__worth_cell step[PI__WORTH_CLASSES][PI__WORTH_ROWS];
    /* Time of a drafter's pass, ms: one draft for each of its sequences, or with `once` all of them; 0 = not
     * measured. */
    float pass_ms[PI__N_SPEC];
    float share[PI__N_SPEC];   /* assumed part of a step that a pass takes, until measured; 0 = unknown */
    bool once[PI__N_SPEC];     /* one pass gives all drafts of a sequence */
    float token_ms[PI__N_SPEC]; /* time of a drafter to catch up with one token, ms; 0 = not measured */
    /* ms that drafts cost more than they saved, less the allowance; negative = they saved */
    float lost[PI__N_SPEC];
    float owed[PI__N_SPEC];    /* ms spent on catching up with prompts that drafts have not saved yet */
    float answer;              /* recent mean of tokens per answer; 0 = no answer has ended */
    int32_t n_seqs;            /* sequences of the last decode-only step */
    /* Drafts checked, and drafts accepted, of all sequences of a drafter, decayed. */
    float tries[PI__N_SPEC][PI__DRAFT_LEVELS], hits[PI__N_SPEC][PI__DRAFT_LEVELS];
    uint32_t n_steps;          /* decode-only steps */
} pi__worth;

/* Records a decode-only step: n_seqs sequences, n_rows tokens, ms without drafting. */
void pi__worth_step(pi__worth *w, int32_t n_seqs, int32_t n_rows, double ms);
/* Records the time of n_passes passes of a drafter over its sequences. */
void pi__worth_drafting(pi__worth *w, int kind, int32_t n_passes, double ms);
/* Records the time of catching up with n tokens that the drafter could have skipped. prompts: charge it as credit. */
void pi__worth_caught_up(pi__worth *w, int kind, int32_t n, double ms, bool prompts);
/* Charges the last step given to worth_step: n_drafts of this drafter were verified, n_right were accepted. */
void pi__worth_settle(pi__worth *w, int kind, int32_t n_seqs, int32_t n_rows, int32_t n_drafts, int32_t n_right);
/* Records an answer of n tokens. */
void pi__worth_ended(pi__worth *w, int32_t n);
/* True if it pays that the drafter of s (up to n_max drafts) catches up with n tokens; for drafters that read
 * tokens. */
bool pi__worth_wants(const pi__worth *w, const pi__seq *s, int32_t n, int32_t n_max);
/* Records the verification of n drafts of s; the first `right` were accepted. */
void pi__worth_verified(pi__worth *w, pi__seq *s, int32_t n, int32_t right);
/* Lowers n_wish of the n sequences from the possible to the profitable number of drafts. n_seqs: decoding sequences
 * in all. alike: give all sequences of model drafters the same number, so that steps have shapes that were
 * captured. */
void pi__worth_choose(pi__worth *w, pi__seq *const *seq, int32_t n, int32_t n_seqs, bool alike);

#endif
