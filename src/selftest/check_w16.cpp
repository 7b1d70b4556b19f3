/* Checks w16 kernels: products with 16-bit weights and activations against double precision. Their error is at most 1.1
 * times that of q8_1 activations. They are batch-invariant: a row is bitwise identical in every batch. */
#include "selftest/checks.h"
#include "selftest/glu_ref.h"
#include "selftest/matmul_error.h"
#include "selftest/split_ref.h"
#include "selftest/tail_ref.h"

namespace selftest {
namespace {

pi__k_input plain(const float *x, int64_t n_in) { return {PLAIN, x, n_in, nullptr, 0, nullptr, 0, 0}; }

/* The allowed error: each rounding to F16 changes a value (of x, a scale, a weight) by at most 2^-11 of it. In types
 * with a minimum, the two terms of a weight may be larger than the weight, but at most 3 times the largest weight of
 * its block. */
void check(const matrix &w, const std::vector<float> &x, const std::vector<float> &y, int32_t n_rows)
{
    const size_t n = (size_t) w.m.n_in, n_out = (size_t) w.m.n_out;
    const bool min = w.m.type == PI__Q4_K;
    for (size_t i = 0; i < (size_t) n_rows * n_out; i++) {
        const float *wr = &w.values[i % n_out * n], *xr = &x[i / n_out * n];
        double want = 0, bound = 1e-30, most_x = 0;
        for (size_t k = 0; k < n; k++) most_x = std::max(most_x, (double) std::fabs(xr[k]));
        for (size_t b = 0; b < n; b += 32) {
            double most = 0;
            for (size_t k = b; k < b + 32; k++) most = std::max(most, (double) std::fabs(wr[k]));
            for (size_t k = b; k < b + 32; k++) {
                want += (double) wr[k] * xr[k];
                bound += 3 * std::exp2(-11) * std::fabs(xr[k]) * (min ? 3 * most : std::fabs(wr[k]));
                bound += 1e-7 * most_x * most;
            }
        }
        if (!within(std::fabs(y[i] - want), bound)) {
            fail_check("%s %zux%zu row %zu of %d, result %zu: %g, expected %g +- %g", pi__type_info_of(w.m.type)->name,
                       n, n_out, i / n_out, n_rows, i % n_out, (double) y[i], want, bound);
        }
    }
}

/* Odd shapes: fewer blocks than slices, rows that do not fill a tile, tiles that do not fill a thread block's share. */
void test_values()
{
    const struct { int64_t blocks, n_out; int32_t rows; } shapes[] = {
        {1, 1, 1}, {3, 33, 9}, {9, 50, 8}, {5, 66, 20}, {17, 20, 40}, {2, 16, 65}, {13, 145, 130},
    };
    for (int32_t type : one_of(w16_types)) {
        for (auto c : one_of(shapes)) {
            c.rows = size_to(c.rows), c.n_out = size_to(c.n_out);
            if (slow() && c.rows > 9) continue;
            matrix w = make_matrix(type, columns_of(type, c.blocks), c.n_out);
            random r((uint64_t) c.rows);
            std::vector<float> v = r.normals((size_t) (c.rows * w.m.n_in));
            if (c.rows > 2) std::fill(v.begin() + w.m.n_in, v.begin() + 2 * w.m.n_in, 0.0f);
            buffer<float> x(v);
            check(w, v, multiply_w16(w, plain(x.get(), w.m.n_in), c.rows), c.rows);
        }
    }
}

/* A row is bitwise identical in a batch of one and at any position of larger batches, with a batch size for each
 * kernel. */
void test_company()
{
    enum { ROWS = 130 };
    for (int32_t type : one_of(w16_types)) {
        if (slow() && type != PI__Q4_0) continue;
        const int64_t n_in = columns_of(type, 19), n_out = 131;
        matrix w = make_matrix(type, n_in, n_out);
        random r(5);
        buffer<float> x(r.normals((size_t) (ROWS * n_in)));
        const std::vector<float> all = multiply_w16(w, plain(x.get(), n_in), ROWS);
        const struct { int32_t rows, first; } some[] = {
            {1, 0}, {1, 129}, {7, 60}, {8, 3}, {9, 64}, {16, 100}, {33, 90}, {64, 66}, {65, 5},
        };
        for (auto s : some) {
            about("%s, %d rows from %d on", pi__type_info_of(type)->name, (int) s.rows, (int) s.first);
            const std::vector<float> y = multiply_w16(w, plain(x.get() + s.first * n_in, n_in), s.rows);
            expect_bytes(&all[(size_t) (s.first * n_out)], y.data(), y.size() * 4);
        }
    }
}

/* With many rows of W, a thread block computes more of them: bitwise identical to the same rows in a smaller matrix. */
void test_long_matrices()
{
    for (int32_t type : one_of({PI__Q4_0, PI__Q6_K})) {
        const int64_t n_in = columns_of(type, 1), n_out = 8190, part = 48;
        if (slow()) continue;
        random r(21);
        const std::vector<uint8_t> bytes = random_rows(type, n_in, n_out, r);
        const size_t end = pi__row_size(pi__type_info_of(type), n_in) * (size_t) part;
        matrix w = pack_matrix(type, n_in, n_out, bytes);
        matrix few = pack_matrix(type, n_in, part, {bytes.begin(), bytes.begin() + (long) end});
        buffer<float> x(r.normals((size_t) (3 * n_in)));
        const pi__k_input in = plain(x.get(), n_in);
        const std::vector<float> y = multiply_w16(w, in, 3), some = multiply_w16(few, in, 3);
        for (size_t i = 0; i < 3; i++)
            expect_bytes(&y[i * (size_t) n_out], &some[i * (size_t) part], (size_t) part * 4);
        check(w, std::vector<float>(x.get(), x.get() + 3 * n_in), y, 3);
    }
}

void test_modes()
{
    for (int32_t type : one_of({PI__Q4_K, PI__Q8_0, PI__MXFP4})) {
        matrix w = make_matrix(type, 512, 70);
        random r(1);
        buffer<float> x(r.normals(66 * 512));
        for (int32_t rows : sizes<int32_t>({3, 34, 66})) {
            std::vector<float> first;
            on_all_archs([&] {
                in_all_modes([&] {
                    std::vector<float> y = multiply_w16(w, plain(x.get(), 512), rows);
                    if (first.empty()) first = y;
                    expect_bytes(first.data(), y.data(), y.size() * 4);
                });
            });
        }
    }
}

/* The largest and smallest F16 scales (E8M0: scales far apart), and rows of x with very large and very small values. */
void test_extremes()
{
    enum { ROWS = 5, OUT = 20 };
    for (int32_t type : one_of(w16_types)) {
        const pi__type_info *t = pi__type_info_of(type);
        const pi__format_facts f = pi__format_facts_of(type);
        const int64_t n_in = columns_of(type, 24);
        random r(9);
        std::vector<uint8_t> bytes = random_rows(type, n_in, OUT, r);
        for (size_t b = 0, i = 0; b < bytes.size(); b += t->type_size, i++) { /* every row of W has all sizes */
            const float sizes[] = {0x1p-24f, 3 * 0x1p-20f, 0x1p-14f, 0.001f, 1, 13};
            if (type == PI__MXFP4) bytes[b] = (uint8_t) (90 + i * 7 % 60);
            else if (type != PI__NVFP4) {
                const uint16_t d = pi__f32_to_f16(sizes[i * 5 % 6] * (i % 2 ? -1.0f : 1.0f));
                std::memcpy(&bytes[b + f.d_at], &d, 2);
                if (type == PI__Q4_K) std::memcpy(&bytes[b + 2], &d, 2);
            }
        }
        matrix w = pack_matrix(type, n_in, OUT, bytes);
        std::vector<float> v = r.normals((size_t) (ROWS * n_in));
        const float sizes[ROWS] = {1, 1e30f, 1e-30f, 0, 70000};
        for (size_t i = 0; i < v.size(); i++) v[i] *= sizes[i / (size_t) n_in];
        buffer<float> x(v);
        check(w, v, multiply_w16(w, plain(x.get(), n_in), ROWS), ROWS);
    }
}

/* NaN and infinity stay within their row. */
void test_not_numbers()
{
    for (int32_t type : one_of({PI__Q8_0, PI__MXFP4})) {
        for (int32_t rows : sizes<int32_t>({3, 66})) {
            matrix w = make_matrix(type, 64, 16);
            random r(3);
            std::vector<float> v = r.normals((size_t) (rows * 64));
            v[5] = NAN;
            v[64 + 40] = INFINITY;
            buffer<float> x(v);
            std::vector<float> y = multiply_w16(w, plain(x.get(), 64), rows);
            for (size_t i = 0; i < y.size(); i++) expect_equal(std::isfinite(y[i]), i >= 32);
        }
    }
}

/* Several matrices in one call, with factors, norm and gate, are bitwise identical to separate calls. */
void test_together()
{
    for (int32_t type : one_of({PI__Q4_K, PI__NVFP4})) {
        const int64_t n_in = 768, n_out[] = {9, 128, 65, 33};
        random r(11);
        buffer<float> x(r.normals(2 * 66 * n_in)), norm(r.normals(n_in)), factor(std::vector<float>{0.25f});
        std::vector<matrix> w;
        for (int64_t n : n_out) w.push_back(make_matrix(type, n_in, n));
        w[2].m.scale = factor.get();
        for (int32_t rows : sizes<int32_t>({1, 40, 66})) {
            const int kind = rows == 40 ? SWIGLU : RMSNORM;
            const float *up = kind == SWIGLU ? x.get() + rows * n_in : nullptr;
            const pi__k_input in = {kind, x.get(), n_in, up, n_in, norm.get(), 1e-5f, 0};
            buffer<char> prepared(pi__k_w16_packed_x_bytes(rows, n_in));
            must_run(pi__k_w16_pack_x(stream(), &in, type, rows, n_in, prepared.get()));
            buffer<float> y((size_t) rows * 240);
            pi__k_product p[4];
            for (int64_t i = 0, at = 0; i < 4; at += n_out[i++]) p[i] = {w[(size_t) i].m, y.get() + at, 240, 0};
            must_run(pi__k_w16_linear(stream(), p, 4, prepared.get(), rows));
            for (int64_t i = 0, at = 0; i < 4; at += n_out[i++]) {
                const matrix &one = w[(size_t) i];
                std::vector<float> want = multiply_w16(one, in, rows), exact = multiply(one, in, rows);
                double off = 0, sum = 0;
                for (size_t k = 0; k < want.size(); k++) {
                    off += std::pow(want[k] - exact[k], 2);
                    sum += std::pow(exact[k], 2);
                }
                expect_true(within(off, sum * std::exp2(-20)));
                for (int32_t k = 0; k < rows; k++)
                    expect_bytes(&want[(size_t) (k * n_out[i])], &y[(size_t) (k * 240 + at)], (size_t) n_out[i] * 4);
            }
        }
    }
}

/* Products of many rows that add their results to the residual. With few rows, `add` is refused: an epilogue adds
 * instead. */
void test_added()
{
    for (int32_t type : one_of({PI__Q8_0, PI__MXFP4})) {
        const matrix w = make_matrix(type, 288, 140);
        const int32_t rows = 67;
        buffer<float> x(random(4).normals(rows * 288));
        buffer<char> prepared(pi__k_w16_packed_x_bytes(rows, 288));
        const pi__k_input in = {PLAIN, x.get(), 288, nullptr, 0, nullptr, 0, 0};
        must_run(pi__k_w16_pack_x(stream(), &in, type, rows, 288, prepared.get()));
        check_added(w, rows,
                    [&](const pi__k_product &p) { must_run(pi__k_w16_linear(stream(), &p, 1, prepared.get(), rows)); });
        const pi__k_product few = {w.m, x.get(), 140, 1};
        expect_true(pi__k_w16_linear(stream(), &few, 1, prepared.get(), 64) != 0);
    }
}

/* Matrices of one type and column count times x: all slices of a tile in one thread block, or slices split over
 * blocks. */
struct shared_products {
    enum { VALUES = 128 * 128 /* of a tile */ };
    std::vector<matrix> w;
    int64_t n_in, ld = 0;
    size_t tiles = 0;
    int32_t type, rows;
    buffer<float> factor{std::vector<float>{0.25f}};
    buffer<char> prepared;

    shared_products(int32_t type_, int64_t blocks, const std::vector<int64_t> &n_out, int32_t rows_)
        : n_in(columns_of(type_, blocks)), type(type_), rows(rows_), prepared(pi__k_w16_packed_x_bytes(rows_, n_in))
    {
        for (int64_t n : n_out) {
            w.push_back(make_matrix(type, n_in, n));
            ld += n;
            tiles += (size_t) ((n + 127) / 128 * ((rows + 127) / 128));
        }
        w.back().m.scale = factor.get();
        random r((uint64_t) rows);
        buffer<float> x(r.normals((size_t) (rows * n_in)));
        const pi__k_input in = plain(x.get(), n_in);
        must_run(pi__k_w16_pack_x(stream(), &in, type, rows, n_in, prepared.get()));
    }
    int queue(void *to, float *y, const pi__k_split *split, float add) const
    {
        std::vector<pi__k_product> p;
        int64_t at = 0;
        for (const matrix &m : w) {
            p.push_back({m.m, y + at, ld, add});
            at += m.m.n_out;
        }
        return pi__k_w16_linear_split(to, p.data(), (int32_t) p.size(), prepared.get(), rows, split);
    }
    std::vector<float> multiply(const pi__k_split *split, float add) const
    {
        buffer<float> y(std::vector<float>((size_t) (rows * ld), 3.0f));
        must_run(queue(stream(), y.get(), split, add));
        return std::vector<float>(y.get(), y.get() + y.size());
    }
    void check(const std::vector<int> &some_parts) const
    {
        for (float add : {0.0f, 0.75f}) {
            const std::vector<float> want = multiply(nullptr, add);
            for (int parts : some_parts) {
                about("%s, %d columns, %d rows, %d parts", pi__type_info_of(type)->name, (int) n_in, (int) rows, parts);
                shared_slices s(parts, tiles, VALUES);
                for (int again = 0; again < 2; again++) {
                    const std::vector<float> y = multiply(&s.split, add);
                    expect_bytes(want.data(), y.data(), want.size() * 4);
                    s.check();
                }
            }
        }
    }
};

/* Split slices that begin and end within a stage, partly filled tiles and rows, several matrices: bitwise identical to
 * unsplit slices. */
void test_shared_slices()
{
    for (int32_t type : one_of(w16_types)) {
        if (slow() && type != PI__Q4_0) continue;
        shared_products(type, 35, {33}, 66).check({8});
        shared_products(type, 61, {20}, 65).check({2});
    }
    if (slow()) return;
    shared_products(PI__NVFP4, 38, {140, 20}, 130).check({8, 4});
    shared_products(PI__Q6_K, 48, {9, 130, 17}, 300).check({4});
    shared_products(PI__MXFP4, 59, {257}, 67).check({2});
    const shared_products p(PI__Q4_0, 41, {40}, 70);
    in_all_modes([&] { p.check({8}); });
}

/* Each replay of captured work resets the counters for the next one. */
void test_replayed_slices()
{
    const shared_products p(PI__Q8_0, 35, {33, 9}, 67);
    shared_slices s(8, p.tiles, shared_products::VALUES);
    const std::vector<float> zeros((size_t) (p.rows * p.ld), 0.0f);
    buffer<float> want(zeros), y(zeros);
    struct graph {
        pi__rt_graph *g = nullptr;
        ~graph() { pi__rt_graph_free(now->rt, g); }
    } g;
    void *const queue = pi__rt_stream(now->rt);
    for (int i = 0; i < 6; i++) must_run(p.queue(queue, want.get(), nullptr, 0.75f));
    expect_equal(pi__rt_capture(now->rt), 0);
    const int first = p.queue(queue, y.get(), &s.split, 0.75f), second = p.queue(queue, y.get(), &s.split, 0.75f);
    expect_true(!pi__rt_capture_end(now->rt, &g.g) && !first && !second && g.g);
    for (int i = 0; i < 3; i++) must_run(pi__rt_replay(now->rt, g.g));
    expect_bytes(want.get(), y.get(), zeros.size() * sizeof(float));
    s.check();
}

/* Slices are not split if there are many tiles, few columns, or no room for partial sums. */
void test_whole_tiles()
{
    const shared_products p(PI__Q4_0, 43, {40}, 65), few(PI__Q4_0, 9, {40}, 65);
    shared_slices s(8, 1, shared_products::VALUES);
    const pi__k_split splits[] = {{1, s.split.sums, s.split.n_sums, s.split.arrived},
                                  {188, s.split.sums, 4, s.split.arrived}};
    for (const pi__k_split &one : splits) p.multiply(&one, 0);
    few.multiply(&s.split, 0);
    for (size_t i = 0; i < s.sums.size(); i++) expect_true(std::isnan(s.sums[i]));
}

/* Gate and up by mma.sync, with and without split slices. */
void test_gate_and_up()
{
    const pi__k_split *shared = nullptr;
    auto run = [&](const pi__k_w16_glu &a, const void *x, int32_t rows) {
        return pi__k_w16_glu_run(stream(), &a, x, rows, shared);
    };
    for (int32_t type : one_of(w16_types)) {
        if (slow() && type != PI__Q4_0) continue;
        gate_and_up(type, 11, 96, 70).check(PI__IN_SWIGLU, 0, type, run);
    }
    gate_and_up one(PI__Q4_K, 9, 32, 65), two(PI__Q8_0, 40, 160, 131);
    one.check(PI__IN_GEGLU, 0, PI__Q6_K, run);
    one.check(PI__IN_SWIGLU_OAI, 7, PI__MXFP4, run);
    in_all_modes([&] { one.check(PI__IN_SWIGLU, 0, PI__Q4_K, run); });
    expect_true(run(one.launch(PI__IN_SWIGLU, 0, PI__Q8_0), one.prepared.get(), PI__K_MMA_ROWS) != 0);
    shared_slices s(4, 6, shared_products::VALUES);
    shared = &s.split;
    if (!slow()) two.check(PI__IN_SWIGLU, 1.5f, PI__Q8_0, run);
}

/* Gate and up for few rows. Up to PI__K_TAIL_ROWS rows are converted by the last thread blocks; of a single row, each
 * block converts a part. */
void test_gate_and_up_few()
{
    auto run = [&](const pi__k_w16_glu &a, const void *x, int32_t rows) {
        return pi__k_w16_glu_few(stream(), &a, x, rows);
    };
    for (int32_t type : one_of(w16_types)) {
        if (slow() && type != PI__Q4_0) continue;
        gate_and_up(type, 11, 96, 8).check(PI__IN_SWIGLU, 0, type, run);
    }
    gate_and_up one(PI__Q4_K, 9, 32, 1), wide(PI__Q8_0, 8, 8224, 3), some(PI__Q6_K, 24, 160, 16);
    one.check(PI__IN_GEGLU, 0, PI__Q8_0, run);
    in_all_modes([&] { wide.check(PI__IN_SWIGLU, 0, PI__Q8_0, run); });
    in_all_modes([&] { some.check(PI__IN_SWIGLU_OAI, 7, PI__MXFP4, run); });
    gate_and_up(PI__NVFP4, 10, 320, 29).check(PI__IN_SWIGLU, 1.5f, PI__NVFP4, run);
    gate_and_up(PI__IQ4_XS, 8, 96, 33).check(PI__IN_SWIGLU, 0, PI__Q4_K, run);
    gate_and_up(PI__Q4_0, 12, 64, 64).check(PI__IN_GEGLU, 0, PI__Q4_0, run);
    expect_true(run(one.launch(PI__IN_SWIGLU, 0, PI__Q8_0), one.prepared.get(), PI__K_MMA_ROWS + 1) != 0);
}

/* The limit of "matmul auto": at most 1.1 times the error of q8_1 activations, with and without outliers. */
void test_errors()
{
    for (int32_t type : one_of(w16_types)) {
        for (bool outliers : {false, true}) {
            const matmul_error e = error_of(type, outliers);
            about("%s%s", pi__type_info_of(type)->name, outliers ? ", outliers" : "");
            if (!within(std::max(e.w16, e.down), 1.1 * e.q8_1)) fail_check("error %g, with q8_1 %g", e.w16, e.q8_1);
            expect_true(e.w16 > 0 && e.exact < e.q8_1 / 50);
        }
    }
}

void test_unsupported()
{
    for (int32_t type = 0; type < PI__N_TYPES; type++) {
        const bool listed = std::count(std::begin(w16_types), std::end(w16_types), type) > 0;
        expect_equal(pi__k_w16_has(type), listed);
    }
}

const entry checks[] = {
    {"values", test_values},
    {"company", test_company},
    {"long_matrices", test_long_matrices},
    {"modes", test_modes},
    {"extremes", test_extremes},
    {"not_numbers", test_not_numbers},
    {"together", test_together},
    {"errors", test_errors},
    {"added", test_added},
    {"shared_slices", test_shared_slices},
    {"replayed_slices", test_replayed_slices},
    {"whole_tiles", test_whole_tiles},
    {"gate_and_up", test_gate_and_up},
    {"gate_and_up_few", test_gate_and_up_few},
    {"unsupported", test_unsupported},
};

} // namespace

const family checks_of_w16 = {"w16", "matmuls in 16-bit floats", checks, sizeof checks / sizeof *checks};

} // namespace selftest
