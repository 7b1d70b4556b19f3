/* Pixtral's vision model, also of Mistral Small 3.1 and later, and of Ministral 3.
 *
 *     x = RMSNorm (convolution)          layers with RMSNorm, 2-D RoPE and a gated feed-forward, without biases
 *     token = MLP (x), or MLP (merger (RMSNorm x of merge x merge patches, concatenated))
 *
 * A row of tokens ends with a break, except the last row; the row of a break is a vector of the file. The merger's
 * columns are in the order (value, patch); they are loaded in the order (patch, value). Symbols: tower_impl.h. */
#include <math.h>

#include "model/tower_impl.h"

typedef struct pixtral {
    pi__weight conv;         /* [E, 3 * patch * patch] */
    pi__vit_norm pre;        /* RMSNorm after the convolution */
    float *merge_norm;       /* [E] RMSNorm before the merger */
    pi__weight merger;       /* [E, M * E], M = merge * merge; n_out 0 = none */
    pi__tower_mlp mlp;
    float *row_break;        /* [O]; NULL = no breaks */
    int32_t *order;          /* [d] see pi__vit */
    int32_t *col;            /* [M * E] file column of each column of the merger */
    float *freq;             /* [d / 2] radians per row (first half of the pairs), per column (second half) */
} pixtral;

/* The file's pairs are adjacent values. The first half of the pairs rotates by row, with even frequencies of the usual
 * series; the second half by column, with odd ones. */
static void rotation(pi__tower *t)
{
    pixtral *p = t->own;
    pi__vit *v = &t->vit;
    p->order = pi__model_calloc(t->m, (size_t) v->d, sizeof *p->order, "row orders");
    p->freq = pi__model_calloc(t->m, (size_t) v->d / 2, sizeof *p->freq, "rope frequencies");
    if (!pi__model_ok(t->m)) return;
    const int32_t half = v->d / 2, quarter = v->d / 4;
    for (int32_t i = 0; i < half; i++) {
        const int32_t k = i < quarter ? 2 * i : 2 * (i - quarter) + 1;
        p->order[i] = 2 * i;
        p->order[half + i] = 2 * i + 1;
        p->freq[i] = powf(10000.0f, -2.0f * (float) k / (float) v->d);
    }
    v->order = p->order;
    v->rope = true;
}

static void declare_merger(pi__tower *t)
{
    pixtral *p = t->own;
    const int64_t E = t->vit.n_embd, M = (int64_t) t->rules.merge * t->rules.merge;
    if (!pi__has_tensor(t->m, "mm.patch_merger.weight", PI__OF_FILE)) {
        if (M != 1)
            pi__model_refuse(t->m, PI_EFORMAT, "tensor mm.patch_merger.weight is missing, and metadata "
                             "clip.vision.spatial_merge_size is not 1");
        return;
    }
    p->col = pi__model_calloc(t->m, (size_t) (M * E), sizeof *p->col, "column orders");
    for (int64_t i = 0; i < M * E && p->col; i++) p->col[i] = (int32_t) (i % E * M + i / E);
    pi__declare_columns(t->m, &p->merger, M * E, E, p->col, "mm.patch_merger.weight", PI__OF_FILE);
    pi__declare_vec(t->m, &p->merge_norm, E, "mm.input_norm.weight", PI__OF_FILE);
}

static void declare(pi__tower *t)
{
    pixtral *p = t->own;
    pi__model *m = t->m;
    pi__vit *v = &t->vit;
    bool gelu = false;
    pi__vit_read(t);
    pi__tower_read_rules(t, PI__SIZING_LONGEST, PI__FILTER_BICUBIC,
                         pi__hp_u32_or(m, "vision.spatial_merge_size", 1, 1, 8));
    t->rules.image_size = pi__hp_u32(m, "vision.image_size", 1, 16384);
    if (pi__model_ok(m)) pi__gguf_get_bool(m->g, "clip.use_gelu", &gelu, false, &m->error);
    v->rms = v->gated = true;
    v->act = gelu ? PI__IN_GEGLU : PI__IN_SWIGLU;
    if (v->d % 4)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata clip.vision: heads of %d values, expected a multiple of 4",
                         v->d);
    if (!pi__model_ok(m)) return;
    /* the side of the largest image in tokens, plus breaks */
    const int64_t unit = (int64_t) t->rules.patch * t->rules.merge, side = (t->rules.image_size + unit - 1) / unit,
                  most = side * (side + 1);
    t->rules.row_breaks = pi__has_tensor(m, "v.token_embd.img_break", PI__OF_FILE);
    pi__tower_limits(t, 1, most > PI__MAX_IMAGE_TOKENS ? PI__MAX_IMAGE_TOKENS : (uint32_t) most,
                     most > PI__MAX_IMAGE_TOKENS ? PI__MAX_IMAGE_TOKENS : (uint32_t) most);
    rotation(t);
    pi__declare_kernel(m, &p->conv, t->rules.patch, v->n_embd, "v.patch_embd.weight", PI__OF_FILE);
    pi__vit_declare_norm(t, &p->pre, v->n_embd, true, "v.pre_ln");
    pi__vit_declare(t);
    declare_merger(t);
    pi__tower_declare_mlp(t, &p->mlp, v->n_embd, "mm.1", "mm.2");
    t->project_work = p->mlp.work;
    pi__declare_vec_or_not(m, &p->row_break, t->text.n_embd, "v.token_embd.img_break", PI__OF_FILE);
    t->width = t->text.n_embd;
    pi__tower_tokens(t, NULL, "[IMG]", "[IMG_END]");
    t->frame.placeholder = "[IMG]";
    t->frame.attention = PI__SPAN_CAUSAL;
}

static void angles(pi__tower *t, int32_t first, int32_t n, float *out)
{
    const pixtral *p = t->own;
    const int32_t half = t->vit.d / 2;
    for (int32_t i = 0; i < n; i++, out += 2 * half) {
        int32_t col, row;
        pi__patch_place(&t->picture->grid, t->rules.merge, first + i, &col, &row);
        for (int32_t j = 0; j < half; j++) {
            const float a = (float) (j < half / 2 ? row : col) * p->freq[j];
            out[j] = cosf(a);
            out[half + j] = sinf(a);
        }
    }
}

static void embed(pi__tower *t, int32_t first, int32_t n)
{
    const pixtral *p = t->own;
    const int64_t E = t->vit.n_embd;
    pi__vit_patches(t, first, n);
    pi__tower_matmul(t, t->patches, p->conv.n_in, n, &p->conv, t->y);
    pi__tower_norm(t, &p->pre, t->y, n, E, t->vit.eps, t->x + first * E);
}

/* Writes the rows y [n, O] of tokens first .. first + n - 1, grid row by grid row, and the breaks after grid rows. */
static void place_rows(pi__tower *t, const float *y, int32_t first, int32_t n, float *rows)
{
    const pixtral *p = t->own;
    const pi__image_grid *g = &t->picture->grid;
    const int32_t width = g->cols + (p->row_break != NULL);
    for (int32_t i = 0, k; i < n; i += k) {
        const int32_t row = (first + i) / g->cols, col = (first + i) % g->cols;
        k = g->cols - col < n - i ? g->cols - col : n - i;
        float *to = rows + ((int64_t) row * width + col) * t->width;
        pi__tower_copy(t, y + (int64_t) i * t->n_out, k, t->n_out, to, t->width);
        if (p->row_break && col + k == g->cols && row + 1 < g->rows)
            pi__tower_copy(t, p->row_break, 1, t->n_out, to + (int64_t) k * t->width, t->width);
    }
}

static void project(pi__tower *t, int32_t first, int32_t n, float *rows)
{
    const pixtral *p = t->own;
    const pi__vit *v = &t->vit;
    const int64_t E = v->n_embd;
    const int32_t each = t->rules.merge * t->rules.merge;
    const float *x = t->x + (int64_t) first * each * E;
    if (p->merger.n_out) {
        pi__tower_norm(t, &(pi__vit_norm) {p->merge_norm, NULL}, x, n * each, E, v->eps, t->h);
        pi__tower_matmul(t, t->h, each * E, n, &p->merger, t->att);
        x = t->att;
    }
    pi__tower_mlp_run(t, &p->mlp, x, n);
    place_rows(t, t->y, first, n, rows);
}

const pi__tower_kind pi__tower_pixtral = {.projector = "pixtral",
                                          .size = sizeof(pixtral),
                                          .declare = declare,
                                          .angles = angles,
                                          .embed = embed,
                                          .project = project};
