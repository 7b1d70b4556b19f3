/* Tensor formats: sizes, exact decoding (hashes from the reference by gen_formats.py), scalar conversions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "formats_expected.h"
#include "formats/formats.h"
#include "formats/iq_tables.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint64_t hash_floats(const float *x, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        uint32_t u = isnan(x[i]) ? 0x7fc00000u : bits_of(x[i]);
        for (int k = 0; k < 4; k++) h = (h ^ (u >> 8 * k & 0xff)) * 0x100000001b3u;
    }
    return h;
}

/* Q1_0 and Q2_0 are read as defined, and as Q4_0 they have the same values. */
static void narrow_formats(void **state)
{
    (void) state;
    enum { N = 256 };
    static const int32_t types[] = {PI__Q1_0, PI__Q2_0};
    for (int t = 0; t < 2; t++) {
        const int block = t ? 64 : 128, bits = t ? 2 : 1;
        uint8_t from[N / 64 * 18], to[N / 32 * 18];
        float x[N], y[N];
        uint64_t seed = 5;
        for (size_t k = 0; k < sizeof from; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            from[k] = (uint8_t) (seed >> 56);
            if (k % 18 == 1) from[k] &= 0xbb; /* a finite scale */
        }
        assert_int_equal(pi__type_info_of(types[t])->blck_size, block);
        assert_true(pi__dequantize_row(types[t], from, x, N));
        for (int i = 0; i < N; i++) {
            const uint8_t *b = from + i / block * 18;
            uint16_t half;
            memcpy(&half, b, 2);
            const float d = pi__f16_to_f32(half);
            const int at = i % block * bits, q = b[2 + at / 8] >> at % 8 & ((1 << bits) - 1);
            assert_true(x[i] == (t ? (float) (q - 1) * d : q ? d : -d));
        }
        assert_int_equal(pi__loaded_type(types[t]), PI__Q4_0);
        pi__widen_row(types[t], from, to, N);
        assert_true(pi__dequantize_row(PI__Q4_0, to, y, N));
        for (int i = 0; i < N; i++) assert_true(x[i] == y[i]);
    }
    assert_int_equal(pi__loaded_type(PI__Q8_0), PI__Q8_0);
}

static void readers_match_reference(void **state)
{
    (void) state;
    for (size_t i = 0; i < COUNT(expected); i++) {
        const pi__type_info *t = pi__type_info_of(expected[i].type);
        assert_non_null(t);
        assert_string_equal(t->name, expected[i].name);
        assert_int_equal(t->blck_size, expected[i].blck_size);
        assert_int_equal(t->type_size, expected[i].type_size);
        assert_true(t->readable);
        size_t n_bytes = (size_t) EXPECTED_N_BLOCKS * t->type_size, n = (size_t) EXPECTED_N_BLOCKS * t->blck_size;
        uint8_t *raw = malloc(n_bytes + 1), *blocks = raw + 1; /* an odd address, because a block needs no alignment */
        float *x = malloc(n * sizeof *x);
        assert_true(raw && x);
        uint64_t seed = (uint64_t) expected[i].type;
        for (size_t k = 0; k < n_bytes; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            blocks[k] = (uint8_t) (seed >> 56);
        }
        assert_true(pi__dequantize_row(expected[i].type, blocks, x, (int64_t) n));
        if (hash_floats(x, n) != expected[i].hash) fail_msg("%s is not read as the reference reads it", t->name);
        free(raw);
        free(x);
    }
}

static void types_have_names(void **state)
{
    (void) state;
    int n = 0, readable = 0;
    for (int32_t i = -3; i < 100; i++) {
        const pi__type_info *t = pi__type_info_of(i);
        if (!t) {
            float x[256];
            assert_false(pi__dequantize_row(i, "", x, 0));
            assert_false(pi__quantize_row(i, x, x, 0, NULL));
            continue;
        }
        n++;
        readable += t->readable;
        assert_int_equal(pi__type_from_name(t->name), i);
        assert_true(pi__row_size(t, t->blck_size * 5) == 5 * t->type_size);
        float x = 0;
        assert_int_equal(pi__dequantize_row(i, &x, &x, 0), t->readable);
        assert_int_equal(pi__quantize_row(i, &x, &x, 0, NULL), t->writable);
    }
    assert_int_equal(n, 35);
    assert_int_equal(readable, COUNT(expected) + 2); /* and Q1_0, Q2_0 (narrow_formats) */
    assert_int_equal(pi__type_from_name("q4_k"), PI__Q4_K);
    assert_int_equal(pi__type_from_name("q4_"), -1);
    assert_int_equal(pi__type_from_name(""), -1);
    assert_null(pi__type_info_of(4)); /* ids of formats that were removed from GGUF */
    assert_null(pi__type_info_of(INT32_MIN));
}

/* Every half converts exactly; the expected value comes from independent arithmetic. */
static void halves_are_exact(void **state)
{
    (void) state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        int e = (int) (h >> 10 & 31), m = (int) (h & 1023);
        float got = pi__f16_to_f32((uint16_t) h);
        if (e == 31 && m) {
            assert_true(isnan(got));
            assert_true(isnan(pi__f16_to_f32(pi__f32_to_f16(got))));
            continue;
        }
        float want = e == 31 ? INFINITY : e ? ldexpf((float) (1024 + m), e - 25) : ldexpf((float) m, -24);
        if (h & 0x8000) want = -want;
        assert_int_equal(bits_of(got), bits_of(want));
        assert_int_equal(pi__f32_to_f16(got), h);
    }
}

static void halves_round_to_even(void **state)
{
    (void) state;
    for (uint32_t h = 0; h < 0x7c00; h++) { /* midpoints between each half and the next */
        float a = pi__f16_to_f32((uint16_t) h), b = h == 0x7bff ? 65536.0f : pi__f16_to_f32((uint16_t) (h + 1));
        float mid = a + (b - a) / 2;
        assert_int_equal(pi__f32_to_f16(mid), h & 1 ? h + 1 : h);
        assert_int_equal(pi__f32_to_f16(nextafterf(mid, 0)), h);
        assert_int_equal(pi__f32_to_f16(nextafterf(mid, INFINITY)), h + 1);
        assert_int_equal(pi__f32_to_f16(-nextafterf(mid, INFINITY)), 0x8000 | (h + 1));
    }
    assert_int_equal(pi__f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(pi__f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(pi__f32_to_f16(float_of(1)), 0);
    assert_int_equal(pi__f32_to_f16(-0.0f), 0x8000);
    assert_int_equal(pi__f32_to_f16(float_of(0x7f800001)) & 0x7e00, 0x7e00); /* a signaling NaN becomes quiet */
}

static void bfloats_round_to_even(void **state)
{
    (void) state;
    for (uint32_t h = 0; h < 0x7f80; h += 7) {
        assert_int_equal(pi__f32_to_bf16(float_of(h << 16)), h);
        assert_int_equal(pi__f32_to_bf16(float_of(h << 16 | 0x7fff)), h);
        assert_int_equal(pi__f32_to_bf16(float_of(h << 16 | 0x8000)), h + (h & 1));
        assert_int_equal(pi__f32_to_bf16(float_of(h << 16 | 0x8001)), h + 1);
        assert_int_equal(bits_of(pi__bf16_to_f32((uint16_t) h)), h << 16);
    }
    assert_int_equal(pi__f32_to_bf16(INFINITY), 0x7f80);
    assert_int_equal(pi__f32_to_bf16(float_of(0x7f800001)), 0x7fc0);
    assert_int_equal(pi__f32_to_bf16(float_of(0xffffffff)), 0xffff);
}

/* Codebook points expand to levels of their table, and all points are distinct. */
static void codebooks_expand(void **state)
{
    (void) state;
    for (int i = 0; i < 1024; i++) {
        uint64_t p = pi__iq2_point(pi__iq2s_codes[i]);
        for (int k = 0; k < 8; k++, p >>= 8) assert_true((p & 255) == 8 || (p & 255) == 25 || (p & 255) == 43);
    }
    for (int i = 0; i < 2048; i++) {
        uint64_t p = pi__iq1_point(pi__iq1_codes[i]);
        for (int k = 0; k < 8; k++, p >>= 8) assert_in_range((int8_t) p + 1, 0, 2);
        assert_true(i == 0 || pi__iq1_codes[i] > pi__iq1_codes[i - 1]);
    }
    for (int s = 0; s < 128; s++) assert_int_equal(__builtin_popcount(pi__iq_signs((uint32_t) s)) & 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_match_reference), cmocka_unit_test(narrow_formats), cmocka_unit_test(types_have_names),
        cmocka_unit_test(halves_are_exact),        cmocka_unit_test(halves_round_to_even),
        cmocka_unit_test(bfloats_round_to_even),   cmocka_unit_test(codebooks_expand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
