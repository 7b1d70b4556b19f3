/* Relays a request (see relay.h). */
#include "serve/relay.h"

#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "serve/http_reply.h"

enum { UNREAD_MAX = 256 << 10, ERROR_MAX = 64 << 10 };

struct relay {
    uv_pipe_t pipe;
    uv_connect_t connect;
    uv_write_t write;
    relay_request q;
    exchange *ex;      /* NULL = ended, or the client has disconnected */
    buf head, body;    /* the request */
    http_reply reply;
    bool began;        /* the head of the response was sent */
    bool is_error;     /* a stream has begun, but the response is an error: it is collected */
    buf error;         /* its body */
    char last;         /* last byte of a stream that was sent; 0 = none */
    bool paused;       /* nothing is read until the client has read its output */
    bool closing;
    bool missing;      /* status 404, and the caller continues */
};

static void on_closed(uv_handle_t *h)
{
    relay *r = h->data;
    buf_free(&r->head);
    buf_free(&r->body);
    buf_free(&r->error);
    http_reply_free(&r->reply);
    (r->missing ? r->q.missing : r->q.done)(r->q.ud);
    free(r);
}

/* Releases the exchange and closes the socket. */
static void end(relay *r)
{
    if (r->ex) r->ex->on_gone = r->ex->on_room = NULL;
    r->ex = NULL;
    if (r->closing) return;
    r->closing = true;
    uv_close((uv_handle_t *) &r->pipe, on_closed);
}

static void on_gone(exchange *ex)
{
    relay *r = ex->job;
    r->missing = false; /* its process has responded, and the client left before the next one */
    end(r);
    exchange_abort(ex);
}

/* ----------------------------------------------------------------------------------------------------------- errors */

/* Sends the text of an error as an event: of Anthropic's and of the Responses API with a name. */
static void put_event(exchange *ex, const char *text, size_t n)
{
    const char *path = ex->req.target.p;
    const size_t len = ex->req.path_len;
    const bool named = memmem(path, len, "/messages", 9) || memmem(path, len, "/responses", 10);
    buf b = {0};
    buf_fmt(&b, "%sdata: %.*s\n\n", named ? "event: error\n" : "", (int) n, text);
    if (!b.failed) stream_put(ex, b.p, b.n);
    buf_free(&b);
}

void relay_stream_error(exchange *ex, json_t *root)
{
    char *text = json_write(root, ANSWER_DIGITS);
    json_decref(root);
    if (!text_failed() && text) put_event(ex, text, strlen(text));
    free(text);
    stream_end(ex);
}

static bool is_type(const http_reply *r, const char *type) { return !strncmp(r->type, type, strlen(type)); }

/* The process has ended, or its response is malformed. */
static void fail(relay *r, const char *why)
{
    exchange *ex = r->ex;
    char text[400];
    if (!ex) {
        end(r);
        return;
    }
    const bool events = r->q.begun || is_type(&r->reply, "text/event-stream");
    const bool lines = r->began && is_type(&r->reply, "application/x-ndjson");
    snprintf(text, sizeof text, "%s while model '%.100s' handled the request: send it again; GET /v1/models shows the "
             "state of the model", why, r->q.model);
    json_t *root = exchange_error(ex, 502, NULL, "model_process_ended", text);
    const char last = r->last;
    ex->generates = false; /* the process wrote no log line */
    end(r);
    if (!r->began && !r->q.begun) {
        answer_json(ex, 502, root);
    } else if (ex->chunked && (events || lines)) {
        if (events && last && last != '\n') stream_put(ex, "\n\n", 2);
        if (lines && last && last != '\n') stream_put(ex, "\n", 1);
        char *line = lines ? json_write(root, ANSWER_DIGITS) : NULL;
        if (line) stream_put(ex, line, strlen(line));
        if (line) stream_put(ex, "\n", 1);
        free(line);
        if (lines) json_decref(root), (void) text_failed(), stream_end(ex);
        else relay_stream_error(ex, root);
    } else {
        json_decref(root);
        exchange_abort(ex);
    }
}

/* --------------------------------------------------------------------------------------------------------- response */

static void begin_response(relay *r)
{
    const http_reply *p = &r->reply;
    r->began = true;
    if (!r->q.begun) {
        reply_begin(r->ex, p->status, p->type, p->fields.p ? p->fields.p : "", p->has_length ? p->length : UINT64_MAX);
    } else {
        r->is_error = !is_type(p, "text/event-stream");
    }
}

static void take_body(relay *r, const char *p, size_t n)
{
    if (r->is_error) {
        if (r->error.n + n <= ERROR_MAX) buf_put(&r->error, p, n);
        return;
    }
    stream_put(r->ex, p, n);
    if (n) r->last = p[n - 1];
}

static void finish(relay *r)
{
    exchange *ex = r->ex;
    end(r); /* first, so that a disconnect while writing does not free ex */
    if (r->is_error && r->error.n) put_event(ex, r->error.p, r->error.n);
    stream_end(ex);
}

/* The process lacks the object: gives the exchange back when the socket is closed. */
static void give_back(relay *r)
{
    r->missing = r->closing = true;
    r->ex->on_room = NULL;
    uv_close((uv_handle_t *) &r->pipe, on_closed);
}

/* Handles bytes of the response, until the client's end or the response's. */
static void take(relay *r, const char *p, size_t n)
{
    for (size_t at = 0, used = 0; r->ex; at += used) {
        const char *body = NULL;
        size_t n_body = 0;
        switch (http_reply_feed(&r->reply, p + at, n - at, &used, &body, &n_body)) {
        case REPLY_MORE: return;
        case REPLY_HEAD:
            if (r->q.missing && r->reply.status == 404) {
                give_back(r);
                return;
            }
            begin_response(r);
            break;
        case REPLY_BODY: take_body(r, body, n_body); break;
        case REPLY_END: finish(r); return;
        case REPLY_BAD: fail(r, "an invalid response arrived"); return;
        }
    }
}

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *b)
{
    relay *r = h->data;
    net *n = &r->q.s->net;
    (void) size;
    *b = uv_buf_init(n->read_buf, sizeof n->read_buf);
}

static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *b)
{
    relay *r = h->data;
    if (n > 0) take(r, b->base, (size_t) n);
    else if (n < 0) fail(r, "the process ended");
    if (!r->ex || r->closing || stream_waiting(r->ex) < UNREAD_MAX) return;
    uv_read_stop(h);
    r->paused = true;
}

static void on_room(exchange *ex)
{
    relay *r = ex->job;
    if (r->paused && !r->closing && !uv_read_start((uv_stream_t *) &r->pipe, on_alloc, on_read)) r->paused = false;
}

/* ---------------------------------------------------------------------------------------------------------- request */

static void put_field(buf *b, const char *name, const char *value)
{
    if (value && *value) buf_fmt(b, "%s: %s\r\n", name, value);
}

/* Writes the head. Only the listed fields of the client are passed on. */
static void put_head(relay *r, const http_request *in)
{
    const exchange *ex = r->ex;
    buf *b = &r->head;
    buf_fmt(b, "%s %.*s HTTP/1.1\r\nHost: model\r\nConnection: close\r\n", http_method_name(in->method),
            (int) in->target.n, in->target.p);
    put_field(b, "x-request-id", ex->id);
    put_field(b, "x-pagedinfer-client", ex->client);
    put_field(b, "x-pagedinfer-key-name", ex->key_name);
    put_field(b, "x-api-key", ex->key);
    put_field(b, "accept", http_field(in, HTTP_FIELD_ACCEPT));
    put_field(b, "traceparent", http_field(in, HTTP_FIELD_TRACEPARENT));
    if (in->method != HTTP_GET && in->method != HTTP_HEAD) buf_fmt(b, "Content-Length: %zu\r\n", r->body.n);
    buf_str(b, "\r\n");
}

static void on_written(uv_write_t *w, int status)
{
    relay *r = w->data;
    (void) status; /* an error also ends the reading */
    buf_free(&r->body);
}

static void on_connect(uv_connect_t *c, int status)
{
    relay *r = c->data;
    if (r->closing) return;
    uv_buf_t b[2] = {uv_buf_init(r->head.p, (unsigned) r->head.n),
                     uv_buf_init(r->body.p ? r->body.p : r->head.p, (unsigned) r->body.n)};
    if (!status) status = uv_write(&r->write, (uv_stream_t *) &r->pipe, b, r->body.n ? 2 : 1, on_written);
    if (!status) status = uv_read_start((uv_stream_t *) &r->pipe, on_alloc, on_read);
    if (status) fail(r, "the process did not accept a connection");
}

void relay_start(const relay_request *q)
{
    exchange *ex = q->ex;
    relay *r = calloc(1, sizeof *r);
    if (!r || uv_pipe_init(&q->s->loop, &r->pipe, 0)) {
        free(r);
        if (q->begun) relay_stream_error(ex, exchange_error(ex, 503, NULL, NULL, "out of memory"));
        else answer_error(ex, 503, NULL, NULL, "out of memory");
        q->done(q->ud);
        return;
    }
    r->q = *q;
    r->q.in = NULL;
    r->ex = ex;
    r->pipe.data = r->connect.data = r->write.data = r;
    r->reply.no_body = ex->req.method == HTTP_HEAD;
    r->body = ex->req.body;
    ex->req.body = (buf) {0};
    ex->job = r;
    ex->on_gone = on_gone;
    ex->on_room = on_room;
    ex->generates = true; /* the process writes the log line */
    put_head(r, q->in);
    if (r->head.failed) fail(r, "memory for it was missing");
    else uv_pipe_connect(&r->connect, &r->pipe, q->socket, on_connect);
}
