/* Tensor-core arithmetic and matrix loads against fixtures/ (see README.md there), bit-exact. */
#include "simt_test.h"

#include <string>

#include <jansson.h>

#include "backend/cuda/launch.cuh"
#include "ptx.cuh"

/* ------------------------------------------------------------------------------------------------------- mma_*.bin */

struct fixture {
    uint32_t sel[4]; /* byte and thread of A's scales, then of B's */
    uint32_t a[32][4], b[32][2], c[32][4], sfa[32], sfb[32];
};
typedef void (*mma_fn)(float *d, const fixture &f, int lane);

static void one_mma(mma_fn fn, const fixture *f, uint32_t (*out)[4])
{
    int l = (int) threadIdx.x;
    float d[4];
    std::memcpy(d, f->c[l], sizeof d);
    fn(d, *f, l);
    std::memcpy(out[l], d, sizeof d);
}

static simt::scales scales_of(const fixture &f, int l)
{
    return {f.sfa[l], f.sfb[l], (int) f.sel[0], (int) f.sel[1], (int) f.sel[2], (int) f.sel[3]};
}
static void fx_bf16(float *d, const fixture &f, int l) { simt::mma_bf16(d, f.a[l], f.b[l], "", 0); }
static void fx_s8(float *d, const fixture &f, int l)
{
    int32_t i[4];
    std::memcpy(i, d, sizeof i);
    simt::mma_s8_k32(i, f.a[l], f.b[l], "", 0);
    std::memcpy(d, i, sizeof i);
}
static void fx_nvf4(float *d, const fixture &f, int l)
{
    simt::mma_mxf4nvf4(d, f.a[l], f.b[l], scales_of(f, l), "", 0);
}
static void fx_mxf4(float *d, const fixture &f, int l) { simt::mma_mxf4(d, f.a[l], f.b[l], scales_of(f, l), "", 0); }
template <simt::mx A, simt::mx B> static void fx_mx8(float *d, const fixture &f, int l)
{
    simt::mma_mxf8f6f4(d, f.a[l], f.b[l], A, B, scales_of(f, l), "", 0);
}

static void check_file(const char *name, mma_fn fn, unsigned least)
{
    std::string path = std::string(SIMT_FIXTURES) + "/" + name;
    FILE *file = fopen(path.c_str(), "rb");
    uint32_t head[4];
    assert_non_null(file);
    assert_int_equal(fread(head, 4, 4, file), 4);
    assert_int_equal(head[0], 0x58464950);
    assert_true(head[2] >= least);
    for (unsigned i = 0; i < head[2]; i++) {
        fixture f = {};
        uint32_t want[32][4], rounded[32][4], got[32][4];
        size_t words = 4 + 32 * (4 + 2 + 4) + (head[3] ? 64 : 0);
        assert_int_equal(fread(&f, 4, words, file), words);
        assert_int_equal(fread(want, 4, 128, file), 128);
        assert_int_equal(fread(rounded, 4, 128, file), 128);
        must_run(pi_launch(nullptr, one_mma, dim3(1), dim3(32), 0, fn, &f, got));
        for (int l = 0; l < 32; l++) {
            for (int j = 0; j < 4; j++) {
                if (got[l][j] != want[l][j]) fail_msg("%s: case %u, lane %d, d%d is %08x, expected %08x", name, i, l, j,
                                                      got[l][j], want[l][j]);
            }
        }
    }
    fclose(file);
}

static void test_mma(void **)
{
    using simt::mx;
    check_file("mma_bf16_m16n8k16.bin", fx_bf16, 10);
    check_file("mma_s8_m16n8k32.bin", fx_s8, 3);
    check_file("mma_mxf4nvf4_4x_ue4m3.bin", fx_nvf4, 13);
    check_file("mma_mxf4_2x_ue8m0.bin", fx_mxf4, 13);
    check_file("mma_mxf8f6f4_e4m3_e4m3.bin", fx_mx8<mx::e4m3, mx::e4m3>, 13);
    check_file("mma_mxf8f6f4_e2m1_e4m3.bin", fx_mx8<mx::e2m1, mx::e4m3>, 13);
    check_file("mma_mxf8f6f4_e2m1_e2m1.bin", fx_mx8<mx::e2m1, mx::e2m1>, 13);
}

/* Cases without a fixture: two k16 steps of s8 equal one k32 step; f16 against exact sums; infinities and NaN. */
static void s8_both_ways(const fixture *f, int32_t (*out)[8])
{
    int l = (int) threadIdx.x;
    int32_t one[4] = {0, 0, 0, 0}, two[4] = {0, 0, 0, 0};
    uint32_t lo[2] = {f->a[l][0], f->a[l][1]}, hi[2] = {f->a[l][2], f->a[l][3]};
    ptx_mma_s8_k32(one, f->a[l], f->b[l]);
    ptx_mma_s8_k16(two, lo, f->b[l][0]);
    ptx_mma_s8_k16(two, hi, f->b[l][1]);
    std::memcpy(out[l], one, sizeof one);
    std::memcpy(out[l] + 4, two, sizeof two);
}

static void test_s8_steps(void **)
{
    simt_test::random r(5);
    fixture f = {};
    int32_t out[32][8];
    for (int l = 0; l < 32; l++) {
        for (uint32_t &w : f.a[l]) w = r.bits() * 3u + r.bits();
        for (uint32_t &w : f.b[l]) w = r.bits() * 3u + r.bits();
    }
    must_run(pi_launch(nullptr, s8_both_ways, dim3(1), dim3(32), 0, &f, out));
    for (int l = 0; l < 32; l++) assert_memory_equal(out[l], out[l] + 4, 16);
}

/* Finite operands use vectorized sums. An infinity in the last row of A selects the scalar path, which must not
 * change the results of other rows. */
static void mma_twice(mma_fn fn, const fixture *f, float (*out)[2][4])
{
    int l = (int) threadIdx.x;
    fixture with = *f;
    for (int i = 0; i < 4; i++) out[l][0][i] = out[l][1][i] = __uint_as_float(f->c[l][i]);
    fn(out[l][0], *f, l);
    if (l == 31) with.a[31][3] = with.a[31][1] = 0x7f807f80; /* 0x7f80: infinity in BF16, NaN in F16 */
    fn(out[l][1], with, l);
}
static void fx_f16(float *d, const fixture &f, int l) { simt::mma_f16(d, f.a[l], f.b[l], "", 0); }

static void test_finite(void **)
{
    simt_test::random r(7);
    float out[32][2][4];
    for (int round = 0; round < 200; round++) {
        fixture f = {};
        /* some rounds have exponents that are far apart, others have zeros or subnormal values */
        auto pair = [&](uint32_t even) {
            const uint32_t u = r.bits() * 3u + r.bits();
            return round % 4 == 0   ? u & 0xbbffbbff
                   : round % 4 == 1 ? (u & 0x87ff87ff) | even
                   : round % 4 == 2 ? u & 0x83ff8000
                                    : u & 0x9fff9fff;
        };
        for (int l = 0; l < 32; l++) {
            for (uint32_t &w : f.a[l]) w = pair(0x30003000);
            for (uint32_t &w : f.b[l]) w = pair(0x28003800);
            for (uint32_t &w : f.c[l]) {
                const float x = (r.bits() & 0xffff) / 65536.0f - 0.5f;
                const float c = round % 3 ? std::ldexp(x, (int) (r.bits() % 40) - 30) : 0;
                std::memcpy(&w, &c, sizeof w);
            }
        }
        for (mma_fn fn : {fx_f16, fx_bf16}) {
            must_run(pi_launch(nullptr, mma_twice, dim3(1), dim3(32), 0, fn, &f, out));
            for (int l = 0; l < 28; l++) { /* the last four lanes hold rows 7 and 15 */
                for (int i = 0; i < 4; i++) assert_true(std::isfinite(out[l][0][i]));
                assert_memory_equal(out[l][0], out[l][1], 16);
            }
        }
    }
}

static void f16_probe(uint32_t a, uint32_t b, float c, float *out)
{
    int l = (int) threadIdx.x;
    const uint32_t wa[4] = {a, a, 0, 0}, wb[2] = {b, 0};
    float d[4] = {c, c, c, c};
    ptx_mma_f16(d, wa, wb);
    if (l == 0) *out = d[0];
}

static void test_f16(void **)
{
    const struct { uint32_t a, b; float c, want; } cases[] = {
        {0x3c003c00, 0x40004000, 0.5f, 16.5f},                    /* 8 times 1 * 2 */
        {0x00000001, 0x00003c00, 0.0f, 0x1p-22f},                 /* the smallest subnormal, from 4 lanes */
        {0x00007bff, 0x00003c00, 0.0f, 4 * 65504.0f},
        {0x00003c00, 0x0000bc00, 4.0f, 0.0f},
        {0x00007c00, 0x00003c00, 0.0f, INFINITY},
        {0x00007c00, 0x0000bc00, 1.0f, -INFINITY}};
    for (const auto &c : cases) {
        float got = NAN;
        must_run(pi_launch(nullptr, f16_probe, dim3(1), dim3(32), 0, c.a, c.b, c.c, &got));
        assert_true(got == c.want);
    }
    for (uint32_t b : {0x00000000u, 0x00007e00u}) { /* infinity * 0, infinity * NaN */
        float got = 0;
        must_run(pi_launch(nullptr, f16_probe, dim3(1), dim3(32), 0, 0x7c00u, b, 0.0f, &got));
        assert_true(got != got);
    }
}

/* ------------------------------------------------------------------------------------------------------------ json */

static json_t *read_json(const char *name)
{
    json_error_t e;
    json_t *j = json_load_file((std::string(SIMT_FIXTURES) + "/" + name).c_str(), 0, &e);
    if (!j) fail_msg("%s: %s", name, e.text);
    return j;
}
static int int_of(json_t *o, const char *key) { return (int) json_integer_value(json_object_get(o, key)); }
static const char *text_of(json_t *o, const char *key) { return json_string_value(json_object_get(o, key)); }
static uint32_t hex_at(json_t *a, size_t i)
{
    return (uint32_t) strtoul(json_string_value(json_array_get(a, i)), nullptr, 16);
}
static std::vector<uint8_t> bytes_of(const char *hex)
{
    std::vector<uint8_t> v(strlen(hex) / 2);
    for (size_t i = 0; i < v.size(); i++) {
        char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
        v[i] = (uint8_t) strtoul(two, nullptr, 16);
    }
    return v;
}

struct load_case {
    const uint8_t *image; /* 2048 bytes of shared memory */
    uint32_t offset[32];
    int n;
    bool trans, b4;
};

static void one_load(const load_case *c, uint32_t (*out)[4])
{
    PI_SMEM(shared);
    uint32_t l = threadIdx.x, r[4] = {0, 0, 0, 0};
    std::memcpy(shared + 64 * l, c->image + 64 * l, 64);
    __syncthreads();
    uint32_t at = ptx_shared(shared) + c->offset[l];
    if (c->b4) simt::ldmatrix_b4(r, c->n, at, "", 0);
    else if (c->n == 4 && c->trans) ptx_ldmatrix_x4_trans(r, at);
    else if (c->n == 4) ptx_ldmatrix_x4(r, at);
    else simt::ldmatrix(r, c->n, c->trans, at, "", 0);
    std::memcpy(out[l], r, sizeof r);
}

static void test_ldmatrix(void **)
{
    json_t *file = read_json("ldmatrix.json"), *cases = json_object_get(file, "cases"), *c;
    size_t i, seen = 0;
    json_array_foreach(cases, i, c) {
        std::vector<uint8_t> image = bytes_of(text_of(c, "smem"));
        load_case lc = {image.data(),
                        {},
                        int_of(c, "num"),
                        int_of(c, "trans") != 0,
                        strstr(text_of(c, "name"), "b4x16") != nullptr};
        json_t *offsets = json_object_get(c, "lane_off"), *want = json_object_get(c, "D_hw");
        for (size_t l = 0; l < 32; l++) lc.offset[l] = (uint32_t) json_integer_value(json_array_get(offsets, l));
        uint32_t out[32][4];
        must_run(pi_launch(nullptr, one_load, dim3(1), dim3(32), 2048, &lc, out));
        for (size_t l = 0; l < 32; l++) {
            for (size_t m = 0; m < (size_t) lc.n; m++) assert_int_equal(out[l][m], hex_at(json_array_get(want, l), m));
        }
        seen++;
    }
    assert_true(seen >= 15);
    json_decref(file);
}

/* The conversions round activations to the codes of the fixtures. */
static void test_conversions(void **)
{
    json_t *file = read_json("formats.json"), *cases = json_object_get(json_object_get(file, "act_quant"), "cases"), *c;
    size_t i, seen = 0;
    json_array_foreach(cases, i, c) {
        json_t *xs = json_object_get(c, "x"), *ds = json_object_get(c, "d"), *qs = json_object_get(c, "q");
        float g = __uint_as_float((uint32_t) strtoul(text_of(c, "g"), nullptr, 16));
        for (size_t k = 0; k < json_array_size(xs); k += 16) {
            float x[16], most = 0;
            for (size_t j = 0; j < 16; j++) most = fmaxf(most, fabsf(x[j] = __uint_as_float(hex_at(xs, k + j))));
            uint8_t d = simt::to_e4m3(most / 6 / g);
            assert_int_equal(d, json_integer_value(json_array_get(ds, k / 16)));
            float scale = d < 8 ? ldexpf(d, -9) : ldexpf((float) (8 + d % 8), d / 8 - 10);
            float inv = d ? 1 / (scale * g) : 0;
            for (size_t j = 0; j < 16; j++, seen++) {
                assert_int_equal(simt::to_e2m1(x[j] * inv), json_integer_value(json_array_get(qs, k + j)));
            }
        }
    }
    assert_true(seen >= 500);
    json_decref(file);
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_mma), cmocka_unit_test(test_s8_steps),
                                cmocka_unit_test(test_finite), cmocka_unit_test(test_f16),
                                cmocka_unit_test(test_ldmatrix), cmocka_unit_test(test_conversions)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
