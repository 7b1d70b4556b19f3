/* A dense transformer, made of blocks: attention and a gated feed-forward (or experts) a layer, nothing else. What its
 * architectures differ in are a few fields: an architecture's declare reads them into the pi__dense and is done
 * (llama.c is the shortest, gemma3.c the longest). */
#ifndef PI__DENSE_H
#define PI__DENSE_H

#include "model/nextn.h"

typedef struct pi__dense_layer {
    pi__attn attn;           /* its window, rotation and flags may be a layer's own; or */
    pi__mla mla;             /* where its n_head is not 0 */
    float *ffn_norm;         /* [E] */
    pi__mlp mlp;             /* the shared expert, where n_ff is not 0, or all there is; or */
    pi__weight router;       /* [X, E] and */
    pi__experts experts;
    float *post_ffn_norm;    /* [E], or NULL */
} pi__dense_layer;

typedef struct pi__dense {
    /* read from metadata, changed by architectures before pi__dense_declare */
    int32_t n_ff;            /* F; of experts, too, where they have none of their own */
    int32_t n_lead;          /* layers without experts before those with them */
    int32_t n_ff_shared;     /* F of the shared expert; 0: there is none */
    int32_t n_next;          /* last layers of the file, which are draft heads': left out, but for one that is wanted (pi__dense_draft) */
    int32_t window;          /* attention.sliding_window; 0: absent */
    int32_t n_rot;           /* rope.dimension_count, or D */
    int act;                 /* of the feed-forward */
    bool post_norms;         /* a norm after each block, too */
    bool norm_behind;        /* the feed-forward's norm is called post_attention_norm; not with post_norms */
    bool fused;              /* gate and up are one matrix (pi__mlp) */
    bool long_rope;          /* factors of the rotation are of short contexts, or of long ones (pi__rotation_long) */
    bool neighbours;         /* dims 2i and 2i+1 are rotated pairs in the file */
    pi__attn attn;           /* what all layers are made from; or */
    pi__mla mla;             /* where its n_head is not 0; of attn eps is used */
    pi__experts experts;     /* the same; n_expert 0: an mlp */
    pi__head head;
    pi__rotation rot, rot_local; /* of most layers, which is read from rope.* where n_rot is 0; of those that are given it */
    pi__dense_layer *layers; /* [n_layer]; attn is copied by pi__dense_declare, but for window, ahead and rot */
    pi__work work;           /* scratch */
    float *shared;           /* scratch: [T, E] output of the shared expert */
    pi__nextn next;          /* of the draft head, whose block is the layer behind the last one, if the model is with it */
} pi__dense;

/* Reads what all of them have. def_head_dim: where the file does not say; 0: E / H. Layers see everything. */
pi__dense *pi__dense_read(pi__model *m, uint32_t def_head_dim);
/* The same of one with latent attention. */
pi__dense *pi__dense_read_latent(pi__model *m);
/* Wants all tensors. */
void pi__dense_declare(pi__model *m, pi__dense *d);

/* Of a pi__arch. */
void pi__dense_loaded(pi__model *m);
void pi__dense_layout(pi__model *m, const pi__limits *lim, pi__arena *a);
void pi__dense_forward(pi__model *m, const pi__batch *b, int32_t n_layer);
void pi__dense_logits(pi__model *m, int32_t first, int32_t n, float *out);
void pi__dense_hidden(pi__model *m, int32_t first, int32_t n, float *out);
void pi__dense_draft(pi__model *m, const pi__batch *b, bool chained, float *logits); /* of those whose files may have a draft head */
#define PI__DENSE_ARCH                                                                                                  \
    .size = sizeof(pi__dense), .loaded = pi__dense_loaded, .layout = pi__dense_layout, .forward = pi__dense_forward,        \
    .logits = pi__dense_logits, .hidden = pi__dense_hidden, .captures = true, .adapters = true

#endif
