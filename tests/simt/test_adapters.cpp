/* LoRA adapters on the emulated device: nearly the CPU's results, and the same bits in any batch, with fused and
 * separate launches, also next to requests without adapters; captured or not, with async scheduling or not; on
 * several devices; loaded and unloaded while requests run; all memory is freed. */
#include "engine_jobs.h"

extern "C" int simt_typed_write(const char *path, const char *arch, int32_t type, const char *sizes);
extern "C" int simt_adapter_write(const char *path, const char *model, uint32_t seed, int32_t rank, int32_t type,
                                  const char *only);

static std::string file(const char *name) { return model_path + "." + name; }

/* a: all matrices; b: matrices with an input that another launch may compute; c: an odd rank. */
static void write_files(const char *arch, int32_t type)
{
    assert_int_equal(simt_typed_write(model_path.c_str(), arch, type, type == PI__NVFP4 ? "F=192" : nullptr), 0);
    assert_int_equal(simt_adapter_write(file("a").c_str(), model_path.c_str(), 1, 8, PI__F32, nullptr), 0);
    assert_int_equal(simt_adapter_write(file("b").c_str(), model_path.c_str(), 2, 16, PI__F16, "ffn_down"), 0);
    assert_int_equal(simt_adapter_write(file("c").c_str(), model_path.c_str(), 3, 37, PI__BF16, nullptr), 0);
}

static void remove_files()
{
    for (const char *name : {"a", "b", "c"}) unlink(file(name).c_str());
    unlink(model_path.c_str());
}

typedef std::vector<std::pair<const char *, const char *>> settings;

static pi_engine *open_with(const char *device, const settings &more, bool adapters)
{
    pi_error err;
    pi_engine *e;
    pi_options *o = options_on(device, "64");
    set(o, "cache-type-k", "f32");
    set(o, "cache-type-v", "f32");
    for (const auto &s : more) set(o, s.first, s.second);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    for (const char *name : {"a", "b", "c"})
        if (adapters && pi_lora_load(e, name, file(name).c_str(), 0, &err)) fail_msg("%s", err.msg);
    return e;
}

static pi_engine *open_on(const char *device, const char *matmul, const char *fp4, const char *fuse, bool adapters)
{
    return open_with(device, {{"matmul", matmul}, {"fp4-mode", fp4}, {"cuda-fuse", fuse}}, adapters);
}

static const std::vector<job> jobs = {{prompt(40, 1), "5"}, {prompt(17, 2), "4", "a"}, {prompt(5, 3), "5", "b:0.5"},
                                      {prompt(18, 4), "3", "a:0.5,c"}, {prompt(7, 5), "4"}};

static double difference(const std::vector<rows> &a, const std::vector<rows> &b)
{
    double most = 0;
    for (size_t i = 0; i < a.size(); i++)
        for (const auto &p : a[i]) {
            const auto it = b[i].find(p.first);
            if (it == b[i].end() || p.first > jobs[i].prompt.size()) continue; /* before the first differing token */
            for (size_t k = 0; k < p.second.size(); k++)
                most = std::max(most, (double) std::fabs(p.second[k] - it->second[k]));
        }
    return most;
}

static void check(const char *arch, int32_t type, const char *matmul, const char *fp4 = "off", double near = 0)
{
    write_files(arch, type);
    pi_engine *fused = open_on("emu", matmul, fp4, "auto", true), *apart = open_on("emu", matmul, fp4, "off", true);
    pi_engine *bare = open_on("emu", matmul, fp4, "auto", false);
    const std::vector<rows> want = run_jobs(fused, jobs);
    for (size_t i = 0; i < jobs.size(); i++) same_rows({want[i]}, run_jobs(jobs[i].lora ? fused : bare, {jobs[i]}));
    same_rows(want, run_jobs(apart, jobs));
    if (near > 0 && !getenv("PI_TEST_EMULATED")) { /* one matrix format per kind of model is enough */
        pi_engine_close(apart);
        cuda_graphs = "off";
        apart = open_on("emu", matmul, fp4, "auto", true);
        cuda_graphs = "auto";
        same_rows(want, run_jobs(apart, jobs));
    }
    std::vector<job> none = jobs;
    for (job &j : none) j.lora = nullptr;
    const double does = difference(run_jobs(bare, none), want);
    if (near > 0) {
        pi_engine *cpu = open_on("cpu", "auto", "off", "auto", true);
        const double off = difference(run_jobs(cpu, jobs), want);
        if (off > near || does < 20 * near)
            fail_msg("%s: %g from the CPU's logits; the adapters change %g", arch, off, does);
        pi_engine_close(cpu);
    }
    assert_true(does > 0.01);
    for (pi_engine *e : {fused, apart, bare}) pi_engine_close(e);
    remove_files();
}

static void test_bits(void **)
{
    check("llama2", PI__Q4_0, "exact", "off", 2e-3);
    if (getenv("PI_TEST_EMULATED")) return;
    check("llama2", PI__NVFP4, "auto", "w4a4");
    check("qwen35moe", PI__Q8_0, "auto");
    check("deepseek2", PI__Q8_0, "exact", "off", 2e-3);
    if (!getenv("PAGEDINFER_LONG")) return;
    check("gemma3", PI__F16, "auto", "off", 2e-3);
    check("mixtral", PI__Q8_0, "exact", "off", 2e-3);
}

/* Tokens of greedy requests without logits, each with its adapters. */
static std::vector<std::vector<int32_t>> tokens_of(pi_engine *e, const std::vector<const char *> &loras,
                                                   const char *max_tokens)
{
    std::vector<std::vector<int32_t>> out(loras.size());
    std::vector<pi_request *> r;
    pi_error err;
    for (size_t i = 0; i < loras.size(); i++) {
        const std::vector<int32_t> p = prompt(5 + i, (int32_t) i);
        r.push_back(pi_request_new(e));
        pi_request_set_user(r[i], &out[i]);
        int rc = pi_request_set(r[i], "max-tokens", max_tokens, &err);
        if (!rc && loras[i]) rc = pi_request_set(r[i], "lora", loras[i], &err);
        if (rc || pi_request_prompt_tokens(r[i], p.data(), p.size(), &err) || pi_request_submit(r[i], &err))
            fail_msg("%s", err.msg);
    }
    pi_event *ev;
    while (pi_poll(e, &ev, 1, -1) > 0) {
        auto *to = static_cast<std::vector<int32_t> *>(ev->user);
        assert_int_equal(ev->code, PI_OK);
        to->insert(to->end(), ev->tokens, ev->tokens + ev->n_tokens);
        pi_event_release(ev);
    }
    for (pi_request *q : r) pi_request_free(q);
    return out;
}

/* Counts of runtime calls for a number of tokens. */
struct cost {
    long launched, recorded, replayed, ahead;
};

static cost cost_of(pi_engine *e, const std::vector<const char *> &loras, const char *max_tokens)
{
    simt::watch.n_launched = simt::watch.n_recorded = simt::watch.n_replayed = simt::watch.n_ahead = 0;
    tokens_of(e, loras, max_tokens);
    return {simt::watch.n_launched, simt::watch.n_recorded, simt::watch.n_replayed, simt::watch.n_ahead};
}

/* Checks that a decode step on several devices is the given number of graphs, or more, also with adapters loaded
 * after the capture. launches: launches per step outside of graphs, which insert the token ids under async
 * scheduling. */
static void check_graphs(pi_engine *e, const char *how, long graphs, long launches)
{
    simt::watch.idle = true; /* the results of kernels do not matter */
    for (int i = 0; i < 3; i++) cost_of(e, {"a"}, "12");
    const cost few = cost_of(e, {"a:0.5"}, "4"), more = cost_of(e, {"a:0.5"}, "12");
    if (more.recorded) fail_msg("%s: %ld steps are captured anew", how, more.recorded);
    if (more.replayed - few.replayed < 8 * graphs)
        fail_msg("%s: %ld graphs in 8 steps", how, more.replayed - few.replayed);
    if (more.launched - few.launched != 8 * launches)
        fail_msg("%s: %ld launches in 8 steps", how, more.launched - few.launched);
    simt::watch.idle = false;
}

/* Tensor and layer splits are bitwise identical to one device, each device with the adapters in its own memory. With
 * experts on the CPU, a request's bits are the same in any batch. */
static void test_divided(void **)
{
    static const struct {
        const char *name;
        settings how;
        long launches;
    } ways[] = {{"tensor", {}, 0}, {"layer", {{"split-mode", "layer"}}, 2}};
    /* the second round replays the graphs that the first one captured */
    const int rounds = getenv("PI_TEST_EMULATED") ? 1 : 2;
    write_files("mixtral", PI__Q8_0);
    pi_engine *one = open_with("emu", {}, true), *beside = open_with("emu", {{"cpu-moe", "true"}}, true);
    const std::vector<rows> want = run_jobs(one, jobs), partly = run_jobs(beside, jobs);
    simt::watch.apart = true;
    for (const auto &way : ways) {
        pi_engine *e = open_with("emu,emu", way.how, true);
        for (int i = 0; i < rounds; i++) same_rows(want, run_jobs(e, jobs));
        check_graphs(e, way.name, 2, way.launches);
        pi_engine_close(e);
    }
    simt::watch.apart = false;
    for (size_t i = 0; i < jobs.size(); i++) same_rows({partly[i]}, run_jobs(beside, {jobs[i]}));
    const double off = difference(partly, want);
    if (off > 0.05) fail_msg("%g from the device's logits with experts on the CPU", off);
    check_graphs(beside, "cpu-moe", 2, 0);
    for (pi_engine *e : {one, beside}) pi_engine_close(e);
    remove_files();
}

/* An engine with the adapters of write_files, and with d, which has the shapes of a. */
static pi_engine *open_with_four(const char *arch)
{
    pi_error err;
    write_files(arch, PI__Q8_0);
    assert_int_equal(simt_adapter_write(file("d").c_str(), model_path.c_str(), 4, 8, PI__BF16, nullptr), 0);
    pi_engine *e = open_on("emu", "auto", "off", "auto", true);
    if (pi_lora_load(e, "d", file("d").c_str(), 0, &err)) fail_msg("%s", err.msg);
    unlink(file("d").c_str());
    return e;
}

/* A decode step with adapters is one graph, shared with other adapters of the same shapes. Outside of the graph it
 * has a single launch, which inserts the token ids under async scheduling. */
static void check_captured(pi_engine *e, const char *first, const std::vector<const char *> &others)
{
    for (int i = 0; i < 3; i++) cost_of(e, {first}, "12");
    for (const char *other : others) {
        const cost few = cost_of(e, {other}, "4"), more = cost_of(e, {other}, "12");
        if (few.recorded || more.recorded)
            fail_msg("%s: %ld steps are captured anew", other, few.recorded + more.recorded);
        if (more.launched - few.launched != 8)
            fail_msg("%s: %ld launches in 8 steps", other, more.launched - few.launched);
        if (more.ahead - few.ahead != 8) fail_msg("%s: %ld of 8 steps are fed ahead", other, more.ahead - few.ahead);
    }
}

static void test_captured(void **)
{
    simt::watch.idle = true; /* the results of kernels do not matter */
    for (const char *arch : {"llama2", "deepseek2"}) {
        pi_engine *e = open_with_four(arch);
        check_captured(e, "a", {"a", "a:0.5", "d", "d:2"});
        check_captured(e, "a,d", {"d:3,a:2"});
        assert_true(cost_of(e, {"c"}, "12").recorded > 0); /* another rank */
        check_captured(e, "c", {"c:2"});
        pi_engine_close(e);
        assert_int_equal(simt::watch.live, 0);
        remove_files();
    }
    simt::watch.idle = false;
}

/* Tokens under async scheduling equal the tokens of each request in a batch of one, and of steps that wait for each
 * other. */
static void check_ahead(const char *arch)
{
    const std::vector<const char *> mixes[] = {{"a:30", "d:20", nullptr, "b:40"},
                                               {"d:-30", "a:20", "a:15,d:30", nullptr}};
    pi_engine *e = open_with_four(arch);
    std::vector<std::vector<int32_t>> want[2];
    simt::watch.n_ahead = 0;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 2; i++) {
            const auto got = tokens_of(e, mixes[i], "7");
            if (!round) want[i] = got;
            assert_true(got == want[i]);
        }
    assert_true(simt::watch.n_ahead > 8);
    const std::vector<std::vector<int32_t>> none = tokens_of(e, {nullptr, nullptr, nullptr, nullptr}, "7");
    assert_true(none != want[0] && none != want[1] && none[3] == want[1][3]);
    for (size_t k = 0; k < 4; k++) { /* the other requests have no adapter */
        std::vector<const char *> one(4, nullptr);
        one[k] = mixes[1][k];
        assert_true(tokens_of(e, one, "7")[k] == want[1][k]);
    }
    pi_engine_close(e);
    remove_files();
}

static void test_ahead(void **)
{
    check_ahead(getenv("PI_TEST_EMULATED") ? "llama2" : "mixtral");
}

/* While a job runs, its adapter is unloaded and loaded again. */
static void test_loading(void **)
{
    write_files("llama2", PI__Q8_0);
    pi_engine *e = open_on("emu", "auto", "off", "auto", true);
    pi_error err;
    const std::vector<rows> want = run_jobs(e, jobs);
    std::vector<rows> got(jobs.size());
    std::vector<int> code(jobs.size());
    std::vector<pi_request *> r;
    for (size_t i = 0; i < jobs.size(); i++) r.push_back(submit(e, jobs[i], &got[i], &code[i], &err));
    for (const char *name : {"a", "b", "c"}) {
        assert_int_equal(pi_lora_unload(e, name, &err), PI_OK);
        assert_int_equal(pi_lora_load(e, name, file("b").c_str(), 0, &err), PI_OK);
    }
    take_events(e, [] {});
    for (pi_request *q : r) pi_request_free(q);
    for (int c : code) assert_int_equal(c, PI_OK);
    same_rows(want, got);
    pi_engine_close(e);
    remove_files();
}

int main()
{
    name_model("adapters");
    const CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_divided),
                                cmocka_unit_test(test_captured), cmocka_unit_test(test_ahead),
                                cmocka_unit_test(test_loading)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
