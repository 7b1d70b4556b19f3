/* Gemma 4, text (31B, 26B-A4B, E2B, E4B): GGUF architecture "gemma4"; and its drafters, "gemma4-assistant".
 *
 * As Gemma 3: layers that see a window and layers that see everything, a norm before and one after each block, norms on
 * query and key heads, gelu-gated MLP, tied output. New: the two kinds of layer have head sizes and numbers of KV heads
 * of their own; attention is not scaled; values are normalised without a weight, and global layers may use the raw keys
 * as values; global layers rotate only their first pairs (the others have a frequency of practically 0); each layer
 * scales the whole stream at its end. Three things that some sizes have:
 *
 *   experts               beside the MLP, on the same residual; the router reads the residual under a norm of its own
 *   per-layer embeddings  a second, narrow embedding of each token for each layer, gated in at the layer's end
 *   shared keys, values   the last layers keep no cache and attend that of the last layer of their kind which does
 *
 * A drafter is a few layers of the dense kind without keys and values: they attend the cache of the target's last layer of
 * their kind, always from the position of the last token that is sure. It reads that token's embedding and the hidden
 * state before it, both in the target's width, and gives logits and the next hidden state. The head of small drafters is
 * sorted into clusters of tokens, and only those are looked at that score best (op clustered).
 *
 * After "Gemma 4" as its configuration and reference code in transformers describe it.
 *
 * Symbols in shapes: T tokens of the step, R rows wanted, E embedding, H query heads, K key/value heads, D head size
 * (of the layer's kind), F feed-forward, X experts, G feed-forward of an expert, P per-layer embedding, L layers,
 * V vocabulary. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/model.h"

/* What layers that see a window, or everything, have in common. */
typedef struct kind {
    int32_t head_dim;   /* D */
    int32_t window;     /* tokens a layer sees; 0: all */
    int32_t n_freq;     /* pairs that are rotated, the first ones of D/2 */
    float *freq;        /* [D/2] rotation a position, on the host */
    float mscale;       /* of its cosines and sines */
    float *rope;        /* scratch: [T, 2 * n_freq] */
} kind;

typedef struct layer {
    kind *kind;                 /* global or local */
    int32_t n_head;             /* H */
    int32_t n_head_kv;          /* K */
    int32_t n_ff;               /* F */
    int32_t kv;                 /* index into m->kv: its own, or the donor's */
    bool shares;                /* keeps no keys and values of its own */
    float out_scale;            /* of the stream at the layer's end */
    float *attn_norm;           /* [E] */
    pi__weight wq, wk, wv;      /* [H*D, E], [K*D, E], [K*D, E]; no wv: the keys are the values; or */
    pi__weight wqkv;            /* [(H+2K)*D, E], rows q, k, v */
    float *q_norm, *k_norm;     /* [D] */
    pi__weight wo;              /* [E, H*D] */
    float *post_attn_norm;      /* [E] */
    float *ffn_norm;            /* [E] */
    pi__weight gate, up, down;  /* [F, E], [F, E], [E, F] */
    float *post_ffn_norm;       /* [E] */
    /* experts; router.n_out 0: none */
    pi__weight router;          /* [X, E] */
    float *router_norm;         /* [E] includes E^-0.5 */
    float *moe_norm;            /* [E] before the experts */
    float *post_mlp_norm, *post_moe_norm; /* [E] each, before the two are added */
    pi__weight gate_exps, up_exps; /* X of [G, E]; no up_exps: gate_exps is X of [2G, E], rows of gate, then of up */
    pi__weight down_exps;       /* X of [E, G], with a factor an expert */
    /* per-layer embeddings */
    pi__weight ple_gate, ple_proj; /* [P, E], [E, P] */
    float *post_ple_norm;       /* [E] */
} layer;

typedef struct gemma4 {
    kind global, local;         /* of layers */
    int32_t n_own;              /* layers that keep keys and values: the first ones */
    int32_t n_expert, n_used;   /* X, experts a token */
    int32_t n_ff_exp;           /* G */
    int32_t n_ple;              /* P; 0: none */
    float eps;                  /* of every norm */
    float softcap;              /* of logits; 0: none */
    float *rope_factor;         /* [D/2] of global layers: divides the frequency */
    pi__weight tok_embd;        /* [V, E] */
    pi__weight output;          /* [V, E]; n_out 0: tied */
    float *output_norm;         /* [E] */
    pi__weight ple_embd;        /* [V, L*P] */
    pi__weight ple_model;       /* [L*P, E] */
    float *ple_norm;            /* [P] */
    layer *layers;              /* [n_layer] */
    int64_t max_qkv, max_ff;    /* widest (H+2K)*D; widest of 2F and P */
    /* scratch */
    float *x;                   /* [T, E] residual stream */
    float *qkv, *att;           /* [T, max_qkv] queries, keys, values; [T, H*D] */
    float *y;                   /* [T, E] output of a block before its norm */
    float *f;                   /* [T, E] MLP and experts together */
    float *ff;                  /* [T, max_ff] gate, up */
    float *routes;              /* [T, X] logits of the router */
    float *ple, *ple_tmp;       /* [T, L*P] */
    float *rows;                /* [R, E] residual of the rows wanted */
    /* of a drafter; W: the target's embedding */
    int32_t n_cluster, n_pick;  /* of its head, which has few rows multiplied; n_cluster 0: a head like any other */
    int32_t *order;             /* [V] token of each row of the clusters */
    pi__weight centroids;       /* [n_cluster, E] */
    pi__weight clusters;        /* n_cluster of [V / n_cluster, E], instead of tok_embd or output */
    float *scores, *some;       /* scratch: [R, n_cluster], [R, n_pick * V / n_cluster] */
    int32_t *pick;              /* scratch: [R, n_pick] */
    pi__weight pre, post;       /* [E, 2W] embedding, hidden state; [W, E] */
    int32_t pair_row[2 * PI__MAX_ROWS]; /* 0, R, 1, R + 1, ... : rows of parts as they lie in pairs */
    float *parts;               /* scratch: [2R, W] embeddings, then hidden states */
    float *pairs;               /* scratch: [R, 2W] embedding and hidden state side by side */
    float *hidden;              /* scratch: [R, W] given to the next draft */
} gemma4;

/* What a part of the graph runs on: all tokens of the step, or those whose logits are wanted. */
typedef struct stream {
    const pi__batch *b; /* n tokens */
    int32_t n;
    float *x;           /* [n, E] */
    float *ple;         /* [n, L*P] */
    float *qkv, *att;   /* see gemma4; they change places where tokens become rows */
} stream;

/* ---- declaring */

static int read_kind(pi__model *m, kind *k, const char *key, const char *value, const char *rot, pi_error *err)
{
    int32_t vdim, n_rot;
    int rc = pi__hp_u32(m, key, true, 0, 32, PI__MAX_HEAD_DIM, &k->head_dim, err);
    if (!rc) rc = pi__hp_u32(m, value, false, (uint32_t) k->head_dim, 32, PI__MAX_HEAD_DIM, &vdim, err);
    if (!rc) rc = pi__hp_u32(m, rot, false, (uint32_t) k->head_dim, 2, PI__MAX_HEAD_DIM, &n_rot, err);
    if (rc) return rc;
    if (vdim != k->head_dim || n_rot != k->head_dim || k->head_dim % 32)
        return pi__fail(err, PI_EUNSUPPORTED, "metadata gemma4.%s %d, %s %d and %s %d must be equal and a multiple of 32",
                        key, k->head_dim, value, vdim, rot, n_rot);
    if (k->head_dim > m->lim.max_head_dim) m->lim.max_head_dim = k->head_dim;
    k->freq = pi__malloc((size_t) k->head_dim / 2 * sizeof *k->freq);
    return k->freq ? PI_OK : pi__fail_mem(err, "rope frequencies");
}

/* Which layers see a window, and what both kinds look like. */
static int read_kinds(pi__model *m, gemma4 *p, pi_error *err)
{
    char key[64];
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", m->arch->name);
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    if (!kv || kv->type != PI__GGUF_ARR || kv->arr_type != PI__GGUF_BOOL || kv->n < (uint64_t) m->n_layer)
        return pi__fail(err, PI_EFORMAT, "metadata %s needs a bool for each layer", key);
    bool any[2] = {false, false};
    for (int32_t i = 0; i < m->n_layer; i++) {
        bool local = pi__gguf_elem_u64(kv, (uint64_t) i) != 0;
        p->layers[i].kind = local ? &p->local : &p->global;
        any[local] = true;
    }
    int rc = PI_OK;
    if (any[0])
        rc = read_kind(m, &p->global, "attention.key_length", "attention.value_length", "rope.dimension_count", err);
    if (any[1] && !rc)
        rc = read_kind(m, &p->local, "attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa",
                       err);
    if (any[1] && !rc) rc = pi__hp_u32(m, "attention.sliding_window", true, 0, 1, 1 << 28, &p->local.window, err);
    if (!any[0] || rc) return rc;
    p->rope_factor = pi__malloc((size_t) p->global.head_dim / 2 * sizeof(float));
    if (!p->rope_factor) return pi__fail_mem(err, "rope frequencies");
    return pi__want_host(m, p->rope_factor, false, p->global.head_dim / 2, "rope_freqs.weight", 0, err);
}

/* Counts that a layer has, from a number or an array of them. */
static int read_layers(pi__model *m, gemma4 *p, pi_error *err)
{
    int32_t *v = pi__malloc((size_t) m->n_layer * 3 * sizeof *v), L = m->n_layer;
    if (!v) return pi__fail_mem(err, "the layers");
    int rc = pi__hp_each(m, "attention.head_count", 1, PI__MAX_HEADS, v, err);
    if (!rc) rc = pi__hp_each(m, "attention.head_count_kv", 1, PI__MAX_HEADS, v + L, err);
    if (!rc) rc = pi__hp_each(m, "feed_forward_length", 1, PI__MAX_EMBD, v + 2 * L, err);
    for (int32_t i = 0; i < L && !rc; i++) {
        layer *l = &p->layers[i];
        l->n_head = v[i];
        l->n_head_kv = v[L + i];
        l->n_ff = v[2 * L + i];
        l->out_scale = 1.0f;
        l->shares = i >= p->n_own;
        if (l->n_head > m->lim.max_n_head) m->lim.max_n_head = l->n_head;
        const int64_t wide = (int64_t) (l->n_head + 2 * l->n_head_kv) * l->kind->head_dim;
        if (wide > p->max_qkv) p->max_qkv = wide;
        if (2 * (int64_t) l->n_ff > p->max_ff) p->max_ff = 2 * (int64_t) l->n_ff;
    }
    pi__free(v);
    return rc;
}

static int read_params(pi__model *m, gemma4 *p, pi_error *err)
{
    int32_t shared = 0;
    uint32_t most_shared = (uint32_t) m->n_layer - !m->target;
    int rc = pi__hp_u32(m, "attention.shared_kv_layers", m->target != NULL, 0, 0, most_shared, &shared, err);
    if (!rc) rc = pi__hp_u32(m, "embedding_length_per_layer_input", false, 0, 0, PI__MAX_EMBD, &p->n_ple, err);
    if (!rc) rc = pi__hp_u32(m, "expert_count", false, 0, 0, PI__MAX_EXPERTS, &p->n_expert, err);
    if (!rc && p->n_expert) {
        uint32_t most = p->n_expert < PI__MAX_USED ? (uint32_t) p->n_expert : PI__MAX_USED;
        rc = pi__hp_u32(m, "expert_used_count", true, 0, 1, most, &p->n_used, err);
        if (!rc) rc = pi__hp_u32(m, "expert_feed_forward_length", true, 0, 1, PI__MAX_EMBD, &p->n_ff_exp, err);
    }
    if (!rc) rc = pi__hp_f32(m, "attention.layer_norm_rms_epsilon", true, 0, &p->eps, err);
    if (!rc) rc = pi__hp_f32(m, "final_logit_softcapping", false, 0, &p->softcap, err);
    p->n_own = m->n_layer - shared;
    if (p->n_ple > p->max_ff) p->max_ff = p->n_ple;
    return rc;
}

/* A drafter's layer attends the target's last layer of its kind. */
static int lend_cache(pi__model *m, gemma4 *p, int32_t i, pi_error *err)
{
    layer *l = &p->layers[i];
    const gemma4 *t = m->target->arch_data;
    const kind *k = l->kind == &p->local ? &t->local : &t->global;
    int32_t d = m->target->n_layer - 1;
    while (d >= 0 && t->layers[d].kind != k) d--;
    if (d < 0 || k->head_dim != l->kind->head_dim || k->window != l->kind->window ||
        l->n_head % m->target->kv[t->layers[d].kv].n_head_kv)
        return pi__fail(err, PI_EINVAL, "model-draft: layer %d has heads of %d values, %d of them, in a window of %d: it was "
                        "not made for this model", i, l->kind->head_dim, l->n_head, l->kind->window);
    l->kv = t->layers[d].kv;
    return PI_OK;
}

/* Its place in the cache: its own, or that of the last layer of its kind that has one. */
static int want_cache(pi__model *m, gemma4 *p, int32_t i, pi_error *err)
{
    if (m->target) return lend_cache(m, p, i, err);
    layer *l = &p->layers[i];
    int32_t d = i;
    if (l->shares)
        for (d = p->n_own - 1; d >= 0 && p->layers[d].kind != l->kind;) d--;
    if (d < 0) return pi__fail(err, PI_EFORMAT, "layer %d shares the cache of a layer of its kind, and there is none", i);
    if (l->n_head % p->layers[d].n_head_kv)
        return pi__fail(err, PI_EFORMAT, "metadata gemma4.attention: layer %d has %d heads for %d of keys", i, l->n_head,
                        p->layers[d].n_head_kv);
    if (!l->shares) return pi__want_kv(m, i, l->kind->window, l->n_head_kv, l->kind->head_dim, &l->kv, err);
    l->kv = p->layers[d].kv;
    return PI_OK;
}

static int want_attention(pi__model *m, gemma4 *p, int32_t i, pi_error *err)
{
    layer *l = &p->layers[i];
    int64_t E = m->n_embd, D = l->kind->head_dim, Q = l->n_head * D, KV = l->n_head_kv * D;
    const int64_t q[3] = {Q}, kv[3] = {KV}, all[3] = {Q, KV, KV};
    int rc = want_cache(m, p, i, err);
    if (rc) return rc;
    const int32_t K = (m->target ? m->target : m)->kv[l->kv].n_head_kv;
    rc = pi__want_vec(m, &l->attn_norm, false, E, "blk.%d.attn_norm.weight", i, err);
    if (!rc && !l->shares) rc = pi__want_heads(m, &l->wqkv, true, E, K, all, "blk.%d.attn_qkv.weight", i, err);
    if (!rc && !l->wqkv.n_out) {
        rc = pi__want_heads(m, &l->wq, false, E, K, q, "blk.%d.attn_q.weight", i, err);
        if (!rc && !l->shares) rc = pi__want_heads(m, &l->wk, false, E, K, kv, "blk.%d.attn_k.weight", i, err);
        if (!rc && !l->shares)
            rc = pi__want_heads(m, &l->wv, l->kind == &p->global, E, K, kv, "blk.%d.attn_v.weight", i, err);
    }
    if (!rc) rc = pi__want_vec(m, &l->q_norm, false, D, "blk.%d.attn_q_norm.weight", i, err);
    if (!rc && !l->shares) rc = pi__want_vec(m, &l->k_norm, false, D, "blk.%d.attn_k_norm.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->wo, false, Q, E, "blk.%d.attn_output.weight", i, err);
    if (!rc) rc = pi__want_vec(m, &l->post_attn_norm, false, E, "blk.%d.post_attention_norm.weight", i, err);
    return rc;
}

static int want_experts(pi__model *m, gemma4 *p, int32_t i, pi_error *err)
{
    layer *l = &p->layers[i];
    int64_t E = m->n_embd, X = p->n_expert, G = p->n_ff_exp;
    int rc = pi__want_unscaled(m, &l->router, true, E, X, "blk.%d.ffn_gate_inp.weight", i, err);
    if (rc || !l->router.n_out) return rc;
    rc = pi__want_vec_times(m, &l->router_norm, false, E, 1.0f / sqrtf((float) E), "blk.%d.ffn_gate_inp.scale", i, err);
    if (!rc) rc = pi__want_vec(m, &l->moe_norm, false, E, "blk.%d.pre_ffw_norm_2.weight", i, err);
    if (!rc) rc = pi__want_vec(m, &l->post_mlp_norm, false, E, "blk.%d.post_ffw_norm_1.weight", i, err);
    if (!rc) rc = pi__want_vec(m, &l->post_moe_norm, false, E, "blk.%d.post_ffw_norm_2.weight", i, err);
    if (!rc) rc = pi__want_gate_up(m, &l->gate_exps, true, E, G, X, "blk.%d.ffn_gate_up_exps.weight", i, err);
    if (!rc && !l->gate_exps.n_out) {
        rc = pi__want_experts(m, &l->gate_exps, false, E, G, X, "blk.%d.ffn_gate_exps.weight", i, err);
        if (!rc) rc = pi__want_experts(m, &l->up_exps, false, E, G, X, "blk.%d.ffn_up_exps.weight", i, err);
    }
    if (!rc) rc = pi__want_experts(m, &l->down_exps, false, G, E, X, "blk.%d.ffn_down_exps.weight", i, err);
    pi__need_experts(m, p->n_expert, p->n_used, E, G);
    return rc;
}

static int want_layer(pi__model *m, gemma4 *p, int32_t i, pi_error *err)
{
    layer *l = &p->layers[i];
    int64_t E = m->n_embd, F = l->n_ff, P = p->n_ple;
    int rc = want_attention(m, p, i, err);
    if (!rc) rc = pi__want_vec(m, &l->ffn_norm, false, E, "blk.%d.ffn_norm.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->gate, false, E, F, "blk.%d.ffn_gate.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->up, false, E, F, "blk.%d.ffn_up.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->down, false, F, E, "blk.%d.ffn_down.weight", i, err);
    if (!rc) rc = want_experts(m, p, i, err);
    if (!rc) rc = pi__want_vec(m, &l->post_ffn_norm, false, E, "blk.%d.post_ffw_norm.weight", i, err);
    if (!rc && P) rc = pi__want_weight(m, &l->ple_gate, false, E, P, "blk.%d.inp_gate.weight", i, err);
    if (!rc && P) rc = pi__want_weight(m, &l->ple_proj, false, P, E, "blk.%d.proj.weight", i, err);
    if (!rc && P) rc = pi__want_vec(m, &l->post_ple_norm, false, E, "blk.%d.post_norm.weight", i, err);
    return rc ? rc : pi__want_host(m, &l->out_scale, true, 1, "blk.%d.layer_output_scale.weight", i, err);
}

/* How many clusters the head of a drafter has; 0: it is to be taken as one matrix, as the file has none, the backend does
 * not know what to do with them, or so many are to be looked at that they may as well be all. */
static int read_clusters(pi__model *m, gemma4 *p, pi_error *err)
{
    const pi__tensor *t = pi__gguf_find_tensor(m->g, "masked_embd_centroids.weight");
    const int64_t V = m->n_vocab;
    if (!t || !m->be->ops->centroid_head) return PI_OK;
    if (t->ne[1] < 1 || t->ne[1] > V || V % t->ne[1])
        return pi__fail(err, PI_EFORMAT, "tensor masked_embd_centroids.weight has %lld rows, expected a divisor of the "
                        "vocabulary's %lld", (long long) t->ne[1], (long long) V);
    int rc = pi__hp_u32(m, "centroid_top_k", false, 32, 1, 1 << 20, &p->n_pick, err);
    if (p->n_pick > t->ne[1]) p->n_pick = (int32_t) t->ne[1];
    p->n_cluster = p->n_pick <= PI__MAX_PICK ? (int32_t) t->ne[1] : 0;
    return rc;
}

static int want_head(pi__model *m, gemma4 *p, pi_error *err)
{
    const int64_t E = m->n_embd, V = m->n_vocab;
    const char *name = pi__gguf_find_tensor(m->g, "output.weight") ? "output.weight" : "token_embd.weight";
    int rc = read_clusters(m, p, err);
    if (rc) return rc;
    if (!p->n_cluster) return pi__want_weight(m, &p->tok_embd, false, E, V, name, 0, err);
    p->order = pi__malloc((size_t) V * sizeof *p->order);
    if (!p->order) return pi__fail_mem(err, "the order of the vocabulary");
    m->lim.max_order = V;
    m->lim.max_pick = p->n_pick;
    bool found = false; /* converters name it without and with ".weight" */
    rc = pi__want_order(m, p->order, &found, V, "masked_embd_ordering", 0, err);
    if (!rc && !found) rc = pi__want_order(m, p->order, NULL, V, "masked_embd_ordering.weight", 0, err);
    if (!rc) rc = pi__want_whole(m, &p->centroids, E, p->n_cluster, "masked_embd_centroids.weight", 0, err);
    return rc ? rc : pi__want_clusters(m, &p->clusters, E, V / p->n_cluster, p->n_cluster, p->order, name, 0, err);
}

/* What a drafter has beside its layers. */
static int want_drafter(pi__model *m, gemma4 *p, pi_error *err)
{
    int64_t E = m->n_embd, W = m->target->n_embd;
    for (int32_t i = 0; i < 2 * PI__MAX_ROWS; i++) p->pair_row[i] = i / 2 + (i % 2) * PI__MAX_ROWS;
    int rc = pi__want_weight(m, &p->pre, false, 2 * W, E, "nextn.pre_projection.weight", 0, err);
    return rc ? rc : pi__want_weight(m, &p->post, false, E, W, "nextn.post_projection.weight", 0, err);
}

/* Whether m and its target, if there is one, are a pair. */
static int check_target(pi__model *m, pi_error *err)
{
    int32_t width;
    if (m->arch == &pi__arch_gemma4)
        return m->target ? pi__fail(err, PI_EINVAL, "model-draft: a gemma4 model cannot draft; its drafters are "
                                    "gemma4-assistant files") : PI_OK;
    if (!m->target)
        return pi__fail(err, PI_EUNSUPPORTED, "this file is a drafter: give it as model-draft, beside the model it drafts for");
    if (m->target->arch != &pi__arch_gemma4)
        return pi__fail(err, PI_EINVAL, "model-draft: a gemma4-assistant file drafts for gemma4, not for %s",
                        m->target->arch->name);
    int rc = pi__hp_u32(m, "embedding_length_out", true, 0, 1, PI__MAX_EMBD, &width, err);
    if (!rc && width != m->target->n_embd)
        rc = pi__fail(err, PI_EINVAL, "model-draft: it was made for an embedding of %d values, the model has %d", width,
                      m->target->n_embd);
    return rc;
}

static int declare(pi__model *m, pi_error *err)
{
    gemma4 *p = m->arch_data;
    int rc = check_target(m, err);
    if (rc) return rc;
    p->layers = pi__calloc((size_t) m->n_layer, sizeof *p->layers);
    if (!p->layers) return pi__fail_mem(err, "the layers");
    rc = read_params(m, p, err);
    if (!rc && m->target && (p->n_own || p->n_ple || p->n_expert))
        rc = pi__fail(err, PI_EUNSUPPORTED, "a gemma4-assistant with keys and values, experts or per-layer embeddings of its "
                      "own is not supported");
    if (!rc) rc = read_kinds(m, p, err);
    if (!rc) rc = read_layers(m, p, err);
    if (!rc) rc = pi__read_vocab_size(m, err);
    if (rc) return rc;
    int64_t E = m->n_embd, V = m->n_vocab, LP = (int64_t) m->n_layer * p->n_ple;
    if (m->target) rc = want_head(m, p, err);
    else rc = pi__want_weight(m, &p->tok_embd, false, E, V, "token_embd.weight", 0, err);
    if (!rc && !m->target) rc = pi__want_weight(m, &p->output, true, E, V, "output.weight", 0, err);
    if (!rc) rc = pi__want_vec(m, &p->output_norm, false, E, "output_norm.weight", 0, err);
    if (!rc && LP) rc = pi__want_weight(m, &p->ple_embd, false, LP, V, "per_layer_token_embd.weight", 0, err);
    if (!rc && LP) rc = pi__want_weight(m, &p->ple_model, false, E, LP, "per_layer_model_proj.weight", 0, err);
    if (!rc && LP) rc = pi__want_vec(m, &p->ple_norm, false, p->n_ple, "per_layer_proj_norm.weight", 0, err);
    for (int32_t i = 0; i < m->n_layer && !rc; i++) rc = want_layer(m, p, i, err);
    if (!rc && m->target) rc = want_drafter(m, p, err);
    return rc;
}

/* factor: [D/2] or NULL: divides the frequencies. */
static int read_freq(pi__model *m, kind *k, const char *name, float base, bool scaled, const float *factor, pi_error *err)
{
    if (!k->freq) return PI_OK;
    int rc = pi__rope_freqs(m, name, base, scaled, k->head_dim, k->freq, &k->mscale, err);
    k->n_freq = 0;
    for (int32_t i = 0; i < k->head_dim / 2 && !rc; i++) {
        const float f = factor ? factor[i] : 1.0f;
        if (!(f > 0) || !isfinite(f))
            rc = pi__fail(err, PI_EFORMAT, "tensor rope_freqs.weight: value %d is %g", i, (double) f);
        k->freq[i] /= f;
        if (f < 1e20f) k->n_freq = i + 1; /* 1e30 stands for "not rotated" */
    }
    return rc;
}

/* What needs values of tensors. */
static int loaded(pi__model *m, pi_error *err)
{
    gemma4 *p = m->arch_data;
    for (int32_t i = 0; i < m->n_layer; i++)
        if (!isfinite(p->layers[i].out_scale))
            return pi__fail(err, PI_EFORMAT, "tensor blk.%d.layer_output_scale.weight is not a finite number", i);
    int rc = read_freq(m, &p->global, "rope.freq_base", 1e6f, true, p->rope_factor, err);
    return rc ? rc : read_freq(m, &p->local, "rope.freq_base_swa", 1e4f, false, NULL, err);
}

static void layout(pi__model *m, const pi__limits *lim, pi__arena *a)
{
    gemma4 *p = m->arch_data;
    const size_t T = m->target ? PI__MAX_ROWS : (size_t) lim->max_tokens, E = (size_t) m->n_embd, f = sizeof(float);
    const size_t LP = (size_t) m->n_layer * (size_t) p->n_ple;
    p->x = pi__arena_take(a, T * E * f);
    p->qkv = pi__arena_take(a, T * (size_t) p->max_qkv * f);
    p->att = pi__arena_take(a, T * (size_t) p->max_qkv * f);
    p->y = pi__arena_take(a, T * E * f);
    p->f = pi__arena_take(a, p->n_expert ? T * E * f : 0);
    p->ff = pi__arena_take(a, T * (size_t) p->max_ff * f);
    p->routes = pi__arena_take(a, T * (size_t) p->n_expert * f);
    p->ple = pi__arena_take(a, T * LP * f);
    p->ple_tmp = pi__arena_take(a, T * LP * f);
    p->global.rope = pi__arena_take(a, T * (size_t) p->global.head_dim * f);
    p->local.rope = pi__arena_take(a, T * (size_t) p->local.head_dim * f);
    p->rows = pi__arena_take(a, m->target ? 0 : T * E * f);
    const size_t W = m->target ? (size_t) m->target->n_embd : 0;
    p->parts = pi__arena_take(a, 2 * T * W * f);
    p->pairs = pi__arena_take(a, 2 * T * W * f);
    p->hidden = pi__arena_take(a, T * W * f);
    const size_t C = (size_t) p->n_cluster, K = (size_t) p->n_pick;
    p->scores = pi__arena_take(a, T * C * f);
    p->pick = pi__arena_take(a, T * K * sizeof *p->pick);
    p->some = pi__arena_take(a, C ? T * K * ((size_t) m->n_vocab / C) * f : 0);
}

/* ---- the graph */

static void rotations(pi__model *m, gemma4 *p, const pi__batch *b)
{
    kind *k[] = {&p->global, &p->local};
    for (int i = 0; i < 2; i++)
        if (k[i]->n_freq) pi__op_rope(m->be, b, &(pi__rope) {.freq = k[i]->freq, .n_freq = k[i]->n_freq, .mscale = k[i]->mscale, .table = k[i]->rope});
}

/* ple = (norm(ple_model x / sqrt(E)) + ple_embd * sqrt(P)) / sqrt(2), the norm over each layer's P values. [T, L*P] */
static void embed_layers(pi__model *m, gemma4 *p, const pi__batch *b)
{
    const int64_t E = m->n_embd, LP = (int64_t) m->n_layer * p->n_ple;
    pi__lin_in in = {.kind = PI__IN_PLAIN, .x = p->x, .ldx = E};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = b->n_tokens, .n_lin = 1, .lin = {{&p->ple_model, p->ple_tmp, LP}}});
    pi__op_embed(m->be, b, &(pi__embed) {.w = &p->ple_embd, .scale = sqrtf((float) p->n_ple), .out = p->ple});
    /* The factor 1/sqrt(E) before a norm only shifts its eps. */
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = p->ple, .y = p->ple_tmp, .w = p->ple_norm, .eps = p->eps * (float) E, .scale = sqrtf(0.5f), .n_rows = b->n_tokens * m->n_layer, .n = p->n_ple});
}

/* After the last cache is written only the rows whose logits are wanted matter. ld: of the queries. */
static void keep_rows(pi__model *m, gemma4 *p, stream *s, int64_t ld)
{
    const pi__batch *b = s->b;
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->row, .n_rows = b->n_rows, .x = s->x, .n = m->n_embd, .out = p->rows});
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->row, .n_rows = b->n_rows, .x = s->qkv, .n = ld, .out = s->att});
    if (p->n_ple) pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->row, .n_rows = b->n_rows, .x = s->ple, .n = (int64_t) m->n_layer * p->n_ple, .out = p->ple_tmp});
    *s = (stream) {.b = b->wanted, .n = b->n_rows, .x = p->rows, .ple = p->ple_tmp, .qkv = s->att, .att = s->qkv};
    if (p->n_own < m->n_layer && s->n) rotations(m, p, s->b);
}

/* att = attention(q, k, v) of the normed residual; writes this step's K,V. [n, H*D] */
static void attend(pi__model *m, gemma4 *p, int32_t i, stream *s)
{
    const layer *l = &p->layers[i];
    int64_t D = l->kind->head_dim, Q = l->n_head * D, KV = l->shares ? 0 : l->n_head_kv * D, ld = Q + 2 * KV;
    float *q = s->qkv, *k = q + Q, *v = k + KV; /* [n, H*D | K*D | K*D] */
    pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = s->x, .ldx = m->n_embd, .w = l->attn_norm, .eps = p->eps};
    pi__linear all = {.in = in, .n_rows = s->n, .n_lin = l->shares ? 1 : l->wv.n_out ? 3 : 2,
                      .lin = {{&l->wq, q, ld}, {&l->wk, k, ld}, {&l->wv, v, ld}}};
    if (l->wqkv.n_out) all.n_lin = 1, all.lin[0].w = &l->wqkv;
    pi__op_linear(m->be, NULL, &all);
    if (!l->wqkv.n_out && !l->wv.n_out) v = k; /* raw: before the keys' norm and rotation */

    const pi__kv_layer *kv = &(m->target ? m->target : m)->kv[l->kv];
    pi__qkv prep = {.kv = kv, .q = q, .ldq = ld, .k = l->shares ? NULL : k, .ldk = ld, .v = v, .ldv = ld, .n_head = l->n_head,
                    .q_norm = l->q_norm, .k_norm = l->k_norm, .v_norm = true, .eps = p->eps,
                    .rope = l->kind->n_freq ? l->kind->rope : NULL, .n_rot = 2 * l->kind->n_freq,
                    .pair_stride = (int32_t) D / 2, .q_scale = 1.0f};
    pi__op_qkv(m->be, s->b, &prep);
    if (i == p->n_own - 1) keep_rows(m, p, s, ld);
    if (!s->n) return;
    pi__attention att = {.kv = kv, .q = s->qkv, .ldq = ld, .out = s->att, .ldo = Q, .n_head = l->n_head, .window = l->kind->window,
                    .past = m->target != NULL};
    pi__op_attention(m->be, s->b, &att);
}

/* y = down(gelu(gate z) * up z), z = norm(x). [n, E] */
static void mlp(pi__model *m, gemma4 *p, const layer *l, const stream *s)
{
    int64_t E = m->n_embd, F = l->n_ff;
    float *gate = p->ff, *up = p->ff + F; /* [n, F | F] */
    pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = s->x, .ldx = E, .w = l->ffn_norm, .eps = p->eps};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = s->n, .n_lin = 2, .lin = {{&l->gate, gate, 2 * F}, {&l->up, up, 2 * F}}});
    pi__lin_in h = {.kind = PI__IN_GEGLU, .x = gate, .ldx = 2 * F, .x2 = up, .ldx2 = 2 * F};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = h, .n_rows = s->n, .n_lin = 1, .lin = {{&l->down, p->y, E}}});
}

/* f = norm(y) + norm(experts(norm(x))), routed by the residual under a norm of its own. [n, E] */
static void experts(pi__model *m, gemma4 *p, const layer *l, const stream *s)
{
    int64_t E = m->n_embd, X = p->n_expert;
    pi__op_norm(m->be, NULL, &(pi__norm) {.out = p->f, .ldo = E, .x = p->y, .w = l->post_mlp_norm, .eps = p->eps, .n_rows = s->n, .n = E});
    pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = s->x, .ldx = E, .w = l->router_norm, .eps = p->eps};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = s->n, .n_lin = 1, .lin = {{&l->router, p->routes, X}}});
    in.w = l->moe_norm;
    pi__moe moe = {.n_rows = s->n, .in = in, .logits = p->routes, .ldl = X, .n_expert = p->n_expert, .n_used = p->n_used,
                   .weights_scale = 1.0f, .gate = &l->gate_exps, .up = l->up_exps.n_out ? &l->up_exps : NULL,
                   .down = &l->down_exps, .act = PI__IN_GEGLU, .y = p->y, .ldy = E};
    pi__op_moe(m->be, NULL, &moe);
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = p->f, .y = p->y, .w = l->post_moe_norm, .eps = p->eps, .scale = 1.0f, .n_rows = s->n, .n = E});
}

/* The rest of the layer, from the attention's output on. */
static void after_attention(pi__model *m, gemma4 *p, int32_t i, const stream *s)
{
    const layer *l = &p->layers[i];
    int64_t E = m->n_embd, P = p->n_ple;
    pi__lin_in a = {.kind = PI__IN_PLAIN, .x = s->att, .ldx = (int64_t) l->n_head * l->kind->head_dim};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = a, .n_rows = s->n, .n_lin = 1, .lin = {{&l->wo, p->y, E}}});
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = s->x, .y = p->y, .w = l->post_attn_norm, .eps = p->eps, .scale = 1.0f, .n_rows = s->n, .n = E});

    mlp(m, p, l, s);
    if (l->router.n_out) experts(m, p, l, s);
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = s->x, .y = l->router.n_out ? p->f : p->y, .w = l->post_ffn_norm, .eps = p->eps, .scale = P ? 1.0f : l->out_scale, .n_rows = s->n, .n = E});
    if (!P) return;

    float *g = p->ff; /* [n, P] */
    pi__lin_in in = {.kind = PI__IN_PLAIN, .x = s->x, .ldx = E};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = s->n, .n_lin = 1, .lin = {{&l->ple_gate, g, P}}});
    pi__lin_in h = {.kind = PI__IN_GEGLU, .x = g, .ldx = P, .x2 = s->ple + i * P, .ldx2 = m->n_layer * P};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = h, .n_rows = s->n, .n_lin = 1, .lin = {{&l->ple_proj, p->y, E}}});
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = s->x, .y = p->y, .w = l->post_ple_norm, .eps = p->eps, .scale = l->out_scale, .n_rows = s->n, .n = E});
}

static void forward(pi__model *m, const pi__batch *b)
{
    gemma4 *p = m->arch_data;
    stream s = {.b = b, .n = b->n_tokens, .x = p->x, .ple = p->ple, .qkv = p->qkv, .att = p->att};
    pi__op_embed(m->be, b, &(pi__embed) {.w = &p->tok_embd, .scale = sqrtf((float) m->n_embd), .out = p->x});
    if (p->n_ple) embed_layers(m, p, b);
    rotations(m, p, b);
    for (int32_t i = 0; i < m->n_layer; i++) {
        attend(m, p, i, &s);
        if (!s.n) return;
        after_attention(m, p, i, &s);
    }
}

static void logits(pi__model *m, int32_t first, int32_t n, float *out)
{
    gemma4 *p = m->arch_data;
    const pi__weight *w = p->output.n_out ? &p->output : &p->tok_embd;
    pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = p->rows + (size_t) first * (size_t) m->n_embd, .ldx = m->n_embd,
                     .w = p->output_norm, .eps = p->eps};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = n, .n_lin = 1, .lin = {{w, out, m->n_vocab}}});
    if (p->softcap > 0) pi__op_softcap(m->be, NULL, &(pi__softcap) {.x = out, .cap = p->softcap, .n_rows = n, .n = m->n_vocab});
}

/* A drafter's step for the n tokens of b, all of whose rows are wanted. */
static void draft(pi__model *m, const pi__batch *b, const int32_t *hidden, bool chained, float *logits)
{
    gemma4 *p = m->arch_data;
    const gemma4 *t = m->target->arch_data;
    int32_t n = b->n_tokens, W = m->target->n_embd;
    float *before = p->parts + (size_t) PI__MAX_ROWS * (size_t) W; /* [n, W] hidden states */
    pi__op_embed(m->be, b, &(pi__embed) {.w = &t->tok_embd, .scale = sqrtf((float) W), .out = p->parts});
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = hidden, .n_rows = n, .x = chained ? p->hidden : t->rows, .n = W, .out = chained ? before : p->pairs});
    if (!chained) pi__op_norm(m->be, NULL, &(pi__norm) {.out = before, .ldo = W, .x = p->pairs, .w = t->output_norm, .eps = t->eps, .n_rows = n, .n = W});
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = p->pair_row, .n_rows = 2 * n, .x = p->parts, .n = W, .out = p->pairs});
    pi__lin_in in = {.kind = PI__IN_PLAIN, .x = p->pairs, .ldx = 2 * W};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = n, .n_lin = 1, .lin = {{&p->pre, p->x, m->n_embd}}});

    stream s = {.b = b, .n = n, .x = p->x, .qkv = p->qkv, .att = p->att};
    rotations(m, p, b);
    for (int32_t i = 0; i < m->n_layer; i++) {
        attend(m, p, i, &s);
        after_attention(m, p, i, &s);
    }
    in = (pi__lin_in) {.kind = PI__IN_RMSNORM, .x = p->x, .ldx = m->n_embd, .w = p->output_norm, .eps = p->eps};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = n, .n_lin = p->n_cluster ? 1 : 2, .lin = {{&p->post, p->hidden, W}, {&p->tok_embd, logits, m->n_vocab}}});
    if (!p->n_cluster) return;
    const pi__centroid_head head = {.n_rows = n, .in = in, .centroids = &p->centroids, .head = &p->clusters, .order = p->order,
                                .n_pick = p->n_pick, .scores = p->scores, .pick = p->pick, .some = p->some,
                                .logits = logits};
    pi__op_centroid_head(m->be, NULL, &head);
}

static void free_arch(pi__model *m)
{
    gemma4 *p = m->arch_data;
    pi__free(p->global.freq);
    pi__free(p->local.freq);
    pi__free(p->rope_factor);
    pi__free(p->order);
    pi__free(p->layers);
}

static const char *size_name(const pi__model *m)
{
    const gemma4 *p = m->arch_data;
    switch (m->n_layer) {
    case 30: return p->n_expert ? "26B-A4B" : NULL;
    case 35: return p->n_ple ? "E2B" : NULL;
    case 42: return p->n_ple ? "E4B" : NULL;
    case 60: return "31B";
    default: return NULL;
    }
}

const pi__arch pi__arch_gemma4 = {
    .name = "gemma4", .size = sizeof(gemma4), .declare = declare, .loaded = loaded, .layout = layout, .forward = forward,
    .logits = logits, .free = free_arch, .size_name = size_name,
};

const pi__arch pi__arch_gemma4_assistant = {
    .name = "gemma4-assistant", .size = sizeof(gemma4), .declare = declare, .loaded = loaded, .layout = layout,
    .draft = draft, .free = free_arch,
};
