/* The link of CUDA devices that work as one (see backend/link.h).
 *
 * Two implementations: comm_cuda.c over NCCL, tests/simt/comm_emu.cpp for the emulator. */
#ifndef PI__CUDA_COMM_H
#define PI__CUDA_COMM_H

#include "backend/cuda/runtime.h"
#include "backend/link.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Joins the devices of rt[0..n); uses their streams. PI_EUNSUPPORTED: a required library is missing. */
int pi__comm_create(pi__link **out, pi__rt *const *rt, int32_t n, pi_error *err);

/* For ranks in separate processes with one device each, rt. Rank 0 creates the id, then all ranks join at the same
 * time. */
int pi__comm_id(char id[PI__RANK_ID_BYTES], pi_error *err);
int pi__comm_create_rank(pi__link **out, pi__rt *rt, const pi__seat *seat, pi_error *err);

#ifdef __cplusplus
}
#endif

#endif
