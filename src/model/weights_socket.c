/* Both ends of the socket of a weights owner (see weights_socket.h). */
#include "model/weights_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

enum { VERSION = 3, ASK_SECONDS = 10, SERVE_SECONDS = 2, MAX_OFFERS = 4, MAX_PEERS = 64 };
enum { GIVEN, UNKNOWN_KEY, OTHER_USER, OTHER_TARGET };

typedef struct request {
    char magic[8];
    uint32_t version, zero;
    pi__digest key, target;
} request;

typedef struct answer {
    char magic[8];
    uint32_t version;
    int32_t status;      /* GIVEN, ... */
    uint64_t size;       /* bytes of the image */
    char text[232];      /* name of the owner's model, NUL-terminated */
} answer;

static const char magic[8] = {'P', 'I', 'w', 'e', 'i', 'g', 'h', 't'};
_Static_assert(sizeof(request) == 80 && sizeof(answer) == 256, "as weights_socket.h says");

/* Buffer for the descriptors attached to a message. */
typedef union control {
    char buf[CMSG_SPACE(PI__WEIGHTS_FDS * sizeof(int))];
    struct cmsghdr align;
} control;

typedef struct peer { /* a connection with an incomplete request */
    int fd;
    double until;     /* time (pi__now_ms) at which the connection is closed */
    size_t n;         /* bytes of q received so far */
    request q;
} peer;

struct pi__weights_listener {
    pi__weights_offer offer[MAX_OFFERS];
    int n;               /* offers */
    char what[232];      /* name of the model, sent in refusals */
    struct sockaddr_un at;
    struct stat st;      /* identifies the socket's file: unlisten removes only this inode */
    int fd, stop[2];     /* the listening socket; a pipe: closing one end stops the thread */
    peer peer[MAX_PEERS]; /* used by the thread only; oldest first */
    int n_peers;
    bool started;        /* the thread must be joined */
    pthread_t thread;
};

static bool own_user(int fd)
{
    struct ucred peer;
    socklen_t n = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0 || geteuid() == 0);
}

static int address(struct sockaddr_un *at, const char *path, pi_error *err)
{
    *at = (struct sockaddr_un) {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof at->sun_path)
        return pi__fail(err, PI_EINVAL, "a socket's path must have 1 to %zu bytes, this one has %zu",
                        sizeof at->sun_path - 1, strlen(path));
    memcpy(at->sun_path, path, strlen(path) + 1);
    return PI_OK;
}

static void set_timeout(int fd, int seconds)
{
    const struct timeval t = {.tv_sec = seconds};
    (void) setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    (void) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

/* ------------------------------------------------------------------------------------------------------------ ask */

static void close_all(const int *fd, int n)
{
    for (int i = 0; i < n; i++) (void) close(fd[i]);
}

/* Receives the answer and its n attached descriptors. Returns false for an incomplete answer; the caller closes the
 * descriptors in any case. */
static bool receive(int s, answer *a, int fd[PI__WEIGHTS_FDS], int *n)
{
    control c;
    struct iovec io = {a, sizeof *a};
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = c.buf, .msg_controllen = sizeof c.buf};
    ssize_t got;
    do got = recvmsg(s, &msg, MSG_CMSG_CLOEXEC | MSG_WAITALL);
    while (got < 0 && errno == EINTR);
    *n = 0;
    for (struct cmsghdr *h = got > 0 ? CMSG_FIRSTHDR(&msg) : NULL; h; h = CMSG_NXTHDR(&msg, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
        const int room = PI__WEIGHTS_FDS - *n, k = (int) ((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (int i = 0; i < k; i++) {
            int one;
            memcpy(&one, CMSG_DATA(h) + (size_t) i * sizeof one, sizeof one);
            if (i < room) fd[(*n)++] = one;
            else (void) close(one);
        }
    }
    return got == (ssize_t) sizeof *a && !(msg.msg_flags & MSG_CTRUNC);
}

/* Sets err for an answer without descriptors. target: description of this process's backends and devices. */
static int refused(const char *path, answer *a, const char *target, pi_error *err)
{
    if (memcmp(a->magic, magic, sizeof magic) || a->version != VERSION)
        return pi__fail(err, PI_EIO, "weights-from %.120s: the process at this socket is not an owner of weights, or "
                        "its library version differs: run the same build", path);
    a->text[sizeof a->text - 1] = 0;
    if (a->status == OTHER_USER) return pi__fail(err, PI_EIO, "weights-from %.120s: the owner of weights runs as "
                                                 "another user: run both as one user", path);
    if (a->status == OTHER_TARGET)
        return pi__fail(err, PI_EIO,
                        "weights-from %.28s: the owner uses %.80s, this engine %.50s: give both the same device",
                        path, a->text, target);
    if (a->status != GIVEN)
        return pi__fail(err, PI_EIO, "weights-from %.40s: the owner has %.64s: another model, file or library "
                        "version, or other layers on the CPU: give both the same", path, a->text);
    return PI_OK;
}

static int read_answer(const char *path, int s, const pi__weights_question *q, int fd[PI__WEIGHTS_FDS], pi_error *err)
{
    answer a;
    int n;
    const bool whole = receive(s, &a, fd, &n);
    int rc = whole ? refused(path, &a, q->target, err)
                   : pi__fail(err, PI_EIO, "weights-from %.120s: the owner did not respond", path);
    if (!rc && n != q->n_fd)
        rc = pi__fail(err, PI_EIO, "weights-from %.120s: the owner sent %d memory regions, but these weights have %d",
                      path, n, q->n_fd);
    if (rc) close_all(fd, n);
    return rc;
}

static pi__digest hash_of(const char *target) { return pi__hash(PI__HASH_TARGET, target, strlen(target)); }

int pi__weights_ask(const char *path, const pi__weights_question *want, int fd[PI__WEIGHTS_FDS], pi_error *err)
{
    struct sockaddr_un at;
    request q = {.version = VERSION, .key = want->key, .target = hash_of(want->target)};
    memcpy(q.magic, magic, sizeof magic);
    int rc = address(&at, path, err), s = rc ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (rc) return rc;
    if (s < 0) return pi__fail(err, PI_EIO, "weights-from %.120s: %s", path, strerror(errno));
    set_timeout(s, ASK_SECONDS);
    if (connect(s, (struct sockaddr *) &at, sizeof at))
        rc = pi__fail(err, PI_EIO, "weights-from %.120s: no owner of weights listens there (%s): start `pagedinfer "
                      "weights`, or leave the option out", path, strerror(errno));
    else if (!own_user(s)) rc = pi__fail(err, PI_EIO, "weights-from %.120s: the owner of weights runs as another "
                                         "user: run both as one user", path);
    else if (send(s, &q, sizeof q, MSG_NOSIGNAL) != (ssize_t) sizeof q)
        rc = pi__fail(err, PI_EIO, "weights-from %.120s: the owner closed the connection", path);
    else rc = read_answer(path, s, want, fd, err);
    (void) close(s);
    return rc;
}

/* --------------------------------------------------------------------------------------------------------- listen */

/* Sends the answer a. of: the image with the descriptors to attach; NULL = none. */
static void give(int s, const answer *a, const pi__weights_offer *of)
{
    control c = {{0}};
    struct iovec io = {(void *) a, sizeof *a};
    struct msghdr msg = {.msg_iov = &io, .msg_iovlen = 1};
    if (of) {
        const size_t size = (size_t) of->n_fd * sizeof *of->fd;
        msg.msg_control = c.buf;
        msg.msg_controllen = CMSG_SPACE(size);
        struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
        *h = (struct cmsghdr) {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(size)};
        memcpy(CMSG_DATA(h), of->fd, size);
    }
    (void) sendmsg(s, &msg, MSG_NOSIGNAL); /* a disconnected peer is ignored */
}

/* Answers the complete request q on socket s. */
static void reply(const pi__weights_listener *l, int s, const request *q)
{
    answer a = {.version = VERSION, .status = UNKNOWN_KEY};
    const pi__weights_offer *of = NULL;
    bool target = false; /* some offer is for the requested target */
    memcpy(a.magic, magic, sizeof magic);
    memcpy(a.text, l->what, sizeof a.text);
    for (int i = 0; i < l->n && q->version == VERSION; i++) {
        if (pi__digest_equal(&l->offer[i].key, &q->key)) of = &l->offer[i];
        target |= pi__digest_equal(&l->offer[i].target, &q->target);
    }
    a.status = of ? GIVEN : target ? UNKNOWN_KEY : OTHER_TARGET;
    if (of) a.size = of->size;
    give(s, &a, of);
}

static void close_peer(pi__weights_listener *l, int i)
{
    (void) close(l->peer[i].fd);
    memmove(&l->peer[i], &l->peer[i + 1], (size_t) (--l->n_peers - i) * sizeof *l->peer);
}

/* Adds a connection. If there are too many, closes the oldest one. */
static void add_peer(pi__weights_listener *l, int s)
{
    if (!own_user(s)) {
        answer a = {.version = VERSION, .status = OTHER_USER};
        memcpy(a.magic, magic, sizeof magic);
        give(s, &a, NULL);
        (void) close(s);
        return;
    }
    if (l->n_peers == MAX_PEERS) close_peer(l, 0);
    l->peer[l->n_peers++] = (peer) {.fd = s, .until = pi__now_ms() + SERVE_SECONDS * 1e3};
}

/* Reads the next bytes of a connection's request, and answers it when complete. Returns true if the connection is to be
 * closed. */
static bool read_peer(const pi__weights_listener *l, peer *p)
{
    const ssize_t got = recv(p->fd, (char *) &p->q + p->n, sizeof p->q - p->n, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) return true;
    p->n += (size_t) got;
    if (p->n < sizeof p->q) return false;
    if (!memcmp(p->q.magic, magic, sizeof magic)) reply(l, p->fd, &p->q);
    return true;
}

/* Returns the milliseconds until the first connection is due to be closed; -1 = there are no connections. */
static int until_deadline(const pi__weights_listener *l)
{
    if (!l->n_peers) return -1;
    const double ms = l->peer[0].until - pi__now_ms(); /* the oldest is the first */
    return ms > 0 ? (int) ms + 1 : 0;
}

/* The listener's thread: serves all connections without blocking on any. An answer always fits into a new socket's
 * buffer. */
static void *listen_thread(void *arg)
{
    pi__weights_listener *l = arg;
    struct pollfd p[2 + MAX_PEERS];
    for (;;) {
        const int n = l->n_peers;
        p[0] = (struct pollfd) {.fd = l->stop[0], .events = POLLIN};
        p[1] = (struct pollfd) {.fd = l->fd, .events = POLLIN};
        for (int i = 0; i < n; i++) p[2 + i] = (struct pollfd) {.fd = l->peer[i].fd, .events = POLLIN};
        const int ready = poll(p, 2 + (nfds_t) n, until_deadline(l));
        if (ready < 0 && errno != EINTR) return NULL;
        if (ready > 0 && p[0].revents) return NULL;
        for (int i = n - 1; i >= 0; i--) {
            const bool late = pi__now_ms() >= l->peer[i].until;
            if ((ready > 0 && p[2 + i].revents && read_peer(l, &l->peer[i])) || late) close_peer(l, i);
        }
        if (ready <= 0 || !p[1].revents) continue;
        const int s = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (s >= 0) add_peer(l, s);
        else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            (void) poll(p, 1, 100); /* out of descriptors: wait until some are closed */
    }
}

/* True if a listener accepts connections at this address. */
static bool is_alive(const struct sockaddr_un *at)
{
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool alive = s >= 0 && (connect(s, (const struct sockaddr *) at, sizeof *at) == 0 || errno == EAGAIN);
    if (s >= 0) (void) close(s);
    return alive;
}

static int bind_socket(pi__weights_listener *l, pi_error *err)
{
    const char *path = l->at.sun_path;
    struct stat st;
    l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (l->fd < 0) return pi__fail(err, PI_EIO, "a socket for weights: %s", strerror(errno));
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_uid == geteuid()) {
        if (is_alive(&l->at)) return pi__fail(err, PI_EBUSY, "%.100s: another owner of weights listens at this "
                                              "socket: stop it, or give another path", path);
        (void) unlink(path); /* left by a killed process */
    }
    if (fchmod(l->fd, 0600) || bind(l->fd, (struct sockaddr *) &l->at, sizeof l->at) || chmod(path, 0600) ||
        stat(path, &l->st) || listen(l->fd, 64))
        return pi__fail(err, PI_EIO, "cannot listen at %.100s: %s", path, strerror(errno));
    return PI_OK;
}

static bool start_thread(pi__weights_listener *l)
{
    return l->started = pi__thread_start(&l->thread, listen_thread, l);
}

int pi__weights_listen(pi__weights_listener **out, const char *path, const pi__weights_offer *offer, int n,
                       const char *what, pi_error *err)
{
    pi__weights_listener *l = pi__calloc(1, sizeof *l);
    if (!l) return pi__fail_mem(err, "the socket for weights");
    l->fd = l->stop[0] = l->stop[1] = -1;
    l->n = n < MAX_OFFERS ? n : MAX_OFFERS;
    memcpy(l->offer, offer, (size_t) l->n * sizeof *offer);
    snprintf(l->what, sizeof l->what, "%s", what);
    int rc = address(&l->at, path, err);
    if (!rc) rc = bind_socket(l, err);
    if (!rc && (pipe2(l->stop, O_CLOEXEC) || !start_thread(l)))
        rc = pi__fail(err, PI_ENOMEM, "cannot start the thread that shares weights");
    if (rc) pi__weights_unlisten(l);
    else *out = l;
    return rc;
}

void pi__weights_unlisten(pi__weights_listener *l)
{
    struct stat st;
    if (!l) return;
    if (l->stop[1] >= 0) (void) close(l->stop[1]);
    if (l->started) pthread_join(l->thread, NULL);
    while (l->n_peers) close_peer(l, 0);
    if (l->stop[0] >= 0) (void) close(l->stop[0]);
    if (l->st.st_ino && lstat(l->at.sun_path, &st) == 0 && st.st_ino == l->st.st_ino && st.st_dev == l->st.st_dev)
        (void) unlink(l->at.sun_path);
    if (l->fd >= 0) (void) close(l->fd);
    pi__free(l);
}
