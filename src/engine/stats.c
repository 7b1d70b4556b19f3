/* Counters (see stats.h). */
#include "engine/stats.h"

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

void pi__stats_tell(const pi__stats *st, int32_t n_groups, pi_stats *out)
{
#define PI__TELL(type, name) out->name = st->name;
    PI__COUNTERS(PI__TELL)
#undef PI__TELL
    out->last_step_ms = (double) st->last_step_us * 1e-3;
    out->n_groups = (uint32_t) n_groups;
    for (int32_t i = 0; i < n_groups; i++) {
#define PI__TELL(name) out->group[i].name = st->group[i].name;
        PI__POOL_COUNTERS(PI__TELL)
#undef PI__TELL
    }
}
