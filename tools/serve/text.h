/* UTF-8 for JSON: assembles token bytes into complete characters. Invalid bytes become U+FFFD, one for each maximal
 * prefix of a character, as in the library's events. Also tracks, per thread, if a JSON allocation failed. */
#ifndef PAGEDINFER_SERVE_TEXT_H
#define PAGEDINFER_SERVE_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "serve/buf.h"

typedef struct utf8_hold { /* an incomplete character */
    unsigned char b[4];
    size_t n;              /* bytes in b */
} utf8_hold;

/* Takes one byte, writes up to 7 bytes of text to out and returns their number. */
size_t utf8_step(utf8_hold *h, unsigned char c, char out[8]);
/* Returns a JSON string of n bytes with invalid UTF-8 replaced; NULL = out of memory. */
json_t *text_json(const char *p, size_t n);
/* Appends the text to b as a quoted JSON string, with invalid UTF-8 replaced. */
void text_put_json(buf *b, const char *p, size_t n);

/* Appends the bytes of base64 text; white space is skipped. Returns false if the text is not base64. */
bool text_put_base64(const char *s, size_t n, buf *out);

enum { ANSWER_DIGITS = 9 }; /* significant digits of real numbers in responses: enough for a float */

/* A JSON tree has many small parts, and any of them is missing if its allocation failed. The code that sends the
 * complete tree checks text_failed once. */
void text_watch_memory(void);  /* starts watching jansson's allocations; call before any other function of jansson */
void text_no_memory(void);     /* records that a part built by this thread is missing */
bool text_failed(void);        /* true if a part is missing since the last call on this thread */

#endif
