/* encoding.h: UTF-8 and base64 without allocations. The tool, the server, libpagedinfer-openai and the backends in
 * integrations/ share these functions. No state: thread-safe. */
#ifndef PAGEDINFER_ENCODING_H
#define PAGEDINFER_ENCODING_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the length of the valid UTF-8 character at p (n bytes available); 0 if there is none. */
size_t utf8_char(const char *p, size_t n);

/* Repairs UTF-8 byte by byte. Invalid bytes become U+FFFD, one for each maximal prefix of a character, as in the
 * library's events. Zero it before the first byte. */
typedef struct utf8_hold {
    unsigned char b[4];    /* an incomplete character */
    size_t n;              /* bytes in b */
} utf8_hold;

/* Takes one byte, writes up to 7 bytes of text to out and returns their number. */
size_t utf8_step(utf8_hold *h, unsigned char c, char out[8]);
/* Ends the text: writes U+FFFD for an incomplete character, and returns the number of bytes (0 or 3). */
size_t utf8_end(utf8_hold *h, char out[8]);

/* Upper bound of the bytes that n characters of base64 stand for; n <= SIZE_MAX / 2. */
static inline size_t base64_max_bytes(size_t n) { return n / 4 * 3 + 2; }
/* Decodes base64 (the standard or the URL alphabet, white space, padding or none) to out, which has
 * base64_max_bytes(n) bytes, and stores their number. Returns false if the text is not base64. */
bool base64_decode(const char *s, size_t n, char *out, size_t *n_out);

#endif
