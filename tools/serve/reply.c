/* Replies (see reply.h): a generation and its exchange, from the body to the end of the response.
 *
 * Memory: if a client does not read its stream, the text accumulates; at s->send_max bytes the generation is canceled.
 * Replies are pumped, and freed, after the last pending event, because events point to them. */
#include "serve/reply.h"

#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "serve/log.h"

enum {
    ROOM = 64 << 10,       /* limit of bytes queued for a client; more output stays in the generation */
    LARGE = 64 << 10,      /* larger responses are written, and larger bodies freed, on the pool; bytes */
};

/* ----------------------------------------------------------------------------------------------------- on the pool */

static bool prepare(prep *p)
{
    reply *r = p->owner;
    gen *g = &r->g;
    pi_error err = {0};
    size_t n = 0;
    g->work = p->limit;
    g->light = !p->heavy;
    int rc = gen_prepare(g, &r->ex->req.body, &err);
    if (!rc) rc = gen_submit(g, &n, &err);
    if (rc && !n && (prep_spent(p) || (g->wants_heavy && !p->heavy))) {
        gen_free_parts(g);
        return false;
    }
    g->over_budget = rc == PI_ETOOBIG && pi_work_check(p->limit) == rc;
    if (!rc) r->submitted = true;
    else if (!err.code) err.code = rc;
    if (rc && !*err.msg) snprintf(err.msg, sizeof err.msg, "%s", pi_strerror(rc));
    r->work_err = err; /* g->err belongs to the loop, which may already process events */
    return true;
}

/* ------------------------------------------------------------------------------------------------------------ ends */

static bool free_on_pool(prep *p)
{
    gen_free_parts(&((reply *) p->owner)->g);
    return true;
}

static void freed(prep *p, int code)
{
    reply *r = p->owner;
    if (code) gen_free_parts(&r->g);
    r->s->n_jobs--;
    free(r);
}

/* Frees the reply; the exchange may be freed already. The parts of a large body are freed on the pool, because they are
 * too many for the loop. */
static void reply_free(reply *r)
{
    server *s = r->s;
    if (r->prev) r->prev->next = r->next;
    else s->replies = r->next;
    if (r->next) r->next->prev = r->prev;
    s->n_replies--;
    buf_free(&r->whole);
    gen_free_requests(&r->g);
    if (r->n_body > LARGE) {
        s->n_jobs++;
        r->prep = (prep) {.owner = r, .run = free_on_pool, .done = freed};
        prep_start_heavy(&r->prep, s, NULL, r->n_body);
        return;
    }
    gen_free_parts(&r->g);
    free(r);
}

static void cancel(reply *r, const char *why)
{
    if (r->g.working && !r->g.canceled) prep_cancel(&r->prep);
    gen_cancel(&r->g, why);
}

void reply_cancel_all(server *s, const char *why)
{
    for (reply *r = s->replies; r; r = r->next) cancel(r, why);
}

static void on_gone(exchange *ex)
{
    reply *r = ex->job;
    if (r->finished) return;
    r->s->metrics.gone_clients++;
    cancel(r, "the client disconnected");
    reply_pump(r); /* all events may have arrived already */
}

static void on_room(exchange *ex) { reply_pump(ex->job); }

static json_t *error_of(const reply *r, int status, const pi_error *err)
{
    return exchange_error(r->ex, status, gen_error_field(&r->g, err), gen_error_code(&r->g, err), err->msg);
}

/* Writes the log line. Nothing is sent after this; the caller ends the exchange. */
static void end(reply *r)
{
    r->finished = true;
    log_reply(r);
}

static void fail(reply *r)
{
    gen *g = &r->g;
    r->status = status_of(g->err.code);
    exchange *ex = r->ex;
    end(r);
    if (r->streaming) {
        if (gen_send(g, "error", error_of(r, r->status, &g->err))) stream_end(ex);
        else exchange_abort(ex);
    } else {
        answer_json(ex, r->status, error_of(r, r->status, &g->err));
    }
    reply_free(r);
}

/* ---------------------------------------------------------------------------------------------------------- events */

/* Counts the times of an event's tokens, before gen_take. */
static void count_times(const choice *ch, const pi_event *ev)
{
    const reply *r = ch->g->owner;
    metrics *m = &r->s->metrics;
    const uint64_t now = uv_hrtime();
    if (!ev->n_tokens) return;
    if (!ch->g->first_at) {
        histogram_add(&m->first_token, (double) (now - r->ex->began) / 1e9);
    } else if (ch->token_at) {
        double gap = (double) (now - ch->token_at) / 1e9 / (double) ev->n_tokens;
        for (size_t i = 0; i < ev->n_tokens; i++) histogram_add(&m->inter_token, gap);
    }
}

/* Counts the end of a choice, after gen_take. */
static void count_end(const choice *ch)
{
    metrics *m = &reply_server(ch->g)->metrics;
    m->ended[ch->finish == PI_FINISH_STOP ? END_STOP : ch->finish == PI_FINISH_LENGTH ? END_LENGTH
             : ch->finish == PI_FINISH_CANCEL ? END_ABORT : END_ERROR]++;
    const uint64_t tokens = (uint64_t) ch->res.prompt_tokens + ch->res.generated_tokens;
    if (tokens > m->max_answer_tokens) m->max_answer_tokens = tokens;
    if (ch->res.miss_reason) metrics_miss(m, ch->res.miss_reason);
    histogram_add(&m->queue, ch->res.queue_ms / 1e3);
    if (!ch->res.generated_tokens) return;
    histogram_add(&m->prefill, ch->res.prefill_ms / 1e3);
    histogram_add(&m->decode, ch->res.decode_ms / 1e3);
    m->prompt_seconds += ch->res.prefill_ms / 1e3;
    m->decode_seconds += ch->res.decode_ms / 1e3;
}

reply *reply_event(const pi_event *ev)
{
    choice *ch = (choice *) ev->user + ev->index;
    gen *g = ch->g;
    reply *r = g->owner;
    const bool was_canceled = g->canceled;
    g->gone = !r->ex->conn;
    if (ev->kind == PI_EVENT_TEXT || ev->kind == PI_EVENT_DONE) count_times(ch, ev);
    gen_take(ev);
    if (ev->kind == PI_EVENT_DONE) count_end(ch);
    if (g->canceled && !was_canceled && g->working) prep_cancel(&r->prep);
    if (gen_waiting(ch) > r->s->send_max && g->p.stream && !g->canceled) {
        r->s->metrics.slow_clients++;
        r->too_slow = true;
        cancel(r, "the client reads too slowly");
    }
    return r;
}

/* --------------------------------------------------------------------------------------------------------- streams */

static bool send_event(gen *g, const char *event, const char *json, size_t n)
{
    reply *r = g->owner;
    const bool lines = g->w->json_lines;
    buf b = {0};
    if (event && !lines) buf_fmt(&b, "event: %s\n", event);
    buf_str(&b, lines ? "" : "data: ");
    buf_put(&b, json, n);
    buf_str(&b, lines ? "\n" : "\n\n");
    const bool ok = !b.failed;
    if (ok) stream_put(r->ex, b.p, b.n);
    r->sent_at = uv_now(&r->s->loop);
    buf_free(&b);
    return ok;
}

static void send_done(gen *g) { stream_put(((reply *) g->owner)->ex, "data: [DONE]\n\n", 14); }

static const gen_sink sink = {send_event, send_done};

static void begin_stream(reply *r)
{
    r->streaming = true;
    r->status = 200;
    stream_begin(r->ex, r->g.w->json_lines ? "application/x-ndjson" : "text/event-stream");
    r->g.w->begin(&r->g);
}

static void finish_stream(reply *r)
{
    exchange *ex = r->ex;
    r->finished = true;
    if (ex->conn) r->g.w->finish(&r->g);
    if (r->g.err.code) {
        fail(r);
        return;
    }
    end(r);
    stream_end(ex);
    reply_free(r);
}

void reply_ping_all(server *s)
{
    const uint64_t now = uv_now(&s->loop);
    for (reply *r = s->replies, *next; r; r = next) {
        gen *g = &r->g;
        next = r->next;
        const int64_t each = g->p.ping_s == INT64_MIN ? s->ping_s : g->p.ping_s;
        if (g->working || r->finished || !r->submitted || r->pumping || g->err.code || g->canceled) continue;
        if (!g->p.stream || each < 1 || g->w->json_lines) continue; /* lines of JSON have no comments */
        if (!r->ex || !r->ex->conn || now - r->sent_at < (uint64_t) each * 1000) continue;
        r->pumping = true;
        if (!r->streaming) begin_stream(r);
        if (!g->err.code) stream_put(r->ex, ":\n\n", 3);
        r->sent_at = now;
        r->pumping = false;
        if (!r->ex->conn) reply_pump(r); /* the client disconnected meanwhile */
    }
}

/* ---------------------------------------------------------------------------------------------- complete responses */

/* Returns the approximate size of the response as JSON. Parts of the body may be repeated in it. */
static size_t answer_bytes(const reply *r)
{
    size_t n = r->n_body;
    for (size_t i = 0; i < r->g.n_choices; i++) {
        const choice *ch = &r->g.choices[i];
        n += ch->text_in + ch->n_ids * (8 + 100 * ch->n_probs) + ch->prompt.n * (8 + 100 * ch->prompt.row) +
             12 * ch->n_vector;
    }
    return n;
}

static bool write_whole(prep *p)
{
    reply *r = p->owner;
    r->whole = gen_whole(&r->g);
    return true;
}

static void end_whole(reply *r, int code)
{
    exchange *ex = r->ex;
    buf text = r->whole;
    r->whole = (buf) {0};
    if (!text.p && ex->conn) {
        pi_error *err = &r->g.err;
        *err = (pi_error) {.code = code ? code : PI_ENOMEM};
        snprintf(err->msg, sizeof err->msg, "%s", code ? "the answer was not written" : "out of memory");
        fail(r);
        return;
    }
    r->status = 200;
    end(r);
    answer_owned(ex, 200, text.p, text.n);
    reply_free(r);
}

static void written(prep *p, int code)
{
    reply *r = p->owner;
    r->g.working = false;
    r->ex->on_gone = r->ex->on_room = NULL;
    end_whole(r, code);
}

static void answer_whole(reply *r)
{
    const size_t n = r->ex->conn ? answer_bytes(r) : 0;
    if (n > LARGE) {
        r->g.working = true;
        r->prep = (prep) {.owner = r, .run = write_whole, .done = written};
        prep_start_heavy(&r->prep, r->s, NULL, n);
        return;
    }
    if (r->ex->conn) r->whole = gen_whole(&r->g);
    end_whole(r, PI_OK);
}

/* ------------------------------------------------------------------------------------------------------------ flow */

void reply_pump(reply *r)
{
    gen *g = &r->g;
    if (g->working || r->finished || !r->submitted || r->pumping) return;
    r->pumping = true;
    const bool begun = gen_begun(g);
    if (begun && g->p.stream && !r->streaming && !g->err.code) begin_stream(r);
    /* after an error there is no further output */
    for (size_t i = 0; i < g->n_choices && begun && !g->err.code; i++) {
        if (g->p.stream && stream_waiting(r->ex) > ROOM && !g->canceled) break;
        gen_pump(&g->choices[i]);
    }
    if (g->err.code) cancel(r, "it failed");
    r->pumping = false;
    if (g->n_done < g->n_choices) return;
    if (r->too_slow && r->ex->conn) {
        exchange *ex = r->ex;
        end(r);
        exchange_abort(ex);
        reply_free(r);
    } else if (g->err.code) {
        fail(r);
    } else if (g->n_ended == g->n_choices) {
        if (g->p.stream) finish_stream(r);
        else answer_whole(r);
    }
}

/* Ends the preparation, on the loop. If a submit failed half way, the submitted requests are canceled and their events
 * dropped. */
static void prepared(prep *p, int code)
{
    reply *r = p->owner;
    gen *g = &r->g;
    g->working = false;
    g->work = NULL;
    r->sent_at = uv_now(&r->s->loop);
    if (r->work_err.code) g->err = r->work_err;
    if (code && !g->err.code) g->err = (pi_error) {code, "the preparation of the request took too long"};
    if (code == PI_ENOMEM) params_no_memory(&g->err);
    if (!r->submitted) {
        if (!g->err.code) params_no_memory(&g->err);
        fail(r);
        return;
    }
    if (g->canceled) {
        for (size_t i = 0; i < g->n_r; i++) pi_request_cancel(g->r[i]);
    }
    reply_pump(r);
}

void reply_start(server *s, exchange *ex, const wire *w)
{
    reply *r = calloc(1, sizeof *r);
    if (!r) {
        answer_error(ex, 503, NULL, NULL, "out of memory");
        return;
    }
    *r = (reply) {.s = s, .ex = ex, .n_body = ex->req.body.n};
    gen_init(&r->g, &s->sv, w, &sink, r);
    r->g.working = true;
    r->g.key = ex->key;
    r->g.began = ex->began;
    r->next = s->replies;
    if (s->replies) s->replies->prev = r;
    s->replies = r;
    s->n_replies++;
    ex->job = r;
    ex->on_gone = on_gone;
    ex->on_room = on_room;
    ex->generates = true;
    r->prep = (prep) {.owner = r, .run = prepare, .done = prepared};
    prep_start(&r->prep, s, ex, r->n_body);
}
