/* Metadata of towers: image rules, tokens of the frame, widths (tower_impl.h). */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "model/tower_impl.h"

/* Reads three numbers into out. A deviation of 0 would make pixels infinite. */
static void read_three(pi__model *m, const char *name, bool positive, float out[3])
{
    const pi__gguf_kv *kv = pi__model_ok(m) ? pi__gguf_find(m->g, name) : NULL;
    const bool there = kv && kv->type == PI__GGUF_ARR && kv->arr_type == PI__GGUF_F32 && kv->n == 3;
    if (!there) pi__model_refuse(m, PI_EFORMAT, "metadata %s is not a list of 3 numbers of type f32", name);
    for (uint64_t i = 0; i < 3; i++) {
        out[i] = there ? (float) pi__gguf_elem_f64(kv, i) : 1.0f;
        if (!isfinite(out[i]) || (positive && !(out[i] > 0)))
            pi__model_refuse(m, PI_EFORMAT, "metadata %s: number %d is %g, expected a %s number", name, (int) i,
                             (double) out[i], positive ? "positive" : "finite");
    }
}

void pi__tower_read_rules(pi__tower *t, int32_t sizing, int32_t filter, int32_t merge)
{
    pi__image_rules *r = &t->rules;
    r->sizing = sizing;
    r->filter = filter;
    r->merge = merge;
    r->patch = pi__hp_u32(t->m, "vision.patch_size", 1, 256);
    read_three(t->m, "clip.vision.image_mean", false, r->mean);
    read_three(t->m, "clip.vision.image_std", true, r->std);
}

void pi__tower_limits(pi__tower *t, uint32_t default_min, uint32_t default_max, uint32_t max_tokens)
{
    pi__image_rules *r = &t->rules;
    r->max_tokens = t->wish ? t->wish : max_tokens;
    if (r->max_tokens > PI__MAX_IMAGE_TOKENS) r->max_tokens = PI__MAX_IMAGE_TOKENS;
    r->default_max = t->wish || default_max > r->max_tokens ? r->max_tokens : default_max;
    r->default_min = default_min < r->default_max ? default_min : r->default_max;
}

static int32_t token_of(pi__tower *t, const char *text)
{
    if (!text) return -1;
    const int32_t id = t->text.token(t->text.ud, text);
    if (id < 0)
        pi__model_refuse(t->m, PI_EINVAL, "the model has no token %s, which image models of kind %s need: give the "
                         "mmproj file of this model", text, t->kind->projector);
    return id;
}

void pi__tower_tokens(pi__tower *t, const char *begin, const char *soft, const char *end)
{
    t->frame.begin = token_of(t, begin);
    t->frame.soft = token_of(t, soft);
    t->frame.end = token_of(t, end);
    t->frame.text_before = t->frame.text_after = "";
}

void pi__tower_check_width(pi__tower *t, int64_t n, const char *name)
{
    if (n != t->text.n_embd)
        pi__model_refuse(t->m, PI_EINVAL, "tensor %s of the mmproj file makes rows of %lld values, but the model has "
                         "%d: give the mmproj file of this model", name, (long long) n, t->text.n_embd);
}

void pi__tower_need(pi__tower *t, int64_t y, int64_t ff)
{
    if (y > t->max_y) t->max_y = y;
    if (ff > t->max_ff) t->max_ff = ff;
}

void pi__tower_declare_mlp(pi__tower *t, pi__tower_mlp *p, int64_t n_in, const char *first, const char *second)
{
    pi__model *m = t->m;
    char full[96];
    snprintf(full, sizeof full, "%s.weight", second);
    const pi__tensor *w = pi__gguf_find_tensor(m->g, full);
    if (w) pi__tower_check_width(t, w->ne[1], full);
    const int64_t hidden = w && w->ne[0] > 0 && w->ne[0] <= PI__MAX_EMBD ? w->ne[0] : n_in;
    pi__declare_weight(m, &p->second, hidden, t->text.n_embd, full, PI__OF_FILE);
    snprintf(full, sizeof full, "%s.bias", second);
    pi__declare_vec_or_not(m, &p->second_bias, t->text.n_embd, full, PI__OF_FILE);
    snprintf(full, sizeof full, "%s.weight", first);
    pi__declare_weight(m, &p->first, n_in, hidden, full, PI__OF_FILE);
    snprintf(full, sizeof full, "%s.bias", first);
    pi__declare_vec_or_not(m, &p->first_bias, hidden, full, PI__OF_FILE);
    p->gelu = PI__ACT_GELU;
    p->work = (double) hidden * (double) (n_in + t->text.n_embd);
    pi__tower_need(t, t->text.n_embd, hidden);
}
