/* Finds the model that a request names: in the top-level field "model" of a JSON body, or in a query string. The scan
 * builds no tree and has no recursion, so its cost is one pass over the bytes. The model's process validates the body.
 *
 * No memory of its own: thread-safe. */
#ifndef PAGEDINFER_SERVE_MODEL_NAME_H
#define PAGEDINFER_SERVE_MODEL_NAME_H

#include <stdbool.h>
#include <stddef.h>

enum { MODEL_NAME_MAX = 512 }; /* bytes of a model's name, including NUL */

enum body_fault {
    BODY_OK,          /* `model` is set */
    BODY_NO_MODEL,    /* an object without the field, or with null */
    BODY_NOT_TEXT,    /* the field is no string, or has a zero byte */
    BODY_NOT_OBJECT,  /* the body is no JSON object, or is cut before the field */
    BODY_NO_MEMORY,
};

typedef struct body_fields {
    char model[MODEL_NAME_MAX]; /* "" = none; a longer name is cut, and equals no model */
    bool stream;                /* the field "stream" is true */
    enum body_fault fault;
} body_fields;

/* Scans a body of n bytes. key: the field with the name, "model". Of repeated fields the last one counts, as for the
 * reader of the process. */
void body_scan(const char *p, size_t n, const char *key, body_fields *out);
/* Copies the decoded value of a parameter of the query string, which has n bytes and begins with ?. Returns false if it
 * is missing, malformed, or has cap or more bytes. */
bool query_value(const char *query, size_t n, const char *name, char *out, size_t cap);

#endif
