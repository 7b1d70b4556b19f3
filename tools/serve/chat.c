/* Conversations (see chat.h), on the library's prompt renderer and output parser. */
#include "serve/chat.h"

#include <stdlib.h>
#include <string.h>

#include "json.h"

static int no_memory(pi_error *err)
{
    *err = (pi_error) {PI_ENOMEM, "out of memory"};
    return PI_ENOMEM;
}

int chat_prepare(chat_state *c, const json_t *messages, const json_t *tools, const json_t *vars, pi_error *err)
{
    c->messages = json_write(messages, 0);
    if (tools) c->tools = json_write(tools, 0);
    if (vars) c->options = json_write(vars, 0);
    return c->messages && (!tools || c->tools) && (!vars || c->options) ? PI_OK : no_memory(err);
}

int chat_render(chat_state *c, pi_work *limit, const pi_engine *e, char **out, size_t *n, pi_error *err)
{
    size_t cap = 2 * strlen(c->messages) + (c->tools ? 2 * strlen(c->tools) : 0) + 4096; /* usually sufficient */
    int64_t len = 0;
    *out = NULL;
    for (int i = 0; i < 2; i++) {
        char *p = realloc(*out, cap + 1);
        if (!p) return no_memory(err);
        *out = p;
        len = pi_work_chat_render(limit, e, c->messages, c->tools, c->options, p, cap, err);
        if (len < 0) return (int) len;
        *n = (size_t) len < cap ? (size_t) len : cap; /* the output can grow again if the template uses the clock */
        if ((size_t) len <= cap) break;
        cap = (size_t) len;
    }
    (*out)[*n] = 0;
    return PI_OK;
}

int chat_tokens(chat_state *c, pi_work *limit, const pi_engine *e, int32_t **ids, size_t *n, pi_error *err)
{
    *ids = NULL;
    *n = 0;
    /* usually sufficient, so that the prompt is rendered once */
    for (size_t cap = strlen(c->messages) + 4096;; cap = *n) {
        int32_t *p = realloc(*ids, cap * sizeof *p);
        if (!p) return no_memory(err);
        *ids = p;
        int64_t len = pi_work_chat_tokenize(limit, e, c->messages, c->tools, c->options, p, cap, err);
        if (len < 0) return (int) len;
        *n = (size_t) len;
        if (*n <= cap) return PI_OK;
    }
}

int chat_prompt(chat_state *c, pi_request *r, pi_error *err)
{
    return pi_request_prompt_chat(r, c->messages, c->tools, c->options, err);
}

void chat_state_free(chat_state *c)
{
    free(c->messages);
    free(c->tools);
    free(c->options);
}

/* --------------------------------------------------------------------------------------------------------- reading */

/* Tool calls are returned when complete: until then the parser may find that the text is not a call, and streamed data
 * cannot be withdrawn. Calls that a grammar guarantees are returned while they grow. */
struct chat_reader {
    pi_chat_parser *p;
    chat_delta *delta;   /* result of the last chat_read */
    size_t cap_delta;
    int n_calls;         /* calls returned */
    bool called;         /* chat_called */
    bool cut;            /* chat_cut */
};

int chat_reader_new(chat_reader **out, const chat_state *c, const pi_engine *e, pi_error *err)
{
    chat_reader *r = *out = calloc(1, sizeof *r);
    if (!r) return no_memory(err);
    return pi_chat_parser_new(&r->p, e, c->tools, c->options, err);
}

static bool add(chat_reader *r, size_t *n, chat_delta d)
{
    if (!grow(&r->delta, &r->cap_delta, *n + 1, sizeof d)) return false;
    r->delta[(*n)++] = d;
    return true;
}

static bool add_call(chat_reader *r, size_t *n, uint32_t index)
{
    pi_chat_call call = {.size = sizeof call};
    uint32_t i = 0;
    while (!pi_chat_parser_call(r->p, i, &call) && call.index != index) i++;
    if (call.index != index || !call.id) return true;
    const int k = r->n_calls++;
    return add(r, n, (chat_delta) {.kind = DELTA_CALL, .call = k, .id = call.id, .name = call.name}) &&
           add(r, n, (chat_delta) {.kind = DELTA_ARGS, .call = k, .text = call.arguments, .n = call.arguments_len});
}

static bool take(chat_reader *r, const pi_chat_delta *d, size_t *n)
{
    chat_delta t = {.kind = DELTA_CONTENT, .text = d->text, .n = d->text_len, .call = r->n_calls - 1, .id = d->id,
                    .name = d->name};
    switch (d->kind) {
    case PI_CHAT_CONTENT: break;
    case PI_CHAT_REASONING: t.kind = DELTA_REASONING; break;
    case PI_CHAT_CALL:
        t.kind = DELTA_CALL;
        if (d->sure) t.call = r->n_calls++;
        break;
    case PI_CHAT_ARGUMENTS: t.kind = DELTA_ARGS; break;
    case PI_CHAT_CALL_END: return d->sure || add_call(r, n, d->index);
    default:
        r->cut |= d->sure;
        return true;
    }
    return ((t.kind == DELTA_CALL || t.kind == DELTA_ARGS) && !d->sure) || add(r, n, t);
}

/* Ends the parser. Text truncated by a stop string is treated like text truncated by a token limit. Returns false if
 * out of memory. */
static bool end(chat_reader *r, int finish, bool stopped)
{
    pi_chat_call call = {.size = sizeof call};
    const bool by_itself = finish == PI_FINISH_STOP;
    const int how = pi_chat_parser_end(r->p, by_itself && stopped ? PI_FINISH_LENGTH : finish);
    r->called = by_itself && how >= 0 && !pi_chat_parser_call(r->p, 0, &call);
    return how >= 0;
}

int chat_read(chat_reader *r, const char *text, size_t n, bool bound, int finish, bool stopped, const chat_delta **out,
              size_t *n_out)
{
    pi_chat_delta d = {.size = sizeof d};
    bool ok = !n || pi_chat_parser_feed(r->p, text, n) == PI_OK;
    *n_out = 0;
    if (bound) pi_chat_parser_bind(r->p);
    if (ok && finish) ok = end(r, finish, stopped);
    while (ok && pi_chat_parser_next(r->p, &d)) ok = take(r, &d, n_out);
    *out = r->delta;
    return ok ? PI_OK : PI_ENOMEM;
}

bool chat_called(const chat_reader *r) { return r->called; }
bool chat_cut(const chat_reader *r) { return r->cut; }

void chat_reader_free(chat_reader *r)
{
    if (!r) return;
    pi_chat_parser_free(r->p);
    free(r->delta);
    free(r);
}
