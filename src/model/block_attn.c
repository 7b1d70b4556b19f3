/* The attention block (see blocks.h). */
#include "model/blocks.h"

#include <math.h>

static int64_t widest(int64_t a, int64_t b) { return a > b ? a : b; }

/* q_width returns the values in a row of queries, with their gates; kv_width the values in a row of keys, or of
 * values. */
static int64_t q_width(const pi__attn *a)
{
    return (int64_t) a->n_head * a->head_dim * (a->flags & PI__ATTN_GATED ? 2 : 1);
}
static int64_t kv_width(const pi__attn *a)
{
    return a->flags & PI__ATTN_SHARED ? 0 : (int64_t) a->n_head_kv * a->head_dim;
}

/* Returns the values in a row of gates from the gates' own matrix. */
static int64_t gate_width(const pi__attn *a)
{
    if (a->flags & PI__ATTN_GATES) return (int64_t) a->n_head * a->head_dim;
    return a->flags & PI__ATTN_HEAD_GATES ? a->n_head : 0;
}
/* True if op attention applies these gates; else op gate_heads does. */
static bool gates_inside(const pi__attn *a)
{
    return a->flags & PI__ATTN_GATES && !(a->flags & PI__ATTN_SOFTPLUS);
}

/* Returns the values in a row of the input of wo. */
static int64_t out_width(const pi__attn *a)
{
    return (int64_t) a->n_head * (a->value_dim ? a->value_dim : a->head_dim);
}

int64_t pi__attn_width(const pi__attn *a) { return q_width(a) + 2 * kv_width(a) + gate_width(a); }

const int32_t *pi__attn_order(pi__model *m, int32_t n_head, int32_t n_head_kv, int32_t head_dim, int32_t n_rot)
{
    const int32_t half = n_rot / 2, n_turned = n_head + n_head_kv, n = n_turned + n_head_kv;
    int32_t *order = pi__model_calloc(m, (size_t) n * (size_t) head_dim, sizeof *order, "the order of heads");
    for (int32_t h = 0; h < n && order; h++)
        for (int32_t d = 0; d < head_dim; d++) {
            const int32_t from = h >= n_turned || d >= n_rot ? d : d < half ? 2 * d : 2 * (d - half) + 1;
            order[h * head_dim + d] = h * head_dim + from;
        }
    return order;
}

/* Declares the biases of q, k and v: all three or none. With gates between the heads there are none. */
static void want_biases(pi__model *m, pi__attn *a, int32_t layer)
{
    const int64_t Q = q_width(a), KV = kv_width(a);
    if (a->flags & PI__ATTN_GATED) return;
    if (pi__has_tensor(m, "attn_qkv.bias", layer)) {
        pi__declare_vec_rows(m, &a->qkv_bias, Q + 2 * KV, a->order, "attn_qkv.bias", layer);
        return;
    }
    if (!(a->flags & PI__ATTN_BIAS) && !pi__has_tensor(m, "attn_q.bias", layer)) return;
    pi__declare_vec_rows(m, &a->q_bias, Q, a->order, "attn_q.bias", layer);
    if (!KV) return;
    pi__declare_vec_rows(m, &a->k_bias, KV, a->order, "attn_k.bias", layer);
    pi__declare_vec(m, &a->v_bias, KV, "attn_v.bias", layer);
}

/* Returns the file row of each row of the stacked matrix, which begins with n_before rows of queries and keys. Heads of
 * values are padded with zeros to D rows, so that the cache has heads of one size. */
static const int32_t *padded_rows(pi__model *m, const pi__attn *a, int64_t n_before)
{
    const int32_t D = a->head_dim, n = a->n_head_kv * D;
    int32_t *row = pi__model_calloc(m, (size_t) (n_before + n), sizeof *row, "the order of heads");
    for (int32_t i = 0; i < n_before && row; i++) row[i] = i;
    for (int32_t i = 0; i < n && row; i++)
        row[n_before + i] = i % D < a->value_dim ? (int32_t) n_before + i / D * a->value_dim + i % D : -1;
    return row;
}

/* Declares the matrices of a layer with value_dim. */
static void want_padded(pi__model *m, pi__attn *a, int32_t n_head_kv, int32_t layer)
{
    const int64_t E = m->n_embd, Q = q_width(a), KV = kv_width(a), V = (int64_t) a->n_head_kv * a->value_dim;
    const int64_t q[3] = {Q}, kv[3] = {KV}, all[3] = {Q, KV, KV};
    if (pi__has_tensor(m, "attn_qkv.weight", layer)) {
        pi__declare_heads_of(m, &a->wqkv, E, n_head_kv, all, padded_rows(m, a, Q + KV), Q + KV + V, "attn_qkv.weight",
                             layer);
        return;
    }
    pi__declare_heads(m, &a->wq, E, n_head_kv, q, NULL, "attn_q.weight", layer);
    pi__declare_heads(m, &a->wk, E, n_head_kv, kv, NULL, "attn_k.weight", layer);
    pi__declare_heads_of(m, &a->wv, E, n_head_kv, kv, padded_rows(m, a, 0), V, "attn_v.weight", layer);
}

static void want_matrices(pi__model *m, pi__attn *a, int32_t n_head_kv, int32_t layer)
{
    const int64_t E = m->n_embd, Q = q_width(a), KV = kv_width(a);
    const int64_t q[3] = {Q}, kv[3] = {KV}, all[3] = {Q, KV, KV};
    if (a->flags & PI__ATTN_WIDE_NORM) { /* the norm spans all heads, so every device has all of q and k */
        pi__declare_weight_rows(m, &a->wq, E, Q, a->order, "attn_q.weight", layer);
        pi__declare_weight_rows(m, &a->wk, E, KV, a->order, "attn_k.weight", layer);
        pi__declare_heads(m, &a->wv, E, n_head_kv, kv, NULL, "attn_v.weight", layer);
        pi__declare_vec_rows(m, &a->q_norm, Q, a->order, "attn_q_norm.weight", layer);
        pi__declare_vec_rows(m, &a->k_norm, KV, a->order, "attn_k_norm.weight", layer);
        if (!(a->flags & PI__ATTN_WIDE_LAYER)) return;
        pi__declare_vec_rows(m, &a->q_shift, Q, a->order, "attn_q_norm.bias", layer);
        pi__declare_vec_rows(m, &a->k_shift, KV, a->order, "attn_k_norm.bias", layer);
        return;
    }
    if (KV && pi__has_tensor(m, "attn_qkv.weight", layer)) {
        pi__declare_heads(m, &a->wqkv, E, n_head_kv, all, a->order, "attn_qkv.weight", layer);
        return;
    }
    pi__declare_heads(m, &a->wq, E, n_head_kv, q, a->order, "attn_q.weight", layer);
    if (!KV) return;
    pi__declare_heads(m, &a->wk, E, n_head_kv, kv, a->order, "attn_k.weight", layer);
    if (!(a->flags & PI__ATTN_K_IS_V) || pi__has_tensor(m, "attn_v.weight", layer))
        pi__declare_heads(m, &a->wv, E, n_head_kv, kv, NULL, "attn_v.weight", layer);
}

/* Declares the matrix of the gates. Op attention reads gates by head, so their rows are divided as those of queries. */
static void want_gates(pi__model *m, pi__attn *a, int32_t n_head_kv, int32_t layer)
{
    const int64_t rows[3] = {gate_width(a)};
    if (gates_inside(a)) pi__declare_heads(m, &a->wgate, m->n_embd, n_head_kv, rows, NULL, "attn_gate.weight", layer);
    else if (rows[0]) pi__declare_weight(m, &a->wgate, m->n_embd, rows[0], "attn_gate.weight", layer);
}

void pi__attn_declare(pi__model *m, pi__attn *a, int32_t layer, pi__work *w)
{
    const bool shared = a->flags & PI__ATTN_SHARED;
    pi__model *owner = a->owner ? a->owner : m;
    if (a->head_dim % 16 || a->head_dim > PI__MAX_HEAD_DIM)
        pi__model_refuse(m, PI_EUNSUPPORTED, "%s: heads of %d values are not supported, only multiples of 16",
                         m->arch->name, a->head_dim);
    if (a->rel && a->head_dim > PI__MAX_REL_DIM)
        pi__model_refuse(m, PI_EUNSUPPORTED, "%s: heads of %d values are not supported, only up to %d values",
                         m->arch->name, a->head_dim, PI__MAX_REL_DIM);
    if (!shared) a->kv = pi__declare_kv(m, owner, layer, a->window, a->n_head_kv, a->head_dim);
    if (!pi__model_ok(m)) return;
    if (a->value_dim) want_padded(m, a, owner->kv[a->kv].n_head_kv, layer);
    else want_matrices(m, a, owner->kv[a->kv].n_head_kv, layer);
    want_gates(m, a, owner->kv[a->kv].n_head_kv, layer);
    want_biases(m, a, layer);
    if (a->flags & PI__ATTN_QK_NORM) pi__declare_vec(m, &a->q_norm, a->head_dim, "attn_q_norm.weight", layer);
    if (a->flags & PI__ATTN_QK_NORM && !shared)
        pi__declare_vec(m, &a->k_norm, a->head_dim, "attn_k_norm.weight", layer);
    pi__declare_weight(m, &a->wo, out_width(a), m->n_embd, "attn_output.weight", layer);
    if (a->flags & PI__ATTN_OUT_BIAS) pi__declare_vec(m, &a->out_bias, m->n_embd, "attn_output.bias", layer);
    if (a->flags & PI__ATTN_SINKS) pi__declare_vec(m, &a->sinks, a->n_head, "attn_sinks.weight", layer);
    w->max_qkv = widest(w->max_qkv, pi__attn_width(a));
    w->max_att = widest(w->max_att, (int64_t) a->n_head * a->head_dim);
    if (a->n_head > m->lim.max_n_head) m->lim.max_n_head = a->n_head;
    if (a->head_dim > m->lim.max_head_dim) m->lim.max_head_dim = a->head_dim;
}

void pi__attn_project(pi__model *m, const pi__attn *a, const pi__stream *s)
{
    const pi__lin_in in = pi__normed(m, s->x, a->norm, a->eps);
    pi__attn_project_of(m, a, &in, s);
}

/* out = LayerNorm of the rows of x [n, width], which is changed, after their bias. */
static void layer_norm_wide(pi__model *m, const pi__attn *a, const pi__stream *s, const pi__layer_norm *norm,
                            float *out)
{
    pi__layer_norm of = *norm;
    of.eps = a->eps;
    of.n_rows = s->n;
    pi__op_layer_norm(m->be, NULL, &of);
    pi__op_copy_2d(m->be, NULL, &(pi__copy_2d) {.x = of.x, .ldx = of.n, .n_shards = 1, .n_rows = s->n, .n = of.n,
                                                .y = out, .ldy = pi__attn_width(a)});
}

/* q, k = norms across all heads of the queries and keys in att; ld is the row stride of q and k. */
static void norm_wide(pi__model *m, const pi__attn *a, const pi__stream *s, float *q, float *k, int64_t ld)
{
    const int64_t Q = q_width(a), KV = kv_width(a);
    if (a->flags & PI__ATTN_WIDE_LAYER) {
        const float *both = a->qkv_bias, *q_bias = both ? both : a->q_bias, *k_bias = both ? both + Q : a->k_bias;
        const pi__layer_norm of_q = {.x = s->att, .b = q_bias, .w = a->q_norm, .shift = a->q_shift, .n = Q};
        const pi__layer_norm of_k = {.x = s->att + s->n * Q, .b = k_bias, .w = a->k_norm, .shift = a->k_shift, .n = KV};
        layer_norm_wide(m, a, s, &of_q, q);
        layer_norm_wide(m, a, s, &of_k, k);
        return;
    }
    pi__op_norm(m->be, NULL,
                &(pi__norm) {.out = q, .ldo = ld, .x = s->att, .w = a->q_norm, .eps = a->eps, .n_rows = s->n, .n = Q});
    pi__op_norm(m->be, NULL, &(pi__norm) {.out = k, .ldo = ld, .x = s->att + s->n * Q, .w = a->k_norm, .eps = a->eps,
                                          .n_rows = s->n, .n = KV});
}

void pi__attn_project_of(pi__model *m, const pi__attn *a, const pi__lin_in *in, const pi__stream *s)
{
    const int64_t D = a->head_dim, ld = pi__attn_width(a), Q = q_width(a), KV = kv_width(a);
    /* [n, H*D | K*D | K*D]; with PI__ATTN_GATED [n, H*(D|D) | K*D | K*D]. Gates of a matrix of their own are last. */
    float *q = s->qkv, *k = q + Q, *v = k + KV;
    const float *bias = a->qkv_bias;
    pi__linear all = {.in = *in, .n_rows = s->n, .n_lin = !KV ? 1 : a->wv.n_out ? 3 : 2,
                      .lin = {{&a->wq, q, ld}, {&a->wk, k, ld}, {&a->wv, v, ld}}};
    if (a->wqkv.n_out) all.n_lin = 1, all.lin[0].w = &a->wqkv;
    const bool wide = a->flags & PI__ATTN_WIDE_NORM, biased = a->flags & PI__ATTN_WIDE_LAYER; /* q, k have biases */
    if (wide) all.lin[0] = (pi__lin) {&a->wq, s->att, Q}, all.lin[1] = (pi__lin) {&a->wk, s->att + s->n * Q, KV};
    if (a->wgate.n_out) all.lin[all.n_lin++] = (pi__lin) {&a->wgate, q + Q + 2 * KV, ld};
    pi__multiply(m, &all);
    if (wide) norm_wide(m, a, s, q, k, ld);
    if (!a->wqkv.n_out && !a->wv.n_out) v = k; /* values are the raw keys, before norm and RoPE */

    const bool turned = a->rot && a->rot->n_freq;
    const pi__qkv prep = {.kv = &(a->owner ? a->owner : m)->kv[a->kv],
                          .q = q,
                          .ldq = ld,
                          .q_stride = a->flags & PI__ATTN_GATED ? 2 * D : 0,
                          .k = KV ? k : NULL,
                          .ldk = ld,
                          .v = KV ? v : NULL,
                          .ldv = ld,
                          .n_head = a->n_head,
                          .q_bias = biased ? NULL : bias ? bias : a->q_bias,
                          .k_bias = biased ? NULL : bias ? bias + Q : a->k_bias,
                          .v_bias = bias ? bias + Q + KV : a->v_bias,
                          .q_norm = wide ? NULL : a->q_norm,
                          .k_norm = wide ? NULL : a->k_norm,
                          .v_norm = a->flags & PI__ATTN_V_NORM,
                          .norm_last = a->flags & PI__ATTN_NORM_LAST,
                          .eps = a->eps,
                          .rope = turned ? a->rot->table : NULL,
                          .q_rope = turned ? a->rot->q_table : NULL,
                          .n_rot = turned ? 2 * a->rot->n_freq : 0,
                          .pair_stride = turned ? a->rot->n_rot / 2 : 0,
                          .q_scale = a->q_scale};
    pi__op_qkv(m->be, s->b, &prep);
}

void pi__attn_inject(pi__model *m, const pi__attn *a, const pi__lin_in *in, const pi__stream *s)
{
    const int64_t ld = 2 * kv_width(a);
    float *k = s->qkv, *v = a->wv.n_out ? k + kv_width(a) : k; /* [n, K*D | K*D] */
    const pi__linear both = {
        .in = *in, .n_rows = s->n, .n_lin = a->wv.n_out ? 2 : 1, .lin = {{&a->wk, k, ld}, {&a->wv, v, ld}}};
    pi__multiply(m, &both);
    const bool turned = a->rot && a->rot->n_freq;
    const pi__qkv prep = {.kv = &(a->owner ? a->owner : m)->kv[a->kv],
                          .k = k,
                          .ldk = ld,
                          .v = v,
                          .ldv = ld,
                          .k_bias = a->k_bias,
                          .v_bias = a->v_bias,
                          .k_norm = a->k_norm,
                          .v_norm = a->flags & PI__ATTN_V_NORM,
                          .norm_last = a->flags & PI__ATTN_NORM_LAST,
                          .eps = a->eps,
                          .rope = turned ? a->rot->table : NULL,
                          .n_rot = turned ? 2 * a->rot->n_freq : 0,
                          .pair_stride = turned ? a->rot->n_rot / 2 : 0,
                          .q_scale = 1.0f};
    pi__op_qkv(m->be, s->b, &prep);
}

/* True if tokens of an image see each other in this layer. */
static bool spans(const pi__model *m, const pi__attn *a)
{
    if (a->flags & (PI__ATTN_BLOCK | PI__ATTN_PAST)) return false;
    return m->image_spans == PI__SPANS_ALL || (m->image_spans == PI__SPANS_WINDOW && a->window);
}

void pi__attn_attend(pi__model *m, const pi__attn *a, const pi__stream *s, int32_t first)
{
    const bool gated = a->flags & PI__ATTN_GATED;
    float *gate = s->qkv + (gated ? a->head_dim : q_width(a) + 2 * kv_width(a));
    const bool all = !a->window && !first && !(a->flags & (PI__ATTN_PAST | PI__ATTN_BLOCK));
    const pi__attention att = {.kv = &(a->owner ? a->owner : m)->kv[a->kv], .q = s->qkv, .ldq = pi__attn_width(a),
                               .q_stride = gated ? 2 * a->head_dim : 0, .gate = gated || gates_inside(a) ? gate : NULL,
                               .out = s->att, .ldo = (int64_t) a->n_head * a->head_dim, .n_head = a->n_head,
                               .window = a->window, .first = first, .past = a->flags & PI__ATTN_PAST,
                               .block = a->flags & PI__ATTN_BLOCK,
                               .spans = spans(m, a), .ahead = a->ahead, .softcap = a->softcap,
                               .rel = a->rel ? a->rel->values : NULL, .n_rel = a->rel ? a->rel->n : 0,
                               .sinks = a->sinks, .sparsity = all ? m->sparsity : 0};
    pi__op_attention(m->be, s->b, &att);
    if (!gate_width(a) || gates_inside(a)) return;
    const bool each = a->flags & PI__ATTN_GATES; /* one gate per value */
    pi__op_gate_heads(m->be, NULL,
                      &(pi__gate_heads) {.x = s->att,
                                         .gate = gate,
                                         .ldg = pi__attn_width(a),
                                         .n_rows = s->n,
                                         .n_head = (int32_t) gate_width(a),
                                         .n = each ? 1 : a->head_dim,
                                         .softplus = a->flags & PI__ATTN_SOFTPLUS});
}

void pi__attn_result(pi__model *m, const pi__attn *a, const pi__stream *s)
{
    pi__lin_in in = {.kind = PI__IN_PLAIN, .x = s->att, .ldx = out_width(a)};
    if (a->value_dim) { /* removes the zeros of each head */
        pi__op_copy_2d(m->be, NULL, &(pi__copy_2d) {.x = s->att, .ldx = a->head_dim, .n_shards = 1,
                                                    .n_rows = s->n * a->n_head, .n = a->value_dim, .y = s->qkv,
                                                    .ldy = a->value_dim});
        in.x = s->qkv;
    }
    if (a->out_scale > 0)
        pi__op_scale(m->be, NULL, &(pi__scale) {.x = a->value_dim ? s->qkv : s->att, .factor = a->out_scale,
                                                .lo = -INFINITY, .hi = INFINITY, .n_rows = s->n, .n = out_width(a)});
    pi__matmul(m, &in, s->n, &a->wo, s->y, m->n_embd);
}

void pi__attn_output(pi__model *m, const pi__attn *a, const pi__stream *s)
{
    pi__attn_result(m, a, s);
    pi__op_add_norm(m->be, NULL,
                    &(pi__add_norm) {.x = s->x,
                                     .y = s->y,
                                     .w = a->post_norm,
                                     .bias = a->out_bias,
                                     .eps = a->post_eps > 0 ? a->post_eps : a->eps,
                                     .scale = 1.0f,
                                     .n_rows = s->n,
                                     .n = m->n_embd});
}
