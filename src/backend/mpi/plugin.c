/* libpagedinfer-mpi.so: the transport of ranks over MPI (plugin.h).
 *
 * All MPI calls are nonblocking and polled until they complete or time out. MPI's blocking calls would wait
 * forever after a process dies. After a timeout the call is abandoned and MPI is not called again: it may keep
 * pointers to the buffers, but touches them only inside a call.
 *
 * A process can initialize MPI only once. The plug-in does it, unless the program has done so; then the plug-in
 * also finalizes it.
 *
 * No memory of its own; the state is per process, as MPI's is. Threads: one at a time. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "backend/mpi/plugin.h"

/* Polling. For the first BUSY_MS milliseconds a wait spins: ranks with cores of their own rarely need longer. After
 * that it sleeps between polls: on a shared machine a sleeping thread resumes earlier than one that yields. Sleeps
 * take NAP_US microseconds, LONG_NAP_US after LONG_MS milliseconds without a message, IDLE_NAP_US after IDLE_MS. */
static const double BUSY_MS = 0.1, LONG_MS = 20, IDLE_MS = 1000;
enum { NAP_US = 20, LONG_NAP_US = 100, IDLE_NAP_US = 1000, MOST = 1 << 30 /* max bytes of a call */, TAG = 0x5041 };

static MPI_Comm comm = MPI_COMM_NULL;
static bool begun_here, broken;

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec * 1e3 + (double) t.tv_nsec / 1e6;
}

/* Waits until request q is complete. rc: MPI's result of the call that created it. Returns false after ms
 * milliseconds or on an error. */
static bool done(int rc, MPI_Request *q, double ms)
{
    const double start = now_ms();
    int flag = 0;
    while (rc == MPI_SUCCESS) {
        rc = MPI_Test(q, &flag, MPI_STATUS_IGNORE);
        if (rc == MPI_SUCCESS && flag) return true;
        const double waited = now_ms() - start;
        if (ms >= 0 && waited > ms) break;
        if (waited > BUSY_MS) usleep(waited < LONG_MS ? NAP_US : waited < IDLE_MS ? LONG_NAP_US : IDLE_NAP_US);
    }
    broken = true;
    return false;
}

static int part_of(size_t n) { return n < MOST ? (int) n : MOST; }

static bool mpi_bcast(void *p, size_t n, double ms)
{
    MPI_Request q;
    char *at = p;
    for (size_t i = 0; i < n && !broken; i += (size_t) part_of(n - i))
        (void) done(MPI_Ibcast(at + i, part_of(n - i), MPI_BYTE, 0, comm, &q), &q, ms);
    return !broken;
}

static bool mpi_gather(void *buf, size_t n, double ms)
{
    MPI_Request q;
    if (!broken && n > MOST) broken = true; /* fails: shards are never that large */
    if (!n || broken) return !broken;
    return done(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, buf, (int) n, MPI_BYTE, comm, &q), &q, ms);
}

static bool mpi_send(int32_t to, const void *p, size_t n, double ms)
{
    MPI_Request q;
    const char *at = p;
    for (size_t i = 0; i < n && !broken; i += (size_t) part_of(n - i))
        (void) done(MPI_Isend(at + i, part_of(n - i), MPI_BYTE, to, TAG, comm, &q), &q, ms);
    return !broken;
}

static bool mpi_receive(void *p, size_t n, double ms)
{
    MPI_Request q;
    char *at = p;
    for (size_t i = 0; i < n && !broken; i += (size_t) part_of(n - i))
        (void) done(MPI_Irecv(at + i, part_of(n - i), MPI_BYTE, 0, TAG, comm, &q), &q, ms);
    return !broken;
}

static bool refused(char *why, size_t cap, const char *what, int rc)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (rc != MPI_SUCCESS) MPI_Error_string(rc, text, &n);
    snprintf(why, cap, "%s%s%s", what, n ? ": " : "", text);
    return false;
}

static bool mpi_open(int32_t *rank, int32_t *n, int32_t *local, int32_t *n_local, char *why, size_t cap)
{
    int flag = 0, level = MPI_THREAD_SERIALIZED, i, size, near, n_near;
    MPI_Comm machine;
    int rc = MPI_Initialized(&flag);
    if (rc == MPI_SUCCESS && !flag) {
        rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
        begun_here = rc == MPI_SUCCESS;
    } else if (rc == MPI_SUCCESS) {
        rc = MPI_Query_thread(&level);
    }
    if (rc != MPI_SUCCESS) return refused(why, cap, "MPI did not start", rc);
    if (level < MPI_THREAD_SERIALIZED)
        return refused(why, cap, "MPI was initialized without thread support: "
                       "call MPI_Init_thread with MPI_THREAD_SERIALIZED", rc);
    rc = MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    if (rc != MPI_SUCCESS) return refused(why, cap, "MPI cannot create a communicator of these processes", rc);
    MPI_Comm_rank(comm, &i), MPI_Comm_size(comm, &size);
    MPI_Comm_rank(machine, &near), MPI_Comm_size(machine, &n_near);
    MPI_Comm_free(&machine);
    *rank = i, *n = size, *local = near, *n_local = n_near;
    return true;
}

static void mpi_close(void)
{
    int ended = 0;
    if (broken || MPI_Finalized(&ended) != MPI_SUCCESS || ended) return;
    MPI_Comm_free(&comm);
    if (begun_here) MPI_Finalize();
}

__attribute__((visibility("default"))) const pi__mpi_plugin *pi_mpi_plugin(void);
const pi__mpi_plugin *pi_mpi_plugin(void)
{
    static const pi__mpi_plugin table = {PI__MPI_PLUGIN_VERSION, mpi_open, mpi_bcast, mpi_gather, mpi_send, mpi_receive,
                                         mpi_close};
    return &table;
}
