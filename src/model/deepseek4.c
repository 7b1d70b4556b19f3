/* DeepSeek V4: GGUF architecture "deepseek4", as written by llama.cpp's converter and by ds4.
 *
 * The model has four residual streams (hyper-connections). Each block reads a weighted sum of the streams, and its
 * output is added to all of them. The weights are computed from the streams (ops hyper_pre, hyper_post). Attention is
 * multi-query: each token has one row that is key and value at once, for all heads. Rows are rotated, so outputs are
 * rotated back. Each layer attends to the rows of a window. Most layers also attend to compressed entries for earlier
 * tokens:
 *
 *   ratio 4     an entry for 4 tokens, computed from these and the 4 before; the layer's lightning indexer, with
 *               entries of its own, selects the best entries for each token
 *   ratio 128   an entry for 128 tokens; all entries are attended to
 *
 * Queries and the output have low-rank projections; the output's first one is grouped by heads. The feed-forward has a
 * shared expert and routed experts. The first layers choose experts by token id, the later ones by a router.
 *
 * The rows of recent tokens, which are the input of entries, are in a window cache. So prefill can be split
 * anywhere, and rejected drafts need no rollback. At multiples of 128 tokens, the only rows of that window that
 * later tokens still need are the rows for the overlap of the next ratio-4 entry. Prefixes are reused at these
 * positions.
 *
 * A separate file holds the draft head (MTP), written by llama.cpp's converter or by ds4. It is one layer without
 * entries. It reads the model's residual streams after the last layer and the next token's embedding. Its rows are in
 * a group of the model's cache, from position 1 on. Embedding and output are the model's.
 *
 * Symbols in shapes: T tokens of the step, R logits rows, E embedding, H query heads, D head size, Q rank of queries;
 * G groups of the output, O its rank in a group, r ratio, w width of a compressor (2D with ratio 4, else D); I heads
 * of the indexer, J their size; X experts, K experts a token, F feed-forward of an expert, V vocabulary. */
#include <math.h>
#include <stdio.h>

#include "model/blocks.h"

enum { CSA = 4, HCA = 128, MAX_GROUPS = 64, MAX_DIM = 512 };

/* The hyper-connection of a block: weights for reading the residual streams and for adding to them. */
typedef struct hyper {
    pi__weight fn;              /* [24, 4E]; [4, 4E] before the LM head */
    float *base, *scale;        /* [24], [3]; before the LM head [4], [1] */
} hyper;

/* A compressor: computes entries from tokens. */
typedef struct compressor {
    pi__weight kv, gate;        /* [w, E] each */
    float *ape;                 /* [r, w] added to the scores, by position in the window */
    float *norm;                /* [D] (attention) or [J] (indexer) RMSNorm of an entry */
    int32_t recent, entries;    /* indices into m->kv: cache of the compressor's input, of its entries */
} compressor;

typedef struct layer {
    int32_t ratio;              /* r; 0 = window only, no entries */
    int32_t rows;               /* index into the cache owner's kv */
    hyper hc_attn, hc_ffn;
    float *attn_norm;           /* [E] RMSNorm before attention */
    pi__weight q_a, q_b, kv;    /* [Q, E], [H*D, Q] low-rank queries; [D, E] the row: key and value */
    float *q_norm, *kv_norm;    /* [Q] RMSNorm of q_a's output, [D] of the row */
    float *sinks;               /* [H] extra logit in the softmax sum */
    pi__weight out_a, out_b;    /* G of [O, H*D/G]; [E, G*O] low-rank output projection */
    compressor comp, index;     /* compressor for attention; for the indexer */
    pi__weight index_q, index_w; /* [I*J, Q] indexer queries, [I, E] weights of its heads */
    float *ffn_norm;            /* [E] RMSNorm before the feed-forward */
    pi__weight router;          /* [X, E] logits of the experts */
    float *bias;                /* [X] selection bias; NULL = experts are chosen by table */
    int32_t *table;             /* [V, K] experts of each token; NULL = chosen by the router */
    pi__experts experts;
    pi__mlp shared;             /* the shared expert */
} layer;

typedef struct deepseek4 {
    int32_t n_layer;            /* layers to run: without the draft head's; for a draft head 1 */
    int32_t first;              /* number of layers[0] in the file, not 0 for a draft head */
    int32_t n_head, dim, n_rot; /* H, D; rotated values of a head */
    int32_t rank_q;             /* Q */
    int32_t window;             /* tokens */
    int32_t n_group, rank_out;  /* G, O */
    int32_t indexer_head, indexer_dim, n_top; /* I, J; entries that the indexer selects */
    int32_t n_hash;             /* number of first layers that choose experts by table */
    pi__experts experts;        /* template of the layers */
    int32_t n_iter;             /* Sinkhorn iterations */
    float eps, hyper_eps;       /* epsilon of the norms; of the hyper-connection weights */
    pi__rotation plain, scaled; /* RoPE of the layers without entries, and of the others */
    pi__head head;              /* LM head; for a draft head only its norm is set */
    hyper hc_head;              /* hyper-connection before the LM head */
    layer *layers;              /* [n_layer] */
    pi__work work;              /* only its row widths are used: this model allocates wider buffers of its own */
    /* scratch */
    float *x;                   /* [T, 4E] residual streams */
    float *y;                   /* [T, E] a block's input, then its output */
    float *mix, *coef;          /* [T, 24], [T, 20] raw and final hyper-connection weights */
    float *qa, *q;              /* [T, Q] low-rank queries, [T, H*D] queries, then attention output */
    float *row;                 /* [T, D] this step's rows for the cache */
    float *comp, *icomp;        /* [T, 2w] values and scores, for attention and indexer */
    float *iq, *iw;             /* [T, I*J] indexer queries, [T, I] weights of its heads */
    int32_t *pick;              /* [T, n_top] entries selected by the indexer */
    float *low;                 /* [T, G*O] output of out_a */
    float *ff;                  /* [T, 2F] shared expert */
    float *routed;              /* [T, E] output of the routed experts */
    float *routes;              /* [T, X] router logits */
    float *rows;                /* [R, E] input of the LM head, before its norm */
    /* draft head only */
    bool ds4;                   /* the file has ds4's names, "mtp.0" */
    pi__weight proj;            /* [E, 2E] for embedding and a stream; or [E, E] for the embedding, and */
    pi__weight proj_hidden;     /* [E, E] for a stream */
    float *embd_norm, *hidden_norm; /* [E] norms of the two inputs */
    float *before;              /* scratch: [T, 4E] streams after the previous token */
    float *pairs;               /* scratch: [T, 4, 2E] normed embedding and stream, concatenated */
    float *last;                /* scratch: [R, 4E] streams after a draft, input of the next */
} deepseek4;

/* Returns the model that owns the cache of rows and entries: m, or for a draft head its target. */
static pi__model *kv_owner(pi__model *m) { return m->target ? m->target : m; }

/* ------------------------------------------------------------------------------------------------ hyperparameters */

static void read_attention(pi__model *m, deepseek4 *p)
{
    p->n_head = pi__hp_u32(m, "attention.head_count", 1, PI__MAX_HEADS);
    pi__hp_u32_or(m, "attention.head_count_kv", 1, 1, 1);
    p->dim = pi__hp_u32(m, "attention.key_length", 16, MAX_DIM);
    const int32_t vdim = pi__hp_u32_or(m, "attention.value_length", (uint32_t) p->dim, 16, MAX_DIM);
    p->n_rot = pi__hp_u32(m, "rope.dimension_count", 2, (uint32_t) p->dim);
    p->rank_q = pi__hp_u32(m, "attention.q_lora_rank", 1, PI__MAX_EMBD);
    p->window = pi__hp_u32(m, "attention.sliding_window", 1, 1 << 20);
    p->n_group = pi__hp_u32(m, "attention.output_group_count", 1, MAX_GROUPS);
    p->rank_out = pi__hp_u32(m, "attention.output_lora_rank", 1, PI__MAX_EMBD);
    p->eps = p->head.eps = pi__hp_f32(m, "attention.layer_norm_rms_epsilon");
    p->head.embd_scale = 1.0f;
    if (vdim != p->dim || p->dim % 16)
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "metadata deepseek4.attention.key_length %d and value_length %d must be equal "
                         "and a multiple of 16",
                         p->dim, vdim);
    if (p->n_rot % 2)
        pi__model_refuse(m, PI_EFORMAT, "metadata deepseek4.rope.dimension_count is %d, expected an even number",
                         p->n_rot);
    if (p->n_head % p->n_group)
        pi__model_refuse(m, PI_EFORMAT, "metadata deepseek4.attention.head_count %d is not a multiple of "
                         "output_group_count %d", p->n_head, p->n_group);
    m->lim.max_row = p->dim;
    m->lim.max_stream = m->n_embd;
}

static void read_indexer(pi__model *m, deepseek4 *p)
{
    p->indexer_head = pi__hp_u32(m, "attention.indexer.head_count", 1, PI__MAX_HEADS);
    p->indexer_dim = pi__hp_u32(m, "attention.indexer.key_length", 16, MAX_DIM);
    p->n_top = pi__hp_u32(m, "attention.indexer.top_k", 1, 1 << 16);
    if (p->indexer_dim % 16 || p->indexer_dim < p->n_rot)
        pi__model_refuse(m, PI_EFORMAT, "metadata deepseek4.attention.indexer.key_length is %d, expected a multiple "
                         "of 16, at least rope.dimension_count %d", p->indexer_dim, p->n_rot);
    m->lim.indexer_head = p->indexer_head;
    m->lim.indexer_dim = p->indexer_dim;
    m->lim.indexer_ratio = CSA;
}

/* Reads compress_ratios: one number per layer; extra numbers (of a draft head) are ignored. */
static void read_ratios(pi__model *m, deepseek4 *p)
{
    const char *key = "deepseek4.attention.compress_ratios";
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    bool any = false;
    if (!kv || kv->type != PI__GGUF_ARR || (kv->arr_type != PI__GGUF_I32 && kv->arr_type != PI__GGUF_U32) ||
        kv->n < (uint64_t) p->n_layer)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s needs a whole number for each of %d layers", key, p->n_layer);
    for (int32_t i = 0; i < p->n_layer && pi__model_ok(m); i++) {
        const int64_t r = pi__gguf_elem_i64(kv, (uint64_t) i);
        if (r != 0 && r != CSA && r != HCA)
            pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s of layer %d is %lld, expected 0, 4 or 128", key, i,
                             (long long) r);
        p->layers[i].ratio = (int32_t) r;
        any = any || r == CSA;
    }
    if (any) read_indexer(m, p);
}

/* Returns the SWIGLU limit of layer i; the key has one number for all layers or one per layer. def = the key is
 * absent. */
static float read_limit(pi__model *m, const deepseek4 *p, const char *key, int32_t i, float def)
{
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    if (!kv || !pi__model_ok(m)) return def;
    const int type = kv->type == PI__GGUF_ARR ? kv->arr_type : kv->type;
    const bool wrong = (type != PI__GGUF_F32 && type != PI__GGUF_F64) ||
                       (kv->type == PI__GGUF_ARR && kv->n <= (uint64_t) i);
    if (wrong)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s needs a number for each of %d layers", key, p->first + p->n_layer);
    const double v = wrong ? 0 : pi__gguf_elem_f64(kv, kv->type == PI__GGUF_ARR ? (uint64_t) i : 0);
    if (!isfinite(v)) pi__model_refuse(m, PI_EFORMAT, "metadata %s of layer %d is not a finite number", key, i);
    return v > 1e-6 ? (float) v : 0;
}

static void read_experts(pi__model *m, deepseek4 *p)
{
    bool norm = true;
    pi__experts_read(m, &p->experts, true);
    const int32_t gating = pi__hp_u32(m, "expert_gating_func", 0, 64);
    const int32_t n_shared = pi__hp_u32_or(m, "expert_shared_count", 1, 0, 64);
    if (pi__model_ok(m)) pi__gguf_get_bool(m->g, "deepseek4.expert_weights_norm", &norm, true, &m->error);
    if (gating != 4 || n_shared != 1 || !norm)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata deepseek4: expert_gating_func %d, expert_shared_count %d and "
                         "expert_weights_norm %s are not supported, only 4, 1 and true", gating, n_shared,
                         norm ? "true" : "false");
    p->experts.weights_scale = pi__hp_f32_or(m, "expert_weights_scale", 1);
    p->experts.act = PI__IN_SWIGLU;
    p->experts.gating = PI__GATE_SQRT_SOFTPLUS;
    p->n_hash = pi__hp_u32_or(m, "hash_layer_count", 0, 0, PI__MAX_LAYERS);
    int32_t *ff = pi__model_calloc(m, (size_t) m->n_layer, sizeof *ff, "the layers");
    if (ff) pi__hp_each(m, "expert_feed_forward_length", 1, PI__MAX_EMBD, ff);
    for (int32_t i = 0; i < p->n_layer && pi__model_ok(m); i++) {
        layer *l = &p->layers[i];
        const int32_t k = p->first + i;
        l->experts = p->experts;
        l->experts.n_ff = ff[k];
        l->experts.limit = read_limit(m, p, "deepseek4.swiglu_clamp_exp", k, 0);
        l->shared = (pi__mlp) {.n_ff = ff[k], .act = PI__IN_SWIGLU};
        l->shared.limit = read_limit(m, p, "deepseek4.swiglu_clamp_shexp", k, l->experts.limit);
    }
}

/* Sets n_layer. Blocks past the trunk are a draft head's; ds4's converter counts them even if they are not in the
 * file. */
static void read_depth(pi__model *m, deepseek4 *p)
{
    const int32_t n_draft = pi__hp_u32_or(m, "nextn_predict_layers", 0, 0, PI__MAX_LAYERS);
    p->n_layer = m->n_layer;
    const bool there = n_draft && n_draft < m->n_layer &&
                       pi__has_tensor(m, "nextn.eh_proj.weight", m->n_layer - n_draft);
    if (there) p->n_layer -= n_draft;
    p->ds4 = m->target && pi__has_tensor(m, "mtp.0.e_proj.weight", PI__OF_FILE);
    if (m->target && !p->ds4 && (!there || n_draft != 1))
        pi__model_refuse(m, PI_EINVAL,
                         "model-draft: the file has no draft head with one block, as llama.cpp's converter or ds4 "
                         "writes it");
    if (m->target) p->first = m->n_layer - 1, p->n_layer = 1;
    if (p->ds4) m->blk = "mtp.0";
    if (!m->target) pi__read_trunk(m, p->n_layer);
    if (!m->target) p->n_layer = m->n_trunk;
    p->layers = pi__model_calloc(m, (size_t) p->n_layer, sizeof *p->layers, "the layers");
}

static void read_params(pi__model *m, deepseek4 *p)
{
    read_depth(m, p);
    read_attention(m, p);
    if (!m->target) read_ratios(m, p);
    read_experts(m, p);
    pi__rotation_declare(m, &p->plain, p->n_rot, "rope.freq_base", 1e4f, false);
    pi__rotation_declare(m, &p->scaled, p->n_rot, "attention.compress_rope_freq_base", 1.6e5f, true);
    p->plain.mscale = p->scaled.mscale = 1.0f; /* this model does not scale cosines and sines */
    pi__hp_u32(m, "hyper_connection.count", PI__STREAMS, PI__STREAMS);
    p->n_iter = pi__hp_u32(m, "hyper_connection.sinkhorn_iterations", 1, 1000);
    p->hyper_eps = pi__hp_f32(m, "hyper_connection.epsilon");
}

/* -------------------------------------------------------------------------------------------------------- tensors */

/* Declares h. name: "hc_attn", "hc_ffn" or "hc_head" of layer i, or "output_hc" of the file. n_mix: rows of fn. */
static void want_hyper(pi__model *m, hyper *h, int32_t n_mix, const char *name, int32_t i)
{
    char fn[48], base[48], scale[48];
    snprintf(fn, sizeof fn, "%s_fn.weight", name);
    snprintf(base, sizeof base, "%s_base.weight", name);
    snprintf(scale, sizeof scale, "%s_scale.weight", name);
    pi__declare_weight(m, &h->fn, (int64_t) PI__STREAMS * m->n_embd, n_mix, fn, i);
    pi__declare_vec(m, &h->base, n_mix, base, i);
    pi__declare_vec(m, &h->scale, n_mix == PI__STREAMS ? 1 : 3, scale, i);
}

/* Declares c for entries of dim values. name: "attn" or "indexer". */
static void want_compressor(pi__model *m, compressor *c, int32_t ratio, int32_t dim, const char *name, int32_t i)
{
    static const pi__row_group recent[] = {{.name = "recent-4", .window = CSA + 1, .keep = 2 * CSA},
                                           {.name = "recent-128", .window = 1, .keep = HCA}};
    static const pi__row_group entries = {.name = "compressed", .block = HCA};
    const int32_t w = ratio == CSA ? 2 * dim : dim;
    char kv[64], gate[64], ape[64], norm[64];
    snprintf(kv, sizeof kv, "%s_compressor_kv.weight", name);
    snprintf(gate, sizeof gate, "%s_compressor_gate.weight", name);
    snprintf(ape, sizeof ape, "%s_compressor_ape.weight", name);
    snprintf(norm, sizeof norm, "%s_compressor_norm.weight", name);
    pi__declare_weight(m, &c->kv, m->n_embd, w, kv, i);
    pi__declare_weight(m, &c->gate, m->n_embd, w, gate, i);
    pi__declare_table(m, &c->ape, ratio, w, ape, i);
    pi__declare_vec(m, &c->norm, dim, norm, i);
    c->recent = pi__declare_rows(m, m, i, &recent[ratio == HCA], 1, 2 * w, true);
    c->entries = pi__declare_rows(m, m, i, &entries, ratio, dim, false);
}

static void want_attention(pi__model *m, deepseek4 *p, layer *l, int32_t i)
{
    /* draft heads: their rows are in a group that only sequences with the draft head use */
    const bool draft = m->target != NULL;
    const pi__row_group window = {.name = draft ? "draft window" : "window", .window = p->window, .draft = draft};
    const int64_t E = m->n_embd, D = p->dim, Q = p->rank_q, H = p->n_head, G = p->n_group, O = p->rank_out;
    pi__declare_vec(m, &l->attn_norm, E, "attn_norm.weight", i);
    pi__declare_weight(m, &l->q_a, E, Q, "attn_q_a.weight", i);
    pi__declare_vec(m, &l->q_norm, Q, "attn_q_a_norm.weight", i);
    pi__declare_weight(m, &l->q_b, Q, H * D, "attn_q_b.weight", i);
    pi__declare_weight(m, &l->kv, E, D, "attn_kv.weight", i);
    pi__declare_vec(m, &l->kv_norm, D, "attn_kv_a_norm.weight", i);
    pi__declare_vec(m, &l->sinks, H, "attn_sinks.weight", i);
    pi__declare_head_groups(m, &l->out_a, H * D / G, O, G, "attn_output_a.weight", i);
    pi__declare_weight(m, &l->out_b, G * O, E, "attn_output_b.weight", i);
    l->rows = pi__declare_rows(m, kv_owner(m), i, &window, 1, p->dim, false);
    if (l->ratio) want_compressor(m, &l->comp, l->ratio, p->dim, "attn", i);
    if (l->ratio != CSA) return;
    want_compressor(m, &l->index, CSA, p->indexer_dim, "indexer", i);
    pi__declare_weight(m, &l->index_q, Q, (int64_t) p->indexer_head * p->indexer_dim, "indexer.attn_q_b.weight", i);
    pi__declare_weight(m, &l->index_w, E, p->indexer_head, "indexer.proj.weight", i);
}

static void want_experts(pi__model *m, deepseek4 *p, layer *l, int32_t i)
{
    const int32_t X = p->experts.n_expert, K = p->experts.n_used;
    pi__declare_vec(m, &l->ffn_norm, m->n_embd, "ffn_norm.weight", i);
    pi__declare_weight(m, &l->router, m->n_embd, X, "ffn_gate_inp.weight", i);
    if (m->n_used && i >= p->n_hash) l->experts.n_used = m->n_used;
    if (i < p->n_hash) {
        pi__declare_numbers(m, &l->table, m->n_vocab, K, X, "ffn_gate_tid2eid.weight", i);
    } else {
        pi__declare_vec(m, &l->bias, X, "exp_probs_b.bias", i);
    }
    pi__experts_declare(m, &l->experts, false, i, &p->work);
    pi__mlp_declare(m, &l->shared, "_shexp", i, &p->work);
}

/* Declares layer number i of the file. */
static void want_layer(pi__model *m, deepseek4 *p, int32_t i)
{
    layer *l = &p->layers[i - p->first];
    want_hyper(m, &l->hc_attn, PI__HYPER_MIX, "hc_attn", i);
    want_hyper(m, &l->hc_ffn, PI__HYPER_MIX, "hc_ffn", i);
    want_attention(m, p, l, i);
    want_experts(m, p, l, i);
}

/* Declares the tensors of a draft head; embedding and output are its target's. ds4 stores the two halves of proj as
 * separate tensors. */
static void want_draft(pi__model *m, deepseek4 *p)
{
    const int64_t E = m->n_embd;
    const int32_t i = p->first;
    const bool ds4 = p->ds4;
    m->n_vocab = m->target->n_vocab;
    if (ds4) pi__declare_weight(m, &p->proj, E, E, "e_proj.weight", i);
    else pi__declare_weight(m, &p->proj, 2 * E, E, "nextn.eh_proj.weight", i);
    if (ds4) pi__declare_weight(m, &p->proj_hidden, E, E, "h_proj.weight", i);
    pi__declare_vec(m, &p->embd_norm, E, ds4 ? "enorm.weight" : "nextn.enorm.weight", i);
    pi__declare_vec(m, &p->hidden_norm, E, ds4 ? "hnorm.weight" : "nextn.hnorm.weight", i);
    pi__declare_vec(m, &p->head.output_norm, E, ds4 ? "norm.weight" : "nextn.shared_head_norm.weight", i);
}

static void check_target(pi__model *m)
{
    const pi__tensor *embd = pi__gguf_find_tensor(m->g, "token_embd.weight"); /* some files have a copy */
    if (embd && embd->ne[1] != m->target->n_vocab)
        pi__model_refuse(m, PI_EINVAL, "model-draft has %lld tokens, the model %d: give a drafter of this model",
                         (long long) embd->ne[1], m->target->n_vocab);
    if (m->target->arch != &pi__arch_deepseek4 || m->target->n_embd != m->n_embd)
        pi__model_refuse(m, PI_EINVAL,
                         "model-draft: a deepseek4 draft head for an embedding of %d values does not draft for a "
                         "%s model of %d",
                         m->n_embd, m->target->arch->name, m->target->n_embd);
}

static void declare(pi__model *m)
{
    deepseek4 *p = m->arch_data;
    if (m->target) check_target(m);
    read_params(m, p);
    m->no_draft = !m->target;
    if (m->target) want_draft(m, p);
    else pi__head_declare(m, &p->head, false);
    want_hyper(m, &p->hc_head, PI__STREAMS, p->ds4 ? "hc_head" : "output_hc", p->ds4 ? 0 : PI__OF_FILE);
    for (int32_t i = 0; i < p->n_layer && pi__model_ok(m); i++) want_layer(m, p, p->first + i);
}

static void loaded(pi__model *m)
{
    deepseek4 *p = m->arch_data;
    for (int32_t i = 0; i < p->n_layer; i++) {
        p->layers[i].experts.bias = p->layers[i].bias;
        p->layers[i].experts.table = p->layers[i].table;
    }
}

static void layout(pi__model *m, const pi__limits *lim, pi__arena *a)
{
    deepseek4 *p = m->arch_data;
    const size_t T = (size_t) lim->max_tokens, E = (size_t) m->n_embd, D = (size_t) p->dim, f = sizeof(float);
    p->x = pi__arena_take(a, T * PI__STREAMS * E * f);
    p->y = pi__arena_take(a, T * E * f);
    p->mix = pi__arena_take(a, T * PI__HYPER_MIX * f);
    p->coef = pi__arena_take(a, T * PI__HYPER_COEF * f);
    p->qa = pi__arena_take(a, T * (size_t) p->rank_q * f);
    p->q = pi__arena_take(a, T * (size_t) p->n_head * D * f);
    p->row = pi__arena_take(a, T * D * f);
    p->comp = pi__arena_take(a, T * 4 * D * f);
    p->icomp = pi__arena_take(a, T * 4 * (size_t) p->indexer_dim * f);
    p->iq = pi__arena_take(a, T * (size_t) p->indexer_head * (size_t) p->indexer_dim * f);
    p->iw = pi__arena_take(a, T * (size_t) p->indexer_head * f);
    p->pick = pi__arena_take(a, T * (size_t) p->n_top * sizeof *p->pick);
    p->low = pi__arena_take(a, T * (size_t) p->n_group * (size_t) p->rank_out * f);
    p->ff = pi__arena_take(a, T * (size_t) p->work.max_ff * f);
    p->routed = pi__arena_take(a, T * E * f);
    p->routes = pi__arena_take(a, T * (size_t) p->work.n_expert * f);
    pi__rotation_layout(&p->plain, a, T);
    pi__rotation_layout(&p->scaled, a, T);
    p->rows = pi__arena_take(a, T * E * f);
    const size_t drafts = m->target ? T : 0;
    p->before = pi__arena_take(a, drafts * PI__STREAMS * E * f);
    p->pairs = pi__arena_take(a, drafts * PI__STREAMS * 2 * E * f);
    p->last = pi__arena_take(a, m->target ? (size_t) lim->max_rows * PI__STREAMS * E * f : 0);
}

/* ------------------------------------------------------------------------------------------------------ the graph */

/* Runs op hyper_pre: y [n, E] = input of h's block, read from the residual streams. Returns the op's arguments, for
 * hyper_post. */
static pi__hyper read_streams(pi__model *m, deepseek4 *p, const hyper *h, int32_t n)
{
    const int64_t n_mix = h->fn.n_out, wide = (int64_t) PI__STREAMS * m->n_embd;
    pi__lin_in in = {.kind = PI__IN_PLAIN, .x = p->x, .ldx = wide};
    pi__matmul(m, &in, n, &h->fn, p->mix, n_mix);
    pi__hyper a = {.n_rows = n,
                   .x = p->x,
                   .n = m->n_embd,
                   .mix = p->mix,
                   .scale = h->scale,
                   .base = h->base,
                   .norm_eps = p->eps,
                   .eps = p->hyper_eps,
                   .n_iter = n_mix == PI__STREAMS ? 0 : p->n_iter,
                   .coef = p->coef,
                   .y = p->y};
    pi__op_hyper_pre(m->be, NULL, &a);
    return a;
}

/* Writes the entries of the compression windows that end in this step to c's cache. x: values and scores of the
 * tokens. */
static void compress(pi__model *m, deepseek4 *p, const pi__batch *b, const layer *l, const compressor *c,
                     const float *x, int32_t dim)
{
    const pi__compress a = {.recent = &m->kv[c->recent], .entries = &m->kv[c->entries], .x = x, .ldx = 2 * c->kv.n_out,
                            .ratio = l->ratio, .dim = dim, .overlap = l->ratio == CSA, .ape = c->ape, .norm = c->norm,
                            .eps = p->eps, .freq = p->scaled.freq, .n_rot = p->n_rot};
    pi__op_compress(m->be, b, &a);
}

/* Computes the projections of the normed input: queries (q), values and scores (comp, icomp), and the indexer's iq
 * and iw. Writes the token's row to the cache. */
static void project(pi__model *m, deepseek4 *p, const pi__batch *b, const layer *l)
{
    const int64_t Q = p->rank_q, HD = l->q_b.n_out, w = l->comp.kv.n_out, iw = l->index.kv.n_out, I = p->indexer_head;
    pi__lin_in in = pi__normed(m, p->y, l->attn_norm, p->eps);
    /* The next matrices' input is the last output: the backend can pack it in the same launch. */
    const pi__lin lin[] = {
        {&l->index.kv, p->icomp, 2 * iw}, {&l->index.gate, p->icomp + iw, 2 * iw}, {&l->index_w, p->iw, I},
        {&l->comp.kv, p->comp, 2 * w},    {&l->comp.gate, p->comp + w, 2 * w},     {&l->q_a, p->qa, Q},
        {&l->kv, p->row, p->dim}};
    const int32_t from = l->ratio == CSA ? 0 : l->ratio ? 3 : 5;
    pi__linear all = pi__linear_of(&in, b->n_tokens, lin + from, 7 - from);
    pi__op_linear(m->be, NULL, &all);
    in = (pi__lin_in) {.kind = PI__IN_RMSNORM, .x = p->qa, .ldx = Q, .w = l->q_norm, .eps = p->eps};
    const pi__linear queries = {.in = in, .n_rows = b->n_tokens, .n_lin = l->ratio == CSA ? 2 : 1,
                                .lin = {{&l->q_b, p->q, HD}, {&l->index_q, p->iq, I * p->indexer_dim}}};
    pi__op_linear(m->be, NULL, &queries);
    const pi__mla_qkv prep = {.rows = &kv_owner(m)->kv[l->rows],
                              .q = p->q,
                              .ldq = HD,
                              .n_head = p->n_head,
                              .dim = p->dim,
                              .q_norm = true,
                              .q_scale = 1.0f / sqrtf((float) p->dim),
                              .row = p->row,
                              .ldr = p->dim,
                              .norm = l->kv_norm,
                              .n_norm = p->dim,
                              .eps = p->eps,
                              .rope = l->ratio ? p->scaled.table : p->plain.table,
                              .n_rot = p->n_rot};
    pi__op_mla_qkv(m->be, b, &prep);
}

/* y [T, E] = output projection of the attention of the queries. */
static void attend(pi__model *m, deepseek4 *p, const pi__batch *b, const layer *l)
{
    const int64_t HD = l->q_b.n_out, IJ = (int64_t) p->indexer_head * p->indexer_dim, GO = l->out_b.n_in;
    const float *rope = l->ratio ? p->scaled.table : p->plain.table;
    if (l->ratio) compress(m, p, b, l, &l->comp, p->comp, p->dim);
    if (l->ratio == CSA) {
        compress(m, p, b, l, &l->index, p->icomp, p->indexer_dim);
        const pi__mla_qkv prep = {.q = p->iq,
                                  .ldq = IJ,
                                  .n_head = p->indexer_head,
                                  .dim = p->indexer_dim,
                                  .q_scale = 1.0f,
                                  .rope = rope,
                                  .n_rot = p->n_rot};
        pi__op_mla_qkv(m->be, b, &prep);
        const pi__indexer index = {.entries = &m->kv[l->index.entries], .q = p->iq, .ldq = IJ, .w = p->iw,
                                   .ldw = p->indexer_head, .n_head = p->indexer_head, .dim = p->indexer_dim,
                                   .scale = 1.0f / sqrtf((float) IJ), .n_top = p->n_top, .pick = p->pick};
        pi__op_indexer(m->be, b, &index);
    }
    const pi__sparse att = {.rows = &kv_owner(m)->kv[l->rows],
                            .entries = l->ratio ? &m->kv[l->comp.entries] : NULL,
                            .q = p->q,
                            .ldq = HD,
                            .n_head = p->n_head,
                            .dim = p->dim,
                            .dim_v = p->dim,
                            .window = p->window,
                            .first = m->target != NULL,
                            .pick = l->ratio == CSA ? p->pick : NULL,
                            .n_top = p->n_top,
                            .sinks = l->sinks,
                            .rope = rope,
                            .n_rot = p->n_rot,
                            .out = p->q,
                            .ldo = HD};
    pi__op_sparse(m->be, b, &att);
    const pi__head_linear groups = {.w = &l->out_a,
                                    .n_rows = b->n_tokens,
                                    .x = p->q,
                                    .ldx = HD,
                                    .x_step = l->out_a.n_in,
                                    .y = p->low,
                                    .ldy = GO,
                                    .y_step = p->rank_out,
                                    .large = true};
    pi__op_head_linear(m->be, NULL, &groups);
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = p->low, .ldx = GO};
    pi__matmul(m, &in, b->n_tokens, &l->out_b, p->y, m->n_embd);
}

/* y [T, E] = experts of y, including the shared one. */
static void feed_forward(pi__model *m, deepseek4 *p, const pi__batch *b, const layer *l)
{
    const int64_t E = m->n_embd, F = l->shared.n_ff, X = l->experts.n_expert;
    const int32_t n = b->n_tokens;
    const pi__lin_in in = pi__normed(m, p->y, l->ffn_norm, p->eps);
    const pi__linear all = {.in = in, .n_rows = n, .n_lin = 3,
                            .lin = {{&l->router, p->routes, X}, {&l->shared.gate, p->ff, 2 * F},
                                    {&l->shared.up, p->ff + F, 2 * F}}};
    pi__op_linear(m->be, NULL, &all);
    pi__experts_forward(m, &l->experts, &all.in, n, p->routes, X, b, p->routed);
    pi__mlp_down(m, &l->shared, p->ff, n, p->y);
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = p->y, .y = p->routed, .scale = 1.0f, .n_rows = n, .n = E});
}

/* Runs the layer after project(): attention, hyper_post, and the feed-forward with its hyper-connection. */
static void after_project(pi__model *m, deepseek4 *p, const pi__batch *b, const layer *l, const pi__hyper *attn)
{
    attend(m, p, b, l);
    pi__op_hyper_post(m->be, NULL, attn);
    const pi__hyper ffn = read_streams(m, p, &l->hc_ffn, b->n_tokens);
    feed_forward(m, p, b, l);
    pi__op_hyper_post(m->be, NULL, &ffn);
}

static void forward(pi__model *m, const pi__batch *b, int32_t n_layer)
{
    deepseek4 *p = m->arch_data;
    const int64_t E = m->n_embd;
    pi__head_embed(m, &p->head, b, p->y);
    pi__op_copy_2d(m->be, NULL,
                   &(pi__copy_2d) {.x = p->y,
                                   .ldx = E,
                                   .n_shards = PI__STREAMS,
                                   .n_rows = b->n_tokens,
                                   .n = E,
                                   .y = p->x,
                                   .ldy = PI__STREAMS * E});
    pi__rotation_forward(m, &p->plain, b);
    pi__rotation_forward(m, &p->scaled, b);
    for (int32_t i = 0; i < n_layer; i++) {
        const pi__hyper h = read_streams(m, p, &p->layers[i].hc_attn, b->n_tokens);
        project(m, p, b, &p->layers[i]);
        after_project(m, p, b, &p->layers[i], &h);
    }
    if (!b->n_rows) return;
    read_streams(m, p, &p->hc_head, b->n_tokens);
    pi__gather_logits_rows(m, b, p->y, E, p->rows);
}

static void logits(pi__model *m, int32_t first, int32_t n, float *out)
{
    const deepseek4 *p = m->arch_data;
    pi__head_logits(m, &p->head, p->rows + (size_t) first * (size_t) m->n_embd, n, out);
}

static void hidden_states(pi__model *m, int32_t first, int32_t n, float *out)
{
    const deepseek4 *p = m->arch_data;
    pi__head_hidden(m, &p->head, p->rows + (size_t) first * (size_t) m->n_embd, n, out);
}

/* x [n, 4E] = proj of the n rows of pairs: the draft head's input streams. */
static void enter(pi__model *m, deepseek4 *p, int32_t n)
{
    const int64_t E = m->n_embd, wide = PI__STREAMS * E;
    for (int32_t i = 0; i < PI__STREAMS; i++) {
        pi__lin_in in = {.kind = PI__IN_PLAIN, .x = p->pairs + i * 2 * E, .ldx = 2 * wide};
        pi__matmul(m, &in, n, &p->proj, p->x + i * E, wide);
        if (!p->ds4) continue;
        in.x += E;
        pi__matmul(m, &in, n, &p->proj_hidden, p->before + i * E, wide);
    }
    if (!p->ds4) return;
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = p->x, .y = p->before, .scale = 1.0f, .n_rows = n, .n = wide});
}

/* Drafts: the head's input streams are computed from the token's embedding and the target's streams after the previous
 * token. When drafting after a draft (chained), the head's own last streams replace the target's. */
static void draft(pi__model *m, const pi__batch *b, bool chained, float *logits)
{
    deepseek4 *p = m->arch_data;
    const deepseek4 *t = m->target->arch_data;
    const int64_t E = m->n_embd, wide = PI__STREAMS * E;
    const int32_t n = b->n_tokens;
    pi__head_embed(m, &t->head, b, p->y);
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->hidden_row, .n_rows = n, .n = wide,
                                                        .x = chained ? p->last : t->x, .out = p->before});
    pi__norm a = {.out = p->pairs + E, .ldo = 2 * E, .x = p->before, .w = p->hidden_norm, .eps = p->eps,
                  .n_rows = n * PI__STREAMS, .n = E};
    pi__op_norm(m->be, NULL, &a);
    for (int32_t i = 0; i < PI__STREAMS; i++) {
        a = (pi__norm) {.out = p->pairs + i * 2 * E,
                        .ldo = 2 * wide,
                        .x = p->y,
                        .w = p->embd_norm,
                        .eps = p->eps,
                        .n_rows = n,
                        .n = E};
        pi__op_norm(m->be, NULL, &a);
    }
    enter(m, p, n);
    pi__rotation_forward(m, &p->plain, b);
    const pi__hyper h = read_streams(m, p, &p->layers[0].hc_attn, n);
    project(m, p, b, &p->layers[0]);
    if (!logits) return;
    after_project(m, p, b, &p->layers[0], &h);
    pi__gather_logits_rows(m, b, p->x, wide, p->last);
    read_streams(m, p, &p->hc_head, n);
    pi__gather_logits_rows(m, b, p->y, E, p->rows);
    const pi__lin_in in = pi__normed(m, p->rows, p->head.output_norm, p->eps);
    pi__matmul(m, &in, b->n_rows, &t->head.output, logits, m->n_vocab);
}

const pi__arch pi__arch_deepseek4 = {
    .name = "deepseek4", .size = sizeof(deepseek4), .declare = declare, .loaded = loaded, .layout = layout,
    .forward = forward, .logits = logits, .hidden = hidden_states, .draft = draft, .draft_has_cache = true,
};
