/* Processes that act as one device: each has a device, and rank 0 sends commands to the others (tensor_orders.c).
 *
 * The processes communicate over a transport, a table of functions. There are three: MPI (mpi/plugin.c), loaded on
 * demand; TCP (ranks_tcp.c), for launchers that only provide an address; and one in the tests. The transport joins the
 * processes once, when the first engine is opened. The connections stay until the process ends, across engines.
 *
 * Rank 0 sends commands; the worker ranks receive and execute them in order (pi__tensor_follow). A command is a header
 * (pi__order) and its payload; for some kinds all ranks then exchange replies. Between commands rank 0 sends pings, so
 * that each side knows that the other one is alive. No call waits longer than timeout_ms. After a timeout, or if the
 * transport reports that a process has ended, the ranks are dead permanently: all later calls fail immediately, and so
 * do engines that use the ranks.
 *
 * Threads: on rank 0, `lock` is held from the start of a command to its end, and during every call of the transport. On
 * a worker rank, one thread at a time calls the transport. */
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

/* The functions of a transport. ms: time limit in milliseconds; negative = no limit. They return false after a
 * timeout or if a process has ended. Then the transport cannot be used any more, and it does not access the
 * caller's memory again. */
typedef struct pi__ranks_fns {
    /* Broadcasts n bytes from p on rank 0 to p on all other ranks; all ranks call it. */
    bool (*bcast)(pi__ranks *r, void *p, size_t n, double ms);
    /* All-gathers n bytes per rank: rank k's part is at buf + k * n on all ranks. */
    bool (*gather)(pi__ranks *r, void *buf, size_t n, double ms);
    /* send, on rank 0: sends n bytes to rank `to`. receive, on that rank: receives them. Messages arrive in order. */
    bool (*send)(pi__ranks *r, int32_t to, const void *p, size_t n, double ms);
    bool (*receive)(pi__ranks *r, void *p, size_t n, double ms);
} pi__ranks_fns;

struct pi__ranks {
    const pi__ranks_fns *fns;
    int32_t rank, n;        /* this rank; number of ranks */
    int32_t local, n_local; /* number of this rank among the ranks of its machine; number of these */
    double timeout_ms;      /* milliseconds that ranks wait for each other */
    atomic_bool dead;       /* true = a call failed, and the ranks cannot be used any more */
    pthread_mutex_t lock;   /* one command at a time; used by rank 0 */
    pthread_cond_t quit;    /* signalled when `stop` is set */
    pthread_t pinger;       /* thread of rank 0 that sends pings */
    bool pings, stop;       /* the thread was started and has to be joined; the thread has to end */
};

/* Commands. R = all ranks reply. `at` and `size` are the fields of pi__order. */
enum {
    PI__ORDER_PING = 0x5041, /* R no operation */
    PI__ORDER_END,           /* end the process */
    PI__ORDER_OPEN,          /* R open a device; payload: pi__rank_device */
    PI__ORDER_JOIN,          /* R link the devices; payload: id by which devices find each other, PI__RANK_ID_BYTES */
    PI__ORDER_CLOSE,         /* close the device and free all its memory */
    PI__ORDER_RESERVE,       /* R allocate scratch memory; payload: pi__limits */
    PI__ORDER_ALLOC,         /* R allocate `size` bytes; rank 0's allocation is at `at` */
    PI__ORDER_ARENA,         /* R reserve an arena of `size` bytes; rank 0's arena is at `at` */
    PI__ORDER_FREE,          /* free the memory or arena that starts at `at` */
    PI__ORDER_MAP,           /* R map `size` bytes at `at` in an arena */
    PI__ORDER_UNMAP,         /* unmap these bytes */
    PI__ORDER_COMMIT,        /* R back `size` bytes at `at` with memory now */
    PI__ORDER_TRIM,          /* return the pages of `size` bytes at `at` to the system */
    PI__ORDER_UPLOAD,        /* R write the payload to `at` */
    /* load matrix rows; payload: pi__rank_rows. Then the rows, broadcast to all or sent to each rank */
    PI__ORDER_LOAD,
    /* R copy constant host memory of rank 0, which has the address `at` there; payload: its bytes */
    PI__ORDER_KEEP,
    /* run the calls in the payload; R if `size` is not 0: the ranks then also wait for the calls */
    PI__ORDER_RUN,
};
typedef struct pi__order {
    uint64_t kind;           /* PI__ORDER_* */
    uint64_t at, size;       /* range of memory of the command, in rank 0's addresses */
    uint64_t n_bytes;        /* bytes of payload, broadcast to all */
} pi__order;

/* A rank's reply. */
typedef struct pi__reply {
    int32_t code;            /* PI_OK or an error code */
    /* RUN: true = the rank has made all calls; false = it stopped, because another rank was lost. Other commands:
     * true */
    bool reached;
    /* OPEN: a is the arena page; RUN: a, b are n_attended, n_possible of pi__backend; else 0 */
    uint64_t a, b;
    char text[232];          /* error text, or as the command defines it */
} pi__reply;

enum { PI__MOST_RANKS = 16 };

/* Rank 0: sends a command and its payload to all. The caller holds the lock. Returns false if the ranks are dead. */
bool pi__ranks_order(pi__ranks *r, const pi__order *o, const void *bytes);
/* All-gathers the replies to a command: own is this rank's reply; all [n] receives every rank's. Returns false if the
 * ranks are dead. */
bool pi__ranks_reply(pi__ranks *r, const pi__reply *own, pi__reply *all);
/* If ok is false, marks the ranks as dead. Returns ok. */
bool pi__ranks_check(pi__ranks *r, bool ok);

/* Initializes the fields that the transport does not set (lock, conditions, flags), and starts the ping thread on
 * rank 0. Returns PI_OK or PI_ENOMEM. pi__ranks_end undoes this; on rank 0 it also sends PI__ORDER_END to the
 * others. */
int pi__ranks_begin(pi__ranks *r, pi_error *err);
void pi__ranks_end(pi__ranks *r);

/* This process's rank according to its launcher's environment variables. */
typedef struct pi__launch {
    int32_t rank, n;
    const char *by; /* name of the launcher, for messages */
    bool tcp;       /* launched with torchrun's variables: ranks meet at MASTER_ADDR */
} pi__launch;
/* Fills in *out from the environment; n is 1 for a single process. Returns PI_EUNSUPPORTED if the process was
 * launched as one of several, but the variables needed to join them are missing. */
int pi__ranks_launched(pi__launch *out, pi_error *err);
/* Returns the ranks that this process belongs to. The first call joins the ranks and waits for all of them; later calls
 * return the same ranks. secret: path of a file with bytes that all ranks share; "" = the value of
 * PAGEDINFER_RANK_KEY, or no secret (see ranks_tcp.h). */
int pi__ranks_of_process(pi__ranks **out, double timeout_ms, const char *secret, const pi__log *log, pi_error *err);

#endif
