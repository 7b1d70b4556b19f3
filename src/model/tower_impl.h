/* Internals of vision models: the block that all towers share (a ViT), and the functions of each kind of tower.
 *
 * Patches of an image are numbered in the order of pixels.h, so that the patches of a token are adjacent rows. An image
 * is computed in pieces of adjacent patches (at most `piece`), phase by phase:
 *
 *     EMBED    per piece     x = patches after the convolution, plus positions
 *     KEYS     layer, piece  q; keys and values to the pool
 *     REST     layer, piece  attention to all patches, feed-forward; then the kind's `after` (DeepStack)
 *     WINDOWS  layer, piece  both for whole attention windows, in layers that have windows; each is a sequence
 *     PROJECT  per piece of tokens
 *
 * Every phase computes a row from inputs of that row (or of all rows, in attention), so pieces never change a result.
 *
 * Symbols in shapes: N patches of the image; P patches of a piece; E width; H heads; d head size of the file; D head
 * size of the ops (d rounded up, zeros at the end); F feed-forward; O width of the text model.
 *
 * Memory: the model's scratch, the pool, and host arrays from pi__model_calloc. Threads: one. */
#ifndef PI__TOWER_IMPL_H
#define PI__TOWER_IMPL_H

#include "image/pixels.h"
#include "model/blocks.h"
#include "model/tower.h"

/* LayerNorm, or RMSNorm if `shift` is NULL. */
typedef struct pi__vit_norm {
    float *w, *shift; /* [E] */
} pi__vit_norm;

/* Clamps of the input and of the result of a matrix (Gemma 4); host memory. */
typedef struct pi__vit_clip {
    float in_lo, in_hi, out_lo, out_hi; /* -infinity, infinity = none */
} pi__vit_clip;

enum { PI__CLIP_Q, PI__CLIP_K, PI__CLIP_V, PI__CLIP_O, PI__CLIP_GATE, PI__CLIP_UP, PI__CLIP_DOWN, PI__N_CLIPS };

typedef struct pi__vit_layer {
    pi__vit_norm norm1, norm2;       /* before attention, before the feed-forward */
    pi__weight wq, wk, wv;           /* [H*D, E] */
    float *q_bias, *k_bias, *v_bias; /* [H*D], or NULL */
    float *q_norm, *k_norm;          /* [D], or NULL */
    pi__weight wo;                   /* [E, H*d] */
    float *out_bias;                 /* [E], or NULL */
    float *post_norm1, *post_norm2;  /* [E] RMSNorm of the results of attention, of the feed-forward; NULL = none */
    pi__weight gate, up, down;       /* [F, E], [F, E], [E, F]; gate.n_out 0 = no gate */
    float *gate_bias, *up_bias, *down_bias; /* [F], [F], [E], or NULL */
    float out_scale;                 /* factor of the layer's result */
    double after_work;               /* multiply-adds of the kind's `after`, per token */
    pi__vit_clip clip[PI__N_CLIPS];  /* clamps of the matrices */
} pi__vit_layer;

/* Shape and switches of the block; the kind sets the fields above the comment "derived". */
typedef struct pi__vit {
    int32_t n_embd, n_head, n_ff, n_layer; /* E, H, F; read by pi__vit_read */
    float eps;              /* of all norms; read by pi__vit_read */
    bool rms;               /* RMSNorms instead of LayerNorms */
    bool gated;             /* gated feed-forward: down(act(gate x) * up x); else down(gelu(up x)) */
    int act;                /* gated: PI__IN_GEGLU or PI__IN_SWIGLU; else PI__ACT_* */
    bool qk_norm, v_norm;   /* RMSNorm on heads of q and k; without weight on heads of v */
    float q_scale;          /* 0 = 1 / sqrt(d) */
    bool rope;              /* q and k are rotated by `angles` */
    bool clips;             /* matrices may have clamps */
    /* [d] value of the file's head that becomes value i of the op's head, for q and k; NULL = file order. Pairs of the
     * rotation have to become (i, i + d/2). */
    const int32_t *order;
    /* derived */
    int32_t d, dim;         /* d, D */
    int32_t *q_row, *k_row, *v_row; /* [H*D] file row of each row in separate matrices; -1 = zeros */
    int32_t *q_fused, *k_fused, *v_fused; /* likewise in the fused matrix */
    int32_t *head_row;      /* [D] file value of each value of a head's norm */
    float head_eps;         /* of the head norms, corrected for the zeros of a head */
    pi__vit_layer *layer;   /* [n_layer] */
} pi__vit;

/* PI__TOWER_BLOCK: tokens per block of the pool. PI__TOWER_WINDOWS: max attention windows of a piece. */
enum { PI__TOWER_BLOCK = 64, PI__TOWER_WINDOWS = 32 };
enum pi__tower_phase { PI__TOWER_IDLE, PI__TOWER_EMBED, PI__TOWER_KEYS, PI__TOWER_REST, PI__TOWER_IN_WINDOWS,
                      PI__TOWER_PROJECT };

/* A kind of tower. */
typedef struct pi__tower_kind {
    const char *projector;     /* value of clip.vision.projector_type */
    size_t size;               /* bytes of the kind's struct, at tower->own */
    /* Sets vit, rules and frame, and declares all tensors. The first error is kept in the model. */
    void (*declare)(pi__tower *t);
    /* Takes more scratch memory from the arena. NULL = nothing more. */
    void (*layout)(pi__tower *t, pi__arena *a);
    /* Fills in angles [n, d] (d/2 cosines, then d/2 sines) of patches first .. first + n - 1, in host memory. NULL = no
     * rotation. */
    void (*angles)(pi__tower *t, int32_t first, int32_t n, float *angles);
    /* Sets *col and *row to the place of patch i in the image. NULL = the order of pixels.h. */
    void (*place)(const pi__tower *t, int32_t i, int32_t *col, int32_t *row);
    /* Returns the end of the attention window that starts at patch `first`, at most PI__TOWER_BLOCK patches later; 0 =
     * the layer has no windows. NULL = no layer has windows. */
    int32_t (*window_end)(const pi__tower *t, int32_t layer, int32_t first);
    /* x [n, E] = embeddings of the patches first .. first + n - 1. */
    void (*embed)(pi__tower *t, int32_t first, int32_t n);
    /* Called after a layer for these patches. NULL = nothing to do. */
    void (*after)(pi__tower *t, int32_t layer, int32_t first, int32_t n, float *rows);
    /* Writes the rows of tokens first .. first + n - 1. */
    void (*project)(pi__tower *t, int32_t first, int32_t n, float *rows);
} pi__tower_kind;

struct pi__tower {
    pi__model *m;              /* the tower as a model; m->arch_data is this struct */
    pi__gguf *g;               /* the file; NULL after load */
    const pi__tower_kind *kind;
    void *own;                 /* the kind's struct */
    pi__tower_text text;       /* the text model; only during open */
    pi__image_rules rules;
    pi__image_frame frame;
    pi__digest digest;         /* see pi__tower_digest; set by load */
    pi__vit vit;
    int32_t n_out;             /* O */
    int32_t width;             /* floats of a row, see pi__tower_width */
    uint32_t wish;             /* pi__tower_use.max_tokens */
    int32_t max_patches;       /* N of the largest image */
    double project_work;       /* multiply-adds of a token in phase PROJECT; 0 = E * O */
    int64_t max_ff, max_y;     /* row widths of ff, y: the largest that any block needs; raised by declare */
    /* scratch, on the device */
    int32_t piece;             /* P */
    float *x;                  /* [N, E] residual stream */
    float *q;                  /* [N, H*D] queries */
    float *k, *v;              /* [P, H*D] */
    float *att;                /* [P, H*D] */
    float *h;                  /* [P, max(E, H*D)] input of matrices */
    float *y;                  /* [P, max_y] results of matrices */
    float *ff, *up;            /* [P, max_ff] each */
    float *clamped;            /* [P, max(E, F)] clamped input of a matrix; only with clips */
    float *rope;               /* [N, d] cosines and sines */
    float *patches;            /* [P, 3 * patch * patch] */
    /* the pool: keys and values of one layer */
    pi__kv_layer kv;
    char *pool;
    size_t pool_bytes;
    /* host memory */
    pi__pixel_values values;   /* normalised values of bytes */
    float *stage;              /* [P, stage_width] values to upload */
    int64_t stage_width;       /* floats per patch */
    int32_t *row, *row2;       /* [P] each: rows of tables, for gather_rows and add_rows */
    int32_t *zero;             /* [P] zeros: all rows add row 0 of a table */
    int32_t *token, *pos, *seq, *slot, *table; /* arrays of the batch: [P] each; table [N / PI__TOWER_BLOCK + 1] */
    int32_t max_windows;       /* windows of a piece */
    int32_t seq_start[PI__TOWER_WINDOWS + 1], seq_len[PI__TOWER_WINDOWS], window[PI__TOWER_WINDOWS];
    int32_t n_verified[PI__TOWER_WINDOWS]; /* patches of each sequence in the piece: none is a draft */
    pi__batch batch;
    /* the image that is computed now */
    pi__picture *picture;      /* NULL = none */
    int32_t n_patches;         /* N */
    int32_t phase, layer, first; /* position of the next piece */
};

/* ---- tower_vit.c: the block */

/* Reads E, H, F, layers and eps. */
void pi__vit_read(pi__tower *t);
/* Computes the derived fields, and declares the tensors of all layers. */
void pi__vit_declare(pi__tower *t);
/* Declares a norm NAME.weight, NAME.bias of n values, or with `rms` only the weight. */
void pi__vit_declare_norm(pi__tower *t, pi__vit_norm *n, int64_t size, bool rms, const char *name);
/* q, k, v of n patches: queries to t->q, keys and values to the pool. */
void pi__vit_keys(pi__tower *t, const pi__batch *b, int32_t layer, int32_t first, int32_t n);
/* Attention and feed-forward of n patches: updates x. */
void pi__vit_rest(pi__tower *t, const pi__batch *b, int32_t layer, int32_t first, int32_t n);
/* Sets *col and *row to the place of patch i. */
void pi__tower_place(const pi__tower *t, int32_t i, int32_t *col, int32_t *row);
/* t->patches [n, 3 * patch * patch] = pixels of the patches first .. first + n - 1. */
void pi__vit_patches(pi__tower *t, int32_t first, int32_t n);

/* ---- tower_ops.c: small graphs over rows */

/* y [n, w->n_out] = w x, for n rows of x that are w->n_in floats long and ldx floats apart. */
void pi__tower_matmul(pi__tower *t, const float *x, int64_t ldx, int32_t n, const pi__weight *w, float *y);
/* x [n, size] += bias [size]; bias NULL = nothing is added. */
void pi__tower_bias(pi__tower *t, float *x, int32_t n, int64_t size, const float *bias);
/* out [n, size] = norm of x [n, size]. */
void pi__tower_norm(pi__tower *t, const pi__vit_norm *w, const float *x, int32_t n, int64_t size, float eps,
                    float *out);
/* y [n, size], ldy floats apart = x [n, size]. */
void pi__tower_copy(pi__tower *t, const float *x, int32_t n, int64_t size, float *y, int64_t ldy);
/* x [n, size] = clamp(factor * x * y * w, lo, hi); y [n, size] and w [size] may be NULL. */
void pi__tower_scale(pi__tower *t, float *x, int32_t n, int64_t size, float factor, const float *y, const float *w,
                     float lo, float hi);
/* out [n, size] = mean of each `each` adjacent rows of x [n * each, size], times factor. y: scratch like out. */
void pi__tower_pool(pi__tower *t, const float *x, int32_t n, int32_t each, int64_t size, float factor, float *y,
                    float *out);
/* The projector of most towers: y = second (gelu (first x)). */
typedef struct pi__tower_mlp {
    pi__weight first, second; /* second.n_out is O */
    float *first_bias, *second_bias; /* NULL = none */
    int gelu;                 /* PI__ACT_* */
    double work;              /* multiply-adds of a row; set by pi__tower_declare_mlp */
} pi__tower_mlp;
/* Declares the MLP with n_in columns from the tensors FIRST.weight, FIRST.bias, SECOND.weight, SECOND.bias. */
void pi__tower_declare_mlp(pi__tower *t, pi__tower_mlp *p, int64_t n_in, const char *first, const char *second);
/* t->y [n, O] = the MLP of x [n, n_in]. project: writes the result to rows, t->width floats apart. */
void pi__tower_mlp_run(pi__tower *t, const pi__tower_mlp *p, const float *x, int32_t n);
void pi__tower_project(pi__tower *t, const pi__tower_mlp *p, const float *x, int32_t n, float *rows);

/* ---- tower_read.c: metadata, rules, frame */

/* Reads patch size, means and deviations. merge: patches per side of a token. */
void pi__tower_read_rules(pi__tower *t, int32_t sizing, int32_t filter, int32_t merge);
/* Sets the limits in tokens: the range without a wish, and the largest number of tokens unless the option
 * image-max-tokens is set. */
void pi__tower_limits(pi__tower *t, uint32_t default_min, uint32_t default_max, uint32_t max_tokens);
/* Sets begin, soft and end of the frame by the texts of the tokens (NULL = none). A missing token is an error. */
void pi__tower_tokens(pi__tower *t, const char *begin, const char *soft, const char *end);
/* Refuses a projector whose width is not the text model's. name: the tensor that has this width. */
void pi__tower_check_width(pi__tower *t, int64_t n, const char *name);
/* Raises the row width of y, of ff. */
void pi__tower_need(pi__tower *t, int64_t y, int64_t ff);

extern const pi__tower_kind pi__tower_gemma3, pi__tower_gemma4, pi__tower_gemma4u, pi__tower_qwen3vl;
extern const pi__tower_kind pi__tower_pixtral, pi__tower_qwen25vl, pi__tower_qwen2vl;

#endif
