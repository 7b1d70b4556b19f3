/* Counters (see stats.h). */
#include "engine/stats.h"

#include <string.h>

void pi__stats_pools(pi__stats *st, const pi__cache *c)
{
    for (int32_t i = 0; i < c->n_groups; i++) {
        const pi__block_pool *p = &c->group[i].pool;
#define PI__PUBLISH(name) st->group[i].name = (unsigned long long) p->name;
        PI__POOL_COUNTERS(PI__PUBLISH)
#undef PI__PUBLISH
        st->group[i].n_written = (unsigned long long) p->n_written;
    }
}

void pi__stats_blocks(pi__stats *st, const pi__backend *be)
{
    unsigned long long attended = be->n_attended, possible = be->n_possible;
    for (int i = 0; i < PI__N_PLACEMENTS; i++) {
        attended += be->at[i] ? be->at[i]->n_attended : 0;
        possible += be->at[i] ? be->at[i]->n_possible : 0;
    }
    st->key_blocks_attended = attended;
    st->key_blocks_possible = possible;
}

/* Bounds as in the Prometheus histograms of other servers, in milliseconds. */
static const double step_bound_ms[PI_N_STEP_BOUNDS] = {1,   2.5, 5,   10,  20,   30,   50,   75,    100,   150,
                                                       250, 500, 750, 1e3, 2500, 5000, 10e3, 20e3, 40e3, 80e3};

void pi__stats_step(pi__stats *st, double ms)
{
    size_t i = 0;
    while (i < PI_N_STEP_BOUNDS && ms > step_bound_ms[i]) i++;
    st->n_steps++;
    st->step_count[i]++;
    st->step_total_ns += (unsigned long long) (ms * 1e6);
    st->last_step_us = (unsigned long long) (ms * 1e3);
}

void pi__stats_tell(const pi__stats *st, int32_t n_groups, pi_stats *out)
{
#define PI__TELL(type, name) out->name = st->name;
    PI__COUNTERS(PI__TELL)
#undef PI__TELL
    out->last_step_ms = (double) st->last_step_us * 1e-3;
    out->draft_total_ms = (double) st->draft_total_ns * 1e-6;
    out->step_total_ms = (double) st->step_total_ns * 1e-6;
    memcpy(out->step_bound_ms, step_bound_ms, sizeof step_bound_ms);
    for (int i = 0; i <= PI_N_STEP_BOUNDS; i++) out->step_count[i] = st->step_count[i];
    out->n_groups = (uint32_t) n_groups;
    for (int32_t i = 0; i < n_groups; i++) {
#define PI__TELL(name) out->group[i].name = st->group[i].name;
        PI__POOL_COUNTERS(PI__TELL)
#undef PI__TELL
    }
}
