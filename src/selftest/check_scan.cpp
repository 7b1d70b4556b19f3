/* Checks kernels of selective scans against the recurrence in double precision, and that they are batch-invariant:
 * bitwise identical in every chunking and batch composition, with accepted and dropped drafts, and after snapshots.
 * Slots and snapshots are initially NaN; the gaps between them must stay unwritten. */
#include "selftest/check.h"

#include <algorithm>

#include "backend/cuda/kernels_scan.h"
#include "selftest/checks.h"
#include "selftest/state_ref.h"

namespace selftest {
namespace {

const int32_t SLOTS = 4, SNAPS = 2, SEQS = 3, GAP = 64 /* floats */;

/* A sequence's part of a step: verified tokens, then its next tokens as drafts, then wrong drafts. The next step starts
 * after the accepted drafts. */
struct part {
    int32_t n = 0, right = 0, wrong = 0, accepted = 0;
    std::vector<std::pair<int32_t, int32_t>> saves; /* (position, snapshot) pairs */
};

class fixture {
public:
    int32_t channels, n_state, n_draft, len, width; /* width: values of a row, x, z, dt, b, c */
    int32_t done[SEQS] = {};
    std::vector<float> in[SEQS], out[SEQS];         /* [len] rows of inputs; of results */

    fixture(int32_t channels_, int32_t n_state_, int32_t n_draft_, int32_t len_)
        : channels(channels_), n_state(n_state_), n_draft(n_draft_), len(len_), width(3 * channels_ + 2 * n_state_),
          a_(shape_of(channels_, n_state_, n_draft_)), slot_floats_(pi__k_scan_state_bytes(&a_) / 4 + GAP),
          snap_floats_(pi__k_scan_snapshot_bytes(&a_) / 4 + GAP), slots_(slot_floats_ * SLOTS),
          snaps_(snap_floats_ * SNAPS), weights_(weights_of(channels_, n_state_))
    {
        const float *w = weights_.get();
        a_.base = (char *) slots_.get(), a_.stride = slot_floats_ * 4;
        a_.snap = (char *) snaps_.get(), a_.snap_stride = snap_floats_ * 4;
        a_.dt_bias = w, a_.skip = w + channels, a_.a = w + 2 * channels, a_.eps = 1e-5f;
        if (n_state == 16) a_.norm_b = a_.a + n_state * channels, a_.norm_c = a_.norm_b + n_state;
        for (int32_t s = 0; s < SEQS; s++) {
            in[s] = random(100 + (uint64_t) s).normals((size_t) (len * width));
            out[s].assign((size_t) (len * channels), NAN);
        }
    }

    /* Runs a step. Sequence s uses slot s + 1. padded: the step ends with a padding sequence of one token. */
    void run(const part (&parts)[SEQS], bool padded = false)
    {
        std::vector<int32_t> pos, start{0}, verified, slot, save_start{0}, save, of;
        std::vector<float> x;
        for (int32_t s = 0; s < SEQS; s++) {
            const part &p = parts[s];
            if (!p.n) continue;
            for (int32_t i = 0; i < p.n + p.right + p.wrong; i++) {
                const auto row = in[s].begin() + (done[s] + i) * width;
                pos.push_back(done[s] + i);
                if (i < p.n + p.right) x.insert(x.end(), row, row + width);
                else x.insert(x.end(), (size_t) width, NAN);
            }
            for (auto &k : p.saves) save.push_back(k.first), save.push_back(k.second);
            start.push_back((int32_t) pos.size()), slot.push_back(s + 1), verified.push_back(p.n);
            save_start.push_back((int32_t) save.size() / 2);
            of.push_back(s);
        }
        if (of.empty()) return;
        if (padded) {
            pos.push_back(-1), x.insert(x.end(), (size_t) width, NAN);
            start.push_back((int32_t) pos.size()), slot.push_back(-1), verified.push_back(1);
            save_start.push_back((int32_t) save.size() / 2);
        }
        launch(x, pos, start, verified, slot, save_start, save);
        for (size_t i = 0; i < of.size(); i++) {
            const int32_t s = of[i], rows = parts[s].n + parts[s].right;
            std::memcpy(&out[s][(size_t) (done[s] * channels)], &results_[(size_t) (start[i] * channels)],
                        (size_t) (rows * channels) * 4);
            done[s] += parts[s].n + parts[s].accepted;
        }
    }

    /* A pass of an early-exit drafter: n unverified tokens, `after` tokens after the sequence's last verified one. */
    void pass(int32_t s, int32_t after, int32_t n)
    {
        const int32_t at = done[s] + after;
        std::vector<int32_t> pos;
        for (int32_t i = 0; i < n; i++) pos.push_back(at + i);
        const auto row = in[s].begin() + at * width;
        launch(std::vector<float>(row, row + n * width), pos, {0, n}, {-after}, {s + 1}, {0, 0}, {});
        std::memcpy(&out[s][(size_t) (at * channels)], results_.data(), (size_t) (n * channels) * 4);
    }

    void save(int32_t s, int32_t pos, int32_t snap)
    {
        must_run(pi__k_scan_save(stream(), &a_, s + 1, pos, snap));
    }
    void load(int32_t s, int32_t pos, int32_t snap)
    {
        must_run(pi__k_scan_load(stream(), &a_, s + 1, pos, snap));
        done[s] = pos;
    }

    fixture &alone()
    {
        for (int32_t s = 0; s < SEQS; s++) {
            part parts[SEQS];
            parts[s].n = len;
            run(parts);
        }
        return *this;
    }

    void check_reference() const
    {
        for (int32_t s = 0; s < SEQS; s++)
            for (int32_t c = 0; c < channels; c++) check_channel(s, c);
    }

    void check_gaps() const
    {
        for (size_t i = 0; i < SLOTS; i++)
            check_untouched(slots_.get() + i * slot_floats_, slot_floats_ - GAP, slot_floats_);
        for (size_t i = 0; i < SNAPS; i++)
            check_untouched(snaps_.get() + i * snap_floats_, snap_floats_ - GAP, snap_floats_);
    }

private:
    pi__k_scan a_;
    size_t slot_floats_, snap_floats_;
    buffer<float> slots_, snaps_, weights_;
    std::vector<float> results_;

    static pi__k_scan shape_of(int32_t channels, int32_t n_state, int32_t n_draft)
    {
        pi__k_scan a = {};
        a.n_channel = channels, a.n_state = n_state, a.n_draft = n_draft;
        return a;
    }
    /* dt_bias, skip, a, weights of the norms */
    static std::vector<float> weights_of(int32_t channels, int32_t n_state)
    {
        std::vector<float> w = random(3).normals((size_t) (2 * channels + n_state * channels + 2 * n_state));
        for (int32_t i = 0; i < n_state * channels; i++) {
            float &a = w[(size_t) (2 * channels + i)];
            a = -0.05f - std::fabs(a);
        }
        return w;
    }

    void launch(const std::vector<float> &x, const std::vector<int32_t> &pos, const std::vector<int32_t> &start,
                const std::vector<int32_t> &verified, const std::vector<int32_t> &slot,
                const std::vector<int32_t> &save_start, const std::vector<int32_t> &save)
    {
        buffer<float> d_x(x), y(pos.size() * (size_t) channels);
        buffer<int32_t> d_pos(pos), d_start(start), d_verified(verified), d_slot(slot), d_save_start(save_start),
            d_save(save);
        pi__k_scan a = a_;
        a.x = d_x.get(), a.z = a.x + channels, a.dt = a.z + channels, a.b = a.dt + channels, a.c = a.b + n_state;
        a.ldx = a.ldz = a.ld_dt = a.ld_bc = width;
        a.out = y.get(), a.ldo = channels;
        a.pos = d_pos.get(), a.seq_start = d_start.get(), a.n_verified = d_verified.get();
        a.state_slot = d_slot.get(), a.save_start = d_save_start.get(), a.save = d_save.get();
        a.n_seqs = (int32_t) slot.size();
        must_run(pi__k_scan_run(stream(), &a));
        results_.assign(y.get(), y.get() + pos.size() * (size_t) channels);
    }

    double norm_of(const float *x) const
    {
        double sum = 0;
        for (int32_t i = 0; i < n_state; i++) sum += (double) x[i] * x[i];
        return a_.norm_b ? 1 / std::sqrt(sum / n_state + a_.eps) : 1;
    }

    void check_channel(int32_t s, int32_t c) const
    {
        std::vector<double> h((size_t) n_state);
        for (int32_t t = 0; t < len; t++) {
            const float *x = &in[s][(size_t) (t * width)], *b = x + 3 * channels, *q = b + n_state;
            const double z = x[channels + c], fb = norm_of(b), fq = norm_of(q);
            const double dt = std::log1p(std::exp((double) x[2 * channels + c] + a_.dt_bias[c]));
            double y = (double) a_.skip[c] * x[c];
            for (int32_t i = 0; i < n_state; i++) {
                double &v = h[(size_t) i];
                v = std::exp(dt * a_.a[i * channels + c]) * v + dt * x[c] * b[i] * fb * (a_.norm_b ? a_.norm_b[i] : 1);
                y += v * q[i] * fq * (a_.norm_c ? a_.norm_c[i] : 1);
            }
            const double want = y * z / (1 + std::exp(-z)), got = out[s][(size_t) (t * channels + c)];
            if (!within(std::fabs(got - want) / (1 + std::fabs(want)), 1e-4))
                fail_check("scan: channel %d of token %d is %g, expected %g", c, t, got, want);
        }
    }
};

void same_results(const fixture &a, const fixture &b, int32_t from, int32_t seq_a, int32_t seq_b)
{
    const size_t at = (size_t) (from * a.channels), n = a.out[seq_a].size() - at;
    if (std::memcmp(&a.out[seq_a][at], &b.out[seq_b][at], n * 4))
        fail_check("%d channels, %d values, %d drafts: sequence %d has other bits", b.channels, b.n_state, b.n_draft,
                   seq_b);
}

void test_reference()
{
    for (int32_t n_state : {16, 32})
        in_all_modes([&] { fixture(n_state == 16 ? 144 : 16, n_state, 0, 20).alone().check_reference(); });
}

/* Random chunks with drafts, the sequences in one batch, some steps padded. */
void test_cuts()
{
    for (int32_t n_draft : {0, 33}) {
        fixture a(144, 16, 0, 50), b(144, 16, n_draft, 50);
        random r((uint64_t) n_draft);
        a.alone();
        while (*std::min_element(b.done, b.done + SEQS) < b.len) {
            part parts[SEQS];
            for (int32_t s = 0; s < SEQS; s++) {
                part &p = parts[s];
                p.n = std::min((int32_t) r.below(r.below(3) ? 4 : 50), b.len - b.done[s]);
                if (!p.n) continue;
                p.right = std::min((int32_t) r.below((unsigned) n_draft + 1), b.len - b.done[s] - p.n);
                p.wrong = (int32_t) r.below((unsigned) (n_draft - p.right) + 1);
                p.accepted = (int32_t) r.below((unsigned) p.right + 1);
            }
            b.run(parts, r.below(2));
        }
        for (int32_t s = 0; s < SEQS; s++) same_results(a, b, 0, s, s);
        b.check_gaps();
    }
}

/* A snapshot continues in another sequence's slot: one that a step takes, one from the slot after the step, and one
 * from the slot after the step's drafts were accepted. */
void test_snapshots()
{
    for (int32_t pos : {16, 48})
        for (int32_t kind : {0, 1, 2}) {
            fixture a(16, 16, 0, 60), b(16, 16, 20, 60);
            part first[SEQS], next[SEQS], rest[SEQS];
            a.alone();
            first[0].n = pos - 5;
            next[0].n = kind == 2 ? 2 : 7, next[0].right = kind == 2 ? 10 : 0, next[0].accepted = kind == 2 ? 6 : 0;
            if (!kind) next[0].saves = {{pos, 1}};
            rest[1].n = b.len - pos;
            b.run(first);
            b.run(next);
            if (kind) b.save(0, pos, 1);
            b.in[1] = b.in[0];
            b.load(1, pos, 1);
            b.run(rest);
            same_results(a, b, pos, 0, 1);
            b.check_gaps();
        }
}

/* Before each step the drafter's passes compute tokens that the step computes again, or that are accepted. */
void test_early_exit()
{
    fixture a(144, 16, 0, 30), b(144, 16, 6, 30);
    a.alone();
    for (int32_t s = 0; s < SEQS; s++)
        for (int32_t k = 0; b.done[s] < b.len; k++) {
            const int32_t left = b.len - b.done[s];
            part parts[SEQS];
            if (left > 6) b.pass(s, 0, 1 + s), b.pass(s, 1 + s, 2), b.pass(s, 3 + s, 1);
            parts[s].n = std::min(1 + k % 3, left);
            parts[s].right = std::min(k % 4, left - parts[s].n);
            parts[s].accepted = parts[s].right / 2;
            b.run(parts);
        }
    for (int32_t s = 0; s < SEQS; s++) same_results(a, b, 0, s, s);
    b.check_gaps();
}

void test_sizes()
{
    pi__k_scan a = {};
    a.n_channel = 256, a.n_state = 16, a.n_draft = 5;
    expect_equal(pi__k_scan_state_bytes(&a), (size_t) ((1 + 3 * 16 + 2 * 5) * 256 + 2 * 5 * 16) * 4);
    expect_equal(pi__k_scan_snapshot_bytes(&a), (size_t) 16 * 256 * 4);
    const int32_t bad[][3] = {{0, 16, 0}, {24, 16, 0}, {64, 24, 0}, {64, 48, 0}, {64, 16, -1}};
    for (auto &b : bad) {
        a.n_channel = b[0], a.n_state = b[1], a.n_draft = b[2];
        expect_equal(pi__k_scan_state_bytes(&a), 0);
        expect_equal(pi__k_scan_snapshot_bytes(&a), 0);
    }
}

const entry checks[] = {
    {"reference", test_reference}, {"cuts", test_cuts}, {"snapshots", test_snapshots},
    {"early_exit", test_early_exit}, {"sizes", test_sizes}};

} // namespace

const family checks_of_scan = {"scan", "selective scans", checks, sizeof checks / sizeof *checks};

} // namespace selftest
