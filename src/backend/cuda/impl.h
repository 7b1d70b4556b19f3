/* Internals of the CUDA backend: its object, shared by cuda.c (memory), step.c (steps) and the op files. */
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

enum { PI__CUDA_MAX_FREQ = 512 /* pairs of one rotation */, PI__CUDA_MAX_ROPES = 8 /* rotations of all models */ };

/* The batch passed to ops, with its arrays in device memory; see pi__batch. */
typedef struct cuda_batch {
    pi__batch host;         /* host arrays, in the image */
    const int32_t *token, *pos, *seq, *seq_start, *seq_len, *logits_indices, *embd_row, *owner, *hidden_row,
        *n_verified, *state_slot, *save_start;
    const pi__save *save;
    const int32_t *request; /* [rows][3] device copy of host.top, or NULL */
    const int32_t *draw, *seen; /* device copies of pi__draws, or NULL */
    const int32_t *slot[PI__MAX_GROUPS], *table[PI__MAX_GROUPS];
    const int32_t *run_start, *run_seq, *run_block; /* device copies of pi__batch.runs */
    int32_t keys;           /* upper bound of the keys that a token sees; 0 = not known, computed per op */
} cuda_batch;

/* Limits of captured steps: shapes, segments of one step, graphs in total. */
enum { PI__CUDA_MAX_SHAPES = 32, PI__CUDA_MAX_SEGMENTS = 256, PI__CUDA_MAX_GRAPHS = 512 };

/* Shape of a step that can be captured, padding included. Steps of equal shape replay the same graphs. */
typedef struct cuda_shape {
    int32_t kind;           /* PI__STEP_*; DRAFT_NEXT stands for CHAINED, DECODE for FED */
    int32_t n_seqs;         /* sequences */
    int32_t each, rows;     /* tokens per sequence; logits rows per sequence */
    int32_t keys;           /* max keys that a token sees */
    /* see pi__top_shape(): 16 * values per row, + 8 with sums, + 4 draws from complete rows, + 2 draws with
     * penalties, + 1 draws; 0 = the step has no topk */
    int32_t top;
    uint64_t lora;          /* hash of the adapter layout that launches depend on (ops_lora.c); 0 = no adapters */
} cuda_shape;

/* Captured steps of one shape. */
typedef struct cuda_captured {
    cuda_shape shape;       /* n_seqs 0 = free entry */
    uint64_t used;          /* number of the last step of this shape */
    bool seen;              /* a step of this shape has run before */
    int32_t n_segments;     /* segments of a step of this shape */
    int32_t n_graphs;       /* captured segments */
    size_t bytes;           /* device memory that the graphs take */
    /* in order; NULL = not captured. A step captured in one piece is segment[0] */
    pi__rt_graph *segment[PI__CUDA_MAX_SEGMENTS];
} cuda_captured;

/* Rotation frequencies that have been copied to the device. */
typedef struct cuda_freq {
    const float *host;      /* the model's host array; NULL = free entry */
    int32_t n;              /* number of frequencies */
} cuda_freq;

/* The packed activations of the last op: the input in the layouts that matrices read, in scratch. Experts reuse the
 * input that the router and the shared expert have read. */
typedef struct cuda_packed_x {
    pi__k_input in;         /* the input before packing */
    int32_t n_rows;         /* 0 = nothing is packed */
    int64_t n_in;           /* columns */
    /* activation format of either copy, combined with the matrix type where the format depends on it; -1 = no copy */
    int what[2];
    void *where[2];         /* the copies: at `at.prepared` and `at.floats`, or at `at.beside` and `at.mid` */
} cuda_packed_x;

/* The end of a step that later steps may follow before the host waits for it. */
typedef struct cuda_mark {
    size_t end;             /* end of the step's part of the image */
    bool no_room;           /* the step did not fit into the limits */
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
    pi__mla_qkv q[PI__K_MAX_LATENT]; /* n_head 0: without queries, which somebody else makes, or nobody reads */
    pi__compress compress[PI__K_MAX_LATENT];
    int32_t n_q, n_compress;
} cuda_latent;

/* Ops that were called and are queued with what comes next (fuse.c). */
typedef struct cuda_held {
    pi__op_id
        id; /* linear, attention, gdn, sparse, head_linear, (latent) mla_qkv or (streams) hyper_pre; PI__N_OPS: none */
    cuda_latent latent;     /* alone; or rows and compressors beside a linear, and queries behind it */
    cuda_streams
        streams; /* alone; or (posts) behind a linear, and its sums and one add, the results of which are added to them */
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
    uint64_t no;            /* number of the list of runs on the device; 0 = none */
    /* uploaded with the batch, where every token has a logits row: valid for the batch and its logits rows */
    bool in_step;
    const void *group;      /* pi__k_lora_group, by level */
    const int32_t *row;     /* rows of the runs */
    int32_t n_levels, n_groups[PI__MAX_LORA]; /* groups of each level, in order */
} cuda_adapters;

/* Counters of arrived blocks: one of epilogues, two of attention (latent attention uses the first), then one per
 * output tile that several blocks share (split-K). */
enum { PI__CUDA_SPLIT_COUNTERS = 3, PI__CUDA_COUNTERS = PI__CUDA_SPLIT_COUNTERS + PI__K_SPLIT_TILES };

/* Scratch in device memory: the offsets of its regions, and its size. */
typedef struct cuda_scratch {
    size_t batch, rows, arrived, freq, picks, prepared, mid, row_most, floats, beside, experts, heads, clusters, gdn,
        indexer, key_blocks, taken, counts, kv_splits, lora, blas, slices, streams;
    size_t n_slices; /* bytes at slices */
    size_t total; /* bytes */
} cuda_scratch;

/* Host memory and threads for loading weights (load.c). */
typedef struct cuda_stage {
    pi__pool *pool;         /* threads that pack weights; NULL = no load in progress */
    uint8_t *buffer[2];     /* pinned host memory */
    int now;                /* index of the buffer being filled */
    size_t used;            /* bytes used in it */
} cuda_stage;

/* Features disabled by the start-up self-test because their results were wrong (selftest.c). */
typedef struct cuda_disabled {
    bool packed;    /* int8 tensor core products: matrices of packed formats are refused */
    /* products with more than PI__CUDA_FEW_ROWS rows: larger inputs run in pieces of that many rows */
    bool many_rows;
    bool experts;   /* routed experts: MoE layers are refused */
    bool attention; /* attention: caches are refused */
    bool splits;    /* KV splits: attention's keys are not divided among blocks */
    bool wgmma_attention; /* wgmma attention: prompts use mma.sync on sm_90, too */
    bool slices;    /* split-K: blocks do not share the sum of an output tile */
    bool delta;     /* delta nets: recurrent states are refused */
    bool tails;     /* epilogues: every op has its own launch */
    bool glu;       /* fused gate and up: the activation has its own launch */
    bool key_blocks; /* sparse prefill: all keys are attended to */
    bool topk;      /* topk on the device: rows of logits are copied to the host */
} cuda_disabled;

typedef struct pi__cuda {
    pi__backend be;         /* must be first: the public interface */
    pi__rt *rt;             /* device and stream */
    pi__rt_info info;       /* device properties */
    char desc[112];         /* text of describe() */
    pi__blas *blas;         /* cuBLAS, for F16 and BF16 matrices times many rows; NULL = own kernels */
    int matmul_modes;       /* PI__WAY_*: enabled matmul modes; constant after creation */
    bool wgmma;             /* W16 products with many rows use wgmma; constant after creation */
    /* Round to one F16 instead of a hi + lo pair: queries and P of attention; keys, queries and states in the
     * products of delta nets. Constant after creation. */
    bool one_f16;
    cuda_disabled disabled; /* features disabled by the self-test; constant after creation */
    bool fuses;             /* several ops may share a launch; constant after creation */
    bool records;           /* decode steps and drafts are captured as graphs; constant after creation and join */
    bool joined;            /* one of several devices or ranks, which must all capture the same steps */
    pi__limits lim;         /* limits passed to reserve() */
    cuda_scratch at;        /* layout of scratch */
    char *scratch;          /* device memory */
    int32_t *image;         /* [max_ints] pinned host copy of the step's batch; uploaded to `scratch + at.batch` */
    size_t first_int;       /* start of the step's part of image */
    size_t n_ints, max_ints; /* end of that part; size of image */
    /* start of the parts that the device may not have read yet. They end at n_ints, or wrap around */
    size_t first_live;
    bool wraps;             /* the unread parts wrap around the end of image */
    cuda_mark marks[2];     /* see mark in device.h */
    bool open;              /* a step has begun since the last finish() */
    cuda_batch batch[2];    /* the step's batch, and its logits rows */
    cuda_captured recorded[PI__CUDA_MAX_SHAPES]; /* captured steps, unordered */
    int32_t n_graphs;       /* captured segments of all shapes */
    /* bytes of all graphs, and of the largest one. With one more graph they stay below info.graph_bytes, which plans
     * include */
    size_t graph_bytes;
    size_t largest_graph;
    uint64_t n_steps;       /* steps so far that could be captured */
    cuda_captured *now;     /* entry of the step's shape; NULL = not captured, or first step of its shape */
    bool segmented;         /* the step has kind SEGMENTS */
    int32_t n_segments;     /* segments of the step that have begun */
    pi__rt_graph **becomes; /* destination of the graph being captured; NULL = no capture */
    pi__rt_graph *made;     /* captured and not yet replayed; NULL, or one of `recorded` */
    bool replayed;          /* the segment was replayed: calls of its ops do nothing */
    cuda_packed_x ready;    /* what moe, which alone does not forget it, may find */
    cuda_held held;         /* nothing, when a step has ended */
    pi__mla_qkv raw;        /* what indexer, which comes next, does with its queries; n_head 0: nothing */
    const int32_t *skip;    /* the indices at `scratch + at.picks`, or NULL */
    cuda_adapters adapters; /* adapters of the step */
    const int32_t *order;   /* the token order at `scratch + at.clusters`, or NULL */
    pi__draws draw;         /* sampling parameters for the next step; row NULL = no sampling on the device */
    bool draws, draw_rows;  /* the current step samples on the device; some rows from all logits */
    const uint64_t *fed;    /* [n_fed, 3] results of another device, the tokens of the next step; or NULL */
    int32_t n_fed;
    cuda_freq freq[PI__CUDA_MAX_ROPES]; /* entry i is at `scratch + at.freq`, PI__CUDA_MAX_FREQ floats each */
    int32_t n_threads;      /* threads that pack weights; 0 = one per core */
    cuda_stage stage;       /* state of loading weights */
    bool counts;            /* key blocks were counted at `scratch + at.counts` since the last finish() */
    /* from reserve() to the next finish(): small vectors are uploaded through the stage, like matrices */
    bool loads;
    uint64_t n_copies;      /* asynchronous copies so far (copy_out, copy_in) */
    int error;              /* first error since the last finish(), or 0 */
    bool no_room;           /* a batch exceeded the limits, or host memory ran out */
} pi__cuda;

/* True if an error occurred since the last finish(). Nothing is queued after an error. */
static inline bool pi__cuda_failed(const pi__cuda *c) { return c->error || c->no_room; }
/* True if an op has to queue its kernels: no error occurred and its segment was not replayed. */
static inline bool pi__cuda_queues(const pi__cuda *c) { return !pi__cuda_failed(c) && !c->replayed; }
/* Records the first error code that is not 0, for finish(). */
static inline void pi__cuda_record_error(pi__cuda *c, int code)
{
    if (!c->error) c->error = code;
}
/* Queues a kernel, unless an error occurred or the segment was replayed. */
#define PI__QUEUE(c, call)                                                                                             \
    do {                                                                                                               \
        if (pi__cuda_queues(c)) pi__cuda_record_error(c, call);                                                        \
    } while (0)

/* Returns the device's batch: the one passed to begin, or its logits rows. */
static inline const cuda_batch *pi__cuda_batch_of(const pi__cuda *c, const pi__batch *b)
{
    return &c->batch[1].host == b ? &c->batch[1] : &c->batch[0];
}

/* step.c */
/* Size of the image for these limits, in int32. */
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
/* Copies n integers to `scratch + at.rows`. The caller may change them after the call. */
const int32_t *pi__cuda_rows(pi__cuda *c, const int32_t *row, int32_t n);
/* Ends the step or segment. A captured one is replayed now. */
void pi__cuda_end_segment(pi__cuda *c);
/* Frees all captured graphs. */
void pi__cuda_free_graphs(pi__cuda *c);

/* Max rows per gather: a step's tokens, or a drafter's pairs. */
static inline int32_t pi__cuda_max_gather(const pi__limits *lim)
{
    return lim->max_tokens > 2 * lim->max_rows ? lim->max_tokens : 2 * lim->max_rows;
}

/* Allocates size bytes at offset *at, aligned to 256; returns the offset of the region. */
static inline size_t pi__cuda_take(size_t *at, size_t size)
{
    size_t p = *at;
    *at += (size + 255) & ~(size_t) 255;
    return p;
}

/* cuda.c */
void pi__cuda_upload(pi__backend *be, void *dst, const void *src, size_t n);

/* load.c: uploads weights, matrices and small vectors. pi__cuda_load_end() frees the host memory of the load; all
 * queued work must have completed. */
void pi__cuda_weight_load(pi__backend *be, const pi__weight *w, int64_t mat, int64_t row, int64_t n, const void *src);
void pi__cuda_load_values(pi__backend *be, void *dst, const void *src, size_t n);
void pi__cuda_load_end(pi__cuda *c);

/* share.c: arena memory that other processes map. */
int pi__cuda_arena_share(pi__backend *be, void *p, size_t size, const pi__digest *mark, int *fd, pi_error *err);
int pi__cuda_arena_adopt(pi__backend *be, void *p, size_t size, const pi__digest *mark, const int *fd, pi_error *err);
void pi__cuda_identify(const pi__backend *be, char *out, size_t size);

/* ops.c: converts structs of ops.h into the kernels' structs. */
pi__k_matrix pi__cuda_matrix(const pi__weight *w);
pi__k_input pi__cuda_input(const pi__lin_in *in);
/* Max over sequences of the number of keys that its tokens see, first to last; window 0 = unlimited. */
int32_t pi__cuda_max_keys(const pi__batch *b, int32_t window);
/* Returns the device copy of the frequencies; the first call copies them. NULL = table full. */
const float *pi__cuda_frequencies(pi__cuda *c, const float *freq, int32_t n);

/* Activation format of packed input: 15-bit integers, floats, FP4, terms of 16-bit floats, hi and lo rows for cuBLAS,
 * 16-bit floats, FP8. All except the first two also depend on the matrix type. */
enum { PI__FORM_INTEGERS, PI__FORM_FLOATS, PI__FORM_FP4, PI__FORM_MMA16, PI__FORM_HILO, PI__FORM_W16, PI__FORM_W4A8 };
enum { PI__CUDA_FEW_ROWS = 32 /* max rows of the small-batch kernels */ };
enum { PI__CUDA_BLAS_ROWS = 64 /* min rows for cuBLAS */ };
enum {
    PI__WAY_FP4 = 1,   /* FP4 matrices with FP4 activations */
    PI__WAY_MMA16 = 2, /* 16-bit matrices on 16-bit tensor cores; else as floats */
    PI__WAY_W16 = 4,   /* packed matrices on 16-bit tensor cores, where a kernel exists */
    PI__WAY_W4A8 = 8,  /* MXFP4 matrices with FP8 activations */
    PI__WAY_W4A16 = 16, /* FP4 matrices as W16; no other types */
};
int pi__cuda_form(int matmul_modes, int32_t type, int64_t n_in);
/* True if x itself can be read in this format, without packing. */
bool pi__cuda_reads_in_place(int form, const pi__k_input *in, int32_t n_rows, int64_t n_in);
/* Returns the packed input in this format for matrices of this type. Queues the packing unless it is already
 * valid. */
void *pi__cuda_packed_x(pi__cuda *c, int form, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in);
static inline void pi__cuda_invalidate(pi__cuda *c) { c->ready.n_rows = 0; }
/* Queue the packing of an input, and n products with matrices of one type. n is at most PI__K_MAX_LINEAR, or
 * PI__K_MAX_MMA16 in format MMA16. `split` is scratch for split-K, which is used where it fits. */
int pi__cuda_pack_x(void *stream, int form, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in,
                    void *to);
int pi__cuda_product(void *stream, int form, const pi__k_product *p, int32_t n, const void *prepared, int32_t n_rows,
                     const pi__k_split *split);

/* ops_blas.c: a product in format HILO. */
int pi__cuda_blas_product(pi__blas *b, void *stream, const pi__k_product *p, const void *prepared, int32_t n_rows);

/* Returns the activation format for a linear's matrices of this (packed) type. */
int pi__cuda_linear_form(const pi__cuda *c, int32_t type, const pi__linear *a);
/* Max rows of an epilogue: two per block that can stay resident (kernels/tail.cuh), so 32 from 32 SMs on (fuse.c). */
int32_t pi__cuda_tail_rows(const pi__cuda *c);
/* True if the launch of the linear's last matrices can have an epilogue. has_routes: true if that epilogue can
 * compute MoE routes for its rows and n_expert experts. */
bool pi__cuda_has_tail(const pi__cuda *c, const pi__linear *a);
bool pi__cuda_has_routes(const pi__cuda *c, const pi__linear *a, int32_t n_expert);
/* has_latent: true if the linear is one launch that can also process latent-attention inputs. has_streams: true if
 * its results can also be added to residual streams. */
bool pi__cuda_has_latent(const pi__cuda *c, const pi__linear *a);
bool pi__cuda_has_streams(const pi__cuda *c, const pi__linear *a);
/* True if the linear packs for its own matrices the same input that the first matrix of `next` reads. */
bool pi__cuda_reads_same(const pi__cuda *c, const pi__linear *a, const pi__linear *next);
/* Queues a linear. Its last launch runs the epilogue `then`, if not NULL. */
void pi__cuda_queue_linear(pi__cuda *c, const pi__linear *a, const pi__k_tail *then);
/* Like pi__cuda_queue_linear(); `more` is extra work for the last launch where that launch can mix matrix types. */
void pi__cuda_queue_more(pi__cuda *c, const pi__linear *a, const pi__k_tail *then, const pi__k_mixed_more *more);
/* Queues a one-matrix linear and the experts' down in one launch, with the epilogue `then`, if not NULL.
 * goes_with_down: true if this linear can share that launch. */
void pi__cuda_queue_down(pi__cuda *c, const pi__linear *a, const pi__k_down *down, const pi__k_tail *then);
bool pi__cuda_fits_down_launch(const pi__cuda *c, const pi__linear *a);
/* Queues a linear of many rows that adds its result to x in the matmul kernel. y is not written, as only the addition
 * reads it. Returns false, and queues nothing, if that is not supported. */
bool pi__cuda_queue_added(pi__cuda *c, const pi__linear *a, const pi__k_add *add);
/* Records that the epilogue's targets hold packed activations once the queued work has completed. */
void pi__cuda_set_packed(pi__cuda *c, const pi__k_tail *t);
/* Queues gate and up as one launch (pi__k_glu, pi__k_w16_glu) that writes only the packed input of `next`. Returns
 * false, and queues nothing, if they cannot be one launch. */
bool pi__cuda_queue_glu(pi__cuda *c, const pi__linear *a, const pi__linear *next);

/* Attention and gdn with an epilogue. Attention can always have one; gdn can have one where it is one launch. */
void pi__cuda_queue_attention(pi__cuda *c, const pi__batch *b, const pi__attention *a, const pi__k_tail *then);
void pi__cuda_queue_gdn(pi__cuda *c, const pi__batch *b, const pi__gdn *a, const pi__k_tail *then);
bool pi__cuda_gdn_is_one(const pi__cuda *c, const pi__batch *b, const pi__gdn *a);
/* Converts an op qkv into the kernels' struct. */
pi__k_qkv pi__cuda_heads(const pi__cuda *c, const pi__batch *b, const pi__qkv *a);

/* fuse.c: fused launches. hold: returns true if the op is pending now, or was queued with the pending launch. Returns
 * false if nothing is pending and the caller has to queue the op. */
bool pi__cuda_hold(pi__cuda *c, pi__op_id id, const pi__batch *b, const void *args);
/* Queues the pending launch. */
void pi__cuda_flush(pi__cuda *c);
/* Sets the epilogue's targets for the input of these matrices, as far as epilogue kernels support the formats: floats
 * or (for few rows) terms, and one other format. */
void pi__cuda_add_targets(const pi__cuda *c, const pi__linear *next, void *prepared, void *floats, pi__k_tail *t);
/* Queues the pending linear with an epilogue that computes routes from its logits, with `choice` if not NULL. The
 * epilogue also packs the input of `next`, unless the linear reads the same format, and of `last`, unless NULL.
 * *beside describes the separate packed input of `last`. Returns false, and queues nothing, if no suitable linear is
 * pending. */
bool pi__cuda_add_routes(pi__cuda *c, const pi__k_routes *r, const pi__k_expert_choice *choice, const pi__linear *next,
                         const pi__linear *last, cuda_packed_x *beside);
/* Defers a sum of experts; it joins the pending linear, if any. Returns false if it cannot be deferred. */
bool pi__cuda_hold_sum(pi__cuda *c, const pi__k_sum *s);
/* Defers an addition of rows, or a norm. */
void pi__cuda_hold_add(pi__cuda *c, const pi__k_add *a, int32_t n_rows);

/* selftest.c: checks a small product with a matrix of this type against the host. `matmul_modes` selects the mode;
 * blas, if not NULL, selects the library. *wrong: PI__WRONG_*, the row counts with wrong results. */
enum { PI__WRONG_FEW = 1 /* few rows */, PI__WRONG_MANY = 2 };
int pi__cuda_check_product(pi__rt *rt, int32_t type, int matmul_modes, pi__blas *blas, bool slow, int *wrong,
                           pi_error *err);
/* selftest_wgmma.c: sets *wrong if wgmma and mma.sync results differ. */
int pi__cuda_check_wgmma(pi__rt *rt, bool *wrong, pi_error *err);
/* selftest_ops.c: checks the other ops. Clears c->records or sets fields of c->disabled for wrong results, and logs
 * one line for each. */
int pi__cuda_check_ops(pi__cuda *c, const pi__log *log, pi_error *err);

/* ops_top.c, and its scratch. skip: uploads the n indices to `scratch + at.picks`, before a step's topk and outside
 * of a capture. */
void pi__cuda_skip(pi__cuda *c, const int32_t *skip, int32_t n);
/* chain: copies the first n tokens of a step of kind CHAINED or FED, or of a fed step. The source is the topk results
 * of the last step or, if `drawn`, the tokens drawn from them. */
void pi__cuda_chain(pi__cuda *c, int32_t n, bool drawn);
void pi__cuda_feed(pi__backend *be, const uint64_t *found, int32_t n_rows);
void pi__cuda_draw(pi__backend *be, const pi__draws *draws);
/* Queues a copy of n rows of topk results, with one value each, of this step. */
void pi__cuda_download_topk(pi__cuda *c, uint64_t *to, int32_t n);
size_t pi__cuda_top_bytes(const pi__limits *lim);

/* ops_experts_layer.c: returns the matrices that read the layer's input, as one linear. */
pi__linear pi__cuda_layer_reads(const pi__experts_layer *a);

/* ops_moe.c */
/* Scratch of the MoE kernels: the routes with all fields that the op does not own, and the results by column. */
typedef struct cuda_moe {
    pi__k_routes r;
    float *h;   /* [pairs, 2F], then [pairs, E] */
    void *mid;  /* packed input of down */
    /* expert choice for r; used with expert groups, or with weights that are not divided by their sum */
    pi__k_expert_choice choice;
    int32_t row0; /* offset of its first row in the rows of adapter lists */
} cuda_moe;
/* Fills *to. Returns false if scratch has no room for the rows. */
bool pi__cuda_moe_at(pi__cuda *c, const pi__batch *b, const pi__moe *a, cuda_moe *to);
/* Queues the routes after the logits. Returns true if they became the epilogue of the pending linear, with packed
 * input as in pi__cuda_add_routes(). Else queues one launch or more. */
bool pi__cuda_route(pi__cuda *c, const pi__moe *a, cuda_moe *at, const pi__linear *last, cuda_packed_x *beside);
/* Returns the sums of the experts' results, without a shared expert. */
pi__k_sum pi__cuda_sum_of(const pi__moe *a, const cuda_moe *at);
/* Queues all products of experts after the routes; results by column at `h`. */
void pi__cuda_gate_up_down(pi__cuda *c, const pi__moe *a, const cuda_moe *at);
/* Queues gate and up in 16-bit floats and fills *down with the product that remains. Returns false, and queues
 * nothing, for other formats. */
bool pi__cuda_gate_up_for(pi__cuda *c, const pi__moe *a, const cuda_moe *at, pi__k_down *down);
size_t pi__cuda_moe_bytes(const pi__limits *lim);
/* Queues the products of experts with packed rows in this format. */
int pi__cuda_experts(void *stream, int form, const pi__k_routes *r, const pi__k_experts *e, const void *prepared);

/* ops_head_linear.c */
size_t pi__cuda_head_linear_bytes(const pi__limits *lim);
/* True if its products use 16-bit floats: then op mla_qkv of the results can be fused. */
bool pi__cuda_heads_in_16(const pi__cuda *c, const pi__head_linear *a);
/* Returns where attention writes the packed input of this op: the results of `heads` heads per matrix. words NULL =
 * the op packs its input itself. */
pi__k_groups pi__cuda_groups(const pi__cuda *c, const pi__head_linear *a, int32_t heads);
/* Queues it. ready: its input is already packed at pi__cuda_groups(). prep: op mla_qkv of the results, or NULL. then:
 * epilogue of at most PI__K_TAIL_ROWS rows, or NULL. */
void pi__cuda_queue_heads(pi__cuda *c, const pi__head_linear *a, bool ready, const pi__k_mla_qkv *prep,
                          const pi__k_tail *then);

/* ops_mla.c: ops of latent attention and DeepSeek V4, and the scratch of indexer. */
size_t pi__cuda_row_bytes(const pi__backend *be, int32_t type, int32_t n, int32_t n_rows);
size_t pi__cuda_indexer_bytes(const pi__limits *lim);
/* Converts these queries, or rows and compressors, or both, into the kernels' struct. */
pi__k_latent_inputs pi__cuda_latent_inputs(pi__cuda *c, const pi__batch *b, const cuda_latent *a, bool queries,
                                           bool rows);
/* Queues them, if there are any, in one launch. */
void pi__cuda_queue_latent(pi__cuda *c, const pi__batch *b, const cuda_latent *a, bool queries, bool rows);
/* True if every entry that a token of the step sees is picked, so that scores do not matter. */
bool pi__cuda_picks_all(const pi__cuda *c, const pi__batch *b, const pi__indexer *a);
/* Converts the work on residual streams into the kernels' struct. */
pi__k_streams pi__cuda_streams(const pi__cuda *c, const cuda_streams *s);
/* Queues it; hyper_pre also packs the epilogue's input, if `then` is not NULL. */
void pi__cuda_queue_streams(pi__cuda *c, const cuda_streams *s, const pi__k_tail *then);
/* True if the linear is the mixing matrix of residual streams. One kernel, with its own order of sums, computes it
 * for any number of rows. */
bool pi__cuda_is_mix(const pi__cuda *c, const pi__linear *a);
/* Queues op sparse. raw: mla_qkv of its queries, fused into it, or NULL. groups: packed destination of the results,
 * or NULL. */
void pi__cuda_queue_sparse(pi__cuda *c, const pi__batch *b, const pi__sparse *a, const pi__mla_qkv *raw,
                           const pi__k_groups *groups);
/* Converts an op mla_qkv into the kernels' struct. */
pi__k_mla_qkv pi__cuda_latent(const pi__cuda *c, const pi__batch *b, const pi__mla_qkv *a);

/* ops_lora.c */
size_t pi__cuda_lora_bytes(const pi__limits *lim);
/* MoE with adapters. moe_rows: rows per pass. gate_up: adds to the results of gate and up. lora_down: reads the input
 * of down; with `after`, adds to its results. All do nothing without adapters. */
int32_t pi__cuda_lora_moe_rows(const pi__cuda *c, const pi__moe *a);
void pi__cuda_lora_gate_up(pi__cuda *c, const pi__moe *a, const cuda_moe *at);
void pi__cuda_lora_down(pi__cuda *c, const pi__moe *a, const cuda_moe *at, bool after);
/* Returns a hash of the adapter layout; steps with equal hashes can replay each other's graphs. 0 = too many adapters
 * for that. */
uint64_t pi__cuda_lora_shape(const pi__limits *lim, const pi__lora_rows *rows);
/* lora_ints: integers that these adapters take in a captured step's image. most_ints: upper bound. lora_fill: writes
 * them to `to`; d is the device address of `to`. */
size_t pi__cuda_lora_ints(const pi__lora_rows *rows);
size_t pi__cuda_lora_most_ints(const pi__limits *lim);
void pi__cuda_lora_fill(pi__cuda *c, const pi__lora_rows *rows, int32_t *to, const int32_t *d);

/* ops_centroid_head.c */
size_t pi__cuda_centroid_bytes(const pi__limits *lim);

/* ops_gdn.c: ops of delta-net layers (see ops.h), and their scratch. */
size_t pi__cuda_state_bytes(const pi__backend *be, const pi__state_layer *st);
size_t pi__cuda_snapshot_bytes(const pi__backend *be, const pi__state_layer *st);
size_t pi__cuda_gdn_scratch(const pi__limits *lim);

/* The ops (ops.h): transformers in ops.c, delta nets in ops_gdn.c, experts in ops_moe.c, DeepSeek V4 in ops_mla.c. */
#define PI__CUDA_OP(name, type) void pi__cuda_##name(pi__backend *be, const pi__batch *b, const type *a);
PI__OPS_ALL(PI__CUDA_OP)
PI__OPS_DEVICE(PI__CUDA_OP)
#undef PI__CUDA_OP

#endif