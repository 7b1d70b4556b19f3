/* A device: memory, copies, weights on their way to it, and the steps that run on it. What it computes is in ops.h.
 *
 * A backend owns device memory and runs coarse ops in program order: on the CPU an op is done when it returns, on a GPU
 * it is queued, and finish() waits. Ops report nothing: a device error is remembered and returned by finish(). No op
 * allocates; reserve() did.
 *
 * One thread at a time may use a backend (the engine's step thread; the opening thread before that). */
#ifndef PI__DEVICE_H
#define PI__DEVICE_H

#include "backend/draw.h"
#include "backend/ops.h"
#include "base/hash.h"
#include "base/log.h"
#include "pagedinfer.h"

/* The largest of everything, from which scratch is sized. */
typedef struct pi__limits {
    int32_t max_tokens;   /* tokens a step */
    int32_t max_seqs;     /* sequences a step */
    int32_t max_rows;     /* logits rows computed at once, at most PI__MAX_ROWS */
    int32_t max_ctx;      /* tokens of one sequence */
    int64_t max_n_in;     /* columns of any matrix */
    int64_t max_n_out;    /* rows of any matrix */
    int64_t n_vocab;      /* logits a row */
    int32_t max_n_head;   /* query heads */
    int32_t max_head_dim; /* values a head */
    int32_t max_expert;   /* experts of a layer; 0: none */
    int32_t max_used;     /* experts a token */
    int64_t max_in_exp;   /* columns of an expert's gate and up, rows of its down */
    int64_t max_ff_exp;   /* rows of an expert's gate and up together */
    int64_t max_order;    /* rows of a head in clusters; 0: none */
    int32_t max_pick;     /* clusters of it that are multiplied for a row */
    pi__state_layer state; /* of delta-net layers, the largest of each field; dim 0: none */
    int32_t max_row;      /* values of a row that sparse attends to; 0: none */
    int64_t max_stream;   /* values of one of several residual streams; 0: none */
    int32_t n_head_mat;   /* matrices of op heads, and the most columns and rows of one; 0: there are none */
    int64_t head_in, head_out;
    int32_t indexer_head, indexer_dim; /* of op index; 0: none */
    int32_t indexer_ratio; /* tokens an entry, the smallest */
    int32_t key_blocks;   /* of a sequence with sparse prefill; 0: there is none */
    int32_t sparse_heads; /* kv heads of a layer with it */
} pi__limits;

/* Kinds of steps: what is known when one begins. All but ANY and SEGMENTS can be captured whole. */
enum {
    PI__STEP_ANY,    /* nothing: prefill, or prefill and decode mixed */
    PI__STEP_DECODE, /* decode: of each sequence as many tokens (one, and drafts), each with a logits row, no snapshots;
                      * its ops are the model's graph, the first logits rows and, where the batch says so, topk of them,
                      * always at the same addresses: a step can be captured and replayed as others with as many sequences
                      * and tokens that ask for as much. Of what ops wrote before, none but caches and states is read from
                      * now on */
    /* A drafter's, with hidden_row, which can be captured in the same way: */
    PI__STEP_DRAFT,      /* of each sequence one token with a logits row, behind hidden states of the target's last step, or of
                          * the drafter's last BLOCK */
    PI__STEP_DRAFT_NEXT, /* the same behind those of the drafter's last step */
    PI__STEP_CATCH_UP,   /* of each sequence as many tokens, without logits rows: only the drafter's cache is filled */
    PI__STEP_CHAINED,    /* DRAFT_NEXT whose tokens are the best values that topk found in the last step, where one was asked
                          * for in each row: that of row hidden_row[t] is token t, 0 where there is none, whatever the batch
                          * says. Only where dev->chains */
    /* Of drafters that run a model, with what they do to the logits rows in the step: of each sequence as many tokens, and logits
     * rows at any of them, as many of each: */
    PI__STEP_MODEL,    /* of a model beside the target */
    PI__STEP_EXIT,     /* of the target's first layers */
    PI__STEP_BLOCK,    /* of a drafter of blocks */
    PI__STEP_INJECT,   /* the same without logits rows, of 128 tokens at most: hidden_row are rows of what the target captured */
    PI__STEP_FED,      /* DECODE of one token a sequence: the best value that topk found in the last step, a DECODE or FED that
                        * asked for one in each row, or the token drawn there. That of row hidden_row[t] is token t, 0 where there
                        * is none, whatever the batch says. Only where dev->mark */
    PI__STEP_SEGMENTS, /* DECODE where the CPU, or other stages, do some of it: what the device does is captured in segments,
                        * see graph_segment. A device is given one of the two kinds only */
};

typedef struct pi__backend pi__backend;
typedef struct pi__link pi__link;   /* what joins devices (link.h) */

typedef struct pi__device_fns {
    void (*destroy)(pi__backend *be);
    /* "cpu (avx512-vnni)"; lives as long as the backend. */
    const char *(*describe)(const pi__backend *be);
    int32_t (*n_threads)(const pi__backend *be);

    /* Device memory: zeroed, 64-byte aligned at least. NULL: none left. */
    void *(*alloc)(pi__backend *be, size_t size);
    void (*free)(pi__backend *be, void *p, size_t size);
    /* Bytes that alloc can still give; 0: not known, or an error. NULL: as much as the system has. */
    uint64_t (*free_memory)(pi__backend *be);
    /* Memory of alloc is taken from the system as it is first written. commit takes it now; trim gives back what lies in
     * it, whose contents are lost (the next read gives zeros or garbage). */
    void (*commit)(pi__backend *be, void *p, size_t size);
    void (*trim)(pi__backend *be, void *p, size_t size);
    /* Of backends that have pages, NULL elsewhere. An arena is a range of addresses, a multiple of the page, for tensors
     * that get memory, and give it back, one by one. arena_alloc: addresses without memory; NULL: none left. arena_map:
     * zeroed memory for whole pages of it; false: none left. arena_unmap takes back what one map gave; arena_free the
     * addresses, when nothing is mapped any more. */
    void *(*arena_alloc)(pi__backend *be, size_t size);
    void (*arena_free)(pi__backend *be, void *arena, size_t size);
    bool (*arena_map)(pi__backend *be, void *p, size_t size);
    void (*arena_unmap)(pi__backend *be, void *p, size_t size);
    /* Of backends with `exports`: memory of an arena that other processes of the machine map, too. share is arena_map, with
     * descriptors of the memory at fd, one of each device that be is, the caller's to close (-1 after an error); they keep
     * it. adopt maps the memory of such descriptors, only to be read. Its last 16 bytes are share's: mark is there, and adopt
     * takes no memory with another one. arena_unmap takes back either. */
    int (*arena_share)(pi__backend *be, void *p, size_t size, const pi__digest *mark, int *fd, pi_error *err);
    int (*arena_adopt)(pi__backend *be, void *p, size_t size, const pi__digest *mark, const int *fd, pi_error *err);
    /* Which devices these are, in words that are the same in every process: "GPU-4f0e...". NULL: one is like another. */
    void (*identify)(const pi__backend *be, char *out, size_t size);
    /* Copies in the order of ops. src may be changed after upload returns; dst is filled when finish has returned. */
    void (*upload)(pi__backend *be, void *dst, const void *src, size_t n);
    void (*download)(pi__backend *be, void *dst, const void *src, size_t n);
    /* Memory of the host that downloads are fastest to. NULL: none left. */
    void *(*host_alloc)(pi__backend *be, size_t size);
    void (*host_free)(pi__backend *be, void *p, size_t size);

    /* Of discrete devices only, and NULL where they cannot: copies between their memory and the host's that steps do
     * not wait for. One starts when all that was queued before it is done; its result is its number, counted from 1 in
     * the order in which copies end, or 0: it was not queued. The host's memory must be pinned. Of several devices that
     * are one, each has n bytes there, one behind the other. */
    uint64_t (*copy_out)(pi__backend *be, void *host, const void *src, size_t n);
    uint64_t (*copy_in)(pi__backend *be, void *dst, const void *host, size_t n);
    /* The number up to which they have ended; wait: all of them. false: the rest will never end well. */
    bool (*copies)(pi__backend *be, bool wait, uint64_t *ended);
    /* Whole pages of the host's memory become such that copies run by themselves. Any thread. false: they do not. */
    bool (*pin)(pi__backend *be, void *host, size_t n);
    void (*unpin)(pi__backend *be, void *host, size_t n);

    /* Bytes of a matrix in this backend's layout; 0: the type is not supported. Also fills w->layout. */
    size_t (*weight_size)(const pi__backend *be, pi__weight *w);
    /* Converts n of the file's rows (of pi__row_size each, at src), from row `row` of matrix mat on, into w->data. row is
     * a multiple of PI__TILE_ROWS, and so is n, save at the matrix's end. What this takes of the host, upload may take and
     * use too up to the first finish after reserve, which gives it back. */
    void (*weight_load)(pi__backend *be, const pi__weight *w, int64_t mat, int64_t row, int64_t n, const void *src);
    /* Bytes that one layer takes in one block; 0: not supported (head_dim, types). */
    size_t (*kv_bytes)(const pi__backend *be, int32_t type_k, int32_t type_v, int32_t n_head_kv, int32_t head_dim,
                       int32_t block_size);

    /* The same for a layer of rows of n values, n_rows a block. NULL: none are supported, nor are the ops that use them. */
    size_t (*row_bytes)(const pi__backend *be, int32_t type, int32_t n, int32_t n_rows);

    /* Bytes that a delta-net layer takes in a slot and in a snapshot; 0: not supported. */
    size_t (*state_bytes)(const pi__backend *be, const pi__state_layer *st);
    size_t (*snapshot_bytes)(const pi__backend *be, const pi__state_layer *st);

    /* Working memory of the ops themselves. */
    size_t (*scratch_bytes)(const pi__backend *be, const pi__limits *lim);
    int (*reserve)(pi__backend *be, const pi__limits *lim, pi_error *err);

    /* Brackets of a step of a kind PI__STEP_*. begin returns the batch that the step's ops are to be given, valid until
     * the next begin: b; or b with sequences of padding behind its own (position and slots -1, seq_len 0), whose rows
     * mean nothing; or, of the kinds that can be captured, NULL: a captured step is replayed, and none of its ops is called.
     * finish: PI_OK, PI_EDEVICE, or PI_ENOMEM; also after copies outside of a step, and in the midst of one of another kind. */
    const pi__batch *(*begin)(pi__backend *be, const pi__batch *b, int kind);
    int (*finish)(pi__backend *be, pi_error *err);
    /* Both or NULL: of devices on which a step can begin before the last one is finished. mark ends a step whose topk found one
     * value in each of n_rows rows, as many as it has or less, or that drew one: these results are copied to `found`, [n_rows, 3] of
     * host_alloc, and behind that is mark i, 0 or 1; n_rows 0: it has found nothing, or nobody wants it. wait returns when the device has
     * come to it, with what finish would tell of the step, whatever is queued behind. */
    void (*mark)(pi__backend *be, int i, uint64_t *found, int32_t n_rows);
    int (*wait)(pi__backend *be, int i, pi_error *err);
    /* Of such devices, or NULL: from what topk finds in the logits rows of the step that begins next, as its batch asks, the
     * device draws a token each, and what was found stays there. What is in draws is read by begin. */
    void (*draw)(pi__backend *be, const pi__draws *draws);
    /* Of devices with mark that have graph segments: a step that goes through several can begin before the last one is finished,
     * too. What is queued from now on waits for all that `first`, of the same kind, was given up to now. And of the step of kind
     * SEGMENTS that begins next the tokens are those of kind FED, of results at found, which another device's mark brings there. */
    void (*follow)(pi__backend *be, pi__backend *first);
    void (*feed)(pi__backend *be, const uint64_t *found, int32_t n_rows);
    /* true: op topk can run on the rows that the last op wrote. NULL: it never can, rows have to come to the host. */
    bool (*topk_here)(const pi__backend *be);
    /* Op linear looks at what of rows of logits is wanted (pi__best_rows). */
    bool best_rows;

    /* ---- several devices that work as one (tensor.c) */

    /* Joins n backends, all of this kind. PI_EUNSUPPORTED: they cannot be. */
    int (*join)(pi__link **out, pi__backend *const *be, int32_t n, pi_error *err);
    /* What begin will make of a step of a kind that can be captured, the same on all devices: *n_seqs of the batch, padding
     * included, or true: it replays, and returns NULL; of kind SEGMENTS, it has the graphs of all segments that such steps
     * had. NULL, as are the next three, where no steps are captured. */
    bool (*graph_lookup)(pi__backend *be, const pi__batch *b, int kind, int32_t *n_seqs);
    /* In a step of kind SEGMENTS a graph segment begins, which end_capture or finish ends. What is called in the n-th
     * segment, copies to and from memory of host_alloc included, is the same in all steps with as many sequences and
     * tokens. So it may be replayed now: what its uploads read has to be there. */
    void (*graph_segment)(pi__backend *be);
    /* All ops of the step have been called: where they were captured, that ends and they are made into a graph, which takes
     * memory, may wait for devices, and is why no device may wait for another then: all make theirs before end_capture
     * of any. false: something failed. */
    bool (*make_graph)(pi__backend *be);
    /* All ops of the step, or of its segment, have been called: where they were captured, that ends, and they are
     * replayed. false: something failed, which finish tells, and others would wait for what was not queued. */
    bool (*end_capture)(pi__backend *be);
    /* Drops all captured graphs, and the one being captured: a link can only go when nothing refers to it. */
    void (*graph_reset)(pi__backend *be);
    bool moe_shards; /* op moe knows pi__moe_shard */
    bool experts_layer; /* it has that op */
    bool chains;     /* a step of kind CHAINED can begin before the last one is finished */
} pi__device_fns;

struct pi__backend {
    const pi__device_fns *dev; /* memory, copies, steps */
    const pi__op_fns *ops;     /* what it computes */
    const pi__log *trace;      /* gets a line for each op (trace.c), or NULL */
    struct pi__profile *profile; /* of times op by op (profile.h), or NULL */
    size_t page;     /* bytes, a power of two: weights lie in an arena; 0: in memory of alloc */
    bool exports;    /* other processes can map memory of arenas (arena_share) */
    bool discrete;   /* the host cannot read memory of alloc: it uploads and downloads */
    bool rounds_mxfp4; /* multiplies MXFP4 matrices with activations in 8 bits */
    bool integrated; /* of those: memory of alloc is the host's own, a copy in host memory wins nothing */
    uint64_t n_attended, n_possible; /* key blocks of query blocks, by kv head: attended to, and all there were */
    int32_t n_ranks; /* devices that it is (tensor parallelism), 0 or 1: one. Of several, each has memory of alloc, and in
                      * arenas, and what lies in it differs: uploads go to all, downloads are of the first */
    struct pi__backend *at[PI__N_PLACEMENTS]; /* of several that act as one (split.c, stages.c), each of them; NULL: it is one */
    int32_t n_stages; /* of a pipeline (stages.c): at[i] has some of the layers; 0: it is none */
};

/* A line of the op's operands to be->trace at PI_LOG_DEBUG; the op was called, and what it reads stays. */
void pi__trace_op(const pi__backend *be, pi__op_id id, const pi__batch *b, const void *args);
/* An op is about to be called; it was called: to be->profile. */
void pi__profile_before(const pi__backend *be);
void pi__profile_op(const pi__backend *be, pi__op_id id, const pi__batch *b, const void *args);
/* In checked builds: each operand lies in one buffer, and rows do not overlap. */
#ifdef PI_CHECKED
void pi__check_op(pi__op_id id, const pi__batch *b, const void *args);
#define PI__CHECK_OP(id, b, args) pi__check_op(id, b, args)
#else
#define PI__CHECK_OP(id, b, args) ((void) 0)
#endif
/* pi__op_NAME(be, b, a): runs an op. */
#define PI__OP_CALL(name, type)                                                                                         \
    static inline void pi__op_##name(pi__backend *be, const pi__batch *b, const type *a)                                \
    {                                                                                                                   \
        PI__CHECK_OP(PI__OP_##name, b, a);                                                                              \
        if (be->profile) pi__profile_before(be);                                                                        \
        be->ops->name(be, b, a);                                                                                        \
        if (be->profile) pi__profile_op(be, PI__OP_##name, b, a);                                                       \
        if (be->trace) pi__trace_op(be, PI__OP_##name, b, a);                                                           \
    }
PI__OPS(PI__OP_CALL)
#undef PI__OP_CALL

/* The backend that allocates, loads and measures what has this placement. */
static inline pi__backend *pi__backend_at(pi__backend *be, int32_t placement)
{
    return placement < PI__N_PLACEMENTS && be->at[placement] ? be->at[placement] : be;
}

/* How many there are of them. */
static inline int32_t pi__n_places(const pi__backend *be)
{
    return be->n_stages ? be->n_stages : be->at[PI__AT_CPU] ? PI__AT_CPU + 1 : 1;
}

/* Where what no rule places is: with the last stage, which is where drafters find what they read. */
static inline int32_t pi__usual_place(const pi__backend *be) { return be->n_stages ? be->n_stages - 1 : PI__AT_DEVICE; }

/* Description of a device, without using it. */
typedef struct pi__device_info {
    char desc[96];   /* "NVIDIA H200, sm_90" */
    char lacks[256]; /* what it cannot run, or why it cannot be used; "": nothing */
    uint64_t memory; /* bytes, 0: not known */
    bool usable;     /* create() can be expected to succeed */
} pi__device_info;

/* Products of packed matrices: exact (activations in 15 bits), W16 (weights and activations in 16-bit floats), or what is
 * fastest among those with no more error than is usual (kernels/w16.cuh). Attention rounds queries to f16 save with the exact. */
enum { PI__MATMUL_AUTO, PI__MATMUL_EXACT, PI__MATMUL_W16 };

/* Products of NVFP4 and MXFP4 matrices by FP4 tensor cores: not (OFF: as others; W4A16: in 16-bit floats), with activations
 * in the matrix's own format, or (MXFP4, others as W4A16) in 8 bits. AUTO: with MATMUL_AUTO MXFP4 in 8 bits; all else as OFF.
 * Devices that work as one multiply alike: AUTO is OFF for some of which not all do that, and for processes (devices.c). */
enum { PI__FP4_AUTO, PI__FP4_OFF, PI__FP4_W4A4, PI__FP4_W4A8, PI__FP4_W4A16 };

/* Parameters of devices; the last six are of GPUs. */
typedef struct pi__cpu_params {
    int32_t n_threads; /* 0: as many as there are cores the process may use */
    int32_t n_batch;   /* the same of steps with tokens of prompts; 0: as n_threads */
    int strict, numa, prio; /* of pi__pool_config */
    uint64_t affinity; /* bit per core the threads are pinned to; 0: not pinned */
    int32_t poll;      /* 0..100: how long idle threads spin before they sleep; 50 by default */
    const char *isa;   /* "" or "auto", "avx512", "avx2", "neon", "generic": at most this */
    bool act8;         /* activations that quantised matrices are multiplied with in 8 bits, not 15 */
    int matmul;        /* CUDA: how matrices of packed formats are multiplied, PI__MATMUL_*; the CPU's way is exact */
    int fp4;           /* CUDA: how FP4 matrices are multiplied, where the device has instructions for it, PI__FP4_* */
    bool blas;         /* CUDA: F16 and BF16 matrices times many rows by cuBLAS, where it is installed */
    bool no_graphs;    /* CUDA: decode steps are not captured as graphs */
    bool no_fuse;      /* CUDA: every op has launches of its own */
    bool exports;      /* CUDA: weights are to be shared with other processes: they lie in arenas wherever they can */
} pi__cpu_params;
/* PI_EUNSUPPORTED: the isa asked for is not there. */
int pi__cpu_create(pi__backend **out, const pi__cpu_params *p, const pi__log *log, pi_error *err);
bool pi__cpu_tell(int32_t index, pi__device_info *out);

/* Devices of this build (devices.c), the best first. */
typedef struct pi__device {
    const char *name; /* as the option "device" has it */
    int (*create)(pi__backend **out, int32_t index, const pi__cpu_params *p, const pi__log *log, pi_error *err);
    /* Describes the index-th of its kind. false: there is none, save the first, of which it says why. */
    bool (*tell)(int32_t index, pi__device_info *out);
} pi__device;
extern const pi__device pi__devices[]; /* ends with the CPU, which every build has and which always starts */
extern const int pi__n_devices;
enum { PI__MAX_DEVICES = 16 }; /* that work together: */
enum { PI__SPLIT_NONE, PI__SPLIT_TENSOR /* tensor.h */, PI__SPLIT_LAYER /* stages.h */ };
/* Parses a list of devices: "cuda", "cuda1", "cuda0,cuda1"; a name without a number is the next of its kind. "", "auto"
 * (the best) and "none" (the CPU) are names too. Returns how many, 0: some are not in this build. */
int pi__devices_named(const char *names, const pi__device *dev[PI__MAX_DEVICES], int32_t index[PI__MAX_DEVICES]);
/* Creates the device; with "auto" the first one that starts. split: all that are named, or all there are of the one kind
 * named, as one backend, PI__SPLIT_*. */
int pi__device_create(pi__backend **out, const char *names, int split, const pi__cpu_params *p, const pi__log *log,
                      pi_error *err);

#endif
