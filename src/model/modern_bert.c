/* Encoders with norms before blocks: ModernBERT and derived models (GGUF architecture "modern-bert"), EuroBERT
 * ("eurobert"). They produce vectors and scores, and do not generate text.
 *
 * ModernBERT has LayerNorms without bias; one follows the embeddings, and none is before the first attention. Every
 * third layer from the first on has full attention. The others have a window, half of it on each side, and a RoPE base
 * of their own. The file stacks gate and up. EuroBERT is Llama with bidirectional attention. After "Smarter, Better,
 * Faster, Longer" (arXiv 2412.13663) and "EuroBERT" (arXiv 2503.05500). */
#include <string.h>

#include "model/dense.h"

/* Reads the activation of the feed-forward, by the name in transformers; default: GELU. */
static int read_activation(pi__model *m)
{
    static const struct {
        const char *name;
        int act;
    } known[] = {{"gelu", PI__IN_GEGLU_ERF}, {"gelu_pytorch_tanh", PI__IN_GEGLU}, {"silu", PI__IN_SWIGLU}};
    pi__str s = {0};
    if (pi__model_ok(m)) pi__gguf_get_str(m->g, "modern-bert.hidden_activation", &s, &m->error);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!s.p || (s.n == strlen(known[i].name) && !memcmp(s.p, known[i].name, s.n))) return known[i].act;
    pi__model_refuse(m, PI_EUNSUPPORTED, "metadata modern-bert.hidden_activation is \"%.*s\", expected gelu, "
                     "gelu_pytorch_tanh or silu", (int) (s.n < 40 ? s.n : 40), s.p ? s.p : "");
    return PI__IN_GEGLU_ERF;
}

static void modern(pi__model *m)
{
    pi__dense *d = pi__dense_read_layered(m);
    d->attn.flags = PI__ATTN_BLOCK;
    d->embd_norm = true;
    d->fused = true;
    d->act = read_activation(m);
    pi__rotation_declare(m, &d->rot, d->n_rot, "rope.freq_base", 160000, true);
    if (d->window) pi__rotation_declare(m, &d->rot_local, d->n_rot, "rope.freq_base_swa", 1e4f, false);
    pi__dense_two_sided(m, d, 3, &d->rot_local);
    pi__dense_declare(m, d);
}

static void euro(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    d->attn.flags = PI__ATTN_BLOCK;
    pi__dense_declare(m, d);
}

static const char *modern_size(const pi__model *m)
{
    return m->n_layer == 12 ? "47M" : m->n_layer == 22 ? "149M" : m->n_layer == 28 ? "395M" : NULL;
}

const pi__arch pi__arch_modern_bert = {
    .name = "modern-bert", .declare = modern, .size_name = modern_size, .bidirectional = true, PI__DENSE_ARCH};
const pi__arch pi__arch_eurobert = {.name = "eurobert", .declare = euro, .bidirectional = true, PI__DENSE_ARCH};
