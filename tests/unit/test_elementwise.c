/* The elementwise and norm ops: compared with double precision, and bitwise with one thread. Also the selection of an
 * instruction set. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/attention.h"
#include "isas.h"

enum { N_MAX = 300000 };

static float x[N_MAX], y[N_MAX], w[N_MAX], one[N_MAX];

static void fill(float *p, size_t n, unsigned seed, float scale)
{
    uint64_t s = seed;
    for (size_t i = 0; i < n; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        p[i] = ((float) (s >> 40) / 8388608.0f - 1.0f) * scale;
    }
}

static void open_cpu(pi__cpu *cpu, int isa, int n_threads)
{
    memset(cpu, 0, sizeof *cpu);
    cpu->isa = isa;
    cpu->attn = pi__cpu_attn_kernels_of(isa);
    assert_int_equal(pi__pool_create(&cpu->pool, n_threads, 0, 50, NULL), PI_OK);
}

/* Runs body with each instruction set, with one and with three threads. */
#define EACH_CPU(...)                                                                                                  \
    for (int isa = PI__ISA_GENERIC; isa < PI__N_ISAS; isa++) {                                                    \
        for (int n_threads = 1; own_kernels(isa) && n_threads <= 3; n_threads += 2) {                                \
            pi__cpu cpu;                                                                                               \
            open_cpu(&cpu, isa, n_threads);                                                                            \
            __VA_ARGS__                                                                                                \
            if (n_threads == 1) memcpy(one, x, sizeof x);                                                              \
            assert_memory_equal(one, x, sizeof x);                                                                     \
            pi__pool_destroy(cpu.pool);                                                                                \
        }                                                                                                              \
    }

static void assert_close(double want, float got, double tolerance)
{
    if (!(fabs(want - got) <= tolerance * (1 + fabs(want)))) fail_msg("%.9g is not %.9g", (double) got, want);
}

/* x0: x before the op */
static void check_add_norm(const float *x0, int rows, int n, bool norm, double scale)
{
    for (int r = 0; r < rows; r++) {
        double ss = 0;
        for (int i = 0; i < n; i++) ss += (double) y[r * n + i] * y[r * n + i];
        double f = 1 / sqrt(ss / n + 1e-5);
        for (int i = 0; i < n; i++) {
            double add = norm ? y[r * n + i] * f * w[i] : y[r * n + i];
            assert_close((x0[r * n + i] + add) * scale, x[r * n + i], 2e-6);
        }
    }
}

static void test_add_norm(void **state)
{
    (void) state;
    static const int shapes[][2] = {{1, 640}, {3, 17}, {2, 1}, {100, 640}, {41, 1000}};
    float *x0 = malloc(sizeof x);
    assert_non_null(x0);
    fill(y, N_MAX, 2, 3);
    fill(w, N_MAX, 3, 2);
    for (int s = 0; s < 5; s++) {
        int rows = shapes[s][0], n = shapes[s][1];
        for (int norm = 0; norm <= 1; norm++) {
            EACH_CPU({
                fill(x, N_MAX, 1, 3);
                memcpy(x0, x, sizeof x);
                pi__cpu_add_norm(&cpu.be, NULL, &(pi__add_norm) {.x = x, .y = y, .w = norm ? w : NULL, .eps = 1e-5f,
                                                                 .scale = 0.7f, .n_rows = rows, .n = n});
                check_add_norm(x0, rows, n, norm, 0.7f);
                assert_memory_equal(x + rows * n, x0 + rows * n, 4000);
            })
        }
    }
    /* A row gives the same bits in a batch of one and in a larger batch. */
    EACH_CPU({
        fill(x, N_MAX, 1, 3);
        memcpy(x0, x, sizeof x);
        pi__cpu_add_norm(&cpu.be, NULL, &(pi__add_norm) {.x = x, .y = y, .w = w, .eps = 1e-5f, .scale = 1.0f,
                                                         .n_rows = 100, .n = 640});
        for (int r = 0; r < 100; r++)
            pi__cpu_add_norm(&cpu.be, NULL, &(pi__add_norm) {.x = x0 + r * 640, .y = y + r * 640, .w = w, .eps = 1e-5f,
                                                             .scale = 1.0f, .n_rows = 1, .n = 640});
        assert_memory_equal(x, x0, 64000 * 4);
    })
    free(x0);
}

static void test_norm(void **state)
{
    (void) state;
    static const int shapes[][2] = {{1, 640}, {3, 17}, {100, 640}};
    static float zeros[N_MAX], wide[2 * N_MAX];
    fill(y, N_MAX, 2, 3);
    fill(w, N_MAX, 3, 2);
    for (int s = 0; s < 3; s++) {
        EACH_CPU({
            fill(x, N_MAX, 1, 3);
            pi__cpu_norm(&cpu.be, NULL, &(pi__norm) {.out = x, .ldo = shapes[s][1], .x = y, .w = w, .eps = 1e-5f,
                                                     .n_rows = shapes[s][0], .n = shapes[s][1]});
            check_add_norm(zeros, shapes[s][0], shapes[s][1], true, 1);
            pi__cpu_norm(&cpu.be, NULL, &(pi__norm) {.out = wide, .ldo = 2 * shapes[s][1], .x = y, .w = w,
                                                     .eps = 1e-5f, .n_rows = shapes[s][0], .n = shapes[s][1]});
            for (int i = 0; i < shapes[s][0]; i++)
                assert_memory_equal(x + i * shapes[s][1], wide + 2 * i * shapes[s][1], 4 * (size_t) shapes[s][1]);
        })
    }
}

static void test_add_gated(void **state)
{
    (void) state;
    enum { ROWS = 100, N = 333, LD = 3 };
    float *x0 = malloc(sizeof x);
    assert_non_null(x0);
    fill(y, N_MAX, 2, 3);
    fill(w, N_MAX, 3, 100);
    for (int rows = 1; rows <= ROWS; rows += ROWS - 1) {
        EACH_CPU({
            fill(x, N_MAX, 1, 3);
            memcpy(x0, x, sizeof x);
            pi__cpu_add_gated(&cpu.be, NULL,
                              &(pi__add_gated) {.y = x, .x = y, .gate = w, .ldg = LD, .n_rows = rows, .n = N});
            for (int i = 0; i < rows * N; i++) assert_close(x0[i] + y[i] / (1 + exp(-w[i / N * LD])), x[i], 1e-6);
            assert_memory_equal(x + rows * N, x0 + rows * N, 4000);
        })
    }
    free(x0);
}

static void test_gate_heads(void **state)
{
    (void) state;
    enum { H = 5, N = 64, LD = 7, MAX_ROWS = 60 };
    float *x0 = malloc(sizeof x);
    assert_non_null(x0);
    fill(w, N_MAX, 3, 30);
    w[1] = 200, w[2] = -200; /* limits: f is t or 1, and 0 */
    for (int rows = 1; rows <= MAX_ROWS; rows += MAX_ROWS - 1) {
        for (int softplus = 0; softplus < 2; softplus++) {
            EACH_CPU({
                fill(x, N_MAX, 1, 3);
                memcpy(x0, x, sizeof x);
                pi__cpu_gate_heads(&cpu.be, NULL, &(pi__gate_heads) {.x = x, .gate = w, .ldg = LD, .n_rows = rows,
                                                                     .n_head = H, .n = N, .softplus = softplus});
                for (int i = 0; i < rows * H * N; i++) {
                    const double t = w[i / (H * N) * LD + i / N % H];
                    const double plus = t > 50 ? t : log1p(exp(t));
                    assert_close(x0[i] * (softplus ? plus : 1 / (1 + exp(-t))), x[i], 1e-6 * fmax(1, fabs(t)));
                }
                assert_memory_equal(x + rows * H * N, x0 + rows * H * N, 4000);
            })
        }
    }
    free(x0);
}

/* Returns the activation of t, by definition. */
static double activation_of(int kind, const float p[4], double t)
{
    switch (kind) {
    case PI__ACT_GELU: return t / 2 * (1 + erf(t / sqrt(2)));
    case PI__ACT_GELU_TANH: return t / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (t + 0.044715 * t * t * t)));
    case PI__ACT_GELU_QUICK: return t / (1 + exp(-1.702 * t));
    case PI__ACT_RELU2: return t > 0 ? t * t : 0;
    case PI__ACT_NONE: return t;
    case PI__ACT_RELU: return t > 0 ? t : 0;
    default:
        if (t > 0) return (double) p[0] * t * t + (double) p[2] * t;
        return (double) p[1] * (expm1(t < (double) p[3] ? t : (double) p[3]) - t) + (double) p[2] * t;
    }
}

/* layer_norm of x + y + b and activations of x + b are correct; a batch of rows gives the same bits as single rows. */
static void test_layer_norm_activate(void **state)
{
    (void) state;
    static const int shapes[][2] = {{1, 640}, {3, 17}, {100, 390}};
    static float x0[N_MAX], single[N_MAX];
    fill(y, N_MAX, 2, 3);
    fill(w, N_MAX, 3, 2);
    for (int s = 0; s < 3; s++) {
        const int rows = shapes[s][0], n = shapes[s][1];
        EACH_CPU({
            for (int part = 0; part < 3; part++) { /* y and its bias, only y, neither */
                fill(x, N_MAX, 1, 3);
                memcpy(x0, x, sizeof x);
                pi__layer_norm a = {.x = x,
                                    .y = part < 2 ? y : NULL,
                                    .b = part < 1 ? w + n : NULL,
                                    .w = w,
                                    .shift = part < 2 ? w + 2 * n : NULL,
                                    .eps = 1e-5f,
                                    .n_rows = rows,
                                    .n = n};
                pi__cpu_layer_norm(&cpu.be, NULL, &a);
                for (int r = 0; r < rows; r++) {
                    double mean = 0, square = 0;
                    memcpy(single, x0 + r * n, (size_t) n * 4);
                    pi__layer_norm alone = a;
                    alone.x = single, alone.y = a.y ? y + r * n : NULL, alone.n_rows = 1;
                    pi__cpu_layer_norm(&cpu.be, NULL, &alone);
                    assert_memory_equal(single, x + r * n, (size_t) n * 4);
                    for (int i = 0; i < n; i++) x0[r * n + i] += (a.y ? y[r * n + i] : 0) + (a.b ? a.b[i] : 0);
                    for (int i = 0; i < n; i++) mean += (double) x0[r * n + i] / n;
                    for (int i = 0; i < n; i++) square += pow((double) x0[r * n + i] - mean, 2) / n;
                    for (int i = 0; i < n; i++)
                        assert_close((x0[r * n + i] - mean) / sqrt(square + 1e-5) * w[i] +
                                         (part < 2 ? w[2 * n + i] : 0),
                                     x[r * n + i], 2e-5);
                }
            }
            for (int kind = 0; kind < PI__N_ACTS; kind++) {
                pi__activate a = {.x = x, .b = kind % 2 ? w : NULL, .n_rows = rows, .n = n, .kind = kind,
                                  .p = {0.7f, 1.3f, 0.5f, -1e-6f}};
                fill(x, N_MAX, 1, 12);
                x[3] = -30, x[5] = 25;
                memcpy(x0, x, sizeof x);
                pi__cpu_activate(&cpu.be, NULL, &a);
                for (int i = 0; i < rows * n; i++) {
                    const double t = (double) x0[i] + (a.b ? (double) w[i % n] : 0);
                    assert_close(activation_of(kind, a.p, t), x[i], 2e-6);
                }
            }
        })
    }
}

static void test_rope(void **state)
{
    (void) state;
    enum { TOKENS = 100, FREQ = 128 };
    float freq[FREQ];
    int32_t pos[TOKENS];
    for (int i = 0; i < FREQ; i++) freq[i] = powf(10000.0f, -2.0f * (float) i / (2 * FREQ));
    for (int t = 0; t < TOKENS; t++) pos[t] = t * t * 13;
    EACH_CPU({
        pi__batch b = {.n_tokens = TOKENS, .pos = pos};
        memset(x, 0, sizeof x);
        pi__cpu_rope(&cpu.be, &b, &(pi__rope) {.freq = freq, .n_freq = FREQ, .mscale = 1.5f, .table = x});
        for (int t = 0; t < TOKENS; t++) {
            for (int i = 0; i < FREQ; i++) {
                float angle = (float) pos[t] * freq[i];
                assert_close(1.5 * cos(angle), x[t * 2 * FREQ + i], 2e-7);
                assert_close(1.5 * sin(angle), x[t * 2 * FREQ + FREQ + i], 2e-7);
            }
        }
        float alone[2 * FREQ];
        b = (pi__batch){.n_tokens = 1, .pos = pos + 77};
        pi__cpu_rope(&cpu.be, &b, &(pi__rope) {.freq = freq, .n_freq = FREQ, .mscale = 1.5f, .table = alone});
        assert_memory_equal(alone, x + 77 * 2 * FREQ, sizeof alone);
    })
}

/* M-RoPE: pairs use the time, the row or the column of a token, in sections or interleaved. Three equal positions give
 * the table of a text token, bit for bit. */
static void test_rope_parts(void **state)
{
    (void) state;
    enum { TOKENS = 3, FREQ = 64 };
    static const int32_t pos[TOKENS] = {40, 40, 7}, parts[3 * TOKENS] = {11, 12, 19, 40, 40, 40, 0, 5, 3};
    float freq[FREQ], text[TOKENS * 2 * FREQ];
    for (int i = 0; i < FREQ; i++) freq[i] = powf(10000.0f, -(float) i / FREQ);
    EACH_CPU({
        for (int interleaved = 0; interleaved < 2; interleaved++) {
            const pi__rope a = {.freq = freq, .n_freq = FREQ, .mscale = 1, .table = x, .section = {24, 20, 18},
                                .interleaved = interleaved};
            pi__batch b = {.n_tokens = TOKENS, .pos = pos};
            pi__cpu_rope(&cpu.be, &b, &a);
            memcpy(text, x, sizeof text);
            b.rope_pos = parts;
            pi__cpu_rope(&cpu.be, &b, &a);
            assert_memory_equal(x + 2 * FREQ, text + 2 * FREQ, 2 * FREQ * sizeof *x);
            for (int t = 0; t < TOKENS; t++) {
                for (int i = 0; i < FREQ; i++) {
                    int part = i < 24 || i >= 62 ? 0 : i < 44 ? 1 : 2;
                    if (interleaved) part = i % 3 == 1 && i < 60 ? 1 : i % 3 == 2 && i < 54 ? 2 : 0;
                    const float angle = (float) parts[3 * t + part] * freq[i];
                    assert_close(cos(angle), x[t * 2 * FREQ + i], 2e-7);
                    assert_close(sin(angle), x[t * 2 * FREQ + FREQ + i], 2e-7);
                }
            }
        }
    })
}

static void test_place_rows(void **state)
{
    (void) state;
    static const int32_t row[] = {1, -1, 0};
    fill(y, N_MAX, 4, 1);
    EACH_CPU({
        for (int add = 0; add < 2; add++) {
            fill(x, N_MAX, 7, 1);
            float was[300];
            memcpy(was, x, sizeof was);
            pi__cpu_place_rows(&cpu.be, NULL, &(pi__place_rows) {.x = x, .rows = y, .ldr = 130, .row = row, .n_rows = 3,
                                                                 .n = 100, .add = add});
            for (int i = 0; i < 3; i++)
                for (int k = 0; k < 100; k++) {
                    const float own = was[i * 100 + k], v = row[i] < 0 ? 0 : y[row[i] * 130 + k];
                    assert_true(x[i * 100 + k] == (row[i] < 0 ? own : add ? own + v : v));
                }
        }
    })
}

static void test_gather_rows(void **state)
{
    (void) state;
    static const int32_t row[] = {0, 3, -1, 9};
    fill(y, N_MAX, 4, 1);
    EACH_CPU({
        fill(x, N_MAX, 7, 1);
        float behind = x[400];
        pi__cpu_gather_rows(&cpu.be, NULL, &(pi__gather_rows) {.row = row, .n_rows = 4, .x = y, .n = 100, .out = x});
        for (int i = 0; i < 4; i++)
            for (int k = 0; k < 100; k++) assert_true(x[i * 100 + k] == (row[i] < 0 ? 0 : y[row[i] * 100 + k]));
        assert_true(x[400] == behind);
    })
}

/* scale multiplies by y and w, if given, and clamps. NaN stays NaN. A batch of rows gives the same bits as single
 * rows. */
static void test_scale(void **state)
{
    (void) state;
    static float x0[N_MAX], single[N_MAX];
    fill(y, N_MAX, 2, 3);
    fill(w, N_MAX, 3, 2);
    EACH_CPU({
        for (int part = 0; part < 4; part++) {
            const int rows = part ? 100 : 3, n = part ? 390 : 17;
            fill(x, N_MAX, 1, 3);
            x[5] = NAN;
            memcpy(x0, x, sizeof x);
            pi__scale a = {.x = x, .y = part & 1 ? y : NULL, .w = part & 2 ? w : NULL, .factor = 1.5f,
                           .lo = part ? -0.5f : -INFINITY, .hi = 2, .n_rows = rows, .n = n};
            pi__cpu_scale(&cpu.be, NULL, &a);
            assert_true(isnan(x[5]));
            for (int i = 0; i < rows * n; i++) {
                const double v =
                    1.5 * (double) x0[i] * (part & 1 ? (double) y[i] : 1) * (part & 2 ? (double) w[i % n] : 1);
                if (i != 5) assert_close(fmin(2, fmax((double) a.lo, v)), x[i], 2e-6);
            }
            memcpy(single, x0, sizeof x0);
            for (int r = 0; r < rows; r++) {
                pi__scale alone = a;
                alone.x = single + r * n, alone.y = a.y ? y + r * n : NULL, alone.n_rows = 1;
                pi__cpu_scale(&cpu.be, NULL, &alone);
            }
            assert_memory_equal(single, x, (size_t) (rows * n) * 4);
        }
    })
}

static void test_softcap(void **state)
{
    (void) state;
    static const size_t sizes[] = {1, 15, 16, 1000, 262144};
    for (int s = 0; s < 5; s++) {
        EACH_CPU({
            fill(x, N_MAX, 5, s % 2 ? 200.0f : 3.0f);
            x[0] = s % 2 ? 1e30f : -0.0f;
            memcpy(y, x, sizeof x);
            pi__cpu_softcap(&cpu.be, NULL,
                            &(pi__softcap) {.x = x, .cap = 30.0f, .n_rows = 1, .n = (int64_t) (sizes[s])});
            for (size_t i = 0; i < sizes[s]; i++) assert_close(30.0 * tanh(y[i] / 30.0), x[i], 4e-7);
            assert_memory_equal(x + sizes[s], y + sizes[s], 4000);
        })
    }
}

static int asked;
static bool granted(void) { return ++asked; }
static bool refused(void) { return !++asked; }

/* AMX is used only if processor, kernel and process permit it; the kernel is asked for permission only if the
 * processor and the kernel support it. */
static void test_amx(void **state)
{
    (void) state;
    const uint32_t cpu = 3u << 24;
    const uint64_t os = 0x600e7;
    assert_true(pi__amx_usable(cpu, os, granted));
    assert_int_equal(asked, 1);
    assert_false(pi__amx_usable(cpu, os, refused));
    assert_int_equal(asked, 2);
    assert_false(pi__amx_usable(1u << 24, os, granted)); /* tiles without byte products */
    assert_false(pi__amx_usable(1u << 25, os, granted));
    assert_false(pi__amx_usable(cpu, 0xe7, granted)); /* a kernel without tile support */
    assert_false(pi__amx_usable(cpu, 0x200e7, granted));
    assert_false(pi__amx_usable(cpu, 0x400e7, granted));
    assert_int_equal(asked, 2);
}

static void test_isa(void **state)
{
    (void) state;
    int best = -1, isa;
    pi_error err;
    assert_int_equal(pi__isa_choose(NULL, &best, &err), PI_OK);
    assert_true(pi__isa_available(best));
    assert_int_equal(pi__isa_choose("", &isa, &err), PI_OK);
    assert_int_equal(isa, best);
    assert_int_equal(pi__isa_choose("auto", &isa, &err), PI_OK);
    assert_int_equal(isa, best);
    for (int i = PI__ISA_GENERIC; i < PI__N_ISAS; i++) {
        assert_int_equal(pi__isa_choose(pi__isa_names[i].name, &isa, &err),
                         pi__isa_available(i) ? PI_OK : PI_EUNSUPPORTED);
        if (pi__isa_available(i)) assert_int_equal(isa, i);
    }
    assert_int_equal(pi__isa_choose("sse9", &isa, &err), PI_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "sse9"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add_norm), cmocka_unit_test(test_rope),      cmocka_unit_test(test_gather_rows),
        cmocka_unit_test(test_rope_parts), cmocka_unit_test(test_place_rows), cmocka_unit_test(test_scale),
        cmocka_unit_test(test_softcap),  cmocka_unit_test(test_isa),       cmocka_unit_test(test_amx),
        cmocka_unit_test(test_norm),     cmocka_unit_test(test_add_gated), cmocka_unit_test(test_gate_heads),
        cmocka_unit_test(test_layer_norm_activate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
