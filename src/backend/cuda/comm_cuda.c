/* The link of CUDA devices over NCCL.
 *
 * NCCL is loaded when devices are joined (nccl.c), so that the engine starts without it.
 *
 * Memory: one small object, and NCCL's own. Threads: each rank calls from its own thread; other threads may create and
 * destroy the link. A rank that leaves aborts its communicator. The other ranks notice this while they wait, and abort
 * their communicators, which ends kernels that would otherwise wait forever.
 *
 * All-gathers may be captured with their stream. NCCL requires that all ranks capture the same all-gathers and replay
 * them together. Each rank replays from its own thread, so that no replay waits for a thread that has to start another
 * rank's replay first. No graph with an all-gather may exist when a rank leaves or the link is destroyed, as NCCL would
 * wait for the graph. */
#include <cuda_runtime_api.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/cuda/comm.h"
#include "backend/cuda/nccl.h"
#include "backend/cuda/queue.h"
#include "backend/ranks.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

/* Constants of nccl.h (ncclFloat32, ncclInProgress), and the number of polls before a waiting rank yields its core. */
enum { NCCL_FLOAT = 7, NCCL_IN_PROGRESS = 7, SPINS = 1000 };

typedef struct member { /* one rank of this process */
    pi__rt *rt;         /* device and stream; NULL = a rank of another process */
    pi__nccl_comm comm; /* NULL = aborted, or a rank of another process */
} member;

typedef struct nccl_link {
    pi__link link;    /* must be first: the public interface */
    pi__nccl fn;      /* NCCL functions */
    atomic_bool left; /* a rank of this process has left; all-gathers fail from then on */
    int32_t n;        /* ranks of all processes */
    /* the processes of all ranks (ranks.h); NULL = all ranks are in this process */
    const pi__ranks *ranks;
    double timeout_ms; /* max wait for other processes; 0 = unlimited */
    member member[];  /* [n] by rank */
} nccl_link;

/* Aborts the rank's communicator, if it exists. */
static void tear_down(nccl_link *l, int32_t rank)
{
    member *m = &l->member[rank];
    if (!m->comm) return;
    cudaSetDevice(pi__rt_index(m->rt));
    l->fn.give_up(m->comm);
    m->comm = NULL;
}

static void nccl_leave(pi__link *link, int32_t rank)
{
    nccl_link *l = (nccl_link *) link;
    atomic_store(&l->left, true);
    tear_down(l, rank);
}

static bool nccl_gather(pi__link *link, int32_t rank, float *buf, size_t count)
{
    nccl_link *l = (nccl_link *) link;
    const member *m = &l->member[rank];
    if (!m->comm || atomic_load(&l->left)) return false;
    if (!count) return true;
    return cudaSetDevice(pi__rt_index(m->rt)) == cudaSuccess &&
           l->fn.all_gather(buf + (size_t) rank * count, buf, count, NCCL_FLOAT, m->comm,
                            pi__queue_stream(pi__rt_stream(m->rt))) == 0;
}

/* True if the rank's communicator reports no error. */
static bool well(const nccl_link *l, const member *m)
{
    int error = 0;
    return l->fn.async_error(m->comm, &error) == 0 && (error == 0 || error == NCCL_IN_PROGRESS);
}

static int nccl_wait(pi__link *link, int32_t rank)
{
    nccl_link *l = (nccl_link *) link;
    const member *m = &l->member[rank];
    if (!m->comm) return PI__LINK_LEFT;
    cudaSetDevice(pi__rt_index(m->rt));
    const double start = l->timeout_ms > 0 ? pi__now_ms() : 0;
    for (unsigned i = 0;; i++) {
        cudaError_t e = cudaStreamQuery(pi__queue_stream(pi__rt_stream(m->rt)));
        if (e == cudaSuccess) return PI__LINK_DONE;
        if (e != cudaErrorNotReady) return PI__LINK_FAILED;
        if (i < SPINS) continue;
        sched_yield();
        if (atomic_load(&l->left) || !well(l, m)) return PI__LINK_LEFT;
        if (l->timeout_ms > 0 && pi__now_ms() - start > l->timeout_ms) return PI__LINK_LEFT;
    }
}

static void nccl_destroy(pi__link *link)
{
    nccl_link *l = (nccl_link *) link;
    /* true = a process has ended. ncclCommDestroy would wait for its rank, so communicators are aborted instead */
    const bool gone = l->ranks && atomic_load(&l->ranks->dead);
    for (int32_t i = 0; i < l->n; i++) {
        member *m = &l->member[i];
        if (!m->comm) continue;
        cudaSetDevice(pi__rt_index(m->rt));
        if (gone) l->fn.give_up(m->comm);
        else l->fn.destroy(m->comm);
    }
    pi__nccl_unload(&l->fn);
    pi__free(l);
}

/* Creates the communicators of a link with all ranks in this process. */
static int join(nccl_link *l, pi_error *err)
{
    int device[PI__RT_MAX];
    pi__nccl_comm comm[PI__RT_MAX] = {0};
    if (l->n > PI__RT_MAX) return pi__fail(err, PI_EUNSUPPORTED, "give at most %d devices", PI__RT_MAX);
    for (int32_t i = 0; i < l->n; i++) device[i] = pi__rt_index(l->member[i].rt);
    int code = l->fn.init_all(comm, l->n, device);
    if (code) return pi__fail(err, PI_EDEVICE, "NCCL cannot connect the devices: %.200s", l->fn.text(code));
    for (int32_t i = 0; i < l->n; i++) l->member[i].comm = comm[i];
    return PI_OK;
}

static const pi__link_ops ops = {nccl_destroy, nccl_gather, nccl_wait, nccl_leave};

/* Creates a link of n ranks and loads NCCL; no rank has joined yet. */
static int create(nccl_link **out, int32_t n, pi_error *err)
{
    nccl_link *l = pi__calloc(1, sizeof *l + (size_t) n * sizeof *l->member);
    *out = NULL;
    if (!l) return pi__fail_mem(err, "the link of devices");
    l->link.ops = &ops;
    l->n = n;
    int rc = pi__nccl_load(&l->fn, err);
    if (rc) nccl_destroy(&l->link);
    else *out = l;
    return rc;
}

int pi__comm_create(pi__link **out, pi__rt *const *rt, int32_t n, pi_error *err)
{
    nccl_link *l;
    *out = NULL;
    int rc = create(&l, n, err);
    if (rc) return rc;
    for (int32_t i = 0; i < n; i++) l->member[i].rt = rt[i];
    rc = join(l, err);
    if (rc) nccl_destroy(&l->link);
    else *out = &l->link;
    return rc;
}

int pi__comm_id(char id[PI__RANK_ID_BYTES], pi_error *err) { return pi__nccl_make_id(id, err); }

static void use(int32_t device) { cudaSetDevice(device); }

int pi__comm_create_rank(pi__link **out, pi__rt *rt, const pi__seat *seat, pi_error *err)
{
    nccl_link *l;
    *out = NULL;
    int rc = create(&l, seat->n, err);
    if (rc) return rc;
    member *m = &l->member[seat->rank];
    m->rt = rt;
    l->ranks = seat->ranks;
    l->timeout_ms = seat->timeout_ms;
    rc = pi__nccl_join(&m->comm, seat, pi__rt_index(rt), use, err);
    if (rc) nccl_destroy(&l->link);
    else *out = &l->link;
    return rc;
}