/* Errors as clients see them: HTTP statuses, and error objects in OpenAI's format. Pure functions: thread-safe. */
#ifndef PAGEDINFER_SERVE_FAULT_H
#define PAGEDINFER_SERVE_FAULT_H

#include <jansson.h>

/* Returns the HTTP status for an error code of the library. */
int status_of(int pi_code);
/* Returns {"error": {"message", "type", "param", "code"}}; param and code may be NULL. NULL = out of memory. */
json_t *fault_json(int status, const char *param, const char *code, const char *message);

#endif
