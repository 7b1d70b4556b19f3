/* Phi 3.5 MoE (GGUF architecture "phimoe"): a dense transformer with experts in all layers, without a shared expert.
 *
 * Norms are LayerNorms. All attention matrices and the LM head have biases. The router is SparseMixer: the two experts
 * are chosen one after the other, and the weight of each is a softmax over the experts with close logits. llama.cpp
 * divides the weights by their sum, which halves the experts' output. The file has LongRoPE's factors, but not the
 * models' factor of cosines and sines. After "GRIN: GRadient-INformed MoE" (arXiv 2409.12136) and the models'
 * configurations. */
#include "model/dense.h"

/* long_mscale and short_mscale of the models' configurations */
static const float mscale = 1.243163121016122f;

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read_layered(m);
    d->attn.flags = PI__ATTN_BIAS | PI__ATTN_OUT_BIAS;
    d->head.biased = true;
    pi__experts_read(m, &d->experts, true);
    d->experts.gating = PI__GATE_SPARSEMIXER;
    d->experts.undivided = true;
    pi__rotation_declare(m, &d->rot, d->n_rot, "rope.freq_base", 1e4f, true);
    pi__rotation_long(m, &d->rot);
    if (d->rot.factor) d->rot.mscale = mscale;
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m) { return m->n_layer == 32 ? "42B-A6.6B" : NULL; }

const pi__arch pi__arch_phimoe = {.name = "phimoe", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
