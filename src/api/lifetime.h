/* The lifetime of a request, and its memory (lifetime.c). "lock" = the engine's lock is held. */
#ifndef PI__LIFETIME_H
#define PI__LIFETIME_H

#include "api/objects.h"

/* lock: removes r from the engine's list of running requests; no reference changes. */
void pi__request_leave(pi_request *r);
/* lock: drops one reference. true = it was the last: the caller calls pi__request_destroy without the lock. */
bool pi__request_unref(pi_request *r);
void pi__request_destroy(pi_request *r);
/* Frees the samples' texts and tokens, all samples except the first, and the stop automaton. r has one sample then.
 * Valid after a pi__samples_make that failed. */
void pi__samples_free(pi_request *r);
/* Frees the log-probabilities of prompt tokens, and sets r->n_prompt_probs to 0. */
void pi__prompt_probs_free(pi_request *r);

#endif
