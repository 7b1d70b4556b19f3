/* Checks moe kernels. Routing: against double precision and its invariants. The CUDA backend's op: against double
 * precision for every format, bitwise identical to linear kernels, and batch-invariant. Also checks op head_linear
 * (matrices of heads), which uses the same kernels. */
#include "selftest/op_ref.h"

#include <cfloat>
#include "backend/cuda/kernels_mixed.h"
#include "selftest/checks.h"

namespace selftest {
namespace {

/* --------------------------------------------------------------------------------------------------------- routing */

/* Reference routing of a row: expert ids by rank, and their weights. */
void route(const float *from, int32_t n_expert, int32_t n_used, double scale, std::vector<int32_t> &id,
           std::vector<double> &weight, const float *bias = nullptr)
{
    std::vector<float> logits(from, from + n_expert);
    for (int32_t e = 0; e < n_expert && bias; e++) logits[(size_t) e] += bias[e];
    double all = 0, sum = 0, most = -DBL_MAX;
    for (int32_t e = 0; e < n_expert; e++) most = std::max(most, (double) logits[e]);
    for (int32_t e = 0; e < n_expert; e++) all += std::exp(logits[e] - most);
    id.assign((size_t) n_used, -1);
    weight.assign((size_t) n_used, 0);
    for (size_t i = 0; i < id.size(); i++) {
        for (int32_t e = 0; e < n_expert; e++) {
            bool taken = std::find(id.begin(), id.begin() + (long) i, e) != id.begin() + (long) i;
            if (!taken && (id[i] < 0 || logits[e] > logits[id[i]])) id[i] = e;
        }
        weight[i] = std::exp(logits[id[i]] - most) / all;
        sum += weight[i];
    }
    for (double &w : weight) w *= scale / std::max(sum, (double) PI__K_MIN_SUM);
}

/* Buffers for the results of pi__k_route. */
struct routes {
    pi__k_routes a;
    buffer<int32_t> id, column, row, n_tile;
    buffer<float> weight, logits;
    buffer<pi__k_tile> few, some, many;
    buffer<uint32_t> marks;
    buffer<int32_t> first;

    routes(const std::vector<float> &l, int32_t n_rows, int32_t n_expert, int32_t n_used)
        : a(), id(n(n_rows, n_used)), column(n(n_rows, n_used)), row(n(n_rows, n_used)), n_tile(3),
          weight(n(n_rows, n_used)), logits(l), few((size_t) pi__k_max_tiles(n_rows, n_expert, n_used, 0)),
          some((size_t) pi__k_max_tiles(n_rows, n_expert, n_used, 1)),
          many((size_t) pi__k_max_tiles(n_rows, n_expert, n_used, 2)),
          marks(pi__k_route_scratch_words(n_rows, n_expert)), first(marks.size())
    {
        a = {logits.get(), n_expert + 1,     n_rows,       n_expert,  n_used,
             0.5f,         PI__GATE_SOFTMAX, nullptr,      nullptr,   nullptr,
             id.get(),     weight.get(),     column.get(), row.get(), {few.get(), some.get(), many.get()},
             n_tile.get(), marks.get(),      first.get()};
    }
    static size_t n(int32_t rows, int32_t used) { return (size_t) (rows * used); }
};

/* Checks that columns are sorted by expert, then by row, that each column is in exactly one tile, which belongs to the
 * column's expert, and that each list of tiles is in the order of columns. */
void check_columns(routes &t)
{
    size_t pairs = t.id.size();
    std::vector<std::pair<int32_t, int32_t>> order;
    for (size_t p = 0; p < pairs; p++) order.push_back({t.id[p], (int32_t) p / t.a.n_used});
    std::sort(order.begin(), order.end());
    for (size_t p = 0; p < pairs; p++) {
        size_t c = (size_t) t.column[p];
        expect_true(c < pairs && order[c].first == t.id[p] && order[c].second == (int32_t) p / t.a.n_used);
        expect_equal(t.row[c], order[c].second);
    }
    std::vector<int> seen(pairs);
    for (int k = 0; k < 3; k++) {
        expect_true(t.n_tile[(size_t) k] <= pi__k_max_tiles(t.a.n_rows, t.a.n_expert, t.a.n_used, k));
        for (int32_t i = 0; i < t.n_tile[(size_t) k]; i++) {
            const pi__k_tile tile = t.a.tile[k][i];
            expect_true(i == 0 || tile.first > t.a.tile[k][i - 1].first);
            expect_true(tile.n >= (k == 2 ? 33 : k ? 9 : 1) && tile.n <= (k == 2 ? 64 : k ? 32 : 8));
            for (int32_t c = tile.first; c < tile.first + tile.n; c++) {
                expect_true(order[(size_t) c].first == tile.expert);
                seen[(size_t) c]++;
            }
        }
    }
    expect_true(std::count(seen.begin(), seen.end(), 1) == (long) pairs);
}

void test_routing()
{
    const struct { int32_t rows, experts, used; int kind;
    } cases[] = {{1, 1, 1, 0},   {1, 200, 8, 0}, {7, 33, 9, 1},   {32, 16, 4, 2},   {33, 5, 5, 0},
                 {90, 40, 2, 1}, {75, 9, 3, 2},  {40, 64, 33, 0}, {70, 1100, 2, 0}, {9, 600, 3, 1}};
    for (auto c : one_of(cases)) {
        random r((uint64_t) (c.rows + c.experts));
        std::vector<float> l = r.normals((size_t) (c.rows * (c.experts + 1)));
        /* kind 1: many ties, zeros of both signs; kind 2: almost all rows go to a few experts */
        for (size_t i = 0; i < l.size(); i++) {
            if (c.kind == 1) l[i] = r.below(3) ? (float) r.below(2) : -0.0f;
            if (c.kind == 2 && i % 7) l[i] += (int32_t) i % (c.experts + 1) < c.used ? 9 : 0;
        }
        routes t(l, c.rows, c.experts, c.used);
        must_run(pi__k_route(stream(), &t.a));
        check_columns(t);
        for (int32_t i = 0; i < c.rows; i++) {
            std::vector<int32_t> id;
            std::vector<double> weight;
            route(&l[(size_t) (i * (c.experts + 1))], c.experts, c.used, 0.5, id, weight);
            for (size_t k = 0; k < id.size(); k++) {
                size_t at = (size_t) (i * c.used) + k;
                if (t.id[at] != id[k] || !(std::fabs(t.weight[at] - weight[k]) <= 2e-6 * weight[k]))
                    fail_check("%d of %d experts, row %d rank %zu: %d (%g), expected %d (%g)", c.used, c.experts, i, k,
                               t.id[at], (double) t.weight[at], id[k], weight[k]);
            }
        }
    }
}

/* The capacity of the tile lists (pi__k_max_tiles) suffices for every distribution of pairs over experts. For 2,048
 * rows and 8 of 256 experts, it has known values. */
void test_tile_bounds()
{
    const int32_t want[] = {256, 256, 380};
    for (int k = 0; k < 3; k++) expect_equal(pi__k_max_tiles(2048, 256, 8, k), want[k]);
    random r(3);
    for (int i = 0; i < 3000; i++) {
        const int32_t rows = 1 + (int32_t) r.below(i % 2 ? 40 : 400), experts = 1 + (int32_t) r.below(20);
        const int32_t used = 1 + (int32_t) r.below((unsigned) experts);
        int32_t left = rows * used, n_tile[3] = {0, 0, 0};
        /* n: the columns of expert e, often one more than fills a tile; the remaining columns must fit the other
         * experts */
        for (int32_t e = experts; e; e--) {
            const int32_t least = std::max(0, left - (e - 1) * rows), edges[] = {1, 9, 33, 65, 97, least, rows};
            const int32_t n = e == 1 ? left : std::min(std::min(left, rows), std::max(least, edges[r.below(7)])),
                          rest = n % 64;
            left -= n;
            n_tile[2] += n / 64 + (rest > 32);
            if (rest && rest <= 32) n_tile[rest > 8]++;
        }
        for (int k = 0; k < 3; k++) expect_true(n_tile[k] <= pi__k_max_tiles(rows, experts, used, k));
    }
}

/* Softplus and sigmoid gates: a bias affects the choice but not the weights. Experts chosen by a table of token ids. */
void test_softplus()
{
    for (int32_t rows : sizes<int32_t>({3, 40})) {
        const int32_t X = 70, K = 5;
        random r((uint64_t) rows);
        std::vector<float> l = r.normals((size_t) (rows * (X + 1))), b = r.normals((size_t) X);
        std::vector<int32_t> token, table;
        l[3] = 60, l[4] = -60; /* extreme logits: the gate is the logit's square root, or 0 */
        for (int32_t i = 0; i < rows; i++) token.push_back((int32_t) r.below(9));
        for (int32_t i = 0; i < 9 * K; i++) table.push_back((int32_t) r.below((unsigned) X / K) * K + i % K);
        buffer<float> bias(b);
        buffer<int32_t> t(token), by_token(table);
        for (int kind = 0; kind < 6; kind++) { /* plain, with a bias, by table; a sigmoid with a bias; softmaxes */
            routes at(l, rows, X, K);
            at.a.gating = kind > 3 ? PI__GATE_SOFTMAX_CHOICE : kind == 3 ? PI__GATE_SIGMOID : PI__GATE_SQRT_SOFTPLUS;
            at.a.bias = kind % 2 ? bias.get() : nullptr;
            at.a.table = kind == 2 ? by_token.get() : nullptr;
            at.a.token = t.get();
            must_run(pi__k_route(stream(), &at.a));
            check_columns(at);
            for (int32_t i = 0; i < rows; i++) {
                std::vector<double> gate;
                std::vector<int32_t> order;
                double sum = 0, all = 0;
                for (int32_t e = 0; e < X; e++) all += std::exp((double) l[(size_t) (i * (X + 1) + e)]);
                for (int32_t e = 0; e < X; e++) {
                    const double x = l[(size_t) (i * (X + 1) + e)];
                    if (kind > 3) gate.push_back(std::exp(x) / all);
                    else gate.push_back(kind == 3 ? 1 / (1 + std::exp(-x)) : std::sqrt(std::log1p(std::exp(x))));
                }
                for (int32_t e = 0; e < X; e++) order.push_back(e);
                std::sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
                    const double p = gate[(size_t) x], q = gate[(size_t) y];
                    return kind % 2 ? p + b[(size_t) x] > q + b[(size_t) y] : p > q;
                });
                const int32_t *want = kind == 2 ? &table[(size_t) (token[(size_t) i] * K)] : order.data(),
                              *got = &at.id[(size_t) (i * K)];
                for (int32_t k = 0; k < K; k++) sum += gate[(size_t) want[k]];
                sum = std::max(sum, (double) PI__K_MIN_SUM); /* small if a bias excludes the expert with logit 60 */
                for (int32_t k = 0; k < K; k++) {
                    expect_equal(got[k], want[k]);
                    const double w = 0.5 * gate[(size_t) want[k]] / sum;
                    if (!within(std::fabs(at.weight[(size_t) (i * K + k)] - w), 3e-6 * w + 1e-12))
                        fail_check("row %d rank %d: weight is not %g", i, k, w);
                }
            }
        }
    }
}

/* ----------------------------------------------------------------------------------------------- groups of experts */

struct choice_case {
    int32_t rows, experts, used, groups, groups_used;
    int gating;
    bool divided;
};

/* Returns up to n ids with the largest values, among the ids with `open` set. */
std::vector<int32_t> best_of(const std::vector<double> &value, const std::vector<bool> &open, int32_t n)
{
    std::vector<int32_t> id;
    for (size_t i = 0; i < value.size(); i++)
        if (open[i]) id.push_back((int32_t) i);
    std::stable_sort(id.begin(), id.end(), [&](int32_t x, int32_t y) { return value[(size_t) x] > value[(size_t) y]; });
    id.resize(std::min(id.size(), (size_t) n));
    return id;
}

/* Returns for each expert whether its group is selected. value: gates plus the bias for the choice. */
std::vector<bool> open_experts(const choice_case &c, const std::vector<double> &value)
{
    const size_t each = value.size() / (size_t) std::max(c.groups, 1);
    std::vector<bool> open(value.size(), !c.groups);
    std::vector<double> score;
    for (int32_t g = 0; g < c.groups; g++) {
        std::vector<double> of(value.begin() + (long) (each * (size_t) g),
                               value.begin() + (long) (each * (size_t) (g + 1)));
        std::sort(of.rbegin(), of.rend());
        score.push_back(of[0] + (c.gating == PI__GATE_SOFTMAX || each < 2 ? 0 : of[1]));
    }
    for (int32_t g : best_of(score, std::vector<bool>(score.size(), true), c.groups_used))
        for (size_t i = 0; i < each; i++) open[(size_t) g * each + i] = true;
    return open;
}

/* The expert choice as an epilogue of the product that computes the logits is bitwise identical to a separate
 * launch. */
void check_choice_behind(const choice_case &c)
{
    const int32_t X = c.experts, K = c.used, N = 64;
    const matrix w = make_matrix(PI__F32, N, X);
    random r((uint64_t) X);
    buffer<float> x(r.normals((size_t) (c.rows * N))), bias(r.normals((size_t) X));
    struct chosen {
        routes to;
        buffer<float> weight;
        buffer<int32_t> table, token;
        pi__k_expert_choice a;
        chosen(const choice_case &c, float *bias)
            : to(std::vector<float>((size_t) (c.rows * (c.experts + 1))), c.rows, c.experts, c.used),
              weight((size_t) (c.rows * c.used)), table(weight.size()), token((size_t) c.rows),
              a {to.a, c.groups, c.groups_used, !c.divided, table.get(), token.get(), weight.get()}
        {
            a.r.gating = c.gating, a.r.bias = c.gating == PI__GATE_SOFTMAX ? nullptr : bias;
        }
    };
    auto product = [&](chosen &to) {
        pi__k_product p = {};
        p.w = w.m, p.y = to.to.logits.get(), p.ldy = X + 1;
        return p;
    };
    chosen want(c, bias.get());
    const pi__k_product before = product(want);
    must_run(pi__k_linear(stream(), &before, 1, x.get(), c.rows));
    must_run(pi__k_expert_choice_run(stream(), &want.a));
    buffer<uint32_t> arrived(std::vector<uint32_t>{0});
    in_all_modes([&] {
        chosen got(c, bias.get());
        const pi__k_product p = product(got);
        pi__k_tail t = {};
        t.arrived = arrived.get(), t.waits = waits(), t.routes = got.a.r;
        const pi__k_mixed_more more = {&got.a, nullptr, nullptr, nullptr};
        must_run(pi__k_mixed_linear_more(stream(), &p, 1, nullptr, x.get(), c.rows, &t, &more));
        expect_equal(*arrived.get(), 0u);
        expect_bytes(got.table.get(), want.table.get(), got.table.size() * 4);
        expect_bytes(got.weight.get(), want.weight.get(), got.weight.size() * 4);
        expect_bytes(got.to.id.get(), want.to.id.get(), (size_t) (c.rows * K) * 4);
        expect_bytes(got.to.column.get(), want.to.column.get(), (size_t) (c.rows * K) * 4);
        check_columns(got.to);
    });
}

void check_choice(const choice_case &c)
{
    const int32_t X = c.experts, K = c.used;
    const bool soft = c.gating == PI__GATE_SOFTMAX;
    random r((uint64_t) (X + c.rows));
    const std::vector<float> l = r.normals((size_t) (c.rows * (X + 1))), b = r.normals((size_t) X);
    routes to(l, c.rows, X, K);
    buffer<float> bias(b), weight((size_t) (c.rows * K));
    buffer<int32_t> table((size_t) (c.rows * K)), token((size_t) c.rows);
    pi__k_expert_choice a = {to.a, c.groups, c.groups_used, !c.divided, table.get(), token.get(), weight.get()};
    a.r.gating = c.gating, a.r.bias = soft ? nullptr : bias.get();
    must_run(pi__k_expert_choice_run(stream(), &a));
    for (int32_t i = 0; i < c.rows; i++) {
        std::vector<double> gate, value;
        double all = 0, sum = 0;
        for (int32_t e = 0; e < X; e++) {
            const double x = l[(size_t) (i * (X + 1) + e)];
            gate.push_back(soft ? std::exp(x) : 1 / (1 + std::exp(-x)));
            all += gate.back();
            value.push_back(gate.back() + (soft ? 0 : b[(size_t) e]));
        }
        const std::vector<int32_t> want = best_of(value, open_experts(c, value), K);
        for (int32_t e : want) sum += gate[(size_t) e];
        expect_equal(token[(size_t) i], i);
        expect_bytes(&to.id[(size_t) (i * K)], &table[(size_t) (i * K)], (size_t) K * 4);
        for (int32_t k = 0; k < K; k++) {
            const size_t at = (size_t) (i * K + k);
            const double w = 0.5 * gate[(size_t) want[(size_t) k]] / (c.divided ? sum : soft ? all : 1);
            if (table[at] != want[(size_t) k] || !within(std::fabs(weight[at] - w), 3e-6 * w))
                fail_check("%d experts in %d groups, row %d rank %d: %d (%g), expected %d (%g)", X, c.groups, i, k,
                           table[at], (double) weight[at], want[(size_t) k], w);
        }
    }
    check_columns(to);
}

/* SparseMixer: weights of experts with close logits. */
void test_mixer()
{
    const int32_t X = 16, K = 2, rows = 40;
    random r(11);
    std::vector<float> l = r.normals((size_t) (rows * (X + 1)));
    for (size_t i = 0; i < 6; i++) l[i] = 2 + 0.01f * (float) i;                            /* close */
    for (size_t i = 0; i < (size_t) X; i++) l[(size_t) X + 1 + i] = -1 - 0.009f * (float) i; /* negative */
    routes to(l, rows, X, K);
    buffer<float> weight((size_t) (rows * K));
    buffer<int32_t> table((size_t) (rows * K)), token((size_t) rows);
    pi__k_expert_choice a = {to.a, 0, 0, true, table.get(), token.get(), weight.get()};
    a.r.gating = PI__GATE_SPARSEMIXER, a.r.bias = nullptr;
    must_run(pi__k_expert_choice_run(stream(), &a));
    for (int32_t i = 0; i < rows; i++) {
        const std::vector<double> logit(l.begin() + i * (X + 1), l.begin() + i * (X + 1) + X);
        std::vector<bool> open((size_t) X, true);
        for (int32_t k = 0; k < K; k++) {
            const int32_t want = best_of(logit, open, 1)[0];
            const double c = logit[(size_t) want];
            double sum = 0;
            for (size_t e = 0; e < (size_t) X; e++)
                if (open[e] && c - logit[e] <= (double) PI__MIXER_REACH * std::max(std::fabs(logit[e]), c))
                    sum += std::exp(logit[e] - c);
            open[(size_t) want] = false;
            const size_t at = (size_t) (i * K + k);
            if (table[at] != want || !within(std::fabs(weight[at] - 0.5 / sum), 3e-6))
                fail_check("row %d rank %d: %d (%g), expected %d (%g)", i, k, table[at], (double) weight[at], want,
                           0.5 / sum);
        }
    }
    check_columns(to);
}

void test_choice()
{
    check_choice({9, 256, 8, 8, 4, PI__GATE_SIGMOID, true});   /* DeepSeek V3 */
    check_choice({5, 160, 6, 8, 3, PI__GATE_SOFTMAX, false});  /* V2 */
    check_choice({17, 64, 6, 0, 0, PI__GATE_SOFTMAX, false});  /* V2-Lite */
    check_choice({3, 64, 2, 64, 5, PI__GATE_SIGMOID, false});
    check_choice({40, 64, 4, 8, 3, PI__GATE_SIGMOID, true});   /* more rows than one launch can choose and sort */
    check_choice({4, 120, 7, 40, 9, PI__GATE_SIGMOID, true});
    check_choice({6, 320, 40, 16, 5, PI__GATE_SIGMOID, true}); /* more experts than lanes keep in registers */
    check_choice({6, 300, 9, 0, 0, PI__GATE_SOFTMAX, false});
    in_all_modes([] { check_choice({9, 12, 3, 4, 2, PI__GATE_SIGMOID, true}); });
    check_choice_behind({9, 256, 8, 8, 4, PI__GATE_SIGMOID, true});
    check_choice_behind({1, 256, 8, 8, 4, PI__GATE_SIGMOID, true});
    check_choice_behind({32, 320, 40, 16, 5, PI__GATE_SOFTMAX, false});
    pi__k_expert_choice a = {};
    a.r.n_rows = 1, a.r.n_expert = 10, a.n_group = 4;
    expect_equal(pi__k_expert_choice_run(stream(), &a), 1);
    pi__k_tail t = {};
    pi__k_product p = {};
    const pi__k_mixed_more more = {&a, nullptr, nullptr, nullptr};
    expect_equal(pi__k_mixed_linear_more(stream(), &p, 1, nullptr, nullptr, 1, &t, &more), 1);
}

/* A NaN is chosen only if no other logits remain. With very many equal experts, the sum that weights are divided by is
 * limited from below. Choosing more experts than exist is an error. */
void test_odd_logits()
{
    std::vector<float> l(3 * 5, NAN);
    l[2] = -INFINITY;
    for (size_t i = 5; i < 9; i++) l[i] = i == 6 ? NAN : (float) i;
    routes t(l, 3, 4, 3);
    must_run(pi__k_route(stream(), &t.a));
    const int32_t want[] = {2, 0, 1, 3, 2, 0, 0, 1, 2};
    for (size_t i = 0; i < 9; i++) expect_equal(t.id[i], want[i]);
    check_columns(t);

    routes many(std::vector<float>(20001, 1.0f), 1, 20000, 1);
    must_run(pi__k_route(stream(), &many.a));
    expect_true(std::fabs(many.weight[0] - 0.5 / 20000 / PI__K_MIN_SUM) < 1e-6);
    t.a.n_used = 5;
    expect_equal(pi__k_route(stream(), &t.a), 1);
}

/* ---------------------------------------------------------------------------------------------------------- the op */

/* A layer of experts and its input rows. */
struct fixture {
    device d;
    std::unique_ptr<stack> gate, up, down;
    int32_t max_rows;
    std::vector<float> x0, w0, l0;
    buffer<float> x, w, logits, y;
    pi__moe a = {};

    fixture(const int32_t (&type)[3], int64_t E, int64_t F, int32_t n_expert, int32_t n_used, int32_t rows, bool fused,
            bool fp4 = false)
        : d(fp4), max_rows(rows), x0(random(1).normals((size_t) (rows * E))), w0(random(2).normals((size_t) E)),
          l0(random(3).normals((size_t) (rows * (n_expert + 1)))), x(x0), w(w0), logits(l0),
          y((size_t) (rows * (E + 2)))
    {
        pi__limits lim = {};
        lim.max_tokens = rows, lim.max_seqs = 1, lim.max_rows = 1, lim.max_ctx = 64, lim.max_n_in = std::max(E, F);
        lim.max_n_out = lim.max_n_in, lim.max_n_head = 1, lim.max_head_dim = 64;
        lim.max_expert = n_expert, lim.max_used = n_used, lim.max_in_exp = E, lim.max_ff_exp = 2 * F;
        d.reserve(lim);
        gate.reset(new stack(d, type[0], E, fused ? 2 * F : F, n_expert));
        if (!fused) up.reset(new stack(d, type[1], E, F, n_expert));
        down.reset(new stack(d, type[2], F, E, n_expert));
        a.in = {PI__IN_PLAIN, x.get(), E, nullptr, 0, w.get(), 1e-6f, 0};
        a.logits = logits.get(), a.ldl = n_expert + 1, a.n_expert = n_expert, a.n_used = n_used, a.weights_scale = 1.5f;
        a.gate = &gate->w, a.up = fused ? nullptr : &up->w, a.down = &down->w, a.act = PI__IN_GEGLU;
        a.y = y.get(), a.ldy = E + 2;
    }
    int64_t E() const { return gate->w.n_in; }
    int64_t F() const { return down->w.n_in; }
    void set_logits(const std::vector<float> &l) { std::copy(l.begin(), l.end(), logits.get()), l0 = l; }
    /* Runs rows [first, first + n) only. */
    std::vector<float> run(int32_t first, int32_t n)
    {
        pi__moe part = a;
        y.fill(0xff);
        part.in.x += first * part.in.ldx;
        part.logits += first * part.ldl;
        part.y += first * part.ldy;
        part.n_rows = n;
        pi__op_moe(d.be, NULL, &part);
        d.finish();
        std::vector<float> out;
        for (size_t i = 0; i < y.size(); i++) {
            int64_t r = (int64_t) i / a.ldy;
            bool inside = r >= first && r < first + n && (int64_t) i % a.ldy < E();
            if (inside) out.push_back(y[i]);
            else expect_true(y[i] != y[i]); /* not written */
        }
        return out;
    }
};

double activated(int act, double v)
{
    if (act == PI__IN_SWIGLU_OAI) return v / (1 + std::exp(-1.702 * v));
    if (act == PI__IN_SWIGLU) return v / (1 + std::exp(-v));
    return 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
}

/* y += weight * expert e of x. Adds the allowed error to bound. */
void add_expert(const fixture &t, int32_t e, double weight, const std::vector<double> &x, std::vector<double> &y,
                       std::vector<double> &bound)
{
    std::vector<double> mid, off;
    for (int64_t i = 0; i < t.F(); i++) {
        double og, ou, g = dot(*t.gate, e, i, x, &og),
                       u = t.up ? dot(*t.up, e, i, x, &ou) : dot(*t.gate, e, t.F() + i, x, &ou);
        if (t.a.gate_bias) g += t.a.gate_bias[e * t.F() + i], u += t.a.up_bias[e * t.F() + i];
        const double most = std::fabs((double) t.a.limit);
        if (t.a.limit > 0) g = std::min(g, most);
        if (most > 0) u = std::min(std::max(u, -most), most);
        if (t.a.act == PI__IN_SWIGLU_OAI) u += 1;
        mid.push_back((t.a.limit < 0 ? std::min(activated(t.a.act, g), most) : activated(t.a.act, g)) * u);
        off.push_back(1.2 * og * (std::fabs(u) + ou) + (std::fabs(g) + og) * ou);
    }
    for (int64_t o = 0; o < t.E(); o++) {
        double size, v = dot(*t.down, e, o, mid, &size);
        for (int64_t i = 0; i < t.F(); i++)
            size += std::fabs(t.down->values[(size_t) ((e * t.E() + o) * t.F() + i)] * t.down->factors[(size_t) e]) *
                    off[(size_t) i];
        if (t.a.down_bias) v += t.a.down_bias[e * t.a.ld_down_bias + o];
        y[(size_t) o] += weight * v;
        bound[(size_t) o] += std::fabs(weight) * (1.1 * size + 1e-5 * std::fabs(v));
    }
}

void check_row(const fixture &t, int32_t r, const std::vector<float> &got)
{
    const size_t E = (size_t) t.E(), first = (size_t) r * E;
    std::vector<double> x(t.x0.begin() + (long) first, t.x0.begin() + (long) (first + E)), y(E), bound(E, 1e-6), weight;
    std::vector<int32_t> id;
    double ss = 0;
    for (double v : x) ss += v * v;
    for (size_t i = 0; i < E; i++)
        x[i] *= t.a.in.kind == PI__IN_RMSNORM ? t.w0[i] / std::sqrt(ss / (double) E + 1e-6) : 1;
    route(&t.l0[(size_t) (r * t.a.ldl)], t.a.n_expert, t.a.n_used, t.a.weights_scale, id, weight, t.a.bias);
    for (size_t k = 0; k < id.size(); k++) add_expert(t, id[k], weight[k], x, y, bound);
    for (size_t i = 0; i < E; i++) {
        if (!within(std::fabs(got[first + i] - y[i]), bound[i]))
            fail_check("%s, row %d of %d, result %zu: %g, expected %g +- %g", pi__type_info_of(t.gate->w.type)->name, r,
                       t.max_rows, i, (double) got[first + i], y[i], bound[i]);
    }
}

int64_t unit_of(int32_t type) { return std::max<int64_t>(32, pi__type_info_of(type)->blck_size); }

/* Every format for gate, up and down, with sizes that do not fit the tiles. */
void test_formats()
{
    const int n = sizeof types / sizeof *types;
    const int32_t experts[] = {1, 4, 7}, rows[] = {1, 3, 23};
    for (int i = 0; i < n; i++) {
        const int32_t type[3] = {types[i], types[(i + i % 2 * 7) % n], types[(i + 3) % n]};
        int64_t E = std::max(unit_of(type[0]), unit_of(type[1])),
                F = pi__type_is_float(type[2]) ? 77 : unit_of(type[2]);
        if (pi__type_is_float(type[0]) && pi__type_is_float(type[1])) E = 45;
        if (E == 32) E = 96;
        if (F == 32) F = 160;
        fixture t(type, E, F, experts[i % 3], experts[i % 3] == 1 ? 1 : 1 + i % 3, rows[i / 3 % 3], i % 4 == 0);
        t.a.act = i % 2 ? PI__IN_GEGLU : PI__IN_SWIGLU;
        t.a.limit = i % 4 ? 0 : i % 8 ? -0.4f : 0.75f;
        t.a.in.kind = i % 3 ? PI__IN_PLAIN : PI__IN_RMSNORM;
        std::vector<float> y = t.run(0, t.max_rows);
        for (int32_t r = 0; r < t.max_rows; r += 11) check_row(t, r, y);
    }
}

/* Biases of experts and of the router's logits, with products in integers, 16-bit floats and floats, for few and many
 * rows. */
void test_biases()
{
    const int32_t type[][3] = {
        {PI__MXFP4, PI__MXFP4, PI__MXFP4}, {PI__Q5_0, PI__Q5_0, PI__Q8_0}, {PI__F32, PI__F32, PI__F32}};
    for (const auto &ty : type) {
        fixture t(ty, 64, 96, 5, 2, 34, ty[0] == PI__F32);
        random r(9);
        buffer<float> gate(r.normals(5 * 96)), up(r.normals(5 * 96)), down(r.normals(5 * 64)), bias(r.normals(5));
        t.a.act = PI__IN_SWIGLU_OAI, t.a.limit = 0.75f, t.a.bias = bias.get();
        t.a.gate_bias = gate.get(), t.a.up_bias = up.get(), t.a.down_bias = down.get(), t.a.ld_down_bias = 64;
        const std::vector<float> y = t.run(0, t.max_rows), one = t.run(33, 1);
        for (int32_t i = 0; i < t.max_rows; i += 11) check_row(t, i, y);
        expect_bytes(one.data(), &y[33 * 64], 64 * sizeof(float));
    }
}

/* If rows go to few experts, there are tiles of every width, and the last experts get no rows. */
void test_many_rows()
{
    fixture t({PI__Q8_0, PI__Q5_0, PI__F16}, 64, 32, 6, 3, 75, false);
    for (int32_t kind = 0; kind < 2; kind++) {
        std::vector<float> l;
        for (int32_t r = 0; r < t.max_rows; r++)
            for (int32_t e = 0; e < 7; e++)
                l.push_back(kind ? 1.0f : e > 4 ? -3.0f : r % 7 == 0 ? 0.25f : r % 5 == e ? 2 : e == 4 ? 3 : 0);
        t.set_logits(l);
        std::vector<float> y = t.run(0, t.max_rows);
        for (int32_t r = 0; r < t.max_rows; r += 3) check_row(t, r, y);
    }
}

/* Three expert matrices and packed rows. One row in ten goes to matrix 0, the others to matrix 1. */
struct columns {
    device d;
    stack s;
    matrix one;
    int32_t rows;
    std::unique_ptr<routes> t;
    buffer<float> want, got;
    std::unique_ptr<buffer<char>> prepared;

    columns(int32_t type, int64_t E, int64_t F, int32_t n)
        : s(d, type, E, F, 3), one(make_matrix(type, E, F)), rows(n), want((size_t) (n * F)), got((size_t) (n * F))
    {
        random random(5);
        buffer<float> x(random.normals((size_t) (rows * E)));
        std::vector<float> l;
        for (int32_t r = 0; r < rows; r++) l.insert(l.end(), {0, r % 10 ? 1.0f : -1.0f, -2, 0});
        t.reset(new routes(l, rows, 3, 1));
        must_run(pi__k_route(stream(), &t->a));
        pi__k_input in = {PI__IN_PLAIN, x.get(), E, nullptr, 0, nullptr, 0, 0};
        prepared.reset(new buffer<char>(pi__k_packed_x_bytes(rows, E, pi__type_is_float(type))));
        must_run(pi__k_pack_x(stream(), &in, rows, E, pi__type_is_float(type), prepared->get()));
        one.m.data = (const uint8_t *) s.w.data;
    }
    void run()
    {
        pi__k_experts e = {};
        e.w = one.m;
        e.row = t->row.get();
        e.y = got.get(), e.ldy = one.m.n_out;
        got.fill(0xff);
        must_run(pi__k_experts_run(stream(), &t->a, &e, prepared->get()));
    }
    /* Checks that the columns of each expert are bitwise identical to op linear's kernels on the same rows. */
    void check()
    {
        const int64_t F = one.m.n_out;
        for (int32_t k = 0; k < 2; k++) {
            pi__k_matrix m = one.m;
            m.data += (size_t) k * m.shape.mat_bytes;
            const pi__k_product product = {m, want.get(), F, 0};
            must_run(pi__k_linear(stream(), &product, 1, prepared->get(), rows));
            for (int32_t r = 0; r < rows; r++)
                if ((r % 10 != 0) == k)
                    expect_bytes(want.get() + r * F, got.get() + t->column[(size_t) r] * F, (size_t) F * 4);
        }
    }
};

void test_linear()
{
    for (int32_t type : one_of(types)) {
        columns c(type, 512, 137, 109);
        c.run();
        c.check();
    }
}

/* Every order of threads and copies gives bitwise identical results, with copies of 16 bytes and bulk copies. */
void test_modes()
{
    for (int32_t type : one_of({PI__Q4_K, PI__Q8_0})) {
        columns c(type, 256, 140, 50);
        on_all_archs([&] { in_all_modes([&] { c.run(), c.check(); }); });
    }
}

/* A row is bitwise identical in a batch of one, in any other batch, and in every order of threads and blocks. */
void test_batch_composition()
{
    const int32_t kinds[][3] = {
        {PI__Q4_K, PI__Q4_K, PI__Q5_1}, {PI__Q6_K, PI__NVFP4, PI__IQ4_NL}, {PI__BF16, PI__BF16, PI__F32}};
    for (auto &k : kinds) {
        fixture t(k, 256, 64, 9, 4, 37, false);
        const size_t E = (size_t) t.E();
        std::vector<float> all = t.run(0, t.max_rows);
        for (int32_t first = 0; first < t.max_rows; first += 12) {
            for (int32_t n : sizes<int32_t>({1, 11})) {
                n = std::min(n, t.max_rows - first);
                expect_bytes(t.run(first, n).data(), &all[(size_t) first * E], (size_t) n * E * 4);
            }
        }
        if (slow()) return; /* the emulator is itself emulated */
        if (k[0] == PI__Q4_K)
            in_all_modes([&] { expect_bytes(t.run(0, t.max_rows).data(), all.data(), all.size() * 4); });
    }
}

/* Returns a row times matrix e of a stack: with FP4 activations or by 16-bit tensor cores, if the type supports it. */
std::vector<float> multiply(const stack &s, int32_t e, const pi__k_input &in)
{
    pi__k_matrix m = {};
    m.type = s.w.type, m.n_in = s.w.n_in, m.n_out = s.w.n_out, m.scale = s.scale->get() + e;
    expect_true(pi__cuda_shape_of(m.type, m.n_in, m.n_out, &m.shape));
    m.data = (const uint8_t *) s.w.data + (size_t) e * m.shape.mat_bytes;
    buffer<char> prepared(pi__k_mma16_packed_x_bytes(PI__BF16, 1, m.n_in)); /* the largest size */
    buffer<float> y((size_t) m.n_out);
    if (m.type == PI__NVFP4 || m.type == PI__MXFP4) {
        must_run(pi__k_fp4_pack_x(stream(), &in, m.type, 1, m.n_in, prepared.get()));
        const pi__k_product one = {m, y.get(), m.n_out, 0};
        must_run(pi__k_fp4_linear(stream(), &one, 1, prepared.get(), 1));
    } else if (pi__k_mma16_has(m.type, m.n_in)) {
        must_run(pi__k_mma16_pack_x(stream(), &in, m.type, 1, m.n_in, prepared.get()));
        must_run(pi__k_mma16_linear(stream(), &m, prepared.get(), 1, y.get(), m.n_out));
    } else {
        must_run(pi__k_pack_x(stream(), &in, 1, m.n_in, pi__type_is_float(m.type), prepared.get()));
        const pi__k_product one = {m, y.get(), m.n_out, 0};
        must_run(pi__k_linear(stream(), &one, 1, prepared.get(), 1));
    }
    return std::vector<float>(y.get(), y.get() + y.size());
}

/* Returns row r of the op's result, computed by separate products of that row. */
std::vector<float> in_steps(const fixture &t, int32_t r)
{
    const int64_t E = t.E(), F = t.F(), ldl = t.a.ldl;
    std::vector<float> sum((size_t) E), logits(t.l0.begin() + r * ldl, t.l0.begin() + (r + 1) * ldl);
    routes way(logits, 1, t.a.n_expert, t.a.n_used);
    way.a.weights_scale = t.a.weights_scale;
    must_run(pi__k_route(stream(), &way.a));
    for (size_t k = 0; k < (size_t) t.a.n_used; k++) {
        const pi__k_input in = {t.a.in.kind, t.x.get() + r * E, E, nullptr, 0, t.w.get(), t.a.in.eps, 0};
        std::vector<float> h = multiply(*t.gate, way.id[k], in);
        if (t.up) {
            std::vector<float> up = multiply(*t.up, way.id[k], in);
            h.insert(h.end(), up.begin(), up.end());
        }
        buffer<float> mid(h);
        std::vector<float> y = multiply(*t.down, way.id[k],
                                        {t.a.act, mid.get(), 2 * F, mid.get() + F, 2 * F, nullptr, 0, t.a.limit});
        for (size_t i = 0; i < y.size(); i++) sum[i] = std::fma(way.weight[k], y[i], sum[i]);
    }
    return sum;
}

/* With fp4-mode w4a4, matrices of an FP4 type use FP4 activations, and the others their usual kernels. Results, also
 * with 16-bit float matrices, are bitwise identical to those of single rows. */
void test_fp4()
{
    need_fp4();
    const int32_t kinds[][3] = {{PI__NVFP4, PI__NVFP4, PI__NVFP4}, {PI__MXFP4, PI__MXFP4, PI__MXFP4},
                                {PI__MXFP4, PI__NVFP4, PI__Q8_0},  {PI__NVFP4, PI__Q4_K, PI__F32},
                                {PI__Q6_K, PI__MXFP4, PI__NVFP4},  {PI__BF16, PI__NVFP4, PI__MXFP4},
                                {PI__F16, PI__BF16, PI__F16},      {PI__BF16, PI__F32, PI__BF16}};
    for (auto &k : kinds) {
        const bool fused = &k == &kinds[1];
        fixture t(k, 256, k[2] == PI__MXFP4 ? 96 : 64, 5, 3, 71, fused, true);
        t.a.in.kind = fused ? PI__IN_PLAIN : PI__IN_RMSNORM;
        for (size_t i = 0; i < t.l0.size(); i++) t.l0[i] += i % 6 == 2 ? 3 : 0; /* many rows go to expert 2 */
        t.set_logits(std::vector<float>(t.l0));
        std::vector<float> all = t.run(0, t.max_rows);
        for (int32_t r = 0; r < t.max_rows; r += 10) {
            expect_bytes(in_steps(t, r).data(), &all[(size_t) (r * t.E())], (size_t) t.E() * 4);
            expect_bytes(t.run(r, 1).data(), &all[(size_t) (r * t.E())], (size_t) t.E() * 4);
        }
    }
    fixture exact(kinds[0], 64, 64, 2, 1, 1, false), rounded(kinds[0], 64, 64, 2, 1, 1, false, true);
    expect_true(std::memcmp(exact.run(0, 1).data(), rounded.run(0, 1).data(), 256));
}

/* An input that an earlier product has packed is not packed again, unless it may have changed since. */
void test_same_input()
{
    fixture t({PI__Q8_0, PI__Q8_0, PI__Q8_0}, 64, 32, 4, 2, 5, false);
    pi__weight one = t.gate->w;
    one.n_mat = 1;
    buffer<float> y(5 * 32), w(std::vector<float>(64, 1.0f)), other(random(9).normals(5 * 64));
    const pi__linear beside = {t.a.in, 5, 1, {{&one, y.get(), 32}}, nullptr};
    const pi__norm change = {t.x.get(), 64, other.get(), w.get(), 1e-6f, 5, 64};
    auto launches = [&](bool linear, bool norm, std::vector<float> &out) {
        const unsigned long before = counts_launches() ? now->emu->launched() : 0;
        if (linear) pi__op_linear(t.d.be, NULL, &beside);
        if (norm) pi__op_norm(t.d.be, NULL, &change);
        pi__moe all = t.a;
        all.n_rows = 5;
        pi__op_moe(t.d.be, NULL, &all);
        t.d.finish();
        out.assign(t.y.get(), t.y.get() + t.y.size());
        return counts_launches() ? now->emu->launched() - before : 0;
    };
    std::vector<float> alone, both, changed, again;
    t.y.fill(0);
    const unsigned long n = launches(false, false, alone), more = launches(true, false, both);
    expect_bytes(alone.data(), both.data(), alone.size() * 4);
    if (counts_launches()) expect_equal(more, n + 1); /* the product: the experts reuse its packed input */
    const unsigned long most = launches(true, true, changed);
    /* the norm, as the product's epilogue, changes the input: it is packed again */
    if (counts_launches()) expect_equal(most, n + 2);
    launches(false, false, again);
    expect_bytes(changed.data(), again.data(), changed.size() * 4);
    expect_true(std::memcmp(changed.data(), alone.data(), alone.size() * 4) != 0);
}

/* NaN and infinity stay within their row. */
void test_not_numbers()
{
    fixture t({PI__Q8_0, PI__Q8_0, PI__Q8_0}, 32, 32, 4, 2, 12, false);
    std::vector<float> before = t.run(0, 12), l = t.l0;
    for (size_t e = 0; e < 5; e++) l[3 * 5 + e] = NAN, l[4 * 5 + e] = e == 2 ? INFINITY : 0;
    t.set_logits(l);
    t.x[5 * 32 + 7] = NAN;
    std::vector<float> y = t.run(0, 12);
    for (size_t r = 0; r < 12; r++) {
        if (r < 3 || r > 5) expect_bytes(&y[r * 32], &before[r * 32], 128);
        else for (size_t i = 0; i < 32; i++) expect_true(!std::isfinite(y[r * 32 + i]));
    }
}

/* ----------------------------------------------------------------------------------------------- matrices of heads */

/* Matrices of heads, and rows with a part for each head. */
struct heads {
    device d;
    std::unique_ptr<stack> w;
    int32_t max_rows, tail;
    std::vector<float> x0;
    buffer<float> x, y;
    pi__head_linear a = {};

    heads(int32_t type, int64_t n_in, int64_t n_out, int32_t n_head, int32_t n_tail, int32_t rows,
          const char *name = nullptr, int matmul = PI__MATMUL_EXACT, bool fp4 = false)
        : d(fp4, name, matmul), max_rows(rows), tail(n_tail),
          x0(random(1).normals((size_t) (rows * n_head * (n_in + n_tail)))), x(x0),
          y((size_t) (rows * n_head * (n_out + n_tail)))
    {
        pi__limits lim = {};
        lim.max_tokens = rows, lim.max_seqs = 1, lim.max_rows = 1, lim.max_ctx = 64, lim.max_n_in = n_in,
        lim.max_n_out = n_out;
        lim.max_n_head = 1, lim.max_head_dim = 64, lim.n_head_mat = n_head, lim.head_in = n_in, lim.head_out = n_out;
        d.reserve(lim);
        w.reset(new stack(d, type, n_in, n_out, n_head));
        a.w = &w->w, a.x_step = n_in + n_tail, a.ldx = n_head * a.x_step, a.n_tail = n_tail, a.y_step = n_out + n_tail;
        a.ldy = n_head * a.y_step;
    }
    std::vector<float> run(int32_t first, int32_t n)
    {
        a.x = x.get() + first * a.ldx, a.y = y.get(), a.n_rows = n;
        y.fill(0xff);
        pi__op_head_linear(d.be, NULL, &a);
        d.finish();
        return std::vector<float>(y.get(), y.get() + n * a.ldy);
    }
};

/* Returns head h's results for all rows by op linear: [rows, n_out]. */
std::vector<float> by_linear(heads &t, int32_t h)
{
    const int64_t n_out = t.w->w.n_out;
    buffer<float> y((size_t) (t.max_rows * n_out));
    pi__weight w = t.w->w;
    w.n_mat = 1, w.size /= (size_t) t.w->w.n_mat;
    w.data = (char *) w.data + (size_t) h * w.size;
    if (w.scale) w.scale += h;
    pi__linear a = {};
    a.in.kind = PI__IN_PLAIN, a.in.x = t.x.get() + h * t.a.x_step, a.in.ldx = t.a.ldx, a.n_rows = t.max_rows,
    a.n_lin = 1;
    a.lin[0] = {&w, y.get(), n_out};
    pi__op_linear(t.d.be, NULL, &a);
    t.d.finish();
    return std::vector<float>(y.get(), y.get() + y.size());
}

void check_heads(const heads &t, int32_t r, const float *got)
{
    for (int32_t h = 0; h < t.w->w.n_mat; h++) {
        const float *from = &t.x0[(size_t) (r * t.a.ldx + h * t.a.x_step)], *to = got + h * t.a.y_step;
        const std::vector<double> x(from, from + t.w->w.n_in);
        for (int64_t o = 0; o < t.w->w.n_out; o++) {
            double off, want = dot(*t.w, h, o, x, &off);
            if (!within(std::fabs(to[o] - want), off + 1e-5))
                fail_check("%s, row %d of %d, head %d, result %d: %g, expected %g +- %g",
                           pi__type_info_of(t.w->w.type)->name, r, t.max_rows, h, (int) o, (double) to[o], want, off);
        }
        expect_bytes(to + t.w->w.n_out, from + t.w->w.n_in, (size_t) t.tail * 4);
    }
}

/* Checks all rows in one call against double precision and the CPU's op; rows in a batch of one are bitwise identical.
 * Also with more rows than one pass takes. */
void test_heads()
{
    const struct { int32_t type; int64_t n_in, n_out; int32_t n_head, tail, rows;
    } cases[] = {{PI__F32, 48, 80, 5, 16, 11},
                 {PI__Q8_0, 128, 512, 3, 64, 9},
                 {PI__F16, 512, 128, 4, 0, 40},
                 {PI__BF16, 192, 64, 2, 16, 150},
                 {PI__Q4_K, 512, 48, 2, 0, 70}};
    for (const auto &c : one_of(cases)) {
        if (slow() && c.rows > 20) continue;
        heads t(c.type, c.n_in, c.n_out, c.n_head, c.tail, c.rows),
            cpu(c.type, c.n_in, c.n_out, c.n_head, c.tail, c.rows, "cpu");
        const std::vector<float> all = t.run(0, c.rows), beside = cpu.run(0, c.rows);
        const size_t ld = (size_t) t.a.ldy;
        for (int32_t r = 0; r < c.rows; r += 7)
            check_heads(t, r, &all[(size_t) r * ld]), check_heads(t, r, &beside[(size_t) r * ld]);
        for (int32_t r = 0; r < c.rows; r += 31) expect_bytes(t.run(r, 1).data(), &all[(size_t) r * ld], ld * 4);
        expect_bytes(t.run(1, c.rows - 1).data(), &all[ld], all.size() * 4 - ld * 4);
    }
    std::vector<float> first;
    if (!slow()) in_all_modes([&] {
        heads t(PI__Q8_0, 32, 48, 3, 16, 10);
        const std::vector<float> all = t.run(0, 10);
        if (first.empty()) first = all;
        expect_bytes(first.data(), all.data(), all.size() * 4);
    });
}

/* With 16-bit floats, few rows take two launches. In every matmul mode, they are bitwise identical to many rows and to
 * op linear. Covers rows of fewer blocks than slices and longer ones, and partly filled tiles of 64 rows of W. */
void test_few_heads()
{
    const struct { int32_t type, matmul; int64_t n_in, n_out; int32_t tail; bool fp4; const char *name;
    } cases[] = {{PI__Q8_0, PI__MATMUL_AUTO, 128, 80, 16, false, nullptr},
                 {PI__NVFP4, PI__MATMUL_AUTO, 512, 64, 0, false, nullptr},
                 {PI__Q4_K, PI__MATMUL_AUTO, 1280, 144, 4, false, nullptr},
                 {PI__MXFP4, PI__MATMUL_W16, 96, 40, 7, false, nullptr},
                 {PI__IQ4_XS, PI__MATMUL_AUTO, 256, 17, 0, false, nullptr},
                 {PI__Q4_0, PI__MATMUL_AUTO, 64, 128, 0, false, nullptr},
                 {PI__Q6_K, PI__MATMUL_AUTO, 512, 48, 3, false, nullptr},
                 {PI__Q8_0, PI__MATMUL_EXACT, 320, 48, 0, false, nullptr},
                 {PI__BF16, PI__MATMUL_AUTO, 160, 48, 0, false, nullptr},
                 {PI__F32, PI__MATMUL_AUTO, 96, 24, 0, false, nullptr},
                 {PI__NVFP4, PI__MATMUL_AUTO, 256, 64, 0, true, nullptr},
                 {PI__MXFP4, PI__MATMUL_AUTO, 256, 64, 0, true, nullptr},
                 {PI__Q8_0, PI__MATMUL_EXACT, 128, 80, 16, false, "cpu"},
                 {PI__Q4_K, PI__MATMUL_EXACT, 256, 48, 0, false, "cpu"}};
    enum { HEADS = 4, ROWS = 35 }; /* the memory ends directly after the last of the four matrices */
    for (const auto &c : one_of(cases)) {
        about("%s, %d columns", pi__type_info_of(c.type)->name, (int) c.n_in);
        heads t(c.type, c.n_in, c.n_out, HEADS, c.tail, ROWS, c.name, c.matmul, c.fp4);
        const std::vector<float> all = t.run(0, ROWS);
        const size_t ld = (size_t) t.a.ldy;
        for (int32_t n : sizes<int32_t>({1, 8, 9, 32})) {
            const std::vector<float> few = t.run(ROWS - n, n);
            expect_bytes(few.data(), &all[(size_t) (ROWS - n) * ld], few.size() * 4);
        }
        for (int32_t h = 0; h < HEADS; h++) {
            const std::vector<float> want = by_linear(t, h);
            for (int32_t r = 0; r < ROWS; r++)
                expect_bytes(&all[(size_t) r * ld + (size_t) (h * t.a.y_step)], &want[(size_t) (r * c.n_out)],
                             (size_t) c.n_out * 4);
        }
    }
    heads t(PI__Q8_0, 64, 80, 2, 16, 265, nullptr, PI__MATMUL_AUTO); /* more rows than one pass takes */
    const std::vector<float> all = t.run(0, 265);
    for (int32_t row : {0, 120, 245})
        expect_bytes(t.run(row, 20).data(), &all[(size_t) (row * t.a.ldy)], (size_t) (20 * t.a.ldy) * 4);
    std::vector<float> first;
    in_all_modes([&] {
        heads t(PI__Q4_K, 256, 80, 3, 16, 9, nullptr, PI__MATMUL_AUTO);
        const std::vector<float> all = t.run(0, 9);
        if (first.empty()) first = all;
        expect_bytes(first.data(), all.data(), all.size() * 4);
    });
}

/* More rows than were reserved, and types without kernels, are errors. */
void test_refused()
{
    fixture t({PI__Q8_0, PI__Q8_0, PI__Q8_0}, 32, 32, 4, 2, 300, false);
    pi__weight w = {};
    pi_error err;
    w.type = PI__F64, w.n_in = 256, w.n_out = 16, w.n_mat = 4;
    expect_equal(t.d.be->dev->weight_size(t.d.be, &w), 0);
    t.a.n_rows = 400;
    pi__op_moe(t.d.be, NULL, &t.a);
    expect_equal(t.d.be->dev->finish(t.d.be, &err), PI_ENOMEM);
    t.a.n_used = 5;
    t.a.n_rows = 1;
    pi__op_moe(t.d.be, NULL, &t.a);
    expect_equal(t.d.be->dev->finish(t.d.be, &err), PI_EDEVICE);
}

const entry checks[] = {
    {"routing", test_routing}, {"softplus", test_softplus}, {"tile_bounds", test_tile_bounds},
    {"choice", test_choice}, {"mixer", test_mixer}, {"heads", test_heads}, {"few_heads", test_few_heads},
    {"odd_logits", test_odd_logits}, {"formats", test_formats}, {"biases", test_biases},
    {"many_rows", test_many_rows}, {"linear", test_linear}, {"modes", test_modes},
    {"batch_composition", test_batch_composition}, {"fp4", test_fp4}, {"same_input", test_same_input},
    {"not_numbers", test_not_numbers},
    {"refused", test_refused},
};

} // namespace

const family checks_of_moe = {"moe", "routed experts", checks, sizeof checks / sizeof *checks};

} // namespace selftest
