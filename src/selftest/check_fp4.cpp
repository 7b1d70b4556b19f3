/* fp4 kernels: products with FP4 activations against double precision over a plain description of their rounding, and
 * batch-invariant: to the bit against themselves in every batch composition. */
#include "selftest/expert_ref.h"
#include "selftest/checks.h"

namespace selftest {
namespace {

/* Random blocks without NVFP4's scale 480, which the instruction has not. */
matrix fp4_matrix(int32_t type, int64_t n_in, int64_t n_out, uint64_t seed)
{
    random r((uint64_t) (n_in + n_out) + seed);
    std::vector<uint8_t> bytes = random_rows(type, n_in, n_out, r);
    for (size_t i = 0; i < bytes.size() && type == PI__NVFP4; i++) {
        if (i % 36 < 4 && bytes[i] == 0xff) bytes[i] = 0xfe;
    }
    return pack_matrix(type, n_in, n_out, bytes);
}

std::vector<float> product(const matrix &w, const float *x, int32_t n_rows)
{
    pi__k_input in = {PLAIN, x, w.m.n_in, nullptr, 0, nullptr, 0, 0};
    buffer<char> prepared(pi__k_fp4_prepared_bytes(n_rows, w.m.n_in));
    buffer<float> y((size_t) (n_rows * w.m.n_out));
    must_run(pi__k_fp4_prepare(stream(), &in, w.m.type, n_rows, w.m.n_in, prepared.get()));
    const pi__k_product one = {w.m, y.get(), w.m.n_out};
    must_run(pi__k_fp4_linear(stream(), &one, 1, prepared.get(), n_rows));
    return std::vector<float>(y.get(), y.get() + y.size());
}

double e2m1_value(uint8_t c)
{
    static const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return c & 8 ? -values[c & 7] : values[c & 7];
}

double e4m3_value(uint8_t d) { return d < 8 ? d / 512.0 : std::ldexp(8 + d % 8, d / 8 - 10); }

/* The code from 0 to last whose value is nearest, of two the even one; value ascends. */
uint8_t nearest(double (*value)(uint8_t), uint8_t last, double x)
{
    uint8_t c = 0;
    while (c < last && value((uint8_t) (c + 1)) <= x) c++;
    if (c == last || !(x > 0)) return c;
    const double below = x - value(c), above = value((uint8_t) (c + 1)) - x;
    return (uint8_t) (c + (above < below || (above == below && c % 2)));
}

/* To the nearest, what is too large to the largest. */
uint8_t to_e4m3(double f) { return nearest(e4m3_value, 126, f); }
uint8_t to_e2m1(float f) { return (uint8_t) (nearest(e2m1_value, 7, std::fabs(f)) | (std::signbit(f) ? 8 : 0)); }

/* Nearest value of 4 significant bits, ties to even. */
double four_bits(float f)
{
    int e;
    const double m = std::frexp((double) f, &e);
    return std::ldexp(std::nearbyint(m * 16), e - 4);
}

/* A row as the format rounds it: of NVFP4 with codes by scales of 4 bits, which are then rounded to what the row's largest
 * leaves room for. */
std::vector<double> rounded(int32_t type, const float *x, size_t n)
{
    const size_t unit = type == PI__NVFP4 ? 16 : 32;
    std::vector<double> out(n), scales(n / unit);
    double row = 0;
    for (size_t i = 0; i < n; i += unit) {
        float most = 0;
        double scale = 0;
        for (size_t j = i; j < i + unit; j++) most = std::max(most, std::fabs(x[j]));
        double least = INFINITY;
        for (float top : {6.0f, 4.0f}) {
            double s = four_bits(most / top), error = 0;
            for (size_t j = i; j < i + unit && s > 0; j++) {
                double d = x[j] - e2m1_value(to_e2m1(x[j] * (float) (1 / s))) * s;
                error += d * d;
            }
            if (s > 0 && error < least * (1 - 1e-6)) scale = s, least = error;
        }
        if (type == PI__MXFP4) scale = most > 0 ? std::exp2(std::ceil(std::log2((double) most / 6))) : 0;
        for (size_t j = i; j < i + unit && scale > 0; j++) out[j] = e2m1_value(to_e2m1(x[j] * (float) (1.0 / scale)));
        scales[i / unit] = scale;
        row = std::max(row, scale);
    }
    const double factor = row > 0 ? std::exp2(std::floor(std::log2(row)) - 7) : 0;
    for (size_t i = 0; i < n; i++) {
        const double s = scales[i / unit];
        out[i] *= type == PI__MXFP4 ? s : s > 0 ? e4m3_value(to_e4m3(s / factor)) * factor : 0;
    }
    return out;
}

void check(const matrix &w, const float *x, const std::vector<float> &y, int32_t n_rows)
{
    size_t n = (size_t) w.m.n_in, n_out = (size_t) w.m.n_out;
    for (size_t r = 0; r < (size_t) n_rows; r++) {
        std::vector<double> xr = rounded(w.m.type, x + r * n, n);
        for (size_t o = 0; o < n_out; o++) {
            double want = 0, size = 1e-30;
            for (size_t i = 0; i < n; i++) want += w.values[o * n + i] * xr[i], size += std::fabs(w.values[o * n + i] * xr[i]);
            if (!within(std::fabs(y[r * n_out + o] - want), 2e-6 * size)) {
                fail_check("%s %zux%zu row %zu of %d, result %zu: %g, expected %g +- %g", pi__type_info_of(w.m.type)->name, n,
                         n_out, r, n_rows, o, (double) y[r * n_out + o], want, 2e-6 * size);
            }
        }
    }
}

void test_values()
{
    const struct { int64_t n_in, n_out; int32_t rows; } shapes[] = {{64, 1, 1}, {320, 33, 9}, {704, 20, 32}, {192, 140, 70}};
    for (int32_t type : {PI__NVFP4, PI__MXFP4}) {
        for (auto c : shapes) {
            int64_t n_in = type == PI__MXFP4 ? c.n_in + 32 : c.n_in; /* half a chunk too */
            matrix w = fp4_matrix(type, n_in, c.n_out, 0);
            random r((uint64_t) c.rows);
            std::vector<float> v = r.normals((size_t) (c.rows * n_in));
            for (size_t i = 0; i < v.size(); i++) v[i] *= std::exp2((float) (i / (size_t) n_in) - (float) (i / 16 % 7));
            if (c.rows > 2) std::fill(v.begin() + n_in, v.begin() + 2 * n_in, 0.0f);
            buffer<float> x(v);
            std::vector<float> y = product(w, x.get(), c.rows);
            check(w, v.data(), y, c.rows);
            for (int32_t i = 0; i < c.rows; i += 7) { /* a row alone, and in a batch of nine */
                size_t bytes = (size_t) c.n_out * 4;
                expect_bytes(product(w, x.get() + i * n_in, 1).data(), &y[(size_t) (i * c.n_out)], bytes);
                if (i + 9 > c.rows) continue;
                expect_bytes(product(w, x.get() + i * n_in, 9).data(), &y[(size_t) (i * c.n_out)], 9 * bytes);
            }
        }
    }
}

void test_modes()
{
    for (int32_t type : {PI__NVFP4, PI__MXFP4}) {
        matrix w = fp4_matrix(type, 448, 140, 0);
        random r(1);
        buffer<float> x(r.normals(40 * 448));
        for (int32_t rows : {3, 40}) {
            std::vector<float> first;
            in_all_modes([&] {
                std::vector<float> y = product(w, x.get(), rows);
                if (first.empty()) first = y;
                expect_bytes(first.data(), y.data(), y.size() * 4);
            });
        }
    }
}

/* -------------------------------------------------------------------------------------------------------------- experts */

void check_one(const matrix &w, const float *x, const std::vector<float> &y) { check(w, x, y, 1); }

int multiply_one(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y, int64_t ldy)
{
    const pi__k_product one = {*w, y, ldy};
    return pi__k_fp4_linear(stream, &one, 1, prepared, n_rows);
}

const way in_fp4 = {fp4_matrix, [](int32_t, int32_t n, int64_t n_in) { return pi__k_fp4_prepared_bytes(n, n_in); },
                           pi__k_fp4_prepare, multiply_one, pi__k_fp4_experts, check_one};

void test_experts()
{
    const struct { int64_t n_in, n_out; int32_t rows; } shapes[] = {{64, 1, 1}, {320, 33, 23}, {704, 20, 9}, {192, 140, 90}};
    for (int32_t type : {PI__NVFP4, PI__MXFP4}) {
        for (auto s : shapes) {
            experts(in_fp4, type, type == PI__MXFP4 ? s.n_in + 32 : s.n_in, s.n_out, s.rows).test();
        }
        experts(in_fp4, type, type == PI__NVFP4 ? 448 : 352, 140, 60).test_modes();
    }
}

/* Scales of files: 0x7f stands for 0, bit 7 for nothing, 0xff for 480, which becomes 448. */
void test_odd_scales()
{
    std::vector<uint8_t> bytes(3 * 36, 0x22); /* codes 2: 1.0 */
    for (size_t i = 0; i < 4; i++) bytes[i] = 0x7f, bytes[36 + i] = 0xb8, bytes[72 + i] = 0xff;
    matrix w = pack_matrix(PI__NVFP4, 64, 3, bytes);
    buffer<float> x(std::vector<float>(64, 6.0f));
    std::vector<float> y = product(w, x.get(), 1), exact = multiply(w, {PLAIN, x.get(), 64, nullptr, 0, nullptr, 0, 0}, 1);
    const float want[] = {0, 6 * 64, 6 * 64 * 448}, as_read[] = {0, 6 * 64, 6 * 64 * 480};
    for (size_t i = 0; i < 3; i++) {
        expect_true(std::fabs(y[i] - want[i]) <= 1e-5f * want[i]);
        expect_true(std::fabs(exact[i] - as_read[i]) <= 1e-4f * as_read[i]);
    }
}

/* NaN and infinity stay with their row; an architecture that has no instructions for FP4 leaves results alone. */
void test_not_numbers()
{
    for (int32_t type : {PI__NVFP4, PI__MXFP4}) {
        matrix w = fp4_matrix(type, 64, 16, 0);
        random r(3);
        std::vector<float> v = r.normals(3 * 64);
        v[5] = NAN;
        v[64 + 40] = INFINITY;
        buffer<float> x(v);
        std::vector<float> y = product(w, x.get(), 3);
        for (size_t i = 0; i < 16; i++) expect_true(!std::isfinite(y[i]) && !std::isfinite(y[16 + i]) && std::isfinite(y[32 + i]));
        if (!now->emu || !now->emu->arch) continue;
        now->emu->arch(90);
        y = product(w, x.get() + 128, 1);
        now->emu->arch(0);
        for (float f : y) expect_true(f != f);
    }
}

const entry checks[] = {
    {"values", test_values}, {"modes", test_modes}, {"experts", test_experts}, {"odd_scales", test_odd_scales},
    {"not_numbers", test_not_numbers},
};

} // namespace

const family checks_of_fp4 = {"fp4", "products in FP4", checks, sizeof checks / sizeof *checks};

} // namespace selftest
