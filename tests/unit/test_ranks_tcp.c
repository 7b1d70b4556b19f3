/* Ranks over TCP; here they are threads. Data between ranks arrive. Foreign connections are dropped without delaying
 * ranks. A missing rank, or a rank of another job, is an error within the timeout. If a rank exits, pending calls of
 * the others end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
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
    void (*then)(struct process *p); /* called after the rank has joined */
    int rounds;                      /* number of completed rounds of calls */
    int code;
    pi_error err;
    pthread_t thread;
} process;

static char port[16];
static atomic_int n_dropped; /* log lines about dropped connections */

static void count_line(void *ud, int level, const char *line)
{
    (void) ud;
    (void) level;
    if (strstr(line, "dropped a connection")) atomic_fetch_add(&n_dropped, 1);
}

/* Chooses an unused port. */
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

static const char *secret; /* secret of ranks that start after this; NULL = no secret */

static void start(process *p, int32_t rank, double timeout_ms, void (*then)(process *p))
{
    *p = (process) {.rank = rank, .n = N, .timeout_ms = timeout_ms, .then = then,
                    .at = {"127.0.0.1", port, "job", -1, secret, secret ? strlen(secret) : 0}};
    assert_int_equal(pthread_create(&p->thread, NULL, process_main, p), 0);
}

static void end(process *p, int code)
{
    assert_int_equal(pthread_join(p->thread, NULL), 0);
    if (p->code != code) fail_msg("rank %d: %d %s", p->rank, p->code, p->err.msg);
    pi__tcp_close(&p->t);
}

/* Opens a connection that sends some bytes or none, and stays open. */
static int stray(const void *bytes, size_t n)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t) atoi(port))};
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
    assert_int_equal(r->local, r->rank); /* all ranks are on one machine */
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

/* ---- secrets */

static void a_secret_joins(void **st)
{
    secret = "a secret of thirty-two characters";
    test_calls(st);
    secret = NULL;
}

static void another_secret_is_refused(void **st)
{
    (void) st;
    process p[N];
    choose_port();
    for (int32_t i = 0; i < N; i++) {
        secret = i == 2 ? "one secret of thirty-two characters" : "the secret of thirty-two characters";
        start(&p[i], i, 900, NULL);
    }
    end(&p[2], PI_EUNSUPPORTED);
    assert_non_null(strstr(p[2].err.msg, "another secret"));
    end(&p[0], PI_EDEVICE), end(&p[1], PI_EDEVICE);
    secret = NULL;
}

/* Rank 0 has a secret and a rank has none, or the reverse. */
static void one_side_without_a_secret_is_refused(void **st)
{
    (void) st;
    for (int32_t without = 0; without < 2; without++) {
        process p[N];
        choose_port();
        for (int32_t i = 0; i < N; i++) {
            secret = i == without ? NULL : "the secret of thirty-two characters";
            start(&p[i], i, 600, NULL);
        }
        for (int32_t i = 0; i < N; i++) end(&p[i], i && (!without || i == without) ? PI_EUNSUPPORTED : PI_EDEVICE);
    }
    secret = NULL;
}

static void a_network_needs_a_secret(void **st)
{
    (void) st;
    static const char *const hosts[] = {"192.0.2.1", "0.0.0.0", "::", "2001:db8::1"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        for (int32_t rank = 0; rank < 2; rank++) {
            process p = {.rank = rank, .n = 2, .at = {hosts[i], "29500", "job", -1, NULL, 0}};
            pi_error err = {0};
            assert_int_equal(pi__tcp_join(&p.t, &p.at, rank, 2, 100, NULL, &err), PI_EINVAL);
            assert_non_null(strstr(err.msg, "--rank-secret"));
        }
}

/* A proxy between rank 0 and the others that changes one bit of a byte in transit. */
typedef struct middle {
    int listener, fd[2];      /* [0] to the rank, [1] to rank 0 */
    bool down;                /* change a byte that goes to the rank */
    size_t at, n[2];          /* index of the byte; number of bytes sent from fd[i] */
    pthread_t thread;
} middle;

static int connect_to(const char *to)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t) atoi(to))};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; i < 3000 && connect(fd, (struct sockaddr *) &a, sizeof a); i++) usleep(1000);
    return fd;
}

static void *middle_main(void *arg)
{
    middle *m = arg;
    char buf[65536];
    m->fd[0] = accept(m->listener, NULL, NULL);
    m->fd[1] = connect_to(port);
    for (bool open = true; open;) {
        struct pollfd p[2] = {{m->fd[0], POLLIN, 0}, {m->fd[1], POLLIN, 0}};
        if (poll(p, 2, 20000) <= 0) break;
        for (int i = 0; i < 2 && open; i++) {
            if (!p[i].revents) continue;
            const ssize_t n = recv(m->fd[i], buf, sizeof buf, 0);
            if (n > 0 && i == m->down && m->at >= m->n[i] && m->at < m->n[i] + (size_t) n) buf[m->at - m->n[i]] ^= 4;
            open = n > 0 && send(m->fd[!i], buf, (size_t) n, MSG_NOSIGNAL) == n;
            m->n[i] += n > 0 ? (size_t) n : 0;
        }
    }
    for (int i = 0; i < 2; i++) close(m->fd[i]);
    close(m->listener);
    return NULL;
}

enum { ROUNDS = 8 };

/* Collective calls through the proxy must return the correct data or fail. */
static void calls_or_nothing(process *p)
{
    pi__ranks *r = &p->t.r;
    uint8_t small[2 * 5];
    for (int round = 0; round < ROUNDS; round++) {
        memset(small, r->rank ? 0 : round, sizeof small);
        if (!r->fns->bcast(r, small, sizeof small, 2000)) break;
        for (size_t i = 0; i < sizeof small; i++) assert_int_equal(small[i], round);
        memset(small + 5 * r->rank, 100 + r->rank, 5);
        if (!r->fns->gather(r, small, 5, 2000)) break;
        for (size_t i = 0; i < sizeof small; i++) assert_int_equal(small[i], 100 + i / 5);
        p->rounds++;
    }
    pi__tcp_close(&p->t);
}

/* Runs two ranks through a proxy that changes byte `at` of one direction. Returns true if the result is right: calls
 * fail if the byte was sent, and all succeed if it was not. */
static bool changed_byte_is_not_taken(bool down, size_t at, double timeout_ms)
{
    process p[2];
    middle m = {.down = down, .at = at};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    char door[16];
    choose_port();
    m.listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(m.listener, (struct sockaddr *) &a, sizeof a), 0);
    assert_int_equal(listen(m.listener, 1), 0);
    assert_int_equal(getsockname(m.listener, (struct sockaddr *) &a, &size), 0);
    snprintf(door, sizeof door, "%d", ntohs(a.sin_port));
    assert_int_equal(pthread_create(&m.thread, NULL, middle_main, &m), 0);
    for (int32_t k = 0; k < 2; k++) {
        p[k] = (process) {.rank = k, .n = 2, .timeout_ms = timeout_ms, .then = calls_or_nothing,
                          .at = {"127.0.0.1", k ? door : port, "job", -1, secret, strlen(secret)}};
        assert_int_equal(pthread_create(&p[k].thread, NULL, process_main, &p[k]), 0);
    }
    for (int32_t k = 0; k < 2; k++) {
        assert_int_equal(pthread_join(p[k].thread, NULL), 0);
        pi__tcp_close(&p[k].t);
    }
    assert_int_equal(pthread_join(m.thread, NULL), 0);
    const bool all = p[0].rounds + p[1].rounds == 2 * ROUNDS;
    return all == (m.n[m.down] <= m.at);
}

/* A changed byte of the handshake is noticed at the timeout, so that is short. A busy machine may need the long one. */
static void changed_bytes_are_never_taken(void **st)
{
    (void) st;
    secret = "the secret of thirty-two characters";
    for (int i = 0; i < 48; i++) {
        const size_t at = (size_t) (i < 24 ? i * 17 : 300 + i * 3);
        assert_true(changed_byte_is_not_taken(i & 1, at, 700) || changed_byte_is_not_taken(i & 1, at, 30000));
    }
    secret = NULL;
}

/* Without a listener on the port, a connecting rank does not connect to itself. */
static void no_rank_meets_itself(void **st)
{
    (void) st;
    process p;
    choose_port();
    start(&p, 1, 400, NULL);
    end(&p, PI_EDEVICE);
    assert_non_null(strstr(p.err.msg, "does not listen"));
}

/* Foreign connections before and between the ranks' own: silent ones, other protocols, a hello with a wrong key. */
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
    for (int i = 0; i < 40; i++) fd[i] = stray(NULL, 0); /* more than the backlog */
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

/* A missing rank, a duplicate rank number, a rank of another job, and a missing rank 0 are errors. */
static void test_missing(void **st)
{
    (void) st;
    process p[N];
    choose_port();
    double t0 = pi__now_ms();
    for (int32_t i = 0; i < 2; i++) start(&p[i], i, 300, NULL);
    for (int32_t i = 0; i < 2; i++) end(&p[i], PI_EDEVICE);
    assert_non_null(strstr(p[0].err.msg, "2 of 3 ranks connected"));
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
    assert_non_null(strstr(p[2].err.msg, "another process has this RANK"));
    p[2] = (process) {.rank = 2, .n = N, .timeout_ms = 900, .at = {"127.0.0.1", port, "another", -1, NULL, 0}};
    assert_int_equal(pthread_create(&p[2].thread, NULL, process_main, &p[2]), 0);
    end(&p[2], PI_EUNSUPPORTED);
    assert_non_null(strstr(p[2].err.msg, "of another job"));
    for (int32_t i = 0; i < 2; i++) end(&p[i], PI_EDEVICE);
}

/* Rank 2 exits: the others' next call that needs it fails immediately, and a call that waits for a silent rank fails
 * at the timeout. */
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls),
                                       cmocka_unit_test(test_strays),
                                       cmocka_unit_test(test_missing),
                                       cmocka_unit_test(test_death),
                                       cmocka_unit_test(a_secret_joins),
                                       cmocka_unit_test(another_secret_is_refused),
                                       cmocka_unit_test(one_side_without_a_secret_is_refused),
                                       cmocka_unit_test(a_network_needs_a_secret),
                                       cmocka_unit_test(changed_bytes_are_never_taken),
                                       cmocka_unit_test(no_rank_meets_itself)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
