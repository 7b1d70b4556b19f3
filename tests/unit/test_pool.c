/* The thread pool. Every thread runs every job once, results are visible after run, items are handed out once, and
 * barriers hold. More threads than cores make progress. Failure to start a thread is an error without leaks. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/cpu/places.h"
#include "backend/cpu/pool.h"
#include "base/alloc.h"

/* Replaces pthread_create for the library: call number fail_at fails. */
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
    int32_t n_items;         /* number of items that next hands out */
    int32_t *hits;           /* [n_items] number of times that each item was handed out */
    int64_t per_thread[64];  /* plain memory: a job writes, the caller reads after run */
    _Atomic int32_t entered; /* threads in the job */
    _Atomic int32_t wrong;   /* failed checks in threads */
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

/* Runs n_jobs jobs in sequence on n threads. */
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

/* Each phase: every thread writes its cell, barrier, every thread reads all cells, barrier. `next` restarts in
 * between. */
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

/* Sleeping workers wake up. */
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
    if (ith == 0) return; /* the caller's own mask stays unchanged */
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
    pi__pool_place_thread(p, 0);
    assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof after, &after), 0);
    assert_int_equal(CPU_COUNT(&after), 1);
    pi__pool_destroy(p);
    assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof before, &before), 0);
}

/* Jobs with different numbers of threads, in any order. Exactly the threads of a job run it, once each; barriers and
 * items belong to the job. Some threads sleep meanwhile. */
static void test_fewer_threads(void **state)
{
    (void) state;
    for (int32_t n = 2; n <= 6; n += 2) {
        pi__pool *p = make(n, 0, n == 2 ? 0 : 2);
        int64_t want[64] = {0};
        job j = {.pool = p};
        uint32_t rng = 7;
        for (int i = 0; i < 400; i++) {
            rng = rng * 1664525 + 1013904223;
            const int32_t use = i % 7 ? (int32_t) (rng >> 16) % (n + 2) : 0, k = use < 1 ? 1 : use < n ? use : n;
            pi__pool_use(p, use);
            for (int again = 0; again < 1 + (int) (rng >> 8) % 3; again++) {
                pi__pool_run(p, count_job, &j);
                for (int t = 0; t < k; t++) want[t] += k;
            }
            if (i % 100 == 0) usleep(3000);
            assert_memory_equal(j.per_thread, want, sizeof want);
        }
        pi__pool_use(p, 2);
        j = (job) {.pool = p};
        pi__pool_run(p, barrier_job, &j);
        assert_int_equal(j.wrong, 0);
        pi__pool_use(p, n);
        j = (job) {.pool = p};
        pi__pool_run(p, barrier_job, &j);
        assert_int_equal(j.wrong, 0);
        if (n == 4) pi__pool_use(p, 1); /* destroyed while most threads are unused */
        pi__pool_destroy(p);
    }
}

/* Records the number of processors that a worker may run on. */
static void places_job(void *arg, int32_t ith, int32_t nth)
{
    job *j = arg;
    cpu_set_t set;
    (void) nth;
    if (ith && !pthread_getaffinity_np(pthread_self(), sizeof set, &set)) j->per_thread[ith] = CPU_COUNT(&set);
}

static void test_strict(void **state)
{
    (void) state;
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    uint64_t mask = 0;
    for (int i = 0; i < 64 && __builtin_popcountll(mask) < 2; i++)
        if (CPU_ISSET(i, &all)) mask |= UINT64_C(1) << i;
    if (__builtin_popcountll(mask) < 2) skip();
    static const int want[][2] = {{2, 1}, {3, 2}}; /* threads; processors of each with auto */
    for (int i = 0; i < 2; i++)
        for (int strict = PI__STRICT_AUTO; strict <= PI__STRICT_YES; strict++) {
            pi__pool *p;
            job j = {0};
            const pi__pool_config c = {.n_threads = want[i][0], .affinity = mask, .poll = 1, .strict = strict};
            assert_int_equal(pi__pool_create_with(&p, &c, NULL), PI_OK);
            assert_true(pi__pool_has_places(p));
            pi__pool_run(p, places_job, &j);
            const int each = strict == PI__STRICT_AUTO ? want[i][1] : strict == PI__STRICT_YES ? 1 : 2;
            for (int t = 1; t < want[i][0]; t++) assert_int_equal(j.per_thread[t], each);
            pi__pool_destroy(p);
        }
}

static void put_file(const char *dir, const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
    strcat(path, "/cpulist");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_nodes(void **state)
{
    (void) state;
    char dir[] = "/tmp/pi_nodes_XXXXXX", text[64], cmd[64];
    cpu_set_t all, node[4];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all)) first++;
    snprintf(text, sizeof text, "%d\n", first);
    put_file(dir, "node0", text);
    put_file(dir, "node1", "\n"); /* a node with memory only */
    put_file(dir, "node2", "0-1023\n");
    put_file(dir, "node5", "0-3,x\n");
    put_file(dir, "node7", "1000000-1000003\n");
    assert_int_equal(pi__numa_nodes(dir, node, 4), 2);
    assert_true(CPU_COUNT(&node[0]) == 1 && CPU_ISSET(first, &node[0]));
    assert_true(CPU_EQUAL(&node[1], &all));
    assert_int_equal(pi__numa_nodes(dir, node, 1), 1);
    assert_int_equal(pi__numa_nodes("/nowhere", node, 4), 0);
    snprintf(cmd, sizeof cmd, "rm -r %s", dir);
    assert_int_equal(system(cmd), 0);
    for (int numa = PI__NUMA_NONE; numa <= PI__NUMA_NUMACTL; numa++) { /* for any topology of this machine */
        pi__pool *p;
        const pi__pool_config c = {.n_threads = 3, .poll = 1, .numa = numa};
        job j = {0};
        assert_int_equal(pi__pool_create_with(&p, &c, NULL), PI_OK);
        pi__pool_run(p, count_job, &j);
        for (int t = 0; t < 3; t++) assert_int_equal(j.per_thread[t], 3);
        pi__pool_destroy(p);
    }
}

static void nice_job(void *arg, int32_t ith, int32_t nth)
{
    job *j = arg;
    (void) nth;
    j->per_thread[ith] = getpriority(PRIO_PROCESS, (id_t) syscall(SYS_gettid));
}

static void test_priority(void **state)
{
    (void) state;
    const int before = getpriority(PRIO_PROCESS, (id_t) syscall(SYS_gettid));
    pi__pool *p;
    job j = {0};
    const pi__pool_config c = {.n_threads = 3, .poll = 1, .prio = -1};
    assert_int_equal(pi__pool_create_with(&p, &c, NULL), PI_OK);
    pi__pool_run(p, nice_job, &j);
    assert_int_equal(j.per_thread[0], before); /* pi__pool_place_thread would change the caller's own priority */
    for (int t = 1; t < 3; t++) assert_int_equal(j.per_thread[t], 10);
    pi__pool_destroy(p);
    for (int prio = -1; prio <= 3; prio++) {
        const bool allowed = pi__prio_allowed(prio);
        assert_true(allowed || prio > 0);
        assert_int_equal(getpriority(PRIO_PROCESS, (id_t) syscall(SYS_gettid)), before);
        assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
    }
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
        cmocka_unit_test(test_fewer_threads), cmocka_unit_test(test_strict), cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_priority),    cmocka_unit_test(test_refused), cmocka_unit_test(test_thread_cannot_start),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
