/* Measures the error that a matmul mode adds to the quantization error of the weights. The reference is a product of
 * the dequantized weights in double precision. The baseline is the usual scheme of other implementations: activations
 * in q8_1, which is blocks of 32 values with 8 bits each and a float scale. Used by check_w16.cpp and, for
 * docs/perf/matmul.md, by tests/simt/matmul_error.cpp. */
#ifndef PI__SELFTEST_MATMUL_ERROR_H
#define PI__SELFTEST_MATMUL_ERROR_H

#include "selftest/matrix_ref.h"

namespace selftest {

static const int32_t w16_types[] = {PI__Q8_0, PI__Q4_0, PI__Q4_K, PI__Q6_K, PI__IQ4_XS, PI__MXFP4, PI__NVFP4};

/* Returns the number of columns of `blocks` blocks of 32, rounded up to full blocks of the type. */
inline int64_t columns_of(int32_t type, int64_t blocks)
{
    const int64_t unit = (int64_t) pi__type_info_of(type)->blck_size;
    return (blocks * 32 + unit - 1) / unit * unit;
}

inline std::vector<float> multiply_w16(const matrix &w, const pi__k_input &in, int32_t n_rows)
{
    const size_t bytes = pi__k_w16_packed_x_bytes(n_rows, w.m.n_in);
    const int64_t ld = w.m.n_out + 3;
    buffer<char> prepared(bytes);
    buffer<float> y((size_t) (n_rows * ld));
    must_run(pi__k_w16_pack_x(stream(), &in, w.m.type, n_rows, w.m.n_in, prepared.get()));
    const pi__k_product one = {w.m, y.get(), ld, 0};
    must_run(pi__k_w16_linear(stream(), &one, 1, prepared.get(), n_rows));
    std::vector<float> out;
    for (int64_t r = 0; r < n_rows; r++) {
        const float *row = &y[(size_t) (r * ld)];
        out.insert(out.end(), row, row + w.m.n_out);
        for (int i = 0; i < 3; i++) expect_true(row[w.m.n_out + i] != row[w.m.n_out + i]); /* not written */
    }
    return out;
}

/* Multiplies rows of x by w as the down matrix of an expert that is used by all rows. x is passed as the output of an
 * activation: silu(32) * (x / 32), and silu(32) is 32 in float. */
inline std::vector<float> multiply_down(const matrix &w, const std::vector<float> &x, int32_t n_rows)
{
    const int64_t n_in = w.m.n_in, n_out = w.m.n_out;
    std::vector<float> h((size_t) n_rows * 2 * (size_t) n_in, 32.0f);
    for (size_t i = 0; i < x.size(); i++)
        h[i / (size_t) n_in * 2 * (size_t) n_in + (size_t) n_in + i % (size_t) n_in] = x[i] / 32;
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

/* Relative errors: the norm of the errors divided by the norm of the exact results. w16, exact: 16-bit and exact
 * kernels; q8_1: the baseline; down: 16-bit kernels for experts' down. */
struct matmul_error {
    double w16, exact, q8_1, down;
};

/* Returns a row rounded to q8_1. */
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

/* Returns rows of n_in values rounded to the matrix's FP4 format as other implementations do. For MXFP4, the scale is
 * the nearest power of two on a logarithmic scale, so large values may be clipped. For NVFP4, it is the best of five
 * scales around the one that maps the largest value to 6. */
inline std::vector<float> in_usual_fp4(int32_t type, const std::vector<float> &x, size_t n_in)
{
    const size_t unit = type == PI__NVFP4 ? 16 : 32;
    auto code = [](double v) { /* the nearest e2m1 value */
        static const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
        double best = 0;
        for (double c : values)
            if (std::fabs(std::fabs(v) - c) < std::fabs(std::fabs(v) - best)) best = c;
        return std::copysign(best, v);
    };
    auto ue4m3 = [](int c) { return c < 8 ? c / 512.0 : std::ldexp(8 + c % 8, c / 8 - 10); };
    std::vector<float> out(x.size());
    double row = 0;
    for (size_t i = 0; i < x.size(); i += unit) {
        double most = 0, scale = 0, least = INFINITY;
        for (size_t k = i; k < i / n_in * n_in + n_in && i % n_in == 0; k++)
            row = std::max(k == i ? 0 : row, std::fabs((double) x[k]));
        for (size_t k = i; k < i + unit; k++) most = std::max(most, std::fabs((double) x[k]));
        if (type == PI__MXFP4) scale = most > 0 ? std::exp2(std::nearbyint(std::log2(most)) - 2) : 0;
        const double factor = row / (6 * 448);
        int near = 0;
        while (near < 126 && factor > 0 && ue4m3(near + 1) <= most / 6 / factor) near++;
        for (int c = std::max(near - 2, 0); type == PI__NVFP4 && c <= std::min(near + 2, 126); c++) {
            double error = 0, s = ue4m3(c) * factor;
            for (size_t k = i; k < i + unit && s > 0; k++) error += std::pow(x[k] - code(x[k] / s) * s, 2);
            if (s > 0 && error < least) least = error, scale = s;
        }
        for (size_t k = i; k < i + unit; k++) out[k] = scale > 0 ? (float) (code(x[k] / scale) * scale) : 0.0f;
    }
    return out;
}

/* Normally distributed weights and activations. outliers: one of every 97 columns of the activations is multiplied by
 * 50. */
struct error_case {
    enum { N_IN = 2048, N_OUT = 48, ROWS = 8 };
    std::vector<float> v;
    matrix w;

    error_case(int32_t type, bool outliers)
    {
        random r(77);
        const std::vector<float> values = r.normals(N_IN * N_OUT);
        v = r.normals(ROWS * N_IN);
        for (size_t i = 0; i < v.size() && outliers; i++)
            if (i % N_IN % 97 == 13) v[i] *= 50;
        const size_t row = pi__row_size(pi__type_info_of(type), N_IN);
        std::vector<uint8_t> bytes(row * N_OUT);
        for (size_t i = 0; i < N_OUT; i++) pi__quantize_row(type, &values[i * N_IN], &bytes[i * row], N_IN, nullptr);
        w = pack_matrix(type, N_IN, N_OUT, bytes);
    }
    /* Returns the product with activations x, in double precision. */
    std::vector<double> with(const std::vector<float> &x) const
    {
        std::vector<double> y(ROWS * N_OUT);
        for (size_t i = 0; i < y.size(); i++)
            for (size_t k = 0; k < N_IN; k++) y[i] += (double) w.values[i % N_OUT * N_IN + k] * x[i / N_OUT * N_IN + k];
        return y;
    }
    template <class T> double error(const std::vector<T> &y) const
    {
        const std::vector<double> want = with(v);
        double off = 0, sum = 0;
        for (size_t i = 0; i < want.size(); i++) off += std::pow(y[i] - want[i], 2), sum += want[i] * want[i];
        return std::sqrt(off / sum);
    }
};

inline matmul_error error_of(int32_t type, bool outliers)
{
    const error_case c(type, outliers);
    buffer<float> x(c.v);
    const pi__k_input in = {PLAIN, x.get(), c.N_IN, nullptr, 0, nullptr, 0, 0};
    return {c.error(multiply_w16(c.w, in, c.ROWS)), c.error(multiply(c.w, in, c.ROWS)), c.error(c.with(in_q8_1(c.v))),
            c.error(multiply_down(c.w, c.v, c.ROWS))};
}

/* Errors of the modes of option fp4-mode (w4a4; w4a8, for MXFP4 only), of the usual FP4 activations, and of q8_1
 * activations. */
struct fp4_error {
    double w4a4, w4a8, usual, q8_1;
};

inline fp4_error fp4_error_of(int32_t type, bool outliers)
{
    const error_case c(type, outliers);
    buffer<float> x(c.v), y(c.ROWS * c.N_OUT);
    buffer<char> prepared(pi__k_fp4_packed_x_bytes(c.ROWS, c.N_IN));
    const pi__k_input in = {PLAIN, x.get(), c.N_IN, nullptr, 0, nullptr, 0, 0};
    const pi__k_product one = {c.w.m, y.get(), c.N_OUT, 0};
    fp4_error e = {0, 0, c.error(c.with(in_usual_fp4(type, c.v, c.N_IN))), c.error(c.with(in_q8_1(c.v)))};
    must_run(pi__k_fp4_pack_x(stream(), &in, type, c.ROWS, c.N_IN, prepared.get()));
    must_run(pi__k_fp4_linear(stream(), &one, 1, prepared.get(), c.ROWS));
    e.w4a4 = c.error(std::vector<float>(y.get(), y.get() + y.size()));
    if (type != PI__MXFP4) return e;
    must_run(pi__k_w4a8_pack_x(stream(), &in, type, c.ROWS, c.N_IN, prepared.get()));
    must_run(pi__k_w4a8_linear(stream(), &one, 1, prepared.get(), c.ROWS));
    e.w4a8 = c.error(std::vector<float>(y.get(), y.get() + y.size()));
    return e;
}

} // namespace selftest

#endif
