/* PLaMo 3 (GGUF architecture "plamo3"): a dense transformer with norms before and after blocks.
 *
 * Query and key heads have norms. Seven of eight layers have a sliding window and a RoPE base of their own. YaRN
 * applies to full attention only; its pair indices are fractions, while llama.cpp rounds them. The file fuses
 * queries, keys and values into one matrix, and gate and up into another. Its norm weights include their offsets.
 * After the models' configurations. */
#include "model/dense.h"

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_QK_NORM;
    d->post_norms = d->fused = true;
    m->yarn_exact = true;
    pi__rotation_declare(m, &d->rot, d->n_rot, "rope.freq_base", 1e4f, true);
    pi__rotation_declare(m, &d->rot_local, d->n_rot, "rope.freq_base_swa", 1e4f, false);
    pi__dense_windows(m, d, 8, &d->rot_local, &d->rot);
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m) { return m->n_layer == 24 ? "2B" : NULL; }

const pi__arch pi__arch_plamo3 = {.name = "plamo3", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
