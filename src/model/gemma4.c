/* Gemma 4, text (31B, 26B-A4B, E2B, E4B): GGUF architecture "gemma4"; also its drafters, "gemma4-assistant".
 *
 * Like Gemma 3: window layers and global layers, a norm before and after each block, norms on query and key heads,
 * GELU-gated MLP, tied output. New: the two kinds of layers have their own head size and number of KV heads.
 * Attention is not scaled. Values are normalized without a weight, and global layers may use the raw keys as values.
 * Global layers rotate only their first pairs (the others have a frequency of practically 0). Each layer scales the
 * stream at its end. Some sizes also have:
 *
 *   experts               parallel to the MLP, on the same residual; the router reads the residual after its own norm
 *   per-layer embeddings  a second, narrow embedding of each token for each layer, gated in at the layer's end
 *   shared keys, values   the last layers have no cache; they attend to that of the last layer of their kind with one
 *
 * A drafter is a few dense layers without keys and values. They attend to the cache of the target's last layer of
 * their kind, always from the position of the last committed token. A drafter reads that token's embedding and the
 * hidden state before it, both of the target's width. It outputs logits and the next hidden state. The LM head of
 * small drafters is sorted into clusters of tokens, and only the best-scoring clusters are computed (op
 * centroid_head).
 *
 * After "Gemma 4" as described by its configuration and reference code in transformers.
 *
 * Symbols in shapes: T tokens of the step, R logits rows, E embedding, H query heads, K key/value heads; D head size
 * (of the layer's kind), F feed-forward, X experts, G feed-forward of an expert, P per-layer embedding; L layers,
 * V vocabulary. */
#include <math.h>
#include <stdio.h>

#include "model/blocks.h"

/* Properties that all window layers share, or all global layers. */
typedef struct kind {
    int32_t head_dim;           /* D; 0 = no layers of this kind */
    int32_t window;             /* window in tokens; 0 = full attention */
    pi__rotation rot;
} kind;

typedef struct layer {
    const kind *kind;           /* global or local */
    bool shares;                /* the layer has no keys and values of its own */
    float out_scale;            /* factor of the stream at the layer's end */
    pi__attn attn;
    float *ffn_norm;            /* [E] RMSNorm before the MLP */
    pi__mlp mlp;
    float *post_ffn_norm;       /* [E] RMSNorm of the MLP's output, or with experts of the sum of both outputs */
    /* experts; router.n_out 0 = none */
    pi__weight router;          /* [X, E] logits of the experts */
    float *router_norm;         /* [E] includes the factor E^-0.5 */
    float *moe_norm;            /* [E] RMSNorm before the experts */
    /* [E] RMSNorm of the MLP's and of the experts' output, before they are added */
    float *post_mlp_norm, *post_moe_norm;
    pi__experts experts;
    /* per-layer embeddings */
    pi__weight ple_gate, ple_proj; /* [P, E], [E, P] y = ple_proj(gelu(ple_gate x) * ple) */
    float *post_ple_norm;       /* [E] RMSNorm of ple_proj's output */
} layer;

typedef struct gemma4 {
    kind global, local;         /* kinds of layers */
    int32_t n_own;              /* number of layers with their own keys and values, which are the first ones */
    pi__experts experts;        /* template of the layers' experts */
    int32_t n_ple;              /* P; 0 = no per-layer embeddings */
    float eps;                  /* of every norm */
    pi__head head;              /* LM head and embedding; for a drafter without clusters, tok_embd is the LM head */
    pi__weight ple_embd;        /* [V, L*P] per-layer token embedding */
    pi__weight ple_model;       /* [L*P, E] projects the token embedding */
    float *ple_norm;            /* [P] RMSNorm of ple_model's output, per layer */
    layer *layers;              /* [n_layer] */
    pi__work work;              /* scratch */
    float *f;                   /* scratch: [T, E] sum of MLP and experts */
    float *ple, *ple_tmp;       /* scratch: [T, L*P] per-layer embeddings, output of ple_model */
    /* drafter only; W: the target's embedding */
    /* clusters of a drafter's LM head; clusters that are computed per row; n_cluster 0 = an ordinary LM head */
    int32_t n_cluster, n_pick;
    int32_t *order;             /* [V] token of each row of `clusters` */
    pi__weight centroids;       /* [n_cluster, E] */
    pi__weight clusters;        /* n_cluster of [V / n_cluster, E]; replaces tok_embd or output */
    float *scores, *some;       /* scratch: [R, n_cluster], [R, n_pick * V / n_cluster] */
    int32_t *pick;              /* scratch: [R, n_pick] */
    /* [E, 2W] maps embedding and hidden state to the drafter's width; [W, E] maps back to a hidden state */
    pi__weight pre, post;
    float *pair_rows;           /* scratch: [2R, W] embeddings, then hidden states */
    int64_t pair_step;          /* R W, floats from the embeddings to the hidden states */
    float *pairs;               /* scratch: [R, 2W] embedding and hidden state, concatenated */
    float *hidden;              /* scratch: [R, W] hidden states for the next draft */
} gemma4;

/* ---- declaring */

static void read_kind(pi__model *m, kind *k, const char *key, const char *value, const char *rot)
{
    k->head_dim = pi__hp_u32(m, key, 32, PI__MAX_HEAD_DIM);
    const int32_t vdim = pi__hp_u32_or(m, value, (uint32_t) k->head_dim, 32, PI__MAX_HEAD_DIM);
    const int32_t n_rot = pi__hp_u32_or(m, rot, (uint32_t) k->head_dim, 2, PI__MAX_HEAD_DIM);
    if (vdim != k->head_dim || n_rot != k->head_dim || k->head_dim % 32)
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "metadata gemma4.%s %d, %s %d and %s %d must be equal and a multiple of 32", key, k->head_dim,
                         value, vdim, rot, n_rot);
}

/* Reads for each layer whether it has a window, and the properties of both kinds. */
static void read_kinds(pi__model *m, gemma4 *p)
{
    const char *key = "attention.sliding_window_pattern";
    const pi__gguf_kv *kv = pi__hp_array(m, key, PI__GGUF_BOOL, m->n_layer, false);
    if (!kv) pi__model_refuse(m, PI_EFORMAT, "metadata %s.%s needs a bool for each layer", m->arch->name, key);
    bool any[2] = {false, false};
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++) {
        bool local = pi__gguf_elem_u64(kv, (uint64_t) i) != 0;
        p->layers[i].kind = local ? &p->local : &p->global;
        any[local] = true;
    }
    kind *g = &p->global, *l = &p->local;
    if (any[0]) {
        read_kind(m, g, "attention.key_length", "attention.value_length", "rope.dimension_count");
        pi__rotation_declare(m, &g->rot, g->head_dim, "rope.freq_base", 1e6f, true);
    }
    if (any[1]) {
        read_kind(m, l, "attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa");
        pi__rotation_declare(m, &l->rot, l->head_dim, "rope.freq_base_swa", 1e4f, false);
        l->window = pi__hp_u32(m, "attention.sliding_window", 1, 1 << 28);
    }
    if (any[0]) pi__rotation_factors(m, &g->rot, true);
}

/* Reads the numbers of heads and of feed-forward values per layer; a key has one number or an array. */
static void read_layers(pi__model *m, gemma4 *p)
{
    const int32_t L = m->n_layer;
    int32_t *v = pi__model_calloc(m, 3 * (size_t) L, sizeof *v, "the layers");
    if (!v) return;
    pi__hp_each(m, "attention.head_count", 1, PI__MAX_HEADS, v);
    pi__hp_each(m, "attention.head_count_kv", 1, PI__MAX_HEADS, v + L);
    pi__hp_each(m, "feed_forward_length", 1, PI__MAX_EMBD, v + 2 * L);
    for (int32_t i = 0; i < L && pi__model_ok(m); i++) {
        layer *l = &p->layers[i];
        l->shares = i >= p->n_own;
        l->attn = (pi__attn) {.n_head = v[i],
                              .n_head_kv = v[L + i],
                              .head_dim = l->kind->head_dim,
                              .window = l->kind->window,
                              .eps = p->eps,
                              .q_scale = 1.0f,
                              .rot = &l->kind->rot,
                              .owner = m->target,
                              .flags = PI__ATTN_QK_NORM | PI__ATTN_V_NORM | (l->shares ? PI__ATTN_SHARED : 0) |
                                       (l->kind == &p->global ? PI__ATTN_K_IS_V : 0) | (m->target ? PI__ATTN_PAST : 0)};
        l->mlp = (pi__mlp) {.n_ff = v[2 * L + i], .act = PI__IN_GEGLU};
        l->out_scale = 1.0f;
    }
}

static void read_params(pi__model *m, gemma4 *p)
{
    const uint32_t most = (uint32_t) m->n_layer - !m->target;
    const int32_t shared = m->target ? pi__hp_u32(m, "attention.shared_kv_layers", 0, most)
                                     : pi__hp_u32_or(m, "attention.shared_kv_layers", 0, 0, most);
    p->n_own = m->n_layer - shared;
    p->n_ple = pi__hp_u32_or(m, "embedding_length_per_layer_input", 0, 0, PI__MAX_EMBD);
    m->per_layer_embd = p->n_ple > 0;
    pi__experts_read(m, &p->experts, false);
    if (p->experts.n_expert) p->experts.n_ff = pi__hp_u32(m, "expert_feed_forward_length", 1, PI__MAX_EMBD);
    p->experts.act = PI__IN_GEGLU;
    p->eps = p->head.eps = pi__hp_f32(m, "attention.layer_norm_rms_epsilon");
    p->head.softcap = pi__hp_f32_or(m, "final_logit_softcapping", 0);
    p->head.embd_scale = sqrtf((float) m->n_embd);
    p->work.max_ff = p->n_ple;
}

/* Sets the cache of a drafter's layer i: that of the target's last layer of the same kind. */
static void share_kv(pi__model *m, gemma4 *p, int32_t i)
{
    layer *l = &p->layers[i];
    const gemma4 *t = m->target->arch_data;
    const kind *k = l->kind == &p->local ? &t->local : &t->global;
    int32_t d = m->target->n_trunk - 1;
    while (d >= 0 && t->layers[d].kind != k) d--;
    if (d < 0 || k->head_dim != l->kind->head_dim || k->window != l->kind->window ||
        l->attn.n_head % m->target->kv[t->layers[d].attn.kv].n_head_kv)
        pi__model_refuse(m, PI_EINVAL, "model-draft: layer %d has heads of %d values, %d of them, in a window of %d: "
                         "give a drafter of this model", i, l->kind->head_dim, l->attn.n_head, l->kind->window);
    else l->attn.kv = t->layers[d].attn.kv;
}

/* Sets the cache of layer i: its own, or that of the last layer of its kind that has one. */
static void find_cache(pi__model *m, gemma4 *p, int32_t i)
{
    layer *l = &p->layers[i];
    int32_t d = i;
    if (m->target) {
        share_kv(m, p, i);
        return;
    }
    if (l->shares)
        for (d = p->n_own - 1; d >= 0 && p->layers[d].kind != l->kind;) d--;
    if (d < 0) pi__model_refuse(m, PI_EFORMAT, "layer %d shares the cache of an earlier layer of its kind, "
                                "but the model has none", i);
    else if (l->attn.n_head % p->layers[d].attn.n_head_kv)
        pi__model_refuse(m, PI_EFORMAT, "metadata gemma4.attention: layer %d has %d heads for %d of keys", i,
                         l->attn.n_head, p->layers[d].attn.n_head_kv);
    else if (l->shares) l->attn.kv = p->layers[d].attn.kv;
}

static void want_experts(pi__model *m, gemma4 *p, int32_t i)
{
    layer *l = &p->layers[i];
    const int64_t E = m->n_embd;
    pi__declare_unscaled_or_not(m, &l->router, E, p->experts.n_expert, "ffn_gate_inp.weight", i);
    if (!l->router.n_out) return;
    pi__declare_vec_times(m, &l->router_norm, E, 1.0f / sqrtf((float) E), "ffn_gate_inp.scale", i);
    pi__declare_vec(m, &l->moe_norm, E, "pre_ffw_norm_2.weight", i);
    pi__declare_vec(m, &l->post_mlp_norm, E, "post_ffw_norm_1.weight", i);
    pi__declare_vec(m, &l->post_moe_norm, E, "post_ffw_norm_2.weight", i);
    l->experts = p->experts;
    if (m->n_used) l->experts.n_used = m->n_used;
    pi__experts_declare(m, &l->experts, true, i, &p->work);
}

static void want_layer(pi__model *m, gemma4 *p, int32_t i)
{
    layer *l = &p->layers[i];
    const int64_t E = m->n_embd, P = p->n_ple;
    find_cache(m, p, i);
    pi__declare_vec(m, &l->attn.norm, E, "attn_norm.weight", i);
    pi__attn_declare(m, &l->attn, i, &p->work);
    pi__declare_vec(m, &l->attn.post_norm, E, "post_attention_norm.weight", i);
    pi__declare_vec(m, &l->ffn_norm, E, "ffn_norm.weight", i);
    pi__mlp_declare(m, &l->mlp, "", i, &p->work);
    want_experts(m, p, i);
    pi__declare_vec(m, &l->post_ffn_norm, E, "post_ffw_norm.weight", i);
    if (P) {
        pi__declare_weight(m, &l->ple_gate, E, P, "inp_gate.weight", i);
        pi__declare_weight(m, &l->ple_proj, P, E, "proj.weight", i);
        pi__declare_vec(m, &l->post_ple_norm, E, "post_norm.weight", i);
    }
    pi__declare_host_or_not(m, &l->out_scale, 1, "layer_output_scale.weight", i);
}

/* Sets n_cluster of a drafter's head. It stays 0, and the head is one matrix, if the file has no clusters, if the
 * backend lacks op centroid_head, or if n_pick exceeds the op's limit. */
static void read_clusters(pi__model *m, gemma4 *p)
{
    const pi__tensor *t = pi__gguf_find_tensor(m->g, "masked_embd_centroids.weight");
    const int64_t V = m->n_vocab;
    if (!t || !m->be->ops->centroid_head) return;
    if (t->ne[1] < 1 || t->ne[1] > V || V % t->ne[1])
        pi__model_refuse(m, PI_EFORMAT, "tensor masked_embd_centroids.weight has %lld rows, expected a divisor of the "
                         "vocabulary's %lld", (long long) t->ne[1], (long long) V);
    p->n_pick = pi__hp_u32_or(m, "centroid_top_k", 32, 1, 1 << 20);
    if (p->n_pick > t->ne[1]) p->n_pick = (int32_t) t->ne[1];
    p->n_cluster = p->n_pick <= PI__MAX_PICK ? (int32_t) t->ne[1] : 0;
}

/* Declares a drafter's LM head. The embedding is its target's. */
static void want_head(pi__model *m, gemma4 *p)
{
    const int64_t E = m->n_embd, V = m->n_vocab;
    const char *name = pi__has_tensor(m, "output.weight", PI__OF_FILE) ? "output.weight" : "token_embd.weight";
    read_clusters(m, p);
    if (!p->n_cluster) {
        pi__declare_weight(m, &p->head.tok_embd, E, V, name, PI__OF_FILE);
        return;
    }
    const char *order = "masked_embd_ordering"; /* converters name it without and with ".weight" */
    if (!pi__has_tensor(m, order, PI__OF_FILE)) order = "masked_embd_ordering.weight";
    p->order = pi__model_calloc(m, (size_t) V, sizeof *p->order, "the order of the vocabulary");
    m->lim.max_order = V;
    m->lim.max_pick = p->n_pick;
    pi__declare_order(m, p->order, V, order, PI__OF_FILE);
    pi__declare_replicated(m, &p->centroids, E, p->n_cluster, "masked_embd_centroids.weight", PI__OF_FILE);
    pi__declare_clusters(m, &p->clusters, E, V / p->n_cluster, p->n_cluster, p->order, name, PI__OF_FILE);
}

/* Declares a drafter's tensors outside its layers. */
static void want_drafter(pi__model *m, gemma4 *p)
{
    const int64_t E = m->n_embd, W = m->target->n_embd;
    pi__declare_weight(m, &p->pre, 2 * W, E, "nextn.pre_projection.weight", PI__OF_FILE);
    pi__declare_weight(m, &p->post, E, W, "nextn.post_projection.weight", PI__OF_FILE);
}

/* Refuses a drafter and a target that do not match. */
static void check_target(pi__model *m)
{
    const bool drafter = m->arch != &pi__arch_gemma4;
    if (!drafter && m->target)
        pi__model_refuse(m, PI_EINVAL, "model-draft: a gemma4 model cannot draft: give a gemma4-assistant file");
    if (!drafter || !m->target) return;
    if (m->target->arch != &pi__arch_gemma4)
        pi__model_refuse(m, PI_EINVAL, "model-draft: a gemma4-assistant file drafts for gemma4, not for %s",
                         m->target->arch->name);
    const int32_t width = pi__hp_u32(m, "embedding_length_out", 1, PI__MAX_EMBD);
    if (width != m->target->n_embd)
        pi__model_refuse(m, PI_EINVAL, "model-draft: it was made for an embedding of %d values, the model has %d",
                         width, m->target->n_embd);
}

static void declare(pi__model *m)
{
    gemma4 *p = m->arch_data;
    check_target(m);
    p->layers = pi__model_calloc(m, (size_t) m->n_layer, sizeof *p->layers, "the layers");
    read_params(m, p);
    if (m->target && (p->n_own || p->n_ple || p->experts.n_expert))
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "a gemma4-assistant with keys and values, experts or per-layer embeddings of its "
                         "own is not supported");
    read_kinds(m, p);
    read_layers(m, p);
    if (!pi__model_ok(m)) return;
    const int64_t LP = (int64_t) m->n_layer * p->n_ple;
    if (m->target) {
        pi__read_vocab_size(m);
        want_head(m, p);
        pi__declare_vec(m, &p->head.output_norm, m->n_embd, "output_norm.weight", PI__OF_FILE);
    } else {
        pi__head_declare(m, &p->head, true);
    }
    if (LP) {
        pi__declare_weight(m, &p->ple_embd, LP, m->n_vocab, "per_layer_token_embd.weight", PI__OF_FILE);
        pi__declare_weight(m, &p->ple_model, m->n_embd, LP, "per_layer_model_proj.weight", PI__OF_FILE);
        pi__declare_vec(m, &p->ple_norm, p->n_ple, "per_layer_proj_norm.weight", PI__OF_FILE);
    }
    if (!m->target) pi__read_trunk(m, m->n_layer);
    for (int32_t i = 0; i < m->n_trunk && pi__model_ok(m); i++) want_layer(m, p, i);
    p->work.max_att = p->work.max_qkv; /* for the logits rows' queries */
    if (m->target) want_drafter(m, p);
}

/* Checks tensor values after load, and derives values from them. */
static void loaded(pi__model *m)
{
    gemma4 *p = m->arch_data;
    for (int32_t i = 0; i < m->n_trunk; i++)
        if (!isfinite(p->layers[i].out_scale))
            pi__model_refuse(m, PI_EFORMAT, "tensor blk.%d.layer_output_scale.weight is not a finite number", i);
    pi__rotation_loaded(m, &p->global.rot);
}

static void layout(pi__model *m, const pi__limits *lim, pi__arena *a)
{
    gemma4 *p = m->arch_data;
    const size_t T = (size_t) (m->target ? lim->max_rows : lim->max_tokens), E = (size_t) m->n_embd, f = sizeof(float);
    const size_t LP = (size_t) m->n_layer * (size_t) p->n_ple;
    pi__work_layout(m, &p->work, a, T);
    pi__capture_layout(m, a, T);
    p->f = pi__arena_take(a, p->experts.n_expert ? T * E * f : 0);
    p->ple = pi__arena_take(a, T * LP * f);
    p->ple_tmp = pi__arena_take(a, T * LP * f);
    pi__rotation_layout(&p->global.rot, a, T);
    pi__rotation_layout(&p->local.rot, a, T);
    const size_t W = m->target ? (size_t) m->target->n_embd : 0;
    p->pair_rows = pi__arena_take(a, 2 * T * W * f);
    p->pair_step = (int64_t) (T * W);
    p->pairs = pi__arena_take(a, 2 * T * W * f);
    p->hidden = pi__arena_take(a, T * W * f);
    const size_t C = (size_t) p->n_cluster, K = (size_t) p->n_pick;
    p->scores = pi__arena_take(a, T * C * f);
    p->pick = pi__arena_take(a, T * K * sizeof *p->pick);
    p->some = pi__arena_take(a, C ? T * K * ((size_t) m->n_vocab / C) * f : 0);
}

/* ---- the graph */

static void rotations(pi__model *m, const gemma4 *p, const pi__batch *b)
{
    pi__rotation_forward(m, &p->global.rot, b);
    pi__rotation_forward(m, &p->local.rot, b);
}

/* x [n, E] = (x + norm(y)) * scale. */
static void add(pi__model *m, const gemma4 *p, const pi__stream *s, const float *y, const float *norm, float scale)
{
    pi__op_add_norm(
        m->be, NULL,
        &(pi__add_norm) {.x = s->x, .y = y, .w = norm, .eps = p->eps, .scale = scale, .n_rows = s->n, .n = m->n_embd});
}

/* ple [T, L*P] = (norm(ple_model x / sqrt(E)) + ple_embd * sqrt(P)) / sqrt(2), with the norm over each layer's P
 * values. */
static void embed_layers(pi__model *m, const gemma4 *p, const pi__batch *b)
{
    const int64_t E = m->n_embd, LP = (int64_t) m->n_layer * p->n_ple;
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = p->work.x, .ldx = E};
    pi__matmul(m, &in, b->n_tokens, &p->ple_model, p->ple_tmp, LP);
    pi__op_embed(m->be, b, &(pi__embed) {.w = &p->ple_embd, .scale = sqrtf((float) p->n_ple), .out = p->ple});
    /* the factor 1/sqrt(E) before a norm only changes its eps */
    pi__op_add_norm(m->be, NULL,
                    &(pi__add_norm) {.x = p->ple,
                                     .y = p->ple_tmp,
                                     .w = p->ple_norm,
                                     .eps = p->eps * (float) E,
                                     .scale = sqrtf(0.5f),
                                     .n_rows = b->n_tokens * m->n_layer,
                                     .n = p->n_ple});
}

/* f [n, E] = norm(y) + norm(experts(norm(x))), routed by the residual after the router's own norm. */
static void experts(pi__model *m, const gemma4 *p, const layer *l, const pi__stream *s)
{
    const int64_t E = m->n_embd, X = p->experts.n_expert;
    pi__op_norm(m->be, NULL, &(pi__norm) {.out = p->f, .ldo = E, .x = s->y, .w = l->post_mlp_norm, .eps = p->eps,
                                          .n_rows = s->n, .n = E});
    pi__lin_in in = pi__normed(m, s->x, l->router_norm, p->eps);
    pi__matmul(m, &in, s->n, &l->router, p->work.routes, X);
    in.w = l->moe_norm;
    pi__experts_forward(m, &l->experts, &in, s->n, p->work.routes, X, NULL, s->y);
    pi__op_add_norm(
        m->be, NULL,
        &(pi__add_norm) {
            .x = p->f, .y = s->y, .w = l->post_moe_norm, .eps = p->eps, .scale = 1.0f, .n_rows = s->n, .n = E});
}

/* Runs layer i from attention's output projection to the layer's end. ple: [n, L*P] per-layer embeddings of the rows */
static void after_attention(pi__model *m, const gemma4 *p, int32_t i, const pi__stream *s, const float *ple)
{
    const layer *l = &p->layers[i];
    const int64_t E = m->n_embd, P = p->n_ple;
    const bool moe = l->router.n_out;
    pi__attn_output(m, &l->attn, s);
    const pi__lin_in z = pi__normed(m, s->x, l->ffn_norm, p->eps);
    pi__mlp_forward(m, &l->mlp, &z, s->n, s->ff, s->y);
    if (moe) experts(m, p, l, s);
    add(m, p, s, moe ? p->f : s->y, l->post_ffn_norm, P ? 1.0f : l->out_scale);
    if (!P) return;

    float *g = s->ff; /* [n, P] */
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = s->x, .ldx = E};
    pi__matmul(m, &in, s->n, &l->ple_gate, g, P);
    const pi__lin_in h = {.kind = PI__IN_GEGLU, .x = g, .ldx = P, .x2 = ple + i * P, .ldx2 = m->n_layer * P};
    pi__matmul(m, &h, s->n, &l->ple_proj, s->y, E);
    add(m, p, s, s->y, l->post_ple_norm, l->out_scale);
}

static void forward(pi__model *m, const pi__batch *b, int32_t n_layer)
{
    gemma4 *p = m->arch_data;
    const int32_t writes = (p->n_own < n_layer ? p->n_own : n_layer) - 1, read = pi__last_captured(m);
    const int32_t last = read > writes ? read : writes; /* number of the last layer that needs all rows */
    pi__stream s = pi__stream_of(&p->work, b);
    const float *ple = p->ple;
    pi__head_embed(m, &p->head, b, s.x);
    if (p->n_ple) embed_layers(m, p, b);
    rotations(m, p, b);
    for (int32_t i = 0; i < n_layer; i++) {
        const layer *l = &p->layers[i];
        pi__capture(m, b, i, s.x);
        pi__attn_project(m, &l->attn, &s);
        if (i == last) {
            if (!b->n_rows) return;
            pi__stream_logits_rows(m, &s, pi__attn_width(&l->attn), p->work.rows);
            if (p->n_ple) pi__gather_logits_rows(m, b, ple, (int64_t) m->n_layer * p->n_ple, p->ple_tmp);
            ple = p->ple_tmp;
            if (i < n_layer - 1) rotations(m, p, s.b);
        }
        pi__attn_attend(m, &l->attn, &s, 0);
        after_attention(m, p, i, &s, ple);
    }
    if (last < n_layer) return;
    pi__capture(m, b, n_layer, s.x);
    pi__gather_logits_rows(m, b, s.x, m->n_embd, p->work.rows);
}

static void logits(pi__model *m, int32_t first, int32_t n, float *out)
{
    const gemma4 *p = m->arch_data;
    pi__head_logits(m, &p->head, p->work.rows + (size_t) first * (size_t) m->n_embd, n, out);
}

static void hidden_states(pi__model *m, int32_t first, int32_t n, float *out)
{
    const gemma4 *p = m->arch_data;
    pi__head_hidden(m, &p->head, p->work.rows + (size_t) first * (size_t) m->n_embd, n, out);
}

/* work.x = input of the drafter's layers: pre of the token's embedding and the hidden state. */
static void enter(pi__model *m, gemma4 *p, const pi__batch *b, bool chained)
{
    const gemma4 *t = m->target->arch_data;
    const int32_t n = b->n_tokens, W = m->target->n_embd;
    float *before = p->pair_rows + p->pair_step; /* [n, W] hidden states */
    pi__head_embed(m, &t->head, b, p->pair_rows);
    pi__op_gather_rows(m->be, NULL,
                       &(pi__gather_rows) {.row = b->hidden_row,
                                           .n_rows = n,
                                           .n = W,
                                           .x = chained ? p->hidden : t->work.rows,
                                           .out = chained ? before : p->pairs});
    if (!chained)
        pi__op_norm(
            m->be, NULL,
            &(pi__norm) {
                .out = before, .ldo = W, .x = p->pairs, .w = t->head.output_norm, .eps = t->eps, .n_rows = n, .n = W});
    pi__op_copy_2d(m->be, NULL, &(pi__copy_2d) {.x = p->pair_rows, .step = p->pair_step, .ldx = W, .n_shards = 2,
                                                .n_rows = n, .n = W, .y = p->pairs, .ldy = 2 * W});
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = p->pairs, .ldx = 2 * W};
    pi__matmul(m, &in, n, &p->pre, p->work.x, m->n_embd);
}

/* A drafter's step for the n tokens of b; every token is a logits row. */
static void draft(pi__model *m, const pi__batch *b, bool chained, float *logits)
{
    gemma4 *p = m->arch_data;
    const int32_t n = b->n_tokens, W = m->target->n_embd;
    const pi__stream s = pi__stream_of(&p->work, b);
    enter(m, p, b, chained);
    rotations(m, p, b);
    for (int32_t i = 0; i < m->n_layer; i++) {
        pi__attn_project(m, &p->layers[i].attn, &s);
        pi__attn_attend(m, &p->layers[i].attn, &s, 0);
        after_attention(m, p, i, &s, NULL);
    }
    const pi__lin_in in = pi__normed(m, s.x, p->head.output_norm, p->eps);
    const pi__linear out = {.in = in, .n_rows = n, .n_lin = p->n_cluster ? 1 : 2,
                            .lin = {{&p->post, p->hidden, W}, {&p->head.tok_embd, logits, m->n_vocab}}};
    pi__multiply(m, &out);
    if (!p->n_cluster) return;
    const pi__centroid_head head = {.n_rows = n,
                                    .in = in,
                                    .centroids = &p->centroids,
                                    .head = &p->clusters,
                                    .order = p->order,
                                    .n_pick = p->n_pick,
                                    .scores = p->scores,
                                    .pick = p->pick,
                                    .some = p->some,
                                    .logits = logits};
    pi__op_centroid_head(m->be, NULL, &head);
}

static const char *size_name(const pi__model *m)
{
    const gemma4 *p = m->arch_data;
    switch (m->n_layer) {
    case 30: return p->experts.n_expert ? "26B-A4B" : NULL;
    case 35: return p->n_ple ? "E2B" : NULL;
    case 42: return p->n_ple ? "E4B" : NULL;
    case 60: return "31B";
    default: return NULL;
    }
}

const pi__arch pi__arch_gemma4 = {
    .name = "gemma4",
    .size = sizeof(gemma4),
    .declare = declare,
    .loaded = loaded,
    .layout = layout,
    .forward = forward,
    .logits = logits,
    .hidden = hidden_states,
    .captures = true,
    .adapters = true,
    .size_name = size_name,
};

const pi__arch pi__arch_gemma4_assistant = {
    .name = "gemma4-assistant", .size = sizeof(gemma4), .declare = declare, .loaded = loaded, .layout = layout,
    .draft = draft,
};
