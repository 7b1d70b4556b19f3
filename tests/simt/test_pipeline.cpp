/* Emulated devices as the stages of a pipeline (split-mode layer): the bits of one device, in every launch mode. A
 * decode step whose shape was seen twice is one graph per stage and nothing else, queued after the previous step. A
 * failing call ends requests, and nothing else. */
#include <filesystem> /* before cmocka: its macros clash with names in this header */

#include "answers.h"

#include <algorithm>
#include <unistd.h>

#include "runtime_emu.h"

extern "C" {
#include "formats/formats.h"
int simt_small_write(const char *path, const char *arch, int32_t type);
}

typedef std::vector<std::pair<const char *, const char *>> settings;

static const std::vector<std::string> prompts = {"the other hand and the other day in the morning you and", "you",
                                                 "once and on"};

static std::string model_file(const char *arch)
{
    char path[256];
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/pagedinfer-pipeline-%ld.gguf", tmp && *tmp ? tmp : "/tmp", (long) getpid());
    assert_int_equal(simt_small_write(path, arch, PI__Q8_0), 0);
    return path;
}

static long n_ops; /* log lines about op calls */
static void count_line(void *, int, const char *line) { n_ops += strstr(line, "op linear:") != nullptr; }

static int try_open(pi_engine **e, const std::string &model, const char *devices, const settings &more, pi_error *err)
{
    const settings all = {
        {"model", model.c_str()}, {"device", devices},    {"split-mode", strchr(devices, ',') ? "layer" : "none"},
        {"ctx-size", "256"},      {"parallel", "4"},      {"temp", "0"},
        {"max-tokens", "8"},      {"ignore-eos", "true"}, {"logits", "generated"},
        {"cache-ram", "0"}};
    pi_options *o = pi_options_new();
    for (const auto &s : all) set(o, s.first, s.second);
    for (const auto &s : more) set(o, s.first, s.second);
    pi_options_set_log(o, count_line, nullptr, PI_LOG_DEBUG);
    const int rc = pi_engine_open(e, o, err);
    pi_options_free(o);
    return rc;
}

static pi_engine *open_engine(const std::string &model, const char *devices, const settings &more)
{
    pi_error err;
    pi_engine *e = nullptr;
    if (try_open(&e, model, devices, more, &err)) fail_msg("%s", err.msg);
    return e;
}

/* Texts of requests without logits: sampled, with the given seed, or greedy if the seed is "". */
static std::vector<std::string> texts(pi_engine *e, const char *seed, const char *max_tokens, size_t n = 3)
{
    std::vector<std::string> out(n);
    std::vector<pi_request *> r;
    pi_error err;
    for (size_t i = 0; i < n; i++) {
        settings how = {{"max-tokens", max_tokens}};
        if (*seed) how.insert(how.end(), {{"seed", seed}, {"temp", "0.9"}, {"top-k", "30"}});
        if (*seed && i == 1) how.insert(how.end(), {{"repeat-penalty", "1.3"}, {"frequency-penalty", "0.1"}});
        r.push_back(pi_request_new(e));
        pi_request_set_user(r[i], &out[i]);
        for (const auto &s : how)
            if (pi_request_set(r[i], s.first, s.second, &err)) fail_msg("%s", err.msg);
        if (pi_request_prompt_text(r[i], prompts[i].data(), prompts[i].size(), &err) || pi_request_submit(r[i], &err))
            fail_msg("%s", err.msg);
    }
    pi_event *ev;
    while (pi_poll(e, &ev, 1, -1) > 0) {
        static_cast<std::string *>(ev->user)->append(ev->text, ev->text_len);
        assert_int_equal(ev->code, PI_OK);
        pi_event_release(ev);
    }
    for (pi_request *q : r) pi_request_free(q);
    return out;
}

/* Checks for the logits and texts of one device: with graphs, with few graphs, without graphs, and in short steps,
 * with and without async scheduling. No kernel may access another device's memory. */
static void check_bits(const char *arch, const char *devices, const settings &more, bool fed_ahead,
                       const std::vector<settings> &ways = {
                           {}, {{"cuda-graphs", "off"}, {"ubatch-size", "5"}}, {{"parallel", "2"}}})
{
    const std::string model = model_file(arch);
    pi_engine *e = open_engine(model, "emu", more);
    const std::vector<answer> want = ask(e, prompts, true);
    const std::vector<std::string> greedy = texts(e, "", "9"), drawn = texts(e, "5", "9");
    pi_engine_close(e);
    simt::watch.apart = true;
    for (const settings &way : ways) {
        settings all = more;
        all.insert(all.end(), way.begin(), way.end());
        const bool few = way.size() == 1, off = way.size() == 2;
        simt::watch.graph_bytes = few ? 96 << 10 : 0; /* so that shapes evict each other's graphs */
        simt::watch.n_recorded = simt::watch.n_replayed = 0;
        simt::watch.n_ahead = 0;
        simt::watch.hasty = few; /* work that has not waited for another device then runs too early */
        e = open_engine(model, devices, all);
        compare(arch, want, ask(e, prompts, true), 0);
        compare(arch, want, ask(e, prompts, false), 0);
        assert_true(texts(e, "", "9") == greedy);
        assert_true(texts(e, "5", "9") == drawn);
        if (fed_ahead && !few) assert_true(simt::watch.n_ahead > 4); /* a hasty wait has already run the work */
        if (off) assert_int_equal(simt::watch.n_recorded + simt::watch.n_replayed, 0);
        else assert_true(simt::watch.n_recorded > 0 && simt::watch.n_replayed > simt::watch.n_recorded);
        pi_engine_close(e);
        assert_int_equal(simt::watch.live, 0);
    }
    simt::watch.graph_bytes = 0;
    simt::watch.apart = simt::watch.hasty = false;
    unlink(model.c_str());
}

static void test_bits(void **)
{
    check_bits("gemma3", "emu,emu", {}, true);
    check_bits("llama3", "emu,emu", {}, true, {{}}); /* the first stage has the embedding */
    if (!getenv("PAGEDINFER_LONG")) return;
    check_bits("llama3", "emu,emu", {}, true);
    check_bits("gemma4", "emu,emu,emu", {}, true);
    check_bits("deepseek4", "emu,emu", {}, true);
    check_bits("qwen35moe", "emu,emu,emu,emu", {}, true);
    check_bits("gemma3", "emu,emu", {{"async-scheduling", "false"}}, false);
}

/* Recurrent states, and drafts of the model's own head, which runs in the pipeline, too. */
static void test_drafts(void **) { check_bits("qwen35", "emu,emu", {{"spec-type", "mtp"}}, false); }

/* ---- what a step costs */

struct cost {
    long launched, recorded, replayed, ops, waits, ahead;
};

static cost cost_of(pi_engine *e, const char *seed, const char *max_tokens)
{
    n_ops = simt::watch.n_launched = simt::watch.n_recorded = simt::watch.n_replayed = simt::watch.n_waits =
        simt::watch.n_ahead = 0;
    texts(e, seed, max_tokens, 1);
    return {simt::watch.n_launched, simt::watch.n_recorded, simt::watch.n_replayed, n_ops,
            simt::watch.n_waits,    simt::watch.n_ahead};
}

/* Checks the cost of 8 more decode steps. Each step is n_graphs graphs; otherwise each device launches only the
 * insertion of token ids, and no op is called. Each step except n_alone is queued before the previous one has ended
 * on any device. The host never waits for a queue to drain. */
static void check_cost(const char *arch, const char *devices, long n_graphs, const char *seed, long n_alone = 0)
{
    const long ahead = (8 - n_alone) * (1 + std::count(devices, devices + strlen(devices), ','));
    const std::string model = model_file(arch);
    simt::watch.idle = !*seed; /* the results of kernels do not matter then */
    pi_engine *e = open_engine(model, devices, {{"trace-ops", "true"}});
    for (int i = 0; i < 2; i++) cost_of(e, seed, "12");
    const cost few = cost_of(e, seed, "4"), more = cost_of(e, seed, "12");
    if (more.recorded || more.launched - few.launched != ahead)
        fail_msg("%s: %ld launches, %ld captures in 8 steps", arch, more.launched - few.launched, more.recorded);
    if (more.waits != few.waits || more.ahead - few.ahead != ahead)
        fail_msg("%s: %ld waits, %ld ahead in 8 steps", arch, more.waits - few.waits, more.ahead - few.ahead);
    if (more.replayed - few.replayed != 8 * n_graphs)
        fail_msg("%s: %ld graphs in 8 steps", arch, more.replayed - few.replayed);
    if (!few.ops || more.ops != few.ops)
        fail_msg("%s: linear is called %ld times in 8 steps", arch, more.ops - few.ops);
    pi_engine_close(e);
    simt::watch.idle = false;
    unlink(model.c_str());
}

static void test_cost(void **)
{
    for (const char *seed : {"", "3"}) check_cost("llama3", "emu,emu", 2, seed);
    check_cost("llama3", "emu,emu,emu", 3, "");
    check_cost("gemma3", "emu,emu", 3, ""); /* the embedding is the output matrix, so it is in the last stage */
    check_cost("gemma4", "emu,emu,emu", 5, ""); /* also, its last layers read the keys of earlier ones */
    check_cost("deepseek4", "emu,emu", 2, "");
    check_cost("qwen35moe", "emu,emu", 2, "", 1); /* one step completes a chunk of its states */
}

/* Copies to disk run concurrently with async-scheduled steps; the host never waits for a queue to drain. */
static void test_copies(void **)
{
    const std::string model = model_file("gemma3"), dir = model + ".d";
    simt::watch.idle = true;
    pi_engine *e = open_engine(model, "emu,emu", {{"prefix-cache-dir", dir.c_str()}});
    for (int i = 0; i < 2; i++) cost_of(e, "", "8");
    const cost few = cost_of(e, "", "8"), more = cost_of(e, "", "72");
    pi_stats st = {};
    st.size = sizeof st;
    for (int i = 0; i < 1000 && st.disk_writes < 4; i++) {
        pi_engine_stats(e, &st);
        usleep(1000);
    }
    if (st.disk_writes < 4) fail_msg("%llu blocks went to the disk", (unsigned long long) st.disk_writes);
    if (more.waits != few.waits) fail_msg("%ld waits in 64 steps", more.waits - few.waits);
    pi_engine_close(e);
    simt::watch.idle = false;
    std::filesystem::remove_all(dir);
    unlink(model.c_str());
}

/* ---- failures */

/* calls up to the end of the last answer: includes opening, but not closing */
static long n_calls_of_answer;
static void count_calls() { n_calls_of_answer = simt::watch.n_calls; }

/* Opens an engine, generates, closes it. Returns PI_OK, or PI_EDEVICE from opening or from a request. */
static int one_answer(const std::string &model)
{
    n_calls_of_answer = 0;
    pi_error err = {};
    pi_engine *e = nullptr;
    const int rc = try_open(&e, model, "emu,emu", {{"max-tokens", "6"}}, &err);
    return answer_and_close(e, rc, err, count_calls);
}

/* A single failing call may be harmless while devices open: the query of free memory only guides the placement of
 * layers. */
static void test_calls_fail(void **)
{
    long failed = 0;
    const std::string model = model_file("gemma3");
    simt::watch.idle = true;
    for (int dead = 0; dead < 2; dead++) {
        simt::watch.dead = dead == 1;
        long n = 0;
        for (bool reached = true; reached; n += dead ? 31 : 7) {
            simt::watch.n_calls = 0;
            simt::watch.fail_at = n;
            const int rc = one_answer(model);
            simt::watch.fail_at = -1;
            reached = simt::watch.n_calls > n;
            if (rc ? rc != PI_EDEVICE || !reached : dead && n_calls_of_answer > n) fail_msg("call %ld: %d", n, rc);
            failed += rc != PI_OK;
            if (simt::watch.live) fail_msg("call %ld: %ld things of the devices are left", n, (long) simt::watch.live);
        }
        assert_true(n > 100);
    }
    assert_true(failed > 50);
    simt::watch.dead = simt::watch.idle = false;
    unlink(model.c_str());
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_drafts), cmocka_unit_test(test_cost),
                                cmocka_unit_test(test_copies), cmocka_unit_test(test_calls_fail)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
