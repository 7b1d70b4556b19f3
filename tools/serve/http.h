/* Parses HTTP/1.1 requests from bytes, within limits and strictly by RFC 9112. Requests that another program could
 * interpret differently are refused. The parser has no sockets: the caller feeds bytes and takes complete requests one
 * after another.
 *
 * Refused with 400:
 *
 *     lines               without CR LF at the end; control characters; white space at the start
 *     fields              white space before the colon; several Host, Authorization or X-Api-Key fields
 *     Transfer-Encoding   other than `chunked`; twice; in HTTP/1.0; together with Content-Length
 *     Content-Length      twice; other than digits
 *     chunk sizes         other than hexadecimal digits
 *
 * A request without Host is accepted, because the server does not use it. Trailer fields are checked and dropped.
 *
 * Memory: the current request, within its limits. Not thread-safe. */
#ifndef PAGEDINFER_SERVE_HTTP_H
#define PAGEDINFER_SERVE_HTTP_H

#include <stdint.h>

#include "serve/buf.h"

typedef struct http_limits {
    size_t header; /* bytes of the request line, all header fields, chunk extensions and trailer fields */
    size_t body;   /* bytes of the body */
} http_limits;

/* The header fields that the server reads; FRONT_ fields count only for a supervised server. true: a repeated field is
 * refused; false: the last one counts. */
#define HTTP_FIELDS(X)                                                                                                 \
    X(AUTHORIZATION, "authorization", true) X(API_KEY, "x-api-key", true) X(ORIGIN, "origin", false)                   \
    X(EXPECT, "expect", false) X(ASKED_HEADERS, "access-control-request-headers", false)                               \
    X(ACCEPT, "accept", false) X(X_REQUEST_ID, "x-request-id", false) X(REQUEST_ID, "request-id", false)  \
    X(TRACEPARENT, "traceparent", false) X(FRONT_CLIENT, "x-pagedinfer-client", false)                                 \
    X(FRONT_KEY, "x-pagedinfer-key-name", false)
enum {
#define HTTP_X(id, name, once) HTTP_FIELD_##id,
    HTTP_FIELDS(HTTP_X)
#undef HTTP_X
    HTTP_N_FIELDS
};

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_DELETE, HTTP_OPTIONS, HTTP_CONNECT, HTTP_OTHER };

typedef struct http_request {
    enum http_method method;
    char verb[16];           /* the method as sent; "" = the request line was refused before it was read */
    buf target;              /* path and query; scheme and host of an absolute target are removed */
    size_t path_len;         /* bytes of the path in target, without trailing slashes */
    buf field[HTTP_N_FIELDS]; /* values without surrounding white space; p == NULL = field not sent */
    buf body;                /* complete body, chunks concatenated */
    bool keep_alive;         /* the connection may be reused */
    bool http10;             /* HTTP/1.0: no chunked response */
} http_request;

/* HTTP_MORE: all bytes were consumed, and the request is not complete. */
enum http_what { HTTP_MORE, HTTP_COMPLETE, HTTP_REFUSED };

enum http_step { /* next element of the input */
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
    http_request req;         /* the request being parsed */
    enum http_step step;
    buf line;                 /* bytes of the current line so far */
    size_t n_header;          /* bytes counted against limits.header, without the current line */
    size_t n_blank;           /* empty lines skipped before the request line */
    uint64_t left;            /* bytes of the body or chunk that have not arrived */
    bool has_length, chunked; /* a Content-Length field was sent; a Transfer-Encoding field was sent */
    bool has_host, close, keep; /* Host was sent; Connection: close was sent; Connection: keep-alive was sent */
    bool whole, has_head;     /* the request is complete; its header is complete */
    int status;               /* status of the refusal: 400, 413, 431, ... */
    const char *why;          /* reason of the refusal; static */
    /* Called when the header is complete. Returns 0 to continue, or the status to refuse the request with, and sets
     * *why. */
    int (*on_head)(void *ud, const http_request *req, const char **why);
    void *ud;
} http_in;

void http_in_init(http_in *in, const http_limits *limits);
/* Parses up to n bytes, until a request is complete; *used is the number of bytes consumed. After HTTP_COMPLETE the
 * caller takes the request with http_take and continues. After HTTP_REFUSED the parser reads no more input. */
enum http_what http_feed(http_in *in, const char *p, size_t n, size_t *used);
/* Moves the request to *out and starts the next one. */
void http_take(http_in *in, http_request *out);
/* True if no byte of the next request has arrived. */
bool http_is_idle(const http_in *in);
void http_in_free(http_in *in);
void http_request_free(http_request *r);

/* Returns the value of HTTP_FIELD_x `field`, or NULL if it was not sent. */
const char *http_field(const http_request *r, int field);
const char *http_method_name(enum http_method m);
/* Returns the reason phrase, e.g. "Not Found". */
const char *http_reason(int status);

#endif
