/* Implementation of grid.h. The arithmetic in double is that of the models' image processors, so that sizes are equal
 * to theirs. Sides are at most PI__MAX_IMAGE_SIDE, and products of two sides are computed in 64 bits or in double. */
#include "image/grid.h"

#include <math.h>

#include "base/error.h"

/* Max ratio of the sides for ALIGNED. */
enum { MAX_RATIO = 200 };

typedef struct sides {
    int64_t w, h; /* in units of patch * merge */
} sides;

/* The limits of one image, in tokens. */
typedef struct limits {
    int64_t min, max;
} limits;

static int64_t clamp(int64_t v, int64_t lo, int64_t hi) { return v < lo ? lo : v > hi ? hi : v; }

/* Returns n / unit, rounded to the nearest whole number, and halves to the even one. */
static int64_t round_even(int64_t n, int64_t unit)
{
    const int64_t q = n / unit, twice = n % unit * 2;
    return q + (twice > unit || (twice == unit && q % 2));
}

static int64_t tokens_of(const pi__image_rules *r, sides s) { return s.w * s.h + (r->row_breaks ? s.h - 1 : 0); }

/* Returns the largest sides near the image's ratio with an area of at most `area` units. */
static sides shrink(double w, double h, double unit, int64_t area)
{
    const double beta = sqrt(w * h / ((double) area * unit * unit));
    sides s = {(int64_t) floor(w / beta / unit), (int64_t) floor(h / beta / unit)};
    if (s.w < 1) s.w = 1;
    if (s.h < 1) s.h = 1;
    /* for extreme ratios, the short side was raised to 1 */
    if (s.w * s.h > area && s.w > s.h) s.w = area / s.h;
    else if (s.w * s.h > area) s.h = area / s.w;
    return s;
}

static sides enlarge(double w, double h, double unit, int64_t area)
{
    const double beta = sqrt((double) area * unit * unit / (w * h));
    return (sides) {(int64_t) ceil(w * beta / unit), (int64_t) ceil(h * beta / unit)};
}

/* Brings sides into the limits. Row breaks count as tokens, so that the area may have to be smaller. */
static sides limited(const pi__image_rules *r, sides s, double w, double h, double unit, limits n)
{
    if (s.w * s.h <= n.max && s.w * s.h < n.min) s = enlarge(w, h, unit, n.min);
    for (int64_t area = n.max; tokens_of(r, s) > n.max && area > 0; area--) s = shrink(w, h, unit, area);
    return s;
}

static sides aligned(const pi__image_rules *r, int64_t w, int64_t h, int64_t unit, limits n)
{
    return limited(r, (sides) {round_even(w, unit), round_even(h, unit)}, (double) w, (double) h, (double) unit, n);
}

static sides longest(const pi__image_rules *r, int64_t w, int64_t h, int64_t unit, limits n)
{
    const double ratio = (double) (w > h ? w : h) / r->image_size;
    if (ratio > 1) w = (int64_t) floor((double) w / ratio), h = (int64_t) floor((double) h / ratio);
    if (w < 1) w = 1;
    if (h < 1) h = 1;
    return limited(r, (sides) {(w - 1) / unit + 1, (h - 1) / unit + 1}, (double) w, (double) h, (double) unit, n);
}

/* Returns the budget for these limits: the largest one up to max that the model was trained with. */
static int64_t budget_of(const pi__image_rules *r, limits n)
{
    int64_t best = r->budget[0] ? r->budget[0] : n.max;
    for (int i = 0; i < (int) (sizeof r->budget / sizeof *r->budget) && r->budget[i]; i++)
        if (r->budget[i] <= n.max) best = r->budget[i];
    return best;
}

static sides filled(const pi__image_rules *r, int64_t w, int64_t h, int64_t unit, limits n)
{
    const int64_t budget = budget_of(r, n);
    const double factor = sqrt((double) (budget * unit * unit) / (double) (w * h)), u = (double) unit;
    sides s = {(int64_t) floor(factor * (double) w / u), (int64_t) floor(factor * (double) h / u)};
    if (!s.h) s.h = 1, s.w = clamp(w / h, 1, budget);
    else if (!s.w) s.w = 1, s.h = clamp(h / w, 1, budget);
    return s;
}

static int limits_of(const pi__image_rules *r, uint32_t min_tokens, uint32_t max_tokens, limits *n, pi_error *err)
{
    if (min_tokens && max_tokens && min_tokens > max_tokens)
        return pi__fail(err, PI_EINVAL, "image-min-tokens %u is above image-max-tokens %u: lower the first", min_tokens,
                        max_tokens);
    n->max = clamp(max_tokens ? max_tokens : min_tokens > r->default_max ? min_tokens : r->default_max, 1,
                   r->max_tokens);
    n->min = clamp(min_tokens ? min_tokens : r->default_min, 1, n->max);
    return PI_OK;
}

int pi__image_grid_of(const pi__image_rules *r, uint32_t width, uint32_t height, uint32_t min_tokens,
                      uint32_t max_tokens, pi__image_grid *out, pi_error *err)
{
    const int64_t unit = (int64_t) r->patch * r->merge, w = width, h = height;
    limits n;
    sides s;
    *out = (pi__image_grid) {0};
    if (!width || !height || width > PI__MAX_IMAGE_SIDE || height > PI__MAX_IMAGE_SIDE)
        return pi__fail(err, PI_EINVAL, "an image has %u x %u pixels: give images of 1 to %d pixels per side", width,
                        height, PI__MAX_IMAGE_SIDE);
    if (limits_of(r, min_tokens, max_tokens, &n, err)) return PI_EINVAL;
    if (r->sizing == PI__SIZING_ALIGNED && (w > MAX_RATIO * h || h > MAX_RATIO * w))
        return pi__fail(err, PI_EINVAL, "an image has %u x %u pixels: the long side may be %d times the "
                        "short side with this model: cut the image", width, height, MAX_RATIO);
    switch (r->sizing) {
    case PI__SIZING_ALIGNED: s = aligned(r, w, h, unit, n); break;
    case PI__SIZING_FILLED: s = filled(r, w, h, unit, n); break;
    case PI__SIZING_LONGEST: s = longest(r, w, h, unit, n); break;
    default: s = (sides) {r->image_size / unit, r->image_size / unit}; break;
    }
    out->cols = (int32_t) s.w;
    out->rows = (int32_t) s.h;
    out->patch_cols = out->cols * r->merge;
    out->patch_rows = out->rows * r->merge;
    out->width = out->patch_cols * r->patch;
    out->height = out->patch_rows * r->patch;
    out->n_tokens = (int32_t) tokens_of(r, s);
    return PI_OK;
}
