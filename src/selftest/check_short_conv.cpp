/* Checks kernels of short convolutions, gated and plain, against the convolution in double precision, and that they are
 * batch-invariant: bitwise identical in every chunking and batch composition, with drafts, and after snapshots. Slots
 * and snapshots are initially NaN; the gaps between them must stay unwritten. */
#include "selftest/check.h"

#include <algorithm>

#include "backend/cuda/kernels_conv.h"
#include "selftest/checks.h"
#include "selftest/state_ref.h"

namespace selftest {
namespace {

/* Fails if the values differ by more than tolerance * (1 + |want|). */
void check_near(double got, double want, double tolerance, size_t i)
{
    if (within(std::fabs(got - want) / (1 + std::fabs(want)), tolerance)) return;
    fail_check("short_conv: value %zu is %g, expected %g", i, got, want);
}

const int32_t SLOTS = 4, SNAPS = 2, SEQS = 3, GAP = 64 /* floats */;

struct part {
    int32_t n = 0, wrong = 0; /* next tokens of a sequence; wrong drafts after them */
    std::vector<std::pair<int32_t, int32_t>> saves; /* (position, snapshot) pairs */
};

class fixture {
public:
    int32_t dim, n_conv, n_draft, len;
    int32_t done[SEQS] = {};
    std::vector<float> in[SEQS], out[SEQS]; /* [len] rows of b, c, u; of results */

    fixture(int32_t dim_, int32_t n_conv_, int32_t n_draft_, int32_t len_)
        : dim(dim_), n_conv(n_conv_), n_draft(n_draft_), len(len_), a_(shape_of(dim_, n_conv_, n_draft_)),
          slot_floats_(pi__k_conv_state_bytes(&a_) / 4 + GAP), snap_floats_(pi__k_conv_snapshot_bytes(&a_) / 4 + GAP),
          slots_(slot_floats_ * SLOTS), snaps_(snap_floats_ * SNAPS),
          conv_(random(3).normals((size_t) (dim_ * n_conv_)))
    {
        a_.base = (char *) slots_.get(), a_.stride = slot_floats_ * 4;
        a_.snap = (char *) snaps_.get(), a_.snap_stride = snap_floats_ * 4;
        for (int32_t s = 0; s < SEQS; s++) {
            in[s] = random(100 + (uint64_t) s).normals((size_t) (len * 3 * dim));
            out[s].assign((size_t) (len * dim), NAN);
        }
    }

    /* Runs a step. Sequence s uses slot s + 1. padded: the step ends with a padding sequence of one token. */
    void run(const part (&parts)[SEQS], bool padded = false)
    {
        std::vector<int32_t> pos, start{0}, slot, save_start{0}, save, of;
        std::vector<float> x;
        for (int32_t s = 0; s < SEQS; s++) {
            if (!parts[s].n) continue;
            for (int32_t i = 0; i < parts[s].n + parts[s].wrong; i++) {
                const auto row = in[s].begin() + (done[s] + i) * 3 * dim;
                pos.push_back(done[s] + i);
                if (i < parts[s].n) x.insert(x.end(), row, row + 3 * dim);
                else x.insert(x.end(), (size_t) (3 * dim), NAN);
                x.insert(x.end(), 4, NAN);
            }
            for (auto &k : parts[s].saves) save.push_back(k.first), save.push_back(k.second);
            add(start, slot, save_start, (int32_t) pos.size(), s + 1, (int32_t) save.size() / 2);
            of.push_back(s);
        }
        if (of.empty()) return;
        if (padded) {
            pos.push_back(-1), x.insert(x.end(), (size_t) (3 * dim + 4), NAN);
            add(start, slot, save_start, (int32_t) pos.size(), -1, (int32_t) save.size() / 2);
        }
        pi__k_conv a = a_;
        buffer<float> d_x(x), y(pos.size() * (size_t) (dim + 4));
        buffer<int32_t> d_pos(pos), d_start(start), d_slot(slot), d_save_start(save_start), d_save(save);
        a.x = d_x.get(), a.ldx = 3 * dim + 4, a.conv = conv_.get(), a.out = y.get(), a.ldo = dim + 4;
        a.pos = d_pos.get(), a.seq_start = d_start.get(), a.state_slot = d_slot.get();
        a.save_start = d_save_start.get(), a.save = d_save.get();
        a.n_seqs = (int32_t) slot.size();
        for (size_t i = 1; i < start.size(); i++) a.most = std::max(a.most, start[i] - start[i - 1]);
        must_run(pi__k_conv_run(stream(), &a));
        for (size_t i = 0; i < of.size(); i++) {
            const int32_t s = of[i];
            for (int32_t t = 0; t < parts[s].n; t++, done[s]++)
                std::memcpy(&out[s][(size_t) (done[s] * dim)], &y[(size_t) ((start[i] + t) * (dim + 4))],
                            (size_t) dim * 4);
        }
    }

    void save(int32_t s, int32_t pos, int32_t snap)
    {
        must_run(pi__k_conv_save(stream(), &a_, s + 1, pos, snap));
    }
    void load(int32_t s, int32_t pos, int32_t snap)
    {
        must_run(pi__k_conv_load(stream(), &a_, s + 1, pos, snap));
        done[s] = pos;
    }

    /* The convolution of the first of a row's three parts, with a bias and silu. */
    fixture &plain()
    {
        a_.plain = true;
        a_.bias = conv_.get();
        return *this;
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
            for (int32_t t = 0; t < len; t++)
                for (int32_t c = 0; c < dim; c++) {
                    double sum = 0;
                    for (int32_t back = 0; back < n_conv && back <= t; back++) {
                        const float *x = &in[s][(size_t) ((t - back) * 3 * dim)];
                        sum += (double) conv_[(size_t) (c * n_conv + n_conv - 1 - back)] * x[c] *
                               (a_.plain ? 1 : x[2 * dim + c]);
                    }
                    if (a_.plain) sum += a_.bias[c];
                    const double gate = in[s][(size_t) (t * 3 * dim + dim + c)];
                    const double expected = a_.plain ? sum / (1 + std::exp(-sum)) : sum * gate;
                    check_near(out[s][(size_t) (t * dim + c)], expected, 2e-5, (size_t) (t * dim + c));
                }
    }

    void check_gaps() const
    {
        for (size_t i = 0; i < SLOTS; i++)
            check_untouched(slots_.get() + i * slot_floats_, slot_floats_ - GAP, slot_floats_);
        for (size_t i = 0; i < SNAPS; i++)
            check_untouched(snaps_.get() + i * snap_floats_, snap_floats_ - GAP, snap_floats_);
    }

private:
    pi__k_conv a_;
    size_t slot_floats_, snap_floats_;
    buffer<float> slots_, snaps_, conv_;

    static pi__k_conv shape_of(int32_t dim, int32_t n_conv, int32_t n_draft)
    {
        pi__k_conv a = {};
        a.dim = dim, a.n_conv = n_conv, a.n_draft = n_draft;
        return a;
    }
    static void add(std::vector<int32_t> &start, std::vector<int32_t> &slot, std::vector<int32_t> &save_start,
                    int32_t end, int32_t own, int32_t n_save)
    {
        start.push_back(end), slot.push_back(own), save_start.push_back(n_save);
    }
};

void same_results(const fixture &a, const fixture &b, int32_t from, int32_t seq_a, int32_t seq_b)
{
    const size_t at = (size_t) (from * a.dim), n = a.out[seq_a].size() - at;
    if (std::memcmp(&a.out[seq_a][at], &b.out[seq_b][at], n * 4))
        fail_check("dim %d, %d taps, %d drafts: sequence %d has other bits", b.dim, b.n_conv, b.n_draft, seq_b);
}

void test_reference()
{
    for (int32_t n_conv = PI__MIN_CONV; n_conv <= PI__MAX_CONV; n_conv++)
        in_all_modes([&] { fixture(n_conv == 3 ? 520 : 4 * n_conv, n_conv, 0, 70).alone().check_reference(); });
}

void test_plain()
{
    in_all_modes([&] { fixture(48, 4, 0, 40).plain().alone().check_reference(); });
    fixture a(24, 4, 0, 60), b(24, 4, 3, 60);
    a.plain().alone();
    b.plain();
    for (int32_t k = 0; b.done[0] < b.len; k++) {
        part parts[SEQS];
        for (int32_t s = 0; s < SEQS; s++)
            parts[s].n = std::min(1 + (k + s) % 7, b.len - b.done[s]), parts[s].wrong = k % 4;
        b.run(parts);
    }
    for (int32_t s = 0; s < SEQS; s++) same_results(a, b, 0, s, s);
    b.check_gaps();
}

/* Random chunks with wrong drafts, the sequences in one batch, some steps padded. */
void test_cuts()
{
    for (int32_t n_draft : {0, 1, 7, 33}) {
        fixture a(40, 3 + n_draft % 2, 0, 100), b(40, 3 + n_draft % 2, n_draft, 100);
        random r((uint64_t) n_draft);
        a.alone();
        while (*std::min_element(b.done, b.done + SEQS) < b.len) {
            part parts[SEQS];
            for (int32_t s = 0; s < SEQS; s++) {
                parts[s].n = std::min((int32_t) r.below(r.below(3) ? 4 : 70), b.len - b.done[s]);
                parts[s].wrong = parts[s].n ? (int32_t) r.below((unsigned) n_draft + 1) : 0;
            }
            b.run(parts, r.below(2));
        }
        for (int32_t s = 0; s < SEQS; s++) same_results(a, b, 0, s, s);
        b.check_gaps();
    }
}

/* A snapshot that a step takes, and one from the slot after the step, continue in another sequence's slot. */
void test_snapshots()
{
    for (int32_t pos : {16, 48})
        for (int32_t more : {0, 15}) {
            fixture a(24, 3, 0, 90), b(24, 3, 4, 90);
            part first[SEQS], next[SEQS], rest[SEQS];
            a.alone();
            first[0].n = more ? pos - 1 : pos / 2;
            next[0].n = pos + more - first[0].n, next[0].wrong = 4, next[0].saves = {{pos, 1}};
            rest[1].n = b.len - pos;
            b.run(first);
            b.run(next);
            if (more) b.save(0, pos, 1);
            b.in[1] = b.in[0];
            b.load(1, pos, 1);
            b.run(rest);
            same_results(a, b, pos, 0, 1);
            b.check_gaps();
        }
}

void test_sizes()
{
    pi__k_conv a = {};
    a.dim = 2048, a.n_conv = 3, a.n_draft = 5;
    expect_equal(pi__k_conv_state_bytes(&a), (size_t) (2 + 16 + 5) * 2048 * 4);
    expect_equal(pi__k_conv_snapshot_bytes(&a), (size_t) 2 * 2048 * 4);
    const int32_t bad[][3] = {{0, 3, 0}, {62, 3, 0}, {64, 1, 0}, {64, 9, 0}, {64, 3, -1}};
    for (auto &b : bad) {
        a.dim = b[0], a.n_conv = b[1], a.n_draft = b[2];
        expect_equal(pi__k_conv_state_bytes(&a), 0);
        expect_equal(pi__k_conv_snapshot_bytes(&a), 0);
    }
}

const entry checks[] = {
    {"reference", test_reference}, {"plain", test_plain}, {"cuts", test_cuts}, {"snapshots", test_snapshots},
    {"sizes", test_sizes}};

} // namespace

const family checks_of_short_conv = {"short_conv", "short convolutions", checks, sizeof checks / sizeof *checks};

} // namespace selftest
