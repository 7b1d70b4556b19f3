/* The lifetime of a request, and its memory (lifetime.c). "lock": the engine's lock is held. */
#ifndef PI__LIFETIME_H
#define PI__LIFETIME_H

#include "api/objects.h"

/* lock: it is not running any more. */
void pi__request_leave(pi_request *r);
/* lock: gives back one reference. true: it was the last, and the caller calls pi__request_destroy without the lock. */
bool pi__request_unref(pi_request *r);
void pi__request_destroy(pi_request *r);
/* Memory that a submit made, or half of it. */
void pi__samples_free(pi_request *r);
void pi__prompt_probs_free(pi_request *r);

#endif
