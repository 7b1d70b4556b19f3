/* Encoding of block formats: error on Gaussian and heavy-tailed rows, extreme input, importance weights. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats/formats.h"

#define N 16384 /* values per test, a multiple of every block size */

static float x[N], y[N], importance[N];
static uint8_t blocks[N * 4];
static uint64_t seed;

static double uniform(void) /* 0 < u < 1 */
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return ((double) (seed >> 11) + 0.5) * 0x1p-53;
}

static double gaussian(void) { return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()); }

static double laplacian(void)
{
    double e = -log(uniform());
    return uniform() < 0.5 ? -e : e;
}

static void fill(double (*draw)(void), double scale)
{
    seed = 12345;
    for (int i = 0; i < N; i++) x[i] = (float) (draw() * scale);
}

static bool has_codebook(int32_t type)
{
    static const int32_t types[] = {PI__IQ1_S, PI__IQ1_M, PI__IQ2_XXS, PI__IQ2_XS, PI__IQ2_S, PI__IQ3_XXS, PI__IQ3_S};
    bool is = false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) is |= type == types[i];
    return is;
}

static int n = N; /* values of the last round trip: fewer for codebooks, whose search takes long */

static void round_trip(int32_t type, const float *w)
{
    n = has_codebook(type) ? N / 8 : N;
    assert_true(pi__quantize_row(type, x, blocks, n, w));
    assert_true(pi__dequantize_row(type, blocks, y, n));
}

static double relative_error(void)
{
    double e = 0, p = 0;
    for (int i = 0; i < n; i++) {
        e += ((double) y[i] - x[i]) * ((double) y[i] - x[i]);
        p += (double) x[i] * x[i];
    }
    return sqrt(e / p);
}

/* Error bounds, about a percent above the error of the search. Plain rounding (the largest value gets the last code)
 * exceeds each bound, except for Q8_0, which uses plain rounding. */
static const struct {
    int32_t type;
    double gauss, laplace;
} bounds[] = {
    {PI__F32, 0, 0},          {PI__F16, 0.0003, 0.0003}, {PI__BF16, 0.002, 0.002},  {PI__Q8_0, 0.0055, 0.0070},
    {PI__Q4_0, 0.082, 0.104}, {PI__Q4_1, 0.071, 0.083},  {PI__Q5_0, 0.041, 0.052},  {PI__Q5_1, 0.0342, 0.0405},
    {PI__Q2_K, 0.266, 0.294}, {PI__Q3_K, 0.146, 0.170},  {PI__Q4_K, 0.071, 0.0835}, {PI__Q5_K, 0.035, 0.0412},
    {PI__Q6_K, 0.0175, 0.0213}, {PI__IQ4_NL, 0.0745, 0.086}, {PI__MXFP4, 0.113, 0.124},
    {PI__NVFP4, 0.0905, 0.0875}, {PI__IQ4_XS, 0.0765, 0.088}, {PI__Q1_0, 0.609, 0.712}, {PI__Q2_0, 0.352, 0.405},
    {PI__IQ1_S, 0.448, 0.486}, {PI__IQ1_M, 0.418, 0.437}, {PI__IQ2_XXS, 0.335, 0.345}, {PI__IQ2_XS, 0.291, 0.302},
    {PI__IQ2_S, 0.243, 0.281}, {PI__IQ3_XXS, 0.1805, 0.1855}, {PI__IQ3_S, 0.130, 0.1483},
};
#define N_WRITERS (sizeof bounds / sizeof *bounds)

static void errors_are_small(void **state)
{
    (void) state;
    for (size_t i = 0; i < N_WRITERS; i++) {
        const char *name = pi__type_info_of(bounds[i].type)->name;
        fill(gaussian, 0.02);
        round_trip(bounds[i].type, NULL);
        double g = relative_error();
        fill(laplacian, 0.02);
        round_trip(bounds[i].type, NULL);
        double l = relative_error();
        if (g > bounds[i].gauss || l > bounds[i].laplace) fail_msg("%s: error %.5f and %.5f", name, g, l);
        if (g < bounds[i].gauss * 0.5 || l < bounds[i].laplace * 0.5) fail_msg("%s: %g, %g: loose bounds", name, g, l);
    }
    size_t writable = 0;
    for (int32_t t = 0; t < PI__N_TYPES; t++) writable += pi__type_info_of(t) && pi__type_info_of(t)->writable;
    assert_int_equal(writable, N_WRITERS);
}

/* Encoding decoded values again loses almost nothing more. */
static void second_time_is_lossless(void **state)
{
    (void) state;
    static const int32_t types[] = {PI__Q4_0, PI__Q4_1, PI__Q5_0, PI__Q5_1, PI__Q8_0, PI__Q4_K, PI__Q5_K, PI__Q6_K,
                                    PI__IQ4_NL, PI__IQ4_XS, PI__MXFP4, PI__NVFP4};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        fill(gaussian, 0.02);
        round_trip(types[i], NULL);
        double first = relative_error();
        memcpy(x, y, sizeof x);
        round_trip(types[i], NULL);
        double second = relative_error();
        if (second > first / 4) fail_msg("%s: %.6f, then %.6f", pi__type_info_of(types[i])->name, first, second);
    }
}

static void zeros_stay_zero(void **state)
{
    (void) state;
    for (size_t i = 0; i < N_WRITERS; i++) {
        memset(x, 0, sizeof x);
        round_trip(bounds[i].type, NULL);
        for (int k = 0; k < n; k++)
            if (y[k] != 0) fail_msg("%s: 0 became %g", pi__type_info_of(bounds[i].type)->name, y[k]);
        for (int k = 0; k < N; k++) x[k] = k & 1 ? FLT_TRUE_MIN : -FLT_MIN / 4;
        round_trip(bounds[i].type, NULL);
        for (int k = 0; k < n; k++) assert_true(fabsf(y[k]) <= FLT_MIN);
    }
}

/* For random bits, every format except the float ones decodes to finite values within the range of a half. */
static void hostile_values_are_defined(void **state)
{
    (void) state;
    static const float odd[] = {NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, FLT_MIN, FLT_TRUE_MIN, 65504, -65504,
                                1e30f, 1e-30f, -1e-30f, 1e-8f, 0, -0.0f, 1};
    for (size_t i = 0; i < N_WRITERS; i++) {
        int32_t t = bounds[i].type;
        bool block = pi__type_info_of(t)->blck_size > 1;
        const float limit = 65504 * (has_codebook(t) ? 2.0f : 1.5f); /* a value without weight gets the next level */
        for (int kind = 0; kind < 5; kind++) {
            seed = 99 + (uint64_t) kind;
            for (int k = 0; k < N; k++) {
                uint32_t r = (uint32_t) (uniform() * 4294967296.0);
                if (kind == 0) memcpy(&x[k], &r, sizeof r);
                else if (kind == 1) x[k] = odd[r % 16];
                else if (kind == 2) x[k] = odd[k / 256 % 16];
                else if (kind == 3) x[k] = k % 32 == 5 ? odd[k / 32 % 16] : (float) gaussian();
                else x[k] = odd[k / 16 % 16] * (k & 1 ? 1.0f : 0.5f);
                importance[k] = kind == 4 ? odd[r % 16] : (float) uniform();
            }
            round_trip(t, kind & 1 ? NULL : importance);
            for (int k = 0; k < n && block; k++) {
                const char *name = pi__type_info_of(t)->name;
                if (!(fabsf(y[k]) <= limit)) fail_msg("%s, kind %d: %g became %g", name, kind, x[k], y[k]);
            }
        }
    }
}

/* One NaN in a block affects only its own value. */
static void nan_harms_no_neighbour(void **state)
{
    (void) state;
    for (size_t i = 0; i < N_WRITERS; i++) {
        if (pi__type_info_of(bounds[i].type)->blck_size == 1) continue;
        fill(gaussian, 1);
        for (int k = 7; k < N; k += 64) x[k] = NAN;
        round_trip(bounds[i].type, NULL);
        for (int k = 7; k < N; k += 64) x[k] = 0;
        assert_true(relative_error() < bounds[i].gauss * 1.1);
    }
}

/* A constant row is exact or almost exact for either sign; an ascending row stays ascending. */
static void simple_rows(void **state)
{
    (void) state;
    for (size_t i = 0; i < N_WRITERS; i++) {
        const char *name = pi__type_info_of(bounds[i].type)->name;
        for (int sign = -1; sign <= 1; sign += 2) {
            for (int k = 0; k < N; k++) x[k] = (float) sign * 0.37f;
            round_trip(bounds[i].type, NULL);
            int32_t t = bounds[i].type;
            double limit = t == PI__MXFP4 ? 0.09 : t == PI__NVFP4 ? 0.03 : 0.01; /* FP4 has coarse scales */
            if (relative_error() > limit) fail_msg("%s: constant %g became %g", name, x[0], y[0]);
        }
        if (has_codebook(bounds[i].type)) continue; /* a point may have another order */
        /* groups of 16 share a scale in all formats */
        for (int k = 0; k < N; k++) x[k] = (float) (k % 16 - 6) * 0.01f;
        round_trip(bounds[i].type, NULL);
        for (int k = 1; k < n; k++)
            if (k % 16 && y[k] < y[k - 1]) fail_msg("%s: falls at %d", name, k);
    }
}

/* Columns with higher importance have a smaller error than without importance weights. */
static void importance_helps(void **state)
{
    (void) state;
    for (size_t i = 0; i < N_WRITERS; i++) {
        int32_t t = bounds[i].type; /* a code of Q1_0 is a sign, in any case */
        if (pi__type_info_of(t)->blck_size == 1 || t == PI__Q8_0 || t == PI__Q1_0) continue;
        double err[2] = {0, 0};
        for (int with = 0; with < 2; with++) {
            fill(gaussian, 0.02);
            for (int k = 0; k < N; k++) importance[k] = k % 4 ? 0.01f : 1.0f;
            round_trip(t, with ? importance : NULL);
            for (int k = 0; k < n; k += 4) err[with] += (double) (y[k] - x[k]) * (y[k] - x[k]);
        }
        const char *name = pi__type_info_of(t)->name;
        if (!(err[1] < err[0] * 0.97)) fail_msg("%s: %g with importance, %g without", name, err[1], err[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_small),         cmocka_unit_test(second_time_is_lossless),
        cmocka_unit_test(zeros_stay_zero),          cmocka_unit_test(hostile_values_are_defined),
        cmocka_unit_test(nan_harms_no_neighbour),   cmocka_unit_test(simple_rows),
        cmocka_unit_test(importance_helps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
