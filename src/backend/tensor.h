/* Several devices of one kind as one backend (tensor.c). */
#ifndef PI__TENSOR_H
#define PI__TENSOR_H

#include "backend/device.h"
#include "backend/tensor_orders.h"

/* Creates one tensor-parallel backend of dev[0..n) and takes ownership of them; on failure they are destroyed. */
int pi__tensor_create(pi__backend **out, pi__backend *const *dev, int32_t n, pi_error *err);
/* Creates the backend for ranks that are separate processes: dev is this process's device, `as` the description of it
 * that worker ranks open their devices from. On rank 0 the result is the engine's backend; worker ranks pass it to
 * pi__tensor_follow. Takes ownership of dev; on failure dev is destroyed. */
int pi__tensor_create_rank(pi__backend **out, pi__backend *dev, pi__ranks *ranks, const pi__rank_device *as,
                           pi_error *err);

#endif
