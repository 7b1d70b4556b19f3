/* Arithmetic on a row of logits (a whole vocabulary), for `pagedinfer eval`.
 *
 * Every function is one or two passes that vectorise; on x86 the best of three builds of each is chosen as the program
 * starts. Sums are in double over blocks. Rows may hold anything: NaN spoils a result, never the program. */
#ifndef PAGEDINFER_ROWS_H
#define PAGEDINFER_ROWS_H

#include <stddef.h>
#include <stdint.h>

typedef struct row_sum {
    float max;      /* largest logit */
    double log_sum; /* log(sum(exp(logit - max))): log p(i) = x[i] - max - log_sum */
} row_sum;
row_sum rows_sum(const float *x, size_t n);

/* Index of the largest value, the first of equal ones. */
size_t rows_argmax(const float *x, size_t n);

/* A row of a base-logits file: log-probabilities of the base model in 16 bits, scale * q + min (see eval_kl.c). */
typedef struct row_q16 {
    float scale, min;  /* of the log-probabilities */
    const uint16_t *q; /* [n] */
} row_q16;

/* Quantises x (rows_sum's result given) as llama-perplexity does: what is more than 16 below the best becomes 0. */
row_q16 rows_quantise(const float *x, size_t n, row_sum s, uint16_t *q);
/* sum p_base(i) * (log p_base(i) - log p(i)) over the tokens with log p_base > -16. */
double rows_kl(const float *x, size_t n, row_sum s, row_q16 base);
size_t rows_argmax_q16(const uint16_t *q, size_t n);

#endif
