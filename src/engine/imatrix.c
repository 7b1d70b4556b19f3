/* Importance matrices (see imatrix.h). */
#include "engine/imatrix.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/moe.h"
#include "base/alloc.h"
#include "base/error.h"
#include "formats/formats.h"
#include "gguf/gguf.h"

typedef struct sum { /* of one adapter target: a matrix or a stack */
    double *x2;      /* [n_mat, n_in] sums of squared inputs; NULL = not counted */
    uint64_t *n;     /* [n_mat] rows */
} sum;

struct pi__sums {
    pi__op_fns ops;        /* the backend's, with ops that count; first, so that be->ops is this struct */
    const pi__op_fns *real;
    const pi__model *m;
    char *path, *dataset;
    int32_t chunk;
    sum *of;               /* [m->n_lora_target] by target number - 1 */
    double *row;           /* [max n_in] sums of one op */
    float *in;             /* [max n_in] a row of inputs */
};

static float gelu_erf(float x) { return 0.5f * x * (1 + erff(0.7071067812f * x)); }

/* Writes a row of an op's input to v[n]: x after its norm or gate. */
static void input_row(const pi__lin_in *in, int64_t r, int64_t n, float *v)
{
    const float *x = in->x + r * in->ldx, *up = in->x2 ? in->x2 + r * in->ldx2 : NULL;
    double square = 0;
    if (in->kind == PI__IN_RMSNORM)
        for (int64_t i = 0; i < n; i++) square += (double) x[i] * (double) x[i];
    const float scale = (float) (1 / sqrt(square / (double) n + (double) in->eps));
    const float most = fabsf(in->limit);
    for (int64_t i = 0; i < n; i++) {
        float a = x[i], b = up ? up[i] : 0;
        if (in->limit > 0) a = a < most ? a : most;
        if (in->limit != 0) b = b < -most ? -most : b > most ? most : b;
        const float silu = a / (1 + expf(-a));
        switch (in->kind) {
        case PI__IN_RMSNORM: v[i] = x[i] * scale * in->w[i]; break;
        case PI__IN_GEGLU: v[i] = 0.5f * x[i] * (1 + tanhf(0.7978845608f * (x[i] + 0.044715f * x[i] * x[i] * x[i]))) *
                                  up[i]; break;
        case PI__IN_SWIGLU: v[i] = (in->limit < 0 && silu > most ? most : silu) * b; break;
        case PI__IN_SWIGLU_OAI: v[i] = a / (1 + expf(-1.702f * a)) * (b + 1); break;
        case PI__IN_GEGLU_ERF: v[i] = gelu_erf(a) * b; break;
        case PI__IN_GELU: v[i] = gelu_erf(a); break;
        case PI__IN_RELU2: v[i] = (a < 0 ? 0 : a) * b; break;
        default: v[i] = x[i];
        }
    }
}

static sum *sum_of(pi__sums *s, const pi__weight *w)
{
    if (!w || w->target < 1 || w->target > s->m->n_lora_target || !s->of[w->target - 1].x2) return NULL;
    return &s->of[w->target - 1];
}

static void add_squares(double *to, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += (double) x[i] * (double) x[i];
}

static void count_linear(pi__sums *s, const pi__linear *a)
{
    bool any = false;
    for (int32_t i = 0; i < a->n_lin; i++) any |= sum_of(s, a->lin[i].w) != NULL;
    if (!any || a->n_rows < 1) return;
    const int64_t n = a->lin[0].w->n_in;
    memset(s->row, 0, (size_t) n * sizeof *s->row);
    for (int32_t r = 0; r < a->n_rows; r++) {
        input_row(&a->in, r, n, s->in);
        add_squares(s->row, s->in, n);
    }
    for (int32_t i = 0; i < a->n_lin; i++) {
        sum *to = sum_of(s, a->lin[i].w);
        for (int64_t k = 0; to && k < n; k++) to->x2[k] += s->row[k];
        if (to) *to->n += (uint64_t) a->n_rows;
    }
}

static void linear(pi__backend *be, const pi__batch *b, const pi__linear *a)
{
    pi__sums *s = (pi__sums *) (void *) (uintptr_t) be->ops; /* ops is its first member */
    count_linear(s, a);
    s->real->linear(be, b, a);
}

/* Adds a row of n inputs, in s->in, to the sums of an expert's matrix; w may be NULL. */
static void count_expert(pi__sums *s, const pi__weight *w, int32_t expert, int64_t n)
{
    sum *to = sum_of(s, w);
    if (!to) return;
    add_squares(to->x2 + expert * n, s->in, n);
    to->n[expert]++;
}

/* Counts the inputs of a step's experts (pi__moe_watch). */
static void count_moe(const pi__moe_watch *w, const pi__moe *a, const pi__lin_in *down, int32_t n_pairs,
                      const int32_t *pair, const int32_t *expert)
{
    pi__sums *s = w->ud;
    for (int32_t j = 0; j < n_pairs; j++) {
        const int32_t e = expert[pair[j]];
        input_row(&a->in, pair[j] / a->n_used, a->gate->n_in, s->in);
        count_expert(s, a->gate, e, a->gate->n_in);
        if (a->up != a->gate) count_expert(s, a->up, e, a->gate->n_in);
        input_row(down, j, a->down->n_in, s->in);
        count_expert(s, a->down, e, a->down->n_in);
    }
}

static void moe(pi__backend *be, const pi__batch *b, const pi__moe *a)
{
    pi__sums *s = (pi__sums *) (void *) (uintptr_t) be->ops;
    const pi__moe_watch watch = {count_moe, s};
    pi__cpu_moe_watched(be, b, a, &watch);
}

static void head_linear(pi__backend *be, const pi__batch *b, const pi__head_linear *a)
{
    pi__sums *s = (pi__sums *) (void *) (uintptr_t) be->ops;
    sum *to = sum_of(s, a->w);
    for (int32_t r = 0; to && r < a->n_rows; r++)
        for (int64_t h = 0; h < a->w->n_mat; h++)
            add_squares(to->x2 + h * a->w->n_in, a->x + r * a->ldx + h * a->x_step, a->w->n_in);
    if (to) *to->n += (uint64_t) a->n_rows;
    s->real->head_linear(be, b, a);
}

static void sums_free(pi__sums *s)
{
    for (int32_t i = 0; s->of && i < s->m->n_lora_target; i++) {
        pi__free(s->of[i].x2);
        pi__free(s->of[i].n);
    }
    pi__free(s->of);
    pi__free(s->row);
    pi__free(s->in);
    pi__free(s->path);
    pi__free(s->dataset);
    pi__free(s);
}

static bool counted(const pi__lora_target *t)
{
    return t->kind == PI__LORA_HEADS || (t->kind == PI__LORA_MATRIX && strcmp(t->name, "output.weight") != 0);
}

static int refuse(const pi__backend *be, const pi__model *m, pi_error *err)
{
    if (be->discrete || be->n_ranks > 1)
        return pi__fail(err, PI_EUNSUPPORTED, "imatrix-file needs a CPU: give device cpu");
    if (m->lim.max_expert && be->ops->moe != pi__cpu_moe)
        return pi__fail(err, PI_EUNSUPPORTED, "imatrix-file needs a single CPU for experts: give device cpu");
    if (!m->n_lora_target)
        return pi__fail(err, PI_EUNSUPPORTED, "imatrix-file does not support this architecture; use llama-imatrix");
    return PI_OK;
}

int pi__sums_new(pi__sums **out, pi__backend *be, const pi__model *m, const char *path, const char *dataset,
                 int32_t chunk, pi_error *err)
{
    int rc = refuse(be, m, err);
    if (rc) return rc;
    pi__sums *s = pi__calloc(1, sizeof *s);
    int64_t most = 1;
    if (!s) return pi__fail_mem(err, "the importance matrices");
    s->real = be->ops;
    s->ops = *be->ops;
    s->ops.linear = linear;
    s->ops.moe = moe;
    s->ops.head_linear = head_linear;
    s->m = m;
    s->chunk = chunk;
    s->path = pi__strdup(path);
    s->dataset = pi__strdup(dataset);
    bool ok = s->path && s->dataset && (s->of = pi__calloc((size_t) m->n_lora_target, sizeof *s->of));
    for (int32_t i = 0; ok && i < m->n_lora_target; i++) {
        const pi__lora_target *t = &m->lora_target[i];
        if (!counted(t)) continue;
        most = most > t->n_in ? most : t->n_in;
        ok = (s->of[i].x2 = pi__calloc((size_t) (t->n_in * t->n_mat), sizeof *s->of[i].x2)) &&
             (s->of[i].n = pi__calloc((size_t) t->n_mat, sizeof *s->of[i].n));
    }
    ok = ok && (s->row = pi__calloc((size_t) most, sizeof *s->row));
    ok = ok && (s->in = pi__calloc((size_t) most, sizeof *s->in));
    if (!ok) {
        sums_free(s);
        return pi__fail_mem(err, "the importance matrices");
    }
    be->ops = &s->ops;
    *out = s;
    return PI_OK;
}

/* ------------------------------------------------------------------------------------------------------------ file */

static void put_text(pi__gguf_writer *w, const char *key, const char *text, bool list)
{
    const pi__str s = {.p = text, .n = strlen(text)};
    if (list) pi__gguf_put_arr(w, key, PI__GGUF_STR, 1, &s);
    else pi__gguf_put(w, key, PI__GGUF_STR, &s);
}

/* The number of counts of target i: one per expert, or one for all heads. */
static int64_t n_counts(const pi__sums *s, int32_t i)
{
    const pi__lora_target *t = &s->m->lora_target[i];
    return t->kind == PI__LORA_HEADS ? 1 : t->n_mat;
}

/* The largest count of target i; 0 = it is not written. */
static uint64_t max_count(const pi__sums *s, int32_t i)
{
    uint64_t n = 0;
    for (int64_t k = 0; s->of[i].n && k < n_counts(s, i); k++) n = n > s->of[i].n[k] ? n : s->of[i].n[k];
    return n;
}

/* Sets *n_tensors to the number of targets with counts, unless it is NULL. Returns the largest count. */
static uint64_t count_all(const pi__sums *s, int32_t *n_tensors)
{
    uint64_t n = 0;
    for (int32_t i = 0; i < s->m->n_lora_target; i++) {
        const uint64_t one = max_count(s, i);
        n = n > one ? n : one;
        if (n_tensors) *n_tensors += one > 0;
    }
    return n;
}

static void put_header(const pi__sums *s, pi__gguf_writer *w)
{
    char name[96];
    const uint32_t chunk = (uint32_t) s->chunk, chunks = (uint32_t) ((count_all(s, NULL) + chunk - 1) / chunk);
    put_text(w, "general.type", "imatrix", false);
    put_text(w, "imatrix.datasets", s->dataset, true);
    pi__gguf_put(w, "imatrix.chunk_count", PI__GGUF_U32, &chunks);
    pi__gguf_put(w, "imatrix.chunk_size", PI__GGUF_U32, &chunk);
    for (int32_t i = 0; i < s->m->n_lora_target; i++) {
        const pi__lora_target *t = &s->m->lora_target[i];
        const int64_t n = n_counts(s, i), ne[2] = {t->n_in * t->n_mat / n, n}, counts[2] = {1, n};
        if (!max_count(s, i)) continue;
        snprintf(name, sizeof name, "%s.in_sum2", t->name);
        pi__gguf_put_tensor(w, name, PI__F32, 2, ne);
        snprintf(name, sizeof name, "%s.counts", t->name);
        pi__gguf_put_tensor(w, name, PI__F32, 2, counts);
    }
}

/* Writes the sums of target i, a matrix at a time, and its counts. */
static int put_sums(pi__sums *s, int32_t i, pi__gguf_writer *w, pi_error *err)
{
    const pi__lora_target *t = &s->m->lora_target[i];
    const int64_t n = t->n_in;
    int rc = PI_OK;
    for (int64_t m = 0; !rc && m < t->n_mat; m++) {
        for (int64_t k = 0; k < n; k++) s->in[k] = (float) s->of[i].x2[m * n + k];
        rc = pi__gguf_writer_data(w, s->in, pi__row_size(pi__type_info_of(PI__F32), n), err);
    }
    for (int64_t m = 0; !rc && m < n_counts(s, i); m++) {
        const float count = (float) s->of[i].n[m];
        rc = pi__gguf_writer_data(w, &count, sizeof count, err);
    }
    return rc;
}

static int put_data(pi__sums *s, pi__gguf_writer *w, pi_error *err)
{
    int rc = PI_OK;
    for (int32_t i = 0; !rc && i < s->m->n_lora_target; i++)
        if (max_count(s, i)) rc = put_sums(s, i, w, err);
    return rc;
}

static int write_file(pi__sums *s, pi_error *err)
{
    pi__gguf_writer *w;
    int rc = pi__gguf_writer_open(&w, s->path, 0, err);
    if (rc) return rc;
    put_header(s, w);
    rc = pi__gguf_writer_begin(w, err);
    if (!rc) rc = put_data(s, w, err);
    if (!rc) return pi__gguf_writer_close(w, true, err);
    pi__gguf_writer_close(w, false, NULL);
    return rc;
}

void pi__sums_close(pi__sums *s, pi__backend *be, const pi__log *log)
{
    int32_t n_tensors = 0;
    pi_error err = {0};
    if (!s) return;
    const uint64_t n = count_all(s, &n_tensors);
    if (!n) pi__logf(log, PI_LOG_WARN, "imatrix-file: no token was computed: %s is not written", s->path);
    else if (write_file(s, &err)) pi__logf(log, PI_LOG_ERROR, "imatrix-file: %s", err.msg);
    else
        pi__logf(log, PI_LOG_INFO, "imatrix-file: %s: %d matrices, %llu tokens", s->path, (int) n_tensors,
                 (unsigned long long) n);
    be->ops = s->real;
    sums_free(s);
}
