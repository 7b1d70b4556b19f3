/* Images of client requests: from a URL or base64 to images of an engine request. Decoding and
 * fetching take long. Thread-safe. */
#ifndef PAGEDINFER_SERVE_MEDIA_H
#define PAGEDINFER_SERVE_MEDIA_H

#include "serve/params.h"
#include "serve/service.h"

/* Adds images first .. first + n - 1 of p to r, before the prompt. Reads all headers first, so that too many tokens are
 * refused before an image is decoded. work: limit, checked between steps. Returns PI_OK, or the code of a failure with
 * a text for the client; p->bad_field is then `field`. */
int media_add(const service *sv, params *p, size_t first, size_t n, const char *field, pi_request *r, pi_work *work,
              pi_error *err);
/* Adds the tokens of all images of p to *n_tokens, from their headers. Errors as media_add. */
int media_count(const service *sv, params *p, const char *field, pi_work *work, uint64_t *n_tokens, pi_error *err);
/* Makes the marker for images in the prompts of /completion: random, so that text of clients does not contain it, or
 * the value of LLAMA_MEDIA_MARKER. */
void media_make_marker(service *sv);

#endif
