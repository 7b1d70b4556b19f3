/* GLM 4.5, 4.5 Air and 4.6 (GGUF architecture "glm4moe"): a dense transformer. Its first layers have a feed-forward,
 * the others routed experts and a shared expert.
 *
 * The router uses sigmoid gates. A correction bias is added for expert selection only, and the weights of the
 * selected experts are divided by their sum. Half of each head is rotated. Queries, keys and values have biases; the
 * larger sizes also have norms on heads. The feed-forward's norm is named post_attention_norm. Files may have a draft
 * head ("nextn", see nextn.h) after the last layer; its block has the layers' structure. After "GLM-4.5" (arXiv
 * 2508.06471) and the models' configurations. */
#include "model/dense.h"

enum { SIGMOID = 2 /* expert_gating_func */ };

static void read_routing(pi__model *m, pi__experts *e)
{
    pi__experts_read(m, e, true);
    e->gating = PI__GATE_SIGMOID;
    e->n_ff = pi__hp_u32(m, "expert_feed_forward_length", 1, PI__MAX_EMBD);
    const float scale = pi__hp_f32_or(m, "expert_weights_scale", 1);
    if (scale > 0) e->weights_scale = scale;
    if (pi__hp_u32_or(m, "expert_gating_func", SIGMOID, 0, 99) != SIGMOID)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata glm4moe.expert_gating_func is not 2 (sigmoid)");
    if (!pi__hp_u32_or(m, "expert_weights_norm", 1, 0, 1))
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata glm4moe.expert_weights_norm is false, which is not supported");
    if (pi__hp_u32_or(m, "expert_group_count", 1, 0, PI__MAX_EXPERTS) > 1)
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "metadata glm4moe.expert_group_count is more than 1, which is not supported");
}

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 128);
    read_routing(m, &d->experts);
    if (pi__has_tensor(m, "attn_q_norm.weight", 0)) d->attn.flags = PI__ATTN_QK_NORM;
    d->norm_post_attention_name = true;
    d->n_next = pi__hp_u32_or(m, "nextn_predict_layers", 0, 0, (uint32_t) m->n_layer - 1);
    d->n_lead = pi__hp_u32_or(m, "leading_dense_block_count", 0, 0, (uint32_t) m->n_layer);
    d->n_ff_shared = d->experts.n_ff * pi__hp_u32_or(m, "expert_shared_count", 0, 0, 64);
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m)
{
    return m->n_trunk == 46 ? "106B-A12B" : m->n_trunk == 92 ? "355B-A32B" : NULL;
}

const pi__arch pi__arch_glm4moe = {.name = "glm4moe", .declare = declare, .size_name = size_name, PI__DENSE_ARCH,
                                    .draft = pi__dense_draft, .draft_has_cache = true};
