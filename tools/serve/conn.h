/* Connections: bytes in, requests one after the other, answers out in the same order.
 *
 * An EXCHANGE is a request that is being answered. A connection has at most one; what the client sent behind it waits
 * (pipelining). The handler answers at once or later, whole or as a stream; the exchange is over when it calls
 * exchange_end. When the client goes away before that, the exchange loses its connection (`conn` is NULL), on_gone is
 * called, and the handler still ends it. Everything here runs on the loop's thread. */
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
    conn *conn;                      /* NULL: the client is gone */
    net *net;                        /* whose connection it was */
    http_request req;                /* what was asked for */
    char id[132];                    /* of the request: the client's own where it is sound, else one of ours */
    const char *key;                 /* the API key it came with, or NULL; in req */
    uint64_t began;                  /* uv_hrtime when the request was whole */
    int status;                      /* of the answer, once it began */
    bool chunked;                    /* the body is sent in chunks */
    void *job;                       /* the handler's */
    bool generates;                  /* the model answers it: the generation has a log line of its own */
    char *rest;                      /* [rest_n] body that is sent in parts; owned; or NULL */
    size_t rest_n, rest_at;          /* its bytes; those that were given to the connection */
    void (*on_gone)(exchange *ex);   /* the client went away; the handler ends what it does */
    void (*on_room)(exchange *ex);   /* what was written has left */
};

struct net {
    uv_loop_t *loop;                 /* not owned */
    uv_timer_t tick;                 /* looks at deadlines */
    uv_tcp_t tcp;                    /* listening, where has_tcp */
    uv_pipe_t pipe;                  /* listening, where has_pipe */
    bool has_tcp, has_pipe;
    bool tcp_waits, pipe_waits;      /* a client is there that there was no memory for */
    http_limits limits;
    unsigned header_ms;              /* a request's header has to arrive within this */
    unsigned idle_ms;                /* nothing moves on a connection for so long: it is closed */
    size_t max_conns;
    const char *cors;                /* Access-Control-Allow-Origin, "": none */
    tls_config *tls;                 /* of connections that are not local sockets; NULL: none. Not owned */
    conn *conns;                     /* all of them */
    size_t n_conns;
    uint64_t n_accepted, n_refused;  /* so far */
    char read_buf[65536];            /* what is being read; it is looked at before the next read */
    void *ud;                        /* the server */
    /* Of a request's header: may it come in? As in http.h. */
    int (*on_head)(void *ud, const http_request *req, const char **why);
    void (*new_id)(void *ud, char out[64]); /* the id of a request that comes without one */
    void (*on_request)(void *ud, exchange *ex);
    void (*on_end)(void *ud, const exchange *ex);
};

/* Listeners and deadlines; a negative error of libuv. host may be a numeric address or a name. *port: as bound. */
int net_init(net *n, uv_loop_t *loop);
int net_listen_tcp(net *n, const char *host, int *port);
int net_listen_pipe(net *n, const char *path);
int net_listen_fd(net *n, int fd);
/* Accepts nobody any more; connections without an exchange are closed. */
void net_stop(net *n);
/* Closes everything; afterwards uv_run comes to an end. */
void net_close(net *n);

/* ---- answering; each does nothing when the client is gone */

/* The whole answer, and the end of the exchange. headers: further lines, each with \r\n, or "". */
void answer(exchange *ex, int status, const char *type, const char *headers, const void *body, size_t n);
/* The same with JSON, which it takes over; NULL: out of memory. */
void answer_json(exchange *ex, int status, json_t *root);
/* The same with JSON as text, of any size: a part at a time is copied, encrypted and written as the client takes them. text is
 * freed with free. */
void answer_owned(exchange *ex, int status, char *text, size_t n);
/* A body that comes in parts, and its end. */
void stream_begin(exchange *ex, const char *type);
void stream_put(exchange *ex, const void *p, size_t n);
void stream_end(exchange *ex);
/* Bytes that were given and have not yet left for the network. */
size_t stream_waiting(const exchange *ex);
/* Closes the connection without a word: the client is too slow, or an answer cannot be finished. Ends the exchange. */
void exchange_abort(exchange *ex);

/* An error of OpenAI's shape. param and code may be NULL. */
void answer_error(exchange *ex, int status, const char *param, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* {"error": {...}}, as answer_error sends it; on the paths of Anthropic's API with "type" and "request_id" around it.
 * NULL: out of memory. */
json_t *exchange_error(const exchange *ex, int status, const char *param, const char *code, const char *message);

#endif
