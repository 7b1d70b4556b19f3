/* pagedinfer embed: prints the embeddings of texts, or the scores of a reranker, like llama-embedding.
 *
 * The prompt is split at --embd-separator. Up to AHEAD texts are in progress, to fill the engine's batches; the
 * results are printed in text order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { AHEAD = 256 }; /* maximum texts in progress */

/* A text and its result. */
struct item {
    pi_request *r;
    float *v;         /* [n_rows, width] */
    size_t n_rows, width;
    bool done;
    int code;         /* exit code */
};

struct embed {
    const cli *c;
    pi_engine *e;
    struct item item[AHEAD]; /* text i uses item i % AHEAD */
    size_t n_started, n_printed;
    size_t n_all;     /* vectors printed */
    float *kept;      /* [n_all, width] for the similarities of format json+ */
    size_t cap_kept;  /* floats allocated */
    const char *format;
    pi_info info;     /* of the model */
    bool rank;        /* scores instead of vectors; a text may be a query and a document separated by cls_separator */
    char cls_separator[256];
    size_t n_cls_separator;
};

/* Sets a text as the prompt, or a query and a document in the model's format. */
static int set_prompt(const struct embed *u, pi_request *r, const char *text, size_t len, pi_error *err)
{
    const size_t n = u->n_cls_separator;
    const char *sep = u->rank && n ? memmem(text, len, u->cls_separator, n) : NULL;
    if (!sep) return pi_request_prompt_text(r, text, len, err);
    const char *document = sep + n;
    return pi_request_prompt_rank(r, text, (size_t) (sep - text), document, (size_t) (text + len - document), err);
}

static int start(struct embed *u, const char *text, size_t len)
{
    struct item *it = &u->item[u->n_started % AHEAD];
    pi_error err = {0};
    *it = (struct item) {.r = pi_request_new(u->e)};
    if (!it->r) return cli_error(u->c, CLI_OS, "out of memory");
    pi_request_set_user(it->r, it);
    int rc = set_prompt(u, it->r, text, len, &err);
    if (!rc && !cli_given(u->c, "pooling")) rc = pi_request_set(it->r, "pooling", "model", &err);
    if (!rc) rc = pi_request_submit(it->r, &err);
    u->n_started += !rc;
    if (!rc) return CLI_OK;
    pi_request_free(it->r);
    return cli_pi_error(u->c, &err);
}

static void take(const struct embed *u, const pi_event *ev)
{
    struct item *it = ev->user;
    if (ev->kind == PI_EVENT_EMBEDDING) {
        const size_t n = ev->n_embeddings * ev->n_embd;
        it->v = malloc(n * sizeof *it->v);
        it->n_rows = ev->n_embeddings;
        it->width = ev->n_embd;
        if (it->v) memcpy(it->v, ev->embedding, n * sizeof *it->v);
        else it->code = cli_error(u->c, CLI_OS, "out of memory");
    }
    if (ev->kind != PI_EVENT_DONE) return;
    it->done = true;
    if (!ev->code || it->code) return;
    pi_error err = {.code = ev->code};
    pi_result res = {.size = sizeof res};
    pi_request_result(it->r, &res);
    snprintf(err.msg, sizeof err.msg, "%s", *res.msg ? res.msg : pi_strerror(ev->code));
    it->code = cli_pi_error(u->c, &err);
}

static void print_values(const float *v, size_t n, const char *between)
{
    for (size_t i = 0; i < n; i++) printf("%s%.9g", i ? between : "", (double) v[i]);
}

static void print_scores(const struct embed *u, const float *v, size_t n)
{
    for (uint32_t i = 0; i < u->info.n_labels; i++) {
        printf("rerank score %zu: %8.3f", n, (double) v[i]);
        if (u->info.n_labels > 1 && *u->info.labels[i]) printf(" [%s]", u->info.labels[i]);
        else if (u->info.n_labels > 1) printf(" [%u]", i);
        putchar('\n');
    }
}

/* Prints vector number n. */
static void print_row(const struct embed *u, const float *v, size_t width, size_t n)
{
    if (!strcmp(u->format, "raw")) {
        print_values(v, width, " ");
        putchar('\n');
    } else if (!strcmp(u->format, "array")) {
        printf("%s[", n ? "," : "[");
        print_values(v, width, ",");
        putchar(']');
    } else if (!strncmp(u->format, "json", 4)) {
        printf("%s\n    {\n      \"object\": \"embedding\",\n      \"index\": %zu,\n      \"embedding\": [",
               n ? "," : "{\n  \"object\": \"list\",\n  \"data\": [", n);
        print_values(v, width, ",");
        printf("]\n    }");
    } else if (u->rank) {
        print_scores(u, v, n);
    } else {
        printf("embedding %zu: ", n);
        print_values(v, width, " ");
        putchar('\n');
    }
}

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double) a[i] * (double) b[i];
    return sum;
}

/* Prints the end of the output; with json+ the cosine similarity of all pairs. */
static void print_end(const struct embed *u, size_t width)
{
    if (!strcmp(u->format, "array")) printf("%s]\n", u->n_all ? "" : "[");
    if (strncmp(u->format, "json", 4) != 0) return;
    printf(u->n_all ? "\n  ]" : "{\n  \"object\": \"list\",\n  \"data\": []");
    if (!strcmp(u->format, "json+") && u->n_all > 1) {
        printf(",\n  \"cosineSimilarity\": [");
        for (size_t i = 0; i < u->n_all; i++) {
            printf("%s\n    [", i ? "," : "");
            for (size_t k = 0; k < u->n_all; k++) {
                const float *a = u->kept + i * width, *b = u->kept + k * width;
                const double length = sqrt(dot(a, a, width) * dot(b, b, width));
                printf("%s%.6f", k ? ", " : "", length > 0 ? dot(a, b, width) / length : 0);
            }
            printf("]");
        }
        printf("\n  ]");
    }
    printf("\n}\n");
}

static int keep(struct embed *u, const struct item *it)
{
    const size_t n = (u->n_all + it->n_rows) * it->width;
    if (strcmp(u->format, "json+") != 0) return CLI_OK;
    if (u->cap_kept < n) {
        float *p = realloc(u->kept, n * 2 * sizeof *p);
        if (!p) return cli_error(u->c, CLI_OS, "out of memory");
        u->kept = p;
        u->cap_kept = n * 2;
    }
    memcpy(u->kept + u->n_all * it->width, it->v, it->n_rows * it->width * sizeof *it->v);
    return CLI_OK;
}

/* Prints completed texts in order. */
static int print_done(struct embed *u, size_t *width)
{
    int code = CLI_OK;
    while (!code && u->n_printed < u->n_started && u->item[u->n_printed % AHEAD].done) {
        struct item *it = &u->item[u->n_printed++ % AHEAD];
        code = it->code ? it->code : keep(u, it);
        for (size_t i = 0; i < it->n_rows && !code; i++) print_row(u, it->v + i * it->width, it->width, u->n_all++);
        *width = it->width;
        pi_request_free(it->r);
        free(it->v);
        it->v = NULL;
    }
    return code;
}

static int wait_some(struct embed *u, size_t *width)
{
    pi_event *ev[32];
    int n = cli_poll(u->e, ev, 32);
    if (n < 0) return cli_error(u->c, CLI_SOFTWARE, "%s", pi_strerror(n));
    for (int i = 0; i < n; i++) {
        take(u, ev[i]);
        pi_event_release(ev[i]);
    }
    if (cli_signal()) return 128 + cli_signal();
    return print_done(u, width);
}

/* Determines if the output is scores, and the separator of pairs. */
static void learn_form(struct embed *u)
{
    const char *pooling = cli_str(u->c, "pooling");
    const bool by_model = !cli_given(u->c, "pooling") || !strcmp(pooling, "model");
    u->info.size = sizeof u->info;
    pi_engine_info(u->e, &u->info);
    u->rank = !strcmp(by_model ? u->info.pooling : pooling, "rank") && u->info.n_labels;
    snprintf(u->cls_separator, sizeof u->cls_separator, "%s", cli_str(u->c, "cls-separator"));
    u->n_cls_separator = cli_unescape(u->cls_separator, strlen(u->cls_separator));
}

static int embed_all(struct embed *u, const char *text, size_t len)
{
    char sep[256];
    size_t width = 0;
    learn_form(u);
    snprintf(sep, sizeof sep, "%s", cli_str(u->c, "embd-separator"));
    const size_t n_sep = cli_unescape(sep, strlen(sep));
    int code = cli_catch_signals();
    for (const char *p = text, *end = text + len; p < end && !code;) {
        const char *stop = n_sep ? memmem(p, (size_t) (end - p), sep, n_sep) : NULL;
        const size_t n = (size_t) ((stop ? stop : end) - p);
        if (n) code = start(u, p, n);
        p += n + (stop ? n_sep : 0);
        while (!code && u->n_started - u->n_printed == AHEAD) code = wait_some(u, &width);
    }
    while (!code && u->n_printed < u->n_started) code = wait_some(u, &width);
    if (!code && !u->n_started) code = cli_usage_error(u->c, "no text: give -p TEXT or -f FILE, one text per line");
    if (!code) print_end(u, width);
    for (size_t i = u->n_printed; i < u->n_started; i++) {
        pi_request_free(u->item[i % AHEAD].r);
        free(u->item[i % AHEAD].v);
    }
    free(u->kept);
    return code;
}

int cmd_embed(const cli *c)
{
    if (!*cli_str(c, "model")) return cli_usage_error(c, "no model: give -m FILE or -hf USER/NAME");
    struct embed *u = calloc(1, sizeof *u);
    char *text = NULL;
    size_t len;
    int code = u ? cli_prompt(c, false, &text, &len) : cli_error(c, CLI_OS, "out of memory");
    pi_options *o = code ? NULL : cli_options(c, &code);
    if (u) u->c = c;
    if (u) u->format = cli_str(c, "embd-output-format");
    if (o && !code) code = cli_open(c, o, &u->e);
    cli_release_signals(); /* the next signal ends the process */
    if (o && !code) code = embed_all(u, text, len);
    if (u) cli_close(c, u->e);
    pi_options_free(o);
    free(text);
    free(u);
    return code;
}
