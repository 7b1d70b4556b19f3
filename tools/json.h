/* JSON text to values of jansson and back. One reader for request bodies and JSON files, one writer for its values. The
 * reader takes RFC 8259, any value at the top, with these rules:
 *
 *   byte order mark      ignored at the start
 *   duplicate keys       the last value wins
 *   \u0000               a character like others; texts have lengths
 *   half a surrogate     becomes U+FFFD
 *   numbers              an integer of more than 63 bits, and a number beyond a double's range, keep their text:
 *                        see json_number_text
 *   nesting              at most JSON_MAX_DEPTH levels
 *
 * Memory: the caller's. No state: any thread. */
#ifndef PAGEDINFER_JSON_H
#define PAGEDINFER_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { JSON_MAX_DEPTH = 256 };

typedef struct json_fault {
    bool no_memory;      /* the text may be right */
    size_t line, column; /* of the first wrong character, from 1 */
    const char *what;    /* "expected a value"; static */
} json_fault;

/* The value in n bytes. NULL: *fault says why. */
json_t *json_read(const char *p, size_t n, json_fault *fault);

/* The digits of a number that keeps its text; NULL for every other value. To jansson such a number is an object with a key
 * that is not UTF-8. No client can write that key, because the reader refuses it. */
const char *json_number_text(const json_t *v);

/* The value as compact JSON, NUL-terminated; release it with free. NULL = out of memory, also when v is NULL.
 * precision: significant digits of real numbers, 0 = as many as the value needs. Numbers that keep their text are written
 * with it. */
char *json_write(const json_t *v, int precision);

/* Sets the members of from in to, both objects. Unlike jansson's own copies it keeps keys with zero characters whole.
 * false: out of memory. */
bool json_add_members(json_t *to, const json_t *from);
/* A string without a zero byte, which a C string can hold. */
bool json_is_c_string(const json_t *v);
/* A string of exactly this text. */
bool json_text_is(const json_t *v, const char *text);
/* Bytes of the well-formed UTF-8 character at p, of n bytes; 0 = there is none. */
size_t utf8_char(const char *p, size_t n);

#endif
