/* The dense transformer (see dense.h). Shape symbols as in blocks.h. */
#include "model/dense.h"

#include <math.h>

static void read_heads(pi__model *m, pi__attn *a, uint32_t def_head_dim)
{
    a->n_head = pi__hp_u32(m, "attention.head_count", 1, PI__MAX_HEADS);
    a->n_head_kv = pi__hp_u32_or(m, "attention.head_count_kv", (uint32_t) a->n_head, 1, PI__MAX_HEADS);
    if (!def_head_dim) def_head_dim = (uint32_t) (m->n_embd / a->n_head);
    a->head_dim = pi__hp_u32_or(m, "attention.key_length", def_head_dim, 1, PI__MAX_HEAD_DIM);
    const int32_t vdim = pi__hp_u32_or(m, "attention.value_length", (uint32_t) a->head_dim, 1, PI__MAX_HEAD_DIM);
    if (vdim != a->head_dim || a->head_dim % 16 || a->head_dim < 32)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.attention.key_length %d and value_length %d must be equal "
                         "and a multiple of 16, at least 32", m->arch->name, a->head_dim, vdim);
    if (a->n_head % a->n_head_kv)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.attention.head_count %d is not a multiple of head_count_kv %d",
                         m->arch->name, a->n_head, a->n_head_kv);
    if ((int64_t) a->n_head * a->head_dim > PI__MAX_EMBD)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.attention.head_count: %d heads of %d values are more than %d",
                         m->arch->name, a->n_head, a->head_dim, PI__MAX_EMBD);
    const float scale = pi__hp_f32_or(m, "attention.scale", 0);
    a->q_scale = scale > 0 ? scale : 1.0f / sqrtf((float) a->head_dim);
}

static void read_rest(pi__model *m, pi__dense *d)
{
    d->attn.eps = d->head.eps = pi__hp_f32(m, "attention.layer_norm_rms_epsilon");
    d->n_ff = pi__hp_u32(m, "feed_forward_length", 1, PI__MAX_EMBD);
    d->window = pi__hp_u32_or(m, "attention.sliding_window", 0, 0, 1 << 28);
    d->head.softcap = pi__hp_f32_or(m, "final_logit_softcapping", 0);
    d->head.embd_scale = 1.0f;
    d->act = PI__IN_SWIGLU;
    pi__experts_read(m, &d->experts, false);
    d->layers = pi__model_calloc(m, (size_t) m->n_layer, sizeof *d->layers, "the layers");
    for (int32_t i = 0; i < m->n_layer && d->layers; i++) d->layers[i].attn.rot = &d->rot;
}

pi__dense *pi__dense_read(pi__model *m, uint32_t def_head_dim)
{
    pi__dense *d = m->arch_data;
    read_heads(m, &d->attn, def_head_dim);
    d->n_rot = pi__hp_u32_or(m, "rope.dimension_count", (uint32_t) d->attn.head_dim, 2, (uint32_t) d->attn.head_dim);
    read_rest(m, d);
    return d;
}

pi__dense *pi__dense_read_latent(pi__model *m)
{
    pi__dense *d = m->arch_data;
    pi__mla_read(m, &d->mla);
    read_rest(m, d);
    d->mla.rot = &d->rot;
    return d;
}

static void want_attention(pi__model *m, pi__dense *d, pi__dense_layer *l, int32_t i)
{
    l->mla = d->mla;
    pi__declare_vec(m, d->mla.n_head ? &l->mla.norm : &l->attn.norm, m->n_embd, "attn_norm.weight", i);
    if (d->mla.n_head) pi__mla_declare(m, &l->mla, i, &d->work);
    else pi__attn_declare(m, &l->attn, i, &d->work);
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
    want_attention(m, d, l, i);
    if (d->post_norms) pi__declare_vec(m, &l->attn.post_norm, E, "post_attention_norm.weight", i);
    pi__declare_vec(m, &l->ffn_norm, E, d->norm_post_attention_name ? "post_attention_norm.weight" : "ffn_norm.weight",
                    i);
    const bool routed = d->experts.n_expert && i >= d->n_lead;
    l->mlp = (pi__mlp) {.n_ff = routed ? d->n_ff_shared : d->n_ff, .act = d->act, .fused = d->fused};
    if (routed) {
        l->experts = d->experts;
        if (m->n_used) l->experts.n_used = m->n_used;
        pi__declare_weight(m, &l->router, E, d->experts.n_expert, "ffn_gate_inp.weight", i);
        pi__experts_declare(m, &l->experts, true, i, &d->work);
    }
    if (l->mlp.n_ff) pi__mlp_declare(m, &l->mlp, routed ? "_shexp" : "", i, &d->work);
    if (d->post_norms) pi__declare_vec(m, &l->post_ffn_norm, E, "post_ffw_norm.weight", i);
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

void pi__dense_declare(pi__model *m, pi__dense *d)
{
    const pi__attn *a = &d->attn;
    if (!d->experts.n_ff) d->experts.n_ff = d->n_ff;
    d->experts.act = d->act;
    if (!d->rot.n_rot) {
        pi__rotation_declare(m, &d->rot, d->n_rot, "rope.freq_base", 1e4f, true);
        if (!d->long_rope) pi__rotation_factors(m, &d->rot, false);
        else pi__rotation_long(m, &d->rot);
    }
    if (d->interleaved_rope) d->attn.order = pi__attn_order(m, a->n_head, a->n_head_kv, a->head_dim, d->n_rot);
    pi__head_declare(m, &d->head, true);
    pi__read_trunk(m, m->n_layer - d->n_next);
    for (int32_t i = 0; i < m->n_trunk && pi__model_ok(m); i++) want_layer(m, d, i);
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
}

void pi__dense_layout(pi__model *m, const pi__limits *lim, pi__arena *a)
{
    pi__dense *d = m->arch_data;
    pi__work_layout(m, &d->work, a, (size_t) lim->max_tokens);
    d->shared = pi__arena_take(a, d->n_ff_shared ? (size_t) lim->max_tokens * (size_t) m->n_embd * sizeof(float) : 0);
    pi__capture_layout(m, a, (size_t) lim->max_tokens);
    if (m->with_head) pi__nextn_layout(m, &d->next, lim, a);
    pi__rotation_layout(&d->rot, a, (size_t) lim->max_tokens);
    pi__rotation_layout(&d->rot_local, a, (size_t) lim->max_tokens);
}

static void add(pi__model *m, const pi__dense_layer *l, const pi__stream *s, const float *y)
{
    pi__op_add_norm(m->be, NULL,
                    &(pi__add_norm) {.x = s->x,
                                     .y = y,
                                     .w = l->post_ffn_norm,
                                     .eps = l->attn.eps,
                                     .scale = 1.0f,
                                     .n_rows = s->n,
                                     .n = m->n_embd});
}

/* y = output of the routed experts for `in`; d->shared = output of the shared expert, if there is one. */
static void mixture(pi__model *m, const pi__dense *d, const pi__dense_layer *l, const pi__lin_in *in,
                    const pi__stream *s)
{
    const int64_t X = l->experts.n_expert, F = l->mlp.n_ff;
    const pi__linear all = {
        .in = *in,
        .n_rows = s->n,
        .n_lin = F ? 3 : 1,
        .lin = {{&l->router, d->work.routes, X}, {&l->mlp.gate, s->ff, 2 * F}, {&l->mlp.up, s->ff + F, 2 * F}}};
    pi__multiply(m, &all);
    pi__experts_forward(m, &l->experts, in, s->n, d->work.routes, X, NULL, s->y);
    if (F) pi__mlp_down(m, &l->mlp, s->ff, s->n, d->shared);
}

/* True if the device can run the layer's routed and shared experts as one op (experts_layer). */
static bool is_one_op(const pi__model *m, const pi__dense_layer *l)
{
    const pi__experts *e = &l->experts;
    if (!m->be->opt->experts_layer || m->lora || !e->n_expert || !l->mlp.n_ff || !l->mlp.up.n_out || l->post_ffn_norm)
        return false;
    return !e->gate_bias && !e->up_bias && !e->down_bias && !e->table && l->mlp.act == e->act &&
           l->mlp.limit == e->limit;
}

/* s->x += output of the routed experts for `in`, then of the shared expert. */
static void experts(pi__model *m, const pi__dense *d, const pi__dense_layer *l, const pi__lin_in *in,
                    const pi__stream *s)
{
    pi__op_experts_layer(
        m->be, NULL,
        &(pi__experts_layer) {.moe = pi__experts_args(m, &l->experts, in, s->n, NULL, l->experts.n_expert, s->y),
                              .router = &l->router,
                              .gate = &l->mlp.gate,
                              .up = &l->mlp.up,
                              .down = &l->mlp.down,
                              .logits = d->work.routes,
                              .ff = s->ff,
                              .shared = d->shared,
                              .x = s->x});
}

/* s->x += norm(feed-forward of norm(x)); the outer norm is optional. */
static void feed_forward(pi__model *m, const pi__dense *d, const pi__dense_layer *l, const pi__stream *s)
{
    const pi__lin_in in = pi__normed(m, s->x, l->ffn_norm, l->attn.eps);
    const bool routed = l->experts.n_expert;
    if (is_one_op(m, l)) {
        experts(m, d, l, &in, s);
        return;
    }
    if (routed) mixture(m, d, l, &in, s);
    else pi__mlp_forward(m, &l->mlp, &in, s->n, s->ff, s->y);
    add(m, l, s, s->y);
    if (routed && l->mlp.n_ff) add(m, l, s, d->shared);
}

/* s->qkv = queries of the normed residual. Writes this step's keys and values to the cache. Returns the row width
 * of s->qkv. */
static int64_t project(pi__model *m, const pi__dense_layer *l, const pi__stream *s)
{
    if (l->mla.n_head) pi__mla_project(m, &l->mla, s);
    else pi__attn_project(m, &l->attn, s);
    return l->mla.n_head ? pi__mla_width(&l->mla) : pi__attn_width(&l->attn);
}

/* s->att = attention of the queries to keys from position `first` on. Returns the row width of s->att. */
static int64_t attend(pi__model *m, const pi__dense_layer *l, const pi__stream *s, int32_t first)
{
    if (l->mla.n_head) pi__mla_attend(m, &l->mla, s, first);
    else pi__attn_attend(m, &l->attn, s, first);
    return l->mla.n_head ? (int64_t) l->mla.n_head * l->mla.n_value : (int64_t) l->attn.n_head * l->attn.head_dim;
}

/* s->x += output projection of s->att. */
static void add_attention(pi__model *m, const pi__dense_layer *l, const pi__stream *s)
{
    if (l->mla.n_head) pi__mla_output(m, &l->mla, s);
    else pi__attn_output(m, &l->attn, s);
}

void pi__dense_forward(pi__model *m, const pi__batch *b, int32_t n_layer)
{
    pi__dense *d = m->arch_data;
    pi__stream s = pi__stream_of(&d->work, b);
    /* true = all rows are needed: by bidirectional attention, the draft head or a drafter */
    const bool all = m->bidirectional || m->with_head || pi__last_captured(m) >= n_layer;
    pi__head_embed(m, &d->head, b, s.x);
    pi__rotation_forward(m, &d->rot, b);
    pi__rotation_forward(m, &d->rot_local, b);
    for (int32_t i = 0; i < n_layer; i++) {
        const pi__dense_layer *l = &d->layers[i];
        const bool last = i == n_layer - 1 && !all;
        pi__capture(m, b, i, s.x);
        const int64_t width = project(m, l, &s);
        if (last && !b->n_rows) return;
        if (last) pi__stream_logits_rows(m, &s, width, d->work.rows);
        attend(m, l, &s, 0);
        add_attention(m, l, &s);
        feed_forward(m, d, l, &s);
        pi__add_deepstack(m, &s, i);
    }
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
    project(m, l, &s);
    if (!logits) return;
    const int64_t width = attend(m, l, &s, 1);
    pi__stream_result_rows(m, &s, width, d->next.pair); /* [R, E] */
    add_attention(m, l, &s);
    feed_forward(m, d, l, &s);
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
