/* Gemma 3, text (270M, 1B, 4B, 12B, 27B): GGUF architecture "gemma3"; a dense transformer. Also EmbeddingGemma
 * ("gemma-embedding"), which is the bidirectional variant; dense heads may follow (classifier.h).
 *
 * There are two kinds of layers. Most have a sliding window and RoPE base 10,000. Every sixth has full attention and
 * RoPE base 1,000,000 (with a linear factor in the larger sizes). A norm before and after each block ("sandwich"),
 * norms on query and key heads, GELU-gated MLP, tied output. The file's norm weights include the +1. After the Gemma
 * 3 Technical Report (arXiv 2503.19786). */
#include <math.h>

#include "model/dense.h"

/* sliding_window_pattern: an array with one bool per layer, or a period; default: every sixth layer is global. */
static void read_pattern(pi__model *m, pi__dense *d)
{
    const char *key = "attention.sliding_window_pattern";
    const pi__gguf_kv *kv = pi__hp_array(m, key, PI__GGUF_BOOL, m->n_layer, true);
    const bool array = kv && kv->type == PI__GGUF_ARR;
    const int32_t every = array ? 1 : pi__hp_u32_or(m, key, 6, 1, PI__MAX_LAYERS);
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++) {
        const bool local = array ? pi__gguf_elem_u64(kv, (uint64_t) i) != 0 : i % every != every - 1;
        if (!local || !d->window) continue;
        /* bidirectional: half of the window before the token, half after it */
        d->layers[i].attn.window = m->bidirectional ? d->window / 2 + 1 : d->window;
        d->layers[i].attn.ahead = m->bidirectional ? d->window / 2 : 0;
        d->layers[i].attn.rot = &d->rot_local;
    }
}

static void declare(pi__model *m)
{
    pi__dense *d = pi__dense_read(m, 256);
    const float E = (float) m->n_embd;
    d->attn.flags = PI__ATTN_QK_NORM | (m->bidirectional ? PI__ATTN_BLOCK : 0);
    d->post_norms = true;
    d->act = PI__IN_GEGLU;
    d->head.embd_scale = sqrtf(E);
    if (m->n_layer == 62) /* the 27B scales queries by (E / n_head)^-0.5 */
        d->attn.q_scale = 1.0f / sqrtf(E / (float) d->attn.n_head);
    pi__rotation_declare(m, &d->rot, d->attn.head_dim, "rope.freq_base", 1e6f, true);
    pi__rotation_declare(m, &d->rot_local, d->attn.head_dim, "rope.freq_base_swa", 1e4f, false);
    read_pattern(m, d);
    pi__dense_declare(m, d);
}

static const char *size_name(const pi__model *m)
{
    switch (m->n_layer) {
    case 18: return "270M";
    case 24: return "300M";
    case 26: return "1B";
    case 34: return "4B";
    case 48: return "12B";
    case 62: return "27B";
    default: return NULL;
    }
}

const pi__arch pi__arch_gemma3 = {.name = "gemma3", .declare = declare, .size_name = size_name, PI__DENSE_ARCH};
const pi__arch pi__arch_gemma_embedding = {.name = "gemma-embedding", .declare = declare, .size_name = size_name,
                                           .bidirectional = true, PI__DENSE_ARCH};
