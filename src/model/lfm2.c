/* LFM2 and LFM2.5 of Liquid AI, 230M to 2.6B (GGUF architecture "lfm2"), and with experts ("lfm2moe"): a dense
 * transformer in which most layers have a gated short convolution instead of attention (block_conv.c). A layer with
 * attention.head_count_kv 0 is a convolution; shortconv.l_cache is its number of taps. The layers with attention have
 * norms on heads.
 *
 * The first layers of "lfm2moe" have a feed-forward, the others experts. The router's gates are sigmoids with a
 * correction for the choice; the weights of the chosen experts are divided by their sum. Files name the norm before the
 * output token_embd_norm. After "LFM2 Technical Report" (arXiv 2511.23404) and the models' configurations. */
#include <stdio.h>

#include "model/dense.h"

enum { SIGMOID = 2 /* expert_gating_func */ };

/* Bidirectional models (embeddings) center the convolution on the token. */
static void refuse_variants(pi__model *m, const pi__dense *d)
{
    bool causal = true;
    char key[64];
    snprintf(key, sizeof key, "%s.attention.causal", m->arch->name);
    if (pi__model_ok(m)) pi__gguf_get_bool(m->g, key, &causal, true, &m->error);
    if (!causal) pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s is false: only causal models are supported", key);
    if (d->window)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.attention.sliding_window is %d: windows are not supported",
                         m->arch->name, d->window);
}

static void read_experts(pi__model *m, pi__dense *d)
{
    if (m->arch != &pi__arch_lfm2moe) return;
    pi__experts_read(m, &d->experts, true);
    pi__experts_read_router(m, &d->experts, SIGMOID, true);
    d->experts.n_ff = pi__hp_u32(m, "expert_feed_forward_length", 1, PI__MAX_EMBD);
    d->n_lead = pi__hp_u32_or(m, "leading_dense_block_count", 0, 0, (uint32_t) m->n_layer);
}

static void declare(pi__model *m)
{
    bool *attends = pi__model_calloc(m, (size_t) m->n_layer, sizeof *attends, "the layers");
    const int32_t n_taps = pi__hp_u32(m, "shortconv.l_cache", PI__MIN_CONV, PI__MAX_CONV);
    pi__dense *d = pi__dense_read_mixed(m, attends);
    refuse_variants(m, d);
    read_experts(m, d);
    const int64_t ld = (int64_t) (d->attn.n_head + 2 * d->attn.n_head_kv) * d->attn.head_dim;
    if (ld < m->n_embd)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.attention: %lld values of queries, keys and values are fewer "
                         "than embedding_length %d", m->arch->name, (long long) ld, m->n_embd);
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++)
        if (!attends[i]) d->layers[i].conv = (pi__conv) {.n_taps = n_taps, .eps = d->attn.eps, .ld = ld};
    d->attn.flags = PI__ATTN_QK_NORM;
    d->head.norm_name = "token_embd_norm.weight";
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m)
{
    const pi__dense *d = m->arch_data;
    if (d->experts.n_expert) return m->n_trunk == 24 ? "8B-A1B" : m->n_trunk == 40 ? "24B-A2B" : NULL;
    switch (d->n_ff) {
    case 2560: return "230M";
    case 4608: return "350M";
    case 6912: return "700M";
    case 8192: return "1.2B";
    case 10752: return "2.6B";
    default: return NULL;
    }
}

const pi__arch pi__arch_lfm2 = {.name = "lfm2", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
const pi__arch pi__arch_lfm2moe = {.name = "lfm2moe", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
