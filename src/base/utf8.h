/* UTF-8, as the Unicode standard has it: no overlong forms, no surrogates, nothing above U+10FFFF (utf8.c). */
#ifndef PI__UTF8_H
#define PI__UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length of the well-formed character at p, 0: none there. *cp gets the code point. */
size_t pi__utf8_char(const char *p, size_t n, uint32_t *cp);
/* Bytes that well-formed characters cover from the start of p. */
size_t pi__utf8_valid(const char *p, size_t n);
/* Writes cp (at most 0x10FFFF, surrogates included) as UTF-8 to out (4 bytes); returns the length. */
size_t pi__utf8_put(uint32_t cp, char *out);
/* Bytes a character takes by its first byte alone, 1 for one that cannot start a character. */
static inline size_t pi__utf8_len(unsigned char b) { return b < 0xC0 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4; }

/* Streaming: bytes are held back until they form whole UTF-8 characters. */
typedef struct pi__utf8_hold {
    unsigned char b[4]; /* an incomplete sequence */
    uint32_t n;         /* bytes in it */
} pi__utf8_hold;
/* Feeds n bytes; writes what is complete to out (cap >= n + 4) and returns its length. A byte sequence that can never
 * become valid is replaced by U+FFFD (one for each maximal bad part; out needs up to 3 * (n + 4) bytes then). */
size_t pi__utf8_feed(pi__utf8_hold *h, const char *p, size_t n, char *out);
/* The rest at the end: an incomplete sequence becomes U+FFFD. out holds at least 12 bytes. */
size_t pi__utf8_flush(pi__utf8_hold *h, char *out);

#endif
