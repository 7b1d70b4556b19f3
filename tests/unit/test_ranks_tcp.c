/* Ranks over TCP, with threads in the place of processes: what goes between them arrives; connections that are no rank's are
 * dropped and hold up nobody; who does not come, or is of something else, is an error within the time; one that is gone ends the
 * others' calls. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/ranks_tcp.h"
#include "base/clock.h"
#include "base/error.h"

enum { N = 3 };

typedef struct process {
    pi__ranks_tcp t;
    pi__tcp_place at;
    int32_t rank, n;
    double timeout_ms;
    void (*then)(struct process *p); /* when it has joined */
    int code;
    pi_error err;
    pthread_t thread;
} process;

static char port[16];
static atomic_int n_dropped; /* log lines of connections */

static void count_line(void *ud, int level, const char *line)
{
    (void) ud;
    (void) level;
    if (strstr(line, "is dropped")) atomic_fetch_add(&n_dropped, 1);
}

/* A port that nobody has. */
static void choose_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *) &a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *) &a, &size), 0);
    snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
    close(fd);
}

static void *process_main(void *arg)
{
    process *p = arg;
    const pi__log log = {count_line, NULL, PI_LOG_WARN};
    p->code = pi__tcp_join(&p->t, &p->at, p->rank, p->n, p->timeout_ms, &log, &p->err);
    if (!p->code && p->then) p->then(p);
    return NULL;
}

static void start(process *p, int32_t rank, double timeout_ms, void (*then)(process *p))
{
    *p = (process) {.rank = rank, .n = N, .timeout_ms = timeout_ms, .then = then, .at = {"127.0.0.1", port, "job", -1}};
    assert_int_equal(pthread_create(&p->thread, NULL, process_main, p), 0);
}

static void end(process *p, int code)
{
    assert_int_equal(pthread_join(p->thread, NULL), 0);
    if (p->code != code) fail_msg("rank %d: %d %s", p->rank, p->code, p->err.msg);
    pi__tcp_close(&p->t);
}

/* A connection that sends some bytes, or none, and stays. */
static int stray(const void *bytes, size_t n)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t) atoi(port))};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; connect(fd, (struct sockaddr *) &a, sizeof a); i++) {
        assert_true(i < 2000);
        usleep(1000);
    }
    if (n) assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
    return fd;
}

/* ---- calls */

enum { BIG = 3 << 20 };

static void all_calls(process *p)
{
    pi__ranks *r = &p->t.r;
    uint8_t small[N * 5], *big = malloc((size_t) BIG * N);
    assert_non_null(big);
    for (int round = 0; round < 20; round++) {
        memset(small, r->rank ? 0 : round, sizeof small);
        assert_true(r->fns->bcast(r, small, sizeof small, 1e4));
        for (size_t i = 0; i < sizeof small; i++) assert_int_equal(small[i], round);
        memset(small + 5 * r->rank, 100 + r->rank, 5);
        assert_true(r->fns->gather(r, small, 5, -1));
        for (size_t i = 0; i < sizeof small; i++) assert_int_equal(small[i], 100 + i / 5);
    }
    memset(big + (size_t) BIG * (size_t) r->rank, 1 + r->rank, BIG);
    assert_true(r->fns->gather(r, big, BIG, 1e4));
    for (size_t i = 0; i < (size_t) BIG * N; i += 997) assert_int_equal(big[i], 1 + i / BIG);
    for (int32_t to = 1; to < N; to++) {
        memset(big, to, BIG);
        if (!r->rank) assert_true(r->fns->send(r, to, big, BIG, 1e4));
        if (r->rank != to) continue;
        memset(big, 0, BIG);
        assert_true(r->fns->receive(r, big, BIG, 1e4));
        for (size_t i = 0; i < BIG; i += 991) assert_int_equal(big[i], to);
    }
    assert_int_equal(r->local, r->rank); /* all are on one machine */
    assert_int_equal(r->n_local, N);
    free(big);
}

static void test_calls(void **st)
{
    (void) st;
    process p[N];
    choose_port();
    for (int32_t i = N - 1; i >= 0; i--) start(&p[i], i, 1e4, all_calls); /* rank 0 comes last */
    for (int32_t i = 0; i < N; i++) end(&p[i], PI_OK);
}

/* Connections before and between the ranks': silent ones, others' words, a hello with a wrong key. */
static void test_strays(void **st)
{
    (void) st;
    static const char http[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    static const char hello[512] = "PIRANKS";
    process p[N];
    int fd[44];
    choose_port();
    atomic_store(&n_dropped, 0);
    start(&p[0], 0, 2e4, all_calls);
    for (int i = 0; i < 40; i++) fd[i] = stray(NULL, 0); /* more than may wait */
    fd[40] = stray(http, sizeof http);
    fd[41] = stray("PIRANK!", 8);
    fd[42] = stray(hello, sizeof hello);
    fd[43] = stray("PI", 2);
    const double t0 = pi__now_ms();
    for (int32_t i = 1; i < N; i++) start(&p[i], i, 2e4, all_calls);
    for (int32_t i = 0; i < N; i++) end(&p[i], PI_OK);
    assert_true(pi__now_ms() - t0 < 1.5e4);
    assert_true(atomic_load(&n_dropped) >= 8 + 3);
    for (int i = 0; i < 44; i++) close(fd[i]);
}

/* One is missing; one has the number of another, or is of another job; and rank 0 is. */
static void test_missing(void **st)
{
    (void) st;
    process p[N];
    choose_port();
    double t0 = pi__now_ms();
    for (int32_t i = 0; i < 2; i++) start(&p[i], i, 300, NULL);
    for (int32_t i = 0; i < 2; i++) end(&p[i], PI_EDEVICE);
    assert_non_null(strstr(p[0].err.msg, "2 of 3 ranks came"));
    assert_true(pi__now_ms() - t0 < 5000);
    start(&p[1], 1, 150, NULL);
    end(&p[1], PI_EDEVICE);
    assert_non_null(strstr(p[1].err.msg, "does not listen"));

    choose_port();
    start(&p[0], 0, 900, NULL);
    start(&p[1], 1, 900, NULL);
    usleep(100000);
    start(&p[2], 1, 900, NULL);
    end(&p[2], PI_EUNSUPPORTED);
    assert_non_null(strstr(p[2].err.msg, "its RANK has come already"));
    p[2] = (process) {.rank = 2, .n = N, .timeout_ms = 900, .at = {"127.0.0.1", port, "another", -1}};
    assert_int_equal(pthread_create(&p[2].thread, NULL, process_main, &p[2]), 0);
    end(&p[2], PI_EUNSUPPORTED);
    assert_non_null(strstr(p[2].err.msg, "of another job"));
    for (int32_t i = 0; i < 2; i++) end(&p[i], PI_EDEVICE);
}

/* Rank 2 ends; the others' next call that needs it fails at once, and one that waits for a silent one when it is time. */
static void dies(process *p)
{
    pi__ranks *r = &p->t.r;
    uint8_t buf[N * 4] = {0};
    assert_true(r->fns->gather(r, buf, 4, 1e4));
    if (r->rank == 2) {
        pi__tcp_close(&p->t);
        return;
    }
    const double t0 = pi__now_ms();
    assert_false(r->fns->gather(r, buf, 4, r->rank ? 2000 : 10000));
    assert_true(pi__now_ms() - t0 < 5000);
    pi__tcp_close(&p->t);
}

static void test_death(void **st)
{
    (void) st;
    process p[N];
    choose_port();
    for (int32_t i = 0; i < N; i++) start(&p[i], i, 1e4, dies);
    for (int32_t i = 0; i < N; i++) end(&p[i], PI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls), cmocka_unit_test(test_strays), cmocka_unit_test(test_missing),
                                       cmocka_unit_test(test_death)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
