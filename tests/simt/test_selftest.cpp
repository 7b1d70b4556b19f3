/* pi_selftest on the emulator: correct kernels pass, broken ones are named, and every failing call is reported and
 * frees everything. */
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include <jansson.h>

extern "C" {
#include <cmocka.h>
}

#include "pagedinfer.h"
#include "runtime_emu.h"
#include "selftest/selftest.h"
#include "simt.h"

static void add_line(void *ud, const char *line) { *static_cast<std::string *>(ud) += std::string(line) + "\n"; }

/* Runs pi_selftest_run. */
static int run_with(const pi_selftest_params &p, std::string *report, pi_error *err)
{
    pi_options *o = pi_options_new();
    report->clear();
    *err = {};
    assert_non_null(o);
    assert_int_equal(pi_options_set(o, "device", "emu", err), PI_OK);
    const int rc = pi_selftest_run(o, &p, add_line, report, err);
    pi_options_free(o);
    assert_int_equal(simt::watch.live, 0);
    return rc;
}

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

static pi_selftest_params stress(const char *checks, uint64_t seed, bool json = false)
{
    pi_selftest_params p = {};
    p.size = sizeof p, p.checks = checks, p.stress = 1, p.seed = seed, p.json = json;
    return p;
}

/* Returns the number after `what` in a report. */
static long number_after(const std::string &report, const char *what)
{
    const char *at = strstr(report.c_str(), what);
    if (!at) fail_msg("no \"%s\" in:\n%s", what, report.c_str());
    return strtol(at + strlen(what), nullptr, 10);
}

/* Random checks on two queues pass. The emulated device has several multiprocessors, so that blocks wait. */
static void test_stress(void **)
{
    std::string report;
    pi_error err;
    simt::watch.places = 0;
    simt::watch.n_sm = 16;
    if (run_with(stress("rows.add_norm,rows.rope,rows.qkv,tails.held,tails.gate,top.greedy", 7), &report, &err))
        fail_msg("%s\n%s", err.msg, report.c_str());
    expect_text(report, "stress: random ones of 6 checks, seed 7, two queues with 8 and 8 places");
    expect_text(report, "stress         ok");
    expect_text(report, "checks passed");
    assert_null(strstr(report.c_str(), "rates:"));
    if (run_with(stress("rows.rope", 1, true), &report, &err)) fail_msg("%s\n%s", err.msg, report.c_str());
    assert_true(number_after(report, "\"rounds\":") > 0);
    assert_true(number_after(report, "\"launches\":") > 0);
    simt::watch.places = 8;
    simt::watch.n_sm = 4;
}

/* Launches that leave other bytes than on an idle device, and broken kernels, are found; the seed repeats a failure. */
static void test_stress_fails(void **)
{
    std::string report, again;
    pi_error err;
    /* graph replays do nothing: the first launch of each check is queued, later ones are sometimes replayed */
    simt::watch.broken_replay = true;
    assert_int_equal(run_with(stress("rows.add_norm", 3), &report, &err), PI_EDEVICE);
    simt::watch.broken_replay = false;
    expect_text(report, "  FAILED rows.add_norm, seed ");
    expect_text(report, "on the busy device: ");
    expect_text(report, "leaves other bytes than on the idle device");
    expect_text(report,
                "    repeat: pagedinfer selftest --device emu0 --stress 10 --checks rows.add_norm --stress-seed ");
    expect_text(report, "    with the check beside it: --stress 1 --checks rows.add_norm --stress-seed ");
    expect_text(err.msg, "checks of emu0 failed");
    simt::watch.broken = "launch_top";
    assert_int_equal(run_with(stress("top.sizes", 11), &report, &err), PI_EDEVICE);
    const long seed = number_after(report, "  FAILED top.sizes, seed ");
    assert_int_equal(run_with(stress("top.sizes", (uint64_t) seed), &again, &err), PI_EDEVICE);
    simt::watch.broken = nullptr;
    const auto line = [](const std::string &r) {
        const size_t at = r.find("  FAILED top.sizes");
        return r.substr(at, r.find('\n', at) - at);
    };
    assert_string_equal(line(report).c_str(), line(again).c_str());
}

/* Returns the report as a JSON object. */
static json_t *parse(const std::string &report)
{
    json_error_t e;
    json_t *v = json_loads(report.c_str(), 0, &e);
    if (!v) fail_msg("%s at %d in:\n%s", e.text, e.position, report.c_str());
    return v;
}

static const char *text_of(json_t *v, const char *key) { return json_string_value(json_object_get(v, key)); }

static void test_json(void **)
{
    std::string report;
    pi_error err;
    pi_selftest_params p = {};
    p.size = sizeof p, p.checks = "rows.rope,rates", p.json = true;
    if (run_with(p, &report, &err)) fail_msg("%s\n%s", err.msg, report.c_str());
    json_t *v = parse(report), *device = json_object_get(v, "device"), *checks = json_object_get(v, "checks"),
           *rates = json_object_get(v, "rates"), *features = json_object_get(v, "features"),
           *result = json_object_get(v, "result");
    assert_int_equal(json_integer_value(json_object_get(v, "schema")), 1);
    assert_string_equal(text_of(v, "version"), pi_version());
    assert_string_equal(text_of(device, "name"), "emu0");
    assert_true(json_integer_value(json_object_get(device, "multiprocessors")) == 4);
    assert_true(json_array_size(features) > 0);
    assert_int_equal(json_array_size(checks), 1);
    assert_string_equal(text_of(json_array_get(checks, 0), "name"), "rows.rope");
    assert_string_equal(text_of(json_array_get(checks, 0), "status"), "ok");
    assert_true(json_is_number(json_object_get(json_array_get(checks, 0), "seconds")));
    assert_true(json_array_size(rates) > 10);
    assert_true(json_is_null(json_object_get(json_array_get(rates, 0), "rate"))); /* no clock */
    assert_int_equal(json_integer_value(json_object_get(result, "failed")), 0);
    json_decref(v);
    simt::watch.broken = "launch_top";
    p.checks = "top.greedy";
    assert_int_equal(run_with(p, &report, &err), PI_EDEVICE);
    simt::watch.broken = nullptr;
    v = parse(report);
    checks = json_object_get(v, "checks");
    assert_string_equal(text_of(json_array_get(checks, 0), "status"), "failed");
    assert_non_null(text_of(json_array_get(checks, 0), "text"));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(v, "result"), "failed")), 1);
    json_decref(v);
    p.size = 0;
    assert_int_equal(run_with(p, &report, &err), PI_EINVAL);
}

/* The last line has the address of a new issue with the report's title. */
static void test_address(void **)
{
    std::string report;
    pi_error err;
    pi__selftest t = {};
    t.device = "emu", t.checks = "rows.rope", t.fn = add_line, t.ud = &report;
    t.issues = "https://example.org/issues";
    assert_int_equal(pi__selftest_run(&t, &err), PI_OK);
    expect_text(report, "Nothing is sent by itself. To send this report: "
                        "https://example.org/issues/new?template=card.md&title=card%3A%20");
    expect_text(report, "all%201%20checks%20passed\n");
    assert_true(report.find('\n', report.find("Nothing is sent")) == report.size() - 1);
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_right), cmocka_unit_test(test_wrong),
                                cmocka_unit_test(test_refused), cmocka_unit_test(test_calls_fail),
                                cmocka_unit_test(test_stress), cmocka_unit_test(test_stress_fails),
                                cmocka_unit_test(test_json), cmocka_unit_test(test_address)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
