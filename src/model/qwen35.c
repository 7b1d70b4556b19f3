/* Qwen 3.5 and 3.6, text: GGUF architectures "qwen35" (dense) and "qwen35moe" (a router and 64 to 512 experts a layer).
 *
 * Three layers of four are gated delta nets: no cache of keys, a state of fixed size instead. Every fourth is attention
 * over everything, with norms on query and key heads, rotation of the first quarter of a head only, and a gate a query
 * head. Norms before mixer and feed-forward, untied output in the larger sizes. The file's norm weights include the +1
 * (the delta net's own norm has none). After "Gated Delta Networks" (arXiv 2412.06464) and the models' configurations.
 *
 * A last block past the trunk, where the file has it, is the draft head (MTP, "nextn"): an attention layer that reads the
 * trunk's last hidden row and the next token's embedding. The trunk never runs it, and it is loaded only for drafting.
 *
 * Symbols in shapes: T tokens of the step, R rows wanted, E embedding, H query heads, K key/value heads, D head size,
 * k, v key and value heads of the delta net, d its head size, C = (2k + v)*d, F feed-forward, N experts, V vocabulary. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/model.h"

typedef struct layer {
    bool delta;                     /* a delta net; else attention */
    int32_t cache;                  /* index into m->state or m->kv */
    float *norm;                    /* [E] before the mixer */
    float *ffn_norm;                /* [E] before the feed-forward */
    /* attention */
    pi__weight wq, wk, wv;          /* [H*2D, E] query and gate of a head side by side, [K*D, E], [K*D, E] */
    float *q_norm, *k_norm;         /* [D] */
    /* delta net */
    pi__weight qkv, z, alpha, beta; /* [C, E], [v*d, E], [v, E], [v, E] */
    float *conv;                    /* [C, 4] taps, the last for the current token */
    float *dt_bias, *a;             /* [v] */
    float *head_norm;               /* [d] */
    pi__weight wo;                  /* [E, H*D] or [E, v*d]: the mixer's output */
    /* feed-forward */
    pi__weight gate, up, down;      /* dense or shared expert: [F, E], [F, E], [E, F] */
    int32_t n_ff;                   /* F of those; 0: the draft head has none */
    pi__weight router;              /* [N, E] */
    pi__weight gate_exps, up_exps, down_exps; /* N of [F, E], [F, E], [E, F]; gate of [2F, E] where up is absent */
    pi__weight shared_gate;         /* [1, E] */
} layer;

/* The draft head, beside the layer of its own. */
typedef struct draft_head {
    layer block;                /* attention */
    pi__weight proj;            /* [E, 2E]: embedding, hidden */
    float *embd_norm, *hidden_norm; /* [E] of the two */
    float *out_norm;            /* [E]; NULL: the trunk's */
    pi__weight tok_embd;        /* [V, E]; n_out 0: the trunk's */
    pi__weight output;          /* [V, E]; n_out 0: the trunk's */
} draft_head;

typedef struct qwen35 {
    bool moe;                   /* qwen35moe */
    int32_t n_trunk;            /* layers without the draft head's */
    int32_t n_head, n_head_kv;  /* H, K */
    int32_t head_dim;           /* D */
    int32_t n_rot;              /* rotated values of a head */
    int32_t n_ff;               /* F of the dense feed-forward */
    int32_t n_expert, n_used;   /* N; experts a token */
    int32_t n_ff_shared;        /* F of the shared expert */
    float weights_scale;        /* of routing weights */
    pi__state_layer delta;      /* shape of the delta nets */
    float eps;                  /* of every norm */
    float q_scale;              /* of queries */
    float *freq;                /* [n_rot/2] rotation a position, on the host */
    float mscale;               /* of its cosines and sines */
    pi__weight tok_embd;        /* [V, E] */
    pi__weight output;          /* [V, E]; n_out 0: tied */
    float *output_norm;         /* [E] */
    layer *layers;              /* [n_trunk] */
    draft_head *draft;          /* NULL: none */
    /* scratch */
    float *x;                   /* [T, E] residual stream */
    float *mix;                 /* [T, H*2D + 2K*D] or [T, C + v*d + 2v]: what the mixer reads */
    float *att;                 /* [T, H*D] or [T, v*d] */
    float *y;                   /* [T, E] output of a block */
    float *ff;                  /* [T, 2F] gate, up */
    float *route;               /* [T, N + 1] router, shared gate */
    float *shared;              /* [T, E] output of the shared expert */
    float *rope;                /* [T, n_rot] */
    float *rows;                /* [R, E] residual of the rows wanted */
    /* scratch of the draft head, which runs while x and rows are still needed */
    float *pair;                /* [T, 2E] norms of embedding and hidden state */
    float *dx;                  /* [T, E] residual stream */
    float *drows;               /* [R, E] output of its rows, normed: the hidden states of drafts after drafts */
} qwen35;

/* ---------------------------------------------------------------------------------------------------- hyperparameters */

static int read_heads(pi__model *m, qwen35 *p, pi_error *err)
{
    int32_t vdim;
    float scale;
    int rc = pi__hp_u32(m, "attention.head_count", true, 0, 1, PI__MAX_HEADS, &p->n_head, err);
    if (!rc) rc = pi__hp_u32(m, "attention.head_count_kv", false, (uint32_t) p->n_head, 1, PI__MAX_HEADS, &p->n_head_kv, err);
    if (!rc) rc = pi__hp_u32(m, "attention.key_length", false, 256, 32, PI__MAX_HEAD_DIM, &p->head_dim, err);
    if (!rc) rc = pi__hp_u32(m, "attention.value_length", false, (uint32_t) p->head_dim, 32, PI__MAX_HEAD_DIM, &vdim, err);
    if (!rc) rc = pi__hp_u32(m, "rope.dimension_count", true, 0, 2, (uint32_t) p->head_dim, &p->n_rot, err);
    if (!rc) rc = pi__hp_f32(m, "attention.layer_norm_rms_epsilon", true, 0, &p->eps, err);
    if (!rc) rc = pi__hp_f32(m, "attention.scale", false, 0, &scale, err);
    if (rc) return rc;
    const char *name = m->arch->name;
    if (vdim != p->head_dim || p->head_dim % 32)
        return pi__fail(err, PI_EUNSUPPORTED, "metadata %s.attention.key_length %d and value_length %d must be equal and a "
                        "multiple of 32", name, p->head_dim, vdim);
    if (p->n_head % p->n_head_kv)
        return pi__fail(err, PI_EFORMAT, "metadata %s.attention.head_count %d is not a multiple of head_count_kv %d", name,
                        p->n_head, p->n_head_kv);
    if (p->n_rot % 2)
        return pi__fail(err, PI_EFORMAT, "metadata %s.rope.dimension_count is %d, expected an even number", name, p->n_rot);
    p->q_scale = scale > 0 ? scale : 1.0f / sqrtf((float) p->head_dim);
    m->lim.max_n_head = p->n_head;
    m->lim.max_head_dim = p->head_dim;
    return PI_OK;
}

/* Text has one position a token, so the three sections of the rotation are one. */
static int read_rope(pi__model *m, qwen35 *p, pi_error *err)
{
    p->freq = pi__malloc((size_t) (p->n_rot / 2) * sizeof(float));
    if (!p->freq) return pi__fail_mem(err, "rope frequencies");
    return pi__rope_freqs(m, "rope.freq_base", 1e7f, true, p->n_rot, p->freq, &p->mscale, err);
}

static int read_delta(pi__model *m, qwen35 *p, pi_error *err)
{
    pi__state_layer *s = &p->delta;
    int32_t inner;
    int rc = pi__hp_u32(m, "ssm.conv_kernel", true, 0, 2, 64, &s->n_conv, err);
    if (!rc) rc = pi__hp_u32(m, "ssm.state_size", true, 0, 1, PI__MAX_HEAD_DIM, &s->dim, err);
    if (!rc) rc = pi__hp_u32(m, "ssm.group_count", true, 0, 1, PI__MAX_HEADS, &s->n_k, err);
    if (!rc) rc = pi__hp_u32(m, "ssm.time_step_rank", true, 0, 1, PI__MAX_HEADS, &s->n_v, err);
    if (!rc) rc = pi__hp_u32(m, "ssm.inner_size", true, 0, 1, INT32_MAX, &inner, err);
    if (rc) return rc;
    if (s->n_v % s->n_k)
        return pi__fail(err, PI_EFORMAT, "metadata %s.ssm.time_step_rank %d is not a multiple of group_count %d",
                        m->arch->name, s->n_v, s->n_k);
    if ((int64_t) s->n_v * s->dim != inner)
        return pi__fail(err, PI_EFORMAT, "metadata %s.ssm.inner_size is %d, expected time_step_rank %d times state_size %d",
                        m->arch->name, inner, s->n_v, s->dim);
    return PI_OK;
}

static int read_ffn(pi__model *m, qwen35 *p, pi_error *err)
{
    int rc = pi__hp_u32(m, "feed_forward_length", !p->moe, 0, !p->moe, PI__MAX_EMBD, &p->n_ff, err);
    if (rc || !p->moe) return rc;
    rc = pi__hp_u32(m, "expert_count", true, 0, 1, PI__MAX_EXPERTS, &p->n_expert, err);
    if (!rc) rc = pi__hp_u32(m, "expert_used_count", true, 0, 1, PI__MAX_USED, &p->n_used, err);
    if (!rc) rc = pi__hp_f32(m, "expert_weights_scale", false, 0, &p->weights_scale, err);
    if (rc) return rc;
    if (p->n_used > p->n_expert)
        return pi__fail(err, PI_EFORMAT, "metadata %s.expert_used_count %d is more than expert_count %d", m->arch->name,
                        p->n_used, p->n_expert);
    if (!(p->weights_scale > 0)) p->weights_scale = 1.0f;
    return pi__hp_u32(m, "expert_shared_feed_forward_length", p->n_ff == 0, (uint32_t) p->n_ff, 1, PI__MAX_EMBD,
                      &p->n_ff_shared, err);
}

/* F of a layer's experts: a number, or an array of one number a layer. */
static int expert_ff(pi__model *m, qwen35 *p, int32_t i, int32_t *out, pi_error *err)
{
    char key[64];
    snprintf(key, sizeof key, "%s.expert_feed_forward_length", m->arch->name);
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    if (!kv || kv->type != PI__GGUF_ARR)
        return pi__hp_u32(m, "expert_feed_forward_length", p->n_ff < p->n_used, (uint32_t) (p->n_ff / p->n_used), 1,
                          PI__MAX_EMBD, out, err);
    uint64_t v = 0;
    if (kv->n >= (uint64_t) m->n_layer && (kv->arr_type == PI__GGUF_U32 || kv->arr_type == PI__GGUF_I32))
        v = pi__gguf_elem_u64(kv, (uint64_t) i);
    if (v < 1 || v > PI__MAX_EMBD)
        return pi__fail(err, PI_EFORMAT, "metadata %s needs a number of 1 to %d for each layer", key, PI__MAX_EMBD);
    *out = (int32_t) v;
    return PI_OK;
}

/* recurrent_layers: an array of one bool a layer; or every full_attention_interval-th layer is attention. */
static int read_pattern(pi__model *m, qwen35 *p, pi_error *err)
{
    char key[64];
    int32_t every;
    snprintf(key, sizeof key, "%s.attention.recurrent_layers", m->arch->name);
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    if (kv && (kv->type != PI__GGUF_ARR || kv->n < (uint64_t) p->n_trunk || kv->arr_type != PI__GGUF_BOOL))
        return pi__fail(err, PI_EFORMAT, "metadata %s needs a bool for each layer", key);
    int rc = pi__hp_u32(m, "full_attention_interval", false, 4, 1, PI__MAX_LAYERS, &every, err);
    for (int32_t i = 0; i < p->n_trunk && !rc; i++)
        p->layers[i].delta = kv ? pi__gguf_elem_u64(kv, (uint64_t) i) != 0 : (i + 1) % every != 0;
    return rc;
}

static int read_params(pi__model *m, qwen35 *p, pi_error *err)
{
    int32_t n_draft;
    int rc = pi__hp_u32(m, "nextn_predict_layers", false, 0, 0, 1, &n_draft, err);
    if (rc) return rc;
    p->moe = m->arch == &pi__arch_qwen35moe;
    if (m->n_draft && !n_draft)
        return pi__fail(err, PI_EUNSUPPORTED, "spec-type mtp: the file has no draft head (%s.nextn_predict_layers is 0)",
                        m->arch->name);
    p->n_trunk = m->n_layer - n_draft;
    if (p->n_trunk < 1)
        return pi__fail(err, PI_EFORMAT, "metadata %s.block_count leaves no layer beside the draft head", m->arch->name);
    p->layers = pi__calloc((size_t) p->n_trunk, sizeof *p->layers);
    if (m->n_draft) p->draft = pi__calloc(1, sizeof *p->draft);
    if (!p->layers || (m->n_draft && !p->draft)) return pi__fail_mem(err, "the layers");
    rc = read_heads(m, p, err);
    if (!rc) rc = read_rope(m, p, err);
    if (!rc) rc = read_delta(m, p, err);
    if (!rc) rc = read_ffn(m, p, err);
    if (!rc) rc = read_pattern(m, p, err);
    return rc;
}

/* ------------------------------------------------------------------------------------------------------------ tensors */

static int want_attention(pi__model *m, qwen35 *p, layer *l, int32_t i, pi_error *err)
{
    int64_t E = m->n_embd, D = p->head_dim, Q = p->n_head * D, KV = p->n_head_kv * D;
    const int64_t q[3] = {2 * Q}, kv[3] = {KV};
    int32_t K = p->n_head_kv;
    int rc = pi__want_heads(m, &l->wq, false, E, K, q, "blk.%d.attn_q.weight", i, err);
    if (!rc) rc = pi__want_heads(m, &l->wk, false, E, K, kv, "blk.%d.attn_k.weight", i, err);
    if (!rc) rc = pi__want_heads(m, &l->wv, false, E, K, kv, "blk.%d.attn_v.weight", i, err);
    if (!rc) rc = pi__want_vec(m, &l->q_norm, false, D, "blk.%d.attn_q_norm.weight", i, err);
    if (!rc) rc = pi__want_vec(m, &l->k_norm, false, D, "blk.%d.attn_k_norm.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->wo, false, Q, E, "blk.%d.attn_output.weight", i, err);
    if (!rc) rc = pi__want_kv(m, i, 0, p->n_head_kv, p->head_dim, &l->cache, err);
    return rc;
}

/* Channels of the convolution. */
static int64_t n_channels(const qwen35 *p) { return (int64_t) (2 * p->delta.n_k + p->delta.n_v) * p->delta.dim; }

static int want_delta(pi__model *m, qwen35 *p, layer *l, int32_t i, pi_error *err)
{
    int64_t E = m->n_embd, C = n_channels(p), nv = p->delta.n_v, VD = nv * p->delta.dim;
    int rc = pi__want_weight(m, &l->qkv, false, E, C, "blk.%d.attn_qkv.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->z, false, E, VD, "blk.%d.attn_gate.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->alpha, false, E, nv, "blk.%d.ssm_alpha.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->beta, false, E, nv, "blk.%d.ssm_beta.weight", i, err);
    if (!rc) rc = pi__want_table(m, &l->conv, C, p->delta.n_conv, "blk.%d.ssm_conv1d.weight", i, err);
    if (!rc) rc = pi__want_vec(m, &l->dt_bias, false, nv, "blk.%d.ssm_dt.bias", i, err);
    if (!rc) rc = pi__want_vec(m, &l->a, false, nv, "blk.%d.ssm_a", i, err);
    if (!rc) rc = pi__want_vec(m, &l->head_norm, false, p->delta.dim, "blk.%d.ssm_norm.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->wo, false, VD, E, "blk.%d.ssm_out.weight", i, err);
    if (!rc) rc = pi__want_state(m, i, &p->delta, &l->cache, err);
    return rc;
}

static int want_experts(pi__model *m, qwen35 *p, layer *l, int32_t i, pi_error *err)
{
    int64_t E = m->n_embd, N = p->n_expert, S = p->n_ff_shared;
    int32_t F;
    int rc = expert_ff(m, p, i, &F, err);
    if (rc) return rc;
    l->n_ff = p->n_ff_shared;
    pi__need_experts(m, p->n_expert, p->n_used, E, F);
    rc = pi__want_weight(m, &l->router, false, E, N, "blk.%d.ffn_gate_inp.weight", i, err);
    if (!rc) rc = pi__want_gate_up(m, &l->gate_exps, true, E, F, N, "blk.%d.ffn_gate_up_exps.weight", i, err);
    if (!rc && !l->gate_exps.n_out) {
        rc = pi__want_experts(m, &l->gate_exps, false, E, F, N, "blk.%d.ffn_gate_exps.weight", i, err);
        if (!rc) rc = pi__want_experts(m, &l->up_exps, false, E, F, N, "blk.%d.ffn_up_exps.weight", i, err);
    }
    if (!rc) rc = pi__want_experts(m, &l->down_exps, false, F, E, N, "blk.%d.ffn_down_exps.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->shared_gate, false, E, 1, "blk.%d.ffn_gate_inp_shexp.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->gate, false, E, S, "blk.%d.ffn_gate_shexp.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->up, false, E, S, "blk.%d.ffn_up_shexp.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->down, false, S, E, "blk.%d.ffn_down_shexp.weight", i, err);
    return rc;
}

/* Some draft heads have no feed-forward. */
static int want_dense(pi__model *m, qwen35 *p, layer *l, int32_t i, bool optional, pi_error *err)
{
    int64_t E = m->n_embd, F = p->n_ff;
    int rc = pi__want_weight(m, &l->gate, optional, E, F, "blk.%d.ffn_gate.weight", i, err);
    if (rc || !l->gate.n_out) return rc;
    l->n_ff = p->n_ff;
    rc = pi__want_weight(m, &l->up, false, E, F, "blk.%d.ffn_up.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->down, false, F, E, "blk.%d.ffn_down.weight", i, err);
    return rc;
}

static int want_layer(pi__model *m, qwen35 *p, layer *l, int32_t i, pi_error *err)
{
    int64_t E = m->n_embd;
    int rc = pi__want_vec(m, &l->norm, false, E, "blk.%d.attn_norm.weight", i, err);
    if (!rc) rc = l->delta ? want_delta(m, p, l, i, err) : want_attention(m, p, l, i, err);
    if (!rc) rc = p->moe ? want_experts(m, p, l, i, err) : want_dense(m, p, l, i, i == p->n_trunk, err);
    if (!rc) rc = pi__want_vec(m, &l->ffn_norm, !l->n_ff, E, "blk.%d.post_attention_norm.weight", i, err);
    return rc;
}

static int want_draft(pi__model *m, qwen35 *p, draft_head *h, pi_error *err)
{
    int32_t i = p->n_trunk;
    int64_t E = m->n_embd, V = m->n_vocab;
    int rc = want_layer(m, p, &h->block, i, err);
    if (!rc) rc = pi__want_weight(m, &h->proj, false, 2 * E, E, "blk.%d.nextn.eh_proj.weight", i, err);
    if (!rc) rc = pi__want_vec(m, &h->embd_norm, false, E, "blk.%d.nextn.enorm.weight", i, err);
    if (!rc) rc = pi__want_vec(m, &h->hidden_norm, false, E, "blk.%d.nextn.hnorm.weight", i, err);
    if (!rc) rc = pi__want_vec(m, &h->out_norm, true, E, "blk.%d.nextn.shared_head_norm.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &h->tok_embd, true, E, V, "blk.%d.nextn.embed_tokens.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &h->output, true, E, V, "blk.%d.nextn.shared_head_head.weight", i, err);
    return rc;
}

static int declare(pi__model *m, pi_error *err)
{
    qwen35 *p = m->arch_data;
    int rc = read_params(m, p, err);
    if (rc) return rc;
    rc = pi__read_vocab_size(m, err);
    if (rc) return rc;
    if (p->n_trunk < m->n_layer && !pi__gguf_find_tensor(m->g, "blk.0.attn_norm.weight"))
        return pi__fail(err, PI_EFORMAT, "tensor blk.0.attn_norm.weight is missing: this file holds a draft head alone; give "
                        "the model it belongs to");
    rc = pi__want_weight(m, &p->tok_embd, false, m->n_embd, m->n_vocab, "token_embd.weight", 0, err);
    if (!rc) rc = pi__want_weight(m, &p->output, true, m->n_embd, m->n_vocab, "output.weight", 0, err);
    if (!rc) rc = pi__want_vec(m, &p->output_norm, false, m->n_embd, "output_norm.weight", 0, err);
    for (int32_t i = 0; i < p->n_trunk && !rc; i++) rc = want_layer(m, p, &p->layers[i], i, err);
    if (!rc && p->draft) rc = want_draft(m, p, p->draft, err);
    return rc;
}

/* -------------------------------------------------------------------------------------------------------------- graph */

static int64_t max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

/* What the mixer of a layer writes a row. */
static int64_t mixer_width(const qwen35 *p, const layer *l)
{
    return l->delta ? (int64_t) p->delta.n_v * p->delta.dim : (int64_t) p->n_head * p->head_dim;
}

static void layout(pi__model *m, const pi__limits *lim, pi__arena *a)
{
    qwen35 *p = m->arch_data;
    size_t T = (size_t) lim->max_tokens, E = (size_t) m->n_embd, f = sizeof(float);
    int64_t Q = (int64_t) p->n_head * p->head_dim, VD = (int64_t) p->delta.n_v * p->delta.dim;
    int64_t att = 2 * Q + 2 * (int64_t) p->n_head_kv * p->head_dim, delta = n_channels(p) + VD + 2 * (int64_t) p->delta.n_v;
    p->x = pi__arena_take(a, T * E * f);
    p->mix = pi__arena_take(a, T * (size_t) max_i64(att, delta) * f);
    p->att = pi__arena_take(a, T * (size_t) max_i64(Q, VD) * f);
    p->y = pi__arena_take(a, T * E * f);
    p->ff = pi__arena_take(a, T * 2 * (size_t) (p->moe ? p->n_ff_shared : p->n_ff) * f);
    p->route = pi__arena_take(a, T * (size_t) (p->moe ? p->n_expert + 1 : 0) * f);
    p->shared = pi__arena_take(a, T * (p->moe ? E : 0) * f);
    p->rope = pi__arena_take(a, T * (size_t) p->n_rot * f);
    p->rows = pi__arena_take(a, T * E * f);
    if (!p->draft) return;
    p->pair = pi__arena_take(a, T * 2 * E * f);
    p->dx = pi__arena_take(a, T * E * f);
    p->drows = pi__arena_take(a, (size_t) lim->max_rows * E * f);
}

/* mix = queries, their gates, keys and values of the normed residual x; writes this step's K,V. */
static void project(pi__model *m, qwen35 *p, layer *l, const float *x, const pi__batch *b)
{
    int64_t D = p->head_dim, Q = p->n_head * D, KV = p->n_head_kv * D, ld = 2 * Q + 2 * KV;
    float *q = p->mix, *k = q + 2 * Q, *v = k + KV; /* [T, H*(D|D) | K*D | K*D] */
    pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = x, .ldx = m->n_embd, .w = l->norm, .eps = p->eps};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = b->n_tokens, .n_lin = 3, .lin = {{&l->wq, q, ld}, {&l->wk, k, ld}, {&l->wv, v, ld}}});

    const pi__kv_layer *kv = &m->kv[l->cache];
    pi__qkv prep = {.kv = kv, .q = q, .ldq = ld, .q_stride = 2 * D, .k = k, .ldk = ld, .v = v, .ldv = ld, .n_head = p->n_head,
                    .q_norm = l->q_norm, .k_norm = l->k_norm, .eps = p->eps, .rope = p->rope, .n_rot = p->n_rot,
                    .pair_stride = p->n_rot / 2, .q_scale = p->q_scale};
    pi__op_qkv(m->be, b, &prep);
}

/* att = gated attention of what project left, over keys from position first on. [T, H*D] */
static void attend(pi__model *m, qwen35 *p, layer *l, int32_t first, const pi__batch *b)
{
    int64_t D = p->head_dim, Q = p->n_head * D, ld = 2 * Q + 2 * p->n_head_kv * D;
    pi__attention att = {.kv = &m->kv[l->cache], .q = p->mix, .ldq = ld, .q_stride = 2 * D, .gate = p->mix + D, .out = p->att, .ldo = Q,
                    .n_head = p->n_head, .first = first};
    pi__op_attention(m->be, b, &att);
}

/* att = delta rule of the normed residual; moves the states on. [T, v*d] */
static void delta_rule(pi__model *m, qwen35 *p, layer *l, const pi__batch *b)
{
    int64_t C = n_channels(p), nv = p->delta.n_v, VD = nv * p->delta.dim, ld = C + VD + 2 * nv;
    float *qkv = p->mix, *z = qkv + C, *alpha = z + VD, *beta = alpha + nv; /* [T, C | v*d | v | v] */
    pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = p->x, .ldx = m->n_embd, .w = l->norm, .eps = p->eps};
    pi__lin lin[] = {{&l->qkv, qkv, ld}, {&l->z, z, ld}, {&l->alpha, alpha, ld}, {&l->beta, beta, ld}};
    pi__linear all = pi__linear_of(&in, b->n_tokens, lin, 4);
    pi__op_linear(m->be, NULL, &all);
    pi__gdn a = {.st = &m->state[l->cache], .qkv = qkv, .ld_qkv = ld, .z = z, .ld_z = ld, .alpha = alpha, .beta = beta, .ld_ab = ld, .conv = l->conv,
                 .dt_bias = l->dt_bias, .a = l->a, .norm = l->head_norm, .eps = p->eps, .out = p->att, .ldo = VD};
    pi__op_gdn(m->be, b, &a);
}

/* y = down(silu(gate h) * up h) of n rows, h given by gate and up: p->ff [n, F | F] */
static void gated_mlp(pi__model *m, qwen35 *p, layer *l, float *y, int32_t n)
{
    int64_t F = l->n_ff;
    pi__lin_in h = {.kind = PI__IN_SWIGLU, .x = p->ff, .ldx = 2 * F, .x2 = p->ff + F, .ldx2 = 2 * F};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = h, .n_rows = n, .n_lin = 1, .lin = {{&l->down, y, m->n_embd}}});
}

/* y = the routed experts plus the gated shared one, of n rows of x [n, E] */
static void experts(pi__model *m, qwen35 *p, layer *l, const pi__lin_in *in, int32_t n)
{
    int64_t E = m->n_embd, N = p->n_expert, F = l->n_ff, ld = N + 1;
    float *logits = p->route, *gate = logits + N; /* [n, N | 1] */
    pi__lin lin[] = {{&l->router, logits, ld}, {&l->shared_gate, gate, ld}, {&l->gate, p->ff, 2 * F},
                     {&l->up, p->ff + F, 2 * F}};
    pi__linear all = pi__linear_of(in, n, lin, 4);
    pi__op_linear(m->be, NULL, &all);
    pi__moe moe = {.n_rows = n, .in = *in, .logits = logits, .ldl = ld, .n_expert = p->n_expert, .n_used = p->n_used,
                   .weights_scale = p->weights_scale, .gate = &l->gate_exps, .up = l->up_exps.n_out ? &l->up_exps : NULL,
                   .down = &l->down_exps, .act = PI__IN_SWIGLU, .y = p->y, .ldy = E};
    pi__op_moe(m->be, NULL, &moe);
    gated_mlp(m, p, l, p->shared, n);
    pi__op_add_gated(m->be, NULL, &(pi__add_gated) {.y = p->y, .x = p->shared, .gate = gate, .ldg = ld, .n_rows = n, .n = E});
}

/* The rest of the layer for n rows of residual x [n, E] and mixer output att [n, mixer_width]. */
static void after_mixer(pi__model *m, qwen35 *p, layer *l, float *x, const float *att, int32_t n)
{
    int64_t E = m->n_embd, F = l->n_ff;
    pi__lin_in a = {.kind = PI__IN_PLAIN, .x = att, .ldx = mixer_width(p, l)};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = a, .n_rows = n, .n_lin = 1, .lin = {{&l->wo, p->y, E}}});
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = x, .y = p->y, .w = NULL, .eps = 0, .scale = 1.0f, .n_rows = n, .n = E});

    pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = x, .ldx = E, .w = l->ffn_norm, .eps = p->eps};
    if (!l->n_ff) return;
    if (p->moe) {
        experts(m, p, l, &in, n);
    } else {
        pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = n, .n_lin = 2, .lin = {{&l->gate, p->ff, 2 * F}, {&l->up, p->ff + F, 2 * F}}});
        gated_mlp(m, p, l, p->y, n);
    }
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = x, .y = p->y, .w = NULL, .eps = 0, .scale = 1.0f, .n_rows = n, .n = E});
}

static void mix(pi__model *m, qwen35 *p, layer *l, const pi__batch *b)
{
    if (l->delta) {
        delta_rule(m, p, l, b);
        return;
    }
    project(m, p, l, p->x, b);
    attend(m, p, l, 0, b);
}

static void forward(pi__model *m, const pi__batch *b)
{
    qwen35 *p = m->arch_data;
    pi__op_embed(m->be, b, &(pi__embed) {.w = &p->tok_embd, .scale = 1.0f, .out = p->x});
    pi__op_rope(m->be, b, &(pi__rope) {.freq = p->freq, .n_freq = p->n_rot / 2, .mscale = p->mscale, .table = p->rope});
    for (int32_t i = 0; i < p->n_trunk - 1; i++) {
        mix(m, p, &p->layers[i], b);
        after_mixer(m, p, &p->layers[i], p->x, p->att, b->n_tokens);
    }
    /* After the last layer's cache is written, only the rows whose logits are wanted matter. */
    layer *last = &p->layers[p->n_trunk - 1];
    mix(m, p, last, b);
    if (p->draft) { /* which reads all of them */
        after_mixer(m, p, last, p->x, p->att, b->n_tokens);
        pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->row, .n_rows = b->n_rows, .x = p->x, .n = m->n_embd, .out = p->rows});
        return;
    }
    if (!b->n_rows) return;
    float *att = p->mix; /* [R, mixer_width]: the mixer's inputs are done with */
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->row, .n_rows = b->n_rows, .x = p->x, .n = m->n_embd, .out = p->rows});
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->row, .n_rows = b->n_rows, .x = p->att, .n = mixer_width(p, last), .out = att});
    after_mixer(m, p, last, p->rows, att, b->n_rows);
}

static void logits(pi__model *m, int32_t first, int32_t n, float *out)
{
    qwen35 *p = m->arch_data;
    const pi__weight *w = p->output.n_out ? &p->output : &p->tok_embd;
    pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = p->rows + (size_t) first * (size_t) m->n_embd, .ldx = m->n_embd,
                     .w = p->output_norm, .eps = p->eps};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = n, .n_lin = 1, .lin = {{w, out, m->n_vocab}}});
}

/* The draft head: one attention layer over the norms of token and hidden state, side by side. Position 0 has no hidden
 * state before it, so keys begin at 1. */
static void draft(pi__model *m, const pi__batch *b, const int32_t *hidden, bool chained, float *logits)
{
    qwen35 *p = m->arch_data;
    draft_head *h = p->draft;
    int32_t E = m->n_embd, n = b->n_tokens;
    pi__op_embed(m->be, b, &(pi__embed) {.w = h->tok_embd.n_out ? &h->tok_embd : &p->tok_embd, .scale = 1.0f, .out = p->y});
    pi__op_norm(m->be, NULL, &(pi__norm) {.out = p->pair, .ldo = 2 * E, .x = p->y, .w = h->embd_norm, .eps = p->eps, .n_rows = n, .n = E});
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = hidden, .n_rows = n, .x = chained ? p->drows : p->x, .n = E, .out = chained ? p->y : p->dx});
    if (!chained) pi__op_norm(m->be, NULL, &(pi__norm) {.out = p->y, .ldo = E, .x = p->dx, .w = p->output_norm, .eps = p->eps, .n_rows = n, .n = E});
    pi__op_norm(m->be, NULL, &(pi__norm) {.out = p->pair + E, .ldo = 2 * E, .x = p->y, .w = h->hidden_norm, .eps = p->eps, .n_rows = n, .n = E});
    pi__lin_in in = {.kind = PI__IN_PLAIN, .x = p->pair, .ldx = 2 * E};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = n, .n_lin = 1, .lin = {{&h->proj, p->dx, E}}});

    pi__op_rope(m->be, b, &(pi__rope) {.freq = p->freq, .n_freq = p->n_rot / 2, .mscale = p->mscale, .table = p->rope});
    project(m, p, &h->block, p->dx, b);
    if (!logits) return;
    attend(m, p, &h->block, 1, b);
    float *att = p->mix, *rows = p->pair; /* [R, H*D], [R, E]: what they held is done with */
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->row, .n_rows = b->n_rows, .x = p->dx, .n = E, .out = rows});
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->row, .n_rows = b->n_rows, .x = p->att, .n = mixer_width(p, &h->block), .out = att});
    after_mixer(m, p, &h->block, rows, att, b->n_rows);
    pi__op_norm(m->be, NULL, &(pi__norm) {.out = p->drows, .ldo = E, .x = rows, .w = h->out_norm ? h->out_norm : p->output_norm, .eps = p->eps, .n_rows = b->n_rows, .n = E});
    const pi__weight *w = h->output.n_out ? &h->output : p->output.n_out ? &p->output : &p->tok_embd;
    pi__lin_in out = {.kind = PI__IN_PLAIN, .x = p->drows, .ldx = E};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = out, .n_rows = b->n_rows, .n_lin = 1, .lin = {{w, logits, m->n_vocab}}});
}

static void free_arch(pi__model *m)
{
    qwen35 *p = m->arch_data;
    pi__free(p->freq);
    pi__free(p->layers);
    pi__free(p->draft);
}

static const char *size_name(const pi__model *m)
{
    const qwen35 *p = m->arch_data;
    static const struct {
        int32_t n_layer, n_embd;
        bool moe;
        const char *name;
    } sizes[] = {
        {24, 1024, false, "0.8B"}, {24, 2048, false, "2B"},  {32, 2560, false, "4B"}, {32, 4096, false, "9B"},
        {64, 5120, false, "27B"},  {40, 2048, true, "35B-A3B"}, {60, 4096, true, "397B-A17B"},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].n_layer == p->n_trunk && sizes[i].n_embd == m->n_embd && sizes[i].moe == p->moe) return sizes[i].name;
    return NULL;
}

const pi__arch pi__arch_qwen35 = {
    .name = "qwen35", .size = sizeof(qwen35), .declare = declare, .layout = layout, .forward = forward,
    .logits = logits, .draft = draft, .draft_has_cache = true, .free = free_arch, .size_name = size_name,
};

const pi__arch pi__arch_qwen35moe = {
    .name = "qwen35moe", .size = sizeof(qwen35), .declare = declare, .layout = layout, .forward = forward,
    .logits = logits, .draft = draft, .draft_has_cache = true, .free = free_arch, .size_name = size_name,
};
