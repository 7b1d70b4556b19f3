/* Sizes of images: the pixels that a vision model resizes an image to, its patches, and the tokens that it becomes.
 *
 * A vision model (a tower, model/tower.h) fixes the rules when its file is declared. pi__image_grid_of is a pure
 * function of the rules and of an image's width and height: it needs no weights and no pixels. So a request knows its
 * number of tokens before an image is decoded.
 *
 *     image 1000 x 700  --resize-->  992 x 704 pixels  --cut-->  62 x 44 patches  --merge 2x2-->  31 x 22 tokens
 *
 * The image is stretched to the new size, never padded. Memory: none. Any thread. */
#ifndef PI__IMAGE_GRID_H
#define PI__IMAGE_GRID_H

#include <stdint.h>

#include "pagedinfer.h"

/* How a tower chooses the size of an image. */
enum pi__image_sizing {
    PI__SIZING_SQUARE,  /* every image becomes a square of image_size pixels (gemma3) */
    PI__SIZING_ALIGNED, /* near its own size, sides are multiples of patch * merge, area within limits (qwen) */
    PI__SIZING_FILLED,  /* scaled up or down to fill the token budget (gemma4) */
    PI__SIZING_LONGEST, /* shrunk to a longest side of image_size pixels, then sides are rounded up (pixtral) */
};

/* Interpolation of the resize, as Pillow defines it. */
enum pi__image_filter { PI__FILTER_BILINEAR, PI__FILTER_BICUBIC, PI__FILTER_LANCZOS };

enum {
    PI__MAX_IMAGE_SIDE = 65535,   /* pixels per side of an image that is accepted */
    PI__MAX_IMAGE_TOKENS = 16384, /* tokens of one image, for any model and option */
};

/* The rules of one tower; filled in by pi__tower_open. */
typedef struct pi__image_rules {
    int32_t sizing;        /* enum pi__image_sizing */
    int32_t filter;        /* enum pi__image_filter */
    int32_t patch;         /* pixels per side of a patch */
    int32_t merge;         /* patches per side that become one token */
    int32_t image_size;    /* SQUARE, LONGEST: pixels, see enum pi__image_sizing; otherwise 0 */
    bool row_breaks;       /* an extra token follows each row of tokens but the last (pixtral) */
    float mean[3], std[3]; /* a value is (byte / 255 - mean) / std, for red, green, blue */
    /* Tokens of one image. default_*: limits without a wish of the request or of the options. max_tokens also bounds
     * every wish: scratch memory of the tower is sized for it. SQUARE has one number for all. */
    uint32_t default_min, default_max;
    uint32_t max_tokens;
    /* FILLED: the budgets that the model was trained with, ascending; 0 ends the list. A wish is rounded down to one of
     * them (up to the first one). */
    uint32_t budget[8];
} pi__image_rules;

/* The sizes of one image. */
typedef struct pi__image_grid {
    int32_t width, height; /* pixels after the resize: multiples of patch * merge */
    int32_t patch_cols, patch_rows; /* width / patch, height / patch */
    int32_t cols, rows;    /* grid of tokens: patch_cols / merge, patch_rows / merge */
    int32_t n_tokens;      /* rows * cols, plus rows - 1 with row breaks; at least 1 */
} pi__image_grid;

/* Computes the sizes of an image of w x h pixels. min_tokens, max_tokens: the wish of the request, or of the options;
 * 0 = the tower's defaults. Both are clamped to the tower's limits; max_tokens is stronger than min_tokens. Returns
 * PI_EINVAL with a remedy for an image without pixels, with a side above PI__MAX_IMAGE_SIDE, with an aspect ratio above
 * 200 where the model's rules refuse it, and if min_tokens is above max_tokens. */
int pi__image_grid_of(const pi__image_rules *r, uint32_t w, uint32_t h, uint32_t min_tokens, uint32_t max_tokens,
                      pi__image_grid *out, pi_error *err);

#endif
