/* Parameters for drawing a token from a logits row, or from the largest values that op topk found in it. Shared by
 * sampler and devices. */
#ifndef PI__DRAW_H
#define PI__DRAW_H

#include <stdbool.h>
#include <stdint.h>

/* Max tokens per row that penalties look back at. Penalties lower at most this many of the PI__MAX_TOP values
 * found in a row, so that at least as many are still the largest. PI__SEEN packs one of these tokens: its id and its
 * number of occurrences. */
enum { PI__MAX_SEEN = 128, PI__SEEN_BITS = 24 /* bits of the id */ };
#define PI__SEEN(id, count) ((uint32_t) (id) | (uint32_t) (count) << PI__SEEN_BITS)

/* One draw. The values found, or all values of the row, pass through penalties, top-k, top-p, min-p and
 * temperature, in this order. A random number then selects one of the remaining values, in the order of ids. All
 * fields are 4-byte words, so that an array of draws can lie in any array of words. */
typedef struct pi__draw {
    uint32_t low, high; /* the random number: 53 bits, a fraction of 2^53 */
    float top_p;        /* 1 = disabled */
    float log_min_p;    /* the logarithm of min-p; -inf = disabled */
    float temp;         /* 1 = disabled; 0 = greedy: the best value is the token, filters are ignored */
    float repeat, presence, frequency; /* penalties; none makes a token more likely */
    int32_t n_seen;     /* tokens with penalties, as known to the host */
    int32_t fed;        /* 1 = penalize also, once more, the token that the row is computed from */
    int32_t top_k;      /* number of values that remain after penalties; 0 = all */
    int32_t row;        /* 1 = no top-k: the token may be drawn from the full row */
} pi__draw;

/* The draws of a step's rows. */
typedef struct pi__draws {
    const pi__draw *row;  /* [n_rows] */
    /* [n_rows, PI__MAX_SEEN] PI__SEEN of the first n_seen tokens of a row, unordered; NULL = no row has penalties. */
    const uint32_t *seen;
    bool rows;            /* some rows have no top-k */
} pi__draws;

#endif
