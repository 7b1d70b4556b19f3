/* Several devices of a kind as one backend: see tensor.c. */
#ifndef PI__TENSOR_H
#define PI__TENSOR_H

#include "backend/device.h"
#include "backend/tensor_orders.h"

/* Makes one of dev[0..n), which belong to it from then on, and are destroyed where that fails. */
int pi__tensor_create(pi__backend **out, pi__backend *const *dev, int32_t n, pi_error *err);
/* The same with one process a rank: dev, which is what `as` names, is this one's. On rank 0 it is the backend of an engine;
 * the others follow (pi__tensor_follow). */
int pi__tensor_create_rank(pi__backend **out, pi__backend *dev, pi__ranks *ranks, const pi__rank_device *as, pi_error *err);

/* Creates the device of this process, one of several that work as one (ranks.h): of the kind named, the one with the
 * process's number among those of its machine. Where threads are not given, a machine's processes share its cores. */
int pi__device_create_rank(pi__backend **out, const char *names, pi__ranks *ranks, const pi__cpu_params *p, const pi__log *log,
                           pi_error *err);

/* What the devices of that kind find each other by, made by rank 0; and joining this process's, while all do. */
int pi__device_rank_id(const char *name, char id[PI__RANK_ID_BYTES], pi_error *err);
int pi__device_join_rank(pi__link **out, pi__backend *be, const char *name, const pi__seat *seat, pi_error *err);

#endif
