/* The op table between model graphs and devices.
 *
 * A backend owns device memory and runs coarse ops in program order: on the CPU an op is done when it returns, on a GPU
 * it is queued, and finish() waits. Ops report nothing: a device error is remembered and returned by finish(). No op
 * allocates; reserve() did.
 *
 * Rules that every op keeps (promise 2 of the design): a row of the result depends on that row's inputs alone, and its
 * order of sums depends on the row's own length alone, never on how many rows, sequences, threads or blocks there are.
 *
 * Shapes are written row-major, slowest first: [n_rows, n_in]. "ld" is the distance between rows in floats.
 * One thread at a time may use a backend (the engine's step thread; the opening thread before that). */
#ifndef PI__BACKEND_H
#define PI__BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "pagedinfer.h"

enum { PI__MAX_GROUPS = 8, PI__LOAD_ROWS = 64, PI__TILE_ROWS = 16, PI__MAX_ROWS = 32 /* of logits at once */ };
enum { PI__MAX_PICK = 2047 /* clusters of a row */ };
enum { PI__MAX_SKIP = 1024, PI__MAX_TOP = 256 /* values of a row that topk finds */, PI__MAX_TOP_ROW = 1 << 20 };

/* Where matrices, caches and states lie: with the device, or with the CPU beside it (see pi__backend.side). All that a
 * single backend runs is with "the device". What both read, activations and small vectors, is in both. */
enum { PI__AT_DEVICE, PI__AT_CPU, PI__N_SIDES, PI__AT_BOTH = PI__N_SIDES, PI__N_PLACES };

/* A matrix (or n_mat stacked ones of equal shape: experts) in the device's own layout: y = W x. */
typedef struct pi__weight {
    int32_t type;       /* enum pi__type it has in the file */
    int32_t layout;     /* the backend's own code for what data looks like */
    int32_t place;      /* PI__AT_DEVICE or PI__AT_CPU */
    int64_t n_in;       /* columns: ne[0] in the file */
    int64_t n_out;      /* rows: ne[1] */
    int64_t n_mat;      /* ne[2], 1 for a plain matrix */
    void *data;         /* device memory, part of the weights region */
    size_t size;        /* bytes at data */
    const float *scale; /* n_mat factors of the result (NVFP4's second-level scale), or NULL */
    int64_t part[3];    /* rows of the matrices that lie below each other in it (q, k, v or gate, up); 0: no more */
    bool routed;        /* experts, which only moe reads */
    bool whole;         /* each of several devices has all of it */
    int32_t n_head;     /* rows are of so many heads of keys and values, or of their queries: what only qkv, gather_rows
                         * and attention read; 0: results are for all */
} pi__weight;

/* How a cache group looks to the ops of one step. Host memory, valid until the step's finish(). */
typedef struct pi__kv_batch {
    int32_t block_size;         /* tokens a block: 16, 32, 64, or 128 of rows */
    int32_t table_stride;       /* entries a row of block_table */
    const int32_t *block_table; /* [n_seqs, table_stride]: block id of tokens i*block_size..; -1: freed, behind the window */
    const int32_t *slot;        /* [n_tokens]: block id * block_size + offset where each token's K,V goes */
} pi__kv_batch;

/* The tokens of one step: those of a sequence are adjacent and in order of position. */
typedef struct pi__batch {
    int32_t n_tokens;         /* tokens in all */
    int32_t n_seqs;           /* sequences */
    int32_t n_rows;           /* positions whose logits are wanted */
    int32_t n_groups;         /* cache groups */
    const int32_t *token;     /* [n_tokens] ids */
    const int32_t *pos;       /* [n_tokens] positions */
    const int32_t *seq;       /* [n_tokens] sequence index */
    const int32_t *seq_start; /* [n_seqs + 1] first token of each sequence */
    const int32_t *seq_len;   /* [n_seqs] tokens in the cache after this step: last position + 1 */
    const int32_t *row;       /* [n_rows] token indices, ascending */
    const int32_t *owner;     /* of one of several devices: [n_tokens] the row of all their embeddings that is a token's; NULL
                               * otherwise */
    const int32_t *seq_sure;  /* [n_seqs] of its tokens in this step, those that stay; the rest are drafts */
    const int32_t *state_slot; /* [n_seqs] slot of its recurrent state */
    const int32_t *save_start; /* [n_seqs + 1] first snapshot of each sequence in save */
    const struct pi__save *save; /* [save_start[n_seqs]] snapshots to take in this step, ascending positions a sequence */
    const struct pi__batch *wanted; /* the tokens of row as a batch of their own, for what comes after the last cache is
                                     * written: same sequences, n_rows 0, nothing to write to */
    pi__kv_batch kv[PI__MAX_GROUPS]; /* by group; those of state groups are not used */
} pi__batch;

/* A snapshot of a sequence's recurrent state, taken while the step passes pos. */
typedef struct pi__save {
    int32_t pos;  /* the state after this many tokens of the sequence, a multiple of PI__STATE_CHUNK, all of them sure */
    int32_t snap; /* index in the pool of snapshots */
} pi__save;

/* One layer's keys and values in a group's pool: block b is at base + b * stride. */
typedef struct pi__kv_layer {
    int32_t group;     /* index into pi__batch.kv */
    int32_t type_k;    /* F32, F16, BF16, Q8_0 or Q4_0 */
    int32_t type_v;    /* the same, chosen separately */
    int32_t n_head_kv; /* heads */
    int32_t head_dim;  /* values a head, of K and of V; a multiple of 32 */
    int32_t place;     /* PI__AT_DEVICE or PI__AT_CPU */
    char *base;        /* pool start + this layer's offset in a block */
    size_t stride;     /* bytes from block to block (all layers of the group) */
    int32_t ratio;     /* 0: as above. Else the layer keeps rows: one of head_dim values for each ratio tokens, of type_k, at
                        * row slot / ratio of the pool, that are keys and values at once, or what makes such rows */
    bool f32;          /* rows of F32, whatever type is asked for */
} pi__kv_layer;

/* One delta-net layer's recurrent state: a slot for each sequence that runs, and a pool of snapshots. After a step a slot
 * holds the state at its last chunk boundary and what is needed of the rows since; dropping rows of the last step (drafts
 * that were not accepted) is giving the next step a smaller first position. */
enum { PI__STATE_CHUNK = 16 }; /* tokens; boundaries are at multiples of it in the sequence's own positions */
typedef struct pi__state_layer {
    int32_t n_k, n_v;   /* key heads, value heads (value head j uses key head j % n_k) */
    int32_t dim;        /* values a head */
    int32_t n_conv;     /* taps of the convolution */
    int32_t n_draft;    /* most drafts a sequence brings to a step */
    int32_t place;      /* PI__AT_DEVICE or PI__AT_CPU */
    char *base;         /* slot i is at base + i * stride */
    size_t stride;      /* bytes from slot to slot (all layers) */
    char *snap;         /* snapshot i is at snap + i * snap_stride */
    size_t snap_stride; /* bytes from snapshot to snapshot (all layers) */
} pi__state_layer;

/* What a linear op reads; computed once for all matrices that read it. */
enum { PI__IN_PLAIN, PI__IN_RMSNORM, PI__IN_GEGLU, PI__IN_SWIGLU };
typedef struct pi__lin_in {
    int kind;        /* PLAIN: x. RMSNORM: x / sqrt(mean(x^2) + eps) * w. GEGLU: gelu_tanh(x) * x2. SWIGLU: silu(x) * x2 */
    const float *x;  /* [n_rows, n_in] */
    int64_t ldx;     /* floats from row to row of x */
    const float *x2; /* [n_rows, n_in], GLU kinds: the "up" half */
    int64_t ldx2;    /* floats from row to row of x2 */
    const float *w;  /* [n_in], RMSNORM */
    float eps;       /* RMSNORM */
    float limit;     /* SWIGLU: silu(min(x, limit)) * clamp(x2, -limit, limit); 0: none */
} pi__lin_in;

/* One matrix that reads it. */
typedef struct pi__lin {
    const pi__weight *w; /* [n_out, n_in] */
    float *y;            /* [n_rows, n_out] */
    int64_t ldy;         /* floats from row to row of y */
} pi__lin;

/* Queries, keys and values of a step's tokens before attention. */
typedef struct pi__qkv {
    float *q;            /* [n_tokens, n_head * head_dim], normalised, rotated and scaled in place */
    int64_t ldq;         /* floats from row to row */
    int64_t q_stride;    /* floats from head to head; 0: head_dim */
    const float *k, *v;  /* [n_tokens, n_head_kv * head_dim]; NULL: the layer shares another's cache, only q is done */
    int64_t ldk, ldv;    /* floats from row to row */
    int32_t n_head;      /* query heads */
    const float *q_norm; /* [head_dim] RMSNorm weight a head, or NULL: none */
    const float *k_norm; /* the same for k */
    bool v_norm;         /* RMSNorm without weight on each value head */
    float eps;           /* of the norms */
    const float *rope;   /* [n_tokens, n_rot]: n_rot/2 cosines, then n_rot/2 sines (op rope); NULL: no rotation */
    int32_t n_rot;       /* rotated dims of a head */
    int32_t pair_stride; /* dims i and i + pair_stride are a pair, i < n_rot/2 ("NeoX"; n_rot/2, or head_dim/2) */
    float q_scale;       /* multiplies q at the end */
} pi__qkv;

typedef struct pi__attn {
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
    float softcap;      /* s = cap * tanh(s / cap) before softmax; 0: none */
    const float *sinks; /* [n_head] extra logits that only enlarge the softmax sum, or NULL */
} pi__attn;

enum { PI__GATE_SOFTMAX, PI__GATE_SQRT_SOFTPLUS };
enum { PI__MAX_EXPERTS = 4096, PI__MAX_USED = 64 }; /* of a layer; of a token */

/* Mixture of experts: y = sum over the n_used best experts of routing weight * down(act(gate x) * up x), in the order of
 * their rank. Routing weights: softmax over all logits, or sqrt(log(1 + e^x)) of each, of those n_used divided by their
 * sum. */
typedef struct pi__moe {
    pi__lin_in in;          /* what the experts read; prepared once a row, then gathered */
    const float *logits;    /* [n_rows, n_expert] of the router */
    int64_t ldl;            /* floats from row to row */
    int32_t n_expert;       /* matrices in gate, up and down */
    int32_t n_used;         /* experts a row */
    float weights_scale;    /* multiplies the routing weights */
    const pi__weight *gate; /* n_expert of [F, E]; with up NULL of [2F, E]: rows of gate, then of up */
    const pi__weight *up;   /* n_expert of [F, E], or NULL */
    const pi__weight *down; /* n_expert of [E, F]; its scale multiplies each expert's result */
    int act;                /* PI__IN_GEGLU or PI__IN_SWIGLU */
    float limit;            /* of SWIGLU, as in pi__lin_in */
    int gating;             /* PI__GATE_*; with SQRT_SOFTPLUS, of at most PI__MAX_EXPERTS: */
    const float *bias;      /* [n_expert] added to routing weights for the choice alone; NULL: none */
    const int32_t *table;   /* [n_vocab, n_used] experts of each token, which are not chosen then; NULL: none */
    const int32_t *token;   /* [n_rows] with table */
    float *y;               /* [n_rows, E] */
    int64_t ldy;            /* floats from row to row */
    const struct pi__moe_part *part; /* NULL: these are the whole matrices */
} pi__moe;

/* Where the matrices of a moe are a part's: F/n of the rows of gate and of up (which is there), E/n of down. */
typedef struct pi__moe_part {
    int32_t i, n; /* part i of n */
    /* Completes h, of which this part has columns i * (F/n).. of both halves. Called once, with h [n_pairs, 2F]: gate, up of
     * a row and one of its experts in an order that all parts share; what was queued before is done first. */
    void (*complete)(const struct pi__moe_part *p, float *h, int32_t n_pairs, int64_t n_ff);
    void *ud;     /* for complete */
} pi__moe_part; /* y is that of the part's rows of down: [n_rows, E/n] */

/* ---- of DeepSeek V4: streams of residuals, and attention to a window of rows and to entries, each made of many tokens */

/* Residual streams that a block reads as one and that are mixed when its result is added ("hyper-connections", Zhu et al.,
 * arXiv 2409.19606; here the mixing matrix is made doubly stochastic by Sinkhorn's iteration). m = mix * f, where f is the
 * factor of the RMSNorm over all streams of a row, n_m = 24 values, or 4 at the end of the model (n_iter 0):
 *   pre[i] = sigmoid(m[i] * scale[0] + base[i]) + eps           post[i] = 2 sigmoid(m[4 + i] * scale[1] + base[4 + i])
 *   comb = softmax over b of m[8 + 4a + b] * scale[2] + base[8 + 4a + b], plus eps; then columns are divided by their sums
 *          + eps, and n_iter - 1 times rows, then columns */
enum { PI__STREAMS = 4, PI__HYPER_MIX = 24, PI__HYPER_COEF = 20 };
typedef struct pi__hyper {
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

/* Queries and the rows that are keys and values at once: norms, and rotation of the last n_rot values of each head (or
 * row), in pairs of neighbours; rows are written to the cache. */
typedef struct pi__latent {
    float *q;            /* [n_tokens, n_head * dim], changed in place */
    int64_t ldq;         /* floats from row to row */
    int32_t n_head, dim; /* dim is a multiple of 16 */
    bool q_norm;         /* RMSNorm without weight on each head */
    float q_scale;       /* multiplies q at the end */
    const float *row;    /* [n_tokens, dim]; NULL: queries alone */
    int64_t ldr;         /* floats from row to row */
    const float *norm;   /* [dim] of row */
    float eps;           /* of the norms */
    const float *rope;   /* [n_tokens, n_rot] of op rope */
    int32_t n_rot;       /* rotated values */
} pi__latent;

/* Makes an entry of each window of `ratio` tokens whose last one is in the step. x of a token: values, then scores, `width`
 * of each, to which the token's row of `ape` is added. They are kept as rows of the cache `recent` until their windows are
 * closed. Value d of an entry is the sum of the window's values d, weighed by the softmax of their scores. With overlap,
 * width is 2 dim, tokens give their values dim + d and those of the window before (if there is one) their values d. Then
 * RMSNorm, and rotation of the last n_rot values by the position of the window's first token. */
typedef struct pi__compress {
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

/* The n_top best of the entries that a token sees (those whose windows it or a token before it closed), all where there are
 * no more: score = scale * sum over heads of w[h] * max(0, q[h] . entry), equal ones by index. */
typedef struct pi__index {
    const float *q;      /* [n_tokens, n_head * dim] */
    int64_t ldq;         /* floats from row to row */
    const float *w;      /* [n_tokens, n_head] */
    int64_t ldw;         /* floats from row to row */
    int32_t n_head, dim; /* dim is a multiple of 16 */
    float scale;         /* positive */
    int32_t n_top;       /* entries at most */
    int32_t *pick;       /* [n_tokens, n_top] ascending; what is past the number of entries seen is not written */
} pi__index;

/* Attention of each token to the rows of the last `window` tokens, itself included, and to entries, with a sink a head; the
 * last n_rot values of each result are rotated backwards. */
typedef struct pi__sparse {
    const float *q;      /* [n_tokens, n_head * dim], scaled */
    int64_t ldq;         /* floats from row to row */
    int32_t n_head, dim; /* dim is a multiple of 16 */
    int32_t window;      /* tokens */
    int32_t first;       /* rows before this position are not seen */
    const int32_t *pick; /* [n_tokens, n_top] entries, of op index; NULL: all that are seen */
    int32_t n_top;       /* see pick */
    const float *sinks;  /* [n_head] extra logits that only enlarge the softmax sum */
    const float *rope;   /* [n_tokens, n_rot] */
    int32_t n_rot;       /* rotated values */
    float *out;          /* [n_tokens, n_head * dim]; may be q, with its ld */
    int64_t ldo;         /* floats from row to row */
} pi__sparse;

/* A head whose rows are sorted into clusters, of which only those are multiplied whose centroids score best:
 * logits[order[c * n + i]] = row i of matrix c times x, for the n_pick best c; every other token gets the least of these
 * values minus 1. n_pick equal scores at the edge: the lower index wins. */
typedef struct pi__clustered {
    pi__lin_in in;               /* what all matrices read */
    const pi__weight *centroids; /* [n_mat of head, E]; where head is, and whole like it */
    const pi__weight *head;      /* a matrix of [n, E] for each cluster, without factors */
    const int32_t *order;        /* [n_vocab] token of each row of head: host memory that stays and does not change */
    int32_t n_pick;              /* clusters, at most n_mat and PI__MAX_PICK */
    float *scores;               /* scratch: [n_rows, n_mat] */
    int32_t *pick;               /* scratch: [n_rows, n_pick] */
    float *some;                 /* scratch: [n_rows, n_pick * n] */
    float *logits;               /* [n_rows, n_mat * n] */
} pi__clustered;

/* Gated delta rule of a step's tokens: convolution with silu, l2 norm of queries and keys, recurrence, gated norm.
 * Yang et al., "Gated Delta Networks" (arXiv 2412.06464). C = (2 n_k + n_v) * dim channels, rows q, k, v. */
typedef struct pi__gdn {
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
} pi__gdn;

/* The largest of everything, from which scratch is sized. */
typedef struct pi__limits {
    int32_t max_tokens;   /* tokens a step */
    int32_t max_seqs;     /* sequences a step */
    int32_t max_rows;     /* logits rows computed at once */
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
    int32_t index_head, index_dim; /* of op index; 0: none */
    int32_t index_ratio;  /* tokens an entry, the smallest */
} pi__limits;

/* What is wanted of a row of logits, see topk. */
typedef struct pi__ask {
    int32_t k;      /* its largest values, at most PI__MAX_TOP; 0: nothing */
    int32_t n_skip; /* indices that are left out */
    int32_t sum;    /* not 0: the sum of exp(x - max) */
} pi__ask;

/* What is known of a step when it begins. */
enum {
    PI__STEP_ANY,    /* nothing */
    PI__STEP_DECODE, /* of each sequence as many tokens (one, and drafts), each with a row of logits, no snapshots; its ops are
                      * the model's graph and the first rows of logits, always at the same place: a step can be recorded for
                      * others with as many sequences and tokens. Of what ops wrote before, none but caches and states is
                      * read from now on */
    PI__STEP_PARTS,  /* the same where the device does not do all of it: what it does is in parts, see op part. A device is
                      * given one of the two kinds only */
};

typedef struct pi__backend pi__backend;
typedef struct pi__link pi__link; /* what joins devices (link.h) */

typedef struct pi__backend_ops {
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
    /* Copies in the order of ops. src may be changed after upload returns; dst is filled when finish has returned. */
    void (*upload)(pi__backend *be, void *dst, const void *src, size_t n);
    void (*download)(pi__backend *be, void *dst, const void *src, size_t n);
    /* Memory of the host that downloads are fastest to. NULL: none left. */
    void *(*host_alloc)(pi__backend *be, size_t size);
    void (*host_free)(pi__backend *be, void *p, size_t size);

    /* Of far devices only, and NULL where they cannot: copies between their memory and the host's that steps do not wait
     * for. One starts when all that was queued before it is done; its result is its number, counted from 1 in the order in
     * which copies end, or 0: it was not queued. The host's memory must be pinned. Of several devices that are one, each has
     * n bytes there, one behind the other. */
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
     * the next begin: b; or the like of it with more sequences behind its own, of tokens that belong to nobody
     * (position and slots -1, seq_len 0), whose rows mean nothing; or, of one of kind DECODE, NULL: it is a recorded one
     * that is played again, and none of its ops is called. finish: PI_OK, PI_EDEVICE, or PI_ENOMEM; also after copies
     * outside of a step, and in the midst of one of another kind. */
    const pi__batch *(*begin)(pi__backend *be, const pi__batch *b, int kind);
    int (*finish)(pi__backend *be, pi_error *err);

    /* ---- ops; b is the batch that begin returned */

    /* out[i] = row token[i] of w, times scale. [n_tokens, n_in of w] */
    void (*embed)(pi__backend *be, const pi__batch *b, const pi__weight *w, float scale, float *out);
    /* y = W in, for n_lin matrices that read the same input. n_rows is at most limits.max_tokens. */
    void (*linear)(pi__backend *be, const pi__lin_in *in, int32_t n_rows, const pi__lin *lin, int32_t n_lin);
    /* x = (x + rmsnorm(y) * w) * scale. w NULL: (x + y) * scale. [n_rows, n] */
    void (*add_norm)(pi__backend *be, float *x, const float *y, const float *w, float eps, float scale, int32_t n_rows,
                     int64_t n);
    /* Cosines and sines of pos * freq[i], times mscale, for each token: table [n_tokens, 2 * n_freq], see pi__qkv.rope.
     * freq is host memory that stays and does not change while the backend lives. */
    void (*rope)(pi__backend *be, const pi__batch *b, const float *freq, int32_t n_freq, float mscale, float *table);
    /* Norm, rotation and scale of q; norm and rotation of k, norm of v, and their write to the cache at slot. */
    void (*qkv)(pi__backend *be, const pi__batch *b, const pi__qkv *a, const pi__kv_layer *kv);
    /* Softmax attention of each token over its own sequence's cache, through the block table. */
    void (*attention)(pi__backend *be, const pi__batch *b, const pi__attn *a, const pi__kv_layer *kv);
    /* out[i] = x[row[i]], zeros where that is -1. out [n_rows, n] */
    void (*gather_rows)(pi__backend *be, const int32_t *row, int32_t n_rows, const float *x, int64_t n, float *out);
    /* The largest values of rows, for the sampler. x [n_rows, n], n_rows at most PI__MAX_ROWS, n at most
     * limits.n_vocab and PI__MAX_TOP_ROW;
     * out [n_rows, 2 + k] is what finish has fetched, where k is the largest of ask[r].k:
     *
     *     word 0      keys that are missing of ask[r].k, as so few values are above -inf; plus 2^32 if the row holds NaN or +inf
     *     word 1      with ask[r].sum: bits of a double, the sum of exp(x - max), for rows that do not
     *     words 2..   ~(bits of the value, ordered as unsigned numbers) << 32 | index, ascending: the largest value first,
     *                 the lower index first of equal ones; zeros are equal, NaN is never among them
     *
     * Before, the values of the first ask[r].n_skip of the n_all indices at skip become -inf, in x; of a row that asks for
     * nothing, neither x nor out is touched. skip, at most PI__MAX_SKIP, is host memory that stays and does not change; ask
     * and out are of host_alloc, and belong to the device until finish has returned. false: the rows are not where that can
     * be done, nothing was queued. NULL: it never can, rows have to come to the host. */
    bool (*topk)(pi__backend *be, float *x, int32_t n_rows, int64_t n, const int32_t *skip, int32_t n_all, const pi__ask *ask,
                 uint64_t *out);
    /* x = cap * tanh(x / cap). n values */
    void (*softcap)(pi__backend *be, float *x, float cap, size_t n);
    /* Routed experts of n_rows rows (at most limits.max_tokens). */
    void (*moe)(pi__backend *be, const pi__moe *a, int32_t n_rows);
    /* out = x / sqrt(mean(x^2) + eps) * w. x [n_rows, n], out's rows ldo floats apart; out is not x */
    void (*norm)(pi__backend *be, float *out, int64_t ldo, const float *x, const float *w, float eps, int32_t n_rows,
                 int64_t n);
    /* NULL: the backend has it not, and a model takes its head as one matrix. n_rows is at most limits.max_rows. */
    void (*clustered)(pi__backend *be, const pi__clustered *a, int32_t n_rows);
    /* y += sigmoid(gate[row * ldg]) * x. [n_rows, n] */
    void (*add_gated)(pi__backend *be, float *y, const float *x, const float *gate, int64_t ldg, int32_t n_rows, int64_t n);
    /* All sequences of the step at once, through batch.state_slot; a sequence that starts at position 0 starts from zeros.
     * Takes the snapshots of batch.save. */
    void (*gdn)(pi__backend *be, const pi__batch *b, const pi__gdn *a, const pi__state_layer *st);
    /* Outside of a step. The slot's state at pos goes to snapshot snap, which has no effect on it: pos is its last multiple
     * of PI__STATE_CHUNK at or before the end of its sure tokens. */
    void (*state_save)(pi__backend *be, const pi__state_layer *st, int32_t slot, int32_t pos, int32_t snap);
    /* The slot becomes the state that was saved at pos. */
    void (*state_load)(pi__backend *be, const pi__state_layer *st, int32_t slot, int32_t pos, int32_t snap);

    /* Of DeepSeek V4, see the structs. entries is NULL for a layer without. */
    void (*hyper_pre)(pi__backend *be, const pi__hyper *a, int32_t n_rows);
    void (*hyper_post)(pi__backend *be, const pi__hyper *a, int32_t n_rows);
    void (*latent)(pi__backend *be, const pi__batch *b, const pi__latent *a, const pi__kv_layer *rows);
    void (*compress)(pi__backend *be, const pi__batch *b, const pi__compress *a, const pi__kv_layer *recent,
                     const pi__kv_layer *entries);
    void (*index)(pi__backend *be, const pi__batch *b, const pi__index *a, const pi__kv_layer *entries);
    void (*sparse)(pi__backend *be, const pi__batch *b, const pi__sparse *a, const pi__kv_layer *rows,
                   const pi__kv_layer *entries);

    /* ---- several devices that work as one (tensor.c) */

    /* Joins n backends, all of this kind. PI_EUNSUPPORTED: they cannot be. */
    int (*join)(pi__link **out, pi__backend *const *be, int32_t n, pi_error *err);
    /* What begin makes of a step of kind DECODE, the same on all of them: *n_seqs of the batch that it returns, or true: it
     * returns NULL. The op is NULL, as are the next three, where no steps are recorded. */
    bool (*foresee)(pi__backend *be, const pi__batch *b, int32_t *n_seqs);
    /* In a step of kind PARTS a part begins, which queued or finish ends. What is called for the n-th part, copies to and
     * from memory of host_alloc included, is the same in all steps with as many sequences and tokens. So all of it may be queued by
     * now: what its uploads read has to be there. */
    void (*part)(pi__backend *be);
    /* All ops of the step, or of its part, have been called: where they were recorded, that ends, and they are played.
     * false: something failed, which finish tells, and others would wait for what was not queued. */
    bool (*queued)(pi__backend *be);
    /* Drops what was recorded and what is being recorded: a link can only go when nothing refers to it. */
    void (*forget)(pi__backend *be);
    /* y[r, p * n + i] = x[p * step + r * ldx + i] for r < n_rows, p < n_parts, i < n; y's rows are ldy apart. */
    void (*spread)(pi__backend *be, const float *x, int64_t step, int64_t ldx, int32_t n_parts, int32_t n_rows, int64_t n,
                   float *y, int64_t ldy);
    bool moe_parts; /* moe knows pi__moe_part */
} pi__backend_ops;

struct pi__backend {
    const pi__backend_ops *ops;
    size_t page;     /* bytes, a power of two: weights lie in an arena; 0: in memory of alloc */
    bool far;        /* the host cannot read memory of alloc: it uploads and downloads */
    int32_t n_ranks; /* devices that it is, 0 or 1: one. Of several, each has memory of alloc, and in arenas, and what lies in
                      * it differs: uploads go to all, downloads are of the first */
    struct pi__backend *side[PI__N_SIDES]; /* of two that act as one (split.c), each of them; NULL: it is one */
};

/* Who allocates, loads and measures what lies there. */
static inline pi__backend *pi__backend_at(pi__backend *be, int32_t place)
{
    return place < PI__N_SIDES && be->side[place] ? be->side[place] : be;
}

/* What can be told of a device without using it. */
typedef struct pi__device_info {
    char desc[96];   /* "NVIDIA H200, sm_90" */
    char lacks[256]; /* what it cannot run, or why it cannot be used; "": nothing */
    uint64_t memory; /* bytes, 0: not known */
    bool usable;     /* create() can be expected to succeed */
} pi__device_info;

/* What devices are created with; the first four are of the CPU. */
typedef struct pi__cpu_params {
    int32_t n_threads; /* 0: as many as there are cores the process may use */
    uint64_t affinity; /* bit per core the threads are pinned to; 0: not pinned */
    int32_t poll;      /* 0..100: how long idle threads spin before they sleep; 50 by default */
    const char *isa;   /* "" or "auto", "avx512", "avx2", "neon", "generic": at most this */
    bool fp4;          /* CUDA: FP4 matrices times activations rounded to FP4, where the device has instructions for it */
    bool blas;         /* CUDA: F16 and BF16 matrices times many rows by cuBLAS, where it is installed */
    bool no_graphs;    /* CUDA: steps are not recorded */
} pi__cpu_params;
/* PI_EUNSUPPORTED: the isa asked for is not there. */
int pi__cpu_create(pi__backend **out, const pi__cpu_params *p, const pi__log *log, pi_error *err);
bool pi__cpu_tell(int32_t index, pi__device_info *out);

/* Devices of this build (devices.c), the best first. */
typedef struct pi__device {
    const char *name; /* as the option "device" has it */
    int (*create)(pi__backend **out, int32_t index, const pi__cpu_params *p, const pi__log *log, pi_error *err);
    /* What there is of the index-th of its kind. false: there is none, save the first, of which it says why. */
    bool (*tell)(int32_t index, pi__device_info *out);
} pi__device;
extern const pi__device pi__devices[]; /* ends with the CPU, which every build has and which always starts */
extern const int pi__n_devices;
enum { PI__MAX_DEVICES = 16 }; /* that work together */
/* What a list of devices names: "cuda", "cuda1", "cuda0,cuda1"; a name without a number is the next of its kind. "", "auto"
 * (the best) and "none" (the CPU) are names too. Returns how many, 0: some are not in this build. */
int pi__devices_named(const char *names, const pi__device *dev[PI__MAX_DEVICES], int32_t index[PI__MAX_DEVICES]);
/* Creates the device; with "auto" the first one that starts. tensor: all that are named, or all there are of the one kind
 * named, as one backend (tensor.h). */
int pi__device_create(pi__backend **out, const char *names, bool tensor, const pi__cpu_params *p, const pi__log *log,
                      pi_error *err);

#endif
