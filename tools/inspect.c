/* pagedinfer inspect: prints the content of a GGUF file, and the memory plan of an engine with the given options. */
#include <string.h>

#include <jansson.h>

#include "cli.h"

static void print_line(void *ud, const char *line)
{
    (void) ud;
    puts(line);
}

static void print_amount(const char *what, uint64_t bytes)
{
    char b[32];
    printf("  %-12s %12s  %16llu bytes", what, cli_bytes(bytes, b), (unsigned long long) bytes);
}

static void print_places(const pi_plan *p)
{
    if (p->n_places < 2) return;
    printf("\nBy device:\n");
    for (uint32_t i = 0; i < p->n_places; i++) {
        char b[4][32];
        uint64_t cache = p->place[i].kv_bytes + p->place[i].state_bytes, weights = p->place[i].weights_bytes;
        uint64_t scratch = p->place[i].scratch_bytes;
        printf("  %-40s %12s: weights %s, cache %s, scratch %s\n", p->place[i].name,
               cli_bytes(weights + cache + scratch, b[0]), cli_bytes(weights, b[1]), cli_bytes(cache, b[2]),
               cli_bytes(scratch, b[3]));
    }
}

static void print_plan(const pi_plan *p)
{
    char b[32];
    printf("\nMemory to run it: %s", cli_bytes(p->total_bytes, b));
    printf(", with a context of %u tokens and a cache of %llu:\n", p->ctx_size, (unsigned long long) p->kv_tokens);
    print_amount("weights", p->weights_bytes);
    printf("\n");
    if (p->state_bytes) {
        print_amount("states", p->state_bytes);
        printf("  of concurrent requests\n");
    }
    for (uint32_t i = 0; i < p->n_groups; i++) {
        char name[32];
        snprintf(name, sizeof name, "cache %s", p->group[i].name);
        print_amount(name, p->group[i].n_blocks * p->group[i].block_bytes);
        bool snapshots = !strcmp(p->group[i].name, "recurrent");
        printf("  %u layers, %llu %s %u tokens", p->group[i].n_layers, (unsigned long long) p->group[i].n_blocks,
               snapshots ? "snapshots, at multiples of" : "blocks of", p->group[i].block_size);
        if (p->group[i].window) printf(", window %u", p->group[i].window);
        printf("\n");
    }
    print_amount("scratch", p->scratch_bytes);
    printf("\n");
    if (p->host_weights_bytes) {
        print_amount("host weights", p->host_weights_bytes);
        printf("  experts that the device reads from host memory\n");
    }
    if (p->host_cache_bytes) {
        print_amount("host cache", p->host_cache_bytes);
        printf("  at most, for evicted prefixes\n");
    }
    print_places(p);
}

static json_t *places_json(const pi_plan *p)
{
    json_t *places = json_array();
    for (uint32_t i = 0; i < p->n_places; i++)
        json_array_append_new(places, json_pack("{s:s, s:I, s:I, s:I, s:I}", "name", p->place[i].name, "weights_bytes",
            (json_int_t) p->place[i].weights_bytes, "kv_bytes", (json_int_t) p->place[i].kv_bytes, "state_bytes",
            (json_int_t) p->place[i].state_bytes, "scratch_bytes", (json_int_t) p->place[i].scratch_bytes));
    return places;
}

static json_t *plan_json(const pi_plan *p)
{
    json_t *groups = json_array();
    for (uint32_t i = 0; i < p->n_groups; i++) {
        json_array_append_new(groups, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "name", p->group[i].name, "layers",
            (json_int_t) p->group[i].n_layers, "block_size", (json_int_t) p->group[i].block_size, "window",
            (json_int_t) p->group[i].window, "blocks", (json_int_t) p->group[i].n_blocks, "block_bytes",
            (json_int_t) p->group[i].block_bytes));
    }
    json_t *plan = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "total_bytes", (json_int_t) p->total_bytes,
        "weights_bytes", (json_int_t) p->weights_bytes, "kv_bytes", (json_int_t) p->kv_bytes, "state_bytes",
        (json_int_t) p->state_bytes, "scratch_bytes", (json_int_t) p->scratch_bytes, "kv_tokens",
        (json_int_t) p->kv_tokens, "ctx_size", (json_int_t) p->ctx_size, "host_cache_bytes",
        (json_int_t) p->host_cache_bytes, "groups", groups, "places", places_json(p));
    if (plan) json_object_set_new(plan, "host_weights_bytes", json_integer((json_int_t) p->host_weights_bytes));
    return plan;
}

/* The JSON document built from the library's lines. */
typedef struct contents {
    json_t *root;     /* the printed object */
    json_t *metadata; /* its member: keys and values */
    json_t *tensors;  /* its member: a list */
    bool failed;      /* out of memory, or an invalid line */
} contents;

static json_t *parse(const char *line)
{
    json_t *j = json_loads(line, 0, NULL);
    return j ? j : json_loads(line, JSON_DECODE_INT_AS_REAL, NULL); /* integers of more than 63 bits */
}

/* Adds key and value of {"key", "type", "value"}; a truncated array becomes an object that describes it. */
static int add_entry(contents *x, json_t *line)
{
    const char *key = json_string_value(json_object_get(line, "key"));
    json_t *value = json_object_get(line, "value");
    if (!json_object_get(line, "cut")) return json_object_set(x->metadata, key, value);
    return json_object_set_new(x->metadata, key,
                               json_pack("{s:O, s:O, s:O}", "type", json_object_get(line, "type"), "length",
                                         json_object_get(line, "length"), "first", value));
}

static void add_line(void *ud, const char *text)
{
    contents *x = ud;
    json_t *line = parse(text);
    int rc = line ? 0 : -1;
    if (json_object_get(line, "key")) rc = add_entry(x, line);
    else if (json_object_get(line, "tensor")) rc = json_array_append(x->tensors, line);
    else if (json_object_get(line, "file")) rc = json_object_update(x->root, line);
    else if (line) rc = json_object_set(x->root, "totals", line);
    if (rc) x->failed = true;
    json_decref(line);
}

/* Returns the architecture's metadata without the name prefix, so that all models have the same keys. */
static json_t *hyperparameters(const json_t *metadata)
{
    const char *arch = json_string_value(json_object_get(metadata, "general.architecture")), *key;
    const size_t n = arch ? strlen(arch) : 0;
    json_t *out = json_object(), *value;
    json_object_foreach((json_t *) metadata, key, value)
        if (n && !strncmp(key, arch, n) && key[n] == '.') json_object_set(out, key + n + 1, value);
    return out;
}

static int print_json(const cli *c, const char *path, const pi_plan *plan, const pi_error *why)
{
    pi_error err = {0};
    contents x = {json_object(), json_object(), json_array(), false};
    const int flags = (cli_bool(c, "tensors") ? PI_JSON_TENSORS : 0) | (cli_bool(c, "all") ? PI_JSON_ALL : 0);
    int code = CLI_OK;
    if (pi_model_json(path, flags, add_line, &x, &err)) code = cli_pi_error(c, &err);
    json_object_set_new(x.root, "hyperparameters", hyperparameters(x.metadata));
    if (json_object_set_new(x.root, "metadata", x.metadata)) x.failed = true;
    if (!cli_bool(c, "tensors")) json_decref(x.tensors);
    else if (json_object_set_new(x.root, "tensors", x.tensors)) x.failed = true;
    if (!code && cli_bool(c, "cost")) {
        json_object_set_new(x.root, "plan", plan ? plan_json(plan) : json_null());
        if (!plan) json_object_set_new(x.root, "plan_error", json_string(why->msg));
    }
    if (!code && x.failed) code = cli_error(c, CLI_OS, "out of memory");
    if (!code && json_dumpf(x.root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15)))
        code = cli_error(c, CLI_OS, "cannot write the JSON");
    if (!code) putchar('\n');
    json_decref(x.root);
    return code;
}

int cmd_inspect(const cli *c)
{
    const char *path = cli_str(c, "model");
    if (!*path) return cli_usage_error(c, "no model: give a FILE, USER/NAME or a URL");
    int code = CLI_OK;
    pi_error err = {0}, why = {0};
    pi_plan plan = {.size = sizeof plan};
    pi_options *o = cli_options(c, &code);
    if (!o) return code;
    int rc = pi_options_set(o, "model", path, &why);
    if (!rc && cli_bool(c, "cost")) rc = pi_engine_plan(o, &plan, &why);
    pi_options_free(o);
    if (cli_bool(c, "json")) return print_json(c, path, rc ? NULL : &plan, &why);
    if (pi_model_inspect(path, cli_bool(c, "tensors"), print_line, NULL, &err)) return cli_pi_error(c, &err);
    if (cli_bool(c, "cost") && !rc) print_plan(&plan);
    else if (rc) printf("\nNot supported: %s\n", why.msg);
    return CLI_OK;
}
