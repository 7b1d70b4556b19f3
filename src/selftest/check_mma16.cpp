/* Checks mma16 kernels: products with F16 and BF16 matrices against double precision, to the accuracy of float sums.
 * Results are batch-invariant: bitwise identical in every batch composition. */
#include "backend/cuda/kernels_mma16.h"
#include "selftest/expert_ref.h"
#include "selftest/checks.h"

namespace selftest {
namespace {

std::vector<float> product(const matrix &w, const float *x, int32_t n_rows)
{
    pi__k_input in = {PLAIN, x, w.m.n_in, nullptr, 0, nullptr, 0, 0};
    buffer<char> prepared(pi__k_mma16_packed_x_bytes(w.m.type, n_rows, w.m.n_in));
    buffer<float> y((size_t) (n_rows * w.m.n_out));
    must_run(pi__k_mma16_pack_x(stream(), &in, w.m.type, n_rows, w.m.n_in, prepared.get()));
    must_run(pi__k_mma16_linear(stream(), &w.m, prepared.get(), n_rows, y.get(), w.m.n_out));
    return std::vector<float>(y.get(), y.get() + y.size());
}

void check(const matrix &w, const std::vector<float> &x, const std::vector<float> &y, int32_t n_rows)
{
    size_t n = (size_t) w.m.n_in, n_out = (size_t) w.m.n_out;
    for (size_t i = 0; i < (size_t) n_rows * n_out; i++) {
        const float *wr = &w.values[i % n_out * n], *xr = &x[i / n_out * n];
        double want = 0, size = 1e-30;
        for (size_t k = 0; k < n; k++) want += (double) wr[k] * xr[k], size += std::fabs((double) wr[k] * xr[k]);
        if (!within(std::fabs(y[i] - want), 4e-7 * size)) {
            fail_check("%s %zux%zu row %zu of %d, result %zu: %g, expected %g +- %g", pi__type_info_of(w.m.type)->name,
                       n, n_out, i / n_out, n_rows, i % n_out, (double) y[i], want, 4e-7 * size);
        }
    }
}

void test_values()
{
    const struct {
        int64_t n_in, n_out;
        int32_t rows;
    } shapes[] = {{8, 1, 1}, {40, 33, 9}, {1048, 20, 12}, {296, 140, 70}};
    for (int32_t type : one_of({PI__F16, PI__BF16})) {
        for (auto c : one_of(shapes)) {
            c.rows = size_to(c.rows), c.n_out = size_to(c.n_out);
            matrix w = make_matrix(type, c.n_in, c.n_out);
            random r((uint64_t) c.rows);
            std::vector<float> v = r.normals((size_t) (c.rows * c.n_in));
            for (size_t i = 0; i < v.size(); i++)
                v[i] *= std::exp2((float) (i / (size_t) c.n_in % 40) - (float) (i / 8 % 5));
            if (c.rows > 2) std::fill(v.begin() + c.n_in, v.begin() + 2 * c.n_in, 0.0f);
            buffer<float> x(v);
            std::vector<float> y = product(w, x.get(), c.rows);
            check(w, v, y, c.rows);
            for (int32_t i = 0; i < c.rows; i += 7) { /* rows in a batch of one, and of nine */
                size_t bytes = (size_t) c.n_out * 4;
                expect_bytes(product(w, x.get() + i * c.n_in, 1).data(), &y[(size_t) (i * c.n_out)], bytes);
                if (i + 9 > c.rows) continue;
                expect_bytes(product(w, x.get() + i * c.n_in, 9).data(), &y[(size_t) (i * c.n_out)], 9 * bytes);
            }
        }
    }
}

void test_modes()
{
    for (int32_t type : one_of({PI__F16, PI__BF16})) {
        matrix w = make_matrix(type, 200, 140);
        random r(1);
        buffer<float> x(r.normals(36 * 200));
        for (int32_t rows : sizes<int32_t>({3, 36})) {
            std::vector<float> first;
            in_all_modes([&] {
                std::vector<float> y = product(w, x.get(), rows);
                if (first.empty()) first = y;
                expect_bytes(first.data(), y.data(), y.size() * 4);
            });
        }
    }
}

/* Several matrices with any number of rows of W are bitwise identical to separate products; with few rows of x they
 * take one launch. */
void test_several()
{
    const int64_t n_out[] = {140, 1, 24, 48, 16, 33, 7, 100};
    enum { N = 8, IN = 264, MOST = 40 };
    for (int32_t type : one_of({PI__F16, PI__BF16})) {
        std::vector<matrix> w;
        std::vector<std::unique_ptr<buffer<float>>> y;
        pi__k_product p[N];
        random r((uint64_t) type);
        buffer<float> x(r.normals(MOST * IN));
        buffer<char> prepared(pi__k_mma16_packed_x_bytes(type, MOST, IN));
        const pi__k_input in = {PLAIN, x.get(), IN, nullptr, 0, nullptr, 0, 0};
        for (int64_t n : n_out)
            w.push_back(make_matrix(type, IN, n)), y.emplace_back(new buffer<float>((size_t) (MOST * n)));
        for (int32_t i = 0; i < N; i++) p[i] = {w[(size_t) i].m, y[(size_t) i]->get(), n_out[i], 0};
        for (int32_t rows : sizes<int32_t>({1, 9, 32, MOST + 0})) {
            must_run(pi__k_mma16_pack_x(stream(), &in, type, rows, IN, prepared.get()));
            must_run(pi__k_mma16_products(stream(), p, N, prepared.get(), rows));
            for (size_t i = 0; i < N; i++)
                expect_bytes(product(w[i], x.get(), rows).data(), y[i]->get(), (size_t) (rows * n_out[i]) * 4);
        }
        p[3].w.n_in = 40; /* refused: a different input size */
        expect_equal(pi__k_mma16_products(stream(), p, N, prepared.get(), 1), 1);
        expect_equal(pi__k_mma16_products(stream(), p, N + 1, prepared.get(), 1), 1);
    }
}

matrix seeded(int32_t type, int64_t n_in, int64_t n_out, uint64_t seed)
{
    random r(seed);
    return pack_matrix(type, n_in, n_out, random_rows(type, n_in, n_out, r));
}
void check_one(const matrix &w, const float *x, const std::vector<float> &y)
{
    check(w, std::vector<float>(x, x + w.m.n_in), y, 1);
}

const way in_mma16 = {seeded, pi__k_mma16_packed_x_bytes, pi__k_mma16_pack_x, pi__k_mma16_linear,
                              pi__k_mma16_experts,
                              check_one};

void test_experts()
{
    const struct {
        int64_t n_in, n_out;
        int32_t rows;
    } shapes[] = {{8, 1, 1}, {40, 33, 23}, {520, 20, 9}, {104, 140, 90}};
    for (int32_t type : one_of({PI__F16, PI__BF16})) {
        for (auto s : one_of(shapes)) experts(in_mma16, type, s.n_in, size_to(s.n_out), size_to(s.rows)).test();
        experts(in_mma16, type, 200, 140, 60).test_modes();
    }
}

/* Operands for products by a library (high and low terms), and the launch that finishes such products. Together, the
 * terms have 22 bits relative to the row's largest value (F16), or 16 bits relative to each value (BF16). Input values
 * have more than 16 bits; there are rows of very large and of very small values, and a row of zeros. */
void test_parts()
{
    enum { ROWS = 6, N = 328, OUT = 37 };
    for (int32_t type : one_of({PI__F16, PI__BF16})) {
        random r(9);
        std::vector<float> v = r.normals(ROWS * N);
        const float sizes[ROWS] = {1, 1e30f, 1e-30f, 0, 70000, 1};
        for (size_t i = 0; i < v.size(); i++) v[i] *= sizes[i / N];
        v[5 * N + 7] = INFINITY;
        buffer<float> x(v), y(ROWS * (OUT + 3)), scale(1);
        buffer<char> prepared(pi__k_hilo_bytes(ROWS, N));
        pi__k_input in = {PLAIN, x.get(), N, nullptr, 0, nullptr, 0, 0};
        std::vector<char> first;
        in_all_modes([&] {
            must_run(pi__k_hilo_pack_x(stream(), &in, type, ROWS, N, prepared.get()));
            if (first.empty()) first.assign(prepared.get(), prepared.get() + prepared.size());
            expect_bytes(first.data(), prepared.get(), first.size());
        });
        const uint16_t *parts = (const uint16_t *) first.data();
        const float *factor = (const float *) (parts + 2 * ROWS * N);
        auto value = [&](uint16_t h) { return type == PI__F16 ? pi__f16_to_f32(h) : pi__bf16_to_f32(h); };
        for (size_t i = 0; i < 5 * N; i++) {
            double got = ((double) value(parts[i]) + value(parts[ROWS * N + i])) * factor[i / N],
                   size = std::fabs(v[i]);
            double off = type == PI__F16 ? 4 * sizes[i / N] * std::exp2(-38) + size * std::exp2(-22)
                                         : size * std::exp2(-16);
            expect_true(std::fabs(got - v[i]) <= off);
            expect_true(std::isfinite(value(parts[i])) && (type == PI__F16 || factor[i / N] == 1));
        }
        expect_true(type == PI__F16 ? std::isnan(factor[5]) : !std::isfinite(value(parts[5 * N + 7])));
        scale.get()[0] = 3;
        for (bool scaled : {false, true}) {
            pi__k_matrix w = {};
            w.type = type, w.n_in = N, w.n_out = OUT, w.scale = scaled ? scale.get() : nullptr;
            for (size_t i = 0; i < y.size(); i++) y.get()[i] = (float) i;
            must_run(pi__k_hilo_finish(stream(), &w, prepared.get(), ROWS, y.get(), OUT + 3));
            for (size_t i = 0; i < 5 * (OUT + 3); i++) {
                float f = i % (OUT + 3) < OUT ? factor[i / (OUT + 3)] * (scaled ? 3.0f : 1.0f) : 1.0f;
                expect_true(std::fabs(y.get()[i] - (float) i * f) <= std::fabs((float) i * f) * 1e-6f);
            }
        }
    }
}

/* NaN and infinity stay within their row. Very large and very small values do not make other rows less accurate. */
void test_not_numbers()
{
    for (int32_t type : one_of({PI__F16, PI__BF16})) {
        matrix w = make_matrix(type, 64, 16);
        random r(3);
        std::vector<float> v = r.normals(5 * 64);
        v[5] = NAN;
        v[64 + 40] = INFINITY;
        for (size_t i = 0; i < 64; i++) v[128 + i] *= 1e30f, v[192 + i] *= 1e-30f;
        buffer<float> x(v);
        std::vector<float> y = product(w, x.get(), 5);
        for (size_t i = 0; i < 16; i++)
            expect_true(!std::isfinite(y[i]) && !std::isfinite(y[16 + i]) && std::isfinite(y[64 + i]));
        check(w, std::vector<float>(v.begin() + 128, v.end()), std::vector<float>(y.begin() + 32, y.end()), 3);
    }
    expect_true(pi__k_mma16_has(PI__BF16, 64) && !pi__k_mma16_has(PI__BF16, 60) && !pi__k_mma16_has(PI__F32, 64));
}

const entry checks[] = {
    {"values", test_values},   {"several", test_several}, {"modes", test_modes},
    {"experts", test_experts}, {"parts", test_parts},     {"not_numbers", test_not_numbers},
};

} // namespace

const family checks_of_mma16 = {"mma16", "matmuls with 16-bit matrices", checks, sizeof checks / sizeof *checks};

} // namespace selftest
