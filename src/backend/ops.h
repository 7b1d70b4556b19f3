/* The ops that model graphs are made of: what they read and write, as one struct of arguments each, and their list.
 *
 * A graph calls pi__op_NAME(be, b, &(pi__NAME) {...}). All that a backend says of an op is one function of that signature;
 * all that anybody else needs to know of it (which memory it reads and writes, on which backend it runs) is its row in the
 * table of operands (operands.c), over which placement, sharding, padding, capture and tracing
 * are generic.
 *
 * A new op: its struct and its line in PI__OPS here (in kernel_args.h, where kernels take the struct as it is), its row in
 * operands.c, pi__cpu_NAME in a file of backend/cpu, and for devices a kernel with its launch and pi__cuda_NAME.
 *
 * Every op is batch-invariant (promise 2 of the design): a row of the result depends on that row's inputs alone, and its
 * order of sums on the row's own length alone, never on how many rows, sequences, threads or blocks there are. No op
 * allocates.
 *
 * Shapes are written row-major, slowest first: [n_rows, n_in]. "ld" is the distance between rows in floats. Rows of ops
 * with a batch are its tokens; those of others are n_rows of their struct, and their batch is NULL. */
#ifndef PI__OPS_H
#define PI__OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/kernel_args.h"

enum { PI__MAX_GROUPS = 8, PI__LOAD_ROWS = 64, PI__TILE_ROWS = 16, PI__USUAL_ROWS = 32, PI__MAX_ROWS = 256 /* of logits at once */ };
/* The rows of logits at once where so many are wanted. */
static inline int32_t pi__rows_at_once(int64_t most)
{
    return most < PI__USUAL_ROWS ? PI__USUAL_ROWS : most < PI__MAX_ROWS ? (int32_t) most : PI__MAX_ROWS;
}
enum { PI__MAX_PICK = 2047 /* clusters of a row */ };
enum { PI__MAX_SKIP = 1024, PI__MAX_TOP = 256 /* values of a row that topk finds */, PI__MAX_TOP_ROW = 1 << 20 };

/* Placement of matrices, caches and states: with the device, or with the CPU beside it; or, where devices are stages of a
 * pipeline, the number of one (see pi__backend.at). All that a single backend runs is with "the device". Activations and
 * small vectors, which all read, are on all. */
enum { PI__AT_DEVICE, PI__AT_CPU, PI__N_PLACEMENTS = 8, PI__AT_BOTH = PI__N_PLACEMENTS, PI__N_REGIONS };

/* A matrix (or n_mat stacked ones of equal shape: experts) in the device's own layout: y = W x. */
typedef struct pi__weight {
    int32_t type;       /* enum pi__type it has in the file */
    int32_t layout;     /* the backend's own code for what data looks like */
    int32_t placement;  /* PI__AT_*, or a stage */
    int64_t n_in;       /* columns: ne[0] in the file */
    int64_t n_out;      /* rows: ne[1] */
    int64_t n_mat;      /* ne[2], 1 for a plain matrix */
    void *data;         /* device memory, part of the weights region */
    size_t size;        /* bytes at data */
    const float *scale; /* n_mat factors of the result (NVFP4's second-level scale), or NULL */
    int64_t fused_rows[3]; /* rows of the matrices fused in it, one below the other (q, k, v or gate, up); 0: no more */
    bool routed;        /* experts, which only moe reads */
    bool whole;         /* never sharded: each of several devices has all of it */
    int32_t n_head;     /* rows are of so many heads of keys and values, or of their queries: what only qkv, gather_rows
                         * and attention read; 0: results are for all */
    int32_t target;     /* of adapters: its number among the matrices that can have one, from 1 on; 0: it cannot */
} pi__weight;

/* How a cache group looks to the ops of one step. Host memory, valid until the step's finish(). */
typedef struct pi__kv_batch {
    int32_t block_size;         /* tokens a block: 16, 32, 64, or 128 of rows */
    int32_t table_stride;       /* entries a row of block_table */
    const int32_t *block_table; /* [n_seqs, table_stride]: block id of tokens i*block_size..; -1: freed, behind the window */
    const int32_t *slot;        /* [n_tokens]: block id * block_size + offset where each token's K,V goes */
} pi__kv_batch;

/* A sampler's request for a row of logits. */
typedef struct pi__topk_request {
    int32_t k;      /* its largest values, at most PI__MAX_TOP; 0: nothing */
    int32_t n_skip; /* indices that are left out */
    int32_t sum;    /* not 0: the sum of exp(x - max) */
} pi__topk_request;

/* What a step's logits rows are asked for by its op topk, where that is known when the step begins: it belongs to the step,
 * and is captured with it. */
typedef struct pi__step_top {
    const pi__topk_request *request; /* [n_rows]; NULL: nothing, or that comes later. Of padding there are none */
    const int32_t *skip; /* as of op topk */
    int32_t n_skip;
    int32_t k;           /* values of a row in its results, the largest of all requests or a little more */
    bool sum;            /* some row's sum is wanted */
} pi__step_top;

/* The tokens of a step as runs: a query block, or neighbours of one sequence that are none. */
typedef struct pi__runs {
    int32_t n;                /* 0: the step has no query block, and there are no arrays */
    int32_t n_blocks;         /* query blocks */
    const int32_t *start;     /* [n + 1] first token of each run */
    const int32_t *seq;       /* [n] its sequence */
    const int32_t *block;     /* [n] the number of the query block that it is, from 0 on in order; -1: it is none */
} pi__runs;
/* Runs that there can be: those of a sequence that are query blocks are neighbours. */
static inline int32_t pi__most_runs(int32_t n_seqs, int32_t n_tokens) { return 2 * n_seqs + n_tokens / PI__SPARSE_BLOCK; }

/* Rows that have an adapter, at one scale. */
typedef struct pi__lora_run {
    const pi__lora_pair *pair; /* by pi__weight.target, in device memory */
    const int32_t *rank;       /* the same ranks for the host that made the run; rank[0]: number of the last target */
    float scale;
    int32_t level;             /* it is the rows' adapter number `level`, from 0 on */
    int32_t first, n;          /* rows of pi__lora_rows.row */
    int32_t expert;            /* of stacked matrices, which backends have runs of; else 0 */
} pi__lora_run;

/* Which rows of a step have adapters: runs by level, so that within a level a row is in one run at most, and what several
 * adapters give a row is added in the order of levels. Host memory, valid until the step's finish(). */
typedef struct pi__lora_rows {
    const pi__lora_run *run; /* [n_runs] */
    const int32_t *row;      /* [n] tokens of the batch, run by run, ascending in each */
    int32_t n_runs, n;       /* 0: no row has one */
    uint64_t no;             /* another one for each list of runs that a step has */
} pi__lora_rows;

/* The tokens of one step: those of a sequence are adjacent and in order of position. */
typedef struct pi__batch {
    int32_t n_tokens;         /* tokens in all */
    int32_t n_seqs;           /* sequences */
    int32_t n_rows;           /* logits rows: positions whose logits are wanted */
    int32_t n_groups;         /* cache groups */
    const int32_t *token;     /* [n_tokens] ids */
    const int32_t *pos;       /* [n_tokens] positions */
    const int32_t *seq;       /* [n_tokens] sequence index */
    const int32_t *seq_start; /* [n_seqs + 1] first token of each sequence */
    const int32_t *seq_len;   /* [n_seqs] tokens in the cache after this step: last position + 1 */
    const int32_t *logits_indices; /* [n_rows] tokens of the logits rows, ascending */
    const int32_t *embd_row;  /* where the embedding is sharded: [n_tokens] a token's row of this shard, any where it is
                               * another's; else NULL: its id */
    const int32_t *owner;     /* and its row of the gathered ones; else NULL */
    const int32_t *hidden_row; /* [n_tokens] of a drafter's step, the row of the hidden state that goes with a token, see
                                * pi__arch.draft; -1: zeros. Of one of kind FED (device.h) a row of logits. Else NULL */
    const int32_t *n_verified; /* [n_seqs] its verified tokens in this step; the rest are drafts. Negative: so many before
                                * its first one are drafts, too, that steps before this one computed */
    const int32_t *state_slot; /* [n_seqs] slot of its recurrent state */
    const int32_t *save_start; /* [n_seqs + 1] first snapshot of each sequence in save */
    const struct pi__save *save; /* [save_start[n_seqs]] snapshots to take in this step, ascending positions a sequence */
    const struct pi__batch *logits_batch; /* the logits rows as a batch of their own, for what comes after the last cache
                                           * is written: same sequences, n_rows 0, nothing to write to */
    pi__step_top top;         /* what its logits rows are asked for */
    pi__kv_batch kv[PI__MAX_GROUPS]; /* by group; those of state groups are not used */
    pi__runs runs;            /* of a step with sparse prefill; the logits rows' batch has none */
    pi__lora_rows lora;       /* adapters of its rows; those of the logits rows' batch are of the same runs */
} pi__batch;

/* A snapshot of a sequence's recurrent state, taken while the step passes pos. */
typedef struct pi__save {
    int32_t pos;  /* the state after this many tokens of the sequence, a multiple of PI__STATE_CHUNK, all verified */
    int32_t snap; /* index in the pool of snapshots */
} pi__save;

/* One layer's keys and values in a group's pool: block b is at base + b * stride. */
typedef struct pi__kv_layer {
    int32_t group;     /* index into pi__batch.kv */
    int32_t layer;     /* of the model, from 0 on: N of its tensors' names */
    int32_t type_k;    /* one of formats/cache_types.h */
    int32_t type_v;    /* the same, chosen separately */
    int32_t n_head_kv; /* heads */
    int32_t head_dim;  /* values a head, of K and of V; a multiple of 16, of 32 where types have groups of 32 */
    int32_t placement; /* PI__AT_*, or a stage */
    char *base;        /* pool start + this layer's offset in a block */
    size_t stride;     /* bytes from block to block (all layers of the group) */
    int32_t ratio;     /* 0: as above. Else the layer keeps rows: one of head_dim values for each ratio tokens, of type_k, at
                        * row slot / ratio of the pool, that are keys and values at once, or what makes such rows */
    bool f32;          /* rows of F32, whatever type is asked for */
} pi__kv_layer;

/* One delta-net layer's recurrent state: a slot for each sequence that runs, and a pool of snapshots. After a step a slot
 * holds the state at its last chunk boundary and what is needed of the rows since; dropping rows of the last step (drafts
 * that were not accepted) is giving the next step a smaller first position. */
typedef struct pi__state_layer {
    int32_t n_k, n_v;   /* key heads, value heads (value head j uses key head j % n_k) */
    int32_t dim;        /* values a head */
    int32_t n_conv;     /* taps of the convolution, PI__LEAST_CONV to PI__MOST_CONV */
    int32_t n_draft;    /* most drafts a sequence brings to a step */
    int32_t exact;      /* not 0: what makes keys and queries is floats, so that products with them are as exact as those with it;
                         * else they may be of 16-bit floats, as those of quantised matrices are (option matmul) */
    int32_t placement;  /* PI__AT_*, or a stage */
    char *base;         /* slot i is at base + i * stride */
    size_t stride;      /* bytes from slot to slot (all layers) */
    char *snap;         /* snapshot i is at snap + i * snap_stride */
    size_t snap_stride; /* bytes from snapshot to snapshot (all layers) */
} pi__state_layer;

/* The input of a linear op, with its prologue (norm or gate); computed once for all matrices that read it. */
typedef struct pi__lin_in {
    int kind;        /* PLAIN: x. RMSNORM: x / sqrt(mean(x^2) + eps) * w. GEGLU: gelu_tanh(x) * x2. SWIGLU: silu(x) * x2.
                      * SWIGLU_OAI (gpt-oss): x * sigmoid(1.702 x) * (x2 + 1) */
    const float *x;  /* [n_rows, n_in] */
    int64_t ldx;     /* floats from row to row of x */
    const float *x2; /* [n_rows, n_in], GLU kinds: the "up" half */
    int64_t ldx2;    /* floats from row to row of x2 */
    const float *w;  /* [n_in], RMSNORM */
    float eps;       /* RMSNORM */
    float limit;     /* SWIGLU, SWIGLU_OAI: of min(x, limit) and clamp(x2, -limit, limit); 0: none */
} pi__lin_in;

/* One matrix that reads it, and its output. */
typedef struct pi__lin {
    const pi__weight *w; /* [n_out, n_in] */
    float *y;            /* [n_rows, n_out] */
    int64_t ldy;         /* floats from row to row of y */
} pi__lin;

/* Of rows of logits only the largest values are wanted: those that op topk gives for the requests. */
typedef struct pi__best_rows {
    const pi__topk_request *request; /* [n_rows]; of a row with k 0, or with a sum, all is wanted */
    float margin;                    /* values so close to the last wanted one are wanted, too, */
    float most;                      /* and all of them where one is larger than that */
    bool partial;                    /* what the op tells: of some row, values that are not wanted are not what they should be */
} pi__best_rows;

/* y = W in for n_lin matrices. n_rows is at most limits.max_tokens. */
typedef struct pi__linear {
    pi__lin_in in;            /* what they read */
    int32_t n_rows;           /* rows of x and of each y */
    int32_t n_lin;            /* matrices */
    pi__lin lin[PI__MAX_LIN]; /* [n_lin] */
    pi__best_rows *best;      /* of one matrix, for backends with best_rows: what of y is wanted; NULL: all of it */
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

/* y += scale * factor * B (A in) for the rows that have an adapter, of matrices whose own product y is already. */
typedef struct pi__lora {
    pi__linear of;             /* what made y, of matrices with pairs; or of one for each head, whose parts of rows are ld / n_mat apart */
    int32_t rank[PI__MAX_LIN]; /* the largest that a run has for each of them */
    const pi__lora_rows *rows; /* of n_rows rows */
} pi__lora;

/* out += scale * factor * (B A) of the tokens' rows, of an embedding that is there. */
typedef struct pi__lora_embed {
    const pi__weight *w;       /* [V, n] that out was looked up in */
    int32_t target, rank;      /* of the pairs; the largest of a run */
    const pi__lora_rows *rows; /* of the batch's tokens */
    float scale;               /* as of op embed */
    float *out;                /* [n_tokens, n] */
} pi__lora_embed;

/* Adapters of a layer's experts, that is, of what gate, up and down give. */
enum { PI__LORA_GATE, PI__LORA_UP, PI__LORA_DOWN, PI__N_LORA_MOE };
typedef struct pi__moe_lora {
    const pi__lora_rows *rows;      /* of the op's rows; NULL: none has one */
    int32_t target[PI__N_LORA_MOE]; /* of pairs; 0: the matrix has none */
    int32_t rank[PI__N_LORA_MOE];   /* the largest of a run */
    bool fused;                     /* gate's are of gate and up, one below the other */
} pi__moe_lora;

/* out[i] = row token[i] of w (batch.embd_row[i], where that is), times scale. */
typedef struct pi__embed {
    const pi__weight *w; /* [V, n_in] */
    float scale;         /* of the result */
    float *out;          /* [n_tokens, n_in of w] */
} pi__embed;

/* out[i] = x[row[i]], zeros where that is -1. */
typedef struct pi__gather_rows {
    const int32_t *row;  /* [n_rows] host memory: the batch's logits_indices or hidden_row, or any other that stays up to
                          * finish() */
    int32_t n_rows;      /* rows of out */
    const float *x;      /* [any, n] */
    int64_t n;           /* values a row */
    float *out;          /* [n_rows, n] */
} pi__gather_rows;

/* Queries, keys and values of a step's tokens before attention: bias, norm, rotation and scale of q; bias, norm and rotation
 * of k, bias and norm of v, and their write to the cache at the batch's slots. */
typedef struct pi__qkv {
    const pi__kv_layer *kv; /* the layer's cache */
    float *q;            /* [n_tokens, n_head * head_dim], normalised, rotated and scaled in place */
    int64_t ldq;         /* floats from row to row */
    int64_t q_stride;    /* floats from head to head; 0: head_dim */
    const float *k, *v;  /* [n_tokens, n_head_kv * head_dim]; NULL: the layer shares another's cache, only q is done */
    int64_t ldk, ldv;    /* floats from row to row */
    int32_t n_head;      /* query heads */
    const float *q_bias; /* [n_head, head_dim] added first, or NULL */
    const float *k_bias, *v_bias; /* [n_head_kv, head_dim], the same */
    const float *q_norm; /* [head_dim] RMSNorm weight a head, or NULL: none */
    const float *k_norm; /* the same for k */
    bool v_norm;         /* RMSNorm without weight on each value head */
    float eps;           /* of the norms */
    const float *rope;   /* [n_tokens, n_rot]: n_rot/2 cosines, then n_rot/2 sines (op rope); NULL: no rotation */
    const float *q_rope; /* the same for queries, where it is another; or NULL */
    int32_t n_rot;       /* rotated dims of a head */
    int32_t pair_stride; /* dims i and i + pair_stride are a pair, i < n_rot/2 ("NeoX"; n_rot/2, or head_dim/2) */
    float q_scale;       /* multiplies q at the end */
} pi__qkv;

/* Softmax attention of each token over its own sequence's cache, through the block table. */
typedef struct pi__attention {
    const pi__kv_layer *kv; /* the layer's cache */
    const float *q;     /* [n_tokens, n_head * head_dim], scaled */
    int64_t ldq;        /* floats from row to row */
    int64_t q_stride;   /* floats from head to head; 0: head_dim */
    const float *gate;  /* like q (same ldq and q_stride): the result is multiplied by sigmoid(gate); NULL: none */
    float *out;         /* [n_tokens, n_head * head_dim] */
    int64_t ldo;        /* floats from row to row */
    int32_t n_head;     /* query heads; the kv head of h is h / (n_head / n_head_kv) */
    int32_t window;     /* keys with qpos - kpos < window are seen; 0: all up to qpos */
    int32_t first;      /* keys before this position are not seen */
    bool past;          /* nor is the key at the query's own position */
    bool block;         /* keys behind it in its step are seen, too: all tokens of a sequence in a step see its last one, */
    int32_t ahead;      /* or of those keys the next so many; 0: all */
    float softcap;      /* s = cap * tanh(s / cap) before softmax; 0: none */
    const float *sinks; /* [n_head] extra logits that only enlarge the softmax sum, or NULL */
    float sparsity;     /* of the batch's query blocks, see PI__SPARSE_BLOCK; 0: all is attended to. Without window, first, past
                         * and block */
} pi__attention;

/* Mixture of experts: y = sum over the n_used best experts of routing weight * down(act(gate x) * up x), in the order of
 * their rank. Routing weights: softmax over all logits, or sqrt(log(1 + e^x)) or sigmoid of each, of those n_used divided by
 * their sum, or as they are. With groups, the experts are so many runs of as many, and the choice is among those of the n_group_used
 * best: by the two best gates of a group together (with what is added for the choice), or its best one in a softmax. With biases,
 * those of an expert are added to what its gate, up and down give. */
typedef struct pi__moe {
    int32_t n_rows;         /* rows, at most limits.max_tokens */
    pi__lin_in in;          /* what the experts read; prepared once a row, then gathered */
    const float *logits;    /* [n_rows, n_expert] of the router */
    int64_t ldl;            /* floats from row to row */
    int32_t n_expert;       /* matrices in gate, up and down */
    int32_t n_used;         /* experts a row */
    float weights_scale;    /* multiplies the routing weights */
    bool undivided;         /* these are not divided by their sum */
    int32_t n_group, n_group_used; /* see above; n_group divides n_expert, up to PI__MAX_EXPERT_GROUPS. 0: there are none */
    const pi__weight *gate; /* n_expert of [F, E]; with up NULL of [2F, E]: rows of gate, then of up */
    const pi__weight *up;   /* n_expert of [F, E], or NULL */
    const pi__weight *down; /* n_expert of [E, F]; its scale multiplies each expert's result */
    int act;                /* PI__IN_GEGLU, PI__IN_SWIGLU or PI__IN_SWIGLU_OAI */
    float limit;            /* as in pi__lin_in */
    const float *gate_bias, *up_bias; /* [n_expert, F], or both NULL */
    const float *down_bias; /* [n_expert, ld_down_bias], of which this is what down's rows have; NULL: none */
    int64_t ld_down_bias;   /* floats from expert to expert */
    int gating;             /* PI__GATE_*; of at most PI__MAX_EXPERTS but for SOFTMAX */
    const float *bias;      /* [n_expert] SOFTMAX: of the logits; else added to routing weights for the choice alone; NULL: none */
    const int32_t *table;   /* SQRT_SOFTPLUS: [n_vocab, n_used] experts of each token of the batch, whose rows these are then:
                             * they are not chosen; NULL: none, and no batch */
    float *y;               /* [n_rows, E] */
    int64_t ldy;            /* floats from row to row */
    pi__moe_lora lora;      /* adapters */
    const struct pi__moe_shard *shard; /* NULL: these are the whole matrices */
} pi__moe;

/* Where the matrices of a moe are sharded: F/n of the rows of gate and of up (which is there), E/n of down. */
typedef struct pi__moe_shard {
    int32_t i, n; /* shard i of n */
    /* All-gathers h, of which this shard has columns i * (F/n).. of both halves. Called once, with h [n_pairs, 2F]:
     * gate, up of a row and one of its experts in an order that all shards have; what was queued before is done
     * first. */
    void (*complete)(const struct pi__moe_shard *p, float *h, int32_t n_pairs, int64_t n_ff);
    void *ud;     /* for complete */
} pi__moe_shard; /* y is that of the shard's rows of down: [n_rows, E/n] */

/* A layer of experts without biases, with what is beside them, where dev->experts_layer says so. It stands for the ops
 *   linear:    logits = router in, behind them beside in; ff = gate in, up in
 *   moe:       y = experts of in                linear: shared = down(act(gate) up)
 *   add_gated: y += sigmoid(beside in) shared   add_norm: x += y      or, without beside, add_norm: x += y   add_norm: x += shared
 * of which x is what is left: logits, ff, shared and y are room to work in. x NULL, without beside: shared += y is what is left.
 * The batch is needed where experts are chosen by a table. */
typedef struct pi__experts_layer {
    pi__moe moe;              /* the experts, without logits; ldl is n_expert, with beside one more; not a shard */
    const pi__weight *router; /* [n_expert, E] */
    const pi__weight *beside; /* [1, E], or NULL */
    const pi__weight *gate, *up, *down; /* of the shared expert: [F, E], [F, E], [E, F]; activated as the experts are */
    float *logits;            /* [n_rows, ldl] */
    float *ff;                /* [n_rows, F | F] */
    float *shared;            /* [n_rows, E], not what in reads, but where x is NULL */
    float *x;                 /* [n_rows, E] residual stream, changed in place; or NULL */
} pi__experts_layer;

/* Each head's own matrix times its part of a row, and behind that the values behind that part, as they are:
 *   y[r, h * y_step + i] = W[h][i] . x[r, h * x_step ..]                        for the rows i of W
 *   y[r, h * y_step + rows of W + j] = x[r, h * x_step + columns of W + j]      j < n_tail */
typedef struct pi__head_linear {
    const pi__weight *w; /* a matrix for each head, whole: limits.n_head_mat at most, of head_in columns and head_out rows */
    int32_t n_rows;      /* rows */
    const float *x;      /* [n_rows, n_mat * x_step] */
    int64_t ldx, x_step; /* floats from row to row, from head to head */
    int32_t n_tail;      /* values that are copied */
    float *y;            /* [n_rows, n_mat * y_step], not x */
    int64_t ldy, y_step; /* the same of y */
    bool large;          /* each matrix is work for all of a device, if rows are many; nothing is copied then */
} pi__head_linear;

/* Matrix i of the op's. */
static inline pi__weight pi__head_matrix(const pi__head_linear *a, int32_t i)
{
    pi__weight w = *a->w;
    w.n_mat = 1;
    w.size = a->w->size / (size_t) a->w->n_mat;
    w.data = (char *) a->w->data + (size_t) i * w.size;
    if (w.scale) w.scale += i;
    return w;
}

/* The products of matrix w of it alone. */
static inline pi__linear pi__head_product(const pi__head_linear *a, const pi__weight *w, int32_t i)
{
    const pi__lin_in in = {PI__IN_PLAIN, a->x + i * a->x_step, a->ldx, 0, 0, 0, 0, 0};
    const pi__lin lin = {w, a->y + i * a->y_step, a->ldy};
    return pi__linear_of(&in, a->n_rows, &lin, 1);
}

/* An lm_head whose rows are sorted into clusters, of which only those are multiplied whose centroids score best:
 * logits[order[c * n + i]] = row i of matrix c times x, for the n_pick best c; every other token gets the least of these
 * values minus 1. n_pick equal scores at the edge: the lower index wins. */
typedef struct pi__centroid_head {
    int32_t n_rows;              /* rows, at most limits.max_rows */
    pi__lin_in in;               /* what all matrices read */
    const pi__weight *centroids; /* [n_mat of head, E]; where head is, and whole like it */
    const pi__weight *head;      /* a matrix of [n, E] for each cluster, without factors */
    const int32_t *order;        /* [n_vocab] token of each row of head: host memory that stays and does not change */
    int32_t n_pick;              /* clusters, at most n_mat and PI__MAX_PICK */
    float *scores;               /* scratch: [n_rows, n_mat] */
    int32_t *pick;               /* scratch: [n_rows, n_pick] */
    float *some;                 /* scratch: [n_rows, n_pick * n] */
    float *logits;               /* [n_rows, n_mat * n] */
} pi__centroid_head;

/* Gated delta rule of a step's tokens: convolution with silu, l2 norm of queries and keys, recurrence, gated norm.
 * Yang et al., "Gated Delta Networks" (arXiv 2412.06464). All sequences of the step at once, through batch.state_slot; one
 * that starts at position 0 starts from zeros. Takes the snapshots of batch.save. C = (2 n_k + n_v) * dim channels, rows q,
 * k, v. */
typedef struct pi__gdn {
    const pi__state_layer *st; /* the layer's states */
    const float *qkv;         /* [n_tokens, C] before the convolution */
    int64_t ld_qkv;           /* floats from row to row */
    const float *z;           /* [n_tokens, n_v * dim] */
    int64_t ld_z;             /* floats from row to row */
    const float *alpha, *beta; /* [n_tokens, n_v] as the projections give them */
    int64_t ld_ab;            /* floats from row to row of both */
    const float *conv;        /* [C, n_conv], the last tap for the current token */
    const float *dt_bias;     /* [n_v] added to alpha before softplus */
    const float *a;           /* [n_v] negative: log decay = a * softplus(alpha + dt_bias) */
    const float *norm;        /* [dim] RMSNorm of each head's result, before it is multiplied by silu(z) */
    float eps;                /* of the RMSNorm and of the l2 norms */
    float *out;               /* [n_tokens, n_v * dim] */
    int64_t ldo;              /* floats from row to row */
    bool grouped;             /* out: value heads of a key head side by side, see pi__gdn_place; else in order */
} pi__gdn;

/* Where out has value head j. */
static inline int32_t pi__gdn_place(int32_t n_k, int32_t n_v, bool grouped, int32_t j)
{
    return grouped ? j % n_k * (n_v / n_k) + j / n_k : j;
}

/* The largest values of rows, for the sampler: only where dev->topk_here says so. out is filled when finish has returned; k
 * below is the largest of request[r].k, or where request is the step's (pi__batch.top) what that says:
 *
 *     word 0      values missing of request[r].k, as so few are above -inf; plus 2^32 if the row holds NaN or +inf
 *     word 1      with request[r].sum: bits of a double, the sum of exp(x - max), for rows that do not
 *     words 2..   ~(bits of the value, ordered as unsigned numbers) << 32 | index, ascending: the largest value first,
 *                 the lower index first of equal ones; zeros are equal, NaN is never among them
 *
 * Before, the values of the first request[r].n_skip of the n_skip indices at skip become -inf, in x; of a row that asks
 * for nothing, neither x nor out is touched. */
typedef struct pi__topk {
    float *x;            /* [n_rows, n] */
    int32_t n_rows;      /* at most limits.max_rows */
    int64_t n;           /* at most limits.n_vocab and PI__MAX_TOP_ROW */
    const int32_t *skip; /* [n_skip] host memory that stays and does not change */
    int32_t n_skip;      /* at most PI__MAX_SKIP */
    const pi__topk_request *request; /* [n_rows] of host_alloc; the device's until finish has returned, as is out. Or those
                                      * of the step: then rows may be more, of padding */
    uint64_t *out;       /* [n_rows, 2 + k] of host_alloc, with the step's requests room for padding, too */
} pi__topk;

/* Outside of a step: the slot's state at pos goes to snapshot snap, which has no effect on it (pos is its last multiple of
 * PI__STATE_CHUNK at or before the end of its verified tokens); or the slot becomes the state that was saved at pos. */
typedef struct pi__state_copy {
    const pi__state_layer *st; /* the layer's states */
    int32_t slot;        /* of a sequence */
    int32_t pos;         /* tokens */
    int32_t snap;        /* index in the pool of snapshots */
} pi__state_copy;

/* ---- the list: name, struct of arguments */

/* What every backend has. */
#define PI__OPS_ALL(OP)                                                                                                 \
    PI__OPS_ROWS(OP)                                                                                                    \
    OP(hyper_pre, pi__hyper)                                                                                            \
    OP(hyper_post, pi__hyper)                                                                                           \
    OP(embed, pi__embed)                                                                                                \
    OP(linear, pi__linear)                                                                                              \
    OP(lora, pi__lora)                                                                                                  \
    OP(lora_embed, pi__lora_embed)                                                                                      \
    OP(block_conv, pi__block_conv)                                                                                      \
    OP(rope, pi__rope)                                                                                                  \
    OP(qkv, pi__qkv)                                                                                                    \
    OP(attention, pi__attention)                                                                                        \
    OP(moe, pi__moe)                                                                                                    \
    OP(head_linear, pi__head_linear)                                                                                    \
    OP(gather_rows, pi__gather_rows)                                                                                    \
    OP(add_rows, pi__add_rows)                                                                                          \
    OP(centroid_head, pi__centroid_head)                                                                                \
    OP(gdn, pi__gdn)                                                                                                    \
    OP(state_save, pi__state_copy)                                                                                      \
    OP(state_load, pi__state_copy)                                                                                      \
    OP(mla_qkv, pi__mla_qkv)                                                                                            \
    OP(compress, pi__compress)                                                                                          \
    OP(indexer, pi__indexer)                                                                                            \
    OP(sparse, pi__sparse)
/* Devices have them, if they say so: of samplers, run where the logits are; several ops as one. */
#define PI__OPS_DEVICE(OP)                                                                                              \
    OP(topk, pi__topk)                                                                                                  \
    OP(experts_layer, pi__experts_layer)
#define PI__OPS(OP) PI__OPS_ALL(OP) PI__OPS_DEVICE(OP)

#define PI__OP_ID(name, type) PI__OP_##name,
typedef enum pi__op_id { PI__OPS(PI__OP_ID) PI__N_OPS } pi__op_id;
#undef PI__OP_ID

struct pi__backend;
/* A backend's ops; NULL: one that it does not have. */
#define PI__OP_FN(name, type) void (*name)(struct pi__backend *be, const pi__batch *b, const type *a);
typedef struct pi__op_fns {
    PI__OPS(PI__OP_FN)
} pi__op_fns;
#undef PI__OP_FN

/* A noted call: the op, its batch, and a copy of its arguments. */
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
