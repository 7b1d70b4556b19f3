/* A growable byte buffer. A failed allocation is sticky: later appends do nothing and `failed` stays set. So a caller
 * can build a text with many calls and check `failed` once. Not thread-safe. */
#ifndef PAGEDINFER_SERVE_BUF_H
#define PAGEDINFER_SERVE_BUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct buf {
    char *p;       /* the bytes; NUL-terminated after the first append */
    size_t n, cap; /* bytes used, allocated */
    bool failed;   /* out of memory */
} buf;

/* Returns space for n more bytes and a NUL after the last byte; the caller writes them and adds their number to b->n.
 * Returns NULL if out of memory, and sets b->failed. */
char *buf_reserve(buf *b, size_t n);
void buf_put(buf *b, const void *p, size_t n);
void buf_str(buf *b, const char *s);
void buf_fmt(buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Removes the first n bytes; n <= b->n. */
void buf_drop(buf *b, size_t n);
void buf_free(buf *b);

/* Grows the array *p so that it has capacity for `want` items of `size` bytes; updates *cap. Returns false if out of
 * memory; *p is then unchanged. */
bool grow(void *p, size_t *cap, size_t want, size_t size);

#endif
