/* Several devices as the stages of a pipeline (stages.c). */
#ifndef PI__STAGES_H
#define PI__STAGES_H

#include "backend/device.h"

/* Creates a pipeline of dev[0..n) and takes ownership of them; on failure they are destroyed. dev[i] is stage i: it has
 * the layers, caches and states of placement i. least: a step of T tokens is split into at most T / least microbatches,
 * and at most two per stage; 0 = the default for this kind of device. */
int pi__stages_create(pi__backend **out, pi__backend *const *dev, int32_t n, int32_t least, pi_error *err);

/* Queues all recorded calls on the stages, so that background copies queued after this run after the calls; a step
 * may be in flight. Returns false if a call failed; the next finish or wait returns the error. */
bool pi__stages_queue(pi__backend *be);

#endif
