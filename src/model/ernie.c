/* ERNIE 4.5 text models (GGUF architectures "ernie4_5", "ernie4_5-moe"): dense transformers.
 *
 * The file has interleaved RoPE pairs. MoE sizes have a shared expert and dense first layers. Their router is a
 * softmax. A correction bias is added for expert selection only, and the weights of the selected experts are divided by
 * their sum. After the "ERNIE 4.5 Technical Report" and the models' configurations. */
#include "model/dense.h"

static void dense(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->interleaved_rope = true;
    if (pi__has_tensor(m, "attn_output.bias", 0)) d->attn.flags |= PI__ATTN_OUT_BIAS;
    pi__dense_declare(m, d);
}

static void moe(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    pi__experts *e = &d->experts;
    d->interleaved_rope = true;
    if (pi__has_tensor(m, "attn_output.bias", 0)) d->attn.flags |= PI__ATTN_OUT_BIAS;
    pi__experts_read(m, e, true);
    e->gating = PI__GATE_SOFTMAX_CHOICE;
    e->n_ff = pi__hp_u32(m, "expert_feed_forward_length", 1, PI__MAX_EMBD);
    d->n_ff_shared = pi__hp_u32_or(m, "expert_shared_feed_forward_length", 0, 0, PI__MAX_EMBD);
    d->n_lead = pi__hp_u32_or(m, "leading_dense_block_count", 0, 0, (uint32_t) m->n_layer);
    d->moe_step = pi__hp_u32(m, "interleave_moe_layer_step", 1, PI__MAX_LAYERS);
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m)
{
    return m->n_layer == 18 ? "0.3B" : m->n_layer == 28 ? "21B-A3B" : m->n_layer == 54 ? "300B-A47B" : NULL;
}

const pi__arch pi__arch_ernie4_5 = {.name = "ernie4_5", .declare = dense, .size_name = size_name, PI__DENSE_ARCH};
const pi__arch pi__arch_ernie4_5_moe = {
    .name = "ernie4_5-moe", .declare = moe, .size_name = size_name, PI__DENSE_ARCH};
