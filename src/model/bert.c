/* BERT-like encoders (GGUF architectures "bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3"). They
 * produce vectors and scores, and do not generate text.
 *
 * LayerNorms follow each residual sum, and attention is bidirectional. BERT has a table of position embeddings,
 * biases everywhere, and a feed-forward of two matrices with GELU between them. The others have no table:
 *
 *     nomic-bert      RoPE, a feed-forward gated by SiLU, no biases
 *     nomic-bert-moe  RoPE; experts without a gate and biases in some layers
 *     jina-bert-v3    RoPE
 *     jina-bert-v2    ALiBi, a feed-forward gated by GELU. The kind for code has norms of queries and keys, and adds
 *                     the layer's input twice, before each of two norms. If a file of that kind stacks gate and up
 *                     in ffn_up, the gate is second.
 *
 * Token types separate the two texts of a pair that a classifier scores: tokens after the first separator have type 1,
 * all others type 0. After "BERT" (arXiv 1810.04805), "Nomic Embed" (arXiv 2402.01613), "Nomic Embed v2" (arXiv
 * 2502.07972), "Jina Embeddings 2" (arXiv 2310.19923) and "jina-embeddings-v3" (arXiv 2409.10173).
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
    sum_norm again;          /* after a second sum of the layer's input and after_attn; w NULL = none */
    pi__mlp mlp;             /* feed-forward; n_ff 0 = experts */
    pi__weight router;       /* [X, E] logits of the experts */
    pi__experts experts;
} layer;

/* Features of an architecture. */
typedef struct kind {
    const pi__arch *arch;
    bool positions;          /* position embeddings */
    bool rotary;             /* RoPE */
    bool alibi;
    bool unbiased;           /* no biases, except those of norms */
    bool experts;
    int act;                 /* activation of a gated feed-forward, a kind of pi__lin_in; 0 = not gated */
} kind;

typedef struct bert {
    const kind *kind;        /* the architecture's features */
    bool code;               /* jina-bert-v2: the kind for code */
    int32_t n_ff;
    int32_t *first, *second; /* [F] file rows of up and of gate, if ffn_up stacks them in this order */
    int32_t moe_step;        /* layers i with i % moe_step == 1 have experts; 0 = none */
    pi__experts experts;     /* template of the layers' experts */
    float eps;
    pi__attn attn;           /* template of the layers' attention */
    pi__rotation rot;
    pi__rel slopes;          /* ALiBi */
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
    a->flags = PI__ATTN_BLOCK | (p->kind->unbiased ? 0 : PI__ATTN_BIAS);
    if (p->code) a->flags |= PI__ATTN_WIDE_NORM | PI__ATTN_WIDE_LAYER;
    a->eps = p->eps;
    a->q_scale = 1.0f / sqrtf((float) a->head_dim);
    if (p->kind->alibi) {
        a->rel = &p->slopes;
        pi__rel_alibi(m, &p->slopes, a->n_head, 8);
    }
    if (!p->kind->rotary) return;
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
    if (p->kind->positions) pi__declare_table(m, &p->positions, m->n_ctx_train, E, "position_embd.weight", PI__OF_FILE);
    if (types) p->n_types = types->ne[1] > 0 && types->ne[1] < 256 ? (int32_t) types->ne[1] : 1;
    if (types) pi__declare_table(m, &p->types, p->n_types, E, "token_types.weight", PI__OF_FILE);
    pi__declare_vec(m, &p->norm, E, "token_embd_norm.weight", PI__OF_FILE);
    pi__declare_vec(m, &p->shift, E, "token_embd_norm.bias", PI__OF_FILE);
}

/* bias: name of the bias of the preceding matrix; NULL = not declared here. */
static void want_norm(pi__model *m, sum_norm *s, const char *bias, const char *name, int32_t i)
{
    char full[48];
    if (bias) pi__declare_vec_or_not(m, &s->bias, m->n_embd, bias, i);
    snprintf(full, sizeof full, "%s.weight", name);
    pi__declare_vec(m, &s->w, m->n_embd, full, i);
    snprintf(full, sizeof full, "%s.bias", name);
    pi__declare_vec(m, &s->shift, m->n_embd, full, i);
}

/* Declares a feed-forward without a gate; or gate and up as two matrices; or as one, gate first or (code) up first. */
static void want_feed_forward(pi__model *m, bert *p, layer *l, int32_t i)
{
    const bool stacked = p->kind->act && !pi__has_tensor(m, "ffn_gate.weight", i);
    const int64_t E = m->n_embd, F = p->n_ff;
    l->mlp = (pi__mlp) {.n_ff = p->n_ff, .act = p->kind->act, .ungated = !p->kind->act, .kind = PI__ACT_GELU,
                        .fused = stacked && !p->code};
    if (!stacked || !p->code) {
        pi__mlp_declare(m, &l->mlp, "", i, &p->work);
        return;
    }
    pi__declare_gathered(m, &l->mlp.gate, E, F, p->second, 2 * F, "ffn_up.weight", i);
    pi__declare_gathered(m, &l->mlp.up, E, F, p->first, 2 * F, "ffn_up.weight", i);
    pi__declare_weight(m, &l->mlp.down, F, E, "ffn_down.weight", i);
    if (2 * F > p->work.max_ff) p->work.max_ff = 2 * F;
}

static void want_layer(pi__model *m, bert *p, int32_t i)
{
    layer *l = &p->layers[i];
    l->attn = p->attn;
    pi__attn_declare(m, &l->attn, i, &p->work);
    want_norm(m, &l->after_attn, "attn_output.bias", "attn_output_norm", i);
    if (p->code) want_norm(m, &l->again, NULL, "attn_norm_2", i);
    if (p->moe_step && i % p->moe_step == 1) {
        l->experts = p->experts;
        pi__declare_weight(m, &l->router, m->n_embd, l->experts.n_expert, "ffn_gate_inp.weight", i);
        pi__experts_declare(m, &l->experts, false, i, &p->work);
    } else {
        want_feed_forward(m, p, l, i);
    }
    want_norm(m, &l->after_ffn, l->mlp.ungated ? NULL : "ffn_down.bias", "layer_output_norm", i);
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

/* Reads the experts: some layers have them, without a gate, and with softmax weights that are not divided by their
 * sum. */
static void read_experts(pi__model *m, bert *p)
{
    p->moe_step = pi__hp_u32(m, "moe_every_n_layers", 2, PI__MAX_LAYERS);
    pi__experts_read(m, &p->experts, true);
    p->experts.n_ff = p->n_ff;
    p->experts.ungated = p->experts.undivided = true;
    p->experts.act = PI__IN_GELU;
    p->experts.gating = PI__GATE_SOFTMAX;
    if (m->n_used) p->experts.n_used = m->n_used;
}

/* Finds the kind of jina-bert-v2 for code, and the file rows of its stacked gate and up. */
static void read_code(pi__model *m, bert *p)
{
    p->code = p->kind->alibi && pi__has_tensor(m, "attn_q_norm.weight", 0);
    if (!p->code) return;
    p->first = pi__model_calloc(m, (size_t) p->n_ff, sizeof *p->first, "the order of rows");
    p->second = pi__model_calloc(m, (size_t) p->n_ff, sizeof *p->second, "the order of rows");
    for (int32_t i = 0; i < p->n_ff && p->first && p->second; i++) p->first[i] = i, p->second[i] = p->n_ff + i;
}

/* Refuses features of other kinds of BERT. */
static void refuse_kin(pi__model *m, const bert *p)
{
    const struct {
        bool has;
        int32_t layer;
        const char *tensor, *what;
    } kin[] = {{p->code, 0, "attn_q_norm.weight", "norms of queries"},
               {p->code, 0, "attn_norm_2.weight", "two norms"},
               {p->kind->act, 0, "ffn_gate.weight", "gates in its feed-forward"},
               {p->kind->experts, 1, "ffn_gate_inp.weight", "experts"}};
    bool causal = false;
    char key[64];
    for (size_t i = 0; i < sizeof kin / sizeof *kin; i++)
        if (pi__has_tensor(m, kin[i].tensor, kin[i].layer) && !kin[i].has)
            pi__model_refuse(m, PI_EUNSUPPORTED, "tensor blk.%d.%s: a %s model with %s is not supported", kin[i].layer,
                             kin[i].tensor, m->arch->name, kin[i].what);
    snprintf(key, sizeof key, "%s.attention.causal", m->arch->name);
    if (pi__model_ok(m)) pi__gguf_get_bool(m->g, key, &causal, false, &m->error);
    if (causal) pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s is true: only false is supported", key);
}

static void declare(pi__model *m)
{
    static const kind kinds[] = {
        {.arch = &pi__arch_bert, .positions = true},
        {.arch = &pi__arch_nomic_bert, .rotary = true, .unbiased = true, .act = PI__IN_SWIGLU},
        {.arch = &pi__arch_nomic_bert_moe, .rotary = true, .experts = true},
        {.arch = &pi__arch_jina_bert_v2, .alibi = true, .act = PI__IN_GEGLU_ERF},
        {.arch = &pi__arch_jina_bert_v3, .rotary = true},
    };
    bert *p = m->arch_data;
    p->kind = kinds;
    while (p->kind->arch != m->arch) p->kind++;
    p->eps = pi__hp_f32(m, "attention.layer_norm_epsilon");
    p->n_ff = pi__hp_u32(m, "feed_forward_length", 1, PI__MAX_EMBD);
    if (p->kind->experts) read_experts(m, p);
    read_code(m, p);
    refuse_kin(m, p);
    if (p->kind->positions && m->n_ctx > m->n_ctx_train)
        pi__model_refuse(m, PI_EINVAL, "ctx-size is %d, but the model has %d positions: give at most that",
                         m->n_ctx, m->n_ctx_train);
    p->layers = pi__model_calloc(m, (size_t) m->n_layer, sizeof *p->layers, "the layers");
    read_heads(m, p);
    want_embeddings(m, p);
    read_separator(m, p);
    pi__read_trunk(m, m->n_layer);
    for (int32_t i = 0; i < m->n_trunk && pi__model_ok(m); i++) want_layer(m, p, i);
    /* norms over all heads read queries and keys in `att` */
    if (p->code && p->work.max_att < p->work.max_qkv) p->work.max_att = p->work.max_qkv;
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
static void add_norm(pi__model *m, const bert *p, const sum_norm *s, const float *bias, float *x, const float *y,
                     int32_t n)
{
    pi__op_layer_norm(m->be, NULL, &(pi__layer_norm) {.x = x, .y = y, .b = bias, .w = s->w, .shift = s->shift,
                                                      .eps = p->eps, .n_rows = n, .n = m->n_embd});
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

/* y = feed-forward of x, without its last bias. */
static void feed_forward(pi__model *m, const bert *p, const layer *l, const pi__stream *s)
{
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = s->x, .ldx = m->n_embd};
    if (l->mlp.n_ff) {
        pi__mlp_forward(m, &l->mlp, &in, s->n, s->ff, s->y);
        return;
    }
    pi__matmul(m, &in, s->n, &l->router, p->work.routes, l->experts.n_expert);
    pi__experts_forward(m, &l->experts, &in, s->n, p->work.routes, l->experts.n_expert, NULL, s->y);
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
        if (l->again.w) {
            add_norm(m, p, &l->after_attn, l->after_attn.bias, s.y, s.x, s.n);
            add_norm(m, p, &l->again, NULL, s.x, s.y, s.n);
        } else {
            add_norm(m, p, &l->after_attn, l->after_attn.bias, s.x, s.y, s.n);
        }
        feed_forward(m, p, l, &s);
        add_norm(m, p, &l->after_ffn, l->mlp.ungated ? l->mlp.down_bias : l->after_ffn.bias, s.x, s.y, s.n);
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
    {.name = arch, .size = sizeof(bert), .declare = declare, .layout = layout, .forward = forward, .hidden = hidden,   \
     .bidirectional = true}

const pi__arch pi__arch_bert = BERT("bert");
const pi__arch pi__arch_nomic_bert = BERT("nomic-bert");
const pi__arch pi__arch_nomic_bert_moe = BERT("nomic-bert-moe");
const pi__arch pi__arch_jina_bert_v2 = BERT("jina-bert-v2");
const pi__arch pi__arch_jina_bert_v3 = BERT("jina-bert-v3");
