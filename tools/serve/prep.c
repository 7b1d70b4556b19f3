/* The lanes of preparation (see prep.h). */
#include "serve/prep.h"

#include <stdlib.h>
#include <string.h>

#include "serve/server.h"

enum {
    LIGHT_BODY = 64 << 10,   /* maximum body of light work, bytes */
    LIGHT_STEPS = 300000,    /* at most 30 ms of processor time */
    LIGHT_BYTES = 32 << 20,
    HEAVY_BYTES = 256 << 20, /* memory limit of heavy work: this plus HEAVY_FACTOR per input byte */
    HEAVY_FACTOR = 96,       /* bytes per input byte */
};

void preps_init(struct server *s)
{
    char threads[16];
    const int64_t asked = cli_int(s->c, "threads-http");
    snprintf(threads, sizeof threads, "%d", asked < 2 ? 2 : (int) asked);
    setenv("UV_THREADPOOL_SIZE", threads, 1); /* libuv reads it at the first use of the pool */
    s->preps.n_threads = atoi(threads);
}

/* ----------------------------------------------------------------------------------------------------------- lists */

static void enqueue(preps *q, prep *p)
{
    p->state = PREP_WAITS;
    p->next = NULL;
    p->prev = q->last[p->heavy];
    if (p->prev) p->prev->next = p;
    else q->waiting[p->heavy] = p;
    q->last[p->heavy] = p;
    q->n_waiting++;
}

static void dequeue(preps *q, prep *p)
{
    if (p->prev) p->prev->next = p->next;
    else q->waiting[p->heavy] = p->next;
    if (p->next) p->next->prev = p->prev;
    else q->last[p->heavy] = p->prev;
    p->prev = p->next = NULL;
    p->state = PREP_IDLE;
    q->n_waiting--;
}

static void enter(preps *q, prep *p)
{
    p->state = PREP_RUNS;
    p->next = q->running;
    if (p->next) p->next->prev = p;
    q->running = p;
    q->n_running[p->heavy]++;
}

static void leave(preps *q, prep *p)
{
    if (p->prev) p->prev->next = p->next;
    else q->running = p->next;
    if (p->next) p->next->prev = p->prev;
    p->prev = p->next = NULL;
    p->state = PREP_IDLE;
    q->n_running[p->heavy]--;
}

/* Returns the first waiting work of the key that was served longest ago; NULL if the lane is empty. */
static prep *next_in_turn(const preps *q, bool heavy)
{
    prep *best = NULL;
    for (prep *p = q->waiting[heavy]; p; p = p->next)
        if (!best || q->turn[p->key] < q->turn[best->key]) best = p;
    return best;
}

/* --------------------------------------------------------------------------------------------------------- running */

static void dispatch(server *s);

static void on_work(uv_work_t *w)
{
    prep *p = w->data;
    p->again = !p->run(p);
}

static void finish(prep *p, int code)
{
    server *s = p->s;
    pi_work_free(p->limit);
    p->limit = NULL;
    histogram_add(&s->metrics.preparation, (double) (uv_hrtime() - p->began) / 1e9);
    p->done(p, code);
}

static void after_work(uv_work_t *w, int status)
{
    prep *p = w->data;
    server *s = p->s;
    leave(&s->preps, p);
    if (p->again && !p->canceled) {
        p->heavy = true;
        enqueue(&s->preps, p);
    } else {
        finish(p, p->again ? PI_ECANCELED : status < 0 ? PI_ENOMEM : PI_OK);
    }
    dispatch(s);
}

/* Returns the milliseconds left until the deadline of p; 0 = none, -1 = no limit. */
static int left_to(const prep *p)
{
    const uint64_t now = uv_hrtime();
    if (p->until == UINT64_MAX) return -1;
    const uint64_t ms = p->until > now ? (p->until - now) / 1000000 : 0;
    return ms > INT32_MAX ? -1 : (int) ms;
}

/* Removes p from the queue and runs it, or ends it if it cannot run. */
static void launch(server *s, prep *p)
{
    const int ms = left_to(p);
    const size_t bytes = p->heavy ? HEAVY_BYTES + HEAVY_FACTOR * p->bytes : LIGHT_BYTES;
    dequeue(&s->preps, p);
    if (p->canceled || !ms) {
        finish(p, p->canceled ? PI_ECANCELED : PI_ETIMEDOUT);
        return;
    }
    p->again = false;
    p->work.data = p;
    pi_work_free(p->limit); /* left from the light lane */
    p->limit = pi_work_new(p->heavy ? 0 : LIGHT_STEPS, bytes, ms);
    enter(&s->preps, p);
    s->preps.turn[p->key] = ++s->preps.n_served;
    if (p->limit && !uv_queue_work(&s->loop, &p->work, on_work, after_work)) return;
    leave(&s->preps, p);
    finish(p, PI_ENOMEM);
}

/* Returns the next work for a free thread; NULL if nothing waits or no thread is free. */
static prep *next_to_run(const preps *q)
{
    if (q->n_running[0] + q->n_running[1] >= q->n_threads) return NULL;
    prep *light = next_in_turn(q, false);
    return light || q->n_running[1] >= q->n_threads - 1 ? light : next_in_turn(q, true);
}

static void dispatch(server *s)
{
    preps *q = &s->preps;
    if (q->dispatching) return; /* work that ended immediately has started other work: the loop below finds it */
    q->dispatching = true;
    for (prep *p; (p = next_to_run(q));) launch(s, p);
    q->dispatching = false;
}

/* ----------------------------------------------------------------------------------------------------------- entry */

static uint32_t turn_of(const char *key)
{
    uint32_t h = 2166136261u;
    for (; key && *key; key++) h = (h ^ (unsigned char) *key) * 16777619u;
    return h % PREP_TURNS;
}

/* Returns the deadline of a request that arrived at `began`. */
static uint64_t until_of(const server *s, uint64_t began)
{
    const double limit = cli_float(s->c, "prepare-timeout"), deadline = cli_float(s->c, "timeout");
    const double least = limit > 0 && deadline > 0 ? (limit < deadline ? limit : deadline)
                         : limit > 0               ? limit
                                                   : deadline;
    return least > 0 ? began + (uint64_t) (least * 1e9) : UINT64_MAX;
}

static void start(prep *p, server *s, const exchange *ex, size_t n, bool heavy)
{
    p->s = s;
    p->bytes = n;
    p->key = turn_of(ex ? ex->key : NULL);
    p->heavy = heavy;
    p->canceled = p->again = false;
    p->limit = NULL;
    p->began = uv_hrtime();
    p->until = ex ? until_of(s, ex->began) : UINT64_MAX;
    enqueue(&s->preps, p);
    dispatch(s);
}

void prep_start(prep *p, server *s, const exchange *ex, size_t n) { start(p, s, ex, n, n > LIGHT_BODY); }
void prep_start_heavy(prep *p, server *s, const exchange *ex, size_t n) { start(p, s, ex, n, true); }

void prep_cancel(prep *p)
{
    p->canceled = true;
    if (p->limit) pi_work_cancel(p->limit);
}

void preps_cancel_all(server *s)
{
    for (prep *p = s->preps.running; p; p = p->next) prep_cancel(p);
    for (int heavy = 0; heavy < 2; heavy++)
        for (prep *p = s->preps.waiting[heavy]; p; p = p->next) prep_cancel(p);
}

bool prep_spent(const prep *p) { return !p->heavy && pi_work_check(p->limit) == PI_ETOOBIG; }

static prep *first_useless(const preps *q)
{
    for (int heavy = 0; heavy < 2; heavy++)
        for (prep *p = q->waiting[heavy]; p; p = p->next)
            if (p->canceled || !left_to(p)) return p;
    return NULL;
}

void preps_sweep(server *s)
{
    for (prep *p; (p = first_useless(&s->preps));) launch(s, p); /* launch may change the lists */
}

/* --------------------------------------------------------------------------------------------------------- reports */

static uint64_t older(uint64_t oldest, const prep *p)
{
    for (; p; p = p->next)
        if (p->began < oldest) oldest = p->began;
    return oldest;
}

double preps_oldest(const server *s)
{
    const preps *q = &s->preps;
    const uint64_t now = uv_hrtime(), oldest = older(older(older(now, q->running), q->waiting[0]), q->waiting[1]);
    return (double) (now - oldest) / 1e9;
}

json_t *preps_json(const server *s)
{
    const preps *q = &s->preps;
    return json_pack("{s:i, s:I, s:f}", "running", q->n_running[0] + q->n_running[1], "waiting",
                     (json_int_t) q->n_waiting, "oldest_seconds", preps_oldest(s));
}
