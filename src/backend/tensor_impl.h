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
    MAX_CALLS = 1024, /* recorded calls */
    MAX_KINDS = PI__STEP_SEGMENTS,
    MAX_FUSED = 3,    /* fused matrices, see pi__weight.fused_rows */
};

typedef struct pi__tensor pi__tensor;
typedef struct pi__wire pi__wire; /* tensor_wire.h */

/* A device, and the state of its thread. */
typedef struct rank {
    pi__tensor *t;          /* the backend that the rank belongs to */
    int32_t i;              /* number of the rank */
    pi__backend *be;        /* its device; NULL = in another process */
    float *stage;           /* device memory: shards of a result before they are copied to their columns */
    pi__batch batch, logits_batch; /* the step's batches, with this rank's embd_row and owner */
    int32_t *embd_row;      /* [2 * max_tokens] pi__batch.embd_row of both batches */
    int32_t *owner;         /* [2 * max_tokens] pi__batch.owner of both batches */
    const pi__batch *b;     /* the batch that the device's begin returned for `batch` */
    pi__lora_local lora;    /* adapter runs with this device's addresses */
    bool met;               /* the step's graph is made, on all ranks */
    bool lost;              /* it has left: it does nothing until the runs end */
    bool failed;            /* it was lost by a failure of its own device */
    int rc;                 /* result of the device's finish in this run */
    pi_error err;           /* error of rc */
    /* its completed background copies that have no number, because another rank's copy failed */
    uint64_t n_unnumbered;
    uint64_t n_attended, n_possible; /* pi__backend's counters of a device in another process */
    pthread_t thread;       /* runs the rank; rank 0 runs on the thread that calls finish */
    bool started;           /* thread has to be joined */
} rank;

/* Memory of alloc, or an arena, and its address on each device. */
typedef struct region {
    char *base;             /* address that alloc returned, which is rank 0's; NULL = this entry is free */
    char *at[PI__MAX_RANKS]; /* [n] addresses on the ranks of this process */
    size_t size;             /* bytes */
    bool arena;              /* addresses without memory, except where it is mapped */
} region;

/* A recorded call: an op, the beginning of a step, or a download. run makes it on one rank. */
typedef struct call {
    void (*run)(rank *k, const struct call *c);
    pi__op_record op;       /* the op and its batch */
    struct { void *dst; const void *src; size_t n; } download;
} call;

struct pi__tensor {
    pi__backend be;         /* first: the public interface */
    pi__device_fns dev;     /* be.dev */
    pi__device_opt opt;     /* be.opt */
    pi__op_fns ops;         /* be.ops */
    char desc[96];          /* describe() */
    int32_t n;              /* ranks */
    int32_t first, end;     /* range of ranks in this process: all, or one */
    rank rank[PI__MAX_RANKS]; /* [n] */
    pi__ranks *ranks;       /* the other processes; NULL = all ranks are in this process */
    pi__rank_device device; /* the device that worker ranks open */
    bool opened;            /* worker ranks have opened it */
    pi__wire *wire;         /* buffer of calls for worker ranks; NULL before reserve() */
    pi__link *link;         /* the all-gather between ranks; NULL before reserve() */
    region region[MAX_REGIONS];
    uint64_t n_copies;      /* numbers given to background copies */
    size_t stage_floats;    /* floats in each rank's stage */
    pi__limits lim;         /* limits of the last reserve() */
    const pi__batch *given;   /* the step's batch */
    pi__batch b, logits_batch; /* the batches for ops, which include the devices' padding */
    int kind;                 /* PI__STEP_* */
    bool replays;             /* the devices replay the step: no op is recorded */
    int64_t embd_rows[MAX_KINDS]; /* rows of a sharded embedding per rank, by step kind; 0 = replicated */
    call *calls;            /* [MAX_CALLS] recorded and not run yet */
    int32_t n_calls;        /* recorded calls */
    bool ends;              /* the run waits for its queued work; otherwise the next run continues */
    int rc;                 /* first error since the last finish; PI_OK = none */
    pi_error err;           /* error of rc */
    pthread_mutex_t lock;   /* guards the fields below; during a run each rank writes only its own fields */
    pthread_cond_t wake;    /* run_no or quit changed */
    pthread_cond_t done;    /* n_done changed */
    pthread_cond_t made;    /* n_met or any_lost changed */
    uint64_t run_no;        /* counter of runs */
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
/* One rank's shard of a matrix, or of one of the matrices fused in it. */
typedef struct piece {
    pi__weight w;           /* pi__weight for the rank's device */
    int64_t first;          /* first row in the full matrix; rank i's rows start at first + i * n */
    int64_t n;              /* rows per rank */
} piece;
/* Returns true if w is sharded: each rank has only its rows. */
bool pi__tensor_is_cut(const pi__tensor *t, const pi__weight *w);
/* Fills in the shards of a matrix on rank k, one per fused matrix; returns their number. */
int32_t pi__tensor_pieces(const rank *k, const pi__weight *w, piece out[MAX_FUSED]);
/* Clips rows row..row + n of the file's matrix in p to rank r's rows *lo..*hi. Returns false if there are none. */
bool pi__tensor_share(const piece *p, int32_t r, int64_t row, int64_t n, int64_t *lo, int64_t *hi);
/* Returns rank k's address of p, an address in memory of alloc or arena_alloc; NULL for NULL. */
void *pi__tensor_at(const rank *k, const void *p);

/* tensor_run.c */
/* Makes the rank's graph of the step and waits for the other ranks' graphs. */
void pi__tensor_meet(rank *k);
/* Makes the recorded calls on one rank. If the run ends, waits for them and sets the rank's rc, lost and err. */
void pi__tensor_run_rank(rank *k);
/* Downloads from rank 0, in the order of its queue. */
void pi__tensor_run_download(rank *k, const call *c);
/* Drops captured graphs, which refer to the link, before the rank leaves it. */
void pi__tensor_graph_reset(rank *k);
/* Start and end the threads of the ranks of this process, except the first, which runs on the step thread. */
int pi__tensor_start_ranks(pi__tensor *t, pi_error *err);
void pi__tensor_stop_ranks(pi__tensor *t);

/* tensor_record.c */
/* Records a call. If the list is full, runs it first. */
call *pi__tensor_record_op(pi__tensor *t, void (*run)(rank *k, const call *c));
/* Makes the recorded calls before the step thread uses a device directly. Returns the object of be. */
pi__tensor *pi__tensor_settled(pi__backend *be);
/* Sets t's steps and downloads, and the ops that the first rank's device has. */
void pi__tensor_set_calls(pi__tensor *t);

/* tensor_memory.c */
/* Sets t's functions for memory and copies: those that its devices have. */
void pi__tensor_set_memory(pi__tensor *t);
/* On a worker rank: allocate and free memory that rank 0 has at base. */
int pi__tensor_keep_region(pi__tensor *t, char *base, size_t size, bool arena);
void pi__tensor_drop_region(pi__tensor *t, const char *base);
/* Frees the memory of all regions. */
void pi__tensor_free_regions(pi__tensor *t);

/* tensor_orders.c: rank 0's commands to worker ranks. In a single process the functions do nothing and succeed. */
/* For a rank that is a process: links its device. All processes call this at the same time. */
int pi__tensor_join_rank(pi__tensor *t, const char id[PI__RANK_ID_BYTES], pi_error *err);
/* Opens the devices of the worker ranks. */
int pi__order_open(pi__tensor *t, pi_error *err);
/* Links the devices of all ranks. */
int pi__order_join(pi__tensor *t, pi_error *err);
void pi__order_close(pi__tensor *t);
int pi__order_reserve(pi__tensor *t, const pi__limits *lim, pi_error *err);
/* Sends a memory command, kind PI__ORDER_*. Returns false if a rank failed. */
bool pi__order_memory(pi__tensor *t, int kind, const void *at, size_t size);
void pi__order_upload(pi__tensor *t, const void *dst, const void *src, size_t n);
void pi__order_load(pi__tensor *t, const pi__weight *w, bool cut, int64_t mat, int64_t row, int64_t n, const char *src);
/* Begins a run of the recorded calls on all ranks; pi__order_run_end must follow. Returns false if the others
 * cannot be reached. */
bool pi__order_run(pi__tensor *t, bool ends);
/* If the run ends, stores the other ranks' results in rc, lost and err of their rank. */
void pi__order_run_end(pi__tensor *t, bool ends);

/* tensor_ops.c */
/* Returns the function that makes a call received from rank 0: an op, or the beginning of a step. */
void (*pi__tensor_run_of(pi__op_id id))(rank *k, const call *c);
void pi__tensor_run_begin(rank *k, const call *c);

#endif
