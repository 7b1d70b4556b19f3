/* The selector of a block drafter (DFlash2): chooses one of the top tokens of each row as its draft
 * (draft_select.c). */
#ifndef PI__DRAFT_SELECT_H
#define PI__DRAFT_SELECT_H

#include "model/model.h"
#include "sampler/sampler.h"

typedef struct pi__selector {
    pi__model *m;              /* the drafter */
    pi__backend *be;           /* runs the drafter model */
    int32_t n;                 /* max candidates per row */
    int32_t max_rows, max_tokens; /* capacity: logits rows per pass; tokens of a batch */
    /* [max_rows, 1 + n] token ids: the token before the row, 0 if unknown; then the row's candidates, best first */
    int32_t *id;
    int32_t *n_found;          /* [max_rows] number of candidates */
    float *logit;              /* [max_rows, n] logit of each candidate */
    /* memory from host_alloc: gate vectors [max_rows, rank], then the vectors `before` and the vectors `after` of the
     * tokens in id, [max_rows, 1 + n, rank] each */
    float *vec;
} pi__selector;

/* Bytes that init allocates; 0 for a drafter without a selector. */
size_t pi__selector_bytes(const pi__model *m, int32_t max_rows);
int pi__selector_init(pi__selector *s, pi__model *m, pi__backend *be, int32_t max_rows, int32_t max_tokens,
                      pi_error *err);
void pi__selector_destroy(pi__selector *s);

/* Queues the copy to the host of the gate vectors of the n logits rows computed last. They are valid once the device's
 * finish has returned. */
void pi__selector_copy(pi__selector *s, int32_t n);
/* Stores the candidates of row r: from `top`, the op topk result with k = n, or if top is NULL from the logits `row`.
 * before: the token before the row, -1 = a candidate of row r - 1. */
void pi__selector_row(pi__selector *s, int32_t r, const float *row, const pi__top *top, int32_t before);
/* Looks up the vectors `before` and `after` of all tokens of the first n rows on the device, and copies them to the
 * host. Waits for the device. */
int pi__selector_read(pi__selector *s, int32_t n, pi_error *err);
/* Returns the best candidate of row r after candidate `from` of row r - 1, from -1 = after the token given to
 * selector_row. -1: no candidate. *p: probability of the result among the candidates of the row. */
int32_t pi__selector_best(const pi__selector *s, int32_t r, int32_t from, double *p);
/* Returns the token of a candidate of row r. */
int32_t pi__selector_token(const pi__selector *s, int32_t r, int32_t candidate);

#endif
