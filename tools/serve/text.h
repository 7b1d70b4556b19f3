/* UTF-8 for JSON: bytes of tokens become whole characters, and what is none becomes U+FFFD, one for each maximal part
 * that could have begun a character, which is what the library's events do; and whether JSON found the memory it asked
 * for, which each thread is told of its own. */
#ifndef PAGEDINFER_SERVE_TEXT_H
#define PAGEDINFER_SERVE_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "serve/buf.h"

typedef struct utf8_hold { /* an unfinished character */
    unsigned char b[4];
    size_t n;              /* bytes in b */
} utf8_hold;

/* Takes one byte; writes up to 7 bytes of text to out, and returns how many. */
size_t utf8_step(utf8_hold *h, unsigned char c, char out[8]);
/* A JSON string of n bytes, repaired; NULL: out of memory. */
json_t *text_json(const char *p, size_t n);
/* The same as JSON text, in quotes, behind what is in b. */
void text_put_json(buf *b, const char *p, size_t n);

enum { ANSWER_DIGITS = 9 }; /* significant digits of real numbers in answers: as many as a float needs */

/* JSON is put together from many small parts, one of which may be missing where there was no memory. Who gives the whole
 * out asks once, here. */
void text_watch_memory(void);  /* jansson's memory is watched from now on; before anything else of it is called */
void text_no_memory(void);     /* a part of what this thread makes is missing */
bool text_failed(void);        /* a part was, since this thread asked last */

#endif
