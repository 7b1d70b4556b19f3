/* The emulator itself: each of its detectors finds the mistake it is for, and a correct kernel is correct in every mode.
 * Built twice: with plain kernels, and (test_simt_race) with instrumented ones, where races and the like must be found. */
#include "simt_test.h"

#include "backend/cuda/launch.cuh"
#include "buggy.cuh"

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

/* True when sum's results are right. */
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

static bool run_bulk(int bug)
{
    const int tiles = 5;
    buffer<float> x(numbers(32 * tiles)), y(32);
    if (launch_bulk(bug, x.get(), y.get(), tiles)) return false;
    for (size_t i = 0; i < 32; i++) {
        float s = 0;
        for (size_t t = 0; t < tiles; t++) s += x[32 * t + i];
        if (y[i] != s) return false;
    }
    return true;
}

static bool run_swap(int bug)
{
    buffer<float> x(numbers(32)), y(32);
    if (launch_swap(bug, x.get(), y.get())) return false;
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
        assert_true(run_swap(BUG_NONE));
        assert_true(run_count(BUG_NONE));
        assert_string_equal(simt::last_error(), "");
    });
}

/* The mistake stops the launch in every mode, in some with this text: a reader that comes before its writer, instead of
 * after it, finds a word that nobody has written. */
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

/* The mistake gives wrong results in some mode, or an error. */
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

static void test_bulk_copies(void **)
{
    must_fail([] { return run_bulk(BUG_BULK_NO_WAIT); });
    must_fail([] { return run_bulk(BUG_BULK_ONE_WAITS); });
    must_find("phase overflow", [] { return run_bulk(BUG_BULK_REUSE); }); /* its thread runs ahead of the others */
    must_find("fence", [] { return run_bulk(BUG_BULK_NO_FENCE); });
    must_find("mbarrier at", [] { return run_bulk(BUG_BULK_TOO_FEW); });
    must_find("phase overflow", [] { return run_bulk(BUG_BULK_TWICE); });
    must_find("phase overflow", [] { return run_bulk(BUG_BULK_SKIPS); });
    must_find("under way", [] { return run_bulk(BUG_BULK_LEFT); });
    if (!race_build) return;
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

/* The text of a deadlock says where the threads wait. */
static void test_deadlock_text(void **)
{
    assert_false(run_sum(BUG_LANE_LEAVES));
    assert_non_null(strstr(simt::last_error(), "buggy.cu:"));
    assert_non_null(strstr(simt::last_error(), "has ended"));
}

static void test_block_order(void **)
{
    buffer<float> y(8);
    int right = 0;
    in_all_modes([&] {
        y.fill(0);
        must_run(launch_chain(y.get(), 8));
        right += y[7] == 8;
    });
    assert_true(right > 0 && right < 6);
}

static void nothing() {}

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
        cmocka_unit_test(test_bulk_copies),
        cmocka_unit_test(test_deadlock_text),   cmocka_unit_test(test_block_order),
        cmocka_unit_test(test_launch_limits),   cmocka_unit_test(test_device_memory),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
