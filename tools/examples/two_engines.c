/* two_engines.c: two engines in one process, with different options.
 *
 *     two_engines MODEL PROMPT...
 *
 * The library has no global state: engines are independent, even if they read the same file. The first prompt goes to
 * the first engine, the other prompts to the second one. The first engine is closed as soon as it has answered, while
 * the second one still works on its own threads. */
#include <pagedinfer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const first_options[][2] = {{"threads", "1"}, {"parallel", "1"}, {"ctx-size", "1024"}};
static const char *const second_options[][2] = {
    {"threads", "1"}, {"parallel", "8"}, {"kv-cache-tokens", "8192"}, {"block-size", "32"}, {"prefix-cache", "false"}};

typedef struct answer {
    pi_request *request;
    FILE *text; /* collects in buf */
    char *buf;
    size_t len;
} answer;

static int failed(const char *what, int code, const char *msg)
{
    fprintf(stderr, "two_engines: %s: %s%s%s\n", what, pi_strerror(code), *msg ? ": " : "", msg);
    return 1;
}

static int open_engine(pi_engine **e, const char *model, const char *const options[][2], size_t n)
{
    pi_error err = {0};
    pi_options *o = pi_options_new();
    int rc = o ? PI_OK : (err.code = PI_ENOMEM);
    if (!rc) rc = pi_options_set(o, "model", model, &err);
    if (!rc) rc = pi_options_set(o, "temp", "0", &err);
    if (!rc) rc = pi_options_set(o, "max-tokens", "48", &err);
    for (size_t i = 0; i < n && !rc; i++) rc = pi_options_set(o, options[i][0], options[i][1], &err);
    if (!rc) rc = pi_engine_open(e, o, &err);
    pi_options_free(o);
    return rc ? failed(model, rc, err.msg) : 0;
}

static int submit(pi_engine *e, answer *a, const char *prompt)
{
    pi_error err = {0};
    a->text = open_memstream(&a->buf, &a->len);
    a->request = pi_request_new(e);
    if (!a->text || !a->request) return failed("a prompt", PI_ENOMEM, "");
    pi_request_set_user(a->request, a);
    int rc = pi_request_prompt_text(a->request, prompt, strlen(prompt), &err);
    if (!rc) rc = pi_request_submit(a->request, &err);
    return rc ? failed("a prompt", rc, err.msg) : 0;
}

/* Processes the events of one engine until all its requests have ended. */
static int loop(pi_engine *e)
{
    pi_event *ev[16];
    int n, bad = 0;
    while ((n = pi_poll(e, ev, 16, -1)) > 0) {
        for (int i = 0; i < n; i++) {
            answer *a = ev[i]->user;
            pi_result res = {.size = sizeof res};
            if (fwrite(ev[i]->text, 1, ev[i]->text_len, a->text) < ev[i]->text_len)
                bad = failed("an answer", PI_ENOMEM, "");
            if (ev[i]->code) bad = failed("a request", ev[i]->code, pi_request_result(a->request, &res) ? "" : res.msg);
            pi_event_release(ev[i]);
        }
    }
    return n < 0 ? failed("pi_poll", n, "") : bad;
}

/* Frees an engine and its requests; the collected text is kept. */
static void close_engine(pi_engine **e, answer *a, int n)
{
    for (int i = 0; i < n; i++) {
        pi_request_free(a[i].request);
        a[i].request = NULL;
    }
    pi_engine_close(*e);
    *e = NULL;
}

static int print(answer *a)
{
    int bad = fclose(a->text) != 0; /* now buf and len are complete */
    a->text = NULL;
    if (bad) return failed("an answer", PI_ENOMEM, "");
    if (fwrite(a->buf, 1, a->len, stdout) == a->len && putchar('\n') != EOF && !fflush(stdout)) return 0;
    return failed("standard output", PI_EIO, "");
}

int main(int argc, char **argv)
{
    pi_engine *first = NULL, *second = NULL;
    int n = argc - 2, bad = 0;
    if (n < 1) {
        fprintf(stderr, "usage: two_engines MODEL PROMPT...\n");
        return 2;
    }
    answer *a = calloc((size_t) n, sizeof *a);
    if (!a) return failed("answers", PI_ENOMEM, "");

    bad = open_engine(&first, argv[1], first_options, sizeof first_options / sizeof *first_options);
    if (!bad) bad = open_engine(&second, argv[1], second_options, sizeof second_options / sizeof *second_options);
    if (!bad) bad = submit(first, &a[0], argv[2]);
    for (int i = 1; i < n && !bad; i++) bad = submit(second, &a[i], argv[2 + i]);
    if (!bad) bad = loop(first);
    close_engine(&first, a, 1);
    if (!bad) bad = loop(second);
    close_engine(&second, a + 1, n - 1);
    for (int i = 0; i < n && !bad; i++) bad = print(&a[i]);

    for (int i = 0; i < n; i++) {
        if (a[i].text) fclose(a[i].text);
        free(a[i].buf);
    }
    free(a);
    return bad;
}
