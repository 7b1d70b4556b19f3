/* How long a sequence may think before its answer (option reasoning-budget).
 *
 * Follows the tokens of prompt and answer, and knows whether the model is in its thoughts: behind an opening tag, the
 * prompt's last one or one of its own, and before the closing one. After so many tokens of thought the closing tag is
 * forced, with a message before it if one was given. What it says depends on the sequence's own tokens alone. Made at
 * submit; nothing is allocated later. One thread at a time. */
#ifndef PI__THOUGHTS_H
#define PI__THOUGHTS_H

#include "tokenizer/vocab.h"

typedef struct pi__thoughts pi__thoughts;

/* budget: tokens, not negative. message: text before the closing tag, "" or NULL: none. v must outlive it. */
int pi__thoughts_new(pi__thoughts **out, const pi__vocab *v, int32_t budget, const char *message, const int32_t *prompt,
                     size_t n_prompt, pi_error *err);
void pi__thoughts_free(pi__thoughts *t);
/* The next token of the answer. */
void pi__thoughts_accept(pi__thoughts *t, int32_t id);
/* The token that has to be next; -1: any. t may be NULL. */
int32_t pi__thoughts_forced(const pi__thoughts *t);

#endif
