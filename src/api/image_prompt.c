/* Prompts that contain images: ids with -1 - i become begin, soft ... soft, end, and one span per image for the core.
 *
 *     ids     5  7  -1  9             image 0 has 3 rows; B, S, E: the frame's begin, soft and end
 *     prompt  5  7   B  S  S  S  E  9      span: start 3, n 3
 *
 * Memory: a new array of ids. Threads: as for requests. */
#include <string.h>

#include "api/image_prompt.h"
#include "base/alloc.h"
#include "base/error.h"

const pi__tower *pi__engine_tower(const pi_engine *e) { return pi__core_tower(e->core); }

int pi__image_check(const pi_engine *e, pi_error *err)
{
    if (pi__engine_tower(e)) return PI_OK;
    return pi__fail(err, PI_EUNSUPPORTED, "this engine reads no images: open it with option mmproj, the GGUF of the "
                    "model's vision part");
}

/* Checks that the ids hold each image once. *total: ids of the prompt with all images. seen: [n_images] false. */
static int check_ids(const pi_request *r, const pi__ids *ids, size_t n_around, bool *seen, size_t *total, pi_error *err)
{
    size_t found = 0;
    *total = ids->n;
    for (size_t i = 0; i < ids->n; i++) {
        if (ids->p[i] >= 0) continue;
        const size_t k = (size_t) ((int64_t) -1 - ids->p[i]);
        if (k >= r->n_images)
            return pi__fail(err, PI_EINVAL, "prompt token %zu is image %zu, but the request has %zu: call "
                            "pi_request_image for each image before the prompt", i, k, r->n_images);
        if (seen[k]) return pi__fail(err, PI_EINVAL, "image %zu is in the prompt twice: add it twice", k);
        seen[k] = true;
        *total += (size_t) r->images[k].n + 1 + n_around; /* -1 for its id, +2 for begin and end */
        found++;
    }
    if (found < r->n_images)
        return pi__fail(err, PI_EINVAL, "the prompt has %zu of the request's %zu images: each must appear in it", found,
                        r->n_images);
    if (*total > INT32_MAX) return pi__fail(err, PI_ETOOBIG, "the prompt has more than %d tokens", INT32_MAX);
    return PI_OK;
}

/* Writes image m at p and sets its position, at - counted in the prompt. Returns the number of ids written. */
static size_t put_image(const pi__image_frame *f, pi__media_span *m, int32_t *p, size_t at)
{
    size_t n = 0;
    if (f->begin >= 0) p[n++] = f->begin;
    m->start = (int32_t) (at + n);
    for (int32_t k = 0; k < m->n; k++) p[n++] = f->soft;
    if (f->end >= 0) p[n++] = f->end;
    return n;
}

static size_t put_ids(int32_t *p, const pi__ids *ids)
{
    if (ids->n) memcpy(p, ids->p, ids->n * sizeof *p);
    return ids->n;
}

/* Replaces images in ids by their tokens, and fills spans in the order of the prompt. before and after: ids around each
 * image. */
static int expand(pi_request *r, pi__ids *ids, const pi__ids *before, const pi__ids *after, size_t total,
                  pi__media_span *spans, pi_error *err)
{
    const pi__image_frame *f = pi__tower_frame(pi__engine_tower(r->e));
    size_t bytes, at = 0, n_spans = 0;
    int32_t *p = pi__mul_ok(total, sizeof *p, &bytes) ? pi__malloc(bytes) : NULL;
    if (!p) return pi__fail_mem(err, "the prompt");
    for (size_t i = 0; i < ids->n; i++) {
        if (ids->p[i] >= 0) {
            p[at++] = ids->p[i];
            continue;
        }
        at += put_ids(p + at, before);
        spans[n_spans] = r->images[-1 - ids->p[i]];
        at += put_image(f, &spans[n_spans++], p + at, at);
        at += put_ids(p + at, after);
    }
    pi__free(ids->p);
    ids->p = p;
    ids->n = ids->cap = at;
    return PI_OK;
}

/* Checks and expands ids with n_images > 0 images. */
static int with_images(pi_request *r, pi__ids *ids, const pi__ids *before, const pi__ids *after, pi_error *err)
{
    size_t total;
    bool *seen = pi__calloc(r->n_images, sizeof *seen);
    pi__media_span *spans = pi__calloc(r->n_images, sizeof *spans);
    int rc = seen && spans ? check_ids(r, ids, before->n + after->n, seen, &total, err)
                           : pi__fail_mem(err, "the prompt");
    if (!rc) rc = expand(r, ids, before, after, total, spans, err);
    pi__free(seen);
    if (rc) {
        pi__free(spans);
        return rc;
    }
    pi__free(r->spans);
    r->spans = spans;
    return PI_OK;
}

int pi__image_expand(pi_request *r, pi__ids *ids, bool bare, pi_error *err)
{
    pi__ids before = {.work = r->work}, after = {.work = r->work};
    size_t total;
    int rc = PI_OK;
    if (!r->n_images) return check_ids(r, ids, 0, NULL, &total, err);
    const pi__image_frame *f = pi__tower_frame(pi__engine_tower(r->e));
    const pi__vocab *v = pi__core_vocab(r->e->core);
    if (bare) rc = pi__tokenize(v, f->text_before, strlen(f->text_before), false, false, &before);
    if (bare && !rc) rc = pi__tokenize(v, f->text_after, strlen(f->text_after), false, false, &after);
    if (rc) (void) pi__fail(err, rc, "the text around images: %s", pi_strerror(rc));
    else rc = with_images(r, ids, &before, &after, err);
    pi__free(before.p);
    pi__free(after.p);
    return rc;
}
