/* The encoder of T5 (GGUF architecture "t5encoder"): T5, Flan-T5, UMT5 and models that use their encoders. It produces
 * vectors, and does not generate text.
 *
 * Attention is bidirectional, without RoPE and without a factor of the scores. A score has a bias by the bucket of the
 * distance (block_rel.c). The first layer's biases serve all layers; in UMT5 each layer has its own. T5 1.0 has a
 * feed-forward with ReLU and without a gate, later models one gated by GELU. After "Exploring the Limits of Transfer
 * Learning" (arXiv 1910.10683) and "UniMax" (arXiv 2304.09151). */
#include "model/dense.h"

enum { MAX_DISTANCE = 128 /* relative_attention_max_distance of all models; not in the file */ };

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    const int32_t n_bucket = pi__hp_u32(m, "attention.relative_buckets_count", 4, 256);
    pi__rel *rel = pi__model_calloc(m, (size_t) m->n_layer, sizeof *rel, "the layers");
    m->encoder_names = true;
    if (n_bucket % 4)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata t5encoder.attention.relative_buckets_count is %d, expected a "
                         "multiple of 4", n_bucket);
    d->n_rot = 0;
    d->attn.flags = PI__ATTN_BLOCK;
    d->attn.q_scale = 1.0f;
    d->head.norm_name = "enc.output_norm.weight";
    d->ungated = !pi__has_tensor(m, "ffn_gate.weight", 0);
    d->kind = PI__ACT_RELU;
    d->act = PI__IN_GEGLU;
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++) {
        const bool own = !i || pi__has_tensor(m, "attn_rel_b.weight", i);
        pi__attn *a = &d->layers[i].attn;
        if (own) pi__rel_buckets(m, &rel[i], d->attn.n_head, n_bucket, MAX_DISTANCE, "attn_rel_b.weight", i);
        a->rel = own ? &rel[i] : d->layers[i - 1].attn.rel;
    }
    pi__dense_declare(m, d);
}

const pi__arch pi__arch_t5encoder = {.name = "t5encoder", .declare = declare, .bidirectional = true, PI__DENSE_ARCH};
