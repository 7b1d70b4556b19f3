/* The policy of loaded models (see model_policy.h). */
#include "serve/model_policy.h"

enum { BACKOFF_MS = 1000, MAX_BACKOFF_MS = 60000 };

bool model_has_process(enum model_state s) { return s >= MODEL_PLANNING; }

const char *model_state_word(enum model_state s)
{
    switch (s) {
    case MODEL_SLEEPING: return "sleeping";
    case MODEL_PLANNING:
    case MODEL_PLANNED:
    case MODEL_LOADING: return "loading";
    case MODEL_LOADED: return "loaded";
    default: return "unloaded";
    }
}

uint64_t model_backoff(unsigned n)
{
    uint64_t ms = n ? BACKOFF_MS : 0;
    while (n-- > 1 && ms < MAX_BACKOFF_MS) ms *= 2;
    return ms < MAX_BACKOFF_MS ? ms : MAX_BACKOFF_MS;
}

static bool takes_memory(const model_status *m) { return m->state >= MODEL_LOADING; }

/* True if the model may stop for another one. */
static bool is_idle(const model_status *m)
{
    return m->state == MODEL_LOADED && !m->n_requests && !m->demand_at && !m->pinned;
}

/* Sums over all models. */
typedef struct totals {
    size_t n_places, n_stopping, n_idle;        /* models with a process; the stopping, the idle ones among them */
    uint64_t bytes, stopping_bytes, idle_bytes; /* their memory */
    uint64_t fixed_bytes;                       /* memory of pinned models, which is never freed */
    size_t lru;                                 /* the idle model that was used least recently; valid if n_idle > 0 */
} totals;

static totals sum(const model_status *m, size_t n)
{
    totals t = {0};
    for (size_t i = 0; i < n; i++) {
        if (!model_has_process(m[i].state)) continue;
        const uint64_t bytes = takes_memory(&m[i]) ? m[i].bytes : 0;
        t.n_places++;
        t.bytes += bytes;
        if (m[i].state == MODEL_STOPPING) t.n_stopping++, t.stopping_bytes += bytes;
        else if (m[i].pinned) t.fixed_bytes += bytes;
        if (!is_idle(&m[i])) continue;
        if (!t.n_idle || m[i].used_at < m[t.lru].used_at) t.lru = i;
        t.n_idle++;
        t.idle_bytes += bytes;
    }
    return t;
}

/* Returns the model with the oldest demand in state PLANNED, or among the models without a process; n = none. */
static size_t oldest_demand(const model_status *m, size_t n, bool planned, uint64_t now)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        const bool fits = planned ? m[i].state == MODEL_PLANNED : !model_has_process(m[i].state);
        if (!m[i].demand_at || !fits || (m[i].state == MODEL_FAILED && now < m[i].retry_at)) continue;
        if (best == n || m[i].demand_at < m[best].demand_at) best = i;
    }
    return best;
}

static model_step place_for(size_t i, const totals *t, const model_limits *limits)
{
    if (!limits->max_models || t->n_places < limits->max_models) return (model_step) {MODEL_DO_START, i};
    if (!t->n_stopping && t->n_idle) return (model_step) {MODEL_DO_STOP, t->lru};
    return (model_step) {MODEL_DO_NOTHING, i};
}

static model_step memory_for(const model_status *m, size_t i, const totals *t, const model_limits *limits)
{
    const uint64_t max = limits->max_bytes, need = m[i].bytes;
    if (!max || (t->bytes <= max && need <= max - t->bytes)) return (model_step) {MODEL_DO_LOAD, i};
    if (need > max || t->fixed_bytes > max - need) return (model_step) {MODEL_DO_REFUSE, i};
    const uint64_t kept = t->bytes - t->stopping_bytes, room = max - need;
    if (kept <= room || kept - t->idle_bytes > room) return (model_step) {MODEL_DO_NOTHING, i};
    return (model_step) {MODEL_DO_STOP, t->lru};
}

model_step model_next(const model_status *m, size_t n, const model_limits *limits, uint64_t now)
{
    for (size_t i = 0; i < n; i++) {
        if (m[i].state == MODEL_PLANNED && !m[i].demand_at) return (model_step) {MODEL_DO_STOP, i};
        if (is_idle(&m[i]) && m[i].idle_ms && now >= m[i].used_at + m[i].idle_ms)
            return (model_step) {MODEL_DO_SLEEP, i};
    }
    const totals t = sum(m, n);
    /* A planned model holds a place: if it waited for models without one, they would wait for each other. */
    const size_t planned = oldest_demand(m, n, true, now), next = oldest_demand(m, n, false, now);
    model_step step = {MODEL_DO_NOTHING, 0};
    if (planned < n) step = memory_for(m, planned, &t, limits);
    if (step.action == MODEL_DO_NOTHING && next < n) step = place_for(next, &t, limits);
    return step;
}
