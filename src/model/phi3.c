/* Phi 3, 3.5, 4 and 4-mini (GGUF architecture "phi3"): a dense transformer.
 *
 * A norm before each block, silu-gated MLP; queries, keys and values are one matrix in the file, and so are gate and up. Some
 * see a window in all layers; those for long contexts rotate by LongRoPE's factors, some only part of each head. After the
 * "Phi-3 Technical Report" (arXiv 2404.14219). */
#include "model/dense.h"

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->fused = true;
    d->long_rope = pi__has_tensor(m, "rope_factors_long.weight", PI__OF_FILE);
    for (int32_t i = 0; i < m->n_layer && d->layers; i++)
        d->layers[i].attn.window = d->window < m->n_ctx_train ? d->window : 0;
    pi__dense_declare(m, d);
}

const pi__arch pi__arch_phi3 = {.name = "phi3", .declare = declare, PI__DENSE_ARCH};
