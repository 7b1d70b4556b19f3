/* /api/chat, /api/generate and /api/embed, Ollama's formats. Bodies are converted to those of OpenAI's API
 * (convert_ollama.c). A stream has one JSON object per line; a tool call is sent when it is complete. Reading runs on
 * the pool, writing on the loop (gen.h). */
#include <string.h>
#include <time.h>

#include "json.h"
#include "serve/convert.h"
#include "serve/gen.h"

/* Returns the time now as in RFC 3339. */
static json_t *now_json(void)
{
    char text[40], full[64];
    struct timespec t;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(full, sizeof full, "%s.%06ldZ", text, t.tv_nsec / 1000 % 1000000);
    return json_string(full);
}

/* Returns the members at the start of each object. The name is the client's. */
static json_t *envelope(const gen *g)
{
    json_t *name = json_object_get(g->p.root, "model"), *root = json_object();
    json_object_set_new(root, "model", json_string_length(name) ? json_incref(name) : json_string(gen_model(g)));
    json_object_set_new(root, "created_at", now_json());
    return root;
}

static json_int_t nanoseconds(double ms) { return (json_int_t) (ms * 1e6); }

/* Adds the members of the last object: the reason of the end, token counts and times in nanoseconds. */
static void put_end(const gen *g, json_t *root)
{
    const choice *ch = &g->choices[0];
    const bool length = ch->reason && !strcmp(ch->reason, "length");
    json_object_set_new(root, "done", json_true());
    json_object_set_new(root, "done_reason", json_string(length ? "length" : "stop"));
    json_object_set_new(root, "total_duration", json_integer((json_int_t) (gen_now() - g->began)));
    json_object_set_new(root, "load_duration", json_integer(nanoseconds(ch->res.queue_ms)));
    json_object_set_new(root, "prompt_eval_count", json_integer((json_int_t) ch->res.prompt_tokens));
    json_object_set_new(root, "prompt_eval_duration", json_integer(nanoseconds(ch->res.prefill_ms)));
    json_object_set_new(root, "eval_count", json_integer((json_int_t) ch->res.generated_tokens));
    json_object_set_new(root, "eval_duration", json_integer(nanoseconds(ch->res.decode_ms)));
}

/* Returns tool call i; NULL if the answer ended within it. */
static json_t *call_of(const choice *ch, size_t i)
{
    const tool_call *t = &ch->calls[i];
    json_t *args = json_read(t->args.p ? t->args.p : "", t->args.n, NULL);
    if (!args && i + 1 == ch->n_calls && ch->cut_call) return NULL;
    return json_pack("{s:{s:s, s:i, s:o}}", "function", "name", t->name.p ? t->name.p : "", "index", (int) i,
                     "arguments", args ? args : json_object());
}

/* ------------------------------------------------------------------------------------------------------------- chat */

static int translate_chat(gen *g, json_t *body, json_t **out, pi_error *err)
{
    return convert_ollama_chat(&g->p, body, out, err);
}

static int read_chat(gen *g, pi_error *err) { return convert_chat(&g->p, err); }

static json_t *message_json(json_t *content)
{
    return json_pack("{s:s, s:o}", "role", "assistant", "content", content ? content : json_string(""));
}

static void send_message(gen *g, json_t *message)
{
    json_t *root = envelope(g);
    json_object_set_new(root, "message", message);
    json_object_set_new(root, "done", json_false());
    gen_send(g, NULL, root);
}

/* Sends the complete tool calls before call number `upto`. */
static void send_calls(gen *g, choice *ch, size_t upto)
{
    json_t *list = json_array();
    for (; ch->block_call < upto && ch->block_call < ch->n_calls; ch->block_call++) {
        json_t *call = call_of(ch, ch->block_call);
        if (call) json_array_append_new(list, call);
    }
    if (json_array_size(list)) {
        json_t *message = message_json(NULL);
        json_object_set(message, "tool_calls", list);
        send_message(g, message);
    }
    json_decref(list);
}

static void chat_begin(gen *g) { g->choices[0].block_call = 0; }

static void chat_piece(gen *g, choice *ch, const piece *pc)
{
    for (size_t i = 0; i < pc->n_deltas; i++) {
        const chat_delta *d = &pc->delta[i];
        if (d->kind == DELTA_CALL) send_calls(g, ch, (size_t) d->call);
        if (d->kind == DELTA_CALL || d->kind == DELTA_ARGS || !d->n) continue;
        json_t *text = text_json(d->text, d->n), *message = message_json(d->kind == DELTA_CONTENT ? text : NULL);
        if (d->kind == DELTA_REASONING) json_object_set_new(message, "thinking", text);
        send_message(g, message);
    }
    if (pc->last) send_calls(g, ch, ch->n_calls);
}

static void chat_finish(gen *g)
{
    json_t *root = envelope(g);
    json_object_set_new(root, "message", message_json(NULL));
    put_end(g, root);
    gen_send(g, NULL, root);
}

static json_t *chat_whole(gen *g)
{
    const choice *ch = &g->choices[0];
    json_t *root = envelope(g), *message = message_json(text_json(ch->content.p ? ch->content.p : "", ch->content.n));
    json_t *calls = json_array();
    if (ch->reasoning.n) json_object_set_new(message, "thinking", text_json(ch->reasoning.p, ch->reasoning.n));
    for (size_t i = 0; i < ch->n_calls; i++) {
        json_t *call = call_of(ch, i);
        if (call) json_array_append_new(calls, call);
    }
    if (json_array_size(calls)) json_object_set(message, "tool_calls", calls);
    json_decref(calls);
    json_object_set_new(root, "message", message);
    put_end(g, root);
    return root;
}

const wire wire_ollama_chat = {.id_prefix = "ollama-", .what = "chat", .translate = translate_chat, .read = read_chat,
                               .begin = chat_begin, .piece = chat_piece, .finish = chat_finish, .whole = chat_whole,
                               .json_lines = true};

/* --------------------------------------------------------------------------------------------------------- generate */

static int translate_generate(gen *g, json_t *body, json_t **out, pi_error *err)
{
    bool raw = false;
    int rc = convert_ollama_generate(&g->p, body, out, &raw, err);
    g->is_chat = !raw;
    return rc;
}

static int read_generate(gen *g, pi_error *err)
{
    const json_t *suffix = json_object_get(g->p.root, "suffix"), *prompt = json_object_get(g->p.root, "prompt");
    if (g->is_chat) return convert_chat(&g->p, err);
    if (!json_string_length(suffix)) return params_prompts(&g->p, "prompt", err);
    const pi_infill_parts parts = {.prefix = json_string_value(prompt), .prefix_len = json_string_length(prompt),
                                   .suffix = json_string_value(suffix), .suffix_len = json_string_length(suffix)};
    g->p.bad_field = "suffix";
    return infill_prompt(g, &parts, err);
}

static void generate_begin(gen *g) { (void) g; }

static void generate_piece(gen *g, choice *ch, const piece *pc)
{
    (void) ch;
    for (size_t i = 0; i < pc->n_deltas; i++) {
        const chat_delta *d = &pc->delta[i];
        if ((d->kind != DELTA_CONTENT && d->kind != DELTA_REASONING) || !d->n) continue;
        json_t *root = envelope(g), *text = text_json(d->text, d->n);
        json_object_set_new(root, "response", d->kind == DELTA_CONTENT ? text : json_string(""));
        if (d->kind == DELTA_REASONING) json_object_set_new(root, "thinking", text);
        json_object_set_new(root, "done", json_false());
        gen_send(g, NULL, root);
    }
}

static void generate_finish(gen *g)
{
    json_t *root = envelope(g);
    json_object_set_new(root, "response", json_string(""));
    put_end(g, root);
    gen_send(g, NULL, root);
}

static json_t *generate_whole(gen *g)
{
    const choice *ch = &g->choices[0];
    json_t *root = envelope(g);
    json_object_set_new(root, "response", text_json(ch->content.p ? ch->content.p : "", ch->content.n));
    if (ch->reasoning.n) json_object_set_new(root, "thinking", text_json(ch->reasoning.p, ch->reasoning.n));
    put_end(g, root);
    return root;
}

const wire wire_ollama_generate = {.id_prefix = "ollama-", .what = "generate", .translate = translate_generate,
                                   .read = read_generate, .begin = generate_begin, .piece = generate_piece,
                                   .finish = generate_finish, .whole = generate_whole, .json_lines = true};

/* ------------------------------------------------------------------------------------------------------------ embed */

static int translate_embed(gen *g, json_t *body, json_t **out, pi_error *err)
{
    return convert_ollama_embed(&g->p, body, "input", out, err);
}

static int translate_embeddings(gen *g, json_t *body, json_t **out, pi_error *err)
{
    return convert_ollama_embed(&g->p, body, "prompt", out, err);
}

static int read_embed(gen *g, pi_error *err) { return embeddings_read(g, "input", err); }

static bool write_embed(const gen *g, buf *b)
{
    const json_t *name = json_object_get(g->p.root, "model");
    const char *model = json_string_length(name) ? json_string_value(name) : gen_model(g);
    buf_str(b, "{\"model\":");
    text_put_json(b, model, strlen(model));
    buf_str(b, ",\"embeddings\":[");
    for (size_t i = 0; i < g->n_choices; i++) {
        if (i) buf_put(b, ",", 1);
        if (!embeddings_put(b, g->choices[i].vector, g->choices[i].n_vector)) return false;
    }
    buf_fmt(b, "],\"total_duration\":%llu,\"load_duration\":0,\"prompt_eval_count\":%llu}",
            (unsigned long long) (gen_now() - g->began), (unsigned long long) gen_usage(g).prompt);
    return true;
}

static bool write_embeddings(const gen *g, buf *b)
{
    buf_str(b, "{\"embedding\":");
    if (!embeddings_put(b, g->choices[0].vector, g->choices[0].n_vector)) return false;
    buf_put(b, "}", 1);
    return true;
}

const wire wire_ollama_embed = {.id_prefix = "ollama-", .what = "embedding", .translate = translate_embed,
                                .read = read_embed, .write = write_embed, .raw_prompt = true};
const wire wire_ollama_embeddings = {.id_prefix = "ollama-", .what = "embedding", .translate = translate_embeddings,
                                     .read = read_embed, .write = write_embeddings, .raw_prompt = true};
