/* gpt-oss 20B and 120B (GGUF architecture "gpt-oss"): a dense transformer with experts in all layers.
 *
 * Every second layer, from the first on, has a sliding window. Each head has a sink. The attention projections, the
 * router and the experts' matrices have biases. The activation is x * sigmoid(1.702 x) * (up + 1), of values clamped
 * to 7. Expert weights are a softmax over the selected experts. RoPE uses YaRN; its ramp between fast and slow pairs
 * is not rounded to integer pairs. The feed-forward's norm is named post_attention_norm. After the "gpt-oss-120b &
 * gpt-oss-20b Model Card" (arXiv 2508.10925) and the models' configurations. */
#include "model/dense.h"

/* Every second layer has full attention, unless attention.sliding_window_pattern gives another period or one bool per
 * layer. */
static void read_windows(pi__model *m, pi__dense *d)
{
    const char *key = "attention.sliding_window_pattern";
    const pi__gguf_kv *kv = pi__hp_array(m, key, PI__GGUF_BOOL, m->n_layer, true);
    const bool array = kv && kv->type == PI__GGUF_ARR;
    const int32_t every = array ? 1 : pi__hp_u32_or(m, key, 2, 1, PI__MAX_LAYERS);
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++) {
        const bool local = array ? pi__gguf_elem_u64(kv, (uint64_t) i) != 0 : i % every != every - 1;
        if (local) d->layers[i].attn.window = d->window;
    }
}

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 64);
    pi__experts_read(m, &d->experts, true);
    d->attn.flags = PI__ATTN_BIAS | PI__ATTN_OUT_BIAS | PI__ATTN_SINKS;
    d->norm_post_attention_name = true;
    d->act = PI__IN_SWIGLU_OAI;
    d->experts.limit = 7;
    d->experts.biases = true;
    d->n_ff = pi__hp_u32(m, "expert_feed_forward_length", 1, PI__MAX_EMBD);
    m->yarn_exact = true;
    pi__rotation_declare(m, &d->rot, d->n_rot, "rope.freq_base", 150000, true);
    read_windows(m, d);
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m) { return m->n_layer == 24 ? "20B" : m->n_layer == 36 ? "120B" : NULL; }

const pi__arch pi__arch_gpt_oss = {.name = "gpt-oss", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
