/* callback.c: several concurrent prompts, with events passed to a callback.
 *
 *     callback MODEL PROMPT...
 *
 * The library calls back on one thread of its own, the dispatch thread, one call at a time. Callbacks need no lock
 * among themselves, only against the program's threads. This callback collects the text and notifies the main thread
 * at the last event of a request.
 *
 * The main thread waits for that notification instead of pi_request_wait. A request ends when generation ends; its
 * last events may then still be undelivered, and pi_request_free would drop them. */
#include <pagedinfer.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct progress { /* shared by all requests */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int left; /* requests without their last event */
    int bad;  /* an error occurred */
} progress;

typedef struct answer {
    progress *all;
    pi_request *request;
    FILE *text; /* collects in buf; owned by the dispatch thread until the last event */
    char *buf;
    size_t len;
} answer;

static int failed(const char *what, int code, const char *msg)
{
    fprintf(stderr, "callback: %s: %s%s%s\n", what, pi_strerror(code), *msg ? ": " : "", msg);
    return 1;
}

static int open_engine(pi_engine **e, const char *model)
{
    pi_error err = {0};
    pi_options *o = pi_options_new();
    int rc = o ? PI_OK : (err.code = PI_ENOMEM);
    if (!rc) rc = pi_options_set(o, "model", model, &err);
    if (!rc) rc = pi_options_set(o, "temp", "0", &err);
    if (!rc) rc = pi_options_set(o, "max-tokens", "48", &err);
    if (!rc) rc = pi_engine_open(e, o, &err);
    pi_options_free(o);
    return rc ? failed(model, rc, err.msg) : 0;
}

/* Runs on the dispatch thread. The library releases ev after the return. */
static void on_event(void *ud, const pi_event *ev)
{
    answer *a = ud;
    pi_result res = {.size = sizeof res};
    int bad = 0;
    if (fwrite(ev->text, 1, ev->text_len, a->text) < ev->text_len) bad = failed("an answer", PI_ENOMEM, "");
    if (ev->code) bad = failed("a request", ev->code, pi_request_result(ev->request, &res) ? "" : res.msg);

    pthread_mutex_lock(&a->all->lock);
    a->all->bad |= bad;
    if (ev->kind == PI_EVENT_DONE) a->all->left--;
    pthread_cond_signal(&a->all->changed);
    pthread_mutex_unlock(&a->all->lock);
}

static int submit(pi_engine *e, answer *a, const char *prompt)
{
    pi_error err = {0};
    a->text = open_memstream(&a->buf, &a->len);
    a->request = pi_request_new(e);
    if (!a->text || !a->request) return failed("a prompt", PI_ENOMEM, "");
    pi_request_on_event(a->request, on_event, a);
    int rc = pi_request_prompt_text(a->request, prompt, strlen(prompt), &err);
    if (!rc) rc = pi_request_submit(a->request, &err); /* on_event may be called from here on */
    return rc ? failed("a prompt", rc, err.msg) : 0;
}

static int wait_for_all(progress *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->left) pthread_cond_wait(&p->changed, &p->lock);
    int bad = p->bad;
    pthread_mutex_unlock(&p->lock);
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
    progress all = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, n, 0};
    if (n < 1) {
        fprintf(stderr, "usage: callback MODEL PROMPT...\n");
        return 2;
    }
    answer *a = calloc((size_t) n, sizeof *a);
    if (!a) return failed("answers", PI_ENOMEM, "");

    bad = open_engine(&e, argv[1]);
    for (int i = 0; i < n && !bad; i++) {
        a[i].all = &all;
        bad = submit(e, &a[i], argv[2 + i]);
    }
    if (!bad) bad = wait_for_all(&all);
    for (int i = 0; i < n && !bad; i++) bad = print(&a[i]);

    for (int i = 0; i < n; i++) {
        pi_request_free(a[i].request); /* after this call no callback uses a[i] */
        if (a[i].text) fclose(a[i].text);
        free(a[i].buf);
    }
    free(a);
    pi_engine_close(e);
    return bad;
}
