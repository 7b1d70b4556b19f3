/* How many drafts are worth what they cost: more rows make a step longer, right drafts save steps.
 *
 *     rate(k) = tokens that a step with these k drafts is expected to give / milliseconds that it takes, drafting included
 *
 * Tokens: a draft is right with a probability that is learnt from those of late, of the sequence and, where it has few, of all
 * that have the same drafter, by how much the drafter itself makes of it (its level); the one behind it if both are. Time: a
 * table of what steps took that only decoded, by the number of their sequences and rows, filled by the steps themselves; what
 * was not seen yet is taken to be cheap, so that it is tried. Drafts are taken in the order of their probability, of all
 * sequences together, as long as the rate grows; where every sequence's own row costs as much as a draft's (a full batch) that
 * is none.
 *
 * What is learnt may be wrong, and trying costs. So each drafter has an account of what its drafts took and what they saved: with
 * more than a few steps' time lost it drafts nothing until a small part of the time that goes by has made up for it, which is
 * all that is lost in the end, whatever the text. Prompts that a drafting model computes once more are bought on credit, where
 * what it is expected to save in an answer pays for them; while too much of that is owed, only one that has proven itself may.
 *
 * How many are drafted never changes a token. Memory: none beside the struct. Only the step thread is here. */
#ifndef PI__DRAFT_WORTH_H
#define PI__DRAFT_WORTH_H

#include "engine/config.h"
#include "engine/seq.h"

enum { PI__WORTH_CLASSES = 14, PI__WORTH_ROWS = 80 };

typedef struct pi__worth_cell {
    float ms;                  /* mean of late */
    uint32_t n;                /* how many it is of, up to a few; 0: none */
    uint32_t last;             /* number of the last step that it is of */
} pi__worth_cell;

typedef struct pi__worth {
    pi__worth_cell step[PI__WORTH_CLASSES][PI__WORTH_ROWS]; /* by sequences and rows: see draft_worth.c */
    float pass_ms[PI__N_SPEC]; /* of a drafter: a draft of each of its sequences, or all their drafts (once); 0: not measured */
    float share[PI__N_SPEC];   /* part of a step that this is taken to be, as long as it was not measured; 0: nothing is known */
    bool once[PI__N_SPEC];     /* its pass gives all drafts of a sequence */
    float token_ms[PI__N_SPEC]; /* of a drafter: a token that it catches up with; 0: not measured */
    float lost[PI__N_SPEC];    /* ms that its drafts took more than they saved, less what they may; below 0: they saved */
    float owed[PI__N_SPEC];    /* ms that it took to catch up with prompts, which drafts have not saved yet */
    float answer;              /* tokens of an answer, a mean of late; 0: none has ended */
    int32_t n_seqs;            /* in the last step that decoded only */
    float tries[PI__N_SPEC][PI__DRAFT_LEVELS], hits[PI__N_SPEC][PI__DRAFT_LEVELS]; /* of all its sequences */
    uint32_t n_steps;          /* that decoded only */
} pi__worth;

/* A step in which n_seqs sequences decoded n_rows tokens, and nothing else was done, took ms without drafting. */
void pi__worth_step(pi__worth *w, int32_t n_seqs, int32_t n_rows, double ms);
/* n_passes passes over each of its sequences took a drafter ms. */
void pi__worth_drafting(pi__worth *w, int kind, int32_t n_passes, double ms);
/* It caught up with n tokens that it could have left alone; prompts: on credit. */
void pi__worth_caught_up(pi__worth *w, int kind, int32_t n, double ms, bool prompts);
/* In that step, the last one that worth_step was told of, n_drafts of its drafts were verified, of which n_right were right. */
void pi__worth_settle(pi__worth *w, int kind, int32_t n_seqs, int32_t n_rows, int32_t n_drafts, int32_t n_right);
/* An answer had n tokens. */
void pi__worth_ended(pi__worth *w, int32_t n);
/* It is worth while that the drafter of s, which gives up to n_max drafts, catches up with n tokens, as one that reads tokens. */
bool pi__worth_wants(const pi__worth *w, const pi__seq *s, int32_t n, int32_t n_max);
/* n drafts of s were verified; the first `right` were right. */
void pi__worth_verified(pi__worth *w, pi__seq *s, int32_t n, int32_t right);
/* Lowers n_wish of the n sequences, drafts that they could get, to what they should; n_seqs sequences decode in all. alike:
 * drafters that are models give each sequence as many, so that steps have shapes which were captured. */
void pi__worth_choose(pi__worth *w, pi__seq *const *seq, int32_t n, int32_t n_seqs, bool alike);

#endif
