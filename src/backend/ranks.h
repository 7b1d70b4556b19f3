/* Processes that act as one device: each has a device, and rank 0 sends commands to the others (tensor_orders.c).
 *
 * The processes communicate over a transport, a table of functions. There are three: MPI (mpi/plugin.c), loaded on
 * demand; TCP (ranks_tcp.c), for launchers that only provide an address; and the tests' own. The transport joins
 * the processes once, when the first engine is opened, and stays until the process ends, across engines.
 *
 * Rank 0 sends commands; the worker ranks receive and execute them in order (pi__tensor_follow). A command is a
 * header, its payload, and for some kinds a reply of all ranks. Between commands rank 0 sends pings, so that each
 * side knows that the other one is alive. No call waits longer than timeout_ms. After a timeout, or if the
 * transport reports that a process has ended, the ranks are dead permanently: calls fail immediately, and so do
 * engines.
 *
 * Threads: `lock` is held from the start of a command to its end. All calls of the transport are made with it held. */
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

/* The functions of a transport. ms: time limit; negative = no limit. They return false after a timeout or if a
 * process has ended. Then the transport cannot be used any more, and it does not touch the caller's memory again. */
typedef struct pi__ranks_fns {
    /* Broadcasts n bytes at p from rank 0 to all. */
    bool (*bcast)(pi__ranks *r, void *p, size_t n, double ms);
    /* All-gathers n bytes per rank: rank k's part is at buf + k * n. */
    bool (*gather)(pi__ranks *r, void *buf, size_t n, double ms);
    /* Send n bytes from rank 0 to one rank, and receive them there; in order. */
    bool (*send)(pi__ranks *r, int32_t to, const void *p, size_t n, double ms);
    bool (*receive)(pi__ranks *r, void *p, size_t n, double ms);
} pi__ranks_fns;

struct pi__ranks {
    const pi__ranks_fns *fns;
    int32_t rank, n;        /* this rank; number of ranks */
    int32_t local, n_local; /* number of this rank on its machine; ranks on the machine */
    double timeout_ms;      /* see above */
    atomic_bool dead;       /* no longer usable */
    pthread_mutex_t lock;   /* one command at a time; used by rank 0 */
    pthread_cond_t quit;    /* stop is set */
    pthread_t pinger;       /* thread of rank 0 that sends pings */
    bool pings, stop;       /* pinger has to be joined; pinger has to end */
};

/* Commands. R = with a reply. */
enum {
    PI__ORDER_PING = 0x5041, /* R no operation */
    PI__ORDER_END,           /* end the process */
    PI__ORDER_OPEN,          /* R open a device; payload: pi__rank_device */
    PI__ORDER_JOIN,          /* R link the devices; payload: id by which devices find each other, PI__RANK_ID_BYTES */
    PI__ORDER_CLOSE,         /* close the device and free all its memory */
    PI__ORDER_RESERVE,       /* R allocate scratch; payload: pi__limits */
    PI__ORDER_ALLOC,         /* R allocate size bytes, which rank 0 has at `at` */
    PI__ORDER_ARENA,         /* R reserve an arena of size bytes, likewise */
    PI__ORDER_FREE,          /* free memory or an arena */
    PI__ORDER_MAP,           /* R map memory in an arena */
    PI__ORDER_UNMAP,         /* unmap it */
    PI__ORDER_COMMIT,        /* R back memory now */
    PI__ORDER_TRIM,          /* return memory to the system */
    PI__ORDER_UPLOAD,        /* R write the payload to `at` */
    PI__ORDER_LOAD,          /* load matrix rows: pi__rank_rows, then the rows, by broadcast or sent to each rank */
    PI__ORDER_KEEP,          /* R keep a copy of constant host memory that rank 0 has at `at`; payload: its bytes */
    PI__ORDER_RUN,           /* run calls; R if `size` is not 0: then also wait for them */
};
typedef struct pi__order {
    uint64_t kind;           /* PI__ORDER_* */
    uint64_t at, size;       /* memory of the command */
    uint64_t n_bytes;        /* bytes of payload, broadcast to all */
} pi__order;

/* A rank's reply. */
typedef struct pi__reply {
    int32_t code;            /* PI_OK or an error code */
    bool reached;            /* the rank has made all calls; false = another rank was lost */
    uint64_t a, b;           /* meaning depends on the command */
    char text[232];          /* error text, or as the command defines it */
} pi__reply;

enum { PI__MOST_RANKS = 16 };

/* Rank 0: sends a command and its payload to all. The caller holds the lock. Returns false if the ranks are dead. */
bool pi__ranks_order(pi__ranks *r, const pi__order *o, const void *bytes);
/* All-gathers the replies: own is this rank's; all [n] receives every rank's. Returns false if the ranks are dead. */
bool pi__ranks_reply(pi__ranks *r, const pi__reply *own, pi__reply *all);
/* Marks the ranks as dead if ok is false. Returns ok. */
bool pi__ranks_check(pi__ranks *r, bool ok);

/* Initializes the fields that are not the transport's, and starts the pings of rank 0. Returns PI_OK or PI_ENOMEM.
 * pi__ranks_end undoes this; on rank 0 it sends PI__ORDER_END to the others. */
int pi__ranks_begin(pi__ranks *r, pi_error *err);
void pi__ranks_end(pi__ranks *r);

/* Reads this process's rank from the launcher's environment. n 1 = a single process. PI_EUNSUPPORTED: the process
 * was launched as one of several, but without the variables needed to join them. */
typedef struct pi__launch {
    int32_t rank, n;
    const char *by; /* name of the launcher, for messages */
    bool tcp;       /* launched with torchrun's variables: ranks meet at MASTER_ADDR */
} pi__launch;
int pi__ranks_launched(pi__launch *out, pi_error *err);
/* Returns the ranks of this process. The first call joins them and waits for all; they last until the process
 * ends. secret: path of a file with bytes that all ranks share; "" = no file (see ranks_tcp.h). */
int pi__ranks_of_process(pi__ranks **out, double timeout_ms, const char *secret, const pi__log *log, pi_error *err);

#endif
