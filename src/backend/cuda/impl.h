/* Inside of the CUDA backend: its object, shared by cuda.c (memory, steps) and the files of ops. */
#ifndef PI__CUDA_IMPL_H
#define PI__CUDA_IMPL_H

#include "backend/cpu/pool.h"
#include "backend/cuda/blas.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels_down.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/kernels_mixed.h"
#include "backend/cuda/kernels_mla.h"
#include "backend/cuda/kernels_split.h"
#include "backend/cuda/runtime.h"

enum { PI__CUDA_MAX_FREQ = 512 /* pairs of a rotation */, PI__CUDA_MAX_ROPES = 8 /* rotations of all models */ };

/* A batch as ops are given it, and its arrays in device memory: see pi__batch. */
typedef struct cuda_batch {
    pi__batch host;         /* arrays in the image */
    const int32_t *token, *pos, *seq, *seq_start, *seq_len, *logits_indices, *embd_row, *owner, *hidden_row, *n_verified, *state_slot,
        *save_start;
    const pi__save *save;
    const int32_t *request; /* [rows][3] of host.top, or NULL */
    const int32_t *draw, *seen; /* of pi__draws, or NULL */
    const int32_t *slot[PI__MAX_GROUPS], *table[PI__MAX_GROUPS];
    const int32_t *run_start, *run_seq, *run_block; /* of pi__batch.runs */
    int32_t keys;           /* most that a token sees, or a little more; 0: to be found out */
} cuda_batch;

/* Captured steps: most shapes, segments of one step, graphs in all. */
enum { PI__CUDA_MAX_SHAPES = 32, PI__CUDA_MAX_SEGMENTS = 256, PI__CUDA_MAX_GRAPHS = 512 };

/* Shape of a step that can be captured, padding included: steps of the same shape replay the same graphs. */
typedef struct cuda_shape {
    int32_t kind;           /* PI__STEP_*, DRAFT_NEXT for CHAINED, DECODE for FED */
    int32_t n_seqs;         /* sequences */
    int32_t each, rows;     /* tokens of each, and logits rows */
    int32_t keys;           /* most that a token sees */
    int32_t top;            /* values of a row that it finds (8 times), whether sums are wanted (4), tokens drawn (1), some of them
                             * with penalties (2); 0: it finds none */
    uint64_t lora;          /* what of its adapters launches know (ops_lora.c); 0: it has none */
} cuda_shape;

/* Captured steps of one shape. */
typedef struct cuda_captured {
    cuda_shape shape;       /* n_seqs 0: this entry is free */
    uint64_t used;          /* number of the last such step */
    bool seen;              /* there was one before this */
    int32_t n_segments;     /* that such steps had, */
    int32_t n_graphs;       /* and those that are captured */
    size_t bytes;           /* of the device that their graphs took */
    pi__rt_graph *segment[PI__CUDA_MAX_SEGMENTS]; /* in order; NULL: not captured. A step captured whole is the first */
} cuda_captured;

/* Frequencies of a rotation that are on the device. */
typedef struct cuda_freq {
    const float *host;      /* the model's; NULL: this entry is free */
    int32_t n;              /* how many */
} cuda_freq;

/* An input that the last op prepared for its matrices, in scratch + at.prepared and scratch + at.floats: experts read
 * what router and shared expert have read. */
typedef struct cuda_prepared {
    pi__k_input in;         /* as it was given */
    int32_t n_rows;         /* 0: there is none */
    int64_t n_in;           /* columns */
    int what[2];            /* in which form it is in either, and for some the matrices' type; -1: in none */
    void *where[2];         /* at.prepared, at.floats, or at.beside, at.mid */
} cuda_prepared;

/* The end of a step that others may follow before it is waited for. */
typedef struct cuda_mark {
    size_t end;             /* of its part of the image */
    bool no_room;           /* it failed for that */
} cuda_mark;

/* What residual streams are gone through for: some of hyper_post, the linear whose results are the weights, and hyper_pre, of the same
 * rows. */
typedef struct cuda_streams {
    bool posts, mixes, reads;
    pi__hyper post, pre;
    pi__linear mix;
} cuda_streams;

/* What latent attention reads, of the same tokens: so many of mla_qkv, and of compress. */
typedef struct cuda_latent {
    pi__mla_qkv q[PI__K_MOST_LATENT]; /* n_head 0: without queries, which somebody else makes, or nobody reads */
    pi__compress compress[PI__K_MOST_LATENT];
    int32_t n_q, n_compress;
} cuda_latent;

/* Ops that were called and are queued with what comes next (fuse.c). */
typedef struct cuda_held {
    pi__op_id id;           /* linear, attention, gdn, sparse, head_linear, (latent) mla_qkv or (streams) hyper_pre; PI__N_OPS: none */
    cuda_latent latent;     /* alone; or rows and compressors beside a linear, and queries behind it */
    cuda_streams streams;   /* alone; or (posts) behind a linear, and its sums and one add, the results of which are added to them */
    bool downs;             /* with a linear of one matrix down of experts, in one launch */
    bool sums;              /* behind a linear, or alone, the sums of experts */
    int n_adds;             /* behind all that, or alone, so many of add_norm and norm */
    const pi__batch *b;     /* of attention, gdn, sparse and latent */
    pi__mla_qkv raw;        /* what sparse does with its queries; n_head 0: nothing */
    bool ready;             /* what head_linear reads is prepared */
    union {
        pi__linear linear;
        pi__attention attention;
        pi__gdn gdn;
        pi__sparse sparse;
        pi__head_linear heads;
    } of;
    pi__k_down down;
    pi__k_sum sum;
    pi__k_add add[PI__K_TAIL_ADDS];
    int32_t n_rows;         /* of these */
} cuda_held;

/* A step's adapters on the device: its runs, cut into groups of a few rows (kernels_lora.h). */
typedef struct cuda_adapters {
    uint64_t no;            /* number of the list of runs that they are of; 0: they are not there */
    bool in_step;           /* they came with the batch, of which each token has a logits row: they are those of both */
    const void *group;      /* pi__k_lora_group, by level */
    const int32_t *row;     /* of the runs */
    int32_t n_levels, n_groups[PI__MAX_LORA]; /* of each level that there is, in order */
} cuda_adapters;

/* Counters of blocks that have arrived: a tail's, two of attention, the first of which latent attention has, too, and those of tiles of
 * which several blocks have slices. */
enum { PI__CUDA_SPLIT_COUNTERS = 3, PI__CUDA_COUNTERS = PI__CUDA_SPLIT_COUNTERS + PI__K_SPLIT_TILES };

/* Scratch in device memory: where its regions begin, and its size. */
typedef struct cuda_scratch {
    size_t batch, rows, arrived, freq, picks, prepared, mid, row_most, floats, beside, experts, heads, clusters, gdn, indexer,
        key_blocks, taken, counts, kv_splits, lora, blas, slices, streams;
    size_t n_slices; /* bytes of slices */
    size_t total; /* bytes */
} cuda_scratch;

/* Host memory and threads of loading (load.c). */
typedef struct cuda_stage {
    pi__pool *pool;         /* threads that pack; NULL: nothing is being loaded */
    uint8_t *buffer[2];     /* pinned memory */
    int now;                /* the one that is filled */
    size_t used;            /* bytes of it */
} cuda_stage;

/* What gave wrong results when the device was opened, and is done without (selftest.c). */
typedef struct cuda_without {
    bool packed;    /* products by int8 tensor cores: matrices of packed formats are refused */
    bool many_rows; /* those of more than PI__CUDA_FEW_ROWS: rows are taken so many at a time */
    bool experts;   /* routed experts: layers of them are refused */
    bool attention; /* caches are refused */
    bool splits;    /* attention's keys are not split over blocks */
    bool wgmma_attention; /* that of prompts goes by mma.sync on sm_90, too */
    bool slices;    /* nor are slices of products */
    bool delta;     /* delta nets: states are refused */
    bool tails;     /* launches do no work of several ops */
    bool glu;       /* gate and up are no launch with their activation */
    bool key_blocks; /* sparse prefill attends to all keys */
    bool topk;      /* rows of logits come to the host */
} cuda_without;

typedef struct pi__cuda {
    pi__backend be;         /* first: the public face */
    pi__rt *rt;             /* device and queue */
    pi__rt_info info;       /* of the device */
    char desc[112];         /* describe() */
    pi__blas *blas;         /* multiplies F16 and BF16 matrices with many rows; NULL: our kernels do */
    int ways;               /* PI__WAY_*: how matrices may be multiplied; never changes */
    bool wgmma;             /* those of form W16 with many rows by wgmma; never changes */
    bool one_f16;           /* not the sum of two: queries and P of attention; keys, queries and states of delta nets, where they
                             * are multiplied. Never changes */
    cuda_without without;   /* what was found to be wrong; never changes */
    bool fuses;             /* several ops may be one launch; never changes */
    bool records;           /* decode steps and drafts are captured; never changes */
    bool joined;            /* it works with others, which must capture the same steps as it does */
    pi__limits lim;         /* of reserve() */
    cuda_scratch at;        /* layout of scratch */
    char *scratch;          /* device memory */
    int32_t *image;         /* [max_ints] the step's batch as it goes to scratch + at.batch */
    size_t first_int;       /* where the step's part of it begins */
    size_t n_ints, max_ints; /* where it ends, and the image */
    size_t first_live;      /* where the parts of steps that may not have been read begin; they are up to n_ints, or around the end */
    bool wraps;             /* around the end */
    cuda_mark marks[2];     /* see mark of device.h */
    bool open;              /* a step has begun since the last finish() */
    cuda_batch batch[2];    /* the step's, and its logits rows */
    cuda_captured recorded[PI__CUDA_MAX_SHAPES]; /* captured steps, in no order */
    int32_t n_graphs;       /* captured segments of all of them */
    size_t graph_bytes;     /* that these took, and the most that one did: all stay below info.graph_bytes, which is planned */
    size_t largest_graph;
    uint64_t n_steps;       /* that could be captured */
    cuda_captured *now;     /* the step's shape; NULL: it is not captured, or not yet */
    bool segmented;         /* the step is of kind SEGMENTS */
    int32_t n_segments;     /* of the step's segments, those that have begun */
    pi__rt_graph **becomes; /* where the graph of the segment being captured goes, or NULL */
    pi__rt_graph *made;     /* captured, and not replayed yet: NULL, or one of recorded */
    bool replayed;          /* the segment was replayed: calls of its ops do nothing */
    cuda_prepared ready;    /* what moe, which alone does not forget it, may find */
    cuda_held held;         /* nothing, when a step has ended */
    pi__mla_qkv raw;        /* what indexer, which comes next, does with its queries; n_head 0: nothing */
    const int32_t *skip;    /* the indices that are at scratch + at.picks, or NULL */
    cuda_adapters adapters; /* of the step */
    const int32_t *order;   /* the one that is at scratch + at.clusters, or NULL */
    pi__draws draw;         /* how tokens are drawn in the step that begins next; row NULL: not */
    bool draws, draw_rows;  /* they are in the last one that began; some from whole rows */
    const uint64_t *fed;    /* what another device found, [n_fed, 3]: tokens of the step that begins next; or NULL */
    int32_t n_fed;
    cuda_freq freq[PI__CUDA_MAX_ROPES]; /* number i is at scratch + at.freq, PI__CUDA_MAX_FREQ floats each */
    int32_t n_threads;      /* that pack weights, 0: one a core */
    cuda_stage stage;       /* while weights are loaded */
    bool counts;            /* key blocks were counted at scratch + at.counts since the last finish() */
    bool loads;             /* since reserve(), up to the finish() after it: small vectors go the way of matrices */
    uint64_t n_copies;      /* copies beside the queue so far */
    int error;              /* the first one since the last finish() */
    bool no_room;           /* a batch was larger than its limits, or the host had no memory */
} pi__cuda;

/* true: something went wrong since the last finish(), and nothing is queued any more. */
static inline bool pi__cuda_failed(const pi__cuda *c) { return c->error || c->no_room; }
/* true: ops that are called are queued (or captured), as nothing failed and their segment was not replayed. */
static inline bool pi__cuda_queues(const pi__cuda *c) { return !pi__cuda_failed(c) && !c->replayed; }
/* The first code that is not 0 is what finish() returns. */
static inline void pi__cuda_keep(pi__cuda *c, int code)
{
    if (!c->error) c->error = code;
}
/* Queues a kernel, unless something failed or it was replayed. */
#define PI__QUEUE(c, call)                                                                                              \
    do {                                                                                                                \
        if (pi__cuda_queues(c)) pi__cuda_keep(c, call);                                                                 \
    } while (0)

/* The device's arrays of the batch given to begin, or of its logits rows. */
static inline const cuda_batch *pi__cuda_batch_of(const pi__cuda *c, const pi__batch *b)
{
    return &c->batch[1].host == b ? &c->batch[1] : &c->batch[0];
}

/* step.c */
/* Integers that the batches of limits take. */
size_t pi__cuda_image_ints(const pi__limits *lim);
const pi__batch *pi__cuda_begin(pi__backend *be, const pi__batch *b, int kind);
int pi__cuda_finish(pi__backend *be, pi_error *err);
void pi__cuda_mark(pi__backend *be, int i, uint64_t *found, int32_t n_rows);
int pi__cuda_wait(pi__backend *be, int i, pi_error *err);
void pi__cuda_follow(pi__backend *be, pi__backend *first);
bool pi__cuda_graph_lookup(pi__backend *be, const pi__batch *b, int kind, int32_t *n_seqs);
void pi__cuda_graph_segment(pi__backend *be);
bool pi__cuda_make_graph(pi__backend *be);
bool pi__cuda_end_capture(pi__backend *be);
void pi__cuda_graph_reset(pi__backend *be);
void pi__cuda_download(pi__backend *be, void *dst, const void *src, size_t n);
/* n numbers of the host's, which may change at once, in scratch + at.rows. */
const int32_t *pi__cuda_rows(pi__cuda *c, const int32_t *row, int32_t n);
/* All of the step, or of its segment, was called: where it was captured instead of queued, it is replayed now. */
void pi__cuda_end_segment(pi__cuda *c);
/* Drops all captured graphs. */
void pi__cuda_free_graphs(pi__cuda *c);

/* Most rows that are gathered at once: tokens, or a drafter's pairs. */
static inline int32_t pi__cuda_max_gather(const pi__limits *lim)
{
    return lim->max_tokens > 2 * lim->max_rows ? lim->max_tokens : 2 * lim->max_rows;
}

/* Where the next region of scratch begins, for size bytes. */
static inline size_t pi__cuda_take(size_t *at, size_t size)
{
    size_t p = *at;
    *at += (size + 255) & ~(size_t) 255;
    return p;
}

/* cuda.c */
void pi__cuda_upload(pi__backend *be, void *dst, const void *src, size_t n);

/* load.c: weights on their way to the device, matrices and small vectors; end gives back what that took of the host, and
 * everything queued is done. */
void pi__cuda_weight_load(pi__backend *be, const pi__weight *w, int64_t mat, int64_t row, int64_t n, const void *src);
void pi__cuda_load_values(pi__backend *be, void *dst, const void *src, size_t n);
void pi__cuda_load_end(pi__cuda *c);

/* share.c: memory of arenas that other processes map. */
int pi__cuda_arena_share(pi__backend *be, void *p, size_t size, const pi__digest *mark, int *fd, pi_error *err);
int pi__cuda_arena_adopt(pi__backend *be, void *p, size_t size, const pi__digest *mark, const int *fd, pi_error *err);
void pi__cuda_identify(const pi__backend *be, char *out, size_t size);

/* ops.c: structs of ops.h as the kernels have them */
pi__k_matrix pi__cuda_matrix(const pi__weight *w);
pi__k_input pi__cuda_input(const pi__lin_in *in);
/* Most keys that a sequence's tokens see between them, through a window where that is not 0. */
int32_t pi__cuda_most_keys(const pi__batch *b, int32_t window);
/* Where the frequencies at freq are on the device: copied when they are seen for the first time. NULL: no room. */
const float *pi__cuda_frequencies(pi__cuda *c, const float *freq, int32_t n);

/* Form of a matrix's prepared input: integers of 15 bits, floats, FP4, terms of 16-bit floats, hi and lo rows for a
 * library, 16-bit floats, FP8. All but the first two depend on its type. */
enum { PI__FORM_INTEGERS, PI__FORM_FLOATS, PI__FORM_FP4, PI__FORM_MMA16, PI__FORM_HILO, PI__FORM_W16, PI__FORM_W4A8 };
enum { PI__CUDA_FEW_ROWS = 32 /* most that kernels for few rows take */ };
enum { PI__CUDA_BLAS_ROWS = 64 /* fewest rows that the library is given */ };
enum {
    PI__WAY_FP4 = 1,   /* FP4 matrices in FP4 */
    PI__WAY_MMA16 = 2, /* 16-bit ones by 16-bit tensor cores, else as floats */
    PI__WAY_W16 = 4,   /* packed ones by 16-bit tensor cores, where there is a kernel */
    PI__WAY_W4A8 = 8,  /* MXFP4 matrices with activations in FP8 */
    PI__WAY_W4A16 = 16, /* FP4 matrices as W16, others not */
};
int pi__cuda_form(int ways, int32_t type, int64_t n_in);
/* In that form the input is x itself. */
bool pi__cuda_as_it_is(int form, const pi__k_input *in, int32_t n_rows, int64_t n_in);
/* The input in that form for matrices of that type: where it is, or will be when what is queued now is done. */
void *pi__cuda_prepared(pi__cuda *c, int form, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in);
static inline void pi__cuda_forget(pi__cuda *c) { c->ready.n_rows = 0; }
/* Queue the preparation of a form, and n products (at most PI__K_MOST_LINEAR, of form MMA16 PI__K_MOST_MMA16) with matrices of one
 * type, whose slices blocks may share where there is room for that. */
int pi__cuda_prepare(void *stream, int form, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *to);
int pi__cuda_product(void *stream, int form, const pi__k_product *p, int32_t n, const void *prepared, int32_t n_rows,
                     const pi__k_split *split);

/* ops_blas.c: a product in form HILO. */
int pi__cuda_blas_product(pi__blas *b, void *stream, const pi__k_product *p, const void *prepared, int32_t n_rows);

/* The form in which a linear's matrices of that (packed) type read their input. */
int pi__cuda_linear_form(const pi__cuda *c, int32_t type, const pi__linear *a);
/* Most rows of a tail: two for each block that has room to stay (kernels/tail.cuh), so 32 from 32 multiprocessors on (fuse.c). */
int32_t pi__cuda_tail_rows(const pi__cuda *c);
/* The launch of the linear's last matrices can have a tail; routes: it can find those of so many rows and experts. */
bool pi__cuda_has_tail(const pi__cuda *c, const pi__linear *a);
bool pi__cuda_has_routes(const pi__cuda *c, const pi__linear *a, int32_t n_expert);
/* The linear is one launch, which can have what latent attention reads beside it; whose results can be added to residual streams. */
bool pi__cuda_has_latent(const pi__cuda *c, const pi__linear *a);
bool pi__cuda_has_streams(const pi__cuda *c, const pi__linear *a);
/* The linear prepares for its own matrices what the first one of next reads. */
bool pi__cuda_reads_same(const pi__cuda *c, const pi__linear *a, const pi__linear *next);
/* Queues a linear, and its tail with its last matrices, if there is one and they can have it. */
void pi__cuda_queue_linear(pi__cuda *c, const pi__linear *a, const pi__k_tail *then);
/* The same, and what else its last launch may do, where that is one of several types, or may be. */
void pi__cuda_queue_more(pi__cuda *c, const pi__linear *a, const pi__k_tail *then, const pi__k_mixed_more *more);
/* Queues a linear of one matrix and down of experts, and the tail, if there is one. The first can be of such a launch. */
void pi__cuda_queue_down(pi__cuda *c, const pi__linear *a, const pi__k_down *down, const pi__k_tail *then);
bool pi__cuda_goes_with_down(const pi__cuda *c, const pi__linear *a);
/* Queues a linear of many rows whose result is added to x where it is made; y is written nowhere, as the addition alone reads it.
 * false: it cannot. */
bool pi__cuda_queue_added(pi__cuda *c, const pi__linear *a, const pi__k_add *add);
/* The tail's targets are there when what is queued now is done. */
void pi__cuda_has_prepared(pi__cuda *c, const pi__k_tail *t);
/* Queues gate and up (pi__k_glu, pi__k_w16_glu), whose results only `next` reads: its input is there then, and they are not. false:
 * they cannot be one launch. */
bool pi__cuda_queue_glu(pi__cuda *c, const pi__linear *a, const pi__linear *next);

/* The same of attention, which can always have one, and of gdn where it is one launch. */
void pi__cuda_queue_attention(pi__cuda *c, const pi__batch *b, const pi__attention *a, const pi__k_tail *then);
void pi__cuda_queue_gdn(pi__cuda *c, const pi__batch *b, const pi__gdn *a, const pi__k_tail *then);
bool pi__cuda_gdn_is_one(const pi__cuda *c, const pi__batch *b, const pi__gdn *a);
/* An op qkv as the kernels have it. */
pi__k_qkv pi__cuda_heads(const pi__cuda *c, const pi__batch *b, const pi__qkv *a);

/* fuse.c: ops that are one launch with others. true: the op is held, or queued with what was. false: nothing is held, and the
 * op is to be queued. */
bool pi__cuda_hold(pi__cuda *c, pi__op_id id, const pi__batch *b, const void *args);
/* Queues what is held. */
void pi__cuda_flush(pi__cuda *c);
/* Where the input of these matrices goes in each form, if the kernels of a tail have it: floats or, of few rows, terms, and one of the
 * others. */
void pi__cuda_add_targets(const pi__cuda *c, const pi__linear *next, void *prepared, void *floats, pi__k_tail *t);
/* Queues the held linear, and as its tail routes by logits that it makes, those of the choice where that is not NULL; and, as far as
 * tails can, the preparation of next's input, if the held linear reads it in another form, and where they are not NULL that of last's,
 * which lies apart, and is *beside. false: it cannot, or none is held. */
bool pi__cuda_add_routes(pi__cuda *c, const pi__k_routes *r, const pi__k_expert_choice *choice, const pi__linear *next,
                         const pi__linear *last, cuda_prepared *beside);
/* Sums of experts are queued with what comes next; they are behind the held linear, if there is one. false: they cannot. */
bool pi__cuda_hold_sum(pi__cuda *c, const pi__k_sum *s);
/* So is an addition of rows, or a norm. */
void pi__cuda_hold_add(pi__cuda *c, const pi__k_add *a, int32_t n_rows);

/* selftest.c: which rows of a small product with a matrix of that type (in one of the ways, or by the library, where
 * blas is not NULL) are not what the host computes, PI__WRONG_*. */
enum { PI__WRONG_FEW = 1 /* few rows at once */, PI__WRONG_MANY = 2 };
int pi__cuda_check_product(pi__rt *rt, int32_t type, int ways, pi__blas *blas, bool slow, int *wrong, pi_error *err);
/* selftest_wgmma.c. wrong: what wgmma gives is not what mma.sync does. */
int pi__cuda_check_wgmma(pi__rt *rt, bool *wrong, pi_error *err);
/* selftest_ops.c: tries out the rest of what models need; what is wrong is in c->without or c->records from now on, with a
 * line of the log each. */
int pi__cuda_check_ops(pi__cuda *c, const pi__log *log, pi_error *err);

/* ops_top.c, and the scratch it needs. Before topk with a step's requests, and not captured: the n indices are at
 * scratch + at.picks. */
void pi__cuda_skip(pi__cuda *c, const int32_t *skip, int32_t n);
/* Of a step of kind CHAINED or FED, or which is fed, the first n tokens, out of what topk found in the last, or of what was drawn from
 * that. */
void pi__cuda_chain(pi__cuda *c, int32_t n, bool drawn);
void pi__cuda_feed(pi__backend *be, const uint64_t *found, int32_t n_rows);
void pi__cuda_draw(pi__backend *be, const pi__draws *draws);
/* Queues a copy of n rows of that in this step, of one value each. */
void pi__cuda_bring_found(pi__cuda *c, uint64_t *to, int32_t n);
size_t pi__cuda_top_bytes(const pi__limits *lim);

/* ops_experts_layer.c: the matrices of the layer that read its input, as a linear. */
pi__linear pi__cuda_layer_reads(const pi__experts_layer *a);

/* ops_moe.c */
/* Where the scratch of the op's kernels is: the routes, with all that is not the op's own, the results by column. */
typedef struct cuda_moe {
    pi__k_routes r;
    float *h;   /* [pairs, 2F], then [pairs, E] */
    void *mid;  /* what down reads */
    pi__k_expert_choice choice; /* of r, where its experts are of groups or their weights are not divided by the sum */
    int32_t row0; /* the first of its rows among those that lists of adapters name */
} cuda_moe;
/* false: there is no room for so many rows. */
bool pi__cuda_moe_at(pi__cuda *c, const pi__batch *b, const pi__moe *a, cuda_moe *to);
/* Queues routes behind the logits: as the tail of the held linear, if that makes them and can, with the preparation of what experts
 * read, and of last's input, as pi__cuda_add_routes() has it; true: it is so. Else in a launch or more. */
bool pi__cuda_route(pi__cuda *c, const pi__moe *a, cuda_moe *at, const pi__linear *last, cuda_prepared *beside);
/* The sums of what it gives, without a shared expert. */
pi__k_sum pi__cuda_sum_of(const pi__moe *a, const cuda_moe *at);
/* Queues all products of experts, when routes are queued: results by column at h. */
void pi__cuda_gate_up_down(pi__cuda *c, const pi__moe *a, const cuda_moe *at);
/* The same but for down, which *down is then, in 16-bit floats. false: it is not so, and nothing is queued. */
bool pi__cuda_gate_up_for(pi__cuda *c, const pi__moe *a, const cuda_moe *at, pi__k_down *down);
size_t pi__cuda_moe_bytes(const pi__limits *lim);
/* Queues the products of experts with rows that were prepared in that form. */
int pi__cuda_experts(void *stream, int form, const pi__k_routes *r, const pi__k_experts *e, const void *prepared);

/* ops_head_linear.c */
size_t pi__cuda_head_linear_bytes(const pi__limits *lim);
/* Its products are in 16-bit floats: what op mla_qkv makes of the results can be made with them. */
bool pi__cuda_heads_in_16(const pi__cuda *c, const pi__head_linear *a);
/* Where attention puts what such a one reads, so that it is prepared: results of so many heads for each matrix. words NULL: it makes
 * that itself. */
pi__k_groups pi__cuda_groups(const pi__cuda *c, const pi__head_linear *a, int32_t heads);
/* Queues it. ready: what it reads is where pi__cuda_groups says; prep: of that op, or NULL; then: a tail, or NULL, of PI__K_TAIL_ROWS rows
 * at most. */
void pi__cuda_queue_heads(pi__cuda *c, const pi__head_linear *a, bool ready, const pi__k_mla_qkv *prep, const pi__k_tail *then);

/* ops_mla.c: the ops of latent attention and DeepSeek V4, and the scratch of indexer */
size_t pi__cuda_row_bytes(const pi__backend *be, int32_t type, int32_t n, int32_t n_rows);
size_t pi__cuda_indexer_bytes(const pi__limits *lim);
/* Of these queries, or rows and compressors, or both, as the kernels have them. */
pi__k_latent_inputs pi__cuda_latent_inputs(pi__cuda *c, const pi__batch *b, const cuda_latent *a, bool queries, bool rows);
/* Queues such, if there are any, in one launch. */
void pi__cuda_queue_latent(pi__cuda *c, const pi__batch *b, const cuda_latent *a, bool queries, bool rows);
/* All entries that tokens of the step see are picked, whatever the scores. */
bool pi__cuda_picks_all(const pi__cuda *c, const pi__batch *b, const pi__indexer *a);
/* What is done with streams, as the kernels have it. */
pi__k_streams pi__cuda_streams(const pi__cuda *c, const cuda_streams *s);
/* Queues them, and with hyper_pre the tail's input, if there is one. */
void pi__cuda_queue_streams(pi__cuda *c, const cuda_streams *s, const pi__k_tail *then);
/* The linear is the matrix of streams' weights, which has its own kernel, and its own order of sums, for any number of rows. */
bool pi__cuda_is_mix(const pi__cuda *c, const pi__linear *a);
/* Queues op sparse. raw: what it does with its queries, or NULL; groups: where results go in the form of matrices that read them, or
 * NULL. */
void pi__cuda_queue_sparse(pi__cuda *c, const pi__batch *b, const pi__sparse *a, const pi__mla_qkv *raw, const pi__k_groups *groups);
/* An op mla_qkv as the kernels have it. */
pi__k_mla_qkv pi__cuda_latent(const pi__cuda *c, const pi__batch *b, const pi__mla_qkv *a);

/* ops_lora.c */
size_t pi__cuda_lora_bytes(const pi__limits *lim);
/* Of moe with adapters: rows that can be done at once. What they add to gate and up; what they read of down's input, and after
 * down has written its results where that was, what they add to these. Nothing, without adapters. */
int32_t pi__cuda_lora_moe_rows(const pi__cuda *c, const pi__moe *a);
void pi__cuda_lora_gate_up(pi__cuda *c, const pi__moe *a, const cuda_moe *at);
void pi__cuda_lora_down(pi__cuda *c, const pi__moe *a, const cuda_moe *at, bool after);
/* What launches know of a step's adapters, the same for steps that can be replayed for each other; 0: they are too many for that. */
uint64_t pi__cuda_lora_shape(const pi__limits *lim, const pi__lora_rows *rows);
/* Integers of a captured step's image that these take, and those of any; and filling them, which lie at d on the device then. */
size_t pi__cuda_lora_ints(const pi__lora_rows *rows);
size_t pi__cuda_lora_most_ints(const pi__limits *lim);
void pi__cuda_lora_fill(pi__cuda *c, const pi__lora_rows *rows, int32_t *to, const int32_t *d);

/* ops_centroid_head.c */
size_t pi__cuda_centroid_bytes(const pi__limits *lim);

/* ops_gdn.c: the ops of delta-net layers (see ops.h), and the scratch they need */
size_t pi__cuda_state_bytes(const pi__backend *be, const pi__state_layer *st);
size_t pi__cuda_snapshot_bytes(const pi__backend *be, const pi__state_layer *st);
size_t pi__cuda_gdn_scratch(const pi__limits *lim);

/* The ops (ops.h): those of transformers are in ops.c, of delta nets in ops_gdn.c, experts in ops_moe.c,
 * of DeepSeek V4 in ops_mla.c. */
#define PI__CUDA_OP(name, type) void pi__cuda_##name(pi__backend *be, const pi__batch *b, const type *a);
PI__OPS_ALL(PI__CUDA_OP)
PI__OPS_DEVICE(PI__CUDA_OP)
#undef PI__CUDA_OP

#endif
