/* UTF-8 for JSON: bytes of tokens become whole characters, and what is none becomes U+FFFD, one for each maximal part
 * that could have begun a character, which is what the library's events do. No memory but text_json's. */
#ifndef PAGEDINFER_SERVE_TEXT_H
#define PAGEDINFER_SERVE_TEXT_H

#include <jansson.h>
#include <stddef.h>

typedef struct utf8_hold { /* an unfinished character */
    unsigned char b[4];
    size_t n;              /* bytes in b */
} utf8_hold;

/* Takes one byte; writes up to 7 bytes of text to out, and returns how many. */
size_t utf8_step(utf8_hold *h, unsigned char c, char out[8]);
/* A JSON string of n bytes, repaired; NULL: out of memory. */
json_t *text_json(const char *p, size_t n);

#endif
