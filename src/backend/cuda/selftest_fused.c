/* More start-up checks of a device (selftest_ops.c): fused gate and up, for single matrices and, in FP4, for experts;
 * split-K; and sparse prefill.
 *
 * Memory: that of the tryout. The opening thread. */
#include "backend/cuda/kernels_w16_glu.h"
#include "backend/cuda/tryout.h"

#include "formats/formats.h"

/* ------------------------------------------------------------------------------------------------------------- gate
 * and up */

/* G_IN: columns of gate and up. G_OUT: rows of each. G_ROWS, FEW: rows of x in the two tests, which use different
 * kernels; both are multiples of 8. */
enum { G_IN = 128, G_OUT = 64, G_ROWS = PI__K_MMA_ROWS + 8, FEW = 8 };

typedef struct glu_try {
    float w[G_IN], x[G_ROWS * G_IN], zeros[G_ROWS];
    uint8_t file[16 * G_IN], tile[16 * G_IN];
    uint8_t blank[64 << 10], want[64 << 10], got[64 << 10]; /* packed rows */
} glu_try;

/* Addresses in device memory. */
typedef struct glu_at {
    pi__k_matrix gate, up;
    pi__k_input in;
    void *prepared, *want, *mid; /* packed x; packed results of gate and up: by separate launches; fused */
    float *y;                    /* [G_ROWS, 2 G_OUT] */
    const float *logits;         /* logits of the only expert */
    uint32_t *arrived, *most;
} glu_at;

static uint8_t *put_matrix(tryout *t, glu_try *g, const pi__k_matrix *m)
{
    const size_t row = pi__row_size(pi__type_info_of(m->type), G_IN);
    uint8_t *data = take(t, m->shape.mat_bytes);
    for (int32_t i = 0; i < G_OUT && !t->code; i++) {
        for (int32_t k = 0; k < G_IN; k++) g->w[k] = next(t);
        pi__quantize_row(m->type, g->w, g->file + (size_t) (i % 16) * row, G_IN, NULL);
        if (i % 16 < 15) continue;
        pi__cuda_pack_tile(m->type, &m->shape, G_IN, g->file, 16, g->tile);
        keep(t, pi__rt_upload(t->rt, data + (size_t) (i / 16) * m->shape.tile_bytes, g->tile, m->shape.tile_bytes));
    }
    return data;
}

/* True if the device's mid is equal to g->want, the packed rows of separate launches. Also true if mid cannot be read:
 * that error ends the self-test. */
static bool same_mid(tryout *t, glu_try *g, const glu_at *at, size_t bytes)
{
    return !get(t, g->got, at->mid, bytes) || !memcmp(g->got, g->want, bytes);
}

/* Runs the fused launch of experts: a single expert gets all rows, so that columns are rows. Returns a code. */
static int experts_glu(tryout *t, int form, const glu_at *at, int32_t rows)
{
    static const int32_t none[3];
    const size_t n = (size_t) rows * sizeof(int32_t);
    void *s = pi__rt_stream(t->rt);
    pi__k_routes r = {
        .logits = at->logits,
        .ldl = 1,
        .n_rows = rows,
        .n_expert = 1,
        .n_used = 1,
        .weights_scale = 1,
        .id = take(t, n),
        .weight = take(t, n),
        .column = take(t, n),
        .row = take(t, n),
        .n_tile = put(t, none, sizeof none),
        .marks = take(t, pi__k_route_scratch_words(rows, 1) * sizeof *r.marks),
        .first = take(t, pi__k_route_scratch_words(rows, 1) * sizeof *r.first),
    };
    for (int i = 0; i < 3; i++) r.tile[i] = take(t, (size_t) pi__k_max_tiles(rows, 1, 1, i) * sizeof(pi__k_tile));
    const pi__k_experts e = {.w = at->gate,
                             .data2 = at->up.data,
                             .row = r.row,
                             .mid = at->mid,
                             .mid_type = at->gate.type,
                             .act = PI__IN_SWIGLU,
                             .arrived = at->arrived,
                             .waits = t->waits};
    const int code = pi__k_route(s, &r);
    return code ? code : pi__cuda_experts(s, form, &r, &e, at->prepared);
}

/* Runs gate, up and activation fused; W16 with many rows has a second launch that rounds. Returns a code. */
static int as_one(tryout *t, int form, const glu_at *at, int32_t rows)
{
    void *s = pi__rt_stream(t->rt);
    const pi__k_glu fp4 = {.gate = at->gate, .up = at->up.data, .act = PI__IN_SWIGLU, .fp8 = form == PI__FORM_W4A8,
                           .arrived = at->arrived, .mid = at->mid, .waits = t->waits};
    const pi__k_w16_glu w16 = {.gate = at->gate, .up = at->up.data, .act = PI__IN_SWIGLU, .y = at->y, .ldy = 2 * G_OUT,
                               .most = at->most, .mid_type = at->gate.type, .mid = at->mid, .arrived = at->arrived,
                               .waits = t->waits};
    if (form == PI__FORM_W16 && rows <= PI__K_MMA_ROWS) return pi__k_w16_glu_few(s, &w16, at->prepared, rows);
    if (form == PI__FORM_W16 && t->wgmma && pi__k_wgmma_has_glu(at->gate.type))
        return pi__k_wgmma_glu_run(s, &w16, at->prepared, rows, 1);
    if (form == PI__FORM_W16) return pi__k_w16_glu_run(s, &w16, at->prepared, rows, NULL);
    return pi__k_fp4_glu(s, &fp4, at->prepared, rows);
}

/* True if fused gate and up give bitwise identical packed rows to separate launches; in FP4 and FP8, for experts, too.
 * Also true after an error of the runtime. */
static bool glu_is_right(tryout *t, glu_try *g, int form, const glu_at *at, int32_t rows)
{
    void *s = pi__rt_stream(t->rt);
    const pi__k_product p[2] = {{at->gate, at->y, 2 * G_OUT, 0}, {at->up, at->y + G_OUT, 2 * G_OUT, 0}};
    const pi__k_input gated = {
        .kind = PI__IN_SWIGLU, .x = at->y, .ldx = 2 * G_OUT, .x2 = at->y + G_OUT, .ldx2 = 2 * G_OUT};
    const size_t bytes = form == PI__FORM_W16 ? pi__k_w16_packed_x_bytes(rows, G_OUT)
                                              : pi__k_fp4_packed_x_bytes(rows, G_OUT);
    const int32_t type = at->gate.type;
    pi__assert(bytes <= sizeof g->got);
    blank(t, at->want, g->blank, bytes), blank(t, at->mid, g->blank, bytes);
    if (!t->code) keep(t, pi__cuda_pack_x(s, form, &at->in, type, rows, G_IN, at->prepared));
    if (!t->code) keep(t, pi__cuda_product(s, form, p, 2, at->prepared, rows, NULL));
    if (!t->code) keep(t, pi__cuda_pack_x(s, form, &gated, type, rows, G_OUT, at->want));
    if (!t->code) keep(t, as_one(t, form, at, rows));
    const bool right = get(t, g->want, at->want, bytes) && same_mid(t, g, at, bytes);
    if (form == PI__FORM_W16) return right || t->code;
    blank(t, at->mid, g->blank, bytes);
    if (!t->code) keep(t, experts_glu(t, form, at, rows));
    return (same_mid(t, g, at, bytes) && right) || t->code;
}

void pi__cuda_try_glu(tryout *t, cuda_disabled *disabled)
{
    static const int32_t types[] = {PI__NVFP4, PI__MXFP4, PI__Q8_0};
    static const uint32_t none;
    glu_try *g = own(t, sizeof *g);
    for (int i = 0; g && i < 3 && !t->code; i++) {
        const int form = pi__cuda_form(t->matmul_modes, types[i], G_IN);
        glu_at at = {.gate = {.type = types[i], .n_in = G_IN, .n_out = G_OUT}};
        t->used = 0;
        const bool fp4 = form == PI__FORM_FP4 || form == PI__FORM_W4A8;
        if ((!fp4 && form != PI__FORM_W16) || !pi__cuda_shape_of(types[i], G_IN, G_OUT, &at.gate.shape)) continue;
        for (int32_t k = 0; k < G_ROWS * G_IN; k++) g->x[k] = next(t);
        at.up = at.gate;
        at.gate.data = put_matrix(t, g, &at.gate), at.up.data = put_matrix(t, g, &at.up);
        at.in = (pi__k_input) {.kind = PI__IN_PLAIN, .x = put(t, g->x, sizeof g->x), .ldx = G_IN};
        at.prepared = take(t, fp4 ? pi__k_fp4_packed_x_bytes(G_ROWS, G_IN) : pi__k_w16_packed_x_bytes(G_ROWS, G_IN));
        at.y = take(t, G_ROWS * 2 * G_OUT * sizeof(float));
        at.want = take(t, sizeof g->want), at.mid = take(t, sizeof g->got);
        at.logits = put(t, g->zeros, sizeof g->zeros), at.arrived = put(t, &none, sizeof none);
        at.most = put(t, g->zeros, sizeof g->zeros);
        for (int many = 0; many < 2 && !t->code; many++)
            disabled->glu |= !glu_is_right(t, g, form, &at, many ? G_ROWS : FEW);
    }
    pi__free(g);
}

/* ------------------------------------------------------------------------------------------------------------------
 * split-K */

/* S_SM: assumed number of SMs, for which K is split into the max number of parts */
enum { S_IN = 4096, S_OUT = 16, S_ROWS = PI__K_MMA_ROWS + 6, S_SM = 64 };

typedef struct slices_try {
    float w[S_IN], x[S_ROWS * S_IN], y[2][S_ROWS * S_OUT];
    uint8_t file[S_OUT * S_IN * 2], tile[S_OUT * S_IN * 2];
    uint32_t none[PI__K_SPLIT_TILES];
} slices_try;

/* True if a tile has the same bits from two launches with split-K as from one without, and is not NaN. The second split
 * launch checks that the first one has reset the arrival counters. */
static bool slices_are_right(tryout *t, slices_try *a, int form, const pi__k_product *p, const void *prepared)
{
    pi__k_split split = {.n_sm = S_SM, .n_sums = pi__k_split_bytes(S_SM) / sizeof(float) / 16};
    split.sums = take(t, split.n_sums * sizeof(float)), split.arrived = put(t, a->none, sizeof a->none);
    bool right = true;
    for (int i = 0; i < 3; i++) {
        blank(t, p->y, a->y[i > 0], sizeof a->y[0]);
        if (!t->code) keep(t, pi__cuda_product(pi__rt_stream(t->rt), form, p, 1, prepared, S_ROWS, i ? &split : NULL));
        if (!get(t, a->y[i > 0], p->y, sizeof a->y[0])) return true;
        right = right && (i ? !memcmp(a->y[0], a->y[1], sizeof a->y[0]) : a->y[0][0] == a->y[0][0]);
    }
    return right;
}

void pi__cuda_try_slices(tryout *t, cuda_disabled *disabled)
{
    static const int32_t types[] = {PI__Q8_0, PI__NVFP4, PI__MXFP4};
    slices_try *a = own(t, sizeof *a);
    for (int i = 0; a && i < 3 && !t->code; i++) {
        const int form = pi__cuda_form(t->matmul_modes, types[i], S_IN);
        pi__k_product p = {.w = {.type = types[i], .n_in = S_IN, .n_out = S_OUT}, .ldy = S_OUT};
        const size_t row = pi__row_size(pi__type_info_of(types[i]), S_IN);
        t->used = 0;
        if (form != PI__FORM_FP4 && form != PI__FORM_W4A8 && (form != PI__FORM_W16 || i)) continue;
        if (!pi__cuda_shape_of(types[i], S_IN, S_OUT, &p.w.shape)) continue;
        for (int32_t k = 0; k < S_ROWS * S_IN; k++) a->x[k] = next(t);
        for (int32_t r = 0; r < S_OUT; r++) {
            for (int32_t k = 0; k < S_IN; k++) a->w[k] = next(t);
            pi__quantize_row(types[i], a->w, a->file + (size_t) r * row, S_IN, NULL);
        }
        pi__assert(p.w.shape.tile_bytes <= sizeof a->tile);
        pi__cuda_pack_tile(types[i], &p.w.shape, S_IN, a->file, S_OUT, a->tile);
        const pi__k_input in = {.kind = PI__IN_PLAIN, .x = put(t, a->x, sizeof a->x), .ldx = S_IN};
        const size_t bytes = form == PI__FORM_W16 ? pi__k_w16_packed_x_bytes(S_ROWS, S_IN)
                                                  : pi__k_fp4_packed_x_bytes(S_ROWS, S_IN);
        void *prepared = take(t, bytes);
        p.w.data = put(t, a->tile, p.w.shape.tile_bytes), p.y = take(t, sizeof a->y[0]);
        if (!t->code) keep(t, pi__cuda_pack_x(pi__rt_stream(t->rt), form, &in, types[i], S_ROWS, S_IN, prepared));
        disabled->slices |= !slices_are_right(t, a, form, &p, prepared);
    }
    pi__free(a);
}

/* ---------------------------------------------------------------------------------------------------------- sparse
 * prefill */

/* KEY: keys per key block. BLOCKS: key blocks. SLOTS: tokens per block of the cache. LIKED: see is_taken(). */
enum { DIM = 64, KEY = PI__SPARSE_BLOCK, BLOCKS = 9, SLOTS = 64, LIKED = 3 };

typedef struct sparse_try {
    uint16_t cache[BLOCKS * KEY / SLOTS][2][SLOTS][DIM]; /* per block: keys, then values, of one head */
    float q[KEY * DIM], out[KEY * DIM];
} sparse_try;

/* True if key block `block` has to be selected: the first and the last ones, which always are, and block LIKED. The
 * queries are at the positions of the last key block. They are parallel to the keys of LIKED, and opposite to all other
 * keys. */
static bool is_taken(int32_t block)
{
    return block < PI__SPARSE_SINKS || block == LIKED || block >= BLOCKS - PI__SPARSE_WINDOW;
}

/* Fills keys, values and queries. Values of key blocks that must not be selected are 4, far from all others. */
static void fill_sparse(tryout *t, sparse_try *a)
{
    for (int32_t k = 0; k < BLOCKS * KEY; k++)
        for (int32_t d = 0; d < DIM; d++) {
            const int32_t block = k / KEY;
            a->cache[k / SLOTS][0][k % SLOTS][d] = pi__f32_to_f16(block == LIKED ? 0.25f : -0.25f);
            a->cache[k / SLOTS][1][k % SLOTS][d] = pi__f32_to_f16(is_taken(block) ? next(t) : 4.0f);
        }
    for (int32_t i = 0; i < KEY * DIM; i++) a->q[i] = 0.125f;
}

/* True if the result of query i matches a softmax over the keys of the selected blocks, in double precision. */
static bool sparse_row_is_right(const sparse_try *a, int32_t i)
{
    double sum = 0, want[DIM] = {0};
    bool right = true;
    for (int32_t k = 0; k <= (BLOCKS - 1) * KEY + i; k++) {
        if (!is_taken(k / KEY)) continue;
        double dot = 0;
        for (int32_t d = 0; d < DIM; d++)
            dot += (double) a->q[i * DIM + d] * pi__f16_to_f32(a->cache[k / SLOTS][0][k % SLOTS][d]);
        const double p = exp(dot);
        sum += p;
        for (int32_t d = 0; d < DIM; d++) want[d] += p * pi__f16_to_f32(a->cache[k / SLOTS][1][k % SLOTS][d]);
    }
    for (int32_t d = 0; d < DIM; d++) right = right && near(a->out[i * DIM + d], want[d] / sum, 3e-3);
    return right;
}

void pi__cuda_try_key_blocks(tryout *t, cuda_disabled *disabled)
{
    const int32_t ints[] = {0, KEY, 0, 0}; /* one run: first token, end, sequence, query block */
    sparse_try *a = own(t, sizeof *a);
    int32_t pos[KEY], table[BLOCKS * KEY / SLOTS];
    if (!a) return;
    fill_sparse(t, a);
    for (int32_t i = 0; i < KEY; i++) pos[i] = (BLOCKS - 1) * KEY + i;
    for (int32_t i = 0; i < BLOCKS * KEY / SLOTS; i++) table[i] = i;
    const int32_t *d = put(t, ints, sizeof ints);
    uint32_t *taken = take(t, sizeof *taken);
    pi__k_attn k = {
        .q = put(t, a->q, sizeof a->q),
        .ldq = DIM,
        .q_stride = DIM,
        .out = take(t, sizeof a->out),
        .ldo = DIM,
        .n_head = 1,
        .n_tokens = KEY,
        .n_seqs = 1,
        .pos = put(t, pos, sizeof pos),
        .seq_start = d,
        .block_table = put(t, table, sizeof table),
        .table_stride = BLOCKS * KEY / SLOTS,
        .max_keys = BLOCKS * KEY,
        .fast = t->fast,
        .taken = taken,
        .taken_words = 1,
        .cache = {put(t, a->cache, sizeof a->cache), sizeof a->cache[0], PI__F16, PI__F16, 1, DIM, SLOTS},
    };
    const pi__k_blocks blocks = {.a = k, .sparsity = 0.5f, .first_key = BLOCKS - 1, .n = 1, .taken = taken,
                                 .scratch = take(t, pi__k_blocks_scratch(BLOCKS, 1, 1, 1, DIM))};
    k.run_seq = d + 2, k.run_block = d + 3;
    blank(t, k.out, a->out, sizeof a->out);
    if (!t->code) keep(t, pi__k_blocks_run(pi__rt_stream(t->rt), &blocks));
    if (!t->code) keep(t, pi__k_attention(pi__rt_stream(t->rt), &k));
    if (get(t, a->out, k.out, sizeof a->out))
        for (int32_t i = 0; i < KEY; i += 21) disabled->key_blocks |= !sparse_row_is_right(a, i);
    pi__free(a);
}