/* DFlash: block drafters, which draft a block of tokens in one pass. GGUF architecture "dflash"; also under lucebox's
 * names "qwen35-dflash-draft" and "gemma4-dflash-draft".
 *
 * A DFlash drafter does not process the text itself. Its input for a token is the target's hidden states: the
 * residual streams before some of the target's layers (features) are concatenated and projected to the drafter's
 * width (fc, a norm). From these, each drafter layer computes the keys and values for the token's position (inject).
 * They never change.
 *
 *     position      0 .. n-1                     n       n+1 .. n+B-1
 *     cache         keys, values of features     of the block, for this pass only
 *     the block     -                            token   mask .. mask         attends to all of the block and the cache
 *     output        -                            -       the tokens n+1 .. n+B-1, in one pass
 *
 * DSpark adds a Markov head: each token adds a bias to the logits of the next token (a product of two low-rank
 * matrices), so a block's tokens are sampled one after the other. Often it has a confidence head, and the first
 * position of a block drafts as well.
 *
 * DFlash2 adds a convolution over the block's tokens before and after attention and feed-forward of each layer. Part
 * of its taps is computed from the token's own row (pi__block_conv). It also adds a selector. The selector takes the
 * top candidates of each row and chooses the one with the best sum of logit and affinity to the token chosen before:
 * sum over r of before[r] * gate[r] * after[r], with a vector of the previous token, one of the row, and one of the
 * candidate. The engine runs the selector along the block (engine/draft_select.c).
 *
 * The layers are Qwen 3 layers, plus Gemma's additions if the file has them. Embedding and LM head may be the
 * target's. A head with fewer tokens lists their ids (d2t). The drafter's cache is in separate groups of the target's
 * cache. Only sequences that use the drafter fill them, and these groups are part of the sequences' cached prefixes.
 *
 * After "DFlash: Block Diffusion for Flash Speculative Decoding" (arXiv 2602.06036).
 *
 * Symbols in shapes: T tokens of the step, E embedding, W the target's embedding, N captured layers, H query heads, K
 * key/value heads, D head size; V rows of the LM head, M rank of the Markov head or of the selector, K taps of
 * convolutions, P values of a token's own taps around one block (before and after). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/blocks.h"

/* CHUNK: max tokens of one copy of features */
enum { CHUNK = 256, MOST_BLOCK = 256, MOST_TAPS = 64 };

/* Weights of the two convolutions around attention or the feed-forward: one before, one after. */
typedef struct around {
    /* [P, E] maps the normed row to the token's own taps: for the convolution before, then after */
    pi__weight own;
    float *base;             /* [2, K, E] taps that all tokens share */
} around;

typedef struct layer {
    pi__attn attn;
    float *ffn_norm;         /* [E] RMSNorm before the feed-forward */
    pi__mlp mlp;
    float *post_ffn_norm;    /* [E]; NULL = none */
    float out_scale;         /* factor of the stream at the layer's end */
    around attn_conv, ffn_conv; /* DFlash2 only */
} layer;

typedef struct dflash {
    bool lucebox;            /* the file has lucebox's tensor names; its window layers are causal */
    int32_t n_ff;
    pi__attn attn;           /* template of the layers */
    int act;                 /* activation of the feed-forward */
    pi__rotation rot;
    pi__head head;           /* LM head and embedding; empty matrices = the target's are used */
    const pi__weight *embd, *output; /* the matrices in use: the drafter's own or the target's */
    pi__weight fc;           /* [E, N*W] projects the target's features */
    float *enc_norm;         /* [E] norm of fc's output */
    layer *layers;           /* [n_layer] */
    pi__work work;           /* scratch; at the end, y holds the residual rows of the last block */
    float *features;         /* scratch: [CHUNK, N*W] the target's features */
    /* DSpark; rank 0 = not DSpark */
    int32_t rank;            /* M */
    pi__weight markov_in, markov_out; /* [tokens, M], [V, M] logits += markov_out markov_in[previous token] */
    /* [1, E+M] confidence logit from a normed row and the previous token's vector; n_out 0 = no confidence head */
    pi__weight sure;
    float *before;           /* scratch: [R, M] row of markov_in for each previous token */
    float *bias;             /* scratch: [R, V] their bias of the logits */
    float *pair;             /* scratch: [R, E+M] input of `sure` */
    float *sureness;         /* scratch: [R] output of `sure`: confidence logits */
    /* DFlash2; n_tap 0 = not DFlash2 */
    int32_t n_tap, group;    /* K; columns that share one of a token's own taps */
    int64_t n_own;           /* P */
    float *normed, *conv;    /* scratch: [T, E] normed stream; output of a convolution */
    float *own;              /* scratch: [T, P] the tokens' own taps */
    pi__weight select;       /* [M, E] maps a normed row to its gate */
    pi__weight select_before, select_after; /* [tokens, M] vectors of previous token, candidate */
    float *gate;             /* scratch: [R, M] gates of the rows */
    float *vec_before, *vec_after; /* scratch: [T, M] rows of select_before, select_after */
} dflash;

/* ---- declaring */

/* Returns the tensor or key name that the file uses: llama.cpp's or lucebox's. */
static const char *named(const dflash *p, const char *name, const char *lucebox) { return p->lucebox ? lucebox : name; }

/* Refuses drafters of related kinds that are not supported. */
static void refuse_kin(pi__model *m)
{
    static const struct {
        const char *tensor, *what;
    } kin[] = {{"hc_head_fn.weight", "DSpark for DeepSeek V4"}};
    for (size_t i = 0; i < sizeof kin / sizeof *kin; i++)
        if (pi__has_tensor(m, kin[i].tensor, PI__OF_FILE))
            pi__model_refuse(m, PI_EUNSUPPORTED,
                             "model-draft: this drafter is %s, which is not supported: give a DFlash drafter",
                             kin[i].what);
    const float v = pi__hp_f32_or(m, "attention.value_scale", 0);
    if (v != 0 && v != 1)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s.attention.value_scale is %g: only 1 is supported",
                         m->arch->name, (double) v);
}

static void check_target(pi__model *m)
{
    const pi__model *t = m->target;
    if (!t->arch->captures || !t->head)
        pi__model_refuse(m, PI_EUNSUPPORTED, "model-draft: a %s file cannot draft for a %s model", m->arch->name,
                         t->arch->name);
}

static void read_heads(pi__model *m, dflash *p)
{
    pi__attn *a = &p->attn;
    a->n_head = pi__hp_u32(m, "attention.head_count", 1, PI__MAX_HEADS);
    a->n_head_kv = pi__hp_u32_or(m, "attention.head_count_kv", (uint32_t) a->n_head, 1, PI__MAX_HEADS);
    const int32_t def = m->n_embd / a->n_head;
    a->head_dim = pi__hp_u32_or(m, "attention.key_length", def > 1 ? (uint32_t) def : 2, 2, PI__MAX_HEAD_DIM);
    const int32_t vdim = pi__hp_u32_or(m, "attention.value_length", (uint32_t) a->head_dim, 1, PI__MAX_HEAD_DIM);
    const int32_t n_rot = pi__hp_u32_or(m, "rope.dimension_count", (uint32_t) a->head_dim, 2, (uint32_t) a->head_dim);
    const float scale = pi__hp_f32_or(m, "attention.scale", 0);
    if (vdim != a->head_dim || a->head_dim % 32)
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "metadata %s.attention.key_length %d and value_length %d must be equal and a "
                         "multiple of 32",
                         m->arch->name, a->head_dim, vdim);
    if (a->n_head % a->n_head_kv)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.attention.head_count %d is not a multiple of head_count_kv %d",
                         m->arch->name, a->n_head, a->n_head_kv);
    a->eps = p->head.eps = pi__hp_f32(m, "attention.layer_norm_rms_epsilon");
    a->q_scale = scale > 0 ? scale : 1.0f / sqrtf((float) a->head_dim);
    a->flags = PI__ATTN_QK_NORM | PI__ATTN_BLOCK;
    a->rot = &p->rot;
    a->owner = m->target;
    pi__rotation_declare(m, &p->rot, n_rot, "rope.freq_base", 1e4f, true);
    pi__rotation_factors(m, &p->rot, false);
}

static void read_activation(pi__model *m, dflash *p)
{
    char key[96];
    pi__str s = {0};
    p->act = m->arch == &pi__arch_dflash_gemma4 ? PI__IN_GEGLU : PI__IN_SWIGLU;
    snprintf(key, sizeof key, "%s.hidden_activation", m->arch->name);
    if (!pi__model_ok(m) || pi__gguf_get_str(m->g, key, &s, &m->error) || !s.p) return;
    const bool gelu = (s.n == 4 && !memcmp(s.p, "gelu", 4)) || (s.n == 17 && !memcmp(s.p, "gelu_pytorch_tanh", 17));
    if (!gelu && (s.n != 4 || memcmp(s.p, "silu", 4)))
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata %s is not \"silu\", \"gelu\" or \"gelu_pytorch_tanh\"", key);
    p->act = gelu ? PI__IN_GEGLU : PI__IN_SWIGLU;
}

/* Reads the block size and the mask token. */
static void read_block(pi__model *m, dflash *p)
{
    uint32_t mask = UINT32_MAX;
    char key[96];
    m->block.size = pi__hp_u32_or(m, named(p, "block_size", "dflash.block_size"), 16, 2, MOST_BLOCK);
    snprintf(key, sizeof key, "%s.dflash.mask_token_id", m->arch->name);
    const char *name = p->lucebox && pi__gguf_find(m->g, key) ? key : "tokenizer.ggml.mask_token_id";
    if (!pi__model_ok(m) || pi__gguf_get_u32(m->g, name, &mask, UINT32_MAX, &m->error)) return;
    if (mask >= (uint32_t) m->n_vocab)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s must be one of the model's %d tokens", name, m->n_vocab);
    m->block.mask = (int32_t) mask;
}

/* Sets c for lucebox's Qwen drafters, which only give the number of layers: evenly spread over the target's layers,
 * from layer 2 to the fourth from last. */
static void spread_layers(pi__model *m, pi__captured *c)
{
    const int32_t L = m->target->n_trunk;
    c->n = pi__hp_u32(m, "dflash.n_target_layers", 1, PI__MAX_CAPTURE);
    for (int32_t k = 0; k < c->n; k++)
        c->layer[k] = 2 + (c->n > 1 ? (int32_t) lround((double) k * (L - 4) / (c->n - 1)) : 0);
}

/* Reads the list of target layers: their inputs are the drafter's features. lucebox numbers layers by their outputs. */
static void read_captured(pi__model *m, const dflash *p)
{
    pi__captured *c = &m->target->captured;
    const char *name = named(p, "target_layers", "dflash.target_layer_ids");
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->arch->name, name);
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    if (!pi__model_ok(m)) return;
    if (!kv && p->lucebox) spread_layers(m, c);
    else if (!kv || kv->type != PI__GGUF_ARR || kv->arr_type > PI__GGUF_I32 || kv->n < 1 || kv->n > PI__MAX_CAPTURE)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s needs 1 to %d whole numbers", key, PI__MAX_CAPTURE);
    else c->n = (int32_t) kv->n;
    for (int32_t k = 0; k < c->n && pi__model_ok(m); k++) {
        const int64_t layer = kv ? pi__gguf_elem_i64(kv, (uint64_t) k) + p->lucebox : c->layer[k];
        if (layer < 0 || layer > m->target->n_trunk)
            pi__model_refuse(m, PI_EINVAL, "model-draft: it reads layer %lld of its model, but this model has %d: "
                             "give a drafter of this model", (long long) layer, m->target->n_trunk);
        else c->layer[k] = (int32_t) layer;
    }
}

/* Reads for each layer whether it has a sliding window. */
static void read_windows(pi__model *m, dflash *p)
{
    const int32_t window = pi__hp_u32_or(m, "attention.sliding_window", 0, 0, 1 << 28);
    bool causal = false;
    char key[96];
    snprintf(key, sizeof key, "%s.attention.causal", m->arch->name);
    if (pi__model_ok(m)) pi__gguf_get_bool(m->g, key, &causal, false, &m->error);
    const pi__gguf_kv *kv = window
                                ? pi__hp_array(m, "attention.sliding_window_pattern", PI__GGUF_BOOL, m->n_layer, false)
                                : NULL;
    if (window && !kv)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.attention.sliding_window_pattern needs a bool for each layer",
                         m->arch->name);
    if (causal) p->attn.flags &= ~PI__ATTN_BLOCK;
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++) {
        pi__attn *a = &p->layers[i].attn;
        *a = p->attn;
        if (!kv || !pi__gguf_elem_u64(kv, (uint64_t) i)) continue;
        a->window = window;
        if (p->lucebox) a->flags &= ~PI__ATTN_BLOCK;
    }
}

static void want_around(pi__model *m, const dflash *p, around *c, const char *base, const char *own, int32_t i)
{
    pi__declare_tables(m, &c->base, 2, p->n_tap, m->n_embd, base, i);
    pi__declare_weight(m, &c->own, m->n_embd, p->n_own, own, i);
}

static void want_layer(pi__model *m, dflash *p, int32_t i)
{
    layer *l = &p->layers[i];
    const int64_t E = m->n_embd;
    if (pi__has_tensor(m, "attn_qkv.weight", i))
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "tensor blk.%d.attn_qkv.weight: a drafter needs separate query, key and value matrices", i);
    if (!pi__has_tensor(m, "attn_v.weight", i)) l->attn.flags |= PI__ATTN_K_IS_V | PI__ATTN_V_NORM;
    pi__declare_vec(m, &l->attn.norm, E, "attn_norm.weight", i);
    pi__attn_declare(m, &l->attn, i, &p->work);
    pi__declare_vec_or_not(m, &l->attn.sinks, l->attn.n_head, "attn_sinks.weight", i);
    pi__declare_vec_or_not(m, &l->attn.post_norm, E, "post_attention_norm.weight", i);
    pi__declare_vec(m, &l->ffn_norm, E, "ffn_norm.weight", i);
    l->mlp = (pi__mlp) {.n_ff = p->n_ff, .act = p->act};
    pi__mlp_declare(m, &l->mlp, "", i, &p->work);
    pi__declare_vec_or_not(m, &l->post_ffn_norm, E, "post_ffw_norm.weight", i);
    l->out_scale = 1;
    pi__declare_host_or_not(m, &l->out_scale, 1, "layer_output_scale.weight", i);
    if (!p->n_tap) return;
    want_around(m, p, &l->attn_conv, "attn_conv_base", "attn_conv_proj.weight", i);
    want_around(m, p, &l->ffn_conv, "ffn_conv_base", "ffn_conv_proj.weight", i);
}

/* Declares the drafter's own embedding and LM head, if it has them; else uses the target's. */
static void want_head(pi__model *m, dflash *p)
{
    const pi__model *t = m->target;
    const int64_t E = m->n_embd, V = m->n_vocab;
    const pi__tensor *d2t = pi__gguf_find_tensor(m->g, "d2t");
    m->block.n_out = d2t && d2t->ne[0] > 0 && d2t->ne[0] < V ? (int32_t) d2t->ne[0] : m->n_vocab;
    pi__declare_weight_or_not(m, &p->head.tok_embd, E, V, "token_embd.weight", PI__OF_FILE);
    if (d2t) {
        int32_t *token = pi__model_calloc(m, (size_t) m->block.n_out, sizeof *token, "the drafter's tokens");
        pi__declare_weight(m, &p->head.output, E, m->block.n_out, "output.weight", PI__OF_FILE);
        pi__declare_ids(m, token, m->block.n_out, m->n_vocab, "d2t", PI__OF_FILE);
        m->block.token = token;
    } else {
        pi__declare_weight_or_not(m, &p->head.output, E, V, "output.weight", PI__OF_FILE);
    }
    p->embd = p->head.tok_embd.n_out ? &p->head.tok_embd : &t->head->tok_embd;
    p->output = p->head.output.n_out     ? &p->head.output
                : p->head.tok_embd.n_out ? &p->head.tok_embd
                                         : pi__head_output(t->head);
    if (p->embd->n_in != E || p->output->n_in != E)
        pi__model_refuse(m, PI_EINVAL,
                         "model-draft: its embedding has %lld values, the model's %d: give a drafter of this model",
                         (long long) E, t->n_embd);
    pi__declare_vec(m, &p->head.output_norm, E, "output_norm.weight", PI__OF_FILE);
}

/* Declares DSpark's heads. */
static void want_markov(pi__model *m, dflash *p)
{
    const pi__tensor *t = pi__gguf_find_tensor(m->g, "markov_w1.weight");
    char key[96];
    if (!t || !pi__model_ok(m)) return;
    m->block.chained = m->block.anchor = true;
    snprintf(key, sizeof key, "%s.sample_from_anchor", m->arch->name);
    pi__gguf_get_bool(m->g, key, &m->block.anchor, true, &m->error);
    if (t->ne[0] < 1 || t->ne[0] > PI__MAX_EMBD)
        pi__model_refuse(m, PI_EFORMAT, "tensor markov_w1.weight has %lld columns", (long long) t->ne[0]);
    if (!pi__model_ok(m)) return;
    p->rank = (int32_t) t->ne[0];
    pi__declare_weight(m, &p->markov_in, p->rank, m->n_vocab, "markov_w1.weight", PI__OF_FILE);
    pi__declare_weight(m, &p->markov_out, p->rank, m->block.n_out, "markov_w2.weight", PI__OF_FILE);
    pi__declare_weight_or_not(m, &p->sure, m->n_embd + p->rank, 1, "conf_proj.weight", PI__OF_FILE);
    pi__declare_host_or_not(m, &m->block.sure_bias, 1, "conf_proj.bias", PI__OF_FILE);
}

/* Reads a logits factor that must be positive if present. */
static float positive_or(pi__model *m, const char *name, float def)
{
    const float v = pi__hp_f32_or(m, name, def);
    if (v != def && !(v > 0 && isfinite(v)))
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.%s is %g: it must be a positive number", m->arch->name, name,
                         (double) v);
    return v;
}

/* Declares DFlash2's convolutions and selector. */
static void want_selector(pi__model *m, dflash *p)
{
    if (!pi__has_tensor(m, "selector_hidden.weight", PI__OF_FILE) || !pi__model_ok(m)) return;
    if (p->rank)
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "model-draft: this drafter has a Markov head and a selector: give one with either");
    p->n_tap = pi__hp_u32(m, "conv_kernel_size", 1, MOST_TAPS);
    p->group = pi__hp_u32(m, "conv_group_size", 1, (uint32_t) m->n_embd);
    m->block.rank = pi__hp_u32(m, "selector_rank", 1, PI__MAX_EMBD);
    m->block.n_select = pi__hp_u32(m, "selector_top_k", 1, PI__MAX_SELECT);
    m->block.logit_scale = positive_or(m, "logit_scale", 1);
    m->block.softcap = positive_or(m, "final_logit_softcapping", 0);
    if (m->n_embd % p->group)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.embedding_length %d is not a multiple of conv_group_size %d",
                         m->arch->name, m->n_embd, p->group);
    p->n_own = 2 * (int64_t) p->n_tap * (m->n_embd / p->group);
    pi__declare_weight(m, &p->select, m->n_embd, m->block.rank, "selector_hidden.weight", PI__OF_FILE);
    pi__declare_weight(m, &p->select_before, m->block.rank, m->n_vocab, "selector_predecessor.weight", PI__OF_FILE);
    pi__declare_weight(m, &p->select_after, m->block.rank, m->n_vocab, "selector_successor.weight", PI__OF_FILE);
}

static void declare(pi__model *m)
{
    dflash *p = m->arch_data;
    p->lucebox = m->arch != &pi__arch_dflash;
    check_target(m);
    refuse_kin(m);
    p->layers = pi__model_calloc(m, (size_t) m->n_layer, sizeof *p->layers, "the layers");
    if (!pi__model_ok(m)) return;
    m->n_vocab = m->target->n_vocab;
    p->n_ff = pi__hp_u32(m, "feed_forward_length", 1, PI__MAX_EMBD);
    const float def = m->arch == &pi__arch_dflash_gemma4 ? sqrtf((float) m->n_embd) : 0,
                scale = pi__hp_f32_or(m, "embedding_scale", def);
    p->head.embd_scale = scale != 0 ? scale : 1;
    read_heads(m, p);
    read_activation(m, p);
    read_windows(m, p);
    read_block(m, p);
    read_captured(m, p);
    if (!pi__model_ok(m)) return;
    pi__declare_weight(m, &p->fc, (int64_t) m->target->captured.n * m->target->n_embd, m->n_embd,
                    named(p, "fc.weight", "dflash.fc.weight"), PI__OF_FILE);
    pi__declare_vec(m, &p->enc_norm, m->n_embd, named(p, "enc.output_norm.weight", "dflash.hidden_norm.weight"),
                    PI__OF_FILE);
    want_head(m, p);
    want_markov(m, p);
    want_selector(m, p);
    for (int32_t i = 0; i < m->n_layer && pi__model_ok(m); i++) want_layer(m, p, i);
}

static void loaded(pi__model *m)
{
    dflash *p = m->arch_data;
    for (int32_t i = 0; i < m->n_layer; i++)
        if (!isfinite(p->layers[i].out_scale))
            pi__model_refuse(m, PI_EFORMAT, "tensor blk.%d.layer_output_scale.weight is not a finite number", i);
    if (!isfinite(m->block.sure_bias)) pi__model_refuse(m, PI_EFORMAT, "tensor conf_proj.bias is not a finite number");
    pi__rotation_loaded(m, &p->rot);
}

static void layout_selector(pi__model *m, dflash *p, const pi__limits *lim, pi__arena *a)
{
    const size_t T = p->n_tap ? (size_t) lim->max_tokens : 0, E = (size_t) m->n_embd, M = (size_t) m->block.rank,
                 f = sizeof(float);
    p->normed = pi__arena_take(a, T * E * f);
    p->conv = pi__arena_take(a, T * E * f);
    p->own = pi__arena_take(a, T * (size_t) p->n_own * f);
    m->block.gate = p->gate = pi__arena_take(a, (size_t) lim->max_rows * M * f);
    m->block.before = p->vec_before = pi__arena_take(a, T * M * f);
    m->block.after = p->vec_after = pi__arena_take(a, T * M * f);
}

static void layout(pi__model *m, const pi__limits *lim, pi__arena *a)
{
    dflash *p = m->arch_data;
    const size_t T = (size_t) lim->max_tokens, chunk = T < CHUNK ? T : CHUNK;
    pi__work_layout(m, &p->work, a, T);
    pi__rotation_layout(&p->rot, a, T);
    p->features = pi__arena_take(a, chunk * (size_t) p->fc.n_in * sizeof(float));
    const size_t R = p->rank ? (size_t) lim->max_rows : 0, M = (size_t) p->rank, f = sizeof(float);
    p->before = pi__arena_take(a, R * M * f);
    p->bias = pi__arena_take(a, R * (size_t) m->block.n_out * f);
    p->pair = pi__arena_take(a, R * ((size_t) m->n_embd + M) * f);
    p->sureness = pi__arena_take(a, R * f);
    m->block.sure = p->sure.n_out ? p->sureness : NULL;
    layout_selector(m, p, lim, a);
}

/* ---- the graph */

static void inject(pi__model *m, const pi__batch *b, const int32_t *row)
{
    const dflash *p = m->arch_data;
    const pi__stream s = pi__stream_of(&p->work, b);
    const int64_t N = p->fc.n_in, E = m->n_embd;
    for (int32_t t = 0; t < b->n_tokens; t += CHUNK) {
        const int32_t n = b->n_tokens - t < CHUNK ? b->n_tokens - t : CHUNK;
        pi__op_gather_rows(
            m->be, NULL,
            &(pi__gather_rows) {.row = row + t, .n_rows = n, .x = m->target->captured.x, .n = N, .out = p->features});
        const pi__lin_in f = {.kind = PI__IN_PLAIN, .x = p->features, .ldx = N};
        pi__matmul(m, &f, n, &p->fc, s.x + t * E, E);
    }
    pi__rotation_forward(m, &p->rot, b);
    const pi__lin_in in = pi__normed(m, s.x, p->enc_norm, p->attn.eps);
    for (int32_t i = 0; i < m->n_layer; i++) pi__attn_inject(m, &p->layers[i].attn, &in, &s);
}

/* p->conv [T, E] = the convolution of x before (side 0) or after (side 1) the attention or feed-forward of c. */
static void convolve(pi__model *m, const dflash *p, const around *c, const pi__batch *b, const float *x, int32_t side)
{
    pi__op_block_conv(m->be, b,
                      &(pi__block_conv) {.x = x,
                                         .base = c->base + side * p->n_tap * (int64_t) m->n_embd,
                                         .own = p->own + side * (p->n_own / 2),
                                         .ldo = p->n_own,
                                         .n_tap = p->n_tap,
                                         .group = p->group,
                                         .n = m->n_embd,
                                         .out = p->conv});
}

/* Returns the input of attention or the feed-forward: the stream with norm w, and then the convolution before it,
 * if there is one. */
static pi__lin_in read_stream(pi__model *m, const dflash *p, const around *c, const float *w, const pi__stream *s)
{
    const int64_t E = m->n_embd;
    const pi__lin_in normed = {.kind = PI__IN_PLAIN, .x = p->normed, .ldx = E};
    if (!p->n_tap) return pi__normed(m, s->x, w, p->attn.eps);
    pi__op_norm(
        m->be, NULL,
        &(pi__norm) {.out = p->normed, .ldo = E, .x = s->x, .w = w, .eps = p->attn.eps, .n_rows = s->n, .n = E});
    pi__matmul(m, &normed, s->n, &c->own, p->own, p->n_own);
    convolve(m, p, c, s->b, p->normed, 0);
    return (pi__lin_in) {.kind = PI__IN_PLAIN, .x = p->conv, .ldx = E};
}

/* x = (x + y) * scale, with y convolved first if there is a convolution, and normed by w if w exists. */
static void add_result(pi__model *m, const dflash *p, const around *c, const float *w, float scale, const pi__stream *s)
{
    if (p->n_tap) convolve(m, p, c, s->b, s->y, 1);
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = s->x, .y = p->n_tap ? p->conv : s->y, .w = w, .eps = p->attn.eps,
                                                  .scale = scale, .n_rows = s->n, .n = m->n_embd});
}

static void forward(pi__model *m, const pi__batch *b, int32_t n_layer)
{
    const dflash *p = m->arch_data;
    pi__stream s = pi__stream_of(&p->work, b);
    pi__op_embed(m->be, b, &(pi__embed) {.w = p->embd, .scale = p->head.embd_scale, .out = s.x});
    pi__rotation_forward(m, &p->rot, b);
    for (int32_t i = 0; i < n_layer; i++) {
        const layer *l = &p->layers[i];
        const pi__lin_in h = read_stream(m, p, &l->attn_conv, l->attn.norm, &s);
        pi__attn_project_of(m, &l->attn, &h, &s);
        pi__attn_attend(m, &l->attn, &s, 0);
        pi__attn_result(m, &l->attn, &s);
        add_result(m, p, &l->attn_conv, l->attn.post_norm, 1.0f, &s);
        const pi__lin_in z = read_stream(m, p, &l->ffn_conv, l->ffn_norm, &s);
        pi__mlp_forward(m, &l->mlp, &z, s.n, s.ff, s.y);
        add_result(m, p, &l->ffn_conv, l->post_ffn_norm, l->out_scale, &s);
    }
    pi__gather_logits_rows(m, b, s.x, m->n_embd, p->work.y);
}

static void logits(pi__model *m, int32_t first, int32_t n, float *out)
{
    const dflash *p = m->arch_data;
    const pi__lin_in in = pi__normed(m, p->work.y + (size_t) first * (size_t) m->n_embd, p->head.output_norm,
                                     p->attn.eps);
    pi__matmul(m, &in, n, p->output, out, m->block.n_out);
    if (p->n_tap) pi__matmul(m, &in, n, &p->select, p->gate, m->block.rank);
}

static void candidates(pi__model *m, const pi__batch *b)
{
    const dflash *p = m->arch_data;
    pi__op_embed(m->be, b, &(pi__embed) {.w = &p->select_before, .scale = 1.0f, .out = p->vec_before});
    pi__op_embed(m->be, b, &(pi__embed) {.w = &p->select_after, .scale = 1.0f, .out = p->vec_after});
}

/* p->sureness = confidence logits of n rows, from their normed rows x and the previous tokens' vectors. */
static void tell_sure(pi__model *m, const dflash *p, const float *x, int32_t n)
{
    const int64_t E = m->n_embd, M = p->rank, ld = E + M;
    pi__op_norm(
        m->be, NULL,
        &(pi__norm) {
            .out = p->pair, .ldo = ld, .x = x, .w = p->head.output_norm, .eps = p->attn.eps, .n_rows = n, .n = E});
    pi__op_copy_2d(
        m->be, NULL,
        &(pi__copy_2d) {.x = p->before, .ldx = M, .n_shards = 1, .n_rows = n, .n = M, .y = p->pair + E, .ldy = ld});
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = p->pair, .ldx = ld};
    pi__matmul(m, &in, n, &p->sure, p->sureness, 1);
}

/* DSpark's step: logits of the next tokens, from rows of the last forward and the previous tokens. */
static void draft(pi__model *m, const pi__batch *b, bool chained, float *logits)
{
    const dflash *p = m->arch_data;
    const int32_t n = b->n_tokens;
    float *rows = p->work.x; /* the model's x is not used at this point */
    (void) chained;
    pi__op_gather_rows(
        m->be, NULL,
        &(pi__gather_rows) {.row = b->hidden_row, .n_rows = n, .x = p->work.y, .n = m->n_embd, .out = rows});
    const pi__lin_in in = pi__normed(m, rows, p->head.output_norm, p->attn.eps);
    pi__matmul(m, &in, n, p->output, logits, m->block.n_out);
    pi__op_embed(m->be, b, &(pi__embed) {.w = &p->markov_in, .scale = 1.0f, .out = p->before});
    const pi__lin_in before = {.kind = PI__IN_PLAIN, .x = p->before, .ldx = p->rank};
    pi__matmul(m, &before, n, &p->markov_out, p->bias, m->block.n_out);
    pi__op_add_norm(m->be, NULL,
                    &(pi__add_norm) {.x = logits, .y = p->bias, .scale = 1.0f, .n_rows = n, .n = m->block.n_out});
    if (p->sure.n_out) tell_sure(m, p, rows, n);
}

#define DFLASH(arch)                                                                                                   \
    {.name = arch,                                                                                                     \
     .size = sizeof(dflash),                                                                                           \
     .declare = declare,                                                                                               \
     .loaded = loaded,                                                                                                 \
     .layout = layout,                                                                                                 \
     .forward = forward,                                                                                               \
     .logits = logits,                                                                                                 \
     .inject = inject,                                                                                                 \
     .draft = draft,                                                                                                   \
     .candidates = candidates}

const pi__arch pi__arch_dflash = DFLASH("dflash");
const pi__arch pi__arch_dflash_qwen35 = DFLASH("qwen35-dflash-draft");
const pi__arch pi__arch_dflash_gemma4 = DFLASH("gemma4-dflash-draft");
