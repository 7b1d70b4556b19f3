/* Parameters for drawing a token from a logits row, or from the row's largest values as op topk found them. Used by the
 * sampler and by devices. */
#ifndef PI__DRAW_H
#define PI__DRAW_H

#include <stdbool.h>
#include <stdint.h>

/* PI__MAX_SEEN: max tokens per row that penalties apply to. So at least PI__MAX_TOP - PI__MAX_SEEN of the PI__MAX_TOP
 * values that topk finds keep their value, and are the largest after penalties. PI__SEEN packs one of these tokens: its
 * id and its number of occurrences. */
enum { PI__MAX_SEEN = 128, PI__SEEN_BITS = 24 /* bits of the id */ };
#define PI__SEEN(id, count) ((uint32_t) (id) | (uint32_t) (count) << PI__SEEN_BITS)

/* One draw. The values that topk found, or all values of the row, pass through penalties, top-k, top-p, min-p and
 * temperature, in this order. The random number then selects one of the remaining values, in the order of ids. All
 * fields are 4-byte words, so that an array of draws can lie in any array of words. */
typedef struct pi__draw {
    uint32_t low, high; /* the random number as a fraction of 2^53: its low 32 bits, its high 21 bits */
    float top_p;        /* 1 = disabled */
    float log_min_p;    /* natural logarithm of min-p; -inf = disabled */
    /* temperature; 1 = disabled; 0 = greedy: the largest value is the token, and filters are ignored */
    float temp;
    /* repeat, presence and frequency penalty; none of them makes a token more likely */
    float repeat, presence, frequency;
    int32_t n_seen;     /* number of tokens in pi__draws.seen for this row */
    /* 1 = count one more occurrence of the token that the row is computed from; only the device knows it */
    int32_t fed;
    int32_t top_k;      /* number of largest values that remain after penalties; 0 = all that were found */
    int32_t row;        /* 1 = no top-k: the draw is from all values of the row */
} pi__draw;

/* The draws of a step's rows. */
typedef struct pi__draws {
    const pi__draw *row;  /* [n_rows] */
    /* [n_rows, PI__MAX_SEEN] the first n_seen entries of a row are PI__SEEN words, unordered; NULL = no row has
     * penalties. */
    const uint32_t *seen;
    bool rows;            /* some draw has `row` set */
} pi__draws;

#endif
