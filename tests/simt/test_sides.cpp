/* Models split between the emulated device and the CPU: the tokens and nearly the logits of the CPU, with any
 * placement; the same bits in any batch; memory as planned; no access to memory of the other side. */
#include "answers.h"

#include <sys/mman.h>
#include <unistd.h>

#include "runtime_emu.h"

extern "C" {
#include "formats/formats.h"
#include "model/placement.h"
int simt_small_write(const char *path, const char *arch, int32_t type);
int simt_draft_logits(const char *devices, int32_t n_pick, float *logits, size_t room, size_t *n_rows, size_t *n_vocab);
int simt_drafter_write(const char *path, int32_t n_pick);
int simt_flash_write(const char *path, const char *sizes);
int simt_open_split(const char *path, const pi__placement_rules *placement, long fail_at, long *count, long *left);
}

typedef std::vector<std::pair<const char *, const char *>> settings;

static const std::vector<std::string> prompts = {"the other hand and the other day in the morning you and", "you",
                                                 "once and on"};

static std::string model_file(const char *arch, int32_t type)
{
    char path[256];
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/pagedinfer-split-%ld.gguf", tmp && *tmp ? tmp : "/tmp", (long) getpid());
    assert_int_equal(simt_small_write(path, arch, type), 0);
    return path;
}

static pi_options *options_of(const std::string &model, const char *device, const settings &more)
{
    const settings all = {{"model", model.c_str()}, {"device", device}, {"ctx-size", "256"},
                          {"kv-cache-tokens", "256"}, {"parallel", "4"}, {"threads", "2"}, {"temp", "0"},
                          {"max-tokens", "8"}, {"ignore-eos", "true"}, {"logits", "generated"}, {"cache-ram", "0"},
                          {"matmul", "exact"} /* to match the CPU's products */};
    pi_options *o = pi_options_new();
    for (const auto &s : all) set(o, s.first, s.second);
    for (const auto &s : more) set(o, s.first, s.second);
    return o;
}

static pi_engine *open_engine(const std::string &model, const char *device, const settings &more)
{
    pi_error err;
    pi_engine *e = nullptr;
    pi_options *o = options_of(model, device, more);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    return e;
}

static std::string text_of(const settings &s)
{
    std::string t;
    for (const auto &i : s) t += std::string(i.first) + "=" + i.second + " ";
    return t;
}

/* True if the engine runs on both the device and the CPU. */
static bool is_split(pi_engine *e)
{
    pi_info info;
    info.size = sizeof info;
    assert_int_equal(pi_engine_info(e, &info), PI_OK);
    return strstr(info.device, "emu + cpu") != nullptr;
}

/* Each placement gives the CPU's results within a tolerance. Placements with `bits` also give the same bits in a
 * batch of one, and in short steps without captures. */
static void check_ways(const char *arch, int32_t type, const std::vector<settings> &ways, bool bits)
{
    const double tolerance = strcmp(arch, "gemma4") ? 5e-3 : 0.02; /* gemma4 has larger logits */
    const std::string model = model_file(arch, type);
    pi_engine *cpu = open_engine(model, "cpu", {});
    const std::vector<answer> want = ask(cpu, prompts, true);
    pi_engine_close(cpu);
    const size_t n = getenv("PI_TEST_EMULATED") ? 1 : ways.size(); /* all placements would take minutes there */
    for (size_t i = 0; i < n; i++) {
        settings way = ways[i];
        const std::string what = std::string(arch) + " " + text_of(way);
        simt::watch.n_replayed = 0;
        pi_engine *e = open_engine(model, "emu", way);
        if (!is_split(e)) fail_msg("%s is not split", what.c_str());
        const std::vector<answer> got = ask(e, prompts, true);
        compare(what.c_str(), want, got, tolerance);
        if (bits) compare(what.c_str(), got, ask(e, prompts, false), 0);
        assert_true(simt::watch.n_replayed > 0);
        pi_engine_close(e);
        if (!bits) continue;
        way.insert(way.end(), {{"ubatch-size", "5"}, {"cuda-graphs", "off"}});
        simt::watch.n_recorded = simt::watch.n_replayed = 0;
        e = open_engine(model, "emu", way);
        compare(what.c_str(), got, ask(e, prompts, true), 0);
        assert_int_equal(simt::watch.n_recorded + simt::watch.n_replayed, 0);
        pi_engine_close(e);
    }
    unlink(model.c_str());
}

static void test_layers(void **)
{
    check_ways("gemma3", PI__F32, {{{"gpu-layers", "1"}}, {{"gpu-layers", "2"}}, {{"gpu-layers", "4"}}}, false);
}

/* Layers with different cache types, on both sides. A rounding difference that selects another code has a larger
 * effect than all other differences. */
static void cache_types_of(const char *arch, const char *rules, const char *layers, double tolerance)
{
    settings way = {{"cache-type", rules}};
    const std::string model = model_file(arch, PI__Q8_0);
    pi_engine *e = open_engine(model, "cpu", way);
    const std::vector<answer> want = ask(e, prompts, true);
    pi_engine_close(e);
    way.push_back({"gpu-layers", layers});
    e = open_engine(model, "emu", way);
    assert_true(is_split(e) == !!strcmp(layers, "all"));
    const std::vector<answer> got = ask(e, prompts, true);
    compare(rules, want, got, tolerance);
    compare(rules, got, ask(e, prompts, false), 0);
    pi_engine_close(e);
    unlink(model.c_str());
}

static void test_cache_types(void **)
{
    cache_types_of("gemma3", "L0:q8_0,*.k:tq4_0,*.v:tq3_0", "2", 0.1);
    cache_types_of("deepseek4", "*:tq4_0", "2", 2e-3);
    cache_types_of("deepseek3", "L0:q8_0,*:tq4_0", "2", 0.1);
    cache_types_of("deepseek4", "full:tq3_0,*:f16", "3", 2e-3);
    cache_types_of("deepseek4", "full:tq4_0,*:tq3_0", "all", 0.3);
}

static void test_bits(void **)
{
    check_ways("gemma3", PI__Q8_0, {{{"gpu-layers", "3"}}, {{"override-tensor", "attn_v=CPU,blk\\.1\\.ffn=CPU"}}},
               true);
}

static void test_overrides(void **)
{
    check_ways("gemma3", PI__Q8_0, {{{"override-tensor", "token_embd=CPU"}},
                                    {{"override-tensor", "ffn_(up|down)=CPU"}, {"override-tensor", "attn_k\\.=cpu"}},
                                    {{"gpu-layers", "0"}, {"override-tensor", "ffn_gate=EMU0"}},
                                    {{"kv-offload", "false"}}}, false);
}

/* Experts on the other side than the rest; the other architectures' ops. */
static void test_experts(void **)
{
    check_ways("gemma4", PI__Q8_0,
               {{{"cpu-moe", "true"}},
                {{"n-cpu-moe", "2"}, {"gpu-layers", "5"}},
                {{"override-tensor", "blk\\.1\\.ffn_gate_up_exps=CPU,per_layer_model_proj=CPU"}}},
               false);
    check_ways("gemma4", PI__Q8_0, {{{"cpu-moe", "true"}, {"gpu-layers", "3"}}}, true);
    check_ways("deepseek4", PI__F32, {{{"gpu-layers", "2"}}, {{"cpu-moe", "true"}}}, false);
    check_ways("deepseek3", PI__Q8_0, {{{"gpu-layers", "2"}}, {{"cpu-moe", "true"}}}, false);
    check_ways("deepseek3", PI__F32, {{{"kv-offload", "false"}}}, true);
}

static uint64_t cpu_weights(const std::string &model, const settings &way)
{
    pi_plan p;
    pi_error err;
    p.size = sizeof p;
    pi_options *o = options_of(model, "emu", way);
    if (pi_engine_plan(o, &p, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    return p.place[1].weights_bytes;
}

/* Placement of experts: full layers, counted from the first; override rules take precedence. */
static void test_expert_layers(void **)
{
    const std::string model = model_file("gemma4", PI__Q8_0);
    const uint64_t none = cpu_weights(model, {{"override-tensor", "nothing=CPU,per_layer_token_embd=CPU"}}),
                   all = cpu_weights(model, {{"cpu-moe", "true"}}), two = cpu_weights(model, {{"n-cpu-moe", "2"}}),
                   one = cpu_weights(model, {{"n-cpu-moe", "1"}});
    assert_true(none < one && one < two && two < all);
    assert_int_equal(cpu_weights(model, {{"n-cpu-moe", "6"}}), all);
    assert_int_equal(cpu_weights(model, {{"override-tensor", "ffn_(gate|gate_up)_exps=CPU"}}), all);
    assert_int_equal(cpu_weights(model, {{"override-tensor", "blk\\.[01]\\.ffn_down_exps=CPU"}}), two);
    assert_int_equal(cpu_weights(model, {{"override-tensor", "blk\\.[1-9]\\.ffn_.*_exps=emu"}, {"cpu-moe", "true"}}),
                     one);
    unlink(model.c_str());
}

static std::string told; /* lines of the log */
static void take_line(void *, int, const char *line) { told += std::string(line) + "\n"; }

/* Bytes of the plan's first entry; if it is the only entry, it includes host memory. */
static uint64_t on_device(const pi_plan &p)
{
    return p.place[0].weights_bytes + p.place[0].kv_bytes + p.place[0].state_bytes + p.place[0].scratch_bytes;
}

static pi_plan plan_of(const std::string &model, const settings &way)
{
    pi_plan p = {};
    pi_error err;
    p.size = sizeof p;
    pi_options *o = options_of(model, "emu", way);
    pi_options_set_log(o, take_line, nullptr, PI_LOG_INFO);
    told.clear();
    if (pi_engine_plan(o, &p, &err)) fail_msg("%s: %s", text_of(way).c_str(), err.msg);
    pi_options_free(o);
    return p;
}

/* Experts in host memory that the device reads, with copies of some: the bits of experts in device memory, in any
 * batch, in captured steps and with any number of copies. */
static void test_expert_cache(void **)
{
    const struct {
        const char *arch;
        int32_t type;
        const char *copies;
    } cases[] = {{"gemma4", PI__Q8_0, "1"}, {"qwen35moe", PI__Q4_K, "3"}, {"deepseek3", PI__Q8_0, "2"}};
    const int n = getenv("PI_TEST_EMULATED") ? 1 : 3;
    for (int i = 0; i < n; i++) {
        const std::string model = model_file(cases[i].arch, cases[i].type);
        const settings none = {{"matmul", "auto"}};
        settings way = none;
        way.insert(way.end(), {{i == 1 ? "n-cpu-moe" : "cpu-moe", i == 1 ? "2" : "true"},
                               {"expert-cache", cases[i].copies}});
        pi_engine *e = open_engine(model, "emu", none);
        assert_int_equal(simt::device_host_bytes(), 0);
        const std::vector<answer> want = ask(e, prompts, true);
        pi_engine_close(e);
        const pi_plan all = plan_of(model, none), some = plan_of(model, way);
        if (!some.host_weights_bytes || all.host_weights_bytes || some.n_places != 1)
            fail_msg("%s, %s: %llu bytes in host memory, %u places", cases[i].arch, text_of(way).c_str(),
                     (unsigned long long) some.host_weights_bytes, some.n_places);
        e = open_engine(model, "emu", way);
        assert_int_equal(simt::device_host_bytes(), some.host_weights_bytes);
        assert_false(is_split(e));
        simt::watch.n_replayed = 0;
        compare(text_of(way).c_str(), want, ask(e, prompts, true), 0);
        compare(text_of(way).c_str(), want, ask(e, prompts, false), 0);
        assert_true(simt::watch.n_replayed > 0);
        pi_engine_close(e);
        assert_int_equal(simt::device_host_bytes(), 0);
        unlink(model.c_str());
    }
}

/* Recurrent states on the device, on the CPU and on both; drafts, which read the state of the last step. */
static void test_states(void **)
{
    check_ways("qwen35", PI__Q8_0, {{{"gpu-layers", "4"}, {"spec-type", "mtp"}}}, true);
    check_ways("qwen35", PI__Q8_0, {{{"kv-offload", "false"}, {"spec-type", "mtp"}}}, false);
    check_ways("qwen35", PI__Q8_0, {{{"gpu-layers", "2"}}}, true);
    check_ways("qwen35moe", PI__Q8_0,
               {{{"cpu-moe", "true"}}, {{"gpu-layers", "3"}, {"override-tensor", "blk\\.4.*exps=CPU"}}}, false);
}

/* ---- graph segments */

/* Launches and replays of a number of steps. */
struct step_cost {
    long launched, replayed;
};

static step_cost cost_of(pi_engine *e, const char *max_tokens)
{
    simt::watch.n_launched = simt::watch.n_recorded = simt::watch.n_replayed = 0;
    ask(e, {"you"}, true, max_tokens);
    return {simt::watch.n_launched, simt::watch.n_replayed};
}

/* A decode step whose shape has been seen twice only replays its n_parts graph segments. With capture disabled it
 * launches all of its kernels, at least n_kernels. */
static void check_cost(const char *arch, const settings &way, long n_parts, long n_kernels)
{
    const std::string model = model_file(arch, PI__Q8_0);
    for (const char *graphs : {"off", "on"}) {
        settings all = way;
        all.push_back({"cuda-graphs", graphs});
        pi_engine *e = open_engine(model, "emu", all);
        cost_of(e, "4");
        const step_cost few = cost_of(e, "4"), more = cost_of(e, "12");
        const long launched = more.launched - few.launched, replayed = more.replayed - few.replayed;
        const bool off = !strcmp(graphs, "off");
        assert_int_equal(simt::watch.n_recorded, 0);
        if (replayed != (off ? 0 : 8 * n_parts)) fail_msg("%s %s: %ld / 8 parts", arch, text_of(all).c_str(), replayed);
        if (off ? launched < 8 * n_kernels : launched)
            fail_msg("%s %s: %ld / 8 launches", arch, text_of(all).c_str(), launched);
        pi_engine_close(e);
        assert_int_equal(simt::watch.live, 0);
    }
    unlink(model.c_str());
}

static void test_parts(void **)
{
    simt::watch.idle = true; /* the results of kernels do not matter */
    check_cost("gemma3", {{"gpu-layers", "1"}}, 2, 5);
    check_cost("gemma3", {{"gpu-layers", "3"}}, 2, 16);
    /* one per layer, one before the first, and the rows of the last */
    check_cost("gemma3", {{"kv-offload", "false"}}, 6, 20);
    /* 6 layers, the per-layer embeddings, one before them */
    check_cost("gemma4", {{"cpu-moe", "true"}}, 8, 60);
    check_cost("qwen35", {{"gpu-layers", "4"}}, 2, 12);
    check_cost("qwen35moe", {{"cpu-moe", "true"}}, 5, 30);
    simt::watch.idle = false;
}

/* ---- prefixes and preemption */

/* Snapshots of states, with some layers on the device and some on the CPU. */
static void test_snapshots(void **)
{
    const std::string model = model_file("qwen35", PI__Q8_0);
    const std::vector<std::string> one = {"the other hand and the other day in the morning you and the other day on"};
    pi_engine *e = open_engine(model, "emu", {{"gpu-layers", "4"}});
    const std::vector<answer> first = ask(e, one, true), again = ask(e, one, true);
    compare("again", first, again, 0);
    assert_true(again[0].result.cached_tokens >= 16);
    pi_engine_close(e);
    unlink(model.c_str());
}

static void test_cache(void **)
{
    const std::string model = model_file("gemma3", PI__F32);
    const std::vector<std::string> two = {"the other hand and the other day in the morning you and the other day on",
                                          "in the morning you and on the other hand the other day and once and the"};
    pi_engine *e = open_engine(model, "emu", {{"gpu-layers", "2"}});
    const std::vector<answer> first = ask(e, two, true), again = ask(e, two, true);
    compare("again", first, again, 0);
    for (const answer &a : again) assert_true(a.result.cached_tokens >= 16);
    pi_engine_close(e);

    /* Both shards of a block are evicted to host memory and come back. */
    e = open_engine(model, "emu",
                    {{"gpu-layers", "2"}, {"ctx-size", "64"}, {"kv-cache-tokens", "64"}, {"cache-ram", "16"}});
    for (int i = 0; i < 3; i++) {
        const std::vector<answer> one = ask(e, {two[i % 2]}, true);
        compare("from the host", {first[i % 2]}, one, 0);
        if (i == 2) assert_true(one[0].result.cached_tokens >= 16);
    }
    pi_engine_close(e);

    e = open_engine(model, "emu",
                    {{"gpu-layers", "2"}, {"ctx-size", "112"}, {"kv-cache-tokens", "112"}, {"max-tokens", "24"}});
    const std::vector<answer> concurrency = ask(e, {two[0], two[1], two[0] + " you"}, true);
    pi_engine_close(e);
    uint32_t n_preempted = 0;
    for (const answer &a : concurrency) n_preempted += a.result.n_preempted;
    assert_true(n_preempted > 0);
    e = open_engine(model, "emu", {{"gpu-layers", "2"}, {"max-tokens", "24"}});
    compare("preempted", ask(e, {two[0], two[1], two[0] + " you"}, true), concurrency, 0);
    pi_engine_close(e);
    unlink(model.c_str());
}

/* A drafter with a centroid lm_head: nearly the CPU's logits; next to the CPU, the device's own bits. It changes no
 * result. */
static void test_drafter(void **)
{
    static float cpu[8000], emu[8000], split[8000];
    size_t rows, vocab;
    assert_int_equal(simt_draft_logits("cpu", 40, cpu, 8000, &rows, &vocab), PI_OK);
    simt::options.hide = true;
    assert_int_equal(simt_draft_logits("emu", 40, emu, 8000, &rows, &vocab), PI_OK);
    assert_int_equal(simt_draft_logits("emu+cpu", 40, split, 8000, &rows, &vocab), PI_OK);
    simt::options.hide = false;
    assert_memory_equal(split, emu, rows * vocab * sizeof *emu);
    for (size_t r = 0; r < rows; r++) {
        const float *a = cpu + r * vocab, *b = emu + r * vocab;
        const float spread = *std::max_element(a, a + vocab) - *std::min_element(a, a + vocab);
        assert_true(spread > 1);
        for (size_t i = 0; i < vocab; i++) assert_true(std::fabs(a[i] - b[i]) <= 5e-3f * spread);
    }
    const std::string model = model_file("gemma4", PI__F32), drafter = model + ".draft", blocks = model + ".blocks";
    assert_int_equal(simt_drafter_write(drafter.c_str(), 40), 0);
    /* this drafter reads the outputs of layers on both sides */
    assert_int_equal(simt_flash_write(blocks.c_str(), "v=1"), 0);
    std::vector<answer> plain;
    for (const char *draft : {"", drafter.c_str(), blocks.c_str()}) {
        pi_stats st = {};
        st.size = sizeof st;
        pi_engine *e = open_engine(model, "emu", {{"gpu-layers", "3"}, {"model-draft", draft}});
        assert_true(is_split(e));
        const std::vector<answer> got = ask(e, {prompts[1]}, true);
        pi_engine_stats(e, &st);
        assert_int_equal(st.n_drafted > 0, *draft != 0);
        if (!*draft) plain = got;
        compare("drafter", plain, got, 0);
        compare("drafter, again", plain, ask(e, {prompts[1]}, true), 0);
        pi_engine_close(e);
    }
    unlink(model.c_str());
    unlink(drafter.c_str());
    unlink(blocks.c_str());
}

/* ---- memory */

/* Large mappings of the library: the CPU's part of the model. */
struct mapping {
    void *p;
    size_t size;
};
static std::vector<mapping> mappings;
static const size_t LARGE = 4 << 10; /* smaller mappings belong to threads, and kernels may run meanwhile */

static void *hook_map(void *, size_t size)
{
    void *p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    if (size >= LARGE) mappings.push_back({p, size});
    return p;
}
static void hook_unmap(void *, void *p, size_t size)
{
    if (!p) return;
    munmap(p, size);
    for (size_t i = 0; i < mappings.size(); i++) {
        if (mappings[i].p != p) continue;
        mappings.erase(mappings.begin() + (long) i);
        break;
    }
}
static void *hook_malloc(void *, size_t size) { return malloc(size); }
static void *hook_realloc(void *, void *p, size_t size) { return realloc(p, size); }
static void hook_free(void *, void *p) { free(p); }

static void use_hooks(bool on)
{
    const pi_allocator a = {sizeof a, nullptr, hook_malloc, hook_realloc, hook_free, hook_map, hook_unmap};
    assert_int_equal(pi_set_allocator(on ? &a : nullptr), PI_OK);
}

static void hide_host(bool begins)
{
    for (const mapping &m : mappings) mprotect(m.p, m.size, begins ? PROT_NONE : PROT_READ | PROT_WRITE);
    simt::host_hide(begins);
}

/* No kernel accesses the CPU's memory, and the CPU does not access the device's. */
static void test_apart(void **)
{
    const std::string model = model_file("gemma3", PI__F32);
    use_hooks(true);
    simt::options.hide = true;
    simt::options.on_launch = hide_host;
    for (const settings &way :
         {settings {{"gpu-layers", "2"}}, settings {{"override-tensor", "attn_v=CPU,ffn_down=CPU"}},
          settings {{"kv-offload", "false"}}}) {
        pi_engine *e = open_engine(model, "emu", way);
        assert_int_equal(ask(e, prompts, true).size(), prompts.size());
        pi_engine_close(e);
    }
    simt::options.hide = false;
    simt::options.on_launch = nullptr;
    use_hooks(false);
    unlink(model.c_str());
}

static void test_plan(void **)
{
    const std::string model = model_file("gemma3", PI__F32);
    pi_error err;
    pi_info info;
    info.size = sizeof info;
    pi_engine *whole = open_engine(model, "emu", {});
    assert_int_equal(pi_engine_info(whole, &info), PI_OK);
    const size_t logits = (size_t) PI__USUAL_ROWS *
                          (info.n_vocab * sizeof(float) + (2 + PI__MAX_TOP) * sizeof(uint64_t) +
                           sizeof(pi__topk_request) + sizeof(pi__draw) +
                                                 /* and their results and draws */
                           (PI__MAX_SEEN + 1) * sizeof(int32_t));
    const size_t batch = simt::host_bytes() - logits; /* without the logits */
    pi_options *alone = options_of(model, "emu", {});
    pi_plan all;
    all.size = sizeof all;
    if (pi_engine_plan(alone, &all, &err)) fail_msg("%s", err.msg);
    pi_options_free(alone);
    /* block tables, step buffers, adapter rows */
    const size_t tables = all.total_bytes - simt::device_bytes() - logits;
    assert_in_range(tables, 1, 96 << 10);
    pi_engine_close(whole);
    for (const settings &way : {settings {{"gpu-layers", "2"}}, settings {{"override-tensor", "ffn_down=CPU"}}}) {
        pi_plan p;
        p.size = sizeof p;
        pi_options *o = options_of(model, "emu", way);
        use_hooks(true);
        if (pi_engine_plan(o, &p, &err)) fail_msg("%s", err.msg);
        assert_int_equal(p.n_places, 2);
        assert_string_equal(p.place[0].name, "emu");
        assert_int_equal(strncmp(p.place[1].name, "cpu", 3), 0);
        uint64_t total[2];
        for (int i = 0; i < 2; i++) {
            const auto &q = p.place[i];
            total[i] = q.weights_bytes + q.kv_bytes + q.state_bytes + q.scratch_bytes;
        }
        assert_int_equal(total[0] + total[1], p.total_bytes);
        pi_engine *e = open_engine(model, "emu", way);
        assert_int_equal(simt::device_bytes(), total[0]);
        uint64_t host = simt::host_bytes() - batch;
        for (const mapping &m : mappings) host += m.size;
        assert_int_equal(host + tables, total[1]);
        pi_engine_close(e);
        assert_int_equal(simt::device_bytes(), 0);
        assert_int_equal(mappings.size(), 0);
        use_hooks(false);
        pi_options_free(o);
    }
    unlink(model.c_str());
}

/* Opening with each host allocation, then each device allocation failing in turn: an error, and everything is
 * freed. */
static void test_out_of_memory(void **)
{
    const std::string model = model_file("gemma3", PI__Q8_0);
    const char *const over[] = {"attn_v=CPU"};
    pi__placement_rules rules = {};
    rules.limited = true;
    rules.gpu_layers = 2;
    rules.override = over;
    rules.n_override = 1;
    long count, left, i = 0;
    for (int rc = PI_ENOMEM; rc; i++) {
        rc = simt_open_split(model.c_str(), &rules, i, &count, &left);
        assert_int_equal(left, 0);
        assert_int_equal(simt::device_bytes(), 0);
        if (count <= i) break;
        if (rc) assert_int_equal(rc, PI_ENOMEM);
        else if (count > i) rc = PI_ENOMEM; /* an optional allocation failed */
    }
    assert_true(i > 20);
    for (long k = 0;; k++) {
        simt::options.fail_alloc = k;
        int rc = simt_open_split(model.c_str(), &rules, -1, &count, &left);
        bool all = simt::options.fail_alloc >= 0; /* no further allocations */
        simt::options.fail_alloc = -1;
        assert_int_equal(left, 0);
        assert_int_equal(simt::device_bytes(), 0);
        assert_int_equal(rc, all ? PI_OK : PI_ENOMEM);
        if (all) {
            assert_true(k >= 6);
            break;
        }
    }
    unlink(model.c_str());
}

/* ---- models that are too large */

/* Automatic placement with `memory` bytes: it equals the plan of the explicit options `way`, and the plan of `better`
 * does not fit. */
static void check_fit(const std::string &model, uint64_t memory, const settings &way, const settings &better)
{
    simt::watch.memory = (size_t) memory;
    const pi_plan got = plan_of(model, {});
    const std::string why = told;
    const pi_plan want = plan_of(model, way);
    assert_null(strstr(told.c_str(), "MiB free"));
    assert_int_equal(got.n_places, 2);
    if (memcmp(got.place, want.place, sizeof got.place))
        fail_msg("not what %shas: %s", text_of(way).c_str(), why.c_str());
    assert_true(on_device(got) <= memory - memory / 8);
    assert_true(on_device(plan_of(model, better)) > memory - memory / 8);
    if (!strstr(why.c_str(), "MiB free, and all of the model would take")) fail_msg("not told why: %s", why.c_str());
    for (const auto &s : way) {
        const std::string words = std::string(s.first) + " " + s.second;
        if (!strstr(why.c_str(), words.c_str())) fail_msg("not \"%s\" but: %s", words.c_str(), why.c_str());
    }
    simt::watch.memory = (size_t) 1 << 35;
}

/* Pages small enough to distinguish models of a few hundred KiB. */
static int small_pages(void **)
{
    simt::options.page = 4096;
    return 0;
}
static int usual_pages(void **)
{
    simt::options.page = 2 << 20;
    return 0;
}

/* Free memory decides the placement. The log mentions the choice only if something does not fit. */
static void test_fit(void **)
{
    const std::string model = model_file("gemma3", PI__F32);
    assert_int_equal(plan_of(model, {}).n_places, 1);
    assert_null(strstr(told.c_str(), "MiB free"));
    const uint64_t two = on_device(plan_of(model, {{"gpu-layers", "2"}})),
                   four = on_device(plan_of(model, {{"gpu-layers", "4"}}));
    check_fit(model, two * 8 / 7 + 64, {{"gpu-layers", "2"}}, {{"gpu-layers", "3"}});
    check_fit(model, four * 8 / 7 + 64, {{"gpu-layers", "4"}}, {{"gpu-layers", "all"}});

    simt::watch.memory = (size_t) two * 8 / 7 + 64;
    pi_engine *cpu = open_engine(model, "cpu", {}), *e = open_engine(model, "emu", {});
    assert_true(is_split(e));
    compare("fitted", ask(cpu, prompts, true), ask(e, prompts, true), 5e-3);
    pi_engine_close(e);
    simt::watch.memory = (size_t) on_device(plan_of(model, {{"gpu-layers", "1"}})) / 2; /* nothing fits */
    e = open_engine(model, "emu", {});
    compare("on the CPU", ask(cpu, prompts, true), ask(e, prompts, true), 0);
    assert_false(is_split(e));
    assert_int_equal(simt::watch.live, 0);
    pi_engine_close(e);
    pi_engine_close(cpu);
    simt::watch.memory = (size_t) 1 << 35;
    unlink(model.c_str());

    const std::string moe = model_file("gemma4", PI__Q8_0);
    const uint64_t one = on_device(plan_of(moe, {{"n-cpu-moe", "1"}})),
                   none = on_device(plan_of(moe, {{"cpu-moe", "true"}, {"gpu-layers", "3"}}));
    check_fit(moe, one * 8 / 7 + 64, {{"n-cpu-moe", "1"}}, {{"gpu-layers", "all"}});
    check_fit(moe, none * 8 / 7 + 64, {{"n-cpu-moe", "6"}, {"gpu-layers", "3"}},
              {{"cpu-moe", "true"}, {"gpu-layers", "4"}});
    unlink(moe.c_str());
}

/* Without a size, the cache uses nine tenths of the device's memory. A second engine works with the rest: the CPU gets
 * the layers that do not fit. */
static void test_sized(void **)
{
    const std::string model = model_file("gemma3", PI__F32);
    const settings way = {{"kv-cache-tokens", "0"}, {"parallel", "64"}};
    const uint64_t one = on_device(plan_of(model, {{"parallel", "64"}}));
    const size_t memory = (size_t) one * 2;
    simt::watch.memory = memory;
    const pi_plan p = plan_of(model, way);
    assert_int_equal(p.cache_limit, PI_CACHE_LIMIT_MEMORY);
    assert_int_equal(p.free_bytes, memory);
    assert_true(p.kv_tokens > 2 * 256 && p.kv_tokens < 64 * 256);
    assert_in_range(p.n_requests, 2, 63);
    pi_engine *cpu = open_engine(model, "cpu", {}), *e[2];
    for (int i = 0; i < 2; i++) {
        e[i] = open_engine(model, "emu", way);
        assert_in_range(simt::device_bytes(), memory / 10 * 8, i ? memory : memory / 10 * 9);
        compare("sized", ask(cpu, prompts, true), ask(e[i], prompts, true), 5e-3);
    }
    for (pi_engine *a : e) pi_engine_close(a);
    pi_engine_close(cpu);
    simt::watch.memory = (size_t) 1 << 35;
    unlink(model.c_str());
}

/* An explicit placement that does not fit is refused, with one that would fit; so are devices that share a model. */
static void test_too_large(void **)
{
    const std::string model = model_file("gemma3", PI__F32);
    const uint64_t two = on_device(plan_of(model, {{"gpu-layers", "2"}}));
    pi_error err = {};
    pi_engine *e = nullptr;
    for (const settings &way : {settings {{"gpu-layers", "all"}}, settings {{"gpu-layers", "4"}},
                                settings {{"split-mode", "tensor"}}}) {
        const bool tensor = strcmp(way[0].first, "gpu-layers") != 0;
        simt::watch.memory = (size_t) (tensor ? two / 2 : two);
        pi_options *o = options_of(model, tensor ? "emu,emu" : "emu", way);
        assert_int_equal(pi_engine_open(&e, o, &err), PI_ENOMEM);
        if (!strstr(err.msg, tensor ? "use more devices" : ": gpu-layers 2 of 5 would fit")) fail_msg("%s", err.msg);
        pi_options_free(o);
        assert_int_equal(simt::watch.live, 0);
    }
    simt::watch.memory = (size_t) two;
    e = open_engine(model, "emu", {{"gpu-layers", "2"}});
    pi_engine_close(e);
    simt::watch.memory = (size_t) 1 << 35;
    unlink(model.c_str());
}

/* The placement search, with each host allocation and each device call failing in turn. */
static void test_fit_fails(void **)
{
    const std::string model = model_file("gemma3", PI__F32);
    const uint64_t two = on_device(plan_of(model, {{"gpu-layers", "2"}}));
    pi__placement_rules rules = {};
    rules.fit = true;
    long count, left, plain, i = 0;
    simt::watch.memory = (size_t) two; /* the opened engine needs less of everything */
    while (simt_open_split(model.c_str(), nullptr, -1, &plain, &left) == PI_OK)
        simt::watch.memory = simt::watch.memory - simt::watch.memory / 16;
    for (int rc = PI_ENOMEM; rc || i <= count; i++) {
        rc = simt_open_split(model.c_str(), &rules, i, &count, &left);
        assert_int_equal(left, 0);
        assert_int_equal(simt::watch.live, 0);
        if (count <= i) break;
        if (rc) assert_int_equal(rc, PI_ENOMEM);
    }
    assert_true(count > plain + 20);
    for (long n = 0;; n++) {
        pi_plan p = {};
        pi_error err = {};
        p.size = sizeof p;
        pi_options *o = options_of(model, "emu", {});
        simt::watch.n_calls = 0;
        simt::watch.fail_at = n;
        int rc = pi_engine_plan(o, &p, &err);
        simt::watch.fail_at = -1;
        pi_options_free(o);
        assert_int_equal(simt::watch.live, 0);
        if (simt::watch.n_calls <= n) break;
        assert_int_equal(rc, PI_EDEVICE);
        assert_non_null(strstr(err.msg, "a call was made to fail"));
    }
    simt::watch.memory = (size_t) 1 << 35;
    unlink(model.c_str());
}

/* Opens an engine, generates, closes it. Returns PI_OK, or PI_EDEVICE from opening or from the request. */
static int one_answer(const std::string &model)
{
    pi_error err = {};
    pi_engine *e = nullptr;
    pi_options *o = options_of(model, "emu",
                               {{"gpu-layers", "3"}, {"override-tensor", "attn_k=CPU"}, {"max-tokens", "4"}});
    const int rc = pi_engine_open(&e, o, &err);
    pi_options_free(o);
    return answer_and_close(e, rc, err);
}

/* Failing runtime calls, also while the CPU waits for the device's results: reported as device errors, and everything
 * is freed. */
static void test_calls_fail(void **)
{
    const std::string model = model_file("gemma3", PI__F32);
    simt::watch.idle = true; /* the results of kernels do not matter */
    for (int dead = 0; dead < 2; dead++) {
        simt::watch.dead = dead == 1;
        long n = 0;
        for (bool reached = true; reached; n += dead ? 13 : 1) {
            simt::watch.n_calls = 0;
            simt::watch.fail_at = n;
            int rc = one_answer(model);
            simt::watch.fail_at = -1;
            reached = simt::watch.n_calls > n;
            if (rc != (reached ? PI_EDEVICE : PI_OK)) fail_msg("call %ld: %d", n, rc);
            if (simt::watch.live) fail_msg("call %ld: %ld things of the device are left", n, (long) simt::watch.live);
        }
        assert_true(n > 100);
    }
    simt::watch.dead = simt::watch.idle = false;
    unlink(model.c_str());
}

/* ---- options */

static void refused(const std::string &model, const char *device, const settings &way, const char *why)
{
    pi_error err = {};
    pi_engine *e = nullptr;
    pi_options *o = options_of(model, device, way);
    assert_int_equal(pi_engine_open(&e, o, &err), PI_EINVAL);
    if (!strstr(err.msg, why)) fail_msg("%s: not \"%s\" but: %s", text_of(way).c_str(), why, err.msg);
    pi_options_free(o);
}

static void test_options(void **)
{
    const std::string model = model_file("gemma3", PI__F32);
    refused(model, "emu", {{"override-tensor", "attn_(q=CPU"}}, "'attn_(q': missing closing parenthesis at byte 7");
    refused(model, "emu", {{"override-tensor", "ffn_up=CUDA0"}}, "device 'CUDA0' is not in use: give one of emu, cpu");
    refused(model, "cpu", {{"override-tensor", "ffn_up=emu"}}, "device 'emu' is not in use: give one of cpu");
    refused(model, "emu", {{"override-tensor", "ffn_up=CPU,attn"}}, "'attn': expected REGEX=DEVICE");
    refused(model, "emu", {{"override-tensor", "=CPU"}}, "expected REGEX=DEVICE");
    refused(model, "emu", {{"override-tensor", "ffn_up="}}, "expected REGEX=DEVICE");
    pi_error err;
    pi_options *o = pi_options_new();
    for (const char *bad : {"some", "", "2.5", "1e3x"}) {
        assert_int_equal(pi_options_set(o, "n-gpu-layers", bad, &err), PI_EINVAL);
        assert_non_null(strstr(err.msg, "is not a number of layers: give a number, auto or all"));
    }
    assert_int_equal(pi_options_set(o, "n-cpu-moe", "-1", &err), PI_EINVAL);
    pi_options_free(o);
    /* All on the device, or all on the CPU, is not a split. */
    for (const settings &way :
         {settings {{"gpu-layers", "0"}}, settings {{"gpu-layers", "5"}}, settings {{"gpu-layers", "-1"}},
          settings {{"gpu-layers", "ALL"}}, settings {{"cpu-moe", "true"}},
          settings {{"override-tensor", "nothing=CPU"}}, settings {{"gpu-layers", "99"}}}) {
        pi_plan p;
        p.size = sizeof p;
        o = options_of(model, "emu", way);
        if (pi_engine_plan(o, &p, &err)) fail_msg("%s", err.msg);
        assert_int_equal(p.n_places, 1);
        assert_int_equal(!strcmp(p.place[0].name, "emu"), strcmp(way[0].second, "0") != 0);
        pi_options_free(o);
    }
    unlink(model.c_str());
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_layers),
                                cmocka_unit_test(test_cache_types),
                                cmocka_unit_test(test_bits),
                                cmocka_unit_test(test_overrides),
                                cmocka_unit_test(test_experts),
                                cmocka_unit_test(test_expert_cache), cmocka_unit_test(test_expert_layers),
                                cmocka_unit_test(test_states),
                                cmocka_unit_test(test_parts),
                                cmocka_unit_test(test_snapshots),
                                cmocka_unit_test(test_cache),
                                cmocka_unit_test(test_drafter),
                                cmocka_unit_test(test_apart),
                                cmocka_unit_test(test_plan),
                                cmocka_unit_test(test_out_of_memory),
                                cmocka_unit_test(test_calls_fail),
                                cmocka_unit_test_setup_teardown(test_fit, small_pages, usual_pages),
                                cmocka_unit_test_setup_teardown(test_too_large, small_pages, usual_pages),
                                cmocka_unit_test_setup_teardown(test_sized, small_pages, usual_pages),
                                cmocka_unit_test(test_fit_fails),
                                cmocka_unit_test(test_options)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
