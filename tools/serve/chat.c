/* Conversations (see chat.h). */
#include "serve/chat.h"

#include <stdlib.h>
#include <string.h>

#include "reasoning.h"

int chat_prepare(chat_state *c, const json_t *messages, const json_t *tools, const json_t *vars, pi_error *err)
{
    c->split = true;
    c->messages = json_dumps(messages, JSON_COMPACT);
    if (tools) c->tools = json_dumps(tools, JSON_COMPACT);
    if (vars) c->options = json_dumps(vars, JSON_COMPACT);
    if (c->messages && (!tools || c->tools) && (!vars || c->options)) return PI_OK;
    *err = (pi_error) {PI_ENOMEM, "out of memory"};
    return PI_ENOMEM;
}

int chat_render(chat_state *c, const pi_engine *e, char **out, size_t *n, pi_error *err)
{
    int64_t len = pi_chat_render(e, c->messages, c->tools, c->options, NULL, 0, err);
    *out = NULL;
    if (len < 0) return (int) len;
    if (!(*out = malloc((size_t) len + 1))) {
        *err = (pi_error) {PI_ENOMEM, "out of memory"};
        return PI_ENOMEM;
    }
    *n = (size_t) len;
    len = pi_chat_render(e, c->messages, c->tools, c->options, *out, *n, err);
    if (len >= 0 && (size_t) len < *n) *n = (size_t) len; /* a template with a clock in it */
    (*out)[*n] = 0;
    return len < 0 ? (int) len : PI_OK;
}

int chat_prompt(chat_state *c, const pi_engine *e, pi_request *r, pi_error *err)
{
    int rc = chat_render(c, e, &c->prompt, &c->n_prompt, err);
    return rc ? rc : pi_request_prompt_chat(r, c->messages, c->tools, c->options, err);
}

void chat_state_free(chat_state *c)
{
    free(c->messages);
    free(c->tools);
    free(c->options);
    free(c->prompt);
}

/* ---------------------------------------------------------------------------------------------------------- reading */

struct chat_reader {
    reasoning think;
    buf text[2];         /* content, reasoning of this call */
    chat_delta delta[2];
};

chat_reader *chat_reader_new(const chat_state *c, const pi_engine *e)
{
    chat_reader *r = calloc(1, sizeof *r);
    (void) e;
    if (r) reasoning_start(&r->think, c->prompt ? c->prompt : "", c->n_prompt);
    return r;
}

static void take(void *ud, bool thought, const char *text, size_t n)
{
    chat_reader *r = ud;
    buf_put(&r->text[thought], text, n);
}

int chat_read(chat_reader *r, const char *text, size_t n, bool last, const chat_delta **out, size_t *n_out)
{
    r->text[0].n = r->text[1].n = 0;
    reasoning_feed(&r->think, text, n, take, r);
    if (last) reasoning_end(&r->think, take, r);
    *out = r->delta;
    *n_out = 0;
    for (int i = 1; i >= 0; i--) { /* thoughts come first */
        if (!r->text[i].n) continue;
        r->delta[(*n_out)++] = (chat_delta) {.kind = i ? DELTA_REASONING : DELTA_CONTENT, .text = r->text[i].p,
                                             .n = r->text[i].n};
    }
    return r->text[0].failed || r->text[1].failed ? PI_ENOMEM : PI_OK;
}

bool chat_called(const chat_reader *r)
{
    (void) r;
    return false;
}

void chat_reader_free(chat_reader *r)
{
    if (!r) return;
    buf_free(&r->text[0]);
    buf_free(&r->text[1]);
    free(r);
}
