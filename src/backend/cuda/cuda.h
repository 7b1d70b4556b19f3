/* The CUDA backend's names for the outside. */
#ifndef PI__CUDA_H
#define PI__CUDA_H

#include "backend/device.h"
#include "backend/link.h"

/* Device number index. PI_EDEVICE: there is none, or no driver. Of the parameters those of GPUs are used, and n_threads,
 * which pack weights. */
int pi__cuda_create(pi__backend **out, int32_t index, const pi__cpu_params *p, const pi__log *log, pi_error *err);
bool pi__cuda_tell(int32_t index, pi__device_info *out);

/* Where ranks are processes: what their devices find each other by; and joining this one's, while all do. */
int pi__cuda_rank_id(char id[PI__RANK_ID_BYTES], pi_error *err);
int pi__cuda_join_rank(pi__link **out, pi__backend *be, const pi__seat *seat, pi_error *err);

#endif
