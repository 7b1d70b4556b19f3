/* The messages of `pagedinfer chat`: an array of JSON objects with "role", "content" and, of thoughts,
 * "reasoning_content", as chat APIs have them. Texts are UTF-8; who puts them in has checked that. */
#ifndef PAGEDINFER_CONVERSATION_H
#define PAGEDINFER_CONVERSATION_H

#include <jansson.h>

#include "cli.h"

/* False: out of memory; nothing was added. thoughts may be NULL. */
bool conversation_add(json_t *messages, const char *role, const char *text, size_t n, const char *thoughts,
                      size_t n_thoughts);
/* Whether the last message is of this role. */
bool conversation_last_is(const json_t *messages, const char *role);
void conversation_drop_last(json_t *messages);
/* Only the system prompt stays. */
void conversation_clear(json_t *messages);
/* Another system prompt, n 0: none. False: out of memory. */
bool conversation_set_system(json_t *messages, const char *text, size_t n);

/* Both return an exit code and have said what is wrong. The file is the array, or an object with it as "messages". */
int conversation_save(const cli *c, const json_t *messages, const char *path);
/* *out is a new array. */
int conversation_load(const cli *c, const char *path, json_t **out);

/* The text that the model's template makes of it, NUL behind it; free it. options: of pi_chat_render, or NULL. Returns
 * PI_OK or a negative code. */
int conversation_render(pi_engine *e, const json_t *messages, const char *options, char **out, size_t *len,
                        pi_error *err);

#endif
