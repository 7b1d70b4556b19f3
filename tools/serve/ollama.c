/* Ollama's API without generation: /api/version, /api/tags, /api/ps, /api/show, and the requests that only load a
 * model. Runs on the loop's thread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "json.h"
#include "serve/reply.h"

/* The version of Ollama whose API these files follow. Clients compare it with the version that they need. */
static const char OLLAMA_VERSION[] = "0.12.6";

enum { MAX_SHORT = 64 << 10 }; /* bytes of a body that is parsed on the loop */

void handle_ollama_version(server *s, exchange *ex)
{
    (void) s;
    answer_json(ex, 200, json_pack("{s:s}", "version", OLLAMA_VERSION));
}

/* Returns a time as in RFC 3339. */
static json_t *time_json(time_t t)
{
    char text[40];
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_string(text);
}

static json_t *modified(const server *s)
{
    struct stat st;
    return time_json(stat(cli_str(s->c, "model"), &st) ? (time_t) s->created : st.st_mtime);
}

/* Returns the family, the number of parameters ("1.2B") and the quantization, the end of "gemma3 270M Q4_K - Medium".
 */
static json_t *details(const server *s)
{
    char size[32];
    const double n = (double) s->sv.info.n_params;
    const char *quant = strchr(s->sv.info.type_desc, ' ');
    if (quant) quant = strchr(quant + 1, ' ');
    if (n >= 1e9) snprintf(size, sizeof size, "%.1fB", n / 1e9);
    else if (n >= 1e6) snprintf(size, sizeof size, "%.2fM", n / 1e6);
    else snprintf(size, sizeof size, "%.2fK", n / 1e3);
    return json_pack("{s:s, s:s, s:s, s:[s], s:s, s:s}", "parent_model", "", "format", "gguf", "family",
                     s->sv.info.arch, "families", s->sv.info.arch, "parameter_size", size,
                     "quantization_level", quant ? quant + 1 : "");
}

/* Returns an entry for the name of n bytes. */
static json_t *entry(const server *s, const char *name, size_t n, bool running)
{
    json_t *one = json_object();
    json_object_set_new(one, "name", json_stringn(name, n));
    json_object_set_new(one, "model", json_stringn(name, n));
    const uint64_t bytes = running ? s->plan.total_bytes : s->sv.info.file_bytes;
    json_object_set_new(one, "size", json_integer((json_int_t) bytes));
    json_object_set_new(one, "details", details(s));
    if (running) {
        const bool cpu = !strncmp(s->sv.info.device, "cpu", 3);
        json_object_set_new(one, "size_vram", json_integer(cpu ? 0 : (json_int_t) s->plan.total_bytes));
        json_object_set_new(one, "context_length", json_integer((json_int_t) s->sv.info.ctx_size));
    } else {
        json_object_set_new(one, "modified_at", modified(s));
    }
    return one;
}

static void add_model(const server *s, json_t *list, const char *name, size_t n, bool running)
{
    json_array_append_new(list, entry(s, name, n, running));
}

json_t *ollama_entry(const server *s, bool running) { return entry(s, s->sv.alias, strlen(s->sv.alias), running); }

/* The names: the model's, its aliases, and the adapters. */
static json_t *models(const server *s, bool running)
{
    json_t *list = json_array(), *adapters = running ? NULL : adapter_models(s, s->sv.alias), *v;
    size_t i;
    add_model(s, list, s->sv.alias, strlen(s->sv.alias), running);
    for (const char *p = s->aliases; !running && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",")) add_model(s, list, p, strcspn(p, ","), false);
    json_array_foreach(adapters, i, v) {
        const json_t *id = json_object_get(v, "id");
        add_model(s, list, json_string_value(id), json_string_length(id), false);
    }
    json_decref(adapters);
    return json_pack("{s:o}", "models", list);
}

void handle_ollama_tags(server *s, exchange *ex) { answer_json(ex, 200, models(s, false)); }
void handle_ollama_ps(server *s, exchange *ex) { answer_json(ex, 200, models(s, true)); }

/* ------------------------------------------------------------------------------------------------------------- show */

/* Parses a short body. Returns NULL after an error response. */
static json_t *short_body(exchange *ex)
{
    pi_error err = {0};
    json_t *root = ex->req.body.n <= MAX_SHORT ? params_parse(ex->req.body.p, ex->req.body.n, &err) : NULL;
    if (json_is_object(root)) return root;
    json_decref(root);
    if (ex->req.body.n > MAX_SHORT) answer_error(ex, 400, NULL, NULL, "the body has more than %d bytes", MAX_SHORT);
    else if (err.code == PI_ENOMEM) answer_error(ex, 503, NULL, NULL, "out of memory");
    else answer_error(ex, 400, NULL, NULL, "%s", err.code ? err.msg : "the body must be a JSON object");
    return NULL;
}

/* Returns a metadata value as text; NULL if the key is unknown or memory is missing. The caller frees it. */
static char *meta_text(const server *s, const char *key)
{
    const int64_t n = pi_engine_meta(s->sv.e, key, NULL, 0);
    char *text = n < 0 ? NULL : malloc((size_t) n + 1);
    if (n >= 0 && !text) text_no_memory();
    if (text && pi_engine_meta(s->sv.e, key, text, (size_t) n + 1) < 0) *text = 0;
    return text;
}

static bool starts_with(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

/* Returns the value as JSON: numbers, bools and lists, but the texts of general.* as they are. */
static json_t *meta_json(const char *key, const char *text)
{
    static const char *const numbers[] = {"general.file_type", "general.parameter_count",
                                          "general.quantization_version", "general.alignment"};
    bool number = !starts_with(key, "general.");
    json_fault fault;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) number |= !strcmp(key, numbers[i]);
    json_t *v = number ? json_read(text, strlen(text), &fault) : NULL;
    if (number && !v && fault.no_memory) text_no_memory();
    if (json_is_number(v) || json_is_boolean(v) || json_is_array(v)) return v;
    json_decref(v);
    return text_json(text, strlen(text));
}

/* Returns the metadata of the file. Lists of the vocabulary are null unless verbose. context_length is the longest
 * request of this server, because clients size their prompts by it. */
static json_t *model_info(const server *s, bool verbose)
{
    json_t *all = json_object();
    char key[256], name[256];
    for (size_t i = 0; pi_engine_meta_key(s->sv.e, i, key, sizeof key) >= 0; i++) {
        const bool list = starts_with(key, "tokenizer.ggml.") && (strstr(key, "tokens") || strstr(key, "scores") ||
                                                                   strstr(key, "merges") || strstr(key, "token_type"));
        if (starts_with(key, "tokenizer.chat_template")) continue;
        char *text = list && !verbose ? NULL : meta_text(s, key);
        json_object_set_new(all, key, text ? meta_json(key, text) : json_null());
        free(text);
    }
    json_object_set_new(all, "general.architecture", json_string(s->sv.info.arch));
    json_object_set_new(all, "general.parameter_count", json_integer((json_int_t) s->sv.info.n_params));
    snprintf(name, sizeof name, "%.200s.context_length", s->sv.info.arch);
    json_object_set_new(all, name, json_integer((json_int_t) s->sv.info.ctx_size));
    return all;
}

static json_t *capabilities(const server *s)
{
    json_t *list = json_array();
    if (*s->sv.info.pooling && !*s->sv.info.chat_template) json_array_append_new(list, json_string("embedding"));
    else json_array_append_new(list, json_string("completion"));
    if (s->can_call) json_array_append_new(list, json_string("tools"));
    if (s->can_think) json_array_append_new(list, json_string("thinking"));
    if (s->sv.info.modalities & PI_MODALITY_VISION) json_array_append_new(list, json_string("vision"));
    return list;
}

/* Returns the defaults of requests, one "name value" per line. */
static json_t *parameters(const server *s)
{
    static const char *const names[] = {"temperature", "top_k", "top_p", "min_p", "repeat_penalty"};
    json_t *settings = server_settings(s, NULL);
    buf b = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *text = json_dumps(json_object_get(settings, names[i]), JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        buf_fmt(&b, "%s%-30s %s", i ? "\n" : "", names[i], text ? text : "");
        free(text);
    }
    json_decref(settings);
    if (b.failed) text_no_memory();
    json_t *v = text_json(b.p ? b.p : "", b.n);
    buf_free(&b);
    return v;
}

/* True if the name, with or without the tag ":latest", is the model's or an adapter's. */
static bool is_known(const server *s, const char *name, size_t n)
{
    static const char tag[] = ":latest";
    pi_lora l;
    if (server_is_named(s, name, n) || service_adapter(&s->sv, name, n, &l)) return true;
    const size_t len = sizeof tag - 1;
    if (n <= len || memcmp(name + n - len, tag, len)) return false;
    return server_is_named(s, name, n - len) || service_adapter(&s->sv, name, n - len, &l);
}

json_t *ollama_properties(const server *s, bool verbose)
{
    json_t *root = json_pack("{s:o, s:s, s:o, s:o, s:o, s:o}", "parameters", parameters(s), "template",
                             s->sv.info.chat_template, "details", details(s), "model_info", model_info(s, verbose),
                             "capabilities", capabilities(s), "modified_at", modified(s));
    char *license = meta_text(s, "general.license");
    if (license) json_object_set_new(root, "license", text_json(license, strlen(license)));
    free(license);
    return root;
}

void handle_ollama_show(server *s, exchange *ex)
{
    json_t *body = short_body(ex);
    if (!body) return;
    const json_t *name = json_object_get(body, "model");
    if (!json_is_string(name)) name = json_object_get(body, "name");
    const bool verbose = json_is_true(json_object_get(body, "verbose"));
    const bool known = json_is_string(name) && is_known(s, json_string_value(name), json_string_length(name));
    if (!json_is_string(name)) {
        answer_error(ex, 400, "model", NULL, "'model' must be a string");
    } else if (!known) {
        answer_error(ex, 404, "model", NULL, "model '%.100s' not found: GET /api/tags lists the models",
                     json_string_value(name));
    } else {
        answer_json(ex, 200, ollama_properties(s, verbose));
    }
    json_decref(body);
}

/* --------------------------------------------------------------------------------------------------- load requests */

/* True if the body has no prompt and no messages: the client only wants the model to be loaded. */
static bool only_loads(const exchange *ex, json_t **model)
{
    json_fault fault;
    const char *text = ex->req.body.p ? ex->req.body.p : "";
    json_t *body = ex->req.body.n < 1024 ? json_read(text, ex->req.body.n, &fault) : NULL;
    const json_t *prompt = json_object_get(body, "prompt"), *messages = json_object_get(body, "messages");
    const bool loads = json_is_object(body) && (!prompt || json_is_null(prompt) || json_text_is(prompt, "")) &&
                       !json_array_size(messages) && (!messages || json_is_null(messages) || json_is_array(messages));
    *model = loads ? json_incref(json_object_get(body, "model")) : NULL;
    json_decref(body);
    return loads;
}

static void start(server *s, exchange *ex, const wire *w, const char *member, json_t *empty)
{
    json_t *model;
    if (!only_loads(ex, &model)) {
        json_decref(empty);
        reply_start(s, ex, w);
        return;
    }
    json_t *root = json_object();
    if (!json_is_string(model)) {
        json_decref(model);
        model = json_string(s->sv.alias);
    }
    json_object_set_new(root, "model", model);
    json_object_set_new(root, "created_at", time_json(time(NULL)));
    json_object_set_new(root, member, empty);
    json_object_set_new(root, "done", json_true());
    json_object_set_new(root, "done_reason", json_string("load"));
    answer_json(ex, 200, root);
}

void handle_ollama_chat(server *s, exchange *ex)
{
    start(s, ex, &wire_ollama_chat, "message", json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
}

void handle_ollama_generate(server *s, exchange *ex)
{
    start(s, ex, &wire_ollama_generate, "response", json_string(""));
}
