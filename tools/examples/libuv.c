/* libuv.c: requests in another library's event loop.
 *
 *     libuv MODEL PROMPT...
 *
 * The loop watches the descriptor of pi_poll_fd; while it is readable, pi_poll with a time limit of 0 returns events.
 * The last prompt generates without limit until a timer cancels its request; the partial answer is printed. After the
 * last event the handles are closed, and the loop ends. */
#include <pagedinfer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum { CANCEL_MS = 250 };

typedef struct answer {
    pi_request *request;
    FILE *text; /* collects in buf */
    char *buf;
    size_t len;
} answer;

typedef struct app {
    uv_loop_t loop;
    uv_poll_t events; /* the engine has events */
    uv_timer_t timer; /* cancels the last request */
    pi_engine *e;
    answer *a; /* [n] */
    int n, left, bad; /* requests; unfinished requests; an error occurred */
} app;

static int failed(const char *what, int code, const char *msg)
{
    fprintf(stderr, "libuv: %s: %s%s%s\n", what, pi_strerror(code), *msg ? ": " : "", msg);
    return 1;
}

static int failed_uv(const char *what, int rc)
{
    fprintf(stderr, "libuv: %s: %s\n", what, uv_strerror(rc));
    return 1;
}

static int open_engine(pi_engine **e, const char *model)
{
    pi_error err = {0};
    pi_options *o = pi_options_new();
    int rc = o ? PI_OK : (err.code = PI_ENOMEM);
    if (!rc) rc = pi_options_set(o, "model", model, &err);
    if (!rc) rc = pi_options_set(o, "temp", "0", &err);
    if (!rc) rc = pi_engine_open(e, o, &err);
    pi_options_free(o);
    return rc ? failed(model, rc, err.msg) : 0;
}

static int submit(pi_engine *e, answer *a, const char *prompt, int endless)
{
    pi_error err = {0};
    a->text = open_memstream(&a->buf, &a->len);
    a->request = pi_request_new(e);
    if (!a->text || !a->request) return failed("a prompt", PI_ENOMEM, "");
    pi_request_set_user(a->request, a);
    int rc = pi_request_set(a->request, endless ? "ignore-eos" : "max-tokens", endless ? "true" : "48", &err);
    if (!rc) rc = pi_request_prompt_text(a->request, prompt, strlen(prompt), &err);
    if (!rc) rc = pi_request_submit(a->request, &err);
    return rc ? failed("a prompt", rc, err.msg) : 0;
}

static void take(app *p, const pi_event *ev)
{
    answer *a = ev->user;
    pi_result res = {.size = sizeof res};
    if (fwrite(ev->text, 1, ev->text_len, a->text) < ev->text_len) p->bad = failed("an answer", PI_ENOMEM, "");
    if (ev->kind != PI_EVENT_DONE) return;
    p->left--;
    if (ev->finish_reason == PI_FINISH_CANCEL) fprintf(stderr, "libuv: prompt %d: canceled\n", (int) (a - p->a) + 1);
    else if (ev->code) p->bad = failed("a request", ev->code, pi_request_result(a->request, &res) ? "" : res.msg);
}

/* Closes the handles; they call back no more. */
static void close_handles(app *p)
{
    uv_close((uv_handle_t *) &p->events, NULL);
    uv_close((uv_handle_t *) &p->timer, NULL);
}

static void on_readable(uv_poll_t *h, int status, int what)
{
    app *p = h->data;
    pi_event *ev[16];
    (void) what;
    int n = status < 0 ? 0 : pi_poll(p->e, ev, 16, 0); /* if there are more than 16, the loop calls again */
    if (status < 0) p->bad = failed_uv("uv_poll_t", status);
    if (n < 0) p->bad = failed("pi_poll", n, "");
    for (int i = 0; i < n; i++) {
        take(p, ev[i]);
        pi_event_release(ev[i]);
    }
    if (!p->left || status < 0 || n < 0) close_handles(p);
}

static void on_timer(uv_timer_t *h)
{
    app *p = h->data;
    pi_request_cancel(p->a[p->n - 1].request); /* its last event arrives as usual */
}

static int run(app *p)
{
    int fd = pi_poll_fd(p->e), rc = fd < 0 ? UV_EBADF : uv_poll_init(&p->loop, &p->events, fd);
    if (rc) return failed_uv("pi_poll_fd", rc);
    p->events.data = p->timer.data = p;
    rc = uv_timer_init(&p->loop, &p->timer); /* always 0: both handles must be closed from here on */
    if (!rc) rc = uv_poll_start(&p->events, UV_READABLE, on_readable);
    if (!rc) rc = uv_timer_start(&p->timer, on_timer, CANCEL_MS, 0);
    if (rc) {
        p->bad = failed_uv("start", rc);
        close_handles(p);
    }
    rc = uv_run(&p->loop, UV_RUN_DEFAULT); /* returns when both handles are closed */
    return rc ? failed_uv("uv_run", UV_EBUSY) : p->bad;
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
    app p = {.n = argc - 2, .left = argc - 2};
    if (p.n < 1) {
        fprintf(stderr, "usage: libuv MODEL PROMPT...\n");
        return 2;
    }
    p.a = calloc((size_t) p.n, sizeof *p.a);
    if (!p.a) return failed("answers", PI_ENOMEM, "");
    int rc = uv_loop_init(&p.loop), bad = rc ? failed_uv("loop", rc) : open_engine(&p.e, argv[1]);
    for (int i = 0; i < p.n && !bad; i++) bad = submit(p.e, &p.a[i], argv[2 + i], i == p.n - 1);
    if (!bad) bad = run(&p);
    for (int i = 0; i < p.n && !bad; i++) bad = print(&p.a[i]);

    for (int i = 0; i < p.n; i++) {
        pi_request_free(p.a[i].request);
        if (p.a[i].text) fclose(p.a[i].text);
        free(p.a[i].buf);
    }
    free(p.a);
    pi_engine_close(p.e); /* closes the descriptor: after the loop has stopped using it */
    if (!rc && (rc = uv_loop_close(&p.loop))) bad = failed_uv("uv_loop_close", rc);
    return bad;
}
