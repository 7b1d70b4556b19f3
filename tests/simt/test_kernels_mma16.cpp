/* mma16 kernels: products with F16 and BF16 matrices against double precision, as close as sums of floats are, and
 * batch-invariant: to the bit against themselves in every batch composition. */
#include "expert_ref.h"

using namespace simt_test;

static std::vector<float> product(const matrix &w, const float *x, int32_t n_rows)
{
    pi__k_input in = {PLAIN, x, w.m.n_in, nullptr, 0, nullptr, 0, 0};
    buffer<char> prepared(pi__k_mma16_prepared_bytes(w.m.type, n_rows, w.m.n_in));
    buffer<float> y((size_t) (n_rows * w.m.n_out));
    must_run(pi__k_mma16_prepare(nullptr, &in, w.m.type, n_rows, w.m.n_in, prepared.get()));
    must_run(pi__k_mma16_linear(nullptr, &w.m, prepared.get(), n_rows, y.get(), w.m.n_out));
    return std::vector<float>(y.get(), y.get() + y.size());
}

static void check(const matrix &w, const std::vector<float> &x, const std::vector<float> &y, int32_t n_rows)
{
    size_t n = (size_t) w.m.n_in, n_out = (size_t) w.m.n_out;
    for (size_t i = 0; i < (size_t) n_rows * n_out; i++) {
        const float *wr = &w.values[i % n_out * n], *xr = &x[i / n_out * n];
        double want = 0, size = 1e-30;
        for (size_t k = 0; k < n; k++) want += (double) wr[k] * xr[k], size += std::fabs((double) wr[k] * xr[k]);
        if (!(std::fabs(y[i] - want) <= 4e-7 * size)) {
            fail_msg("%s %zux%zu row %zu of %d, result %zu: %g, expected %g +- %g", pi__type_info_of(w.m.type)->name, n, n_out,
                     i / n_out, n_rows, i % n_out, (double) y[i], want, 4e-7 * size);
        }
    }
}

static void test_values(void **)
{
    const struct { int64_t n_in, n_out; int32_t rows; } shapes[] = {{8, 1, 1}, {40, 33, 9}, {1048, 20, 12}, {296, 140, 70}};
    for (int32_t type : {PI__F16, PI__BF16}) {
        for (auto c : shapes) {
            matrix w = make_matrix(type, c.n_in, c.n_out);
            simt_test::random r((uint64_t) c.rows);
            std::vector<float> v = r.normals((size_t) (c.rows * c.n_in));
            for (size_t i = 0; i < v.size(); i++) v[i] *= std::exp2((float) (i / (size_t) c.n_in % 40) - (float) (i / 8 % 5));
            if (c.rows > 2) std::fill(v.begin() + c.n_in, v.begin() + 2 * c.n_in, 0.0f);
            buffer<float> x(v);
            std::vector<float> y = product(w, x.get(), c.rows);
            check(w, v, y, c.rows);
            for (int32_t i = 0; i < c.rows; i += 7) { /* a row alone, and in a batch of nine */
                size_t bytes = (size_t) c.n_out * 4;
                assert_memory_equal(product(w, x.get() + i * c.n_in, 1).data(), &y[(size_t) (i * c.n_out)], bytes);
                if (i + 9 > c.rows) continue;
                assert_memory_equal(product(w, x.get() + i * c.n_in, 9).data(), &y[(size_t) (i * c.n_out)], 9 * bytes);
            }
        }
    }
}

static void test_modes(void **)
{
    for (int32_t type : {PI__F16, PI__BF16}) {
        matrix w = make_matrix(type, 200, 140);
        simt_test::random r(1);
        buffer<float> x(r.normals(36 * 200));
        for (int32_t rows : {3, 36}) {
            std::vector<float> first;
            in_all_modes([&] {
                std::vector<float> y = product(w, x.get(), rows);
                if (first.empty()) first = y;
                assert_memory_equal(first.data(), y.data(), y.size() * 4);
            });
        }
    }
}

static matrix seeded(int32_t type, int64_t n_in, int64_t n_out, uint64_t seed)
{
    simt_test::random r(seed);
    return pack_matrix(type, n_in, n_out, random_rows(type, n_in, n_out, r));
}
static void check_one(const matrix &w, const float *x, const std::vector<float> &y)
{
    check(w, std::vector<float>(x, x + w.m.n_in), y, 1);
}

static const way in_mma16 = {seeded, pi__k_mma16_prepared_bytes, pi__k_mma16_prepare, pi__k_mma16_linear,
                              pi__k_mma16_experts,
                              check_one};

static void test_experts(void **)
{
    const struct { int64_t n_in, n_out; int32_t rows; } shapes[] = {{8, 1, 1}, {40, 33, 23}, {520, 20, 9}, {104, 140, 90}};
    for (int32_t type : {PI__F16, PI__BF16}) {
        for (auto s : shapes) experts(in_mma16, type, s.n_in, s.n_out, s.rows).test();
        experts(in_mma16, type, 200, 140, 60).test_modes();
    }
}

/* Operands of a library's products: hi and lo terms, together 22 bits of the row's largest value (F16) or 16 of each
 * value's own; and the epilogue. Values of more than 16 bits, rows of very large and very small ones, a row of
 * zeros. */
static void test_parts(void **)
{
    enum { ROWS = 6, N = 328, OUT = 37 };
    for (int32_t type : {PI__F16, PI__BF16}) {
        simt_test::random r(9);
        std::vector<float> v = r.normals(ROWS * N);
        const float sizes[ROWS] = {1, 1e30f, 1e-30f, 0, 70000, 1};
        for (size_t i = 0; i < v.size(); i++) v[i] *= sizes[i / N];
        v[5 * N + 7] = INFINITY;
        buffer<float> x(v), y(ROWS * (OUT + 3)), scale(1);
        buffer<char> prepared(pi__k_hilo_bytes(ROWS, N));
        pi__k_input in = {PLAIN, x.get(), N, nullptr, 0, nullptr, 0, 0};
        std::vector<char> first;
        in_all_modes([&] {
            must_run(pi__k_hilo_prepare(nullptr, &in, type, ROWS, N, prepared.get()));
            if (first.empty()) first.assign(prepared.get(), prepared.get() + prepared.size());
            assert_memory_equal(first.data(), prepared.get(), first.size());
        });
        const uint16_t *parts = (const uint16_t *) first.data();
        const float *factor = (const float *) (parts + 2 * ROWS * N);
        auto value = [&](uint16_t h) { return type == PI__F16 ? pi__f16_to_f32(h) : pi__bf16_to_f32(h); };
        for (size_t i = 0; i < 5 * N; i++) {
            double got = ((double) value(parts[i]) + value(parts[ROWS * N + i])) * factor[i / N], size = std::fabs(v[i]);
            double off = type == PI__F16 ? 4 * sizes[i / N] * std::exp2(-38) + size * std::exp2(-22) : size * std::exp2(-16);
            assert_true(std::fabs(got - v[i]) <= off);
            assert_true(std::isfinite(value(parts[i])) && (type == PI__F16 || factor[i / N] == 1));
        }
        assert_true(type == PI__F16 ? std::isnan(factor[5]) : !std::isfinite(value(parts[5 * N + 7])));
        scale.get()[0] = 3;
        for (bool scaled : {false, true}) {
            pi__k_matrix w = {};
            w.type = type, w.n_in = N, w.n_out = OUT, w.scale = scaled ? scale.get() : nullptr;
            for (size_t i = 0; i < y.size(); i++) y.get()[i] = (float) i;
            must_run(pi__k_hilo_finish(nullptr, &w, prepared.get(), ROWS, y.get(), OUT + 3));
            for (size_t i = 0; i < 5 * (OUT + 3); i++) {
                float f = i % (OUT + 3) < OUT ? factor[i / (OUT + 3)] * (scaled ? 3.0f : 1.0f) : 1.0f;
                assert_float_equal(y.get()[i], (float) i * f, std::fabs((float) i * f) * 1e-6);
            }
        }
    }
}

/* NaN and infinity stay with their row. Very large and very small values do not spoil it. */
static void test_not_numbers(void **)
{
    for (int32_t type : {PI__F16, PI__BF16}) {
        matrix w = make_matrix(type, 64, 16);
        simt_test::random r(3);
        std::vector<float> v = r.normals(5 * 64);
        v[5] = NAN;
        v[64 + 40] = INFINITY;
        for (size_t i = 0; i < 64; i++) v[128 + i] *= 1e30f, v[192 + i] *= 1e-30f;
        buffer<float> x(v);
        std::vector<float> y = product(w, x.get(), 5);
        for (size_t i = 0; i < 16; i++) assert_true(!std::isfinite(y[i]) && !std::isfinite(y[16 + i]) && std::isfinite(y[64 + i]));
        check(w, std::vector<float>(v.begin() + 128, v.end()), std::vector<float>(y.begin() + 32, y.end()), 3);
    }
    assert_true(pi__k_mma16_has(PI__BF16, 64) && !pi__k_mma16_has(PI__BF16, 60) && !pi__k_mma16_has(PI__F32, 64));
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_modes), cmocka_unit_test(test_experts),
                                cmocka_unit_test(test_parts),                                cmocka_unit_test(test_not_numbers)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
