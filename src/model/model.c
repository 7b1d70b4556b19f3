/* Declaring, planning and loading a model, whatever its architecture (see model.h).
 *
 * The list of wanted tensors is the single source: what their sizes add up to is the plan, and where each one lies in its
 * region is known before there is memory (weights.c). */
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/operands.h"
#include "base/error.h"
#include "formats/formats.h"

static const pi__arch *const archs[] = {&pi__arch_gemma3, &pi__arch_gemma4, &pi__arch_gemma4_assistant, &pi__arch_qwen35,
                                      &pi__arch_qwen35moe, &pi__arch_deepseek4};

static void at_least(int64_t *a, int64_t b) { *a = *a > b ? *a : b; }
static void at_least32(int32_t *a, int32_t b) { *a = *a > b ? *a : b; }
int pi__hp_u32(const pi__model *m, const char *name, bool required, uint32_t def, uint32_t lo, uint32_t hi, int32_t *out,
               pi_error *err)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", m->arch->name, name);
    uint32_t v;
    if (required && !pi__gguf_find(m->g, key)) return pi__fail(err, PI_EFORMAT, "metadata %s is missing", key);
    int rc = pi__gguf_get_u32(m->g, key, &v, def, err);
    if (rc) return rc;
    if (v < lo || v > hi)
        return pi__fail(err, PI_EFORMAT, "metadata %s is %u, expected %u to %u", key, v, lo, hi);
    *out = (int32_t) v;
    return PI_OK;
}

int pi__hp_f32(const pi__model *m, const char *name, bool required, float def, float *out, pi_error *err)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", m->arch->name, name);
    if (required && !pi__gguf_find(m->g, key)) return pi__fail(err, PI_EFORMAT, "metadata %s is missing", key);
    int rc = pi__gguf_get_f32(m->g, key, out, def, err);
    if (rc) return rc;
    if (!isfinite(*out)) return pi__fail(err, PI_EFORMAT, "metadata %s is not a finite number", key);
    return PI_OK;
}

int pi__hp_each(const pi__model *m, const char *name, int32_t lo, int32_t hi, int32_t *out, pi_error *err)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", m->arch->name, name);
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    if (!kv || kv->type != PI__GGUF_ARR) {
        int rc = pi__hp_u32(m, name, true, 0, (uint32_t) lo, (uint32_t) hi, out, err);
        for (int32_t i = 1; i < m->n_layer && !rc; i++) out[i] = out[0];
        return rc;
    }
    if (kv->arr_type > PI__GGUF_I32 || kv->n < (uint64_t) m->n_layer)
        return pi__fail(err, PI_EFORMAT, "metadata %s needs a whole number for each of %d layers", key, m->n_layer);
    for (int32_t i = 0; i < m->n_layer; i++) {
        int64_t v = pi__gguf_elem_i64(kv, (uint64_t) i);
        if (v < lo || v > hi)
            return pi__fail(err, PI_EFORMAT, "metadata %s of layer %d is %lld, expected %d to %d", key, i, (long long) v, lo,
                            hi);
        out[i] = (int32_t) v;
    }
    return PI_OK;
}

int pi__read_vocab_size(pi__model *m, pi_error *err)
{
    const pi__tensor *t = pi__gguf_find_tensor(m->g, "token_embd.weight");
    if (!t) return pi__fail(err, PI_EFORMAT, "tensor token_embd.weight is missing: this file holds no weights");
    if (t->ne[1] < 1 || t->ne[1] > 1 << 24)
        return pi__fail(err, PI_EFORMAT, "tensor token_embd.weight has %lld rows", (long long) t->ne[1]);
    m->n_vocab = (int32_t) t->ne[1];
    return PI_OK;
}

static int add_want(pi__model *m, pi__want want, pi_error *err)
{
    if (!pi__grow(&m->want, &m->cap_want, m->n_want + 1, sizeof *m->want)) return pi__fail_mem(err, "the tensor list");
    m->want[m->n_want++] = want;
    return pi__weights_want(m, &m->want[m->n_want - 1], err);
}

/* The tensor called name, with the layer filled in; NULL: absent. */
static const pi__tensor *find(const pi__model *m, const char *name, int layer, char full[96])
{
    char fmt[96];
    const char *d = strstr(name, "%d");
    if (d) snprintf(fmt, sizeof fmt, "%.*s%d%s", (int) (d - name), name, layer, d + 2);
    else snprintf(fmt, sizeof fmt, "%s", name);
    memcpy(full, fmt, sizeof fmt);
    return pi__gguf_find_tensor(m->g, full);
}

/* The factors of a matrix called full: full without ".weight", with ".scale". */
static int want_scale(pi__model *m, pi__weight *w, const char *full, pi_error *err)
{
    char name[96];
    const size_t n = strlen(full), tail = strlen(".weight");
    if (n < tail || strcmp(full + n - tail, ".weight")) return PI_OK;
    snprintf(name, sizeof name, "%.*s.scale", (int) (n - tail), full);
    const pi__tensor *t = pi__gguf_find_tensor(m->g, name);
    if (!t) return PI_OK;
    if ((t->ne[0] != 1 && t->ne[0] != w->n_mat) || t->ne[1] != 1 || t->ne[2] != 1 || t->ne[3] != 1)
        return pi__fail(err, PI_EFORMAT, "tensor %s has shape [%lld, %lld], expected [1] or [%lld]", name,
                        (long long) t->ne[0], (long long) t->ne[1], (long long) w->n_mat);
    if (t->type != PI__F32) return pi__fail(err, PI_EFORMAT, "tensor %s must be F32", name);
    const size_t size = (size_t) w->n_mat * sizeof(float);
    return add_want(m, (pi__want) {.tensor = t, .scale = w, .size = size, .place = w->place}, err);
}

/* shape: columns, rows, matrices, and what the rows are. row: see pi__want. */
static int add_matrices(pi__model *m, pi__weight *w, const pi__tensor *t, pi__weight shape, const int32_t *row,
                        const char *full, pi_error *err)
{
    *w = shape;
    w->type = t->type;
    w->place = m->places ? pi__place_of_matrix(m->places, t) : PI__AT_DEVICE;
    const pi__backend *be = pi__backend_at(m->be, w->place);
    w->size = be->dev->weight_size(be, w);
    if (!w->size) {
        const pi__type_info *ti = pi__type_info_of(t->type);
        return pi__fail(err, PI_EUNSUPPORTED, "tensor %s is %s with %lld columns, which %s cannot multiply", full,
                        ti ? ti->name : "?", (long long) w->n_in, be->dev->describe(be));
    }
    at_least(&m->lim.max_n_in, w->n_in);
    at_least(&m->lim.max_n_out, w->n_out);
    return add_want(m, (pi__want) {.tensor = t, .weight = w, .row = row, .size = w->size, .place = w->place}, err);
}

static int wrong_shape(const pi__tensor *t, const char *full, const int64_t ne[3], pi_error *err)
{
    return pi__fail(err, PI_EFORMAT, "tensor %s has shape [%lld, %lld, %lld], expected [%lld, %lld, %lld]", full,
                    (long long) t->ne[0], (long long) t->ne[1], (long long) t->ne[2], (long long) ne[0], (long long) ne[1],
                    (long long) ne[2]);
}

/* scaled: takes NAME.scale along. */
static int want_matrices(pi__model *m, pi__weight *w, bool optional, pi__weight shape, const char *name, int layer,
                         bool scaled, pi_error *err)
{
    char full[96];
    const pi__tensor *t = find(m, name, layer, full);
    memset(w, 0, sizeof *w);
    if (!t && optional) return PI_OK;
    if (!t) return pi__fail(err, PI_EFORMAT, "tensor %s is missing", full);
    if (t->ne[0] != shape.n_in || t->ne[1] != shape.n_out || t->ne[2] != shape.n_mat || t->ne[3] != 1)
        return wrong_shape(t, full, (int64_t[3]) {shape.n_in, shape.n_out, shape.n_mat}, err);
    int rc = add_matrices(m, w, t, shape, NULL, full, err);
    return rc || !scaled ? rc : want_scale(m, w, full, err);
}

int pi__want_unscaled(pi__model *m, pi__weight *w, bool optional, int64_t n_in, int64_t n_out, const char *name, int layer,
                      pi_error *err)
{
    return want_matrices(m, w, optional, (pi__weight) {.n_in = n_in, .n_out = n_out, .n_mat = 1}, name, layer, false, err);
}

int pi__want_weight(pi__model *m, pi__weight *w, bool optional, int64_t n_in, int64_t n_out, const char *name, int layer,
                    pi_error *err)
{
    return want_matrices(m, w, optional, (pi__weight) {.n_in = n_in, .n_out = n_out, .n_mat = 1}, name, layer, true, err);
}

int pi__want_whole(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const char *name, int layer, pi_error *err)
{
    const pi__weight shape = {.n_in = n_in, .n_out = n_out, .n_mat = 1, .whole = true};
    return want_matrices(m, w, false, shape, name, layer, true, err);
}

int pi__want_experts(pi__model *m, pi__weight *w, bool optional, int64_t n_in, int64_t n_out, int64_t n_mat,
                     const char *name, int layer, pi_error *err)
{
    return want_matrices(m, w, optional, (pi__weight) {.n_in = n_in, .n_out = n_out, .n_mat = n_mat, .routed = true},
                         name, layer, true, err);
}

int pi__want_heads(pi__model *m, pi__weight *w, bool optional, int64_t n_in, int32_t n_head_kv, const int64_t part[3],
                   const char *name, int layer, pi_error *err)
{
    const pi__weight shape = {.n_in = n_in, .n_out = part[0] + part[1] + part[2], .n_mat = 1, .n_head = n_head_kv,
                              .part = {part[0], part[1], part[2]}};
    return want_matrices(m, w, optional, shape, name, layer, true, err);
}

int pi__want_gate_up(pi__model *m, pi__weight *w, bool optional, int64_t n_in, int64_t n_ff, int64_t n_mat,
                     const char *name, int layer, pi_error *err)
{
    const pi__weight shape = {.n_in = n_in, .n_out = 2 * n_ff, .n_mat = n_mat, .part = {n_ff, n_ff}, .routed = true};
    return want_matrices(m, w, optional, shape, name, layer, true, err);
}

int pi__want_clusters(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const int32_t *row,
                      const char *name, int layer, pi_error *err)
{
    char full[96];
    const pi__tensor *t = find(m, name, layer, full);
    const int64_t ne[3] = {n_in, n_out * n_mat, 1};
    memset(w, 0, sizeof *w);
    if (!t) return pi__fail(err, PI_EFORMAT, "tensor %s is missing", full);
    if (t->ne[0] != ne[0] || t->ne[1] != ne[1] || t->ne[2] != 1 || t->ne[3] != 1) return wrong_shape(t, full, ne, err);
    return add_matrices(m, w, t, (pi__weight) {.n_in = n_in, .n_out = n_out, .n_mat = n_mat, .whole = true}, row, full,
                        err);
}

int pi__want_order(pi__model *m, int32_t *dst, bool *found, int64_t n, const char *name, int layer, pi_error *err)
{
    char full[96];
    const pi__tensor *t = find(m, name, layer, full);
    if (found) *found = t != NULL;
    if (!t) return found ? PI_OK : pi__fail(err, PI_EFORMAT, "tensor %s is missing", full);
    if (t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3] != n || (t->type != PI__I32 && t->type != PI__I64))
        return pi__fail(err, PI_EFORMAT, "tensor %s must be %lld whole numbers, I32 or I64", full, (long long) n);
    return add_want(m, (pi__want) {.tensor = t, .order = dst}, err);
}

int pi__want_numbers(pi__model *m, int32_t *dst, int64_t n_rows, int64_t n, int32_t below, const char *name, int layer,
                     pi_error *err)
{
    char full[96];
    const pi__tensor *t = find(m, name, layer, full);
    if (!t) return pi__fail(err, PI_EFORMAT, "tensor %s is missing", full);
    if (t->ne[0] != n || t->ne[1] != n_rows || t->ne[2] != 1 || t->ne[3] != 1)
        return wrong_shape(t, full, (int64_t[3]) {n, n_rows, 1}, err);
    if (t->type != PI__I32 && t->type != PI__I64) return pi__fail(err, PI_EFORMAT, "tensor %s must be I32 or I64", full);
    return add_want(m, (pi__want) {.tensor = t, .order = dst, .below = below}, err);
}

void pi__need_experts(pi__model *m, int32_t n_expert, int32_t n_used, int64_t n_in, int64_t n_ff)
{
    pi__limits *l = &m->lim;
    at_least32(&l->max_expert, n_expert);
    at_least32(&l->max_used, n_used);
    if (n_in > l->max_in_exp) l->max_in_exp = n_in;
    if (2 * n_ff > l->max_ff_exp) l->max_ff_exp = 2 * n_ff;
}

/* A tensor for want's vec or host. ne: values a row, rows. */
static int want_values(pi__model *m, pi__want want, bool optional, const int64_t ne[2], const char *name, int layer,
                       pi_error *err)
{
    char full[96];
    const pi__tensor *t = want.tensor = find(m, name, layer, full);
    if (!t && optional) return PI_OK;
    if (!t) return pi__fail(err, PI_EFORMAT, "tensor %s is missing", full);
    if (t->ne[0] != ne[0] || t->ne[1] != ne[1] || t->ne[2] != 1 || t->ne[3] != 1)
        return pi__fail(err, PI_EFORMAT, "tensor %s has shape [%lld, %lld], expected [%lld, %lld]", full,
                        (long long) t->ne[0], (long long) t->ne[1], (long long) ne[0], (long long) ne[1]);
    const bool any = ne[1] > 1 && pi__type_info_of(t->type)->readable; /* of a table */
    if (!any && t->type != PI__F32 && t->type != PI__F16 && t->type != PI__BF16)
        return pi__fail(err, PI_EFORMAT, "tensor %s must be F32, F16 or BF16", full);
    want.size = want.vec ? (size_t) (ne[0] * ne[1]) * sizeof(float) : 0;
    want.place = m->be->side[PI__AT_CPU] ? PI__AT_BOTH : PI__AT_DEVICE;
    return add_want(m, want, err);
}

int pi__want_vec_times(pi__model *m, float **vec, bool optional, int64_t n, float factor, const char *name, int layer,
                       pi_error *err)
{
    *vec = NULL;
    return want_values(m, (pi__want) {.vec = vec, .factor = factor}, optional, (int64_t[2]) {n, 1}, name, layer, err);
}

int pi__want_host(pi__model *m, float *dst, bool optional, int64_t n, const char *name, int layer, pi_error *err)
{
    return want_values(m, (pi__want) {.host = dst, .factor = 1.0f}, optional, (int64_t[2]) {n, 1}, name, layer, err);
}

int pi__want_vec(pi__model *m, float **vec, bool optional, int64_t n, const char *name, int layer, pi_error *err)
{
    return pi__want_vec_times(m, vec, optional, n, 1.0f, name, layer, err);
}

int pi__want_table(pi__model *m, float **vec, int64_t n_rows, int64_t n, const char *name, int layer, pi_error *err)
{
    *vec = NULL;
    return want_values(m, (pi__want) {.vec = vec, .factor = 1.0f}, false, (int64_t[2]) {n, n_rows}, name, layer, err);
}

static int add_cache(pi__model *m, int32_t layer, const pi__row_group *like, pi__kv_layer kv, int32_t *index, pi_error *err)
{
    int32_t g = 0;
    while (g < m->n_groups && (m->group[g].recurrent || m->group[g].window != like->window || m->group[g].keep != like->keep ||
                               m->group[g].block != like->block)) g++;
    if (g == PI__MAX_GROUPS) return pi__fail(err, PI_EUNSUPPORTED, "more than %d kinds of cache", PI__MAX_GROUPS);
    if (g == m->n_groups) {
        m->n_groups++;
        m->group[g].name = like->name;
        m->group[g].window = like->window;
        m->group[g].keep = like->keep;
        m->group[g].block = like->block;
    }
    m->group[g].n_layers++;
    if (!pi__grow(&m->kv, &m->cap_kv, (size_t) m->n_kv + 1, sizeof *m->kv)) return pi__fail_mem(err, "the layer list");
    kv.group = g;
    kv.place = m->places ? pi__place_of_cache(m->places, layer) : PI__AT_DEVICE;
    m->kv[m->n_kv] = kv;
    *index = m->n_kv++;
    return PI_OK;
}

int pi__want_kv(pi__model *m, int32_t layer, int32_t window, int32_t n_head_kv, int32_t head_dim, int32_t *index,
                pi_error *err)
{
    const pi__row_group group = {.name = window ? "window" : "full", .window = window};
    return add_cache(m, layer, &group, (pi__kv_layer) {.n_head_kv = n_head_kv, .head_dim = head_dim}, index, err);
}

int pi__need_op(const pi__model *m, pi__op_id id, pi_error *err)
{
    for (int32_t side = 0; side < PI__N_SIDES; side++) {
        const pi__backend *be = pi__backend_at(m->be, side);
        if (!pi__op_has(be, id))
            return pi__fail(err, PI_EUNSUPPORTED, "%s models run on the CPU only so far, not on %s: set device to cpu",
                            m->arch->name, be->dev->describe(be));
    }
    return PI_OK;
}

int pi__want_rows(pi__model *m, int32_t layer, const pi__row_group *group, int32_t ratio, int32_t n, bool f32, int32_t *index,
                  pi_error *err)
{
    return add_cache(m, layer, group, (pi__kv_layer) {.n_head_kv = 1, .head_dim = n, .ratio = ratio, .f32 = f32}, index, err);
}

int pi__want_state(pi__model *m, int32_t layer, const pi__state_layer *shape, int32_t *index, pi_error *err)
{
    int32_t g = 0;
    while (g < m->n_groups && !m->group[g].recurrent) g++;
    if (g == PI__MAX_GROUPS) return pi__fail(err, PI_EUNSUPPORTED, "more than %d kinds of cache", PI__MAX_GROUPS);
    if (g == m->n_groups) {
        m->n_groups++;
        m->group[g].recurrent = true;
        m->group[g].name = "recurrent";
    }
    m->group[g].n_layers++;
    if (!pi__grow(&m->state, &m->cap_state, (size_t) m->n_state + 1, sizeof *m->state))
        return pi__fail_mem(err, "the layer list");
    m->state[m->n_state] = *shape;
    m->state[m->n_state].n_draft = m->n_draft;
    m->state[m->n_state].place = m->places ? pi__place_of_cache(m->places, layer) : PI__AT_DEVICE;
    *index = m->n_state++;
    pi__state_layer *most = &m->lim.state;
    at_least32(&most->n_k, shape->n_k);
    at_least32(&most->n_v, shape->n_v);
    at_least32(&most->dim, shape->dim);
    at_least32(&most->n_conv, shape->n_conv);
    return PI_OK;
}

static const char *file_type_name(uint32_t ft)
{
    static const char *const names[] = {
        [0] = "all F32", [1] = "F16", [2] = "Q4_0", [3] = "Q4_1", [7] = "Q8_0", [8] = "Q5_0", [9] = "Q5_1",
        [10] = "Q2_K - Medium", [11] = "Q3_K - Small", [12] = "Q3_K - Medium", [13] = "Q3_K - Large",
        [14] = "Q4_K - Small", [15] = "Q4_K - Medium", [16] = "Q5_K - Small", [17] = "Q5_K - Medium", [18] = "Q6_K",
        [19] = "IQ2_XXS - 2.0625 bpw", [20] = "IQ2_XS - 2.3125 bpw", [21] = "Q2_K - Small", [22] = "IQ3_XS - 3.3 bpw",
        [23] = "IQ3_XXS - 3.0625 bpw", [24] = "IQ1_S - 1.5625 bpw", [25] = "IQ4_NL - 4.5 bpw",
        [26] = "IQ3_S - 3.4375 bpw", [27] = "IQ3_S mix - 3.66 bpw", [28] = "IQ2_S - 2.5 bpw", [29] = "IQ2_M - 2.7 bpw",
        [30] = "IQ4_XS - 4.25 bpw", [31] = "IQ1_M - 1.75 bpw", [32] = "BF16", [36] = "TQ1_0 - 1.69 bpw ternary",
        [37] = "TQ2_0 - 2.06 bpw ternary", [38] = "MXFP4 MoE", [39] = "NVFP4",
    };
    return ft < sizeof names / sizeof *names && names[ft] ? names[ft] : "unknown type";
}

static int describe(pi__model *m, pi_error *err)
{
    pi__str name;
    uint32_t ft;
    int rc = pi__gguf_get_str(m->g, "general.name", &name, err);
    if (!rc) rc = pi__gguf_get_u32(m->g, "general.file_type", &ft, UINT32_MAX, err);
    if (rc) return rc;
    snprintf(m->name, sizeof m->name, "%.*s", (int) (name.n < 63 ? name.n : 63), name.p ? name.p : "");
    for (size_t i = 0; i < pi__gguf_n_tensors(m->g); i++) {
        const pi__tensor *t = pi__gguf_tensor_at(m->g, i);
        m->n_params += (uint64_t) t->ne[0] * (uint64_t) t->ne[1] * (uint64_t) t->ne[2] * (uint64_t) t->ne[3];
        m->file_bytes += t->size;
    }
    char size[32];
    const char *known = m->arch->size_name ? m->arch->size_name(m) : NULL;
    if (known) snprintf(size, sizeof size, "%s", known);
    else if (m->n_params < 1000000000) snprintf(size, sizeof size, "%.0fM", (double) m->n_params * 1e-6);
    else snprintf(size, sizeof size, "%.1fB", (double) m->n_params * 1e-9);
    snprintf(m->desc, sizeof m->desc, "%s %s %s", m->arch->name, size, file_type_name(ft));
    return PI_OK;
}

static const pi__arch *arch_of(const pi__gguf *g, pi_error *err)
{
    pi__str s;
    if (pi__gguf_get_str(g, "general.architecture", &s, err)) return NULL;
    if (!s.p) {
        pi__fail(err, PI_EFORMAT, "metadata general.architecture is missing: this is not a model");
        return NULL;
    }
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (strlen(archs[i]->name) == s.n && memcmp(archs[i]->name, s.p, s.n) == 0) return archs[i];
    char known[120] = "";
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", archs[i]->name);
    pi__fail(err, PI_EUNSUPPORTED, "architecture \"%.*s\" is not supported; this version runs %s",
             (int) (s.n < 40 ? s.n : 40), s.p, known);
    return NULL;
}

int pi__model_declare(pi__model **out, const pi__gguf *g, pi__backend *be, const pi__places *places, int32_t n_draft,
                      pi__model *target, pi_error *err)
{
    *out = NULL;
    pi_error why = {0};
    const pi__arch *arch = arch_of(g, &why);
    if (!arch) return pi__fail(err, why.code, "%s", why.msg);
    pi__model *m = pi__calloc(1, sizeof *m);
    int rc = PI_OK;
    if (m) {
        m->arch = arch;
        m->g = g;
        m->be = be;
        m->places = places;
        m->n_draft = n_draft;
        m->target = target;
        m->arch_data = pi__calloc(1, arch->size);
    }
    if (!m || !m->arch_data) {
        rc = pi__fail_mem(err, "the model");
        goto out;
    }
    rc = pi__hp_u32(m, "context_length", true, 0, 1, 1 << 28, &m->n_ctx_train, err);
    if (!rc) rc = pi__hp_u32(m, "embedding_length", true, 0, 1, PI__MAX_EMBD, &m->n_embd, err);
    if (!rc) rc = pi__hp_u32(m, "block_count", true, 0, 1, PI__MAX_LAYERS, &m->n_layer, err);
    if (!rc) rc = arch->declare(m, err);
    if (!rc) rc = describe(m, err);
    m->places = NULL;
out:
    if (rc) {
        pi__model_free(m);
        return rc;
    }
    *out = m;
    return PI_OK;
}

size_t pi__model_scratch(pi__model *m, pi__limits *lim)
{
    const pi__limits *own = &m->lim;
    at_least(&lim->max_n_in, own->max_n_in);
    at_least(&lim->max_n_out, own->max_n_out);
    at_least(&lim->max_in_exp, own->max_in_exp);
    at_least(&lim->max_ff_exp, own->max_ff_exp);
    at_least(&lim->max_order, own->max_order);
    at_least32(&lim->max_n_head, own->max_n_head);
    at_least32(&lim->max_head_dim, own->max_head_dim);
    at_least32(&lim->max_expert, own->max_expert);
    at_least32(&lim->max_used, own->max_used);
    at_least32(&lim->max_pick, own->max_pick);
    at_least32(&lim->state.n_k, own->state.n_k);
    at_least32(&lim->state.n_v, own->state.n_v);
    at_least32(&lim->state.dim, own->state.dim);
    at_least32(&lim->state.n_conv, own->state.n_conv);
    at_least32(&lim->state.n_draft, m->n_draft);
    at_least32(&lim->max_row, own->max_row);
    at_least32(&lim->index_head, own->index_head);
    at_least32(&lim->index_dim, own->index_dim);
    if (own->index_ratio) lim->index_ratio = own->index_ratio;
    pi__arena a = {0};
    m->arch->layout(m, lim, &a);
    return a.used;
}

/* Of the file at a time: the file and its copy are never both in memory. More where it goes to a far device, whose threads
 * pack a piece together. */
enum { LOAD_BYTES = 4 << 20, FAR_LOAD_BYTES = 16 << 20 };

typedef struct stage { /* room for a piece of a file that is not in memory */
    char *p;
    size_t cap;
} stage;

/* n bytes of the tensor from off, whole blocks: each value is a number. */
static int check_values(const pi__tensor *t, uint64_t off, const char *data, size_t n, pi_error *err)
{
    enum { PART = 1024 };
    float v[PART];
    const pi__type_info *info = pi__type_info_of(t->type);
    if (!info->readable) return PI_OK; /* integers */
    for (size_t at = 0, part = PART / info->blck_size * info->type_size; at < n; at += part) {
        int64_t k = (int64_t) ((n - at < part ? n - at : part) / info->type_size * info->blck_size);
        pi__dequantize_row(t->type, data + at, v, k);
        for (int64_t i = 0; i < k; i++)
            if (!isfinite(v[i]))
                return pi__fail(err, PI_EFORMAT, "tensor %.100s: value %llu is %s: the file is damaged, or its writer is "
                                "wrong", t->cname, (unsigned long long) ((off + at) / info->type_size * info->blck_size) +
                                (unsigned long long) i, v[i] != v[i] ? "not a number" : "infinite");
    }
    return PI_OK;
}

/* n bytes of the tensor from off, in place or copied; NULL with *rc set. */
static const char *piece(pi__model *m, const pi__tensor *t, uint64_t off, size_t n, stage *st, int *rc, pi_error *err)
{
    const char *data = pi__gguf_tensor_data(m->g, t);
    if (data) {
        data += off;
    } else {
        if (!pi__grow(&st->p, &st->cap, n, 1)) *rc = pi__fail_mem(err, "reading a tensor");
        else *rc = pi__gguf_read(m->g, t, off, st->p, n, err);
        data = *rc ? NULL : st->p;
    }
    if (data && m->check_tensors && (*rc = check_values(t, off, data, n, err))) return NULL;
    if (data && m->want_digest) m->digest = pi__hash_chain(m->digest, data, n);
    return data;
}

/* The values of a vec, a scale or for the host; dst: on the device. */
static int load_values(pi__model *m, const pi__want *w, float *dst, stage *st, pi_error *err)
{
    int rc = PI_OK;
    const int64_t n_file = w->tensor->ne[0] * w->tensor->ne[1], n = w->scale ? w->scale->n_mat : n_file;
    const char *src = piece(m, w->tensor, 0, w->tensor->size, st, &rc, err);
    if (!src) return rc;
    float *tmp = w->host ? w->host : pi__malloc((size_t) n * sizeof *tmp);
    if (!tmp) return pi__fail_mem(err, "reading a tensor");
    pi__dequantize_row(w->tensor->type, src, tmp, n_file);
    for (int64_t i = n_file; i < n; i++) tmp[i] = tmp[0]; /* one factor for all matrices */
    for (int64_t i = 0; i < n && w->vec; i++) tmp[i] *= w->factor;
    if (w->host) return PI_OK;
    pi__backend *be = pi__backend_at(m->be, w->place);
    be->dev->upload(be, dst, tmp, (size_t) n * sizeof *tmp);
    pi__free(tmp);
    return PI_OK;
}

/* Whole numbers in range, or each once, so that whoever uses them stays inside. */
static int load_order(pi__model *m, const pi__want *w, stage *st, pi_error *err)
{
    const pi__tensor *t = w->tensor;
    const int64_t n = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    int rc = PI_OK;
    const char *src = piece(m, t, 0, t->size, st, &rc, err);
    if (!src) return rc;
    const int64_t below = w->below ? w->below : n;
    uint8_t *seen = pi__calloc((size_t) below, 1);
    if (!seen) return pi__fail_mem(err, "reading a tensor");
    for (int64_t i = 0; i < n && !rc; i++) {
        int64_t v = 0;
        int32_t v32 = 0;
        if (t->type == PI__I64) memcpy(&v, src + 8 * i, 8);
        else memcpy(&v32, src + 4 * i, 4), v = v32;
        if (v < 0 || v >= below || (seen[v] && !w->below))
            rc = pi__fail(err, PI_EFORMAT, "tensor %s: number %lld is %lld, expected %s below %lld%s", t->cname, (long long) i,
                          (long long) v, w->below ? "one" : "each", (long long) below, w->below ? "" : " once");
        else w->order[i] = (int32_t) v, seen[v] = 1;
    }
    pi__free(seen);
    return rc;
}

/* n rows of a matrix from the first-th on, in the order that want says. st: of the file, and of rows put together. */
static const char *rows_of(pi__model *m, const pi__want *want, int64_t first, int64_t n, size_t row, stage st[2], int *rc,
                           pi_error *err)
{
    if (!want->row) return piece(m, want->tensor, (uint64_t) first * row, (size_t) n * row, &st[0], rc, err);
    if (!pi__grow(&st[1].p, &st[1].cap, (size_t) n * row, 1)) *rc = pi__fail_mem(err, "reading a tensor");
    for (int64_t i = 0; i < n && !*rc; i++) {
        const char *src = piece(m, want->tensor, (uint64_t) want->row[first + i] * row, row, &st[0], rc, err);
        if (src) memcpy(st[1].p + (size_t) i * row, src, row);
    }
    return *rc ? NULL : st[1].p;
}

static int load_weight(pi__model *m, const pi__want *want, stage st[2], pi_error *err)
{
    const pi__weight *w = want->weight;
    pi__backend *be = pi__backend_at(m->be, w->place);
    size_t row = pi__row_size(pi__type_info_of(w->type), w->n_in);
    int64_t step = (int64_t) ((be->far ? FAR_LOAD_BYTES : LOAD_BYTES) / row) / PI__LOAD_ROWS * PI__LOAD_ROWS;
    if (step < PI__LOAD_ROWS) step = PI__LOAD_ROWS;
    int rc = PI_OK;
    for (int64_t mat = 0; mat < w->n_mat; mat++)
        for (int64_t r = 0; r < w->n_out; r += step) {
            int64_t n = w->n_out - r < step ? w->n_out - r : step;
            const char *src = rows_of(m, want, mat * w->n_out + r, n, row, st, &rc, err);
            if (!src) return rc;
            be->dev->weight_load(be, w, mat, r, n, src);
            if (!want->row)
                pi__gguf_drop(m->g, want->tensor, (uint64_t) (mat * w->n_out + r) * row, (uint64_t) n * row);
        }
    return PI_OK;
}

/* Bytes of all tensors that lie on devices. */
static size_t wanted_bytes(const pi__model *m)
{
    size_t all = 0;
    for (size_t i = 0; i < m->n_want; i++) all += m->want[i].size;
    return all;
}

int pi__model_load(pi__model *m, const pi__limits *lim, void (*progress)(void *ud, float done), void *ud, pi_error *err)
{
    pi__limits own = *lim;
    m->scratch_size = pi__model_scratch(m, &own);
    int rc = pi__weights_alloc(m, err);
    if (rc) return rc;
    m->scratch = m->be->dev->alloc(m->be, m->scratch_size);
    if (!m->scratch) return pi__fail(err, PI_ENOMEM, "no memory for %zu MiB of activations", m->scratch_size >> 20);
    pi__arena a = {m->scratch, m->scratch_size, 0};
    m->arch->layout(m, &own, &a);

    size_t done = 0, all = wanted_bytes(m);
    stage st[2] = {0};
    for (size_t i = 0; i < m->n_want && !rc; i++) {
        const pi__want *w = &m->want[i];
        char *p = pi__weights_at(m, w);
        float *values = (float *) (void *) p;
        if (w->weight) w->weight->data = p;
        else if (w->scale) w->scale->scale = values;
        else if (w->vec) *w->vec = values;
        rc = w->weight ? load_weight(m, w, st, err) : w->order ? load_order(m, w, st, err)
                                                               : load_values(m, w, values, st, err);
        done += w->size;
        if (progress) progress(ud, (float) done / (float) all);
    }
    for (int i = 0; i < 2; i++) pi__free(st[i].p);
    if (!rc && m->arch->loaded) rc = m->arch->loaded(m, err);
    m->g = NULL;
    return rc;
}

void pi__model_free(pi__model *m)
{
    if (!m) return;
    if (m->arch_data && m->arch->free) m->arch->free(m);
    pi__weights_free(m);
    if (m->scratch) m->be->dev->free(m->be, m->scratch, m->scratch_size);
    pi__free(m->want);
    pi__free(m->kv);
    pi__free(m->state);
    pi__free(m->arch_data);
    pi__free(m);
}
