/* Several devices as the stages of a pipeline: see stages.c. */
#ifndef PI__STAGES_H
#define PI__STAGES_H

#include "backend/device.h"

/* Makes one of dev[0..n), which belong to it from then on, and are destroyed where that fails. What has placement i (layers,
 * caches, states) is with dev[i]. least: tokens of a microbatch; 0: as the kind of devices wants it. */
int pi__stages_create(pi__backend **out, pi__backend *const *dev, int32_t n, int32_t least, pi_error *err);

/* Queues what was noted, so that copies beside steps come behind it, also while a step is in flight. false: something has failed,
 * which the next finish or wait tells. */
bool pi__stages_queue(pi__backend *be);

#endif
