/* Main loops have no bank conflicts: twice as many columns do not add wavefronts of shared memory beyond the minimum.
 * Only instrumented kernels show plain loads (counters.h). */
#include "counters.h"
#include "simt_test.h"

extern "C" {
#include "backend/cuda/kernels.h"
#include "formats/formats.h"
}

using namespace simt_test;

namespace {

/* Counts of the single launch in run(). */
template <class F> simt::launch_counts counts_of(const F &run)
{
    simt::counter c;
    simt::options.count = &c;
    must_run(run());
    simt::options.count = nullptr;
    assert_int_equal(c.launches.size(), 1);
    return c.launches[0];
}

simt::launch_counts product(int32_t type, int64_t n_in, int32_t rows, bool wgmma = false)
{
    pi__k_matrix w = {};
    assert_true(pi__cuda_shape_of(type, n_in, 64, &w.shape));
    buffer<uint8_t> data(w.shape.mat_bytes), prepared(pi__k_w16_packed_x_bytes(rows, n_in));
    buffer<float> y((size_t) rows * 64);
    data.fill(0);
    prepared.fill(0);
    w.data = data.get(), w.type = type, w.n_in = n_in, w.n_out = 64;
    const pi__k_product one = {w, y.get(), 64, 0};
    return counts_of([&] {
        if (wgmma) return pi__k_wgmma_linear(nullptr, &one, 1, prepared.get(), rows, 1);
        return pi__k_w16_linear(nullptr, &one, 1, prepared.get(), rows);
    });
}

void test_w16(void **)
{
    for (int32_t type : {PI__Q8_0, PI__Q4_0, PI__Q4_K, PI__Q6_K, PI__IQ4_XS, PI__MXFP4, PI__NVFP4}) {
        for (int32_t rows : {1, 16, 32, 64, 70}) {
            const simt::launch_counts some = product(type, 2048, rows), more = product(type, 4096, rows);
            const double mma = more.op[simt::DO_MMA_F16] + more.op[simt::DO_MMA_BF16];
            assert_true(mma > 0 && more.wavefronts > some.wavefronts);
            if (some.wavefronts - some.least != more.wavefronts - more.least) {
                fail_msg("%s, %d rows: 2048 columns more have %.0f wavefronts of shared memory for %.0f",
                         pi__type_info_of(type)->name, (int) rows, more.wavefronts - some.wavefronts,
                         more.least - some.least);
            }
        }
    }
}

/* Few rows, where only the sums of slices use shared memory, and many rows. */
void test_mma16(void **)
{
    for (int32_t type : {PI__F16, PI__BF16}) {
        for (int32_t rows : {1, 8, 32, 70}) {
            pi__k_matrix w = {};
            assert_true(pi__cuda_shape_of(type, 512, 32, &w.shape));
            buffer<uint8_t> data(w.shape.mat_bytes), prepared(pi__k_mma16_packed_x_bytes(type, rows, 512));
            buffer<float> y((size_t) rows * 32);
            data.fill(0);
            prepared.fill(0);
            w.data = data.get(), w.type = type, w.n_in = 512, w.n_out = 32;
            const simt::launch_counts n = counts_of(
                [&] { return pi__k_mma16_linear(nullptr, &w, prepared.get(), rows, y.get(), 32); });
            assert_true(n.op[simt::DO_MMA_F16] + n.op[simt::DO_MMA_BF16] > 0 && n.least > 0);
            if (n.wavefronts > 1.05 * n.least)
                fail_msg("%d rows: %.0f wavefronts for %.0f", (int) rows, n.wavefronts, n.least);
        }
    }
}

/* No conflicts except in the final addition of totals: rows of B are swizzled, and weights are contiguous. */
void test_wgmma(void **)
{
    simt::options.arch = 90, simt::options.no_mma = true;
    for (int32_t type : {PI__Q8_0, PI__Q4_0, PI__Q4_K, PI__Q6_K, PI__IQ4_XS, PI__MXFP4, PI__NVFP4}) {
        const simt::launch_counts some = product(type, 512, 9, true), more = product(type, 1024, 9, true);
        assert_true(more.op[simt::DO_WGMMA] > some.op[simt::DO_WGMMA] && more.wavefronts > some.wavefronts);
        if (some.wavefronts - some.least != more.wavefronts - more.least)
            fail_msg("%s: 512 columns more have %.0f wavefronts of shared memory for %.0f",
                     pi__type_info_of(type)->name, more.wavefronts - some.wavefronts, more.least - some.least);
    }
    simt::options.arch = 120, simt::options.no_mma = false;
}

/* Counts of attention for 64 tokens with 4 heads, over `keys` keys. */
simt::launch_counts prompt(int32_t dim, int32_t keys)
{
    const size_t block_bytes = (size_t) (2 * 32 * dim * 2);
    buffer<uint8_t> cache((size_t) (keys / 32) * block_bytes);
    buffer<float> q((size_t) (64 * 4 * dim)), out(q.size());
    std::vector<int32_t> blocks, positions, starts = {0, 64};
    for (int32_t i = 0; i < keys / 32; i++) blocks.push_back(i);
    for (int32_t i = 0; i < 64; i++) positions.push_back(keys - 64 + i);
    buffer<int32_t> table(blocks), at(positions), start(starts);
    q.fill(0), cache.fill(0);
    pi__k_attn k = {};
    k.q = q.get(), k.ldq = k.ldo = 4 * dim, k.q_stride = dim, k.out = out.get(), k.n_head = 4, k.n_tokens = 64,
    k.n_seqs = 1;
    k.pos = at.get(), k.seq_start = start.get(), k.block_table = table.get(), k.table_stride = keys / 32,
    k.max_keys = keys;
    k.cache = {(char *) cache.get(), block_bytes, PI__F16, PI__F16, 1, dim, 32}, k.fast = k.wgmma = 1;
    return counts_of([&] { return pi__k_attention(nullptr, &k); });
}

/* No conflicts for keys, values, and the scores and outputs computed from them. */
void test_prompts(void **)
{
    simt::options.arch = 90, simt::options.no_mma = true;
    for (int32_t dim : {64, 128, 256}) {
        const simt::launch_counts some = prompt(dim, 256), more = prompt(dim, 512);
        assert_true(more.op[simt::DO_WGMMA] > some.op[simt::DO_WGMMA] && more.wavefronts > some.wavefronts);
        if (some.wavefronts - some.least != more.wavefronts - more.least)
            fail_msg("%d values: 256 keys more have %.0f wavefronts of shared memory for %.0f", (int) dim,
                     more.wavefronts - some.wavefronts, more.least - some.least);
    }
    simt::options.arch = 120, simt::options.no_mma = false;
}

/* Counts of attention for one token with 64 heads of dim values, over the last 128 of pos + 1 rows and n_entries
 * entries. */
simt::launch_counts sparse(int32_t pos, int32_t n_entries, int32_t dim, bool fast)
{
    const size_t block_bytes = (size_t) (32 * dim * 2);
    const int32_t n_blocks = (pos + 32) / 32 + (n_entries + 31) / 32;
    buffer<uint8_t> cache((size_t) n_blocks * block_bytes);
    buffer<float> q((size_t) (64 * dim)), out((size_t) (64 * dim)), sinks(64);
    std::vector<int32_t> blocks, first = {pos}, none = {0};
    for (int32_t i = 0; i < n_blocks; i++) blocks.push_back(i);
    buffer<int32_t> table(blocks), at(first), seq(none);
    for (buffer<float> *b : {&q, &out, &sinks}) b->fill(0);
    cache.fill(0);
    pi__k_sparse k = {};
    k.rows = k.entries = {
        {(char *) cache.get(), block_bytes, PI__F16, PI__F16, 1, dim, 32}, 1, nullptr, table.get(), n_blocks};
    k.entries.table = table.get() + (pos + 32) / 32;
    k.entries.ratio = (pos + 1) / n_entries;
    k.a.q = q.get(), k.a.ldq = k.a.ldo = 64 * dim, k.a.out = out.get(), k.a.sinks = sinks.get();
    k.a.n_head = 64, k.a.dim = dim, k.a.dim_v = 512, k.a.window = 128, k.fast = fast;
    k.pos = at.get(), k.seq = seq.get(), k.n_tokens = 1, k.most = 128 + n_entries;
    return counts_of([&] { return pi__k_sparse_run(nullptr, &k); });
}

/* No conflicts at all, not even when queries are loaded. */
void test_sparse(void **)
{
    const struct { int32_t dim; bool fast; } forms[] = {{512, false}, {576, false}, {576, true}};
    for (const auto &f : forms) {
        const simt::launch_counts n = sparse(1023, 256, f.dim, f.fast);
        assert_true(n.op[simt::DO_MMA_F16] > 0 && n.least > 0);
        if (n.wavefronts > 1.01 * n.least)
            fail_msg("%d values: %.0f wavefronts of shared memory for %.0f", (int) f.dim, n.wavefronts, n.least);
    }
}

} // namespace

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_w16), cmocka_unit_test(test_wgmma), cmocka_unit_test(test_mma16),
                                cmocka_unit_test(test_prompts), cmocka_unit_test(test_sparse)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
