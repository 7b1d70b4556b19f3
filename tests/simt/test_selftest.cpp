/* pi_selftest on the emulator: correct kernels pass, broken ones are named, and every failing call is reported and
 * frees everything. */
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

extern "C" {
#include <cmocka.h>
}

#include "pagedinfer.h"
#include "runtime_emu.h"
#include "simt.h"

static void add_line(void *ud, const char *line) { *static_cast<std::string *>(ud) += std::string(line) + "\n"; }

static int run(const char *device, const char *checks, std::string *report, pi_error *err)
{
    pi_options *o = pi_options_new();
    report->clear();
    *err = {};
    assert_non_null(o);
    assert_int_equal(pi_options_set(o, "device", device, err), PI_OK);
    const int rc = pi_selftest(o, checks, add_line, report, err);
    pi_options_free(o);
    assert_int_equal(simt::watch.live, 0);
    return rc;
}

static void expect_text(const std::string &text, const char *what)
{
    if (!strstr(text.c_str(), what)) fail_msg("no \"%s\" in:\n%s", what, text.c_str());
}

static void test_right(void **)
{
    std::string report;
    pi_error err;
    if (run("emu", "runtime,rows.rope,top.greedy,rates", &report, &err)) fail_msg("%s\n%s", err.msg, report.c_str());
    for (const char *what :
         {"self-test of emu0", "chosen:", "matmuls use int8 tensor cores", "runtime        ok     5 of 5",
          "rows           ok     1 of 1", "BF16 weights, 40 rows", "RESULT: all 7 checks passed"})
        expect_text(report, what);
    assert_null(strstr(report.c_str(), "gemm"));
    if (run("cpu", nullptr, &report, &err)) fail_msg("%s\n%s", err.msg, report.c_str());
    expect_text(report, "generic        ok");
    expect_text(report, "RESULT: all");
    if (run("cpu", "cpu.generic", &report, &err)) fail_msg("%s\n%s", err.msg, report.c_str());
    assert_null(strstr(report.c_str(), "\n  avx"));
}

static void test_wrong(void **)
{
    const struct { const char *checks; const char *broken; bool replay; int spoil; const char *line; } cases[] = {
        {"linear.inputs", nullptr, false, simt::SPOIL_S8, "  FAILED linear.inputs: Q8_0 288x9 row 0 of 5, result 0: "},
        {"mma16.not_numbers", nullptr, false, simt::SPOIL_MMA16, "  FAILED mma16.not_numbers: "},
        {"top.greedy", "launch_top", false, 0, "  FAILED top.greedy: "},
        {"gdn.reference", "launch_gdn", false, 0, "  FAILED gdn.reference: "},
        {"runtime.replay", nullptr, true, 0, "  FAILED runtime.replay: 3 rows: "}};
    for (const auto &c : cases) {
        std::string report;
        pi_error err;
        simt::options.spoil = c.spoil;
        simt::watch.broken = c.broken;
        simt::watch.broken_replay = c.replay;
        const int rc = run("emu", c.checks, &report, &err);
        if (rc != PI_EDEVICE) fail_msg("%s: %d\n%s", c.checks, rc, report.c_str());
        expect_text(report, c.line);
        expect_text(report, "RESULT: 1 of 1 checks FAILED");
        expect_text(err.msg, "1 of 1 checks of emu0 failed");
    }
    simt::options.spoil = simt::SPOIL_NONE;
    simt::watch.broken = nullptr;
    simt::watch.broken_replay = false;
}

static void test_refused(void **)
{
    std::string report;
    pi_error err;
    assert_int_equal(run("emu", "top,nothing", &report, &err), PI_EINVAL);
    expect_text(err.msg, "unknown check 'nothing': give cpu, runtime, linear,");
    assert_true(report.empty());
    assert_int_equal(run("emu,emu", "", &report, &err), PI_EINVAL);
    expect_text(err.msg, "give one");
    assert_int_equal(run("no-such", "", &report, &err), PI_EUNSUPPORTED);
    assert_int_equal(pi_selftest(nullptr, "", add_line, &report, &err), PI_EINVAL);
    assert_int_equal(run("emu", "linear.nothing", &report, &err), PI_OK);
    expect_text(report, "none of the given checks applies to this device");
}

/* Each runtime call fails in turn. */
static void test_calls_fail(void **)
{
    std::string report;
    pi_error err;
    long n = 0;
    for (bool reached = true; reached; n++) {
        simt::watch.n_calls = 0;
        simt::watch.fail_at = n;
        const int rc = run("emu", "runtime.copies,rows.rope", &report, &err);
        reached = simt::watch.n_calls > n;
        simt::watch.fail_at = -1;
        if (rc && rc != PI_EDEVICE) fail_msg("call %ld: %d, %s", n, rc, err.msg);
        if (!reached) assert_int_equal(rc, PI_OK);
    }
    assert_true(n > 40);
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_right), cmocka_unit_test(test_wrong),
                                cmocka_unit_test(test_refused), cmocka_unit_test(test_calls_fail)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
