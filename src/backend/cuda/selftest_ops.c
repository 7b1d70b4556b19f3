/* Start-up checks of a device, in addition to products (selftest.c): attention with and without KV splits, a delta
 * net in one step and in several, routed experts, fused launches, top-k and sampling, a graph replay; and the checks
 * of selftest_fused.c. Each check is small; all together take milliseconds. Features with wrong results are disabled
 * and logged.
 *
 * Memory: one region of device memory and one host buffer, for the time of the call. The opening thread. Invariant:
 * after an error of the runtime nothing more is queued, and opening the device fails. */
#include <math.h>
#include <string.h>

#include "backend/cuda/kernels_draw.h"
#include "backend/cuda/tryout.h"
#include "base/error.h"
#include "base/logits.h"
#include "formats/formats.h"

/* ----------------------------------------------------------------------------------------------------------
 * attention */

enum { DIM = 64, HEADS = 2, BLOCK = 16, N_BLOCKS = 40, LONG = 600 /* keys: three KV splits */, TOKENS = 4 };

typedef struct attention_try {
    uint16_t cache[N_BLOCKS * 2 * BLOCK * DIM]; /* per block: keys, then values, of one head */
    float q[TOKENS * HEADS * DIM];
    float out[2][TOKENS * HEADS * DIM];         /* without splits; with splits */
    double want[TOKENS * HEADS * DIM];
} attention_try;

/* Sequence 0 has one token that sees LONG keys; sequence 1 has three that see 33 to 35. Cache blocks are in mixed
 * order. */
static const int32_t attention_pos[TOKENS] = {LONG - 1, 32, 33, 34}, attention_start[3] = {0, 1, 4};

/* Returns the cache block with the b-th BLOCK tokens of a sequence. */
static int32_t block_of(int32_t seq, int32_t b) { return seq ? N_BLOCKS - 1 - b : b * 7 % 38; }

/* Computes the expected results on the host, in double precision. */
static void attention_want(attention_try *a)
{
    for (int32_t t = 0; t < TOKENS; t++)
        for (int32_t h = 0; h < HEADS; h++) {
            const float *q = a->q + (t * HEADS + h) * DIM;
            double *o = a->want + (t * HEADS + h) * DIM, sum = 0;
            for (int32_t j = 0; j <= attention_pos[t]; j++) {
                const uint16_t *k = a->cache + (size_t) block_of(t > 0, j / BLOCK) * 2 * BLOCK * DIM + j % BLOCK * DIM;
                double dot = 0;
                for (int32_t d = 0; d < DIM; d++) dot += (double) q[d] * pi__f16_to_f32(k[d]);
                const double p = exp(dot);
                sum += p;
                for (int32_t d = 0; d < DIM; d++) o[d] += p * pi__f16_to_f32(k[BLOCK * DIM + d]);
            }
            for (int32_t d = 0; d < DIM; d++) o[d] /= sum;
        }
}

static void try_attention(tryout *t, cuda_disabled *disabled)
{
    attention_try *a = own(t, sizeof *a);
    const size_t bytes = sizeof a->out[0];
    int32_t table[2 * 38];
    if (!a) return;
    for (size_t i = 0; i < sizeof a->cache / 2; i++) a->cache[i] = pi__f32_to_f16(next(t));
    for (size_t i = 0; i < sizeof a->q / 4; i++) a->q[i] = next(t) / 4;
    for (int32_t i = 0; i < 2 * 38; i++) table[i] = i < 38 || i - 38 < 3 ? block_of(i >= 38, i % 38) : -1;
    float *out = take(t, bytes);
    pi__k_attn k = {
        .q = put(t, a->q, sizeof a->q),
        .ldq = HEADS * DIM,
        .q_stride = DIM,
        .out = out,
        .ldo = HEADS * DIM,
        .n_head = HEADS,
        .n_tokens = TOKENS,
        .n_seqs = 2,
        .pos = put(t, attention_pos, sizeof attention_pos),
        .seq_start = put(t, attention_start, sizeof attention_start),
        .block_table = put(t, table, sizeof table),
        .table_stride = 38,
        .max_keys = LONG,
        .scratch_size = 2 << 20,
        .fast = t->fast,
        .cache = {put(t, a->cache, sizeof a->cache), 2 * BLOCK * DIM * 2, PI__F16, PI__F16, 1, DIM, BLOCK},
    };
    static const uint32_t none[2];
    void *scratch = take(t, k.scratch_size);
    k.arrived = put(t, none, sizeof none);
    k.waits = t->waits;
    attention_want(a);
    for (int i = 0; i < 2; i++) {
        k.scratch = i ? scratch : NULL;
        k.n_sm = i ? 1000 : 0;
        blank(t, out, a->out[i], bytes);
        if (!t->code) keep(t, pi__k_attention(pi__rt_stream(t->rt), &k));
        if (!get(t, a->out[i], out, bytes)) break;
    }
    for (size_t i = 0; i < bytes / 4; i++) disabled->attention |= !near(a->out[0][i], a->want[i], 3e-3);
    disabled->splits = memcmp(a->out[0], a->out[1], bytes) != 0;
    pi__free(a);
}

/* ----------------------------------------------------------------------------------------------------------- delta
 * nets */

enum { D = 128, CHANNELS = 3 * D, STEPS = 21 /* more than a chunk */ };

typedef struct delta_try {
    float in[STEPS][CHANNELS + D + 2]; /* queries, keys, values; z; alpha, beta */
    float conv[CHANNELS * 4], norm[D];
    float out[2][STEPS][D];            /* device results: all tokens in one step; in three steps */
    double s[D][D];                    /* the reference's state */
    bool ssd;                          /* Mamba-2: without l2 norms and the delta term, and the gate before the norm */
    bool kda;                          /* Kimi delta attention: log decays from z, one per row of S; gate sigmoid(z) */
} delta_try;

/* Computes q (part 0), k (1) or v (2) of token t in y[D]: convolution and silu; for q and k also the l2 norm,
 * except with ssd. */
static void delta_row(const delta_try *d, int t, int part, double *y)
{
    double ss = 0;
    for (int i = 0; i < D; i++) {
        y[i] = 0;
        for (int k = t < 3 ? 3 - t : 0; k < 4; k++)
            y[i] += (double) d->conv[(part * D + i) * 4 + k] * d->in[t - 3 + k][part * D + i];
        y[i] /= 1 + exp(-y[i]);
        ss += y[i] * y[i];
    }
    const double scale = part == 2 || d->ssd ? 1 : 1 / sqrt(ss + 1e-6) / (part ? 1 : sqrt(D));
    for (int i = 0; i < D; i++) y[i] *= scale;
}

/* True if the device's results match a token-by-token reference: S <- e^g S, then S <- S + k (outer) beta (v - k . S);
 * out = q . S, normalized and gated. dt_bias is -1, a is -0.5. */
static bool delta_is_right(delta_try *d)
{
    memset(d->s, 0, sizeof d->s);
    bool right = true;
    for (int t = 0; t < STEPS; t++) {
        double q[D], k[D], v[D], o[D], ss = 0;
        delta_row(d, t, 0, q), delta_row(d, t, 1, k), delta_row(d, t, 2, v);
        const float *z = d->in[t] + CHANNELS;
        const double dt = log1p(exp((double) z[D] - 1));
        double g[D];
        for (int a = 0; a < D; a++) g[a] = exp(-0.5 * (d->kda ? log1p(exp((double) z[a] - 1)) : dt));
        const double beta = d->ssd ? dt : 1 / (1 + exp(-(double) z[D + 1]));
        for (int b = 0; b < D; b++) {
            double p = 0;
            for (int a = 0; a < D; a++) p += k[a] * (d->s[a][b] *= g[a]);
            const double u = beta * (v[b] - (d->ssd ? 0 : p)), gate = z[b] / (1 + exp(-(double) z[b]));
            o[b] = 0;
            for (int a = 0; a < D; a++) o[b] += q[a] * (d->s[a][b] += k[a] * u);
            if (d->ssd) o[b] *= gate;
            ss += o[b] * o[b];
        }
        for (int b = 0; b < D; b++) {
            const double gate = d->ssd ? 1 : (d->kda ? 1 : z[b]) / (1 + exp(-(double) z[b]));
            const double want = o[b] * d->norm[b] / sqrt(ss / D + 1e-6) * gate;
            right = right && near(d->out[0][t][b], want, 1e-3);
        }
    }
    return right;
}

/* Runs tokens `from` to `to` - 1 in one step. */
static void delta_step(tryout *t, pi__k_gdn k, int32_t from, int32_t to)
{
    const int32_t n = to - from;
    int32_t ints[6 + STEPS] = {0, n, 0, 0, 0, n}; /* in one copy: each costs a call */
    const size_t used = t->used;
    for (int32_t i = 0; i < n; i++) ints[6 + i] = from + i;
    const int32_t *d = put(t, ints, (size_t) (6 + n) * sizeof *ints);
    k.pos = d + 6;
    k.seq_start = d, k.n_verified = d + 5, k.state_slot = d + 2, k.save_start = d + 3, k.save = d;
    k.n_tokens = k.least = k.most = n, k.n_seqs = 1;
    k.qkv += from * k.ld_qkv, k.z += from * k.ld_z, k.alpha += from * k.ld_ab, k.out += from * k.ldo;
    k.beta = k.state.ssd ? NULL : k.beta + from * k.ld_ab;
    if (!t->code) keep(t, pi__k_gdn_run(pi__rt_stream(t->rt), &k));
    t->used = used; /* safe: a later copy in the stream comes after this step */
}

/* Delta nets, then Mamba-2 and Kimi delta attention with the same inputs. */
static void try_delta(tryout *t, cuda_disabled *disabled)
{
    static const int32_t cuts[2][4] = {{0, STEPS, STEPS, STEPS}, {0, 17, 18, STEPS}};
    float dt_a[D + 1];
    delta_try *d = own(t, sizeof *d);
    pi__k_state st = {.n_k = 1, .n_v = 1, .dim = D, .n_conv = 4, .dim_v = D}, ssd = st, kda = st;
    ssd.ssd = 1;
    kda.kda = 1;
    if (!d) return;
    for (int i = 0; i < D; i++) dt_a[i] = -1;
    dt_a[D] = -0.5f;
    for (size_t i = 0; i < sizeof d->in / 4; i++) ((float *) d->in)[i] = next(t);
    for (size_t i = 0; i < CHANNELS * 4; i++) d->conv[i] = next(t);
    for (size_t i = 0; i < D; i++) d->norm[i] = 1 + next(t) / 4;
    const int64_t ld = CHANNELS + D + 2;
    const float *in = put(t, d->in, sizeof d->in), *small = put(t, dt_a, sizeof dt_a);
    /* enough for each */
    st.stride = pi__k_state_bytes(&st) + pi__k_state_bytes(&ssd) + pi__k_state_bytes(&kda);
    st.snap_stride = pi__k_snapshot_bytes(&st) + pi__k_snapshot_bytes(&ssd);
    st.base = take(t, st.stride), st.snap = take(t, st.snap_stride);
    pi__k_gdn k = {
        .qkv = in,
        .z = in + CHANNELS,
        .alpha = in + CHANNELS + D,
        .beta = in + CHANNELS + D + 1,
        .ld_qkv = ld,
        .ld_z = ld,
        .ld_ab = ld,
        .conv = put(t, d->conv, sizeof d->conv),
        .dt_bias = small,
        .a = small + D,
        .norm = put(t, d->norm, sizeof d->norm),
        .eps = 1e-6f,
        .out = take(t, sizeof d->out[0]),
        .ldo = D,
        .state = st,
        .scratch = take(t, pi__k_gdn_scratch(&st, STEPS) + pi__k_gdn_scratch(&ssd, STEPS) +
                           pi__k_gdn_scratch(&kda, STEPS)),
    };
    for (int i = t->fast ? 0 : 2; i < 8; i++) { /* one F16; hi + lo sums; Mamba-2; Kimi delta attention */
        float (*out)[D] = d->out[i % 2];
        blank(t, k.out, out, sizeof d->out[0]);
        k.n_sm = i % 2 ? 1000 : 0;
        k.state.exact = i / 2 == 1;
        k.state.ssd = d->ssd = i / 2 == 2;
        k.state.kda = d->kda = i / 2 == 3;
        k.alpha = in + CHANNELS + (d->kda ? 0 : D);
        for (int c = 0; c < 3; c++)
            if (cuts[i % 2][c + 1] > cuts[i % 2][c]) delta_step(t, k, cuts[i % 2][c], cuts[i % 2][c + 1]);
        if (!get(t, out, k.out, sizeof d->out[0])) break;
        if (i % 2) disabled->delta |= !delta_is_right(d) || memcmp(d->out[0], d->out[1], sizeof d->out[0]);
    }
    pi__free(d);
}

/* --------------------------------------------------------------------------------------------------------------
 * experts */

enum { EXPERTS = 4, USED = 2, ROWS = 90, E_IN = 256, E_OUT = 40, PAIRS = ROWS * USED };

typedef struct experts_try {
    float w[E_IN], x[ROWS * E_IN], logits[ROWS * EXPERTS];
    uint8_t file[16 * E_IN * 2];
    float alone[EXPERTS][ROWS * E_OUT], got[PAIRS * E_OUT];
    int32_t id[PAIRS], column[PAIRS];
} experts_try;

/* Packs n random matrices of type m->type (Q8_0) with E_OUT rows to `data`, in device memory: tiles of 16 rows, the
 * last one with 8. */
static void put_experts(tryout *t, experts_try *e, const pi__k_matrix *m, int32_t n, uint8_t *data)
{
    const size_t row = pi__row_size(pi__type_info_of(m->type), E_IN);
    for (int32_t i = 0; i < n * E_OUT && !t->code; i++) {
        const int32_t r = i % E_OUT % 16, of = i % E_OUT;
        for (int32_t k = 0; k < E_IN; k++) e->w[k] = next(t);
        pi__quantize_row(m->type, e->w, e->file + (size_t) r * row, E_IN, NULL);
        if (r < 15 && of < E_OUT - 1) continue;
        uint8_t *tile = e->file + sizeof e->file / 2;
        pi__cuda_pack_tile(m->type, &m->shape, E_IN, e->file, r + 1, tile);
        const size_t at = (size_t) (i / E_OUT) * m->shape.mat_bytes + (size_t) (of / 16) * m->shape.tile_bytes;
        keep(t, pi__rt_upload(t->rt, data + at, tile, m->shape.tile_bytes));
    }
}

/* Returns routes for n_rows rows, with their arrays in the device region. */
static pi__k_routes routes_of(tryout *t, const float *logits, int32_t n_rows)
{
    const size_t pairs = (size_t) n_rows * USED;
    pi__k_routes r = {
        .logits = logits,
        .ldl = EXPERTS,
        .n_rows = n_rows,
        .n_expert = EXPERTS,
        .n_used = USED,
        .weights_scale = 1,
        .id = take(t, pairs * sizeof(int32_t)),
        .weight = take(t, pairs * sizeof(float)),
        .column = take(t, pairs * sizeof(int32_t)),
        .row = take(t, pairs * sizeof(int32_t)),
        .n_tile = take(t, 3 * sizeof(int32_t)),
    };
    r.marks = take(t, pi__k_route_scratch_words(n_rows, EXPERTS) * sizeof *r.marks);
    r.first = take(t, pi__k_route_scratch_words(n_rows, EXPERTS) * sizeof *r.first);
    for (int i = 0; i < 3; i++)
        r.tile[i] = take(t, (size_t) pi__k_max_tiles(n_rows, EXPERTS, USED, i) * sizeof(pi__k_tile));
    return r;
}

/* True if each pair has the expected expert, and bitwise the results of a product with that expert's matrix. Also true
 * after an error of the runtime. */
static bool experts_agree(tryout *t, experts_try *e, const pi__k_routes *r, const float *alone, const float *y)
{
    bool agree = true;
    if (!get(t, e->alone, alone, sizeof e->alone) || !get(t, e->got, y, sizeof e->got) ||
        !get(t, e->id, r->id, sizeof e->id) || !get(t, e->column, r->column, sizeof e->column))
        return true;
    for (int32_t p = 0; p < PAIRS && agree; p++) {
        const int32_t at = p / USED, want = p % USED ? (at % 9 ? 1 : 0) : 2;
        agree = e->id[p] == want && e->column[p] >= 0 && e->column[p] < PAIRS &&
                !memcmp(e->got + e->column[p] * E_OUT, e->alone[want] + at * E_OUT, E_OUT * sizeof(float));
    }
    return agree;
}

/* Checks the products of experts in integers and, if enabled, in 16-bit floats. Products of single matrices, which have
 * been checked before, are the reference. Most rows go to expert 1, so that tiles of every width occur. */
static void try_experts(tryout *t, cuda_disabled *disabled)
{
    experts_try *e = own(t, sizeof *e);
    pi__k_matrix m = {.type = PI__Q8_0, .n_in = E_IN, .n_out = E_OUT};
    if (!e || !pi__cuda_shape_of(m.type, m.n_in, m.n_out, &m.shape)) {
        pi__free(e);
        return;
    }
    uint8_t *data = take(t, EXPERTS * m.shape.mat_bytes);
    put_experts(t, e, &m, EXPERTS, data);
    for (int32_t i = 0; i < ROWS * E_IN; i++) e->x[i] = next(t);
    for (int32_t i = 0; i < ROWS * EXPERTS; i++)
        e->logits[i] = i % EXPERTS == 2 ? 5.0f : i % EXPERTS == (i / EXPERTS % 9 ? 1 : 0) ? 4.0f : 0.0f;
    const pi__k_routes r = routes_of(t, put(t, e->logits, sizeof e->logits), ROWS);
    const pi__k_input in = {.kind = PI__IN_PLAIN, .x = put(t, e->x, sizeof e->x), .ldx = E_IN};
    void *prepared = take(t, pi__k_packed_x_bytes(ROWS, E_IN, 0)), *s = pi__rt_stream(t->rt);
    float *alone = take(t, sizeof e->alone), *y = take(t, sizeof e->got);
    m.data = data;
    const pi__k_experts all = {.w = m, .row = r.row, .y = y, .ldy = E_OUT};
    if (!t->code) keep(t, pi__k_route(s, &r));
    for (int w16 = 0; w16 <= t->w16 && !t->code; w16++) {
        const int form = w16 ? PI__FORM_W16 : PI__FORM_INTEGERS;
        blank(t, y, e->got, sizeof e->got);
        if (!t->code) keep(t, pi__cuda_pack_x(s, form, &in, m.type, ROWS, E_IN, prepared));
        if (!t->code) keep(t, pi__cuda_experts(s, form, &r, &all, prepared));
        for (int32_t i = 0; i < EXPERTS && !t->code; i++) {
            pi__k_product p = {m, alone + (size_t) i * ROWS * E_OUT, E_OUT, 0};
            p.w.data += (size_t) i * m.shape.mat_bytes;
            keep(t, pi__cuda_product(s, form, &p, 1, prepared, ROWS, NULL));
        }
        disabled->experts |= !experts_agree(t, e, &r, alone, y);
    }
    pi__free(e);
}

/* --------------------------------------------------------------------------------------------- launches with an
 * epilogue */

enum { FEW_ROWS = 2, FEW_PAIRS = FEW_ROWS * USED };

/* Results of two products (y, logits), the epilogue (x, sum, floats) and the routes (weight, column). */
typedef struct tail_results {
    float y[FEW_ROWS * E_OUT], logits[FEW_ROWS * EXPERTS], x[FEW_ROWS * E_OUT], sum[FEW_ROWS * E_OUT],
        floats[FEW_ROWS * E_OUT];
    float weight[FEW_PAIRS];
    int32_t column[FEW_PAIRS];
} tail_results;

typedef struct tail_try {
    experts_try e;
    float router[EXPERTS * E_IN], x[FEW_ROWS * E_OUT];
    tail_results got[2]; /* separate launches; one launch */
} tail_try;

/* Queues products p[0] (router logits) and p[1], the routes, sums of experts, residual add and the packing of the next
 * input. one: true = a single launch with epilogue `tail`; false = separate launches. */
static void queue_layer(tryout *t, const pi__k_product p[2], const pi__k_tail *tail, const void *halves,
                        const float *floats, bool one)
{
    void *s = pi__rt_stream(t->rt);
    const pi__add_norm add = {tail->add->x, tail->add->y, NULL, NULL, 0, 1, FEW_ROWS, E_OUT};
    int code = t->code;
    if (!code && one) code = pi__k_mixed_linear(s, p, 2, halves, floats, FEW_ROWS, tail);
    if (!code && !one) code = pi__k_linear(s, &p[0], 1, floats, FEW_ROWS);
    if (!code && !one) code = pi__k_w16_linear(s, &p[1], 1, halves, FEW_ROWS);
    if (!code && !one) code = pi__k_route(s, &tail->routes);
    if (!code && !one) code = pi__k_add_experts(s, &tail->sum);
    if (!code && !one) code = pi__k_add_norm(s, &add);
    if (!code && !one) code = pi__k_pack_x(s, &tail->in, FEW_ROWS, E_OUT, 1, tail->floats);
    keep(t, code);
}

/* Checks that one launch with an epilogue is bitwise identical to separate launches. */
static void try_tails(tryout *t, cuda_disabled *disabled)
{
    static const uint32_t none;
    static const int32_t columns[FEW_PAIRS] = {2, 0, 1, 3};
    tail_try *f = own(t, sizeof *f);
    pi__k_matrix m[2] = {{.type = PI__F32, .n_in = E_IN, .n_out = EXPERTS},
                         {.type = PI__Q8_0, .n_in = E_IN, .n_out = E_OUT}};
    if (!f || !pi__cuda_shape_of(PI__F32, E_IN, EXPERTS, &m[0].shape) ||
        !pi__cuda_shape_of(PI__Q8_0, E_IN, E_OUT, &m[1].shape)) {
        pi__free(f);
        return;
    }
    uint8_t *data = take(t, m[1].shape.mat_bytes);
    put_experts(t, &f->e, &m[1], 1, data);
    for (int32_t i = 0; i < EXPERTS * E_IN; i++) f->router[i] = next(t);
    for (int32_t i = 0; i < FEW_ROWS * E_IN; i++) f->e.x[i] = next(t);
    for (int32_t i = 0; i < FEW_ROWS * E_OUT; i++) f->x[i] = next(t);
    m[0].data = put(t, f->router, sizeof f->router), m[1].data = data;
    const pi__k_input in = {.kind = PI__IN_PLAIN, .x = put(t, f->e.x, FEW_ROWS * E_IN * sizeof(float)), .ldx = E_IN};
    void *halves = take(t, pi__k_w16_packed_x_bytes(FEW_ROWS, E_IN)), *s = pi__rt_stream(t->rt);
    tail_results *to = take(t, sizeof *to);
    const float *parts = in.x;
    pi__k_tail tail = {
        .arrived = put(t, &none, sizeof none),
        .waits = t->waits,
        .n_rows = FEW_ROWS,
        .add = {{.x = to->x, .y = to->sum, .scale = 1, .n = E_OUT}},
        .in = {.kind = PI__IN_PLAIN, .x = to->x, .ldx = E_OUT},
        .n_in = E_OUT,
        .floats = to->floats,
        .sum = {.n_rows = FEW_ROWS,
                .n_used = USED,
                .column = put(t, columns, sizeof columns),
                .weight = parts,
                .x = parts,
                .n = E_OUT,
                .y = to->sum,
                .ldy = E_OUT},
        .routes = routes_of(t, to->logits, FEW_ROWS),
    };
    tail.routes.weight = to->weight, tail.routes.column = to->column;
    const pi__k_product p[2] = {{m[0], to->logits, EXPERTS, 0}, {m[1], to->y, E_OUT, 0}};
    if (!t->code) keep(t, pi__k_w16_pack_x(s, &in, PI__Q8_0, FEW_ROWS, E_IN, halves));
    for (int i = 0; i < 2; i++) {
        blank(t, to, &f->got[i], sizeof *to);
        if (!t->code) keep(t, pi__rt_upload(t->rt, to->x, f->x, sizeof f->x));
        queue_layer(t, p, &tail, halves, in.x, i);
        if (!get(t, &f->got[i], to, sizeof *to)) break;
    }
    disabled->tails = memcmp(&f->got[0], &f->got[1], sizeof *to) != 0;
    pi__free(f);
}

/* ------------------------------------------------------------------------------------------------- top-k, and a
 * replay */

enum { VOCAB = 5000, TOP = 20 };

/* Returns the token that min-p and temperature draw from row x of VOCAB logits. u: the random number, 0 <= u < 1. */
static int32_t drawn(const float *x, const pi__draw *d, double u)
{
    float max = x[0];
    double all = 0, run = 0;
    for (int32_t i = 1; i < VOCAB; i++) max = x[i] > max ? x[i] : max;
    for (int32_t i = 0; i < VOCAB; i++)
        if (x[i] >= max + d->log_min_p) all += (double) pi__exp_neg(x[i] / d->temp - max / d->temp);
    for (int32_t i = 0; i < VOCAB; i++) {
        if (x[i] >= max + d->log_min_p) run += (double) pi__exp_neg(x[i] / d->temp - max / d->temp);
        if (run > u * all) return i;
    }
    return -1;
}

/* Checks draws from the values that topk found, and from all logits of a row. With these parameters the expected
 * token does not depend on the order of sums. With a top-p of 1e-6 it is the best token. */
static void try_draw(tryout *t, const pi__k_top *k, const float *x, cuda_disabled *disabled)
{
    enum { DRAWS = 9 };
    for (int i = 0; i < DRAWS; i++) {
        const pi__draw d = {.high = (uint32_t) i * (0x1FFFFFu / DRAWS), .top_p = i % 3 == 2 ? 1e-6f : 1, .row = i % 2,
                            .log_min_p = i % 4 == 3 ? -INFINITY : -0.002f * (float) (1 + i % 2), .temp = 0.002f};
        const pi__draw best = {.log_min_p = 0, .temp = 1};
        const int32_t want = d.top_p < 1 ? drawn(x, &best, 0) : drawn(x, &d, (double) d.high * 0x1p-21);
        const pi__k_draw a = {.found = k->out,
                              .request = k->request,
                              .draw = put(t, &d, sizeof d),
                              .n_rows = 1,
                              .k = TOP,
                              .out = take(t, 3 * sizeof(uint64_t)),
                              .x = i % 2 ? k->x : NULL,
                              .n = VOCAB};
        uint64_t got[3];
        blank(t, a.out, got, sizeof got);
        if (!t->code) keep(t, pi__k_draw_run(pi__rt_stream(t->rt), &a));
        if (get(t, got, a.out, sizeof got)) disabled->topk |= (uint32_t) got[0] || (int32_t) (uint32_t) got[2] != want;
    }
}

static void try_topk(tryout *t, cuda_disabled *disabled)
{
    /* x: the row. left: a copy of x in which values that have been compared are set to -2, below all others */
    float *x = own(t, 2 * VOCAB * sizeof *x), *left = x + VOCAB;
    /* request: number of values, indices to skip, no sum; then the skipped index */
    const int32_t ints[] = {TOP, 1, 0, 17};
    uint64_t got[2 + TOP];
    if (!x) return;
    for (int32_t i = 0; i < VOCAB; i++) x[i] = next(t);
    const int32_t *d = put(t, ints, sizeof ints);
    const pi__k_top k = {.x = put(t, x, VOCAB * sizeof *x),
                         .n_rows = 1,
                         .k = TOP,
                         .n = VOCAB,
                         .skip = d + 3,
                         .request = d,
                         .scratch = take(t, pi__k_top_scratch(1, VOCAB)),
                         .out = take(t, sizeof got)};
    if (!t->code) keep(t, pi__k_top_run(pi__rt_stream(t->rt), &k));
    x[17] = -2;
    memcpy(left, x, VOCAB * sizeof *x);
    if (get(t, got, k.out, sizeof got)) {
        for (int i = 0; i < TOP; i++) {
            int32_t best = 0;
            for (int32_t j = 1; j < VOCAB; j++) best = left[j] > left[best] ? j : best;
            disabled->topk |= (int32_t) (uint32_t) got[2 + i] != best;
            left[best] = -2;
        }
        if (!disabled->topk) try_draw(t, &k, x, disabled);
    }
    pi__free(x);
}

/* Queues three softcaps of x; each reads the results of the previous one. Returns a code of the runtime. */
static int softcaps(tryout *t, float *x, int32_t n)
{
    int code = 0;
    for (int i = 0; i < 3 && !code; i++) {
        const pi__softcap a = {x, 1 - 0.1f * (float) i, 1, n};
        code = pi__k_softcap(pi__rt_stream(t->rt), &a);
    }
    return code;
}

/* True if replaying captured kernels twice gives the same bits as queueing them twice. A refused capture is not an
 * error of the runtime; it also returns false. */
static bool try_replay(tryout *t)
{
    enum { N = 1000 };
    float x[N], got[2][N];
    for (int i = 0; i < N; i++) x[i] = 2 * next(t);
    float *direct = put(t, x, sizeof x), *replayed = put(t, x, sizeof x);
    pi__rt_graph *g = NULL;
    for (int i = 0; i < 2 && !t->code; i++) keep(t, softcaps(t, direct, N));
    if (!get(t, got[0], direct, sizeof x) || pi__rt_capture(t->rt)) return false;
    int code = softcaps(t, replayed, N);
    if (pi__rt_capture_end(t->rt, &g)) return false;
    for (int i = 0; i < 2 && !code; i++) code = pi__rt_replay(t->rt, g);
    const bool same = !code && get(t, got[1], replayed, sizeof x) && !memcmp(got[0], got[1], sizeof x);
    pi__rt_graph_free(t->rt, g);
    return same;
}

/* ------------------------------------------------------------------------------------------------------------------
 * all */

/* Logs one line for each feature that the checks have disabled. records: captures were enabled before. */
static void tell(const pi__cuda *c, bool records, const pi__log *log)
{
    const cuda_disabled *w = &c->f.disabled;
    const struct { bool is; const char *what; } lines[] = {
        {w->attention,
         "attention is wrong: the cache cannot be on this device: update the driver, or give device cpu"},
        {w->splits && !w->attention,
         "attention with split keys is wrong: KV splits are disabled, long contexts are slower"},
        {w->wgmma_attention && !w->attention,
         "attention by wgmma differs from mma.sync: it is disabled, prompts are slower"},
        {w->slices,
         "matmul tiles shared by blocks are wrong: sharing is disabled, prompts and large batches are slower"},
        {w->key_blocks && !w->attention, "sparse prefill is wrong: prefill-sparsity is disabled"},
        {w->glu, "gate, up and activation in one launch are wrong: they are separate launches, which is slower"},
        {w->delta, "delta nets or Mamba-2 are wrong: models with one of them cannot run on this device: update the "
         "driver, or give device cpu"},
        {w->tails, "fused ops are wrong: cuda-fuse is disabled, which is slower"},
        {w->experts, "routed experts are wrong: MoE models cannot run on this device: give cpu-moe, or device cpu"},
        {w->topk, "top-k of a row, or sampling from it, is wrong: logits are copied to the host, which is slower"},
        {records && !c->records, "replay of captured work is wrong: cuda-graphs is disabled"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (lines[i].is) pi__logf(log, PI_LOG_WARN, "%s: %s", c->desc, lines[i].what);
}

int pi__cuda_check_ops(pi__cuda *c, const pi__log *log, pi_error *err)
{
    static void (*const tries[])(tryout *t, cuda_disabled *disabled) = {
        try_attention,       pi__cuda_try_wgmma,     try_delta, try_experts, try_tails, try_topk, pi__cuda_try_glu,
        pi__cuda_try_slices, pi__cuda_try_key_blocks};
    const bool records = c->records;
    tryout t = {.rt = c->rt, .rng = 1, .fast = c->one_f16, .w16 = (c->f.matmul_modes & PI__WAY_W16) != 0,
                .matmul_modes = c->f.matmul_modes, .wgmma = c->f.wgmma, .arch = c->info.arch,
                .waits = pi__cuda_waits(c)};
    void *p;
    keep(&t, pi__rt_alloc(c->rt, &p, DEVICE_BYTES));
    t.p = p;
    t.no_room = !p;
    for (size_t i = 0; i < sizeof tries / sizeof *tries && !t.code && !t.no_room; i++) {
        t.used = 0;
        tries[i](&t, &c->f.disabled);
    }
    t.used = 0;
    if (!t.code && !t.no_room && records) c->records = try_replay(&t);
    pi__rt_free(c->rt, p);
    if (t.code) return pi__fail(err, PI_EDEVICE, "%s failed in the self-test: %.300s", c->desc, pi__rt_text(t.code));
    if (t.no_room) return pi__fail_mem(err, "the device's self-test");
    c->f.fuses = c->f.fuses && !c->f.disabled.tails;
    tell(c, records, log);
    return PI_OK;
}