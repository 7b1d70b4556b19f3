/* Talks to the front end (see supervised.h). */
#include "serve/supervised.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json.h"
#include "serve/gen.h"
#include "serve/text.h"

enum { MAX_COMMAND = 64 };

struct supervised {
    uv_pipe_t in;
    char bytes[256];           /* receive buffer */
    char line[MAX_COMMAND];    /* the command so far */
    size_t n_line;
    void (*on_end)(void *ud);
    void *ud;
    uv_mutex_t lock;           /* for the fields below */
    uv_cond_t changed;
    bool has_limit, may_load, canceled;
    uint64_t limit;
    int percent;               /* last reported progress; only the loader's thread */
};

/* Writes one line to the front end, which reads always. If it is gone, standard input ends too. */
static void put(const char *text, size_t n)
{
    while (n) {
        const ssize_t k = write(STDOUT_FILENO, text, n);
        if (k <= 0) return;
        text += k;
        n -= (size_t) k;
    }
}

static void __attribute__((format(printf, 1, 2))) say(const char *fmt, ...)
{
    char line[128];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t) n < sizeof line) put(line, (size_t) n);
}

/* --------------------------------------------------------------------------------------------------------- commands */

static void take_command(supervised *s)
{
    uv_mutex_lock(&s->lock);
    if (!strcmp(s->line, "load")) {
        s->may_load = true;
    } else if (sscanf(s->line, "limit %" SCNu64, &s->limit) == 1) {
        s->has_limit = true;
    }
    uv_cond_signal(&s->changed);
    uv_mutex_unlock(&s->lock);
}

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *b)
{
    supervised *s = h->data;
    (void) size;
    *b = uv_buf_init(s->bytes, sizeof s->bytes);
}

static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *b)
{
    supervised *s = h->data;
    if (n < 0) {
        uv_read_stop(h);
        s->on_end(s->ud);
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        if (b->base[i] == '\n') {
            s->line[s->n_line] = 0;
            s->n_line = 0;
            take_command(s);
        } else if (s->n_line < sizeof s->line - 1) {
            s->line[s->n_line++] = b->base[i];
        }
    }
}

supervised *supervised_open(uv_loop_t *loop, void (*on_end)(void *ud), void *ud)
{
    supervised *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    if (uv_pipe_init(loop, &s->in, 0)) {
        free(s);
        return NULL;
    }
    s->in.data = s;
    s->on_end = on_end;
    s->ud = ud;
    uv_mutex_init(&s->lock);
    uv_cond_init(&s->changed);
    if (!uv_pipe_open(&s->in, STDIN_FILENO) && !uv_read_start((uv_stream_t *) &s->in, on_alloc, on_read)) return s;
    supervised_close(s);
    uv_run(loop, UV_RUN_NOWAIT);
    supervised_free(s);
    return NULL;
}

void supervised_close(supervised *s)
{
    if (s && !uv_is_closing((uv_handle_t *) &s->in)) uv_close((uv_handle_t *) &s->in, NULL);
}

void supervised_free(supervised *s)
{
    if (!s) return;
    uv_mutex_destroy(&s->lock);
    uv_cond_destroy(&s->changed);
    free(s);
}

void supervised_cancel(supervised *s)
{
    if (!s) return;
    uv_mutex_lock(&s->lock);
    s->canceled = true;
    uv_cond_signal(&s->changed);
    uv_mutex_unlock(&s->lock);
}

/* --------------------------------------------------------------------------------------------------------- the plan */

/* Waits until *what is true. Returns false after supervised_cancel. */
static bool wait_for(supervised *s, const bool *what)
{
    uv_mutex_lock(&s->lock);
    while (!*what && !s->canceled) uv_cond_wait(&s->changed, &s->lock);
    const bool ok = !s->canceled;
    uv_mutex_unlock(&s->lock);
    return ok;
}

/* Shrinks the cache so that the plan stays below limit, but to no less than one request of full length. */
static int shrink(pi_options *o, const pi_plan *p, uint64_t limit, pi_error *err)
{
    const uint64_t fixed = p->total_bytes - p->kv_bytes, one = p->kv_bytes / (p->n_requests ? p->n_requests : 1);
    const uint64_t kv = limit > fixed + one ? limit - fixed : one;
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, kv);
    return pi_options_set(o, "kv-cache-bytes", text, err);
}

int supervised_plan(supervised *s, pi_options *o, pi_error *err)
{
    pi_plan p = {.size = sizeof p};
    int rc = pi_engine_plan(o, &p, err);
    if (rc) return rc;
    say("free %" PRIu64 "\n", p.free_bytes);
    if (!wait_for(s, &s->has_limit)) return PI_ECANCELED;
    if (s->limit && p.total_bytes > s->limit && p.cache_limit != PI_CACHE_LIMIT_OPTION) {
        rc = shrink(o, &p, s->limit, err);
        if (!rc) rc = pi_engine_plan(o, &p, err);
        if (rc) return rc;
    }
    say("memory %" PRIu64 "\n", p.total_bytes);
    return wait_for(s, &s->may_load) ? PI_OK : PI_ECANCELED;
}

void supervised_progress(supervised *s, uint64_t done, uint64_t total)
{
    const int percent = total ? (int) ((double) done / (double) total * 100) : 0;
    if (!s || percent == s->percent) return;
    s->percent = percent;
    say("progress %d\n", percent);
}

/* Writes a line with a JSON text. Takes ownership of root. Without memory for it the line is empty. */
static void put_json(const char *word, json_t *root)
{
    char *text = root ? json_write(root, ANSWER_DIGITS) : NULL;
    (void) text_failed(); /* without a description, the model's entry has less */
    put(word, strlen(word));
    if (text) put(text, strlen(text));
    put("\n", 1);
    free(text);
    json_decref(root);
}

void supervised_ready(supervised *s, json_t *description)
{
    (void) s;
    put_json("ready ", description);
}

void supervised_adapters(supervised *s, const service *sv)
{
    if (!s) return;
    uv_mutex_lock(&s->lock); /* the last line must have the last state */
    json_t *names = json_array();
    pi_lora l;
    for (size_t i = 0; service_adapter_at(sv, i, &l); i++)
        json_array_append_new(names, text_json(l.name, strlen(l.name)));
    put_json("adapters ", names);
    uv_mutex_unlock(&s->lock);
}
