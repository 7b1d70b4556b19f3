/* The state of /v1/responses (--response-store): continuing a stored response, reading and deleting it. */
#ifndef PAGEDINFER_SERVE_RESPONSES_H
#define PAGEDINFER_SERVE_RESPONSES_H

#include "serve/reply.h"

/* Creates *out from a body: with "previous_response_id", "input" begins with the stored conversation of that response,
 * and the field is removed. Without a store, or without the field, *out is the body. previous: the id, or "";
 * *n_previous: the number of items of its conversation. owner: the API key, or NULL. Returns PI_EINVAL or PI_ENOMEM on
 * failure. Thread-safe. */
int responses_expand(const server *s, const char *owner, params *p, json_t *body, json_t **out, char previous[72],
                     size_t *n_previous, pi_error *err);
/* True if this request's response is to be stored. */
bool responses_stores(const gen *g);
/* Stores the complete response of g; output is its list of items. A failure is logged. */
void responses_store(const gen *g, const json_t *response, const json_t *output);

#endif
