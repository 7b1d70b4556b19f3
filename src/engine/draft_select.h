/* The selector of a drafter of blocks (DFlash2): which of the best tokens of each row are its drafts (draft_select.c). */
#ifndef PI__DRAFT_SELECT_H
#define PI__DRAFT_SELECT_H

#include "model/model.h"
#include "sampler/sampler.h"

typedef struct pi__selector {
    pi__model *m;              /* the drafter */
    pi__backend *be;           /* where it runs */
    int32_t n;                 /* candidates of a row at most */
    int32_t max_rows, max_tokens; /* at hand; of a batch */
    int32_t *id;               /* [max_rows, 1 + n] the token before a row, where it is known; its candidates, best first */
    int32_t *n_found;          /* [max_rows] those there are */
    float *logit;              /* [max_rows, n] of each */
    float *vec;                /* host_alloc: [max_rows, rank] gates, and of all of id [max_rows, 1 + n, rank] before, after */
} pi__selector;

/* Bytes that init allocates; 0 for a drafter that has none. */
size_t pi__selector_bytes(const pi__model *m, int32_t max_rows);
int pi__selector_init(pi__selector *s, pi__model *m, pi__backend *be, int32_t max_rows, int32_t max_tokens, pi_error *err);
void pi__selector_destroy(pi__selector *s);

/* Queues the copy of the gates of the last n rows of logits; they are there when finish has returned. */
void pi__selector_copy(pi__selector *s, int32_t n);
/* The candidates of row r: of what op topk found of it with k = n, or with top NULL of the row itself. before: the token before
 * it, -1: it is a candidate of row r - 1. */
void pi__selector_row(pi__selector *s, int32_t r, const float *row, const pi__top *top, int32_t before);
/* Waits for the vectors of all tokens of the first n rows. */
int pi__selector_read(pi__selector *s, int32_t n, pi_error *err);
/* The best candidate of row r behind candidate `from` of row r - 1, or with -1 behind the token that was given; -1: there is
 * none. *p: how probable it is among the candidates. */
int32_t pi__selector_best(const pi__selector *s, int32_t r, int32_t from, double *p);
/* The token that it is. */
int32_t pi__selector_token(const pi__selector *s, int32_t r, int32_t candidate);

#endif
