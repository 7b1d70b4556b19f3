/* pagedinfer quantize: converts a GGUF to another format, with llama-quantize's arguments. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli.h"

static void progress(void *ud, const char *line)
{
    (void) ud;
    fprintf(stderr, "%s\n", line);
}

/* Types of llama-quantize that pi_quantize does not support. */
static const char *const not_yet[] = {"TQ1_0", "TQ2_0"};

/* Returns the type for a word: by name, short name or number. NULL = unknown. */
static const char *type_named(const char *word)
{
    pi_quantize_info t = {.size = sizeof t};
    bool number = *word && strspn(word, "0123456789") == strlen(word);
    for (size_t i = 0; !pi_quantize_describe(i, &t); i++) {
        size_t n = strlen(t.name);
        bool medium = n > 2 && !strcmp(t.name + n - 2, "_M") && n - 2 == strlen(word) &&
                      !strncasecmp(t.name, word, n - 2);
        bool plain = !strcmp(t.name, "MXFP4"); /* its number means the other mixture */
        if (number ? t.number == atoi(word) && !plain : medium || !strcasecmp(t.name, word)) return t.name;
    }
    return NULL;
}

static int unknown_type(const cli *c, const char *word)
{
    bool known = false;
    for (size_t i = 0; i < sizeof not_yet / sizeof *not_yet; i++) known |= !strcasecmp(not_yet[i], word);
    fprintf(stderr, "%s: '%s' %s; types are:", c->name, word, known ? "cannot be written yet" : "is not a type");
    for (size_t i = 0; pi_quantize_type(i); i++) fprintf(stderr, " %s", pi_quantize_type(i));
    fputc('\n', stderr);
    return CLI_USAGE;
}

void quantize_print_types(FILE *f)
{
    pi_quantize_info t = {.size = sizeof t};
    fprintf(f, "\nTypes, by name or number, with the format of most matrices and its bits per weight:\n");
    for (size_t i = 0; !pi_quantize_describe(i, &t); i++) {
        char number[16] = "";
        if (t.number >= 0) snprintf(number, sizeof number, "%d", t.number);
        if (*t.matrices) fprintf(f, "  %3s  %-10s %-8s %6.3f\n", number, t.name, t.matrices, t.bits);
        else fprintf(f, "  %3s  %-10s tensors stay unchanged\n", number, t.name);
    }
}

/* Returns the default output path, as llama-quantize names it: "dir/in.gguf" and "Q8_0" give
 * "dir/ggml-model-Q8_0.gguf". NULL = out of memory. */
static char *default_output(const char *in, const char *type)
{
    const char *slash = strrchr(in, '/');
    int dir = slash ? (int) (slash - in) + 1 : 0;
    size_t n = (size_t) dir + strlen(type) + sizeof "ggml-model-.gguf";
    char *out = malloc(n);
    if (out) snprintf(out, n, "%.*sggml-model-%s.gguf", dir, in, type);
    return out;
}

struct list { /* "key=value" strings, NULL-terminated */
    char **p;
    size_t n;
};

static bool add(struct list *l, const char *key, const char *value)
{
    size_t n = strlen(key) + strlen(value) + 2;
    char **p = realloc(l->p, (l->n + 2) * sizeof *p), *s = malloc(n);
    if (p) l->p = p;
    if (!p || !s) {
        free(s);
        return false;
    }
    snprintf(s, n, "%s=%s", key, value);
    p[l->n++] = s;
    p[l->n] = NULL;
    return true;
}

/* Reads --tensor-type-file: NAME=TYPE words. */
static int add_rules(const cli *c, struct list *l)
{
    char *text = NULL, *rest = NULL;
    size_t n;
    const char *path = cli_str(c, "tensor-type-file");
    if (!*path) return CLI_OK;
    int code = cli_read_file(c, path, &text, &n);
    for (char *w = code ? NULL : strtok_r(text, " \t\r\n", &rest); w && !code; w = strtok_r(NULL, " \t\r\n", &rest))
        if (!add(l, "tensor-type", w)) code = cli_error(c, CLI_OS, "out of memory");
    free(text);
    return code;
}

static int collect(const cli *c, const char *threads, struct list *l)
{
    static const struct { const char *key, *option; } flags[] = {
        {"pure", "pure"}, {"allow-requantize", "allow-requantize"}, {"leave-output-tensor", "leave-output-tensor"},
        {"quantize-dry-run", "dry-run"}};
    static const struct { const char *key, *option;
    } values[] = {{"output-tensor-type", "output-tensor-type"},
                  {"token-embedding-type", "token-embedding-type"},
                  {"tensor-type", "tensor-type"},
                  {"imatrix", "imatrix"},
                  {"quantize-override-kv", "override-kv"},
                  {"prune-layers", "prune-layers"},
                  {"include-weights", "include-weights"},
                  {"exclude-weights", "exclude-weights"}};
    bool ok = true;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (cli_bool(c, flags[i].key)) ok = ok && add(l, flags[i].option, "1");
    }
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        for (size_t k = 0; k < cli_n(c, values[i].key); k++)
            ok = ok && add(l, values[i].option, cli_nth(c, values[i].key, k));
    }
    ok = ok && (!threads || add(l, "threads", threads));
    return ok ? add_rules(c, l) : cli_error(c, CLI_OS, "out of memory");
}

int cmd_quantize(const cli *c)
{
    /* IN TYPE, IN TYPE THREADS, IN OUT TYPE, IN OUT TYPE THREADS: the word that is a type decides. IN is absent if -m
     * gives it. */
    const bool fetched = cli_given(c, "model");
    size_t n = cli_n_args(c), at = !fetched, t = n > at && type_named(cli_arg(c, at)) ? at : at + 1;
    if (n < at + 1) return cli_usage_error(c, "give IN.gguf [OUT.gguf] TYPE [THREADS]");
    if (n <= t) return unknown_type(c, cli_arg(c, n - 1));
    const char *in = fetched ? cli_str(c, "model") : cli_arg(c, 0), *type = type_named(cli_arg(c, t));
    const char *threads = cli_arg(c, t + 1);
    if (!type) return unknown_type(c, cli_arg(c, t));
    if (n > t + 2) return cli_usage_error(c, "unexpected argument '%s'", cli_arg(c, t + 2));
    if (threads && (strspn(threads, "0123456789") != strlen(threads) || atoi(threads) < 1)) {
        return cli_usage_error(c, "'%s' is not a number of threads", threads);
    }
    struct list l = {0};
    char *named = t == at ? default_output(fetched ? "" : in, type) : NULL;
    const char *out = t == at ? named : cli_arg(c, at);
    pi_error err = {0};
    int code = out ? collect(c, threads, &l) : cli_error(c, CLI_OS, "out of memory");
    if (!code && pi_quantize(in, out, type, (const char *const *) l.p, progress, NULL, &err))
        code = cli_pi_error(c, &err);
    for (size_t i = 0; i < l.n; i++) free(l.p[i]);
    free(l.p);
    free(named);
    return code;
}
