/* The dense transformer (see dense.h). Shape symbols as in blocks.h. */
#include "model/dense.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Numbers of heads per layer: [n_layer] each; NULL after an error. */
typedef struct layer_heads {
    int32_t *q, *kv;
} layer_heads;

/* Returns the largest of each [n_layer]; 1 if it is NULL. */
static int32_t largest(const pi__model *m, const int32_t *each)
{
    int32_t most = 1;
    for (int32_t i = 0; i < m->n_layer && each; i++) most = each[i] > most ? each[i] : most;
    return most;
}

/* Reads one number for all layers, or an array of one per layer. Sets the largest in a. */
static layer_heads read_layer_heads(pi__model *m, pi__attn *a)
{
    const size_t n = (size_t) m->n_layer;
    layer_heads h;
    h.q = pi__model_calloc(m, n, sizeof *h.q, "the heads");
    h.kv = pi__model_calloc(m, n, sizeof *h.kv, "the heads");
    if (h.q) pi__hp_each(m, "attention.head_count", 1, PI__MAX_HEADS, h.q);
    if (h.kv && pi__has_key(m, "attention.head_count_kv"))
        pi__hp_each(m, "attention.head_count_kv", 1, PI__MAX_HEADS, h.kv);
    else if (h.kv) memcpy(h.kv, h.q, n * sizeof *h.kv);
    a->n_head = largest(m, h.q);
    a->n_head_kv = largest(m, h.kv);
    return h;
}

/* Returns the largest number of a key with one number per layer. Sets *has of each layer to: its number is not 0.
 * Different numbers are refused. */
static int32_t read_layers(pi__model *m, const char *name, int32_t max, bool *has)
{
    int32_t *each = pi__model_calloc(m, (size_t) m->n_layer, sizeof *each, "the layers"), most = 0;
    if (!pi__model_ok(m)) return 0;
    pi__hp_each(m, name, 0, max, each);
    for (int32_t i = 0; i < m->n_layer; i++) {
        has[i] = each[i];
        if (each[i] && most && each[i] != most)
            pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.%s is %d in layer %d and %d in an earlier layer: layers "
                             "of different sizes are not supported", m->arch->name, name, each[i], i, most);
        most = each[i] > most ? each[i] : most;
    }
    return most;
}

/* Returns the number of KV heads, which is equal in all layers where it is not 0. Fills in attends, see
 * pi__dense_read_mixed. */
static int32_t read_mixed_heads(pi__model *m, bool *attends)
{
    const int32_t n = read_layers(m, "attention.head_count_kv", PI__MAX_HEADS, attends);
    if (!n) pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.attention.head_count_kv is 0 in all layers: models "
                             "without attention are not supported", m->arch->name);
    return n ? n : 1;
}

/* What the readers of models have in common, and in which they differ. */
typedef struct reading {
    uint32_t def_head_dim; /* as in pi__dense_read */
    bool layer_norms;      /* as in pi__dense_read_layered */
    bool narrow;           /* heads of values may be smaller than heads of keys */
    bool *attends;         /* as in pi__dense_read_mixed; NULL = all layers have attention */
} reading;

/* Reads the rest of a's shape; n_head and n_head_kv are set. */
static void read_head_size(pi__model *m, pi__attn *a, const reading *how)
{
    const uint32_t def_head_dim = how->def_head_dim ? how->def_head_dim : (uint32_t) (m->n_embd / a->n_head);
    a->head_dim = pi__hp_u32_or(m, "attention.key_length", def_head_dim, 1, PI__MAX_HEAD_DIM);
    const int32_t vdim = pi__hp_u32_or(m, "attention.value_length", (uint32_t) a->head_dim, 1, PI__MAX_HEAD_DIM);
    if (how->narrow && vdim < a->head_dim) a->value_dim = vdim;
    if ((vdim != a->head_dim && !a->value_dim) || a->head_dim % 16 || a->head_dim < 32)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.attention.key_length %d and value_length %d must be equal "
                         "and a multiple of 16, at least 32", m->arch->name, a->head_dim, vdim);
    if ((int64_t) a->n_head * a->head_dim > PI__MAX_EMBD)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.attention.head_count: %d heads of %d values are more than %d",
                         m->arch->name, a->n_head, a->head_dim, PI__MAX_EMBD);
    const float scale = pi__hp_f32_or(m, "attention.scale", 0);
    a->q_scale = scale > 0 ? scale : 1.0f / sqrtf((float) a->head_dim);
}

/* Sets the numbers of heads of each layer; h.q NULL = those of d->attn. */
static void set_layer_heads(pi__model *m, pi__dense *d, layer_heads h)
{
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++) {
        pi__attn *a = &d->layers[i].attn;
        a->n_head = h.q ? h.q[i] : d->attn.n_head;
        a->n_head_kv = h.kv ? h.kv[i] : d->attn.n_head_kv;
        if (a->n_head_kv && a->n_head % a->n_head_kv)
            pi__model_refuse(m, PI_EFORMAT, "metadata %s.attention.head_count %d is not a multiple of head_count_kv %d",
                             m->arch->name, a->n_head, a->n_head_kv);
    }
}

/* Reads the heads of all layers. */
static layer_heads read_heads(pi__model *m, pi__attn *a, const reading *how)
{
    layer_heads h = {0};
    if (how->attends) {
        a->n_head = pi__hp_u32(m, "attention.head_count", 1, PI__MAX_HEADS);
        a->n_head_kv = read_mixed_heads(m, how->attends);
    } else {
        h = read_layer_heads(m, a);
    }
    read_head_size(m, a, how);
    return h;
}

/* Reads what layers of all kinds have; not the width of the feed-forward. */
static void read_common(pi__model *m, pi__dense *d, const char *eps_key)
{
    d->attn.eps = d->head.eps = pi__hp_f32(m, eps_key);
    d->window = pi__hp_u32_or(m, "attention.sliding_window", 0, 0, 1 << 28);
    d->head.softcap = pi__hp_f32_or(m, "final_logit_softcapping", 0);
    d->head.embd_scale = 1.0f;
    d->act = PI__IN_SWIGLU;
    pi__experts_read(m, &d->experts, false);
    d->layers = pi__model_calloc(m, (size_t) m->n_layer, sizeof *d->layers, "the layers");
    for (int32_t i = 0; i < m->n_layer && d->layers; i++) d->layers[i].attn.rot = &d->rot;
}

static void read_rest(pi__model *m, pi__dense *d, bool layer_norms)
{
    const char *rms = "attention.layer_norm_rms_epsilon"; /* also of LayerNorms in the files of phimoe */
    d->layer_norms = d->head.layer_norm = layer_norms;
    d->n_ff = pi__hp_u32(m, "feed_forward_length", 1, PI__MAX_EMBD);
    read_common(m, d, layer_norms && !pi__has_key(m, rms) ? "attention.layer_norm_epsilon" : rms);
}

static void read_rotated(pi__model *m, pi__dense *d)
{
    d->n_rot = pi__hp_u32_or(m, "rope.dimension_count", (uint32_t) d->attn.head_dim, 2, (uint32_t) d->attn.head_dim);
}

static pi__dense *read(pi__model *m, reading how)
{
    pi__dense *d = m->arch_data;
    const layer_heads h = read_heads(m, &d->attn, &how);
    read_rotated(m, d);
    read_rest(m, d, how.layer_norms);
    set_layer_heads(m, d, h);
    return d;
}

pi__dense *pi__dense_read(pi__model *m, uint32_t def_head_dim)
{
    return read(m, (reading) {.def_head_dim = def_head_dim});
}
pi__dense *pi__dense_read_mixed(pi__model *m, bool *attends) { return read(m, (reading) {.attends = attends}); }
pi__dense *pi__dense_read_layered(pi__model *m) { return read(m, (reading) {.layer_norms = true}); }
pi__dense *pi__dense_read_narrow(pi__model *m) { return read(m, (reading) {.narrow = true}); }

int32_t pi__dense_lead(pi__model *m)
{
    int32_t n = 0;
    while (n < m->n_layer && !pi__has_tensor(m, "ffn_gate_inp.weight", n)) n++;
    return pi__hp_u32_or(m, "leading_dense_block_count", n < m->n_layer ? (uint32_t) n : 0, 0, (uint32_t) m->n_layer);
}

void pi__dense_read_experts(pi__model *m, pi__dense *d)
{
    enum { SIGMOID = 2 /* expert_gating_func */ };
    pi__experts_read(m, &d->experts, true);
    pi__experts_read_router(m, &d->experts, SIGMOID, true);
    d->experts.n_ff = pi__hp_u32(m, "expert_feed_forward_length", 1, PI__MAX_EMBD);
    d->n_lead = pi__dense_lead(m);
}

/* attention.sliding_window_pattern: one bool per layer, or a period. */
typedef struct pattern {
    const pi__gguf_kv *array; /* NULL = a period */
    int32_t every;
} pattern;

static pattern read_pattern(pi__model *m, int32_t period)
{
    const char *key = "attention.sliding_window_pattern";
    const pi__gguf_kv *kv = pi__hp_array(m, key, PI__GGUF_BOOL, m->n_layer, true);
    if (kv && kv->type == PI__GGUF_ARR) return (pattern) {kv, 1};
    return (pattern) {NULL, pi__hp_u32_or(m, key, (uint32_t) period, 1, PI__MAX_LAYERS)};
}

void pi__dense_windows(pi__model *m, pi__dense *d, int32_t period, const pi__rotation *local, const pi__rotation *full)
{
    const pattern p = read_pattern(m, period);
    const int32_t rest = d->full_first ? 0 : p.every - 1;
    for (int32_t i = 0; i < m->n_layer && d->window && pi__model_ok(m); i++) {
        const bool narrow = p.array ? pi__gguf_elem_u64(p.array, (uint64_t) i) != 0 : i % p.every != rest;
        if (narrow) d->layers[i].attn.window = d->window;
        d->layers[i].attn.rot = narrow ? local : full;
    }
}

void pi__dense_two_sided(pi__model *m, pi__dense *d, int32_t period, const pi__rotation *local)
{
    const pattern p = read_pattern(m, period);
    for (int32_t i = 0; i < m->n_layer && d->window && pi__model_ok(m); i++) {
        if (p.array ? !pi__gguf_elem_u64(p.array, (uint64_t) i) : i % p.every == 0) continue;
        d->layers[i].attn.window = d->window / 2 + 1;
        d->layers[i].attn.ahead = d->window / 2;
        d->layers[i].attn.rot = local;
    }
}

pi__dense *pi__dense_read_hybrid(pi__model *m, const char *eps_key)
{
    pi__dense *d = m->arch_data;
    bool *has = pi__model_calloc(m, (size_t) m->n_layer, sizeof *has, "the layers");
    read_common(m, d, eps_key);
    d->attn.n_head = pi__hp_u32(m, "attention.head_count", 0, PI__MAX_HEADS);
    if (d->attn.n_head) d->attn.n_head_kv = read_layers(m, "attention.head_count_kv", PI__MAX_HEADS, has);
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++) d->layers[i].no_attn = !has[i];
    if (d->attn.n_head_kv) read_head_size(m, &d->attn, &(reading) {0});
    if (d->attn.n_head_kv) read_rotated(m, d);
    set_layer_heads(m, d, (layer_heads) {0});
    d->n_ff = read_layers(m, "feed_forward_length", PI__MAX_EMBD, has);
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++) d->layers[i].no_ffn = !has[i];
    return d;
}

/* Returns the limit of a layer's activation, as in pi__lin_in: negative, as it follows the activation; 0 = none. */
static float read_limit(pi__model *m, const char *name, int32_t layer)
{
    char key[64];
    snprintf(key, sizeof key, "%s.%s", m->arch->name, name);
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    if (!kv || !pi__model_ok(m)) return 0;
    const bool array = kv->type == PI__GGUF_ARR;
    if ((array ? kv->arr_type : kv->type) != PI__GGUF_F32 || (array && kv->n < (uint64_t) m->n_layer)) {
        pi__model_refuse(m, PI_EFORMAT, "metadata %s needs a number for each of %d layers", key, m->n_layer);
        return 0;
    }
    const float limit = (float) pi__gguf_elem_f64(kv, array ? (uint64_t) layer : 0);
    if (!(limit >= 0 && limit <= 1e6f))
        pi__model_refuse(m, PI_EFORMAT, "metadata %s of layer %d is %g, expected 0 to 1e6", key, layer, (double) limit);
    return -limit;
}

void pi__dense_limits(pi__model *m, pi__dense *d)
{
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++) {
        d->layers[i].experts.limit = read_limit(m, "swiglu_clamp_exp", i);
        d->layers[i].mlp.limit = read_limit(m, "swiglu_clamp_shexp", i);
    }
}

pi__dense *pi__dense_read_latent(pi__model *m)
{
    pi__dense *d = m->arch_data;
    pi__mla_read(m, &d->mla);
    read_rest(m, d, false);
    d->mla.rot = &d->rot;
    return d;
}

static void want_attention(pi__model *m, pi__dense *d, pi__dense_layer *l, int32_t i)
{
    l->mla = d->mla;
    if (d->mla.index.n_head) l->mla.index.shared = d->own_index && !d->own_index[i];
    float **norm = l->conv.n_taps ? &l->conv.norm : l->kda.shape.n_v ? &l->kda.norm : d->mla.n_head ? &l->mla.norm
                                                                                                    : &l->attn.norm;
    if (!d->no_pre_norms && !(d->embd_norm && i == 0)) pi__declare_vec(m, norm, m->n_embd, "attn_norm.weight", i);
    if (d->layer_norms) pi__declare_vec_or_not(m, &l->attn_shift, m->n_embd, "attn_norm.bias", i);
    if (l->ssd.shape.n_v) pi__ssd_declare(m, &l->ssd, i, &d->work);
    if (l->kda.shape.n_v) pi__kda_declare(m, &l->kda, i, &d->work);
    if (l->mamba.n_channel) pi__mamba_declare(m, &l->mamba, i, &d->work);
    if (l->no_attn) return;
    if (l->conv.n_taps) pi__conv_declare(m, &l->conv, i, &d->work);
    else if (d->mla.n_head) pi__mla_declare(m, &l->mla, i, &d->work);
    else pi__attn_declare(m, &l->attn, i, &d->work);
}

static void want_feed_forward(pi__model *m, pi__dense *d, pi__dense_layer *l, int32_t i)
{
    const int64_t E = m->n_embd, L = d->experts.n_in;
    const pi__mlp own = l->mlp;
    if (l->no_ffn) return;
    const bool routed =
        d->experts.n_expert && i >= d->n_lead && (d->moe_step < 2 || (i + 1) % d->moe_step == 0) &&
        (!d->some_routed || pi__has_tensor(m, "ffn_gate_inp.weight", i));
    const float limit = l->experts.limit;
    l->mlp = (pi__mlp) {.n_ff = routed ? d->n_ff_shared : d->n_ff, .act = d->act, .fused = d->fused,
                        .ungated = d->ungated, .kind = d->kind, .limit = own.limit};
    memcpy(l->mlp.p, own.p, sizeof own.p);
    if (routed) {
        l->experts = d->experts;
        if (limit != 0) l->experts.limit = limit;
        if (m->n_used) l->experts.n_used = m->n_used;
        pi__declare_weight(m, &l->router, E, d->experts.n_expert, "ffn_gate_inp.weight", i);
        pi__experts_declare(m, &l->experts, true, i, &d->work);
    }
    if (routed && L) {
        pi__declare_weight(m, &l->latent_down, E, L, "ffn_latent_down.weight", i);
        pi__declare_weight(m, &l->latent_up, L, E, "ffn_latent_up.weight", i);
    }
    if (routed && d->gated_shared) {
        pi__declare_weight(m, &l->shared_gate, E, 1, "ffn_gate_inp_shexp.weight", i);
        d->work.n_expert = d->experts.n_expert + 1; /* plus the shared expert's gate */
    }
    if (l->mlp.n_ff) pi__mlp_declare(m, &l->mlp, routed ? "_shexp" : "", i, &d->work);
}

/* Files of Falcon-H1 and PLaMo have some norms without the suffix. */
static const char *ffn_norm_name(const pi__model *m, const pi__dense *d, int32_t i)
{
    const char *name = d->norm_post_attention_name ? "post_attention_norm.weight" : "ffn_norm.weight";
    return pi__name_of(m, "ffn_norm", name, i);
}

/* Sets the numbers of heads of a layer, and the order of its rows. */
static void set_heads(pi__model *m, const pi__dense *d, pi__attn *a, const pi__attn *own)
{
    a->n_head = own->n_head;
    a->n_head_kv = own->n_head_kv;
    if (d->interleaved_rope && (a->n_head != d->attn.n_head || a->n_head_kv != d->attn.n_head_kv))
        a->order = pi__attn_order(m, a->n_head, a->n_head_kv, a->head_dim, d->n_rot);
}

static void want_layer(pi__model *m, pi__dense *d, int32_t i)
{
    pi__dense_layer *l = &d->layers[i];
    const int64_t E = m->n_embd;
    const pi__attn own = l->attn;
    l->attn = d->attn;
    l->attn.window = own.window;
    l->attn.ahead = own.ahead;
    l->attn.rot = own.rot;
    l->attn.rel = own.rel;
    l->attn.flags |= own.flags;
    if (!d->mla.n_head) set_heads(m, d, &l->attn, &own);
    if (d->single && !l->no_ffn) pi__declare_vec(m, &l->ffn_norm, E, "attn_norm.weight", i);
    else want_attention(m, d, l, i);
    if (d->post_norms)
        pi__declare_vec(m, &l->attn.post_norm, E,
                        pi__name_of(m, "post_attention_norm", "post_attention_norm.weight", i), i);
    if (!d->no_pre_norms && !d->parallel && !d->single && !l->no_ffn)
        pi__declare_vec(m, &l->ffn_norm, E, ffn_norm_name(m, d, i), i);
    if (d->layer_norms && !d->parallel) pi__declare_vec_or_not(m, &l->ffn_shift, E, "ffn_norm.bias", i);
    want_feed_forward(m, d, l, i);
    if (d->post_norms)
        pi__declare_vec(m, &l->post_ffn_norm, E, pi__name_of(m, "post_ffw_norm", "post_ffw_norm.weight", i), i);
}

/* Declares the draft head. Does nothing if the architecture has none; pi__model_declare's caller then finds that
 * the model cannot draft. */
static void want_head(pi__model *m, pi__dense *d)
{
    if (!m->arch->draft) return;
    /* not exactly one draft head, or the converter left out its tensors */
    if (d->n_next != 1 || !pi__has_tensor(m, "nextn.eh_proj.weight", m->n_layer - 1))
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "spec-type mtp: the file has %s draft head (%s.nextn_predict_layers is %d)",
                         d->n_next > 1 ? "more than one" : "no", m->arch->name, d->n_next);
    if (!pi__model_ok(m)) return;
    want_layer(m, d, m->n_layer - 1);
    pi__nextn_declare(m, &d->next, m->n_layer - 1);
}

/* Makes the layers of the later runs, which have caches of their own. Ops may keep pointers to weights until the step
 * ends, so each run has layers of its own, too. */
static void declare_loops(pi__model *m, pi__dense *d)
{
    if (d->n_loops < 2) return;
    const int32_t n = (d->n_loops - 1) * m->n_layer;
    d->again = pi__model_calloc(m, (size_t) n, sizeof *d->again, "the layers");
    for (int32_t i = 0; i < n && pi__model_ok(m); i++) {
        const int32_t layer = i % m->n_layer;
        const pi__attn *a = &d->layers[layer].attn;
        d->again[i].attn.kv = pi__declare_kv(m, m, layer, a->window, a->n_head_kv, a->head_dim);
    }
}

/* Gives the loaded weights to the layers of the later runs. */
static void loops_loaded(pi__model *m, pi__dense *d)
{
    for (int32_t i = 0; d->again && i < (d->n_loops - 1) * m->n_layer; i++) {
        const int32_t kv = d->again[i].attn.kv;
        d->again[i] = d->layers[i % m->n_layer];
        d->again[i].attn.kv = kv;
    }
}

void pi__dense_declare(pi__model *m, pi__dense *d)
{
    const pi__attn *a = &d->attn;
    if (!d->experts.n_ff) d->experts.n_ff = d->n_ff;
    d->experts.act = d->act;
    if (!d->rot.n_rot && d->n_rot) {
        pi__rotation_declare(m, &d->rot, d->n_rot, "rope.freq_base", 1e4f, true);
        if (!d->long_rope) pi__rotation_factors(m, &d->rot, false);
        else pi__rotation_long(m, &d->rot);
    }
    if (d->interleaved_rope) d->attn.order = pi__attn_order(m, a->n_head, a->n_head_kv, a->head_dim, d->n_rot);
    pi__head_declare(m, &d->head, true);
    if (d->embd_norm) pi__declare_vec(m, &d->embd_weight, m->n_embd, "token_embd_norm.weight", PI__OF_FILE);
    if (d->embd_rms) pi__declare_ones(m, &d->embd_weight, m->n_embd);
    pi__read_trunk(m, m->n_layer - d->n_next);
    for (int32_t i = 0; i < m->n_trunk && pi__model_ok(m); i++) want_layer(m, d, i);
    declare_loops(m, d);
    if (m->with_head) want_head(m, d);
    if (d->work.max_att < d->work.max_qkv) d->work.max_att = d->work.max_qkv; /* for the logits rows' queries */
    pi__refuse_unwanted(m, ".bias");
    pi__refuse_unwanted(m, "_shexp.weight");
}

void pi__dense_loaded(pi__model *m)
{
    pi__dense *d = m->arch_data;
    pi__rotation_loaded(m, &d->rot);
    pi__rotation_loaded(m, &d->rot_local);
    loops_loaded(m, d);
}

void pi__dense_layout(pi__model *m, const pi__limits *lim, pi__arena *a)
{
    pi__dense *d = m->arch_data;
    pi__work_layout(m, &d->work, a, (size_t) lim->max_tokens);
    const size_t T = (size_t) lim->max_tokens * sizeof(float);
    d->shared = pi__arena_take(a, d->n_ff_shared || d->ssd.shape.n_v ? T * (size_t) m->n_embd : 0);
    d->latent = pi__arena_take(a, T * 2 * (size_t) d->experts.n_in);
    d->normed = pi__arena_take(a, d->layer_norms ? (size_t) lim->max_tokens * (size_t) m->n_embd * sizeof(float) : 0);
    d->head.normed = d->normed;
    pi__index_layout(m, &d->mla.index, &d->index, a, (size_t) lim->max_tokens);
    pi__temper_layout(&d->temper, a, (size_t) lim->max_tokens);
    pi__capture_layout(m, a, (size_t) lim->max_tokens);
    if (m->with_head) pi__nextn_layout(m, &d->next, lim, a);
    pi__rotation_layout(&d->rot, a, (size_t) lim->max_tokens);
    pi__rotation_layout(&d->rot_local, a, (size_t) lim->max_tokens);
}

/* s->x += norm(y + bias); norm and bias are optional, not together. */
static void add(pi__model *m, const pi__dense_layer *l, const pi__stream *s, const float *y, const float *bias)
{
    pi__op_add_norm(m->be, NULL,
                    &(pi__add_norm) {.x = s->x,
                                     .y = y,
                                     .w = l->post_ffn_norm,
                                     .bias = bias,
                                     .eps = l->attn.post_eps > 0 ? l->attn.post_eps : l->attn.eps,
                                     .scale = 1.0f,
                                     .n_rows = s->n,
                                     .n = m->n_embd});
}

/* y = output of the routed experts for `in`, with logits in d->work.routes, ld floats apart. */
static void routed_experts(pi__model *m, const pi__dense *d, const pi__dense_layer *l, const pi__lin_in *in, int64_t ld,
                           const pi__stream *s)
{
    const int64_t L = l->experts.n_in;
    float *y = d->latent + (int64_t) s->n * L;
    const pi__lin_in small = {.kind = PI__IN_PLAIN, .x = d->latent, .ldx = L}, result = {.kind = PI__IN_PLAIN, .x = y,
                                                                                        .ldx = L};
    if (!L) {
        pi__experts_forward(m, &l->experts, in, s->n, d->work.routes, ld, NULL, s->y);
        return;
    }
    pi__matmul(m, in, s->n, &l->latent_down, d->latent, L);
    pi__experts_forward(m, &l->experts, &small, s->n, d->work.routes, ld, NULL, y);
    pi__matmul(m, &result, s->n, &l->latent_up, s->y, m->n_embd);
}

/* Computes the router's logits and an ungated shared expert. */
static void ungated_shared(pi__model *m, const pi__dense *d, const pi__dense_layer *l, const pi__lin_in *in,
                           const pi__stream *s)
{
    pi__matmul(m, in, s->n, &l->router, d->work.routes, l->experts.n_expert);
    if (l->mlp.n_ff) pi__mlp_forward(m, &l->mlp, in, s->n, s->ff, d->shared);
    routed_experts(m, d, l, in, l->experts.n_expert, s);
}

/* y = output of the routed experts for `in`, plus that of a gated shared expert. d->shared = output of the shared
 * expert, if there is one. */
static void mixture(pi__model *m, const pi__dense *d, const pi__dense_layer *l, const pi__lin_in *in,
                    const pi__stream *s)
{
    const int64_t X = l->experts.n_expert, F = l->mlp.n_ff;
    const bool gated = l->shared_gate.n_out;
    const int64_t ld = gated ? X + 1 : X; /* a row of `routes`: router logits, then the shared expert's gate */
    float *gate = d->work.routes + X;
    if (l->mlp.ungated) {
        ungated_shared(m, d, l, in, s);
        return;
    }
    pi__linear all = {.in = *in, .n_rows = s->n, .n_lin = 1, .lin = {{&l->router, d->work.routes, ld}}};
    if (F) all.lin[all.n_lin++] = (pi__lin) {&l->mlp.gate, s->ff, 2 * F};
    if (F && !l->mlp.fused) all.lin[all.n_lin++] = (pi__lin) {&l->mlp.up, s->ff + F, 2 * F};
    if (gated) all.lin[all.n_lin++] = (pi__lin) {&l->shared_gate, gate, ld};
    pi__multiply(m, &all);
    routed_experts(m, d, l, in, ld, s);
    if (F) pi__mlp_down(m, &l->mlp, s->ff, s->n, d->shared);
    if (gated)
        pi__op_add_gated(m->be, NULL, &(pi__add_gated) {.y = s->y, .x = d->shared, .gate = gate, .ldg = ld,
                                                        .n_rows = s->n, .n = m->n_embd});
}

/* Returns the norm of s->x as an input of matrices. A LayerNorm is stored in d->normed. */
static pi__lin_in normed(pi__model *m, const pi__dense *d, const float *w, const float *shift, const pi__stream *s)
{
    if (!d->layer_norms || !w) return pi__normed(m, s->x, w, d->attn.eps);
    pi__layer_normed(m, &(pi__shifted_norm) {(float *) w, (float *) shift, d->attn.eps}, s->x, s->n, d->normed);
    return pi__normed(m, d->normed, NULL, 0);
}

/* s->x += norm(feed-forward of `in`); the norm is optional. */
static void feed_forward(pi__model *m, const pi__dense *d, const pi__dense_layer *l, const pi__lin_in *in,
                         const pi__stream *s)
{
    const bool routed = l->experts.n_expert;
    const bool shared = routed && l->mlp.n_ff && !l->shared_gate.n_out; /* d->shared is not yet in s->y */
    const float *bias = l->mlp.ungated ? l->mlp.down_bias : NULL;
    if (routed) mixture(m, d, l, in, s);
    else pi__mlp_forward(m, &l->mlp, in, s->n, s->ff, s->y);
    if (shared && l->post_ffn_norm) /* the norm is that of the sum */
        pi__op_add_norm(m->be, NULL,
                        &(pi__add_norm) {.x = s->y, .y = d->shared, .scale = 1.0f, .n_rows = s->n, .n = m->n_embd});
    add(m, l, s, s->y, routed ? NULL : bias);
    if (shared && !l->post_ffn_norm) add(m, l, s, d->shared, bias);
}

/* s->qkv = queries of the normed residual. Writes this step's keys and values to the cache. For a short convolution,
 * s->qkv is its result. Returns the row width of s->qkv. */
static int64_t project(pi__model *m, const pi__dense *d, const pi__dense_layer *l, const pi__stream *s)
{
    if (l->conv.n_taps) {
        pi__conv_mix(m, &l->conv, s);
        return l->conv.ld;
    }
    if (l->mla.n_head) {
        pi__mla_project(m, &l->mla, s);
    } else {
        const pi__lin_in in = normed(m, d, l->attn.norm, l->attn_shift, s);
        pi__attn_project_of(m, &l->attn, &in, s);
    }
    return l->mla.n_head ? pi__mla_width(&l->mla) : pi__attn_width(&l->attn);
}

/* s->att = attention of the queries to keys from position `first` on. Returns the row width of s->att. Does nothing for
 * a short convolution, which never is a draft head. */
static int64_t attend(pi__model *m, const pi__dense_layer *l, const pi__stream *s, int32_t first)
{
    if (l->conv.n_taps) return 0;
    if (l->mla.n_head) pi__mla_attend(m, &l->mla, s, first);
    else pi__attn_attend(m, &l->attn, s, first);
    return l->mla.n_head ? (int64_t) l->mla.n_head * l->mla.n_value : (int64_t) l->attn.n_head * l->attn.head_dim;
}

/* s->x += output projection of s->att, or of a short convolution's s->qkv. */
static void add_attention(pi__model *m, const pi__dense_layer *l, const pi__stream *s)
{
    if (l->conv.n_taps) pi__conv_output(m, &l->conv, s);
    else if (l->mla.n_head) pi__mla_output(m, &l->mla, s);
    else pi__attn_output(m, &l->attn, s);
}

/* s->x += the result of s->att, and of the feed-forward. */
static void finish_layer(pi__model *m, const pi__dense *d, const pi__dense_layer *l, const pi__stream *s)
{
    /* with `parallel`, the norm of x before attention; each row has the same bits as in project */
    const pi__lin_in same = d->parallel ? normed(m, d, l->attn.norm, l->attn_shift, s) : (pi__lin_in) {0};
    if (!l->no_attn) add_attention(m, l, s);
    if (l->no_ffn) return;
    const pi__lin_in in = d->parallel ? same : normed(m, d, l->ffn_norm, l->ffn_shift, s);
    feed_forward(m, d, l, &in, s);
}

/* s->x += y. */
static void add_mixer(pi__model *m, const pi__stream *s, const float *y)
{
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = s->x, .y = y, .scale = 1, .n_rows = s->n, .n = m->n_embd});
}

/* A layer with a Mamba-2 mixer, except for its feed-forward: alone, or beside attention. s->x += its output, and s->att
 * = attention's. last: s is narrowed to the logits rows. Returns false if the step has none. */
static bool mix_states(pi__model *m, const pi__dense *d, const pi__dense_layer *l, pi__stream *s, bool last)
{
    const pi__batch *b = s->b;
    const int64_t heads = (int64_t) l->attn.n_head * l->attn.head_dim;
    const int64_t E = m->n_embd, width = l->no_attn ? pi__ssd_width(&l->ssd) : heads;
    const pi__lin_in in = pi__normed(m, s->x, l->attn.norm, d->attn.eps);
    pi__ssd_scan(m, &l->ssd, &in, s);
    if (!l->no_attn) {
        if (!last || b->n_rows) pi__ssd_result(m, &l->ssd, s, d->shared);
        pi__attn_project_of(m, &l->attn, &in, s);
        if (last && !b->n_rows) return false;
        attend(m, l, s, 0);
    }
    if (last && !b->n_rows) return false;
    if (last) pi__stream_result_rows(m, s, width, d->work.rows);
    if (l->no_attn) pi__ssd_result(m, &l->ssd, s, s->y);
    else if (last) pi__gather_logits_rows(m, b, d->shared, E, s->y);
    add_mixer(m, s, l->no_attn || last ? s->y : d->shared);
    return true;
}

/* A layer with Kimi delta attention or a Mamba mixer, except for its feed-forward. s->x += its output. last, and the
 * result: as in mix_states. */
static bool mix_alone(pi__model *m, const pi__dense *d, const pi__dense_layer *l, pi__stream *s, bool last)
{
    const bool kda = l->kda.shape.n_v;
    const pi__lin_in in = pi__normed(m, s->x, l->attn.norm, d->attn.eps);
    if (kda) pi__kda_scan(m, &l->kda, s);
    else pi__mamba_scan(m, &l->mamba, &in, s);
    if (last && !s->b->n_rows) return false;
    if (last) pi__stream_result_rows(m, s, kda ? pi__kda_width(&l->kda) : l->mamba.n_channel, d->work.rows);
    if (kda) pi__kda_result(m, &l->kda, s, s->y);
    else pi__mamba_result(m, &l->mamba, s, s->y);
    add_mixer(m, s, s->y);
    return true;
}

/* Runs a layer. last: s is narrowed to the logits rows before what only they need. Returns false if the step ends
 * there, since it has no logits rows. */
static bool run_layer(pi__model *m, const pi__dense *d, const pi__dense_layer *l, pi__stream *s, bool last)
{
    const pi__batch *b = s->b;
    if (l->ssd.shape.n_v) {
        if (!mix_states(m, d, l, s, last)) return false;
    } else if (l->kda.shape.n_v || l->mamba.n_channel) {
        if (!mix_alone(m, d, l, s, last)) return false;
    } else if (l->no_attn) {
        if (last && !b->n_rows) return false;
        if (last) {
            pi__gather_logits_rows(m, b, s->x, m->n_embd, d->work.rows);
            s->x = d->work.rows;
            s->n = b->n_rows;
        }
    } else {
        const bool picks = l->mla.index.n_head; /* the selection is by token: s is narrowed after attention */
        const int64_t width = project(m, d, l, s);
        if (last && !b->n_rows) return false;
        if (last && !picks) pi__stream_logits_rows(m, s, width, d->work.rows);
        const int64_t results = attend(m, l, s, 0);
        if (last && picks) pi__stream_result_rows(m, s, results, d->work.rows);
    }
    finish_layer(m, d, l, s);
    return true;
}

/* Begins a later run of the layers: norms the residual stream, if the model does that. */
static void begin_loop(pi__model *m, const pi__dense *d, pi__stream *s)
{
    float *x = s->x;
    if (!d->loop_norm) return;
    pi__op_norm(m->be, NULL, &(pi__norm) {.out = s->y, .ldo = m->n_embd, .x = x, .w = d->head.output_norm,
                                          .eps = d->head.eps, .n_rows = s->n, .n = m->n_embd});
    s->x = s->y;
    s->y = x;
}

/* Runs the layers again, n_loops - 1 times. Returns as run_layer. */
static bool run_loops(pi__model *m, const pi__dense *d, pi__stream *s, bool all)
{
    const int32_t n = (d->n_loops - 1) * m->n_layer;
    for (int32_t i = 0; i < n; i++) {
        if (i % m->n_layer == 0) begin_loop(m, d, s);
        if (!run_layer(m, d, &d->again[i], s, i == n - 1 && !all)) return false;
    }
    return true;
}

void pi__dense_forward(pi__model *m, const pi__batch *b, int32_t n_layer)
{
    pi__dense *d = m->arch_data;
    pi__stream s = pi__stream_of(&d->work, b);
    /* true = all rows are needed: by bidirectional attention, the draft head or a drafter */
    const bool all = m->bidirectional || m->with_head || pi__last_captured(m) >= n_layer;
    const bool loops = d->n_loops > 1 && n_layer == m->n_layer;
    pi__head_embed(m, &d->head, b, d->embd_rms ? s.y : s.x);
    if (d->embd_rms)
        pi__op_norm(m->be, NULL, &(pi__norm) {.out = s.x, .ldo = m->n_embd, .x = s.y, .w = d->embd_weight,
                                              .eps = d->attn.eps, .n_rows = s.n, .n = m->n_embd});
    if (d->embd_norm)
        pi__op_layer_norm(
            m->be, NULL,
            &(pi__layer_norm) {.x = s.x, .w = d->embd_weight, .eps = d->attn.eps, .n_rows = s.n, .n = m->n_embd});
    pi__rotation_forward(m, &d->rot, b);
    pi__rotation_forward(m, &d->rot_local, b);
    pi__temper_forward(m, &d->temper, b);
    for (int32_t i = 0; i < n_layer; i++) {
        pi__capture(m, b, i, s.x);
        if (!run_layer(m, d, &d->layers[i], &s, i == n_layer - 1 && !all && !loops)) return;
        pi__add_deepstack(m, &s, i);
    }
    if (loops && !run_loops(m, d, &s, all)) return;
    if (!all) return;
    pi__capture(m, b, n_layer, s.x);
    pi__gather_logits_rows(m, b, s.x, m->n_embd, d->work.rows);
}

void pi__dense_draft(pi__model *m, const pi__batch *b, bool chained, float *logits)
{
    pi__dense *d = m->arch_data;
    const pi__dense_layer *l = &d->layers[m->n_layer - 1];
    pi__stream s = pi__stream_of(&d->work, b);
    pi__nextn_input(m, &d->next, &d->head, b, d->work.x, chained, s.y);
    s.x = d->next.x;
    pi__rotation_forward(m, &d->rot, b);
    pi__temper_forward(m, &d->temper, b);
    project(m, d, l, &s);
    if (!logits) return;
    const int64_t width = attend(m, l, &s, 1);
    pi__stream_result_rows(m, &s, width, d->next.pair); /* [R, E] */
    finish_layer(m, d, l, &s);
    pi__nextn_logits(m, &d->next, &d->head, s.x, s.n, logits);
}

void pi__dense_logits(pi__model *m, int32_t first, int32_t n, float *out)
{
    const pi__dense *d = m->arch_data;
    pi__head_logits(m, &d->head, d->work.rows + (size_t) first * (size_t) m->n_embd, n, out);
}

void pi__dense_hidden(pi__model *m, int32_t first, int32_t n, float *out)
{
    const pi__dense *d = m->arch_data;
    pi__head_hidden(m, &d->head, d->work.rows + (size_t) first * (size_t) m->n_embd, n, out);
}
