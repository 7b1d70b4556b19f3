/* pagedinfer quantize: a GGUF in another format, with llama-quantize's arguments. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli.h"

static void progress(void *ud, const char *line)
{
    (void) ud;
    fprintf(stderr, "%s\n", line);
}

static bool is_type(const char *word)
{
    for (size_t i = 0; pi_quantize_type(i); i++) {
        if (!strcasecmp(pi_quantize_type(i), word)) return true;
    }
    return false;
}

static int unknown_type(const cli *c, const char *word)
{
    fprintf(stderr, "%s: '%s' is not a type; types are:", c->name, word);
    for (size_t i = 0; pi_quantize_type(i); i++) fprintf(stderr, " %s", pi_quantize_type(i));
    fputc('\n', stderr);
    return CLI_USAGE;
}

/* "dir/in.gguf" and "Q8_0": "dir/ggml-model-Q8_0.gguf", as llama-quantize names it. NULL: out of memory. */
static char *default_output(const char *in, const char *type)
{
    const char *slash = strrchr(in, '/');
    int dir = slash ? (int) (slash - in) + 1 : 0;
    size_t n = (size_t) dir + strlen(type) + sizeof "ggml-model-.gguf";
    char *out = malloc(n);
    if (out) snprintf(out, n, "%.*sggml-model-%s.gguf", dir, in, type);
    return out;
}

struct list { /* "key=value" strings, ended by NULL */
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

static bool collect(const cli *c, const char *threads, struct list *l)
{
    static const char *const flags[] = {"pure", "allow-requantize", "leave-output-tensor"};
    static const char *const values[] = {"output-tensor-type", "token-embedding-type", "tensor-type", "imatrix"};
    bool ok = true;
    for (int i = 0; i < 3; i++) {
        if (cli_bool(c, flags[i])) ok = ok && add(l, flags[i], "1");
    }
    for (int i = 0; i < 4; i++) {
        for (size_t k = 0; k < cli_n(c, values[i]); k++) ok = ok && add(l, values[i], cli_nth(c, values[i], k));
    }
    return ok && (!threads || add(l, "threads", threads));
}

int cmd_quantize(const cli *c)
{
    /* IN TYPE, IN TYPE THREADS, IN OUT TYPE, IN OUT TYPE THREADS: the word that is a type decides. IN may be fetched. */
    const bool fetched = cli_given(c, "model");
    size_t n = cli_n_args(c), at = !fetched, t = n > at && is_type(cli_arg(c, at)) ? at : at + 1;
    if (n < at + 1) return cli_usage_error(c, "give IN.gguf [OUT.gguf] TYPE [THREADS]");
    if (n <= t) return unknown_type(c, cli_arg(c, n - 1));
    const char *in = fetched ? cli_str(c, "model") : cli_arg(c, 0), *type = cli_arg(c, t), *threads = cli_arg(c, t + 1);
    if (!is_type(type)) return unknown_type(c, type);
    if (n > t + 2) return cli_usage_error(c, "unexpected argument '%s'", cli_arg(c, t + 2));
    if (threads && (strspn(threads, "0123456789") != strlen(threads) || atoi(threads) < 1)) {
        return cli_usage_error(c, "'%s' is not a number of threads", threads);
    }
    struct list l = {0};
    char *named = t == at ? default_output(fetched ? "" : in, type) : NULL;
    const char *out = t == at ? named : cli_arg(c, at);
    pi_error err = {0};
    int code = CLI_OK;
    if (!out || !collect(c, threads, &l)) code = cli_error(c, CLI_OS, "out of memory");
    else if (pi_quantize(in, out, type, (const char *const *) l.p, progress, NULL, &err)) code = cli_pi_error(c, &err);
    for (size_t i = 0; i < l.n; i++) free(l.p[i]);
    free(l.p);
    free(named);
    return code;
}
