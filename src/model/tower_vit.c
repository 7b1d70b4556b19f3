/* The transformer block over patches that all towers share (tower_impl.h).
 *
 *     h = x + [norm](attention(norm x))        x = (h + [norm](feed-forward(norm h))) * out_scale
 *
 * Heads. The ops need a head size that the backend supports (a multiple of 16). Other sizes are filled up with zeros
 * when the matrices of q, k and v are loaded: zeros change neither a score nor the sum over values. The zeros at the
 * end of a head's result are dropped before the output projection. Norms of heads divide by the larger size: their
 * weights and epsilons correct for it. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "formats/formats.h"
#include "model/tower_impl.h"

/* ---- declaring */

void pi__vit_read(pi__tower *t)
{
    pi__model *m = t->m;
    pi__vit *v = &t->vit;
    v->n_embd = m->n_embd = pi__hp_u32(m, "vision.embedding_length", 1, PI__MAX_EMBD);
    v->n_head = pi__hp_u32(m, "vision.attention.head_count", 1, PI__MAX_HEADS);
    v->n_ff = pi__hp_u32(m, "vision.feed_forward_length", 1, PI__MAX_EMBD);
    v->n_layer = m->n_layer = m->n_trunk = pi__hp_u32(m, "vision.block_count", 1, PI__MAX_LAYERS);
    v->eps = pi__hp_f32(m, "vision.attention.layer_norm_epsilon");
    if (v->n_embd % v->n_head)
        pi__model_refuse(m, PI_EFORMAT, "metadata clip.vision.embedding_length %d is not a multiple of head_count %d",
                         v->n_embd, v->n_head);
    if (pi__hp_u32_or(m, "vision.attention.head_count_kv", (uint32_t) v->n_head, 1, PI__MAX_HEADS) != v->n_head)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata clip.vision.attention.head_count_kv: only head_count, %d, is "
                         "supported", v->n_head);
    v->d = v->n_embd / v->n_head;
    if (pi__hp_u32_or(m, "vision.attention.head_dim", (uint32_t) v->d, 1, PI__MAX_HEAD_DIM) != v->d)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata clip.vision.attention.head_dim: only %d, embedding_length / "
                         "head_count, is supported", v->d);
}

/* Sets D to the smallest head size that the backend supports, and the layer of the pool. */
static void choose_head(pi__tower *t)
{
    pi__vit *v = &t->vit;
    pi__model *m = t->m;
    pi__kv_layer *kv = &t->kv;
    pi__backend *be = pi__backend_at(m->be, pi__default_placement(m->be));
    *kv = (pi__kv_layer) {.type_k = PI__F32, .type_v = PI__F32, .n_head_kv = v->n_head,
                          .placement = pi__default_placement(m->be)};
    for (v->dim = (v->d + 15) / 16 * 16; v->dim <= 512 && !kv->stride; v->dim += 16)
        kv->stride = be->dev->kv_bytes(be, PI__F32, PI__F32, v->n_head, v->dim, PI__TOWER_BLOCK);
    kv->head_dim = v->dim -= 16;
    if (!kv->stride)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata clip.vision: %d heads of %d values, which %s cannot compute",
                         v->n_head, v->d, be->dev->describe(be));
    if (v->dim > m->lim.max_head_dim) m->lim.max_head_dim = v->dim;
    if (v->n_head > m->lim.max_n_head) m->lim.max_n_head = v->n_head;
}

/* Sets the file row of each row of q, k and v: of separate matrices, and of a fused one (q, then k, then v). */
static void order_heads(pi__tower *t)
{
    pi__vit *v = &t->vit;
    int32_t *list[6];
    const size_t n = (size_t) v->n_head * (size_t) v->dim;
    for (int i = 0; i < 6; i++) list[i] = pi__model_calloc(t->m, n, sizeof(int32_t), "row orders");
    v->head_row = pi__model_calloc(t->m, (size_t) v->dim, sizeof(int32_t), "row orders");
    if (!pi__model_ok(t->m)) return;
    for (int32_t j = 0; j < v->dim; j++) v->head_row[j] = j >= v->d ? -1 : v->order ? v->order[j] : j;
    for (int32_t i = 0; i < (int32_t) n; i++) {
        const int32_t j = i % v->dim, start = i / v->dim * v->d;
        for (int k = 0; k < 3; k++) {
            const int32_t at = j >= v->d ? -1 : start + (k < 2 ? v->head_row[j] : j);
            list[k][i] = at;
            list[3 + k][i] = at < 0 ? -1 : at + k * v->n_embd;
        }
    }
    v->q_row = list[0], v->k_row = list[1], v->v_row = list[2];
    v->q_fused = list[3], v->k_fused = list[4], v->v_fused = list[5];
}

void pi__vit_declare_norm(pi__tower *t, pi__vit_norm *n, int64_t size, bool rms, const char *name)
{
    char full[112];
    snprintf(full, sizeof full, "%s.weight", name);
    pi__declare_vec(t->m, &n->w, size, full, PI__OF_FILE);
    if (rms) return;
    snprintf(full, sizeof full, "%s.bias", name);
    pi__declare_vec(t->m, &n->shift, size, full, PI__OF_FILE);
}

/* Writes the name of a layer's tensor to out, and returns out. */
static const char *name_of(char out[96], int32_t layer, const char *name)
{
    snprintf(out, 96, "v.blk.%d.%s", layer, name);
    return out;
}

static void declare_norm(pi__tower *t, pi__vit_norm *n, int32_t layer, const char *name)
{
    char full[96];
    pi__vit_declare_norm(t, n, t->vit.n_embd, t->vit.rms, name_of(full, layer, name));
}

static void declare_heads(pi__tower *t, pi__vit_layer *l, int32_t i)
{
    static const char *const part[] = {"attn_q", "attn_k", "attn_v"};
    pi__vit *v = &t->vit;
    const int64_t E = v->n_embd, n = (int64_t) v->n_head * v->dim;
    pi__weight *const w[] = {&l->wq, &l->wk, &l->wv};
    float **const bias[] = {&l->q_bias, &l->k_bias, &l->v_bias};
    const int32_t *const row[] = {v->q_row, v->k_row, v->v_row}, *const fused[] = {v->q_fused, v->k_fused, v->v_fused};
    char full[96], name[32];
    const bool one = pi__has_tensor(t->m, name_of(full, i, "attn_qkv.weight"), PI__OF_FILE);
    for (int k = 0; k < 3; k++) {
        const int64_t n_rows = one ? 3 * E : E;
        snprintf(name, sizeof name, "%s.weight", one ? "attn_qkv" : part[k]);
        pi__declare_gathered(t->m, w[k], E, n, one ? fused[k] : row[k], n_rows, name_of(full, i, name), PI__OF_FILE);
        snprintf(name, sizeof name, "%s.bias", one ? "attn_qkv" : part[k]);
        pi__declare_vec_gathered(t->m, bias[k], n, one ? fused[k] : row[k], n_rows, 1.0f, name_of(full, i, name),
                                 PI__OF_FILE);
    }
    if (!v->qk_norm) return;
    const float f = sqrtf((float) v->d / (float) v->dim);
    pi__declare_vec_gathered(t->m, &l->q_norm, v->dim, v->head_row, v->d, f, name_of(full, i, "attn_q_norm.weight"),
                             PI__OF_FILE);
    pi__declare_vec_gathered(t->m, &l->k_norm, v->dim, v->head_row, v->d, f, name_of(full, i, "attn_k_norm.weight"),
                             PI__OF_FILE);
    if (!l->q_norm != !l->k_norm || !pi__has_tensor(t->m, full, PI__OF_FILE))
        pi__model_refuse(t->m, PI_EFORMAT, "tensor %s is missing", full);
}

static void declare_ffn(pi__tower *t, pi__vit_layer *l, int32_t i)
{
    pi__vit *v = &t->vit;
    const int64_t E = v->n_embd, F = v->n_ff;
    char full[96];
    const pi__tensor *down = pi__gguf_find_tensor(t->m->g, name_of(full, i, "ffn_down.weight"));
    /* older files have the names of up and down exchanged */
    const bool turned = down && down->ne[0] == E && E != F;
    const char *const up_w = turned ? "ffn_down.weight" : "ffn_up.weight",
               *const up_b = turned ? "ffn_down.bias" : "ffn_up.bias",
               *const down_w = turned ? "ffn_up.weight" : "ffn_down.weight",
               *const down_b = turned ? "ffn_up.bias" : "ffn_down.bias";
    if (v->gated) {
        pi__declare_weight(t->m, &l->gate, E, F, name_of(full, i, "ffn_gate.weight"), PI__OF_FILE);
        pi__declare_vec_or_not(t->m, &l->gate_bias, F, name_of(full, i, "ffn_gate.bias"), PI__OF_FILE);
    }
    pi__declare_weight(t->m, &l->up, E, F, name_of(full, i, up_w), PI__OF_FILE);
    pi__declare_vec_or_not(t->m, &l->up_bias, F, name_of(full, i, up_b), PI__OF_FILE);
    pi__declare_weight(t->m, &l->down, F, E, name_of(full, i, down_w), PI__OF_FILE);
    pi__declare_vec_or_not(t->m, &l->down_bias, E, name_of(full, i, down_b), PI__OF_FILE);
}

static void declare_clips(pi__tower *t, pi__vit_layer *l, int32_t i)
{
    static const char *const matrix[PI__N_CLIPS] = {"attn_q", "attn_k", "attn_v", "attn_out", "ffn_gate", "ffn_up",
                                                    "ffn_down"};
    static const char *const end[] = {"input_min", "input_max", "output_min", "output_max"};
    for (int k = 0; k < PI__N_CLIPS; k++) {
        pi__vit_clip *c = &l->clip[k];
        float *const value[] = {&c->in_lo, &c->in_hi, &c->out_lo, &c->out_hi};
        *c = (pi__vit_clip) {-INFINITY, INFINITY, -INFINITY, INFINITY};
        for (int j = 0; j < 4 && t->vit.clips; j++) {
            char name[48], full[96];
            snprintf(name, sizeof name, "%s.%s", matrix[k], end[j]);
            pi__declare_host_or_not(t->m, value[j], 1, name_of(full, i, name), PI__OF_FILE);
        }
    }
}

static void declare_layer(pi__tower *t, int32_t i)
{
    pi__vit *v = &t->vit;
    pi__vit_layer *l = &v->layer[i];
    const int64_t E = v->n_embd;
    char full[96];
    l->out_scale = 1.0f;
    declare_clips(t, l, i);
    declare_norm(t, &l->norm1, i, "ln1");
    declare_norm(t, &l->norm2, i, "ln2");
    declare_heads(t, l, i);
    pi__declare_weight(t->m, &l->wo, E, E, name_of(full, i, "attn_out.weight"), PI__OF_FILE);
    pi__declare_vec_or_not(t->m, &l->out_bias, E, name_of(full, i, "attn_out.bias"), PI__OF_FILE);
    declare_ffn(t, l, i);
    pi__declare_vec_or_not(t->m, &l->post_norm1, E, name_of(full, i, "attn_post_norm.weight"), PI__OF_FILE);
    pi__declare_vec_or_not(t->m, &l->post_norm2, E, name_of(full, i, "ffn_post_norm.weight"), PI__OF_FILE);
    pi__declare_host_or_not(t->m, &l->out_scale, 1, name_of(full, i, "out_scale.weight"), PI__OF_FILE);
}

void pi__vit_declare(pi__tower *t)
{
    pi__vit *v = &t->vit;
    if (!pi__model_ok(t->m)) return;
    choose_head(t);
    order_heads(t);
    if (v->q_scale == 0) v->q_scale = 1.0f / sqrtf((float) v->d);
    v->head_eps = v->eps * (float) v->d / (float) v->dim;
    v->layer = pi__model_calloc(t->m, (size_t) v->n_layer, sizeof *v->layer, "the layers");
    for (int32_t i = 0; i < v->n_layer && pi__model_ok(t->m); i++) declare_layer(t, i);
    pi__tower_need(t, v->n_embd, v->n_ff);
}

/* ---- the graph */

/* Returns the input of matrices: the norm of n rows x [n, E]. LayerNorm is computed to t->h, RMSNorm by op linear. */
static pi__lin_in normed(pi__tower *t, const pi__vit_norm *w, const float *x, int32_t n)
{
    const pi__vit *v = &t->vit;
    if (v->rms)
        return (pi__lin_in) {.kind = PI__IN_RMSNORM, .x = x, .ldx = v->n_embd, .w = w->w, .eps = v->eps};
    pi__tower_norm(t, w, x, n, v->n_embd, v->eps, t->h);
    return (pi__lin_in) {.kind = PI__IN_PLAIN, .x = t->h, .ldx = v->n_embd};
}

static bool is_open(float lo, float hi) { return lo <= -FLT_MAX && hi >= FLT_MAX; }

/* y [n, n_out] = clamp(w clamp(in)), with rows of y adjacent. */
static void clipped(pi__tower *t, const pi__lin_in *in, int32_t n, const pi__weight *w, const pi__vit_clip *c, float *y)
{
    pi__lin_in to = *in;
    if (!is_open(c->in_lo, c->in_hi)) {
        if (in->kind == PI__IN_RMSNORM)
            pi__op_norm(t->m->be, NULL, &(pi__norm) {.out = t->clamped, .ldo = w->n_in, .x = in->x, .w = in->w,
                                                     .eps = in->eps, .n_rows = n, .n = w->n_in});
        else pi__tower_copy(t, in->x, n, w->n_in, t->clamped, w->n_in);
        pi__tower_scale(t, t->clamped, n, w->n_in, 1, NULL, NULL, c->in_lo, c->in_hi);
        to = (pi__lin_in) {.kind = PI__IN_PLAIN, .x = t->clamped, .ldx = w->n_in};
    }
    pi__matmul(t->m, &to, n, w, y, w->n_out);
    if (!is_open(c->out_lo, c->out_hi))
        pi__tower_scale(t, y, n, w->n_out, 1, NULL, NULL, c->out_lo, c->out_hi);
}

void pi__vit_keys(pi__tower *t, const pi__batch *b, int32_t layer, int32_t first, int32_t n)
{
    const pi__vit *v = &t->vit;
    const pi__vit_layer *l = &v->layer[layer];
    const int64_t E = v->n_embd, ld = (int64_t) v->n_head * v->dim;
    float *q = t->q + first * ld;
    const pi__lin_in in = normed(t, &l->norm1, t->x + first * E, n);
    if (v->clips) {
        clipped(t, &in, n, &l->wq, &l->clip[PI__CLIP_Q], q);
        clipped(t, &in, n, &l->wk, &l->clip[PI__CLIP_K], t->k);
        clipped(t, &in, n, &l->wv, &l->clip[PI__CLIP_V], t->v);
    } else {
        pi__multiply(t->m, &(pi__linear) {.in = in, .n_rows = n, .n_lin = 3,
                                          .lin = {{&l->wq, q, ld}, {&l->wk, t->k, ld}, {&l->wv, t->v, ld}}});
    }
    pi__op_qkv(t->m->be, b,
               &(pi__qkv) {.kv = &t->kv, .q = q, .ldq = ld, .k = t->k, .v = t->v, .ldk = ld, .ldv = ld,
                           .n_head = v->n_head, .q_bias = l->q_bias, .k_bias = l->k_bias, .v_bias = l->v_bias,
                           .q_norm = l->q_norm, .k_norm = l->k_norm, .v_norm = v->v_norm, .eps = v->head_eps,
                           .rope = v->rope ? t->rope + (int64_t) first * v->d : NULL, .n_rot = v->rope ? v->d : 0,
                           .pair_stride = v->d / 2, .q_scale = v->q_scale});
}

/* x = (x + [norm] (y + bias)) * scale */
static void add(pi__tower *t, float *x, const float *norm, const float *bias, float scale, int32_t n)
{
    const pi__vit *v = &t->vit;
    pi__op_add_norm(t->m->be, NULL,
                    &(pi__add_norm) {.x = x, .y = t->y, .w = norm, .bias = norm ? NULL : bias, .eps = v->eps,
                                     .scale = scale, .n_rows = n, .n = v->n_embd});
}

/* y = down(gelu(gate x) * up x) with clamps around each matrix; without biases. */
static void clipped_ffn(pi__tower *t, const pi__vit_layer *l, const pi__lin_in *in, int32_t n)
{
    const int64_t F = t->vit.n_ff;
    clipped(t, in, n, &l->gate, &l->clip[PI__CLIP_GATE], t->ff);
    clipped(t, in, n, &l->up, &l->clip[PI__CLIP_UP], t->up);
    pi__op_gelu(t->m->be, NULL, &(pi__gelu) {.x = t->ff, .n_rows = n, .n = F, .form = PI__GELU_TANH});
    pi__tower_scale(t, t->ff, n, F, 1, t->up, NULL, -INFINITY, INFINITY);
    const pi__lin_in h = {.kind = PI__IN_PLAIN, .x = t->ff, .ldx = F};
    clipped(t, &h, n, &l->down, &l->clip[PI__CLIP_DOWN], t->y);
}

static void feed_forward(pi__tower *t, const pi__vit_layer *l, const pi__lin_in *in, int32_t n)
{
    const pi__vit *v = &t->vit;
    const int64_t F = v->n_ff;
    if (!v->gated) {
        pi__matmul(t->m, in, n, &l->up, t->ff, F);
        pi__op_gelu(t->m->be, NULL, &(pi__gelu) {.x = t->ff, .b = l->up_bias, .n_rows = n, .n = F, .form = v->act});
        pi__tower_matmul(t, t->ff, F, n, &l->down, t->y);
        return;
    }
    if (v->clips) {
        clipped_ffn(t, l, in, n);
        return;
    }
    pi__multiply(t->m, &(pi__linear) {.in = *in, .n_rows = n, .n_lin = 2,
                                      .lin = {{&l->gate, t->ff, F}, {&l->up, t->up, F}}});
    pi__tower_bias(t, t->ff, n, F, l->gate_bias);
    pi__tower_bias(t, t->up, n, F, l->up_bias);
    const pi__lin_in h = {.kind = v->act, .x = t->ff, .ldx = F, .x2 = t->up, .ldx2 = F};
    pi__matmul(t->m, &h, n, &l->down, t->y, v->n_embd);
}

void pi__vit_rest(pi__tower *t, const pi__batch *b, int32_t layer, int32_t first, int32_t n)
{
    const pi__vit *v = &t->vit;
    const pi__vit_layer *l = &v->layer[layer];
    const int64_t E = v->n_embd, ld = (int64_t) v->n_head * v->dim;
    float *x = t->x + first * E, *att = t->att;
    pi__op_attention(t->m->be, b,
                     &(pi__attention) {.kv = &t->kv, .q = t->q + first * ld, .ldq = ld, .out = att, .ldo = ld,
                                       .n_head = v->n_head, .block = true});
    if (v->dim != v->d) { /* drop the zeros at the end of each head */
        att = t->h;
        pi__op_copy_2d(t->m->be, NULL, &(pi__copy_2d) {.x = t->att, .step = v->dim, .ldx = ld, .n_shards = v->n_head,
                                                       .n_rows = n, .n = v->d, .y = att, .ldy = E});
        if (v->v_norm) /* the norm of a value has divided by D values, not d */
            pi__tower_scale(t, att, n, E, sqrtf((float) v->d / (float) v->dim), NULL, NULL, -INFINITY, INFINITY);
    }
    const pi__lin_in from = {.kind = PI__IN_PLAIN, .x = att, .ldx = E};
    clipped(t, &from, n, &l->wo, &l->clip[PI__CLIP_O], t->y);
    add(t, x, l->post_norm1, l->out_bias, 1.0f, n);
    const pi__lin_in in = normed(t, &l->norm2, x, n);
    feed_forward(t, l, &in, n);
    add(t, x, l->post_norm2, l->down_bias, l->out_scale, n);
}

void pi__tower_place(const pi__tower *t, int32_t i, int32_t *col, int32_t *row)
{
    if (t->kind->place) t->kind->place(t, i, col, row);
    else pi__patch_place(&t->picture->grid, t->rules.merge, i, col, row);
}

void pi__vit_patches(pi__tower *t, int32_t first, int32_t n)
{
    const pi__image_rules *r = &t->rules;
    const size_t size = 3 * (size_t) r->patch * (size_t) r->patch;
    for (int32_t i = 0; i < n; i++) {
        int32_t col, row;
        pi__tower_place(t, first + i, &col, &row);
        pi__patch_read(&t->values, t->picture, r->patch, col, row, t->stage + (size_t) i * size);
    }
    t->m->be->dev->upload(t->m->be, t->patches, t->stage, (size_t) n * size * sizeof(float));
}
