/* Prompts of models that fill in the middle (FIM). */
#ifndef PI__INFILL_H
#define PI__INFILL_H

#include "tokenizer/vocab.h"

/* Appends the prompt that pi_infill documents to ids. PI_EUNSUPPORTED: the vocabulary has no FIM tokens. PI_EINVAL:
 * the typed text alone exceeds in->max_tokens. Also PI_ENOMEM and the code of ids->work. The caller frees ids on
 * failure too. */
int pi__infill(const pi__vocab *v, const pi_infill_parts *in, pi__ids *ids, pi_error *err);

#endif
