/* Phi 3, 3.5, 4 and 4-mini (GGUF architecture "phi3"): a dense transformer.
 *
 * A norm before each block, SiLU-gated MLP. The file fuses queries, keys and values into one matrix, and gate and up
 * into another. Some models have a sliding window in all layers. Long-context models use LongRoPE's factors, some on
 * only part of each head. After the "Phi-3 Technical Report" (arXiv 2404.14219). */
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
