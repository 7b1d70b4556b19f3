/* Checks products with many rows of x: bitwise identical to products with few rows, for every packed format and in
 * every order of threads and copies. */
#include "selftest/matrix_ref.h"
#include "selftest/checks.h"

namespace selftest {
namespace {

const struct { int64_t blocks, n_out; int32_t rows; } shapes[] = {
    {1, 1, 33}, {3, 130, 65}, {2, 17, 129}, {17, 33, 40},
};

pi__k_input rows_of(const buffer<float> &x, int64_t n_in, int64_t first)
{
    return {PLAIN, x.get() + first * n_in, n_in, nullptr, 0, nullptr, 0, 0};
}

/* Returns the same product, computed 32 rows at a time. */
std::vector<float> in_pieces(const matrix &w, const buffer<float> &x, int32_t rows)
{
    std::vector<float> all;
    for (int32_t i = 0; i < rows; i += 32) {
        std::vector<float> y = multiply(w, rows_of(x, w.m.n_in, i), std::min(32, rows - i));
        all.insert(all.end(), y.begin(), y.end());
    }
    return all;
}

void test_same_bits()
{
    for (int32_t type : one_of(types)) {
        if (pi__type_is_float(type)) continue;
        for (auto c : one_of(shapes)) {
            c.rows = size_to(c.rows), c.n_out = size_to(c.n_out);
            int64_t unit = (int64_t) pi__type_info_of(type)->blck_size;
            matrix w = make_matrix(type, unit > 64 ? (c.blocks + 3) / 4 * unit : c.blocks * unit, c.n_out);
            random r((uint64_t) (c.rows + c.n_out));
            buffer<float> x(r.normals((size_t) (c.rows * w.m.n_in)));
            std::vector<float> some = in_pieces(w, x, c.rows), all = multiply(w, rows_of(x, w.m.n_in, 0), c.rows);
            for (size_t i = 0; i < all.size(); i++) {
                if (std::memcmp(&all[i], &some[i], 4)) {
                    fail_check("%s %lldx%lld, row %zu of %d, result %zu: %a, but %a in a batch of one",
                               pi__type_info_of(type)->name, (long long) w.m.n_in, (long long) c.n_out,
                               i / (size_t) c.n_out, c.rows, i % (size_t) c.n_out, (double) all[i], (double) some[i]);
                }
            }
        }
    }
}

void test_modes()
{
    for (int32_t type : one_of({PI__Q4_K, PI__Q8_0, PI__NVFP4})) {
        matrix w = make_matrix(type, 256, 140);
        random r(1);
        buffer<float> x(r.normals(36 * 256));
        std::vector<float> want = in_pieces(w, x, 36);
        on_all_archs([&] {
            in_all_modes([&] {
                std::vector<float> y = multiply(w, rows_of(x, 256, 0), 36);
                expect_bytes(want.data(), y.data(), y.size() * 4);
            });
        });
    }
}

/* A NaN in a row of x does not affect the other rows. */
void test_not_numbers()
{
    matrix w = make_matrix(PI__Q5_K, 256, 40);
    random r(3);
    std::vector<float> v = r.normals(48 * 256);
    v[256 * 20 + 7] = NAN;
    buffer<float> x(v);
    std::vector<float> y = multiply(w, rows_of(x, 256, 0), 48);
    for (size_t i = 0; i < y.size(); i++) expect_equal(std::isfinite(y[i]), i / 40 != 20);
}

const entry checks[] = {
    {"same_bits", test_same_bits}, {"modes", test_modes}, {"not_numbers", test_not_numbers},
};

} // namespace

const family checks_of_gemm = {"gemm", "matmuls with many rows", checks, sizeof checks / sizeof *checks};

} // namespace selftest
