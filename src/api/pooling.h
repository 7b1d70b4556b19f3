/* Vectors of a prompt instead of an answer: option pooling (pooling.c). */
#ifndef PI__POOLING_H
#define PI__POOLING_H

#include "api/objects.h"

enum pi__pooling { /* in the order of the option's words */
    PI__POOL_OFF, PI__POOL_MODEL, PI__POOL_NONE, PI__POOL_MEAN, PI__POOL_CLS, PI__POOL_LAST, PI__POOL_RANK
};

/* Allocates memory for pooling according to the options of r, and sets the core's outputs in *p. r->pooling 0 = no
 * pooling. */
int pi__pooling_make(pi_request *r, pi__gen_params *p, pi_error *err);
/* Step thread, no lock: takes the hidden state at pos, while r->pooling is not 0. The last one queues the event. */
void pi__pooling_row(pi_request *r, uint32_t pos, const float *row);

#endif
