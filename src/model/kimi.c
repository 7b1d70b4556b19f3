/* Models with Kimi delta attention (block_kda.c), and latent attention (block_mla.c) in every fourth layer. The file
 * has head_count_kv 0 for layers with Kimi delta attention. The first layer has a feed-forward, the others routed and
 * shared experts with sigmoid gates and a correction for the choice.
 *
 * "kimi-linear": latent attention without RoPE; rope.dimension_count is the size of the shared part of the keys.
 * Matrices of decays and gates are low-rank. After "Kimi Linear" (arXiv 2510.26692).
 *
 * "bailingmoe3": Ling 3. Latent attention with RoPE and a gate per head. Log decays lie between 0 and
 * kda.gate_lower_bound. Experts have groups. Some layers limit the activations of experts, as in Step 3.5. The draft
 * head is not run. After the models' configurations and their code. */
#include <stdio.h>

#include "model/dense.h"

static void read_experts(pi__model *m, pi__dense *d)
{
    pi__dense_read_experts(m, d);
    const int32_t shared = d->experts.n_ff * pi__hp_u32_or(m, "expert_shared_count", 1, 0, 64);
    d->n_ff_shared = pi__hp_u32_or(m, "expert_shared_feed_forward_length", (uint32_t) shared, 0, PI__MAX_EMBD);
}

/* Gives Kimi delta attention to the layers without KV heads. */
static void give_mixers(pi__model *m, pi__dense *d)
{
    int32_t *heads = pi__model_calloc(m, (size_t) m->n_layer, sizeof *heads, "the layers"), n = 0;
    pi__kda_read(m, &d->kda, d->attn.eps);
    if (heads) pi__hp_each(m, "attention.head_count_kv", 0, PI__MAX_HEADS, heads);
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++) {
        d->layers[i].no_attn = !heads[i];
        if (!heads[i]) d->layers[i].kda = d->kda;
        n += heads[i] && i < m->n_layer - d->n_next;
    }
    if (!n && pi__model_ok(m))
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.attention.head_count_kv is 0 in all layers: models without "
                         "attention are not supported", m->arch->name);
}

static void kimi_linear(pi__model *m)
{
    pi__dense *d = pi__dense_read_latent(m);
    d->mla.rot = NULL;
    read_experts(m, d);
    give_mixers(m, d);
    pi__dense_declare(m, d);
}

/* Reads the bound of log decays. */
static void read_decays(pi__model *m, pi__dense *d)
{
    bool safe = true;
    char key[64];
    snprintf(key, sizeof key, "%s.kda.safe_gate", m->arch->name);
    if (pi__model_ok(m)) pi__gguf_get_bool(m->g, key, &safe, true, &m->error);
    d->kda.min_decay = pi__hp_f32(m, "kda.gate_lower_bound");
    if (!safe) pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s is false, expected true", key);
    if (pi__model_ok(m) && !(d->kda.min_decay < 0 && d->kda.min_decay >= -100))
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.kda.gate_lower_bound is %g, expected -100 to 0, without 0",
                         m->arch->name, (double) d->kda.min_decay);
}

static void bailingmoe3(pi__model *m)
{
    pi__dense *d = pi__dense_read_latent(m);
    d->n_next = pi__hp_u32_or(m, "nextn_predict_layers", 0, 0, (uint32_t) m->n_layer - 1);
    d->n_rot = d->mla.n_rot;
    d->mla.head_gates = true;
    read_experts(m, d);
    read_decays(m, d);
    give_mixers(m, d);
    pi__dense_limits(m, d);
    pi__dense_declare(m, d);
}

static const char *kimi_size(const pi__model *m) { return m->n_trunk == 27 ? "48B-A3B" : NULL; }
static const char *bailing_size(const pi__model *m)
{
    return m->n_trunk == 24 ? "7.9B-A1.3B" : m->n_trunk == 42 ? "124B-A5.1B" : NULL;
}

const pi__arch pi__arch_kimi_linear = {.name = "kimi-linear", .declare = kimi_linear, .size_name = kimi_size,
                                       PI__DENSE_ARCH};
const pi__arch pi__arch_bailingmoe3 = {.name = "bailingmoe3", .declare = bailingmoe3, .size_name = bailing_size,
                                       PI__DENSE_ARCH};
