/* Llama 2 and 3.x, Mistral, Mixtral, SmolLM and their like: GGUF architecture "llama"; a dense transformer.
 *
 * A norm before each block, silu-gated MLP (or experts, in Mixtral). Rotated pairs are neighbours in the file. Llama 3.1
 * and later stretch their rotation by factors (rope_freqs.weight); Mistral 7B v0.1 sees a window in all layers. After
 * "Llama 2" (arXiv 2307.09288), "The Llama 3 Herd of Models" (2407.21783), "Mistral 7B" (2310.06825). */
#include "model/dense.h"

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->neighbours = true;
    for (int32_t i = 0; i < m->n_layer && d->layers; i++) d->layers[i].attn.window = d->window;
    pi__dense_declare(m, d);
}

const pi__arch pi__arch_llama = {.name = "llama", .declare = declare, PI__DENSE_ARCH};
