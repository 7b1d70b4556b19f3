/* Gemma 3's vision model: SigLIP on a square image, its patches averaged to a fixed number of tokens.
 *
 *     x = convolution + bias + position embedding         layers with LayerNorm and GELU, biases everywhere
 *     token = projection (RMSNorm (mean over merge x merge patches of LayerNorm x))
 *
 * The file stores the projection transposed: [E, O] where other towers have [O, E]. Symbols: tower_impl.h. */
#include <math.h>

#include "model/tower_impl.h"

typedef struct gemma3 {
    pi__weight conv;         /* [E, 3 * patch * patch] */
    float *conv_bias;        /* [E] */
    float *positions;        /* [all patches in raster order, E] */
    pi__vit_norm post;       /* LayerNorm after the last layer */
    float *soft_norm;        /* [E] RMSNorm of a token; the file's weight includes the 1 that is added to it */
    pi__weight projection;   /* [O, E] */
    int32_t *order;          /* [E] file row of each column of the projection */
} gemma3;

/* Reads the image's size and the number of patches per token. */
static void read_sizes(pi__tower *t)
{
    pi__model *m = t->m;
    pi__image_rules *r = &t->rules;
    const int32_t merge = pi__hp_u32_or(m, "vision.projector.scale_factor", 4, 1, 16);
    pi__tower_read_rules(t, PI__SIZING_SQUARE, PI__FILTER_BILINEAR, merge);
    r->image_size = pi__hp_u32(m, "vision.image_size", 1, 8192);
    const int32_t side = r->image_size / (r->patch * merge);
    if (side < 1 || r->image_size % r->patch || side * side > PI__MAX_IMAGE_TOKENS) {
        pi__model_refuse(m, PI_EFORMAT, "metadata clip.vision.image_size %d is not 1 to 128 tokens of %d pixels",
                         r->image_size, r->patch * merge);
        return;
    }
    if (r->image_size % (r->patch * merge))
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata clip.vision.image_size %d is not a multiple of %d, patch_size "
                         "times scale_factor", r->image_size, r->patch * merge);
    t->wish = 0; /* the number is fixed */
    pi__tower_limits(t, (uint32_t) (side * side), (uint32_t) (side * side), (uint32_t) (side * side));
}

static void declare(pi__tower *t)
{
    gemma3 *g = t->own;
    pi__model *m = t->m;
    pi__vit *v = &t->vit;
    pi__vit_read(t);
    read_sizes(t);
    v->act = PI__ACT_GELU_TANH;
    if (!pi__model_ok(m)) return;
    const int32_t side = t->rules.image_size / t->rules.patch;
    const int64_t E = v->n_embd, O = t->text.n_embd;
    pi__declare_kernel(m, &g->conv, t->rules.patch, E, "v.patch_embd.weight", PI__OF_FILE);
    pi__declare_vec_or_not(m, &g->conv_bias, E, "v.patch_embd.bias", PI__OF_FILE);
    pi__declare_table(m, &g->positions, (int64_t) side * side, E, "v.position_embd.weight", PI__OF_FILE);
    pi__vit_declare(t);
    pi__vit_declare_norm(t, &g->post, E, false, "v.post_ln");
    pi__declare_vec(m, &g->soft_norm, E, "mm.soft_emb_norm.weight", PI__OF_FILE);
    const pi__tensor *p = pi__gguf_find_tensor(m->g, "mm.input_projection.weight");
    if (p) pi__tower_check_width(t, p->ne[0], "mm.input_projection.weight");
    g->order = pi__model_calloc(m, (size_t) E, sizeof *g->order, "the projection");
    for (int32_t i = 0; i < E && g->order; i++) g->order[i] = i;
    pi__declare_head_rows(m, &g->projection, E, O, 1, g->order, true, E, "mm.input_projection.weight", PI__OF_FILE);
    t->width = (int32_t) O;
    pi__tower_tokens(t, "<start_of_image>", NULL, "<end_of_image>");
    /* files without the soft token's own entry use the begin token's id */
    t->frame.soft = t->text.token(t->text.ud, "<image_soft_token>");
    if (t->frame.soft < 0) t->frame.soft = t->frame.begin;
    t->frame.text_before = t->frame.text_after = "\n\n";
    t->frame.placeholder = "<start_of_image>";
    t->frame.attention = PI__SPAN_ALL;
}

static void embed(pi__tower *t, int32_t first, int32_t n)
{
    const gemma3 *g = t->own;
    const int64_t E = t->vit.n_embd;
    const pi__image_grid *s = &t->picture->grid;
    float *x = t->x + first * E;
    pi__vit_patches(t, first, n);
    pi__tower_matmul(t, t->patches, g->conv.n_in, n, &g->conv, x);
    pi__tower_bias(t, x, n, E, g->conv_bias);
    for (int32_t i = 0; i < n; i++) {
        int32_t col, row;
        pi__patch_place(s, t->rules.merge, first + i, &col, &row);
        t->row[i] = row * s->patch_cols + col;
    }
    pi__op_add_rows(t->m->be, NULL,
                    &(pi__add_rows) {.x = x, .table = g->positions, .row = t->row, .n_rows = n, .n = E});
}

static void project(pi__tower *t, int32_t first, int32_t n, float *rows)
{
    const gemma3 *g = t->own;
    const pi__vit *v = &t->vit;
    const int64_t E = v->n_embd;
    const int32_t each = t->rules.merge * t->rules.merge;
    pi__tower_norm(t, &g->post, t->x + (int64_t) first * each * E, n * each, E, v->eps, t->h);
    pi__tower_pool(t, t->h, n, each, E, 1.0f, t->y, t->att);
    const pi__lin_in in = {.kind = PI__IN_RMSNORM, .x = t->att, .ldx = E, .w = g->soft_norm, .eps = v->eps};
    pi__matmul(t->m, &in, n, &g->projection, rows + (int64_t) first * t->width, t->width);
}

const pi__tower_kind pi__tower_gemma3 = {
    .projector = "gemma3", .size = sizeof(gemma3), .declare = declare, .embed = embed, .project = project};
