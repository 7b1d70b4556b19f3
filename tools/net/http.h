/* HTTP with libcurl, limited to the needs of downloads: one request at a time, redirects followed, bodies passed to a
 * function. Proxies and certificates come from the environment, as for curl.
 *
 * The token is sent only to the host of the request, not to redirect targets. A request that starts with TLS is never
 * redirected to plain HTTP. Signals of cli_catch_signals cancel a request. Not thread-safe. */
#ifndef PAGEDINFER_HTTP_H
#define PAGEDINFER_HTTP_H

#include "cli.h"

enum http_result {
    HTTP_DONE,    /* complete response, any status */
    HTTP_NETWORK, /* no response or an incomplete one: retry */
    HTTP_REFUSED, /* permanent failure: URL, certificate */
    HTTP_STOPPED, /* stopped by a signal or by the body function */
};

typedef struct http_reply {
    long status;              /* 200 */
    uint64_t length;          /* bytes of the following body; UINT64_MAX = unknown */
    uint64_t first;           /* status 206: offset of the first byte; UINT64_MAX = unknown */
    char etag[200];           /* as sent, with quotes; "" = none */
    char linked_sha256[65];   /* hash of the file in the hub's headers: 64 hexadecimal digits, or "" */
    uint64_t linked_size;     /* bytes of the file; UINT64_MAX = unknown */
    char next[1000];          /* URL of the list's next page, or "" */
    double retry_after;       /* seconds to wait, requested by the server; 0 = none */
    char text[1000];          /* start of the body of an error response */
    char error[300];          /* reason of a missing response */
} http_reply;

typedef struct http http;

typedef struct http_request {
    const char *url;
    bool head;                /* HEAD request: no body */
    bool json;                /* accept JSON */
    const char *token;        /* NULL = none */
    uint64_t from;            /* start offset; 0 = complete file */
    const char *if_range;     /* for from > 0: ETag of the partial download, or NULL */
    bool direct;              /* do not follow redirects */
    long seconds;             /* time limit; 0 = none */
    /* Called for a response with status 2xx; returns false to refuse it. NULL = always accept. */
    bool (*start)(void *ud, const http_reply *r);
    /* Receives bytes of the body; returns false if they could not be processed. */
    bool (*body)(void *ud, const char *p, size_t n);
    void *ud;
} http_request;

/* Returns NULL if out of memory. */
http *http_new(void);
void http_free(http *h);
enum http_result http_run(http *h, const http_request *q, http_reply *r);
/* True for a temporary status: retry later. */
bool http_passes(long status);

#endif
