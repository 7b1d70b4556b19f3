/* Attention of decode steps with few sequences and many keys uses all multiprocessors: the test counts the blocks
 * with work; only a sample of blocks runs. */
#include "simt_test.h"

#include "counters.h"
#include "runtime_emu.h"

extern "C" {
#include "backend/cuda/cuda.h"
#include "backend/device.h"
#include "formats/formats.h"
}

/* Attention of one layer in a decode step. */
struct spread_case {
    int32_t n_seqs, keys, n_head, n_head_kv, dim;
};

/* A decode step with all keys in one cache block. */
struct step {
    std::vector<int32_t> zeros, pos, seq, start, len;
    pi__batch b;
    step(int32_t n, int32_t keys)
        : zeros((size_t) (n * (keys / 64 + 1))), pos((size_t) n, keys - 1), len((size_t) n, keys), b()
    {
        for (int32_t s = 0; s <= n; s++) seq.push_back(s), start.push_back(s);
        b.n_tokens = b.n_seqs = n;
        b.n_groups = 1;
        b.token = b.n_verified = b.state_slot = b.save_start = zeros.data();
        b.pos = pos.data(), b.seq = seq.data(), b.seq_start = start.data(), b.seq_len = len.data();
        b.kv[0] = {64, keys / 64 + 1, zeros.data(), zeros.data()};
    }
};

/* Number of blocks with work in the step's attention. */
static double busy_blocks(pi__backend *be, const spread_case &c)
{
    const int32_t width = c.n_head * c.dim;
    const step s(c.n_seqs, c.keys);
    pi_error err;
    simt::counter count;
    const size_t block = be->dev->kv_bytes(be, PI__F16, PI__F16, c.n_head_kv, c.dim, 64);
    const size_t rows = (size_t) (c.n_seqs * width) * sizeof(float);
    float *q = static_cast<float *>(be->dev->alloc(be, rows)), *out = static_cast<float *>(be->dev->alloc(be, rows));
    pi__kv_layer kv = {};
    kv.type_k = kv.type_v = PI__F16, kv.n_head_kv = c.n_head_kv, kv.head_dim = c.dim, kv.stride = block;
    kv.base = static_cast<decltype(kv.base)>(be->dev->alloc(be, block));
    pi__attention a = {};
    a.kv = &kv, a.q = q, a.ldq = a.ldo = width, a.out = out, a.n_head = c.n_head;
    const pi__batch *own = be->dev->begin(be, &s.b, PI__STEP_DECODE);
    assert_int_equal(be->dev->finish(be, &err), PI_OK);
    count.sample = 1;
    simt::options.count = &count;
    pi__op_attention(be, own, &a);
    assert_int_equal(be->dev->finish(be, &err), PI_OK);
    simt::options.count = nullptr;
    be->dev->free(be, q, rows), be->dev->free(be, out, rows), be->dev->free(be, kv.base, block);
    assert_in_range(count.launches.size(), 1, 2); /* the second launch combines the splits */
    return count.launches[0].blocks - count.launches[0].empty;
}

/* With the multiprocessor counts of GB10, H100 and RTX PRO 6000. */
static void test_attention(void **)
{
    const spread_case cases[] = {
        {1, 131072, 24, 4, 256}, {16, 16384, 24, 4, 256}, {1, 131072, 32, 4, 512}, {2, 131072, 8, 1, 128}};
    pi__limits lim = {};
    const pi__cuda_params p = {};
    lim.max_tokens = lim.max_seqs = 16, lim.max_rows = 1, lim.max_ctx = 131072, lim.n_vocab = 1, lim.max_n_head = 32;
    lim.max_head_dim = 512;
    simt::options.untouched = simt::options.no_mma = true;
    for (const int n_sm : {48, 132, 188}) {
        pi__backend *be;
        pi_error err;
        simt::watch.n_sm = n_sm;
        assert_int_equal(pi__cuda_create(&be, 0, &p, nullptr, &err), PI_OK);
        assert_int_equal(be->dev->reserve(be, &lim, &err), PI_OK);
        for (const spread_case &c : cases) {
            const double n = busy_blocks(be, c);
            if (n < n_sm)
                fail_msg("%d sequences of %d keys, %d kv heads: %.0f blocks on %d multiprocessors", c.n_seqs, c.keys,
                         c.n_head_kv, n, n_sm);
        }
        be->dev->destroy(be);
        assert_int_equal(simt::watch.live, 0);
    }
    simt::options.untouched = simt::options.no_mma = false;
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_attention)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
