/* SmolLM3 (GGUF architecture "smollm3"): a dense transformer.
 *
 * Like Llama, but every fourth layer has no RoPE ("NoPE"); no metadata says so. The file has interleaved RoPE pairs.
 * After the model's card and configuration. */
#include "model/dense.h"

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->interleaved_rope = true;
    for (int32_t i = 3; i < m->n_layer && d->layers; i += 4) d->layers[i].attn.rot = NULL;
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m) { return m->n_layer == 36 ? "3B" : NULL; }

const pi__arch pi__arch_smollm3 = {.name = "smollm3", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
