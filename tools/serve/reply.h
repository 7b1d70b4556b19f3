/* Replies: the generations of the server. A reply joins a generation (gen.h) with the exchange that receives it.
 *
 * A reply is created when the request body is complete. A thread of libuv's pool prepares the generation and submits
 * its requests (prep.h). The loop receives their events and sends the response.
 *
 * Threads: from reply_start to the end of preparation the pool's thread owns the generation, then the loop's thread.
 * The pool owns it once more while it writes a large response. All functions here run on the loop's thread. */
#ifndef PAGEDINFER_SERVE_REPLY_H
#define PAGEDINFER_SERVE_REPLY_H

#include "serve/gen.h"
#include "serve/prep.h"
#include "serve/server.h"

typedef struct reply {
    gen g;
    server *s;
    exchange *ex;            /* NULL after the response */
    struct reply *prev, *next; /* in s->replies */
    prep prep;               /* the work on the pool; while g.working, the pool owns the generation */
    size_t n_body;           /* bytes of the request body */
    pi_error work_err;       /* error of the work on the pool */
    bool submitted, streaming, pumping, too_slow;
    bool dirty;              /* in the list of replies to pump after the pending events */
    bool finished;           /* the end was sent: nothing more is pumped */
    int status;              /* HTTP status of the response */
    buf whole;               /* the complete response as text, until it is sent */
    uint64_t sent_at;        /* streams: uv_now of the loop at submission or at the last write */
} reply;

/* Starts a reply: its preparation parses the body of ex and submits the engine requests. w: the response writer. */
void reply_start(server *s, exchange *ex, const wire *w);
/* Stores an event of the engine in its generation, and returns the reply. May cancel it, but writes nothing: the
 * caller calls reply_pump after the last pending event. */
reply *reply_event(const pi_event *ev);
/* Gives new text of all choices to the wire. When all choices have ended, sends the end of the response or the error,
 * and frees the reply. */
void reply_pump(reply *r);
/* For streams without output for longer than their ping interval: begins the stream if needed, and sends a comment. */
void reply_ping_all(server *s);
/* Cancels all replies; `why` is the reason for log and client, a constant. */
void reply_cancel_all(server *s, const char *why);

/* For wires: the server of a generation. */
static inline server *reply_server(const gen *g) { return ((const reply *) g->owner)->s; }
/* Returns the option values of a request; p == NULL: the values of a request without fields. */
json_t *server_settings(const server *s, const params *p);

#endif
