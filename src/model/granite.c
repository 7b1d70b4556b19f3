/* Granite 3.x and Granite 4: GGUF architectures "granite" and "granitemoe" without Mamba layers, "granitehybrid" with
 * Mamba-2 mixers instead of attention in most layers, "granite_swa" with windows. MiniCPM 1 and 2 ("minicpm"). All
 * have multipliers.
 *
 * Embeddings are multiplied by e, block outputs by r, and logits are divided by l. The residual stream is
 *
 *     x = e * embedding + r * y1 + r * y2 + ...       logits = output(norm(x)) / l
 *
 * This implementation stores x / r: embeddings are multiplied by e / r, and blocks add their outputs unscaled. Only
 * norms read the stream, and they are scale-invariant except for eps, which becomes eps / r^2. The norm inside a
 * Mamba-2 mixer reads the mixer's own values and keeps eps. The divisor l is folded into a copy of the last norm's
 * weights. So no op needs a multiplier; attention's multiplier is the query scale. The file has interleaved RoPE pairs;
 * some models have no RoPE. MoE sizes may have a shared expert.
 *
 * "granite_swa" has windows in three of four layers and sinks in all heads. Single layers may have no RoPE. Its MoE
 * sizes stack gate and up. After "Granite 3.0 Language Models" and the models' configurations. */
#include <math.h>

#include "model/dense.h"

/* Reads a positive multiplier. The range ensures that its square does not overflow F32. */
static float multiplier(pi__model *m, const char *name, float def)
{
    const float f = pi__hp_f32_or(m, name, def);
    if (pi__model_ok(m) && !(f >= 1e-6f && f <= 1e6f))
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.%s is %g, expected 1e-6 to 1e6", m->arch->name, name, (double) f);
    return pi__model_ok(m) ? f : 1;
}

/* Reads the multipliers. embedding, residual, logit: their defaults. */
static void read_multipliers(pi__model *m, pi__dense *d, float embedding, float residual, float logit)
{
    const float added = multiplier(m, "residual_scale", residual);
    d->interleaved_rope = true;
    d->head.embd_scale = multiplier(m, "embedding_scale", embedding) / added;
    d->head.logit_scale = 1 / multiplier(m, "logit_scale", logit);
    d->attn.eps = d->head.eps = d->attn.eps / (added * added);
}

/* Older files have no multipliers; the defaults are those of MiniCPM 1B and 2B. */
static void minicpm(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    read_multipliers(m, d, 12, 1.4f / sqrtf((float) m->n_layer), (float) m->n_embd / 256);
    d->long_rope = pi__has_tensor(m, "rope_factors_long.weight", PI__OF_FILE);
    pi__dense_declare(m, d);
}

static void declare_granite(pi__model *m, pi__dense *d)
{
    read_multipliers(m, d, 1, 1, 1);
    if (pi__has_tensor(m, "attn_output.bias", 0)) d->attn.flags |= PI__ATTN_OUT_BIAS;
    if (d->experts.n_expert) d->n_ff_shared = pi__hp_u32_or(m, "expert_shared_feed_forward_length", 0, 0, PI__MAX_EMBD);
    const bool turned = pi__hp_u32_or(m, "rope.scaling.finetuned", 1, 0, 1);
    for (int32_t i = 0; i < m->n_layer && d->layers && !turned; i++) d->layers[i].attn.rot = NULL;
    pi__dense_declare(m, d);
}

static void declare(pi__model *m) { declare_granite(m, pi__dense_read(m, 0)); }

static void hybrid(pi__model *m)
{
    pi__dense *d = pi__dense_read_hybrid(m, "attention.layer_norm_rms_epsilon");
    pi__ssd_read(m, &d->ssd, d->attn.eps);
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++)
        if (d->layers[i].no_attn) d->layers[i].ssd = d->ssd;
    declare_granite(m, d);
}

/* Removes RoPE from the layers for which attention.rope_pattern has 0, if the file has that key. */
static void read_rope_pattern(pi__model *m, pi__dense *d)
{
    const pi__gguf_kv *kv = pi__hp_array(m, "attention.rope_pattern", PI__GGUF_BOOL, m->n_layer, false);
    for (int32_t i = 0; i < m->n_layer && kv && pi__model_ok(m); i++)
        if (!pi__gguf_elem_u64(kv, (uint64_t) i)) d->layers[i].attn.rot = NULL;
}

static void swa(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    read_multipliers(m, d, 1, 1, 1);
    d->attn.flags = PI__ATTN_SINKS;
    if (pi__has_tensor(m, "attn_output.bias", 0)) d->attn.flags |= PI__ATTN_OUT_BIAS;
    if (d->experts.n_expert) d->n_ff_shared = pi__hp_u32_or(m, "expert_shared_feed_forward_length", 0, 0, PI__MAX_EMBD);
    d->fused = d->experts.n_expert;
    d->full_first = true;
    pi__hp_u32(m, "attention.sliding_window", 1, 1 << 28); /* required */
    pi__dense_windows(m, d, 4, &d->rot, &d->rot);
    read_rope_pattern(m, d);
    pi__dense_declare(m, d);
}

const pi__arch pi__arch_granite = {.name = "granite", .declare = declare, PI__DENSE_ARCH};
const pi__arch pi__arch_granitehybrid = {.name = "granitehybrid", .declare = hybrid, PI__DENSE_ARCH};
const pi__arch pi__arch_minicpm = {.name = "minicpm", .declare = minicpm, PI__DENSE_ARCH};
const pi__arch pi__arch_granitemoe = {.name = "granitemoe", .declare = declare, PI__DENSE_ARCH};
const pi__arch pi__arch_granite_swa = {.name = "granite_swa", .declare = swa, PI__DENSE_ARCH};
