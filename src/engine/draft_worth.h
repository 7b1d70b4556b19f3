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
 * A draft model must compute prompts once more. This time is charged on credit, against the expected saving in the
 * answer. While a drafter owes too much, it gets credit only if it has proven itself.
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
    /* Mean time of a drafter's pass, ms. A pass makes one draft for each of the drafter's sequences, or with `once` all
     * drafts of each; 0 = not measured. */
    float pass_ms[PI__N_SPEC];
    float share[PI__N_SPEC];   /* assumed time of a pass as a fraction of a step, until measured; 0 = unknown */
    bool once[PI__N_SPEC];     /* one pass makes all drafts of a sequence */
    float token_ms[PI__N_SPEC]; /* mean time in which a drafter catches up with one token, ms; 0 = not measured */
    /* ms that drafts cost more than they saved, less the allowance; negative = they saved */
    float lost[PI__N_SPEC];
    /* ms spent on catching up with prompts, less the time that accepted drafts have saved since */
    float owed[PI__N_SPEC];
    float answer;              /* recent mean of tokens per answer; 0 = no answer has ended */
    int32_t n_seqs;            /* sequences of the last decode-only step */
    /* Drafts checked, and drafts accepted, of all sequences of a drafter, decayed. */
    float tries[PI__N_SPEC][PI__DRAFT_LEVELS], hits[PI__N_SPEC][PI__DRAFT_LEVELS];
    uint32_t n_steps;          /* decode-only steps */
} pi__worth;

/* Adds a decode-only step to the table of step times: n_seqs sequences, n_rows tokens, ms without drafting. */
void pi__worth_step(pi__worth *w, int32_t n_seqs, int32_t n_rows, double ms);
/* Charges a drafter ms for n_passes passes over its sequences, and updates its mean time of a pass. */
void pi__worth_drafting(pi__worth *w, int kind, int32_t n_passes, double ms);
/* Charges a drafter ms for catching up with n tokens, and updates its mean time per token. prompts: the time counts as
 * credit (`owed`) instead of loss (`lost`). */
void pi__worth_caught_up(pi__worth *w, int kind, int32_t n, double ms, bool prompts);
/* Settles the account of a drafter after a step: charges the time of n_drafts draft rows, and credits the time that
 * n_right accepted drafts saved. n_seqs, n_rows: of the step, as in pi__worth_step. */
void pi__worth_settle(pi__worth *w, int kind, int32_t n_seqs, int32_t n_rows, int32_t n_drafts, int32_t n_right);
/* Updates the mean length of answers with one of n tokens. */
void pi__worth_ended(pi__worth *w, int32_t n);
/* True if the drafter of s is expected to save more time than it takes to catch up with n tokens. n_max: max drafts
 * per step. Only for drafters that read all tokens. */
bool pi__worth_wants(const pi__worth *w, const pi__seq *s, int32_t n, int32_t n_max);
/* Updates the acceptance statistics of s and of its drafter: of n drafts of s, the first `right` were accepted. */
void pi__worth_verified(pi__worth *w, pi__seq *s, int32_t n, int32_t right);
/* Lowers n_wish of the n sequences from the offered to the profitable number of drafts, and stores the offered one in
 * spec.n_offer. n_seqs: decoding sequences of the step, with or without drafter. alike: give all sequences of model
 * drafters the same number, so that steps have shapes that were captured. */
void pi__worth_choose(pi__worth *w, pi__seq *const *seq, int32_t n, int32_t n_seqs, bool alike);

#endif
