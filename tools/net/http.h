/* HTTP by libcurl, as much as downloads need: a request at a time, redirects followed, bodies into a function. Proxies and
 * certificates are those of the environment, as for curl itself.
 *
 * The token goes to the host that a request names, and to no other that it redirects to; what began with TLS stays there.
 * Signals of cli_catch_signals end a request. One thread. */
#ifndef PAGEDINFER_HTTP_H
#define PAGEDINFER_HTTP_H

#include "cli.h"

enum http_result {
    HTTP_DONE,    /* there is an answer, of whatever status */
    HTTP_NETWORK, /* no answer, or not all of it: worth another try */
    HTTP_REFUSED, /* no answer, and there will be none: address, certificate */
    HTTP_STOPPED, /* by a signal, or the body's function */
};

typedef struct http_reply {
    long status;              /* 200 */
    uint64_t length;          /* of the body that is coming, UINT64_MAX: not known */
    uint64_t first;           /* of status 206: position of its first byte, UINT64_MAX: not known */
    char etag[200];           /* as sent, with its quotes; "": none */
    char linked_sha256[65];   /* of the file, as hubs say it: 64 hexadecimal digits, or "" */
    uint64_t linked_size;     /* its bytes, UINT64_MAX: not known */
    char next[1000];          /* address of the list's next page, or "" */
    double retry_after;       /* seconds that the server asks to wait, 0: none */
    char text[1000];          /* beginning of the body where status is an error */
    char error[300];          /* why there is no answer */
} http_reply;

typedef struct http http;

typedef struct http_request {
    const char *url;
    bool head;                /* no body */
    bool json;                /* asks for JSON */
    const char *token;        /* or NULL */
    uint64_t from;            /* only bytes from here on; 0: all */
    const char *if_range;     /* with from: ETag of what was had before, or NULL */
    /* The answer is there, with status 2xx: false refuses it. NULL: nothing is asked. */
    bool (*start)(void *ud, const http_reply *r);
    /* Bytes of its body; false: they could not be taken. */
    bool (*body)(void *ud, const char *p, size_t n);
    void *ud;
} http_request;

/* NULL: out of memory. */
http *http_new(void);
void http_free(http *h);
enum http_result http_run(http *h, const http_request *q, http_reply *r);
/* Worth another try later: a status that passes. */
bool http_passes(long status);

#endif
