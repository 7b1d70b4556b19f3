/* Internals of the tensor-parallel backend (tensor.c): its object and its ranks, shared by tensor_*.c. */
#ifndef PI__TENSOR_IMPL_H
#define PI__TENSOR_IMPL_H

#include <pthread.h>

#include "backend/device.h"
#include "backend/link.h"
#include "backend/lora_local.h"
#include "backend/operands.h"
#include "backend/ranks.h"
#include "backend/tensor_orders.h"

enum {
    PI__MAX_RANKS = PI__MOST_RANKS,
    MAX_REGIONS = 64, /* regions of alloc */
    MAX_CALLS = 1024, /* calls recorded before they are run */
    MAX_KINDS = PI__STEP_SEGMENTS, /* number of step kinds before SEGMENTS */
    MAX_FUSED = 3,    /* max matrices fused in one, see pi__weight.fused_rows */
};

typedef struct pi__tensor pi__tensor;
typedef struct pi__wire pi__wire; /* tensor_wire.h */

/* A rank: its device, and the state of the thread that runs it. */
typedef struct rank {
    pi__tensor *t;          /* the backend that the rank belongs to */
    int32_t i;              /* number of the rank */
    pi__backend *be;        /* the rank's device; NULL = the device is in another process */
    /* device memory for shards of a result before they are copied to their columns in the result */
    float *stage;
    pi__batch batch, logits_batch; /* the step's batches, with this rank's embd_row and owner */
    int32_t *embd_row;      /* [2 * max_tokens] pi__batch.embd_row of both batches */
    int32_t *owner;         /* [2 * max_tokens] pi__batch.owner of both batches */
    const pi__batch *b;     /* batch returned by the device's begin for `batch` */
    pi__lora_local lora;    /* adapter runs with this device's addresses */
    bool met;               /* the rank has made the step's graph (make_graph) */
    bool lost;              /* the rank has left the link: it does nothing until the run ends */
    bool failed;            /* the rank was lost because its own device failed */
    int rc;                 /* result of the device's finish at the end of the last run */
    pi_error err;           /* error of rc */
    /* number of this rank's background copies that pi__tensor.n_copies does not count, because another rank could not
     * queue its copy */
    uint64_t n_unnumbered;
    uint64_t n_attended, n_possible; /* for a device in another process: the counters of its pi__backend */
    pthread_t thread;       /* runs the rank; rank 0 runs on the thread that calls finish */
    bool started;           /* thread has to be joined */
} rank;

/* One allocation of alloc, or one arena, and its address on each device. */
typedef struct region {
    /* the address that alloc returned: rank 0's, also in other processes; NULL = this entry is free */
    char *base;
    char *at[PI__MAX_RANKS]; /* [n] addresses on the ranks of this process */
    size_t size;             /* bytes */
    bool arena;              /* an arena: addresses that have memory only where it is mapped */
} region;

/* A recorded call: an op, the beginning of a step, or a download. `run` executes the call on rank k. */
typedef struct call {
    void (*run)(rank *k, const struct call *c);
    pi__op_record op;       /* an op's id, batch and arguments; not used by other calls */
    struct { void *dst; const void *src; size_t n; } download; /* a download's arguments */
} call;

struct pi__tensor {
    pi__backend be;         /* first: the public interface */
    pi__device_fns dev;     /* be.dev */
    pi__device_opt opt;     /* be.opt */
    pi__op_fns ops;         /* be.ops */
    char desc[96];          /* describe() */
    int32_t n;              /* ranks */
    int32_t first, end;     /* ranks in this process: first to end - 1; either all or one */
    rank rank[PI__MAX_RANKS]; /* [n] */
    pi__ranks *ranks;       /* the other processes; NULL = all ranks are in this process */
    pi__rank_device device; /* description from which worker ranks open their devices */
    bool opened;            /* worker ranks have opened their devices */
    pi__wire *wire;         /* buffer for calls that are sent to worker ranks; NULL before reserve() */
    pi__link *link;         /* the all-gather between ranks; NULL before reserve() */
    region region[MAX_REGIONS];
    uint64_t n_copies;      /* number of the last background copy that all ranks have queued */
    size_t stage_floats;    /* floats of each rank's `stage` */
    pi__limits lim;         /* limits of the last reserve() */
    const pi__batch *given;   /* the step's batch as the caller gave it */
    /* the batches that ops use: `given` and its logits batch, with the devices' padding counted */
    pi__batch b, logits_batch;
    int kind;                 /* PI__STEP_* */
    bool replays;             /* the devices replay the step: ops are not recorded */
    int64_t embd_rows[MAX_KINDS]; /* rows of a sharded embedding per rank, by step kind; 0 = replicated */
    call *calls;            /* [MAX_CALLS] recorded and not run yet */
    int32_t n_calls;        /* recorded calls */
    bool ends;              /* true = the run also waits for its queued work; false = a later run continues the step */
    int rc;                 /* first error since the last finish; PI_OK = none */
    pi_error err;           /* message of rc */
    pthread_mutex_t lock;   /* guards the fields below; in a run, a rank writes only its own struct without it */
    pthread_cond_t wake;    /* run_no or quit changed */
    pthread_cond_t done;    /* n_done changed */
    pthread_cond_t made;    /* n_met or any_lost changed */
    uint64_t run_no;        /* number of the current run; threads start when it changes */
    int32_t n_done;         /* ranks of this process that have completed the run */
    int32_t n_met;          /* ranks of this process that have made the step's graph */
    bool any_lost;          /* some rank has left */
    bool quit;              /* threads have to end */
};

/* Returns the first rank of this process. */
static inline rank *pi__tensor_first(const pi__backend *be)
{
    pi__tensor *t = (pi__tensor *) be;
    return &t->rank[t->first];
}

/* tensor_shards.c */
/* One rank's shard of a matrix; if the matrix is fused, of one of its parts. */
typedef struct piece {
    pi__weight w;           /* the shard as a matrix on the rank's device */
    int64_t first;          /* first row in the full matrix; rank i's rows start at first + i * n */
    int64_t n;              /* rows per rank */
} piece;
/* Returns true if w is sharded: each rank then has only its rows. */
bool pi__tensor_is_cut(const pi__tensor *t, const pi__weight *w);
/* Fills in rank k's shards of a matrix, one per fused part (or one); returns their number. */
int32_t pi__tensor_pieces(const rank *k, const pi__weight *w, piece out[MAX_FUSED]);
/* Sets *lo..*hi to the file rows in row..row + n that belong to rank r's shard of part p. Returns false if there are
 * none. */
bool pi__tensor_share(const piece *p, int32_t r, int64_t row, int64_t n, int64_t *lo, int64_t *hi);
/* Returns rank k's address of p, an address in memory of alloc or arena_alloc; NULL for NULL. */
void *pi__tensor_at(const rank *k, const void *p);

/* tensor_run.c */
/* Makes this rank's graph of the step, then waits until all ranks of this process have made theirs, or a rank has
 * left. */
void pi__tensor_meet(rank *k);
/* Executes the recorded calls on one rank. If the run ends, waits for the queued work and sets the rank's rc, lost
 * and err. */
void pi__tensor_run_rank(rank *k);
/* call.run of a download: rank 0 queues the copy from its device. */
void pi__tensor_run_download(rank *k, const call *c);
/* Drops the rank's captured graphs, which refer to the link; called before the rank leaves the link. */
void pi__tensor_graph_reset(rank *k);
/* Start and end the threads of the ranks of this process, except the first, which runs on the step thread. */
int pi__tensor_start_ranks(pi__tensor *t, pi_error *err);
void pi__tensor_stop_ranks(pi__tensor *t);

/* tensor_record.c */
/* Records a call with this `run` and returns its entry to be filled in. If the list is full, runs the recorded
 * calls first. */
call *pi__tensor_record_op(pi__tensor *t, void (*run)(rank *k, const call *c));
/* Runs the recorded calls, so that the step thread may use a device directly. Returns be as pi__tensor. */
pi__tensor *pi__tensor_settled(pi__backend *be);
/* Sets t's functions for steps and downloads, and for the ops that the first rank's device has. */
void pi__tensor_set_calls(pi__tensor *t);

/* tensor_memory.c */
/* Sets t's functions for memory and copies; optional ones only if the devices have them. */
void pi__tensor_set_memory(pi__tensor *t);
/* On a worker rank. keep: allocates memory of `size` bytes, or reserves an arena, that rank 0 has at base; returns
 * PI_OK or PI_ENOMEM. drop: frees that memory or arena. */
int pi__tensor_keep_region(pi__tensor *t, char *base, size_t size, bool arena);
void pi__tensor_drop_region(pi__tensor *t, const char *base);
/* Frees the memory of all regions. */
void pi__tensor_free_regions(pi__tensor *t);

/* tensor_orders.c: rank 0's commands to worker ranks. In a single process the functions do nothing and succeed. */
/* Links the device of this process, which is one rank, to the others. All processes call it at the same time. id:
 * made by rank 0's rank_id. */
int pi__tensor_join_rank(pi__tensor *t, const char id[PI__RANK_ID_BYTES], pi_error *err);
/* Opens the devices of the worker ranks, and checks that they are of the same kind as rank 0's. Does nothing if they
 * are open. */
int pi__order_open(pi__tensor *t, pi_error *err);
/* Links the devices of all ranks, including this one. */
int pi__order_join(pi__tensor *t, pi_error *err);
void pi__order_close(pi__tensor *t);
int pi__order_reserve(pi__tensor *t, const pi__limits *lim, pi_error *err);
/* Sends a memory command, kind PI__ORDER_*; `at` is rank 0's address. Returns false if a rank failed. */
bool pi__order_memory(pi__tensor *t, int kind, const void *at, size_t size);
void pi__order_upload(pi__tensor *t, const void *dst, const void *src, size_t n);
void pi__order_load(pi__tensor *t, const pi__weight *w, bool cut, int64_t mat, int64_t row, int64_t n, const char *src);
/* Sends the recorded calls to worker ranks; pi__order_run_end must follow. Returns false if they cannot be reached.
 * ends: the ranks also wait for the calls. */
bool pi__order_run(pi__tensor *t, bool ends);
/* If the run ends, receives the worker ranks' results and stores them in rc, lost and err of each rank. */
void pi__order_run_end(pi__tensor *t, bool ends);

/* tensor_ops.c */
/* Returns the function that executes a call of this op on a rank, for calls received from rank 0. */
void (*pi__tensor_run_of(pi__op_id id))(rank *k, const call *c);
void pi__tensor_run_begin(rank *k, const call *c);

#endif
