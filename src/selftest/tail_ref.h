/* For the checks of launches with a tail: what it prepares, and what launches of their own do. */
#ifndef PI__SELFTEST_TAIL_REF_H
#define PI__SELFTEST_TAIL_REF_H

#include "selftest/matrix_ref.h"

namespace selftest {

/* Input of the next matrices, in every form. */
struct forms {
    buffer<char> integers, halves;
    buffer<float> floats;
    int32_t rows;
    int64_t n;

    forms(int32_t rows_, int64_t n_)
        : integers(pi__k_prepared_bytes(rows_, n_, 0)), halves(pi__k_w16_prepared_bytes(rows_, n_)),
          floats((size_t) (rows_ * n_)), rows(rows_), n(n_)
    {
        integers.fill(0), halves.fill(0), floats.fill(0);
    }
    void prepare(const pi__k_input &in, int32_t type)
    {
        must_run(pi__k_prepare(stream(), &in, rows, n, 0, integers.get()));
        must_run(pi__k_prepare(stream(), &in, rows, n, 1, floats.get()));
        must_run(pi__k_w16_prepare(stream(), &in, type, rows, n, halves.get()));
    }
    /* All but the factors of rows behind the last. */
    void expect_same(const forms &o) const
    {
        const size_t group = (size_t) ((rows + 7) / 8 * 8), factors = halves.size() - group * sizeof(float);
        expect_bytes(integers.get(), o.integers.get(), integers.size());
        expect_bytes(floats.get(), o.floats.get(), floats.size() * sizeof(float));
        expect_bytes(halves.get(), o.halves.get(), factors + (size_t) rows * sizeof(float));
    }
};

/* The tail of a launch whose results x are the input of the next matrices, as they are. */
struct plain_tail {
    pi__k_input in;
    forms got;
    buffer<uint32_t> arrived;
    pi__k_tail t;
    static constexpr unsigned long LAUNCHES = 3; /* of check() */

    plain_tail(const float *x, int64_t ldx, int32_t rows, int64_t n)
        : in{PLAIN, x, ldx, nullptr, 0, nullptr, 0, 0}, got(rows, n), arrived(std::vector<uint32_t>{0}), t{}
    {
        t.arrived = arrived.get();
        t.n_rows = rows;
        t.in = in;
        t.n_in = n;
        t.integers = got.integers.get(), t.floats = got.floats.get(), t.halves = got.halves.get();
    }
    /* When the launch is done. */
    void check() const
    {
        forms want(t.n_rows, t.n_in);
        want.prepare(in, PI__Q8_0);
        want.expect_same(got);
        expect_equal(*arrived.get(), 0u);
    }
};

/* Runs heads as the tail of a product that has nothing to do with them, of a few blocks of threads. */
inline void run_heads_as_tail(const pi__k_qkv &heads)
{
    const matrix w = make_matrix(PI__Q8_0, 64, 100);
    buffer<float> x(random(1).normals(64)), y(100);
    buffer<uint32_t> arrived(std::vector<uint32_t>{0});
    buffer<char> prepared(pi__k_prepared_bytes(1, 64, 0));
    const pi__k_input in = {PLAIN, x.get(), 64, nullptr, 0, nullptr, 0, 0};
    const pi__k_product p = {w.m, y.get(), 100};
    pi__k_tail t = {};
    t.arrived = arrived.get();
    t.n_rows = heads.n_tokens;
    t.qkv = heads;
    must_run(pi__k_prepare(stream(), &in, 1, 64, 0, prepared.get()));
    must_run(pi__k_linear_then(stream(), &p, 1, prepared.get(), 1, &t));
    expect_equal(*arrived.get(), 0u);
}

} // namespace selftest

#endif
