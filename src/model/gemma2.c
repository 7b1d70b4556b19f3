/* Gemma 2 (2B, 9B, 27B): GGUF architecture "gemma2"; a dense transformer.
 *
 * Like Gemma 3: a norm before and after each block, GELU-gated MLP, tied output. Every second layer, from the first
 * on, has a sliding window. All layers share one RoPE. Scores and logits have a tanh softcap. The file's norm weights
 * include the +1. After "Gemma 2: Improving Open Language Models at a Practical Size" (arXiv 2408.00118). */
#include <math.h>

#include "model/dense.h"

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

const pi__arch pi__arch_gemma2 = {.name = "gemma2", .declare = declare, PI__DENSE_ARCH};
