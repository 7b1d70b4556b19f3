/* /v1/chat/completions and /v1/completions in OpenAI's formats. Threads: see gen.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "encoding.h"
#include "json.h"
#include "serve/convert.h"
#include "serve/fields.h"
#include "serve/gen.h"

/* --------------------------------------------------------------------------------------------------- probabilities */

static json_t *token_json(const gen *g, int32_t id, json_t **bytes)
{
    char small[256], *p = small;
    size_t n = service_token_text(g->sv, id, true, small, sizeof small);
    char number[32];
    snprintf(number, sizeof number, "token_id:%d", id);
    if (n > sizeof small && (p = malloc(n))) service_token_text(g->sv, id, true, p, n);
    if (!p) text_no_memory();
    json_t *s = g->p.ids_as_tokens ? json_string(number) : p ? text_json(p, n) : NULL;
    if (bytes) {
        *bytes = json_array();
        for (size_t i = 0; p && i < n; i++) json_array_append_new(*bytes, json_integer((unsigned char) p[i]));
    }
    if (p != small) free(p);
    return s;
}

/* OpenAI writes -9999 for the logarithm of zero. */
static json_t *logprob_json(float v) { return json_real(isfinite(v) ? (double) v : -9999.0); }

static json_t *chat_entry(const gen *g, const pi_token_prob *p)
{
    json_t *bytes, *token = token_json(g, p->id, &bytes);
    return json_pack("{s:o, s:o, s:o}", "token", token, "logprob", logprob_json(p->logprob), "bytes", bytes);
}

json_t *gen_logprobs(const gen *g, const choice *ch, const pi_token_prob *probs, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const pi_token_prob *row = probs + i * ch->n_probs;
        json_t *e = chat_entry(g, row), *top = json_array();
        for (size_t k = 1; k < ch->n_probs && row[k].id >= 0; k++) json_array_append_new(top, chat_entry(g, &row[k]));
        json_object_set_new(e, "top_logprobs", top);
        json_array_append_new(list, e);
    }
    return list;
}

static json_t *chat_logprobs(const gen *g, const choice *ch, const pi_token_prob *probs, size_t n)
{
    return json_pack("{s:o, s:n}", "content", gen_logprobs(g, ch, probs, n), "refusal");
}

/* Returns the text of a completion token. Incomplete characters are written in OpenAI's format: "bytes:\xe6\x97". */
static json_t *token_name(const gen *g, int32_t id)
{
    char small[256], *p = small;
    size_t n = service_token_text(g->sv, id, true, small, sizeof small), whole = 0, one = 1;
    buf b = {0};
    if (g->p.ids_as_tokens) return token_json(g, id, NULL);
    if (n > sizeof small && (p = malloc(n))) service_token_text(g->sv, id, true, p, n);
    while (p && whole < n && one) whole += one = utf8_char(p + whole, n - whole);
    if (whole < n) buf_str(&b, "bytes:");
    for (size_t i = 0; p && whole < n && i < n; i++) buf_fmt(&b, "\\x%02x", (unsigned char) p[i]);
    if (!p || b.failed) text_no_memory();
    json_t *s = b.n ? json_string(b.p) : p ? text_json(p, n) : NULL;
    if (p != small) free(p);
    buf_free(&b);
    return s;
}

struct text_probs { /* for completions: parallel lists */
    json_t *tokens, *probs, *top, *offsets;
};

static struct text_probs text_probs_new(void)
{
    return (struct text_probs) {json_array(), json_array(), json_array(), json_array()};
}

/* Adds one entry of top_logprobs. The chosen token comes first, then the most likely tokens, which may include it. If
 * several tokens have the same text, the first one is kept. */
static void add_top(const gen *g, json_t *top, const pi_token_prob *p)
{
    json_t *name = token_name(g, p->id);
    const char *key = json_string_value(name);
    const size_t n = json_string_length(name);
    if (key && !json_object_getn(top, key, n)) json_object_setn_new(top, key, n, logprob_json(p->logprob));
    json_decref(name);
}

/* Adds one token. row == NULL: the first token of a prompt. */
static void text_probs_add(const gen *g, struct text_probs *t, int32_t id, const pi_token_prob *row, size_t n_row,
                           size_t at)
{
    json_array_append_new(t->tokens, token_name(g, id));
    json_array_append_new(t->probs, row ? logprob_json(row->logprob) : json_null());
    json_array_append_new(t->offsets, json_integer((json_int_t) at));
    if (!row) {
        json_array_append_new(t->top, json_null());
        return;
    }
    json_t *top = json_object();
    for (size_t k = 0; k < n_row && row[k].id >= 0; k++) add_top(g, top, &row[k]);
    json_array_append_new(t->top, top);
}

static json_t *text_probs_json(struct text_probs *t)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", t->tokens, "token_logprobs", t->probs, "top_logprobs", t->top,
                     "text_offset", t->offsets);
}

/* Returns an entry of vLLM's prompt_logprobs, keyed by token id. row[0] is the prompt token; its rank is known only if
 * it is among the alternatives. */
static json_t *prompt_entry(const gen *g, const pi_token_prob *row, size_t n)
{
    json_t *all = json_object();
    for (size_t k = 0; k < n && row[k].id >= 0; k++) {
        char id[16];
        size_t rank = k;
        for (size_t i = 1; !k && i < n && !rank; i++)
            if (row[i].id == row[0].id) rank = i;
        snprintf(id, sizeof id, "%d", row[k].id);
        json_object_set_new(all, id, json_pack("{s:o, s:o, s:o}", "logprob", logprob_json(row[k].logprob), "rank",
                                               rank ? json_integer((json_int_t) rank) : json_null(), "decoded_token",
                                               token_json(g, row[k].id, NULL)));
    }
    return all;
}

/* Returns prompt_logprobs for each token of the prompt; null for the first one. */
static json_t *prompt_logprobs(const gen *g, const choice *first)
{
    const prompt_probs *pp = &first->prompt;
    const size_t asked = (size_t) g->p.prompt_logprobs + 1, row = pp->row < asked ? pp->row : asked;
    json_t *list = json_pack("[n]");
    for (size_t i = 0; i < pp->n; i++) json_array_append_new(list, prompt_entry(g, pp->probs + i * pp->row, row));
    return list;
}

static json_t *text_logprobs(const gen *g, const choice *ch, size_t from, size_t n, size_t base)
{
    struct text_probs t = text_probs_new();
    for (size_t i = from; i < from + n; i++) {
        const size_t at = base + (i ? ch->chars[i - 1] : 0);
        text_probs_add(g, &t, ch->ids[i], ch->probs + i * ch->n_probs, ch->n_probs, at);
    }
    return text_probs_json(&t);
}

/* ----------------------------------------------------------------------------------------------------------- usage */

static json_t *usage_json(const gen *g)
{
    usage u = gen_usage(g);
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I, s:I}}", "prompt_tokens", (json_int_t) u.prompt,
                     "completion_tokens", (json_int_t) u.completion, "total_tokens",
                     (json_int_t) (u.prompt + u.completion), "prompt_tokens_details", "cached_tokens",
                     (json_int_t) u.cached, "completion_tokens_details", "accepted_prediction_tokens",
                     (json_int_t) u.accepted, "rejected_prediction_tokens", (json_int_t) (u.drafted - u.accepted));
}

/* Returns the fields at the start of every response and chunk. */
static json_t *envelope(const gen *g, const char *object)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s}", "id", g->id, "object", object, "created", (json_int_t) g->created,
                     "model", gen_model(g), "system_fingerprint", g->sv->build);
}

static json_t *chunk_of(const gen *g, const char *object, json_t *one)
{
    json_t *root = envelope(g, object), *list = json_array();
    if (one) json_array_append_new(list, one);
    json_object_set_new(root, "choices", list);
    return root;
}

/* Sends a chunk. last: the chunk ends ch, or, if one is NULL, the stream. The last chunk of a stream has the
 * timings. */
static void send_chunk(gen *g, const char *object, const choice *ch, json_t *one, bool last)
{
    json_t *root = chunk_of(g, object, one);
    const bool ends = last && (!one || !g->p.include_usage);
    if (!one || g->p.usage_in_all) json_object_set_new(root, "usage", usage_json(g));
    if (g->p.timings || ends) json_object_set_new(root, "timings", gen_timings(ch));
    gen_send(g, NULL, root);
}

/* Sends a progress chunk; its choice is empty. */
static void send_progress(gen *g, const char *object, const choice *ch, json_t *one)
{
    json_t *root = chunk_of(g, object, one);
    json_object_set_new(root, "prompt_progress", progress_json(ch));
    gen_send(g, NULL, root);
}

static void send_end(gen *g, const char *object)
{
    if (g->p.include_usage) send_chunk(g, object, &g->choices[0], NULL, true);
    g->sink->done(g);
}

/* ----------------------------------------------------------------------------------------------------------- chats */

static int read_chat(gen *g, pi_error *err)
{
    g->p.echo_last = g->p.echo;
    g->p.echo = false;
    return convert_chat(&g->p, err);
}

/* Appends the text of the last message to out, if an echoed response continues that message. */
static void last_text(const gen *g, buf *out)
{
    const json_t *list = g->p.messages, *last = json_array_get(list, json_array_size(list) - 1), *part;
    const json_t *content = json_object_get(last, "content");
    size_t i;
    if (!g->p.echo_last || !json_is_true(json_object_get(g->p.template_vars, "continue_final_message"))) return;
    buf_put(out, json_string_value(content), json_string_length(content));
    json_array_foreach(content, i, part) { /* joined as in the prompt */
        const json_t *text = json_object_get(part, "text");
        if (i) buf_put(out, "\n", 1);
        buf_put(out, json_string_value(text), json_string_length(text));
    }
    if (out->failed) text_no_memory();
}

/* Adds vLLM's stop_reason: the stop string that ended the choice. */
static void add_stop_reason(const choice *ch, json_t *one)
{
    if (ch->res.stop && *ch->res.stop)
        json_object_set_new(one, "stop_reason", text_json(ch->res.stop, strlen(ch->res.stop)));
}

static void chat_chunk(gen *g, choice *ch, json_t *delta, const piece *pc, bool with_tokens, const char *finish)
{
    json_t *one = json_pack("{s:i, s:o, s:n, s:s?}", "index", (int) ch->index, "delta", delta, "logprobs",
                            "finish_reason", finish);
    if (with_tokens && pc->probs && pc->n_ids)
        json_object_set_new(one, "logprobs", chat_logprobs(g, ch, pc->probs, pc->n_ids));
    if (with_tokens && g->p.token_ids) json_object_set_new(one, "token_ids", ids_json(pc->ids, pc->n_ids));
    if (finish) add_stop_reason(ch, one);
    send_chunk(g, "chat.completion.chunk", ch, one, finish != NULL);
}

static json_t *delta_json(const gen *g, const chat_delta *d)
{
    (void) g;
    switch (d->kind) {
    case DELTA_CONTENT: return json_pack("{s:o}", "content", text_json(d->text, d->n));
    case DELTA_REASONING: return json_pack("{s:o}", "reasoning_content", text_json(d->text, d->n));
    case DELTA_CALL:
        return json_pack("{s:[{s:i, s:s, s:s, s:{s:s, s:s}}]}", "tool_calls", "index", d->call, "id", d->id, "type",
                         "function", "function", "name", d->name, "arguments", "");
    }
    return json_pack("{s:[{s:i, s:{s:o}}]}", "tool_calls", "index", d->call, "function", "arguments",
                     text_json(d->text, d->n));
}

static void chat_begin(gen *g)
{
    buf begun = {0};
    last_text(g, &begun);
    for (size_t i = 0; i < g->n_choices; i++) {
        json_t *delta = json_pack("{s:s, s:o}", "role", "assistant", "content",
                                  text_json(begun.p ? begun.p : "", begun.n));
        chat_chunk(g, &g->choices[i], delta, NULL, false, NULL);
    }
    buf_free(&begun);
}

static void chat_piece(gen *g, choice *ch, const piece *pc)
{
    for (size_t i = 0; i < pc->n_deltas; i++) chat_chunk(g, ch, delta_json(g, &pc->delta[i]), pc, i == 0, NULL);
    if (pc->last) chat_chunk(g, ch, json_object(), pc, !pc->n_deltas && pc->n_ids, ch->reason);
}

static void chat_progress(gen *g, const choice *ch)
{
    send_progress(g, "chat.completion.chunk", ch,
                  json_pack("{s:i, s:{}, s:n, s:n}", "index", (int) ch->index, "delta", "logprobs", "finish_reason"));
}

static void chat_finish(gen *g) { send_end(g, "chat.completion.chunk"); }

static json_t *calls_json(const choice *ch)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ch->n_calls; i++) {
        const tool_call *t = &ch->calls[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", t->id.p ? t->id.p : "", "type",
                                              "function", "function", "name", t->name.p ? t->name.p : "", "arguments",
                                              text_json(t->args.p, t->args.n)));
    }
    return list;
}

static json_t *chat_choice(gen *g, choice *ch)
{
    buf text = {0};
    last_text(g, &text);
    buf_put(&text, ch->content.p, ch->content.n);
    if (text.failed) text_no_memory();
    json_t *m = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", text_json(text.p ? text.p : "", text.n),
                          "refusal");
    const bool empty = !text.n;
    buf_free(&text);
    if (ch->n_calls && empty) json_object_set_new(m, "content", json_null());
    if (ch->reasoning.n) json_object_set_new(m, "reasoning_content", text_json(ch->reasoning.p, ch->reasoning.n));
    if (ch->n_calls) json_object_set_new(m, "tool_calls", calls_json(ch));
    json_t *one = json_pack("{s:i, s:o, s:n, s:s}", "index", (int) ch->index, "message", m, "logprobs", "finish_reason",
                            ch->reason);
    if (ch->n_probs) json_object_set_new(one, "logprobs", chat_logprobs(g, ch, ch->probs, ch->n_ids));
    if (g->p.token_ids) json_object_set_new(one, "token_ids", ids_json(ch->ids, ch->n_ids));
    add_stop_reason(ch, one);
    return one;
}

static json_t *chat_whole(gen *g)
{
    json_t *root = envelope(g, "chat.completion"), *list = json_array();
    for (size_t i = 0; i < g->n_choices; i++) {
        if (g->choices[i].content.failed || json_array_append_new(list, chat_choice(g, &g->choices[i]))) {
            json_decref(list);
            json_decref(root);
            return NULL;
        }
    }
    json_object_set_new(root, "choices", list);
    json_object_set_new(root, "usage", usage_json(g));
    json_object_set_new(root, "timings", gen_timings(&g->choices[0]));
    if (g->p.prompt_logprobs >= 0) json_object_set_new(root, "prompt_logprobs", prompt_logprobs(g, &g->choices[0]));
    return root;
}

const wire wire_chat = {.id_prefix = "chatcmpl-", .what = "chat", .api = API_CHAT, .read = read_chat,
                        .begin = chat_begin,
                        .piece = chat_piece, .finish = chat_finish, .progress = chat_progress,
                        .whole = chat_whole};

/* ----------------------------------------------------------------------------------------------------- completions */

/* Reads "suffix": the model fills in the text between prompt and suffix. */
static int read_middle(gen *g, const json_t *suffix, pi_error *err)
{
    params *p = &g->p;
    const json_t *prefix = json_object_get(p->root, "prompt");
    if (!json_is_string(prefix)) return params_fail(p, "prompt", err, "with 'suffix', 'prompt' must be one text");
    if (p->echo) return params_fail(p, "echo", err, "'echo' does not support 'suffix': send one of them");
    p->bad_field = "suffix";
    const pi_infill_parts in = {.prefix = json_string_value(prefix), .prefix_len = json_string_length(prefix),
                                .suffix = json_string_value(suffix), .suffix_len = json_string_length(suffix)};
    return infill_prompt(g, &in, err);
}

static int read_completion(gen *g, pi_error *err)
{
    params *p = &g->p;
    const json_t *suffix = json_object_get(p->root, "suffix");
    int64_t best = 0;
    if (suffix && !json_is_null(suffix) && !json_is_string(suffix))
        return params_fail(p, "suffix", err, "'suffix' must be a string");
    int rc = params_int(p, p->root, "best_of", 1, 64, &best, err);
    if (rc) return rc;
    if (best > p->n) return params_fail(p, "best_of", err, "'best_of' is not supported: send 'n' and choose one");
    if (p->echo && p->stream) return params_fail(p, "echo", err, "'echo' needs 'stream': false");
    if (p->max_tokens == INT64_MIN) p->max_tokens = 16; /* OpenAI's default */
    return json_string_length(suffix) ? read_middle(g, suffix, err) : params_prompts(p, "prompt", err);
}

static void text_piece(gen *g, choice *ch, const piece *pc)
{
    const chat_delta *d = pc->n_deltas ? pc->delta : NULL;
    json_t *one =
        json_pack("{s:i, s:o, s:n, s:s?}", "index", (int) ch->index, "text", text_json(d ? d->text : "", d ? d->n : 0),
                  "logprobs", "finish_reason", pc->last ? ch->reason : NULL);
    if (pc->probs && pc->n_ids)
        json_object_set_new(one, "logprobs", text_logprobs(g, ch, (size_t) (pc->ids - ch->ids), pc->n_ids, 0));
    if (g->p.token_ids) json_object_set_new(one, "token_ids", ids_json(pc->ids, pc->n_ids));
    if (pc->last) add_stop_reason(ch, one);
    send_chunk(g, "text_completion", ch, one, pc->last);
}

static void text_begin(gen *g) { (void) g; }
static void text_finish(gen *g) { send_end(g, "text_completion"); }

/* Appends the prompt's text for echo; out owns it. */
static void prompt_text(const gen *g, const prompt *pr, buf *out)
{
    if (pr->ids) service_put_prompt(g->sv, pr, 0, out);
    else buf_put(out, pr->text, pr->len);
}

/* Returns the first token of a prompt, which has no probability; -1 if none. */
static int32_t first_token(const gen *g, const prompt *pr)
{
    int32_t id = -1;
    if (pr->ids) return pr->n_ids ? pr->ids[0] : -1;
    if (pi_tokenize(g->sv->e, pr->text, pr->len < 256 ? pr->len : 256, PI_TOK_BOS | PI_TOK_SPECIAL, &id, 1) < 0)
        text_no_memory();
    return id;
}

static json_t *echo_logprobs(const gen *g, const choice *ch, const choice *first, const prompt *pr, size_t base)
{
    struct text_probs t = text_probs_new();
    const prompt_probs *pp = &first->prompt;
    utf8_hold h = {{0}, 0};
    size_t at = 0;
    int32_t id = first_token(g, pr);
    if (id >= 0) text_probs_add(g, &t, id, NULL, 0, 0);
    if (id >= 0) service_token_count(g->sv, id, false, &h, &at);
    for (size_t i = 0; i < pp->n; i++) {
        text_probs_add(g, &t, pp->ids[i], pp->probs + i * pp->row, pp->row < ch->n_probs ? pp->row : ch->n_probs, at);
        service_token_count(g->sv, pp->ids[i], false, &h, &at);
    }
    for (size_t i = 0; i < ch->n_ids; i++) {
        const size_t from = base + (i ? ch->chars[i - 1] : 0);
        text_probs_add(g, &t, ch->ids[i], ch->probs + i * ch->n_probs, ch->n_probs, from);
    }
    return text_probs_json(&t);
}

static json_t *text_choice(gen *g, choice *ch)
{
    buf text = {0};
    size_t which = ch->index / (size_t) g->p.n;
    const prompt *pr = &g->p.prompts[which];
    if (g->p.echo) prompt_text(g, pr, &text);
    size_t base = 0; /* characters in the prompt */
    for (size_t i = 0; i < text.n; i++) base += (text.p[i] & 0xC0) != 0x80;
    buf_put(&text, ch->content.p, ch->content.n);
    if (text.failed) text_no_memory();
    json_t *one = json_pack("{s:i, s:o, s:n, s:s}", "index", (int) ch->index, "text", text_json(text.p, text.n),
                            "logprobs", "finish_reason", ch->reason);
    buf_free(&text);
    const choice *first = &g->choices[which * (size_t) g->p.n];
    if (ch->n_probs && g->p.echo) json_object_set_new(one, "logprobs", echo_logprobs(g, ch, first, pr, base));
    else if (ch->n_probs) json_object_set_new(one, "logprobs", text_logprobs(g, ch, 0, ch->n_ids, base));
    if (g->p.prompt_logprobs >= 0) json_object_set_new(one, "prompt_logprobs", prompt_logprobs(g, first));
    if (g->p.token_ids) json_object_set_new(one, "token_ids", ids_json(ch->ids, ch->n_ids));
    add_stop_reason(ch, one);
    return one;
}

static json_t *text_whole(gen *g)
{
    json_t *root = envelope(g, "text_completion"), *list = json_array();
    for (size_t i = 0; i < g->n_choices; i++) json_array_append_new(list, text_choice(g, &g->choices[i]));
    json_object_set_new(root, "choices", list);
    json_object_set_new(root, "usage", usage_json(g));
    json_object_set_new(root, "timings", gen_timings(&g->choices[0]));
    return root;
}

static void text_progress(gen *g, const choice *ch)
{
    send_progress(g, "text_completion", ch,
                  json_pack("{s:i, s:s, s:n, s:n}", "index", (int) ch->index, "text", "", "logprobs", "finish_reason"));
}

const wire wire_completions = {.id_prefix = "cmpl-", .what = "completion", .api = API_TEXT, .read = read_completion,
                               .begin = text_begin,
                               .piece = text_piece, .finish = text_finish, .progress = text_progress,
                               .whole = text_whole, .raw_prompt = true};
