/* The device interface of a backend: memory, copies, weight upload and step control. ops.h has the compute ops.
 *
 * A backend owns device memory and runs coarse ops in program order. On the CPU an op is done when it returns; on a GPU
 * the op is queued, and finish() waits for it. Ops return no status: the backend remembers the first device error until
 * finish() returns it. Ops do not allocate; reserve() has allocated all scratch memory.
 *
 * One thread at a time may use a backend: the thread that opens the engine, then the engine's step thread. */
#ifndef PI__DEVICE_H
#define PI__DEVICE_H

#include "backend/draw.h"
#include "backend/ops.h"
#include "base/hash.h"
#include "base/log.h"
#include "pagedinfer.h"

/* Upper bounds of the steps and of the model of one engine, from which a backend sizes its scratch memory. */
typedef struct pi__limits {
    int32_t max_tokens;   /* tokens per step */
    int32_t max_seqs;     /* sequences per step */
    int32_t max_rows;     /* logits rows computed in one pass, at most PI__MAX_ROWS */
    int32_t max_ctx;      /* tokens of one sequence */
    int64_t max_n_in;     /* columns of any matrix */
    int64_t max_n_out;    /* rows of any matrix */
    int64_t n_vocab;      /* values per logits row */
    int32_t max_n_head;   /* query heads */
    int32_t max_head_dim; /* values per head */
    int32_t max_expert;   /* experts per layer; 0 = the model has no experts */
    int32_t max_used;     /* experts per token */
    int64_t max_in_exp;   /* columns of an expert's gate and up, which are the rows of its down */
    int64_t max_ff_exp;   /* rows of an expert's gate plus rows of its up */
    int64_t max_order;    /* rows of a clustered lm_head (op centroid_head); 0 = the op is not used */
    int32_t max_pick;     /* max clusters of that lm_head that are multiplied per logits row */
    pi__state_layer state; /* delta-net layers, the largest value of each field; dim 0 = none */
    int32_t max_row;      /* values of a cache row that op sparse reads; 0 = op sparse is not used */
    int64_t max_stream;   /* values of one residual stream (hyper-connections); 0 = the model has none */
    /* Op head_linear: number of matrices, and the largest columns and rows of one; 0 = the op is not used. */
    int32_t n_head_mat;
    int64_t head_in, head_out;
    int32_t indexer_head, indexer_dim; /* heads and values per head of op indexer; 0 = the op is not used */
    int32_t indexer_ratio; /* tokens per entry of op indexer, the smallest of all layers */
    int32_t key_blocks;   /* key blocks per sequence with sparse prefill; 0 = no sparse prefill */
    int32_t sparse_heads; /* KV heads of a layer with sparse prefill */
} pi__limits;

/* Step kinds: properties of a step that the caller guarantees. All kinds except ANY and SEGMENTS can be captured as one
 * graph. */
enum {
    /* Prefill, or prefill mixed with decode. Nothing is known in advance. */
    PI__STEP_ANY,
    /* Decode. Every sequence has the same number of tokens (one, plus drafts), and each token has a logits row.
     * The step takes no state snapshots. Its ops are the model's graph, the first logits rows and, if the batch
     * requests it, topk of these rows, always at the same addresses. So a captured step can be replayed for any
     * batch of the same shape and requests. The step reads nothing that earlier ops wrote, except caches and
     * states. */
    PI__STEP_DECODE,
    /* The kinds up to CHAINED are drafter steps with pi__batch.hidden_row; they can be captured like DECODE. */

    /* One token per sequence, with a logits row. hidden_row[t] = row of the hidden states of the target's last step, or
     * of the drafter's last BLOCK step. */
    PI__STEP_DRAFT,
    /* Like DRAFT, but hidden_row[t] = row of the hidden states of the drafter's last step. */
    PI__STEP_DRAFT_NEXT,
    /* Fills only the drafter's cache: no logits rows, the same number of tokens in every sequence. */
    PI__STEP_CATCH_UP,
    /* DRAFT_NEXT with token ids from the device: token t is the best value of row hidden_row[t] in the last step, or
     * 0 if that row has none. The batch's ids are ignored. The last step's topk must have requested one value in each
     * row. Used only if opt->chains. */
    PI__STEP_CHAINED,
    /* The kinds up to INJECT are steps of drafters that run a model; the ops on the logits rows belong to the step.
     * Every sequence has the same number of tokens and the same number of logits rows, at any of its tokens. */

    PI__STEP_MODEL,    /* a separate draft model */
    PI__STEP_EXIT,     /* early exit: the first layers of the target */
    PI__STEP_BLOCK,    /* a block drafter */
    /* Like BLOCK, without logits rows, at most 128 tokens. hidden_row[t] = row of the hidden states that the target has
     * kept for the drafter. */
    PI__STEP_INJECT,
    /* DECODE with one token per sequence and token ids from the device: token t is the result of row hidden_row[t] in
     * the last step, or 0 if that row has none. The batch's ids are ignored. The last step must have been DECODE or
     * FED, and must have requested one value, or drawn a token, in each row. Used only if opt->mark. */
    PI__STEP_FED,
    /* A DECODE step with some ops on the CPU or on other stages; the device computes only the rest. The device's
     * work is captured in segments, see graph_segment. A backend sees either DECODE or SEGMENTS steps, never both. */
    PI__STEP_SEGMENTS,
};

typedef struct pi__backend pi__backend;
typedef struct pi__link pi__link;   /* all-gather between devices (link.h) */

/* The functions that each device backend has to provide; pi__device_check checks them when a device is created.
 * Backends that combine others (split.c, stages.c) leave out commit, trim and the functions for weights, caches and
 * states, which are called on their parts (pi__backend_at). Calls come from the one thread that uses the backend. A
 * function without a result reports errors through finish(). */
typedef struct pi__device_fns {
    /* Frees the backend. No step is in flight. */
    void (*destroy)(pi__backend *be);
    /* Returns the name for logs and errors, for example "cpu (avx512-vnni)"; valid while the backend lives. */
    const char *(*describe)(const pi__backend *be);
    /* Returns the number of host threads that compute ops; 1 for a GPU. */
    int32_t (*n_threads)(const pi__backend *be);

    /* ---- memory */

    /* Allocates device memory, zeroed and aligned to at least 64 bytes. Returns NULL if out of memory. free gets the
     * same size. */
    void *(*alloc)(pi__backend *be, size_t size);
    void (*free)(pi__backend *be, void *p, size_t size);
    /* The system may back memory of alloc only at its first write. commit backs p..p + size now. trim returns its
     * physical pages to the system: the contents are lost, and the next read sees zeros or garbage. Both may do
     * nothing. */
    void (*commit)(pi__backend *be, void *p, size_t size);
    void (*trim)(pi__backend *be, void *p, size_t size);
    /* Allocates host memory that is the fastest destination of downloads. Returns NULL if out of memory. */
    void *(*host_alloc)(pi__backend *be, size_t size);
    void (*host_free)(pi__backend *be, void *p, size_t size);

    /* ---- copies */

    /* Copy to and from the device, in order with the ops. src may be changed after upload returns; dst is valid after
     * finish(). */
    void (*upload)(pi__backend *be, void *dst, const void *src, size_t n);
    void (*download)(pi__backend *be, void *dst, const void *src, size_t n);

    /* ---- weights, caches and states */

    /* Fills in w->layout and returns the bytes of the matrix in that layout; 0 = unsupported type. */
    size_t (*weight_size)(const pi__backend *be, pi__weight *w);
    /* Converts n rows of matrix `mat` of the file, from row `row` on, to the backend's layout in w->data. src has these
     * rows, pi__row_size bytes each. row and n are multiples of PI__TILE_ROWS, except that the last rows of the matrix
     * may be fewer. weight_load and upload share buffers and threads on the host; the first finish() after reserve()
     * frees them. */
    void (*weight_load)(pi__backend *be, const pi__weight *w, int64_t mat, int64_t row, int64_t n, const void *src);
    /* Returns the bytes of one layer's keys and values in one block; 0 = unsupported head_dim or cache type. */
    size_t (*kv_bytes)(const pi__backend *be, int32_t type_k, int32_t type_v, int32_t n_head_kv, int32_t head_dim,
                       int32_t block_size);
    /* Return the bytes of a delta-net layer's state in a slot, and in a snapshot; 0 = unsupported shape. */
    size_t (*state_bytes)(const pi__backend *be, const pi__state_layer *st);
    size_t (*snapshot_bytes)(const pi__backend *be, const pi__state_layer *st);

    /* ---- steps */

    /* scratch_bytes returns the size of the scratch memory that ops need within these limits. reserve allocates it and
     * frees the scratch of an earlier call; returns PI_OK or an error code, for example PI_ENOMEM. No step is in
     * flight. */
    size_t (*scratch_bytes)(const pi__backend *be, const pi__limits *lim);
    int (*reserve)(pi__backend *be, const pi__limits *lim, pi_error *err);
    /* begin starts a step of kind PI__STEP_* for the tokens of b. The step's ops have to use the returned batch, valid
     * until the next begin. This is b, or a copy of b with padding sequences after its own (position and slots -1,
     * seq_len 0); rows of padding are undefined. For kinds that can be captured, begin may return NULL: then it replays
     * a captured step, and the caller calls none of the step's ops.
     *
     * finish waits for all queued work and returns PI_OK, PI_EDEVICE or PI_ENOMEM. The caller may also call finish
     * after copies outside a step, and in the middle of a step of kind ANY or SEGMENTS. */
    const pi__batch *(*begin)(pi__backend *be, const pi__batch *b, int kind);
    int (*finish)(pi__backend *be, pi_error *err);
} pi__device_fns;

/* The functions and facts that a device backend may leave out: NULL or false = the backend lacks the feature. A
 * group is provided as a whole or not at all; pi__device_check checks this. Threads and errors are as for
 * pi__device_fns, unless a comment says otherwise. */
typedef struct pi__device_opt {
    /* ---- single functions */

    /* Returns the bytes that alloc can still provide; 0 = unknown, or an error. NULL = the system's memory is the
     * only limit. */
    uint64_t (*free_memory)(pi__backend *be);
    /* Like alloc, for weights: memory that is loaded faster, if the device has such memory. free() frees it. NULL =
     * alloc. */
    void *(*weights_alloc)(pi__backend *be, size_t size);
    /* Writes names of the backend's devices to out. A name is the same in every process, for example "GPU-4f0e...".
     * NULL = all devices of this kind are interchangeable. */
    void (*identify)(const pi__backend *be, char *out, size_t size);
    /* Returns the bytes of one layer's rows (n values each, n_rows per block) in one block; 0 = unsupported. NULL =
     * the backend supports neither caches of rows nor the ops that use them. */
    size_t (*row_bytes)(const pi__backend *be, int32_t type, int32_t n, int32_t n_rows);
    /* Returns true if op topk can run on the rows that the last op wrote. False or NULL = the host samples from a copy
     * of the rows. */
    bool (*topk_here)(const pi__backend *be);

    /* ---- arenas: this group is required if `pi__backend.page` is not 0 */

    /* An arena is a reserved address range, a multiple of the page, in which tensors are mapped and unmapped one by
     * one.
     *   arena_alloc   reserves addresses without memory; NULL = no address space left
     *   arena_map     maps zeroed memory at p..p + size, whole pages of the arena; false = out of memory
     *   arena_unmap   unmaps exactly the range of one arena_map, arena_share or arena_adopt call
     *   arena_free    releases the addresses; the caller has unmapped everything in the arena */
    void *(*arena_alloc)(pi__backend *be, size_t size);
    void (*arena_free)(pi__backend *be, void *arena, size_t size);
    bool (*arena_map)(pi__backend *be, void *p, size_t size);
    void (*arena_unmap)(pi__backend *be, void *p, size_t size);

    /* ---- copies of experts: this group is optional, and requires arenas */

    /* Matrices of experts in host memory, with copies of some of them in device memory (pi__weight.n_slot). Such a
     * tensor has two parts in the arena: whole pages of host memory, and then whole pages of device memory.
     *   arena_map_host  like arena_map, with pinned host memory that the device reads
     *   slots_bytes     returns the bytes of the second part: the copies, and the backend's tables. They are zero at
     *                   first. 0 = the backend cannot read these matrices from host memory */
    bool (*arena_map_host)(pi__backend *be, void *p, size_t size);
    size_t (*slots_bytes)(const pi__backend *be, const pi__weight *w);

    /* ---- shared arenas: this group is required if `pi__backend.exports` is set */

    /* Share arena memory with other processes of the machine. arena_share maps memory like arena_map and exports it: fd
     * receives one descriptor per device of be. The caller closes them; each is -1 after an error. arena_share stores
     * `mark` in the last 16 bytes of the memory. arena_adopt maps the memory of these descriptors, read-only, and
     * refuses memory with another mark. Both return PI_OK or an error code. */
    int (*arena_share)(pi__backend *be, void *p, size_t size, const pi__digest *mark, int *fd, pi_error *err);
    int (*arena_adopt)(pi__backend *be, void *p, size_t size, const pi__digest *mark, const int *fd, pi_error *err);

    /* ---- background copies, for the host tier of discrete devices */

    /* copy_out copies n bytes from device to host memory, copy_in from host to device memory, both in the background:
     * steps do not wait for them. A copy starts after all work that was queued before it. Both return the copy's
     * number, counted from 1 in the order of completion; 0 = the copy was not queued. The host memory must be
     * pinned. If the backend is several devices, each copies n bytes; host holds their parts in rank order. */
    uint64_t (*copy_out)(pi__backend *be, void *host, const void *src, size_t n);
    uint64_t (*copy_in)(pi__backend *be, void *dst, const void *host, size_t n);
    /* Sets *ended to the number of the last completed copy. wait: waits for all copies first. Returns false if a copy
     * failed; later copies then do not complete either. */
    bool (*copies)(pi__backend *be, bool wait, uint64_t *ended);
    /* Pins whole pages of host memory, as copy_out and copy_in require. Any thread. Returns false on failure. */
    bool (*pin)(pi__backend *be, void *host, size_t n);
    void (*unpin)(pi__backend *be, void *host, size_t n);

    /* ---- lookahead: the next step may begin before the last one has finished (kind FED) */

    /* mark ends a step with a topk that found one value, or drew one token, in each of n_rows rows (at most the step's
     * logits rows). It queues a copy of these results to `found`, [n_rows, 3] words as in pi__topk.out, in memory of
     * host_alloc. Then it queues mark i (0 or 1). n_rows 0 = no results are copied.
     *
     * wait blocks until the device reaches mark i, regardless of work queued after it. It returns the step's error as
     * finish would. */
    void (*mark)(pi__backend *be, int i, uint64_t *found, int32_t n_rows);
    int (*wait)(pi__backend *be, int i, pi_error *err);
    /* Optional even if mark and wait exist; requires them. The device draws one token per logits row of the next step,
     * from the results of the topk that the step's batch requests. topk's results then stay on the device. begin reads
     * the arrays of draws. */
    void (*draw)(pi__backend *be, const pi__draws *draws);

    /* ---- lookahead of pipelines of several devices; requires mark, draw and graph_segment */

    /* follow: work queued on be from now on waits for all work queued on `first` up to now. `first` is a backend of the
     * same kind. feed: the SEGMENTS step that begins next takes its token ids from `found`, as kind FED does from the
     * last step. Another device's mark writes `found`. */
    void (*follow)(pi__backend *be, pi__backend *first);
    void (*feed)(pi__backend *be, const uint64_t *found, int32_t n_rows);

    /* ---- several devices that act as one tensor-parallel backend (tensor.c) */

    /* Creates the link between n backends of this kind. Returns PI_EUNSUPPORTED if they cannot be linked. NULL =
     * this kind of backend cannot be linked. */
    int (*join)(pi__link **out, pi__backend *const *be, int32_t n, pi_error *err);

    /* ---- graphs: captured steps */

    /* Predicts the result of begin for a step of a kind that can be captured. True = begin will replay the step and
     * return NULL; for kind SEGMENTS, the graphs of all its segments exist. *n_seqs receives the number of sequences in
     * the batch that begin will return, padding included. Devices that are given the same steps return the same. */
    bool (*graph_lookup)(pi__backend *be, const pi__batch *b, int kind, int32_t *n_seqs);
    /* Begins a graph segment in a step of kind SEGMENTS; end_capture or finish ends it. The calls in the n-th segment
     * must be the same in all steps with the same number of sequences and tokens. This includes copies to and from
     * memory of host_alloc. So the backend may replay the segment at this call: the data that its uploads read must be
     * ready. */
    void (*graph_segment)(pi__backend *be);
    /* Called after all ops of the step: ends the capture and instantiates its graph, without replaying it. This takes
     * memory and may wait for other devices. So all devices that act as one make their graphs before any calls
     * end_capture: no device may wait for another one meanwhile. Returns false on failure. */
    bool (*make_graph)(pi__backend *be);
    /* Called after all ops of the step or segment: ends the capture, unless make_graph has done so, and replays the
     * graph. Returns false on failure: finish returns the error, and the other devices must not wait for this one. */
    bool (*end_capture)(pi__backend *be);
    /* Drops all captured graphs and a capture in progress. Called before a link is destroyed, as graphs refer to
     * it. */
    void (*graph_reset)(pi__backend *be);

    /* ---- facts */

    bool best_rows;  /* op linear honours pi__best_rows */
    bool moe_shards; /* op moe supports pi__moe_shard */
    bool chains;     /* a CHAINED step can begin before the last step has finished */
} pi__device_opt;

struct pi__backend {
    const pi__device_fns *dev; /* memory, copies, weights, steps */
    const pi__device_opt *opt; /* optional functions, never NULL */
    const pi__op_fns *ops;     /* the compute ops */
    const pi__log *trace;      /* log that receives one line per op (trace.c); NULL = no trace */
    struct pi__profile *profile; /* time per op (profile.h); NULL = no profile */
    /* arena page in bytes, a power of two: weights lie in an arena; 0 = weights lie in memory of alloc */
    size_t page;
    bool exports;    /* other processes can map arena memory (arena_share) */
    bool discrete;   /* the host cannot read memory of alloc; it uploads and downloads */
    bool rounds_mxfp4; /* multiplies MXFP4 matrices by 8-bit activations */
    bool integrated; /* discrete, but alloc uses the host's own memory: offloading to host memory saves nothing */
    /* Counters of sparse prefill: (key block, query block, KV head) triples attended to, and all possible ones. */
    uint64_t n_attended, n_possible;
    /* Devices of a tensor-parallel backend; 0 or 1 = one device. With several, each has memory of alloc and of
     * arenas, with its own contents: uploads go to all devices, downloads come from the first. */
    int32_t n_ranks;
    /* The parts of a backend that combines several (split.c, stages.c), by placement; NULL = this backend is not
     * combined. */
    struct pi__backend *at[PI__N_PLACEMENTS];
    int32_t n_stages; /* pipeline stages (stages.c), each with some of the layers in at[i]; 0 = not a pipeline */
};

/* Logs one line with the op's operands to be->trace at PI_LOG_DEBUG. Called after the op, while its inputs are still
 * valid. */
void pi__trace_op(const pi__backend *be, pi__op_id id, const pi__batch *b, const void *args);
/* Record the profile (profile.h). pi__profile_before ends the time between ops; pi__profile_op adds the op's time,
 * bytes and products. */
void pi__profile_before(const pi__backend *be);
void pi__profile_op(const pi__backend *be, pi__op_id id, const pi__batch *b, const void *args);
/* In checked builds: asserts that each operand lies in one buffer and that its rows do not overlap. */
#ifdef PI_CHECKED
void pi__check_op(pi__op_id id, const pi__batch *b, const void *args);
#define PI__CHECK_OP(id, b, args) pi__check_op(id, b, args)
#else
#define PI__CHECK_OP(id, b, args) ((void) 0)
#endif
/* pi__op_NAME(be, b, a) runs an op. */
#define PI__OP_CALL(name, type)                                                                                        \
    static inline void pi__op_##name(pi__backend *be, const pi__batch *b, const type *a)                               \
    {                                                                                                                  \
        PI__CHECK_OP(PI__OP_##name, b, a);                                                                             \
        if (be->profile) pi__profile_before(be);                                                                       \
        be->ops->name(be, b, a);                                                                                       \
        if (be->profile) pi__profile_op(be, PI__OP_##name, b, a);                                                      \
        if (be->trace) pi__trace_op(be, PI__OP_##name, b, a);                                                          \
    }
PI__OPS(PI__OP_CALL)
#undef PI__OP_CALL

/* Checks that a device backend provides all functions of dev, and the groups of opt as a whole. PI_EINTERNAL: the
 * backend is incomplete; err names the function. */
int pi__device_check(const pi__backend *be, pi_error *err);

/* Returns the backend that allocates, loads and sizes tensors of this placement. */
static inline pi__backend *pi__backend_at(pi__backend *be, int32_t placement)
{
    return placement < PI__N_PLACEMENTS && be->at[placement] ? be->at[placement] : be;
}

/* Returns the number of placements. */
static inline int32_t pi__n_placements(const pi__backend *be)
{
    return be->n_stages ? be->n_stages : be->at[PI__AT_CPU] ? PI__AT_CPU + 1 : 1;
}

/* Returns the placement of tensors that no placement rule covers: the device, or the last stage of a pipeline, where
 * drafters run. */
static inline int32_t pi__default_placement(const pi__backend *be)
{
    return be->n_stages ? be->n_stages - 1 : PI__AT_DEVICE;
}

/* Properties of a device, which are read without creating its backend. */
typedef struct pi__device_info {
    char desc[96];   /* "NVIDIA H200, sm_90" */
    char lacks[256]; /* features that it lacks, or the reason why it cannot be used; "" = nothing */
    uint64_t memory; /* bytes; 0 = unknown */
    bool usable;     /* create() is expected to succeed */
} pi__device_info;

/* Options of the CPU backend, which is in every build. */
typedef struct pi__cpu_params {
    int32_t n_threads; /* 0 = all cores that the process may use */
    int32_t n_batch;   /* threads for steps that compute more than the logits rows (prompts); 0 = n_threads */
    int strict, numa, prio; /* as in pi__pool_config */
    uint64_t affinity; /* one bit per core that threads are pinned to; 0 = not pinned */
    int32_t poll;      /* 0..100: time that idle threads spin before they sleep, in units of 40 us; default 50 */
    const char *isa;   /* highest instruction set to use: "" or "auto", "avx512", "avx2", "neon", "generic" */
    bool act8;         /* 8-bit activations for quantised matrices; false = 15-bit */
} pi__cpu_params;
/* Creates the CPU backend. Returns PI_EUNSUPPORTED if the CPU lacks the requested isa. */
int pi__cpu_create(pi__backend **out, const pi__cpu_params *p, const pi__log *log, pi_error *err);
/* Describes the CPU in *out. Returns false for an index other than 0. */
bool pi__cpu_tell(int32_t index, pi__device_info *out);

#endif
