/* Preparation: the work of a request on libuv's pool. Parsing the body, rendering, tokenizing and compiling happen
 * before the request runs; writing a large response happens after it.
 *
 * Two lanes share the pool's threads. The HEAVY lane uses all threads except one, so that a cheap request always finds
 * a free thread. The cost of a request is unknown in advance. A small body therefore starts in the LIGHT lane, with a
 * budget of some milliseconds. If it exceeds the budget, its work is dropped and restarted in the heavy lane:
 *
 *     small body -> light -> done
 *                     \---- over LIGHT_STEPS or LIGHT_BYTES ----> heavy -> done, canceled, or timed out
 *     large body ------------------------------------------------/
 *
 * Each lane serves the API keys round-robin. Work stops at its next budget check (pi_work) in three cases: the client
 * disconnects, the server shuts down, or --prepare-timeout or --deadline has passed since the request arrived. Waiting
 * work is then dropped.
 *
 * Memory: a prep is embedded in its owner. Threads: the loop's, except run. */
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
    /* On the pool. Returns false if the budget of the light lane was exceeded. run has then freed its results and is
     * called again. */
    bool (*run)(struct prep *p);
    /* On the loop, after run. code: PI_OK, or the reason why run was skipped or its result discarded: PI_ECANCELED,
     * PI_ETIMEDOUT, PI_ENOMEM. The callback may free or restart p. */
    void (*done)(struct prep *p, int code);
    pi_work *limit;          /* work limit of run */
    struct prep *prev, *next; /* in the list of waiting or running work */
    size_t bytes;            /* size of the input */
    uint32_t key;            /* round-robin slot of the API key */
    int state;               /* enum prep_state */
    bool heavy;              /* in the heavy lane */
    bool again;              /* run returned false */
    bool canceled;
    uint64_t began;          /* uv_hrtime of the request's arrival, and of its deadline */
    uint64_t until;
} prep;

enum { PREP_TURNS = 64 };    /* number of round-robin slots; further keys share them */

typedef struct preps {
    prep *waiting[2], *last[2]; /* light, heavy: FIFO queues */
    prep *running;
    size_t n_waiting;
    int n_running[2];
    int n_threads;           /* threads of the pool, at least 2 */
    uint64_t turn[PREP_TURNS]; /* value of n_served when the slot was last served */
    uint64_t n_served;
    bool dispatching;        /* threads are being assigned */
} preps;

/* Sizes libuv's pool; must be called before the pool's first use. */
void preps_init(struct server *s);
/* Starts p; its owner, run and done must be set. n: bytes of input. ex: the request, for its key and arrival time;
 * NULL = work after a response, without a time limit. */
void prep_start(prep *p, struct server *s, const struct exchange *ex, size_t n);
/* Starts p in the heavy lane, for work that is known to take long, such as reading a file. */
void prep_start_heavy(prep *p, struct server *s, const struct exchange *ex, size_t n);
/* Cancels p. done is called as usual, but never before this function returns. */
void prep_cancel(prep *p);
void preps_cancel_all(struct server *s);
/* Called in run: true if the light lane's budget is used up. */
bool prep_spent(const prep *p);
/* Drops waiting work that is canceled or late. Called on each tick of the loop. */
void preps_sweep(struct server *s);
/* Returns the seconds since the arrival of the oldest request that waits or runs on the pool; 0 = none. */
double preps_oldest(const struct server *s);
/* Returns {"running", "waiting", "oldest_seconds"} for /health. */
json_t *preps_json(const struct server *s);

#endif
