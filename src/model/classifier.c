/* Classifier and dense heads (see classifier.h). */
#include "model/classifier.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/declare.h"

enum { MAX_LABELS = 1 << 16, LANES = 8 /* partial sums of a row */ };
enum { POOLING_MEAN = 1 };   /* value of metadata ARCHITECTURE.classifier.pooling_type */

/* Returns the rows of the file's matrix `name`, which must have n columns and at most `most` rows; 0 = other shape,
 * which is refused. */
static int32_t rows_of(pi__model *m, const char *name, int64_t n, int32_t most)
{
    const pi__tensor *t = pi__gguf_find_tensor(m->g, name);
    if (t->ne[0] == n && t->ne[1] >= 1 && t->ne[1] <= most && t->ne[2] == 1 && t->ne[3] == 1) return (int32_t) t->ne[1];
    pi__model_refuse(m, PI_EFORMAT, "tensor %s has shape [%lld, %lld, %lld], expected [%lld, 1 to %d]", name,
                     (long long) t->ne[0], (long long) t->ne[1], (long long) t->ne[2], (long long) n, most);
    return 0;
}

/* Declares a matrix [n_rows, n] in host memory, and its bias if the file has one. */
static void want_matrix(pi__model *m, float **w, float **bias, int64_t n, int32_t n_rows, const char *name,
                        const char *bias_name)
{
    *w = pi__model_calloc(m, (size_t) n * (size_t) n_rows, sizeof **w, "the classifier");
    pi__declare_host_table(m, *w, n_rows, n, name, PI__OF_FILE);
    if (!bias_name || !pi__has_tensor(m, bias_name, PI__OF_FILE)) return;
    *bias = pi__model_calloc(m, (size_t) n_rows, sizeof **bias, "the classifier");
    pi__declare_host(m, *bias, n_rows, bias_name, PI__OF_FILE);
}

static void read_labels(pi__model *m, pi__classifier *c)
{
    char key[128];
    snprintf(key, sizeof key, "%s.classifier.output_labels", m->arch->name);
    const pi__gguf_kv *kv = pi__gguf_find(m->g, key);
    c->labels = pi__model_calloc(m, (size_t) c->n_labels, sizeof *c->labels, "the classifier's labels");
    if (kv && (kv->type != PI__GGUF_ARR || kv->arr_type != PI__GGUF_STR || kv->n != (uint64_t) c->n_labels))
        pi__model_refuse(m, PI_EFORMAT, "metadata %s: expected %d names, one per row of the head", key, c->n_labels);
    for (int32_t i = 0; i < c->n_labels && pi__model_ok(m); i++) {
        const pi__str s = kv ? pi__gguf_elem_str(kv, (uint64_t) i) : (pi__str) {"", 0};
        char *name = pi__model_calloc(m, s.n + 1, 1, "the classifier's labels");
        if (name && s.n) memcpy(name, s.p, s.n);
        c->labels[i] = name;
    }
}

void pi__classifier_declare(pi__model *m)
{
    static const char dense[] = "cls.weight", out[] = "cls.output.weight";
    pi__classifier *c = &m->classifier;
    const bool has_dense = pi__has_tensor(m, dense, PI__OF_FILE), has_out = pi__has_tensor(m, out, PI__OF_FILE);
    if (!pi__model_ok(m) || (!has_dense && !has_out)) return;
    if (pi__has_tensor(m, "cls.norm.weight", PI__OF_FILE))
        pi__model_refuse(m, PI_EUNSUPPORTED, "tensor cls.norm.weight: a classifier with a norm is not supported");
    c->n_in = m->n_embd;
    if (has_dense) c->n_dense = rows_of(m, dense, c->n_in, PI__MAX_EMBD);
    c->n_labels = has_out ? rows_of(m, out, has_dense ? c->n_dense : c->n_in, MAX_LABELS) : c->n_dense;
    c->mean = pi__hp_u32_or(m, "classifier.pooling_type", 0, 0, 4) == POOLING_MEAN;
    c->first = !c->mean && m->bidirectional;
    c->softmax = !strcmp(m->arch->name, "qwen3");
    if (!pi__model_ok(m)) return;
    if (has_dense) want_matrix(m, &c->dense, &c->dense_bias, c->n_in, c->n_dense, dense, "cls.bias");
    if (has_out)
        want_matrix(m, &c->out, &c->out_bias, has_dense ? c->n_dense : c->n_in, c->n_labels, out, "cls.output.bias");
    c->scratch = pi__model_calloc(m, (size_t) c->n_dense + (size_t) c->n_labels, sizeof *c->scratch, "the classifier");
    read_labels(m, c);
}

size_t pi__classifier_bytes(const pi__classifier *c)
{
    const size_t in = (size_t) c->n_in, dense = (size_t) c->n_dense, labels = (size_t) c->n_labels;
    const size_t n = (c->dense ? dense * in : 0) + (c->out ? labels * (dense ? dense : in) : 0) +
                     (c->dense_bias ? dense : 0) + (c->out_bias ? labels : 0) + (labels ? dense + labels : 0);
    return n * sizeof(float);
}

/* y [n_rows] = W x + b. */
static void multiply(const float *w, const float *bias, const float *x, int32_t n, int32_t n_rows, float *y)
{
    for (int32_t r = 0; r < n_rows; r++, w += n) {
        double part[LANES] = {0}, sum = bias ? (double) bias[r] : 0;
        int32_t i = 0;
        for (; i + LANES <= n; i += LANES)
            for (int32_t k = 0; k < LANES; k++) part[k] += (double) w[i + k] * (double) x[i + k];
        for (; i < n; i++) part[0] += (double) w[i] * (double) x[i];
        for (int32_t k = 0; k < LANES; k++) sum += part[k];
        y[r] = (float) sum;
    }
}

void pi__dense_heads_declare(pi__model *m)
{
    static const char *const names[2] = {"dense_2.weight", "dense_3.weight"};
    pi__dense_heads *d = &m->dense;
    d->n[0] = d->n[1] = d->n[2] = m->n_embd;
    for (int i = 0; i < 2 && pi__model_ok(m); i++) {
        d->n[i + 1] = d->n[i];
        if (!pi__has_tensor(m, names[i], PI__OF_FILE)) continue;
        d->n[i + 1] = rows_of(m, names[i], d->n[i], PI__MAX_EMBD);
        want_matrix(m, &d->w[i], NULL, d->n[i], d->n[i + 1], names[i], NULL);
    }
    if (!d->w[0] && !d->w[1]) return;
    d->scratch = pi__model_calloc(m, (size_t) d->n[1] + (size_t) d->n[2], sizeof *d->scratch, "the dense heads");
    d->n_out = d->n[2];
    if (d->n_out != m->n_embd)
        pi__model_refuse(m, PI_EUNSUPPORTED,
                         "dense heads: vectors of %d values become %d: only equal sizes are supported", m->n_embd,
                         d->n_out);
}

size_t pi__dense_heads_bytes(const pi__dense_heads *d)
{
    size_t n = d->n_out ? (size_t) d->n[1] + (size_t) d->n[2] : 0;
    for (int i = 0; i < 2; i++) n += d->w[i] ? (size_t) d->n[i] * (size_t) d->n[i + 1] : 0;
    return n * sizeof(float);
}

void pi__dense_heads_apply(const pi__dense_heads *d, const float *x, float *out)
{
    float *to[2] = {d->scratch, d->scratch + d->n[1]};
    for (int i = 0; i < 2; i++) {
        if (!d->w[i]) continue;
        multiply(d->w[i], NULL, x, d->n[i], d->n[i + 1], to[i]);
        x = to[i];
    }
    memcpy(out, x, (size_t) d->n_out * sizeof *out);
}

static void to_probabilities(float *v, int32_t n)
{
    double sum = 0;
    float most = v[0];
    for (int32_t i = 1; i < n; i++) most = v[i] > most ? v[i] : most;
    for (int32_t i = 0; i < n; i++) sum += exp((double) v[i] - (double) most);
    for (int32_t i = 0; i < n; i++) v[i] = (float) (exp((double) v[i] - (double) most) / sum);
}

void pi__classifier_scores(const pi__classifier *c, const float *x, float *scores)
{
    float *hidden = c->scratch, *v = c->scratch + c->n_dense;
    int32_t n = c->n_in;
    if (c->dense) {
        multiply(c->dense, c->dense_bias, x, n, c->n_dense, hidden);
        for (int32_t i = 0; i < c->n_dense; i++) hidden[i] = tanhf(hidden[i]);
        x = hidden;
        n = c->n_dense;
    }
    if (c->out) multiply(c->out, c->out_bias, x, n, c->n_labels, v);
    else memcpy(v, x, (size_t) c->n_labels * sizeof *v);
    if (c->softmax) to_probabilities(v, c->n_labels);
    memcpy(scores, v, (size_t) c->n_labels * sizeof *scores);
}
