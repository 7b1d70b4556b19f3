/* Checks top kernels against a sort: rows of all sizes and kinds, each with its own request, in every order of threads
 * and copies. Sums are bitwise identical to the sampler's. */
#include "selftest/checks.h"

#include <algorithm>

#include "backend/cuda/kernels.h"

extern "C" {
float pi__row_max(const float *x, int32_t n, bool *odd);
double pi__row_exp_sum(const float *x, int32_t n, float max);
}

namespace selftest {
namespace {

/* kind 0: normally distributed; 1: ties; 2: all equal; 3: zeros of both signs; 4: with NaN; 5: with infinities; 6: no
 * value above -infinity; 7: ascending */
std::vector<float> row_of(random &r, int64_t n, int kind)
{
    std::vector<float> v = r.normals((size_t) n);
    for (size_t i = 0; i < v.size(); i++) {
        if (kind == 0) v[i] *= 8;
        if (kind == 1) v[i] = std::floor(v[i]);
        if (kind == 2) v[i] = -2.5f;
        if (kind == 3) v[i] = i % 3 ? -0.0f : 0.0f;
        if (kind == 4 && i % 7 == 3) v[i] = NAN;
        if (kind == 5 && i % 5 == 4) v[i] = i % 2 ? INFINITY : -INFINITY;
        if (kind == 6) v[i] = -INFINITY;
        if (kind == 7) v[i] = (float) i;
    }
    return v;
}

uint64_t key_of(float f, uint32_t i)
{
    uint32_t u;
    f += 0.0f;
    memcpy(&u, &f, 4);
    u = u >> 31 ? ~u : u | 0x80000000u;
    return (uint64_t) ~u << 32 | i;
}

/* Checks a row's top-k result. */
void check_row(const std::vector<float> &v, const int32_t *request, const uint64_t *out)
{
    std::vector<uint64_t> want;
    bool odd = false, some = false;
    for (size_t i = 0; i < v.size(); i++) {
        some |= v[i] > -INFINITY;
        if (v[i] > -INFINITY) want.push_back(key_of(v[i], (uint32_t) i));
    }
    const float max = pi__row_max(v.data(), (int32_t) v.size(), &odd);
    std::sort(want.begin(), want.end());
    if (want.size() > (size_t) request[0]) want.resize((size_t) request[0]);
    expect_equal((uint32_t) out[0], (size_t) request[0] - want.size());
    expect_equal(out[0] >> 32, odd);
    for (size_t i = 0; i < want.size(); i++) expect_equal(out[2 + i], want[i]);
    if (!request[2] || odd || !some) return;
    const double sum = pi__row_exp_sum(v.data(), (int32_t) v.size(), max);
    expect_bytes(&out[1], &sum, sizeof sum);
}

/* Checks n_rows rows of n values. Row i is of kind (kind + i) % 8 and has its own request of at most k values. */
void run_rows(int64_t n, int kind, int n_rows, int k)
{
    random r((uint64_t) (n + kind));
    const std::vector<int32_t> skipped = {(int32_t) n - 1, 0, (int32_t) (n / 2)};
    std::vector<float> all;
    std::vector<int32_t> wishes;
    std::vector<std::vector<float>> rows;
    for (int i = 0; i < n_rows; i++) {
        rows.push_back(row_of(r, n, (kind + i) % 8));
        all.insert(all.end(), rows.back().begin(), rows.back().end());
        const int32_t own = i % 4 == 3   ? 0
                            : i % 4 == 2 ? 1
                            : i % 4 == 1 ? 1 + k / 3
                                         : k,
                      skips = i % 3 == 2 ? 3 : i % 3;
        wishes.insert(wishes.end(), {own, skips, i % 2 == 0});
        for (int32_t s = 0; s < skips; s++) rows.back()[(size_t) skipped[(size_t) s]] = -INFINITY;
    }
    buffer<int32_t> left_out(skipped), request(wishes);
    in_all_modes([&] {
        buffer<float> x(all);
        buffer<char> scratch(pi__k_top_scratch(n_rows, n));
        buffer<uint64_t> out((size_t) (n_rows * (2 + k)));
        pi__k_top a = {};
        a.x = x.get();
        a.n_rows = n_rows;
        a.k = k;
        a.n = n;
        a.skip = left_out.get();
        a.request = request.get();
        a.sum = 1;
        a.scratch = scratch.get();
        a.out = out.get();
        must_run(pi__k_top_run(stream(), &a));
        for (int i = 0; i < n_rows; i++)
            if (wishes[(size_t) i * 3]) check_row(rows[(size_t) i], &wishes[(size_t) i * 3], out.get() + i * (2 + k));
    });
}

void test_sizes()
{
    for (int64_t n : sizes<int64_t>({1, 2, 63, 64, 65, 255, 257, 1000, 2048, 2049})) run_rows(n, (int) n % 8, 3, 40);
}

void test_kinds()
{
    for (int kind = 0; kind < 8; kind++) run_rows(777, kind, 1, 100);
    run_rows(777, 3, 8, 17);
}

void test_greedy()
{
    for (int64_t n : sizes<int64_t>({1, 65, 3001})) run_rows(n, 0, 8, 1);
}

/* Long rows: thread blocks with more threads, and more groups of values than requested values. */
void test_long()
{
    run_rows(20011, 0, 1, PI__K_TOP);
    if (slow()) return;
    run_rows(20011, 1, 1, PI__K_TOP);
    run_rows(20011, 2, 1, 3);
    run_rows(270001, 1, 1, 50);
}

/* Tokens from topk results, by row index; 0 for a row without a result. */
void test_tokens()
{
    buffer<uint64_t> found(
        std::vector<uint64_t> {0, 0, key_of(1, 5), 1, 0, ~UINT64_C(0), UINT64_C(1) << 32, 0, key_of(-2, 70000)});
    buffer<int32_t> row(std::vector<int32_t> {2, 0, 1, 0}), token(5);
    must_run(pi__k_top_tokens(stream(), found.get(), row.get(), 4, token.get()));
    const int32_t want[] = {70000, 5, 0, 5, -1};
    expect_bytes(token.get(), want, sizeof want);
}

const entry checks[] = {
    {"sizes", test_sizes}, {"kinds", test_kinds}, {"greedy", test_greedy}, {"long", test_long}, {"tokens", test_tokens},
};

} // namespace

const family checks_of_top = {"top", "largest values", checks, sizeof checks / sizeof *checks};

} // namespace selftest
