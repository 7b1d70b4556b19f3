/* The image of a step's batch (step.c): the ring in host memory, its copy on the device, and other small copies to
 * the device. Memory: c->image and c->scratch, both from reserve(). The step thread. */
#include "backend/cuda/impl.h"

#include <string.h>

/* Returns the number of free int32 of the image after the step's part. */
static size_t room_behind(const pi__cuda *c) { return (c->wraps ? c->first_live : c->max_ints) - c->n_ints; }

int32_t *pi__cuda_take_ints(pi__cuda *c, size_t n)
{
    if (n > room_behind(c)) {
        c->no_room = true;
        return NULL;
    }
    c->n_ints += n;
    return c->image + c->n_ints - n;
}

const int32_t *pi__cuda_on_device(const pi__cuda *c, const int32_t *p)
{
    return p ? (const int32_t *) (void *) (c->scratch + c->at.batch) + (p - c->image - c->first_int) : NULL;
}

void pi__cuda_upload(pi__cuda *c, void *dst, const void *src, size_t n)
{
    if (pi__cuda_queues(c)) pi__cuda_record_error(c, pi__rt_upload(c->rt, dst, src, n));
}

const int32_t *pi__cuda_rows(pi__cuda *c, const int32_t *row, int32_t n)
{
    int32_t *to = (int32_t *) (void *) (c->scratch + c->at.rows);
    c->no_room |= n > pi__cuda_max_gather(&c->f.lim);
    if (!c->becomes && c->open && (size_t) n <= room_behind(c)) { /* from pinned memory, the copy does not block */
        int32_t *p = pi__cuda_take_ints(c, (size_t) n);
        memcpy(p, row, (size_t) n * sizeof *p);
        row = p;
    }
    pi__cuda_upload(c, to, row, (size_t) n * sizeof *to);
    return to;
}

void pi__cuda_open_image(pi__cuda *c, size_t n)
{
    if (c->open && n > room_behind(c) && !c->wraps && n <= c->first_live) {
        c->n_ints = 0;
        c->wraps = true;
    } else if (!c->open || n > room_behind(c)) {
        if (c->open) pi__cuda_record_error(c, pi__rt_wait(c->rt));
        c->n_ints = c->first_live = 0;
        c->wraps = false;
    }
    c->first_int = c->n_ints;
    c->open = true;
}
