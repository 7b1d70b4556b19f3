/* The selector of a block drafter (DFlash2): chooses one of the top tokens of each row as its draft
 * (draft_select.c). */
#ifndef PI__DRAFT_SELECT_H
#define PI__DRAFT_SELECT_H

#include "model/model.h"
#include "sampler/sampler.h"

typedef struct pi__selector {
    pi__model *m;              /* the drafter */
    pi__backend *be;           /* runs it */
    int32_t n;                 /* max candidates per row */
    int32_t max_rows, max_tokens; /* capacity: logits rows per pass; tokens of a batch */
    /* [max_rows, 1 + n] token before the row, 0 if unknown; then its candidates, best first */
    int32_t *id;
    int32_t *n_found;          /* [max_rows] number of candidates */
    float *logit;              /* [max_rows, n] logit of each candidate */
    /* host_alloc: gates [max_rows, rank], then `before` and `after` [max_rows, 1 + n, rank] of id */
    float *vec;
} pi__selector;

/* Bytes that init allocates; 0 for a drafter without a selector. */
size_t pi__selector_bytes(const pi__model *m, int32_t max_rows);
int pi__selector_init(pi__selector *s, pi__model *m, pi__backend *be, int32_t max_rows, int32_t max_tokens,
                      pi_error *err);
void pi__selector_destroy(pi__selector *s);

/* Queues the copy of the gates of the last n logits rows; valid once finish has returned. */
void pi__selector_copy(pi__selector *s, int32_t n);
/* Stores the candidates of row r: from `top`, the op topk result with k = n, or if top is NULL from the logits `row`.
 * before: the token before the row, -1 = a candidate of row r - 1. */
void pi__selector_row(pi__selector *s, int32_t r, const float *row, const pi__top *top, int32_t before);
/* Reads the vectors of all tokens of the first n rows. Waits for the device. */
int pi__selector_read(pi__selector *s, int32_t n, pi_error *err);
/* Returns the best candidate of row r after candidate `from` of row r - 1, from -1 = after the token given to
 * selector_row. -1: no candidate. *p: its probability among the candidates. */
int32_t pi__selector_best(const pi__selector *s, int32_t r, int32_t from, double *p);
/* Returns the token of a candidate of row r. */
int32_t pi__selector_token(const pi__selector *s, int32_t r, int32_t candidate);

#endif
