/* Checks centroid_head. Kernels: the selected clusters against a sort. The CUDA backend's op: against double precision
 * and the CPU's op, bitwise identical to op linear, and batch-invariant, captured or not. */
#include "selftest/op_ref.h"

#include <numeric>
#include "selftest/checks.h"

namespace selftest {
namespace {

/* Returns a pseudo-random permutation of 0 .. n - 1. */
std::vector<int32_t> shuffled(size_t n, uint64_t seed)
{
    random r(seed);
    std::vector<int32_t> v(n);
    std::iota(v.begin(), v.end(), 0);
    for (size_t i = n; i > 1; i--) std::swap(v[i - 1], v[r.below((unsigned) i)]);
    return v;
}

/* --------------------------------------------------------------------------------------------------------- kernels */

/* Returns the indices of the n_pick largest scores; on ties the lower index comes first; NaN comes last. */
std::vector<int32_t> best(const float *s, int32_t n, int32_t n_pick)
{
    std::vector<int32_t> id((size_t) n);
    std::iota(id.begin(), id.end(), 0);
    std::stable_sort(id.begin(), id.end(),
                     [=](int32_t a, int32_t b) { return s[a] > s[b] || (s[b] != s[b] && s[a] == s[a]); });
    id.resize((size_t) n_pick);
    return id;
}

/* Kinds of scores: 0 normally distributed; 1 many ties, zeros of both signs, infinities; 2 with NaN; 3 all equal. */
float score_of(random &r, int kind)
{
    const float f = r.normal();
    if (kind == 1) return r.below(9) ? (float) ((int) r.below(5) - 2) * 0.0f : r.below(2) ? INFINITY : -INFINITY;
    if (kind == 2) return r.below(4) ? NAN : f;
    return kind == 3 ? -1.5f : f;
}

void check_picks(int32_t n_rows, int32_t n_mat, int32_t n_pick, int kind)
{
    random r((uint64_t) (n_mat + n_pick));
    const size_t pairs = (size_t) (n_rows * n_pick);
    buffer<float> scores((size_t) (n_rows * n_mat));
    buffer<int32_t> pick(pairs), row(pairs), n_tile(3);
    buffer<pi__k_tile> tile(pairs);
    for (size_t i = 0; i < scores.size(); i++) scores[i] = score_of(r, kind);
    pi__k_centroids a = {};
    pi__k_routes to = {};
    a.scores = scores.get(), a.n_rows = n_rows, a.n_mat = n_mat, a.n_pick = n_pick, a.pick = pick.get();
    to.row = row.get(), to.tile[0] = tile.get(), to.n_tile = n_tile.get();
    must_run(pi__k_pick_centroids(stream(), &a, &to));
    expect_true(n_tile[0] == (int32_t) pairs && !n_tile[1] && !n_tile[2]);
    for (int32_t i = 0; i < n_rows; i++) {
        const std::vector<int32_t> want = best(scores.get() + i * n_mat, n_mat, n_pick);
        for (int32_t k = 0; k < n_pick; k++) {
            const int32_t p = i * n_pick + k;
            const pi__k_tile t = tile[(size_t) p];
            if (pick[(size_t) p] != want[(size_t) k])
                fail_check("%d of %d, kind %d, row %d: pick %d is %d, expected %d", n_pick, n_mat, kind, i, k,
                           pick[(size_t) p], want[(size_t) k]);
            expect_true(row[(size_t) p] == i && t.expert == want[(size_t) k] && t.first == p && t.n == 1);
        }
    }
}

void test_picks()
{
    const struct { int32_t rows, mats, picks; int kind;
    } cases[] = {{1, 1, 1, 0},     {3, 31, 31, 1},   {2, 33, 5, 2},  {5, 100, 7, 3},
                 {1, 2048, 32, 0}, {2, 2080, 40, 1}, {1, 4500, 3, 2}};
    for (auto c : one_of(cases)) check_picks(c.rows, c.mats, c.picks, c.kind);
    if (!slow()) in_all_modes([] { check_picks(2, 2051, 9, 1); });
    pi__k_centroids a = {};
    pi__k_routes to = {};
    a.n_rows = 1, a.n_mat = 4, a.n_pick = 5;
    expect_equal(pi__k_pick_centroids(stream(), &a, &to), 1);
    a.n_rows = 9, a.n_mat = a.n_pick = 8000;
    expect_equal(pi__k_pick_centroids(stream(), &a, &to), 1);
}

/* Checks the scattering of logits to token ids, with vocabularies of one thread block and of several. NaN logits are
 * scattered like all others. */
void check_spread(int32_t n_rows, int32_t n_mat, int32_t n_pick, int64_t n, bool nan)
{
    random r(7);
    const size_t V = (size_t) (n_mat * n), N = (size_t) (n_pick * n);
    const std::vector<int32_t> order0 = shuffled(V, 3);
    buffer<float> some(r.normals((size_t) n_rows * N)), logits((size_t) n_rows * V);
    buffer<int32_t> order(order0), pick((size_t) (n_rows * n_pick));
    for (int32_t i = 0; i < n_rows; i++) {
        const std::vector<int32_t> p = shuffled((size_t) n_mat, (uint64_t) i);
        std::copy(p.begin(), p.begin() + n_pick, pick.get() + i * n_pick);
    }
    if (nan) some[N - 1] = NAN;
    pi__k_centroids a = {};
    a.n_rows = n_rows, a.n_mat = n_mat, a.n_pick = n_pick, a.n = n, a.pick = pick.get(), a.some = some.get();
    a.order = order.get(), a.logits = logits.get();
    must_run(pi__k_scatter_logits(stream(), &a));
    for (size_t i = 0; i < (size_t) n_rows; i++) {
        float least = INFINITY;
        for (size_t k = 0; k < N; k++) least = some[i * N + k] < least ? some[i * N + k] : least;
        std::vector<float> want(V, least - 1.0f);
        for (size_t k = 0; k < N; k++) {
            const int32_t c = pick[i * (size_t) n_pick + k / (size_t) n];
            want[(size_t) order[(size_t) (c * n) + k % (size_t) n]] = some[i * N + k];
        }
        expect_bytes(want.data(), &logits[i * V], V * sizeof(float));
    }
}

void test_spread()
{
    check_spread(1, 1, 1, 1, false);
    check_spread(3, 50, 9, 7, true);
    check_spread(2, 90, 11, 200, false);
    if (!slow()) in_all_modes([] { check_spread(1, 70, 9, 120, true); });
}

/* ---------------------------------------------------------------------------------------------------------- the op */

struct shape {
    int32_t type;   /* of the head */
    int64_t E, per; /* columns; rows per cluster */
    int32_t n_mat, n_pick, rows;
};

/* A head and its input rows on a device. */
struct fixture {
    shape s;
    device d;
    std::unique_ptr<stack> centroids, head;
    std::vector<float> x0, w0;
    std::vector<int32_t> order;
    buffer<float> x, w, scores, some, logits;
    buffer<int32_t> pick;
    pi__centroid_head a = {};

    explicit fixture(const shape &s_, const char *name = nullptr, bool fp4 = false)
        : s(s_), d(fp4, name), x0(random(1).normals((size_t) (s.rows * s.E))), w0(random(2).normals((size_t) s.E)),
          order(shuffled(V(), 5)), x(x0), w(w0), scores((size_t) (s.rows * s.n_mat)),
          some((size_t) (s.rows * s.n_pick * s.per)), logits((size_t) s.rows * V()), pick((size_t) (s.rows * s.n_pick))
    {
        pi__limits lim = {};
        lim.max_tokens = lim.max_rows = s.rows, lim.max_seqs = 1, lim.max_ctx = 64, lim.max_n_in = s.E;
        lim.max_n_out = std::max<int64_t>(s.per, s.n_mat), lim.max_n_head = 1, lim.max_head_dim = 64,
        lim.n_vocab = (int64_t) V();
        lim.max_order = lim.n_vocab, lim.max_pick = s.n_pick;
        d.reserve(lim);
        centroids.reset(new stack(d, PI__BF16, s.E, s.n_mat, 1));
        head.reset(new stack(d, s.type, s.E, s.per, s.n_mat));
        for (stack *k : {centroids.get(), head.get()}) { /* no scale factors in this test */
            k->w.scale = nullptr;
            std::fill(k->factors.begin(), k->factors.end(), 1.0f);
        }
        a.in = {PI__IN_RMSNORM, x.get(), s.E, nullptr, 0, w.get(), 1e-6f, 0};
        a.centroids = &centroids->w, a.head = &head->w, a.order = order.data(), a.n_pick = s.n_pick,
        a.scores = scores.get();
        a.pick = pick.get(), a.some = some.get(), a.logits = logits.get();
    }
    size_t V() const { return (size_t) (s.per * s.n_mat); }
    /* Runs rows [first, first + n) only. */
    std::vector<float> run(int32_t first, int32_t n)
    {
        pi__centroid_head part = a;
        logits.fill(0xff);
        part.in.x += first * part.in.ldx;
        part.n_rows = n;
        pi__op_centroid_head(d.be, NULL, &part);
        d.finish();
        return std::vector<float>(logits.get(), logits.get() + (size_t) n * V());
    }
    /* Returns the result of linear for cluster c and row r. */
    std::vector<float> alone(int32_t c, int32_t r)
    {
        pi__weight one = head->w;
        pi__cuda_shape shape;
        buffer<float> y((size_t) s.per);
        expect_true(pi__cuda_shape_of(one.type, one.n_in, one.n_out, &shape));
        one.n_mat = 1;
        one.data = (char *) one.data + (size_t) c * shape.mat_bytes;
        pi__lin_in in = a.in;
        const pi__lin lin = {&one, y.get(), s.per};
        in.x += r * in.ldx;
        const pi__linear all = pi__linear_of(&in, 1, &lin, 1);
        pi__op_linear(d.be, NULL, &all);
        d.finish();
        return std::vector<float>(y.get(), y.get() + y.size());
    }
};

/* Checks row r of the last run, which must have been of all rows: its picks are still stored. */
void check_row(fixture &t, int32_t r, const std::vector<float> &all)
{
    const size_t E = (size_t) t.s.E;
    const float *got = &all[(size_t) r * t.V()];
    std::vector<double> x(t.x0.begin() + (long) ((size_t) r * E), t.x0.begin() + (long) ((size_t) (r + 1) * E));
    double ss = 0, off;
    for (double v : x) ss += v * v;
    for (size_t i = 0; i < E; i++) x[i] *= t.w0[i] / std::sqrt(ss / (double) E + 1e-6);
    const float *scores = t.scores.get() + r * t.s.n_mat;
    for (int32_t c = 0; c < t.s.n_mat; c++) {
        const double want = dot(*t.centroids, 0, c, x, &off);
        if (!within(std::fabs(scores[c] - want), off + 1e-5))
            fail_check("score %d: %g, expected %g", c, (double) scores[c], want);
    }
    const std::vector<int32_t> picks = best(scores, t.s.n_mat, t.s.n_pick);
    float least = INFINITY;
    std::vector<bool> seen(t.V());
    for (int32_t c : picks) {
        const std::vector<float> one = t.alone(c, r);
        for (int64_t i = 0; i < t.s.per; i++) {
            const size_t token = (size_t) t.order[(size_t) (c * t.s.per + i)];
            const double want = dot(*t.head, c, i, x, &off);
            if (!within(std::fabs(got[token] - want), off + 1e-5))
                fail_check("%s, row %d, cluster %d, token %zu: %g, expected %g +- %g", pi__type_info_of(t.s.type)->name,
                           r, c, token, (double) got[token], want, off);
            expect_bytes(&got[token], &one[(size_t) i], sizeof(float));
            least = std::min(least, got[token]);
            seen[token] = true;
        }
    }
    for (size_t i = 0; i < t.V(); i++) expect_true(seen[i] || got[i] == least - 1.0f);
}

const shape shapes[] = {{PI__F32, 45, 1, 97, 5, 3},   {PI__BF16, 96, 24, 10, 10, 9},  {PI__Q8_0, 256, 17, 40, 7, 20},
                        {PI__Q4_K, 256, 16, 5, 1, 1}, {PI__F16, 64, 40, 7, 3, 33},    {PI__BF16, 45, 5, 9, 4, 2},
                        {PI__NVFP4, 64, 33, 6, 4, 5}, {PI__IQ2_XXS, 256, 3, 12, 6, 2}};

void test_values()
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i += slow() ? 3 : 1) {
        fixture t(shapes[i]);
        const std::vector<float> all = t.run(0, t.s.rows);
        for (int32_t r = 0; r < t.s.rows; r += 8) check_row(t, r, all);
    }
}

/* One row, some rows and all rows together give bitwise identical results; also with FP4 activations. */
void test_batch_composition()
{
    for (const shape &s : {shapes[1], shapes[2], shapes[6]}) {
        if (slow() && s.type == PI__Q8_0) continue;
        fixture t(s, nullptr, s.type == PI__NVFP4);
        const std::vector<float> all = t.run(0, s.rows);
        for (int32_t r = 0; r < s.rows; r += slow() ? 9 : 4) {
            expect_bytes(t.run(r, 1).data(), &all[(size_t) r * t.V()], t.V() * sizeof(float));
            const int32_t n = std::min(3, s.rows - r);
            expect_bytes(t.run(r, n).data(), &all[(size_t) r * t.V()], (size_t) n * t.V() * sizeof(float));
        }
    }
    if (slow()) return;
    std::vector<float> first;
    in_all_modes([&] {
        fixture t(shapes[4]);
        const std::vector<float> all = t.run(0, 10);
        if (first.empty()) first = all;
        expect_bytes(first.data(), all.data(), all.size() * sizeof(float));
    });
}

/* The CPU's op selects the same clusters (no two scores here are close enough to change the selection) and gives
 * nearly the same logits. */
void test_cpu()
{
    for (const shape &s : {shapes[3], shapes[0], shapes[2]}) {
        if (slow() && s.type != PI__Q4_K) continue;
        fixture emu(s), cpu(s, "cpu");
        const std::vector<float> got = emu.run(0, s.rows), want = cpu.run(0, s.rows);
        float most = 0;
        for (float f : want) most = std::max(most, std::fabs(f));
        for (size_t i = 0; i < got.size(); i++)
            if (!within(std::fabs(got[i] - want[i]), 2e-3f * most))
                fail_check("%s, row %zu, token %zu: %g, the CPU has %g", pi__type_info_of(s.type)->name, i / emu.V(),
                           i % emu.V(), (double) got[i], (double) want[i]);
    }
}

/* A step with this op can be captured and gives the same result when replayed. A changed order of clusters takes
 * effect. */
void test_recorded()
{
    fixture t(shapes[1]);
    static const int32_t zero[2] = {0, 0}, ones[2] = {0, 1};
    pi__batch b = {};
    b.n_tokens = b.n_seqs = b.n_rows = 1;
    b.token = b.pos = b.seq = b.seq_start = b.logits_indices = b.state_slot = b.save_start = zero;
    b.seq_len = b.n_verified = ones + 1, b.seq_start = ones;
    const std::vector<float> want = t.run(2, 3), other = t.run(5, 3);
    const long before = now->emu && now->emu->replayed ? now->emu->replayed() : 0;
    for (int i = 0; i < 4; i++) {
        std::copy_n(t.x0.begin() + (i < 3 ? 2 : 5) * t.s.E, 3 * t.s.E, t.x.get());
        t.logits.fill(0xff);
        const bool replayed = !t.d.be->dev->begin(t.d.be, &b, PI__STEP_DECODE);
        expect_equal(replayed, i > 1);
        t.a.n_rows = 3;
        if (!replayed) pi__op_centroid_head(t.d.be, NULL, &t.a);
        t.d.finish();
        expect_bytes(t.logits.get(), i < 3 ? want.data() : other.data(), want.size() * sizeof(float));
    }
    if (now->emu && now->emu->replayed) expect_equal(now->emu->replayed() - before, 3);
    std::vector<int32_t> turned(t.order.rbegin(), t.order.rend());
    t.a.order = turned.data();
    const std::vector<float> again = t.run(0, 1);
    t.a.order = t.order.data();
    const std::vector<float> first = t.run(0, 1);
    for (size_t i = 0; i < turned.size(); i++) expect_true(again[(size_t) turned[i]] == first[(size_t) t.order[i]]);
    expect_true(std::memcmp(again.data(), first.data(), first.size() * sizeof(float)));
}

/* More rows or picks than were reserved are an error. */
void test_refused()
{
    fixture t(shapes[1]);
    pi_error err;
    t.a.n_rows = t.s.rows + 1;
    pi__op_centroid_head(t.d.be, NULL, &t.a);
    expect_equal(t.d.be->dev->finish(t.d.be, &err), PI_ENOMEM);
    t.a.n_pick++;
    t.a.n_rows = 1;
    pi__op_centroid_head(t.d.be, NULL, &t.a);
    expect_equal(t.d.be->dev->finish(t.d.be, &err), PI_ENOMEM);
}

const entry checks[] = {
    {"picks", test_picks}, {"spread", test_spread}, {"values", test_values},
    {"batch_composition", test_batch_composition}, {"cpu", test_cpu}, {"recorded", test_recorded},
    {"refused", test_refused},
};

} // namespace

const family checks_of_centroid_head = {"centroid_head", "clustered output heads",
                                        checks, sizeof checks / sizeof *checks};

} // namespace selftest
