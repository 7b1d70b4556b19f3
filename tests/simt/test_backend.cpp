/* The CUDA backend as a whole, emulated: a tiny Gemma 3 gives the CPU's tokens and, nearly, its logits, and its own to the
 * bit in any company. */
#include "simt_test.h"

#include <algorithm>
#include <map>
#include <string>
#include <unistd.h>

extern "C" {
#include "formats/formats.h"
#include "pagedinfer.h"
int simt_tiny_write(const char *path, int32_t type);
int simt_open(const char *path, long fail_at, long *count, long *left);
}

/* What a request gave: the logits of each position, and its text. */
struct answer {
    std::string text;
    std::map<uint32_t, std::vector<float>> logits;
};

static void take_logits(void *ud, uint32_t pos, const float *logits, size_t n)
{
    static_cast<answer *>(ud)->logits[pos].assign(logits, logits + n);
}

static void set(pi_options *o, const char *key, const char *value)
{
    pi_error err;
    if (pi_options_set(o, key, value, &err)) fail_msg("%s: %s", key, err.msg);
}

static pi_engine *open_engine(const char *model, const char *device, const char *cache, const char *batch)
{
    pi_error err;
    pi_engine *e = nullptr;
    pi_options *o = pi_options_new();
    set(o, "model", model);
    set(o, "device", device);
    set(o, "cache-type-k", cache);
    set(o, "cache-type-v", cache);
    set(o, "ubatch-size", batch);
    set(o, "ctx-size", "256");
    set(o, "parallel", "4");
    set(o, "temp", "0");
    set(o, "max-tokens", "8");
    set(o, "ignore-eos", "true");
    set(o, "logits", "generated");
    if (pi_engine_open(&e, o, &err)) fail_msg("%s: %s", device, err.msg);
    pi_options_free(o);
    return e;
}

/* All prompts at once, or one after the other. */
static std::vector<answer> ask(pi_engine *e, const std::vector<std::string> &prompts, bool together)
{
    std::vector<answer> out(prompts.size());
    std::vector<pi_request *> requests;
    pi_error err;
    for (size_t i = 0; i < prompts.size(); i++) {
        pi_request *r = pi_request_new(e);
        pi_request_set_user(r, &out[i]);
        pi_request_on_logits(r, take_logits, &out[i]);
        requests.push_back(r);
        if (pi_request_prompt_text(r, prompts[i].data(), prompts[i].size(), &err)) fail_msg("%s", err.msg);
        if (pi_request_submit(r, &err)) fail_msg("%s", err.msg);
        if (!together || i + 1 == prompts.size()) {
            pi_event *ev[8];
            for (int n; (n = pi_poll(e, ev, 8, -1)) > 0;) {
                for (int k = 0; k < n; k++) {
                    static_cast<answer *>(ev[k]->user)->text.append(ev[k]->text, ev[k]->text_len);
                    assert_int_equal(ev[k]->code, PI_OK);
                    pi_event_release(ev[k]);
                }
            }
        }
    }
    for (pi_request *r : requests) pi_request_free(r);
    return out;
}

static size_t best(const std::vector<float> &row) { return (size_t) (std::max_element(row.begin(), row.end()) - row.begin()); }

static void compare(const char *what, const std::vector<answer> &a, const std::vector<answer> &b, double tolerance)
{
    for (size_t i = 0; i < a.size(); i++) {
        assert_int_equal(a[i].logits.size(), b[i].logits.size());
        assert_true(a[i].logits.size() >= 8);
        for (const auto &p : a[i].logits) {
            const std::vector<float> &x = p.second, &y = b[i].logits.at(p.first);
            if (best(x) != best(y)) fail_msg("%s: prompt %zu, position %u: another token", what, i, p.first);
            for (size_t k = 0; k < x.size(); k++) {
                if (!(std::fabs(x[k] - y[k]) <= tolerance)) fail_msg("%s: prompt %zu, position %u, logit %zu: %g and %g",
                                                                     what, i, p.first, k, (double) x[k], (double) y[k]);
            }
        }
        assert_string_equal(a[i].text.c_str(), b[i].text.c_str());
    }
}

static void test_model(int32_t type, const char *cache)
{
    const std::vector<std::string> prompts = {"the other hand and the other day on the other hand in the morning you and",
                                              "you", "once and on the"};
    char path[256], what[64];
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/pagedinfer-emu-%ld.gguf", tmp && *tmp ? tmp : "/tmp", (long) getpid());
    snprintf(what, sizeof what, "%s, cache %s", pi__type_info_of(type)->name, cache);
    assert_int_equal(simt_tiny_write(path, type), 0);
    pi_engine *cpu = open_engine(path, "cpu", cache, "512"), *emu = open_engine(path, "emu", cache, "512"),
              *cut = open_engine(path, "emu", cache, "5");
    unlink(path);
    unsigned long before = simt::n_launches;
    std::vector<answer> want = ask(cpu, prompts, true), got = ask(emu, prompts, true);
    assert_true(simt::n_launches > before + 100); /* it really ran there */
    compare(what, want, got, 0.02);
    compare(what, got, ask(emu, prompts, false), 0);
    compare(what, got, ask(cut, prompts, true), 0);
    pi_engine_close(cpu);
    pi_engine_close(emu);
    pi_engine_close(cut);
}

static void test_f32(void **)
{
    if (!getenv("PI_TEST_EMULATED")) test_model(PI__F32, "f32");
}
static void test_q8_0(void **)
{
    if (!getenv("PI_TEST_EMULATED")) test_model(PI__Q8_0, "f16");
}
static void test_q4_k(void **) { test_model(PI__Q4_K, "q8_0"); }

/* What the device cannot do is refused with a reason. */
static void test_refused(void **)
{
    char path[256];
    snprintf(path, sizeof path, "/tmp/pagedinfer-emu-%ld.gguf", (long) getpid());
    assert_int_equal(simt_tiny_write(path, PI__F32), 0);
    pi_error err;
    pi_engine *e = nullptr;
    pi_options *o = pi_options_new();
    set(o, "model", path);
    set(o, "device", "emu");
    set(o, "prefix-cache-dir", "/tmp");
    assert_int_equal(pi_engine_open(&e, o, &err), PI_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "prefix-cache-dir"));
    set(o, "device", "nothing");
    assert_int_equal(pi_engine_open(&e, o, &err), PI_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "emu, cpu"));
    pi_options_free(o);
    unlink(path);
}

/* Opening with each allocation of the host, then of the device, failing in turn: refused, and everything given back. */
static void test_out_of_memory(void **)
{
    char path[256];
    long count, left, i = 0;
    snprintf(path, sizeof path, "/tmp/pagedinfer-emu-%ld.gguf", (long) getpid());
    assert_int_equal(simt_tiny_write(path, PI__Q8_0), 0);
    for (int rc = PI_ENOMEM;; i++) {
        rc = simt_open(path, i, &count, &left);
        assert_int_equal(left, 0);
        if (count <= i) {
            assert_int_equal(rc, PI_OK);
            break;
        }
        if (rc) assert_int_equal(rc, PI_ENOMEM);
    }
    assert_true(i > 20);
    for (long k = 0;; k++) {
        simt::options.fail_alloc = k;
        int rc = simt_open(path, -1, &count, &left);
        bool all = simt::options.fail_alloc >= 0; /* there were no more */
        simt::options.fail_alloc = -1;
        assert_int_equal(left, 0);
        assert_int_equal(rc, all ? PI_OK : PI_ENOMEM);
        if (all) {
            assert_true(k >= 4);
            break;
        }
    }
    unlink(path);
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_q8_0), cmocka_unit_test(test_q4_k),
                                cmocka_unit_test(test_refused), cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
