/* Kimi delta attention (see block_kda.h): queries, keys and values with short convolutions, op gdn with a decay per
 * channel, one output matrix. After "Kimi Linear" (arXiv 2510.26692).
 *
 * A row of s->qkv is: q, k, v, decays, gates, update rates. In files with low-rank matrices (ssm_f_b, ssm_g_b), the
 * decays and gates are second products, of a row of s->ff: R values for decays, then R values for gates. */
#include "model/block_kda.h"

#include "formats/formats.h"

void pi__kda_read(pi__model *m, pi__kda *a, float eps)
{
    pi__state_layer *st = &a->shape;
    st->kda = 1;
    st->n_k = st->n_v = pi__hp_u32(m, "attention.head_count", 1, PI__MAX_HEADS);
    st->dim = pi__hp_u32(m, "kda.head_dim", 1, PI__MAX_HEAD_DIM);
    st->n_conv = pi__hp_u32(m, "ssm.conv_kernel", PI__MIN_CONV, PI__MAX_CONV);
    a->eps = eps;
    if (st->dim % 32 || st->dim > 256)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.kda.head_dim is %d, expected a multiple of 32 up to 256",
                         m->arch->name, st->dim);
    if (5 * pi__kda_width(a) + st->n_v > PI__MAX_EMBD)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.kda.head_dim: %d heads of %d values are more than %d",
                         m->arch->name, st->n_v, st->dim, PI__MAX_EMBD / 5);
}

int64_t pi__kda_width(const pi__kda *a) { return (int64_t) a->shape.n_v * a->shape.dim; }

static int64_t row_width(const pi__kda *a) { return 5 * pi__kda_width(a) + a->shape.n_v; }
static int64_t widest(int64_t a, int64_t b) { return a > b ? a : b; }

/* Declares a matrix [HD, E], or the two matrices of its low-rank product, if the file has the second one. */
static void want_product(pi__model *m, const pi__kda *a, pi__weight *first, pi__weight *second, const char *name,
                         const char *name_up, int32_t layer)
{
    const int64_t E = m->n_embd, D = a->shape.dim, HD = pi__kda_width(a);
    const bool low = pi__has_tensor(m, name_up, layer);
    pi__declare_weight(m, first, E, low ? D : HD, name, layer);
    if (low) pi__declare_weight(m, second, D, HD, name_up, layer);
}

void pi__kda_declare(pi__model *m, pi__kda *a, int32_t layer, pi__work *w)
{
    static const char *const conv[3] = {"ssm_conv1d_q.weight", "ssm_conv1d_k.weight", "ssm_conv1d_v.weight"};
    const pi__state_layer *st = &a->shape;
    const int64_t E = m->n_embd, H = st->n_v, HD = pi__kda_width(a);
    pi__declare_weight(m, &a->q, E, HD, "attn_q.weight", layer);
    pi__declare_weight(m, &a->k, E, HD, "attn_k.weight", layer);
    pi__declare_weight(m, &a->v, E, HD, "attn_v.weight", layer);
    want_product(m, a, &a->decay, &a->decay_up, "ssm_f_a.weight", "ssm_f_b.weight", layer);
    want_product(m, a, &a->gate, &a->gate_up, "ssm_g_a.weight", "ssm_g_b.weight", layer);
    pi__declare_weight(m, &a->beta, E, H, "ssm_beta.weight", layer);
    pi__declare_joined(m, &a->conv, 3, HD, st->n_conv, conv, layer);
    pi__declare_vec(m, &a->dt_bias, HD, "ssm_dt.bias", layer);
    pi__declare_table(m, &a->a, H, 1, "ssm_a", layer);
    pi__declare_vec(m, &a->head_norm, st->dim, "ssm_norm.weight", layer);
    pi__declare_weight(m, &a->out, HD, E, "attn_output.weight", layer);
    a->shape.exact = pi__type_is_float(a->q.type);
    a->state = pi__declare_state(m, layer, st);
    w->max_qkv = widest(w->max_qkv, row_width(a));
    w->max_att = widest(w->max_att, HD);
    w->max_ff = widest(w->max_ff, 2 * (int64_t) st->dim);
}

void pi__kda_scan(pi__model *m, const pi__kda *a, const pi__stream *s)
{
    const int64_t D = a->shape.dim, HD = pi__kda_width(a), ld = row_width(a);
    float *decay = s->qkv + 3 * HD, *gate = decay + HD, *beta = gate + HD, *low = s->ff;
    const bool two = a->decay_up.n_out, gated_twice = a->gate_up.n_out;
    const pi__linear all = {
        .in = pi__normed(m, s->x, a->norm, a->eps), .n_rows = s->n, .n_lin = 6,
        .lin = {{&a->q, s->qkv, ld}, {&a->k, s->qkv + HD, ld}, {&a->v, s->qkv + 2 * HD, ld}, {&a->beta, beta, ld},
                {&a->decay, two ? low : decay, two ? 2 * D : ld},
                {&a->gate, gated_twice ? low + D : gate, gated_twice ? 2 * D : ld}}};
    pi__multiply(m, &all);
    const pi__lin_in in_decay = {.kind = PI__IN_PLAIN, .x = low, .ldx = 2 * D},
                     in_gate = {.kind = PI__IN_PLAIN, .x = low + D, .ldx = 2 * D};
    if (two) pi__matmul(m, &in_decay, s->n, &a->decay_up, decay, ld);
    if (gated_twice) pi__matmul(m, &in_gate, s->n, &a->gate_up, gate, ld);
    const pi__gdn op = {.st = &m->state[a->state],
                        .qkv = s->qkv,
                        .ld_qkv = ld,
                        .z = gate,
                        .ld_z = ld,
                        .alpha = decay,
                        .beta = beta,
                        .ld_ab = ld,
                        .conv = a->conv,
                        .dt_bias = a->dt_bias,
                        .a = a->a,
                        .min_decay = a->min_decay,
                        .norm = a->head_norm,
                        .eps = a->eps,
                        .out = s->att,
                        .ldo = HD};
    pi__op_gdn(m->be, s->b, &op);
}

void pi__kda_result(pi__model *m, const pi__kda *a, const pi__stream *s, float *y)
{
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = s->att, .ldx = pi__kda_width(a)};
    pi__matmul(m, &in, s->n, &a->out, y, m->n_embd);
}
