/* KV events over ZeroMQ and msgpack (see kv_events.h). */
#include "serve/kv_events.h"

#include <stdio.h>

#ifdef PI_HAVE_KV_EVENTS

#include <errno.h>
#include <msgpack.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "serve/kv_queue.h"

enum {
    ENDPOINT = 300,
    PUB_BATCHES = 1000,  /* batches that may wait for one subscriber */
    MAX_FRAME = 1024,    /* maximum bytes of a frame from a peer: subscriptions, requests of 8 bytes, handshakes */
    HANDSHAKE_MS = 2000, /* time limit of a peer's handshake */
    MAX_TOPICS = 1000,   /* maximum topics of all peers; above it all peers are disconnected */
    REOPEN_TICKS = 10,   /* ticks of 10 ms before the socket is opened again */
};

typedef struct batch {
    uint64_t seq;
    zmq_msg_t payload;
} batch;

struct kv_events {
    kv_queue queue;
    char topic[256];
    char endpoint[2][ENDPOINT];  /* addresses of PUB and ROUTER as bound */
    bool is_bound;               /* PUB is bound; false = connected */
    int wake;                    /* eventfd: the queue has changes, or the thread must end */
    pthread_t thread;
    atomic_bool ends;
    atomic_uint_fast64_t sent, lost;
    /* Used by the thread only. */
    void *ctx, *pub, *router;    /* pub: XPUB, NULL while it is being reopened; router: NULL without replay */
    long n_topics;               /* number of distinct subscribed topics */
    int reopen_in;               /* ticks until pub is opened again; used while pub is NULL */
    uint64_t seq;                /* number of the next batch */
    batch *kept;                 /* [cap] ring of the last n batches, oldest first */
    size_t cap, first, n;
};

/* --------------------------------------------------------------------------------------------------------- packing */

static void pack_word(msgpack_packer *p, const char *s) { msgpack_pack_str_with_body(p, s, strlen(s)); }

static void pack_hashes(msgpack_packer *p, const kv_changes *c, size_t at, size_t end, size_t n)
{
    pi_cache_event ev;
    msgpack_pack_array(p, n);
    while (at < end && kv_changes_next(c, &at, &ev))
        for (size_t i = 0; i < ev.n_hashes; i++) msgpack_pack_uint64(p, ev.hashes[i]);
}

static void pack_tokens(msgpack_packer *p, const kv_changes *c, size_t at, size_t end, size_t n)
{
    pi_cache_event ev;
    msgpack_pack_array(p, n);
    while (at < end && kv_changes_next(c, &at, &ev))
        for (size_t i = 0; i < ev.n_tokens; i++) msgpack_pack_int32(p, ev.tokens[i]);
}

/* Packs the changes from `at` to `end`, a run whose totals are in `run`. */
static void pack_run(msgpack_packer *p, const kv_changes *c, size_t at, size_t end, const pi_cache_event *run)
{
    switch (run->kind) {
    case PI_CACHE_STORED:
        msgpack_pack_array(p, 8);
        pack_word(p, "BlockStored");
        pack_hashes(p, c, at, end, run->n_hashes);
        if (run->has_parent) msgpack_pack_uint64(p, run->parent);
        else msgpack_pack_nil(p);
        pack_tokens(p, c, at, end, run->n_tokens);
        msgpack_pack_uint64(p, run->n_tokens / run->n_hashes);
        msgpack_pack_nil(p);
        pack_word(p, "GPU");
        msgpack_pack_nil(p);
        break;
    case PI_CACHE_REMOVED:
        msgpack_pack_array(p, 3);
        pack_word(p, "BlockRemoved");
        pack_hashes(p, c, at, end, run->n_hashes);
        pack_word(p, "GPU");
        break;
    default:
        msgpack_pack_array(p, 1);
        pack_word(p, "AllBlocksCleared");
    }
}

/* An output buffer that remembers a failed allocation. msgpack's own buffer forgets it after the call. */
typedef struct sink {
    msgpack_sbuffer buf;
    bool failed;
} sink;

static int sink_write(void *ud, const char *p, size_t n)
{
    sink *s = ud;
    if (!s->failed && msgpack_sbuffer_write(&s->buf, p, n)) s->failed = true;
    return s->failed ? -1 : 0;
}

static void free_payload(void *p, void *hint)
{
    (void) hint;
    free(p);
}

/* Packs these changes into *out as the payload of a batch. Returns false if out of memory. */
static bool pack(zmq_msg_t *out, const kv_changes *c)
{
    sink s = {0};
    pi_cache_event run;
    struct timespec now;
    size_t n = 0;
    for (size_t at = 0; kv_changes_run(c, &at, &run);) n++;
    clock_gettime(CLOCK_REALTIME, &now);
    msgpack_packer p;
    msgpack_packer_init(&p, &s, sink_write);
    msgpack_pack_array(&p, 3);
    msgpack_pack_double(&p, (double) now.tv_sec + (double) now.tv_nsec * 1e-9);
    msgpack_pack_array(&p, n);
    for (size_t at = 0, from = 0; kv_changes_run(c, &at, &run); from = at) pack_run(&p, c, from, at, &run);
    msgpack_pack_int32(&p, 0); /* data-parallel rank: always 0 */
    const size_t size = s.buf.size;
    char *bytes = msgpack_sbuffer_release(&s.buf);
    char *tight = s.failed ? NULL : realloc(bytes, size); /* shrunk, because the batch is kept for long */
    if (tight) bytes = tight;
    if (!s.failed && !zmq_msg_init_data(out, bytes, size, free_payload, NULL)) return true;
    free(bytes);
    return false;
}

/* --------------------------------------------------------------------------------------------------------- sending */

static void big_endian(uint64_t v, unsigned char out[8])
{
    for (int i = 0; i < 8; i++) out[i] = (unsigned char) (v >> (56 - 8 * i));
}

static bool send_bytes(void *socket, const void *p, size_t n, bool more)
{
    return zmq_send(socket, p, n, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0;
}

/* Sends a copy; the caller keeps the message. */
static bool send_copy(void *socket, zmq_msg_t *m, bool more)
{
    zmq_msg_t copy;
    zmq_msg_init(&copy);
    if (!zmq_msg_copy(&copy, m) && zmq_msg_send(&copy, socket, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) >= 0)
        return true;
    zmq_msg_close(&copy);
    return false;
}

static void keep(kv_events *k, batch *b)
{
    if (!k->cap) {
        zmq_msg_close(&b->payload);
        return;
    }
    batch *to = &k->kept[(k->first + k->n) % k->cap];
    if (k->n == k->cap) {
        zmq_msg_close(&to->payload);
        k->first = (k->first + 1) % k->cap;
    } else k->n++;
    to->seq = b->seq;
    zmq_msg_init(&to->payload);
    zmq_msg_move(&to->payload, &b->payload);
}

/* Sends one batch. Returns false if out of memory; the batch number is then skipped. */
static bool publish(kv_events *k, const kv_changes *c)
{
    unsigned char number[8];
    batch b = {.seq = k->seq++};
    if (!pack(&b.payload, c)) return false;
    big_endian(b.seq, number);
    /* XPUB drops complete messages if a subscriber's queue is full. */
    if (k->pub && send_bytes(k->pub, k->topic, strlen(k->topic), true) && send_bytes(k->pub, number, 8, true))
        send_copy(k->pub, &b.payload, false);
    keep(k, &b);
    atomic_fetch_add(&k->sent, 1);
    return true;
}

/* Publishes all queued changes. Returns true if the caller must call again soon. */
static bool publish_all(kv_events *k)
{
    kv_changes c = kv_queue_take(&k->queue);
    uint64_t lost = c.lost;
    pi_cache_event ev;
    if (c.n && !publish(k, &c)) {
        for (size_t at = 0; kv_changes_next(&c, &at, &ev);) lost++;
    } else if (lost) k->seq++; /* skips a batch number: a batch was lost */
    if (!lost) return false;
    atomic_fetch_add(&k->lost, lost);
    /* The lost changes may include removals. So subscribers must clear their state, even if they ignore batch
     * numbers. */
    kv_queue_put(&k->queue, &(pi_cache_event) {.kind = PI_CACHE_CLEARED});
    return true;
}

/* --------------------------------------------------------------------------------------------------- subscriptions */

static void *open_socket(kv_events *k, int type, const char *endpoint, char out[ENDPOINT], bool *is_bound,
                         char err[256]);

/* ZeroMQ keeps every topic that a peer subscribes to, without a limit. It cannot end the connection of one peer. So
 * the thread counts topics, and above MAX_TOPICS it closes the socket; subscribers connect again. */
static void read_subscriptions(kv_events *k)
{
    zmq_msg_t m;
    bool more = false; /* within a message that is not a subscription */
    zmq_msg_init(&m);
    while (zmq_msg_recv(&m, k->pub, ZMQ_DONTWAIT) >= 0) {
        const unsigned char *p = zmq_msg_data(&m);
        if (!more && zmq_msg_size(&m)) k->n_topics += p[0] == 1 ? 1 : p[0] == 0 ? -1 : 0;
        more = zmq_msg_more(&m);
    }
    zmq_msg_close(&m);
    if (k->n_topics <= MAX_TOPICS) return;
    zmq_close(k->pub);
    k->pub = NULL;
    k->n_topics = 0;
    k->reopen_in = REOPEN_TICKS;
}

/* Opens the socket at its endpoint again. The closed one may hold the endpoint for some time. */
static void reopen(kv_events *k)
{
    char endpoint[ENDPOINT], err[256];
    bool is_bound;
    if (--k->reopen_in > 0) return;
    k->pub = open_socket(k, ZMQ_XPUB, k->endpoint[0], endpoint, &is_bound, err);
    k->reopen_in = REOPEN_TICKS;
}

/* ---------------------------------------------------------------------------------------------------------- replay */

/* Reads a request. Returns true if it is valid; sets the requester and the first batch number. Always reads all its
 * frames. */
static bool read_request(void *router, zmq_msg_t *who, uint64_t *from)
{
    bool more = true, ok = true;
    int n = 0;
    for (; more; n++) {
        zmq_msg_t m;
        zmq_msg_init(&m);
        if (zmq_msg_recv(&m, router, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&m);
            return false;
        }
        const unsigned char *p = zmq_msg_data(&m);
        const size_t size = zmq_msg_size(&m);
        more = zmq_msg_more(&m);
        if (n == 0) zmq_msg_move(who, &m);
        else if (n == 1) ok = ok && !size;
        else if (n > 2 || size != 8) ok = false;
        else
            for (int i = 0; i < 8; i++) *from = *from << 8 | p[i];
        zmq_msg_close(&m);
    }
    return ok && n == 3;
}

static bool send_kept(kv_events *k, zmq_msg_t *who, uint64_t seq, zmq_msg_t *payload)
{
    unsigned char number[8];
    big_endian(seq, number);
    return send_copy(k->router, who, true) && send_bytes(k->router, "", 0, true) &&
           send_bytes(k->router, number, 8, true) &&
           (payload ? send_copy(k->router, payload, false) : send_bytes(k->router, "", 0, false));
}

/* Reads one request and sends all kept batches that it asks for, then the end. The socket's queue can hold all kept
 * batches and the end. A requester that does not read gets fewer batches and no end. */
static void answer_replay(kv_events *k)
{
    zmq_msg_t who;
    uint64_t from = 0;
    bool goes = true;
    zmq_msg_init(&who);
    if (read_request(k->router, &who, &from)) {
        for (size_t i = 0; i < k->n && goes; i++) {
            batch *b = &k->kept[(k->first + i) % k->cap];
            if (b->seq >= from) goes = send_kept(k, &who, b->seq, &b->payload);
        }
        if (goes) send_kept(k, &who, UINT64_MAX, NULL);
    }
    zmq_msg_close(&who);
}

static void *run(void *ud)
{
    kv_events *k = ud;
    bool soon = false;
    uint64_t n;
    while (!atomic_load(&k->ends)) {
        zmq_pollitem_t item[3] = {{.fd = k->wake, .events = ZMQ_POLLIN}};
        int n_items = 1, pub = 0, router = 0;
        if (k->pub) item[pub = n_items++] = (zmq_pollitem_t) {.socket = k->pub, .events = ZMQ_POLLIN};
        if (k->router) item[router = n_items++] = (zmq_pollitem_t) {.socket = k->router, .events = ZMQ_POLLIN};
        if (zmq_poll(item, n_items, soon || !k->pub ? 10 : -1) < 0 && errno != EINTR) break;
        if (read(k->wake, &n, sizeof n) < 0) {} /* no wake-up was pending */
        if (!k->pub) reopen(k);
        else if (pub && item[pub].revents) read_subscriptions(k);
        soon = publish_all(k);
        if (router && item[router].revents) answer_replay(k);
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------------ opening, closing */

static bool set_int(void *socket, int what, int v) { return !zmq_setsockopt(socket, what, &v, sizeof v); }
static bool set_int64(void *socket, int what, int64_t v) { return !zmq_setsockopt(socket, what, &v, sizeof v); }

/* Binds the socket if the endpoint is a local address, else connects it. Returns false on failure; errno is set. */
static bool attach(void *socket, const char *endpoint, char out[ENDPOINT], bool *is_bound)
{
    size_t n = ENDPOINT;
    *is_bound = !zmq_bind(socket, endpoint);
    if (!*is_bound) {
        if ((errno != ENODEV && errno != EADDRNOTAVAIL) || zmq_connect(socket, endpoint)) return false;
    }
    if (zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, out, &n)) snprintf(out, ENDPOINT, "%s", endpoint);
    return true;
}

static void *open_socket(kv_events *k, int type, const char *endpoint, char out[ENDPOINT], bool *is_bound,
                         char err[256])
{
    /* ROUTER: the queue holds all kept batches and the end. A disconnected or full peer is reported as an error. */
    const int room = type == ZMQ_XPUB ? PUB_BATCHES : (int) k->cap + 1;
    void *s = NULL;
    if (strncmp(endpoint, "tcp://", 6) && strncmp(endpoint, "ipc://", 6)) {
        snprintf(err, 256, "%.150s: give tcp://ADDRESS:PORT or ipc://PATH", endpoint);
        return NULL;
    }
    if ((s = zmq_socket(k->ctx, type)) && set_int(s, ZMQ_LINGER, 0) && set_int(s, ZMQ_SNDHWM, room) &&
        set_int(s, ZMQ_TCP_KEEPALIVE, 1) && set_int64(s, ZMQ_MAXMSGSIZE, MAX_FRAME) &&
        set_int(s, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) && set_int(s, ZMQ_RCVHWM, 16) &&
        set_int(s, ZMQ_IPV6, strchr(endpoint, '[') != NULL) &&
        (type == ZMQ_XPUB || set_int(s, ZMQ_ROUTER_MANDATORY, 1)) && attach(s, endpoint, out, is_bound))
        return s;
    snprintf(err, 256, "%.150s: %s", endpoint, zmq_strerror(errno));
    if (s) zmq_close(s);
    return NULL;
}

static bool open_all(kv_events *k, const kv_events_config *c, char err[256])
{
    bool is_bound;
    sigset_t all, before;
    if (!(k->ctx = zmq_ctx_new()) || (k->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0) {
        snprintf(err, 256, "%s", strerror(errno));
        return false;
    }
    if (!(k->pub = open_socket(k, ZMQ_XPUB, c->endpoint, k->endpoint[0], &k->is_bound, err))) return false;
    if (*c->replay && !(k->router = open_socket(k, ZMQ_ROUTER, c->replay, k->endpoint[1], &is_bound, err)))
        return false;
    /* The first batch makes subscribers drop the state of an earlier server. */
    kv_events_put(k, &(pi_cache_event) {.kind = PI_CACHE_CLEARED});
    sigfillset(&all); /* the loop handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&k->thread, NULL, run, k);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) snprintf(err, 256, "cannot start a thread");
    return !rc;
}

/* Closes everything except the thread. */
static void close_all(kv_events *k)
{
    if (k->pub) zmq_close(k->pub);
    if (k->router) zmq_close(k->router);
    for (; k->n; k->n--, k->first = (k->first + 1) % k->cap) zmq_msg_close(&k->kept[k->first].payload);
    if (k->ctx) zmq_ctx_term(k->ctx);
    for (int i = 0; i < 2; i++) /* ZeroMQ does not remove these files */
        if (!strncmp(k->endpoint[i], "ipc:///", 7)) unlink(k->endpoint[i] + 6);
    if (k->wake >= 0) close(k->wake);
    kv_queue_close(&k->queue);
    free(k->kept);
    free(k);
}

kv_events *kv_events_open(const kv_events_config *c, char err[256])
{
    kv_events *k = calloc(1, sizeof *k);
    snprintf(err, 256, "out of memory");
    if (!k || !kv_queue_open(&k->queue, c->queue_bytes)) {
        free(k);
        return NULL;
    }
    k->wake = -1;
    k->cap = *c->replay ? c->keep : 0;
    snprintf(k->topic, sizeof k->topic, "%s", c->topic);
    if (strlen(c->topic) >= sizeof k->topic)
        snprintf(err, 256, "the topic has more than %zu bytes", sizeof k->topic - 1);
    else if (!k->cap || (k->kept = calloc(k->cap, sizeof *k->kept))) {
        if (open_all(k, c, err)) return k;
    }
    close_all(k);
    return NULL;
}

static void wake(kv_events *k)
{
    const uint64_t one = 1;
    if (write(k->wake, &one, sizeof one) < 0) {} /* the counter is already at its maximum */
}

void kv_events_put(void *ud, const pi_cache_event *ev)
{
    kv_events *k = ud;
    if (kv_queue_put(&k->queue, ev)) wake(k);
}

void kv_events_close(kv_events *k)
{
    if (!k) return;
    atomic_store(&k->ends, true);
    wake(k);
    pthread_join(k->thread, NULL);
    close_all(k);
}

const char *kv_events_endpoint(const kv_events *k, bool replay) { return k->endpoint[replay]; }
bool kv_events_is_bound(const kv_events *k) { return k->is_bound; }
uint64_t kv_events_sent(const kv_events *k) { return atomic_load(&k->sent); }
uint64_t kv_events_lost(const kv_events *k) { return atomic_load(&k->lost); }

#else

kv_events *kv_events_open(const kv_events_config *c, char err[256])
{
    (void) c;
    snprintf(err, 256, "this build has no KV events: install libzmq3-dev and libmsgpack-dev, then configure with "
             "-DPAGEDINFER_KV_EVENTS=ON");
    return NULL;
}

void kv_events_put(void *ud, const pi_cache_event *ev) { (void) ud, (void) ev; }
void kv_events_close(kv_events *k) { (void) k; }
const char *kv_events_endpoint(const kv_events *k, bool replay)
{
    (void) k, (void) replay;
    return "";
}
bool kv_events_is_bound(const kv_events *k)
{
    (void) k;
    return false;
}
uint64_t kv_events_sent(const kv_events *k)
{
    (void) k;
    return 0;
}
uint64_t kv_events_lost(const kv_events *k)
{
    (void) k;
    return 0;
}

#endif
