/* The policy of loaded models: order of demands, least recently used, budget, pins, sleep, backoff; then random events
 * with invariants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/model_policy.h"

enum { MODELS = 5 };

static void expect(const model_status *m, size_t n, model_limits l, uint64_t now, enum model_action action, size_t i)
{
    const model_step s = model_next(m, n, &l, now);
    assert_int_equal(s.action, action);
    if (action != MODEL_DO_NOTHING) assert_int_equal(s.i, i);
}

static void places(void **state)
{
    (void) state;
    const model_limits two = {2, 0}, all = {0, 0};
    model_status m[4] = {{.state = MODEL_LOADED, .used_at = 20}, {.state = MODEL_LOADED, .used_at = 10}};
    expect(m, 4, two, 99, MODEL_DO_NOTHING, 0);
    m[2].demand_at = 2;
    m[3].demand_at = 1;
    expect(m, 4, all, 99, MODEL_DO_START, 3); /* the oldest demand */
    expect(m, 4, two, 99, MODEL_DO_STOP, 1);  /* the least recently used */
    m[1].n_requests = 1;
    expect(m, 4, two, 99, MODEL_DO_STOP, 0);
    m[0].pinned = true;
    expect(m, 4, two, 99, MODEL_DO_NOTHING, 0);
    m[0].pinned = false;
    m[0].demand_at = 5; /* requests wait for it: it is not idle */
    expect(m, 4, two, 99, MODEL_DO_NOTHING, 0);
    m[0] = (model_status) {.state = MODEL_STOPPING};
    m[1].n_requests = 0;
    expect(m, 4, two, 99, MODEL_DO_NOTHING, 0); /* one place becomes free: no second model stops */
    m[0].state = MODEL_SLEEPING;
    expect(m, 4, two, 99, MODEL_DO_START, 3);
    m[3] = (model_status) {.state = MODEL_FAILED, .demand_at = 1, .retry_at = 100};
    expect(m, 4, two, 99, MODEL_DO_START, 2);
    expect(m, 4, two, 100, MODEL_DO_START, 3);
}

static void memory(void **state)
{
    (void) state;
    const model_limits l = {0, 100};
    model_status m[4] = {{.state = MODEL_LOADED, .bytes = 40, .used_at = 1},
                         {.state = MODEL_LOADED, .bytes = 40, .used_at = 2},
                         {.state = MODEL_PLANNED, .bytes = 20, .demand_at = 1}};
    expect(m, 4, l, 9, MODEL_DO_LOAD, 2);
    m[2].bytes = 21;
    expect(m, 4, l, 9, MODEL_DO_STOP, 0);
    m[0].state = MODEL_STOPPING;
    expect(m, 4, l, 9, MODEL_DO_NOTHING, 0); /* its 40 are sufficient */
    m[2].bytes = 61;
    expect(m, 4, l, 9, MODEL_DO_STOP, 1);
    m[1].n_requests = 1;
    expect(m, 4, l, 9, MODEL_DO_NOTHING, 0); /* waits for the request */
    m[0].state = MODEL_LOADED;
    expect(m, 4, l, 9, MODEL_DO_NOTHING, 0); /* stopping 0 would not be sufficient, so it stays */
    m[1].n_requests = 0;
    m[1].pinned = true;
    expect(m, 4, l, 9, MODEL_DO_REFUSE, 2); /* the pinned 40 never end */
    m[1].pinned = false;
    m[2].bytes = 101;
    expect(m, 4, l, 9, MODEL_DO_REFUSE, 2);
    m[2].bytes = UINT64_MAX;
    expect(m, 4, l, 9, MODEL_DO_REFUSE, 2);
    m[2].demand_at = 0; /* the clients have disconnected */
    expect(m, 4, l, 9, MODEL_DO_STOP, 2);
    /* A planned model gets memory before an older demand gets a place, which it might wait for. */
    m[2] = (model_status) {.state = MODEL_PLANNED, .bytes = 10, .demand_at = 8};
    m[3].demand_at = 3;
    expect(m, 4, (model_limits) {3, 100}, 9, MODEL_DO_LOAD, 2);
}

static void sleep_and_words(void **state)
{
    (void) state;
    model_status m[1] = {{.state = MODEL_LOADED, .used_at = 100, .idle_ms = 50}};
    expect(m, 1, (model_limits) {0}, 149, MODEL_DO_NOTHING, 0);
    expect(m, 1, (model_limits) {0}, 150, MODEL_DO_SLEEP, 0);
    m[0].n_requests = 1;
    expect(m, 1, (model_limits) {0}, 150, MODEL_DO_NOTHING, 0);
    m[0].n_requests = 0;
    m[0].pinned = true;
    expect(m, 1, (model_limits) {0}, 150, MODEL_DO_NOTHING, 0);
    static const char *const words[] = {"unloaded", "sleeping", "unloaded", "loading", "loading", "loading", "loaded",
                                        "unloaded"};
    for (int s = 0; s < N_MODEL_STATES; s++) assert_string_equal(model_state_word((enum model_state) s), words[s]);
    static const uint64_t wait[] = {0, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000};
    for (unsigned i = 0; i < 9; i++) assert_int_equal(model_backoff(i), wait[i]);
    assert_int_equal(model_backoff(UINT32_MAX), 60000);
}

/* ---------------------------------------------------------------------------------------------------- random events */

static uint32_t seed;
static uint32_t draw(uint32_t n) { return (seed = seed * 1664525u + 1013904223u) / 65536u % n; }

/* Applies one action; the caller's events change the states later. */
static void apply(model_status *m, model_step s, const uint64_t *need)
{
    model_status *x = &m[s.i];
    switch (s.action) {
    case MODEL_DO_NOTHING: break;
    case MODEL_DO_START:
        assert_false(model_has_process(x->state));
        assert_true(x->demand_at);
        x->state = MODEL_PLANNING;
        x->bytes = need[s.i];
        break;
    case MODEL_DO_LOAD:
        assert_int_equal(x->state, MODEL_PLANNED);
        x->state = MODEL_LOADING;
        break;
    case MODEL_DO_STOP:
    case MODEL_DO_SLEEP:
        assert_false(x->n_requests || x->demand_at);
        assert_true(x->state == MODEL_PLANNED || (x->state == MODEL_LOADED && !x->pinned));
        if (x->state == MODEL_PLANNED) x->bytes = 0;
        x->state = MODEL_STOPPING;
        break;
    case MODEL_DO_REFUSE:
        assert_int_equal(x->state, MODEL_PLANNED);
        x->demand_at = x->bytes = 0;
        x->state = MODEL_STOPPING;
        break;
    }
}

static void check_limits(const model_status *m, const model_limits *l)
{
    size_t n = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < MODELS; i++) {
        n += model_has_process(m[i].state);
        bytes += m[i].state >= MODEL_LOADING ? m[i].bytes : 0;
    }
    assert_true(!l->max_models || n <= l->max_models);
    assert_true(!l->max_bytes || bytes <= l->max_bytes);
}

/* Lets a process of the model do its next step. */
static void proceed(model_status *x, uint64_t now)
{
    static const enum model_state next[N_MODEL_STATES] = {
        [MODEL_PLANNING] = MODEL_PLANNED, [MODEL_PLANNED] = MODEL_PLANNED, [MODEL_LOADING] = MODEL_LOADED,
        [MODEL_LOADED] = MODEL_LOADED, [MODEL_STOPPING] = MODEL_UNLOADED};
    if (model_has_process(x->state)) x->state = next[x->state];
    if (x->state != MODEL_LOADED) return;
    x->n_requests += x->demand_at != 0;
    x->demand_at = 0;
    x->used_at = now;
}

static void event(model_status *m, uint64_t now, uint64_t *n_demands)
{
    model_status *x = &m[draw(MODELS)];
    switch (draw(8)) {
    case 0:
    case 1:
        if (x->state == MODEL_LOADED) x->n_requests++;
        else if (!x->demand_at) x->demand_at = ++*n_demands;
        break;
    case 2: x->demand_at = 0; break; /* the clients disconnect */
    case 3: /* a crash */
        if (!draw(8) && model_has_process(x->state)) *x = (model_status) {.state = MODEL_FAILED, .retry_at = now + 3};
        break;
    case 4:
        if (x->n_requests) x->n_requests--, x->used_at = now;
        break;
    default: proceed(x, now);
    }
}

static void settle(model_status *m, const model_limits *l, uint64_t now, const uint64_t *need)
{
    for (int rounds = 0;; rounds++) {
        const model_step s = model_next(m, MODELS, l, now);
        if (s.action == MODEL_DO_NOTHING) break;
        assert_true(rounds < 4 * MODELS);
        apply(m, s, need);
        check_limits(m, l);
    }
}

/* After any events, every demand is served or refused once the requests end: there is no deadlock. */
static void random_events(void **state)
{
    (void) state;
    for (uint32_t run = 1; run <= 1000; run++) {
        seed = run * 7919u;
        const model_limits l = {draw(4), draw(2) ? 60 + draw(60) : 0};
        uint64_t need[MODELS], now = 0, n_demands = 0;
        model_status m[MODELS] = {0};
        for (int i = 0; i < MODELS; i++) need[i] = 10 + draw(80), m[i].idle_ms = draw(3) ? 0 : 7;
        m[0].pinned = draw(4) == 0;
        for (; now < 200; now++) {
            event(m, now, &n_demands);
            settle(m, &l, now, need);
        }
        for (; now < 400; now++) { /* no new requests; the pinned model ends too, as if unloaded by hand */
            m[0].pinned = false;
            for (int i = 0; i < MODELS; i++) {
                if (m[i].n_requests) m[i].n_requests--;
                else proceed(&m[i], now);
            }
            settle(m, &l, now, need);
        }
        for (int i = 0; i < MODELS; i++) assert_int_equal(m[i].demand_at, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(places), cmocka_unit_test(memory),
                                       cmocka_unit_test(sleep_and_words), cmocka_unit_test(random_events)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
