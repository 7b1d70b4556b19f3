/* Conversations: messages to a prompt, and the answer's text to content, reasoning and tool calls. The one place that
 * knows how the library does either. */
#ifndef PAGEDINFER_SERVE_CHAT_H
#define PAGEDINFER_SERVE_CHAT_H

#include <jansson.h>

#include "pagedinfer.h"
#include "serve/buf.h"

enum { DELTA_CONTENT, DELTA_REASONING, DELTA_CALL, DELTA_ARGS };

/* Something that was added to an answer. */
typedef struct chat_delta {
    int kind;          /* DELTA_* */
    const char *text;  /* of content, reasoning or arguments */
    size_t n;          /* bytes in text */
    int call;          /* DELTA_CALL, DELTA_ARGS: which tool call, from 0 */
    const char *id;    /* DELTA_CALL */
    const char *name;  /* DELTA_CALL */
} chat_delta;

typedef struct chat_state { /* of a conversation */
    char *messages, *tools, *options; /* as JSON text; NULL: none */
} chat_state;

/* JSON text of the conversation; the engine is not needed yet. PI_ENOMEM or PI_OK. */
int chat_prepare(chat_state *c, const json_t *messages, const json_t *tools, const json_t *vars, pi_error *err);
/* The prompt of r. Any thread. */
int chat_prompt(chat_state *c, pi_request *r, pi_error *err);
/* The prompt as text, of /apply-template, within a limit of work; free it. */
int chat_render(chat_state *c, pi_work *limit, const pi_engine *e, char **out, size_t *n, pi_error *err);
/* The prompt as token ids, the ones that chat_prompt gives to a request, in the same way. Free *ids in any case. */
int chat_tokens(chat_state *c, pi_work *limit, const pi_engine *e, int32_t **ids, size_t *n, pi_error *err);
void chat_state_free(chat_state *c);

typedef struct chat_reader chat_reader;
/* Reads one answer. On failure *out is still to be freed. */
int chat_reader_new(chat_reader **out, const chat_state *c, const pi_engine *e, pi_error *err);
/* Takes text, with control tokens in it; *out are the deltas that it comes to, valid until the next call. bound: a
 * grammar of calls holds what follows, and calls may be given out as they grow. finish: PI_FINISH_* where nothing
 * follows, else 0; stopped: a stop string cut the text off. PI_ENOMEM or PI_OK. */
int chat_read(chat_reader *r, const char *text, size_t n, bool bound, int finish, bool stopped, const chat_delta **out, size_t *n_out);
/* The answer ended by itself or at a stop string, and holds a tool call. */
bool chat_called(const chat_reader *r);
/* The answer was cut off within a call that was given out as it grew: the last one. */
bool chat_cut(const chat_reader *r);
void chat_reader_free(chat_reader *r);

#endif
