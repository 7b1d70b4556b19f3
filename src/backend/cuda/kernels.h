/* Kernels as C functions: the interface of launch_NAME.cu, for the CUDA backend and the kernel tests.
 *
 * Every function queues work on a stream and returns 0 or the runtime's error code. All pointers in the structs are
 * device memory. Shapes are row-major, slowest dimension first; "ld" is the distance between rows in values. The
 * kernels are batch-invariant (see ops.h): the order of a row's sums depends only on that row's length. */
#ifndef PI__CUDA_KERNELS_H
#define PI__CUDA_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/pack.h"
#include "backend/kernel_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In launches with arrival counters, the last blocks to arrive may wait for the others, and divide the remaining work
 * among them. Results are bitwise identical for any limit. All 0 = the last block does that work, and none waits. */
typedef struct pi__k_waits {
    int32_t places; /* max blocks that stay: pi__rt_info.places of the device, or fewer (places.h) */
    /* a block that waited too long writes 1 here (pi__rt_info.stuck), and continues with incomplete results. NULL = it
     * continues without a report */
    uint32_t *stuck;
} pi__k_waits;

/* ---- launch_rows.cu: small ops on rows of floats */

/* Ops that use their struct unchanged, with device pointers in it. */
#define PI__K_ROW_OP(name, type) int pi__k_##name(void *stream, const type *a);
PI__OPS_ROWS(PI__K_ROW_OP)
#undef PI__K_ROW_OP
/* Op rope; the frequencies are in device memory. rope_pos: as in pi__batch, NULL = pos. */
int pi__k_rope(void *stream, const int32_t *pos, const int32_t *rope_pos, int32_t n_tokens, const pi__rope *a);
/* Op block_conv, with seq and seq_start of the batch. */
int pi__k_block_conv(void *stream, const pi__block_conv *a, const int32_t *seq, const int32_t *seq_start,
                     int32_t n_tokens);
/* out[i] = x[row[i]], or zeros where row[i] is negative. [n_rows, n] */
int pi__k_gather_rows(void *stream, const float *x, const int32_t *row, int32_t n_rows, int64_t n, float *out);
/* Op place_rows. `row` is the device copy of a->row and replaces it. */
int pi__k_place_rows(void *stream, const pi__place_rows *a, const int32_t *row);
/* Op add_rows. `row` is the device copy of a->row and replaces it. */
int pi__k_add_rows(void *stream, const pi__add_rows *a, const int32_t *row);

/* ---- launch_top.cu: the largest values of rows, see topk of ops.h */
typedef struct pi__k_top {
    float *x;            /* [n_rows, n]; -inf is written to the skipped indices */
    int32_t n_rows, k;   /* k: max over the rows' requests */
    int64_t n;           /* at most 2^20 */
    const int32_t *skip; /* indices to skip, shared by all rows; row r skips the first request[3 r + 1] of them */
    /* [n_rows][3] as in pi__topk_request: number of values; number of indices to skip; not 0: also the sum */
    const int32_t *request;
    int32_t sum;         /* not 0: at least one row requests its sum */
    void *scratch;       /* pi__k_top_scratch() bytes, aligned to 16 bytes */
    uint64_t *out;       /* [n_rows, 2 + k] as in pi__topk */
} pi__k_top;
enum { PI__K_TOP = 256 /* max values per row */ };
size_t pi__k_top_scratch(int32_t n_rows, int64_t n);
int pi__k_top_run(void *stream, const pi__k_top *a);
/* token[t] = best index of row row[t] of `found`, or 0 if that row has none; t < n. `found` is the output of pi__k_top
 * with k = 1, or of pi__k_draw. */
int pi__k_top_tokens(void *stream, const uint64_t *found, const int32_t *row, int32_t n, int32_t *token);

/* ---- the paged cache. A layer's block holds K, then V; each is [n_head_kv][planes of block_size rows of head_dim].
 *
 *     F32, F16, BF16   the values
 *     other types      all codes, then all scales: one word per 32 codes, as in cache_types.h
 *
 * Codes of Q8_0 are int8. In other types, byte j of a group of 32 holds code j in its low and code j + 16 in its high
 * nibble. So every row of codes starts at a multiple of 16 bytes, and a block has the size that the format
 * specifies. */
typedef struct pi__k_cache {
    char *base;         /* block b of the layer is at base + b * stride */
    size_t stride;      /* bytes, a multiple of 16; below 4 GiB */
    int32_t type_k;     /* enum pi__type, one of cache_types.h */
    int32_t type_v;     /* as type_k, chosen separately */
    int32_t n_head_kv;  /* KV heads */
    /* values per head: a multiple of 16 up to 512, or of 32 for types with scales. For rotated types qkv also rotates
     * queries; attention returns results in the rotated basis of the values, for pi__k_unrotate */
    int32_t head_dim;
    int32_t block_size; /* tokens per block: 16, 32 or 64; any number in pi__k_rows */
} pi__k_cache;

/* ---- launch_qkv.cu: fields as in pi__qkv of ops.h */
typedef struct pi__k_qkv {
    float *q;
    int64_t ldq, q_stride;
    const float *k, *v;  /* NULL = only q is processed, nothing is stored */
    int64_t ldk, ldv;
    int32_t n_head, n_tokens;
    const float *q_bias, *k_bias, *v_bias;
    const float *q_norm, *k_norm;
    int32_t v_norm;
    int32_t norm_last;
    float eps;
    const float *rope, *q_rope; /* [n_tokens, n_rot] of keys; of queries. Both NULL = no rotation */
    int32_t n_rot, pair_stride;
    float q_scale;
    const int32_t *slot; /* [n_tokens] block * block_size + offset; negative = not stored */
    pi__k_cache cache;
} pi__k_qkv;
int pi__k_qkv_run(void *stream, const pi__k_qkv *a);

/* After attention to values of a rotated type (cache_rotation.h): rotates the results back, then applies the gate. */
typedef struct pi__k_unrotate {
    float *out;          /* [n_tokens, n_head * head_dim], in place */
    int64_t ldo;
    const float *gate;   /* the result is multiplied by its sigmoid; NULL = no gate */
    int64_t ldg, gate_stride; /* floats between rows; between heads */
    int32_t n_tokens, n_head, head_dim;
} pi__k_unrotate;
int pi__k_unrotate_run(void *stream, const pi__k_unrotate *a);

/* ---- launch_attention.cu: fields as in pi__attention and pi__batch of ops.h; heads of q and out start at multiples
 * of 8 bytes */
typedef struct pi__k_attn {
    const float *q;
    int64_t ldq, q_stride;
    const float *gate;          /* like q, or NULL */
    float *out;
    int64_t ldo;
    int32_t n_head, window, first, past;
    float softcap;
    const float *sinks;         /* [n_head] or NULL */
    const float *rel;           /* [n_head, n_rel] or NULL */
    int32_t n_rel;
    int32_t n_tokens, n_seqs;
    const int32_t *pos;         /* [n_tokens] */
    const int32_t *seq_start;   /* [n_seqs + 1] */
    /* [n_seqs] with block: keys of each sequence; NULL = up to its last token */
    const int32_t *seq_len;
    const int32_t *block_table; /* [n_seqs, table_stride] block ids */
    int32_t table_stride;
    int32_t max_keys;           /* max over sequences: keys from the first one that a token sees to its last token's */
    pi__k_cache cache;
    void *scratch;              /* partial results of KV splits; NULL = no KV splits */
    size_t scratch_size;        /* bytes; if too small for all KV heads, each of several launches has some of them */
    uint32_t *arrived;          /* with scratch: [2] arrival counters, 0 before and after the launch */
    pi__k_waits waits;          /* with scratch */
    int32_t n_sm;               /* SMs to fill; 0 = no KV splits. Affects speed only; results are bitwise identical */
    /* block not 0: tokens also see the later keys of their sequence; if `ahead` is not 0, only the next `ahead` of
     * these keys */
    int32_t block, ahead;
    const int32_t *see_to;      /* [n_tokens] as in pi__batch; NULL = none */
    /* epilogue of the last launch, or NULL. It may only pack `in`, which must be of kind PLAIN */
    const struct pi__k_tail *tail;
    /* not 0: q is rounded to F16. 0, and always with F32 caches: q is a hi + lo sum of two F16 */
    int32_t fast;
    /* not 0: the device has wgmma. Launches with many rows use it where they can; results are bitwise identical */
    int32_t wgmma;
    /* Sparse prefill only, else NULL. seq_start and n_seqs then describe runs (pi__runs): */
    const int32_t *run_seq;     /* [n_seqs] sequence of each run */
    const int32_t *run_block;   /* [n_seqs] query block of each run; -1 = not a query block */
    const uint32_t *taken;      /* [query blocks, n_head_kv, taken_words] one bit per key block that is attended to */
    int32_t taken_words;
} pi__k_attn;
int pi__k_attention(void *stream, const pi__k_attn *a);
/* launch_attention_wgmma.cu, called by pi__k_attention only. Returns not 0 if it queued the launch; *code is then the
 * launch's error code. Returns 0, and queues nothing, if mma.sync is to be used. */
int pi__k_attention_wgmma(void *stream, const pi__k_attn *a, int *code);
/* Returns not 0 if a kernel for this head size exists: 32, 64, 80, 96, 112, 128, 192, 256 or 512. */
int pi__k_attention_has(int32_t head_dim);

/* ---- launch_key_blocks.cu: selects the key blocks of adjacent query blocks of one sequence (PI__SPARSE_BLOCK in
 * kernel_args.h) */
typedef struct pi__k_blocks {
    /* the layer's arguments of attention; q, n_head, softcap, block_table, cache and taken_words are read */
    pi__k_attn a;
    float sparsity;             /* threshold of the scores, see PI__SPARSE_BLOCK */
    int32_t seq;                /* sequence of the query blocks: index in the batch */
    int32_t first_token;        /* token of the batch with which the first query block starts */
    /* key block at the position of the first query block: the number of key blocks before it */
    int32_t first_key;
    int32_t first_block;        /* index of the first query block in `taken` */
    int32_t n;                  /* query blocks */
    uint32_t *taken;            /* as in pi__k_attn */
    void *scratch;              /* pi__k_blocks_scratch() bytes, aligned to 16 bytes */
    /* [2] counters of (key block, query block, KV head) triples. Each launch adds the number attended to; the number
     * visible. NULL = not counted */
    unsigned long long *counts;
} pi__k_blocks;
size_t pi__k_blocks_scratch(int32_t key_blocks, int32_t query_blocks, int32_t n_head, int32_t n_head_kv,
                            int32_t head_dim);
int pi__k_blocks_run(void *stream, const pi__k_blocks *a);

/* ---- launch_gdn.cu: the gated delta rule, Mamba-2 and Kimi delta attention (kernels/gdn.cuh and ssd_kernels.cuh:
 * layouts of states) */
typedef struct pi__k_state { /* as pi__state_layer of ops.h */
    /* slot i is at base + i * stride; base, stride, snap and snap_stride are multiples of 16 bytes */
    char *base;
    size_t stride;
    char *snap;         /* snapshot i is at snap + i * snap_stride */
    size_t snap_stride;
    int32_t n_k, n_v, dim, n_draft, n_conv;
    /* not 0: products use keys, queries and states as hi + lo sums of two F16; else one F16 (kernels/gdn.cuh) */
    int32_t exact;
    int32_t dim_v, ssd, kda; /* dim_v is read only with ssd or kda */
} pi__k_state;

typedef struct pi__k_gdn { /* fields as in pi__gdn and pi__batch of ops.h */
    const float *qkv;
    int64_t ld_qkv;
    const float *z;
    int64_t ld_z;
    const float *alpha, *beta;
    int64_t ld_ab;
    const float *conv, *dt_bias, *a, *norm;
    const float *conv_bias, *skip; /* with ssd */
    float min_decay;           /* with kda */
    float eps;
    float *out;                /* rows start at multiples of 16 bytes */
    int64_t ldo;
    int32_t grouped;           /* not 0: out has the value heads of a key head adjacent, as in pi__gdn */
    int32_t n_tokens, n_seqs;
    int32_t least, most;       /* min and max tokens of a sequence in the step: they select the kernels */
    const int32_t *pos;        /* [n_tokens] */
    const int32_t *seq_start;  /* [n_seqs + 1] */
    const int32_t *n_verified; /* [n_seqs] */
    const int32_t *state_slot; /* [n_seqs]; negative = padding, nothing is done for the sequence */
    const int32_t *save_start; /* [n_seqs + 1] */
    const int32_t *save;       /* [save_start[n_seqs]][2] position; snapshot index */
    pi__k_state state;
    float *scratch;            /* pi__k_gdn_scratch() bytes */
    int32_t n_sm;              /* SMs to fill; 0 = unknown. Affects speed only, as in pi__k_attn */
    const struct pi__k_tail *tail; /* epilogue, as in pi__k_attn; only if pi__k_gdn_has_tail() */
} pi__k_gdn;

/* Return the bytes of a layer's state in a slot, and in a snapshot. 0 = no kernel for these heads. Supported: dim 32,
 * 64, 96 or 128, at least as many value heads as key heads, PI__MIN_CONV to PI__MAX_CONV taps. With ssd: dim 32, 64,
 * 128 or 256, dim_v a multiple of 16 up to 256. With kda: dim 32, 64 or 128, as many value heads as key heads. */
size_t pi__k_state_bytes(const pi__k_state *st);
size_t pi__k_snapshot_bytes(const pi__k_state *st);
size_t pi__k_gdn_scratch(const pi__k_state *st, int32_t n_tokens);
int pi__k_gdn_run(void *stream, const pi__k_gdn *a);
/* Returns not 0 if the launch for these arguments can have an epilogue: Mamba-2, or a delta net that is one launch. */
int pi__k_gdn_has_tail(const pi__k_gdn *a);
/* Ops state_save and state_load (ops.h), queued outside of a step: copy the state at position pos from a slot to a
 * snapshot, or back. */
int pi__k_state_save(void *stream, const pi__k_state *st, int32_t slot, int32_t pos, int32_t snap);
int pi__k_state_load(void *stream, const pi__k_state *st, int32_t slot, int32_t pos, int32_t snap);

/* ---- latent attention and DeepSeek V4. Each struct contains the op's own struct (ops.h). The kernels do not read its
 * pi__kv_layer pointers; they read the pi__k_rows fields */

/* A layer that stores rows (pi__kv_layer with a ratio). Row r of a sequence is for the `ratio` tokens from r * ratio
 * on. */
typedef struct pi__k_rows {
    /* one head, K only: head_dim values per row, zero-padded to a multiple of 32; block_size = rows per block. base
     * NULL = no rows */
    pi__k_cache cache;
    int32_t ratio;        /* tokens per row */
    const int32_t *slot;  /* [n_tokens] slot that the token is stored to; negative = none. NULL = nothing is stored */
    const int32_t *table; /* [n_seqs, table_stride] block ids */
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
    int32_t most;         /* max entries that a token of the step sees */
    void *scratch;
    size_t scratch_size;  /* bytes, at least pi__k_indexer_scratch() for one token; limits the tokens per pass */
    int32_t n_sm;         /* as in pi__k_attn */
    const float *rope;    /* not NULL: apply op mla_qkv to the queries first, with these fields and without a norm */
    int32_t n_rot;
    float q_scale;
} pi__k_indexer;
size_t pi__k_indexer_scratch(int32_t most); /* bytes per token that sees `most` entries */
int pi__k_indexer_run(void *stream, const pi__k_indexer *a);

/* launch_sparse.cu, launch_latent.cu */
/* Packed results of op sparse, in the layout that op head_linear reads. A group is `heads` adjacent heads of a token;
 * its values are one row in the format of pi__k_w16_pack_x. For group g and token t this is row g * rows + t of the
 * buffer at words + g * step; its factor is float g * rows + t at factor + g * step. */
typedef struct pi__k_groups {
    char *words, *factor; /* words NULL = unpacked floats, at `out` */
    size_t step;          /* bytes between the buffers of two groups; 0 = all groups share one buffer */
    int32_t rows;         /* rows per group in the shared buffer; 0 = each group has its own buffer */
    /* heads per group: a power of two up to PI__K_MAX_GROUPED that divides n_head. Requires dim_v = dim, a multiple of
     * 32 */
    int32_t heads;
    int32_t bf16;         /* not 0: values are BF16; 0 = F16 (pi__k_w16_input() of the matrices' type) */
} pi__k_groups;
enum { PI__K_MAX_GROUPED = 8 };
typedef struct pi__k_sparse {
    pi__sparse a;
    pi__k_rows rows, entries;
    int32_t n_tokens;
    const int32_t *pos, *seq; /* [n_tokens] */
    int32_t most;         /* max rows that a token attends to */
    void *scratch;        /* as in pi__k_attn */
    size_t scratch_size;
    int32_t n_sm;
    pi__k_waits waits;
    /* not 0: for rows of more than 512 values, q and P are rounded to F16. 0, and always with F32 caches or shorter
     * rows: hi + lo sums */
    int32_t fast;
    /* not 0: also apply op mla_qkv, with these fields and the results' rotation, to the queries; at most
     * PI__K_RAW_QUERIES values */
    int32_t raw;
    int32_t q_norm;
    float q_scale, eps;
    pi__k_groups groups;
} pi__k_sparse;
int pi__k_sparse_run(void *stream, const pi__k_sparse *a);

/* ---- routed experts. A pair is a row and one of its experts. Columns are the pairs sorted by expert, then by row */

#define PI__K_MIN_SUM 6.1e-5f /* min sum of routing weights: the divisor is at least this */

typedef struct pi__k_tile {
    int32_t expert;
    int32_t first; /* first column */
    int32_t n;     /* number of columns */
} pi__k_tile;

/* Routes: the experts of each row, and the column of each pair. pi__k_route or an epilogue writes the arrays from `id`
 * on, which the other kernels read. */
typedef struct pi__k_routes {
    const float *logits;  /* [n_rows, n_expert] */
    int64_t ldl;
    int32_t n_rows, n_expert, n_used;
    float weights_scale;
    int32_t gating;       /* PI__GATE_* of ops.h; bias, table and token are for SQRT_SOFTPLUS */
    const float *bias;    /* as in pi__moe, or NULL */
    const int32_t *table; /* [any, n_used] fixed experts; entry token[r] is for row r. NULL = chosen by logits */
    const int32_t *token; /* [n_rows], with table; else NULL */
    int32_t *id;          /* [n_rows, n_used] experts by rank, best first, ties by index; with `table`, its experts */
    float *weight;        /* [n_rows, n_used] gates, divided by the sum of the row's gates, times weights_scale */
    int32_t *column;      /* [n_rows, n_used] column of the pair */
    int32_t *row;         /* [n_rows * n_used] input row of each column, the inverse of `column` */
    /* [pi__k_max_tiles] each: tiles of up to 8, 32, 64 columns; NULL = the list is not used, as in centroid heads */
    pi__k_tile *tile[3];
    int32_t *n_tile;      /* [3] length of each list */
    /* scratch of pi__k_route, [groups of 32 rows, n_expert] each (pi__k_route_scratch_words()). marks: one bit per row
     * of the group that uses the expert. first: column of the first of these pairs */
    uint32_t *marks;
    int32_t *first;
} pi__k_routes;

enum { PI__K_ROUTER_ROWS = 32 }; /* max rows of an epilogue that computes routes; max experts: PI__MAX_EXPERTS */

/* y[row] = sum of weight * (x[column] + bias) over the row's experts, by rank. If `shared` is not NULL, sigmoid(gate) *
 * shared is added to that. */
typedef struct pi__k_sum {
    int32_t n_rows, n_used;
    const int32_t *column; /* [n_rows, n_used] column, and weight, as in pi__k_routes */
    const float *weight;
    const float *x;        /* [n_rows * n_used, n] results of the experts, by column */
    const float *bias;     /* [n_expert, ldb] added to x, indexed by id [n_rows, n_used]; or NULL */
    const int32_t *id;
    int64_t ldb;
    int64_t n;
    float *y;              /* [n_rows, n] */
    int64_t ldy;
    const float *shared;   /* [n_rows, n], or NULL */
    const float *gate;     /* [n_rows] read with `shared` */
    int64_t ldg;
} pi__k_sum;

/* ---- launch_expert_choice.cu: expert choice of pi__moe with groups, or without division by the sum. Writes a table
 * of experts per row, then routes as pi__k_route does for that table. The weights are written to `weight` */
typedef struct pi__k_expert_choice {
    pi__k_routes r;       /* as for pi__k_route; its table is NULL */
    int32_t n_group, n_group_used; /* as in pi__moe */
    int32_t undivided;    /* not 0: weights are not divided by their sum */
    int32_t *table;       /* [n_rows, n_used] experts per row, by rank */
    int32_t *token;       /* [n_rows] 0, 1, 2 ..: row r has the experts of row r of the table */
    float *weight;        /* [n_rows, n_used] as in pi__k_routes; if undivided, gates times weights_scale */
} pi__k_expert_choice;
int pi__k_expert_choice_run(void *stream, const pi__k_expert_choice *a);

/* ---- launch_head_linear.cu: gathers inputs and scatters results of op head_linear. Column h * n_rows + r is row r of
 * head h. The products use the expert kernels; with few rows, W16 matrices use launch_heads.cu instead */
typedef struct pi__k_head_rows {
    int32_t n_rows, n_head;
    const float *x;       /* as in pi__head_linear */
    int64_t ldx, x_step;
    int64_t n_in, n_out;  /* columns and rows of one matrix */
    int32_t n_tail;
    float *y;
    int64_t ldy, y_step;
    /* [n_head * n_rows, n_in] head_rows writes the gathered x; NULL = only the lists of tiles are written.
     * [n_head * n_rows, n_out] put_heads reads the results */
    float *column;
    pi__k_tile *tile[3];  /* head_rows writes the lists of tiles, as in pi__k_routes */
    int32_t *n_tile;      /* [3] length of each list */
} pi__k_head_rows;
int pi__k_head_rows_run(void *stream, const pi__k_head_rows *a);
int pi__k_scatter_heads(void *stream, const pi__k_head_rows *a);

/* ---- launch_linear.cu: products with matrices in the layout of pack.h */
typedef struct pi__k_matrix {
    const uint8_t *data;  /* one matrix, or the first of several */
    pi__cuda_shape shape; /* packed shape */
    int32_t type;         /* enum pi__type */
    int64_t n_in, n_out;  /* columns, rows */
    const float *scale;   /* factor of the result; NULL = 1 */
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
    float limit; /* see pi__lin_in; 0 = no limit */
} pi__k_input;

/* One residual add of an epilogue: x = (x + y + bias) * scale, or x = (x + norm(y) * w) * scale if w is set. See
 * pi__add_norm of kernel_args.h. fresh not 0: x = norm(y) * w, as in pi__norm. x and y have rows of n values. */
typedef struct pi__k_add {
    float *x;            /* NULL = no add */
    const float *y, *w, *bias; /* w, bias: [n] or NULL */
    float eps, scale;
    int32_t fresh;
    /* not 0: this launch's products write x, so x is read only after all blocks have arrived, like y */
    int32_t made;
    int64_t n;
} pi__k_add;

/* Epilogue of a launch: work on complete rows, done by the blocks that arrive last (kernels/tail.cuh). In this
 * order: the sum of expert outputs is written to sum.y; the entries of `add` are computed, one after the other; `in` is
 * packed to each output that is not NULL. */
enum { PI__K_TAIL_ADDS = 2, PI__K_TAIL_NEAR = 7 /* kinds of values in shared memory (kernels/tail.cuh) */ };
typedef struct pi__k_tail {
    uint32_t *arrived;   /* arrival counter, 0 before and after the launch; NULL = no epilogue */
    pi__k_waits waits;   /* limits the blocks that stay for the epilogue */
    int32_t n_rows;      /* rows of sum, add and in: at most PI__K_TAIL_ROWS; any number in pi__k_finish_rows */
    pi__k_sum sum;       /* n_used 0 = no sum. Its y must be the y of the first add, if there is an add */
    pi__k_add add[PI__K_TAIL_ADDS]; /* in order; the second requires a first */
    pi__k_input in;      /* input of the next matrices, to be packed */
    int64_t n_in;        /* columns of `in` */
    /* packed output in the format of pi__k_pack_x (integers, floats) and pi__k_w16_pack_x (halves); NULL = not
     * written. Rows past n_rows are not written */
    void *integers, *floats, *halves;
    int32_t bf16;        /* not 0: halves are BF16; 0 = F16 */
    /* packed output in the format of pi__k_fp4_pack_x for matrices of fp4_type, or with fp8 not 0 of
     * pi__k_w4a8_pack_x; NULL = not written */
    void *fp4;
    int32_t fp4_type, fp8;
    /* packed output in the format of pi__k_mma16_pack_x for matrices of terms_type, F16 or BF16; NULL = not written.
     * Not supported by pi__k_attention and pi__k_gdn */
    void *terms;
    int32_t terms_type;
    pi__k_qkv qkv;       /* op qkv on the products' rows, instead of all fields above; n_tokens 0 = none */
    pi__k_routes routes; /* pi__k_mixed_linear only, in addition: computed from the launch's logits; n_rows 0 = none */
    /* offset in floats, in shared memory, of the copy of a row's values, by kind; 0 = no copy. Set by the launch
     * function */
    int32_t near[PI__K_TAIL_NEAR];
    /* set by the launch function: one add and its norm have all their values in shared memory, and the only outputs
     * are floats or halves */
    int32_t all_near;
} pi__k_tail;
/* PI__K_TAIL_ROWS: max rows of an epilogue. PI__K_TAIL_STAY: number of blocks that stay for fewer rows, too, if there
 * are places for them (pi__k_waits). */
enum { PI__K_TAIL_ROWS = 32, PI__K_TAIL_STAY = 8 };
/* launch_tail.cu: the epilogue as a separate launch, for any number of rows; `arrived` is not used. */
int pi__k_finish_rows(void *stream, const pi__k_tail *t);

/* Returns the bytes of n_rows packed rows of n_in values: floats if `floats` is not 0, else 15-bit integers. */
size_t pi__k_packed_x_bytes(int32_t n_rows, int64_t n_in, int floats);
/* Packs an input: norm or gate, then rounding to 15-bit integers in blocks of 32. With `floats`, values are stored
 * unchanged. All matrices that read the input share the result. */
int pi__k_pack_x(void *stream, const pi__k_input *in, int32_t n_rows, int64_t n_in, int floats, void *prepared);
/* y = W x for n_rows packed rows; y [n_rows, n_out]. */
typedef struct pi__k_product {
    pi__k_matrix w;
    float *y;
    int64_t ldy;
    float add;            /* not 0: y = (y + W x) * add; requires pi__k_w16_adds() or pi__k_fp4_adds() */
} pi__k_product;
enum { PI__K_MAX_LINEAR = 4 /* max matrices per call */ };
/* Queues n products, at most PI__K_MAX_LINEAR, with matrices of equal type and equal n_in. `prepared` is packed x. */
int pi__k_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows);
/* pi__k_linear with epilogue t, for at most PI__K_TAIL_ROWS rows and types other than floats. */
int pi__k_linear_then(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                      const pi__k_tail *t);
/* launch_mixed.cu: matrices of several types in one launch; results are bitwise identical to one launch per type:
 *
 *     type                                 input                       max rows
 *     F32                                  `floats`: rows of floats    PI__K_ROUTER_ROWS
 *     F16, BF16 (pi__k_mma16_has)          `floats`: terms             PI__K_MIXED_ROWS
 *     pi__k_w16_has                        `halves`: packed rows       PI__K_MIXED_ROWS
 *
 * All pi__k_w16_has types of one launch read `halves`, so they must agree on F16 or BF16 (pi__k_w16_input). An epilogue
 * that only computes routes allows PI__K_ROUTER_ROWS rows. t: epilogue, or NULL. */
enum { PI__K_MAX_MIXED = 8, PI__K_MIXED_ROWS = 32 };
int pi__k_mixed_linear(void *stream, const pi__k_product *w, int32_t n, const void *halves, const float *floats,
                       int32_t n_rows, const pi__k_tail *t);
/* launch_fp4.cu: NVFP4 and MXFP4 matrices times x in the same format as the matrix, on devices with FP4 tensor cores
 * (sm_120, sm_121). */
size_t pi__k_fp4_packed_x_bytes(int32_t n_rows, int64_t n_in);
int pi__k_fp4_pack_x(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared);
int pi__k_fp4_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows);
int pi__k_fp4_linear_then(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                          const pi__k_tail *t);
/* MXFP4 matrices times x in MXFP8 (e4m3). Packed x has pi__k_fp4_packed_x_bytes(), as above. */
int pi__k_w4a8_pack_x(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared);
/* Returns not 0 if products with n_rows rows can be added to y (pi__k_product.add), in FP4 and in W4A8. */
int pi__k_fp4_adds(int32_t n_rows);
int pi__k_w4a8_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows);
int pi__k_w4a8_linear_then(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                           const pi__k_tail *t);
/* launch_fp4_glu.cu: gate and up of equal type and shape, as two matrices or stacked. act(gate x) * up x is packed to
 * mid, in the activation format of a matrix of that type, in FP4 or W4A8. */
typedef struct pi__k_glu {
    pi__k_matrix gate;    /* n_out is a multiple of 64, for MXFP4 of 32 */
    const uint8_t *up;    /* data of up, with the type and shape of gate */
    const float *up_scale; /* as gate.scale */
    int32_t act;          /* PI__IN_* of ops.h */
    float limit;          /* as in pi__k_input */
    int32_t fp8;          /* not 0: W4A8 */
    uint32_t *arrived;    /* arrival counter as in pi__k_tail */
    void *mid;            /* [n_rows, n_out], must not overlap x; rows past n_rows are not written */
    pi__k_waits waits;
} pi__k_glu;
int pi__k_fp4_glu(void *stream, const pi__k_glu *a, const void *prepared, int32_t n_rows);
/* Converts the NVFP4 scales of n_rows packed rows of n columns from floats to bytes, in place. */
int pi__k_fp4_end(void *stream, void *mid, int64_t n_rows, int64_t n);
/* launch_w16.cu: pi__k_linear with 16-bit tensor cores. Weights and x are rounded to F16 (MXFP4: BF16). has: returns
 * not 0 if the type is supported. input: returns the format of packed x for the type, 0 = F16, 1 = BF16. */
int pi__k_w16_has(int32_t type);
int pi__k_w16_input(int32_t type);
/* Returns not 0 if products with n_rows rows can be added to y (pi__k_product.add), by mma.sync and by wgmma. */
int pi__k_w16_adds(int32_t n_rows);
size_t pi__k_w16_packed_x_bytes(int32_t n_rows, int64_t n_in);
size_t pi__k_w16_factor_bytes(int32_t n_rows); /* part of these bytes, at the end: one float factor per row */
int pi__k_w16_pack_x(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared);
int pi__k_w16_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows);
int pi__k_w16_linear_then(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                          const pi__k_tail *t);
/* launch_wgmma.cu: the same products by wgmma (sm_90), with x from pi__k_w16_pack_x. Bitwise identical to mma.sync
 * (selftest_wgmma.c), and faster above PI__K_MMA_ROWS rows. n_sm: SMs of the device. */
enum { PI__K_MMA_ROWS = 64 /* max rows of the small-batch kernels with mma.sync */ };
int pi__k_wgmma_linear(void *stream, const pi__k_product *w, int32_t n, const void *prepared, int32_t n_rows,
                       int32_t n_sm);
/* launch_mma16.cu: F16 and BF16 matrices on 16-bit tensor cores, as exact as with floats. has: a kernel exists. */
int pi__k_mma16_has(int32_t type, int64_t n_in);
size_t pi__k_mma16_packed_x_bytes(int32_t type, int32_t n_rows, int64_t n_in);
int pi__k_mma16_pack_x(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared);
int pi__k_mma16_linear(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y,
                       int64_t ldy);
/* launch_hilo.cu: input of cuBLAS products with F16 and BF16 matrices (blas.h). x is hi + lo in w's type, [2][n_rows,
 * n_in], hi first. finish: after the products, multiplies y by the factors of x's rows and by w's scale. */
size_t pi__k_hilo_bytes(int32_t n_rows, int64_t n_in);
int pi__k_hilo_pack_x(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared);
int pi__k_hilo_finish(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y, int64_t ldy);
/* out[i] = row token[i] of w, times scale. [n_tokens, n_in] */
int pi__k_embed(void *stream, const pi__k_matrix *w, const int32_t *token, int32_t n_tokens, float scale, float *out);

/* ---- launch_moe*.cu: routed experts */

/* Returns the max number of tiles in `list`, 0 to 2 (pi__k_routes.tile): an expert has at most one partial tile. */
int32_t pi__k_max_tiles(int32_t n_rows, int32_t n_expert, int32_t n_used, int list);
/* Returns the length in 4-byte words of pi__k_routes.marks, and of `first`; 0 = not needed, one block sorts the
 * rows. */
size_t pi__k_route_scratch_words(int32_t n_rows, int32_t n_expert);
int pi__k_route(void *stream, const pi__k_routes *a);
/* One matrix per expert, or two of equal shape and type. */
typedef struct pi__k_experts {
    /* expert 0; the next matrix follows after shape.mat_bytes. scale: one factor per expert, or NULL */
    pi__k_matrix w;
    const uint8_t *data2;   /* second matrices of all experts; NULL = one matrix per expert */
    /* [n_expert] bytes from an expert's matrix to the copy that is read instead, 0 = the matrix itself is read; modulo
     * 2^64. moved2: of the second matrices. NULL = no copies */
    const uint64_t *moved, *moved2;
    const float *scale2;    /* as w.scale */
    /* [n_rows * n_used] row of the packed x that each column reads (routes.row); NULL = column c reads row c */
    const int32_t *row;
    float *y, *y2;          /* [n_rows * n_used, n_out] by column; y2: of the second matrices */
    int64_t ldy;
    int32_t n_sm;           /* SMs to fill; 0 = unknown. Affects speed only, as in pi__k_attn */
    /* not NULL (pi__k_w16_experts, pi__k_fp4_experts, pi__k_w4a8_experts only): act(y) * y2 is packed here, in the
     * format of pi__k_w16_mid, pi__k_fp4_pack_x or pi__k_w4a8_pack_x; y is not written */
    void *mid;
    uint32_t *arrived;      /* with mid, in FP4: arrival counter as in pi__k_tail */
    pi__k_waits waits;      /* with arrived */
    int32_t mid_type, act;  /* type of the matrices that read mid; PI__IN_* of ops.h */
    float limit;            /* as in pi__k_input */
} pi__k_experts;
/* y = W x by column. `prepared` has one packed row per input row, or, if a->row is NULL, one per column. */
int pi__k_experts_run(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared);
/* NVFP4 and MXFP4 matrices, with x from pi__k_fp4_pack_x. */
int pi__k_fp4_experts(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared);
int pi__k_w4a8_experts(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared); /* MXFP4 */
/* F16 and BF16 matrices that pi__k_mma16_has, with x from pi__k_mma16_pack_x. */
int pi__k_mma16_experts(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared);
/* Types that pi__k_w16_has, with x from pi__k_w16_pack_x. */
int pi__k_w16_experts(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared);
/* Down in 16-bit floats. Its packed input, `mid`, has one factor per 32 values of a column. pi__k_w16_mid packs gated
 * floats, one row of `in` per column. */
size_t pi__k_w16_mid_bytes(int64_t n_columns, int64_t n_in);
int pi__k_w16_mid(void *stream, const pi__k_input *in, int32_t type, int32_t n_columns, int64_t n_in, void *mid);
int pi__k_w16_down(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *mid);
/* Computes a sum of experts' results as a separate launch. */
int pi__k_add_experts(void *stream, const pi__k_sum *a);
/* Adds biases of each column's expert to h [n_rows * n_used, 2 n]: bias to the first n values, bias2 to the others.
 * Both are [n_expert, n]. */
int pi__k_add_biases(void *stream, const pi__k_routes *r, float *h, const float *bias, const float *bias2, int64_t n);

/* ---- launch_expert_cache.cu: copies of experts in device memory, of matrices in host memory that the device reads */

/* The matrices of one kind (gate, up or down) of a layer. */
typedef struct pi__k_expert_stack {
    const uint8_t *data; /* expert 0, in host memory */
    uint8_t *slots;      /* [n_slot] copies */
    uint64_t *moved;     /* [n_expert] as in pi__k_experts */
    size_t bytes;        /* of one matrix; a multiple of 16 */
} pi__k_expert_stack;
/* The copies of a layer. All state is zero at first. A slot has the matrices of one expert, of every kind. */
typedef struct pi__k_expert_cache {
    pi__k_expert_stack stack[3];
    int32_t n_stack, n_expert, n_slot;
    const pi__k_tile *tile[3]; /* the lists of tiles of the step, as in pi__k_routes: their experts are used */
    const int32_t *n_tile;
    int32_t *owner;   /* [n_slot] expert of the slot, plus 1; 0 = empty */
    uint32_t *used;   /* [n_slot] last step that used the slot */
    uint32_t *step;   /* number of the last step */
    int32_t *missing; /* [1 + 2 n_slot] number of experts to copy, then expert and slot of each */
    uint64_t *counts; /* [2] experts used so far that had a copy, and that had none */
    int32_t n_sm;     /* SMs to fill */
} pi__k_expert_cache;
/* Finds the copies of the step's experts. Experts without a copy get the slots that were not used for the longest time,
 * as long as there are slots that the step does not use. Then their matrices are copied. */
int pi__k_keep_experts(void *stream, const pi__k_expert_cache *c);

/* ---- launch_centroid_head.cu: lm_heads that multiply only some clusters of rows, see pi__centroid_head in ops.h */
typedef struct pi__k_centroids {
    const float *scores;  /* [n_rows, n_mat] scores of the centroids */
    int32_t n_rows, n_mat, n_pick;
    int64_t n;            /* rows per cluster */
    int32_t *pick;        /* [n_rows, n_pick] the best clusters, by rank; written by pi__k_pick_centroids */
    const float *some;    /* [n_rows, n_pick, n] logits of the picked clusters' rows */
    const int32_t *order; /* [n_mat * n] token of each row */
    float *logits;        /* [n_rows, n_mat * n] */
} pi__k_centroids;
enum { PI__K_MAX_PAIRS = 65535 }; /* max rows * picks */
/* Writes the best clusters of each row to a->pick, and as routes with clusters as experts: r->row, r->tile[0] with one
 * tile per pair, and r->n_tile. */
int pi__k_pick_centroids(void *stream, const pi__k_centroids *a, const pi__k_routes *r);
/* Scatters the logits of the picked clusters to their tokens; all other tokens get the minimum of these logits, minus
 * 1. */
int pi__k_scatter_logits(void *stream, const pi__k_centroids *a);

#ifdef __cplusplus
}
#endif

#endif