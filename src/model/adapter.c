/* Reads adapters and uploads them to the device (see adapter.h). */
#include "model/adapter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "formats/formats.h"
#include "model/declare.h"

enum { LANES = 16, ALIGN = 64, TILE = PI__LORA_TILE };

/* -------------------------------------------------------------------------------------------------------- targets */

static const char embedding[] = "token_embd.weight", output[] = "output.weight";

/* Appends a target to m->lora_target and returns its number. Returns 0 for drafters, models without adapters and on
 * errors. */
static int32_t add_target(pi__model *m, int kind, const pi__weight *w, const char *full, const int32_t *row)
{
    if (!m->arch->adapters || m->target || !pi__model_ok(m)) return 0;
    if (!pi__grow(&m->lora_target, &m->cap_lora_target, (size_t) m->n_lora_target + 1, sizeof *m->lora_target)) {
        pi__fail_mem(&m->error, "the matrices of adapters");
        return 0;
    }
    pi__lora_target *t = &m->lora_target[m->n_lora_target++];
    *t = (pi__lora_target) {.kind = kind, .n_in = w->n_in, .n_out = w->n_out, .n_mat = w->n_mat, .row = row};
    snprintf(t->name, sizeof t->name, "%s", full);
    return m->n_lora_target;
}

void pi__adapter_target(pi__model *m, pi__weight *w, const char *full, const int32_t *row, int64_t n_rows)
{
    const int32_t layer = pi__gguf_layer(full, NULL);
    const bool of_layer = layer >= 0 && layer < m->n_trunk;
    if (!strcmp(full, embedding)) m->lora_embd = add_target(m, PI__LORA_EMBEDDING, w, full, row);
    else if ((of_layer && (w->n_mat == 1 || w->routed)) || !strcmp(full, output))
        w->target = add_target(m, PI__LORA_MATRIX, w, full, row);
    if (w->target && n_rows) m->lora_target[w->target - 1].n_rows = n_rows;
}

void pi__adapter_heads(pi__model *m, pi__weight *w, int layer, const char *name, const char *both,
                       const pi__lora_target *part)
{
    char full[sizeof part->name];
    if (layer >= m->n_trunk) return;
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    w->target = add_target(m, PI__LORA_HEADS, w, full, NULL);
    if (!w->target) return;
    pi__lora_target *t = &m->lora_target[w->target - 1];
    snprintf(t->both, sizeof t->both, "blk.%d.%s", layer, both);
    t->each = part->each, t->first = part->first, t->turned = part->turned;
}

void pi__adapter_tied(pi__model *m, pi__weight *embd)
{
    embd->target = add_target(m, PI__LORA_TIED, embd, embedding, NULL);
}

bool pi__adapters_of_logits(const pi__model *m, const pi__lora_rows *rows)
{
    for (int32_t i = 0; i < m->n_lora_target; i++) {
        const pi__lora_target *t = &m->lora_target[i];
        if (t->kind != PI__LORA_TIED && strcmp(t->name, output) != 0) continue;
        for (int32_t r = 0; r < rows->n_runs; r++)
            if (rows->run[r].rank[i + 1]) return true;
    }
    return false;
}

/* -------------------------------------------------------------------------------------------------------- reading */

/* The adapter file's tensors for a target; NULL = not found. */
typedef struct found {
    const pi__tensor *a, *b;
    bool both; /* true = they are named after the target's `both` tensor */
} found;

typedef struct reader {
    const pi__model *m;
    const char *path;
    pi__gguf *g;
    float alpha;
    found *of;             /* [n_lora_target] tensors of each target */
    float *row;            /* buffer for a row of A or B */
    pi__adapter *to;
} reader;

/* Checks that the string at a metadata key equals `want`. what: the meaning of the string, for the error. */
static int need_text(const reader *r, const char *key, const char *want, const char *what, pi_error *err)
{
    pi__str s;
    const int rc = pi__gguf_get_str(r->g, key, &s, err);
    if (rc) return rc;
    if (s.p && s.n == strlen(want) && !memcmp(s.p, want, s.n)) return PI_OK;
    return pi__fail(err, strcmp(key, "general.architecture") ? PI_EFORMAT : PI_EINVAL,
                    "adapter %s: %s is \"%.*s\", expected \"%s\": %s", r->path, key, (int) (s.n < 40 ? s.n : 40),
                    s.p ? s.p : "", want, what);
}

static int read_head(reader *r, pi_error *err)
{
    int rc = need_text(r, "general.type", "adapter", "this file is not an adapter", err);
    if (!rc) rc = need_text(r, "adapter.type", "lora", "only LoRA adapters are supported", err);
    if (!rc) rc = need_text(r, "general.architecture", r->m->arch->name, "it was made for another model", err);
    if (!rc) rc = pi__gguf_get_f32(r->g, "adapter.lora.alpha", &r->alpha, 0, err);
    if (rc) return rc;
    if (!isfinite(r->alpha)) return pi__fail(err, PI_EFORMAT, "adapter %s: adapter.lora.alpha is not a number",
                                             r->path);
    if (pi__gguf_find(r->g, "adapter.alora.invocation_tokens"))
        return pi__fail(err, PI_EUNSUPPORTED, "adapter %s: activation by a text in the prompt (aLoRA) is not supported",
                        r->path);
    return PI_OK;
}

static bool is_name(const char *is, const char *name, size_t n) { return strlen(is) == n && !memcmp(is, name, n); }

/* Reports a tensor that belongs to no target as an error. n: bytes of its name before .lora_a or .lora_b. */
static int refuse_tensor(const reader *r, const pi__tensor *t, size_t n, pi_error *err)
{
    const char *why = "the model has no matrix of this name: the adapter was made for another model";
    int code = PI_EINVAL;
    if (!n) why = "its name does not end in .lora_a or .lora_b", code = PI_EFORMAT;
    else if (!strncmp(t->cname, output, sizeof output - 1))
        why = "the model's output matrix is token_embd.weight: the adapter must name that tensor";
    return pi__fail(err, code, "adapter %s: tensor %.80s: %s", r->path, t->cname, why);
}

/* If the tensor belongs to target k, stores it in r->of[k] and sets *known; a second tensor of the same kind is an
 * error. n: bytes of its name before .lora_a or .lora_b. */
static int find_target(reader *r, const pi__tensor *t, size_t n, int32_t k, bool *known, pi_error *err)
{
    const pi__lora_target *of = &r->m->lora_target[k];
    found *f = &r->of[k];
    const bool both = is_name(of->both, t->cname, n);
    if (!both && !is_name(of->name, t->cname, n)) return PI_OK;
    if ((f->a || f->b) && f->both != both)
        return pi__fail(err, PI_EFORMAT, "adapter %s changes %s twice: by its name and as part of %s",
                        r->path, of->name, of->both);
    f->both = both;
    if (t->cname[n + strlen(".lora_")] == 'a') f->a = t;
    else f->b = t;
    *known = true;
    return PI_OK;
}

/* True if the tensor's layer is left out (n-layer-exit). */
static bool is_left_out(const reader *r, const char *name)
{
    const int32_t layer = pi__gguf_layer(name, NULL);
    return r->m->n_exit && layer >= r->m->n_trunk && layer < r->m->n_layer;
}

/* Fills in r->of for all tensors of the file. */
static int find_pairs(reader *r, pi_error *err)
{
    for (size_t i = 0; i < pi__gguf_n_tensors(r->g); i++) {
        const pi__tensor *t = pi__gguf_tensor_at(r->g, i);
        const size_t all = strlen(t->cname), tail = strlen(".lora_a");
        const char *end = all > tail ? t->cname + all - tail : "";
        const size_t n = !strcmp(end, ".lora_a") || !strcmp(end, ".lora_b") ? all - tail : 0;
        bool known = n && is_left_out(r, t->cname);
        for (int32_t k = 0; k < r->m->n_lora_target && n; k++) {
            const int rc = find_target(r, t, n, k, &known, err);
            if (rc) return rc;
        }
        if (!known) return refuse_tensor(r, t, n, err);
    }
    return PI_OK;
}

static int64_t rank_of(const reader *r, int32_t i) { return r->of[i].b->ne[0]; }

/* Returns the name of the model's tensor that the pair of target i changes. */
static const char *name_of(const reader *r, int32_t i)
{
    return r->of[i].both ? r->m->lora_target[i].both : r->m->lora_target[i].name;
}

/* Sets `of` to the shape of that tensor: columns, rows, matrices. */
static void shape_of(const reader *r, int32_t i, int64_t of[3])
{
    const pi__lora_target *t = &r->m->lora_target[i];
    const bool both = r->of[i].both;
    of[0] = both && t->turned ? t->n_out : t->n_in;
    of[1] = both ? t->n_mat * t->each : t->n_rows ? t->n_rows : t->n_out;
    of[2] = both ? 1 : t->n_mat;
}

/* Checks that A and B of target i match that tensor's shape. */
static int check_shape(const reader *r, int32_t i, pi_error *err)
{
    const int kind = r->m->lora_target[i].kind;
    const pi__tensor *a = r->of[i].a, *b = r->of[i].b;
    const bool turned = kind == PI__LORA_EMBEDDING || kind == PI__LORA_TIED, one = kind == PI__LORA_HEADS;
    const int64_t n_in = turned ? b->ne[1] : a->ne[0], n_out = turned ? a->ne[1] : b->ne[1];
    const int64_t n_mat = a->ne[2] > b->ne[2] ? a->ne[2] : b->ne[2];
    int64_t want[3];
    shape_of(r, i, want);
    const bool stacked = (a->ne[2] == want[2] || (one && a->ne[2] == 1)) &&
                         (b->ne[2] == want[2] || (one && b->ne[2] == 1));
    if (n_in != want[0] || n_out != want[1] || !stacked || a->ne[3] != 1 || b->ne[3] != 1)
        return pi__fail(err, PI_EINVAL, "adapter %s: %s has %lld matrices of %lld columns and %lld rows, the model "
                        "%lld of %lld and %lld: it was made for another model",
                        r->path, name_of(r, i), (long long) n_mat, (long long) n_in,
                        (long long) n_out, (long long) want[2], (long long) want[0], (long long) want[1]);
    if (a->ne[!turned] != b->ne[0])
        return pi__fail(err, PI_EFORMAT, "adapter %s: %s: lora_a has rank %lld, lora_b %lld", r->path, name_of(r, i),
                        (long long) a->ne[!turned], (long long) b->ne[0]);
    return PI_OK;
}

static int check_pair(const reader *r, int32_t i, pi_error *err)
{
    const pi__tensor *a = r->of[i].a, *b = r->of[i].b;
    if (!a || !b)
        return pi__fail(err, PI_EFORMAT, "adapter %s: tensor %s.lora_%c is missing", r->path, name_of(r, i),
                        a ? 'b' : 'a');
    const int rc = check_shape(r, i, err);
    if (rc) return rc;
    if (rank_of(r, i) > PI__MAX_LORA_RANK)
        return pi__fail(err, PI_EUNSUPPORTED, "adapter %s: %s has rank %lld: at most %d is supported",
                        r->path, name_of(r, i),
                        (long long) rank_of(r, i), PI__MAX_LORA_RANK);
    for (int k = 0; k < 2; k++) {
        const pi__tensor *of = k ? b : a;
        const pi__type_info *info = pi__type_info_of(of->type);
        if (!info || !info->readable || of->ne[0] % info->blck_size)
            return pi__fail(err, PI_EUNSUPPORTED,
                            "adapter %s: tensor %.80s has type %s, which is not supported: convert it to f16",
                            r->path, of->cname, info && info->name ? info->name : "?");
    }
    return PI_OK;
}

static int64_t padded(int64_t n) { return (n + LANES - 1) / LANES * LANES; }
static int64_t in_tiles(int64_t n) { return (n + TILE - 1) / TILE * TILE; }
static size_t value_size(int32_t type) { return type == PI__F32 ? sizeof(float) : sizeof(uint16_t); }
static size_t aligned(size_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

/* Returns the aligned bytes of n_mat matrices with `rank` rows (A) or columns (B) of ld values. */
static size_t lines(const pi__lora_pair *p, int64_t ld, int64_t n_mat)
{
    return aligned((size_t) p->rank * (size_t) ld * (size_t) n_mat * value_size(p->type));
}

/* Returns the pair of target i; its offsets a and b are not set. */
static pi__lora_pair pair_of(const reader *r, int32_t i)
{
    const pi__lora_target *t = &r->m->lora_target[i];
    const int32_t a = r->of[i].a->type, b = r->of[i].b->type;
    const bool half = a == b && (a == PI__F16 || a == PI__BF16), embeds = t->kind == PI__LORA_EMBEDDING;
    pi__lora_pair p = {.lda = padded(embeds ? t->n_out : t->n_in), .ldb = in_tiles(embeds ? t->n_in : t->n_out),
                       .rank = (int32_t) rank_of(r, i), .type = half ? a : PI__F32};
    p.factor = r->alpha != 0 ? r->alpha / (float) p.rank : 1.0f;
    return p;
}

static pi__lora_pair *pairs_of(const reader *r) { return (pi__lora_pair *) (void *) r->to->image; }

enum { BEHIND = TILE * sizeof(float) /* bytes after the last columns that kernels may read */ };

/* Computes the sizes and offsets of all pairs, and allocates the image. */
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
        const pi__lora_pair p = pair_of(r, i);
        to->rank[i + 1] = p.rank;
        to->max_rank = p.rank > to->max_rank ? p.rank : to->max_rank;
        to->n_pairs += r->m->lora_target[i].kind != PI__LORA_TIED; /* LORA_TIED has the same pair as the embedding */
        to->size += lines(&p, p.lda, r->m->lora_target[i].n_mat) + lines(&p, p.ldb, r->m->lora_target[i].n_mat);
    }
    to->size += BEHIND;
    if (to->rank && !to->n_pairs)
        return pi__fail(err, PI_EFORMAT, "adapter %s changes no matrix of the model", r->path);
    to->image = to->rank ? pi__map(to->size) : NULL;
    r->row = pi__calloc((size_t) (r->m->lim.max_n_in > PI__MAX_LORA_RANK ? r->m->lim.max_n_in : PI__MAX_LORA_RANK),
                        sizeof *r->row);
    return to->image && r->row ? PI_OK : pi__fail_mem(err, "an adapter");
}

static void put_value(int32_t type, char *to, size_t i, float v)
{
    if (type == PI__F32) ((float *) (void *) to)[i] = v;
    else ((uint16_t *) (void *) to)[i] = type == PI__F16 ? pi__f32_to_f16(v) : pi__f32_to_bf16(v);
}

/* Reads row i of a tensor as floats into r->row. */
static int read_row(const reader *r, const pi__tensor *t, int64_t i, pi_error *err)
{
    const size_t row = pi__row_size(pi__type_info_of(t->type), t->ne[0]);
    pi__dequantize_row(t->type, (const char *) pi__gguf_tensor_data(r->g, t) + (size_t) i * row, r->row, t->ne[0]);
    for (int64_t k = 0; k < t->ne[0]; k++)
        if (!isfinite(r->row[k]))
            return pi__fail(err, PI_EFORMAT, "adapter %s: tensor %.80s: row %lld has a value that is not finite: "
                            "the file is damaged", r->path, t->cname, (long long) i);
    return PI_OK;
}

/* Writes n rows of t from `first` on to `to`, converted to `type`, as rows of ld values with zeros at their end. */
static int put_rows(const reader *r, const pi__tensor *t, int64_t first, int64_t n, int32_t type, int64_t ld, char *to,
                    pi_error *err)
{
    int rc = PI_OK;
    for (int64_t k = 0; k < n && !rc; k++) {
        rc = read_row(r, t, first + k, err);
        for (int64_t c = 0; c < t->ne[0] && !rc; c++) put_value(type, to, (size_t) (k * ld + c), r->row[c]);
    }
    return rc;
}

/* Writes n rows of t from `first` on as columns of a matrix with rows of ld values, converted to `type`. */
static int put_columns(const reader *r, const pi__tensor *t, int64_t first, int64_t n, int32_t type, int64_t ld,
                       char *to, pi_error *err)
{
    int rc = PI_OK;
    for (int64_t c = 0; c < n && !rc; c++) {
        rc = read_row(r, t, first + c, err);
        for (int64_t k = 0; k < t->ne[0] && !rc; k++) put_value(type, to, (size_t) (k * ld + c), r->row[k]);
    }
    return rc;
}

/* Returns the index of value k of column o in B's layout, tiles of columns. */
static size_t in_tile(int64_t rank, int64_t k, int64_t o) { return (size_t) ((o / TILE * rank + k) * TILE + o % TILE); }

/* Writes n rows of t from `first` on as columns in tiles, converted to `type`. row: see pi__lora_target. */
static int put_tiles(const reader *r, const pi__tensor *t, int64_t first, int64_t n, int32_t type, const int32_t *row,
                     char *to, pi_error *err)
{
    const int64_t rank = t->ne[0];
    int rc = PI_OK;
    for (int64_t o = 0; o < n && !rc; o++) {
        const bool zeros = row && row[o] < 0;
        if (!zeros) rc = read_row(r, t, first + (row ? row[o] : o), err);
        for (int64_t k = 0; k < rank && !rc; k++) put_value(type, to, in_tile(rank, k, o), zeros ? 0 : r->row[k]);
    }
    return rc;
}

/* Writes n rows of t, transposed, as columns in tiles: row k has value k of each column. */
static int put_in_tiles(const reader *r, const pi__tensor *t, int64_t n, int32_t type, char *to, pi_error *err)
{
    int rc = PI_OK;
    for (int64_t k = 0; k < n && !rc; k++) {
        rc = read_row(r, t, k, err);
        for (int64_t o = 0; o < t->ne[0] && !rc; o++) put_value(type, to, in_tile(n, k, o), r->row[o]);
    }
    return rc;
}

/* Writes head h's part of a pair that is named after the `both` tensor: A as rows and B as columns in tiles, or for a
 * transposed target B as rows and A as columns in tiles. */
static int put_head(const reader *r, int32_t i, const pi__lora_pair *p, int64_t h, char *rows, char *columns,
                    pi_error *err)
{
    const pi__lora_target *t = &r->m->lora_target[i];
    const pi__tensor *a = r->of[i].a, *b = r->of[i].b;
    const int64_t first = h * t->each + t->first;
    int rc = t->turned ? put_columns(r, b, first, t->n_in, p->type, p->lda, rows, err)
                       : put_rows(r, a, 0, p->rank, p->type, p->lda, rows, err);
    if (!rc) rc = t->turned ? put_in_tiles(r, a, p->rank, p->type, columns, err)
                            : put_tiles(r, b, first, t->n_out, p->type, NULL, columns, err);
    return rc;
}

/* Writes each matrix of the stack of target i: A as rows, B as columns in tiles. */
static int put_stack(const reader *r, int32_t i, const pi__lora_pair *p, pi_error *err)
{
    const pi__lora_target *t = &r->m->lora_target[i];
    const pi__tensor *a = r->of[i].a, *b = r->of[i].b;
    const size_t one = (size_t) p->rank * value_size(p->type);
    int rc = PI_OK;
    for (int64_t e = 0; e < t->n_mat && !rc; e++) {
        char *rows = r->to->image + p->a + (size_t) (e * p->lda) * one,
             *columns = r->to->image + p->b + (size_t) (e * p->ldb) * one;
        if (r->of[i].both) {
            rc = put_head(r, i, p, e, rows, columns, err);
            continue;
        }
        rc = put_rows(r, a, a->ne[2] > 1 ? e * p->rank : 0, p->rank, p->type, p->lda, rows, err);
        if (!rc) rc = put_tiles(r, b, b->ne[2] > 1 ? e * t->n_out : 0, t->n_out, p->type, t->row, columns, err);
    }
    return rc;
}

static int pack_pair(const reader *r, int32_t i, size_t *at, pi_error *err)
{
    const pi__lora_target *t = &r->m->lora_target[i];
    const pi__tensor *a = r->of[i].a, *b = r->of[i].b;
    pi__lora_pair *p = &pairs_of(r)[i + 1];
    *p = pair_of(r, i);
    p->a = *at;
    p->b = p->a + lines(p, p->lda, t->n_mat);
    *at = p->b + lines(p, p->ldb, t->n_mat);
    char *rows = r->to->image + p->a, *columns = r->to->image + p->b;
    if (t->kind == PI__LORA_MATRIX || t->kind == PI__LORA_HEADS) return put_stack(r, i, p, err);
    const bool embeds = t->kind == PI__LORA_EMBEDDING;
    const int rc = embeds ? put_rows(r, a, 0, t->n_out, p->type, p->rank, rows, err)
                          : put_columns(r, b, 0, t->n_in, p->type, p->lda, rows, err);
    return rc ? rc : embeds ? put_tiles(r, b, 0, t->n_in, p->type, NULL, columns, err)
                            : put_tiles(r, a, 0, t->n_out, p->type, NULL, columns, err);
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
    if (!rc) r->to->id = pi__hash(PI__HASH_ADAPTER, r->to->image, at);
    return rc;
}

/* Refuses models that have no adapter targets. */
static int check_model(const pi__model *m, pi_error *err)
{
    if (m->n_lora_target) return PI_OK;
    return pi__fail(err, PI_EUNSUPPORTED, "adapters of %s models are not supported", m->arch->name);
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

/* -------------------------------------------------------------------------------------------------------- placing */

int pi__adapter_place(pi__adapter *a, pi__backend *be, pi_error *err)
{
    char *to = be->dev->alloc(be, a->size);
    if (!to)
        return pi__fail(err, PI_ENOMEM, "no memory for an adapter of %zu MiB on %s", a->size >> 20,
                        be->dev->describe(be));
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
