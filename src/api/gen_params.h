/* The options of a request as plain values (gen_params.c). */
#ifndef PI__GEN_PARAMS_H
#define PI__GEN_PARAMS_H

#include "api/objects.h"

/* The generation parameters that the options of r say, checked against the vocabulary. The arrays in p are freed by
 * pi__gen_params_free; breakers stay with r. */
int pi__gen_params_of(pi_request *r, pi__gen_params *p, pi_error *err);
void pi__gen_params_free(pi__gen_params *p);
/* The grammar of calls alone; f must have one. */
pi__grammar_parts pi__call_parts(const pi__call_form *f);

#endif
