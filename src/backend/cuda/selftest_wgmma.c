/* Whether wgmma gives the bits of mma.sync on the device: products of many rows go to it, of few to mma.sync, and a row's bits
 * may not tell. Values are as far apart as makes every instruction cut what it adds, where the two might differ; their error
 * was looked at before (selftest.c).
 *
 * Memory: one buffer of the host and one of the device, for the time of a call. The opening thread. */
#include <string.h>

#include "backend/cuda/impl.h"
#include "base/alloc.h"
#include "base/error.h"
#include "formats/formats.h"

enum { N_IN = 512, N_OUT = 80, N_X = 70, TILE = 16, X_AT = 256 << 10, PREPARED_AT = 512 << 10, Y_AT = 640 << 10, SIZE = 768 << 10 };

typedef struct trial {
    float w[N_IN], x[N_X * N_IN], y[2][N_X * N_OUT]; /* y: of mma.sync, of wgmma */
    uint8_t file[TILE * N_IN * 2], packed[N_OUT * N_IN * 2];
    uint64_t rng;
} trial;

/* Of either sign, 2^-10 to 2^10. */
static float next(trial *t)
{
    t->rng = t->rng * 6364136223846793005u + 1442695040888963407u;
    const float v = (float) (t->rng >> 40) * 0x1p-24f + 1.0f;
    const int e = (int) (t->rng >> 20 & 15);
    return (t->rng >> 36 & 1 ? -v : v) * (e < 8 ? 1.0f / (float) (1 << e) : (float) (1 << (e - 8)));
}

static void pack(trial *t, int32_t type, const pi__cuda_shape *s)
{
    const size_t row = pi__row_size(pi__type_info_of(type), N_IN);
    for (int32_t i = 0; i < N_OUT; i++) {
        for (int32_t k = 0; k < N_IN; k++) t->w[k] = next(t);
        pi__quantize_row(type, t->w, t->file + (size_t) (i % TILE) * row, N_IN, NULL);
        if (i % TILE == TILE - 1) pi__cuda_pack_tile(type, s, N_IN, t->file, TILE, t->packed + (size_t) (i / TILE) * s->tile_bytes);
    }
}

static int multiply(pi__rt *rt, trial *t, const pi__k_product *p, const void *prepared, int which, int32_t n_sm)
{
    const size_t bytes = sizeof t->y[which];
    void *stream = pi__rt_stream(rt);
    memset(t->y[which], 0xff, bytes); /* else what does not run leaves what was right before */
    int code = pi__rt_upload(rt, p->y, t->y[which], bytes);
    if (!code) code = which ? pi__k_wgmma_linear(stream, p, 1, prepared, N_X, n_sm) : pi__k_w16_linear(stream, p, 1, prepared, N_X);
    if (!code) code = pi__rt_download(rt, t->y[which], p->y, bytes);
    return code ? code : pi__rt_wait(rt);
}

/* One type, in blocks of threads of every size; a code of the runtime. */
static int compare(pi__rt *rt, trial *t, int32_t type, char *d, bool *wrong)
{
    pi__k_product p = {.w = {.data = (uint8_t *) d, .type = type, .n_in = N_IN, .n_out = N_OUT}, .y = (float *) (d + Y_AT), .ldy = N_OUT};
    const pi__k_input in = {.kind = PI__IN_PLAIN, .x = (const float *) (d + X_AT), .ldx = N_IN};
    if (!pi__cuda_shape_of(type, N_IN, N_OUT, &p.w.shape)) return 0;
    pack(t, type, &p.w.shape);
    int code = pi__rt_upload(rt, d, t->packed, p.w.shape.mat_bytes);
    for (int32_t i = 0; i < N_X * N_IN; i++) t->x[i] = next(t);
    if (!code) code = pi__rt_upload(rt, d + X_AT, t->x, sizeof t->x);
    if (!code) code = pi__k_w16_prepare(pi__rt_stream(rt), &in, type, N_X, N_IN, d + PREPARED_AT);
    if (!code) code = multiply(rt, t, &p, d + PREPARED_AT, 0, 0);
    for (int i = 0; i < 2 && !code; i++) {
        code = multiply(rt, t, &p, d + PREPARED_AT, 1, i ? 1 : 1000);
        *wrong |= !code && memcmp(t->y[0], t->y[1], sizeof t->y[0]);
    }
    return code;
}

int pi__cuda_check_wgmma(pi__rt *rt, bool *wrong, pi_error *err)
{
    void *d = NULL;
    trial *t = pi__calloc(1, sizeof *t);
    int code = t ? pi__rt_alloc(rt, &d, SIZE) : 0;
    *wrong = false;
    if (d && !code) code = compare(rt, t, PI__Q8_0, d, wrong);
    if (d && !code) code = compare(rt, t, PI__MXFP4, d, wrong);
    const bool no_memory = !t || (!d && !code);
    pi__rt_free(rt, d);
    pi__free(t);
    if (code) return pi__fail(err, PI_EDEVICE, "the device's first product by wgmma failed: %.300s", pi__rt_text(code));
    return no_memory ? pi__fail_mem(err, "a first product by wgmma") : PI_OK;
}
