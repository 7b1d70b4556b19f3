/* GLM-4-0414 and GLM-Z1 (GGUF architecture "glm4"): dense transformers.
 *
 * A norm before and after each block. The file stacks gate and up. Half of each head is rotated, in interleaved pairs;
 * files with rope.dimension_sections (vision models) have NeoX pairs, and text has equal positions in all sections.
 * Draft heads ("nextn") are not loaded. After the models' configurations. */
#include "model/dense.h"

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->post_norms = true;
    d->fused = true;
    d->interleaved_rope = !pi__has_key(m, "rope.dimension_sections");
    d->n_next = pi__hp_u32_or(m, "nextn_predict_layers", 0, 0, (uint32_t) m->n_layer - 1);
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m)
{
    return m->n_trunk == 40 ? "9B" : m->n_trunk == 61 ? "32B" : NULL;
}

const pi__arch pi__arch_glm4 = {.name = "glm4", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
