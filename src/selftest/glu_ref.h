/* For checks of gate, up and activation in one launch with 16-bit floats (kernels_w16_glu.h). The packed input of down
 * must be bitwise identical to that of separate launches, for any number of rows and any activation. A NaN or infinity
 * in a row makes all values of that row NaN. */
#ifndef PI__SELFTEST_GLU_REF_H
#define PI__SELFTEST_GLU_REF_H

#include "backend/cuda/kernels_w16_glu.h"
#include "selftest/matmul_error.h"

namespace selftest {

struct gate_and_up {
    int64_t n_in, n, ld;
    int32_t rows;
    matrix w[2];
    buffer<float> x, factor{std::vector<float>{0.25f}}, y;
    buffer<char> prepared, want, mid;
    buffer<uint32_t> most, arrived{std::vector<uint32_t>{0}};

    gate_and_up(int32_t type, int64_t blocks, int64_t n_, int32_t rows_)
        : n_in(columns_of(type, blocks)), n(n_), ld(2 * n_), rows(rows_),
          w {make_matrix(type, n_in, n), make_matrix(type, n_in, n)},
          x(random((uint64_t) rows_).normals((size_t) (rows_ * n_in))),
          y(std::vector<float>((size_t) (rows_ * ld), 7.0f)), prepared(pi__k_w16_packed_x_bytes(rows_, n_in)),
          want(pi__k_w16_packed_x_bytes(rows_, n_)), mid(pi__k_w16_packed_x_bytes(rows_, n_)),
          most(std::vector<uint32_t>((size_t) rows_, 0))
    {
        w[1].m.scale = factor.get();
        for (size_t r = 0; r < 3 && rows >= 3; r++) { /* a row with a very large value, one with a 0, one with a NaN */
            const float by[3] = {1e12f, 0, NAN};
            x[(r * 5 % (size_t) rows) * (size_t) n_in] = r == 2 ? by[r]
                                                                : x[(r * 5 % (size_t) rows) * (size_t) n_in] * by[r];
        }
    }
    pi__k_w16_glu launch(int32_t act, float limit, int32_t mid_type)
    {
        return {w[0].m, w[1].m.data, w[1].m.scale, act,       limit,         y.get(),
                ld,     most.get(),  mid_type,     mid.get(), arrived.get(), waits()};
    }
    /* Returns the packed rows at `from` times a random matrix of that type. */
    std::vector<float> down(int32_t type, const void *from)
    {
        const matrix m = make_matrix(type, n, 16);
        buffer<float> to((size_t) rows * 16);
        const pi__k_product p = {m.m, to.get(), 16, 0};
        must_run(pi__k_w16_linear(stream(), &p, 1, from, rows));
        return std::vector<float>(to.get(), to.get() + to.size());
    }
    /* Compares run(), which is the single launch, with separate launches. run(launch, packed_x, rows) returns a runtime
     * error code. */
    template <class F> void check(int32_t act, float limit, int32_t mid_type, const F &run)
    {
        const pi__k_input in = {PI__IN_PLAIN, x.get(), n_in, nullptr, 0, nullptr, 0, 0};
        const pi__k_input reads = {act, y.get(), ld, y.get() + n, ld, nullptr, 0, limit};
        const pi__k_product p[2] = {{w[0].m, y.get(), ld, 0}, {w[1].m, y.get() + n, ld, 0}};
        about("%s, %d x %d, %d rows, activation %d", pi__type_info_of(w[0].m.type)->name, (int) n_in, (int) n,
              (int) rows, (int) act);
        must_run(pi__k_w16_pack_x(stream(), &in, w[0].m.type, rows, n_in, prepared.get()));
        must_run(pi__k_w16_linear(stream(), p, 2, prepared.get(), rows));
        must_run(pi__k_w16_pack_x(stream(), &reads, mid_type, rows, n, want.get()));
        for (int again = 0; again < 2; again++) {
            std::fill(mid.get(), mid.get() + mid.size(), 1);
            must_run(run(launch(act, limit, mid_type), prepared.get(), rows));
            if (rows % 8 == 0 || rows > PI__K_TAIL_ROWS) { /* otherwise rows after the last one are not written */
                expect_bytes(want.get(), mid.get(), mid.size());
            } else {
                const std::vector<float> a = down(mid_type, want.get()), b = down(mid_type, mid.get());
                expect_bytes(a.data(), b.data(), a.size() * sizeof(float));
            }
            expect_equal(arrived[0], 0);
            for (size_t i = 0; i < most.size(); i++) expect_equal(most[i], 0);
        }
    }
};

} // namespace selftest

#endif
