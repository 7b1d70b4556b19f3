/* Internals of the pipeline backend (stages.c): its object, shared with the plan of a run (stages_plan.c), the run
 * itself (stages_run.c), and captured decode steps (stages_graphs.c). */
#ifndef PI__STAGES_IMPL_H
#define PI__STAGES_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend/device.h"
#include "backend/lora_local.h"
#include "backend/operands.h"

enum {
    PI__MAX_STAGES = PI__N_PLACEMENTS,
    MAX_REGIONS = 64,  /* regions of alloc; each adapter takes one */
    MAX_CALLS = 1024,  /* recorded calls per run */
    MAX_RANGES = 256,  /* entries of stages.range */
    MAX_SEGMENTS = 256, /* segments per run */
    MAX_MOVES = 512,   /* moves (copies) per run */
    MAX_MICRO = 2 * PI__MAX_STAGES, /* microbatches per step */
    MAX_CAPTURED = 16, /* shapes of decode steps that can be replayed */
    MAX_TURNS = 64,    /* graph segments per captured step */
    MAX_LEFT = 48,     /* entries of captured.left */
    IN_HOST = PI__MAX_STAGES, /* bit number of host memory in range.has */
};

/* One allocation of alloc, in host memory and on each stage. Models use the host address. */
typedef struct region {
    char *host;               /* memory of host_alloc; NULL = this entry is free */
    char *at[PI__MAX_STAGES]; /* address on each stage */
    size_t size;              /* bytes at each address */
} region;

/* Location of each token's bytes in an op's output that covers all tokens of a step: token t is at base + t * row. */
typedef struct tokens_at {
    char *base;
    size_t row;               /* bytes; 0 = the output is not divided by tokens */
} tokens_at;

/* Bytes lo..hi (host addresses, hi excluded) that some stages or the host have in an older version. Bytes in no range
 * are equal everywhere, or unused. */
typedef struct range {
    char *lo, *hi;
    /* bit i = stage i has the newest bytes (bit IN_HOST: host memory), now, or after the calls planned so far */
    uint32_t has;
    int32_t writer;           /* stage that wrote the bytes last */
    int32_t segment;          /* index of the segment of this run that wrote the bytes; -1 = an earlier run */
    tokens_at t;              /* layout of the bytes by tokens, for microbatches */
} range;

/* A planned copy of bytes lo..hi (host addresses) between host memory and the stage of a segment. */
typedef struct move {
    char *lo, *hi;
    int32_t segment;          /* index of the segment */
    bool out;                 /* true = to the host, after the segment; false = to the stage, before it */
    tokens_at t;              /* layout of the bytes by tokens: a microbatch copies only the bytes of its tokens */
} move;

/* A recorded op. */
typedef struct call {
    pi__op_record op;
    int32_t stage;            /* stage that runs it */
    /* true = its rows are the step's tokens, so that it runs once per microbatch; false = it runs once */
    bool cut;
} call;

/* Adjacent calls of a run on one stage. */
typedef struct segment {
    int32_t stage;            /* stage that runs the calls */
    int32_t first, n;         /* index of the first call; number of calls */
    bool in_step;             /* some calls have the step's batch, or read an array that a device derives from it */
} segment;

/* A microbatch: part of a step's tokens, as a step of its own. */
typedef struct micro {
    pi__batch b;
    int32_t first;            /* index in the step of the microbatch's first token */
} micro;

/* A decode step that the stages have captured as graph segments, so that it can be replayed. */
typedef struct captured {
    int32_t n_seqs;           /* including padding; 0 = this entry is free */
    /* shape: tokens per sequence, logits rows per sequence, pi__top_shape of the topk requests and draws */
    int32_t each, rows, top;
    uint64_t lora;            /* shape: pi__lora_ranks of the adapters, made odd; 0 = no adapters */
    uint64_t used;            /* value of n_replayed at the last use; the entry with the smallest value is replaced */
    int32_t n_turns;          /* entries of turn: graph segments */
    uint8_t turn[MAX_TURNS];  /* stage of each segment, in order */
    int32_t last;             /* stage of the last op */
    int32_t n_left;           /* entries of left */
    range left[MAX_LEFT];     /* ranges that are not up to date everywhere after the step */
} captured;

typedef struct stages stages;
/* One device of the pipeline. */
typedef struct stage {
    stages *s;                /* the pipeline */
    int32_t i;                /* number of this stage */
    pthread_t thread;         /* runs the stage's calls if a run has several microbatches */
    bool started;             /* thread has to be joined */
    pi__lora_local lora;      /* adapter runs with this stage's addresses */
    pi__batch given;          /* the batch passed to this device's begin in a decode step */
} stage;

struct stages {
    pi__backend be;           /* first: the public interface, with all stages */
    pi__device_fns dev;       /* be.dev */
    pi__device_opt opt;       /* be.opt */
    pi__op_fns ops;           /* be.ops */
    char desc[128];           /* describe() */
    int32_t n;                /* stages */
    int32_t least;            /* a step of T tokens is split into at most T / least microbatches */
    stage stage[PI__MAX_STAGES]; /* [n] */
    region region[MAX_REGIONS];
    range range[MAX_RANGES];  /* [n_ranges] */
    int32_t n_ranges;         /* entries of range in use */
    /* The step. */
    const pi__batch *given;   /* the step's batch as models see it; NULL = no step has begun */
    /* an op of this step had rows other than the step's tokens: no later op is split into microbatches */
    bool apart;
    int32_t last;             /* stage of the last op */
    /* [n] batch of the step that each device's begin returned, all with the same padding; NULL = each segment
     * begins a step of its own. */
    const pi__batch *own[PI__MAX_STAGES];
    /* in decode steps: copy of the first stage's batch, with adapters in the models' addresses; `given` points to it */
    pi__batch step;
    bool captures;            /* the calls so far belong to graph segments that are captured */
    bool queued;              /* graph segments may still be running on the devices */
    int32_t turn;             /* stage of the step's last graph segment; -1 = no segment yet */
    pi__draws draw;           /* draws of the next step; row NULL = no draws */
    const uint64_t *found;    /* [n_found, 3] host memory that the last mark copies its results to */
    int32_t n_found, finder;  /* rows in found; stage that ran the topk of these results */
    /* true = all work since the step began is in graph segments, so the step can be replayed */
    bool whole;
    captured now;             /* record of the current decode step, kept in `captured` at its end */
    captured captured[MAX_CAPTURED]; /* steps that can be replayed */
    uint64_t n_replayed;      /* number of decode steps captured or replayed; source of captured.used */
    micro micro[MAX_MICRO];   /* [n_micro] */
    int32_t n_micro;          /* microbatches; 1 = the step is not split */
    int32_t *arrays;          /* [n_arrays] memory for the arrays of the microbatches' batches */
    size_t n_arrays;          /* integers in arrays */
    int32_t max_tokens, max_seqs; /* limits that arrays was allocated for */
    /* Recorded calls. */
    call *calls;              /* [MAX_CALLS] */
    int32_t n_calls;          /* calls recorded and not run yet */
    /* The current run. */
    segment segment[MAX_SEGMENTS]; /* [n_segments] */
    int32_t n_segments;
    move move[MAX_MOVES];     /* [n_moves] */
    int32_t n_moves;
    int32_t n_runs_of;        /* number of microbatches in this run; 1 = its calls are not split */
    atomic_bool failed;       /* a call failed: no more work until finish() */
    pi_error error;           /* the first error */
    pthread_mutex_t lock;     /* guards error and the fields below */
    pthread_cond_t wake;      /* run_no or quit changed */
    pthread_cond_t moved;     /* reached or n_done changed */
    uint64_t run_no;          /* number of the current run, counting runs with several microbatches */
    int32_t reached[MAX_MICRO]; /* number of segments that each microbatch has completed */
    int32_t n_done;           /* number of stages that have completed the run */
    bool quit;                /* threads have to end */
};

/* stages_memory.c */
/* Returns the region that p lies in; NULL = p is not memory of alloc. */
region *pi__stages_region_of(const stages *s, const void *p);
/* Returns stage i's address of p; p itself if it is not memory of alloc. */
void *pi__stages_at(const stages *s, int32_t i, const void *p);
/* Queues a copy of bytes lo..hi (host addresses) from stage i to the host (out = true), or from the host to stage
 * i. The stage's finish returns any error. */
void pi__stages_copy(stages *s, int32_t i, char *lo, char *hi, bool out);
/* Returns the address of an adapter's pairs on one stage. ud: the stage; p: address that models know. */
const void *pi__stages_pairs_at(const void *ud, const void *p);
/* Records err if it is the first error, and sets `failed`, so that no more work is done. */
void pi__stages_fail(stages *s, const pi_error *err);

/* stages_plan.c */
/* Plans a run of the calls from index `first` on: segments and moves, up to their limits. Returns the index of the
 * first call that is not in the run. */
int32_t pi__stages_plan(stages *s, int32_t first);
/* Copies all ranges to the host and to all stages, and clears the list of ranges. No run is in progress. */
void pi__stages_level(stages *s);
/* forget: removes bytes lo..hi from the ranges, because they are about to be overwritten everywhere, or are unused.
 * fetch: copies newer bytes of lo..hi to host memory. No run is in progress. */
void pi__stages_forget(stages *s, char *lo, char *hi);
void pi__stages_fetch(stages *s, char *lo, char *hi);
/* pi__stages_cut sets s->micro and s->n_micro for a step: splits it into microbatches, if it has enough tokens.
 * pi__stages_cut_numbers returns the integers that the microbatches' arrays need. */
void pi__stages_cut(stages *s, const pi__batch *b, int kind);
size_t pi__stages_cut_numbers(int32_t max_tokens, int32_t max_seqs);

/* stages_graphs.c */
/* Begins a decode step on all devices, which capture it. Returns the batch for its ops, or NULL if the step was
 * replayed. fed: the token ids are the results of the previous step (kind FED). */
const pi__batch *pi__stages_begin_decode(stages *s, const pi__batch *b, bool fed);
/* Begin and end a graph segment on a stage. The stage's queue waits for the previous segment, on any stage. */
void pi__stages_begin_turn(stages *s, int32_t stage);
void pi__stages_end_turn(stages *s, int32_t stage);
/* Ends the graph segments, after all recorded calls were made: later calls of the step are not captured. Stores the
 * step in s->captured if it can be replayed. */
void pi__stages_end_segments(stages *s);

/* stages_run.c */
/* pi__stages_run executes the calls of the planned run, and waits for them; in a captured step it only queues them.
 * start and stop: start and end the stages' threads. */
void pi__stages_run(stages *s);
int pi__stages_start(stages *s, pi_error *err);
void pi__stages_stop(stages *s);

#endif
