/* Parses the HTTP/1.1 response of a model's process, from bytes. The process is the same program, so only its forms are
 * accepted: a body has Content-Length or chunks, and there are no trailer fields.
 *
 * Memory: the current line and the fields to pass on, both limited. Not thread-safe. */
#ifndef PAGEDINFER_SERVE_HTTP_REPLY_H
#define PAGEDINFER_SERVE_HTTP_REPLY_H

#include <stdint.h>

#include "serve/buf.h"

enum reply_what {
    REPLY_MORE, /* all bytes were consumed, and the response is not complete */
    REPLY_HEAD, /* status and fields are set; the body follows */
    REPLY_BODY, /* *body and *n_body are a part of the body */
    REPLY_END,  /* the response is complete */
    REPLY_BAD,  /* malformed or too long, or out of memory */
};

enum reply_step { REPLY_STATUS, REPLY_FIELD, REPLY_BYTES, REPLY_SIZE, REPLY_CHUNK, REPLY_CHUNK_END, REPLY_LAST };

typedef struct http_reply {
    bool no_body;          /* set by the caller: the request was HEAD */
    int status;
    char type[128];        /* Content-Type; "" = none */
    buf fields;            /* other fields to pass on, each with \r\n */
    bool has_length, chunked;
    uint64_t length;       /* Content-Length, if has_length */
    enum reply_step step;
    uint64_t left;         /* bytes of the body, or of the chunk, that have not arrived */
    buf line;
    size_t n_head;         /* bytes of the head so far */
} http_reply;

/* Parses up to n bytes; *used is the number of consumed bytes. Call it again until it returns MORE, END or BAD. */
enum reply_what http_reply_feed(http_reply *r, const char *p, size_t n, size_t *used, const char **body,
                                size_t *n_body);
void http_reply_free(http_reply *r);

#endif
