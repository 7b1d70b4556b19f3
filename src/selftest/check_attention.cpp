/* Checks attention kernels against double precision, and that they are batch-invariant. Results are bitwise identical
 * in a batch of one, in larger batches, and in every chunking of the prefill. Neither the tile size, nor a KV split
 * over thread blocks, nor the cache block size changes them. */
#include "selftest/cache_ref.h"

#include <algorithm>
#include <memory>
#include "selftest/checks.h"
#include "selftest/tail_ref.h"

namespace selftest {
namespace {

struct config {
    int32_t type_k, type_v, n_head, n_head_kv, dim, window;
    float softcap;
    bool sinks, gate;
    /* a row at position p attends to keys `first` to p - past; past -1: to all rows of its sequence in the step;
     * past -2: to p, and to see_to() */
    int32_t first, past;
    int32_t n_rel = 0; /* as in pi__attention */
};

/* A sequence: its length, inputs and block table. */
struct sequence {
    int32_t len;
    std::vector<float> q, k, v, gate; /* [len, heads * dim] */
    std::vector<int32_t> table;
};

struct fixture {
    config c;
    int32_t block_size;
    std::vector<sequence> seqs;
    std::unique_ptr<paged> cache;
    std::vector<float> sinks, rel;
    bool fast;  /* fast mode: q is rounded to F16 */
    bool wgmma; /* pass enough rows to select the WGMMA kernel */
    bool tails; /* run with an epilogue if there are few rows */
};

fixture make_fixture(const config &c, const std::vector<int32_t> &lens, int32_t block_size)
{
    fixture w = {c, block_size, {}, nullptr, {}, {}, false, false, true};
    int32_t blocks = 1;
    for (int32_t len : lens) blocks += (len + block_size - 1) / block_size;
    w.cache.reset(new paged(c.type_k, c.type_v, c.n_head_kv, c.dim, block_size, blocks));
    int32_t next = blocks - 1; /* block ids descend, so that no table is contiguous */
    for (size_t i = 0; i < lens.size(); i++) {
        random r(i + 10);
        size_t n = (size_t) lens[i], nq = n * (size_t) (c.n_head * c.dim), nk = n * (size_t) (c.n_head_kv * c.dim);
        sequence s = {lens[i], r.normals(nq), r.normals(nk), r.normals(nk), r.normals(nq), {}};
        for (float &f : s.q) f *= 2 / std::sqrt((float) c.dim);
        for (int32_t b = 0; b * block_size < lens[i]; b++) s.table.push_back(next--);
        for (int32_t t = 0; t < lens[i]; t++) {
            for (int32_t h = 0; h < c.n_head_kv; h++) {
                int32_t slot = s.table[(size_t) (t / block_size)] * block_size + t % block_size;
                w.cache->write(false, slot, h, &s.k[(size_t) ((t * c.n_head_kv + h) * c.dim)]);
                w.cache->write(true, slot, h, &s.v[(size_t) ((t * c.n_head_kv + h) * c.dim)]);
            }
        }
        w.seqs.push_back(s);
    }
    for (int32_t h = 0; h < c.n_head; h++) w.sinks.push_back((float) h / 2 - 1);
    for (int32_t i = 0; i < c.n_head * c.n_rel; i++)
        w.rel.push_back(c.n_rel == 1 ? 0.02f * (float) (i + 1) : (float) (i * 13 % 17) / 8 - 1);
    return w;
}

/* Returns the last key that token t sees beyond causal attention, in a step that ends before token `end`: with past -2,
 * tokens 20 to 35 of a sequence see each other. -1 = none. */
int32_t see_to(const config &c, int32_t t, int32_t end)
{
    return c.past == -2 && t >= 20 && t < 36 ? std::min(35, end - 1) : -1;
}

/* Tokens [from, to) of a sequence. run() returns the outputs of all spans, one after the other. */
struct span {
    size_t seq;
    int32_t from, to;
};
std::vector<float> run(const fixture &w, const std::vector<span> &spans, int32_t n_sm, bool scratch_there,
                       size_t scratch_size = (size_t) 1 << 24,
                       bool *split = nullptr /* set to true if keys were split */)
{
    const config &c = w.c;
    size_t nq = (size_t) (c.n_head * c.dim), stride = 1;
    std::vector<float> q, gate;
    std::vector<int32_t> pos, start = {0}, table, sees;
    int32_t max_keys = 0;
    for (const span &s : spans) stride = std::max(stride, w.seqs[s.seq].table.size());
    for (const span &s : spans) {
        const sequence &seq = w.seqs[s.seq];
        q.insert(q.end(), &seq.q[(size_t) s.from * nq], &seq.q[(size_t) s.from * nq] + (size_t) (s.to - s.from) * nq);
        gate.insert(gate.end(), &seq.gate[(size_t) s.from * nq],
                    &seq.gate[(size_t) s.from * nq] + (size_t) (s.to - s.from) * nq);
        for (int32_t p = s.from; p < s.to; p++) pos.push_back(p), sees.push_back(see_to(c, p, s.to));
        start.push_back((int32_t) pos.size());
        std::vector<int32_t> row = seq.table;
        for (int32_t b = 0; c.window && (b + 1) * w.block_size <= s.from - c.window + 1; b++) row[(size_t) b] = -1;
        row.resize(stride, -1);
        table.insert(table.end(), row.begin(), row.end());
        max_keys = std::max(max_keys, s.to - (c.window && s.from >= c.window ? s.from - c.window + 1 : 0));
    }
    if (pi__kv_rotated(c.type_k)) turn_ref(q.data(), (int32_t) q.size(), false); /* as the qkv kernel writes them */
    buffer<float> dq(q), dg(gate), sinks(w.sinks), rel(w.rel), out(q.size());
    buffer<int32_t> dpos(pos), dstart(start), dtable(table), dsees(sees);
    buffer<char> scratch(scratch_size);
    buffer<uint32_t> arrived(std::vector<uint32_t>{0, 0});
    pi__k_attn a = {};
    a.q = dq.get();
    a.ldq = (int64_t) nq;
    a.q_stride = c.dim;
    a.gate = c.gate && !pi__kv_rotated(c.type_v) ? dg.get() : nullptr;
    a.out = out.get();
    a.ldo = (int64_t) nq;
    a.n_head = c.n_head;
    a.window = c.window;
    a.softcap = c.softcap;
    a.sinks = c.sinks ? sinks.get() : nullptr;
    a.rel = c.n_rel ? rel.get() : nullptr;
    a.n_rel = c.n_rel;
    a.n_tokens = (int32_t) pos.size();
    a.n_seqs = (int32_t) spans.size();
    a.pos = dpos.get();
    a.seq_start = dstart.get();
    a.block_table = dtable.get();
    a.table_stride = (int32_t) stride;
    a.max_keys = max_keys;
    a.first = c.first;
    a.past = c.past > 0;
    a.block = c.past == -1;
    a.see_to = c.past == -2 ? dsees.get() : nullptr;
    a.cache = w.cache->c;
    a.scratch = scratch_there ? scratch.get() : nullptr;
    a.scratch_size = scratch_there ? scratch.size() : 0;
    a.arrived = arrived.get();
    a.waits = waits();
    a.n_sm = n_sm;
    a.fast = w.fast;
    a.wgmma = w.wgmma;
    const bool few = a.n_tokens <= PI__K_TAIL_ROWS && nq % 32 == 0 && w.tails;
    plain_tail tail(out.get(), (int64_t) nq, few ? a.n_tokens : 1, (int64_t) (few ? nq : 32));
    if (few) a.tail = &tail.t;
    int code;
    if (w.wgmma) expect_true(pi__k_attention_wgmma(stream(), &a, &code));
    must_run(w.wgmma ? code : pi__k_attention(stream(), &a));
    if (few) tail.check();
    expect_true(!arrived.get()[0] && !arrived.get()[1]);
    if (split)
        *split = std::count(scratch.get(), scratch.get() + scratch.size(), (char) 0xff) <
                 (std::ptrdiff_t) scratch.size();
    pi__k_unrotate t = {out.get(), (int64_t) nq, c.gate ? dg.get() : nullptr, (int64_t) nq, c.dim, a.n_tokens,
                        c.n_head,  c.dim};
    if (pi__kv_rotated(c.type_v)) must_run(pi__k_unrotate_run(stream(), &t));
    return std::vector<float>(out.get(), out.get() + out.size());
}

void check(const fixture &w, const std::vector<span> &spans, const std::vector<float> &got, double tolerance)
{
    const config &c = w.c;
    size_t row = 0;
    for (const span &s : spans) {
        const sequence &seq = w.seqs[s.seq];
        for (int32_t t = s.from; t < s.to; t++, row++) {
            int32_t lo = std::max(c.first, c.window && t >= c.window ? t - c.window + 1 : 0),
                    hi = c.past == -1 ? s.to - 1 : c.past == -2 ? std::max(t, see_to(c, t, s.to)) : t - c.past;
            for (int32_t h = 0; h < c.n_head; h++) {
                int32_t kvh = h / (c.n_head / c.n_head_kv);
                std::vector<double> p, o((size_t) c.dim);
                double top = -1e300, sum = 0;
                const float *q = &seq.q[(size_t) ((t * c.n_head + h) * c.dim)],
                            *g = &seq.gate[(size_t) ((t * c.n_head + h) * c.dim)];
                auto slot = [&](int32_t j) {
                    return seq.table[(size_t) (j / w.block_size)] * w.block_size + j % w.block_size;
                };
                for (int32_t j = lo; j <= hi; j++) {
                    std::vector<float> k = w.cache->read(false, slot(j), kvh);
                    double dot = 0;
                    for (int32_t d = 0; d < c.dim; d++) dot += (double) q[d] * k[(size_t) d];
                    const int32_t reach = c.n_rel / 2, far = std::max(-reach, std::min(reach, j - t));
                    if (c.n_rel == 1) dot -= w.rel[(size_t) h] * std::abs(j - t);
                    if (c.n_rel > 1) dot += w.rel[(size_t) (h * c.n_rel + far + reach)];
                    if (c.softcap != 0) dot = c.softcap * std::tanh(dot / c.softcap);
                    p.push_back(dot);
                    top = std::max(top, dot);
                }
                for (double &x : p) sum += x = std::exp(x - top);
                if (p.empty() && !c.sinks) sum = 1;
                if (c.sinks) sum += std::exp(w.sinks[(size_t) h] - top);
                for (int32_t j = lo; j <= hi; j++) {
                    std::vector<float> v = w.cache->read(true, slot(j), kvh);
                    for (int32_t d = 0; d < c.dim; d++) o[(size_t) d] += p[(size_t) (j - lo)] / sum * v[(size_t) d];
                }
                for (int32_t d = 0; d < c.dim; d++) {
                    double want = o[(size_t) d] * (c.gate ? 1 / (1 + std::exp(-(double) g[d])) : 1);
                    double have = got[(row * (size_t) c.n_head + (size_t) h) * (size_t) c.dim + (size_t) d];
                    if (!within(std::fabs(have - want), tolerance)) {
                        fail_check(
                            "k %d v %d heads %d/%d dim %d window %d: sequence %zu token %d head %d: %g, expected %g",
                            c.type_k, c.type_v, c.n_head, c.n_head_kv, c.dim, c.window, s.seq, t, h, have, want);
                    }
                }
            }
        }
    }
}

/* Returns the allowed error. P is rounded to 11 bits, and so are K and V if the cache type has more. Fast mode also
 * rounds q to 11 bits. With an F32 cache nothing is rounded. */
double tolerance_of(const config &c, bool fast = false)
{
    return c.type_k == PI__F32 || c.type_v == PI__F32 ? 2e-5 : fast ? 4e-3 : 2e-3;
}

void test_shapes()
{
    const config cases[] = {{PI__F16, PI__F16, 2, 1, 32, 0, 0, false, false, 0, 0},
                            {PI__F16, PI__F16, 8, 2, 64, 20, 0, false, false, 0, 0},
                            {PI__BF16, PI__F16, 3, 3, 96, 0, 5, true, false, 0, 0},
                            {PI__Q8_0, PI__Q8_0, 4, 2, 128, 17, 0, false, true, 0, 0},
                            {PI__Q4_0, PI__Q8_0, 2, 2, 192, 0, 0, true, false, 0, 0},
                            {PI__F16, PI__BF16, 4, 1, 256, 33, 2, false, false, 0, 0},
                            {PI__F32, PI__F32, 2, 1, 64, 0, 0, true, true, 0, 0},
                            {PI__F32, PI__F16, 1, 1, 32, 9, 0, false, false, 0, 0},
                            {PI__F16, PI__Q4_0, 2, 1, 512, 0, 0, false, false, 0, 0},
                            {PI__F32, PI__F32, 1, 1, 256, 0, 0, false, false, 0, 0},
                            {PI__F32, PI__F32, 1, 1, 512, 0, 3, false, false, 0, 0},
                            {PI__F16, PI__F16, 16, 1, 64, 0, 0, false, false, 0, 0},
                            {PI__F16, PI__F16, 2, 1, 64, 0, 0, false, false, 2, 1},
                            {PI__F16, PI__F16, 2, 1, 32, 12, 0, true, false, 1, 1},
                            {PI__F16, PI__F16, 2, 1, 64, 0, 0, false, false, 0, -1, 33},
                            {PI__F32, PI__F16, 3, 1, 32, 11, 0, true, false, 0, -1, 1},
                            {PI__F16, PI__F16, 2, 1, 64, 0, 0, false, false, 0, -2},
                            {PI__F16, PI__F16, 5, 1, 256, 11, 0, true, false, 0, -2},
                            {PI__Q5_1, PI__Q5_0, 1, 1, 32, 0, 0, false, false, 0, 0},
                            {PI__Q4_1, PI__IQ4_NL, 1, 1, 32, 9, 0, false, false, 0, 0},
                            {PI__TQ4_0, PI__TQ3_0, 2, 1, 96, 0, 0, true, true, 0, 0},
                            {PI__TQ3_0, PI__TQ4_0, 5, 1, 64, 9, 0, false, false, 0, 0}};
    for (const config &c : one_of(cases)) {
        fixture w = make_fixture(c, {37, 1, 70, 18}, 16);
        std::vector<span> spans = {{0, 0, 5}, {2, 69, 70}, {1, 0, 1}, {0, 20, 37}, {3, 17, 18}};
        std::vector<float> first;
        in_all_modes([&] {
            std::vector<float> got = run(w, spans, 0, false);
            if (first.empty()) check(w, spans, first = got, tolerance_of(c));
            expect_bytes(got.data(), first.data(), got.size() * 4);
        });
    }
}

/* Checks that every way of computing each sequence's rows from `from` on gives bitwise identical
 * results. */
void check_same(const config &c, const std::vector<int32_t> &lens, int32_t from)
{
    fixture w = make_fixture(c, lens, 16);
    std::vector<span> all;
    for (size_t i = 0; i < lens.size(); i++) all.push_back({i, from < lens[i] ? from : lens[i] - 1, lens[i]});
    std::vector<float> want = run(w, all, 0, false), one, split;
    check(w, all, want, tolerance_of(c));
    for (const span &s : all) {
        /* in chunks of different sizes, each in a batch of one; with a KV split where possible */
        for (int32_t t = s.from; t < s.to;) {
            int32_t to = std::min(s.to, t + 1 + t % 7);
            std::vector<float> a = run(w, {{s.seq, t, to}}, 0, false), b = run(w, {{s.seq, t, to}}, 1000, true);
            one.insert(one.end(), a.begin(), a.end());
            split.insert(split.end(), b.begin(), b.end());
            t = to;
        }
    }
    expect_bytes(want.data(), one.data(), want.size() * 4);
    expect_bytes(want.data(), split.data(), want.size() * 4);
    std::vector<float> wide = run(w, all, 1, true); /* n_sm 1: more rows per thread block */
    expect_bytes(want.data(), wide.data(), want.size() * 4);
    for (int32_t size : {32, 64}) {
        fixture other = make_fixture(c, lens, size);
        std::vector<float> got = run(other, all, 0, false);
        expect_bytes(want.data(), got.data(), want.size() * 4);
    }
}

void test_same_bits()
{
    if (slow()) { /* the emulator is itself emulated */
        check_same({PI__F16, PI__F16, 1, 1, 256, 0, 0, false, false, 0, 0}, {290, 257}, 280);
        return;
    }
    check_same({PI__F16, PI__F16, 4, 2, 64, 0, 0, false, false, 0, 0, 33}, {600, 45}, 560);
    check_same({PI__F16, PI__F16, 4, 2, 64, 300, 0, true, false, 0, 0}, {600, 300}, 570);
    check_same({PI__Q8_0, PI__Q4_0, 2, 1, 32, 0, 30, false, false, 0, 0}, {530, 3}, 500);
    check_same({PI__F16, PI__F16, 1, 1, 256, 0, 0, false, false, 0, 0}, {290, 257}, 250);
}

/* Heads of 80 and 112 values, in caches without groups of 32: right results and the same bits in every mode. */
void test_odd_heads()
{
    for (int32_t dim : {80, 112}) {
        for (int32_t type : one_of({PI__F16, PI__BF16, PI__F32})) {
            const config c = {type, type == PI__BF16 ? PI__F16 : type, 4, 2, dim, 0, 0, false, type == PI__F16, 0, 0};
            fixture w = make_fixture(c, {300, 40}, 32);
            const std::vector<span> spans = {{0, 297, 300}, {1, 30, 40}};
            std::vector<float> want = run(w, spans, 0, false);
            check(w, spans, want, tolerance_of(c));
            for (int32_t n_sm : {1, 1000}) {
                std::vector<float> got = run(w, spans, n_sm, true);
                expect_bytes(want.data(), got.data(), got.size() * 4);
            }
        }
    }
}

/* Overwrites with NaN all keys and values that no row of the span attends to. */
void poison(fixture &w, const span &rows)
{
    const config &c = w.c;
    const int32_t lo = std::max(c.first, c.window && rows.from >= c.window ? rows.from - c.window + 1 : 0),
                  hi = rows.to - 1 - c.past;
    const sequence &s = w.seqs[rows.seq];
    for (int32_t t = 0; t < s.len; t++) {
        if (t >= lo && t <= hi) continue;
        for (int32_t h = 0; h < c.n_head_kv; h++) {
            for (bool v : {false, true}) {
                std::vector<uint8_t> row(paged::row_bytes(v ? c.type_v : c.type_k, c.dim), 0xff);
                w.cache->move(v, s.table[(size_t) (t / w.block_size)] * w.block_size + t % w.block_size, h, row.data(),
                              true);
            }
        }
    }
}

/* Larger tiles, tiles of 16 rows, and a KV split over thread blocks give bitwise identical results. Keys that no row
 * attends to are NaN. */
void check_tiles(const config &c, bool fast)
{
    /* with four heads per KV head, more than half of the largest tile; the rows end in the first keys of a split */
    const span rows = {0, 256, 268};
    fixture w = make_fixture(c, {275}, 16);
    w.fast = fast;
    about("%d values, %s", c.dim, fast ? "fast" : "exact");
    const std::vector<float> want = run(w, {rows}, 1, false);
    check(w, {rows}, want, tolerance_of(c, fast));
    for (int32_t t = rows.from, to; t < rows.to; t = to) {
        to = std::min(t + 5, rows.to);
        const size_t at = (size_t) ((t - rows.from) * c.n_head * c.dim);
        for (bool split : {false, true}) {
            const std::vector<float> got = run(w, {{0, t, to}}, split ? 1000 : 0, split);
            expect_bytes(&want[at], got.data(), got.size() * 4);
        }
    }
    poison(w, rows);
    const std::vector<float> again = run(w, {rows}, 1, false), few = run(w, {rows}, 1000, false);
    expect_bytes(want.data(), again.data(), want.size() * 4);
    expect_bytes(want.data(), few.data(), want.size() * 4);
}

void test_tiles()
{
    const config cases[] = {{PI__F16, PI__F16, 4, 1, 32, 0, 0, false, false, 0, 0},
                            {PI__Q8_0, PI__F16, 4, 1, 64, 0, 0, true, false, 0, 0},
                            {PI__F16, PI__F16, 4, 1, 64, 37, 0, false, true, 3, 1},
                            {PI__BF16, PI__F16, 4, 1, 80, 0, 0, false, false, 0, 0},
                            {PI__F16, PI__F16, 4, 1, 112, 40, 5, false, false, 0, 0},
                            {PI__F16, PI__BF16, 4, 1, 128, 0, 0, false, false, 0, 0},
                            {PI__Q8_0, PI__Q8_0, 4, 1, 128, 0, 0, false, true, 0, 0},
                            {PI__F16, PI__F16, 4, 1, 192, 0, 0, false, false, 0, 0},
                            {PI__F16, PI__F16, 4, 1, 256, 0, 0, false, false, 0, 0},
                            {PI__Q4_0, PI__Q8_0, 4, 1, 256, 33, 0, false, false, 0, 0},
                            {PI__F16, PI__F16, 4, 1, 512, 0, 0, false, false, 0, 0},
                            {PI__BF16, PI__Q5_1, 4, 1, 512, 0, 0, false, false, 0, 0}};
    for (const config &c : one_of(cases)) {
        if (slow() && c.dim > 64) continue; /* the emulator is itself emulated */
        for (bool fast : {true, false}) check_tiles(c, fast);
    }
}

/* Sequences with more keys than the kernel's span of keys. A thread block computes all keys, a span, or a split; KV
 * heads run in one launch or one after the other. Tiles have 8 rows (heads of 256) or 16, and chunks begin anywhere.
 * The number of launches and the contents of the scratch buffer show which variant ran. */
void check_spans(const config &c, int32_t len)
{
    fixture w = make_fixture(c, {len}, 64);
    const span last = {0, len - 1, len};
    std::vector<float> want = run(w, {last}, 0, false);
    check(w, {last}, want, tolerance_of(c));
    const size_t head = (size_t) (c.n_head / c.n_head_kv) * (size_t) (c.dim + 2) * 4;
    const struct { int32_t n_sm; size_t scratch; bool split, heads_apart; } ways[] = {
        {1000, 1 << 22, true, false},    {1000, head * ((size_t) len / 256 + 2), true, true},
        {c.n_head_kv, 1 << 22, true, false}, {c.n_head_kv, head * 5, true, true},
        {1000, head * 5, true, true},    {1000, head, false, false}};
    for (auto &way : one_of(ways)) {
        const unsigned long before = counts_launches() ? now->emu->launched() : 0;
        const unsigned long want_launches = way.heads_apart ? (unsigned long) c.n_head_kv : 1;
        bool split;
        std::vector<float> got = run(w, {last}, way.n_sm, true, way.scratch, &split);
        if (counts_launches()) expect_equal(now->emu->launched() - before, want_launches + plain_tail::LAUNCHES);
        expect_equal(split, way.split);
        expect_bytes(want.data(), got.data(), got.size() * 4);
    }
    const size_t row = want.size();
    std::vector<float> rows = run(w, {{0, len - 5, len}}, 0, false), some = run(w, {{0, len - 5, len}}, 1000, true);
    expect_bytes(rows.data(), some.data(), rows.size() * 4);
    expect_bytes(&rows[4 * row], want.data(), row * 4);
}

void test_spans()
{
    check_spans({PI__F16, PI__F16, 6, 1, 256, 0, 0, false, true, 0, 0}, 1800);
    check_spans({PI__Q8_0, PI__F16, 6, 2, 32, 2100, 0, true, false, 0, 0}, 2900);
    check_spans({PI__F32, PI__F32, 2, 2, 32, 0, 20, false, false, 1030, 1}, 2120);
}

/* Checks that a KV split, as used by the checks above, needs no extra launch. The blocks may finish in any order. */
void test_splits()
{
    fixture w = make_fixture({PI__F16, PI__F16, 2, 1, 32, 0, 0, false, false, 0, 0}, {600}, 16);
    bool split;
    const unsigned long before = counts_launches() ? now->emu->launched() : 0;
    const std::vector<float> want = run(w, {{0, 599, 600}}, 1000, false, 1 << 20, &split);
    expect_true(!split);
    if (counts_launches()) expect_equal(now->emu->launched() - before, 1 + plain_tail::LAUNCHES);
    in_all_modes([&] {
        const unsigned long since = counts_launches() ? now->emu->launched() : 0;
        const std::vector<float> got = run(w, {{0, 599, 600}}, 1000, true, 1 << 20, &split);
        expect_true(split);
        expect_bytes(want.data(), got.data(), want.size() * 4);
        if (counts_launches()) expect_equal(now->emu->launched() - since, 1 + plain_tail::LAUNCHES);
    });
}

/* WGMMA prefill is bitwise identical to mma.sync prefill, with every optional input and output. Rows end within tiles;
 * keys that no row attends to are NaN. */
void check_wgmma(const config &c, const std::vector<int32_t> &lens, const std::vector<span> &spans, int32_t block_size,
                 bool modes = false)
{
    fixture w = make_fixture(c, lens, block_size);
    w.fast = true, w.tails = false;
    about("%d values, %d heads for %d, keys of type %d", c.dim, c.n_head, c.n_head_kv, c.type_k);
    const std::vector<float> want = run(w, spans, 0, false);
    if (c.past >= 0 && spans.size() == 1) poison(w, spans[0]);
    w.wgmma = true;
    auto same = [&] {
        const std::vector<float> got = run(w, spans, 0, false);
        expect_bytes(want.data(), got.data(), want.size() * 4);
    };
    if (modes) in_all_modes(same);
    else same();
}

void test_wgmma()
{
    on_arch(90, [] {
        check_wgmma({PI__F16, PI__F16, 1, 1, 64, 0, 0, false, false, 0, 0}, {275}, {{0, 100, 275}}, 16);
        check_wgmma({PI__BF16, PI__F16, 4, 1, 128, 0, 0, false, false, 0, 0}, {300}, {{0, 240, 300}}, 32, !slow());
        check_wgmma({PI__F16, PI__F16, 3, 1, 256, 0, 0, true, false, 0, 0}, {290}, {{0, 250, 290}}, 16, !slow());
        if (slow()) return; /* the emulator is itself emulated */
        check_wgmma({PI__BF16, PI__F16, 6, 2, 64, 70, 0, true, false, 0, 0}, {200, 70, 1},
                    {{0, 60, 200}, {2, 0, 1}, {1, 0, 70}}, 16);
        check_wgmma({PI__F16, PI__BF16, 10, 2, 112, 0, 5, false, true, 3, 1}, {90, 40}, {{1, 0, 40}, {0, 50, 90}}, 64);
        check_wgmma({PI__BF16, PI__BF16, 16, 1, 128, 33, 0, false, false, 0, 0}, {150}, {{0, 118, 150}}, 128);
        check_wgmma({PI__F16, PI__F16, 7, 1, 128, 0, 0, false, false, 0, -1}, {80}, {{0, 33, 80}}, 16);
        check_wgmma({PI__F16, PI__BF16, 2, 2, 256, 40, 3, false, true, 0, 0}, {130, 64}, {{0, 30, 130}, {1, 20, 64}},
                    16);
        check_wgmma({PI__F16, PI__F16, 8, 1, 128, 0, 0, false, false, 0, 0}, {1300}, {{0, 1270, 1300}}, 16);
        if (now->emu && !now->emu->thorough) return;
        for (int32_t dim : {64, 112, 128, 256}) {
            /* heads per KV head: a tile holds this many heads of each token */
            for (int32_t group = 1; group <= 16; group++) {
                const int32_t k = group % 2 ? PI__F16 : PI__BF16, v = group % 3 ? PI__F16 : PI__BF16,
                              n = 130 / group + 3;
                check_wgmma({k, v, 2 * group, 2, dim, group % 4 ? 0 : 19 + group, 0, group % 5 == 0, false, 0, 0},
                            {260 + group, n, n + 40}, {{0, 260 - n, 260 + group}, {2, 20, n + 40}, {1, 0, n}}, 16);
            }
            if (!now->emu)
                check_wgmma({PI__F16, PI__F16, 6, 1, dim, 0, 0, false, false, 0, 0}, {5000}, {{0, 4000, 5000}}, 64);
        }
    });
}

const entry checks[] = {
    {"shapes", test_shapes}, {"same_bits", test_same_bits}, {"splits", test_splits},
    {"odd_heads", test_odd_heads}, {"tiles", test_tiles}, {"spans", test_spans}, {"wgmma", test_wgmma},
};

} // namespace

const family checks_of_attention = {"attention", "attention over the paged cache", checks,
                                    sizeof checks / sizeof *checks};

} // namespace selftest
