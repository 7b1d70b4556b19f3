/* Requests of HTTP/1.1 from bytes, over http-parser, within limits. Knows no sockets: bytes go in, whole requests come
 * out, one after the other. Memory: what the request at hand needs, at most its limits. One thread at a time. */
#ifndef PAGEDINFER_SERVE_HTTP_H
#define PAGEDINFER_SERVE_HTTP_H

#include <http_parser.h>

#include "serve/buf.h"

typedef struct http_limits {
    size_t header; /* bytes of the request line and all header fields */
    size_t body;   /* bytes of the body */
} http_limits;

/* The header fields that somebody here reads. */
#define HTTP_FIELDS(X)                                                                                                 \
    X(AUTHORIZATION, "authorization") X(API_KEY, "x-api-key") X(ORIGIN, "origin") X(EXPECT, "expect")                  \
    X(ASKED_HEADERS, "access-control-request-headers") X(ACCEPT, "accept")
enum {
#define HTTP_X(id, name) HTTP_FIELD_##id,
    HTTP_FIELDS(HTTP_X)
#undef HTTP_X
    HTTP_N_FIELDS
};

typedef struct http_request {
    enum http_method method;      /* of http_parser.h */
    buf target;                   /* as sent: path, and what follows a ? */
    size_t path_len;              /* bytes of target that are the path */
    buf field[HTTP_N_FIELDS];     /* their values; p is NULL where there is none */
    buf body;                     /* all of it, chunks put together */
    bool keep_alive;              /* the connection may serve another one */
    bool http10;                  /* HTTP/1.0: no chunks in the answer */
} http_request;

enum http_what { HTTP_MORE, HTTP_WHOLE, HTTP_REFUSED };

typedef struct http_in {
    http_parser parser;
    http_limits limits;
    http_request req;         /* the one being read */
    size_t n_header;          /* bytes of its header so far */
    size_t n_name;            /* bytes in name */
    char name[40];            /* field that is being read, lower case; longer ones are none of ours */
    bool in_value;            /* the value of name has begun */
    bool whole, has_head;     /* it is complete; its header is */
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
/* "Not Found" */
const char *http_reason(int status);

#endif
