/* Converts conversations of all APIs into OpenAI chat messages, the input of chat templates. Works on JSON only, on
 * the pool's thread. */
#ifndef PAGEDINFER_SERVE_CONVERT_H
#define PAGEDINFER_SERVE_CONVERT_H

#include "serve/params.h"

/* Each fills p->messages, p->tools and p->template_vars from p->root. Returns PI_EINVAL or PI_ENOMEM on failure. */
int convert_chat(params *p, pi_error *err);      /* /v1/chat/completions */
int convert_anthropic(params *p, pi_error *err); /* /v1/messages */
int convert_responses(params *p, pi_error *err); /* /v1/responses */

/* Ollama's API: each creates *out, a body in the format of another API, from body; the caller releases it, also after a
 * failure. Errors as above; p gets the bad field. */
int convert_ollama_chat(params *p, const json_t *body, json_t **out, pi_error *err);
/* *raw: the body is one of /v1/completions, else of /v1/chat/completions. */
int convert_ollama_generate(params *p, const json_t *body, json_t **out, bool *raw, pi_error *err);
/* input: the field with the texts. */
int convert_ollama_embed(params *p, const json_t *body, const char *input, json_t **out, pi_error *err);

#endif
