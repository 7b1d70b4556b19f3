/* Adapters from options: the ones that an engine loads at opening, and the ones that a request selects. */
#ifndef PI__API_LORA_H
#define PI__API_LORA_H

#include "api/objects.h"

/* Loads the adapters of options lora-file, lora-scaled and lora-modules, in this order, with their default scales. */
int pi__engine_open_lora(pi_engine *e, const pi_options *o, pi_error *err);
/* Returns the bytes of these adapters' files, an estimate of their memory. Missing files count as 0. */
uint64_t pi__lora_file_bytes(const pi_options *o);
/* Parses option "lora" of a request into p->lora and p->lora_given; pi__gen_params_free frees p->lora. PI_EINVAL: bad
 * syntax; PI_ENOMEM. */
int pi__lora_asked(const char *text, pi__gen_params *p, pi_error *err);

#endif
