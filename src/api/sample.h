/* The samples of a request as jobs of the core, and their results (sample.c). "lock" = the engine's lock is held. */
#ifndef PI__SAMPLE_H
#define PI__SAMPLE_H

#include "api/objects.h"

void pi__sample_init(pi__sample *s, pi_request *r, uint32_t index);
/* Creates the number of samples of option n. After a failure the caller still calls pi__samples_free. */
int pi__samples_make(pi_request *r, pi_error *err);
/* Fills the core's job for a sample. The job points into p. */
void pi__sample_job(pi__sample *s, const pi__gen_params *p, pi__job *j);
/* lock: combines the results of all samples of r, final or so far. */
void pi__samples_sum(const pi_request *r, pi_result *sum);

#endif
