/* Text for JSON: strings of valid UTF-8 (encoding.h). Also tracks, per thread, if a JSON allocation failed. */
#ifndef PAGEDINFER_SERVE_TEXT_H
#define PAGEDINFER_SERVE_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "encoding.h"
#include "serve/buf.h"

/* Returns a JSON string of n bytes with invalid UTF-8 replaced; NULL = out of memory. */
json_t *text_json(const char *p, size_t n);
/* Appends the text to b as a quoted JSON string, with invalid UTF-8 replaced. */
void text_put_json(buf *b, const char *p, size_t n);

/* Appends the bytes of base64 text. Returns false, and appends nothing, if the text is not base64. Out of memory sets
 * out->failed and returns true. */
bool text_put_base64(const char *s, size_t n, buf *out);

enum { ANSWER_DIGITS = 9 }; /* significant digits of real numbers in responses: enough for a float */

/* A JSON tree has many small parts, and any of them is missing if its allocation failed. The code that sends the
 * complete tree checks text_failed once. */
void text_watch_memory(void);  /* starts watching jansson's allocations; call before any other function of jansson */
void text_no_memory(void);     /* records that a part built by this thread is missing */
bool text_failed(void);        /* true if a part is missing since the last call on this thread */

#endif
