/* Adapters by options: those that an engine opens with, and those that a request asks for. */
#ifndef PI__API_LORA_H
#define PI__API_LORA_H

#include "api/objects.h"

/* Loads what the options name. */
int pi__engine_open_lora(pi_engine *e, const pi_options *o, pi_error *err);
/* Option "lora" of a request to p->lora, which pi__gen_params_free gives back. */
int pi__lora_asked(const char *text, pi__gen_params *p, pi_error *err);

#endif
