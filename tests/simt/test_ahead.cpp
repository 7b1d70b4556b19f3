/* Async scheduling (option async-scheduling): results equal those of strictly sequential steps, in a batch of one and
 * together, with any request ending, cancelled, preempted or joining. No step waits for the host's work between two
 * steps. Nothing is lost when the device fails. PAGEDINFER_LONG=1 adds requests, kinds of caches and failures. */
#include "simt_test.h"

#include <algorithm>
#include <string>
#include <unistd.h>

#include "runtime_emu.h"

extern "C" {
#include "formats/formats.h"
#include "pagedinfer.h"
int simt_typed_write(const char *path, const char *arch, int32_t type, const char *sizes);
}

typedef std::vector<std::pair<std::string, std::string>> settings;

/* The outcome of a request. */
struct answer {
    std::vector<int32_t> tokens;
    std::vector<pi_token_prob> probs;
    int reason = -1, code = 0;
    size_t cancel_after = 0; /* cancel after this many tokens; 0 = never */
    pi_request *request = nullptr;
};

/* A request: prompt, options, and the number of tokens before its cancellation. */
struct ask {
    std::string prompt;
    settings how;
    size_t cancel_after = 0;
};

static pi_engine *open_engine(const char *path, const settings &more)
{
    pi_error err;
    pi_engine *e = nullptr;
    pi_options *o = pi_options_new();
    settings all = {{"model", path}, {"device", "emu"}, {"ctx-size", "256"}, {"parallel", "16"}, {"temp", "0"},
                    {"ignore-eos", "true"}, {"cache-ram", "0"}};
    all.insert(all.end(), more.begin(), more.end());
    for (const auto &s : all)
        if (pi_options_set(o, s.first.c_str(), s.second.c_str(), &err)) fail_msg("%s: %s", s.first.c_str(), err.msg);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    return e;
}

static void submit(pi_engine *e, const ask &a, answer *to)
{
    pi_error err;
    pi_request *r = to->request = pi_request_new(e);
    to->cancel_after = a.cancel_after;
    pi_request_set_user(r, to);
    for (const auto &s : a.how)
        if (pi_request_set(r, s.first.c_str(), s.second.c_str(), &err)) fail_msg("%s: %s", s.first.c_str(), err.msg);
    if (pi_request_prompt_text(r, a.prompt.data(), a.prompt.size(), &err)) fail_msg("%s", err.msg);
    to->code = pi_request_submit(r, &err);
}

/* Submits the first n_first requests, and one more at each event, until all have ended. */
static std::vector<answer> run(pi_engine *e, const std::vector<ask> &asks, size_t n_first)
{
    std::vector<answer> out(asks.size());
    size_t n = 0;
    while (n < n_first) submit(e, asks[n], &out[n]), n++;
    pi_event *ev[8];
    for (int k; (k = pi_poll(e, ev, 8, -1)) > 0;) {
        for (int i = 0; i < k; i++) {
            answer *a = static_cast<answer *>(ev[i]->user);
            if (ev[i]->code) a->code = ev[i]->code;
            if (ev[i]->finish_reason) a->reason = ev[i]->finish_reason;
            a->tokens.insert(a->tokens.end(), ev[i]->tokens, ev[i]->tokens + ev[i]->n_tokens);
            if (ev[i]->logprobs)
                a->probs.insert(a->probs.end(), ev[i]->logprobs, ev[i]->logprobs + ev[i]->n_tokens * ev[i]->n_logprobs);
            if (a->cancel_after && a->tokens.size() >= a->cancel_after) pi_request_cancel(a->request);
            pi_event_release(ev[i]);
            if (n < asks.size()) submit(e, asks[n], &out[n]), n++;
        }
    }
    for (answer &a : out) pi_request_free(a.request);
    return out;
}

/* Checks that the results are the same; for a cancelled request, the tokens that both runs have. */
static void same(const char *what, const std::vector<ask> &asks, const std::vector<answer> &a,
                 const std::vector<answer> &b)
{
    for (size_t i = 0; i < a.size(); i++) {
        size_t n = std::max(a[i].tokens.size(), b[i].tokens.size());
        if (asks[i].cancel_after) n = std::min(a[i].tokens.size(), b[i].tokens.size());
        else if (a[i].reason != b[i].reason || a[i].code != b[i].code)
            fail_msg("%s: request %zu: another end", what, i);
        if (asks[i].cancel_after && n < asks[i].cancel_after) fail_msg("%s: request %zu: too few tokens", what, i);
        for (size_t k = 0; k < n; k++)
            if (k >= a[i].tokens.size() || k >= b[i].tokens.size() || a[i].tokens[k] != b[i].tokens[k])
                fail_msg("%s: request %zu: token %zu differs", what, i, k);
        if (asks[i].cancel_after) continue;
        assert_int_equal(a[i].probs.size(), b[i].probs.size());
        for (size_t k = 0; k < a[i].probs.size(); k++) {
            assert_int_equal(a[i].probs[k].id, b[i].probs[k].id);
            assert_memory_equal(&a[i].probs[k].logprob, &b[i].probs[k].logprob, sizeof(float));
        }
    }
}

static std::string model_file(const char *arch)
{
    const char *tmp = getenv("TMPDIR");
    const std::string path = std::string(tmp && *tmp ? tmp : "/tmp") + "/pagedinfer-ahead-" + std::to_string(getpid()) +
                             ".gguf";
    assert_int_equal(simt_typed_write(path.c_str(), arch, strcmp(arch, "gemma3") ? 0 : PI__Q8_0,
                                      strcmp(arch, "gemma3") ? nullptr : "L=2 P=2"), 0);
    return path;
}

/* n requests with common prefixes. They end by length, by a stop token, or by cancellation; some wait for others.
 * Some ask for log-probabilities. stop: a token that occurs in generated text, -1 = none. mixed: the host samples
 * some requests. */
static std::vector<ask> requests(size_t n, bool mixed, int32_t stop)
{
    std::vector<ask> a;
    static const char *const begin[] = {"once and on the morning", "the other hand and the other day", "the day"};
    for (size_t i = 0; i < n; i++) {
        ask q = {begin[i % 3], {{"max-tokens", std::to_string(6 + i * 5 % 11)}}};
        if (i > 2) q.prompt += " of the " + std::to_string(i % 5) + std::string(i * 7 % 40, 'o');
        if (i % 4 == 1 && stop >= 0) q.how.push_back({"stop-token", std::to_string(stop)});
        if (i % 8 == 6) q.how.insert(q.how.end(), {{"logprobs", "3"}, {"ignore-eos", "false"}});
        if (i % 7 == 3) q.cancel_after = 2;
        if (mixed && i % 3 == 1)
            q.how.insert(q.how.end(),
                         {{"temp", "0.8"}, {"top-k", i % 2 ? "20" : "0"}, {"seed", std::to_string(i + 1)}});
        if (mixed && i % 4 < 2)
            q.how.insert(q.how.end(),
                         {{"repeat-penalty", "1.3"}, {"frequency-penalty", "0.2"}, {"repeat-last-n", "9"}});
        a.push_back(q);
    }
    return a;
}

/* Compares the requests with and without async scheduling, twice each, so that later ones find prefixes. Returns the
 * number of steps that began before the previous one was read. */
static long check(const char *arch, const settings &more, size_t n, size_t n_first, bool mixed)
{
    const std::string path = model_file(arch);
    std::vector<std::vector<answer>> got[2];
    std::vector<ask> asks;
    long ahead = 0;
    int32_t stop = -1;
    for (int i = 0; i < 2; i++) {
        settings all = more;
        all.push_back({"async-scheduling", i ? "true" : "false"});
        pi_engine *e = open_engine(path.c_str(), all);
        if (!i) stop = run(e, {{"the other hand and the other day", {{"max-tokens", "6"}}}}, 1)[0].tokens[3];
        asks = requests(n, mixed, stop);
        simt::watch.n_ahead = 0;
        for (int round = 0; round < 2; round++) got[i].push_back(run(e, asks, n_first));
        if (i) ahead = simt::watch.n_ahead;
        else assert_int_equal(simt::watch.n_ahead, 0);
        pi_engine_close(e);
        assert_int_equal(simt::watch.live, 0);
    }
    unlink(path.c_str());
    for (size_t round = 0; round < 2; round++) same(arch, asks, got[0][round], got[1][round]);
    same(arch, asks, got[0][0], got[0][1]);
    return ahead;
}

static const bool lengthy = getenv("PAGEDINFER_LONG") != nullptr;

static void test_one(void **) { assert_true(check("gemma3", {}, lengthy ? 3 : 2, 1, false) > (lengthy ? 10 : 1)); }
static void test_many(void **) { assert_true(!lengthy || check("gemma3", {}, 16, 12, false) > 5); }

/* Requests with top-k, top-p, min-p and temperature next to greedy ones, with and without penalties. */
static void test_sampled(void **)
{
    const size_t n = lengthy ? 12 : 5;
    /* of twelve requests, the host samples one nearly to the end */
    assert_true(check("gemma3", {}, n, n, true) > (lengthy ? 2 : 5));
    if (lengthy) check("qwen35", {{"top-k", "100"}, {"top-p", "0.9"}}, 6, 3, true);
}

/* Small pools, so that requests are preempted; requests that the host samples, or with drafts. */
static void test_preempted(void **)
{
    const size_t n = lengthy ? 12 : 5;
    assert_true(check("gemma3", {{"kv-cache-tokens", "96"}, {"ctx-size", "96"}}, n, n, false) > 2);
    if (lengthy) check("gemma3", {{"spec-type", "ngram"}}, 8, 4, true);
}

/* Recurrent states: no lookahead step completes a chunk, and later requests take over the states. Then compressed
 * entries. */
static void test_states(void **) { assert_true(check("qwen35", {}, lengthy ? 4 : 1, 1, false) > 1); }
static void test_entries(void **) { assert_true(!lengthy || check("deepseek4", {}, 4, 2, false) > 5); }

/* More sequences with logits than the usual rows per pass (PI__USUAL_ROWS): a device computes all rows in one step. */
static void test_wide(void **)
{
    const std::string path = model_file("gemma3");
    std::vector<ask> asks;
    for (size_t i = 0; i < 36; i++)
        asks.push_back({std::string(i % 9 + 1, 'a' + (char) (i % 5)), {{"max-tokens", "10"}}});
    std::vector<answer> got[2];
    for (int i = 0; i < 2; i++) {
        pi_engine *e = open_engine(path.c_str(), {{"parallel", i ? "36" : "16"}, {"kv-cache-tokens", "9216"},
                                                 {"async-scheduling", i ? "true" : "false"}});
        simt::watch.n_ahead = 0;
        got[i] = run(e, asks, asks.size());
        if (i) assert_true(simt::watch.n_ahead > 4); /* of the ten steps with all sequences */
        pi_engine_close(e);
    }
    unlink(path.c_str());
    same("gemma3", asks, got[0], got[1]);
}

/* Checks the order of calls in a run of decode steps. With async scheduling, each step is queued as one graph before
 * the host waits for the previous one. The host waits for the whole queue only in the prompt's step, even when the
 * steps' batches share a small ring of memory. Without it, the host waits in every step. each: waits per step that
 * the host samples; 2 if it needs the full row. */
static void check_order(const settings &how, long each = 1)
{
    const std::string path = model_file("gemma3");
    std::vector<int32_t> want;
    for (const char *on : {"false", "true"}) {
        settings all = {{"async-scheduling", on}, {"parallel", "2"}, {"ubatch-size", "8"}, {"ctx-size", "64"}};
        all.insert(all.end(), how.begin(), how.end());
        pi_engine *e = open_engine(path.c_str(), all);
        for (const char *tokens : {"2", "2", "3", "21"}) { /* in the last run, the step's shape was seen twice */
            simt::watch.n_waits = simt::watch.n_ahead = simt::watch.n_replayed = 0;
            const answer a = run(e, {{"day", {{"max-tokens", tokens}, {"cache", "false"}}}}, 1)[0];
            if (*on == 'f') want = a.tokens;
            assert_int_equal(a.tokens.size(), atoi(tokens));
            assert_true(std::equal(a.tokens.begin(), a.tokens.end(), want.begin()));
        }
        const long waits = simt::watch.n_waits, ahead = simt::watch.n_ahead, replayed = simt::watch.n_replayed;
        if (replayed != 20) fail_msg("%s: %ld graphs for 20 steps", on, replayed);
        if (*on == 'f' ? waits != 21 * each || ahead : waits != each || ahead != 19)
            fail_msg("%s: %ld waits, %ld ahead", on, waits, ahead);
        pi_engine_close(e);
    }
    unlink(path.c_str());
}

static void test_order(void **)
{
    check_order({});
    check_order({{"temp", "0.8"}, {"seed", "7"}});
    check_order({{"temp", "0.8"}, {"seed", "7"}, {"repeat-penalty", "1.2"}, {"presence-penalty", "0.5"}});
    check_order({{"temp", "1"}, {"seed", "7"}, {"top-k", "0"}, {"top-p", "1"}, {"min-p", "0"}});
    check_order({{"temp", "0.9"}, {"seed", "7"}, {"top-k", "0"}, {"top-p", "0.95"}, {"min-p", "0"}}, 2);
}

/* Failing runtime calls: every request ends, with a device error or normally, and everything is freed. */
static void test_failures(void **)
{
    const std::string path = model_file("gemma3");
    const std::vector<ask> asks = requests(lengthy ? 3 : 2, false, -1);
    pi_engine *e = open_engine(path.c_str(), {});
    simt::watch.n_calls = 0;
    run(e, asks, 2);
    const long all = simt::watch.n_calls;
    pi_engine_close(e);
    long failed = 0;
    for (long at = 3; at < all; at += 1 + all / (lengthy ? 47 : 7)) {
        e = open_engine(path.c_str(), {});
        simt::watch.n_calls = 0;
        simt::watch.fail_at = at;
        for (const answer &a : run(e, asks, 2)) {
            if (a.code && a.code != PI_EDEVICE && a.code != PI_ECLOSED) fail_msg("call %ld: code %d", at, a.code);
            failed += a.code == PI_EDEVICE;
        }
        simt::watch.fail_at = -1;
        pi_engine_close(e);
        assert_int_equal(simt::watch.live, 0);
    }
    assert_true(failed > 3);
    unlink(path.c_str());
}

int main()
{
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_one),       cmocka_unit_test(test_many),   cmocka_unit_test(test_sampled),
        cmocka_unit_test(test_preempted), cmocka_unit_test(test_states), cmocka_unit_test(test_entries),
        cmocka_unit_test(test_wide),      cmocka_unit_test(test_order),  cmocka_unit_test(test_failures)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
