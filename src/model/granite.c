/* Granite 3.x and the dense and MoE sizes of Granite 4 without Mamba layers (GGUF architectures "granite", "granitemoe"): dense
 * transformers whose parts have multipliers.
 *
 * With embeddings times e, what each block adds times r and logits over l, the residual stream is
 *
 *     x = e * embedding + r * y1 + r * y2 + ...       logits = output(norm(x)) / l
 *
 * Here the stream is x / r: embeddings are times e / r, blocks add what they give, and since only norms read the stream,
 * which divide by its size, all that changes is their eps, which is over r squared. The logits' divisor is in a copy of the last
 * norm's weights. So no op knows of any multiplier; that of attention is the queries' scale. Rotated pairs are neighbours in the
 * file; some models have no rotation. Experts may have a shared one beside them. After "Granite 3.0 Language Models" and the
 * models' configurations. */
#include "model/dense.h"

/* A multiplier that must be positive, and not so far from 1 that a square of it leaves F32. */
static float multiplier(pi__model *m, const char *name)
{
    const float f = pi__hp_f32_or(m, name, 1);
    if (pi__model_ok(m) && !(f >= 1e-6f && f <= 1e6f))
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.%s is %g, expected 1e-6 to 1e6", m->arch->name, name, (double) f);
    return pi__model_ok(m) ? f : 1;
}

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    const float added = multiplier(m, "residual_scale");
    d->neighbours = true;
    d->head.embd_scale = multiplier(m, "embedding_scale") / added;
    d->head.logit_scale = 1 / multiplier(m, "logit_scale");
    d->attn.eps = d->head.eps = d->attn.eps / (added * added);
    if (pi__has_tensor(m, "attn_output.bias", 0)) d->attn.flags |= PI__ATTN_OUT_BIAS;
    if (d->experts.n_expert) d->n_ff_shared = pi__hp_u32_or(m, "expert_shared_feed_forward_length", 0, 0, PI__MAX_EMBD);
    const bool turned = pi__hp_u32_or(m, "rope.scaling.finetuned", 1, 0, 1);
    for (int32_t i = 0; i < m->n_layer && d->layers && !turned; i++) d->layers[i].attn.rot = NULL;
    pi__dense_declare(m, d);
}

const pi__arch pi__arch_granite = {.name = "granite", .declare = declare, PI__DENSE_ARCH};
const pi__arch pi__arch_granitemoe = {.name = "granitemoe", .declare = declare, PI__DENSE_ARCH};
