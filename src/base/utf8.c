/* UTF-8: characters, validity, and a hold that splits a byte stream at character boundaries.
 *
 * Well-formed as in the Unicode standard: no overlong forms, no surrogates, nothing above U+10FFFF. Each maximal part
 * of a bad sequence that could begin a character is replaced by one U+FFFD. No memory; the caller holds the state. */
#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"

/* Returns the length that the first byte announces; 0 = it cannot start a character. *lo..*hi is the range of the
 * second byte, which excludes overlong forms and surrogates. */
static size_t lead(unsigned char b, unsigned char *lo, unsigned char *hi)
{
    *lo = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    *hi = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
    if (b < 0x80) return 1;
    if (b < 0xC2 || b > 0xF4) return 0;
    return b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

/* Returns the bytes at p that are a character (*whole) or could begin one. 0 = the first byte is bad. */
static size_t prefix(const unsigned char *p, size_t n, bool *whole)
{
    unsigned char lo, hi;
    size_t want = lead(p[0], &lo, &hi), i = 1;
    *whole = want == 1;
    if (want < 2) return want;
    for (; i < want && i < n; i++) {
        if (p[i] < lo || p[i] > hi) return i;
        lo = 0x80;
        hi = 0xBF;
    }
    *whole = i == want;
    return i;
}

size_t pi__utf8_char(const char *p, size_t n, uint32_t *cp)
{
    const unsigned char *s = (const unsigned char *) p;
    bool whole;
    size_t len = n ? prefix(s, n, &whole) : 0;
    if (!len || !whole) return 0;
    uint32_t c = len == 1 ? s[0] : s[0] & (0x7Fu >> len);
    for (size_t i = 1; i < len; i++) c = c << 6 | (s[i] & 0x3F);
    *cp = c;
    return len;
}

size_t pi__utf8_valid(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t w;
        if (n - i >= 8 && (memcpy(&w, p + i, 8), !(w & 0x8080808080808080u))) {
            i += 8; /* eight ASCII bytes in one step */
            continue;
        }
        uint32_t cp;
        size_t len = pi__utf8_char(p + i, n - i, &cp);
        if (!len) break;
        i += len;
    }
    return i;
}

size_t pi__utf8_put(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char) cp;
        return 1;
    }
    size_t len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, cp >>= 6) out[i] = (char) (0x80 | (cp & 0x3F));
    out[0] = (char) (0xF00u >> len | cp);
    return len;
}

/* Appends U+FFFD. */
static size_t bad(char *out)
{
    memcpy(out, "\xEF\xBF\xBD", 3);
    return 3;
}

size_t pi__utf8_feed(pi__utf8_hold *h, const char *p, size_t n, char *out)
{
    size_t o = 0;
    for (size_t i = 0; i < n;) {
        if (!h->n) { /* fast path: copy complete characters */
            size_t ok = pi__utf8_valid(p + i, n - i);
            memcpy(out + o, p + i, ok);
            o += ok;
            i += ok;
            if (i == n) break;
        }
        h->b[h->n++] = (unsigned char) p[i++];
        bool whole;
        size_t len = prefix(h->b, h->n, &whole);
        if (whole) {
            memcpy(out + o, h->b, len);
            o += len;
            h->n = 0;
        } else if (len < h->n) { /* bad: replace its maximal part; the byte that ended it starts a new sequence */
            o += bad(out + o);
            if (len) i--;
            h->n = 0;
        }
    }
    return o;
}

size_t pi__utf8_flush(pi__utf8_hold *h, char *out)
{
    size_t o = h->n ? bad(out) : 0;
    h->n = 0;
    return o;
}
