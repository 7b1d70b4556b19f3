/* Whole steps of dependent launches (overlap.cpp): no kernel reads data before the wait for the launch that writes
 * it, in any sequence of kernels. Each architecture runs a prompt, then captured decode steps, with drafts if it
 * supports them. */
#include "answers.h"
#include "runtime_emu.h"

#include <unistd.h>

extern "C" {
#include "formats/formats.h"
int simt_small_write(const char *path, const char *arch, int32_t type);
}

static void check(const char *arch, const char *drafts)
{
    const std::string path = "/tmp/pagedinfer-overlap-" + std::to_string(getpid()) + ".gguf";
    const char *const settings[][2] = {{"model", path.c_str()},   {"device", "emu"},   {"ctx-size", "128"},
                                       {"parallel", "2"},         {"max-tokens", "5"}, {"temp", "0"},
                                       {"ignore-eos", "true"},    {"cache-ram", "0"},  {"spec-type", drafts},
                                       {"spec-adaptive", "false"}};
    const unsigned long before = simt::n_dependent, launches = simt::n_launches;
    pi_error err;
    pi_engine *e = nullptr;
    assert_int_equal(simt_small_write(path.c_str(), arch, PI__Q8_0), 0);
    pi_options *o = pi_options_new();
    for (const auto &s : settings) set(o, s[0], s[1]);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s: %s", arch, err.msg);
    pi_options_free(o);
    unlink(path.c_str());
    const std::string prompt = "the other hand";
    pi_event *ev[8];
    pi_request *r = pi_request_new(e);
    if (pi_request_prompt_text(r, prompt.data(), prompt.size(), &err) || pi_request_submit(r, &err))
        fail_msg("%s", err.msg);
    int code = PI_OK;
    for (int n; (n = pi_poll(e, ev, 8, -1)) > 0;) {
        for (int k = 0; k < n; k++) {
            if (ev[k]->code) code = ev[k]->code;
            pi_event_release(ev[k]);
        }
    }
    pi_request_free(r);
    pi_engine_close(e);
    if (code) fail_msg("%s: %s", arch, simt::last_error());
    const unsigned long dependent = simt::n_dependent - before, all = simt::n_launches - launches;
    if (2 * dependent < all) fail_msg("%s: of %lu launches %lu are dependent ones", arch, all, dependent);
}

static void test_gemma3(void **) { check("gemma3", "none"); }
static void test_gemma4(void **) { check("gemma4", "none"); }
static void test_qwen35(void **) { check("qwen35", "mtp"); }
static void test_qwen35moe(void **) { check("qwen35moe", "none"); }
static void test_deepseek4(void **) { check("deepseek4", "none"); }
static void test_deepseek3(void **) { check("deepseek3", "none"); }

static int look(void **)
{
    simt::options.between = false; /* the kernels' own tests check this */
    return 0;
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_gemma3),    cmocka_unit_test(test_gemma4),
                                cmocka_unit_test(test_qwen35),    cmocka_unit_test(test_qwen35moe),
                                cmocka_unit_test(test_deepseek4), cmocka_unit_test(test_deepseek3)};
    return cmocka_run_group_tests(tests, look, nullptr);
}
