/* Checks moe_w16 kernels: products of experts with 16-bit weights and activations. They are bitwise identical to the
 * dense w16 kernels on the row alone, and batch-invariant. Gate, up and activation in one launch are bitwise identical
 * to separate launches. The error of down is within that of its roundings. Also checks matrices of heads, which use the
 * same kernels. */
#include "selftest/checks.h"
#include "backend/cuda/kernels_heads.h"
#include "selftest/expert_ref.h"
#include "selftest/matmul_error.h"
#include "selftest/tail_ref.h"

namespace selftest {
namespace {

size_t bytes_of(int32_t, int32_t n_rows, int64_t n_in) { return pi__k_w16_packed_x_bytes(n_rows, n_in); }
matrix make(int32_t type, int64_t n_in, int64_t n_out, uint64_t seed)
{
    random r(seed);
    return pack_matrix(type, n_in, n_out, random_rows(type, n_in, n_out, r));
}
int one_product(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y, int64_t ldy)
{
    const pi__k_product one = {*w, y, ldy, 0};
    return pi__k_w16_linear(stream, &one, 1, prepared, n_rows);
}
void no_check(const matrix &, const float *, const std::vector<float> &) {} /* check_w16.cpp checks the values */

const way in_w16 = {make, bytes_of, pi__k_w16_pack_x, one_product, pi__k_w16_experts, no_check};

/* Odd shapes: rows that do not fill an item of work, fewer blocks than slices; every kernel is used. */
void test_products()
{
    const struct { int64_t blocks, n_out; int32_t rows; } shapes[] = {{3, 50, 3}, {9, 33, 20}, {11, 145, 70}};
    for (int32_t type : one_of(w16_types)) {
        for (auto s : one_of(shapes)) {
            if ((slow() || s.rows == 20) && type != PI__Q4_0 && type != PI__NVFP4) continue;
            about("%s, %d rows", pi__type_info_of(type)->name, (int) s.rows);
            experts(in_w16, type, columns_of(type, s.blocks), size_to(s.n_out), size_to(s.rows)).test();
        }
    }
}

void test_modes()
{
    for (int32_t rows : sizes<int32_t>({5, 20, 40})) experts(in_w16, PI__Q4_K, 256, 70, rows).test_modes();
}

/* Stacks of gate, up and down matrices. */
struct layer {
    int64_t E, F;
    int32_t type, down_type;
    expert_stack gate, up, down;
    std::vector<float> factors;
    buffer<float> scale;

    layer(int32_t type_, int32_t down_type_, int64_t E_, int64_t F_)
        : E(E_), F(F_), type(type_), down_type(down_type_), gate(in_w16, type, E, F, 1), up(in_w16, type, E, F, 9),
          down(in_w16, down_type, F, E, 17), factors({0.5f, 1, 2, 0.7f}), scale(factors)
    {
    }
    static pi__k_experts all_of(const expert_stack &s)
    {
        pi__k_experts e = {};
        e.w = s.one[0].m;
        e.w.data = s.memory.get();
        e.n_sm = 5;
        return e;
    }
    /* Packs the n rows of x. */
    std::unique_ptr<buffer<char>> prepare(const float *x, int32_t n) const
    {
        pi__k_input in = {PLAIN, x, E, nullptr, 0, nullptr, 0, 0};
        std::unique_ptr<buffer<char>> p(new buffer<char>(pi__k_w16_packed_x_bytes(n, E)));
        must_run(pi__k_w16_pack_x(stream(), &in, type, n, E, p->get()));
        return p;
    }
    size_t mid_bytes(size_t columns) const { return pi__k_w16_mid_bytes((int64_t) columns, F); }
    /* Computes gate, up and activation in one launch. */
    void to_mid(concurrency &c, const void *x, int act, void *mid)
    {
        pi__k_experts e = all_of(gate);
        e.data2 = up.memory.get(), e.scale2 = scale.get(), e.row = c.row.get();
        e.mid = mid, e.mid_type = down_type, e.act = act, e.limit = act == SWIGLU ? 1.5f : 0;
        must_run(pi__k_w16_experts(stream(), &c.a, &e, x));
    }
    /* Computes gate, up and activation in two launches. h: gate and up by column, [columns, 2F]. */
    void in_steps(concurrency &c, const void *x, int act, buffer<float> &h, void *mid)
    {
        pi__k_experts e = all_of(gate);
        e.data2 = up.memory.get(), e.scale2 = scale.get(), e.row = c.row.get();
        e.y = h.get(), e.y2 = h.get() + F, e.ldy = 2 * F;
        must_run(pi__k_w16_experts(stream(), &c.a, &e, x));
        const pi__k_input glu = {act, h.get(), 2 * F, h.get() + F, 2 * F, nullptr, 0, act == SWIGLU ? 1.5f : 0};
        must_run(pi__k_w16_mid(stream(), &glu, down_type, (int32_t) c.row.size(), F, mid));
    }
    std::vector<float> from_mid(concurrency &c, const void *mid)
    {
        buffer<float> y(c.row.size() * (size_t) (E + 1));
        pi__k_experts e = all_of(down);
        e.w.scale = scale.get(), e.y = y.get(), e.ldy = E + 1;
        must_run(pi__k_w16_down(stream(), &c.a, &e, mid));
        for (size_t i = (size_t) E; i < y.size(); i += (size_t) E + 1) expect_true(y[i] != y[i]); /* not written */
        return std::vector<float>(y.get(), y.get() + y.size());
    }
};

double activated(int act, double v)
{
    if (act == SWIGLU) return v / (1 + std::exp(-v));
    return 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
}

/* Checks the down result of pair p against double precision, computed from the gate and up outputs h. The kernel rounds
 * mid, weights and scales to 11 bits, or 8. */
void check_down(const layer &t, const concurrency &c, size_t p, int act, const buffer<float> &h,
                const std::vector<float> &y)
{
    const size_t F = (size_t) t.F, E = (size_t) t.E, column = (size_t) c.column[p], e = (size_t) c.id[p];
    std::vector<double> mid;
    for (size_t i = 0; i < F; i++) {
        double g = h[column * 2 * F + i], u = h[column * 2 * F + F + i];
        if (act == SWIGLU) g = std::min(g, 1.5), u = std::min(std::max(u, -1.5), 1.5);
        mid.push_back(activated(act, g) * u);
    }
    for (size_t o = 0; o < E; o++) {
        double want = 0, bound = 1e-30, largest = 0;
        const float *w = &t.down.one[e].values[o * F];
        for (size_t i = 0; i < F; i++) {
            if (i % 32 == 0) largest = 0;
            for (size_t k = i; k < i + 32 && i % 32 == 0; k++) largest = std::max(largest, (double) std::fabs(w[k]));
            const double size = t.down_type == PI__Q4_K ? 3 * largest : std::fabs(w[i]);
            want += mid[i] * w[i];
            bound += std::fabs(mid[i]) * size * 4 * std::exp2(t.down_type == PI__MXFP4 ? -8 : -11) + 1e-6 * size;
        }
        want *= t.factors[e], bound *= t.factors[e];
        if (!within(std::fabs(y[column * (E + 1) + o] - want), bound))
            fail_check("pair %zu, result %zu: %g, expected %g +- %g", p, o, (double) y[column * (E + 1) + o], want,
                       bound);
    }
}

/* Gate, up and activation in one launch, then down. A row in a batch of one gives bitwise identical results. */
void test_layer()
{
    const struct { int32_t type, down; int64_t E, F; int32_t rows; int act; } cases[] = {
        {PI__Q4_0, PI__Q8_0, 96, 96, 5, SWIGLU},       {PI__NVFP4, PI__NVFP4, 128, 192, 20, SWIGLU},
        {PI__MXFP4, PI__MXFP4, 64, 160, 90, SWIGLU},   {PI__Q4_K, PI__Q6_K, 256, 256, 75, GEGLU},
        {PI__IQ4_XS, PI__Q4_K, 256, 256, 30, GEGLU},   {PI__Q8_0, PI__MXFP4, 320, 288, 33, GEGLU},
        {PI__Q6_K, PI__IQ4_XS, 256, 512, 8, SWIGLU},
    };
    for (auto s : one_of(cases)) {
        if (slow() && s.rows > 8) continue;
        about("%s and %s, %d rows", pi__type_info_of(s.type)->name, pi__type_info_of(s.down)->name, (int) s.rows);
        layer t(s.type, s.down, s.E, s.F);
        concurrency all(s.rows);
        random r(11);
        buffer<float> x(r.normals((size_t) (s.rows * s.E))), h(all.row.size() * 2 * (size_t) s.F);
        auto prepared = t.prepare(x.get(), s.rows);
        buffer<char> mid(t.mid_bytes(all.row.size())), want(mid.size());
        std::memset(mid.get(), 0, mid.size()), std::memset(want.get(), 0, want.size());
        t.to_mid(all, prepared->get(), s.act, mid.get());
        t.in_steps(all, prepared->get(), s.act, h, want.get());
        expect_bytes(mid.get(), want.get(), mid.size());
        const std::vector<float> y = t.from_mid(all, mid.get());
        for (size_t p = 0; p < all.row.size(); p += 5) check_down(t, all, p, s.act, h, y);
        /* a batch of one with the row's logits, so that it uses the same experts */
        for (int32_t i = 0; i < s.rows; i += 16) {
            concurrency one(1);
            const float *logits = all.logits.get() + i * concurrency::EXPERTS;
            std::copy(logits, logits + concurrency::EXPERTS, one.logits.get());
            must_run(pi__k_route(stream(), &one.a));
            buffer<char> own(t.mid_bytes(one.row.size()));
            t.to_mid(one, t.prepare(x.get() + i * s.E, 1)->get(), s.act, own.get());
            const std::vector<float> alone = t.from_mid(one, own.get());
            for (size_t k = 0; k < concurrency::USED; k++)
                expect_bytes(&alone[(size_t) (one.column[k] * (s.E + 1))],
                             &y[(size_t) (all.column[(size_t) i * concurrency::USED + k] * (s.E + 1))],
                             (size_t) s.E * 4);
        }
    }
}

/* Every order of threads and copies gives bitwise identical results, with any number of multiprocessors. */
void test_layer_modes()
{
    for (int32_t rows : sizes<int32_t>({7, 21, 40})) {
        layer t(PI__NVFP4, PI__Q4_0, 64, 64);
        concurrency c(rows);
        random r(3);
        buffer<float> x(r.normals((size_t) (rows * t.E)));
        auto prepared = t.prepare(x.get(), rows);
        std::vector<float> first;
        in_all_modes([&] {
            buffer<char> mid(t.mid_bytes(c.row.size()));
            t.to_mid(c, prepared->get(), SWIGLU, mid.get());
            std::vector<float> y = t.from_mid(c, mid.get());
            if (first.empty()) first = y;
            expect_bytes(first.data(), y.data(), y.size() * 4);
        });
    }
}

/* Values of very different magnitude, NaN and infinity affect only their own row's pairs; there, NaN or infinity gives
 * non-finite results. */
void test_extremes()
{
    for (int32_t rows : sizes<int32_t>({6, 40})) {
        layer t(PI__Q8_0, PI__Q8_0, 64, 64);
        concurrency c(rows);
        random r(5);
        std::vector<float> v = r.normals((size_t) (rows * t.E));
        const float sizes[] = {1, 1e-12f, 1e12f, 0, NAN, INFINITY};
        for (size_t i = 0; i < v.size(); i++) v[i] *= sizes[i / (size_t) t.E % 6];
        buffer<float> x(v), h(c.row.size() * 2 * (size_t) t.F);
        auto prepared = t.prepare(x.get(), rows);
        buffer<char> mid(t.mid_bytes(c.row.size())), want(mid.size());
        std::memset(mid.get(), 0, mid.size()), std::memset(want.get(), 0, want.size());
        t.to_mid(c, prepared->get(), GEGLU, mid.get());
        t.in_steps(c, prepared->get(), GEGLU, h, want.get());
        expect_bytes(mid.get(), want.get(), mid.size());
        const std::vector<float> y = t.from_mid(c, mid.get());
        for (size_t p = 0; p < c.row.size(); p++) {
            const bool finite = p / concurrency::USED % 6 < 4;
            for (int64_t i = 0; i < t.E; i++)
                expect_equal(std::isfinite(y[(size_t) (c.column[p] * (t.E + 1) + i)]), finite);
        }
        for (size_t p = 0; p < c.row.size(); p += 3)
            if (p / concurrency::USED % 6 < 4 && p / concurrency::USED % 6 != 1) check_down(t, c, p, GEGLU, h, y);
    }
}

/* Matrices of heads, as many as `concurrency` has experts. Few rows take one or two launches; they are bitwise
 * identical to the three launches for many rows. queries: also prepares queries and rows of latent attention. */
struct heads {
    static constexpr int32_t N = concurrency::EXPERTS;
    int32_t rows, n_tail;
    int64_t n_in, n_out, ldx, ldy;
    expert_stack w;
    buffer<float> x, row, norm, rope, scale;
    buffer<int32_t> slot;
    buffer<char> prepared;
    bool queries;

    heads(int32_t type, int32_t rows_, int64_t n_in_, int64_t n_out_, int32_t n_tail_, bool queries_, float size)
        : rows(rows_), n_tail(n_tail_), n_in(n_in_), n_out(n_out_), ldx(N * (n_in + n_tail) + 4),
          ldy(N * (n_out + n_tail) + 3), w(in_w16, type, n_in, n_out, 5), x(values(rows * ldx, size)),
          row(values(rows * dim(), 1)), norm(values(n_out, 1)), rope(values(rows * n_tail, 1)),
          scale(std::vector<float> {0.5f, 1, 2, 0.7f}), slot((size_t) rows),
          prepared(pi__k_w16_packed_x_bytes(rows * N, n_in)), queries(queries_)
    {
        for (int32_t i = 0; i < rows; i++) slot[(size_t) i] = i % 5 == 3 ? -1 : i;
    }
    int64_t dim() const { return n_out + n_tail; }
    static std::vector<float> values(int64_t n, float size)
    {
        std::vector<float> v = random((uint64_t) n).normals((size_t) n);
        for (size_t i = 0; i < v.size(); i++) v[i] *= i % 7 == 3 ? size : 1;
        return v;
    }
    pi__k_heads op(float *y, char *cache)
    {
        pi__k_heads a = {};
        a.w = layer::all_of(w).w, a.w.scale = scale.get(), a.n_rows = rows, a.n_head = N;
        a.x = x.get(), a.ldx = ldx, a.x_step = n_in + n_tail, a.n_tail = n_tail;
        a.y = y, a.ldy = ldy, a.y_step = dim(), a.prepared = prepared.get(), a.n_sm = 3;
        if (!queries) return a;
        const pi__k_cache to = {cache, 0, PI__F32, PI__F32, 1, (int32_t) (dim() + 31) / 32 * 32, 64};
        a.prep.rows = {to, 1, slot.get(), nullptr, 0};
        a.prep.n_tokens = rows;
        a.prep.a.n_head = N, a.prep.a.dim = (int32_t) dim(), a.prep.a.q_scale = 0.3f, a.prep.a.row = row.get(),
        a.prep.a.ldr = dim();
        a.prep.a.norm = norm.get(), a.prep.a.n_norm = (int32_t) n_out, a.prep.a.eps = 1e-6f, a.prep.a.rope = rope.get();
        a.prep.a.n_rot = n_tail;
        return a;
    }
    void with_many(float *y, char *cache)
    {
        const pi__k_heads a = op(y, cache);
        pi__k_head_rows k = {};
        k.n_rows = rows, k.n_head = N;
        std::vector<std::unique_ptr<buffer<pi__k_tile>>> tiles;
        buffer<int32_t> n_tile(3);
        pi__k_routes r = {};
        for (int i = 0; i < 3; i++) {
            tiles.emplace_back(new buffer<pi__k_tile>((size_t) pi__k_max_tiles(rows, N, N, i)));
            k.tile[i] = r.tile[i] = tiles.back()->get();
        }
        k.n_tile = r.n_tile = n_tile.get();
        r.n_rows = rows, r.n_expert = r.n_used = N;
        pi__k_experts e = {};
        e.w = a.w, e.y = a.y, e.ldy = a.ldy, e.n_sm = a.n_sm;
        must_run(pi__k_head_rows_run(stream(), &k));
        must_run(pi__k_heads_pack_x(stream(), &a));
        must_run(pi__k_w16_heads(stream(), &r, &e, a.prepared, a.y_step, queries ? a.prep.a.q_scale : 1.0f));
    }
    void check(unsigned long launches)
    {
        const size_t n = (size_t) (rows * ldy),
                     bytes = (size_t) rows * (size_t) ((dim() + 31) / 32 * 32) * sizeof(float);
        buffer<float> want(n), got(n);
        buffer<char> want_rows(bytes), got_rows(bytes);
        with_many(want.get(), want_rows.get());
        in_all_modes([&] {
            pi__k_heads a = op(got.get(), got_rows.get());
            plain_tail tail(got.get(), ldy, rows, N * dim() / 32 * 32);
            if (!queries) a.tail = &tail.t;
            got.fill(0xff), got_rows.fill(0xff);
            const unsigned long before = counts_launches() ? now->emu->launched() : 0;
            must_run(pi__k_heads_run(stream(), &a, false));
            if (counts_launches()) expect_equal(now->emu->launched() - before, launches);
            expect_bytes(want.get(), got.get(), n * sizeof(float));
            expect_bytes(want_rows.get(), got_rows.get(), bytes);
            if (!queries) tail.check();
        });
    }
};

void test_heads()
{
    const struct {
        int64_t n_in, n_out;
        int32_t n_tail;
        bool queries;
        float size;
        unsigned long launches;
        int32_t rows[4];
    } cases[] = {
        {128, 96, 64, true, 1, 1, {1, 7, 11, 32}}, {512, 128, 0, false, 1e-12f, 1, {2, 8, 17, 32}},
        {256, 70, 6, false, INFINITY, 1, {5, 0}},  {4096, 64, 0, false, 1, 1, {1, 4, 0}},
        {4096, 64, 8, false, 1, 2, {5, 9, 0}}, /* long rows */
        {64, 64, 96, true, 1, 2, {3, 0}},      /* a long tail after each head */
    };
    for (auto s : one_of(cases)) {
        for (int32_t rows : s.rows) {
            const int32_t type = w16_types[rows % (sizeof w16_types / sizeof *w16_types)];
            if (rows < 1) break;
            if ((slow() && rows > 8) || (s.n_in % 256 && pi__type_info_of(type)->blck_size == 256)) continue;
            about("%s, %d rows of %d", pi__type_info_of(type)->name, (int) rows, (int) s.n_in);
            heads(type, rows, s.n_in, s.n_out, s.n_tail, s.queries, s.size).check(s.launches);
        }
    }
}

/* Unsupported arguments are refused. */
void test_refused()
{
    layer t(PI__Q8_0, PI__Q8_0, 32, 32);
    concurrency c(2);
    buffer<char> mid(1 << 12);
    pi__k_experts e = layer::all_of(t.gate);
    e.mid = mid.get();
    /* refused: one matrix, but an activation of two results */
    expect_equal(pi__k_w16_experts(stream(), &c.a, &e, mid.get()), 1);
    expect_equal(pi__k_w16_down(stream(), &c.a, &e, mid.get()), 1);
    e.mid = nullptr;
    e.w.type = PI__Q5_0;
    expect_equal(pi__k_w16_experts(stream(), &c.a, &e, mid.get()), 1);
}

const entry checks[] = {
    {"products", test_products}, {"modes", test_modes}, {"layer", test_layer}, {"layer_modes", test_layer_modes},
    {"extremes", test_extremes}, {"heads", test_heads}, {"refused", test_refused},
};

} // namespace

const family checks_of_moe_w16 = {"moe_w16", "routed experts in 16-bit floats", checks, sizeof checks / sizeof *checks};

} // namespace selftest
