/* The transport of ranks over TCP (see ranks_tcp.h): every rank has a connection to rank 0, which passes on what all are to have.
 *
 *     bcast     0 -> 1, 2, 3
 *     gather    1, 2, 3 -> 0 (their own), 0 -> 1, 2, 3 (all)
 *     send      0 -> one
 *
 * Joining: rank 0 listens at the address that all were given, and nowhere else. Who connects is sent a greeting with a key,
 * random for each start, and answers with a hello: the key, its rank, the number of ranks, the job's name, its build and its
 * machine. What is not like that, in time, is dropped with a line of the log, and a rank is told why; when all are there each
 * is told its number on its machine. After that there is no listener any more. Nothing is encrypted: the network between ranks
 * is to be trusted, as with MPI.
 *
 * A process that dies closes its connection, which ends the others' calls at once; a machine that vanishes does so when the time
 * is over.
 *
 * No memory but the object and sockets. Threads: one at a time. */
#include "backend/ranks_tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "backend/tensor_orders.h"
#include "base/clock.h"
#include "base/error.h"

enum { MAX_GUESTS = 32 /* connections that have not said hello */, HELLO_MS = 5000, RETRY_MS = 50 };

static const char MAGIC[8] = "PIRANKS";
enum { VERSION = 1, KEY_BYTES = 16 };

typedef struct greeting { /* of rank 0 */
    char magic[8];
    uint32_t version, unused;
    uint8_t key[KEY_BYTES];
} greeting;

typedef struct hello { /* of another */
    char magic[8];
    uint8_t key[KEY_BYTES];
    int32_t rank, n;
    char build[64], run[64], machine[64];
} hello;

typedef struct welcome { /* of rank 0: come in, or why not */
    char magic[8];
    int32_t code;
    int32_t local, n_local;
    char text[132];
} welcome;

/* ------------------------------------------------------------------------------------------------------------- sockets */

/* Milliseconds until end, at least 0; end negative: there is none. */
static int left_until(double end)
{
    if (end < 0) return -1;
    const double left = end - pi__now_ms();
    return left <= 0 ? 0 : left < 1e9 ? (int) left + 1 : 1000000000;
}
static double end_of(double ms) { return ms < 0 ? -1 : pi__now_ms() + ms; }

/* false: not before the end. */
static bool wait_for(int fd, short what, double end)
{
    for (;;) {
        struct pollfd p = {fd, what, 0};
        const int ms = left_until(end), rc = poll(&p, 1, ms);
        if (rc > 0) return true;
        if (rc < 0 && errno != EINTR) return false;
        if (rc == 0 && ms >= 0 && !left_until(end)) return false;
    }
}

static bool send_all(int fd, const void *p, size_t n, double end)
{
    const char *at = p;
    while (n) {
        const ssize_t k = send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k > 0) at += k, n -= (size_t) k;
        else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(fd, POLLOUT, end)) return false;
        } else if (errno != EINTR) return false;
    }
    return true;
}

static bool receive_all(int fd, void *p, size_t n, double end)
{
    char *at = p;
    while (n) {
        const ssize_t k = recv(fd, at, n, MSG_DONTWAIT);
        if (k > 0) at += k, n -= (size_t) k;
        else if (k == 0) return false;
        else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(fd, POLLIN, end)) return false;
        } else if (errno != EINTR) return false;
    }
    return true;
}

/* Small messages go at once, and a machine that is gone is noticed some time. */
static void set_up(int fd)
{
    const int one = 1;
    (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    (void) setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    (void) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static void close_one(int *fd)
{
    if (*fd >= 0) (void) close(*fd);
    *fd = -1;
}

/* Addresses of the place. */
static int look_up(const pi__tcp_place *at, struct addrinfo **out, pi_error *err)
{
    const struct addrinfo hint = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    const int rc = getaddrinfo(at->host, at->port, &hint, out);
    if (!rc) return PI_OK;
    return pi__fail(err, PI_EUNSUPPORTED, "MASTER_ADDR %.60s, MASTER_PORT %.10s: %s", at->host, at->port, gai_strerror(rc));
}

/* ----------------------------------------------------------------------------------------------------------- transport */

static bool tcp_bcast(pi__ranks *r, void *p, size_t n, double ms)
{
    const pi__ranks_tcp *t = (const pi__ranks_tcp *) r;
    const double end = end_of(ms);
    if (r->rank) return receive_all(t->fd[0], p, n, end);
    bool ok = true;
    for (int32_t i = 1; i < r->n && ok; i++) ok = send_all(t->fd[i], p, n, end);
    return ok;
}

static bool tcp_gather(pi__ranks *r, void *buf, size_t n, double ms)
{
    const pi__ranks_tcp *t = (const pi__ranks_tcp *) r;
    const double end = end_of(ms);
    char *all = buf;
    if (r->rank) return send_all(t->fd[0], all + (size_t) r->rank * n, n, end) && receive_all(t->fd[0], all, (size_t) r->n * n, end);
    bool ok = true;
    for (int32_t i = 1; i < r->n && ok; i++) ok = receive_all(t->fd[i], all + (size_t) i * n, n, end);
    for (int32_t i = 1; i < r->n && ok; i++) ok = send_all(t->fd[i], all, (size_t) r->n * n, end);
    return ok;
}

static bool tcp_send(pi__ranks *r, int32_t to, const void *p, size_t n, double ms)
{
    return send_all(((const pi__ranks_tcp *) r)->fd[to], p, n, end_of(ms));
}

static bool tcp_receive(pi__ranks *r, void *p, size_t n, double ms)
{
    return receive_all(((const pi__ranks_tcp *) r)->fd[0], p, n, end_of(ms));
}

/* --------------------------------------------------------------------------------------------------------------- rank 0 */

/* A connection that has not said hello. */
typedef struct guest {
    int fd;        /* -1: this entry is free */
    size_t n;      /* bytes of the hello that have come */
    double end;    /* until then it has time */
    hello h;
    char from[64]; /* its address */
} guest;

/* Rank 0 while the others come. */
typedef struct door {
    pi__ranks_tcp *t;
    const pi__tcp_place *at;
    const pi__log *log;
    int listener;
    greeting g;
    guest guest[MAX_GUESTS];
    char machine[PI__MOST_RANKS][64]; /* of each rank */
    int32_t n_here;                   /* ranks that have come, this one among them */
} door;

static void drop(door *d, guest *g, const char *why)
{
    welcome w = {.code = PI_EUNSUPPORTED};
    memcpy(w.magic, MAGIC, sizeof w.magic);
    snprintf(w.text, sizeof w.text, "%s", why);
    (void) send(g->fd, &w, sizeof w, MSG_NOSIGNAL | MSG_DONTWAIT);
    pi__logf(d->log, PI_LOG_WARN, "ranks: a connection from %s is dropped: %s", g->from, why);
    close_one(&g->fd);
}

/* NULL: it is a rank of this job. */
static const char *refusal(const door *d, const hello *h)
{
    char build[64];
    pi__ranks_build(build);
    if (memcmp(h->magic, MAGIC, sizeof h->magic)) return "it is no rank's";
    if (memcmp(h->key, d->g.key, sizeof h->key)) return "it has not the key of this start";
    if (strncmp(h->build, build, sizeof build)) return "it is of another build: all ranks run the same one";
    if (h->n != d->t->r.n) return "it has another WORLD_SIZE";
    if (strncmp(h->run, d->at->run, sizeof h->run - 1)) return "it is of another job";
    if (h->rank < 1 || h->rank >= h->n) return "its RANK is not below WORLD_SIZE";
    return d->t->fd[h->rank] >= 0 ? "its RANK has come already" : NULL;
}

/* Its hello is complete. */
static void let_in(door *d, guest *g)
{
    const char *why = refusal(d, &g->h);
    if (why) {
        drop(d, g, why);
        return;
    }
    g->h.machine[sizeof g->h.machine - 1] = 0;
    memcpy(d->machine[g->h.rank], g->h.machine, sizeof g->h.machine);
    d->t->fd[g->h.rank] = g->fd;
    g->fd = -1;
    d->n_here++;
}

/* What it has sent so far. */
static void listen_to(door *d, guest *g)
{
    const ssize_t k = recv(g->fd, (char *) &g->h + g->n, sizeof g->h - g->n, MSG_DONTWAIT);
    if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (k > 0) g->n += (size_t) k;
    const size_t known = g->n < sizeof MAGIC ? g->n : sizeof MAGIC;
    if (k <= 0) drop(d, g, "it ended before it said hello");
    else if (memcmp(g->h.magic, MAGIC, known)) drop(d, g, "it is no rank's");
    else if (g->n == sizeof g->h) let_in(d, g);
}

/* Somebody connects. */
static void open_door(door *d)
{
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    guest *g = d->guest;
    const int fd = accept(d->listener, (struct sockaddr *) &from, &size);
    if (fd < 0) return;
    for (guest *k = d->guest; k < d->guest + MAX_GUESTS && g->fd >= 0; k++)
        if (k->fd < 0 || k->end < g->end) g = k;
    if (g->fd >= 0) drop(d, g, "it has not said hello, and others wait");
    *g = (guest) {.fd = fd, .end = pi__now_ms() + HELLO_MS};
    if (getnameinfo((struct sockaddr *) &from, size, g->from, sizeof g->from, NULL, 0, NI_NUMERICHOST)) strcpy(g->from, "?");
    set_up(fd);
    if (send(fd, &d->g, sizeof d->g, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t) sizeof d->g) drop(d, g, "it takes nothing");
}

/* Waits for the next thing that happens. */
static void attend(door *d, double end)
{
    struct pollfd p[1 + MAX_GUESTS] = {{d->listener, POLLIN, 0}};
    for (int i = 0; i < MAX_GUESTS; i++) {
        p[1 + i] = (struct pollfd) {d->guest[i].fd, POLLIN, 0}; /* negative ones are left out */
        if (d->guest[i].fd >= 0 && d->guest[i].end < end) end = d->guest[i].end;
    }
    if (poll(p, 1 + MAX_GUESTS, left_until(end)) < 0) return;
    for (int i = 0; i < MAX_GUESTS; i++) {
        if (d->guest[i].fd >= 0 && p[1 + i].revents) listen_to(d, &d->guest[i]);
        if (d->guest[i].fd >= 0 && d->guest[i].end <= pi__now_ms()) drop(d, &d->guest[i], "it has not said hello");
    }
    if (p[0].revents) open_door(d);
}

static int listen_at(const pi__tcp_place *at, int *out, pi_error *err)
{
    struct addrinfo *all = NULL;
    const int one = 1;
    int rc = look_up(at, &all, err), fd = -1, why = 0;
    for (const struct addrinfo *a = all; a && fd < 0 && !rc; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
        if (fd >= 0) (void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (fd >= 0 && !bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, MAX_GUESTS)) break;
        why = errno;
        close_one(&fd);
    }
    if (all) freeaddrinfo(all);
    if (!rc && fd < 0)
        rc = pi__fail(err, PI_EUNSUPPORTED, "rank 0 cannot listen at MASTER_ADDR %.60s, port %.10s: %s: it is an address of rank 0's "
                      "machine, and a port that nobody has", at->host, at->port, strerror(why));
    *out = fd;
    return rc;
}

/* All are there: each is told its number on its machine. */
static bool welcome_all(door *d, double end)
{
    pi__ranks *r = &d->t->r;
    bool ok = true;
    for (int32_t i = r->n - 1; i >= 0 && ok; i--) {
        welcome w = {.code = PI_OK};
        memcpy(w.magic, MAGIC, sizeof w.magic);
        for (int32_t k = 0; k < r->n; k++) {
            if (strcmp(d->machine[k], d->machine[i])) continue;
            w.n_local++;
            w.local += k < i;
        }
        if (i) ok = send_all(d->t->fd[i], &w, sizeof w, end);
        else r->local = w.local, r->n_local = w.n_local;
    }
    return ok;
}

static void name_machine(char out[64])
{
    memset(out, 0, 64);
    if (gethostname(out, 63)) strcpy(out, "?");
}

static int join_as_first(pi__ranks_tcp *t, const pi__tcp_place *at, const pi__log *log, pi_error *err)
{
    pi__ranks *r = &t->r;
    door d = {.t = t, .at = at, .log = log, .g = {.version = VERSION}, .n_here = 1};
    const double end = pi__now_ms() + r->timeout_ms;
    memcpy(d.g.magic, MAGIC, sizeof d.g.magic);
    if (getrandom(d.g.key, sizeof d.g.key, 0) != (ssize_t) sizeof d.g.key) return pi__fail(err, PI_EUNSUPPORTED, "no random numbers");
    for (int i = 0; i < MAX_GUESTS; i++) d.guest[i].fd = -1;
    name_machine(d.machine[0]);
    int rc = listen_at(at, &d.listener, err);
    if (rc) return rc;
    while (d.n_here < r->n && pi__now_ms() < end) attend(&d, end);
    if (d.n_here < r->n)
        rc = pi__fail(err, PI_EDEVICE, "%d of %d ranks came to MASTER_ADDR %.60s, port %.10s, within %.0f s (rank-timeout)", d.n_here,
                      r->n, at->host, at->port, r->timeout_ms / 1e3);
    else if (!welcome_all(&d, end)) rc = pi__fail(err, PI_EDEVICE, "a rank was gone before all had come: start all of them again");
    for (int i = 0; i < MAX_GUESTS; i++) close_one(&d.guest[i].fd);
    close_one(&d.listener);
    return rc;
}

/* ----------------------------------------------------------------------------------------------------------- other ranks */

/* -1: rank 0 does not listen, or not yet. */
static int connect_once(const struct addrinfo *all, double end)
{
    for (const struct addrinfo *a = all; a; a = a->ai_next) {
        int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol), why = 0;
        socklen_t size = sizeof why;
        if (fd < 0) continue;
        const bool begun = !connect(fd, a->ai_addr, a->ai_addrlen) || errno == EINPROGRESS;
        if (begun && wait_for(fd, POLLOUT, end) && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size) && !why) return fd;
        close_one(&fd);
    }
    return -1;
}

/* Says hello through a connection, and waits for the others. */
static int say_hello(pi__ranks_tcp *t, const pi__tcp_place *at, double end, pi_error *err)
{
    greeting g;
    welcome w = {.code = PI_EDEVICE};
    hello h = {.rank = t->r.rank, .n = t->r.n};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    if (!receive_all(t->fd[0], &g, sizeof g, end) || memcmp(g.magic, MAGIC, sizeof g.magic) || g.version != VERSION)
        return pi__fail(err, PI_EUNSUPPORTED, "who listens at MASTER_ADDR %.60s, port %.10s, is no rank 0 of this version", at->host,
                        at->port);
    memcpy(h.key, g.key, sizeof h.key);
    pi__ranks_build(h.build);
    snprintf(h.run, sizeof h.run, "%s", at->run);
    name_machine(h.machine);
    if (!send_all(t->fd[0], &h, sizeof h, end) || !receive_all(t->fd[0], &w, sizeof w, end))
        return pi__fail(err, PI_EDEVICE, "rank 0 is gone, or not all ranks came within %.0f s (rank-timeout)", t->r.timeout_ms / 1e3);
    w.text[sizeof w.text - 1] = 0;
    if (memcmp(w.magic, MAGIC, sizeof w.magic) || w.code) return pi__fail(err, PI_EUNSUPPORTED, "rank 0 dropped this one: %s", w.text);
    t->r.local = w.local, t->r.n_local = w.n_local;
    return PI_OK;
}

static int join_as_other(pi__ranks_tcp *t, const pi__tcp_place *at, pi_error *err)
{
    const double end = pi__now_ms() + t->r.timeout_ms;
    const struct timespec pause = {0, RETRY_MS * 1000000};
    struct addrinfo *all = NULL;
    int rc = look_up(at, &all, err);
    if (rc) return rc;
    while ((t->fd[0] = connect_once(all, end)) < 0 && pi__now_ms() < end) (void) nanosleep(&pause, NULL);
    freeaddrinfo(all);
    if (t->fd[0] < 0)
        return pi__fail(err, PI_EDEVICE, "rank 0 does not listen at MASTER_ADDR %.60s, port %.10s, after %.0f s (rank-timeout)", at->host,
                        at->port, t->r.timeout_ms / 1e3);
    set_up(t->fd[0]);
    return say_hello(t, at, end, err);
}

int pi__tcp_join(pi__ranks_tcp *t, const pi__tcp_place *at, int32_t rank, int32_t n, double timeout_ms, const pi__log *log,
                 pi_error *err)
{
    static const pi__ranks_fns fns = {tcp_bcast, tcp_gather, tcp_send, tcp_receive};
    memset(t, 0, sizeof *t);
    for (int i = 0; i < PI__MOST_RANKS; i++) t->fd[i] = -1;
    t->r.fns = &fns, t->r.rank = rank, t->r.n = n, t->r.timeout_ms = timeout_ms;
    const int rc = rank ? join_as_other(t, at, err) : join_as_first(t, at, log, err);
    if (rc) pi__tcp_close(t);
    else if (at->local >= 0) t->r.local = at->local;
    return rc;
}

void pi__tcp_close(pi__ranks_tcp *t)
{
    for (int i = 0; i < PI__MOST_RANKS; i++) close_one(&t->fd[i]);
}
