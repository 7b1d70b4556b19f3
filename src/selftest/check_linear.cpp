/* Checks linear kernels against double precision for every format, and that they are batch-invariant. */
#include "backend/cuda/kernels_floats.h"
#include "selftest/matrix_ref.h"
#include "selftest/checks.h"

namespace selftest {
namespace {

/* The allowed error: rounding x to 15 bits changes each factor by at most half a step of its block's scale. */
void check(const matrix &w, const std::vector<double> &x, const std::vector<float> &y, int32_t n_rows)
{
    size_t n = (size_t) w.m.n_in;
    for (size_t r = 0; r < (size_t) n_rows; r++) {
        for (size_t o = 0; o < (size_t) w.m.n_out; o++) {
            double want = 0, bound = 1e-6;
            for (size_t i = 0; i < n; i++) {
                double most = 0, v = w.values[o * n + i];
                for (size_t j = i / 32 * 32; j < std::min(n, i / 32 * 32 + 32); j++)
                    most = std::max(most, std::fabs(x[r * n + j]));
                want += v * x[r * n + i];
                bound += std::fabs(v) * ((pi__type_is_float(w.m.type) ? 0 : most / 16256 * 0.51) + 1e-6 * most);
            }
            double got = y[r * (size_t) w.m.n_out + o];
            if (!within(std::fabs(got - want), bound)) {
                fail_check("%s %lldx%lld row %zu of %d, result %zu: %g, expected %g +- %g",
                           pi__type_info_of(w.m.type)->name, (long long) w.m.n_in, (long long) w.m.n_out, r, n_rows, o,
                           got, want, bound);
            }
        }
    }
}

void test_formats()
{
    const struct {
        int64_t blocks, n_out;
        int32_t rows;
    } cases[] = {{1, 1, 1}, {3, 33, 9}, {5, 16, 3}, {9, 50, 8}, {2, 17, 33}};
    for (int32_t type : one_of(types)) {
        int64_t unit = pi__type_is_float(type) ? 13 : (int64_t) pi__type_info_of(type)->blck_size;
        for (auto c : one_of(cases)) {
            c.rows = size_to(c.rows), c.n_out = size_to(c.n_out);
            matrix w = make_matrix(type, c.blocks * unit, c.n_out);
            random r((uint64_t) c.rows);
            std::vector<float> x0 = r.normals((size_t) (c.rows * w.m.n_in));
            std::vector<double> xd(x0.begin(), x0.end());
            buffer<float> x(x0);
            pi__k_input in = {PLAIN, x.get(), w.m.n_in, nullptr, 0, nullptr, 0, 0};
            std::vector<float> y = multiply(w, in, c.rows);
            check(w, xd, y, c.rows);
            for (int32_t i = 0; i < c.rows; i += 4) { /* rows in a batch of one */
                pi__k_input one = {PLAIN, x.get() + i * w.m.n_in, w.m.n_in, nullptr, 0, nullptr, 0, 0};
                expect_bytes(multiply(w, one, 1).data(), &y[(size_t) (i * w.m.n_out)], (size_t) w.m.n_out * 4);
            }
        }
    }
}

void test_modes()
{
    for (int32_t type : one_of({PI__Q4_K, PI__Q6_K, PI__Q8_0, PI__F16})) {
        matrix w = make_matrix(type, 512, 20);
        random r(1);
        buffer<float> x(r.normals(11 * 512));
        pi__k_input in = {PLAIN, x.get(), 512, nullptr, 0, nullptr, 0, 0};
        std::vector<float> first;
        in_all_modes([&] {
            std::vector<float> y = multiply(w, in, 11);
            if (first.empty()) first = y;
            expect_bytes(first.data(), y.data(), y.size() * 4);
        });
    }
}

/* Transformations of the input (norm, gates) and the output's factor. */
void test_inputs()
{
    for (int32_t type : one_of({PI__Q8_0, PI__F32})) {
        const int32_t rows = 5;
        const int64_t n = 288, ld = 600;
        matrix w = make_matrix(type, n, 9);
        random r(7);
        std::vector<float> v = r.normals((size_t) (rows * ld)), nw = r.normals((size_t) n);
        buffer<float> x(v), norm(nw), factor(std::vector<float>{0.5f});
        w.m.scale = factor.get();
        for (int k = PLAIN; k <= SWIGLU + 3; k++) { /* then SWIGLU with a limit, and the exact GELU */
            const int kind = k > SWIGLU + 2   ? (int) PI__IN_GELU
                             : k > SWIGLU + 1 ? (int) PI__IN_GEGLU_ERF
                                              : std::min(k, (int) SWIGLU);
            const float limit = k == SWIGLU + 1 ? 0.5f : 0;
            bool glu = pi__in_gated(kind);
            pi__k_input in = {kind, x.get(), ld, glu ? x.get() + n : nullptr, ld, norm.get(), 1e-5f, limit};
            std::vector<double> want;
            for (int32_t i = 0; i < rows; i++) {
                double ss = 0;
                for (int64_t j = 0; j < n; j++) ss += (double) v[(size_t) (i * ld + j)] * v[(size_t) (i * ld + j)];
                for (int64_t j = 0; j < n; j++) {
                    double a = v[(size_t) (i * ld + j)], up = glu ? v[(size_t) (i * ld + n + j)] : 1;
                    if (limit != 0) a = std::min(a, 0.5), up = std::min(std::max(up, -0.5), 0.5);
                    if (kind == RMSNORM) a *= nw[(size_t) j] / std::sqrt(ss / (double) n + 1e-5);
                    if (kind == GEGLU)
                        a = 0.5 * a * (1 + std::tanh(0.7978845608028654 * (a + 0.044715 * a * a * a))) * up;
                    if (kind == SWIGLU) a = a / (1 + std::exp(-a)) * up;
                    if (kind == PI__IN_GELU) up = 1;
                    if (kind == PI__IN_GEGLU_ERF || kind == PI__IN_GELU)
                        a = 0.5 * a * (1 + std::erf(a / std::sqrt(2.0))) * up;
                    want.push_back(a * 0.5);
                }
            }
            check(w, want, multiply(w, in, rows), rows);
        }
    }
}

void test_embed()
{
    for (int32_t type : one_of(types)) {
        matrix w = make_matrix(type, pi__type_is_float(type) ? 77 : 512, 35);
        buffer<int32_t> token(std::vector<int32_t>{34, 0, 15, 16, 7});
        buffer<float> out((size_t) (5 * w.m.n_in));
        must_run(pi__k_embed(stream(), &w.m, token.get(), 5, 3.0f, out.get()));
        for (size_t i = 0; i < out.size(); i++) {
            float v = w.values[(size_t) token[i / (size_t) w.m.n_in] * (size_t) w.m.n_in + i % (size_t) w.m.n_in] *
                      3.0f;
            if (!within(std::fabs(out[i] - v), 1e-6f * std::fabs(v)))
                fail_check("type %d value %zu: %g, expected %g", type, i, (double) out[i], (double) v);
        }
    }
}

/* NaN and infinity stay within their row. */
void test_not_numbers()
{
    matrix w = make_matrix(PI__Q8_0, 64, 16);
    random r(3);
    std::vector<float> v = r.normals(3 * 64);
    v[5] = NAN;
    v[64 + 40] = INFINITY;
    buffer<float> x(v);
    pi__k_input in = {PLAIN, x.get(), 64, nullptr, 0, nullptr, 0, 0};
    std::vector<float> y = multiply(w, in, 3);
    for (size_t i = 0; i < 16; i++)
        expect_true(!std::isfinite(y[i]) && !std::isfinite(y[16 + i]) && std::isfinite(y[32 + i]));
}

/* Several matrices in one call are bitwise identical to separate calls. */
void test_together()
{
    for (int32_t type : one_of({PI__Q4_K, PI__Q6_K, PI__Q8_0, PI__IQ3_S, PI__F32})) {
        const int64_t n_in = 768, n_out[] = {9, 128, 16, 33};
        random r(11);
        buffer<float> x(r.normals(40 * n_in)), factor(std::vector<float>{0.25f});
        pi__k_input in = {PLAIN, x.get(), n_in, nullptr, 0, nullptr, 0, 0};
        std::vector<matrix> w;
        for (int64_t n : n_out) w.push_back(make_matrix(type, n_in, n));
        w[2].m.scale = factor.get();
        for (int32_t rows : sizes<int32_t>({1, 8, 9, 32, 40})) {
            buffer<char> prepared(pi__k_packed_x_bytes(rows, n_in, pi__type_is_float(type)));
            must_run(pi__k_pack_x(stream(), &in, rows, n_in, pi__type_is_float(type), prepared.get()));
            buffer<float> y((size_t) rows * 200);
            pi__k_product p[4];
            for (int64_t i = 0, at = 0; i < 4; at += n_out[i++]) p[i] = {w[(size_t) i].m, y.get() + at, 200, 0};
            must_run(pi__k_linear(stream(), p, 4, prepared.get(), rows));
            for (int64_t i = 0, at = 0; i < 4; at += n_out[i++]) {
                std::vector<float> want = multiply(w[(size_t) i], in, rows);
                for (int32_t k = 0; k < rows; k++)
                    expect_bytes(&want[(size_t) (k * n_out[i])], &y[(size_t) (k * 200 + at)], (size_t) n_out[i] * 4);
            }
        }
    }
}

/* For float matrices, the kernels for many rows are bitwise identical to the kernels for few rows. Warps have 8 or 4
 * rows of W; the last warps have fewer. */
void test_many_floats()
{
    const struct { int32_t type; int64_t n_in, n_out; int32_t rows; } cases[] = {
        {PI__F32, 77, 1030, 70}, {PI__F32, 128, 2050, 11}, {PI__F16, 33, 2050, 9}, {PI__BF16, 64, 1001, 36}};
    for (const auto &c : one_of(cases)) {
        matrix w = make_matrix(c.type, c.n_in, c.n_out);
        buffer<float> x(random(12).normals((size_t) (c.rows * c.n_in))), factor(std::vector<float>{0.25f});
        pi__k_input in = {PLAIN, x.get(), c.n_in, nullptr, 0, nullptr, 0, 0};
        if (c.type == PI__F32) w.m.scale = factor.get();
        const std::vector<float> want = multiply(w, in, c.rows);
        buffer<char> prepared(pi__k_packed_x_bytes(c.rows, c.n_in, 1));
        const int64_t ld = c.n_out + 3;
        buffer<float> y((size_t) (c.rows * ld));
        y.fill(0xff);
        const pi__k_product one = {w.m, y.get(), ld, 0};
        expect_true(pi__k_floats_has(c.type, c.n_out, c.rows) && !pi__k_floats_has(c.type, c.n_out, 8));
        must_run(pi__k_pack_x(stream(), &in, c.rows, c.n_in, 1, prepared.get()));
        must_run(pi__k_floats_linear(stream(), &one, 1, prepared.get(), c.rows));
        for (int32_t r = 0; r < c.rows; r++) {
            expect_bytes(&y[(size_t) (r * ld)], &want[(size_t) (r * c.n_out)], (size_t) c.n_out * 4);
            for (int64_t i = c.n_out; i < ld; i++) expect_true(std::isnan(y[(size_t) (r * ld + i)]));
        }
    }
    const pi__k_product packed = {make_matrix(PI__Q8_0, 32, 16).m, nullptr, 16, 0};
    expect_true(!pi__k_floats_has(PI__Q8_0, 1 << 20, 64) &&
                pi__k_floats_linear(stream(), &packed, 1, nullptr, 64) == 1);
}

void test_unsupported()
{
    pi__cuda_shape s;
    expect_true(!pi__cuda_shape_of(PI__I32, 256, 16, &s));
    expect_true(!pi__cuda_shape_of(PI__Q4_K, 128, 16, &s));
    expect_true(!pi__cuda_shape_of(PI__Q8_0, 0, 16, &s));
    expect_true(!pi__cuda_shape_of(PI__Q8_0, 32, INT64_C(1) << 40, &s));
}

const entry checks[] = {
    {"formats", test_formats}, {"modes", test_modes}, {"inputs", test_inputs}, {"embed", test_embed},
    {"not_numbers", test_not_numbers}, {"together", test_together}, {"many_floats", test_many_floats},
    {"unsupported", test_unsupported},
};

} // namespace

const family checks_of_linear = {"linear", "matmuls with few rows, embeddings",
                                 checks, sizeof checks / sizeof *checks};

} // namespace selftest
