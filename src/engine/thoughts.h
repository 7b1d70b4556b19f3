/* Limits the thinking tokens of a sequence before its answer (option reasoning-budget).
 *
 * Follows the tokens of prompt and answer to know whether the model is thinking: after an opening tag, in the prompt
 * or the answer, and before the closing tag. After `budget` thinking tokens it forces the closing tag, preceded by
 * the message if one was given. The result depends only on the sequence's own tokens. Created at submit; nothing is
 * allocated later. One thread at a time. */
#ifndef PI__THOUGHTS_H
#define PI__THOUGHTS_H

#include "tokenizer/vocab.h"

typedef struct pi__thoughts pi__thoughts;

/* Creates the limit for one sequence and reads its prompt. budget: max thinking tokens, not negative. message: text
 * before the closing tag, "" or NULL = none. v must outlive *out. */
int pi__thoughts_new(pi__thoughts **out, const pi__vocab *v, int32_t budget, const char *message, const int32_t *prompt,
                     size_t n_prompt, pi_error *err);
void pi__thoughts_free(pi__thoughts *t);
/* Adds the next token of the answer. */
void pi__thoughts_accept(pi__thoughts *t, int32_t id);
/* Returns the token that must be next; -1 = any token. t may be NULL. */
int32_t pi__thoughts_forced(const pi__thoughts *t);

#endif
