/* Completions of libpagedinfer-openai (see openai.h): from a request to a generation, and from its output to chunks.
 *
 * A completion with a callback may be freed by the callback of its last chunk. So nothing touches a completion after
 * its last chunk was delivered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "openai/openai.h"
#include "serve/fault.h"

static const char no_memory_json[] =
    "{\"error\": {\"message\": \"out of memory\", \"type\": \"unavailable_error\", \"param\": null, \"code\": null}}";

static pi_chunk describe(const pi_completion *c, const char *json, size_t len)
{
    return (pi_chunk) {.size = sizeof(pi_chunk), .completion = (pi_completion *) c, .user = c->user, .json = json,
                       .len = len, .status = 200};
}

/* --------------------------------------------------------------------------------------------------------- chunks */

/* Delivers a chunk that is not the last one. Returns false if out of memory. */
static bool send_event(gen *g, const char *event, const char *json, size_t n)
{
    pi_completion *c = g->owner;
    chunk here = {.pub = describe(c, json, n)};
    (void) event; /* OpenAI's streams have no names */
    if (c->fn) {
        c->fn(c->ud, &here.pub);
        return true;
    }
    chunk *k = calloc(1, sizeof *k);
    char *text = malloc(n + 1);
    if (!k || !text) {
        free(k);
        free(text);
        return false;
    }
    memcpy(text, json, n + 1);
    here.pub.json = here.text = text;
    *k = here;
    openai_queue(c->o, k);
    return true;
}

static void send_done(gen *g) { (void) g; /* the empty last chunk */ }

static const gen_sink sink = {send_event, send_done};

/* Delivers the last chunk; takes ownership of text, NULL = json is a constant. The completion may be freed. */
static void deliver_last(pi_completion *c, char *text, const char *json, int code, int status)
{
    chunk *k = c->end;
    k->pub = describe(c, json, strlen(json));
    k->pub.code = code;
    k->pub.status = status;
    k->pub.last = true;
    k->text = text;
    c->ended = true;
    c->end = NULL;
    if (!c->fn) {
        openai_queue(c->o, k);
        return;
    }
    c->fn(c->ud, &k->pub);
    free(k->text);
    free(k);
}

/* Ends the completion with an error object. */
static void fail(pi_completion *c, pi_error err)
{
    if (err.code == PI_ECLOSED && atomic_load(&c->canceled)) err = (pi_error) {PI_ECANCELED, "the client canceled"};
    const int status = err.code == PI_ECANCELED ? 499 : status_of(err.code);
    (void) text_failed();
    json_t *root = fault_json(status, gen_error_field(&c->g, &err), gen_error_code(&c->g, &err), err.msg);
    char *text = root ? json_write(root, ANSWER_DIGITS) : NULL;
    json_decref(root);
    if (text_failed() || !text) {
        free(text);
        deliver_last(c, NULL, no_memory_json, PI_ENOMEM, 503);
    } else {
        deliver_last(c, text, text, err.code, status);
    }
}

/* Ends the completion after all choices have ended. */
static void finish(pi_completion *c)
{
    gen *g = &c->g;
    const pi_error none = {PI_ENOMEM, "out of memory"};
    if (g->p.stream) {
        g->w->finish(g);
        if (g->err.code) fail(c, g->err);
        else deliver_last(c, NULL, "", PI_OK, 200);
        return;
    }
    buf whole = gen_whole(g);
    if (whole.p) deliver_last(c, whole.p, whole.p, PI_OK, 200);
    else fail(c, none);
}

void completion_pump(pi_completion *c)
{
    gen *g = &c->g;
    if (c->ended) return;
    (void) text_failed(); /* clears the state of earlier work on this thread */
    const bool begun = gen_begun(g);
    if (begun && g->p.stream && !c->streaming && !g->err.code) {
        c->streaming = true;
        g->w->begin(g);
    }
    for (size_t i = 0; i < g->n_choices && begun && !g->err.code; i++) gen_pump(&g->choices[i]);
    if (g->err.code) gen_cancel(g, "it failed");
    if (g->n_done < g->n_choices) return;
    if (g->err.code) fail(c, g->err);
    else if (g->n_ended == g->n_choices) finish(c);
}

/* ---------------------------------------------------------------------------------------------------------- events */

/* Called by the engine's dispatch thread. */
static void on_event(void *ud, const pi_event *ev)
{
    pi_completion *c = ud;
    pi_openai *o = c->o;
    const locale_t before = uselocale(o->c_locale);
    (void) text_failed();
    if (c->fn) {
        pthread_mutex_lock(&c->start); /* waits for the end of submit */
        pthread_mutex_unlock(&c->start);
        gen_take(ev);
        completion_pump(c); /* may free c */
    } else {
        pthread_mutex_lock(&o->lock);
        if (!c->closed) {
            gen_take(ev);
            openai_mark(o, c);
        }
        pthread_mutex_unlock(&o->lock);
    }
    uselocale(before);
}

/* ----------------------------------------------------------------------------------------------------------- start */

/* Copies the caller's parameters; fields that the caller's version lacks are zero. */
static pi_completion_params params_of(const pi_completion_params *p)
{
    pi_completion_params full = {0};
    if (p) memcpy(&full, p, p->size < sizeof full ? p->size : sizeof full);
    return full;
}

static pi_completion *create(pi_openai *o, const pi_completion_params *p)
{
    pi_completion *c = calloc(1, sizeof *c);
    chunk *end = calloc(1, sizeof *end);
    if (!c || !end) {
        free(c);
        free(end);
        return NULL;
    }
    gen_init(&c->g, &o->sv, &wire_chat, &sink, c);
    c->g.key = p->tenant;
    c->g.work = p->work;
    c->o = o;
    c->fn = p->fn;
    c->ud = p->ud;
    c->user = p->user;
    c->end = end;
    c->counted = !p->fn;
    pthread_mutex_init(&c->start, NULL);
    return c;
}

/* Prepares and submits. Returns PI_OK: the completion may be freed already. */
static int submit(pi_completion *c, const char *request, size_t len, pi_error *err)
{
    gen *g = &c->g;
    pi_work *work = g->work;
    buf body = {0};
    size_t n;
    buf_put(&body, request, len);
    int rc = body.failed ? params_no_memory(err) : gen_prepare(g, &body, err);
    buf_free(&body);
    for (size_t i = 0; i < g->n_r && !rc; i++) pi_request_on_event(g->r[i], on_event, c);
    pthread_mutex_lock(&c->start);
    if (!rc) rc = gen_submit(g, &n, err);
    pthread_mutex_unlock(&c->start);
    if (!rc) return rc;
    g->over_budget = rc == PI_ETOOBIG && work && pi_work_check(work) == rc;
    err->code = rc;
    if (!*err->msg) snprintf(err->msg, sizeof err->msg, "%s", pi_strerror(rc));
    return rc;
}

int pi_chat_completions(pi_completion **out, pi_openai *o, const char *request, size_t len,
                        const pi_completion_params *params, pi_error *err)
{
    const pi_completion_params p = params_of(params);
    pi_error why = {0};
    pi_completion *c = out && o && request ? create(o, &p) : NULL;
    if (out) *out = c;
    if (!c) {
        const bool bad = !out || !o || !request;
        if (bad) why = (pi_error) {PI_EINVAL, "a required pointer is NULL"};
        else params_no_memory(&why);
        if (err) *err = why;
        return why.code;
    }
    pthread_mutex_lock(&o->lock);
    o->n_made++;
    o->n_open += c->counted;
    pthread_mutex_unlock(&o->lock);
    const locale_t before = uselocale(o->c_locale);
    if (submit(c, request, len, &why)) {
        if (!p.fn) pthread_mutex_lock(&o->lock);
        fail(c, why);
        if (!p.fn) pthread_mutex_unlock(&o->lock);
    }
    uselocale(before);
    return PI_OK;
}

void pi_completion_cancel(pi_completion *c)
{
    if (!c) return;
    atomic_store(&c->canceled, true);
    for (size_t i = 0; i < c->g.n_r; i++) pi_request_cancel(c->g.r[i]);
}

void pi_completion_free(pi_completion *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->o->lock);
    c->closed = true;
    if (!c->fn) openai_forget(c->o, c);
    pthread_mutex_unlock(&c->o->lock);
    gen_free_requests(&c->g); /* waits for a running callback */
    gen_free_parts(&c->g);
    pthread_mutex_destroy(&c->start);
    free(c->end);
    free(c);
}
