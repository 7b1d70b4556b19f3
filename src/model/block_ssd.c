/* The Mamba-2 mixer (see block_ssd.h): one input matrix, op gdn without its delta term, one output matrix. After
 * "Transformers are SSMs" (arXiv 2405.21060).
 *
 * Rows of the input matrix in the file: gates z, values x, keys B, queries C, time steps dt, with the heads of one key
 * head adjacent. Here the rows are C, B, x, z, dt, and value head j uses key head j % G, as op gdn expects. The op
 * writes its result in the file's order, which the output matrix and the norm have. */
#include "model/block_ssd.h"

#include "formats/formats.h"

/* Fills in the orders for G key heads of N values and H value heads of P values. */
static void set_orders(pi__ssd *s, int32_t P)
{
    const pi__state_layer *st = &s->shape;
    const int32_t H = st->n_v, keys = st->n_k * st->dim, VD = H * P;
    for (int32_t i = 0; i < keys; i++) {
        s->channel[i] = VD + keys + i;
        s->channel[keys + i] = VD + i;
    }
    for (int32_t j = 0; j < H; j++) {
        s->head[j] = pi__gdn_place(st->n_k, H, true, j);
        for (int32_t d = 0; d < P; d++) {
            s->channel[2 * keys + j * P + d] = s->head[j] * P + d;
            s->row[2 * keys + VD + j * P + d] = s->head[j] * P + d;
        }
        s->row[2 * keys + 2 * VD + j] = 2 * VD + 2 * keys + s->head[j];
    }
    for (int32_t c = 0; c < 2 * keys + VD; c++) {
        s->row[c] = VD + s->channel[c];
        for (int32_t t = 0; t < st->n_conv; t++) s->tap[c * st->n_conv + t] = s->channel[c] * st->n_conv + t;
    }
}

static void make_orders(pi__model *m, pi__ssd *s)
{
    static const char what[] = "the order of heads";
    const pi__state_layer *st = &s->shape;
    const int64_t C = pi__state_channels(st), VD = pi__ssd_width(s);
    if (C + VD + st->n_v > PI__MAX_EMBD || st->n_conv > PI__MAX_CONV)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.ssm: %lld channels with %d taps are more than %d with %d",
                         m->arch->name, (long long) C, st->n_conv, PI__MAX_EMBD, PI__MAX_CONV);
    s->row = pi__model_calloc(m, (size_t) (C + VD + st->n_v), sizeof *s->row, what);
    s->channel = pi__model_calloc(m, (size_t) C, sizeof *s->channel, what);
    s->tap = pi__model_calloc(m, (size_t) C * (size_t) st->n_conv, sizeof *s->tap, what);
    s->head = pi__model_calloc(m, (size_t) st->n_v, sizeof *s->head, what);
    if (pi__model_ok(m)) set_orders(s, pi__state_dim_v(st));
}

void pi__ssd_read(pi__model *m, pi__ssd *s, float eps)
{
    pi__state_layer *st = &s->shape;
    const char *name = m->arch->name;
    st->ssd = 1;
    st->n_conv = pi__hp_u32(m, "ssm.conv_kernel", PI__MIN_CONV, 64);
    st->dim = pi__hp_u32(m, "ssm.state_size", 1, PI__MAX_HEAD_DIM);
    st->n_k = pi__hp_u32(m, "ssm.group_count", 1, PI__MAX_HEADS);
    st->n_v = pi__hp_u32(m, "ssm.time_step_rank", 1, PI__MAX_HEADS);
    const int32_t inner = pi__hp_u32(m, "ssm.inner_size", 1, PI__MAX_EMBD);
    st->dim_v = inner / st->n_v;
    s->eps = eps;
    if (st->n_v % st->n_k)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.ssm.time_step_rank %d is not a multiple of group_count %d", name,
                         st->n_v, st->n_k);
    if (inner % st->n_v)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.ssm.inner_size %d is not a multiple of time_step_rank %d", name,
                         inner, st->n_v);
    if (st->dim % 32 || st->dim > 256 || st->dim_v % 16 || st->dim_v < 16 || st->dim_v > 256)
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "metadata %s.ssm: state_size %d must be a multiple of 32 up to 256, and %d values per head "
                         "(inner_size / time_step_rank) a multiple of 16 up to 256", name, st->dim, st->dim_v);
    if (pi__model_ok(m)) make_orders(m, s);
}

int64_t pi__ssd_width(const pi__ssd *s) { return (int64_t) s->shape.n_v * pi__state_dim_v(&s->shape); }

static int64_t widest(int64_t a, int64_t b) { return a > b ? a : b; }

void pi__ssd_declare(pi__model *m, pi__ssd *s, int32_t layer, pi__work *w)
{
    const pi__state_layer *st = &s->shape;
    const int64_t E = m->n_embd, C = pi__state_channels(st), VD = pi__ssd_width(s), H = st->n_v, G = st->n_k;
    pi__declare_weight_rows(m, &s->in, E, C + VD + H, s->row, "ssm_in.weight", layer);
    pi__declare_table_at(m, &s->conv, C, st->n_conv, s->tap, "ssm_conv1d.weight", layer);
    pi__declare_vec_gathered(m, &s->conv_bias, C, s->channel, C, 1, "ssm_conv1d.bias", layer);
    pi__declare_vec_rows(m, &s->dt_bias, H, s->head, "ssm_dt.bias", layer);
    pi__declare_table_at(m, &s->a, H, 1, s->head, "ssm_a", layer);
    pi__declare_table_at(m, &s->skip, H, 1, s->head, "ssm_d", layer);
    if (!s->norm_optional || pi__has_tensor(m, "ssm_norm.weight", layer))
        pi__declare_table(m, &s->norm, G, VD / G, "ssm_norm.weight", layer);
    pi__declare_weight(m, &s->out, VD, E, "ssm_out.weight", layer);
    s->shape.exact = pi__type_is_float(s->in.type);
    s->state = pi__declare_state(m, layer, st);
    w->max_qkv = widest(w->max_qkv, C + VD + H);
    w->max_att = widest(w->max_att, VD);
}

void pi__ssd_scan(pi__model *m, const pi__ssd *a, const pi__lin_in *in, const pi__stream *s)
{
    const int64_t C = pi__state_channels(&a->shape), VD = pi__ssd_width(a), ld = C + VD + a->shape.n_v;
    float *qkv = s->qkv, *z = qkv + C, *dt = z + VD; /* [n, C | HP | H] */
    pi__matmul(m, in, s->n, &a->in, qkv, ld);
    const pi__gdn op = {.st = &m->state[a->state],
                        .qkv = qkv,
                        .ld_qkv = ld,
                        .z = z,
                        .ld_z = ld,
                        .alpha = dt,
                        .ld_ab = ld,
                        .conv = a->conv,
                        .conv_bias = a->conv_bias,
                        .dt_bias = a->dt_bias,
                        .a = a->a,
                        .skip = a->skip,
                        .norm = a->norm,
                        .eps = a->eps,
                        .out = s->att,
                        .ldo = VD,
                        .grouped = true};
    pi__op_gdn(m->be, s->b, &op);
}

void pi__ssd_result(pi__model *m, const pi__ssd *a, const pi__stream *s, float *y)
{
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = s->att, .ldx = pi__ssd_width(a)};
    pi__matmul(m, &in, s->n, &a->out, y, m->n_embd);
}
