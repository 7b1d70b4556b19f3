/* For checks of expert kernels: the results of each (row, expert) pair must be bitwise identical to the expert's matrix
 * times that row alone. */
#ifndef PI__SELFTEST_EXPERT_REF_H
#define PI__SELFTEST_EXPERT_REF_H

#include "selftest/matrix_ref.h"

namespace selftest {

/* The functions of one number format: make a matrix, pack rows, multiply. check: compares one row times one matrix with
 * double precision. */
struct way {
    matrix (*make)(int32_t type, int64_t n_in, int64_t n_out, uint64_t seed);
    size_t (*bytes)(int32_t type, int32_t n_rows, int64_t n_in);
    int (*prepare)(void *stream, const pi__k_input *in, int32_t type, int32_t n_rows, int64_t n_in, void *prepared);
    int (*linear)(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y, int64_t ldy);
    int (*experts)(void *stream, const pi__k_routes *r, const pi__k_experts *a, const void *prepared);
    void (*check)(const matrix &w, const float *x, const std::vector<float> &y);
};

/* The routing of n rows to 2 of 4 experts each: all rows go to expert 2; most also go to expert 1, the others to 0 or
 * 3. */
struct concurrency {
    enum { EXPERTS = 4, USED = 2 };
    pi__k_routes a = {};
    buffer<float> logits, weight;
    buffer<int32_t> id, column, row, n_tile;
    buffer<pi__k_tile> few, some, many;
    buffer<uint32_t> marks;
    buffer<int32_t> first;

    explicit concurrency(int32_t n)
        : logits((size_t) n * EXPERTS), weight(pairs(n)), id(pairs(n)), column(pairs(n)), row(pairs(n)), n_tile(3),
          few(tiles(n, 0)), some(tiles(n, 1)), many(tiles(n, 2)), marks(pi__k_route_scratch_words(n, EXPERTS)),
          first(marks.size())
    {
        for (int32_t r = 0; r < n; r++)
            for (int32_t e = 0; e < EXPERTS; e++)
                logits[(size_t) (r * EXPERTS + e)] = e == 2 ? 5.0f
                                                     : e == (r % 9 == 0   ? 0
                                                             : r % 5 == 0 ? 3
                                                                          : 1)
                                                         ? 4.0f
                                                         : 0.0f;
        a = {logits.get(),     EXPERTS,     n,
             EXPERTS,          USED,        1.0f,
             PI__GATE_SOFTMAX, nullptr,     nullptr,
             nullptr,          id.get(),    weight.get(),
             column.get(),     row.get(),   {few.get(), some.get(), many.get()},
             n_tile.get(),     marks.get(), first.get()};
        must_run(pi__k_route(stream(), &a));
    }
    static size_t pairs(int32_t n) { return (size_t) n * USED; }
    static size_t tiles(int32_t n, int list) { return (size_t) pi__k_max_tiles(n, EXPERTS, USED, list); }
};

/* The experts' matrices of one shape, stored one after the other. */
struct expert_stack {
    std::vector<matrix> one;
    buffer<uint8_t> memory;

    expert_stack(const way &how, int32_t type, int64_t n_in, int64_t n_out, uint64_t seed)
        : one(), memory(fill(one, how, type, n_in, n_out, seed)) {}
    static std::vector<uint8_t> fill(std::vector<matrix> &one, const way &how, int32_t type, int64_t n_in,
                                     int64_t n_out, uint64_t seed)
    {
        std::vector<uint8_t> all;
        for (size_t i = 0; i < concurrency::EXPERTS; i++) {
            one.push_back(how.make(type, n_in, n_out, seed + i));
            all.insert(all.end(), one[i].m.data, one[i].m.data + one[i].m.shape.mat_bytes);
        }
        return all;
    }
};

/* Input rows, and two stacks of expert matrices that multiply them. */
struct experts {
    const way &how;
    expert_stack w, w2;
    concurrency c;
    std::vector<float> factors, x0;
    buffer<float> x, scale;

    experts(const way &how_, int32_t type, int64_t n_in, int64_t n_out, int32_t n)
        : how(how_), w(how, type, n_in, n_out, 1), w2(how, type, n_in, n_out, 9), c(n), factors({0.5f, 1, 2, 0.7f}),
          x0(random(7).normals((size_t) (n * n_in))), x(x0), scale(factors)
    {
    }
    std::unique_ptr<buffer<char>> prepare(const float *rows, int32_t n) const
    {
        const pi__k_matrix &m = w.one[0].m;
        pi__k_input in = {PLAIN, rows, m.n_in, nullptr, 0, nullptr, 0, 0};
        std::unique_ptr<buffer<char>> p(new buffer<char>(how.bytes(m.type, n, m.n_in)));
        must_run(how.prepare(stream(), &in, m.type, n, m.n_in, p->get()));
        return p;
    }
    /* Returns the outputs of both stacks, by column (pair). gathered: p has the packed rows, and columns refer to them;
     * else p has one packed row per column. */
    std::vector<float> run(bool gathered, const void *p)
    {
        const int64_t n_out = w.one[0].m.n_out, ldy = 2 * n_out + 1;
        buffer<float> y((size_t) (c.a.n_rows * concurrency::USED * ldy));
        pi__k_experts e = {};
        e.w = w.one[0].m;
        e.w.data = w.memory.get();
        e.w.scale = scale.get();
        e.data2 = w2.memory.get();
        e.row = gathered ? c.row.get() : nullptr;
        e.y = y.get(), e.y2 = y.get() + n_out, e.ldy = ldy;
        must_run(how.experts(stream(), &c.a, &e, p));
        return std::vector<float>(y.get(), y.get() + y.size());
    }
    void compare(const std::vector<float> &y)
    {
        const size_t n_in = (size_t) w.one[0].m.n_in, n_out = (size_t) w.one[0].m.n_out;
        buffer<float> out(n_out);
        for (size_t p = 0; p < c.id.size(); p++) {
            size_t e = (size_t) c.id[p], r = p / concurrency::USED;
            const float *got = &y[(size_t) c.column[p] * (2 * n_out + 1)];
            auto alone = prepare(x.get() + r * n_in, 1);
            for (int k = 0; k < 2; k++) {
                matrix &m = k ? w2.one[e] : w.one[e];
                m.m.scale = k ? nullptr : scale.get() + e;
                must_run(how.linear(stream(), &m.m, alone->get(), 1, out.get(), (int64_t) n_out));
                expect_bytes(got + (size_t) k * n_out, out.get(), n_out * 4);
                if (k && r % 4 == 0) how.check(m, &x0[r * n_in], std::vector<float>(out.get(), out.get() + n_out));
            }
            expect_true(got[2 * n_out] != got[2 * n_out]); /* not written */
        }
    }
    void test()
    {
        std::vector<float> y = run(true, prepare(x.get(), c.a.n_rows)->get()), sorted;
        compare(y);
        const int64_t n_in = w.one[0].m.n_in;
        for (size_t i = 0; i < c.row.size(); i++) { /* the same rows, packed in column order */
            const float *row = x.get() + c.row[i] * n_in;
            sorted.insert(sorted.end(), row, row + n_in);
        }
        buffer<float> columns(sorted);
        std::vector<float> again = run(false, prepare(columns.get(), (int32_t) c.row.size())->get());
        expect_bytes(again.data(), y.data(), y.size() * 4);
    }
    /* Every order of threads and copies gives the same bits. */
    void test_modes()
    {
        auto p = prepare(x.get(), c.a.n_rows);
        std::vector<float> first;
        in_all_modes([&] {
            std::vector<float> y = run(true, p->get());
            if (first.empty()) first = y;
            expect_bytes(first.data(), y.data(), y.size() * 4);
        });
    }
};

} // namespace selftest

#endif
