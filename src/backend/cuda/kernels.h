/* Kernels as C functions: what launch_NAME.cu launch, for the CUDA backend and for the kernels' tests.
 *
 * Every function queues work on a stream and returns 0 or the runtime's error code; all pointers in the structs are
 * device memory. Shapes are row-major, slowest first; "ld" is the distance between rows in values. They are
 * batch-invariant, as ops.h says: the order of sums of a row depends on that row's own length alone. */
#ifndef PI__CUDA_KERNELS_H
#define PI__CUDA_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/pack.h"
#include "backend/kernel_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- launch_rows.cu: small ops on rows of floats */

/* The ops that take their struct as it is, with device memory in it. */
#define PI__K_ROW_OP(name, type) int pi__k_##name(void *stream, const type *a);
PI__OPS_ROWS(PI__K_ROW_OP)
#undef PI__K_ROW_OP
/* Op rope, with frequencies on the device. */
int pi__k_rope(void *stream, const int32_t *pos, int32_t n_tokens, const pi__rope *a);
/* As op block_conv has it; seq, seq_start of the batch. */
int pi__k_block_conv(void *stream, const pi__block_conv *a, const int32_t *seq, const int32_t *seq_start, int32_t n_tokens);
/* out[i] = x[row[i]], zeros where that is negative. [n_rows, n] */
int pi__k_gather_rows(void *stream, const float *x, const int32_t *row, int32_t n_rows, int64_t n, float *out);
/* row: in the place of a's, on the device. */
int pi__k_add_rows(void *stream, const pi__add_rows *a, const int32_t *row);

/* ---- launch_top.cu: the largest values of rows, see topk of ops.h */
typedef struct pi__k_top {
    float *x;            /* [n_rows, n] */
    int32_t n_rows, k;   /* k: the most that is asked for */
    int64_t n;           /* at most 2^20 */
    const int32_t *skip; /* indices */
    const int32_t *request; /* [n_rows][3] values wanted, indices to skip, not 0: the sum is wanted */
    int32_t sum;         /* not 0: some row's sum is wanted */
    void *scratch;       /* pi__k_top_scratch() bytes, a multiple of 16 */
    uint64_t *out;       /* [n_rows, 2 + k] */
} pi__k_top;
enum { PI__K_TOP = 256 /* most values */ };
size_t pi__k_top_scratch(int32_t n_rows, int64_t n);
int pi__k_top_run(void *stream, const pi__k_top *a);
/* token[t] = the best of row row[t] of `found`, out of a launch with k 1; 0 where there is none. [n] */
int pi__k_top_tokens(void *stream, const uint64_t *found, const int32_t *row, int32_t n, int32_t *token);

/* ---- the paged cache. A block of a layer: K, then V; each is [n_head_kv][planes of block_size rows of head_dim]. The
 * planes of F32, F16 and BF16: the values. Of others: all codes, then all sides, one for 32 codes, words as
 * cache_types.h has them. Codes of Q8_0 are int8; of the rest, byte j of a group of 32 holds code j in its low and j + 16 in
 * its high nibble. So every row of codes begins at a multiple of 16 bytes, and a block takes the bytes that the format
 * names. */
typedef struct pi__k_cache {
    char *base;         /* block b of the layer is at base + b * stride */
    size_t stride;      /* bytes, a multiple of 16; below 4 GiB */
    int32_t type_k;     /* enum pi__type, one of cache_types.h */
    int32_t type_v;     /* the same, chosen separately */
    int32_t n_head_kv;  /* heads */
    int32_t head_dim;   /* values a head, a multiple of 16 up to 512; of 32 where types have sides. Of rotated types qkv rotates
                         * queries, too; attention gives rotated results where the values are, for turn */
    int32_t block_size; /* tokens a block: 16, 32 or 64; of pi__k_rows any */
} pi__k_cache;

/* ---- launch_qkv.cu: fields as in pi__qkv of ops.h */
typedef struct pi__k_qkv {
    float *q;
    int64_t ldq, q_stride;
    const float *k, *v;  /* NULL: q alone */
    int64_t ldk, ldv;
    int32_t n_head, n_tokens;
    const float *q_bias, *k_bias, *v_bias;
    const float *q_norm, *k_norm;
    int32_t v_norm;
    float eps;
    const float *rope, *q_rope; /* [n_tokens, n_rot] of keys, of queries; NULL both: none */
    int32_t n_rot, pair_stride;
    float q_scale;
    const int32_t *slot; /* [n_tokens] block * block_size + offset; negative: not stored */
    pi__k_cache cache;
} pi__k_qkv;
int pi__k_qkv_run(void *stream, const pi__k_qkv *a);

/* Results of attention over values of a rotated type (cache_rotation.h) are rotated back; only then comes the gate. */
typedef struct pi__k_turn {
    float *out;          /* [n_tokens, n_head * head_dim], in place */
    int64_t ldo;
    const float *gate;   /* multiplies by its sigmoid, or NULL */
    int64_t ldg, gate_stride; /* floats from row to row, from head to head */
    int32_t n_tokens, n_head, head_dim;
} pi__k_turn;
int pi__k_turn_run(void *stream, const pi__k_turn *a);

/* ---- launch_attention.cu: fields as in pi__attention and pi__batch of ops.h; heads of q and out begin at multiples of 8
 * bytes */
typedef struct pi__k_attn {
    const float *q;
    int64_t ldq, q_stride;
    const float *gate;          /* like q, or NULL */
    float *out;
    int64_t ldo;
    int32_t n_head, window, first, past;
    float softcap;
    const float *sinks;         /* [n_head] or NULL */
    int32_t n_tokens, n_seqs;
    const int32_t *pos;         /* [n_tokens] */
    const int32_t *seq_start;   /* [n_seqs + 1] */
    const int32_t *block_table; /* [n_seqs, table_stride] */
    int32_t table_stride;
    int32_t max_keys;           /* most keys that the tokens of a sequence see between them, first to last */
    pi__k_cache cache;
    void *scratch;              /* partial results of KV splits; NULL: keys are never split over blocks */
    size_t scratch_size;        /* bytes: with few of them one kv head is done after the other */
    uint32_t *arrived;          /* with scratch: [2] counters, 0 before and after the launch */
    int32_t n_sm;               /* multiprocessors to fill; 0: never split. A choice of speed alone, no bit depends on it */
    int32_t block, ahead;       /* tokens see their sequence's last one, or the next so many where ahead is not 0 */
    const struct pi__k_tail *tail; /* the last launch's, of in alone, which is PLAIN; or NULL */
    int32_t fast;               /* not 0: q is rounded to f16. 0, and with F32 caches: it is taken as the sum of two */
    int32_t wgmma;              /* not 0: the device has wgmma, with the same bits: many rows go by it, faster, where they can */
    /* Sparse prefill: seq_start and n_seqs are those of runs (pi__runs); else NULL: */
    const int32_t *run_seq;     /* [n_seqs] the sequence of each */
    const int32_t *run_block;   /* [n_seqs] the query block that it is, -1: none */
    const uint32_t *taken;      /* [query blocks, n_head_kv, taken_words] a bit a key block: it is attended to */
    int32_t taken_words;
} pi__k_attn;
int pi__k_attention(void *stream, const pi__k_attn *a);
/* launch_attention_wgmma.cu, for pi__k_attention alone: not 0: it was taken, with this code. */
int pi__k_attention_wgmma(void *stream, const pi__k_attn *a, int *code);
/* Not 0: there is a kernel for heads of this size: 32, 64, 80, 96, 112, 128, 192, 256 or 512. */
int pi__k_attention_has(int32_t head_dim);

/* ---- launch_key_blocks.cu: the key blocks that some query blocks of one sequence, side by side, attend to (PI__SPARSE_BLOCK
 * of ops.h) */
typedef struct pi__k_blocks {
    pi__k_attn a;               /* what attention is to be given: of it q, n_head, softcap, block_table, cache and taken_words */
    float sparsity;
    int32_t seq;                /* the sequence */
    int32_t first_token;        /* of the first query block */
    int32_t first_key;          /* the key block that it is itself: it sees so many before */
    int32_t first_block;        /* its number in taken */
    int32_t n;                  /* query blocks */
    uint32_t *taken;            /* as in pi__k_attn */
    void *scratch;              /* pi__k_blocks_scratch() bytes, a multiple of 16 */
    unsigned long long *counts; /* [2] key blocks attended to, and seen, are added, by kv head; or NULL */
} pi__k_blocks;
size_t pi__k_blocks_scratch(int32_t key_blocks, int32_t query_blocks, int32_t n_head, int32_t n_head_kv, int32_t head_dim);
int pi__k_blocks_run(void *stream, const pi__k_blocks *a);

/* ---- launch_gdn.cu: the gated delta rule (kernels/gdn.cuh says where a state lies) */
typedef struct pi__k_state { /* as pi__state_layer of ops.h */
    char *base;         /* slot i is at base + i * stride; multiples of 16 bytes, as below */
    size_t stride;
    char *snap;         /* snapshot i is at snap + i * snap_stride */
    size_t snap_stride;
    int32_t n_k, n_v, dim, n_draft, n_conv;
    int32_t exact; /* not 0: keys, queries and states are the sum of two F16 in products, else one (kernels/gdn.cuh) */
} pi__k_state;

typedef struct pi__k_gdn { /* fields as in pi__gdn and pi__batch of ops.h */
    const float *qkv;
    int64_t ld_qkv;
    const float *z;
    int64_t ld_z;
    const float *alpha, *beta;
    int64_t ld_ab;
    const float *conv, *dt_bias, *a, *norm;
    float eps;
    float *out;                /* rows are multiples of 16 bytes */
    int64_t ldo;
    int32_t grouped;           /* not 0: as in pi__gdn */
    int32_t n_tokens, n_seqs;
    int32_t least, most;       /* fewest and most tokens that a sequence of the step has: which kernels are launched */
    const int32_t *pos;        /* [n_tokens] */
    const int32_t *seq_start;  /* [n_seqs + 1] */
    const int32_t *n_verified; /* [n_seqs] */
    const int32_t *state_slot; /* [n_seqs]; negative: the sequence is padding, nothing is done for it */
    const int32_t *save_start; /* [n_seqs + 1] */
    const int32_t *save;       /* [save_start[n_seqs]][2] position, snapshot */
    pi__k_state state;
    float *scratch;            /* pi__k_gdn_scratch() bytes */
    int32_t n_sm;              /* multiprocessors to fill, 0: not known. A choice of speed alone, as in pi__k_attn */
    const struct pi__k_tail *tail; /* as of attention; where pi__k_gdn_is_one */
} pi__k_gdn;

/* Bytes of a layer's state in a slot and in a snapshot; 0: there is no kernel for these heads (dim 32, 64, 96 or 128, no
 * fewer value heads than key heads, PI__LEAST_CONV to PI__MOST_CONV taps). */
size_t pi__k_state_bytes(const pi__k_state *st);
size_t pi__k_snapshot_bytes(const pi__k_state *st);
size_t pi__k_gdn_scratch(const pi__k_state *st, int32_t n_tokens);
int pi__k_gdn_run(void *stream, const pi__k_gdn *a);
/* Not 0: it is one launch. */
int pi__k_gdn_is_one(const pi__k_gdn *a);
/* Outside of a step, see state_save and state_load of ops.h. */
int pi__k_state_save(void *stream, const pi__k_state *st, int32_t slot, int32_t pos, int32_t snap);
int pi__k_state_load(void *stream, const pi__k_state *st, int32_t slot, int32_t pos, int32_t snap);

/* ---- of latent attention, and DeepSeek V4. The structs have the op's own (ops.h), whose caches are not read but those beside it */

/* A layer that keeps rows (pi__kv_layer with a ratio). Row r is of tokens r * ratio.. of a sequence. */
typedef struct pi__k_rows {
    pi__k_cache cache;    /* one head, K alone: head_dim values of a row, with zeros up to a multiple of 32; block_size: rows
                           * a block. base NULL: there are none */
    int32_t ratio;        /* tokens a row */
    const int32_t *slot;  /* [n_tokens] of tokens; negative: not stored. NULL: none is */
    const int32_t *table; /* [n_seqs, table_stride] blocks */
    int32_t table_stride;
} pi__k_rows;

/* launch_mla.cu */
typedef struct pi__k_mla_qkv {
    pi__mla_qkv a;
    pi__k_rows rows;
    int32_t n_tokens;
} pi__k_mla_qkv;
int pi__k_mla_qkv_run(void *stream, const pi__k_mla_qkv *a);

typedef struct pi__k_compress {
    pi__compress a;       /* freq: device memory */
    pi__k_rows recent, entries;
    int32_t n_tokens;
    const int32_t *pos, *seq; /* [n_tokens] */
} pi__k_compress;
int pi__k_compress_run(void *stream, const pi__k_compress *a);

/* launch_indexer.cu */
typedef struct pi__k_indexer {
    pi__indexer a;
    pi__k_rows entries;
    int32_t n_tokens;
    const int32_t *pos, *seq; /* [n_tokens] */
    int32_t most;         /* most entries that a token sees */
    void *scratch;
    size_t scratch_size;  /* bytes, at least pi__k_indexer_scratch() of one token: how many tokens go at once */
    int32_t n_sm;         /* as in pi__k_attn */
    const float *rope;    /* not NULL: op mla_qkv, with these of its fields and without a norm, is yet to be done with the queries */
    int32_t n_rot;
    float q_scale;
} pi__k_indexer;
size_t pi__k_indexer_scratch(int32_t most); /* of a token that sees so many entries */
int pi__k_indexer_run(void *stream, const pi__k_indexer *a);

/* launch_sparse.cu, launch_latent.cu */
/* Results of op sparse as heads' own matrices read them: those of each `heads` heads of a token, a group, are a row in the form of
 * pi__k_w16_prepare. Group g's row of token t is row g * rows + t of words + g * step, with its factor at factor + g * step. */
typedef struct pi__k_groups {
    char *words, *factor; /* words NULL: results are floats, at out */
    size_t step;          /* bytes */
    int32_t rows;
    int32_t heads;        /* PI__K_MOST_GROUPED at most, a power of two that divides n_head; heads of 32 n values, all of them results */
    int32_t bf16;         /* as pi__k_w16_input says of the matrices' type */
} pi__k_groups;
enum { PI__K_MOST_GROUPED = 8 };
typedef struct pi__k_sparse {
    pi__sparse a;
    pi__k_rows rows, entries;
    int32_t n_tokens;
    const int32_t *pos, *seq; /* [n_tokens] */
    int32_t most;         /* most rows that a token attends to */
    void *scratch;        /* as in pi__k_attn */
    size_t scratch_size;
    int32_t n_sm;
    int32_t fast;         /* not 0: q and P of rows of more than 512 values are rounded to f16. 0, and with F32 caches: they are the
                           * sums of two, as those of shorter rows are */
    int32_t raw;          /* not 0: op mla_qkv, with these of its fields and the results' rotation, is yet to be done with the queries,
                           * of PI__K_RAW_QUERIES values at most */
    int32_t q_norm;
    float q_scale, eps;
    pi__k_groups groups;
} pi__k_sparse;
int pi__k_sparse_run(void *stream, const pi__k_sparse *a);

/* ---- routed experts. A pair is a row and one of its experts; columns are the pairs sorted by expert, then by row */

#define PI__K_LEAST_SUM 6.1e-5f /* of routing weights, before they are divided by it */

typedef struct pi__k_tile {
    int32_t expert;
    int32_t first; /* column */
    int32_t n;     /* columns */
} pi__k_tile;

/* Where pairs go. All but logits is written by pi__k_route, or a tail, and read by the others. */
typedef struct pi__k_routes {
    const float *logits;  /* [n_rows, n_expert] */
    int64_t ldl;
    int32_t n_rows, n_expert, n_used;
    float weights_scale;
    int32_t gating;       /* PI__GATE_* of ops.h; bias, table and token are of SQRT_SOFTPLUS */
    const float *bias;    /* as of pi__moe, or NULL */
    const int32_t *table; /* [any, n_used] experts of each token, or NULL */
    const int32_t *token; /* [n_rows], with table */
    int32_t *id;          /* [n_rows, n_used] experts by rank, the best first, equal ones by index; or the table's */
    float *weight;        /* [n_rows, n_used] gates, divided by the sum of those used, times weights_scale */
    int32_t *column;      /* [n_rows, n_used] of the pair */
    int32_t *row;         /* [n_rows * n_used] of the column */
    pi__k_tile *tile[3];  /* [pi__k_max_tiles] each: of up to 8, 32, 64 columns; NULL: none, as of centroid heads */
    int32_t *n_tile;      /* [3] how many there are */
    uint32_t *marks;      /* [pi__k_marks] work of pi__k_route */
    int32_t *first;       /* [pi__k_marks] the same */
} pi__k_routes;

enum { PI__K_ROUTER_ROWS = 32 }; /* most rows that a tail finds routes for, of at most PI__MAX_EXPERTS experts */

/* y[row] = the sum of weight * (x[column] + bias) over the row's experts, by rank; then, where there is one, sigmoid(gate) * shared
 * more. */
typedef struct pi__k_sum {
    int32_t n_rows, n_used;
    const int32_t *column; /* [n_rows, n_used] of routes, as weight */
    const float *weight;
    const float *x;        /* [n_rows * n_used, n] */
    const float *bias;     /* [n_expert, ldb] added to x, by the pair's expert in id [n_rows, n_used]; or NULL */
    const int32_t *id;
    int64_t ldb;
    int64_t n;
    float *y;              /* [n_rows, n] */
    int64_t ldy;
    const float *shared;   /* [n_rows, n], or NULL */
    const float *gate;     /* [n_rows] */
    int64_t ldg;
} pi__k_sum;

/* ---- launch_expert_choice.cu: the choice that pi__moe of ops.h has with groups, or without division by the sum: a table of
 * experts by row, and then what pi__k_route leaves, by that table, but for weights, which are these */
typedef struct pi__k_expert_choice {
    pi__k_routes r;       /* as for pi__k_route, without table */
    int32_t n_group, n_group_used; /* as of pi__moe */
    int32_t undivided;
    int32_t *table;       /* [n_rows, n_used] experts of each row, by rank */
    int32_t *token;       /* [n_rows] 0, 1, 2 .. */
    float *weight;        /* [n_rows, n_used] as of pi__k_routes, or gates times weights_scale */
} pi__k_expert_choice;
int pi__k_expert_choice_run(void *stream, const pi__k_expert_choice *a);

/* ---- launch_head_linear.cu: what is around the products of op head_linear, which are those of experts: column h * n_rows + r is
 * row r's of head h */
typedef struct pi__k_head_rows {
    int32_t n_rows, n_head;
    const float *x;       /* as in pi__head_linear */
    int64_t ldx, x_step;
    int64_t n_in, n_out;  /* columns and rows of a matrix */
    int32_t n_tail;
    float *y;
    int64_t ldy, y_step;
    float *column;        /* head_rows: [n_head * n_rows, n_in] of x, written, or NULL; put_heads: [n_head * n_rows, n_out], read */
    pi__k_tile *tile[3];  /* head_rows: as of pi__k_routes, written */
    int32_t *n_tile;      /* [3] */
} pi__k_head_rows;
int pi__k_head_rows_run(void *stream, const pi__k_head_rows *a);
int pi__k_put_heads(void *stream, const pi__k_head_rows *a);

/* ---- launch_linear.cu: matrices, packed as pack.h says */
typedef struct pi__k_matrix {
    const uint8_t *data;  /* of one matrix */
    pi__cuda_shape shape; /* as it was packed */
    int32_t type;         /* enum pi__type */
    int64_t n_in, n_out;  /* columns, rows */
    const float *scale;   /* factor of the result, or NULL */
} pi__k_matrix;

/* The input of matrices, as in pi__lin_in of ops.h: kind is PI__IN_*. */
typedef struct pi__k_input {
    int32_t kind;
    const float *x;
    int64_t ldx;
    const float *x2;
    int64_t ldx2;
    const float *w;
    float eps;
    float limit; /* see pi__lin_in; 0: none */
} pi__k_input;

/* x = (x + y + bias) * scale, or with y's norm where there is w, as pi__add_norm of ops.h; fresh: x = y's norm, as pi__norm. x and
 * y of rows of n. */
typedef struct pi__k_add {
    float *x;            /* NULL: nothing is added */
    const float *y, *w, *bias; /* w, bias: [n] or NULL */
    float eps, scale;
    int32_t fresh;
    int32_t made;        /* x is what the launch makes before its tail, or this would be added to before; it is read as late as y */
    int64_t n;
} pi__k_add;

/* What the blocks of a launch that are the last to end do for all: y is summed up from what experts give; rows are added, or
 * normed, one such thing behind the other; then the input of the next matrices is prepared from what is there
 * (kernels/tail.cuh). */
enum { PI__K_TAIL_ADDS = 2, PI__K_TAIL_NEAR = 7 /* kinds of values (kernels/tail.cuh) */ };
typedef struct pi__k_tail {
    uint32_t *arrived;   /* a counter, 0 before and after the launch; NULL: there is no tail */
    int32_t n_sm;        /* multiprocessors, 0: not known. How many blocks may stay, a choice of speed alone */
    int32_t n_rows;      /* of sum, add and in; PI__K_TAIL_ROWS at most, of pi__k_finish_rows any */
    pi__k_sum sum;       /* its y is the first addition's, or nothing is added; n_used 0: there is none */
    pi__k_add add[PI__K_TAIL_ADDS]; /* the second only behind a first */
    pi__k_input in;      /* what is prepared */
    int64_t n_in;        /* its columns */
    void *integers, *floats, *halves; /* where, as pi__k_prepare and pi__k_w16_prepare have it, or NULL; rows behind the last are
                                       * not written */
    int32_t bf16;        /* of halves */
    void *fp4;           /* or NULL: as pi__k_fp4_prepare has it for matrices of fp4_type, with fp8 as pi__k_w4a8_prepare */
    int32_t fp4_type, fp8;
    void *terms;         /* or NULL: as pi__k_mma16_prepare has it for matrices of terms_type, F16 or BF16; not of pi__k_attention and
                          * pi__k_gdn */
    int32_t terms_type;
    pi__k_qkv qkv;       /* instead of all that: heads of the products' rows; n_tokens 0: none */
    pi__k_routes routes; /* of pi__k_mixed_linear, besides: where its results, logits, send rows; n_rows 0: nowhere */
    int32_t near[PI__K_TAIL_NEAR]; /* where in shared memory copies of a row's values are, or 0; set where it is launched */
    int32_t all_near;              /* one addition and its norm have all of theirs there, and are wanted in floats or halves alone */
} pi__k_tail;
/* The most rows, and the blocks that have room to stay on any device. */
enum { PI__K_TAIL_ROWS = 32, PI__K_TAIL_STAY = 8 };
/* launch_tail.cu: that, as a launch of its own; arrived is not used. */
int pi__k_finish_rows(void *stream, const pi__k_tail *t);

/* Bytes of n_rows prepared rows, for packed types or (floats) for F32, F16 and BF16. */
size_t pi__k_prepared_bytes(int32_t n_rows, int64_t n_in, int floats);
/* Norm or gate, then rounding to 15 bits in blocks of 32 (or floats as they are): once for all matrices that read it. */
int pi__k_prepare(void *stream, const pi__k_input *in, int32_t n_rows, int64_t n_in, int floats, void *prepared);
/* y = W x for n_rows prepared rows; y [n_rows, n_out]. */
typedef struct pi__k_product {
    pi__k_matrix w;
    float *y;
    int64_t ldy;
    float add;            /* not 0: y = (y + W x) * add, where pi__k_w16_adds() or pi__k_fp4_adds() says so */
} pi__k_product;
enum { PI__K_MOST_LINEAR = 4 };
/* n products, at most PI__K_MOST_LINEAR, with matrices of the same type and as many columns. */
int pi__k_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows);
/* And then a tail, where there are no more than PI__K_TAIL_ROWS, of types that are not floats. */
int pi__k_linear_then(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows, const pi__k_tail *t);
/* launch_mixed.cu: the same for matrices of several types, one launch with the bits of one for each type: F32, times rows of
 * floats, at most PI__K_ROUTER_ROWS, or F16 or BF16 (as pi__k_mma16_has them), whose prepared rows are at floats, times at most
 * PI__K_MIXED_ROWS; and those that pi__k_w16_has, times as many, in one of the two prepared forms. A tail that has routes alone is for
 * as many rows as F32 is. */
enum { PI__K_MOST_MIXED = 8, PI__K_MIXED_ROWS = 32 };
int pi__k_mixed_linear(void *stream, const pi__k_product *w, int32_t n, const void *halves, const float *floats, int32_t n_rows,
                       const pi__k_tail *t);
/* launch_fp4.cu: the same for NVFP4 and MXFP4 matrices with x in the matrix's own format, where the device can (sm_120,
 * sm_121). */
size_t pi__k_fp4_prepared_bytes(int32_t n_rows, int64_t n_in);
int pi__k_fp4_prepare(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared);
int pi__k_fp4_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows);
int pi__k_fp4_linear_then(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows, const pi__k_tail *t);
/* The same for MXFP4 with x in MXFP8 (e4m3). As much room for x. */
int pi__k_w4a8_prepare(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared);
/* Products with so many rows can be added to what y holds, in either. */
int pi__k_fp4_adds(int32_t n_rows);
int pi__k_w4a8_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows);
int pi__k_w4a8_linear_then(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows, const pi__k_tail *t);
/* launch_fp4_glu.cu: gate and up of one type and shape, as matrices or one below the other, in either way: act(gate x) * up x
 * goes to mid, the input of a matrix of that type in the same way. */
typedef struct pi__k_glu {
    pi__k_matrix gate;    /* n_out: a multiple of 64, of MXFP4 of 32 */
    const uint8_t *up;
    const float *up_scale; /* as gate.scale */
    int32_t act;          /* PI__IN_* of ops.h */
    float limit;          /* as in pi__k_input */
    int32_t fp8;          /* W4A8 */
    uint32_t *arrived;    /* as of a tail */
    void *mid;            /* [n_rows, n_out], not where x is; rows behind the last are not written */
} pi__k_glu;
int pi__k_fp4_glu(void *stream, const pi__k_glu *a, const void *prepared, int32_t n_rows);
/* Scales of such rows of NVFP4, n columns each, as long as they are not bytes. */
int pi__k_fp4_end(void *stream, void *mid, int64_t n_rows, int64_t n);
/* launch_w16.cu: the same with 16-bit tensor cores: weights and x are rounded to F16 (of MXFP4: BF16), for the types that it
 * has; as pi__k_linear. input: which of the two prepared forms the type's x has. */
int pi__k_w16_has(int32_t type);
int pi__k_w16_input(int32_t type);
/* Products with so many rows can be added to what y holds, by mma.sync as by wgmma. */
int pi__k_w16_adds(int32_t n_rows);
size_t pi__k_w16_prepared_bytes(int32_t n_rows, int64_t n_in);
size_t pi__k_w16_factor_bytes(int32_t n_rows); /* the last of these: factors, floats */
int pi__k_w16_prepare(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared);
int pi__k_w16_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows);
int pi__k_w16_linear_then(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows, const pi__k_tail *t);
/* launch_wgmma.cu: the same products by wgmma, x as pi__k_w16_prepare has it, where the device has that (sm_90); the same bits
 * (selftest_wgmma.c), faster with more rows than PI__K_MMA_ROWS. n_sm: multiprocessors of the device. */
enum { PI__K_MMA_ROWS = 64 };
int pi__k_wgmma_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows, int32_t n_sm);
/* launch_mma16.cu: the same for F16 and BF16 matrices with 16-bit tensor cores, exact as with floats; has: there is
 * one for such. */
int pi__k_mma16_has(int32_t type, int64_t n_in);
size_t pi__k_mma16_prepared_bytes(int32_t type, int32_t n_rows, int64_t n_in);
int pi__k_mma16_prepare(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared);
int pi__k_mma16_linear(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y, int64_t ldy);
/* launch_hilo.cu: the input of a library's products with such matrices (blas.h): x as hi + lo of w's type, [2][n_rows,
 * n_in], hi first; and their epilogue, the factors of y. */
size_t pi__k_hilo_bytes(int32_t n_rows, int64_t n_in);
int pi__k_hilo_prepare(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared);
int pi__k_hilo_finish(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y, int64_t ldy);
/* out[i] = row token[i] of w, times scale. [n_tokens, n_in] */
int pi__k_embed(void *stream, const pi__k_matrix *w, const int32_t *token, int32_t n_tokens, float scale, float *out);

/* ---- launch_moe*.cu: routed experts */

/* Most tiles of a list (0..2) that there can be: an expert has one for what is left of full ones, if anything. */
int32_t pi__k_max_tiles(int32_t n_rows, int32_t n_expert, int32_t n_used, int list);
/* Words that sorting so many rows takes; 0: none, as it is done in one block. */
size_t pi__k_marks(int32_t n_rows, int32_t n_expert);
int pi__k_route(void *stream, const pi__k_routes *a);
/* One matrix an expert, or two of the same shape and type. */
typedef struct pi__k_experts {
    pi__k_matrix w;         /* of expert 0; the next is shape.mat_bytes on; scale: a factor an expert, or NULL */
    const uint8_t *data2;   /* the second ones, or NULL */
    const float *scale2;    /* as scale */
    const int32_t *row;     /* [n_rows * n_used] prepared row of a column (routes.row); NULL: columns are prepared */
    float *y, *y2;          /* [n_rows * n_used, n_out] by column; of the second */
    int64_t ldy;
    int32_t n_sm;           /* multiprocessors to fill, 0: not known. A choice of speed alone, as in pi__k_attn */
    void *mid;              /* pi__k_w16_experts, pi__k_fp4_experts, pi__k_w4a8_experts: not NULL: act(y) * y2 goes there, as
                             * pi__k_w16_mid has it, or pi__k_fp4_prepare or pi__k_w4a8_prepare; y is not written */
    uint32_t *arrived;      /* with mid, in FP4: as of a tail */
    int32_t mid_type, act;  /* of the matrices that read mid; PI__IN_* of ops.h */
    float limit;            /* as in pi__k_input */
} pi__k_experts;
/* y = W x by column; prepared has n_rows rows, or as many as there are columns. */
int pi__k_experts_run(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared);
/* The same for NVFP4 and MXFP4 with x as pi__k_fp4_prepare rounds it. */
int pi__k_fp4_experts(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared);
int pi__k_w4a8_experts(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared); /* MXFP4 */
/* The same for F16 and BF16 that pi__k_mma16_has, with x as pi__k_mma16_prepare has it. */
int pi__k_mma16_experts(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared);
/* The same for the types that pi__k_w16_has, with x as pi__k_w16_prepare has it. */
int pi__k_w16_experts(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared);
/* The same of columns with a factor for 32 values: what gate and up make, for down. mid: from floats by column, gated. */
size_t pi__k_w16_mid_bytes(int64_t n_columns, int64_t n_in);
int pi__k_w16_mid(void *stream, const pi__k_input *in, int32_t type, int32_t n_columns, int64_t n_in, void *mid);
int pi__k_w16_down(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *mid);
int pi__k_add_experts(void *stream, const pi__k_sum *a);
/* h [n_rows * n_used, 2 n] by column: each half gets the bias of the pair's expert, [n_expert, n]. */
int pi__k_add_biases(void *stream, const pi__k_routes *r, float *h, const float *bias, const float *bias2, int64_t n);

/* ---- launch_centroid_head.cu: lm_heads of which only some clusters of rows are multiplied, see pi__centroid_head of
 * ops.h */
typedef struct pi__k_centroids {
    const float *scores;  /* [n_rows, n_mat] of the centroids */
    int32_t n_rows, n_mat, n_pick;
    int64_t n;            /* rows a cluster */
    int32_t *pick;        /* [n_rows, n_pick] the best clusters, by rank; written by pi__k_pick_centroids */
    const float *some;    /* [n_rows, n_pick, n] logits of their rows */
    const int32_t *order; /* [n_mat * n] token of each row */
    float *logits;        /* [n_rows, n_mat * n] */
} pi__k_centroids;
enum { PI__K_MOST_PAIRS = 65535 }; /* rows times picks */
/* The clusters that each row picks, also as routes: of r row, n_tile and tile[0], a tile for each pair, are written. */
int pi__k_pick_centroids(void *stream, const pi__k_centroids *a, const pi__k_routes *r);
/* Scatters their logits to their tokens, the least minus 1 to all others. */
int pi__k_scatter_logits(void *stream, const pi__k_centroids *a);

#ifdef __cplusplus
}
#endif

#endif
