/* The Mamba mixer (see block_mamba.h): a convolution of the values, then a selective scan whose time steps, B and C are
 * products of the convolved values. After "Mamba" (arXiv 2312.00752). */
#include "model/block_mamba.h"

void pi__mamba_read(pi__model *m, pi__mamba *a)
{
    const char *name = m->arch->name;
    a->n_taps = pi__hp_u32(m, "ssm.conv_kernel", PI__MIN_CONV, PI__MAX_CONV);
    a->n_state = pi__hp_u32(m, "ssm.state_size", 1, PI__MAX_HEAD_DIM);
    a->n_channel = pi__hp_u32(m, "ssm.inner_size", 1, PI__MAX_EMBD / 4);
    a->n_rank = pi__hp_u32(m, "ssm.time_step_rank", 1, PI__MAX_EMBD / 4);
    if (a->n_channel % 16 || a->n_state % 16 || a->n_state > 64 || a->n_rank % 4)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.ssm: inner_size %d must be a multiple of 16, state_size %d "
                         "must be 16, 32, 48 or 64, and time_step_rank %d a multiple of 4", name, a->n_channel,
                         a->n_state, a->n_rank);
    if (!pi__model_ok(m)) return;
    const size_t n = (size_t) a->n_state * (size_t) a->n_channel;
    int32_t *order = pi__model_calloc(m, n, sizeof *order, "the order of decays");
    for (size_t i = 0; order && i < n; i++)
        order[i] = (int32_t) (i % (size_t) a->n_channel) * a->n_state + (int32_t) (i / (size_t) a->n_channel);
    a->order = order;
}

static void declare_norms(pi__model *m, pi__mamba *a, int32_t layer)
{
    struct { float **w; const char *name; int32_t n; } norm[] = {{&a->norm_dt, "ssm_dt_norm.weight", a->n_rank},
                                                                 {&a->norm_b, "ssm_b_norm.weight", a->n_state},
                                                                 {&a->norm_c, "ssm_c_norm.weight", a->n_state}};
    for (int i = 0; i < 3 && a->norms; i++) pi__declare_vec(m, norm[i].w, norm[i].n, norm[i].name, layer);
    for (int i = 0; i < 3 && a->plain_norms; i++) pi__declare_ones(m, norm[i].w, norm[i].n);
}

/* Floats of a row of s->qkv: x, later the time steps; z; convolved x; low-rank time steps, B and C. */
static int64_t row_width(const pi__mamba *a) { return 3 * (int64_t) a->n_channel + a->n_rank + 2 * a->n_state; }

void pi__mamba_declare(pi__model *m, pi__mamba *a, int32_t layer, pi__work *w)
{
    const int64_t E = m->n_embd, C = a->n_channel, N = a->n_state, R = a->n_rank;
    const pi__state_layer scan = {.n_v = a->n_channel, .dim = a->n_state},
                          conv = {.dim = a->n_channel, .n_conv = a->n_taps};
    pi__declare_weight(m, &a->in, E, 2 * C, "ssm_in.weight", layer);
    pi__declare_table(m, &a->conv, C, a->n_taps, "ssm_conv1d.weight", layer);
    pi__declare_vec_or_not(m, &a->conv_bias, C, "ssm_conv1d.bias", layer);
    pi__declare_weight(m, &a->x, C, R + 2 * N, "ssm_x.weight", layer);
    declare_norms(m, a, layer);
    pi__declare_weight(m, &a->dt, R, C, "ssm_dt.weight", layer);
    pi__declare_vec(m, &a->dt_bias, C, "ssm_dt.bias", layer);
    pi__declare_table_gathered(m, &a->a, N * C, a->order, N, C, "ssm_a", layer);
    pi__declare_vec(m, &a->skip, C, "ssm_d", layer);
    pi__declare_weight(m, &a->out, C, E, "ssm_out.weight", layer);
    a->scan_state = pi__declare_state(m, layer, &scan);
    a->conv_state = pi__declare_state(m, layer, &conv);
    if (w->max_qkv < row_width(a)) w->max_qkv = row_width(a);
    if (w->max_att < C) w->max_att = C;
}

void pi__mamba_scan(pi__model *m, const pi__mamba *a, const pi__lin_in *in, const pi__stream *s)
{
    const int64_t C = a->n_channel, ld = row_width(a);
    float *x = s->qkv, *z = x + C, *u = z + C, *low = u + C, *dt = x;
    const pi__lin_in convolved = {.kind = PI__IN_PLAIN, .x = u, .ldx = ld};
    const pi__lin_in steps = {.kind = a->norm_dt ? PI__IN_RMSNORM : PI__IN_PLAIN, .x = low, .ldx = ld, .w = a->norm_dt,
                              .eps = a->norm_eps};
    pi__matmul(m, in, s->n, &a->in, x, ld);
    pi__op_short_conv(m->be, s->b,
                      &(pi__short_conv) {.st = &m->state[a->conv_state], .x = x, .ldx = ld, .conv = a->conv,
                                         .bias = a->conv_bias, .out = u, .ldo = ld, .plain = true});
    pi__matmul(m, &convolved, s->n, &a->x, low, ld);
    pi__matmul(m, &steps, s->n, &a->dt, dt, ld);
    const pi__scan op = {.st = &m->state[a->scan_state],
                         .x = u,
                         .ldx = ld,
                         .z = z,
                         .ldz = ld,
                         .dt = dt,
                         .ld_dt = ld,
                         .b = low + a->n_rank,
                         .c = low + a->n_rank + a->n_state,
                         .ld_bc = ld,
                         .norm_b = a->norm_b,
                         .norm_c = a->norm_c,
                         .eps = a->norm_eps,
                         .dt_bias = a->dt_bias,
                         .a = a->a,
                         .skip = a->skip,
                         .out = s->att,
                         .ldo = C};
    pi__op_scan(m->be, s->b, &op);
}

void pi__mamba_result(pi__model *m, const pi__mamba *a, const pi__stream *s, float *y)
{
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = s->att, .ldx = a->n_channel};
    pi__matmul(m, &in, s->n, &a->out, y, m->n_embd);
}
