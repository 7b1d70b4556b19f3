/* /v1/responses, OpenAI's newer format. A response is a list of items (reasoning, message, function_call), one open at
 * a time. Without --response-store the server is stateless: the client sends the complete conversation. Reading runs
 * on the pool, writing on the loop (gen.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "json.h"
#include "serve/convert.h"
#include "serve/convert_impl.h"
#include "serve/fields.h"
#include "serve/reply.h"
#include "serve/responses.h"

static int translate_responses(gen *g, json_t *body, json_t **out, pi_error *err)
{
    return responses_expand(reply_server(g), g->key, &g->p, body, out, g->previous, &g->n_previous,
                            err);
}

static int read_responses(gen *g, pi_error *err)
{
    const json_t *list = json_object_get(g->p.root, "include"), *v;
    int64_t top = 0;
    size_t i;
    g->p.n = 1;
    g->p.logprobs = -1;
    int rc = params_int(&g->p, g->p.root, "top_logprobs", 0, 20, &top, err);
    json_array_foreach(list, i, v) {
        if (json_is_string(v) && !strcmp(json_string_value(v),
                                         "message.output_text.logprobs")) g->p.logprobs = (int) top;
    }
    if (top) g->p.logprobs = (int) top;
    return rc ? rc : convert_responses(&g->p, err);
}

/* ----------------------------------------------------------------------------------------------------------- items */

/* Returns the text part. probs: logprobs of the tokens; NULL = not requested. */
static json_t *text_part(const buf *text, json_t *probs)
{
    return json_pack("{s:s, s:o, s:[], s:o}", "type", "output_text", "text", text_json(text->p, text->n), "annotations",
                     "logprobs", probs ? probs : json_array());
}

static json_t *message_item(const gen *g, int number, const char *status, const buf *text, json_t *probs)
{
    char id[96];
    json_t *parts = json_array();
    snprintf(id, sizeof id, "msg_%s_%d", g->id + 5, number);
    if (text) json_array_append_new(parts, text_part(text, probs));
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", id, "status", status, "role", "assistant",
                     "content", parts);
}

static json_t *reasoning_item(const gen *g, int number, const char *status, const buf *text)
{
    char id[96];
    json_t *parts = json_array();
    snprintf(id, sizeof id, "rs_%s_%d", g->id + 5, number);
    if (text) json_array_append_new(parts, json_pack("{s:s, s:o}", "type", "reasoning_text", "text",
                                                     text_json(text->p, text->n)));
    return json_pack("{s:s, s:s, s:s, s:[], s:o}", "type", "reasoning", "id", id, "status", status, "summary",
                     "content", parts);
}

/* Returns a call item. A function of a namespace has the client's original name. */
static json_t *call_item(const gen *g, int number, const char *status, const char *call_id, const char *name,
                         const buf *args)
{
    char id[96];
    const json_t *was = json_object_get(g->p.namespaces, name);
    snprintf(id, sizeof id, "fc_%s_%d", g->id + 5, number);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:O*, s:o}", "type", "function_call", "id", id, "status", status,
                     "call_id", call_id, "name", was ? json_string_value(json_object_get(was, "name")) : name,
                     "namespace", json_object_get(was, "namespace"), "arguments",
                     text_json(args ? args->p : "", args ? args->n : 0));
}

static json_t *items(const gen *g, const choice *ch)
{
    json_t *list = json_array();
    const bool cut = !strcmp(ch->reason, "length"), silent = !ch->content.n;
    int n = 0;
    if (ch->reasoning.n)
        json_array_append_new(list, reasoning_item(g, n++, cut && silent ? "incomplete" : "completed", &ch->reasoning));
    if (!silent || !(ch->n_calls || ch->reasoning.n))
        json_array_append_new(list, message_item(g, n++, cut ? "incomplete" : "completed", &ch->content,
                                                 ch->n_probs ? gen_logprobs(g, ch, ch->probs, ch->n_ids) : NULL));
    for (size_t i = 0; i < ch->n_calls; i++) {
        const tool_call *t = &ch->calls[i];
        const char *status = ch->cut_call && i + 1 == ch->n_calls ? "incomplete" : "completed";
        json_array_append_new(list, call_item(g, n++, status, t->id.p ? t->id.p : "", t->name.p ? t->name.p : "",
                                              &t->args));
    }
    return list;
}

static json_t *usage_of(const gen *g)
{
    const usage u = gen_usage(g);
    return json_pack("{s:I, s:{s:I, s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t) u.prompt,
                     "input_tokens_details", "cached_tokens", (json_int_t) u.cached, "cache_write_tokens",
                     (json_int_t) 0, "output_tokens", (json_int_t) u.completion, "output_tokens_details",
                     "reasoning_tokens", (json_int_t) 0, "total_tokens", (json_int_t) (u.prompt + u.completion));
}

/* Copies a field of the request to the response; `otherwise` is used if the request omits it or sends null. */
static void copy_field(json_t *to, const gen *g, const char *field, json_t *otherwise)
{
    json_t *v = json_object_get(g->p.root, field);
    json_object_set_new(to, field, v && !json_is_null(v) ? json_incref(v) : json_incref(otherwise));
    json_decref(otherwise);
}

/* Copies an object of the request; its missing fields come from defaults. Takes ownership of defaults. */
static void copy_object(json_t *to, const gen *g, const char *field, json_t *defaults)
{
    json_t *v = json_object_get(g->p.root, field), *one;
    const char *key;
    size_t len;
    json_object_keylen_foreach(v, key, len, one) if (!json_is_null(one)) json_object_setn(defaults, key, len, one);
    json_object_set_new(to, field, defaults);
}

/* Returns the value of a numeric option: from the request, else from the server. */
static json_t *number_of(const gen *g, const char *key)
{
    const char *v = params_value(&g->p, key);
    return json_real(strtod(v ? v : cli_str(reply_server(g)->c, key), NULL));
}

static void copy_sampling(json_t *r, const gen *g)
{
    json_object_set_new(r, "temperature", number_of(g, "temp"));
    json_object_set_new(r, "top_p", number_of(g, "top-p"));
    json_object_set_new(r, "presence_penalty", number_of(g, "presence-penalty"));
    json_object_set_new(r, "frequency_penalty", number_of(g, "frequency-penalty"));
    json_object_set_new(r, "top_logprobs", json_integer(g->p.logprobs > 0 ? g->p.logprobs : 0));
}

/* Returns the request's tools; functions get all of OpenAI's fields. "strict" is true, because arguments always match
 * the schema. */
static json_t *tools_of(const gen *g)
{
    json_t *list = json_copy(json_object_get(g->p.root, "tools")), *t;
    size_t i;
    if (!json_is_array(list)) {
        json_decref(list);
        return json_array();
    }
    json_array_foreach(list, i, t) {
        if (!json_text_is(json_object_get(t, "type"), "function")) continue;
        json_t *all = json_pack("{s:n, s:n, s:b}", "description", "parameters", "strict", 1);
        if (all) json_object_update(all, t);
        json_array_set_new(list, i, all);
    }
    return list;
}

/* Copies the request's fields, as OpenAI repeats them in each response. */
static void copy_request(json_t *r, const gen *g)
{
    static const char *const or_null[] = {"instructions", "max_output_tokens", "max_tool_calls", "previous_response_id",
                                          "conversation", "prompt", "prompt_cache_key", "prompt_cache_retention",
                                          "safety_identifier", "user"};
    for (size_t i = 0; i < sizeof or_null / sizeof *or_null; i++) copy_field(r, g, or_null[i], json_null());
    copy_field(r, g, "metadata", json_object());
    copy_field(r, g, "parallel_tool_calls", json_true());
    copy_field(r, g, "tool_choice", json_string("auto"));
    json_object_set_new(r, "tools", tools_of(g));
    copy_field(r, g, "truncation", json_string("disabled"));
    copy_field(r, g, "service_tier", json_string("default"));
    if (field_is(r, "service_tier", "auto")) json_object_set_new(r, "service_tier", json_string("default"));
    copy_object(r, g, "reasoning", json_pack("{s:n, s:n}", "effort", "summary"));
    copy_object(r, g, "text", json_pack("{s:{s:s}}", "format", "type", "text"));
    json_object_set_new(r, "background", json_false());
    json_object_set_new(r, "store", json_boolean(responses_stores(g)));
    if (*g->previous) json_object_set_new(r, "previous_response_id", json_string(g->previous));
    copy_sampling(r, g);
}

static json_t *response(const gen *g, const char *status, const choice *done)
{
    const bool cut = done && !strcmp(done->reason, "length");
    json_t *ended = done && !cut ? json_integer((json_int_t) time(NULL)) : json_null();
    json_t *r = json_pack("{s:s, s:s, s:I, s:o, s:s, s:s, s:o, s:n, s:o?}", "id", g->id, "object", "response",
                          "created_at",
                          (json_int_t) g->created, "completed_at", ended, "status", cut ? "incomplete" : status,
                              "model",
                          gen_model(g), "output", done ? items(g, done) : json_array(), "error", "usage",
                          done ? usage_of(g) : NULL);
    if (!r) return NULL;
    json_object_set_new(r, "incomplete_details", cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null());
    copy_request(r, g);
    return r;
}

/* --------------------------------------------------------------------------------------------------------- streams */

static void send_event(gen *g, const char *type, json_t *o)
{
    if (o) {
        json_object_set_new(o, "type", json_string(type));
        json_object_set_new(o, "sequence_number", json_integer((json_int_t) g->n_sent++));
    }
    gen_send(g, type, o);
}

static void responses_begin(gen *g)
{
    send_event(g, "response.created", json_pack("{s:o}", "response", response(g, "in_progress", NULL)));
    send_event(g, "response.in_progress", json_pack("{s:o}", "response", response(g, "in_progress", NULL)));
}

static json_t *item_of(const gen *g, const choice *ch, const char *status, const buf *text)
{
    const tool_call *t = ch->n_calls ? &ch->calls[ch->block_call] : NULL;
    if (ch->block_kind == DELTA_REASONING) return reasoning_item(g, ch->block, status, text);
    if (ch->block_kind == DELTA_CONTENT) return message_item(g, ch->block, status, text, NULL);
    return call_item(g, ch->block, status, t && t->id.p ? t->id.p : "", t && t->name.p ? t->name.p : "", text);
}

/* Returns the fields shared by the events of an open item. */
static json_t *place(const gen *g, const choice *ch)
{
    json_t *item = item_of(g, ch, "in_progress", NULL);
    json_t *o = json_pack("{s:O?, s:i}", "item_id", json_object_get(item, "id"), "output_index", ch->block);
    if (o && ch->block_kind != DELTA_CALL) json_object_set_new(o, "content_index", json_integer(0));
    json_decref(item);
    return o;
}

static json_t *part(const choice *ch)
{
    const buf *b = &ch->block_text;
    if (ch->block_kind == DELTA_REASONING)
        return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text_json(b->p, b->n));
    return text_part(b, NULL);
}

/* Sends the event for a complete text, reasoning or arguments of an item. */
static void send_done(gen *g, choice *ch)
{
    const buf *b = &ch->block_text;
    json_t *o = place(g, ch), *item;
    if (o) json_object_set_new(o, ch->block_kind == DELTA_CALL ? "arguments" : "text", text_json(b->p, b->n));
    switch (ch->block_kind) {
    case DELTA_CALL:
        item = item_of(g, ch, "completed", NULL);
        if (o) json_object_set(o, "name", json_object_get(item, "name"));
        json_decref(item);
        send_event(g, "response.function_call_arguments.done", o);
        break;
    case DELTA_REASONING: send_event(g, "response.reasoning_text.done", o); break;
    default:
        if (o) json_object_set_new(o, "logprobs", json_array());
        send_event(g, "response.output_text.done", o);
    }
}

static void close_item(gen *g, choice *ch, const char *status)
{
    const buf *b = &ch->block_text;
    const bool cut = ch->block_kind == DELTA_CALL && ch->cut_call && ch->block_call + 1 == ch->n_calls;
    json_t *o;
    if (ch->block < 0) return;
    send_done(g, ch);
    if (ch->block_kind == DELTA_CONTENT) {
        o = place(g, ch);
        if (o) json_object_set_new(o, "part", part(ch));
        send_event(g, "response.content_part.done", o);
    }
    send_event(g, "response.output_item.done", json_pack("{s:i, s:o}", "output_index", ch->block, "item",
                                                   item_of(g, ch, cut ? "incomplete" : status, b)));
    ch->block = -1;
}

static void open_item(gen *g, choice *ch, int kind, int call)
{
    close_item(g, ch, "completed");
    ch->block = (int) ch->n_blocks++;
    ch->block_kind = kind;
    ch->block_call = (size_t) call;
    ch->block_text.n = 0;
    send_event(g, "response.output_item.added", json_pack("{s:i, s:o}", "output_index", ch->block, "item",
                                                    item_of(g, ch, "in_progress", NULL)));
    if (kind != DELTA_CONTENT) return;
    json_t *o = place(g, ch);
    if (o) json_object_set_new(o, "part", part(ch));
    send_event(g, "response.content_part.added", o);
}

/* Writes one delta. pc: the piece, for token probabilities, if d is its first delta; else NULL. */
static void one_delta(gen *g, choice *ch, const chat_delta *d, const piece *pc)
{
    if (d->kind == DELTA_CALL) {
        open_item(g, ch, DELTA_CALL, d->call);
        return;
    }
    int kind = d->kind == DELTA_ARGS ? DELTA_CALL : d->kind;
    if (ch->block < 0 || ch->block_kind != kind) open_item(g, ch, kind, d->call);
    buf_put(&ch->block_text, d->text, d->n);
    if (ch->block_text.failed) text_no_memory();
    json_t *o = place(g, ch);
    if (o) json_object_set_new(o, "delta", text_json(d->text, d->n));
    if (o && kind == DELTA_CONTENT)
        json_object_set_new(o, "logprobs", pc && pc->probs ? gen_logprobs(g, ch, pc->probs, pc->n_ids) : json_array());
    if (o && g->p.timings) json_object_set_new(o, "timings", gen_timings(ch));
    send_event(g, kind == DELTA_CALL        ? "response.function_call_arguments.delta"
            : kind == DELTA_REASONING ? "response.reasoning_text.delta"
                                      : "response.output_text.delta", o);
}

static void responses_piece(gen *g, choice *ch, const piece *pc)
{
    for (size_t i = 0; i < pc->n_deltas; i++) one_delta(g, ch, &pc->delta[i], i ? NULL : pc);
    if (!pc->last) return;
    if (!ch->n_blocks) open_item(g, ch, DELTA_CONTENT, 0);
    close_item(g, ch, strcmp(ch->reason, "length") ? "completed" : "incomplete");
}

/* Sends llama-server's progress event: the open response with the prompt progress. */
static void responses_progress(gen *g, const choice *ch)
{
    send_event(g, "response.in_progress", json_pack("{s:o, s:o}", "response", response(g, "in_progress", NULL),
                                                    "prompt_progress", progress_json(ch)));
}

static void responses_finish(gen *g)
{
    const choice *ch = &g->choices[0];
    json_t *r = response(g, "completed", ch);
    responses_store(g, r, json_object_get(r, "output"));
    send_event(g, strcmp(ch->reason, "length") ? "response.completed" : "response.incomplete",
               json_pack("{s:o, s:o}", "response", r, "timings", gen_timings(ch)));
}

static json_t *responses_whole(gen *g)
{
    const choice *ch = &g->choices[0];
    json_t *r = ch->content.failed ? NULL : response(g, "completed", ch);
    responses_store(g, r, json_object_get(r, "output"));
    return r;
}

const wire wire_responses = {.id_prefix = "resp_", .what = "response", .api = API_RESPONSES,
                             .translate = translate_responses, .read = read_responses,
                             .begin = responses_begin, .piece = responses_piece, .progress = responses_progress,
                             .finish = responses_finish, .whole = responses_whole};
