/* The ops of model graphs: one struct of arguments per op, and the list of all ops.
 *
 * A graph calls pi__op_NAME(be, b, &(pi__NAME) {...}). A backend implements an op as one function of that
 * signature. The rest of the code needs only the op's row in the table of operands (operands.c): it names the
 * memory that the op reads and writes, and the placement of the op. Placement, sharding, padding, capture and
 * tracing are generic over that table.
 *
 * To add an op:
 *   1. its struct and its line in PI__OPS_ALL here; or in kernel_args.h and PI__OPS_ROWS, if kernels take the struct as
 *      it is (pi__cuda_NAME is then generated)
 *   2. its row in operands.c
 *   3. pi__cpu_NAME in a file of backend/cpu
 *   4. for CUDA, a kernel with its launch, and pi__cuda_NAME
 *   5. its case in valid_fields of tensor_check.c, for ranks
 *   6. its case in goes_by_tokens of stages.c, unless each row of its result depends on that row's inputs only
 *   7. its rows in tests/unit/test_operands.c; for CUDA a check in src/selftest (check_rows.cpp for rows) and a launch
 *      in tests/simt/launches.cpp
 *
 * Every op is batch-invariant (docs/design/overview.md, promises). A row of the result depends only on that row's
 * inputs. The order of its sums depends only on the row's own length, never on the number of rows, sequences,
 * threads or blocks. No op allocates.
 *
 * A backend may run an op later than its call, together with the ops after it (backend/cuda/plan.h). So matrices,
 * caches, states and host memory that the arguments point to stay valid until the step's finish(). A batch that begin()
 * did not return, and adapters that are not in its batch, are valid only during the call; so are all arguments of
 * devices that act as one.
 *
 * Shapes are row-major, slowest dimension first: [n_rows, n_in]. "ld" is the distance between rows in floats. An
 * op that has a batch works on the batch's tokens as rows. An op without one has n_rows in its struct; its batch
 * is NULL. */
#ifndef PI__OPS_H
#define PI__OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/kernel_args.h"

/* PI__MAX_GROUPS: cache groups per model. PI__LOAD_ROWS: loaders pass a multiple of this many rows to weight_load.
 * PI__TILE_ROWS: rows per packed tile. PI__USUAL_ROWS, PI__MAX_ROWS: bounds of the logits rows per pass. */
enum { PI__MAX_GROUPS = 8, PI__LOAD_ROWS = 64, PI__TILE_ROWS = 16, PI__USUAL_ROWS = 32, PI__MAX_ROWS = 256 };
/* Returns the number of logits rows per pass: `most`, clamped to [PI__USUAL_ROWS, PI__MAX_ROWS]. */
static inline int32_t pi__rows_per_pass(int64_t most)
{
    return most < PI__USUAL_ROWS ? PI__USUAL_ROWS : most < PI__MAX_ROWS ? (int32_t) most : PI__MAX_ROWS;
}
enum { PI__MAX_PICK = 2047 /* max clusters per row in op centroid_head */ };
/* Limits of op topk: excluded indices, values returned per row, values in a row. */
enum { PI__MAX_SKIP = 1024, PI__MAX_TOP = 256, PI__MAX_TOP_ROW = 1 << 20 };

/* Placement of matrices, caches and states: PI__AT_DEVICE, or PI__AT_CPU for the CPU of a split backend (split.c). In a
 * pipeline the placement is the index of a stage (see pi__backend.at). A backend that is not combined uses
 * PI__AT_DEVICE for everything. Activations and small vectors lie on all parts of a combined backend. PI__AT_BOTH: the
 * placement of model vectors that lie on all parts. PI__N_REGIONS: weights have one region per placement, and one for
 * PI__AT_BOTH. */
enum { PI__AT_DEVICE, PI__AT_CPU, PI__N_PLACEMENTS = 8, PI__AT_BOTH = PI__N_PLACEMENTS, PI__N_REGIONS };

/* A matrix in the device's own layout, y = W x; or n_mat stacked matrices of equal shape (experts). */
typedef struct pi__weight {
    int32_t type;       /* enum pi__type in the file */
    int32_t layout;     /* the backend's code for the memory layout of data; set by weight_size */
    int32_t placement;  /* PI__AT_*, or index of a pipeline stage */
    int64_t n_in;       /* columns; ne[0] in the file */
    int64_t n_out;      /* rows; ne[1] in the file */
    int64_t n_mat;      /* stacked matrices, ne[2] in the file; 1 for a plain matrix */
    void *data;         /* device memory in the weights region */
    size_t size;        /* bytes at data */
    const float *scale; /* [n_mat] factor of y for each matrix (NVFP4's second-level scale); NULL = 1 */
    /* Rows of each matrix that is fused in this one, in order (q, k, v or gate, up); 0 ends the list. */
    int64_t fused_rows[3];
    bool routed;        /* stacked experts: only op moe reads them */
    /* Experts with a copy in device memory; the stack itself is in host memory, which the device reads. The copies
     * follow the stack's pages. 0 = the stack is in the backend's own memory. */
    int32_t n_slot;
    bool whole;         /* replicated: never sharded over several devices */
    /* Number of KV heads that the rows are divided by (rows of q: by the KV heads that they query). Only qkv,
     * gather_rows and attention read the result, so it may stay sharded by heads. 0 = any op may read the result. */
    int32_t n_head;
    int32_t target;     /* index of this matrix among the adapter targets, from 1; 0 = it cannot have an adapter */
} pi__weight;

/* The blocks and slots of one cache group in one step. Host memory, valid until the step's finish(). */
typedef struct pi__kv_batch {
    int32_t block_size;         /* tokens per block: 16, 32 or 64; also 128 for layers of rows */
    int32_t table_stride;       /* entries per row of block_table */
    /* [n_seqs, table_stride] entry i of a row: id of the sequence's block with tokens from i * block_size on; -1 = the
     * block left the attention window and was freed. */
    const int32_t *block_table;
    /* [n_tokens] slot that each token's K and V are written to: block id * block_size + offset */
    const int32_t *slot;
} pi__kv_batch;

/* A sampler's request for one logits row. */
typedef struct pi__topk_request {
    int32_t k;      /* number of largest values to return, at most PI__MAX_TOP; 0 = none */
    int32_t n_skip; /* the first n_skip indices of pi__topk.skip are excluded from this row */
    int32_t sum;    /* nonzero: also return the sum of exp(x - max) */
} pi__topk_request;

/* The requests that op topk will serve for a step's logits rows, if they are known when the step begins. A captured
 * step includes them. */
typedef struct pi__step_top {
    /* [n_rows]; NULL = no requests, or op topk brings its own. Padding rows have no request. */
    const pi__topk_request *request;
    const int32_t *skip; /* [n_skip] as in pi__topk */
    int32_t n_skip;
    int32_t k;           /* values per row in pi__topk.out: at least the largest request[r].k */
    bool sum;            /* some row requests its sum */
} pi__step_top;

/* The tokens of a step, split into runs. A run is one query block of sparse prefill (PI__SPARSE_BLOCK), or adjacent
 * tokens of one sequence that are in no query block. */
typedef struct pi__runs {
    int32_t n;                /* runs; 0 = the step has no query block, and the arrays are not set */
    int32_t n_blocks;         /* query blocks */
    /* [n + 1] token index in the batch where each run starts; start[n] is the end of the last run */
    const int32_t *start;
    const int32_t *seq;       /* [n] each run's sequence index in the batch */
    /* [n] number of the query block, counted from 0 in the order of runs; -1 = not a query block */
    const int32_t *block;
} pi__runs;
/* Returns an upper bound of the number of runs in a step: the query blocks of one sequence are adjacent. */
static inline int32_t pi__max_runs(int32_t n_seqs, int32_t n_tokens)
{
    return 2 * n_seqs + n_tokens / PI__SPARSE_BLOCK;
}

/* Rows of a batch that use one adapter at one scale. */
typedef struct pi__lora_run {
    const pi__lora_pair *pair; /* [last target + 1] pairs in device memory, indexed by pi__weight.target */
    /* [last target + 1] host copy of the pairs' ranks, same index; rank[0] is the number of the last target instead */
    const int32_t *rank;
    float scale;
    int32_t level;             /* position of the adapter in the sequence's list of adapters, from 0 */
    int32_t first, n;          /* the rows are pi__lora_rows.row[first] to row[first + n - 1] */
    /* used in lists of runs that a backend makes for stacked experts: the run's expert; else 0 */
    int32_t expert;
} pi__lora_run;

/* The rows of one batch (the step's, or its logits batch) that have adapters. Runs are sorted by level; within a level
 * a row is in at most one run. The results of several adapters are added to a row in the order of levels. Host memory,
 * valid until the step's finish(). */
typedef struct pi__lora_rows {
    const pi__lora_run *run; /* [n_runs] */
    const int32_t *row;      /* [n] row indices in that batch, run by run, ascending within a run */
    int32_t n_runs, n;       /* 0 = no row has an adapter */
    uint64_t no;             /* id of this list of runs, never reused, so that results can be cached; 0 = no id */
} pi__lora_rows;

/* The tokens of one step. The tokens of a sequence are adjacent and ascending in position. */
typedef struct pi__batch {
    int32_t n_tokens;         /* total tokens */
    int32_t n_seqs;           /* sequences */
    int32_t n_rows;           /* logits rows: tokens that need logits */
    int32_t n_groups;         /* cache groups */
    const int32_t *token;     /* [n_tokens] ids */
    const int32_t *pos;       /* [n_tokens] positions */
    const int32_t *seq;       /* [n_tokens] sequence index */
    const int32_t *seq_start; /* [n_seqs + 1] first token of each sequence */
    const int32_t *seq_len;   /* [n_seqs] tokens in the cache after this step: last position + 1 */
    const int32_t *logits_indices; /* [n_rows] token index of each logits row, ascending */
    /* With a sharded embedding, [n_tokens] row of this rank's shard; any row for a token of another shard. NULL =
     * the row is the token id. */
    const int32_t *embd_row;
    /* With a sharded embedding, [n_tokens] row of the all-gathered result; else NULL. */
    const int32_t *owner;
    /* Drafter steps: [n_tokens] row of the hidden state that belongs to each token, see pi__arch.draft; -1 =
     * zeros. Steps of kind FED (device.h): a logits row. Else NULL. */
    const int32_t *hidden_row;
    /* [n_tokens, 3] rotary positions of each token (time, row, column), for models with M-RoPE (pi__rope.section).
     * NULL = all three are the token's position. Not set in logits_batch. */
    const int32_t *rope_pos;
    /* [n_tokens] position of the last key in this step that each token may see in addition to causal attention
     * (pi__attention.spans); not above the sequence's last position, ascending within a sequence. NULL = none. */
    const int32_t *see_to;
    /* [n_tokens] row of pi__model.image_rows for each token, for op place_rows; -1 = the token has its own embedding.
     * NULL = no token has such a row. Not for steps that can be captured. */
    const int32_t *input_row;
    /* [n_seqs] verified tokens of each sequence in this step; its other tokens are drafts. -n = all its tokens are
     * drafts, and so are the n tokens before them, which earlier steps computed. */
    const int32_t *n_verified;
    const int32_t *state_slot; /* [n_seqs] slot of the recurrent state */
    const int32_t *save_start; /* [n_seqs + 1] first snapshot of each sequence in save */
    /* [save_start[n_seqs]] snapshots to take in this step, by sequence, ascending positions */
    const struct pi__save *save;
    /* The logits rows as a batch of their own, for layers after the last cache write: same sequences, n_rows 0, no
     * slots to write to. */
    const struct pi__batch *logits_batch;
    pi__step_top top;         /* requests for the logits rows */
    pi__kv_batch kv[PI__MAX_GROUPS]; /* indexed by cache group; not used for groups of recurrent states */
    pi__runs runs;            /* set for steps with sparse prefill; empty in logits_batch */
    pi__lora_rows lora;       /* adapters of the tokens; logits_batch has its own list, by logits row */
} pi__batch;

/* Request for a snapshot of a sequence's recurrent state, taken when the step's tokens reach pos. */
typedef struct pi__save {
    int32_t pos;  /* number of tokens in the state: a multiple of PI__STATE_CHUNK, all verified */
    int32_t snap; /* index in the snapshot pool */
} pi__save;

/* Location and types of one layer's keys and values in the pool of its cache group: block b starts at base + b *
 * stride. */
typedef struct pi__kv_layer {
    int32_t group;     /* index into pi__batch.kv */
    int32_t layer;     /* layer of the model, from 0: N in its tensor names */
    int32_t type_k;    /* cache type of keys, see formats/cache_types.h */
    int32_t type_v;    /* cache type of values, chosen separately */
    int32_t n_head_kv; /* KV heads */
    int32_t head_dim;  /* values per head, of K and of V; a multiple of 16, or of 32 for types with groups of 32 */
    int32_t placement; /* PI__AT_*, or a stage */
    char *base;        /* start of the pool, plus the offset of this layer in a block */
    size_t stride;     /* bytes from block to block; a block has all layers of the group */
    /* 0 = keys and values as above. r > 0 = the layer stores rows instead: one row of head_dim values of type_k per r
     * tokens. A token in slot s (pi__kv_batch.slot) has row s / r of the pool. A row is key and value at the same time,
     * or an input from which op compress makes rows. */
    int32_t ratio;
    bool f32;          /* rows are F32, regardless of the configured cache type */
} pi__kv_layer;

/* Recurrent state of a layer with a delta net, a Mamba-2 mixer, a selective scan or a short convolution: one slot per
 * running sequence, and a pool of snapshots. After a step a slot holds the state at its last chunk boundary, and the
 * inputs of later tokens. A caller drops rejected draft tokens by starting the next step at a smaller position. */
typedef struct pi__state_layer {
    /* key heads, value heads (value head j uses key head j % n_k). Both 0 = a short convolution (op short_conv), whose
     * state is its last inputs. Only n_k 0 = a selective scan (op scan) of n_v channels with dim values each */
    int32_t n_k, n_v;
    int32_t dim;        /* values per key head; also per value head, if dim_v is 0; channels of a short convolution */
    int32_t dim_v;      /* values per value head, a multiple of 16; 0 = dim */
    int32_t ssd;        /* 1 = Mamba-2: op gdn without its delta term, see pi__gdn; 0 = delta net */
    int32_t kda;        /* 1 = Kimi delta attention: a decay per channel of a key, see pi__gdn; not with ssd */
    int32_t n_conv;     /* taps of the convolution, PI__MIN_CONV to PI__MAX_CONV */
    int32_t n_draft;    /* max drafts of a sequence per step */
    /* Nonzero: keys and queries come from float matrices, and products with them keep that precision. 0 = they may
     * be 16-bit floats, as the results of quantised matrices are (option matmul). */
    int32_t exact;
    int32_t placement;  /* PI__AT_*, or a stage */
    char *base;         /* slot i is at base + i * stride */
    size_t stride;      /* bytes between slots (all layers) */
    char *snap;         /* snapshot i is at snap + i * snap_stride */
    size_t snap_stride; /* bytes between snapshots (all layers) */
} pi__state_layer;
/* Returns the values per value head. */
static inline int32_t pi__state_dim_v(const pi__state_layer *st) { return st->dim_v ? st->dim_v : st->dim; }
/* Returns the channels of the convolution: those of queries, keys and values. */
static inline int64_t pi__state_channels(const pi__state_layer *st)
{
    return 2 * (int64_t) st->n_k * st->dim + (int64_t) st->n_v * pi__state_dim_v(st);
}

/* True for the state of a short convolution. */
static inline bool pi__state_is_conv(const pi__state_layer *st) { return !st->n_k && !st->n_v; }
/* True for the state of a selective scan. */
static inline bool pi__state_is_scan(const pi__state_layer *st) { return !st->n_k && st->n_v; }

/* The input of a linear op: x, or x after a norm or gate (the prologue), which is computed once for all matrices. */
typedef struct pi__lin_in {
    /* PLAIN: x. RMSNORM: x / sqrt(mean(x^2) + eps) * w. GEGLU: gelu_tanh(x) * x2. SWIGLU: silu(x) * x2.
     * SWIGLU_OAI (gpt-oss): x * sigmoid(1.702 x) * (x2 + 1). GEGLU_ERF: x/2 (1 + erf(x / sqrt(2))) * x2.
     * RELU2: max(x, 0) * x2. GELU: as GEGLU_ERF with 1 instead of x2, which is set but has no effect. */
    int kind;
    const float *x;  /* [n_rows, n_in] */
    int64_t ldx;     /* floats between rows of x */
    const float *x2; /* [n_rows, n_in], GLU kinds: the "up" half */
    int64_t ldx2;    /* floats between rows of x2 */
    const float *w;  /* [n_in], RMSNORM */
    float eps;       /* RMSNORM */
    /* SWIGLU, SWIGLU_OAI: min(x, limit) and clamp(x2, -limit, limit); 0 = no limit. SWIGLU with a negative limit: the
     * first is min(x * sigmoid(x), -limit) */
    float limit;
} pi__lin_in;

/* One matrix of a linear op and its output. */
typedef struct pi__lin {
    const pi__weight *w; /* [n_out, n_in] */
    float *y;            /* [n_rows, n_out] */
    int64_t ldy;         /* floats between rows of y */
} pi__lin;

/* Allows op linear to compute only the largest values of logits rows exactly: the values that op topk returns for these
 * requests. */
typedef struct pi__best_rows {
    const pi__topk_request *request; /* [n_rows]; a row with k 0, or with a sum, is computed in full */
    float margin;                    /* values less than this below the k-th largest are also exact */
    float most;                      /* a row with a value above this is computed in full */
    bool partial;                    /* set to true by the op if some row has inexact values */
} pi__best_rows;

/* y = W in for n_lin matrices. n_rows is at most limits.max_tokens. */
typedef struct pi__linear {
    pi__lin_in in;            /* input of all matrices */
    int32_t n_rows;           /* rows of x and of each y */
    int32_t n_lin;            /* matrices */
    pi__lin lin[PI__MAX_LIN]; /* [n_lin] */
    /* Limits the values of y that have to be exact; only with one matrix, and if opt->best_rows. NULL = all values. */
    pi__best_rows *best;
} pi__linear;

static inline pi__linear pi__linear_of(const pi__lin_in *in, int32_t n_rows, const pi__lin *lin, int32_t n_lin)
{
    pi__linear a;
    a.in = *in;
    a.n_rows = n_rows;
    a.n_lin = n_lin;
    a.best = NULL;
    for (int32_t i = 0; i < n_lin; i++) a.lin[i] = lin[i];
    return a;
}

/* y += scale * factor * B (A in) for rows with an adapter. y already holds the product of the matrix. */
typedef struct pi__lora {
    /* The op that computed y; its matrices have pairs. Or op head_linear as a linear op with one stack of n_mat
     * matrices, one per head; heads are then ld / n_mat floats apart in x and y. */
    pi__linear of;
    int32_t rank[PI__MAX_LIN]; /* [n_lin] max rank of any run, by matrix */
    const pi__lora_rows *rows; /* adapters of the op's rows */
} pi__lora;

/* out += scale * factor * (B A), for the tokens' rows of an embedding. out already holds the rows of the embedding. */
typedef struct pi__lora_embed {
    const pi__weight *w;       /* [V, n] embedding that out was looked up in */
    int32_t target, rank;      /* target of the pairs; max rank of any run */
    const pi__lora_rows *rows; /* adapters of the batch's tokens */
    float scale;               /* as in op embed */
    float *out;                /* [n_tokens, n] */
} pi__lora_embed;

/* Adapters of a layer's experts: their products are added to the results of gate, up and down. */
enum { PI__LORA_GATE, PI__LORA_UP, PI__LORA_DOWN, PI__N_LORA_MOE };
typedef struct pi__moe_lora {
    const pi__lora_rows *rows;      /* adapters of the op's rows; NULL = no row has one */
    int32_t target[PI__N_LORA_MOE]; /* targets of the pairs; 0 = the matrix has no adapter */
    int32_t rank[PI__N_LORA_MOE];   /* max rank of any run */
    bool fused;                     /* gate's pairs cover gate and up, concatenated */
} pi__moe_lora;

/* out[i] = row token[i] of w, times scale. The row is batch.embd_row[i] if that array is set. */
typedef struct pi__embed {
    const pi__weight *w; /* [V, n_in] */
    float scale;         /* factor of the result */
    float *out;          /* [n_tokens, n_in of w] */
} pi__embed;

/* out[i] = x[row[i]]; zeros if row[i] is -1. */
typedef struct pi__gather_rows {
    /* [n_rows] host memory: the batch's logits_indices or hidden_row, or another array that is valid until
     * finish(). */
    const int32_t *row;
    int32_t n_rows;      /* rows of out */
    const float *x;      /* [any, n] */
    int64_t n;           /* values per row */
    float *out;          /* [n_rows, n] */
} pi__gather_rows;

/* Computes a step's queries, keys and values for attention. q: bias, norm, rotation, scale. k: bias, norm, rotation. v:
 * bias, norm. With norm_last, the norm of q and k follows the rotation. q is changed in place; k and v are written to
 * the cache at the batch's slots. */
typedef struct pi__qkv {
    const pi__kv_layer *kv; /* the layer's cache */
    float *q;            /* [n_tokens, n_head * head_dim], normalised, rotated and scaled in place */
    int64_t ldq;         /* floats between rows */
    int64_t q_stride;    /* floats between heads; 0 = head_dim */
    /* [n_tokens, n_head_kv * head_dim]; NULL = the layer shares another layer's cache: only q is processed */
    const float *k, *v;
    int64_t ldk, ldv;    /* floats between rows */
    int32_t n_head;      /* query heads */
    const float *q_bias; /* [n_head, head_dim] added first; NULL = no bias */
    const float *k_bias, *v_bias; /* [n_head_kv, head_dim], likewise */
    const float *q_norm; /* [head_dim] RMSNorm weight of each head; NULL = no norm */
    const float *k_norm; /* likewise for k */
    bool v_norm;         /* RMSNorm without weight on each value head */
    bool norm_last;      /* q_norm and k_norm are applied after the rotation */
    float eps;           /* epsilon of the norms */
    const float *rope;   /* [n_tokens, n_rot] n_rot/2 cosines, then n_rot/2 sines (op rope); NULL = no rotation */
    const float *q_rope; /* likewise for queries, if theirs differs; NULL = rope */
    int32_t n_rot;       /* rotated values of a head */
    int32_t pair_stride; /* values i and i + pair_stride are a pair, i < n_rot/2 ("NeoX": n_rot/2 or head_dim/2) */
    float q_scale;       /* factor of q, applied last */
} pi__qkv;

/* Softmax attention of each token over its own sequence's cache, by the block table. */
typedef struct pi__attention {
    const pi__kv_layer *kv; /* cache of the layer, or of the layer that it shares */
    const float *q;     /* [n_tokens, n_head * head_dim], already scaled */
    int64_t ldq;        /* floats between rows */
    int64_t q_stride;   /* floats between heads; 0 = head_dim */
    const float *gate;  /* like q (same ldq and q_stride): the result is multiplied by sigmoid(gate); NULL = no gate */
    float *out;         /* [n_tokens, n_head * head_dim] */
    int64_t ldo;        /* floats between rows */
    int32_t n_head;     /* query heads; query head h uses KV head h / (n_head / n_head_kv) */
    int32_t window;     /* a query sees keys with qpos - kpos < window; 0 = all keys up to qpos */
    int32_t first;      /* keys before this position are masked */
    bool past;          /* the key at the query's own position is masked too */
    /* bidirectional: tokens also see later keys of their sequence, up to seq_len - 1; op qkv has written them, in this
     * step or in an earlier one */
    bool block;
    int32_t ahead;      /* with block: number of later keys that are visible; 0 = all */
    bool spans;         /* tokens also see the later keys up to pi__batch.see_to; not with block or past */
    float softcap;      /* s = cap * tanh(s / cap) before softmax; 0 = no softcap */
    const float *sinks; /* [n_head] extra logits that only enlarge the softmax sum; NULL = no sinks */
    /* Bias of each score before the softcap, by the distance kpos - qpos; NULL = no bias. Only for heads of up to 128
     * values.
     * n_rel 1: [n_head] slopes of ALiBi (arXiv 2108.12409); the bias is -slope * |distance|. Other odd n_rel: [n_head,
     * n_rel] biases of the distances -n_rel / 2 .. n_rel / 2; larger distances have the bias of the first or last
     * one. */
    const float *rel;
    int32_t n_rel;      /* values per head in rel; 0 without rel */
    /* Threshold for the batch's query blocks, see PI__SPARSE_BLOCK; 0 = dense. Requires window, first, past,
     * block and rel to be 0. */
    float sparsity;
} pi__attention;

/* Mixture of experts: y = sum over the n_used best experts of weight * down(act(gate x) * up x), in the order of
 * their rank.
 *
 * Weights (`gating`): a softmax over all logits (SOFTMAX, SOFTMAX_CHOICE), or sqrt(log(1 + e^x)) or sigmoid of each
 * logit. The n_used weights are divided by their sum, unless `undivided`. With groups, the experts are n_group runs of
 * equal size, and only experts of the n_group_used best groups are chosen. A group's score is the sum of its two best
 * gates, including the bias for the choice; with SOFTMAX it is the best gate. With biases, an expert's biases are added
 * to the results of its gate, up and down.
 *
 * SPARSEMIXER (arXiv 2409.12136) chooses the largest logits, one after the other. A chosen expert's weight is its
 * softmax over itself and the experts with close logits (PI__MIXER_REACH) that were not chosen before it. Requires
 * `undivided`; no bias and no groups. */
typedef struct pi__moe {
    int32_t n_rows;         /* rows, at most limits.max_tokens */
    pi__lin_in in;          /* input of the experts; quantized once per row, then gathered */
    const float *logits;    /* [n_rows, n_expert] router logits */
    int64_t ldl;            /* floats between rows */
    int32_t n_expert;       /* experts: matrices in gate, up and down */
    int32_t n_used;         /* experts per row */
    float weights_scale;    /* factor of the weights */
    bool undivided;         /* the weights are not divided by their sum */
    /* expert groups, see above; n_group divides n_expert, at most PI__MAX_EXPERT_GROUPS; 0 = no groups */
    int32_t n_group, n_group_used;
    const pi__weight *gate; /* n_expert matrices [F, E]; if up is NULL, [2F, E]: rows of gate, then of up */
    /* n_expert matrices [F, E], or NULL. The pointer of gate = the experts have no gate: x2 of `act` is x, which is
     * computed once or twice */
    const pi__weight *up;
    const pi__weight *down; /* n_expert matrices [E, F]; its scale multiplies each expert's result */
    int act;                /* a kind of pi__lin_in with x2 */
    float limit;            /* as in pi__lin_in */
    const float *gate_bias, *up_bias; /* [n_expert, F]; both NULL = gate and up have no biases */
    const float *down_bias; /* [n_expert, ld_down_bias], at the columns of down's rows; NULL = no bias */
    int64_t ld_down_bias;   /* floats between experts */
    int gating;             /* PI__GATE_*; only SOFTMAX supports more than PI__MAX_EXPERTS experts */
    /* [n_expert] SOFTMAX: added to the logits; else added to the weights for the choice only; NULL = no bias */
    const float *bias;
    /* SQRT_SOFTPLUS: [n_vocab, n_used] fixed experts of each token id; the op's rows are then the batch's tokens.
     * NULL = experts are chosen by the router, and the op has no batch. */
    const int32_t *table;
    float *y;               /* [n_rows, E] */
    int64_t ldy;            /* floats between rows */
    pi__moe_lora lora;      /* adapters */
    const struct pi__moe_shard *shard; /* set if the matrices are sharded; NULL = full matrices */
} pi__moe;

/* Sharded expert matrices: F/n rows of gate and of up (separate matrices), E/n rows of down. y is then this
 * shard's part, [n_rows, E/n]. */
typedef struct pi__moe_shard {
    int32_t i, n; /* shard i of n */
    /* All-gathers h [n_pairs, 2F], gate and up of each (row, expert) pair, in a pair order that all shards share. This
     * shard has computed F/n columns of each half, from i * (F/n) on. Called once; work that was queued before the call
     * is done first. */
    void (*complete)(const struct pi__moe_shard *p, float *h, int32_t n_pairs, int64_t n_ff);
    void *ud;     /* for complete */
} pi__moe_shard;

/* Multiplies each head's part of a row by that head's own matrix. The n_tail values that follow the part are copied:
 *   y[r, h * y_step + i] = W[h][i] . x[r, h * x_step ..]                        for the rows i of W
 *   y[r, h * y_step + rows of W + j] = x[r, h * x_step + columns of W + j]      j < n_tail */
typedef struct pi__head_linear {
    /* one matrix per head, replicated: at most limits.n_head_mat, head_in columns, head_out rows */
    const pi__weight *w;
    int32_t n_rows;      /* rows */
    const float *x;      /* [n_rows, n_mat * x_step] */
    int64_t ldx, x_step; /* floats between rows, between heads */
    int32_t n_tail;      /* values per head that are copied */
    float *y;            /* [n_rows, n_mat * y_step]; not x */
    int64_t ldy, y_step; /* floats between rows, between heads of y */
    bool large;          /* for large matrices: with many rows, heads may run one after the other; requires n_tail 0 */
} pi__head_linear;

/* Returns the matrix of head i as a single matrix. */
static inline pi__weight pi__head_matrix(const pi__head_linear *a, int32_t i)
{
    pi__weight w = *a->w;
    w.n_mat = 1;
    w.size = a->w->size / (size_t) a->w->n_mat;
    w.data = (char *) a->w->data + (size_t) i * w.size;
    if (w.scale) w.scale += i;
    return w;
}

/* Returns the product of head i and its matrix w (from pi__head_matrix) as a linear op. */
static inline pi__linear pi__head_product(const pi__head_linear *a, const pi__weight *w, int32_t i)
{
    const pi__lin_in in = {PI__IN_PLAIN, a->x + i * a->x_step, a->ldx, 0, 0, 0, 0, 0};
    const pi__lin lin = {w, a->y + i * a->y_step, a->ldy};
    return pi__linear_of(&in, a->n_rows, &lin, 1);
}

/* An lm_head with its rows sorted into clusters. Only the n_pick clusters with the best centroid scores are
 * multiplied: logits[order[c * n + i]] = row i of matrix c times x. Every other token gets the minimum of these
 * values minus 1. Of equal scores the lower index wins. */
typedef struct pi__centroid_head {
    int32_t n_rows;              /* rows, at most limits.max_rows */
    pi__lin_in in;               /* input of all matrices */
    const pi__weight *centroids; /* [n_mat of head, E]; same placement as head, and replicated if head is */
    const pi__weight *head;      /* one matrix [n, E] per cluster, without factors */
    /* [n_vocab] token of each row of head: host memory that is valid and constant while the backend lives */
    const int32_t *order;
    int32_t n_pick;              /* clusters per row, at most n_mat and PI__MAX_PICK */
    float *scores;               /* scratch: [n_rows, n_mat] */
    int32_t *pick;               /* scratch: [n_rows, n_pick] */
    float *some;                 /* scratch: [n_rows, n_pick * n] */
    float *logits;               /* [n_rows, n_mat * n] */
} pi__centroid_head;

/* Gated delta rule over a step's tokens: convolution with silu, l2 norm of queries and keys, recurrence, gated norm.
 * Yang et al., "Gated Delta Networks" (arXiv 2412.06464). Processes all sequences of the step and updates their states,
 * in the slots of batch.state_slot. A sequence that starts at position 0 starts from a zero state. Takes the
 * snapshots of batch.save. A row of qkv has C = 2 n_k dim + n_v dim_v channels: q, k, v.
 *
 * With st->ssd the op is the recurrence of Mamba-2 (arXiv 2405.21060), a delta rule without its delta term. Queries,
 * keys and values are Mamba's C, B and x, without l2 norms. With dt = softplus(alpha + dt_bias), a head's state S
 * [dim, dim_v] becomes e^(a dt) S + dt k (outer) v; its output is q . S + skip v. The gate precedes the norm:
 * out = rmsnorm(output * silu(z)) * norm. The mean of the squares is over the value heads of one key head, which are
 * adjacent in out.
 *
 * With st->kda the op is Kimi delta attention (arXiv 2510.26692): row c of a head's state has a log decay of its own,
 * from alpha and dt_bias of channel c. n_v is n_k, and dim_v is dim. The gate is sigmoid(z). The epsilon of the l2
 * norms is PI__KDA_EPS. */
typedef struct pi__gdn {
    const pi__state_layer *st; /* the layer's states */
    const float *qkv;         /* [n_tokens, C] before the convolution */
    int64_t ld_qkv;           /* floats between rows */
    const float *z;           /* [n_tokens, n_v * dim_v] */
    int64_t ld_z;             /* floats between rows */
    /* [n_tokens, n_v] as projected; with ssd, beta is NULL; with kda, alpha is [n_tokens, n_v * dim] */
    const float *alpha, *beta;
    int64_t ld_ab;            /* floats between rows of both */
    const float *conv;        /* [C, n_conv]; the last tap is for the current token */
    const float *conv_bias;   /* [C] added before silu, only with ssd; NULL = no bias */
    const float *dt_bias;     /* [n_v], with kda [n_v * dim], added to alpha before softplus */
    const float *a;           /* [n_v] negative: log decay = a * softplus(alpha + dt_bias), see min_decay */
    /* Only with kda. Negative: log decay = min_decay * sigmoid(a * (alpha + dt_bias)), a positive; 0 = as for a */
    float min_decay;
    const float *skip;        /* [n_v] factor of the value in the output, only with ssd; NULL = 0 */
    /* [dim] RMSNorm weight of each head's result, before the product with silu(z). With ssd [n_v * dim_v], in the order
     * of out, and NULL = no norm */
    const float *norm;
    float eps;                /* epsilon of the RMSNorm, and of the l2 norms except with kda */
    float *out;               /* [n_tokens, n_v * dim_v] */
    int64_t ldo;              /* floats between rows */
    /* true = value heads of the same key head are adjacent in out, see pi__gdn_place; false = in order of j. Always
     * true with ssd */
    bool grouped;
} pi__gdn;

#define PI__KDA_EPS 1e-6f

/* Returns the values of alpha and dt_bias per value head. */
static inline int32_t pi__state_decays(const pi__state_layer *st) { return st->kda ? st->dim : 1; }

/* Returns the position of value head j among the heads of a row of out. */
static inline int32_t pi__gdn_place(int32_t n_k, int32_t n_v, bool grouped, int32_t j)
{
    return grouped ? j % n_k * (n_v / n_k) + j / n_k : j;
}

/* Gated short convolution over a step's tokens (LFM2, arXiv 2511.23404). A row of x has three parts of dim channels:
 * gate b, gate c, input u. out = c * (convolution of b * u along the tokens of the sequence, channel by channel).
 * Sequences, slots, snapshots and zero states are as in op gdn. With `plain`, a row of x has dim channels, a multiple
 * of 16, and out = silu(convolution of x + bias). */
typedef struct pi__short_conv {
    const pi__state_layer *st; /* the layer's states, of kind pi__state_is_conv */
    const float *x;           /* [n_tokens, 3 * dim]: b, c, u; or [n_tokens, dim] */
    int64_t ldx;              /* floats between rows */
    const float *conv;        /* [dim, n_conv]; the last tap is for the current token */
    const float *bias;        /* [dim], only with plain; NULL = 0 */
    float *out;               /* [n_tokens, dim] */
    int64_t ldo;              /* floats between rows */
    bool plain;               /* see above */
} pi__short_conv;

/* Selective scan over a step's tokens (Mamba, arXiv 2312.00752). A channel's state h has N = st->dim values. With d =
 * softplus(dt + dt_bias), h[s] becomes e^(d a[s]) h[s] + d x b[s]; out = (sum over s of c[s] h[s], plus skip x) *
 * silu(z). b and c are shared by all channels. Sequences, slots, snapshots and zero states are as in op gdn. */
typedef struct pi__scan {
    const pi__state_layer *st; /* the layer's states, of kind pi__state_is_scan; C = n_v channels */
    const float *x;           /* [n_tokens, C] */
    int64_t ldx;              /* floats between rows */
    const float *z;           /* [n_tokens, C] */
    int64_t ldz;              /* floats between rows */
    const float *dt;          /* [n_tokens, C] as projected */
    int64_t ld_dt;            /* floats between rows */
    const float *b, *c;       /* [n_tokens, N] */
    int64_t ld_bc;            /* floats between rows of both */
    const float *norm_b, *norm_c; /* [N] weights of an RMSNorm of b, and of c; NULL = no norm */
    float eps;                /* epsilon of these norms */
    const float *dt_bias;     /* [C] */
    const float *a;           /* [N, C] negative */
    const float *skip;        /* [C] */
    float *out;               /* [n_tokens, C] */
    int64_t ldo;              /* floats between rows */
} pi__scan;

/* The largest values of rows, for the sampler; only if opt->topk_here. out is valid after finish(). k below is the
 * largest request[r].k; with the step's own requests (pi__batch.top) it is top.k. Words of out per row:
 *
 *     word 0      request[r].k minus the number of values found above -inf; plus 2^32 if the row holds NaN or +inf
 *     word 1      if request[r].sum: bits of a double, the sum of exp(x - max), for rows without NaN and +inf
 *     words 2..   ~(bits of the value, ordered as unsigned numbers) << 32 | index, ascending: the largest value
 *                 first, then by index; zeros of both signs are equal, NaN is never returned
 *
 * First, the op writes -inf to x for the first request[r].n_skip of the n_skip indices at skip. A row without a
 * request keeps its x and out. */
typedef struct pi__topk {
    float *x;            /* [n_rows, n] */
    int32_t n_rows;      /* at most limits.max_rows */
    int64_t n;           /* at most limits.n_vocab and PI__MAX_TOP_ROW */
    const int32_t *skip; /* [n_skip] host memory that is valid and constant while the backend lives */
    int32_t n_skip;      /* at most PI__MAX_SKIP */
    /* [n_rows] in memory of host_alloc, like out; the device owns both until finish(). Or the step's requests
     * (pi__batch.top): then n_rows may include padding rows. */
    const pi__topk_request *request;
    uint64_t *out;       /* [n_rows, 2 + k] in memory of host_alloc; with the step's requests, padding rows included */
} pi__topk;

/* Copies of a recurrent state, outside a step. state_save: copies the slot's state at pos to snapshot snap; the
 * slot is unchanged. pos is the last multiple of PI__STATE_CHUNK at or before the end of the verified tokens.
 * state_load: restores the slot from the snapshot that was saved at pos. */
typedef struct pi__state_copy {
    const pi__state_layer *st; /* the layer's states */
    int32_t slot;        /* slot of a sequence */
    int32_t pos;         /* tokens in the state */
    int32_t snap;        /* index in the snapshot pool */
} pi__state_copy;

/* ---- the list: name, struct of arguments */

/* Ops that every backend implements. */
#define PI__OPS_ALL(OP)                                                                                                \
    PI__OPS_ROWS(OP)                                                                                                   \
    OP(hyper_pre, pi__hyper)                                                                                           \
    OP(hyper_post, pi__hyper)                                                                                          \
    OP(embed, pi__embed)                                                                                               \
    OP(linear, pi__linear)                                                                                             \
    OP(lora, pi__lora)                                                                                                 \
    OP(lora_embed, pi__lora_embed)                                                                                     \
    OP(block_conv, pi__block_conv)                                                                                     \
    OP(rope, pi__rope)                                                                                                 \
    OP(qkv, pi__qkv)                                                                                                   \
    OP(attention, pi__attention)                                                                                       \
    OP(moe, pi__moe)                                                                                                   \
    OP(head_linear, pi__head_linear)                                                                                   \
    OP(gather_rows, pi__gather_rows)                                                                                   \
    OP(add_rows, pi__add_rows)                                                                                         \
    OP(place_rows, pi__place_rows)                                                                                     \
    OP(centroid_head, pi__centroid_head)                                                                               \
    OP(gdn, pi__gdn)                                                                                                   \
    OP(short_conv, pi__short_conv)                                                                                     \
    OP(scan, pi__scan)                                                                                                 \
    OP(state_save, pi__state_copy)                                                                                     \
    OP(state_load, pi__state_copy)                                                                                     \
    OP(mla_qkv, pi__mla_qkv)                                                                                           \
    OP(compress, pi__compress)                                                                                         \
    OP(indexer, pi__indexer)                                                                                           \
    OP(sparse, pi__sparse)
/* The optional op, which serves the sampler: a backend announces it with opt->topk_here. */
#define PI__OPS_DEVICE(OP) OP(topk, pi__topk)
#define PI__OPS(OP) PI__OPS_ALL(OP) PI__OPS_DEVICE(OP)

#define PI__OP_ID(name, type) PI__OP_##name,
typedef enum pi__op_id { PI__OPS(PI__OP_ID) PI__N_OPS } pi__op_id;
#undef PI__OP_ID

struct pi__backend;
/* A backend's ops; NULL = the backend lacks this optional op. */
#define PI__OP_FN(name, type) void (*name)(struct pi__backend *be, const pi__batch *b, const type *a);
typedef struct pi__op_fns {
    PI__OPS(PI__OP_FN)
} pi__op_fns;
#undef PI__OP_FN

/* A recorded call: the op, its batch, and a copy of its arguments. */
#define PI__OP_MEMBER(name, type) type name;
typedef struct pi__op_record {
    pi__op_id id;
    const pi__batch *b;
    union {
        PI__OPS(PI__OP_MEMBER)
    } args;
} pi__op_record;
#undef PI__OP_MEMBER

#endif
