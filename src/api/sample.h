/* The samples of a request as jobs of the core, and their results (sample.c). "lock" = the engine's lock is held. */
#ifndef PI__SAMPLE_H
#define PI__SAMPLE_H

#include "api/objects.h"

void pi__sample_init(pi__sample *s, pi_request *r, uint32_t index);
/* Frees the samples of an earlier refused submit. Creates r's samples (option n) and the automaton of its stop strings.
 * After a failure the caller still calls pi__samples_free. */
int pi__samples_make(pi_request *r, pi_error *err);
/* Fills *j with the core's job for sample s. The job points into p, which must outlive the submit. */
void pi__sample_job(pi__sample *s, const pi__gen_params *p, pi__job *j);
/* lock: fills *sum with the combined results of all samples of r, final or so far, as pi_request_result documents. */
void pi__samples_sum(const pi_request *r, pi_result *sum);

#endif
