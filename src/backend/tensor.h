/* Several devices of one kind as one backend (tensor.c). */
#ifndef PI__TENSOR_H
#define PI__TENSOR_H

#include "backend/device.h"
#include "backend/tensor_orders.h"

/* Creates one backend of dev[0..n) and takes ownership of them; on failure they are destroyed. */
int pi__tensor_create(pi__backend **out, pi__backend *const *dev, int32_t n, pi_error *err);
/* Creates the backend for one process per rank: dev is this process's device, described by `as`. On rank 0 it is
 * the engine's backend; the worker ranks pass it to pi__tensor_follow. */
int pi__tensor_create_rank(pi__backend **out, pi__backend *dev, pi__ranks *ranks, const pi__rank_device *as,
                           pi_error *err);

#endif
