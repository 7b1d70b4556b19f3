/* Processes that work as one: each has a device, and rank 0 says what they do (tensor_orders.c).
 *
 * What they have between them is a transport, of which this file has the calls: MPI (mpi/plugin.c), loaded when it is
 * asked for, TCP (ranks_tcp.c), where the launcher says no more than an address, or what a test makes. It joins
 * processes once, when the first engine is opened, and stays until the process ends: engines come and go.
 *
 * Rank 0 sends orders, all others take them in turn (pi__tensor_follow). An order is a head, what it says follows it, and
 * where it asks for one, a reply of all. A ping is sent in between, so that who waits for an order knows that rank 0
 * lives, and rank 0 that they do. Nobody waits longer than timeout_ms for anybody: after that, or where the transport says
 * that a process is gone, the ranks are dead for good, calls fail at once, and engines with them.
 *
 * Threads: `lock` is held from an order to its end; all calls of the transport are made under it. */
#ifndef PI__RANKS_H
#define PI__RANKS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/link.h"
#include "base/log.h"
#include "pagedinfer.h"

/* A transport's calls; ms: how long at most, negative: for ever. false: not in time, or somebody is gone; the transport is
 * of no more use then, and memory that it was given is not touched any more. */
typedef struct pi__ranks_fns {
    /* n bytes of rank 0 at p come to all. */
    bool (*bcast)(pi__ranks *r, void *p, size_t n, double ms);
    /* n bytes of each: rank k's at buf + k * n come to all. */
    bool (*gather)(pi__ranks *r, void *buf, size_t n, double ms);
    /* From rank 0 to one, which receives; in order. */
    bool (*send)(pi__ranks *r, int32_t to, const void *p, size_t n, double ms);
    bool (*receive)(pi__ranks *r, void *p, size_t n, double ms);
} pi__ranks_fns;

struct pi__ranks {
    const pi__ranks_fns *fns;
    int32_t rank, n;        /* this one of so many */
    int32_t local, n_local; /* the same among those of its machine */
    double timeout_ms;      /* see above */
    atomic_bool dead;       /* they do not work any more */
    pthread_mutex_t lock;   /* an order at a time; of rank 0 */
    pthread_cond_t quit;    /* stop is set */
    pthread_t pinger;       /* of rank 0 */
    bool pings, stop;       /* pinger is to be joined; it is to end */
};

/* What orders say. Those marked R are replied to. */
enum {
    PI__ORDER_PING = 0x5041, /* R nothing */
    PI__ORDER_END,           /* the process ends */
    PI__ORDER_OPEN,          /* R a device: pi__rank_device */
    PI__ORDER_JOIN,          /* R their link: what devices find each other by, PI__RANK_ID_BYTES */
    PI__ORDER_CLOSE,         /* the device, and all that it has */
    PI__ORDER_RESERVE,       /* R its scratch: pi__limits */
    PI__ORDER_ALLOC,         /* R memory of size bytes, that rank 0 has at `at` */
    PI__ORDER_ARENA,         /* R the same, addresses of an arena */
    PI__ORDER_FREE,          /* either */
    PI__ORDER_MAP,           /* R memory in an arena */
    PI__ORDER_UNMAP,
    PI__ORDER_COMMIT,        /* R */
    PI__ORDER_TRIM,
    PI__ORDER_UPLOAD,        /* R to `at`: bytes */
    PI__ORDER_LOAD,          /* rows of a matrix: pi__rank_rows, then the rows, or each rank's own are sent to it */
    PI__ORDER_KEEP,          /* R host memory that stays, which rank 0 has at `at`: bytes */
    PI__ORDER_RUN,           /* calls; R with `size`: and waits for them */
};
typedef struct pi__order {
    uint64_t kind;           /* PI__ORDER_* */
    uint64_t at, size;       /* of memory */
    uint64_t n_bytes;        /* that follow, to all */
} pi__order;

/* A rank's reply. */
typedef struct pi__reply {
    int32_t code;            /* PI_OK, or why not */
    bool reached;            /* it has done all calls; false: others were not there */
    uint64_t a, b;           /* as the order says */
    char text[232];          /* of the code, or as the order says */
} pi__reply;

enum { PI__MOST_RANKS = 16 };

/* Rank 0: the order, and its bytes, to all. The lock is held. false: they are dead. */
bool pi__ranks_order(pi__ranks *r, const pi__order *o, const void *bytes);
/* What all reply comes to all: own is this rank's, all [n] what they said. */
bool pi__ranks_reply(pi__ranks *r, const pi__reply *own, pi__reply *all);
/* A call of the transport that failed: nothing is tried any more. Returns ok. */
bool pi__ranks_note(pi__ranks *r, bool ok);

/* Fills in what is not the transport's; rank 0 begins to ping. PI_ENOMEM. And the end of that: rank 0 tells the others. */
int pi__ranks_begin(pi__ranks *r, pi_error *err);
void pi__ranks_end(pi__ranks *r);

/* What a launcher's environment says of this process. n 1: it is alone. PI_EUNSUPPORTED: it was launched as one of many, in a
 * way that cannot join them. */
typedef struct pi__launch {
    int32_t rank, n;
    const char *by; /* the launcher, for messages */
    bool tcp;       /* by variables as torchrun sets them: they meet at MASTER_ADDR */
} pi__launch;
int pi__ranks_launched(pi__launch *out, pi_error *err);
/* The ranks of this process, joined with the first call, which waits for all of them; they stay for its life. secret: path of
 * the file whose bytes all ranks share, or "" (see ranks_tcp.h). */
int pi__ranks_of_process(pi__ranks **out, double timeout_ms, const char *secret, const pi__log *log, pi_error *err);

#endif
