/* Requests, for who closes the engine and who makes prompts (request.c). */
#ifndef PI__REQUEST_H
#define PI__REQUEST_H

#include "api/objects.h"

/* PI_EINVAL: there is none, or it was submitted before; those do not change. */
int pi__request_check_new(pi_request *r, pi_error *err);
/* ids (on the heap) becomes the prompt, in the place of the one before and of what belonged to that. */
void pi__request_take_prompt(pi_request *r, int32_t *ids, size_t n);
/* lock: asks the core to end it. */
void pi__request_cancel(pi_request *r);

#endif
