/* Qwen 3.5 and 3.6, text: GGUF architectures "qwen35" (dense) and "qwen35moe" (a router and 64 to 512 experts a
 * layer); also Qwen3-Next ("qwen3next"), with experts.
 *
 * Three of four layers are gated delta nets: a fixed-size state instead of a KV cache. Every fourth layer has full
 * attention, with norms on query and key heads, RoPE on the first quarter of a head, and a gate for each query head.
 * A norm before mixer and feed-forward; untied output in the larger sizes. The file's norm weights include the +1
 * (except the delta net's own norm). After "Gated Delta Networks" (arXiv 2412.06464) and the models' configurations.
 *
 * Value heads of a delta net are in the order of op gdn: the heads of one key head are n_k apart. In Qwen3-Next files
 * they are adjacent. The rows that produce them are reordered at load. gdn writes its output in the column order of
 * the output matrix, which is not reordered (pi__gdn.grouped). These files have alpha and beta as one matrix, by key
 * head. Older ones do likewise with queries, keys, values and z.
 *
 * A last block after the trunk, if the file has one, is the draft head (MTP, "nextn"): an attention layer that reads
 * the trunk's last hidden row and the next token's embedding. The trunk never runs it. It is loaded for drafting
 * only.
 *
 * Symbols in shapes: T tokens of the step, R logits rows, E embedding, H query heads, K key/value heads, D head size;
 * k, v key and value heads of the delta net, d its head size, C = (2k + v)*d; F feed-forward, N experts, V
 * vocabulary. */
#include <math.h>
#include <stdio.h>

#include "formats/formats.h"
#include "model/nextn.h"

typedef struct layer {
    bool delta;                     /* true: delta net; false: attention */
    pi__attn attn;                  /* attention; a head's query is followed by its gate */
    /* delta net */
    float *norm;                    /* [E] RMSNorm before the delta net */
    int32_t state;                  /* index into m->state */
    /* [C, E], [v*d, E], [v, E], [v, E]. z empty: qkv also has z's rows, after its own. beta empty: alpha also has
     * beta's */
    pi__weight qkv, z, alpha, beta;
    float *conv;                    /* [C, taps] convolution, the last tap for the current token */
    float *dt_bias, *a;             /* [v] log decay = a * softplus(alpha + dt_bias) */
    float *head_norm;               /* [d] RMSNorm of each head's output */
    pi__weight wo;                  /* [E, v*d] output projection */
    /* feed-forward */
    float *ffn_norm;                /* [E] RMSNorm before the feed-forward */
    /* dense feed-forward, or the shared expert; n_ff 0 = a draft head without feed-forward */
    pi__mlp mlp;
    pi__weight router;              /* [N, E] logits of the experts */
    pi__experts experts;
    pi__weight shared_gate;         /* [1, E] sigmoid gate of the shared expert */
} layer;

/* The draft head and its layer. */
typedef struct draft_head {
    layer block;                /* the attention layer */
    pi__nextn next;             /* input and output of the head */
} draft_head;

typedef struct qwen35 {
    bool moe;                   /* qwen35moe or qwen3next */
    int32_t n_trunk;            /* layers that are run: without the draft head's */
    int32_t n_ff;               /* F of the dense feed-forward */
    int32_t n_ff_shared;        /* F of the shared expert */
    pi__attn attn;              /* template of the attention layers */
    pi__experts experts;        /* template of the layers' experts */
    pi__state_layer delta;      /* shape of the delta nets */
    /* Qwen3-Next: its row orders follow; they are NULL for files in the order of this code */
    bool next;
    /* [C + v*d] file rows of queries, keys, values and z, if they are one matrix; else [C], then [v*d] for z */
    int32_t *rows_in;
    int32_t *taps;              /* [C, taps] index in the file of each value of conv */
    int32_t *rows_ab;           /* [2v] file rows of alpha, then beta */
    int32_t *heads;             /* [v] index in the file of each value of dt_bias and a */
    float eps;                  /* of every norm */
    pi__rotation rot;
    pi__head head;
    layer *layers;              /* [n_trunk] */
    draft_head *draft;          /* NULL = none */
    /* scratch. For delta nets, qkv is [T, C + v*d + 2v]; routes is [T, N + 1]: router logits, shared expert's gate */
    pi__work work;
    float *shared;              /* scratch: [T, E] output of the shared expert */
} qwen35;

/* ------------------------------------------------------------------------------------------------ hyperparameters */

static void read_heads(pi__model *m, qwen35 *p)
{
    pi__attn *a = &p->attn;
    a->n_head = pi__hp_u32(m, "attention.head_count", 1, PI__MAX_HEADS);
    a->n_head_kv = pi__hp_u32_or(m, "attention.head_count_kv", (uint32_t) a->n_head, 1, PI__MAX_HEADS);
    a->head_dim = pi__hp_u32_or(m, "attention.key_length", 256, 32, PI__MAX_HEAD_DIM);
    const int32_t vdim = pi__hp_u32_or(m, "attention.value_length", (uint32_t) a->head_dim, 32, PI__MAX_HEAD_DIM);
    const int32_t n_rot = pi__hp_u32(m, "rope.dimension_count", 2, (uint32_t) a->head_dim);
    p->eps = a->eps = p->head.eps = pi__hp_f32(m, "attention.layer_norm_rms_epsilon");
    const float scale = pi__hp_f32_or(m, "attention.scale", 0);
    const char *name = m->arch->name;
    if (vdim != a->head_dim || a->head_dim % 32)
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "metadata %s.attention.key_length %d and value_length %d must be equal and a "
                         "multiple of 32",
                         name, a->head_dim, vdim);
    if (a->n_head % a->n_head_kv)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.attention.head_count %d is not a multiple of head_count_kv %d",
                         name, a->n_head, a->n_head_kv);
    a->q_scale = scale > 0 ? scale : 1.0f / sqrtf((float) a->head_dim);
    a->flags = PI__ATTN_QK_NORM | PI__ATTN_GATED;
    a->rot = &p->rot;
    p->head.embd_scale = 1.0f;
    pi__rotation_declare(m, &p->rot, n_rot, "rope.freq_base", 1e7f, true);
    pi__rotation_sections(m, &p->rot, true, false);
}

static void read_delta(pi__model *m, qwen35 *p)
{
    pi__state_layer *s = &p->delta;
    s->n_conv = pi__hp_u32(m, "ssm.conv_kernel", 2, 64);
    s->dim = pi__hp_u32(m, "ssm.state_size", 1, PI__MAX_HEAD_DIM);
    s->n_k = pi__hp_u32(m, "ssm.group_count", 1, PI__MAX_HEADS);
    s->n_v = pi__hp_u32(m, "ssm.time_step_rank", 1, PI__MAX_HEADS);
    const int32_t inner = pi__hp_u32(m, "ssm.inner_size", 1, INT32_MAX);
    if (s->n_v % s->n_k)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.ssm.time_step_rank %d is not a multiple of group_count %d",
                         m->arch->name, s->n_v, s->n_k);
    if ((int64_t) s->n_v * s->dim != inner)
        pi__model_refuse(m, PI_EFORMAT,
                         "metadata %s.ssm.inner_size is %d, expected time_step_rank %d times state_size %d",
                         m->arch->name, inner, s->n_v, s->dim);
}

static void read_ffn(pi__model *m, qwen35 *p)
{
    if (!p->moe) {
        p->n_ff = pi__hp_u32(m, "feed_forward_length", 1, PI__MAX_EMBD);
        return;
    }
    p->n_ff = pi__hp_u32_or(m, "feed_forward_length", 0, 0, PI__MAX_EMBD);
    pi__experts_read(m, &p->experts, true);
    p->experts.act = PI__IN_SWIGLU;
    const float scale = pi__hp_f32_or(m, "expert_weights_scale", 0);
    if (scale > 0) p->experts.weights_scale = scale;
    const char *key = "expert_shared_feed_forward_length";
    p->n_ff_shared = p->n_ff ? pi__hp_u32_or(m, key, (uint32_t) p->n_ff, 1, PI__MAX_EMBD)
                             : pi__hp_u32(m, key, 1, PI__MAX_EMBD);
}

/* Returns F of layer i's experts; the key has one number or an array with one per layer. */
static int32_t expert_ff(pi__model *m, qwen35 *p, int32_t i)
{
    char key[64];
    snprintf(key, sizeof key, "%s.expert_feed_forward_length", m->arch->name);
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    if (kv && kv->type == PI__GGUF_ARR) {
        uint64_t v = 0;
        if (kv->n >= (uint64_t) m->n_layer && (kv->arr_type == PI__GGUF_U32 || kv->arr_type == PI__GGUF_I32))
            v = pi__gguf_elem_u64(kv, (uint64_t) i);
        if (v >= 1 && v <= PI__MAX_EMBD) return (int32_t) v;
        pi__model_refuse(m, PI_EFORMAT, "metadata %s needs a number of 1 to %d for each layer", key, PI__MAX_EMBD);
        return 1;
    }
    if (p->n_ff < p->experts.n_used) return pi__hp_u32(m, "expert_feed_forward_length", 1, PI__MAX_EMBD);
    return pi__hp_u32_or(m, "expert_feed_forward_length", (uint32_t) (p->n_ff / p->experts.n_used), 1, PI__MAX_EMBD);
}

/* Reads the layers' kinds. recurrent_layers: an array with one bool per layer. Without it, every
 * full_attention_interval-th layer is attention. */
static void read_pattern(pi__model *m, qwen35 *p)
{
    const pi__gguf_kv *kv = pi__hp_array(m, "attention.recurrent_layers", PI__GGUF_BOOL, p->n_trunk, false);
    const int32_t every = pi__hp_u32_or(m, "full_attention_interval", 4, 1, PI__MAX_LAYERS);
    for (int32_t i = 0; i < p->n_trunk && pi__model_ok(m); i++)
        p->layers[i].delta = kv ? pi__gguf_elem_u64(kv, (uint64_t) i) != 0 : (i + 1) % every != 0;
}

static void read_params(pi__model *m, qwen35 *p)
{
    const int32_t n_draft = pi__hp_u32_or(m, "nextn_predict_layers", 0, 0, 1);
    p->next = m->arch == &pi__arch_qwen3next;
    p->moe = p->next || m->arch == &pi__arch_qwen35moe;
    p->n_trunk = m->n_layer - n_draft;
    pi__read_trunk(m, p->n_trunk);
    if (m->with_head && !n_draft)
        pi__model_refuse(m, PI_EUNSUPPORTED, "spec-type mtp: the file has no draft head (%s.nextn_predict_layers is 0)",
                         m->arch->name);
    if (p->n_trunk < 1)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s.block_count leaves no layer besides the draft head",
                         m->arch->name);
    p->layers = pi__model_calloc(m, (size_t) p->n_trunk, sizeof *p->layers, "the layers");
    if (m->with_head) p->draft = pi__model_calloc(m, 1, sizeof *p->draft, "the layers");
    read_heads(m, p);
    read_delta(m, p);
    read_ffn(m, p);
    read_pattern(m, p);
}

/* -------------------------------------------------------------------------------------------------------- tensors */

/* Returns the number of channels of the convolution. */
static int64_t n_channels(const qwen35 *p) { return (int64_t) (2 * p->delta.n_k + p->delta.n_v) * p->delta.dim; }

static int64_t widest(int64_t a, int64_t b) { return a > b ? a : b; }

/* Returns the position of value head j in Qwen3-Next's order, which has the heads of a key head adjacent. */
static int32_t head_at(const pi__state_layer *s, int32_t j) { return pi__gdn_place(s->n_k, s->n_v, true, j); }

/* Sets row to the file rows of queries, keys, values and z. whole: they are one matrix in the file, grouped by key
 * head. */
static void order_rows(const pi__state_layer *s, bool whole, int32_t *row)
{
    const int32_t d = s->dim, r = s->n_v / s->n_k, keys = s->n_k * d, C = 2 * keys + s->n_v * d,
                  group = 2 * d + 2 * r * d;
    for (int32_t i = 0; i < 2 * keys; i++) row[i] = whole ? i % keys / d * group + i / keys * d + i % d : i;
    for (int32_t i = 0; i < s->n_v * d; i++) {
        const int32_t j = head_at(s, i / d), at = j / r * group + 2 * d + j % r * d + i % d;
        row[2 * keys + i] = whole ? at : 2 * keys + j * d + i % d;
        row[C + i] = whole ? at + r * d : j * d + i % d;
    }
}

static void order_heads(pi__model *m, qwen35 *p)
{
    const pi__state_layer *s = &p->delta;
    const int32_t nv = s->n_v, r = nv / s->n_k, first = 2 * s->n_k * s->dim, taps = s->n_conv;
    const size_t C = (size_t) n_channels(p);
    if (C > PI__MAX_EMBD || taps > PI__MAX_CONV)
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "metadata qwen3next.ssm: %zu channels with %d taps are more than %d with %d", C, taps,
                         PI__MAX_EMBD, PI__MAX_CONV);
    p->rows_in = pi__model_calloc(m, C + (size_t) nv * (size_t) s->dim, sizeof *p->rows_in, "the order of heads");
    p->taps = pi__model_calloc(m, C * (size_t) taps, sizeof *p->taps, "the order of heads");
    p->rows_ab = pi__model_calloc(m, 2 * (size_t) nv, sizeof *p->rows_ab, "the order of heads");
    p->heads = pi__model_calloc(m, (size_t) nv, sizeof *p->heads, "the order of heads");
    if (!pi__model_ok(m)) return;
    int32_t layer = 0;
    while (layer < p->n_trunk - 1 && !p->layers[layer].delta) layer++;
    order_rows(s, pi__has_tensor(m, "ssm_in.weight", layer), p->rows_in);
    for (int32_t j = 0; j < nv; j++) {
        const int32_t at = head_at(s, j);
        p->heads[j] = at;
        p->rows_ab[j] = at / r * 2 * r + r + at % r;
        p->rows_ab[nv + j] = at / r * 2 * r + at % r;
    }
    for (int32_t i = 0; i < (int32_t) C * taps; i++) {
        const int32_t c = i / taps, value = c - first;
        p->taps[i] = (c < first ? c : first + head_at(s, value / s->dim) * s->dim + value % s->dim) * taps + i % taps;
    }
}

static void want_delta(pi__model *m, qwen35 *p, layer *l, int32_t i)
{
    const int64_t E = m->n_embd, C = n_channels(p), nv = p->delta.n_v, VD = nv * p->delta.dim;
    if (p->next && pi__has_tensor(m, "ssm_in.weight", i)) {
        pi__declare_weight_rows(m, &l->qkv, E, C + VD, p->rows_in, "ssm_in.weight", i);
    } else {
        pi__declare_weight_rows(m, &l->qkv, E, C, p->rows_in, "attn_qkv.weight", i);
        pi__declare_weight_rows(m, &l->z, E, VD, p->rows_in ? p->rows_in + C : NULL, "attn_gate.weight", i);
    }
    if (p->next) {
        pi__declare_weight_rows(m, &l->alpha, E, 2 * nv, p->rows_ab, "ssm_ba.weight", i);
    } else {
        pi__declare_weight(m, &l->alpha, E, nv, "ssm_alpha.weight", i);
        pi__declare_weight(m, &l->beta, E, nv, "ssm_beta.weight", i);
    }
    pi__declare_table_at(m, &l->conv, C, p->delta.n_conv, p->taps, "ssm_conv1d.weight", i);
    pi__declare_vec_rows(m, &l->dt_bias, nv, p->heads, "ssm_dt.bias", i);
    pi__declare_vec_rows(m, &l->a, nv, p->heads, "ssm_a", i);
    pi__declare_vec(m, &l->head_norm, p->delta.dim, "ssm_norm.weight", i);
    pi__declare_weight(m, &l->wo, VD, E, "ssm_out.weight", i);
    p->delta.exact = pi__type_is_float(l->qkv.type);
    l->state = pi__declare_state(m, i, &p->delta);
    p->work.max_qkv = widest(p->work.max_qkv, C + VD + 2 * nv);
    p->work.max_att = widest(p->work.max_att, VD);
}

static void want_experts(pi__model *m, qwen35 *p, layer *l, int32_t i)
{
    const int64_t E = m->n_embd;
    l->experts = p->experts;
    if (m->n_used) l->experts.n_used = m->n_used;
    l->experts.n_ff = expert_ff(m, p, i);
    l->mlp.n_ff = p->n_ff_shared;
    pi__declare_weight(m, &l->router, E, p->experts.n_expert, "ffn_gate_inp.weight", i);
    pi__experts_declare(m, &l->experts, true, i, &p->work);
    pi__declare_weight(m, &l->shared_gate, E, 1, "ffn_gate_inp_shexp.weight", i);
    pi__mlp_declare(m, &l->mlp, "_shexp", i, &p->work);
    p->work.n_expert = p->experts.n_expert + 1; /* plus the shared expert's gate */
}

static void want_layer(pi__model *m, qwen35 *p, layer *l, int32_t i)
{
    const int64_t E = m->n_embd;
    l->attn = p->attn;
    pi__declare_vec(m, l->delta ? &l->norm : &l->attn.norm, E, "attn_norm.weight", i);
    if (l->delta) want_delta(m, p, l, i);
    else pi__attn_declare(m, &l->attn, i, &p->work);
    l->mlp.act = PI__IN_SWIGLU;
    if (p->moe) {
        want_experts(m, p, l, i);
    } else if (i < p->n_trunk || pi__has_tensor(m, "ffn_gate.weight", i)) { /* some draft heads have no feed-forward */
        l->mlp.n_ff = p->n_ff;
        pi__mlp_declare(m, &l->mlp, "", i, &p->work);
    }
    if (l->mlp.n_ff) pi__declare_vec(m, &l->ffn_norm, E, "post_attention_norm.weight", i);
    else pi__declare_vec_or_not(m, &l->ffn_norm, E, "post_attention_norm.weight", i);
}

static void declare(pi__model *m)
{
    qwen35 *p = m->arch_data;
    read_params(m, p);
    if (p->n_trunk < m->n_layer && pi__has_tensor(m, "token_embd.weight", PI__OF_FILE) &&
        !pi__has_tensor(m, "attn_norm.weight", 0))
        pi__model_refuse(m, PI_EFORMAT, "tensor blk.0.attn_norm.weight is missing, this file is only a draft head: "
                         "give the model it belongs to");
    pi__head_declare(m, &p->head, true);
    if (p->next) order_heads(m, p);
    for (int32_t i = 0; i < m->n_trunk && pi__model_ok(m); i++) want_layer(m, p, &p->layers[i], i);
    if (!p->draft || !pi__model_ok(m)) return;
    want_layer(m, p, &p->draft->block, p->n_trunk);
    pi__nextn_declare(m, &p->draft->next, p->n_trunk);
}

/* ---------------------------------------------------------------------------------------------------------- graph */

/* Returns the values in a row of att: the output of attention or of the delta net. */
static int64_t mixer_width(const qwen35 *p, const layer *l)
{
    return l->delta ? (int64_t) p->delta.n_v * p->delta.dim : (int64_t) l->attn.n_head * l->attn.head_dim;
}

static void layout(pi__model *m, const pi__limits *lim, pi__arena *a)
{
    qwen35 *p = m->arch_data;
    const size_t T = (size_t) lim->max_tokens, E = (size_t) m->n_embd, f = sizeof(float);
    pi__work_layout(m, &p->work, a, T);
    p->shared = pi__arena_take(a, T * (p->moe ? E : 0) * f);
    pi__rotation_layout(&p->rot, a, T);
    pi__capture_layout(m, a, T);
    if (p->draft) pi__nextn_layout(m, &p->draft->next, lim, a);
}

/* s->att [T, v*d] = delta rule of the normed residual. Updates the sequences' states. */
static void delta_rule(pi__model *m, const qwen35 *p, const layer *l, const pi__stream *s)
{
    const int64_t C = n_channels(p), nv = p->delta.n_v, VD = nv * p->delta.dim, ld = C + VD + 2 * nv;
    float *qkv = s->qkv, *z = qkv + C, *alpha = z + VD, *beta = alpha + nv; /* [T, C | v*d | v | v] */
    const pi__lin lin[] = {{&l->qkv, qkv, ld}, {&l->z, z, ld}, {&l->alpha, alpha, ld}, {&l->beta, beta, ld}};
    pi__linear all = {.in = pi__normed(m, s->x, l->norm, p->eps), .n_rows = s->n};
    for (int i = 0; i < 4; i++)
        if (lin[i].w->n_out) all.lin[all.n_lin++] = lin[i];
    pi__multiply(m, &all);
    const pi__gdn a = {.st = &m->state[l->state],
                       .qkv = qkv,
                       .ld_qkv = ld,
                       .z = z,
                       .ld_z = ld,
                       .alpha = alpha,
                       .beta = beta,
                       .ld_ab = ld,
                       .conv = l->conv,
                       .dt_bias = l->dt_bias,
                       .a = l->a,
                       .norm = l->head_norm,
                       .eps = p->eps,
                       .out = s->att,
                       .ldo = VD,
                       .grouped = p->next};
    pi__op_gdn(m->be, s->b, &a);
}

/* s->x += output of the routed experts plus the gated shared expert, for input `in`. */
static void experts(pi__model *m, const qwen35 *p, const layer *l, const pi__lin_in *in, const pi__stream *s)
{
    const int64_t E = m->n_embd, N = l->experts.n_expert, F = l->mlp.n_ff, ld = N + 1;
    float *logits = p->work.routes, *gate = logits + N; /* [n, N | 1] */
    const pi__linear all = {.in = *in, .n_rows = s->n, .n_lin = 4,
                            .lin = {{&l->router, logits, ld}, {&l->shared_gate, gate, ld}, {&l->mlp.gate, s->ff, 2 * F},
                                    {&l->mlp.up, s->ff + F, 2 * F}}};
    pi__multiply(m, &all);
    pi__experts_forward(m, &l->experts, in, s->n, logits, ld, NULL, s->y);
    pi__mlp_down(m, &l->mlp, s->ff, s->n, p->shared);
    pi__op_add_gated(m->be, NULL,
                     &(pi__add_gated) {.y = s->y, .x = p->shared, .gate = gate, .ldg = ld, .n_rows = s->n, .n = E});
    pi__op_add_norm(m->be, NULL, &(pi__add_norm) {.x = s->x, .y = s->y, .scale = 1.0f, .n_rows = s->n, .n = E});
}

/* Runs the layer from the output projection of attention or delta net to its end. */
static void after_mixer(pi__model *m, const qwen35 *p, const layer *l, const pi__stream *s)
{
    const pi__add_norm add = {.x = s->x, .y = s->y, .scale = 1.0f, .n_rows = s->n, .n = m->n_embd};
    if (l->delta) {
        const pi__lin_in a = {.kind = PI__IN_PLAIN, .x = s->att, .ldx = mixer_width(p, l)};
        pi__matmul(m, &a, s->n, &l->wo, s->y, m->n_embd);
        pi__op_add_norm(m->be, NULL, &add);
    } else {
        pi__attn_output(m, &l->attn, s);
    }
    if (!l->mlp.n_ff) return;
    const pi__lin_in in = pi__normed(m, s->x, l->ffn_norm, p->eps);
    if (p->moe) {
        experts(m, p, l, &in, s);
        return;
    }
    pi__mlp_forward(m, &l->mlp, &in, s->n, s->ff, s->y);
    pi__op_add_norm(m->be, NULL, &add);
}

static void mix(pi__model *m, const qwen35 *p, const layer *l, const pi__stream *s)
{
    if (l->delta) {
        delta_rule(m, p, l, s);
        return;
    }
    pi__attn_project(m, &l->attn, s);
    pi__attn_attend(m, &l->attn, s, 0);
}

static void forward(pi__model *m, const pi__batch *b, int32_t n_layer)
{
    qwen35 *p = m->arch_data;
    pi__stream s = pi__stream_of(&p->work, b);
    const bool all = p->draft || pi__last_captured(m) >= n_layer; /* a drafter reads all rows */
    pi__head_embed(m, &p->head, b, s.x);
    pi__rotation_forward(m, &p->rot, b);
    for (int32_t i = 0; i < n_layer; i++) {
        const layer *l = &p->layers[i];
        const bool last = i == n_layer - 1 && !all;
        pi__capture(m, b, i, s.x);
        mix(m, p, l, &s);
        if (last && !b->n_rows) return;
        if (last) pi__stream_result_rows(m, &s, mixer_width(p, l), p->work.rows);
        after_mixer(m, p, l, &s);
    }
    if (!all) return;
    pi__capture(m, b, n_layer, s.x);
    pi__gather_logits_rows(m, b, s.x, m->n_embd, p->work.rows);
}

static void logits(pi__model *m, int32_t first, int32_t n, float *out)
{
    const qwen35 *p = m->arch_data;
    pi__head_logits(m, &p->head, p->work.rows + (size_t) first * (size_t) m->n_embd, n, out);
}

static void hidden_states(pi__model *m, int32_t first, int32_t n, float *out)
{
    const qwen35 *p = m->arch_data;
    pi__head_hidden(m, &p->head, p->work.rows + (size_t) first * (size_t) m->n_embd, n, out);
}

/* Runs the draft head: one attention layer. */
static void draft(pi__model *m, const pi__batch *b, bool chained, float *logits)
{
    qwen35 *p = m->arch_data;
    const draft_head *h = p->draft;
    pi__stream s = pi__stream_of(&p->work, b);
    pi__nextn_input(m, &h->next, &p->head, b, p->work.x, chained, s.y);
    s.x = h->next.x;
    pi__rotation_forward(m, &p->rot, b);
    pi__attn_project(m, &h->block.attn, &s);
    if (!logits) return;
    pi__attn_attend(m, &h->block.attn, &s, 1);
    pi__stream_result_rows(m, &s, mixer_width(p, &h->block), h->next.pair); /* [R, E] */
    after_mixer(m, p, &h->block, &s);
    pi__nextn_logits(m, &h->next, &p->head, s.x, s.n, logits);
}

static const char *size_name(const pi__model *m)
{
    const qwen35 *p = m->arch_data;
    static const struct {
        int32_t n_layer, n_embd;
        bool moe;
        const char *name;
    } sizes[] = {
        {24, 1024, false, "0.8B"},     {24, 2048, false, "2B"},     {32, 2560, false, "4B"},
        {32, 4096, false, "9B"},       {64, 5120, false, "27B"},    {40, 2048, true, "35B-A3B"},
        {60, 4096, true, "397B-A17B"}, {48, 2048, true, "80B-A3B"},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].n_layer == p->n_trunk && sizes[i].n_embd == m->n_embd && sizes[i].moe == p->moe)
            return sizes[i].name;
    return NULL;
}

#define QWEN35                                                                                                         \
    .size = sizeof(qwen35), .declare = declare, .layout = layout, .forward = forward, .logits = logits,                \
    .hidden = hidden_states, .draft = draft, .draft_has_cache = true, .captures = true, .adapters = true,              \
    .size_name = size_name

const pi__arch pi__arch_qwen35 = {.name = "qwen35", QWEN35};
const pi__arch pi__arch_qwen35moe = {.name = "qwen35moe", QWEN35};
const pi__arch pi__arch_qwen3next = {.name = "qwen3next", QWEN35};
