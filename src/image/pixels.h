/* Patches of a picture as normalised floats, in the order in which a tower reads them.
 *
 * Patches that become one token are adjacent: the order goes block by block, and inside a block row by row. With
 * merge 2 and 6 x 4 patches:
 *
 *      0  1 |  4  5 |  8  9
 *      2  3 |  6  7 | 10 11
 *     ------+-------+------
 *     12 13 | 16 17 | 20 21
 *     14 15 | 18 19 | 22 23
 *
 * Memory: none. Any thread. */
#ifndef PI__IMAGE_PIXELS_H
#define PI__IMAGE_PIXELS_H

#include "image/picture.h"

/* The normalised value of each byte, for red, green and blue. */
typedef struct pi__pixel_values {
    float of[3][256];
} pi__pixel_values;
void pi__pixel_values_init(pi__pixel_values *v, const pi__image_rules *r);

/* Sets *col and *row to the place of patch number i in this order. merge: patches per side of a block; 1 = raster
 * order. */
void pi__patch_place(const pi__image_grid *g, int32_t merge, int32_t i, int32_t *col, int32_t *row);

/* out [3, patch, patch] = the values of a patch: channel, then row, then column. */
void pi__patch_read(const pi__pixel_values *v, const pi__picture *p, int32_t patch, int32_t col, int32_t row,
                    float *out);

#endif
