/* The building blocks of model graphs: RoPE, attention, feed-forward, experts, head. Each block has a declare
 * function, which reads metadata and declares its tensors, and a forward function, which calls ops.
 *
 * An architecture sets a block's configuration (the fields above the comment "tensors"), declares the block, and
 * calls its forward function. The first error is kept in the model (declare.h). Activations are in a `pi__work`
 * that all blocks share: block declarations raise its row widths (max_*), and `pi__work_layout` allocates it from
 * the model's scratch.
 *
 * Symbols in shapes: n rows, T tokens of the step, R logits rows, E embedding, H query heads, K key/value heads, D
 * head size, F feed-forward, X experts, V vocabulary. Memory: owned by the model. Threads: one. */
#ifndef PI__BLOCKS_H
#define PI__BLOCKS_H

#include "model/declare.h"

/* Activations shared by the blocks. */
typedef struct pi__work {
    int64_t max_qkv, max_att, max_ff; /* row widths of `qkv`, `att` and `ff`: the largest that a block declared */
    int32_t n_expert;                 /* row width of `routes`: the largest X of all layers */
    float *x;                         /* [T, E] residual stream */
    /* [T, max_qkv] queries, keys, values; [T, max_att] attention output. After `pi__stream_logits_rows`, `att`
     * holds the logits rows' queries; this requires max_att >= max_qkv */
    float *qkv, *att;
    float *y;                         /* [T, E] a block's output */
    float *ff;                        /* [T, max_ff] gate, up */
    float *routes;                    /* [T, n_expert] router logits */
    float *rows;                      /* [R, E] residual stream at the logits rows */
} pi__work;
/* Allocates the buffers from a, for steps of up to `n_tokens` tokens. */
void pi__work_layout(const pi__model *m, pi__work *w, pi__arena *a, size_t n_tokens);

/* The rows that blocks compute now: all tokens of the step, or the logits rows only. */
typedef struct pi__stream {
    const pi__batch *b;      /* batch with these rows as its tokens */
    int32_t n;               /* rows in each buffer below */
    float *x;                /* [n, E] */
    float *qkv, *att;        /* as in pi__work; swapped by `pi__stream_logits_rows` */
    float *y, *ff;           /* as in pi__work */
} pi__stream;
/* Returns the stream of all tokens of b, in the buffers of w. */
pi__stream pi__stream_of(const pi__work *w, const pi__batch *b);
/* out [R, n] = the logits rows of x [T, n]. */
void pi__gather_logits_rows(pi__model *m, const pi__batch *b, const float *x, int64_t n, float *out);
/* Called after the last cache write: narrows the stream to the logits rows. Gathers their residual into `rows` and
 * their queries (rows of s->qkv, `ld` floats apart) into s->att, then swaps s->qkv and s->att. */
void pi__stream_logits_rows(pi__model *m, pi__stream *s, int64_t ld, float *rows);
/* Called after a token mixer that wrote n output values per row to s->att: narrows the stream and that output to
 * the logits rows. `rows` receives the residual. */
void pi__stream_result_rows(pi__model *m, pi__stream *s, int64_t n, float *rows);

/* x [b->n_tokens, E] = rows of images, at their tokens; after the embedding. No-op if the step has no image. */
void pi__place_images(pi__model *m, const pi__batch *b, float *x);
/* s->x += the images' DeepStack rows of this layer, after the layer. No-op for other layers, and without images. */
void pi__add_deepstack(pi__model *m, const pi__stream *s, int32_t layer);

/* Captured hidden states for a drafter. `pi__capture_layout` allocates m->captured.x. `pi__capture` copies the residual
 * stream x [T, E] before `layer` into it, if the drafter reads that layer. */
void pi__capture_layout(pi__model *m, pi__arena *a, size_t n_tokens);
void pi__capture(pi__model *m, const pi__batch *b, int32_t layer, const float *x);
/* Returns the last layer whose input is captured, or -1 if none is. */
int32_t pi__last_captured(const pi__model *m);

/* Runs op linear, then adds the LoRA deltas of the rows that have adapters. */
void pi__multiply(pi__model *m, const pi__linear *a);
/* Runs op head_linear, then adds the LoRA deltas. A row of x must consist of exactly n_mat parts of x_step values,
 * a row of y of n_mat parts of y_step values. */
void pi__multiply_heads(pi__model *m, const pi__head_linear *a);
/* y [n, n_out] = W in; `ld` is the row stride of y. */
void pi__matmul(pi__model *m, const pi__lin_in *in, int32_t n, const pi__weight *w, float *y, int64_t ld);
/* Returns an input of op linear with the rows of x [n, E] and an RMSNorm with weight w as prologue. w NULL = no
 * norm. */
pi__lin_in pi__normed(const pi__model *m, const float *x, const float *w, float eps);

/* ---- RoPE of queries and keys. Dims i and i + n_rot/2 are a pair ("NeoX"). `pi__attn.order` handles interleaved
 * pairs (2i, 2i+1). */
typedef struct pi__rotation {
    int32_t n_rot;           /* rotated dims of a head; 0 = no rotation */
    int32_t n_freq;          /* pairs that rotate: the first n_freq of n_rot/2 */
    float *freq;             /* [n_rot/2] radians per position, in host memory */
    float *factor;           /* [n_rot/2] divisors of freq (Llama 3.1 and others); NULL = none */
    const char *factor_name; /* name of the tensor that holds `factor` */
    float mscale;            /* multiplies cosines and sines */
    float temp;              /* position-dependent query scale, with temp_len, as in op rope */
    /* positions per step of that scale, as in op rope; 0 = no scale. If set, n_rot must equal the head size */
    int32_t temp_len;
    int32_t section[3];      /* M-RoPE, as in op rope; all 0 = none */
    bool interleaved;        /* as in op rope */
    float *table;            /* scratch: [T, 2*n_freq] */
    float *q_table;          /* scratch: table for queries, with their scale; NULL = queries use `table` */
} pi__rotation;
/* Fills in r: reads the frequencies and scaling from metadata. base_key, base, scaled: see `pi__rope_freqs`. */
void pi__rotation_declare(pi__model *m, pi__rotation *r, int32_t n_rot, const char *base_key, float base, bool scaled);
/* Like `pi__rotation_declare`, for a declared r, and adds factors from the tensor rope_freqs.weight. `needed`: the
 * tensor is required. */
void pi__rotation_factors(pi__model *m, pi__rotation *r, bool needed);
/* Declares the factors of LongRoPE (arXiv 2402.13753). The file has factors for contexts up to the training length
 * and for longer ones. The engine's max context selects one set for all positions of all requests, because one
 * cache cannot mix keys of both. No effect if the file has no factors. */
void pi__rotation_long(pi__model *m, pi__rotation *r);
/* Reads the sections of M-RoPE (rope.dimension_sections) into r. interleaved: as in op rope. needed: a file without
 * them is refused; else it has none. Sets m->mrope. */
void pi__rotation_sections(pi__model *m, pi__rotation *r, bool interleaved, bool needed);
/* Called after load: divides the frequencies by the factors, and finds n_freq. */
void pi__rotation_loaded(pi__model *m, pi__rotation *r);
/* Allocates the tables from a. */
void pi__rotation_layout(pi__rotation *r, pi__arena *a, size_t n_tokens);
/* Computes the tables of cosines and sines for the tokens of b. */
void pi__rotation_forward(pi__model *m, const pi__rotation *r, const pi__batch *b);

/* ---- biases of attention scores by distance */
typedef struct pi__rel {
    int32_t n;               /* values per head, as in pi__attention.n_rel; 0 = no biases */
    float *values;           /* [n_head, n] */
} pi__rel;
/* Fills in r: slopes of ALiBi (arXiv 2108.12409). max_bias: the slopes are powers of 2^(-max_bias / heads). */
void pi__rel_alibi(pi__model *m, pi__rel *r, int32_t n_head, float max_bias);
/* Fills in r: biases of T5 (arXiv 1910.10683) from a tensor [n_bucket, n_head]. Distances above max_distance share a
 * bucket on each side. */
void pi__rel_buckets(pi__model *m, pi__rel *r, int32_t n_head, int32_t n_bucket, int32_t max_distance,
                     const char *name, int layer);

/* ---- attention */
enum { PI__MAX_REL_DIM = 128 /* max head size with biases by distance */ };
enum {
    PI__ATTN_QK_NORM = 1,    /* RMSNorm on each query and key head */
    PI__ATTN_BIAS = 2,       /* q, k and v biases are required; without the flag they are optional */
    PI__ATTN_GATED = 4,      /* each query head is followed by a gate of its output */
    PI__ATTN_V_NORM = 8,     /* RMSNorm without weight on each value head */
    PI__ATTN_SHARED = 16,    /* reads another layer's keys and values; the caller sets `kv` */
    PI__ATTN_K_IS_V = 32,    /* the raw keys are the values, unless the file has a value matrix */
    PI__ATTN_PAST = 64,      /* a token does not attend to itself */
    PI__ATTN_BLOCK = 128,    /* a token also attends to later tokens of its step */
    PI__ATTN_OUT_BIAS = 256, /* the output projection has a bias; not with post_norm */
    PI__ATTN_SINKS = 512,    /* attention sinks */
    PI__ATTN_WIDE_NORM = 1024, /* one RMSNorm across all query heads, one across all key heads; not with gates */
    PI__ATTN_WIDE_LAYER = 32768, /* with PI__ATTN_WIDE_NORM: LayerNorms, after the biases */
    PI__ATTN_NORM_LAST = 2048, /* with PI__ATTN_QK_NORM: the norms follow RoPE */
    PI__ATTN_GATES = 4096,   /* the result is multiplied by gates from a matrix of their own, one per value */
    PI__ATTN_HEAD_GATES = 8192, /* likewise, one gate per head */
    PI__ATTN_SOFTPLUS = 16384, /* gates are softplus instead of sigmoid; with either of these two */
};

typedef struct pi__attn {
    int32_t n_head, n_head_kv, head_dim; /* H, K, D */
    int32_t window;          /* sliding window in tokens; 0 = no window */
    /* with PI__ATTN_BLOCK: number of later tokens of the step that a token attends to; 0 = all */
    int32_t ahead;
    int32_t flags;           /* PI__ATTN_* */
    float eps;               /* epsilon of the RMSNorms */
    float post_eps;          /* epsilon of post_norm; 0 = eps */
    float q_scale;           /* factor of the queries */
    float softcap;           /* softcap of attention scores; 0 = none */
    const pi__rotation *rot; /* NULL or n_freq 0 = no RoPE */
    const pi__rel *rel;      /* biases of the scores; NULL = none */
    /* [(H+2K)*D] file row of each row of the stacked q, k, v, for files with interleaved pairs (`pi__attn_order`);
     * NULL = file order */
    const int32_t *order;
    int32_t value_dim;       /* values of a head of V and of the output, less than D; 0 = D. Not with `order` */
    float out_scale;         /* factor of the output, before wo; 0 = 1 */
    pi__model *owner;        /* model with the cache of the keys and values; NULL = this model */
    /* tensors */
    float *norm;             /* [E]; NULL = no norm */
    pi__weight wq, wk, wv;   /* [H*D, E] ([2*H*D, E] with gates), [K*D, E], [K*D, E]; or */
    pi__weight wqkv;         /* [(H+2K)*D, E], rows q, k, v */
    pi__weight wgate;        /* [H*D, E] with PI__ATTN_GATES, [H, E] with PI__ATTN_HEAD_GATES */
    float *q_bias, *k_bias, *v_bias; /* [H*D], [K*D], [K*D], or NULL; or */
    float *qkv_bias;         /* [(H+2K)*D] bias with wqkv; or NULL */
    float *q_norm, *k_norm;  /* [D] each; with PI__ATTN_WIDE_NORM [H*D], [K*D] */
    float *q_shift, *k_shift; /* [H*D], [K*D] biases of the norms, with PI__ATTN_WIDE_LAYER */
    float *sinks;            /* [H] see pi__attention; NULL = none */
    pi__weight wo;           /* [E, H*D] output projection; [E, H*value_dim] */
    float *out_bias;         /* [E]; NULL = none */
    float *post_norm;        /* [E] norm of the output; NULL = none */
    int32_t kv;              /* index of the layer's cache in the owner's kv */
} pi__attn;
/* Returns a row order of the stacked q, k, v for files with interleaved RoPE pairs (2i, 2i+1). It reorders the rows
 * of q and k heads so that pairs become NeoX pairs (i, i + n_rot/2); v is unchanged. Matrix rows are independent
 * outputs, so rows are reordered at load and kernels only see NeoX pairs. */
const int32_t *pi__attn_order(pi__model *m, int32_t n_head, int32_t n_head_kv, int32_t head_dim, int32_t n_rot);
/* Declares a layer's matrices, biases, sinks, head norms and cache, and raises the widths of w. The architecture
 * declares norm and post_norm, as their tensor names differ. */
void pi__attn_declare(pi__model *m, pi__attn *a, int32_t layer, pi__work *w);
/* Returns the number of values in a row of s->qkv. */
int64_t pi__attn_width(const pi__attn *a);
/* s->qkv = queries, keys and values of the normed residual, after bias, norms and RoPE. Writes this step's keys and
 * values to the cache. */
void pi__attn_project(pi__model *m, const pi__attn *a, const pi__stream *s);
/* Like `pi__attn_project`, for the input `in` instead of the normed residual. */
void pi__attn_project_of(pi__model *m, const pi__attn *a, const pi__lin_in *in, const pi__stream *s);
/* Computes only this step's keys and values, from `in`, and writes them to the cache. */
void pi__attn_inject(pi__model *m, const pi__attn *a, const pi__lin_in *in, const pi__stream *s);
/* s->att [n, H*D] = attention of the queries in s->qkv to keys from position `first` on. */
void pi__attn_attend(pi__model *m, const pi__attn *a, const pi__stream *s, int32_t first);
/* s->y [n, E] = wo att. With value_dim, changes s->qkv. */
void pi__attn_result(pi__model *m, const pi__attn *a, const pi__stream *s);
/* s->x += wo att; with post_norm, the norm of wo att is added. */
void pi__attn_output(pi__model *m, const pi__attn *a, const pi__stream *s);

/* ---- lightning indexer (DeepSeek V3.2, arXiv 2512.02556): selects the rows that a token's latent attention reads
 * (block_index.c) */
/* Scratch that the layers' indexers share. A layer without an indexer of its own reads the last selection. */
typedef struct pi__index_work {
    float *q, *k, *w;        /* [T, I*J] queries, [T, J] keys, [T, I] weights of the heads */
    int32_t *pick;           /* [T, n_top] selected rows of each token, as in op indexer */
} pi__index_work;

typedef struct pi__index {
    int32_t n_head, dim;     /* I, J: heads of the indexer, their size; n_head 0 = attention reads all rows */
    int32_t n_top;           /* max rows that a token reads */
    bool shared;             /* no indexer of its own: the layer uses the selection of the last layer that has one */
    float eps;               /* of the LayerNorm */
    /* [I*J], [J] file row of each row of q and k: the rotated values come last, in interleaved pairs */
    const int32_t *q_row, *k_row;
    pi__index_work *work;
    /* tensors */
    pi__weight q;            /* [I*J, Q] queries, from the normed low-rank queries of attention */
    pi__weight k, w;         /* [J, E], [I, E] key, weights of the heads */
    float *norm, *shift;     /* [J] LayerNorm of the key */
    int32_t rows;            /* index of the layer's cache of keys in the model's kv */
} pi__index;
/* Reads the sizes from metadata. n_rot: rotated values of a head, the first ones in the file. interleaved: the file has
 * interleaved pairs; else halves. */
void pi__index_read(pi__model *m, pi__index *a, int32_t n_rot, bool interleaved);
/* Declares a layer's matrices, norm and cache. rank_q: Q. */
void pi__index_declare(pi__model *m, pi__index *a, int32_t layer, int64_t rank_q);
/* Allocates the scratch; no-op without indexers. */
void pi__index_layout(pi__model *m, const pi__index *a, pi__index_work *w, pi__arena *arena, size_t n_tokens);
/* Writes the tokens' keys to the cache, and the selected rows to work->pick. work->q, k and w hold the products. rope,
 * n_rot: the rotation of attention. */
void pi__index_select(pi__model *m, const pi__index *a, const pi__batch *b, const float *rope, int32_t n_rot);

/* ---- latent attention (MLA): all heads read one cached row per token, which is both key and value (block_mla.c) */
typedef struct pi__mla {
    int32_t n_head;          /* H; 0 = no MLA */
    int32_t n_key;           /* non-rotated values of a head's query and key */
    /* rotated values after these n_key, in interleaved pairs; all heads share the rotated part of the key */
    int32_t n_rot;
    int32_t n_value;         /* values of a head's output */
    /* number of values of the latent (KV rank): a cache row is the latent, key and value at the same time, then
     * n_rot values of the key */
    int32_t rank;
    int32_t rank_q;          /* query rank Q: queries are q_b q_a x; 0 = one full query matrix */
    float eps;               /* of the RMSNorms */
    float q_scale;           /* factor of the queries */
    const pi__rotation *rot; /* NULL = no RoPE */
    bool head_gates;         /* the sigmoid of a gate is a factor of each head's output */
    pi__index index;         /* selects the rows that a token reads; n_head 0 = all */
    /* factor of each query value by position (pi__temper); NULL = none */
    const struct pi__temper *temper;
    /* tensors */
    float *norm;             /* [E] RMSNorm before attention */
    pi__weight q;            /* [H*(n_key + n_rot), E]; or */
    pi__weight q_a, q_b;     /* [Q, E], [H*(n_key + n_rot), Q] */
    float *q_norm;           /* [Q] RMSNorm of q_a's output */
    pi__weight kv;           /* [rank + n_rot, E] */
    float *kv_norm;          /* [rank] */
    pi__weight k_b, v_b;     /* H of [rank, n_key]: maps a query to the latent row; H of [n_value, rank]; or */
    const int32_t *k_row, *v_row; /* [H*n_key], [H*n_value] rows of attn_kv_b in older files; NULL = newer files */
    pi__weight gate;         /* [H, E] with head_gates */
    pi__weight wo;           /* [E, H*n_value] */
    int32_t rows;            /* index of the layer's cache of rows in the model's kv */
} pi__mla;
/* Factors of queries that grow with the position (as in op rope: temp, temp_len). */
enum { PI__TEMPER_PART = 16 };
typedef struct pi__temper {
    float temp;              /* strength; 0 = no factors */
    int32_t temp_len;        /* positions per step */
    int32_t n;               /* query values of a token, a multiple of PI__TEMPER_PART */
    float freq[PI__TEMPER_PART]; /* zeros: a RoPE table without rotation has the factors in its cosines */
    float *table, *factor;   /* scratch: [T, 2 * PI__TEMPER_PART]; [T, n] each token's factor, n times */
} pi__temper;
void pi__temper_layout(pi__temper *t, pi__arena *a, size_t n_tokens);
/* Computes the factors of the tokens of b. */
void pi__temper_forward(pi__model *m, const pi__temper *t, const pi__batch *b);

/* Reads n_head, the sizes, eps and q_scale from metadata. q_scale does not include YaRN's correction. */
void pi__mla_read(pi__model *m, pi__mla *a);
/* Declares a layer's matrices, norms and cache, and raises the widths of w. The architecture declares `norm`. */
void pi__mla_declare(pi__model *m, pi__mla *a, int32_t layer, pi__work *w);
/* Returns the number of values in a row of s->qkv. */
int64_t pi__mla_width(const pi__mla *a);
/* s->qkv = queries in latent space, from the normed residual. Writes this step's rows to the cache. */
void pi__mla_project(pi__model *m, const pi__mla *a, const pi__stream *s);
/* s->qkv = for each head, the attention-weighted sum of latents of rows from position `first` on; s->att [n,
 * H*n_value] = the heads' outputs. */
void pi__mla_attend(pi__model *m, const pi__mla *a, const pi__stream *s, int32_t first);
/* s->x += wo att. */
void pi__mla_output(pi__model *m, const pi__mla *a, const pi__stream *s);

/* ---- gated short convolution (LFM2, arXiv 2511.23404): y = out (c * convolution of b * u), [b, c, u] = in x
 * (block_conv.c). The layer has a small recurrent state instead of a cache. */
typedef struct pi__conv {
    int32_t n_taps;          /* taps of the convolution; 0 = the layer has none */
    float eps;               /* of the RMSNorm */
    /* floats between rows of the result in s->qkv, at least E. Equal to the width of the attention layers' rows: in a
     * pipeline, another microbatch may run other layers before the logits rows are gathered */
    int64_t ld;
    /* tensors */
    float *norm;             /* [E] RMSNorm before the block */
    pi__weight in;           /* [3*E, E] rows of b, c, u */
    float *taps;             /* [E, n_taps], the last tap for the current token */
    pi__weight out;          /* [E, E] */
    int32_t state;           /* index of the layer's state in the model's list */
} pi__conv;
/* Declares a layer's matrices, taps and state, and raises the widths of w. The architecture declares `norm`. */
void pi__conv_declare(pi__model *m, pi__conv *a, int32_t layer, pi__work *w);
/* s->qkv [n, E], rows `ld` floats apart = c * convolution of the normed residual's b * u. Updates the sequences'
 * states. */
void pi__conv_mix(pi__model *m, const pi__conv *a, const pi__stream *s);
/* s->x += out s->qkv. */
void pi__conv_output(pi__model *m, const pi__conv *a, const pi__stream *s);

/* ---- LayerNorm */
typedef struct pi__shifted_norm {
    float *w, *shift;        /* [E] weight, bias; shift NULL = no bias */
    float eps;
} pi__shifted_norm;
/* out [n, E] = LayerNorm of the rows of x [n, E]; out is not x. */
void pi__layer_normed(pi__model *m, const pi__shifted_norm *norm, const float *x, int32_t n, float *out);

/* ---- feed-forward */
typedef struct pi__mlp {
    int32_t n_ff;            /* F */
    int act;                 /* a kind of pi__lin_in with x2 */
    bool ungated;            /* no gate: y = down(f(up x + up_bias)) + down_bias; not with `fused` */
    int32_t kind;            /* with `ungated`: f, as in pi__activate */
    float p[4];              /* with `ungated`: parameters of f */
    float limit;             /* as in pi__lin_in */
    bool fused;              /* the file's ffn_up stacks gate and up: `gate` holds both ([2F, E]), `up` is empty */
    /* tensors */
    pi__weight gate, up, down; /* [F, E], [F, E], [E, F] y = down(act(gate x) * up x) */
    /* [F], [E] biases with `ungated`; NULL = none. The caller of pi__mlp_forward adds down_bias */
    float *up_bias, *down_bias;
} pi__mlp;
/* Declares the layer's matrices. kind: suffix of the tensor names after "ffn_gate", "ffn_up", "ffn_down": "" or
 * "_shexp". */
void pi__mlp_declare(pi__model *m, pi__mlp *l, const char *kind, int32_t layer, pi__work *w);
/* The two halves of pi__mlp_forward. ff [n, F | F] = gate and up of `in`; y [n, E] = down of act(gate) * up. */
void pi__mlp_gate_up(pi__model *m, const pi__mlp *l, const pi__lin_in *in, int32_t n, float *ff);
void pi__mlp_down(pi__model *m, const pi__mlp *l, const float *ff, int32_t n, float *y);
void pi__mlp_forward(pi__model *m, const pi__mlp *l, const pi__lin_in *in, int32_t n, float *ff, float *y);

/* ---- experts */
typedef struct pi__experts {
    int32_t n_expert, n_used; /* X; experts per token; n_expert 0 = no experts */
    int32_t n_ff;            /* F of one expert */
    int32_t n_in;            /* values of the experts' input and output, instead of E; 0 = E */
    bool ungated;            /* no gate: y = down(act(up x)); `gate` holds up, and `act` is a kind with x2 = x */
    float weights_scale;     /* factor of the routing weights */
    bool undivided;          /* routing weights are not divided by their sum */
    int32_t n_group, n_group_used; /* as in pi__moe */
    int act, gating;         /* as in pi__moe */
    float limit;             /* limit of the activation, as in pi__lin_in */
    bool biases;             /* the experts' matrices have biases; with softmax gating, the router's logits have too */
    float *bias;             /* as in pi__moe */
    const int32_t *table;    /* as in pi__moe */
    /* tensors */
    /* X of [F, E], [F, E], [E, F]. Empty `up`: gate is X of [2F, E], gate rows then up rows */
    pi__weight gate, up, down;
    float *gate_bias, *up_bias, *down_bias; /* [X, F], [X, F], [X, E]; NULL = none */
} pi__experts;
/* Reads expert_count and expert_used_count into e. `needed`: a file without experts is refused. */
void pi__experts_read(pi__model *m, pi__experts *e, bool needed);
/* Reads the router's keys: expert_gating_func (default `func`: 1 softmax, 2 sigmoid), expert_weights_norm (default
 * `divided`), expert_weights_scale and the expert groups. */
void pi__experts_read_router(pi__model *m, pi__experts *e, uint32_t func, bool divided);
/* Declares a layer's expert matrices and their biases and, for sigmoid gates, the selection bias. `fused`: the file may
 * have gate and up as one tensor. */
void pi__experts_declare(pi__model *m, pi__experts *e, bool fused, int32_t layer, pi__work *w);
/* Returns the arguments of op moe for n rows of `in` with these router logits, `ldl` floats apart. */
pi__moe pi__experts_args(const pi__model *m, const pi__experts *e, const pi__lin_in *in, int32_t n, const float *logits,
                         int64_t ldl, float *y);
/* y [n, E] = output of the selected experts for `in`. logits: router logits, rows `ldl` floats apart. b: the batch with
 * these rows as tokens; read only if e->table is set. */
void pi__experts_forward(pi__model *m, const pi__experts *e, const pi__lin_in *in, int32_t n, const float *logits,
                         int64_t ldl, const pi__batch *b, float *y);

/* ---- embedding and logits */
typedef struct pi__head {
    float embd_scale;        /* factor of embeddings */
    float eps;               /* epsilon of output_norm */
    float softcap;           /* softcap of logits; 0 = none */
    float logit_scale;       /* factor of logits, applied before the softcap; 0 = no factor */
    const char *norm_name;   /* name of the tensor of output_norm; NULL = "output_norm.weight" */
    bool layer_norm;         /* output_norm is a LayerNorm, whose result is stored in `normed` */
    bool biased;             /* the LM head has a bias; not with draft heads */
    float *normed;           /* with layer_norm: scratch [R, E] */
    /* tensors */
    pi__weight tok_embd;     /* [V, E] token embedding */
    pi__weight output;       /* [V, E]; n_out 0 = tied to tok_embd */
    float *output_bias;      /* [V] with `biased`; else NULL */
    float *output_norm;      /* [E] RMSNorm before the LM head */
    float *logits_norm;      /* [E] output_norm * logit_scale; NULL = use output_norm */
    float *output_shift;     /* [E] bias of the LayerNorm; NULL = none. Not with logit_scale */
} pi__head;
/* Declares the tensors and reads the vocabulary size. `tied`: output.weight is optional. */
void pi__head_declare(pi__model *m, pi__head *h, bool tied);
/* x [T, E] = embeddings. */
void pi__head_embed(pi__model *m, const pi__head *h, const pi__batch *b, float *x);
/* out [n, V] = logits of n rows x of the residual stream: output_norm, LM head, softcap. */
void pi__head_logits(pi__model *m, const pi__head *h, const float *x, int32_t n, float *out);
/* out [n, E] = n rows x of the residual stream after output_norm. */
void pi__head_hidden(pi__model *m, const pi__head *h, const float *x, int32_t n, float *out);
/* Returns the LM head matrix. */
const pi__weight *pi__head_output(const pi__head *h);

#endif
