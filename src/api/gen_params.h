/* Request options as plain values (gen_params.c). */
#ifndef PI__GEN_PARAMS_H
#define PI__GEN_PARAMS_H

#include "api/objects.h"

/* Fills p from the options of r and checks them against the vocabulary. Free the arrays in p with
 * pi__gen_params_free; the breakers belong to r. */
int pi__gen_params_of(pi_request *r, pi__gen_params *p, pi_error *err);
void pi__gen_params_free(pi__gen_params *p);
/* Returns the grammar parts of tool calls only; f must have a grammar. */
pi__grammar_parts pi__call_parts(const pi__call_form *f);

#endif
