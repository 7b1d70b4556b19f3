/* How many tokens of prompts a step may take while others stream: option step-target-ms.
 *
 * A step's time is taken as that of its decoding sequences plus so much for each token of prefill; both are averages of
 * what steps took, so that longer contexts and busier machines make the share of prompts smaller. Only how much of a prompt
 * a step takes depends on it, never a value that is computed. Memory: none. Only the step thread is here. */
#ifndef PI__PACE_H
#define PI__PACE_H

#include <stdint.h>

typedef struct pi__pace {
    double target_ms;          /* a step's, 0: no limit */
    double decode_ms;          /* of a step without prefill; 0: not measured yet */
    double token_ms;           /* of a token of prefill; 0: not measured yet */
} pi__pace;

/* A step with so many tokens of prefill, and so many others, took ms. */
void pi__pace_measure(pi__pace *p, int32_t n_prefill, int32_t n_decode, double ms);
/* Tokens of prefill that a step with others who decode may have; 0: no limit. */
int32_t pi__pace_limit(const pi__pace *p);

#endif
