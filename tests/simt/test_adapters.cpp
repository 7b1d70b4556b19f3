/* Adapters (LoRA) on the emulated device: nearly what the CPU gives; the same bits in any company, with launches fused and not,
 * and beside them those of requests without; on several devices; loaded and unloaded while requests run; no memory left. */
#include "engine_jobs.h"

extern "C" int simt_typed_write(const char *path, const char *arch, int32_t type, const char *sizes);
extern "C" int simt_adapter_write(const char *path, const char *model, uint32_t seed, int32_t rank, int32_t type, const char *only);

static std::string file(const char *name) { return model_path + "." + name; }

/* a: of all matrices; b: of those whose input another launch may make; c: of odd rank. */
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
            if (it == b[i].end() || p.first > jobs[i].prompt.size()) continue; /* before any token is another */
            for (size_t k = 0; k < p.second.size(); k++) most = std::max(most, (double) std::fabs(p.second[k] - it->second[k]));
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
    std::vector<job> none = jobs;
    for (job &j : none) j.lora = nullptr;
    const double does = difference(run_jobs(bare, none), want);
    if (near > 0) {
        pi_engine *cpu = open_on("cpu", "auto", "off", "auto", true);
        const double off = difference(run_jobs(cpu, jobs), want);
        if (off > near || does < 20 * near) fail_msg("%s: %g from the CPU's logits; the adapters change %g", arch, off, does);
        pi_engine_close(cpu);
    }
    assert_true(does > 0.01);
    for (pi_engine *e : {fused, apart, bare}) pi_engine_close(e);
    remove_files();
}

static void test_bits(void **)
{
    check("llama2", PI__Q4_0, "exact", "off", 2e-3);
    check("llama2", PI__NVFP4, "auto", "w4a4");
    if (getenv("PI_TEST_EMULATED")) return;
    check("gemma3", PI__F16, "auto", "off", 2e-3);
    check("mixtral", PI__Q8_0, "exact", "off", 2e-3);
    check("qwen35moe", PI__Q8_0, "auto");
}

/* Devices that share each layer, and stages, to the bit; the CPU beside a device, whoever shares the step. */
static void test_divided(void **)
{
    static const settings ways[] = {{}, {{"split-mode", "layer"}}};
    write_files("mixtral", PI__Q8_0);
    pi_engine *one = open_with("emu", {}, true), *beside = open_with("emu", {{"cpu-moe", "true"}}, true);
    const std::vector<rows> want = run_jobs(one, jobs), partly = run_jobs(beside, jobs);
    for (const settings &s : ways) {
        pi_engine *e = open_with("emu,emu", s, true);
        same_rows(want, run_jobs(e, jobs));
        pi_engine_close(e);
    }
    for (size_t i = 0; i < jobs.size(); i++) same_rows({partly[i]}, run_jobs(beside, {jobs[i]}));
    const double off = difference(partly, want);
    if (off > 0.05) fail_msg("%g from the device's logits with experts on the CPU", off);
    for (pi_engine *e : {one, beside}) pi_engine_close(e);
    remove_files();
}

/* Each job's adapter unloaded and loaded anew while it runs. */
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
    const CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_divided), cmocka_unit_test(test_loading)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
