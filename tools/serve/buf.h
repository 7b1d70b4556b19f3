/* A growing run of bytes. The first allocation that fails sticks: after it nothing is added, and `failed` says so, so
 * that a text is put together without a check a line. One thread at a time. */
#ifndef PAGEDINFER_SERVE_BUF_H
#define PAGEDINFER_SERVE_BUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct buf {
    char *p;       /* the bytes; a NUL follows them once anything was added */
    size_t n, cap; /* bytes used, allocated */
    bool failed;   /* out of memory */
} buf;

void buf_put(buf *b, const void *p, size_t n);
void buf_str(buf *b, const char *s);
void buf_fmt(buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Drops the first n bytes. */
void buf_drop(buf *b, size_t n);
void buf_free(buf *b);

/* Room for want items of size bytes in *p, which has *cap. false: out of memory, and *p is as it was. */
bool grow(void *p, size_t *cap, size_t want, size_t size);

#endif
