/* Internals of the CUDA backend: its object, shared by cuda.c (memory), step.c (steps) and the op files. */
#ifndef PI__CUDA_IMPL_H
#define PI__CUDA_IMPL_H

#include "backend/cpu/pool.h"
#include "backend/cuda/blas.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/facts.h"
#include "backend/cuda/kernels_down.h"
#include "backend/cuda/kernels_split.h"
#include "backend/cuda/plan.h"
#include "backend/cuda/runtime.h"

enum { PI__CUDA_MAX_FREQ = 512 /* pairs of one rotation */, PI__CUDA_MAX_ROPES = 8 /* rotations of all models */ };

/* The batch passed to ops, and the device copies of its arrays, with the names and shapes of pi__batch. */
typedef struct cuda_batch {
    pi__batch host;         /* the batch with padding, for ops; its arrays are in `image`, on the host */
    const int32_t *token, *pos, *seq, *seq_start, *seq_len, *logits_indices, *embd_row, *owner, *hidden_row,
        *n_verified, *state_slot, *save_start, *rope_pos, *see_to;
    const pi__save *save;
    const int32_t *request; /* [n_rows][3] device copy of host.top.request; NULL = the batch has no requests */
    /* device copies of pi__draws.row and pi__draws.seen; NULL = no sampling on the device; no row has penalties */
    const int32_t *draw, *seen;
    const int32_t *slot[PI__MAX_GROUPS], *table[PI__MAX_GROUPS]; /* per cache group: slots, block table */
    const int32_t *run_start, *run_seq, *run_block; /* device copies of pi__batch.runs */
    /* captured steps: upper bound of the keys that a token sees; 0 = each op computes the bound from host arrays */
    int32_t keys;
} cuda_batch;

/* Limits of captured steps: shapes, segments of one step, graphs in total. */
enum { PI__CUDA_MAX_SHAPES = 32, PI__CUDA_MAX_SEGMENTS = 256, PI__CUDA_MAX_GRAPHS = 512 };

/* Shape of a step that can be captured, after padding. Steps of equal shape replay the same graphs. */
typedef struct cuda_shape {
    int32_t kind;           /* PI__STEP_*; CHAINED is stored as DRAFT_NEXT, FED as DECODE */
    int32_t n_seqs;         /* sequences, padding included */
    int32_t each, rows;     /* tokens per sequence; logits rows per sequence */
    int32_t keys;           /* max keys that a token sees, padded to a power of two minus 1 */
    /* see pi__top_shape(): 16 * values per row, + 8 if sums are requested, + 4 if a draw may need all logits of a row,
     * + 2 if draws have penalties, + 1 if tokens are drawn; 0 = topk is not requested */
    int32_t top;
    uint64_t lora;          /* hash of the adapter layout that launches depend on (ops_lora.c); 0 = no adapters */
} cuda_shape;

/* Captured steps of one shape. */
typedef struct cuda_captured {
    cuda_shape shape;       /* n_seqs 0 = free entry */
    uint64_t used;          /* value of n_steps at the last step of this shape; the smallest value is replaced first */
    bool seen;              /* a step of this shape has run before */
    int32_t n_segments;     /* number of segments of a step; 1 = captured in one piece */
    int32_t n_graphs;       /* captured segments */
    size_t bytes;           /* bytes of device memory that the graphs take */
    /* [n_segments] in order; NULL = not captured */
    pi__rt_graph *segment[PI__CUDA_MAX_SEGMENTS];
} cuda_captured;

/* Rotation frequencies (op rope) that have been copied to `scratch + at.freq`. */
typedef struct cuda_freq {
    const float *host;      /* the model's host array; NULL = free entry */
    int32_t n;              /* number of frequencies */
} cuda_freq;

/* One input that has been packed, in up to two activation formats. Matrices with an equal input and format read the
 * packed copy instead of packing again. Valid while the launches of a plan are queued, as far as the plan says so
 * (pi__plan_launch.uses). */
typedef struct cuda_packed_x {
    pi__k_input in;         /* the input before packing */
    int32_t n_rows;         /* 0 = nothing is packed */
    int64_t n_in;           /* columns */
    /* format of each copy, as known_by() of ops.c encodes it: PI__FORM_*, and the matrix type where the format depends
     * on it; -1 = no copy. Copy 1 has floats, or 16-bit terms of up to pi__tail_rows() rows. Copy 0 has any other
     * format */
    int what[2];
    void *where[2];         /* device address of each copy; undefined where `what` is -1 */
} cuda_packed_x;

/* A mark (mark of device.h): the end of a step that the host may still have to wait for. */
typedef struct cuda_mark {
    size_t end;             /* index in image after the step's part; at the mark the device has read that part */
    bool no_room;           /* the step exceeded the limits; wait() returns PI_ENOMEM */
} cuda_mark;

/* A step's adapters on the device. Each run of rows is cut into groups of up to PI__K_LORA_ROWS rows
 * (kernels_lora.h). */
typedef struct cuda_adapters {
    uint64_t no;            /* id of the list of runs on the device (pi__lora_rows.no); 0 = none */
    /* the groups are in the batch's image; valid for tokens and for logits rows, as every token has a logits row */
    bool in_step;
    const void *group;      /* device array of pi__k_lora_group, sorted by level */
    const int32_t *row;     /* device array of batch rows, by run; groups refer to ranges of it */
    int32_t n_levels, n_groups[PI__MAX_LORA]; /* levels; [n_levels] groups per level */
} cuda_adapters;

/* Arrival counters at `scratch + at.arrived`, uint32: counter 0 for epilogues and fused gate and up; 1 and 2 for
 * attention (latent attention uses 1); from 3 on one per output tile with split-K. Residual streams use the first
 * PI__K_HYPER_ROWS of the split-K counters. */
enum { PI__CUDA_SPLIT_COUNTERS = 3, PI__CUDA_COUNTERS = PI__CUDA_SPLIT_COUNTERS + PI__K_SPLIT_TILES };

/* Layout of the backend's scratch in device memory. A field without comment is the byte offset of a region; the opening
 * of cuda.c lists the regions. */
typedef struct cuda_scratch {
    size_t batch, rows, arrived, freq, picks, prepared, mid, row_most, floats, beside, experts, heads, clusters, gdn,
        indexer, key_blocks, taken, counts, kv_splits, lora, blas, slices, streams;
    size_t n_slices; /* bytes of the region `slices` */
    size_t total; /* bytes of all regions */
} cuda_scratch;

/* Host memory and threads for loading weights (load.c). */
typedef struct cuda_stage {
    pi__pool *pool;         /* threads that pack weights; NULL = no load in progress */
    uint8_t *buffer[2];     /* pinned host memory */
    int now;                /* index of the buffer being filled */
    size_t used;            /* bytes used in buffer[now] */
} cuda_stage;

/* Ops that were called and are not queued yet. */
typedef struct cuda_records {
    int32_t n;              /* used entries of op */
    bool queueing;          /* their launches are being queued */
    /* for tools that count launches by layer: called before a launch, with the recorded ops and the index of the
     * launch's main op; NULL = not called */
    void (*before)(const pi__op_record *r, int32_t i);
    pi__op_record op[PI__MAX_RECORDS];
    pi__plan plan;          /* of these ops */
} cuda_records;

typedef struct pi__cuda {
    pi__backend be;         /* must be first: the public interface */
    pi__rt *rt;             /* device and stream */
    pi__rt_info info;       /* device properties */
    char desc[112];         /* text of describe() */
    pi__blas *blas;         /* cuBLAS, for F16 and BF16 matrices times many rows; NULL = own kernels */
    pi__facts f;            /* facts for the planner */
    /* Round to one F16 instead of a hi + lo pair: queries and P of attention; keys, queries and states in the
     * products of delta nets. Constant after creation. */
    bool one_f16;
    bool records;           /* decode steps and drafts are captured as graphs; constant after creation and join */
    bool joined;            /* one of several devices or ranks, which must all capture the same steps */
    cuda_scratch at;        /* offsets in scratch, from reserve() */
    char *scratch;          /* device memory */
    /* [max_ints] pinned ring of the batches of steps; the current step's part, from first_int on, is uploaded to
     * `scratch + at.batch` */
    int32_t *image;
    size_t first_int;       /* index in image: start of the current step's part */
    size_t n_ints, max_ints; /* index in image after that part; size of image */
    /* index in image: start of the parts that the device may not have read yet. They end at n_ints, or wrap around */
    size_t first_live;
    bool wraps;             /* the unread parts wrap around the end of image */
    cuda_mark marks[2];     /* by mark number 0 and 1: steps that mark() has ended */
    bool open;              /* begin() has run since the last finish() */
    cuda_batch batch[2];    /* the step's batch, and the batch of its logits rows (pi__batch.logits_batch) */
    cuda_captured recorded[PI__CUDA_MAX_SHAPES]; /* captured steps, unordered */
    int32_t n_graphs;       /* captured segments of all shapes */
    /* bytes of all graphs, and of the largest one. A new graph is assumed to take largest_graph bytes; old graphs are
     * dropped so that the sum does not exceed info.graph_bytes, which scratch_bytes() includes. Joined devices: not
     * limited */
    size_t graph_bytes;
    size_t largest_graph;
    uint64_t n_steps;       /* number of steps so far of kinds that can be captured */
    /* entry of the step's shape in `recorded`; NULL = the step is not captured, or is the first of its shape */
    cuda_captured *now;
    bool segmented;         /* the step has kind SEGMENTS */
    int32_t n_segments;     /* number of segments of the step that have begun */
    pi__rt_graph **becomes; /* `segment` entry that receives the graph when the capture ends; NULL = no capture */
    pi__rt_graph *made;     /* graph that was captured and not yet replayed, also in `recorded`; NULL = none */
    bool replayed;          /* the segment was replayed: calls of its ops do nothing */
    cuda_records *ops;      /* called ops; empty between steps. Owned */
    /* joined devices queue an op when it is called: the input that the last op packed, which op moe may read */
    cuda_packed_x packed;
    const int32_t *skip;    /* host array of indices that was copied to `scratch + at.picks`; NULL = none */
    cuda_adapters adapters; /* adapters of the step, as far as they have been uploaded */
    const int32_t *order;   /* host array (pi__centroid_head) that was copied to `scratch + at.clusters`; NULL = none */
    pi__draws draw;         /* sampling parameters of the step that begins next; row NULL = no sampling on the device */
    bool draws, draw_rows;  /* the current step samples on the device; some draws may need all logits of a row */
    /* [n_fed, 3] host array of results from which the next step takes its tokens, written by another device; NULL = the
     * step does not take its tokens from another device */
    const uint64_t *fed;
    int32_t n_fed;
    /* entry i describes the copy at `scratch + at.freq`, which has PI__CUDA_MAX_FREQ floats per entry */
    cuda_freq freq[PI__CUDA_MAX_ROPES];
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
/* Runs `call`, a launch, and records its error code. Skips it if an error occurred or the segment was replayed. */
#define PI__QUEUE(c, call)                                                                                             \
    do {                                                                                                               \
        if (pi__cuda_queues(c)) pi__cuda_record_error(c, call);                                                        \
    } while (0)

/* Returns the limits of waiting blocks, for kernels with arrival counters. */
static inline pi__k_waits pi__cuda_waits(const pi__cuda *c) { return (pi__k_waits) {c->info.places, c->info.stuck}; }

/* Returns the device copy of batch b. b is the batch that begin() returned, or its logits_batch. */
static inline const cuda_batch *pi__cuda_batch_of(const pi__cuda *c, const pi__batch *b)
{
    return &c->batch[1].host == b ? &c->batch[1] : &c->batch[0];
}

/* step.c */
/* Returns the size in int32 of the image for these limits. */
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

/* graphs.c: captured steps. */
/* Returns the entry of the shape; NULL = none. */
cuda_captured *pi__cuda_find_shape(pi__cuda *c, const cuda_shape *s);
/* Sets c->now to the entry of shape s, so that the step is captured or replayed, unless the step is the first of its
 * shape. */
void pi__cuda_look_up(pi__cuda *c, const cuda_shape *s);
/* Replays the step's next segment (then c->replayed is set), or starts its capture (c->becomes). If neither is
 * possible, the segment's ops are queued without a graph. */
void pi__cuda_begin_segment(pi__cuda *c);
/* end_capture: ends the capture in progress, if any. If `wanted`, the graph is stored in the shape's entry and in
 * c->made; else it is freed. end_segment: also replays the new graph. All called ops must be queued. */
void pi__cuda_keep_graph(pi__cuda *c, bool wanted);
void pi__cuda_end_segment(pi__cuda *c, bool wanted);
/* Frees all captured graphs. */
void pi__cuda_free_graphs(pi__cuda *c);

/* image.c: the image of the step's batch, and copies to the device. */
/* Extends the step's part of the image by n int32 and returns their address. NULL = no space; c->no_room is set
 * then. */
int32_t *pi__cuda_take_ints(pi__cuda *c, size_t n);
/* Begins the part of the image for a step of n int32: after the parts that the device may not have read yet, or at the
 * start of the image, before these parts. If neither place has space, waits for the device and begins at the start. */
void pi__cuda_open_image(pi__cuda *c, size_t n);
/* Returns the device address of image pointer p. */
const int32_t *pi__cuda_on_device(const pi__cuda *c, const int32_t *p);
/* Queues a copy of n row numbers to `scratch + at.rows` and returns that address, valid until the next call. `row` may
 * be changed after the call. */
const int32_t *pi__cuda_rows(pi__cuda *c, const int32_t *row, int32_t n);
/* Queues a copy to the device, after what is queued already. */
void pi__cuda_upload(pi__cuda *c, void *dst, const void *src, size_t n);

/* emit.c: plans the called ops, and queues their launches. Does nothing while that happens. */
void pi__cuda_flush(pi__cuda *c);
/* Records a call, to be queued by pi__cuda_flush(). Joined devices queue it at once. */
void pi__cuda_record(pi__cuda *c, pi__op_id id, const pi__batch *b, const void *args);

/* Max rows per gather: a step's tokens, or a drafter's pairs. */
static inline int32_t pi__cuda_max_gather(const pi__limits *lim)
{
    return lim->max_tokens > 2 * lim->max_rows ? lim->max_tokens : 2 * lim->max_rows;
}

/* Returns *at, the offset of a new region of `size` bytes, and advances *at to the next multiple of 256 after it. */
static inline size_t pi__cuda_take(size_t *at, size_t size)
{
    size_t p = *at;
    *at += (size + 255) & ~(size_t) 255;
    return p;
}

/* load.c: uploads weights, matrices and small vectors. pi__cuda_load_end() frees the host memory of the load; all
 * queued work must have completed. */
void pi__cuda_weight_load(pi__backend *be, const pi__weight *w, int64_t mat, int64_t row, int64_t n, const void *src);
void pi__cuda_load_values(pi__backend *be, void *dst, const void *src, size_t n);
void pi__cuda_load_end(pi__cuda *c);

/* expert_cache.c: copies of experts in device memory, of stacks in host memory (pi__weight.n_slot). moved: the table of
 * copies of w, as in pi__k_experts; NULL = w has none. keep_experts: queues the search for the copies of the step's
 * experts, and the missing copies, before the products of a->gate; does nothing for stacks in device memory. */
size_t pi__cuda_slots_bytes(const pi__backend *be, const pi__weight *w);
const uint64_t *pi__cuda_moved(const pi__cuda *c, const pi__weight *w);
void pi__cuda_keep_experts(pi__cuda *c, const pi__moe *a, const pi__k_routes *r);
/* share.c: arena memory that other processes map. */
int pi__cuda_arena_share(pi__backend *be, void *p, size_t size, const pi__digest *mark, int *fd, pi_error *err);
int pi__cuda_arena_adopt(pi__backend *be, void *p, size_t size, const pi__digest *mark, const int *fd, pi_error *err);
void pi__cuda_identify(const pi__backend *be, char *out, size_t size);

/* ops.c: sets the facts that depend on the kernels: w16, w16_bf16, wgmma_glu, gdn_few. */
void pi__cuda_kernel_facts(pi__facts *f);
/* Returns pi__form() for these modes (PI__WAY_*), before the facts are known. */
int pi__cuda_form(int matmul_modes, int32_t type, int64_t n_in);
/* Converts structs of ops.h into the kernels' structs. */
pi__k_matrix pi__cuda_matrix(const pi__weight *w);
pi__k_input pi__cuda_input(const pi__lin_in *in);
/* Returns the device copy of n frequencies. Queues the copy unless this host array has been copied before. NULL = no
 * free entry; the step then fails. */
const float *pi__cuda_frequencies(pi__cuda *c, const float *freq, int32_t n);

/* Returns the device address of the input packed in this format for matrices of this type. Queues the packing, unless
 * `ready` has it; sets *ready to what is packed then. */
void *pi__cuda_packed_x(pi__cuda *c, cuda_packed_x *ready, int form, const pi__lin_in *in, int32_t type,
                        int32_t n_rows, int64_t n_in);
/* Returns the packed copies that epilogue t writes. */
cuda_packed_x pi__cuda_packed_by(const pi__k_tail *t);
/* pack_x queues the packing of an input. product queues n products with matrices of one type; n is at most
 * PI__K_MAX_LINEAR, or PI__K_MAX_MMA16 in format MMA16. split: scratch for split-K; NULL = never split. */
int pi__cuda_pack_x(void *stream, int form, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in,
                    void *to);
int pi__cuda_product(void *stream, int form, const pi__k_product *p, int32_t n, const void *prepared, int32_t n_rows,
                     const pi__k_split *split);

/* ops_blas.c: queues a product in format HILO. */
int pi__cuda_blas_product(pi__blas *b, void *stream, const pi__k_product *p, const void *prepared, int32_t n_rows);

/* Sets the epilogue's targets (packed outputs) for the input of these matrices (pi__targets_of). `floats` receives
 * floats or terms; `prepared` one other format. */
void pi__cuda_add_targets(const pi__cuda *c, const pi__linear *next, void *prepared, void *floats, pi__k_tail *t);
/* The functions below read inputs that `ready` has, and set *ready to what is packed after their launches. */
/* Queues a linear of any kind, without an epilogue. */
void pi__cuda_queue_linear(pi__cuda *c, cuda_packed_x *ready, const pi__linear *a);
/* Queues the products of a linear. The last launch runs the epilogue `then`, if not NULL, and extra work `more`, which
 * is ignored if that launch cannot mix types. */
void pi__cuda_queue_more(pi__cuda *c, cuda_packed_x *ready, const pi__linear *a, const pi__k_tail *then,
                         const pi__k_mixed_more *more);
/* Queues a one-matrix linear and the experts' down in one launch, with the epilogue `then`, if not NULL
 * (pi__fits_down). */
void pi__cuda_queue_down(pi__cuda *c, cuda_packed_x *ready, const pi__linear *a, const pi__k_down *down,
                         const pi__k_tail *then);
/* Queues a linear of many rows that adds its result to the residual add->x in the matmul kernel (pi__adds_itself). The
 * result y is not written, as only the addition reads it. */
void pi__cuda_queue_added(pi__cuda *c, cuda_packed_x *ready, const pi__linear *a, const pi__add_norm *add);
/* Queues gate and up fused with their activation (pi__has_glu). The only result is the packed input of `next`. */
void pi__cuda_queue_glu(pi__cuda *c, cuda_packed_x *ready, const pi__linear *a, const pi__linear *next);

/* Queue attention and gdn. then: epilogue, or NULL. Attention can always have an epilogue; gdn only if
 * pi__gdn_has_tail(). */
void pi__cuda_queue_attention(pi__cuda *c, const pi__batch *b, const pi__attention *a, const pi__k_tail *then);
void pi__cuda_queue_gdn(pi__cuda *c, const pi__batch *b, const pi__gdn *a, const pi__k_tail *then);
/* Converts an op qkv into the kernels' struct. */
pi__k_qkv pi__cuda_heads(const pi__cuda *c, const pi__batch *b, const pi__qkv *a);

/* selftest.c: checks a small product with a matrix of this type against the host. `matmul_modes` selects the mode;
 * blas, if not NULL, selects the library. slow: an emulator; the product is smaller. *wrong: PI__WRONG_*, the row
 * counts with wrong results. */
enum { PI__WRONG_FEW = 1 /* few rows */, PI__WRONG_MANY = 2 /* many rows */ };
int pi__cuda_check_product(pi__rt *rt, int32_t type, int matmul_modes, pi__blas *blas, bool slow, int *wrong,
                           pi_error *err);
/* selftest_wgmma.c: sets *wrong if wgmma and mma.sync results differ. */
int pi__cuda_check_wgmma(pi__rt *rt, bool *wrong, pi_error *err);
/* selftest_ops.c: checks the other ops. Sets the fields of c->disabled for features with wrong results, or clears
 * c->records, and logs one line for each. */
int pi__cuda_check_ops(pi__cuda *c, const pi__log *log, pi_error *err);

/* ops_top.c. skip: sets the indices that topk skips. Queues their upload to `scratch + at.picks`, unless c->skip is the
 * same array. Call it before a step's topk and outside of a capture. */
void pi__cuda_skip(pi__cuda *c, const int32_t *skip, int32_t n);
/* chain: queues a kernel that writes the step's first n token ids on the device. Token t is the result of row
 * hidden_row[t] of the last step, or of c->fed: the best value or, if `drawn`, the drawn token. */
void pi__cuda_chain(pi__cuda *c, int32_t n, bool drawn);
void pi__cuda_feed(pi__backend *be, const uint64_t *found, int32_t n_rows);
void pi__cuda_draw(pi__backend *be, const pi__draws *draws);
/* Queues a copy of n rows of the step's results to `to`, [n, 3]: the drawn tokens, else topk's with one value each. */
void pi__cuda_download_topk(pi__cuda *c, uint64_t *to, int32_t n);
size_t pi__cuda_top_bytes(const pi__limits *lim);

/* ops_moe.c */
/* Scratch of the MoE kernels: addresses of the routes' arrays, and of the results by column. */
typedef struct cuda_moe {
    pi__k_routes r; /* the routes, for the products */
    float *h;   /* [pairs, 2F] results of gate and up; down overwrites them with its own, [pairs, E] */
    void *mid;  /* packed input of down */
    /* chooses: experts are chosen by `choice`: there are expert groups, or weights are not divided by their sum.
     * choice.r: the routes as the router's epilogue or pi__k_route compute them */
    bool chooses;
    pi__k_expert_choice choice;
    int32_t row0; /* number of the op's first row in adapter lists; 0 unless the op runs in several passes */
} cuda_moe;
/* Sets *to to the addresses in scratch of the routes and intermediate values for the rows of `a`. Returns false if
 * scratch is too small for these values; the step then fails. */
bool pi__cuda_moe_at(pi__cuda *c, const pi__batch *b, const pi__moe *a, cuda_moe *to);
/* Queues the routes after the logits. */
void pi__cuda_route(pi__cuda *c, const cuda_moe *at);
/* Returns the arguments for summing the experts' results of each row, without a shared expert. */
pi__k_sum pi__cuda_sum_of(const pi__moe *a, const cuda_moe *at);
/* Queues all products of experts after the routes: gate, up, activation, down, and their adapters. The results of
 * down are by column, at at->h. */
void pi__cuda_gate_up_down(pi__cuda *c, cuda_packed_x *ready, const pi__moe *a, const cuda_moe *at);
/* Queues gate and up with the activation (pi__experts_have_glu). down_of: the remaining product, in 16-bit floats. */
void pi__cuda_gate_up(pi__cuda *c, cuda_packed_x *ready, const pi__moe *a, const cuda_moe *at);
pi__k_down pi__cuda_down_of(const pi__cuda *c, const pi__moe *a, const cuda_moe *at);
/* Queues the op with its routes and sums. */
void pi__cuda_queue_moe(pi__cuda *c, cuda_packed_x *ready, const pi__batch *b, const pi__moe *a);
size_t pi__cuda_moe_bytes(const pi__limits *lim);
/* Queues the products of experts with packed rows in this format. */
int pi__cuda_experts(void *stream, int form, const pi__k_routes *r, const pi__k_experts *e, const void *prepared);

/* ops_head_linear.c */
size_t pi__cuda_head_linear_bytes(const pi__limits *lim);
/* Returns where op sparse writes its results as the packed input of this op, `heads` heads per matrix
 * (pi__heads_take_groups). */
pi__k_groups pi__cuda_groups(const pi__cuda *c, const pi__head_linear *a, int32_t heads);
/* Queues this op; pi__heads_in_16() must be true. ready: its input is already packed at pi__cuda_groups(). prep:
 * op mla_qkv with the results as its queries, fused into this op, or NULL. then: epilogue, or NULL; requires at most
 * PI__K_TAIL_ROWS rows. */
void pi__cuda_queue_heads(pi__cuda *c, const pi__head_linear *a, bool ready, const pi__k_mla_qkv *prep,
                          const pi__k_tail *then);

/* ops_mla.c: ops of latent attention and DeepSeek V4. row_bytes: see device.h. indexer_bytes: scratch of op indexer. */
size_t pi__cuda_row_bytes(const pi__backend *be, int32_t type, int32_t n, int32_t n_rows);
size_t pi__cuda_indexer_bytes(const pi__limits *lim);
/* Queues the ops in k, as one launch; nothing if there are none. */
void pi__cuda_queue_latent(pi__cuda *c, const pi__k_latent_inputs *k);
/* Queues op indexer; nothing if all entries are picked (pi__picks_all). raw: op mla_qkv of its queries, fused into the
 * launch; NULL = none. */
void pi__cuda_queue_indexer(pi__cuda *c, const pi__batch *b, const pi__indexer *a, const pi__mla_qkv *raw);
/* Queues op sparse. raw: op mla_qkv of its queries, fused into the launch; NULL = none. groups: packed
 * destination of the results (pi__cuda_groups()); NULL = floats. */
void pi__cuda_queue_sparse(pi__cuda *c, const pi__batch *b, const pi__sparse *a, const pi__mla_qkv *raw,
                           const pi__k_groups *groups);
/* Convert an op mla_qkv, an op compress into the kernels' structs. */
pi__k_mla_qkv pi__cuda_latent(const pi__cuda *c, const pi__batch *b, const pi__mla_qkv *a);
pi__k_compress pi__cuda_compressor(pi__cuda *c, const pi__batch *b, const pi__compress *a);

/* ops_streams.c: work on residual streams: op hyper_post, the product with the mixing matrix, op hyper_pre; NULL = not
 * this part. queue_streams: if `then` is not NULL, the launch also packs then->in, the RMSNorm of hyper_pre's
 * result. */
pi__k_streams pi__cuda_streams(const pi__cuda *c, const pi__hyper *post, const pi__linear *mix, const pi__hyper *pre);
void pi__cuda_queue_streams(pi__cuda *c, const pi__hyper *post, const pi__linear *mix, const pi__hyper *pre,
                            const pi__k_tail *then);

/* ops_lora.c */
size_t pi__cuda_lora_bytes(const pi__limits *lim);
/* Adapters of experts, inside op moe. gate_up: adds the adapters' results to the results of gate and up. lora_down is
 * called twice: before down, it computes A x of down's input; after down (`after`), it adds B (A x) to down's results.
 * They do nothing without adapters. */
void pi__cuda_lora_gate_up(pi__cuda *c, const pi__moe *a, const cuda_moe *at);
void pi__cuda_lora_down(pi__cuda *c, const pi__moe *a, const cuda_moe *at, bool after);
/* Returns a hash of the adapter layout; steps with equal hashes can replay each other's graphs. 0 = the step has too
 * many groups or rows with adapters, and cannot be captured. */
uint64_t pi__cuda_lora_shape(const pi__limits *lim, const pi__lora_rows *rows);
/* lora_ints: size in int32 of these adapters in a captured step's image. most_ints: upper bound of that size.
 * lora_fill: writes them to `to`, which the device will have at address d, and sets c->adapters. */
size_t pi__cuda_lora_ints(const pi__lora_rows *rows);
size_t pi__cuda_lora_most_ints(const pi__limits *lim);
void pi__cuda_lora_fill(pi__cuda *c, const pi__lora_rows *rows, int32_t *to, const int32_t *d);

/* ops_centroid_head.c */
size_t pi__cuda_centroid_bytes(const pi__limits *lim);

/* ops_gdn.c: ops of delta-net layers (see ops.h), and their scratch. */
size_t pi__cuda_state_bytes(const pi__backend *be, const pi__state_layer *st);
size_t pi__cuda_snapshot_bytes(const pi__backend *be, const pi__state_layer *st);
size_t pi__cuda_gdn_scratch(const pi__limits *lim);

/* ops_conv.c: states of short convolutions. conv_move: op state_save or state_load. */
size_t pi__cuda_conv_state_bytes(const pi__state_layer *st);
size_t pi__cuda_conv_snapshot_bytes(const pi__state_layer *st);
void pi__cuda_conv_move(pi__cuda *c, const pi__state_copy *a, bool is_save);

/* ops_scan.c: states of selective scans, as those of convolutions. */
size_t pi__cuda_scan_state_bytes(const pi__state_layer *st);
size_t pi__cuda_scan_snapshot_bytes(const pi__state_layer *st);
void pi__cuda_scan_move(pi__cuda *c, const pi__state_copy *a, bool is_save);

/* The ops (ops.h): transformers in ops.c, delta nets in ops_gdn.c, convolutions in ops_conv.c, selective scans in
 * ops_scan.c, experts in ops_moe.c, DeepSeek V4 in ops_mla.c. */
#define PI__CUDA_OP(name, type) void pi__cuda_##name(pi__backend *be, const pi__batch *b, const type *a);
PI__OPS_ALL(PI__CUDA_OP)
PI__OPS_DEVICE(PI__CUDA_OP)
#undef PI__CUDA_OP

#endif