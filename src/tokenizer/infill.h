/* Prompts of models that fill in the middle (FIM). */
#ifndef PI__INFILL_H
#define PI__INFILL_H

#include "tokenizer/vocab.h"

/* Appends the prompt that pi_infill documents to ids. PI_EUNSUPPORTED: the vocabulary has no tokens for it; PI_EINVAL: what
 * was typed alone takes more than in->max_tokens; PI_ENOMEM, or the code of ids->work. On failure ids is still to be freed. */
int pi__infill(const pi__vocab *v, const pi_infill_parts *in, pi__ids *ids, pi_error *err);

#endif
