/* The messages of `pagedinfer chat`: an array of JSON objects with "role", "content" and, for reasoning,
 * "reasoning_content", as in chat APIs. Texts are UTF-8; the callers have checked that. */
#ifndef PAGEDINFER_CONVERSATION_H
#define PAGEDINFER_CONVERSATION_H

#include <jansson.h>

#include "cli.h"

/* Adds a message; thoughts NULL = no reasoning_content. Returns false if out of memory; nothing is added then. */
bool conversation_add(json_t *messages, const char *role, const char *text, size_t n, const char *thoughts,
                      size_t n_thoughts);
/* Replaces the content of the last message; takes ownership of content. Returns false if content is NULL, or out of
 * memory. */
bool conversation_set_content(json_t *messages, json_t *content);
/* True if the last message has this role. */
bool conversation_last_is(const json_t *messages, const char *role);
void conversation_drop_last(json_t *messages);
/* Removes all messages except the system prompt. */
void conversation_clear(json_t *messages);
/* Replaces the system prompt; n == 0 removes it. Returns false if out of memory. */
bool conversation_set_system(json_t *messages, const char *text, size_t n);

/* Save and load a conversation; both print error messages and return an exit code. The file is the array, or an object
 * with the array as "messages". */
int conversation_save(const cli *c, const json_t *messages, const char *path);
/* *out is a new array. */
int conversation_load(const cli *c, const char *path, json_t **out);

/* Returns the messages rendered by the model's template, NUL-terminated; the caller frees it. options: for
 * pi_chat_render, or NULL. Returns PI_OK or a negative code. */
int conversation_render(pi_engine *e, const json_t *messages, const char *options, char **out, size_t *len,
                        pi_error *err);

#endif
