/* Encoders with norms before blocks: ModernBERT and derived models (GGUF architecture "modern-bert"), EuroBERT
 * ("eurobert"), NeoBERT ("neo-bert"). They produce vectors and scores, and do not generate text.
 *
 * ModernBERT has LayerNorms without bias; one follows the embeddings, and none is before the first attention. Every
 * third layer from the first on has full attention. The others have a window, half of it on each side, and a RoPE base
 * of their own. The file stacks gate and up. EuroBERT is Llama with bidirectional attention. NeoBERT, too; its file
 * stacks gate and up, and the queries, keys and values of each head. (llama.cpp reads these rows in the order of
 * ModernBERT's, so that it gives other vectors than the model's own code.) After "Smarter, Better, Faster, Longer"
 * (arXiv 2412.13663), "EuroBERT" (arXiv 2503.05500) and "NeoBERT" (arXiv 2502.19587). */
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

/* Returns the file rows of the stacked queries, keys and values of all heads: the file has 3 D rows per head, with
 * interleaved RoPE pairs. */
static const int32_t *neo_order(pi__model *m, int32_t n_head, int32_t head_dim)
{
    const int32_t D = head_dim, half = D / 2;
    int32_t *order = pi__model_calloc(m, (size_t) n_head * 3 * (size_t) D, sizeof *order, "the order of heads");
    for (int32_t i = 0; i < 3 * n_head * D && order; i++) {
        const int32_t part = i / (n_head * D), h = i / D % n_head, d = i % D; /* part: queries, keys, values */
        order[i] = (3 * h + part) * D + (part == 2 ? d : d < half ? 2 * d : 2 * (d - half) + 1);
    }
    return order;
}

static void neo(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 0);
    if (!pi__has_tensor(m, "attn_qkv.weight", 0))
        pi__model_refuse(m, PI_EFORMAT, "tensor blk.0.attn_qkv.weight is missing");
    if (d->attn.n_head_kv != d->attn.n_head || d->n_rot != d->attn.head_dim)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata neo-bert.attention.head_count_kv %d, rope.dimension_count %d: "
                         "expected head_count %d, head size %d", d->attn.n_head_kv, d->n_rot, d->attn.n_head,
                         d->attn.head_dim);
    d->attn.flags = PI__ATTN_BLOCK;
    d->attn.order = neo_order(m, d->attn.n_head, d->attn.head_dim);
    d->fused = true;
    d->head.norm_name = "enc.output_norm.weight";
    pi__dense_declare(m, d);
}

static const char *modern_size(const pi__model *m)
{
    return m->n_layer == 12 ? "47M" : m->n_layer == 22 ? "149M" : m->n_layer == 28 ? "395M" : NULL;
}

const pi__arch pi__arch_modern_bert = {
    .name = "modern-bert", .declare = modern, .size_name = modern_size, .bidirectional = true, PI__DENSE_ARCH};
const pi__arch pi__arch_eurobert = {.name = "eurobert", .declare = euro, .bidirectional = true, PI__DENSE_ARCH};
const pi__arch pi__arch_neo_bert = {.name = "neo-bert", .declare = neo, .bidirectional = true, PI__DENSE_ARCH};
