/* Public interface of the CUDA backend. */
#ifndef PI__CUDA_H
#define PI__CUDA_H

#include "backend/cuda/params.h"
#include "backend/device.h"
#include "backend/link.h"

/* Opens device number `index` and checks its kernels (selftest.c). Returns PI_EDEVICE if the device or the driver is
 * missing, or the kernels do not run. */
int pi__cuda_create(pi__backend **out, int32_t index, const pi__cuda_params *p, const pi__log *log, pi_error *err);
/* Describes device number `index`: name, memory, unsupported matrix types, or the reason why it is not usable. Returns
 * false if the device does not exist; device 0 always returns true, so that the reason can be shown. */
bool pi__cuda_tell(int32_t index, pi__device_info *out);

/* For ranks in separate processes. rank_id: creates the id by which the ranks find each other. join_rank: creates the
 * link of this rank's device; waits until all other ranks have joined. */
int pi__cuda_rank_id(char id[PI__RANK_ID_BYTES], pi_error *err);
int pi__cuda_join_rank(pi__link **out, pi__backend *be, const pi__seat *seat, pi_error *err);

#endif
