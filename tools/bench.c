/* pagedinfer bench: measures speed with the flags and the table of llama-bench.
 *
 * Every engine option may be a comma list; numbers may also be ranges (1-8, 1-8+2, 1-8*2). Each combination opens one
 * engine, in which all tests run. Defaults differ from `run` where a measurement needs it: the prefix cache is
 * disabled unless a test starts at a depth, and the cache size fits the tests. */
#include "bench.h"

#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

const char *bench_value(const bench *b, const char *key)
{
    for (size_t i = 0; i < b->n_key; i++) {
        if (!strcmp(b->key[i].key, key)) return b->key[i].value[b->key[i].at];
    }
    return cli_str(b->c, key);
}

int32_t bench_token(bench *b)
{
    b->rng = b->rng * 6364136223846793005u + 1442695040888963407u;
    return (int32_t) ((b->rng >> 33) % b->info.n_vocab);
}

/* ----------------------------------------------------------------------------------------------------------- lists */

typedef struct texts {
    char **v;
    size_t n, cap;
} texts;

static bool texts_add(texts *t, const char *s, size_t n)
{
    if (t->n == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 8;
        char **v = realloc(t->v, cap * sizeof *v);
        if (!v) return false;
        t->v = v;
        t->cap = cap;
    }
    t->v[t->n] = strndup(s, n);
    return t->v[t->n] && ++t->n;
}

static void texts_free(char **v, size_t n)
{
    for (size_t i = 0; i < n; i++) free(v[i]);
    free(v);
}

/* Expands "FIRST-LAST", "FIRST-LAST+STEP" or "FIRST-LAST*FACTOR". Returns 1 for a range, 0 if s is not a range, -1 if
 * out of memory, -2 if the range does not end. */
static int add_range(texts *t, const char *s, size_t n)
{
    enum { MOST = 10000 };
    char text[64], op = '+', *end;
    if (n >= sizeof text) return 0;
    memcpy(text, s, n);
    text[n] = 0;
    if (text[0] < '0' || text[0] > '9') return 0;
    long long first = strtoll(text, &end, 10), last, step = 1;
    if (*end != '-' || end[1] < '0' || end[1] > '9') return 0;
    last = strtoll(end + 1, &end, 10);
    if (*end == '+' || *end == '*') {
        op = *end;
        step = strtoll(end + 1, &end, 10);
    }
    if (*end) return 0;
    if (last < first || last > INT32_MAX || step < (op == '*' ? 2 : 1) || (op == '*' && first == 0)) return -2;
    for (int count = 0; first <= last; count++) {
        char number[24];
        int len = snprintf(number, sizeof number, "%lld", first);
        if (count == MOST) return -2;
        if (!texts_add(t, number, (size_t) len)) return -1;
        first = op == '*' ? first * step : first + step;
    }
    return 1;
}

/* Collects all values given for key, split at commas. */
static int gather(const cli *c, const char *key, bool numbers, texts *t)
{
    size_t given = cli_n(c, key);
    for (size_t i = 0; i < (given ? given : 1); i++) {
        const char *s = given ? cli_nth(c, key, i) : cli_str(c, key);
        for (;;) {
            size_t n = strcspn(s, ",");
            int rc = numbers && n ? add_range(t, s, n) : 0;
            if (rc == -2) return cli_usage_error(c, "--%s: %.*s is not a range", key, (int) n, s);
            if (rc == -1 || (rc == 0 && !texts_add(t, s, n))) return cli_error(c, CLI_OS, "out of memory");
            s += n;
            if (!*s) break;
            s++;
        }
    }
    return CLI_OK;
}

/* Collects a list of non-negative numbers. */
static int gather_numbers(const cli *c, const char *key, int32_t **out, size_t *n)
{
    texts t = {0};
    int code = gather(c, key, true, &t);
    *out = code ? NULL : calloc(t.n ? t.n : 1, sizeof **out);
    *n = 0;
    if (!code && !*out) code = cli_error(c, CLI_OS, "out of memory");
    for (size_t i = 0; !code && i < t.n; i++) {
        char *end;
        long long v = strtoll(t.v[i], &end, 10);
        if (end == t.v[i] || *end || v < 0 || v > INT32_MAX / 4)
            code = cli_usage_error(c, "--%s: '%s' is not a number of tokens", key, t.v[i]);
        else (*out)[(*n)++] = (int32_t) v;
    }
    texts_free(t.v, t.n);
    return code;
}

/* ----------------------------------------------------------------------------------------------------------- tests */

static int add_test(bench *b, int32_t n_prompt, int32_t n_gen, int32_t n_depth)
{
    if (!n_prompt && !n_gen) return CLI_OK;
    bench_test *t = realloc(b->test, (b->n_test + 1) * sizeof *t);
    if (!t) return cli_error(b->c, CLI_OS, "out of memory");
    b->test = t;
    b->test[b->n_test++] = (bench_test) {n_prompt, n_gen, n_depth};
    return CLI_OK;
}

/* Adds a test for each -pg pair. */
static int add_pairs(bench *b, int32_t n_depth)
{
    int code = CLI_OK;
    for (size_t i = 0; !code && i < cli_n(b->c, "pg"); i++) {
        const char *s = cli_nth(b->c, "pg", i);
        int p, g, end = 0;
        if (!*s) continue;
        if (sscanf(s, "%9d,%9d%n", &p, &g, &end) != 2 || s[end] || p < 0 || g < 0)
            return cli_usage_error(b->c, "-pg: '%s' is not PROMPT,GENERATE", s);
        code = add_test(b, p, g, n_depth);
    }
    return code;
}

/* --shared-prefix: adds a test with the length of a tenant's request; defaults are derived from it. */
static int list_shared(bench *b)
{
    const cli *c = b->c;
    const char *format = cli_str(c, "output");
    int32_t *gen = NULL;
    size_t n_gen = 0;
    b->shared.on = true;
    b->shared.n_tenants = (int32_t) cli_int(c, "tenants");
    b->shared.n_prefix = (int32_t) cli_int(c, "prefix-tokens");
    b->shared.n_tail = (int32_t) cli_int(c, "tail-tokens");
    b->shared.n_gen = 16;
    if (strcmp(format, "md") && strcmp(format, "json") && strcmp(format, "jsonl"))
        return cli_usage_error(c, "--shared-prefix: the output is md, json or jsonl");
    if (cli_given(c, "prefix-cache"))
        return cli_usage_error(c, "--shared-prefix measures with and without the prefix cache: omit --prefix-cache");
    if (cli_given(c, "n-prompt") || cli_given(c, "n-depth") || cli_given(c, "n-parallel") || cli_given(c, "pg"))
        return cli_usage_error(c, "--shared-prefix accepts --tenants, --prefix-tokens, --tail-tokens and -n");
    int code = cli_given(c, "n-gen") ? gather_numbers(c, "n-gen", &gen, &n_gen) : CLI_OK;
    if (!code && n_gen) b->shared.n_gen = gen[0];
    if (!code && (n_gen > 1 || b->shared.n_gen < 1))
        code = cli_usage_error(c, "--shared-prefix: -n is one number of tokens, at least 1");
    free(gen);
    if (!code) b->n_par = malloc(sizeof *b->n_par);
    if (!code && !b->n_par) code = cli_error(c, CLI_OS, "out of memory");
    if (code) return code;
    b->n_par[b->n_n_par++] = b->shared.n_tenants;
    return add_test(b, b->shared.n_prefix + b->shared.n_tail, b->shared.n_gen, 0);
}

/* --spec: one prompt length (0 = the complete text); one request at a time unless -npl is given. */
static int list_spec(bench *b)
{
    const cli *c = b->c;
    const char *format = cli_str(c, "output");
    int32_t *prompt = NULL, *gen = NULL;
    size_t n_prompt = 0, n_gen = 0;
    b->spec.on = true;
    if (!*cli_str(c, "spec-text")) return cli_usage_error(c, "--spec needs a text: give -f FILE");
    if (cli_given(c, "n-depth") || cli_given(c, "pg") || cli_given(c, "spec-type") ||
        (strcmp(format, "md") && strcmp(format, "jsonl")))
        return cli_usage_error(c, "--spec: omit --n-depth, -pg and --spec-type; the output is md or jsonl");
    int code = cli_read_file(c, cli_str(c, "spec-text"), &b->spec.text, &b->spec.len);
    if (!code) code = gather_numbers(c, "n-prompt", &prompt, &n_prompt);
    if (!code) code = gather_numbers(c, "n-gen", &gen, &n_gen);
    if (!code && *cli_str(c, "n-parallel")) code = gather_numbers(c, "n-parallel", &b->n_par, &b->n_n_par);
    if (!code && !b->n_n_par) {
        b->n_par = malloc(sizeof *b->n_par);
        if (b->n_par) b->n_par[b->n_n_par++] = 1;
        else code = cli_error(c, CLI_OS, "out of memory");
    }
    if (!code && (n_prompt > 1 || n_gen > 1 || gen[0] < 1)) code = cli_usage_error(c, "--spec: give one -p and one -n");
    if (!code) code = add_test(b, prompt[0], gen[0], 0);
    free(prompt);
    free(gen);
    return code;
}

/* True if -npl runs with --prompt-shared or --gen-separate, which need prompts in the prefix cache. */
static bool keeps_prompts(const cli *c) { return cli_bool(c, "prompt-shared") || cli_bool(c, "gen-separate"); }

static int list_tests(bench *b)
{
    if (keeps_prompts(b->c) && !*cli_str(b->c, "n-parallel"))
        return cli_usage_error(b->c, "-pps and -tgs need -npl: give it too");
    if (cli_bool(b->c, "shared-prefix")) return list_shared(b);
    if (*cli_str(b->c, "spec")) return list_spec(b);
    int32_t *prompt = NULL, *gen = NULL, *depth = NULL;
    size_t n_prompt = 0, n_gen = 0, n_depth = 0;
    int code = gather_numbers(b->c, "n-prompt", &prompt, &n_prompt);
    if (!code) code = gather_numbers(b->c, "n-gen", &gen, &n_gen);
    if (!code) code = gather_numbers(b->c, "n-depth", &depth, &n_depth);
    if (!code && *cli_str(b->c, "n-parallel")) code = gather_numbers(b->c, "n-parallel", &b->n_par, &b->n_n_par);
    for (size_t i = 0; !code && i < b->n_n_par; i++) {
        if (b->n_par[i] < 1 || b->n_par[i] > 4096) code = cli_usage_error(b->c, "-npl: give 1 to 4096");
    }
    for (size_t d = 0; !code && d < n_depth; d++) {
        if (b->n_n_par) { /* every prompt length with every answer length */
            for (size_t i = 0; !code && i < n_prompt * n_gen; i++)
                code = add_test(b, prompt[i / n_gen], gen[i % n_gen], depth[d]);
            continue;
        }
        for (size_t i = 0; !code && i < n_prompt; i++) code = add_test(b, prompt[i], 0, depth[d]);
        for (size_t i = 0; !code && i < n_gen; i++) code = add_test(b, 0, gen[i], depth[d]);
        if (!code) code = add_pairs(b, depth[d]);
    }
    if (!code && !b->n_test) code = cli_usage_error(b->c, "nothing to measure: all lengths are 0; give -p or -n");
    free(prompt);
    free(gen);
    free(depth);
    return code;
}

/* --------------------------------------------------------------------------------------------------- combinations */

static sweep_key *new_key(bench *b, const char *name, const char *def)
{
    sweep_key *k = realloc(b->key, (b->n_key + 1) * sizeof *k);
    if (!k) return NULL;
    b->key = k;
    k = &b->key[b->n_key++];
    memset(k, 0, sizeof *k);
    snprintf(k->key, sizeof k->key, "%s", name);
    snprintf(k->def, sizeof k->def, "%s", def);
    return k;
}

/* llama-bench writes list values with another separator than the comma; converts them. */
static void put_commas(const char *key, char *value)
{
    bool patterns = !strcmp(key, "override-tensor");
    if (!patterns && strcmp(key, "device") != 0 && strcmp(key, "tensor-split") != 0) return;
    for (; *value; value++)
        if (*value == (patterns ? ';' : '/')) *value = ',';
}

static int add_key(bench *b, const pi_option_info *info)
{
    sweep_key *k = new_key(b, info->key, info->def);
    if (!k) return cli_error(b->c, CLI_OS, "out of memory");
    bool numbers = !strcmp(info->type, "int") || !strcmp(info->type, "size") || !strcmp(info->key, "gpu-layers");
    texts t = {0};
    int code = gather(b->c, info->key, numbers, &t);
    for (size_t i = 0; i < t.n; i++) put_commas(info->key, t.v[i]);
    k->value = t.v;
    k->n = t.n;
    return code;
}

/* Converts -mmp and -dio of older llama-bench versions to values of load-mode. */
static int add_load_modes(bench *b)
{
    static const char *const flag[] = {"mmap", "direct-io"}, *const mode[][2] = {{"read", "mmap"}, {"auto", "dio"}};
    texts t = {0}, given = {0};
    int code = CLI_OK;
    for (int f = 0; f < 2 && !code; f++) {
        size_t from = given.n;
        if (!cli_given(b->c, flag[f])) continue;
        code = gather(b->c, flag[f], false, &given);
        for (size_t i = from; !code && i < given.n; i++) {
            bool on;
            if (!options_bool(given.v[i], &on))
                code = cli_usage_error(b->c, "--%s: '%s' is not 0 or 1", flag[f], given.v[i]);
            else if (!texts_add(&t, mode[f][on], strlen(mode[f][on]))) code = cli_error(b->c, CLI_OS, "out of memory");
        }
    }
    texts_free(given.v, given.n);
    sweep_key *k = !code && t.n && !cli_given(b->c, "load-mode") ? new_key(b, "load-mode", "auto") : NULL;
    if (k) {
        k->value = t.v;
        k->n = t.n;
        return CLI_OK;
    }
    if (!code && t.n)
        code = cli_given(b->c, "load-mode") ? cli_usage_error(b->c, "--load-mode replaces --mmap and --direct-io")
                                            : cli_error(b->c, CLI_OS, "out of memory");
    texts_free(t.v, t.n);
    return code;
}

/* Refuses -embd 1, which would measure another graph. */
static int check_embeddings(const bench *b)
{
    texts t = {0};
    int code = gather(b->c, "embeddings", false, &t);
    for (size_t i = 0; !code && i < t.n; i++) {
        bool on;
        if (!options_bool(t.v[i], &on) || on) code = cli_usage_error(b->c, "--embeddings is not built yet: give 0");
    }
    texts_free(t.v, t.n);
    return code;
}

/* Turns engine options into sweep keys with their values. Checks all values, also those of options without a list. */
static int list_keys(bench *b)
{
    pi_option_info info;
    pi_error err = {0};
    int code = CLI_OK;
    pi_options *o = pi_options_new();
    if (!o) return cli_error(b->c, CLI_OS, "out of memory");
    for (size_t i = 0; !code && options_at(i, &info); i++) {
        if (!cli_has_section(b->c->cmd, info.section) || !cli_given(b->c, info.key)) continue;
        if (info.scope == PI_SCOPE_ENGINE) {
            code = add_key(b, &info);
            const sweep_key *k = &b->key[b->n_key - 1];
            for (size_t j = 0; !code && j < k->n; j++) {
                if (pi_options_set(o, k->key, k->value[j], &err)) code = cli_usage_error(b->c, "%s", err.msg);
            }
        } else if (strcmp(info.section, "compat") && strcmp(info.key, "embeddings") &&
                   options_check(o, &info, cli_str(b->c, info.key), &err)) {
            code = cli_usage_error(b->c, "%s", err.msg);
        }
    }
    pi_options_free(o);
    if (!code) code = check_embeddings(b);
    return code ? code : add_load_modes(b);
}

static int set_default(const bench *b, pi_options *o, const char *key, int64_t value)
{
    char text[32];
    pi_error err = {0};
    if (cli_given(b->c, key)) return CLI_OK;
    snprintf(text, sizeof text, "%lld", (long long) value);
    return pi_options_set(o, key, text, &err) ? cli_pi_error(b->c, &err) : CLI_OK;
}

/* Returns a step size in tokens at which all tenants run concurrently: the first must not end before the last prompt
 * is computed. */
static int64_t shared_step(const bench *b)
{
    int64_t n = (int64_t) b->shared.n_tenants * (b->shared.n_prefix + b->shared.n_tail);
    int64_t steps = b->shared.n_gen < 16 ? (b->shared.n_gen + 1) / 2 : 8, step = (n / steps + 511) / 512 * 512;
    return step < 512 ? 512 : step > 8192 ? 8192 : step;
}

/* Sets the options that the tests need, unless they were given. */
static int set_defaults(const bench *b, pi_options *o)
{
    int64_t longest = 0, depth = 0, par = 1;
    pi_error err = {0};
    for (size_t i = 0; i < b->n_test; i++) {
        const bench_test *t = &b->test[i];
        /* a token has at least one byte */
        const int64_t n_prompt = b->spec.on && !t->n_prompt ? (int64_t) b->spec.len : t->n_prompt;
        int64_t n = (int64_t) t->n_depth + n_prompt + t->n_gen + 2;
        if (n > longest) longest = n;
        if (t->n_depth > depth) depth = t->n_depth;
    }
    for (size_t i = 0; i < b->n_n_par; i++) par = b->n_par[i] > par ? b->n_par[i] : par;
    int code = set_default(b, o, "ctx-size", longest);
    /* a longer ctx-size needs a larger cache: the engine sizes it */
    if (!code && !cli_given(b->c, "kv-cache-bytes") && !cli_given(b->c, "ctx-size"))
        code = set_default(b, o, "kv-cache-tokens", par * ((longest + 63) / 64 * 64 + 64));
    if (!code) code = set_default(b, o, "parallel", par);
    if (!code && b->shared.on) code = set_default(b, o, "ubatch-size", shared_step(b));
    if (!code) code = set_default(b, o, "prefix-cache", depth > 0 || b->shared.on || keeps_prompts(b->c));
    if (!code && b->spec.on && pi_options_set(o, "spec-type", cli_str(b->c, "spec"), &err))
        code = cli_pi_error(b->c, &err);
    return code;
}

static int open_engine(bench *b)
{
    pi_error err = {0};
    pi_options *o = pi_options_new();
    int code = o ? CLI_OK : cli_error(b->c, CLI_OS, "out of memory");
    if (o) cli_set_log(b->c, o);
    for (size_t i = 0; !code && i < b->n_key; i++) {
        if (pi_options_set(o, b->key[i].key, b->key[i].value[b->key[i].at], &err)) code = cli_pi_error(b->c, &err);
    }
    if (!code) code = set_defaults(b, o);
    if (!code && b->ops.on && pi_options_set(o, "profile-ops", "true", &err)) code = cli_pi_error(b->c, &err);
    if (!code) code = bench_ops_begin(b, o);
    b->plan = (pi_plan) {.size = sizeof b->plan};
    if (!code && b->shared.on && pi_engine_plan(o, &b->plan, &err)) code = cli_pi_error(b->c, &err);
    if (!code) code = cli_open(b->c, o, &b->e);
    pi_options_free(o);
    if (code) return code;
    b->info = (pi_info) {.size = sizeof b->info};
    pi_engine_info(b->e, &b->info);
    int32_t first[2];
    b->bos = pi_tokenize(b->e, "", 0, PI_TOK_BOS, first, 2) > 0 ? first[0] : -1;
    b->rng = 42;
    return CLI_OK;
}

/* Advances to the next combination; returns false after the last. */
static bool advance(bench *b)
{
    for (size_t i = b->n_key; i-- > 0;) {
        if (++b->key[i].at < b->key[i].n) return true;
        b->key[i].at = 0;
    }
    return false;
}

/* --------------------------------------------------------------------------------------------------------- running */

static int pause_before(const bench *b)
{
    int64_t delay = cli_int(b->c, "delay");
    struct pollfd p = {.fd = cli_signal_fd(), .events = POLLIN};
    if (delay) poll(&p, 1, (int) (delay * 1000));
    return cli_signal() ? 128 + cli_signal() : CLI_OK;
}

static void progress(const bench *b, size_t i, const char *what, size_t rep)
{
    if (!cli_bool(b->c, "progress")) return;
    fprintf(stderr, "%s: benchmark %zu/%zu: %s", b->c->name, i + 1, b->n_test, what);
    if (rep) fprintf(stderr, " %zu/%lld", rep, (long long) cli_int(b->c, "repetitions"));
    fputc('\n', stderr);
}

static int run_test(bench *b, size_t i)
{
    const bench_test *t = &b->test[i];
    double ns, steady;
    progress(b, i, "starting", 0);
    int code = pause_before(b);
    if (!code && cli_bool(b->c, "warmup")) {
        const bench_test warm = {t->n_prompt, t->n_gen > 4 ? 4 : t->n_gen, t->n_depth};
        progress(b, i, "warmup run", 0);
        code = bench_measure(b, &warm, &ns, &steady);
    }
    if (!code) code = bench_ops_restart(b);
    b->n_sample = 0;
    for (int64_t rep = 0; !code && rep < cli_int(b->c, "repetitions"); rep++) {
        progress(b, i, "run", (size_t) rep + 1);
        code = bench_measure(b, t, &b->sample_ns[rep], &b->steady[rep]);
        b->n_sample++;
    }
    if (code) return code;
    bench_print_test(b, cli_str(b->c, "output"), stdout, t);
    bench_print_test(b, cli_str(b->c, "output-err"), stderr, t);
    b->any_output = true;
    code = bench_ops_print(b);
    return code ? code : cli_flush(b->c);
}

static int run_all(bench *b)
{
    int code = CLI_OK;
    bool header = b->n_n_par == 0, json = b->shared.on && !strcmp(cli_str(b->c, "output"), "json");
    if (json) printf("[\n");
    do {
        code = open_engine(b);
        if (!code && header) {
            bench_print_header(b, cli_str(b->c, "output"), stdout);
            bench_print_header(b, cli_str(b->c, "output-err"), stderr);
            header = false;
        }
        if (!code && b->n_n_par) code = b->spec.on ? bench_spec(b) : b->shared.on ? bench_shared(b) : bench_batched(b);
        for (size_t i = 0; !code && !b->n_n_par && i < b->n_test; i++) code = run_test(b, i);
        cli_close(b->c, b->e);
        b->e = NULL;
    } while (!code && advance(b));
    if (json) printf("\n]\n");
    if (!code && !b->n_n_par) {
        bench_print_footer(b, cli_str(b->c, "output"), stdout);
        bench_print_footer(b, cli_str(b->c, "output-err"), stderr);
    }
    return code;
}

int cmd_bench(const cli *c)
{
    bench b = {.c = c};
    if (*cli_str(c, "op")) return bench_op(c);
    if (!*cli_str(c, "model")) return cli_usage_error(c, "no model: give -m FILE or -hf USER/NAME");
    const char *format = cli_str(c, "output");
    b.ops.on = cli_bool(c, "ops");
    b.ops.json = !strcmp(format, "jsonl");
    if (b.ops.on && !b.ops.json && strcmp(format, "md")) return cli_usage_error(c, "--ops: the output is md or jsonl");
    if (b.ops.on && (cli_bool(c, "shared-prefix") || *cli_str(c, "spec")))
        return cli_usage_error(c, "--ops: omit --shared-prefix and --spec");
    int code = list_keys(&b);
    if (!code) code = list_tests(&b);
    if (!code) code = cli_catch_signals();
    if (!code) {
        size_t reps = (size_t) cli_int(c, "repetitions");
        b.sample_ns = calloc(reps, sizeof *b.sample_ns);
        b.steady = calloc(reps, sizeof *b.steady);
        code = b.sample_ns && b.steady ? run_all(&b) : cli_error(c, CLI_OS, "out of memory");
    }
    for (size_t i = 0; i < b.n_key; i++) texts_free(b.key[i].value, b.key[i].n);
    free(b.key);
    free(b.test);
    free(b.n_par);
    free(b.sample_ns);
    free(b.steady);
    free(b.spec.text);
    return code;
}
