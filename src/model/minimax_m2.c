/* MiniMax M2 and M2.1 (GGUF architecture "minimax-m2"): a dense transformer with experts in all layers, without a
 * shared expert.
 *
 * One norm spans all query heads, another all key heads. Half of each head is rotated. The router uses sigmoid gates.
 * A correction bias is added for expert selection only, and the weights of the selected experts are divided by their
 * sum. After the models' configurations and cards. */
#include "model/dense.h"

enum { SIGMOID = 2 /* expert_gating_func */ };

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 128);
    pi__experts_read(m, &d->experts, true);
    d->attn.flags = PI__ATTN_WIDE_NORM;
    d->experts.gating = PI__GATE_SIGMOID;
    d->experts.n_ff = pi__hp_u32(m, "expert_feed_forward_length", 1, PI__MAX_EMBD);
    if (pi__hp_u32_or(m, "expert_gating_func", SIGMOID, 0, 99) != SIGMOID)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata minimax-m2.expert_gating_func is not 2 (sigmoid)");
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m) { return m->n_layer == 62 ? "230B-A10B" : NULL; }

const pi__arch pi__arch_minimax_m2 = {.name = "minimax-m2", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
