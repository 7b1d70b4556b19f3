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
    /* On the pool, within `limit`. Returns false if the budget of the light lane was exceeded; run must then have freed
     * its results, and is called again in the heavy lane. */
    bool (*run)(struct prep *p);
    /* On the loop, after run. code: PI_OK, or the reason why run was skipped or its result discarded: PI_ECANCELED,
     * PI_ETIMEDOUT, PI_ENOMEM. The callback may free or restart p. */
    void (*done)(struct prep *p, int code);
    pi_work *limit;          /* work budget of one call of run; NULL before */
    struct prep *prev, *next; /* in the lane's queue, or in the list of running work */
    size_t bytes;            /* bytes of input; the heavy lane's memory limit grows with them */
    uint32_t key;            /* round-robin slot of the API key, below PREP_TURNS */
    int state;               /* enum prep_state */
    bool heavy;              /* in the heavy lane */
    bool again;              /* run returned false */
    bool canceled;
    uint64_t began;          /* uv_hrtime at prep_start */
    uint64_t until;          /* uv_hrtime of the deadline, which counts from the request's arrival; UINT64_MAX = none */
} prep;

enum { PREP_TURNS = 64 };    /* number of round-robin slots; keys with equal hashes share a slot */

typedef struct preps {
    prep *waiting[2], *last[2]; /* first and last of the FIFO queues; index 0 = light lane, 1 = heavy lane */
    prep *running;           /* list of the work that runs on the pool */
    size_t n_waiting;        /* entries of both queues */
    int n_running[2];        /* running work by lane */
    int n_threads;           /* threads of the pool, at least 2 */
    uint64_t turn[PREP_TURNS]; /* value of n_served when the slot's work was last launched */
    uint64_t n_served;       /* number of launches so far */
    bool dispatching;        /* threads are being assigned */
} preps;

/* Sets the number of threads of libuv's pool; must be called before the pool's first use. */
void preps_init(struct server *s);
/* Queues p in the light lane if n is small, else in the heavy lane, and runs it when a thread is free. Its owner, run
 * and done must be set. n: bytes of input. ex: the request, for its key and arrival time; NULL = work after a
 * response, without a time limit. */
void prep_start(prep *p, struct server *s, const struct exchange *ex, size_t n);
/* Queues p in the heavy lane, for work that is known to take long, such as reading a file. */
void prep_start_heavy(prep *p, struct server *s, const struct exchange *ex, size_t n);
/* Cancels p: run stops at its next budget check, or is skipped. done is called later, never before this function
 * returns. */
void prep_cancel(prep *p);
void preps_cancel_all(struct server *s);
/* Called in run: true if the light lane's budget is used up. */
bool prep_spent(const prep *p);
/* Ends waiting work that is canceled or past its deadline, with done. Called on each tick of the loop. */
void preps_sweep(struct server *s);
/* Returns the seconds since prep_start of the oldest work that waits or runs; 0 = no work. */
double preps_oldest(const struct server *s);
/* Returns {"running", "waiting", "oldest_seconds"} for /health. */
json_t *preps_json(const struct server *s);

#endif
