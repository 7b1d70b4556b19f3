/* A growable byte buffer (see buf.h). */
#include "serve/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool grow(void *pp, size_t *cap, size_t want, size_t size)
{
    void **p = pp;
    if (want <= *cap) return true;
    size_t n = *cap < 8 ? 8 : *cap;
    while (n < want && n <= SIZE_MAX / 2) n *= 2;
    if (n < want || n > SIZE_MAX / size) return false;
    void *q = realloc(*p, n * size);
    if (!q) return false;
    *p = q;
    *cap = n;
    return true;
}

char *buf_reserve(buf *b, size_t n)
{
    if (b->failed || n > SIZE_MAX - b->n - 1 || !grow(&b->p, &b->cap, b->n + n + 1, 1)) {
        b->failed = true;
        return NULL;
    }
    return b->p + b->n;
}

void buf_put(buf *b, const void *p, size_t n)
{
    char *to = buf_reserve(b, n);
    if (!to) return;
    if (n) memcpy(to, p, n);
    b->n += n;
    b->p[b->n] = 0;
}

void buf_str(buf *b, const char *s) { buf_put(b, s, strlen(s)); }

void buf_fmt(buf *b, const char *fmt, ...)
{
    char small[512];
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    if (n >= 0 && (size_t) n < sizeof small) {
        buf_put(b, small, (size_t) n);
    } else if (n < 0) {
        b->failed = true;
    } else if (buf_reserve(b, (size_t) n)) {
        vsnprintf(b->p + b->n, (size_t) n + 1, fmt, again);
        b->n += (size_t) n;
    }
    va_end(again);
    va_end(ap);
}

void buf_drop(buf *b, size_t n)
{
    if (!n) return;
    b->n -= n;
    memmove(b->p, b->p + n, b->n + 1);
}

void buf_free(buf *b)
{
    free(b->p);
    *b = (buf) {0};
}
