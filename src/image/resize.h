/* Resampling of 8-bit images, with the results of Pillow's Image.resize to the last bit: the reference of the models'
 * image processors (Pillow up to 12; later versions may run the vertical pass first).
 *
 * A horizontal pass, then a vertical pass; a pass that does not change the size is left out. The result of each pass is
 * rounded to bytes. Weights are fixed-point numbers of 22 fractional bits. Memory: weights and the horizontal result,
 * freed before the return. Any thread. */
#ifndef PI__RESIZE_H
#define PI__RESIZE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct pi__pixels {
    int32_t width, height; /* 1..65535 */
    const uint8_t *rgb;    /* [height, width, 3] */
} pi__pixels;

/* out [height, width, 3] = the image at another size. filter: enum pi__image_filter. false = out of memory. */
bool pi__resize(const pi__pixels *in, int32_t width, int32_t height, int32_t filter, uint8_t *out);

#endif
