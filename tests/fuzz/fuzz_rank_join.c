/* Fuzzes the TCP handshake of ranks: the input is the byte stream of the peer. The first byte selects the side under
 * test, the use of a secret, and whether correct MACs replace the MACs of the input. Any input makes a rank join or
 * be refused with a text; no rank joins without the secret. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* Replaces getrandom by constant bytes, so that each run has the same nonces. */
static ssize_t no_random(void *p, size_t n, unsigned flags)
{
    (void) flags;
    memset(p, 7, n);
    return (ssize_t) n;
}
#define getrandom no_random
#include "backend/ranks_tcp.c"
#undef getrandom

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OTHER_SIDE = 1, SECRET = 2, RIGHT = 4, MAX_BYTES = 16384, N_RANKS = 3 };

static void send_bytes(int fd, const void *p, size_t n)
{
    if (n && send(fd, p, n, MSG_NOSIGNAL) != (ssize_t) n) abort();
}

/* Rank 0 under test: the bytes are a hello. */
static void meet_rank(int fd[2], const pi__tcp_place *at, int flags, const uint8_t *p, size_t n)
{
    pi__ranks_tcp t = {.r = {.n = N_RANKS}, .sealed = at->n_secret > 0};
    const pi__log log = {0};
    door d = {.t = &t, .at = at, .log = &log, .listener = -1, .g = {.version = VERSION}, .n_here = 1};
    guest g = {.fd = fd[0], .end = pi__now_ms() + 1000};
    hello h;
    for (int i = 0; i < PI__MOST_RANKS; i++) t.fd[i] = -1;
    if (flags & RIGHT && n >= sizeof h) {
        memcpy(&h, p, sizeof h);
        memcpy(h.magic, MAGIC, sizeof h.magic);
        pi__ranks_build(h.build);
        h.proof = hello_proof(at, &d.g, &h);
        send_bytes(fd[1], &h, sizeof h);
    } else {
        send_bytes(fd[1], p, n);
    }
    (void) shutdown(fd[1], SHUT_WR);
    while (g.fd >= 0) listen_to(&d, &g);
    const bool joined = d.n_here > 1;
    if (joined && at->n_secret && !(flags & RIGHT)) __builtin_trap();
    for (int32_t i = 1; i < N_RANKS && joined; i++)
        if (t.fd[i] >= 0 && d.rank[i].rank != i) __builtin_trap();
    pi__tcp_close(&t);
}

/* Another rank under test: the bytes are a greeting, a welcome and messages. */
static void meet_rank_0(int fd[2], const pi__tcp_place *at, int flags, const uint8_t *p, size_t n)
{
    pi__ranks_tcp t = {.r = {.rank = 1, .n = N_RANKS, .timeout_ms = 1000}, .sealed = at->n_secret > 0};
    pi_error err = {0};
    uint8_t buf[64];
    greeting g;
    welcome w;
    for (int i = 0; i < PI__MOST_RANKS; i++) t.fd[i] = -1;
    t.fd[0] = fd[0];
    if (flags & RIGHT && n >= sizeof g + sizeof w) {
        hello h = {.rank = 1, .n = N_RANKS};
        memcpy(&g, p, sizeof g), memcpy(&w, p + sizeof g, sizeof w);
        memcpy(g.magic, MAGIC, sizeof g.magic), memcpy(w.magic, MAGIC, sizeof w.magic);
        g.version = VERSION, w.code = PI_OK;
        memcpy(h.magic, MAGIC, sizeof h.magic);
        (void) no_random(h.nonce, sizeof h.nonce, 0);
        pi__ranks_build(h.build);
        snprintf(h.run, sizeof h.run, "%s", at->run);
        name_machine(h.machine);
        h.proof = hello_proof(at, &g, &h);
        w.text[sizeof w.text - 1] = 0;
        make_printable(w.text); /* the proof covers the text after this conversion */
        w.proof = welcome_proof(at, &g, &h, &w);
        send_bytes(fd[1], &g, sizeof g), send_bytes(fd[1], &w, sizeof w);
        p += sizeof g + sizeof w, n -= sizeof g + sizeof w;
    }
    send_bytes(fd[1], p, n);
    (void) shutdown(fd[1], SHUT_WR);
    const int rc = say_hello(&t, at, pi__now_ms() + 1000, &err);
    if (rc && !*err.msg) __builtin_trap();
    if (!rc && at->n_secret && !(flags & RIGHT)) __builtin_trap();
    if (!rc && (t.r.local < 0 || t.r.local >= t.r.n_local)) __builtin_trap();
    for (size_t k = 1; !rc && k <= sizeof buf && receive_message(&t, 0, buf, k, pi__now_ms() + 1000); k *= 2)
        if (t.sealed) __builtin_trap(); /* no message of the input has a correct MAC */
    pi__tcp_close(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char secret[] = "the secret of thirty-two characters";
    int fd[2];
    if (!size || size > MAX_BYTES) return 0;
    const int flags = *data;
    const pi__tcp_place at =
        {"127.0.0.1", "1", "job", -1, flags & SECRET ? secret : NULL, flags & SECRET ? sizeof secret : 0};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd)) abort();
    (flags & OTHER_SIDE ? meet_rank_0 : meet_rank)(fd, &at, flags, data + 1, size - 1);
    (void) close(fd[1]);
    return 0;
}
