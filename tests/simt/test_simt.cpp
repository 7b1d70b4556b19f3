/* Tests of the emulator: each detector finds its kind of mistake, and a correct kernel is correct in every mode.
 * Built twice: with plain kernels, and (test_simt_race) with instrumented kernels, where races and similar faults
 * must be found. */
#include "simt_test.h"

#include <string>

#include "backend/cuda/kernels_hyper.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/places.h"
#include "backend/cuda/runtime.h"
#include "buggy.cuh"
#include "counters.h"
#include "runtime_emu.h"

using simt_test::buffer;
using simt_test::in_all_modes;

#ifdef SIMT_RACE
static const bool race_build = true;
#else
static const bool race_build = false;
#endif

static std::vector<float> numbers(size_t n)
{
    std::vector<float> v(n);
    for (size_t i = 0; i < n; i++) v[i] = (float) (i % 97);
    return v;
}

static void nothing() {}

/* True if the results of `sum` are right. */
static bool run_sum(int bug)
{
    const int n = 301, blocks = 3;
    buffer<float> x(numbers((size_t) (n * blocks))), y((size_t) blocks);
    if (launch_sum(bug, x.get(), y.get(), n, blocks)) return false;
    for (int b = 0; b < blocks; b++) {
        float s = 0;
        for (int i = 0; i < n; i++) s += x[(size_t) (b * n + i)];
        if (y[(size_t) b] != s) return false;
    }
    return true;
}

static bool run_staged(int bug, int threads)
{
    const int tiles = 5;
    buffer<float> x(numbers(32 * tiles)), y(32);
    if (launch_staged(bug, x.get(), y.get(), tiles, threads)) return false;
    for (size_t i = 0; i < 32; i++) {
        float s = 0;
        for (size_t t = 0; t < tiles; t++) s += x[32 * t + i];
        if (y[i] != s) return false;
    }
    return true;
}

static bool run_bulk(int bug, int (*launch)(int, const float *, float *, int) = launch_bulk)
{
    const int tiles = 5;
    buffer<float> x(numbers(32 * tiles)), y(32);
    if (launch(bug, x.get(), y.get(), tiles)) return false;
    for (size_t i = 0; i < 32; i++) {
        float s = 0;
        for (size_t t = 0; t < tiles; t++) s += x[32 * t + i];
        if (y[i] != s) return false;
    }
    return true;
}

static bool run_four_warps(int bug)
{
    struct as_sm_90 {
        as_sm_90() { simt::options.arch = 90; }
        ~as_sm_90() { simt::options.arch = 120; }
    } device;
    buffer<float> x(numbers(64 * 16)), y(64 * 128);
    if (launch_four_warps(bug, x.get(), y.get())) return false;
    for (size_t i = 0; i < 64 * 128; i++) {
        if (y[i] != 2 * x[i / 128 * 16 + i % 16]) return false;
    }
    return true;
}

static bool run_swap(int bug, int (*launch)(int, const float *, float *) = launch_swap)
{
    buffer<float> x(numbers(32)), y(32);
    if (launch(bug, x.get(), y.get())) return false;
    for (size_t i = 0; i < 32; i++) {
        if (y[i] != x[31 - i]) return false;
    }
    return true;
}

static bool run_count(int bug)
{
    std::vector<int> v(64);
    for (int i = 0; i < 64; i++) v[(size_t) i] = i * i % 7;
    buffer<int> x(v), y(1);
    if (launch_count(bug, x.get(), y.get())) return false;
    int n = 0;
    for (int i : v) n += i % 2;
    return y[0] == n;
}

static void test_correct_kernels(void **)
{
    in_all_modes([] {
        simt::clear_error();
        assert_true(run_sum(BUG_NONE));
        assert_true(run_staged(BUG_NONE, 32));
        assert_true(run_staged(BUG_NONE, 64));
        assert_true(run_bulk(BUG_NONE));
        if (!run_bulk(BUG_NONE, launch_ring)) fail_msg("%s", simt::last_error());
        assert_true(run_swap(BUG_NONE));
        if (!run_swap(BUG_NONE, launch_pass)) fail_msg("%s", simt::last_error());
        if (!run_four_warps(BUG_NONE)) fail_msg("wgmma: %s", simt::last_error());
        assert_true(run_count(BUG_NONE));
        assert_string_equal(simt::last_error(), "");
    });
}

/* The mistake stops the launch in every mode, in some modes with this text. In others, for example, the reader runs
 * before its writer and finds an uninitialized word. */
template <class F> static void must_find(const char *what, F run)
{
    int found = 0;
    in_all_modes([&] {
        simt::clear_error();
        assert_false(run());
        assert_string_not_equal(simt::last_error(), "");
        found += strstr(simt::last_error(), what) != nullptr;
    });
    if (!found) fail_msg("no \"%s\" in: %s", what, simt::last_error());
}

/* The mistake gives wrong results, or an error, in some mode. */
template <class F> static void must_fail(F run)
{
    int bad = 0;
    in_all_modes([&] { bad += !run(); });
    assert_true(bad > 0);
}

static void test_missing_barriers(void **)
{
    must_fail([] { return run_sum(BUG_NO_BARRIER); });
    must_fail([] { return run_staged(BUG_NO_LOOP_BARRIER, 64); });
    must_fail([] { return run_staged(BUG_NO_TILE_BARRIER, 64); });
    must_fail([] { return run_staged(BUG_WAIT_TOO_FEW, 64); });
    must_fail([] { return run_swap(BUG_NO_WARP_SYNC); });
    if (!race_build) return;
    must_find("race", [] { return run_sum(BUG_NO_BARRIER); });
    must_find("race", [] { return run_staged(BUG_NO_LOOP_BARRIER, 64); });
    must_find("race", [] { return run_staged(BUG_NO_LOOP_BARRIER, 32); });
    must_find("uninitialised", [] { return run_staged(BUG_NO_TILE_BARRIER, 64); });
    must_find("race", [] { return run_staged(BUG_WAIT_TOO_FEW, 64); });
    must_find("uninitialised", [] { return run_swap(BUG_NO_WARP_SYNC); });
    must_find("race", [] { return run_count(BUG_SAME_WORD); });
    must_find("race", [] { return run_count(BUG_READ_ATOMIC); });
}

static void test_wgmma(void **)
{
    must_find("after the last wgmma.fence", [] { return run_four_warps(BUG_GROUP_NO_FENCE); });
    must_fail([] { return run_four_warps(BUG_GROUP_NO_WAIT); });
    must_find("A of a wgmma was written while", [] { return run_four_warps(BUG_GROUP_WRITES_A); });
    must_find("accumulator was written", [] { return run_four_warps(BUG_GROUP_WRITES_D); });
    must_find("is under way when its block ends", [] { return run_four_warps(BUG_GROUP_LEFT); });
    must_find("did not issue as many", [] { return run_four_warps(BUG_GROUP_OF_THREE); });
    must_fail([] { return run_four_warps(BUG_GROUP_WRITES_B); });
    if (!race_build) return;
    must_find("race", [] { return run_four_warps(BUG_GROUP_WRITES_B); });
    must_find("race", [] { return run_four_warps(BUG_GROUP_NO_B); });
    must_find("did not fence", [] { return run_four_warps(BUG_GROUP_NO_B_FENCE); });
}

static void test_bulk_copies(void **)
{
    must_fail([] { return run_bulk(BUG_BULK_NO_WAIT); });
    must_fail([] { return run_bulk(BUG_BULK_ONE_WAITS); });
    /* the copying thread runs ahead of the others */
    must_find("phase overflow", [] { return run_bulk(BUG_BULK_REUSE); });
    must_find("fence", [] { return run_bulk(BUG_BULK_NO_FENCE); });
    must_find("mbarrier at", [] { return run_bulk(BUG_BULK_TOO_FEW); });
    must_find("phase overflow", [] { return run_bulk(BUG_BULK_TWICE); });
    must_find("phase overflow", [] { return run_bulk(BUG_BULK_SKIPS); });
    must_find("under way", [] { return run_bulk(BUG_BULK_LEFT); });
    must_fail([] { return run_bulk(BUG_RING_NO_WAIT, launch_ring); });
    must_fail([] { return run_swap(BUG_PASS_NO_WAIT, launch_pass); });
    if (!race_build) return;
    must_fail([] { return run_swap(BUG_PASS_ONE_LANE, launch_pass); });
    must_find("race", [] { return run_bulk(BUG_RING_EARLY, launch_ring); });
    for (int bug : {BUG_PASS_NO_WAIT, BUG_PASS_EARLY}) must_find("race", [bug] { return run_swap(bug, launch_pass); });
    must_find("race", [] { return run_bulk(BUG_BULK_NO_WAIT); });
    must_find("race", [] { return run_bulk(BUG_BULK_ONE_WAITS); });
}

static void test_memory_errors(void **)
{
    if (!race_build) return;
    must_find("out of bounds", [] { return run_sum(BUG_PAST_END); });
    must_find("uninitialised", [] { return run_sum(BUG_UNINITIALISED); });
    must_find("out of bounds", [] { return run_sum(BUG_GLOBAL_END); });
    must_find("misaligned", [] { return run_swap(BUG_MISALIGNED); });
}

static void test_collectives(void **)
{
    must_find("deadlock", [] { return run_sum(BUG_LANE_LEAVES); });
    must_find("deadlock", [] { return run_sum(BUG_SPLIT_BARRIER); });
    must_find("takes no part", [] { return run_swap(BUG_BAD_LANE); });
    must_find("not in", [] { return run_swap(BUG_WRONG_MASK); });
}

/* The text of a deadlock names the places where the threads wait. */
static void test_deadlock_text(void **)
{
    assert_false(run_sum(BUG_LANE_LEAVES));
    assert_non_null(strstr(simt::last_error(), "buggy.cu:"));
    assert_non_null(strstr(simt::last_error(), "has ended"));
}

/* True if the sum over blocks is right. */
static bool run_folded(int bug)
{
    const int n = 100, blocks = 7;
    buffer<float> x(numbers((size_t) (n * blocks))), part((size_t) blocks), y((size_t) blocks);
    buffer<unsigned> count(std::vector<unsigned>((size_t) blocks + 1));
    float sum = 0;
    for (size_t i = 0; i < (size_t) (n * blocks); i++) sum += x[i];
    part.fill(0);
    y.fill(0);
    return !launch_folded(bug, x.get(), part.get(), count.get(), y.get(), n, blocks) && y[0] == sum;
}

static bool run_reused(int bug)
{
    const int blocks = 7;
    buffer<float> word(std::vector<float>{3.0f, 0.0f}), y(blocks);
    buffer<unsigned> count(std::vector<unsigned>(1));
    return !launch_reused(bug, word.get(), count.get(), y.get(), blocks) && word[0] == (float) blocks && y[2] == 3.0f;
}

static bool run_passed_on(int bug)
{
    const size_t blocks = 9;
    buffer<float> y(blocks);
    buffer<unsigned> flag((std::vector<unsigned>(blocks))), ticket(std::vector<unsigned>(1));
    return !launch_passed_on(bug, y.get(), flag.get(), ticket.get(), (int) blocks) && y[blocks - 1] == (float) blocks;
}

/* The race is found in every order, also if several blocks run at the same time. The text names the kernel and both
 * places. */
static void must_race(int bug, const char *what, bool (*launch)(int) = run_folded, const char *kernel = "folded")
{
    simt::clear_error();
    for (int i = 0; i < 6; i++) {
        simt::config before = simt::options;
        simt::options.threads = simt::options.blocks = (simt::order) (i % 3);
        simt::options.resident = i < 3 ? 1 : 4;
        simt::options.seed = (uint64_t) i + 1;
        if (launch(bug)) fail_msg("bug %d, order %d: not found", bug, i);
        simt::options = before;
        const std::string text = simt::last_error(), place = std::string("race between blocks in ") + kernel;
        if (text.find(place) == text.npos || text.find(what) == text.npos ||
            text.find("buggy.cu:", text.find("which thread")) == text.npos)
            fail_msg("bug %d, order %d: %s", bug, i, text.c_str());
    }
}

static void test_races_between_blocks(void **)
{
    in_all_modes([] {
        simt::options.between = true;
        simt::clear_error();
        for (int way : {BUG_NONE, BUG_ARRIVES}) {
            if (!run_folded(way)) fail_msg("folded: %s", simt::last_error());
            if (!run_passed_on(way)) fail_msg("passed_on: %s", simt::last_error());
        }
        if (!run_reused(BUG_NONE)) fail_msg("reused: %s", simt::last_error());
    });
    if (!race_build) return;
    must_race(BUG_BOTH_WRITE, "writes global memory");
    must_race(BUG_READS_OTHERS, "global memory");
    must_race(BUG_NO_FENCE, "reads global memory");
    must_race(BUG_NO_FENCE_LAST, "reads global memory");
    must_race(BUG_NO_BLOCK_BARRIER, "global memory");
    must_race(BUG_OTHER_WORD, "reads global memory");
    must_race(BUG_READS_LATE, "global memory", run_reused, "reused");
    must_race(BUG_ADDS_LATE, "global memory", run_reused, "reused");
}

/* Resident blocks can wait for each other, and arrive in more orders than consecutive blocks. */
static void test_resident_blocks(void **)
{
    simt::config before = simt::options;
    simt::clear_error();
    assert_false(run_passed_on(BUG_NEVER)); /* the next block never runs while this one waits */
    assert_non_null(strstr(simt::last_error(), "another block"));
    simt::options.between = false;
    float sums[10]; /* consecutive in order, in reverse; then interleaved */
    int others = 0;
    for (int i = 0; i < 10; i++) {
        simt::options.blocks = i == 1 ? simt::order::reverse : simt::order::forward;
        simt::options.resident = i > 1 ? 4 : 1;
        simt::options.seed = (uint64_t) i;
        std::vector<float> v(8, 1.0f);
        v[0] = 16777216.0f; /* adding 1 to it has no effect */
        buffer<float> x(v), part(8), y(std::vector<float>(8));
        buffer<unsigned> count(std::vector<unsigned>(1));
        must_run(launch_folded(BUG_ANY_ORDER, x.get(), part.get(), count.get(), y.get(), 1, 8));
        sums[i] = y[0];
        others += i > 1 && sums[i] != sums[0];
    }
    assert_true(sums[0] != sums[1] && others > 0);
    simt::options = before;
}

/* Residual streams of 32 rows, in four groups whose blocks wait separately. */
static std::vector<float> run_streams(pi__k_waits waits)
{
    const int32_t rows = 32, n = 512;
    buffer<float> x(numbers((size_t) (rows * 4 * n))), mix(numbers((size_t) rows * 24)), scale(numbers(64)),
        base(numbers(64)), coef((size_t) rows * 20), y((size_t) (rows * n)), sums(pi__k_hyper_sums(rows, n));
    buffer<uint32_t> arrived(std::vector<uint32_t>((size_t) PI__K_HYPER_ROWS));
    pi__k_streams k = {};
    k.n_rows = rows, k.n_iter = 2, k.n = n, k.x = x.get(), k.mix = mix.get(), k.scale = scale.get();
    k.base = base.get(), k.norm_eps = k.eps = 1e-6f, k.coef = coef.get(), k.y = y.get(), k.sums = sums.get();
    k.arrived = arrived.get(), k.waits = waits;
    must_run(pi__k_streams_run(nullptr, &k, nullptr));
    return std::vector<float>(y.get(), y.get() + y.size());
}

/* Launches end on a device with n_sm places for blocks, if blocks of the other engines wait in as many places as they
 * may. All limits give the same bits. */
static void check_places(const std::vector<int32_t> &places, int n_sm)
{
    const size_t blocks = 20, items = 30;
    const std::vector<float> want = run_streams({});
    for (size_t e = 0; e < places.size(); e++) {
        int left = n_sm;
        for (size_t o = 0; o < places.size(); o++) left -= o == e ? 0 : places[o] - 1;
        assert_true(left >= 1 && places[e] >= 1);
        if (left > simt::MOST_RESIDENT) continue;
        simt::config before = simt::options;
        simt::options.exact_places = true;
        simt::options.resident = (unsigned) left;
        buffer<uint32_t> arrived(std::vector<uint32_t>(1));
        buffer<float> part(blocks), y(std::vector<float>((size_t) items));
        must_run(launch_gathered(nullptr, {places[e], nullptr}, arrived.get(), part.get(), y.get(), (int) items,
                                 (int) blocks));
        for (size_t i = 0; i < items; i++) assert_true(y[i] == (float) (190 * (i + 1)));
        assert_int_equal(arrived[0], 0);
        const std::vector<float> got = run_streams({places[e], nullptr});
        assert_memory_equal(got.data(), want.data(), want.size() * sizeof(float));
        simt::options = before;
    }
}

/* More blocks wait than the device has places for: they report it, and the launch ends. */
static void test_stuck(void **)
{
    const size_t blocks = 20;
    simt::config before = simt::options;
    buffer<float> part(blocks), y(30);
    simt::options.between = false; /* a block that stops waiting reads incomplete results */
    simt::options.exact_places = true;
    simt::options.resident = 2;
    for (unsigned long polls : {0ul, 20ul}) {
        buffer<uint32_t> arrived(std::vector<uint32_t>(1));
        uint32_t stuck = 0;
        simt::options.max_polls = polls;
        simt::clear_error();
        const int code = launch_gathered(nullptr, {4, &stuck}, arrived.get(), part.get(), y.get(), 30, (int) blocks);
        assert_true(polls ? !code && stuck == 1 : code && !stuck);
        if (!polls) assert_non_null(strstr(simt::last_error(), "another block"));
    }
    simt::options = before;
}

/* The engines of a device divide its places. An engine that closes returns them. */
static void test_places(void **)
{
    simt::watch.places = 0;
    for (int n_sm : {1, 2, 4, 6, 7, 8, 16, 48, 132, 188}) {
        pi__rt *rt[4];
        pi__rt_info info;
        std::vector<int32_t> places;
        simt::watch.n_sm = n_sm;
        for (pi__rt *&r : rt) {
            assert_int_equal(pi__rt_open(&r, 0, &info), 0);
            places.push_back(info.places);
            check_places(places, n_sm);
        }
        if (n_sm >= 16) assert_true(places[0] == n_sm / 2 && places[1] == n_sm / 2);
        if (n_sm == 6) assert_int_equal(places[0], 6);
        pi__rt_close(rt[0]);
        assert_int_equal(pi__rt_open(&rt[0], 0, &info), 0);
        assert_int_equal(info.places, places[0]);
        for (pi__rt *r : rt) pi__rt_close(r);
    }
    simt::watch.places = 8;
    simt::watch.n_sm = 4;
    assert_int_equal(simt::watch.live, 0);
}

static simt::launch_counts counted_launch(int (*launch)(int, int, float *), int a, int b)
{
    simt::counter c;
    buffer<float> y(32);
    simt::options.count = &c;
    must_run(launch(a, b, y.get()));
    simt::options.count = nullptr;
    assert_int_equal(c.launches.size(), 1);
    return c.launches[0];
}

static void test_counts(void **)
{
    auto rows = [](int stride, int, float *y) { return launch_rows(stride, y); };
    simt::launch_counts c = counted_launch(rows, 16, 0);
    assert_int_equal(c.op[simt::DO_LDMATRIX], 1);
    /* wavefronts of zeroing the rows, without conflicts; 0 in plain builds, which do not see them */
    const double filled = c.wavefronts - 4;
    assert_true(filled == (race_build ? 64 : 0) && c.wavefronts == c.least);
    c = counted_launch(rows, 128, 0); /* all rows in the same 4 banks: 8-way conflicts */
    assert_true(c.wavefronts == filled + 32 && c.least == filled + 4);
    c = counted_launch(rows, 144, 0);
    assert_true(c.wavefronts == c.least);
    if (!race_build) return;
    const struct { int bytes, stride; double wavefronts, least;
    } cases[] = {
        {4, 4, 1, 1}, {4, 32, 8, 1},  {4, 128, 32, 1}, {4, 0, 1, 1},
        {8, 8, 2, 2}, {8, 64, 16, 2}, {16, 16, 4, 4},  {16, 32, 8, 4},
    };
    for (const auto &k : cases) {
        c = counted_launch(launch_strided, k.bytes, k.stride);
        assert_int_equal(c.op[simt::DO_LDS], 1);
        assert_int_equal(c.wavefronts - 64, k.wavefronts);
        assert_int_equal(c.least - 64, k.least);
        assert_int_equal(c.op[simt::DO_STG], 1);
        assert_int_equal(c.written, 4);
        assert_int_equal(c.touched_written, 4);
    }
}

/* Value of a finite F16 or BF16. */
static double value_16(uint32_t h, bool bf16)
{
    const int bits = bf16 ? 7 : 10, bias = bf16 ? 127 : 15, e = (int) (h & 0x7fff) >> bits,
              m = (int) h & ((1 << bits) - 1);
    const double v = std::ldexp(e ? m + (1 << bits) : m, (e ? e : 1) - bias - bits);
    return h & 0x8000 ? -v : v;
}

/* The result is the nearest value, ties to even: sums that a double represents, near half a unit, and subnormal
 * ones. */
static void test_fma_16(void **)
{
    selftest::random r(17);
    for (bool bf16 : {false, true}) {
        const uint32_t inf = bf16 ? 0x7f80 : 0x7c00, one = bf16 ? 0x3f80 : 0x3c00;
        auto fma = [&](uint32_t a, uint32_t b, uint32_t c) {
            const auto both = bf16 ? simt::fma_bf16x2 : simt::fma_f16x2;
            const uint32_t d = both(a << 16 | one, b << 16 | one, c << 16);
            assert_int_equal(d & 0xffff, one); /* the other half: 1 * 1 + 0 */
            return d >> 16;
        };
        for (int i = 0; i < 20000; i++) {
            /* exponents close to each other, sometimes low enough for a subnormal product */
            const uint32_t step = bf16 ? 128 : 1024, base = i % 4 ? one : (bf16 ? 64 : 8) * step;
            const uint32_t a = base - step * r.below(4) + r.below(step), b = base - step * r.below(4) + r.below(step);
            const uint32_t c = (i % 4 ? one - step * r.below(6) : r.below(4) * step) + r.below(step) +
                               (r.below(2) << 15);
            const double exact = value_16(a, bf16) * value_16(b, bf16) + value_16(c, bf16);
            const uint32_t d = fma(a, b, c), m = d & 0x7fff;
            const double off = std::fabs(value_16(d, bf16) - exact);
            for (uint32_t other : {m ? m - 1 : 1u, m + 1}) {
                const double far = std::fabs(value_16(other | (d & 0x8000), bf16) - exact);
                if (off > far || (off == far && d % 2)) fail_msg("%04x * %04x + %04x is not %04x", a, b, c, d);
            }
        }
        assert_int_equal(fma(inf - 1, inf - 1, 0), inf);
        assert_int_equal(fma(inf, 0, one), 0x7fff);
        assert_int_equal(fma(one, 0x8000, 0x8000), 0x8000);
        assert_int_equal(fma(one, 1, 0), 1);
        assert_int_equal(fma(inf - 1, one, 1), inf - 1);
    }
}

/* A sample of a grid gives the counts of the full grid. */
static void test_sampled_counts(void **)
{
    const int n = 96, blocks = 200;
    buffer<float> x((size_t) (n * blocks)), y((size_t) blocks);
    x.fill(0);
    simt::launch_counts c[2];
    for (unsigned i = 0; i < 2; i++) {
        simt::counter count;
        count.sample = i ? 5 : 0;
        simt::options.count = &count;
        must_run(launch_sum(BUG_NONE, x.get(), y.get(), n, blocks));
        simt::options.count = nullptr;
        c[i] = count.launches[0];
    }
    assert_int_equal(c[0].ran, blocks);
    assert_int_equal(c[1].ran, 5);
    for (int i = 0; i < simt::N_COUNTED; i++) assert_true(c[0].op[i] == c[1].op[i]);
    assert_true(c[0].read == c[1].read && c[0].touched_read == c[1].touched_read);
    assert_true(c[0].op[simt::DO_BARRIER] == 2 * blocks && c[0].op[simt::DO_SHUFFLE] == 10 * blocks);
    if (race_build) assert_true(c[0].read == n * blocks / 8 && c[0].touched_read == n * blocks / 8);
}

/* Launches for a device that is not the current one. */
static void test_current_device(void **)
{
    pi__rt *rt[2];
    pi__rt_info info;
    buffer<float> y(1);
    const char *why;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pi__rt_open(&rt[i], i, &info), 0);
        assert_int_equal(pi__rt_load_kernels(rt[i], &why), 0);
    }
    void *first = pi__rt_stream(rt[0]), *second = pi__rt_stream(rt[1]); /* this call makes it the current one */
    const int code = launch_elsewhere(first, y.get());
    assert_non_null(strstr(pi__rt_text(code), "current"));
    assert_int_equal(launch_elsewhere(second, y.get()), 0);
    /* pi__rt_stream sets the current device */
    assert_int_equal(pi_launch(pi__rt_stream(rt[0]), nothing, dim3(1), dim3(1), 0), 0);
    for (pi__rt *r : rt) {
        assert_int_equal(pi__rt_wait(r), 0);
        pi__rt_close(r);
    }
}

/* True if dependent launches give the right results. Premature accesses are detected in instrumented kernels, missing
 * waits in all builds. */
static bool run_dependent(int bug)
{
    const char *why;
    pi__rt_info info;
    pi__rt *rt;
    buffer<float> w(numbers(32)), x(32), y(32);
    assert_int_equal(pi__rt_open(&rt, 0, &info), 0);
    assert_int_equal(pi__rt_load_kernels(rt, &why), 0);
    bool right = launch_dependent(bug, pi__rt_stream(rt), w.get(), x.get(), y.get()) == 0;
    right = pi__rt_wait(rt) == 0 && right;
    pi__rt_close(rt);
    for (size_t i = 0; i < 32 && right; i++) right = y[i] == (float) (31 - i) + w[i];
    return right;
}

static void test_dependent_launches(void **)
{
    const struct { int bug; bool plain; const char *what; } cases[] = {
        {BUG_READS_EARLY, false, "reads global memory"}, {BUG_COPIES_EARLY, false, "reads global memory"},
        {BUG_WRITES_EARLY, false, "writes global memory"}, {BUG_ENDS_EARLY, true, "has not waited"},
        {BUG_ONE_WAITS, true, "waited"},
    };
    in_all_modes([&] {
        simt::clear_error();
        if (!run_dependent(BUG_NONE)) fail_msg("%s", simt::last_error());
        for (const auto &c : cases) {
            if (!race_build && !c.plain) continue;
            simt::clear_error();
            if (run_dependent(c.bug) || !strstr(simt::last_error(), c.what))
                fail_msg("bug %d: %s", c.bug, simt::last_error());
        }
    });
}

static void test_block_order(void **)
{
    buffer<float> y(8);
    int right = 0;
    if (race_build) {
        assert_int_not_equal(launch_chain(y.get(), 8), 0);
        assert_non_null(strstr(simt::last_error(), "race between blocks in chain"));
    }
    in_all_modes([&] {
        simt::options.between = false;
        y.fill(0);
        must_run(launch_chain(y.get(), 8));
        right += y[7] == 8;
    });
    assert_true(right > 0 && right < 6);
}

static void test_launch_limits(void **)
{
    auto launch = [](dim3 grid, dim3 block, size_t shared) { return pi_launch(nullptr, nothing, grid, block, shared); };
    assert_int_equal(launch(dim3(1), dim3(1024), simt::options.max_shared), 0);
    assert_int_not_equal(launch(dim3(1), dim3(1025), 0), 0);
    assert_int_not_equal(launch(dim3(1), dim3(32, 33), 0), 0);
    assert_int_not_equal(launch(dim3(1), dim3(32), simt::options.max_shared + 1), 0);
    assert_int_not_equal(launch(dim3(0), dim3(32), 0), 0);
    assert_int_not_equal(launch(dim3(1, 65536), dim3(32), 0), 0);
}

/* A kernel's limit of shared memory: 48 KiB until kernels are loaded, then the device's. Drivers that cannot list
 * kernels get it at the launch. */
static void test_shared_limits(void **)
{
    pi__rt_info info;
    const char *why;
    const size_t large = (48 << 10) + 1, most = simt::options.max_shared;
    for (bool lazy : {true, false}) {
        pi__rt *rt;
        simt::watch.lazy = lazy;
        simt::reset_attributes();
        assert_int_equal(pi__rt_open(&rt, 0, &info), 0);
        assert_int_equal(pi__rt_load_kernels(rt, &why), 0);
        auto launch = [&](size_t shared) { return pi_launch(pi__rt_stream(rt), nothing, dim3(1), dim3(1), shared); };
        if (!lazy) { /* another engine lowers the limit */
            const void *const kernel = (const void *) nothing, *const mark = (const void *) pi_mark;
            assert_false(simt::set_attribute(0, mark, kernel, simt::MAX_SHARED, 48 << 10));
            assert_int_equal(launch(48 << 10), 0);
            assert_non_null(strstr(pi__rt_text(launch(large)), "may have 49152"));
            assert_true(simt::set_attribute(0, mark, kernel, simt::MAX_SHARED, SIZE_MAX));
            assert_true(simt::set_attribute(0, mark, kernel, simt::CARVEOUT, 100));
            assert_false(simt::set_attribute(0, mark, kernel, simt::CARVEOUT, 50));
        }
        assert_int_equal(launch(large), 0);
        assert_int_equal(launch(most), 0);
        assert_int_equal(pi__rt_wait(rt), 0);
        pi__rt_close(rt);
    }
    assert_int_equal(simt::watch.live, 0);
}

static void test_device_memory(void **)
{
    assert_null(simt::device_alloc(0));
    assert_null(simt::device_alloc(SIZE_MAX / 2));
    for (size_t n : {1, 255, 256, 100000}) {
        unsigned char *p = static_cast<unsigned char *>(simt::device_alloc(n));
        assert_non_null(p);
        assert_int_equal((uintptr_t) p % 256, 0);
        assert_int_equal(p[n - 1], 0xff);
        simt::device_free(p);
    }
}

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_correct_kernels), cmocka_unit_test(test_missing_barriers),
        cmocka_unit_test(test_memory_errors),   cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_bulk_copies),     cmocka_unit_test(test_races_between_blocks),
        cmocka_unit_test(test_wgmma),
        cmocka_unit_test(test_dependent_launches),
        cmocka_unit_test(test_resident_blocks), cmocka_unit_test(test_counts), cmocka_unit_test(test_fma_16),
        cmocka_unit_test(test_sampled_counts),  cmocka_unit_test(test_current_device),
        cmocka_unit_test(test_deadlock_text),   cmocka_unit_test(test_block_order),
        cmocka_unit_test(test_launch_limits),   cmocka_unit_test(test_device_memory),
        cmocka_unit_test(test_shared_limits),   cmocka_unit_test(test_places),
        cmocka_unit_test(test_stuck),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
