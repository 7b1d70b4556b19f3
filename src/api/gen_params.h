/* Request options as plain values (gen_params.c). */
#ifndef PI__GEN_PARAMS_H
#define PI__GEN_PARAMS_H

#include "api/objects.h"

/* Fills p from the options of r and checks them against the vocabulary. Compiles the grammar of the answer (p->grammar)
 * within the budget r->work, and sets r->breakers, to which p points. Frees everything in p on failure; otherwise the
 * caller frees it with pi__gen_params_free. */
int pi__gen_params_of(pi_request *r, pi__gen_params *p, pi_error *err);
void pi__gen_params_free(pi__gen_params *p);
/* Returns the grammar parts for an answer that only the call grammar of f constrains. f->grammar.p must not be NULL. */
pi__grammar_parts pi__call_parts(const pi__call_form *f);

#endif
