/* EXAONE 4.0 and the text part of 4.5 (GGUF architecture "exaone4"): dense transformers.
 *
 * The norms follow the blocks; there are none before them. Query and key heads have norms. In the 32B, three of four
 * layers have a sliding window, and the others have no RoPE. The 1.2B has neither. Draft heads ("nextn") are not
 * loaded. After "EXAONE 4.0" (arXiv 2507.11407) and the models' configurations. */
#include "model/dense.h"

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_QK_NORM;
    d->post_norms = d->no_pre_norms = true;
    d->n_next = pi__hp_u32_or(m, "nextn_predict_layers", 0, 0, (uint32_t) m->n_layer - 1);
    pi__dense_windows(m, d, 4, &d->rot, NULL);
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m)
{
    return m->n_trunk == 30 ? "1.2B" : m->n_trunk == 64 ? "32B" : NULL;
}

const pi__arch pi__arch_exaone4 = {.name = "exaone4", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
