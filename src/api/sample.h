/* The samples of a request as jobs of the core, and what they came to (sample.c). "lock": the engine's lock is held. */
#ifndef PI__SAMPLE_H
#define PI__SAMPLE_H

#include "api/objects.h"

void pi__sample_init(pi__sample *s, pi_request *r, uint32_t index);
/* As many as the options of r say, ready to run. On failure pi__samples_free is needed all the same. */
int pi__samples_make(pi_request *r, pi_error *err);
/* The core's job for a sample of a request with these parameters, which are referred to. */
void pi__sample_job(pi__sample *s, const pi__gen_params *p, pi__job *j);
/* lock: what all samples of r came to, or to so far. */
void pi__samples_sum(const pi_request *r, pi_result *sum);

#endif
