/* Compares the vocabularies of two files. */
#ifndef PI__VOCAB_COMPARE_H
#define PI__VOCAB_COMPARE_H

#include "gguf/gguf.h"

/* Returns PI_EINVAL if the tokens of model-draft (file draft) are not the model's. Up to one in 100 may differ: some
 * sizes of a model family name reserved tokens differently. Drafts of these tokens are rejected, nothing else
 * happens. */
int pi__vocab_compare(const pi__gguf *model, const pi__gguf *draft, pi_error *err);

#endif
