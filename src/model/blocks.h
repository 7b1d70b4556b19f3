/* The blocks that graphs are made of: rotation, attention, feed-forward, experts, head. Each has a declaration, which reads
 * what it needs and wants its tensors, and a forward, which calls ops.
 *
 * An architecture fills in what a block looks like (the fields above "tensors"), declares it, and calls its forward. What
 * is wrong sticks in the model (declare.h). Activations lie in a pi__work that blocks share: their declarations raise the
 * widths of its rows, pi__work_layout takes it from the model's scratch.
 *
 * Symbols in shapes: n rows, T tokens of the step, R logits rows, E embedding, H query heads, K key/value heads, D head
 * size, F feed-forward, X experts, V vocabulary. Memory: of the model. One thread. */
#ifndef PI__BLOCKS_H
#define PI__BLOCKS_H

#include "model/declare.h"

/* Activations that blocks share. */
typedef struct pi__work {
    int64_t max_qkv, max_att, max_ff; /* widest rows of the fields of that name */
    int32_t n_expert;                 /* most X */
    float *x;                         /* [T, E] residual stream */
    float *qkv, *att;                 /* [T, max_qkv] queries, keys, values; [T, max_att] attention output, or queries
                                       * of the logits rows (pi__stream_logits_rows), where max_att is made as wide */
    float *y;                         /* [T, E] output of a block */
    float *ff;                        /* [T, max_ff] gate, up */
    float *routes;                    /* [T, n_expert] logits of the router */
    float *rows;                      /* [R, E] residual stream of the logits rows */
} pi__work;
/* Takes room for n_tokens. */
void pi__work_layout(const pi__model *m, pi__work *w, pi__arena *a, size_t n_tokens);

/* The rows that a block runs on: all tokens of the step, or the logits rows. */
typedef struct pi__stream {
    const pi__batch *b;      /* n tokens */
    int32_t n;               /* rows of each of these: */
    float *x;                /* [n, E] */
    float *qkv, *att;        /* as in pi__work; swapped where only logits rows go on */
    float *y, *ff;           /* as in pi__work */
} pi__stream;
pi__stream pi__stream_of(const pi__work *w, const pi__batch *b);
/* out = the logits rows of x [T, n]. [R, n] */
void pi__gather_logits_rows(pi__model *m, const pi__batch *b, const float *x, int64_t n, float *out);
/* After the last cache is written only the logits rows go on: the stream becomes those, with rows for x, and their
 * queries, ld apart, in what was att. */
void pi__stream_logits_rows(pi__model *m, pi__stream *s, int64_t ld, float *rows);
/* The same behind a mixer whose results in att have n values: the stream and those go on as the logits rows, with rows for x. */
void pi__stream_result_rows(pi__model *m, pi__stream *s, int64_t n, float *rows);

/* The rows that a drafter wants are captured: room for them; the stream x before a layer [T, E], if it is one of those. */
void pi__capture_layout(pi__model *m, pi__arena *a, size_t n_tokens);
void pi__capture(pi__model *m, const pi__batch *b, int32_t layer, const float *x);
/* The last layer whose input is captured, -1: none. */
int32_t pi__last_captured(const pi__model *m);

/* Op linear, and what the rows' adapters add to it. */
void pi__multiply(pi__model *m, const pi__linear *a);
/* Op head_linear, and the same; rows of x and y are n_mat parts, x_step and y_step of each, and nothing else. */
void pi__multiply_heads(pi__model *m, const pi__head_linear *a);
/* y = W in. [n, n_out], ld apart */
void pi__matmul(pi__model *m, const pi__lin_in *in, int32_t n, const pi__weight *w, float *y, int64_t ld);
/* The input of matrices under an RMSNorm. */
pi__lin_in pi__normed(const pi__model *m, const float *x, const float *w, float eps);

/* ---- rotation of queries and keys. Pairs of dims are i and i + n_rot/2 ("NeoX"); see pi__attn.order for neighbours. */
typedef struct pi__rotation {
    int32_t n_rot;           /* rotated values of a head; 0: there is no such rotation */
    int32_t n_freq;          /* pairs that turn, the first ones of n_rot/2 */
    float *freq;             /* [n_rot/2] radians a position, on the host */
    float *factor;           /* [n_rot/2] divide freq (Llama 3.1 and others); NULL: none */
    const char *factor_name; /* the tensor that they are in */
    float mscale;            /* of cosines and sines */
    float temp;              /* queries are sharper by this and temp_len, as op rope has it; */
    int32_t temp_len;        /* 0: they are not. All of a head has to be rotated then */
    float *table;            /* scratch: [T, 2*n_freq] */
    float *q_table;          /* the same of queries; NULL: table */
} pi__rotation;
/* base_key, base, scaled: as in pi__rope_freqs. */
void pi__rotation_declare(pi__model *m, pi__rotation *r, int32_t n_rot, const char *base_key, float base, bool scaled);
/* The same, with factors from rope_freqs.weight; needed: which must be there. */
void pi__rotation_factors(pi__model *m, pi__rotation *r, bool needed);
/* LongRoPE (arXiv 2402.13753): factors for contexts up to that of training, or for longer ones, by the context that the engine
 * allows: they hold for all positions of all requests, since keys of both cannot be in one cache. None where the file has none. */
void pi__rotation_long(pi__model *m, pi__rotation *r);
/* Once factors are loaded. */
void pi__rotation_loaded(pi__model *m, pi__rotation *r);
void pi__rotation_layout(pi__rotation *r, pi__arena *a, size_t n_tokens);
/* The table of this batch. */
void pi__rotation_forward(pi__model *m, const pi__rotation *r, const pi__batch *b);

/* ---- attention */
enum {
    PI__ATTN_QK_NORM = 1,    /* RMSNorm on each head of queries and keys */
    PI__ATTN_BIAS = 2,       /* q, k and v have biases; without it they may have */
    PI__ATTN_GATED = 4,      /* beside each query head lies a gate of its result */
    PI__ATTN_V_NORM = 8,     /* RMSNorm without weight on values */
    PI__ATTN_SHARED = 16,    /* keys and values are another layer's: kv is set before */
    PI__ATTN_K_IS_V = 32,    /* raw keys are the values, where there are no others */
    PI__ATTN_PAST = 64,      /* a token does not see itself */
    PI__ATTN_BLOCK = 128,    /* a token sees those of its step behind it, too */
    PI__ATTN_OUT_BIAS = 256, /* its result has a bias; not with post_norm */
    PI__ATTN_SINKS = 512,    /* it has sinks */
    PI__ATTN_WIDE_NORM = 1024, /* RMSNorm on all heads of queries together, and on those of keys; without gates */
};

typedef struct pi__attn {
    int32_t n_head, n_head_kv, head_dim; /* H, K, D */
    int32_t window;          /* tokens that a token sees; 0: all */
    int32_t ahead;           /* of PI__ATTN_BLOCK: of those behind it, so many; 0: all */
    int32_t flags;           /* PI__ATTN_* */
    float eps;               /* of its norms */
    float q_scale;           /* of queries */
    float softcap;           /* of scores; 0: none */
    const pi__rotation *rot; /* NULL, or without pairs: none */
    const int32_t *order;    /* [(H+2K)*D] file row of each row of q, k, v below each other, where rotated pairs are neighbours
                              * in the file (pi__attn_order); NULL: in the file's order */
    pi__model *owner;        /* in whose cache it is; NULL: the model itself */
    /* tensors */
    float *norm;             /* [E]; NULL: none */
    pi__weight wq, wk, wv;   /* [H*D, E] (twice as many with gates), [K*D, E], [K*D, E]; or */
    pi__weight wqkv;         /* [(H+2K)*D, E], rows q, k, v */
    float *q_bias, *k_bias, *v_bias; /* [H*D], [K*D], [K*D], or NULL; or */
    float *qkv_bias;         /* [(H+2K)*D] */
    float *q_norm, *k_norm;  /* [D], or of PI__ATTN_WIDE_NORM [H*D], [K*D] */
    float *sinks;            /* [H] as in pi__attention, or NULL */
    pi__weight wo;           /* [E, H*D] */
    float *out_bias;         /* [E], or NULL */
    float *post_norm;        /* [E] of its result, or NULL */
    int32_t kv;              /* index into the owner's kv */
} pi__attn;
/* Rows of heads of queries and keys, and then values, from the order in which neighbours are pairs (2i and 2i+1) to that in
 * which i and i + n_rot/2 are: rows of a matrix are results of their own, so that it may be put in order as it is loaded,
 * and no kernel knows of it. */
const int32_t *pi__attn_order(pi__model *m, int32_t n_head, int32_t n_head_kv, int32_t head_dim, int32_t n_rot);
/* Wants its matrices, biases, sinks, head norms and cache; norm and post_norm are the architecture's, as their names differ. */
void pi__attn_declare(pi__model *m, pi__attn *a, int32_t layer, pi__work *w);
/* Values of a row of qkv. */
int64_t pi__attn_width(const pi__attn *a);
/* qkv = queries, keys and values of the normed residual; this step's K,V go to the cache. */
void pi__attn_project(pi__model *m, const pi__attn *a, const pi__stream *s);
/* The same of what in reads. */
void pi__attn_project_of(pi__model *m, const pi__attn *a, const pi__lin_in *in, const pi__stream *s);
/* This step's K,V alone, of what in reads. */
void pi__attn_inject(pi__model *m, const pi__attn *a, const pi__lin_in *in, const pi__stream *s);
/* att = attention of what project left, to keys from position first on. [n, H*D] */
void pi__attn_attend(pi__model *m, const pi__attn *a, const pi__stream *s, int32_t first);
/* y = wo att. [n, E] */
void pi__attn_result(pi__model *m, const pi__attn *a, const pi__stream *s);
/* x += that, under post_norm where there is one. */
void pi__attn_output(pi__model *m, const pi__attn *a, const pi__stream *s);

/* ---- latent attention (MLA): all heads read one row a token, which is key and value at once (block_mla.c) */
typedef struct pi__mla {
    int32_t n_head;          /* H; 0: there is none */
    int32_t n_key;           /* values of a head's query and key that are not rotated */
    int32_t n_rot;           /* and behind them those that are, in pairs of neighbours; of keys all heads have the same */
    int32_t n_value;         /* of a head's result */
    int32_t rank;            /* of keys and values: the row is as many values, which are both, and n_rot of the key */
    int32_t rank_q;          /* Q of queries; 0: these have a matrix of their own */
    float eps;               /* of its norms */
    float q_scale;           /* of queries */
    const pi__rotation *rot;
    /* tensors */
    float *norm;             /* [E] */
    pi__weight q;            /* [H*(n_key + n_rot), E]; or */
    pi__weight q_a, q_b;     /* [Q, E], [H*(n_key + n_rot), Q] */
    float *q_norm;           /* [Q] */
    pi__weight kv;           /* [rank + n_rot, E] */
    float *kv_norm;          /* [rank] */
    pi__weight k_b, v_b;     /* H of [rank, n_key]: of a query what it is for the row; H of [n_value, rank]; or */
    const int32_t *k_row, *v_row; /* [H*n_key], [H*n_value] rows of attn_kv_b, which older files have instead; NULL: newer ones */
    pi__weight wo;           /* [E, H*n_value] */
    int32_t rows;            /* index into the model's kv */
} pi__mla;
/* Reads sizes from metadata; n_head, eps, and q_scale without what a stretched rotation adds to it. */
void pi__mla_read(pi__model *m, pi__mla *a);
/* Wants its matrices, norms and cache; norm is the architecture's. */
void pi__mla_declare(pi__model *m, pi__mla *a, int32_t layer, pi__work *w);
/* Values of a row of qkv. */
int64_t pi__mla_width(const pi__mla *a);
/* qkv = queries for the rows, from the normed residual; this step's rows go to the cache. */
void pi__mla_project(pi__model *m, const pi__mla *a, const pi__stream *s);
/* qkv = the rows from position first on, as each head weighs them; then att = results. [n, H*n_value] */
void pi__mla_attend(pi__model *m, const pi__mla *a, const pi__stream *s, int32_t first);
/* x += wo att. */
void pi__mla_output(pi__model *m, const pi__mla *a, const pi__stream *s);

/* ---- feed-forward */
typedef struct pi__mlp {
    int32_t n_ff;            /* F */
    int act;                 /* PI__IN_GEGLU, PI__IN_SWIGLU or PI__IN_SWIGLU_OAI */
    float limit;             /* as in pi__lin_in */
    bool fused;              /* the file's ffn_up is gate and up, one below the other: gate is both, and up is none */
    /* tensors */
    pi__weight gate, up, down; /* [F, E], [F, E], [E, F] */
} pi__mlp;
/* kind: "" or "_shexp", behind the names' "ffn_gate". */
void pi__mlp_declare(pi__model *m, pi__mlp *l, const char *kind, int32_t layer, pi__work *w);
/* Its two steps: ff = gate and up of what in reads, [n, F | F]; y = down of their product. [n, E] */
void pi__mlp_gate_up(pi__model *m, const pi__mlp *l, const pi__lin_in *in, int32_t n, float *ff);
void pi__mlp_down(pi__model *m, const pi__mlp *l, const float *ff, int32_t n, float *y);
void pi__mlp_forward(pi__model *m, const pi__mlp *l, const pi__lin_in *in, int32_t n, float *ff, float *y);

/* ---- experts */
typedef struct pi__experts {
    int32_t n_expert, n_used; /* X; experts a token; n_expert 0: there are none */
    int32_t n_ff;            /* F of an expert */
    float weights_scale;     /* of routing weights */
    bool undivided;          /* these are not divided by their sum */
    int32_t n_group, n_group_used; /* as in pi__moe */
    int act, gating;         /* as in pi__moe */
    float limit;             /* of the activation */
    bool biases;             /* of the experts' matrices and, in a softmax, of the router's logits */
    float *bias;             /* as in pi__moe */
    const int32_t *table;    /* as in pi__moe */
    /* tensors */
    pi__weight gate, up, down; /* X of [F, E], [F, E], [E, F]; no up: gate is X of [2F, E], rows of gate, then of up */
    float *gate_bias, *up_bias, *down_bias; /* [X, F], [X, F], [X, E], or NULL */
} pi__experts;
/* Reads expert_count and expert_used_count; needed: there must be experts. */
void pi__experts_read(pi__model *m, pi__experts *e, bool needed);
/* Wants the experts' matrices and biases, and of sigmoid gates what corrects the choice; fused: gate and up may be one. */
void pi__experts_declare(pi__model *m, pi__experts *e, bool fused, int32_t layer, pi__work *w);
/* The arguments of op moe. */
pi__moe pi__experts_args(const pi__model *m, const pi__experts *e, const pi__lin_in *in, int32_t n, const float *logits,
                         int64_t ldl, float *y);
/* y = the best experts of what in reads, by the router's logits, which are ldl apart. b: whose tokens
 * the rows are, with table. [n, E] */
void pi__experts_forward(pi__model *m, const pi__experts *e, const pi__lin_in *in, int32_t n, const float *logits, int64_t ldl,
                         const pi__batch *b, float *y);

/* ---- embedding and logits */
typedef struct pi__head {
    float embd_scale;        /* of embeddings */
    float eps;               /* of output_norm */
    float softcap;           /* of logits; 0: none */
    float logit_scale;       /* of logits before that; 0: none */
    /* tensors */
    pi__weight tok_embd;     /* [V, E] */
    pi__weight output;       /* [V, E]; n_out 0: tied */
    float *output_norm;      /* [E] */
    float *logits_norm;      /* [E] the same times logit_scale, or NULL */
} pi__head;
/* Reads the vocabulary's size, too. tied: output.weight may be absent. */
void pi__head_declare(pi__model *m, pi__head *h, bool tied);
/* x = embeddings. [T, E] */
void pi__head_embed(pi__model *m, const pi__head *h, const pi__batch *b, float *x);
/* out = logits of n residual rows, under output_norm. [n, V] */
void pi__head_logits(pi__model *m, const pi__head *h, const float *x, int32_t n, float *out);
/* The normed rows themselves: out [n, E]. */
void pi__head_hidden(pi__model *m, const pi__head *h, const float *x, int32_t n, float *out);
/* The matrix of logits. */
const pi__weight *pi__head_output(const pi__head *h);

#endif
