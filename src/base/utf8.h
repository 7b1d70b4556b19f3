/* UTF-8 by the Unicode standard: no overlong forms, no surrogates, nothing above U+10FFFF (utf8.c). */
#ifndef PI__UTF8_H
#define PI__UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Returns the length of the well-formed character at p, and its code point in *cp; 0 = not well-formed. */
size_t pi__utf8_char(const char *p, size_t n, uint32_t *cp);
/* Returns the number of bytes at the start of p, out of n, that are well-formed characters. */
size_t pi__utf8_valid(const char *p, size_t n);
/* Writes cp (at most 0x10FFFF, surrogates included) as UTF-8 to out (4 bytes); returns the length. */
size_t pi__utf8_put(uint32_t cp, char *out);
/* Returns the length of a character by its first byte only; 1 for bytes that cannot start a character. */
static inline size_t pi__utf8_len(unsigned char b) { return b < 0xC0 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4; }

/* State of a byte stream: holds the bytes of an incomplete character until the character is complete. */
typedef struct pi__utf8_hold {
    unsigned char b[4]; /* an incomplete sequence */
    uint32_t n;         /* bytes in it */
} pi__utf8_hold;
/* Feeds n bytes. Writes the complete characters to out and returns their number of bytes. Each maximal part of a
 * sequence that cannot become valid is replaced by U+FFFD. Capacity of out: n + 4 bytes if the input is valid UTF-8,
 * else 3 * (n + 4). */
size_t pi__utf8_feed(pi__utf8_hold *h, const char *p, size_t n, char *out);
/* Ends the stream: an incomplete sequence becomes one U+FFFD. Writes at most 3 bytes to out; returns their number. */
size_t pi__utf8_flush(pi__utf8_hold *h, char *out);

#endif
