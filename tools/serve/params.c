/* Fields of a request (see params.h). Many fields set one option to their value: the rows of fields.c that have a
 * key. */
#include "serve/params.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "serve/buf.h"
#include "serve/fields.h"
#include "serve/text.h"

enum {
    MAX_ALTERNATIVES = 1024,       /* maximum for a generated token */
    MAX_PROMPT_ALTERNATIVES = 64,  /* maximum for a prompt token */
    MAX_N = 64,
    MAX_PROMPTS = 1024,
    MAX_BREAKERS = 256,            /* each is searched in the complete vocabulary */
    MAX_STOPS = 4096,              /* maximum number of stop tokens and of stop strings */
    MAX_STOP_BYTES = 64 << 10,     /* maximum bytes of all stop strings */
};

/* ----------------------------------------------------------------------------------------------------------- parts */

int params_fail(params *p, const char *field, pi_error *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    p->bad_field = field;
    return err->code = PI_EINVAL;
}

int params_no_memory(pi_error *err)
{
    *err = (pi_error) {PI_ENOMEM, "out of memory"};
    return PI_ENOMEM;
}

json_t *params_parse(const char *body, size_t n, pi_error *err)
{
    json_fault f;
    (void) text_failed(); /* clears the state of earlier work on this thread */
    json_t *root = json_read(body ? body : "", n, &f);
    if (root) return root;
    *err = (pi_error) {.code = PI_EINVAL};
    if (f.no_memory) params_no_memory(err);
    else
        snprintf(err->msg, sizeof err->msg, "the body is not JSON: %s (line %zu, column %zu)", f.what, f.line,
                 f.column);
    return NULL;
}

int params_add_image(params *p, const param_image *image, pi_error *err)
{
    if (!grow(&p->images, &p->cap_images, p->n_images + 1, sizeof *image)) return params_no_memory(err);
    p->images[p->n_images++] = *image;
    return PI_OK;
}

int params_add(params *p, const char *key, const char *field, const char *value, pi_error *err)
{
    char *copy = strdup(value);
    if (!copy || !grow(&p->option, &p->cap_option, p->n_option + 1, sizeof *p->option)) {
        free(copy);
        return params_no_memory(err);
    }
    p->option[p->n_option++] = (param_option) {key, field, copy};
    return PI_OK;
}

int params_add_text(params *p, const char *key, const char *field, const json_t *text, pi_error *err)
{
    if (!json_is_c_string(text)) return params_fail(p, field, err, "'%s' must not contain a zero byte", field);
    return params_add(p, key, field, json_string_value(text), err);
}

int params_add_json(params *p, const char *key, const char *field, const json_t *value, pi_error *err)
{
    char *text = json_write(value, 0);
    int rc = text ? params_add(p, key, field, text, err) : params_no_memory(err);
    free(text);
    return rc;
}

/* Returns the field's value, or NULL. JSON null counts as absent, because clients send it for unset fields. */
static const json_t *given(const json_t *o, const char *field)
{
    const json_t *v = json_object_get(o, field);
    return json_is_null(v) ? NULL : v;
}

int params_bool(params *p, const json_t *o, const char *field, bool *out, pi_error *err)
{
    const json_t *v = given(o, field);
    if (!v) return PI_OK;
    if (!json_is_boolean(v)) return params_fail(p, field, err, "'%s' must be true or false", field);
    *out = json_is_true(v);
    return PI_OK;
}

/* A number that does not fit in 63 bits. */
static int out_of_range(params *p, const char *field, pi_error *err)
{
    return params_fail(p, field, err, "%s is out of range: give a number of at most 63 bits", field);
}

/* True if v is an integer, also one with a decimal point such as 40.0, which some clients send. */
static bool is_whole(const json_t *v, json_int_t *out)
{
    const double d = json_real_value(v); /* 0 for other types */
    const bool real = json_is_real(v) && fabs(d) <= 0x1p53 && d == floor(d);
    *out = real ? (json_int_t) d : json_integer_value(v);
    return real || json_is_integer(v);
}

int params_int(params *p, const json_t *o, const char *field, int64_t lo, int64_t hi, int64_t *out, pi_error *err)
{
    const json_t *v = given(o, field);
    json_int_t n;
    if (!v) return PI_OK;
    if (json_number_text(v)) return out_of_range(p, field, err);
    if (!is_whole(v, &n)) return params_fail(p, field, err, "'%s' must be an integer", field);
    *out = n;
    if (*out >= lo && *out <= hi) return PI_OK;
    return params_fail(p, field, err, "'%s' is %" PRId64 "; it must be from %" PRId64 " to %" PRId64, field, *out, lo,
                       hi);
}

int params_string(params *p, const json_t *o, const char *field, const char **out, pi_error *err)
{
    const json_t *v = given(o, field);
    if (!v) return PI_OK;
    if (!json_is_string(v)) return params_fail(p, field, err, "'%s' must be a string", field);
    if (!json_is_c_string(v)) return params_fail(p, field, err, "'%s' must not contain a zero byte", field);
    *out = json_string_value(v);
    return PI_OK;
}

static int read_field(params *p, const field *f, pi_error *err)
{
    const json_t *v = given(p->root, f->name);
    char text[64];
    const char *s = NULL;
    json_int_t n;
    if (!v) return PI_OK;
    if (json_number_text(v) && f->types & (TYPE_NUMBER | TYPE_INTEGER)) return out_of_range(p, f->name, err);
    switch (f->types) {
    case TYPE_NUMBER:
        if (!json_is_number(v)) return params_fail(p, f->name, err, "'%s' must be a number", f->name);
        snprintf(text, sizeof text, "%.17g", json_number_value(v));
        break;
    case TYPE_INTEGER:
        if (!is_whole(v, &n)) return params_fail(p, f->name, err, "'%s' must be an integer", f->name);
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, n);
        break;
    case TYPE_BOOLEAN:
        if (!json_is_boolean(v)) return params_fail(p, f->name, err, "'%s' must be true or false", f->name);
        snprintf(text, sizeof text, "%s", json_is_true(v) ? "true" : "false");
        break;
    default: {
        int rc = params_string(p, p->root, f->name, &s, err);
        if (rc || !*s) return rc;
        return params_add(p, f->key, f->name, s, err);
    }
    }
    return params_add(p, f->key, f->name, text, err);
}

/* ----------------------------------------------------------------------------------------------------------- lists */

/* Reads "stop": a text or a list of texts. */
static int read_stop(params *p, const char *field, pi_error *err)
{
    const json_t *v = given(p->root, field), *s;
    size_t i, bytes = 0;
    if (!v) return PI_OK;
    if (json_is_string(v)) {
        return json_string_length(v) ? params_add_text(p, "stop", field, v, err) : PI_OK;
    }
    if (!json_is_array(v) || json_array_size(v) > MAX_STOPS)
        return params_fail(p, field, err, "'%s' must be a string or a list of at most %d", field, MAX_STOPS);
    json_array_foreach(v, i, s) {
        if (!json_string_length(s)) return params_fail(p, field, err, "'%s' must contain non-empty strings", field);
        if ((bytes += json_string_length(s)) > MAX_STOP_BYTES)
            return params_fail(p, field, err, "'%s' has more than %d bytes in total: send fewer or shorter strings",
                               field, MAX_STOP_BYTES);
        int rc = params_add_text(p, "stop", field, s, err);
        if (rc) return rc;
    }
    return PI_OK;
}

static int read_bad_words(params *p, pi_error *err)
{
    static const char field[] = "bad_words";
    const json_t *v = given(p->root, field), *s;
    size_t i;
    if (!v) return PI_OK;
    if (!json_is_array(v) || json_array_size(v) > 256)
        return params_fail(p, field, err, "'%s' must be a list of at most 256 texts", field);
    json_array_foreach(v, i, s) {
        if (!json_string_length(s)) return params_fail(p, field, err, "'%s' must contain non-empty strings", field);
        int rc = params_add_text(p, "bad-words", field, s, err);
        if (rc) return rc;
    }
    return PI_OK;
}

static int read_stop_ids(params *p, pi_error *err)
{
    const json_t *v = given(p->root, "stop_token_ids"), *id;
    size_t i;
    char text[32];
    if (!v) return PI_OK;
    if (!json_is_array(v) || json_array_size(v) > MAX_STOPS)
        return params_fail(p, "stop_token_ids", err, "'stop_token_ids' must be a list of at most %d token ids",
                           MAX_STOPS);
    json_array_foreach(v, i, id) {
        if (!json_is_integer(id))
            return params_fail(p, "stop_token_ids", err, "'stop_token_ids' must contain token ids");
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
        int rc = params_add(p, "stop-token", "stop_token_ids", text, err);
        if (rc) return rc;
    }
    return PI_OK;
}

static int read_samplers(params *p, pi_error *err)
{
    const json_t *v = given(p->root, "samplers"), *s;
    size_t i;
    buf b = {0};
    if (!v) return PI_OK;
    if (json_is_string(v)) return params_add_text(p, "samplers", "samplers", v, err);
    if (!json_is_array(v)) return params_fail(p, "samplers", err, "'samplers' must be a list of names");
    json_array_foreach(v, i, s) {
        if (b.n) buf_str(&b, ";");
        buf_str(&b, json_is_c_string(s) ? json_string_value(s) : "?");
    }
    int rc = b.failed ? params_no_memory(err) : params_add(p, "samplers", "samplers", b.p ? b.p : "", err);
    buf_free(&b);
    return rc;
}

static int read_breakers(params *p, pi_error *err)
{
    static const char field[] = "dry_sequence_breakers";
    const json_t *v = given(p->root, field), *s;
    size_t i;
    if (!v) return PI_OK;
    if (!json_is_array(v) || json_array_size(v) > MAX_BREAKERS)
        return params_fail(p, field, err, "'%s' must be a list of at most %d strings", field, MAX_BREAKERS);
    if (!json_array_size(v)) return params_add(p, "dry-sequence-breaker", field, "none", err);
    json_array_foreach(v, i, s) {
        if (!json_string_length(s))
            return params_fail(p, field, err, "'%s' must contain non-empty strings", field);
        int rc = params_add_text(p, "dry-sequence-breaker", field, s, err);
        if (rc) return rc;
    }
    return PI_OK;
}

/* --------------------------------------------------------------------------------------------------------- prompts */

static int no_prompt(params *p, const char *field, pi_error *err)
{
    return params_fail(p, field, err,
                       "'%s' must be text, a list of token ids and texts, {\"prompt_string\": ...}, or a list of these",
                       field);
}

static bool is_id(const json_t *v)
{
    return json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= INT32_MAX;
}

/* Reads a list of ids, or of ids and texts. */
static int read_list(params *p, const char *field, const json_t *list, prompt *out, pi_error *err)
{
    size_t n = json_array_size(list), n_texts = 0, i;
    const json_t *v;
    json_array_foreach(list, i, v) {
        n_texts += json_is_string(v);
        if (!json_is_string(v) && !is_id(v)) return no_prompt(p, field, err);
    }
    out->mixed = n_texts ? list : NULL;
    if (n_texts) return PI_OK;
    out->ids = malloc((n ? n : 1) * sizeof *out->ids);
    if (!out->ids) return params_no_memory(err);
    json_array_foreach(list, i, v) out->ids[out->n_ids++] = (int32_t) json_integer_value(v);
    return PI_OK;
}

/* Reads llama-server's list of base64 files; the prompt's text has a marker for each of them. */
static int read_media(params *p, const char *field, const json_t *list, prompt *out, pi_error *err)
{
    const json_t *v;
    size_t i;
    int rc = PI_OK;
    out->image = p->n_images;
    if (!list) return PI_OK;
    if (!json_is_array(list))
        return params_fail(p, field, err, "'%s' has multimodal_data that is not a list of base64 texts", field);
    if (json_array_size(list) && !p->reads_images)
        return params_fail(p, field, err, "'%s' has multimodal_data: send text, or start the server with --mmproj",
                           field);
    json_array_foreach(list, i, v) {
        const param_image image = {.text = json_string_value(v), .n = json_string_length(v), .base64 = true};
        if (!image.n)
            rc = params_fail(p, field, err, "'%s' has multimodal_data that is not a list of base64 texts", field);
        if (!rc) rc = params_add_image(p, &image, err);
        if (rc) return rc;
    }
    out->n_images = p->n_images - out->image;
    return PI_OK;
}

static int read_prompt(params *p, const char *field, const json_t *v, pi_error *err)
{
    prompt *out = &p->prompts[p->n_prompts++];
    int rc = read_media(p, field, given(v, "multimodal_data"), out, err);
    if (rc) return rc;
    if (json_is_object(v)) v = json_object_get(v, "prompt_string");
    if (json_is_array(v)) return read_list(p, field, v, out, err);
    if (!json_is_string(v)) return no_prompt(p, field, err);
    out->text = json_string_value(v);
    out->len = json_string_length(v);
    return PI_OK;
}

/* True if v is a list of prompts. A list that contains an id is one prompt. */
static bool is_many(const json_t *v)
{
    const json_t *one;
    size_t i;
    json_array_foreach(v, i, one) if (json_is_integer(one)) return false;
    return json_array_size(v) > 0;
}

int params_prompts(params *p, const char *field, pi_error *err)
{
    const json_t *v = given(p->root, field), *one;
    size_t i;
    if (!v) return params_fail(p, field, err, "'%s' is missing", field);
    const bool many = is_many(v);
    size_t n = many ? json_array_size(v) : 1;
    if (n > MAX_PROMPTS)
        return params_fail(p, field, err, "'%s' has %zu prompts; the limit is %d", field, n, MAX_PROMPTS);
    if (!(p->prompts = calloc(n, sizeof *p->prompts))) return params_no_memory(err);
    if (!many) return read_prompt(p, field, v, err);
    json_array_foreach(v, i, one) {
        int rc = read_prompt(p, field, one, err);
        if (rc) return rc;
    }
    return PI_OK;
}

int params_pairs(params *p, const char *query_field, const char *list_field, pi_error *err)
{
    const json_t *query = given(p->root, query_field), *list = given(p->root, list_field), *one;
    const size_t n = json_array_size(list);
    size_t i;
    if (!json_is_string(query)) return params_fail(p, query_field, err, "'%s' must be a string", query_field);
    if (!n) return params_fail(p, list_field, err, "'%s' must be a non-empty list of texts", list_field);
    if (n > MAX_PROMPTS)
        return params_fail(p, list_field, err, "'%s' has %zu texts; the limit is %d", list_field, n, MAX_PROMPTS);
    if (!(p->prompts = calloc(n, sizeof *p->prompts))) return params_no_memory(err);
    json_array_foreach(list, i, one) {
        const json_t *text = json_is_object(one) ? json_object_get(one, "text") : one;
        if (!json_is_string(text))
            return params_fail(p, list_field, err, "'%s' must contain texts, or objects with a \"text\"", list_field);
        p->prompts[p->n_prompts++] = (prompt) {.text = json_string_value(text),
                                               .len = json_string_length(text),
                                               .query = json_string_value(query),
                                               .query_len = json_string_length(query)};
    }
    return PI_OK;
}

/* ---------------------------------------------------------------------------------------------- structured output */

int params_response_format(params *p, const json_t *f, const char *field, pi_error *err)
{
    const char *type = json_string_value(json_object_get(f, "type"));
    if (!f || json_is_null(f)) return PI_OK;
    if (!type) return params_fail(p, field, err, "'%s' must be an object with a type", field);
    if (!strcmp(type, "text")) return PI_OK;
    const json_t *schema = json_object_get(f, "schema");
    if (!strcmp(type, "json_object")) {
        if (schema) return params_add_json(p, "json-schema", field, schema, err);
        return params_add(p, "json-schema", field, "{\"type\":\"object\"}", err);
    }
    if (strcmp(type, "json_schema") != 0)
        return params_fail(p, field, err, "'%s' has type %.40s; send text, json_object or json_schema", field,
                           type);
    if (!schema) schema = json_object_get(json_object_get(f, "json_schema"), "schema");
    if (!schema) return params_fail(p, field, err, "'%s' of type json_schema needs a schema", field);
    return params_add_json(p, "json-schema", field, schema, err);
}

/* Reads vLLM's object with one of "json", "regex", "choice", "grammar". */
static int read_structured_outputs(params *p, pi_error *err)
{
    static const char name[] = "structured_outputs", *const texts[] = {"regex", "grammar"};
    const json_t *o = given(p->root, name), *v;
    const char *s = NULL;
    if (!o) return PI_OK;
    if (!json_is_object(o)) return params_fail(p, name, err, "'%s' must be an object", name);
    if (given(o, "structural_tag"))
        return params_fail(p, name, err, "'%s' with a structural_tag is not supported", name);
    bool any = false;
    int rc = params_bool(p, o, "json_object", &any, err);
    if (!rc && any) rc = params_add(p, "json-schema", name, "{\"type\":\"object\"}", err);
    if (!rc && (v = given(o, "json")))
        rc = json_is_string(v) ? params_add_text(p, "json-schema", name, v, err)
                               : params_add_json(p, "json-schema", name, v, err);
    if (!rc && (v = given(o, "choice"))) rc = params_add_json(p, "choice", name, v, err);
    for (int i = 0; i < 2 && !rc; i++) {
        s = NULL;
        rc = params_string(p, o, texts[i], &s, err);
        if (!rc && s) rc = params_add(p, texts[i], name, s, err);
    }
    return rc;
}

static int read_structure(params *p, pi_error *err)
{
    static const char *const schema_fields[] = {"json_schema", "guided_json"};
    const json_t *v;
    int rc = params_response_format(p, json_object_get(p->root, "response_format"), "response_format", err);
    for (int i = 0; i < 2 && !rc; i++) {
        if (!(v = given(p->root, schema_fields[i]))) continue;
        rc = json_is_string(v) ? params_add_text(p, "json-schema", schema_fields[i], v, err)
                               : params_add_json(p, "json-schema", schema_fields[i], v, err);
    }
    if (!rc && (v = given(p->root, "guided_choice"))) rc = params_add_json(p, "choice", "guided_choice", v, err);
    return rc ? rc : read_structured_outputs(p, err);
}

/* ------------------------------------------------------------------------------------------------------------- all */

/* Reads logprobs: a number in completions (llama.cpp: n_probs), true with top_logprobs in chats. */
static int read_logprobs(params *p, pi_error *err)
{
    const json_t *v = given(p->root, "logprobs");
    int64_t n = -1;
    int rc = PI_OK;
    p->logprobs = -1;
    if (json_is_boolean(v)) {
        if (json_is_true(v)) p->logprobs = 0;
        rc = params_int(p, p->root, "top_logprobs", 0, MAX_ALTERNATIVES, &n, err);
        if (!rc && n > 0 && p->logprobs < 0)
            return params_fail(p, "top_logprobs", err, "'top_logprobs' needs 'logprobs': true");
    } else {
        rc = params_int(p, p->root, "logprobs", 0, MAX_ALTERNATIVES, &n, err);
        if (!rc && given(p->root, "n_probs")) {
            rc = params_int(p, p->root, "n_probs", 0, MAX_ALTERNATIVES, &n, err);
            if (!n) n = -1;
        }
    }
    if (n > p->logprobs) p->logprobs = (int) n;
    return rc;
}

/* Reads vLLM's fields for prompt logprobs and prompt truncation. */
static int read_prompt_fields(params *p, pi_error *err)
{
    int64_t n = -1;
    bool special = true;
    int rc = params_int(p, p->root, "prompt_logprobs", 0, MAX_PROMPT_ALTERNATIVES, &n, err);
    if (!rc && n >= 0 && p->stream)
        rc = params_fail(p, "prompt_logprobs", err, "'prompt_logprobs' needs 'stream': false");
    if (!rc) rc = params_int(p, p->root, "truncate_prompt_tokens", -1, INT32_MAX, &p->max_prompt_tokens, err);
    if (!rc && !p->max_prompt_tokens)
        rc = params_fail(p, "truncate_prompt_tokens", err, "'truncate_prompt_tokens' must be 1 or more, or -1");
    if (!rc) rc = params_bool(p, p->root, "add_special_tokens", &special, err);
    p->prompt_logprobs = (int) n;
    p->no_bos = !special;
    return rc;
}

static int read_max_tokens(params *p, pi_error *err)
{
    /* the last one has precedence */
    static const char *const names[] = {"max_output_tokens", "max_tokens", "max_completion_tokens", "n_predict"};
    p->max_tokens = INT64_MIN;
    for (int i = 0; i < 4; i++) {
        int rc = params_int(p, p->root, names[i], -2, INT32_MAX, &p->max_tokens, err);
        if (rc) return rc;
    }
    return PI_OK;
}

static int read_switches(params *p, pi_error *err)
{
    const json_t *o = p->root, *so = given(o, "stream_options");
    int64_t n = 1;
    bool skip = true;
    int rc = params_bool(p, o, "stream", &p->stream, err);
    if (!rc && so && !json_is_object(so))
        rc = params_fail(p, "stream_options", err, "'stream_options' must be an object");
    if (!rc) rc = params_bool(p, so, "include_usage", &p->include_usage, err);
    if (!rc) rc = params_bool(p, so, "continuous_usage_stats", &p->usage_in_all, err);
    if (!rc) rc = params_bool(p, o, "echo", &p->echo, err);
    if (!rc) rc = params_bool(p, o, "return_token_ids", &p->token_ids, err);
    if (!rc) rc = params_bool(p, o, "skip_special_tokens", &skip, err);
    if (!rc) rc = params_bool(p, o, "timings_per_token", &p->timings, err);
    if (!rc) rc = params_bool(p, o, "include_stop_str_in_output", &p->keep_stop, err);
    if (!rc) rc = params_bool(p, o, "return_tokens_as_token_ids", &p->ids_as_tokens, err);
    if (!rc) rc = params_bool(p, o, "post_sampling_probs", &p->drawn, err);
    if (!rc) rc = params_bool(p, o, "return_progress", &p->progress, err);
    if (!rc) rc = params_int(p, o, "sse_ping_interval", -1, 86400, &p->ping_s, err);
    if (!rc) rc = params_int(p, o, "t_max_predict_ms", -1, INT32_MAX, &p->max_ms, err);
    p->progress &= p->stream;
    if (!rc) rc = params_int(p, o, "n_cmpl", 1, MAX_N, &n, err);
    if (!rc) rc = params_int(p, o, "n", 1, MAX_N, &n, err);
    if (!rc) rc = params_string(p, o, "cache_salt", &p->cache_salt, err);
    p->n = (int) n;
    p->special = !skip;
    return rc;
}

int params_read(params *p, json_t *root, unsigned api, pi_error *err)
{
    *p = (params) {.root = root,
                   .n = 1,
                   .logprobs = -1,
                   .prompt_logprobs = -1,
                   .ping_s = INT64_MIN,
                   .max_prompt_tokens = INT64_MIN};
    if (!json_is_object(root)) return params_fail(p, NULL, err, "the request's body must be a JSON object");
    int rc = fields_check(p, api, err);
    if (!rc) rc = read_switches(p, err);
    if (!rc) rc = read_max_tokens(p, err);
    if (!rc) rc = read_logprobs(p, err);
    if (!rc) rc = read_prompt_fields(p, err);
    for (size_t i = 0; i < n_fields && fields[i].key && !rc; i++) rc = read_field(p, &fields[i], err);
    if (!rc) rc = read_stop(p, "stop", err);
    if (!rc) rc = read_stop(p, "stop_sequences", err);
    if (!rc) rc = read_stop_ids(p, err);
    if (!rc) rc = read_bad_words(p, err);
    if (!rc) rc = read_samplers(p, err);
    if (!rc) rc = read_breakers(p, err);
    if (!rc) rc = read_structure(p, err);
    return rc;
}

const char *params_value(const params *p, const char *key)
{
    for (size_t i = p ? p->n_option : 0; i-- > 0;)
        if (!strcmp(p->option[i].key, key)) return p->option[i].value;
    return NULL;
}

json_t *params_settings(const params *p, const char *(*otherwise)(const void *ud, const char *key), const void *ud)
{
    json_t *all = json_object();
    json_fault f = {0};
    for (size_t i = 0; i < n_fields && fields[i].key; i++) {
        bool known = !strncmp(fields[i].name, "guided_", 7); /* known by an earlier name or field */
        for (size_t k = 0; k < i && !known; k++) known = !strcmp(fields[k].key, fields[i].key);
        if (known) continue;
        const char *v = params_value(p, fields[i].key);
        if (!v) v = otherwise(ud, fields[i].key);
        json_t *number = fields[i].types == TYPE_STRING ? NULL : json_read(v, strlen(v), &f);
        if (f.no_memory) text_no_memory();
        /* a real number such as 1.0 that is stored as "1" */
        if (fields[i].types == TYPE_NUMBER && json_is_integer(number)) {
            const json_int_t whole = json_integer_value(number);
            json_decref(number);
            number = json_real((double) whole);
        }
        json_object_set_new(all, fields[i].name, number ? number : text_json(v, strlen(v)));
    }
    return all;
}

void params_free(params *p)
{
    for (size_t i = 0; i < p->n_option; i++) free(p->option[i].value);
    free(p->option);
    for (size_t i = 0; i < p->n_prompts; i++) free(p->prompts[i].ids);
    free(p->prompts);
    free(p->images);
    json_decref(p->messages);
    json_decref(p->tools);
    json_decref(p->template_vars);
    json_decref(p->namespaces);
    buf_free(&p->left_out);
    json_decref(p->root);
    *p = (params) {0};
}
