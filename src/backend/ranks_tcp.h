/* The transport of ranks over TCP (ranks_tcp.c), for launchers that only set WORLD_SIZE, RANK, MASTER_ADDR and MASTER_PORT. */
#ifndef PI__RANKS_TCP_H
#define PI__RANKS_TCP_H

#include "backend/ranks.h"
#include "base/hash.h"

/* Keys of a connection, and how many messages went each way. */
typedef struct pi__tcp_seal {
    pi__mac_key out, in;
    uint64_t n_out, n_in;
} pi__tcp_seal;

/* A process among its ranks. */
typedef struct pi__ranks_tcp {
    pi__ranks r;              /* first: what the library knows */
    int fd[PI__MOST_RANKS];   /* connections: of rank 0 those of the others, of others [0] to rank 0; -1: none */
    pi__tcp_seal seal[PI__MOST_RANKS]; /* of each */
    bool sealed;              /* there is a secret: every message has a MAC */
} pi__ranks_tcp;

/* Where rank 0 listens. */
typedef struct pi__tcp_place {
    const char *host, *port;  /* as getaddrinfo has them */
    const char *run;          /* names the job, "": nothing does; all ranks have the same */
    int32_t local;            /* number of this process among those of its machine; negative: rank 0 counts */
    const void *secret;       /* [n_secret] bytes that all ranks share; NULL: none, and the host is this machine */
    size_t n_secret;
} pi__tcp_place;

/* Joins rank `rank` of n, and waits for all others for timeout_ms at most. Fills in t->r but for what pi__ranks_begin does. Log
 * lines tell of connections that are none of a rank's. PI_EINVAL: there is no secret, and the host is not this machine.
 * PI_EUNSUPPORTED, PI_EDEVICE: why not. Nothing is left open after an error. */
int pi__tcp_join(pi__ranks_tcp *t, const pi__tcp_place *at, int32_t rank, int32_t n, double timeout_ms, const pi__log *log,
                 pi_error *err);
void pi__tcp_close(pi__ranks_tcp *t);

#endif
