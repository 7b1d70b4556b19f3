/* Fused launches (src/backend/cuda/plan.c). In whole models, they have the bits of separate launches, with any number
 * of rows, captured or not, and with any rule disabled; a step has the launches of its plan. WGMMA prefill has the bits
 * of mma.sync. Slices split over blocks have the bits of unsplit slices. */
#include "simt_impl.h" /* before cmocka.h, which defines a macro "fail" */

#include <fstream>
#include <map>

#include "engine_jobs.h"

#include "counters.h"

#include <atomic>
#include <climits>
#include <thread>

#include "backend/cuda/fuse_rules.h"

extern "C" bool simt_has_plan_facts(void);
extern "C" int simt_typed_write(const char *path, const char *arch, int32_t type, const char *sizes);

static pi_engine *open_fused(const char *fuse, const char *matmul, const char *fp4 = "off", const char *batch = "64",
                             const char *parallel = "5", const char *cache = "0")
{
    pi_error err;
    pi_engine *e;
    pi_options *o = options_on("emu", batch);
    set(o, "cuda-fuse", fuse);
    set(o, "matmul", matmul);
    set(o, "fp4-mode", fp4);
    set(o, "parallel", parallel);
    set(o, "kv-cache-tokens", cache);
    if (pi_engine_open(&e, o, &err)) fail_msg("%s", err.msg);
    pi_options_free(o);
    return e;
}

enum { MANY_SM = 64 /* a multiprocessor count at which launches with an epilogue have up to 32 rows */ };

/* Checks prompts of n rows, and steps of one to five sequences: fused and separate launches give the same bits. */
static void check_bits(const char *arch, int32_t type, const char *matmul, const char *fp4 = "off", size_t n = 64,
                       const char *sizes = nullptr)
{
    const std::vector<job> jobs = {{prompt(n, 1), "5"}, {prompt(16, 2), "4"}, {prompt(1, 3), "5"}, {prompt(17, 4), "3"},
                                   {prompt(7, 5), "4"}};
    assert_int_equal(simt_typed_write(model_path.c_str(), arch, type, type == PI__NVFP4 ? "F=192" : sizes), 0);
    const std::string batch = std::to_string(n > 64 ? n + 6 : 64);
    pi_engine *apart = open_fused("off", matmul, fp4, batch.c_str()),
              *fused = open_fused("auto", matmul, fp4, batch.c_str());
    const std::vector<rows> want = run_jobs(apart, jobs);
    simt::watch.n_launched = 0;
    same_rows(want, run_jobs(fused, jobs));
    same_rows({want[2]}, run_jobs(fused, {jobs[2]}));
    same_rows({want[4]}, run_jobs(fused, {jobs[4]}));
    pi_engine_close(apart);
    pi_engine_close(fused);
    unlink(model_path.c_str());
}

/* Checks steps of n_seqs sequences, of one less, and of one: fused and separate launches give the same bits. */
static void check_many(const char *arch, int32_t type, const char *matmul, size_t n_seqs, const char *fp4 = "off",
                       const char *sizes = nullptr)
{
    std::vector<job> jobs;
    std::vector<rows> want;
    for (size_t i = 0; i < n_seqs; i++) jobs.push_back({prompt(1, (int32_t) i + 1), i + 1 < n_seqs ? "3" : "2"});
    for (size_t i = 0; i < n_seqs; i++) jobs[i].prompt.push_back(260 + (int32_t) i);
    assert_int_equal(simt_typed_write(model_path.c_str(), arch, type, sizes), 0);
    for (const char *fuse : {"off", "auto"}) {
        pi_engine *e = open_fused(fuse, matmul, fp4, "64", "32");
        const std::vector<rows> got = run_jobs(e, jobs);
        if (want.empty()) want = got;
        same_rows(want, got);
        same_rows({want[3]}, run_jobs(e, {jobs[3]}));
        pi_engine_close(e);
    }
    unlink(model_path.c_str());
}

/* What the groups of the output read is longer than blocks of their products prepare by themselves, of more than 8
 * rows. */
static const char *const LONG_GROUPS = "L=2 D=512 H=8";

static void test_many(void **)
{
    check_many("qwen35moe", PI__Q8_0, "auto", 23);
    if (getenv("PI_TEST_EMULATED")) return;
    check_many("gemma4", PI__Q8_0, "auto", 17);
    check_many("deepseek4", 0, "auto", 9, "off", LONG_GROUPS);
    check_many("llama2", PI__NVFP4, "auto", 29, "w4a4", "F=192");
    simt::watch.n_sm = 22; /* at most 22 rows in a launch with an epilogue */
    check_many("llama2", PI__Q8_0, "auto", 23);
    simt::watch.n_sm = MANY_SM;
    if (!getenv("PAGEDINFER_LONG")) return;
    check_many("llama2", PI__Q4_0, "exact", 32);
    check_many("qwen35", PI__Q8_0, "auto", 31);
    check_many("deepseek3", PI__Q8_0, "auto", 18);
}

static void test_bits(void **)
{
    check_bits("gemma3", PI__Q8_0, "auto"); /* norms of the addend */
    if (getenv("PI_TEST_EMULATED")) return;
    check_bits("llama2", PI__Q4_0, "auto", "off", 90); /* products that add their results to the residual */
    check_bits("gemma4", PI__Q8_0, "auto"); /* experts with their own norms */
    check_bits("qwen35moe", PI__Q8_0, "auto"); /* one input in several forms */
    /* heads' own matrices, with a tail, and with what makes queries of their results */
    check_bits("deepseek3", PI__Q8_0, "auto");
    check_bits("deepseek4", 0, "auto", "off", 64, "D=64"); /* the same of groups, whose input attention prepares; */
    if (!getenv("PAGEDINFER_LONG")) return;
    check_bits("deepseek4", 0, "auto", "off", 140, "D=64"); /* which are products one by one */
    check_bits("llama2", PI__Q4_0, "exact");
    check_bits("qwen35", PI__Q8_0, "auto");
    check_bits("glm4moe", PI__Q8_0, "auto"); /* a shared expert without a gate */
    check_bits("llama2", PI__F16, "auto");   /* matrices that have no tail */
}

/* FP4 products: gate and up are one launch for any number of rows, also of experts. */
static void test_fp4(void **)
{
    check_bits("llama2", PI__NVFP4, "auto", "w4a4");
    if (getenv("PI_TEST_EMULATED")) return;
    check_bits("gemma3", PI__MXFP4, "auto", "auto"); /* w4a8 */
    check_bits("qwen35moe", PI__MXFP4, "auto", "w4a4");
}

/* More rows than mma.sync handles on sm_90, in products and in attention, then steps of one row. Gate and up are one
 * launch there, too. */
static void test_wgmma(void **)
{
    std::vector<rows> got[2];
    simt::counter c;
    double n = 0;
    long both = 0, attention = 0;
    simt::watch.n_sm = 6; /* enough tiles of queries for half of them */
    assert_int_equal(simt_typed_write(model_path.c_str(), "llama2", PI__Q4_0, "E=256 H=4 G=2 D=64 F=256"), 0);
    for (int i = 0; i < 2; i++) {
        pi_engine *e;
        pi_error err;
        simt::options.arch = i ? 90 : 120;
        simt::options.count = i ? &c : nullptr;
        if (open_engine(&e, "128", &err)) fail_msg("%s", err.msg);
        got[i] = run_jobs(e, {{prompt(66, 1), "2"}});
        pi_engine_close(e);
    }
    simt::options.count = nullptr;
    simt::options.arch = 120;
    simt::watch.n_sm = MANY_SM;
    same_rows(got[0], got[1]);
    for (const simt::launch_counts &l : c.launches) {
        n += l.op[simt::DO_WGMMA];
        both += std::string(simt::source_of(l.kernel)).find("wgmma_glu<") != std::string::npos;
        attention += std::string(simt::source_of(l.kernel)).find("attention_wgmma<") != std::string::npos;
    }
    assert_true(n > 0 && both > 0 && attention > 0);
    unlink(model_path.c_str());
}

/* With many multiprocessors, the slices of down's tiles are split over blocks and give the same bits. Gate and up
 * with either activation are one launch in 16-bit floats. */
static void test_slices(void **)
{
    const struct {
        int32_t type;
        const char *fp4, *sizes;
    } cases[] = {{PI__Q4_0, "off", "F=1536"}, {PI__MXFP4, "auto", "F=3072"}};
    const int n_sm = simt::watch.n_sm;
    for (const auto &model : cases) {
        std::vector<rows> got[2];
        assert_int_equal(simt_typed_write(model_path.c_str(), "llama2", model.type, model.sizes), 0);
        for (int i = 0; i < 2; i++) {
            simt::counter c;
            long shared = 0, both = 0;
            simt::watch.n_sm = i ? 64 : 1;
            pi_engine *e = open_fused("auto", "auto", model.fp4, "96");
            simt::options.count = &c;
            got[i] = run_jobs(e, {{prompt(90, 1), "2"}});
            simt::options.count = nullptr;
            pi_engine_close(e);
            for (const simt::launch_counts &l : c.launches) {
                shared += l.grid.z > 1;
                both += std::string(simt::source_of(l.kernel)).find("w16_glu<") != std::string::npos;
            }
            assert_int_equal(both > 0, model.type == PI__Q4_0);
            if (!shared != !i)
                fail_msg("%d multiprocessors: %ld launches whose blocks share slices", i ? 64 : 1, shared);
        }
        same_rows(got[0], got[1]);
        unlink(model_path.c_str());
        if (getenv("PI_TEST_EMULATED")) break;
    }
    simt::watch.n_sm = n_sm;
}

/* Counts rows of logits and launches, on the step thread. The first row waits until all sequences are submitted. */
struct steps_seen {
    std::atomic<bool> all_there{false};
    size_t n_rows = 0;
    std::vector<std::pair<size_t, long>> at; /* at each row of the first sequence: rows so far, launches so far */
};
struct sequence_seen {
    steps_seen *all;
    bool first;
};
static void see_row(void *ud, uint32_t, const float *, size_t)
{
    const sequence_seen &s = *static_cast<sequence_seen *>(ud);
    while (!s.all->all_there) std::this_thread::yield();
    if (s.first) s.all->at.push_back({s.all->n_rows, simt::watch.n_launched});
    s.all->n_rows++;
}

/* Min launches of a step that had a token of each of n_seqs sequences. */
static long launches_of_step(pi_engine *e, size_t n_seqs)
{
    steps_seen seen;
    std::vector<sequence_seen> sequence(n_seqs, {&seen, false});
    std::vector<int> code(n_seqs);
    std::vector<pi_request *> r;
    pi_error err;
    long least = LONG_MAX;
    sequence[0].first = true;
    for (size_t i = 0; i < n_seqs; i++) {
        const std::vector<int32_t> p = prompt(3, (int32_t) i + 1);
        r.push_back(pi_request_new(e));
        pi_request_set_user(r[i], &code[i]);
        pi_request_on_logits(r[i], see_row, &sequence[i]);
        int rc = pi_request_set(r[i], "max-tokens", "20", &err);
        if (!rc) rc = pi_request_prompt_tokens(r[i], p.data(), p.size(), &err);
        if (!rc) rc = pi_request_submit(r[i], &err);
        assert_int_equal(rc, 0);
    }
    seen.all_there = true;
    take_events(e, [] {});
    for (size_t i = 0; i < n_seqs; i++) {
        assert_int_equal(code[i], PI_OK);
        pi_request_free(r[i]);
    }
    for (size_t i = 1; i < seen.at.size(); i++)
        if (seen.at[i].first - seen.at[i - 1].first == n_seqs)
            least = std::min(least, seen.at[i].second - seen.at[i - 1].second);
    if (least == LONG_MAX) fail_msg("no step has %zu sequences", n_seqs);
    return least;
}

/* Launches of a decode step of n_seqs sequences. */
static long launches(const char *arch, const char *sizes, const char *fuse, size_t n_seqs = 1, int32_t type = PI__Q8_0,
                     const char *fp4 = "off")
{
    cuda_graphs = "off";
    simt::watch.idle = true;
    assert_int_equal(simt_typed_write(model_path.c_str(), arch, type, sizes), 0);
    pi_engine *e = open_fused(fuse, "auto", fp4, "64", "32", "65536");
    const long n = launches_of_step(e, n_seqs);
    pi_engine_close(e);
    simt::watch.idle = false;
    cuda_graphs = "auto";
    unlink(model_path.c_str());
    return n;
}

/* Launches of a step by the text of its plan (tests/unit/plans, test_plan.c): its lines, and more for a line that says
 * so. Without the indexer, which does nothing as long as all entries are picked. */
static long planned(const std::string &arch, const std::string &step)
{
    std::ifstream file(PLANS "/" + arch + ".txt");
    std::map<std::string, long> n;
    std::string line, now;
    while (std::getline(file, line)) {
        const size_t more = line.find(" kernels");
        if (line.rfind("--- ", 0) == 0) n[now = line.substr(4)] = 0;
        else if (line.rfind("as ", 0) == 0) n[now] = n[line.substr(3)];
        else if (line.rfind("indexer", 0) != 0)
            n[now] += more == std::string::npos ? 1 : std::stol(line.substr(line.rfind(' ', more - 1)));
    }
    if (!n[step]) fail_msg("no plan of %s for %s", arch.c_str(), step.c_str());
    return n[step];
}

/* Launches of one layer. */
static long of_layer(const char *arch, const char *sizes, const char *more, int layers, const char *fuse, size_t n_seqs)
{
    const long n = launches(arch, more, fuse, n_seqs) - launches(arch, sizes, fuse, n_seqs);
    assert_int_equal(n % layers, 0);
    return n / layers;
}

/* Checks the launches of steps of n sequences: those of the plan, and many more without fusing. */
static void check_launches(size_t n)
{
    for (const char *arch : {"llama2", "qwen35", "qwen35moe", "qwen3moe", "deepseek3", "deepseek4", "gemma4"}) {
        const int32_t type = std::string(arch) == "deepseek4" ? 0 : PI__Q8_0;
        const long fused = launches(arch, nullptr, "auto", n, type, "auto"),
                   apart = launches(arch, nullptr, "off", n, type, "auto"),
                   want = planned(arch, n == 1 ? "1 sequence" : std::to_string(n) + " sequences");
        if (fused != want) fail_msg("%s, %zu sequences: %ld launches, %ld planned", arch, n, fused, want);
        if (apart < want * 3 / 2) fail_msg("%s: %ld launches planned, %ld apart", arch, want, apart);
    }
    const long three = launches("llama2", "L=3 F=128", "auto", n, PI__NVFP4, "w4a4");
    const long w4a4 = (launches("llama2", "L=5 F=128", "auto", n, PI__NVFP4, "w4a4") - three) / 2;
    if (w4a4 > 5) fail_msg("a layer in w4a4: %ld launches", w4a4);
    const long rows = launches("deepseek4", "L=2", "auto", n, 0),
               rounded = launches("deepseek4", LONG_GROUPS, "auto", n, 0);
    if (rounded != rows) fail_msg("deepseek4: %ld launches, %ld with long rows", rows, rounded);
}

/* Rules can be disabled, all of them and some of them: the bits stay the same. */
static void test_rules(void **)
{
    std::vector<std::string> rules;
#define NAME(name, ops, result) rules.push_back(#name);
    PI__PLAN_RULES(NAME)
#undef NAME
    for (const char *arch : {"qwen35moe", "deepseek4"}) {
        const std::vector<job> jobs = {{prompt(70, 1), "3"}, {prompt(3, 2), "4"}};
        const int32_t type = std::string(arch) == "deepseek4" ? 0 : PI__Q8_0;
        assert_int_equal(simt_typed_write(model_path.c_str(), arch, type, nullptr), 0);
        pi_engine *all = open_fused("auto", "auto", "off", "80");
        const std::vector<rows> want = run_jobs(all, jobs);
        pi_engine_close(all);
        std::string every;
        for (const std::string &rule : rules) every += (every.empty() ? "" : ",") + rule;
        std::vector<std::string> off = {every};
        if (!getenv("PI_TEST_EMULATED"))
            off.insert(off.end(), {"glu,beside,queries,heads,routes,latent,gated", //
                                   "pack,sums,streams,added,adds,split,downs,groups"});
        if (getenv("PAGEDINFER_LONG")) off.insert(off.end(), rules.begin(), rules.end());
        for (const std::string &some : off) {
            pi_engine *e = open_fused(some.c_str(), "auto", "off", "80");
            same_rows(want, run_jobs(e, jobs));
            pi_engine_close(e);
        }
        unlink(model_path.c_str());
    }
}

/* The facts with which test_plan.c plans are those of the kernels. */
static void test_facts(void **) { assert_true(simt_has_plan_facts()); }

static void test_launches(void **)
{
    for (size_t n : {1, 32}) check_launches(n);
    simt::watch.n_sm = 22; /* max rows: with more rows, residual and norm are separate launches */
    const long few = of_layer("llama2", "L=3", "L=5", 2, "auto", 22),
               many = of_layer("llama2", "L=3", "L=5", 2, "auto", 23);
    simt::watch.n_sm = MANY_SM;
    if (few > 5 || many <= 5) fail_msg("a layer on few multiprocessors: %ld and %ld launches", few, many);
}

int main()
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits),   cmocka_unit_test(test_many),
                                       cmocka_unit_test(test_fp4),    cmocka_unit_test(test_wgmma),
                                       cmocka_unit_test(test_slices), cmocka_unit_test(test_launches),
                                       cmocka_unit_test(test_rules),  cmocka_unit_test(test_facts)};
    name_model("fuse");
    simt::watch.n_sm = MANY_SM;
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
