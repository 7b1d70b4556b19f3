/* Checks rows kernels and qkv kernels against double precision, with odd shapes, in every order of threads and
 * copies. */
#include "selftest/cache_ref.h"
#include "selftest/checks.h"
#include "selftest/tail_ref.h"

namespace selftest {
namespace {

void check_near(double got, double want, double tolerance, const char *what, size_t i)
{
    if (!(std::fabs(got - want) <= tolerance * (1 + std::fabs(want))))
        fail_check("%s %zu: %g, expected %g", what, i, got, want);
}

void test_add_norm()
{
    random r(1);
    for (int64_t n : sizes<int64_t>({1, 31, 64, 257, 640, 1025})) {
        for (int with_w = 0; with_w < 2; with_w++) {
            const int32_t rows = 3;
            std::vector<float> x0 = r.normals((size_t) (rows * n)), y0 = r.normals((size_t) (rows * n)),
                               w0 = r.normals((size_t) n);
            buffer<float> y(y0), w(w0);
            std::vector<float> first;
            in_all_modes([&] {
                buffer<float> x(x0);
                must_run(pi__k_add_norm(stream(), arguments(pi__add_norm {x.get(), y.get(), with_w ? w.get() : nullptr,
                                                                          nullptr, 1e-6f, 0.5f, rows, n})));
                for (int64_t i = 0; i < rows * n; i++) {
                    double s = 0;
                    for (int64_t j = 0; j < n; j++)
                        s += (double) y0[(size_t) (i / n * n + j)] * y0[(size_t) (i / n * n + j)];
                    double add = with_w ? y0[(size_t) i] / std::sqrt(s / (double) n + 1e-6) * w0[(size_t) (i % n)]
                                        : y0[(size_t) i];
                    check_near(x[(size_t) i], (x0[(size_t) i] + add) * 0.5, 1e-6, "add_norm", (size_t) i);
                }
                if (with_w) {
                    buffer<float> out((size_t) (rows * (n + 2)));
                    must_run(pi__k_norm(stream(), arguments(pi__norm{out.get(), n + 2, y.get(), w.get(),
                                                                               1e-6f, rows, n})));
                    /* must equal the addend of add_norm, which x already includes */
                    for (int64_t i = 0; i < rows * n; i++) {
                        double want = x[(size_t) i] * 2 - x0[(size_t) i];
                        check_near(out[(size_t) (i / n * (n + 2) + i % n)], want, 2e-6, "norm", (size_t) i);
                    }
                }
                std::vector<float> now(x.get(), x.get() + x.size());
                if (first.empty()) first = now;
                expect_bytes(first.data(), now.data(), first.size() * 4);
            });
        }
    }
}

void test_rope()
{
    for (int32_t n_freq : {1, 16, 129, 256}) {
        std::vector<float> f((size_t) n_freq);
        for (int32_t i = 0; i < n_freq; i++) f[(size_t) i] = powf(10000.0f, -(float) i / (float) n_freq);
        buffer<int32_t> pos(std::vector<int32_t>{0, 1, 77, 40000});
        buffer<float> freq(f), table((size_t) (8 * n_freq));
        const int32_t temp_len = n_freq % 2 ? 70 : 0;
        pi__rope a = {};
        a.freq = freq.get(), a.n_freq = n_freq, a.mscale = 1.5f, a.temp = 0.1f, a.temp_len = temp_len;
        a.table = table.get();
        in_all_modes([&] {
            must_run(pi__k_rope(stream(), pos.get(), nullptr, 4, &a));
            for (size_t t = 0; t < 4; t++) {
                const double scale = 1.5 * (temp_len ? 1 + 0.1 * std::log(1.0 + pos[t] / temp_len) : 1);
                for (size_t i = 0; i < (size_t) n_freq; i++) {
                    double angle = (float) pos[t] * f[i];
                    check_near(table[t * 2 * (size_t) n_freq + i], scale * std::cos(angle), 1e-6, "cosine", i);
                    check_near(table[t * 2 * (size_t) n_freq + (size_t) n_freq + i], scale * std::sin(angle), 1e-6,
                               "sine", i);
                }
            }
        });
    }
}

/* M-RoPE: each pair uses the time, the row or the column of the token. */
void test_rope_parts()
{
    buffer<int32_t> pos(std::vector<int32_t>{9, 9}), parts(std::vector<int32_t>{3, 3, 3, 5, 6, 11});
    buffer<float> freq(std::vector<float>(16, 0.01f)), table(64);
    for (const bool interleaved : {false, true}) {
        pi__rope a = {};
        a.freq = freq.get(), a.n_freq = 16, a.mscale = 1, a.table = table.get(), a.interleaved = interleaved;
        a.section[0] = 6, a.section[1] = 5, a.section[2] = 4;
        in_all_modes([&] {
            table.fill(0xff);
            must_run(pi__k_rope(stream(), pos.get(), parts.get(), 2, &a));
            for (int32_t t = 0; t < 2; t++) {
                for (int32_t i = 0; i < 16; i++) {
                    const int32_t apart = i < 6 || i == 15 ? 0 : i < 11 ? 1 : 2, mixed = i < 15 ? i % 3 : 0;
                    const int32_t part = interleaved ? (i == 14 ? 0 : mixed) : apart;
                    const double angle = 0.01f * (double) parts[(size_t) (3 * t + part)];
                    check_near(table[(size_t) (32 * t + i)], std::cos(angle), 1e-6, "cosine", (size_t) i);
                    check_near(table[(size_t) (32 * t + 16 + i)], std::sin(angle), 1e-6, "sine", (size_t) i);
                }
            }
        });
    }
}

void test_place_rows()
{
    random r(3);
    for (int64_t n : {1, 63, 640, 1031}) {
        buffer<float> x(r.normals((size_t) (3 * n))), rows(r.normals((size_t) (4 * (n + 5)))), out((size_t) (3 * n));
        buffer<int32_t> row(std::vector<int32_t>{2, -1, 0});
        for (const bool add : {false, true}) {
            in_all_modes([&] {
                for (size_t i = 0; i < (size_t) (3 * n); i++) out[i] = x[i];
                must_run(pi__k_place_rows(
                    stream(), arguments(pi__place_rows {out.get(), rows.get(), n + 5, nullptr, 3, n, add}), row.get()));
                for (size_t i = 0; i < (size_t) (3 * n); i++) {
                    const int32_t from = row[i / (size_t) n];
                    const float v = from < 0 ? 0 : rows[(size_t) from * (size_t) (n + 5) + i % (size_t) n];
                    expect_true(out[i] == (from < 0 ? x[i] : add ? x[i] + v : v));
                }
            });
        }
    }
}

void test_gather_softcap()
{
    random r(2);
    for (int64_t n : sizes<int64_t>({1, 63, 640, 1031})) {
        buffer<float> x(r.normals((size_t) (5 * n))), out((size_t) (4 * n));
        buffer<int32_t> row(std::vector<int32_t>{1, 4, 4, -1});
        in_all_modes([&] {
            out.fill(0xff);
            must_run(pi__k_gather_rows(stream(), x.get(), row.get(), 4, n, out.get()));
            for (size_t i = 0; i < 3; i++)
                expect_bytes(&out[i * (size_t) n], &x[(size_t) (row[i] * n)], (size_t) n * 4);
            for (size_t i = 0; i < (size_t) n; i++) expect_true(out[(size_t) (3 * n) + i] == 0);
            for (size_t i = 0; i < (size_t) n; i++) out[(size_t) (3 * n) + i] = 1;
            must_run(pi__k_add_rows(stream(), arguments(pi__add_rows {out.get() + 3 * n, x.get(), nullptr, 1, n}),
                                    row.get() + 1));
            for (size_t i = 0; i < (size_t) n; i++)
                expect_true(out[(size_t) (3 * n) + i] == 1 + x[(size_t) (4 * n) + i]);
            must_run(pi__k_softcap(stream(), arguments(pi__softcap{out.get(), 0.7f, 3, n})));
            for (size_t i = 0; i < (size_t) (3 * n); i++) {
                double v = x[(size_t) row[i / (size_t) n] * (size_t) n + i % (size_t) n];
                check_near(out[i], 0.7 * std::tanh(v / 0.7), 1e-6, "softcap", i);
            }
        });
    }
}

void test_add_gated()
{
    random r(4);
    for (int64_t n : sizes<int64_t>({1, 63, 640, 1031})) {
        std::vector<float> y0 = r.normals((size_t) (3 * n)), gate0 = {0, 9, 1.5f, 9, -200, 9};
        buffer<float> x(r.normals((size_t) (3 * n))), gate(gate0);
        in_all_modes([&] {
            buffer<float> y(y0);
            must_run(pi__k_add_gated(stream(), arguments(pi__add_gated{y.get(), x.get(), gate.get(), 2, 3, n})));
            for (size_t i = 0; i < y0.size(); i++) {
                double g = 1 / (1 + std::exp(-(double) gate0[i / (size_t) n * 2]));
                check_near(y[i], y0[i] + g * x[i], 1e-6, "add_gated", i);
            }
        });
    }
}

void test_gate_heads()
{
    random r(9);
    for (int64_t n : sizes<int64_t>({1, 16, 128})) {
        std::vector<float> x0 = r.normals((size_t) (3 * 5 * n)), gate0 = r.normals(3 * 7);
        gate0[1] = 90, gate0[2] = -200;
        buffer<float> gate(gate0);
        for (const bool softplus : {false, true}) {
            in_all_modes([&] {
                buffer<float> x(x0);
                must_run(pi__k_gate_heads(
                    stream(), arguments(pi__gate_heads {x.get(), gate.get(), 7, 3, 5, n, softplus})));
                for (size_t i = 0; i < x0.size(); i++) {
                    const double t = gate0[i / (size_t) (5 * n) * 7 + i / (size_t) n % 5];
                    const double f = softplus ? std::log1p(std::exp(t)) : 1 / (1 + std::exp(-t));
                    check_near(x[i], f * x0[i], 1e-6 * std::max(1.0, f), "gate_heads", i);
                }
            });
        }
    }
}

/* Returns the activation of t, by definition. */
double activation_of(const pi__activate &a, double t)
{
    switch (a.kind) {
    case PI__ACT_GELU: return t / 2 * (1 + std::erf(t / std::sqrt(2.0)));
    case PI__ACT_GELU_TANH: return t / (1 + std::exp(-1.5957691216057308 * (t + 0.044715 * t * t * t)));
    case PI__ACT_GELU_QUICK: return t / (1 + std::exp(-1.702 * t));
    case PI__ACT_RELU2: return t > 0 ? t * t : 0;
    case PI__ACT_NONE: return t;
    case PI__ACT_RELU: return t > 0 ? t : 0;
    default:
        if (t > 0) return a.p[0] * t * t + a.p[2] * t;
        return a.p[1] * (std::expm1(std::fmin(t, a.p[3])) - t) + a.p[2] * t;
    }
}

void test_activate()
{
    random r(16);
    for (int64_t n : {1, 63, 1031})
        for (int32_t kind = 0; kind < PI__N_ACTS; kind++) {
            const std::vector<float> x0 = r.normals(3 * (size_t) n);
            buffer<float> b(r.normals((size_t) n));
            in_all_modes([&] {
                buffer<float> x(x0);
                const pi__activate a = {x.get(), kind % 2 ? b.get() : nullptr, 3, n, kind, {0.7f, 1.3f, 0.5f, -1e-6f}};
                must_run(pi__k_activate(stream(), arguments(a)));
                for (size_t i = 0; i < x0.size(); i++)
                    check_near(x[i], activation_of(a, (double) x0[i] + (a.b ? b[i % (size_t) n] : 0.0f)), 2e-6,
                               "activate", i);
            });
        }
}

void test_scale()
{
    random r(9);
    for (int64_t n : {1, 63, 1031})
        for (int part = 0; part < 4; part++) { /* with y, with w, with both */
            const std::vector<float> x0 = r.normals(3 * (size_t) n);
            buffer<float> y(r.normals(3 * (size_t) n)), w(r.normals((size_t) n));
            const float far = std::numeric_limits<float>::infinity(), lo = part < 2 ? -far : -0.5f,
                        hi = part ? 0.75f : far;
            in_all_modes([&] {
                buffer<float> x(x0);
                const float *yp = part & 1 ? y.get() : nullptr, *wp = part & 2 ? w.get() : nullptr;
                must_run(pi__k_scale(stream(), arguments(pi__scale {x.get(), yp, wp, 1.5f, lo, hi, 3, n})));
                for (size_t i = 0; i < 3 * (size_t) n; i++) {
                    const double v = 1.5 * (double) x0[i] * (part & 1 ? (double) y[i] : 1) *
                                     (part & 2 ? (double) w[i % (size_t) n] : 1);
                    check_near(x[i], std::min((double) hi, std::max((double) lo, v)), 2e-6, "scale", i);
                }
            });
        }
}

void test_layer_norm()
{
    random r(6);
    for (int64_t n : sizes<int64_t>({1, 63, 640, 1031}))
        for (int part = 0; part < 3; part++) { /* 0: y and its bias; 1: y only; 2: neither */
            const size_t width = (size_t) n;
            const std::vector<float> x0 = r.normals(3 * width);
            buffer<float> y(r.normals(3 * width)), b(r.normals(width)), w(r.normals(width)), shift(r.normals(width));
            float *const yp = part < 2 ? y.get() : nullptr, *const bp = part < 1 ? b.get() : nullptr;
            float *const sp = part < 2 ? shift.get() : nullptr;
            in_all_modes([&] {
                buffer<float> x(x0);
                must_run(pi__k_layer_norm(
                    stream(), arguments(pi__layer_norm {x.get(), yp, bp, w.get(), sp, 1e-5f, 3, n})));
                for (size_t row = 0; row < 3; row++) {
                    std::vector<double> v(width);
                    double mean = 0, square = 0;
                    for (size_t i = 0; i < width; i++) {
                        const size_t at = row * width + i;
                        v[i] = (double) x0[at] + (yp ? y[at] : 0.0f) + (bp ? b[i] : 0.0f);
                        mean += v[i] / (double) width;
                    }
                    for (double d : v) square += (d - mean) * (d - mean) / (double) width;
                    for (size_t i = 0; i < width; i++)
                        check_near(x[row * width + i],
                                   (v[i] - mean) / std::sqrt(square + 1e-5) * w[i] + (sp ? shift[i] : 0.0f), 2e-5,
                                   "layer_norm", i);
                }
            });
        }
}

/* Two sequences, of 1 and 4 tokens, and convolutions with fewer and with more taps than tokens. */
void test_block_conv()
{
    random r(5);
    const std::vector<int32_t> seq0 = {0, 1, 1, 1, 1}, start0 = {0, 1, 5};
    for (int32_t n_tap : {1, 3, 6})
        for (int32_t group : {1, 4, 31}) {
            const int32_t n = 31 * 4 * group / (group == 31 ? 4 : 1), n_groups = n / group, ldo = n_tap * n_groups + 1;
            buffer<float> x(r.normals((size_t) (5 * n))), base(r.normals((size_t) (n_tap * n))),
                own(r.normals((size_t) (5 * ldo)));
            buffer<int32_t> seq(seq0), start(start0);
            in_all_modes([&] {
                buffer<float> out((size_t) (5 * n));
                must_run(pi__k_block_conv(
                    stream(),
                    arguments(pi__block_conv {x.get(), base.get(), own.get(), ldo, n_tap, group, n, out.get()}),
                    seq.get(), start.get(), 5));
                for (int32_t i = 0; i < 5 * n; i++) {
                    const int32_t t = i / n, c = i % n, slot = t ? t - 1 : 0;
                    double sum = 0;
                    for (int32_t tap = 0; tap < n_tap && tap <= slot; tap++)
                        sum += ((double) base[(size_t) (tap * n + c)] +
                                own[(size_t) (t * ldo + tap * n_groups + c / group)]) *
                               x[(size_t) ((t - tap) * n + c)];
                    check_near(out[(size_t) i], sum, 2e-6, "block_conv", (size_t) i);
                }
            });
        }
}

/* ------------------------------------------------------------------------------------------------------------- qkv */

struct qkv_case {
    int32_t type_k, type_v, n_head, n_head_kv, dim, n_rot, block_size;
    bool norms, v_norm, biases, norm_last;
};

/* Returns the reference for a row x of q or k after its preparation: bias, norm, rotation. */
std::vector<double> prepared(const float *x, const float *bias, const float *w, bool norm, const float *rope,
                                    const qkv_case &c)
{
    const int32_t n = c.dim;
    std::vector<double> y(x, x + n);
    for (int32_t i = 0; i < n && c.biases; i++) y[(size_t) i] = x[i] + bias[i];
    double s = 0;
    for (double v : y) s += v * v;
    for (int32_t i = 0; i < n && norm && !c.norm_last; i++)
        y[(size_t) i] *= (w ? w[i] : 1.0f) / std::sqrt(s / n + 1e-6);
    size_t half = (size_t) c.n_rot / 2, stride = c.n_rot == n ? half : (size_t) n / 2;
    for (size_t i = 0; i < half && rope; i++) {
        double a = y[i], b = y[i + stride];
        y[i] = a * rope[i] - b * rope[half + i];
        y[i + stride] = a * rope[half + i] + b * rope[i];
    }
    s = 0;
    for (double v : y) s += v * v;
    for (int32_t i = 0; i < n && norm && c.norm_last; i++)
        y[(size_t) i] *= (w ? w[i] : 1.0f) / std::sqrt(s / n + 1e-6);
    return y;
}

/* Checks that a row read from the cache differs from `want` by no more than the format's rounding. */
void check_stored(int32_t type, const std::vector<float> &got, const std::vector<double> &want)
{
    for (size_t i = 0; i < want.size(); i++) {
        double most = 0, step, low = want[i], top = want[i];
        for (size_t j = i / 32 * 32; j < i / 32 * 32 + 32; j++) {
            most = std::fmax(most, std::fabs(want[j]));
            low = std::fmin(low, want[j]), top = std::fmax(top, want[j]);
        }
        switch (type) {
        case PI__F16: step = std::fabs(want[i]) * 0x1p-11; break;
        case PI__BF16: step = std::fabs(want[i]) * 0x1p-8; break;
        case PI__Q8_0: step = most / 127 * 0.51; break;
        /* plus the rounding of the minimum to F16 */
        case PI__Q5_1: step = (top - low) / 31 * 0.51 + most * 0x1p-10; break;
        case PI__Q4_1: step = (top - low) / 15 * 0.51 + most * 0x1p-10; break;
        case PI__Q5_0: step = most / 16 * 1.01; break;
        case PI__TQ4_0: case PI__TQ3_0: step = rotated_step(type, &want[i / 32 * 32]); break;
        /* codes end at 113 of 127: values beyond have an error of up to 14; between codes it is at most 12 */
        case PI__IQ4_NL: step = most / 127 * 14.5; break;
        /* codes end at +7: values near the positive end lose up to one step */
        case PI__Q4_0: step = most / 8 * 1.01; break;
        default: step = 0; break;
        }
        if (!within(std::fabs(got[i] - want[i]), step + 2e-6 * (1 + most))) {
            fail_check("type %d value %zu: %g, expected %g", type, i, (double) got[i], want[i]);
        }
    }
}

void turn_doubles(std::vector<double> &x)
{
    std::vector<float> f(x.begin(), x.end());
    turn_ref(f.data(), (int32_t) f.size(), false);
    x.assign(f.begin(), f.end());
}

/* Runs qkv as a separate launch, or (tail) as the epilogue of a product. */
void run_qkv(const qkv_case &c, bool tail)
{
    const int32_t T = 5, Q = c.n_head * c.dim, KV = c.n_head_kv * c.dim, ld = Q + 2 * KV + 4;
    random r((uint64_t) (c.dim + c.type_k));
    std::vector<float> x0 = r.normals((size_t) (T * ld)), table((size_t) (T * c.n_rot));
    for (size_t t = 0; t < (size_t) T; t++) {
        for (size_t i = 0; i < (size_t) c.n_rot / 2; i++) {
            table[t * (size_t) c.n_rot + i] = (float) std::cos((double) (t * i));
            table[t * (size_t) c.n_rot + (size_t) c.n_rot / 2 + i] = (float) std::sin((double) (t * i));
        }
    }
    buffer<float> qn(r.normals((size_t) c.dim)), kn(r.normals((size_t) c.dim)), rope(table);
    buffer<float> bias(r.normals((size_t) (Q + 2 * KV)));
    buffer<int32_t> slot(std::vector<int32_t>{2 * c.block_size + 3, 2 * c.block_size + 4, -1, 0, 5});
    in_all_modes([&] {
        buffer<float> x(x0);
        paged cache(c.type_k, c.type_v, c.n_head_kv, c.dim, c.block_size, 3);
        pi__k_qkv a = {};
        a.q = x.get();
        a.k = x.get() + Q;
        a.v = x.get() + Q + KV;
        a.ldq = a.ldk = a.ldv = ld;
        a.q_stride = c.dim;
        a.n_head = c.n_head;
        a.n_tokens = T;
        a.q_bias = c.biases ? bias.get() : nullptr;
        a.k_bias = c.biases ? bias.get() + Q : nullptr;
        a.v_bias = c.biases ? bias.get() + Q + KV : nullptr;
        a.q_norm = c.norms ? qn.get() : nullptr;
        a.k_norm = c.norms ? kn.get() : nullptr;
        a.v_norm = c.v_norm;
        a.norm_last = c.norm_last;
        a.eps = 1e-6f;
        a.rope = a.q_rope = c.n_rot ? rope.get() : nullptr;
        a.n_rot = c.n_rot;
        a.pair_stride = c.n_rot == c.dim ? c.n_rot / 2 : c.dim / 2;
        a.q_scale = 0.25f;
        a.slot = slot.get();
        a.cache = cache.c;
        if (tail) run_heads_as_tail(a);
        else must_run(pi__k_qkv_run(stream(), &a));
        for (size_t t = 0; t < (size_t) T; t++) {
            const float *row = &x0[t * (size_t) ld], *rp = c.n_rot ? &table[t * (size_t) c.n_rot] : nullptr;
            for (int32_t h = 0; h < c.n_head; h++) {
                auto want = prepared(row + h * c.dim, bias.get() + h * c.dim, qn.get(), c.norms, rp, c);
                if (pi__kv_rotated(c.type_k)) turn_doubles(want);
                for (size_t i = 0; i < want.size(); i++) {
                    check_near(x[t * (size_t) ld + (size_t) (h * c.dim) + i], want[i] * 0.25, 3e-6, "q", i);
                }
            }
            if (slot[t] < 0) continue;
            for (int32_t h = 0; h < c.n_head_kv; h++) {
                check_stored(c.type_k, cache.read(false, slot[t], h),
                             prepared(row + Q + h * c.dim, bias.get() + Q + h * c.dim, kn.get(), c.norms, rp, c));
                check_stored(
                    c.type_v, cache.read(true, slot[t], h),
                    prepared(row + Q + KV + h * c.dim, bias.get() + Q + KV + h * c.dim, nullptr, c.v_norm, nullptr, c));
            }
        }
        expect_bytes(&x[(size_t) Q], &x0[(size_t) Q], (size_t) (2 * KV) * 4); /* k and v in x are unchanged */
        for (size_t b = 1; b < 2; b++) { /* no token is stored in block 1 */
            for (size_t i = 0; i < cache.c.stride; i++)
                expect_equal((uint8_t) cache.memory[b * cache.c.stride + i], 0xff);
        }
    });
}

void test_qkv()
{
    const qkv_case cases[] = {{PI__F32, PI__F32, 2, 1, 32, 32, 16, true, false, true, false},
                              {PI__F16, PI__F16, 4, 1, 64, 64, 32, true, false, false, false},
                              {PI__BF16, PI__F16, 3, 3, 96, 32, 16, false, false, true, false},
                              {PI__Q8_0, PI__Q4_0, 8, 2, 128, 128, 64, true, true, false, false},
                              {PI__Q4_0, PI__Q8_0, 2, 2, 256, 64, 16, true, true, true, false},
                              {PI__F16, PI__BF16, 1, 1, 512, 0, 16, false, true, false, false},
                              {PI__Q5_0, PI__Q4_1, 2, 1, 64, 32, 16, true, false, true, false},
                              {PI__Q4_1, PI__Q5_1, 2, 1, 96, 0, 32, true, true, false, false},
                              {PI__Q5_1, PI__IQ4_NL, 2, 1, 64, 64, 16, false, false, true, false},
                              {PI__IQ4_NL, PI__Q5_0, 1, 1, 128, 0, 64, true, true, false, false},
                              {PI__TQ4_0, PI__TQ3_0, 3, 1, 96, 32, 16, true, false, true, false},
                              {PI__TQ3_0, PI__TQ4_0, 2, 2, 64, 64, 32, true, true, false, false},
                              {PI__F16, PI__F16, 4, 2, 64, 64, 16, true, false, true, true},
                              {PI__F32, PI__F32, 2, 1, 96, 32, 16, true, true, false, true}};
    for (const qkv_case &c : one_of(cases)) run_qkv(c, false), run_qkv(c, true);
}

/* Values that exceed the range of a quantized cache. */
void test_qkv_limits()
{
    for (int32_t type : one_of({PI__Q8_0, PI__Q5_1, PI__Q5_0, PI__Q4_1, PI__Q4_0, PI__IQ4_NL})) {
        std::vector<float> x0(96, 1.0f);
        x0[32] = NAN;
        x0[33] = INFINITY;
        x0[64] = -1e30f;
        buffer<float> x(x0);
        buffer<int32_t> slot(std::vector<int32_t>{0});
        paged cache(type, type, 1, 32, 16, 1);
        pi__k_qkv a = {};
        a.q = x.get();
        a.k = x.get() + 32;
        a.v = x.get() + 64;
        a.q_stride = 32;
        a.n_head = a.n_tokens = 1;
        a.q_scale = 1;
        a.slot = slot.get();
        a.cache = cache.c;
        must_run(pi__k_qkv_run(stream(), &a));
        std::vector<float> k = cache.read(false, 0, 0), v = cache.read(true, 0, 0);
        for (float f : k) expect_true(std::isfinite(f));
        for (float f : v) expect_true(std::isfinite(f));
        const float zero = type == PI__IQ4_NL ? 65504.0f / 127 : 0; /* IQ4_NL has no code for zero */
        expect_true(std::fabs(k[0]) <= zero * 1.01f && k[1] > 57000 && v[0] < -65000);
    }
}

const entry checks[] = {
    {"add_norm", test_add_norm}, {"rope", test_rope}, {"rope_parts", test_rope_parts}, {"place_rows", test_place_rows},
    {"gather_softcap", test_gather_softcap}, {"add_gated", test_add_gated}, {"gate_heads", test_gate_heads},
    {"scale", test_scale},
    {"layer_norm", test_layer_norm}, {"activate", test_activate},
    {"block_conv", test_block_conv}, {"qkv", test_qkv}, {"qkv_limits", test_qkv_limits},
};

} // namespace

const family checks_of_rows = {"rows", "norms, rotations, the cache", checks, sizeof checks / sizeof *checks};

} // namespace selftest
