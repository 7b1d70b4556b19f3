/* The emulated CUDA backend and its runtime: steps that are captured and replayed; every call failing in turn. */
#include "engine_jobs.h"

#include <atomic>
#include <thread>

extern "C" {
#include "backend/cuda/cuda.h"
}
#include "backend/cuda/kernels.h"
#include "backend/cuda/runtime.h"

/* -------------------------------------------------------------------------------------------------- captured steps */

/* Sequences join and leave, with and without capture, and give the same bits. One of them outgrows the number of keys
 * of its graph. Captures allocate no memory. */
static void test_recorded(void **)
{
    const std::vector<job> jobs = {
        {prompt(250, 1), "12"}, {prompt(5, 2), "9"}, {prompt(1, 3), "14"}, {prompt(9, 4), "7"}};
    assert_int_equal(simt_tiny_write_small(model_path.c_str(), PI__Q8_0), 0);
    pi_error err;
    pi_engine *e;
    cuda_graphs = "off";
    assert_int_equal(open_engine(&e, "64", &err), PI_OK);
    simt::watch.n_recorded = simt::watch.n_replayed = 0;
    std::vector<rows> want = run_jobs(e, jobs);
    assert_int_equal(simt::watch.n_recorded + simt::watch.n_replayed, 0);
    pi_engine_close(e);
    cuda_graphs = "auto";
    for (int i = getenv("PI_TEST_EMULATED") ? 1 : 0; i < 2; i++) {
        simt::options.eager = i == 1;
        assert_int_equal(open_engine(&e, i ? "5" : "64", &err), PI_OK);
        long allocs = simt::watch.n_allocs;
        same_rows(want, run_jobs(e, jobs));
        assert_true(simt::watch.n_recorded >= 1);
        long recorded = simt::watch.n_recorded, replayed = simt::watch.n_replayed;
        assert_true(replayed > recorded);
        std::vector<rows> alone;
        for (const job &j : jobs) alone.push_back(run_jobs(e, {j})[0]);
        same_rows(want, alone);
        assert_true(simt::watch.n_replayed > replayed + 20);
        assert_int_equal(simt::watch.n_allocs, allocs);
        pi_engine_close(e);
        assert_int_equal(simt::watch.live, 0);
    }
    simt::options.eager = false;
    unlink(model_path.c_str());
}

/* Steps with equal numbers of drafts per sequence are captured, too: the same bits, in a batch of one and with
 * sequences that make the step need padding. A step where one sequence has fewer drafts, because it ends, is not
 * captured. The last run has room for a single graph: each graph replaces the previous one, which may still be
 * running. */
static void test_recorded_drafts(void **)
{
    const std::vector<job> jobs = {{prompt(20, 1), "11"}, {prompt(5, 2), "9"}, {prompt(1, 3), "13"}};
    assert_int_equal(simt_small_write(model_path.c_str(), "qwen35", PI__Q8_0), 0);
    std::vector<rows> want;
    for (int i = 0; i < 4; i++) {
        if (getenv("PI_TEST_EMULATED") && (i == 1 || i == 2)) continue;
        pi_error err;
        pi_engine *e;
        drafts = i ? "2" : "";
        cuda_graphs = i < 2 ? "off" : "auto";
        simt::watch.graph_bytes = i == 3;
        assert_int_equal(open_engine(&e, "64", &err), PI_OK);
        simt::watch.n_recorded = simt::watch.n_replayed = 0;
        std::vector<rows> got = run_jobs(e, jobs);
        if (!i) want = got;
        same_rows(want, got);
        long many = simt::watch.n_replayed;
        if (i) same_rows({want[2]}, run_jobs(e, {jobs[2]}));
        if (i < 2) assert_int_equal(simt::watch.n_recorded + simt::watch.n_replayed, 0);
        else if (i == 2 && (many < 3 || simt::watch.n_replayed - many < 5))
            fail_msg("%ld, %ld", many, (long) simt::watch.n_replayed - many);
        pi_engine_close(e);
        assert_int_equal(simt::watch.live, 0);
    }
    drafts = "";
    simt::watch.graph_bytes = 0;
    unlink(model_path.c_str());
}

/* A window that is no multiple of a KV split. The four tokens of a captured step see 514 keys in all. When the first
 * key is the last one of its split, the keys are in four splits; three would do for the 511 keys of one token. */
static void test_recorded_window(void **)
{
    const job j = {prompt(757, 1), "14"};
    std::vector<rows> want;
    const char *const sizes = "L=2 E=64 H=2 G=1 D=32 F=64 P=2 W=511";
    assert_int_equal(simt_typed_write(model_path.c_str(), "gemma3", PI__F32, sizes), 0);
    drafts = "3", draft_type = "layer-exit";
    for (const char *graphs : {"off", "auto"}) {
        pi_error err;
        pi_engine *e;
        cuda_graphs = graphs;
        pi_options *o = options_on("emu", "64");
        set(o, "ctx-size", "1024");
        set(o, "kv-cache-tokens", "1024");
        assert_int_equal(pi_engine_open(&e, o, &err), PI_OK);
        pi_options_free(o);
        simt::watch.n_replayed = 0;
        for (int i = 0; i < 3; i++) { /* a shape is captured when it was seen before */
            const std::vector<rows> got = run_jobs(e, {j});
            if (want.empty()) want = got;
            same_rows(want, got);
        }
        assert_int_equal(simt::watch.n_replayed > 0, *graphs == 'a');
        pi_engine_close(e);
    }
    drafts = "", draft_type = "mtp";
    unlink(model_path.c_str());
}

/* A drafter's steps are captured, also steps that only fill its cache. The tested step verifies two drafts of a
 * sequence and makes two more. It is a few graphs, plus the top-k searches and the kernels that pass on their
 * results. Kernels are counted, not run: all logits are equal, and all drafts are accepted. */
static void check_draft_steps(const char *arch, long least_queued, long most_captured)
{
    const job j = {prompt(4, 1), "30"};
    assert_int_equal(simt_small_write(model_path.c_str(), arch, PI__F32), 0);
    for (const char *graphs : {"off", "auto"}) {
        pi_error err;
        pi_engine *e;
        pi_stats before = {}, after = {};
        before.size = after.size = sizeof after;
        cuda_graphs = graphs;
        assert_int_equal(open_engine(&e, "64", &err), PI_OK);
        for (int i = 0; i < 3; i++) { /* in the last run, all shapes were seen twice */
            pi_engine_stats(e, &before);
            simt::watch.n_launched = simt::watch.n_replayed = 0;
            run_jobs(e, {j});
        }
        pi_engine_stats(e, &after);
        pi_engine_close(e);
        const long n = (long) (after.n_steps - before.n_steps), launched = simt::watch.n_launched / n;
        assert_true(n < 15 && after.n_drafted > before.n_drafted);
        print_message("%s, %s, graphs %s: %ld launches a step\n", arch, drafter_path.empty() ? draft_type : "a drafter",
                      graphs, launched);
        if (*graphs == 'o' ? simt::watch.n_replayed || launched < least_queued : launched > most_captured)
            fail_msg("%s, graphs %s: %ld launches a step", arch, graphs, launched);
    }
    unlink(model_path.c_str());
}

static void test_draft_steps(void **)
{
    drafts = "2";
    simt::watch.idle = true;
    check_draft_steps("qwen35", 60, 12);
    drafter_path = model_path + ".draft";
    assert_int_equal(simt_drafter_write(drafter_path.c_str(), 40), 0);
    check_draft_steps("gemma4", 100, 24);
    unlink(drafter_path.c_str());
    assert_int_equal(simt_flash_write(drafter_path.c_str(), "v=1"), 0);
    check_draft_steps("gemma4", 60, 24);
    assert_int_equal(simt_flash_write(drafter_path.c_str(), "v=1 M=320"), 0);
    check_draft_steps("gemma4", 60, 24);
    assert_int_equal(simt_small_write(drafter_path.c_str(), "gemma3", PI__F32), 0);
    check_draft_steps("gemma4", 60, 26);
    unlink(drafter_path.c_str());
    drafter_path = "";
    draft_type = "layer-exit";
    check_draft_steps("gemma4", 60, 24);
    draft_type = "mtp";
    drafts = "";
    simt::watch.idle = false;
}

/* A call that cannot be captured is refused, and invalidates the capture. */
static void test_forbidden(void **)
{
    pi__rt *rt;
    pi__rt_info info;
    pi__rt_graph *g;
    void *dev, *host, *arena, *p;
    uint64_t ended;
    char pageable[16] = "fifteen letters";
    assert_int_equal(pi__rt_open(&rt, 0, &info), 0);
    assert_int_equal(pi__rt_alloc(rt, &dev, 16), 0);
    assert_int_equal(pi__rt_host_alloc(rt, &host, 16), 0);
    bool all;
    const char *lazy;
    assert_int_equal(pi__rt_reserve(rt, &arena, info.page), 0);
    for (int i = 0; i < 14; i++) {
        assert_int_equal(pi__rt_capture(rt), 0);
        int code = i == 0   ? pi__rt_wait(rt)
                   : i == 1 ? pi__rt_alloc(rt, &p, 16)
                   : i == 2 ? pi__rt_host_alloc(rt, &p, 16)
                   : i == 3 ? pi__rt_upload(rt, dev, pageable, 16)
                   : i == 4 ? pi__rt_download(rt, pageable, dev, 16)
                   : i == 5 ? pi__rt_capture(rt)
                   : i == 6 ? pi__rt_copy_out(rt, host, dev, 16)
                   : i == 7 ? pi__rt_copies(rt, 0, &ended)
                   : i == 8 ? pi__rt_load_kernels(rt, &lazy)
                   : i == 9 ? pi__rt_fence(rt, 0)
                   : i == 10 ? pi__rt_fence_wait(rt, 0)
                   : i == 11 ? pi__rt_reserve(rt, &p, info.page)
                   : i == 12 ? pi__rt_map(rt, arena, info.page, &all)
                             : 0;
        assert_int_equal(code != 0, i < 13);
        code = pi__rt_capture_end(rt, &g);
        assert_int_equal(code != 0, i < 13);
        assert_int_equal(g != nullptr, i == 13);
    }
    pi__rt_unreserve(rt, arena, info.page);
    assert_int_equal(pi__rt_replay(rt, g), 0);
    pi__rt_graph_free(rt, g);

    /* Each replay reads the current contents of memory. */
    char *h = static_cast<char *>(host);
    assert_int_equal(pi__rt_capture(rt), 0);
    assert_int_equal(pi__rt_upload(rt, dev, h, 8), 0);
    assert_int_equal(pi__rt_download(rt, h + 8, dev, 8), 0);
    assert_int_equal(pi__rt_capture_end(rt, &g), 0);
    for (int i = 0; i < 2; i++) {
        std::memcpy(h, i ? "another" : "the one", 8);
        assert_int_equal(pi__rt_replay(rt, g), 0);
        assert_int_equal(pi__rt_wait(rt), 0);
        assert_string_equal(h + 8, h);
    }
    pi__rt_graph_free(rt, g);
    pi__rt_host_free(rt, host);
    pi__rt_free(rt, dev);
    pi__rt_close(rt);
    assert_int_equal(simt::watch.live, 0);
}

/* A device with two vectors, for steps in graph segments. */
struct segmented {
    pi__backend *be;
    float *x;    /* [16] on the device */
    float *host; /* [16] in, [16] out */
};

static segmented open_parted()
{
    segmented p = {};
    pi_error err;
    pi__cuda_params params = {};
    pi__limits lim = {};
    lim.max_tokens = lim.max_seqs = lim.max_rows = 4;
    lim.max_ctx = 1024;
    lim.max_n_in = lim.max_n_out = lim.n_vocab = 64;
    lim.max_n_head = 1;
    lim.max_head_dim = 64;
    assert_int_equal(pi__cuda_create(&p.be, 0, &params, nullptr, &err), PI_OK);
    assert_int_equal(p.be->dev->reserve(p.be, &lim, &err), PI_OK);
    p.x = static_cast<float *>(p.be->dev->alloc(p.be, 64));
    p.host = static_cast<float *>(p.be->dev->host_alloc(p.be, 128));
    return p;
}

static void close_parted(segmented &p)
{
    p.be->dev->free(p.be, p.x, 64);
    p.be->dev->host_free(p.be, p.host, 128);
    p.be->dev->destroy(p.be);
    assert_int_equal(simt::watch.live, 0);
}

/* Runs a step of n sequences with `keys` keys in n_segments graph segments, each an upload, a kernel and a download.
 * Checks the results unless the step fails; returns the code of `finish`. */
static int parted_step(segmented &p, int32_t n, int32_t keys, int n_segments)
{
    static int32_t zeros[4];
    const int32_t pos[] = {keys - 1, keys - 1, keys - 1, keys - 1}, each[] = {0, 1, 2, 3, 4},
                  len[] = {keys, keys, keys, keys};
    pi__batch b = {};
    b.n_tokens = b.n_seqs = b.n_rows = n;
    b.token = zeros;
    b.pos = pos;
    b.seq = b.seq_start = b.logits_indices = each;
    b.seq_len = len;
    simt::watch.n_launched = simt::watch.n_recorded = simt::watch.n_replayed = 0;
    const pi__device_fns *op = p.be->dev;
    const pi__batch *padded = op->begin(p.be, &b, PI__STEP_SEGMENTS);
    assert_non_null(padded);
    assert_int_equal(padded->n_tokens, n == 3 ? 4 : n);
    for (int i = 0; i < 16; i++) p.host[i] = (float) (i + n_segments), p.host[16 + i] = -1;
    for (int i = 0; i < n_segments; i++) {
        p.be->opt->graph_segment(p.be);
        op->upload(p.be, p.x, p.host, 64);
        const pi__softcap cap = {p.x, 8, 1, 16};
        pi__op_softcap(p.be, nullptr, &cap);
        op->download(p.be, p.host + 16, p.x, 64);
        if (i + 1 < n_segments) (void) p.be->opt->end_capture(p.be); /* finish ends the last segment */
    }
    int rc = op->finish(p.be, nullptr);
    for (int i = 0; i < 16 && !rc; i++) {
        const float want = 8 * std::tanh((float) (i + n_segments) / 8);
        if (!(std::fabs(p.host[16 + i] - want) < 1e-5f))
            fail_msg("%d segments: value %d is %g, not %g", n_segments, i, (double) p.host[16 + i], (double) want);
    }
    return rc;
}

static void counted(long launched, long recorded, long replayed)
{
    assert_int_equal(simt::watch.n_launched, launched);
    assert_int_equal(simt::watch.n_recorded, recorded);
    assert_int_equal(simt::watch.n_replayed, replayed);
}

/* Each graph segment of a step is captured when the same step comes again, and replayed from then on, within a
 * maximum number of segments. The segments of the least recently used shape are evicted. */
static void test_parts(void **)
{
    const int most = 256; /* max segments of a step */
    segmented p = open_parted();
    for (int i = 0; i < 4; i++) {
        assert_int_equal(parted_step(p, i % 2 ? 4 : 3, 5, 3), PI_OK);
        if (i == 0) counted(3, 0, 0);
        else counted(0, i == 1 ? 3 : 0, 3);
    }
    for (int i = 0; i < 3; i++) assert_int_equal(parted_step(p, 1, 300, most + 44), PI_OK);
    counted(44, 0, most);
    for (int i = 0; i < 2; i++) assert_int_equal(parted_step(p, 2, 300, most - 4), PI_OK);
    counted(0, most - 4, most - 4); /* there is room for one more segment */
    assert_int_equal(parted_step(p, 1, 5, 2), PI_OK);
    assert_int_equal(parted_step(p, 1, 5, 2), PI_OK);
    counted(0, 2, 2);
    assert_int_equal(parted_step(p, 1, 300, most), PI_OK);
    counted(0, 0, most);
    assert_int_equal(parted_step(p, 4, 5, 3), PI_OK); /* was least recently used */
    counted(3, 0, 0);
    close_parted(p);
}

/* Each runtime call in turn fails during capture and replay: it is reported once, and the next steps are right. */
static void test_parts_fail(void **)
{
    segmented p = open_parted();
    long n = 0;
    for (bool reached = true; reached; n++) {
        p.be->opt->graph_reset(p.be);
        simt::watch.n_calls = 0;
        simt::watch.fail_at = n;
        int n_failed = 0;
        for (int i = 0; i < 4; i++) n_failed += parted_step(p, 2, 5, 2) == PI_EDEVICE;
        reached = simt::watch.n_calls > n;
        simt::watch.fail_at = -1;
        assert_int_equal(n_failed, reached);
        for (int i = 0; i < 2; i++) assert_int_equal(parted_step(p, 2, 5, 2), PI_OK);
        counted(0, 0, 2);
    }
    assert_in_range(n, 25, 60);
    close_parted(p);
}

static void append_line(void *ud, int, const char *line)
{
    *static_cast<std::string *>(ud) += std::string(line) + "\n";
}

/* Kernels are loaded before the first launch; if the driver cannot do that, the log says so. */
static void test_loaded(void **)
{
    pi__rt *rt;
    pi__rt_info info;
    void *x;
    const char *lazy;
    assert_int_equal(pi__rt_open(&rt, 0, &info), 0);
    assert_int_equal(pi__rt_alloc(rt, &x, 256), 0);
    const pi__softcap cap = {static_cast<float *>(x), 2, 1, 64};
    int code = pi__k_softcap(pi__rt_stream(rt), &cap);
    assert_int_not_equal(code, 0);
    assert_non_null(strstr(pi__rt_text(code), "rows.cu is launched that was not loaded before"));
    assert_int_equal(pi__rt_load_kernels(rt, &lazy), 0);
    assert_null(lazy);
    assert_int_equal(pi__k_softcap(pi__rt_stream(rt), &cap), 0);
    assert_int_equal(pi__rt_wait(rt), 0);
    pi__rt_free(rt, x);
    pi__rt_close(rt);

    std::string lines;
    pi__log log = {append_line, &lines, PI_LOG_WARN};
    pi__cuda_params p = {};
    for (int lazy = 0; lazy < 2; lazy++) {
        pi_error err;
        pi__backend *be;
        simt::watch.lazy = lazy == 1;
        assert_int_equal(pi__cuda_create(&be, 0, &p, &log, &err), PI_OK);
        be->dev->destroy(be);
        assert_int_equal(lines.find("kernels are loaded at first use") != std::string::npos, lazy);
    }
    simt::watch.lazy = false;
}

/* Weights with separate pages, with shared pages, and in one piece give the same bits, and use the planned memory. */
static void test_pages(void **)
{
    const std::vector<job> jobs = {{prompt(9, 1), "3"}, {prompt(2, 2), "3"}};
    std::vector<rows> want;
    uint64_t planned[3];
    assert_int_equal(simt_tiny_write(model_path.c_str(), PI__Q8_0), 0);
    for (int i = 0; i < 3; i++) {
        static const size_t pages[3] = {0, 2 << 20, 64 << 10};
        pi_error err;
        pi_engine *e;
        pi_plan plan = {};
        simt::options.page = pages[i];
        plan.size = sizeof plan;
        pi_options *o = pi_options_new();
        set(o, "model", model_path.c_str());
        set(o, "device", "emu");
        assert_int_equal(pi_engine_plan(o, &plan, &err), PI_OK);
        planned[i] = plan.weights_bytes;
        pi_options_free(o);
        assert_int_equal(open_engine(&e, "16", &err), PI_OK);
        std::vector<rows> got = run_jobs(e, jobs);
        if (i) same_rows(want, got);
        want = got;
        pi_engine_close(e);
        assert_int_equal(simt::watch.live, 0);
        assert_int_equal(simt::device_bytes(), 0);
    }
    simt::options.page = 2 << 20;
    assert_int_equal(planned[1], 2 << 20); /* all weights together */
    assert_true(planned[2] > planned[0] + (256 << 10) && planned[2] % (64 << 10) == 0);
    unlink(model_path.c_str());
}

/* Tokens of four requests, one of them sampled, the others greedy. on_host: logits are requested, so that the host
 * samples. */
static std::vector<std::vector<int32_t>> tokens_of(pi_engine *e, bool on_host)
{
    static const char *const options[4][2] = {{"ignore-eos", "true"}, {"min-tokens", "4"}, {"temp", "0.9"},
                                              {"ignore-eos", "false"}};
    std::vector<std::vector<int32_t>> out;
    pi_request *r[4];
    rows logits[4];
    int code[4] = {};
    pi_error err;
    for (int i = 0; i < 4; i++) {
        r[i] = pi_request_new(e);
        const std::vector<int32_t> p = prompt(3 + (size_t) i, 5 + i);
        pi_request_set_user(r[i], &code[i]);
        if (on_host) pi_request_on_logits(r[i], take_logits, &logits[i]);
        assert_int_equal(pi_request_set(r[i], "max-tokens", "12", &err), PI_OK);
        assert_int_equal(pi_request_set(r[i], "seed", "7", &err), PI_OK);
        assert_int_equal(pi_request_set(r[i], options[i][0], options[i][1], &err), PI_OK);
        assert_int_equal(pi_request_prompt_tokens(r[i], p.data(), p.size(), &err), PI_OK);
        assert_int_equal(pi_request_submit(r[i], &err), PI_OK);
    }
    take_events(e, [] {});
    for (int i = 0; i < 4; i++) {
        std::vector<int32_t> t(64);
        t.resize(pi_request_tokens(r[i], t.data(), t.size()));
        assert_int_equal(code[i], PI_OK);
        assert_true(t.size() >= 1);
        out.push_back(t);
        pi_request_free(r[i]);
    }
    return out;
}

/* Tokens found on the device equal the host's. Downloads are small: one id per greedy row, and the best 40 values of
 * all rows in a step with a sampled request. */
static void test_picked(void **)
{
    pi_error err;
    pi_engine *e;
    assert_int_equal(simt_tiny_write_small(model_path.c_str(), PI__Q8_0), 0);
    assert_int_equal(open_engine(&e, "16", &err), PI_OK);
    assert_true(simt::host_bytes() < 1 << 20); /* no memory used for loading stays pinned */
    simt::watch.n_down = 0;
    std::vector<std::vector<int32_t>> want = tokens_of(e, true);
    long all = simt::watch.n_down.exchange(0), row = 313 * (long) sizeof(float);
    std::vector<std::vector<int32_t>> got = tokens_of(e, false);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(got[i].size(), want[i].size());
        assert_memory_equal(got[i].data(), want[i].data(), want[i].size() * sizeof(int32_t));
    }
    assert_true(want[0].size() == 12 && want[1].size() >= 4);
    assert_true(all >= 4 * 12 * row / 2);
    assert_true(simt::watch.n_down > 0 && simt::watch.n_down <= 4 * 12 * (2 + 40) * 8);
    pi_engine_close(e);
    unlink(model_path.c_str());
}

/* -------------------------------------------------------------------------------------------------------- failures */

static std::atomic<long> host_live; /* live host allocations */

static void *count_malloc(void *, size_t size) { return host_live++, std::malloc(size); }
static void *count_realloc(void *, void *p, size_t size) { return host_live += !p, std::realloc(p, size); }
static void count_free(void *, void *p) { host_live -= p != nullptr, std::free(p); }
static void *count_map(void *, size_t size)
{
    void *p = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    return host_live++, std::memset(p, 0, size);
}
static void count_unmap(void *, void *p, size_t) { host_live -= p != nullptr, std::free(p); }

/* Opens an engine, generates, closes it, and checks the outcome. Returns false if nothing failed. */
static bool survives()
{
    pi_error err = {};
    pi_engine *e = nullptr;
    int rc = open_engine(&e, "16", &err), code[2] = {};
    if (rc) {
        if (rc != PI_EDEVICE) fail_msg("call %ld: open gives %d: %s", (long) simt::watch.fail_at, rc, err.msg);
        assert_non_null(strstr(err.msg, "a call was made to fail"));
        return true;
    }
    rows out[2];
    pi_request *r[2];
    const job jobs[2] = {{prompt(3, 1), "5"}, {prompt(2, 2), "3"}};
    for (int i = 0; i < 2; i++) {
        r[i] = submit(e, jobs[i], &out[i], &code[i], &err);
        if (code[i]) assert_int_equal(code[i], PI_ECLOSED); /* the first request had failed by then */
    }
    take_events(e, [] {});
    bool failed = code[0] || code[1];
    for (int i = 0; i < 2; i++) assert_true(!code[i] || code[i] == PI_EDEVICE || code[i] == PI_ECLOSED);
    assert_true(!failed || code[0] == PI_EDEVICE || code[1] == PI_EDEVICE);
    assert_int_equal(pi_engine_state(e), failed ? PI_STATE_FAILED : PI_STATE_READY);
    if (failed) {
        int again;
        pi_request_free(submit(e, jobs[0], &out[0], &again, &err));
        assert_int_equal(again, PI_ECLOSED);
        assert_non_null(strstr(err.msg, "a call was made to fail"));
    }
    for (int i = 0; i < 2; i++) pi_request_free(r[i]);
    pi_engine_close(e);
    return failed;
}

/* Each runtime call in turn fails, from opening to closing; then all calls from it on. */
static void test_calls_fail(void **)
{
    const pi_allocator hooks = {sizeof hooks, nullptr, count_malloc, count_realloc, count_free, count_map, count_unmap};
    assert_int_equal(simt_tiny_write_small(model_path.c_str(), PI__F32), 0);
    pi_set_allocator(&hooks);
    simt::watch.idle = true; /* the results of kernels do not matter */
    simt::options.page = 64 << 10; /* the embedding has separate pages */
    for (int dead = 0; dead < 2; dead++) {
        simt::watch.dead = dead == 1;
        long n = 0, harmless = 0;
        for (bool reached = true; reached; n += dead ? 7 : 1) { /* a dead device always behaves the same way */
            simt::watch.n_calls = 0;
            simt::watch.fail_at = n;
            bool failed = survives();
            simt::watch.fail_at = -1;
            reached = simt::watch.n_calls > n;
            harmless += reached && !failed;
            if (simt::watch.live) fail_msg("call %ld: %ld things of the device are left", n, (long) simt::watch.live);
            if (host_live) fail_msg("call %ld: %ld blocks of memory are left", n, (long) host_live);
        }
        if (n <= 120) fail_msg("only %ld calls", n);
        assert_int_equal(harmless, 0);
    }
    simt::options.page = 2 << 20;
    simt::watch.dead = simt::watch.idle = false;
    pi_set_allocator(nullptr);
    unlink(model_path.c_str());
}

/* Failing calls in steps with drafts, which are queued before the previous step has ended. */
static void test_draft_calls_fail(void **)
{
    assert_int_equal(simt_small_write(model_path.c_str(), "qwen35", PI__F32), 0);
    drafts = "2";
    simt::watch.idle = true;
    long n = 0, harmless = 0;
    for (bool reached = true; reached; n += 7) {
        simt::watch.n_calls = 0;
        simt::watch.fail_at = n;
        const bool failed = survives();
        simt::watch.fail_at = -1;
        reached = simt::watch.n_calls > n;
        harmless += reached && !failed;
        assert_int_equal(simt::watch.live, 0);
    }
    if (n < 200) fail_msg("only %ld calls", n);
    assert_int_equal(harmless, 0);
    simt::watch.idle = false;
    drafts = "";
    unlink(model_path.c_str());
}

/* Failing calls in the start-up self-test of a device. */
static void test_first_calls_fail(void **)
{
    long n = 0;
    for (bool reached = true; reached; n++) {
        pi_error err = {};
        pi__backend *be;
        pi__cuda_params p = {};
        p.fp4 = PI__FP4_W4A4;
        p.blas = true;
        simt::watch.n_calls = 0;
        simt::watch.fail_at = n;
        int rc = pi__cuda_create(&be, 0, &p, nullptr, &err);
        simt::watch.fail_at = -1;
        reached = simt::watch.n_calls > n;
        assert_int_equal(rc, reached ? PI_EDEVICE : PI_OK);
        if (reached) assert_non_null(strstr(err.msg, "a call was made to fail"));
        if (!rc) be->dev->destroy(be);
        assert_int_equal(simt::watch.live, 0);
    }
    if (n <= 30) fail_msg("only %ld calls", n);
}

/* Devices are described; a device that fails to respond gives the reason. */
static void test_told(void **)
{
    pi_device d = {};
    d.size = sizeof d;
    assert_int_equal(pi_device_describe(0, &d), PI_OK);
    assert_string_equal(d.name, "emu");
    assert_true(d.usable && d.memory_bytes && !*d.lacks);
    simt::watch.n_calls = simt::watch.fail_at = 0;
    assert_int_equal(pi_device_describe(0, &d), PI_OK);
    simt::watch.fail_at = -1;
    assert_false(d.usable);
    assert_string_equal(d.lacks, "a call was made to fail");
    assert_int_equal(pi_device_describe(1, &d), PI_OK);
    assert_string_equal(d.name, "cpu");
}

/* Two engines of different widths share the kernels of a device. They run at the same time, in two threads, and have
 * the bits of separate runs. No launch changes the limit of shared memory of a kernel, which the other engine needs. */
static void test_two_engines(void **)
{
    const std::vector<job> jobs = {{prompt(3, 1), "3"}};
    const std::string other = model_path + ".wide", narrow = model_path;
    pi_engine *e[2];
    pi_error err;
    std::vector<rows> want[2], got[2];
    assert_int_equal(simt_typed_write(narrow.c_str(), nullptr, PI__Q4_0, "L=2 E=512 H=4 G=2 D=64 F=256"), 0);
    assert_int_equal(simt_typed_write(other.c_str(), nullptr, PI__Q4_0, "L=2 E=5120 H=4 G=2 D=64 F=256"), 0);
    cuda_graphs = "off"; /* graphs have the limits of their capture */
    for (int i = 0; i < 2; i++) {
        model_path = i ? other : narrow;
        if (open_engine(&e[i], "16", &err)) fail_msg("%s", err.msg);
        const long large = simt::watch.n_large;
        want[i] = run_jobs(e[i], jobs);
        assert_true(simt::watch.n_large > large);
    }
    model_path = narrow;
    cuda_graphs = "auto";
    const long set = simt::watch.n_set;
    std::thread second([&] { got[1] = run_jobs(e[1], jobs); });
    got[0] = run_jobs(e[0], jobs);
    second.join();
    assert_int_equal(simt::watch.n_set, set);
    for (int i = 0; i < 2; i++) {
        same_rows(want[i], got[i]);
        pi_engine_close(e[i]);
    }
    assert_int_equal(simt::watch.live, 0);
    unlink(narrow.c_str());
    unlink(other.c_str());
}

/* A kernel fails long after it was queued. */
static void test_kernel_dies(void **)
{
    pi_error err;
    pi_engine *e;
    rows out;
    int code = 0;
    size_t before = simt::options.max_shared;
    assert_int_equal(simt_tiny_write_small(model_path.c_str(), PI__F32), 0);
    assert_int_equal(open_engine(&e, "16", &err), PI_OK);
    simt::options.max_shared = 16;
    pi_request *r = submit(e, {prompt(3, 1), "5"}, &out, &code, &err);
    take_events(e, [] {});
    simt::options.max_shared = before;
    assert_int_equal(code, PI_EDEVICE);
    assert_int_equal(pi_engine_state(e), PI_STATE_FAILED);
    pi_request_free(r);
    pi_engine_close(e);
    assert_int_equal(simt::watch.live, 0);
    simt::clear_error();
    unlink(model_path.c_str());
}

/* The bits of steps do not depend on dependent launches and on the number of blocks that may wait. On a device with
 * places for one or two blocks, steps end if the option allows no more. */
static void test_launch_options(void **)
{
    const std::vector<job> jobs = {{prompt(20, 1), "6"}, {prompt(3, 2), "5"}};
    const simt::config before = simt::options;
    std::vector<rows> want;
    assert_int_equal(simt_tiny_write_small(model_path.c_str(), PI__Q8_0), 0);
    simt::watch.n_sm = 8;
    for (int i = 0; i < 4; i++) {
        pi_error err;
        pi_engine *e;
        pi_options *o = options_on("emu", "16");
        if (i == 1) set(o, "cuda-dependent-launches", "off");
        if (i > 1) set(o, "cuda-waiting-blocks", i == 2 ? "1" : "2");
        if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
        pi_options_free(o);
        simt::options.exact_places = i > 1;
        if (i > 1) simt::options.resident = (unsigned) i - 1;
        const unsigned long dependent = simt::n_dependent;
        std::vector<rows> got = run_jobs(e, jobs);
        assert_true((simt::n_dependent > dependent) == (i != 1));
        if (!i) want = got;
        same_rows(want, got);
        pi_engine_close(e);
        simt::options = before;
    }
    simt::watch.n_sm = 4;
    assert_int_equal(simt::watch.live, 0);
    unlink(model_path.c_str());
}

/* More blocks wait than the device has places for: the step fails instead of waiting forever. */
static void test_stuck(void **)
{
    pi_error err;
    pi_engine *e;
    rows out;
    int code = 0;
    const simt::config before = simt::options;
    assert_int_equal(simt_tiny_write_small(model_path.c_str(), PI__Q8_0), 0);
    simt::watch.n_sm = 8;
    assert_int_equal(open_engine(&e, "16", &err), PI_OK);
    simt::options.exact_places = true;
    simt::options.resident = 2;
    simt::options.max_polls = 20;
    pi_request *r = submit(e, {prompt(3, 1), "5"}, &out, &code, &err);
    take_events(e, [] {});
    simt::options = before;
    simt::watch.n_sm = 4;
    assert_int_equal(code, PI_EDEVICE);
    pi_result result = {};
    result.size = sizeof result;
    pi_request_result(r, &result);
    assert_non_null(strstr(result.msg, "waited too long"));
    assert_int_equal(pi_engine_state(e), PI_STATE_FAILED);
    pi_request_free(r);
    pi_engine_close(e);
    assert_int_equal(simt::watch.live, 0);
    unlink(model_path.c_str());
}

int main()
{
    name_model("runtime");
    const CMUnitTest tests[] = {cmocka_unit_test(test_forbidden),   cmocka_unit_test(test_loaded),
                                cmocka_unit_test(test_pages),       cmocka_unit_test(test_told),
                                cmocka_unit_test(test_picked),      cmocka_unit_test(test_kernel_dies),
                                cmocka_unit_test(test_two_engines), cmocka_unit_test(test_stuck),
                                cmocka_unit_test(test_launch_options),
                                cmocka_unit_test(test_calls_fail),  cmocka_unit_test(test_first_calls_fail),
                                cmocka_unit_test(test_recorded),    cmocka_unit_test(test_recorded_drafts),
                                cmocka_unit_test(test_recorded_window),
                                cmocka_unit_test(test_draft_steps), cmocka_unit_test(test_draft_calls_fail),
                                cmocka_unit_test(test_parts),       cmocka_unit_test(test_parts_fail)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
