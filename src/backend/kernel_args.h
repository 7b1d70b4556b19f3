/* What kernels of devices take as it is: the structs of ops whose launch is the op itself (ops.h), and the constants and the one
 * structure in device memory that ops and kernels agree about.
 *
 * Kernels include nothing else of the ops, as all of them are compiled anew when one of their headers changes. So what no kernel reads
 * has its place in ops.h, which includes this; the conventions of shapes are written there. */
#ifndef PI__KERNEL_ARGS_H
#define PI__KERNEL_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pi__kv_layer; /* ops.h: kernels are given what is in it beside the op's struct */

enum { PI__MAX_LIN = 8 /* matrices of a linear */ };
/* What is done to the input of a product, see pi__lin_in. */
enum { PI__IN_PLAIN, PI__IN_RMSNORM, PI__IN_GEGLU, PI__IN_SWIGLU, PI__IN_SWIGLU_OAI };
static inline bool pi__in_gated(int kind) { return kind >= PI__IN_GEGLU; }
/* How routing weights are made of logits, see pi__moe; and experts of a layer, of a token, groups of a layer. */
enum { PI__GATE_SOFTMAX, PI__GATE_SQRT_SOFTPLUS, PI__GATE_SIGMOID };
enum { PI__MAX_EXPERTS = 4096, PI__MAX_USED = 64, PI__MAX_EXPERT_GROUPS = 64 };
/* Of delta nets, see pi__state_layer. */
enum { PI__STATE_CHUNK = 16 }; /* tokens; boundaries are at multiples of it in the sequence's own positions */
enum { PI__LEAST_CONV = 2, PI__MOST_CONV = 8 };

/* Sparse prefill. Positions are cut at multiples of PI__SPARSE_BLOCK. A query block is a prompt's tokens of one of them, all
 * in one step; with pi__attention.sparsity it attends to some of the key blocks up to its own alone, exactly: to the first
 * PI__SPARSE_SINKS, the last PI__SPARSE_WINDOW (its own is one), and those whose score is at least sparsity times the best
 * one, for any of the query heads that share their keys. The score of key block n, for a query head:
 *
 *     s[i][n] = q[i] . mean of the block's keys (with softcap, if there is one)
 *     score[n] = sum over the queries i of e^(s[i][n] - the largest of s[i]) */
enum { PI__SPARSE_BLOCK = 128, PI__SPARSE_SINKS = 2, PI__SPARSE_WINDOW = 4 };

/* What an adapter (LoRA) has for one matrix of the model, which becomes W + scale * factor * B A. In device memory, with what it
 * is of: a and b are bytes from the adapter's first pair on, so that it is the same wherever that lies. Of stacked matrices
 * there are as many of each, one behind the other. Of an embedding, A has a row of `rank` values for each token. */
typedef struct pi__lora_pair {
    uint64_t a; /* [rank, lda] rows of A: n_in values, zeros up to lda, a multiple of 16; of an embedding [lda, rank] */
    uint64_t b; /* [ldb / PI__LORA_TILE][rank][PI__LORA_TILE] columns of B, n_out rows and zeros */
    int64_t lda, ldb;
    int32_t rank;  /* 0: it leaves the matrix alone */
    int32_t type;  /* of both: PI__F32, PI__F16 or PI__BF16 */
    float factor;
    int32_t zero;
} pi__lora_pair;

enum { PI__MAX_LORA = 8 /* adapters of a sequence */, PI__MAX_LORA_RANK = 512, PI__LORA_TILE = 64 /* rows of B side by side */ };

/* x = (x + rmsnorm(y) * w) * scale; w NULL: (x + y + bias) * scale. */
typedef struct pi__add_norm {
    float *x;            /* [n_rows, n] residual stream, changed in place */
    const float *y;      /* [n_rows, n]; nobody else reads it: what would write it just before may add to x at once */
    const float *w;      /* [n], or NULL: no norm */
    const float *bias;   /* [n] without a norm, or NULL */
    float eps, scale;    /* of the norm; of the sum */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values a row */
} pi__add_norm;

/* out = x / sqrt(mean(x^2) + eps) * w; out is not x. */
typedef struct pi__norm {
    float *out;          /* [n_rows, n] */
    int64_t ldo;         /* floats from row to row of out */
    const float *x;      /* [n_rows, n] */
    const float *w;      /* [n] */
    float eps;           /* added to the mean */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values a row */
} pi__norm;

/* x = (v - mean(v)) / sqrt(mean((v - mean(v))^2) + eps) * w + shift, v = x + y + b (LayerNorm). */
typedef struct pi__layer_norm {
    float *x;            /* [n_rows, n], changed in place */
    const float *y;      /* [n_rows, n], or NULL: nothing is added */
    const float *b;      /* [n] bias of y, or NULL */
    const float *w, *shift; /* [n] */
    float eps;           /* added to the variance */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values a row */
} pi__layer_norm;

/* x = t/2 (1 + erf(t / sqrt(2))), t = x + b (GELU, not its tanh form). */
typedef struct pi__gelu {
    float *x;            /* [n_rows, n], changed in place */
    const float *b;      /* [n], or NULL */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values a row */
} pi__gelu;

/* y += sigmoid(gate) * x, one gate a row. */
typedef struct pi__add_gated {
    float *y;            /* [n_rows, n], changed in place */
    const float *x;      /* [n_rows, n] */
    const float *gate;   /* [n_rows] */
    int64_t ldg;         /* floats from row to row of gate */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values a row */
} pi__add_gated;

/* Cosines and sines of pos * freq[i], times mscale, for each token; see pi__qkv.rope. With temp_len they are also times
 * 1 + temp ln(1 + floor(pos / temp_len)), by which queries of long contexts are sharper (Llama 4, Ministral 3). */
typedef struct pi__rope {
    const float *freq;   /* [n_freq] radians a position: host memory that stays and does not change while the backend lives */
    int32_t n_freq;      /* pairs */
    float mscale;        /* of cosines and sines */
    float temp;
    int32_t temp_len;    /* positions; 0: no such factor */
    float *table;        /* [n_tokens, 2 * n_freq] */
} pi__rope;

/* x[i] += table[row[i]]: of a batch's tokens, what goes with the position or the type of each. */
typedef struct pi__add_rows {
    float *x;            /* [n_rows, n], changed in place */
    const float *table;  /* [any, n] of the model */
    const int32_t *row;  /* [n_rows] host memory that stays up to finish() */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values a row */
} pi__add_rows;

/* x = cap * tanh(x / cap). */
typedef struct pi__softcap {
    float *x;            /* [n_rows, n], changed in place */
    float cap;           /* positive */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values a row */
} pi__softcap;

/* y[r, p * n + i] = x[p * step + r * ldx + i] for r < n_rows, p < n_shards, i < n. */
typedef struct pi__copy_2d {
    const float *x;      /* shards, step floats apart, of rows that are ldx apart */
    int64_t step, ldx;   /* see above */
    int32_t n_shards;    /* columns of y are of so many, n of each */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values a row and shard */
    float *y;            /* [n_rows, n_shards * n] */
    int64_t ldy;         /* floats from row to row of y */
} pi__copy_2d;

/* A causal convolution along the tokens that a sequence has in the step, whose taps are partly each token's own: token s of
 * them gets out[s, c] = sum over taps i <= s of (base[i, c] + own[s, i, c / group]) * x[s - i, c], with zeros before the first. */
typedef struct pi__block_conv {
    const float *x;      /* [n_tokens, n] */
    const float *base;   /* [n_tap, n] */
    const float *own;    /* [n_tokens, n_tap * n / group] */
    int64_t ldo;         /* floats from row to row of own */
    int32_t n_tap;       /* taps, the first for the token itself */
    int32_t group;       /* columns that share a token's own tap; divides n */
    int64_t n;           /* values a row */
    float *out;          /* [n_tokens, n], not x */
} pi__block_conv;

/* ---- of DeepSeek V4: residual streams, and attention to a window of rows and to entries, each made of many tokens */

/* Residual streams that a block reads as one and that are mixed when its result is added ("hyper-connections", Zhu et al.,
 * arXiv 2409.19606; here the mixing matrix is made doubly stochastic by Sinkhorn's iteration). m = mix * f, where f is the
 * factor of the RMSNorm over all streams of a row, n_m = 24 values, or 4 at the end of the model (n_iter 0):
 *   pre[i] = sigmoid(m[i] * scale[0] + base[i]) + eps           post[i] = 2 sigmoid(m[4 + i] * scale[1] + base[4 + i])
 *   comb = softmax over b of m[8 + 4a + b] * scale[2] + base[8 + 4a + b], plus eps; then columns are divided by their sums
 *          + eps, and n_iter - 1 times rows, then columns */
enum { PI__STREAMS = 4, PI__HYPER_MIX = 24, PI__HYPER_COEF = 20 };
typedef struct pi__hyper {
    int32_t n_rows;      /* rows */
    float *x;            /* [n_rows, 4 * n] streams */
    int64_t n;           /* values of a stream */
    const float *mix;    /* [n_rows, n_m] a matrix times x */
    const float *scale;  /* [3], or [1] */
    const float *base;   /* [n_m] */
    float norm_eps, eps; /* of f; of the rest */
    int32_t n_iter;      /* of Sinkhorn; 0: pre alone */
    float *coef;         /* [n_rows, 20] post, comb: hyper_pre writes, hyper_post reads */
    float *y;            /* [n_rows, n] hyper_pre: sum of pre[i] * stream i, written. hyper_post: the block's result:
                          * stream b becomes post[b] * y + sum over a of comb[a][b] * stream a */
} pi__hyper;

/* MLA: queries, and the latent rows that are keys and values at once: norms, and rotation of the last n_rot values of
 * each head (or row), in pairs of neighbours; rows are written to the cache. */
typedef struct pi__mla_qkv {
    const struct pi__kv_layer *rows; /* the layer's cache of rows; NULL with row */
    float *q;            /* [n_tokens, n_head * dim], changed in place */
    int64_t ldq;         /* floats from row to row */
    int32_t n_head, dim; /* dim is a multiple of 16 */
    bool q_norm;         /* RMSNorm without weight on each head */
    float q_scale;       /* multiplies q at the end */
    const float *row;    /* [n_tokens, dim]; NULL: queries alone */
    int64_t ldr;         /* floats from row to row */
    const float *norm;   /* [n_norm] of row */
    int32_t n_norm;      /* values of row under its norm, the first ones */
    float eps;           /* of the norms */
    const float *rope;   /* [n_tokens, n_rot] of op rope */
    int32_t n_rot;       /* rotated values */
} pi__mla_qkv;

/* Makes an entry of each window of `ratio` tokens whose last one is in the step. x of a token: values, then scores, `width`
 * of each, to which the token's row of `ape` is added. They are kept as rows of the cache `recent` until their windows are
 * closed. Value d of an entry is the sum of the window's values d, weighed by the softmax of their scores. With overlap,
 * width is 2 dim, tokens give their values dim + d and those of the window before (if there is one) their values d. Then
 * RMSNorm, and rotation of the last n_rot values by the position of the window's first token. */
typedef struct pi__compress {
    const struct pi__kv_layer *recent; /* tokens of windows that are not closed */
    const struct pi__kv_layer *entries; /* what is made */
    const float *x;      /* [n_tokens, 2 * width] */
    int64_t ldx;         /* floats from row to row */
    int32_t ratio, dim;  /* tokens a window, at most 128; values of an entry, a multiple of 16 */
    bool overlap;        /* see above */
    const float *ape;    /* [ratio, width] */
    const float *norm;   /* [dim] */
    float eps;           /* of the norm */
    const float *freq;   /* [n_rot / 2] as of op rope */
    int32_t n_rot;       /* rotated values */
} pi__compress;

/* Lightning indexer: the n_top best of the entries that a token sees (those whose windows it or a token before it
 * closed), all where there are no more: score = scale * sum over heads of w[h] * max(0, q[h] . entry), equal ones by
 * index. */
typedef struct pi__indexer {
    const struct pi__kv_layer *entries; /* keys to choose among */
    const float *q;      /* [n_tokens, n_head * dim] */
    int64_t ldq;         /* floats from row to row */
    const float *w;      /* [n_tokens, n_head] */
    int64_t ldw;         /* floats from row to row */
    int32_t n_head, dim; /* dim is a multiple of 16 */
    float scale;         /* positive */
    int32_t n_top;       /* entries at most */
    int32_t *pick;       /* [n_tokens, n_top] ascending; what is past the number of entries seen is not written */
} pi__indexer;

/* Attention of each token to the rows of the last `window` tokens, itself included, and to entries, where there are such with a
 * sink a head; of rows the first dim_v values are added up, and the last n_rot of these are rotated backwards. */
typedef struct pi__sparse {
    const struct pi__kv_layer *rows; /* the window's */
    const struct pi__kv_layer *entries; /* NULL: a layer without */
    const float *q;      /* [n_tokens, n_head * dim], scaled */
    int64_t ldq;         /* floats from row to row */
    int32_t n_head, dim, dim_v; /* multiples of 16; dim_v is at most dim, and dim where results are rotated */
    int32_t window;      /* tokens */
    int32_t first;       /* rows before this position are not seen */
    const int32_t *pick; /* [n_tokens, n_top] entries, of op indexer; NULL: all that are seen */
    int32_t n_top;       /* see pick */
    const float *sinks;  /* [n_head] extra logits that only enlarge the softmax sum, or NULL */
    const float *rope;   /* [n_tokens, n_rot] */
    int32_t n_rot;       /* rotated values; 0: none, without rope */
    float *out;          /* [n_tokens, n_head * dim], dim_v of each head written; may be q, with its ld */
    int64_t ldo;         /* floats from row to row */
} pi__sparse;

/* The ops of this header that need nothing else, which every backend has: a device's launch function takes the struct, and there is
 * no more to it (pi__k_NAME of backend/cuda/kernels.h). */
#define PI__OPS_ROWS(OP)                                                                                                \
    OP(add_norm, pi__add_norm)                                                                                          \
    OP(norm, pi__norm)                                                                                                  \
    OP(layer_norm, pi__layer_norm)                                                                                      \
    OP(gelu, pi__gelu)                                                                                                  \
    OP(add_gated, pi__add_gated)                                                                                        \
    OP(softcap, pi__softcap)                                                                                            \
    OP(copy_2d, pi__copy_2d)

#endif
