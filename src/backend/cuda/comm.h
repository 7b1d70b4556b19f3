/* The link of several CUDA devices that act as one backend (see backend/link.h).
 *
 * Two implementations: comm_cuda.c over NCCL, tests/simt/comm_emu.cpp for the emulator. */
#ifndef PI__CUDA_COMM_H
#define PI__CUDA_COMM_H

#include "backend/cuda/runtime.h"
#include "backend/link.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates the link of devices rt[0] to rt[n - 1]. All-gathers are queued on their streams. PI_EUNSUPPORTED: a required
 * library is missing. */
int pi__comm_create(pi__link **out, pi__rt *const *rt, int32_t n, pi_error *err);

/* For ranks in separate processes, each with one device. Rank 0 creates the id with pi__comm_id; then all ranks call
 * pi__comm_create_rank at the same time, with that id in `seat`. */
int pi__comm_id(char id[PI__RANK_ID_BYTES], pi_error *err);
int pi__comm_create_rank(pi__link **out, pi__rt *rt, const pi__seat *seat, pi_error *err);

#ifdef __cplusplus
}
#endif

#endif
