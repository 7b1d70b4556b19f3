/* The subset of NCCL in use: its functions, loaded on demand, and joining as one of several processes.
 *
 * Includes no CUDA headers, so that the emulator joins by the same code (tests/simt/nccl_twin.c is its library).
 * Memory: see nccl.c. Threads: any. */
#ifndef PI__CUDA_NCCL_H
#define PI__CUDA_NCCL_H

#include "backend/link.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm *pi__nccl_comm;
typedef struct pi__nccl_id { char bytes[PI__RANK_ID_BYTES]; } pi__nccl_id;

/* Functions with NCCL's signatures since version 2; they return 0 or an error. stream: cudaStream_t. */
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

/* Returns PI_EUNSUPPORTED if NCCL is not installed. */
int pi__nccl_load(pi__nccl *f, pi_error *err);
void pi__nccl_unload(pi__nccl *f);

/* Creates rank 0's id for all ranks. The library stays loaded, as NCCL waits in it for the other ranks. */
int pi__nccl_make_id(char id[PI__RANK_ID_BYTES], pi_error *err);
/* Joins the other processes with a device; calls use(device) in the joining thread. PI_EDEVICE: NCCL failed, or not
 * all ranks joined within the seat's timeout. After a timeout NCCL keeps waiting and cannot be cancelled. The waiting
 * thread is left to itself, with its own memory, which is harmless for a process that ends. If the other ranks join
 * later, that thread leaves them. */
int pi__nccl_join(pi__nccl_comm *out, const pi__seat *seat, int32_t device, void (*use)(int32_t device), pi_error *err);

#ifdef __cplusplus
}
#endif

#endif