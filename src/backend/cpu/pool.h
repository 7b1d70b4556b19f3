/* Thread pool of the CPU backend: runs one job at a time, split by thread index.
 *
 * The caller is thread 0. Workers spin for a while after a job and then sleep; pi__pool_destroy joins them. Jobs never
 * nest. The assignment of work to threads never changes a result: jobs split rows and items, never a sum. */
#ifndef PI__POOL_H
#define PI__POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "pagedinfer.h"

typedef struct pi__pool pi__pool;
typedef void (*pi__job_fn)(void *arg, int32_t ith, int32_t nth);

/* Creates a pool. n_threads 0 = one thread per core that the process may use (hardware threads of a core count once).
 * affinity: bit i = CPU i (a hardware thread), 0 = threads are not pinned. If the set has at least n_threads CPUs, each
 * thread gets one of its own; else all threads share the set. poll 0..100: time that a waiting thread spins before it
 * sleeps, in units of 40 us. Returns PI_EINVAL if a number is out of range or the process may use no CPU of the set;
 * PI_ENOMEM if memory or threads are exhausted. */
int pi__pool_create(pi__pool **out, int32_t n_threads, uint64_t affinity, int32_t poll, pi_error *err);
/* pi__pool_create with more options. */
enum { PI__STRICT_AUTO, PI__STRICT_NO, PI__STRICT_YES };
enum { PI__NUMA_NONE, PI__NUMA_DISTRIBUTE, PI__NUMA_ISOLATE, PI__NUMA_NUMACTL };
typedef struct pi__pool_config {
    int32_t n_threads; /* as in pi__pool_create */
    uint64_t affinity; /* as in pi__pool_create */
    int32_t poll;      /* as in pi__pool_create */
    /* PI__STRICT_*. YES: thread i gets CPU number i mod count of affinity; NO: all threads share its CPUs; AUTO: YES if
     * there is a CPU per thread, else NO */
    int strict;
    /* PI__NUMA_*; used only if affinity is 0. DISTRIBUTE: threads round-robin over nodes; ISOLATE: all on the creating
     * thread's node; NONE and NUMACTL: the process's own CPU mask applies. With one node all are like NONE. */
    int numa;
    /* priority of the threads: -1 low, 0 unchanged, 1 medium, 2 high, 3 realtime; see pi__prio_set */
    int prio;
} pi__pool_config;
int pi__pool_create_with(pi__pool **out, const pi__pool_config *config, pi_error *err);
/* Ends the threads and frees p; NULL is a no-op. Must not be called inside a job. */
void pi__pool_destroy(pi__pool *p);
/* Gives the calling thread the CPUs and the priority of the pool's thread ith. Callers use it for thread 0, which the
 * pool does not create. */
void pi__pool_place_thread(pi__pool *p, int32_t ith);
/* Returns false if the pool sets neither CPUs nor a priority for its threads, so that pi__pool_place_thread has no
 * effect. */
bool pi__pool_has_places(const pi__pool *p);
/* Returns the number of threads of the pool, thread 0 included. */
int32_t pi__pool_size(const pi__pool *p);
/* Sets the number of threads that the following jobs use; initially all. Must not be called inside a job. */
void pi__pool_use(pi__pool *p, int32_t n);
/* Runs fn(arg, ith, nth) on the nth threads in use; the caller is ith 0. Returns when all threads have returned from fn
 * and their writes are visible. */
void pi__pool_run(pi__pool *p, pi__job_fn fn, void *arg);
/* Inside a job: waits until all threads of the job have called this. */
void pi__pool_barrier(pi__pool *p);
/* Inside a job: a counter common to all threads. Each call, on any thread, returns the next of 0, 1, 2, ..., n - 1, and
 * then -1. pi__pool_reset sets the counter to 0: one thread calls it, and a barrier must follow before the next use.
 * pi__pool_run also resets the counter. */
int32_t pi__pool_next(pi__pool *p, int32_t n);
void pi__pool_reset(pi__pool *p);

#endif
