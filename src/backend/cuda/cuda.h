/* The CUDA backend's names for the outside. */
#ifndef PI__CUDA_H
#define PI__CUDA_H

#include "backend/device.h"

/* Device number index. PI_EDEVICE: there is none, or no driver. Of the parameters those of GPUs are used, and n_threads,
 * which pack weights. */
int pi__cuda_create(pi__backend **out, int32_t index, const pi__cpu_params *p, const pi__log *log, pi_error *err);
bool pi__cuda_tell(int32_t index, pi__device_info *out);

#endif
