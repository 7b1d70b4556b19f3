/* The NCCL calls of src/backend/cuda/nccl.h, for emulated devices. Processes or threads join as with NCCL: each waits
 * until all have joined, without a timeout. This library exchanges no data: comm_emu.cpp does.
 *
 * Participants meet at an abstract socket named by the id, which disappears with its process. The environment
 * variable NCCL_TWIN selects a failure of this process on joining: "dies", "stays away" (it never joins), "fails".
 *
 * Memory: one object per communicator. Threads: any. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { OK = 0, SYSTEM_ERROR = 2, MOST = 16 };
typedef struct nccl_id { char bytes[128]; } nccl_id;
typedef struct ncclComm { int rank; } ncclComm;

#pragma GCC visibility push(default)
int nccl_twin_counts(int *made);
int ncclGetUniqueId(nccl_id *id);
int ncclCommInitRank(ncclComm **comm, int n, nccl_id id, int rank);
int ncclCommInitAll(ncclComm **comm, int n, const int *device);
int ncclAllGather(const void *from, void *to, size_t count, int type, ncclComm *comm, void *stream);
int ncclCommGetAsyncError(ncclComm *comm, int *error);
int ncclCommAbort(ncclComm *comm);
int ncclCommDestroy(ncclComm *comm);
const char *ncclGetErrorString(int error);
#pragma GCC visibility pop

static atomic_int n_made, n_live; /* communicators */
/* Returns the number of live communicators; *made is the number ever created. */
int nccl_twin_counts(int *made)
{
    *made = n_made;
    return n_live;
}

int ncclGetUniqueId(nccl_id *id)
{
    unsigned long long name[2];
    if (getrandom(name, sizeof name, 0) != (ssize_t) sizeof name) return SYSTEM_ERROR;
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "nccl-twin-%016llx%016llx", name[0], name[1]);
    return OK;
}

/* The address of an abstract socket: its path begins with a zero byte. */
static socklen_t place(struct sockaddr_un *at, const nccl_id *id)
{
    *at = (struct sockaddr_un) {.sun_family = AF_UNIX};
    const size_t n = strnlen(id->bytes, 64);
    memcpy(at->sun_path + 1, id->bytes, n);
    return (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

/* Rank 0: waits for all other ranks, then notifies them. */
static int wait_for_all(int fd, int n)
{
    int there[MOST], n_there = 0, rc = OK;
    while (n_there < n - 1 && (there[n_there] = accept(fd, NULL, NULL)) >= 0) n_there++;
    if (n_there < n - 1) rc = SYSTEM_ERROR;
    for (int i = 0; i < n_there; i++) {
        if (!rc && send(there[i], "!", 1, MSG_NOSIGNAL) != 1) rc = SYSTEM_ERROR;
        close(there[i]);
    }
    return rc;
}

/* Other ranks: wait for rank 0, then for its notification that all ranks have joined. */
static int wait_for_word(int fd, const struct sockaddr_un *at, socklen_t size)
{
    char word;
    while (connect(fd, (const struct sockaddr *) at, size)) {
        if (errno != ECONNREFUSED && errno != EAGAIN) return SYSTEM_ERROR;
        usleep(10000);
    }
    return recv(fd, &word, 1, 0) == 1 ? OK : SYSTEM_ERROR;
}

int ncclCommInitRank(ncclComm **comm, int n, nccl_id id, int rank)
{
    const char *wrong = getenv("NCCL_TWIN");
    struct sockaddr_un at;
    const socklen_t size = place(&at, &id);
    *comm = NULL;
    if (wrong && !strcmp(wrong, "dies")) _exit(9);
    if (wrong && !strcmp(wrong, "fails")) return SYSTEM_ERROR;
    while (wrong && !strcmp(wrong, "stays away")) pause();
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || n > MOST) return SYSTEM_ERROR;
    int rc = OK;
    if (rank) rc = wait_for_word(fd, &at, size);
    else rc = bind(fd, (struct sockaddr *) &at, size) || listen(fd, MOST) ? SYSTEM_ERROR : wait_for_all(fd, n);
    close(fd);
    if (!rc && !(*comm = malloc(sizeof **comm))) rc = SYSTEM_ERROR;
    if (rc) return rc;
    (*comm)->rank = rank;
    n_live++;
    n_made++;
    return OK;
}

int ncclCommAbort(ncclComm *comm)
{
    free(comm);
    n_live--;
    return OK;
}
int ncclCommDestroy(ncclComm *comm) { return ncclCommAbort(comm); }

int ncclCommGetAsyncError(ncclComm *comm, int *error)
{
    (void) comm;
    *error = OK;
    return OK;
}

const char *ncclGetErrorString(int error) { return error ? "unhandled system error" : "no error"; }

/* Not used with emulated devices. */
int ncclCommInitAll(ncclComm **comm, int n, const int *device)
{
    (void) comm, (void) n, (void) device;
    return SYSTEM_ERROR;
}

int ncclAllGather(const void *from, void *to, size_t count, int type, ncclComm *comm, void *stream)
{
    (void) from, (void) to, (void) count, (void) type, (void) comm, (void) stream;
    return SYSTEM_ERROR;
}
