/* Step 3.5 and 3.7 Flash (GGUF architecture "step35"): a dense transformer with gates of attention's heads. Its first
 * layers have a feed-forward, the others routed experts and a shared expert.
 *
 * Query and key heads have norms. Each head's output is multiplied by the sigmoid of a gate. Three of four layers have
 * a sliding window, a number of heads and a RoPE base of their own. The layers with full attention rotate half of each
 * head, and may divide the frequencies by factors (rope_freqs.weight). The router uses sigmoid gates. A correction bias
 * is added for expert selection only, and the weights of the selected experts are divided by their sum. The last layers
 * limit the activation. Draft heads ("nextn") are not loaded. After the models' cards and configurations. */
#include <stdio.h>

#include "model/dense.h"

static void read_experts(pi__model *m, pi__dense *d)
{
    pi__dense_read_experts(m, d);
    d->n_ff_shared = pi__hp_u32_or(m, "expert_shared_feed_forward_length", 0, 0, PI__MAX_EMBD);
    if (pi__hp_u32_or(m, "moe_every_n_layers", 1, 0, PI__MAX_LAYERS) > 1)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata step35.moe_every_n_layers is more than 1, expected 1");
}

/* Declares the rotations. The file has a factor for each pair of a complete head; only the first are used. */
static void read_rotations(pi__model *m, pi__dense *d)
{
    const int32_t half = d->n_rot / 2, n_factor = d->attn.head_dim / 2;
    const float base = pi__hp_f32_or(m, "rope.freq_base", 1e4f);
    pi__rotation_declare(m, &d->rot, half, "rope.freq_base", 1e4f, true);
    pi__rotation_declare(m, &d->rot_local, d->n_rot, "rope.freq_base_swa", base, false);
    pi__dense_windows(m, d, 4, &d->rot_local, &d->rot);
    if (!pi__has_tensor(m, "rope_freqs.weight", PI__OF_FILE)) return;
    d->rot.factor = pi__model_calloc(m, (size_t) n_factor, sizeof *d->rot.factor, "rope frequencies");
    d->rot.factor_name = "rope_freqs.weight";
    pi__declare_host(m, d->rot.factor, n_factor, d->rot.factor_name, PI__OF_FILE);
}

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 128);
    read_experts(m, d);
    d->n_next = pi__hp_u32_or(m, "nextn_predict_layers", 0, 0, (uint32_t) m->n_layer - 1);
    d->attn.flags = PI__ATTN_HEAD_GATES;
    if (pi__has_tensor(m, "attn_q_norm.weight", 0)) d->attn.flags |= PI__ATTN_QK_NORM;
    pi__hp_u32(m, "attention.sliding_window", 1, 1 << 28); /* required */
    d->full_first = true;
    read_rotations(m, d);
    pi__dense_limits(m, d);
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m) { return m->n_trunk == 45 ? "196B-A11B" : NULL; }

const pi__arch pi__arch_step35 = {.name = "step35", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
