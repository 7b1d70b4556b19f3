/* A picture: the resized pixels of one image, with its sizes. A request, the scheduler and the encoder share it.
 *
 * Memory: one allocation per picture, freed with the last reference. Threads: references may be taken and released on
 * any thread. The contents do not change after pi__picture_create. */
#ifndef PI__PICTURE_H
#define PI__PICTURE_H

#include <stdatomic.h>
#include <stddef.h>

#include "image/grid.h"

/* A part of a vision model's work on an image: a call of its function step. */
typedef struct pi__image_part {
    double max_work; /* in: max multiply-adds; the smallest part may have more. 0 = the model's own bound */
    double work;     /* out: multiply-adds of the part, an estimate that depends only on the image */
    bool done;       /* out: the rows of the image are complete */
} pi__image_part;

typedef struct pi__picture {
    atomic_int refs;       /* references; the last release frees the picture */
    pi__image_grid grid;   /* sizes in the model */
    uint8_t rgb[];         /* [grid.height, grid.width, 3] resized rows from top to bottom; red, green, blue */
} pi__picture;

/* Creates a picture with one reference from rgb [height, width, 3]. Computes the grid by pi__image_grid_of and resizes
 * the pixels to it, on the calling thread. Only the resized pixels are kept. Returns the errors of pi__image_grid_of,
 * or PI_ENOMEM. */
int pi__picture_create(pi__picture **out, const pi__image_rules *rules, uint32_t width, uint32_t height,
                       const uint8_t *rgb, uint32_t min_tokens, uint32_t max_tokens, pi_error *err);
/* Takes a reference, and returns p. */
pi__picture *pi__picture_ref(pi__picture *p);
/* Releases a reference. p may be NULL. */
void pi__picture_release(pi__picture *p);

#endif
