/* Values of vLLM's flags (see vllm.h). JSON is parsed with jansson; unknown keys are errors, because a setting without
 * effect would go unnoticed. Not thread-safe. */
#include "vllm.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "options.h"

static int no_memory(const cli *c) { return cli_error(c, CLI_OS, "out of memory"); }

static bool on_command_line(const cli *c, const char *key) { return cli_given(c, key) && !cli_is_weak(c, key); }

/* Sets an option unless the command line has it. Returns an exit code, or -1 to continue. */
static int set(cli *c, const char *key, const char *value)
{
    return on_command_line(c, key) || cli_set(c, key, value) ? -1 : no_memory(c);
}

/* True if the option's value is a JSON object or list. */
static bool is_json(const char *value) { return *value == '{' || *value == '['; }

/* Parses the value of a flag as a JSON object into *out; the caller releases it. Returns an exit code, or -1. */
static int parse(const cli *c, const char *flag, const char *value, json_t **out)
{
    json_error_t e;
    *out = json_loads(value, JSON_REJECT_DUPLICATES, &e);
    if (json_is_object(*out)) return -1;
    json_decref(*out);
    *out = NULL;
    return cli_usage_error(c, "%s: '%.60s' is not a JSON object", flag, value);
}

/* One member of a JSON object, and the option that it sets. */
typedef struct member {
    const char *name; /* in the object */
    const char *key;  /* of the option; NULL = the member has no effect */
} member;

/* Writes a JSON string, number or boolean as the text of an option. Returns false for other types. */
static bool as_text(const json_t *v, char *out, size_t cap)
{
    int n = -1;
    if (json_is_string(v)) n = snprintf(out, cap, "%s", json_string_value(v));
    else if (json_is_integer(v)) n = snprintf(out, cap, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else if (json_is_real(v)) n = snprintf(out, cap, "%.9g", json_real_value(v));
    else if (json_is_boolean(v)) n = snprintf(out, cap, "%s", json_is_true(v) ? "true" : "false");
    return n >= 0 && (size_t) n < cap;
}

/* Sets the option of each member of o. */
static int set_members(cli *c, const char *flag, json_t *o, const member *known, size_t n)
{
    const char *name;
    json_t *v;
    int code = -1;
    json_object_foreach(o, name, v) {
        char text[4096];
        size_t i = 0;
        while (i < n && strcmp(known[i].name, name)) i++;
        if (i == n) return cli_usage_error(c, "%s: member '%.60s' is unknown: omit it, or use an option", flag, name);
        if (!known[i].key || json_is_null(v)) continue;
        if (!as_text(v, text, sizeof text)) return cli_usage_error(c, "%s: '%.60s' has a wrong type", flag, name);
        if ((code = set(c, known[i].key, text)) >= 0) return code;
    }
    return code;
}

static int from_object(cli *c, const char *key, const char *flag, const member *known, size_t n)
{
    json_t *o;
    if (!*cli_str(c, key)) return -1;
    int code = parse(c, flag, cli_str(c, key), &o);
    if (code < 0) code = set_members(c, flag, o, known, n);
    json_decref(o);
    return code;
}
#define N(list) (sizeof(list) / sizeof *(list))

static int generation_config(cli *c)
{
    static const member known[] = {
        {"temperature", "temp"}, {"top_p", "top-p"}, {"top_k", "top-k"}, {"min_p", "min-p"},
        {"repetition_penalty", "repeat-penalty"}, {"presence_penalty", "presence-penalty"},
        {"frequency_penalty", "frequency-penalty"}, {"max_new_tokens", "max-tokens"}, {"max_tokens", "max-tokens"},
        {"min_tokens", "min-tokens"}, {"seed", "seed"}, {"do_sample", NULL}};
    return from_object(c, "override-generation-config", "--override-generation-config", known, N(known));
}

/* Removes a boolean member. Returns its value, or otherwise. */
static bool take_bool(json_t *o, const char *name, bool otherwise)
{
    const json_t *v = json_object_get(o, name);
    const bool is = v ? json_is_true(v) : otherwise;
    json_object_del(o, name);
    return is;
}

static int kv_events_config(cli *c)
{
    static const char flag[] = "--kv-events-config";
    static const member known[] = {{"publisher", NULL}, {"hwm", NULL}, {"max_queue_size", NULL},
                                   {"endpoint", "kv-events"}, {"replay_endpoint", "kv-events-replay"},
                                   {"topic", "kv-events-topic"}, {"buffer_steps", "kv-events-buffer"}};
    json_t *o;
    if (!*cli_str(c, "kv-events-config")) return -1;
    int code = parse(c, flag, cli_str(c, "kv-events-config"), &o);
    if (code < 0) {
        const char *publisher = json_string_value(json_object_get(o, "publisher"));
        const bool zmq = !publisher || !strcmp(publisher, "zmq"), on = take_bool(o, "enable_kv_cache_events", false);
        if (on && zmq && !json_object_get(o, "endpoint") &&
            json_object_set_new(o, "endpoint", json_string("tcp://*:5557")))
            code = no_memory(c);
        else if (on && zmq)
            code = set_members(c, flag, o, known, N(known));
    }
    json_decref(o);
    return code;
}

/* RoPE as a JSON object, as in the documentation of models: {"rope_type": "yarn", "factor": 4.0}. */
static int rope_scaling(cli *c)
{
    static const member known[] = {{"rope_type", "rope-scaling"}, {"type", "rope-scaling"}, {"factor", "rope-scale"},
                                   {"original_max_position_embeddings", "yarn-orig-ctx"},
                                   {"rope_theta", "rope-freq-base"}, {"beta_fast", "yarn-beta-fast"},
                                   {"beta_slow", "yarn-beta-slow"}, {"attn_factor", "yarn-attn-factor"},
                                   {"extrapolation_factor", "yarn-ext-factor"}};
    const char *value = cli_str(c, "rope-scaling");
    json_t *o;
    if (!is_json(value)) return -1;
    int code = parse(c, "--rope-scaling", value, &o);
    if (code >= 0) return code;
    if (!cli_set(c, "rope-scaling", "model")) code = no_memory(c);
    const json_t *type = json_object_get(o, "rope_type") ? json_object_get(o, "rope_type") : json_object_get(o, "type");
    if (code < 0 && !json_is_string(type)) code = cli_usage_error(c, "--rope-scaling: the object has no rope_type");
    else if (code < 0 && !cli_set(c, "rope-scaling", json_string_value(type))) code = no_memory(c);
    if (code < 0) code = set_members(c, "--rope-scaling", o, known, N(known));
    json_decref(o);
    return code;
}

/* {"method": "ngram", "num_speculative_tokens": 5}: the drafter, and the members that it uses. */
static int speculative_config(cli *c)
{
    static const char flag[] = "--speculative-config";
    static const member ngram[] = {{"method", NULL}, {"num_speculative_tokens", "spec-ngram-size-m"},
                                   {"prompt_lookup_min", "spec-ngram-size-n"}, {"prompt_lookup_max", NULL}};
    static const member draft[] = {{"method", NULL}, {"num_speculative_tokens", "spec-draft-n-max"},
                                   {"model", "model-draft"}, {"draft_tensor_parallel_size", NULL},
                                   {"max_model_len", NULL}, {"quantization", NULL}};
    json_t *o;
    if (!*cli_str(c, "speculative-config")) return -1;
    int code = parse(c, flag, cli_str(c, "speculative-config"), &o);
    if (code >= 0) return code;
    const char *method = json_string_value(json_object_get(o, "method"));
    const bool has_model = json_object_get(o, "model") != NULL;
    if (!method) method = has_model ? "draft_model" : "";
    const bool mtp = strstr(method, "mtp") != NULL;
    if (!strcmp(method, "ngram") || !strcmp(method, "[ngram]")) {
        json_object_del(o, "model");
        code = set(c, "spec-type", "ngram");
        if (code < 0) code = set_members(c, flag, o, ngram, N(ngram));
    } else if (mtp || (has_model && *method)) {
        if (mtp) json_object_del(o, "model"); /* a head of the model */
        code = set(c, "spec-type", mtp ? "mtp" : "draft");
        if (code < 0) code = set_members(c, flag, o, draft, N(draft));
    } else {
        code = cli_usage_error(c, "%s: method '%.40s' needs a \"model\", a GGUF of the drafter; methods without one "
                               "are ngram and mtp", flag, method);
    }
    json_decref(o);
    return code;
}

/* Lists the first n GPUs as the value of --device. */
static int parallel_size(cli *c, const char *key, const char *mode)
{
    char devices[64 * 12] = "";
    const int64_t n = cli_int(c, key);
    size_t len = 0;
    if (n <= 1 || n > 64) return -1; /* a value out of range is reported with the other values */
    for (int64_t i = 0; i < n; i++)
        len += (size_t) snprintf(devices + len, sizeof devices - len, "%scuda%" PRId64, i ? "," : "", i);
    const int code = set(c, "device", devices);
    return code < 0 ? set(c, "split-mode", mode) : code;
}

static int devices(cli *c)
{
    if (cli_int(c, "tensor-parallel-size") > 1 && cli_int(c, "pipeline-parallel-size") > 1)
        return cli_usage_error(c, "--tensor-parallel-size and --pipeline-parallel-size exclude each other here: set "
                               "one of them to 1");
    const int code = parallel_size(c, "tensor-parallel-size", "tensor");
    return code < 0 ? parallel_size(c, "pipeline-parallel-size", "layer") : code;
}

static int cache_dtype(cli *c)
{
    const char *v = cli_str(c, "kv-cache-dtype");
    if (!strcmp(v, "auto")) return -1;
    if (!strncmp(v, "fp8", 3)) v = "q8_0";
    else if (!strcmp(v, "bfloat16")) v = "bf16";
    else if (!strcmp(v, "float16")) v = "f16";
    char type[16];
    snprintf(type, sizeof type, "%s", v);
    const int code = set(c, "cache-type-k", type);
    return code < 0 ? set(c, "cache-type-v", type) : code;
}

/* --chat-template FILE */
static int template_file(cli *c)
{
    struct stat st;
    const char *v = cli_str(c, "chat-template");
    if (!*v || strchr(v, '{') || stat(v, &st) || !S_ISREG(st.st_mode)) return -1;
    const int code = set(c, "chat-template-file", v);
    return code < 0 && !cli_set(c, "chat-template", "") ? no_memory(c) : code;
}

/* --allowed-origins '["*"]' */
static int origins(cli *c)
{
    const char *v = cli_str(c, "cors");
    if (!is_json(v)) return -1;
    json_t *list = json_loads(v, 0, NULL);
    const json_t *one = json_array_get(list, 0);
    int code = -1;
    if (json_array_size(list) != 1 || !json_is_string(one))
        code = cli_usage_error(c, "--allowed-origins: give one origin, such as '[\"*\"]'; a reverse proxy can allow "
                               "more");
    else if (!cli_set(c, "cors", json_string_value(one)))
        code = no_memory(c);
    json_decref(list);
    return code;
}

/* --lora-modules '{"name": "a", "path": "a.gguf"}' becomes a=a.gguf. */
static int lora_modules(cli *c)
{
    for (size_t i = 0; i < c->n_val; i++) {
        struct cli_value *v = &c->val[i];
        pi_option_info info;
        json_t *o;
        if (!options_at(v->opt, &info) || strcmp(info.key, "lora-modules") || *v->value != '{') continue;
        int code = parse(c, "--lora-modules", v->value, &o);
        if (code >= 0) return code;
        const char *name = json_string_value(json_object_get(o, "name"));
        const char *path = json_string_value(json_object_get(o, "path"));
        const size_t n = name && path ? strlen(name) + strlen(path) + 2 : 0;
        char *text = n ? malloc(n) : NULL;
        if (text) {
            snprintf(text, n, "%s=%s", name, path);
            free(v->owned);
            v->value = v->owned = text;
        }
        json_decref(o);
        if (!n) return cli_usage_error(c, "--lora-modules: the object needs \"name\" and \"path\"");
        if (!text) return no_memory(c);
    }
    return -1;
}

int vllm_options(cli *c)
{
    int (*const all[])(cli *) = {generation_config, kv_events_config, speculative_config, devices, cache_dtype,
                                 origins};
    int code = -1;
    if (cli_has_section(c->cmd, "model")) code = rope_scaling(c);
    if (code < 0 && cli_has_section(c->cmd, "model")) code = lora_modules(c);
    if (code < 0 && cli_has_section(c->cmd, "template")) code = template_file(c);
    if (!cli_has_section(c->cmd, "serve")) return code;
    for (size_t i = 0; i < N(all) && code < 0; i++) code = all[i](c);
    return code;
}

bool vllm_more_values(const char *flag, const char *word, bool has_model)
{
    if (!strcmp(flag, "--lora-modules")) return strchr(word, '=') || *word == '{';
    return has_model && (!strcmp(flag, "--served-model-name") || !strcmp(flag, "--api-key"));
}
