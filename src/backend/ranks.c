/* Processes that act as one (see ranks.h): commands and replies, pings, launcher variables, and loading the MPI
 * plug-in. */
#include "backend/ranks.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/mpi/plugin.h"
#include "backend/ranks_tcp.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "base/trust.h"

/* ----------------------------------------------------------------------------------------------------------- orders */

bool pi__ranks_check(pi__ranks *r, bool ok)
{
    if (!ok) atomic_store(&r->dead, true);
    return ok;
}

bool pi__ranks_order(pi__ranks *r, const pi__order *o, const void *bytes)
{
    pi__order head = *o;
    if (atomic_load(&r->dead)) return false;
    if (!pi__ranks_check(r, r->fns->bcast(r, &head, sizeof head, r->timeout_ms))) return false;
    return !o->n_bytes || pi__ranks_check(r, r->fns->bcast(r, (void *) (uintptr_t) bytes, o->n_bytes, r->timeout_ms));
}

bool pi__ranks_reply(pi__ranks *r, const pi__reply *own, pi__reply *all)
{
    if (atomic_load(&r->dead)) return false;
    memset(all, 0, (size_t) r->n * sizeof *all);
    all[r->rank] = *own;
    return pi__ranks_check(r, r->fns->gather(r, all, sizeof *all, r->timeout_ms));
}

/* Sends a ping and waits for the replies of all ranks. Marks the ranks as dead if one is missing. */
static void ping(pi__ranks *r)
{
    pi__reply all[PI__MOST_RANKS];
    if (pi__ranks_order(r, &(pi__order) {.kind = PI__ORDER_PING}, NULL))
        pi__ranks_reply(r, &(pi__reply) {.reached = true}, all);
}

static void *ping_main(void *arg)
{
    pi__ranks *r = arg;
    pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        struct timespec t = pi__deadline(r->timeout_ms / 4);
        if (pthread_cond_timedwait(&r->quit, &r->lock, &t) == ETIMEDOUT && !r->stop) ping(r);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

int pi__ranks_begin(pi__ranks *r, pi_error *err)
{
    pthread_mutex_init(&r->lock, NULL);
    (void) pi__cond_init(&r->quit);
    if (r->rank) return PI_OK;
    r->pings = pi__thread_start(&r->pinger, ping_main, r);
    return r->pings ? PI_OK : pi__fail(err, PI_ENOMEM, "cannot start the thread that pings ranks");
}

void pi__ranks_end(pi__ranks *r)
{
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_signal(&r->quit);
    if (!r->rank) (void) pi__ranks_order(r, &(pi__order) {.kind = PI__ORDER_END}, NULL);
    pthread_mutex_unlock(&r->lock);
    if (r->pings) pthread_join(r->pinger, NULL);
    pthread_cond_destroy(&r->quit);
    pthread_mutex_destroy(&r->lock);
}

/* ----------------------------------------------------------------------------------------------------- the launcher */

/* Returns the integer in an environment variable; -1 = not set, not a number, negative or at least 2^20. */
static int32_t env_number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    const long n = text && *text ? strtol(text, &end, 10) : -1;
    return text && *text && !*end && n >= 0 && n < 1 << 20 ? (int32_t) n : -1;
}

int pi__ranks_launched(pi__launch *out, pi_error *err)
{
    static const struct { const char *rank, *n, *by; } known[] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun"},
        {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "srun"},
        {"PMI_RANK", "PMI_SIZE", "an MPI launcher"},
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"},
    };
    *out = (pi__launch) {.n = 1, .by = ""};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const int32_t rank = env_number(known[i].rank), n = env_number(known[i].n);
        if (rank < 0 || n < 1 || rank >= n) continue;
        *out = (pi__launch) {.rank = rank, .n = n, .by = known[i].by};
        return PI_OK;
    }
    const int32_t n = env_number("WORLD_SIZE"), rank = env_number("RANK");
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    if (n < 2 || rank < 0 || rank >= n) return PI_OK;
    if (!host || !*host || env_number("MASTER_PORT") < 1 || env_number("MASTER_PORT") > 65534)
        return pi__fail(err, PI_EUNSUPPORTED, "WORLD_SIZE is %d, but the address of rank 0 is not set (MASTER_ADDR "
                        "%.40s, MASTER_PORT %.10s): set both, start the ranks by mpirun, or use --ranks off",
                        n, host ? host : "none",
                        port ? port : "none");
    *out = (pi__launch) {.rank = rank, .n = n, .by = "torchrun", .tcp = true};
    return PI_OK;
}

/* ------------------------------------------------------------------------------------------------------ the plug-in */

/* The MPI plug-in; one per process, because MPI's state is. Set by the first call of pi__ranks_of_process; NULL = MPI
 * is not used */
static const pi__mpi_plugin *mpi;

static bool call_bcast(pi__ranks *r, void *p, size_t n, double ms) { (void) r; return mpi->bcast(p, n, ms); }
static bool call_gather(pi__ranks *r, void *buf, size_t n, double ms) { (void) r; return mpi->gather(buf, n, ms); }
static bool call_send(pi__ranks *r, int32_t to, const void *p, size_t n, double ms)
{
    (void) r;
    return mpi->send(to, p, n, ms);
}
static bool call_receive(pi__ranks *r, void *p, size_t n, double ms) { (void) r; return mpi->receive(p, n, ms); }

/* Loads the plug-in from the directory of the library (or of the program that contains the library), or from the
 * system's search path. */
static const pi__mpi_plugin *load_plugin(pi_error *err)
{
    static const char name[] = "libpagedinfer-mpi.so";
    Dl_info self;
    char path[4096];
    void *lib = NULL;
    if (dladdr((void *) (uintptr_t) &pi__ranks_of_process, &self) && self.dli_fname && strrchr(self.dli_fname, '/')) {
        const int dir = (int) (strrchr(self.dli_fname, '/') - self.dli_fname);
        if (snprintf(path, sizeof path, "%.*s/%s", dir, self.dli_fname, name) < (int) sizeof path)
            lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* MPI's own modules look up its symbols */
    }
    if (!lib) lib = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (!lib) {
        const char *why = dlerror();
        pi__fail(err, PI_EUNSUPPORTED,
                 "ranks need MPI: %.200s: install Open MPI, build with -DPAGEDINFER_MPI=ON, or use --ranks off",
                 why ? why : name);
        return NULL;
    }
    const pi__mpi_plugin_fn get = (pi__mpi_plugin_fn) (uintptr_t) dlsym(lib, "pi_mpi_plugin");
    const pi__mpi_plugin *p = get ? get() : NULL;
    if (p && p->version == PI__MPI_PLUGIN_VERSION) return p;
    dlclose(lib);
    pi__fail(err, PI_EUNSUPPORTED, "%s: its version differs from this library's: install both from one build", name);
    return NULL;
}

static pi__ranks_tcp world; /* the ranks of this process, if any. With MPI, fd has no connections */

static void end_world(void)
{
    pi__ranks_end(&world.r);
    if (!mpi) pi__tcp_close(&world);
    else if (!atomic_load(&world.r.dead)) mpi->close();
}

static int join_by_mpi(const pi__launch *launch, double timeout_ms, pi_error *err)
{
    static const pi__ranks_fns fns = {call_bcast, call_gather, call_send, call_receive};
    pi__ranks *r = &world.r;
    char why[200];
    if (!(mpi = load_plugin(err))) return PI_EUNSUPPORTED;
    *r = (pi__ranks) {.fns = &fns, .timeout_ms = timeout_ms};
    if (!mpi->open(&r->rank, &r->n, &r->local, &r->n_local, why, sizeof why))
        return pi__fail(err, PI_EUNSUPPORTED, "%s", why);
    if (r->n != launch->n)
        return pi__fail(err, PI_EUNSUPPORTED, "%s started %d processes, MPI reports %d: with srun give --mpi=pmix",
                        launch->by,
                        launch->n, r->n);
    return PI_OK;
}

/* Reads the bytes that all ranks share: from the file at path, or if path is "" from PAGEDINFER_RANK_KEY. out->n is
 * 0 if there is no secret. */
static int secret_of(pi__secret *out, const char *path, pi_error *err)
{
    const char *text = getenv("PAGEDINFER_RANK_KEY");
    const size_t n = text ? strlen(text) : 0;
    out->n = 0;
    if (*path) return pi__secret_load(out, path, "rank-secret", err);
    if (!n) return PI_OK;
    if (n < PI__SECRET_MIN || n > PI__SECRET_MAX)
        return pi__fail(err, PI_EINVAL, "PAGEDINFER_RANK_KEY has %zu characters: give %d to %d",
                        n, PI__SECRET_MIN, PI__SECRET_MAX);
    memcpy(out->byte, text, n);
    out->n = n;
    return PI_OK;
}

/* Joins the ranks by TCP. torchrun's agent may occupy MASTER_PORT itself (TORCHELASTIC_USE_AGENT_STORE); ranks then use
 * the next port. */
static int join_by_tcp(const pi__launch *launch, double timeout_ms, const char *path, const pi__log *log, pi_error *err)
{
    pi__secret secret;
    int rc = secret_of(&secret, path, err);
    if (rc) return rc;
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE"), *run = getenv("TORCHELASTIC_RUN_ID");
    char port[16];
    snprintf(port, sizeof port, "%d", env_number("MASTER_PORT") + (agent && !strcmp(agent, "True")));
    const pi__tcp_place at = {getenv("MASTER_ADDR"),    port,        run ? run : "",
                              env_number("LOCAL_RANK"), secret.byte, secret.n};
    rc = pi__tcp_join(&world, &at, launch->rank, launch->n, timeout_ms, log, err);
    pi__secret_clear(&secret);
    return rc;
}

/* Joins the ranks by the launcher's transport, and starts the pings. Called once per process. */
static int join_world(double timeout_ms, const char *secret, const pi__log *log, pi_error *err)
{
    pi__launch launch;
    int rc = pi__ranks_launched(&launch, err);
    if (rc) return rc;
    if (launch.n > PI__MOST_RANKS)
        return pi__fail(err, PI_EUNSUPPORTED, "%d ranks: at most %d are supported: start fewer",
                        launch.n, PI__MOST_RANKS);
    if (!launch.tcp && launch.n > 1 && *secret)
        return pi__fail(err, PI_EINVAL, "rank-secret applies to ranks connected by TCP: leave it out with %s, which "
                        "connects the processes itself", launch.by);
    rc = launch.tcp ? join_by_tcp(&launch, timeout_ms, secret, log, err) : join_by_mpi(&launch, timeout_ms, err);
    if (!rc) rc = pi__ranks_begin(&world.r, err);
    if (!rc && atexit(end_world)) rc = pi__fail_mem(err, "ranks");
    return rc;
}

int pi__ranks_of_process(pi__ranks **out, double timeout_ms, const char *secret, const pi__log *log, pi_error *err)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    static bool tried;
    static pi_error failed; /* error of the first call, returned by all later ones: MPI cannot be initialized twice */
    pthread_mutex_lock(&once);
    if (!tried) (void) join_world(timeout_ms, secret, log, &failed);
    tried = true;
    pthread_mutex_unlock(&once);
    *out = failed.code ? NULL : &world.r;
    return failed.code ? pi__fail(err, failed.code, "%s", failed.msg) : PI_OK;
}
