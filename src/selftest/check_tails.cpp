/* Checks epilogues of products: bitwise identical to separate launches, for every number of rows that they support and
 * any split of rows over thread blocks. Afterwards, the arrival counter must be 0 again. */
#include "backend/cuda/kernels_mma16.h"
#include "selftest/checks.h"
#include "selftest/tail_ref.h"

namespace selftest {
namespace {

enum { E = 320, F = 96 }; /* columns of the residual stream; columns of the feed-forward network */
enum way_of { EXACT, W16, W4A4, W4A8 };

/* A product and the work after it: as separate launches (apart), as the product's epilogue, or as one launch after the
 * product. */
struct half_layer {
    const matrix &w;
    way_of way;
    bool adds, twice;     /* adds: results are added to the residual; twice: a first pass norms them */
    const float *norm;    /* norm weights for the addend; NULL = no norm */
    int32_t rows;
    buffer<char> prepared;
    buffer<float> x0, y, normed, next_w;
    buffer<uint32_t> arrived;

    static size_t bytes(way_of way, int32_t rows, int64_t n_in)
    {
        if (way == W16) return pi__k_w16_packed_x_bytes(rows, n_in);
        return way == EXACT ? pi__k_packed_x_bytes(rows, n_in, 0) : pi__k_fp4_packed_x_bytes(rows, n_in);
    }
    half_layer(const matrix &w_, way_of way_, bool adds_, const float *norm_, int32_t rows_)
        : w(w_), way(way_), adds(adds_), twice(norm_ && rows_ == 1), norm(norm_), rows(rows_),
          prepared(bytes(way, rows, w.m.n_in)), x0(random(7).normals((size_t) (rows * w.m.n_out))),
          y((size_t) (rows * w.m.n_out)), normed(y.size()), next_w(random(8).normals((size_t) w.m.n_out)),
          arrived(std::vector<uint32_t> {0})
    {
        random r(9);
        buffer<float> in(r.normals((size_t) (rows * w.m.n_in)));
        const pi__k_input k = {PLAIN, in.get(), w.m.n_in, nullptr, 0, nullptr, 0, 0};
        if (way == W16) must_run(pi__k_w16_pack_x(stream(), &k, w.m.type, rows, w.m.n_in, prepared.get()));
        else if (way == W4A4) must_run(pi__k_fp4_pack_x(stream(), &k, w.m.type, rows, w.m.n_in, prepared.get()));
        else if (way == W4A8) must_run(pi__k_w4a8_pack_x(stream(), &k, w.m.type, rows, w.m.n_in, prepared.get()));
        else must_run(pi__k_pack_x(stream(), &k, rows, w.m.n_in, 0, prepared.get()));
    }
    pi__k_input next(const float *x) const
    {
        if (adds) return {RMSNORM, x, w.m.n_out, nullptr, 0, next_w.get(), 1e-6f, 0};
        return {SWIGLU, y.get(), w.m.n_out, y.get() + F, w.m.n_out, nullptr, 0, 0};
    }
    const float *added() const { return twice ? normed.get() : y.get(); }
    int64_t next_n() const { return adds ? w.m.n_out : (int64_t) F; }
    pi__k_tail tail(buffer<float> &x, forms &f)
    {
        pi__k_tail t = {};
        t.arrived = arrived.get();
        t.waits = waits(rows % 2);
        t.n_rows = rows;
        if (twice) t.add[0] = {normed.get(), y.get(), norm, nullptr, 1e-5f, 0, 1, 0, w.m.n_out};
        if (adds) t.add[twice] = {x.get(), added(), norm, nullptr, 1e-5f, 0.5f, 0, 0, w.m.n_out};
        t.in = next(x.get());
        t.n_in = next_n();
        f.put_in(t);
        t.bf16 = pi__k_w16_input(w.m.type);
        return t;
    }
    void multiply(const pi__k_tail *t)
    {
        const pi__k_product p = {w.m, y.get(), w.m.n_out, 0};
        if (way == W16) must_run(pi__k_w16_linear_then(stream(), &p, 1, prepared.get(), rows, t));
        else if (way == W4A4) must_run(pi__k_fp4_linear_then(stream(), &p, 1, prepared.get(), rows, t));
        else if (way == W4A8) must_run(pi__k_w4a8_linear_then(stream(), &p, 1, prepared.get(), rows, t));
        else must_run(pi__k_linear_then(stream(), &p, 1, prepared.get(), rows, t));
    }
    void apart(buffer<float> &x, forms &f)
    {
        const pi__add_norm a = {x.get(), added(), norm, nullptr, 1e-5f, 0.5f, rows, w.m.n_out};
        const pi__norm first = {normed.get(), w.m.n_out, y.get(), norm, 1e-5f, rows, w.m.n_out};
        multiply(nullptr);
        if (twice) must_run(pi__k_norm(stream(), &first));
        if (adds) must_run(pi__k_add_norm(stream(), &a));
        f.prepare(next(x.get()), w.m.type);
    }
};

void check(half_layer &l)
{
    const size_t n = l.x0.size();
    const std::vector<float> x0(l.x0.get(), l.x0.get() + n);
    buffer<float> want_x(x0);
    const int32_t fp4 = l.next_n() % 64 || l.way == W4A8 ? PI__MXFP4 : PI__NVFP4;
    forms want(l.rows, l.next_n(), fp4, l.way == W4A8);
    term_form want_terms(l.rows == 7 ? PI__F16 : PI__BF16, l.rows, l.next_n());
    l.apart(want_x, want);
    want_terms.prepare(l.next(want_x.get()));
    const std::vector<float> want_y(l.y.get(), l.y.get() + n);
    in_all_modes([&] {
        /* 0: as an epilogue; 1: again with the same counter, as a replay would, and with F32 and 16-bit outputs only;
         * 2: as a launch after the product */
        for (int i = 0; i < 3; i++) {
            buffer<float> x(x0);
            forms got(l.rows, l.next_n(), fp4, l.way == W4A8);
            pi__k_tail t = l.tail(x, got);
            if (i == 1) got.put_in_floats(t, want);
            term_form got_terms(want_terms.type, l.rows, l.next_n());
            got_terms.put_in(t);
            l.y.fill(0xff);
            l.multiply(i < 2 ? &t : nullptr);
            if (i == 2) must_run(pi__k_finish_rows(stream(), &t));
            expect_bytes(want_y.data(), l.y.get(), n * sizeof(float));
            expect_bytes(want_x.get(), x.get(), n * sizeof(float));
            want.expect_same(got);
            want_terms.expect_same(got_terms);
            expect_equal(*l.arrived.get(), 0u);
        }
    });
}

void test_all(bool adds)
{
    const struct {
        int32_t type;
        way_of way;
    } ways[] = {{PI__Q8_0, W16}, {PI__MXFP4, W16}, {PI__Q4_K, EXACT}, {PI__NVFP4, W4A4}, {PI__MXFP4, W4A8}};
    buffer<float> norm(random(3).normals(E));
    for (auto way : one_of(ways)) {
        if (way.way >= W4A4 && !has_fp4()) continue;
        matrix w = make_matrix(way.type,
                               way.type == PI__Q4_K    ? 512
                               : way.type == PI__NVFP4 ? 320
                                                       : 288,
                               adds ? E : 2 * F);
        for (int32_t rows : sizes<int32_t>({1, 2, 7, 16, 29})) {
            if ((slow() || way.way >= W4A4) && (rows == 2 || rows == 16)) continue;
            if (slow() && rows == 29) continue;
            about("%s, %d rows", pi__type_info_of(way.type)->name, (int) rows);
            half_layer l(w, way.way, adds, adds && rows % 2 ? norm.get() : nullptr, rows);
            check(l);
        }
    }
}

void test_residual() { test_all(true); }
void test_gate() { test_all(false); }

/* Rows so wide that a thread block's shared memory has room for only some copies, for one, or for none. */
void test_wide()
{
    const struct {
        int64_t n;
        int32_t rows;
    } cases[] = {{4256, 3}, {12320, 1}, {19232, 1}};
    for (const auto &k : one_of(cases)) {
        if (slow() && k.n != 12320) continue;
        const matrix w = make_matrix(PI__Q8_0, 32, k.n);
        buffer<float> norm(random(3).normals((size_t) k.n));
        about("%d columns, %d rows", (int) k.n, (int) k.rows);
        half_layer l(w, W16, true, norm.get(), k.rows);
        check(l);
    }
}

/* Launches after a product (pi__k_finish_rows) that keep a row's values in registers. A norm with F32 and 16-bit
 * outputs follows each kind of addition, or none; one kind only rounds. The last row contains an infinity. */
void test_held()
{
    enum { ALONE, NONE, NORMED, BIAS, PLAIN_SUM, FRESH, KINDS, ROWS = 3 };
    for (int64_t n : sizes<int64_t>({96, 2080, 4256, 8160}, 32)) {
        const size_t all = (size_t) (ROWS * n);
        const std::vector<float> x0 = random(5).normals(all);
        buffer<float> y(random(6).normals(all)), w(random(7).normals((size_t) n)),
            next_w(random(8).normals((size_t) n));
        y.get()[2 * n + 65] = INFINITY;
        const pi__k_input round = {PLAIN, y.get(), n, nullptr, 0, nullptr, 0, 0};
        for (int kind = 0; kind < KINDS; kind++) {
            about("%d columns, addition %d", (int) n, kind);
            buffer<float> want_x(x0), x(x0);
            const float *norm = kind == NORMED || kind == FRESH ? w.get() : nullptr,
                        *bias = kind == BIAS ? w.get() : nullptr;
            const pi__add_norm a = {want_x.get(), y.get(), norm, bias, 1e-5f, 0.5f, ROWS, n};
            const pi__norm first = {want_x.get(), n, y.get(), norm, 1e-5f, ROWS, n};
            if (kind == FRESH) must_run(pi__k_norm(stream(), &first));
            else if (kind > NONE) must_run(pi__k_add_norm(stream(), &a));
            forms want(ROWS, n), got(ROWS, n);
            const pi__k_input of = {RMSNORM, want_x.get(), n, nullptr, 0, next_w.get(), 1e-6f, 0};
            want.prepare(kind == ALONE ? round : of, PI__Q8_0);
            pi__k_tail t = {};
            t.n_rows = ROWS;
            if (kind > NONE) t.add[0] = {x.get(), y.get(), norm, bias, 1e-5f, 0.5f, kind == FRESH, 0, n};
            t.in = of;
            t.in.x = x.get();
            if (kind == ALONE) t.in = round;
            t.n_in = n;
            got.put_in_floats(t, want);
            must_run(pi__k_finish_rows(stream(), &t));
            expect_bytes(want_x.get(), x.get(), all * sizeof(float));
            want.expect_same(got);
        }
    }
}

/* Matrices of several types in one launch with an epilogue; some are of type `other` (F32, F16 or BF16). Results are
 * bitwise identical to one launch per type and separate launches for the epilogue's work. */
void check_mixed(int32_t other, std::initializer_list<int32_t> numbers_of_rows)
{
    enum { N_IN = 512, N = 5 };
    const int32_t types[N] = {other, PI__Q8_0, PI__Q4_K, other, PI__NVFP4};
    std::vector<matrix> w;
    about("with %s", pi__type_info_of(other)->name);
    for (int i = 0; i < N; i++) w.push_back(make_matrix(types[i], N_IN, i ? 32 * i : 100));
    for (int32_t rows : numbers_of_rows) {
        if (slow() && rows > 1) continue;
        buffer<float> x(random(4).normals((size_t) (rows * N_IN)));
        forms in(rows, N_IN);
        in.prepare({PLAIN, x.get(), N_IN, nullptr, 0, nullptr, 0, 0}, PI__Q8_0);
        term_form terms(other == PI__F32 ? PI__BF16 : other, rows, N_IN);
        terms.prepare({PLAIN, x.get(), N_IN, nullptr, 0, nullptr, 0, 0});
        const float *floats = other == PI__F32 ? in.floats.get() : (const float *) (const void *) terms.at.get();
        int64_t at[N + 1] = {};
        for (int i = 0; i < N; i++) at[i + 1] = at[i] + rows * w[i].m.n_out;
        buffer<float> want((size_t) at[N]), got((size_t) at[N]);
        pi__k_product p[N];
        for (int i = 0; i < N; i++) {
            p[i] = {w[i].m, want.get() + at[i], w[i].m.n_out, 0};
            if (types[i] == PI__F32) must_run(pi__k_linear(stream(), &p[i], 1, floats, rows));
            else if (types[i] == other) must_run(pi__k_mma16_products(stream(), &p[i], 1, floats, rows));
            else must_run(pi__k_w16_linear(stream(), &p[i], 1, in.halves.get(), rows));
            p[i].y = got.get() + at[i];
        }
        in_all_modes([&] {
            const int64_t n = w[N - 1].m.n_out;
            plain_tail tail(got.get() + at[N - 1], n, rows, n);
            got.fill(0xff);
            must_run(pi__k_mixed_linear(stream(), p, N, in.halves.get(), floats, rows, &tail.t));
            expect_bytes(want.get(), got.get(), want.size() * sizeof(float));
            tail.check();
        });
    }
}

void test_mixed()
{
    check_mixed(PI__F32, {1, 8, 13, 27});
    check_mixed(PI__BF16, {1, 27});
    check_mixed(PI__F16, {13});
}

/* More rows than an epilogue supports, and unsupported combinations of matrix types, are refused. */
void test_refused()
{
    pi__k_tail t = {};
    pi__k_product p = {};
    char none = 0;
    p.w.type = PI__Q8_0;
    expect_true(pi__k_w16_linear_then(stream(), &p, 1, &none, PI__K_TAIL_ROWS + 1, &t) != 0);
    expect_true(pi__k_linear_then(stream(), &p, 1, &none, PI__K_TAIL_ROWS + 1, &t) != 0);
    p.w.type = PI__MXFP4;
    expect_true(pi__k_fp4_linear_then(stream(), &p, 1, &none, PI__K_TAIL_ROWS + 1, &t) != 0);
    expect_true(pi__k_w4a8_linear_then(stream(), &p, 1, &none, PI__K_TAIL_ROWS + 1, &t) != 0);
    p.w.type = PI__F32;
    expect_true(pi__k_linear_then(stream(), &p, 1, &none, 1, &t) != 0);
    pi__k_product two[2] = {};
    const float nothing = 0;
    two[0].w.type = PI__Q8_0, two[1].w.type = PI__MXFP4; /* MXFP4 reads x in another format */
    expect_true(pi__k_mixed_linear(stream(), two, 2, &none, &nothing, 1, nullptr) != 0);
    expect_true(pi__k_mixed_linear(stream(), two, 1, &none, &nothing, PI__K_MIXED_ROWS + 1, nullptr) != 0);
    two[0].w.type = PI__F32, two[1].w.type = PI__BF16; /* BF16 reads x in another format */
    expect_true(pi__k_mixed_linear(stream(), two, 2, &none, &nothing, 1, nullptr) != 0);
    two[0].w.type = PI__BF16;
    expect_true(pi__k_mixed_linear(stream(), two, 1, &none, &nothing, PI__K_MIXED_ROWS + 1, nullptr) != 0);
    expect_true(pi__k_mixed_linear(stream(), &p, 1, &none, &nothing, PI__K_ROUTER_ROWS + 1, nullptr) != 0);
    t.n_rows = PI__K_TAIL_ROWS + 1;
    expect_true(pi__k_mixed_linear(stream(), &p, 1, &none, &nothing, 1, &t) != 0);
}

const entry checks[] = {{"residual", test_residual}, {"gate", test_gate}, {"wide", test_wide}, {"held", test_held},
                        {"mixed", test_mixed}, {"refused", test_refused}};

} // namespace

const family checks_of_tails = {"tails", "residual, norm and rounding as matmul epilogues",
                                checks, sizeof checks / sizeof *checks};

} // namespace selftest
