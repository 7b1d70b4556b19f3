/* The vision models of Qwen2.5-VL and Qwen2-VL.
 *
 *     x = convolution 0 + convolution 1         layers with 2-D RoPE
 *     token = MLP (norm x of 4 patches, concatenated)
 *
 * Qwen2.5-VL: RMSNorm and a gated feed-forward. Most layers attend only within windows of side x side tokens; every
 * n-th layer attends to all patches. Patches are numbered window by window, so that a window is a range of patches.
 * Windows at the right and bottom border are smaller:
 *
 *     tokens 0  1 | 4        side 2, 3 x 3 tokens: 4 windows
 *            2  3 | 5
 *            -----+--
 *            6  7 | 8
 *
 * Qwen2-VL: LayerNorm, GELU, no windows. Symbols: tower_impl.h. */
#include <math.h>

#include "model/tower_impl.h"

typedef struct qwen25vl {
    pi__weight conv[2];      /* [E, 3 * patch * patch] of this frame, of the next one */
    pi__vit_norm post;       /* norm per patch, before the merge */
    pi__tower_mlp merger;
    float *freq;             /* [d / 4] radians per row and per column of patches */
    int32_t side;            /* tokens per side of a window; 0 = no windows */
    int32_t pattern;         /* layers (i + 1) % pattern == 0 attend to all patches */
} qwen25vl;

static void declare_both(pi__tower *t)
{
    qwen25vl *q = t->own;
    pi__model *m = t->m;
    pi__vit *v = &t->vit;
    const int64_t M = (int64_t) t->rules.merge * t->rules.merge;
    pi__tower_limits(t, 4, 4096, 4096);
    v->rope = true;
    if (v->d % 4)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata clip.vision: heads of %d values, expected a multiple of 4",
                         v->d);
    q->freq = pi__model_calloc(m, (size_t) v->d / 4, sizeof *q->freq, "rope frequencies");
    if (!pi__model_ok(m)) return;
    for (int32_t i = 0; i < v->d / 4; i++) q->freq[i] = powf(10000.0f, -4.0f * (float) i / (float) v->d);
    pi__declare_kernel(m, &q->conv[0], t->rules.patch, v->n_embd, "v.patch_embd.weight", PI__OF_FILE);
    pi__declare_kernel(m, &q->conv[1], t->rules.patch, v->n_embd, "v.patch_embd.weight.1", PI__OF_FILE);
    pi__vit_declare(t);
    pi__vit_declare_norm(t, &q->post, v->n_embd, v->rms, "v.post_ln");
    pi__tower_declare_mlp(t, &q->merger, M * v->n_embd, "mm.0", "mm.2");
    t->project_work = q->merger.work;
    t->width = t->text.n_embd;
    pi__tower_tokens(t, "<|vision_start|>", "<|image_pad|>", "<|vision_end|>");
    t->frame.placeholder = "<|vision_start|><|image_pad|><|vision_end|>";
    t->frame.attention = PI__SPAN_CAUSAL;
    t->frame.mrope = true;
}

static void read_both(pi__tower *t)
{
    pi__vit_read(t);
    pi__tower_read_rules(t, PI__SIZING_ALIGNED, PI__FILTER_BICUBIC,
                         pi__hp_u32_or(t->m, "vision.spatial_merge_size", 2, 1, 4));
}

static void declare(pi__tower *t)
{
    qwen25vl *q = t->own;
    pi__vit *v = &t->vit;
    read_both(t);
    v->rms = v->gated = true;
    v->act = PI__IN_SWIGLU;
    q->pattern = pi__hp_u32(t->m, "vision.n_wa_pattern", 1, PI__MAX_LAYERS);
    const int32_t window = pi__hp_u32_or(t->m, "vision.window_size", 112, 1, 4096), merge = t->rules.merge;
    if (!pi__model_ok(t->m)) return;
    q->side = window / (t->rules.patch * merge);
    if (q->side < 1 || q->side * q->side * merge * merge > PI__TOWER_BLOCK)
        pi__model_refuse(t->m, PI_EUNSUPPORTED, "metadata clip.vision.window_size is %d: only windows of 1 to %d "
                         "patches are supported", window, PI__TOWER_BLOCK);
    declare_both(t);
}

static void declare_2(pi__tower *t)
{
    bool gelu = false;
    read_both(t);
    if (pi__model_ok(t->m)) pi__gguf_get_bool(t->m->g, "clip.use_gelu", &gelu, false, &t->m->error);
    t->vit.act = gelu ? PI__ACT_GELU_TANH : PI__ACT_GELU_QUICK;
    declare_both(t);
}

/* ---- windows */

static int32_t at_most(int32_t a, int32_t b) { return a < b ? a : b; }

/* The window of a token: its place, size and first token in the order of windows. */
typedef struct window {
    int32_t col, row, width, height; /* in tokens */
    int32_t first;
} window;

/* Returns the window with token number k in the order of windows. A band is a row of windows. */
static window window_of(const pi__image_grid *g, int32_t side, int32_t k)
{
    const int32_t band = k / (g->cols * side), height = at_most(side, g->rows - band * side),
                  in_band = k - band * g->cols * side, col = in_band / (side * height) * side;
    return (window) {col, band * side, at_most(side, g->cols - col), height, band * g->cols * side + col * height};
}

static void place(const pi__tower *t, int32_t i, int32_t *col, int32_t *row)
{
    const qwen25vl *q = t->own;
    const int32_t merge = t->rules.merge, each = merge * merge, k = i / each, in = i % each;
    const window w = window_of(&t->picture->grid, q->side, k);
    *col = (w.col + (k - w.first) % w.width) * merge + in % merge;
    *row = (w.row + (k - w.first) / w.width) * merge + in / merge;
}

static int32_t window_end(const pi__tower *t, int32_t layer, int32_t first)
{
    const qwen25vl *q = t->own;
    const int32_t each = t->rules.merge * t->rules.merge;
    if ((layer + 1) % q->pattern == 0) return 0;
    const window w = window_of(&t->picture->grid, q->side, first / each);
    return (w.first + w.width * w.height) * each;
}

/* Returns the number, in the order of windows, of the token at a place in the grid. */
static int32_t number_of(const pi__image_grid *g, int32_t side, int32_t col, int32_t row)
{
    const int32_t band = row / side, height = at_most(side, g->rows - band * side), left = col / side * side,
                  width = at_most(side, g->cols - left);
    return band * g->cols * side + left * height + row % side * width + col % side;
}

/* ---- the graph */

/* Pairs i < d / 4 of a head rotate by the row of the patch, the others by its column. */
static void angles(pi__tower *t, int32_t first, int32_t n, float *out)
{
    const qwen25vl *q = t->own;
    const int32_t half = t->vit.d / 2, quarter = half / 2;
    for (int32_t i = 0; i < n; i++, out += 2 * half) {
        int32_t col, row;
        pi__tower_place(t, first + i, &col, &row);
        for (int32_t j = 0; j < half; j++) {
            const float a = (float) (j < quarter ? row : col) * q->freq[j % quarter];
            out[j] = cosf(a);
            out[half + j] = sinf(a);
        }
    }
}

static void embed(pi__tower *t, int32_t first, int32_t n)
{
    const qwen25vl *q = t->own;
    const int64_t E = t->vit.n_embd;
    float *x = t->x + first * E;
    pi__vit_patches(t, first, n);
    pi__tower_matmul(t, t->patches, q->conv[0].n_in, n, &q->conv[0], x);
    pi__tower_matmul(t, t->patches, q->conv[1].n_in, n, &q->conv[1], t->y);
    pi__op_add_norm(t->m->be, NULL, &(pi__add_norm) {.x = x, .y = t->y, .scale = 1.0f, .n_rows = n, .n = E});
}

/* Tokens are written in raster order: their patches are gathered from the order of windows. */
static void project(pi__tower *t, int32_t first, int32_t n, float *rows)
{
    const qwen25vl *q = t->own;
    const pi__image_grid *g = &t->picture->grid;
    const int32_t each = t->rules.merge * t->rules.merge;
    const int64_t E = t->vit.n_embd;
    const float *x = t->x + (int64_t) first * each * E;
    for (int32_t i = 0; i < n && q->side; i++) {
        const int32_t k = number_of(g, q->side, (first + i) % g->cols, (first + i) / g->cols);
        for (int32_t j = 0; j < each; j++) t->row[i * each + j] = k * each + j;
    }
    if (q->side) {
        pi__op_gather_rows(t->m->be, NULL,
                           &(pi__gather_rows) {.row = t->row, .n_rows = n * each, .x = t->x, .n = E, .out = t->att});
        x = t->att;
    }
    pi__tower_norm(t, &q->post, x, n * each, E, t->vit.eps, t->h);
    pi__tower_project(t, &q->merger, t->h, n, rows + (int64_t) first * t->width);
}

const pi__tower_kind pi__tower_qwen25vl = {.projector = "qwen2.5vl_merger",
                                           .size = sizeof(qwen25vl),
                                           .declare = declare,
                                           .angles = angles,
                                           .place = place,
                                           .window_end = window_end,
                                           .embed = embed,
                                           .project = project};
const pi__tower_kind pi__tower_qwen2vl = {.projector = "qwen2vl_merger",
                                          .size = sizeof(qwen25vl),
                                          .declare = declare_2,
                                          .angles = angles,
                                          .embed = embed,
                                          .project = project};
