/* Whether two files have the same vocabulary. */
#ifndef PI__VOCAB_COMPARE_H
#define PI__VOCAB_COMPARE_H

#include "gguf/gguf.h"

/* PI_EINVAL: model-draft's tokens, of file draft, are not the model's. A few may differ (some sizes of a family name reserved
 * tokens in another way): drafts of those are wrong, and that is all. */
int pi__vocab_compare(const pi__gguf *model, const pi__gguf *draft, pi_error *err);

#endif
