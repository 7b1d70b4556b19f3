/* Conversations: renders messages to a prompt, and splits the generated text into content, reasoning and tool calls.
 * Only this module calls the library's functions for both. */
#ifndef PAGEDINFER_SERVE_CHAT_H
#define PAGEDINFER_SERVE_CHAT_H

#include <jansson.h>

#include "pagedinfer.h"
#include "serve/buf.h"

enum { DELTA_CONTENT, DELTA_REASONING, DELTA_CALL, DELTA_ARGS };

/* A new part of an answer. */
typedef struct chat_delta {
    int kind;          /* DELTA_* */
    const char *text;  /* text of content, reasoning or arguments */
    size_t n;          /* bytes in text */
    int call;          /* DELTA_CALL, DELTA_ARGS: index of the tool call among the returned calls, from 0 */
    const char *id;    /* DELTA_CALL: id of the call */
    const char *name;  /* DELTA_CALL: name of the function */
} chat_delta;

typedef struct chat_state { /* input of one conversation, which the library renders */
    char *messages, *tools, *options; /* JSON text; NULL = not given */
} chat_state;

/* Stores the conversation in *c as JSON text. Does not need the engine. Returns PI_OK or PI_ENOMEM. The caller frees
 * *c with chat_state_free. */
int chat_prepare(chat_state *c, const json_t *messages, const json_t *tools, const json_t *vars, pi_error *err);
/* Sets the conversation as the prompt of r. Returns the result of pi_request_prompt_chat. Thread-safe. */
int chat_prompt(chat_state *c, pi_request *r, pi_error *err);
/* Returns the prompt as text, for /apply-template, within a work limit. The caller frees *out. */
int chat_render(chat_state *c, pi_work *limit, const pi_engine *e, char **out, size_t *n, pi_error *err);
/* Returns the same prompt token ids as chat_prompt. The caller frees *ids, also after a failure. */
int chat_tokens(chat_state *c, pi_work *limit, const pi_engine *e, int32_t **ids, size_t *n, pi_error *err);
void chat_state_free(chat_state *c);

typedef struct chat_reader chat_reader;
/* Creates a parser for one answer. The caller frees *out, also after a failure. */
int chat_reader_new(chat_reader **out, const chat_state *c, const pi_engine *e, pi_error *err);
/* Parses n more bytes of text, which includes control tokens. *out: the *n_out resulting deltas, valid until the next
 * call. bound: a tool-call grammar constrains the following text, so calls may be returned while they grow. finish:
 * PI_FINISH_* if the text ends here, else 0. stopped: a stop string truncated the text. Returns PI_OK or PI_ENOMEM. */
int chat_read(chat_reader *r, const char *text, size_t n, bool bound, int finish, bool stopped, const chat_delta **out,
              size_t *n_out);
/* True if the answer contains a tool call and ended normally or at a stop string: its finish reason is then
 * tool_calls. */
bool chat_called(const chat_reader *r);
/* True if the answer was truncated within its last tool call, after parts of that call were returned. */
bool chat_cut(const chat_reader *r);
void chat_reader_free(chat_reader *r);

#endif
