/* DeepSeek V2, V2-Lite, V3 and R1, Kimi K2, GLM 4.7 Flash, Mistral Large 3 (GGUF architecture "deepseek2"), Mistral
 * Small 4 ("mistral4"), DeepSeek V3.2 ("deepseek32") and GLM 5 ("glm-dsa"): a dense transformer with latent attention
 * (block_mla.c). Its first layers have a feed-forward, the others routed and shared experts.
 *
 * The router's gates are a softmax (V2), or sigmoids with a correction bias for expert selection only (V3 and later).
 * If experts have groups, they are chosen from the best groups. Routing weights are used unchanged (V2) or divided by
 * their sum, then multiplied by a factor.
 *
 * With YaRN, cosines and sines are not scaled if the file gives the attention scale instead:
 * rope.scaling.yarn_log_multiplier is 0.1 * mscale_all_dim of the configuration; mscale is equal in all of these
 * models.
 *
 * The Mistral models sharpen queries at positions after the original context (pi__temper). Converted files of Mistral
 * Small 4 lack the strength; all of its configurations have 0.1.
 *
 * In DeepSeek V3.2 and GLM 5 a token attends to the rows that an indexer selects (block_index.c). GLM 5.2 has indexers
 * in some layers only; the layers after them share the selection. Draft heads of these files are not run.
 *
 * Files may have a draft head ("nextn", see nextn.h) with experts after the last layer. GLM 4.7 Flash files do;
 * DeepSeek V3's converters omit it. After "DeepSeek-V2" (arXiv 2405.04434), "DeepSeek-V3" (arXiv 2412.19437) and the
 * models' configurations. */
#include <math.h>
#include <stdio.h>
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
    if (m->arch == &pi__arch_mistral4 && e->n_group)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata mistral4.expert_group_count is %d: groups are not supported",
                         e->n_group);
}

static bool is_stretched(pi__model *m)
{
    char key[64];
    pi__str type = {0};
    snprintf(key, sizeof key, "%s.rope.scaling.type", m->arch->name);
    if (pi__model_ok(m)) pi__gguf_get_str(m->g, key, &type, &m->error);
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

static void read_temper(pi__model *m, pi__dense *d)
{
    const char *length = "attention.temperature_length";
    if (!pi__has_key(m, length)) length = "rope.scaling.original_context_length";
    const bool small4 = m->arch == &pi__arch_mistral4 && pi__has_key(m, length);
    d->temper.temp = pi__hp_f32_or(m, "attention.temperature_scale", small4 ? 0.1f : 0);
    if (d->temper.temp == 0) return;
    d->temper.temp_len = pi__hp_u32(m, length, 1, 1 << 28);
    d->temper.n = d->mla.n_head * (d->mla.n_key + d->mla.n_rot);
    d->mla.temper = &d->temper;
}

/* Reads the layers with an indexer of their own: attention.indexer.types. GLM 5.2 files without the key are recognized
 * by their context: indexers are in layers 0, 1 and every fourth from layer 2 on. */
static void read_indexers(pi__model *m, pi__dense *d)
{
    const bool glm = m->arch == &pi__arch_glm_dsa;
    pi__index_read(m, &d->mla.index, d->mla.n_rot, glm);
    d->mla.index.work = &d->index;
    const pi__gguf_kv *types = pi__hp_array(m, "attention.indexer.types", PI__GGUF_BOOL, m->n_layer - d->n_next, false);
    if (!d->mla.rank_q)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.attention.q_lora_rank is missing: an indexer reads low-rank "
                         "queries", m->arch->name);
    if (!types && !(glm && m->n_ctx_train >= 1 << 20)) return;
    bool *own = pi__model_calloc(m, (size_t) m->n_layer, sizeof *own, "the layers");
    for (int32_t i = 0; own && i < m->n_layer - d->n_next; i++)
        own[i] = types ? pi__gguf_elem_u64(types, (uint64_t) i) != 0 : i < 2 || i % 4 == 2;
    d->own_index = own;
    if (own && !own[0])
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.attention.indexer.types is false for layer 0, expected true: no "
                         "layer before it has a selection", m->arch->name);
}

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read_latent(m);
    d->n_next = pi__hp_u32_or(m, "nextn_predict_layers", 0, 0, (uint32_t) m->n_layer - 1);
    read_routing(m, d);
    read_scaling(m, d);
    read_temper(m, d);
    if (m->arch == &pi__arch_deepseek32 || m->arch == &pi__arch_glm_dsa) read_indexers(m, d);
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m)
{
    if (m->arch == &pi__arch_glm_dsa) return m->n_trunk == 78 ? "744B-A40B" : NULL;
    if (m->arch == &pi__arch_mistral4) return m->n_trunk == 36 ? "119B-A6B" : NULL;
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
const pi__arch pi__arch_mistral4 = {.name = "mistral4", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
const pi__arch pi__arch_deepseek32 = {.name = "deepseek32", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
const pi__arch pi__arch_glm_dsa = {.name = "glm-dsa", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
