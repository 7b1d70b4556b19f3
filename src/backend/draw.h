/* How a token is drawn from a row of logits, or the largest values that op topk finds in it: by sampler and devices alike. */
#ifndef PI__DRAW_H
#define PI__DRAW_H

#include <stdbool.h>
#include <stdint.h>

/* Tokens of one row that penalties look back at, at most: where a row's PI__MAX_TOP largest values were found and so many of them
 * are lowered, as many again are still the largest. And how one of them is told: its id, and how often it was there. */
enum { PI__MAX_SEEN = 128, PI__SEEN_BITS = 24 /* of the id */ };
#define PI__SEEN(id, count) ((uint32_t) (id) | (uint32_t) (count) << PI__SEEN_BITS)

/* The values found, or all of the row, go through penalties, top-k, top-p, min-p and temperature, in this order, and a random number
 * chooses among what is left, in the order of ids. Words of 4 bytes, to lie in arrays of any. */
typedef struct pi__draw {
    uint32_t low, high; /* the random number: 53 bits, of 2^53 */
    float top_p;        /* 1: off */
    float log_min_p;    /* the logarithm; -inf: off */
    float temp;         /* 1: off; 0: the best value is the token, whatever is said of filters */
    float repeat, presence, frequency; /* penalties, none of which makes a token more likely */
    int32_t n_seen;     /* tokens that have them, as the host knows it */
    int32_t fed;        /* 1: and, once more, the token that the row is computed from */
    int32_t top_k;      /* values that are left of those with penalties; 0: all */
    int32_t row;        /* 1: there is no top-k, so it may be drawn from all of the row */
} pi__draw;

/* Of the rows of a step. */
typedef struct pi__draws {
    const pi__draw *row;  /* [n_rows] */
    const uint32_t *seen; /* [n_rows, PI__MAX_SEEN] PI__SEEN of the first n_seen of a row, in no order; NULL: no row has penalties */
    bool rows;            /* some have no top-k */
} pi__draws;

#endif
