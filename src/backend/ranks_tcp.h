/* The transport of ranks over TCP (ranks_tcp.c), for launchers that only set WORLD_SIZE, RANK, MASTER_ADDR and
 * MASTER_PORT. */
#ifndef PI__RANKS_TCP_H
#define PI__RANKS_TCP_H

#include "backend/ranks.h"
#include "base/hash.h"

/* State of the MACs of one connection: a key per direction, and the number of messages sent and received. */
typedef struct pi__tcp_seal {
    pi__mac_key out, in;
    uint64_t n_out, n_in;
} pi__tcp_seal;

/* The TCP transport of one process. */
typedef struct pi__ranks_tcp {
    pi__ranks r;              /* first: the public interface */
    /* sockets: rank 0 has fd[i] to rank i; other ranks have only fd[0], to rank 0; -1 = no connection */
    int fd[PI__MOST_RANKS];
    pi__tcp_seal seal[PI__MOST_RANKS]; /* MAC state of each connection, same index as fd */
    bool sealed;              /* every message has a MAC; requires a secret */
} pi__ranks_tcp;

/* The address that rank 0 listens at and the others connect to, and the job's shared data. */
typedef struct pi__tcp_place {
    const char *host, *port;  /* as getaddrinfo takes them */
    const char *run;          /* name of the job, the same on all ranks; "" = unnamed */
    int32_t local;            /* number of this process on its machine; negative = rank 0 numbers the processes */
    const void *secret;       /* [n_secret] bytes that all ranks share; NULL = none, allowed only on loopback */
    size_t n_secret;
} pi__tcp_place;

/* Joins this process as rank `rank` of n, and waits for all others for at most timeout_ms. Fills in t->r, except
 * for the fields that pi__ranks_begin sets. Logs connections that are not from a rank. Returns PI_EINVAL if a
 * secret is required and missing, PI_EUNSUPPORTED or PI_EDEVICE if joining failed. After an error all sockets are
 * closed. */
int pi__tcp_join(pi__ranks_tcp *t, const pi__tcp_place *at, int32_t rank, int32_t n, double timeout_ms,
                 const pi__log *log, pi_error *err);
void pi__tcp_close(pi__ranks_tcp *t);

#endif
