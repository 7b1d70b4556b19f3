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
    MAX_REGIONS = 64,  /* regions of alloc, adapters included */
    MAX_CALLS = 1024,  /* recorded calls per run */
    MAX_RANGES = 256,  /* ranges that are not up to date everywhere */
    MAX_SEGMENTS = 256, /* segments per run */
    MAX_MOVES = 512,   /* copies per run */
    MAX_MICRO = 2 * PI__MAX_STAGES, /* microbatches per step */
    MAX_CAPTURED = 16, /* shapes of steps that are replayed */
    MAX_TURNS = 64,    /* segments of a captured step */
    MAX_LEFT = 48,     /* ranges that it leaves */
    IN_HOST = PI__MAX_STAGES, /* bit number of the host in range.has */
};

/* Memory of alloc. Models use the host address. */
typedef struct region {
    char *host;               /* memory of host_alloc; NULL = this entry is free */
    char *at[PI__MAX_STAGES]; /* address on each stage */
    size_t size;              /* bytes of each */
} region;

/* Location of each token's bytes in an op's output for all tokens of a step: token t is at base + t * row. */
typedef struct tokens_at {
    char *base;
    size_t row;               /* bytes; 0 = the output is not divided by tokens */
} tokens_at;

/* Bytes lo..hi (host addresses) that are not up to date everywhere. All other bytes are equal everywhere, or
 * unused. */
typedef struct range {
    char *lo, *hi;
    uint32_t has;             /* bits: stages with the newest bytes, now or at that point of the run; and IN_HOST */
    int32_t writer;           /* stage that wrote it */
    int32_t segment;          /* segment of this run that wrote it; -1 = an earlier run */
    tokens_at t;
} range;

/* A copy between a stage and the host: out at the end of a segment, or in at the start of one. */
typedef struct move {
    char *lo, *hi;
    int32_t segment;
    bool out;
    tokens_at t;
} move;

/* A recorded op. */
typedef struct call {
    pi__op_record op;
    int32_t stage;            /* stage that runs it */
    bool cut;                 /* its rows are the step's tokens, so it can run once per microbatch */
} call;

/* Adjacent calls of a run on one stage. */
typedef struct segment {
    int32_t stage;
    int32_t first, n;         /* calls */
    bool in_step;             /* some calls have the step's batch, or read arrays of it */
} segment;

/* A microbatch: part of a step's tokens, as a step of its own. */
typedef struct micro {
    pi__batch b;
    int32_t first;            /* its first token in the step */
} micro;

/* A decode step that the stages have captured, as graph segments. */
typedef struct captured {
    int32_t n_seqs;           /* including padding; 0 = this entry is free */
    int32_t each, rows, top;  /* shape: tokens per sequence, logits rows per sequence, requests (pi__top_shape) */
    uint64_t lora;            /* shape: hash of the adapters' ranks; 0 = no adapters */
    uint64_t used;            /* number of the last replay of this shape */
    int32_t n_turns;          /* segments */
    uint8_t turn[MAX_TURNS];  /* stage of each segment, in order */
    int32_t last;             /* stage of the last op */
    int32_t n_left;           /* ranges that are not up to date everywhere after the step */
    range left[MAX_LEFT];
} captured;

typedef struct stages stages;
typedef struct stage {
    stages *s;                /* the pipeline */
    int32_t i;                /* number of this stage */
    pthread_t thread;         /* makes the stage's calls in runs of several microbatches */
    bool started;             /* thread has to be joined */
    pi__lora_local lora;      /* adapter runs with this stage's addresses */
    pi__batch given;          /* this stage's batch of a decode step */
} stage;

struct stages {
    pi__backend be;           /* first: the public interface, with all stages */
    pi__device_fns dev;       /* be.dev */
    pi__device_opt opt;       /* be.opt */
    pi__op_fns ops;           /* be.ops */
    char desc[128];           /* describe() */
    int32_t n;                /* stages */
    int32_t least;            /* min tokens of a microbatch */
    stage stage[PI__MAX_STAGES];
    region region[MAX_REGIONS];
    range range[MAX_RANGES];
    int32_t n_ranges;
    /* The step. */
    const pi__batch *given;   /* its batch as models see it; NULL = no step has begun */
    /* an op came with rows other than the step's tokens: no later op is split into microbatches */
    bool apart;
    int32_t last;             /* stage of the last op */
    /* Each stage's batch of the step, all with the same padding; NULL = each segment begins a step of its own. */
    const pi__batch *own[PI__MAX_STAGES];
    /* decode steps: `given` points to it; the first stage's batch, with the models' adapters */
    pi__batch step;
    bool captures;            /* calls belong to graph segments */
    bool queued;              /* graph segments may be in flight */
    int32_t turn;             /* stage of the step's last segment; -1 = none yet */
    pi__draws draw;           /* draws of the next step; row NULL = no draws */
    const uint64_t *found;    /* [n_found, 3] destination of the results of the last mark */
    int32_t n_found, finder;  /* rows in found; the stage that finds them */
    bool whole;               /* all work since the step began is in its graph segments */
    captured now;             /* the current decode step so far */
    captured captured[MAX_CAPTURED];
    uint64_t n_replayed;      /* counter for captured.used */
    micro micro[MAX_MICRO];
    int32_t n_micro;          /* microbatches; 1 = the step is not split */
    int32_t *arrays;          /* [n_arrays] arrays of the microbatches' batches */
    size_t n_arrays;          /* integers in arrays */
    int32_t max_tokens, max_seqs; /* limits that arrays was allocated for */
    /* Recorded calls. */
    call *calls;              /* [MAX_CALLS] */
    int32_t n_calls;
    /* The current run. */
    segment segment[MAX_SEGMENTS];
    int32_t n_segments;
    move move[MAX_MOVES];
    int32_t n_moves;
    int32_t n_runs_of;        /* microbatches of the run */
    atomic_bool failed;       /* a call failed: no more work until finish() */
    pi_error error;           /* the first error */
    pthread_mutex_t lock;     /* guards error and the fields below */
    pthread_cond_t wake;      /* run_no or quit changed */
    pthread_cond_t moved;     /* reached or n_done changed */
    uint64_t run_no;          /* counter of runs with several microbatches */
    int32_t reached[MAX_MICRO]; /* completed segments of each microbatch */
    int32_t n_done;           /* stages that have completed the run */
    bool quit;                /* threads have to end */
};

/* stages_memory.c */
/* Returns the region that has p; NULL = none. */
region *pi__stages_region_of(const stages *s, const void *p);
/* Returns stage i's address of p; p itself if it is not memory of alloc. */
void *pi__stages_at(const stages *s, int32_t i, const void *p);
/* Queues a copy of bytes lo..hi (host addresses) from a stage to the host (out), or to the stage. Its finish
 * returns any error. */
void pi__stages_copy(stages *s, int32_t i, char *lo, char *hi, bool out);
/* Returns the address of an adapter's pairs on stage ud. */
const void *pi__stages_pairs_at(const void *ud, const void *p);
/* Records the first error and stops the run. */
void pi__stages_fail(stages *s, const pi_error *err);

/* stages_plan.c */
/* Plans a run of the calls from `first` on, up to the limits of a run. Returns the first call that is not in it. */
int32_t pi__stages_plan(stages *s, int32_t first);
/* Brings all written bytes up to date everywhere. No run is in progress. */
void pi__stages_level(stages *s);
/* forget: drops lo..hi from the ranges. fetch: brings lo..hi up to date in host memory. No run is in progress. */
void pi__stages_forget(stages *s, char *lo, char *hi);
void pi__stages_fetch(stages *s, char *lo, char *hi);
/* Splits a step into microbatches, if it has enough tokens. pi__stages_cut_numbers returns the integers that their
 * batches need. */
void pi__stages_cut(stages *s, const pi__batch *b, int kind);
size_t pi__stages_cut_numbers(int32_t max_tokens, int32_t max_seqs);

/* stages_graphs.c */
/* Begins a decode step on devices that capture. Returns the batch for its ops, or NULL if the step was replayed.
 * fed: the token ids are the results of the previous step. */
const pi__batch *pi__stages_begin_decode(stages *s, const pi__batch *b, bool fed);
/* Begin and end a segment on a stage. It runs after the segment before. */
void pi__stages_begin_turn(stages *s, int32_t stage);
void pi__stages_end_turn(stages *s, int32_t stage);
/* Ends the graph segments, after all recorded calls were made: later calls are not captured. Keeps the step if it
 * can be replayed. */
void pi__stages_end_segments(stages *s);

/* stages_run.c */
/* Makes the calls of the planned run, and waits for them. start and stop: the stages' threads. */
void pi__stages_run(stages *s);
int pi__stages_start(stages *s, pi_error *err);
void pi__stages_stop(stages *s);

#endif
