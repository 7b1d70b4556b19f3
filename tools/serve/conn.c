/* Connections (see conn.h).
 *
 * Memory: a connection holds its request, up to IN_MAX bytes of pipelined input, and its output. The connection is
 * read also while a request is in progress, because only a read detects that the client disconnected. If a client
 * sends more than IN_MAX bytes ahead, they are dropped and the current response is the connection's last.
 *
 * The writers bound the output: a stream has its own bound (gen.c), other responses are built one at a time, and no
 * further request is started while OUT_MAX bytes wait. One write is in progress at a time; later output goes into the
 * next one. Threads: the loop's. */
#include "serve/conn.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "json.h"
#include "serve/fault.h"
#include "serve/text.h"

enum {
    IN_MAX = 1 << 20,    /* pipelined bytes that are kept */
    KEEP = 128 << 10,    /* larger empty buffers are freed; bytes */
    DROP_MAX = 16 << 20, /* bytes read and dropped to detect the client's end; after them the connection is closed */
    OUT_MAX = 256 << 10, /* with this much output waiting, no further request is started; bytes */
    PART = 256 << 10,    /* bytes of a large body passed to the connection at a time */
    BODY_STEP = 64 << 10, /* each step of this many body bytes renews the deadline */
    TICK_MS = 250,
    LINGER_MS = 2000,
    BACKLOG = 512,
    ID_MAX = 128,        /* maximum bytes of a client's request id */
};

struct conn {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } h;
    net *net;
    conn *prev, *next;    /* in net->conns */
    http_in in;           /* the request being parsed */
    buf ahead;            /* bytes that were read and not yet parsed */
    exchange *ex;         /* in progress, or NULL */
    buf out;              /* output not yet in a write */
    buf cipher;           /* the output encrypted, and TLS protocol messages; TLS only */
    buf writing;          /* buffer of the write in progress */
    tls *tls;             /* NULL = plain connection */
    uv_write_t write;     /* libuv request of the write */
    size_t was_waiting;   /* unsent bytes at the last tick or write, to detect progress */
    size_t body_mark;     /* bytes of the body when the deadline was set; SIZE_MAX = the deadline is the header's */
    size_t ahead_at;      /* bytes at the start of `ahead` already parsed */
    size_t dropped;       /* pipelined bytes that were dropped */
    uint64_t deadline;    /* uv_now; 0 = none */
    bool reading, in_write, closing, busy;
    bool close_after;     /* close after the output is sent */
    char client[64];      /* see exchange.client */
    bool lingering;       /* output is sent; further input is dropped, so that the client can read the response */
};

static void process(conn *c);

/* ------------------------------------------------------------------------------------------------------------ ends */

static void on_closed(uv_handle_t *h)
{
    conn *c = h->data;
    http_in_free(&c->in);
    buf_free(&c->ahead);
    buf_free(&c->out);
    buf_free(&c->writing);
    buf_free(&c->cipher);
    tls_free(c->tls);
    free(c);
}

static void close_conn(conn *c)
{
    if (c->closing) return;
    c->closing = true;
    exchange *ex = c->ex;
    c->ex = NULL;
    if (c->prev) c->prev->next = c->next;
    else c->net->conns = c->next;
    if (c->next) c->next->prev = c->prev;
    c->net->n_conns--;
    uv_close(&c->h.handle, on_closed);
    if (!ex) return;
    ex->conn = NULL;
    if (ex->on_gone) ex->on_gone(ex);
}

/* Calls on_end and frees the exchange. If the client is still connected, its connection continues with the next
 * request. */
static void exchange_end(exchange *ex)
{
    conn *c = ex->conn;
    net *n = ex->net;
    if (n->on_end) n->on_end(n->ud, ex);
    http_request_free(&ex->req);
    free(ex);
    if (!c) return;
    c->ex = NULL;
    process(c);
}

void exchange_abort(exchange *ex)
{
    conn *c = ex->conn;
    ex->on_gone = NULL;
    if (c) close_conn(c);
    exchange_end(ex);
}

/* --------------------------------------------------------------------------------------------------------- writing */

static void flush(conn *c);

static void on_written(uv_write_t *w, int status)
{
    conn *c = w->data;
    c->in_write = false;
    c->writing.n = 0;
    if (c->closing) return;
    if (status < 0) {
        close_conn(c);
        return;
    }
    flush(c);
    if (c->closing || c->in_write) return;
    if (c->ex && c->ex->on_room) c->ex->on_room(c->ex);
    else if (!c->ex) process(c);
}

static void on_shut(uv_shutdown_t *s, int status)
{
    (void) status;
    free(s);
}

/* Ends the sending direction, then drops further input until the client closes or LINGER_MS have passed. Closing while
 * the client still sends would make its system discard the response. */
static void linger(conn *c)
{
    uv_shutdown_t *s = malloc(sizeof *s);
    if (!s || uv_shutdown(s, &c->h.stream, on_shut)) {
        free(s);
        close_conn(c);
        return;
    }
    c->lingering = true;
    c->deadline = uv_now(c->net->loop) + LINGER_MS;
}

static size_t waiting(const conn *c) { return c->out.n + c->cipher.n + uv_stream_get_write_queue_size(&c->h.stream); }

static void flush(conn *c)
{
    if (c->closing || c->in_write) return;
    if (c->out.failed) {
        close_conn(c);
        return;
    }
    buf *from = c->tls ? &c->cipher : &c->out;
    if (c->tls && c->out.n) {
        bool ok = tls_write(c->tls, c->out.p, c->out.n, &c->cipher);
        c->out.n = 0;
        if (!ok) {
            close_conn(c);
            return;
        }
    }
    if (from->n) {
        buf t = c->writing;
        c->writing = *from;
        *from = t;
        from->n = 0;
        c->write.data = c;
        uv_buf_t b = uv_buf_init(c->writing.p, (unsigned) c->writing.n);
        if (uv_write(&c->write, &c->h.stream, &b, 1, on_written)) {
            close_conn(c);
            return;
        }
        c->in_write = true;
        c->was_waiting = waiting(c);
        if (!c->deadline) c->deadline = uv_now(c->net->loop) + c->net->idle_ms;
    } else if (c->close_after && !c->ex && !c->lingering) {
        if (c->in.status || c->dropped) linger(c);
        else close_conn(c);
    }
}

static void put_head(exchange *ex, int status, const char *type, const char *headers)
{
    conn *c = ex->conn;
    const net *n = c->net;
    ex->status = status;
    if (!ex->req.keep_alive) c->close_after = true;
    buf_fmt(&c->out, "HTTP/1.1 %d %s\r\nx-request-id: %s\r\nrequest-id: %s\r\n%s", status, http_reason(status), ex->id,
            ex->id, headers);
    if (*type) buf_fmt(&c->out, "Content-Type: %s\r\n", type);
    if (*n->cors && http_field(&ex->req, HTTP_FIELD_ORIGIN)) {
        buf_fmt(&c->out, "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n", n->cors);
        buf_str(&c->out, "Access-Control-Expose-Headers: x-request-id, request-id\r\n");
    }
    buf_fmt(&c->out, "Connection: %s\r\n", c->close_after ? "close" : "keep-alive");
}

void answer(exchange *ex, int status, const char *type, const char *headers, const void *body, size_t n)
{
    ex->status = status;
    if (ex->conn) {
        conn *c = ex->conn;
        put_head(ex, status, type, headers);
        if (status != 204) buf_fmt(&c->out, "Content-Length: %zu\r\n", n);
        buf_str(&c->out, "\r\n");
        if (ex->req.method != HTTP_HEAD && status != 204) buf_put(&c->out, body, n);
        flush(c);
    }
    exchange_end(ex);
}

static void end_rest(exchange *ex)
{
    free(ex->rest);
    ex->rest = NULL;
    ex->on_room = ex->on_gone = NULL;
    exchange_end(ex);
}

/* Sends the next part; the previous part has been sent. */
static void send_part(exchange *ex)
{
    conn *c = ex->conn;
    const size_t left = ex->rest_n - ex->rest_at, n = left < PART ? left : PART;
    if (!n) {
        end_rest(ex);
        return;
    }
    buf_put(&c->out, ex->rest + ex->rest_at, n);
    ex->rest_at += n;
    c->deadline = 0; /* the client reads: flush sets a new deadline */
    flush(c);
}

void answer_owned(exchange *ex, int status, char *text, size_t n)
{
    conn *c = ex->conn;
    if (!c || n <= PART || ex->req.method == HTTP_HEAD) {
        answer(ex, status, "application/json", "", text, n);
        free(text);
        return;
    }
    put_head(ex, status, "application/json", "");
    buf_fmt(&c->out, "Content-Length: %zu\r\n\r\n", n);
    ex->rest = text;
    ex->rest_n = n;
    ex->on_room = send_part;
    ex->on_gone = end_rest;
    send_part(ex);
}

void reply_begin(exchange *ex, int status, const char *type, const char *headers, uint64_t length)
{
    const bool has_body = status != 204 && ex->req.method != HTTP_HEAD;
    ex->status = status;
    if (!ex->conn) return;
    ex->chunked = has_body && length == UINT64_MAX && !ex->req.http10;
    if (has_body && length == UINT64_MAX && !ex->chunked) ex->conn->close_after = true;
    put_head(ex, status, type, headers);
    if (length != UINT64_MAX && status != 204)
        buf_fmt(&ex->conn->out, "Content-Length: %llu\r\n", (unsigned long long) length);
    buf_str(&ex->conn->out, ex->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
    flush(ex->conn);
}

void stream_begin(exchange *ex, const char *type)
{
    reply_begin(ex, 200, type, "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n", UINT64_MAX);
}

void stream_put(exchange *ex, const void *p, size_t n)
{
    conn *c = ex->conn;
    if (!c || !n) return;
    if (ex->chunked) buf_fmt(&c->out, "%zx\r\n", n);
    buf_put(&c->out, p, n);
    if (ex->chunked) buf_str(&c->out, "\r\n");
    flush(c);
}

void stream_end(exchange *ex)
{
    if (ex->conn) {
        if (ex->chunked) buf_str(&ex->conn->out, "0\r\n\r\n");
        flush(ex->conn);
    }
    exchange_end(ex);
}

size_t stream_waiting(const exchange *ex) { return ex->conn ? waiting(ex->conn) : 0; }

/* --------------------------------------------------------------------------------------------------------- errors */

json_t *exchange_error(const exchange *ex, int status, const char *param, const char *code, const char *message)
{
    const http_request *r = &ex->req;
    if (ex->plain_errors) return json_pack("{s:o}", "error", text_json(message, strlen(message)));
    json_t *e = fault_json(status, param, code, message);
    if (!e || !r->path_len || !memmem(r->target.p, r->path_len, "/v1/messages", 12)) return e;
    json_object_set_new(e, "type", json_string("error"));
    json_object_set_new(e, "request_id", json_string(ex->id));
    return e;
}

void answer_json(exchange *ex, int status, json_t *root)
{
    static const char none[] = "{\"error\":{\"message\":\"out of memory\",\"type\":\"unavailable_error\"}}";
    char *text = root ? json_write(root, ANSWER_DIGITS) : NULL;
    const bool whole = !text_failed() && text;
    if (!whole) status = 503;
    json_decref(root);
    const char *more = status == 429 || status == 503 ? "Retry-After: 1\r\n" : status == 401
                       ? "WWW-Authenticate: Bearer\r\n" : "";
    if (whole) answer(ex, status, "application/json", more, text, strlen(text));
    else answer(ex, status, "application/json", more, none, sizeof none - 1);
    free(text);
}

void answer_error(exchange *ex, int status, const char *param, const char *code, const char *fmt, ...)
{
    char message[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    answer_json(ex, status, exchange_error(ex, status, param, code, message));
}

/* --------------------------------------------------------------------------------------------------------- reading */

/* True if the client's id is valid in a header and a log line. */
static bool is_sound_id(const char *id)
{
    const size_t n = id ? strlen(id) : 0;
    bool sound = n && n <= ID_MAX;
    for (size_t i = 0; i < n && sound; i++) sound = id[i] > ' ' && id[i] <= '~';
    return sound;
}

/* Sets the client's id if it sent a valid one, else a new one. */
static void set_id(exchange *ex)
{
    const char *x_id = http_field(&ex->req, HTTP_FIELD_X_REQUEST_ID), *id = http_field(&ex->req, HTTP_FIELD_REQUEST_ID);
    const char *own = is_sound_id(x_id) ? x_id : id;
    if (is_sound_id(own)) memcpy(ex->id, own, strlen(own) + 1);
    else ex->net->new_id(ex->net->ud, ex->id);
}

/* Creates an exchange for the parsed request. */
static exchange *exchange_new(conn *c)
{
    exchange *ex = calloc(1, sizeof *ex);
    if (!ex) return NULL;
    ex->conn = c;
    ex->net = c->net;
    ex->began = uv_hrtime();
    http_take(&c->in, &ex->req);
    memcpy(ex->client, c->client, sizeof ex->client);
    set_id(ex);
    return ex;
}

/* Responds to an invalid request and closes the connection, because the start of the next request is unknown. */
static void refuse(conn *c)
{
    exchange *ex = exchange_new(c);
    c->ahead.n = c->ahead_at = 0;
    if (!ex) {
        close_conn(c);
        return;
    }
    c->ex = ex;
    int status = c->in.status;
    const char *why = c->in.why ? c->in.why : http_reason(status);
    ex->req.keep_alive = false;
    answer_error(ex, status, NULL, status == 401 ? "invalid_api_key" : NULL, "%s", why);
}

static void begin(conn *c)
{
    exchange *ex = exchange_new(c);
    if (!ex) {
        close_conn(c);
        return;
    }
    c->ex = ex;
    c->deadline = 0;
    c->net->on_request(c->net->ud, ex);
}

/* Sends 100 Continue to clients that wait for it before they send a large body. */
static void answer_expect(conn *c)
{
    const char *e = http_field(&c->in.req, HTTP_FIELD_EXPECT);
    if (!e || !c->in.has_head || c->in.req.body.n || strcasecmp(e, "100-continue") != 0) return;
    c->in.req.field[HTTP_FIELD_EXPECT].p[0] = 0;
    buf_str(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
    flush(c);
}

/* Sets the deadline for the client's next step, by the state of its input. */
static void set_deadline(conn *c)
{
    if (c->closing || c->ex || c->lingering) return;
    uint64_t now = uv_now(c->net->loop);
    if (http_is_idle(&c->in)) {
        c->deadline = now + c->net->idle_ms;
        c->body_mark = 0;
    } else if (!c->in.has_head) {
        if (c->body_mark != SIZE_MAX) c->deadline = now + c->net->header_ms;
        c->body_mark = SIZE_MAX;
    } else if (c->body_mark == SIZE_MAX || c->in.req.body.n >= c->body_mark + BODY_STEP) {
        c->body_mark = c->in.req.body.n;
        c->deadline = now + c->net->idle_ms;
    }
}

static size_t ahead(const conn *c) { return c->ahead.n - c->ahead_at; }

/* Marks bytes as parsed. They are removed when they make up half of the buffer, so that small requests move few
 * bytes. */
static void take_ahead(conn *c, size_t n)
{
    c->ahead_at += n;
    if (c->ahead_at <= c->ahead.n / 2) return;
    if (!ahead(c) && c->ahead.cap > KEEP) buf_free(&c->ahead);
    else buf_drop(&c->ahead, c->ahead_at);
    c->ahead_at = 0;
}

/* Parses and starts requests from the input, until one stays in progress. */
static void process(conn *c)
{
    if (c->busy) return;
    c->busy = true;
    while (!c->closing && !c->ex && ahead(c) && !c->close_after && c->out.n < OUT_MAX) {
        size_t used;
        enum http_what what = http_feed(&c->in, c->ahead.p + c->ahead_at, ahead(c), &used);
        take_ahead(c, used);
        if (what == HTTP_REFUSED) refuse(c);
        else if (what == HTTP_COMPLETE) begin(c);
        else answer_expect(c);
    }
    c->busy = false;
    if (c->closing) return;
    if (c->close_after && !c->ex) flush(c);
    set_deadline(c);
}

static void on_alloc(uv_handle_t *h, size_t want, uv_buf_t *b)
{
    conn *c = h->data;
    (void) want;
    *b = uv_buf_init(c->net->read_buf, sizeof c->net->read_buf);
}

/* Drops the input that was not parsed, because the client sent more than IN_MAX bytes ahead of the responses. The
 * connection closes after the current response. */
static void drop_ahead(conn *c)
{
    c->dropped = ahead(c);
    buf_free(&c->ahead);
    c->ahead_at = 0;
    c->close_after = true;
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    conn *c = s->data;
    if (n < 0) { /* also a half-closed connection: it looks like a disconnected client */
        close_conn(c);
        return;
    }
    if (c->close_after) {
        if (c->ex && c->dropped && (c->dropped += (size_t) n) > DROP_MAX) close_conn(c);
        return;
    }
    bool ok = true;
    if (c->tls) {
        ok = tls_read(c->tls, b->base, (size_t) n, &c->ahead, &c->cipher);
        if (ok) flush(c);
    } else {
        buf_put(&c->ahead, b->base, (size_t) n);
    }
    if (!ok || c->ahead.failed) close_conn(c);
    if (c->closing) return;
    process(c);
    if (c->closing || ahead(c) <= IN_MAX) return;
    if (c->ex) {
        drop_ahead(c);
    } else if (c->reading) { /* the client does not read its responses */
        uv_read_stop(&c->h.stream);
        c->reading = false;
    }
}

/* Writes the address of the other end. */
static void set_client(conn *c, bool pipe)
{
    struct sockaddr_storage a;
    char host[48] = "?";
    int len = sizeof a, port = 0;
    snprintf(c->client, sizeof c->client, pipe ? "unix" : "?");
    if (pipe || uv_tcp_getpeername(&c->h.tcp, (struct sockaddr *) &a, &len)) return;
    const bool six = a.ss_family == AF_INET6;
    if (six) {
        uv_ip6_name((struct sockaddr_in6 *) &a, host, sizeof host);
        port = ntohs(((struct sockaddr_in6 *) &a)->sin6_port);
    } else {
        uv_ip4_name((struct sockaddr_in *) &a, host, sizeof host);
        port = ntohs(((struct sockaddr_in *) &a)->sin_port);
    }
    snprintf(c->client, sizeof c->client, six ? "[%s]:%d" : "%s:%d", host, port);
}

static void on_accept(uv_stream_t *listener, int status)
{
    net *n = listener->data;
    if (status < 0) return;
    bool pipe = listener->type == UV_NAMED_PIPE;
    conn *c = calloc(1, sizeof *c);
    int rc = !c ? UV_ENOMEM : pipe ? uv_pipe_init(n->loop, &c->h.pipe, 0) : uv_tcp_init(n->loop, &c->h.tcp);
    if (rc) { /* the loop delays further connections until this one is accepted */
        free(c);
        *(pipe ? &n->pipe_waits : &n->tcp_waits) = true;
        return;
    }
    c->net = n;
    c->h.handle.data = c;
    http_in_init(&c->in, &n->limits);
    c->in.on_head = n->on_head;
    c->in.ud = n->ud;
    n->n_accepted++;
    rc = uv_accept(listener, &c->h.stream);
    if (!rc && n->tls && !pipe && !(c->tls = tls_new(n->tls))) rc = UV_ENOMEM;
    if (n->n_conns >= n->max_conns) {
        char id[64], full[320];
        n->new_id(n->ud, id);
        const int len = snprintf(full, sizeof full,
                                 "HTTP/1.1 503 Service Unavailable\r\nx-request-id: %s\r\n"
                                 "request-id: %s\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                                 id, id);
        uv_buf_t b = uv_buf_init(full, (unsigned) len);
        if (!rc && !c->tls) uv_try_write(&c->h.stream, &b, 1);
        n->n_refused++;
        rc = UV_EMFILE;
    }
    if (!rc && !pipe) uv_tcp_nodelay(&c->h.tcp, 1);
    if (!rc) set_client(c, pipe);
    if (!rc) rc = uv_read_start(&c->h.stream, on_alloc, on_read);
    if (rc) {
        c->closing = true;
        uv_close(&c->h.handle, on_closed);
        return;
    }
    c->reading = true;
    c->next = n->conns;
    if (n->conns) n->conns->prev = c;
    n->conns = c;
    n->n_conns++;
    set_deadline(c);
}

/* ------------------------------------------------------------------------------------------------------- deadlines */

/* Responds to an incomplete request with 408; closes any other connection. */
static void time_out(conn *c)
{
    if (c->ex || c->close_after || http_is_idle(&c->in) || waiting(c)) {
        close_conn(c);
        return;
    }
    c->in.status = 408;
    c->in.why = "the request took too long to arrive";
    refuse(c);
}

static void on_tick(uv_timer_t *t)
{
    net *n = t->data;
    uint64_t now = uv_now(n->loop);
    const bool tcp = n->tcp_waits && n->has_tcp, pipe = n->pipe_waits && n->has_pipe;
    n->tcp_waits = n->pipe_waits = false;
    if (tcp) on_accept((uv_stream_t *) &n->tcp, 0);
    if (pipe) on_accept((uv_stream_t *) &n->pipe, 0);
    for (conn *c = n->conns, *next; c; c = next) {
        next = c->next;
        size_t left = waiting(c);
        if (left && left < c->was_waiting) c->deadline = now + n->idle_ms; /* the output makes progress */
        c->was_waiting = left;
        if (c->ex && !left) c->deadline = 0; /* waiting for the model, not for the client */
        if (!c->reading && (c->ex || ahead(c) <= IN_MAX / 2) && !uv_read_start(&c->h.stream, on_alloc, on_read))
            c->reading = true;
        if (c->deadline && now >= c->deadline) time_out(c);
    }
}

/* ------------------------------------------------------------------------------------------------------- listening */

int net_init(net *n, uv_loop_t *loop)
{
    n->loop = loop;
    int rc = uv_timer_init(loop, &n->tick);
    n->tick.data = n;
    return rc ? rc : uv_timer_start(&n->tick, on_tick, TICK_MS, TICK_MS);
}

static int open_tcp(net *n)
{
    int rc = uv_tcp_init(n->loop, &n->tcp);
    if (rc) return rc;
    n->tcp.data = n;
    n->has_tcp = true;
    return 0;
}

static int bound_port(const net *n, int *port)
{
    struct sockaddr_storage a;
    int len = sizeof a, rc = uv_tcp_getsockname(&n->tcp, (struct sockaddr *) &a, &len);
    if (rc) return rc;
    *port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *) &a)->sin6_port
                                          : ((struct sockaddr_in *) &a)->sin_port);
    return 0;
}

int net_listen_tcp(net *n, const char *host, int *port)
{
    char service[16];
    uv_getaddrinfo_t ask;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    snprintf(service, sizeof service, "%d", *port);
    int rc = uv_getaddrinfo(n->loop, &ask, NULL, host, service, &hints);
    if (rc) return rc;
    rc = open_tcp(n);
    if (!rc) rc = uv_tcp_bind(&n->tcp, ask.addrinfo->ai_addr, 0);
    if (!rc) rc = uv_listen((uv_stream_t *) &n->tcp, BACKLOG, on_accept);
    if (!rc) rc = bound_port(n, port);
    uv_freeaddrinfo(ask.addrinfo);
    return rc;
}

/* Removes a socket file that no process listens on, left by an unclean exit. */
static void unlink_dead(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat st;
    int fd;
    if (strlen(path) >= sizeof a.sun_path || lstat(path, &st) || !S_ISSOCK(st.st_mode)) return;
    if ((fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0) return;
    strcpy(a.sun_path, path);
    if (connect(fd, (struct sockaddr *) &a, sizeof a) && errno == ECONNREFUSED) unlink(path);
    close(fd);
}

int net_listen_pipe(net *n, const char *path)
{
    unlink_dead(path);
    int rc = uv_pipe_init(n->loop, &n->pipe, 0);
    if (rc) return rc;
    n->pipe.data = n;
    n->has_pipe = true;
    rc = uv_pipe_bind(&n->pipe, path);
    return rc ? rc : uv_listen((uv_stream_t *) &n->pipe, BACKLOG, on_accept);
}

int net_listen_fd(net *n, int fd)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    if (getsockname(fd, (struct sockaddr *) &a, &len)) return uv_translate_sys_error(errno);
    if (a.ss_family == AF_UNIX) {
        int rc = uv_pipe_init(n->loop, &n->pipe, 0);
        if (rc) return rc;
        n->pipe.data = n;
        n->has_pipe = true;
        rc = uv_pipe_open(&n->pipe, fd);
        return rc ? rc : uv_listen((uv_stream_t *) &n->pipe, BACKLOG, on_accept);
    }
    int rc = open_tcp(n);
    if (!rc) rc = uv_tcp_open(&n->tcp, fd);
    return rc ? rc : uv_listen((uv_stream_t *) &n->tcp, BACKLOG, on_accept);
}

static void close_listeners(net *n)
{
    if (n->has_tcp) uv_close((uv_handle_t *) &n->tcp, NULL);
    if (n->has_pipe) uv_close((uv_handle_t *) &n->pipe, NULL);
    n->has_tcp = n->has_pipe = false;
}

void net_stop(net *n)
{
    close_listeners(n);
    for (conn *c = n->conns, *next; c; c = next) {
        next = c->next;
        c->close_after = true;
        if (!c->ex && !waiting(c)) close_conn(c);
    }
}

void net_close(net *n)
{
    close_listeners(n);
    while (n->conns) close_conn(n->conns);
    if (n->loop) uv_close((uv_handle_t *) &n->tick, NULL);
}
