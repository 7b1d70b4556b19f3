/* An n-gram index: finds earlier occurrences of the last n tokens of a text, like the match finder of LZ77
 * compressors.
 *
 *     tokens   7 3 5 9 2 7 3 5 8 1 7 3 5 .      n = 3, the last three are 7 3 5
 *     places         2       7       12          head[hash(7 3 5)] = 7, prev[7] = 2: before 12 they end at 7 and 2
 *
 * head has the last place of each hash. prev has the previous place with the same hash for each of the last `window`
 * places. Adding compares nothing; the search compares tokens. So a hash collision or an overwritten place only costs
 * time. A search looks at a few places, latest first, and returns the longest match. Adding a token and searching are
 * O(1). Memory: one allocation at init. One thread. */
#ifndef PI__NGRAMS_H
#define PI__NGRAMS_H

#include <stddef.h>
#include <stdint.h>

#include "pagedinfer.h"

enum { PI__MOST_MATCH = 64 /* max length of a match */ };

typedef struct pi__ngrams {
    int32_t *head;             /* [1 << bits] last place of each hash; -1 = none */
    int32_t *prev;             /* [window] place before place i, at i % window; -1 = none */
    int32_t window;            /* a power of two */
    int32_t bits;              /* bits of a hash */
    int32_t n;                 /* tokens per n-gram */
} pi__ngrams;

/* A text as a ring: token i is at token[i & mask]. */
typedef struct pi__text {
    const int32_t *token;
    const uint64_t *owner;     /* owner of token i at owner[i & mask]; NULL = the text has one owner */
    int32_t mask;              /* ring size - 1; INT32_MAX = no ring */
    int32_t first, end;        /* valid tokens are first..end */
} pi__text;

/* Initializes an index that remembers the last `most` tokens (rounded up to a power of two). */
int pi__ngrams_init(pi__ngrams *g, int32_t most, int32_t n, pi_error *err);
size_t pi__ngrams_bytes(int32_t most);
void pi__ngrams_destroy(pi__ngrams *g);
void pi__ngrams_clear(pi__ngrams *g);
/* Adds the n-gram that ends with token `at`. The text must have at least n tokens up to there. */
void pi__ngrams_add(pi__ngrams *g, const pi__text *t, int32_t at);
/* Finds the longest match for the end of last[0..n_last) in the tokens of `owner` in t. Returns the position of the
 * last token of the match; -1 = no match of at least n tokens. *length: tokens that match, at most PI__MOST_MATCH. */
int32_t pi__ngrams_find(const pi__ngrams *g, const pi__text *t, const int32_t *last, int32_t n_last, uint64_t owner,
                        int32_t *length);

#endif
