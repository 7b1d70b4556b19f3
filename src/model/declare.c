/* Implementation of declare.h. Memory: the model's lists grow here. */
#include "model/declare.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "backend/operands.h"
#include "base/error.h"
#include "formats/formats.h"

static void at_least(int64_t *a, int64_t b) { *a = *a > b ? *a : b; }
static void at_least32(int32_t *a, int32_t b) { *a = *a > b ? *a : b; }

void pi__model_refuse(pi__model *m, int code, const char *fmt, ...)
{
    if (!pi__model_ok(m)) return;
    m->error.code = code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(m->error.msg, sizeof m->error.msg, fmt, ap);
    va_end(ap);
}

/* Header before each allocation of pi__model_calloc; freed with the model. */
typedef struct pi__owned {
    struct pi__owned *next;
    max_align_t element[];
} pi__owned;

void *pi__model_calloc(pi__model *m, size_t n, size_t size, const char *what)
{
    size_t bytes;
    if (!pi__model_ok(m)) return NULL;
    const bool fits = pi__mul_ok(n, size, &bytes) && pi__add_ok(bytes, sizeof(pi__owned), &bytes);
    pi__owned *o = fits ? pi__calloc(1, bytes) : NULL;
    if (!o) {
        pi__fail_mem(&m->error, what);
        return NULL;
    }
    o->next = m->owned;
    m->owned = o;
    return o->element;
}

void pi__model_free_owned(pi__model *m)
{
    for (pi__owned *o = m->owned, *next; o; o = next) {
        next = o->next;
        pi__free(o);
    }
    m->owned = NULL;
}

/* ------------------------------------------------------------------------------------------------------- metadata */

static void key_of(const pi__model *m, const char *name, char key[128])
{
    snprintf(key, 128, "%s.%s", m->arch->name, name);
}

bool pi__has_key(const pi__model *m, const char *name)
{
    char key[128];
    key_of(m, name, key);
    return pi__gguf_find(m->g, key) != NULL;
}

/* True if the metadata has the key. A missing key is recorded as an error. */
static bool required(pi__model *m, const char *key)
{
    if (pi__model_ok(m) && !pi__gguf_find(m->g, key)) pi__model_refuse(m, PI_EFORMAT, "metadata %s is missing", key);
    return pi__model_ok(m);
}

int32_t pi__hp_u32_or(pi__model *m, const char *name, uint32_t def, uint32_t lo, uint32_t hi)
{
    char key[128];
    uint32_t v;
    key_of(m, name, key);
    if (!pi__model_ok(m) || pi__gguf_get_u32(m->g, key, &v, def, &m->error)) return (int32_t) lo;
    if (v >= lo && v <= hi) return (int32_t) v;
    pi__model_refuse(m, PI_EFORMAT, "metadata %s is %u, expected %u to %u", key, v, lo, hi);
    return (int32_t) lo;
}

int32_t pi__hp_u32(pi__model *m, const char *name, uint32_t lo, uint32_t hi)
{
    char key[128];
    key_of(m, name, key);
    return required(m, key) ? pi__hp_u32_or(m, name, lo, lo, hi) : (int32_t) lo;
}

float pi__hp_f32_or(pi__model *m, const char *name, float def)
{
    char key[128];
    float v;
    key_of(m, name, key);
    if (!pi__model_ok(m) || pi__gguf_get_f32(m->g, key, &v, def, &m->error)) return def;
    if (isfinite(v)) return v;
    pi__model_refuse(m, PI_EFORMAT, "metadata %s is not a finite number", key);
    return def;
}

float pi__hp_f32(pi__model *m, const char *name)
{
    char key[128];
    key_of(m, name, key);
    return required(m, key) ? pi__hp_f32_or(m, name, 0) : 0;
}

void pi__hp_each(pi__model *m, const char *name, int32_t lo, int32_t hi, int32_t *out)
{
    char key[128];
    key_of(m, name, key);
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    if (!kv || kv->type != PI__GGUF_ARR) {
        const int32_t v = pi__hp_u32(m, name, (uint32_t) lo, (uint32_t) hi);
        for (int32_t i = 0; i < m->n_layer; i++) out[i] = v;
        return;
    }
    const bool enough = kv->arr_type <= PI__GGUF_I32 && kv->n >= (uint64_t) m->n_layer;
    if (!enough)
        pi__model_refuse(m, PI_EFORMAT, "metadata %s needs a whole number for each of %d layers", key, m->n_layer);
    for (int32_t i = 0; i < m->n_layer; i++) {
        const int64_t v = enough ? pi__gguf_elem_i64(kv, (uint64_t) i) : lo;
        if (v < lo || v > hi)
            pi__model_refuse(m, PI_EFORMAT, "metadata %s of layer %d is %lld, expected %d to %d", key, i, (long long) v,
                             lo, hi);
        out[i] = v < lo || v > hi ? lo : (int32_t) v;
    }
}

const pi__gguf_kv *pi__hp_array(pi__model *m, const char *name, int type, int32_t n, bool or_number)
{
    char key[128];
    key_of(m, name, key);
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    if (!kv || !pi__model_ok(m) || (kv->type != PI__GGUF_ARR && or_number)) return pi__model_ok(m) ? kv : NULL;
    /* some converters write bools as integers */
    const bool right = kv->arr_type == type || (type == PI__GGUF_BOOL && kv->arr_type == PI__GGUF_I32);
    if (kv->type == PI__GGUF_ARR && right && kv->n >= (uint64_t) n) return kv;
    pi__model_refuse(m, PI_EFORMAT, "metadata %s needs a %s for each layer", key,
                     type == PI__GGUF_BOOL ? "bool" : "number");
    return NULL;
}

void pi__read_trunk(pi__model *m, int32_t n)
{
    if (m->n_exit > n)
        pi__model_refuse(m, PI_EINVAL, "n-layer-exit is %d, but the model has %d layers: give 1 to %d",
                         m->n_exit, n, n);
    m->n_trunk = m->n_exit && pi__model_ok(m) ? m->n_exit : n;
}

void pi__read_vocab_size(pi__model *m)
{
    const pi__tensor *t = pi__gguf_find_tensor(m->g, "token_embd.weight");
    m->n_vocab = 1;
    if (!t) pi__model_refuse(m, PI_EFORMAT, "tensor token_embd.weight is missing: this file has no weights");
    else if (t->ne[1] < 1 || t->ne[1] > 1 << 24)
        pi__model_refuse(m, PI_EFORMAT, "tensor token_embd.weight has %lld rows", (long long) t->ne[1]);
    else m->n_vocab = (int32_t) t->ne[1];
}

/* -------------------------------------------------------------------------------------------------------- tensors */

static void add_want(pi__model *m, pi__declared want)
{
    if (!pi__model_ok(m)) return;
    if (!pi__grow(&m->want, &m->cap_want, m->n_want + 1, sizeof *m->want)) {
        pi__fail_mem(&m->error, "the tensor list");
        return;
    }
    m->want[m->n_want++] = want;
    pi__weights_want(m, &m->want[m->n_want - 1], &m->error);
}

/* Returns the tensor called name (of the layer, if layer >= 0), or NULL. Writes its full name to `full`. */
static const pi__tensor *find(const pi__model *m, const char *name, int layer, char full[96])
{
    if (layer < 0) snprintf(full, 96, "%s", name);
    else if (m->blk) snprintf(full, 96, "%s.%s", m->blk, name);
    else snprintf(full, 96, "%sblk.%d.%s", m->encoder_names ? "enc." : "", layer, name);
    return pi__gguf_find_tensor(m->g, full);
}

bool pi__has_tensor(const pi__model *m, const char *name, int layer)
{
    char full[96];
    return find(m, name, layer, full) != NULL;
}

const char *pi__name_of(const pi__model *m, const char *without, const char *name, int layer)
{
    return pi__has_tensor(m, without, layer) ? without : name;
}

/* Like find, for a required tensor: a missing one is recorded as an error. Returns NULL after any earlier error. */
static const pi__tensor *need(pi__model *m, const char *name, int layer, char full[96])
{
    const pi__tensor *t = find(m, name, layer, full);
    if (!t) pi__model_refuse(m, PI_EFORMAT, "tensor %s is missing", full);
    return pi__model_ok(m) ? t : NULL;
}

/* True if t has this shape: columns, rows, matrices. Another shape is recorded as an error. */
static bool shaped(pi__model *m, const pi__tensor *t, const char *full, int64_t n, int64_t n_rows, int64_t n_mat)
{
    if (t->ne[0] == n && t->ne[1] == n_rows && t->ne[2] == n_mat && t->ne[3] == 1) return true;
    pi__model_refuse(m, PI_EFORMAT, "tensor %s has shape [%lld, %lld, %lld], expected [%lld, %lld, %lld]", full,
                     (long long) t->ne[0], (long long) t->ne[1], (long long) t->ne[2], (long long) n,
                     (long long) n_rows, (long long) n_mat);
    return false;
}

/* Declares the factors of w, if the file has them. full: the name of w's tensor; its ".weight" becomes ".scale". */
static void want_scale(pi__model *m, pi__weight *w, const char *full)
{
    char name[96];
    const size_t n = strlen(full), tail = strlen(".weight");
    if (!pi__model_ok(m) || n < tail || strcmp(full + n - tail, ".weight")) return;
    snprintf(name, sizeof name, "%.*s.scale", (int) (n - tail), full);
    const pi__tensor *t = pi__gguf_find_tensor(m->g, name);
    if (!t) return;
    if ((t->ne[0] != 1 && t->ne[0] != w->n_mat) || t->ne[1] != 1 || t->ne[2] != 1 || t->ne[3] != 1)
        pi__model_refuse(m, PI_EFORMAT, "tensor %s has shape [%lld, %lld], expected [1] or [%lld]", name,
                         (long long) t->ne[0], (long long) t->ne[1], (long long) w->n_mat);
    else if (t->type != PI__F32) pi__model_refuse(m, PI_EFORMAT, "tensor %s must be F32", name);
    const size_t size = (size_t) w->n_mat * sizeof(float);
    add_want(m, (pi__declared) {.tensor = t, .scale = w, .size = size, .placement = w->placement});
}

/* Options of add_matrices. */
typedef struct ask {
    bool optional;      /* the tensor may be absent */
    bool unscaled;      /* NAME.scale is not the matrix's factor */
    const int32_t *row, *col; /* see pi__declared */
    bool turned;        /* see pi__declared */
    int64_t n_rows;     /* rows of the file's matrix; 0 = those of the matrix */
    bool heads;         /* one matrix per head, with per-head adapters (block_mla.c) */
} ask;

/* Declares w as the tensor t, which may be NULL. shape: columns, rows, matrices, the flags of the rows, and a type
 * (0 = the file's). */
static void add_matrices(pi__model *m, pi__weight *w, const pi__tensor *t, pi__weight shape, ask how, const char *full)
{
    size_t slots = 0;
    *w = shape;
    w->type = shape.type ? shape.type : pi__loaded_type(t->type);
    w->placement = m->placement ? pi__placement_of_matrix(m->placement, t) : pi__default_placement(m->be);
    const pi__backend *be = pi__backend_at(m->be, w->placement);
    w->n_slot = w->routed && m->placement ? pi__placement_slots(m->placement, t) : 0;
    if (w->n_slot >= w->n_mat) w->n_slot = 0; /* all experts have a slot */
    w->size = be->dev->weight_size(be, w);
    if (w->size && w->n_slot && be->opt->slots_bytes) slots = be->opt->slots_bytes(be, w);
    if (w->size && w->n_slot && !slots)
        pi__model_refuse(m, PI_EUNSUPPORTED, "expert-cache: %s cannot read tensor %s from host memory: unset it",
                         be->dev->describe(be), full);
    if (!w->size) {
        const pi__type_info *ti = pi__type_info_of(t->type);
        pi__model_refuse(m, PI_EUNSUPPORTED, "tensor %s is %s with %lld columns, which %s cannot multiply", full,
                         ti ? ti->name : "?", (long long) w->n_in, be->dev->describe(be));
    }
    at_least(&m->lim.max_n_in, w->n_in);
    at_least(&m->lim.max_n_out, w->n_out);
    add_want(m, (pi__declared) {.tensor = t, .weight = w, .row = how.row, .col = how.col, .turned = how.turned,
                            .size = w->size, .slots = slots, .placement = w->placement});
    if (!how.heads) pi__adapter_target(m, w, full, how.row, how.n_rows);
}

static void want_matrices(pi__model *m, pi__weight *w, pi__weight shape, ask how, const char *name, int layer)
{
    char full[96];
    memset(w, 0, sizeof *w);
    if (how.optional && !pi__has_tensor(m, name, layer)) return;
    const pi__tensor *t = need(m, name, layer, full);
    if (!t || !shaped(m, t, full, shape.n_in, how.n_rows ? how.n_rows : shape.n_out, shape.n_mat)) return;
    add_matrices(m, w, t, shape, how, full);
    if (!how.unscaled) want_scale(m, w, full);
}

static pi__weight plain(int64_t n_in, int64_t n_out) { return (pi__weight) {.n_in = n_in, .n_out = n_out, .n_mat = 1}; }

void pi__declare_weight(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const char *name, int layer)
{
    want_matrices(m, w, plain(n_in, n_out), (ask) {0}, name, layer);
}

void pi__declare_weight_or_not(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const char *name, int layer)
{
    want_matrices(m, w, plain(n_in, n_out), (ask) {.optional = true}, name, layer);
}

void pi__declare_unscaled_or_not(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const char *name, int layer)
{
    want_matrices(m, w, plain(n_in, n_out), (ask) {.optional = true, .unscaled = true}, name, layer);
}

void pi__declare_weight_rows(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const int32_t *row,
                             const char *name, int layer)
{
    want_matrices(m, w, plain(n_in, n_out), (ask) {.row = row}, name, layer);
}

void pi__declare_gathered(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const int32_t *row, int64_t n_rows,
                          const char *name, int layer)
{
    char full[96];
    memset(w, 0, sizeof *w);
    const pi__tensor *t = need(m, name, layer, full);
    if (!t || !shaped(m, t, full, n_in, n_rows, 1)) return;
    add_matrices(m, w, t, plain(n_in, n_out), (ask) {.row = row}, full);
    want_scale(m, w, full);
}

void pi__declare_columns(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const int32_t *col, const char *name,
                         int layer)
{
    char full[96];
    pi__weight shape = plain(n_in, n_out);
    memset(w, 0, sizeof *w);
    const pi__tensor *t = need(m, name, layer, full);
    if (!t || !shaped(m, t, full, n_in, n_out, 1)) return;
    shape.type = t->type == PI__F32 || t->type == PI__BF16 ? t->type : PI__F16;
    if (!pi__type_info_of(t->type)->readable)
        pi__model_refuse(m, PI_EUNSUPPORTED, "tensor %s has type %s, which is not supported for it", full,
                         pi__type_info_of(t->type)->name);
    else add_matrices(m, w, t, shape, (ask) {.col = col}, full);
}

void pi__declare_kernel(pi__model *m, pi__weight *w, int64_t size, int64_t n_out, const char *name, int layer)
{
    char full[96];
    const int64_t n_in = 3 * size * size;
    memset(w, 0, sizeof *w);
    const pi__tensor *t = need(m, name, layer, full);
    if (!t) return;
    const bool conv = t->ne[0] == size && t->ne[1] == size && t->ne[2] == 3 && t->ne[3] == n_out;
    if (!conv && !shaped(m, t, full, n_in, n_out, 1)) return;
    if (conv && !pi__type_is_float(t->type))
        pi__model_refuse(m, PI_EUNSUPPORTED, "tensor %s must be F32, F16 or BF16", full);
    else add_matrices(m, w, t, plain(n_in, n_out), (ask) {0}, full);
}

void pi__declare_replicated(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, const char *name, int layer)
{
    const pi__weight shape = {.n_in = n_in, .n_out = n_out, .n_mat = 1, .whole = true};
    want_matrices(m, w, shape, (ask) {0}, name, layer);
}

void pi__declare_experts(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const char *name,
                      int layer)
{
    const pi__weight shape = {.n_in = n_in, .n_out = n_out, .n_mat = n_mat, .routed = true};
    want_matrices(m, w, shape, (ask) {0}, name, layer);
}

static void need_heads(pi__model *m, int64_t n_in, int64_t n_out, int64_t n_mat)
{
    at_least32(&m->lim.n_head_mat, (int32_t) n_mat);
    at_least(&m->lim.head_in, n_in);
    at_least(&m->lim.head_out, n_out);
}

void pi__declare_head_linear(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const char *name,
                          int layer)
{
    const pi__weight shape = {.n_in = n_in, .n_out = n_out, .n_mat = n_mat, .whole = true};
    want_matrices(m, w, shape, (ask) {.heads = true}, name, layer);
    need_heads(m, n_in, n_out, n_mat);
}

void pi__declare_head_rows(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const int32_t *row,
                        bool turned, int64_t n_rows, const char *name, int layer)
{
    pi__weight shape = {.n_in = n_in, .n_out = n_out, .n_mat = n_mat, .whole = true};
    char full[96];
    memset(w, 0, sizeof *w);
    const pi__tensor *t = need(m, name, layer, full);
    if (!t || !shaped(m, t, full, turned ? n_out : n_in, n_rows, 1)) return;
    if (turned) shape.type = t->type == PI__F32 || t->type == PI__BF16 ? t->type : PI__F16;
    if (turned && !pi__type_info_of(t->type)->readable)
        pi__model_refuse(m, PI_EUNSUPPORTED, "tensor %s has type %s, which is not supported for it",
                         full, pi__type_info_of(t->type)->name);
    add_matrices(m, w, t, shape, (ask) {.row = row, .turned = turned, .heads = true}, full);
    want_scale(m, w, full);
    need_heads(m, n_in, n_out, n_mat);
}

void pi__declare_gate_up(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_ff, const char *name, int layer)
{
    const pi__weight shape = {.n_in = n_in, .n_out = 2 * n_ff, .n_mat = 1, .fused_rows = {n_ff, n_ff}};
    want_matrices(m, w, shape, (ask) {0}, name, layer);
}

void pi__declare_gate_up_or_not(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_ff, int64_t n_mat,
                                const char *name, int layer)
{
    const pi__weight shape = {
        .n_in = n_in, .n_out = 2 * n_ff, .n_mat = n_mat, .fused_rows = {n_ff, n_ff}, .routed = true};
    want_matrices(m, w, shape, (ask) {.optional = true}, name, layer);
}

void pi__declare_heads(pi__model *m, pi__weight *w, int64_t n_in, int32_t n_head_kv, const int64_t fused_rows[3],
                       const int32_t *row, const char *name, int layer)
{
    pi__declare_heads_of(m, w, n_in, n_head_kv, fused_rows, row, 0, name, layer);
}

void pi__declare_heads_of(pi__model *m, pi__weight *w, int64_t n_in, int32_t n_head_kv, const int64_t fused_rows[3],
                          const int32_t *row, int64_t n_rows, const char *name, int layer)
{
    const pi__weight shape = {.n_in = n_in,
                              .n_out = fused_rows[0] + fused_rows[1] + fused_rows[2],
                              .n_mat = 1,
                              .n_head = n_head_kv,
                              .fused_rows = {fused_rows[0], fused_rows[1], fused_rows[2]}};
    want_matrices(m, w, shape, (ask) {.row = row, .n_rows = n_rows}, name, layer);
}

void pi__declare_clusters(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const int32_t *row,
                       const char *name, int layer)
{
    char full[96];
    memset(w, 0, sizeof *w);
    const pi__tensor *t = need(m, name, layer, full);
    if (!t || !shaped(m, t, full, n_in, n_out * n_mat, 1)) return;
    add_matrices(m, w, t, (pi__weight) {.n_in = n_in, .n_out = n_out, .n_mat = n_mat, .whole = true},
                 (ask) {.row = row}, full);
}

void pi__declare_head_groups(pi__model *m, pi__weight *w, int64_t n_in, int64_t n_out, int64_t n_mat, const char *name,
                          int layer)
{
    char full[96];
    pi__declare_clusters(m, w, n_in, n_out, n_mat, NULL, name, layer);
    if (need(m, name, layer, full)) want_scale(m, w, full);
    need_heads(m, n_in, n_out, n_mat);
}

void pi__declare_ids(pi__model *m, int32_t *dst, int64_t n, int32_t below, const char *name, int layer)
{
    char full[96];
    const pi__tensor *t = need(m, name, layer, full);
    if (!t || !shaped(m, t, full, n, 1, 1)) return;
    if (t->type != PI__I32 && t->type != PI__I64) pi__model_refuse(m, PI_EFORMAT, "tensor %s must be I32 or I64", full);
    add_want(m, (pi__declared) {.tensor = t, .order = dst, .below = below});
}

void pi__declare_order(pi__model *m, int32_t *dst, int64_t n, const char *name, int layer)
{
    char full[96];
    const pi__tensor *t = need(m, name, layer, full);
    if (!t) return;
    if (t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3] != n || (t->type != PI__I32 && t->type != PI__I64))
        pi__model_refuse(m, PI_EFORMAT, "tensor %s must be %lld whole numbers, I32 or I64", full, (long long) n);
    add_want(m, (pi__declared) {.tensor = t, .order = dst});
}

/* Returns the placement of values that ops on any backend read. */
static int32_t everywhere(const pi__model *m) { return m->be->at[PI__AT_CPU] ? PI__AT_BOTH : PI__AT_DEVICE; }

void pi__declare_numbers(pi__model *m, int32_t **numbers, int64_t n_rows, int64_t n, int32_t below, const char *name,
                      int layer)
{
    char full[96];
    *numbers = NULL;
    const pi__tensor *t = need(m, name, layer, full);
    if (!t || !shaped(m, t, full, n, n_rows, 1)) return;
    if (t->type != PI__I32 && t->type != PI__I64) pi__model_refuse(m, PI_EFORMAT, "tensor %s must be I32 or I64", full);
    const size_t size = (size_t) (n * n_rows) * sizeof **numbers;
    add_want(
        m, (pi__declared) {.tensor = t, .numbers = numbers, .below = below, .size = size, .placement = everywhere(m)});
}

void pi__need_experts(pi__model *m, int32_t n_expert, int32_t n_used, int64_t n_in, int64_t n_ff)
{
    pi__limits *l = &m->lim;
    at_least32(&l->max_expert, n_expert);
    at_least32(&l->max_used, n_used);
    if (n_in > l->max_in_exp) l->max_in_exp = n_in;
    if (2 * n_ff > l->max_ff_exp) l->max_ff_exp = 2 * n_ff;
}

/* Declares n_mat * n_rows rows of n values for `want.vec` or `want.host`. */
static void want_stacked(pi__model *m, pi__declared want, bool optional, int64_t n, int64_t n_rows, int64_t n_mat,
                         const char *name, int layer)
{
    char full[96];
    if (want.vec) *want.vec = NULL;
    if (optional && !pi__has_tensor(m, name, layer)) return;
    const pi__tensor *t = want.tensor = need(m, name, layer, full);
    if (!t) return;
    /* tables may have any type; vectors must be floats */
    const bool any = n_rows > 1 && pi__type_info_of(t->type)->readable;
    const bool joined = want.n_part || want.first;
    const bool apart = joined && t->ne[0] == n && t->ne[1] == 1 && t->ne[2] == n_rows && t->ne[3] == 1;
    if (n_mat == 1 && !apart && (t->ne[0] != n || t->ne[1] != n_rows || t->ne[2] != 1 || t->ne[3] != 1))
        pi__model_refuse(m, PI_EFORMAT, "tensor %s has shape [%lld, %lld], expected [%lld, %lld]", full,
                         (long long) t->ne[0], (long long) t->ne[1], (long long) n, (long long) n_rows);
    else if ((apart || shaped(m, t, full, n, n_rows, n_mat)) && !any && !pi__type_is_float(t->type))
        pi__model_refuse(m, PI_EFORMAT, "tensor %s must be F32, F16 or BF16", full);
    want.size = want.vec ? (size_t) (n * n_rows * n_mat * (want.n_part ? want.n_part : 1)) * sizeof(float) : 0;
    want.placement = everywhere(m);
    add_want(m, want);
}

static void want_values(pi__model *m, pi__declared want, bool optional, int64_t n, int64_t n_rows, const char *name,
                        int layer)
{
    want_stacked(m, want, optional, n, n_rows, 1, name, layer);
}

void pi__declare_vec(pi__model *m, float **vec, int64_t n, const char *name, int layer)
{
    want_values(m, (pi__declared) {.vec = vec, .factor = 1.0f}, false, n, 1, name, layer);
}

void pi__declare_vec_or_not(pi__model *m, float **vec, int64_t n, const char *name, int layer)
{
    want_values(m, (pi__declared) {.vec = vec, .factor = 1.0f}, true, n, 1, name, layer);
}

void pi__declare_vec_times(pi__model *m, float **vec, int64_t n, float factor, const char *name, int layer)
{
    want_values(m, (pi__declared) {.vec = vec, .factor = factor}, false, n, 1, name, layer);
}

void pi__declare_vec_rows(pi__model *m, float **vec, int64_t n, const int32_t *row, const char *name, int layer)
{
    want_values(m, (pi__declared) {.vec = vec, .factor = 1.0f, .row = row}, false, n, 1, name, layer);
}

static void want_gathered(pi__model *m, pi__declared want, int64_t n_file, int64_t n_file_rows, const char *name,
                          int layer)
{
    char full[96];
    *want.vec = NULL;
    const pi__tensor *t = want.tensor = need(m, name, layer, full);
    if (!t || !shaped(m, t, full, n_file, n_file_rows, 1)) return;
    if (!pi__type_is_float(t->type)) pi__model_refuse(m, PI_EFORMAT, "tensor %s must be F32, F16 or BF16", full);
    want.size = (size_t) want.n_row * sizeof(float);
    want.placement = everywhere(m);
    add_want(m, want);
}

void pi__declare_vec_gathered(pi__model *m, float **vec, int64_t n, const int32_t *row, int64_t n_file, float factor,
                              const char *name, int layer)
{
    *vec = NULL;
    if (!pi__has_tensor(m, name, layer)) return;
    want_gathered(m, (pi__declared) {.vec = vec, .factor = factor, .row = row, .n_row = n}, n_file, 1, name, layer);
}

void pi__declare_table_gathered(pi__model *m, float **vec, int64_t n, const int32_t *at, int64_t n_file,
                                int64_t n_file_rows, const char *name, int layer)
{
    want_gathered(m, (pi__declared) {.vec = vec, .factor = 1.0f, .row = at, .n_row = n}, n_file, n_file_rows, name,
                  layer);
}

void pi__declare_values(pi__model *m, float **vec, int64_t n, const float *values)
{
    *vec = NULL;
    add_want(m, (pi__declared) {.vec = vec, .values = values, .size = (size_t) n * sizeof(float),
                                .placement = everywhere(m)});
}

void pi__declare_ones(pi__model *m, float **vec, int32_t n)
{
    float *ones = pi__model_calloc(m, (size_t) n, sizeof *ones, "the weights of a norm");
    for (int32_t i = 0; ones && i < n; i++) ones[i] = 1;
    pi__declare_values(m, vec, n, ones);
}

void pi__declare_table(pi__model *m, float **vec, int64_t n_rows, int64_t n, const char *name, int layer)
{
    want_values(m, (pi__declared) {.vec = vec, .factor = 1.0f}, false, n, n_rows, name, layer);
}

void pi__declare_table_at(pi__model *m, float **vec, int64_t n_rows, int64_t n, const int32_t *at, const char *name,
                       int layer)
{
    want_values(m, (pi__declared) {.vec = vec, .factor = 1.0f, .row = at}, false, n, n_rows, name, layer);
}

void pi__declare_joined(pi__model *m, float **vec, int32_t n_part, int64_t n_rows, int64_t n, const char *const *name,
                        int layer)
{
    size_t first = 0;
    for (int32_t i = 0; i < n_part; i++) {
        pi__declared want = {.vec = i ? NULL : vec, .factor = 1.0f, .first = first};
        want.n_part = i ? 0 : n_part;
        want.part = (size_t) (i * n_rows * n) * sizeof(float);
        want_values(m, want, false, n, n_rows, name[i], layer);
        if (!i) first = m->n_want;
    }
}

void pi__declare_tables(pi__model *m, float **vec, int64_t n_mat, int64_t n_rows, int64_t n, const char *name,
                        int layer)
{
    want_stacked(m, (pi__declared) {.vec = vec, .factor = 1.0f}, false, n, n_rows, n_mat, name, layer);
}

void pi__declare_host(pi__model *m, float *dst, int64_t n, const char *name, int layer)
{
    want_values(m, (pi__declared) {.host = dst, .factor = 1.0f}, false, n, 1, name, layer);
}

void pi__declare_host_table(pi__model *m, float *dst, int64_t n_rows, int64_t n, const char *name, int layer)
{
    want_values(m, (pi__declared) {.host = dst, .factor = 1.0f}, false, n, n_rows, name, layer);
}

void pi__declare_host_or_not(pi__model *m, float *dst, int64_t n, const char *name, int layer)
{
    want_values(m, (pi__declared) {.host = dst, .factor = 1.0f}, true, n, 1, name, layer);
}

static bool is_wanted(const pi__model *m, const pi__tensor *t)
{
    for (size_t i = 0; i < m->n_want; i++)
        if (m->want[i].tensor == t) return true;
    return false;
}

/* True if the tensor belongs to a layer that is not loaded. */
static bool is_left_out(const pi__model *m, const pi__tensor *t)
{
    return pi__gguf_layer(t->cname, NULL) >= m->n_trunk;
}

void pi__refuse_others(pi__model *m, const char *prefix, const char *except)
{
    for (size_t i = 0; i < pi__gguf_n_tensors(m->g) && pi__model_ok(m); i++) {
        const pi__tensor *t = pi__gguf_tensor_at(m->g, i);
        const bool ignored = except && !strncmp(t->cname, except, strlen(except));
        if (!strncmp(t->cname, prefix, strlen(prefix)) && !ignored && !is_wanted(m, t))
            pi__model_refuse(m, PI_EUNSUPPORTED, "tensor %.96s: %s models with this tensor are not supported", t->cname,
                             m->arch->name);
    }
}

void pi__refuse_unwanted(pi__model *m, const char *suffix)
{
    const size_t tail = strlen(suffix);
    for (size_t i = 0; i < pi__gguf_n_tensors(m->g) && pi__model_ok(m); i++) {
        const pi__tensor *t = pi__gguf_tensor_at(m->g, i);
        const size_t n = strlen(t->cname);
        if (n >= tail && !strcmp(t->cname + n - tail, suffix) && !is_wanted(m, t) && !is_left_out(m, t))
            pi__model_refuse(m, PI_EUNSUPPORTED, "tensor %.96s: %s models with this tensor are not supported",
                             t->cname,
                             m->arch->name);
    }
}

/* ---------------------------------------------------------------------------------------------- caches and states */

/* Returns the index of the owner's cache group with the properties of `like`, which is created if needed; -1 = too many
 * groups. Counts one more layer in it. */
static int32_t group_of(pi__model *m, pi__model *owner, const pi__row_group *like, bool recurrent)
{
    int32_t g = 0;
    for (; g < owner->n_groups; g++) {
        const bool same = owner->group[g].window == like->window && owner->group[g].keep == like->keep &&
                          owner->group[g].block == like->block && owner->group[g].draft == like->draft;
        if (owner->group[g].recurrent == recurrent && (recurrent || same)) break;
    }
    if (g == PI__MAX_GROUPS) {
        pi__model_refuse(m, PI_EUNSUPPORTED, "more than %d kinds of cache", PI__MAX_GROUPS);
        return -1;
    }
    if (g == owner->n_groups) {
        owner->n_groups++;
        owner->group[g].name = like->name;
        owner->group[g].recurrent = recurrent;
        owner->group[g].window = like->window;
        owner->group[g].keep = like->keep;
        owner->group[g].block = like->block;
        owner->group[g].draft = like->draft;
    }
    owner->group[g].n_layers++;
    return g;
}

static int32_t add_cache(pi__model *m, pi__model *owner, int32_t layer, const pi__row_group *like, pi__kv_layer kv)
{
    if (!pi__model_ok(m)) return 0;
    kv.group = group_of(m, owner, like, false);
    kv.layer = layer;
    if (kv.group < 0) return 0;
    kv.placement = owner->placement ? pi__placement_of_cache(owner->placement, layer) : pi__default_placement(m->be);
    if (!pi__grow(&owner->kv, &owner->cap_kv, (size_t) owner->n_kv + 1, sizeof *owner->kv)) {
        pi__fail_mem(&m->error, "the layer list");
        return 0;
    }
    owner->kv[owner->n_kv] = kv;
    return owner->n_kv++;
}

int32_t pi__declare_kv(pi__model *m, pi__model *owner, int32_t layer, int32_t window, int32_t n_head_kv,
                       int32_t head_dim)
{
    const bool draft = owner != m || layer >= m->n_trunk;
    const char *name = draft ? window ? "draft window" : "draft" : window ? "window" : "full";
    const pi__row_group group = {.name = name, .window = window, .draft = draft};
    return add_cache(m, owner, layer, &group, (pi__kv_layer) {.n_head_kv = n_head_kv, .head_dim = head_dim});
}

int32_t pi__declare_rows(pi__model *m, pi__model *owner, int32_t layer, const pi__row_group *group, int32_t ratio,
                         int32_t n, bool f32)
{
    return add_cache(m, owner, layer, group,
                     (pi__kv_layer) {.n_head_kv = 1, .head_dim = n, .ratio = ratio, .f32 = f32});
}

int32_t pi__declare_state(pi__model *m, int32_t layer, const pi__state_layer *shape)
{
    if (!pi__model_ok(m) || group_of(m, m, &(pi__row_group) {.name = "recurrent"}, true) < 0) return 0;
    if (!pi__grow(&m->state, &m->cap_state, (size_t) m->n_state + 1, sizeof *m->state)) {
        pi__fail_mem(&m->error, "the layer list");
        return 0;
    }
    m->state[m->n_state] = *shape;
    m->state[m->n_state].n_draft = m->n_draft;
    m->state[m->n_state].placement = m->placement ? pi__placement_of_cache(m->placement, layer)
                                                  : pi__default_placement(m->be);
    pi__state_layer *most = &m->lim.state;
    at_least32(&most->n_k, shape->n_k);
    at_least32(&most->n_v, shape->n_v);
    at_least32(&most->dim, shape->dim);
    at_least32(&most->dim_v, shape->dim_v);
    at_least32(&most->ssd, shape->ssd);
    at_least32(&most->kda, shape->kda);
    at_least32(&most->n_conv, shape->n_conv);
    return m->n_state++;
}
