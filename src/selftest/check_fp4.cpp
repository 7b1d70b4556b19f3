/* Checks fp4 kernels: products with FP4 activations. The reference rounds x with a plain description of the format,
 * then multiplies in double precision. Results are batch-invariant: bitwise identical in every batch composition. */
#include "selftest/expert_ref.h"
#include "selftest/checks.h"
#include "selftest/split_ref.h"
#include "selftest/tail_ref.h"

namespace selftest {
namespace {

/* A matrix of random blocks, without NVFP4's scale 480, which the instruction cannot represent. */
matrix fp4_matrix(int32_t type, int64_t n_in, int64_t n_out, uint64_t seed)
{
    random r((uint64_t) (n_in + n_out) + seed);
    std::vector<uint8_t> bytes = random_rows(type, n_in, n_out, r);
    for (size_t i = 0; i < bytes.size() && type == PI__NVFP4; i++) {
        if (i % 36 < 4 && bytes[i] == 0xff) bytes[i] = 0xfe;
    }
    return pack_matrix(type, n_in, n_out, bytes);
}

/* The format of x. A4: the matrix's own FP4 format; A8: e4m3. */
enum activations { A4, A8 };

std::vector<float> product(const matrix &w, const float *x, int32_t n_rows, activations a = A4)
{
    pi__k_input in = {PLAIN, x, w.m.n_in, nullptr, 0, nullptr, 0, 0};
    buffer<char> prepared(pi__k_fp4_packed_x_bytes(n_rows, w.m.n_in));
    buffer<float> y((size_t) (n_rows * w.m.n_out));
    must_run(
        (a == A8 ? pi__k_w4a8_pack_x : pi__k_fp4_pack_x)(stream(), &in, w.m.type, n_rows, w.m.n_in, prepared.get()));
    const pi__k_product one = {w.m, y.get(), w.m.n_out, 0};
    must_run((a == A8 ? pi__k_w4a8_linear : pi__k_fp4_linear)(stream(), &one, 1, prepared.get(), n_rows));
    return std::vector<float>(y.get(), y.get() + y.size());
}

double e2m1_value(uint8_t c)
{
    static const double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return c & 8 ? -values[c & 7] : values[c & 7];
}

double e4m3_value(uint8_t d) { return d < 8 ? d / 512.0 : std::ldexp(8 + d % 8, d / 8 - 10); }

/* Returns the code in [0, last] with the value nearest to x, ties to the even code. `value` must ascend with the
 * code. */
uint8_t nearest(double (*value)(uint8_t), uint8_t last, double x)
{
    uint8_t c = 0;
    while (c < last && value((uint8_t) (c + 1)) <= x) c++;
    if (c == last || !(x > 0)) return c;
    const double below = x - value(c), above = value((uint8_t) (c + 1)) - x;
    return (uint8_t) (c + (above < below || (above == below && c % 2)));
}

/* Rounds to the nearest value; larger values saturate. */
uint8_t to_e4m3(double f) { return nearest(e4m3_value, 126, f); }
uint8_t to_e2m1(float f) { return (uint8_t) (nearest(e2m1_value, 7, std::fabs(f)) | (std::signbit(f) ? 8 : 0)); }

/* Rounds to 4 significant bits, ties to even. */
double four_bits(float f)
{
    int e;
    const double m = std::frexp((double) f, &e);
    return std::ldexp(std::nearbyint(m * 16), e - 4);
}

/* Rounds a row as the kernels do for this FP4 format. For NVFP4, codes are chosen with scales of 4 significant bits.
 * The scales are then rounded to e4m3, relative to the row's largest scale. */
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

/* Rounds a row to e4m3 with a power-of-two scale per 32 values. */
std::vector<double> rounded_8(const float *x, size_t n)
{
    std::vector<double> out(n);
    for (size_t i = 0; i < n; i += 32) {
        double most = 0;
        for (size_t j = i; j < i + 32; j++) most = std::max(most, std::fabs((double) x[j]));
        const double scale = most > 0 ? std::exp2(std::ceil(std::log2(most / 448))) : 0;
        for (size_t j = i; j < i + 32 && scale > 0; j++)
            out[j] = std::copysign(e4m3_value(to_e4m3(std::fabs(x[j]) / scale)), x[j]) * scale;
    }
    return out;
}

void check(const matrix &w, const float *x, const std::vector<float> &y, int32_t n_rows, activations a = A4)
{
    size_t n = (size_t) w.m.n_in, n_out = (size_t) w.m.n_out;
    for (size_t r = 0; r < (size_t) n_rows; r++) {
        std::vector<double> xr = a == A8 ? rounded_8(x + r * n, n) : rounded(w.m.type, x + r * n, n);
        for (size_t o = 0; o < n_out; o++) {
            double want = 0, size = 1e-30;
            for (size_t i = 0; i < n; i++)
                want += w.values[o * n + i] * xr[i], size += std::fabs(w.values[o * n + i] * xr[i]);
            if (!within(std::fabs(y[r * n_out + o] - want), 2e-6 * size)) {
                fail_check("%s %zux%zu row %zu of %d, result %zu: %g, expected %g +- %g",
                           pi__type_info_of(w.m.type)->name, n, n_out, r, n_rows, o, (double) y[r * n_out + o], want,
                           2e-6 * size);
            }
        }
    }
}

void test_values()
{
    need_fp4();
    const struct {
        int64_t n_in, n_out;
        int32_t rows;
    } shapes[] = {{64, 1, 1}, {320, 33, 9}, {704, 20, 32}, {192, 140, 70}};
    const struct { int32_t type; activations a; } ways[] = {{PI__NVFP4, A4}, {PI__MXFP4, A4}, {PI__MXFP4, A8}};
    for (auto way : one_of(ways)) {
        for (auto c : one_of(shapes)) {
            int64_t n_in = way.type == PI__MXFP4 ? c.n_in + 32 : c.n_in; /* also half a chunk */
            matrix w = fp4_matrix(way.type, n_in, c.n_out, 0);
            random r((uint64_t) c.rows);
            std::vector<float> v = r.normals((size_t) (c.rows * n_in));
            for (size_t i = 0; i < v.size(); i++) v[i] *= std::exp2((float) (i / (size_t) n_in) - (float) (i / 16 % 7));
            if (c.rows > 2) std::fill(v.begin() + n_in, v.begin() + 2 * n_in, 0.0f);
            buffer<float> x(v);
            std::vector<float> y = product(w, x.get(), c.rows, way.a);
            check(w, v.data(), y, c.rows, way.a);
            for (int32_t i = 0; i < c.rows; i += 7) { /* rows in a batch of one, and of nine */
                size_t bytes = (size_t) c.n_out * 4;
                expect_bytes(product(w, x.get() + i * n_in, 1, way.a).data(), &y[(size_t) (i * c.n_out)], bytes);
                if (i + 9 > c.rows) continue;
                expect_bytes(product(w, x.get() + i * n_in, 9, way.a).data(), &y[(size_t) (i * c.n_out)], 9 * bytes);
            }
        }
    }
}

/* In every tile shape, a row is bitwise identical to the row in a batch of one: slices split over thread blocks, thin
 * matrices, and tiles of 128 x 128, which are selected only for many blocks. Several matrices in one call are bitwise
 * identical to separate calls. */
void test_shapes()
{
    need_fp4();
    const struct { int64_t n_in, n_out; int32_t rows; activations a; } shapes[] = {
        {4160, 24, 40, A4}, {192, 49, 130, A4}, {192, 70, 130, A8}, {64, 128 * 128, 66, A4}};
    for (const auto &c : one_of(shapes)) {
        if (slow() && c.n_out > 1000) continue;
        for (int32_t type : one_of({PI__NVFP4, PI__MXFP4})) {
            if ((c.a == A8 || c.n_out > 1000) && type == PI__NVFP4) continue;
            matrix w = fp4_matrix(type, c.n_in, c.n_out, 0);
            random r(5);
            buffer<float> x(r.normals((size_t) (c.rows * c.n_in)));
            std::vector<float> y = product(w, x.get(), c.rows, c.a);
            for (int32_t i : {0, c.rows - 1}) {
                const std::vector<float> alone = product(w, x.get() + i * c.n_in, 1, c.a);
                expect_bytes(alone.data(), &y[(size_t) (i * c.n_out)], (size_t) c.n_out * 4);
            }
        }
    }
    matrix w0 = fp4_matrix(PI__NVFP4, 192, 140, 0), w1 = fp4_matrix(PI__NVFP4, 192, 33, 1);
    for (int32_t rows : sizes<int32_t>({5, 40})) {
        random r(6);
        buffer<float> x(r.normals((size_t) rows * 192)), y0((size_t) rows * 140), y1((size_t) rows * 33);
        buffer<char> prepared(pi__k_fp4_packed_x_bytes(rows, 192));
        pi__k_input in = {PLAIN, x.get(), 192, nullptr, 0, nullptr, 0, 0};
        const pi__k_product both[] = {{w0.m, y0.get(), 140, 0}, {w1.m, y1.get(), 33, 0}};
        must_run(pi__k_fp4_pack_x(stream(), &in, PI__NVFP4, rows, 192, prepared.get()));
        must_run(pi__k_fp4_linear(stream(), both, 2, prepared.get(), rows));
        expect_bytes(product(w0, x.get(), rows).data(), y0.get(), y0.size() * 4);
        expect_bytes(product(w1, x.get(), rows).data(), y1.get(), y1.size() * 4);
    }
}

/* Products of many rows that add their results to the residual. */
void test_added()
{
    const struct { int32_t type; activations a; int64_t n_in, n_out; int32_t rows; } cases[] = {
        {PI__NVFP4, A4, 320, 140, 70}, {PI__MXFP4, A8, 96, 40, 40}};
    need_fp4();
    for (auto c : one_of(cases)) {
        const matrix w = fp4_matrix(c.type, c.n_in, c.n_out, 0);
        buffer<float> x(random(4).normals((size_t) (c.rows * c.n_in)));
        buffer<char> prepared(pi__k_fp4_packed_x_bytes(c.rows, c.n_in));
        const pi__k_input in = {PLAIN, x.get(), c.n_in, nullptr, 0, nullptr, 0, 0};
        const auto multiply = c.a == A8 ? pi__k_w4a8_linear : pi__k_fp4_linear;
        must_run(
            (c.a == A8 ? pi__k_w4a8_pack_x : pi__k_fp4_pack_x)(stream(), &in, c.type, c.rows, c.n_in, prepared.get()));
        check_added(w, c.rows,
                    [&](const pi__k_product &p) { must_run(multiply(stream(), &p, 1, prepared.get(), c.rows)); });
        const pi__k_product few = {w.m, x.get(), c.n_out, 1};
        expect_true(multiply(stream(), &few, 1, prepared.get(), 32) != 0);
    }
}

/* Two matrices times x: slices split over thread blocks in a given number of parts, or each tile in one block. Both are
 * bitwise identical. tile: rows of W and rows of x per tile. */
struct shared_case {
    int32_t type;
    activations a;
    int64_t n_in, n_out;
    int32_t rows;
    int64_t tile[2];
};

void check_shared(const shared_case &c, int parts, float add = 0.75f)
{
    const int64_t n = c.n_out + 20, columns = (c.rows + c.tile[1] - 1) / c.tile[1];
    const size_t tiles = (size_t) (((c.n_out + c.tile[0] - 1) / c.tile[0] + 1) * columns);
    matrix w0 = fp4_matrix(c.type, c.n_in, c.n_out, 0), w1 = fp4_matrix(c.type, c.n_in, 20, 1);
    buffer<float> x(random(7).normals((size_t) (c.rows * c.n_in))), factor(std::vector<float>{0.5f});
    buffer<char> prepared(pi__k_fp4_packed_x_bytes(c.rows, c.n_in));
    const pi__k_input in = {PLAIN, x.get(), c.n_in, nullptr, 0, nullptr, 0, 0};
    w1.m.scale = factor.get();
    about("%s, %d columns, %d rows, %d parts", pi__type_info_of(c.type)->name, (int) c.n_in, (int) c.rows, parts);
    must_run((c.a == A8 ? pi__k_w4a8_pack_x : pi__k_fp4_pack_x)(stream(), &in, c.type, c.rows, c.n_in, prepared.get()));
    shared_slices s(parts, tiles, (size_t) (c.tile[0] * c.tile[1]));
    buffer<float> y(std::vector<float>((size_t) (3 * c.rows * n), 3.0f));
    for (int32_t i = 0; i < 3; i++) {
        float *to = &y[(size_t) (i * c.rows * n)];
        const pi__k_product p[] = {{w0.m, to, n, add}, {w1.m, to + c.n_out, n, add}};
        const auto multiply = c.a == A8 ? pi__k_w4a8_linear_split : pi__k_fp4_linear_split;
        must_run(multiply(stream(), p, 2, prepared.get(), c.rows, i ? &s.split : nullptr));
        expect_bytes(y.get(), to, (size_t) (c.rows * n) * 4);
    }
    s.check();
}

void test_shared_slices()
{
    need_fp4();
    check_shared({PI__MXFP4, A8, 2144, 33, 33, {128, 64}}, 8, 0);
    if (slow()) return;
    check_shared({PI__NVFP4, A4, 7744, 40, 33, {128, 64}}, 2);
    check_shared({PI__NVFP4, A4, 4544, 20, 100, {64, 128}}, 8, 0);
    check_shared({PI__MXFP4, A4, 5408, 20, 100, {64, 128}}, 4);
    check_shared({PI__MXFP4, A8, 2464, 140, 70, {128, 64}}, 4);
    in_all_modes([&] { check_shared({PI__MXFP4, A8, 2080, 20, 40, {128, 64}}, 8); });
}

void test_modes()
{
    need_fp4();
    for (int32_t type : one_of({PI__NVFP4, PI__MXFP4})) {
        matrix w = fp4_matrix(type, 448, 140, 0);
        random r(1);
        buffer<float> x(r.normals(40 * 448));
        for (int32_t rows : sizes<int32_t>({3, 40})) {
            std::vector<float> first;
            in_all_modes([&] {
                std::vector<float> y = product(w, x.get(), rows);
                if (first.empty()) first = y;
                expect_bytes(first.data(), y.data(), y.size() * 4);
            });
        }
    }
}

/* Gate and up in one launch: the packed input of down is bitwise identical to that of separate products and rounding,
 * for any number of rows. below: up is stored below gate in one matrix. */
void check_glu(int32_t type, activations a, int64_t n_in, int64_t n, int32_t rows, bool below, bool modes = false)
{
    about("%s, %d rows, %d results", pi__type_info_of(type)->name, (int) rows, (int) n);
    const bool fp8 = a == A8;
    matrix w = fp4_matrix(type, n_in, 2 * n, 0), w2 = fp4_matrix(type, n_in, n, 1);
    random r(8);
    buffer<float> x(r.normals((size_t) (rows * n_in))), factors(std::vector<float>{0.5f, 3.0f});
    w.m.scale = factors.get(), w2.m.scale = factors.get() + 1;
    const uint8_t *second = w.m.data + (size_t) (n / 16) * w.m.shape.tile_bytes;
    const float *second_scale = below ? w.m.scale : w2.m.scale;
    const std::vector<float> y = product(w, x.get(), rows, a), y2 = below ? y : product(w2, x.get(), rows, a);
    buffer<float> gate(y), up(y2);
    const int32_t act = rows % 2 ? SWIGLU : GEGLU;
    const int64_t ldu = below ? 2 * n : n;
    const pi__k_input in = {PLAIN, x.get(), n_in, nullptr, 0, nullptr, 0, 0},
                      glu = {act, gate.get(), 2 * n, up.get() + (below ? n : 0), ldu, nullptr, 0, 0.7f};
    buffer<char> prepared(pi__k_fp4_packed_x_bytes(rows, n_in)), want(pi__k_fp4_packed_x_bytes(rows, n)),
        mid(want.size());
    buffer<uint32_t> arrived(std::vector<uint32_t>{0});
    pi__k_glu g = {w.m, below ? second : w2.m.data, second_scale, act, 0.7f, fp8, arrived.get(), mid.get(),
                   waits()};
    g.gate.n_out = n;
    want.fill(0);
    must_run((fp8 ? pi__k_w4a8_pack_x : pi__k_fp4_pack_x)(stream(), &in, type, rows, n_in, prepared.get()));
    must_run((fp8 ? pi__k_w4a8_pack_x : pi__k_fp4_pack_x)(stream(), &glu, type, rows, n, want.get()));
    const auto run = [&] {
        mid.fill(0);
        must_run(pi__k_fp4_glu(stream(), &g, prepared.get(), rows));
        expect_same_fp4(want, mid, rows, n, fp8);
        expect_equal(*arrived.get(), 0u);
    };
    if (modes) in_all_modes(run);
    else run();
}

void test_glu()
{
    need_fp4();
    check_glu(PI__NVFP4, A4, 320, 192, 3, false, true);
    check_glu(PI__MXFP4, A4, 352, 608, 9, true);
    check_glu(PI__MXFP4, A8, 96, 160, 17, false);
    if (slow()) return;
    check_glu(PI__NVFP4, A4, 192, 576, 70, true);
    check_glu(PI__MXFP4, A4, 96, 96, 40, false, true);
    check_glu(PI__MXFP4, A8, 96, 160, 65, true);
}

/* --------------------------------------------------------------------------------------------------------- experts */

void check_one(const matrix &w, const float *x, const std::vector<float> &y) { check(w, x, y, 1); }

int multiply_one(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y, int64_t ldy)
{
    const pi__k_product one = {*w, y, ldy, 0};
    return pi__k_fp4_linear(stream, &one, 1, prepared, n_rows);
}

void check_one_8(const matrix &w, const float *x, const std::vector<float> &y) { check(w, x, y, 1, A8); }
int multiply_one_8(void *stream, const pi__k_matrix *w, const void *prepared, int32_t n_rows, float *y, int64_t ldy)
{
    const pi__k_product one = {*w, y, ldy, 0};
    return pi__k_w4a8_linear(stream, &one, 1, prepared, n_rows);
}

const way in_fp8 = {fp4_matrix, [](int32_t, int32_t n, int64_t n_in) { return pi__k_fp4_packed_x_bytes(n, n_in); },
                           pi__k_w4a8_pack_x, multiply_one_8, pi__k_w4a8_experts, check_one_8};
const way in_fp4 = {fp4_matrix, [](int32_t, int32_t n, int64_t n_in) { return pi__k_fp4_packed_x_bytes(n, n_in); },
                           pi__k_fp4_pack_x, multiply_one, pi__k_fp4_experts, check_one};

void test_experts()
{
    need_fp4();
    const struct {
        int64_t n_in, n_out;
        int32_t rows;
    } shapes[] = {{64, 1, 1}, {320, 33, 23}, {704, 20, 9}, {192, 140, 90}};
    for (int32_t type : one_of({PI__NVFP4, PI__MXFP4})) {
        for (auto s : one_of(shapes)) {
            experts(in_fp4, type, type == PI__MXFP4 ? s.n_in + 32 : s.n_in, s.n_out, s.rows).test();
        }
        experts(in_fp4, type, type == PI__NVFP4 ? 448 : 352, 140, 60).test_modes();
    }
    experts(in_fp8, PI__MXFP4, 352, 33, 23).test();
}

/* The experts' gate and up in one launch: the packed input of down is bitwise identical to that of separate products
 * and rounding. */
void check_experts_glu(int32_t type, activations a, int64_t n_in, int64_t n, int32_t rows, bool modes)
{
    about("%s, %d rows, %d results", pi__type_info_of(type)->name, (int) rows, (int) n);
    const bool fp8 = a == A8;
    const auto prepare = fp8 ? pi__k_w4a8_pack_x : pi__k_fp4_pack_x;
    const auto multiply = fp8 ? pi__k_w4a8_experts : pi__k_fp4_experts;
    const int32_t columns = rows * concurrency::USED;
    concurrency c(rows);
    expert_stack w(fp8 ? in_fp8 : in_fp4, type, n_in, n, 1), w2(fp8 ? in_fp8 : in_fp4, type, n_in, n, 9);
    buffer<float> x(random(7).normals((size_t) (rows * n_in))), scale(std::vector<float>{0.5f, 1, 2, 0.7f});
    buffer<float> y((size_t) (columns * 2 * n));
    buffer<char> prepared(pi__k_fp4_packed_x_bytes(rows, n_in)), want(pi__k_fp4_packed_x_bytes(columns, n)),
        mid(want.size());
    buffer<uint32_t> arrived(std::vector<uint32_t>{0});
    const pi__k_input in = {PLAIN, x.get(), n_in, nullptr, 0, nullptr, 0, 0},
                      glu = {SWIGLU, y.get(), 2 * n, y.get() + n, 2 * n, nullptr, 0, 0.7f};
    pi__k_experts e = {};
    e.w = w.one[0].m, e.w.data = w.memory.get(), e.w.scale = scale.get();
    e.data2 = w2.memory.get(), e.row = c.row.get(), e.n_sm = 3;
    e.y = y.get(), e.y2 = y.get() + n, e.ldy = 2 * n;
    want.fill(0);
    must_run(prepare(stream(), &in, type, rows, n_in, prepared.get()));
    must_run(multiply(stream(), &c.a, &e, prepared.get()));
    must_run(prepare(stream(), &glu, type, columns, n, want.get()));
    e.mid = mid.get(), e.mid_type = type, e.act = SWIGLU, e.limit = 0.7f, e.arrived = arrived.get(), e.waits = waits();
    const auto run = [&] {
        mid.fill(0);
        must_run(multiply(stream(), &c.a, &e, prepared.get()));
        expect_same_fp4(want, mid, columns, n, fp8);
        expect_equal(*arrived.get(), 0u);
    };
    if (modes) in_all_modes(run);
    else run();
    e.arrived = nullptr; /* the scales are computed in a separate launch */
    mid.fill(0);
    must_run(multiply(stream(), &c.a, &e, prepared.get()));
    expect_same_fp4(want, mid, columns, n, fp8);
}

void test_experts_glu()
{
    need_fp4();
    check_experts_glu(PI__NVFP4, A4, 64, 192, slow() ? 3 : 90, true);
    if (slow()) return;
    check_experts_glu(PI__MXFP4, A4, 96, 96, 30, false);
    check_experts_glu(PI__MXFP4, A8, 96, 160, 30, false);
}

/* NVFP4 scales in files: 0x7f means 0; otherwise bit 7 is ignored. 0xff means 480, which becomes 448. */
void test_odd_scales()
{
    need_fp4();
    std::vector<uint8_t> bytes(3 * 36, 0x22); /* codes 2: 1.0 */
    for (size_t i = 0; i < 4; i++) bytes[i] = 0x7f, bytes[36 + i] = 0xb8, bytes[72 + i] = 0xff;
    matrix w = pack_matrix(PI__NVFP4, 64, 3, bytes);
    buffer<float> x(std::vector<float>(64, 6.0f));
    std::vector<float> y = product(w, x.get(), 1),
                       exact = multiply(w, {PLAIN, x.get(), 64, nullptr, 0, nullptr, 0, 0}, 1);
    const float want[] = {0, 6 * 64, 6 * 64 * 448}, as_read[] = {0, 6 * 64, 6 * 64 * 480};
    for (size_t i = 0; i < 3; i++) {
        expect_true(std::fabs(y[i] - want[i]) <= 1e-5f * want[i]);
        expect_true(std::fabs(exact[i] - as_read[i]) <= 1e-4f * as_read[i]);
    }
}

/* Packed x does not depend on the sign of a NaN, which differs between compilers and devices. */
void test_signs_of_not_numbers()
{
    for (activations a : {A4, A8})
        for (int32_t type : {PI__NVFP4, PI__MXFP4}) {
            if (a == A8 && type != PI__MXFP4) continue;
            const size_t size = pi__k_fp4_packed_x_bytes(1, 64);
            buffer<char> first(size), second(size);
            std::vector<float> v = random(3).normals(64);
            v[5] = NAN, v[40] = INFINITY;
            for (buffer<char> *to : {&first, &second}) {
                buffer<float> x(v);
                const pi__k_input in = {PLAIN, x.get(), 64, nullptr, 0, nullptr, 0, 0};
                must_run((a == A8 ? pi__k_w4a8_pack_x : pi__k_fp4_pack_x)(stream(), &in, type, 1, 64, to->get()));
                v[5] = -v[5];
            }
            expect_same_fp4(first, second, 1, 64, a == A8);
        }
}

/* NaN and infinity stay within their row. On an architecture without FP4 instructions, the output is not written. */
void test_not_numbers()
{
    need_fp4();
    for (int32_t type : one_of({PI__NVFP4, PI__MXFP4})) {
        matrix w = fp4_matrix(type, 64, 16, 0);
        random r(3);
        std::vector<float> v = r.normals(3 * 64);
        v[5] = NAN;
        v[64 + 40] = INFINITY;
        buffer<float> x(v);
        std::vector<float> y = product(w, x.get(), 3);
        for (size_t i = 0; i < 16; i++)
            expect_true(!std::isfinite(y[i]) && !std::isfinite(y[16 + i]) && std::isfinite(y[32 + i]));
        if (!now->emu || !now->emu->arch) continue;
        now->emu->arch(90);
        y = product(w, x.get() + 128, 1);
        now->emu->arch(0);
        for (float f : y) expect_true(f != f);
    }
}

const entry checks[] = {
    {"values", test_values},         {"shapes", test_shapes},
    {"added", test_added},           {"shared_slices", test_shared_slices},
    {"modes", test_modes},           {"glu", test_glu},
    {"experts", test_experts},       {"experts_glu", test_experts_glu},
    {"odd_scales", test_odd_scales}, {"not_numbers", test_not_numbers},
    {"signs_of_not_numbers", test_signs_of_not_numbers},
};

} // namespace

const family checks_of_fp4 = {"fp4", "matmuls in FP4", checks, sizeof checks / sizeof *checks};

} // namespace selftest
