/* Matmul on the CPU: every weight format in many shapes compared with double arithmetic. Results are bitwise
 * independent of batch and threads. Also prologues and embedding rows. Each available instruction set runs the same
 * tests. */
#include "rounds.h"
#include "weights.h"

static void backend_start(pi__cpu *cpu, const pi__cpu_linear_kernels *k, int32_t threads, int64_t max_n_in,
                          int32_t max_rows)
{
    cpu_start(cpu, k, threads, &(pi__limits) {.max_tokens = max_rows, .max_n_in = max_n_in});
}

/* Rounds x as kernels may do: integer codes up to `most` times a scale, in blocks of 32. */
static void round_row(const float *x, int64_t n, float most, double *q)
{
    for (int64_t b = 0; b < n; b += 32) {
        float amax = 0;
        for (int i = 0; i < 32; i++) amax = fmaxf(amax, fabsf(x[b + i]));
        float d = amax / most, id = amax > 0 ? most / amax : 0;
        for (int i = 0; i < 32; i++) q[b + i] = (double) d * rint((double) (x[b + i] * id));
    }
}

static void check_results(const fixture *f, const float *x, const float *y, int64_t ldy, int32_t n_rows, bool floats)
{
    const int64_t n = f->w.n_in;
    double *q = malloc((size_t) (n + 32) * sizeof *q);
    for (int32_t r = 0; r < n_rows; r++) {
        const float *xr = x + r * n;
        if (floats) for (int64_t k = 0; k < n; k++) q[k] = xr[k];
        else round_row(xr, n, code_max(&f->cpu), q);
        for (int64_t o = 0; o < f->w.n_out; o++) {
            const float *w = f->ref + o * n;
            double exact = 0, same = 0, size = 0, bound = 0;
            for (int64_t k = 0; k < n; k++) {
                exact += (double) w[k] * xr[k];
                same += (double) w[k] * q[k];
                size += fabs((double) w[k] * q[k]);
                bound += fabs((double) w[k] * (q[k] - xr[k]));
            }
            /* Formats with a minimum subtract terms larger than the values, and their rounding error is relative to
             * these terms. */
            double tight = 4e-6 * (size + 1e-3), got = y[r * ldy + o];
            if (!(fabs(got - same) <= tight) || !(fabs(got - exact) <= bound + tight))
                fail_msg("%s %lld x %lld, row %d, out %lld: %.9g, not %.9g", pi__type_info_of(f->w.type)->name,
                         (long long) n, (long long) f->w.n_out, r, (long long) o, got, same);
        }
    }
    free(q);
}

static void run_shape(const pi__cpu_linear_kernels *k, int type, int64_t n_in, int64_t n_out, int32_t n_rows)
{
    fixture f = {0};
    const int64_t ldy = n_out + 5;
    backend_start(&f.cpu, k, 2, n_in, n_rows);
    weight_make(&f, type, n_in, n_out, 1);
    float *x = random_rows(n_rows * n_in), *y = random_rows(n_rows * ldy);
    pi__lin lin = {&f.w, y, ldy};
    pi__lin_in in = {.kind = PI__IN_PLAIN, .x = x, .ldx = n_in};
    float edge = y[n_out];
    pi__cpu_linear(&f.cpu.be, NULL, &(pi__linear) {.in = in, .n_rows = n_rows, .n_lin = 1, .lin = {lin}});
    check_results(&f, x, y, ldy, n_rows, is_float(type));
    assert_true(y[n_out] == edge); /* nothing past n_out is written */
    free(x);
    free(y);
    weight_drop(&f);
    backend_stop(&f.cpu);
}

static void shapes(const pi__cpu_linear_kernels *k)
{
    if (emulated() && !strcmp(k->name, "generic")) return; /* other builds run plain C natively */
    static const int32_t rows[] = {1, 2, 3, 8, 17, 64};
    static const int64_t outs[] = {1, 7, 16, 33, 640};
    for (int t = 0; t < N_TYPES; t++) {
        const int64_t blck = pi__type_info_of(all_types[t])->blck_size, unit = blck < 32 ? 32 : blck;
        const int64_t ins[] = {unit, 3 * unit, is_float(all_types[t]) ? 77 : 5 * unit, 640 / unit * unit};
        for (int i = 0; i < 4; i += emulated() ? 3 : 1)
            for (int r = crossed() ? t % 2 : 0; r < 6; r += slow_vectors() ? 5 : crossed() ? 2 : 1)
                run_shape(k, all_types[t], ins[i], outs[(t + i + r) % 4], rows[r]);
        run_shape(k, all_types[t], 2048, 33, 5);
        run_shape(k, all_types[t], 2 * unit, 640, 2);
    }
}
static void test_shapes(void **state) { (void) state; each_isa(shapes); }

/* Codes with all bits set or clear, and activations of maximum magnitude, give the largest possible sums. */
static void full_codes(const pi__cpu_linear_kernels *k)
{
    enum { N = 512, OUT = 24, ROWS = 7 };
    float x[ROWS * N], y[ROWS * OUT];
    for (int i = 0; i < ROWS * N; i++) x[i] = i / N % 2 ? -1.0f : i / 64 % 2 ? 1.0f : 0.5f; /* constant blocks */
    for (int t = 0; t < N_TYPES; t++) {
        fixture f = {0};
        const pi__type_info *info = pi__type_info_of(all_types[t]);
        const size_t row = pi__row_size(info, N);
        if (is_float(all_types[t])) continue;
        backend_start(&f.cpu, k, 2, N, ROWS);
        weight_make(&f, all_types[t], N, OUT, 1);
        for (size_t at = 0; at < OUT * row; at += info->type_size) {
            memset(f.src + at, at / row % 2 ? 0xff : 0, info->type_size);
            random_scales(all_types[t], f.src + at);
        }
        for (size_t o = 0; o < OUT; o++) pi__dequantize_row(all_types[t], f.src + o * row, f.ref + o * N, N);
        load_all(&f);
        for (int32_t n_rows = ROWS; n_rows > 0; n_rows -= ROWS - 1) {
            const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = x, .ldx = N};
            pi__cpu_linear(&f.cpu.be, NULL,
                           &(pi__linear) {.in = in, .n_rows = n_rows, .n_lin = 1, .lin = {{&f.w, y, OUT}}});
            check_results(&f, x, y, OUT, n_rows, false);
        }
        weight_drop(&f);
        backend_stop(&f.cpu);
    }
}
static void test_full_codes(void **state) { (void) state; each_isa(full_codes); }

/* All x86 instruction sets give the same bits. */
static void x86_bits(int type, int bits, const float *x, const float *x2, const float *w)
{
    enum { N_IN = 768, N_OUT = 40 };
    static const int32_t counts[] = {1, 2, 3, 4, 5, 7, 10, 16, 25};
    static float all[2][sizeof counts / sizeof *counts][25 * N_OUT];
    for (int isa = PI__ISA_AVX2, nth = 0; isa < PI__N_ISAS; isa++) {
        fixture f = {0};
        if (!kernels_here(isa, bits)) continue;
        backend_start(&f.cpu, kernels_here(isa, bits), 2, N_IN, 25);
        seed = 54321; /* equal weights for all */
        weight_make(&f, type, N_IN, N_OUT, 1);
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            const pi__lin_in in = {.kind = type % 4, .x = x, .ldx = N_IN, .x2 = x2, .ldx2 = N_IN, .w = w, .eps = 1e-6f};
            float *y = all[nth > 0][c];
            memset(y, 0, sizeof all[0][c]);
            const pi__linear op = {.in = in, .n_rows = counts[c], .n_lin = 1, .lin = {{&f.w, y, N_OUT}}};
            pi__cpu_linear(&f.cpu.be, NULL, &op);
            if (memcmp(all[0][c], y, sizeof all[0][c]))
                fail_msg("%s: type %d, %d bits, %d rows", f.cpu.lin->name, type, bits, counts[c]);
        }
        nth++;
        weight_drop(&f);
        backend_stop(&f.cpu);
    }
}

static void test_x86_bits(void **state)
{
    (void) state;
    enum { N = 25 * 768 };
    float *x = random_rows(N), *x2 = random_rows(N), *w = random_rows(768);
    for (int i = 0; i < N; i += 32) x[i] *= 100, x2[i + 5] *= 100; /* codes of full size next to small ones */
    for (int t = 0; t < N_TYPES; t++)
        for (int bits = 8; bits <= 15; bits += 7) x86_bits(all_types[t], bits, x, x2, w);
    free(x), free(x2), free(w);
}

/* Every group width and row count gives each row the bits that it gets in a batch of one, with any number of
 * threads. */
static void same_bits(const pi__cpu_linear_kernels *k)
{
    enum { ROWS = 70 };
    static const int32_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 16, 17, 31, 33, 48, 70};
    if (emulated() && !strcmp(k->name, "generic")) return; /* as above */
    for (int t = 0; t < N_TYPES; t++) {
        const int64_t n_in = 512, n_out = 40;
        float *x = random_rows(ROWS * n_in), *x2 = random_rows(ROWS * n_in), *w = random_rows(n_in);
        float *alone = malloc(ROWS * (size_t) n_out * sizeof *alone), *y = malloc(ROWS * (size_t) n_out * sizeof *y);
        for (int32_t threads = 1; threads <= 3; threads += crossed() ? 2 : 1) {
            fixture f = {0};
            backend_start(&f.cpu, k, threads, n_in, ROWS);
            seed = 12345; /* equal weights for every number of threads */
            weight_make(&f, all_types[t], n_in, n_out, 1);
            pi__lin_in in = {.kind = t % 4, .x = x, .ldx = n_in, .x2 = x2, .ldx2 = n_in, .w = w, .eps = 1e-6f};
            if (threads == 1)
                for (int32_t r = 0; r < ROWS; r++) {
                    pi__lin_in one = in;
                    pi__lin lin = {&f.w, alone + r * n_out, n_out};
                    one.x += r * n_in;
                    one.x2 += r * n_in;
                    pi__cpu_linear(&f.cpu.be, NULL, &(pi__linear) {.in = one, .n_rows = 1, .n_lin = 1, .lin = {lin}});
                }
            for (size_t c = crossed() ? (size_t) t % 3 : 0; c < sizeof counts / sizeof *counts;
                 c += crossed() ? 3 : 1) {
                pi__lin lin = {&f.w, y, n_out};
                memset(y, 0, ROWS * (size_t) n_out * sizeof *y);
                pi__cpu_linear(&f.cpu.be, NULL,
                               &(pi__linear) {.in = in, .n_rows = counts[c], .n_lin = 1, .lin = {lin}});
                assert_memory_equal(y, alone, (size_t) counts[c] * (size_t) n_out * sizeof *y);
            }
            weight_drop(&f);
            backend_stop(&f.cpu);
        }
        free(x), free(x2), free(w), free(alone), free(y);
    }
}
static void test_same_bits(void **state) { (void) state; each_isa(same_bits); }

/* All instruction sets with fused multiply-add give the same bits; plain C is excluded because it rounds each
 * operation. */
static void test_forms(void **state)
{
    enum { ROWS = 19, N = 768, OUT = 40 };
    (void) state;
    static float y[2][(ROWS + 1) * OUT];
    float *x = random_rows(ROWS * N), *x2 = random_rows(ROWS * N), *w = random_rows(N);
    for (int i = 0; i < 2 * N_TYPES; i++) {
        int n = 0;
        for (int isa = PI__ISA_GENERIC + 1; isa < PI__N_ISAS; isa++) {
            if (!pi__isa_available(isa)) continue;
            fixture f = {0};
            backend_start(&f.cpu, pi__cpu_linear_kernels_of(isa, i % 2 ? 8 : 15), 2, N, ROWS);
            seed = 54321; /* equal weights for all */
            weight_make(&f, all_types[i / 2], N, OUT, 1);
            const pi__lin_in in = {.kind = i / 2 % 4, .x = x, .ldx = N, .x2 = x2, .ldx2 = N, .w = w, .eps = 1e-6f};
            float *to = y[n > 0];
            pi__linear a = {.in = in, .n_rows = ROWS, .n_lin = 1, .lin = {{&f.w, to, OUT}}};
            pi__cpu_linear(&f.cpu.be, NULL, &a);
            a.n_rows = 1;
            a.lin[0].y = to + ROWS * OUT;
            pi__cpu_linear(&f.cpu.be, NULL, &a);
            if (n++ && memcmp(y[0], y[1], sizeof *y))
                fail_msg("%s, %d bits: %s", pi__type_info_of(all_types[i / 2])->name, i % 2 ? 8 : 15,
                         pi__isa_names[isa].name);
            weight_drop(&f);
            backend_stop(&f.cpu);
        }
    }
    free(x), free(x2), free(w);
}

/* A format of each kind, with scales and activations for which every product and sum is an integer that a float can
 * hold. Every instruction set must return the exact result. */
static void exact(const pi__cpu_linear_kernels *k)
{
    enum { N = 256, OUT = 21, ROWS = 11 };
    static const struct { int type, scale, min; } cases[] = {{PI__Q4_0, 0, 0}, {PI__Q4_1, 0, 2}, {PI__Q3_K, 108, 108},
                                                             {PI__Q2_K, 80, 82}};
    for (int t = 0; t < 4; t++) {
        const pi__type_info *info = pi__type_info_of(cases[t].type);
        const size_t row = pi__row_size(info, N);
        fixture f = {0};
        float x[ROWS * N], y[ROWS * OUT];
        backend_start(&f.cpu, k, 2, N, ROWS);
        weight_make(&f, cases[t].type, N, OUT, 1);
        for (size_t at = 0; at < OUT * row; at += info->type_size) {
            put_half(f.src + at + cases[t].scale, 1);
            put_half(f.src + at + cases[t].min, 1);
        }
        for (size_t o = 0; o < OUT; o++) pi__dequantize_row(cases[t].type, f.src + o * row, f.ref + o * N, N);
        load_all(&f);
        for (int i = 0; i < ROWS * N; i++) x[i] = (float) (rnd() % 7) - 3;
        for (int i = 0; i < ROWS * N; i += 32)
            x[i + (int) (rnd() % 32)] = rnd() % 2 ? code_max(&f.cpu) : -code_max(&f.cpu);
        for (int32_t n_rows = ROWS; n_rows > 0; n_rows -= ROWS - 1) {
            const pi__lin_in in = {.kind = PI__IN_PLAIN, .x = x, .ldx = N};
            pi__cpu_linear(&f.cpu.be, NULL,
                           &(pi__linear) {.in = in, .n_rows = n_rows, .n_lin = 1, .lin = {{&f.w, y, OUT}}});
            for (int i = 0; i < n_rows * OUT; i++) {
                double want = 0;
                for (int j = 0; j < N; j++) want += (double) f.ref[i % OUT * N + j] * x[i / OUT * N + j];
                if (y[i] != want)
                    fail_msg("%s with %s, row %d of %d, out %d: %.9g, not %.9g", info->name, k->name, i / OUT,
                             (int) n_rows, i % OUT, (double) y[i], want);
            }
        }
        weight_drop(&f);
        backend_stop(&f.cpu);
    }
}
static void test_exact(void **state) { (void) state; each_isa(exact); }

/* ---- prologues, tested with the F32 identity matrix */

static double prologue(int kind, const float *x, const float *x2, const float *w, double eps, int64_t n, int64_t k)
{
    double ss = 0, v = x[k];
    switch (kind) {
    case PI__IN_RMSNORM:
        for (int64_t i = 0; i < n; i++) ss += (double) x[i] * x[i];
        return v / sqrt(ss / (double) n + eps) * w[k];
    case PI__IN_GEGLU: return 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))) * x2[k];
    case PI__IN_SWIGLU: return v / (1 + exp(-v)) * x2[k];
    case PI__IN_GEGLU_ERF: return 0.5 * v * (1 + erf(v / sqrt(2))) * x2[k];
    case PI__IN_GELU: return 0.5 * v * (1 + erf(v / sqrt(2)));
    default: return v;
    }
}

static void prologues(const pi__cpu_linear_kernels *k)
{
    enum { N = 333, ROWS = 3 };
    for (int nth = PI__IN_PLAIN; nth <= PI__IN_SWIGLU + 4; nth++) { /* then two with limits, and the exact GELU */
        const int kind = nth > PI__IN_SWIGLU + 3   ? PI__IN_GELU
                         : nth > PI__IN_SWIGLU + 2 ? PI__IN_GEGLU_ERF
                         : nth > PI__IN_SWIGLU ? PI__IN_SWIGLU : nth;
        const float limit = nth == PI__IN_SWIGLU + 1 ? 0.75f : nth == PI__IN_SWIGLU + 2 ? -0.75f : 0;
        fixture f = {0};
        backend_start(&f.cpu, k, 2, N, ROWS);
        weight_make(&f, PI__F32, N, N, 1);
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                float one = i == j;
                memcpy(f.src + 4 * ((size_t) i * N + (size_t) j), &one, 4);
            }
        load_all(&f);
        float *x = random_rows(ROWS * N), *x2 = random_rows(ROWS * N), *w = random_rows(N), y[ROWS * N];
        for (int i = 0; i < N; i++) x[i] = (float) (i - N / 2) / 8; /* -20 .. 20 */
        pi__lin_in in = {.kind = kind, .x = x, .ldx = N, .x2 = x2, .ldx2 = N, .w = w, .eps = 1e-6f, .limit = limit};
        pi__lin lin = {&f.w, y, N};
        pi__cpu_linear(&f.cpu.be, NULL, &(pi__linear) {.in = in, .n_rows = ROWS, .n_lin = 1, .lin = {lin}});
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < N; i++) {
                const float edge = fabsf(limit), cut = fminf(x[r * N + i], edge), one = 1;
                const float cut2 = fmaxf(-edge, fminf(x2[r * N + i], edge));
                double want = limit > 0 ? prologue(kind, &cut, &cut2, w, 1e-6, 1, 0)
                                        : prologue(kind, x + r * N, x2 + r * N, w, 1e-6, N, i), got = y[r * N + i];
                if (limit < 0) want = fmin(prologue(kind, x + r * N + i, &one, w, 1e-6, 1, 0), edge) * cut2;
                /* in the far negative range, 1 + tanh cancels all digits, so the tolerance is absolute; erf is within
                 * 2e-7 */
                const bool has_erf = kind == PI__IN_GEGLU_ERF || kind == PI__IN_GELU;
                const double most = has_erf ? 1e-6 : kind >= PI__IN_GEGLU ? 3e-7 : 0;
                if (!(fabs(got - want) <= 1e-6 * fabs(want) + most))
                    fail_msg("kind %d, %g: %.9g, not %.9g", kind, x[r * N + i], got, want);
            }
        free(x), free(x2), free(w);
        weight_drop(&f);
        backend_stop(&f.cpu);
    }
}
static void test_prologues(void **state) { (void) state; each_isa(prologues); }

/* A NaN or infinity affects the results of its own row only. */
static void not_finite(const pi__cpu_linear_kernels *k)
{
    static const int types[] = {PI__Q8_0, PI__Q4_K, PI__Q6_K, PI__Q2_K, PI__F16};
    for (int t = 0; t < 5; t++)
        for (int bad = 0; bad < 3; bad++) {
            fixture f = {0};
            backend_start(&f.cpu, k, 1, 256, 2);
            weight_make(&f, types[t], 256, 16, 1);
            float *x = random_rows(512), y[32];
            pi__lin_in in = {.kind = PI__IN_PLAIN, .x = x, .ldx = 256};
            pi__lin lin = {&f.w, y, 16};
            x[40] = bad == 0 ? NAN : bad == 1 ? INFINITY : -INFINITY;
            pi__cpu_linear(&f.cpu.be, NULL, &(pi__linear) {.in = in, .n_rows = 2, .n_lin = 1, .lin = {lin}});
            for (int i = 0; i < 16; i++) {
                assert_false(isfinite(y[i]));
                assert_true(isfinite(y[16 + i]));
            }
            memset(x, 0, 256 * sizeof *x);
            x[3] = 1e-42f;
            pi__cpu_linear(&f.cpu.be, NULL, &(pi__linear) {.in = in, .n_rows = 1, .n_lin = 1, .lin = {lin}});
            for (int i = 0; i < 16; i++) assert_true(fabsf(y[i]) < 1e-30f);
            free(x);
            weight_drop(&f);
            backend_stop(&f.cpu);
        }
}
static void test_not_finite(void **state) { (void) state; each_isa(not_finite); }

/* Several matrices of different formats with common input rows; one has a scale and is stacked. */
static void many(const pi__cpu_linear_kernels *k)
{
    enum { ROWS = 19, N = 256 };
    static const int types[] = {PI__Q5_0, PI__Q8_0, PI__F32, PI__NVFP4, PI__Q4_K};
    const float factor[2] = {0.5f, 3.0f};
    fixture f[5];
    memset(f, 0, sizeof f);
    pi__lin lin[5];
    backend_start(&f[0].cpu, k, 2, N, ROWS);
    for (int i = 0; i < 5; i++) {
        f[i].cpu = f[0].cpu;
        weight_make(&f[i], types[i], N, 24 + 8 * i, i == 3 ? 2 : 1);
        lin[i] = (pi__lin) {&f[i].w, random_rows(ROWS * f[i].w.n_out), f[i].w.n_out};
    }
    f[3].w.scale = factor;
    for (int64_t i = 0; i < f[3].w.n_out * N; i++) f[3].ref[i] *= 0.5f;
    float *x = random_rows(ROWS * N);
    pi__lin_in in = {.kind = PI__IN_PLAIN, .x = x, .ldx = N};
    const pi__linear all = pi__linear_of(&in, ROWS, lin, 5);
    pi__cpu_linear(&f[0].cpu.be, NULL, &all);
    for (int i = 0; i < 5; i++) {
        check_results(&f[i], x, lin[i].y, lin[i].ldy, ROWS, is_float(types[i]));
        free(lin[i].y);
        weight_drop(&f[i]);
    }
    free(x);
    backend_stop(&f[0].cpu);
}
static void test_many(void **state) { (void) state; each_isa(many); }

/* Embedding rows equal the reader's decoded rows for every format, also if n_out is not a multiple of 16. */
static void embed(const pi__cpu_linear_kernels *k)
{
    for (int t = 0; t < N_TYPES; t++) {
        enum { N = 512, OUT = 37, TOKENS = 50 };
        fixture f = {0};
        int32_t token[TOKENS];
        float *out = malloc(TOKENS * N * sizeof *out);
        backend_start(&f.cpu, k, 2, N, TOKENS);
        weight_make(&f, all_types[t], N, OUT, 1);
        for (int n = 3; n <= TOKENS; n += TOKENS - 3) {
            for (int i = 0; i < n; i++) token[i] = i < OUT ? OUT - 1 - i : (int32_t) (rnd() % OUT);
            pi__batch b = {.n_tokens = n, .token = token};
            pi__cpu_embed(&f.cpu.be, &b, &(pi__embed) {.w = &f.w, .scale = 25.25f, .out = out});
            for (int i = 0; i < n; i++)
                for (int j = 0; j < N; j++) {
                    float want = f.ref[token[i] * N + j] * 25.25f;
                    if (memcmp(&want, &out[i * N + j], 4))
                        fail_msg("%s row %d column %d: %.9g, not %.9g", pi__type_info_of(all_types[t])->name, token[i],
                                 j, out[i * N + j], want);
                }
        }
        free(out);
        weight_drop(&f);
        backend_stop(&f.cpu);
    }
}
static void test_embed(void **state) { (void) state; each_isa(embed); }

/* Every scale byte of the FP4 formats. */
static void fp4_scales(const pi__cpu_linear_kernels *k)
{
    static const int types[] = {PI__MXFP4, PI__NVFP4};
    for (int t = 0; t < 2; t++) {
        const size_t size = pi__type_info_of(types[t])->type_size;
        fixture f = {0};
        backend_start(&f.cpu, k, 1, 64, 256);
        weight_make(&f, types[t], 64, 256, 1);
        int32_t token[256];
        float *out = malloc(256 * 64 * sizeof *out), want[64];
        for (int i = 0; i < 256; i++) {
            token[i] = i;
            uint8_t *row = f.src + (size_t) i * (t ? size : 2 * size);
            for (int s = 0; s < (t ? 4 : 2); s++) row[t ? (size_t) s : (size_t) s * size] = (uint8_t) i;
        }
        load_all(&f);
        pi__batch b = {.n_tokens = 256, .token = token};
        pi__cpu_embed(&f.cpu.be, &b, &(pi__embed) {.w = &f.w, .scale = 1.0f, .out = out});
        for (int i = 0; i < 256; i++) {
            pi__dequantize_row(types[t], f.src + (size_t) i * (t ? size : 2 * size), want, 64);
            assert_memory_equal(out + 64 * i, want, sizeof want);
        }
        free(out);
        weight_drop(&f);
        backend_stop(&f.cpu);
    }
}
static void test_fp4_scales(void **state) { (void) state; each_isa(fp4_scales); }

static void test_sizes(void **state)
{
    (void) state;
    pi__weight w = {.type = PI__Q5_0, .n_in = 640, .n_out = 1024, .n_mat = 1};
    assert_int_equal(pi__cpu_weight_size(NULL, &w), 1024 * 640 / 32 * 22); /* as large as in the file */
    w = (pi__weight) {.type = PI__Q6_K, .n_in = 2048, .n_out = 640, .n_mat = 3};
    assert_int_equal(pi__cpu_weight_size(NULL, &w), 3 * 640 * 2048 / 256 * 210);
    w.n_in = 2048 + 32; /* not a multiple of the block */
    assert_int_equal(pi__cpu_weight_size(NULL, &w), 0);
    w = (pi__weight) {.type = PI__I32, .n_in = 32, .n_out = 1, .n_mat = 1};
    assert_int_equal(pi__cpu_weight_size(NULL, &w), 0);
    w = (pi__weight) {.type = PI__Q8_0, .n_in = 1 << 30, .n_out = 1 << 30, .n_mat = 1 << 30};
    assert_int_equal(pi__cpu_weight_size(NULL, &w), 0); /* does not fit size_t */
}

#ifdef PI__SIMD_X86
/* The self-test before AMX is used: the emulated AMX kernels pass, kernels for the other activation width fail. */
static void test_tryout(void **state)
{
    (void) state;
    const pi__cpu_linear_kernels *few = pi__lin_kernels_avx512(8), *two = pi__lin_kernels_avx512(15);
    /* otherwise the test compares nothing */
    if (!pi__isa_available(PI__ISA_AVX512) || few->max_cols < PI__LIN_MANY) skip();
    assert_true(pi__lin_agrees(few, pi__lin_amx_twin[0]) && pi__lin_agrees(two, pi__lin_amx_twin[1]));
    assert_false(pi__lin_agrees(few, pi__lin_amx_twin[1]));
    assert_false(pi__lin_agrees(two, pi__lin_amx_twin[0]));
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_embed), cmocka_unit_test(test_fp4_scales),
        cmocka_unit_test(test_prologues),  cmocka_unit_test(test_many),  cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_exact),      cmocka_unit_test(test_forms), cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_full_codes), cmocka_unit_test(test_shapes), cmocka_unit_test(test_x86_bits),
#ifdef PI__SIMD_X86
        cmocka_unit_test(test_tryout),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
