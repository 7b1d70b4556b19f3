/* Argument structs of ops that kernels take as they are, and constants and structures in device memory that ops
 * and kernels share.
 *
 * Kernels include no other header of the ops, because a change to one recompiles all of them. Definitions that no
 * kernel reads belong in ops.h, which includes this file and explains the shape conventions. */
#ifndef PI__KERNEL_ARGS_H
#define PI__KERNEL_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pi__kv_layer; /* defined in ops.h; kernels get its fields as separate arguments */

enum { PI__MAX_LIN = 8 /* matrices per op linear */ };
/* Prologues of the input of op linear, see pi__lin_in. */
enum { PI__IN_PLAIN, PI__IN_RMSNORM, PI__IN_GEGLU, PI__IN_SWIGLU, PI__IN_SWIGLU_OAI, PI__IN_GEGLU_ERF,
       PI__IN_RELU2, PI__IN_GELU, PI__N_IN };
static inline bool pi__in_gated(int kind) { return kind >= PI__IN_GEGLU; }
/* Gating functions of op moe, see pi__moe. The enum after it: max experts per layer, max experts per token, max expert
 * groups per layer. */
enum {
    PI__GATE_SOFTMAX,
    PI__GATE_SQRT_SOFTPLUS,
    PI__GATE_SIGMOID,
    PI__GATE_SOFTMAX_CHOICE,
    PI__GATE_SPARSEMIXER,
    PI__N_GATES
};
/* SPARSEMIXER: a logit l is close to the chosen logit c if c - l <= PI__MIXER_REACH max(|l|, c). The factor is twice
 * the models' router_jitter_noise, 0.01. */
#define PI__MIXER_REACH 0.02f
enum { PI__MAX_EXPERTS = 4096, PI__MAX_USED = 64, PI__MAX_EXPERT_GROUPS = 64 };
/* Delta nets and Mamba-2, see pi__state_layer. */
/* tokens per chunk; a sequence's chunks start at multiples of it in the sequence's own positions */
enum { PI__STATE_CHUNK = 16 };
enum { PI__MIN_CONV = 2, PI__MAX_CONV = 8 }; /* bounds of the taps of a delta net's convolution */

/* Sparse prefill. Positions are divided into blocks of PI__SPARSE_BLOCK. A query block is a block of prompt tokens of
 * one sequence that are all in one step. With pi__attention.sparsity a query block attends exactly, but only to some
 * of the key blocks up to its own: the first PI__SPARSE_SINKS, the last PI__SPARSE_WINDOW (its own included), and all
 * blocks with a score of at least sparsity times the best score. A block that one query head selects is selected for
 * all heads that share its KV head. The score of key block n for a query head:
 *
 *     s[i][n] = q[i] . mean of the block's keys (with softcap, if there is one)
 *     score[n] = sum over the queries i of e^(s[i][n] - the largest of s[i]) */
enum { PI__SPARSE_BLOCK = 128, PI__SPARSE_SINKS = 2, PI__SPARSE_WINDOW = 4 };

/* A LoRA adapter's matrices for one matrix of the model, which becomes W + scale * factor * B A. Pairs lie in
 * device memory together with A and B; a and b are byte offsets from the adapter's first pair, so the data is
 * position-independent. For stacked matrices, the A's (and B's) of all matrices are concatenated. For an
 * embedding, A has a row of `rank` values per token. */
typedef struct pi__lora_pair {
    uint64_t a; /* [rank, lda] rows of A: n_in values, zeros up to lda, a multiple of 16; embeddings: [lda, rank] */
    uint64_t b; /* [ldb / PI__LORA_TILE][rank][PI__LORA_TILE] columns of B: n_out rows, then zeros */
    int64_t lda, ldb; /* padded length of a row of A, and of a column of B; see a and b */
    int32_t rank;  /* 0 = the adapter does not change the matrix */
    int32_t type;  /* of A and B: PI__F32, PI__F16 or PI__BF16 */
    float factor;  /* alpha / rank of the adapter */
    int32_t zero;  /* padding, always 0 */
} pi__lora_pair;

/* PI__MAX_LORA: adapters per sequence. PI__LORA_TILE: rows of B that are interleaved. */
enum { PI__MAX_LORA = 8, PI__MAX_LORA_RANK = 512, PI__LORA_TILE = 64 };

/* x = (x + rmsnorm(y) * w) * scale. Without w: x = (x + y + bias) * scale. */
typedef struct pi__add_norm {
    float *x;            /* [n_rows, n] residual stream, changed in place */
    /* [n_rows, n]; no other op reads y, so the op that computes y may add its result to x directly, without writing
     * y */
    const float *y;
    const float *w;      /* [n]; NULL = no norm */
    const float *bias;   /* [n], only without a norm; NULL = no bias */
    float eps, scale;    /* epsilon of the norm; factor of the sum */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values per row */
} pi__add_norm;

/* out = x / sqrt(mean(x^2) + eps) * w; out is not x. */
typedef struct pi__norm {
    float *out;          /* [n_rows, n] */
    int64_t ldo;         /* floats between rows of out */
    const float *x;      /* [n_rows, n] */
    const float *w;      /* [n] */
    float eps;           /* added to the mean */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values per row */
} pi__norm;

/* x = (v - mean(v)) / sqrt(mean((v - mean(v))^2) + eps) * w + shift, v = x + y + b (LayerNorm). */
typedef struct pi__layer_norm {
    float *x;            /* [n_rows, n], changed in place */
    const float *y;      /* [n_rows, n]; NULL = nothing is added */
    const float *b;      /* [n] bias of y; NULL = no bias */
    const float *w;      /* [n] */
    const float *shift;  /* [n]; NULL = 0 */
    float eps;           /* added to the variance */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values per row */
} pi__layer_norm;

/* x = f(t), t = x + b, for activations of a single value. GELU: t/2 (1 + erf(t / sqrt(2))), the exact GELU. GELU_TANH:
 * its tanh approximation. GELU_QUICK: t sigmoid(1.702 t). RELU2: max(t, 0)^2. XIELU (arXiv 2411.13010): p[0] t^2 +
 * p[2] t if t > 0, else p[1] (e^min(t, p[3]) - 1 - t) + p[2] t. NONE: t. RELU: max(t, 0). */
enum { PI__ACT_GELU, PI__ACT_GELU_TANH, PI__ACT_GELU_QUICK, PI__ACT_RELU2, PI__ACT_XIELU, PI__ACT_NONE, PI__ACT_RELU,
       PI__N_ACTS };
typedef struct pi__activate {
    float *x;            /* [n_rows, n], changed in place */
    const float *b;      /* [n]; NULL = no bias */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values per row */
    int32_t kind;        /* PI__ACT_* */
    float p[4];          /* parameters of XIELU: factors for positive and for negative values, slope, limit */
} pi__activate;

/* x = min(hi, max(lo, factor * x * y * w)): scales and clamps rows. */
typedef struct pi__scale {
    float *x;            /* [n_rows, n], changed in place */
    const float *y;      /* [n_rows, n]; NULL = 1 */
    const float *w;      /* [n]; NULL = 1 */
    float factor;        /* see above */
    float lo, hi;        /* lo <= hi; -infinity and infinity = no limit */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values per row */
} pi__scale;

/* y += sigmoid(gate) * x, with one gate per row. */
typedef struct pi__add_gated {
    float *y;            /* [n_rows, n], changed in place */
    const float *x;      /* [n_rows, n] */
    const float *gate;   /* [n_rows] */
    int64_t ldg;         /* floats between rows of gate */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values per row */
} pi__add_gated;

/* x *= f(gate), with one gate per head of n values. f: sigmoid, or softplus, log(1 + e^t). */
typedef struct pi__gate_heads {
    float *x;            /* [n_rows, n_head * n], changed in place */
    const float *gate;   /* [n_rows, n_head] */
    int64_t ldg;         /* floats between rows of gate */
    int32_t n_rows;      /* rows */
    int32_t n_head;      /* heads */
    int64_t n;           /* values per head */
    bool softplus;       /* f is softplus */
} pi__gate_heads;

/* Rotary table: cosines and sines of pos * freq[i], times mscale, for each token; see pi__qkv.rope. With temp_len
 * they are also multiplied by 1 + temp ln(1 + floor(pos / temp_len)), which sharpens the queries of long contexts
 * (Llama 4, Ministral 3). */
typedef struct pi__rope {
    /* [n_freq] radians per position: host memory that is valid and constant while the backend lives */
    const float *freq;
    int32_t n_freq;      /* pairs */
    float mscale;        /* factor of cosines and sines */
    float temp;          /* with temp_len: strength of the extra factor, see above */
    int32_t temp_len;    /* positions per step of the extra factor; 0 = no extra factor */
    float *table;        /* [n_tokens, 2 * n_freq] result: n_freq cosines, then n_freq sines */
    /* M-RoPE: pairs that use each of a token's three positions (pi__batch.rope_pos): time, row, column. All 0 = every
     * pair uses pi__batch.pos. Contiguous: the first section[0] pairs use the time, the next section[1] the row, the
     * next section[2] the column. Interleaved: pair i < 3 * section[1] with i % 3 = 1 uses the row, pair
     * i < 3 * section[2] with i % 3 = 2 the column. All other pairs use the time. */
    int32_t section[3];
    bool interleaved;    /* see section */
} pi__rope;

/* x[i] += table[row[i]]: adds a position or token-type embedding to each token. */
typedef struct pi__add_rows {
    float *x;            /* [n_rows, n], changed in place */
    const float *table;  /* [any, n] table of the model */
    const int32_t *row;  /* [n_rows] row in table of each row of x; host memory that is valid until finish() */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values per row */
} pi__add_rows;

/* x[i] = rows[row[i]], or with `add` x[i] += rows[row[i]]; no change where row[i] is -1. Puts rows that the caller
 * computed elsewhere (images) in the place of token embeddings. */
typedef struct pi__place_rows {
    float *x;            /* [n_rows, n], changed in place */
    const float *rows;   /* [any, n] */
    int64_t ldr;         /* floats between rows of `rows` */
    const int32_t *row;  /* [n_rows] row for each row of x; host memory that is valid until finish() */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values per row */
    bool add;            /* add the row instead of replacing the values */
} pi__place_rows;

/* x = cap * tanh(x / cap). */
typedef struct pi__softcap {
    float *x;            /* [n_rows, n], changed in place */
    float cap;           /* positive */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values per row */
} pi__softcap;

/* y[r, p * n + i] = x[p * step + r * ldx + i] for r < n_rows, p < n_shards, i < n. */
typedef struct pi__copy_2d {
    const float *x;      /* n_shards shards, step floats apart; rows of a shard are ldx floats apart */
    int64_t step, ldx;   /* see x */
    int32_t n_shards;    /* shards; their rows are concatenated in y */
    int32_t n_rows;      /* rows */
    int64_t n;           /* values per row and shard */
    float *y;            /* [n_rows, n_shards * n] */
    int64_t ldy;         /* floats between rows of y */
} pi__copy_2d;

/* A causal convolution over the tokens that a sequence has in the step; each tap has a shared part and a part of
 * the token's own. Token s gets out[s, c] = sum over taps i <= s of (base[i, c] + own[s, i, c / group]) * x[s - i,
 * c], with zeros before the first token. */
typedef struct pi__block_conv {
    const float *x;      /* [n_tokens, n] */
    const float *base;   /* [n_tap, n] */
    const float *own;    /* [n_tokens, n_tap * n / group]: own[s, i, c / group], i slowest */
    int64_t ldo;         /* floats between rows of own */
    int32_t n_tap;       /* taps; the first is for the token itself */
    int32_t group;       /* adjacent columns that share a token's own tap; divides n */
    int64_t n;           /* values per row */
    float *out;          /* [n_tokens, n]; not x */
} pi__block_conv;

/* ---- DeepSeek V4: residual streams, and attention to a window of rows and to entries that each compress many
 * tokens */

/* Hyper-connections (Zhu et al., arXiv 2409.19606): PI__STREAMS residual streams. A block reads a weighted sum of
 * them, and its result is added with a mixing matrix, which here is made doubly stochastic by Sinkhorn's
 * iteration. m = mix * f, with f the RMSNorm factor over all streams of a row. n_m = 24 values of m, or 4 at the
 * end of the model (n_iter 0):
 *   pre[i] = sigmoid(m[i] * scale[0] + base[i]) + eps           post[i] = 2 sigmoid(m[4 + i] * scale[1] + base[4 + i])
 *   comb = softmax over b of m[8 + 4a + b] * scale[2] + base[8 + 4a + b], plus eps; then columns are divided by their
 *          sums + eps, and after that, n_iter - 1 times, rows and then columns */
enum { PI__STREAMS = 4, PI__HYPER_MIX = 24, PI__HYPER_COEF = 20 };
typedef struct pi__hyper {
    int32_t n_rows;      /* rows */
    float *x;            /* [n_rows, 4 * n] streams of a row one after the other; hyper_post changes them in place */
    int64_t n;           /* values per stream */
    const float *mix;    /* [n_rows, n_m] product of a matrix with x */
    const float *scale;  /* [3]; [1] at the end of the model */
    const float *base;   /* [n_m] */
    float norm_eps, eps; /* epsilon of f; all other epsilons */
    int32_t n_iter;      /* Sinkhorn iterations; 0 = compute only pre */
    float *coef;         /* [n_rows, 20] post and comb: written by hyper_pre, read by hyper_post */
    /* [n_rows, n] hyper_pre writes the sum of pre[i] * stream i. hyper_post reads the block's result: stream b becomes
     * post[b] * y + sum over a of comb[a][b] * stream a. */
    float *y;
} pi__hyper;

/* Prepares a step's queries and rows for MLA. A row is one latent vector per token: key and value at the same time, for
 * all heads. Applies norms, and rotates the last n_rot values of each head of q and of each row, in adjacent pairs.
 * Changes q in place and writes the rows to the cache. */
typedef struct pi__mla_qkv {
    const struct pi__kv_layer *rows; /* the layer's cache of rows; NULL if row is NULL */
    float *q;            /* [n_tokens, n_head * dim], changed in place */
    int64_t ldq;         /* floats between rows */
    int32_t n_head, dim; /* heads; values per head, a multiple of 16 */
    bool q_norm;         /* RMSNorm without weight on each head */
    float q_scale;       /* factor of q, applied last */
    const float *row;    /* [n_tokens, dim]; NULL = only queries */
    int64_t ldr;         /* floats between rows */
    const float *norm;   /* [n_norm] norm weight of row */
    int32_t n_norm;      /* leading values of row that the norm covers */
    float eps;           /* epsilon of the norms */
    const float *rope;   /* [n_tokens, n_rot] from op rope */
    int32_t n_rot;       /* rotated values */
} pi__mla_qkv;

/* Computes an entry for each window of `ratio` tokens that ends in this step, and writes it to `entries`. A token's
 * x is `width` values, then `width` scores; the token's row of `ape` is added to the scores. Values and scores stay
 * in the cache `recent` until their window ends. Value d of an entry is the sum of the window's values d, weighted
 * by the softmax of their scores. With overlap, width is 2 dim: the window's tokens contribute their values dim +
 * d, and the tokens of the previous window, if any, their values d. Without overlap, width is dim. Then an entry
 * gets an RMSNorm, and its last n_rot values are rotated by the position of the window's first token. */
typedef struct pi__compress {
    const struct pi__kv_layer *recent; /* cache with values and scores of tokens in windows that have not ended */
    const struct pi__kv_layer *entries; /* cache of the finished entries */
    const float *x;      /* [n_tokens, 2 * width] */
    int64_t ldx;         /* floats between rows */
    int32_t ratio, dim;  /* tokens per window, at most 128; values per entry, a multiple of 16 */
    bool overlap;        /* see above */
    const float *ape;    /* [ratio, width] added to the scores, by position in the window */
    const float *norm;   /* [dim] weight of the RMSNorm */
    float eps;           /* epsilon of the norm */
    const float *freq;   /* [n_rot / 2] as in op rope */
    int32_t n_rot;       /* rotated values */
} pi__compress;

/* Lightning indexer: for each token, picks the n_top entries with the best scores, or all if there are at most n_top.
 * Only entries with a window that ended at this token or before count. score = scale * sum over heads of w[h] * max(0,
 * q[h] . entry); of equal scores the lower index wins. */
typedef struct pi__indexer {
    const struct pi__kv_layer *entries; /* cache of the indexer's own entries */
    const float *q;      /* [n_tokens, n_head * dim] */
    int64_t ldq;         /* floats between rows */
    const float *w;      /* [n_tokens, n_head] weights of the heads */
    int64_t ldw;         /* floats between rows */
    int32_t n_head, dim; /* heads; values per head, a multiple of 16 */
    float scale;         /* positive */
    int32_t n_top;       /* max entries per token */
    /* [n_tokens, n_top] indices of entries, ascending; if fewer are picked, the end of a row is not written */
    int32_t *pick;
} pi__indexer;

/* Attention of each token to the rows of the last `window` tokens, itself included, and to the entries if the layer has
 * some, with a sink per head. A score is q . row over dim values; a head's result is the weighted sum of the first
 * dim_v values of the rows. The last n_rot values of the result are rotated back (by minus the token's angle). */
typedef struct pi__sparse {
    const struct pi__kv_layer *rows; /* cache of the window's rows */
    const struct pi__kv_layer *entries; /* cache of entries; NULL = the layer has none */
    const float *q;      /* [n_tokens, n_head * dim], already scaled */
    int64_t ldq;         /* floats between rows */
    int32_t n_head, dim, dim_v; /* multiples of 16; dim_v <= dim, and dim_v = dim if results are rotated */
    int32_t window;      /* tokens */
    int32_t first;       /* rows of tokens before this position are masked */
    const int32_t *pick; /* [n_tokens, n_top] entries from op indexer; NULL = all visible entries */
    int32_t n_top;       /* see pick */
    const float *sinks;  /* [n_head] extra logits that only enlarge the softmax sum; NULL = no sinks */
    const float *rope;   /* [n_tokens, n_rot] */
    int32_t n_rot;       /* rotated values; 0 = no rotation, rope is NULL */
    /* [n_tokens, n_head * dim], of which dim_v values per head are written; may be q, with the same ld */
    float *out;
    int64_t ldo;         /* floats between rows */
} pi__sparse;

/* Ops of this header that every backend implements and that need only their struct. On CUDA, such an op is one launch
 * function that takes the struct (pi__k_NAME of backend/cuda/kernels.h); the calls are generated from this list. */
#define PI__OPS_ROWS(OP)                                                                                               \
    OP(add_norm, pi__add_norm)                                                                                         \
    OP(norm, pi__norm)                                                                                                 \
    OP(layer_norm, pi__layer_norm)                                                                                     \
    OP(activate, pi__activate)                                                                                         \
    OP(scale, pi__scale)                                                                                               \
    OP(add_gated, pi__add_gated)                                                                                       \
    OP(gate_heads, pi__gate_heads)                                                                                     \
    OP(softcap, pi__softcap)                                                                                           \
    OP(copy_2d, pi__copy_2d)

#endif
