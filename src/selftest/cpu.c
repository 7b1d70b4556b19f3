/* The self-test of the CPU: products with matrices of every format that this library writes, with every instruction set
 * of the processor, are compared with sums in double precision. A row's result must be bitwise identical in a batch and
 * in a batch of one. Attention, delta nets and experts are not checked here; the tests of the source tree check them.
 *
 * Memory: one trial on the heap, and the backend's. Threads: the caller's, and the backend's pool. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/alloc.h"
#include "base/error.h"
#include "formats/formats.h"
#include "selftest/selftest.h"

enum { N_IN = 512, N_OUT = 35, N_X = 33, N_FEW = 5 };

typedef struct trial {
    float w[N_OUT * N_IN];             /* dequantized from the file's bytes */
    float x[N_X * N_IN];
    float y[N_X * N_OUT], few[N_FEW * N_OUT];
    uint8_t file[N_OUT * N_IN * 4];
} trial;

static float next(uint64_t *rng)
{
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    return (float) (*rng >> 40) * 0x1p-23f - 1.0f;
}

static void fill(trial *t, int32_t type)
{
    const pi__type_info *info = pi__type_info_of(type);
    const size_t row = pi__row_size(info, N_IN);
    uint64_t rng = (uint64_t) type + 1;
    for (int i = 0; i < N_OUT * N_IN; i++) t->w[i] = next(&rng);
    for (int i = 0; i < N_X * N_IN; i++) t->x[i] = next(&rng);
    for (int i = 0; i < N_OUT; i++) {
        pi__quantize_row(type, t->w + i * N_IN, t->file + (size_t) i * row, N_IN, NULL);
        pi__dequantize_row(type, t->file + (size_t) i * row, t->w + i * N_IN, N_IN);
    }
}

static int multiply(pi__backend *be, const pi__weight *w, const trial *t, int32_t n_rows, float *y, pi_error *err)
{
    const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = t->x, .ldx = N_IN};
    const pi__lin lin = {w, y, N_OUT};
    const pi__linear a = pi__linear_of(&in, n_rows, &lin, 1);
    pi__op_linear(be, NULL, &a);
    return be->dev->finish(be, err);
}

/* Kernels may round x to 15 bits in blocks of 32. Raises *worst to the largest error, as a fraction of the allowed
 * error. */
static void compare(const trial *t, double *worst)
{
    for (int i = 0; i < N_X * N_OUT; i++) {
        const float *w = t->w + i % N_OUT * N_IN, *x = t->x + i / N_OUT * N_IN;
        double want = 0, allowed = 1e-6;
        for (int b = 0; b < N_IN; b += 32) {
            double most = 0, size = 0;
            for (int k = b; k < b + 32; k++) {
                want += (double) w[k] * x[k];
                size += fabs(w[k]);
                most = fmax(most, fabs(x[k]));
            }
            allowed += size * most * (0.51 / 16256 + 2e-6);
        }
        const double off = fabs(t->y[i] - want) / allowed;
        if (!(off <= *worst)) *worst = off == off ? off : INFINITY;
    }
}

/* Checks one format. Raises *worst to its largest error, as compare does. *wrong receives a message if the results are
 * wrong. */
static int check_type(pi__backend *be, int32_t type, trial *t, double *worst, const char **wrong, pi_error *err)
{
    pi__weight w = {.type = type, .n_in = N_IN, .n_out = N_OUT, .n_mat = 1};
    w.size = be->dev->weight_size(be, &w);
    w.data = w.size ? be->dev->alloc(be, w.size) : NULL;
    if (!w.data) return pi__fail_mem(err, "a test matrix");
    fill(t, type);
    for (int64_t i = 0; i < N_OUT; i += PI__LOAD_ROWS) {
        be->dev->weight_load(be, &w, 0, i, N_OUT - i < PI__LOAD_ROWS ? N_OUT - i : PI__LOAD_ROWS,
                             t->file + (size_t) i * pi__row_size(pi__type_info_of(type), N_IN));
    }
    int rc = multiply(be, &w, t, N_X, t->y, err);
    if (!rc) rc = multiply(be, &w, t, N_FEW, t->few, err);
    if (!rc) compare(t, worst);
    if (!rc && *worst > 1) *wrong = "differs from sums in double precision";
    else if (!rc && memcmp(t->y, t->few, sizeof t->few)) *wrong = "depends on the number of rows";
    be->dev->free(be, w.data, w.size);
    return rc;
}

static int check_isa(pi__selftest *to, pi__backend *be, const char *isa, trial *t, pi_error *err)
{
    const pi__limits lim = {.max_tokens = N_X, .max_n_in = N_IN, .max_n_out = N_OUT, .max_seqs = 1, .max_rows = 1};
    double most = 0;
    int ok = 0, failed = 0, rc = be->dev->reserve(be, &lim, err);
    for (int32_t type = 0; type < PI__N_TYPES && !rc; type++) {
        const pi__type_info *info = pi__type_info_of(type);
        pi__weight w = {.type = type, .n_in = N_IN, .n_out = N_OUT, .n_mat = 1};
        const char *wrong = NULL;
        double worst = 0;
        if (!info || !info->writable || !info->readable || N_IN % info->blck_size || !be->dev->weight_size(be, &w))
            continue;
        if (pi__loaded_type(type) != type) continue; /* no matrix has this type after loading */
        rc = check_type(be, type, t, &worst, &wrong, err);
        if (wrong) pi__selftest_line(to, "  FAILED cpu.%s: a matmul with %s %s", isa, info->name, wrong);
        if (worst > most) most = worst;
        ok += !wrong, failed += wrong != NULL;
        if (!rc) pi__selftest_check(to, isa, info->name, wrong ? "failed" : "ok", 0, worst, wrong ? wrong : "");
    }
    to->n_done += ok + failed, to->n_failed += failed;
    if (!rc) {
        pi__selftest_line(to, "  %-14s %-6s %d of %d formats, max error %.0f %% of the limit (%s)",
                          isa, failed ? "FAILED" : "ok",
                          ok, ok + failed, 100 * most, be->dev->describe(be));
    }
    return rc;
}

int pi__selftest_cpu(pi__selftest *to, pi_error *err)
{
    pi__device_info info;
    trial *t = pi__calloc(1, sizeof *t);
    int rc = t ? PI_OK : pi__fail_mem(err, "the self-test");
    pi__cpu_tell(0, &info);
    pi__selftest_line(to, "pagedinfer %s self-test of cpu: %s", pi_version(), info.desc);
    pi__selftest_open(to, "device", '{');
    pi__selftest_text(to, "name", "cpu");
    pi__selftest_text(to, "model", info.desc);
    pi__selftest_close(to, '}');
    pi__selftest_open(to, "checks", '[');
    pi__selftest_line(to, "checks: matmuls of %d and %d rows, by each instruction set of this processor", N_X, N_FEW);
    for (int i = 0; i < PI__N_ISAS && !rc; i++) {
        pi__backend *be;
        pi__cpu_params p = to->params.cpu;
        p.isa = pi__isa_names[i].name;
        if (!pi__selftest_wants(to, "cpu", p.isa)) continue;
        rc = pi__cpu_create(&be, &p, &(pi__log) {0}, err);
        if (!rc) rc = check_isa(to, be, p.isa, t, err);
        if (rc == PI_EUNSUPPORTED) rc = PI_OK; /* this processor does not support p.isa */
        if (be) be->dev->destroy(be);
    }
    pi__selftest_close(to, ']');
    pi__free(t);
    return rc;
}
