/* The subset of NCCL in use: its functions, loaded at run time, and joining a group of processes as one rank.
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

/* NCCL's functions, with its signatures since version 2; they return 0 or an error. stream: cudaStream_t. give_up is
 * ncclCommAbort. */
typedef struct pi__nccl {
    void *lib; /* from dlopen; NULL = not loaded */
    int (*init_all)(pi__nccl_comm *comm, int n, const int *device); /* all ranks in this process */
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

/* Creates the id of a group of ranks; called by rank 0. NCCL stays loaded, as its threads wait for the other ranks. */
int pi__nccl_make_id(char id[PI__RANK_ID_BYTES], pi_error *err);
/* Joins the group of seat->id with this device. A new thread calls use(device), then joins. PI_EDEVICE: NCCL failed, or
 * not all ranks joined within seat->timeout_ms. NCCL cannot cancel a join: after a timeout the thread keeps waiting,
 * with its own memory. This is harmless for a process that ends. If the other ranks join later, the thread aborts the
 * communicator. */
int pi__nccl_join(pi__nccl_comm *out, const pi__seat *seat, int32_t device, void (*use)(int32_t device), pi_error *err);

#ifdef __cplusplus
}
#endif

#endif