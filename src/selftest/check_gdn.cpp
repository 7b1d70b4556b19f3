/* Checks gdn kernels, and those of Mamba-2 and Kimi delta attention, against the plain recurrence in double precision.
 * Checks that they are batch-invariant: bitwise identical in every chunking and batch composition, with drafts accepted
 * or rejected. Slots and snapshots are initially NaN; the gaps between them must stay unwritten. */
#include "selftest/check.h"

#include <algorithm>

#include "backend/device.h"
#include "backend/cuda/kernels.h"
#include "selftest/checks.h"
#include "selftest/state_ref.h"
#include "selftest/tail_ref.h"

extern "C" {
#include "formats/formats.h"
}

namespace selftest {
namespace {

const int32_t SLOTS = 7, SNAPS = 12, GAP = 64 /* floats */;

/* Kernel variant: each matmul operand is a sum of two F16 terms (exact), or one F16 term. Most checks run with both.
 * Thread-local, since the stress test runs two checks at the same time. */
thread_local bool exact = true;
template <void (*TEST)()> void both()
{
    struct restore {
        ~restore() { exact = true; } /* also after a failure */
    } end;
    for (bool form : {true, false}) {
        exact = form;
        TEST();
    }
}

/* Values per value head for checks of Mamba-2; 0 = delta nets. Thread-local as above. */
thread_local int32_t ssd_values = 0;
template <void (*TEST)(), int32_t VALUES> void mamba2()
{
    struct scope {
        scope() { ssd_values = VALUES; }
        ~scope() { ssd_values = 0; }
    } here;
    TEST();
}

/* Checks of Kimi delta attention. Thread-local as above. */
thread_local bool kda_checks = false;
template <void (*TEST)()> void kda()
{
    struct scope {
        scope() { kda_checks = true; }
        ~scope() { kda_checks = false; }
    } here;
    TEST();
}

struct shape {
    int32_t n_k, n_v, dim, n_draft, n_conv = 4;
    /* factor of alpha and beta; with 12, gates are close to 0 or 1: they forget or write everything or nothing */
    float gates = 1;
    int32_t dim_v = ssd_values; /* 0 = a delta net */
    bool kda = kda_checks; /* then n_k is also the number of value heads */

    int32_t values() const { return kda ? n_k : n_v; } /* value heads */
    /* log decays per token; log decays and update rates */
    size_t alphas() const { return (size_t) (values() * (kda ? dim : 1)); }
    size_t ab() const { return alphas() + (size_t) values(); }
    float min_decay() const { return kda && dim == 64 ? -4.0f : 0.0f; }
};

/* A sequence: its length, computed tokens, slot, inputs and output. */
struct sequence {
    int len, done, slot;
    std::vector<float> qkv, z, ab, out; /* [len] rows */
};

/* A sequence's part of a step: its next n tokens, then `right` correct drafts, then `wrong` wrong drafts. */
struct turn {
    int n = 0, right = 0, wrong = 0;
    std::vector<std::pair<int32_t, int32_t>> saves; /* (position, snapshot) pairs */
};

class fixture {
public:
    shape c;
    std::vector<sequence> seq;
    size_t channels, values;
    bool grouped = false; /* in `out`, the value heads of a key head are adjacent */
    bool padded = false;  /* steps end with a padding token */
    int32_t n_sm = 0;
    float eps = 1e-6f;

    fixture(const shape &s, const std::vector<int> &lens)
        : c(with_heads(s)), channels((size_t) (2 * c.n_k * c.dim + c.n_v * width())),
          values((size_t) (c.n_v * width())), r_((uint64_t) s.dim),
          state_ {nullptr, 0, nullptr, 0, c.n_k, c.n_v, s.dim, s.n_draft, s.n_conv, exact, s.kda ? s.dim : s.dim_v,
                 s.dim_v > 0, s.kda},
          slot_floats_(pi__k_state_bytes(&state_) / 4 + GAP), snap_floats_(pi__k_snapshot_bytes(&state_) / 4 + GAP),
          slots_(slot_floats_ * SLOTS), snaps_(snap_floats_ * SNAPS), conv_(r_.normals(channels * (size_t) s.n_conv)),
          dt_(c.alphas()), a_((size_t) c.n_v), norm_(s.dim_v ? values : (size_t) s.dim),
          bias_(r_.normals(s.dim_v ? channels : 0)), skip_(r_.normals(s.dim_v ? (size_t) s.n_v : 0))
    {
        if (s.dim_v) grouped = true;
        state_.base = (char *) slots_.get(), state_.stride = slot_floats_ * 4;
        state_.snap = (char *) snaps_.get(), state_.snap_stride = snap_floats_ * 4;
        for (size_t i = 0; i < a_.size(); i++) dt_[i] = r_.normal() - 2, a_[i] = -std::exp(2 * r_.normal() - 1);
        for (size_t i = a_.size(); i < dt_.size(); i++) dt_[i] = r_.normal() - 2;
        for (size_t i = 0; i < a_.size() && c.min_decay() < 0; i++) a_[i] = -a_[i];
        for (size_t i = 0; i < norm_.size(); i++) norm_[i] = 1 + 0.2f * r_.normal();
        for (size_t i = 0; i < lens.size(); i++) {
            random own(1000 + i);
            size_t n = (size_t) lens[i];
            int slot = (int) (i * 2 + 1) % SLOTS;
            seq.push_back({lens[i], 0, slot, own.normals(n * channels), own.normals(n * values),
                           own.normals(n * c.ab()), std::vector<float>(n * values, NAN)});
            for (float &x : seq.back().ab) x *= s.gates;
        }
    }

    void run(const std::vector<turn> &turns)
    {
        struct row { size_t s; int at; }; /* at < 0: a wrong draft */
        std::vector<row> rows;
        std::vector<int32_t> pos, start{0}, verified, slot, save_start{0}, save;
        pi__k_gdn a = {};
        a.grouped = grouped;
        a.least = 1 << 30;
        for (size_t i = 0; i < turns.size(); i++) {
            const turn &t = turns[i];
            int n = t.n + t.right + t.wrong;
            if (!n) continue;
            for (int k = 0; k < n; k++) {
                pos.push_back(seq[i].done + k);
                rows.push_back({i, k < t.n + t.right ? seq[i].done + k : -1});
            }
            for (auto &s : t.saves) save.push_back(s.first), save.push_back(s.second);
            add_sequence(a, n, t.n, seq[i].slot, start, verified, slot, save_start, (int32_t) save.size() / 2);
        }
        if (rows.empty()) return;
        if (padded) {
            pos.push_back(-1);
            rows.push_back({0, -1});
            add_sequence(a, 1, 1, -1, start, verified, slot, save_start, (int32_t) save.size() / 2);
        }
        size_t T = rows.size(), ld = channels + values + c.ab() + 4;
        std::vector<float> mix(T * ld);
        for (size_t t = 0; t < T; t++) fill(&mix[t * ld], rows[t].s, rows[t].at);
        buffer<float> in(mix), out(T * (values + 4)), scratch(pi__k_gdn_scratch(&state_, (int32_t) T) / 4);
        buffer<int32_t> d_pos(pos), d_start(start), d_sure(verified), d_slot(slot), d_save_start(save_start),
            d_save(save);
        a.qkv = in.get(), a.ld_qkv = a.ld_z = a.ld_ab = (int64_t) ld;
        a.z = in.get() + channels, a.alpha = a.z + values, a.beta = a.alpha + c.alphas();
        a.min_decay = c.min_decay();
        a.conv = conv_.get(), a.dt_bias = dt_.get(), a.a = a_.get(), a.norm = norm_.get(), a.eps = eps;
        if (c.dim_v) a.beta = nullptr, a.conv_bias = bias_.get(), a.skip = skip_.get();
        a.out = out.get(), a.ldo = (int64_t) values + 4;
        a.n_tokens = (int32_t) T, a.n_seqs = (int32_t) verified.size();
        a.pos = d_pos.get(), a.seq_start = d_start.get(), a.n_verified = d_sure.get(), a.state_slot = d_slot.get();
        a.save_start = d_save_start.get(), a.save = d_save.get(), a.state = state_, a.scratch = scratch.get(),
        a.n_sm = n_sm;
        const bool few = pi__k_gdn_has_tail(&a) && T <= PI__K_TAIL_ROWS && values % 32 == 0;
        plain_tail tail(out.get(), a.ldo, few ? (int32_t) T : 1, few ? (int64_t) values : 32);
        if (few) a.tail = &tail.t;
        must_run(pi__k_gdn_run(stream(), &a));
        if (few) tail.check();
        for (size_t t = 0; t < T; t++) {
            if (rows[t].at < 0) continue;
            sequence &s = seq[rows[t].s];
            std::memcpy(&s.out[(size_t) rows[t].at * values], &out[t * (values + 4)], values * 4);
            s.done = rows[t].at + 1;
        }
    }

    /* Runs all sequences in chunks of about n tokens. */
    void run_in_cuts(int n)
    {
        for (;;) {
            std::vector<turn> turns(seq.size());
            int any = 0;
            for (size_t i = 0; i < seq.size(); i++) {
                any += turns[i].n = std::min(seq[i].len - seq[i].done, n + (int) i * (n > 1));
            }
            if (!any) return;
            run(turns);
        }
    }

    /* Runs each sequence in a batch of one, in a single step. */
    fixture &alone()
    {
        for (size_t i = 0; i < seq.size(); i++) {
            std::vector<turn> turns(seq.size());
            turns[i].n = seq[i].len;
            run(turns);
        }
        return *this;
    }

    /* Scales the values by f. Inputs and weights of their convolutions become positive: with a large f, silu(x) is then
     * close to x. */
    void scale_values(float f)
    {
        const size_t from = (size_t) (2 * c.n_k * c.dim);
        for (size_t k = from * (size_t) c.n_conv; k < channels * (size_t) c.n_conv; k++)
            conv_[k] = std::fabs(conv_[k]) * f;
        for (sequence &s : seq) {
            for (size_t k = 0; k < s.qkv.size(); k++) {
                if (k % channels >= from) s.qkv[k] = std::fabs(s.qkv[k]);
            }
        }
    }

    void save(size_t i, int32_t pos, int32_t snap)
    {
        must_run(pi__k_state_save(stream(), &state_, seq[i].slot, pos, snap));
    }
    void load(size_t i, int32_t pos, int32_t snap)
    {
        must_run(pi__k_state_load(stream(), &state_, seq[i].slot, pos, snap));
    }
    float *snapshot(int32_t i) { return &snaps_[(size_t) i * snap_floats_]; }
    size_t snapshot_floats() const { return snap_floats_ - GAP; }

    /* Checks results against the recurrence: the error is at most bound * (1 + |value|). With one F16 term, of_one
     * replaces bound. The reference then rounds keys and queries as the kernel does, so only the rounding of states
     * remains. */
    void check_reference(double bound = 1e-5, double of_one = 1e-3) const
    {
        if (!exact) bound = of_one;
        for (size_t i = 0; i < seq.size(); i++) {
            expect_equal(seq[i].done, seq[i].len);
            for (int h = 0; h < c.n_v && !c.dim_v; h++) reference(i, h, bound);
            for (int kh = 0; kh < c.n_k && c.dim_v; kh++) ssd_reference(i, kh);
        }
    }

    void check_gaps() const
    {
        for (size_t i = 0; i < (size_t) SLOTS; i++) {
            bool used = false;
            for (const sequence &s : seq) used |= (size_t) s.slot == i;
            check_untouched(slots_.get() + i * slot_floats_, used ? slot_floats_ - GAP : 0, slot_floats_);
        }
        for (size_t i = 0; i < (size_t) SNAPS; i++) {
            check_untouched(snaps_.get() + i * snap_floats_, snap_floats_ - GAP, snap_floats_);
        }
    }

private:
    random r_;
    pi__k_state state_;
    size_t slot_floats_, snap_floats_;
    buffer<float> slots_, snaps_, conv_, dt_, a_, norm_, bias_, skip_;

    int32_t width() const { return c.dim_v ? c.dim_v : c.dim; }
    static shape with_heads(shape s) { return s.n_v = s.values(), s; }

    static void add_sequence(pi__k_gdn &a, int n, int n_verified, int n_slot, std::vector<int32_t> &start,
                             std::vector<int32_t> &verified, std::vector<int32_t> &slot,
                             std::vector<int32_t> &save_start, int32_t n_save)
    {
        a.least = std::min(a.least, n);
        a.most = std::max(a.most, n);
        start.push_back(start.back() + n);
        verified.push_back(n_verified);
        slot.push_back(n_slot);
        save_start.push_back(n_save);
    }

    /* Writes the inputs of a token. at < 0: a wrong draft, with large, NaN or infinite inputs. */
    void fill(float *row, size_t i, int at)
    {
        const sequence &s = seq[i];
        size_t ab = c.ab();
        if (at < 0) {
            for (size_t k = 0; k < channels + values + ab; k++) row[k] = 20 * r_.normal();
            if (r_.below(4)) row[r_.below((unsigned) channels)] = r_.below(2) ? NAN : INFINITY;
            return;
        }
        std::memcpy(row, &s.qkv[(size_t) at * channels], channels * 4);
        std::memcpy(row + channels, &s.z[(size_t) at * values], values * 4);
        std::memcpy(row + channels + values, &s.ab[(size_t) at * ab], ab * 4);
    }

    /* Rounds x as the kernel does: x * per is rounded to F16. Unchanged in exact mode. */
    static double rounded(double x, float per)
    {
        return exact ? x : (double) (pi__f16_to_f32(pi__f32_to_f16((float) x * per)) / per);
    }

    static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

    std::vector<double> ref_conv(const sequence &s, int t, size_t from, int32_t n) const
    {
        std::vector<double> y((size_t) n);
        for (size_t i = 0; i < y.size(); i++) {
            double sum = c.dim_v ? (double) bias_[from + i] : 0;
            for (int back = 0; back < c.n_conv && back <= t; back++) { /* the last tap belongs to the token itself */
                size_t tap = (from + i) * (size_t) c.n_conv + (size_t) (c.n_conv - 1 - back);
                sum += (double) conv_[tap] * s.qkv[(size_t) (t - back) * channels + from + i];
            }
            y[i] = sum * sigmoid(sum);
        }
        return y;
    }

    void ref_norm(std::vector<double> &x, double scale) const
    {
        double ss = 0;
        for (double v : x) ss += v * v;
        for (double &v : x) v *= scale / std::sqrt(ss + eps);
    }

    /* Returns the log decays of a head's rows of S at token t: with kda [dim], else one. */
    std::vector<double> ref_decays(const sequence &s, int t, int h) const
    {
        std::vector<double> g(c.kda ? (size_t) c.dim : 1);
        for (size_t k = 0; k < g.size(); k++) {
            const size_t at = (size_t) h * g.size() + k;
            const double x = (double) s.ab[(size_t) t * c.ab() + at] + dt_[at], a = a_[(size_t) h];
            g[k] = c.min_decay() < 0 ? c.min_decay() * sigmoid(a * x) : a * std::log1p(std::exp(x));
        }
        return g;
    }

    /* S <- e^g S, then S <- S + k (outer) beta (v - k . S); o = q . S */
    void reference(size_t i, int h, double bound) const
    {
        const sequence &s = seq[i];
        size_t n = (size_t) c.dim, kh = (size_t) (h % c.n_k), nv = (size_t) c.n_v;
        std::vector<double> S(n * n, 0), o(n);
        for (int t = 0; t < s.len; t++) {
            std::vector<double> q = ref_conv(s, t, kh * n, c.dim),
                                k = ref_conv(s, t, ((size_t) c.n_k + kh) * n, c.dim),
                                v = ref_conv(s, t, (2 * (size_t) c.n_k + (size_t) h) * n, c.dim);
            ref_norm(q, 1 / std::sqrt((double) n));
            ref_norm(k, 1);
            for (double &x : q) x = rounded(x, 64);
            for (double &x : k) x = rounded(x, 4);
            const std::vector<double> g = ref_decays(s, t, h);
            double beta = sigmoid(s.ab[(size_t) t * c.ab() + c.alphas() + (size_t) h]), ss = 0;
            for (size_t a = 0; a < n * n; a++) S[a] *= std::exp(g[a / n % g.size()]);
            for (size_t b = 0; b < n; b++) {
                double p = 0;
                for (size_t a = 0; a < n; a++) p += k[a] * S[a * n + b];
                double u = beta * (v[b] - p);
                o[b] = 0;
                for (size_t a = 0; a < n; a++) o[b] += q[a] * (S[a * n + b] += k[a] * u);
                ss += o[b] * o[b];
            }
            for (size_t b = 0; b < n; b++) {
                const int place = grouped ? h % c.n_k * (c.n_v / c.n_k) + h / c.n_k : h;
                size_t at = ((size_t) t * nv + (size_t) place) * n + b;
                double z = s.z[((size_t) t * nv + (size_t) h) * n + b];
                double want = o[b] * norm_[b] / std::sqrt(ss / (double) n + eps) * (c.kda ? 1 : z) * sigmoid(z);
                if (within(std::fabs(s.out[at] - want) / (1 + std::fabs(want)), bound)) continue;
                fail_check("heads %d/%d dim %d: sequence %zu token %d head %d value %zu: %g, expected %g", c.n_k, c.n_v,
                           c.dim, i, t, h, b, (double) s.out[at], want);
            }
        }
    }

    /* Mamba-2, for the heads of key head kh: S <- e^(a dt) S + dt k (outer) v; o = (q . S + skip v) silu(z). */
    void ssd_reference(size_t i, int kh) const
    {
        const sequence &s = seq[i];
        const size_t n = (size_t) c.dim, m = (size_t) c.dim_v, nv = (size_t) c.n_v, per = nv / (size_t) c.n_k;
        std::vector<double> S(per * n * m, 0), o(per * m);
        for (int t = 0; t < s.len; t++) {
            const auto q = ref_conv(s, t, (size_t) kh * n, c.dim),
                       k = ref_conv(s, t, (size_t) (c.n_k + kh) * n, c.dim);
            double ss = 0;
            for (size_t e = 0; e < per * m; e++) {
                const size_t h = (size_t) kh + e / m * (size_t) c.n_k, b = e % m;
                const double v = ref_conv(s, t, 2 * (size_t) c.n_k * n + h * m + b, 1)[0];
                const double dt = std::log1p(std::exp((double) s.ab[(size_t) t * 2 * nv + h] + dt_[h]));
                const double z = s.z[((size_t) t * nv + h) * m + b], decay = std::exp(a_[h] * dt);
                double *state = &S[e * n], sum = skip_[h] * v;
                for (size_t a = 0; a < n; a++) sum += q[a] * (state[a] = decay * state[a] + dt * k[a] * v);
                o[e] = sum * z * sigmoid(z);
                ss += o[e] * o[e];
            }
            for (size_t e = 0; e < per * m; e++) {
                const size_t at = (size_t) kh * per * m + e;
                const double want = o[e] / std::sqrt(ss / (double) (per * m) + eps) * norm_[at];
                const double got = s.out[(size_t) t * values + at];
                if (within(std::fabs(got - want) / (1 + std::fabs(want)), 2e-5)) continue;
                fail_check("heads %d/%d dims %d, %d: sequence %zu token %d key head %d value %zu: %g, expected %g",
                           c.n_k, c.n_v, c.dim, c.dim_v, i, t, kh, e, got, want);
            }
        }
    }
};

void same_results(const fixture &a, const fixture &b, const char *what, int with)
{
    for (size_t i = 0; i < a.seq.size(); i++) {
        const sequence &x = a.seq[i], &y = b.seq[i];
        expect_equal(y.done, y.len);
        if (!std::memcmp(x.out.data(), y.out.data(), x.out.size() * 4)) continue;
        size_t k = 0;
        while (!std::memcmp(&x.out[k], &y.out[k], 4)) k++;
        fail_check("%s %d, dim %d, %d drafts: sequence %zu token %zu: %a is not %a", what, with, a.c.dim, a.c.n_draft,
                   i, k / a.values, (double) x.out[k], (double) y.out[k]);
    }
}

void test_reference()
{
    const shape shapes[] = {{2, 4, 32, 0}, {1, 3, 64, 2}, {2, 2, 96, 0}, {1, 1, 128, 3}};
    for (const shape &c : one_of(shapes)) {
        for (int cut : {23, 1}) {
            fixture w(c, {38, 1, 17});
            w.grouped = cut == 1 || c.dim == 32;
            w.run_in_cuts(cut);
            w.check_reference();
            w.check_gaps();
        }
    }
}

/* Errors do not accumulate over 10,000 tokens (fewer on a slow emulator), for any gates. Strong gates forget all but
 * the last tokens, so each result depends on a few products q . k. If all of these are near 0, the errors of q and k
 * dominate. Therefore eps is larger here: the norm does not amplify values below it. With one F16 term, 99 of 100
 * tokens have an error below 3e-4, at the end as at the beginning. The worst error of 10,000 tokens is 5e-4 to 3.2e-3
 * over twelve seeds; there, an output is small relative to its summands. With one seed the largest error has another
 * cause: a query value is close to the midpoint of two F16 values, and the reference rounds it the other way. */
void test_long()
{
    const int len = now->emu && !now->emu->thorough ? 700 : 10000;
    const shape shapes[] = {{1, 2, 32, 0}, {1, 2, 32, 0, 4, 12}, {1, 1, 128, 0, 4, 4}};
    for (const shape &c : one_of(shapes)) {
        about("heads of %d, gates times %g", c.dim, (double) c.gates);
        fixture w(c, {c.dim == 32 ? len : len / 5});
        if (c.gates > 1) w.eps = 1e-3f;
        w.run_in_cuts(len / 2);
        w.check_reference(1e-5, 5e-3);
    }
}

/* Values and states of any magnitude are supported: scaling by a power of two does not change results, because the norm
 * removes it. The tiny eps does not hide errors of small rows. If all relevant keys are nearly orthogonal to a query,
 * the norm amplifies the error of the sum. Measured errors are at most 0.93e-5 with exact exponentials (emulator), and
 * 1.3e-5 with those of an H200. */
void test_scales()
{
    for (int32_t e : {-35, -9, 11, 40}) {
        const shape c = {1, 1, 32, 0};
        fixture w(c, {70});
        about("values times 2^%d", e);
        w.eps = 1e-30f; /* a larger eps would hide small values */
        w.scale_values(std::ldexp(1.0f, e));
        w.run_in_cuts(70);
        w.check_reference(now->emu ? 1e-5 : 2e-5);
    }
}

/* Every order of threads and blocks gives bitwise identical results. */
void test_modes()
{
    const shape c = {1, 2, 32, 2};
    fixture a(c, {21, 3});
    a.alone();
    in_all_modes([&] {
        fixture w(c, {21, 3});
        w.run({{9, 0, 0, {}}, {2, 0, 1, {}}});
        w.run({{1, 1, 1, {}}, {1, 0, 0, {}}});
        w.run({{10, 0, 0, {{16, 0}}}, {}});
        same_results(a, w, "modes", 0);
        w.check_gaps();
    });
}

void test_cuts()
{
    const shape shapes[] = {{1, 2, 32, 0}, {1, 1, 128, 5}};
    const std::vector<int> lens = {41, 33, 16, 1};
    for (const shape &c : one_of(shapes)) {
        fixture a(c, lens);
        a.alone().check_reference();
        for (int cut : {1, 2, 6, 15, 16, 40}) {
            if (c.dim > 32 && cut > 2 && cut < 15) continue;
            fixture b(c, lens);
            b.padded = cut % 2 == 0;
            b.n_sm = cut == 1 ? 0 : 100; /* with many SMs, two warps share a state's columns: bitwise identical */
            b.run_in_cuts(cut);
            same_results(a, b, "cut", cut);
            b.check_gaps();
        }
    }
}

/* Steps of one token plus drafts, with random numbers of drafts and accepted drafts. Other sequences prefill in the
 * same steps. */
void test_drafts()
{
    const std::vector<int> lens = {90, 35, 60};
    for (int n_draft : {1, 5, 19}) {
        shape c = {1, 1, 32, n_draft};
        fixture a(c, lens), b(c, lens);
        a.alone();
        random r((uint64_t) n_draft);
        for (int left = 1; left;) {
            std::vector<turn> turns(lens.size());
            left = 0;
            for (size_t i = 0; i < lens.size(); i++) {
                int rest = lens[i] - b.seq[i].done;
                left += rest;
                if (!rest || !r.below(6)) continue;
                turns[i].n = r.below(9) ? 1 : 1 + (int) r.below((unsigned) std::min(rest, 40));
                int drafts = (int) r.below((unsigned) n_draft + 1);
                turns[i].right = (int) r.below((unsigned) std::min(drafts, rest - turns[i].n) + 1);
                turns[i].wrong = drafts - turns[i].right;
            }
            b.run(turns);
        }
        same_results(a, b, "drafts", n_draft);
        b.check_gaps();
    }
}

/* A step of one token plus drafts at positions around chunk ends, with various numbers of drafts and of accepted
 * drafts. */
void test_draft_counts()
{
    const int most = 18, len = 16 + 16 + 1 + most;
    const shape c = {1, 1, 32, most};
    fixture a(c, {len}), b(c, {len});
    a.alone();
    for (int from : {15, 16, 24, 28, 31}) {
        for (int drafts : {1, 2, 5, most}) {
            for (int right = 0; right <= drafts; right += drafts == most ? 3 : 1) {
                b.seq[0].done = 0;
                b.run({{from, 0, 0, {}}});
                b.run({{1, right, drafts - right, {}}});
                if (b.seq[0].done < len) b.run({{1, 0, 0, {}}});
                if (b.seq[0].done < len) b.run({{len - b.seq[0].done, 0, 0, {}}});
                same_results(a, b, "accepted drafts", right);
            }
        }
    }
}

/* The maximum number of rows between the ring's base and the end of a step. The thread blocks of the value heads of one
 * key head run one after the other; none may overwrite a row that another one still reads. */
void test_longest_rings()
{
    for (int n_draft : {1, 3, 4}) {
        const shape c = {1, 2, 32, n_draft};
        fixture a(c, {40}), b(c, {40});
        a.alone();
        for (int from = 13; from < 17; from++) {
            for (int right = 0; right <= n_draft; right++) {
                b.seq[0].done = 0;
                b.run({{from, 0, 0, {}}});
                b.run({{1, right, n_draft - right, {}}});
                b.run({{1, 0, n_draft, {}}});
                b.run({{40 - b.seq[0].done, 0, 0, {}}});
                same_results(a, b, "drafts after accepted drafts", right);
            }
        }
    }
}

/* Snapshots are bitwise identical if taken in a prefill step, in decode, between steps, or after accepted drafts. */
void test_snapshots()
{
    const shape c = {1, 2, 32, 20};
    const std::vector<int> lens = {70};
    fixture a(c, lens), b(c, lens);
    a.run({{70, 0, 0, {{16, 1}, {32, 2}, {48, 3}, {64, 4}}}});
    size_t bytes = a.snapshot_floats() * 4;
    while (b.seq[0].done < 70) {
        int to = b.seq[0].done + 1;
        turn t;
        t.n = 1;
        if (to % 32 == 0) t.saves.push_back({to, to / 16});
        b.run({t});
        if (to % 32 == 16) b.save(0, to, to / 16);
        if (to % 16 == 9 && to > 16) b.save(0, to / 16 * 16, 4 + to / 16);
    }
    for (int i = 1; i <= 4; i++) expect_bytes(a.snapshot(i), b.snapshot(i), bytes);
    for (int i = 1; i <= 3; i++) expect_bytes(a.snapshot(i), b.snapshot(4 + i), bytes);
    same_results(a, b, "saved from", 0);
    for (int from : {15, 27, 31}) {
        for (int right : {0, 1, 5, 20}) {
            fixture d(c, lens);
            d.run({{from, 0, 0, {}}});
            d.run({{1, right, 20 - right, {}}});
            int pos = d.seq[0].done / 16 * 16;
            if (pos == 0) continue;
            d.save(0, pos, 7);
            expect_bytes(a.snapshot(pos / 16), d.snapshot(7), bytes);
            d.run({{70 - d.seq[0].done, 0, 0, {{pos, 8}}}});
            expect_bytes(a.snapshot(pos / 16), d.snapshot(8), bytes);
            same_results(a, d, "saved after drafts", right);
            d.check_gaps();
        }
    }
    b.check_gaps();
}

/* If two warps share the columns of a state, saving, keeping and continuing it works as with one warp. */
void test_parts()
{
    const shape c = {1, 1, 128, 2};
    fixture a(c, {71}), b(c, {71});
    a.n_sm = 100;
    for (fixture *f : {&a, &b}) {
        f->run({{55, 0, 2, {{48, 1}}}}); /* a snapshot after chunks without one */
        f->run({{1, 0, 2, {}}});
        f->run({{15, 0, 0, {{64, 2}}}});
        f->check_gaps();
    }
    b.check_reference();
    same_results(a, b, "parts", 2);
    for (int i = 1; i <= 2; i++) expect_bytes(a.snapshot(i), b.snapshot(i), a.snapshot_floats() * 4);
}

/* Convolutions of every length, in every chunking, with drafts, and continued from a snapshot. */
void test_taps()
{
    for (int32_t taps = PI__MIN_CONV; taps <= PI__MAX_CONV; taps++) {
        const shape c = {1, 2, 32, taps % 3, taps};
        const std::vector<int> lens = {37, 18};
        fixture a(c, lens), b(c, lens), d(c, lens);
        a.run({{37, 0, 0, {{32, 1}}}, {18, 0, 0, {}}});
        a.check_reference();
        b.run_in_cuts(taps % 2 ? 1 : 7);
        same_results(a, b, "taps", taps);
        d.run({{37, 0, 0, {}}, {18, 0, 0, {}}});
        std::memcpy(d.snapshot(2), a.snapshot(1), a.snapshot_floats() * 4);
        d.load(0, 32, 2);
        d.seq[0].done = 32;
        d.run({{1, 0, c.n_draft, {}}, {}});
        d.run_in_cuts(2);
        same_results(a, d, "loaded, taps", taps);
        for (const fixture *f : {&a, &b, &d}) f->check_gaps();
    }
}

/* A sequence continues from a snapshot, in a slot that another sequence used before. */
void test_load()
{
    const shape c = {1, 2, 64, 3};
    const std::vector<int> lens = {50};
    fixture a(c, lens);
    a.run({{50, 0, 0, {{16, 1}, {32, 2}, {48, 3}}}});
    a.check_reference();
    for (int pos : {16, 32, 48}) {
        fixture b(c, lens);
        b.run({{50, 0, 0, {}}});
        std::memcpy(b.snapshot(5), a.snapshot(pos / 16), a.snapshot_floats() * 4);
        b.load(0, pos, 5);
        b.seq[0].done = pos;
        b.run({{1, 0, 3, {{pos, 6}}}});
        expect_bytes(b.snapshot(6), b.snapshot(5), a.snapshot_floats() * 4);
        b.run_in_cuts(pos == 16 ? 1 : 30);
        same_results(a, b, "loaded", pos);
        b.check_gaps();
    }
}

/* A step of one token with up to 15 drafts takes one launch, a prompt takes three. */
void test_launches()
{
    if (!now->emu || !now->emu->launched) return;
    const shape c = {1, 1, 32, 15};
    fixture w(c, {50});
    const turn turns[] = {{17, 0, 0, {}}, {1, 0, 15, {}}, {1, 0, 0, {}}, {1, 7, 0, {}}};
    for (const turn &t : turns) {
        const unsigned long before = now->emu->launched();
        w.run({t});
        expect_equal(now->emu->launched() - before, t.n > 16 ? 3 : 1 + plain_tail::LAUNCHES);
    }
}

/* The chunk loop of a prompt causes no shared memory bank conflicts. Copies and tensor core loads are counted
 * exactly, other accesses nearly. */
void test_conflicts()
{
    if (!now->emu || !now->emu->conflicts) return;
    for (int32_t dim : {64, 128}) {
        fixture w({1, 1, dim, 0}, {64});
        const double n = now->emu->conflicts([](void *p) { static_cast<fixture *>(p)->run({{64, 0, 0, {}}}); }, &w, 1);
        about("dim %d: %g", dim, n);
        expect_true(n <= 1.03);
    }
}

/* State and value heads of different sizes, in groups; a prompt and single tokens. */
void test_ssd()
{
    const int32_t shapes[][4] = {{2, 4, 32, 80}, {1, 3, 64, 16}, {1, 2, 128, 64}, {1, 1, 256, 32}};
    for (const auto &d : shapes) {
        shape c = {d[0], d[1], d[2], 3};
        c.dim_v = d[3];
        for (int n : {1, 40}) {
            fixture w(c, {d[2] > 64 ? 18 : 38, 1, 17});
            w.n_sm = n;
            w.padded = n == 1;
            w.run_in_cuts(n);
            w.check_reference();
            w.check_gaps();
        }
    }
}

/* Heads of all sizes, with both kinds of log decays; a prompt and single tokens. */
void test_kda()
{
    for (int32_t dim : {32, 64, 128}) {
        const shape c = {dim == 32 ? 3 : 1, 0, dim, 3};
        for (int n : {1, 40}) {
            fixture w(c, {dim > 64 ? 18 : 38, 1, 17});
            w.n_sm = n;
            w.padded = n == 1;
            w.run_in_cuts(n);
            w.check_reference();
            w.check_gaps();
        }
    }
}

void test_sizes()
{
    pi__k_state st = {nullptr, 0, nullptr, 0, 16, 32, 128, 0, 4, 0, 0, 0, 0};
    size_t s0 = 32 * 128 * 128 * 4, channels = 64 * 128 * 4;
    expect_equal(pi__k_snapshot_bytes(&st), s0 + 3 * channels + 256 * 4);
    expect_equal(pi__k_state_bytes(&st),
                 (128 + 256) * 4 + s0 + 16 * (16 + 32) * 128 * 4 + 32 * 16 * (1 + 16) * 4 + (4 + 2 * 3) * channels);
    pi__k_state bad[9];
    for (pi__k_state &b : bad) b = st;
    bad[0].dim = 256, bad[1].dim = 100, bad[2].dim = 0, bad[3].n_k = 0, bad[4].n_v = 8, bad[5].n_draft = -1;
    bad[6].n_conv = 1, bad[7].n_conv = 9, bad[8].kda = 1, bad[8].dim_v = 128; /* kda needs 16 value heads */
    for (const pi__k_state &b : bad) {
        expect_equal(pi__k_state_bytes(&b), 0);
        expect_equal(pi__k_snapshot_bytes(&b), 0);
    }
}

const entry checks[] = {
    {"reference", both<test_reference>},
    {"long", both<test_long>},
    {"scales", both<test_scales>},
    {"modes", test_modes},
    {"cuts", both<test_cuts>},
    {"drafts", both<test_drafts>},
    {"draft_counts", test_draft_counts},
    {"longest_rings", test_longest_rings},
    {"snapshots", both<test_snapshots>},
    {"parts", both<test_parts>},
    {"taps", both<test_taps>},
    {"load", test_load},
    {"launches", test_launches},
    {"ssd", test_ssd},
    {"ssd_modes", mamba2<test_modes, 16>},
    {"ssd_cuts", mamba2<test_cuts, 32>},
    {"ssd_drafts", mamba2<test_drafts, 48>},
    {"ssd_draft_counts", mamba2<test_draft_counts, 16>},
    {"ssd_longest_rings", mamba2<test_longest_rings, 16>},
    {"ssd_snapshots", mamba2<test_snapshots, 48>},
    {"ssd_taps", mamba2<test_taps, 16>},
    {"ssd_load", mamba2<test_load, 48>},
    {"kda", kda<test_kda>},
    {"kda_modes", kda<test_modes>},
    {"kda_cuts", kda<test_cuts>},
    {"kda_drafts", kda<test_drafts>},
    {"kda_longest_rings", kda<test_longest_rings>},
    {"kda_snapshots", kda<test_snapshots>},
    {"kda_load", kda<test_load>},
    {"conflicts", both<test_conflicts>},
    {"sizes", test_sizes},
};

} // namespace

const family checks_of_gdn = {"gdn", "delta nets, Mamba-2 and Kimi delta attention", checks,
                              sizeof checks / sizeof *checks};

} // namespace selftest
