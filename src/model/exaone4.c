/* EXAONE 4.0 and the text part of 4.5 (GGUF architecture "exaone4"), K-EXAONE ("exaone-moe"): dense transformers.
 *
 * Query and key heads have norms. In EXAONE 4 the norms follow the blocks; there are none before them. In the 32B,
 * three of four layers have a sliding window, and the others have no RoPE. The 1.2B has neither.
 *
 * K-EXAONE has norms before blocks, and windows as the 32B. Its first layers have a feed-forward, the others routed
 * experts and a shared expert. The router uses sigmoid gates. A correction bias is added for expert selection only.
 *
 * Draft heads ("nextn") are not loaded. After "EXAONE 4.0" (arXiv 2507.11407) and the models' configurations. */
#include "model/dense.h"

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_QK_NORM;
    d->post_norms = d->no_pre_norms = true;
    d->n_next = pi__hp_u32_or(m, "nextn_predict_layers", 0, 0, (uint32_t) m->n_layer - 1);
    pi__dense_windows(m, d, 4, &d->rot, NULL);
    pi__dense_declare(m, d);
}

static void moe(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_QK_NORM;
    pi__dense_read_experts(m, d);
    d->n_ff_shared = pi__hp_u32_or(m, "expert_shared_feed_forward_length", (uint32_t) d->experts.n_ff, 0, PI__MAX_EMBD);
    d->n_next = pi__hp_u32_or(m, "nextn_predict_layers", 0, 0, (uint32_t) m->n_layer - 1);
    pi__hp_u32(m, "attention.sliding_window", 1, 1 << 28); /* required */
    pi__dense_windows(m, d, 4, &d->rot, NULL);
    pi__dense_declare(m, d);
}

static const char *moe_size(const pi__model *m) { return m->n_trunk == 48 ? "236B-A23B" : NULL; }

static const char *size_name(const pi__model *m)
{
    return m->n_trunk == 30 ? "1.2B" : m->n_trunk == 64 ? "32B" : NULL;
}

const pi__arch pi__arch_exaone_moe = {.name = "exaone-moe", .declare = moe, .size_name = moe_size, PI__DENSE_ARCH};
const pi__arch pi__arch_exaone4 = {.name = "exaone4", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
