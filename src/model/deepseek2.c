/* DeepSeek V2, V2-Lite, V3 and R1, Kimi K2, GLM 4.7 Flash (GGUF architecture "deepseek2"): a dense transformer with
 * latent attention (block_mla.c). Its first layers have a feed-forward, the others routed and shared experts.
 *
 * The router's gates are a softmax (V2), or sigmoids with a correction bias for expert selection only (V3 and later).
 * If experts have groups, they are chosen from the best groups. Routing weights are used unchanged (V2) or divided by
 * their sum, then multiplied by a factor.
 *
 * With YaRN, cosines and sines are not scaled if the file gives the attention scale instead:
 * rope.scaling.yarn_log_multiplier is 0.1 * mscale_all_dim of the configuration; mscale is equal in all of these
 * models.
 *
 * Files may have a draft head ("nextn", see nextn.h) with experts after the last layer. GLM 4.7 Flash files do;
 * DeepSeek V3's converters omit it. After "DeepSeek-V2" (arXiv 2405.04434), "DeepSeek-V3" (arXiv 2412.19437) and the
 * models' configurations. */
#include <math.h>
#include <string.h>

#include "model/dense.h"

enum { SOFTMAX = 1, SIGMOID = 2 /* expert_gating_func */ };

static void read_routing(pi__model *m, pi__dense *d)
{
    pi__experts *e = &d->experts;
    pi__experts_read(m, e, true);
    const int32_t last = m->n_layer - d->n_next - 1;
    /* marks V3, in older files without the gating function */
    const bool corrected = pi__has_tensor(m, "exp_probs_b.bias", last);
    pi__experts_read_router(m, e, corrected ? SIGMOID : SOFTMAX, false);
    e->n_ff = pi__hp_u32(m, "expert_feed_forward_length", 1, PI__MAX_EMBD);
    d->n_ff_shared = e->n_ff * pi__hp_u32_or(m, "expert_shared_count", 0, 0, 64);
    d->n_lead = pi__hp_u32_or(m, "leading_dense_block_count", 0, 0, (uint32_t) m->n_layer);
    if (pi__hp_f32_or(m, "attention.temperature_scale", 0) != 0)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata deepseek2.attention.temperature_scale is not supported");
}

static bool is_stretched(pi__model *m)
{
    pi__str type = {0};
    if (pi__model_ok(m)) pi__gguf_get_str(m->g, "deepseek2.rope.scaling.type", &type, &m->error);
    return type.n == 4 && !memcmp(type.p, "yarn", 4);
}

/* Moves the attention scale for long contexts from cosines and sines into the query scale. */
static void read_scaling(pi__model *m, pi__dense *d)
{
    const float all = pi__hp_f32_or(m, "rope.scaling.yarn_log_multiplier", 0),
                s = pi__hp_f32_or(m, "rope.scaling.factor", 1);
    pi__rotation_declare(m, &d->rot, d->mla.n_rot, "rope.freq_base", 1e4f, true);
    if (!(all > 0) || !(s > 1) || !is_stretched(m)) return;
    const float f = 1 + all * logf(s);
    d->rot.mscale = pi__hp_f32_or(m, "rope.scaling.attn_factor", 1);
    d->mla.q_scale *= f * f;
}

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read_latent(m);
    d->n_next = pi__hp_u32_or(m, "nextn_predict_layers", 0, 0, (uint32_t) m->n_layer - 1);
    read_routing(m, d);
    read_scaling(m, d);
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m)
{
    switch (m->n_trunk) {
    case 27: return "16B";
    case 47: return "30B-A3B";
    case 60: return "236B";
    case 61: return m->lim.max_expert == 384 ? "1T-A32B" : "671B";
    default: return NULL;
    }
}

const pi__arch pi__arch_deepseek2 = {.name = "deepseek2", .declare = declare, .size_name = size_name, PI__DENSE_ARCH,
                                     .draft = pi__dense_draft, .draft_has_cache = true};
