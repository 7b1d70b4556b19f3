/* Checks wgmma kernels: products of many rows on sm_90. They are bitwise identical to the w16 kernels, which
 * check_w16.cpp checks. */
#include "selftest/checks.h"
#include "selftest/glu_ref.h"
#include "selftest/matmul_error.h"

namespace selftest {
namespace {

/* numbers of multiprocessors: ONE selects the largest thread blocks, MANY selects small ones */
enum { ONE = 1, MANY = 1 << 20 };

struct products {
    int32_t type;
    int64_t n_in;
    std::vector<matrix> w; /* of that type, all with the same x */
    int64_t ld = 3;
    float add = 0; /* factor for adding the results to y; 0 = y is overwritten */

    products(int32_t type_, int64_t blocks, const std::vector<int64_t> &n_out)
        : type(type_), n_in(columns_of(type_, blocks))
    {
        for (int64_t n : n_out) {
            w.push_back(make_matrix(type, n_in, n));
            ld += n;
        }
    }
    /* Returns the results with n_sm multiprocessors; 0 = with the mma.sync kernels. Gaps between rows must stay
     * unwritten. */
    std::vector<float> multiply(const void *prepared, int32_t rows, int32_t n_sm)
    {
        buffer<float> y(std::vector<float>((size_t) (rows * ld), add != 0 ? 3.0f : NAN));
        std::vector<pi__k_product> p;
        int64_t at = 0;
        for (const matrix &m : w) {
            p.push_back({m.m, y.get() + at, ld, add});
            at += m.m.n_out;
        }
        const int32_t n = (int32_t) p.size();
        if (n_sm) must_run(pi__k_wgmma_linear(stream(), p.data(), n, prepared, rows, n_sm));
        else must_run(pi__k_w16_linear(stream(), p.data(), n, prepared, rows));
        return std::vector<float>(y.get(), y.get() + y.size());
    }
    /* Checks that both kernels give bitwise identical results, and returns them. */
    std::vector<float> check(const std::vector<float> &values, int32_t rows, int32_t n_sm)
    {
        buffer<float> x(values);
        const pi__k_input in = {PLAIN, x.get(), n_in, nullptr, 0, nullptr, 0, 0};
        buffer<char> prepared(pi__k_w16_packed_x_bytes(rows, n_in));
        about("%s, %d columns, %d rows of x, %d of W", pi__type_info_of(type)->name, (int) n_in, (int) rows,
              (int) w[0].m.n_out);
        must_run(pi__k_w16_pack_x(stream(), &in, type, rows, n_in, prepared.get()));
        const std::vector<float> want = multiply(prepared.get(), rows, 0), got = multiply(prepared.get(), rows, n_sm);
        expect_bytes(want.data(), got.data(), want.size() * 4);
        return got;
    }
    void check(int32_t rows, int32_t n_sm)
    {
        random r((uint64_t) rows);
        std::vector<float> v = r.normals((size_t) (rows * n_in));
        /* uneven magnitudes, so that sums are rounded */
        for (size_t i = 0; i < v.size(); i++) v[i] *= i % 7 ? 1.0f : i % 2 ? 300.0f : 0.01f;
        check(v, rows, n_sm);
    }
};

/* Odd shapes: fewer blocks than slices, slices that end within a group of 256 columns, partly filled tiles, warpgroups
 * without rows. */
void test_bits()
{
    on_arch(90, [] {
        for (int32_t type : one_of(w16_types)) {
            products(type, 11, {80}).check(66, MANY);
            products(type, 5, {70}).check(9, ONE);
        }
        products(PI__Q4_0, 1, {1}).check(1, ONE);
        products(PI__Q8_0, 3, {257}).check(7, ONE);
        products(PI__Q4_K, 24, {70}).check(130, MANY);
    });
}

void test_many_rows()
{
    on_arch(90, [] { products(PI__Q8_0, 2, {40}).check(2048, MANY); });
}

void test_together()
{
    on_arch(90, [] {
        for (int32_t n_sm : {ONE, MANY}) {
            products p(PI__NVFP4, 10, {9, 130, 65});
            buffer<float> factor(std::vector<float>{0.25f});
            p.w[1].m.scale = factor.get();
            p.check(66, n_sm);
            p.add = 0.75f;
            p.check(66, n_sm);
        }
    });
}

void test_modes()
{
    on_arch(90, [] {
        products large(PI__Q4_K, 24, {20});
        products small(PI__MXFP4, 20, {20});
        in_all_modes([&] {
            large.check(2, ONE);
            small.check(2, MANY);
        });
    });
}

/* NaN and infinity stay within their row. */
void test_not_numbers()
{
    on_arch(90, [] {
        products p(PI__Q4_0, 2, {16});
        random r(3);
        std::vector<float> v = r.normals(66 * 64);
        v[5] = NAN, v[64 + 40] = INFINITY;
        const std::vector<float> y = p.check(v, 66, MANY);
        for (size_t i = 0; i < y.size(); i++)
            if (i % 19 < 16) expect_equal(std::isfinite(y[i]), i >= 2 * 19);
    });
}

/* Warpgroups of the last thread block have no rows of W, or only half of their rows; large and small thread blocks. */
void test_gate_and_up()
{
    on_arch(90, [] {
        int32_t n_sm = MANY;
        auto run = [&](const pi__k_w16_glu &a, const void *x, int32_t rows) {
            return pi__k_wgmma_glu_run(stream(), &a, x, rows, n_sm);
        };
        int n = 0;
        for (int32_t type : one_of(w16_types)) {
            if (!pi__k_wgmma_has_glu(type)) continue;
            gate_and_up g(type, 11, 160, 70);
            for (int32_t size : {ONE, MANY}) n_sm = size, g.check(PI__IN_SWIGLU, 0, type, run);
            n++;
        }
        expect_true(n >= 6);
        gate_and_up one(PI__Q4_K, 9, 32, 65), two(PI__Q4_0, 3, 288, 131);
        one.check(PI__IN_GEGLU, 0, PI__Q6_K, run);
        one.check(PI__IN_SWIGLU_OAI, 7, PI__MXFP4, run);
        n_sm = ONE;
        two.check(PI__IN_SWIGLU, 1.5f, PI__Q8_0, run);
        in_all_modes([&] { one.check(PI__IN_SWIGLU, 0, PI__Q4_K, run); });
    });
}

const entry checks[] = {
    {"bits", test_bits}, {"many_rows", test_many_rows}, {"together", test_together}, {"modes", test_modes},
    {"not_numbers", test_not_numbers}, {"gate_and_up", test_gate_and_up},
};

} // namespace

const family checks_of_wgmma = {"wgmma", "matmuls with many rows by wgmma", checks, sizeof checks / sizeof *checks};

} // namespace selftest
