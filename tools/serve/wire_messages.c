/* /v1/messages in Anthropic's format. A response is a list of blocks (text, thinking, tool_use), one open at a time.
 * Reading runs on the pool, writing on the loop (gen.h). */
#include <string.h>

#include "json.h"
#include "serve/convert.h"
#include "serve/fields.h"
#include "serve/gen.h"

static int read_messages(gen *g, pi_error *err)
{
    g->p.n = 1;
    g->p.logprobs = -1;
    return convert_anthropic(&g->p, err);
}

static const char *stop_reason(const choice *ch)
{
    if (!strcmp(ch->reason, "tool_calls")) return "tool_use";
    if (!strcmp(ch->reason, "length")) return "max_tokens";
    return *ch->res.stop ? "stop_sequence" : "end_turn";
}

static json_t *usage_of(const gen *g)
{
    usage u = gen_usage(g);
    return json_pack("{s:I, s:I, s:I, s:I}", "input_tokens", (json_int_t) (u.prompt - u.cached),
                     "cache_read_input_tokens", (json_int_t) u.cached, "cache_creation_input_tokens", (json_int_t) 0,
                     "output_tokens", (json_int_t) u.completion);
}

static json_t *message(const gen *g, json_t *content, const choice *ended)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?, s:s?, s:o}", "id", g->id, "type", "message", "role", "assistant",
                     "model", gen_model(g), "content", content, "stop_reason", ended ? stop_reason(ended) : NULL,
                     "stop_sequence", ended && *ended->res.stop ? ended->res.stop : NULL, "usage", usage_of(g));
}

static void messages_begin(gen *g)
{
    gen_send(g, "message_start", json_pack("{s:s, s:o}", "type", "message_start", "message",
                                           message(g, json_array(), NULL)));
    gen_send(g, "ping", json_pack("{s:s}", "type", "ping"));
}

static void close_block(gen *g, choice *ch)
{
    if (ch->block < 0) return;
    gen_send(g, "content_block_stop", json_pack("{s:s, s:i}", "type", "content_block_stop", "index", ch->block));
    ch->block = -1;
}

static void open_block(gen *g, choice *ch, int kind, json_t *block)
{
    close_block(g, ch);
    ch->block = (int) ch->n_blocks++;
    ch->block_kind = kind;
    gen_send(g, "content_block_start", json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", ch->block,
                                                 "content_block", block));
}

static void add_to_block(gen *g, const choice *ch, const char *type, const char *field, const chat_delta *d)
{
    gen_send(g, "content_block_delta",
             json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta", "index", ch->block, "delta", "type",
                       type, field, text_json(d->text, d->n)));
}

static void one_delta(gen *g, choice *ch, const chat_delta *d)
{
    bool open = ch->block >= 0 && ch->block_kind == d->kind;
    switch (d->kind) {
    case DELTA_CONTENT:
        if (!open) open_block(g, ch, d->kind, json_pack("{s:s, s:s}", "type", "text", "text", ""));
        add_to_block(g, ch, "text_delta", "text", d);
        break;
    case DELTA_REASONING:
        if (!open) {
            open_block(g, ch, d->kind,
                       json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", ""));
        }
        add_to_block(g, ch, "thinking_delta", "thinking", d);
        break;
    case DELTA_CALL:
        open_block(g, ch, d->kind, json_pack("{s:s, s:s, s:s, s:{}}", "type", "tool_use", "id", d->id, "name", d->name,
                                             "input"));
        break;
    case DELTA_ARGS:
        add_to_block(g, ch, "input_json_delta", "partial_json", d);
        break;
    }
}

static void messages_piece(gen *g, choice *ch, const piece *pc)
{
    for (size_t i = 0; i < pc->n_deltas; i++) one_delta(g, ch, &pc->delta[i]);
    if (pc->last) close_block(g, ch);
}

static void messages_finish(gen *g)
{
    const choice *ch = &g->choices[0];
    gen_send(g, "message_delta",
             json_pack("{s:s, s:{s:s, s:s?}, s:o}", "type", "message_delta", "delta", "stop_reason", stop_reason(ch),
                       "stop_sequence", *ch->res.stop ? ch->res.stop : NULL, "usage", usage_of(g)));
    gen_send(g, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static json_t *messages_whole(gen *g)
{
    const choice *ch = &g->choices[0];
    json_t *list = json_array();
    if (ch->reasoning.n) {
        json_array_append_new(list, json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                                              text_json(ch->reasoning.p, ch->reasoning.n), "signature", ""));
    }
    if (ch->content.n) {
        json_array_append_new(list, json_pack("{s:s, s:o}", "type", "text", "text",
                                              text_json(ch->content.p, ch->content.n)));
    }
    for (size_t i = 0; i < ch->n_calls; i++) {
        const tool_call *t = &ch->calls[i];
        json_t *input = json_read(t->args.p ? t->args.p : "", t->args.n, NULL);
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", t->id.p ? t->id.p : "",
                                        "name", t->name.p ? t->name.p : "", "input", input ? input : json_object()));
    }
    return ch->content.failed ? (json_decref(list), NULL) : message(g, list, ch);
}

const wire wire_messages = {.id_prefix = "msg_", .what = "message", .api = API_MESSAGES, .read = read_messages,
                            .begin = messages_begin, .piece = messages_piece, .finish = messages_finish,
                            .whole = messages_whole};
