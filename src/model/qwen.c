/* Qwen 2 and 2.5 (GGUF architecture "qwen2"), Qwen 1.5 and 2 with experts ("qwen2moe"), Qwen 3 dense ("qwen3") and with
 * experts ("qwen3moe"): dense transformers.
 *
 * A norm before each block, SiLU-gated MLP. Qwen 2 adds biases to queries, keys and values; Qwen 3 has norms on query
 * and key heads instead. MoE models replace the MLP of each layer by experts, without a shared one; the weights of
 * the selected experts sum to one. "qwen2moe" has a shared expert with a gate, and its weights do not sum to one. After
 * the "Qwen2" and "Qwen3" technical reports (arXiv 2407.10671, 2505.09388). */
#include "model/dense.h"

static void qwen2(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_BIAS;
    pi__dense_declare(m, d);
}

static void qwen2moe(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_BIAS;
    pi__experts_read(m, &d->experts, true);
    const uint32_t each = (uint32_t) (d->n_ff / d->experts.n_used);
    d->experts.n_ff = pi__hp_u32_or(m, "expert_feed_forward_length", each, 1, PI__MAX_EMBD);
    d->experts.undivided = true;
    d->n_ff_shared = pi__hp_u32_or(m, "expert_shared_feed_forward_length", (uint32_t) d->n_ff, 1, PI__MAX_EMBD);
    d->gated_shared = true;
    pi__dense_declare(m, d);
}

static void qwen3(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 128);
    d->attn.flags = PI__ATTN_QK_NORM;
    pi__dense_declare(m, d);
}

static void qwen3moe(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 128);
    d->attn.flags = PI__ATTN_QK_NORM;
    pi__experts_read(m, &d->experts, true);
    d->n_ff = pi__hp_u32(m, "expert_feed_forward_length", 1, PI__MAX_EMBD);
    pi__dense_declare(m, d);
}

const pi__arch pi__arch_qwen2 = {.name = "qwen2", .declare = qwen2, PI__DENSE_ARCH};
const pi__arch pi__arch_qwen2moe = {.name = "qwen2moe", .declare = qwen2moe, PI__DENSE_ARCH};
const pi__arch pi__arch_qwen3 = {.name = "qwen3", .declare = qwen3, PI__DENSE_ARCH};
const pi__arch pi__arch_qwen3moe = {.name = "qwen3moe", .declare = qwen3moe, PI__DENSE_ARCH};
