/* Converts conversations of all APIs into OpenAI chat messages, the input of chat templates. Works on JSON only, on
 * the pool's thread. */
#ifndef PAGEDINFER_SERVE_CONVERT_H
#define PAGEDINFER_SERVE_CONVERT_H

#include "serve/params.h"

/* Each fills p->messages, p->tools and p->template_vars from p->root. Returns PI_EINVAL or PI_ENOMEM on failure. */
int convert_chat(params *p, pi_error *err);      /* /v1/chat/completions */
int convert_anthropic(params *p, pi_error *err); /* /v1/messages */
int convert_responses(params *p, pi_error *err); /* /v1/responses */

#endif
