/* The transport of ranks over TCP (see ranks_tcp.h). Every rank has a connection to rank 0, which forwards data to
 * the others.
 *
 *     bcast     0 -> 1, 2, 3
 *     gather    1, 2, 3 -> 0 (their own), 0 -> 1, 2, 3 (all)
 *     send      0 -> one
 *
 * Joining: rank 0 listens only at the address that all ranks were given. Rank 0 and each other rank prove to each other
 * that they know the secret, by a MAC over random numbers of both. So a recorded message of an earlier start cannot be
 * replayed:
 *
 *     rank 0 -> rank    greeting    a nonce
 *     rank -> rank 0    hello       a nonce, its rank, the number of ranks, the job's name, its build, its machine; MAC
 *     rank 0 -> rank    welcome     once all have joined: the rank's number on its machine; MAC
 *
 * A connection that sends no valid hello in time is dropped and logged; a rank also receives the reason. After joining,
 * the listener is closed. Each later message is followed by a MAC over its bytes, its length and its number on the
 * connection. Each direction has its own key, derived from the secret and the nonces. A message that was changed,
 * dropped, repeated or forged makes the ranks fail. Nothing is encrypted: an eavesdropper between the ranks sees
 * weights and activations.
 *
 * Without a secret the address must be loopback, and messages have no MAC: every local user is trusted.
 *
 * If a process dies, its connection closes and the others' calls fail immediately. If a machine vanishes, they
 * fail at the timeout.
 *
 * No memory except the object and sockets. Threads: one at a time. */
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

/* MAX_GUESTS: max connections without a complete hello. HELLO_MS: time limit of a hello. RETRY_MS: pause between
 * attempts to connect to rank 0. */
enum { MAX_GUESTS = 32, HELLO_MS = 5000, RETRY_MS = 50 };

static const char MAGIC[8] = "PIRANKS";
enum { VERSION = 2, NONCE_BYTES = 32 };

typedef struct greeting { /* first message, from rank 0 */
    char magic[8];
    uint32_t version, unused;
    uint8_t nonce[NONCE_BYTES];
} greeting;

typedef struct hello { /* second message, from another rank: the answer to the greeting */
    char magic[8];
    uint8_t nonce[NONCE_BYTES];
    int32_t rank, n;
    char build[64], run[64], machine[64];
    pi__digest proof; /* last: MAC of the greeting and all fields above */
} hello;

typedef struct welcome { /* last message of joining, from rank 0: accepted, or the reason for a refusal */
    char magic[8];
    int32_t code;
    int32_t local, n_local;
    char text[132];
    pi__digest proof; /* last: MAC of the greeting, the hello and all fields above */
} welcome;

/* ---------------------------------------------------------------------------------------------------------- sockets */

/* Returns the milliseconds until the time `end` (of pi__now_ms), at least 0; -1 if end is negative (no limit). */
static int left_until(double end)
{
    if (end < 0) return -1;
    const double left = end - pi__now_ms();
    return left <= 0 ? 0 : left < 1e9 ? (int) left + 1 : 1000000000;
}
static double end_of(double ms) { return ms < 0 ? -1 : pi__now_ms() + ms; }

/* Waits until fd is ready for the poll events `what`. Returns false if the time `end` comes first. */
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

/* Disables Nagle's algorithm for small messages, and enables keepalive to notice a vanished machine. */
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

/* Looks up the addresses of at->host and at->port. */
static int look_up(const pi__tcp_place *at, struct addrinfo **out, pi_error *err)
{
    const struct addrinfo hint = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    const int rc = getaddrinfo(at->host, at->port, &hint, out);
    if (!rc) return PI_OK;
    return pi__fail(err, PI_EUNSUPPORTED, "MASTER_ADDR %.60s, MASTER_PORT %.10s: %s", at->host, at->port,
                    gai_strerror(rc));
}

/* Returns true if all addresses are loopback addresses, which only this machine can reach. */
static bool is_loopback(const struct addrinfo *all)
{
    for (const struct addrinfo *a = all; a; a = a->ai_next) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *) (const void *) a->ai_addr;
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *) (const void *) a->ai_addr;
        const bool here = a->ai_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == 127
                                                  : a->ai_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
        if (!here) return false;
    }
    return true;
}

/* Looks up the addresses of `at`. Fails if some are not loopback and there is no secret. */
static int place_of(const pi__tcp_place *at, struct addrinfo **out, pi_error *err)
{
    int rc = look_up(at, out, err);
    if (rc || at->n_secret || is_loopback(*out)) return rc;
    freeaddrinfo(*out);
    *out = NULL;
    return pi__fail(err, PI_EINVAL, "MASTER_ADDR %.60s is reachable from the network: give all ranks one secret "
                    "(--rank-secret FILE, or PAGEDINFER_RANK_KEY in the environment)", at->host);
}

/* ------------------------------------------------------------------------------------------------------------ seals */

/* Returns a MAC, keyed with the secret, over `what` (the purpose), the greeting, n_hello bytes of the hello and n_more
 * bytes at more. */
static pi__digest proof_of(const pi__tcp_place *at, const char *what, const greeting *g, const hello *h, size_t n_hello,
                           const void *more, size_t n_more)
{
    pi__mac_key key;
    pi__hasher mac;
    pi__mac_key_init(&key, at->secret, at->n_secret);
    pi__mac_begin(&mac, &key);
    pi__sha256_add(&mac, what, strlen(what) + 1);
    pi__sha256_add(&mac, g, sizeof *g);
    pi__sha256_add(&mac, h, n_hello);
    pi__sha256_add(&mac, more, n_more);
    return pi__mac_end(&mac, &key);
}
static pi__digest hello_proof(const pi__tcp_place *at, const greeting *g, const hello *h)
{
    return proof_of(at, "hello", g, h, offsetof(hello, proof), NULL, 0);
}
static pi__digest welcome_proof(const pi__tcp_place *at, const greeting *g, const hello *h, const welcome *w)
{
    return proof_of(at, "welcome", g, h, sizeof *h, w, offsetof(welcome, proof));
}

/* Derives the MAC keys of a connection, one per direction. first: this process is rank 0; a rank's `in` is the `out` of
 * the other side. */
static pi__tcp_seal seal_of(const pi__tcp_place *at, const greeting *g, const hello *h, bool first)
{
    const pi__digest down = proof_of(at, "from rank 0", g, h, sizeof *h, NULL, 0);
    const pi__digest up = proof_of(at, "to rank 0", g, h, sizeof *h, NULL, 0);
    pi__tcp_seal s = {.n_out = 0};
    pi__mac_key_init(first ? &s.out : &s.in, down.byte, sizeof down);
    pi__mac_key_init(first ? &s.in : &s.out, up.byte, sizeof up);
    return s;
}

static pi__digest digest_of(const void *p, size_t n)
{
    pi__hasher h;
    pi__sha256_begin(&h);
    pi__sha256_add(&h, p, n);
    return pi__sha256_end(&h);
}

/* Returns the MAC of message number `no` of a connection, which has n bytes and this digest. */
static pi__digest tag_of(const pi__mac_key *key, uint64_t no, size_t n, const pi__digest *digest)
{
    const uint64_t head[2] = {no, n};
    pi__hasher mac;
    pi__mac_begin(&mac, key);
    pi__sha256_add(&mac, head, sizeof head);
    pi__sha256_add(&mac, digest, sizeof *digest);
    return pi__mac_end(&mac, key);
}

/* Sends n bytes at p on connection i, then their MAC if t->sealed. digest: hash of the bytes, read only if t->sealed.
 * Returns false if the time `end` comes first or the connection fails. */
static bool send_message(pi__ranks_tcp *t, int32_t i, const void *p, size_t n, const pi__digest *digest, double end)
{
    char both[1024]; /* a short message and its MAC are one TCP segment */
    if (!t->sealed) return send_all(t->fd[i], p, n, end);
    const pi__digest tag = tag_of(&t->seal[i].out, t->seal[i].n_out++, n, digest);
    if (n + sizeof tag > sizeof both) return send_all(t->fd[i], p, n, end) && send_all(t->fd[i], &tag, sizeof tag, end);
    memcpy(both, p, n);
    memcpy(both + n, &tag, sizeof tag);
    return send_all(t->fd[i], both, n + sizeof tag, end);
}

static bool receive_message(pi__ranks_tcp *t, int32_t i, void *p, size_t n, double end)
{
    pi__digest tag;
    if (!receive_all(t->fd[i], p, n, end)) return false;
    if (!t->sealed) return true;
    if (!receive_all(t->fd[i], &tag, sizeof tag, end)) return false;
    const pi__digest digest = digest_of(p, n), want = tag_of(&t->seal[i].in, t->seal[i].n_in++, n, &digest);
    return pi__mac_equal(&tag, &want);
}

/* -------------------------------------------------------------------------------------------------------- transport */

/* Sends n bytes from rank 0 to all other ranks. */
static bool send_to_all(pi__ranks_tcp *t, const void *p, size_t n, double end)
{
    const pi__digest digest = t->sealed ? digest_of(p, n) : (pi__digest) {{0}};
    bool ok = true;
    for (int32_t i = 1; i < t->r.n && ok; i++) ok = send_message(t, i, p, n, &digest, end);
    return ok;
}

static bool tcp_bcast(pi__ranks *r, void *p, size_t n, double ms)
{
    pi__ranks_tcp *t = (pi__ranks_tcp *) r;
    const double end = end_of(ms);
    return r->rank ? receive_message(t, 0, p, n, end) : send_to_all(t, p, n, end);
}

static bool tcp_send(pi__ranks *r, int32_t to, const void *p, size_t n, double ms)
{
    pi__ranks_tcp *t = (pi__ranks_tcp *) r;
    const pi__digest digest = t->sealed ? digest_of(p, n) : (pi__digest) {{0}};
    return send_message(t, to, p, n, &digest, end_of(ms));
}

static bool tcp_gather(pi__ranks *r, void *buf, size_t n, double ms)
{
    pi__ranks_tcp *t = (pi__ranks_tcp *) r;
    const double end = end_of(ms);
    char *all = buf;
    if (r->rank)
        return tcp_send(r, 0, all + (size_t) r->rank * n, n, ms) && receive_message(t, 0, all, (size_t) r->n * n, end);
    bool ok = true;
    for (int32_t i = 1; i < r->n && ok; i++) ok = receive_message(t, i, all + (size_t) i * n, n, end);
    return ok && send_to_all(t, all, (size_t) r->n * n, end);
}

static bool tcp_receive(pi__ranks *r, void *p, size_t n, double ms)
{
    return receive_message((pi__ranks_tcp *) r, 0, p, n, end_of(ms));
}

/* ----------------------------------------------------------------------------------------------------------- rank 0 */

/* A guest: a connection that has not sent a complete hello. */
typedef struct guest {
    int fd;        /* socket; -1 = this entry is free */
    size_t n;      /* bytes of the hello received */
    double end;    /* deadline for the hello */
    hello h;
    char from[64]; /* address of the peer, for messages */
} guest;

/* State of rank 0 while the other ranks join. */
typedef struct door {
    pi__ranks_tcp *t;
    const pi__tcp_place *at;
    const pi__log *log;
    int listener;
    greeting g;
    guest guest[MAX_GUESTS];
    hello rank[PI__MOST_RANKS];       /* hello of each rank that has joined; for rank 0 only `machine` is set */
    int32_t n_here;                   /* ranks that have joined, this one included */
} door;

/* Sends the guest the reason in a welcome message, logs it, and closes the connection. */
static void drop(door *d, guest *g, const char *why)
{
    welcome w = {.code = PI_EUNSUPPORTED};
    memcpy(w.magic, MAGIC, sizeof w.magic);
    snprintf(w.text, sizeof w.text, "%s", why);
    (void) send(g->fd, &w, sizeof w, MSG_NOSIGNAL | MSG_DONTWAIT);
    pi__logf(d->log, PI_LOG_WARN, "ranks: dropped a connection from %s: %s", g->from, why);
    close_one(&g->fd);
}

/* Returns the reason to refuse a hello, as text; NULL = it is from a rank of this job. */
static const char *refusal(const door *d, const hello *h)
{
    char build[64];
    pi__ranks_build(build);
    const pi__digest proof = hello_proof(d->at, &d->g, h);
    if (memcmp(h->magic, MAGIC, sizeof h->magic)) return "not a rank of this program";
    if (!pi__mac_equal(&h->proof, &proof)) return "another secret: give all ranks the same one (--rank-secret)";
    if (strncmp(h->build, build, sizeof build)) return "another build: run the same build on all ranks";
    if (h->n != d->t->r.n) return "another WORLD_SIZE: give all ranks the same one";
    if (strncmp(h->run, d->at->run, sizeof h->run - 1)) return "a rank of another job: start all ranks by one command";
    if (h->rank < 1 || h->rank >= h->n) return "RANK is not below WORLD_SIZE";
    return d->t->fd[h->rank] >= 0 ? "another process has this RANK: give each process its own" : NULL;
}

/* Handles a complete hello of g: makes g's socket the connection of its rank, or drops g. */
static void let_in(door *d, guest *g)
{
    const char *why = refusal(d, &g->h);
    if (why) {
        drop(d, g, why);
        return;
    }
    d->rank[g->h.rank] = g->h;
    d->t->fd[g->h.rank] = g->fd;
    d->t->seal[g->h.rank] = seal_of(d->at, &d->g, &g->h, true);
    g->fd = -1;
    d->n_here++;
}

/* Receives more bytes of the hello of g. Handles a complete hello; drops g if it is not from a rank or its connection
 * fails. */
static void listen_to(door *d, guest *g)
{
    const ssize_t k = recv(g->fd, (char *) &g->h + g->n, sizeof g->h - g->n, MSG_DONTWAIT);
    if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (k > 0) g->n += (size_t) k;
    const size_t known = g->n < sizeof MAGIC ? g->n : sizeof MAGIC;
    if (k <= 0) drop(d, g, "the connection closed before its hello");
    else if (memcmp(g->h.magic, MAGIC, known)) drop(d, g, "not a rank of this program");
    else if (g->n == sizeof g->h) let_in(d, g);
}

/* Accepts a connection as a guest and sends the greeting. If the table is full, drops the guest that has waited
 * longest. */
static void open_door(door *d)
{
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    guest *g = d->guest;
    const int fd = accept(d->listener, (struct sockaddr *) &from, &size);
    if (fd < 0) return;
    for (guest *k = d->guest; k < d->guest + MAX_GUESTS && g->fd >= 0; k++)
        if (k->fd < 0 || k->end < g->end) g = k;
    if (g->fd >= 0) drop(d, g, "no hello, and other connections wait");
    *g = (guest) {.fd = fd, .end = pi__now_ms() + HELLO_MS};
    if (getnameinfo((struct sockaddr *) &from, size, g->from, sizeof g->from, NULL, 0, NI_NUMERICHOST))
        strcpy(g->from, "?");
    set_up(fd);
    if (send(fd, &d->g, sizeof d->g, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t) sizeof d->g) drop(d, g, "send failed");
}

/* Waits for the next event on the listener or a guest, until the time `end`, and handles it. Drops guests with a missed
 * deadline. */
static void attend(door *d, double end)
{
    struct pollfd p[1 + MAX_GUESTS] = {{d->listener, POLLIN, 0}};
    for (int i = 0; i < MAX_GUESTS; i++) {
        p[1 + i] = (struct pollfd) {d->guest[i].fd, POLLIN, 0}; /* poll ignores negative descriptors */
        if (d->guest[i].fd >= 0 && d->guest[i].end < end) end = d->guest[i].end;
    }
    if (poll(p, 1 + MAX_GUESTS, left_until(end)) < 0) return;
    for (int i = 0; i < MAX_GUESTS; i++) {
        if (d->guest[i].fd >= 0 && p[1 + i].revents) listen_to(d, &d->guest[i]);
        if (d->guest[i].fd >= 0 && d->guest[i].end <= pi__now_ms()) drop(d, &d->guest[i], "no hello in time");
    }
    if (p[0].revents) open_door(d);
}

/* Sets *out to a socket that listens at the first usable address of `at`. */
static int listen_at(const pi__tcp_place *at, int *out, pi_error *err)
{
    struct addrinfo *all = NULL;
    const int one = 1;
    int rc = place_of(at, &all, err), fd = -1, why = 0;
    for (const struct addrinfo *a = all; a && fd < 0 && !rc; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
        if (fd >= 0) (void) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (fd >= 0 && !bind(fd, a->ai_addr, a->ai_addrlen) && !listen(fd, MAX_GUESTS)) break;
        why = errno;
        close_one(&fd);
    }
    if (all) freeaddrinfo(all);
    if (!rc && fd < 0)
        rc = pi__fail(err, PI_EUNSUPPORTED, "rank 0 cannot listen at MASTER_ADDR %.60s, port %.10s: %s: give an "
                      "address of rank 0's machine and a free port", at->host, at->port, strerror(why));
    *out = fd;
    return rc;
}

/* After all ranks have joined: sends each rank its number on its machine. Returns false on failure. */
static bool welcome_all(door *d, double end)
{
    pi__ranks *r = &d->t->r;
    bool ok = true;
    for (int32_t i = r->n - 1; i >= 0 && ok; i--) {
        welcome w = {.code = PI_OK};
        memcpy(w.magic, MAGIC, sizeof w.magic);
        for (int32_t k = 0; k < r->n; k++) {
            if (strncmp(d->rank[k].machine, d->rank[i].machine, sizeof d->rank[i].machine)) continue;
            w.n_local++;
            w.local += k < i;
        }
        w.proof = welcome_proof(d->at, &d->g, &d->rank[i], &w);
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

static bool random_nonce(uint8_t out[NONCE_BYTES]) { return getrandom(out, NONCE_BYTES, 0) == NONCE_BYTES; }

static int join_as_first(pi__ranks_tcp *t, const pi__tcp_place *at, const pi__log *log, pi_error *err)
{
    pi__ranks *r = &t->r;
    door d = {.t = t, .at = at, .log = log, .g = {.version = VERSION}, .n_here = 1};
    const double end = pi__now_ms() + r->timeout_ms;
    memcpy(d.g.magic, MAGIC, sizeof d.g.magic);
    if (!random_nonce(d.g.nonce)) return pi__fail(err, PI_EUNSUPPORTED, "the system returned no random numbers");
    for (int i = 0; i < MAX_GUESTS; i++) d.guest[i].fd = -1;
    name_machine(d.rank[0].machine);
    int rc = listen_at(at, &d.listener, err);
    if (rc) return rc;
    while (d.n_here < r->n && pi__now_ms() < end) attend(&d, end);
    if (d.n_here < r->n)
        rc = pi__fail(err, PI_EDEVICE, "%d of %d ranks connected to MASTER_ADDR %.60s, port %.10s, "
                      "within %.0f s (rank-timeout)", d.n_here,
                      r->n, at->host, at->port, r->timeout_ms / 1e3);
    else if (!welcome_all(&d, end)) rc = pi__fail(err, PI_EDEVICE,
                                                  "a rank exited before all were connected: restart all ranks");
    for (int i = 0; i < MAX_GUESTS; i++) close_one(&d.guest[i].fd);
    close_one(&d.listener);
    return rc;
}

/* ------------------------------------------------------------------------------------------------------ other ranks */

/* Returns true if the socket is connected to itself: if nothing listens, the connecting socket may get rank 0's
 * port as its own. */
static bool is_self(int fd)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t n_own = sizeof own, n_peer = sizeof peer;
    return getsockname(fd, (struct sockaddr *) &own, &n_own) || getpeername(fd, (struct sockaddr *) &peer, &n_peer) ||
           (n_own == n_peer && !memcmp(&own, &peer, n_own));
}

/* Tries to connect to the addresses of rank 0. Returns the socket; -1 = rank 0 does not listen (yet). */
static int connect_once(const struct addrinfo *all, double end)
{
    for (const struct addrinfo *a = all; a; a = a->ai_next) {
        int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol), why = 0;
        socklen_t size = sizeof why;
        if (fd < 0) continue;
        const bool begun = !connect(fd, a->ai_addr, a->ai_addrlen) || errno == EINPROGRESS;
        if (begun && wait_for(fd, POLLOUT, end) && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size) && !why &&
            !is_self(fd))
            return fd;
        close_one(&fd);
    }
    return -1;
}

/* Replaces unprintable characters in text from another process, which is shown in messages. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~') *text = '?';
}

/* Waits for the greeting, sends the hello, and waits for the welcome. Sets the connection's keys and this rank's
 * number on its machine. */
static int say_hello(pi__ranks_tcp *t, const pi__tcp_place *at, double end, pi_error *err)
{
    greeting g;
    welcome w = {.code = PI_EDEVICE};
    hello h = {.rank = t->r.rank, .n = t->r.n};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    if (!receive_all(t->fd[0], &g, sizeof g, end) || memcmp(g.magic, MAGIC, sizeof g.magic) || g.version != VERSION)
        return pi__fail(err, PI_EUNSUPPORTED,
                        "MASTER_ADDR %.60s, port %.10s, is not rank 0 of this version: check the address, and "
                        "run the same build everywhere",
                        at->host, at->port);
    if (!random_nonce(h.nonce)) return pi__fail(err, PI_EUNSUPPORTED, "the system returned no random numbers");
    pi__ranks_build(h.build);
    snprintf(h.run, sizeof h.run, "%s", at->run);
    name_machine(h.machine);
    h.proof = hello_proof(at, &g, &h);
    if (!send_all(t->fd[0], &h, sizeof h, end) || !receive_all(t->fd[0], &w, sizeof w, end))
        return pi__fail(err, PI_EDEVICE, "rank 0 exited, or not all ranks connected within %.0f s "
                        "(rank-timeout): restart all ranks", t->r.timeout_ms / 1e3);
    w.text[sizeof w.text - 1] = 0;
    make_printable(w.text);
    if (memcmp(w.magic, MAGIC, sizeof w.magic) || w.code) return pi__fail(err, PI_EUNSUPPORTED, "rank 0 refused it: %s",
                                                                          w.text);
    const pi__digest proof = welcome_proof(at, &g, &h, &w);
    if (!pi__mac_equal(&w.proof, &proof))
        return pi__fail(err, PI_EUNSUPPORTED, "MASTER_ADDR %.60s, port %.10s, has another secret: "
                        "give all ranks the same one (--rank-secret)", at->host, at->port);
    if (w.n_local < 1 || w.local < 0 || w.local >= w.n_local || w.n_local > t->r.n)
        return pi__fail(err, PI_EUNSUPPORTED, "rank 0 counts %d ranks on this machine", w.n_local);
    t->r.local = w.local, t->r.n_local = w.n_local;
    t->seal[0] = seal_of(at, &g, &h, false);
    return PI_OK;
}

static int join_as_other(pi__ranks_tcp *t, const pi__tcp_place *at, pi_error *err)
{
    const double end = pi__now_ms() + t->r.timeout_ms;
    const struct timespec pause = {0, RETRY_MS * 1000000};
    struct addrinfo *all = NULL;
    int rc = place_of(at, &all, err);
    if (rc) return rc;
    while ((t->fd[0] = connect_once(all, end)) < 0 && pi__now_ms() < end) (void) nanosleep(&pause, NULL);
    freeaddrinfo(all);
    if (t->fd[0] < 0)
        return pi__fail(err, PI_EDEVICE,
                        "rank 0 does not listen at MASTER_ADDR %.60s, port %.10s, after %.0f s (rank-timeout)",
                        at->host, at->port, t->r.timeout_ms / 1e3);
    set_up(t->fd[0]);
    return say_hello(t, at, end, err);
}

int pi__tcp_join(pi__ranks_tcp *t, const pi__tcp_place *at, int32_t rank, int32_t n, double timeout_ms,
                 const pi__log *log, pi_error *err)
{
    static const pi__ranks_fns fns = {tcp_bcast, tcp_gather, tcp_send, tcp_receive};
    memset(t, 0, sizeof *t);
    for (int i = 0; i < PI__MOST_RANKS; i++) t->fd[i] = -1;
    t->sealed = at->n_secret > 0;
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
