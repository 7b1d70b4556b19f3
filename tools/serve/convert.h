/* Conversations of other APIs as the messages that OpenAI's chats have, which is what chat templates read; and those themselves.
 * Pure JSON, on the pool's thread. */
#ifndef PAGEDINFER_SERVE_CONVERT_H
#define PAGEDINFER_SERVE_CONVERT_H

#include "serve/params.h"

/* Each fills p->messages, p->tools and p->template_vars from p->root. PI_EINVAL, PI_ENOMEM. */
int convert_chat(params *p, pi_error *err);      /* of /v1/chat/completions */
int convert_anthropic(params *p, pi_error *err); /* of /v1/messages */
int convert_responses(params *p, pi_error *err); /* of /v1/responses */

#endif
