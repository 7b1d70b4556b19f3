/* Limits the prefill tokens of a step, and the work on images between two steps, while other sequences decode: option
 * step-target-ms.
 *
 * Model of a step's time: the time of its decoding sequences plus a constant time per prefill token. Both are running
 * averages of measured steps, so longer contexts and a busier machine reduce the prefill part. The limit affects only
 * the chunk sizes of prompts, never a computed value.
 *
 *     | decode | prefill |  image  | decode | prefill |  image  |     target = time from one decode to the next
 *
 * A part of an image follows the step and gets the rest of the target. Its time is its work times a running average.
 * If an image is being encoded, prefill gets half of its time. Memory: none. Step thread only. */
#ifndef PI__PACE_H
#define PI__PACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pi__pace {
    double target_ms;          /* target time of a step, ms; 0 = no limit */
    double decode_ms;          /* time of a step without prefill, ms; 0 = not measured yet */
    double token_ms;           /* time per prefill token, ms; 0 = not measured yet */
    double image_ms;           /* time per multiply-add of an image, ms; 0 = not measured yet */
} pi__pace;

/* Updates the averages with a step of n_prefill prefill tokens and n_decode other tokens that took ms. */
void pi__pace_measure(pi__pace *p, int32_t n_prefill, int32_t n_decode, double ms);
/* Returns the max prefill tokens of a step that also decodes, at least 8; 0 = no limit. encodes: an image is being
 * encoded between the steps. */
int32_t pi__pace_limit(const pi__pace *p, bool encodes);
/* Updates the average of images with a part of this work (multiply-adds) that took ms. */
void pi__pace_measure_image(pi__pace *p, double work, double ms);
/* Returns the max work of the next part of an image after a step of step_ms that decoded, at least 1, which is an
 * encoder's smallest part; 0 = no limit. */
double pi__pace_image_limit(const pi__pace *p, double step_ms);

#endif
