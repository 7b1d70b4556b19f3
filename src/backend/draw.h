/* How a token is drawn from the largest values that op topk finds in a row of logits: by sampler and devices alike. */
#ifndef PI__DRAW_H
#define PI__DRAW_H

#include <stdint.h>

/* The values found, best first, go through top-p, min-p and temperature, in this order, and a random number chooses among what
 * is left. Words of 4 bytes, to lie in arrays of any. */
typedef struct pi__draw {
    uint32_t low, high; /* the random number: 53 bits, of 2^53 */
    float top_p;        /* 1: off */
    float log_min_p;    /* the logarithm; -inf: off */
    float temp;         /* 1: off; 0: the best value is the token, whatever else is said here */
} pi__draw;

#endif
