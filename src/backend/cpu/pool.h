/* Threads of the CPU backend: one job at a time, split by thread index.
 *
 * The caller is thread 0. Workers spin for a while after a job and then sleep; they are joined by destroy. Jobs never
 * nest. Which thread does what never changes a result: jobs split rows and items, never a sum. */
#ifndef PI__POOL_H
#define PI__POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "pagedinfer.h"

typedef struct pi__pool pi__pool;
typedef void (*pi__job_fn)(void *arg, int32_t ith, int32_t nth);

/* n_threads 0: one for each core the process may run on (hardware threads of a core count once). affinity: bit per core,
 * 0: not pinned; with as many bits as threads each gets a core of its own, otherwise all share the set. poll 0..100: how
 * long a waiting thread spins before it sleeps. PI_EINVAL: a number out of range, or no core of the set may be used.
 * PI_ENOMEM: out of memory or threads. */
int pi__pool_create(pi__pool **out, int32_t n_threads, uint64_t affinity, int32_t poll, pi_error *err);
/* The same with more to choose. */
enum { PI__STRICT_AUTO, PI__STRICT_NO, PI__STRICT_YES };
enum { PI__NUMA_NONE, PI__NUMA_DISTRIBUTE, PI__NUMA_ISOLATE, PI__NUMA_NUMACTL };
typedef struct pi__pool_config {
    int32_t n_threads; /* as of create */
    uint64_t affinity; /* the same */
    int32_t poll;      /* the same */
    int strict;        /* PI__STRICT_*: a core of affinity for each thread; auto: if it has enough of them */
    int numa;          /* PI__NUMA_*: without affinity, threads one after the other on each node, or all on the node of the
                        * thread that creates; numactl: where the process may run, as NONE. With one node all are as NONE */
    int prio;          /* -1 low, 0 as it is, 1 medium, 2 high, 3 realtime: see places.h */
} pi__pool_config;
int pi__pool_create_with(pi__pool **out, const pi__pool_config *config, pi_error *err);
/* Not inside a job. NULL does nothing. */
void pi__pool_destroy(pi__pool *p);
/* Gives the calling thread the place and the priority of thread ith; the caller of jobs is thread 0. */
void pi__pool_place_thread(pi__pool *p, int32_t ith);
/* false: that does nothing. */
bool pi__pool_has_places(const pi__pool *p);
/* Threads there are, at most those of a job. */
int32_t pi__pool_size(const pi__pool *p);
/* Jobs have n threads from now on, all until then. Not inside a job. */
void pi__pool_use(pi__pool *p, int32_t n);
/* fn(arg, ith, nth) on every thread that jobs have; returns when all are done, their writes visible. */
void pi__pool_run(pi__pool *p, pi__job_fn fn, void *arg);
/* Inside a job: waits until all threads of the job came here. */
void pi__pool_barrier(pi__pool *p);
/* Inside a job: items 0, 1, 2, ... handed out one by one; -1 past n. reset sets the counter between two uses and must be
 * called by one thread, with a barrier before the next use (run resets it too). */
int32_t pi__pool_next(pi__pool *p, int32_t n);
void pi__pool_reset(pi__pool *p);

#endif
