/* Requests, for the engine's close and for functions that make prompts (request.c). */
#ifndef PI__REQUEST_H
#define PI__REQUEST_H

#include "api/objects.h"

/* PI_EINVAL = r is NULL or was submitted before. The prompt of a submitted request does not change. */
int pi__request_check_new(pi_request *r, pi_error *err);
/* Makes the n ids (heap) the prompt of r, which owns them from now on; frees the previous prompt and its call
 * grammar. */
void pi__request_take_prompt(pi_request *r, int32_t *ids, size_t n);
/* lock: asks the core to end all running samples of r; no effect unless r is running. */
void pi__request_cancel(pi_request *r);

#endif
