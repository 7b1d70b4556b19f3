/* Implementation of pixels.h. */
#include "image/pixels.h"

void pi__pixel_values_init(pi__pixel_values *v, const pi__image_rules *r)
{
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 256; i++) v->of[c][i] = ((float) i / 255.0f - r->mean[c]) / r->std[c];
}

void pi__patch_place(const pi__image_grid *g, int32_t merge, int32_t i, int32_t *col, int32_t *row)
{
    const int32_t each = merge * merge, block = i / each, in = i % each, blocks = g->patch_cols / merge;
    *col = block % blocks * merge + in % merge;
    *row = block / blocks * merge + in / merge;
}

void pi__patch_read(const pi__pixel_values *v, const pi__picture *p, int32_t patch, int32_t col, int32_t row,
                    float *out)
{
    const size_t n = (size_t) patch, width = (size_t) p->grid.width;
    const uint8_t *from = p->rgb + 3 * ((size_t) row * n * width + (size_t) col * n);
    for (size_t c = 0; c < 3; c++)
        for (size_t y = 0; y < n; y++)
            for (size_t x = 0; x < n; x++) *out++ = v->of[c][from[3 * (y * width + x) + c]];
}
