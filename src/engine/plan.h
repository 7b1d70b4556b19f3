/* The memory plan of an engine: placement, the size of the cache by the free memory, and the numbers that callers and
 * logs see. Opening thread only, except pi__plan_unwritten. */
#ifndef PI__PLAN_H
#define PI__PLAN_H

#include "base/system_memory.h"
#include "cache/cache.h"
#include "engine/batch.h"
#include "engine/setup.h"
#include "engine/tiering.h"

/* Decides placement and sizes. Loads nothing. r: receives the host memory that the engine will use, so that other
 * engines of the process do not count on it; NULL = only a plan, which does not fail for lack of memory. On error, too,
 * pi__setup_free frees everything. */
int pi__plan_setup(pi__setup *s, const pi__config *c, pi__reservation *r, pi_error *err);
/* Refuses weights that the free memory of the host cannot hold. Only weights are loaded; s has its sizes. */
int pi__plan_check_weights(pi__setup *s, pi_error *err);
/* Fills the plan with all sizes. */
void pi__plan_tell(pi__setup *s, pi_plan *out);
/* Fills the plan and logs it in MiB, with the number of requests that the cache holds. */
void pi__plan_log(pi__setup *s, pi_plan *out);
/* Returns the host memory of the opened engine that was not written yet. draft_cache: cache of the draft model. Step
 * thread, or before it starts. */
uint64_t pi__plan_unwritten(const pi__setup *s, const pi__cache *cache, const pi__cache *draft_cache);

/* Configurations of modules, from the sizes. */
pi__tiering_config pi__plan_tiering(pi__setup *s);
pi__batch_shape pi__plan_shape(const pi__setup *s);
int32_t pi__plan_max_saves(const pi__memory *mem);

#endif
