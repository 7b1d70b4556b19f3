/* pi_request_image and pi_image_tokens: pixels become a picture and its identity, which the request keeps until its
 * prompt is set (image_prompt.c).
 *
 * The identity of an image names its rows in the prefix cache: it covers the source bytes (or the pixels), the sizes in
 * the model, and the tower. Memory: pictures are shared with the core by reference. Threads: as for requests. */
#include <string.h>

#include "api/image_prompt.h"
#include "api/request.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/versioned.h"

enum { MAX_IMAGES = 1024 };

/* Replaces budgets of 0 by the options in `set`. */
static void set_budget(const pi__opt_set *set, uint32_t *min_tokens, uint32_t *max_tokens)
{
    if (!*min_tokens) *min_tokens = (uint32_t) pi__opt_int(set, PI__OPT_IMAGE_MIN_TOKENS);
    if (!*max_tokens) *max_tokens = (uint32_t) pi__opt_int(set, PI__OPT_IMAGE_MAX_TOKENS);
}

/* Returns the prompt tokens of an image, with the ones that begin and end it. */
static uint32_t tokens_of(const pi_engine *e, const pi__image_grid *grid)
{
    const pi__image_frame *f = pi__tower_frame(pi__engine_tower(e));
    return (uint32_t) grid->n_tokens + (f->begin >= 0) + (f->end >= 0);
}

int pi_image_tokens(const pi_engine *e, uint32_t width, uint32_t height, uint32_t min_tokens, uint32_t max_tokens,
                    uint32_t *n, pi_error *err)
{
    pi__image_grid grid;
    if (!e || !n) return pi__fail(err, PI_EINVAL, "pi_image_tokens: an argument is NULL");
    int rc = pi__image_check(e, err);
    if (rc) return rc;
    set_budget(&e->defaults, &min_tokens, &max_tokens);
    rc = pi__image_grid_of(pi__tower_rules(pi__engine_tower(e)), width, height, min_tokens, max_tokens, &grid, err);
    if (!rc) *n = tokens_of(e, &grid);
    return rc;
}

/* --------------------------------------------------------------------------------------------------------- pictures */

static pi__digest identity(const pi_engine *e, const pi_image *image, const pi__image_grid *grid)
{
    const bool own = image->source && image->source_len;
    const size_t n = (size_t) image->width * image->height * 3;
    const int32_t sizes[] = {own, (int32_t) image->width, (int32_t) image->height, grid->width, grid->height,
                             grid->cols, grid->rows, grid->n_tokens};
    pi__hasher h;
    pi__hash_begin(&h, PI__HASH_PICTURE);
    pi__hash_field(&h, sizes, sizeof sizes);
    if (own) pi__hash_field(&h, image->source, image->source_len);
    else pi__hash_field(&h, image->rgb, n);
    pi__hash_field(&h, pi__tower_digest(pi__engine_tower(e)), sizeof(pi__digest));
    return pi__hash_end(&h);
}

static int check_image(const pi_request *r, const pi_image *image, pi_error *err)
{
    if (pi__versioned_check(image) || !image->rgb)
        return pi__fail(err, PI_EINVAL, "pi_request_image: image and its rgb must not be NULL, and its size must be "
                        "set");
    if (r->n_prompt) return pi__fail(err, PI_EINVAL, "the prompt is set: add images before it");
    if (r->n_images >= MAX_IMAGES) return pi__fail(err, PI_ETOOBIG, "a request has at most %d images", MAX_IMAGES);
    return PI_OK;
}

/* PI_ETOOBIG: the image alone has more tokens than a request. */
static int check_size(const pi_engine *e, const pi__image_grid *grid, pi_error *err)
{
    pi_info info = {.size = sizeof info};
    const uint32_t n = tokens_of(e, grid);
    if (pi__core_info(e->core, &info) || n <= info.ctx_size) return PI_OK;
    return pi__fail(err, PI_ETOOBIG, "an image has %u tokens, more than the context (%u): lower image-max-tokens, or "
                    "raise ctx-size", n, info.ctx_size);
}

int pi_request_image(pi_request *r, const pi_image *image, pi_error *err)
{
    pi_image full = {0};
    pi__image_grid grid;
    int rc = pi__request_check_new(r, err);
    if (!rc) rc = pi__image_check(r->e, err);
    if (rc) return rc;
    const pi__image_rules *rules = pi__tower_rules(pi__engine_tower(r->e));
    if (!pi__versioned_check(image)) memcpy(&full, image, image->size < sizeof full ? image->size : sizeof full);
    rc = check_image(r, &full, err);
    if (rc) return rc;
    set_budget(&r->set, &full.min_tokens, &full.max_tokens);
    rc = pi__image_grid_of(rules, full.width, full.height, full.min_tokens, full.max_tokens, &grid, err);
    if (!rc) rc = check_size(r->e, &grid, err);
    if (rc) return rc;
    if (!pi__grow(&r->images, &r->cap_images, r->n_images + 1, sizeof *r->images)) return pi__fail_mem(err, "an image");
    pi__media_span *m = &r->images[r->n_images];
    *m = (pi__media_span) {.n = grid.n_tokens, .rows = grid.rows, .cols = grid.cols};
    rc = pi__picture_create(&m->picture, rules, full.width, full.height, full.rgb, full.min_tokens, full.max_tokens,
                            err);
    if (rc) return rc;
    m->id = identity(r->e, &full, &grid);
    r->n_images++;
    return PI_OK;
}
