/* Gemma 3, text (270M, 1B, 4B, 12B, 27B): GGUF architecture "gemma3".
 *
 * Layers of two kinds: most see a window of the last tokens and rotate with base 10,000, every sixth sees everything and
 * rotates with base 1,000,000 (and a linear factor in the larger sizes). A norm before and one after each block
 * ("sandwich"), norms on query and key heads, gelu-gated MLP, tied output. The file's norm weights include the +1.
 * After the Gemma 3 Technical Report (arXiv 2503.19786).
 *
 * Symbols in shapes: T tokens of the step, R rows wanted, E embedding, H query heads, K key/value heads, D head size,
 * F feed-forward, V vocabulary. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "model/model.h"

typedef struct layer {
    float *attn_norm;           /* [E] */
    pi__weight wq, wk, wv;      /* [H*D, E], [K*D, E], [K*D, E]; or */
    pi__weight wqkv;            /* [(H+2K)*D, E], rows q, k, v */
    float *q_norm, *k_norm;     /* [D] */
    pi__weight wo;              /* [E, H*D] */
    float *post_attn_norm;      /* [E] */
    float *ffn_norm;            /* [E] */
    pi__weight gate, up, down;  /* [F, E], [F, E], [E, F] */
    float *post_ffn_norm;       /* [E] */
    bool local;                 /* a window layer */
    int32_t kv;                 /* index into m->kv */
} layer;

typedef struct gemma3 {
    int32_t n_head, n_head_kv;  /* H, K */
    int32_t head_dim;           /* D */
    int32_t n_ff;               /* F */
    int32_t window;             /* tokens a window layer sees; 0: all layers are global */
    float eps;                  /* of every norm */
    float q_scale;              /* of queries */
    float softcap;              /* of logits; 0: none */
    float *freq_global, *freq_local; /* [D/2] rotation a position, on the host */
    float mscale;       /* of the global one's cosines and sines */
    pi__weight tok_embd;        /* [V, E] */
    pi__weight output;          /* [V, E]; n_out 0: tied */
    float *output_norm;         /* [E] */
    layer *layers;              /* [n_layer] */
    /* scratch */
    float *x;                   /* [T, E] residual stream */
    float *qkv;                 /* [T, (H+2K)*D] */
    float *att;                 /* [T, H*D] */
    float *y;                   /* [T, E] output of a block before its norm */
    float *ff;                  /* [T, 2F] gate, up */
    float *rope_global, *rope_local; /* [T, D] */
    float *rows;                /* [R, E] residual of the rows wanted */
} gemma3;

/* sliding_window_pattern: an array of one bool a layer, or absent: every sixth layer is global. */
static int read_pattern(pi__model *m, gemma3 *p, pi_error *err)
{
    const pi__gguf_kv *kv = pi__gguf_find(m->g, "gemma3.attention.sliding_window_pattern");
    bool array = kv && kv->type == PI__GGUF_ARR;
    if (array && (kv->n < (uint64_t) m->n_layer || kv->arr_type != PI__GGUF_BOOL))
        return pi__fail(err, PI_EFORMAT, "metadata gemma3.attention.sliding_window_pattern needs a bool for each layer");
    int32_t every = 6;
    if (kv && !array) {
        int rc = pi__hp_u32(m, "attention.sliding_window_pattern", true, 0, 1, PI__MAX_LAYERS, &every, err);
        if (rc) return rc;
    }
    for (int32_t i = 0; i < m->n_layer; i++) {
        bool local = array ? pi__gguf_elem_u64(kv, (uint64_t) i) != 0 : i % every != every - 1;
        p->layers[i].local = local && p->window > 0;
    }
    return PI_OK;
}

static int read_rope(pi__model *m, gemma3 *p, pi_error *err)
{
    float one;
    size_t size = (size_t) (p->head_dim / 2) * sizeof(float);
    p->freq_global = pi__malloc(size);
    p->freq_local = pi__malloc(size);
    if (!p->freq_global || !p->freq_local) return pi__fail_mem(err, "rope frequencies");
    int rc = pi__rope_freqs(m, "rope.freq_base", 1e6f, true, p->head_dim, p->freq_global, &p->mscale, err);
    return rc ? rc : pi__rope_freqs(m, "rope.freq_base_swa", 1e4f, false, p->head_dim, p->freq_local, &one, err);
}

static int read_params(pi__model *m, gemma3 *p, pi_error *err)
{
    int32_t vdim;
    int rc = pi__hp_u32(m, "attention.head_count", true, 0, 1, PI__MAX_HEADS, &p->n_head, err);
    if (!rc) rc = pi__hp_u32(m, "attention.head_count_kv", false, (uint32_t) p->n_head, 1, PI__MAX_HEADS, &p->n_head_kv, err);
    if (!rc) rc = pi__hp_u32(m, "attention.key_length", false, 256, 32, PI__MAX_HEAD_DIM, &p->head_dim, err);
    if (!rc) rc = pi__hp_u32(m, "attention.value_length", false, (uint32_t) p->head_dim, 32, PI__MAX_HEAD_DIM, &vdim, err);
    if (!rc) rc = pi__hp_u32(m, "feed_forward_length", true, 0, 1, PI__MAX_EMBD, &p->n_ff, err);
    if (!rc) rc = pi__hp_u32(m, "attention.sliding_window", false, 0, 0, 1 << 28, &p->window, err);
    if (!rc) rc = pi__hp_f32(m, "attention.layer_norm_rms_epsilon", true, 0, &p->eps, err);
    if (!rc) rc = pi__hp_f32(m, "final_logit_softcapping", false, 0, &p->softcap, err);
    if (rc) return rc;
    if (vdim != p->head_dim || p->head_dim % 32)
        return pi__fail(err, PI_EUNSUPPORTED, "metadata gemma3.attention.key_length %d and value_length %d must be equal "
                        "and a multiple of 32", p->head_dim, vdim);
    if (p->n_head % p->n_head_kv)
        return pi__fail(err, PI_EFORMAT, "metadata gemma3.attention.head_count %d is not a multiple of head_count_kv %d",
                        p->n_head, p->n_head_kv);
    /* The 27B scales by its embedding a head, the others by the head size. */
    p->q_scale = 1.0f / sqrtf(m->n_layer == 62 ? (float) m->n_embd / (float) p->n_head : (float) p->head_dim);
    m->lim.max_n_head = p->n_head;
    m->lim.max_head_dim = p->head_dim;
    return PI_OK;
}

static int want_layer(pi__model *m, gemma3 *p, int32_t i, pi_error *err)
{
    layer *l = &p->layers[i];
    int64_t E = m->n_embd, F = p->n_ff, Q = (int64_t) p->n_head * p->head_dim, KV = (int64_t) p->n_head_kv * p->head_dim;
    int32_t K = p->n_head_kv;
    const int64_t q[3] = {Q}, kv[3] = {KV}, all[3] = {Q, KV, KV};
    int rc = pi__want_vec(m, &l->attn_norm, false, E, "blk.%d.attn_norm.weight", i, err);
    if (!rc) rc = pi__want_heads(m, &l->wqkv, true, E, K, all, "blk.%d.attn_qkv.weight", i, err);
    if (!rc && !l->wqkv.n_out) {
        rc = pi__want_heads(m, &l->wq, false, E, K, q, "blk.%d.attn_q.weight", i, err);
        if (!rc) rc = pi__want_heads(m, &l->wk, false, E, K, kv, "blk.%d.attn_k.weight", i, err);
        if (!rc) rc = pi__want_heads(m, &l->wv, false, E, K, kv, "blk.%d.attn_v.weight", i, err);
    }
    if (!rc) rc = pi__want_vec(m, &l->q_norm, false, p->head_dim, "blk.%d.attn_q_norm.weight", i, err);
    if (!rc) rc = pi__want_vec(m, &l->k_norm, false, p->head_dim, "blk.%d.attn_k_norm.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->wo, false, Q, E, "blk.%d.attn_output.weight", i, err);
    if (!rc) rc = pi__want_vec(m, &l->post_attn_norm, false, E, "blk.%d.post_attention_norm.weight", i, err);
    if (!rc) rc = pi__want_vec(m, &l->ffn_norm, false, E, "blk.%d.ffn_norm.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->gate, false, E, F, "blk.%d.ffn_gate.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->up, false, E, F, "blk.%d.ffn_up.weight", i, err);
    if (!rc) rc = pi__want_weight(m, &l->down, false, F, E, "blk.%d.ffn_down.weight", i, err);
    if (!rc) rc = pi__want_vec(m, &l->post_ffn_norm, false, E, "blk.%d.post_ffw_norm.weight", i, err);
    if (!rc) rc = pi__want_kv(m, i, l->local ? p->window : 0, p->n_head_kv, p->head_dim, &l->kv, err);
    return rc;
}

static int declare(pi__model *m, pi_error *err)
{
    gemma3 *p = m->arch_data;
    p->layers = pi__calloc((size_t) m->n_layer, sizeof *p->layers);
    if (!p->layers) return pi__fail_mem(err, "the layers");
    int rc = read_params(m, p, err);
    if (!rc) rc = read_pattern(m, p, err);
    if (!rc) rc = read_rope(m, p, err);
    if (!rc) rc = pi__read_vocab_size(m, err);
    if (rc) return rc;
    rc = pi__want_weight(m, &p->tok_embd, false, m->n_embd, m->n_vocab, "token_embd.weight", 0, err);
    if (!rc) rc = pi__want_weight(m, &p->output, true, m->n_embd, m->n_vocab, "output.weight", 0, err);
    if (!rc) rc = pi__want_vec(m, &p->output_norm, false, m->n_embd, "output_norm.weight", 0, err);
    for (int32_t i = 0; i < m->n_layer && !rc; i++) rc = want_layer(m, p, i, err);
    return rc;
}

static void layout(pi__model *m, const pi__limits *lim, pi__arena *a)
{
    gemma3 *p = m->arch_data;
    size_t T = (size_t) lim->max_tokens, D = (size_t) p->head_dim, E = (size_t) m->n_embd, f = sizeof(float);
    p->x = pi__arena_take(a, T * E * f);
    p->qkv = pi__arena_take(a, T * (size_t) (p->n_head + 2 * p->n_head_kv) * D * f);
    p->att = pi__arena_take(a, T * (size_t) p->n_head * D * f);
    p->y = pi__arena_take(a, T * E * f);
    p->ff = pi__arena_take(a, T * 2 * (size_t) p->n_ff * f);
    p->rope_global = pi__arena_take(a, T * D * f);
    p->rope_local = pi__arena_take(a, T * D * f);
    p->rows = pi__arena_take(a, T * E * f);
}

/* att = attention(q, k, v) of the normed residual; writes this step's K,V. [T, H*D] */
static void attend(pi__model *m, gemma3 *p, layer *l, const pi__batch *b)
{
    int64_t D = p->head_dim, Q = p->n_head * D, KV = p->n_head_kv * D, ld = Q + 2 * KV;
    float *q = p->qkv, *k = q + Q, *v = k + KV; /* [T, H*D | K*D | K*D] */
    pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = p->x, .ldx = m->n_embd, .w = l->attn_norm, .eps = p->eps};
    if (l->wqkv.n_out) pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = b->n_tokens, .n_lin = 1, .lin = {{&l->wqkv, q, ld}}});
    else pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = b->n_tokens, .n_lin = 3, .lin = {{&l->wq, q, ld}, {&l->wk, k, ld}, {&l->wv, v, ld}}});

    const pi__kv_layer *kv = &m->kv[l->kv];
    pi__qkv prep = {.kv = kv, .q = q, .ldq = ld, .k = k, .ldk = ld, .v = v, .ldv = ld, .n_head = p->n_head, .q_norm = l->q_norm,
                    .k_norm = l->k_norm, .eps = p->eps, .rope = l->local ? p->rope_local : p->rope_global,
                    .n_rot = p->head_dim, .pair_stride = p->head_dim / 2, .q_scale = p->q_scale};
    pi__op_qkv(m->be, b, &prep);
    pi__attention att = {.kv = kv, .q = q, .ldq = ld, .out = p->att, .ldo = Q, .n_head = p->n_head, .window = l->local ? p->window : 0};
    pi__op_attention(m->be, b, &att);
}

/* The rest of the layer for n rows of residual x [n, E] and attention output att [n, H*D]. */
static void after_attention(pi__model *m, gemma3 *p, layer *l, float *x, const float *att, int32_t n)
{
    int64_t E = m->n_embd, F = p->n_ff;
    pi__lin_in a = {.kind = PI__IN_PLAIN, .x = att, .ldx = (int64_t) p->n_head * p->head_dim};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = a, .n_rows = n, .n_lin = 1, .lin = {{&l->wo, p->y, E}}});
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = x, .y = p->y, .w = l->post_attn_norm, .eps = p->eps, .scale = 1.0f, .n_rows = n, .n = E});

    float *gate = p->ff, *up = p->ff + F; /* [n, F | F] */
    pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = x, .ldx = E, .w = l->ffn_norm, .eps = p->eps};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = n, .n_lin = 2, .lin = {{&l->gate, gate, 2 * F}, {&l->up, up, 2 * F}}});
    pi__lin_in h = {.kind = PI__IN_GEGLU, .x = gate, .ldx = 2 * F, .x2 = up, .ldx2 = 2 * F};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = h, .n_rows = n, .n_lin = 1, .lin = {{&l->down, p->y, E}}});
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = x, .y = p->y, .w = l->post_ffn_norm, .eps = p->eps, .scale = 1.0f, .n_rows = n, .n = E});
}

static void forward(pi__model *m, const pi__batch *b)
{
    gemma3 *p = m->arch_data;
    int32_t half = p->head_dim / 2, E = m->n_embd;
    pi__op_embed(m->be, b, &(pi__embed) {.w = &p->tok_embd, .scale = sqrtf((float) E), .out = p->x});
    pi__op_rope(m->be, b, &(pi__rope) {.freq = p->freq_global, .n_freq = half, .mscale = p->mscale, .table = p->rope_global});
    pi__op_rope(m->be, b, &(pi__rope) {.freq = p->freq_local, .n_freq = half, .mscale = 1.0f, .table = p->rope_local});
    for (int32_t i = 0; i < m->n_layer - 1; i++) {
        attend(m, p, &p->layers[i], b);
        after_attention(m, p, &p->layers[i], p->x, p->att, b->n_tokens);
    }
    /* After the last layer's cache is written, only the rows whose logits are wanted matter. */
    layer *last = &p->layers[m->n_layer - 1];
    attend(m, p, last, b);
    if (!b->n_rows) return;
    float *att = p->qkv; /* [R, H*D]: the queries are done with */
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->row, .n_rows = b->n_rows, .x = p->x, .n = E, .out = p->rows});
    pi__op_gather_rows(m->be, NULL, &(pi__gather_rows) {.row = b->row, .n_rows = b->n_rows, .x = p->att, .n = (int64_t) p->n_head * p->head_dim, .out = att});
    after_attention(m, p, last, p->rows, att, b->n_rows);
}

static void logits(pi__model *m, int32_t first, int32_t n, float *out)
{
    gemma3 *p = m->arch_data;
    const pi__weight *w = p->output.n_out ? &p->output : &p->tok_embd;
    pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = p->rows + (size_t) first * (size_t) m->n_embd, .ldx = m->n_embd,
                     .w = p->output_norm, .eps = p->eps};
    pi__op_linear(m->be, NULL, &(pi__linear) {.in = in, .n_rows = n, .n_lin = 1, .lin = {{w, out, m->n_vocab}}});
    if (p->softcap > 0) pi__op_softcap(m->be, NULL, &(pi__softcap) {.x = out, .cap = p->softcap, .n_rows = n, .n = m->n_vocab});
}

static void free_arch(pi__model *m)
{
    gemma3 *p = m->arch_data;
    pi__free(p->freq_global);
    pi__free(p->freq_local);
    pi__free(p->layers);
}

static const char *size_name(const pi__model *m)
{
    switch (m->n_layer) {
    case 18: return "270M";
    case 26: return "1B";
    case 34: return "4B";
    case 48: return "12B";
    case 62: return "27B";
    default: return NULL;
    }
}

const pi__arch pi__arch_gemma3 = {
    .name = "gemma3", .size = sizeof(gemma3), .declare = declare, .layout = layout, .forward = forward,
    .logits = logits, .free = free_arch, .size_name = size_name,
};
