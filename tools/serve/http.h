/* Requests of HTTP/1.1 from bytes, within limits and by the letter of RFC 9112. A request that another program could read
 * differently is refused. Knows no sockets: bytes go in, whole requests come out, one after the other.
 *
 * Refused with 400:
 *
 *   lines               without CR LF at the end; control characters; white space at the start
 *   fields              white space before the colon; several Host, Authorization or X-Api-Key fields
 *   Transfer-Encoding   other than `chunked`; twice; in HTTP/1.0; together with Content-Length
 *   Content-Length      twice; other than digits
 *   chunk sizes         other than hexadecimal digits
 *
 * A request without Host is taken, because nothing here depends on it. Trailer fields are checked and dropped.
 *
 * Memory: the request at hand, at most its limits. One thread at a time. */
#ifndef PAGEDINFER_SERVE_HTTP_H
#define PAGEDINFER_SERVE_HTTP_H

#include <stdint.h>

#include "serve/buf.h"

typedef struct http_limits {
    size_t header; /* bytes of the request line, all header fields, chunk extensions and trailer fields */
    size_t body;   /* bytes of the body */
} http_limits;

/* The header fields that the server reads; true: one that comes twice is refused, else the last one counts. */
#define HTTP_FIELDS(X)                                                                                                 \
    X(AUTHORIZATION, "authorization", true) X(API_KEY, "x-api-key", true) X(ORIGIN, "origin", false)                   \
    X(EXPECT, "expect", false) X(ASKED_HEADERS, "access-control-request-headers", false)                               \
    X(ACCEPT, "accept", false) X(X_REQUEST_ID, "x-request-id", false) X(REQUEST_ID, "request-id", false)
enum {
#define HTTP_X(id, name, once) HTTP_FIELD_##id,
    HTTP_FIELDS(HTTP_X)
#undef HTTP_X
    HTTP_N_FIELDS
};

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_OPTIONS, HTTP_CONNECT, HTTP_OTHER };

typedef struct http_request {
    enum http_method method;
    char verb[16];           /* the method as sent; "" where the request line was refused */
    buf target;              /* path and query; of an absolute target the scheme and host are cut */
    size_t path_len;         /* bytes of target that are the path, without slashes at its end */
    buf field[HTTP_N_FIELDS]; /* their values without white space around; p is NULL where there is none */
    buf body;                /* all of it, chunks put together */
    bool keep_alive;         /* the connection may serve another one */
    bool http10;             /* HTTP/1.0: no chunks in the answer */
} http_request;

enum http_what { HTTP_MORE, HTTP_WHOLE, HTTP_REFUSED };

enum http_step { /* what comes next */
    HTTP_REQUEST_LINE,
    HTTP_FIELD_LINE,
    HTTP_BODY,
    HTTP_CHUNK_SIZE,
    HTTP_CHUNK,
    HTTP_CHUNK_END,
    HTTP_TRAILER,
};

typedef struct http_in {
    http_limits limits;
    http_request req;         /* the one being read */
    enum http_step step;
    buf line;                 /* the line being read */
    size_t n_header;          /* bytes that count against limits.header so far, but the line's */
    size_t n_blank;           /* empty lines before the request line */
    uint64_t left;            /* bytes of the body or the chunk that are still to come */
    bool has_length, chunked; /* Content-Length, Transfer-Encoding was there */
    bool has_host, close, keep; /* Host; Connection: close, keep-alive */
    bool whole, has_head;     /* the request is complete; its header is */
    int status;               /* why it was refused: 400, 413, 431, ... */
    const char *why;          /* the same as text */
    /* Called when the header is complete: 0 goes on, else the status to refuse it with, and *why. */
    int (*on_head)(void *ud, const http_request *req, const char **why);
    void *ud;
} http_in;

void http_in_init(http_in *in, const http_limits *limits);
/* Takes bytes until a request is whole: *used of n. After HTTP_WHOLE the request is taken with http_take, then reading
 * goes on; after HTTP_REFUSED nothing more is read. */
enum http_what http_feed(http_in *in, const char *p, size_t n, size_t *used);
/* Moves the request out, and begins the next. */
void http_take(http_in *in, http_request *out);
/* No byte of the next request has come. */
bool http_is_idle(const http_in *in);
void http_in_free(http_in *in);
void http_request_free(http_request *r);

/* A field's value, or NULL. */
const char *http_field(const http_request *r, int field);
const char *http_method_name(enum http_method m);
/* "Not Found" */
const char *http_reason(int status);

#endif
