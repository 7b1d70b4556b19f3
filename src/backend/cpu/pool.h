/* Thread pool of the CPU backend: runs one job at a time, split by thread index.
 *
 * The caller is thread 0. Workers spin for a while after a job and then sleep; destroy joins them. Jobs never nest.
 * The assignment of work to threads never changes a result: jobs split rows and items, never a sum. */
#ifndef PI__POOL_H
#define PI__POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "pagedinfer.h"

typedef struct pi__pool pi__pool;
typedef void (*pi__job_fn)(void *arg, int32_t ith, int32_t nth);

/* Creates a pool. n_threads 0 = one thread per core that the process may use (hardware threads of a core count once).
 * affinity: one bit per core, 0 = threads are not pinned. With at least one bit per thread each thread gets its own
 * core; else all threads share the set. poll 0..100: time that a waiting thread spins before it sleeps, in units of
 * 40 us. Returns PI_EINVAL if a number is out of range or no core of the set may be used; PI_ENOMEM if memory or
 * threads are exhausted. */
int pi__pool_create(pi__pool **out, int32_t n_threads, uint64_t affinity, int32_t poll, pi_error *err);
/* pi__pool_create with more options. */
enum { PI__STRICT_AUTO, PI__STRICT_NO, PI__STRICT_YES };
enum { PI__NUMA_NONE, PI__NUMA_DISTRIBUTE, PI__NUMA_ISOLATE, PI__NUMA_NUMACTL };
typedef struct pi__pool_config {
    int32_t n_threads; /* as in pi__pool_create */
    uint64_t affinity; /* as in pi__pool_create */
    int32_t poll;      /* as in pi__pool_create */
    /* PI__STRICT_*. YES: each thread gets one core of affinity; NO: all threads share them; AUTO: one each if
     * there are enough */
    int strict;
    /* PI__NUMA_*; used only without affinity. DISTRIBUTE: threads round-robin over nodes; ISOLATE: all on the creating
     * thread's node; NUMACTL: like NONE, the process's own mask applies. With one node all are like NONE. */
    int numa;
    /* priority of the threads: -1 low, 0 unchanged, 1 medium, 2 high, 3 realtime; see pi__prio_set */
    int prio;
} pi__pool_config;
int pi__pool_create_with(pi__pool **out, const pi__pool_config *config, pi_error *err);
/* Ends the threads and frees p; NULL is a no-op. Must not be called inside a job. */
void pi__pool_destroy(pi__pool *p);
/* Gives the calling thread the cores and the priority of the pool's thread ith. For thread 0, which the pool does
 * not create. */
void pi__pool_place_thread(pi__pool *p, int32_t ith);
/* Returns false if threads have neither cores nor a priority of their own, so that pi__pool_place_thread has no
 * effect. */
bool pi__pool_has_places(const pi__pool *p);
/* Returns the number of threads of the pool, thread 0 included. */
int32_t pi__pool_size(const pi__pool *p);
/* Sets the number of threads that the following jobs use; initially all. Must not be called inside a job. */
void pi__pool_use(pi__pool *p, int32_t n);
/* Runs fn(arg, ith, nth) on the nth threads in use; the caller is ith 0. Returns when all are done and their writes
 * are visible. */
void pi__pool_run(pi__pool *p, pi__job_fn fn, void *arg);
/* Inside a job: waits until all threads of the job have called this. */
void pi__pool_barrier(pi__pool *p);
/* Inside a job: each call returns the next of the items 0, 1, 2, ..., n - 1, on any thread, and then -1. reset
 * starts again from 0: one thread calls it, and a barrier must follow before the next use. pi__pool_run also resets
 * the counter. */
int32_t pi__pool_next(pi__pool *p, int32_t n);
void pi__pool_reset(pi__pool *p);

#endif
