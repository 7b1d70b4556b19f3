/* Gemma 2 (2B, 9B, 27B): GGUF architecture "gemma2"; Gemma 1 and CodeGemma (2B, 7B): "gemma"; dense transformers.
 *
 * Gemma 1 has a norm before each block, a GELU-gated MLP and tied output. Its embeddings are multiplied by sqrt(E).
 *
 * Gemma 2 is like Gemma 3: also a norm after each block. Every second layer, from the first on, has a sliding window.
 * All layers share one RoPE. Scores and logits have a tanh softcap. The files' norm weights include the +1. After
 * "Gemma" (arXiv 2403.08295) and "Gemma 2: Improving Open Language Models at a Practical Size" (2408.00118). */
#include <math.h>

#include "model/dense.h"

static void gemma1(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 256);
    d->act = PI__IN_GEGLU;
    d->head.embd_scale = sqrtf((float) m->n_embd);
    pi__dense_declare(m, d);
}

static const char *gemma1_size(const pi__model *m)
{
    return m->n_layer == 18 ? "2B" : m->n_layer == 28 ? "7B" : NULL;
}

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 256);
    const int32_t window = pi__hp_u32_or(m, "attention.sliding_window", 4096, 1, 1 << 28);
    d->attn.softcap = pi__hp_f32_or(m, "attn_logit_softcapping", 50);
    d->head.softcap = pi__hp_f32_or(m, "final_logit_softcapping", 30);
    d->post_norms = true;
    d->act = PI__IN_GEGLU;
    d->head.embd_scale = sqrtf((float) m->n_embd);
    if (m->n_layer == 46) /* the 27B scales queries by (E / n_head)^-0.5 */
        d->attn.q_scale = 1.0f / sqrtf((float) (m->n_embd / d->attn.n_head));
    for (int32_t i = 0; i < m->n_layer && d->layers; i += 2) d->layers[i].attn.window = window;
    pi__dense_declare(m, d);
}

const pi__arch pi__arch_gemma = {.name = "gemma", .declare = gemma1, .size_name = gemma1_size, PI__DENSE_ARCH};
const pi__arch pi__arch_gemma2 = {.name = "gemma2", .declare = declare, PI__DENSE_ARCH};
