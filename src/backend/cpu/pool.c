/* Thread pool of the CPU backend (see pool.h): forks and joins in about a microsecond, sleeps when idle.
 *
 * Memory: one mapping at create. Threads: create, run and destroy must be called by one thread at a time; the pool owns
 * the workers. A thread waits at a gate: a counter that a post increments.
 *
 *     caller   run: job.post ........ fn(0) ........ waits done.word
 *     worker        waits job.word .. fn(i) .. the last one: done.post
 *
 * A job may use fewer threads than the pool has (pi__pool_use). Unused threads wait at a separate gate, so jobs do not
 * wake them. The job's number and its thread count are one atomic word (told). So a late worker reads both from the
 * same job, and runs no job twice.
 *
 * A waiting thread spins for a bounded time and then sleeps. It sleeps early if another thread of the pool was last
 * seen on its CPU, because it may be waiting for that thread. A waiting thread never yields: Linux queues a yielding
 * thread after all others on the machine, but schedules a woken thread first. Invariant: a sleeper increments the
 * sleeper count before its last read of the word, and a post changes the word before it reads the sleeper count. All
 * four accesses are sequentially consistent, so the sleeper sees the new word or the post sees the sleeper, and no
 * wake-up is lost. */
#include "backend/cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "backend/cpu/places.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

enum {
    MAX_THREADS = 1024,
    SPIN_UNIT_NS = 40000, /* spin time per unit of poll: at 50, an idle worker spins for 2 ms before it sleeps */
    JOIN_SHARE = 8,       /* divisor of the spin time of waits inside a job, because the other threads already run */
};

typedef struct gate {
    _Alignas(64) _Atomic uint32_t word; /* incremented by each post */
    _Atomic uint32_t sleepers;          /* threads asleep, or about to be */
    pthread_mutex_t mutex;              /* protects waits for cond */
    pthread_cond_t cond;                /* signals that the word changed */
} gate;

typedef struct worker {
    pi__pool *pool;      /* the pool */
    pthread_t thread;    /* valid for indices 1..n_created; thread 0 is the caller's */
    int32_t ith;         /* index of the thread in jobs */
    _Atomic int32_t cpu; /* CPU on which the thread ran its last job; -1 = none yet */
} worker;

struct pi__pool {
    int32_t n;         /* threads, including the caller */
    int32_t active;    /* threads that jobs use (pi__pool_use); changes only between jobs */
    pi__pool_config config; /* options, as given to create */
    cpu_set_t *place;  /* [n] allowed CPUs of each thread; NULL = threads are not pinned */
    int64_t spin_ns;   /* time that a waiting thread spins before it sleeps */
    pi__job_fn fn;     /* function of the current job; written before `job` is posted */
    void *arg;         /* its argument */
    _Atomic bool stop; /* ends the workers; written before job and more are posted */
    int32_t n_created; /* number of workers that were started */
    gate job;          /* posted for each job */
    gate more;         /* posted if a job uses more threads than the previous one */
    _Alignas(64) _Atomic uint64_t told; /* the last job: its number << 32 | the number of threads that it uses */
    gate done;         /* posted when all workers have finished the job */
    gate barrier;      /* posted when all threads have arrived at a barrier */
    _Alignas(64) _Atomic int32_t pending; /* workers that have not finished the job */
    _Alignas(64) _Atomic int32_t arrived; /* threads that have arrived at the current barrier */
    _Alignas(64) _Atomic int32_t next;    /* next item of pi__pool_next */
    worker workers[];                     /* [n]; workers[0] is the caller */
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

/* ---------------------------------------------------------------------------------------------------------- gates */

static bool gate_init(gate *g)
{
    if (pthread_mutex_init(&g->mutex, NULL)) return false;
    if (pthread_cond_init(&g->cond, NULL)) {
        pthread_mutex_destroy(&g->mutex);
        return false;
    }
    return true;
}

static void gate_free(gate *g)
{
    pthread_cond_destroy(&g->cond);
    pthread_mutex_destroy(&g->mutex);
}

static bool changed(gate *g, uint32_t old) { return atomic_load_explicit(&g->word, memory_order_acquire) != old; }

/* Returns true if another thread of the pool ran its last job on the CPU of the calling thread. ith: index of the
 * calling thread. -1 = unknown: one thread on this CPU is then assumed to be the caller and not counted. */
static bool shares_core(const pi__pool *p, int32_t ith)
{
    int cpu = sched_getcpu(), seen = 0;
    const int32_t n = (int32_t) (uint32_t) atomic_load_explicit(&p->told, memory_order_relaxed);
    for (int32_t i = 0; i < n; i++) {
        if (i != ith && atomic_load_explicit(&p->workers[i].cpu, memory_order_relaxed) == cpu) seen++;
    }
    return seen > (ith < 0);
}

/* Spins until the gate's word differs from `old`; returns true. Returns false if spin_ns nanoseconds have passed or
 * another thread of the pool may need the CPU. */
static bool gate_spin(const pi__pool *p, int32_t ith, gate *g, uint32_t old, int64_t spin_ns)
{
    if (changed(g, old)) return true;
    if (!spin_ns) return false;
    int64_t start = pi__now_ns();
    do {
        for (int i = 0; i < 64; i++) {
            if (changed(g, old)) return true;
            relax();
        }
        if (shares_core(p, ith)) return false;
    } while (pi__now_ns() - start < spin_ns);
    return false;
}

/* Blocks the calling thread until the gate's word differs from `old`: spins for at most spin_ns, then sleeps. ith: as
 * in shares_core. */
static void gate_wait(const pi__pool *p, int32_t ith, gate *g, uint32_t old, int64_t spin_ns)
{
    if (gate_spin(p, ith, g, old, spin_ns)) return;
    pthread_mutex_lock(&g->mutex);
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->word) == old) pthread_cond_wait(&g->cond, &g->mutex);
    atomic_fetch_sub(&g->sleepers, 1);
    pthread_mutex_unlock(&g->mutex);
}

static void gate_post(gate *g)
{
    atomic_fetch_add(&g->word, 1);
    if (!atomic_load(&g->sleepers)) return;
    pthread_mutex_lock(&g->mutex);
    pthread_cond_broadcast(&g->cond);
    pthread_mutex_unlock(&g->mutex);
}

/* ---------------------------------------------------------------------------------------------------------- cores */

/* Returns the first hardware thread of the core of `cpu`, or cpu itself if the system does not report it. */
static int first_sibling(int cpu)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "r");
    if (!f) return cpu;
    int first;
    if (fscanf(f, "%d", &first) != 1) first = cpu;
    fclose(f);
    return first;
}

/* Returns the number of cores that this process may use; threads true = the number of hardware threads. */
static int32_t count_cores(bool threads)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) {
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        return n > 0 ? (int32_t) n : 1;
    }
    cpu_set_t cores;
    CPU_ZERO(&cores);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &allowed)) continue;
        int first = threads ? i : first_sibling(i);
        CPU_SET(first >= 0 && first < CPU_SETSIZE ? first : i, &cores);
    }
    int n = CPU_COUNT(&cores);
    return n > 0 ? n : 1;
}

/* Sets place from the bits of affinity: one CPU per thread (strict YES, or AUTO with at least n CPUs), else all CPUs of
 * the mask for every thread. */
static void place_by_mask(pi__pool *p)
{
    const uint64_t mask = p->config.affinity;
    const int32_t n_cores = __builtin_popcountll(mask);
    const bool own = p->config.strict == PI__STRICT_YES || (p->config.strict == PI__STRICT_AUTO && n_cores >= p->n);
    for (int32_t ith = 0; ith < p->n; ith++) {
        CPU_ZERO(&p->place[ith]);
        for (int32_t core = 0, i = 0; core < 64; core++) {
            if (!(mask >> core & 1)) continue;
            if (!own || i == ith % n_cores) CPU_SET(core, &p->place[ith]);
            i++;
        }
    }
}

/* Sets place to NUMA nodes: threads round-robin over the nodes, or with PI__NUMA_ISOLATE all threads on the node of the
 * calling thread. */
static void place_by_nodes(pi__pool *p, const cpu_set_t *node, int32_t n_nodes)
{
    const int here = sched_getcpu();
    int32_t own = 0;
    for (int32_t i = 0; i < n_nodes; i++)
        if (here >= 0 && CPU_ISSET(here, &node[i])) own = i;
    for (int32_t ith = 0; ith < p->n; ith++)
        p->place[ith] = node[p->config.numa == PI__NUMA_ISOLATE ? own : ith % n_nodes];
}

static void choose_places(pi__pool *p, cpu_set_t *room)
{
    cpu_set_t node[PI__MAX_NODES];
    int32_t n = 0;
    if (p->config.affinity) {
        p->place = room;
        place_by_mask(p);
        return;
    }
    if (p->config.numa == PI__NUMA_DISTRIBUTE || p->config.numa == PI__NUMA_ISOLATE)
        n = pi__numa_nodes(PI__NUMA_ROOT, node, PI__MAX_NODES);
    if (n < 2) return;
    p->place = room;
    place_by_nodes(p, node, n);
}

/* Pins the calling thread to place[ith] and sets its priority. A setting that the system refuses is ignored. */
void pi__pool_place_thread(pi__pool *p, int32_t ith)
{
    if (p->place) pthread_setaffinity_np(pthread_self(), sizeof p->place[ith], &p->place[ith]);
    if (p->config.prio) pi__prio_set(p->config.prio);
}

/* Returns true if this process may use at least one CPU of the set. */
static bool affinity_usable(uint64_t affinity)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return false;
    for (int core = 0; core < 64; core++) {
        if (affinity >> core & 1 && CPU_ISSET(core, &allowed)) return true;
    }
    return false;
}

/* -------------------------------------------------------------------------------------------------------- workers */

static void *worker_main(void *arg)
{
    worker *w = arg;
    pi__pool *p = w->pool;
    char name[16];
    snprintf(name, sizeof name, "pi-cpu-%d", (int) w->ith);
    pthread_setname_np(pthread_self(), name);
    pi__pool_place_thread(p, w->ith);
    for (uint32_t seen = 0;;) {
        const uint32_t more = atomic_load(&p->more.word);
        const uint64_t told = atomic_load(&p->told);
        const int32_t n = (int32_t) (uint32_t) told;
        if (atomic_load(&p->stop)) return NULL;
        if (w->ith >= n) { /* this thread is not used by the job: waits until a job uses more threads */
            gate_wait(p, w->ith, &p->more, more, 0);
            continue;
        }
        if ((uint32_t) (told >> 32) == seen) {
            gate_wait(p, w->ith, &p->job, seen, p->spin_ns);
            continue;
        }
        seen = (uint32_t) (told >> 32);
        atomic_store_explicit(&w->cpu, sched_getcpu(), memory_order_relaxed);
        p->fn(p->arg, w->ith, n);
        if (atomic_fetch_sub(&p->pending, 1) == 1) gate_post(&p->done);
    }
}

static int start_workers(pi__pool *p, pi_error *err)
{
    int rc = 0;
    for (int32_t i = 1; i < p->n; i++) {
        worker *w = &p->workers[i];
        rc = pi__thread_create(&w->thread, worker_main, w);
        if (rc) break;
        p->n_created++;
    }
    if (!rc) return PI_OK;
    return pi__fail(err, PI_ENOMEM, "thread %d of %d could not be started (error %d)", (int) p->n_created + 1,
                    (int) p->n, rc);
}

/* ------------------------------------------------------------------------------------------------------- the pool */

/* Returns the bytes of a pool, including workers and their core sets. */
static size_t pool_bytes(int32_t n) { return sizeof(pi__pool) + (size_t) n * (sizeof(worker) + sizeof(cpu_set_t)); }

int pi__pool_create(pi__pool **out, int32_t n_threads, uint64_t affinity, int32_t poll, pi_error *err)
{
    return pi__pool_create_with(out, &(pi__pool_config) {.n_threads = n_threads, .affinity = affinity, .poll = poll},
                                err);
}

int pi__pool_create_with(pi__pool **out, const pi__pool_config *config, pi_error *err)
{
    int32_t n_threads = config->n_threads;
    const int32_t poll = config->poll;
    const uint64_t affinity = config->affinity;
    *out = NULL;
    if (n_threads == 0) n_threads = count_cores(false);
    if (n_threads < 1 || n_threads > MAX_THREADS) {
        return pi__fail(err, PI_EINVAL, "threads %d: give 1 to %d", (int) n_threads, MAX_THREADS);
    }
    if (poll < 0 || poll > 100) return pi__fail(err, PI_EINVAL, "poll %d: give 0 to 100", (int) poll);
    if (affinity && !affinity_usable(affinity)) {
        return pi__fail(err, PI_EINVAL, "cpu-mask %llx: this process may use none of these CPUs",
                        (unsigned long long) affinity);
    }
    /* Page-aligned memory: gates are aligned to cache lines of 64 bytes, and pi__malloc only guarantees 16. */
    size_t size = pool_bytes(n_threads);
    pi__pool *p = pi__map(size);
    if (!p) return pi__fail_mem(err, "the thread pool");
    p->n = p->active = n_threads;
    p->config = *config;
    choose_places(p, (cpu_set_t *) (void *) (p->workers + n_threads));
    /* with more threads than hardware threads, a spinning thread would take the CPU from a working thread */
    p->spin_ns = n_threads > count_cores(true) ? 0 : (int64_t) poll * SPIN_UNIT_NS;
    for (int32_t i = 0; i < n_threads; i++) p->workers[i] = (worker){.pool = p, .ith = i, .cpu = -1};
    if (!gate_init(&p->job)) goto out_map;
    if (!gate_init(&p->done)) goto out_job;
    if (!gate_init(&p->barrier)) goto out_done;
    if (!gate_init(&p->more)) goto out_barrier;
    int rc = start_workers(p, err);
    if (rc) {
        pi__pool_destroy(p);
        return rc;
    }
    *out = p;
    return PI_OK;

out_barrier:
    gate_free(&p->barrier);
out_done:
    gate_free(&p->done);
out_job:
    gate_free(&p->job);
out_map:
    pi__unmap(p, size);
    return pi__fail_mem(err, "the thread pool");
}

void pi__pool_destroy(pi__pool *p)
{
    if (!p) return;
    atomic_store(&p->stop, true);
    gate_post(&p->job);
    gate_post(&p->more);
    for (int32_t i = 1; i <= p->n_created; i++) pthread_join(p->workers[i].thread, NULL);
    gate_free(&p->job);
    gate_free(&p->done);
    gate_free(&p->barrier);
    gate_free(&p->more);
    pi__unmap(p, pool_bytes(p->n));
}

int32_t pi__pool_size(const pi__pool *p) { return p->n; }
bool pi__pool_has_places(const pi__pool *p) { return p->place || p->config.prio; }
void pi__pool_use(pi__pool *p, int32_t n) { p->active = n < 1 ? 1 : n < p->n ? n : p->n; }

void pi__pool_run(pi__pool *p, pi__job_fn fn, void *arg)
{
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    const int32_t n = p->active;
    if (n == 1) {
        fn(arg, 0, 1);
        return;
    }
    const uint64_t last = atomic_load_explicit(&p->told, memory_order_relaxed);
    p->fn = fn;
    p->arg = arg;
    atomic_store_explicit(&p->pending, n - 1, memory_order_relaxed);
    uint32_t done = atomic_load_explicit(&p->done.word, memory_order_relaxed);
    atomic_store_explicit(&p->workers[0].cpu, sched_getcpu(), memory_order_relaxed);
    atomic_store(&p->told, ((last >> 32) + 1) << 32 | (uint32_t) n);
    if (n > (int32_t) (uint32_t) last) gate_post(&p->more);
    gate_post(&p->job);
    fn(arg, 0, n);
    gate_wait(p, 0, &p->done, done, p->spin_ns / JOIN_SHARE);
}

void pi__pool_barrier(pi__pool *p)
{
    if (p->active == 1) return;
    uint32_t phase = atomic_load_explicit(&p->barrier.word, memory_order_relaxed);
    if (atomic_fetch_add(&p->arrived, 1) == p->active - 1) {
        atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
        gate_post(&p->barrier);
    } else {
        gate_wait(p, -1, &p->barrier, phase, p->spin_ns / JOIN_SHARE);
    }
}

int32_t pi__pool_next(pi__pool *p, int32_t n)
{
    int32_t i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
    return i < n ? i : -1;
}

void pi__pool_reset(pi__pool *p) { atomic_store_explicit(&p->next, 0, memory_order_relaxed); }
