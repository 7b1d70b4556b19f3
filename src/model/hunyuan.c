/* Hunyuan 0.5B to 7B and Hunyuan A13B (GGUF architectures "hunyuan-dense", "hunyuan-moe"): dense transformers.
 *
 * Query and key heads have norms, which follow RoPE. MoE models have experts and a shared expert in all layers; the
 * weights of the selected experts sum to one. The converter has folded the models' RoPE scaling into the base. After
 * the models' configurations. */
#include "model/dense.h"

static pi__dense *read(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_QK_NORM | PI__ATTN_NORM_LAST;
    return d;
}

static void dense(pi__model *m) { pi__dense_declare(m, read(m)); }

static void moe(pi__model *m)
{
    pi__dense *d = read(m);
    pi__experts_read(m, &d->experts, true);
    d->experts.n_ff = pi__hp_u32_or(m, "expert_feed_forward_length", (uint32_t) d->n_ff, 1, PI__MAX_EMBD);
    d->n_ff_shared = pi__hp_u32_or(m, "expert_shared_feed_forward_length", (uint32_t) d->n_ff, 1, PI__MAX_EMBD);
    pi__dense_declare(m, d);
}

static const char *moe_size(const pi__model *m) { return m->n_layer == 32 ? "80B-A13B" : NULL; }

const pi__arch pi__arch_hunyuan_dense = {.name = "hunyuan-dense", .declare = dense, PI__DENSE_ARCH};
const pi__arch pi__arch_hunyuan_moe = {.name = "hunyuan-moe", .declare = moe, .size_name = moe_size, PI__DENSE_ARCH};
