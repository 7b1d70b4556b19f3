/* Text for JSON, and detection of failed allocations (see text.h). */
#include "serve/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------------------- memory */

static _Thread_local bool failed;
static json_malloc_t next_malloc = malloc; /* jansson's function before text_watch_memory; constant afterwards */

static void *watched_malloc(size_t n)
{
    void *p = next_malloc(n);
    if (!p) failed = true;
    return p;
}

void text_watch_memory(void)
{
    json_malloc_t m;
    json_free_t f;
    json_get_alloc_funcs(&m, &f);
    if (m == watched_malloc) return;
    next_malloc = m;
    json_set_alloc_funcs(watched_malloc, f);
}

void text_no_memory(void) { failed = true; }

bool text_failed(void)
{
    bool was = failed;
    failed = false;
    return was;
}

json_t *text_json(const char *p, size_t n)
{
    json_t *s = json_stringn(n ? p : "", n); /* NULL: invalid UTF-8, or out of memory */
    if (s) return s;
    char *fixed = n < SIZE_MAX / 4 ? malloc(n * 3 + 8) : NULL;
    utf8_hold h = {{0}, 0};
    size_t o = 0;
    if (!fixed) return text_no_memory(), NULL;
    for (size_t i = 0; i < n; i++) o += utf8_step(&h, (unsigned char) p[i], fixed + o);
    o += utf8_end(&h, fixed + o);
    s = json_stringn(fixed, o);
    free(fixed);
    return s;
}

/* Writes an ASCII character in JSON notation; returns the number of bytes. */
static size_t escape(unsigned char c, char out[8])
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *e = c ? strchr(from, c) : NULL;
    if (e) {
        out[0] = '\\';
        out[1] = to[e - from];
        return 2;
    }
    if (c < ' ') return (size_t) snprintf(out, 8, "\\u%04X", c);
    out[0] = (char) c;
    return 1;
}

void text_put_json(buf *b, const char *p, size_t n)
{
    char part[512], c[8];
    size_t m = 0;
    utf8_hold h = {{0}, 0};
    buf_put(b, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        const size_t k = utf8_step(&h, (unsigned char) p[i], c);
        /* A replacement character for a truncated one comes before an ASCII character. */
        const size_t cut = k && (unsigned char) c[k - 1] < 0x80 ? k - 1 : k;
        if (m > sizeof part - 16) {
            buf_put(b, part, m);
            m = 0;
        }
        memcpy(part + m, c, cut);
        m += cut;
        if (cut < k) m += escape((unsigned char) c[cut], part + m);
    }
    m += utf8_end(&h, part + m);
    buf_put(b, part, m);
    buf_put(b, "\"", 1);
}

/* ---------------------------------------------------------------------------------------------------------- base64 */

bool text_put_base64(const char *s, size_t n, buf *out)
{
    size_t n_bytes = 0;
    char *to = buf_reserve(out, base64_max_bytes(n));
    if (!to) return true;
    if (!base64_decode(s, n, to, &n_bytes)) return false;
    out->n += n_bytes;
    out->p[out->n] = 0;
    return true;
}
