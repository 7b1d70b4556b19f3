/* Start-up check that wgmma and mma.sync give bitwise identical results. Products and attention use wgmma for many
 * rows and mma.sync for few, and a row's result must not depend on the number of rows. The values differ so much in
 * magnitude that every instruction truncates its sums, which is where the two could differ. The accuracy of mma.sync is
 * checked elsewhere (selftest.c, selftest_ops.c).
 *
 * Memory: one host buffer and one device buffer, for the time of a call; attention uses the self-test's (tryout.h).
 * The opening thread. */
#include "backend/cuda/tryout.h"
#include "base/error.h"
#include "formats/formats.h"

enum {
    N_IN = 512,
    N_OUT = 80,
    N_X = 70,
    TILE = 16,
    X_AT = 256 << 10,
    PREPARED_AT = 512 << 10,
    Y_AT = 640 << 10,
    SIZE = 768 << 10
};

typedef struct trial {
    float w[N_IN], x[N_X * N_IN], y[2][N_X * N_OUT]; /* y: results of mma.sync; of wgmma */
    uint8_t file[TILE * N_IN * 2], packed[N_OUT * N_IN * 2];
    uint64_t rng;
} trial;

/* Returns a random value of either sign, with a magnitude of 2^-7 to 2^8. */
static float far_apart(uint64_t *rng)
{
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    const float v = (float) (*rng >> 40) * 0x1p-24f + 1.0f;
    const int e = (int) (*rng >> 20 & 15);
    return (*rng >> 36 & 1 ? -v : v) * (e < 8 ? 1.0f / (float) (1 << e) : (float) (1 << (e - 8)));
}

static void pack(trial *t, int32_t type, const pi__cuda_shape *s)
{
    const size_t row = pi__row_size(pi__type_info_of(type), N_IN);
    for (int32_t i = 0; i < N_OUT; i++) {
        for (int32_t k = 0; k < N_IN; k++) t->w[k] = far_apart(&t->rng);
        pi__quantize_row(type, t->w, t->file + (size_t) (i % TILE) * row, N_IN, NULL);
        if (i % TILE == TILE - 1)
            pi__cuda_pack_tile(type, s, N_IN, t->file, TILE, t->packed + (size_t) (i / TILE) * s->tile_bytes);
    }
}

/* Runs the product, and downloads its results to t->y[which]. which: 0 = mma.sync, 1 = wgmma. n_sm selects wgmma's
 * block size. */
static int multiply(pi__rt *rt, trial *t, const pi__k_product *p, const void *prepared, int which, int32_t n_sm)
{
    const size_t bytes = sizeof t->y[which];
    void *stream = pi__rt_stream(rt);
    /* NaN: old results must not pass for results of a kernel that did not run */
    memset(t->y[which], 0xff, bytes);
    int code = pi__rt_upload(rt, p->y, t->y[which], bytes);
    if (!code)
        code = which ? pi__k_wgmma_linear(stream, p, 1, prepared, N_X, n_sm)
                     : pi__k_w16_linear(stream, p, 1, prepared, N_X);
    if (!code) code = pi__rt_download(rt, t->y[which], p->y, bytes);
    return code ? code : pi__rt_wait(rt);
}

/* Sets *wrong if products of this type by wgmma, with two block sizes, differ from mma.sync. Returns a code of the
 * runtime. */
static int compare(pi__rt *rt, trial *t, int32_t type, char *d, bool *wrong)
{
    pi__k_product p = {.w = {.data = (uint8_t *) d, .type = type, .n_in = N_IN, .n_out = N_OUT},
                       .y = (float *) (d + Y_AT),
                       .ldy = N_OUT};
    const pi__k_input in = {.kind = PI__IN_PLAIN, .x = (const float *) (d + X_AT), .ldx = N_IN};
    if (!pi__cuda_shape_of(type, N_IN, N_OUT, &p.w.shape)) return 0;
    pack(t, type, &p.w.shape);
    int code = pi__rt_upload(rt, d, t->packed, p.w.shape.mat_bytes);
    for (int32_t i = 0; i < N_X * N_IN; i++) t->x[i] = far_apart(&t->rng);
    if (!code) code = pi__rt_upload(rt, d + X_AT, t->x, sizeof t->x);
    if (!code) code = pi__k_w16_pack_x(pi__rt_stream(rt), &in, type, N_X, N_IN, d + PREPARED_AT);
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
    if (code) return pi__fail(err, PI_EDEVICE, "the wgmma self-test failed to run: %.300s", pi__rt_text(code));
    return no_memory ? pi__fail_mem(err, "the wgmma self-test") : PI_OK;
}

/* ----------------------------------------------------------------------------------------------------------
 * attention */

enum {
    TOKENS = 60, GROUP = 3, MAX_DIM = 256,
    KEYS = 800, /* several KV splits, and both barrier phases of every stage */
    BLOCK = 16, BLOCKS = KEYS / BLOCK,
};

typedef struct prompt {
    uint16_t cache[BLOCKS * 2 * BLOCK * MAX_DIM]; /* per block: keys, then values, of one head */
    float q[TOKENS * GROUP * MAX_DIM], out[2][TOKENS * GROUP * MAX_DIM]; /* out: results of mma.sync; of wgmma */
    int32_t pos[TOKENS], start[2], table[BLOCKS];
} prompt;

/* True if wgmma and mma.sync give the same bits for the last tokens of a sequence, with heads of `dim` values and a
 * cache of these types. */
static bool attention_agrees(tryout *t, prompt *p, int32_t dim, int32_t type_k, int32_t type_v)
{
    const size_t bytes = (size_t) (TOKENS * GROUP * dim) * sizeof(float), block = (size_t) (2 * BLOCK * dim) * 2;
    for (int32_t i = 0; i < BLOCKS * 2 * BLOCK * dim; i++) {
        const int32_t type = i / (BLOCK * dim) % 2 ? type_v : type_k;
        const float v = far_apart(&t->rng) / 64;
        p->cache[i] = type == PI__BF16 ? pi__f32_to_bf16(v) : pi__f32_to_f16(v);
    }
    /* small, so that no score dominates */
    for (int32_t i = 0; i < TOKENS * GROUP * dim; i++) p->q[i] = far_apart(&t->rng) / 128;
    t->used = 0;
    pi__k_attn k = {
        .q = put(t, p->q, bytes),
        .ldq = GROUP * dim,
        .q_stride = dim,
        .out = take(t, bytes),
        .ldo = GROUP * dim,
        .n_head = GROUP,
        .n_tokens = TOKENS,
        .n_seqs = 1,
        .pos = put(t, p->pos, sizeof p->pos),
        .seq_start = put(t, p->start, sizeof p->start),
        .block_table = put(t, p->table, sizeof p->table),
        .table_stride = BLOCKS,
        .max_keys = KEYS,
        .fast = 1,
        .cache = {put(t, p->cache, (size_t) BLOCKS * block), block, type_k, type_v, 1, dim, BLOCK},
    };
    for (int i = 0; i < 2; i++) {
        k.wgmma = i;
        blank(t, k.out, p->out[i], bytes);
        if (!t->code) keep(t, pi__k_attention(pi__rt_stream(t->rt), &k));
        if (!get(t, p->out[i], k.out, bytes)) return true;
    }
    return !memcmp(p->out[0], p->out[1], bytes);
}

void pi__cuda_try_wgmma(tryout *t, cuda_disabled *disabled)
{
    static const int32_t tries[][3] = {{64, PI__BF16, PI__F16}, {128, PI__F16, PI__F16}, {256, PI__F16, PI__BF16}};
    if (t->arch != 90 || !t->fast) return;
    prompt *p = own(t, sizeof *p);
    if (!p) return;
    for (int32_t i = 0; i < TOKENS; i++) p->pos[i] = KEYS - TOKENS + i;
    for (int32_t i = 0; i < BLOCKS; i++) p->table[i] = i * 7 % BLOCKS;
    p->start[1] = TOKENS;
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
        disabled->wgmma_attention |= !attention_agrees(t, p, tries[i][0], tries[i][1], tries[i][2]);
    pi__free(p);
}