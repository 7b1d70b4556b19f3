/* Checks kernels of DeepSeek V2 to V4 (hyper, mla, indexer, sparse) against double precision, with odd shapes, in every
 * order of threads and copies. Cache memory that was not written is NaN. */
#include "selftest/cache_ref.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/cuda/kernels_hyper.h"
#include "backend/cuda/kernels_mixed.h"
#include "backend/cuda/kernels_mma16.h"
#include "backend/cuda/kernels_sparse.h"
#include "selftest/checks.h"
#include "selftest/tail_ref.h"

namespace selftest {
namespace {

void check_near(double got, double want, double tolerance, const char *what, size_t i)
{
    if (!within(std::fabs(got - want), tolerance * (1 + std::fabs(want))))
        fail_check("%s %zu: %g, expected %g", what, i, got, want);
}

int32_t width_of(int32_t n) { return (n + 31) / 32 * 32; }

/* A cache with rows of two sequences, in blocks of `block` tokens; block ids are shuffled. */
struct rows {
    enum { SEQS = 2 };
    int32_t block, ratio, each; /* tokens per block; tokens per row; blocks per sequence */
    paged memory;
    std::vector<int32_t> blocks;
    buffer<int32_t> table;
    std::unique_ptr<buffer<int32_t>> slot;

    rows(int32_t type, int32_t n, int32_t block_size, int32_t tokens, int32_t max_pos)
        : block(block_size), ratio(tokens), each(max_pos / block_size + 1),
          memory(type, type, 1, width_of(n), block_size / tokens, SEQS * each), blocks(order(SEQS * each)),
          table(blocks)
    {
        for (int32_t i = 0; i < SEQS * each; i++)
            memset(memory.c.base + (size_t) i * memory.c.stride, 0xff, memory.c.stride);
    }
    static std::vector<int32_t> order(int32_t n)
    {
        std::vector<int32_t> v((size_t) n);
        for (int32_t i = 0; i < n; i++) v[(size_t) i] = n - 1 - i;
        return v;
    }
    int32_t slot_of(int32_t seq, int32_t pos) const
    {
        return blocks[(size_t) (seq * each + pos / block)] * block + pos % block;
    }
    pi__k_rows at(const std::vector<int32_t> &pos, const std::vector<int32_t> &seq)
    {
        std::vector<int32_t> s;
        for (size_t i = 0; i < pos.size(); i++) s.push_back(pos[i] < 0 ? -1 : slot_of(seq[i], pos[i]));
        slot.reset(new buffer<int32_t>(s));
        return {memory.c, ratio, slot->get(), table.get(), each};
    }
    std::vector<float> read(int32_t seq, int32_t row, bool stored = false) const
    {
        return memory.read(false, slot_of(seq, row * ratio) / ratio, 0, stored);
    }
    bool rotated() const { return pi__kv_rotated(memory.c.type_k); }
    void write(int32_t seq, int32_t row, const float *x)
    {
        memory.write(false, slot_of(seq, row * ratio) / ratio, 0, x);
    }
    void fill(random &r, int32_t n, int32_t n_rows)
    {
        for (int32_t s = 0; s < SEQS; s++)
            for (int32_t i = 0; i < n_rows; i++) {
                std::vector<float> x = r.normals((size_t) width_of(n));
                std::fill(x.begin() + n, x.end(), 0.0f);
                write(s, i, x.data());
            }
    }
};

/* Returns n_rot values per token: n_rot / 2 cosines, then as many sines. */
std::vector<float> rotation(const std::vector<int32_t> &pos, int32_t n_rot)
{
    std::vector<float> t;
    for (int32_t p : pos)
        for (int32_t half = 0; half < 2; half++)
            for (int32_t i = 0; i < n_rot / 2; i++) {
                const double angle = p * (0.5 / (1 << i));
                t.push_back((float) (half ? std::sin(angle) : std::cos(angle)));
            }
    return t;
}

void rotate(std::vector<double> &x, int32_t dim, const float *rope, int32_t n_rot, double sign)
{
    for (int32_t i = 0; i < n_rot / 2; i++) {
        double &a = x[(size_t) (dim - n_rot + 2 * i)], &b = x[(size_t) (dim - n_rot + 2 * i + 1)], c = rope[i];
        const double s = sign * rope[n_rot / 2 + i], was = a;
        a = was * c - b * s;
        b = was * s + b * c;
    }
}

std::vector<double> normed(const float *x, int32_t n, const float *w, double eps)
{
    double s = 0;
    for (int32_t i = 0; i < n; i++) s += (double) x[i] * x[i];
    std::vector<double> y;
    for (int32_t i = 0; i < n; i++) y.push_back(x[i] / std::sqrt(s / n + eps) * (w ? w[i] : 1));
    return y;
}

/* Checks a stored row against the reference, within the rounding of the format. Padding after its n values must be
 * zero, within that rounding. */
void check_row(int32_t type, const std::vector<float> &got, const std::vector<double> &want, double tolerance)
{
    double most = 0;
    for (double v : want) most = std::fmax(most, std::fabs(v));
    std::vector<double> padded(want);
    padded.resize(got.size());
    for (size_t i = 0; i < got.size(); i++) {
        const double w = padded[i];
        double off = type == PI__Q8_0 ? most / 120 : type == PI__Q4_0 ? most / 7 : 0;
        if (pi__kv_rotated(type)) off = rotated_step(type, &padded[i / 32 * 32]);
        if (type == PI__F16) off = std::fabs(w) * 0x1p-11;
        if (!within(std::fabs(got[i] - w), off + tolerance * (1 + std::fabs(w))))
            fail_check("row value %zu: %g, expected %g", i, (double) got[i], w);
    }
}

/* ----------------------------------------------------------------------------------------------------------- hyper */

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/* The coefficients post and comb of a row, in double precision. */
std::vector<double> mixing(const float *m, double f, const float *scale, const float *base, double eps, int32_t n_iter)
{
    std::vector<double> c(20);
    for (int i = 0; i < 4; i++) c[(size_t) i] = 2 * sigmoid(m[4 + i] * f * scale[1] + base[4 + i]);
    double *k = &c[4];
    for (int a = 0; a < 4; a++) {
        double sum = 0;
        for (int b = 0; b < 4; b++)
            sum += k[4 * a + b] = std::exp(m[8 + 4 * a + b] * f * scale[2] + base[8 + 4 * a + b]);
        for (int b = 0; b < 4; b++) k[4 * a + b] = k[4 * a + b] / sum + eps;
    }
    for (int32_t i = 0; i < 2 * n_iter - 1; i++) /* normalize columns, then alternately rows and columns */
        for (int a = 0; a < 4; a++) {
            const int from = i % 2 ? 4 * a : a, step = i % 2 ? 1 : 4;
            double sum = eps;
            for (int b = 0; b < 4; b++) sum += k[from + b * step];
            for (int b = 0; b < 4; b++) k[from + b * step] /= sum;
        }
    return c;
}

/* R rows of residual streams of n values, the output of a block, and the matrix (M rows) that computes the next block's
 * mixing coefficients. */
struct streams {
    int32_t R, n_iter;
    int64_t n;
    int32_t type = PI__F32;
    std::vector<float> x0, result0, coef0;
    buffer<float> x, result, w, mix, scale, base, coef, y, sums;
    buffer<uint16_t> halves;
    buffer<uint32_t> arrived;

    streams(random &r, int32_t rows, int64_t n_, int32_t iterations)
        : R(rows), n_iter(iterations), n(n_), x0(r.normals((size_t) (R * 4 * n))), result0(r.normals((size_t) (R * n))),
          coef0(r.normals((size_t) R * 20)), x(x0), result(result0), w(r.normals((size_t) (mixes() * 4 * n))),
          mix((size_t) (R * mixes())), scale(r.normals(3)), base(r.normals((size_t) mixes())), coef(coef0),
          y(result0.size()), sums(pi__k_hyper_sums(R, n)), halves(w.size()), arrived((size_t) PI__K_HYPER_ROWS)
    {
        const float by = 1 / std::sqrt(4 * (float) n); /* so that sums have the magnitude of the streams */
        for (size_t i = 0; i < w.size(); i++) w.get()[i] *= by;
        arrived.fill(0);
        again();
    }
    int32_t mixes() const { return n_iter ? 24 : 4; }
    /* Rounds the matrix to a type. */
    void round_to(int32_t t)
    {
        type = t;
        for (size_t i = 0; i < w.size() && t != PI__F32; i++) {
            float &f = w.get()[i];
            uint16_t &h = halves.get()[i];
            h = t == PI__F16 ? pi__f32_to_f16(f) : pi__f32_to_bf16(f);
            f = t == PI__F16 ? pi__f16_to_f32(h) : pi__bf16_to_f32(h);
        }
    }
    /* Restores the inputs and clears the outputs before a launch. */
    void again()
    {
        memcpy(x.get(), x0.data(), x0.size() * 4), memcpy(coef.get(), coef0.data(), coef0.size() * 4);
        mix.fill(0xff), y.fill(0xff), sums.fill(0xff); /* NaN */
    }
    /* Returns the arguments for rows [first, first + rows). */
    pi__k_streams all(int32_t first, int32_t rows)
    {
        pi__k_streams k = {};
        k.n_rows = rows, k.n_iter = n_iter, k.n = n, k.x = x.get() + first * 4 * n, k.result = result.get() + first * n;
        k.w = type == PI__F32 ? (const void *) w.get() : halves.get(), k.type = type;
        k.mix = mix.get() + first * mixes(), k.scale = scale.get(), k.base = base.get(), k.norm_eps = k.eps = 1e-6f;
        k.coef = coef.get() + first * 20;
        k.y = y.get() + first * n, k.sums = sums.get(), k.arrived = arrived.get(), k.waits = waits(R % 2);
        return k;
    }
    void run(const pi__k_streams &k) { must_run(pi__k_streams_run(stream(), &k, nullptr)); }
    void run_all() { run(all(0, R)); }
    /* Returns the outputs: streams, the next block's input, coefficients. */
    std::vector<float> made() const
    {
        std::vector<float> m(x.get(), x.get() + x.size());
        m.insert(m.end(), y.get(), y.get() + y.size());
        if (n_iter) m.insert(m.end(), coef.get(), coef.get() + coef.size());
        return m;
    }
};

/* An epilogue that packs the sum of the streams is bitwise identical to separate launches. */
void test_hyper_prepared()
{
    random r(2);
    for (int32_t n : sizes<int32_t>({64, 1568, 12000}, 32)) { /* the last is too large for a copy in shared memory */
        streams s(r, n == 64 ? 3 : n == 1568 ? 9 : 2, n, 20);
        buffer<float> w(r.normals((size_t) n));
        forms want(s.R, n);
        const pi__k_input in = {RMSNORM, s.y.get(), n, nullptr, 0, w.get(), 1e-5f, 0};
        s.run_all();
        const std::vector<float> made = s.made();
        want.prepare(in, PI__Q8_0);
        term_form want_terms(n == 1568 ? PI__BF16 : PI__F16, s.R, n);
        want_terms.prepare(in);
        want.fp4.fill(0);
        const auto check = [&](bool in_floats) {
            forms got(s.R, n);
            pi__k_tail t = {};
            t.n_rows = s.R, t.n_in = n, t.in = in;
            if (in_floats) got.put_in_floats(t, want);
            else got.put_in(t);
            t.fp4 = nullptr;
            s.again();
            pi__k_streams k = s.all(0, s.R);
            term_form got_terms(want_terms.type, s.R, n);
            got_terms.put_in(t);
            must_run(pi__k_streams_run(stream(), &k, &t));
            want_terms.expect_same(got_terms);
            expect_bytes(made.data(), s.made().data(), made.size() * 4);
            want.expect_same(got);
        };
        in_all_modes([&] {
            for (bool in_floats : {false, true}) check(in_floats);
        });
        pi__k_tail t = {};
        const pi__k_streams k = s.all(0, s.R);
        t.n_rows = s.R, t.n_in = n, t.in = {PLAIN, s.y.get(), n, nullptr, 0, nullptr, 0, 0};
        expect_equal(pi__k_streams_run(stream(), &k, &t), 1);
    }
}

/* Checks row `row` of the outputs against double precision. */
void check_streams(const streams &s, size_t row)
{
    const size_t n = (size_t) s.n, M = (size_t) s.mixes();
    const float *was = &s.x0[row * 4 * n], *coef = &s.coef0[row * 20], *result = &s.result0[row * n];
    std::vector<double> x(4 * n);
    std::vector<float> m(M);
    double squares = 0;
    for (size_t i = 0; i < 4 * n; i++) {
        const size_t b = i / n, col = i % n;
        x[i] = (double) coef[b] * result[col];
        for (size_t a = 0; a < 4; a++) x[i] += (double) coef[4 + 4 * a + b] * was[a * n + col];
        squares += x[i] * x[i];
        check_near(s.x.get()[row * 4 * n + i], x[i], 2e-6, "stream", i);
    }
    for (size_t o = 0; o < M; o++) {
        double sum = 0;
        for (size_t i = 0; i < 4 * n; i++) sum += s.w.get()[o * 4 * n + i] * x[i];
        m[o] = (float) sum;
    }
    const double f = 1 / std::sqrt(squares / (4 * (double) n) + 1e-6);
    for (size_t col = 0; col < n; col++) {
        double want = 0;
        for (size_t k = 0; k < 4; k++)
            want += (sigmoid(m[k] * f * s.scale.get()[0] + s.base.get()[k]) + 1e-6) * x[k * n + col];
        check_near(s.y.get()[row * n + col], want, 1e-5, "mixed input", col);
    }
    if (!s.n_iter) return;
    const std::vector<double> c = mixing(m.data(), f, s.scale.get(), s.base.get(), 1e-6, s.n_iter);
    for (size_t i = 0; i < 20; i++) check_near(s.coef.get()[row * 20 + i], c[i], 2e-5, "coefficient", i);
}

void test_hyper()
{
    random r(1);
    for (int32_t n : sizes<int32_t>({4, 50, 100, 640, 4100}, 2))
        for (int32_t R : {3, 11}) {
            streams s(r, R, n, n == 100 ? 0 : 20);
            s.round_to(n == 640 || n == 50 ? PI__F16 : R == 11 && n != 4 ? PI__BF16 : PI__F32);
            in_all_modes([&] {
                s.again();
                s.run_all();
                for (size_t row = 0; row < (size_t) R; row++) check_streams(s, row);
            });
            const std::vector<float> made = s.made();
            s.again(); /* post, mix and input in separate launches */
            pi__k_streams k = s.all(0, R), post = k, mix = k;
            post.w = nullptr, post.y = nullptr, mix.result = nullptr, mix.y = nullptr, k.result = nullptr,
            k.w = nullptr;
            s.run(post), s.run(mix), s.run(k);
            expect_bytes(made.data(), s.made().data(), made.size() * 4);
            s.again(); /* one row at a time; the next input overwrites the block's result */
            for (int32_t row = 0; row < R; row++) {
                pi__k_streams one = s.all(row, 1);
                memcpy(one.y, one.result, (size_t) n * 4);
                one.result = one.y;
                s.run(one);
            }
            expect_bytes(made.data(), s.made().data(), made.size() * 4);
        }
}

/* Expert outputs for rows of n values. Their weighted sums are added to y. */
struct given {
    enum { USED = 3 };
    buffer<int32_t> column;
    buffer<float> weight, x, y;
    given(random &r, int32_t rows, int64_t n)
        : column((size_t) (rows * USED)), weight(r.normals((size_t) (rows * USED))),
          x(r.normals((size_t) (rows * USED * n))), y((size_t) (rows * n))
    {
        for (int32_t i = 0; i < rows * USED; i++) column.get()[i] = rows * USED - 1 - i;
    }
    /* Makes the epilogue add the sums to `to`. */
    void put_in(pi__k_tail &t, float *to, int32_t rows, int64_t n)
    {
        t.sum.n_rows = rows, t.sum.n_used = USED, t.sum.column = column.get(), t.sum.weight = weight.get(),
        t.sum.x = x.get();
        t.sum.n = n, t.sum.y = y.get(), t.sum.ldy = n;
        t.add[0].x = to, t.add[0].y = y.get(), t.add[0].scale = 1.0f, t.add[0].made = 1, t.add[0].n = n;
    }
};

/* An epilogue of a product that adds its results, with and without expert outputs, to the streams: bitwise identical to
 * consecutive launches. */
void test_behind_product()
{
    const struct {
        int32_t type, rows;
        int64_t n_in, n;
    } cases[] = {{PI__Q8_0, 1, 256, 64}, {PI__Q4_K, 3, 512, 1568}, {PI__BF16, 9, 64, 96},
                 {PI__MXFP4, 27, 64, 1056}, {PI__F16, 2, 64, 11552}};
    for (const auto &c : one_of(cases)) {
        random r(6);
        about("%s, %d rows of %d", pi__type_info_of(c.type)->name, (int) c.rows, (int) c.n);
        const bool terms = c.type == PI__F16 || c.type == PI__BF16;
        const matrix w = make_matrix(c.type, c.n_in, c.n);
        const buffer<float> in(r.normals((size_t) (c.rows * c.n_in))), norm(r.normals((size_t) c.n));
        forms x(c.rows, c.n_in), want_input(c.rows, c.n);
        x.prepare({PLAIN, in.get(), c.n_in, nullptr, 0, nullptr, 0, 0}, c.type);
        term_form x_terms(terms ? c.type : PI__BF16, c.rows, c.n_in);
        x_terms.prepare({PLAIN, in.get(), c.n_in, nullptr, 0, nullptr, 0, 0});
        const float *floats = (const float *) (const void *) x_terms.at.get();
        for (bool sums : {false, true}) {
            if (c.n > 1000 && sums == (c.n > 10000)) continue; /* all combinations would take a minute */
            streams s(r, c.rows, c.n, c.rows == 2 ? 0 : 20);
            if (c.rows != 1) s.round_to(c.rows == 3 ? PI__F16 : PI__BF16);
            given g(r, c.rows, c.n);
            const pi__k_product p = {w.m, s.result.get(), c.n, 0};
            const auto multiply = [&] {
                if (terms) must_run(pi__k_mma16_products(stream(), &p, 1, floats, c.rows));
                else must_run(pi__k_w16_linear(stream(), &p, 1, x.halves.get(), c.rows));
            };
            multiply(); /* then, as separate launches: sums, streams, packing of the next input */
            pi__k_tail t = {};
            t.n_rows = c.rows;
            if (sums) g.put_in(t, s.result.get(), c.rows, c.n), must_run(pi__k_finish_rows(stream(), &t));
            s.run_all();
            const std::vector<float> made = s.made();
            const pi__k_input read = {RMSNORM, s.y.get(), c.n, nullptr, 0, norm.get(), 1e-5f, 0};
            want_input.prepare(read, PI__Q8_0);
            want_input.fp4.fill(0);
            in_all_modes([&] {
                forms got(c.rows, c.n);
                buffer<uint32_t> arrived(std::vector<uint32_t>{0});
                pi__k_tail then = {};
                if (sums) g.put_in(then, s.result.get(), c.rows, c.n);
                then.arrived = arrived.get(), then.waits = waits();
                then.n_rows = c.rows, then.n_in = c.n, then.in = read;
                got.put_in(then);
                then.fp4 = nullptr;
                s.again();
                s.result.fill(0xff);
                const pi__k_streams k = s.all(0, c.rows);
                const pi__k_mixed_more more = {nullptr, nullptr, nullptr, &k};
                must_run(pi__k_mixed_linear_more(stream(), &p, 1, x.halves.get(), floats, c.rows, &then, &more));
                expect_equal(*arrived.get(), 0u);
                expect_bytes(made.data(), s.made().data(), made.size() * 4);
                want_input.expect_same(got);
            });
        }
    }
    pi__k_product p = {};
    pi__k_tail t = {};
    pi__k_streams k = {};
    const pi__k_mixed_more more = {nullptr, nullptr, nullptr, &k};
    p.w.type = PI__Q8_0;
    /* refused: streams with zero rows */
    expect_equal(pi__k_mixed_linear_more(stream(), &p, 1, &p, nullptr, 1, &t, &more), 1);
}

/* --------------------------------------------------------------------------------------------------------- mla_qkv */

void test_mla_qkv()
{
    random r(2);
    const struct { int32_t type, dim, n_head, n_norm;
    } cases[] = {{PI__F32, 48, 5, 48},  {PI__F16, 512, 2, 512}, {PI__F16, 576, 3, 512}, {PI__Q8_0, 64, 3, 64},
                 {PI__Q4_0, 96, 1, 80}, {PI__TQ4_0, 96, 2, 96}, {PI__TQ3_0, 48, 1, 48}};
    for (const auto &c : one_of(cases)) {
        const int32_t T = 3, ROT = 16, H = c.n_head, D = c.dim, ld = H * D + 4;
        const std::vector<int32_t> pos = {5, 40, -1}, seq = {0, 1, 1};
        std::vector<float> q0 = r.normals((size_t) (T * ld)), row0 = r.normals((size_t) (T * D)),
                           table = rotation(pos, ROT);
        buffer<float> norm(r.normals((size_t) D)), row(row0), rope(table);
        in_all_modes([&] {
            rows kv(c.type, D, 16, 1, 63);
            buffer<float> q(q0);
            pi__k_mla_qkv k = {{nullptr, q.get(), ld, H, D, c.type != PI__Q8_0, 0.25f, row.get(), D, norm.get(),
                                c.n_norm, 1e-6f, rope.get(), ROT},
                               kv.at(pos, seq),
                               T};
            must_run(pi__k_mla_qkv_run(stream(), &k));
            for (size_t t = 0; t < (size_t) T; t++) {
                for (int32_t h = 0; h < H; h++) {
                    const float *x = &q0[t * (size_t) ld + (size_t) (h * D)];
                    std::vector<double> want(x, x + D);
                    if (k.a.q_norm) want = normed(x, D, nullptr, 1e-6);
                    rotate(want, D, &table[t * ROT], ROT, 1);
                    for (size_t i = 0; i < want.size(); i++)
                        check_near(q[t * (size_t) ld + (size_t) (h * D) + i], want[i] * 0.25, 3e-6, "query", i);
                }
                if (pos[t] < 0) continue;
                const float *raw = &row0[t * (size_t) D];
                std::vector<double> want = normed(raw, c.n_norm, norm.get(), 1e-6);
                want.insert(want.end(), raw + c.n_norm, raw + D);
                rotate(want, D, &table[t * ROT], ROT, 1);
                check_row(c.type, kv.read(seq[t], pos[t]), want, 4e-6);
            }
        });
    }
}

/* -------------------------------------------------------------------------------------------------------- compress */

/* Returns reference entry e, compressed from tokens x: [n_tokens, 2 * width]. */
std::vector<double> entry_of(const std::vector<float> &x, const pi__compress &a, int32_t e)
{
    const int32_t W = a.overlap ? 2 * a.dim : a.dim, start = e * a.ratio,
                  first = a.overlap && start ? start - a.ratio : start;
    std::vector<float> sum((size_t) a.dim);
    for (int32_t d = 0; d < a.dim; d++) {
        double all = 0, v = 0;
        for (int32_t p = first; p < start + a.ratio; p++) {
            const int32_t at = (a.overlap && p >= start ? a.dim : 0) + d;
            const float *t = &x[(size_t) (p * 2 * W)];
            const double s = std::exp((double) t[W + at] + a.ape[p % a.ratio * W + at]);
            all += s;
            v += s * t[at];
        }
        sum[(size_t) d] = (float) (v / all);
    }
    std::vector<double> y = normed(sum.data(), a.dim, a.norm, a.eps);
    std::vector<float> rope;
    for (int32_t half = 0; half < 2; half++)
        for (int32_t i = 0; i < a.n_rot / 2; i++) {
            const float angle = (float) start * a.freq[i];
            rope.push_back((float) (half ? std::sin((double) angle) : std::cos((double) angle)));
        }
    rotate(y, a.dim, rope.data(), a.n_rot, 1);
    return y;
}

/* Checks several ways to split the tokens into steps. */
void test_compress()
{
    random r(3);
    const struct {
        int32_t type, ratio, dim, n;
    } cases[] = {{PI__F32, 4, 48, 39},
                 {PI__F16, 4, 512, 13},
                 {PI__F16, 128, 32, 260},
                 {PI__TQ4_0, 4, 48, 13},
                 {PI__TQ3_0, 4, 64, 13}};
    for (const auto &c : one_of(cases)) {
        const bool overlap = c.ratio == 4;
        const int32_t W = overlap ? 2 * c.dim : c.dim;
        std::vector<float> x0 = r.normals((size_t) (c.n * 2 * W));
        buffer<float> x(x0), ape(r.normals((size_t) (c.ratio * W))), norm(r.normals((size_t) c.dim));
        buffer<float> freq(std::vector<float>{1, 0.5f, 0.1f, 0.01f});
        pi__compress a = {nullptr, nullptr,   nullptr,    2 * W, c.ratio,    c.dim,
                          overlap, ape.get(), norm.get(), 1e-6f, freq.get(), 8};
        for (int32_t step : {c.n, 7}) {
            rows recent(PI__F32, 2 * W, 16, 1, c.n), entries(c.type, c.dim, 128, c.ratio, c.n);
            for (int32_t from = 0; from < c.n; from += step) {
                std::vector<int32_t> pos, seq;
                for (int32_t p = from; p < std::min(c.n, from + step); p++) pos.push_back(p), seq.push_back(1);
                pos.push_back(-1), seq.push_back(0); /* padding */
                buffer<int32_t> p(pos), s(seq);
                buffer<float> some(std::vector<float>(x0.begin() + from * 2 * W,
                                                      x0.begin() + (from + (int32_t) pos.size() - 1) * 2 * W));
                a.x = some.get();
                pi__k_compress k = {a,      recent.at(pos, seq), entries.at(pos, seq), (int32_t) pos.size(), p.get(),
                                    s.get()};
                if (step == c.n) in_all_modes([&] { must_run(pi__k_compress_run(stream(), &k)); });
                else must_run(pi__k_compress_run(stream(), &k));
            }
            for (int32_t e = 0; e < c.n / c.ratio; e++) check_row(c.type, entries.read(1, e), entry_of(x0, a, e), 2e-5);
        }
    }
}

/* ------------------------------------------------------------------------------------------ with a latent side row */

/* A latent row and two compressors for three tokens, with the caches that they write. */
struct latent_case {
    enum { T = 3, D = 64, RATIO = 4 };
    std::vector<int32_t> pos = {3, 10, 11}, seq = {0, 1, 1};
    rows kv, recent[2], entries[2];
    pi__k_latent_inputs a = {};

    latent_case(const buffer<float> &row, const buffer<float> &x, const buffer<float> &w, const buffer<float> &rope)
        : kv(PI__F16, D, 16, 1, 15), recent{{PI__F32, 4 * D, 16, 1, 15}, {PI__F32, 4 * D, 16, 1, 15}},
          entries{{PI__F16, D, 128, RATIO, 15}, {PI__Q8_0, D, 128, RATIO, 15}}, p(pos), s(seq)
    {
        const std::vector<float> zeros((size_t) (4 * D));
        for (rows &to : recent)
            for (int32_t i = 0; i < 16; i++) to.write(0, i, zeros.data()), to.write(1, i, zeros.data());
        a.n_q = 1, a.n_compress = 2;
        a.q[0] = {
            {nullptr, nullptr, 0, 0, D, 1, 1.0f, row.get(), D, w.get(), D, 1e-6f, rope.get(), 16}, kv.at(pos, seq), T};
        for (int i = 0; i < 2; i++)
            a.compress[i] = {
                {nullptr, nullptr, x.get() + i * 4 * D, 8 * D, RATIO, D, true, w.get(), w.get() + i, 1e-6f, w.get(), 8},
                recent[i].at(pos, seq),
                entries[i].at(pos, seq),
                T,
                p.get(),
                s.get()};
    }
    /* Returns the rows and entries that the launch wrote to the caches. */
    std::vector<float> made() const
    {
        std::vector<float> m;
        auto add = [&](const rows &from, int32_t n, int32_t at) {
            const std::vector<float> v = from.read(n, at);
            m.insert(m.end(), v.begin(), v.end());
        };
        for (int32_t t = 0; t < T; t++) {
            add(kv, seq[(size_t) t], pos[(size_t) t]);
            for (const rows &r : recent) add(r, seq[(size_t) t], pos[(size_t) t]);
        }
        for (const rows &r : entries) add(r, 0, 0), add(r, 1, 2);
        return m;
    }

private:
    buffer<int32_t> p, s;
};

/* Latent rows and compressors computed by extra thread blocks of a product's launch are bitwise identical to separate
 * launches. */
void test_beside()
{
    enum { N_IN = 512, T = latent_case::T, D = latent_case::D };
    random r(5);
    const matrix w[2] = {make_matrix(PI__Q8_0, N_IN, 100), make_matrix(PI__Q4_K, N_IN, 40)};
    const buffer<float> row(r.normals((size_t) (T * D))), x(r.normals((size_t) (T * 8 * D))),
        ape(r.normals((size_t) (16 * D)));
    const buffer<float> rope(rotation({3, 10, 11}, 16)), in(r.normals((size_t) (T * N_IN)));
    forms x_of(T, N_IN);
    x_of.prepare({PLAIN, in.get(), N_IN, nullptr, 0, nullptr, 0, 0}, PI__Q8_0);
    latent_case alone(row, x, ape, rope);
    must_run(pi__k_latent_inputs_run(stream(), &alone.a));
    buffer<float> want((size_t) (T * 140)), got(want.size());
    pi__k_product p[2];
    for (int i = 0; i < 2; i++) {
        p[i] = {w[i].m, want.get() + (i ? T * 100 : 0), w[i].m.n_out, 0};
        must_run(pi__k_w16_linear(stream(), &p[i], 1, x_of.halves.get(), T));
        p[i].y = got.get() + (i ? T * 100 : 0);
    }
    const std::vector<float> caches = alone.made();
    for (int n : {2, 1}) /* matrices */
        in_all_modes([&] {
            latent_case beside(row, x, ape, rope);
            const pi__k_mixed_more more = {nullptr, nullptr, &beside.a, nullptr};
            got.fill(0xff);
            must_run(pi__k_mixed_linear_more(stream(), p, n, x_of.halves.get(), nullptr, T, nullptr, &more));
            expect_bytes(want.get(), got.get(), (size_t) (T * (n > 1 ? 140 : 100)) * sizeof(float));
            expect_bytes(caches.data(), beside.made().data(), caches.size() * sizeof(float));
        });
    latent_case wrong(row, x, ape, rope); /* refused: a side row with another number of tokens */
    wrong.a.q[0].n_tokens = 1;
    const pi__k_mixed_more more = {nullptr, nullptr, &wrong.a, nullptr};
    expect_equal(pi__k_mixed_linear_more(stream(), p, 1, x_of.halves.get(), nullptr, T, nullptr, &more), 1);
}

/* --------------------------------------------------------------------------------------------------------- indexer */

struct index_case {
    int32_t type, dim, n_head, n_top;
    std::vector<int32_t> pos;
    bool modes;
};

/* Checks that picks ascend, and that no score of an entry that was not picked exceeds a picked one, within rounding. */
void check_picks(const index_case &c, const rows &kv, int32_t seq, const float *q, const float *w, int32_t n,
                 const int32_t *pick)
{
    std::vector<double> score, off;
    for (int32_t e = 0; e < n; e++) {
        const std::vector<float> k = kv.read(seq, e);
        double s = 0, size = 0;
        for (int32_t h = 0; h < c.n_head; h++) {
            double dot = 0;
            for (int32_t d = 0; d < c.dim; d++) dot += (double) q[h * c.dim + d] * k[(size_t) d];
            s += w[h] * 0.125 * std::fmax(dot, 0);
            size += std::fabs(w[h] * 0.125 * dot);
        }
        score.push_back(s);
        off.push_back(size * 1e-5);
    }
    const int32_t k = std::min(n, c.n_top);
    std::vector<double> sorted = score;
    std::sort(sorted.begin(), sorted.end(), [](double a, double b) { return a > b; });
    for (int32_t i = 0; i < k; i++) {
        expect_true(pick[i] >= (i ? pick[i - 1] + 1 : 0) && pick[i] < n);
        const double s = score[(size_t) pick[i]];
        if (s < sorted[(size_t) k - 1] - off[(size_t) pick[i]]) fail_check("entry %d of %d is not in the top k",
                                                                           pick[i], n);
    }
}

/* Returns the queries that the product output `raw` gives after norm (if `normed`), scale and rotation. */
std::vector<float> made_queries(const std::vector<float> &raw, const std::vector<float> &table, int32_t n_head,
                                int32_t dim, bool normed, float scale)
{
    buffer<float> q(raw), rope(table);
    const int32_t n = (int32_t) raw.size() / (n_head * dim);
    const pi__k_mla_qkv k = {
        {nullptr, q.get(), n_head * dim, n_head, dim, normed, scale, nullptr, 0, nullptr, 0, 1e-6f, rope.get(), 16},
        {},
        n};
    must_run(pi__k_mla_qkv_run(stream(), &k));
    return std::vector<float>(q.get(), q.get() + q.size());
}

void run_indexer(const index_case &c)
{
    random r((uint64_t) (c.dim + c.n_head));
    const int32_t T = (int32_t) c.pos.size(), Q = c.n_head * c.dim,
                  last = *std::max_element(c.pos.begin(), c.pos.end());
    std::vector<int32_t> seq;
    for (int32_t t = 0; t < T; t++) seq.push_back(t % 2);
    std::vector<float> q0 = r.normals((size_t) (T * Q)), w0 = r.normals((size_t) (T * c.n_head));
    /* a small query, and a query of zeros: its scores are all equal, so the first entries are picked */
    for (int32_t i = 0; i < Q; i++) q0[(size_t) i] *= 1e-4f;
    for (int32_t i = 0; i < Q && T > 1; i++) q0[(size_t) (Q + i)] = 0;
    const std::vector<float> raw0 = q0, table = rotation(c.pos, 16);
    q0 = made_queries(raw0, table, c.n_head, c.dim, false, 1.5f);
    rows kv(c.type, c.dim, 128, 4, last);
    kv.fill(r, c.dim, (last + 1) / 4);
    buffer<float> q(q0), raw(raw0), w(w0), rope(table);
    buffer<int32_t> pos(c.pos), s(seq);
    std::vector<int32_t> first;
    const size_t room = pi__k_indexer_scratch((last + 1) / 4);
    buffer<char> scratch(2 * room);
    /* is_raw: queries are unprocessed product outputs */
    auto run = [&](int32_t n_sm, size_t size, bool is_raw = false) {
        buffer<int32_t> pick((size_t) (T * c.n_top));
        pick.fill(0xff);
        pi__k_indexer k = {
            {nullptr, (is_raw ? raw : q).get(), Q, w.get(), c.n_head, c.n_head, c.dim, 0.125f, c.n_top, pick.get()},
            kv.at(c.pos, seq),
            T,
            pos.get(),
            s.get(),
            (last + 1) / 4,
            scratch.get(),
            size,
            n_sm,
            is_raw ? rope.get() : nullptr,
            16,
            1.5f};
        must_run(pi__k_indexer_run(stream(), &k));
        const std::vector<int32_t> now(pick.get(), pick.get() + pick.size());
        if (first.empty()) first = now;
        expect_bytes(now.data(), first.data(), now.size() * 4);
    };
    if (c.modes) in_all_modes([&] { run(4, 2 * room); });
    run(1, room);
    run(4, 2 * room, true);
    for (int32_t t = 0; t < T; t++) {
        const int32_t n = (c.pos[(size_t) t] + 1) / 4, *pick = &first[(size_t) (t * c.n_top)];
        check_picks(c, kv, t % 2, &q0[(size_t) (t * Q)], &w0[(size_t) (t * c.n_head)], n, pick);
        for (int32_t i = n; i < c.n_top; i++) expect_equal(pick[i], -1);
        for (int32_t i = 0; i < std::min(n, c.n_top) && t == 1; i++) expect_equal(pick[i], i);
    }
}

void test_indexer()
{
    run_indexer({PI__F16, 32, 17, 7, {300, 299, -1, 27, 30, 2, 31}, true});
    run_indexer({PI__F32, 48, 70, 5, {90, 300}, true});
    run_indexer({PI__Q8_0, 288, 16, 9, {100, 77}, false});
    run_indexer({PI__TQ4_0, 32, 17, 7, {300, 299, -1, 27, 30, 2, 31}, true});
    run_indexer({PI__TQ3_0, 272, 16, 9, {100, 77}, false});
    run_indexer({PI__F16, 32, 2, 600, {4 * 16384 + 2002, 4 * 16384 - 1, 2399}, false}); /* entries in two parts */
}

/* ---------------------------------------------------------------------------------------------------------- sparse */

struct sparse_case {
    /* ratio 0: no compressed entries; n_top 0: all entries are used. first: first position of the window's cache that
     * is used */
    int32_t type, type_entries, dim, n_head, window, ratio, n_top, first;
    std::vector<int32_t> pos;
    int32_t dim_v = 0; /* values of V; 0 = dim. Otherwise the output is not rotated back, and there are no sinks */
};

/* Returns the allowed error of weighted sums of rows with values of about 1. Fast mode rounds P and the q of long rows
 * to 11 bits, as attention does (tolerance_of in check_attention.cpp). mixed: one of two caches is of a rotated
 * type. */
double tolerance_of(const sparse_case &c, bool fast, bool mixed)
{
    const bool f32 = c.type == PI__F32 || (c.ratio && c.type_entries == PI__F32);
    if (fast && !f32 && c.dim > 512) return 4e-3;
    /* mixed: rows that are rotated back differ slightly from the reference's before both are rounded */
    return mixed && !f32 ? 1e-4 : 1e-5;
}

/* Returns a row as tensor cores read it: rounded to F16 unless exact. stored: the row is rotated; rotates it back. */
std::vector<float> as_read(std::vector<float> row, bool exact, bool stored)
{
    for (float &f : row) f = exact ? f : pi__f16_to_f32(pi__f32_to_f16(f));
    if (stored) turn_ref(row.data(), (int32_t) row.size(), true);
    return row;
}

void check_sparse(const sparse_case &c, const rows &window, const rows &entries, int32_t t, const float *q,
                  const int32_t *pick, const float *sinks, const float *rope, const float *out, bool fast)
{
    const int32_t pos = c.pos[(size_t) t], first = std::max(c.first, pos < c.window ? 0 : pos - c.window + 1);
    const int32_t seen = c.ratio ? (pos + 1) / c.ratio : 0;
    std::vector<std::vector<float>> list;
    const bool exact = c.type == PI__F32 || (c.ratio && c.type_entries == PI__F32);
    const bool turned = window.rotated() && (!c.ratio || entries.rotated());
    auto add = [&](const rows &in, int32_t row) {
        list.push_back(as_read(in.read(t % 2, row, turned), exact, turned));
    };
    for (int32_t p = std::max(first, 0); p <= pos; p++) add(window, p);
    for (int32_t e = 0; e < (c.n_top ? std::min(seen, c.n_top) : seen); e++) add(entries, c.n_top ? pick[e] : e);
    for (int32_t h = 0; h < c.n_head; h++) {
        std::vector<double> s, o((size_t) c.dim);
        const double sink = c.dim_v ? -INFINITY : sinks[h];
        double top = sink, all = 0;
        for (const auto &row : list) {
            double dot = 0;
            for (int32_t d = 0; d < c.dim; d++) dot += (double) q[h * c.dim + d] * row[(size_t) d];
            s.push_back(dot);
            top = std::fmax(top, dot);
        }
        for (size_t i = 0; i < list.size(); i++) {
            const double e = std::exp(s[i] - top);
            all += e;
            for (int32_t d = 0; d < c.dim; d++) o[(size_t) d] += e * list[i][(size_t) d];
        }
        for (double &v : o) v /= all + std::exp(sink - top);
        if (!c.dim_v) rotate(o, c.dim, rope, 16, -1);
        const double off = tolerance_of(c, fast, window.rotated() != entries.rotated());
        for (int32_t d = 0; d < (c.dim_v ? c.dim_v : c.dim); d++)
            check_near(out[h * c.dim + d], o[(size_t) d], off, "result", (size_t) d);
    }
}

/* Packed rows of n_in values, in the layout that a matrix of a type reads: words, and the factors of the rows that
 * exist. part_of: from an output; prepare_rows: by pi__k_w16_pack_x. */
struct prepared_rows {
    std::vector<uint8_t> words;
    std::vector<float> factor;
};
prepared_rows part_of(const uint8_t *words, const float *factor, int32_t n_rows, int64_t n_in)
{
    const size_t bytes = pi__k_w16_packed_x_bytes(n_rows, n_in) - pi__k_w16_factor_bytes(n_rows);
    return {{words, words + bytes}, {factor, factor + n_rows}};
}
prepared_rows prepare_rows(const std::vector<float> &x, int32_t type, int32_t n_rows, int64_t n_in)
{
    const size_t bytes = pi__k_w16_packed_x_bytes(n_rows, n_in);
    buffer<float> from(x);
    buffer<uint8_t> to(bytes);
    const pi__k_input in = {PI__IN_PLAIN, from.get(), n_in, nullptr, 0, nullptr, 0, 0};
    must_run(pi__k_w16_pack_x(stream(), &in, type, n_rows, n_in, to.get()));
    const void *factor = to.get() + bytes - pi__k_w16_factor_bytes(n_rows);
    return part_of(to.get(), (const float *) factor, n_rows, n_in);
}
void same_prepared(const prepared_rows &a, const prepared_rows &b)
{
    expect_bytes(a.words.data(), b.words.data(), a.words.size());
    expect_bytes(a.factor.data(), b.factor.data(), a.factor.size() * 4);
}

/* Returns how many heads can form one group row; 0 = group rows are not supported. */
int32_t grouped_heads(const sparse_case &c)
{
    int32_t n = c.dim % 32 || c.dim_v || c.dim > PI__K_RAW_QUERIES ? 0 : 1;
    while (n && n < PI__K_MAX_GROUPED && c.n_head % (2 * n) == 0) n *= 2;
    return n;
}

/* Checks outputs in the form of packed group rows against rows packed from the float outputs. apart: each group has its
 * own buffer; else one buffer has all rows. run(g) launches the kernel. */
template <class F>
void run_groups(const sparse_case &c, const std::vector<float> &want, int32_t type, bool apart, F run)
{
    pi__k_groups g = {};
    g.heads = grouped_heads(c), g.bf16 = pi__k_w16_input(type);
    const int32_t T = (int32_t) c.pos.size(), n = c.n_head / g.heads, W = g.heads * c.dim, rows = apart ? T : n * T;
    const size_t size = pi__k_w16_packed_x_bytes(rows, W), factors = size - pi__k_w16_factor_bytes(rows);
    buffer<char> all(apart ? (size_t) n * size : size);
    all.fill(0); /* rows after the last one are not written */
    g.words = all.get(), g.factor = all.get() + factors;
    if (apart) g.step = size;
    else g.rows = T;
    run(g);
    std::vector<float> x;
    for (int32_t i = 0; i < n; i++) {
        for (int32_t t = 0; t < T; t++) {
            const float *from = &want[(size_t) ((t * n + i) * W)];
            x.insert(x.end(), from, from + W);
        }
        if (!apart && i + 1 < n) continue;
        const void *words = all.get() + (apart ? (size_t) i * size : 0), *factor = (const char *) words + factors;
        same_prepared(prepare_rows(x, type, rows, W),
                      part_of((const uint8_t *) words, (const float *) factor, rows, W));
        x.clear();
    }
}

void run_sparse(const sparse_case &c, bool fast)
{
    random r((uint64_t) (c.dim + c.n_head));
    const int32_t T = (int32_t) c.pos.size(), Q = c.n_head * c.dim,
                  last = *std::max_element(c.pos.begin(), c.pos.end());
    std::vector<int32_t> seq, picks;
    for (int32_t t = 0; t < T; t++) {
        seq.push_back(t % 2);
        for (int32_t i = 0; i < c.n_top; i++)
            picks.push_back(std::min(2 * i, (c.pos[(size_t) t] + 1) / 4 - c.n_top + i));
    }
    for (int32_t t = 0; t < T; t++) /* tokens with at most n_top entries use all of them */
        for (int32_t i = 0; i < c.n_top && (c.pos[(size_t) t] + 1) / 4 <= c.n_top; i++)
            picks[(size_t) (t * c.n_top + i)] = i;
    std::vector<float> q0 = r.normals((size_t) (T * Q)), table = rotation(c.pos, 16);
    const float raw_scale = 3 / std::sqrt((float) c.dim);
    for (float &f : q0) f *= raw_scale;
    const bool may_be_raw = c.dim <= PI__K_RAW_QUERIES && !c.dim_v, raw_normed = c.dim != 144;
    const std::vector<float> raw0 = q0;
    const float q_scale = raw_normed ? raw_scale : 1.25f;
    if (may_be_raw) q0 = made_queries(raw0, table, c.n_head, c.dim, raw_normed, q_scale);
    rows window(c.type, c.dim, 32, 1, last), entries(c.type_entries, c.dim, 128, c.ratio ? c.ratio : 1, last);
    window.fill(r, c.dim, last + 1);
    if (c.ratio) entries.fill(r, c.dim, (last + 1) / c.ratio);
    buffer<float> q(q0), sinks(r.normals((size_t) c.n_head)), rope(table);
    buffer<int32_t> pos(c.pos), s(seq), pick(picks);
    const int32_t most = std::min(c.window, last + 1) + (c.n_top ? c.n_top : c.ratio ? (last + 1) / c.ratio : 0);
    buffer<float> scratch((size_t) (T * (c.n_head + 15) * (most / 128 + 1) * (c.dim + 2)));
    std::vector<float> want;
    buffer<uint32_t> arrived(std::vector<uint32_t>{0});
    const bool few = fast && c.dim > 512 && c.type != PI__F32 && most > 1024; /* splits have at least 256 rows */
    const int32_t splits = std::max(few ? 8 : 1, std::min((most + 127) / (few ? 256 : 128), 16));
    /* scratch size of one token in bytes */
    const size_t one = (size_t) ((c.n_head + 15) / 16 * 16 * splits * (c.dim + 2)) * 4;
    /* Runs tokens [from, from + n) and compares with the first run. room: size of the scratch in bytes; with splits, a
     * launch takes as many tokens as fit. in_place: outputs overwrite the queries. raw: queries are unprocessed product
     * outputs. */
    auto run = [&](int32_t from, int32_t n, int32_t n_sm, size_t room, bool in_place = false, bool raw = false,
                   const pi__k_groups *groups = nullptr) {
        buffer<float> out(in_place ? (raw ? raw0 : q0) : std::vector<float>((size_t) (n * Q)));
        if (!in_place) out.fill(0xff);
        pi__k_sparse k = {};
        k.a.q = in_place ? out.get() : q.get() + from * Q, k.a.ldq = k.a.ldo = Q;
        k.a.n_head = c.n_head, k.a.dim = c.dim, k.a.window = c.window;
        k.a.first = c.first, k.a.pick = c.n_top ? pick.get() + from * c.n_top : nullptr, k.a.n_top = c.n_top;
        k.a.dim_v = c.dim_v ? c.dim_v : c.dim, k.a.out = out.get();
        if (!c.dim_v) k.a.sinks = sinks.get(), k.a.rope = rope.get() + from * 16, k.a.n_rot = 16;
        k.rows = window.at(c.pos, seq);
        if (c.ratio) k.entries = entries.at(c.pos, seq);
        else k.entries.ratio = 1;
        k.n_tokens = n, k.pos = pos.get() + from, k.seq = s.get() + from, k.most = most, k.n_sm = n_sm, k.fast = fast;
        k.waits = waits();
        k.raw = raw, k.q_norm = raw_normed, k.q_scale = q_scale, k.eps = 1e-6f;
        k.scratch = scratch.get(), k.scratch_size = room;
        if (groups) k.groups = *groups;
        const unsigned long before = counts_launches() ? now->emu->launched() : 0,
                            at_once = std::min((unsigned long) n, room / one);
        must_run(n_sm ? pi__k_sparse_split(stream(), &k, arrived.get()) : pi__k_sparse_run(stream(), &k));
        expect_equal(*arrived.get(), 0u);
        if (groups) return;
        const bool splits = n_sm && most > 128 && at_once;
        const unsigned long launches = splits ? ((unsigned long) n + at_once - 1) / at_once : 1;
        if (counts_launches()) expect_equal(now->emu->launched() - before, launches);
        std::vector<float> now(out.get(), out.get() + out.size());
        for (size_t i = 0; i < now.size(); i++) /* values of a head from dim_v on are still the queries */
            if (in_place && (int32_t) i % c.dim >= k.a.dim_v) now[i] = want[i];
        if (want.empty()) want = now;
        expect_bytes(now.data(), &want[(size_t) (from * Q)], now.size() * 4);
    };
    const size_t all = scratch.size() * 4;
    if (most > 2048) run(0, T, 0, all);
    else in_all_modes([&] { run(0, T, 0, all); });
    for (const size_t room : {all, one, one - 4})
        /* one thread block per split if at least one token fits in the scratch */
        if (most <= 2048 || room == one) run(0, T, 1000, room);
    if (most > 128 && most <= 512) in_all_modes([&] { run(0, T, 1000, all, true); });
    run(0, T, 0, all, true);
    if (may_be_raw && c.dim <= 96) in_all_modes([&] { run(0, T, 0, all, true, true); });
    for (int32_t n_sm : {0, 1000})
        if (may_be_raw) run(0, T, n_sm, all, true, true);
    for (int32_t t = 0; t < T; t++) run(t, 1, t % 2 * 1000, all);
    for (bool apart : {false, true}) {
        if (!grouped_heads(c)) break;
        const auto grouped = [&](int32_t n_sm, size_t room, bool raw) {
            run_groups(c, want, apart ? PI__MXFP4 : PI__Q8_0, apart,
                       [&](const pi__k_groups &g) { run(0, T, n_sm, room, raw, raw, &g); });
        };
        grouped(0, all, false), grouped(1000, all, false); /* without splits; with splits */
        grouped(1000, one, may_be_raw);                    /* with splits, one token per launch */
    }
    for (int32_t t = 0; t < T; t++)
        check_sparse(c, window, entries, t, &q0[(size_t) (t * Q)], picks.data() + t * c.n_top, sinks.get(),
                     &table[(size_t) (t * 16)], &want[(size_t) (t * Q)], fast);
}

const sparse_case sparse_cases[] = {
    {PI__F16, PI__F16, 48, 20, 24, 4, 7, 0, {0, 90, -1, 23, 24, 3}},
    {PI__F32, PI__F32, 96, 5, 130, 128, 0, 1, {1, 300, 0, 128}},
    {PI__F16, PI__F16, 512, 33, 16, 4, 150, 0, {700, 15}},
    {PI__F16, PI__Q8_0, 144, 17, 8, 128, 0, 0, {130}},
    {PI__F32, PI__F16, 272, 3, 140, 0, 0, 0, {150}},
    {PI__F16, PI__F16, 576, 17, INT32_MAX, 0, 0, 0, {140, 3}, 512}, /* as in DeepSeek V2 and V3 */
    /* heads in several thread blocks, several splits */
    {PI__F16, PI__F16, 576, 40, INT32_MAX, 0, 0, 0, {300, 128, 127}, 512},
    {PI__F16, PI__F16, 544, 33, INT32_MAX, 0, 0, 0, {2100}, 512}, /* splits of 256 */
    {PI__F16, PI__F16, 576, 18, 140, 4, 20, 3, {160, 11}, 512}, /* a window and picked entries */
    {PI__F32, PI__F32, 80, 4, INT32_MAX, 0, 0, 0, {0, 270}, 64},
    {PI__Q8_0, PI__Q8_0, 576, 2, INT32_MAX, 0, 0, 0, {20}, 512},
    {PI__F16, PI__F16, 560, 5, INT32_MAX, 0, 0, 0, {1100, 32}, 512}, /* splits of 256 in fast mode */
    {PI__TQ4_0, PI__TQ3_0, 576, 17, 140, 4, 20, 0, {150, 40}, 512}, /* long rows that stay rotated */
    {PI__F16, PI__TQ3_0, 576, 3, 40, 4, 0, 0, {170}, 512}, /* long rows that are rotated back when read */
    /* V ends in the middle of a group of 32 rotated values */
    {PI__TQ4_0, PI__TQ4_0, 80, 3, INT32_MAX, 0, 0, 0, {200, 5}, 48},
    {PI__TQ3_0, PI__TQ4_0, 48, 20, 24, 4, 7, 0, {0, 90, -1, 23, 24, 3}}, /* rows stay rotated */
    {PI__TQ4_0, PI__TQ3_0, 144, 17, 8, 4, 150, 0, {700, 15}},
    {PI__TQ4_0, PI__TQ4_0, 272, 3, 140, 0, 0, 0, {150}},
    {PI__TQ4_0, PI__F32, 96, 5, 130, 128, 0, 1, {1, 300, 0}}, /* rows are rotated back */
    {PI__F16, PI__TQ3_0, 144, 17, 8, 4, 0, 0, {130}},
    /* eight heads per group row; heads in several thread blocks */
    {PI__F16, PI__F16, 512, 40, 16, 4, 150, 0, {700, 15, -1}},
    /* two heads per group row; 9 tokens */
    {PI__F16, PI__F16, 64, 18, 140, 4, 0, 0, {200, 0, 150, 20, 300, 141, 90, 139, 17}},
    {PI__TQ4_0, PI__TQ3_0, 96, 12, 140, 4, 20, 0, {160, 11, 150}}, /* four heads per group row */
    {PI__F16, PI__F16, 48, 3, 2000, 4, 0, 0, {2200, 190}}, /* a list of more than 2,048 rows: splits of 256 */
};

void test_sparse()
{
    for (const sparse_case &c : sparse_cases) run_sparse(c, false);
}
/* Fast mode applies to long rows only. */
void test_sparse_fast()
{
    for (const sparse_case &c : sparse_cases)
        if (c.dim > 512) run_sparse(c, true);
}

const entry checks[] = {
    {"hyper", test_hyper},
    {"hyper_prepared", test_hyper_prepared},
    {"mla_qkv", test_mla_qkv},
    {"compress", test_compress},
    {"behind_product", test_behind_product},
    {"beside", test_beside},
    {"indexer", test_indexer},
    {"sparse", test_sparse},
    {"sparse_fast", test_sparse_fast},
};

} // namespace

const family checks_of_mla = {"mla",
                              "hyper-connections, latent rows, compressed entries, their index, sparse attention",
                              checks, sizeof checks / sizeof *checks};

} // namespace selftest
