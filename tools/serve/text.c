/* UTF-8 for JSON, and detection of failed allocations (see text.h). */
#include "serve/text.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the length of the character that begins with b; 0 if b is not a first byte. */
static size_t promised(unsigned char b)
{
    if (b < 0x80) return 1;
    if (b < 0xC2 || b > 0xF4) return 0;
    return b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

/* True if c may follow the held bytes: no overlong forms, no surrogates, nothing above U+10FFFF. */
static int fits(const utf8_hold *h, unsigned char c)
{
    unsigned char lo = 0x80, hi = 0xBF;
    if (h->n == 1) {
        lo = h->b[0] == 0xE0 ? 0xA0 : h->b[0] == 0xF0 ? 0x90 : 0x80;
        hi = h->b[0] == 0xED ? 0x9F : h->b[0] == 0xF4 ? 0x8F : 0xBF;
    }
    return c >= lo && c <= hi;
}

static size_t bad(char *out)
{
    memcpy(out, "\xEF\xBF\xBD", 3);
    return 3;
}

size_t utf8_step(utf8_hold *h, unsigned char c, char out[8])
{
    size_t o = 0;
    if (h->n && !fits(h, c)) {
        o += bad(out);
        h->n = 0;
    }
    if (!h->n && promised(c) < 2) {
        if (!promised(c)) return o + bad(out + o);
        out[o++] = (char) c;
        return o;
    }
    h->b[h->n++] = c;
    if (h->n < promised(h->b[0])) return o;
    memcpy(out + o, h->b, h->n);
    o += h->n;
    h->n = 0;
    return o;
}

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
    if (h.n) o += bad(fixed + o);
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
    if (h.n) m += bad(part + m);
    buf_put(b, part, m);
    buf_put(b, "\"", 1);
}

/* ---------------------------------------------------------------------------------------------------------- base64 */

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

bool text_put_base64(const char *s, size_t n, buf *out)
{
    uint32_t bits = 0;
    size_t n_digits = 0, n_pads = 0;
    for (size_t i = 0; i < n; i++) {
        const int digit = base64_digit(s[i]);
        if (strchr(" \t\r\n", s[i]) && s[i]) continue;
        n_pads += s[i] == '=';
        if (s[i] == '=' && n_pads <= 2) continue;
        if (digit < 0 || n_pads) return false;
        bits = bits << 6 | (uint32_t) digit;
        n_digits++;
        if (n_digits % 4 == 0) buf_put(out, (char[]) {(char) (bits >> 16), (char) (bits >> 8), (char) bits}, 3);
    }
    if (n_digits % 4 == 2) buf_put(out, (char[]) {(char) (bits >> 4)}, 1);
    if (n_digits % 4 == 3) buf_put(out, (char[]) {(char) (bits >> 10), (char) (bits >> 2)}, 2);
    return n_digits % 4 != 1;
}
