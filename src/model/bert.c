/* Encoders: BERT and derived models, including cross-encoders (GGUF architecture "bert"), Nomic's ("nomic-bert") and
 * Jina Embeddings v3 ("jina-bert-v3"). They produce vectors and scores, and do not generate text.
 *
 *     x = norm(embedding + position embedding + token type embedding)
 *     layer   x = norm(x + attention(x))         x = norm(x + feed-forward(x))
 *
 * Norms are LayerNorms, with mean and bias. Attention is bidirectional. BERT has a table of position embeddings,
 * biases everywhere, and a feed-forward of two matrices with GELU between them. Jina's v3 has RoPE instead of the
 * table. Nomic's has RoPE and a gated feed-forward, without biases. Token types separate the two texts of a pair that a
 * classifier scores: tokens after the first separator have type 1, all others type 0. After "BERT" (arXiv 1810.04805),
 * "Nomic Embed" (arXiv 2402.01613) and "jina-embeddings-v3" (arXiv 2409.10173).
 *
 * Symbols in shapes: T tokens of the step, E embedding, F feed-forward, C context. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/blocks.h"

/* The LayerNorm after a residual sum, and the bias of the added output. */
typedef struct sum_norm {
    float *bias;             /* [E] bias of the preceding matrix; NULL = none */
    float *w, *shift;        /* [E] LayerNorm weight, bias */
} sum_norm;

typedef struct layer {
    pi__attn attn;
    sum_norm after_attn, after_ffn;
    pi__mlp mlp;             /* gated feed-forward of Nomic's models; or */
    pi__weight up, down;     /* [F, E], [E, F] y = down gelu(up x + up_bias) */
    float *up_bias;          /* [F]; NULL = none */
} layer;

typedef struct bert {
    bool rotary;             /* RoPE instead of position embeddings */
    bool gated;              /* a gated feed-forward without biases, as in Nomic's models; no biases elsewhere */
    int32_t n_ff;
    float eps;
    pi__attn attn;           /* template of the layers' attention */
    pi__rotation rot;
    pi__weight tok_embd;     /* [V, E] token embedding */
    float *positions;        /* [C, E] position embedding */
    float *types;            /* [n_types, E]; NULL = none */
    int32_t n_types;
    int32_t sep;             /* id of the separator token between two texts; -1 = all tokens have type 0 */
    int32_t *type;           /* [T] token types of the step, in host memory; NULL = all are 0 */
    float *norm, *shift;     /* [E] norm of the embeddings */
    layer *layers;           /* [n_layer] */
    pi__work work;
} bert;

/* ---- declaring */

static void read_heads(pi__model *m, bert *p)
{
    pi__attn *a = &p->attn;
    a->n_head = a->n_head_kv = pi__hp_u32(m, "attention.head_count", 1, PI__MAX_HEADS);
    if (pi__hp_u32_or(m, "attention.head_count_kv", (uint32_t) a->n_head, 1, PI__MAX_HEADS) != a->n_head)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.attention.head_count_kv: only head_count, %d, is supported",
                         m->arch->name, a->n_head);
    a->head_dim = m->n_embd / a->n_head;
    if (m->n_embd % a->n_head || a->head_dim % 16 || a->head_dim < 32)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.embedding_length %d of %d heads: the head size must be a "
                         "multiple of 16, at least 32", m->arch->name, m->n_embd, a->n_head);
    a->flags = PI__ATTN_BLOCK | (p->gated ? 0 : PI__ATTN_BIAS);
    a->q_scale = 1.0f / sqrtf((float) a->head_dim);
    if (!p->rotary) return;
    a->rot = &p->rot;
    pi__rotation_declare(m, &p->rot,
                         pi__hp_u32_or(m, "rope.dimension_count", (uint32_t) a->head_dim, 2, (uint32_t) a->head_dim),
                         "rope.freq_base", 1e4f, true);
}

/* Declares the embedding tables that the architecture has, and their norm. */
static void want_embeddings(pi__model *m, bert *p)
{
    const pi__tensor *types = pi__gguf_find_tensor(m->g, "token_types.weight");
    const int64_t E = m->n_embd;
    pi__read_vocab_size(m);
    pi__declare_weight(m, &p->tok_embd, E, m->n_vocab, "token_embd.weight", PI__OF_FILE);
    if (!p->rotary) pi__declare_table(m, &p->positions, m->n_ctx_train, E, "position_embd.weight", PI__OF_FILE);
    if (types) p->n_types = types->ne[1] > 0 && types->ne[1] < 256 ? (int32_t) types->ne[1] : 1;
    if (types) pi__declare_table(m, &p->types, p->n_types, E, "token_types.weight", PI__OF_FILE);
    pi__declare_vec(m, &p->norm, E, "token_embd_norm.weight", PI__OF_FILE);
    pi__declare_vec(m, &p->shift, E, "token_embd_norm.bias", PI__OF_FILE);
}

static void want_norm(pi__model *m, sum_norm *s, const char *bias, const char *name, int32_t i)
{
    char full[48];
    pi__declare_vec_or_not(m, &s->bias, m->n_embd, bias, i);
    snprintf(full, sizeof full, "%s.weight", name);
    pi__declare_vec(m, &s->w, m->n_embd, full, i);
    snprintf(full, sizeof full, "%s.bias", name);
    pi__declare_vec(m, &s->shift, m->n_embd, full, i);
}

static void want_layer(pi__model *m, bert *p, int32_t i)
{
    layer *l = &p->layers[i];
    const int64_t E = m->n_embd, F = p->n_ff;
    l->attn = p->attn;
    pi__attn_declare(m, &l->attn, i, &p->work);
    want_norm(m, &l->after_attn, "attn_output.bias", "attn_output_norm", i);
    want_norm(m, &l->after_ffn, "ffn_down.bias", "layer_output_norm", i);
    if (p->gated) {
        l->mlp = (pi__mlp) {.n_ff = p->n_ff, .act = PI__IN_SWIGLU};
        pi__mlp_declare(m, &l->mlp, "", i, &p->work);
        return;
    }
    pi__declare_weight(m, &l->up, E, F, "ffn_up.weight", i);
    pi__declare_vec_or_not(m, &l->up_bias, F, "ffn_up.bias", i);
    pi__declare_weight(m, &l->down, F, E, "ffn_down.weight", i);
    if (F > p->work.max_ff) p->work.max_ff = F;
}

/* Reads the separator token, after which a pair's second text begins. */
static void read_separator(pi__model *m, bert *p)
{
    uint32_t sep = UINT32_MAX;
    p->sep = -1;
    if (!pi__model_ok(m) || !m->classifier.n_labels || p->n_types < 2) return;
    pi__gguf_get_u32(m->g, "tokenizer.ggml.seperator_token_id", &sep, UINT32_MAX, &m->error);
    if (sep < (uint32_t) m->n_vocab) p->sep = (int32_t) sep;
}

static void declare(pi__model *m)
{
    static const char *const kin[][2] = {{"blk.0.attn_q_norm.weight", "norms of queries"},
                                         {"blk.0.attn_norm_2.weight", "two norms"},
                                         {"blk.0.ffn_gate.weight", "gates in its feed-forward"},
                                         {"blk.1.ffn_gate_inp.weight", "experts"}};
    bert *p = m->arch_data;
    bool causal = false;
    char key[64];
    p->gated = m->arch == &pi__arch_nomic_bert;
    p->rotary = p->gated || m->arch == &pi__arch_jina_bert_v3;
    for (size_t i = 0; i < sizeof kin / sizeof *kin; i++)
        if (pi__gguf_find_tensor(m->g, kin[i][0]) && !(p->gated && i == 2))
            pi__model_refuse(m, PI_EUNSUPPORTED, "tensor %s: a %s model with %s is not supported", kin[i][0],
                             m->arch->name, kin[i][1]);
    snprintf(key, sizeof key, "%s.attention.causal", m->arch->name);
    if (pi__model_ok(m)) pi__gguf_get_bool(m->g, key, &causal, false, &m->error);
    if (causal) pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s is true: only false is supported", key);
    if (!p->rotary && m->n_ctx > m->n_ctx_train)
        pi__model_refuse(m, PI_EINVAL, "ctx-size is %d, but the model has %d positions: give at most that",
                         m->n_ctx, m->n_ctx_train);
    p->eps = pi__hp_f32(m, "attention.layer_norm_epsilon");
    p->n_ff = pi__hp_u32(m, "feed_forward_length", 1, PI__MAX_EMBD);
    p->layers = pi__model_calloc(m, (size_t) m->n_layer, sizeof *p->layers, "the layers");
    read_heads(m, p);
    want_embeddings(m, p);
    read_separator(m, p);
    pi__read_trunk(m, m->n_layer);
    for (int32_t i = 0; i < m->n_trunk && pi__model_ok(m); i++) want_layer(m, p, i);
    pi__refuse_unwanted(m, ".bias");
}

static void layout(pi__model *m, const pi__limits *lim, pi__arena *a)
{
    bert *p = m->arch_data;
    pi__work_layout(m, &p->work, a, (size_t) lim->max_tokens);
    pi__rotation_layout(&p->rot, a, (size_t) lim->max_tokens);
    if (a->base && p->sep >= 0)
        p->type = pi__model_calloc(m, (size_t) lim->max_tokens, sizeof *p->type, "types of tokens");
}

/* ---- the graph */

/* x = s's LayerNorm of (x + y + bias). */
static void add_norm(pi__model *m, const bert *p, const sum_norm *s, const pi__stream *at)
{
    pi__op_layer_norm(m->be, NULL,
                      &(pi__layer_norm) {.x = at->x,
                                         .y = at->y,
                                         .b = s->bias,
                                         .w = s->w,
                                         .shift = s->shift,
                                         .eps = p->eps,
                                         .n_rows = at->n,
                                         .n = m->n_embd});
}

/* x [T, E] += table [any, E]: token t gets row row[t]. */
static void add_rows(pi__model *m, const pi__stream *s, const float *table, const int32_t *row)
{
    pi__op_add_rows(m->be, NULL,
                    &(pi__add_rows) {.x = s->x, .table = table, .row = row, .n_rows = s->n, .n = m->n_embd});
}

static void embed(pi__model *m, const bert *p, const pi__stream *s)
{
    const pi__batch *b = s->b;
    const int64_t E = m->n_embd;
    pi__op_embed(m->be, b, &(pi__embed) {.w = &p->tok_embd, .scale = 1.0f, .out = s->x});
    if (p->positions) add_rows(m, s, p->positions, b->pos);
    for (int32_t t = 0; t < s->n && p->type; t++)
        p->type[t] = b->pos[t] > 0 && (p->type[t - 1] || b->token[t - 1] == p->sep);
    if (p->type) add_rows(m, s, p->types, p->type);
    pi__op_layer_norm(m->be, NULL,
                      &(pi__layer_norm) {.x = s->x,
                                         .b = p->type ? NULL : p->types,
                                         .w = p->norm,
                                         .shift = p->shift,
                                         .eps = p->eps,
                                         .n_rows = s->n,
                                         .n = E});
}

static void feed_forward(pi__model *m, const bert *p, const layer *l, const pi__stream *s)
{
    const int64_t E = m->n_embd, F = p->n_ff;
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = s->x, .ldx = E}, h = {.kind = PI__IN_PLAIN, .x = s->ff, .ldx = F};
    if (p->gated) {
        pi__mlp_forward(m, &l->mlp, &in, s->n, s->ff, s->y);
        return;
    }
    pi__matmul(m, &in, s->n, &l->up, s->ff, F);
    pi__op_activate(m->be, NULL,
                    &(pi__activate) {.x = s->ff, .b = l->up_bias, .n_rows = s->n, .n = F, .kind = PI__ACT_GELU});
    pi__matmul(m, &h, s->n, &l->down, s->y, E);
}

static void forward(pi__model *m, const pi__batch *b, int32_t n_layer)
{
    bert *p = m->arch_data;
    const pi__stream s = pi__stream_of(&p->work, b);
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = s.x, .ldx = m->n_embd};
    embed(m, p, &s);
    pi__rotation_forward(m, &p->rot, b);
    for (int32_t i = 0; i < n_layer; i++) {
        const layer *l = &p->layers[i];
        pi__attn_project_of(m, &l->attn, &in, &s);
        pi__attn_attend(m, &l->attn, &s, 0);
        pi__attn_result(m, &l->attn, &s);
        add_norm(m, p, &l->after_attn, &s);
        feed_forward(m, p, l, &s);
        add_norm(m, p, &l->after_ffn, &s);
    }
    pi__gather_logits_rows(m, b, s.x, m->n_embd, p->work.rows);
}

static void hidden(pi__model *m, int32_t first, int32_t n, float *out)
{
    const bert *p = m->arch_data;
    const int64_t E = m->n_embd;
    pi__op_copy_2d(
        m->be, NULL,
        &(pi__copy_2d) {
            .x = p->work.rows + (int64_t) first * E, .ldx = E, .n_shards = 1, .n_rows = n, .n = E, .y = out, .ldy = E});
}

#define BERT(arch)                                                                                                     \
    {.name = arch,                                                                                                     \
     .size = sizeof(bert),                                                                                             \
     .declare = declare,                                                                                               \
     .layout = layout,                                                                                                 \
     .forward = forward,                                                                                               \
     .hidden = hidden,                                                                                                 \
     .bidirectional = true}

const pi__arch pi__arch_bert = BERT("bert");
const pi__arch pi__arch_nomic_bert = BERT("nomic-bert");
const pi__arch pi__arch_jina_bert_v3 = BERT("jina-bert-v3");
