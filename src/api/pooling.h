/* Vectors of a prompt instead of an answer: option pooling (pooling.c). */
#ifndef PI__POOLING_H
#define PI__POOLING_H

#include "api/objects.h"

enum pi__pooling { /* in the order of the option's words */
    PI__POOL_OFF, PI__POOL_MODEL, PI__POOL_NONE, PI__POOL_MEAN, PI__POOL_CLS, PI__POOL_LAST, PI__POOL_RANK
};

/* Sets r->pooling from option pooling (0 = no pooling). With pooling, prepares r->prompt_event, allocates its vectors,
 * and sets fields of *p: hidden states instead of logits, of all positions or the last one, and no generated tokens. */
int pi__pooling_make(pi_request *r, pi__gen_params *p, pi_error *err);
/* Step thread, no lock; only if r->pooling is not 0: pools the hidden state at prompt position pos. The state of the
 * last position completes the vectors and queues r->prompt_event. */
void pi__pooling_row(pi_request *r, uint32_t pos, const float *row);

#endif
