/* The images of a sequence (see images.h). */
#include "engine/images.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "image/picture.h"

/* Returns true if the grid has n tokens, without or with a break row after each grid row but the last. */
static bool fits_grid(const pi__media_span *s)
{
    const int64_t all = (int64_t) s->rows * s->cols;
    return s->rows > 0 && s->cols > 0 && (all == s->n || all + s->rows - 1 == s->n);
}

int pi__images_check(const pi__job *j, pi_error *err)
{
    int64_t end = 0;
    for (int32_t i = 0; i < j->n_media; i++) {
        const pi__media_span *s = &j->media[i];
        if (s->n < 1 || s->start < end || (int64_t) s->start + s->n > (int64_t) j->n_prompt)
            return pi__fail(err, PI_EINVAL, "image %d: its tokens %d to %lld are not in the prompt of %zu tokens after "
                            "those of the image before", i, s->start, (long long) s->start + s->n - 1, j->n_prompt);
        if (!fits_grid(s))
            return pi__fail(err, PI_EINVAL, "image %d: %d tokens do not fit a grid of %d rows and %d columns", i, s->n,
                            s->rows, s->cols);
        if (!s->picture) return pi__fail(err, PI_EINVAL, "image %d has no pixels", i);
        end = (int64_t) s->start + s->n;
    }
    return PI_OK;
}

int pi__images_copy(pi__seq_images *to, const pi__job *j, pi_error *err)
{
    const size_t n = (size_t) j->n_media;
    int32_t shift = 0;
    *to = (pi__seq_images) {0};
    if (!n) return PI_OK;
    to->image = pi__calloc(n, sizeof *to->image + sizeof *to->at);
    if (!to->image) return pi__fail_mem(err, "the images of the request");
    to->at = (pi__block_media *) (void *) (to->image + n);
    for (; to->n < j->n_media; to->n++) {
        const pi__media_span *s = &j->media[to->n];
        const int32_t after = shift + (s->rows > s->cols ? s->rows : s->cols) - s->n;
        to->at[to->n] = (pi__block_media) {s->start, s->n, s->id};
        to->image[to->n] = (pi__seq_image) {.rows = s->rows, .cols = s->cols, .shift = shift, .shift_after = after,
                                            .entry = -1, .first_row = -1,
                                            .picture = pi__picture_ref(s->picture)};
        shift = after;
    }
    return PI_OK;
}

void pi__images_free(pi__seq_images *im)
{
    for (int32_t i = 0; i < im->n; i++) pi__picture_release(im->image[i].picture);
    pi__free(im->image);
    memset(im, 0, sizeof *im);
}

int32_t pi__images_from(const pi__seq_images *im, int32_t pos)
{
    int32_t lo = 0, hi = im->n;
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (im->at[mid].start + im->at[mid].n <= pos) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

void pi__images_rope(const pi__seq_images *im, int32_t pos, int32_t out[3])
{
    const int32_t i = pi__images_from(im, pos);
    if (i < im->n && pos >= im->at[i].start) {
        const int32_t first = im->at[i].start + im->image[i].shift, k = pos - im->at[i].start;
        out[0] = first;
        out[1] = first + k / im->image[i].cols;
        out[2] = first + k % im->image[i].cols;
        return;
    }
    out[0] = out[1] = out[2] = pos + (i ? im->image[i - 1].shift_after : 0);
}
