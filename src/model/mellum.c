/* Mellum 2 (GGUF architecture "mellum"): a dense transformer with experts in all layers.
 *
 * Query and key heads have norms. Three of four layers have a sliding window and a RoPE base of their own; scaling of
 * RoPE, if the file has it, applies to the other layers only. The weights of the selected experts sum to one. After the
 * model's card and configuration. */
#include "model/dense.h"

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_QK_NORM;
    pi__experts_read(m, &d->experts, true);
    d->experts.n_ff = pi__hp_u32(m, "expert_feed_forward_length", 1, PI__MAX_EMBD);
    pi__rotation_declare(m, &d->rot, d->n_rot, "rope.freq_base", 1e4f, true);
    if (d->window) {
        const float base = pi__hp_f32_or(m, "rope.freq_base", 1e4f);
        pi__rotation_declare(m, &d->rot_local, d->n_rot, "rope.freq_base_swa", base, false);
        pi__dense_windows(m, d, 4, &d->rot_local, &d->rot);
    }
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m) { return m->n_layer == 28 ? "12B-A2.5B" : NULL; }

const pi__arch pi__arch_mellum = {.name = "mellum", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
