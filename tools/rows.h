/* Arithmetic on a row of logits (the complete vocabulary), for `pagedinfer eval`.
 *
 * Every function is one or two passes that vectorize. On x86 the program selects the best of three builds of each
 * function at startup. Sums are in double, over blocks. Input may contain NaN: the result is then invalid, but nothing
 * fails. */
#ifndef PAGEDINFER_ROWS_H
#define PAGEDINFER_ROWS_H

#include <stddef.h>
#include <stdint.h>

typedef struct row_sum {
    float max;      /* largest logit */
    double log_sum; /* log(sum(exp(logit - max))): log p(i) = x[i] - max - log_sum */
} row_sum;
row_sum rows_sum(const float *x, size_t n);

/* Returns the index of the largest value; the first one if several are equal. */
size_t rows_argmax(const float *x, size_t n);

/* A row of a base-logits file: log-probabilities of the base model as 16-bit values, scale * q + min (see
 * eval_kl.c). */
typedef struct row_q16 {
    float scale, min;  /* dequantization parameters */
    const uint16_t *q; /* [n] */
} row_q16;

/* Stores the log-probabilities of x in q[n] as 16-bit steps, like llama-perplexity; returns their scale and minimum.
 * s: the result of rows_sum for x. Values more than 16 below the largest become step 0. */
row_q16 rows_quantise(const float *x, size_t n, row_sum s, uint16_t *q);
/* Returns the KL divergence of x from base: the sum of p_base(i) * (log p_base(i) - log p(i)) over tokens with log
 * p_base > -16. s: the result of rows_sum. */
double rows_kl(const float *x, size_t n, row_sum s, row_q16 base);
size_t rows_argmax_q16(const uint16_t *q, size_t n);

#endif
