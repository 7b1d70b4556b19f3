/* DeepSeek V4: GGUF architecture "deepseek4", as llama.cpp's converter and as ds4 write it.
 *
 * The residual is four streams wide: each block reads a sum of them and its result is added to all, with weights that are
 * computed from the streams themselves (ops hyper_pre, hyper_post). Attention has one row a token that is key and value at
 * once, for all heads; it is rotated, so that results are rotated back. Each layer sees the rows of a window, and all but a
 * few see what lies before it as entries, each made of many tokens:
 *
 *   ratio 4     an entry for 4 tokens, made of those and the 4 before; the layer's indexer, which keeps entries of its own,
 *               picks the best of them for each token
 *   ratio 128   an entry for 128 tokens; all are seen
 *
 * Queries and the output have low-rank projections, the output's first one in groups of heads. Feed-forward: experts that
 * are chosen by the token's id in the first layers, later by a router, and one that is always there.
 *
 * Rows of recent tokens from which entries are made are a cache like any other, a window: so a prompt may be cut anywhere,
 * and drafts are dropped for free. At multiples of 128 nothing is left of a window but what the overlap of the next entry of
 * ratio 4 needs: there prefixes are reused.
 *
 * A file of its own holds the draft head (MTP), as llama.cpp's converter or ds4 writes it: one layer without entries, which reads
 * the model's streams after the last layer and the next token's embedding. Its rows are in the model's cache, from position
 * 1 on; embedding and output are the model's.
 *
 * Symbols in shapes: T tokens of the step, R rows wanted, E embedding, H query heads, D head size, Q rank of queries, G
 * groups of the output, O its rank in a group, r ratio, w width of a compressor (2D with ratio 4, else D), I heads of the
 * indexer, J their size, X experts, K experts a token, F feed-forward of an expert, V vocabulary. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/model.h"

enum { CSA = 4, HCA = 128, MAX_GROUPS = 64, MAX_DIM = 512 };

/* How a block reads the streams, and adds to them. */
typedef struct hyper {
    pi__weight fn;              /* [24, 4E], or [4, 4E] */
    float *base, *scale;        /* [24], [3]; or [4], [1] */
} hyper;

/* Makes entries. */
typedef struct compressor {
    pi__weight kv, gate;        /* [w, E] each */
    float *ape;                 /* [r, w] */
    float *norm;                /* [D] or [J] */
    int32_t recent, entries;    /* indices into m->kv */
} compressor;

typedef struct layer {
    int32_t ratio;              /* r; 0: the window alone */
    int32_t rows;               /* index into m->kv */
    int32_t n_ff;               /* F */
    float limit, limit_shared;  /* of SWIGLU; 0: none */
    hyper hc_attn, hc_ffn;
    float *attn_norm;           /* [E] */
    pi__weight q_a, q_b, kv;    /* [Q, E], [H*D, Q], [D, E] */
    float *q_norm, *kv_norm;    /* [Q], [D] */
    float *sinks;               /* [H] */
    pi__weight out_a, out_b;    /* G of [O, H*D/G]; [E, G*O] */
    pi__weight out_group[MAX_GROUPS]; /* each of out_a */
    compressor comp, index;     /* of attention; of the indexer */
    pi__weight index_q, index_w; /* [I*J, Q], [I, E] */
    float *ffn_norm;            /* [E] */
    pi__weight router;          /* [X, E] */
    float *bias;                /* [X] for the choice; NULL: chosen by */
    int32_t *table;             /* [V, K] */
    pi__weight gate_exps, up_exps, down_exps; /* X of [F, E], [F, E], [E, F] */
    pi__weight gate, up, down;  /* shared: [F, E], [F, E], [E, F] */
} layer;

/* Rotation of the layers without entries, and of the others. */
typedef struct rotation {
    float *freq;                /* [n_rot/2] on the host */
    float *rope;                /* scratch: [T, n_rot] */
} rotation;

typedef struct deepseek4 {
    int32_t n_layer;            /* without a draft head's; of a draft head: 1 */
    int32_t first;              /* what the file calls the first of them */
    int32_t n_head, dim, n_rot; /* H, D; rotated values of a head */
    int32_t rank_q;             /* Q */
    int32_t window;             /* tokens */
    int32_t n_group, rank_out;  /* G, O */
    int32_t index_head, index_dim, n_top; /* I, J; entries it picks */
    int32_t n_expert, n_used, n_hash; /* X, K; layers with tables */
    int32_t n_iter;             /* of Sinkhorn */
    float weights_scale;        /* of routing weights */
    float eps, hyper_eps;       /* of norms; of the streams' weights */
    rotation plain, scaled;
    pi__weight tok_embd, output; /* [V, E] each */
    float *output_norm;         /* [E] */
    hyper head;                 /* of the end */
    layer *layers;              /* [n_layer] */
    /* scratch */
    float *x;                   /* [T, 4E] streams */
    float *y;                   /* [T, E] what a block reads, and its result */
    float *mix, *coef;          /* [T, 24], [T, 20] */
    float *qa, *q;              /* [T, Q], [T, H*D] */
    float *row;                 /* [T, D] */
    float *comp, *icomp;        /* [T, 2w] values and scores of both compressors */
    float *iq, *iw;             /* [T, I*J], [T, I] */
    int32_t *pick;              /* [T, n_top] */
    float *low;                 /* [T, G*O] */
    float *ff;                  /* [T, 2F] of the shared expert */
    float *routed;              /* [T, E] result of the others */
    float *routes;              /* [T, X] */
    float *rows;                /* [R, E] */
    /* of a draft head */
    bool ds4;                   /* named as ds4 does */
    pi__weight proj;            /* [E, 2E]: embedding, a stream; or [E, E]: embedding, and */
    pi__weight proj_hidden;     /* [E, E]: a stream */
    float *embd_norm, *hidden_norm; /* [E] of the two */
    float *before;              /* scratch: [T, 4E] streams after the token before */
    float *pairs;               /* scratch: [T, 4, 2E] embedding and stream side by side, normed */
    float *last;                /* scratch: [R, 4E] streams after a draft */
} deepseek4;

/* A draft head's rows are in its model's cache. */
static pi__model *keeper(pi__model *m) { return m->target ? m->target : m; }

/* ---------------------------------------------------------------------------------------------------- hyperparameters */

static int read_attention(pi__model *m, deepseek4 *p, pi_error *err)
{
    int32_t n_kv, vdim;
    int rc = pi__hp_u32(m, "attention.head_count", true, 0, 1, PI__MAX_HEADS, &p->n_head, err);
    if (!rc) rc = pi__hp_u32(m, "attention.head_count_kv", false, 1, 1, 1, &n_kv, err);
    if (!rc) rc = pi__hp_u32(m, "attention.key_length", true, 0, 16, MAX_DIM, &p->dim, err);
    if (!rc) rc = pi__hp_u32(m, "attention.value_length", false, (uint32_t) p->dim, 16, MAX_DIM, &vdim, err);
    if (!rc) rc = pi__hp_u32(m, "rope.dimension_count", true, 0, 2, (uint32_t) p->dim, &p->n_rot, err);
    if (!rc) rc = pi__hp_u32(m, "attention.q_lora_rank", true, 0, 1, PI__MAX_EMBD, &p->rank_q, err);
    if (!rc) rc = pi__hp_u32(m, "attention.sliding_window", true, 0, 1, 1 << 20, &p->window, err);
    if (!rc) rc = pi__hp_u32(m, "attention.output_group_count", true, 0, 1, MAX_GROUPS, &p->n_group, err);
    if (!rc) rc = pi__hp_u32(m, "attention.output_lora_rank", true, 0, 1, PI__MAX_EMBD, &p->rank_out, err);
    if (!rc) rc = pi__hp_f32(m, "attention.layer_norm_rms_epsilon", true, 0, &p->eps, err);
    if (rc) return rc;
    if (vdim != p->dim || p->dim % 16)
        return pi__fail(err, PI_EUNSUPPORTED, "metadata deepseek4.attention.key_length %d and value_length %d must be equal "
                        "and a multiple of 16", p->dim, vdim);
    if (p->n_rot % 2)
        return pi__fail(err, PI_EFORMAT, "metadata deepseek4.rope.dimension_count is %d, expected an even number", p->n_rot);
    if (p->n_head % p->n_group)
        return pi__fail(err, PI_EFORMAT, "metadata deepseek4.attention.head_count %d is not a multiple of "
                        "output_group_count %d", p->n_head, p->n_group);
    m->lim.max_row = p->dim;
    return PI_OK;
}

static int read_indexer(pi__model *m, deepseek4 *p, pi_error *err)
{
    int rc = pi__hp_u32(m, "attention.indexer.head_count", true, 0, 1, PI__MAX_HEADS, &p->index_head, err);
    if (!rc) rc = pi__hp_u32(m, "attention.indexer.key_length", true, 0, 16, MAX_DIM, &p->index_dim, err);
    if (!rc) rc = pi__hp_u32(m, "attention.indexer.top_k", true, 0, 1, 1 << 16, &p->n_top, err);
    if (rc) return rc;
    if (p->index_dim % 16 || p->index_dim < p->n_rot)
        return pi__fail(err, PI_EFORMAT, "metadata deepseek4.attention.indexer.key_length is %d, expected a multiple of 16 "
                        "that is no less than rope.dimension_count %d", p->index_dim, p->n_rot);
    m->lim.index_head = p->index_head;
    m->lim.index_dim = p->index_dim;
    m->lim.index_ratio = CSA;
    return PI_OK;
}

/* compress_ratios: a number a layer; more of them (of a draft head) are ignored. */
static int read_ratios(pi__model *m, deepseek4 *p, pi_error *err)
{
    const char *key = "deepseek4.attention.compress_ratios";
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    bool any = false;
    if (!kv || kv->type != PI__GGUF_ARR || (kv->arr_type != PI__GGUF_I32 && kv->arr_type != PI__GGUF_U32) ||
        kv->n < (uint64_t) p->n_layer)
        return pi__fail(err, PI_EFORMAT, "metadata %s needs a whole number for each of %d layers", key, p->n_layer);
    for (int32_t i = 0; i < p->n_layer; i++) {
        const int64_t r = pi__gguf_elem_i64(kv, (uint64_t) i);
        if (r != 0 && r != CSA && r != HCA)
            return pi__fail(err, PI_EUNSUPPORTED, "metadata %s of layer %d is %lld, expected 0, 4 or 128", key, i, (long long) r);
        p->layers[i].ratio = (int32_t) r;
        any = any || r == CSA;
    }
    return any ? read_indexer(m, p, err) : PI_OK;
}

/* A limit of SWIGLU, a number or one a layer: to out[i] of layer i. false: absent. */
static int read_limit(const pi__model *m, const deepseek4 *p, const char *key, int32_t i, bool *there, float *out,
                      pi_error *err)
{
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    *there = kv != NULL;
    if (!kv) return PI_OK;
    const int type = kv->type == PI__GGUF_ARR ? kv->arr_type : kv->type;
    if ((type != PI__GGUF_F32 && type != PI__GGUF_F64) || (kv->type == PI__GGUF_ARR && kv->n <= (uint64_t) i))
        return pi__fail(err, PI_EFORMAT, "metadata %s needs a number for each of %d layers", key, p->first + p->n_layer);
    const double v = pi__gguf_elem_f64(kv, kv->type == PI__GGUF_ARR ? (uint64_t) i : 0);
    if (!isfinite(v)) return pi__fail(err, PI_EFORMAT, "metadata %s of layer %d is not a finite number", key, i);
    *out = v > 1e-6 ? (float) v : 0;
    return PI_OK;
}

static int read_experts(pi__model *m, deepseek4 *p, pi_error *err)
{
    int32_t gating, n_shared, *ff = pi__malloc((size_t) m->n_layer * sizeof *ff);
    bool norm, there;
    if (!ff) return pi__fail_mem(err, "the layers");
    int rc = pi__hp_u32(m, "expert_count", true, 0, 1, PI__MAX_EXPERTS, &p->n_expert, err);
    if (!rc) rc = pi__hp_u32(m, "expert_used_count", true, 0, 1, PI__MAX_USED, &p->n_used, err);
    if (!rc && p->n_used > p->n_expert)
        rc = pi__fail(err, PI_EFORMAT, "metadata deepseek4.expert_used_count %d is more than expert_count %d", p->n_used,
                      p->n_expert);
    if (!rc) rc = pi__hp_u32(m, "expert_gating_func", true, 0, 0, 64, &gating, err);
    if (!rc) rc = pi__hp_u32(m, "expert_shared_count", false, 1, 0, 64, &n_shared, err);
    if (!rc) rc = pi__gguf_get_bool(m->g, "deepseek4.expert_weights_norm", &norm, true, err);
    if (!rc && (gating != 4 || n_shared != 1 || !norm))
        rc = pi__fail(err, PI_EUNSUPPORTED, "metadata deepseek4: expert_gating_func %d, expert_shared_count %d and "
                      "expert_weights_norm %s are not supported, only 4, 1 and true", gating, n_shared, norm ? "true" : "false");
    if (!rc) rc = pi__hp_f32(m, "expert_weights_scale", false, 1, &p->weights_scale, err);
    if (!rc) rc = pi__hp_u32(m, "hash_layer_count", false, 0, 0, PI__MAX_LAYERS, &p->n_hash, err);
    if (!rc) rc = pi__hp_each(m, "expert_feed_forward_length", 1, PI__MAX_EMBD, ff, err);
    for (int32_t i = 0; i < p->n_layer && !rc; i++) {
        layer *l = &p->layers[i];
        l->n_ff = ff[p->first + i];
        rc = read_limit(m, p, "deepseek4.swiglu_clamp_exp", p->first + i, &there, &l->limit, err);
        l->limit_shared = l->limit;
        if (!rc) rc = read_limit(m, p, "deepseek4.swiglu_clamp_shexp", p->first + i, &there, &l->limit_shared, err);
    }
    pi__free(ff);
    return rc;
}

static int read_rotations(pi__model *m, deepseek4 *p, pi_error *err)
{
    float mscale; /* cosines and sines are not multiplied by it */
    p->plain.freq = pi__malloc((size_t) p->n_rot / 2 * sizeof(float));
    p->scaled.freq = pi__malloc((size_t) p->n_rot / 2 * sizeof(float));
    if (!p->plain.freq || !p->scaled.freq) return pi__fail_mem(err, "rope frequencies");
    int rc = pi__rope_freqs(m, "rope.freq_base", 1e4f, false, p->n_rot, p->plain.freq, &mscale, err);
    return rc ? rc : pi__rope_freqs(m, "attention.compress_rope_freq_base", 1.6e5f, true, p->n_rot, p->scaled.freq, &mscale,
                                    err);
}

/* Blocks past the trunk are a draft head's, where the file has them; ds4 counts them even where it has not. */
static int read_depth(pi__model *m, deepseek4 *p, pi_error *err)
{
    char name[64];
    int32_t n_draft;
    int rc = pi__hp_u32(m, "nextn_predict_layers", false, 0, 0, PI__MAX_LAYERS, &n_draft, err);
    if (rc) return rc;
    p->n_layer = m->n_layer;
    snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", m->n_layer - n_draft);
    const bool there = n_draft && n_draft < m->n_layer && pi__gguf_find_tensor(m->g, name);
    if (there) p->n_layer -= n_draft;
    p->ds4 = m->target && pi__gguf_find_tensor(m->g, "mtp.0.e_proj.weight");
    if (m->target && !p->ds4 && (!there || n_draft != 1))
        return pi__fail(err, PI_EINVAL, "model-draft: the file has no draft head with one block, as llama.cpp's converter or ds4 "
                        "writes it");
    if (m->target) p->first = m->n_layer - 1, p->n_layer = 1;
    p->layers = pi__calloc((size_t) p->n_layer, sizeof *p->layers);
    return p->layers ? PI_OK : pi__fail_mem(err, "the layers");
}

static int read_params(pi__model *m, deepseek4 *p, pi_error *err)
{
    int32_t n_streams;
    int rc = read_depth(m, p, err);
    if (!rc) rc = read_attention(m, p, err);
    if (!rc && !m->target) rc = read_ratios(m, p, err);
    if (!rc) rc = read_experts(m, p, err);
    if (!rc) rc = read_rotations(m, p, err);
    if (!rc) rc = pi__hp_u32(m, "hyper_connection.count", true, 0, PI__STREAMS, PI__STREAMS, &n_streams, err);
    if (!rc) rc = pi__hp_u32(m, "hyper_connection.sinkhorn_iterations", true, 0, 1, 1000, &p->n_iter, err);
    if (!rc) rc = pi__hp_f32(m, "hyper_connection.epsilon", true, 0, &p->hyper_eps, err);
    if (rc || !m->target) return rc ? rc : pi__read_vocab_size(m, err);
    m->n_vocab = m->target->n_vocab; /* whose embedding and output it uses */
    return PI_OK;
}

/* ------------------------------------------------------------------------------------------------------------ tensors */

/* Names of a layer's tensors: "blk.N.", or in a draft head as ds4 writes it "mtp.0.". */
static void name_of(const pi__model *m, const char *suffix, char name[96])
{
    const deepseek4 *p = m->arch_data;
    snprintf(name, 96, "%s.%s", p->ds4 ? "mtp.0" : "blk.%d", suffix);
}

static int want_vec(pi__model *m, float **vec, int64_t n, const char *suffix, int32_t i, pi_error *err)
{
    char name[96];
    name_of(m, suffix, name);
    return pi__want_vec(m, vec, false, n, name, i, err);
}

static int want_weight(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const char *suffix, int32_t i, pi_error *err)
{
    char name[96];
    name_of(m, suffix, name);
    return pi__want_weight(m, w, false, n_in, n_out, name, i, err);
}

static int want_stack(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const char *suffix, int32_t i,
                      pi_error *err)
{
    char name[96];
    name_of(m, suffix, name);
    return pi__want_experts(m, w, false, n_in, n_out, n_mat, name, i, err);
}

/* name: "hc_attn", "hc_ffn" or "hc_head" of a layer, or with n_mix 4 "output_hc" of the file. */
static int want_hyper(pi__model *m, hyper *h, int32_t n_mix, const char *name, int32_t i, pi_error *err)
{
    static const char *const part[] = {"fn", "base", "scale"};
    char of_file[64], full[3][96];
    for (int k = 0; k < 3; k++) {
        snprintf(of_file, sizeof of_file, "%s_%s.weight", name, part[k]);
        if (strncmp(name, "output", 6)) name_of(m, of_file, full[k]);
        else snprintf(full[k], sizeof full[k], "%s", of_file);
    }
    int rc = pi__want_weight(m, &h->fn, false, (int64_t) PI__STREAMS * m->n_embd, n_mix, full[0], i, err);
    if (!rc) rc = pi__want_vec(m, &h->base, false, n_mix, full[1], i, err);
    return rc ? rc : pi__want_vec(m, &h->scale, false, n_mix == PI__STREAMS ? 1 : 3, full[2], i, err);
}

/* name: "attn" or "indexer". */
static int want_compressor(pi__model *m, compressor *c, int32_t ratio, int32_t dim, const char *name, int32_t i, pi_error *err)
{
    static const pi__row_group recent[] = {{.name = "recent-4", .window = CSA + 1, .keep = 2 * CSA},
                                           {.name = "recent-128", .window = 1, .keep = HCA}};
    static const pi__row_group entries = {.name = "compressed", .block = HCA};
    const int32_t w = ratio == CSA ? 2 * dim : dim;
    char kv[64], gate[64], ape[64], norm[64];
    snprintf(kv, sizeof kv, "blk.%%d.%s_compressor_kv.weight", name);
    snprintf(gate, sizeof gate, "blk.%%d.%s_compressor_gate.weight", name);
    snprintf(ape, sizeof ape, "blk.%%d.%s_compressor_ape.weight", name);
    snprintf(norm, sizeof norm, "blk.%%d.%s_compressor_norm.weight", name);
    int rc = pi__want_weight(m, &c->kv, false, m->n_embd, w, kv, i, err);
    if (!rc) rc = pi__want_weight(m, &c->gate, false, m->n_embd, w, gate, i, err);
    if (!rc) rc = pi__want_table(m, &c->ape, ratio, w, ape, i, err);
    if (!rc) rc = pi__want_vec(m, &c->norm, false, dim, norm, i, err);
    if (!rc) rc = pi__want_rows(m, i, &recent[ratio == HCA], 1, 2 * w, true, &c->recent, err);
    return rc ? rc : pi__want_rows(m, i, &entries, ratio, dim, false, &c->entries, err);
}

static int want_attention(pi__model *m, deepseek4 *p, layer *l, int32_t i, pi_error *err)
{
    const pi__row_group window = {.name = "window", .window = p->window};
    const int64_t E = m->n_embd, D = p->dim, Q = p->rank_q, H = p->n_head, G = p->n_group, O = p->rank_out;
    char out_a[96];
    int rc = want_vec(m, &l->attn_norm, E, "attn_norm.weight", i, err);
    if (!rc) rc = want_weight(m, &l->q_a, E, Q, "attn_q_a.weight", i, err);
    if (!rc) rc = want_vec(m, &l->q_norm, Q, "attn_q_a_norm.weight", i, err);
    if (!rc) rc = want_weight(m, &l->q_b, Q, H * D, "attn_q_b.weight", i, err);
    if (!rc) rc = want_weight(m, &l->kv, E, D, "attn_kv.weight", i, err);
    if (!rc) rc = want_vec(m, &l->kv_norm, D, "attn_kv_a_norm.weight", i, err);
    if (!rc) rc = want_vec(m, &l->sinks, H, "attn_sinks.weight", i, err);
    name_of(m, "attn_output_a.weight", out_a);
    if (!rc) rc = pi__want_clusters(m, &l->out_a, H * D / G, O, G, NULL, out_a, i, err);
    if (!rc) rc = want_weight(m, &l->out_b, G * O, E, "attn_output_b.weight", i, err);
    if (!rc) rc = pi__want_rows(keeper(m), i, &window, 1, p->dim, false, &l->rows, err);
    if (!rc && l->ratio) rc = want_compressor(m, &l->comp, l->ratio, p->dim, "attn", i, err);
    if (rc || l->ratio != CSA) return rc;
    rc = want_compressor(m, &l->index, CSA, p->index_dim, "indexer", i, err);
    if (!rc) rc = want_weight(m, &l->index_q, Q, (int64_t) p->index_head * p->index_dim, "indexer.attn_q_b.weight", i, err);
    return rc ? rc : want_weight(m, &l->index_w, E, p->index_head, "indexer.proj.weight", i, err);
}

static int want_experts(pi__model *m, deepseek4 *p, layer *l, int32_t i, pi_error *err)
{
    const int64_t E = m->n_embd, F = l->n_ff, X = p->n_expert;
    pi__need_experts(m, p->n_expert, p->n_used, E, F);
    int rc = want_vec(m, &l->ffn_norm, E, "ffn_norm.weight", i, err);
    if (!rc) rc = want_weight(m, &l->router, E, X, "ffn_gate_inp.weight", i, err);
    if (!rc && i < p->n_hash) {
        l->table = pi__malloc((size_t) m->n_vocab * (size_t) p->n_used * sizeof *l->table);
        if (!l->table) return pi__fail_mem(err, "the experts of tokens");
        rc = pi__want_numbers(m, l->table, m->n_vocab, p->n_used, p->n_expert, "blk.%d.ffn_gate_tid2eid.weight", i, err);
    } else if (!rc) {
        rc = want_vec(m, &l->bias, X, "exp_probs_b.bias", i, err);
    }
    if (!rc) rc = want_stack(m, &l->gate_exps, E, F, X, "ffn_gate_exps.weight", i, err);
    if (!rc) rc = want_stack(m, &l->up_exps, E, F, X, "ffn_up_exps.weight", i, err);
    if (!rc) rc = want_stack(m, &l->down_exps, F, E, X, "ffn_down_exps.weight", i, err);
    if (!rc) rc = want_weight(m, &l->gate, E, F, "ffn_gate_shexp.weight", i, err);
    if (!rc) rc = want_weight(m, &l->up, E, F, "ffn_up_shexp.weight", i, err);
    return rc ? rc : want_weight(m, &l->down, F, E, "ffn_down_shexp.weight", i, err);
}

/* Layer i as the file counts. */
static int want_layer(pi__model *m, deepseek4 *p, int32_t i, pi_error *err)
{
    layer *l = &p->layers[i - p->first];
    int rc = want_hyper(m, &l->hc_attn, PI__HYPER_MIX, "hc_attn", i, err);
    if (!rc) rc = want_hyper(m, &l->hc_ffn, PI__HYPER_MIX, "hc_ffn", i, err);
    if (!rc) rc = want_attention(m, p, l, i, err);
    return rc ? rc : want_experts(m, p, l, i, err);
}

/* What a draft head has of its own. ds4 has the two halves of proj apart. */
static int want_draft(pi__model *m, deepseek4 *p, pi_error *err)
{
    const int64_t E = m->n_embd;
    const int32_t i = p->first;
    const bool ds4 = p->ds4;
    int rc = ds4 ? want_weight(m, &p->proj, E, E, "e_proj.weight", i, err)
                 : want_weight(m, &p->proj, 2 * E, E, "nextn.eh_proj.weight", i, err);
    if (!rc && ds4) rc = want_weight(m, &p->proj_hidden, E, E, "h_proj.weight", i, err);
    if (!rc) rc = want_vec(m, &p->embd_norm, E, ds4 ? "enorm.weight" : "nextn.enorm.weight", i, err);
    if (!rc) rc = want_vec(m, &p->hidden_norm, E, ds4 ? "hnorm.weight" : "nextn.hnorm.weight", i, err);
    return rc ? rc : want_vec(m, &p->output_norm, E, ds4 ? "norm.weight" : "nextn.shared_head_norm.weight", i, err);
}

static int check_target(const pi__model *m, pi_error *err)
{
    const pi__tensor *embd = pi__gguf_find_tensor(m->g, "token_embd.weight"); /* a copy, in some files */
    if (embd && embd->ne[1] != m->target->n_vocab)
        return pi__fail(err, PI_EINVAL, "model-draft has %lld tokens, the model %d: it was not made for this one",
                        (long long) embd->ne[1], m->target->n_vocab);
    if (m->target->arch != &pi__arch_deepseek4 || m->target->n_embd != m->n_embd)
        return pi__fail(err, PI_EINVAL, "model-draft: a deepseek4 draft head for an embedding of %d values does not draft for a "
                        "%s model of %d", m->n_embd, m->target->arch->name, m->target->n_embd);
    return PI_OK;
}

static int declare(pi__model *m, pi_error *err)
{
    deepseek4 *p = m->arch_data;
    int rc = pi__need_op(m, PI__OP_sparse, err);
    if (!rc && m->target) rc = check_target(m, err);
    if (!rc) rc = read_params(m, p, err);
    if (rc) return rc;
    m->no_draft = !m->target;
    const int64_t E = m->n_embd, V = m->n_vocab;
    if (m->target) rc = want_draft(m, p, err);
    else rc = pi__want_weight(m, &p->tok_embd, false, E, V, "token_embd.weight", 0, err);
    if (!rc && !m->target) rc = pi__want_weight(m, &p->output, false, E, V, "output.weight", 0, err);
    if (!rc && !m->target) rc = pi__want_vec(m, &p->output_norm, false, E, "output_norm.weight", 0, err);
    if (!rc) rc = want_hyper(m, &p->head, PI__STREAMS, p->ds4 ? "hc_head" : "output_hc", 0, err);
    for (int32_t i = 0; i < p->n_layer && !rc; i++) rc = want_layer(m, p, p->first + i, err);
    return rc;
}

/* The groups of the output's first matrix, which read different values, as matrices of their own. */
static int loaded(pi__model *m, pi_error *err)
{
    deepseek4 *p = m->arch_data;
    (void) err;
    for (int32_t i = 0; i < p->n_layer; i++)
        for (int32_t g = 0; g < p->n_group; g++) {
            layer *l = &p->layers[i];
            pi__weight *w = &l->out_group[g];
            *w = l->out_a;
            w->n_mat = 1;
            w->size = l->out_a.size / (size_t) p->n_group;
            w->data = (char *) l->out_a.data + (size_t) g * w->size;
        }
    return PI_OK;
}

static void layout(pi__model *m, const pi__limits *lim, pi__arena *a)
{
    deepseek4 *p = m->arch_data;
    const size_t T = (size_t) lim->max_tokens, E = (size_t) m->n_embd, D = (size_t) p->dim, f = sizeof(float);
    size_t F = 0;
    for (int32_t i = 0; i < p->n_layer; i++)
        if ((size_t) p->layers[i].n_ff > F) F = (size_t) p->layers[i].n_ff;
    p->x = pi__arena_take(a, T * PI__STREAMS * E * f);
    p->y = pi__arena_take(a, T * E * f);
    p->mix = pi__arena_take(a, T * PI__HYPER_MIX * f);
    p->coef = pi__arena_take(a, T * PI__HYPER_COEF * f);
    p->qa = pi__arena_take(a, T * (size_t) p->rank_q * f);
    p->q = pi__arena_take(a, T * (size_t) p->n_head * D * f);
    p->row = pi__arena_take(a, T * D * f);
    p->comp = pi__arena_take(a, T * 4 * D * f);
    p->icomp = pi__arena_take(a, T * 4 * (size_t) p->index_dim * f);
    p->iq = pi__arena_take(a, T * (size_t) p->index_head * (size_t) p->index_dim * f);
    p->iw = pi__arena_take(a, T * (size_t) p->index_head * f);
    p->pick = pi__arena_take(a, T * (size_t) p->n_top * sizeof *p->pick);
    p->low = pi__arena_take(a, T * (size_t) p->n_group * (size_t) p->rank_out * f);
    p->ff = pi__arena_take(a, T * 2 * F * f);
    p->routed = pi__arena_take(a, T * E * f);
    p->routes = pi__arena_take(a, T * (size_t) p->n_expert * f);
    p->plain.rope = pi__arena_take(a, T * (size_t) p->n_rot * f);
    p->scaled.rope = pi__arena_take(a, T * (size_t) p->n_rot * f);
    p->rows = pi__arena_take(a, T * E * f);
    const size_t drafts = m->target ? T : 0;
    p->before = pi__arena_take(a, drafts * PI__STREAMS * E * f);
    p->pairs = pi__arena_take(a, drafts * PI__STREAMS * 2 * E * f);
    p->last = pi__arena_take(a, m->target ? (size_t) lim->max_rows * PI__STREAMS * E * f : 0);
}

/* ---------------------------------------------------------------------------------------------------------- the graph */

/* y = what the block behind h reads of the streams. [n, E] */
static pi__hyper read_streams(pi__model *m, deepseek4 *p, const hyper *h, int32_t n)
{
    const int64_t n_mix = h->fn.n_out, wide = (int64_t) PI__STREAMS * m->n_embd;
    pi__lin_in in = {.kind = PI__IN_PLAIN, .x = p->x, .ldx = wide};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = n, .n_lin = 1, .lin = {{&h->fn, p->mix, n_mix}}});
    pi__hyper a = {.n_rows = n, .x = p->x, .n = m->n_embd, .mix = p->mix, .scale = h->scale, .base = h->base, .norm_eps = p->eps,
                   .eps = p->hyper_eps, .n_iter = n_mix == PI__STREAMS ? 0 : p->n_iter, .coef = p->coef, .y = p->y};
    pi__op_hyper_pre(m->be, NULL, &a);
    return a;
}

/* Entries of the tokens whose windows end in this step. */
static void compress(pi__model *m, deepseek4 *p, const pi__batch *b, const layer *l, const compressor *c, const float *x,
                     int32_t dim)
{
    const pi__compress a = {.recent = &m->kv[c->recent], .entries = &m->kv[c->entries], .x = x, .ldx = 2 * c->kv.n_out, .ratio = l->ratio, .dim = dim, .overlap = l->ratio == CSA,
                            .ape = c->ape, .norm = c->norm, .eps = p->eps, .freq = p->scaled.freq, .n_rot = p->n_rot};
    pi__op_compress(m->be, b, &a);
}

/* Everything that reads the normed input, and the queries: q, comp, icomp, iq, iw; and the row, to the cache. */
static void project(pi__model *m, deepseek4 *p, const pi__batch *b, const layer *l)
{
    const int64_t Q = p->rank_q, HD = l->q_b.n_out, w = l->comp.kv.n_out, iw = l->index.kv.n_out, I = p->index_head;
    pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = p->y, .ldx = m->n_embd, .w = l->attn_norm, .eps = p->eps};
    const pi__lin lin[] = {{&l->q_a, p->qa, Q}, {&l->kv, p->row, p->dim}, {&l->comp.kv, p->comp, 2 * w},
                           {&l->comp.gate, p->comp + w, 2 * w}, {&l->index.kv, p->icomp, 2 * iw},
                           {&l->index.gate, p->icomp + iw, 2 * iw}, {&l->index_w, p->iw, I}};
    pi__linear all = pi__linear_of(&in, b->n_tokens, lin, l->ratio == CSA ? 7 : l->ratio ? 4 : 2);
    pi__op_linear(m->be, NULL, &all);
    in = (pi__lin_in) {.kind = PI__IN_RMSNORM, .x = p->qa, .ldx = Q, .w = l->q_norm, .eps = p->eps};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = b->n_tokens, .n_lin = l->ratio == CSA ? 2 : 1, .lin = {{&l->q_b, p->q, HD}, {&l->index_q, p->iq, I * p->index_dim}}});
    const pi__mla_qkv prep = {.rows = &keeper(m)->kv[l->rows], .q = p->q, .ldq = HD, .n_head = p->n_head, .dim = p->dim, .q_norm = true,
                             .q_scale = 1.0f / sqrtf((float) p->dim), .row = p->row, .ldr = p->dim, .norm = l->kv_norm,
                             .eps = p->eps, .rope = l->ratio ? p->scaled.rope : p->plain.rope, .n_rot = p->n_rot};
    pi__op_mla_qkv(m->be, b, &prep);
}

/* y = attention of what project left behind. [T, E] */
static void attend(pi__model *m, deepseek4 *p, const pi__batch *b, const layer *l)
{
    const int64_t HD = l->q_b.n_out, IJ = (int64_t) p->index_head * p->index_dim, GO = l->out_b.n_in;
    const float *rope = l->ratio ? p->scaled.rope : p->plain.rope;
    if (l->ratio) compress(m, p, b, l, &l->comp, p->comp, p->dim);
    if (l->ratio == CSA) {
        compress(m, p, b, l, &l->index, p->icomp, p->index_dim);
        const pi__mla_qkv prep = {.q = p->iq, .ldq = IJ, .n_head = p->index_head, .dim = p->index_dim, .q_scale = 1.0f,
                                 .rope = rope, .n_rot = p->n_rot};
        pi__op_mla_qkv(m->be, b, &prep);
        const pi__indexer index = {.entries = &m->kv[l->index.entries], .q = p->iq, .ldq = IJ, .w = p->iw, .ldw = p->index_head, .n_head = p->index_head,
                                 .dim = p->index_dim, .scale = 1.0f / sqrtf((float) IJ), .n_top = p->n_top, .pick = p->pick};
        pi__op_indexer(m->be, b, &index);
    }
    const pi__sparse att = {.rows = &keeper(m)->kv[l->rows], .entries = l->ratio ? &m->kv[l->comp.entries] : NULL, .q = p->q, .ldq = HD, .n_head = p->n_head, .dim = p->dim, .window = p->window,
                            .first = m->target != NULL, .pick = l->ratio == CSA ? p->pick : NULL, .n_top = p->n_top,
                            .sinks = l->sinks, .rope = rope, .n_rot = p->n_rot, .out = p->q, .ldo = HD};
    pi__op_sparse(m->be, b, &att);
    for (int32_t g = 0; g < p->n_group; g++) { /* low: [T, G*O] */
        const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = p->q + g * l->out_a.n_in, .ldx = HD};
        pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = b->n_tokens, .n_lin = 1, .lin = {{&l->out_group[g], p->low + g * p->rank_out, GO}}});
    }
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = p->low, .ldx = GO};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = b->n_tokens, .n_lin = 1, .lin = {{&l->out_b, p->y, m->n_embd}}});
}

/* y = experts of y, the shared one among them. [T, E] */
static void feed_forward(pi__model *m, deepseek4 *p, const pi__batch *b, const layer *l)
{
    const int64_t E = m->n_embd, F = l->n_ff, X = p->n_expert;
    const int32_t n = b->n_tokens;
    const pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = p->y, .ldx = E, .w = l->ffn_norm, .eps = p->eps};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = n, .n_lin = 3, .lin = {{&l->gate, p->ff, 2 * F}, {&l->up, p->ff + F, 2 * F}, {&l->router, p->routes, X}}});
    const pi__lin_in h = {.kind = PI__IN_SWIGLU, .x = p->ff, .ldx = 2 * F, .x2 = p->ff + F, .ldx2 = 2 * F,
                          .limit = l->limit_shared};
    const pi__moe moe = {.n_rows = n, .in = in, .logits = p->routes, .ldl = X, .n_expert = p->n_expert, .n_used = p->n_used,
                         .weights_scale = p->weights_scale, .gate = &l->gate_exps, .up = &l->up_exps, .down = &l->down_exps,
                         .act = PI__IN_SWIGLU, .limit = l->limit, .gating = PI__GATE_SQRT_SOFTPLUS, .bias = l->bias,
                         .table = l->table, .token = b->token, .y = p->routed, .ldy = E};
    pi__op_moe(m->be, NULL, &moe);
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = h, .n_rows = n, .n_lin = 1, .lin = {{&l->down, p->y, E}}});
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = p->y, .y = p->routed, .w = NULL, .eps = 0, .scale = 1.0f, .n_rows = n, .n = E});
}

/* The rest of the layer. */
static void after_project(pi__model *m, deepseek4 *p, const pi__batch *b, const layer *l, const pi__hyper *attn)
{
    attend(m, p, b, l);
    pi__op_hyper_post(m->be, NULL, attn);
    const pi__hyper ffn = read_streams(m, p, &l->hc_ffn, b->n_tokens);
    feed_forward(m, p, b, l);
    pi__op_hyper_post(m->be, NULL, &ffn);
}

static void forward(pi__model *m, const pi__batch *b)
{
    deepseek4 *p = m->arch_data;
    const int64_t E = m->n_embd;
    pi__op_embed(m->be, b, &(pi__embed) {.w = &p->tok_embd, .scale = 1.0f, .out = p->y});
    pi__op_copy_2d(m->be, NULL, &(pi__copy_2d) {.x = p->y, .ldx = E, .n_shards = PI__STREAMS, .n_rows = b->n_tokens, .n = E, .y = p->x, .ldy = PI__STREAMS * E});
    pi__op_rope(m->be, b, &(pi__rope) {.freq = p->plain.freq, .n_freq = p->n_rot / 2, .mscale = 1.0f, .table = p->plain.rope});
    pi__op_rope(m->be, b, &(pi__rope) {.freq = p->scaled.freq, .n_freq = p->n_rot / 2, .mscale = 1.0f, .table = p->scaled.rope});
    for (int32_t i = 0; i < p->n_layer; i++) {
        const pi__hyper h = read_streams(m, p, &p->layers[i].hc_attn, b->n_tokens);
        project(m, p, b, &p->layers[i]);
        after_project(m, p, b, &p->layers[i], &h);
    }
    if (!b->n_rows) return;
    read_streams(m, p, &p->head, b->n_tokens);
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->row, .n_rows = b->n_rows, .x = p->y, .n = E, .out = p->rows});
}

static void logits(pi__model *m, int32_t first, int32_t n, float *out)
{
    const deepseek4 *p = m->arch_data;
    const pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = p->rows + (size_t) first * (size_t) m->n_embd, .ldx = m->n_embd,
                           .w = p->output_norm, .eps = p->eps};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = n, .n_lin = 1, .lin = {{&p->output, out, m->n_vocab}}});
}

/* x = proj of the pairs. [n, 4E] */
static void enter(pi__model *m, deepseek4 *p, int32_t n)
{
    const int64_t E = m->n_embd, wide = PI__STREAMS * E;
    for (int32_t i = 0; i < PI__STREAMS; i++) {
        pi__lin_in in = {.kind = PI__IN_PLAIN, .x = p->pairs + i * 2 * E, .ldx = 2 * wide};
        pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = n, .n_lin = 1, .lin = {{&p->proj, p->x + i * E, wide}}});
        if (!p->ds4) continue;
        in.x += E;
        pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = n, .n_lin = 1, .lin = {{&p->proj_hidden, p->before + i * E, wide}}});
    }
    if (p->ds4) pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = p->x, .y = p->before, .w = NULL, .eps = 0, .scale = 1.0f, .n_rows = n, .n = wide});
}

/* The draft head's streams: of each pair of the token's embedding and a stream after the token before. Its own streams take
 * their place where it goes on from a draft. */
static void draft(pi__model *m, const pi__batch *b, const int32_t *hidden, bool chained, float *logits)
{
    deepseek4 *p = m->arch_data;
    const deepseek4 *t = m->target->arch_data;
    const int64_t E = m->n_embd, wide = PI__STREAMS * E;
    const int32_t n = b->n_tokens;
    pi__op_embed(m->be, b, &(pi__embed) {.w = &t->tok_embd, .scale = 1.0f, .out = p->y});
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = hidden, .n_rows = n, .x = chained ? p->last : t->x, .n = wide, .out = p->before});
    pi__op_norm(m->be, NULL, &(pi__norm) {.out = p->pairs + E, .ldo = 2 * E, .x = p->before, .w = p->hidden_norm, .eps = p->eps, .n_rows = n * PI__STREAMS, .n = E});
    for (int32_t i = 0; i < PI__STREAMS; i++) pi__op_norm(m->be, NULL, &(pi__norm) {.out = p->pairs + i * 2 * E, .ldo = 2 * wide, .x = p->y, .w = p->embd_norm, .eps = p->eps, .n_rows = n, .n = E});
    enter(m, p, n);
    pi__op_rope(m->be, b, &(pi__rope) {.freq = p->plain.freq, .n_freq = p->n_rot / 2, .mscale = 1.0f, .table = p->plain.rope});
    const pi__hyper h = read_streams(m, p, &p->layers[0].hc_attn, n);
    project(m, p, b, &p->layers[0]);
    if (!logits) return;
    after_project(m, p, b, &p->layers[0], &h);
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->row, .n_rows = b->n_rows, .x = p->x, .n = wide, .out = p->last});
    read_streams(m, p, &p->head, n);
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->row, .n_rows = b->n_rows, .x = p->y, .n = E, .out = p->rows});
    const pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = p->rows, .ldx = E, .w = p->output_norm, .eps = p->eps};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = b->n_rows, .n_lin = 1, .lin = {{&t->output, logits, m->n_vocab}}});
}

static void free_arch(pi__model *m)
{
    deepseek4 *p = m->arch_data;
    for (int32_t i = 0; p->layers && i < p->n_layer; i++) pi__free(p->layers[i].table);
    pi__free(p->layers);
    pi__free(p->plain.freq);
    pi__free(p->scaled.freq);
}

const pi__arch pi__arch_deepseek4 = {
    .name = "deepseek4", .size = sizeof(deepseek4), .declare = declare, .loaded = loaded, .layout = layout,
    .forward = forward, .logits = logits, .draft = draft, .draft_has_cache = true, .free = free_arch,
};
