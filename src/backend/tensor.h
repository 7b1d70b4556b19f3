/* Several devices of a kind as one backend: see tensor.c. */
#ifndef PI__TENSOR_H
#define PI__TENSOR_H

#include "backend/device.h"

/* Makes one of dev[0..n), which belong to it from then on, and are destroyed where that fails. */
int pi__tensor_create(pi__backend **out, pi__backend *const *dev, int32_t n, pi_error *err);

#endif
