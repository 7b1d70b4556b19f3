/* glib.c: requests in GLib's main loop, as in GTK programs.
 *
 *     glib MODEL PROMPT...
 *
 * A source watches the descriptor of pi_poll_fd. While it is readable, pi_poll with a time limit of 0 returns events.
 * After the last event the source removes itself and the loop ends. The answers are printed in prompt order. */
#include <glib-unix.h>
#include <pagedinfer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct answer {
    pi_request *request;
    FILE *text; /* collects in buf */
    char *buf;
    size_t len;
} answer;

static int failed(const char *what, int code, const char *msg)
{
    fprintf(stderr, "glib: %s: %s%s%s\n", what, pi_strerror(code), *msg ? ": " : "", msg);
    return 1;
}

static int open_engine(pi_engine **e, const char *model)
{
    pi_error err = {0};
    pi_options *o = pi_options_new();
    int rc = o ? PI_OK : (err.code = PI_ENOMEM);
    if (!rc) rc = pi_options_set(o, "model", model, &err);
    /* request options set here are the defaults of all requests; */
    if (!rc) rc = pi_options_set(o, "temp", "0", &err);
    if (!rc) rc = pi_options_set(o, "max-tokens", "48", &err); /* or with pi_request_set for one */
    if (!rc) rc = pi_engine_open(e, o, &err);
    pi_options_free(o); /* the engine has its own copy */
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

static int take(const pi_event *ev)
{
    answer *a = ev->user;
    pi_result res = {.size = sizeof res};
    if (fwrite(ev->text, 1, ev->text_len, a->text) < ev->text_len) return failed("an answer", PI_ENOMEM, "");
    if (ev->kind != PI_EVENT_DONE || !ev->code) return 0;
    return failed("a request", ev->code, pi_request_result(a->request, &res) ? "" : res.msg);
}

typedef struct app {
    pi_engine *e;
    GMainLoop *loop;
    int left, bad; /* unfinished requests; an error occurred */
} app;

static gboolean on_readable(gint fd, GIOCondition what, gpointer ud)
{
    app *p = ud;
    pi_event *ev[16];
    (void) fd;
    (void) what;
    int n = pi_poll(p->e, ev, 16, 0); /* if there are more than 16, the loop calls again */
    if (n < 0) p->bad = failed("pi_poll", n, "");
    for (int i = 0; i < n; i++) {
        p->left -= ev[i]->kind == PI_EVENT_DONE;
        p->bad |= take(ev[i]);
        pi_event_release(ev[i]);
    }
    if (p->left && n >= 0) return G_SOURCE_CONTINUE;
    g_main_loop_quit(p->loop);
    return G_SOURCE_REMOVE; /* before pi_engine_close, which closes the descriptor */
}

/* Returns 0 if all requests ended without error. */
static int loop(pi_engine *e, int n)
{
    app p = {.e = e, .loop = g_main_loop_new(NULL, FALSE), .left = n};
    g_unix_fd_add(pi_poll_fd(e), G_IO_IN, on_readable, &p);
    g_main_loop_run(p.loop);
    g_main_loop_unref(p.loop);
    return p.bad;
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
    pi_engine *e = NULL;
    int n = argc - 2, bad = 0;
    if (n < 1) {
        fprintf(stderr, "usage: glib MODEL PROMPT...\n");
        return 2;
    }
    answer *a = calloc((size_t) n, sizeof *a);
    if (!a) return failed("answers", PI_ENOMEM, "");

    bad = open_engine(&e, argv[1]);
    for (int i = 0; i < n && !bad; i++) bad = submit(e, &a[i], argv[2 + i]);
    if (!bad) bad = loop(e, n);
    for (int i = 0; i < n && !bad; i++) bad = print(&a[i]);

    for (int i = 0; i < n; i++) {
        pi_request_free(a[i].request); /* cancels a running request */
        if (a[i].text) fclose(a[i].text);
        free(a[i].buf);
    }
    free(a);
    pi_engine_close(e); /* after its requests */
    return bad;
}
