/* Drafts: a small model guesses the tokens that follow (drafting.c says how), and the next step verifies them.
 *
 * Borrowed: the drafter, the cache, and the rows that the drafter's logits go to. Owned: the batch that it runs. Memory: all
 * of it at init. Only the step thread is here. */
#ifndef PI__DRAFTING_H
#define PI__DRAFTING_H

#include "engine/batch.h"
#include "engine/rows.h"
#include "engine/seq.h"
#include "model/model.h"

typedef struct pi__drafting {
    pi__model *drafter;        /* NULL: no drafting, and nothing below is used */
    pi__backend *be;           /* where it runs */
    pi__cache *cache;          /* of keys and values, its own included */
    pi__rows *rows;            /* for its logits */
    pi__batch_builder batch;   /* what it runs */
    int32_t *hidden;           /* [max_tokens] the batch's hidden_row */
    pi__seq **seq;             /* [max_seqs] sequence of each row of its batch */
} pi__drafting;

/* shape: of its batch, without rows. */
int pi__drafting_init(pi__drafting *d, pi__model *drafter, pi__backend *be, pi__cache *cache, pi__rows *rows,
                      const pi__batch_shape *shape, pi_error *err);
/* Bytes that init allocates, where there is a drafter. */
size_t pi__drafting_bytes(const pi__batch_shape *shape);
void pi__drafting_destroy(pi__drafting *d);

/* Runs the drafter over all but the last token of each sequence of the step, b of seq[b->n_seqs], where it has a cache;
 * before sampling. */
int pi__drafts_catch_up(pi__drafting *d, const pi__batch *b, pi__seq *const *seq, pi_error *err);
/* Drafts for all sequences of the step that were sampled from and go on (those that ended are NULL). */
int pi__drafts_make(pi__drafting *d, const pi__batch *b, pi__seq *const *seq, pi_error *err);

#endif
