/* Checks sparse prefill. The choice of key blocks is checked against the rule in double precision; keys and queries
 * have exact scores in F16, some of them equal. Attention to the chosen blocks is checked against double precision. If
 * all blocks are chosen, it is bitwise identical to dense attention. Results are bitwise identical for every cache
 * block size, and with other sequences in the step. */
#include "selftest/cache_ref.h"

#include <algorithm>
#include <memory>
#include "selftest/checks.h"

namespace selftest {
namespace {

enum { B = PI__SPARSE_BLOCK };

struct config {
    int32_t type, n_head, n_head_kv, dim;
    float sparsity, softcap;
};

/* A sequence of `blocks` full key blocks; the step computes its last n blocks as query blocks. In the step, `others`
 * more sequences with one token each come first. */
struct fixture {
    config c;
    int32_t block_size, blocks, n, others;
    std::vector<float> q, k, v; /* queries of the step's tokens */
    std::unique_ptr<paged> cache;
    std::vector<int32_t> table; /* [others + 1, stride] */
    int32_t stride;
};

/* Returns the common component of a block's keys, per KV head; every fifth block has the same one. It is an integer, so
 * that means are exact. */
int32_t common(int32_t block, int32_t head, int32_t d)
{
    return (int32_t) ((uint32_t) (block % 5 * 7 + head * 3 + d * 11) * 2654435761u >> 29) - 4;
}

fixture make_fixture(const config &c, int32_t block_size, int32_t blocks, int32_t n, int32_t others)
{
    fixture w = {c, block_size, blocks, n, others, {}, {}, {}, nullptr, {}, 0};
    const int32_t len = blocks * B, D = c.dim;
    random r(5);
    w.stride = len / block_size;
    int32_t next = (others + 1) * w.stride;
    w.cache.reset(new paged(c.type, c.type, c.n_head_kv, D, block_size, next));
    for (int32_t i = 0; i < (others + 1) * w.stride; i++) w.table.push_back(--next);
    w.v = r.normals((size_t) (len * c.n_head_kv * D));
    for (int32_t t = 0; t < len; t++) /* keys t and t ^ 1 deviate from the common component in opposite directions */
        for (int32_t h = 0; h < c.n_head_kv; h++)
            for (int32_t d = 0; d < D; d++)
                w.k.push_back((float) (common(t / B, h, d) + ((t ^ d) & 1 ? 1 : -1)));
    for (int32_t t = 0; t < others + n * B; t++) /* a query block matches every fifth block */
        for (int32_t h = 0; h < c.n_head; h++)
            for (int32_t d = 0; d < D; d++)
                w.q.push_back(0.0625f *
                              (float) common((t < others ? 0 : (t - others) / B) + h, h / (c.n_head / c.n_head_kv), d));
    for (int32_t s = 0; s <= others; s++)
        for (int32_t t = 0; t < len; t++)
            for (int32_t h = 0; h < c.n_head_kv; h++) {
                const int32_t slot = w.table[(size_t) (s * w.stride + t / block_size)] * block_size + t % block_size;
                w.cache->write(false, slot, h, &w.k[(size_t) ((t * c.n_head_kv + h) * D)]);
                w.cache->write(true, slot, h, &w.v[(size_t) ((t * c.n_head_kv + h) * D)]);
            }
    return w;
}

struct result {
    std::vector<float> out;
    std::vector<uint32_t> taken;
    std::vector<unsigned long long> counts;
};

/* sparse: the sequence's rows are query blocks; else one run of tokens with dense attention. wgmma: use the WGMMA
 * attention kernel. */
result run(const fixture &w, bool sparse, int32_t n_sm = 0, bool fast = true, bool wgmma = false)
{
    const config &c = w.c;
    const int32_t T = w.others + w.n * B, first = (w.blocks - w.n) * B, words = (w.blocks + 31) / 32;
    std::vector<int32_t> pos, start, seq, block, seq_start;
    for (int32_t i = 0; i < w.others; i++) {
        pos.push_back(first + i);
        start.push_back(i), seq.push_back(i), block.push_back(-1), seq_start.push_back(i);
    }
    seq_start.push_back(w.others), seq_start.push_back(T);
    for (int32_t i = 0; i < w.n * B; i++) pos.push_back(first + i);
    for (int32_t i = 0; i < w.n; i++) start.push_back(w.others + i * B), seq.push_back(w.others), block.push_back(i);
    start.push_back(T);
    std::vector<float> q = w.q;
    if (pi__kv_rotated(c.type)) turn_ref(q.data(), (int32_t) q.size(), false);
    buffer<float> dq(q), out(q.size());
    buffer<int32_t> dpos(pos), dstart(start), dseq(seq), dblock(block), dseq_start(seq_start), dtable(w.table);
    buffer<uint32_t> taken((size_t) (w.n * c.n_head_kv * words));
    buffer<unsigned long long> counts(2);
    counts.get()[0] = counts.get()[1] = 0;
    buffer<char> scratch(pi__k_blocks_scratch(w.blocks, w.n, c.n_head, c.n_head_kv, c.dim));
    pi__k_attn a = {};
    a.q = dq.get(), a.ldq = (int64_t) c.n_head * c.dim, a.q_stride = c.dim, a.out = out.get(), a.ldo = a.ldq;
    a.n_head = c.n_head, a.softcap = c.softcap, a.n_tokens = T, a.n_seqs = w.others + 1, a.pos = dpos.get();
    a.seq_start = dseq_start.get(), a.block_table = dtable.get(), a.table_stride = w.stride, a.max_keys = w.blocks * B;
    a.cache = w.cache->c, a.n_sm = n_sm, a.fast = fast;
    a.taken = taken.get(), a.taken_words = words;
    if (sparse) {
        const pi__k_blocks blocks = {a, c.sparsity, w.others,    w.others,      w.blocks - w.n,
                                     0, w.n,        taken.get(), scratch.get(), counts.get()};
        must_run(pi__k_blocks_run(stream(), &blocks));
        a.run_seq = dseq.get(), a.run_block = dblock.get(), a.seq_start = dstart.get(), a.n_seqs = (int32_t) seq.size();
    }
    int code;
    if (wgmma) expect_true(pi__k_attention_wgmma(stream(), &a, &code));
    must_run(wgmma ? code : pi__k_attention(stream(), &a));
    const pi__k_unrotate t = {out.get(), a.ldo, nullptr, a.ldo, c.dim, T, c.n_head, c.dim};
    if (pi__kv_rotated(c.type)) must_run(pi__k_unrotate_run(stream(), &t));
    return {{out.get(), out.get() + out.size()},
            {taken.get(), taken.get() + taken.size()},
            {counts.get(), counts.get() + 2}};
}

double logit(const config &c, const float *q, const double *k)
{
    double dot = 0;
    for (int32_t d = 0; d < c.dim; d++) dot += (double) q[d] * k[d];
    return c.softcap != 0 ? c.softcap * std::tanh(dot / c.softcap) : dot;
}

/* Returns the key blocks that query block i must choose for a KV head. */
std::vector<bool> choice(const fixture &w, int32_t i, int32_t kvh)
{
    const config &c = w.c;
    const int32_t m = w.blocks - w.n + i, group = c.n_head / c.n_head_kv;
    std::vector<bool> taken((size_t) m + 1);
    for (int32_t h = kvh * group; h < (kvh + 1) * group; h++) {
        std::vector<double> score((size_t) m + 1), s((size_t) m + 1), mean((size_t) c.dim);
        for (int32_t t = w.others + i * B; t < w.others + (i + 1) * B; t++) {
            double top = -1e300;
            for (int32_t n = 0; n <= m; n++) {
                for (int32_t d = 0; d < c.dim; d++) mean[(size_t) d] = common(n, kvh, d);
                top = std::max(top, s[(size_t) n] = logit(c, &w.q[(size_t) ((t * c.n_head + h) * c.dim)], mean.data()));
            }
            for (int32_t n = 0; n <= m; n++) score[(size_t) n] += std::exp(s[(size_t) n] - top);
        }
        const double most = *std::max_element(score.begin(), score.end());
        for (int32_t n = 0; n <= m; n++) /* scores that are equal in F16 count as equal */
            taken[(size_t) n] = taken[(size_t) n] || n < 2 || m - n < 4 ||
                                score[(size_t) n] >= c.sparsity * most * (1 - 1e-9);
    }
    return taken;
}

void check(const fixture &w, const result &got, double tolerance)
{
    const config &c = w.c;
    const int32_t first = (w.blocks - w.n) * B, words = (w.blocks + 31) / 32;
    unsigned long long counts[2] = {0, 0};
    std::vector<std::vector<bool>> taken;
    for (int32_t i = 0; i < w.n; i++)
        for (int32_t h = 0; h < c.n_head_kv; h++) {
            taken.push_back(choice(w, i, h));
            for (int32_t n = 0; n < words * 32; n++) {
                const bool want = n < (int32_t) taken.back().size() && taken.back()[(size_t) n];
                const bool have = got.taken[(size_t) ((i * c.n_head_kv + h) * words + n / 32)] >> n % 32 & 1;
                if (want != have)
                    fail_check("type %d dim %d: query block %d head %d: key block %d is %d", c.type, c.dim, i, h, n,
                               have);
                counts[0] += want;
            }
            counts[1] += taken.back().size();
        }
    expect_equal(got.counts[0], counts[0]);
    expect_equal(got.counts[1], counts[1]);
    for (int32_t t = w.others; t < w.others + w.n * B; t += 61)
        for (int32_t h = 0; h < c.n_head; h++) {
            const int32_t i = (t - w.others) / B, kvh = h / (c.n_head / c.n_head_kv), last = first + t - w.others;
            std::vector<double> o((size_t) c.dim), key((size_t) c.dim), p((size_t) last + 1);
            double sum = 0, top = -1e300;
            auto slot = [&](int32_t j) {
                return w.table[(size_t) (w.others * w.stride + j / w.block_size)] * w.block_size + j % w.block_size;
            };
            for (int32_t j = 0; j <= last; j++) {
                p[(size_t) j] = -1e300;
                if (!taken[(size_t) (i * c.n_head_kv + kvh)][(size_t) (j / B)]) continue;
                const std::vector<float> k = w.cache->read(false, slot(j), kvh);
                for (int32_t d = 0; d < c.dim; d++) key[(size_t) d] = k[(size_t) d];
                top = std::max(top, p[(size_t) j] = logit(c, &w.q[(size_t) ((t * c.n_head + h) * c.dim)], key.data()));
            }
            for (int32_t j = 0; j <= last; j++) {
                const double e = std::exp(p[(size_t) j] - top);
                sum += e;
                if (e == 0) continue;
                const std::vector<float> v = w.cache->read(true, slot(j), kvh);
                for (int32_t d = 0; d < c.dim; d++) o[(size_t) d] += e * v[(size_t) d];
            }
            for (int32_t d = 0; d < c.dim; d++) {
                const double want = o[(size_t) d] / sum, have = got.out[(size_t) ((t * c.n_head + h) * c.dim + d)];
                if (within(std::fabs(have - want), tolerance)) continue;
                fail_check("type %d dim %d token %d head %d: %g, expected %g", c.type, c.dim, t, h, have, want);
            }
        }
}

void test_choice()
{
    const struct {
        config c;
        int32_t blocks, n, others;
    } cases[] = {{{PI__F16, 2, 1, 32, 0.5f, 0}, 11, 2, 2},  {{PI__F32, 2, 2, 32, 1.0f, 0}, 9, 1, 0},
                 {{PI__Q8_0, 2, 1, 64, 0.2f, 0}, 8, 1, 0},  {{PI__TQ4_0, 2, 1, 32, 2.0f, 0}, 8, 1, 0},
                 {{PI__F16, 1, 1, 80, 0.5f, 20.0f}, 8, 1, 0}, {{PI__F16, 1, 1, 128, 0.5f, 0}, 8, 1, 0},
                 {{PI__F16, 1, 1, 256, 0.5f, 0}, 8, 1, 0}};
    for (const auto &k : one_of(cases)) {
        if (slow() && k.c.dim > 32) continue; /* the emulator is itself emulated */
        about("%d values, type %d", k.c.dim, k.c.type);
        const fixture w = make_fixture(k.c, 16, k.blocks, k.n, k.others);
        const result got = run(w, true);
        check(w, got, k.c.type == PI__F32 ? 5e-5 : 8e-3);
        if (!k.others) continue;
        /* in a batch of one, with cache blocks of 64 tokens and larger tiles of rows */
        const fixture other = make_fixture(k.c, 64, k.blocks, k.n, 0);
        const result again = run(other, true, 1);
        expect_bytes(&got.out[(size_t) (w.others * k.c.n_head * k.c.dim)], again.out.data(), again.out.size() * 4);
        expect_bytes(got.taken.data(), again.taken.data(), got.taken.size() * 4);
    }
}

void test_all_is_dense()
{
    for (int32_t dim : {32, 128, 512}) {
        if (slow() && dim > 32) continue;
        const config c = {dim == 32 ? PI__Q4_0 : PI__F16, 1, 1, dim, 1e-30f, 0};
        const fixture w = make_fixture(c, 32, dim == 32 ? 9 : 2, 1, 1);
        for (bool fast : {true, false}) {
            const int32_t n_sm = fast ? 1 : 0; /* large tiles of rows, then small ones */
            const result dense = run(w, false, n_sm, fast), all = run(w, true, n_sm, fast);
            expect_equal(all.counts[0], all.counts[1]);
            expect_bytes(dense.out.data(), all.out.data(), all.out.size() * 4);
        }
    }
}

void test_modes()
{
    const fixture w = make_fixture({PI__F16, 1, 1, 32, 0.5f, 0}, 16, 7, 1, 1);
    std::vector<float> first;
    in_all_modes([&] {
        const result got = run(w, true, 1);
        if (first.empty()) check(w, got, 8e-3), first = got.out;
        expect_bytes(got.out.data(), first.data(), first.size() * 4);
    });
}

/* WGMMA prefill over the chosen key blocks is bitwise identical to mma.sync prefill. */
void test_wgmma()
{
    on_arch(90, [] {
        for (int32_t dim : {64, 128, 256}) {
            if (slow() && dim > 64) continue;
            about("%d values", dim);
            const fixture w = make_fixture({PI__F16, 3, 1, dim, 0.5f, 0}, 16, dim > 64 ? 8 : 12, dim > 64 ? 1 : 2,
                                           dim > 64 ? 0 : 1);
            const result want = run(w, true), got = run(w, true, 0, true, true);
            expect_true(want.counts[0] < want.counts[1]);
            expect_bytes(want.out.data(), got.out.data(), want.out.size() * 4);
        }
    });
}

const entry checks[] = {
    {"wgmma", test_wgmma}, {"choice", test_choice}, {"all_is_dense", test_all_is_dense}, {"modes", test_modes}};

} // namespace

const family checks_of_key_blocks = {"key_blocks", "sparse prefill: the choice of key blocks", checks,
                                     sizeof checks / sizeof *checks};

} // namespace selftest
