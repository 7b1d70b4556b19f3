/* Inside of the backend that is a pipeline (stages.c): its object, shared with the plan of a run (stages_plan.c) and the run
 * itself (stages_run.c), and with captured decode steps (stages_graphs.c). */
#ifndef PI__STAGES_IMPL_H
#define PI__STAGES_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend/device.h"
#include "backend/lora_local.h"
#include "backend/operands.h"

enum {
    PI__MAX_STAGES = PI__N_PLACEMENTS,
    MAX_REGIONS = 64,  /* of alloc at a time, adapters among them */
    MAX_CALLS = 1024,  /* noted at a time */
    MAX_RANGES = 256,  /* of memory that not all have */
    MAX_SEGMENTS = 256, /* of a run */
    MAX_MOVES = 512,   /* of a run */
    MAX_MICRO = 2 * PI__MAX_STAGES, /* microbatches of a step */
    MAX_CAPTURED = 16, /* shapes of steps that are replayed whole */
    MAX_TURNS = 64,    /* segments of one */
    MAX_LEFT = 48,     /* ranges that one leaves */
    IN_HOST = PI__MAX_STAGES, /* a bit of range.has */
};

/* Memory of alloc: what models know is where the host has it. */
typedef struct region {
    char *host;               /* memory of host_alloc; NULL: this entry is free */
    char *at[PI__MAX_STAGES]; /* each stage's own */
    size_t size;              /* bytes of each */
} region;

/* Where a token's bytes lie in what an op wrote for all tokens of a step: at base + t * row. */
typedef struct tokens_at {
    char *base;
    size_t row;               /* 0: bytes are not of tokens */
} tokens_at;

/* Bytes lo..hi (host addresses) that some have newer than others. All other bytes are the same everywhere, or nobody's. */
typedef struct range {
    char *lo, *hi;
    uint32_t has;             /* bit of each stage that has the newest, or will when the run comes there; and IN_HOST */
    int32_t writer;           /* stage that wrote it */
    int32_t segment;          /* of this run, which wrote it; -1: an earlier run did */
    tokens_at t;
} range;

/* A copy between a stage and the host: at the end of a segment out of its stage, or at the start of one to its stage. */
typedef struct move {
    char *lo, *hi;
    int32_t segment;
    bool out;
    tokens_at t;
} move;

/* A noted op. */
typedef struct call {
    pi__op_record op;
    int32_t stage;            /* where it runs */
    bool cut;                 /* its rows are the step's tokens, and microbatches can make it one after the other */
} call;

/* Neighbours among the calls of a run that one stage makes. */
typedef struct segment {
    int32_t stage;
    int32_t first, n;         /* calls */
    bool in_step;             /* some have the step's batch, or read what belongs to it */
} segment;

/* Some of a step's tokens, as a step of their own. */
typedef struct micro {
    pi__batch b;
    int32_t first;            /* its first token in the step */
} micro;

/* A decode step whose segments the stages have as graphs. */
typedef struct captured {
    int32_t n_seqs;           /* padding included; 0: this entry is free */
    int32_t each, rows, top;  /* tokens of a sequence, its logits rows, and what is asked of these */
    uint64_t lora;            /* what of its adapters decides which ops are called; 0: it has none: the rest of its shape */
    uint64_t used;            /* number of the last such step */
    int32_t n_turns;          /* segments, */
    uint8_t turn[MAX_TURNS];  /* and the stage of each, in the order in which they ran */
    int32_t last;             /* what it leaves: stage of the last op, */
    int32_t n_left;           /* and bytes that not all have */
    range left[MAX_LEFT];
} captured;

typedef struct stages stages;
typedef struct stage {
    stages *s;                /* whose it is */
    int32_t i;                /* which one */
    pthread_t thread;         /* makes its calls in runs of several microbatches */
    bool started;             /* thread is to be joined */
    pi__lora_local lora;      /* adapters as it has them */
    pi__batch given;          /* a decode step as it is given it */
} stage;

struct stages {
    pi__backend be;           /* first: the public face, with all stages */
    pi__device_fns dev;       /* be.dev */
    pi__op_fns ops;           /* be.ops */
    char desc[128];           /* describe() */
    int32_t n;                /* stages */
    int32_t least;            /* tokens of a microbatch */
    stage stage[PI__MAX_STAGES];
    region region[MAX_REGIONS];
    range range[MAX_RANGES];
    int32_t n_ranges;
    /* the step */
    const pi__batch *given;   /* its batch, as models have it; NULL: none has begun */
    bool apart;               /* an op came that is of more than its tokens: no more are cut */
    int32_t last;             /* stage of the last op */
    const pi__batch *own[PI__MAX_STAGES]; /* its batch as each stage has it, all with the same padding; NULL: each segment begins
                               * a step of its own */
    pi__batch step;           /* of a decode step that given is: as the first stage has it, with adapters as models have them */
    bool captures;            /* what is called belongs to graph segments */
    bool queued;              /* some of these may be under way */
    int32_t turn;             /* stage of the step's last one; -1: there was none */
    pi__draws draw;           /* how tokens are drawn in the step that begins next; row NULL: not */
    const uint64_t *found;    /* [n_found, 3] where the last mark brings what was found, */
    int32_t n_found, finder;  /* and the stage that finds it */
    bool whole;               /* all that was done since the step began is in these */
    captured now;             /* it, so far */
    captured captured[MAX_CAPTURED];
    uint64_t n_replayed;      /* steps that could be, so far */
    micro micro[MAX_MICRO];
    int32_t n_micro;          /* 1: it is not cut */
    int32_t *arrays;          /* what batches of microbatches have of their own: seq, then a number a sequence each, */
    size_t n_arrays;          /* numbers in there */
    int32_t max_tokens, max_seqs; /* for so many */
    /* what was noted */
    call *calls;              /* [MAX_CALLS] */
    int32_t n_calls;
    /* the run that goes on */
    segment segment[MAX_SEGMENTS];
    int32_t n_segments;
    move move[MAX_MOVES];
    int32_t n_moves;
    int32_t n_runs_of;        /* microbatches of it */
    atomic_bool failed;       /* nothing more is done up to finish() */
    pi_error error;           /* why; of the first that failed */
    pthread_mutex_t lock;     /* guards error and what follows */
    pthread_cond_t wake;      /* run_no or quit changed */
    pthread_cond_t moved;     /* reached or n_done changed */
    uint64_t run_no;          /* runs of several microbatches asked for */
    int32_t reached[MAX_MICRO]; /* segments that each has behind it */
    int32_t n_done;           /* stages that have ended this one */
    bool quit;                /* threads end */
};

/* stages.c */
/* Where stage i has what models know at p; p itself where that is not memory of alloc. */
void *pi__stages_at(const stages *s, int32_t i, const void *p);
/* Copies bytes of the host's to a stage, or back. What goes wrong the stage's finish tells. */
void pi__stages_copy(stages *s, int32_t i, char *lo, char *hi, bool out);
/* Where a stage (ud) has what an adapter's runs point to. */
const void *pi__stages_pairs_at(const void *ud, const void *p);
/* A stage failed. */
void pi__stages_fail(stages *s, const pi_error *err);

/* stages_plan.c */
/* Plans a run of calls from `first` on, as many as there is room for; returns the first that is not in it. */
int32_t pi__stages_plan(stages *s, int32_t first);
/* All that was written is everywhere. No run goes on. */
void pi__stages_level(stages *s);
/* Bytes are the same everywhere, or in the host's memory. No run goes on. */
void pi__stages_forget(stages *s, char *lo, char *hi);
void pi__stages_fetch(stages *s, char *lo, char *hi);
/* Cuts a step into microbatches, if it is long enough. */
void pi__stages_cut(stages *s, const pi__batch *b, int kind);
size_t pi__stages_cut_numbers(int32_t max_tokens, int32_t max_seqs);

/* stages_graphs.c */
/* A decode step begins, of devices that capture: the batch that its ops are to be given, or NULL: it was replayed. fed: its tokens are
 * what the step before it found. */
const pi__batch *pi__stages_begin_decode(stages *s, const pi__batch *b, bool fed);
/* A segment of it begins on that stage, behind the one before it; and has been called. */
void pi__stages_begin_turn(stages *s, int32_t stage);
void pi__stages_end_turn(stages *s, int32_t stage);
/* What is called from now on belongs to no graph segment. All that was noted has been called. */
void pi__stages_end_segments(stages *s);

/* stages_run.c */
/* Makes the calls of the run that was planned, and waits for them. */
void pi__stages_run(stages *s);
int pi__stages_start(stages *s, pi_error *err);
void pi__stages_stop(stages *s);

#endif
