/* pagedinfer inspect: what is in a GGUF, and what running it with these options would take. */
#include <string.h>

#include <jansson.h>

#include "cli.h"

static void print_line(void *ud, const char *line)
{
    (void) ud;
    puts(line);
}

/* Lines are escaped to plain text, which json_string takes; one that it does not is left out. */
static void collect_line(void *ud, const char *line) { json_array_append_new(ud, json_string(line)); }

static void print_amount(const char *what, uint64_t bytes)
{
    char b[32];
    printf("  %-12s %12s  %16llu bytes", what, cli_bytes(bytes, b), (unsigned long long) bytes);
}

static void print_places(const pi_plan *p)
{
    if (p->n_places < 2) return;
    printf("\nOf that, with each device:\n");
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
    printf("\nRunning it would take %s", cli_bytes(p->total_bytes, b));
    printf(", with a context of %u tokens and a cache of %llu:\n", p->ctx_size, (unsigned long long) p->kv_tokens);
    print_amount("weights", p->weights_bytes);
    printf("\n");
    if (p->state_bytes) {
        print_amount("states", p->state_bytes);
        printf("  of the requests that run at once\n");
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
    if (p->host_cache_bytes) {
        print_amount("beside it", p->host_cache_bytes);
        printf("  of the host's memory at most, for evicted prefixes\n");
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
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "total_bytes", (json_int_t) p->total_bytes,
                     "weights_bytes", (json_int_t) p->weights_bytes, "kv_bytes", (json_int_t) p->kv_bytes,
                     "state_bytes", (json_int_t) p->state_bytes, "scratch_bytes", (json_int_t) p->scratch_bytes,
                     "kv_tokens", (json_int_t) p->kv_tokens, "ctx_size", (json_int_t) p->ctx_size, "host_cache_bytes",
                     (json_int_t) p->host_cache_bytes, "groups", groups, "places", places_json(p));
}

/* {"lines": [...], "plan": {...}}; plan is null where the model cannot run, and plan_error says why. */
static int print_json(const cli *c, const char *path, const pi_plan *plan, const pi_error *why)
{
    pi_error err = {0};
    json_t *root = json_object(), *lines = json_array();
    int code = CLI_OK;
    if (pi_model_inspect(path, cli_bool(c, "tensors"), collect_line, lines, &err)) code = cli_pi_error(c, &err);
    if (json_object_set_new(root, "lines", lines)) code = code ? code : cli_error(c, CLI_OS, "out of memory");
    if (!code && cli_bool(c, "cost")) {
        json_object_set_new(root, "plan", plan ? plan_json(plan) : json_null());
        if (!plan) json_object_set_new(root, "plan_error", json_string(why->msg));
    }
    if (!code && json_dumpf(root, stdout, JSON_INDENT(2))) code = cli_error(c, CLI_OS, "JSON could not be written");
    if (!code) putchar('\n');
    json_decref(root);
    return code;
}

int cmd_inspect(const cli *c)
{
    const char *path = cli_n_args(c) ? cli_arg(c, 0) : cli_str(c, "model");
    if (!*path) return cli_usage_error(c, "no model: give a FILE or -hf USER/NAME");
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
    else if (rc) printf("\nIt cannot be run: %s\n", why.msg);
    return CLI_OK;
}
