/* The gated short convolution (see blocks.h; op short_conv). The result is in s->qkv, where attention has its queries:
 * so pi__stream_logits_rows narrows both kinds of layers alike. */
#include "model/blocks.h"

void pi__conv_declare(pi__model *m, pi__conv *a, int32_t layer, pi__work *w)
{
    const int64_t E = m->n_embd;
    const pi__state_layer shape = {.dim = m->n_embd, .n_conv = a->n_taps};
    pi__declare_weight(m, &a->in, E, 3 * E, "shortconv.in_proj.weight", layer);
    pi__declare_table(m, &a->taps, E, a->n_taps, "shortconv.conv.weight", layer);
    pi__declare_weight(m, &a->out, E, E, "shortconv.out_proj.weight", layer);
    a->state = pi__declare_state(m, layer, &shape);
    if (w->max_qkv < a->ld) w->max_qkv = a->ld;
    if (w->max_att < 3 * E) w->max_att = 3 * E;
}

void pi__conv_mix(pi__model *m, const pi__conv *a, const pi__stream *s)
{
    const int64_t E = m->n_embd;
    const pi__lin_in in = pi__normed(m, s->x, a->norm, a->eps);
    const pi__short_conv conv = {.st = &m->state[a->state], .x = s->att, .ldx = 3 * E, .conv = a->taps, .out = s->qkv,
                                 .ldo = a->ld};
    pi__matmul(m, &in, s->n, &a->in, s->att, 3 * E);
    pi__op_short_conv(m->be, s->b, &conv);
}

void pi__conv_output(pi__model *m, const pi__conv *a, const pi__stream *s)
{
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = s->qkv, .ldx = a->ld};
    pi__matmul(m, &in, s->n, &a->out, s->y, m->n_embd);
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = s->x, .y = s->y, .scale = 1.0f, .n_rows = s->n, .n = m->n_embd});
}
