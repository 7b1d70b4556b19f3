/* Implementation of picture.h. Memory: one allocation, with the pixels at its end. */
#include "image/picture.h"

#include "base/alloc.h"
#include "base/error.h"
#include "image/resize.h"

int pi__picture_create(pi__picture **out, const pi__image_rules *rules, uint32_t width, uint32_t height,
                       const uint8_t *rgb, uint32_t min_tokens, uint32_t max_tokens, pi_error *err)
{
    pi__image_grid g;
    size_t n, all;
    *out = NULL;
    const int rc = pi__image_grid_of(rules, width, height, min_tokens, max_tokens, &g, err);
    if (rc) return rc;
    if (!pi__mul_ok((size_t) g.width, (size_t) g.height, &n) || !pi__mul_ok(n, 3, &n) ||
        !pi__add_ok(n, sizeof(pi__picture), &all))
        return pi__fail_mem(err, "an image");
    pi__picture *p = pi__malloc(all);
    if (!p) return pi__fail_mem(err, "an image");
    atomic_init(&p->refs, 1);
    p->grid = g;
    const pi__pixels from = {(int32_t) width, (int32_t) height, rgb};
    if (!pi__resize(&from, g.width, g.height, rules->filter, p->rgb)) {
        pi__free(p);
        return pi__fail_mem(err, "resizing an image");
    }
    *out = p;
    return PI_OK;
}

pi__picture *pi__picture_ref(pi__picture *p)
{
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

void pi__picture_release(pi__picture *p)
{
    if (p && atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1) pi__free(p);
}
