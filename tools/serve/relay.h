/* Sends the request of an exchange to a model's process over its Unix socket, and copies the response to the client as
 * it arrives. While the client does not read, nothing is read from the process. A client that disconnects closes the
 * socket, which cancels the generation.
 *
 * The end of the process gives status 502, an error event if a stream has begun, and otherwise a closed connection.
 *
 * Memory: the request, until it is sent; the client's unread output, limited. Runs on the loop's thread. */
#ifndef PAGEDINFER_SERVE_RELAY_H
#define PAGEDINFER_SERVE_RELAY_H

#include "serve/server.h"

typedef struct relay relay;

typedef struct relay_request {
    server *s;
    exchange *ex;
    const http_request *in; /* the request with the path inside of --api-prefix; read during relay_start only */
    const char *socket;     /* path of the process's socket */
    const char *model;      /* the model's name, for messages; valid until done is called */
    bool begun;             /* the stream has begun: its head was sent, and comments */
    /* Called once, when the exchange has ended. */
    void (*done)(void *ud);
    /* Called instead of done when the process responds with status 404; the exchange is the caller's again, as before
     * relay_start. Its request must have no body. NULL = the client gets the response. */
    void (*missing)(void *ud);
    void *ud;
} relay_request;

/* Starts to relay. Takes over the exchange: its body and its callbacks. */
void relay_start(const relay_request *q);
/* Writes an error event for a stream that has begun, then ends it. root: as exchange_error returns it. */
void relay_stream_error(exchange *ex, json_t *root);

#endif
