/* The thread pool: every thread runs every job once, results are visible after run, items are handed out once, barriers
 * hold, more threads than cores get through, and a thread that cannot be started is a clean error. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "backend/cpu/pool.h"
#include "base/alloc.h"

/* pthread_create as the library sees it: the call number fail_at fails. */
static int fail_at = -1;
static int n_calls;

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*) (void *), void *);
    void *sym = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&real, &sym, sizeof real);
    if (n_calls++ == fail_at) return 11;
    return real(t, attr, fn, arg);
}

typedef struct job {
    pi__pool *pool;
    int32_t n_items;         /* of next */
    int32_t *hits;           /* [n_items] how often an item was handed out */
    int64_t per_thread[64];  /* plain memory: a job writes, the caller reads after run */
    _Atomic int32_t entered; /* threads in the job */
    _Atomic int32_t wrong;   /* broken expectations seen by threads */
} job;

static pi__pool *make(int32_t n, uint64_t affinity, int32_t poll)
{
    pi__pool *p;
    pi_error err;
    assert_int_equal(pi__pool_create(&p, n, affinity, poll, &err), PI_OK);
    return p;
}

static void count_job(void *arg, int32_t ith, int32_t nth)
{
    job *j = arg;
    j->per_thread[ith] += nth;
}

/* n_jobs one after the other on n threads. */
static void run_many(int32_t n, int32_t poll, int n_jobs)
{
    pi__pool *p = make(n, 0, poll);
    assert_int_equal(pi__pool_size(p), n);
    job j = {.pool = p};
    for (int i = 0; i < n_jobs; i++) {
        pi__pool_run(p, count_job, &j);
        for (int32_t t = 0; t < n; t++) assert_int_equal(j.per_thread[t], (int64_t) n * (i + 1));
    }
    pi__pool_destroy(p);
}

static void test_many_jobs(void **state)
{
    (void) state;
    run_many(1, 50, 10000);
    run_many(2, 50, 10000);
    run_many(2, 0, 2000);
}

static void test_oversubscribed(void **state)
{
    (void) state;
    run_many(8, 50, 2000);
    run_many(64, 100, 100);
}

static void next_job(void *arg, int32_t ith, int32_t nth)
{
    job *j = arg;
    (void) ith;
    (void) nth;
    for (int32_t i; (i = pi__pool_next(j->pool, j->n_items)) >= 0;) j->hits[i]++;
    if (pi__pool_next(j->pool, j->n_items) != -1) j->wrong++;
}

static void test_next(void **state)
{
    (void) state;
    int32_t hits[1000];
    for (int32_t n = 1; n <= 8; n *= 2) {
        pi__pool *p = make(n, 0, 50);
        for (int round = 0; round < 50; round++) {
            job j = {.pool = p, .n_items = round * 20, .hits = hits};
            memset(hits, 0, sizeof hits);
            pi__pool_run(p, next_job, &j);
            for (int32_t i = 0; i < 1000; i++) assert_int_equal(hits[i], i < j.n_items);
            assert_int_equal(j.wrong, 0);
        }
        pi__pool_destroy(p);
    }
}

enum { PHASES = 200 };

/* Each phase: all write their cell, barrier, all look at everybody's cell, barrier; between, next starts anew. */
static void barrier_job(void *arg, int32_t ith, int32_t nth)
{
    job *j = arg;
    for (int phase = 1; phase <= PHASES; phase++) {
        j->per_thread[ith] = phase;
        pi__pool_barrier(j->pool);
        for (int32_t t = 0; t < nth; t++) {
            if (j->per_thread[t] != phase) j->wrong++;
        }
        for (int32_t i; (i = pi__pool_next(j->pool, j->n_items)) >= 0;) j->hits[i]++;
        pi__pool_barrier(j->pool);
        if (ith == phase % nth) pi__pool_reset(j->pool);
        pi__pool_barrier(j->pool);
    }
}

static void test_barrier(void **state)
{
    (void) state;
    for (int32_t n = 1; n <= 8; n *= 2) {
        pi__pool *p = make(n, 0, n == 4 ? 0 : 50);
        int32_t hits[37] = {0};
        job j = {.pool = p, .n_items = 37, .hits = hits};
        pi__pool_run(p, barrier_job, &j);
        assert_int_equal(j.wrong, 0);
        for (int i = 0; i < 37; i++) assert_int_equal(hits[i], PHASES);
        pi__pool_destroy(p);
    }
}

/* Workers that went to sleep come back. */
static void test_sleep_and_wake(void **state)
{
    (void) state;
    pi__pool *p = make(3, 0, 1);
    job j = {.pool = p};
    for (int i = 1; i <= 20; i++) {
        struct timespec ts = {0, 3000000};
        nanosleep(&ts, NULL);
        pi__pool_run(p, count_job, &j);
        for (int t = 0; t < 3; t++) assert_int_equal(j.per_thread[t], 3 * i);
    }
    pi__pool_destroy(p);
}

static void pinned_job(void *arg, int32_t ith, int32_t nth)
{
    job *j = arg;
    (void) nth;
    cpu_set_t set;
    if (ith == 0) return; /* the caller's own mask is not touched */
    if (pthread_getaffinity_np(pthread_self(), sizeof set, &set) || CPU_COUNT(&set) != 1) j->wrong++;
}

static void test_affinity(void **state)
{
    (void) state;
    cpu_set_t before, after;
    assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof before, &before), 0);
    uint64_t first = 0;
    for (int i = 63; i >= 0; i--) {
        if (CPU_ISSET(i, &before)) first = UINT64_C(1) << i;
    }
    if (!first) skip();
    pi__pool *p = make(3, first, 50);
    job j = {.pool = p};
    for (int i = 0; i < 20; i++) pi__pool_run(p, pinned_job, &j);
    assert_int_equal(j.wrong, 0);
    assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    pi__pool_pin_caller(p);
    assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof after, &after), 0);
    assert_int_equal(CPU_COUNT(&after), 1);
    pi__pool_destroy(p);
    assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof before, &before), 0);
}

static void test_refused(void **state)
{
    (void) state;
    pi__pool *p = (pi__pool *) state;
    pi_error err;
    assert_int_equal(pi__pool_create(&p, -1, 0, 50, &err), PI_EINVAL);
    assert_null(p);
    assert_int_equal(pi__pool_create(&p, 100000, 0, 50, &err), PI_EINVAL);
    assert_int_equal(pi__pool_create(&p, 2, 0, 101, &err), PI_EINVAL);
    assert_int_equal(pi__pool_create(&p, 2, 0, -1, NULL), PI_EINVAL);
    pi__pool_destroy(NULL);
    p = make(0, 0, 50);
    assert_true(pi__pool_size(p) >= 1);
    pi__pool_destroy(p);
}

static void test_thread_cannot_start(void **state)
{
    (void) state;
    for (int i = 0; i < 4; i++) {
        pi__pool *p = (pi__pool *) state;
        pi_error err = {0};
        n_calls = 0;
        fail_at = i;
        assert_int_equal(pi__pool_create(&p, 5, 0, 50, &err), PI_ENOMEM);
        fail_at = -1;
        assert_null(p);
        assert_int_equal(err.code, PI_ENOMEM);
        assert_non_null(strstr(err.msg, "thread"));
    }
}

static void *no_map(void *ud, size_t size) { (void) ud; (void) size; return NULL; }
static void no_unmap(void *ud, void *p, size_t size) { (void) ud; (void) p; (void) size; }
static void *ud_malloc(void *ud, size_t n) { (void) ud; return malloc(n); }
static void *ud_realloc(void *ud, void *p, size_t n) { (void) ud; return realloc(p, n); }
static void ud_free(void *ud, void *p) { (void) ud; free(p); }

static void test_no_memory(void **state)
{
    (void) state;
    pi_allocator a = {sizeof a, NULL, ud_malloc, ud_realloc, ud_free, no_map, no_unmap};
    assert_int_equal(pi_set_allocator(&a), PI_OK);
    pi__pool *p = (pi__pool *) state;
    pi_error err;
    int rc = pi__pool_create(&p, 2, 0, 50, &err);
    pi_set_allocator(NULL);
    assert_int_equal(rc, PI_ENOMEM);
    assert_null(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_jobs),   cmocka_unit_test(test_oversubscribed), cmocka_unit_test(test_next),
        cmocka_unit_test(test_barrier),     cmocka_unit_test(test_sleep_and_wake), cmocka_unit_test(test_affinity),
        cmocka_unit_test(test_refused),     cmocka_unit_test(test_thread_cannot_start), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
