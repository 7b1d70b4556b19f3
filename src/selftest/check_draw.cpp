/* Checks that tokens drawn on the device equal the host sampler's: the next token, and the token after it. Each row has
 * its own penalties, top-p, min-p and temperature, with or without top-k; the rows' logits are of all kinds
 * (row_of). */
#include "selftest/checks.h"

#include <algorithm>

#include "backend/cuda/kernels_draw.h"

extern "C" {
#include "sampler/sampler.h"
}

namespace selftest {
namespace {

enum { KINDS = 9 };

/* kind 0: normally distributed; 1: ties; 2: all equal; 3: one peak; 4: with NaN; 5: with infinities; 6: only -infinity
 * and NaN; 7: so large that division by the temperature overflows; 8: zeros of both signs */
std::vector<float> row_of(random &r, int64_t n, int kind)
{
    std::vector<float> v = r.normals((size_t) n);
    for (size_t i = 0; i < v.size(); i++) {
        v[i] *= 3;
        if (kind == 1) v[i] = std::floor(v[i]);
        if (kind == 2) v[i] = -2.5f;
        if (kind == 3 && i == v.size() / 3) v[i] = 30;
        if (kind == 4 && i % 7 == 3) v[i] = NAN;
        if (kind == 5 && i % 97 == 4) v[i] = i % 2 ? INFINITY : -INFINITY;
        if (kind == 6) v[i] = i % 2 ? -INFINITY : NAN;
        if (kind == 7) v[i] *= 1e36f;
        if (kind == 8) v[i] = i % 3 ? -0.0f : 0.0f;
    }
    return v;
}

enum { FED = 1 /* the next token, already drawn, of requests that draw the token after it */ };

/* Sets penalties for two thirds of the requests. */
void add_penalties(random &r, int i, pi__sampling *p)
{
    if (i % 3 == 1) return;
    p->repeat_penalty = i % 2 ? 1 : (float) (1 + r.uniform());
    p->presence_penalty = i % 4 ? (float) r.uniform() : 0;
    p->frequency_penalty = i % 5 ? (float) r.uniform() : 0.5f;
    p->repeat_last_n = i % 4 == 1 ? 1 : 1 + (int32_t) r.below(PI__MAX_SEEN);
    if (p->top_k > PI__K_TOP - PI__MAX_SEEN) p->top_k = PI__K_TOP - PI__MAX_SEEN;
}

/* Returns the token ids of a row by descending logit; equal logits by ascending id, NaN last. */
std::vector<int32_t> by_value(const std::vector<float> &row)
{
    std::vector<int32_t> id(row.size());
    for (size_t k = 0; k < id.size(); k++) id[k] = (int32_t) k;
    std::stable_sort(id.begin(), id.end(), [&](int32_t a, int32_t b) {
        const bool odd = row[(size_t) a] != row[(size_t) a];
        return row[(size_t) a] > row[(size_t) b] || (odd < (row[(size_t) b] != row[(size_t) b]));
    });
    return id;
}

/* A request and its row, after some accepted tokens: the topk request, the draw parameters and the expected token. The
 * accepted tokens are among the row's 20 best, or anywhere. most: largest top-k; 0 = top-k is off. */
struct request {
    int32_t asks[3];
    pi__draw draw;
    uint32_t seen[PI__MAX_SEEN] = {};
    int32_t want;

    request(random &r, int i, int32_t n, int32_t most, std::vector<float> row)
    {
        static const uint8_t chain[] = {PI__SMP_PENALTIES, PI__SMP_DRY, PI__SMP_TOP_K, PI__SMP_TOP_P, PI__SMP_MIN_P,
                                        PI__SMP_TEMPERATURE, PI__SMP_N};
        pi_error err;
        pi__sampler *s;
        pi__sampler_scratch *w;
        pi__sampling p = {};
        bool sum;
        p.seed = (uint64_t) i + 1;
        p.temp = i % 6 == 5 ? 0 : i % 4 == 3 ? 1 : (float) (0.1 + 2 * r.uniform());
        p.top_k = most ? 1 + (int32_t) r.below((unsigned) most) : 0;
        p.top_p = i % 3 ? (float) (most ? r.uniform() : 1 - 0.5 * r.uniform()) : 1;
        p.min_p = i % 5 > 2 ? (float) (0.3 * r.uniform()) : 0;
        p.typical_p = p.repeat_penalty = 1;
        p.adaptive_target = -1;
        add_penalties(r, i, &p);
        std::memcpy(p.chain, chain, sizeof chain);
        if (pi__sampler_create(&s, &p, n, 1000, &err) || pi__sampler_scratch_create(&w, n, &err))
            fail_check("%s", err.msg);
        const std::vector<int32_t> best = by_value(row);
        for (int k = 0; k < i; k++) pi__sampler_accept(s, k);
        for (int k = 0; k < 7 * i; k++) pi__sampler_accept(s, best[r.below((unsigned) (i % 2 ? 20 : n))]);
        const bool can = pi__sampler_draw(s, i % 2, &draw, seen);
        asks[0] = pi__sampler_draw_top(s, &sum), asks[1] = 0, asks[2] = sum;
        if (i % 2) pi__sampler_accept(s, FED);
        want = pi__sampler_sample(s, w, row.data(), nullptr, 0);
        pi__sampler_free(s);
        pi__sampler_scratch_free(w);
        expect_true(can && asks[0] > 0 && (asks[0] <= most || !most || p.repeat_last_n));
    }
};

/* Draws from n_rows rows of n values, of all kinds. most: as in request. */
void run_rows(int32_t n, int n_rows, int32_t most)
{
    random r((uint64_t) n);
    std::vector<float> all;
    std::vector<int32_t> asks, want;
    std::vector<pi__draw> draws;
    std::vector<uint32_t> lists;
    int32_t k = 0, sum = 0;
    for (int i = 0; i < n_rows; i++) {
        const std::vector<float> row = row_of(r, n, i % KINDS);
        const request q(r, i, n, most, row);
        all.insert(all.end(), row.begin(), row.end());
        asks.insert(asks.end(), q.asks, q.asks + 3);
        draws.push_back(q.draw);
        lists.insert(lists.end(), q.seen, q.seen + PI__MAX_SEEN);
        want.push_back(q.want);
        k = q.asks[0] > k ? q.asks[0] : k;
        sum |= q.asks[2];
    }
    asks[3] = 0; /* row 1 is padding: it requests no values, and its token is -1 */
    want[1] = -1;
    buffer<int32_t> request(asks);
    buffer<pi__draw> draw(draws);
    buffer<uint32_t> seen(lists);
    buffer<int32_t> token(std::vector<int32_t>(1, FED)), index(std::vector<int32_t>((size_t) n_rows, 0));
    in_all_modes([&] {
        buffer<float> x(all);
        buffer<char> scratch(pi__k_top_scratch(n_rows, n));
        buffer<uint64_t> found((size_t) (n_rows * (2 + k))), out((size_t) n_rows * 3);
        pi__k_top a = {};
        a.x = x.get(), a.n_rows = n_rows, a.k = k, a.n = n, a.skip = request.get(), a.request = request.get(),
        a.sum = sum;
        a.scratch = scratch.get(), a.out = found.get();
        must_run(pi__k_top_run(stream(), &a));
        const pi__k_draw d = {found.get(),
                              request.get(),
                              draw.get(),
                              seen.get(),
                              token.get(),
                              index.get(),
                              n_rows,
                              k,
                              out.get(),
                              most ? nullptr : x.get(),
                              n};
        must_run(pi__k_draw_run(stream(), &d));
        expect_bytes(x.get(), all.data(), all.size() * sizeof(float));
        for (size_t i = 0; i < (size_t) n_rows; i++) {
            about("row %zu of %d values", i, (int) n);
            expect_equal(out[3 * i], want[i] < 0);
            if (want[i] >= 0) expect_equal(out[3 * i + 2], want[i]);
        }
    });
}

void test_kinds()
{
    run_rows(300, 2 * KINDS, 40);
    if (!slow()) run_rows(777, 12 * KINDS, 64);
}

/* The largest top-k, and a top-k of 1. */
void test_most()
{
    run_rows(1000, slow() ? KINDS : 4 * KINDS, PI__K_TOP);
    run_rows(500, 2 * KINDS, 1);
}

/* Without top-k: in many rows, the filters keep more values than the topk result has. */
void test_rows()
{
    run_rows(300, KINDS, 0);
    run_rows(1500, slow() ? KINDS : 4 * KINDS, 0);
    if (!slow()) run_rows(20000, KINDS, 0);
}

const entry checks[] = {{"kinds", test_kinds}, {"most", test_most}, {"rows", test_rows}};

} // namespace

const family checks_of_draw = {"draw", "tokens drawn", checks, sizeof checks / sizeof *checks};

} // namespace selftest
