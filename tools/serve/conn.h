/* Connections: read bytes, parse requests one after another, send responses in the same order.
 *
 * An EXCHANGE is a request in progress. A connection has at most one; pipelined requests wait in the input buffer. The
 * handler responds immediately or later, in one piece or as a stream. The exchange is over when the handler calls
 * exchange_end. If the client disconnects before that, `conn` becomes NULL and on_gone is called; the handler still
 * ends the exchange. Everything here runs on the loop's thread. */
#ifndef PAGEDINFER_SERVE_CONN_H
#define PAGEDINFER_SERVE_CONN_H

#include <jansson.h>
#include <uv.h>

#include "serve/http.h"
#include "serve/tls.h"

typedef struct conn conn;
typedef struct exchange exchange;
typedef struct net net;

struct exchange {
    conn *conn;                      /* NULL = the client has disconnected */
    net *net;                        /* owner of the connection */
    http_request req;                /* the parsed request */
    char id[132];                    /* request id: the client's if it is valid, else generated */
    const char *key;                 /* the API key of the request, or NULL; points into req */
    bool plain_errors;               /* errors are {"error": TEXT}, as in Ollama's API */
    char key_name[64];               /* name of the key, for the log; "" = none */
    char client[64];                 /* "ADDRESS:PORT", "[ADDRESS]:PORT" or "unix" */
    uint64_t began;                  /* uv_hrtime when the request was complete */
    int status;                      /* HTTP status of the response, once it began */
    bool chunked;                    /* the response's body is sent in chunks of unknown total size */
    void *job;                       /* object of the handler; conn.c does not use it */
    bool generates;                  /* the model generates the response; the generation writes its own log line */
    char *rest;                      /* [rest_n] body of answer_owned, sent in parts; owned; NULL = none */
    size_t rest_n, rest_at;          /* bytes of rest; bytes already passed to the connection */
    void (*on_gone)(exchange *ex);   /* called after the client disconnected and conn became NULL; NULL = not needed */
    void (*on_room)(exchange *ex);   /* called when all output so far was passed to the network; NULL = not needed */
};

struct net {
    uv_loop_t *loop;                 /* not owned */
    uv_timer_t tick;                 /* periodic: checks deadlines, and accepts clients that wait */
    uv_tcp_t tcp;                    /* listener if has_tcp */
    uv_pipe_t pipe;                  /* listener if has_pipe */
    bool has_tcp, has_pipe;
    bool tcp_waits, pipe_waits;      /* a client waits to be accepted, because memory for its connection was missing */
    http_limits limits;              /* maximum sizes of a request */
    unsigned header_ms;              /* time limit for a request's header */
    unsigned idle_ms;                /* a connection without progress is closed after this time */
    size_t max_conns;                /* further connections get status 503 and are closed */
    const char *cors;                /* value of Access-Control-Allow-Origin; "" = no CORS headers */
    tls_config *tls;                 /* for connections other than local sockets; NULL = no TLS. Not owned */
    conn *conns;                     /* list of all connections */
    size_t n_conns;                  /* entries of conns */
    uint64_t n_accepted, n_refused;  /* connections accepted since the start; the ones of them above max_conns */
    char read_buf[65536];            /* receive buffer; processed before the next read */
    void *ud;                        /* the server */
    /* Called with a complete request header. Returns 0 to accept the request, else the HTTP status to refuse it with,
     * and sets *why to the reason. */
    int (*on_head)(void *ud, const http_request *req, const char **why);
    void (*new_id)(void *ud, char out[64]);        /* writes a new id, for a request without a valid one */
    void (*on_request)(void *ud, exchange *ex);    /* called with a complete request; starts its handler */
    void (*on_end)(void *ud, const exchange *ex);  /* called before an exchange is freed; may be NULL */
};

/* Start listeners and the deadline timer. They return 0 or a negative libuv error. host is a numeric address or a
 * name. *port is set to the bound port. */
int net_init(net *n, uv_loop_t *loop);
int net_listen_tcp(net *n, const char *host, int *port);
int net_listen_pipe(net *n, const char *path);
int net_listen_fd(net *n, int fd);
/* Stops accepting connections and closes connections without an exchange. */
void net_stop(net *n);
/* Closes everything; uv_run then returns. */
void net_close(net *n);

/* ---- responding; these functions do nothing if the client has disconnected */

/* Sends the complete response and ends the exchange. headers: additional lines, each with \r\n, or "". */
void answer(exchange *ex, int status, const char *type, const char *headers, const void *body, size_t n);
/* Sends a JSON response and takes ownership of root. root == NULL means out of memory. */
void answer_json(exchange *ex, int status, json_t *root);
/* Sends JSON text of any size. The text is copied, encrypted and written in parts, as the client reads them. It is
 * freed with free. */
void answer_owned(exchange *ex, int status, char *text, size_t n);
/* Begin, extend and end a chunked response body. */
void stream_begin(exchange *ex, const char *type);
/* Begins a response with any status and a body of `length` bytes, or in chunks if length is UINT64_MAX. stream_put and
 * stream_end follow; the caller sends exactly length bytes, or none after HEAD. headers: as for answer. */
void reply_begin(exchange *ex, int status, const char *type, const char *headers, uint64_t length);
void stream_put(exchange *ex, const void *p, size_t n);
void stream_end(exchange *ex);
/* Returns the number of bytes queued and not yet sent to the network. */
size_t stream_waiting(const exchange *ex);
/* Closes the connection without a response: the client is too slow, or the response cannot be finished. Ends the
 * exchange. */
void exchange_abort(exchange *ex);

/* Sends an error in OpenAI's format. param and code may be NULL. */
void answer_error(exchange *ex, int status, const char *param, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Returns {"error": {...}} as answer_error sends it. On the paths of Anthropic's API, "type" and "request_id" are
 * added around it. Returns NULL if out of memory. */
json_t *exchange_error(const exchange *ex, int status, const char *param, const char *code, const char *message);

#endif
