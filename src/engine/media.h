/* The encoder cache: the rows of images that running sequences need, and of images that were used before.
 *
 *     rows     [ image A, 256 rows | image B, 64 rows |   free   | image C, 256 rows |  free  ]      n_rows in all
 *     entries    held by 2 seqs      encoding: 1 seq               not held: found again, or evicted
 *
 * A sequence asks for rows when the scheduler plans its next tokens (pi__media_ready). An image that is not there is
 * encoded, one image at a time, in steps between the steps of the model (pi__media_step). Sequences with the same image
 * hold the same entry, so it is encoded once. A sequence releases an image when the last of its tokens is computed, or
 * when it loses its row of the cache. Released entries stay until their rows are needed: least recently used first.
 *
 * Memory: rows on the device, allocated at init, of the engine's plan. Step thread only. */
#ifndef PI__MEDIA_H
#define PI__MEDIA_H

#include "engine/encoder.h"
#include "engine/seq.h"
#include "engine/stats.h"

enum { PI__MEDIA_ENTRIES = 512 /* max images in the cache */ };

typedef enum pi__media_state { PI__MEDIA_NONE, PI__MEDIA_ENCODING, PI__MEDIA_READY, PI__MEDIA_FAILED } pi__media_state;

/* One image in the cache. */
typedef struct pi__media_entry {
    pi__digest id;             /* identity of the image */
    int32_t first, n;          /* its rows */
    int32_t held;              /* sequences that hold the entry */
    pi__media_state state;     /* NONE = the entry is free; FAILED = encoding failed; freed with its last holder */
    uint64_t used;             /* number of the last use, ascending */
} pi__media_entry;

typedef struct pi__media {
    const pi__encoder *encoder; /* NULL = the engine reads no images */
    pi__backend *be;           /* owns the rows */
    pi__stats *stats;          /* counters */
    float *rows;               /* [n_rows, width] on the device */
    int32_t n_rows;            /* rows in all */
    int32_t encoding;          /* entry that is being encoded; -1 = none */
    uint64_t n_uses;           /* last number of pi__media_entry.used */
    pi__media_entry *entry;    /* [PI__MEDIA_ENTRIES] */
} pi__media;

/* Returns the rows of a cache of this many bytes; 0 = by default. At least one largest image. */
int32_t pi__media_rows_of(const pi__encoder *encoder, uint64_t bytes);
/* Return the bytes that init allocates on the device for n_rows rows, and on the host. SIZE_MAX = overflow. */
size_t pi__media_device_bytes(const pi__encoder *encoder, int32_t n_rows);
size_t pi__media_host_bytes(const pi__encoder *encoder);
int pi__media_init(pi__media *m, const pi__encoder *encoder, int32_t n_rows, pi__backend *be, pi__stats *stats,
                   pi_error *err);
void pi__media_destroy(pi__media *m);

/* Returns how many of the n tokens after the computed ones of s can be computed now: their rows are ready. Holds the
 * images from there on for s, and starts to encode one if the encoder is idle. */
int32_t pi__media_ready(pi__media *m, pi__seq *s, int32_t n);
/* Releases the images of s that end at or before position `upto`; INT32_MAX = all. */
void pi__media_release(pi__media *m, pi__seq *s, int32_t upto);
/* Returns true if an image is being encoded. */
static inline bool pi__media_busy(const pi__media *m) { return m->encoder && m->encoding >= 0; }
/* Computes the next part of the image that is being encoded; see pi__encoder.step. No step is in flight. Returns PI_OK
 * or an error; then the image failed, and pi__media_failed reports the sequences that wait for it. */
int pi__media_step(pi__media *m, pi__image_part *p, pi_error *err);
/* Returns true if s holds an image that failed. */
bool pi__media_failed(const pi__media *m, const pi__seq *s);

#endif
