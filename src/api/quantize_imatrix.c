/* Importance of matrix columns (see quantize_imatrix.h). */
#include "api/quantize_imatrix.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "formats/formats.h"

static const char sums_suffix[] = ".in_sum2", counts_suffix[] = ".counts";

static int64_t n_values(const pi__tensor *t) { return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; }

int pi__imatrix_open(pi__imatrix *m, const char *path, pi_error *err)
{
    const size_t suffix = sizeof sums_suffix - 1;
    memset(m, 0, sizeof *m);
    int rc = pi__gguf_open(&m->g, path, PI__LOAD_READ, err);
    if (rc == PI_EFORMAT) {
        return pi__fail(err, rc, "imatrix %.120s: not a GGUF file: convert the older format by llama-imatrix", path);
    }
    if (rc != PI_OK) return rc;
    for (size_t i = 0; i < pi__gguf_n_tensors(m->g); i++) {
        pi__str name = pi__gguf_tensor_at(m->g, i)->name;
        m->n += name.n > suffix && memcmp(name.p + name.n - suffix, sums_suffix, suffix) == 0;
    }
    if (m->n == 0) rc = pi__fail(err, PI_EFORMAT, "imatrix %.160s: has no tensor NAME%s", path, sums_suffix);
    if (rc == PI_OK) rc = pi__gguf_get_u32(m->g, "imatrix.chunk_count", &m->n_chunks, 0, err);
    if (rc != PI_OK) pi__imatrix_close(m);
    return rc;
}

void pi__imatrix_close(pi__imatrix *m)
{
    pi__gguf_close(m->g);
    m->g = NULL;
}

/* Returns the tensor NAME + suffix and its floats, unaligned, in *data; NULL = absent. */
static const pi__tensor *find_floats(const pi__imatrix *m, const pi__tensor *t, const char *suffix,
                                     const uint8_t **data)
{
    char name[192];
    if (t->name.n + strlen(suffix) >= sizeof name) return NULL;
    snprintf(name, sizeof name, "%.*s%s", (int) t->name.n, t->name.p, suffix);
    const pi__tensor *found = pi__gguf_find_tensor(m->g, name);
    if (found) *data = pi__gguf_tensor_data(m->g, found);
    return found;
}

bool pi__imatrix_has(const pi__imatrix *m, const pi__tensor *t)
{
    const uint8_t *data = NULL;
    return m->g && find_floats(m, t, sums_suffix, &data);
}

int pi__imatrix_weights(const pi__imatrix *m, const pi__tensor *t, float **out, pi_error *err)
{
    const uint8_t *sum_data = NULL, *count_data = NULL;
    *out = NULL;
    if (!m->g) return PI_OK;
    const pi__tensor *sums = find_floats(m, t, sums_suffix, &sum_data),
                             *counts = find_floats(m, t, counts_suffix, &count_data);
    if (!sums && !counts) return PI_OK;
    bool fits = sums && counts && sums->type == PI__F32 && counts->type == PI__F32 && sum_data && count_data &&
                n_values(sums) == t->ne[0] * t->ne[2] && (n_values(counts) == t->ne[2] || n_values(counts) == 1);
    if (!fits) return pi__fail(err, PI_EFORMAT, "imatrix: %.100s has another shape than in the model", t->cname);
    float *w = pi__realloc_array(NULL, (size_t) n_values(sums), sizeof *w);
    if (!w) return pi__fail_mem(err, "the importance values of columns");
    memcpy(w, sum_data, (size_t) n_values(sums) * sizeof *w);
    for (int64_t expert = 0; expert < t->ne[2]; expert++) {
        float count, *row = w + expert * t->ne[0];
        memcpy(&count, count_data + (n_values(counts) > 1 ? (size_t) expert * sizeof count : 0), sizeof count);
        for (int64_t i = 0; i < t->ne[0]; i++) {
            row[i] = count > 0 ? row[i] / count : 1; /* an expert that was never used: all columns weigh the same */
            if (row[i] >= 0 && row[i] < 1e30f) continue;
            pi__free(w);
            return pi__fail(err, PI_EFORMAT, "imatrix: %.100s has a value that is negative or not finite", t->cname);
        }
    }
    *out = w;
    return PI_OK;
}
