/* Log-probabilities of the tokens of a request's prompt: option prompt-logprobs (prompt_probs.c). */
#ifndef PI__PROMPT_PROBS_H
#define PI__PROMPT_PROBS_H

#include "api/objects.h"

/* Memory for what the options of r ask for with parameters p; r->n_prompt_probs says whether anything is. */
int pi__prompt_probs_make(pi_request *r, const pi__gen_params *p, pi_error *err);
/* Step thread, no lock: the row of logits at pos, while r->n_prompt_probs is not 0. The last one that tells something
 * about the prompt queues the event. */
void pi__prompt_probs_row(pi_request *r, uint32_t pos, const float *logits, size_t n_vocab);

#endif
