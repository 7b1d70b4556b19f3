/* The encoder cache (see media.h). */
#include "engine/media.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"

enum { USUAL_ROWS = 2048 /* rows by default, if the largest image has fewer */ };

int32_t pi__media_rows_of(const pi__encoder *encoder, uint64_t bytes)
{
    const uint64_t row = (uint64_t) encoder->width * sizeof(float);
    uint64_t n = bytes ? bytes / row : USUAL_ROWS;
    if (n < (uint64_t) encoder->max_tokens) n = (uint64_t) encoder->max_tokens;
    return n > INT32_MAX / 2 ? INT32_MAX / 2 : (int32_t) n;
}

size_t pi__media_device_bytes(const pi__encoder *encoder, int32_t n_rows)
{
    size_t n;
    if (!encoder) return 0;
    return pi__mul_ok((size_t) n_rows, (size_t) encoder->width * sizeof(float), &n) ? n : SIZE_MAX;
}

size_t pi__media_host_bytes(const pi__encoder *encoder)
{
    return encoder ? PI__MEDIA_ENTRIES * sizeof(pi__media_entry) : 0;
}

int pi__media_init(pi__media *m, const pi__encoder *encoder, int32_t n_rows, pi__backend *be, pi__stats *stats,
                   pi_error *err)
{
    *m = (pi__media) {.encoder = encoder, .be = be, .stats = stats, .encoding = -1, .n_rows = n_rows};
    if (!encoder) return PI_OK;
    m->entry = pi__calloc(PI__MEDIA_ENTRIES, sizeof *m->entry);
    if (!m->entry) return pi__fail_mem(err, "the images");
    const size_t bytes = pi__media_device_bytes(encoder, n_rows);
    m->rows = be->dev->alloc(be, bytes);
    if (m->rows) return PI_OK;
    return pi__fail(err, PI_ENOMEM, "no memory for %zu MiB of image rows: lower mmproj-cache or image-max-tokens",
                    bytes >> 20);
}

void pi__media_destroy(pi__media *m)
{
    if (m->rows) m->be->dev->free(m->be, m->rows, pi__media_device_bytes(m->encoder, m->n_rows));
    pi__free(m->entry);
    memset(m, 0, sizeof *m);
}

/* --------------------------------------------------------------------------------------------------------- entries */

/* Returns the entry of this image of n tokens; -1 = none. */
static int32_t find(const pi__media *m, const pi__digest *id, int32_t n)
{
    for (int32_t i = 0; i < PI__MEDIA_ENTRIES; i++)
        if (m->entry[i].state && m->entry[i].n == n && pi__digest_equal(&m->entry[i].id, id)) return i;
    return -1;
}

/* Frees the least recently used entry that no sequence holds. Returns its index; -1 = all are held. */
static int32_t evict(pi__media *m)
{
    int32_t old = -1;
    for (int32_t i = 0; i < PI__MEDIA_ENTRIES; i++) {
        const pi__media_entry *e = &m->entry[i];
        if (e->state && !e->held && (old < 0 || e->used < m->entry[old].used)) old = i;
    }
    if (old >= 0) m->entry[old] = (pi__media_entry) {0};
    return old;
}

/* Returns the first row of the lowest gap of n rows; -1 = no gap is as large. */
static int32_t find_gap(const pi__media *m, int32_t n)
{
    int32_t at = 0;
    for (bool moved = true; moved;) { /* moves behind each entry that overlaps the n rows from `at` on */
        moved = false;
        for (int32_t i = 0; i < PI__MEDIA_ENTRIES; i++) {
            const pi__media_entry *e = &m->entry[i];
            if (!e->state || e->first >= at + n || e->first + e->n <= at) continue;
            at = e->first + e->n;
            moved = true;
        }
        if (n > m->n_rows - at) return -1;
    }
    return at;
}

static int32_t free_entry(pi__media *m)
{
    for (int32_t i = 0; i < PI__MEDIA_ENTRIES; i++)
        if (!m->entry[i].state) return i;
    return evict(m);
}

/* Makes an entry of n rows, and evicts others as needed. Returns its index; -1 = held images leave too few rows. */
static int32_t make_entry(pi__media *m, const pi__digest *id, int32_t n)
{
    int32_t first, i = free_entry(m);
    if (i < 0) return -1;
    while ((first = find_gap(m, n)) < 0)
        if (evict(m) < 0) return -1;
    m->entry[i] = (pi__media_entry) {.id = *id, .first = first, .n = n};
    return i;
}

/* Holds image k of s: finds its entry, or starts to encode it. Returns false if that is not possible now. */
static bool hold(pi__media *m, pi__seq *s, int32_t k)
{
    pi__seq_image *image = &s->images.image[k];
    const pi__block_media *at = &s->images.at[k];
    int32_t i = find(m, &at->id, at->n);
    if (i >= 0 && m->entry[i].state == PI__MEDIA_FAILED) return false;
    if (i < 0) {
        if (m->encoding >= 0) return false;
        i = make_entry(m, &at->id, at->n);
        if (i < 0) return false;
        m->entry[i].state = PI__MEDIA_ENCODING;
        m->encoding = i;
        m->encoder->begin(m->encoder->ud, image->picture);
    }
    m->entry[i].held++;
    m->entry[i].used = ++m->n_uses;
    image->entry = i;
    return true;
}

int32_t pi__media_ready(pi__media *m, pi__seq *s, int32_t n)
{
    const pi__seq_images *im = &s->images;
    const int32_t end = s->n_computed + n;
    int32_t ready = end;
    for (int32_t k = pi__images_from(im, s->n_computed); k < im->n; k++) {
        const bool held = im->image[k].entry >= 0 || hold(m, s, k);
        const bool there = held && m->entry[im->image[k].entry].state == PI__MEDIA_READY;
        const int32_t start = im->at[k].start > s->n_computed ? im->at[k].start : s->n_computed;
        if (there) im->image[k].first_row = m->entry[im->image[k].entry].first;
        else if (start < ready) ready = start;
        if (!held) break; /* in order: a sequence that holds a later image holds the earlier ones */
    }
    return ready - s->n_computed;
}

static void drop(pi__media *m, int32_t i)
{
    pi__media_entry *e = &m->entry[i];
    pi__assert(e->held > 0);
    if (--e->held || e->state == PI__MEDIA_READY) return;
    if (i == m->encoding) {
        m->encoder->cancel(m->encoder->ud);
        m->encoding = -1;
    }
    *e = (pi__media_entry) {0};
}

void pi__media_release(pi__media *m, pi__seq *s, int32_t upto)
{
    for (int32_t k = 0; k < s->images.n && s->images.at[k].start + s->images.at[k].n <= upto; k++) {
        pi__seq_image *image = &s->images.image[k];
        if (image->entry < 0) continue;
        drop(m, image->entry);
        image->entry = image->first_row = -1;
    }
}

/* -------------------------------------------------------------------------------------------------------- encoding */

int pi__media_step(pi__media *m, pi__image_part *p, pi_error *err)
{
    if (!pi__media_busy(m)) return PI_OK;
    pi__media_entry *e = &m->entry[m->encoding];
    float *const rows = m->rows + (size_t) e->first * (size_t) m->encoder->width;
    const int rc = m->encoder->step(m->encoder->ud, m->be, rows, p, err);
    if (!rc && !p->done) return PI_OK;
    m->encoding = -1;
    e->state = rc ? PI__MEDIA_FAILED : PI__MEDIA_READY;
    m->stats->n_images_encoded += !rc;
    return rc;
}

bool pi__media_failed(const pi__media *m, const pi__seq *s)
{
    for (int32_t k = 0; k < s->images.n; k++) {
        const int32_t i = s->images.image[k].entry;
        if (i >= 0 && m->entry[i].state == PI__MEDIA_FAILED) return true;
    }
    return false;
}
