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
/* Not inside a job. NULL does nothing. */
void pi__pool_destroy(pi__pool *p);
/* Pins the calling thread as thread 0; does nothing without an affinity. */
void pi__pool_pin_caller(pi__pool *p);
int32_t pi__pool_size(const pi__pool *p);
/* fn(arg, ith, nth) on every thread; returns when all are done, their writes visible. */
void pi__pool_run(pi__pool *p, pi__job_fn fn, void *arg);
/* Inside a job: waits until all threads of the job came here. */
void pi__pool_barrier(pi__pool *p);
/* Inside a job: items 0, 1, 2, ... handed out one by one; -1 past n. reset sets the counter between two uses and must be
 * called by one thread, with a barrier before the next use (run resets it too). */
int32_t pi__pool_next(pi__pool *p, int32_t n);
void pi__pool_reset(pi__pool *p);

#endif
