/* Inside of the backend that is several devices (tensor.c): its object and its ranks, shared with the file of ops. */
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
    MAX_REGIONS = 64, /* of alloc at a time */
    MAX_CALLS = 1024, /* noted at a time */
    MAX_KINDS = PI__STEP_SEGMENTS,
    MAX_FUSED = 3,    /* of a matrix: see pi__weight.fused_rows */
};

typedef struct pi__tensor pi__tensor;
typedef struct pi__wire pi__wire; /* tensor_wire.h */

/* A device, and what its thread needs. */
typedef struct rank {
    pi__tensor *t;          /* whose rank it is */
    int32_t i;              /* which one */
    pi__backend *be;        /* its device */
    float *stage;           /* device memory: the shards of a result, until they are copied to their columns */
    pi__batch batch, logits_batch; /* the step's, with the tokens as this rank looks them up */
    int32_t *embd_row;      /* [2 * max_tokens] their rows of this rank's embedding, of both */
    int32_t *owner;         /* [2 * max_tokens] which row of the stage their embeddings are */
    const pi__batch *b;     /* what the device's begin made of batch */
    pi__lora_local lora;    /* adapters as it has them */
    bool met;               /* it has made the step's graph, and seen that all have */
    bool lost;              /* it has left: nothing more is done up to the end of the runs */
    bool failed;            /* for it, or its queue, failed by itself */
    int rc;                 /* of the device's finish in this run */
    pi_error err;           /* its text */
    uint64_t n_unnumbered;  /* its copies beside the queue that are of no number, as others' failed; they have ended */
    uint64_t n_attended, n_possible; /* of a device of another process, as of pi__backend */
    pthread_t thread;       /* runs it; rank 0 runs on the thread that calls finish */
    bool started;           /* thread is to be joined */
} rank;

/* Memory of alloc, or an arena: where each device has it. */
typedef struct region {
    char *base;             /* what alloc returned, which is where rank 0 has it; NULL: this entry is free */
    char *at[PI__MAX_RANKS]; /* [n] of the ranks that are here */
    size_t size;             /* bytes */
    bool arena;              /* addresses, of which what was mapped has memory */
} region;

/* A noted call, an op or one of tensor.c's own; run makes it on one rank. */
typedef struct call {
    void (*run)(rank *k, const struct call *c);
    pi__op_record op;       /* an op's, with its batch */
    struct { void *dst; const void *src; size_t n; } download;
} call;

/* tensor.c: of rank 0, after its queue has come so far. */
void pi__tensor_run_download(rank *k, const call *c);

struct pi__tensor {
    pi__backend be;         /* first: the public face */
    pi__device_fns dev;     /* be.dev */
    pi__op_fns ops;         /* be.ops */
    char desc[96];          /* describe() */
    int32_t n;              /* ranks */
    int32_t first, end;     /* those that are of this process: all, or one */
    rank rank[PI__MAX_RANKS]; /* [n] */
    pi__ranks *ranks;       /* the processes of the others; NULL: all are here */
    pi__rank_device device; /* what they open; */
    bool opened;            /* and have */
    pi__wire *wire;         /* what goes to them; NULL before reserve() */
    pi__link *link;         /* joins them; NULL before reserve() */
    region region[MAX_REGIONS];
    uint64_t n_copies;      /* numbers given to copies beside the queue */
    size_t stage_floats;    /* of each rank's stage */
    pi__limits lim;         /* of reserve() */
    const pi__batch *given; /* the step's */
    pi__batch b, logits_batch; /* the same with the devices' padding: what ops are given */
    int kind;               /* PI__STEP_* of it */
    bool replays;           /* the devices have captured it, and none of its ops is noted */
    int64_t embd_rows[MAX_KINDS]; /* rows of the sharded embedding of such steps a rank; 0: each has all */
    call *calls;            /* [MAX_CALLS] noted and not run yet */
    int32_t n_calls;        /* how many */
    bool ends;              /* the run waits for what was queued; others go on where it ends */
    int rc;                 /* of runs since the last finish */
    pi_error err;           /* its text */
    pthread_mutex_t lock;   /* guards what follows; while a run goes on nobody writes the rest but each rank its own */
    pthread_cond_t wake;    /* run_no or quit changed */
    pthread_cond_t done;    /* n_done changed */
    pthread_cond_t made;    /* n_met or any_lost changed */
    uint64_t run_no;        /* runs asked for */
    int32_t n_done;         /* ranks of this process that have ended this one */
    int32_t n_met;          /* and those that have made the step's graph */
    bool any_lost;          /* some rank has left in these runs */
    bool quit;              /* threads end */
};

/* tensor.c */
/* One rank's shard of a matrix, or of one of the matrices fused in it. */
typedef struct piece {
    pi__weight w;           /* of the rank's device */
    int64_t first;          /* first row of the fused matrix in the whole; the rank's own begin i * n later */
    int64_t n;              /* rows a rank */
} piece;
/* true: sharded, each rank has only its rows. */
bool pi__tensor_is_cut(const pi__tensor *t, const pi__weight *w);
/* The pieces of a sharded matrix on rank k, one for each matrix fused in it; returns how many. */
int32_t pi__tensor_pieces(const rank *k, const pi__weight *w, piece out[MAX_FUSED]);
/* Where rank k has what the caller of alloc, or of arena_alloc, knows at p; NULL stays. */
void *pi__tensor_at(const rank *k, const void *p);
/* Notes a call, running what was noted where there is no room for it. */
call *pi__tensor_note(pi__tensor *t, void (*run)(rank *k, const call *c));

void pi__tensor_meet(rank *k);
/* Makes the calls that t has on one rank; where they end, waits for them: its rc, lost and err say how. */
void pi__tensor_run_rank(rank *k);
/* What rank r has of rows row..row + n of the file's matrix in piece p, as rows of the file; false: none. */
bool pi__tensor_share(const piece *p, int32_t r, int64_t row, int64_t n, int64_t *lo, int64_t *hi);
/* One of several processes: its device's side of their link, which all make at the same time. */
int pi__tensor_join_rank(pi__tensor *t, const char id[PI__RANK_ID_BYTES], pi_error *err);
/* Of a process that follows: memory for what rank 0 has at base; and no more of it. */
int pi__tensor_keep_region(pi__tensor *t, char *base, size_t size, bool arena);
void pi__tensor_drop_region(pi__tensor *t, const char *base);

/* tensor_orders.c: rank 0 of several processes says what it does with memory. All do nothing, and are true, where there is
 * one process. */
/* Joins the others: they open their devices. */
int pi__order_open(pi__tensor *t, pi_error *err);
/* All join their devices. */
int pi__order_join(pi__tensor *t, pi_error *err);
void pi__order_close(pi__tensor *t);
int pi__order_reserve(pi__tensor *t, const pi__limits *lim, pi_error *err);
/* The others do the same; kind: PI__ORDER_*. false: some could not. */
bool pi__order_memory(pi__tensor *t, int kind, const void *at, size_t size);
void pi__order_upload(pi__tensor *t, const void *dst, const void *src, size_t n);
void pi__order_load(pi__tensor *t, const pi__weight *w, bool cut, int64_t mat, int64_t row, int64_t n, const char *src);
/* Begins a run, of the calls that were noted, by all ranks; to be followed by the end. false: the others are not there. */
bool pi__order_run(pi__tensor *t, bool ends);
/* Of one that ends: what happened on the others, to their rank's rc, lost and err. */
void pi__order_run_end(pi__tensor *t, bool ends);

/* tensor_ops.c */
/* What makes a call that came from rank 0: an op's, or the beginning of a step. */
void (*pi__tensor_run_of(pi__op_id id))(rank *k, const call *c);
void pi__tensor_run_begin(rank *k, const call *c);
/* Fills in begin and the ops, those that `can` has. */
void pi__tensor_set_ops(pi__tensor *t, const pi__backend *can);

#endif
