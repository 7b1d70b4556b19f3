/* A dense transformer built from blocks: attention, then a gated feed-forward or experts, in each layer. Architectures
 * differ in a few fields of pi__dense, which their declare functions set (shortest: phi3.c, longest: deepseek2.c).
 * Hybrid models (hybrid.c, granite.c) have mixers of Mamba or Mamba-2 instead of attention, or in addition to it; or
 * Kimi delta attention in some layers (kimi.c). */
#ifndef PI__DENSE_H
#define PI__DENSE_H

#include "model/block_kda.h"
#include "model/block_mamba.h"
#include "model/block_ssd.h"
#include "model/nextn.h"

typedef struct pi__dense_layer {
    pi__attn attn;           /* attention; window, rotation and flags may differ by layer; or */
    pi__mla mla;             /* latent attention, if its n_head is not 0; or */
    /* a short convolution, if its n_taps is not 0; the architecture sets n_taps, eps and ld */
    pi__conv conv;
    pi__ssd ssd;             /* Mamba-2 mixer, if its shape.n_v is not 0; added to the attention's output */
    pi__kda kda;             /* Kimi delta attention, if its shape.n_v is not 0; then no_attn is set, too */
    pi__mamba mamba;         /* Mamba mixer, if its n_channel is not 0; then no_attn is set, too */
    bool no_attn, no_ffn;    /* the layer has no attention; no feed-forward and no experts */
    float *attn_shift;       /* [E] with layer_norms: bias of the norm before attention; NULL = none */
    float *ffn_norm;         /* [E] norm before the feed-forward; NULL = none */
    float *ffn_shift;        /* [E] its bias, like attn_shift */
    pi__mlp mlp;             /* the only feed-forward, or with experts the shared expert; n_ff 0 = neither */
    pi__weight router;       /* [X, E] logits of the experts; n_out 0 = no experts */
    /* [L, E], [E, L] the experts' input and output have experts.n_in = L values; n_out 0 = E values, no matrices */
    pi__weight latent_down, latent_up;
    pi__weight shared_gate;  /* [1, E] gate of the shared expert's output; n_out 0 = none */
    pi__experts experts;     /* routed experts */
    float *post_ffn_norm;    /* [E]; NULL = none */
} pi__dense_layer;

typedef struct pi__dense {
    /* read from metadata; architectures may change it before pi__dense_declare */
    /* F of the feed-forward; also of an expert, unless the file has expert_feed_forward_length */
    int32_t n_ff;
    int32_t n_lead;          /* leading layers without experts */
    int32_t moe_step;        /* later layers i have experts only if (i + 1) % moe_step is 0; 0 = all have */
    bool some_routed;        /* only layers with a router in the file have experts */
    /* The layers run this number of times, one run after another; each run has caches of its own. 0 = once. Not with
     * states or draft heads */
    int32_t n_loops;
    bool loop_norm;          /* output_norm is applied between two runs, too */
    int32_t n_ff_shared;     /* F of the shared expert; 0 = none */
    bool gated_shared;       /* the shared expert's output is multiplied by the sigmoid of a gate */
    /* number of draft heads, which are the last layers of the file; at most one is loaded, if the model drafts with
     * it */
    int32_t n_next;
    int32_t window;          /* attention.sliding_window in tokens; 0 = absent */
    bool full_first;         /* the first layer of each period has full attention, not the last (pi__dense_windows) */
    int32_t n_rot;           /* rotated values of a head: rope.dimension_count, or D */
    int act;                 /* activation of the feed-forward */
    bool post_norms;         /* a norm after each block, too */
    bool no_pre_norms;       /* no norm before each block; requires post_norms */
    bool embd_norm;          /* a norm of the embeddings, and none before the first attention; requires layer_norms */
    bool embd_rms;           /* an RMSNorm of the embeddings, without weights */
    bool single;             /* each layer is one block with one norm, attn_norm: a mixer or a feed-forward */
    bool parallel;           /* attention and feed-forward read the same norm of x; requires layer_norms */
    bool ungated;            /* feed-forward without a gate (pi__mlp); the layers' mlp.p has its parameters */
    int32_t kind;            /* with `ungated`: the activation, as in pi__activate */
    bool norm_post_attention_name; /* the feed-forward's norm is named post_attention_norm; not with post_norms */
    bool fused;              /* gate and up are one file matrix (pi__mlp) */
    bool long_rope;          /* RoPE has factors for short and for long contexts (pi__rotation_long) */
    bool interleaved_rope;         /* the file has interleaved RoPE pairs (2i, 2i+1) */
    bool layer_norms;        /* norms before blocks and the output norm are LayerNorms (pi__dense_read_layered) */
    pi__attn attn;           /* template of the layers' attention, if mla.n_head is 0 */
    pi__mla mla;             /* template, if its n_head is not 0; then only eps of `attn` is used */
    pi__ssd ssd;             /* template of the layers' Mamba-2 mixers; its shape.n_v 0 = none */
    pi__kda kda;             /* template of the layers' Kimi delta attention; its shape.n_v 0 = none */
    pi__mamba mamba;         /* template of the layers' Mamba mixers; its n_channel 0 = none */
    pi__index_work index;    /* scratch of the layers' indexers */
    pi__temper temper;       /* used by the layers whose mla.temper is set to it */
    const bool *own_index;   /* [n_layer] with mla.index: the layer has an indexer of its own; NULL = all have */
    pi__experts experts;     /* template of the layers' experts; n_expert 0 = all layers have a dense feed-forward */
    pi__head head;
    /* `rot`: rotation of most layers; read from rope.* by pi__dense_declare if n_rot is 0. `rot_local`: rotation of the
     * layers with attn.rot set to it */
    pi__rotation rot, rot_local;
    /* [n_layer]; pi__dense_declare copies `attn` to each, except for numbers of heads, window, ahead, rot and rel, and
     * adds `flags`. It keeps mlp.p, mlp.limit and experts.limit */
    pi__dense_layer *layers;
    pi__dense_layer *again;  /* [n_loops - 1][n_layer] layers of the later runs; NULL = one run */
    pi__work work;           /* scratch */
    float *embd_weight;      /* [E] weight of embd_norm or embd_rms */
    /* scratch: [T, E] output of the shared expert, or of a Mamba-2 mixer in a layer with attention */
    float *shared;
    float *latent;           /* scratch: [T, 2 L] input and output of latent experts */
    float *normed;           /* scratch with layer_norms: [T, E] LayerNorm of x */
    pi__nextn next;          /* draft head, if loaded; its block is layers[n_layer - 1] */
} pi__dense;

/* Allocates m's pi__dense and reads the common metadata into it. def_head_dim: default head size; 0 = E / H. All
 * layers get full attention. */
pi__dense *pi__dense_read(pi__model *m, uint32_t def_head_dim);
/* Like pi__dense_read, for models in which some layers have another mixer instead of attention: head_count_kv has a
 * number for each layer. attends [n_layer]: receives true for layers with attention, false where it is 0. */
pi__dense *pi__dense_read_mixed(pi__model *m, bool *attends);
/* Like pi__dense_read, for models with LayerNorms. */
pi__dense *pi__dense_read_layered(pi__model *m);
/* Like pi__dense_read, for models whose heads of values may be smaller than those of keys. */
pi__dense *pi__dense_read_narrow(pi__model *m);
/* Returns leading_dense_block_count; if the file has no such key, the number of leading layers without a router. */
int32_t pi__dense_lead(pi__model *m);
/* Reads the routed experts of models with a router of sigmoid gates, unless the file has another one: counts, router,
 * width and n_lead. */
void pi__dense_read_experts(pi__model *m, pi__dense *d);
/* Gives layers sliding windows of d->window tokens: as attention.sliding_window_pattern says (one bool per layer, or a
 * period P), or all layers but every `period`-th (see full_first). Layers with a window get the rotation `local`, the
 * others `full`; NULL = no RoPE. Does nothing if d->window is 0. */
void pi__dense_windows(pi__model *m, pi__dense *d, int32_t period, const pi__rotation *local, const pi__rotation *full);
/* Like pi__dense_windows for encoders: half of the window is before a token, half after it. Every `period`-th layer
 * from the first on has full attention; the others have the rotation `local`. */
void pi__dense_two_sided(pi__model *m, pi__dense *d, int32_t period, const pi__rotation *local);
/* Reads the layers' limits of activations, which follow the activation: swiglu_clamp_exp and swiglu_clamp_shexp. */
void pi__dense_limits(pi__model *m, pi__dense *d);
/* Like pi__dense_read, for models with latent attention (mla). */
pi__dense *pi__dense_read_latent(pi__model *m);
/* Like pi__dense_read, for hybrid models. attention.head_count_kv and feed_forward_length may have a number per layer;
 * 0 = the layer has no attention, or no feed-forward. Such layers get no_attn and no_ffn. Layers with different numbers
 * of heads, or different widths, are refused. eps_key: key of the norms' epsilon. */
pi__dense *pi__dense_read_hybrid(pi__model *m, const char *eps_key);
/* Declares all tensors of the model, with d as the architecture has set it. */
void pi__dense_declare(pi__model *m, pi__dense *d);

/* The functions of a pi__arch for dense transformers; see there. */
void pi__dense_loaded(pi__model *m);
void pi__dense_layout(pi__model *m, const pi__limits *lim, pi__arena *a);
void pi__dense_forward(pi__model *m, const pi__batch *b, int32_t n_layer);
void pi__dense_logits(pi__model *m, int32_t first, int32_t n, float *out);
void pi__dense_hidden(pi__model *m, int32_t first, int32_t n, float *out);
/* pi__arch.draft for architectures with an optional draft head. */
void pi__dense_draft(pi__model *m, const pi__batch *b, bool chained, float *logits);
#define PI__DENSE_ARCH                                                                                                 \
    .size = sizeof(pi__dense), .loaded = pi__dense_loaded, .layout = pi__dense_layout, .forward = pi__dense_forward,   \
    .logits = pi__dense_logits, .hidden = pi__dense_hidden, .captures = true, .adapters = true

#endif
