/* Implementation of picture.h. Memory: one allocation, with the pixels at its end. */
#include "image/picture.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"

int pi__picture_create(pi__picture **out, uint32_t width, uint32_t height, const uint8_t *rgb,
                       const pi__image_grid *grid, pi_error *err)
{
    size_t n, all;
    *out = NULL;
    if (!width || !height || width > PI__MAX_IMAGE_SIDE || height > PI__MAX_IMAGE_SIDE)
        return pi__fail(err, PI_EINVAL, "an image has %u x %u pixels: give 1 to %d per side", width, height,
                        PI__MAX_IMAGE_SIDE);
    if (!pi__mul_ok(width, height, &n) || !pi__mul_ok(n, 3, &n) || !pi__add_ok(n, sizeof(pi__picture), &all))
        return pi__fail(err, PI_EINVAL, "an image has %u x %u pixels, more than memory can address", width, height);
    pi__picture *p = pi__malloc(all);
    if (!p) return pi__fail_mem(err, "an image");
    atomic_init(&p->refs, 1);
    p->width = width;
    p->height = height;
    p->grid = *grid;
    memcpy(p->rgb, rgb, n);
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
