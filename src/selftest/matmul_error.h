/* The error of products with packed matrices, at the level of quantisation: what a way of multiplying adds to what the
 * format of the weights costs. Against double precision of the weights as the file's bytes stand for them, and beside what
 * is usual elsewhere: activations in q8_1, blocks of 32 with 8 bits and a float scale. Used by check_w16.cpp and, for
 * docs/matmul.md, by tests/simt/matmul_error.cpp. */
#ifndef PI__SELFTEST_MATMUL_ERROR_H
#define PI__SELFTEST_MATMUL_ERROR_H

#include "selftest/matrix_ref.h"

namespace selftest {

static const int32_t w16_types[] = {PI__Q8_0, PI__Q4_0, PI__Q4_K, PI__Q6_K, PI__IQ4_XS, PI__MXFP4, PI__NVFP4};

inline std::vector<float> multiply_w16(const matrix &w, const pi__k_input &in, int32_t n_rows)
{
    const size_t bytes = pi__k_w16_prepared_bytes(n_rows, w.m.n_in);
    const int64_t ld = w.m.n_out + 3;
    buffer<char> prepared(bytes);
    buffer<float> y((size_t) (n_rows * ld));
    must_run(pi__k_w16_prepare(stream(), &in, w.m.type, n_rows, w.m.n_in, prepared.get()));
    const pi__k_product one = {w.m, y.get(), ld};
    must_run(pi__k_w16_linear(stream(), &one, 1, prepared.get(), n_rows));
    std::vector<float> out;
    for (int64_t r = 0; r < n_rows; r++) {
        const float *row = &y[(size_t) (r * ld)];
        out.insert(out.end(), row, row + w.m.n_out);
        for (int i = 0; i < 3; i++) expect_true(row[w.m.n_out + i] != row[w.m.n_out + i]); /* untouched */
    }
    return out;
}

/* As the down matrix of an expert that all rows go to: x comes out of an activation, here silu(32) = 32. */
inline std::vector<float> multiply_down(const matrix &w, const std::vector<float> &x, int32_t n_rows)
{
    const int64_t n_in = w.m.n_in, n_out = w.m.n_out;
    std::vector<float> h((size_t) n_rows * 2 * (size_t) n_in, 32.0f);
    for (size_t i = 0; i < x.size(); i++) h[i / (size_t) n_in * 2 * (size_t) n_in + (size_t) n_in + i % (size_t) n_in] = x[i] / 32;
    buffer<float> glu(h), y((size_t) (n_rows * n_out));
    buffer<int32_t> n_tile(std::vector<int32_t>{(n_rows + 7) / 8, 0, 0});
    std::vector<pi__k_tile> tiles;
    for (int32_t i = 0; i < n_rows; i += 8) tiles.push_back({0, i, std::min(8, n_rows - i)});
    buffer<pi__k_tile> tile(tiles);
    buffer<char> mid(pi__k_w16_mid_bytes(n_rows, n_in));
    const pi__k_input in = {SWIGLU, glu.get(), 2 * n_in, glu.get() + n_in, 2 * n_in, nullptr, 0, 0};
    must_run(pi__k_w16_mid(stream(), &in, w.m.type, n_rows, n_in, mid.get()));
    pi__k_routes r = {};
    r.n_rows = n_rows, r.n_expert = r.n_used = 1, r.tile[0] = tile.get(), r.n_tile = n_tile.get();
    pi__k_experts e = {};
    e.w = w.m, e.y = y.get(), e.ldy = n_out;
    must_run(pi__k_w16_down(stream(), &r, &e, mid.get()));
    return std::vector<float>(y.get(), y.get() + y.size());
}

/* Errors, each the root of the sum of squares as a part of that of the results. */
struct matmul_error {
    double w16, exact, q8_1, down;
};

/* What a row becomes in q8_1. */
inline std::vector<float> in_q8_1(const std::vector<float> &x)
{
    std::vector<float> out(x.size());
    for (size_t i = 0; i < x.size(); i += 32) {
        float most = 0;
        for (size_t k = i; k < i + 32; k++) most = std::max(most, std::fabs(x[k]));
        const float d = most / 127;
        for (size_t k = i; k < i + 32; k++) out[k] = d > 0 ? std::round(x[k] / d) * d : 0.0f;
    }
    return out;
}

/* Of normally distributed weights, and activations that are, too; outliers: one column of 97 is 50 times as large. */
inline matmul_error error_of(int32_t type, bool outliers)
{
    enum { N_IN = 2048, N_OUT = 48, ROWS = 8 };
    random r(77);
    const std::vector<float> values = r.normals(N_IN * N_OUT);
    std::vector<float> v = r.normals(ROWS * N_IN);
    for (size_t i = 0; i < v.size() && outliers; i++)
        if (i % N_IN % 97 == 13) v[i] *= 50;
    const size_t row = pi__row_size(pi__type_info_of(type), N_IN);
    std::vector<uint8_t> bytes(row * N_OUT);
    for (size_t i = 0; i < N_OUT; i++) pi__quantize_row(type, &values[i * N_IN], &bytes[i * row], N_IN, nullptr);
    matrix w = pack_matrix(type, N_IN, N_OUT, bytes);
    buffer<float> x(v);
    const pi__k_input in = {PLAIN, x.get(), N_IN, nullptr, 0, nullptr, 0, 0};
    const std::vector<float> half = multiply_w16(w, in, ROWS), exact = multiply(w, in, ROWS), rounded = in_q8_1(v),
                             down = multiply_down(w, v, ROWS);
    double sum = 0, off[4] = {0, 0, 0, 0};
    for (size_t i = 0; i < ROWS * N_OUT; i++) {
        double want = 0, usual = 0;
        for (size_t k = 0; k < N_IN; k++) {
            const double weight = w.values[i % N_OUT * N_IN + k];
            want += weight * v[i / N_OUT * N_IN + k];
            usual += weight * rounded[i / N_OUT * N_IN + k];
        }
        const double d[] = {half[i] - want, exact[i] - want, usual - want, down[i] - want};
        for (int k = 0; k < 4; k++) off[k] += d[k] * d[k];
        sum += want * want;
    }
    return {std::sqrt(off[0] / sum), std::sqrt(off[1] / sum), std::sqrt(off[2] / sum), std::sqrt(off[3] / sum)};
}

} // namespace selftest

#endif
