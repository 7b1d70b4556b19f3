/* epoll.c: requests in a plain event loop of Linux.
 *
 *     epoll MODEL PROMPT...
 *
 * epoll_wait watches the descriptor of pi_poll_fd, together with the other descriptors of a program: here a timer that
 * stands for them. While the engine's descriptor is readable, pi_poll with a time limit of 0 returns events. The
 * answers are printed in prompt order. */
#include <pagedinfer.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

typedef struct answer {
    pi_request *request;
    FILE *text; /* collects in buf */
    char *buf;
    size_t len;
} answer;

static int failed(const char *what, int code, const char *msg)
{
    fprintf(stderr, "epoll: %s: %s%s%s\n", what, pi_strerror(code), *msg ? ": " : "", msg);
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

/* Takes the waiting events. Returns 0 after the last one, or on failure. */
static int take_all(pi_engine *e, int *left, int *bad)
{
    pi_event *ev[16];
    int n = pi_poll(e, ev, 16, 0); /* if there are more than 16, the descriptor stays readable */
    if (n < 0) *bad = failed("pi_poll", n, "");
    for (int i = 0; i < n; i++) {
        *left -= ev[i]->kind == PI_EVENT_DONE;
        *bad |= take(ev[i]);
        pi_event_release(ev[i]);
    }
    return *left > 0 && n >= 0;
}

static int watch(int epoll, int fd)
{
    struct epoll_event want = {.events = EPOLLIN, .data = {.fd = fd}};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &want);
}

/* Returns 0 if all requests ended without error. */
static int loop(pi_engine *e, int n)
{
    const struct itimerspec each = {{0, 100000000}, {0, 100000000}}; /* 100 ms */
    int fd = pi_poll_fd(e), epoll = epoll_create1(EPOLL_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    int left = n, bad = 0, more = 1;
    uint64_t ticks = 0, fired;
    if (fd < 0 || epoll < 0 || timer < 0 || timerfd_settime(timer, 0, &each, NULL) || watch(epoll, fd) ||
        watch(epoll, timer)) bad = failed("epoll", PI_EIO, "");
    while (!bad && more) {
        struct epoll_event got;
        if (epoll_wait(epoll, &got, 1, -1) < 1) continue; /* a signal */
        if (got.data.fd == fd) more = take_all(e, &left, &bad);
        else if (read(timer, &fired, sizeof fired) == sizeof fired) ticks += fired; /* other work of the program */
    }
    (void) ticks;
    if (timer >= 0) close(timer);
    if (epoll >= 0) close(epoll); /* before pi_engine_close, which closes fd */
    return bad;
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
        fprintf(stderr, "usage: epoll MODEL PROMPT...\n");
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
