/* Texts about a GGUF: escaping of hostile strings, and errors that name the field and the file offset. No memory. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gguf/gguf_priv.h"

/* Returns the bytes of the UTF-8 character at s, if a terminal may show it; 0 if it is invalid or a control
 * character. */
static size_t printable(const unsigned char *s, size_t n)
{
    unsigned char c = s[0];
    if (c < 0x80) return c >= 0x20 && c != 0x7f;
    size_t len = c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
    if (len == 0 || len > n) return 0;
    for (size_t i = 1; i < len; i++) if ((s[i] & 0xc0) != 0x80) return 0;
    if ((c == 0xc2 && s[1] < 0xa0) || (c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] > 0x9f) ||
        (c == 0xf0 && s[1] < 0x90) || (c == 0xf4 && s[1] > 0x8f))
        return 0;
    return len;
}

/* Escapes one character of s for a terminal: writes up to 4 bytes to piece, and sets *used to the bytes of s
 * consumed. */
static size_t escape_one(char piece[4], const unsigned char *s, size_t n, size_t *used)
{
    static const char hex[] = "0123456789abcdef", from[] = "\n\t\r\"\\", to[] = "ntr\"\\";
    const char *e = s[0] ? strchr(from, s[0]) : NULL;
    size_t len = printable(s, n);
    *used = len && !e ? len : 1;
    if (e) {
        piece[0] = '\\';
        piece[1] = to[e - from];
        return 2;
    }
    if (len) {
        memcpy(piece, s, len);
        return len;
    }
    memcpy(piece, (char[]) {'\\', 'x', hex[s[0] >> 4], hex[s[0] & 15]}, 4);
    return 4;
}

size_t pi__str_escape(char *dst, size_t cap, pi__str s)
{
    size_t at = 0, keep = 0, used; /* keep: the last end of a character after which the dots still fit */
    if (cap == 0) return 0;
    for (size_t i = 0; i < s.n; i += used) {
        char piece[4];
        size_t n = escape_one(piece, (const unsigned char *) s.p + i, s.n - i, &used);
        if (at + n >= cap) {
            at = keep;
            for (int d = 0; d < 3 && at + 1 < cap; d++) dst[at++] = '.';
            break;
        }
        memcpy(dst + at, piece, n);
        at += n;
        if (at + 3 < cap) keep = at;
    }
    dst[at] = 0;
    return at;
}

int pi__gguf_fail(const pi__gguf_file *f, uint64_t off, const pi__gguf_where *w, pi_error *err, int code,
                  const char *fmt, ...)
{
    if (!err) return code;
    char name[56] = "", elem[24] = "", text[sizeof err->msg];
    if (w->name) {
        name[0] = ' ';
        name[1] = '\'';
        size_t n = 2 + pi__str_escape(name + 2, sizeof name - 3, *w->name);
        name[n] = '\'';
        name[n + 1] = 0;
    }
    if (w->elem != UINT64_MAX) snprintf(elem, sizeof elem, "[%llu]", (unsigned long long) w->elem);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pi__fail(err, code, "%s: %s%s%s at offset %llu: %s", f->label, w->field, name, elem,
                    (unsigned long long) off, text);
}
