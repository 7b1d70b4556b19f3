/* Converts JSON text to jansson values and back. Request bodies and JSON files share the reader and the writer. The
 * reader accepts RFC 8259, any value at the top level, with these rules:
 *
 *     byte order mark      ignored at the start
 *     duplicate keys       the last value wins
 *     \u0000               an ordinary character; strings have lengths
 *     lone surrogate       becomes U+FFFD
 *     numbers              an integer of more than 63 bits, and a number beyond a double's range, keep their text:
 *                          see json_number_text
 *     nesting              at most JSON_MAX_DEPTH levels
 *
 * The caller owns the values. No state: thread-safe. */
#ifndef PAGEDINFER_JSON_H
#define PAGEDINFER_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { JSON_MAX_DEPTH = 256 };

typedef struct json_fault {
    bool no_memory;      /* out of memory; the text may be valid */
    size_t line, column; /* position of the first invalid character, from 1 */
    const char *what;    /* "expected a value"; static */
} json_fault;

/* Parses n bytes. Returns NULL on failure and fills *fault. */
json_t *json_read(const char *p, size_t n, json_fault *fault);

/* Returns the digits of a number that keeps its text; NULL for other values. jansson sees such a number as an object
 * with a key that is not UTF-8. No client can send that key, because the reader refuses it. */
const char *json_number_text(const json_t *v);

/* Writes the value as compact JSON, NUL-terminated; the caller frees it. Returns NULL if out of memory or if v is
 * NULL. precision: significant digits of real numbers; 0 = shortest exact form. Numbers that keep their text are
 * written unchanged. */
char *json_write(const json_t *v, int precision);

/* Sets the members of from in to; both are objects. Unlike jansson's copies it preserves keys that contain zero bytes.
 * Returns false if out of memory. */
bool json_add_members(json_t *to, const json_t *from);
/* True if v is a string without a zero byte. */
bool json_is_c_string(const json_t *v);
/* True if v is a string equal to text. */
bool json_text_is(const json_t *v, const char *text);

#endif
