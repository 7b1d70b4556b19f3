/* Llama 2 and 3.x, Mistral, Mixtral, SmolLM and similar models: GGUF architecture "llama"; Ministral 3: "mistral3";
 * InternLM 2 and 2.5: "internlm2"; dense transformers.
 *
 * A norm before each block, SiLU-gated MLP (or experts, in Mixtral). The file has interleaved RoPE pairs. Llama 3.1
 * and later divide RoPE frequencies by factors (rope_freqs.weight). Mistral 7B v0.1 has a sliding window in all
 * layers. Ministral 3 uses YaRN and scales queries up, in steps of the original context length. After "Llama 2"
 * (arXiv 2307.09288), "The Llama 3 Herd of Models" (2407.21783), "Mistral 7B" (2310.06825). */
#include "model/dense.h"

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->interleaved_rope = true;
    for (int32_t i = 0; i < m->n_layer && d->layers; i++) d->layers[i].attn.window = d->window;
    pi__dense_declare(m, d);
}

static void mistral3(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->interleaved_rope = true;
    d->rot.temp = pi__hp_f32_or(m, "attention.temperature_scale", 0);
    if (d->rot.temp != 0) /* the scale starts at the original context length */
        d->rot.temp_len = pi__hp_u32(m, "rope.scaling.original_context_length", 1, 1 << 28);
    if (d->rot.temp != 0 && d->n_rot != d->attn.head_dim)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata mistral3.rope.dimension_count %d must be the head size %d",
                         d->n_rot, d->attn.head_dim);
    pi__dense_declare(m, d);
}

const pi__arch pi__arch_internlm2 = {.name = "internlm2", .declare = declare, PI__DENSE_ARCH};
const pi__arch pi__arch_mistral3 = {.name = "mistral3", .declare = mistral3, PI__DENSE_ARCH};
const pi__arch pi__arch_llama = {.name = "llama", .declare = declare, PI__DENSE_ARCH};
