/* NCCL's functions, and joining with a timeout (see nccl.h).
 *
 * NCCL could also join with a nonblocking communicator. But then NCCL starts a thread for each all-gather, and captured
 * steps would have to wait for these threads. So the blocking call runs in a separate thread.
 *
 * Memory: one struct per attempt to join, shared by the caller and the joining thread; the one that ends last frees it.
 * Threads: any. Invariant: the library is never unloaded while a thread may be executing it. */
#include "backend/cuda/nccl.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

int pi__nccl_load(pi__nccl *f, pi_error *err)
{
    const struct { const char *name; void **to; } names[] = {
        {"ncclCommInitAll", (void **) &f->init_all},   {"ncclGetUniqueId", (void **) &f->make_id},
        {"ncclCommInitRank", (void **) &f->init_rank}, {"ncclAllGather", (void **) &f->all_gather},
        {"ncclCommGetAsyncError", (void **) &f->async_error}, {"ncclCommAbort", (void **) &f->give_up},
        {"ncclCommDestroy", (void **) &f->destroy},    {"ncclGetErrorString", (void **) &f->text}};
    f->lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    bool all = f->lib != NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && all; i++) {
        *names[i].to = dlsym(f->lib, names[i].name);
        all = *names[i].to != NULL;
    }
    if (all) return PI_OK;
    pi__nccl_unload(f);
    return pi__fail(err, PI_EUNSUPPORTED,
                    "several devices need NCCL, but libnccl.so.2 was not found: install it, or use split-mode none");
}

void pi__nccl_unload(pi__nccl *f)
{
    if (f->lib) dlclose(f->lib);
    f->lib = NULL;
}

int pi__nccl_make_id(char id[PI__RANK_ID_BYTES], pi_error *err)
{
    pi__nccl_id own;
    pi__nccl f;
    int rc = pi__nccl_load(&f, err);
    const int code = rc ? 0 : f.make_id(&own);
    if (code) rc = pi__fail(err, PI_EDEVICE, "NCCL cannot create an ID for the ranks: %.200s", f.text(code));
    if (!rc) memcpy(id, own.bytes, sizeof own.bytes);
    return rc;
}

/* An attempt to join. Fields without L are set before the thread starts, and then constant. */
typedef struct attempt {
    pthread_mutex_t lock;    /* guards the fields marked L */
    pthread_cond_t changed;  /* signalled when `ended` is set */
    pi__nccl fn;             /* functions for this attempt only: after a timeout the thread stays in the library */
    pi__nccl_id id;
    int32_t rank, n, device;
    void (*use)(int32_t device);
    pi__nccl_comm comm;      /* L communicator, valid if code is 0 */
    int code;                /* L NCCL's return code, valid if `ended` */
    bool ended, left;        /* L ended: NCCL has returned. left: the caller has stopped waiting */
} attempt;

static void attempt_free(attempt *a)
{
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    pi__nccl_unload(&a->fn);
    pi__free(a);
}

static void *attempt_main(void *arg)
{
    attempt *a = arg;
    pi__nccl_comm comm = NULL;
    a->use(a->device);
    const int code = a->fn.init_rank(&comm, a->n, a->id, a->rank);
    pthread_mutex_lock(&a->lock);
    a->comm = comm, a->code = code;
    a->ended = true;
    const bool left = a->left;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (!left) return NULL;
    if (!code) a->fn.give_up(comm);
    attempt_free(a);
    return NULL;
}

static int attempt_start(attempt *a, pthread_t *thread, pi_error *err)
{
    const bool started = pi__thread_start(thread, attempt_main, a);
    return started ? PI_OK : pi__fail(err, PI_ENOMEM, "cannot start the thread that connects devices");
}

/* Waits up to ms milliseconds. Returns true if NCCL has returned. False = timeout; then the joining thread frees the
 * attempt, and the caller may not use it any more. */
static bool attempt_wait(attempt *a, double ms)
{
    const struct timespec until = pi__deadline(ms);
    int late = 0;
    pthread_mutex_lock(&a->lock);
    while (!a->ended && late != ETIMEDOUT) late = pthread_cond_timedwait(&a->changed, &a->lock, &until);
    const bool ended = a->ended;
    a->left = !ended;
    pthread_mutex_unlock(&a->lock);
    return ended;
}

static int attempt_create(attempt **out, const pi__seat *seat, pi_error *err)
{
    attempt *a = pi__calloc(1, sizeof *a);
    *out = NULL;
    if (!a) return pi__fail_mem(err, "the link of devices");
    const int rc = pi__nccl_load(&a->fn, err);
    if (rc) {
        pi__free(a);
        return rc;
    }
    pthread_mutex_init(&a->lock, NULL);
    (void) pi__cond_init(&a->changed);
    memcpy(a->id.bytes, seat->id, sizeof a->id.bytes);
    a->rank = seat->rank, a->n = seat->n;
    *out = a;
    return PI_OK;
}

int pi__nccl_join(pi__nccl_comm *out, const pi__seat *seat, int32_t device, void (*use)(int32_t device), pi_error *err)
{
    attempt *a;
    pthread_t thread;
    *out = NULL;
    int rc = attempt_create(&a, seat, err);
    if (rc) return rc;
    a->device = device, a->use = use;
    rc = attempt_start(a, &thread, err);
    if (rc) {
        attempt_free(a);
        return rc;
    }
    if (!attempt_wait(a, seat->timeout_ms)) {
        pthread_detach(thread);
        return pi__fail(err, PI_EDEVICE, "NCCL has not connected the devices of %d processes within %.0f s "
                        "(rank-timeout): one exited or is not reachable (NCCL_DEBUG=INFO shows more): "
                        "restart all ranks", seat->n,
                        seat->timeout_ms / 1e3);
    }
    pthread_join(thread, NULL);
    if (a->code)
        rc = pi__fail(err, PI_EDEVICE, "NCCL cannot connect the devices of %d processes: %.180s",
                      seat->n, a->fn.text(a->code));
    else *out = a->comm;
    attempt_free(a);
    return rc;
}