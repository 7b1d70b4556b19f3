/* Start-up check of products: a small product through the kernels, for few and for many rows, compared with the host.
 * A wrong driver, a build for another device, or broken hardware is detected when the engine opens, not by wrong
 * answers. n_in is large enough that every pipeline stage passes both phases of its barrier; on an emulator it covers
 * one stage.
 *
 * Memory: one host buffer and one device buffer, for the time of a call. The opening thread. */
#include <math.h>
#include <string.h>

#include "backend/cuda/impl.h"
#include "base/alloc.h"
#include "base/error.h"
#include "formats/formats.h"

/* N_IN, MIN_IN: columns, on devices and on emulators. N_OUT: rows of W. N_X: rows of x, more than small-batch kernels
 * process. N_FEW: rows of x in the second launch. TILE: rows of a packed tile. */
enum { N_IN = 1280, MIN_IN = 64, N_OUT = 19, N_X = 33, N_FEW = 5, TILE = 16 };

/* Byte offsets in device memory of x, packed x, y, the library's workspace, and the end; W is at offset 0. */
typedef struct layout {
    size_t x, prepared, y, work, size;
} layout;
static const layout of_all = {256 << 10, 640 << 10, 1664 << 10, 1728 << 10, 1984 << 10};
static const layout of_least = {64 << 10, 128 << 10, 192 << 10, 256 << 10, 512 << 10};
static const layout *layout_of(int64_t n_in) { return n_in > MIN_IN ? &of_all : &of_least; }

/* Inputs and results of the product on the host. */
typedef struct trial {
    int32_t n_in;             /* columns: N_IN, or MIN_IN */
    float w[N_OUT * N_IN];    /* as in the packed matrix */
    float x[N_X * N_IN];      /* values that every activation format represents exactly, or nearly */
    float y[2][N_X * N_OUT];  /* device results of two launches: with all N_X rows; with the first N_FEW rows */
    uint8_t file[N_OUT * N_IN * 4];      /* the matrix in the file's layout, with space for F32 */
    uint8_t packed[2 * N_IN * TILE * 4]; /* the matrix in the device's layout: two tiles */
} trial;

/* Fills x with values that the activation formats represent exactly. Each group of 16 contains the largest magnitude,
 * 6. For MXFP4 the values are e2m1; for other types they are 1.5 times e2m1 values up to 4, as
 * NVFP4 quantization selects the scale 1.5 for such a group. Fills w with multiples of 1/4 from -1.5 to 1.5. */
static void fill(trial *t, int32_t type)
{
    static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4};
    for (int i = 0; i < N_X * t->n_in; i++) {
        float v = i % 16 == 0 ? 4 : values[(i * 5 + i / 64 * 3) % 7];
        v *= type == PI__MXFP4 ? (v == 4 ? 1.5f : 1.0f) : 1.5f;
        t->x[i] = (i * 7 + i / 16) % 3 ? v : -v;
    }
    for (int i = 0; i < N_OUT * t->n_in; i++) t->w[i] = (float) ((i * 11 + i / t->n_in * 5) % 13 - 6) / 4;
}

/* Quantizes w to the type, packs it for the device, and replaces w by the dequantized values. */
static void pack(trial *t, int32_t type, const pi__cuda_shape *s)
{
    const int32_t n = t->n_in;
    const size_t row = pi__row_size(pi__type_info_of(type), n);
    for (int i = 0; i < N_OUT; i++) {
        pi__quantize_row(type, t->w + i * n, t->file + (size_t) i * row, n, NULL);
        pi__dequantize_row(type, t->file + (size_t) i * row, t->w + i * n, n);
    }
    if (!s->n_block) memcpy(t->packed, t->file, s->mat_bytes);
    for (int i = 0; i < N_OUT && s->n_block; i += TILE) {
        pi__cuda_pack_tile(type, s, n, t->file + (size_t) i * row, N_OUT - i < TILE ? N_OUT - i : TILE,
                           t->packed + (size_t) (i / TILE) * s->tile_bytes);
    }
}

/* Compares the device's results with the host's; returns bits PI__WRONG_*. exact: each row's result must be bitwise
 * identical in both launches. most: max error, relative to the sum of absolute terms. */
static int compare(const trial *t, bool exact, double most)
{
    int wrong = 0;
    for (int i = 0; i < N_X * N_OUT; i++) {
        const float *w = t->w + i % N_OUT * t->n_in, *x = t->x + i / N_OUT * t->n_in;
        double want = 0, size = 0;
        for (int k = 0; k < t->n_in; k++) {
            want += (double) w[k] * x[k];
            size += fabs((double) w[k] * x[k]);
        }
        if (!(fabs(t->y[0][i] - want) <= most * size)) wrong |= PI__WRONG_MANY;
        if (i < N_FEW * N_OUT && !(fabs(t->y[1][i] - want) <= most * size)) wrong |= PI__WRONG_FEW;
    }
    if (exact && memcmp(t->y[0], t->y[1], N_FEW * N_OUT * sizeof(float))) wrong |= PI__WRONG_MANY;
    return wrong;
}

static int multiply(pi__rt *rt, const pi__k_matrix *m, int matmul_modes, pi__blas *blas, char *p, int32_t n_rows)
{
    const layout *at = layout_of(m->n_in);
    void *stream = pi__rt_stream(rt), *prepared = p + at->prepared;
    pi__k_input in = {.kind = PI__IN_PLAIN, .x = (const float *) (p + at->x), .ldx = m->n_in};
    const int form = blas ? PI__FORM_HILO : pi__cuda_form(matmul_modes, m->type, m->n_in);
    int rc = pi__cuda_pack_x(stream, form, &in, m->type, n_rows, m->n_in, prepared);
    const pi__k_product product = {*m, (float *) (p + at->y), N_OUT, 0};
    if (rc) return rc;
    if (blas) return pi__cuda_blas_product(blas, stream, &product, prepared, n_rows);
    return pi__cuda_product(stream, form, &product, 1, prepared, n_rows, NULL);
}

/* Runs the product on the device with N_X rows, then with N_FEW; fills t->y. Returns a code of the runtime. */
static int run(pi__rt *rt, trial *t, const pi__k_matrix *m, int matmul_modes, pi__blas *blas, char *p)
{
    const layout *at = layout_of(m->n_in);
    int rc = blas ? pi__blas_use(blas, p + at->work, at->size - at->work) : 0;
    if (!rc) rc = pi__rt_upload(rt, p, t->packed, m->shape.mat_bytes);
    if (!rc) rc = pi__rt_upload(rt, p + at->x, t->x, (size_t) N_X * (size_t) t->n_in * sizeof *t->x);
    for (int i = 0; i < 2 && !rc; i++) {
        const int32_t n_rows = i ? N_FEW : N_X;
        /* NaN: old results must not pass for results of a kernel that did not run */
        memset(t->y[i], 0xff, sizeof t->y[i]);
        rc = pi__rt_upload(rt, p + at->y, t->y[i], sizeof t->y[i]);
        if (!rc) rc = multiply(rt, m, matmul_modes, blas, p, n_rows);
        if (!rc) rc = pi__rt_download(rt, t->y[i], p + at->y, (size_t) n_rows * N_OUT * sizeof(float));
        if (!rc) rc = pi__rt_wait(rt);
    }
    return rc;
}

int pi__cuda_check_product(pi__rt *rt, int32_t type, int matmul_modes, pi__blas *blas, bool slow, int *wrong,
                           pi_error *err)
{
    void *p = NULL;
    pi__k_matrix m = {.type = type, .n_in = slow ? MIN_IN : N_IN, .n_out = N_OUT};
    trial *t = pi__calloc(1, sizeof *t);
    int code = t ? pi__rt_alloc(rt, &p, layout_of(m.n_in)->size) : 0;
    *wrong = 0;
    if (!code && p && pi__cuda_shape_of(type, m.n_in, N_OUT, &m.shape)) {
        m.data = p;
        t->n_in = (int32_t) m.n_in;
        fill(t, type);
        pack(t, type, &m.shape);
        code = run(rt, t, &m, matmul_modes, blas, p);
        /* W16 rounds weights and scales to 11 significant bits, so the tolerance is larger */
        if (!code) *wrong = compare(t, !blas, matmul_modes & PI__WAY_W16 ? 1e-3 : 1e-4);
    }
    bool no_memory = !t || (!p && !code);
    pi__rt_free(rt, p);
    pi__free(t);
    if (code) return pi__fail(err, PI_EDEVICE, "the matmul self-test failed to run: %.300s", pi__rt_text(code));
    return no_memory ? pi__fail_mem(err, "the matmul self-test") : PI_OK;
}