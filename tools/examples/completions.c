/* completions.c: OpenAI's chat completions in a program, without a server.
 *
 *     completions MODEL REQUEST...
 *
 * Each REQUEST is the JSON body of a request to /v1/chat/completions. All requests run at the same time. The program
 * prints their chunks, one per line, in the order of the requests. Its status is 1 if a request failed; the error
 * object is then its last line. */
#include <pagedinfer_openai.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct answer {
    pi_completion *completion;
    FILE *lines; /* collects in buf */
    char *buf;
    size_t len;
} answer;

static int failed(const char *what, int code, const char *msg)
{
    fprintf(stderr, "completions: %s: %s%s%s\n", what, pi_strerror(code), *msg ? ": " : "", msg);
    return 1;
}

static int open_all(const char *model, pi_engine **e, pi_openai **o)
{
    pi_error err = {0};
    pi_options *options = pi_options_new();
    int rc = options ? PI_OK : PI_ENOMEM;
    if (!rc) rc = pi_options_set(options, "model", model, &err);
    if (!rc) rc = pi_engine_open(e, options, &err);
    if (!rc) rc = pi_openai_new(o, *e, &err);
    pi_options_free(options);
    return rc ? failed(model, rc, err.msg) : 0;
}

static int start(pi_openai *o, answer *a, const char *request)
{
    pi_error err = {0};
    pi_completion_params p = {.size = sizeof p, .user = a};
    if (!(a->lines = open_memstream(&a->buf, &a->len))) return failed("a request", PI_ENOMEM, "");
    int rc = pi_chat_completions(&a->completion, o, request, strlen(request), &p, &err);
    return rc ? failed("a request", rc, err.msg) : 0;
}

/* Returns 0 if all completions ended without error. */
static int loop(pi_openai *o)
{
    pi_chunk *chunks[16];
    int n, bad = 0;
    while ((n = pi_openai_poll(o, chunks, 16, -1)) > 0) { /* 0 = all completions have ended */
        for (int i = 0; i < n; i++) {
            answer *a = chunks[i]->user;
            if (chunks[i]->len) fprintf(a->lines, "%s\n", chunks[i]->json); /* empty at the end of a stream */
            bad |= chunks[i]->code != PI_OK;
            pi_chunk_release(chunks[i]);
        }
    }
    return n < 0 ? failed("pi_openai_poll", n, "") : bad;
}

int main(int argc, char **argv)
{
    pi_engine *e = NULL;
    pi_openai *o = NULL;
    int n = argc - 2;
    if (n < 1) {
        fprintf(stderr, "usage: completions MODEL REQUEST...\n");
        return 2;
    }
    answer *a = calloc((size_t) n, sizeof *a);
    if (!a) return failed("answers", PI_ENOMEM, "");
    int bad = open_all(argv[1], &e, &o);
    for (int i = 0; i < n && !bad; i++) bad = start(o, &a[i], argv[2 + i]);
    if (!bad) bad = loop(o);
    for (int i = 0; i < n; i++) {
        if (a[i].lines && !fclose(a[i].lines)) fwrite(a[i].buf, 1, a[i].len, stdout);
        free(a[i].buf);
        pi_completion_free(a[i].completion);
    }
    free(a);
    pi_openai_free(o); /* after its completions, before its engine */
    pi_engine_close(e);
    return bad;
}
