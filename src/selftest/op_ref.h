/* For checks of ops: a device, and stacked matrices on it and dequantized on the host. */
#ifndef PI__SELFTEST_OP_REF_H
#define PI__SELFTEST_OP_REF_H

#include "selftest/matrix_ref.h"

extern "C" {
#include "backend/devices.h"
}

namespace selftest {

/* A backend on the target, or on the device `name` (for example the CPU). */
struct device {
    pi__backend *be = nullptr;
    /* matmul: the default is EXACT, as most references assume. no_fuse: every op has separate launches. */
    explicit device(bool fp4 = false, const char *name = nullptr, int matmul = PI__MATMUL_EXACT, bool no_fuse = false)
    {
        pi__device_params params = {};
        params.cuda.fp4 = fp4 ? PI__FP4_W4A4 : PI__FP4_AUTO;
        params.cuda.matmul = matmul;
        params.cuda.no_fuse = no_fuse;
        pi_error err;
        if (pi__device_create(&be, name ? name : now->name, false, &params, nullptr, &err)) fail_check("%s", err.msg);
    }
    void reserve(const pi__limits &lim)
    {
        pi_error err;
        if (be->dev->reserve(be, &lim, &err)) fail_check("%s", err.msg);
    }
    void finish()
    {
        pi_error err;
        if (be->dev->finish(be, &err)) fail_check("%s", err.msg);
    }
    ~device() { be->dev->destroy(be); }
};

/* n_mat matrices of one shape, with a factor each: on the device (w), and dequantized from the file's bytes
 * (values). */
struct stack {
    pi__weight w = {};
    std::vector<float> values, factors;
    std::unique_ptr<buffer<char>> memory;
    std::unique_ptr<buffer<float>> scale;

    stack(device &d, int32_t type, int64_t n_in, int64_t n_out, int64_t n_mat)
    {
        random r((uint64_t) (type * 999 + n_in + n_out));
        std::vector<uint8_t> bytes = random_rows(type, n_in, n_out * n_mat, r);
        size_t row = pi__row_size(pi__type_info_of(type), n_in);
        values.resize((size_t) (n_in * n_out * n_mat));
        for (int64_t i = 0; i < n_out * n_mat; i++)
            pi__dequantize_row(type, &bytes[(size_t) i * row], &values[(size_t) (i * n_in)], n_in);
        w.type = type, w.n_in = n_in, w.n_out = n_out, w.n_mat = n_mat;
        w.size = d.be->dev->weight_size(d.be, &w);
        expect_true(w.size > 0);
        memory.reset(new buffer<char>(w.size));
        w.data = memory->get();
        for (int64_t m = 0; m < n_mat; m++) {
            for (int64_t i = 0; i < n_out; i += PI__LOAD_ROWS)
                d.be->dev->weight_load(d.be, &w, m, i, std::min<int64_t>(PI__LOAD_ROWS, n_out - i),
                                       &bytes[(size_t) (m * n_out + i) * row]);
            factors.push_back(0.5f + 0.1f * (float) m);
        }
        d.finish();
        scale.reset(new buffer<float>(factors));
        w.scale = scale->get();
    }
};

/* Returns row o of matrix e of a stack times x, with the factor. *off: receives the maximum error from rounding x to 15
 * bits. */
inline double dot(const stack &s, int32_t e, int64_t o, const std::vector<double> &x, double *off)
{
    const int64_t n = s.w.n_in;
    const float *w = &s.values[(size_t) ((e * s.w.n_out + o) * n)];
    double sum = 0;
    *off = 0;
    for (int64_t b = 0; b < n; b += 32) {
        double most = 0, abs = 0;
        for (int64_t i = b; i < std::min(n, b + 32); i++) {
            most = std::max(most, std::fabs(x[(size_t) i]));
            abs += std::fabs(w[i]);
            sum += w[i] * x[(size_t) i];
        }
        *off += abs * most * ((pi__type_is_float(s.w.type) ? 0 : 0.51 / 16256) + 2e-6);
    }
    *off *= s.factors[(size_t) e];
    return sum * s.factors[(size_t) e];
}

} // namespace selftest

#endif
