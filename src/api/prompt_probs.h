/* Log-probabilities of the tokens of a request's prompt: option prompt-logprobs (prompt_probs.c). */
#ifndef PI__PROMPT_PROBS_H
#define PI__PROMPT_PROBS_H

#include "api/objects.h"

/* Allocates memory for prompt-logprobs according to the options of r. r->n_prompt_probs 0 = not requested. */
int pi__prompt_probs_make(pi_request *r, const pi__gen_params *p, pi_error *err);
/* Step thread, no lock: evaluates the logits row at pos, while r->n_prompt_probs is not 0. The last row that predicts
 * a prompt token queues the event. */
void pi__prompt_probs_row(pi_request *r, uint32_t pos, const float *logits, size_t n_vocab);

#endif
