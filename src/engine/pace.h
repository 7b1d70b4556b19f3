/* Limits the prefill tokens of a step while other sequences decode: option step-target-ms.
 *
 * Model of a step's time: the time of its decoding sequences plus a constant time per prefill token. Both are running
 * averages of measured steps, so longer contexts and a busier machine reduce the prefill part. The limit affects only
 * the chunk sizes of prompts, never a computed value. Memory: none. Step thread only. */
#ifndef PI__PACE_H
#define PI__PACE_H

#include <stdint.h>

typedef struct pi__pace {
    double target_ms;          /* target time of a step, ms; 0 = no limit */
    double decode_ms;          /* time of a step without prefill, ms; 0 = not measured yet */
    double token_ms;           /* time per prefill token, ms; 0 = not measured yet */
} pi__pace;

/* Updates the averages with a step of n_prefill prefill tokens and n_decode other tokens that took ms. */
void pi__pace_measure(pi__pace *p, int32_t n_prefill, int32_t n_decode, double ms);
/* Returns the max prefill tokens of a step that also decodes, at least 8; 0 = no limit. */
int32_t pi__pace_limit(const pi__pace *p);

#endif
