/* Reading adapters and bringing them to the device (see adapter.h). */
#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "formats/formats.h"
#include "model/declare.h"

enum { LANES = 16, ALIGN = 64, TILE = PI__LORA_TILE };

/* ------------------------------------------------------------------------------------------------------------- targets */

void pi__adapter_target(pi__model *m, pi__weight *w, const char *full, const int32_t *row)
{
    int layer;
    if (!m->arch->adapters || m->target || !pi__model_ok(m) || w->n_mat != 1 || w->routed) return;
    if (sscanf(full, "blk.%9d.", &layer) != 1 || layer >= m->n_trunk) return;
    if (!pi__grow(&m->lora_target, &m->cap_lora_target, (size_t) m->n_lora_target + 1, sizeof *m->lora_target)) {
        pi__fail_mem(&m->error, "the matrices that adapters can change");
        return;
    }
    pi__lora_target *t = &m->lora_target[m->n_lora_target++];
    *t = (pi__lora_target) {.n_in = w->n_in, .n_out = w->n_out, .row = row};
    snprintf(t->name, sizeof t->name, "%s", full);
    w->target = m->n_lora_target;
}

/* ------------------------------------------------------------------------------------------------------------- reading */

/* The tensors of a target in the file. */
typedef struct found {
    const pi__tensor *a, *b;
} found;

typedef struct reader {
    const pi__model *m;
    const char *path;
    pi__gguf *g;
    float alpha;
    found *of;             /* [n_lora_target] */
    float *row;            /* a row of A or B */
    pi__adapter *to;
} reader;

/* What a text of the metadata has to be. */
static int need_text(const reader *r, const char *key, const char *want, const char *what, pi_error *err)
{
    pi__str s;
    const int rc = pi__gguf_get_str(r->g, key, &s, err);
    if (rc) return rc;
    if (s.p && s.n == strlen(want) && !memcmp(s.p, want, s.n)) return PI_OK;
    return pi__fail(err, strcmp(key, "general.architecture") ? PI_EFORMAT : PI_EINVAL, "adapter %s: %s is \"%.*s\", expected \"%s\": %s",
                    r->path, key, (int) (s.n < 40 ? s.n : 40), s.p ? s.p : "", want, what);
}

static int read_head(reader *r, pi_error *err)
{
    int rc = need_text(r, "general.type", "adapter", "this file is no adapter", err);
    if (!rc) rc = need_text(r, "adapter.type", "lora", "only LoRA adapters can be used", err);
    if (!rc) rc = need_text(r, "general.architecture", r->m->arch->name, "it was made for another model", err);
    if (!rc) rc = pi__gguf_get_f32(r->g, "adapter.lora.alpha", &r->alpha, 0, err);
    if (rc) return rc;
    if (!isfinite(r->alpha)) return pi__fail(err, PI_EFORMAT, "adapter %s: adapter.lora.alpha is no number", r->path);
    if (pi__gguf_find(r->g, "adapter.alora.invocation_tokens"))
        return pi__fail(err, PI_EUNSUPPORTED, "adapter %s begins at a text in the prompt (aLoRA), which is not supported", r->path);
    return PI_OK;
}

static int32_t target_of(const pi__model *m, const char *name, size_t n)
{
    for (int32_t i = 0; i < m->n_lora_target; i++)
        if (strlen(m->lora_target[i].name) == n && !memcmp(m->lora_target[i].name, name, n)) return i;
    return -1;
}

/* A tensor that is of no target. */
static int refuse_tensor(const reader *r, const pi__tensor *t, size_t n, pi_error *err)
{
    const char *why = "the model has no such matrix: it was made for another model";
    int code = PI_EINVAL;
    if (!n) why = "an adapter has tensors NAME.lora_a and NAME.lora_b alone", code = PI_EFORMAT;
    else if (strstr(t->cname, "_exps."))
        why = "experts' matrices cannot have one here; train it without them", code = PI_EUNSUPPORTED;
    else if (!strncmp(t->cname, "token_embd", 10) || !strncmp(t->cname, "output.", 7))
        why = "embedding and output cannot have one here; train it without them", code = PI_EUNSUPPORTED;
    return pi__fail(err, code, "adapter %s: tensor %.80s: %s", r->path, t->cname, why);
}

/* Which targets the tensors are of. */
static int find_pairs(reader *r, pi_error *err)
{
    for (size_t i = 0; i < pi__gguf_n_tensors(r->g); i++) {
        const pi__tensor *t = pi__gguf_tensor_at(r->g, i);
        const size_t all = strlen(t->cname), tail = strlen(".lora_a");
        const bool a = all > tail && !strcmp(t->cname + all - tail, ".lora_a"), b = all > tail && !strcmp(t->cname + all - tail, ".lora_b");
        const size_t n = a || b ? all - tail : 0;
        const int32_t target = n ? target_of(r->m, t->cname, n) : -1;
        if (target < 0) return refuse_tensor(r, t, n, err);
        if (a) r->of[target].a = t;
        else r->of[target].b = t;
    }
    return PI_OK;
}

static int check_pair(const reader *r, int32_t i, pi_error *err)
{
    const pi__lora_target *t = &r->m->lora_target[i];
    const pi__tensor *a = r->of[i].a, *b = r->of[i].b;
    if (!a || !b) return pi__fail(err, PI_EFORMAT, "adapter %s: tensor %s.lora_%c is missing", r->path, t->name, a ? 'b' : 'a');
    if (a->ne[0] != t->n_in || b->ne[1] != t->n_out || a->ne[2] != 1 || a->ne[3] != 1 || b->ne[2] != 1 || b->ne[3] != 1)
        return pi__fail(err, PI_EINVAL, "adapter %s: %s is of a matrix of %lld columns and %lld rows, the model's has %lld and "
                        "%lld: it was made for another model", r->path, t->name, (long long) a->ne[0], (long long) b->ne[1],
                        (long long) t->n_in, (long long) t->n_out);
    if (a->ne[1] != b->ne[0])
        return pi__fail(err, PI_EFORMAT, "adapter %s: %s: lora_a is of rank %lld, lora_b of %lld", r->path, t->name,
                        (long long) a->ne[1], (long long) b->ne[0]);
    if (a->ne[1] > PI__MAX_LORA_RANK)
        return pi__fail(err, PI_EUNSUPPORTED, "adapter %s: %s is of rank %lld; at most %d are supported", r->path, t->name,
                        (long long) a->ne[1], PI__MAX_LORA_RANK);
    for (int k = 0; k < 2; k++) {
        const pi__tensor *of = k ? b : a;
        const pi__type_info *info = pi__type_info_of(of->type);
        if (!info || !info->readable || of->ne[0] % info->blck_size)
            return pi__fail(err, PI_EUNSUPPORTED, "adapter %s: tensor %.80s is of type %s, which cannot be read; convert it to f16",
                            r->path, of->cname, info && info->name ? info->name : "?");
    }
    return PI_OK;
}

static int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }
static int64_t in_tiles(int64_t n) { return (n + TILE - 1) / TILE * TILE; }
static size_t value_size(int32_t type) { return type == PI__F32 ? sizeof(float) : sizeof(uint16_t); }
static size_t aligned(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

/* Bytes of a matrix of rank lines. */
static size_t lines(const pi__lora_pair *p, int64_t ld) { return aligned((size_t) p->rank * (size_t) ld * value_size(p->type)); }

static pi__lora_pair *pairs_of(const reader *r) { return (pi__lora_pair *) (void *) r->to->image; }

/* Sizes of all that the file has, and the image. */
static int lay_out(reader *r, pi_error *err)
{
    pi__adapter *to = r->to;
    const int32_t n = r->m->n_lora_target;
    to->n_targets = n;
    to->rank = pi__calloc((size_t) n + 1, sizeof *to->rank);
    if (to->rank) to->rank[0] = n;
    to->size = aligned((size_t) (n + 1) * sizeof(pi__lora_pair));
    for (int32_t i = 0; i < n && to->rank; i++) {
        if (!r->of[i].a && !r->of[i].b) continue;
        const int rc = check_pair(r, i, err);
        if (rc) return rc;
        to->rank[i + 1] = (int32_t) r->of[i].a->ne[1];
        to->max_rank = to->rank[i + 1] > to->max_rank ? to->rank[i + 1] : to->max_rank;
        to->n_pairs++;
        to->size += 2 * ALIGN + (size_t) to->rank[i + 1] * sizeof(float) * (size_t) (padded(r->m->lora_target[i].n_in) +
                                                                                    in_tiles(r->m->lora_target[i].n_out));
    }
    if (to->rank && !to->n_pairs) return pi__fail(err, PI_EFORMAT, "adapter %s changes no matrix of the model", r->path);
    to->image = to->rank ? pi__map(to->size) : NULL;
    r->row = pi__calloc((size_t) (r->m->lim.max_n_in > PI__MAX_LORA_RANK ? r->m->lim.max_n_in : PI__MAX_LORA_RANK), sizeof *r->row);
    return to->image && r->row ? PI_OK : pi__fail_mem(err, "an adapter");
}

static void put_value(int32_t type, char *to, size_t i, float v)
{
    if (type == PI__F32) ((float *) (void *) to)[i] = v;
    else ((uint16_t *) (void *) to)[i] = type == PI__F16 ? pi__f32_to_f16(v) : pi__f32_to_bf16(v);
}

/* Row i of a tensor in floats. */
static int read_row(const reader *r, const pi__tensor *t, int64_t i, pi_error *err)
{
    const size_t row = pi__row_size(pi__type_info_of(t->type), t->ne[0]);
    pi__dequantize_row(t->type, (const char *) pi__gguf_tensor_data(r->g, t) + (size_t) i * row, r->row, t->ne[0]);
    for (int64_t k = 0; k < t->ne[0]; k++)
        if (!isfinite(r->row[k]))
            return pi__fail(err, PI_EFORMAT, "adapter %s: tensor %.80s: row %lld has a value that is no finite number: the file is "
                            "damaged", r->path, t->cname, (long long) i);
    return PI_OK;
}

/* A as it is, B by columns in tiles of rows; addresses are offsets in the image. */
static int pack_pair(const reader *r, int32_t i, size_t *at, pi_error *err)
{
    const pi__lora_target *t = &r->m->lora_target[i];
    const pi__tensor *a = r->of[i].a, *b = r->of[i].b;
    const bool half = a->type == b->type && (a->type == PI__F16 || a->type == PI__BF16);
    pi__lora_pair *p = &pairs_of(r)[i + 1];
    *p = (pi__lora_pair) {.lda = padded(t->n_in), .ldb = in_tiles(t->n_out), .rank = r->to->rank[i + 1],
                          .type = half ? a->type : PI__F32};
    p->factor = r->alpha != 0 ? r->alpha / (float) p->rank : 1.0f;
    p->a = (const void *) (uintptr_t) *at;
    p->b = (const void *) (uintptr_t) (*at + lines(p, p->lda));
    char *to = r->to->image + *at, *columns = to + lines(p, p->lda);
    *at += lines(p, p->lda) + lines(p, p->ldb);
    int rc = PI_OK;
    for (int64_t k = 0; k < p->rank && !rc; k++) {
        rc = read_row(r, a, k, err);
        for (int64_t c = 0; c < t->n_in && !rc; c++) put_value(p->type, to, (size_t) (k * p->lda + c), r->row[c]);
    }
    for (int64_t o = 0; o < t->n_out && !rc; o++) {
        rc = read_row(r, b, t->row ? t->row[o] : o, err);
        for (int64_t k = 0; k < p->rank && !rc; k++)
            put_value(p->type, columns, (size_t) ((o / TILE * p->rank + k) * TILE + o % TILE), r->row[k]);
    }
    return rc;
}

static int read_all(reader *r, pi_error *err)
{
    int rc = read_head(r, err);
    r->of = pi__calloc((size_t) r->m->n_lora_target, sizeof *r->of);
    if (!rc && !r->of) rc = pi__fail_mem(err, "an adapter");
    if (!rc) rc = find_pairs(r, err);
    if (!rc) rc = lay_out(r, err);
    size_t at = aligned((size_t) (r->m->n_lora_target + 1) * sizeof(pi__lora_pair));
    for (int32_t i = 0; i < r->m->n_lora_target && !rc; i++)
        if (r->to->rank[i + 1]) rc = pack_pair(r, i, &at, err);
    if (!rc) r->to->id = pi__hash(r->to->image, at);
    return rc;
}

/* The model has a way for them. */
static int check_model(const pi__model *m, pi_error *err)
{
    const pi__backend *be = m->be;
    if (!m->n_lora_target)
        return pi__fail(err, PI_EUNSUPPORTED, "adapters of %s models are not supported", m->arch->name);
    if (be->n_ranks > 1 || be->n_stages || be->at[PI__AT_CPU])
        return pi__fail(err, PI_EUNSUPPORTED, "adapters are not supported where a model is divided among several devices, or a device "
                        "and the CPU: use one device that holds all of it, or the CPU");
    return PI_OK;
}

int pi__adapter_read(pi__adapter **out, const pi__model *m, const char *path, pi_error *err)
{
    *out = NULL;
    reader r = {.m = m, .path = path};
    int rc = check_model(m, err);
    if (!rc) rc = pi__gguf_open(&r.g, path, PI__LOAD_READ, err);
    if (rc) return rc;
    r.to = pi__calloc(1, sizeof *r.to);
    rc = r.to ? read_all(&r, err) : pi__fail_mem(err, "an adapter");
    pi__free(r.of);
    pi__free(r.row);
    pi__gguf_close(r.g);
    if (rc) pi__adapter_free(r.to, NULL);
    else *out = r.to;
    return rc;
}

/* ------------------------------------------------------------------------------------------------------------- placing */

int pi__adapter_place(pi__adapter *a, pi__backend *be, pi_error *err)
{
    char *to = be->dev->alloc(be, a->size);
    if (!to) return pi__fail(err, PI_ENOMEM, "no memory for an adapter of %zu MiB on %s", a->size >> 20, be->dev->describe(be));
    pi__lora_pair *p = (pi__lora_pair *) (void *) a->image;
    for (int32_t i = 1; i <= a->n_targets; i++) {
        if (!p[i].rank) continue;
        p[i].a = to + (uintptr_t) p[i].a;
        p[i].b = to + (uintptr_t) p[i].b;
    }
    a->device = (pi__lora_pair *) (void *) to;
    be->dev->upload(be, to, a->image, a->size);
    const int rc = be->dev->finish(be, err);
    pi__unmap(a->image, a->size);
    a->image = NULL;
    return rc;
}

void pi__adapter_free(pi__adapter *a, pi__backend *be)
{
    if (!a) return;
    if (a->device) be->dev->free(be, a->device, a->size);
    if (a->image) pi__unmap(a->image, a->size);
    pi__free(a->rank);
    pi__free(a);
}
