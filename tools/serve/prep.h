/* Preparation: the work of a request on libuv's pool. Reading its body, rendering, tokenizing and compiling come before
 * the request runs, writing a large answer after it.
 *
 * Two lanes share the pool's threads. The HEAVY lane has all of them but one, so that a cheap request always finds a
 * thread. What will be heavy is not known before it is done; so a small body begins in the LIGHT lane, with a budget of
 * some milliseconds, and where that is used up, the work is dropped and begun anew in the heavy lane:
 *
 *     small body -> light -> done
 *                     \---- over LIGHT_STEPS or LIGHT_BYTES ----> heavy -> done, canceled, or timed out
 *     large body ------------------------------------------------/
 *
 * In each lane the API keys take turns. Work ends at its next look at the budget (pi_work) when the client goes away, at
 * shutdown, or when --prepare-timeout or --deadline has passed since the request arrived; what still waits is dropped.
 *
 * Memory: a piece of work is part of its owner. Threads: the loop's, but for run. */
#ifndef PAGEDINFER_SERVE_PREP_H
#define PAGEDINFER_SERVE_PREP_H

#include <jansson.h>
#include <uv.h>

#include "pagedinfer.h"

struct server;
struct exchange;

enum prep_state { PREP_IDLE, PREP_WAITS, PREP_RUNS };

typedef struct prep {
    uv_work_t work;
    struct server *s;
    void *owner;
    /* On the pool. false: the budget of the light lane was not enough; all that run made is gone, and it is called again. */
    bool (*run)(struct prep *p);
    /* On the loop, when it ended. code: PI_OK, or why run was not called or not believed: PI_ECANCELED, PI_ETIMEDOUT,
     * PI_ENOMEM. p may be freed, or started again. */
    void (*done)(struct prep *p, int code);
    pi_work *limit;          /* of run */
    struct prep *prev, *next; /* in the list of those that wait, or run */
    size_t bytes;            /* that the work begins with */
    uint32_t key;            /* number of the API key's turn */
    int state;               /* enum prep_state */
    bool heavy;              /* its lane */
    bool again;              /* run returned false */
    bool canceled;
    uint64_t began;          /* uv_hrtime of its request's arrival, and when its time is up */
    uint64_t until;
} prep;

enum { PREP_TURNS = 64 };    /* keys that take turns; further ones share these */

typedef struct preps {
    prep *waiting[2], *last[2]; /* light, heavy: the first come first */
    prep *running;
    size_t n_waiting;
    int n_running[2];
    int n_threads;           /* of the pool, at least 2 */
    uint64_t turn[PREP_TURNS]; /* when the key was served last, by n_served */
    uint64_t n_served;
    bool dispatching;        /* threads are being given work */
} preps;

/* Sizes libuv's pool; before its first use. */
void preps_init(struct server *s);
/* Begins p, whose owner, run and done are set; n bytes are to be worked on. ex: the request, whose key and time count; NULL:
 * work behind an answer, without a limit of time. */
void prep_start(prep *p, struct server *s, const struct exchange *ex, size_t n);
/* The same for work that is known to be long, such as reading a file. */
void prep_start_heavy(prep *p, struct server *s, const struct exchange *ex, size_t n);
/* Its result is not wanted any more. done is called as always, but never before this returns. */
void prep_cancel(prep *p);
void preps_cancel_all(struct server *s);
/* In run: the light lane's budget is used up. */
bool prep_spent(const prep *p);
/* Drops what waits and is canceled or late. Each tick of the loop. */
void preps_sweep(struct server *s);
/* Seconds since the arrival of the oldest request that waits or is worked on, 0: none. */
double preps_oldest(const struct server *s);
/* {"running", "waiting", "oldest_seconds"} for /health. */
json_t *preps_json(const struct server *s);

#endif
