/* Converts request bodies of Ollama's API to the fields of /v1/chat/completions, /v1/completions and /v1/embeddings
 * (see convert.h), whose readers check them. Works on JSON only, on the pool's thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "serve/convert.h"
#include "serve/convert_impl.h"
#include "serve/fields.h"

/* Returns a member of o; NULL if it is absent or null. */
static json_t *given(const json_t *o, const char *name)
{
    json_t *v = json_object_get(o, name);
    return json_is_null(v) ? NULL : v;
}

/* Sets a member of *out to a new value; NULL = out of memory. Keeps *rc if it is an error already. */
static void set_new(int *rc, json_t *out, const char *name, json_t *v, pi_error *err)
{
    if (*rc) json_decref(v);
    else if (!v || json_object_set_new(out, name, v)) *rc = params_no_memory(err);
}

/* Removes the tag ":latest", which clients add to names. */
static json_t *model_name(const json_t *name)
{
    static const char tag[] = ":latest";
    const char *s = json_string_value(name);
    const size_t n = json_string_length(name), len = sizeof tag - 1;
    return json_stringn(s, n > len && !memcmp(s + n - len, tag, len) ? n - len : n);
}

/* Checks the body's fields and creates *out with those that all requests have. */
static int begin(params *p, const json_t *body, unsigned api, json_t **out, pi_error *err)
{
    static const char *const same[] = {"temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "stop",
                                       "repeat_last_n", "repeat_penalty", "presence_penalty", "frequency_penalty",
                                       "mirostat", "mirostat_tau", "mirostat_eta"};
    if (!json_is_object(body)) return params_fail(p, NULL, err, "the request's body must be a JSON object");
    params all = {.root = (json_t *) body};
    int rc = fields_check(&all, api, err);
    p->bad_field = all.bad_field;
    if (rc) return rc;
    const json_t *options = given(body, "options"), *model = given(body, "model");
    if (options && !json_is_object(options)) return params_fail(p, "options", err, "'options' must be an object");
    if (!(*out = json_object())) return params_no_memory(err);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        json_t *v = given(options, same[i]);
        if (v) set_new(&rc, *out, same[i], json_incref(v), err);
    }
    json_t *n = given(options, "num_predict");
    if (n && !rc) set_new(&rc, *out, "max_tokens", json_incref(n), err);
    if (json_is_string(model)) set_new(&rc, *out, "model", model_name(model), err);
    return rc;
}

/* "stream" is true unless it is given. */
static void set_stream(int *rc, json_t *out, const json_t *body, pi_error *err)
{
    json_t *v = given(body, "stream");
    set_new(rc, out, "stream", v ? json_incref(v) : json_true(), err);
}

/* "format": "json" or a schema. */
static int set_format(params *p, json_t *out, const json_t *body, pi_error *err)
{
    json_t *format = given(body, "format");
    int rc = PI_OK;
    if (!format || (json_is_string(format) && !json_string_length(format))) return PI_OK;
    if (json_is_object(format))
        set_new(&rc, out, "response_format", json_pack("{s:s, s:{s:O}}", "type", "json_schema", "json_schema",
                                                       "schema", format), err);
    else if (json_text_is(format, "json"))
        set_new(&rc, out, "response_format", json_pack("{s:s}", "type", "json_object"), err);
    else rc = params_fail(p, "format", err, "'format' must be json or a JSON Schema");
    return rc;
}

/* "think": true, false, or an effort. */
static int set_think(params *p, json_t *out, const json_t *body, pi_error *err)
{
    json_t *think = given(body, "think");
    int rc = PI_OK;
    if (!think) return PI_OK;
    if (!json_is_boolean(think) && !json_is_c_string(think))
        return params_fail(p, "think", err, "'think' must be true, false, or an effort such as low");
    if (json_is_string(think)) set_new(&rc, out, "reasoning_effort", json_incref(think), err);
    set_new(&rc, out, "chat_template_kwargs",
            json_pack("{s:b}", "enable_thinking", !json_is_false(think)), err);
    return rc;
}

/* -------------------------------------------------------------------------------------------------------- messages */

/* Returns the URL of an image in base64. Its type follows from its first bytes. */
static json_t *image_url(const json_t *image)
{
    static const char *const type[][2] = {{"iVBOR", "png"}, {"/9j/", "jpeg"}, {"R0lGOD", "gif"}, {"UklGR", "webp"}};
    const char *s = json_string_value(image), *found = "png";
    if (!s) return NULL;
    for (size_t i = 0; i < sizeof type / sizeof *type; i++)
        if (!strncmp(s, type[i][0], strlen(type[i][0]))) found = type[i][1];
    return json_sprintf("data:image/%s;base64,%s", found, s);
}

/* Returns the content: text, or parts if there are images. NULL = out of memory, or *bad. */
static json_t *text_and_images(const json_t *text, const json_t *images, bool *bad)
{
    const json_t *one;
    size_t i;
    *bad = (text && !json_is_string(text)) || (images && !json_is_array(images));
    if (*bad) return NULL;
    json_t *own = text ? json_stringn(json_string_value(text), json_string_length(text)) : json_string("");
    if (!json_array_size(images)) return own;
    json_t *parts = json_pack("[{s:s, s:o}]", "type", "text", "text", own);
    json_array_foreach(images, i, one) {
        json_t *url = image_url(one);
        *bad |= !json_is_string(one);
        json_array_append_new(parts, json_pack("{s:s, s:{s:o}}", "type", "image_url", "image_url", "url", url));
    }
    if (!*bad && parts && json_array_size(parts) == json_array_size(images) + 1) return parts;
    json_decref(parts);
    return NULL;
}

/* Ids of calls: Ollama has none, so results answer the calls in order. */
struct ids {
    size_t n_calls, n_results;
};

static json_t *id_json(size_t i) { return json_sprintf("call_%zu", i); }

/* Adds a message's calls, with their arguments as text. */
static int add_calls(params *p, json_t *m, const json_t *calls, struct ids *ids, pi_error *err)
{
    json_t *list = json_array();
    const json_t *call;
    size_t i;
    int rc = PI_OK;
    if (!json_is_array(calls)) rc = params_fail(p, "messages", err, "'tool_calls' must be a list");
    json_array_foreach(calls, i, call) {
        const json_t *f = json_object_get(call, "function"), *args = given(f, "arguments");
        const char *name = text_of(f, "name");
        if (rc) break;
        if (!name) {
            rc = params_fail(p, "messages", err, "a tool call has no function name");
            break;
        }
        char *text = json_is_object(args) ? json_write(args, 0) : NULL;
        const bool failed = json_is_object(args) && !text;
        json_t *arguments = json_is_string(args) ? json_incref((json_t *) args) : json_string(text ? text : "{}");
        free(text);
        json_t *id = id_json(ids->n_calls++);
        if (!append(list, call_json(id, name, arguments)) || failed || !id) rc = params_no_memory(err);
        json_decref(id);
    }
    set_new(&rc, m, "tool_calls", list, err);
    return rc;
}

static int add_ollama_message(params *p, json_t *list, const json_t *m, struct ids *ids, pi_error *err)
{
    const char *role = text_of(m, "role");
    json_t *thinking = given(m, "thinking"), *calls = given(m, "tool_calls");
    bool bad;
    int rc = PI_OK;
    if (!role) return params_fail(p, "messages", err, "a message has no role");
    json_t *content = text_and_images(given(m, "content"), given(m, "images"), &bad);
    if (bad)
        return params_fail(p, "messages", err, "a message's content must be text, and its images a list of base64");
    json_t *to = json_object();
    set_new(&rc, to, "role", json_string(role), err);
    set_new(&rc, to, "content", content, err);
    if (json_string_length(thinking)) set_new(&rc, to, "reasoning_content", json_incref(thinking), err);
    if (!rc && json_array_size(calls)) rc = add_calls(p, to, calls, ids, err);
    if (!strcmp(role, "tool")) {
        json_t *name = given(m, "tool_name") ? given(m, "tool_name") : given(m, "name");
        set_new(&rc, to, "tool_call_id", id_json(ids->n_results++), err);
        if (json_is_string(name)) set_new(&rc, to, "name", json_incref(name), err);
    }
    if (rc) json_decref(to);
    else if (!append(list, to)) rc = params_no_memory(err);
    return rc;
}

int convert_ollama_chat(params *p, const json_t *body, json_t **out, pi_error *err)
{
    const json_t *list = json_object_get(body, "messages"), *m;
    json_t *messages, *tools;
    struct ids ids = {0};
    size_t i;
    int rc = begin(p, body, API_OLLAMA_CHAT, out, err);
    if (rc) return rc;
    set_stream(&rc, *out, body, err);
    if (!rc && (!json_is_array(list) || !json_array_size(list)))
        rc = params_fail(p, "messages", err, "'messages' must be a non-empty list");
    set_new(&rc, *out, "messages", messages = json_array(), err);
    if (!rc) json_array_foreach(list, i, m) if (!rc) rc = add_ollama_message(p, messages, m, &ids, err);
    if (!rc && (tools = given(body, "tools"))) set_new(&rc, *out, "tools", json_incref(tools), err);
    if (!rc) rc = set_format(p, *out, body, err);
    return rc ? rc : set_think(p, *out, body, err);
}

int convert_ollama_generate(params *p, const json_t *body, json_t **out, bool *raw, pi_error *err)
{
    json_t *prompt = given(body, "prompt"), *system = given(body, "system"), *suffix = given(body, "suffix"), *list;
    bool bad = false;
    int rc = begin(p, body, API_OLLAMA_TEXT, out, err);
    if (rc) return rc;
    *raw = json_is_true(json_object_get(body, "raw")) || json_string_length(suffix);
    set_stream(&rc, *out, body, err);
    if (!rc && !json_is_string(prompt)) return params_fail(p, "prompt", err, "'prompt' must be a string");
    if (*raw) {
        set_new(&rc, *out, "prompt", json_incref(prompt), err);
        if (json_string_length(suffix)) set_new(&rc, *out, "suffix", json_incref(suffix), err);
        return rc ? rc : set_format(p, *out, body, err);
    }
    json_t *content = text_and_images(prompt, given(body, "images"), &bad);
    if (bad) return params_fail(p, "images", err, "'images' must be a list of base64");
    set_new(&rc, *out, "messages", list = json_array(), err);
    if (!rc && json_is_string(system) && json_string_length(system) &&
        !append(list, json_pack("{s:s, s:O}", "role", "system", "content", system)))
        rc = params_no_memory(err);
    if (rc) json_decref(content);
    else if (!content || !append(list, json_pack("{s:s, s:o}", "role", "user", "content", content)))
        rc = params_no_memory(err);
    if (!rc) rc = set_format(p, *out, body, err);
    return rc ? rc : set_think(p, *out, body, err);
}

int convert_ollama_embed(params *p, const json_t *body, const char *input, json_t **out, pi_error *err)
{
    json_t *v = given(body, input), *n = given(body, "dimensions");
    int rc = begin(p, body, API_OLLAMA_EMBED, out, err);
    if (rc) return rc;
    if (!v) return params_fail(p, input, err, "'%s' is missing", input);
    if (!json_is_string(v) && !json_is_array(v))
        return params_fail(p, input, err, "'%s' must be text, or a list", input);
    set_new(&rc, *out, "input", json_incref(v), err);
    if (n) set_new(&rc, *out, "dimensions", json_incref(n), err);
    if (!json_is_false(json_object_get(body, "truncate")))
        set_new(&rc, *out, "truncate_prompt_tokens", json_integer(-1), err);
    return rc;
}
