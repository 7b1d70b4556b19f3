/* NCCL, as far as it is used: its functions, found when they are asked for, and joining as one of several processes.
 *
 * No CUDA headers, so that the emulator joins by the same code (tests/simt/nccl_twin.c is its library). Memory: what
 * nccl.c says. Threads: any. */
#ifndef PI__CUDA_NCCL_H
#define PI__CUDA_NCCL_H

#include "backend/link.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm *pi__nccl_comm;
typedef struct pi__nccl_id { char bytes[PI__RANK_ID_BYTES]; } pi__nccl_id;

/* Functions, as NCCL's own header has them since its version 2; numbers returned are 0 or an error. stream: cudaStream_t. */
typedef struct pi__nccl {
    void *lib;
    int (*init_all)(pi__nccl_comm *comm, int n, const int *device);
    int (*make_id)(pi__nccl_id *id);
    int (*init_rank)(pi__nccl_comm *comm, int n, pi__nccl_id id, int rank);
    int (*all_gather)(const void *from, void *to, size_t count, int type, pi__nccl_comm comm, void *stream);
    int (*async_error)(pi__nccl_comm comm, int *error);
    int (*give_up)(pi__nccl_comm comm);
    int (*destroy)(pi__nccl_comm comm);
    const char *(*text)(int error);
} pi__nccl;

/* PI_EUNSUPPORTED: it is not installed. */
int pi__nccl_load(pi__nccl *f, pi_error *err);
void pi__nccl_unload(pi__nccl *f);

/* What rank 0 makes for all. The library stays loaded: NCCL waits for the others there. */
int pi__nccl_make_id(char id[PI__RANK_ID_BYTES], pi_error *err);
/* Joins the other processes with a device, for which use(device) is called in the thread that does it. PI_EDEVICE: NCCL failed,
 * or not all had come within the seat's time. NCCL waits for them without end, then, and cannot be told to stop: what waits
 * is left to itself, with memory of its own, and is of no harm to a process that ends. Should the others come yet, it
 * leaves them. */
int pi__nccl_join(pi__nccl_comm *out, const pi__seat *seat, int32_t device, void (*use)(int32_t device), pi_error *err);

#ifdef __cplusplus
}
#endif

#endif
