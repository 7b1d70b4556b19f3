/* Tails of products: the bits of separate launches, for every number of rows that they take, whoever shares the rows; and the
 * counter is as it was before. */
#include "selftest/checks.h"
#include "selftest/matmul_error.h"

namespace selftest {
namespace {

enum { E = 320, F = 96 }; /* what a residual has; what a feed-forward has */

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

/* A product, then what comes behind it: by launches of their own, or as the tail of the product, or as one launch. */
struct half_layer {
    const matrix &w;
    bool w16, adds;
    const float *norm;    /* of what is added, or NULL */
    int32_t rows;
    buffer<char> prepared;
    buffer<float> x0, y, next_w;
    buffer<uint32_t> arrived;

    half_layer(const matrix &w_, bool w16_, bool adds_, const float *norm_, int32_t rows_)
        : w(w_), w16(w16_), adds(adds_), norm(norm_), rows(rows_),
          prepared(w16 ? pi__k_w16_prepared_bytes(rows, w.m.n_in) : pi__k_prepared_bytes(rows, w.m.n_in, 0)),
          x0(random(7).normals((size_t) (rows * w.m.n_out))), y((size_t) (rows * w.m.n_out)),
          next_w(random(8).normals((size_t) w.m.n_out)), arrived(std::vector<uint32_t>{0})
    {
        random r(9);
        buffer<float> in(r.normals((size_t) (rows * w.m.n_in)));
        const pi__k_input k = {PLAIN, in.get(), w.m.n_in, nullptr, 0, nullptr, 0, 0};
        if (w16) must_run(pi__k_w16_prepare(stream(), &k, w.m.type, rows, w.m.n_in, prepared.get()));
        else must_run(pi__k_prepare(stream(), &k, rows, w.m.n_in, 0, prepared.get()));
    }
    pi__k_input next(const float *x) const
    {
        if (adds) return {RMSNORM, x, w.m.n_out, nullptr, 0, next_w.get(), 1e-6f, 0};
        return {SWIGLU, y.get(), w.m.n_out, y.get() + F, w.m.n_out, nullptr, 0, 0};
    }
    int64_t next_n() const { return adds ? w.m.n_out : (int64_t) F; }
    pi__k_tail tail(buffer<float> &x, forms &f)
    {
        pi__k_tail t = {};
        t.arrived = arrived.get();
        t.n_rows = rows;
        if (adds) t.x = x.get(), t.y = y.get(), t.w = norm, t.eps = 1e-5f, t.scale = 0.5f, t.n = w.m.n_out;
        t.in = next(x.get());
        t.n_in = next_n();
        t.integers = f.integers.get(), t.floats = f.floats.get(), t.halves = f.halves.get();
        t.bf16 = pi__k_w16_input(w.m.type);
        return t;
    }
    void multiply(const pi__k_tail *t)
    {
        const pi__k_product p = {w.m, y.get(), w.m.n_out};
        if (w16) must_run(pi__k_w16_linear_then(stream(), &p, 1, prepared.get(), rows, t));
        else must_run(pi__k_linear_then(stream(), &p, 1, prepared.get(), rows, t));
    }
    void apart(buffer<float> &x, forms &f)
    {
        const pi__add_norm a = {x.get(), y.get(), norm, 1e-5f, 0.5f, rows, w.m.n_out};
        multiply(nullptr);
        if (adds) must_run(pi__k_add_norm(stream(), &a));
        f.prepare(next(x.get()), w.m.type);
    }
};

void check(half_layer &l)
{
    const size_t n = l.x0.size();
    const std::vector<float> x0(l.x0.get(), l.x0.get() + n);
    buffer<float> want_x(x0);
    forms want(l.rows, l.next_n());
    l.apart(want_x, want);
    const std::vector<float> want_y(l.y.get(), l.y.get() + n);
    in_all_modes([&] {
        for (int i = 0; i < 3; i++) { /* twice as a tail, as it is when it is captured; then as a launch of its own */
            buffer<float> x(x0);
            forms got(l.rows, l.next_n());
            pi__k_tail t = l.tail(x, got);
            l.y.fill(0xff);
            l.multiply(i < 2 ? &t : nullptr);
            if (i == 2) must_run(pi__k_finish_rows(stream(), &t));
            expect_bytes(want_y.data(), l.y.get(), n * sizeof(float));
            expect_bytes(want_x.get(), x.get(), n * sizeof(float));
            want.expect_same(got);
            expect_equal(*l.arrived.get(), 0u);
        }
    });
}

void test_all(bool adds)
{
    const struct { int32_t type; bool w16; } ways[] = {{PI__Q8_0, true}, {PI__MXFP4, true}, {PI__Q4_K, false}};
    buffer<float> norm(random(3).normals(E));
    for (auto way : ways) {
        matrix w = make_matrix(way.type, way.type == PI__Q4_K ? 512 : 288, adds ? E : 2 * F);
        for (int32_t rows : {1, 2, 7, 16}) {
            if (slow() && rows > 2) continue;
            about("%s, %d rows", pi__type_info_of(way.type)->name, (int) rows);
            half_layer l(w, way.w16, adds, adds && rows % 2 ? norm.get() : nullptr, rows);
            check(l);
        }
    }
}

void test_residual() { test_all(true); }
void test_gate() { test_all(false); }

/* More rows than a tail takes, and matrices of floats. */
void test_refused()
{
    pi__k_tail t = {};
    pi__k_product p = {};
    char none = 0;
    p.w.type = PI__Q8_0;
    expect_true(pi__k_w16_linear_then(stream(), &p, 1, &none, PI__K_TAIL_ROWS + 1, &t) != 0);
    expect_true(pi__k_linear_then(stream(), &p, 1, &none, PI__K_TAIL_ROWS + 1, &t) != 0);
    p.w.type = PI__F32;
    expect_true(pi__k_linear_then(stream(), &p, 1, &none, 1, &t) != 0);
}

const entry checks[] = {{"residual", test_residual}, {"gate", test_gate}, {"refused", test_refused}};

} // namespace

const family checks_of_tails = {"tails", "residual, norm and rounding behind products", checks, sizeof checks / sizeof *checks};

} // namespace selftest
