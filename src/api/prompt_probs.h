/* Log-probabilities of the tokens of a request's prompt: option prompt-logprobs (prompt_probs.c). */
#ifndef PI__PROMPT_PROBS_H
#define PI__PROMPT_PROBS_H

#include "api/objects.h"

/* Sets r->n_prompt_probs and, unless it is 0 (not requested), prepares r->prompt_event and allocates its
 * log-probabilities. Creates the engine's row_scratch on first use. Frees the memory of an earlier refused submit. */
int pi__prompt_probs_make(pi_request *r, const pi__gen_params *p, pi_error *err);
/* Step thread, no lock; only if r->n_prompt_probs is not 0: stores the log-probabilities of the prompt token after pos,
 * from the logits row at pos. The row for the last prompt token also queues r->prompt_event. */
void pi__prompt_probs_row(pi_request *r, uint32_t pos, const float *logits, size_t n_vocab);

#endif
