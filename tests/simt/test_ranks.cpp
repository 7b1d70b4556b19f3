/* The CUDA backend on several emulated devices (split-mode tensor). Their number changes no bit, no device accesses
 * another's memory, and if one fails, all fail immediately; none waits forever. */
#include "engine_jobs.h"

extern "C" {
#include "backend/devices.h"
int simt_tiny_write_even(const char *path, int32_t type);
int simt_draft_logits(const char *devices, int32_t n_pick, float *logits, size_t room, size_t *n_rows, size_t *n_vocab);
}

static const char *const devices[] = {"emu", "emu,emu", "emu,emu,emu,emu"};

static void same_on_all(int n)
{
    const std::vector<job> jobs = {{prompt(21, 1), "4"}, {prompt(3, 2), "5"}, {prompt(1, 3), "3"}};
    std::vector<rows> want;
    simt::watch.apart = true;
    for (int i = 0; i < n; i++) {
        pi_error err;
        pi_engine *e;
        if (open_engine_on(&e, devices[i], i ? "9" : "64", &err)) fail_msg("%s: %s", devices[i], err.msg);
        std::vector<rows> got = run_jobs(e, jobs);
        pi_engine_close(e);
        assert_int_equal(simt::watch.live, 0);
        if (!i) want = got;
        else same_rows(want, got);
    }
    simt::watch.apart = false;
    unlink(model_path.c_str());
}

/* A cache split by heads, and a cache that all devices replicate (four devices, two heads). */
static void test_same_bits(void **)
{
    assert_int_equal(simt_tiny_write(model_path.c_str(), PI__Q4_K), 0);
    same_on_all(getenv("PI_TEST_EMULATED") ? 2 : 3);
    assert_int_equal(simt_tiny_write_small(model_path.c_str(), PI__F32), 0);
    simt::options.eager = true;
    same_on_all(2);
    simt::options.eager = false;
}

/* The plan of each device. */
static pi_plan plan_on(const char *names)
{
    pi_plan plan = {};
    pi_error err;
    plan.size = sizeof plan;
    pi_options *o = options_on(names, "16");
    if (pi_engine_plan(o, &plan, &err)) fail_msg("%s: %s", names, err.msg);
    pi_options_free(o);
    return plan;
}

/* Bytes of the model's matrices per device, without the rounding to pages. */
static uint64_t weights_on(const char *names)
{
    const size_t page = simt::options.page;
    simt::options.page = 0;
    const uint64_t bytes = plan_on(names).weights_bytes;
    simt::options.page = page;
    return bytes;
}

/* Experts, each split over all devices; gate and up in one matrix, and in two. */
static void test_experts(void **)
{
    for (const char *arch : {"gemma4", "mixtral", "qwen35moe"}) {
        if (!strcmp(arch, "qwen35moe") && !getenv("PAGEDINFER_LONG")) continue;
        assert_int_equal(simt_small_write(model_path.c_str(), arch, PI__F32), 0);
        const uint64_t all = weights_on(devices[0]);
        assert_in_range(weights_on(devices[1]), all / 2, all * 3 / 4);
        same_on_all(2);
    }
}

/* DeepSeek V4, with experts by token id: each device has a shard of the embedding, and looks up all experts. */
static void test_tables(void **)
{
    assert_int_equal(simt_small_write(model_path.c_str(), "deepseek4", PI__F32), 0);
    same_on_all(2);
}

/* A drafter with a centroid lm_head, which every device replicates. */
static void test_clusters(void **)
{
    static float want[8000], got[8000];
    size_t rows, vocab;
    assert_int_equal(simt_draft_logits("emu", 40, want, 8000, &rows, &vocab), PI_OK);
    assert_int_equal(simt_draft_logits("emu,emu", 40, got, 8000, &rows, &vocab), PI_OK);
    assert_memory_equal(got, want, rows * vocab * sizeof *got);
    assert_int_equal(simt::watch.live, 0);
}

/* Tensors of an arena are mapped on all devices or on none, and unmapped one by one. */
static void test_arena(void **)
{
    const size_t page = simt::options.page;
    const pi__device_params p = {};
    pi__backend *be;
    pi_error err;
    char text[] = "what all of them have", got[sizeof text] = "";
    assert_int_equal(pi__device_create(&be, "emu,emu,emu", true, &p, nullptr, &err), PI_OK);
    assert_int_equal(be->page, page);
    assert_null(be->opt->arena_alloc(be, page / 2));
    char *a = static_cast<char *>(be->opt->arena_alloc(be, 4 * page)), *b = a + page;
    assert_non_null(a);
    assert_int_equal(simt::device_bytes(), 0);
    assert_true(be->opt->arena_map(be, a, page));
    assert_int_equal(simt::device_bytes(), 3 * page);
    for (long i = 0; i < 3; i++) {
        simt::options.fail_alloc = i;
        assert_false(be->opt->arena_map(be, b, 2 * page));
        assert_int_equal(simt::device_bytes(), 3 * page);
    }
    assert_true(be->opt->arena_map(be, b, 2 * page));
    assert_int_equal(simt::device_bytes(), 9 * page);
    be->dev->upload(be, b + 2 * page - sizeof text, text, sizeof text);
    be->opt->arena_unmap(be, a, page);
    assert_int_equal(simt::device_bytes(), 6 * page);
    be->dev->download(be, got, b + 2 * page - sizeof text, sizeof text);
    assert_int_equal(be->dev->finish(be, &err), PI_OK);
    assert_string_equal(got, text);
    be->dev->upload(be, a, text, sizeof text);
    assert_int_equal(be->dev->finish(be, &err), PI_EDEVICE);
    assert_non_null(strstr(err.msg, "leaves device memory"));
    be->opt->arena_unmap(be, b, 2 * page);
    be->opt->arena_free(be, a, 4 * page);
    be->dev->destroy(be);
    assert_int_equal(simt::watch.live, 0);
}

/* After opening, the devices' memory equals the plan for each. Matrices have separate pages. A failing map or call is
 * an error, and everything is freed. */
static void test_mapped(void **)
{
    pi_error err;
    pi_engine *e;
    simt::options.page = 4 << 10;
    simt::watch.idle = true;
    assert_int_equal(simt_tiny_write_even(model_path.c_str(), PI__F32), 0);
    /* With one device or two, the host has the same memory for block tables, batches and rows of logits. */
    assert_int_equal(open_engine_on(&e, "emu", "16", &err), PI_OK);
    const size_t host = plan_on("emu").total_bytes - simt::device_bytes();
    pi_engine_close(e);
    const pi_plan plan = plan_on("emu,emu");
    assert_int_equal(open_engine_on(&e, "emu,emu", "16", &err), PI_OK);
    pi_info info;
    info.size = sizeof info;
    assert_int_equal(pi_engine_info(e, &info), PI_OK);
    const size_t found = PI__USUAL_ROWS * (info.n_vocab * sizeof(float) + (2 + PI__MAX_TOP) * sizeof(uint64_t) +
                                         sizeof(pi__topk_request) + sizeof(pi__draw) +
                                         (PI__MAX_SEEN + 1) * sizeof(int32_t)); /* in host memory */
    assert_in_range(host, found, found + (64 << 10));
    assert_int_equal(simt::device_bytes(), 2 * (plan.total_bytes - host));
    pi_engine_close(e);
    for (int what = 0; what < 2; what++) {
        long n = 0;
        for (bool failed = true; failed; n++) {
            simt::watch.n_calls = 0;
            if (what) simt::watch.fail_at = n;
            else simt::options.fail_alloc = n;
            const int rc = open_engine_on(&e, "emu,emu", "16", &err);
            failed = what ? simt::watch.n_calls > n : simt::options.fail_alloc < 0;
            simt::watch.fail_at = simt::options.fail_alloc = -1;
            if (rc != (failed ? what ? PI_EDEVICE : PI_ENOMEM : PI_OK)) fail_msg("%ld: code %d: %s", n, rc, err.msg);
            if (!rc) pi_engine_close(e);
            if (simt::watch.live) fail_msg("%ld: %ld things of the device are left", n, (long) simt::watch.live);
            assert_int_equal(simt::device_bytes(), 0);
        }
        assert_true(n > 2 * 14);
    }
    simt::watch.idle = false;
    simt::options.page = 2 << 20;
    unlink(model_path.c_str());
}

/* All ranks capture decode steps and replay them, with the bits of steps without capture, while sequences join and
 * leave. Captures allocate no memory. */
static void check_recorded(const std::vector<job> &jobs, int times)
{
    pi_error err;
    pi_engine *e;
    cuda_graphs = "off";
    assert_int_equal(open_engine_on(&e, "emu,emu", "64", &err), PI_OK);
    simt::watch.n_recorded = simt::watch.n_replayed = 0;
    const std::vector<rows> want = run_jobs(e, jobs);
    assert_int_equal(simt::watch.n_recorded + simt::watch.n_replayed, 0);
    pi_engine_close(e);
    cuda_graphs = "auto";
    for (int i = 0; i < times; i++) {
        simt::options.eager = i == 1;
        assert_int_equal(open_engine_on(&e, "emu,emu", i ? "9" : "64", &err), PI_OK);
        const long allocs = simt::watch.n_allocs;
        simt::watch.n_recorded = simt::watch.n_replayed = 0;
        const long risky = simt::watch.n_risky;
        simt::watch.late_graphs = 20;
        same_rows(want, run_jobs(e, jobs));
        simt::watch.late_graphs = 0;
        /* all ranks have created their graphs before one waits for another */
        assert_int_equal(simt::watch.n_risky, risky);
        assert_true(simt::watch.n_recorded >= 2 && simt::watch.n_recorded % 2 == 0);
        const long replayed = simt::watch.n_replayed;
        assert_true(replayed > simt::watch.n_recorded && replayed % 2 == 0);
        same_rows({want[1]}, run_jobs(e, {jobs[1]}));
        assert_true(simt::watch.n_replayed > replayed + 2 * 4);
        assert_int_equal(simt::watch.n_allocs, allocs);
        pi_engine_close(e);
        assert_int_equal(simt::watch.live, 0);
    }
    simt::options.eager = false;
    unlink(model_path.c_str());
}

static void test_recorded(void **)
{
    /* One sequence outgrows the number of keys of its graph. */
    assert_int_equal(simt_tiny_write_small(model_path.c_str(), PI__Q8_0), 0);
    check_recorded({{prompt(250, 1), "12"}, {prompt(5, 2), "9"}, {prompt(1, 3), "7"}},
                   getenv("PAGEDINFER_LONG") ? 2 : 1);
    /* With drafts. */
    assert_int_equal(simt_small_write(model_path.c_str(), "qwen35", PI__Q8_0), 0);
    drafts = "2";
    check_recorded({{prompt(20, 1), "12"}, {prompt(5, 2), "9"}, {prompt(1, 3), "7"}}, 1);
    drafts = "";
    /* The embedding is split over the devices. */
    assert_int_equal(simt_tiny_write_even(model_path.c_str(), PI__F32), 0);
    check_recorded({{prompt(9, 1), "9"}, {prompt(2, 2), "8"}, {prompt(4, 5), "9"}, {prompt(1, 3), "4"}}, 1);
}

/* Opens an engine, generates, closes it. Returns false if nothing failed. */
static bool fails()
{
    pi_error err = {};
    pi_engine *e = nullptr;
    int rc = open_engine_on(&e, "emu,emu", "16", &err), code = 0;
    if (rc) {
        assert_int_equal(rc, PI_EDEVICE);
        return true;
    }
    rows out;
    pi_request *r = submit(e, {prompt(3, 1), "6"}, &out, &code, &err);
    take_events(e, [] {});
    assert_int_equal(pi_engine_state(e), code ? PI_STATE_FAILED : PI_STATE_READY);
    if (code) assert_int_equal(code, PI_EDEVICE);
    pi_request_free(r);
    pi_engine_close(e);
    return code != 0;
}

/* A failing runtime call on either device; then all calls from one on fail. */
static void test_calls_fail(void **)
{
    assert_int_equal(simt_tiny_write_small(model_path.c_str(), PI__F32), 0);
    simt::watch.idle = true;
    for (int dead = 0; dead < 2; dead++) {
        simt::watch.dead = dead == 1;
        long harmless = 0, n = 0;
        for (bool reached = true; reached; n += dead ? 31 : 7) {
            simt::watch.n_calls = 0;
            simt::watch.fail_at = n;
            bool failed = fails();
            simt::watch.fail_at = -1;
            reached = simt::watch.n_calls > n;
            harmless += reached && !failed;
            if (simt::watch.live) fail_msg("call %ld: %ld things of the device are left", n, (long) simt::watch.live);
        }
        assert_true(n > 300);
        assert_int_equal(harmless, 0);
    }
    simt::watch.dead = simt::watch.idle = false;
    unlink(model_path.c_str());
}

/* Failing calls while kernels run and ranks wait for each other, in steps that are captured and replayed. */
static void test_steps_fail(void **)
{
    assert_int_equal(simt_tiny_write_small(model_path.c_str(), PI__F32), 0);
    simt::watch.n_calls = 0;
    assert_false(fails());
    const long all = simt::watch.n_calls, step = getenv("PI_TEST_EMULATED") ? 97 : 13;
    for (long n = all / 2; n < all; n += step) {
        simt::watch.n_calls = 0;
        simt::watch.fail_at = n;
        const bool failed = fails();
        const bool reached = simt::watch.n_calls > n;
        simt::watch.fail_at = -1;
        if (reached && !failed) fail_msg("call %ld failed, and nothing came of it", n);
        if (simt::watch.live) fail_msg("call %ld: %ld things of the device are left", n, (long) simt::watch.live);
    }
    unlink(model_path.c_str());
}

int main()
{
    name_model("ranks");
    alarm(300); /* a rank that waits forever fails the test */
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),  cmocka_unit_test(test_experts),    cmocka_unit_test(test_tables),
        cmocka_unit_test(test_clusters),   cmocka_unit_test(test_arena),      cmocka_unit_test(test_mapped),
        cmocka_unit_test(test_recorded),   cmocka_unit_test(test_calls_fail), cmocka_unit_test(test_steps_fail)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
