/* Qwen 2 and 2.5 (GGUF architecture "qwen2"), Qwen 1.5 and 2 with experts ("qwen2moe"), Qwen 3 dense ("qwen3") and with
 * experts ("qwen3moe"): dense transformers. Also the text models of Qwen 2-VL and 2.5-VL ("qwen2vl") and of Qwen 3-VL
 * ("qwen3vl", "qwen3vlmoe").
 *
 * A norm before each block, SiLU-gated MLP. Qwen 2 adds biases to queries, keys and values; Qwen 3 has norms on query
 * and key heads instead. MoE models replace the MLP of each layer by experts, without a shared one; the weights of
 * the selected experts sum to one. "qwen2moe" has a shared expert with a gate, and its weights do not sum to one. The
 * VL models have M-RoPE: tokens of an image have a time, a row and a column. Qwen 3-VL adds rows of an image
 * (DeepStack) to the residual stream after its first layers. After the "Qwen2" and "Qwen3" technical reports (arXiv
 * 2407.10671, 2505.09388) and the models' configurations. */
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

/* Reads the rotation of a VL model, and the number of layers with DeepStack rows. */
static void read_vision(pi__model *m, pi__dense *d, bool interleaved)
{
    pi__rotation_declare(m, &d->rot, d->n_rot, "rope.freq_base", 1e4f, true);
    pi__rotation_sections(m, &d->rot, interleaved, true);
    m->n_deepstack = pi__hp_u32_or(m, "n_deepstack_layers", 0, 0, (uint32_t) m->n_layer);
}

static void qwen2vl(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_BIAS;
    read_vision(m, d, false);
    pi__dense_declare(m, d);
}

static pi__dense *qwen3_of(pi__model *m, bool experts)
{
    pi__dense *d = pi__dense_read(m, 128);
    d->attn.flags = PI__ATTN_QK_NORM;
    if (!experts) return d;
    pi__experts_read(m, &d->experts, true);
    d->n_ff = pi__hp_u32(m, "expert_feed_forward_length", 1, PI__MAX_EMBD);
    return d;
}

static void qwen3(pi__model *m) { pi__dense_declare(m, qwen3_of(m, false)); }
static void qwen3moe(pi__model *m) { pi__dense_declare(m, qwen3_of(m, true)); }

static void qwen3vl(pi__model *m)
{
    pi__dense *d = qwen3_of(m, m->arch == &pi__arch_qwen3vlmoe);
    read_vision(m, d, true);
    pi__dense_declare(m, d);
}

const pi__arch pi__arch_qwen2 = {.name = "qwen2", .declare = qwen2, PI__DENSE_ARCH};
const pi__arch pi__arch_qwen2moe = {.name = "qwen2moe", .declare = qwen2moe, PI__DENSE_ARCH};
const pi__arch pi__arch_qwen3 = {.name = "qwen3", .declare = qwen3, PI__DENSE_ARCH};
const pi__arch pi__arch_qwen3moe = {.name = "qwen3moe", .declare = qwen3moe, PI__DENSE_ARCH};
const pi__arch pi__arch_qwen2vl = {.name = "qwen2vl", .declare = qwen2vl, PI__DENSE_ARCH};
const pi__arch pi__arch_qwen3vl = {.name = "qwen3vl", .declare = qwen3vl, PI__DENSE_ARCH};
const pi__arch pi__arch_qwen3vlmoe = {.name = "qwen3vlmoe", .declare = qwen3vl, PI__DENSE_ARCH};
