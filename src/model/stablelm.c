/* StableLM 3B and StableLM 2 1.6B (GGUF architecture "stablelm"): a dense transformer.
 *
 * A LayerNorm with bias before each block, SiLU-gated MLP, part of each head rotated; StableLM 2 has biases of queries,
 * keys and values. StableLM 2 12B has parallel blocks and norms with weights per head, which are not supported. After
 * the models' configurations. */
#include "model/dense.h"

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read_layered(m);
    if (pi__has_tensor(m, "attn_q_norm.weight", 0) || !pi__has_tensor(m, "ffn_norm.weight", 0))
        pi__model_refuse(m, PI_EUNSUPPORTED, "stablelm models with parallel blocks or norms of queries (StableLM 2 "
                         "12B) are not supported");
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m) { return m->n_layer == 24 ? "1.6B" : m->n_layer == 32 ? "3B" : NULL; }

const pi__arch pi__arch_stablelm = {.name = "stablelm", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
