/* Several devices of one kind as one backend (tensor.c). */
#ifndef PI__TENSOR_H
#define PI__TENSOR_H

#include "backend/device.h"
#include "backend/tensor_orders.h"

/* Creates one backend of dev[0..n) and takes ownership of them; on failure they are destroyed. */
int pi__tensor_create(pi__backend **out, pi__backend *const *dev, int32_t n, pi_error *err);
/* Creates the backend for one process per rank: dev is this process's device, described by `as`. On rank 0 it is
 * the engine's backend; the worker ranks pass it to pi__tensor_follow. */
int pi__tensor_create_rank(pi__backend **out, pi__backend *dev, pi__ranks *ranks, const pi__rank_device *as, pi_error *err);

/* Creates the device of this process, which is one of several ranks (ranks.h). It is of the named kind, with the
 * process's number on its machine as index. If threads are not configured, the processes of a machine
 * share its cores. */
int pi__device_create_rank(pi__backend **out, const char *names, pi__ranks *ranks, const pi__cpu_params *p, const pi__log *log,
                           pi_error *err);

/* rank_id makes the id by which devices of that kind find each other, on rank 0. join_rank links this process's
 * device; all processes call it at the same time. */
int pi__device_rank_id(const char *name, char id[PI__RANK_ID_BYTES], pi_error *err);
int pi__device_join_rank(pi__link **out, pi__backend *be, const char *name, const pi__seat *seat, pi_error *err);

#endif
