/* The CPU ops of latent attention and of DeepSeek V4. Compared with double precision; bitwise identical for every
 * chunking, thread count and block size, for each available instruction set. Unwritten memory is NaN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/sparse.h"
#include "base/alloc.h"
#include "isas.h"

enum { LEN = 300, D = 48, H = 20, ROT = 16, WINDOW = 24, TOP = 7, J = 32, I = 17, BLOCKS = 64 };
enum { RANK = D - ROT /* a row's first RANK values are also the value */ };
static const float EPS = 1e-6f;

typedef struct config {
    int isa, n_threads, block, chunk;
    int32_t type, ratio; /* type of the cache; ratio 4 or 128, 0 = rows of all tokens, as in DeepSeek V2 and V3 */
} config;

/* The projections' outputs of a layer, and its small tensors. */
static float q[LEN][H * D], row[LEN][D], comp[LEN][4 * D], icomp[LEN][4 * J], iq[LEN][I * J], iw[LEN][I];
static float ape[128 * 2 * D], iape[4 * 2 * J], norm[D], inorm[J], sinks[H], freq[ROT / 2];

static float random_value(uint64_t *rng)
{
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    return (float) ((double) (*rng >> 33) / 2147483648.0 - 0.5) * 3;
}

static void fill(float *x, size_t n, uint64_t *rng)
{
    for (size_t i = 0; i < n; i++) x[i] = random_value(rng);
}

static void make_inputs(void)
{
    uint64_t rng = 5;
    fill(q[0], LEN * H * D, &rng), fill(row[0], LEN * D, &rng), fill(comp[0], LEN * 4 * D, &rng);
    fill(icomp[0], LEN * 4 * J, &rng), fill(iq[0], LEN * I * J, &rng), fill(iw[0], LEN * I, &rng);
    fill(ape, 128 * 2 * D, &rng), fill(iape, 4 * 2 * J, &rng), fill(norm, D, &rng), fill(inorm, J, &rng),
        fill(sinks, H, &rng);
    for (int i = 0; i < ROT / 2; i++) freq[i] = 1.0f / (float) (1 << i);
}

/* ---- running */

typedef struct fixture {
    config c;
    pi__cpu cpu;
    pi__kv_layer rows, recent, entries, irecent, ientries;
    int32_t small[BLOCKS], large[BLOCKS]; /* block ids of groups 0 (rows, recent) and 1 (entries) */
    float out[LEN][H * D];
    int32_t pick[LEN][TOP];
} fixture;

static pi__kv_layer layer_of(fixture *w, int32_t group, int32_t type, int32_t n, int32_t ratio)
{
    pi__kv_layer kv = {.group = group, .type_k = type, .type_v = type, .n_head_kv = 1, .head_dim = n, .ratio = ratio};
    const int32_t block = group ? 128 : w->c.block;
    kv.stride = pi__cpu_row_bytes(&w->cpu.be, type, n, block / ratio) + 64;
    kv.base = malloc(BLOCKS * kv.stride);
    assert_non_null(kv.base);
    memset(kv.base, 0xff, BLOCKS * kv.stride);
    return kv;
}

static void start(fixture *w, const config *c)
{
    const pi__limits lim = {
        .max_tokens = LEN, .max_ctx = LEN, .max_row = D, .indexer_head = I, .indexer_dim = J, .indexer_ratio = 4};
    const int32_t r = c->ratio ? c->ratio : 128, width = r == 4 ? 2 * D : D;
    memset(w, 0, sizeof *w);
    w->c = *c;
    w->cpu.isa = c->isa;
    w->cpu.attn = pi__cpu_attn_kernels_of(c->isa);
    w->cpu.sparse = pi__cpu_sparse_kernels_of(c->isa);
    w->cpu.lim = lim;
    assert_int_equal(pi__pool_create(&w->cpu.pool, c->n_threads, 0, 50, NULL), PI_OK);
    const size_t a = pi__cpu_sparse_scratch(&w->cpu, &lim), b = pi__cpu_indexer_scratch(&w->cpu, &lim);
    w->cpu.scratch_size = a > b ? a : b;
    w->cpu.scratch = pi__map(w->cpu.scratch_size);
    assert_non_null(w->cpu.scratch);
    w->rows = layer_of(w, 0, c->type, D, 1);
    w->recent = layer_of(w, 0, PI__F32, 2 * width, 1);
    w->irecent = layer_of(w, 0, PI__F32, 4 * J, 1);
    w->entries = layer_of(w, 1, c->type, D, r);
    w->ientries = layer_of(w, 1, c->type, J, 4);
    for (int i = 0; i < BLOCKS; i++) w->small[i] = (i * 37 + 5) % BLOCKS, w->large[i] = (i * 29 + 3) % BLOCKS;
}

static void stop(fixture *w)
{
    free(w->rows.base), free(w->recent.base), free(w->irecent.base), free(w->entries.base), free(w->ientries.base);
    pi__unmap(w->cpu.scratch, w->cpu.scratch_size);
    pi__pool_destroy(w->cpu.pool);
}

/* Unchanged queries; rows are normalized except for their rotated part, which is not part of the value. */
static void step_latent(fixture *w, const pi__batch *b, float *q_now, const float *row_now, const float *rope)
{
    const pi__mla_qkv prep = {.rows = &w->rows,
                              .q = q_now,
                              .ldq = H * D,
                              .n_head = H,
                              .dim = D,
                              .q_scale = 1 / sqrtf(D),
                              .row = row_now,
                              .ldr = D,
                              .norm = norm,
                              .n_norm = RANK,
                              .eps = EPS,
                              .rope = rope,
                              .n_rot = ROT};
    const pi__sparse att = {.rows = &w->rows, .q = q_now, .ldq = H * D, .n_head = H, .dim = D, .dim_v = RANK,
                            .window = INT32_MAX, .out = q_now, .ldo = H * D};
    pi__cpu_mla_qkv(&w->cpu.be, b, &prep);
    pi__cpu_sparse(&w->cpu.be, b, &att);
}

/* Runs tokens pos to pos + n as one step of sequence 1; sequence 0 has no tokens. */
static void step(fixture *w, int32_t pos, int32_t n)
{
    pi__backend *be = &w->cpu.be;
    static float rope[LEN * ROT], qs[LEN][H * D], iqs[LEN][I * J];
    int32_t at[LEN], seq[LEN], slot[2][LEN], table[2][2 * BLOCKS], first[3] = {0, 0, n};
    for (int i = 0; i < n; i++) {
        at[i] = pos + i;
        seq[i] = 1;
        slot[0][i] = w->small[(pos + i) / w->c.block] * w->c.block + (pos + i) % w->c.block;
        slot[1][i] = w->large[(pos + i) / 128] * 128 + (pos + i) % 128;
    }
    for (int i = 0; i < BLOCKS; i++) {
        table[0][i] = table[1][i] = -1;
        table[0][BLOCKS + i] = w->small[i];
        table[1][BLOCKS + i] = w->large[i];
    }
    const pi__batch b = {.n_tokens = n, .n_seqs = 2, .n_groups = 2, .pos = at, .seq = seq, .seq_start = first,
                         .kv = {{w->c.block, BLOCKS, table[0], slot[0]}, {128, BLOCKS, table[1], slot[1]}}};
    memcpy(qs, q[pos], (size_t) n * sizeof *q), memcpy(iqs, iq[pos], (size_t) n * sizeof *iq);
    pi__cpu_rope(be, &b, &(pi__rope) {.freq = freq, .n_freq = ROT / 2, .mscale = 1.0f, .table = rope});
    if (!w->c.ratio) {
        step_latent(w, &b, qs[0], row[pos], rope);
        memcpy(w->out[pos], qs, (size_t) n * sizeof *qs);
        return;
    }
    pi__mla_qkv prep = {.rows = &w->rows, .q = qs[0], .ldq = H * D, .n_head = H, .dim = D, .q_norm = true,
                        .q_scale = 1 / sqrtf(D), .row = row[pos],
                       .ldr = D, .norm = norm, .n_norm = D, .eps = EPS, .rope = rope, .n_rot = ROT};
    pi__cpu_mla_qkv(be, &b, &prep);
    pi__compress comp_of = {.recent = &w->recent, .entries = &w->entries, .x = comp[pos], .ldx = 4 * D,
                            .ratio = w->c.ratio, .dim = D, .overlap = w->c.ratio == 4, .ape = ape,
                            .norm = norm, .eps = EPS, .freq = freq, .n_rot = ROT};
    pi__cpu_compress(be, &b, &comp_of);
    if (w->c.ratio == 4) {
        comp_of = (pi__compress) {.recent = &w->irecent, .entries = &w->ientries, .x = icomp[pos], .ldx = 4 * J,
                                  .ratio = 4, .dim = J, .overlap = true, .ape = iape,
                                  .norm = inorm, .eps = EPS, .freq = freq, .n_rot = ROT};
        pi__cpu_compress(be, &b, &comp_of);
        prep = (pi__mla_qkv) {
            .q = iqs[0], .ldq = I * J, .n_head = I, .dim = J, .q_scale = 1, .rope = rope, .n_rot = ROT};
        pi__cpu_mla_qkv(be, &b, &prep);
        const pi__indexer index = {.entries = &w->ientries, .q = iqs[0], .ldq = I * J, .w = iw[pos], .ldw = I,
                                   .n_head = I, .dim = J, .scale = 0.25f,
                                 .n_top = TOP, .pick = w->pick[pos]};
        pi__cpu_indexer(be, &b, &index);
    }
    const pi__sparse att = {.rows = &w->rows, .entries = &w->entries, .q = qs[0], .ldq = H * D, .n_head = H, .dim = D,
                            .dim_v = D, .window = WINDOW,
                            .pick = w->c.ratio == 4 ? w->pick[pos] : NULL, .n_top = TOP, .sinks = sinks, .rope = rope,
                            .n_rot = ROT, .out = qs[0], .ldo = H * D};
    pi__cpu_sparse(be, &b, &att);
    memcpy(w->out[pos], qs, (size_t) n * sizeof *qs);
}

static void run(fixture *w, const config *c)
{
    start(w, c);
    for (int32_t pos = 0; pos < LEN; pos += c->chunk) step(w, pos, LEN - pos < c->chunk ? LEN - pos : c->chunk);
    stop(w);
}

/* ---- reference */

static void ref_norm(const double *x, const float *w, int n, double *y)
{
    double ss = 0;
    for (int i = 0; i < n; i++) ss += x[i] * x[i];
    for (int i = 0; i < n; i++) y[i] = x[i] / sqrt(ss / n + EPS) * (w ? w[i] : 1);
}

static void ref_rotate(double *x, int n, int pos, int sign)
{
    x += n - ROT;
    for (int i = 0; i < ROT / 2; i++) {
        const double a = x[2 * i], b = x[2 * i + 1], t = sign * (double) pos * freq[i];
        x[2 * i] = a * cos(t) - b * sin(t);
        x[2 * i + 1] = a * sin(t) + b * cos(t);
    }
}

/* Computes entry e of a compressor. Each token has `width` floats of values, then `width` scores. */
static void ref_entry(int e, int ratio, int n, const float *x, int ld, const float *pe, const float *w,
                      double *out)
{
    const bool overlap = ratio == 4;
    const int width = overlap ? 2 * n : n, start = e * ratio;
    double y[D];
    for (int d = 0; d < n; d++) {
        double sum = 0, all = 0;
        for (int p = overlap && e ? start - ratio : start; p < start + ratio; p++) {
            const int at = d + (overlap && p >= start ? n : 0);
            const double s = exp(x[p * ld + width + at] + (double) pe[p % ratio * width + at]);
            all += s;
            sum += s * x[p * ld + at];
        }
        y[d] = sum / all;
    }
    ref_norm(y, w, n, out);
    ref_rotate(out, n, start, 1);
}

static void ref_head(const float *x, const float *w, bool normed, int n, int pos, double *out)
{
    double y[D];
    for (int d = 0; d < n; d++) out[d] = y[d] = x[d];
    if (normed) ref_norm(y, w, n, out);
    ref_rotate(out, n, pos, 1);
}

static double dot(const double *a, const double *b, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

/* Checks that picked entries score at least as high as all other visible ones. */
static void check_picks(const fixture *w, int t)
{
    const int n = (t + 1) / 4, k = n < TOP ? n : TOP;
    double score[LEN], least = INFINITY, most = -INFINITY, x[I][J], e[D];
    bool picked[LEN] = {false};
    for (int i = 0; i < k; i++) {
        assert_true(w->pick[t][i] >= 0 && w->pick[t][i] < n && (!i || w->pick[t][i] > w->pick[t][i - 1]));
        picked[w->pick[t][i]] = true;
    }
    for (int h = 0; h < I; h++) ref_head(iq[t] + h * J, NULL, false, J, t, x[h]);
    for (int i = 0; i < n; i++) {
        score[i] = 0;
        ref_entry(i, 4, J, icomp[0], 4 * J, iape, inorm, e);
        for (int h = 0; h < I; h++) score[i] += fmax(0, dot(x[h], e, J)) * iw[t][h] * 0.25;
        if (picked[i]) least = fmin(least, score[i]);
        else most = fmax(most, score[i]);
    }
    if (!(most <= least + 1e-3))
        fail_msg("isa %d token %d: an entry with %g was picked, one with %g not", w->c.isa, t, least, most);
}

static void check_token(const fixture *w, int t, double tolerance)
{
    const int ratio = w->c.ratio, seen = (t + 1) / ratio, n_entry = ratio == 4 && seen > TOP ? TOP : seen;
    const int lo = t >= WINDOW ? t - WINDOW + 1 : 0, n_row = t - lo + 1;
    double key[WINDOW + LEN / 4][D], x[D], out[D];
    for (int i = 0; i < n_row; i++) ref_head(row[lo + i], norm, true, D, lo + i, key[i]);
    for (int i = 0; i < n_entry; i++) {
        const int e = ratio == 4 ? w->pick[t][i] : i;
        ref_entry(e, ratio, D, comp[0], 4 * D, ape, norm, key[n_row + i]);
    }
    for (int h = 0; h < H; h++) {
        double all = exp(sinks[h]), p;
        ref_head(q[t] + h * D, NULL, true, D, t, x);
        memset(out, 0, sizeof out);
        for (int i = 0; i < n_row + n_entry; i++) {
            all += p = exp(dot(x, key[i], D) / sqrt(D));
            for (int d = 0; d < D; d++) out[d] += p * key[i][d];
        }
        for (int d = 0; d < D; d++) out[d] /= all;
        ref_rotate(out, D, t, -1);
        for (int d = 0; d < D; d++)
            if (!(fabs(w->out[t][h * D + d] - out[d]) <= tolerance))
                fail_msg("isa %d, ratio %d, type %d, token %d, head %d, dim %d: %g, not %g", w->c.isa, ratio, w->c.type,
                         t, h, d, w->out[t][h * D + d], out[d]);
    }
}

static void check_latent(const fixture *w, int t, double tolerance)
{
    static double key[LEN][D];
    double x[D], out[D];
    for (int i = 0; i <= t; i++) {
        double y[D];
        for (int d = 0; d < D; d++) y[d] = key[i][d] = row[i][d];
        ref_norm(y, norm, RANK, key[i]);
        ref_rotate(key[i], D, i, 1);
    }
    for (int h = 0; h < H; h++) {
        double all = 0, p;
        ref_head(q[t] + h * D, NULL, false, D, t, x);
        memset(out, 0, sizeof out);
        for (int i = 0; i <= t; i++) {
            all += p = exp(dot(x, key[i], D) / sqrt(D));
            for (int d = 0; d < RANK; d++) out[d] += p * key[i][d];
        }
        for (int d = 0; d < RANK; d++)
            if (!(fabs(w->out[t][h * D + d] - out[d] / all) <= tolerance))
                fail_msg("isa %d, type %d, token %d, head %d, dim %d: %g, not %g", w->c.isa, w->c.type, t, h, d,
                         w->out[t][h * D + d], out[d] / all);
    }
}

static void each_isa(void (*fn)(int isa))
{
    for (int i = PI__ISA_GENERIC; i < PI__N_ISAS; i++)
        if (own_kernels(i)) fn(i);
}

static void reference(int isa)
{
    static fixture w;
    for (int ratio = 4; ratio <= 128; ratio *= 32)
        for (int f16 = 0; f16 < (emulated() ? 1 : 2); f16++) {
            run(&w, &(config) {isa, 2, 16, 64, f16 ? PI__F16 : PI__F32, ratio});
            for (int t = 0; t < LEN; t += emulated() ? 31 : t < 40 ? 1 : 13) {
                if (ratio == 4 && !f16) check_picks(&w, t);
                check_token(&w, t, f16 ? 0.01 : 2e-5);
            }
            check_token(&w, 255, f16 ? 0.01 : 2e-5);
        }
}
static void test_reference(void **state) { (void) state; each_isa(reference); }

static void latent(int isa)
{
    static fixture w;
    for (int f16 = 0; f16 < (emulated() ? 1 : 2); f16++) {
        run(&w, &(config) {isa, 2, 16, 64, f16 ? PI__F16 : PI__F32, 0});
        for (int t = 0; t < LEN; t += emulated() ? 61 : t < 40 ? 1 : 13) check_latent(&w, t, f16 ? 0.01 : 2e-5);
    }
}
static void test_latent(void **state) { (void) state; each_isa(latent); }

static void cuts(int isa)
{
    static const struct { int threads, block, chunk; } way[] = {{1, 16, LEN}, {3, 64, 7}, {2, 32, 1}, {1, 64, 129}};
#define TYPE(type, ...) PI__##type,
    static const int32_t types[] = {PI__CACHE_TYPES(TYPE)};
#undef TYPE
    static fixture want, got;
    for (int i = 0; i < 3 * PI__N_KV_TYPES; i += emulated() ? 7 : 1) {
        const int32_t type = types[i / 3], ratio = i % 3 == 2 ? 0 : i % 3 ? 128 : 4;
        run(&want, &(config) {isa, 2, 16, 50, type, ratio});
        for (int k = 0; k < (emulated() ? 2 : 4); k++) {
            if (way[k].chunk == 1 && i > 5) continue; /* the slowest case */
            run(&got, &(config) {isa, way[k].threads, way[k].block, way[k].chunk, type, ratio});
            assert_memory_equal(got.out, want.out, sizeof got.out);
            assert_memory_equal(got.pick, want.pick, sizeof got.pick);
        }
    }
}
static void test_cuts(void **state) { (void) state; each_isa(cuts); }

/* With equal scores, the lowest entries are picked. The weights of all heads are 0, or NaN. */
static void ties(int isa)
{
    static fixture w;
    static float kept[LEN][I];
    memcpy(kept, iw, sizeof kept);
    for (int t = 0; t < LEN; t++)
        for (int h = 0; h < I; h++) iw[t][h] = t % 3 == 0 ? NAN : t % 3 == 1 ? 0.0f : -0.0f;
    run(&w, &(config) {isa, 2, 16, 64, PI__F32, 4});
    for (int t = 4 * TOP; t < LEN; t++)
        for (int i = 0; i < TOP; i++) assert_int_equal(w.pick[t][i], i);
    memcpy(iw, kept, sizeof kept);
}
static void test_ties(void **state) { (void) state; each_isa(ties); }

/* ---- residual streams */

static void ref_comb(const pi__hyper *a, const float *m, double f, double c[4][4])
{
    for (int r = 0; r < 4; r++) {
        double all = 0;
        for (int b = 0; b < 4; b++) all += c[r][b] = exp(m[8 + 4 * r + b] * f * a->scale[2] + a->base[8 + 4 * r + b]);
        for (int b = 0; b < 4; b++) c[r][b] = c[r][b] / all + a->eps;
    }
    for (int i = 0; i < 2 * a->n_iter - 1; i++)
        for (int x = 0; x < 4; x++) {
            double all = a->eps;
            for (int y = 0; y < 4; y++) all += i % 2 ? c[x][y] : c[y][x];
            for (int y = 0; y < 4; y++) *(i % 2 ? &c[x][y] : &c[y][x]) /= all;
        }
}

static void streams(int isa)
{
    enum { N = 52, ROWS = 9 };
    static float x[ROWS][4][N], was[ROWS][4][N], mix[ROWS][24], y[ROWS][N], coef[ROWS][20], base[24];
    const float scale[3] = {0.7f, -1.2f, 2};
    uint64_t rng = 9;
    pi__cpu cpu = {.sparse = pi__cpu_sparse_kernels_of(isa)};
    assert_int_equal(pi__pool_create(&cpu.pool, 2, 0, 50, NULL), PI_OK);
    for (int n_iter = 0; n_iter < 8; n_iter += 7) {
        fill(x[0][0], ROWS * 4 * N, &rng), fill(mix[0], ROWS * 24, &rng), fill(base, 24, &rng);
        memcpy(was, x, sizeof x);
        const pi__hyper a = {.n_rows = ROWS, .x = x[0][0], .n = N, .mix = mix[0], .scale = scale, .base = base,
                             .norm_eps = EPS, .eps = 1e-3f,
                             .n_iter = n_iter, .coef = coef[0], .y = y[0]};
        const int n_mix = n_iter ? 24 : 4;
        pi__cpu_hyper_pre(&cpu.be, NULL, &a);
        for (int r = 0; r < ROWS; r++) {
            const float *m = mix[0] + r * n_mix;
            double ss = 0, c[4][4], read[N];
            for (int s = 0; s < 4; s++)
                for (int i = 0; i < N; i++) ss += (double) was[r][s][i] * was[r][s][i];
            const double f = 1 / sqrt(ss / (4 * N) + EPS);
            for (int i = 0; i < N; i++) {
                read[i] = 0;
                for (int s = 0; s < 4; s++)
                    read[i] += (1 / (1 + exp(-(m[s] * f * scale[0] + base[s]))) + a.eps) * was[r][s][i];
                assert_true(fabs(read[i] - y[r][i]) < 2e-5);
            }
            if (!n_iter) continue;
            ref_comb(&a, m, f, c);
            for (int s = 0; s < 4; s++) {
                assert_true(fabs(2 / (1 + exp(-(m[4 + s] * f * scale[1] + base[4 + s]))) - coef[r][s]) < 1e-5);
                for (int b = 0; b < 4; b++) assert_true(fabs(c[s][b] - coef[r][4 + 4 * s + b]) < 1e-5);
            }
        }
        if (!n_iter) continue;
        pi__cpu_hyper_post(&cpu.be, NULL, &a);
        for (int r = 0; r < ROWS; r++)
            for (int b = 0; b < 4; b++)
                for (int i = 0; i < N; i++) {
                    double want = (double) coef[r][b] * y[r][i];
                    for (int s = 0; s < 4; s++) want += (double) coef[r][4 + 4 * s + b] * was[r][s][i];
                    assert_true(fabs(want - x[r][b][i]) < 2e-5);
                }
    }
    pi__pool_destroy(cpu.pool);
}
static void test_streams(void **state) { (void) state; each_isa(streams); }

static void test_sizes(void **state)
{
    (void) state;
    assert_int_equal(pi__cpu_row_bytes(NULL, PI__F16, 512, 1), 1024);
    assert_int_equal(pi__cpu_row_bytes(NULL, PI__Q8_0, 512, 32), 32 * 16 * 34);
    assert_int_equal(pi__cpu_row_bytes(NULL, PI__F32, 80, 1), 96 * 4); /* rows are padded */
    assert_int_equal(pi__cpu_row_bytes(NULL, PI__Q5_K, 512, 1), 0);
    assert_int_equal(pi__cpu_row_bytes(NULL, PI__F16, 24, 1), 0);
    assert_int_equal(pi__cpu_row_bytes(NULL, PI__F16, 4096, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reference), cmocka_unit_test(test_latent),
                                       cmocka_unit_test(test_cuts),      cmocka_unit_test(test_ties),
                                       cmocka_unit_test(test_streams),   cmocka_unit_test(test_sizes)};
    make_inputs();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
