/* The slots of a device (slots.h): a launch with more waiting blocks than slots is an error, and the waiting blocks of
 * several engines on one device leave slots for all. */
#include "engine_jobs.h"

#include <thread>

#include "backend/cuda/runtime.h"
#include "buggy.cuh"
#include "slots.h"

using namespace simt_test;

/* Numbers from the occupancy tables of the CUDA toolkit. */
static void test_slots_of_blocks(void **)
{
    const struct { int arch; unsigned threads; size_t shared; unsigned registers, slots;
    } cases[] = {{120, 256, 49036, 128, 2}, {120, 256, 101376, 128, 1}, {120, 256, 0, 255, 1},
                 {120, 256, 0, 64, 4},      {120, 256, 0, 32, 6},       {120, 32, 0, 32, 24},
                 {120, 32, 16384, 32, 5},   {120, 1024, 0, 64, 1},      {120, 256, 0, 0, 1},
                 {120, 128, 0, 0, 2},       {90, 256, 49036, 128, 2},   {90, 128, 49036, 128, 4},
                 {90, 32, 0, 32, 32},       {80, 32, 0, 32, 16}};
    for (const auto &c : cases) {
        simt::options.arch = c.arch;
        const unsigned n = simt::slots_per_multiprocessor(c.threads, c.shared, c.registers);
        if (n != c.slots) fail_msg("sm_%d, %u threads, %zu bytes, %u registers: %u", c.arch, c.threads, c.shared,
                                   c.registers, n);
    }
    simt::options.arch = 120;
}

/* Runs a launch of 40 blocks, of which up to `waiting` wait. rt: its queue; NULL = none. Returns its code. */
static int gather(int32_t waiting, pi__rt *rt = nullptr)
{
    const size_t blocks = 40, items = 40;
    buffer<uint32_t> arrived(std::vector<uint32_t>(1));
    buffer<float> part(blocks), y(items);
    simt::clear_error();
    int code = launch_gathered(rt ? pi__rt_stream(rt) : nullptr, {waiting, nullptr}, arrived.get(), part.get(), y.get(),
                               (int) items, (int) blocks);
    if (!code && rt) code = pi__rt_wait(rt);
    for (size_t i = 0; i < items && !code; i++) assert_true(y[i] == (float) (780 * (i + 1)));
    return code;
}

/* One waiting block too many is found, with 1, 2 and 4 multiprocessors. */
static void test_one_too_many(void **)
{
    const struct { unsigned multiprocessors, registers; int32_t slots;
    } cases[] = {{1, 255, 8}, {2, 255, 16}, {4, 255, 32}, {1, 32, 24}};
    for (const auto &c : cases) {
        simt::slots.multiprocessors = c.multiprocessors;
        simt::slots.registers = c.registers;
        for (int32_t waiting : {1, c.slots}) {
            if (gather(waiting)) fail_msg("%d slots, %d waiting: %s", c.slots, waiting, simt::last_error());
        }
        assert_int_not_equal(gather(c.slots + 1), 0);
        assert_non_null(strstr(simt::last_error(), "too many waiting blocks"));
        assert_non_null(strstr(simt::last_error(), "another block"));
    }
    simt::slots = {};
}

/* The waiting blocks of a queue, all but one, occupy multiprocessors that the other queues lack. */
static void test_two_queues(void **)
{
    pi__rt *rt[2];
    pi__rt_info info;
    const char *lazy;
    simt::watch.places = 3;
    for (pi__rt *&r : rt) {
        assert_int_equal(pi__rt_open(&r, 0, &info), 0);
        assert_int_equal(info.places, 3);
        assert_int_equal(pi__rt_load_kernels(r, &lazy), 0);
    }
    simt::slots.multiprocessors = 3;
    assert_int_equal(gather(8, rt[0]), 0); /* 8 slots on the multiprocessor that is left */
    assert_int_not_equal(gather(9, rt[0]), 0);
    assert_non_null(strstr(simt::last_error(), "too many waiting blocks"));
    simt::slots.multiprocessors = 2;
    assert_int_not_equal(gather(1, rt[1]), 0);
    assert_non_null(strstr(simt::last_error(), "no block of"));
    for (pi__rt *r : rt) pi__rt_close(r);
    simt::watch.places = 8;
    simt::slots = {};
    assert_int_equal(simt::watch.live, 0);
}

static const std::vector<job> two_jobs = {{prompt(20, 1), "4"}, {prompt(3, 2), "3"}};

/* Opens an engine. waiting_blocks: option cuda-waiting-blocks; NULL = the default. */
static int open_waiting(pi_engine **e, const char *waiting_blocks, pi_error *err)
{
    pi_options *o = options_on("emu", "16");
    if (waiting_blocks) set(o, "cuda-waiting-blocks", waiting_blocks);
    const int code = pi_engine_open(e, o, err);
    pi_options_free(o);
    return code;
}

/* Opens n engines on a device with n_sm multiprocessors, and runs the jobs in all at the same time. */
static std::vector<std::vector<rows>> run_engines(size_t n, int n_sm, const char *waiting_blocks)
{
    std::vector<pi_engine *> e(n);
    std::vector<std::vector<rows>> got(n);
    std::vector<std::thread> threads;
    pi_error err;
    simt::watch.n_sm = n_sm;
    simt::slots.multiprocessors = (unsigned) n_sm;
    for (pi_engine *&one : e)
        if (open_waiting(&one, waiting_blocks, &err)) fail_msg("%zu engines, %d SMs: %s", n, n_sm, err.msg);
    for (size_t i = 0; i < n; i++) threads.emplace_back([&, i] { got[i] = run_jobs(e[i], two_jobs); });
    for (std::thread &t : threads) t.join();
    for (pi_engine *one : e) pi_engine_close(one);
    simt::slots.multiprocessors = 0;
    simt::watch.n_sm = 4;
    assert_int_equal(simt::watch.live, 0);
    return got;
}

/* Up to four busy engines share the slots of a device with 1, 4 or 16 multiprocessors. All launches end, with the bits
 * of a single engine. */
static void test_engines(void **)
{
    const struct { size_t engines; int n_sm; const char *waiting_blocks;
    } cases[] = {{1, 1, nullptr}, {4, 1, nullptr}, {2, 4, nullptr}, {4, 4, "1"}, {2, 16, nullptr}, {4, 16, nullptr}};
    assert_int_equal(simt_tiny_write_small(model_path.c_str(), PI__Q8_0), 0);
    simt::watch.places = 0;
    simt::options.between = false;
    const std::vector<rows> want = run_engines(1, 16, nullptr)[0];
    for (const auto &c : cases) {
        for (const std::vector<rows> &got : run_engines(c.engines, c.n_sm, c.waiting_blocks)) same_rows(want, got);
    }
    simt::watch.places = 8;
    unlink(model_path.c_str());
}

/* Opens two engines and runs jobs in them. Returns the text of the first error; "" = none. */
static std::string two_engines()
{
    pi_engine *e[2] = {};
    pi_error err = {};
    std::string text;
    for (int i = 0; i < 2 && text.empty(); i++)
        if (open_waiting(&e[i], nullptr, &err)) text = err.msg;
    for (int i = 0; i < 4 && text.empty(); i++) {
        rows out;
        int code = 0;
        pi_request *r = submit(e[i % 2], two_jobs[0], &out, &code, &err);
        take_events(e[i % 2], [] {});
        if (code) text = simt::last_error();
        pi_request_free(r);
    }
    for (pi_engine *one : e) pi_engine_close(one);
    assert_int_equal(simt::watch.live, 0);
    return text;
}

/* Engines that ignore the other engines of their device are found. */
static void test_ignored_engine(void **)
{
    assert_int_equal(simt_tiny_write_small(model_path.c_str(), PI__Q8_0), 0);
    simt::watch.n_sm = 8;
    simt::slots.multiprocessors = 8;
    for (int places : {0, 8}) { /* 0: as on a device */
        simt::watch.places = places;
        simt::clear_error();
        const std::string text = two_engines();
        if (text.empty() != !places) fail_msg("%d places: %s", places, text.c_str());
        if (places && text.find("too many waiting blocks") == text.npos) fail_msg("%s", text.c_str());
    }
    simt::watch.places = 8;
    simt::watch.n_sm = 4;
    simt::slots.multiprocessors = 0;
    unlink(model_path.c_str());
}

/* Launches that set a limit of shared memory for themselves, and so lower it for another engine, are found. */
static void test_own_limits(void **)
{
    assert_int_equal(simt_tiny_write_small(model_path.c_str(), PI__Q8_0), 0);
    const long splits = simt::watch.n_splits;
    assert_string_equal(two_engines().c_str(), "");
    assert_int_equal(simt::watch.n_splits, splits);
    simt::watch.own_limits = true;
    pi_engine *e;
    pi_error err;
    assert_int_equal(open_waiting(&e, nullptr, &err), PI_EDEVICE);
    assert_non_null(strstr(err.msg, "changes an attribute"));
    simt::watch.own_limits = false;
    simt::reset_attributes();
    unlink(model_path.c_str());
}

int main()
{
    name_model("slots");
    const CMUnitTest tests[] = {cmocka_unit_test(test_slots_of_blocks), cmocka_unit_test(test_one_too_many),
                                cmocka_unit_test(test_two_queues),      cmocka_unit_test(test_engines),
                                cmocka_unit_test(test_ignored_engine),  cmocka_unit_test(test_own_limits)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
