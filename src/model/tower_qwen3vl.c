/* The vision model of Qwen3-VL, Qwen3.5 and their successors.
 *
 *     x = convolution 0 + convolution 1 + bias + position embedding, interpolated to the image's grid
 *     layers with LayerNorm, GELU, 2-D RoPE
 *     token = MLP (LayerNorm x of 4 patches, concatenated)
 *     DeepStack (Qwen3-VL): after some layers, MLP (LayerNorm (x of 4 patches, concatenated)), for the first layers of
 *     the text model
 *
 * The second convolution is of the next frame of a video; an image is its own next frame. Patches of a token are
 * adjacent rows, so that 4 rows of E values are also one row of 4 E values. Symbols: tower_impl.h. */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "model/tower_impl.h"

enum { MAX_DEEPSTACK = 8 };

typedef struct deepstack {
    int32_t layer;           /* the layer of the tower that it reads */
    pi__vit_norm norm;       /* [4 E] */
    pi__tower_mlp mlp;
} deepstack;

typedef struct qwen3vl {
    pi__weight conv[2];      /* [E, 3 * patch * patch] of this frame, of the next one */
    float *conv_bias;        /* [E] */
    float *positions;        /* [side, side, E] position embedding in host memory */
    int32_t side;            /* its rows and columns */
    pi__vit_norm post;       /* LayerNorm per patch, before the merge */
    pi__tower_mlp merger;
    deepstack deep[MAX_DEEPSTACK];
    int32_t n_deep;
    float *freq;             /* [d / 4] radians per row and per column of patches */
} qwen3vl;

static void declare_deepstack(pi__tower *t)
{
    qwen3vl *q = t->own;
    const int32_t merged = t->rules.merge * t->rules.merge * t->vit.n_embd;
    for (int32_t i = 0; i < t->vit.n_layer && pi__model_ok(t->m); i++) {
        char full[96], second[96];
        snprintf(full, sizeof full, "v.deepstack.%d.fc1.weight", i);
        if (!pi__has_tensor(t->m, full, PI__OF_FILE)) continue;
        if (q->n_deep == MAX_DEEPSTACK) {
            pi__model_refuse(t->m, PI_EUNSUPPORTED, "tensor %s: only %d DeepStack layers are supported", full,
                             MAX_DEEPSTACK);
            return;
        }
        deepstack *d = &q->deep[q->n_deep++];
        d->layer = i;
        snprintf(full, sizeof full, "v.deepstack.%d.norm", i);
        pi__vit_declare_norm(t, &d->norm, merged, false, full);
        snprintf(full, sizeof full, "v.deepstack.%d.fc1", i);
        snprintf(second, sizeof second, "v.deepstack.%d.fc2", i);
        pi__tower_declare_mlp(t, &d->mlp, merged, full, second);
        t->vit.layer[i].after_work = d->mlp.work;
    }
    if (q->n_deep != t->text.n_deepstack)
        pi__model_refuse(t->m, PI_EINVAL, "the mmproj file has %d DeepStack layers, but the model reads %d: give the "
                         "mmproj file of this model", q->n_deep, t->text.n_deepstack);
}

/* Declares the position embedding, a square table, in host memory. */
static void declare_positions(pi__tower *t)
{
    qwen3vl *q = t->own;
    const pi__tensor *p = pi__gguf_find_tensor(t->m->g, "v.position_embd.weight");
    const int64_t n = p ? p->ne[1] : 1;
    while (q->side < 1024 && (int64_t) (q->side + 1) * (q->side + 1) <= n) q->side++;
    if ((int64_t) q->side * q->side != n)
        pi__model_refuse(t->m, PI_EUNSUPPORTED, "tensor v.position_embd.weight has %lld rows, which are not a square "
                         "of at most 1024 x 1024", (long long) n);
    q->positions = pi__model_calloc(t->m, (size_t) n * (size_t) t->vit.n_embd, sizeof(float), "position embeddings");
    pi__declare_host_table(t->m, q->positions, n, t->vit.n_embd, "v.position_embd.weight", PI__OF_FILE);
}

static void declare(pi__tower *t)
{
    qwen3vl *q = t->own;
    pi__model *m = t->m;
    pi__vit *v = &t->vit;
    pi__vit_read(t);
    pi__tower_read_rules(t, PI__SIZING_ALIGNED, PI__FILTER_BICUBIC,
                         pi__hp_u32_or(m, "vision.spatial_merge_size", 2, 1, 8));
    pi__tower_limits(t, 64, 4096, 4096);
    v->act = PI__ACT_GELU_TANH;
    v->rope = true;
    if (v->d % 4)
        pi__model_refuse(m, PI_EUNSUPPORTED, "metadata clip.vision: heads of %d values, expected a multiple of 4",
                         v->d);
    q->freq = pi__model_calloc(m, (size_t) v->d / 4, sizeof *q->freq, "rope frequencies");
    if (!pi__model_ok(m)) return;
    for (int32_t i = 0; i < v->d / 4; i++) q->freq[i] = powf(10000.0f, -4.0f * (float) i / (float) v->d);
    pi__declare_kernel(m, &q->conv[0], t->rules.patch, v->n_embd, "v.patch_embd.weight", PI__OF_FILE);
    pi__declare_kernel(m, &q->conv[1], t->rules.patch, v->n_embd, "v.patch_embd.weight.1", PI__OF_FILE);
    pi__declare_vec_or_not(m, &q->conv_bias, v->n_embd, "v.patch_embd.bias", PI__OF_FILE);
    declare_positions(t);
    pi__vit_declare(t);
    pi__vit_declare_norm(t, &q->post, v->n_embd, false, "v.post_ln");
    pi__tower_declare_mlp(t, &q->merger, (int64_t) t->rules.merge * t->rules.merge * v->n_embd, "mm.0", "mm.2");
    t->project_work = q->merger.work;
    declare_deepstack(t);
    t->width = t->text.n_embd * (1 + q->n_deep);
    pi__tower_tokens(t, "<|vision_start|>", "<|image_pad|>", "<|vision_end|>");
    t->frame.placeholder = "<|vision_start|><|image_pad|><|vision_end|>";
    t->frame.attention = PI__SPAN_CAUSAL;
    t->frame.mrope = true;
}

/* Pairs i < d / 4 of a head rotate by the row of the patch, the others by its column. */
static void angles(pi__tower *t, int32_t first, int32_t n, float *out)
{
    const qwen3vl *q = t->own;
    const int32_t half = t->vit.d / 2, quarter = half / 2;
    for (int32_t i = 0; i < n; i++, out += 2 * half) {
        int32_t col, row;
        pi__patch_place(&t->picture->grid, t->rules.merge, first + i, &col, &row);
        for (int32_t j = 0; j < half; j++) {
            const float a = (float) (j < quarter ? row : col) * q->freq[j % quarter];
            out[j] = cosf(a);
            out[half + j] = sinf(a);
        }
    }
}

/* The place of index i of n in a table of `side` entries, with aligned corners: entries at and next, weight of next. */
typedef struct place {
    int32_t at, next;
    float weight;
} place;

static place place_of(int32_t i, int32_t n, int32_t side)
{
    const float step = n > 1 ? (float) (side - 1) / (float) (n - 1) : 0;
    /* from the nearer end, so that both corners are exact */
    const float p = i < n / 2 ? step * (float) i : n > 1 ? (float) (side - 1) - step * (float) (n - 1 - i) : 0;
    const int32_t at = (int32_t) p;
    return (place) {at, at + 1 < side ? at + 1 : side - 1, p - (float) at};
}

/* out [E] = the position embedding at a place between four entries of the table. */
static void position_at(const qwen3vl *q, int64_t E, place x, place y, float *out)
{
    const float *const a = q->positions + ((int64_t) y.at * q->side + x.at) * E,
                *const b = q->positions + ((int64_t) y.at * q->side + x.next) * E,
                *const c = q->positions + ((int64_t) y.next * q->side + x.at) * E,
                *const d = q->positions + ((int64_t) y.next * q->side + x.next) * E;
    const float wa = (1 - y.weight) * (1 - x.weight), wb = (1 - y.weight) * x.weight, wc = y.weight * (1 - x.weight),
                wd = y.weight * x.weight;
    for (int64_t e = 0; e < E; e++) out[e] = a[e] * wa + b[e] * wb + c[e] * wc + d[e] * wd;
}

static void embed(pi__tower *t, int32_t first, int32_t n)
{
    const qwen3vl *q = t->own;
    const int64_t E = t->vit.n_embd;
    const pi__image_grid *g = &t->picture->grid;
    float *x = t->x + first * E;
    pi__vit_patches(t, first, n);
    for (int32_t i = 0; i < n; i++) {
        int32_t col, row;
        pi__patch_place(g, t->rules.merge, first + i, &col, &row);
        position_at(q, E, place_of(col, g->patch_cols, q->side), place_of(row, g->patch_rows, q->side),
                    t->stage + i * E);
    }
    t->m->be->dev->upload(t->m->be, x, t->stage, (size_t) n * (size_t) E * sizeof(float));
    for (int k = 0; k < 2; k++) {
        pi__tower_matmul(t, t->patches, q->conv[k].n_in, n, &q->conv[k], t->y);
        pi__op_add_norm(t->m->be, NULL, &(pi__add_norm) {.x = x, .y = t->y, .bias = k ? NULL : q->conv_bias,
                                                         .scale = 1.0f, .n_rows = n, .n = E});
    }
}

static void after(pi__tower *t, int32_t layer, int32_t first, int32_t n, float *rows)
{
    const qwen3vl *q = t->own;
    const int32_t each = t->rules.merge * t->rules.merge;
    const int64_t E = t->vit.n_embd;
    for (int32_t k = 0; k < q->n_deep; k++) {
        if (q->deep[k].layer != layer) continue;
        pi__tower_norm(t, &q->deep[k].norm, t->x + first * E, n / each, each * E, t->vit.eps, t->h);
        pi__tower_project(t, &q->deep[k].mlp, t->h, n / each,
                          rows + (int64_t) (first / each) * t->width + (int64_t) (k + 1) * t->n_out);
    }
}

static void project(pi__tower *t, int32_t first, int32_t n, float *rows)
{
    const qwen3vl *q = t->own;
    const int32_t each = t->rules.merge * t->rules.merge;
    const int64_t E = t->vit.n_embd;
    pi__tower_norm(t, &q->post, t->x + (int64_t) first * each * E, n * each, E, t->vit.eps, t->h);
    pi__tower_project(t, &q->merger, t->h, n, rows + (int64_t) first * t->width);
}

const pi__tower_kind pi__tower_qwen3vl = {.projector = "qwen3vl_merger",
                                          .size = sizeof(qwen3vl),
                                          .declare = declare,
                                          .angles = angles,
                                          .embed = embed,
                                          .after = after,
                                          .project = project};
