/* MiMo V2 Flash and V2.5 (GGUF architecture "mimo2"): a dense transformer. Its first layers have a feed-forward, the
 * others routed experts, without a shared one.
 *
 * Heads of values are smaller than those of queries and keys; they are padded with zeros in the cache. Values have a
 * factor, which is applied to attention's output. Part of each head is rotated. Most layers have a sliding window, and
 * with it sinks, a number of KV heads and a RoPE base of their own. Such a layer sees attention.sliding_window earlier
 * tokens and the own one, as in transformers; llama.cpp counts the own token among them. The router uses sigmoid gates.
 * A correction bias is added for expert selection only, and the weights of the selected experts are divided by their
 * sum. Draft heads ("nextn") are not loaded. After the models' cards and configurations. */
#include "model/dense.h"

static void read_windows(pi__model *m, pi__dense *d)
{
    const float base = pi__hp_f32_or(m, "rope.freq_base", 1e4f);
    d->window = pi__hp_u32(m, "attention.sliding_window", 1, 1 << 28) + 1;
    pi__rotation_declare(m, &d->rot, d->n_rot, "rope.freq_base", 1e4f, true);
    pi__rotation_declare(m, &d->rot_local, d->n_rot, "rope.freq_base_swa", base, false);
    if (!pi__has_key(m, "attention.sliding_window_pattern"))
        pi__model_refuse(m, PI_EFORMAT, "metadata mimo2.attention.sliding_window_pattern is missing");
    pi__dense_windows(m, d, 6, &d->rot_local, &d->rot);
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++)
        if (d->layers[i].attn.window || pi__has_tensor(m, "attn_sinks.weight", i))
            d->layers[i].attn.flags = PI__ATTN_SINKS;
}

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read_narrow(m);
    d->attn.out_scale = pi__hp_f32_or(m, "attention.value_scale", 0);
    if (pi__model_ok(m) && !(d->attn.out_scale >= 0 && d->attn.out_scale <= 1e6f))
        pi__model_refuse(m, PI_EFORMAT, "metadata mimo2.attention.value_scale is %g, expected 0 to 1e6",
                         (double) d->attn.out_scale);
    pi__dense_read_experts(m, d);
    d->n_next = pi__hp_u32_or(m, "nextn_predict_layers", 0, 0, (uint32_t) m->n_layer - 1);
    read_windows(m, d);
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m) { return m->n_trunk == 48 ? "310B-A15B" : NULL; }

const pi__arch pi__arch_mimo2 = {.name = "mimo2", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
