/* A picture: the pixels of one image of a request, with its sizes. A request, the scheduler and the encoder share it.
 *
 * Memory: one allocation per picture, freed with the last reference. Threads: references may be taken and released on
 * any thread. The contents do not change after pi__picture_create. */
#ifndef PI__PICTURE_H
#define PI__PICTURE_H

#include <stdatomic.h>
#include <stddef.h>

#include "image/grid.h"

typedef struct pi__picture {
    atomic_int refs;       /* references; the last release frees the picture */
    uint32_t width, height; /* pixels of rgb */
    pi__image_grid grid;   /* sizes in the model */
    uint8_t rgb[];         /* [height, width, 3] rows from top to bottom; red, green, blue */
} pi__picture;

/* Creates a picture with one reference: copies width * height * 3 bytes of rgb. The grid comes from pi__image_grid_of
 * with the same width and height. Returns PI_EINVAL for sizes that no grid accepts, or PI_ENOMEM. */
int pi__picture_create(pi__picture **out, uint32_t width, uint32_t height, const uint8_t *rgb,
                       const pi__image_grid *grid, pi_error *err);
/* Takes a reference, and returns p. */
pi__picture *pi__picture_ref(pi__picture *p);
/* Releases a reference. p may be NULL. */
void pi__picture_release(pi__picture *p);

#endif
