/* Where a text has the n tokens that it ends with before: an index of its n-grams, as compressors (LZ77) have it.
 *
 *     tokens   7 3 5 9 2 7 3 5 8 1 7 3 5 .      n = 3, the last three are 7 3 5
 *     places         2       7       12          head[hash(7 3 5)] = 7, prev[7] = 2: before 12 they ended at 7 and at 2
 *
 * head has the last place of each hash, prev the one before it of each place, for the last `window` places. Nothing is compared
 * when tokens come in; who searches compares, so that a hash that is another's, or a place that was overwritten, only costs
 * time. A few places are looked at, the latest first, and the one before which most is the same wins. Adding a token is O(1),
 * searching is O(1). Memory: one allocation at init. One thread. */
#ifndef PI__NGRAMS_H
#define PI__NGRAMS_H

#include <stddef.h>
#include <stdint.h>

#include "pagedinfer.h"

enum { PI__MOST_MATCH = 64 /* tokens that are compared at most */ };

typedef struct pi__ngrams {
    int32_t *head;             /* [1 << bits] the last place of each hash; -1: none */
    int32_t *prev;             /* [window] of place i at i % window; -1: none */
    int32_t window;            /* a power of two */
    int32_t bits;              /* of a hash */
    int32_t n;                 /* tokens an n-gram */
} pi__ngrams;

/* A text: token i is at token[i & mask]; owner[i & mask], where there are several in it, says whose; NULL: one. */
typedef struct pi__text {
    const int32_t *token;
    const uint64_t *owner;
    int32_t mask;              /* INT32_MAX: none */
    int32_t first, end;        /* tokens that are there */
} pi__text;

/* For texts of which the last `most` tokens are remembered (rounded up to a power of two). */
int pi__ngrams_init(pi__ngrams *g, int32_t most, int32_t n, pi_error *err);
size_t pi__ngrams_bytes(int32_t most);
void pi__ngrams_destroy(pi__ngrams *g);
void pi__ngrams_clear(pi__ngrams *g);
/* The n-gram that ends with token `at` of the text, which has at least n up to there. */
void pi__ngrams_add(pi__ngrams *g, const pi__text *t, int32_t at);
/* Last token of the part of text t that is most like the end of last[0..n_last), of owner; -1: there is none of at least n
 * tokens. *length: tokens that are the same, at most PI__MOST_MATCH. */
int32_t pi__ngrams_find(const pi__ngrams *g, const pi__text *t, const int32_t *last, int32_t n_last, uint64_t owner,
                        int32_t *length);

#endif
