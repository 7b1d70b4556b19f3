/* Gemma 4's vision models.
 *
 * gemma4v, a transformer:
 *
 *     x = convolution + position embedding of the column + of the row.
 *     layers: RMSNorms before and after attention and feed-forward, 2-D RoPE, norms of q, k and v, gates.
 *     token = projection (RMSNorm ((mean over merge x merge patches of x) * sqrt(E), standardised))
 *
 * gemma4uv, without layers; a patch is a token:
 *
 *     x = LayerNorm (LayerNorm (matrix (LayerNorm pixels)) + position embeddings)
 *     token = projection (RMSNorm x)
 *
 * The RMSNorm of a token has no weight. Images fill a budget of tokens. Symbols: tower_impl.h. */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "model/tower_impl.h"

#define PATCH_EPS 1e-5f /* epsilon of gemma4uv's LayerNorms, which the file does not state */

typedef struct gemma4 {
    pi__weight conv;         /* [E, 3 * patch * patch] */
    float *conv_bias;        /* [E]; NULL = none */
    float *positions;        /* [2, n_positions, E]: by column, by row */
    int32_t n_positions;
    float *std_bias;         /* [E] minus the file's values, added to a token; NULL = no standardisation */
    float *std_scale;        /* [E] factors of a token */
    pi__weight projection;   /* [O, E] */
    pi__vit_norm norm[3];    /* gemma4uv: of the pixels, of the matrix's result, of the sum with positions */
    int32_t *order;          /* [d] see pi__vit */
    float *freq;             /* [d / 4] radians per column and per row of patches */
    float *ones;             /* scratch: [E] on the device */
} gemma4;

/* Declares the tensors and facts that both kinds have. */
static void declare_both(pi__tower *t, int32_t patch, int32_t merge)
{
    static const uint32_t budget[] = {70, 140, 280, 560, 1120};
    gemma4 *g = t->own;
    pi__model *m = t->m;
    const int64_t E = t->vit.n_embd, O = t->text.n_embd;
    pi__tower_read_rules(t, PI__SIZING_FILLED, PI__FILTER_BICUBIC, merge);
    t->rules.patch = patch;
    for (int i = 0; i < 5; i++) t->rules.budget[i] = budget[i];
    if (t->wish && t->wish < budget[0]) t->wish = budget[0];
    pi__tower_limits(t, 1, 280, 1120);
    pi__declare_kernel(m, &g->conv, patch, E, "v.patch_embd.weight", PI__OF_FILE);
    pi__declare_vec_or_not(m, &g->conv_bias, E, "v.patch_embd.bias", PI__OF_FILE);
    const pi__tensor *p = pi__gguf_find_tensor(m->g, "v.position_embd.weight");
    g->n_positions = p && p->ne[1] > 0 && p->ne[1] < 1 << 20 ? (int32_t) p->ne[1] : 1;
    /* the longest image has a row of all its tokens */
    if (pi__model_ok(m) && p && (int64_t) t->rules.max_tokens * merge > g->n_positions)
        pi__model_refuse(m, PI_EFORMAT, "tensor v.position_embd.weight has %d positions, but images may have %lld: "
                         "lower image-max-tokens", g->n_positions, (long long) t->rules.max_tokens * merge);
    pi__declare_tables(m, &g->positions, 2, g->n_positions, E, "v.position_embd.weight", PI__OF_FILE);
    p = pi__gguf_find_tensor(m->g, "mm.input_projection.weight");
    if (p) pi__tower_check_width(t, p->ne[1], "mm.input_projection.weight");
    pi__declare_weight(m, &g->projection, E, O, "mm.input_projection.weight", PI__OF_FILE);
    t->width = (int32_t) O;
    pi__tower_tokens(t, "<|image>", "<|image|>", "<image|>");
    t->frame.placeholder = "<|image|>";
    t->frame.attention = t->text.per_layer_embd ? PI__SPAN_CAUSAL : PI__SPAN_SLIDING;
}

static void declare(pi__tower *t)
{
    gemma4 *g = t->own;
    pi__model *m = t->m;
    pi__vit *v = &t->vit;
    pi__vit_read(t);
    const int32_t patch = pi__hp_u32(m, "vision.patch_size", 1, 256),
                  merge = pi__hp_u32_or(m, "vision.projector.scale_factor", 3, 1, 8);
    v->rms = v->gated = v->qk_norm = v->v_norm = v->rope = v->clips = true;
    v->act = PI__IN_GEGLU; /* whatever the file's use_gelu says: the model has one activation */
    v->q_scale = 1.0f;
    if (v->d % 4)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata clip.vision: heads of %d values, expected a multiple of 4",
                         v->d);
    g->order = pi__model_calloc(m, (size_t) v->d, sizeof *g->order, "row orders");
    g->freq = pi__model_calloc(m, (size_t) v->d / 4, sizeof *g->freq, "rope frequencies");
    if (!pi__model_ok(m)) return;
    const int32_t half = v->d / 2, quarter = v->d / 4;
    /* the file rotates (i, i + d/4) by column in the first half of a head, and by row in the second half */
    for (int32_t i = 0; i < half; i++) {
        g->order[i] = i < quarter ? i : half + i - quarter;
        g->order[half + i] = g->order[i] + quarter;
    }
    for (int32_t i = 0; i < quarter; i++) g->freq[i] = powf(100.0f, -4.0f * (float) i / (float) v->d);
    v->order = g->order;
    declare_both(t, patch, merge);
    pi__vit_declare(t);
    pi__declare_vec_gathered(m, &g->std_bias, v->n_embd, NULL, v->n_embd, -1.0f, "v.std_bias", PI__OF_FILE);
    pi__declare_vec_or_not(m, &g->std_scale, v->n_embd, "v.std_scale", PI__OF_FILE);
    /* 2 v - 1 of values 0..1 */
    for (int c = 0; c < 3; c++) t->rules.mean[c] = t->rules.std[c] = 0.5f;
}

static void declare_u(pi__tower *t)
{
    gemma4 *g = t->own;
    pi__model *m = t->m;
    pi__vit *v = &t->vit;
    v->n_embd = m->n_embd = pi__hp_u32(m, "vision.embedding_length", 1, PI__MAX_EMBD);
    v->eps = pi__hp_f32(m, "vision.attention.layer_norm_epsilon");
    const int32_t merge = pi__hp_u32_or(m, "vision.projector.scale_factor", 3, 1, 8),
                  patch = pi__hp_u32(m, "vision.patch_size", 1, 64) * merge;
    if (!pi__model_ok(m)) return;
    declare_both(t, patch, 1);
    pi__vit_declare_norm(t, &g->norm[0], 3 * (int64_t) patch * patch, false, "v.patch_norm.1");
    pi__vit_declare_norm(t, &g->norm[1], v->n_embd, false, "v.patch_norm.2");
    pi__vit_declare_norm(t, &g->norm[2], v->n_embd, false, "v.patch_norm.3");
    pi__tower_need(t, v->n_embd, 3 * (int64_t) patch * patch);
    for (int c = 0; c < 3; c++) t->rules.mean[c] = 0, t->rules.std[c] = 1;
}

static void layout(pi__tower *t, pi__arena *a)
{
    gemma4 *g = t->own;
    g->ones = pi__arena_take(a, (size_t) t->vit.n_embd * sizeof(float));
}

/* Pairs i < d / 4 of a head rotate by the column of the patch, the others by its row. */
static void angles(pi__tower *t, int32_t first, int32_t n, float *out)
{
    const gemma4 *g = t->own;
    const int32_t half = t->vit.d / 2, quarter = half / 2;
    for (int32_t i = 0; i < n; i++, out += 2 * half) {
        int32_t col, row;
        pi__patch_place(&t->picture->grid, t->rules.merge, first + i, &col, &row);
        for (int32_t j = 0; j < half; j++) {
            const float a = (float) (j < quarter ? col : row) * g->freq[j % quarter];
            out[j] = cosf(a);
            out[half + j] = sinf(a);
        }
    }
}

/* x [n, E] += position embeddings of the patches' columns and rows. */
static void add_positions(pi__tower *t, int32_t first, int32_t n, float *x)
{
    const gemma4 *g = t->own;
    const int64_t E = t->vit.n_embd;
    for (int32_t i = 0; i < n; i++)
        pi__patch_place(&t->picture->grid, t->rules.merge, first + i, &t->row[i], &t->row2[i]);
    pi__op_add_rows(t->m->be, NULL,
                    &(pi__add_rows) {.x = x, .table = g->positions, .row = t->row, .n_rows = n, .n = E});
    pi__op_add_rows(t->m->be, NULL, &(pi__add_rows) {.x = x, .table = g->positions + g->n_positions * E,
                                                     .row = t->row2, .n_rows = n, .n = E});
}

static void embed(pi__tower *t, int32_t first, int32_t n)
{
    const gemma4 *g = t->own;
    const int64_t E = t->vit.n_embd;
    float *x = t->x + first * E;
    pi__vit_patches(t, first, n);
    pi__tower_matmul(t, t->patches, g->conv.n_in, n, &g->conv, x);
    pi__tower_bias(t, x, n, E, g->conv_bias);
    add_positions(t, first, n, x);
}

static void embed_u(pi__tower *t, int32_t first, int32_t n)
{
    const gemma4 *g = t->own;
    const int64_t E = t->vit.n_embd;
    pi__vit_patches(t, first, n);
    pi__tower_norm(t, &g->norm[0], t->patches, n, g->conv.n_in, PATCH_EPS, t->ff);
    pi__tower_matmul(t, t->ff, g->conv.n_in, n, &g->conv, t->y);
    pi__tower_bias(t, t->y, n, E, g->conv_bias);
    pi__tower_norm(t, &g->norm[1], t->y, n, E, PATCH_EPS, t->h);
    add_positions(t, first, n, t->h);
    pi__tower_norm(t, &g->norm[2], t->h, n, E, PATCH_EPS, t->x + first * E);
}

/* Rows of n tokens x [n, E]: RMSNorm without a weight, then the projection. */
static void token_rows(pi__tower *t, const float *x, int32_t n, float *rows)
{
    const gemma4 *g = t->own;
    const size_t E = (size_t) t->vit.n_embd;
    for (size_t i = 0; i < E; i++) t->stage[i] = 1.0f;
    t->m->be->dev->upload(t->m->be, g->ones, t->stage, E * sizeof(float));
    const pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = x, .ldx = (int64_t) E, .w = g->ones, .eps = t->vit.eps};
    pi__matmul(t->m, &in, n, &g->projection, rows, t->width);
}

static void project(pi__tower *t, int32_t first, int32_t n, float *rows)
{
    const gemma4 *g = t->own;
    const int64_t E = t->vit.n_embd;
    const int32_t each = t->rules.merge * t->rules.merge;
    pi__tower_pool(t, t->x + (int64_t) first * each * E, n, each, E, sqrtf((float) E), t->y, t->h);
    pi__tower_bias(t, t->h, n, E, g->std_bias);
    if (g->std_scale) pi__tower_scale(t, t->h, n, E, 1, NULL, g->std_scale, -INFINITY, INFINITY);
    token_rows(t, t->h, n, rows + (int64_t) first * t->width);
}

static void project_u(pi__tower *t, int32_t first, int32_t n, float *rows)
{
    token_rows(t, t->x + (int64_t) first * t->vit.n_embd, n, rows + (int64_t) first * t->width);
}

const pi__tower_kind pi__tower_gemma4 = {.projector = "gemma4v",
                                         .size = sizeof(gemma4),
                                         .declare = declare,
                                         .layout = layout,
                                         .angles = angles,
                                         .embed = embed,
                                         .project = project};
const pi__tower_kind pi__tower_gemma4u = {.projector = "gemma4uv",
                                          .size = sizeof(gemma4),
                                          .declare = declare_u,
                                          .layout = layout,
                                          .embed = embed_u,
                                          .project = project_u};
