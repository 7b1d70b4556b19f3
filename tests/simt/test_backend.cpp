/* The emulated CUDA backend as a whole. A tiny Gemma 3 gives the CPU's tokens and nearly its logits. It is
 * batch-invariant: its logits are bitwise identical in any batch. */
#include "answers.h"
#include "runtime_emu.h"

#include <unistd.h>

extern "C" {
#include "backend/cuda/cuda.h"
#include "formats/formats.h"
int simt_tiny_write(const char *path, int32_t type);
int simt_small_write(const char *path, const char *arch, int32_t type);
int simt_open(const char *path, long fail_at, long *count, long *left);
}

static pi_engine *open_engine(const char *model, const char *device, const char *cache, const char *batch,
                              const char *fp4 = "auto", const char *cublas = "auto", const char *matmul = "auto")
{
    pi_error err;
    pi_engine *e = nullptr;
    pi_options *o = pi_options_new();
    set(o, "model", model);
    set(o, "device", device);
    set(o, "cache-type", strchr(cache, ':') ? cache : (std::string("*:") + cache).c_str());
    set(o, "ubatch-size", batch);
    set(o, "fp4-mode", fp4);
    set(o, "cublas", cublas);
    set(o, "matmul", matmul);
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

static void test_model(int32_t type, const char *cache, const char *matmul = "auto", double tolerance = 0.02)
{
    std::vector<std::string> prompts = {"the other hand and the other day on the other hand in the morning you and",
                                        "you", "once and on the"};
    char path[256], what[64];
    if (getenv("PI_TEST_EMULATED")) prompts[0].resize(30);
    const char *tmp = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/pagedinfer-emu-%ld.gguf", tmp && *tmp ? tmp : "/tmp", (long) getpid());
    snprintf(what, sizeof what, "%s, cache %s", pi__type_info_of(type)->name, cache);
    assert_int_equal(simt_tiny_write(path, type), 0);
    pi_engine *cpu = open_engine(path, "cpu", cache, "512"),
              *emu = open_engine(path, "emu", cache, "512", "auto", "auto", matmul),
              *cut = open_engine(path, "emu", cache, "5", "auto", "auto", matmul);
    unlink(path);
    unsigned long before = simt::n_launches;
    std::vector<answer> want = ask(cpu, prompts, true), got = ask(emu, prompts, true);
    assert_true(simt::n_launches > before + 100); /* the kernels really ran on the emulator */
    compare(what, want, got, tolerance);
    compare(what, got, ask(emu, prompts, false), 0);
    compare(what, got, ask(cut, prompts, true), 0);
    pi_engine_close(cpu);
    pi_engine_close(emu);
    pi_engine_close(cut);
}

static void test_f32(void **)
{
    if (getenv("PAGEDINFER_LONG")) test_model(PI__F32, "f32");
}
static void test_q8_0(void **)
{
    if (!getenv("PI_TEST_EMULATED")) test_model(PI__Q8_0, "f16");
}
static void test_q4_k(void **) { test_model(PI__Q4_K, "q8_0"); }
/* Rotated types, with other types in the first layer. The CPU's and the device's values can be on different sides of
 * a rounding boundary between two codes. Such differences are larger than in other cache types. */
static void test_rotated(void **)
{
    if (!getenv("PI_TEST_EMULATED")) test_model(PI__Q8_0, "L0.k:f16,*.k:tq4_0,first1:q8_0,*:tq3_0", "exact", 0.05);
}

/* Blocks evicted by other prompts come back from host memory with the same results. layers: layers on the device. */
static void test_evicted_of(const char *arch, const char *layers)
{
    const std::string a = "the other hand and the other day on the other hand in the morning you and", b(70, 'y');
    char path[256];
    snprintf(path, sizeof path, "/tmp/pagedinfer-emu-%ld.gguf", (long) getpid());
    assert_int_equal(simt_small_write(path, arch, PI__Q8_0), 0);
    pi_error err;
    pi_engine *e = nullptr;
    pi_options *o = pi_options_new();
    const char *const options[] = {"model", path, "device", "emu", "temp", "0", "max-tokens", "8", "ignore-eos", "true",
                                   "logits", "generated", "parallel", "2", "kv-cache-tokens", "96", "ctx-size", "96",
                                   "gpu-layers", layers};
    for (size_t i = 0; i < sizeof options / sizeof *options; i += 2) set(o, options[i], options[i + 1]);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    unlink(path);
    pi_stats s = {};
    s.size = sizeof s;
    std::vector<answer> first = ask(e, {a, b}, false);
    for (int i = 0; i < 1000 && s.host_entries < 3; i++, usleep(1000)) pi_engine_stats(e, &s);
    compare("evicted", first, ask(e, {a, b}, false), 0);
    pi_engine_stats(e, &s);
    assert_true(s.host_reads > 0 && s.host_writes > 2 && s.cached_tokens > 0);
    pi_engine_close(e);
}

static void test_evicted(void **)
{
    if (!getenv("PI_TEST_EMULATED")) test_evicted_of("gemma3", "all");
    test_evicted_of("gemma3", "2"); /* the output, and the last layer */
    test_evicted_of("qwen35", "all");
}

/* Eviction with two devices that split the cache by heads, or the layers in halves. Evicted blocks come back to both
 * devices, also when a copy fails on one device only. Other engines read them from disk. */
static void test_evicted_split(const char *mode)
{
    const std::string a = "the other hand and the other day on the other hand in the morning you and", b(70, 'y');
    char path[256], dir[] = "/tmp/pagedinfer-emu-XXXXXX";
    snprintf(path, sizeof path, "/tmp/pagedinfer-emu-%ld.gguf", (long) getpid());
    assert_int_equal(simt_tiny_write(path, PI__Q8_0), 0);
    assert_non_null(mkdtemp(dir));
    std::vector<answer> first;
    /* few: with and without failing copies, but without the disk, which test_discrete covers */
    const bool tensor = !strcmp(mode, "tensor"), few = getenv("PI_TEST_EMULATED") != nullptr;
    const int rounds = few ? 1 + tensor : tensor ? 4 : 2;
    for (int i = few && tensor; i < rounds; i++) {
        pi_error err;
        pi_engine *e = nullptr;
        pi_options *o = pi_options_new();
        const char *const options[] = {"model",
                                       path,
                                       "device",
                                       "emu,emu",
                                       "split-mode",
                                       mode,
                                       "temp",
                                       "0",
                                       "max-tokens",
                                       "8",
                                       "ignore-eos",
                                       "true",
                                       "logits",
                                       "generated",
                                       "parallel",
                                       "2",
                                       "kv-cache-tokens",
                                       "96",
                                       "ctx-size",
                                       "96",
                                       "prefix-cache-dir",
                                       i > 1 ? dir : ""};
        for (size_t k = 0; k < sizeof options / sizeof *options; k += 2) set(o, options[k], options[k + 1]);
        if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
        pi_options_free(o);
        pi_stats s = {};
        s.size = sizeof s;
        simt::options.fail_copy = i == 1 ? 3 : -1; /* the second device's shard of the second copy fails */
        const std::vector<answer> got = ask(e, {a, b}, false);
        if (first.empty()) first = got;
        compare("first", first, got, 0);
        for (int n = 0; n < 1000 && s.host_entries < 3; n++, usleep(1000)) pi_engine_stats(e, &s);
        compare("evicted", first, ask(e, {a, b}, false), 0);
        pi_engine_stats(e, &s);
        assert_true(s.cached_tokens > 0);
        if (i < 3) assert_true(s.host_writes > 2); /* blocks that came from disk need not be written */
        if (i != 1) assert_true(s.host_reads > 0);
        if (i == 3) assert_true(s.disk_reads > 0);
        assert_int_equal(simt::options.fail_copy, -1);
        pi_engine_close(e);
    }
    const std::string clean = std::string("rm -r ") + dir;
    assert_int_equal(system(clean.c_str()), 0);
    unlink(path);
}

static void test_evicted_shared(void **) { test_evicted_split("tensor"); }
static void test_evicted_stages(void **) { test_evicted_split("layer"); }

/* FP4 products: different logits than with fp4-mode off, which match the CPU's, but the same in any batch. */
static void test_fp4(void **)
{
    const std::vector<std::string> prompts = {
        "the other hand and the other day on the other hand in the morning you and", "you"};
    char path[256];
    if (getenv("PI_TEST_EMULATED")) return;
    snprintf(path, sizeof path, "/tmp/pagedinfer-emu-%ld.gguf", (long) getpid());
    assert_int_equal(simt_tiny_write(path, PI__NVFP4), 0);
    pi_engine *cpu = open_engine(path, "cpu", "f16", "512"), *off = open_engine(path, "emu", "f16", "512", "off"),
              *fp4 = open_engine(path, "emu", "f16", "512", "w4a4"),
              *cut = open_engine(path, "emu", "f16", "5", "w4a4");
    unlink(path);
    std::vector<answer> exact = ask(off, prompts, true), got = ask(fp4, prompts, true);
    compare("NVFP4, exact", ask(cpu, prompts, true), exact, 0.02);
    compare("NVFP4, alone", got, ask(fp4, prompts, false), 0);
    compare("NVFP4, in pieces", got, ask(cut, prompts, true), 0);
    assert_true(exact[0].logits.begin()->second != got[0].logits.begin()->second);
    for (pi_engine *e : {cpu, off, fp4, cut}) pi_engine_close(e);
}

/* Products by a BLAS library, for enough rows: equal except for the order of sums. */
static void test_library(void **)
{
    const std::string text = "the other hand and the other day on the other hand in the morning you and";
    char path[256];
    if (getenv("PI_TEST_EMULATED")) return;
    snprintf(path, sizeof path, "/tmp/pagedinfer-emu-%ld.gguf", (long) getpid());
    assert_int_equal(simt_tiny_write(path, PI__F16), 0);
    pi_engine *off = open_engine(path, "emu", "f16", "512"), *on = open_engine(path, "emu", "f16", "512", "off", "on");
    unlink(path);
    simt::watch.n_products = 0;
    std::vector<answer> want = ask(off, {text + " " + text}, false), got = ask(on, {text + " " + text}, false);
    compare("by the library", want, got, 1e-3);
    assert_true(simt::watch.n_products > 0);
    assert_true(want[0].logits.begin()->second != got[0].logits.begin()->second);
    simt::watch.n_products = 0;
    compare("short", ask(off, {"you " + text}, false), ask(on, {"you " + text}, false), 0);
    assert_int_equal(simt::watch.n_products, 0);
    for (pi_engine *e : {off, on}) pi_engine_close(e);
}

static void append_line(void *ud, int, const char *line)
{
    *static_cast<std::string *>(ud) += std::string(line) + "\n";
}

/* fp4-mode auto selects FP8 activations for MXFP4, if the device supports it, its self-test passes, and matmul is
 * auto. */
static void test_fp4_auto()
{
    const struct { int arch, matmul, fp4, spoil; bool fp8; const char *line;
    } cases[] = {{120, PI__MATMUL_AUTO, PI__FP4_AUTO, 0, true, nullptr},
                 {121, PI__MATMUL_AUTO, PI__FP4_AUTO, 0, true, nullptr},
                 {120, PI__MATMUL_EXACT, PI__FP4_AUTO, 0, false, nullptr},
                 {120, PI__MATMUL_W16, PI__FP4_AUTO, 0, false, nullptr},
                 {120, PI__MATMUL_AUTO, PI__FP4_OFF, 0, false, nullptr},
                 {120, PI__MATMUL_AUTO, PI__FP4_W4A16, 0, false, nullptr},
                 {90, PI__MATMUL_AUTO, PI__FP4_AUTO, 0, false, nullptr},
                 {120, PI__MATMUL_AUTO, PI__FP4_AUTO, simt::SPOIL_FP4, false,
                  "MXFP4 matrices wrongly with activations in FP8: fp4-mode w4a16"}};
    for (const auto &c : cases) {
        std::string lines;
        pi__log log = {append_line, &lines, PI_LOG_INFO};
        pi__cuda_params p = {};
        pi__backend *be = nullptr;
        pi_error err;
        p.matmul = c.matmul, p.fp4 = c.fp4;
        simt::options.arch = c.arch, simt::options.spoil = c.spoil;
        assert_int_equal(pi__cuda_create(&be, 0, &p, &log, &err), PI_OK);
        be->dev->destroy(be);
        assert_true((strstr(lines.c_str(), "; FP8 tensor cores for MXFP4 matrices, activations in FP8") != nullptr) ==
                    c.fp8);
        assert_null(strstr(lines.c_str(), "no FP4 tensor cores"));
        if (c.line) assert_non_null(strstr(lines.c_str(), c.line));
    }
    simt::options.arch = 120, simt::options.spoil = simt::SPOIL_NONE;
}

/* A device with wrong FP4 or BLAS products opens without them, and the log says so. */
static void test_wrong_products(void **)
{
    std::string lines;
    pi__log log = {append_line, &lines, PI_LOG_INFO};
    pi__cuda_params p = {};
    pi__backend *be = nullptr;
    pi_error err;
    p.fp4 = PI__FP4_W4A4;
    assert_int_equal(pi__cuda_create(&be, 0, &p, &log, &err), PI_OK);
    be->dev->destroy(be);
    assert_non_null(strstr(lines.c_str(), "activations in FP4"));
    assert_null(strstr(lines.c_str(), "disabled"));
    lines.clear();
    simt::options.spoil = simt::SPOIL_FP4;
    assert_int_equal(pi__cuda_create(&be, 0, &p, &log, &err), PI_OK);
    be->dev->destroy(be);
    assert_non_null(strstr(lines.c_str(), "NVFP4 matrices wrongly in FP4: fp4-mode w4a16 is used"));
    assert_null(strstr(lines.c_str(), "activations in FP4"));
    simt::options.spoil = simt::SPOIL_NONE;
    p.blas = true;
    for (int i = 0; i < 3; i++) {
        lines.clear();
        simt::watch.no_library = i == 1;
        simt::watch.wrong_products = i == 2;
        assert_int_equal(pi__cuda_create(&be, 0, &p, &log, &err), PI_OK);
        be->dev->destroy(be);
        assert_true((strstr(lines.c_str(), "cuBLAS for F16 and BF16 matrices") != nullptr) == (i == 0));
        assert_true((strstr(lines.c_str(), "cublas is disabled, cuBLAS was not found") != nullptr) == (i == 1));
        assert_true((strstr(lines.c_str(), "F16 matrices wrongly by cuBLAS: cublas is disabled") != nullptr) ==
                    (i == 2));
    }
    simt::watch.wrong_products = p.blas = false;
    simt::options.arch = 90;
    lines.clear();
    assert_int_equal(pi__cuda_create(&be, 0, &p, &log, &err), PI_OK);
    be->dev->destroy(be);
    assert_non_null(strstr(lines.c_str(), "no FP4 tensor cores"));
    simt::options.arch = 120;
    test_fp4_auto();
    if (getenv("PI_TEST_EMULATED")) return; /* the same results; only other kernels are used */
    simt::options.arch = 90;
    simt::watch.thorough = true;
    for (int spoil : {0, (int) simt::SPOIL_WGMMA}) { /* the corruption changes a last bit */
        lines.clear();
        simt::options.spoil = spoil;
        assert_int_equal(pi__cuda_create(&be, 0, &p, &log, &err), PI_OK);
        be->dev->destroy(be);
        assert_true((strstr(lines.c_str(), "many rows by wgmma") != nullptr) == !spoil);
        assert_true((strstr(lines.c_str(), "wgmma is disabled, its results differ from mma.sync") != nullptr) ==
                    !!spoil);
        assert_true((strstr(lines.c_str(), "attention by wgmma differs from mma.sync") != nullptr) == !!spoil);
    }
    simt::options.spoil = simt::SPOIL_NONE;
    for (const char *broken : {(const char *) nullptr, "launch_wgmma_glu", "launch_attention_wgmma"}) {
        lines.clear();
        simt::watch.broken = broken;
        assert_int_equal(pi__cuda_create(&be, 0, &p, &log, &err), PI_OK);
        be->dev->destroy(be);
        assert_non_null(strstr(lines.c_str(), "many rows by wgmma"));
        const bool glu = broken && strstr(broken, "glu"), attention = broken && strstr(broken, "attention");
        assert_true((strstr(lines.c_str(), "gate, up and activation in one launch are wrong") != nullptr) == glu);
        assert_true((strstr(lines.c_str(), "attention by wgmma differs from mma.sync") != nullptr) == attention);
    }
    simt::watch.broken = nullptr;
    simt::watch.thorough = false;
    simt::options.arch = 120;
}

/* Features with wrong results in the start-up self-test are disabled, no others; a log line names each. */
static void test_done_without(void **)
{
    enum { INT8 = 1, FLOATS = 2, CACHE = 4, DELTA = 8, EXPERTS = 16, TOP = 32 }; /* features of the device */
    const int all = INT8 | FLOATS | CACHE | DELTA | EXPERTS | TOP;
    const struct { const char *broken; bool replay; int spoil, has; const char *line; long after;
    } cases[] = {
        {nullptr, false, 0, all, nullptr, 0},
        {"launch_attention", false, 0, all & ~CACHE, "attention is wrong", 0},
        {"launch_attention", false, 0, all, "attention with split keys is wrong: KV splits are disabled", 1},
        {"launch_gdn", false, 0, all & ~DELTA, "delta nets or Mamba-2 are wrong", 0},
        {"launch_ssd", false, 0, all & ~DELTA, "delta nets or Mamba-2 are wrong", 0},
        {"launch_gdn", false, 0, all & ~DELTA, "delta nets or Mamba-2 are wrong", 1},
        {"launch_moe", false, 0, all & ~EXPERTS, "routed experts are wrong", 0},
        {"launch_moe_w16", false, 0, all & ~EXPERTS, "routed experts are wrong", 0},
        {"launch_mixed", false, 0, all, "cuda-fuse is disabled", 0},
        {"launch_fp4_glu", false, 0, all, "gate, up and activation in one launch are wrong", 0},
        {"launch_w16_glu", false, 0, all, "gate, up and activation in one launch are wrong", 0},
        {"launch_moe_fp4", false, 0, all, "gate, up and activation in one launch are wrong", 0},
        {"launch_w16", false, 0, all, "matmul tiles shared by blocks are wrong", 21},
        {"launch_key_blocks", false, 0, all, "sparse prefill is wrong: prefill-sparsity is disabled", 0},
        {"launch_top", false, 0, all & ~TOP, "logits are copied to the host", 0},
        {"launch_draw", false, 0, all & ~TOP, "logits are copied to the host", 0},
        {nullptr, true, 0, all, "cuda-graphs is disabled", 0},
        {"launch_gemm", false, 0, all & ~EXPERTS,
         "Q8_0 matrices wrongly with many rows: 32 rows are computed per launch", 0},
        {nullptr, false, simt::SPOIL_MMA16, all & ~CACHE & ~DELTA,
         "F16 matrices wrongly by 16-bit tensor cores: they use F32", 0},
        {"launch_w16", false, 0, all, "Q8_0 matrices wrongly in 16-bit floats: matmul exact is used", 0},
        {nullptr, false, simt::SPOIL_S8, all & ~INT8 & ~EXPERTS, "Q8_0 matrices wrongly by int8 tensor cores", 0},
        {nullptr, false, simt::SPOIL_FP4, all, "NVFP4 matrices wrongly in FP4: fp4-mode w4a16 is used", 0}};
    simt::watch.thorough = true;
    for (const auto &c : cases) {
        if (getenv("PI_TEST_EMULATED") && &c > cases + 1) break;
        /* without PAGEDINFER_LONG, one launch of each kind is broken */
        const char *line_before = &c > cases ? (&c - 1)->line : nullptr;
        if (!getenv("PAGEDINFER_LONG") && line_before && !strcmp(c.line, line_before)) continue;
        std::string lines;
        pi__log log = {append_line, &lines, PI_LOG_WARN};
        pi__cuda_params p = {};
        pi__backend *be = nullptr;
        pi_error err;
        p.fp4 = PI__FP4_W4A4;
        simt::watch.broken = c.broken;
        simt::watch.broken_after = c.after;
        simt::watch.broken_replay = c.replay;
        simt::options.spoil = c.spoil;
        if (pi__cuda_create(&be, 0, &p, &log, &err)) fail_msg("%s: %s", c.line ? c.line : "nothing wrong", err.msg);
        if (c.line && !strstr(lines.c_str(), c.line)) fail_msg("no \"%s\" in \"%s\"", c.line, lines.c_str());
        if (!c.line && !lines.empty()) fail_msg("nothing is wrong, but: %s", lines.c_str());
        pi__weight q8 = {}, f16 = {}, experts = {};
        pi__state_layer st = {};
        q8.type = experts.type = PI__Q8_0, f16.type = PI__F16;
        q8.n_in = q8.n_out = f16.n_in = f16.n_out = experts.n_in = experts.n_out = 64;
        q8.n_mat = f16.n_mat = 1, experts.n_mat = 4;
        st.n_k = st.n_v = 1, st.dim = 64, st.n_conv = 4;
        int has = be->dev->weight_size(be, &q8) ? INT8 : 0;
        has |= be->dev->weight_size(be, &f16) ? FLOATS : 0;
        has |= be->dev->kv_bytes(be, PI__F16, PI__F16, 1, 64, 16) ? CACHE : 0;
        has |= be->dev->state_bytes(be, &st) ? DELTA : 0;
        has |= be->dev->weight_size(be, &experts) ? EXPERTS : 0;
        has |= be->opt->topk_here(be) ? TOP : 0;
        if (has != c.has) fail_msg("%s: the device has %x, not %x; %s", c.line, has, c.has, lines.c_str());
        be->dev->destroy(be);
        assert_int_equal(simt::watch.live, 0);
    }
    simt::watch.broken = nullptr;
    simt::watch.broken_after = 0;
    simt::watch.broken_replay = false;
    simt::options.spoil = simt::SPOIL_NONE;
    simt::watch.thorough = false;
}

/* Results are bitwise identical with products of 32 rows at a time, and without graph replays. */
static void test_slower_ways(void **)
{
    if (getenv("PI_TEST_EMULATED")) return;
    const std::vector<std::string> prompts = {
        "the other hand and the other day on the other hand in the morning you and the other "
        "hand and the other day on the other hand in the morning you and once and on the",
        "you"};
    char path[256];
    snprintf(path, sizeof path, "/tmp/pagedinfer-emu-%ld.gguf", (long) getpid());
    assert_int_equal(simt_tiny_write(path, PI__Q8_0), 0);
    std::vector<answer> want;
    simt::watch.thorough = true;
    for (int i = 0; i < 3; i++) {
        simt::watch.broken = i == 1 ? "launch_gemm" : nullptr;
        simt::watch.broken_replay = i == 2;
        const long before = simt::watch.n_replayed;
        pi_engine *e = open_engine(path, "emu", "f16", "512");
        const std::vector<answer> got = ask(e, prompts, true);
        pi_engine_close(e);
        assert_true((simt::watch.n_replayed - before > 2) == (i != 2)); /* the self-test replays two graphs */
        if (!i) want = got;
        else compare("in a slower way", want, got, 0);
    }
    simt::watch.broken = nullptr;
    simt::watch.broken_replay = false;
    simt::watch.thorough = false;
    unlink(path);
}

/* Sparse prefill of a prompt so short that all of its blocks are chosen, next to a shorter one: the bits of dense
 * prefill, by other kernels. The kernel checks cover longer prompts, where blocks are left out. */
static void test_sparse(void **)
{
    char path[256];
    snprintf(path, sizeof path, "/tmp/pagedinfer-emu-%ld.gguf", (long) getpid());
    assert_int_equal(simt_small_write(path, "gemma3", PI__Q8_0), 0);
    std::vector<std::string> prompts = {"", "once and on the"};
    for (unsigned i = 0; i < 270; i++) prompts[0] += (char) ('A' + i * i % 26);
    std::vector<answer> got[2];
    for (int sparse = 0; sparse < 2; sparse++) {
        pi_error err;
        pi_engine *e = nullptr;
        pi_options *o = pi_options_new();
        set(o, "model", path), set(o, "device", "emu"), set(o, "prefill-sparsity", sparse ? "2" : "0");
        set(o, "prefill-sparsity-from", "0"), set(o, "parallel", "4"), set(o, "temp", "0"), set(o, "max-tokens", "8");
        set(o, "ignore-eos", "true"), set(o, "logits", "generated");
        if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
        pi_options_free(o);
        got[sparse] = ask(e, prompts, true);
        pi_stats s = {};
        s.size = sizeof s;
        assert_int_equal(pi_engine_stats(e, &s), PI_OK);
        assert_int_equal(s.key_blocks_possible > 0, sparse);
        assert_int_equal(s.key_blocks_attended, s.key_blocks_possible);
        pi_engine_close(e);
    }
    unlink(path);
    compare("all blocks", got[0], got[1], 0);
}

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
    set(o, "device", "nothing");
    assert_int_equal(pi_engine_open(&e, o, &err), PI_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "emu, cpu"));
    pi_options_free(o);
    unlink(path);
}

/* Opening with each host allocation, then each device allocation failing in turn: an error, and everything is
 * freed. */
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
    simt::options.page = 64 << 10; /* most matrices have separate pages */
    for (long k = 0;; k++) {
        simt::options.fail_alloc = k;
        int rc = simt_open(path, -1, &count, &left);
        bool all = simt::options.fail_alloc >= 0; /* no further allocations */
        simt::options.fail_alloc = -1;
        assert_int_equal(left, 0);
        assert_int_equal(rc, all ? PI_OK : PI_ENOMEM);
        if (all) {
            assert_true(k >= 20);
            break;
        }
    }
    simt::options.page = 2 << 20;
    unlink(path);
}

int main()
{
    const CMUnitTest tests[] = {cmocka_unit_test(test_f32),
                                cmocka_unit_test(test_q8_0),
                                cmocka_unit_test(test_q4_k),
                                cmocka_unit_test(test_rotated),
                                cmocka_unit_test(test_sparse),
                                cmocka_unit_test(test_evicted),
                                cmocka_unit_test(test_evicted_shared),
                                cmocka_unit_test(test_evicted_stages),
                                cmocka_unit_test(test_fp4),
                                cmocka_unit_test(test_library),
                                cmocka_unit_test(test_wrong_products),
                                cmocka_unit_test(test_done_without),
                                cmocka_unit_test(test_slower_ways),
                                cmocka_unit_test(test_refused),
                                cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
