/* For checks of launches with an epilogue: the epilogue's outputs, and the separate launches that they are compared
 * with. */
#ifndef PI__SELFTEST_TAIL_REF_H
#define PI__SELFTEST_TAIL_REF_H

#include "selftest/matrix_ref.h"

namespace selftest {

/* Returns the size in bytes of packed FP4 (or FP8) rows without the factors that follow them. kernels/fp4.cuh describes
 * the layout. */
inline size_t fp4_bytes(int32_t rows, int64_t n, bool fp8)
{
    const int64_t chunks = (n + 63) / 64;
    int64_t steps = 0;
    for (int64_t k = 0; k < 8; k++) steps += (chunks * (k + 1) / 8 - chunks * k / 8 + 1) / 2;
    return ((size_t) (rows + 7) / 8 * 8 * (size_t) steps * (fp8 ? 144 : 80) + 15) / 16 * 16;
}
inline void expect_same_fp4(const buffer<char> &a, const buffer<char> &b, int32_t rows, int64_t n, bool fp8)
{
    const size_t bytes = fp4_bytes(rows, n, fp8);
    expect_bytes(a.get(), b.get(), bytes);
    expect_bytes(a.get() + bytes, b.get() + bytes, (size_t) rows * sizeof(float));
}

/* Packed activations for the next matrices, in every format. */
struct forms {
    buffer<char> integers, halves, fp4;
    buffer<float> floats;
    int32_t rows, fp4_type;
    int64_t n;
    bool fp8;

    forms(int32_t rows_, int64_t n_, int32_t fp4_type_ = PI__MXFP4, bool fp8_ = false)
        : integers(pi__k_packed_x_bytes(rows_, n_, 0)), halves(pi__k_w16_packed_x_bytes(rows_, n_)),
          fp4(pi__k_fp4_packed_x_bytes(rows_, n_)), floats((size_t) (rows_ * n_)), rows(rows_), fp4_type(fp4_type_),
          n(n_), fp8(fp8_)
    {
        integers.fill(0), halves.fill(0), floats.fill(0), fp4.fill(0);
    }
    /* Makes the buffers outputs of epilogue t; FP4 only if the device supports it. */
    void put_in(pi__k_tail &t)
    {
        t.integers = integers.get(), t.floats = floats.get(), t.halves = halves.get();
        t.fp4 = has_fp4() ? fp4.get() : nullptr, t.fp4_type = fp4_type, t.fp8 = fp8;
    }
    /* Makes only the F32 and 16-bit buffers outputs of t: this code path keeps rows in registers. The other buffers get
     * the contents of `want`, so that expect_same accepts them. */
    void put_in_floats(pi__k_tail &t, const forms &want)
    {
        put_in(t);
        t.integers = t.fp4 = nullptr;
        std::copy(want.integers.get(), want.integers.get() + integers.size(), integers.get());
        std::copy(want.fp4.get(), want.fp4.get() + fp4.size(), fp4.get());
    }
    void prepare(const pi__k_input &in, int32_t type)
    {
        must_run(pi__k_pack_x(stream(), &in, rows, n, 0, integers.get()));
        must_run(pi__k_pack_x(stream(), &in, rows, n, 1, floats.get()));
        must_run(pi__k_w16_pack_x(stream(), &in, type, rows, n, halves.get()));
        must_run((fp8 ? pi__k_w4a8_pack_x : pi__k_fp4_pack_x)(stream(), &in, fp4_type, rows, n, fp4.get()));
    }
    /* Compares all outputs, except the factors of rows after the last one. */
    void expect_same(const forms &o) const
    {
        const size_t group = (size_t) ((rows + 7) / 8 * 8), factors = halves.size() - group * sizeof(float);
        expect_bytes(integers.get(), o.integers.get(), integers.size());
        expect_bytes(floats.get(), o.floats.get(), floats.size() * sizeof(float));
        expect_bytes(halves.get(), o.halves.get(), factors + (size_t) rows * sizeof(float));
        if (has_fp4()) expect_same_fp4(fp4, o.fp4, rows, n, fp8);
    }
};

/* Packed activations as sums of 16-bit terms, for matrices of a 16-bit type (kernels/mma16.cuh). */
struct term_form {
    int32_t type, rows;
    int64_t n;
    buffer<char> at;

    term_form(int32_t type_, int32_t rows_, int64_t n_)
        : type(type_), rows(rows_), n(n_), at(pi__k_mma16_packed_x_bytes(type, rows, n))
    {
        at.fill(0xff);
    }
    void put_in(pi__k_tail &t) { t.terms = at.get(), t.terms_type = type; }
    void prepare(const pi__k_input &in) { must_run(pi__k_mma16_pack_x(stream(), &in, type, rows, n, at.get())); }
    /* Compares all rows; groups of 8 rows may have unused rows after the last one. */
    void expect_same(const term_form &o) const
    {
        const size_t n_terms = type == PI__F16 ? 2 : 3, blocks = (size_t) (n + 31) / 32,
                     bytes = 512 * n_terms + (type == PI__F16 ? 32 : 0);
        for (size_t b = 0; b < (size_t) ((rows + 7) / 8) * blocks; b++)
            for (size_t r = 0; r < 8 && b / blocks * 8 + r < (size_t) rows; r++) {
                const char *p = at.get() + b * bytes, *q = o.at.get() + b * bytes;
                for (size_t k = 0; k < n_terms; k++) expect_bytes(p + 512 * k + 64 * r, q + 512 * k + 64 * r, 64);
                if (type == PI__F16) expect_bytes(p + 1024 + 4 * r, q + 1024 + 4 * r, 4);
            }
    }
};

/* The epilogue of a launch that packs its outputs x for the next matrices without a transformation. Even numbers of
 * rows are packed as terms of F16, odd ones of BF16. */
struct plain_tail {
    pi__k_input in;
    forms got;
    term_form terms;
    buffer<uint32_t> arrived;
    pi__k_tail t;
    static constexpr unsigned long LAUNCHES = 5; /* number of launches in check() */

    plain_tail(const float *x, int64_t ldx, int32_t rows, int64_t n)
        : in {PLAIN, x, ldx, nullptr, 0, nullptr, 0, 0}, got(rows, n, n % 64 ? PI__MXFP4 : PI__NVFP4),
          terms(rows % 2 ? PI__BF16 : PI__F16, rows, n), arrived(std::vector<uint32_t> {0}), t {}
    {
        t.arrived = arrived.get();
        t.waits = waits();
        t.n_rows = rows;
        t.in = in;
        t.n_in = n;
        got.put_in(t);
        terms.put_in(t);
    }
    /* Checks the epilogue's outputs after the launch. */
    void check() const
    {
        forms want(t.n_rows, t.n_in, t.fp4_type);
        term_form want_terms(terms.type, terms.rows, terms.n);
        want.prepare(in, PI__Q8_0);
        want_terms.prepare(in);
        want.expect_same(got);
        want_terms.expect_same(terms);
        expect_equal(*arrived.get(), 0u);
    }
};

/* Checks that a product of w with many rows, which adds its results to the residual, is bitwise identical to a product
 * and a separate addition. */
template <class F> void check_added(const matrix &w, int32_t rows, const F &multiply)
{
    const size_t n = (size_t) (rows * w.m.n_out);
    const std::vector<float> before = random(21).normals(n);
    buffer<float> y(n), want(before), got(before);
    pi__k_product p = {w.m, y.get(), w.m.n_out, 0};
    const pi__add_norm add = {want.get(), y.get(), nullptr, nullptr, 0, 0.75f, rows, w.m.n_out};
    about("%s added, %d rows", pi__type_info_of(w.m.type)->name, (int) rows);
    multiply(p);
    must_run(pi__k_add_norm(stream(), &add));
    p.y = got.get(), p.add = 0.75f;
    multiply(p);
    expect_bytes(want.get(), got.get(), n * sizeof(float));
}

/* Runs op qkv (`heads`) as the epilogue of an unrelated product with a few thread blocks. */
inline void run_heads_as_tail(const pi__k_qkv &heads)
{
    const matrix w = make_matrix(PI__Q8_0, 64, 100);
    buffer<float> x(random(1).normals(64)), y(100);
    buffer<uint32_t> arrived(std::vector<uint32_t>{0});
    buffer<char> prepared(pi__k_packed_x_bytes(1, 64, 0));
    const pi__k_input in = {PLAIN, x.get(), 64, nullptr, 0, nullptr, 0, 0};
    const pi__k_product p = {w.m, y.get(), 100, 0};
    pi__k_tail t = {};
    t.arrived = arrived.get();
    t.waits = waits();
    t.n_rows = heads.n_tokens;
    t.qkv = heads;
    must_run(pi__k_pack_x(stream(), &in, 1, 64, 0, prepared.get()));
    must_run(pi__k_linear_then(stream(), &p, 1, prepared.get(), 1, &t));
    expect_equal(*arrived.get(), 0u);
}

} // namespace selftest

#endif
