/* Sampling on the device: tokens and log-probabilities are bitwise identical to sampling from full rows. This holds
 * for requests of all kinds, in a batch of one and together, with drafts, on one device, next to the CPU and on two
 * devices. */
#include "answers.h"
#include "runtime_emu.h"

#include <unistd.h>

extern "C" {
#include "formats/formats.h"
int simt_small_write(const char *path, const char *arch, int32_t type);
void simt_sampled(const pi_engine *e, unsigned long long *heads, unsigned long long *whole);
}

typedef std::vector<std::pair<const char *, const char *>> settings;

/* The outcome of a request. */
struct sampled {
    std::vector<int32_t> tokens;
    std::vector<pi_token_prob> probs;
};

/* Requests. found: the device finds all values that the sampler needs, or draws all tokens except the first. */
static const struct { settings how; bool found; } requests[] = {
    {{{"temp", "0"}}, true},
    {{{"top-k", "20"}}, true},
    {{{"top-k", "40"}, {"repeat-penalty", "1.3"}, {"presence-penalty", "0.5"}}, true},
    {{{"top-k", "40"}, {"temp", "0"}, {"dry-multiplier", "0.8"}, {"dry-allowed-length", "1"}}, true},
    {{{"top-k", "0"}, {"top-p", "0.5"}, {"min-p", "0"}}, true},
    {{{"top-k", "0"}, {"top-p", "1"}, {"min-p", "0.7"}}, true},
    {{{"top-k", "30"}, {"logprobs", "7"}}, true},
    {{{"temp", "0"}, {"logprobs", "2"}, {"ignore-eos", "false"}, {"min-tokens", "4"}}, true},
    {{{"top-k", "0"}, {"top-p", "1"}, {"min-p", "0"}}, true},
    {{{"logit-bias", "300+2"}, {"logit-bias", "301-3"}}, false},
    {{{"logit-bias", "300-2"}, {"logit-bias", "301-inf"}}, true},
    {{{"top-k", "0"}, {"top-p", "0.999"}, {"min-p", "0.0001"}, {"temp", "3"}}, true},
};
enum { N = sizeof requests / sizeof *requests, TOKENS = 5 };

static void ignore(void *, uint32_t, const float *, size_t) {}

static pi_request *submit(pi_engine *e, size_t i, bool whole, sampled *out)
{
    pi_error err;
    pi_request *r = pi_request_new(e);
    const std::string prompt = i % 2 ? "the other hand and the other day" : "once and on the morning";
    pi_request_set_user(r, out);
    for (const auto &s : requests[i].how)
        if (pi_request_set(r, s.first, s.second, &err)) fail_msg("%s: %s", s.first, err.msg);
    if (pi_request_set(r, "seed", std::to_string(i + 1).c_str(), &err)) fail_msg("%s", err.msg);
    if (whole) pi_request_on_logits(r, ignore, nullptr);
    if (pi_request_prompt_text(r, prompt.data(), prompt.size(), &err) || pi_request_submit(r, &err))
        fail_msg("%s", err.msg);
    return r;
}

static void take_events(pi_engine *e)
{
    pi_event *ev[8];
    for (int n; (n = pi_poll(e, ev, 8, -1)) > 0;) {
        for (int k = 0; k < n; k++) {
            sampled *s = static_cast<sampled *>(ev[k]->user);
            if (ev[k]->code) fail_msg("code %d after %zu tokens", ev[k]->code, s->tokens.size());
            s->tokens.insert(s->tokens.end(), ev[k]->tokens, ev[k]->tokens + ev[k]->n_tokens);
            if (ev[k]->logprobs)
                s->probs.insert(s->probs.end(), ev[k]->logprobs, ev[k]->logprobs + ev[k]->n_tokens * ev[k]->n_logprobs);
            pi_event_release(ev[k]);
        }
    }
}

/* Runs all requests, together or one by one. whole: a callback reads the full rows, so that they are copied to the
 * host. */
static std::vector<sampled> run(pi_engine *e, bool together, bool whole)
{
    std::vector<sampled> out(N);
    std::vector<pi_request *> r;
    for (size_t i = 0; i < N; i++) {
        unsigned long long heads, all, heads_before, all_before;
        simt_sampled(e, &heads_before, &all_before);
        r.push_back(submit(e, i, whole, &out[i]));
        if (!together || i + 1 == N) take_events(e);
        simt_sampled(e, &heads, &all);
        if (together) continue;
        assert_int_equal(heads - heads_before + all - all_before, out[i].tokens.size());
        if (requests[i].found) assert_true(heads - heads_before > out[i].tokens.size() / 2);
        else assert_int_equal(heads, heads_before);
    }
    for (pi_request *q : r) pi_request_free(q);
    return out;
}

static void same(const char *what, const std::vector<sampled> &a, const std::vector<sampled> &b)
{
    for (size_t i = 0; i < N; i++) {
        if (a[i].tokens != b[i].tokens) fail_msg("%s: request %zu: other tokens", what, i);
        assert_int_equal(a[i].probs.size(), b[i].probs.size());
        for (size_t k = 0; k < a[i].probs.size(); k++) {
            assert_int_equal(a[i].probs[k].id, b[i].probs[k].id);
            assert_memory_equal(&a[i].probs[k].logprob, &b[i].probs[k].logprob, sizeof(float));
        }
    }
}

static void check(const char *arch, const char *device, const settings &more, bool alone)
{
    unsigned long long heads, whole;
    char path[256];
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/pagedinfer-sampling-%ld.gguf", tmp && *tmp ? tmp : "/tmp", (long) getpid());
    assert_int_equal(simt_small_write(path, arch, PI__Q8_0), 0);
    pi_error err;
    pi_engine *e = nullptr;
    pi_options *o = pi_options_new();
    settings all = {{"model", path}, {"device", device}, {"ctx-size", "256"}, {"parallel", "5"}, {"max-tokens", "5"},
                    {"temp", "0.7"}, {"ignore-eos", "true"}, {"logits", "generated"}, {"cache-ram", "0"}};
    all.insert(all.end(), more.begin(), more.end());
    for (const auto &s : all) set(o, s.first, s.second);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    unlink(path);
    const std::vector<sampled> want = run(e, true, true);
    for (size_t i = 0; i < N; i++) assert_int_equal(want[i].tokens.size(), TOKENS);
    assert_int_equal(want[6].probs.size(), 8 * TOKENS);
    simt_sampled(e, &heads, &whole);
    assert_true(!heads && whole >= N * TOKENS);
    same(arch, want, run(e, true, false));
    simt_sampled(e, &heads, &whole);
    assert_true(heads >= 7 * TOKENS);
    if (alone && !getenv("PI_TEST_EMULATED")) same(arch, want, run(e, false, false));
    pi_engine_close(e);
}

/* The top-k requests of samplers are captured with the step. A decode step whose shape was seen twice has no launches
 * outside of its graph: for one value per row or for lists, with their sums, in a batch of one and together. own:
 * launches per step that remain. */
static void check_captured(const char *device, const settings &more, const std::vector<settings> &ways, long own = 0)
{
    char path[256];
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/pagedinfer-sampling-%ld.gguf", tmp && *tmp ? tmp : "/tmp", (long) getpid());
    assert_int_equal(simt_small_write(path, "gemma3", PI__Q8_0), 0);
    pi_error err;
    pi_engine *e = nullptr;
    pi_options *o = pi_options_new();
    settings all = {{"model", path}, {"device", device}, {"ctx-size", "128"}, {"parallel", "4"}, {"ignore-eos", "true"},
                    {"cache-ram", "0"}, {"cache", "false"}};
    all.insert(all.end(), more.begin(), more.end());
    for (const auto &s : all) set(o, s.first, s.second);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    unlink(path);
    for (const settings &how : ways) {
        long launched[3], replayed[3];
        for (int round = 0; round < 3; round++) { /* of the last two rounds, one has three more steps */
            sampled out;
            simt::watch.n_launched = simt::watch.n_replayed = 0;
            pi_request *r = pi_request_new(e);
            pi_request_set_user(r, &out);
            for (const auto &s : how) assert_int_equal(pi_request_set(r, s.first, s.second, &err), PI_OK);
            assert_int_equal(pi_request_set(r, "max-tokens", round < 2 ? "3" : "6", &err), PI_OK);
            if (pi_request_prompt_text(r, "the day", 7, &err) || pi_request_submit(r, &err)) fail_msg("%s", err.msg);
            take_events(e);
            pi_request_free(r);
            launched[round] = simt::watch.n_launched, replayed[round] = simt::watch.n_replayed;
        }
        if (launched[2] - launched[1] != 3 * own || replayed[2] - replayed[1] < 3)
            fail_msg("%s %s: %ld launches in 3 steps", how[0].first, how[0].second, launched[2] - launched[1]);
    }
    pi_engine_close(e);
}

static void test_captured(void **)
{
    const settings best = {{"temp", "0"}}, list = {{"top-k", "20"}},
                   sums = {{"top-k", "0"}, {"top-p", "0.5"}, {"min-p", "0"}};
    check_captured("emu", {{"async-scheduling", "false"}}, {best, list, sums});
    check_captured("emu", {}, {best, list}, 1); /* the tokens of the last step, which the host does not know yet */
    check_captured("emu", {{"gpu-layers", "2"}}, {best});
    check_captured("emu0,emu1", {{"split-mode", "tensor"}}, {list});
}

static void test_one(void **) { check("gemma3", "emu", {}, true); }
static void test_drafts(void **) { check("qwen35", "emu", {{"spec-type", "mtp"}, {"spec-adaptive", "false"}}, false); }
static void test_beside_cpu(void **) { check("gemma3", "emu", {{"gpu-layers", "2"}}, false); }
static void test_two(void **) { check("gemma3", "emu0,emu1", {{"split-mode", "tensor"}}, false); }

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_one), cmocka_unit_test(test_drafts),
                                cmocka_unit_test(test_beside_cpu), cmocka_unit_test(test_captured),
                                cmocka_unit_test(test_two)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
