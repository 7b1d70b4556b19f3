/* UTF-8 and base64 (see encoding.h). */
#include "encoding.h"

#include <stdint.h>
#include <string.h>

/* Returns the length of the character that begins with b; 0 if b is not a first byte. */
static size_t promised(unsigned char b)
{
    if (b < 0x80) return 1;
    if (b < 0xC2 || b > 0xF4) return 0;
    return b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

/* True if c may be byte i >= 1 of a character that begins with first: no overlong forms, no surrogates, nothing above
 * U+10FFFF. */
static bool fits(unsigned char first, size_t i, unsigned char c)
{
    unsigned char lo = 0x80, hi = 0xBF;
    if (i == 1) {
        lo = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
        hi = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    }
    return c >= lo && c <= hi;
}

static size_t bad(char *out)
{
    memcpy(out, "\xEF\xBF\xBD", 3);
    return 3;
}

size_t utf8_char(const char *p, size_t n)
{
    const unsigned char first = n ? (unsigned char) p[0] : 0;
    const size_t len = promised(first);
    if (len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if (!fits(first, i, (unsigned char) p[i])) return 0;
    return len;
}

size_t utf8_step(utf8_hold *h, unsigned char c, char out[8])
{
    size_t o = 0;
    if (h->n && !fits(h->b[0], h->n, c)) o += utf8_end(h, out);
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

size_t utf8_end(utf8_hold *h, char out[8])
{
    const size_t n = h->n ? bad(out) : 0;
    h->n = 0;
    return n;
}

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

bool base64_decode(const char *s, size_t n, char *out, size_t *n_out)
{
    uint32_t bits = 0;
    size_t n_digits = 0, n_pads = 0, o = 0;
    for (size_t i = 0; i < n; i++) {
        const int digit = base64_digit(s[i]);
        if (strchr(" \t\r\n", s[i]) && s[i]) continue;
        n_pads += s[i] == '=';
        if (s[i] == '=' && n_pads <= 2) continue;
        if (digit < 0 || n_pads) return false;
        bits = bits << 6 | (uint32_t) digit;
        n_digits++;
        /* The second, third and fourth digit of a group complete a byte; 4, 2 and 0 bits are left. */
        if (n_digits % 4 != 1) out[o++] = (char) (bits >> (4 - n_digits % 4) % 4 * 2);
    }
    *n_out = o;
    return n_digits % 4 != 1;
}
